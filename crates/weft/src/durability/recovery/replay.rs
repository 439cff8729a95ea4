//! The replay of the log: applies its entries to the rows, epoch by epoch.
//!
//! The epochs are taken in *rounds* of some megabytes. In each round
//!
//! 1. threads read frames, and sort each frame's entries into groups by the shard of their key;
//! 2. threads take one group each, put the entries of all frames in order, and apply them.
//!
//! A key belongs to one shard, by a hash of its encoding, so a single thread sees all of its
//! entries. Their order is that of epochs, and within an epoch that of versions. It does not matter
//! which logger has written them.

use std::sync::{PoisonError, RwLock};

use super::super::backend::Backend;
use super::super::directory;
use super::super::format::{Entries, FrameReader, LogEntry, LogWrite, Next, WriteKind};
use super::super::parallel;
use super::super::segments::{FramePlace, LoggerLog, Segment};
use super::schema::Targets;
use super::{Phase, RecoveryOptions};
use crate::error::StorageError;

/// How many bytes of the log a round takes at least, unless the log ends. In tests this is small,
/// so that there are several rounds.
const ROUND_BYTES: u64 = if cfg!(test) { 700 } else { 32 << 20 };

/// How many bytes of one segment are read as one job, unless a frame is larger.
const PIECE_BYTES: u64 = if cfg!(test) { 300 } else { 2 << 20 };

/// How much was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplayCounts {
    pub transactions: u64,
    pub entries: u64,
    /// The greatest time, in milliseconds since 1970.
    pub time: u64,
}

/// A frame to replay, and its place.
struct Source<'a> {
    segment: &'a Segment,
    frame: &'a FramePlace,
}

/// Frames of one segment that one thread reads together, with the writes in them.
#[derive(Default)]
struct Piece {
    /// The payloads.
    bytes: Vec<u8>,
    /// The writes in them, by group.
    groups: Vec<Vec<Write>>,
}

/// A write of a row.
struct Write {
    epoch: u64,
    version: u64,
    /// The place of the row, the key or the change in the piece's bytes.
    start: usize,
    length: usize,
    table: u32,
    kind: WriteKind,
    /// The position of its frame, for errors.
    frame: u64,
}

/// Replays the epochs after `after`, up to `last`.
pub(super) fn replay(
    backend: &dyn Backend,
    logs: &[LoggerLog],
    after: u64,
    last: u64,
    targets: &Targets,
    options: &RecoveryOptions<'_>,
) -> Result<ReplayCounts, StorageError> {
    let mut sources: Vec<Source<'_>> = logs
        .iter()
        .flat_map(|log| log.segments.iter().zip(&log.scans))
        .flat_map(|(segment, scan)| scan.frames.iter().map(move |frame| Source { segment, frame }))
        .filter(|source| source.frame.header.epoch > after && source.frame.header.epoch <= last)
        .filter(|source| source.frame.payload_bytes > 0)
        .collect();
    // The sort is stable, so a logger's frames keep their order.
    sources.sort_by_key(|source| source.frame.header.epoch);
    let total = sources.iter().map(|source| source.frame.payload_bytes).sum();

    let groups = if options.threads <= 1 { 1 } else { options.threads * 4 };
    let mut replayed = ReplayCounts::default();
    let mut pieces: Vec<RwLock<Piece>> = Vec::new();
    let (mut rest, mut done) = (&sources[..], 0);
    while !rest.is_empty() {
        let (round, behind) = rest.split_at(round_length(rest));
        rest = behind;
        done += round.iter().map(|source| source.frame.payload_bytes).sum::<u64>();
        // Step 1: read the frames, those of each segment together, and sort the entries into
        // groups.
        let mut in_files: Vec<&Source<'_>> = round.iter().collect();
        in_files.sort_by_key(|source| {
            (source.segment.logger, source.segment.sequence, source.frame.header.position)
        });
        let jobs = divide(&in_files);
        while pieces.len() < jobs.len() {
            pieces.push(RwLock::default());
        }
        let counts = parallel::run(options.threads, jobs.len(), |job| {
            let mut piece = pieces[job].write().unwrap_or_else(PoisonError::into_inner);
            read_piece(backend, jobs[job], groups, targets, &mut piece)
        })?;
        for counts in counts {
            replayed.transactions += counts.transactions;
            replayed.time = replayed.time.max(counts.time);
        }
        let used: Vec<_> = pieces[..jobs.len()]
            .iter()
            .map(|piece| piece.read().unwrap_or_else(PoisonError::into_inner))
            .collect();
        // Step 2: apply the groups.
        let used: Vec<(&Piece, &Segment)> =
            used.iter().zip(&jobs).map(|(piece, job)| (&**piece, job[0].segment)).collect();
        let counts =
            parallel::run(options.threads, groups, |group| apply_group(&used, group, targets))?;
        replayed.entries += counts.iter().sum::<u64>();
        options.report(Phase::Replay, done, total)?;
    }
    Ok(replayed)
}

/// Returns how many of `sources` the next round takes: whole epochs.
fn round_length(sources: &[Source<'_>]) -> usize {
    let mut bytes = 0;
    for (position, source) in sources.iter().enumerate() {
        let begins_epoch =
            position > 0 && sources[position - 1].frame.header.epoch != source.frame.header.epoch;
        if begins_epoch && bytes >= ROUND_BYTES {
            return position;
        }
        bytes += source.frame.payload_bytes;
    }
    sources.len()
}

/// Divides the frames of a round, sorted by their place, into pieces of one segment each.
fn divide<'s, 'a>(sources: &'s [&'s Source<'a>]) -> Vec<&'s [&'s Source<'a>]> {
    let mut bytes = 0;
    let together = |before: &&Source<'_>, source: &&Source<'_>| {
        bytes += before.frame.payload_bytes;
        let same = std::ptr::eq(before.segment, source.segment) && bytes < PIECE_BYTES;
        if !same {
            bytes = 0;
        }
        same
    };
    sources.chunk_by(together).collect()
}

/// Reads the frames of a piece and sorts their entries into groups. Returns how many transactions
/// there are, and the greatest time.
fn read_piece(
    backend: &dyn Backend,
    sources: &[&Source<'_>],
    groups: usize,
    targets: &Targets,
    piece: &mut Piece,
) -> Result<ReplayCounts, StorageError> {
    let path = &sources[0].segment.path;
    piece.bytes.clear();
    piece.groups.resize_with(groups, Vec::new);
    piece.groups.iter_mut().for_each(Vec::clear);
    let mut counts = ReplayCounts::default();
    let file = directory::open_read_only(backend, path)?;
    let mut reader = FrameReader::new(&*file, path)?;
    for source in sources {
        let header = source.frame.header;
        if reader.position() != header.position {
            reader.seek(header.position);
        }
        let payload = match reader.next()? {
            Next::Frame(frame) => frame.payload,
            // The frame was valid when the log was scanned.
            Next::End => return Err(StorageError::damaged(path, header.position, "the file ends")),
            Next::Damage(damage) => {
                return Err(StorageError::damaged(path, damage.offset, damage.what));
            }
        };
        let base = piece.bytes.len();
        piece.bytes.extend_from_slice(payload);
        for entry in Entries::new(payload) {
            let entry = entry.map_err(|error| {
                StorageError::damaged(path, header.position, format_args!("an entry: {error}"))
            })?;
            let write = match entry {
                LogEntry::Transaction => {
                    counts.transactions += 1;
                    continue;
                }
                LogEntry::Time(time) => {
                    counts.time = counts.time.max(time);
                    continue;
                }
                LogEntry::Write(write) => write,
            };
            let LogWrite { kind, table, version, bytes } = write;
            let shard = targets.shard(&write).map_err(|fault| fault.at(path, header.position))?;
            // The entry's bytes are a part of the payload.
            let start = base + (bytes.as_ptr().addr() - payload.as_ptr().addr());
            piece.groups[usize::from(shard) % groups].push(Write {
                epoch: header.epoch,
                version,
                start,
                length: bytes.len(),
                table,
                kind,
                frame: header.position,
            });
        }
    }
    Ok(counts)
}

/// Applies a group's entries of all pieces. Returns how many entries it has applied.
fn apply_group(
    pieces: &[(&Piece, &Segment)],
    group: usize,
    targets: &Targets,
) -> Result<u64, StorageError> {
    let mut order: Vec<(u64, u64, u32, u32)> = Vec::new();
    for (number, (piece, _)) in pieces.iter().enumerate() {
        for (position, write) in piece.groups[group].iter().enumerate() {
            order.push((write.epoch, write.version, number as u32, position as u32));
        }
    }
    order.sort_unstable();
    let mut buffer = Vec::new();
    for &(_, _, number, position) in &order {
        let (piece, segment) = pieces[number as usize];
        let write = &piece.groups[group][position as usize];
        let bytes = &piece.bytes[write.start..write.start + write.length];
        let applied = match write.kind {
            WriteKind::Put => targets.put_logged(write.table, bytes, &mut buffer),
            WriteKind::Delete => targets.delete(write.table, bytes),
            kind @ (WriteKind::Change | WriteKind::Operation) => {
                targets.change(kind, write.table, bytes)
            }
        };
        applied.map_err(|fault| fault.at(&segment.path, write.frame))?;
    }
    Ok(order.len() as u64)
}
