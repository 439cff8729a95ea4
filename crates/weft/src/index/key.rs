//! Keys in an index: words in its nodes, with an out-of-line tail if they do not fit.

use std::alloc::Layout;
use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::ptr::{self, NonNull};
use std::slice;

use smallvec::SmallVec;
use weft_htm::word::{Ordering as Order, Word};

use super::IndexWorker;

/// An encoded key: a byte string whose lexicographic order is the order of the keys.
///
/// There are three forms, chosen by the width of the key's type. `u64` is for keys of up to eight bytes, and
/// `u128` for up to sixteen. Both are left-aligned (the first byte of the encoding is the most significant)
/// and padded with zeros. [`LongKey`] is for all other keys.
pub trait IndexKey: Ord + Clone + Debug + Send + Sync + 'static {
    /// The words of a node that hold one key. A default slot holds the least key, which has nothing out of
    /// line.
    type KeySlot: Default + Send + Sync;

    /// Whether every key lies in its slot completely, so that storing one allocates nothing.
    const IS_IN_LINE: bool = false;

    /// Compares this key with the one in `slot`. The slot may be changing at the same time. Then the result
    /// means nothing, and the caller finds that out by the node's version. `is_current` checks that version.
    /// A form that keeps bytes out of line calls it between loading the address and following it, and returns
    /// `None` if the node has changed.
    fn compare(&self, slot: &Self::KeySlot, is_current: impl Fn() -> bool) -> Option<Ordering>;

    /// Copies the key out of `slot`; `is_current` and `None` as for [`IndexKey::compare`].
    fn load(slot: &Self::KeySlot, is_current: impl Fn() -> bool) -> Option<Self>;

    /// Writes this key into an empty `slot` of a node that only the caller may write.
    fn store(&self, slot: &Self::KeySlot, worker: &impl IndexWorker);

    /// Moves a key (with anything that it keeps out of line) from one slot to another, in nodes that only the
    /// caller may write. `from` keeps its content. It must be overwritten, cleared or excluded by the node's
    /// count before the lock is released.
    fn move_slot(from: &Self::KeySlot, to: &Self::KeySlot);

    /// Retires what the key in `slot` keeps out of line, after the key was removed from the node.
    fn retire(slot: &Self::KeySlot, worker: &impl IndexWorker);

    /// Frees what the key in `slot` keeps out of line, in a node that no other thread can reach any more.
    fn free(slot: &Self::KeySlot, worker: &impl IndexWorker) {
        Self::retire(slot, worker);
    }

    /// Returns a hash of which every bit depends on the whole key.
    fn hash(&self) -> u64;

    /// Returns the key as a number, with the same order. `None` if keys of this form are not numbers.
    fn to_wide(&self) -> Option<u128> {
        None
    }

    /// Returns the greatest key whose number is not greater than `wide`. `None` as for [`IndexKey::to_wide`].
    fn from_wide(wide: u128) -> Option<Self> {
        let _ = wide;
        None
    }
}

/// A key to be inserted, in a slot of its own. What it keeps out of line is allocated once, and neither under
/// a lock nor in a region.
pub(super) struct StagedKey<K: IndexKey> {
    slot: K::KeySlot,
    is_full: Cell<bool>,
}

impl<K: IndexKey> StagedKey<K> {
    /// Creates an empty slot.
    #[inline(always)]
    pub(super) fn new() -> Self {
        StagedKey { slot: K::KeySlot::default(), is_full: Cell::new(false) }
    }

    /// Returns the slot, with the key in it. The first call stores the key.
    #[inline(always)]
    pub(super) fn stage(&self, key: &K, worker: &impl IndexWorker) -> &K::KeySlot {
        if !self.is_full.replace(true) {
            key.store(&self.slot, worker);
        }
        &self.slot
    }

    /// Frees what the key keeps out of line. Called if the key was not moved into the index.
    #[inline(always)]
    pub(super) fn free(&self, worker: &impl IndexWorker) {
        if self.is_full.get() {
            K::free(&self.slot, worker);
        }
    }
}

/// Mixes a word so that its high and low bits depend on all of its bits.
#[inline(always)]
fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xA076_1D64_78BD_642F_u64);
    (product >> 64) as u64 ^ product as u64
}

impl IndexKey for u64 {
    type KeySlot = Word;

    const IS_IN_LINE: bool = true;

    #[inline(always)]
    fn compare(&self, slot: &Word, _is_current: impl Fn() -> bool) -> Option<Ordering> {
        Some(self.cmp(&slot.load(Order::Relaxed)))
    }

    #[inline(always)]
    fn load(slot: &Word, _is_current: impl Fn() -> bool) -> Option<u64> {
        Some(slot.load(Order::Relaxed))
    }

    #[inline(always)]
    fn store(&self, slot: &Word, _worker: &impl IndexWorker) {
        slot.store(*self, Order::Relaxed);
    }

    #[inline(always)]
    fn move_slot(from: &Word, to: &Word) {
        to.store(from.load(Order::Relaxed), Order::Relaxed);
    }

    #[inline(always)]
    fn retire(_slot: &Word, _worker: &impl IndexWorker) {}

    #[inline(always)]
    fn hash(&self) -> u64 {
        mix(*self)
    }

    fn to_wide(&self) -> Option<u128> {
        Some((*self).into())
    }

    fn from_wide(wide: u128) -> Option<u64> {
        Some(u64::try_from(wide).unwrap_or(u64::MAX))
    }
}

/// The more significant word comes first.
impl IndexKey for u128 {
    type KeySlot = [Word; 2];

    const IS_IN_LINE: bool = true;

    #[inline(always)]
    fn compare(&self, slot: &[Word; 2], _is_current: impl Fn() -> bool) -> Option<Ordering> {
        Some(self.cmp(&load_wide(slot)))
    }

    #[inline(always)]
    fn load(slot: &[Word; 2], _is_current: impl Fn() -> bool) -> Option<u128> {
        Some(load_wide(slot))
    }

    #[inline(always)]
    fn store(&self, slot: &[Word; 2], _worker: &impl IndexWorker) {
        slot[0].store((self >> 64) as u64, Order::Relaxed);
        slot[1].store(*self as u64, Order::Relaxed);
    }

    #[inline(always)]
    fn move_slot(from: &[Word; 2], to: &[Word; 2]) {
        to[0].store(from[0].load(Order::Relaxed), Order::Relaxed);
        to[1].store(from[1].load(Order::Relaxed), Order::Relaxed);
    }

    #[inline(always)]
    fn retire(_slot: &[Word; 2], _worker: &impl IndexWorker) {}

    #[inline(always)]
    fn hash(&self) -> u64 {
        mix(mix((self >> 64) as u64) ^ *self as u64)
    }

    fn to_wide(&self) -> Option<u128> {
        Some(*self)
    }

    fn from_wide(wide: u128) -> Option<u128> {
        Some(wide)
    }
}

#[inline(always)]
fn load_wide(slot: &[Word; 2]) -> u128 {
    u128::from(slot[0].load(Order::Relaxed)) << 64 | u128::from(slot[1].load(Order::Relaxed))
}

/// How many bytes a [`LongKey`] holds without an allocation, outside of nodes.
const INLINE_BYTES: usize = 48;

/// How many bytes of a long key are stored in its node.
const PREFIX_BYTES: usize = size_of::<u128>();

/// A key of any length.
///
/// A node holds the first sixteen bytes of it, which decide most comparisons, also of keys whose first column is
/// often the same. If there are more bytes, the node also holds the address of a *tail*, which has the rest and
/// never changes:
///
/// ```text
///  slot    prefix, padded with zeros | extent            tail    length in bytes | bytes ...
///                                        |
///                                        +- 0..=16: the key's length; it has no tail
///                                        +- else:   the address of the tail
/// ```
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LongKey {
    // Compared first, by the order of the fields.
    prefix: u128,
    bytes: SmallVec<[u8; INLINE_BYTES]>,
}

/// Copies the bytes as a whole, where the derived implementation would copy one after the other.
impl Clone for LongKey {
    fn clone(&self) -> Self {
        LongKey { prefix: self.prefix, bytes: SmallVec::from_slice(&self.bytes) }
    }
}

impl LongKey {
    /// Returns how much memory the key takes, in bytes.
    pub(crate) fn total_bytes(&self) -> usize {
        let spilled = if self.bytes.spilled() { self.bytes.capacity() } else { 0 };
        size_of::<LongKey>() + spilled
    }

    /// Returns the encoding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes that are not in the prefix.
    fn tail(&self) -> &[u8] {
        self.bytes.get(PREFIX_BYTES..).unwrap_or_default()
    }
}

/// Makes a key from its encoding.
impl From<&[u8]> for LongKey {
    fn from(bytes: &[u8]) -> Self {
        LongKey { prefix: prefix(bytes), bytes: SmallVec::from_slice(bytes) }
    }
}

/// The words of a node that hold one [`LongKey`].
#[derive(Debug, Default)]
pub struct LongSlot {
    prefix: [Word; 2],
    extent: Word,
}

/// The meaning of a slot's last word.
enum Extent {
    Length(usize),
    Tail(NonNull<u8>),
}

impl LongSlot {
    /// Loads the last word. `None`: the node has changed, so the tail may have been freed.
    #[inline]
    fn extent(&self, is_current: impl Fn() -> bool) -> Option<Extent> {
        let extent = self.extent.load(Order::Relaxed);
        if extent <= PREFIX_BYTES as u64 {
            return Some(Extent::Length(extent as usize));
        }
        if !is_current() {
            return None;
        }
        let tail = ptr::with_exposed_provenance_mut(extent as usize);
        Some(Extent::Tail(NonNull::new(tail).expect("greater than the length of a prefix")))
    }

    /// Calls `give_back` with the memory of the tail, if there is one.
    fn give_back(&self, give_back: impl Fn(NonNull<u8>, Layout)) {
        if let Some(Extent::Tail(tail)) = self.extent(|| true) {
            // SAFETY: the slot was taken from a node whose lock the caller held. So this is the tail that was
            // stored there last, it is complete, and it has not been given back before.
            let length = unsafe { tail_bytes(tail) }.len();
            give_back(tail, tail_layout(length));
        }
    }
}

impl IndexKey for LongKey {
    type KeySlot = LongSlot;

    #[inline]
    fn compare(&self, slot: &LongSlot, is_current: impl Fn() -> bool) -> Option<Ordering> {
        let order = self.prefix.cmp(&load_wide(&slot.prefix));
        if order.is_ne() {
            return Some(order);
        }
        Some(match slot.extent(is_current)? {
            Extent::Length(length) => self.bytes.len().cmp(&length),
            Extent::Tail(_) if self.bytes.len() <= PREFIX_BYTES => Ordering::Less,
            // SAFETY: the node was found unchanged after the address was loaded. So it held this tail,
            // complete, while the caller was pinned, and the tail is not freed before the caller is unpinned.
            Extent::Tail(tail) => self.tail().cmp(unsafe { tail_bytes(tail) }),
        })
    }

    fn load(slot: &LongSlot, is_current: impl Fn() -> bool) -> Option<LongKey> {
        let prefix = load_wide(&slot.prefix);
        let mut bytes = SmallVec::from_slice(&prefix.to_be_bytes());
        match slot.extent(is_current)? {
            Extent::Length(length) => bytes.truncate(length),
            // SAFETY: as in `compare`.
            Extent::Tail(tail) => bytes.extend_from_slice(unsafe { tail_bytes(tail) }),
        }
        Some(LongKey { prefix, bytes })
    }

    fn store(&self, slot: &LongSlot, worker: &impl IndexWorker) {
        let extent = if self.bytes.len() <= PREFIX_BYTES {
            self.bytes.len() as u64
        } else {
            new_tail(self.tail(), worker).as_ptr().expose_provenance() as u64
        };
        self.prefix.store(&slot.prefix, worker);
        slot.extent.store(extent, Order::Relaxed);
    }

    fn move_slot(from: &LongSlot, to: &LongSlot) {
        u128::move_slot(&from.prefix, &to.prefix);
        to.extent.store(from.extent.load(Order::Relaxed), Order::Relaxed);
    }

    fn retire(slot: &LongSlot, worker: &impl IndexWorker) {
        // SAFETY: tails come from a worker, and the key is no longer in any node.
        slot.give_back(|tail, layout| unsafe { worker.retire(tail, layout) });
    }

    fn free(slot: &LongSlot, worker: &impl IndexWorker) {
        // SAFETY: tails come from a worker, and no other thread can reach the node.
        slot.give_back(|tail, layout| unsafe { worker.free(tail, layout) });
    }

    fn hash(&self) -> u64 {
        // Including the length, since keys may differ only in zeros at their end.
        self.bytes.chunks(PREFIX_BYTES).fold(self.bytes.len() as u64, |hash, chunk| {
            let chunk = prefix(chunk);
            mix(mix(mix(hash) ^ (chunk >> 64) as u64) ^ chunk as u64)
        })
    }
}

/// Returns the first sixteen bytes, padded with zeros, as a number with the same order.
#[inline]
fn prefix(bytes: &[u8]) -> u128 {
    if let Some(first) = bytes.first_chunk() {
        return u128::from_be_bytes(*first);
    }
    let mut padded = [0; PREFIX_BYTES];
    padded[..bytes.len()].copy_from_slice(bytes);
    u128::from_be_bytes(padded)
}

/// Returns the layout of a tail of `length` bytes.
fn tail_layout(length: usize) -> Layout {
    Layout::from_size_align(size_of::<u64>() + length, align_of::<u64>())
        .expect("a key fits the address space")
}

fn new_tail(bytes: &[u8], worker: &impl IndexWorker) -> NonNull<u8> {
    let tail = worker.allocate(tail_layout(bytes.len()));
    // SAFETY: fresh memory, of the layout of a length and these bytes.
    unsafe {
        tail.cast::<u64>().write(bytes.len() as u64);
        let start = tail.as_ptr().add(size_of::<u64>());
        start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
    tail
}

/// Returns the bytes of a tail.
///
/// # Safety
/// `tail` was made by [`new_tail`], and is not freed as long as the bytes are used.
unsafe fn tail_bytes<'t>(tail: NonNull<u8>) -> &'t [u8] {
    // SAFETY: the caller guarantees that `tail` is a length followed by as many bytes, which never change.
    unsafe {
        let length = tail.cast::<u64>().read() as usize;
        slice::from_raw_parts(tail.as_ptr().add(size_of::<u64>()), length)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use weft_htm::{Htm, Regions};

    use super::*;

    /// A worker that counts the bytes that it has allocated.
    struct CountingWorker {
        regions: Regions,
        in_use: Cell<usize>,
    }

    impl IndexWorker for CountingWorker {
        fn regions(&self) -> &Regions {
            &self.regions
        }

        fn allocate(&self, layout: Layout) -> NonNull<u8> {
            self.in_use.set(self.in_use.get() + layout.size());
            // SAFETY: no tail is empty.
            NonNull::new(unsafe { std::alloc::alloc(layout) }).expect("memory")
        }

        unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
            self.in_use.set(self.in_use.get() - layout.size());
            // SAFETY: by the contract, it came from `allocate` with this layout.
            unsafe { std::alloc::dealloc(block.as_ptr(), layout) };
        }

        unsafe fn retire(&self, block: NonNull<u8>, layout: Layout) {
            // SAFETY: there is only one thread.
            unsafe { self.free(block, layout) };
        }
    }

    /// Checks the contract of every form, for two keys whose encodings have this order.
    fn check<K: IndexKey>(left: &K, right: &K, order: Ordering) {
        let worker =
            CountingWorker { regions: Regions::new(&Htm::software()), in_use: Cell::new(0) };
        let (slot, moved) = (K::KeySlot::default(), K::KeySlot::default());
        right.store(&slot, &worker);
        assert_eq!(left.cmp(right), order);
        assert_eq!(left.compare(&slot, || true), Some(order));
        assert_eq!(right.compare(&slot, || true), Some(Ordering::Equal));
        K::move_slot(&slot, &moved);
        assert_eq!(K::load(&moved, || true).as_ref(), Some(right));
        assert_eq!(left.hash() == right.hash(), order.is_eq());
        let least = K::load(&K::KeySlot::default(), || true).expect("it never changes");
        assert!(least <= *left, "a default slot holds the least key");
        K::retire(&moved, &worker);
        assert_eq!(worker.in_use.get(), 0);
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![4 => Just(0), 2 => Just(1), 1 => Just(255), 1 => any::<u8>()];
        prop_oneof![vec(byte.clone(), 0..12), vec(byte, 0..100)]
    }

    proptest! {
        #[test]
        fn long_keys_keep_order_and_content(prefix in bytes(), left in bytes(), right in bytes()) {
            let with_prefix = |rest: &[u8]| [&prefix[..], rest].concat();
            for (left, right) in [
                (left.clone(), right.clone()),
                (with_prefix(&left), with_prefix(&right)),
                (prefix.clone(), with_prefix(&right)),
            ] {
                let (left_key, right_key) = (LongKey::from(&left[..]), LongKey::from(&right[..]));
                assert_eq!(right_key.as_bytes(), right);
                check(&left_key, &right_key, left.cmp(&right));
            }
        }

        #[test]
        fn word_keys_keep_order_and_content(left: (u64, u64), right: (u64, u64), same: bool) {
            let right = if same { (left.0, right.1) } else { right };
            check(&left.0, &right.0, left.0.cmp(&right.0));
            let wide = |(high, low): (u64, u64)| u128::from(high) << 64 | u128::from(low);
            check(&wide(left), &wide(right), left.cmp(&right));
        }
    }

    /// A node that has changed may have given its tails back, so no tail is followed.
    #[test]
    fn tails_of_changed_nodes_are_not_followed() {
        let worker =
            CountingWorker { regions: Regions::new(&Htm::software()), in_use: Cell::new(0) };
        let key = LongKey::from(&b"a key with a tail"[..]);
        let slot = LongSlot::default();
        key.store(&slot, &worker);
        assert_eq!(key.compare(&slot, || false), None);
        assert_eq!(LongKey::load(&slot, || false), None);
        LongKey::free(&slot, &worker);
        assert_eq!(worker.in_use.get(), 0);
    }
}
