//! Garbage: what a worker has unlinked and may not free yet.
//!
//! A worker collects what it retires in an open batch. When the batch is large enough, the worker seals it
//! with a tag of the grace clock. It frees the batch once the grace period has passed (see
//! [`reclaim`](crate::sync::reclaim)). All of this happens on the worker's own thread, at the end of its
//! transactions. A worker that leaves hands its batches to workers that collect later. The batches of an idle
//! worker are taken over by another one.

use std::alloc::Layout;
use std::collections::VecDeque;
use std::ptr::NonNull;

use crate::row::encoding::EncodedKey;
use crate::store::record::arena::SizeClass;
use crate::store::table::TableRef;

/// Something to free, or to look at again, after a grace period.
#[derive(Debug)]
pub enum RetiredItem {
    /// A block of the arena: an index node, an out-of-line key.
    Block(NonNull<u8>, SizeClass),
    /// A large block: a hash table's array.
    Large(NonNull<u8>, Box<Layout>),
    /// A version that another one replaced, in a block of its own. (A version that lies inline in its record
    /// owns nothing, and its memory is freed with the record.)
    Row(NonNull<u8>, TableRef),
    /// The inline slot of this record, whose version was replaced. After the grace period the record's row is
    /// moved there.
    InlineSlot(NonNull<u8>, TableRef),
    /// A deleted record (DBX §5.5, step 1 of Figure 4), which is to be unlinked unless a row has been
    /// inserted into it since. (Most records do not wait for this: see
    /// [`Protocol::UNLINKS_AT_ONCE`](crate::protocol::Protocol::UNLINKS_AT_ONCE).)
    Deleted(Box<DeletedRecord>),
    /// An unlinked record (step 2), which is to be freed together with the row that it may still hold.
    Record(NonNull<u8>, TableRef),
}

/// A deleted record that its index still holds.
#[derive(Debug)]
pub struct DeletedRecord {
    pub record: NonNull<u8>,
    pub table: TableRef,
    /// The key under which the index holds the record. (It is the key that the deleting transaction computed.
    /// If the user's types returned a wrong one then, the record cannot be unlinked, and stays.)
    pub key: EncodedKey,
}

const _: () = assert!(size_of::<RetiredItem>() == 24, "every update pushes one");

// SAFETY: only the holder of this value may unlink the record, on any thread.
unsafe impl Send for DeletedRecord {}

// SAFETY: the addresses are of memory to which no index leads any more (or, for `Deleted`, which only the
// holder of the list may unlink). The holder of the list may free it, on any thread.
unsafe impl Send for RetiredItem {}

/// A sealed batch. It may be freed once the horizon of the grace periods reaches `tag`.
#[derive(Debug)]
pub struct Batch {
    /// See [`GracePeriods::seal`](crate::sync::reclaim::GracePeriods::seal).
    pub tag: u64,
    /// The version after which new records began when the batch was sealed: see
    /// [`WorkerMemory::begin_versions`](crate::store::worker::WorkerMemory::begin_versions).
    pub versions_begin: u64,
    /// The entries of the batch.
    pub retired: Vec<RetiredItem>,
}

/// A batch is sealed when it holds this many bytes. So few stay in a core's own cache, and are still there
/// when they are used again.
const BATCH_BYTES: usize = 96 << 10;

/// For how many bytes a deleted record counts that scans pass over. So few of them wait in a batch.
pub const PASSED_OVER_BYTES: usize = BATCH_BYTES / 4;

/// A batch is sealed when it holds this many entries, whatever their size.
const BATCH_ENTRIES: usize = if crate::store::RECLAIMS_EARLY { 4 } else { 512 };

/// A worker's garbage.
#[derive(Debug, Default)]
pub struct Garbage {
    /// Deleted records that may leave their indexes without waiting for a grace period.
    deleted: Vec<DeletedRecord>,
    open: Vec<RetiredItem>,
    open_bytes: usize,
    sealed: VecDeque<Batch>,
    emptied: Vec<Vec<RetiredItem>>,
    /// How many deleted records there were at the mark, and how many entries and bytes the open batch had.
    #[cfg(weft_sim)]
    marked: (usize, usize, usize),
}

impl Garbage {
    /// Adds an entry that stands for about `bytes` of memory.
    #[inline(always)]
    pub fn push(&mut self, retired: RetiredItem, bytes: usize) {
        self.open.push(retired);
        self.open_bytes += bytes;
    }

    /// Adds a deleted record that may leave its index at once. It stands for about `bytes` of memory.
    pub fn push_deleted(&mut self, deleted: DeletedRecord, bytes: usize) {
        self.deleted.push(deleted);
        self.open_bytes += bytes;
    }

    /// Takes a deleted record that may leave its index at once.
    pub fn pop_deleted(&mut self) -> Option<DeletedRecord> {
        self.deleted.pop()
    }

    /// As [`Garbage::push`], for a row, of which every update retires one. The entry is made in its place. (One
    /// that is made on the stack and then pushed is copied by loads that wait for the stores just before.)
    #[inline(always)]
    pub fn push_row(&mut self, row: NonNull<u8>, table: TableRef, bytes: usize) {
        self.open.reserve(1);
        self.open.spare_capacity_mut()[0].write(RetiredItem::Row(row, table));
        // SAFETY: the entry was just initialised.
        unsafe { self.open.set_len(self.open.len() + 1) };
        self.open_bytes += bytes;
    }

    /// Marks the end of the open batch. The batch is not sealed before the next mark.
    #[cfg(weft_sim)]
    pub fn mark(&mut self) {
        self.marked = (self.deleted.len(), self.open.len(), self.open_bytes);
    }

    /// Removes the entries that were added since the mark.
    #[cfg(weft_sim)]
    pub fn forget_since_mark(&mut self) {
        let (deleted, entries, bytes) = self.marked;
        self.deleted.truncate(deleted);
        self.open.truncate(entries);
        self.open_bytes = bytes;
    }

    /// Returns whether the open batch is large enough to be sealed.
    #[inline(always)]
    pub fn is_batch_full(&self) -> bool {
        self.open_bytes >= BATCH_BYTES || self.open.len() + self.deleted.len() >= BATCH_ENTRIES
    }

    /// Makes the worker collect its garbage at the end of its transaction, however little it is.
    pub fn hasten(&mut self) {
        self.open_bytes = BATCH_BYTES;
    }

    /// Returns the number of entries not freed yet.
    pub fn pending(&self) -> usize {
        self.deleted.len()
            + self.open.len()
            + self.sealed.iter().map(|batch| batch.retired.len()).sum::<usize>()
    }

    /// Seals the open batch with a tag and a version from `seal`, if it holds anything. Deleted records that have not
    /// left their indexes are in the batch, and wait for its grace period.
    pub fn seal(&mut self, seal: impl FnOnce() -> (u64, u64)) {
        // Also after `hasten`, which does not need an entry.
        self.open_bytes = 0;
        self.open.extend(self.deleted.drain(..).map(Box::new).map(RetiredItem::Deleted));
        if self.open.is_empty() {
            return;
        }
        let next = self.emptied.pop().unwrap_or_default();
        let retired = std::mem::replace(&mut self.open, next);
        let (tag, versions_begin) = seal();
        self.sealed.push_back(Batch { tag, versions_begin, retired });
    }

    /// Takes the oldest batch whose tag lies within `horizon`.
    pub fn take_ripe(&mut self, horizon: u64) -> Option<Batch> {
        if self.sealed.front()?.tag <= horizon { self.sealed.pop_front() } else { None }
    }

    /// Takes over batches of another worker, keeping the order of the tags.
    pub fn adopt(&mut self, batches: impl IntoIterator<Item = Batch>) {
        self.sealed.extend(batches);
        self.sealed.make_contiguous().sort_by_key(|batch| batch.tag);
    }

    /// Takes every sealed batch.
    pub fn take_sealed(&mut self) -> Vec<Batch> {
        self.sealed.drain(..).collect()
    }

    /// Keeps the buffer of a batch whose entries were freed, to be used again.
    pub fn recycle(&mut self, mut buffer: Vec<RetiredItem>) {
        buffer.clear();
        if self.emptied.len() < 4 {
            self.emptied.push(buffer);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Fault: after a write for which there was no memory, a worker without garbage looked for some at the end of every
    /// transaction.
    #[test]
    fn a_worker_without_garbage_is_hastened_once() {
        let mut garbage = Garbage::default();
        garbage.hasten();
        assert!(garbage.is_batch_full());
        garbage.seal(|| unreachable!("there is nothing to seal"));
        assert!(!garbage.is_batch_full());
    }
}
