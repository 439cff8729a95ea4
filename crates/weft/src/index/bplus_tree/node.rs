//! The nodes: their layout, their version words, and the steps that change one node.
//!
//! A leaf holds sorted keys and the address stored under each. An inner node holds sorted separators, and one
//! more child than separators. The child at index `i` covers the keys `k` with `separator[i - 1] <= k <
//! separator[i]`. The number of levels of inner nodes is stored once, beside the root pointer. So a node need
//! not say whether it is a leaf.
//!
//! ```text
//!  leaf                               inner node                       root line
//!  +---------------------------+     +---------------------------+    +-------------------+
//!  | version                   |     | version                   |    | version           |
//!  | occupancy                 |     | occupancy (children)      |    | node              |
//!  | next leaf                 |     | separators                |    | height            |
//!  | low fence   high fence    |     |                           |    +-------------------+
//!  | keys                      |     | children                  |
//!  | addresses                 |     +---------------------------+
//!  +---------------------------+
//!
//!  version:    63                          10 9            2          1         0
//!             | other changes so far         | insertions  | obsolete | locked |
//!
//!  occupancy:  63        48 47            32 31            16 15               0
//!             | 0          | run             | expected      | count            |
//! ```
//!
//! A leaf covers the keys `k` with `low <= k < high`. Its fences are exact: they change only under the leaf's
//! lock. At any time at which no leaf is locked, the ranges of all leaves together are the whole key space,
//! without a gap or an overlap. The first leaf's low fence is the least possible key. The last leaf is the
//! one without a next leaf, and has no high fence.
//!
//! A leaf's version has a separate count of the keys inserted since the last change of any other kind. A
//! transaction that finds nothing but insertions knows that all keys inserted since then are still in the
//! leaf, and can check whether they concern it (`range`). The count never exceeds the number of keys for
//! which a leaf has room.
//!
//! A node whose range went to a neighbour is *obsolete* for ever. An operation that still reaches it starts
//! again at the root.
//!
//! `expected` and `run` in a leaf's occupancy remember ascending insertions: `expected` is the position at
//! which the next key of the present sequence would be inserted, and `run` is how many keys in a row were
//! inserted there. A split consults them (see [`Leaf::split_point`]).
//!
//! All words of a node except its version are accessed with relaxed loads and stores. A reader uses what it
//! has read only after it has found the version unchanged. `search::OptimisticAccess` argues why that is enough.

use std::alloc::Layout;
use std::array;
use std::ptr::{self, NonNull};

use weft_htm::word::{Ordering, Word, WordPointer};

use super::super::{IndexKey, IndexWorker};

/// The most keys in a leaf. With 29, a leaf of one-word keys takes 512 bytes. That is twice the paper's node:
/// with 256 bytes random reads took half as long again. With 1,024 bytes they would be a little faster still,
/// but transactions that insert near each other would conflict more often.
#[cfg(not(any(loom, shuttle)))]
pub(super) const LEAF_CAPACITY: usize = 29;
/// The most children of an inner node. With 63, an inner node of one-word keys takes 1,024 bytes.
#[cfg(not(any(loom, shuttle)))]
pub(super) const INNER_CAPACITY: usize = 63;

/// Under a model checker nodes are tiny, so that a few keys split them.
#[cfg(any(loom, shuttle))]
pub(super) const LEAF_CAPACITY: usize = 2;
/// Under a model checker nodes are tiny, so that a few keys split them.
#[cfg(any(loom, shuttle))]
pub(super) const INNER_CAPACITY: usize = 4;

// Both halves of a split inner node must have two children (see `remove`), and both halves of a split leaf a
// key. A count must fit its field of the occupancy word.
const _: () = assert!(INNER_CAPACITY >= 4 && INNER_CAPACITY < 1 << FIELD_BITS);
const _: () = assert!(LEAF_CAPACITY >= 2 && LEAF_CAPACITY < 1 << FIELD_BITS);

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(size_of::<Leaf<u64>>() == 512 && size_of::<Inner<u64>>() == 1024);
    assert!(size_of::<RootLine>() == 64);
};

/// Version bit: a writer is changing the node.
pub(super) const LOCKED: u64 = 1;
/// Version bit: the node is no longer part of the tree.
pub(super) const OBSOLETE: u64 = 2;
/// What an insertion into a leaf with room adds to its version.
const INSERTION: u64 = 4;
/// The lowest bit of the count of all other changes. It is also a node's first version.
pub(super) const CHANGE: u64 = 1 << 10;

// Between two other changes, the count of insertions must not overflow into theirs.
const _: () = assert!((LEAF_CAPACITY as u64) < CHANGE / INSERTION);

/// Returns the version after the insertion of `count` keys at `version`. One lock may cover the insertion of
/// several keys, but each is counted.
#[inline(always)]
pub(super) const fn after_insertions(version: u64, count: usize) -> u64 {
    version + INSERTION * count as u64
}

/// Returns the version after any other change at `version`.
#[inline(always)]
pub(super) const fn after_change(version: u64) -> u64 {
    (version | (CHANGE - 1)) + 1
}

/// Returns whether a leaf that was unlocked at both versions has only had keys inserted between them.
#[inline(always)]
pub(super) const fn only_inserted_since(noted: u64, now: u64) -> bool {
    noted / CHANGE == now / CHANGE
}

const FIELD_BITS: u32 = 16;
const FIELD_MASK: u64 = (1 << FIELD_BITS) - 1;

/// The beginning of leaves and inner nodes. A child pointer points to it.
#[repr(C)]
pub(super) struct Node {
    pub(super) version: Word,
    occupancy: Word,
}

impl Node {
    fn new(count: usize) -> Self {
        Node { version: Word::new(CHANGE), occupancy: Word::new(count as u64) }
    }

    /// Returns the number of keys or children. While the node is being changed, this can be any number up to
    /// `capacity`, so an index below it is always within the node's arrays.
    #[inline(always)]
    fn count(&self, capacity: usize) -> usize {
        ((self.occupancy.load(Ordering::Relaxed) & FIELD_MASK) as usize).min(capacity)
    }

    fn set_count(&self, count: usize) {
        self.occupancy.store(count as u64, Ordering::Relaxed);
    }
}

/// Releases the lock that was taken at `version`, on a leaf into which `count` keys were inserted without a
/// split. Release: see [`unlock_changed`].
#[inline(always)]
pub(super) fn unlock_inserted(word: &Word, version: u64, count: usize) {
    word.store(after_insertions(version, count), Ordering::Release);
}

/// Releases the lock that was taken at `version`, on a node that has changed.
///
/// Release: what was changed becomes visible no later than the new version, to a thread that loads that
/// version with Acquire (`Access::version`, `Access::lock`).
#[inline(always)]
pub(super) fn unlock_changed(word: &Word, version: u64) {
    word.store(after_change(version), Ordering::Release);
}

/// Releases the lock that was taken at `version`, on a node that has not changed. Release: see
/// [`unlock_changed`].
#[inline(always)]
pub(super) fn unlock_unchanged(word: &Word, version: u64) {
    word.store(version, Ordering::Release);
}

/// Releases the lock that was taken at `version`, on a node that is no longer part of the tree. Release: see
/// [`unlock_changed`].
#[inline(always)]
pub(super) fn unlock_obsolete(word: &Word, version: u64) {
    word.store(after_change(version) | OBSOLETE, Ordering::Release);
}

/// The root pointer and the height of the tree, on a cache line of their own. It is locked and validated like
/// a node, and takes the place of the root's parent.
#[repr(C, align(64))]
pub(super) struct RootLine {
    pub(super) version: Word,
    /// The root; null once the tree has been cleared.
    pub(super) node: WordPointer<Node>,
    /// The number of levels of inner nodes above the leaves.
    pub(super) height: Word,
}

/// A node of the lowest level.
#[repr(C, align(64))]
pub(super) struct Leaf<K: IndexKey> {
    pub(super) node: Node,
    pub(super) next: WordPointer<Leaf<K>>,
    pub(super) low: K::KeySlot,
    pub(super) high: K::KeySlot,
    pub(super) keys: [K::KeySlot; LEAF_CAPACITY],
    pub(super) addresses: [Word; LEAF_CAPACITY],
}

/// How to split a full leaf to make room for a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitPoint {
    /// How many of the present keys stay in the left half.
    pub(super) keep: usize,
    /// Whether the new key goes to the left half.
    pub(super) into_left: bool,
    /// Whether the new key continues an ascending sequence.
    pub(super) ascending: bool,
}

impl<K: IndexKey> Leaf<K> {
    /// Allocates an empty leaf that covers all keys.
    pub(super) fn allocate(worker: &impl IndexWorker) -> NonNull<Self> {
        let leaf = worker.allocate(Layout::new::<Self>()).cast::<Self>();
        let empty = Leaf {
            node: Node::new(0),
            next: WordPointer::new(ptr::null_mut()),
            low: K::KeySlot::default(),
            high: K::KeySlot::default(),
            keys: array::from_fn(|_| K::KeySlot::default()),
            addresses: array::from_fn(|_| Word::new(0)),
        };
        // SAFETY: `leaf` is fresh memory of this layout, and nothing else has its address.
        unsafe { leaf.write(empty) };
        leaf
    }

    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.node.count(LEAF_CAPACITY)
    }

    /// Inserts the key in `slot` at `position`, where it belongs. The leaf is locked and not full.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn insert_at(&self, position: usize, slot: &K::KeySlot, address: u64) {
        let occupancy = self.node.occupancy.load(Ordering::Relaxed);
        let count = (occupancy & FIELD_MASK) as usize;
        debug_assert!(position <= count && count < LEAF_CAPACITY);
        for index in (position..count).rev() {
            K::move_slot(&self.keys[index], &self.keys[index + 1]);
            copy(&self.addresses[index], &self.addresses[index + 1]);
        }
        K::move_slot(slot, &self.keys[position]);
        self.addresses[position].store(address, Ordering::Relaxed);
        let run = if continues(occupancy, position) { run_length(occupancy) + 1 } else { 0 };
        self.node.occupancy.store(occupied(count + 1, position + 1, run), Ordering::Relaxed);
    }

    /// Inserts the keys of a run one after the other from `position` on, where they belong. The leaf is locked,
    /// has room for all of them, and is left as if each had been inserted by [`Leaf::insert_at`].
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn insert_run_at(
        &self,
        position: usize,
        run: &[(K, u64)],
        worker: &impl IndexWorker,
    ) {
        debug_assert!(K::IS_IN_LINE, "storing a key under a lock must not allocate");
        let occupancy = self.node.occupancy.load(Ordering::Relaxed);
        let count = (occupancy & FIELD_MASK) as usize;
        let added = run.len();
        debug_assert!(added > 0 && position <= count && count + added <= LEAF_CAPACITY);
        for index in (position..count).rev() {
            K::move_slot(&self.keys[index], &self.keys[index + added]);
            copy(&self.addresses[index], &self.addresses[index + added]);
        }
        for (index, (key, address)) in (position..).zip(run) {
            key.store(&self.keys[index], worker);
            self.addresses[index].store(*address, Ordering::Relaxed);
        }
        // The first key continues the sequence or begins one. The others continue it.
        let before = if continues(occupancy, position) { run_length(occupancy) + 1 } else { 0 };
        let ascending = before + (added as u64 - 1);
        let occupied = occupied(count + added, position + added, ascending);
        self.node.occupancy.store(occupied, Ordering::Relaxed);
    }

    /// Removes the key at `position` and moves the content of its slot to `removed`. The leaf is locked.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn remove_at(&self, position: usize, removed: &K::KeySlot) {
        let count = self.count();
        debug_assert!(position < count);
        K::move_slot(&self.keys[position], removed);
        for index in position + 1..count {
            K::move_slot(&self.keys[index], &self.keys[index - 1]);
            copy(&self.addresses[index], &self.addresses[index - 1]);
        }
        self.node.set_count(count - 1);
    }

    /// Decides where to split this full, locked leaf for a key that belongs at `position`.
    ///
    /// A key that continues an ascending sequence, or that is beyond the last key of the last leaf, splits
    /// the leaf directly after itself. The sequence then goes on at the end of the left half and, when that
    /// is full, alone in a leaf of its own. So many interleaved sequences, each ascending below its own
    /// prefix, leave full leaves behind. Any other key splits the leaf in the middle.
    pub(super) fn split_point(&self, position: usize) -> SplitPoint {
        const HALF: usize = LEAF_CAPACITY.div_ceil(2);
        let at_end = position == LEAF_CAPACITY;
        let occupancy = self.node.occupancy.load(Ordering::Relaxed);
        let ascending = (continues(occupancy, position) && run_length(occupancy) > 0)
            || (at_end && self.next.load(Ordering::Relaxed).is_null());
        if ascending {
            SplitPoint { keep: position, into_left: !at_end, ascending }
        } else if position < HALF {
            SplitPoint { keep: HALF - 1, into_left: true, ascending }
        } else {
            SplitPoint { keep: HALF, into_left: false, ascending }
        }
    }

    /// Splits this full, locked leaf at `point`: moves its upper part to `right`, which is empty and not
    /// published yet, and inserts the key in `slot`. Returns the separator between the two.
    pub(super) fn split(
        &self,
        right: NonNull<Self>,
        point: SplitPoint,
        position: usize,
        slot: &K::KeySlot,
        address: u64,
        worker: &impl IndexWorker,
    ) -> K {
        // SAFETY: `right` was allocated by the caller and is not published yet, and therefore alive.
        let sibling = unsafe { right.as_ref() };
        let run = run_length(self.node.occupancy.load(Ordering::Relaxed));
        // Move the upper part.
        let moved = LEAF_CAPACITY - point.keep;
        for index in 0..moved {
            K::move_slot(&self.keys[point.keep + index], &sibling.keys[index]);
            copy(&self.addresses[point.keep + index], &sibling.addresses[index]);
        }
        self.node.set_count(point.keep);
        sibling.node.set_count(moved);
        // Insert the key into its half, and let an ascending sequence continue there.
        let (half, position) =
            if point.into_left { (self, position) } else { (sibling, position - point.keep) };
        half.insert_at(position, slot, address);
        if point.ascending {
            let count = half.count();
            half.node.occupancy.store(occupied(count, position + 1, run + 1), Ordering::Relaxed);
        }

        // Link the new leaf, and set the fences between the two.
        let separator = load_locked::<K>(&sibling.keys[0]);
        let next = self.next.load(Ordering::Relaxed);
        if !next.is_null() {
            K::move_slot(&self.high, &sibling.high);
            sibling.next.store(next, Ordering::Relaxed);
        }
        separator.store(&sibling.low, worker);
        separator.store(&self.high, worker);
        self.next.store(right.as_ptr(), Ordering::Relaxed);
        separator
    }

    /// Takes over the range and the keys of the leaf to the right. Both are locked, and one of them is empty.
    /// The two fences between them, which are no longer needed, are moved to `fences`.
    pub(super) fn absorb(&self, right: &Self, fences: &[K::KeySlot; 2]) {
        debug_assert!(self.count() == 0 || right.count() == 0);
        if self.count() == 0 {
            let count = right.count();
            for index in 0..count {
                K::move_slot(&right.keys[index], &self.keys[index]);
                copy(&right.addresses[index], &self.addresses[index]);
            }
            self.node.set_count(count);
        }
        K::move_slot(&self.high, &fences[0]);
        K::move_slot(&right.low, &fences[1]);
        let next = right.next.load(Ordering::Relaxed);
        if next.is_null() {
            K::move_slot(&K::KeySlot::default(), &self.high);
        } else {
            K::move_slot(&right.high, &self.high);
        }
        self.next.store(next, Ordering::Relaxed);
    }
}

/// A node above the leaves.
#[repr(C, align(64))]
pub(super) struct Inner<K: IndexKey> {
    pub(super) node: Node,
    pub(super) separators: [K::KeySlot; INNER_CAPACITY - 1],
    pub(super) children: [WordPointer<Node>; INNER_CAPACITY],
}

impl<K: IndexKey> Inner<K> {
    /// Allocates an inner node without children.
    pub(super) fn allocate(worker: &impl IndexWorker) -> NonNull<Self> {
        let inner = worker.allocate(Layout::new::<Self>()).cast::<Self>();
        let empty = Inner {
            node: Node::new(0),
            separators: array::from_fn(|_| K::KeySlot::default()),
            children: array::from_fn(|_| WordPointer::new(ptr::null_mut())),
        };
        // SAFETY: `inner` is fresh memory of this layout, and nothing else has its address.
        unsafe { inner.write(empty) };
        inner
    }

    /// Returns the number of children.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.node.count(INNER_CAPACITY)
    }

    /// Returns the child at `index`. The result is valid only if the node has not changed.
    #[inline(always)]
    pub(super) fn child(&self, index: usize) -> *mut Node {
        self.children[index].load(Ordering::Relaxed)
    }

    /// Makes `left` and `right` the two children of this node, which is not published yet.
    pub(super) fn adopt(
        &self,
        left: NonNull<Node>,
        separator: &K,
        right: NonNull<Node>,
        worker: &impl IndexWorker,
    ) {
        self.children[0].store(left.as_ptr(), Ordering::Relaxed);
        separator.store(&self.separators[0], worker);
        self.children[1].store(right.as_ptr(), Ordering::Relaxed);
        self.node.set_count(2);
    }

    /// Inserts `child` directly after the child at `index`. The node is locked and not full.
    pub(super) fn insert_child(
        &self,
        index: usize,
        separator: &K,
        child: NonNull<Node>,
        worker: &impl IndexWorker,
    ) {
        let count = self.count();
        debug_assert!(index < count && count < INNER_CAPACITY);
        for place in (index..count - 1).rev() {
            K::move_slot(&self.separators[place], &self.separators[place + 1]);
            copy_pointer(&self.children[place + 1], &self.children[place + 2]);
        }
        separator.store(&self.separators[index], worker);
        self.children[index + 1].store(child.as_ptr(), Ordering::Relaxed);
        self.node.set_count(count + 1);
    }

    /// Removes the child at `index`, which is not the first, and the separator before it. The content of the
    /// separator's slot is moved to `removed`. The node is locked.
    pub(super) fn remove_child(&self, index: usize, removed: &K::KeySlot) {
        let count = self.count();
        debug_assert!(index > 0 && index < count);
        K::move_slot(&self.separators[index - 1], removed);
        for place in index + 1..count {
            K::move_slot(&self.separators[place - 1], &self.separators[place - 2]);
            copy_pointer(&self.children[place], &self.children[place - 1]);
        }
        self.node.set_count(count - 1);
    }

    /// Moves all children but the first `keep` to `right`, which is empty and not published yet. The
    /// separator between the two nodes is moved to `separator`. The node is locked.
    pub(super) fn split(&self, right: &Self, keep: usize, separator: &K::KeySlot) {
        let count = self.count();
        debug_assert!(keep >= 2 && count - keep >= 2);
        K::move_slot(&self.separators[keep - 1], separator);
        for index in keep..count {
            copy_pointer(&self.children[index], &right.children[index - keep]);
            if index > keep {
                K::move_slot(&self.separators[index - 1], &right.separators[index - keep - 1]);
            }
        }
        self.node.set_count(keep);
        right.node.set_count(count - keep);
    }

    /// Moves all children of `right`, its neighbour, into this node if they fit; otherwise divides their
    /// children evenly. Both nodes are locked, and so is their parent, whose slot between them is
    /// `separator`. Returns whether `right` is now empty. In that case the content of `separator` has moved
    /// into this node.
    pub(super) fn merge_or_share(&self, separator: &K::KeySlot, right: &Self) -> bool {
        let (left_count, right_count) = (self.count(), right.count());
        let total = left_count + right_count;
        // Collect all children and separators of both nodes, in order.
        let separators: [K::KeySlot; 2 * INNER_CAPACITY] =
            array::from_fn(|_| K::KeySlot::default());
        let mut children = [ptr::null_mut(); 2 * INNER_CAPACITY];
        for (index, child) in children.iter_mut().enumerate().take(total) {
            let (node, place) =
                if index < left_count { (self, index) } else { (right, index - left_count) };
            *child = node.child(place);
            if index > 0 {
                let from = if place == 0 { separator } else { &node.separators[place - 1] };
                K::move_slot(from, &separators[index - 1]);
            }
        }

        // Deal them out again: the first `keep` children to this node, the rest to `right`.
        let keep = if total <= INNER_CAPACITY { total } else { total / 2 };
        for (index, child) in children.iter().enumerate().take(total) {
            let (node, place) = if index < keep { (self, index) } else { (right, index - keep) };
            node.children[place].store(*child, Ordering::Relaxed);
            if index > 0 {
                let to = if place == 0 { separator } else { &node.separators[place - 1] };
                K::move_slot(&separators[index - 1], to);
            }
        }
        self.node.set_count(keep);
        right.node.set_count(total - keep);
        keep == total
    }
}

/// Returns the least possible key.
pub(super) fn least<K: IndexKey>() -> K {
    load_locked(&K::KeySlot::default())
}

/// Copies a key out of a slot, in a node that only the caller may write.
pub(super) fn load_locked<K: IndexKey>(slot: &K::KeySlot) -> K {
    K::load(slot, || true).expect("a locked node stays current")
}

#[inline(always)]
fn copy(from: &Word, to: &Word) {
    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
}

#[inline(always)]
fn copy_pointer(from: &WordPointer<Node>, to: &WordPointer<Node>) {
    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
}

fn occupied(count: usize, expected: usize, run: u64) -> u64 {
    count as u64 | (expected as u64) << FIELD_BITS | run.min(FIELD_MASK) << (2 * FIELD_BITS)
}

/// Returns whether a key at `position` comes directly after the one inserted last.
fn continues(occupancy: u64, position: usize) -> bool {
    occupancy >> FIELD_BITS & FIELD_MASK == position as u64
}

fn run_length(occupancy: u64) -> u64 {
    occupancy >> (2 * FIELD_BITS) & FIELD_MASK
}
