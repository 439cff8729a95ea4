//! Writes that a transaction has made by operations alone, so that the operations can be applied again if
//! another transaction has replaced the row in the meantime.
//!
//! An operation returns nothing about the row. So a transaction that has done nothing else to a row relies on the
//! row's presence, but not on its contents: the transaction may as well come after the one that has replaced the
//! row. When the commit finds that a row was replaced, the transaction applies the operations to the present
//! version, and tries to commit again ([decision 44](../../../../docs/decisions/0044-operations-applied-again.md)):
//!
//! ```text
//!   apply        copy the row, change the copy              note the operation
//!   commit       the record has another version: conflict
//!   take_stale   which writes are stale, and their records' present versions
//!                copy the present row, change the copy      the user's code runs here
//!   write_again  the write replaces the present version
//!   commit       again
//! ```
//!
//! The notes of a record form a chain: each operation has changed the row that the one before it has made, and the
//! first one a committed row. If the write set has the last of these rows, the record was written by these
//! operations alone. A read of the transaction's own row ends the chain, since what the transaction does next may
//! depend on it. If the read names its columns, it only limits what the operations may be applied to: these columns have
//! to be the same in the present version as in the one before. Then the same operations make them what was read.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use smallvec::SmallVec;

use super::access_set::{AccessSet, ReplacedVersion, SupersededRow, TidHeader, visible};
use super::optimistic::read_newest;
use super::{Abort, Visible};
use crate::error::ConflictReason;
use crate::row::column::ColumnSet;
use crate::row::operation::RepeatableOperation;
use crate::store::record::RecordPointer;
use crate::store::record::tid::Tid;
use crate::store::table::{TableCore, TableRef};

/// The most operations of a transaction that are noted. The notes are searched one by one.
const NOTES_MAX: usize = 64;

/// The operations that a transaction has applied.
pub struct AppliedOperations<H> {
    notes: Vec<AppliedOperation<H>>,
    /// The operations' own values that are too large for a note.
    large_values: Vec<OperationValue>,
    /// The columns that were read of rows that operations have made.
    own_reads: Vec<(RecordPointer<H>, ColumnSet)>,
}

/// Room for an operation's own value, or for a part of it.
type OperationValue = MaybeUninit<u128>;

/// An operation that was applied to a row.
struct AppliedOperation<H> {
    record: RecordPointer<H>,
    /// The private row that it has made.
    row: NonNull<u8>,
    operation: RepeatableOperation,
    /// The operation's own value. If `is_large`, its position in the list of such values.
    value: OperationValue,
    is_large: bool,
}

impl<H> Default for AppliedOperations<H> {
    fn default() -> Self {
        AppliedOperations { notes: Vec::new(), large_values: Vec::new(), own_reads: Vec::new() }
    }
}

impl<H> AppliedOperations<H> {
    /// Notes an operation with its own value. If the value owns memory, or if there are too many notes, does nothing.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn push<O>(
        &mut self,
        record: RecordPointer<H>,
        row: NonNull<u8>,
        operation: RepeatableOperation,
        own: O,
    ) {
        let is_plain = const {
            !std::mem::needs_drop::<O>() && align_of::<O>() <= align_of::<OperationValue>()
        };
        if !is_plain {
            return;
        }
        if self.notes.len() == self.notes.capacity() && !self.make_room() {
            return;
        }
        let mut value = OperationValue::uninit();
        let is_large = const { size_of::<O>() > size_of::<OperationValue>() };
        // SAFETY: the value fits, or the list has room for it.
        unsafe {
            if is_large {
                let position = self.large_values.len();
                let words = size_of::<O>().div_ceil(size_of::<OperationValue>());
                self.large_values.resize(position + words, OperationValue::uninit());
                self.large_values.as_mut_ptr().add(position).cast::<O>().write(own);
                value.as_mut_ptr().cast::<usize>().write(position);
            } else {
                value.as_mut_ptr().cast::<O>().write(own);
            }
        }
        self.notes.push(AppliedOperation { record, row, operation, value, is_large });
    }

    #[cold]
    fn make_room(&mut self) -> bool {
        if self.notes.len() >= NOTES_MAX {
            return false;
        }
        self.notes.reserve_exact(NOTES_MAX);
        true
    }

    /// Returns the row that the last operation on a record has made.
    fn last_row(&self, record: RecordPointer<H>) -> Option<NonNull<u8>> {
        self.notes.iter().rev().find(|note| note.record == record).map(|note| note.row)
    }

    /// Returns whether operations alone have made the row that a write is to install.
    pub fn have_made(&self, record: RecordPointer<H>, row: Option<NonNull<u8>>) -> bool {
        row.is_some() && self.last_row(record) == row
    }

    /// Forgets the operations on a record, so that its write counts as any other.
    #[cold]
    fn forget(&mut self, record: RecordPointer<H>) {
        self.notes.retain(|note| note.record != record);
    }

    /// Forgets everything.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.notes.clear();
        self.large_values.clear();
        self.own_reads.clear();
    }

    /// Returns the columns of a record that the transaction has read after operations on it.
    pub fn own_reads(&self, record: RecordPointer<H>) -> ColumnSet {
        let own = self.own_reads.iter().filter(|(of, _)| *of == record);
        own.fold(ColumnSet::NONE, |all, (_, columns)| all.and(*columns))
    }

    /// Applies the operations on a record to another row, in their order. Returns false if one of them would fail: there is
    /// not enough for it, or its result cannot be written. This runs the user's code.
    ///
    /// # Safety
    /// `row` is a row of the record's table, whose core this is, and belongs to the caller alone.
    pub unsafe fn apply_to(
        &self,
        record: RecordPointer<H>,
        row: NonNull<u8>,
        core: &TableCore,
    ) -> bool {
        self.notes.iter().filter(|note| note.record == record).all(|note| {
            let mut value = note.value.as_ptr();
            if note.is_large {
                // SAFETY: `push` has written the position there.
                let position = unsafe { value.cast::<usize>().read() };
                value = self.large_values[position..].as_ptr().cast();
            }
            // SAFETY: `push` has written the value there; for the row see the contract.
            unsafe { note.operation.apply(value.cast(), row) && core.may_be_written(row) }
        })
    }
}

/// A write, made by operations alone, that would replace a version which is not current any more.
pub struct StaleWrite<H> {
    pub record: RecordPointer<H>,
    pub table: TableRef,
    /// The row that the write was to replace.
    pub replaced: NonNull<u8>,
    /// The row that it was to install.
    pub row: NonNull<u8>,
    /// The present version, and its row.
    pub present: Tid,
    pub onto: NonNull<u8>,
}

/// The stale writes of a transaction, and its operations. The access set is without them while the operations are
/// applied again, so that the user's code does not run while it is borrowed.
pub struct StaleWrites<H> {
    pub writes: SmallVec<[StaleWrite<H>; 4]>,
    pub operations: AppliedOperations<H>,
}

impl<H: TidHeader> AccessSet<H> {
    /// Notes an operation, with its own value, which has made the private `row` of a record out of the observed
    /// `version`. The row was just [put](AccessSet::put) into the set.
    #[inline(always)]
    pub fn note_applied<O>(
        &mut self,
        record: RecordPointer<H>,
        version: ReplacedVersion,
        row: NonNull<u8>,
        operation: RepeatableOperation,
        own: O,
    ) {
        let applied = &mut self.applied;
        if version.own().is_none_or(|own| applied.last_row(record) == Some(own)) {
            applied.push(record, row, operation, own);
        }
    }

    /// Notes that the transaction has read its own write of a record, and may now depend on it: on these columns, or on
    /// the whole row.
    #[inline(always)]
    pub fn note_own_read(&mut self, record: RecordPointer<H>, columns: Option<ColumnSet>) {
        if self.applied.notes.is_empty() {
            return;
        }
        match columns {
            Some(columns) => self.applied.own_reads.push((record, columns)),
            None => self.applied.forget(record),
        }
    }

    /// Returns the writes to be made again after the commit has failed by `abort`. Returns `None` if this would be of
    /// no use: the conflict is not in a row that was written by operations alone, or such a row was deleted.
    pub fn take_stale(&mut self, abort: &Abort) -> Option<StaleWrites<H>> {
        let is_applied = |record, row| self.applied.have_made(record, row);
        let is_of_a_write =
            matches!(abort.reason, ConflictReason::WriteChanged | ConflictReason::WriteLocked);
        let cause = self.writes.iter().find(|entry| Some(entry.record.block()) == abort.record)?;
        if !is_of_a_write || !is_applied(cause.record, cause.row) {
            return None;
        }
        let mut writes = SmallVec::new();
        for entry in self.writes.iter().filter(|entry| is_applied(entry.record, entry.row)) {
            let (present, newest) = read_newest(entry.record);
            // (A row that the engine has moved counts as replaced.)
            if present == entry.expected && newest == entry.replaced.address() {
                continue;
            }
            let Visible::Row(onto) = visible(present, newest) else { return None };
            let (Some(row), Some(replaced)) = (entry.row, entry.replaced_row()) else {
                return None;
            };
            let (record, table) = (entry.record, entry.table);
            writes.push(StaleWrite { record, table, replaced, row, present, onto });
        }
        Some(StaleWrites { writes, operations: std::mem::take(&mut self.applied) })
    }

    /// Lets a stale write replace the present version of its record by `row`. The set owns the row from now on.
    pub fn write_again(&mut self, write: &StaleWrite<H>, row: NonNull<u8>) {
        let &StaleWrite { record, table, row: before, present, onto, .. } = write;
        let position = self.find_write(record).expect("the record is in the write set");
        self.writes[position].move_onto(present, onto, row);
        self.superseded.push(SupersededRow { record, row: before, table });
    }

    /// Takes the operations back, after the stale writes were made again.
    pub fn put_back(&mut self, stale: StaleWrites<H>) {
        let StaleWrites { writes, mut operations } = stale;
        for StaleWrite { record, .. } in writes {
            let made_again = self.find_write(record).and_then(|position| self.writes[position].row);
            for note in operations.notes.iter_mut().filter(|note| note.record == record) {
                note.row = made_again.unwrap_or(note.row);
            }
        }
        self.applied = operations;
    }
}
