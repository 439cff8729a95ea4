//! Deferred changes: changes of columns that are noted now and made later, together with those of other procedures
//! (DBX-TC, §3.2).

use std::ptr::NonNull;

use crate::row::column::ColumnSet;
use crate::row::schema::Record;
use crate::store::record::RecordPointer;
use crate::store::table::TableRef;

/// A change to a row that is made later.
pub struct DeferredChange<H> {
    pub table: TableRef,
    pub record: RecordPointer<H>,
    pub sums: Box<dyn Sums>,
}

// SAFETY: the record is in a table of the database, which outlives the deferred changes. The sums are `Send`.
unsafe impl<H> Send for DeferredChange<H> {}

/// The amounts by which columns of a row change.
pub trait Sums: Send {
    /// Adds the amounts to the row `onto`, and writes the resulting row to `place`. If a sum does not fit its
    /// column's type, returns false and writes nothing.
    ///
    /// # Safety
    /// `onto` is a row of the table that this was made for, and is not dropped during the call. `place` has room
    /// for such a row, and is the caller's own.
    unsafe fn add_to(&self, onto: NonNull<u8>, place: NonNull<u8>) -> bool;
}

/// A row before and after a change. Only the amounts by which these columns have changed are used.
pub struct RowDelta<T> {
    pub before: T,
    pub after: T,
    pub columns: ColumnSet,
}

impl<T: Record> Sums for RowDelta<T> {
    unsafe fn add_to(&self, onto: NonNull<u8>, place: NonNull<u8>) -> bool {
        // SAFETY: by this function's contract.
        let onto = unsafe { onto.cast::<T>().as_ref() };
        match self.after.rebase(&self.before, onto, self.columns) {
            Some(row) => {
                // SAFETY: by this function's contract.
                unsafe { place.cast::<T>().write(row) };
                true
            }
            None => false,
        }
    }
}
