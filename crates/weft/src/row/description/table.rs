//! [`TableDescription`]: the description of a table, as owned data.

use std::borrow::Cow;

use super::conversion::Named;
use super::{TypeDescription, Value, read_list, read_positions, write_list};
use crate::row::column::{
    ColumnValue, DecodeError, FieldType, read_leb128, read_text, write_leb128, write_text,
};
use crate::row::generated::FIRST_NUMBER;
use crate::row::schema::{Record, Storage};

/// A table: its name, its columns, its primary key and its indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDescription {
    /// The table's name.
    pub name: String,
    /// The kind of index that holds the primary key.
    pub storage: Storage,
    /// The columns, in the order in which a row has them.
    pub columns: Vec<ColumnDescription>,
    /// The primary key: positions in `columns`, in the order of the key.
    pub key: Vec<usize>,
    /// The secondary indexes.
    pub indexes: Vec<IndexDescription>,
    /// The names that the table had earlier.
    pub was: Vec<String>,
    /// The names of the checks that each row passes.
    pub checks: Vec<String>,
    /// The names of columns, fields of columns, unique indexes and checks that the program has
    /// dropped on purpose.
    pub dropped: Vec<String>,
    /// Whether the program has a function that makes rows of stored ones if their key is another
    /// one, or their columns cannot be converted.
    pub is_migrated: bool,
    /// The number of the next key that the database generates, at least; `None` if it generates none. A checkpoint
    /// advances it.
    pub next_key: Option<u64>,
    /// How many of the columns, the last ones, the program does not know, and keeps for a newer
    /// one. What it logs does not contain them.
    pub kept: usize,
}

/// The description of a column, or of a field of a struct that is a column's type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnDescription {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_of: TypeDescription,
    /// The encoded value of this column in rows that were stored before the column existed; `None`
    /// if it has no default.
    pub default: Option<Vec<u8>>,
    /// The names that it had earlier.
    pub was: Vec<String>,
    /// Whether the program computes it from rows that were stored before the column existed.
    pub is_computed: bool,
}

/// The description of a secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDescription {
    /// Its name.
    pub name: String,
    /// The columns that it is ordered by: positions in [`TableDescription::columns`].
    pub columns: Vec<usize>,
    /// Whether any two rows must differ in the values of these columns.
    pub unique: bool,
}

impl TableDescription {
    /// Returns the description of the table with rows of type `R`. Returns `None` if the table is
    /// volatile, because its columns have no stored form.
    ///
    /// Evaluates the columns' defaults.
    pub fn of<R: Record>() -> Option<TableDescription> {
        TableDescription::named::<R>(R::TABLE)
    }

    /// As [`TableDescription::of`], for the table with this name.
    pub fn named<R: Record>(name: &str) -> Option<TableDescription> {
        let position_of = |name: &str| R::COLUMNS.iter().position(|column| column.name == name);
        let columns: Option<Vec<ColumnDescription>> = R::COLUMNS
            .iter()
            .map(|column| {
                Some(ColumnDescription {
                    default: column.default.map(written),
                    was: owned(column.was),
                    is_computed: column.computed.is_some(),
                    ..ColumnDescription::new(column.name.to_owned(), column.type_of?.into())
                })
            })
            .collect();
        let indexes = R::INDEXES.iter().map(|index| IndexDescription {
            name: index.name.to_owned(),
            columns: index.columns.iter().filter_map(|name| position_of(name)).collect(),
            unique: index.unique,
        });
        if R::VOLATILE {
            return None;
        }
        Some(TableDescription {
            name: name.to_owned(),
            storage: R::STORAGE,
            columns: columns?,
            key: R::KEY_COLUMNS.to_vec(),
            indexes: indexes.collect(),
            was: owned(R::EVOLUTION.was),
            checks: owned(R::EVOLUTION.checks),
            dropped: owned(R::EVOLUTION.dropped),
            is_migrated: R::EVOLUTION.is_migrated,
            next_key: R::KEY_NUMBER.map(|_| FIRST_NUMBER),
            kept: 0,
        })
    }

    /// Returns the description without the columns that the program does not know: that of the
    /// rows which it logs.
    pub fn written(&self) -> Cow<'_, TableDescription> {
        if self.kept == 0 {
            return Cow::Borrowed(self);
        }
        let mut written = self.clone();
        written.columns.truncate(self.columns.len() - self.kept);
        written.kept = 0;
        Cow::Owned(written)
    }

    /// Returns whether rows of this table are stored and logged as those of `other`, and older rows
    /// become the same in both.
    pub fn is_stored_as(&self, other: &TableDescription) -> bool {
        (&self.columns, &self.key, self.kept) == (&other.columns, &other.key, other.kept)
    }

    /// Reads the values of a stored row, in the order of the columns.
    ///
    /// # Errors
    /// If `row` is not exactly the columns' encodings.
    pub fn read_row(&self, row: &[u8]) -> Result<Vec<Value>, DecodeError> {
        let mut values = Vec::with_capacity(self.columns.len());
        let mut rest = row;
        for column in &self.columns {
            let value = column.type_of.read_value(&mut rest);
            values.push(value.map_err(|error| error.in_column(column.name.clone(), row.len()))?);
        }
        if !rest.is_empty() {
            return Err(DecodeError::goes_on(rest, "the row").within(row.len()));
        }
        Ok(values)
    }

    /// Reads the values of a stored key, in the order of the key's columns.
    ///
    /// # Errors
    /// If `key` is not exactly the encodings of these columns.
    pub fn read_key(&self, key: &[u8]) -> Result<Vec<Value>, DecodeError> {
        let mut values = Vec::with_capacity(self.key.len());
        let mut rest = key;
        for column in self.key.iter().map(|&position| &self.columns[position]) {
            let value = column.type_of.read_value(&mut rest);
            values.push(value.map_err(|error| error.in_column(column.name.clone(), key.len()))?);
        }
        if !rest.is_empty() {
            return Err(DecodeError::goes_on(rest, "the key").within(key.len()));
        }
        Ok(values)
    }

    /// Returns the number of a stored key, behind which the keys that are generated go on; 0 if it has none.
    pub(crate) fn key_number(&self, key: &[u8]) -> Result<u64, DecodeError> {
        let mut values = self.read_key(key)?;
        loop {
            return Ok(match values.pop() {
                Some(Value::Unsigned(number)) => u64::try_from(number).unwrap_or(u64::MAX),
                Some(Value::Signed(number)) => u64::try_from(number).unwrap_or(0),
                // A struct with one field.
                Some(Value::Tuple(fields)) => {
                    values = fields;
                    continue;
                }
                _ => 0,
            });
        }
    }

    /// Appends the encoding of the description ([the module](super) draws it).
    pub fn write(&self, output: &mut Vec<u8>) {
        let write_position = |&position: &usize, output: &mut Vec<u8>| {
            write_leb128(position as u64, output);
        };
        write_text(&self.name, output);
        output.push(match self.storage {
            Storage::Ordered => 0,
            Storage::Hash => 1,
        });
        write_list(&self.columns, output, ColumnDescription::write);
        write_list(&self.key, output, write_position);
        write_list(&self.indexes, output, |index, output| {
            write_text(&index.name, output);
            write_list(&index.columns, output, write_position);
            index.unique.write(output);
        });
        for names in [&self.was, &self.checks, &self.dropped] {
            names.write(output);
        }
        self.is_migrated.write(output);
        write_leb128(self.kept as u64, output);
        self.next_key.write(output);
    }

    /// Reads a description that [`TableDescription::write`] wrote, and advances `input` past it.
    ///
    /// # Errors
    /// If `input` does not begin with a valid description. In a valid one all positions are those
    /// of columns, the columns have different names, and the defaults are values of their columns'
    /// types.
    pub fn read(input: &mut &[u8]) -> Result<TableDescription, DecodeError> {
        Self::read_form(3, input)
    }

    /// Reads one of the forms that descriptions have had. Form 3 is that of [`TableDescription::read`], form 2 has no
    /// next key, and form 1 ends with the indexes, and its columns end with their defaults.
    ///
    /// # Errors
    /// As [`TableDescription::read`].
    pub fn read_form(form: u32, input: &mut &[u8]) -> Result<TableDescription, DecodeError> {
        let length = input.len();
        Self::read_here(form, input).map_err(|error| error.within(length))
    }

    fn read_here(form: u32, input: &mut &[u8]) -> Result<TableDescription, DecodeError> {
        let is_whole = form > 1;
        let name = String::read(input)?;
        let start = *input;
        let storage = match u8::read(input)? {
            0 => Storage::Ordered,
            1 => Storage::Hash,
            number => {
                let message = format!("a table has the unknown kind of index {number}");
                return Err(DecodeError::new(start, message));
            }
        };
        let start = *input;
        let columns = read_list(input, |input| ColumnDescription::read(0, is_whole, input))?;
        let repeated = (1..columns.len())
            .find(|&at| columns[..at].iter().any(|it| it.name == columns[at].name));
        if let Some(repeated) = repeated {
            let message = format!("two columns are named `{}`", columns[repeated].name);
            return Err(DecodeError::new(start, message));
        }
        let key = read_positions(columns.len(), input)?;
        let indexes = read_list(input, |input| {
            Ok(IndexDescription {
                name: read_text(input)?.to_owned(),
                columns: read_positions(columns.len(), input)?,
                unique: bool::read(input)?,
            })
        })?;
        let mut table =
            TableDescription { name, storage, columns, key, indexes, ..Self::default() };
        if is_whole {
            for names in [&mut table.was, &mut table.checks, &mut table.dropped] {
                *names = Vec::read(input)?;
            }
            table.is_migrated = bool::read(input)?;
            let start = *input;
            let known = table.key.iter().max().map_or(0, |last| last + 1);
            table.kept = read_leb128(input)? as usize;
            if table.kept > table.columns.len().saturating_sub(known) {
                return Err(DecodeError::new(start, "more columns are kept than there are"));
            }
        }
        if form > 2 {
            table.next_key = Option::read(input)?;
        }
        Ok(table)
    }
}

impl Default for TableDescription {
    /// Returns the description of a table without a name and without columns.
    fn default() -> Self {
        TableDescription {
            name: String::new(),
            storage: Storage::Ordered,
            columns: Vec::new(),
            key: Vec::new(),
            indexes: Vec::new(),
            was: Vec::new(),
            checks: Vec::new(),
            dropped: Vec::new(),
            is_migrated: false,
            next_key: None,
            kept: 0,
        }
    }
}

impl Named for TableDescription {
    fn name(&self) -> &str {
        &self.name
    }

    fn was(&self) -> &[String] {
        &self.was
    }
}

impl Named for ColumnDescription {
    fn name(&self) -> &str {
        &self.name
    }

    fn was(&self) -> &[String] {
        &self.was
    }
}

impl From<&FieldType> for ColumnDescription {
    fn from(field: &FieldType) -> ColumnDescription {
        ColumnDescription {
            default: field.default.map(written),
            was: owned(field.was),
            ..ColumnDescription::new(field.name.to_owned(), field.type_of.into())
        }
    }
}

/// Returns what `write` writes.
fn written(write: fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut value = Vec::new();
    write(&mut value);
    value
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

impl ColumnDescription {
    /// Returns the description of a column that has neither a default nor a past.
    pub fn new(name: String, type_of: TypeDescription) -> ColumnDescription {
        ColumnDescription { name, type_of, default: None, was: Vec::new(), is_computed: false }
    }

    /// Returns whether it has neither a default nor a past.
    pub(super) fn is_plain(&self) -> bool {
        self.default.is_none() && self.was.is_empty() && !self.is_computed
    }

    /// Appends the name and the type.
    pub(super) fn write_plain(&self, output: &mut Vec<u8>) {
        write_text(&self.name, output);
        self.type_of.write(output);
    }

    pub(super) fn write(&self, output: &mut Vec<u8>) {
        self.write_plain(output);
        self.default.write(output);
        self.was.write(output);
        self.is_computed.write(output);
    }

    pub(super) fn read(
        depth: usize,
        is_whole: bool,
        input: &mut &[u8],
    ) -> Result<ColumnDescription, DecodeError> {
        let name = String::read(input)?;
        let type_of = TypeDescription::read_at_depth(depth, input)?;
        let start = *input;
        let default = Option::<Vec<u8>>::read(input)?;
        if let Some(mut value) = default.as_deref() {
            let is_value = type_of.read_value(&mut value).is_ok() && value.is_empty();
            if !is_value {
                let message =
                    format!("the default of column `{name}` is not a value of type {type_of}");
                return Err(DecodeError::new(start, message));
            }
        }
        let mut column = ColumnDescription { default, ..Self::new(name, type_of) };
        if is_whole {
            column.was = Vec::read(input)?;
            column.is_computed = bool::read(input)?;
        }
        Ok(column)
    }
}
