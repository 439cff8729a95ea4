//! Operations on integers: sums, within the declared bounds of a column, products, maximum and minimum.

use super::{Operation, OperationKind, OutOfRange, Reserve, Undecided, sealed};
use crate::row::column::ColumnValue;
use crate::row::schema::Bounds;

/// Adds a number, which may be negative.
///
/// Algebra: addition of integers is commutative and associative, and 0 changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add<V>(pub V);

/// Takes a number, which is not negative, if the column has that much above its least value.
///
/// Algebra: as [`Add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take<V>(pub V);

/// Adds a number that is not negative: what [`Take`] takes.
///
/// Algebra: as [`Add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Give<V>(pub V);

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
impl<V> sealed::Sealed for Take<V> {}
impl<V> sealed::Sealed for Give<V> {}
impl<V> sealed::Sealed for Mul<V> {}
impl<V> sealed::Sealed for Max<V> {}
impl<V> sealed::Sealed for Min<V> {}

/// The integers that a column can hold.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an integer, and only columns of integers have bounds and sums",
    label = "not an integer",
    note = "use a `check` for bounds of other types"
)]
pub trait Integer:
    ColumnValue + Copy + Ord + std::fmt::Debug + Send + Sync + sealed::Sealed + 'static
{
    /// Returns the bounds of the product that each of `cores` workers may gather, for a column with
    /// the value `self`.
    #[doc(hidden)]
    fn product_bounds(self, cores: u32) -> (Self, Self);

    #[doc(hidden)]
    fn checked_add(self, other: Self) -> Option<Self>;

    #[doc(hidden)]
    fn checked_sub(self, other: Self) -> Option<Self>;

    /// Returns `self` moved by as much as `to` is from `from`. The result must fit.
    #[doc(hidden)]
    fn moved(self, from: Self, to: Self) -> Self;

    /// Returns how far `self` is above another number, cut off at the greatest `u64`; 0 if it is not.
    #[doc(hidden)]
    fn above(self, other: Self) -> u64;

    /// Returns `self` plus, or minus, a number by which it can be moved.
    #[doc(hidden)]
    fn raised(self, by: u64) -> Self;

    #[doc(hidden)]
    fn lowered(self, by: u64) -> Self;

    /// Returns the value of the type that is nearest to a number.
    #[doc(hidden)]
    fn nearest(number: i128) -> Self;

    #[doc(hidden)]
    fn checked_mul(self, other: Self) -> Option<Self>;

    #[doc(hidden)]
    const ZERO: Self;

    #[doc(hidden)]
    const ONE: Self;

    #[doc(hidden)]
    const LEAST: Self;

    #[doc(hidden)]
    const GREATEST: Self;
}

macro_rules! integers {
    ($($integer:ident)*) => {$(
        impl sealed::Sealed for $integer {}

        impl Integer for $integer {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LEAST: Self = Self::MIN;
            const GREATEST: Self = Self::MAX;

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
            fn checked_sub(self, other: Self) -> Option<Self> {
                self.checked_sub(other)
            }

            #[inline(always)]
            fn checked_mul(self, other: Self) -> Option<Self> {
                self.checked_mul(other)
            }

            fn moved(self, from: Self, to: Self) -> Self {
                // The difference may not fit, but what was cut off of it is added back.
                self.wrapping_add(to.wrapping_sub(from))
            }

            fn above(self, other: Self) -> u64 {
                match self > other {
                    true => u64::try_from(self.abs_diff(other)).unwrap_or(u64::MAX),
                    false => 0,
                }
            }

            fn raised(self, by: u64) -> Self {
                self.wrapping_add(by as Self)
            }

            fn lowered(self, by: u64) -> Self {
                self.wrapping_sub(by as Self)
            }

            #[inline(always)]
            fn nearest(number: i128) -> Self {
                Self::try_from(number).unwrap_or(if number < 0 { Self::MIN } else { Self::MAX })
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 i128 u8 u16 u32 u64 u128);

/// The slice of sums: the column as this worker changes it, and the range in which it may: its share. The
/// range begins with the one value that the column has, and grows by what the worker draws from the [`Reserve`].
/// So in whatever order the operations of all workers are put, the column is never out of its bounds.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Share<V> {
    /// The column's value when the slice was made.
    start: V,
    value: V,
    low: V,
    high: V,
}

impl<V: Integer> Share<V> {
    fn new(start: V) -> Self {
        Share { start, value: start, low: start, high: start }
    }

    /// Changes the value, if it stays within the share. Returns the old one.
    #[inline(always)]
    fn replace(&mut self, value: Option<V>) -> Result<V, Undecided> {
        match value {
            Some(value) if self.low <= value && value <= self.high => {
                Ok(std::mem::replace(&mut self.value, value))
            }
            _ => Err(Undecided),
        }
    }

    /// Enlarges the share so that it includes a value.
    #[cold]
    fn draw(&mut self, value: Option<V>, reserve: &Reserve) -> bool {
        let Some(value) = value else { return false };
        let (below, above) = (self.low.above(value), value.above(self.high));
        if let Some(drawn) = (below > 0).then(|| reserve.draw(true, below)).flatten() {
            self.low = self.low.lowered(drawn);
        }
        if let Some(drawn) = (above > 0).then(|| reserve.draw(false, above)).flatten() {
            self.high = self.high.raised(drawn);
        }
        self.low <= value && value <= self.high
    }
}

/// Returns how far a column with this value is from its least and from its greatest value.
fn room<V: Integer>(value: V, bounds: Option<&Bounds>) -> (u64, u64) {
    let (min, max) = bounds.unwrap_or(&Bounds::NONE).range();
    (value.above(min), max.above(value))
}

/// Returns in words why the result of an operation is not within the bounds of its column.
#[cold]
#[inline(never)]
fn shortage<V: Integer>(value: V, sign: char, operand: V, (min, max): (V, V)) -> String {
    // On which side the result is can be said even if the type does not have it.
    match sign == '-' || operand < V::ZERO {
        true => format!("{value:?} {sign} {operand:?} is less than the minimum {min:?}"),
        false => format!("{value:?} {sign} {operand:?} is more than the maximum {max:?}"),
    }
}

#[cold]
#[inline(never)]
fn negative<V: Integer>(operand: V) -> OutOfRange {
    OutOfRange { message: format!("{operand:?} is negative") }
}

#[cold]
#[inline(never)]
fn out_of_range<V: Integer>(value: V, sign: char, operand: V) -> OutOfRange {
    let type_of = std::any::type_name::<V>();
    OutOfRange { message: format!("{value:?} {sign} {operand:?} is no {type_of}") }
}

/// Operations that move a number. The last two arguments say whether the operand can be negative, and whether the
/// operation falls short at the limits of the type, too.
macro_rules! sums {
    ($($operation:ident as $kind:ident, $sign:literal, $checked:ident, $is_signed:literal, $is_bounded:literal;)*) => {$(
        impl<V: Integer> $operation<V> {
            /// Returns the result, if the type has it and the operand is allowed.
            #[inline(always)]
            fn of(&self, value: V) -> Option<V> {
                ($is_signed || self.0 >= V::ZERO).then(|| value.$checked(self.0)).flatten()
            }
        }

        impl<V: Integer> Operation<V> for $operation<V> {
            const KIND: OperationKind = OperationKind::$kind;
            const KEEPS_BOUNDS: bool = true;
            type Family = Add<V>;
            type Slice = Share<V>;
            type Undo = V;

            #[inline(always)]
            fn apply(&self, value: &mut V) -> Result<(), OutOfRange> {
                if !$is_signed && self.0 < V::ZERO {
                    return Err(negative(self.0));
                }
                *value = self.of(*value).ok_or_else(|| out_of_range(*value, $sign, self.0))?;
                Ok(())
            }

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn shortage(&self, value: &V, bounds: Option<&Bounds>) -> Option<String> {
                if !$is_bounded && bounds.is_none() || !$is_signed && self.0 < V::ZERO {
                    return None;
                }
                let (min, max) = bounds.unwrap_or(&Bounds::NONE).range();
                match self.of(*value) {
                    Some(result) if min <= result && result <= max => None,
                    _ => Some(shortage(*value, $sign, self.0, (min, max))),
                }
            }

            fn slice(value: &V, _cores: u32) -> Share<V> {
                Share::new(*value)
            }

            fn room(value: &V, bounds: Option<&Bounds>) -> (u64, u64) {
                room(*value, bounds)
            }

            #[inline(always)]
            fn accumulate(&self, slice: &mut Share<V>) -> Result<V, Undecided> {
                slice.replace(self.of(slice.value))
            }

            fn draw(&self, slice: &mut Share<V>, reserve: &Reserve) -> bool {
                slice.draw(self.of(slice.value), reserve)
            }

            #[inline(always)]
            fn undo(slice: &mut Share<V>, undo: V) {
                slice.value = undo;
            }

            fn merge(slice: Share<V>, value: &mut V) {
                *value = value.moved(slice.start, slice.value);
            }

            fn write(&self, output: &mut Vec<u8>) {
                self.0.write(output);
            }
        }
    )*};
}

sums! {
    Add as Add, '+', checked_add, true, false;
    Give as Add, '+', checked_add, false, false;
    Take as Take, '-', checked_sub, false, true;
}

/// The slice of a product: what was gathered, and its bounds.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Product<V> {
    gathered: V,
    low: V,
    high: V,
}

impl<V: Integer> Operation<V> for Mul<V> {
    const KIND: OperationKind = OperationKind::Mul;
    type Family = Self;
    type Slice = Product<V>;
    type Undo = V;

    #[inline(always)]
    fn apply(&self, value: &mut V) -> Result<(), OutOfRange> {
        let result = value.checked_mul(self.0);
        *value = result.ok_or_else(|| out_of_range(*value, '*', self.0))?;
        Ok(())
    }

    fn slice(value: &V, cores: u32) -> Product<V> {
        let (low, high) = value.product_bounds(cores);
        Product { gathered: V::ONE, low, high }
    }

    #[inline(always)]
    fn accumulate(&self, slice: &mut Product<V>) -> Result<V, Undecided> {
        match slice.gathered.checked_mul(self.0) {
            Some(gathered) if slice.low <= gathered && gathered <= slice.high => {
                Ok(std::mem::replace(&mut slice.gathered, gathered))
            }
            _ => Err(Undecided),
        }
    }

    #[inline(always)]
    fn undo(slice: &mut Product<V>, undo: V) {
        slice.gathered = undo;
    }

    fn merge(slice: Product<V>, value: &mut V) {
        let merged = value.checked_mul(slice.gathered);
        *value = merged.expect("within a worker's share of the room");
    }

    fn write(&self, output: &mut Vec<u8>) {
        self.0.write(output);
    }
}

/// An operation that chooses one of two numbers.
macro_rules! choice {
    ($operation:ident, $choose:ident) => {
        impl<V: Integer> Operation<V> for $operation<V> {
            const KIND: OperationKind = OperationKind::$operation;
            type Family = Self;
            type Slice = V;
            type Undo = V;

            #[inline(always)]
            fn apply(&self, value: &mut V) -> Result<(), OutOfRange> {
                *value = self.0.$choose(*value);
                Ok(())
            }

            fn slice(value: &V, _cores: u32) -> V {
                *value
            }

            #[inline(always)]
            fn accumulate(&self, slice: &mut V) -> Result<V, Undecided> {
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

            fn write(&self, output: &mut Vec<u8>) {
                self.0.write(output);
            }
        }
    };
}

choice!(Max, max);
choice!(Min, min);
