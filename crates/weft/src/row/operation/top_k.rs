//! Top-K sets: a column that keeps the values that were inserted with the greatest orders.

use super::inline_list::InlineList;
use super::{
    Operation, OperationKind, Order, OrderedTuple, OutOfRange, Payload, Undecided, sealed,
};
use crate::row::column::{ColumnType, ColumnValue, DecodeError, write_leb128};

/// A column for [`TopKInsert`]: the values with the `K` greatest orders that were inserted, one for
/// each order. It lies in the row itself. It is stored as a list of [`OrderedTuple`]s.
///
/// # Panics
/// If `K` is 0. This is a compile-time error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK<O, T, const K: usize> {
    /// In descending order.
    tuples: InlineList<OrderedTuple<O, T>, K>,
}

impl<O, T, const K: usize> Default for TopK<O, T, K> {
    /// Returns an empty set.
    fn default() -> Self {
        const { assert!(K > 0, "a top-K set must have room for one value") };
        TopK { tuples: InlineList::default() }
    }
}

impl<O, T, const K: usize> TopK<O, T, K> {
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

impl<O: Ord, T, const K: usize> TopK<O, T, K> {
    /// Returns the place for a tuple with this order and core; `None` if it does not belong in the
    /// set.
    #[inline]
    fn place(&self, order: &O, core: u32) -> Option<InsertPosition> {
        // Most of the tuples that are inserted into a full set are less than all the tuples there.
        if self.tuples.is_full() && self.tuples.last().is_some_and(|least| *order < least.order) {
            return None;
        }
        match self.tuples.search(|tuple| order.cmp(&tuple.order)) {
            Ok(position) if self.tuples.get(position).core < core => {
                Some(InsertPosition::InsteadOf(position))
            }
            Ok(_) => None,
            Err(position) => Some(InsertPosition::At(position)),
        }
    }

    /// Puts a tuple in its place. Returns how to undo this.
    #[inline]
    fn put(&mut self, place: InsertPosition, tuple: OrderedTuple<O, T>) -> TopKUndo<O, T> {
        match place {
            InsertPosition::InsteadOf(position) => {
                TopKUndo::Replaced(position, self.tuples.replace(position, tuple))
            }
            InsertPosition::At(position) => {
                let least = if self.tuples.is_full() { self.tuples.pop() } else { None };
                self.tuples.insert(position, tuple);
                TopKUndo::Inserted(position, least)
            }
        }
    }
}

/// The place of a new tuple in a top-K set.
#[derive(Clone, Copy)]
enum InsertPosition {
    /// Instead of the tuple at this position, which has the same order.
    InsteadOf(usize),
    /// Before the tuple at this position.
    At(usize),
}

/// How to undo an insertion.
#[doc(hidden)]
#[derive(Debug)]
pub enum TopKUndo<O, T> {
    /// Nothing was changed.
    Nothing,
    /// The tuple at this position was replaced; this is the old one.
    Replaced(usize, OrderedTuple<O, T>),
    /// A tuple was inserted at this position. If the set was full, this is the last tuple, which
    /// was removed.
    Inserted(usize, Option<OrderedTuple<O, T>>),
}

impl<O: Order, T: Payload, const K: usize> ColumnValue for TopK<O, T, K> {
    const TYPE: ColumnType = ColumnType::List(&OrderedTuple::<O, T>::TYPE);

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        self.tuples.write(output);
    }

    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let start = *input;
        let tuples = InlineList::<OrderedTuple<O, T>, K>::read(input)?;
        if tuples.iter().is_sorted_by(|tuple, next| tuple.order > next.order) {
            Ok(TopK { tuples })
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

/// Inserts a value with an order into a top-K set. Of two values with the same order, the one of
/// the worker with the greater number stays. Of all orders, the `K` greatest stay.
///
/// Algebra: union, followed by a choice that does not depend on what earlier choices left out. This
/// is a semilattice as long as the tuples of each core keep their sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKInsert<O, T>(pub O, pub T);

impl<O, T> sealed::Sealed for TopKInsert<O, T> {}

impl<O: Order, T: Payload> TopKInsert<O, T> {
    fn tuple(&self, core: u32) -> OrderedTuple<O, T> {
        OrderedTuple { order: self.0.clone(), core, value: self.1.clone() }
    }
}

impl<O: Order, T: Payload, const K: usize> Operation<TopK<O, T, K>> for TopKInsert<O, T> {
    const KIND: OperationKind = OperationKind::TopKInsert;
    type Family = Self;
    type Slice = TopK<O, T, K>;
    type Undo = TopKUndo<O, T>;

    #[inline]
    fn apply(&self, value: &mut TopK<O, T, K>, core: u32) -> Result<(), OutOfRange> {
        if let Some(place) = value.place(&self.0, core) {
            value.put(place, self.tuple(core));
        }
        Ok(())
    }

    /// Returns a copy of the column, because most inserted tuples are less than all that are there
    /// already.
    fn slice(value: &TopK<O, T, K>, _cores: u32) -> TopK<O, T, K> {
        value.clone()
    }

    #[inline]
    fn accumulate(
        &self,
        slice: &mut TopK<O, T, K>,
        core: u32,
    ) -> Result<TopKUndo<O, T>, Undecided> {
        Ok(match slice.place(&self.0, core) {
            Some(place) => slice.put(place, self.tuple(core)),
            None => TopKUndo::Nothing,
        })
    }

    fn undo(slice: &mut TopK<O, T, K>, undo: TopKUndo<O, T>) {
        match undo {
            TopKUndo::Nothing => {}
            TopKUndo::Replaced(position, before) => {
                slice.tuples.replace(position, before);
            }
            TopKUndo::Inserted(position, least) => {
                slice.tuples.remove(position);
                if let Some(least) = least {
                    slice.tuples.insert(slice.tuples.len(), least);
                }
            }
        }
    }

    fn merge(slice: TopK<O, T, K>, value: &mut TopK<O, T, K>) {
        for tuple in slice.tuples.into_elements() {
            if let Some(place) = value.place(&tuple.order, tuple.core) {
                value.put(place, tuple);
            }
        }
    }

    fn write(&self, core: u32, output: &mut Vec<u8>) {
        write_leb128(K as u64, output);
        self.tuple(core).write(output);
    }
}
