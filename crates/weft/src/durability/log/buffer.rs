//! What a worker has appended and nobody has written yet.
//!
//! A worker appends to the last of its slot's chunks, one or more for each epoch. When an epoch is
//! closed, the coordinator takes its chunks, and brings them back, empty, when they are durable:
//! three or four of them go round, and nothing is allocated.

use std::collections::VecDeque;
use std::sync::PoisonError;

use weft_htm::word::Mutex;

/// Size in bytes from which on an epoch's next transaction goes to another chunk.
const CHUNK_BYTES: usize = 1 << 20;

/// Empty chunks that a slot keeps, and how many bytes one of them may have room for.
const SPARE_CHUNKS: usize = 4;
const SPARE_BYTES_MAX: usize = 2 * CHUNK_BYTES;

/// A slot of a worker, on a cache line of its own: only its worker uses the lock, but for the
/// moment when the coordinator takes an epoch.
#[repr(align(64))]
#[derive(Debug, Default)]
pub struct Slot(Mutex<Buffer>);

#[derive(Debug, Default)]
struct Buffer {
    chunks: VecDeque<Chunk>,
    spare: Vec<Vec<u8>>,
    /// The last epoch that was taken.
    taken_epoch: u64,
    /// Bytes in chunks, also in those that were taken and not brought back.
    bytes: usize,
    /// As many of them as were counted for all slots together.
    reported_bytes: usize,
}

/// What transactions of one epoch have appended.
#[derive(Debug)]
pub struct Chunk {
    pub epoch: u64,
    pub transactions: u64,
    pub bytes: Vec<u8>,
}

impl Slot {
    /// Appends what `write` does. Calls `report` with the bytes that are now to be counted, when
    /// they are at least `report_bytes`.
    ///
    /// # Panics
    /// If the epoch is closed, or comes before the last one; or if `write` panics: then what it has
    /// appended by half stays, and the epoch must not be taken any more.
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
        let chunk = buffer.chunks.back_mut().expect("there is one that fits");
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

    /// Takes the chunks of all epochs up to `epoch`, in order; nothing can be appended to these any
    /// more.
    pub fn take(&self, epoch: u64, mut chunk: impl FnMut(Chunk)) {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.taken_epoch = epoch;
        while buffer.chunks.front().is_some_and(|first| first.epoch <= epoch) {
            chunk(buffer.chunks.pop_front().expect("there is a first one"));
        }
    }

    /// Brings back a chunk that is durable; returns how many bytes are no longer to be counted.
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
