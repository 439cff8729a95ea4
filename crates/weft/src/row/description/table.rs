//! [`TableDescription`]: the description of a table, as owned data.

use super::{TypeDescription, Value, read_list, read_positions, write_list};
use crate::row::column::{ColumnValue, DecodeError, read_text, write_leb128, write_text};
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
}

/// The description of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDescription {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_of: TypeDescription,
    /// The encoded value of this column in rows that were stored before the column existed; `None`
    /// if it has no default.
    pub default: Option<Vec<u8>>,
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
        let position_of = |name: &str| R::COLUMNS.iter().position(|column| column.name == name);
        let columns: Option<Vec<ColumnDescription>> = R::COLUMNS
            .iter()
            .map(|column| {
                Some(ColumnDescription {
                    name: column.name.to_owned(),
                    type_of: column.type_of?.into(),
                    default: column.default.map(|write| {
                        let mut value = Vec::new();
                        write(&mut value);
                        value
                    }),
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
            name: R::TABLE.to_owned(),
            storage: R::STORAGE,
            columns: columns?,
            key: R::KEY_COLUMNS.to_vec(),
            indexes: indexes.collect(),
        })
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
        write_list(&self.columns, output, |column, output| {
            write_text(&column.name, output);
            column.type_of.write(output);
            column.default.write(output);
        });
        write_list(&self.key, output, write_position);
        write_list(&self.indexes, output, |index, output| {
            write_text(&index.name, output);
            write_list(&index.columns, output, write_position);
            index.unique.write(output);
        });
    }

    /// Reads a description that [`TableDescription::write`] wrote, and advances `input` past it.
    ///
    /// # Errors
    /// If `input` does not begin with a valid description. In a valid one all positions are those
    /// of columns, the columns have different names, and the defaults are values of their columns'
    /// types.
    pub fn read(input: &mut &[u8]) -> Result<TableDescription, DecodeError> {
        let length = input.len();
        Self::read_here(input).map_err(|error| error.within(length))
    }

    fn read_here(input: &mut &[u8]) -> Result<TableDescription, DecodeError> {
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
        let columns = read_list(input, ColumnDescription::read)?;
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
        Ok(TableDescription { name, storage, columns, key, indexes })
    }
}

impl ColumnDescription {
    fn read(input: &mut &[u8]) -> Result<ColumnDescription, DecodeError> {
        let name = String::read(input)?;
        let type_of = TypeDescription::read(input)?;
        let start = *input;
        let default = Option::<Vec<u8>>::read(input)?;
        if let Some(mut value) = default.as_deref() {
            let is_whole = type_of.read_value(&mut value).is_ok() && value.is_empty();
            if !is_whole {
                let message =
                    format!("the default of column `{name}` is not a value of type {type_of}");
                return Err(DecodeError::new(start, message));
            }
        }
        Ok(ColumnDescription { name, type_of, default })
    }
}
