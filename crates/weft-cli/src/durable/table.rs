//! Recovered tables of rows whose Rust types are not known: encoded rows in the order of their keys.
//!
//! Stored keys do not sort as their values do, because numbers are stored with their lowest byte first. So each row
//! is sorted by a *sort key*, whose bytes do sort as the values:
//!
//! ```text
//!   integer        16 bytes, the highest first; signed ones with the sign bit flipped
//!   bool, char     as an integer: 0 or 1, the code point
//!   enum           as an integer: the variant's position
//!   text, bytes    the bytes, where 00 is written 01 01, and 01 is written 01 02; then 00
//!   list           each value after 01; then 00
//!   option         00, or 01 and the value
//!   tuple, struct  the values, one after the other
//! ```
//!
//! This is the order of the program's own indexes ([`weft::encoding`]), except for keys of a type that defines an
//! order of its own. Different keys of a table have different sort keys, and no sort key is a prefix of another.

use std::sync::Arc;

use weft::description::{TableDescription, Value};
use weft::durability::{CheckpointSource, Manifest, StagedTable, StorageError, StoredTable};

/// Removes all rows of a table and returns them in the order of their keys.
pub fn take_rows(table: &StagedTable) -> Vec<Box<[u8]>> {
    let rows = table.take_rows(0, 1).map(|row| {
        let description = table.description();
        (sort_key(description, &description.key, &row), row)
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable();
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Returns the sort key that some columns of a row make; it is empty if the row cannot be read.
pub fn sort_key(description: &TableDescription, columns: &[usize], row: &[u8]) -> Vec<u8> {
    let mut sort_key = Vec::new();
    if let Ok(values) = description.read_row(row) {
        columns.iter().for_each(|&column| write_sort_key(&values[column], &mut sort_key));
    }
    sort_key
}

fn write_sort_key(value: &Value, sort_key: &mut Vec<u8>) {
    let mut write_integer = |number: u128| sort_key.extend_from_slice(&number.to_be_bytes());
    match value {
        Value::Bool(value) => write_integer(u128::from(*value)),
        Value::Signed(number) => write_integer(number.cast_unsigned() ^ (1 << 127)),
        Value::Unsigned(number) => write_integer(*number),
        Value::Char(letter) => write_integer(u128::from(*letter)),
        Value::Enum(variant) => write_integer(*variant as u128),
        // Floating-point numbers cannot be in a key; here it only matters that different ones differ.
        Value::F32(number) => write_integer(number.to_bits().into()),
        Value::F64(number) => write_integer(number.to_bits().into()),
        Value::String(text) => write_bytes(text.as_bytes(), sort_key),
        Value::Bytes(bytes) => write_bytes(bytes, sort_key),
        Value::List(values) => {
            for value in values {
                sort_key.push(1);
                write_sort_key(value, sort_key);
            }
            sort_key.push(0);
        }
        Value::Option(None) => sort_key.push(0),
        Value::Option(Some(value)) => {
            sort_key.push(1);
            write_sort_key(value, sort_key);
        }
        Value::Tuple(values) => values.iter().for_each(|value| write_sort_key(value, sort_key)),
    }
}

fn write_bytes(bytes: &[u8], sort_key: &mut Vec<u8>) {
    // Escape 00 and 01, so that 00 can end the sequence: a prefix then sorts before any longer sequence.
    for &byte in bytes {
        match byte {
            0 => sort_key.extend_from_slice(&[1, 1]),
            1 => sort_key.extend_from_slice(&[1, 2]),
            byte => sort_key.push(byte),
        }
    }
    sort_key.push(0);
}

/// All recovered tables of a database, from which a backup is written.
pub struct KeptState {
    epoch: u64,
    /// Each table's number and rows.
    tables: Vec<(u32, Vec<Box<[u8]>>)>,
}

impl KeptState {
    /// Creates an empty table for each current table of `manifest`.
    pub fn tables(manifest: &Manifest) -> Vec<Arc<StagedTable>> {
        let tables = manifest.current_tables();
        let table = |number: u32| StagedTable::new(manifest.tables[number as usize].clone());
        tables.into_iter().map(|number| Arc::new(table(number))).collect()
    }

    /// Takes the rows of `tables`, at the end of `epoch`. `numbers` are the tables' numbers, in the same order.
    pub fn new(epoch: u64, tables: &[Arc<StagedTable>], numbers: &[u32]) -> KeptState {
        let tables = numbers.iter().zip(tables).map(|(&number, table)| (number, take_rows(table)));
        KeptState { epoch, tables: tables.collect() }
    }

    /// Returns the total number of rows.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|(_, rows)| rows.len() as u64).sum()
    }
}

impl CheckpointSource for KeptState {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn rows(
        &self,
        table: u32,
        part: u32,
        parts: u32,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let found = self.tables.iter().find(|(number, _)| *number == table);
        let rows = found.map_or(&[][..], |(_, rows)| rows);
        let bound = |part: u32| rows.len() * part as usize / parts as usize;
        rows[bound(part)..bound(part + 1)].iter().try_for_each(|row| sink(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sort_keys_sort_as_values_do() {
        let text = |text: &str| Value::String(text.to_owned());
        let some = |value| Value::Option(Some(Box::new(value)));
        let ascending = [
            vec![Value::Signed(i128::MIN), Value::Signed(-1), Value::Signed(0), Value::Signed(300)],
            vec![Value::Unsigned(0), Value::Unsigned(255), Value::Unsigned(256)],
            vec![Value::Bool(false), Value::Bool(true)],
            vec![
                text(""),
                text("\0"),
                text("\0\0"),
                text("\u{1}"),
                text("\u{2}"),
                text("a"),
                text("ab"),
            ],
            vec![Value::Option(None), some(Value::Unsigned(0)), some(Value::Unsigned(1))],
            vec![
                Value::List(vec![]),
                Value::List(vec![Value::Unsigned(1)]),
                Value::List(vec![Value::Unsigned(1), Value::Unsigned(0)]),
                Value::List(vec![Value::Unsigned(2)]),
            ],
            vec![
                Value::Tuple(vec![text("a"), Value::Unsigned(9)]),
                Value::Tuple(vec![text("a\0"), Value::Unsigned(1)]),
                Value::Tuple(vec![text("b"), Value::Unsigned(0)]),
            ],
        ];
        for values in ascending {
            let sort_keys = values.iter().map(|value| {
                let mut sort_key = Vec::new();
                write_sort_key(value, &mut sort_key);
                sort_key
            });
            let sort_keys: Vec<_> = sort_keys.collect();
            for (before, after) in sort_keys.iter().zip(&sort_keys[1..]) {
                assert!(before < after && !after.starts_with(before), "{values:?}");
            }
        }
    }
}
