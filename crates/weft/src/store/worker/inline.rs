//! Rows move back into their records.
//!
//! A record has room for one row, where its first version lies. An update puts the next version into a block
//! of its own. When a grace period has passed, no thread reads the inline version any more. Then a worker
//! copies the newest row into the room, makes the record lead there, and retires the block:
//!
//! ```text
//!   +--------+--------+---------+            +--------+--------+---------+
//!   | newest | header | (slot)  |            | newest | header | row     |
//!   +---|----+--------+---------+    --->    +---|----+--------+---------+
//!       |     +-----+                            +--------------^
//!       +---->| row |
//!             +-----+                         (the block is garbage)
//! ```
//!
//! The copy is the same version: its number and the record's version word stay as they are, so the move does
//! not invalidate what other transactions have read. Readers that have found the old place keep reading
//! there: its block is freed after a grace period of its own. That period is over when the transactions of
//! today have ended. A snapshot, which is pinned only while it looks a row up, may have returned the row at
//! its old place and be open for much longer. So the block is kept, like a version that was replaced, until
//! all snapshots have been closed that were open at the move ([`WorkerMemory::leave_places`]).
//!
//! Only rows that are [plain](crate::schema::PlainRow) move: two of them may lie in memory at the same time, and
//! copying one runs no code of the user's. And only under protocols that can [hold] a row, so that no
//! transaction replaces it during the move.
//!
//! [hold]: crate::protocol::Protocol::HOLD_ROW

use std::ptr::{self, NonNull};

#[cfg(weft_sim)]
use weft_htm::planted::Bug;
use weft_htm::word::Ordering;
#[cfg(feature = "canary")]
use weft_htm::word::yield_now;

#[cfg(feature = "canary")]
use super::OperationFlaw;
use super::WorkerMemory;
use crate::store::record::version::{NEVER, UNNUMBERED, VersionHeader};
use crate::store::record::{HoldOutcome, Newest, newest_word};
use crate::store::retention::{NONE_OPEN, RetainedEntry};
use crate::store::table::TableRef;

/// The result of an attempt to move a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveOutcome {
    /// The row lies inline now, and this was its place.
    Moved(NonNull<u8>),
    /// A transaction is changing the record: try again later.
    Busy,
    /// The record has no row, or a snapshot needs an older version of it.
    Unmovable,
}

/// A place from which a row was moved into its record.
#[derive(Debug)]
pub(super) struct LeftPlace {
    row: NonNull<u8>,
    record: NonNull<u8>,
    table: TableRef,
}

// SAFETY: the holder of the value owns the place, and uses the record as the thread does that works for the worker.
unsafe impl Send for LeftPlace {}

impl WorkerMemory {
    /// Moves the newest row of a record into the record's inline slot. If that is not possible now, but soon,
    /// leaves it to a later call. Otherwise gives the slot up.
    ///
    /// # Safety
    /// The entry of the record's awaited slot was in the garbage, and its grace period has passed. The worker
    /// is pinned.
    pub(super) unsafe fn move_inline(&self, table: TableRef, record: NonNull<u8>) {
        #[cfg(weft_sim)]
        if Bug::is_any_planted() {
            return; // The slot may be in use.
        }
        // SAFETY: passed on to the caller.
        match unsafe { self.try_move_inline(table, record) } {
            MoveOutcome::Moved(row) => {
                self.left_places.borrow_mut().push(LeftPlace { row, record, table });
            }
            MoveOutcome::Busy => self.push_slot(table, record),
            // SAFETY: the slot is awaited, by this call.
            MoveOutcome::Unmovable => unsafe { self.give_up_slot(table, record) },
        }
    }

    /// # Safety
    /// As for [`WorkerMemory::move_inline`].
    unsafe fn try_move_inline(&self, table: TableRef, record: NonNull<u8>) -> MoveOutcome {
        let core = table.core();
        let inline = table.inline_row(record);
        #[cfg(feature = "canary")]
        let is_copied = self.has_flaw(OperationFlaw::CopiedBeforeHeld)
            // SAFETY: passed on to the caller.
            && unsafe { copy_newest(record, inline, core.row_bytes) };
        #[cfg(not(feature = "canary"))]
        let is_copied = false;
        let mut outcome = MoveOutcome::Unmovable;
        let mut move_row = || {
            // SAFETY: the record is not freed while its slot is awaited. Its newest row is not freed, since the
            // worker is pinned, and the record leads to it while the record is held.
            unsafe {
                let newest = newest_word(record);
                // Relaxed: holding the record has ordered this after the installation.
                let found = newest.load(Ordering::Relaxed);
                let Some(row) = found.row() else { return };
                let version = VersionHeader::of(row);
                let number = version.number();
                // The commit that installed the version has yet to number it, or to unlink what it replaced.
                let is_unfinished = number == UNNUMBERED
                    || !version.is_last() && self.shared().retention.oldest() == NONE_OPEN;
                if found != Newest::of(row) || is_unfinished {
                    outcome = MoveOutcome::Busy;
                    return;
                }
                if number == NEVER || !version.is_last() {
                    return;
                }
                debug_assert_ne!(row, inline, "an awaited slot holds no version");
                #[cfg(weft_sim)]
                {
                    weft_htm::simulation::sync::touch(row.as_ptr(), core.row_bytes, false);
                    weft_htm::simulation::sync::touch(inline.as_ptr(), core.row_bytes, true);
                }
                if !is_copied {
                    ptr::copy_nonoverlapping(row.as_ptr(), inline.as_ptr(), core.row_bytes);
                }
                #[cfg(feature = "canary")]
                let number = match self.has_flaw(OperationFlaw::MovedAsNew) {
                    true => self.shared.clock.number(),
                    false => number,
                };
                let header = VersionHeader::of(inline);
                header.set_number(number);
                header.set_previous(ptr::null_mut());
                // Release: a thread that finds the row here also sees its contents and its number.
                newest.store(Newest::of(inline), Ordering::Release);
                outcome = MoveOutcome::Moved(row);
            }
        };
        // SAFETY: the record's block is not freed while its slot is awaited.
        match unsafe { core.records.hold_row(record, &mut move_row) } {
            HoldOutcome::Held => outcome,
            HoldOutcome::Busy => MoveOutcome::Busy,
            HoldOutcome::Absent => MoveOutcome::Unmovable,
        }
    }

    /// Retires the places from which rows were moved, or keeps them for the snapshots that may have returned the rows
    /// there.
    ///
    /// # Safety
    /// The worker has been pinned since before the moves.
    pub(super) unsafe fn leave_places(&self) {
        let mut left = self.left_places.take();
        if left.is_empty() {
            return;
        }
        // A snapshot that has found a row at its old place is on this list, unless it is closed by now. If it were opened
        // after the list is made, it would have found the row at its new place.
        self.list_open_snapshots();
        let greatest = self.open_snapshots.borrow().numbers().last().copied();
        match greatest {
            None => {
                for LeftPlace { row, record, table } in left.drain(..) {
                    // SAFETY: nothing leads to the place any more.
                    unsafe { self.retire_row(table, record, row, false) };
                }
            }
            Some(greatest) => {
                let entry = |LeftPlace { row, record, table }| {
                    RetainedEntry::place(row, record, table, greatest + 1)
                };
                let mut entries = left.drain(..).map(entry).collect();
                // SAFETY: as above.
                unsafe { self.decide(&mut entries, true) };
            }
        }
        self.left_places.replace(left);
    }

    /// Makes the awaited slot of a record vacant. If it was abandoned, frees the record.
    ///
    /// # Safety
    /// The caller has the slot's garbage entry.
    pub unsafe fn give_up_slot(&self, table: TableRef, record: NonNull<u8>) {
        // SAFETY: the record's block is not freed while its slot is awaited. If the slot was abandoned, no
        // other worker uses the block.
        unsafe {
            if table.inline_slot(record).is_some_and(|slot| !slot.vacate_slot()) {
                self.free_block(record, table.core().record_class);
            }
        }
    }

    /// Tries again to move the row of a record whose slot was given up, since an obstacle has gone: an older
    /// version that a snapshot needed.
    ///
    /// (If another worker is giving the slot up at this moment, it stays vacant. Then the row stays where it
    /// is until the next such obstacle has gone.)
    ///
    /// # Safety
    /// The worker is pinned, and the record was linked when it was pinned.
    pub(super) unsafe fn await_vacant_slot(&self, table: TableRef, record: NonNull<u8>) {
        // SAFETY: by the contract.
        if unsafe { table.inline_slot(record) }.is_some_and(VersionHeader::await_vacant_slot) {
            self.push_slot(table, record);
        }
    }
}

/// Copies the newest row of a record into the record's inline slot. Returns false if the record has no row.
///
/// # Safety
/// As for [`WorkerMemory::move_inline`]. `bytes` is the size of a row.
#[cfg(feature = "canary")]
unsafe fn copy_newest(record: NonNull<u8>, inline: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the record is not freed while its slot is awaited, and its newest row is not freed while the worker is
    // pinned. No thread reads the slot.
    unsafe {
        let newest = newest_word(record).load(Ordering::Acquire);
        let Some(row) = newest.row().filter(|row| *row != inline) else { return false };
        ptr::copy_nonoverlapping(row.as_ptr(), inline.as_ptr(), bytes);
    }
    // Another thread may now commit, so that the flaw shows soon.
    yield_now();
    true
}
