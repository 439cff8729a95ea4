//! Reads the log's files, epoch by epoch, while the log is written.
//!
//! Every logger has a cursor in its segments. An epoch is read when it is durable. Then each logger has written its
//! group of the epoch as a whole, so a cursor never meets a half-written frame: it reads the segment that is being
//! written only as far as the log says.
//!
//! The readers of a database share the newest epochs. The first reader that comes to an epoch after them reads it from
//! the files, and the others wait for that and take it. So a thousand readers read the files once, and a reader that has
//! nothing to read keeps no file open.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use weft::durability::format::{FrameKind, FrameReader, Next, parse_segment_name, segment_name};
use weft::durability::{File, Log, Manifest, StorageError};

use crate::error::ChangesError;
use crate::order::{Epoch, EpochError};
use crate::position::Position;
use crate::schema::Schema;

/// About how many bytes of a segment are read at a time.
const READ_BYTES: usize = 1 << 20;

/// About how many bytes of memory the epochs take that readers share.
const RECENT_BYTES: usize = 8 << 20;

/// A reader of the log.
pub struct LogReader {
    pub log: Arc<Log>,
    pub schema: Arc<Schema>,
    cursors: Vec<Cursor>,
    recent: Arc<RecentEpochs>,
}

/// The newest epochs that a reader of the log has read.
#[derive(Default)]
struct RecentEpochs(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    /// In order.
    epochs: VecDeque<RecentEpoch>,
    /// How many bytes of memory they take.
    bytes: usize,
}

impl Recent {
    /// Adds an epoch, and leaves out the oldest ones if there are too many.
    fn push(&mut self, added: RecentEpoch) {
        self.bytes += added.epoch.memory_bytes();
        self.epochs.push_back(added);
        while self.bytes > RECENT_BYTES && self.epochs.len() > 1 {
            self.bytes -= self.epochs.pop_front().map_or(0, |oldest| oldest.epoch.memory_bytes());
        }
    }
}

struct RecentEpoch {
    epoch: Arc<Epoch>,
    /// No epoch from this one to the epoch itself has anything in it.
    from: u64,
    /// Where the next groups are, by logger.
    places: Box<[Place]>,
}

/// A place in the segments of a logger: the number of the segment, and the offset in bytes. Groups of the epochs that
/// were read may follow there.
type Place = (u64, u64);

/// What one logger has written in an epoch.
struct Group {
    epoch: u64,
    entries: Vec<u8>,
    /// A place before it, with nothing in between.
    start: Place,
}

/// A place in the segments of one logger.
struct Cursor {
    logger: u32,
    sequence: u64,
    /// The first segment of this run. Earlier ones are complete.
    run_from: u64,
    /// The beginning of the next group, in bytes from the start of the segment.
    offset: u64,
    file: Option<Box<dyn File>>,
    /// The groups that were read and not yet taken.
    groups: VecDeque<Group>,
}

/// Why a cursor cannot go on.
enum Stop {
    /// The segment was removed.
    Removed,
    Storage(StorageError),
}

impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Stop {
        Stop::Storage(error)
    }
}

impl LogReader {
    /// Returns the names in the log's directory.
    pub fn list(log: &Log) -> Result<Vec<String>, ChangesError> {
        let (backend, directory) = log.place();
        let names = backend.list(directory);
        Ok(names.map_err(|error| StorageError::io("list", directory, &error))?)
    }

    /// Returns a reader of everything after `position`. `names` was [listed](LogReader::list) before the manifest was
    /// read. So all that is missing in the list is in the manifest's checkpoint.
    pub fn new(
        log: Arc<Log>,
        names: &[String],
        manifest: &Manifest,
        position: Position,
        schema: Arc<Schema>,
    ) -> Result<LogReader, ChangesError> {
        let recent = log.shared_by_followers();
        let checkpoint = manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.epoch);
        let mut reader = LogReader { log, schema, cursors: Vec::new(), recent };
        let mut oldest_left = None;
        for (logger, segments) in manifest.segments.iter().enumerate() {
            let logger = logger as u32;
            let of_logger = |name: &String| match parse_segment_name(name) {
                Some((of, sequence)) if of == logger => Some(sequence),
                _ => None,
            };
            let mut existing: Vec<u64> = names.iter().filter_map(of_logger).collect();
            existing.sort_unstable();
            let first = existing.first().copied().unwrap_or(segments.run_from);
            let run_from = segments.run_from;
            let mut cursor = Cursor::new(logger, first, run_from);
            // Begin with the last segment before which everything is known to the reader.
            let (mut oldest, mut is_known) = (checkpoint, false);
            for &sequence in existing.iter().rev() {
                cursor = Cursor::new(logger, sequence, run_from);
                match cursor.previous_epoch(&reader.log) {
                    Ok(None) => {}
                    Ok(Some(previous)) => {
                        oldest = oldest.min(previous);
                        is_known = precedes(previous, position);
                    }
                    // A new checkpoint has just removed it.
                    Err(Stop::Removed) => {
                        return Err(fell_behind(position, reader.log.durable_epoch(), false));
                    }
                    Err(Stop::Storage(error)) => return Err(error.into()),
                }
                if is_known {
                    break;
                }
            }
            // If the logger's first segment is there, nothing was ever removed. Otherwise everything after the
            // checkpoint is there.
            if !is_known && first != 1 && !precedes(oldest, position) {
                oldest_left = oldest_left.max(Some(oldest));
            }
            reader.cursors.push(cursor);
        }
        match oldest_left {
            None => Ok(reader),
            Some(oldest) => Err(fell_behind(position, oldest, false)),
        }
    }

    /// Returns the next epoch up to `durable`, or `None` if there isn't one.
    pub fn next_epoch(
        &mut self,
        durable: u64,
        position: Position,
    ) -> Result<Option<Arc<Epoch>>, ChangesError> {
        let from = position.next_epoch();
        let shared = Arc::clone(&self.recent);
        let mut recent = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cursors.iter().all(|cursor| cursor.groups.is_empty()) {
            // The last epoch that can be taken, or that leads to a place from which it can be read.
            let behind = recent.epochs.partition_point(|it| it.from <= from);
            let reached = behind.checked_sub(1).map(|last| &recent.epochs[last]);
            if let Some(RecentEpoch { epoch, places, .. }) = reached {
                let cursors = self.cursors.iter_mut().zip(places);
                cursors.for_each(|(cursor, &place)| cursor.advance_to(place));
                if epoch.number >= from {
                    return Ok(Some(Arc::clone(epoch)));
                }
            }
        }
        let is_newest = recent.epochs.back().is_none_or(|newest| newest.epoch.number < from);
        if !is_newest {
            // Others have read this, and do not wait for it.
            drop(recent);
            return Ok(self.read_epoch(durable, position)?.map(Arc::new));
        }
        let Some(epoch) = self.read_epoch(durable, position)? else { return Ok(None) };
        let epoch = Arc::new(epoch);
        let places = self.cursors.iter().map(Cursor::place).collect();
        recent.push(RecentEpoch { epoch: Arc::clone(&epoch), from, places });
        Ok(Some(epoch))
    }

    /// Reads the next epoch up to `durable` from the files.
    fn read_epoch(
        &mut self,
        durable: u64,
        position: Position,
    ) -> Result<Option<Epoch>, ChangesError> {
        for cursor in &mut self.cursors {
            if cursor.groups.is_empty() {
                cursor.read(&self.log, durable, position.next_epoch()).map_err(
                    |stop| match stop {
                        Stop::Removed => fell_behind(position, self.log.durable_epoch(), false),
                        Stop::Storage(error) => error.into(),
                    },
                )?;
            }
        }
        let first = |cursor: &Cursor| cursor.groups.front().map(|group| group.epoch);
        let Some(number) = self.cursors.iter().filter_map(first).min() else {
            // The reader may wait for long now.
            self.cursors.iter_mut().for_each(|cursor| cursor.file = None);
            return Ok(None);
        };
        let mut entries = Vec::new();
        for cursor in &mut self.cursors {
            if first(cursor) != Some(number) {
                continue;
            }
            let group = cursor.groups.pop_front().expect("it has a first group");
            match entries.is_empty() {
                true => entries = group.entries,
                false => entries.extend_from_slice(&group.entries),
            }
        }
        let epoch = Epoch::read(number, entries, Arc::clone(&self.schema));
        epoch.map(Some).map_err(|error| self.unreadable(number, error))
    }

    /// Returns the error for an epoch that cannot be read.
    pub fn unreadable(&self, epoch: u64, error: EpochError) -> ChangesError {
        error.into_changes_error(epoch, &self.schema, self.log.place().1)
    }
}

/// Returns whether all groups that a reader at `position` wants come after the end of epoch `epoch`.
fn precedes(epoch: u64, position: Position) -> bool {
    epoch < position.epoch || (epoch == position.epoch && !position.is_within_epoch())
}

/// Returns the error for a reader whose next changes are gone.
pub fn fell_behind(position: Position, oldest: u64, is_unlogged: bool) -> ChangesError {
    let oldest = Position::end_of(position.database, oldest);
    ChangesError::FellBehind { position, oldest, is_unlogged }
}

impl Cursor {
    fn new(logger: u32, sequence: u64, run_from: u64) -> Cursor {
        let groups = VecDeque::new();
        Cursor { logger, sequence, run_from, offset: 0, file: None, groups }
    }

    /// Returns the place behind the groups that were taken.
    fn place(&self) -> Place {
        self.groups.front().map_or((self.sequence, self.offset), |group| group.start)
    }

    /// Goes on to a place, unless it is there already. No group is left to be taken.
    fn advance_to(&mut self, place: Place) {
        if place > (self.sequence, self.offset) {
            if self.sequence != place.0 {
                self.file = None;
            }
            (self.sequence, self.offset) = place;
        }
    }

    fn path(&self, log: &Log) -> PathBuf {
        log.place().1.join(segment_name(self.logger, self.sequence))
    }

    fn open(&mut self, log: &Log) -> Result<&dyn File, Stop> {
        if self.file.is_none() {
            let path = self.path(log);
            let opened = log.place().0.open_read_only(&path);
            self.file = Some(opened.map_err(|error| match error.kind() {
                ErrorKind::NotFound => Stop::Removed,
                _ => Stop::Storage(StorageError::io("open", &path, &error)),
            })?);
        }
        Ok(self.file.as_deref().expect("opened"))
    }

    /// Returns how many bytes of the segment are whole frames, or `None` if it does not exist yet.
    fn length(&mut self, log: &Log) -> Result<Option<u64>, Stop> {
        let open = log.open_segment(self.logger);
        match open {
            Some((sequence, bytes)) if sequence == self.sequence => return Ok(Some(bytes)),
            Some((sequence, _)) if sequence > self.sequence => {}
            _ if self.sequence < self.run_from => {}
            _ => return Ok(None),
        }
        let length = self.open(log)?.length();
        let length = length.map_err(|error| StorageError::io("measure", &self.path(log), &error));
        Ok(Some(length?))
    }

    /// Returns the epoch that the logger had closed before the first group of the segment, or `None` if there is no
    /// group yet.
    fn previous_epoch(&mut self, log: &Log) -> Result<Option<u64>, Stop> {
        let Some(length) = self.length(log)? else { return Ok(None) };
        let path = self.path(log);
        let mut reader = FrameReader::new(self.open(log)?, &path)?;
        reader.limit(length);
        match reader.next()? {
            Next::Frame(frame) => Ok(Some(frame.header.previous_epoch)),
            Next::End => Ok(None),
            Next::Damage(damage) => {
                Err(StorageError::damaged(&path, damage.offset, damage.what).into())
            }
        }
    }

    /// Reads some groups of epochs from `first` to `durable`, if there are any.
    fn read(&mut self, log: &Log, durable: u64, first: u64) -> Result<(), Stop> {
        while self.groups.is_empty() {
            let Some(length) = self.length(log)? else { return Ok(()) };
            if self.offset < length && !self.read_segment(log, length, durable, first)? {
                return Ok(());
            }
            // The segment that is being written is not left before the log has begun the next one, and until then
            // it may have grown.
            if log.open_segment(self.logger).is_some_and(|(open, _)| open == self.sequence) {
                return Ok(());
            }
            if self.length(log)? != Some(length) {
                continue;
            }
            if self.offset < length {
                let what = "the last epoch is not complete";
                return Err(StorageError::damaged(&self.path(log), self.offset, what).into());
            }
            self.sequence += 1;
            self.offset = 0;
            self.file = None;
        }
        Ok(())
    }

    /// Reads groups of one segment, until there are enough. Returns whether it came to the segment's end.
    fn read_segment(
        &mut self,
        log: &Log,
        length: u64,
        durable: u64,
        first: u64,
    ) -> Result<bool, Stop> {
        let (path, start) = (self.path(log), self.offset);
        self.open(log)?;
        let file = self.file.as_deref().expect("opened");
        let mut reader = FrameReader::new(file, &path)?;
        reader.limit(length);
        reader.seek(start);
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while bytes < READ_BYTES {
            let frame = match reader.next()? {
                Next::Frame(frame) => frame,
                Next::End => return Ok(true),
                Next::Damage(damage) => {
                    return Err(StorageError::damaged(&path, damage.offset, damage.what).into());
                }
            };
            let header = frame.header;
            if header.kind != FrameKind::Log || header.logger != self.logger {
                let what = "a frame that belongs into another file";
                return Err(StorageError::damaged(&path, header.position, what).into());
            }
            if header.epoch > durable {
                return Ok(false);
            }
            if header.epoch >= first {
                entries.extend_from_slice(frame.payload);
            }
            if header.closes_epoch {
                let start = (self.sequence, self.offset);
                self.offset = reader.position();
                if !entries.is_empty() {
                    bytes += entries.len();
                    let entries = std::mem::take(&mut entries);
                    self.groups.push_back(Group { epoch: header.epoch, entries, start });
                }
            }
        }
        Ok(false)
    }
}
