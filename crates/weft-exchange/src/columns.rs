//! Which column of a file is which of a table.

use weft::description::TableDescription;

/// Matches a file's columns with a table's by name, in whatever order: for each column of the
/// table its position in the file, or `None` if it is to have its default.
///
/// # Errors
/// If the file has a column that the table has not, or one twice, or lacks one that has no
/// default: all of these, in words.
pub fn match_columns<'a>(
    table: &TableDescription,
    file: impl Iterator<Item = &'a str>,
) -> Result<Vec<Option<usize>>, Vec<String>> {
    let mut problems = Vec::new();
    let mut positions = vec![None; table.columns.len()];
    for (position, name) in file.enumerate() {
        match table.columns.iter().position(|column| column.name == name) {
            None => {
                problems.push(format!("its column {} is {name:?}, which is unknown", position + 1));
            }
            Some(column) if positions[column].is_some() => {
                problems.push(format!("column `{name}` is there twice"));
            }
            Some(column) => positions[column] = Some(position),
        }
    }
    for (column, position) in table.columns.iter().zip(&positions) {
        if position.is_none() && column.default.is_none() {
            problems.push(format!("column `{}` is missing, and has no default", column.name));
        }
    }
    if problems.is_empty() { Ok(positions) } else { Err(problems) }
}
