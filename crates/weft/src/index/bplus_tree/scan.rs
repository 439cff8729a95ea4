//! Range scans, one leaf at a time.
//!
//! A scan is a loop in the caller. Each iteration reads one leaf's share of the range into a [`Page`], notes
//! the leaf's version, and continues where the page says. Pages follow each other along the leaves' fences.
//! So the leaves whose versions were noted cover the range without a gap, stretches without keys included. In
//! a forward scan the hint then remembers the next leaf, which saves the descent if that leaf still begins
//! where this one ended. In a reverse scan every page needs a descent, since leaves have no pointer to the
//! leaf before them.

use std::cell::Cell;
use std::cmp;
use std::ops::{self, Bound};

use weft_htm::word::{Ordering, Word};

use super::super::{IndexKey, IndexWorker, NodeVersion};
use super::BPlusTree;
use super::node::{LEAF_CAPACITY, Leaf, least};
use super::search::{
    Access, Backoff, DescentTarget, LeafHint, LeafPlace, OptimisticAccess, prefetch, rank,
};

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the least key to the greatest.
    Forward,
    /// From the greatest key to the least.
    Reverse,
}

/// What a scan found in one leaf. One page can be used for a whole scan, or many scans.
#[derive(Debug)]
pub struct Page<K> {
    addresses: Box<[u64; LEAF_CAPACITY]>,
    count: usize,
    next: Option<Bound<K>>,
}

impl<K: IndexKey> Page<K> {
    /// Creates an empty page.
    pub fn new() -> Self {
        Page { addresses: Box::new([0; LEAF_CAPACITY]), count: 0, next: None }
    }

    /// Returns the addresses found, in the order of the scan.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses[..self.count]
    }

    /// Returns the same addresses as an array with room for a whole leaf, and their number.
    #[inline]
    pub(super) fn all(&self) -> ([u64; LEAF_CAPACITY], usize) {
        (*self.addresses, self.count)
    }

    /// Returns where the scan continues: the `from` of the next page. `None` if the range is exhausted.
    pub fn next(&self) -> Option<&Bound<K>> {
        self.next.as_ref()
    }

    /// Takes [`Page::next`] out.
    pub fn take_next(&mut self) -> Option<Bound<K>> {
        self.next.take()
    }
}

impl<K: IndexKey> Default for Page<K> {
    fn default() -> Self {
        Page::new()
    }
}

impl<K: IndexKey> BPlusTree<K> {
    /// Reads the addresses of the keys between `from` and `to`, as far as they are in the leaf to which
    /// `from` leads. The scan begins at `from` and ends at `to`: in reverse, `from` is the upper bound.
    /// Returns the leaf's version, which covers the part of the range from `from` to [`Page::next`], or to
    /// the range's end.
    pub fn read_page(
        &self,
        from: Bound<&K>,
        to: Bound<&K>,
        direction: Direction,
        page: &mut Page<K>,
        hint: &mut LeafHint<K>,
        worker: &impl IndexWorker,
    ) -> NodeVersion {
        let range = Range { from, to, direction };
        let addresses = Cell::from_mut(&mut page.addresses[..]).as_slice_of_cells();
        let mut backoff = Backoff::new();
        loop {
            let share = self
                .in_region(range.target(), worker, |region| {
                    self.try_page(region, range, addresses, hint)
                })
                .or_else(|| self.try_page(&OptimisticAccess, range, addresses, hint));
            if let Some(share) = share
                && let Some(next) = share.next(direction)
            {
                // The next page probably begins in the next leaf.
                if direction == Direction::Forward && next.is_some() {
                    hint.remember(share.next_leaf);
                }
                page.count = share.count;
                page.next = next;
                return share.place.node_version();
            }
            backoff.pause();
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn try_page(
        &self,
        access: &impl Access,
        range: Range<'_, K>,
        addresses: &[Cell<u64>],
        hint: &LeafHint<K>,
    ) -> Option<Share<'_, K>> {
        let place = self.find_leaf(access, range.target(), hint)?;
        let leaf = place.leaf;
        let is_current = || access.is_current(&leaf.node.version, place.version);
        let next_leaf = leaf.next.load(Ordering::Relaxed).cast_const();
        let (found, goes_on) = match range.direction {
            Direction::Forward => {
                prefetch(next_leaf);
                leaf.share_forward(range.from, range.to, is_current)?
            }
            Direction::Reverse => leaf.share_reverse(range.from, range.to, is_current)?,
        };
        let found = leaf.addresses.get(found).unwrap_or_default();
        let copy = |(to, from): (&Cell<u64>, &Word)| to.set(from.load(Ordering::Relaxed));
        match range.direction {
            Direction::Forward => addresses.iter().zip(found).for_each(copy),
            Direction::Reverse => addresses.iter().zip(found.iter().rev()).for_each(copy),
        }
        is_current().then_some(Share { place, count: found.len(), goes_on, next_leaf })
    }
}

/// The part of a scan's range that is still to be read.
pub(super) struct Range<'k, K> {
    pub(super) from: Bound<&'k K>,
    pub(super) to: Bound<&'k K>,
    pub(super) direction: Direction,
}

impl<K> Clone for Range<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Range<'_, K> {}

impl<'k, K> Range<'k, K> {
    /// Returns where the descent to the beginning of the range leads.
    fn target(&self) -> DescentTarget<'k, K> {
        match (self.direction, self.from) {
            (Direction::Reverse, Bound::Excluded(key)) => DescentTarget::Below(key),
            (_, Bound::Included(key) | Bound::Excluded(key)) => DescentTarget::At(key),
            (Direction::Forward, Bound::Unbounded) => DescentTarget::First,
            (Direction::Reverse, Bound::Unbounded) => DescentTarget::Last,
        }
    }
}

/// One leaf's share of a range.
pub(super) struct Share<'t, K: IndexKey> {
    pub(super) place: LeafPlace<'t, K>,
    pub(super) count: usize,
    /// Whether the range continues after this leaf.
    goes_on: bool,
    next_leaf: *const Leaf<K>,
}

impl<K: IndexKey> Share<'_, K> {
    /// Returns where the range continues after this share. (Called outside the region, because copying a long
    /// key may allocate.) The outer `None`: the leaf has changed.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn next(&self, direction: Direction) -> Option<Option<Bound<K>>> {
        if !self.goes_on {
            return Some(None);
        }
        let LeafPlace { leaf, version } = self.place;
        let is_current = || OptimisticAccess.is_current(&leaf.node.version, version);
        let next = match direction {
            Direction::Forward => Bound::Included(K::load(&leaf.high, is_current)?),
            Direction::Reverse => Bound::Excluded(K::load(&leaf.low, is_current)?),
        };
        is_current().then_some(Some(next))
    }
}

impl<K: IndexKey> Leaf<K> {
    /// Returns the positions of this leaf's keys in the range, and whether the range continues after this
    /// leaf. `None`: the leaf has changed.
    #[inline(always)]
    fn share_forward(
        &self,
        from: Bound<&K>,
        to: Bound<&K>,
        is_current: impl Fn() -> bool,
    ) -> Option<(ops::Range<usize>, bool)> {
        let goes_on = !self.next.load(Ordering::Relaxed).is_null()
            && reaches_above(to, &self.high, &is_current)?;
        let first = self.first_from(from, &is_current)?;
        let end = if goes_on { self.count() } else { self.end_of(to, is_current)? };
        Some((first..end, goes_on))
    }

    /// As [`Leaf::share_forward`], for a scan in reverse.
    #[inline(always)]
    fn share_reverse(
        &self,
        from: Bound<&K>,
        to: Bound<&K>,
        is_current: impl Fn() -> bool,
    ) -> Option<(ops::Range<usize>, bool)> {
        let goes_on = reaches_below(to, &self.low, &is_current)?;
        let end = self.end_of(from, &is_current)?;
        let first = if goes_on { 0 } else { self.first_from(to, is_current)? };
        Some((first..end, goes_on))
    }

    /// Returns the position of the first key that is in a range with this lower bound.
    #[inline(always)]
    fn first_from(&self, lower: Bound<&K>, is_current: impl Fn() -> bool) -> Option<usize> {
        let keys = &self.keys[..self.count()];
        match lower {
            Bound::Unbounded => Some(0),
            Bound::Included(key) => rank(keys, key, false, is_current),
            Bound::Excluded(key) => rank(keys, key, true, is_current),
        }
    }

    /// Returns the position after the last key that is in a range with this upper bound.
    #[inline(always)]
    fn end_of(&self, upper: Bound<&K>, is_current: impl Fn() -> bool) -> Option<usize> {
        let keys = &self.keys[..self.count()];
        match upper {
            Bound::Unbounded => Some(keys.len()),
            Bound::Included(key) => rank(keys, key, true, is_current),
            Bound::Excluded(key) => rank(keys, key, false, is_current),
        }
    }
}

/// Returns whether a range with this upper bound may have keys at or above the fence in `high`.
#[inline(always)]
fn reaches_above<K: IndexKey>(
    upper: Bound<&K>,
    high: &K::KeySlot,
    is_current: impl Fn() -> bool,
) -> Option<bool> {
    Some(match upper {
        Bound::Unbounded => true,
        Bound::Included(key) => key.compare(high, is_current)?.is_ge(),
        Bound::Excluded(key) => key.compare(high, is_current)?.is_gt(),
    })
}

/// Returns whether a range with this lower bound may have keys below the fence in `low`.
#[inline(always)]
fn reaches_below<K: IndexKey>(
    lower: Bound<&K>,
    low: &K::KeySlot,
    is_current: impl Fn() -> bool,
) -> Option<bool> {
    Some(match lower {
        Bound::Unbounded => least::<K>().compare(low, is_current)? == cmp::Ordering::Less,
        Bound::Included(key) | Bound::Excluded(key) => key.compare(low, is_current)?.is_lt(),
    })
}
