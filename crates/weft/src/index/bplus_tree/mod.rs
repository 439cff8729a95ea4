//! The ordered index: a B+-tree that maps keys to record addresses (DBX §4).
//!
//! Nodes are aligned to cache lines and the root pointer has a line of its own, so that threads
//! working in different nodes do not disturb each other. The code is laid out by operation:
//!
//! - `node`: the layout of nodes, their version words, and the steps that change one node;
//! - `search`: how a reader gets to a leaf without writing anything (optimistic lock coupling),
//!   the one-leaf [hint](LeafHint), and [`BPlusTree::get`];
//! - `insert`: [`BPlusTree::get_or_insert`] and splits;
//! - `remove`: [`BPlusTree::remove`], and how emptied nodes leave the tree;
//! - `scan`: [`BPlusTree::read_page`], a scan's step of one leaf;
//! - `range`: [`ScannedRange`], what of a leaf a scan relies on.
//!
//! # What the versions promise
//!
//! At any time the leaves' ranges cover the whole key space without a gap. A leaf's version
//! changes when a key is inserted into it or removed from it, when it is split, and when it takes
//! over a neighbour's range; it never takes an earlier value again. So if a transaction has noted
//! the versions of the leaves that a range query went through, each covering what the one before
//! left off, and finds them unchanged at commit, then no key has come or gone in the whole range
//! (DBX §5.3). If keys were inserted in some of the leaves, and nothing else happened there, the
//! transaction can still find out whether they are in the range: [`ScannedRange`]. Versions of inner
//! nodes are nobody's business but the tree's.
//!
//! # Writers
//!
//! A writer reads its way down like a reader and locks a node by exchanging the version that it
//! has read for one with the lock bit: if that fails the node has changed and the writer starts
//! again, so nobody ever waits for a lock while holding one. Most changes lock one leaf. A split
//! locks the parent and the leaf; the parent has room, since a descent that is going to split
//! the leaf splits every full node on its way. Nodes are not rebalanced after removals (DBX §4
//! gives the reasons), but a leaf that becomes empty leaves the tree at once.
//!
//! # Hardware regions
//!
//! Where there is RTM, an insertion, a removal or a step of a scan that concerns no more than one
//! leaf is first tried as DBX has it: the sequential algorithm in one region. (A look-up is not: it
//! validates a few versions faster than a region is entered and left; see `docs/rtm.md`.) It is the
//! same code, which asks its `Access` to
//! validate and to lock: in a region that costs a test of the lock bit, and nothing else (see
//! `search::InRegion`). Splits, and taking empty nodes out, are left to software: they allocate
//! and retire memory.

mod insert;
#[cfg(all(test, not(any(loom, shuttle))))]
mod interrupted;
mod node;
mod range;
mod remove;
mod scan;
mod search;

#[cfg(all(test, shuttle))]
mod model;
#[cfg(all(
    test,
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(loom, shuttle))
))]
mod region_tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod stress;
#[cfg(test)]
mod testing;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use range::ScannedRange;
pub use scan::{Direction, Page};
pub use search::LeafHint;

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use weft_htm::word::{Ordering, Word, WordPointer};

use super::{IndexKey, IndexWorker};
use node::{CHANGE, Inner, Leaf, RootLine, load_locked};

/// An ordered map from keys to addresses, shared by many workers.
///
/// Its nodes come from the workers' memory, and go back to it by [`BPlusTree::clear`], without
/// which they leak.
pub struct BPlusTree<K: IndexKey> {
    root: RootLine,
    key: PhantomData<K>,
}

impl<K: IndexKey> BPlusTree<K> {
    /// An empty tree.
    pub fn new(worker: &impl IndexWorker) -> Self {
        let leaf = Leaf::<K>::allocate(worker);
        BPlusTree {
            root: RootLine {
                version: Word::new(CHANGE),
                node: WordPointer::new(leaf.as_ptr().cast()),
                height: Word::new(0),
            },
            key: PhantomData,
        }
    }

    /// Calls `visit` with every key and its address, in ascending order.
    pub fn for_each(&mut self, mut visit: impl FnMut(&K, u64)) {
        let height = self.root.height.load(Ordering::Relaxed);
        let mut node = self.root.node.load(Ordering::Relaxed);
        for _ in 0..height {
            // SAFETY: the tree is not shared now, so what can be reached in it is alive; and
            // by the height this is an inner node.
            node = unsafe { (*node.cast::<Inner<K>>()).child(0) };
        }
        let mut next = node.cast::<Leaf<K>>();
        // SAFETY: as above, and this is a leaf.
        while let Some(leaf) = unsafe { next.as_ref() } {
            for (key, address) in leaf.keys.iter().zip(&leaf.addresses).take(leaf.count()) {
                visit(&load_locked(key), address.load(Ordering::Relaxed));
            }
            next = leaf.next.load(Ordering::Relaxed);
        }
    }

    /// Gives the memory of all nodes and keys back to `worker`. The records are the caller's
    /// affair. After this the tree may only be dropped: other operations panic.
    pub fn clear(&mut self, worker: &impl IndexWorker) {
        let node = self.root.node.load(Ordering::Relaxed);
        let height = self.root.height.load(Ordering::Relaxed);
        self.root.node.store(ptr::null_mut(), Ordering::Relaxed);
        if let Some(node) = NonNull::new(node) {
            remove::free_subtree::<K>(node, height, worker);
        }
    }
}
