//! The commit of a split phase: the paper's Figure 3 (§5.2).

use std::cell::Cell;
use std::ptr::NonNull;

use weft::commit::access_set::TidHeader;
use weft::commit::{Abort, Executor};
use weft::store::record::StoredRecord;
use weft::store::table::TableRef;
use weft::store::worker::{LoggedOperation, WorkerMemory};
use weft_htm::word::Ordering;

use super::execution::ReconcilingExecutor;
use super::joined::JoinedProtocol;

/// Operations on split records that are to be logged.
#[derive(Default)]
pub(super) struct LoggedOperations {
    /// For each operation: the record, the table, the end of its bytes in `bytes`, and whether these end with a
    /// stamp.
    pub(super) operations: Vec<(NonNull<u8>, TableRef, usize, bool)>,
    pub(super) bytes: Vec<u8>,
}

impl<J: JoinedProtocol> ReconcilingExecutor<J> {
    /// Commits a transaction of a split phase.
    #[inline(never)]
    pub(super) fn commit_in_split_phase(
        &mut self,
        memory: &WorkerMemory,
        epoch: impl Fn() -> u64,
    ) -> Result<(), Abort> {
        if let Some(abort) = self.doomed {
            return Err(abort);
        }
        if self.undo.is_empty() {
            let committed = self.joined.commit(memory, epoch);
            committed.inspect_err(|abort| self.note_conflict(abort, memory))?;
        } else {
            self.commit_split(memory, epoch)?;
        }
        // The last loop of Figure 3, where operations are applied at the commit.
        self.finish_drafts();
        self.leave();
        Ok(())
    }

    /// Commits a transaction that has applied operations to slices.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn commit_split(
        &mut self,
        memory: &WorkerMemory,
        epoch: impl Fn() -> u64,
    ) -> Result<(), Abort> {
        let is_logged = !self.logged.operations.is_empty();
        if is_logged && !self.is_joined_written {
            // The number is drawn before anything is validated, as if the transaction wrote something that is
            // not split.
            epoch();
        }
        // The stamps are in the order of serialization. Others that have written what this transaction has read have
        // looked at the clock before they installed it, and so before this. Others that read what it writes, or write
        // it after this, look after the locks were taken, when it looks again.
        let stamp = Cell::new(0);
        let look = || {
            if self.undo.is_stamped() {
                stamp.set(self.shared.clock.stamp(self.slot));
            }
        };
        look();
        // Parts 1 to 3 of Figure 3, for the records that are not split.
        if self.is_joined_used {
            let drawn = || {
                look();
                if memory.has_drawn() { memory.drawn_epoch() } else { epoch() }
            };
            let committed = self.joined.commit(memory, drawn);
            committed.inspect_err(|abort| self.note_conflict(abort, memory))?;
        } else {
            // It has used only slices, which belong to this worker, so there is nothing to validate.
            self.joined.abort(memory);
        }
        if is_logged {
            self.log_operations(memory, stamp.get());
        }
        // The slices, or their drafts, were changed when the operations were applied, so it only remains to stamp that, and
        // to forget how to undo it.
        self.undo.commit(stamp.get());
        Ok(())
    }

    fn log_operations(&mut self, memory: &WorkerMemory, stamp: u64) {
        let LoggedOperations { operations, bytes } = &mut self.logged;
        for &(.., end, is_stamped) in &*operations {
            if is_stamped {
                bytes[end - size_of::<u64>()..end].copy_from_slice(&stamp.to_le_bytes());
            }
        }
        let mut start = 0;
        let entries = operations.drain(..).map(|(record, table, end, _)| {
            // SAFETY: the worker is pinned, so the record is not freed.
            let stored = unsafe { record.cast::<StoredRecord<J::Header>>().as_ref() };
            // The record does not change in this phase. So the operation is ordered after the write of the
            // record's present version, and before the next write, which is the reconciliation's or a later
            // one.
            let order = stored.header.tid().load_relaxed().order_in(memory.drawn_epoch());
            let operation = &bytes[start..end];
            start = end;
            LoggedOperation { table, order, bytes: operation }
        });
        memory.log_operations(entries, self.is_joined_written);
        bytes.clear();
    }

    /// Ends the wait, after the transaction has got what it waited for. (A reconciliation is not that transaction.)
    #[cold]
    pub(super) fn end_waiting(&mut self) {
        if !self.is_reconciling {
            self.is_waiting = false;
            self.shared.waiting.fetch_add(u64::MAX, Ordering::Relaxed);
        }
    }
}
