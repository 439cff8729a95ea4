//! [`StagedTable`]: rows in their stored form, by their stored keys.

use std::collections::HashMap;

use weft_htm::blocking::{Mutex, MutexGuard, hold};

use super::StoredTable;
use super::schema::{hash_bytes, key_of_row};
use crate::error::StorageError;
use crate::row::column::DecodeError;
use crate::row::description::{RowChange, TableDescription};
use crate::row::generated::KeyNumbers;

/// How many maps share the rows, so that threads rarely contend for a lock.
const SHARDS: usize = 64;

/// Encoded rows, by encoded key.
type Shard = HashMap<Box<[u8]>, Box<[u8]>>;

/// A table of rows whose Rust type is not known. Recovery fills it where rows cannot go into the
/// program's tables at once, and tools fill it because they have no other tables.
#[derive(Debug)]
pub struct StagedTable {
    description: TableDescription,
    shards: [Mutex<Shard>; SHARDS],
    /// The numbers of generated keys.
    numbers: KeyNumbers,
    wants_rows: bool,
}

impl StagedTable {
    /// Creates an empty table.
    pub fn new(description: TableDescription) -> StagedTable {
        let numbers = KeyNumbers::new(description.next_key.unwrap_or(0));
        let shards = std::array::from_fn(|_| Mutex::default());
        StagedTable { description, shards, numbers, wants_rows: true }
    }

    /// Creates an empty table that stands for a stored table whose rows the tool does not need. Tables
    /// are matched by their names and former names, so a tool that reads one table names all of them.
    pub fn without_rows(description: TableDescription) -> StagedTable {
        StagedTable { wants_rows: false, ..StagedTable::new(description) }
    }

    /// Removes the rows of part `part` of `parts`, and returns them, in no order.
    pub fn take_rows(&self, part: usize, parts: usize) -> impl Iterator<Item = Box<[u8]>> {
        let shards = self.shards.iter().skip(part).step_by(parts);
        shards.flat_map(|shard| std::mem::take(&mut *hold(shard)).into_values())
    }

    /// Appends the values of the kept columns of the row with the same key as `row`, which has the
    /// other columns; or the defaults, if there is no such row.
    pub(super) fn append_kept(&self, row: &[u8], output: &mut Vec<u8>) -> Result<(), DecodeError> {
        let table = &self.description;
        let known = table.columns.len() - table.kept;
        let key = key_of_row(table, row)?;
        match self.shard(&key).get(&key[..]) {
            Some(found) => table.for_each_column(found, |column, value| {
                if column >= known {
                    output.extend_from_slice(value);
                }
                Ok(())
            }),
            None => {
                let columns = table.columns[known..].iter();
                columns.flat_map(|column| &column.default).for_each(|it| output.extend(it));
                Ok(())
            }
        }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        hold(&self.shards[(hash_bytes(key) >> 32) as usize % SHARDS])
    }
}

impl StoredTable for StagedTable {
    fn description(&self) -> &TableDescription {
        &self.description
    }

    fn put(&self, row: &[u8]) -> Result<(), DecodeError> {
        let key = key_of_row(&self.description, row)?;
        self.shard(&key).insert(key[..].into(), row.into());
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<(), DecodeError> {
        // The keys of the rows that remain are passed when the rows reach the program's table.
        if self.description.next_key.is_some() {
            self.numbers.pass(self.description.key_number(key)?);
        }
        self.shard(key).remove(key);
        Ok(())
    }

    fn change(&self, key: &[u8], change: &RowChange<'_>) -> Result<bool, DecodeError> {
        let mut shard = self.shard(key);
        let Some(row) = shard.get_mut(key) else { return Ok(false) };
        let mut changed = Vec::with_capacity(row.len());
        change.apply(&self.description, row, &mut changed)?;
        *row = changed.into();
        Ok(true)
    }

    fn build_indexes(&self, _part: usize, _parts: usize) -> Result<(), StorageError> {
        Ok(())
    }

    fn encode_rows(
        &self,
        (part, parts): (usize, usize),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut shards = self.shards.iter().skip(part).step_by(parts);
        shards.try_for_each(|shard| hold(shard).values().try_for_each(|row| sink(row)))
    }

    fn wants_rows(&self) -> bool {
        self.wants_rows
    }

    fn next_key(&self) -> Option<u64> {
        self.description.next_key.map(|_| self.numbers.next())
    }

    fn pass_keys(&self, next: u64) {
        self.numbers.pass(next.saturating_sub(1));
    }

    fn rows(&self) -> u64 {
        self.shards.iter().map(|shard| hold(shard).len() as u64).sum()
    }
}
