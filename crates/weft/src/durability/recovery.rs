//! Recovery: restores the rows in memory from the files in a directory.
//!
//! ```text
//!   1  read the log        all segments, each frame's checksum; how far it counts  (segments.rs)
//!   2  load the checkpoint the rows of each file, files side by side
//!   3  replay the log      the epochs after the checkpoint, shards of keys side by side (replay.rs)
//!   4  build the indexes   and check each row against the constraints of its row type
//!   5  migrate             code of the program, if it has a newer version of the schema
//!   6  settle              cut off what does not count, sync, write the manifest of a new run,
//!                          remove leftovers
//! ```
//!
//! Nothing is written before the last step. So anything wrong with the files is found while they
//! are unchanged. The last step can be interrupted anywhere. What it cut off would be cut off
//! again, and until the manifest is replaced the next recovery does the same as this one.
//! Everything is synced before the manifest is replaced, including what no crash has torn: a
//! process that was killed may have left frames that only the operating system has seen. What the
//! log does not declare as synced is first written again, because a failed sync may have left it in
//! the operating system's memory only.
//!
//! **Point in time.** [`RecoveryOptions::up_to_epoch`] recovers the state at the end of an earlier
//! epoch, from the checkpoint's epoch on. It leaves out the last step: it changes nothing in the
//! directory and begins no run, so there is no log to write to. To go on from that state, make a
//! [backup](super::backup) of it in another directory. The later epochs remain where they are.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backend::{Backend, File};
use super::checkpoint::{self, CheckpointSource};
use super::directory;
use super::manifest::{LoggerSegments, Manifest};
use super::parallel;
use super::segments::{self, Assessment, Listing, LogCut, LoggerLog, Segment, SegmentScan};
use crate::error::StorageError;
use crate::row::column::DecodeError;
use crate::row::description::{RowChange, StoredRow, TableDescription};
use crate::row::schema::Violation;

mod replay;
mod schema;
mod staged;
mod version;

use schema::Targets;
pub use staged::StagedTable;
pub(crate) use version::{Migrate, MigratedRows, ProgramVersion};

/// A table, as recovery uses it.
pub trait StoredTable: Send + Sync {
    /// Returns the description of the table, with the current encoding of its rows.
    fn description(&self) -> &TableDescription;

    /// Inserts a row, or replaces the row with the same key. Several threads call this at the same
    /// time, but not for the same key.
    ///
    /// # Errors
    /// If `row` is not a row of this table.
    fn put(&self, row: &[u8]) -> Result<(), DecodeError>;

    /// Removes the row with this key, if it exists. Called in the same way as [`StoredTable::put`].
    ///
    /// # Errors
    /// If `key` is not a key of this table.
    fn delete(&self, key: &[u8]) -> Result<(), DecodeError>;

    /// Changes columns of the row with this key. Returns `false` if the row does not exist. Called
    /// in the same way as [`StoredTable::put`].
    ///
    /// # Errors
    /// If `key` is not a key of this table, or `change` does not fit the columns of the row.
    fn change(&self, key: &[u8], change: &RowChange<'_>) -> Result<bool, DecodeError>;

    /// Builds part `part` of `parts` of the secondary indexes, once all rows are there, and checks
    /// the rows of this part against the constraints of their type. Several threads call this at
    /// the same time.
    ///
    /// # Errors
    /// If something prevents it. What is wrong with the rows, [`StoredTable::checked`] returns.
    fn build_indexes(&self, part: usize, parts: usize) -> Result<(), StorageError>;

    /// Returns what the checks in [`StoredTable::build_indexes`] have found. Called once, after all
    /// parts.
    ///
    /// # Errors
    /// [`StorageError::Constraint`], with the rows that break a constraint, or that have the same
    /// key in a unique index as another row.
    fn checked(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// Appends the value of the computed column at `column` for a stored row.
    ///
    /// # Errors
    /// Why the program does not compute it.
    fn compute(
        &self,
        column: usize,
        row: &StoredRow<'_>,
        output: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let _ = (row, output);
        Err(format!("column {column} is not computed").into())
    }

    /// Puts the row that the program makes of a stored one, if it makes one.
    ///
    /// # Errors
    /// Why it refuses the stored row. Also if it has made a row with the same key of another one.
    fn migrate(&self, row: &StoredRow<'_>) -> Result<(), Violation> {
        let _ = row;
        Err("the program does not make rows of this table".into())
    }

    /// Passes the rows of part `part.0` of `part.1` to `sink`, encoded.
    ///
    /// # Errors
    /// Those of `sink`.
    fn encode_rows(
        &self,
        part: (usize, usize),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError>;

    /// Returns the number of the next generated key, if keys are generated: behind those of all rows that were put or
    /// removed.
    fn next_key(&self) -> Option<u64> {
        None
    }

    /// Generates keys from the number `next` on, or from a later one.
    fn pass_keys(&self, next: u64) {
        let _ = next;
    }

    /// Returns how many rows the table has.
    fn rows(&self) -> u64;

    /// Returns whether recovery puts the stored rows into the table. If not, the rows are not read, and
    /// stay in the directory as they are. Recovery that writes all rows again puts them in all tables.
    fn wants_rows(&self) -> bool {
        true
    }
}

/// A phase of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading the log, and checking that it is complete.
    ReadLog,
    /// Loading the checkpoint.
    LoadCheckpoint,
    /// Replaying the log.
    Replay,
    /// Building the secondary indexes, and checking the rows' constraints.
    BuildIndexes,
}

/// The progress of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// The current phase.
    pub phase: Phase,
    /// How much of the phase is done, in bytes of files or parts of indexes.
    pub done: u64,
    /// How much the whole phase has.
    pub total: u64,
}

/// Options of recovery.
#[derive(Clone, Copy)]
pub struct RecoveryOptions<'a> {
    /// How many threads work.
    pub threads: usize,
    /// How many loggers will write in the run that begins.
    pub loggers: u32,
    /// Recover the state at the end of this epoch, and leave the directory as it is.
    pub up_to_epoch: Option<u64>,
    /// Leave the directory as it is.
    pub dry_run: bool,
    /// Called from time to time, by any of the threads.
    pub progress: Option<&'a (dyn Fn(RecoveryProgress) + Sync)>,
    /// Checks from time to time, on any of the threads, that the rows so far leave room for more.
    pub check_room: Option<&'a (dyn Fn() -> Result<(), StorageError> + Sync)>,
    /// The names of stored tables to drop.
    pub drop_tables: &'a [String],
    /// How many bytes of the log before the checkpoint stay, for its readers.
    pub keep_log_bytes: u64,
}

impl Default for RecoveryOptions<'_> {
    fn default() -> Self {
        RecoveryOptions {
            threads: 1,
            loggers: 1,
            up_to_epoch: None,
            dry_run: false,
            progress: None,
            check_room: None,
            drop_tables: &[],
            keep_log_bytes: 0,
        }
    }
}

impl RecoveryOptions<'_> {
    fn report(&self, phase: Phase, done: u64, total: u64) -> Result<(), StorageError> {
        if let Some(progress) = self.progress {
            progress(RecoveryProgress { phase, done, total });
        }
        self.check_room.map_or(Ok(()), |check_room| check_room())
    }
}

/// The result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the directory held no database yet.
    pub is_new: bool,
    /// The tables hold the state at the end of this epoch.
    pub epoch: u64,
    /// The first epoch in which a transaction may commit from now on.
    pub next_epoch: u64,
    /// The epoch of the checkpoint that was loaded.
    pub checkpoint_epoch: Option<u64>,
    /// Rows that were in the checkpoint.
    pub checkpoint_rows: u64,
    /// Length of the checkpoint, in bytes.
    pub checkpoint_bytes: u64,
    /// Transactions in the part of the log that was replayed.
    pub transactions: u64,
    /// Writes in that part of the log.
    pub entries: u64,
    /// Length of the log that was read, in bytes.
    pub log_bytes: u64,
    /// The parts of the log that did not count, and were cut off (or would be, if the directory may
    /// not be changed).
    pub cuts: Vec<LogCut>,
    /// The version of the schema from which hooks of the program led to its own, if any have run.
    pub migrated_from: Option<u32>,
    /// How long each phase took.
    pub durations: Durations,
    /// The number of each table, in the order in which the tables were given.
    pub table_numbers: Vec<u32>,
    /// The sequence number of the segment with which each logger must begin.
    pub next_segments: Vec<u64>,
    /// The manifest that the directory has now, or would have if it could be changed.
    pub manifest: Manifest,
}

/// How long the phases of a recovery took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Reading and checking the log.
    pub read_log: Duration,
    /// Loading the checkpoint.
    pub load_checkpoint: Duration,
    /// Replaying the log.
    pub replay: Duration,
    /// Building the secondary indexes.
    pub build_indexes: Duration,
    /// Cutting, syncing, and writing the manifest.
    pub settle: Duration,
}

/// Recovers the database in `directory` into `tables`, which must be empty, and begins a new run of
/// it. Creates a database if there isn't one. The caller must hold the lock of the directory
/// ([`lock`](directory::lock)).
///
/// Besides the rows, it takes some dozens of bytes of memory for each frame of the log, and a few
/// times the size of the largest epoch, or a few times 32 MiB.
///
/// # Errors
/// Everything that is wrong with the files, with the file and the place. Also tables that do not
/// match the stored ones. No file has been changed then. In the last phase also errors of the file
/// system, after which the database can be recovered again. After an error, `tables` may hold
/// anything.
pub fn recover(
    backend: &dyn Backend,
    directory: &Path,
    tables: &[Arc<dyn StoredTable>],
    options: &RecoveryOptions<'_>,
) -> Result<RecoveryReport, StorageError> {
    recover_as(backend, directory, tables, options, None)
}

/// As [`recover`], for a program that has declared the version of its schema. `None` stands for a
/// tool, which leaves the version as it is. If the directory has an older version, calls the
/// function with that version, with an epoch in which no other transaction commits, and with the
/// time of the recovered state. All rows are written again, as it leaves them.
///
/// # Errors
/// As [`recover`]; those of the function, which leave the directory unchanged.
pub(crate) fn recover_as(
    backend: &dyn Backend,
    directory: &Path,
    tables: &[Arc<dyn StoredTable>],
    options: &RecoveryOptions<'_>,
    program: Option<(&ProgramVersion, &mut Migrate<'_>)>,
) -> Result<RecoveryReport, StorageError> {
    let mut durations = Durations::default();
    let stored = Manifest::read(backend, directory)?;
    let is_new = stored.is_none();
    let mut manifest = stored.unwrap_or_else(Manifest::empty);
    let migrate = match program {
        Some((program, migrate)) => {
            let from = manifest.schema;
            program.take_over(is_new, &mut manifest)?.then_some((from, migrate))
        }
        None => None,
    };
    let migrated_from = migrate.as_ref().map(|(from, _)| *from);
    let targets = Targets::match_tables(&manifest, tables, options, migrated_from.is_some())?;

    // 1: read the log, and decide how far it counts.
    let log = time(&mut durations.read_log, || {
        StoredLog::read(backend, directory, &manifest, options.threads, &|done, total| {
            // Nothing takes memory yet.
            let _ = options.report(Phase::ReadLog, done, total);
        })
    })?;
    let checkpoint_epoch = manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.epoch);
    let epoch = wanted_epoch(options.up_to_epoch, checkpoint_epoch, log.assessment.epoch)?;

    // 2: load the checkpoint.
    time(&mut durations.load_checkpoint, || {
        load_checkpoint(backend, directory, &manifest, &targets, options)
    })?;
    // 3: replay the epochs after the checkpoint.
    let after = checkpoint_epoch.unwrap_or(0);
    let replayed = time(&mut durations.replay, || {
        replay::replay(backend, &log.loggers, after, epoch, &targets, options)
    })?;
    // 4: convert the rows that wait for it, build the indexes, and check the rows.
    time(&mut durations.replay, || targets.convert(tables, options.threads))?;
    time(&mut durations.build_indexes, || build_indexes(tables, options))?;

    // 5: run the program's hooks.
    let recovered_time = manifest.time.max(replayed.time);
    let migrated = migrate
        .map(|(from, migrate)| migrate(from, log.assessment.next_epoch, recovered_time))
        .transpose()?;
    let (migrated, migrated_time) = migrated.unzip();

    // 6: settle, unless the directory must stay as it is.
    let next_segments = next_segments(&manifest, &log, options.loggers);
    let (mut next, table_numbers) =
        next_manifest(&manifest, &log, tables, &targets, options.loggers);
    next.time = migrated_time.unwrap_or(recovered_time);
    // What was rewritten, and what hooks have written, are the rows of an epoch of their own.
    let rewritten_epoch = next.first_epoch;
    next.first_epoch += u64::from(targets.rewrites());
    if !options.dry_run && options.up_to_epoch.is_none() {
        let rewritten =
            targets.rewritten(tables, &table_numbers, migrated.as_ref(), rewritten_epoch);
        let rewritten = rewritten.as_ref().map(|rows| rows as &dyn CheckpointSource);
        time(&mut durations.settle, || {
            settle(backend, directory, &log, &mut next, rewritten, options)
        })?;
    }
    let checkpoint = manifest.checkpoint.as_ref();
    Ok(RecoveryReport {
        is_new,
        epoch,
        next_epoch: next.first_epoch,
        checkpoint_epoch,
        checkpoint_rows: checkpoint.map_or(0, |checkpoint| checkpoint.rows()),
        checkpoint_bytes: checkpoint.map_or(0, |checkpoint| checkpoint.bytes()),
        transactions: replayed.transactions,
        entries: replayed.entries,
        log_bytes: log.bytes(),
        cuts: log.assessment.cuts,
        migrated_from,
        durations,
        table_numbers,
        next_segments,
        manifest: next,
    })
}

/// Reads the rows of some tables of an open database, as they were at the end of `epoch`, which is
/// durable, into `tables`. Each table has the newest description of its number in the manifest. The
/// database may go on writing its log, but must not write a checkpoint.
///
/// # Errors
/// As [`recover`].
pub fn read_rows(
    backend: &dyn Backend,
    directory: &Path,
    tables: &[(u32, Arc<dyn StoredTable>)],
    epoch: u64,
    threads: usize,
) -> Result<(), StorageError> {
    let options = RecoveryOptions { threads, ..RecoveryOptions::default() };
    let manifest = Manifest::read(backend, directory)?.unwrap_or_else(Manifest::empty);
    // By number, because names and former names say what a table is only among all tables.
    let targets = Targets::of_numbers(&manifest, tables);
    let listing = segments::list(backend, directory, &manifest)?;
    let log = scan_all(backend, listing, threads, &|_, _| (), |_, _| Ok(()))?;
    load_checkpoint(backend, directory, &manifest, &targets, &options)?;
    let after = manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.epoch);
    replay::replay(backend, &log, after, epoch, &targets, &options)?;
    Ok(())
}

fn time<T>(duration: &mut Duration, phase: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = phase();
    *duration += start.elapsed();
    result
}

/// The log after it was read and found complete.
#[derive(Debug)]
pub(super) struct StoredLog {
    pub loggers: Vec<LoggerLog>,
    pub assessment: Assessment,
    /// The next sequence number of each logger.
    next: Vec<u64>,
}

impl StoredLog {
    /// Reads the headers of all frames of the segments that the manifest names.
    pub(super) fn read(
        backend: &dyn Backend,
        directory: &Path,
        manifest: &Manifest,
        threads: usize,
        report: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<StoredLog, StorageError> {
        let listing = segments::list(backend, directory, manifest)?;
        let next = segments::next_sequences(&listing, manifest);
        let loggers = scan_all(backend, listing, threads, report, |_, _| Ok(()))?;
        let assessment = segments::assess(manifest, &loggers)?;
        Ok(StoredLog { loggers, assessment, next })
    }

    fn bytes(&self) -> u64 {
        let segments = self.loggers.iter().flat_map(|log| &log.segments);
        segments.map(|segment| segment.length).sum()
    }
}

/// Scans all segments, on several threads, and passes their frames to `visit`.
pub(super) fn scan_all(
    backend: &dyn Backend,
    listing: Listing,
    threads: usize,
    report: &(dyn Fn(u64, u64) + Sync),
    visit: impl Fn(&Segment, &super::format::Frame<'_>) -> Result<(), StorageError> + Sync,
) -> Result<Vec<LoggerLog>, StorageError> {
    let segments: Vec<&Segment> = listing.loggers.iter().flatten().collect();
    let total = segments.iter().map(|segment| segment.filled).sum();
    let done = weft_htm::word::Word::new(0);
    // Relaxed: a statistic.
    let order = weft_htm::word::Ordering::Relaxed;
    let scans = parallel::run(threads, segments.len(), |job| {
        let segment = segments[job];
        segments::scan(backend, segment, |frame| {
            let bytes = frame.payload.len() as u64 + super::format::HEADER_BYTES as u64;
            // A last frame may end in zeros, which do not count in the total.
            report((done.fetch_add(bytes, order) + bytes).min(total), total);
            visit(segment, frame)
        })
    })?;
    let mut scans = scans.into_iter();
    let with_scans = |mut segments: Vec<Segment>| {
        let scans: Vec<SegmentScan> = scans.by_ref().take(segments.len()).collect();
        for (segment, scan) in segments.iter_mut().zip(&scans) {
            segment.length = scan.length;
        }
        LoggerLog { segments, scans }
    };
    Ok(listing.loggers.into_iter().map(with_scans).collect())
}

/// Returns the epoch to recover: the requested one, or else the last one.
fn wanted_epoch(
    wanted: Option<u64>,
    checkpoint: Option<u64>,
    last: u64,
) -> Result<u64, StorageError> {
    let first = checkpoint.unwrap_or(0);
    match wanted {
        None => Ok(last),
        Some(epoch) if (first..=last).contains(&epoch) => Ok(epoch),
        Some(epoch) => Err(StorageError::EpochUnavailable { epoch, first, last }),
    }
}

fn load_checkpoint(
    backend: &dyn Backend,
    directory: &Path,
    manifest: &Manifest,
    targets: &Targets,
    options: &RecoveryOptions<'_>,
) -> Result<(), StorageError> {
    let Some(checkpoint) = &manifest.checkpoint else { return Ok(()) };
    let files: Vec<_> =
        checkpoint.files.iter().filter(|file| targets.is_wanted(file.table)).collect();
    let total = files.iter().map(|file| file.length_bytes).sum();
    let done = weft_htm::word::Word::new(0);
    parallel::run(options.threads, files.len(), |job| {
        let file = files[job];
        let (mut frame_before, mut buffer) = (None, Vec::new());
        checkpoint::read_file(backend, directory, checkpoint.epoch, file, |row, path, frame| {
            if frame_before.replace(frame) != Some(frame) {
                let base = weft_htm::word::Ordering::Relaxed;
                options.report(Phase::LoadCheckpoint, done.load(base) + frame, total)?;
            }
            targets.put(file.table, row, &mut buffer).map_err(|fault| fault.at(path, frame))
        })?;
        // Relaxed: a statistic.
        done.fetch_add(file.length_bytes, weft_htm::word::Ordering::Relaxed);
        Ok(())
    })?;
    options.report(Phase::LoadCheckpoint, total, total)?;
    Ok(())
}

fn build_indexes(
    tables: &[Arc<dyn StoredTable>],
    options: &RecoveryOptions<'_>,
) -> Result<(), StorageError> {
    let parts = options.threads.max(1);
    let total = (tables.len() * parts) as u64;
    let done = weft_htm::word::Word::new(0);
    parallel::run(options.threads, tables.len() * parts, |job| {
        tables[job / parts].build_indexes(job % parts, parts)?;
        // Relaxed: a statistic.
        let before = done.fetch_add(1, weft_htm::word::Ordering::Relaxed);
        options.report(Phase::BuildIndexes, before + 1, total)?;
        Ok(())
    })?;
    tables.iter().try_for_each(|table| table.checked())
}

/// Returns the numbers of the segments with which the loggers of the next run begin.
fn next_segments(manifest: &Manifest, log: &StoredLog, loggers: u32) -> Vec<u64> {
    debug_assert_eq!(log.next.len(), manifest.segments.len());
    (0..loggers as usize).map(|logger| log.next.get(logger).copied().unwrap_or(1)).collect()
}

/// Returns the manifest of the run that begins, and the numbers of the tables in it.
fn next_manifest(
    manifest: &Manifest,
    log: &StoredLog,
    tables: &[Arc<dyn StoredTable>],
    targets: &Targets,
    loggers: u32,
) -> (Manifest, Vec<u32>) {
    let mut next = manifest.clone();
    next.run += 1;
    next.first_epoch = log.assessment.next_epoch;
    next.recovered_epoch = log.assessment.epoch;
    next.loggers = loggers;
    seal(&mut next, &log.next, &lengths_after(log));
    let table_numbers = targets.number_tables(tables, &mut next);
    (next, table_numbers)
}

/// Returns the lengths of each logger's segments after the cuts.
fn lengths_after(log: &StoredLog) -> Vec<Vec<u64>> {
    let length = |segment: &Segment| {
        let cut = log.assessment.cuts.iter().find(|cut| cut.path == segment.path);
        cut.map_or(segment.length, |cut| cut.offset)
    };
    log.loggers.iter().map(|log| log.segments.iter().map(length).collect()).collect()
}

/// Makes the existing segments those of earlier runs, and `next` the first segments of this run.
fn seal(manifest: &mut Manifest, next: &[u64], lengths: &[Vec<u64>]) {
    let loggers = manifest.segments.len().max(manifest.loggers as usize);
    let unused = LoggerSegments { needed_from: 1, run_from: 1, sealed: Vec::new() };
    manifest.segments.resize(loggers, unused);
    for (segments, (next, lengths)) in manifest.segments.iter_mut().zip(next.iter().zip(lengths)) {
        segments.sealed.clone_from(lengths);
        segments.run_from = *next;
        if lengths.is_empty() {
            segments.needed_from = *next;
        }
    }
}

/// Makes the directory match the manifest of the new run, and writes that manifest. If all rows are
/// written again, the manifest has the checkpoint with them, and needs no log.
fn settle(
    backend: &dyn Backend,
    directory: &Path,
    log: &StoredLog,
    next: &mut Manifest,
    rewritten: Option<&dyn CheckpointSource>,
    options: &RecoveryOptions<'_>,
) -> Result<(), StorageError> {
    let log_directory = directory::log_directory(directory);
    for logger in &log.loggers {
        // Go from the last segment to the first, because a crash must not leave a gap between two
        // segments.
        let segments = logger.segments.iter().zip(&logger.scans).rev();
        for (segment, scan) in segments.filter(|(segment, _)| !segment.sealed) {
            let path = &segment.path;
            let file =
                backend.open(path).map_err(|error| StorageError::io("open", path, &error))?;
            let cut = log.assessment.cuts.iter().find(|cut| cut.path == *path);
            let length = cut.map_or(segment.length, |cut| cut.offset);
            // Truncate even if nothing has to be cut off. An earlier recovery may have cut it off
            // and then failed to sync, so that it may still be on the disk.
            file.truncate(length).map_err(|error| StorageError::io("truncate", path, &error))?;
            let synced = scan.frames.iter().map(|frame| frame.header.synced).max().unwrap_or(0);
            write_again(&*file, path, synced, length)?;
            file.sync().map_err(|error| StorageError::sync(path, &error))?;
        }
    }
    if directory::exists(backend, &log_directory)? {
        directory::sync(backend, &log_directory)?;
    }
    directory::create_directory(backend, directory)?;
    if let Some(source) = rewritten {
        // An interrupted attempt may have left files in the way.
        let current = next.checkpoint.as_ref().map(|checkpoint| checkpoint.epoch);
        directory::remove_other_checkpoints(backend, directory, current)?;
        let threads = options.threads;
        let writing = checkpoint::CheckpointOptions { threads, ..Default::default() };
        let tables = next.current_tables();
        let written = checkpoint::write_files(backend, directory, &tables, source, &writing)?;
        directory::sync(backend, directory)?;
        directory::create_directory(backend, &log_directory)?;
        directory::mark_unlogged(backend, &log_directory, written.epoch)?;
        next.recovered_epoch = written.epoch;
        next.checkpoint = Some(written);
        for segments in &mut next.segments {
            segments.needed_from = segments.run_from;
            segments.sealed.clear();
        }
    }
    next.write(backend, directory)?;
    directory::create_directory(backend, &log_directory)?;
    checkpoint::remove_needless(backend, directory, next, options.keep_log_bytes)
}

/// Writes bytes `start..end` of a file again. After a failed sync, the operating system may go on
/// showing what it has not written to the disk, and treat it as written.
fn write_again(file: &dyn File, path: &Path, start: u64, end: u64) -> Result<(), StorageError> {
    let mut buffer = Vec::new();
    let mut position = start;
    while position < end {
        buffer.resize((end - position).min(1 << 20) as usize, 0);
        let read = file
            .read_at(&mut buffer, position)
            .map_err(|error| StorageError::io("read", path, &error))?;
        if read < buffer.len() {
            return Err(StorageError::damaged(path, position + read as u64, "the file ends"));
        }
        file.write_at(&buffer, position)
            .map_err(|error| StorageError::io("write", path, &error))?;
        position += read as u64;
    }
    Ok(())
}

/// Records that the run has ended and its log is complete up to `epoch`, its last epoch. From now
/// on, a missing or changed byte anywhere in the log is damage, and is never mistaken for a torn
/// tail. Call this after the log has been shut down without an error and has made `epoch` durable,
/// while the directory is still locked.
///
/// A run that ends without this call, as in a crash, can be recovered as well.
///
/// # Errors
/// Those of the file system.
pub fn end_run(
    backend: &dyn Backend,
    directory: &Path,
    manifest: &mut Manifest,
    epoch: u64,
) -> Result<(), StorageError> {
    let listing = segments::list(backend, directory, manifest)?;
    for segment in listing.loggers.iter().flatten().filter(|segment| !segment.sealed) {
        let path = &segment.path;
        let file = backend.open(path).map_err(|error| StorageError::io("open", path, &error))?;
        file.sync().map_err(|error| StorageError::sync(path, &error))?;
    }
    let next = segments::next_sequences(&listing, manifest);
    let lengths = |segments: &Vec<Segment>| segments.iter().map(|segment| segment.length).collect();
    let lengths: Vec<Vec<u64>> = listing.loggers.iter().map(lengths).collect();
    let mut ended = manifest.clone();
    ended.recovered_epoch = epoch.max(manifest.recovered_epoch);
    ended.first_epoch = ended.recovered_epoch + 1;
    seal(&mut ended, &next, &lengths);
    ended.write(backend, directory)?;
    *manifest = ended;
    Ok(())
}

#[cfg(all(test, not(any(loom, shuttle))))]
pub(super) mod tests;
