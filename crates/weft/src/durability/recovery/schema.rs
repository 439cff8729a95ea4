//! The tables that the numbers in the log stand for, and the adaptation of their rows to the
//! current tables.

use std::path::Path;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::format::{LogWrite, WriteKind};
use super::super::manifest::Manifest;
use super::StoredTable;
use crate::error::StorageError;
use crate::row::column::DecodeError;
use crate::row::description::{Adaptation, SchemaMismatch, TableDescription, compare};

/// The current tables, by the numbers in stored rows.
pub(super) struct Targets {
    tables: Vec<Arc<dyn StoredTable>>,
    numbers: Vec<TargetTable>,
}

struct TargetTable {
    /// Its position among the current tables.
    table: usize,
    /// Whether its rows are wanted.
    is_wanted: bool,
    /// The description of its rows as they are stored.
    stored: TableDescription,
    /// What has to be done with its rows. An older encoding of a table may not be adaptable any
    /// more. This matters only if such rows still exist.
    adaptation: Result<Adaptation, SchemaMismatch>,
}

/// What is wrong with an entry.
pub(super) enum EntryFault {
    /// There is no table with this number.
    UnknownTable(u32),
    /// Its bytes are not a row, or not a key.
    Undecodable { table: String, error: DecodeError },
    /// It changes a row that does not exist.
    NothingToChange { table: String },
    /// It is in an encoding that cannot be adapted.
    Mismatch(SchemaMismatch),
}

impl EntryFault {
    /// Returns the error for this fault in the frame at `offset` of a file.
    #[cold]
    pub(super) fn at(self, path: &Path, offset: u64) -> StorageError {
        match self {
            EntryFault::UnknownTable(number) => {
                let what = format!("a row of table {number}, which is unknown");
                StorageError::damaged(path, offset, what)
            }
            EntryFault::Undecodable { table, error } => {
                let what = format!("a row or key of table `{table}` cannot be read: {error}");
                StorageError::damaged(path, offset, what)
            }
            EntryFault::NothingToChange { table } => {
                let what = format!("a change of a row of table `{table}` that is not there");
                StorageError::damaged(path, offset, what)
            }
            EntryFault::Mismatch(mismatch) => StorageError::SchemaMismatch {
                message: format!(
                    "{} has rows in an older encoding: {mismatch}; open the database with the \
                     default once more, and write a checkpoint",
                    path.display()
                ),
            },
        }
    }
}

impl Targets {
    /// Finds the current table for each stored one.
    ///
    /// # Errors
    /// [`StorageError::SchemaMismatch`], with everything that differs.
    pub(super) fn match_tables(
        manifest: &Manifest,
        tables: &[Arc<dyn StoredTable>],
    ) -> Result<Targets, StorageError> {
        let mismatch =
            |error: SchemaMismatch| StorageError::SchemaMismatch { message: error.to_string() };
        let current: Vec<TableDescription> =
            tables.iter().map(|table| table.description().clone()).collect();
        let newest = manifest.current_tables();
        let newest: Vec<TableDescription> =
            newest.iter().map(|&number| manifest.tables[number as usize].clone()).collect();
        compare(&newest, &current).map_err(mismatch)?;
        let numbers = manifest.tables.iter().map(|stored| {
            let table = current
                .iter()
                .position(|table| table.name == stored.name)
                .expect("each name has been found, in its newest description");
            let adaptation = Adaptation::new(stored, &current[table]);
            let is_wanted = tables[table].is_wanted();
            TargetTable { table, is_wanted, stored: stored.clone(), adaptation }
        });
        Ok(Targets { numbers: numbers.collect(), tables: tables.to_vec() })
    }

    fn target(
        &self,
        number: u32,
    ) -> Result<(&dyn StoredTable, &TargetTable, &Adaptation), EntryFault> {
        let target = self.numbers.get(number as usize).ok_or(EntryFault::UnknownTable(number))?;
        let adaptation = target
            .adaptation
            .as_ref()
            .map_err(|mismatch| EntryFault::Mismatch(mismatch.clone()))?;
        Ok((&*self.tables[target.table], target, adaptation))
    }

    /// Returns whether the rows of table `number` are wanted.
    pub(super) fn is_wanted(&self, number: u32) -> bool {
        self.numbers.get(number as usize).is_none_or(|target| target.is_wanted)
    }

    /// Returns the shard of the key that is written, by which threads divide the work. It is a hash
    /// of the encoded key, which is the same in all versions of a table.
    pub(super) fn shard(&self, write: &LogWrite<'_>) -> Result<u16, EntryFault> {
        let number = write.table;
        let target = self.numbers.get(number as usize).ok_or(EntryFault::UnknownTable(number))?;
        // All writes to this table are left out.
        if !target.is_wanted {
            return Ok(0);
        }
        let hash = match write.kind {
            WriteKind::Put => hash_key_of_row(&target.stored, write.bytes),
            WriteKind::Change | WriteKind::Delete | WriteKind::Operation => {
                hash_key(&target.stored, write.bytes)
            }
        };
        let table = || self.tables[target.table].description().name.clone();
        hash.map(|hash| (hash >> 48) as u16)
            .map_err(|error| EntryFault::Undecodable { table: table(), error })
    }

    /// Puts a stored row of table `number`. `adapted` is a buffer for the adapted row.
    pub(super) fn put(
        &self,
        number: u32,
        row: &[u8],
        adapted: &mut Vec<u8>,
    ) -> Result<(), EntryFault> {
        if !self.is_wanted(number) {
            return Ok(());
        }
        let (table, _, adaptation) = self.target(number)?;
        let put = if adaptation.is_identity() {
            table.put(row)
        } else {
            adapted.clear();
            adaptation.row(row, adapted).and_then(|()| table.put(adapted))
        };
        put.map_err(|error| undecodable(table, error))
    }

    /// Deletes the row of table `number` with this key.
    pub(super) fn delete(&self, number: u32, key: &[u8]) -> Result<(), EntryFault> {
        if !self.is_wanted(number) {
            return Ok(());
        }
        let (table, ..) = self.target(number)?;
        table.delete(key).map_err(|error| undecodable(table, error))
    }

    /// Changes columns of a row of table `number`, or applies an operation to one of them.
    pub(super) fn change(
        &self,
        kind: WriteKind,
        number: u32,
        bytes: &[u8],
    ) -> Result<(), EntryFault> {
        if !self.is_wanted(number) {
            return Ok(());
        }
        let (table, target, adaptation) = self.target(number)?;
        let change = match kind {
            WriteKind::Operation => target.stored.read_operation(bytes),
            _ => target.stored.read_change(bytes),
        };
        let changed = change.and_then(|(key, mut change)| {
            adaptation.move_columns(&mut change);
            table.change(key, &change)
        });
        match changed {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(EntryFault::NothingToChange { table: table.description().name.clone() })
            }
            Err(error) => Err(undecodable(table, error)),
        }
    }

    /// Gives each current table the number with which its rows will be written. This is the number
    /// of the newest description with its name, if rows are still encoded in the same way.
    /// Otherwise it is a new number.
    pub(super) fn number_tables(
        &self,
        tables: &[Arc<dyn StoredTable>],
        stored: &mut Vec<TableDescription>,
    ) -> Vec<u32> {
        let number_of = |table: &Arc<dyn StoredTable>| {
            let description = table.description();
            let newest = stored.iter().rposition(|stored| stored.name == description.name);
            let same = newest.filter(|&number| {
                let adaptation = &self.numbers[number].adaptation;
                adaptation.as_ref().is_ok_and(Adaptation::is_identity)
            });
            match same {
                Some(number) => {
                    stored[number] = description.clone();
                    number as u32
                }
                None => {
                    stored.push(description.clone());
                    (stored.len() - 1) as u32
                }
            }
        };
        tables.iter().map(number_of).collect()
    }
}

#[cold]
fn undecodable(table: &dyn StoredTable, error: DecodeError) -> EntryFault {
    EntryFault::Undecodable { table: table.description().name.clone(), error }
}

/// Returns a hash of the key in a stored row.
fn hash_key_of_row(table: &TableDescription, row: &[u8]) -> Result<u64, DecodeError> {
    let columns = table.key.iter().max().map_or(0, |last| last + 1);
    let mut values = SmallVec::<[&[u8]; 8]>::new();
    let mut rest = row;
    for position in 0..columns {
        let start = rest;
        table.skip_column(position, &mut rest, row.len())?;
        values.push(&start[..start.len() - rest.len()]);
    }
    Ok(table.key.iter().fold(0, |hash, &position| hash_bytes(hash, values[position])))
}

/// Returns a hash of the key with which `bytes` begins. It is the same as that of the key in a row.
fn hash_key(table: &TableDescription, bytes: &[u8]) -> Result<u64, DecodeError> {
    let (mut hash, mut rest) = (0, bytes);
    for &position in &table.key {
        let start = rest;
        table.skip_column(position, &mut rest, bytes.len())?;
        hash = hash_bytes(hash, &start[..start.len() - rest.len()]);
    }
    Ok(hash)
}

fn hash_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let rest = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words
        .chain([rest])
        .fold(hash, |hash, word| (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
