//! Reading the log: which segments exist, whether they are complete, and how far they count.
//!
//! This takes three steps, none of which writes:
//!
//! 1. [`list`] finds the segments that recovery needs according to the manifest. A missing one is
//!    an error.
//! 2. [`scan`] reads the headers of all frames of a segment, and checks each frame's checksum,
//!    until the file ends or does not read as a frame.
//! 3. [`assess`] puts the segments of all loggers together. Each logger's groups must follow each
//!    other without a gap. The log is recovered to the last epoch that *all* loggers have closed.
//!
//! Anything after that epoch was either never acknowledged, or shows that something acknowledged is
//! lost. The frames themselves tell which: each names an epoch that was durable when the frame was
//! written. Let `D` be the greatest of these. The log is damaged if any frame proves that something
//! was written in an epoch up to `D` that is not there in all loggers.
//!
//! ```text
//!   logger 0    [5 closed] [6 closed] [7 closed]                  recovered: 6
//!   logger 1    [5 closed] [6 closed] [7, to be continu           7 is cut off both
//!
//!   logger 0    [5 closed] [6 closed] [7 closed, durable: 6]      damage: 6 was durable, and
//!   logger 1    [5 closed] 00 00 00 00                            is missing here
//! ```
//!
//! Recovery cannot find what the log does not know. The last group before a crash has no proof that
//! it was durable unless another group follows it. That may be a group of another logger, or the
//! note of an idle epoch. If the last group is damaged later, it looks torn, and is cut off. This
//! is why cuts are reported. A run that ends in an orderly way seals its segments, so it has no
//! such end.

use std::path::{Path, PathBuf};

use super::backend::{Backend, File};
use super::directory;
use super::format::{
    Damage, Frame, FrameHeader, FrameKind, FrameReader, Next, parse_segment_name, segment_name,
};
use super::manifest::Manifest;
use crate::error::StorageError;

/// A segment of the log.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub logger: u32,
    pub sequence: u64,
    pub path: PathBuf,
    /// Whether an earlier run has left it. If so, its length is the one in the manifest.
    pub sealed: bool,
    /// Whether the segment before it was removed after a checkpoint.
    pub follows_removed: bool,
    /// The length of the file. After the segment was [scanned](scan), the length of what it holds.
    pub length: u64,
    /// What follows after this position are zeros, or bytes that were written after the segment was listed. (A frame that begins
    /// before it may end after it.)
    pub filled: u64,
}

/// The segments in a directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The segments that recovery needs, by logger, in order.
    pub loggers: Vec<Vec<Segment>>,
    /// The segments that a checkpoint has made unnecessary, and that are kept, or not removed yet.
    pub leftovers: Vec<PathBuf>,
}

/// Lists the segments of the log, and checks that none is missing. If the file system drops segments whenever it needs
/// room, no segment is needed, and the list is empty.
pub(super) fn list(
    backend: &dyn Backend,
    directory: &Path,
    manifest: &Manifest,
) -> Result<Listing, StorageError> {
    let log = directory::log_directory(directory);
    let mut listing = Listing::default();
    listing.loggers.resize_with(manifest.segments.len(), Vec::new);
    if backend.drops_segments() {
        return Ok(listing);
    }
    let names = match directory::exists(backend, &log)? {
        true => directory::list(backend, &log)?,
        false => Vec::new(),
    };
    for name in names {
        let Some((logger, sequence)) = parse_segment_name(&name) else { continue };
        let path = log.join(&name);
        let Some(segments) = manifest.segments.get(logger as usize) else {
            let what = format!(
                "the database has {} loggers, and no logger {logger}",
                manifest.segments.len()
            );
            return Err(StorageError::damaged(&path, 0, what));
        };
        if sequence < segments.needed_from {
            listing.leftovers.push(path);
            continue;
        }
        let file = directory::open_read_only(backend, &path)?;
        let length = measure(&*file, &path)?;
        let sealed = segments.sealed_length(sequence);
        if let Some(sealed) = sealed.filter(|&sealed| sealed != length) {
            let what =
                format!("the file has {length} bytes, and had {sealed} when it was complete");
            return Err(StorageError::damaged(&path, length.min(sealed), what));
        }
        let follows_removed =
            sequence == segments.needed_from && segments.needed_from > segments.run_from;
        let sealed = sealed.is_some();
        let filled = if sealed { length } else { filled_length(&*file, &path, length)? };
        listing.loggers[logger as usize].push(Segment {
            logger,
            sequence,
            path,
            sealed,
            follows_removed,
            length,
            filled,
        });
    }
    for (logger, found) in listing.loggers.iter_mut().enumerate() {
        found.sort_by_key(|segment| segment.sequence);
        let expected = &manifest.segments[logger];
        let missing = (expected.needed_from..)
            .zip(found.iter())
            .find(|(sequence, segment)| segment.sequence != *sequence)
            .map(|(sequence, _)| sequence)
            .or_else(|| {
                let end = expected.needed_from + found.len() as u64;
                (found.len() < expected.sealed.len()).then_some(end)
            });
        if let Some(sequence) = missing {
            let path = log.join(segment_name(logger as u32, sequence));
            return Err(StorageError::damaged(&path, 0, "the file is missing"));
        }
    }
    Ok(listing)
}

/// Returns the sequence number of the next segment of each logger.
pub(super) fn next_sequences(listing: &Listing, manifest: &Manifest) -> Vec<u64> {
    let next = |(segments, found): (&super::manifest::LoggerSegments, &Vec<Segment>)| {
        found.last().map_or(segments.needed_from, |segment| segment.sequence + 1)
    };
    manifest.segments.iter().zip(&listing.loggers).map(next).collect()
}

/// Returns the sequence number of a segment with this path.
pub(super) fn sequence_of(path: &Path) -> u64 {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    parse_segment_name(name).map_or(0, |(_, sequence)| sequence)
}

pub(super) fn length_of(backend: &dyn Backend, path: &Path) -> Result<u64, StorageError> {
    measure(&*directory::open_read_only(backend, path)?, path)
}

fn measure(file: &dyn File, path: &Path) -> Result<u64, StorageError> {
    file.length().map_err(|error| StorageError::io("measure", path, &error))
}

/// Returns the end of the last byte of a file that is no zero.
fn filled_length(file: &dyn File, path: &Path, length: u64) -> Result<u64, StorageError> {
    let mut buffer = vec![0; length.min(64 << 10) as usize];
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(buffer.len() as u64);
        let part = &mut buffer[..(end - start) as usize];
        let read = file.read_at(part, start);
        let read = read.map_err(|error| StorageError::io("read", path, &error))?;
        if let Some(last) = part[..read].iter().rposition(|byte| *byte != 0) {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Returns the header of a segment's first frame; `None` if there is no valid one.
pub(super) fn first_header(
    backend: &dyn Backend,
    segment: &Segment,
) -> Result<Option<FrameHeader>, StorageError> {
    let path = &segment.path;
    let file = directory::open_read_only(backend, path)?;
    match FrameReader::new(&*file, path)?.next()? {
        Next::Frame(frame) => Ok(Some(frame.header)),
        Next::End | Next::Damage(_) => Ok(None),
    }
}

/// A valid frame of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePlace {
    pub header: FrameHeader,
    pub payload_bytes: u64,
}

impl FramePlace {
    /// Returns the end of the frame, in bytes from the start of the file.
    pub fn end(&self) -> u64 {
        self.header.position + super::format::HEADER_BYTES as u64 + self.payload_bytes
    }
}

/// The contents of a segment.
#[derive(Debug, Default)]
pub(super) struct SegmentScan {
    /// The valid frames, in order, up to the end or to the first place that is not a frame.
    pub frames: Vec<FramePlace>,
    /// The first place that is not a frame.
    pub damage: Option<Damage>,
    /// The length of the segment without zeros that its logger has only reserved.
    pub length: u64,
}

/// Reads the frames of a segment, up to where it was filled when it was listed, and passes each to
/// `visit`. If the database is open, the log may grow at the same time. What is appended then is
/// left out in all segments alike. Otherwise it would seem to be missing in the segments that were
/// read first.
pub(super) fn scan(
    backend: &dyn Backend,
    segment: &Segment,
    mut visit: impl FnMut(&Frame<'_>) -> Result<(), StorageError>,
) -> Result<SegmentScan, StorageError> {
    let path = &segment.path;
    let file = directory::open_read_only(backend, path)?;
    let mut reader = FrameReader::new(&*file, path)?;
    let mut scan = SegmentScan::default();
    while reader.position() < segment.filled {
        match reader.next()? {
            Next::Frame(frame) => {
                let header = frame.header;
                if header.kind != FrameKind::Log || header.logger != segment.logger {
                    let what = "a frame that belongs into another file";
                    return Err(StorageError::damaged(path, header.position, what));
                }
                visit(&frame)?;
                let payload_bytes = frame.payload.len() as u64;
                scan.frames.push(FramePlace { header, payload_bytes });
            }
            Next::End => break,
            Next::Damage(damage) => {
                scan.damage = Some(damage);
                scan.length = segment.filled;
                return Ok(scan);
            }
        }
    }
    scan.length = reader.position();
    Ok(scan)
}

/// The log of one logger, after it was read.
#[derive(Debug, Default)]
pub(super) struct LoggerLog {
    pub segments: Vec<Segment>,
    pub scans: Vec<SegmentScan>,
}

/// A part at the end of a logger's log that does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCut {
    /// The segment.
    pub path: PathBuf,
    /// Everything after this position is cut off, in bytes from the start of the file.
    pub offset: u64,
    /// How many bytes are cut off.
    pub bytes: u64,
    /// Why it does not count.
    pub what: String,
}

/// How far a log counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assessment {
    /// The log leads to the state at the end of this epoch.
    pub epoch: u64,
    /// An epoch greater than all epochs that are named anywhere in the log.
    pub next_epoch: u64,
    /// The parts that do not count; for each logger, the last segment comes first.
    pub cuts: Vec<LogCut>,
}

/// A place in the log, for messages and for cutting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LogPosition {
    segment: usize,
    offset: u64,
}

/// What the log of one logger says on its own.
#[derive(Debug)]
struct Chain {
    /// The closed groups of this run, each with its place.
    closed: Vec<(u64, LogPosition)>,
    /// Epochs that were written according to frames that do not belong to a closed group.
    epochs_seen: Vec<u64>,
    /// The place of what follows the last closed group, and what it is, if there is anything.
    rest: Option<(LogPosition, String)>,
    /// The end of what this run has written, if it has written anything.
    end: Option<LogPosition>,
}

impl Chain {
    fn has_closed(&self, epoch: u64) -> bool {
        self.closed.binary_search_by_key(&epoch, |&(epoch, _)| epoch).is_ok()
    }
}

/// The greatest epoch that is known to have been durable, and the frame that says so.
#[derive(Debug, Default)]
struct DurableEvidence {
    epoch: u64,
    path: PathBuf,
    position: u64,
}

impl DurableEvidence {
    fn learn(&mut self, header: &FrameHeader, path: &Path) {
        if header.durable_epoch > self.epoch {
            *self = DurableEvidence {
                epoch: header.durable_epoch,
                path: path.to_owned(),
                position: header.position,
            };
        }
    }
}

/// Decides how far the log counts.
///
/// # Errors
/// [`StorageError::Damaged`] if something is not as a crash may have left it.
pub(super) fn assess(manifest: &Manifest, logs: &[LoggerLog]) -> Result<Assessment, StorageError> {
    let mut durable = DurableEvidence::default();
    let mut chains = Vec::with_capacity(logs.len());
    for (logger, log) in logs.iter().enumerate() {
        let chain = follow(manifest, log, &mut durable)?;
        let writes = logger < manifest.loggers as usize;
        if !writes && (!chain.closed.is_empty() || chain.rest.is_some()) {
            let path = log.segments.last().map_or(Path::new(""), |segment| &segment.path);
            let what = format!("logger {logger} does not write in this run");
            return Err(StorageError::damaged(path, 0, what));
        }
        if writes {
            let mut chain = chain;
            // Epochs in the checkpoint need not be in the log. With several loggers, not all of
            // them need to begin with the same epoch.
            chain.closed.retain(|&(epoch, _)| epoch > manifest.base_epoch());
            chains.push(chain);
        }
    }

    // The log counts up to the last epoch that all loggers have closed. Before it, an epoch without changes may be in some of
    // the logs only: a logger leaves its note out if there is no space for it. Every other epoch is complete, because it is
    // durable before a later one is written.
    let closed_by_all = chains.split_first().and_then(|(first, others)| {
        let epochs = first.closed.iter().rev().map(|&(epoch, _)| epoch);
        let mut epochs = epochs.filter(|&epoch| others.iter().all(|chain| chain.has_closed(epoch)));
        epochs.next()
    });
    let recovered = closed_by_all.unwrap_or(0).max(manifest.base_epoch());
    // Later epochs were written, but not by all loggers. None of them may have been durable.
    let later_epochs = chains.iter().flat_map(|chain| {
        let closed = chain.closed.iter().map(|&(epoch, _)| epoch);
        closed.chain(chain.epochs_seen.iter().copied()).filter(|&epoch| epoch > recovered)
    });
    let later_epochs: Vec<u64> = later_epochs.collect();
    if let Some(&lost) = later_epochs.iter().filter(|&&epoch| epoch <= durable.epoch).min() {
        return Err(lost_epoch(lost, &durable, manifest, logs, &chains));
    }
    let epoch = recovered.max(durable.epoch);
    let next_epoch = later_epochs.iter().copied().max().unwrap_or(0).max(epoch) + 1;
    let mut cuts = Vec::new();
    for (chain, log) in chains.iter().zip(logs) {
        let dropped = chain.closed.iter().find(|&&(epoch, _)| epoch > recovered);
        let dropped = dropped
            .map(|&(epoch, place)| (place, format!("epoch {epoch} is not complete in all logs")));
        // The first part that does not count.
        if let Some((from, what)) = dropped.or_else(|| chain.rest.clone()) {
            cut(log, from, &what, &mut cuts);
        }
    }
    Ok(Assessment { epoch, next_epoch, cuts })
}

/// Follows the groups of one logger from each to the next.
fn follow(
    manifest: &Manifest,
    log: &LoggerLog,
    durable: &mut DurableEvidence,
) -> Result<Chain, StorageError> {
    let mut chain = Chain { closed: Vec::new(), epochs_seen: Vec::new(), rest: None, end: None };
    // The last closed epoch. Then the epoch, the number of frames and the place of the open group.
    let mut last = 0;
    let mut open: Option<(u64, u32, LogPosition)> = None;
    let mut begun = false;
    for (index, (segment, scan)) in log.segments.iter().zip(&log.scans).enumerate() {
        if segment.length == 0 {
            continue;
        }
        let damaged =
            |offset, what: String| Err(StorageError::damaged(&segment.path, offset, what));
        if let Some((place, what)) = chain.rest.take() {
            // A segment is synced before the next one is written, so a crash leaves no gap.
            return Err(StorageError::damaged(
                &log.segments[place.segment].path,
                place.offset,
                what,
            ));
        }
        if !segment.sealed && !begun {
            begun = true;
            if !segment.follows_removed {
                last = manifest.first_epoch - 1;
            } else if let Some(first) = scan.frames.first() {
                // What was between the checkpoint and this segment was removed. Check that it was
                // not too much.
                last = first.header.previous_epoch;
                if last > manifest.base_epoch() {
                    return damaged(0, format!("the log before this, to epoch {last}, is missing"));
                }
            }
        }
        for frame in &scan.frames {
            let header = frame.header;
            durable.learn(&header, &segment.path);
            if !segment.sealed {
                chain.end = Some(LogPosition { segment: index, offset: frame.end() });
            }
            let place = LogPosition { segment: index, offset: header.position };
            let (number, group_place) = match open {
                Some((epoch, number, place)) if epoch == header.epoch => (number, place),
                Some((epoch, ..)) => {
                    let what = format!("epoch {} begins within epoch {epoch}", header.epoch);
                    return damaged(header.position, what);
                }
                None => (0, place),
            };
            let follows = if segment.sealed {
                header.previous_epoch >= last && header.epoch <= manifest.recovered_epoch
            } else {
                header.previous_epoch == last
            };
            if !follows || header.epoch <= last || header.number != number {
                let what = format!(
                    "frame {} of epoch {} after epoch {} does not follow frame {number} after epoch {last}",
                    header.number, header.epoch, header.previous_epoch
                );
                return damaged(header.position, what);
            }
            open = (!header.closes_epoch).then_some((header.epoch, number + 1, group_place));
            if header.closes_epoch {
                last = header.epoch;
                if !segment.sealed {
                    chain.closed.push((header.epoch, group_place));
                }
            }
        }
        if let Some(damage) = &scan.damage {
            if segment.sealed || !damage.torn {
                return damaged(damage.offset, damage.what.clone());
            }
            if let Some(header) = &damage.follows {
                durable.learn(header, &segment.path);
                chain.epochs_seen.push(header.epoch);
                chain
                    .epochs_seen
                    .extend((header.previous_epoch > last).then_some(header.previous_epoch));
            }
            let place = LogPosition { segment: index, offset: damage.offset };
            chain.rest = Some((place, damage.what.clone()));
        }
        if let Some((epoch, _, place)) = open {
            let what = match &scan.damage {
                Some(damage) => format!("epoch {epoch} is not complete: {}", damage.what),
                None => format!("epoch {epoch} is not complete"),
            };
            if segment.sealed {
                return damaged(place.offset, what);
            }
            chain.epochs_seen.push(epoch);
            chain.rest = Some((place, what));
        }
    }
    Ok(chain)
}

/// Returns the error for an epoch that was durable and is missing.
fn lost_epoch(
    lost: u64,
    durable: &DurableEvidence,
    manifest: &Manifest,
    logs: &[LoggerLog],
    chains: &[Chain],
) -> StorageError {
    let lags = |chain: &&Chain| chain.closed.iter().all(|&(epoch, _)| epoch != lost);
    let logger = chains.iter().position(|chain| lags(&chain)).unwrap_or(0);
    let (log, chain) = (&logs[logger], &chains[logger]);
    let place = chain.rest.as_ref().map(|(place, _)| *place).or(chain.end);
    // If the logger has written nothing, use the place where it should have written.
    let first = log.segments.iter().position(|segment| !segment.sealed);
    let place = place.or(first.map(|segment| LogPosition { segment, offset: 0 }));
    let reason = chain.rest.as_ref().map_or(String::new(), |(_, what)| format!("{what}; "));
    let what = format!(
        "{reason}epoch {lost} is missing, though epoch {} was durable, as {} says at byte {}",
        durable.epoch,
        durable.path.display(),
        durable.position
    );
    match place {
        Some(LogPosition { segment, offset }) => {
            StorageError::damaged(&log.segments[segment].path, offset, what)
        }
        None => {
            let directory = durable.path.parent().unwrap_or(Path::new(""));
            let name = segment_name(logger as u32, manifest.segments[logger].run_from);
            let what = format!("the file is missing: {what}");
            StorageError::damaged(&directory.join(name), 0, what)
        }
    }
}

/// Adds the parts of a logger's log after `from` to `cuts`.
fn cut(log: &LoggerLog, from: LogPosition, what: &str, cuts: &mut Vec<LogCut>) {
    for (index, segment) in log.segments.iter().enumerate().skip(from.segment).rev() {
        let offset = if index == from.segment { from.offset } else { 0 };
        if offset < segment.length {
            cuts.push(LogCut {
                path: segment.path.clone(),
                offset,
                bytes: segment.length - offset,
                what: what.to_owned(),
            });
        }
    }
}
