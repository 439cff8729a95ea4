//! Ordered tuples: a column that keeps the value that was put with the greatest order.

use super::{Operation, OperationKind, Order, OutOfRange, Payload, Undecided, sealed};
use crate::row::column::{ColumnType, ColumnValue, DecodeError, FieldType};

/// A value with its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedTuple<O, T> {
    /// The order.
    pub order: O,
    /// The value.
    pub value: T,
    /// When the value was put, if a worker has put it in a split phase that has not ended: the lesser
    /// stamp came first. Otherwise 0.
    pub(super) stamp: u64,
}

/// The stamp of a value whose transaction has not committed. It comes after all others.
pub(super) const UNCOMMITTED: u64 = u64::MAX;

impl<O, T> OrderedTuple<O, T> {
    /// Returns a value with its order.
    pub const fn new(order: O, value: T) -> Self {
        OrderedTuple { order, value, stamp: 0 }
    }

    /// Replaces the stamp, if the value is not committed.
    pub(super) fn settle(&mut self, stamp: u64) {
        if self.stamp == UNCOMMITTED {
            self.stamp = stamp;
        }
    }
}

impl<O: ColumnValue, T: ColumnValue> ColumnValue for OrderedTuple<O, T> {
    const TYPE: ColumnType = ColumnType::Struct {
        name: "OrderedTuple",
        fields: &[
            FieldType::new("order", O::TYPE),
            FieldType::new("value", T::TYPE),
            FieldType::new("stamp", ColumnType::U64),
        ],
    };

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        self.order.write(output);
        self.value.write(output);
        self.stamp.write(output);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let (order, value) = (O::read(input)?, T::read(input)?);
        Ok(OrderedTuple { order, value, stamp: u64::read(input)? })
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        self.order.stored_bytes() + self.value.stored_bytes() + self.stamp.stored_bytes()
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.order.is_same(&other.order)
            && self.value.is_same(&other.value)
            && self.stamp == other.stamp
    }
}

/// A column for [`OrderedPut`]: empty, or the value that was put with the greatest order. It is
/// stored as an `Option<OrderedTuple<O, T>>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered<O, T>(Option<OrderedTuple<O, T>>);

impl<O, T> Default for Ordered<O, T> {
    /// Returns a column that is empty.
    fn default() -> Self {
        Ordered(None)
    }
}

impl<O, T> From<OrderedTuple<O, T>> for Ordered<O, T> {
    fn from(tuple: OrderedTuple<O, T>) -> Self {
        Ordered(Some(tuple))
    }
}

impl<O, T> Ordered<O, T> {
    /// Returns the value with its order, if one was put.
    pub const fn tuple(&self) -> Option<&OrderedTuple<O, T>> {
        self.0.as_ref()
    }

    /// Returns the value, if one was put.
    pub fn value(&self) -> Option<&T> {
        self.0.as_ref().map(|tuple| &tuple.value)
    }

    /// Returns the value's order, if one was put.
    pub fn order(&self) -> Option<&O> {
        self.0.as_ref().map(|tuple| &tuple.order)
    }
}

impl<O: Ord, T> Ordered<O, T> {
    /// Returns whether a tuple with this order and stamp would replace the current one.
    #[inline]
    fn yields_to(&self, order: &O, stamp: u64) -> bool {
        self.0.as_ref().is_none_or(|tuple| {
            tuple.order < *order || (tuple.order == *order && stamp < tuple.stamp)
        })
    }
}

impl<O: Order, T: Payload> ColumnValue for Ordered<O, T> {
    const TYPE: ColumnType = <Option<OrderedTuple<O, T>> as ColumnValue>::TYPE;

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        self.0.write(output);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Ordered(ColumnValue::read(input)?))
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        self.0.stored_bytes()
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }
}

/// Puts a value with an order. It replaces a value with a lesser order. Of equal orders the first
/// stays.
///
/// Algebra: the maximum by order, and then by which transaction commits first. This is a semilattice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedPut<O, T>(pub O, pub T);

impl<O, T> sealed::Sealed for OrderedPut<O, T> {}

impl<O: Order, T: Payload> OrderedPut<O, T> {
    fn put(&self, value: &mut Ordered<O, T>, stamp: u64) -> Option<Ordered<O, T>> {
        value.yields_to(&self.0, UNCOMMITTED).then(|| {
            let tuple = OrderedTuple { order: self.0.clone(), value: self.1.clone(), stamp };
            std::mem::replace(value, tuple.into())
        })
    }
}

impl<O: Order, T: Payload> Operation<Ordered<O, T>> for OrderedPut<O, T> {
    const KIND: OperationKind = OperationKind::OrderedPut;
    const IS_STAMPED: bool = true;
    type Family = Self;
    type Slice = Ordered<O, T>;
    /// The value before, if it was replaced.
    type Undo = Option<Ordered<O, T>>;

    #[inline]
    fn apply(&self, value: &mut Ordered<O, T>) -> Result<(), OutOfRange> {
        self.put(value, 0);
        Ok(())
    }

    /// Returns a copy of the column, with the stamp 0, by which it is not merged.
    fn slice(value: &Ordered<O, T>, _cores: u32) -> Ordered<O, T> {
        let mut slice = value.clone();
        Self::finish(&mut slice);
        slice
    }

    #[inline]
    fn accumulate(&self, slice: &mut Ordered<O, T>) -> Result<Option<Ordered<O, T>>, Undecided> {
        Ok(self.put(slice, UNCOMMITTED))
    }

    fn settle(slice: &mut Ordered<O, T>, stamp: u64) {
        slice.0.iter_mut().for_each(|tuple| tuple.settle(stamp));
    }

    #[inline]
    fn undo(slice: &mut Ordered<O, T>, undo: Option<Ordered<O, T>>) {
        if let Some(before) = undo {
            *slice = before;
        }
    }

    fn merge(slice: Ordered<O, T>, value: &mut Ordered<O, T>) {
        if let Some(tuple) = slice.0
            && tuple.stamp > 0
            && value.yields_to(&tuple.order, tuple.stamp)
        {
            *value = tuple.into();
        }
    }

    fn finish(value: &mut Ordered<O, T>) {
        value.0.iter_mut().for_each(|tuple| tuple.stamp = 0);
    }

    fn write(&self, output: &mut Vec<u8>) {
        OrderedTuple::new(self.0.clone(), self.1.clone()).write(output);
    }
}
