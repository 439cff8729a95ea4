//! Ordered tuples: a column that keeps the value that was put with the greatest order.

use std::cmp::Ordering;

use super::{Operation, OperationKind, Order, OutOfRange, Payload, Undecided, sealed};
use crate::row::column::{ColumnType, ColumnValue, DecodeError, FieldType};

/// A value with its order, and the core that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedTuple<O, T> {
    /// The order, which is compared first.
    pub order: O,
    /// The number of the worker that wrote the value. It decides between equal orders.
    pub core: u32,
    /// The value.
    pub value: T,
}

impl<O: ColumnValue, T: ColumnValue> ColumnValue for OrderedTuple<O, T> {
    const TYPE: ColumnType = ColumnType::Struct {
        name: "OrderedTuple",
        fields: &[
            FieldType::new("order", O::TYPE),
            FieldType::new("core", ColumnType::U32),
            FieldType::new("value", T::TYPE),
        ],
    };

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        self.order.write(output);
        self.core.write(output);
        self.value.write(output);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(OrderedTuple { order: O::read(input)?, core: u32::read(input)?, value: T::read(input)? })
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        self.order.stored_bytes() + self.core.stored_bytes() + self.value.stored_bytes()
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.order.is_same(&other.order)
            && self.core == other.core
            && self.value.is_same(&other.value)
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
    /// Returns the value with its order and core, if one was put.
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
    /// Returns whether a tuple with this order and core would replace the current one.
    #[inline]
    fn yields_to(&self, order: &O, core: u32) -> bool {
        match &self.0 {
            Some(tuple) => tuple.order.cmp(order).then(tuple.core.cmp(&core)) == Ordering::Less,
            None => true,
        }
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

/// Puts a value with an order. It replaces a value with a lesser order, or with an equal order that
/// a worker with a lesser number wrote.
///
/// Algebra: the maximum by order and core. This is a semilattice as long as the tuples of each core
/// keep their sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedPut<O, T>(pub O, pub T);

impl<O, T> sealed::Sealed for OrderedPut<O, T> {}

impl<O: Order, T: Payload> OrderedPut<O, T> {
    fn tuple(&self, core: u32) -> OrderedTuple<O, T> {
        OrderedTuple { order: self.0.clone(), core, value: self.1.clone() }
    }
}

impl<O: Order, T: Payload> Operation<Ordered<O, T>> for OrderedPut<O, T> {
    const KIND: OperationKind = OperationKind::OrderedPut;
    type Family = Self;
    type Slice = Ordered<O, T>;
    /// The value before, if it was replaced.
    type Undo = Option<Ordered<O, T>>;

    #[inline]
    fn apply(&self, value: &mut Ordered<O, T>, core: u32) -> Result<(), OutOfRange> {
        if value.yields_to(&self.0, core) {
            *value = self.tuple(core).into();
        }
        Ok(())
    }

    fn slice(value: &Ordered<O, T>, _cores: u32) -> Ordered<O, T> {
        value.clone()
    }

    #[inline]
    fn accumulate(
        &self,
        slice: &mut Ordered<O, T>,
        core: u32,
    ) -> Result<Option<Ordered<O, T>>, Undecided> {
        let replaces = slice.yields_to(&self.0, core);
        Ok(replaces.then(|| std::mem::replace(slice, self.tuple(core).into())))
    }

    #[inline]
    fn undo(slice: &mut Ordered<O, T>, undo: Option<Ordered<O, T>>) {
        if let Some(before) = undo {
            *slice = before;
        }
    }

    fn merge(slice: Ordered<O, T>, value: &mut Ordered<O, T>) {
        if let Some(tuple) = slice.0
            && value.yields_to(&tuple.order, tuple.core)
        {
            *value = tuple.into();
        }
    }

    fn write(&self, core: u32, output: &mut Vec<u8>) {
        self.tuple(core).write(output);
    }
}
