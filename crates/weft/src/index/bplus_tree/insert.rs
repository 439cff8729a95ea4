//! Insertion: get-with-insert, and the splits that it causes.
//!
//! An insertion first tries to change the leaf alone: it finds the leaf like a reader, and locks it if there
//! is room in it. Only a full leaf needs its parent. Then the insertion descends once more and splits every
//! full inner node that it meets, each under its own and its parent's lock. It starts again after each of
//! these splits. So when it arrives at the leaf, the parent has room for one more child.
//!
//! A *run* is a sequence of keys to be inserted in their order. [`BPlusTree::insert_run`] inserts its first
//! keys under one lock of one leaf: those that ascend, that have a place between the same two neighbours in the
//! leaf, and for which there is room. What remains of the run is a run again, which the caller inserts next. To
//! other threads it is one change of the leaf, which counts as many insertions as there are keys.

use std::alloc::Layout;
use std::ptr::NonNull;

use weft_htm::word::Ordering;

use super::super::key::StagedKey;
use super::super::{IndexKey, IndexWorker, Insertion, NodeChange, NodeVersion, RunInsertion};
use super::BPlusTree;
use super::node::{
    CHANGE, INNER_CAPACITY, Inner, LEAF_CAPACITY, Leaf, Node, after_change, after_insertions,
    load_locked, unlock_changed, unlock_inserted, unlock_unchanged,
};
use super::search::{
    Access, Backoff, DescentTarget, LeafHint, LeafPlace, OptimisticAccess, Parent,
};

/// The result of an attempt to insert a run into one leaf.
enum RunAttempt {
    Done(RunInsertion),
    /// The first key is absent, and the leaf where it would be is full.
    Full,
}

/// The result of an attempt that touches one leaf.
enum InsertAttempt {
    Done(Insertion),
    /// The key is absent, and the leaf where it would be is full.
    Full,
}

impl<K: IndexKey> BPlusTree<K> {
    /// Returns the address stored under `key`, or inserts `address` if the key is absent.
    pub fn get_or_insert(
        &self,
        key: &K,
        address: u64,
        hint: &mut LeafHint<K>,
        worker: &impl IndexWorker,
    ) -> Insertion {
        debug_assert!(address != 0, "an address is never zero");
        // Allocate what the key keeps out of line before a region begins, since a region must not allocate.
        let staged = StagedKey::new();
        if worker.regions().is_hardware() {
            staged.stage(key, worker);
        }
        let mut backoff = Backoff::new();
        let insertion = loop {
            let attempt = self
                .in_region(DescentTarget::At(key), worker, |region| {
                    self.try_insert(region, key, &staged, address, hint, worker)
                })
                .or_else(|| {
                    self.try_insert(&OptimisticAccess, key, &staged, address, hint, worker)
                });
            let insertion = match attempt {
                Some(InsertAttempt::Done(insertion)) => Some(insertion),
                Some(InsertAttempt::Full) => self.try_split(key, &staged, address, hint, worker),
                None => None,
            };
            if let Some(insertion) = insertion {
                break insertion;
            }
            backoff.pause();
        };
        if let Insertion::Found(_) = insertion {
            staged.free(worker);
        }
        insertion
    }

    /// Inserts keys from the beginning of a run, as many as one leaf takes under one lock. If the first key is
    /// present, returns the address stored under it. The run has at least one key.
    pub fn insert_run(
        &self,
        run: &[(K, u64)],
        hint: &mut LeafHint<K>,
        worker: &impl IndexWorker,
    ) -> RunInsertion {
        let (first, address) = &run[0];
        if const { !K::IS_IN_LINE } || run.len() == 1 {
            return self.get_or_insert(first, *address, hint, worker).into();
        }
        debug_assert!(run.iter().all(|(_, address)| *address != 0), "an address is never zero");
        let mut backoff = Backoff::new();
        loop {
            let attempt = self
                .in_region(DescentTarget::At(first), worker, |region| {
                    self.try_insert_run(region, run, hint, worker)
                })
                .or_else(|| self.try_insert_run(&OptimisticAccess, run, hint, worker));
            match attempt {
                Some(RunAttempt::Done(insertion)) => return insertion,
                // The first key splits the leaf. The rest of the run may then have room.
                Some(RunAttempt::Full) => {
                    return self.get_or_insert(first, *address, hint, worker).into();
                }
                None => backoff.pause(),
            }
        }
    }

    #[inline(always)]
    fn try_insert_run(
        &self,
        access: &impl Access,
        run: &[(K, u64)],
        hint: &LeafHint<K>,
        worker: &impl IndexWorker,
    ) -> Option<RunAttempt> {
        let place = self.find_leaf(access, DescentTarget::At(&run[0].0), hint)?;
        place.insert_run(access, run, worker)
    }

    #[inline(always)]
    fn try_insert(
        &self,
        access: &impl Access,
        key: &K,
        staged: &StagedKey<K>,
        address: u64,
        hint: &LeafHint<K>,
        worker: &impl IndexWorker,
    ) -> Option<InsertAttempt> {
        let place = self.find_leaf(access, DescentTarget::At(key), hint)?;
        place.insert(access, key, staged, address, worker)
    }

    /// Inserts into a leaf that was found full, by splitting it. `None`: start again.
    #[cold]
    fn try_split(
        &self,
        key: &K,
        staged: &StagedKey<K>,
        address: u64,
        hint: &LeafHint<K>,
        worker: &impl IndexWorker,
    ) -> Option<Insertion> {
        let access = &OptimisticAccess;
        let (parent, place) =
            self.descend(access, DescentTarget::At(key), |parent, inner, version| {
                let is_full = inner.count() == INNER_CAPACITY;
                if is_full {
                    self.split_inner(access, parent, inner, version, key, worker);
                }
                !is_full
            })?;
        match place.insert(access, key, staged, address, worker)? {
            InsertAttempt::Done(insertion) => Some(insertion),
            InsertAttempt::Full => {
                self.split_leaf(access, &parent, &place, key, staged, address, hint, worker)
            }
        }
    }

    /// Splits a full leaf, and inserts `key`, which the leaf does not hold.
    #[expect(clippy::too_many_arguments, reason = "where, what, and on whose behalf")]
    fn split_leaf(
        &self,
        access: &impl Access,
        parent: &Parent<'_, K>,
        place: &LeafPlace<'_, K>,
        key: &K,
        staged: &StagedKey<K>,
        address: u64,
        hint: &LeafHint<K>,
        worker: &impl IndexWorker,
    ) -> Option<Insertion> {
        let leaf = place.leaf;
        let slot = staged.stage(key, worker);
        let right = Leaf::<K>::allocate(worker);
        if !lock_with_parent(access, parent, &leaf.node, place.version) {
            // SAFETY: allocated above with this layout, and not published.
            unsafe { worker.free(right.cast(), Layout::new::<Leaf<K>>()) };
            return None;
        }
        let position = match leaf.find(key, || true) {
            Some(Err(position)) => position,
            _ => unreachable!("the locked leaf is the one that did not hold the key"),
        };
        // The split itself, then the link from the parent. The unlocks publish both.
        let point = leaf.split_point(position);
        let separator = leaf.split(right, point, position, slot, address, worker);
        self.add_child(parent, NonNull::from(leaf).cast(), &separator, right.cast(), worker);

        unlock_changed(&leaf.node.version, place.version);
        unlock_changed(parent.word, parent.version);
        hint.remember(if point.into_left { leaf } else { right.as_ptr() });
        Some(Insertion::Inserted {
            change: place.change(after_change),
            sibling: Some(NodeVersion { word: right.cast(), version: CHANGE }),
        })
    }

    /// Splits a full inner node on the way to `key`. Whether that succeeds or not, the caller starts again.
    fn split_inner(
        &self,
        access: &impl Access,
        parent: &Parent<'_, K>,
        inner: &Inner<K>,
        version: u64,
        key: &K,
        worker: &impl IndexWorker,
    ) {
        let right = Inner::<K>::allocate(worker);
        if !lock_with_parent(access, parent, &inner.node, version) {
            // SAFETY: allocated above with this layout, and not published.
            unsafe { worker.free(right.cast(), Layout::new::<Inner<K>>()) };
            return;
        }
        // A key beyond the last separator is probably part of an ascending sequence. Then the left half stays
        // nearly full.
        let child = inner.route(DescentTarget::At(key), INNER_CAPACITY, || true);
        let at_end = child == Some(INNER_CAPACITY - 1);
        let keep = if at_end { INNER_CAPACITY - 2 } else { INNER_CAPACITY / 2 };
        let slot = K::KeySlot::default();
        // SAFETY: not published yet, so not freed.
        inner.split(unsafe { right.as_ref() }, keep, &slot);
        let separator = load_locked::<K>(&slot);
        K::retire(&slot, worker);
        self.add_child(parent, NonNull::from(inner).cast(), &separator, right.cast(), worker);
        unlock_changed(&inner.node.version, version);
        unlock_changed(parent.word, parent.version);
    }

    /// Inserts `right` directly after `left` into their parent, which is locked and has room. The two are the
    /// halves of a node that was split at `separator`. If the root was split, puts a new root above it.
    fn add_child(
        &self,
        parent: &Parent<'_, K>,
        left: NonNull<Node>,
        separator: &K,
        right: NonNull<Node>,
        worker: &impl IndexWorker,
    ) {
        let Some(inner) = parent.inner else {
            let root = Inner::<K>::allocate(worker);
            // SAFETY: not published yet, so not freed.
            unsafe { root.as_ref() }.adopt(left, separator, right, worker);
            self.root.node.store(root.as_ptr().cast(), Ordering::Relaxed);
            let height = self.root.height.load(Ordering::Relaxed);
            self.root.height.store(height + 1, Ordering::Relaxed);
            return;
        };
        inner.insert_child(parent.index, separator, right, worker);
    }
}

impl<K: IndexKey> LeafPlace<'_, K> {
    /// Inserts into this leaf alone, or finds the key in it. `None`: start again.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn insert(
        &self,
        access: &impl Access,
        key: &K,
        staged: &StagedKey<K>,
        address: u64,
        worker: &impl IndexWorker,
    ) -> Option<InsertAttempt> {
        let leaf = self.leaf;
        let is_current = || access.is_current(&leaf.node.version, self.version);
        let attempt = match leaf.find(key, is_current)? {
            Ok(position) => {
                let found = leaf.addresses[position].load(Ordering::Relaxed);
                InsertAttempt::Done(Insertion::Found(found))
            }
            Err(_) if leaf.count() == LEAF_CAPACITY => InsertAttempt::Full,
            Err(position) => {
                let slot = staged.stage(key, worker);
                // Locking checks the version, and with it the position.
                if !access.lock(&leaf.node.version, self.version) {
                    return None;
                }
                leaf.insert_at(position, slot, address);
                unlock_inserted(&leaf.node.version, self.version, 1);
                return Some(InsertAttempt::Done(Insertion::Inserted {
                    change: self.change(|version| after_insertions(version, 1)),
                    sibling: None,
                }));
            }
        };
        is_current().then_some(attempt)
    }

    /// Inserts the first keys of a run into this leaf alone, or finds the first key in it. `None`: start again.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn insert_run(
        &self,
        access: &impl Access,
        run: &[(K, u64)],
        worker: &impl IndexWorker,
    ) -> Option<RunAttempt> {
        let leaf = self.leaf;
        let is_current = || access.is_current(&leaf.node.version, self.version);
        let position = match leaf.find(&run[0].0, is_current)? {
            Ok(position) => {
                let found = leaf.addresses[position].load(Ordering::Relaxed);
                let found = RunAttempt::Done(RunInsertion::Found(found));
                return is_current().then_some(found);
            }
            Err(position) => position,
        };
        let room = LEAF_CAPACITY - leaf.count();
        if room == 0 {
            return is_current().then_some(RunAttempt::Full);
        }
        let count = self.fitting(run, position, room, is_current)?;
        // Locking checks the version, and with it the position and the count.
        if !access.lock(&leaf.node.version, self.version) {
            return None;
        }
        leaf.insert_run_at(position, &run[..count], worker);
        unlock_inserted(&leaf.node.version, self.version, count);
        Some(RunAttempt::Done(RunInsertion::Inserted {
            count,
            change: self.change(|version| after_insertions(version, count)),
            sibling: None,
        }))
    }

    /// Returns how many keys of a run, of which the first belongs at `position`, can be inserted there together.
    /// `None`: the leaf has changed.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn fitting(
        &self,
        run: &[(K, u64)],
        position: usize,
        room: usize,
        is_current: impl Fn() -> bool,
    ) -> Option<usize> {
        let leaf = self.leaf;
        // The keys must be below the next key of the leaf, or else within the leaf's range.
        let above = if position < leaf.count() {
            Some(&leaf.keys[position])
        } else {
            let is_last = leaf.next.load(Ordering::Relaxed).is_null();
            (!is_last).then_some(&leaf.high)
        };
        let mut count = 1;
        for pair in run.windows(2).take(room - 1) {
            let [(before, _), (key, _)] = pair else { break };
            let is_below = match above {
                Some(above) => key.compare(above, &is_current)?.is_lt(),
                None => true,
            };
            if key <= before || !is_below {
                break;
            }
            count += 1;
        }
        Some(count)
    }

    /// Describes the caller's own change to this leaf, which changed its version by `after`.
    fn change(&self, after: impl Fn(u64) -> u64) -> NodeChange {
        let NodeVersion { word, version: before } = self.node_version();
        NodeChange { word, before, after: after(before) }
    }
}

/// Locks a node and its parent. If one of them has changed, locks neither and returns false.
pub(super) fn lock_with_parent<K: IndexKey>(
    access: &impl Access,
    parent: &Parent<'_, K>,
    node: &Node,
    version: u64,
) -> bool {
    if !access.lock(parent.word, parent.version) {
        return false;
    }
    if !access.lock(&node.version, version) {
        unlock_unchanged(parent.word, parent.version);
        return false;
    }
    true
}
