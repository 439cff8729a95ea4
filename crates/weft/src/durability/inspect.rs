//! Inspection of a database's directory, for operators: what it holds, and whether it is intact.
//!
//! Neither [`inspect`] nor [`verify`] writes anything. If the database is not open, they lock the
//! directory, so that it is not opened while they read. If it is open, they read it nevertheless.
//! What was written last may then be there in part, which is not damage. If something seems to be
//! wrong while the log grows or a checkpoint replaces files, they read again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use weft_htm::blocking::Mutex;
use weft_htm::word::{Ordering, Word};

use super::backend::Backend;
use super::checkpoint;
use super::directory;
use super::format::{Entries, Frame, LogEntry, LogWrite, WriteKind};
use super::manifest::{Checkpoint, Manifest};
use super::parallel;
use super::recovery::{StoredTable, scan_all};
use super::segments::{self, LogCut, LoggerLog, Segment};
use crate::error::StorageError;
use crate::row::column::DecodeError;
use crate::row::description::{RowChange, TableDescription};

/// How often the files are read at most, if they change during the reading.
const ATTEMPTS: usize = 5;

/// What a database's directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether the database was open.
    pub is_open: bool,
    /// The manifest.
    pub manifest: Manifest,
    /// The epoch at whose end the database's state would be if it were opened now; `None` if this
    /// is unknown, because something is damaged.
    pub epoch: Option<u64>,
    /// The segments of the log, by logger and in order.
    pub segments: Vec<SegmentReport>,
    /// The tables, by number.
    pub tables: Vec<TableReport>,
    /// Transactions in the log.
    pub transactions: u64,
    /// Parts of the log that do not count, and would be cut off.
    pub cuts: Vec<LogCut>,
    /// Files that recovery does not need. Some of them may be kept for readers of the log.
    pub leftovers: Vec<PathBuf>,
    /// Everything that is wrong.
    pub problems: Vec<StorageError>,
}

/// A segment of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// The file.
    pub path: PathBuf,
    /// The logger that wrote it.
    pub logger: u32,
    /// Its sequence number among the logger's segments.
    pub sequence: u64,
    /// Whether an earlier run left it.
    pub is_sealed: bool,
    /// Its length, in bytes.
    pub bytes: u64,
    /// How many valid frames it has, up to its end or to the first invalid one.
    pub frames: u64,
    /// How many epochs these frames close.
    pub epochs: u64,
    /// The first epoch in it.
    pub first_epoch: Option<u64>,
    /// The last one.
    pub last_epoch: Option<u64>,
}

/// What the directory holds of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableReport {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Whether the table's rows are now written in this encoding. Some rows may be stored in an
    /// older one.
    pub is_current: bool,
    /// Rows in the checkpoint.
    pub checkpoint_rows: u64,
    /// How many rows the log inserts or replaces.
    pub puts: u64,
    /// How many changes of columns the log holds.
    pub changes: u64,
    /// How many commutative operations the log holds.
    pub operations: u64,
    /// How many rows the log deletes.
    pub deletes: u64,
    /// The length of all their encodings in the log, in bytes.
    pub log_bytes: u64,
}

/// How thoroughly to read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// The frames and entries of the log.
    Log,
    /// Also every row in the log and the checkpoint.
    Rows,
}

/// Reports what a database's directory holds. Reads the manifest and the whole log. The report
/// lists what is wrong.
///
/// # Errors
/// If the manifest cannot be read, or does not exist.
pub fn inspect(
    backend: &dyn Backend,
    directory: &Path,
    threads: usize,
) -> Result<Report, StorageError> {
    read_quietly(backend, directory, threads, Depth::Log)
}

/// Reads everything in a database's directory, including every row, and checks that the database
/// can be recovered from it.
///
/// # Errors
/// Everything that is wrong.
pub fn verify(
    backend: &dyn Backend,
    directory: &Path,
    threads: usize,
) -> Result<Report, Vec<StorageError>> {
    let report =
        read_quietly(backend, directory, threads, Depth::Rows).map_err(|error| vec![error])?;
    if report.problems.is_empty() { Ok(report) } else { Err(report.problems) }
}

/// Reads the directory, and reads it again if changes made at the same time seem to disturb the
/// result.
fn read_quietly(
    backend: &dyn Backend,
    directory: &Path,
    threads: usize,
    depth: Depth,
) -> Result<Report, StorageError> {
    let lock = directory::lock_for_reading(backend, directory)?;
    let read_manifest = || {
        Manifest::read(backend, directory)?.ok_or_else(|| StorageError::NotADatabase {
            directory: directory.to_owned(),
            message: "it has no MANIFEST".to_owned(),
        })
    };
    let mut manifest = read_manifest()?;
    for _ in 1..ATTEMPTS {
        let report = read(backend, directory, &manifest, lock.open_elsewhere, threads, depth);
        let now = read_manifest()?;
        let was_quiet = now == manifest && !lock.open_elsewhere;
        if report.problems.is_empty() || was_quiet {
            return Ok(report);
        }
        manifest = now;
    }
    Ok(read(backend, directory, &manifest, lock.open_elsewhere, threads, depth))
}

/// Counts of the log's entries for one table.
#[derive(Clone, Copy, Default)]
struct Counts {
    puts: u64,
    changes: u64,
    operations: u64,
    deletes: u64,
    bytes: u64,
}

fn read(
    backend: &dyn Backend,
    directory: &Path,
    manifest: &Manifest,
    is_open: bool,
    threads: usize,
    depth: Depth,
) -> Report {
    let mut report = Report {
        is_open,
        manifest: manifest.clone(),
        epoch: None,
        segments: Vec::new(),
        tables: tables(manifest),
        transactions: 0,
        cuts: Vec::new(),
        leftovers: Vec::new(),
        problems: Vec::new(),
    };
    match segments::list(backend, directory, manifest) {
        Ok(mut listing) => {
            report.leftovers.append(&mut listing.leftovers);
            if let Err(problem) = read_log(backend, listing, threads, depth, &mut report) {
                report.problems.push(problem);
            }
        }
        Err(problem) => report.problems.push(problem),
    }
    if let (Depth::Rows, Some(checkpoint)) = (depth, &manifest.checkpoint) {
        let problems = read_checkpoint(backend, directory, manifest, checkpoint, threads);
        report.problems.extend(problems);
    }
    report
}

fn tables(manifest: &Manifest) -> Vec<TableReport> {
    let current = manifest.current_tables();
    let files = || manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
    let table = |(number, table): (usize, &TableDescription)| {
        let number = number as u32;
        TableReport {
            number,
            name: table.name.clone(),
            is_current: current.contains(&number),
            checkpoint_rows: files().filter(|file| file.table == number).map(|it| it.rows).sum(),
            ..TableReport::default()
        }
    };
    manifest.tables.iter().enumerate().map(table).collect()
}

fn read_log(
    backend: &dyn Backend,
    listing: segments::Listing,
    threads: usize,
    depth: Depth,
    report: &mut Report,
) -> Result<(), StorageError> {
    let descriptions = report.manifest.tables.clone();
    let counted = Mutex::new((0, vec![Counts::default(); descriptions.len()]));
    let problems = Mutex::new(Vec::new());
    let logs = scan_all(backend, listing, threads, &|_, _| (), |segment, frame| {
        let mut counts = vec![Counts::default(); descriptions.len()];
        match count(frame, segment, &descriptions, depth, &mut counts) {
            Ok(transactions) => {
                let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
                counted.0 += transactions;
                for (sum, counts) in counted.1.iter_mut().zip(counts) {
                    sum.puts += counts.puts;
                    sum.changes += counts.changes;
                    sum.operations += counts.operations;
                    sum.deletes += counts.deletes;
                    sum.bytes += counts.bytes;
                }
            }
            Err(error) => problems.lock().unwrap_or_else(PoisonError::into_inner).push(error),
        }
        Ok(())
    })?;
    let (transactions, counts) = counted.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.problems.extend(problems.into_inner().unwrap_or_else(PoisonError::into_inner));
    report.transactions = transactions;
    for (table, counts) in report.tables.iter_mut().zip(counts) {
        table.puts = counts.puts;
        table.changes = counts.changes;
        table.operations = counts.operations;
        table.deletes = counts.deletes;
        table.log_bytes = counts.bytes;
    }
    report.segments = logs.iter().flat_map(segments_of).collect();
    let assessment = segments::assess(&report.manifest, &logs)?;
    report.epoch = Some(assessment.epoch);
    report.cuts = assessment.cuts;
    Ok(())
}

fn segments_of(log: &LoggerLog) -> impl Iterator<Item = SegmentReport> {
    log.segments.iter().zip(&log.scans).map(|(segment, scan)| SegmentReport {
        path: segment.path.clone(),
        logger: segment.logger,
        sequence: segment.sequence,
        is_sealed: segment.sealed,
        bytes: segment.length,
        frames: scan.frames.len() as u64,
        epochs: scan.frames.iter().filter(|frame| frame.header.closes_epoch).count() as u64,
        first_epoch: scan.frames.first().map(|frame| frame.header.epoch),
        last_epoch: scan.frames.last().map(|frame| frame.header.epoch),
    })
}

/// Counts the entries of a frame by table, and returns how many transactions it has. With
/// [`Depth::Rows`] it also checks the rows.
fn count(
    frame: &Frame<'_>,
    segment: &Segment,
    tables: &[TableDescription],
    depth: Depth,
    counts: &mut [Counts],
) -> Result<u64, StorageError> {
    let damaged = |what: String| StorageError::damaged(&segment.path, frame.header.position, what);
    let mut transactions = 0;
    for entry in Entries::new(frame.payload) {
        let entry = entry.map_err(|error| damaged(format!("an entry: {error}")))?;
        let LogWrite { kind, table, bytes, .. } = match entry {
            LogEntry::Transaction => {
                transactions += 1;
                continue;
            }
            LogEntry::Time(_) => continue,
            LogEntry::Write(write) => write,
        };
        let Some(description) = tables.get(table as usize) else {
            return Err(damaged(format!("a row of table {table}, which is unknown")));
        };
        let counts = &mut counts[table as usize];
        counts.bytes += bytes.len() as u64;
        match kind {
            WriteKind::Put => counts.puts += 1,
            WriteKind::Change => counts.changes += 1,
            WriteKind::Operation => counts.operations += 1,
            WriteKind::Delete => counts.deletes += 1,
        }
        if depth == Depth::Rows {
            let description = &*description.written();
            let checked = match kind {
                WriteKind::Put => check_row(description, bytes),
                WriteKind::Change => description.read_change(bytes).map(|_| ()),
                WriteKind::Operation => description.read_operation(bytes).map(|_| ()),
                WriteKind::Delete => check_key(description, bytes),
            };
            checked.map_err(|error| damaged(undecodable(description, &error)))?;
        }
    }
    Ok(transactions)
}

fn read_checkpoint(
    backend: &dyn Backend,
    directory: &Path,
    manifest: &Manifest,
    checkpoint: &Checkpoint,
    threads: usize,
) -> Vec<StorageError> {
    let results = parallel::run(threads, checkpoint.files.len(), |job| {
        let file = &checkpoint.files[job];
        let table = &manifest.tables[file.table as usize];
        let epoch = checkpoint.epoch;
        Ok(checkpoint::read_file(backend, directory, epoch, file, |row, path, frame| {
            check_row(table, row)
                .map_err(|error| StorageError::damaged(path, frame, undecodable(table, &error)))
        }))
    });
    match results {
        Ok(results) => results.into_iter().filter_map(Result::err).collect(),
        Err(problem) => vec![problem],
    }
}

fn undecodable(table: &TableDescription, error: &DecodeError) -> String {
    format!("a row or key of table `{}` cannot be read: {error}", table.name)
}

/// Checks that `row` is exactly the columns' encodings.
fn check_row(table: &TableDescription, row: &[u8]) -> Result<(), DecodeError> {
    check_columns(table, 0..table.columns.len(), row, "the row")
}

fn check_key(table: &TableDescription, key: &[u8]) -> Result<(), DecodeError> {
    check_columns(table, table.key.iter().copied(), key, "the key")
}

fn check_columns(
    table: &TableDescription,
    columns: impl Iterator<Item = usize>,
    bytes: &[u8],
    name: &str,
) -> Result<(), DecodeError> {
    let mut rest = bytes;
    for column in columns.map(|position| &table.columns[position]) {
        let skipped = column.type_of.skip(&mut rest);
        skipped.map_err(|error| error.in_column(column.name.clone(), bytes.len()))?;
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err(DecodeError::goes_on(rest, name).within(bytes.len())),
    }
}

/// Returns tables that check the rows that they are given, and keep none of them. They serve to try
/// a recovery ([`RecoveryOptions::dry_run`](super::RecoveryOptions::dry_run)) without the program
/// to which the tables belong.
pub fn checked_tables(manifest: &Manifest) -> Vec<Arc<dyn StoredTable>> {
    let checked = |number: u32| {
        let description = manifest.tables[number as usize].clone();
        Arc::new(CheckedTable { description, puts: Word::new(0) }) as Arc<dyn StoredTable>
    };
    manifest.current_tables().into_iter().map(checked).collect()
}

struct CheckedTable {
    description: TableDescription,
    /// How many rows were put, including those that replaced others.
    puts: Word,
}

impl StoredTable for CheckedTable {
    fn description(&self) -> &TableDescription {
        &self.description
    }

    fn put(&self, row: &[u8]) -> Result<(), DecodeError> {
        // Relaxed: a statistic.
        self.puts.fetch_add(1, Ordering::Relaxed);
        check_row(&self.description, row)
    }

    fn delete(&self, key: &[u8]) -> Result<(), DecodeError> {
        check_key(&self.description, key)
    }

    /// Checks the key only, because the columns were checked when the change was read.
    fn change(&self, key: &[u8], _change: &RowChange<'_>) -> Result<bool, DecodeError> {
        check_key(&self.description, key).map(|()| true)
    }

    fn build_indexes(&self, _part: usize, _parts: usize) -> Result<(), StorageError> {
        Ok(())
    }

    /// Passes on nothing, since the table keeps no rows.
    fn encode_rows(
        &self,
        _part: (usize, usize),
        _sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.puts.load(Ordering::Relaxed)
    }
}
