//! Descriptions of tables at run time, for programs that do not have the rows' Rust types.
//!
//! A database that outlives its process stores a [`TableDescription`] of each of its tables beside
//! the rows. It serves two purposes:
//!
//! - When the database is opened again, the program's tables are compared with the stored
//!   descriptions ([`compare`]). Where rows are stored in another form, an [`Adaptation`] turns
//!   them, and what is logged about them, into the present form. If something stands in the way,
//!   a message says what.
//! - A tool reads rows by their description: each column becomes a [`Value`].
//!
//! ```
//! use weft::Record;
//! use weft::description::{TableDescription, Value};
//!
//! #[derive(Clone, Record)]
//! struct Seat { #[record(key)] number: u16, taken_by: Option<String> }
//!
//! let table = TableDescription::of::<Seat>().expect("the table is not volatile");
//! assert_eq!(table.columns[1].type_of.to_string(), "Option<String>");
//!
//! let mut row = Vec::new();
//! Seat { number: 7, taken_by: Some("Ada".into()) }.encode_row(&mut row);
//! let name = Value::String("Ada".into());
//! let values = [Value::Unsigned(7), Value::Option(Some(Box::new(name)))];
//! assert_eq!(table.read_row(&row)?, values);
//! # Ok::<(), weft::column::DecodeError>(())
//! ```
//!
//! The encoding of a description uses the primitives of [`column`](crate::column#the-format):
//!
//! ```text
//!   table:   name, kind of index (one byte: 0 B+-tree, 1 hash table),
//!            list of columns, list of positions of the key's columns, list of indexes,
//!            list of former names, list of checks, list of what was dropped,
//!            bool: rows are migrated, number of kept columns,
//!            option of the number of the next generated key (a u64)
//!   column:  name, type, option of its default (a list of bytes: the value's encoding),
//!            list of former names, bool: computed
//!   index:   name, list of positions of its columns, bool: unique
//!   type:    one byte, and what follows it:
//!
//!            0 bool   1 i8   2 i16   3 i32   4 i64   5 i128   6 u8   7 u16   8 u32   9 u64
//!            10 u128  11 f32  12 f64  13 char  14 String  15 list, type   16 option, type
//!            17 array, type, length   18 tuple, list of types
//!            19 struct, name, list of (name, type)   20 enum, name, list of names
//!            21 struct, name, list of columns, if a field has a default or a former name
//! ```
//!
//! Names are texts. Positions and lengths are in LEB128. A description has no version of its own:
//! the file that it is stored in has one.

mod adaptation;
mod change;
mod conversion;
mod operation;
mod stored_row;
mod table;
mod types;
mod value;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use adaptation::{
    Adaptation, Difference, OpenedTable, RowFault, SchemaMismatch, Step, TableMatch, compare,
};
pub use change::{ChangedColumns, RowChange};
pub use conversion::Fit;
pub use operation::StoredOperation;
pub use stored_row::StoredRow;
pub(crate) use stored_row::read_as;
pub use table::{ColumnDescription, IndexDescription, TableDescription};
pub use types::TypeDescription;
pub use value::{Value, ValueMismatch};

use crate::row::column::{DecodeError, read_leb128, read_list_length, write_leb128};

/// Appends the number of `items`, and then each item as `write` writes it.
fn write_list<T>(items: &[T], output: &mut Vec<u8>, mut write: impl FnMut(&T, &mut Vec<u8>)) {
    write_leb128(items.len() as u64, output);
    for item in items {
        write(item, output);
    }
}

/// Reads a list of items that take at least one byte each.
fn read_list<T>(
    input: &mut &[u8],
    mut read: impl FnMut(&mut &[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let length = read_list_length(1, input)?;
    // Reserve nothing: an item takes much more memory than the one byte that it may take in the
    // input.
    let mut items = Vec::new();
    for _ in 0..length {
        items.push(read(input)?);
    }
    Ok(items)
}

/// Reads a list of different positions, each below `limit`.
fn read_positions(limit: usize, input: &mut &[u8]) -> Result<Vec<usize>, DecodeError> {
    let start = *input;
    let positions = read_list(input, |input| {
        let start = *input;
        match read_leb128(input)? {
            position if position < limit as u64 => Ok(position as usize),
            position => {
                let message = format!("column {position} is named, and there are {limit}");
                Err(DecodeError::new(start, message))
            }
        }
    })?;
    if (1..positions.len()).any(|at| positions[..at].contains(&positions[at])) {
        return Err(DecodeError::new(start, "a column is named twice"));
    }
    Ok(positions)
}
