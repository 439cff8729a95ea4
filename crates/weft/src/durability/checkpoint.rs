//! Checkpoints: all rows as they were at the end of an epoch, so that the log before it can be
//! removed.
//!
//! A checkpoint is a directory of files, one for each part of each table. A file is a sequence of
//! frames ([`format`](super::format)). The frames have the checkpoint's epoch, the part in the
//! place of the logger, and consecutive numbers. The payloads are rows, except in the last frame,
//! which closes the file:
//!
//! ```text
//!   frame 0 … n-1    row, row, row, …           a row is its length in LEB128, then its encoding
//!   frame n, closes  table  part  rows          LEB128 each; rows: how many the file has
//! ```
//!
//! It becomes the database's checkpoint when the manifest names it, with the length of each file:
//!
//! ```text
//!   write and sync the files, their directory, and the database's directory
//!   replace the manifest           before this the old checkpoint is current, after it the new
//!   remove the old checkpoint, and the segments of the log that are not needed any more
//! ```
//!
//! A crash in between leaves files that the manifest does not name. The next opening removes them.
//!
//! A segment is not needed if the first group of the segment after it follows an epoch that is in
//! the checkpoint. Every group names its predecessor (`previous epoch`), so nothing lies between
//! the two. The manifest also records the first segment that is needed.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use weft_htm::blocking::Mutex;

use super::backend::{Backend, File};
use super::directory;
use super::format::{
    FrameHeader, FrameKind, FrameReader, HEADER_BYTES, Next, begin_frame, end_frame, push_number,
    take_number,
};
use super::manifest::{Checkpoint, CheckpointFile, Manifest};
use super::parallel;
use super::segments;
use crate::error::StorageError;

/// The size of a frame, in bytes. Only a single row can make it larger. In tests a frame holds a
/// few rows.
const FRAME_BYTES: usize = if cfg!(test) { 200 } else { 1 << 20 };

/// The consistent view from which a checkpoint is written: exactly the state at the end of an
/// epoch.
pub trait CheckpointSource: Send + Sync {
    /// Returns the epoch.
    fn epoch(&self) -> u64;

    /// Returns the number of the next generated key of a table, at least: behind those of all rows that it had so far.
    /// `None` if it is not known to have generated keys.
    fn next_key(&self, table: u32) -> Option<u64> {
        let _ = table;
        None
    }

    /// Returns the greatest time of a transaction in these rows, in milliseconds since 1970.
    fn time(&self) -> u64 {
        0
    }

    /// Passes every row of part `part` of `parts` of a table to `sink`, encoded. `table` is the
    /// table's number in the manifest. Several threads may call this at the same time.
    ///
    /// # Errors
    /// Those of `sink`, which it returns immediately, and its own.
    fn rows(
        &self,
        table: u32,
        part: u32,
        parts: u32,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError>;
}

/// The progress of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointProgress {
    /// Rows written.
    pub rows: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// Options for writing a checkpoint.
#[derive(Clone, Copy)]
pub struct CheckpointOptions<'a> {
    /// How many threads write. Each table is divided into the same number of parts.
    pub threads: usize,
    /// Called after every frame, by any of the threads.
    pub progress: Option<&'a (dyn Fn(CheckpointProgress) + Sync)>,
    /// How many bytes of the log before the checkpoint stay, for its readers.
    pub keep_log_bytes: u64,
}

impl Default for CheckpointOptions<'_> {
    fn default() -> Self {
        CheckpointOptions { threads: 1, progress: None, keep_log_bytes: 0 }
    }
}

/// The result of writing a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOutcome {
    /// The checkpoint that is current now.
    pub checkpoint: Checkpoint,
    /// `false` if there was already a checkpoint of this epoch or a later one. Nothing was written
    /// then.
    pub is_new: bool,
    /// Why something that is not needed any more could not be removed. The next checkpoint tries
    /// again, and so does the next opening of the database.
    pub not_removed: Option<StorageError>,
}

/// Writes a checkpoint of all tables, makes it the database's checkpoint, and removes what it
/// replaces. Only one checkpoint may be written at a time. The log may go on writing during this.
///
/// # Errors
/// Those of the file system and of `source`. The previous checkpoint stays current, and the
/// database can go on. If the replacement of the manifest fails, it is unknown which of the two
/// checkpoints is current after a crash. Nothing is removed in this case, so that both are whole.
pub fn write_checkpoint(
    backend: &dyn Backend,
    directory: &Path,
    manifest: &Mutex<Manifest>,
    source: &dyn CheckpointSource,
    options: &CheckpointOptions<'_>,
) -> Result<CheckpointOutcome, StorageError> {
    let lock = || manifest.lock().unwrap_or_else(PoisonError::into_inner);
    let before = lock().clone();
    let epoch = source.epoch();
    if let Some(current) = before.checkpoint.filter(|current| current.epoch >= epoch) {
        return Ok(CheckpointOutcome { checkpoint: current, is_new: false, not_removed: None });
    }
    let tables = lock().current_tables();
    let checkpoint = write_files(backend, directory, &tables, source, options)?;

    // Replace the manifest. This makes the new checkpoint current.
    let mut held = lock();
    let mut next = held.clone();
    next.checkpoint = Some(checkpoint.clone());
    next.note_keys(source);
    next.time = next.time.max(source.time());
    forget_segments(backend, directory, &mut next)?;
    next.write(backend, directory)?;
    *held = next.clone();
    drop(held);
    let removed = remove_needless(backend, directory, &next, options.keep_log_bytes);
    Ok(CheckpointOutcome { checkpoint, is_new: true, not_removed: removed.err() })
}

/// Writes the files of a checkpoint and syncs them, names included. If this fails, removes them
/// again as far as possible.
pub(super) fn write_files(
    backend: &dyn Backend,
    directory: &Path,
    tables: &[u32],
    source: &dyn CheckpointSource,
    options: &CheckpointOptions<'_>,
) -> Result<Checkpoint, StorageError> {
    let epoch = source.epoch();
    let path = directory::checkpoint_directory(directory, epoch);
    if directory::exists(backend, &path)? {
        // A failed attempt has left it, perhaps one that failed while it replaced the manifest.
        // Then a crash may make it the current checkpoint. A checkpoint of a later epoch will
        // succeed.
        return Err(StorageError::Io {
            operation: "write a checkpoint into",
            path,
            message: "an earlier attempt left it; try again later".to_owned(),
        });
    }
    let written = write_tables(backend, &path, tables, source, options);
    match written {
        Ok(files) => Ok(Checkpoint { epoch, files }),
        Err(error) => {
            // Others may be waiting for the space that it takes. The next attempt or the next
            // opening removes what cannot be removed now.
            let _ = directory::remove_checkpoint(backend, &path);
            Err(error)
        }
    }
}

fn write_tables(
    backend: &dyn Backend,
    path: &Path,
    tables: &[u32],
    source: &dyn CheckpointSource,
    options: &CheckpointOptions<'_>,
) -> Result<Vec<CheckpointFile>, StorageError> {
    directory::create_directory(backend, path)?;
    let parts = options.threads.max(1);
    let progress = Mutex::new(CheckpointProgress::default());
    let report = |rows, bytes| {
        let Some(call) = options.progress else { return };
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.rows += rows;
        progress.bytes += bytes;
        call(*progress);
    };
    let files = parallel::run(options.threads, tables.len() * parts, |job| {
        let (table, part) = (tables[job / parts], (job % parts) as u32);
        let mut writer = RowsWriter::create(backend, path, source.epoch(), table, part, &report)?;
        source.rows(table, part, parts as u32, &mut |row| writer.push(row))?;
        writer.finish()
    })?;
    directory::sync(backend, path)?;
    Ok(files)
}

/// Writes one file of a checkpoint.
struct RowsWriter<'a> {
    file: Box<dyn File>,
    path: PathBuf,
    header: FrameHeader,
    table: u32,
    /// The frame that is being filled.
    buffer: Vec<u8>,
    rows: u64,
    rows_reported: u64,
    report: &'a (dyn Fn(u64, u64) + Sync),
}

impl<'a> RowsWriter<'a> {
    fn create(
        backend: &dyn Backend,
        directory: &Path,
        epoch: u64,
        table: u32,
        part: u32,
        report: &'a (dyn Fn(u64, u64) + Sync),
    ) -> Result<RowsWriter<'a>, StorageError> {
        let path = directory::rows_path(directory, table, part);
        let file =
            backend.create_new(&path).map_err(|error| StorageError::io("create", &path, &error))?;
        let header = FrameHeader { logger: part, epoch, ..FrameHeader::new(FrameKind::Rows, 0) };
        let mut buffer = Vec::new();
        begin_frame(&mut buffer);
        Ok(RowsWriter { file, path, header, table, buffer, rows: 0, rows_reported: 0, report })
    }

    fn push(&mut self, row: &[u8]) -> Result<(), StorageError> {
        if self.buffer.len() > HEADER_BYTES && self.buffer.len() + row.len() > FRAME_BYTES {
            self.write_frame()?;
        }
        push_number(&mut self.buffer, row.len() as u64);
        self.buffer.extend_from_slice(row);
        self.rows += 1;
        Ok(())
    }

    fn write_frame(&mut self) -> Result<(), StorageError> {
        end_frame(&mut self.buffer, 0, &self.header);
        self.file
            .write_at(&self.buffer, self.header.position)
            .map_err(|error| StorageError::io("write", &self.path, &error))?;
        self.header.position += self.buffer.len() as u64;
        self.header.number += 1;
        (self.report)(self.rows - self.rows_reported, self.buffer.len() as u64);
        self.rows_reported = self.rows;
        self.buffer.clear();
        begin_frame(&mut self.buffer);
        Ok(())
    }

    fn finish(mut self) -> Result<CheckpointFile, StorageError> {
        if self.buffer.len() > HEADER_BYTES {
            self.write_frame()?;
        }
        self.header.closes_epoch = true;
        for number in [self.table.into(), self.header.logger.into(), self.rows] {
            push_number(&mut self.buffer, number);
        }
        self.write_frame()?;
        self.file.sync().map_err(|error| StorageError::sync(&self.path, &error))?;
        let (table, part) = (self.table, self.header.logger);
        Ok(CheckpointFile { table, part, rows: self.rows, length_bytes: self.header.position })
    }
}

/// Reads a file of a checkpoint and passes each row to `visit`, with the path of the file and the
/// position of the row's frame.
pub(super) fn read_file(
    backend: &dyn Backend,
    directory: &Path,
    epoch: u64,
    expected: &CheckpointFile,
    mut visit: impl FnMut(&[u8], &Path, u64) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let path = rows_path(directory, epoch, expected);
    if !directory::exists(backend, &path)? {
        return Err(StorageError::damaged(&path, 0, "the file is missing"));
    }
    let file = directory::open_read_only(backend, &path)?;
    let mut reader = FrameReader::new(&*file, &path)?;
    let damaged = |offset, what: String| Err(StorageError::damaged(&path, offset, what));
    if reader.length() != expected.length_bytes {
        let (length, expected) = (reader.length(), expected.length_bytes);
        let what = format!("the file has {length} bytes, and had {expected} when it was complete");
        return damaged(length.min(expected), what);
    }
    let (mut rows, mut number) = (0_u64, 0);
    loop {
        let offset = reader.position();
        let frame = match reader.next()? {
            Next::Frame(frame) => frame,
            Next::End => return damaged(offset, "the file ends before its last frame".to_owned()),
            Next::Damage(damage) => return damaged(damage.offset, damage.what),
        };
        let header = frame.header;
        let belongs = header.kind == FrameKind::Rows
            && (header.epoch, header.logger, header.number) == (epoch, expected.part, number);
        if !belongs {
            return damaged(offset, "a frame that belongs into another file".to_owned());
        }
        number += 1;
        let rest = &mut &frame.payload[..];
        if header.closes_epoch {
            let found = [take_number(rest), take_number(rest), take_number(rest)];
            let named = [expected.table.into(), expected.part.into(), expected.rows].map(Some);
            if found != named || rows != expected.rows {
                return damaged(
                    offset,
                    format!(
                        "part {} of table {} with {} rows should end here, and it is another file, \
                         or has {rows} rows",
                        expected.part, expected.table, expected.rows
                    ),
                );
            }
            let end = reader.position();
            return match reader.next()? {
                Next::End => Ok(()),
                _ => damaged(end, "more bytes follow".to_owned()),
            };
        }
        while !rest.is_empty() {
            let length = take_number(rest).and_then(|length| usize::try_from(length).ok());
            let Some(row) = length.and_then(|length| rest.split_off(..length)) else {
                return damaged(offset, "the frame's last row is incomplete".to_owned());
            };
            visit(row, &path, offset)?;
            rows += 1;
        }
    }
}

/// Returns the path of a file of the checkpoint of `epoch`.
pub(super) fn rows_path(directory: &Path, epoch: u64, file: &CheckpointFile) -> PathBuf {
    let checkpoint = directory::checkpoint_directory(directory, epoch);
    directory::rows_path(&checkpoint, file.table, file.part)
}

/// Removes from the manifest the segments that recovery no longer needs, now that the manifest has
/// its checkpoint.
fn forget_segments(
    backend: &dyn Backend,
    directory: &Path,
    manifest: &mut Manifest,
) -> Result<(), StorageError> {
    let Some(epoch) = manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.epoch) else {
        return Ok(());
    };
    let listing = segments::list(backend, directory, manifest)?;
    for (segments, found) in manifest.segments.iter_mut().zip(&listing.loggers) {
        let mut needed_from = segments.needed_from;
        if epoch >= manifest.recovered_epoch {
            // The checkpoint contains what earlier runs wrote.
            needed_from = segments.run_from;
        }
        // The newest segment whose first group follows an epoch in the checkpoint is the first one
        // that is needed.
        for segment in found.iter().rev() {
            let follows = segments::first_header(backend, segment)?
                .is_some_and(|first| first.previous_epoch <= epoch);
            if follows {
                needed_from = needed_from.max(segment.sequence);
                break;
            }
        }
        let forgotten = (needed_from - segments.needed_from) as usize;
        segments.sealed.drain(..forgotten.min(segments.sealed.len()));
        segments.needed_from = needed_from;
    }
    Ok(())
}

/// Removes what the manifest does not name: other checkpoints, and segments that are not needed, in
/// the order in which they were written. The newest of these segments stay, up to `keep_log_bytes` in all.
pub(super) fn remove_needless(
    backend: &dyn Backend,
    directory: &Path,
    manifest: &Manifest,
    keep_log_bytes: u64,
) -> Result<(), StorageError> {
    let current = manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.epoch);
    directory::remove_other_checkpoints(backend, directory, current)?;
    let mut leftovers = segments::list(backend, directory, manifest)?.leftovers;
    leftovers.sort_by_key(|path| segments::sequence_of(path));
    let (mut kept, mut bytes) = (0, 0);
    if keep_log_bytes > 0 {
        for path in leftovers.iter().rev() {
            bytes += segments::length_of(backend, path)?;
            if bytes > keep_log_bytes {
                break;
            }
            kept += 1;
        }
    }
    for path in &leftovers[..leftovers.len() - kept] {
        backend.remove(path).map_err(|error| StorageError::io("remove", path, &error))?;
    }
    Ok(())
}
