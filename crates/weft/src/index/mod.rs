//! The memory store: indexes that map keys to record addresses and know nothing of transactions.
//!
//! Two kinds, [`bplus_tree::BPlusTree`] (ordered) and [`hash::HashTable`] (unordered), share the
//! vocabulary of this page. What they add for the transaction layer is DBX's (§4 of the paper):
//! [get-with-insert](Insertion), and version words of their nodes by which a transaction finds
//! out at commit that a key it looked for and missed, or a range it scanned, has changed since
//! ([`NodeVersion`]).
//!
//! Two rules hold for every operation:
//! - the calling worker is inside a transaction or otherwise pinned, so that nothing that it can
//!   reach is freed before it leaves (see `epoch::reclaim`);
//! - an address stored in an index is never zero.

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
use weft_htm::word::Word;

/// What an index operation borrows of the worker that runs it.
pub trait IndexWorker {
    /// The hardware regions in which it runs index operations.
    fn regions(&self) -> &Regions;

    /// Memory for a node: uninitialised, of at least `layout`.
    fn allocate(&self, layout: Layout) -> NonNull<u8>;

    /// Takes back memory that no other thread has ever seen.
    ///
    /// # Safety
    /// `block` came from [`IndexWorker::allocate`] with the same `layout`, and was not published.
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout);

    /// Takes back memory after a grace period: other threads may still be reading it.
    ///
    /// # Safety
    /// `block` came from [`IndexWorker::allocate`] with the same `layout`, and no thread that
    /// starts from now on can reach it.
    unsafe fn retire(&self, block: NonNull<u8>, layout: Layout);
}

/// A node's version word, and the version it had when the node was read.
///
/// While the worker that got it stays pinned the word may be read. If it still holds `version`,
/// then no key was inserted into, and none removed from, the part of the index that the node
/// covers, and nobody is in the middle of doing so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeVersion {
    /// Where the version lives.
    pub word: NonNull<Word>,
    /// What it was.
    pub version: u64,
}

/// A change that the caller's own insertion made to a node's version, so that it can tell its
/// own change from another's: a transaction that had noted `before` now notes `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// Where the version lives.
    pub word: NonNull<Word>,
    /// The version just before the insertion.
    pub before: u64,
    /// The version just after it.
    pub after: u64,
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The address stored under the key.
    Found(u64),
    /// The key is absent; it would be in this node.
    Absent(NodeVersion),
}

impl Lookup {
    /// The address, if the key is there.
    #[inline(always)]
    pub fn address(self) -> Option<u64> {
        match self {
            Lookup::Found(address) => Some(address),
            Lookup::Absent(_) => None,
        }
    }
}

/// What get-with-insert found or did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The key was there, with this address; nothing was changed.
    Found(u64),
    /// The key was inserted.
    Inserted {
        /// What that did to the version of the node the key was inserted into (of the left half,
        /// where that node was split).
        change: NodeChange,
        /// Where the node was split: the new right half.
        sibling: Option<NodeVersion>,
    },
}
