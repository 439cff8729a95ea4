//! Rows that a commit makes again, on top of versions that other transactions have installed.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::store::record::version::VersionHeader;
use crate::store::table::TableRef;
use crate::store::worker::WorkerMemory;

/// A place for a row that is made again by the user's code. Dropping it drops the row and gives the place back, also
/// if that code panics.
pub struct MadeRow<'w> {
    place: NonNull<u8>,
    /// Whether there is a row in the place.
    is_complete: bool,
    table: TableRef,
    memory: &'w WorkerMemory,
}

impl<'w> MadeRow<'w> {
    /// Makes a row by `make`, which gets the new place and says whether it has put a row there. Returns `None` if it
    /// has not.
    ///
    /// # Safety
    /// If `make` returns true, it has written a row of the table to the place.
    pub unsafe fn new(
        table: TableRef,
        memory: &'w WorkerMemory,
        make: impl FnOnce(NonNull<u8>) -> bool,
    ) -> Option<Self> {
        let place = memory.allocate_row(table);
        let mut row = MadeRow { place, is_complete: false, table, memory };
        row.is_complete = make(place);
        row.is_complete.then_some(row)
    }

    /// Returns the row, which still belongs to this value.
    pub fn row(&self) -> NonNull<u8> {
        self.place
    }

    /// Hands the row over to the caller. This runs the user's code.
    pub fn into_raw(self) -> NonNull<u8> {
        // SAFETY: a complete row of the table, which only this value has.
        unsafe { self.memory.count_row_heap(self.table, self.place) };
        ManuallyDrop::new(self).place
    }
}

impl Drop for MadeRow<'_> {
    fn drop(&mut self) {
        let &mut MadeRow { place, is_complete, table, memory } = self;
        // SAFETY: only this value has the place, and a row in it is of this table.
        unsafe {
            match is_complete {
                true => memory.drop_row(place, table, false),
                false => memory.free_block(VersionHeader::block(place), table.core().row_class),
            }
        }
    }
}
