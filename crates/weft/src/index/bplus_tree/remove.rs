//! Removal, and how empty nodes leave the tree.
//!
//! A removal touches one leaf. If it took the last key, the removing worker then *tidies* the path to that
//! leaf. It descends again and mends the first fault that it meets on the way, and repeats this until it
//! meets no fault. There are three kinds:
//!
//! ```text
//!  an empty leaf                 an inner node with one child       a root with one child
//!
//!       p: [ | x | ]                  g: [ | x | ]                        [ ]
//!          /    \                        /    \                            |
//!        A        B                   [ ]      [ | y | z ]                 N
//!                                      A        B   C   D
//!  A takes over B's range,       the left one takes over the        N becomes the root
//!  and its keys if A is the      right one's children, or, if
//!  empty one; B is obsolete      there are too many, half
//! ```
//!
//! Of two neighbours below the same parent, it is always the right one that is taken out. So no leaf
//! elsewhere points to it as its next leaf. Every inner node except the root has at least two children, so an
//! empty leaf always has such a neighbour. (An inner node may have a single child for a moment, until the
//! worker that took out the other one has tidied up.)

use std::alloc::Layout;
use std::ptr::NonNull;

use weft_htm::word::{Ordering, Word};

use super::super::{IndexKey, IndexWorker};
use super::BPlusTree;
use super::insert::lock_with_parent;
use super::node::{Inner, Leaf, Node, unlock_changed, unlock_obsolete, unlock_unchanged};
use super::search::{
    Access, Backoff, DescentTarget, LeafHint, LeafPlace, OptimisticAccess, Parent,
};

/// The result of an attempt to remove.
pub(super) enum RemoveAttempt<S> {
    /// The key was removed; `slot` is what its slot held.
    Removed { slot: S, is_empty: bool },
    /// The key is absent, or has another address.
    Absent,
}

impl<K: IndexKey> BPlusTree<K> {
    /// Removes `key` if `address` is stored under it. Returns whether it did.
    pub fn remove(&self, key: &K, address: u64, worker: &impl IndexWorker) -> bool {
        let mut backoff = Backoff::new();
        loop {
            let attempt = self
                .in_region(DescentTarget::At(key), worker, |region| {
                    self.try_remove(region, key, address)
                })
                .or_else(|| self.try_remove(&OptimisticAccess, key, address));
            match attempt {
                Some(RemoveAttempt::Removed { slot, is_empty }) => {
                    K::retire(&slot, worker);
                    if is_empty {
                        self.tidy(key, worker);
                    }
                    return true;
                }
                Some(RemoveAttempt::Absent) => return false,
                None => backoff.pause(),
            }
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn try_remove(
        &self,
        access: &impl Access,
        key: &K,
        address: u64,
    ) -> Option<RemoveAttempt<K::KeySlot>> {
        let LeafPlace { leaf, version } =
            self.find_leaf(access, DescentTarget::At(key), &LeafHint::new())?;
        let is_current = || access.is_current(&leaf.node.version, version);
        let Ok(position) = leaf.find(key, is_current)? else {
            return is_current().then_some(RemoveAttempt::Absent);
        };
        if leaf.addresses[position].load(Ordering::Relaxed) != address {
            return is_current().then_some(RemoveAttempt::Absent);
        }
        // Locking checks the version, and with it the position and the address.
        if !access.lock(&leaf.node.version, version) {
            return None;
        }
        let slot = K::KeySlot::default();
        leaf.remove_at(position, &slot);
        let is_empty = leaf.count() == 0;
        unlock_changed(&leaf.node.version, version);
        Some(RemoveAttempt::Removed { slot, is_empty })
    }

    /// Mends the faults that removals left on the path to `key`.
    #[cold]
    pub(super) fn tidy(&self, key: &K, worker: &impl IndexWorker) {
        let access = &OptimisticAccess;
        let mut backoff = Backoff::new();
        loop {
            // An inner node with one child ends the descent, and is mended there.
            let mut mended = false;
            let path = self.descend(access, DescentTarget::At(key), |parent, inner, version| {
                let is_thin = inner.count() == 1;
                if is_thin {
                    mended = self.mend_thin(access, parent, inner, version, worker);
                }
                !is_thin
            });
            // No such inner node: mend the leaf if it is empty, or else the path is tidy.
            if let Some((parent, LeafPlace { leaf, version })) = path {
                let is_empty = leaf.count() == 0;
                if access.is_current(&leaf.node.version, version) {
                    match parent.inner.filter(|_| is_empty) {
                        Some(inner) => mended = mend_empty(access, &parent, inner, worker),
                        None => return,
                    }
                }
            }
            if !mended {
                backoff.pause();
            }
        }
    }

    /// Mends an inner node with one child: the child gets a sibling or another parent. Returns whether that
    /// succeeded.
    fn mend_thin(
        &self,
        access: &impl Access,
        parent: &Parent<'_, K>,
        inner: &Inner<K>,
        version: u64,
        worker: &impl IndexWorker,
    ) -> bool {
        let Some(grandparent) = parent.inner else {
            return self.lower_root(access, parent, inner, version, worker);
        };
        let Some(pair) = Pair::lock(access, parent, grandparent) else {
            return false;
        };
        // SAFETY: the pair is locked, so neither is retired. Both are inner nodes, since `inner`, to which
        // `parent` led, is one.
        let (left, right) = unsafe {
            (pair.left.cast::<Inner<K>>().as_ref(), pair.right.cast::<Inner<K>>().as_ref())
        };
        if left.count() != 1 && right.count() != 1 {
            pair.unlock_unchanged(parent);
            return false;
        }
        let between = &grandparent.separators[pair.right_index - 1];
        if left.merge_or_share(between, right) {
            grandparent.remove_child(pair.right_index, &K::KeySlot::default());
            pair.unlock_merged(parent);
            // SAFETY: `merge_or_share` left no child in it, and the grandparent no longer leads to it.
            unsafe { worker.retire(pair.right.cast(), Layout::new::<Inner<K>>()) };
        } else {
            pair.unlock_shared(parent);
        }
        true
    }

    /// Makes the only child of the root the new root. Returns whether that succeeded.
    fn lower_root(
        &self,
        access: &impl Access,
        root_line: &Parent<'_, K>,
        root: &Inner<K>,
        version: u64,
        worker: &impl IndexWorker,
    ) -> bool {
        if !lock_with_parent(access, root_line, &root.node, version) {
            return false;
        }
        // The root was locked at the version at which it had one child.
        self.root.node.store(root.child(0), Ordering::Relaxed);
        let height = self.root.height.load(Ordering::Relaxed);
        self.root.height.store(height - 1, Ordering::Relaxed);
        unlock_obsolete(&root.node.version, version);
        unlock_changed(root_line.word, root_line.version);
        // SAFETY: it came from a worker with this layout, and the root line no longer leads to it.
        unsafe { worker.retire(NonNull::from(root).cast(), Layout::new::<Inner<K>>()) };
        true
    }
}

/// Takes the empty leaf to which `parent` leads out of the tree. Returns whether that succeeded.
fn mend_empty<K: IndexKey>(
    access: &impl Access,
    parent: &Parent<'_, K>,
    inner: &Inner<K>,
    worker: &impl IndexWorker,
) -> bool {
    let Some(pair) = Pair::lock(access, parent, inner) else {
        return false;
    };
    // SAFETY: the pair is locked, so neither is retired. Both are leaves, since the node to which `parent`
    // led was one.
    let (left, right) =
        unsafe { (pair.left.cast::<Leaf<K>>().as_ref(), pair.right.cast::<Leaf<K>>().as_ref()) };
    if left.count() != 0 && right.count() != 0 {
        pair.unlock_unchanged(parent);
        return false;
    }
    let separator = K::KeySlot::default();
    let fences = [K::KeySlot::default(), K::KeySlot::default()];
    left.absorb(right, &fences);
    inner.remove_child(pair.right_index, &separator);
    pair.unlock_merged(parent);
    for slot in fences.iter().chain([&separator]) {
        K::retire(slot, worker);
    }
    // SAFETY: it came from a worker with this layout. Only the parent and the leaf before it led to it, and
    // they no longer do.
    unsafe { worker.retire(pair.right.cast(), Layout::new::<Leaf<K>>()) };
    true
}

/// Two neighbours below the same parent. All three nodes are locked.
struct Pair {
    left: NonNull<Node>,
    left_version: u64,
    right: NonNull<Node>,
    right_version: u64,
    /// The index of the right one in the parent.
    right_index: usize,
}

impl Pair {
    /// Locks `inner`, which is the node of `parent`, the child at `parent.index`, and a neighbour of that
    /// child. If one of them has changed, locks nothing and returns `None`.
    fn lock<K: IndexKey>(
        access: &impl Access,
        parent: &Parent<'_, K>,
        inner: &Inner<K>,
    ) -> Option<Pair> {
        if !access.lock(parent.word, parent.version) {
            return None;
        }
        let pair = Self::lock_children(access, parent.index.max(1), inner);
        if pair.is_none() {
            unlock_unchanged(parent.word, parent.version);
        }
        pair
    }

    fn lock_children<K: IndexKey>(
        access: &impl Access,
        right_index: usize,
        inner: &Inner<K>,
    ) -> Option<Pair> {
        if right_index >= inner.count() {
            return None;
        }
        let left = NonNull::new(inner.child(right_index - 1))?;
        let right = NonNull::new(inner.child(right_index))?;
        // SAFETY: the children of a locked node are part of the tree.
        let (left_node, right_node) = unsafe { (left.as_ref(), right.as_ref()) };
        let left_version = access.version(&left_node.version)?;
        let right_version = access.version(&right_node.version)?;
        if !access.lock(&left_node.version, left_version) {
            return None;
        }
        if !access.lock(&right_node.version, right_version) {
            unlock_unchanged(&left_node.version, left_version);
            return None;
        }
        Some(Pair { left, left_version, right, right_version, right_index })
    }

    /// Unlocks all three nodes. None of them has changed.
    fn unlock_unchanged<K: IndexKey>(&self, parent: &Parent<'_, K>) {
        unlock_unchanged(self.right_word(), self.right_version);
        unlock_unchanged(self.left_word(), self.left_version);
        unlock_unchanged(parent.word, parent.version);
    }

    /// Unlocks all three nodes. The right child is no longer part of the tree.
    fn unlock_merged<K: IndexKey>(&self, parent: &Parent<'_, K>) {
        unlock_obsolete(self.right_word(), self.right_version);
        unlock_changed(self.left_word(), self.left_version);
        unlock_changed(parent.word, parent.version);
    }

    /// Unlocks all three nodes. All of them have changed.
    fn unlock_shared<K: IndexKey>(&self, parent: &Parent<'_, K>) {
        unlock_changed(self.right_word(), self.right_version);
        unlock_changed(self.left_word(), self.left_version);
        unlock_changed(parent.word, parent.version);
    }

    fn left_word(&self) -> &Word {
        // SAFETY: locked by this worker, so it stays part of the tree until it is unlocked, and is not freed
        // before this worker is unpinned.
        unsafe { &self.left.as_ref().version }
    }

    fn right_word(&self) -> &Word {
        // SAFETY: as for `left_word`.
        unsafe { &self.right.as_ref().version }
    }
}

/// Gives the subtree of `node`, which is `height` levels above the leaves, back to `worker`. No other thread
/// can reach it.
pub(super) fn free_subtree<K: IndexKey>(
    node: NonNull<Node>,
    height: u64,
    worker: &impl IndexWorker,
) {
    if height == 0 {
        // SAFETY: the caller guarantees that this is a leaf of a tree that is not shared.
        let leaf = unsafe { node.cast::<Leaf<K>>().as_ref() };
        for slot in leaf.keys[..leaf.count()].iter().chain([&leaf.low]) {
            K::free(slot, worker);
        }
        if !leaf.next.load(Ordering::Relaxed).is_null() {
            K::free(&leaf.high, worker);
        }
        // SAFETY: it came from a worker with this layout, and no thread can reach it any more.
        unsafe { worker.free(node.cast(), Layout::new::<Leaf<K>>()) };
        return;
    }
    // SAFETY: the caller guarantees that this is an inner node of a tree that is not shared.
    let inner = unsafe { node.cast::<Inner<K>>().as_ref() };
    for index in 0..inner.count() {
        if index > 0 {
            K::free(&inner.separators[index - 1], worker);
        }
        let child = NonNull::new(inner.child(index)).expect("a child below the count");
        free_subtree::<K>(child, height - 1, worker);
    }
    // SAFETY: as for a leaf.
    unsafe { worker.free(node.cast(), Layout::new::<Inner<K>>()) };
}
