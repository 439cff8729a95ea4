//! Where a transaction tells the history recorder what it does (feature `history`, see
//! [`crate::history`]). Without the feature all of this is nothing; with it, in a database that is
//! not recorded, it is a branch.
#![cfg_attr(
    not(feature = "history"),
    allow(unused_variables, reason = "the arguments are for the recorder")
)]

use std::ptr::NonNull;

use super::Transaction;
use crate::commit::Protocol;
use crate::commit::Worker;
#[cfg(feature = "history")]
use crate::history::{HistoryKey, Status};
use crate::row::encoding::{Key, KeyForm};
use crate::step::Instance;
use crate::store::table::TableRef;

/// What is done to one key.
#[cfg_attr(not(feature = "history"), allow(dead_code, reason = "the row is for the recorder"))]
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// It was looked up, and this row was visible, or none.
    Read(Option<NonNull<u8>>),
    /// The row that was [stamped](stamp) last was put there.
    Write,
    /// Its row was deleted.
    Delete,
}

impl<P: Protocol> Transaction<'_, P> {
    /// Records what is done to a key of a table.
    #[inline(always)]
    pub(super) fn record(&self, table: TableRef, key: &impl Key, event: Event) {
        #[cfg(feature = "history")]
        if self.worker.recorder.is_some() {
            self.record_event(table, HistoryKey::of(key), event);
        }
    }

    /// Records what is done to an entry of a secondary index.
    #[inline(always)]
    pub(super) fn record_entry(&self, index: TableRef, key: &impl KeyForm, event: Event) {
        #[cfg(feature = "history")]
        if self.worker.recorder.is_some() {
            self.record_event(index, HistoryKey::encoded(key), event);
        }
    }

    /// Records what is done to the key of a row whose type is not known here.
    #[inline(always)]
    pub(super) fn record_untyped(&self, table: TableRef, row: NonNull<u8>, event: Event) {
        #[cfg(feature = "history")]
        if self.worker.recorder.is_some() {
            // SAFETY: a row that is visible to this transaction, of this table.
            let key = unsafe { table.core().history_key(row) };
            self.record_event(table, key, event);
        }
    }

    #[cfg(feature = "history")]
    #[inline(never)]
    fn record_event(&self, table: TableRef, key: HistoryKey, event: Event) {
        let Some(recorder) = &self.worker.recorder else { return };
        let mut recorder = recorder.borrow_mut();
        let core = table.core();
        match event {
            Event::Read(row) => {
                // SAFETY: a row that is visible to this transaction, of a recorded database.
                let seen = row.map(|row| unsafe { core.stamp(row) });
                recorder.read(core.number, key, seen);
            }
            Event::Write => recorder.write(core.number, key),
            Event::Delete => recorder.delete(core.number, key),
        }
    }

    /// Records that the transaction is at its serialization point.
    #[doc(hidden)]
    #[inline(always)]
    pub fn record_serialization(&self) {
        #[cfg(feature = "history")]
        if let Some(recorder) = &self.worker.recorder {
            recorder.borrow_mut().note_serialization();
        }
    }

    /// Whether any of this is recorded.
    #[doc(hidden)]
    #[inline(always)]
    pub fn is_recorded(&self) -> bool {
        #[cfg(feature = "history")]
        return self.worker.recorder.is_some();
        #[cfg(not(feature = "history"))]
        false
    }

    /// Records that the transaction has committed.
    #[doc(hidden)]
    #[inline(always)]
    pub fn record_commit(&self) {
        #[cfg(feature = "history")]
        record_end(self.worker, Status::Committed);
    }

    /// Records that a conflict has aborted the transaction.
    #[inline(always)]
    pub(super) fn record_abort(&self) {
        #[cfg(feature = "history")]
        record_end(self.worker, Status::Aborted);
    }

    /// Records that a procedure's operation runs, or goes on.
    #[doc(hidden)]
    #[inline(always)]
    pub fn record_step(&self, instance: Instance, goes_on: bool) {
        #[cfg(feature = "history")]
        if let Some(recorder) = &self.worker.recorder {
            recorder.borrow_mut().enter_step(instance, goes_on);
        }
    }

    /// Records that what a procedure's operation did in the last round stands.
    #[doc(hidden)]
    #[inline(always)]
    pub fn record_kept_step(&self, instance: Instance) {
        #[cfg(feature = "history")]
        if let Some(recorder) = &self.worker.recorder {
            recorder.borrow_mut().keep_step(instance);
        }
    }

    /// Records that a procedure begins anew.
    #[doc(hidden)]
    #[inline(always)]
    pub fn record_next_round(&self) {
        #[cfg(feature = "history")]
        if let Some(recorder) = &self.worker.recorder {
            recorder.borrow_mut().next_round();
        }
    }

    /// Records that the caller has rolled the transaction back.
    #[inline(always)]
    pub(super) fn record_rollback(&self) {
        #[cfg(feature = "history")]
        record_end(self.worker, Status::RolledBack);
    }
}

/// Notes when a transaction is invoked; it may yet fail to begin.
#[inline(always)]
pub(super) fn record_invocation<P: Protocol>(worker: &Worker<P>) {
    #[cfg(feature = "history")]
    if let Some(recorder) = &worker.recorder {
        recorder.borrow_mut().invoke();
    }
}

#[cfg(feature = "history")]
#[inline(always)]
fn record_end<P: Protocol>(worker: &Worker<P>, status: Status) {
    if let Some(recorder) = &worker.recorder {
        recorder.borrow_mut().end(status);
    }
}

/// Writes behind a new row whose it is. The next write to be recorded is that of this row.
///
/// # Safety
/// The row is complete, of the table, and nobody else has its address yet.
#[inline(always)]
pub(super) unsafe fn stamp<P: Protocol>(worker: &Worker<P>, table: TableRef, row: NonNull<u8>) {
    #[cfg(feature = "history")]
    if let Some(recorder) = &worker.recorder {
        // SAFETY: by the contract; the database is recorded, since its workers have recorders.
        unsafe { table.core().set_stamp(row, recorder.borrow().next_stamp()) };
    }
}
