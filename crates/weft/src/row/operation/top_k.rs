//! Top-K sets: a column that keeps the values that were inserted with the greatest orders.

use std::marker::PhantomData;

use super::inline_list::InlineList;
use super::ordered::UNCOMMITTED;
use super::{
    Operation, OperationKind, Order, OrderedTuple, OutOfRange, Payload, Undecided, sealed,
};
use crate::row::column::{ColumnType, ColumnValue, DecodeError, write_leb128};

/// A column for [`TopKInsert`]: the `K` entries with the greatest orders, of equal orders the first
/// ones. It lies in the row itself. It is stored as a list of [`OrderedTuple`]s.
///
/// `E` says how many entries a value can have: [`Several`], or [`OnePerValue`], its best.
///
/// # Panics
/// If `K` is 0. This is a compile-time error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK<O, T, const K: usize, E = Several> {
    /// In descending order.
    tuples: InlineList<OrderedTuple<O, T>, K>,
    entries: PhantomData<fn() -> E>,
}

/// A value has an entry for each time that it was inserted: the highest bids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Several {}

/// A value has one entry, its best: the highest bidders. The values are integers, `bool`, or tuples of
/// these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnePerValue {}

/// How many entries a value can have in a [`TopK`].
///
/// Sealed, because the replay of a log must know the choices.
pub trait TopKEntries<T>: sealed::Sealed + Copy + std::fmt::Debug + Eq + 'static {
    /// Returns whether two values share one entry.
    #[doc(hidden)]
    fn is_same(one: &T, other: &T) -> bool;

    /// Whether a value has one entry.
    #[doc(hidden)]
    const IS_ONE: bool;
}

impl sealed::Sealed for Several {}
impl sealed::Sealed for OnePerValue {}

impl<T> TopKEntries<T> for Several {
    const IS_ONE: bool = false;

    fn is_same(_one: &T, _other: &T) -> bool {
        false
    }
}

impl<T: Order> TopKEntries<T> for OnePerValue {
    const IS_ONE: bool = true;

    fn is_same(one: &T, other: &T) -> bool {
        one == other
    }
}

impl<O, T, const K: usize, E> Default for TopK<O, T, K, E> {
    /// Returns an empty set.
    fn default() -> Self {
        const { assert!(K > 0, "a top-K set must have room for one value") };
        TopK { tuples: InlineList::default(), entries: PhantomData }
    }
}

impl<O, T, const K: usize, E> TopK<O, T, K, E> {
    /// Returns the tuples, in descending order.
    pub fn tuples(
        &self,
    ) -> impl DoubleEndedIterator<Item = &OrderedTuple<O, T>> + ExactSizeIterator + Clone {
        self.tuples.iter()
    }

    /// Returns the values, in descending order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator + Clone {
        self.tuples.iter().map(|tuple| &tuple.value)
    }

    /// Returns how many tuples there are.
    pub fn len(&self) -> usize {
        self.tuples.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.tuples.len() == 0
    }
}

impl<O: Ord, T, const K: usize, E: TopKEntries<T>> TopK<O, T, K, E> {
    /// Returns the place for an entry; `None` if it does not belong in the set.
    #[inline]
    fn place(&self, order: &O, value: &T, stamp: u64) -> Option<Place> {
        // Most of the tuples that are inserted into a full set are less than all the tuples there.
        if self.tuples.is_full() && self.tuples.last().is_some_and(|least| *order < least.order) {
            return None;
        }
        let is_before = |tuple: &OrderedTuple<O, T>| {
            tuple.order > *order || (tuple.order == *order && tuple.stamp <= stamp)
        };
        let at = self.tuples.iter().take_while(|tuple| is_before(tuple)).count();
        let same = self.tuples.iter().position(|tuple| E::is_same(&tuple.value, value));
        let removed = match same {
            Some(same) if same < at => return None,
            Some(same) => Some(same),
            None => self.tuples.is_full().then_some(K - 1),
        };
        (at < K).then_some(Place { at, removed })
    }

    /// Puts a tuple in its place. Returns how to undo this.
    #[inline]
    fn put(&mut self, place: Place, tuple: OrderedTuple<O, T>) -> TopKUndo<O, T> {
        let removed = place.removed.map(|position| (position, self.tuples.remove(position)));
        self.tuples.insert(place.at, tuple);
        TopKUndo { at: place.at, removed }
    }
}

/// The place of a new tuple in a top-K set.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    /// The position of the tuple that it displaces, at the same position or behind.
    removed: Option<usize>,
}

/// How to undo an insertion.
#[doc(hidden)]
#[derive(Debug)]
pub struct TopKUndo<O, T> {
    at: usize,
    removed: Option<(usize, OrderedTuple<O, T>)>,
}

impl<O: Order, T: Payload, const K: usize, E: TopKEntries<T>> ColumnValue for TopK<O, T, K, E> {
    const TYPE: ColumnType = ColumnType::List(&OrderedTuple::<O, T>::TYPE);

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        self.tuples.write(output);
    }

    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let start = *input;
        let tuples = InlineList::<OrderedTuple<O, T>, K>::read(input)?;
        if tuples.iter().is_sorted_by(|tuple, next| tuple.order >= next.order) {
            Ok(TopK { tuples, entries: PhantomData })
        } else {
            Err(DecodeError::new(start, "a top-K set is not in the descending order of its orders"))
        }
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        self.tuples.stored_bytes()
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.tuples.is_same(&other.tuples)
    }
}

/// Inserts a value with an order into a top-K set. The `K` entries with the greatest orders stay, of
/// equal orders the first ones.
///
/// Algebra: union, followed by a choice by order and by which transaction commits first. What a choice
/// has left out would be left out by any later one. So this is a semilattice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKInsert<O, T>(pub O, pub T);

impl<O, T> sealed::Sealed for TopKInsert<O, T> {}

impl<O: Order, T: Payload> TopKInsert<O, T> {
    fn insert<const K: usize, E: TopKEntries<T>>(
        &self,
        set: &mut TopK<O, T, K, E>,
        stamp: u64,
    ) -> Option<TopKUndo<O, T>> {
        let place = set.place(&self.0, &self.1, UNCOMMITTED)?;
        let tuple = OrderedTuple { order: self.0.clone(), value: self.1.clone(), stamp };
        Some(set.put(place, tuple))
    }
}

impl<O: Order, T: Payload, const K: usize, E: TopKEntries<T>> Operation<TopK<O, T, K, E>>
    for TopKInsert<O, T>
{
    const KIND: OperationKind = OperationKind::TopKInsert;
    const IS_STAMPED: bool = true;
    type Family = Self;
    type Slice = TopK<O, T, K, E>;
    type Undo = Option<TopKUndo<O, T>>;

    #[inline]
    fn apply(&self, value: &mut TopK<O, T, K, E>) -> Result<(), OutOfRange> {
        self.insert(value, 0);
        Ok(())
    }

    /// Returns a copy of the column, because most inserted tuples are less than all that are there
    /// already. Its tuples have the stamp 0, by which they are not merged.
    fn slice(value: &TopK<O, T, K, E>, _cores: u32) -> TopK<O, T, K, E> {
        let mut slice = value.clone();
        Self::finish(&mut slice);
        slice
    }

    #[inline]
    fn accumulate(
        &self,
        slice: &mut TopK<O, T, K, E>,
    ) -> Result<Option<TopKUndo<O, T>>, Undecided> {
        Ok(self.insert(slice, UNCOMMITTED))
    }

    fn settle(slice: &mut TopK<O, T, K, E>, stamp: u64) {
        slice.tuples.iter_mut().for_each(|tuple| tuple.settle(stamp));
    }

    fn undo(slice: &mut TopK<O, T, K, E>, undo: Option<TopKUndo<O, T>>) {
        if let Some(TopKUndo { at, removed }) = undo {
            slice.tuples.remove(at);
            if let Some((position, tuple)) = removed {
                slice.tuples.insert(position, tuple);
            }
        }
    }

    fn merge(slice: TopK<O, T, K, E>, value: &mut TopK<O, T, K, E>) {
        for tuple in slice.tuples.into_elements().filter(|tuple| tuple.stamp > 0) {
            if let Some(place) = value.place(&tuple.order, &tuple.value, tuple.stamp) {
                value.put(place, tuple);
            }
        }
    }

    fn finish(value: &mut TopK<O, T, K, E>) {
        value.tuples.iter_mut().for_each(|tuple| tuple.stamp = 0);
    }

    fn write(&self, output: &mut Vec<u8>) {
        write_leb128(K as u64, output);
        E::IS_ONE.write(output);
        OrderedTuple::new(self.0.clone(), self.1.clone()).write(output);
    }
}
