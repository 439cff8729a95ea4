//! What a worker has unlinked and may not free yet.
//!
//! A worker collects what it retires in an open batch. When the batch is worth it, it is sealed
//! with a tag of the grace clock, and freed once the grace period has passed (see
//! [`reclaim`](crate::sync::reclaim)). Everything happens on the worker's own thread at the end of its
//! transactions. A worker that leaves hands its batches to those that collect later, and those of an idle
//! worker are taken over by one of them.

use std::alloc::Layout;
use std::collections::VecDeque;
use std::ptr::NonNull;

use crate::row::encoding::EncodedKey;
use crate::store::record::arena::Class;
use crate::store::table::TableRef;

/// Something to be freed, or to be looked at again, after a grace period.
#[derive(Debug)]
pub enum Retired {
    /// A block of the arena: an index node, an out-of-line key.
    Block(NonNull<u8>, Class),
    /// A large block: a hash table's array.
    Large(NonNull<u8>, Box<Layout>),
    /// A version that another one replaced, in a block of its own. (One that lies inline in its
    /// record owns nothing, and its place goes with the record.)
    Row(NonNull<u8>, TableRef),
    /// A deleted record (DBX §5.5, step 1 of Figure 4): to be unlinked now, unless a row was
    /// inserted into it meanwhile.
    Deleted(Box<DeletedRecord>),
    /// An unlinked record (step 2): to be freed with the row that it may still hold.
    Record(NonNull<u8>, TableRef),
}

/// A deleted record that its index still leads to.
#[derive(Debug)]
pub struct DeletedRecord {
    pub record: NonNull<u8>,
    pub table: TableRef,
    /// Where the index leads to it from. (It is what the deleting transaction took for that: if the
    /// user's types have told it something else, the record cannot be unlinked, and stays.)
    pub key: EncodedKey,
}

const _: () = assert!(size_of::<Retired>() == 24, "every update pushes one");

// SAFETY: only who holds it may unlink the record, on any thread.
unsafe impl Send for DeletedRecord {}

// SAFETY: the addresses are of memory that no index leads to any more (or, for `Deleted`, that
// only the list's holder may unlink); whoever holds the list may free it, on any thread.
unsafe impl Send for Retired {}

/// A sealed batch: free once the horizon of the grace periods reaches `tag`.
#[derive(Debug)]
pub struct Batch {
    /// See [`GracePeriods::seal`](crate::sync::reclaim::GracePeriods::seal).
    pub tag: u64,
    /// What to free.
    pub retired: Vec<Retired>,
}

/// A batch is sealed when it holds this many bytes: they stay in a core's own cache, and come
/// back from it warm.
const BATCH_BYTES: usize = 96 << 10;

/// A batch is sealed when it holds this many entries, whatever their size.
const BATCH_ENTRIES: usize = if crate::store::IS_HASTY { 4 } else { 512 };

/// A worker's garbage.
#[derive(Debug, Default)]
pub struct Garbage {
    open: Vec<Retired>,
    open_bytes: usize,
    sealed: VecDeque<Batch>,
    emptied: Vec<Vec<Retired>>,
    /// How many entries, and bytes, the open batch had when it was marked.
    #[cfg(weft_sim)]
    marked: (usize, usize),
}

impl Garbage {
    /// Adds an entry that stands for about `bytes`.
    #[inline(always)]
    pub fn push(&mut self, retired: Retired, bytes: usize) {
        self.open.push(retired);
        self.open_bytes += bytes;
    }

    /// Remembers where the open batch ends. It is not sealed until the next mark.
    #[cfg(weft_sim)]
    pub fn mark(&mut self) {
        self.marked = (self.open.len(), self.open_bytes);
    }

    /// Takes the entries back that were added since the mark.
    #[cfg(weft_sim)]
    pub fn forget_since_mark(&mut self) {
        let (entries, bytes) = self.marked;
        self.open.truncate(entries);
        self.open_bytes = bytes;
    }

    /// Whether the open batch is worth sealing.
    #[inline(always)]
    pub fn is_batch_full(&self) -> bool {
        self.open_bytes >= BATCH_BYTES || self.open.len() >= BATCH_ENTRIES
    }

    /// Number of entries not freed yet.
    pub fn pending(&self) -> usize {
        self.open.len() + self.sealed.iter().map(|batch| batch.retired.len()).sum::<usize>()
    }

    /// Seals the open batch with a tag from `seal`, if it holds anything.
    pub fn seal(&mut self, seal: impl FnOnce() -> u64) {
        if self.open.is_empty() {
            return;
        }
        let next = self.emptied.pop().unwrap_or_default();
        let retired = std::mem::replace(&mut self.open, next);
        self.open_bytes = 0;
        self.sealed.push_back(Batch { tag: seal(), retired });
    }

    /// Takes the oldest batch whose tag lies within `horizon`.
    pub fn take_ripe(&mut self, horizon: u64) -> Option<Batch> {
        if self.sealed.front()?.tag <= horizon { self.sealed.pop_front() } else { None }
    }

    /// Takes over batches that another worker left, keeping the order of the tags.
    pub fn adopt(&mut self, batches: impl IntoIterator<Item = Batch>) {
        self.sealed.extend(batches);
        self.sealed.make_contiguous().sort_by_key(|batch| batch.tag);
    }

    /// Takes every sealed batch.
    pub fn take_sealed(&mut self) -> Vec<Batch> {
        self.sealed.drain(..).collect()
    }

    /// Takes back the buffer of a batch whose entries were freed.
    pub fn recycle(&mut self, mut buffer: Vec<Retired>) {
        buffer.clear();
        if self.emptied.len() < 4 {
            self.emptied.push(buffer);
        }
    }
}
