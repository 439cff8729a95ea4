//! Operations on the bits of a `bool` or of an integer.

use super::{Operation, OperationKind, OutOfRange, Undecided, sealed};
use crate::row::column::ColumnValue;

/// Sets a `bool` if the operand is set. Sets the bits of an integer that are set in the operand.
///
/// Algebra: a semilattice: commutative, associative, and idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Or<V>(pub V);

/// Clears a `bool` if the operand is clear. Clears the bits of an integer that are clear in the
/// operand.
///
/// Algebra: a semilattice, as [`Or`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct And<V>(pub V);

impl<V> sealed::Sealed for Or<V> {}
impl<V> sealed::Sealed for And<V> {}

/// The operands that change nothing, made from all zeros.
mod neutral {
    pub fn zeros<V>(zeros: V) -> V {
        zeros
    }

    pub fn ones<V: std::ops::Not<Output = V>>(zeros: V) -> V {
        !zeros
    }
}

macro_rules! bits {
    ($operation:ident, $operator:tt, $assign:tt, $neutral:ident, $($value:ident)*) => {$(
        impl Operation<$value> for $operation<$value> {
            const KIND: OperationKind = OperationKind::$operation;
            type Family = Self;
            type Slice = $value;
            type Undo = $value;

            #[inline(always)]
            fn apply(&self, value: &mut $value) -> Result<(), OutOfRange> {
                *value $assign self.0;
                Ok(())
            }

            fn slice(_value: &$value, _cores: u32) -> $value {
                neutral::$neutral($value::default())
            }

            #[inline(always)]
            fn accumulate(&self, slice: &mut $value) -> Result<$value, Undecided> {
                let gathered = *slice $operator self.0;
                Ok(std::mem::replace(slice, gathered))
            }

            #[inline(always)]
            fn undo(slice: &mut $value, undo: $value) {
                *slice = undo;
            }

            fn merge(slice: $value, value: &mut $value) {
                *value $assign slice;
            }

            fn write(&self, output: &mut Vec<u8>) {
                ColumnValue::write(&self.0, output);
            }
        }
    )*};
}

bits!(Or, |, |=, zeros, bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128);
bits!(And, &, &=, ones, bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128);
