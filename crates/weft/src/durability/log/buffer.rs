//! The buffers between workers and loggers: what workers have appended and loggers have not yet
//! written.
//!
//! A worker appends to the last of its slot's chunks, one or more for each epoch. When an epoch is
//! closed, the leader takes its chunks. It gives them back, empty, when they are durable.
//! Three or four chunks circulate, and nothing is allocated.

use std::collections::VecDeque;
use std::sync::PoisonError;

use weft_htm::word::Mutex;

/// The size in bytes from which on an epoch's next transaction goes to another chunk.
const CHUNK_BYTES: usize = 1 << 20;

/// How many empty chunks a slot keeps, and how many bytes one of them may have room for.
const SPARE_CHUNKS: usize = 4;
const SPARE_BYTES_MAX: usize = 2 * CHUNK_BYTES;

/// The slot of a worker, on a cache line of its own. Only its worker uses the lock, except when the
/// leader takes an epoch.
#[repr(align(64))]
#[derive(Debug, Default)]
pub struct LogSlot(Mutex<Buffer>);

#[derive(Debug, Default)]
struct Buffer {
    chunks: VecDeque<Chunk>,
    spare: Vec<Vec<u8>>,
    /// The last epoch that was taken.
    taken_epoch: u64,
    /// Bytes in chunks, including those that were taken and not given back.
    bytes: usize,
    /// How many of these bytes were reported, to be counted for all slots together.
    reported_bytes: usize,
}

/// What transactions of one epoch have appended.
#[derive(Debug)]
pub struct Chunk {
    pub epoch: u64,
    pub transactions: u64,
    pub bytes: Vec<u8>,
}

impl LogSlot {
    /// Appends what `write` appends. Calls `report` with the number of unreported bytes, if there
    /// are at least `report_bytes`.
    ///
    /// # Panics
    /// If the epoch is closed or comes before the last one, or if `write` panics. In the last case
    /// a part of an entry may stay in the chunk, and the epoch must not be taken any more.
    #[inline]
    pub fn append(
        &self,
        epoch: u64,
        report_bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
        report: impl FnOnce(usize),
    ) {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = &mut *buffer;
        assert!(epoch > buffer.taken_epoch, "epoch {epoch} is closed, nothing can be logged in it");
        let fits = buffer.chunks.back().is_some_and(|last| {
            assert!(epoch >= last.epoch, "epoch {epoch} comes after epoch {}", last.epoch);
            last.epoch == epoch && last.bytes.len() < CHUNK_BYTES
        });
        if !fits {
            let bytes = buffer.spare.pop().unwrap_or_default();
            buffer.chunks.push_back(Chunk { epoch, transactions: 0, bytes });
        }
        let chunk = buffer.chunks.back_mut().expect("the last chunk fits now");
        let before = chunk.bytes.len();
        write(&mut chunk.bytes);
        chunk.transactions += 1;
        buffer.bytes += chunk.bytes.len() - before;
        let unreported = buffer.bytes - buffer.reported_bytes;
        if unreported >= report_bytes {
            buffer.reported_bytes = buffer.bytes;
            report(unreported);
        }
    }

    /// Returns how many bytes of memory the buffer takes, with what was taken and not given back.
    pub fn memory_bytes(&self) -> u64 {
        let buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks = buffer.chunks.iter();
        let room: usize = chunks.map(|chunk| chunk.bytes.capacity() - chunk.bytes.len()).sum();
        let spare: usize = buffer.spare.iter().map(Vec::capacity).sum();
        (buffer.bytes + room + spare) as u64
    }

    /// Takes the chunks of all epochs up to `epoch`, in order. Nothing can be appended to these
    /// epochs any more.
    pub fn take(&self, epoch: u64, mut chunk: impl FnMut(Chunk)) {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.taken_epoch = epoch;
        while buffer.chunks.front().is_some_and(|first| first.epoch <= epoch) {
            chunk(buffer.chunks.pop_front().expect("there is a first one"));
        }
    }

    /// Gives back a chunk that is durable. Returns how many bytes must no longer be counted.
    pub fn give_back(&self, chunk: Chunk) -> usize {
        let mut bytes = chunk.bytes;
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.bytes -= bytes.len();
        let settled = buffer.reported_bytes.saturating_sub(buffer.bytes);
        buffer.reported_bytes -= settled;
        if buffer.spare.len() < SPARE_CHUNKS && bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            buffer.spare.push(bytes);
        }
        settled
    }
}
