//! Search: finding a leaf, and a key in it.
//!
//! A descent reads a node, takes the pointer to a child, and then checks twice that the node has not changed.
//! The first check comes before it follows the pointer, which otherwise might lead into freed memory. The
//! second comes after it has read the child's version; otherwise the child might have handed part of its
//! range to a new sibling in between. From then on the child's own version is enough. So a reader writes
//! nothing, and a writer locks only the nodes that it changes. If a check fails, the operation starts again
//! at the root.
//!
//! The software algorithm and the hardware region differ only in how they find out that a node has not
//! changed. [`Access`] is the interface for that.

use std::cell::Cell;
use std::cmp;
use std::ptr::{self, NonNull};

use arrayvec::ArrayVec;
use weft_htm::Region;
use weft_htm::prefetch::{BATCH_KEYS, prefetch_lines};
use weft_htm::word::{Ordering, Word, fence, spin_loop, yield_now};

use super::super::{IndexKey, IndexWorker, Lookup, NodeVersion};
use super::BPlusTree;
use super::node::{Inner, LOCKED, Leaf, Node, OBSOLETE, least};

/// How an operation makes sure that the nodes that it reads and writes do not change under it.
pub(super) trait Access {
    /// Returns the version of a node that is part of the tree and that no other thread is changing. `None`:
    /// start again at the root.
    fn version(&self, word: &Word) -> Option<u64>;

    /// Returns whether the node still has that version. If so, everything that was read of it since
    /// [`Access::version`] is what the node held during all that time.
    fn is_current(&self, word: &Word, version: u64) -> bool;

    /// Locks the node if it still has that version. The `unlock_…` functions of `node` release the lock.
    fn lock(&self, word: &Word, version: u64) -> bool;
}

/// Optimistic lock coupling, the software algorithm. Every node is a sequence lock.
///
/// Why relaxed accesses to the rest of a node are enough: say a reader's load returned a value that a writer
/// stored under the lock. There is a fence in `is_current` after that load, and a fence in `lock` before that
/// store. They make the reader's second load of the version see the writer's lock bit or something later. So
/// if the second load still sees the version of the first load, that version is from the writer's unlock or
/// later. The first load, an Acquire, read it from a Release store. So everything that the writer did before
/// happened before the reader's first load, and so did, through the Acquire of each `lock`, everything that
/// earlier writers did. That includes what a writer had stored in a child or in a key's tail before it stored
/// the pointer to it.
pub(super) struct OptimisticAccess;

impl Access for OptimisticAccess {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn version(&self, word: &Word) -> Option<u64> {
        /// A lock is held for some tens of stores, so it pays to wait a moment for it.
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
        // Acquire: pairs with the Release of the unlocks. After a failure nothing more is read.
        let locked = word
            .compare_exchange(version, version | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        // Release: pairs with the fence in `is_current`, see above.
        fence(Ordering::Release);
        locked
    }
}

/// The sequential algorithm in a hardware region. The region itself makes sure that nothing changes, as long
/// as no software twin is working on the same nodes. A writer in a region changes versions as its twin does,
/// so that twins and transactions notice the change.
pub(super) struct RegionAccess<'r>(&'r Region);

impl Access for RegionAccess<'_> {
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
        // `version` has found the node unlocked; if that changes, the region aborts.
        true
    }
}

/// How long to wait before an operation starts again.
pub(super) struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Backoff { attempts: 0 }
    }

    /// Waits briefly, and longer each time; then yields to other threads, one of which may hold the lock.
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

/// The leaf that a worker used last: the one-node buffer of DBX (§6.2). Operations on keys near each other
/// find their leaf in it and skip the descent.
///
/// A hint is valid for one tree, and only as long as the worker stays pinned. It must be
/// [reset](LeafHint::reset) before it is used in the next transaction.
#[derive(Debug)]
pub struct LeafHint<K: IndexKey> {
    /// A cell, because the body of a region may run more than once and so borrows nothing mutably. (If a
    /// region is rolled back, what it wrote here is undone with the rest.)
    leaf: Cell<*const Leaf<K>>,
}

impl<K: IndexKey> LeafHint<K> {
    /// Creates a hint that remembers nothing.
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

    /// Returns the remembered leaf and its version, if the leaf covers `target`.
    #[inline(always)]
    fn leaf_for<'t>(
        &self,
        access: &impl Access,
        target: DescentTarget<'_, K>,
    ) -> Option<LeafPlace<'t, K>> {
        // SAFETY: this worker has reached the leaf since it was last pinned (that is the contract of the
        // type). So even if the leaf was retired since, it has not been freed.
        let leaf = unsafe { self.leaf.get().as_ref() }?;
        let version = access.version(&leaf.node.version)?;
        let covers = leaf.covers(target, || access.is_current(&leaf.node.version, version))?;
        covers.then_some(LeafPlace { leaf, version })
    }
}

impl<K: IndexKey> Default for LeafHint<K> {
    fn default() -> Self {
        LeafHint::new()
    }
}

/// What a descent looks for: the leaf that covers …
pub(super) enum DescentTarget<'k, K> {
    /// … this key.
    At(&'k K),
    /// … the keys just below this one.
    Below(&'k K),
    /// … the least key.
    First,
    /// … the greatest keys.
    Last,
}

impl<K> Clone for DescentTarget<'_, K> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for DescentTarget<'_, K> {}

/// A leaf, with the version at which it was found to cover what was looked for.
pub(super) struct LeafPlace<'t, K: IndexKey> {
    pub(super) leaf: &'t Leaf<K>,
    pub(super) version: u64,
}

impl<K: IndexKey> LeafPlace<'_, K> {
    pub(super) fn node_version(&self) -> NodeVersion {
        // A leaf begins with its version; by it `range` finds the leaf again.
        NodeVersion { word: NonNull::from(self.leaf).cast(), version: self.version }
    }
}

/// The node through which a descent came: an inner node, or the root line.
pub(super) struct Parent<'t, K: IndexKey> {
    /// `None`: the root line.
    pub(super) inner: Option<&'t Inner<K>>,
    pub(super) word: &'t Word,
    pub(super) version: u64,
    /// The index of the child that was taken.
    pub(super) index: usize,
}

/// Returns how many of the sorted `slots` are less than `key`, or, with `or_equal`, not greater. `None`: the
/// node has changed.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn rank<K: IndexKey>(
    slots: &[K::KeySlot],
    key: &K,
    or_equal: bool,
    is_current: impl Fn() -> bool,
) -> Option<usize> {
    let passes = |slot: &K::KeySlot| {
        let order = key.compare(slot, &is_current)?;
        Some(if or_equal { order != cmp::Ordering::Less } else { order == cmp::Ordering::Greater })
    };
    // A binary search without branches that depend on the keys.
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
    /// Returns whether `target` is in the range of this leaf. `None`: the leaf has changed.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn covers(&self, target: DescentTarget<'_, K>, is_current: impl Fn() -> bool) -> Option<bool> {
        let is_last = || self.next.load(Ordering::Relaxed).is_null();
        Some(match target {
            DescentTarget::At(key) => {
                key.compare(&self.low, &is_current)?.is_ge()
                    && (is_last() || key.compare(&self.high, &is_current)?.is_lt())
            }
            DescentTarget::Below(key) => {
                key.compare(&self.low, &is_current)?.is_gt()
                    && (is_last() || key.compare(&self.high, &is_current)?.is_le())
            }
            DescentTarget::First => least::<K>().compare(&self.low, &is_current)?.is_eq(),
            DescentTarget::Last => is_last(),
        })
    }

    /// Returns the position of `key`: `Ok` if it is there, `Err` if it would be there. `None`: the leaf has
    /// changed.
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
    /// Returns which child to take on the way to `target`. `None`: the node has changed.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn route(
        &self,
        target: DescentTarget<'_, K>,
        count: usize,
        is_current: impl Fn() -> bool,
    ) -> Option<usize> {
        let separators = &self.separators[..count.saturating_sub(1)];
        match target {
            DescentTarget::At(key) => rank(separators, key, true, is_current),
            DescentTarget::Below(key) => rank(separators, key, false, is_current),
            DescentTarget::First => Some(0),
            DescentTarget::Last => Some(separators.len()),
        }
    }
}

impl<K: IndexKey> BPlusTree<K> {
    /// Looks up a key. Never begins a region: to enter one takes longer than to validate a descent.
    pub fn get(&self, key: &K, hint: &mut LeafHint<K>) -> Lookup {
        let mut backoff = Backoff::new();
        loop {
            if let Some(lookup) = self.try_get(&OptimisticAccess, key, hint) {
                return lookup;
            }
            backoff.pause();
        }
    }

    /// Looks up a key by the sequential algorithm, in a region that the caller has begun: nodes are not validated.
    pub fn get_in(&self, region: &Region, key: &K, hint: &LeafHint<K>) -> Lookup {
        loop {
            if let Some(lookup) = self.try_get(&RegionAccess(region), key, hint) {
                return lookup;
            }
            // The hint has led to a node that is no longer part of the tree. No descent from the root does.
            hint.remember(ptr::null());
        }
    }

    /// Looks up a few keys at the same time, and passes the results to `found` in the order of the keys.
    ///
    /// All descents go down by one level before any of them goes further. The node that a descent enters next is
    /// requested from memory when its address is known, and arrives while the other descents go on. So a batch waits
    /// about as long as one look-up. If the first two keys are in the same leaf, the others probably are near them,
    /// and each is looked up with the hint.
    pub fn get_batch(&self, keys: &[K], hint: &mut LeafHint<K>, mut found: impl FnMut(Lookup)) {
        let [first, second, ..] = keys else {
            keys.iter().for_each(|key| found(self.get(key, hint)));
            return;
        };
        found(self.get(first, hint));
        if hint.leaf_for(&OptimisticAccess, DescentTarget::At(second)).is_some() {
            keys[1..].iter().for_each(|key| found(self.get(key, hint)));
            return;
        }
        for batch in keys[1..].chunks(BATCH_KEYS) {
            self.get_by_levels(batch, hint, &mut found);
        }
    }

    /// Looks up at most as many keys as a batch has, level by level.
    fn get_by_levels(&self, keys: &[K], hint: &mut LeafHint<K>, mut found: impl FnMut(Lookup)) {
        let access = &OptimisticAccess;
        // Where each descent is: a node, and the parent from which it was read. `None`: a node has changed, and the
        // key is looked up alone at the end.
        let mut places = ArrayVec::<Option<(Parent<'_, K>, *mut Node)>, BATCH_KEYS>::new();
        let root = &self.root;
        let version = access.version(&root.version);
        let node = root.node.load(Ordering::Relaxed);
        let height = root.height.load(Ordering::Relaxed);
        assert!(!node.is_null(), "the tree was used after it was cleared");
        for _ in keys {
            places.push(version.map(|version| {
                (Parent { inner: None, word: &root.version, version, index: 0 }, node)
            }));
        }
        for level in (0..height).rev() {
            for (key, place) in keys.iter().zip(&mut places) {
                *place = place.take().and_then(|(parent, node)| {
                    let child = Self::step_down(access, &parent, node, DescentTarget::At(key))?;
                    match level {
                        0 => prefetch::<Leaf<K>>(child.1.cast()),
                        _ => prefetch::<Inner<K>>(child.1.cast()),
                    }
                    Some(child)
                });
            }
        }
        for (key, place) in keys.iter().zip(places) {
            let lookup = place.and_then(|(parent, node)| {
                let place = Self::enter_leaf(access, &parent, node)?;
                hint.remember(place.leaf);
                place.look_up(access, key)
            });
            found(lookup.unwrap_or_else(|| self.get(key, hint)));
        }
    }

    /// Runs an attempt of an operation on the leaf for `target` in a hardware region. Returns `None` if there
    /// are no hardware regions, if the region gave up, or if the attempt must start again.
    #[inline(always)]
    pub(super) fn in_region<R>(
        &self,
        target: DescentTarget<'_, K>,
        worker: &impl IndexWorker,
        attempt: impl Fn(&RegionAccess<'_>) -> Option<R>,
    ) -> Option<R> {
        let still_locked = || self.find_leaf(&OptimisticAccess, target, &LeafHint::new()).is_none();
        worker.regions().run(|region| attempt(&RegionAccess(region)), still_locked).flatten()
    }

    #[inline(always)]
    pub(super) fn try_get(
        &self,
        access: &impl Access,
        key: &K,
        hint: &LeafHint<K>,
    ) -> Option<Lookup> {
        self.find_leaf(access, DescentTarget::At(key), hint)?.look_up(access, key)
    }

    /// Returns the leaf for `target`, from the hint or by a descent. The hint then remembers it.
    #[inline(always)]
    pub(super) fn find_leaf(
        &self,
        access: &impl Access,
        target: DescentTarget<'_, K>,
        hint: &LeafHint<K>,
    ) -> Option<LeafPlace<'_, K>> {
        if let Some(place) = hint.leaf_for(access, target) {
            return Some(place);
        }
        let (_, place) = self.descend(access, target, |_, _, _| true)?;
        hint.remember(place.leaf);
        Some(place)
    }

    /// Goes from the root to the leaf for `target`, and returns the leaf with its parent. Calls `visit` with
    /// every inner node on the way, and with the node through which it came there. If `visit` returns false
    /// (it has changed something, or failed to), the descent ends there.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn descend<'t>(
        &'t self,
        access: &impl Access,
        target: DescentTarget<'_, K>,
        mut visit: impl FnMut(&Parent<'t, K>, &'t Inner<K>, u64) -> bool,
    ) -> Option<(Parent<'t, K>, LeafPlace<'t, K>)> {
        let root = &self.root;
        let version = access.version(&root.version)?;
        let mut parent = Parent { inner: None, word: &root.version, version, index: 0 };
        let mut node = root.node.load(Ordering::Relaxed);
        let height = root.height.load(Ordering::Relaxed);
        assert!(!node.is_null(), "the tree was used after it was cleared");
        for _ in 0..height {
            prefetch::<Inner<K>>(node.cast());
            let version = enter(access, &parent, node)?;
            // SAFETY: `enter` found that the node has been part of the tree since this worker was pinned, so
            // the node is not freed. By the height it is an inner node.
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
        let place = Self::enter_leaf(access, &parent, node)?;
        Some((parent, place))
    }

    /// Goes from an inner node, which was read from its parent, to the child for `target`. Returns the inner node as
    /// a parent, and the child. `None`: one of the two nodes has changed.
    #[inline(always)]
    fn step_down<'t>(
        access: &impl Access,
        parent: &Parent<'t, K>,
        node: *mut Node,
        target: DescentTarget<'_, K>,
    ) -> Option<(Parent<'t, K>, *mut Node)> {
        let version = enter(access, parent, node)?;
        // SAFETY: `enter` found that the node has been part of the tree since this worker was pinned, so the node is
        // not freed. The caller knows by the height that it is an inner node.
        let inner: &'t Inner<K> = unsafe { &*node.cast::<Inner<K>>() };
        let is_current = || access.is_current(&inner.node.version, version);
        let index = inner.route(target, inner.count(), is_current)?;
        let below = Parent { inner: Some(inner), word: &inner.node.version, version, index };
        Some((below, inner.child(index)))
    }

    /// Goes from a parent to a leaf, which was read from it. `None`: one of the two nodes has changed.
    #[inline(always)]
    fn enter_leaf<'t>(
        access: &impl Access,
        parent: &Parent<'t, K>,
        node: *mut Node,
    ) -> Option<LeafPlace<'t, K>> {
        let version = enter(access, parent, node)?;
        // SAFETY: as in `step_down`. The caller knows by the height that it is a leaf.
        let leaf = unsafe { &*node.cast::<Leaf<K>>() };
        Some(LeafPlace { leaf, version })
    }
}

impl<K: IndexKey> LeafPlace<'_, K> {
    /// Looks up a key that this leaf covers. `None`: the leaf has changed.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn look_up(&self, access: &impl Access, key: &K) -> Option<Lookup> {
        let leaf = self.leaf;
        let is_current = || access.is_current(&leaf.node.version, self.version);
        let lookup = match leaf.find(key, is_current)? {
            Ok(position) => Lookup::Found(leaf.addresses[position].load(Ordering::Relaxed)),
            Err(_) => Lookup::Absent(self.node_version()),
        };
        #[cfg(weft_sim)]
        if weft_htm::planted::Bug::LeafNotValidated.is_planted() {
            return Some(lookup);
        }
        is_current().then_some(lookup)
    }
}

/// Returns the version of `node`, a child that was just read from `parent`, if it is still its child at that
/// version.
#[inline(always)]
fn enter<K: IndexKey>(
    access: &impl Access,
    parent: &Parent<'_, K>,
    node: *const Node,
) -> Option<u64> {
    // The first check: the pointer to the child is valid.
    if !access.is_current(parent.word, parent.version) {
        return None;
    }
    // SAFETY: the parent had this child while it had this version, and it has had this version at some time
    // since this worker was pinned. So even if the child was retired since, it has not been freed.
    let version = access.version(unsafe { &(*node).version })?;
    // The second check: the child had not handed part of its range to a sibling before its version was read.
    access.is_current(parent.word, parent.version).then_some(version)
}

/// Prefetches all cache lines of a node at once. (Without this, each step of the search in a node that is not
/// in the cache waits for memory, and random reads take twice as long.)
#[inline(always)]
pub(super) fn prefetch<N>(node: *const N) {
    prefetch_lines(node.cast(), size_of::<N>());
}
