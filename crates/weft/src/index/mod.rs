//! The memory store: indexes that map keys to record addresses and know nothing of transactions.
//!
//! Two kinds, [`bplus_tree::BPlusTree`] (ordered) and [`hash::HashTable`] (unordered), share the vocabulary
//! of this page. As in DBX (§4 of the paper), they offer the transaction layer two things:
//! [get-with-insert](Insertion), and version words in their nodes. By a version word a transaction finds out
//! at commit whether a key that it looked for and missed, or a range that it scanned, has changed since
//! ([`NodeVersion`]).
//!
//! Two rules hold for every operation:
//! - The calling worker is inside a transaction or otherwise pinned, so nothing that it can reach is freed
//!   before it leaves (see `sync::reclaim`).
//! - An address stored in an index is never zero.

pub mod bplus_tree;
pub mod hash;
mod key;
#[cfg(all(test, not(any(loom, shuttle))))]
mod test_machine;
#[cfg(test)]
mod test_memory;

pub use key::{IndexKey, LongKey, LongSlot};

use std::alloc::Layout;
use std::ptr::NonNull;

use weft_htm::Regions;
use weft_htm::word::{Ordering, Word};

/// What an index operation needs from the worker that runs it.
pub trait IndexWorker {
    /// Returns the hardware regions in which the worker runs index operations.
    fn regions(&self) -> &Regions;

    /// Allocates memory for a node: uninitialised, and at least as large as `layout`.
    fn allocate(&self, layout: Layout) -> NonNull<u8>;

    /// Returns whether an index may take `bytes` more, if it can do without them.
    fn may_allocate(&self, bytes: usize) -> bool {
        let _ = bytes;
        true
    }

    /// Takes back memory that no other thread has ever seen.
    ///
    /// # Safety
    /// `block` came from [`IndexWorker::allocate`] with the same `layout`, and was not published.
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout);

    /// Takes back memory after a grace period, since other threads may still be reading it.
    ///
    /// # Safety
    /// `block` came from [`IndexWorker::allocate`] with the same `layout`, and no thread that
    /// starts from now on can reach it.
    unsafe fn retire(&self, block: NonNull<u8>, layout: Layout);
}

/// A node's version word, and the version that it had when the node was read.
///
/// The word may be read as long as the worker that got it stays pinned. If the word still holds `version`,
/// then no key was inserted into the part of the index that the node covers, none was removed from it, and no
/// thread is in the middle of doing so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeVersion {
    /// The version word.
    pub word: NonNull<Word>,
    /// The version when the node was read.
    pub version: u64,
}

impl NodeVersion {
    /// Returns the version that the node has now.
    ///
    /// # Safety
    /// The node is not freed: the worker has been pinned since before it was read.
    #[inline(always)]
    pub unsafe fn current(self) -> u64 {
        // SAFETY: passed on to the caller.
        unsafe { self.word.as_ref() }.load(Ordering::Relaxed)
    }
}

/// The change that the caller's own insertion made to a node's version. With it a transaction can tell its
/// own change from another's: if it had noted `before`, it now notes `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// The version word.
    pub word: NonNull<Word>,
    /// The version just before the insertion.
    pub before: u64,
    /// The version just after it.
    pub after: u64,
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The address stored under the key.
    Found(u64),
    /// The key is absent. If it were there, it would be in this node.
    Absent(NodeVersion),
}

impl Lookup {
    /// Returns the address, if the key is there.
    #[inline(always)]
    pub fn address(self) -> Option<u64> {
        match self {
            Lookup::Found(address) => Some(address),
            Lookup::Absent(_) => None,
        }
    }
}

/// The result of get-with-insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The key was there, with this address; nothing was changed.
    Found(u64),
    /// The key was inserted.
    Inserted {
        /// How this changed the version of the node into which the key was inserted. If that node was split,
        /// of its left half.
        change: NodeChange,
        /// The new right half, if the node was split.
        sibling: Option<NodeVersion>,
    },
}

/// The result of inserting the keys of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunInsertion {
    /// The first key was there, with this address; nothing was changed.
    Found(u64),
    /// The first keys were inserted, under one lock.
    Inserted {
        /// How many.
        count: usize,
        /// As in [`Insertion::Inserted`].
        change: NodeChange,
        /// As in [`Insertion::Inserted`].
        sibling: Option<NodeVersion>,
    },
}

/// Makes the result for a run of which one key was inserted or found.
impl From<Insertion> for RunInsertion {
    #[inline(always)]
    fn from(insertion: Insertion) -> Self {
        match insertion {
            Insertion::Found(address) => RunInsertion::Found(address),
            Insertion::Inserted { change, sibling } => {
                RunInsertion::Inserted { count: 1, change, sibling }
            }
        }
    }
}
