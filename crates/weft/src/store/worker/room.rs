//! The memory limit: which writes are refused, so that the database stays within it.
//!
//! What counts as used is what the database has taken from the system: chunks, large arrays of indexes, what rows own
//! elsewhere, the buffers of the log, the access sets of large transactions, and lists of garbage and of versions that
//! are kept for snapshots. Workers report what they take, when it has changed by [`REPORT_BYTES`]. The lists and the log
//! are looked at when the epoch ticks, and when memory is scarce.
//!
//! ```text
//!   0                                    soft              middle              limit
//!   +-------------------------------------+------------------+-------------------+
//!     everything                            what takes no      what takes no
//!                                           more memory;       more memory;
//!                                           chunks for updates chunks for
//!                                           and nodes          updates
//! ```
//!
//! An operation is refused before it has done anything. It goes on only if all blocks that it needs are free in the
//! worker's own arena by then, or may be cut from a chunk. So a database that has reached the limit can still delete and
//! update rows, and insert as many as were deleted. Workers share the chunks that are added when memory is scarce, piece by
//! piece, because a worker that has no free block yet must be able to update rows, too: a transaction that deletes often
//! updates a count.

use std::ptr::NonNull;

use weft_htm::word::Ordering;

use super::{SharedState, WorkerMemory};
use crate::error::{Failure, StorageError};
use crate::store::record::arena::CHUNK_BYTES;
use crate::store::retention::{NONE_OPEN, RetainedEntry};
use crate::store::table::{TableCore, TableRef};

/// By how many bytes a worker's use of memory changes before it reports the change.
const REPORT_BYTES: u64 = 64 << 10;

/// About how many bytes of memory a write takes until its transaction has ended.
const WRITE_BYTES: u64 = 160;

/// How many writes of a transaction are not counted.
const WRITES_MIN: u64 = 1024;

/// About how many bytes a retired block takes on a list of garbage.
const RETIRED_BYTES: u64 = 96;

/// What a write does to the use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It adds a record, or makes a row larger.
    Insert,
    /// It replaces a row, and takes memory for as long as the replaced one is in use.
    Update,
    /// It deletes a row.
    Delete,
}

impl SharedState {
    /// Checks that there is room for new rows.
    ///
    /// # Errors
    /// [`StorageError::MemoryFull`].
    pub fn check_memory(&self) -> Result<(), StorageError> {
        match self.memory.limit() {
            Some(limit_bytes) if !self.memory.has_room() => {
                Err(StorageError::MemoryFull { used_bytes: self.memory.used_bytes(), limit_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Looks at how much memory the log and the lists take. Returns how much the database uses.
    pub fn measure_memory(&self) -> u64 {
        let log = self.log.get().map_or(0, |engine| engine.log.memory_bytes());
        let retired = self.counters[..self.grace.slots_used()].iter();
        // Relaxed: statistics.
        let retired = retired.map(|counters| counters.retired_pending.load(Ordering::Relaxed));
        let kept = self.retention.entries() * size_of::<RetainedEntry>() as u64;
        self.memory.set_measured(log + kept + retired.sum::<u64>() * RETIRED_BYTES);
        self.memory.used_bytes()
    }
}

impl WorkerMemory {
    /// Makes sure that a write to `table` stays within the memory limit. The row owns `heap_bytes` elsewhere.
    ///
    /// # Errors
    /// [`Failure::MemoryFull`].
    #[inline(always)]
    pub fn make_room<E: From<Failure>>(
        &self,
        core: &TableCore,
        growth: Growth,
        heap_bytes: usize,
    ) -> Result<(), E> {
        match self.shared.memory.limit() {
            None => Ok(()),
            Some(limit) => self.make_room_below(limit, core, growth, heap_bytes),
        }
    }

    /// Cold, so that without a limit the code of the operations stays together.
    #[cold]
    fn make_room_below<E: From<Failure>>(
        &self,
        limit: u64,
        core: &TableCore,
        growth: Growth,
        heap_bytes: usize,
    ) -> Result<(), E> {
        let is_largest = self.count_write(core);
        let memory = &self.shared.memory;
        // If memory is not scarce, there is room for a chunk.
        if !memory.is_scarce() && heap_bytes <= CHUNK_BYTES {
            return Ok(());
        }
        let (soft, middle) = memory.bounds(limit);
        let has_blocks = |bound| {
            let classes = [core.record_class, core.row_class];
            self.arena().make_room(classes, (bound, middle), memory)
        };
        let fits = |used: u64| {
            if is_largest && used >= middle {
                return false;
            }
            match growth {
                // Without a snapshot, what a delete takes comes back.
                Growth::Delete => used < limit || self.shared.retention.oldest() == NONE_OPEN,
                // A row that owns nothing takes blocks that are there, or from a chunk below the limit, and no other memory.
                Growth::Update => (used < limit || core.drop_row.is_none()) && has_blocks(limit),
                Growth::Insert => {
                    let bound = if memory.keeps(heap_bytes) { limit } else { soft };
                    used < bound && has_blocks(soft)
                }
            }
        };
        if fits(memory.used_with(heap_bytes)) {
            return Ok(());
        }
        // Look again: the log and the lists may have become shorter, and the allocator may give memory back.
        memory.report(self.unreported.take());
        memory.trim(limit);
        self.shared.measure_memory();
        let used_bytes = memory.used_with(heap_bytes);
        if fits(used_bytes) {
            return Ok(());
        }
        // The worker's own garbage is freed as soon as it can be.
        self.garbage().hasten();
        Err(Failure::MemoryFull { used_bytes, limit_bytes: limit }.into())
    }

    /// Counts a write of the transaction under way. Returns whether the worker has had no transaction with so many.
    fn count_write(&self, core: &TableCore) -> bool {
        let running = self.counters().running.load(Ordering::Relaxed);
        if running == 0 {
            return false; // A table is being loaded.
        }
        let (transaction, writes) = self.writes.get();
        let writes = if transaction == running { writes + 1 } else { 1 };
        self.writes.set((running, writes));
        // The buffers keep their size, so only the largest transaction counts.
        let is_largest = writes > self.writes_max.get().max(WRITES_MIN);
        if is_largest {
            self.writes_max.set(writes);
            let logged = if self.is_logging() { core.row_bytes as u64 } else { 0 };
            self.report((WRITE_BYTES + logged) as i64);
        }
        is_largest
    }

    /// Notes that the worker uses `bytes` more, or fewer, outside of chunks.
    #[inline]
    pub(super) fn report(&self, bytes: i64) {
        let unreported = self.unreported.get() + bytes;
        self.unreported.set(unreported);
        if unreported.unsigned_abs() >= REPORT_BYTES {
            self.shared.memory.report(unreported);
            self.unreported.set(0);
        }
    }

    /// Counts that a row owns `bytes` elsewhere, instead of what was counted for it before. What was counted stands
    /// behind the row, so that the same is subtracted in the end, whatever the row's type says then.
    ///
    /// # Safety
    /// `row` is the place of a row of `table`, and belongs to the caller.
    #[inline(always)]
    pub unsafe fn count_heap(&self, table: TableRef, row: NonNull<u8>, bytes: usize) {
        // SAFETY: passed on to the caller.
        if let Some(counted) = unsafe { table.core().counted_heap(row) } {
            // SAFETY: as above; the word was initialised with the place.
            let before = unsafe { counted.replace(bytes) };
            let change = bytes as i64 - before as i64;
            super::Counters::add(&self.counts(table.core().number).heap_bytes, change as u64);
            self.report(change);
        }
    }

    /// As [`WorkerMemory::count_heap`], for a row of a known type. One without `Drop` owns nothing.
    ///
    /// # Safety
    /// As for [`WorkerMemory::count_heap`].
    #[inline(always)]
    pub unsafe fn count_heap_of<R>(&self, table: TableRef, row: NonNull<R>, bytes: usize) {
        if std::mem::needs_drop::<R>() {
            // SAFETY: passed on to the caller.
            unsafe { self.count_heap(table, row.cast(), bytes) };
        }
    }

    /// Counts what a complete row owns elsewhere. This runs the user's code.
    ///
    /// # Safety
    /// As for [`WorkerMemory::count_heap`].
    pub unsafe fn count_row_heap(&self, table: TableRef, row: NonNull<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { self.count_heap(table, row, table.core().heap_bytes(row)) };
    }

    /// Returns how many bytes were counted for what a row owns elsewhere.
    ///
    /// # Safety
    /// `row` is a row of `table`, and not freed during the call.
    #[inline(always)]
    pub unsafe fn counted_heap(&self, table: TableRef, row: NonNull<u8>) -> usize {
        // SAFETY: passed on to the caller.
        unsafe { table.core().counted_heap(row).map_or(0, |counted| counted.read()) }
    }
}
