//! Finding a leaf, and a key in it.
//!
//! A descent reads a node, takes the pointer to a child, and checks that the node has not changed
//! meanwhile, before it follows the pointer (which otherwise might lead into freed memory) and
//! again after it has read the child's version (or the child might have handed part of its range
//! to a new sibling in between). From then on the child stands for itself. So a reader writes
//! nothing, and a writer locks only the nodes that it changes. Whatever does not fit together
//! sends the operation back to the root.
//!
//! How "has not changed" is found out is the only difference between the software algorithm and
//! the hardware region, and [`Access`] names it.

use std::cell::Cell;
use std::cmp;
use std::ptr::{self, NonNull};

use weft_htm::Region;
use weft_htm::prefetch::prefetch_lines;
use weft_htm::word::{Ordering, Word, fence, spin_loop, yield_now};

use super::super::{IndexKey, IndexWorker, Lookup, NodeVersion};
use super::BPlusTree;
use super::node::{Inner, LOCKED, Leaf, Node, OBSOLETE, least};

/// How an operation makes sure that the nodes it reads and writes hold still.
pub(super) trait Access {
    /// The version of a node that is part of the tree and that nobody is changing. `None`: start
    /// again at the root.
    fn version(&self, word: &Word) -> Option<u64>;

    /// Whether the node still has that version, so that what was read of it since
    /// [`Access::version`] is what the node held all the while.
    fn is_current(&self, word: &Word, version: u64) -> bool;

    /// Locks the node if it still has that version. The `unlock_…` functions of `node` release it.
    fn lock(&self, word: &Word, version: u64) -> bool;
}

/// Optimistic lock coupling, the software algorithm. Every node is a sequence lock.
///
/// Why relaxed accesses to the rest of a node are enough: say a reader's load took a value that a
/// writer stored under the lock. The fence in `is_current`, after that load, and the fence in
/// `lock`, before that store, then make the second load of the version see the writer's lock bit
/// or something later. So if it still sees the version of the first load, that version is the
/// one of the writer's unlock or later; the first load, an Acquire, read it from a Release store,
/// and everything the writer (and, through the Acquire of each `lock`, every writer before it)
/// did happened before: also what it had stored in a child or in a key's tail before it stored
/// the pointer.
pub(super) struct Optimistic;

impl Access for Optimistic {
    #[inline(always)]
    fn version(&self, word: &Word) -> Option<u64> {
        /// A lock is held for some tens of stores, so it pays to wait for it for a moment.
        const PATIENCE: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };
        for _ in 0..PATIENCE {
            // Acquire: pairs with the Release of the unlocks, see above.
            let version = word.load(Ordering::Acquire);
            if version & (LOCKED | OBSOLETE) == 0 {
                return Some(version);
            }
            if version & OBSOLETE != 0 {
                return None;
            }
            spin_loop();
        }
        None
    }

    #[inline(always)]
    fn is_current(&self, word: &Word, version: u64) -> bool {
        // Acquire: pairs with the fence in `lock`, see above.
        fence(Ordering::Acquire);
        word.load(Ordering::Relaxed) == version
    }

    #[inline(always)]
    fn lock(&self, word: &Word, version: u64) -> bool {
        // Acquire: pairs with the Release of the unlocks. A failure reads nothing further.
        let locked = word
            .compare_exchange(version, version | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        // Release: pairs with the fence in `is_current`, see above.
        fence(Ordering::Release);
        locked
    }
}

/// The sequential algorithm in a hardware region, which makes sure of everything by itself, as
/// long as no software twin is at work on the same nodes. A writer changes versions as its twin
/// does, so that twins and transactions notice.
pub(super) struct InRegion<'r>(&'r Region);

impl Access for InRegion<'_> {
    #[inline(always)]
    fn version(&self, word: &Word) -> Option<u64> {
        // Acquire: pairs with the Release of a twin's unlock.
        let version = word.load(Ordering::Acquire);
        if version & LOCKED != 0 {
            self.0.abort_locked();
        }
        // Only a hint can lead to an obsolete node.
        (version & OBSOLETE == 0).then_some(version)
    }

    #[inline(always)]
    fn is_current(&self, _word: &Word, _version: u64) -> bool {
        true
    }

    #[inline(always)]
    fn lock(&self, _word: &Word, _version: u64) -> bool {
        // `version` has found it unlocked; if that changes, the region aborts.
        true
    }
}

/// How long an operation that must start again waits first.
pub(super) struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Backoff { attempts: 0 }
    }

    /// Waits a little, then a little more; then lets another thread run, which may be the one
    /// that holds the lock.
    #[cold]
    pub(super) fn pause(&mut self) {
        const SPINNING: u32 = 6;
        if self.attempts < SPINNING && !cfg!(any(loom, shuttle)) {
            for _ in 0..1 << self.attempts {
                spin_loop();
            }
            self.attempts += 1;
        } else {
            yield_now();
        }
    }
}

/// The leaf that a worker used last: the one-node buffer of DBX (§6.2). Operations on keys near
/// each other find their leaf in it and skip the descent.
///
/// It is good for one tree, and for as long as the worker stays pinned: it must be
/// [reset](LeafHint::reset) before it is used in the next transaction.
#[derive(Debug)]
pub struct LeafHint<K: IndexKey> {
    /// In a cell, because the body of a region may be run more than once and so borrows nothing
    /// mutably. (What a region that was rolled back wrote here is undone with the rest.)
    leaf: Cell<*const Leaf<K>>,
}

impl<K: IndexKey> LeafHint<K> {
    /// A hint that remembers nothing.
    pub const fn new() -> Self {
        LeafHint { leaf: Cell::new(ptr::null()) }
    }

    /// Forgets the leaf.
    pub fn reset(&mut self) {
        self.leaf.set(ptr::null());
    }

    pub(super) fn remember(&self, leaf: *const Leaf<K>) {
        self.leaf.set(leaf);
    }

    /// The remembered leaf and its version, if that is where `target` is to be found.
    #[inline(always)]
    fn leaf_for<'t>(&self, access: &impl Access, target: Target<'_, K>) -> Option<Place<'t, K>> {
        // SAFETY: the leaf was reached by this worker since it was last pinned (that is the
        // contract of the type), so even if it was retired since, it has not been freed.
        let leaf = unsafe { self.leaf.get().as_ref() }?;
        let version = access.version(&leaf.node.version)?;
        let covers = leaf.covers(target, || access.is_current(&leaf.node.version, version))?;
        covers.then_some(Place { leaf, version })
    }
}

impl<K: IndexKey> Default for LeafHint<K> {
    fn default() -> Self {
        LeafHint::new()
    }
}

/// What a descent looks for: the leaf that covers …
pub(super) enum Target<'k, K> {
    /// … this key.
    At(&'k K),
    /// … the keys just below this one.
    Below(&'k K),
    /// … the least key.
    First,
    /// … the greatest keys.
    Last,
}

impl<K> Clone for Target<'_, K> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Target<'_, K> {}

/// A leaf, and the version at which it was found to cover what was looked for.
pub(super) struct Place<'t, K: IndexKey> {
    pub(super) leaf: &'t Leaf<K>,
    pub(super) version: u64,
}

impl<K: IndexKey> Place<'_, K> {
    pub(super) fn node_version(&self) -> NodeVersion {
        // A leaf begins with its version; `range` finds the leaf again by it.
        NodeVersion { word: NonNull::from(self.leaf).cast(), version: self.version }
    }
}

/// The node that a descent came through: an inner node, or the root line.
pub(super) struct Parent<'t, K: IndexKey> {
    /// `None`: the root line.
    pub(super) inner: Option<&'t Inner<K>>,
    pub(super) word: &'t Word,
    pub(super) version: u64,
    /// Which child was taken.
    pub(super) index: usize,
}

/// How many of the sorted `slots` are less than `key`, or, with `or_equal`, not greater.
#[inline(always)]
pub(super) fn rank<K: IndexKey>(
    slots: &[K::Slot],
    key: &K,
    or_equal: bool,
    is_current: impl Fn() -> bool,
) -> Option<usize> {
    let passes = |slot: &K::Slot| {
        let order = key.compare(slot, &is_current)?;
        Some(if or_equal { order != cmp::Ordering::Less } else { order == cmp::Ordering::Greater })
    };
    let mut base = 0;
    let mut size = slots.len();
    while size > 1 {
        let half = size / 2;
        let above = passes(&slots[base + half - 1])?;
        base = std::hint::select_unpredictable(above, base + half, base);
        size -= half;
    }
    if size == 1 && passes(&slots[base])? {
        base += 1;
    }
    Some(base)
}

impl<K: IndexKey> Leaf<K> {
    /// Whether `target` is in the range of this leaf.
    #[inline(always)]
    fn covers(&self, target: Target<'_, K>, is_current: impl Fn() -> bool) -> Option<bool> {
        let is_last = || self.next.load(Ordering::Relaxed).is_null();
        Some(match target {
            Target::At(key) => {
                key.compare(&self.low, &is_current)?.is_ge()
                    && (is_last() || key.compare(&self.high, &is_current)?.is_lt())
            }
            Target::Below(key) => {
                key.compare(&self.low, &is_current)?.is_gt()
                    && (is_last() || key.compare(&self.high, &is_current)?.is_le())
            }
            Target::First => least::<K>().compare(&self.low, &is_current)?.is_eq(),
            Target::Last => is_last(),
        })
    }

    /// The position of `key`: where it is, or else where it would be.
    #[inline(always)]
    pub(super) fn find(
        &self,
        key: &K,
        is_current: impl Fn() -> bool,
    ) -> Option<Result<usize, usize>> {
        let count = self.count();
        let position = rank(&self.keys[..count], key, false, &is_current)?;
        let found = position < count && key.compare(&self.keys[position], is_current)?.is_eq();
        Some(if found { Ok(position) } else { Err(position) })
    }
}

impl<K: IndexKey> Inner<K> {
    /// Which child to take on the way to `target`.
    #[inline(always)]
    pub(super) fn route(
        &self,
        target: Target<'_, K>,
        count: usize,
        is_current: impl Fn() -> bool,
    ) -> Option<usize> {
        let separators = &self.separators[..count.saturating_sub(1)];
        match target {
            Target::At(key) => rank(separators, key, true, is_current),
            Target::Below(key) => rank(separators, key, false, is_current),
            Target::First => Some(0),
            Target::Last => Some(separators.len()),
        }
    }
}

impl<K: IndexKey> BPlusTree<K> {
    /// Looks up a key. Never in a region: to enter one takes longer than to validate a descent.
    pub fn get(&self, key: &K, hint: &mut LeafHint<K>) -> Lookup {
        let mut backoff = Backoff::new();
        loop {
            if let Some(lookup) = self.try_get(&Optimistic, key, hint) {
                return lookup;
            }
            backoff.pause();
        }
    }

    /// Runs an attempt of an operation on the leaf for `target` in a hardware region. `None` if
    /// there is none, or it gave up, or the attempt must start again.
    #[inline(always)]
    pub(super) fn in_region<R>(
        &self,
        target: Target<'_, K>,
        worker: &impl IndexWorker,
        attempt: impl Fn(&InRegion<'_>) -> Option<R>,
    ) -> Option<R> {
        let still_locked = || self.find_leaf(&Optimistic, target, &LeafHint::new()).is_none();
        worker.regions().run(|region| attempt(&InRegion(region)), still_locked).flatten()
    }

    #[inline(always)]
    pub(super) fn try_get(
        &self,
        access: &impl Access,
        key: &K,
        hint: &LeafHint<K>,
    ) -> Option<Lookup> {
        let place = self.find_leaf(access, Target::At(key), hint)?;
        let leaf = place.leaf;
        let is_current = || access.is_current(&leaf.node.version, place.version);
        let lookup = match leaf.find(key, is_current)? {
            Ok(position) => Lookup::Found(leaf.addresses[position].load(Ordering::Relaxed)),
            Err(_) => Lookup::Absent(place.node_version()),
        };
        #[cfg(weft_sim)]
        if weft_htm::planted::Bug::LeafNotValidated.is_planted() {
            return Some(lookup);
        }
        is_current().then_some(lookup)
    }

    /// The leaf for `target`, from the hint or by a descent; the hint then remembers it.
    #[inline(always)]
    pub(super) fn find_leaf(
        &self,
        access: &impl Access,
        target: Target<'_, K>,
        hint: &LeafHint<K>,
    ) -> Option<Place<'_, K>> {
        if let Some(place) = hint.leaf_for(access, target) {
            return Some(place);
        }
        let (_, place) = self.descend(access, target, |_, _, _| true)?;
        hint.remember(place.leaf);
        Some(place)
    }

    /// Goes from the root to the leaf for `target` and returns it with its parent. `visit` is
    /// shown every inner node on the way, after the node it came through; if it returns false
    /// (it has changed something, or failed to), the descent ends there.
    #[inline(always)]
    pub(super) fn descend<'t>(
        &'t self,
        access: &impl Access,
        target: Target<'_, K>,
        mut visit: impl FnMut(&Parent<'t, K>, &'t Inner<K>, u64) -> bool,
    ) -> Option<(Parent<'t, K>, Place<'t, K>)> {
        let root = &self.root;
        let version = access.version(&root.version)?;
        let mut parent = Parent { inner: None, word: &root.version, version, index: 0 };
        let mut node = root.node.load(Ordering::Relaxed);
        let height = root.height.load(Ordering::Relaxed);
        assert!(!node.is_null(), "the tree was used after it was cleared");
        for _ in 0..height {
            prefetch::<Inner<K>>(node.cast());
            let version = enter(access, &parent, node)?;
            // SAFETY: `enter` found the node to be part of the tree since this worker was
            // pinned, so it is not freed; and it is an inner node, by the height.
            let inner = unsafe { &*node.cast::<Inner<K>>() };
            if !visit(&parent, inner, version) {
                return None;
            }
            let is_current = || access.is_current(&inner.node.version, version);
            let index = inner.route(target, inner.count(), is_current)?;
            node = inner.child(index);
            parent = Parent { inner: Some(inner), word: &inner.node.version, version, index };
        }
        prefetch::<Leaf<K>>(node.cast());
        let version = enter(access, &parent, node)?;
        // SAFETY: as above; it is a leaf, by the height.
        let leaf = unsafe { &*node.cast::<Leaf<K>>() };
        Some((parent, Place { leaf, version }))
    }
}

/// The version of `node`, a child just read from `parent`, and at which it is still that.
#[inline(always)]
fn enter<K: IndexKey>(
    access: &impl Access,
    parent: &Parent<'_, K>,
    node: *const Node,
) -> Option<u64> {
    if !access.is_current(parent.word, parent.version) {
        return None;
    }
    // SAFETY: the parent had this child while it had this version, which is one that it had
    // since this worker was pinned. So the child, if retired since, has not been freed.
    let version = access.version(unsafe { &(*node).version })?;
    access.is_current(parent.word, parent.version).then_some(version)
}

/// Asks for all cache lines of a node at once, before they are needed. (Without this, each step
/// of the search in a node that is not cached waits for memory: random reads take twice as long.)
#[inline(always)]
pub(super) fn prefetch<N>(node: *const N) {
    prefetch_lines(node.cast(), size_of::<N>());
}
