//! Commutative operations: changes of a column whose order makes no difference.
//!
//! An operation changes one column of one row, and returns nothing about the value that it found
//! there. A change that is written as an operation
//! ([`Transaction::apply`](crate::Transaction::apply), [`add`](crate::Transaction::add) and similar
//! methods) says more than a read and a write: any other change of the same kind may come before it
//! or after it, with the same outcome. Every protocol can run an operation as an ordinary update.
//! Under the optimistic protocols, transactions do not abort each other by operations: a commit
//! applies them to the present row if another transaction has replaced the row in the meantime.
//! Under phase reconciliation (`Doppel`, in `weft-protocols`) each worker gathers its own
//! operations on a contended column in a slice, and the slices are merged into the row later.
//!
//! ```
//! use weft::operation::{Ordered, TopK};
//! use weft::{Database, Error, Record, column_of};
//!
//! #[derive(Clone, Record)]
//! struct Auction {
//!     #[record(key)]
//!     item: u32,
//!     bids: i64,
//!     highest: i64,
//!     /// The highest bidder; of several with the same bid, the first.
//!     winner: Ordered<i64, u32>,
//!     /// The three highest bids, and their bidders.
//!     top: TopK<i64, u32, 3>,
//! }
//!
//! let database = Database::builder().table::<Auction>().open()?;
//! let auctions = database.table::<Auction>()?;
//! database.transact(|tx| {
//!     let (winner, top) = (Ordered::default(), TopK::default());
//!     tx.insert(&auctions, Auction { item: 7, bids: 0, highest: 0, winner, top })
//! })?;
//!
//! for (bidder, amount) in [(1, 50), (2, 80), (3, 60), (4, 70)] {
//!     database.transact(|tx| {
//!         tx.add(&auctions, &7, column_of!(Auction.bids), 1)?;
//!         tx.max(&auctions, &7, column_of!(Auction.highest), amount)?;
//!         tx.ordered_put(&auctions, &7, column_of!(Auction.winner), amount, bidder)?;
//!         tx.top_k_insert(&auctions, &7, column_of!(Auction.top), amount, bidder)
//!     })?;
//! }
//! let auction = database.transact(|tx| Ok::<_, Error>(tx.get(&auctions, &7)?.cloned()))?.unwrap();
//! assert_eq!((auction.bids, auction.highest), (4, 80));
//! assert_eq!(auction.winner.value(), Some(&2));
//! assert_eq!(auction.top.values().collect::<Vec<_>>(), [&2, &4, &3]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # The operations
//!
//! These are the operations of Doppel (Narula et al., OSDI 2014, §4), whose names are in capitals,
//! and a few more of the same kind. The table shows the columns that an operation works on, the new
//! value of a column `v`, and what a worker gathers while the row is split (its *slice*).
//!
//! | operation | column | `v` becomes | a slice |
//! | --- | --- | --- | --- |
//! | [`Add`], ADD; [`Give`] | integers | `v + n` | a sum, within a share |
//! | [`Take`] | integers | `v - n`, if there is that much | the same |
//! | [`Mul`] | integers | `v * n` | a product |
//! | [`Max`], MAX; [`Min`], MIN | integers | the greater or the lesser of `v` and `n` | the same |
//! | [`Or`], [`And`] | `bool`, integers | `v \| n`, `v & n` | the same |
//! | [`OrderedPut`], OPUT | [`Ordered`] | this value, if its order is greater than that of `v` | the value with the greatest order |
//! | [`TopKInsert`], TOPKINSERT | [`TopK`] | `v` with this value; the `K` with the greatest orders stay | the same |
//! | [`Union`] | [`BoundedSet`] | `v` with these elements | the new elements |
//!
//! **Of equal orders the first stays**, or is listed first: that of the transaction that comes first in the serial
//! order. (In the paper the number of the core decides.) A [`TopK`] lists a value as often as it was inserted, or only
//! the best entry of each value ([`OnePerValue`]).
//!
//! # Errors
//!
//! An operation on a row that does not exist fails with
//! [`Failure::NoSuchRow`](crate::Failure::NoSuchRow), under every protocol, because an operation
//! returns no result that could show it. A column that holds nothing yet ([`Ordered`], [`TopK`] and
//! [`BoundedSet`] as `default()` makes them) is less than every value.
//!
//! A result that does not fit fails with [`Failure::OutOfRange`](crate::Failure::OutOfRange): a sum
//! or a product that the column's type cannot hold, or elements that a set has no room for. A sum
//! outside the declared bounds of its column (`#[record(min = 0, max = 9)]`) fails with
//! [`Failure::NotEnough`](crate::Failure::NotEnough), and so does a [`Take`] of more than there is.
//! The operation itself returns this error, so the transaction sees it at the same place under every
//! protocol.
//!
//! Such operations commute only as long as none fails. So a worker gathers them only within its share
//! of the room that there is. All sums of a column draw their shares from one reserve: one worker can
//! use all of the room if no other does. Of `J` workers each may gather a product or a set within
//! one `J`th of the room. An operation that exceeds the share is decided on the row itself, once the
//! row is joined again.

mod bits;
mod columns;
mod erased;
mod inline_list;
mod integers;
mod ordered;
mod reserve;
mod set;
mod top_k;

use std::fmt;

pub use bits::{And, Or};
#[doc(hidden)]
pub use columns::ColumnList;
pub use columns::{Columns, ColumnsOf};
#[doc(hidden)]
pub use erased::ColumnOperation;
#[doc(hidden)]
pub use erased::RepeatableOperation;
#[doc(hidden)]
pub use erased::UndoLog;
pub use integers::{Add, Give, Integer, Max, Min, Mul, Take};
pub use ordered::{Ordered, OrderedPut, OrderedTuple};
#[doc(hidden)]
pub use reserve::Reserve;
pub use set::{BoundedSet, Union};
pub use top_k::{OnePerValue, Several, TopK, TopKEntries, TopKInsert};

use crate::row::column::ColumnValue;
use crate::row::schema::{Bounds, Record};

/// An operation on a column that holds a `V`. The [module](self) describes the operations.
///
/// Sealed, because protocols and the log know all of them.
pub trait Operation<V>: fmt::Debug + sealed::Sealed + Sized + 'static {
    /// The operation's kind.
    const KIND: OperationKind;

    /// Whether it matters in which order such operations commit. Then slices hold stamps.
    #[doc(hidden)]
    const IS_STAMPED: bool = false;

    /// Whether the operation's slices keep a column within its declared bounds.
    #[doc(hidden)]
    const KEEPS_BOUNDS: bool = false;

    /// The operation that stands for all those that use the same slices as this one, usually itself.
    #[doc(hidden)]
    type Family: Operation<V, Slice = Self::Slice>;

    /// A slice: what one of several workers gathers for a split column.
    #[doc(hidden)]
    type Slice: 'static;

    /// What [`Operation::undo`] needs to know.
    #[doc(hidden)]
    type Undo: 'static;

    /// Applies the operation to a column.
    ///
    /// # Errors
    /// If the result is outside the range of the column's type. The column is unchanged then.
    fn apply(&self, value: &mut V) -> Result<(), OutOfRange>;

    /// Returns in words what a column lacks for the operation: its result would be outside the
    /// declared bounds, or it takes more than there is.
    #[doc(hidden)]
    #[inline(always)]
    fn shortage(&self, value: &V, bounds: Option<&Bounds>) -> Option<String> {
        let _ = (value, bounds);
        None
    }

    /// Returns the slice with which one of `cores` workers begins, for a column with the value
    /// `value`.
    #[doc(hidden)]
    fn slice(value: &V, cores: u32) -> Self::Slice;

    /// Returns by how much all workers together may move the column down, and up.
    #[doc(hidden)]
    fn room(value: &V, bounds: Option<&Bounds>) -> (u64, u64) {
        let _ = (value, bounds);
        (0, 0)
    }

    /// Enlarges a slice out of the reserve, so that there is room for the operation in it. Returns
    /// false, and changes nothing, if the reserve has too little.
    #[doc(hidden)]
    fn draw(&self, slice: &mut Self::Slice, reserve: &Reserve) -> bool {
        let _ = (slice, reserve);
        false
    }

    /// Applies the operation to a slice. `Err` leaves the slice unchanged, and means that the
    /// worker cannot decide from its slice alone whether there is room for the result.
    #[doc(hidden)]
    fn accumulate(&self, slice: &mut Self::Slice) -> Result<Self::Undo, Undecided>;

    /// Stamps what the transaction that now commits has put into a slice. The stamps of all workers
    /// are in the order in which their transactions commit.
    #[doc(hidden)]
    fn settle(slice: &mut Self::Slice, stamp: u64) {
        let _ = (slice, stamp);
    }

    /// Undoes the last [`Operation::accumulate`].
    #[doc(hidden)]
    fn undo(slice: &mut Self::Slice, undo: Self::Undo);

    /// Merges a worker's slice into the column. Since the slice was made, nothing has changed the
    /// column but merges of other slices.
    #[doc(hidden)]
    fn merge(slice: Self::Slice, value: &mut V);

    /// Ends a change of the row by [merges](Operation::merge).
    #[doc(hidden)]
    fn finish(value: &mut V) {
        let _ = value;
    }

    /// Appends the operation in the form in which it is logged, without its kind. If the operation
    /// [has a stamp](Operation::IS_STAMPED), the last eight bytes are those of the stamp.
    #[doc(hidden)]
    fn write(&self, output: &mut Vec<u8>);
}

mod sealed {
    pub trait Sealed {}
}

/// The error for an operation whose result is not a value of the column's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// What did not fit, in words.
    pub message: String,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// The error for an operation that a worker cannot decide from its slice alone.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided;

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum OperationKind {
    /// [`Add`] and [`Give`].
    Add = 1,
    /// [`Mul`].
    Mul = 2,
    /// [`Max`].
    Max = 3,
    /// [`Min`].
    Min = 4,
    /// [`Or`].
    Or = 5,
    /// [`And`].
    And = 6,
    /// [`OrderedPut`].
    OrderedPut = 7,
    /// [`TopKInsert`].
    TopKInsert = 8,
    /// [`Union`].
    Union = 9,
    /// [`Take`].
    Take = 10,
}

impl OperationKind {
    /// Every kind.
    pub const ALL: [OperationKind; 10] = [
        OperationKind::Add,
        OperationKind::Mul,
        OperationKind::Max,
        OperationKind::Min,
        OperationKind::Or,
        OperationKind::And,
        OperationKind::OrderedPut,
        OperationKind::TopKInsert,
        OperationKind::Union,
        OperationKind::Take,
    ];

    /// Returns the kind's name for machines and people, in snake case. These names are stable.
    pub const fn name(self) -> &'static str {
        match self {
            OperationKind::Add => "add",
            OperationKind::Mul => "mul",
            OperationKind::Max => "max",
            OperationKind::Min => "min",
            OperationKind::Or => "or",
            OperationKind::And => "and",
            OperationKind::OrderedPut => "ordered_put",
            OperationKind::TopKInsert => "top_k_insert",
            OperationKind::Union => "union",
            OperationKind::Take => "take",
        }
    }
}

impl OperationKind {
    /// Returns the kind with this number in the log.
    pub(crate) fn of_number(number: u8) -> Option<OperationKind> {
        OperationKind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A column of the row type `R` that holds a `V`, for use in operations. Made by
/// [`column_of!`](macro@crate::column_of).
pub struct ColumnOf<R, V> {
    position: usize,
    is_indexed: bool,
    is_checked: bool,
    bounds: Option<&'static Bounds>,
    get: fn(&R) -> &V,
    get_mut: fn(&mut R) -> &mut V,
}

impl<R: Record, V> ColumnOf<R, V> {
    /// Returns the column with this name and these accessors. Called by
    /// [`column_of!`](macro@crate::column_of).
    ///
    /// # Panics
    /// If there is no such column, or if it belongs to the primary key. Where the macro calls this,
    /// it is a compile-time error.
    #[doc(hidden)]
    pub const fn new(name: &str, get: fn(&R) -> &V, get_mut: fn(&mut R) -> &mut V) -> Self {
        // A column is named without the `r#` of its field.
        let name = match name.as_bytes() {
            [b'r', b'#', ..] => name.split_at(2).1,
            _ => name,
        };
        let mut position = 0;
        while position < R::COLUMNS.len() {
            let column = &R::COLUMNS[position];
            if is_same(column.name, name) {
                assert!(
                    !column.in_key,
                    "a column of the primary key cannot be changed by an operation"
                );
                return ColumnOf {
                    position,
                    is_indexed: is_indexed::<R>(name),
                    is_checked: R::IS_CHECKED && column.is_checked,
                    bounds: if column.bounds.is_some() { Some(&column.bounds) } else { None },
                    get,
                    get_mut,
                };
            }
            position += 1;
        }
        panic!("the table has no column of this name");
    }

    /// Returns the position in [`Record::COLUMNS`].
    pub const fn position(self) -> usize {
        self.position
    }

    /// Returns the column's name.
    pub const fn name(self) -> &'static str {
        R::COLUMNS[self.position].name
    }

    /// Returns whether a secondary index is ordered by the column.
    #[doc(hidden)]
    pub const fn is_indexed(self) -> bool {
        self.is_indexed
    }

    /// Returns the declared bounds of the column, if there are any.
    #[inline(always)]
    pub(crate) const fn bounds(self) -> Option<&'static Bounds> {
        self.bounds
    }

    /// Returns why the column cannot be split for the operation `O`, if the reason is in the row type.
    #[doc(hidden)]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub const fn unsplittable<O: Operation<V>>(self) -> Option<&'static str> {
        if R::EXPIRY.is_some() {
            Some("the rows of its table expire")
        } else if self.is_indexed {
            Some("an index is ordered by the column")
        } else if self.is_checked {
            Some(
                "a check reads the column: name the columns that it reads, `check(path, columns(…))`",
            )
        } else if self.bounds.is_some() && !O::KEEPS_BOUNDS {
            Some("the column has bounds, which only `take`, `give` and `add` keep")
        } else {
            None
        }
    }
}

impl<R, V> ColumnOf<R, V> {
    /// Returns the column's value in a row.
    #[inline(always)]
    pub fn get(self, row: &R) -> &V {
        (self.get)(row)
    }

    #[inline(always)]
    pub(crate) fn get_mut(self, row: &mut R) -> &mut V {
        (self.get_mut)(row)
    }
}

/// Returns whether a secondary index is ordered by the column of this name.
const fn is_indexed<R: Record>(name: &str) -> bool {
    let mut index = 0;
    while index < R::INDEXES.len() {
        let columns = R::INDEXES[index].columns;
        let mut column = 0;
        while column < columns.len() {
            if is_same(columns[column], name) {
                return true;
            }
            column += 1;
        }
        index += 1;
    }
    false
}

/// Returns whether two texts are equal.
const fn is_same(text: &str, other: &str) -> bool {
    let (text, other) = (text.as_bytes(), other.as_bytes());
    let mut position = 0;
    while position < text.len() && position < other.len() {
        if text[position] != other[position] {
            return false;
        }
        position += 1;
    }
    text.len() == other.len()
}

impl<R, V> Clone for ColumnOf<R, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, V> Copy for ColumnOf<R, V> {}

impl<R, V> fmt::Debug for ColumnOf<R, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ColumnOf").field("position", &self.position).finish_non_exhaustive()
    }
}

/// Names a column of a row type, for operations: `column_of!(Auction.bids)`.
///
/// A column of the primary key is refused, because an operation on it would make the row another
/// one:
///
/// ```compile_fail,E0080
/// # use weft::{Record, column_of};
/// #[derive(Clone, Record)]
/// struct Auction { #[record(key)] item: u32, bids: i64 }
///
/// let item = column_of!(Auction.item);
/// ```
#[macro_export]
macro_rules! column_of {
    ($($row:ident)::+ . $column:ident) => {
        const {
            $crate::operation::ColumnOf::<$($row)::+, _>::new(
                ::core::stringify!($column),
                |row| &row.$column,
                |row| &mut row.$column,
            )
        }
    };
}

/// The types of orders and of the elements of sets: integers, `bool`, and tuples of up to four of
/// these. Tuples are compared element by element.
///
/// Sealed, because the replay of a log compares the values in their stored form.
pub trait Order:
    ColumnValue + Ord + Clone + fmt::Debug + Send + Sync + sealed::Sealed + 'static
{
}

macro_rules! orders {
    ($($number:ident)*) => {$(
        impl Order for $number {}
    )*};
}

orders!(bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128);

impl sealed::Sealed for bool {}

macro_rules! tuples_of_orders {
    ($(($($element:ident)*))*) => {$(
        impl<$($element: Order),*> sealed::Sealed for ($($element,)*) {}
        impl<$($element: Order),*> Order for ($($element,)*) {}
    )*};
}

tuples_of_orders!((A) (A B) (A B C) (A B C D));

/// Types that [`Ordered`] and [`TopK`] can hold.
pub trait Payload: ColumnValue + Clone + fmt::Debug + Send + Sync + 'static {}

impl<T: ColumnValue + Clone + fmt::Debug + Send + Sync + 'static> Payload for T {}
