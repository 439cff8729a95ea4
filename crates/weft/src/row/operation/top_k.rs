//! Top-K sets: of all values that were inserted, those with the greatest orders.

use super::inline_list::InlineList;
use super::{
    Operation, OperationKind, Order, OrderedTuple, OutOfRange, Payload, Undecided, sealed,
};
use crate::row::column::{ColumnType, ColumnValue, DecodeError, write_leb128};

/// A column for [`TopKInsert`]: the `K` values with the greatest orders that were inserted, one for each
/// order. It lies in the row itself, and is stored as a list of [`OrderedTuple`]s.
///
/// # Panics
/// If `K` is 0: while the program is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK<O, T, const K: usize> {
    /// By descending orders.
    tuples: InlineList<OrderedTuple<O, T>, K>,
}

impl<O, T, const K: usize> Default for TopK<O, T, K> {
    /// Nothing yet.
    fn default() -> Self {
        const { assert!(K > 0, "a top-K set must have room for one value") };
        TopK { tuples: InlineList::default() }
    }
}

impl<O, T, const K: usize> TopK<O, T, K> {
    /// The tuples, by descending orders.
    pub fn tuples(
        &self,
    ) -> impl DoubleEndedIterator<Item = &OrderedTuple<O, T>> + ExactSizeIterator + Clone {
        self.tuples.iter()
    }

    /// The values, by descending orders.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator + Clone {
        self.tuples.iter().map(|tuple| &tuple.value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tuples.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tuples.len() == 0
    }
}

impl<O: Ord, T, const K: usize> TopK<O, T, K> {
    /// Where a tuple with this order and core would go, if anywhere.
    #[inline]
    fn place(&self, order: &O, core: u32) -> Option<Place> {
        // Most of what is inserted into a set that is full does not make it.
        if self.tuples.is_full() && self.tuples.last().is_some_and(|least| *order < least.order) {
            return None;
        }
        match self.tuples.search(|tuple| order.cmp(&tuple.order)) {
            Ok(position) if self.tuples.get(position).core < core => {
                Some(Place::InsteadOf(position))
            }
            Ok(_) => None,
            Err(position) => Some(Place::At(position)),
        }
    }

    /// Puts a tuple in its place.
    #[inline]
    fn put(&mut self, place: Place, tuple: OrderedTuple<O, T>) -> TopKUndo<O, T> {
        match place {
            Place::InsteadOf(position) => {
                TopKUndo::Replaced(position, self.tuples.replace(position, tuple))
            }
            Place::At(position) => {
                let least = if self.tuples.is_full() { self.tuples.pop() } else { None };
                self.tuples.insert(position, tuple);
                TopKUndo::Inserted(position, least)
            }
        }
    }
}

/// A place in a top-K set.
#[derive(Clone, Copy)]
enum Place {
    /// In place of the tuple there, which has the same order.
    InsteadOf(usize),
    /// Before the tuple there.
    At(usize),
}

/// What an insertion has done.
#[doc(hidden)]
#[derive(Debug)]
pub enum TopKUndo<O, T> {
    /// Nothing.
    Nothing,
    /// It has replaced a tuple at a position.
    Replaced(usize, OrderedTuple<O, T>),
    /// It has inserted a tuple at a position, and removed the last.
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

/// Inserts a value with an order into a top-K set. Of two with the same order, that of the worker with
/// the greater number stays; of all, those with the `K` greatest orders.
///
/// Algebra: union, followed by a choice that does not depend on what was left out before: a
/// semilattice, where each core's tuples have an order of their own.
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
    type Slice = TopK<O, T, K>;
    type Undo = TopKUndo<O, T>;

    #[inline]
    fn apply(&self, value: &mut TopK<O, T, K>, core: u32) -> Result<(), OutOfRange> {
        if let Some(place) = value.place(&self.0, core) {
            value.put(place, self.tuple(core));
        }
        Ok(())
    }

    /// A copy: most of what is inserted is less than all that are there.
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
