//! Changes of columns that are taken down now, and made later, together with others' (DBX-TC, §3.2).

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

// SAFETY: the record is one of a table of the database, which outlives what waits; the sums may be sent.
unsafe impl<H> Send for DeferredChange<H> {}

/// By how much columns of a row move.
pub trait Sums: Send {
    /// Writes to `place` what a version of the row comes to; false, and nothing is written, if a sum is no
    /// value of its column's type.
    ///
    /// # Safety
    /// `onto` is a row of the table that this was made for, and not dropped meanwhile; `place` has room for one,
    /// and is the caller's own.
    unsafe fn add_to(&self, onto: NonNull<u8>, place: NonNull<u8>) -> bool;
}

/// A row before and after a change, of which nothing is taken but by how much these columns have moved.
pub struct Moved<T> {
    pub before: T,
    pub after: T,
    pub columns: ColumnSet,
}

impl<T: Record> Sums for Moved<T> {
    unsafe fn add_to(&self, onto: NonNull<u8>, place: NonNull<u8>) -> bool {
        // SAFETY: by the contract.
        let onto = unsafe { onto.cast::<T>().as_ref() };
        match self.after.rebase(&self.before, onto, self.columns) {
            Some(row) => {
                // SAFETY: by the contract.
                unsafe { place.cast::<T>().write(row) };
                true
            }
            None => false,
        }
    }
}
