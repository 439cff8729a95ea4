//! How an index holds keys: as words in its nodes, with what does not fit kept out of line.

use std::cmp::Ordering;
use std::fmt::Debug;

use weft_htm::word::{Ordering as Order, Word};

use super::IndexWorker;

/// An encoded key: a byte string whose lexicographic order is the order of the keys.
///
/// There are three forms, chosen by the width of the key's type: `u64` for keys of up to eight
/// bytes, `u128` for up to sixteen, both left-aligned (the first byte of the encoding is the most
/// significant) and padded with zeros; [`LongKey`] for the rest.
pub trait IndexKey: Ord + Clone + Debug + Send + Sync + 'static {
    /// The words of a node that hold one key.
    type Slot: Default + Send + Sync;

    /// Compares this key with the one in `slot`. The slot may be changing meanwhile; what is
    /// returned then means nothing and the caller finds out by the node's version. `is_current`
    /// asks that version: a form that keeps bytes out of line calls it between loading the
    /// address and following it, and returns `None` if the node has changed.
    fn compare(&self, slot: &Self::Slot, is_current: impl Fn() -> bool) -> Option<Ordering>;

    /// Copies the key out of `slot`; `is_current` and `None` as for [`IndexKey::compare`].
    fn load(slot: &Self::Slot, is_current: impl Fn() -> bool) -> Option<Self>;

    /// Writes this key into an empty `slot` of a node that only the caller may write.
    fn store(&self, slot: &Self::Slot, worker: &impl IndexWorker);

    /// Moves a key (with whatever it keeps out of line) from one slot to another, in nodes that
    /// only the caller may write. `from` is left as it is, and must be overwritten, cleared or
    /// dropped out of the node's count before the lock is released.
    fn move_slot(from: &Self::Slot, to: &Self::Slot);

    /// Retires what the key in `slot` keeps out of line, after its removal from the node.
    fn retire(slot: &Self::Slot, worker: &impl IndexWorker);

    /// A hash whose every bit depends on the whole key.
    fn hash(&self) -> u64;
}

/// Mixes a word so that its high and low bits depend on all of its bits.
#[inline(always)]
fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xA076_1D64_78BD_642F_u64);
    (product >> 64) as u64 ^ product as u64
}

impl IndexKey for u64 {
    type Slot = Word;

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
}
