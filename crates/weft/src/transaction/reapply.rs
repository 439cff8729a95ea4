//! Operations that are applied again when a commit finds that another transaction has replaced their rows: see
//! [`applied`](crate::commit::applied).

use std::ptr::NonNull;

use super::{RecordOf, Transaction};
use crate::commit::applied::{AppliedOperations, StaleWrite};
use crate::commit::by_columns::CarriedAccess;
use crate::commit::made_row::MadeRow;
use crate::commit::{Abort, CommitToken, Executor, Protocol, ReappliesOperations, backoff};
use crate::error::ConflictReason;
use crate::row::operation::{ColumnOf, Operation, RepeatableOperation};
use crate::row::schema::Record;
use crate::store::worker::Counters;
#[cfg(feature = "canary")]
use crate::store::worker::OperationFlaw;

/// How often a commit is tried again with operations that were applied again, before the transaction gives way.
const REAPPLIED_MAX: u32 = 8;

type Reapplying<P> = <<P as Protocol>::Executor as Executor>::Reapplying;

impl<P: Protocol> Transaction<'_, P> {
    /// Notes that an operation has made a row, which was just written, out of the observed version.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn note_applied<T: Record, V: 'static, O: Operation<V>>(
        &self,
        (record, version, row): (RecordOf<P>, <P::Executor as Executor>::Version, NonNull<u8>),
        column: ColumnOf<T, V>,
        operation: O,
    ) {
        // If the column is indexed, the row's index entries have moved. A value that owns memory is dropped here, and
        // not by the executor.
        if column.is_indexed() || const { std::mem::needs_drop::<O>() } {
            return;
        }
        if let Some(reapplying) = self.worker.executor().reapplying() {
            let repeatable = RepeatableOperation::new::<T, V, O>(column);
            reapplying.note_applied(record, version, row, repeatable, operation);
        }
    }

    /// Returns whether the transaction cannot commit after this conflict, whatever has changed.
    pub(super) fn is_final(&self, abort: &Abort) -> bool {
        self.doomed.get().is_some()
            || abort.reason == ConflictReason::TimePassed
            || self.worker.memory.shared().commits_by_rows
    }

    /// Commits after a conflict, if operations can be applied again to the rows that have changed.
    #[cold]
    #[inline(never)]
    pub(super) fn commit_again(&self, mut abort: Abort) -> Result<CommitToken, Abort> {
        if self.is_final(&abort) {
            return Err(abort);
        }
        for tries in 0..REAPPLIED_MAX {
            if tries > 0 {
                backoff(self.worker, tries, abort.reason);
            }
            self.apply_again(&abort)?;
            self.worker.memory.observe_conflict(abort.place(), true);
            match self.try_commit() {
                Ok(committed) => {
                    Counters::count(&self.worker.memory.counters().reapplied);
                    return Ok(committed);
                }
                Err(again) => abort = again,
            }
        }
        Err(abort)
    }

    /// Applies operations again to the rows that have changed since.
    fn apply_again(&self, abort: &Abort) -> Result<(), Abort> {
        let reapplying = || self.worker.executor().reapplying();
        let is_of_use = |reapplying: &mut Reapplying<P>| reapplying.take_stale(abort);
        let Some(stale) = reapplying().and_then(is_of_use) else { return Err(*abort) };
        for write in &stale.writes {
            let Some(row) = self.make_again(write, &stale.operations) else {
                return Err(Abort {
                    reason: ConflictReason::WriteChanged,
                    table: write.table,
                    record: Some(write.record.block()),
                });
            };
            if let Some(reapplying) = reapplying() {
                reapplying.write_again(write, row);
            }
        }
        if let Some(reapplying) = reapplying() {
            reapplying.put_back(stale);
        }
        Ok(())
    }

    /// Applies the operations on a record to a copy of the present row, and returns the copy. Returns `None` if the
    /// result cannot be written. Then the operation fails with its error when the transaction is run again, unless
    /// the row has changed once more. This runs the user's code.
    fn make_again(
        &self,
        write: &StaleWrite<<P as Protocol>::Header>,
        operations: &AppliedOperations<<P as Protocol>::Header>,
    ) -> Option<NonNull<u8>> {
        let memory = &self.worker.memory;
        let &StaleWrite { record, table, replaced, row: made, onto, .. } = write;
        let core = table.core();
        // SAFETY: a published row of the table, and the worker has been pinned since before it was found.
        if unsafe { self.has_disappeared_untyped(core, onto) } {
            return None;
        }
        // What was read of the row that is to be replaced, after the operations, must be right with this one as well.
        let read = operations.own_reads(record);
        // SAFETY: as above; `replaced` was published as well.
        let is_same = || unsafe { core.same_columns(replaced, onto, read) };
        if !read.is_empty() && !memory.in_user_code(is_same) {
            return None;
        }
        let copied = onto;
        #[cfg(feature = "canary")]
        let copied = match memory.has_flaw(OperationFlaw::AppliedToFirstRow) {
            true => replaced,
            false => copied,
        };
        let copy = |place| {
            // SAFETY: a published row, and the worker has been pinned since before it was found. The place is new.
            unsafe { core.clone_row(copied, place) };
            true
        };
        // SAFETY: the row was copied to the place.
        let new = unsafe { MadeRow::new(table, memory, copy) }?;
        // SAFETY: as above; the new row is this transaction's own.
        let may_be_written = unsafe {
            operations.apply_to(record, new.row(), core) && core.same_index_keys(new.row(), onto)
        };
        if !may_be_written {
            return None;
        }
        let written = Some((made, new.row()));
        self.record_carried(CarriedAccess { table, before: replaced, onto, written });
        Some(new.into_raw())
    }
}
