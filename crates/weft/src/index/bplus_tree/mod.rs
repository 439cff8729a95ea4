//! The ordered index: a B+-tree that maps keys to record addresses (DBX §4).
//!
//! Nodes are aligned to cache lines, and the root pointer has a line of its own, so threads that work in
//! different nodes do not slow each other down. There is a file for each operation:
//!
//! - `node`: the layout of nodes, their version words, and the steps that change one node;
//! - `search`: how a reader gets to a leaf without writing anything (optimistic lock coupling), the one-leaf
//!   [hint](LeafHint), [`BPlusTree::get`], and [`BPlusTree::get_batch`];
//! - `insert`: [`BPlusTree::get_or_insert`], [`BPlusTree::insert_run`] and splits;
//! - `remove`: [`BPlusTree::remove`], and how empty nodes leave the tree;
//! - `scan`: [`BPlusTree::read_page`], a scan's step of one leaf;
//! - `range`: [`ScannedRange`], the part of a leaf on which a scan relies.
//!
//! # What the versions guarantee
//!
//! At any time the leaves' ranges cover the whole key space without a gap. A leaf's version changes when a
//! key is inserted into the leaf or removed from it, when the leaf is split, and when it takes over a
//! neighbour's range. A version never takes an earlier value again.
//!
//! Say a transaction has noted the versions of the leaves that a range query went through, each leaf
//! beginning where the previous one ended. If it finds them unchanged at commit, then no key in the whole
//! range has been inserted or removed (DBX §5.3). If nothing but insertions has happened in some of the
//! leaves, the transaction can still find out whether the new keys are in its range: [`ScannedRange`]. The
//! versions of inner nodes are used inside the tree only.
//!
//! # Writers
//!
//! A writer reads its way down like a reader. It locks a node by exchanging the version that it has read for
//! one with the lock bit. If the exchange fails, the node has changed, and the writer starts again. So no
//! writer ever waits for a lock while it holds one. Most changes lock one leaf. A split locks the parent and
//! the leaf. The parent has room, because a descent that is going to split the leaf splits every full node on
//! its way. A run of keys that belong side by side into one leaf is inserted under one lock, as one change that
//! counts as many insertions as there are keys. Nodes are not rebalanced after removals (DBX §4 gives the reasons), but a
//! leaf that becomes empty
//! is taken out of the tree at once.
//!
//! # Hardware regions
//!
//! If there is RTM, the tree first tries an operation as DBX does, as the sequential algorithm in one region.
//! This applies to an insertion, a removal or a step of a scan that concerns no more than one leaf. (A
//! look-up does not use a region, unless a protocol asks for one with `get_in`: it takes less time to validate a few
//! versions than to enter and leave a region; see `docs/rtm.md`.) Region and software run the same code, which validates
//! and locks through a
//! parameter of type `Access`. In a region each of these costs a test of the lock bit at most (see
//! `search::RegionAccess`). Splits, and taking empty nodes out, are left to software, since they allocate and
//! retire memory.

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
/// The nodes come from the memory of the workers. [`BPlusTree::clear`] gives them back to it; without that
/// call they leak.
pub struct BPlusTree<K: IndexKey> {
    root: RootLine,
    key: PhantomData<K>,
}

impl<K: IndexKey> BPlusTree<K> {
    /// Creates an empty tree.
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
            // SAFETY: the tree is not shared now, so every node that can be reached is alive. By the height
            // this is an inner node.
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

    /// Gives the memory of all nodes and keys back to `worker`. The caller must free the records. Afterwards
    /// the tree may only be dropped: other operations panic.
    pub fn clear(&mut self, worker: &impl IndexWorker) {
        let node = self.root.node.load(Ordering::Relaxed);
        let height = self.root.height.load(Ordering::Relaxed);
        self.root.node.store(ptr::null_mut(), Ordering::Relaxed);
        if let Some(node) = NonNull::new(node) {
            remove::free_subtree::<K>(node, height, worker);
        }
    }
}
