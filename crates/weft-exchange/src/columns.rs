//! Matching of a file's columns with a table's.

use weft::description::TableDescription;

/// Matches a file's columns with a table's by name, in any order. Returns for each column of the table its
/// position in the file, or `None` if the column gets its default.
///
/// # Errors
/// If the file has a column that the table lacks, has one twice, or lacks one that has no default. Returns all
/// such problems, in words.
pub fn match_columns<'a>(
    table: &TableDescription,
    file: impl Iterator<Item = &'a str>,
) -> Result<Vec<Option<usize>>, Vec<String>> {
    let mut problems = Vec::new();
    let mut positions = vec![None; table.columns.len()];
    for (position, name) in file.enumerate() {
        match table.columns.iter().position(|column| column.name == name) {
            None => {
                problems.push(format!(
                    "its column {} is {name:?}, which the table does not have",
                    position + 1
                ));
            }
            Some(column) if positions[column].is_some() => {
                problems.push(format!("column `{name}` appears twice"));
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
