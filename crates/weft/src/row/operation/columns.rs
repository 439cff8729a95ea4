//! Columns that an operation names, one or several.

use std::fmt;

use super::{ColumnOf, sealed};
use crate::row::column::ColumnSet;
use crate::row::schema::Record;

/// One or several columns of a row type, for operations that use nothing else of a row:
/// [`column_of!`](crate::column_of) or [`columns_of!`](crate::columns_of).
///
/// Sealed, because the values must be exactly those of the columns in the set.
pub trait Columns<R>: Copy + sealed::Sealed {
    /// References to the columns of a row: `&V` for one column, a tuple for several.
    type Values<'r>: Copy
    where
        R: 'r;

    /// References through which the columns can be changed: `&mut V`, or a tuple.
    type ValuesMut<'r>
    where
        R: 'r;

    /// Returns the positions of the columns.
    #[doc(hidden)]
    fn set(self) -> ColumnSet;

    /// Returns the columns of a row.
    #[doc(hidden)]
    fn get(self, row: &R) -> Self::Values<'_>;

    /// Returns the columns of a row, to be changed.
    #[doc(hidden)]
    fn get_mut(self, row: &mut R) -> Self::ValuesMut<'_>;
}

impl<R, V> sealed::Sealed for ColumnOf<R, V> {}

impl<R: Record, V: 'static> Columns<R> for ColumnOf<R, V> {
    type Values<'r> = &'r V;
    type ValuesMut<'r> = &'r mut V;

    #[inline(always)]
    fn set(self) -> ColumnSet {
        ColumnSet::of([self.position()])
    }

    #[inline(always)]
    fn get(self, row: &R) -> &V {
        ColumnOf::get(self, row)
    }

    #[inline(always)]
    fn get_mut(self, row: &mut R) -> &mut V {
        ColumnOf::get_mut(self, row)
    }
}

/// Several columns of row type `R`, named by [`columns_of!`](crate::columns_of). `L` is the tuple of the columns.
pub struct ColumnsOf<R, L: ColumnList<R>> {
    columns: L,
    get_mut: fn(&mut R) -> L::ValuesMut<'_>,
}

impl<R, L: ColumnList<R>> ColumnsOf<R, L> {
    /// Called by the macro. `get_mut` returns the columns of the list: a function for all of them together, since
    /// only the compiler can see that they are different.
    #[doc(hidden)]
    pub const fn new(columns: L, get_mut: fn(&mut R) -> L::ValuesMut<'_>) -> Self {
        ColumnsOf { columns, get_mut }
    }
}

impl<R, L: ColumnList<R>> Clone for ColumnsOf<R, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, L: ColumnList<R>> Copy for ColumnsOf<R, L> {}

impl<R, L: ColumnList<R>> fmt::Debug for ColumnsOf<R, L> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ColumnsOf").finish_non_exhaustive()
    }
}

impl<R, L: ColumnList<R>> sealed::Sealed for ColumnsOf<R, L> {}

impl<R: Record, L: ColumnList<R>> Columns<R> for ColumnsOf<R, L> {
    type Values<'r> = L::Values<'r>;
    type ValuesMut<'r> = L::ValuesMut<'r>;

    #[inline(always)]
    fn set(self) -> ColumnSet {
        self.columns.set()
    }

    #[inline(always)]
    fn get(self, row: &R) -> L::Values<'_> {
        self.columns.get(row)
    }

    #[inline(always)]
    fn get_mut(self, row: &mut R) -> L::ValuesMut<'_> {
        (self.get_mut)(row)
    }
}

/// Tuples of columns of row type `R`: two to eight.
#[doc(hidden)]
pub trait ColumnList<R>: Copy {
    type Values<'r>: Copy
    where
        R: 'r;
    type ValuesMut<'r>
    where
        R: 'r;

    fn set(self) -> ColumnSet;

    fn get(self, row: &R) -> Self::Values<'_>;
}

macro_rules! lists {
    ($(($($value:ident)*))*) => {$(
        impl<R: Record, $($value: 'static),*> ColumnList<R> for ($(ColumnOf<R, $value>,)*) {
            type Values<'r> = ($(&'r $value,)*);
            type ValuesMut<'r> = ($(&'r mut $value,)*);

            #[inline(always)]
            #[allow(non_snake_case, reason = "each column is named as the type of its values")]
            fn set(self) -> ColumnSet {
                let ($($value,)*) = self;
                ColumnSet::of([$($value.position()),*])
            }

            #[inline(always)]
            #[allow(non_snake_case, reason = "each column is named as the type of its values")]
            fn get(self, row: &R) -> Self::Values<'_> {
                let ($($value,)*) = self;
                ($($value.get(row),)*)
            }
        }
    )*};
}

lists!((A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H));

/// Names two to eight columns of a row type, for [`Transaction::get_columns`](crate::Transaction::get_columns) and
/// [`Transaction::update_columns`](crate::Transaction::update_columns): `columns_of!(Shop.{tax, name})`. For a single
/// column there is [`column_of!`](crate::column_of).
///
/// A column cannot be named twice:
///
/// ```compile_fail,E0499
/// # use weft::{Record, columns_of};
/// #[derive(Clone, Record)]
/// struct Shop { #[record(key)] id: u32, tax: u16 }
///
/// let columns = columns_of!(Shop.{tax, tax});
/// ```
#[macro_export]
macro_rules! columns_of {
    ($($row:ident)::+ . { $($column:ident),+ $(,)? }) => {
        const {
            $crate::operation::ColumnsOf::<$($row)::+, _>::new(
                $crate::columns_of!(@list [$($row)::+] $($column)+),
                |row| ($(&mut row.$column,)+),
            )
        }
    };
    (@list $row:tt $($column:ident)+) => {
        ($($crate::columns_of!(@column $row $column),)+)
    };
    (@column [$($row:ident)::+] $column:ident) => {
        $crate::column_of!($($row)::+ . $column)
    };
}
