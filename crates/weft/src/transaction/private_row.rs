//! Private rows: new versions of rows that only their transaction knows of.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::recording::stamp;
use crate::commit::Protocol;
use crate::commit::Worker;
use crate::store::table::TableRef;

/// A new version of a row that has no other owner yet. If a closure panics or a check fails, it is dropped,
/// together with its block.
pub(super) struct PrivateRow<'w, P: Protocol, R> {
    row: NonNull<R>,
    worker: &'w Worker<P>,
    table: TableRef,
}

impl<'w, P: Protocol, R> PrivateRow<'w, P, R> {
    pub(super) fn new(worker: &'w Worker<P>, table: TableRef, row: R) -> Self {
        let place = worker.memory.allocate_row(table).cast::<R>();
        // SAFETY: the place is new, and the table's rows are of this type.
        unsafe { place.write(row) };
        PrivateRow { row: place, worker, table }
    }

    #[inline(always)]
    pub(super) fn cloned(worker: &'w Worker<P>, table: TableRef, row: &R) -> Self
    where
        R: Clone,
    {
        let place = worker.memory.allocate_row(table).cast::<R>();
        // SAFETY: the place is new, and the table's rows are of this type. (If `clone` panics, the block stays
        // unused until the database is dropped.)
        unsafe { place.write(row.clone()) };
        PrivateRow { row: place, worker, table }
    }

    #[inline(always)]
    pub(super) fn get(&self) -> &R {
        // SAFETY: written by `new` or `cloned`, and owned by this value.
        unsafe { self.row.as_ref() }
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self) -> &mut R {
        // SAFETY: as in `get`.
        unsafe { self.row.as_mut() }
    }

    /// Counts that the row owns so many bytes elsewhere.
    #[inline(always)]
    pub(super) fn count_heap(&self, bytes: usize) {
        // SAFETY: a row of the table in a block of its own, which only this value has.
        unsafe { self.worker.memory.count_heap_of(self.table, self.row, bytes) };
    }

    /// Returns the row's address. The row still belongs to this value.
    #[inline(always)]
    pub(super) fn row(&self) -> NonNull<u8> {
        self.row.cast()
    }

    /// Hands the row over to the executor.
    #[inline(always)]
    pub(super) fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).stamped()
    }

    /// Returns the row's address, for the executor. When the executor has the row, this value must be forgotten.
    #[inline(always)]
    pub(super) fn stamped(&self) -> NonNull<u8> {
        let row = self.row.cast();
        // SAFETY: the row is complete, and owned by this value until it is handed over.
        unsafe { stamp(self.worker, self.table, row) };
        row
    }
}

impl<P: Protocol, R> Drop for PrivateRow<'_, P, R> {
    fn drop(&mut self) {
        // SAFETY: the row is complete, and no other code has its address.
        unsafe { self.worker.memory.drop_row(self.row.cast(), self.table, false) };
    }
}
