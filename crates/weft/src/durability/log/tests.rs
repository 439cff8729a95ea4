//! Tests of the log: it writes what was appended, and acknowledges no more than is true.
//!
//! `basics`: what is written when nothing goes wrong. `crashes`: the power goes off at every change
//! of the disk. `faults`: failed syncs, full disks and panics. `threads`: many workers at the same
//! time.

mod basics;
mod crashes;
mod faults;
mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use weft_htm::word::{Ordering, Word};

use super::{Epochs, Log, LogOptions};
use crate::durability::backend::Backend;
use crate::durability::format::{
    Entries, FrameHeader, FrameReader, LogEntry, LogWrite, Next, WriteKind, parse_segment_name,
    push_transaction, push_write,
};
use crate::durability::simulated_disk::SimulatedDisk;
use crate::error::StorageError;

const DIRECTORY: &str = "/log";

/// A clock for one thread: no transaction is ever under way when an epoch is closed.
struct Clock(Word);

impl Clock {
    fn starting_at(epoch: u64) -> Arc<Clock> {
        Arc::new(Clock(Word::new(epoch)))
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Epochs for Clock {
    fn close_epoch(&self) -> Option<u64> {
        Some(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// Options so small that everything happens often.
fn small(loggers: usize) -> LogOptions {
    LogOptions {
        loggers,
        segment_bytes: 700,
        frame_bytes: 150,
        manual: true,
        ..LogOptions::default()
    }
}

fn start(
    disk: &SimulatedDisk,
    options: LogOptions,
    epochs: Arc<dyn Epochs>,
    first_epoch: u64,
    sequences: &[u64],
) -> Result<Log, StorageError> {
    let backend = Arc::new(disk.clone());
    Log::start(backend, Path::new(DIRECTORY), options, 8, epochs, first_epoch, sequences)
}

/// Appends a transaction that puts a row, and deletes the key with the same bytes.
fn append_row(log: &Log, slot: usize, epoch: u64, row: &[u8]) {
    log.append(slot, epoch, |buffer| {
        push_transaction(buffer);
        push_write(buffer, WriteKind::Put, 1, 3, |buffer| buffer.extend_from_slice(row));
        push_write(buffer, WriteKind::Delete, 4, 6, |buffer| buffer.extend_from_slice(row));
    });
}

/// The rows that were put, by epoch.
type Rows = BTreeMap<u64, BTreeSet<Vec<u8>>>;

/// What a log holds.
#[derive(Debug)]
struct LogContents {
    /// The last epoch that all loggers have closed.
    epoch: u64,
    /// The rows of all epochs up to that one.
    rows: Rows,
    headers: Vec<FrameHeader>,
    /// The greatest sequence number of a segment, by logger.
    sequences: Vec<u64>,
}

/// Reads a log as recovery does, and checks that it follows the format. Epochs up to `base_epoch`
/// need not be in the log. The error says what is damaged.
fn find(disk: &SimulatedDisk, loggers: usize, base_epoch: u64) -> Result<LogContents, String> {
    let mut segments: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); loggers];
    let names = disk.list(Path::new(DIRECTORY)).unwrap_or_default();
    for name in names {
        let (logger, sequence) = parse_segment_name(&name).expect("only segments");
        segments[logger as usize].insert(sequence);
    }
    let mut headers = Vec::new();
    let mut rows = Rows::new();
    let mut closed = vec![base_epoch; loggers];
    for (logger, sequences) in segments.iter().enumerate() {
        let mut previous = None;
        let last = sequences.last().copied().unwrap_or(0);
        for (sequence, index) in sequences.iter().copied().zip(0..) {
            if sequence != sequences.first().unwrap() + index {
                return Err(format!("logger {logger} has no segment before {sequence}"));
            }
            let path = Path::new(DIRECTORY)
                .join(super::super::format::segment_name(logger as u32, sequence));
            let file = disk.open_read_only(&path).unwrap();
            let mut reader = FrameReader::new(&*file, &path).unwrap();
            loop {
                let frame = match reader.next().map_err(|error| error.to_string())? {
                    Next::Frame(frame) => frame,
                    Next::End => break,
                    Next::Damage(damage) if damage.torn && sequence == last => break,
                    Next::Damage(damage) => return Err(format!("{path:?}: {damage:?}")),
                };
                let header = frame.header;
                assert_eq!(header.logger, logger as u32);
                if let Some(previous) = previous.replace(header) {
                    follows(&previous, &header);
                } else {
                    assert_eq!(header.number, 0, "a segment begins with a group");
                }
                for entry in Entries::new(frame.payload) {
                    if let LogEntry::Write(LogWrite { kind: WriteKind::Put, bytes, .. }) =
                        entry.unwrap()
                    {
                        let fresh = rows.entry(header.epoch).or_default().insert(bytes.to_vec());
                        assert!(fresh, "{bytes:?} is there twice");
                    }
                }
                if header.closes_epoch {
                    closed[logger] = closed[logger].max(header.epoch);
                }
                headers.push(header);
            }
        }
    }
    let epoch = closed.iter().copied().min().unwrap();
    let durable = headers.iter().map(|header| header.durable_epoch).max().unwrap_or(0);
    if epoch < durable {
        return Err(format!("epoch {durable} was durable, and {epoch} is left"));
    }
    rows.retain(|found, _| *found <= epoch && *found > base_epoch);
    let sequences = segments.iter().map(|all| all.last().copied().unwrap_or(0)).collect();
    Ok(LogContents { epoch, rows, headers, sequences })
}

/// Checks two consecutive frames of a logger.
fn follows(first: &FrameHeader, second: &FrameHeader) {
    if first.closes_epoch {
        assert_eq!(second.number, 0, "a group begins behind the last frame of another");
        assert_eq!(second.previous_epoch, first.epoch);
        assert!(second.epoch > first.epoch);
    } else {
        assert_eq!(second.number, first.number + 1);
        assert_eq!(second.epoch, first.epoch, "a group is not interrupted");
        assert_eq!(second.previous_epoch, first.previous_epoch);
        assert_eq!(second.synced, first.synced);
    }
    assert!(second.durable_epoch >= first.durable_epoch);
    assert!(second.durable_epoch <= second.previous_epoch);
}
