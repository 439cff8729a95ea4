//! The tables that the numbers in the log stand for, and the adaptation of their rows to the
//! current tables.
//!
//! ```text
//!   what the descriptions say              a stored row goes
//!   ------------------------------------   ----------------------------------------------------
//!   every row can be converted alone       through an Adaptation, into the program's table
//!   some rows may not fit, or code of the  into a StagedTable, in the newest stored form; when the
//!   program makes columns or rows          log is replayed, what is left of the rows is converted
//!   the program does not have the table,   nowhere, unless all rows are written again
//!   or does not want its rows
//! ```
//!
//! After rows were converted by the program's code, or one by one, the directory holds rows that a
//! later recovery could not convert in the same way. So this recovery *rewrites* all rows: it
//! writes a checkpoint, which becomes valid together with the new run.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use super::super::checkpoint::CheckpointSource;
use super::super::format::{LogWrite, WriteKind};
use super::super::manifest::Manifest;
use super::super::parallel;
use super::staged::StagedTable;
use super::version::MigratedRows;
use super::{RecoveryOptions, StoredTable};
use crate::error::{RowViolations, StorageError};
use crate::row::column::DecodeError;
use crate::row::description::{
    Adaptation, OpenedTable, RowFault, Step, StoredRow, TableDescription, TableMatch, compare,
};

/// The current tables, by the numbers in stored rows.
pub(super) struct Targets {
    /// Where the rows of each stored table go, by number.
    numbers: Vec<Option<Target>>,
    /// How the stored rows of each of the program's tables are read; `None` for a table that is not stored.
    opened: Vec<Option<Opened>>,
    /// The stored tables that the program does not have, if their rows are needed.
    kept: Vec<(u32, Arc<StagedTable>)>,
    /// The numbers of the stored tables that the program drops.
    dropped: Vec<u32>,
    /// Whether all rows have to be written again.
    rewrites: bool,
}

/// Where the rows with one number go.
struct Target {
    destination: Arc<dyn StoredTable>,
    stored: TableDescription,
    /// The description of what is logged.
    written: TableDescription,
    /// What has to be done with the rows. Why an older form cannot be adapted matters only if rows
    /// of that form still exist.
    adaptation: Result<Adaptation, Vec<String>>,
}

/// A table of the program that is stored.
struct Opened {
    /// The newest number of its rows, and their description.
    number: u32,
    /// All numbers of its rows.
    lineage: Vec<u32>,
    stored: TableDescription,
    table: OpenedTable,
    /// The rows that have to be converted when the log is replayed.
    staged: Option<Arc<StagedTable>>,
    /// The rows with the columns that the program does not have, if all rows are written again.
    full: Option<Arc<StagedTable>>,
}

/// What is wrong with an entry.
pub(super) enum EntryFault {
    /// There is no table with this number.
    UnknownTable(u32),
    /// Its bytes are not a row, or not a key.
    Undecodable { table: String, error: DecodeError },
    /// It changes a row that does not exist.
    NothingToChange { table: String },
    /// It is in an older form that cannot be adapted.
    Mismatch { table: String, what: Vec<String> },
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
            EntryFault::Mismatch { table, what } => StorageError::SchemaMismatch {
                message: format!(
                    "{} has rows of table `{table}` in an older form: {}; open the directory with \
                     the program that wrote it last, and write a checkpoint",
                    path.display(),
                    what.join("; ")
                ),
            },
        }
    }
}

impl Targets {
    /// Finds the current table for each stored one. `rewrites` asks for all rows to be written
    /// again, whether or not that is needed.
    ///
    /// # Errors
    /// [`StorageError::SchemaMismatch`], with everything that stands in the way.
    pub(super) fn match_tables(
        manifest: &Manifest,
        tables: &[Arc<dyn StoredTable>],
        options: &RecoveryOptions<'_>,
        rewrites: bool,
    ) -> Result<Targets, StorageError> {
        let current: Vec<TableDescription> =
            tables.iter().map(|table| table.description().clone()).collect();
        let newest = manifest.current_tables();
        let stored: Vec<TableDescription> =
            newest.iter().map(|&number| manifest.tables[number as usize].clone()).collect();
        let matches = compare(&stored, &current, options.drop_tables);
        let matches = matches
            .map_err(|mismatch| StorageError::SchemaMismatch { message: mismatch.to_string() })?;
        let is_simple = |matched: &TableMatch| match matched {
            TableMatch::Opened(opened) => opened.is_simple(),
            _ => true,
        };
        let rewrites = rewrites || !matches.iter().all(is_simple);
        let mut targets = Targets {
            numbers: manifest.tables.iter().map(|_| None).collect(),
            opened: tables.iter().map(|_| None).collect(),
            kept: Vec::new(),
            dropped: Vec::new(),
            rewrites,
        };
        for ((number, stored), matched) in newest.into_iter().zip(stored).zip(matches) {
            let lineage = manifest.lineage(number);
            let mut step = None;
            let destination: Arc<dyn StoredTable> = match matched {
                TableMatch::Dropped => {
                    targets.dropped.extend(lineage);
                    continue;
                }
                TableMatch::Kept if !rewrites => continue,
                TableMatch::Kept => {
                    let staged = Arc::new(StagedTable::new(stored.clone()));
                    targets.kept.push((number, Arc::clone(&staged)));
                    staged
                }
                TableMatch::Opened(table) => {
                    let current = table.current;
                    let is_left = !rewrites && !tables[current].wants_rows();
                    let is_staged = !table.is_simple() || rewrites && !table.kept.is_empty();
                    let make = |description| Arc::new(StagedTable::new(description));
                    let staged = is_staged.then(|| make(stored.clone()));
                    let keeps = is_staged && !table.kept.is_empty();
                    let description = tables[current].description();
                    let full = keeps.then(|| make(table.full(&stored, description)));
                    if !is_staged {
                        step.clone_from(&table.step);
                    }
                    let destination = match &staged {
                        Some(staged) => Arc::clone(staged) as Arc<dyn StoredTable>,
                        None => Arc::clone(&tables[current]),
                    };
                    targets.opened[current] = Some(Opened {
                        number,
                        lineage: lineage.clone(),
                        stored: stored.clone(),
                        table: *table,
                        staged,
                        full,
                    });
                    if is_left {
                        continue;
                    }
                    destination
                }
            };
            targets.lead(manifest, &lineage, &destination, step.as_ref());
        }
        Ok(targets)
    }

    /// Leads the rows of some stored tables, given by their newest numbers, into tables with the
    /// stored descriptions.
    pub(super) fn of_numbers(
        manifest: &Manifest,
        tables: &[(u32, Arc<dyn StoredTable>)],
    ) -> Targets {
        let mut targets = Targets {
            numbers: manifest.tables.iter().map(|_| None).collect(),
            opened: Vec::new(),
            kept: Vec::new(),
            dropped: Vec::new(),
            rewrites: false,
        };
        for (number, table) in tables {
            targets.lead(manifest, &manifest.lineage(*number), table, None);
        }
        targets
    }

    /// Leads the rows with all numbers of a stored table to `destination`. The step `last` converts
    /// rows of the newest number.
    fn lead(
        &mut self,
        manifest: &Manifest,
        lineage: &[u32],
        destination: &Arc<dyn StoredTable>,
        last: Option<&Step>,
    ) {
        for (position, &number) in lineage.iter().enumerate() {
            let chain = lineage[position..].iter();
            let chain: Vec<_> = chain.map(|&number| &manifest.tables[number as usize]).collect();
            self.numbers[number as usize] = Some(Target {
                destination: Arc::clone(destination),
                stored: chain[0].clone(),
                written: chain[0].written().into_owned(),
                adaptation: Adaptation::new(&chain, last),
            });
        }
    }

    /// Returns where the rows of table `number` go, or `None` if they are not needed.
    fn target(&self, number: u32) -> Result<Option<(&Target, &Adaptation)>, EntryFault> {
        let target = self.numbers.get(number as usize).ok_or(EntryFault::UnknownTable(number))?;
        let Some(target) = target else { return Ok(None) };
        match &target.adaptation {
            Ok(adaptation) => Ok(Some((target, adaptation))),
            Err(what) => {
                Err(EntryFault::Mismatch { table: target.stored.name.clone(), what: what.clone() })
            }
        }
    }

    /// Returns whether the rows of table `number` are needed.
    pub(super) fn is_wanted(&self, number: u32) -> bool {
        self.numbers.get(number as usize).is_none_or(Option::is_some)
    }

    /// Returns the shard of the key that is written, by which threads divide the work. It is a hash
    /// of the current form of the key.
    pub(super) fn shard(&self, write: &LogWrite<'_>) -> Result<u16, EntryFault> {
        let Some((target, adaptation)) = self.target(write.table)? else { return Ok(0) };
        let hash = |key: &[u8]| Ok(hash_bytes(&adaptation.key(key)?));
        let hash = match write.kind {
            WriteKind::Put => key_of_row(&target.written, write.bytes).and_then(|key| hash(&key)),
            WriteKind::Change | WriteKind::Delete | WriteKind::Operation => {
                key_at_start(&target.written, write.bytes).and_then(hash)
            }
        };
        hash.map(|hash| (hash >> 48) as u16).map_err(|error| target.undecodable(error))
    }

    /// Puts a stored row of table `number`, from a checkpoint. `buffer` keeps its memory from call to
    /// call.
    pub(super) fn put(
        &self,
        number: u32,
        row: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<(), EntryFault> {
        let Some((target, adaptation)) = self.target(number)? else { return Ok(()) };
        let put = adaptation.row_in(row, buffer).and_then(|row| target.destination.put(row));
        put.map_err(|error| target.undecodable(error))
    }

    /// Puts a row of table `number` that was logged, as [`Targets::put`].
    pub(super) fn put_logged(
        &self,
        number: u32,
        row: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<(), EntryFault> {
        let Some((target, adaptation)) = self.target(number)? else { return Ok(()) };
        if target.stored.kept == 0 {
            return self.put(number, row, buffer);
        }
        // The program that logged it did not know all columns. If the row exists, the others keep
        // their values. Otherwise they get their defaults.
        let put = target.written.row_as_change(row).and_then(|(key, mut change)| {
            adaptation.change(&mut change)?;
            if target.destination.change(&adaptation.key(&key)?, &change)? {
                return Ok(());
            }
            let mut whole = row.to_vec();
            for column in &target.stored.columns[target.written.columns.len()..] {
                whole.extend_from_slice(column.default.as_deref().unwrap_or_default());
            }
            target.destination.put(&adaptation.row(&whole)?)
        });
        put.map_err(|error| target.undecodable(error))
    }

    /// Deletes the row of table `number` with this key.
    pub(super) fn delete(&self, number: u32, key: &[u8]) -> Result<(), EntryFault> {
        let Some((target, adaptation)) = self.target(number)? else { return Ok(()) };
        let deleted = adaptation.key(key).and_then(|key| target.destination.delete(&key));
        deleted.map_err(|error| target.undecodable(error))
    }

    /// Changes columns of a row of table `number`, or applies an operation to one of them.
    pub(super) fn change(
        &self,
        kind: WriteKind,
        number: u32,
        bytes: &[u8],
    ) -> Result<(), EntryFault> {
        let Some((target, adaptation)) = self.target(number)? else { return Ok(()) };
        let change = match kind {
            WriteKind::Operation => target.written.read_operation(bytes),
            _ => target.written.read_change(bytes),
        };
        let changed = change.and_then(|(key, mut change)| {
            adaptation.change(&mut change)?;
            target.destination.change(&adaptation.key(key)?, &change)
        });
        match changed {
            Ok(true) => Ok(()),
            Ok(false) => Err(EntryFault::NothingToChange { table: target.stored.name.clone() }),
            Err(error) => Err(target.undecodable(error)),
        }
    }

    /// Converts the staged rows, and puts them into the program's tables.
    ///
    /// # Errors
    /// [`StorageError::Constraint`] with the rows that do not fit.
    pub(super) fn convert(
        &self,
        tables: &[Arc<dyn StoredTable>],
        threads: usize,
    ) -> Result<(), StorageError> {
        for (table, opened) in tables.iter().zip(&self.opened) {
            let Some(opened) = opened else { continue };
            let Some(staged) = &opened.staged else { continue };
            let misfits = Mutex::new(RowViolations::default());
            let parts = threads.max(1);
            parallel::run(threads, parts, |part| {
                let mut converted = Vec::new();
                for row in staged.take_rows(part, parts) {
                    converted.clear();
                    match opened.convert(&**table, &row, &mut converted) {
                        Ok(()) => {}
                        Err(RowFault::Misfit(violation)) => {
                            let key = opened.key_in_words(&row);
                            let mut misfits =
                                misfits.lock().unwrap_or_else(PoisonError::into_inner);
                            let order = [&key.len().to_be_bytes()[..], key.as_bytes()].concat();
                            misfits.add(order, key, violation);
                        }
                        Err(RowFault::Undecodable(error)) => {
                            return Err(StorageError::SchemaMismatch {
                                message: format!(
                                    "table `{}`: a row cannot be read: {error}",
                                    opened.stored.name
                                ),
                            });
                        }
                    }
                }
                Ok(())
            })?;
            let misfits = misfits.into_inner().unwrap_or_else(PoisonError::into_inner);
            misfits.into_result(&table.description().name)?;
        }
        Ok(())
    }

    /// Gives each current table the number with which its rows will be written. This is the number
    /// of the newest description of the table, if rows are still stored in the same way. Otherwise
    /// it is a new number.
    pub(super) fn number_tables(
        &self,
        tables: &[Arc<dyn StoredTable>],
        next: &mut Manifest,
    ) -> Vec<u32> {
        next.dropped.extend(&self.dropped);
        for (number, staged) in &self.kept {
            next.tables[*number as usize].next_key = staged.next_key();
        }
        let number_of = |(table, opened): (&Arc<dyn StoredTable>, &Option<Opened>)| {
            let mut description = table.description().clone();
            if let Some(opened) = opened {
                description = opened.table.full(&opened.stored, &description);
                // Keys go on behind those of the checkpoint, and of rows that were deleted since.
                let staged = opened.staged.as_ref().and_then(|staged| staged.next_key());
                let reached = opened.stored.next_key.max(staged);
                reached.into_iter().for_each(|next| table.pass_keys(next));
                description.next_key = table.next_key().max(reached);
                // All forms of the table have its present name. Other tables may have been renamed
                // already, so the manifest's names do not show which forms these are.
                for &number in &opened.lineage {
                    next.tables[number as usize].name.clone_from(&description.name);
                }
                if opened.table.step.is_some() && description.is_stored_as(&opened.stored) {
                    next.tables[opened.number as usize] = description;
                    return opened.number;
                }
            }
            next.tables.push(description);
            (next.tables.len() - 1) as u32
        };
        tables.iter().zip(&self.opened).map(number_of).collect()
    }

    /// Returns whether all rows have to be written again.
    pub(super) fn rewrites(&self) -> bool {
        self.rewrites
    }

    /// Returns the source of the checkpoint that this recovery has to write at the end of `epoch`,
    /// if it has to write one. `migrated` has the rows of `tables` if hooks have changed them.
    pub(super) fn rewritten<'a>(
        &'a self,
        tables: &'a [Arc<dyn StoredTable>],
        numbers: &[u32],
        migrated: Option<&'a MigratedRows>,
        epoch: u64,
    ) -> Option<RewrittenRows<'a>> {
        self.rewrites.then(|| {
            let kept =
                self.kept.iter().map(|(number, table)| (*number, &**table as &dyn StoredTable));
            let kept = kept.map(|(number, rows)| (number, Rows::Stored(rows), None));
            let opened = numbers.iter().enumerate().map(|(position, &number)| {
                let rows = match migrated {
                    Some(migrated) => Rows::Migrated(migrated, position),
                    None => Rows::Stored(&*tables[position]),
                };
                let opened = self.opened[position].as_ref();
                (number, rows, opened.and_then(|opened| opened.full.as_deref()))
            });
            RewrittenRows { epoch, tables: kept.chain(opened).collect() }
        })
    }
}

impl Target {
    #[cold]
    fn undecodable(&self, error: DecodeError) -> EntryFault {
        EntryFault::Undecodable { table: self.stored.name.clone(), error }
    }
}

impl Opened {
    /// Converts a stored row, and puts it into the program's table. `converted` is an empty buffer.
    fn convert(
        &self,
        table: &dyn StoredTable,
        row: &[u8],
        converted: &mut Vec<u8>,
    ) -> Result<(), RowFault> {
        let Some(step) = &self.table.step else {
            return Ok(table.migrate(&StoredRow::new(&self.stored, row))?);
        };
        let compute =
            |column, row: &StoredRow<'_>, output: &mut Vec<u8>| table.compute(column, row, output);
        step.row(row, compute, converted)?;
        table.put(converted)?;
        if let Some(full) = &self.full {
            let mut position = 0;
            self.stored.for_each_column(row, |_, value| {
                if self.table.kept.contains(&position) {
                    converted.extend_from_slice(value);
                }
                position += 1;
                Ok(())
            })?;
            full.put(converted)?;
        }
        Ok(())
    }

    /// Returns the key of a stored row, for messages.
    fn key_in_words(&self, row: &[u8]) -> String {
        let key = key_of_row(&self.stored, row).and_then(|key| self.stored.read_key(&key));
        let values: Vec<_> = key.iter().flatten().map(ToString::to_string).collect();
        match &values[..] {
            [value] => value.clone(),
            values => format!("({})", values.join(", ")),
        }
    }
}

/// All rows after a recovery that has converted some of them.
pub(super) struct RewrittenRows<'a> {
    epoch: u64,
    /// Each table's number and rows, and the rows that have the values of the columns that the program does not have.
    tables: Vec<(u32, Rows<'a>, Option<&'a StagedTable>)>,
}

/// The rows of a table.
enum Rows<'a> {
    /// Those that recovery has filled in.
    Stored(&'a dyn StoredTable),
    /// Those that the program's hooks have left in the table at this position.
    Migrated(&'a MigratedRows, usize),
}

impl CheckpointSource for RewrittenRows<'_> {
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
        let found = self.tables.iter().find(|(number, ..)| *number == table);
        let (_, rows, full) = found.expect("all tables that are written have rows");
        let mut whole = Vec::new();
        let mut completed = |row: &[u8]| {
            let Some(full) = full else { return sink(row) };
            whole.clear();
            whole.extend_from_slice(row);
            full.append_kept(row, &mut whole).expect("the program has just encoded the row");
            sink(&whole)
        };
        let part = (part as usize, parts as usize);
        match rows {
            Rows::Stored(rows) => rows.encode_rows(part, &mut completed),
            Rows::Migrated(rows, position) => rows(*position, part, &mut completed),
        }
    }
}

/// Returns the encoded key of a stored row.
pub(super) fn key_of_row(
    table: &TableDescription,
    row: &[u8],
) -> Result<SmallVec<[u8; 32]>, DecodeError> {
    let columns = table.key.iter().max().map_or(0, |last| last + 1);
    let mut values = SmallVec::<[&[u8]; 8]>::new();
    let mut rest = row;
    for position in 0..columns {
        let start = rest;
        table.skip_column(position, &mut rest, row.len())?;
        values.push(&start[..start.len() - rest.len()]);
    }
    let mut key = SmallVec::new();
    table.key.iter().for_each(|&position| key.extend_from_slice(values[position]));
    Ok(key)
}

/// Returns the encoded key with which `bytes` begins.
fn key_at_start<'a>(table: &TableDescription, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let mut rest = bytes;
    for &position in &table.key {
        table.skip_column(position, &mut rest, bytes.len())?;
    }
    Ok(&bytes[..bytes.len() - rest.len()])
}

pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let rest = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words
        .chain([rest])
        .fold(0_u64, |hash, word| (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
