//! [`compare`], which compares the stored tables with the program's, and the adaptation of rows
//! where they differ.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use super::{ColumnDescription, RowChange, TableDescription, TypeDescription};
use crate::row::column::DecodeError;

/// The conversion of rows of a table as it was stored into rows of the same table as it is now.
#[derive(Clone, Debug)]
pub struct Adaptation {
    /// The stored columns, in their order.
    stored: Vec<(String, TypeDescription)>,
    /// The source of each current column, in the order of the current columns.
    sources: Vec<Source>,
    is_identity: bool,
}

/// Where a column comes from.
#[derive(Clone, Debug)]
enum Source {
    /// From the stored column at this position.
    Stored(usize),
    /// The column was not stored. This is the default's encoding.
    Default(Vec<u8>),
}

/// A stored table, with the table of the program that it has become.
#[derive(Clone, Debug)]
pub struct TableMatch {
    /// The position of that table among the tables of the program.
    pub current: usize,
    /// What has to be done with the table's rows.
    pub adaptation: Adaptation,
}

/// The error for stored tables that cannot be opened as the program declares them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaMismatch {
    /// Everything that differs, table by table.
    pub differences: Vec<Difference>,
}

/// Something that differs between a stored table and the program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The table's name.
    pub table: String,
    /// What differs, in words.
    pub what: String,
}

/// Compares the stored tables with those of the program: finds each of `stored` in `current`, by
/// its name. The result has one entry for each stored table, in the order of `stored`. Tables that
/// are only in `current` are new, which is allowed.
///
/// # Errors
/// All differences that are not allowed, in one error: each stored table that is not in `current`,
/// and everything that [`Adaptation::new`] refuses.
pub fn compare(
    stored: &[TableDescription],
    current: &[TableDescription],
) -> Result<Vec<TableMatch>, SchemaMismatch> {
    let mut matched = Vec::with_capacity(stored.len());
    let mut differences = Vec::new();
    for table in stored {
        let Some(position) = current.iter().position(|other| other.name == table.name) else {
            differences.push(Difference {
                table: table.name.clone(),
                what: "it is stored, and is not among the tables that are opened now, \
                       unless as a volatile one"
                    .to_owned(),
            });
            continue;
        };
        match Adaptation::new(table, &current[position]) {
            Ok(adaptation) => matched.push(TableMatch { current: position, adaptation }),
            Err(mismatch) => differences.extend(mismatch.differences),
        }
    }
    if differences.is_empty() { Ok(matched) } else { Err(SchemaMismatch { differences }) }
}

impl Adaptation {
    /// Returns the adaptation that turns rows of `stored` into rows of `current`. Columns are found
    /// by their names.
    ///
    /// Columns may be added if they have a default, and may stand in another order. The kind of
    /// index that holds the key, and the secondary indexes, may differ, because stored rows do not
    /// depend on them.
    ///
    /// # Errors
    /// All other differences: the table's name, the type of a column, the columns of the primary
    /// key or their order, a column that no longer exists, a new column without a default.
    pub fn new(
        stored: &TableDescription,
        current: &TableDescription,
    ) -> Result<Adaptation, SchemaMismatch> {
        let mut differences = Vec::new();
        if stored.name != current.name {
            differences.push(format!("it is named `{}` now", current.name));
        }
        let in_current = |name: &str| current.columns.iter().find(|column| column.name == name);
        for column in &stored.columns {
            let ColumnDescription { name, type_of, .. } = column;
            match in_current(name) {
                None => differences.push(format!(
                    "column `{name}`, which is stored as {type_of}, is not there now"
                )),
                Some(now) if !now.type_of.is_stored_as(type_of) => differences.push(format!(
                    "column `{name}` is stored as {type_of}, and is {} now",
                    now.type_of
                )),
                Some(_) => {}
            }
        }
        let mut sources = Vec::with_capacity(current.columns.len());
        for column in &current.columns {
            let name = &column.name;
            match (stored.columns.iter().position(|it| it.name == *name), &column.default) {
                (Some(position), _) => sources.push(Source::Stored(position)),
                (None, Some(default)) => sources.push(Source::Default(default.clone())),
                (None, None) => differences.push(format!(
                    "column `{name}` is new, and has no default for the rows that are stored: \
                     give it one with `#[record(default = …)]`"
                )),
            }
        }
        let (stored_key, current_key) = (key_in_words(stored), key_in_words(current));
        if stored_key != current_key {
            differences.push(format!(
                "the primary key is stored as {stored_key}, and is {current_key} now"
            ));
        }
        if !differences.is_empty() {
            let difference = |what| Difference { table: stored.name.clone(), what };
            let differences = differences.into_iter().map(difference).collect();
            return Err(SchemaMismatch { differences });
        }
        let stored: Vec<_> = stored
            .columns
            .iter()
            .map(|column| (column.name.clone(), column.type_of.clone()))
            .collect();
        let is_identity = stored.len() == sources.len()
            && sources.iter().enumerate().all(
                |(position, source)| matches!(source, Source::Stored(from) if *from == position),
            );
        Ok(Adaptation { stored, sources, is_identity })
    }

    /// Returns whether rows are stored exactly as the current table has them.
    pub fn is_identity(&self) -> bool {
        self.is_identity
    }

    /// Appends to `output` the current form of `stored`, a stored row.
    ///
    /// It reads no more of the row than where its columns begin and end, and if
    /// [`Self::is_identity`], not even that. (Keys need no adaptation: a key that is stored in
    /// another form is refused.)
    ///
    /// # Errors
    /// If `stored` does not consist of the stored columns.
    pub fn row(&self, stored: &[u8], output: &mut Vec<u8>) -> Result<(), DecodeError> {
        if self.is_identity {
            output.extend_from_slice(stored);
            return Ok(());
        }
        let mut ranges: SmallVec<[Range<usize>; 16]> = SmallVec::new();
        let mut rest = stored;
        for (name, type_of) in &self.stored {
            let start = stored.len() - rest.len();
            let skipped = type_of.skip(&mut rest);
            skipped.map_err(|error| error.in_column(name.clone(), stored.len()))?;
            ranges.push(start..stored.len() - rest.len());
        }
        if !rest.is_empty() {
            return Err(DecodeError::goes_on(rest, "the row").within(stored.len()));
        }
        for source in &self.sources {
            output.extend_from_slice(match source {
                Source::Stored(position) => &stored[ranges[*position].clone()],
                Source::Default(value) => value,
            });
        }
        Ok(())
    }
}

impl Adaptation {
    /// Moves the columns of a stored change to the positions that they have now.
    pub fn move_columns(&self, change: &mut RowChange<'_>) {
        if self.is_identity {
            return;
        }
        change.move_columns(|stored| {
            let is_from = |source: &Source| matches!(source, Source::Stored(it) if *it == stored);
            self.sources.iter().position(is_from).expect("every stored column is there now")
        });
    }
}

fn key_in_words(table: &TableDescription) -> String {
    let columns = table.key.iter().map(|&position| &table.columns[position].name);
    let columns: Vec<_> = columns.map(|name| format!("`{name}`")).collect();
    format!("({})", columns.join(", "))
}

impl fmt::Display for SchemaMismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = None;
        for difference in &self.differences {
            match table.replace(&difference.table) {
                Some(before) if *before == difference.table => formatter.write_str("; ")?,
                Some(_) => write!(formatter, "; table `{}`: ", difference.table)?,
                None => write!(formatter, "table `{}`: ", difference.table)?,
            }
            formatter.write_str(&difference.what)?;
        }
        formatter.write_str(
            ". Tables, indexes, and columns with a default may be added; \
             for any other change, export the table and import it into the new one",
        )
    }
}

impl std::error::Error for SchemaMismatch {}
