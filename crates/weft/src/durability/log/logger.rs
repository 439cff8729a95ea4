//! A logger, which writes its groups into segments and syncs them.
//!
//! When a file grows, its sync has to record the new length, and where the new bytes lie. On ext4 this takes half as long again as
//! the sync of bytes that are written over others. So a logger fills the space of the next groups with zeros, some hundred KiB
//! at a time, which the next sync syncs along with its group. Groups that are large in comparison to this are written without it.
//! When a segment is left, the zeros that it still has are cut off. After a crash they stay, and readers of the log leave them
//! out: see [`segments`](super::super::segments).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use weft_htm::blocking::Mutex;

use super::super::backend::File;
use super::super::format::{
    Entries, FrameHeader, FrameKind, HEADER_BYTES, begin_frame, end_frame, segment_name,
};
use super::buffer::Chunk;
use super::{LogCore, lock};
use crate::error::StorageError;

/// What a logger has to write for an epoch.
#[derive(Debug, Default)]
pub struct Group {
    pub epoch: u64,
    /// The last epoch with groups that is durable.
    pub durable_epoch: u64,
    /// The chunks, each with the slot to which it returns.
    pub chunks: Vec<(usize, Chunk)>,
}

/// The existing segments of a logger, in order.
#[derive(Debug, Default)]
pub struct Segments(Mutex<Vec<Segment>>);

#[derive(Debug)]
pub struct Segment {
    pub logger: u32,
    pub sequence: u64,
    pub path: PathBuf,
    /// The segment holds nothing after this epoch.
    pub last_epoch: u64,
    pub bytes: u64,
    /// Whether it is being written.
    pub is_open: bool,
}

impl Segments {
    pub fn push(&self, segment: Segment) {
        lock(&self.0).push(segment);
    }

    /// Returns the path of the first segment, if it is not being written and the condition holds.
    pub fn first_if(&self, condition: impl Fn(&Segment) -> bool) -> Option<PathBuf> {
        let segments = lock(&self.0);
        let first = segments.first().filter(|first| !first.is_open && condition(first))?;
        Some(first.path.clone())
    }

    /// Returns the number of the segment that is being written, and its length in bytes.
    pub fn open(&self) -> Option<(u64, u64)> {
        let segments = lock(&self.0);
        let last = segments.last().filter(|last| last.is_open)?;
        Some((last.sequence, last.bytes))
    }

    pub fn forget(&self, path: &PathBuf) {
        lock(&self.0).retain(|segment| segment.path != *path);
    }

    /// Returns how many segments there are, and their bytes.
    pub fn size(&self) -> (usize, u64) {
        let segments = lock(&self.0);
        (segments.len(), segments.iter().map(|segment| segment.bytes).sum())
    }
}

/// The segment that is being written.
struct OpenSegment {
    file: Box<dyn File>,
    path: PathBuf,
    length: u64,
    synced: u64,
    /// Up to where the file is filled with zeros, if that is beyond its length in frames.
    reserved: u64,
    /// Whether zeros are written at all. Not after that has failed.
    reserves: bool,
}

/// A group is written into zeros if it takes at most one part in so many of those that are written at a time.
const GROUPS_PER_RESERVE_MIN: u64 = 8;

pub struct Logger {
    shared: Arc<LogCore>,
    index: u32,
    /// The sequence number of the next segment.
    sequence: u64,
    open: Option<OpenSegment>,
    /// The last epoch that was closed.
    previous_epoch: u64,
    /// The frame that is being built.
    frame: Vec<u8>,
}

impl Logger {
    pub fn new(shared: Arc<LogCore>, index: u32, sequence: u64) -> Logger {
        let previous_epoch = shared.first_epoch - 1;
        Logger { shared, index, sequence, open: None, previous_epoch, frame: Vec::new() }
    }

    /// Writes and syncs a group. After [`StorageError::DiskFull`], everything is as if this had not
    /// been tried.
    pub fn write(&mut self, group: &Group) -> Result<(), StorageError> {
        self.open_segment()?;
        self.reserve(group);
        self.write_frames(group)?;
        self.sync()
    }

    /// Fills the space of a group, and of those after it, with zeros. If that fails, the group is written all the same, so this
    /// is no error.
    fn reserve(&mut self, group: &Group) {
        let open = self.open.as_mut().expect("a segment was opened");
        let payload: usize = group.chunks.iter().map(|(_, chunk)| chunk.bytes.len()).sum();
        let needed = (payload + HEADER_BYTES) as u64;
        let options = &self.shared.options;
        let bytes = options.reserve_bytes.min(options.segment_bytes);
        let is_small = needed.saturating_mul(GROUPS_PER_RESERVE_MIN) <= bytes;
        if !open.reserves || !is_small || open.length + needed <= open.reserved {
            return;
        }
        let from = open.reserved.max(open.length);
        match open.file.reserve(from, bytes) {
            Ok(true) => open.reserved = from + bytes,
            Ok(false) => open.reserves = false,
            Err(_) => {
                open.reserves = false;
                // The disk may be full of zeros now. If they cannot be cut off here, they are when the segment is left.
                open.reserved = match open.file.truncate(from) {
                    Ok(()) => from,
                    Err(_) => from + bytes,
                };
            }
        }
    }

    /// Closes an idle epoch with a note, which the next sync syncs. The note is left out if there
    /// is no space for it.
    pub fn note(&mut self, epoch: u64, durable_epoch: u64) -> Result<(), StorageError> {
        if self.open.is_none() {
            return Ok(());
        }
        match self.write_frames(&Group { epoch, durable_epoch, chunks: Vec::new() }) {
            Err(StorageError::DiskFull { .. }) => Ok(()),
            result => result,
        }
    }

    /// Syncs what was written but not synced, when nothing more is written to the segment.
    pub fn end_segment(&mut self) -> Result<(), StorageError> {
        if let Some(open) = &mut self.open
            && open.length < open.reserved
        {
            let cut = open.file.truncate(open.length);
            cut.map_err(|error| StorageError::io("cut", &open.path, &error))?;
            open.reserved = open.length;
            return self.sync_open();
        }
        self.sync()
    }

    /// Syncs what was written but not synced.
    fn sync(&mut self) -> Result<(), StorageError> {
        match &self.open {
            Some(open) if open.synced < open.length => self.sync_open(),
            _ => Ok(()),
        }
    }

    fn sync_open(&mut self) -> Result<(), StorageError> {
        let open = self.open.as_mut().expect("there is something to sync");
        let start = Instant::now();
        open.file.sync().map_err(|error| StorageError::sync(&open.path, &error))?;
        let time = start.elapsed();
        open.synced = open.length;
        let mut totals = lock(&self.shared.totals);
        totals.syncs += 1;
        totals.sync_time += time;
        totals.sync_time_max = totals.sync_time_max.max(time);
        Ok(())
    }

    /// Makes sure that there is a segment to write a group to.
    fn open_segment(&mut self) -> Result<(), StorageError> {
        if self.open.as_ref().is_some_and(|open| open.length < self.shared.options.segment_bytes) {
            return Ok(());
        }
        // Sync a note at the end of the segment. Otherwise it could be torn in a segment in which
        // no torn tail is expected.
        self.end_segment()?;
        let shared = &*self.shared;
        let path = shared.directory.join(segment_name(self.index, self.sequence));
        let file = shared.backend.create_new(&path);
        let file = file.map_err(|error| StorageError::io("create", &path, &error))?;
        // The segment's name must be durable before anything in it counts as durable.
        let synced = shared.backend.sync_directory(&shared.directory);
        synced.map_err(|error| StorageError::sync(&shared.directory, &error))?;
        let segments = &shared.segments[self.index as usize].0;
        let mut segments = lock(segments);
        if let Some(left) = segments.last_mut() {
            left.is_open = false;
        }
        if shared.backend.drops_segments() {
            // The new segment has taken the place of others.
            segments.retain(|segment| shared.backend.exists(&segment.path).unwrap_or(true));
        }
        segments.push(Segment {
            logger: self.index,
            sequence: self.sequence,
            path: path.clone(),
            last_epoch: self.previous_epoch,
            bytes: 0,
            is_open: true,
        });
        drop(segments);
        self.sequence += 1;
        self.open =
            Some(OpenSegment { file, path, length: 0, synced: 0, reserved: 0, reserves: true });
        Ok(())
    }

    /// Writes a group's frames. If there is no space for them, cuts them off again.
    fn write_frames(&mut self, group: &Group) -> Result<(), StorageError> {
        let open = self.open.as_mut().expect("a segment was opened");
        let (start, synced) = (open.length, open.synced);
        let mut frames = Frames {
            open,
            header: FrameHeader {
                logger: self.index,
                epoch: group.epoch,
                previous_epoch: self.previous_epoch,
                durable_epoch: group.durable_epoch,
                synced,
                ..FrameHeader::new(FrameKind::Log, start)
            },
            frame: &mut self.frame,
            payload_bytes: self.shared.options.frame_bytes,
        };
        let written = frames.write(&group.chunks);
        if let Err(error) = written {
            if matches!(error, StorageError::DiskFull { .. }) {
                let cut = open.file.truncate(start);
                cut.map_err(|error| StorageError::io("cut", &open.path, &error))?;
                (open.length, open.reserved) = (start, start);
            }
            return Err(error);
        }
        let bytes = open.length - start;
        self.previous_epoch = group.epoch;
        let mut segments = lock(&self.shared.segments[self.index as usize].0);
        let segment = segments.last_mut().expect("the open segment is listed");
        segment.last_epoch = group.epoch;
        segment.bytes += bytes;
        drop(segments);
        let mut totals = lock(&self.shared.totals);
        totals.bytes_written += bytes;
        Ok(())
    }
}

/// The frames of a group on their way into a segment.
struct Frames<'a> {
    open: &'a mut OpenSegment,
    /// The header of the next frame.
    header: FrameHeader,
    frame: &'a mut Vec<u8>,
    payload_bytes: usize,
}

impl Frames<'_> {
    fn write(&mut self, chunks: &[(usize, Chunk)]) -> Result<(), StorageError> {
        self.frame.clear();
        let mut start = begin_frame(self.frame);
        let header_bytes = self.frame.len();
        for (_, chunk) in chunks {
            for piece in pieces(&chunk.bytes, self.payload_bytes) {
                let payload_bytes = self.frame.len() - header_bytes;
                if payload_bytes > 0 && payload_bytes + piece.len() > self.payload_bytes {
                    self.end(start, false)?;
                    start = begin_frame(self.frame);
                }
                self.frame.extend_from_slice(piece);
            }
        }
        self.end(start, true)
    }

    fn end(&mut self, start: usize, closes_epoch: bool) -> Result<(), StorageError> {
        self.header.closes_epoch = closes_epoch;
        end_frame(self.frame, start, &self.header);
        let open = &mut *self.open;
        open.file
            .write_at(self.frame, open.length)
            .map_err(|error| StorageError::io("write", &open.path, &error))?;
        open.length += self.frame.len() as u64;
        self.header.position = open.length;
        self.header.number += 1;
        self.frame.clear();
        Ok(())
    }
}

/// Divides entries into pieces of whole entries. A piece has at most `bytes_max` bytes, unless a
/// single entry is longer.
fn pieces(entries: &[u8], bytes_max: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len();
        if end > bytes_max {
            let mut scan = Entries::new(rest);
            end = 0;
            while scan.next().is_some() && (end == 0 || scan.offset() <= bytes_max) {
                end = scan.offset();
            }
        }
        let (piece, behind) = rest.split_at(end);
        rest = behind;
        Some(piece)
    })
}
