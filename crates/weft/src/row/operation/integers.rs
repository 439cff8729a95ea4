//! Operations on integers: addition, multiplication, maximum and minimum.

use super::{Operation, OperationKind, OutOfRange, Undecided, sealed};
use crate::row::column::ColumnValue;

/// Adds a number, which may be negative.
///
/// Algebra: addition of integers is commutative and associative, and 0 changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add<V>(pub V);

/// Multiplies by a number.
///
/// Algebra: multiplication of integers is commutative and associative, and 1 changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mul<V>(pub V);

/// Replaces a number by the operand, if the operand is greater.
///
/// Algebra: a semilattice: commutative, associative, and idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Max<V>(pub V);

/// Replaces a number by the operand, if the operand is less.
///
/// Algebra: a semilattice, as [`Max`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Min<V>(pub V);

impl<V> sealed::Sealed for Add<V> {}
impl<V> sealed::Sealed for Mul<V> {}
impl<V> sealed::Sealed for Max<V> {}
impl<V> sealed::Sealed for Min<V> {}

/// The integers that a column can hold.
pub trait Integer:
    ColumnValue + Copy + Ord + std::fmt::Debug + Send + Sync + sealed::Sealed + 'static
{
    /// Returns the bounds of the sum that each of `cores` workers may gather, for a column with the
    /// value `self`.
    #[doc(hidden)]
    fn sum_bounds(self, cores: u32) -> (Self, Self);

    /// Returns the bounds of the product that each of `cores` workers may gather, for a column with
    /// the value `self`.
    #[doc(hidden)]
    fn product_bounds(self, cores: u32) -> (Self, Self);

    #[doc(hidden)]
    fn checked_add(self, other: Self) -> Option<Self>;

    #[doc(hidden)]
    fn checked_mul(self, other: Self) -> Option<Self>;

    #[doc(hidden)]
    const ZERO: Self;

    #[doc(hidden)]
    const ONE: Self;
}

macro_rules! integers {
    ($($integer:ident)*) => {$(
        impl sealed::Sealed for $integer {}

        impl Integer for $integer {
            const ZERO: Self = 0;
            const ONE: Self = 1;

            fn sum_bounds(self, cores: u32) -> (Self, Self) {
                let cores = u128::from(cores.max(1));
                if cores > Self::MAX as u128 {
                    return (0, 0); // A narrow type has no room to share among so many.
                }
                let cores = cores as Self;
                // Division rounds towards zero, so a bound that is smaller by one is on the safe
                // side. A difference that the type cannot hold is cut off at the type's limit.
                let high = (Self::MAX / cores).saturating_sub(self / cores).saturating_sub(1);
                let low = (Self::MIN / cores).saturating_sub(self / cores).saturating_add(1);
                (low.min(0), high.max(0))
            }

            fn product_bounds(self, cores: u32) -> (Self, Self) {
                let most = Self::MAX as u128;
                #[allow(unused_comparisons, reason = "of unsigned types")]
                let value = if self < 0 { (self as i128).unsigned_abs() } else { self as u128 };
                let room = most / value.max(1);
                if room == 0 {
                    return (0, 1); // The least number of the type has no positive counterpart.
                }
                // If every worker gathers a factor of at most 2^bits, the product of all of them
                // still fits.
                let bits = room.ilog2() / cores.max(1);
                let bound = (1_u128 << bits.min(126)).min(most) as Self;
                ((0 as Self).checked_sub(bound).unwrap_or(0), bound)
            }

            #[inline(always)]
            fn checked_add(self, other: Self) -> Option<Self> {
                self.checked_add(other)
            }

            #[inline(always)]
            fn checked_mul(self, other: Self) -> Option<Self> {
                self.checked_mul(other)
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 i128 u8 u16 u32 u64 u128);

/// The slice of an addition or a multiplication: what was gathered, and its bounds.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Bounded<V> {
    gathered: V,
    low: V,
    high: V,
}

impl<V: Integer> Bounded<V> {
    fn new(gathered: V, (low, high): (V, V)) -> Self {
        Bounded { gathered, low, high }
    }

    /// Replaces the gathered number if the new one is within the bounds. Returns the old one.
    #[inline(always)]
    fn replace(&mut self, gathered: Option<V>) -> Result<V, Undecided> {
        match gathered {
            Some(gathered) if self.low <= gathered && gathered <= self.high => {
                Ok(std::mem::replace(&mut self.gathered, gathered))
            }
            _ => Err(Undecided),
        }
    }
}

#[cold]
fn out_of_range<V: Integer>(value: V, sign: char, operand: V) -> OutOfRange {
    let type_of = std::any::type_name::<V>();
    OutOfRange { message: format!("{value:?} {sign} {operand:?} is no {type_of}") }
}

/// An operation whose result may not fit in the type.
macro_rules! arithmetic {
    ($operation:ident, $sign:literal, $checked:ident, $neutral:ident, $bounds:ident) => {
        impl<V: Integer> Operation<V> for $operation<V> {
            const KIND: OperationKind = OperationKind::$operation;
            type Slice = Bounded<V>;
            type Undo = V;

            #[inline(always)]
            fn apply(&self, value: &mut V, _core: u32) -> Result<(), OutOfRange> {
                let result = value.$checked(self.0);
                *value = result.ok_or_else(|| out_of_range(*value, $sign, self.0))?;
                Ok(())
            }

            fn slice(value: &V, cores: u32) -> Bounded<V> {
                Bounded::new(V::$neutral, value.$bounds(cores))
            }

            #[inline(always)]
            fn accumulate(&self, slice: &mut Bounded<V>, _core: u32) -> Result<V, Undecided> {
                slice.replace(slice.gathered.$checked(self.0))
            }

            #[inline(always)]
            fn undo(slice: &mut Bounded<V>, undo: V) {
                slice.gathered = undo;
            }

            fn merge(slice: Bounded<V>, value: &mut V) {
                let merged = value.$checked(slice.gathered);
                *value = merged.expect("within a worker's share of the room");
            }

            fn write(&self, _core: u32, output: &mut Vec<u8>) {
                self.0.write(output);
            }
        }
    };
}

arithmetic!(Add, '+', checked_add, ZERO, sum_bounds);
arithmetic!(Mul, '*', checked_mul, ONE, product_bounds);

/// An operation that chooses one of two numbers.
macro_rules! choice {
    ($operation:ident, $choose:ident) => {
        impl<V: Integer> Operation<V> for $operation<V> {
            const KIND: OperationKind = OperationKind::$operation;
            type Slice = V;
            type Undo = V;

            #[inline(always)]
            fn apply(&self, value: &mut V, _core: u32) -> Result<(), OutOfRange> {
                *value = self.0.$choose(*value);
                Ok(())
            }

            fn slice(value: &V, _cores: u32) -> V {
                *value
            }

            #[inline(always)]
            fn accumulate(&self, slice: &mut V, _core: u32) -> Result<V, Undecided> {
                let chosen = self.0.$choose(*slice);
                Ok(std::mem::replace(slice, chosen))
            }

            #[inline(always)]
            fn undo(slice: &mut V, undo: V) {
                *slice = undo;
            }

            fn merge(slice: V, value: &mut V) {
                *value = slice.$choose(*value);
            }

            fn write(&self, _core: u32, output: &mut Vec<u8>) {
                self.0.write(output);
            }
        }
    };
}

choice!(Max, max);
choice!(Min, min);
