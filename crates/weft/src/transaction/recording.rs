//! The points at which a transaction reports to the history recorder (feature `history`, see [`crate::history`]).
//! Without the feature they compile to nothing. With it, they cost a branch in a database that is not recorded.
#![cfg_attr(
    not(feature = "history"),
    allow(unused_variables, reason = "the arguments are for the recorder")
)]

use std::ptr::NonNull;

use super::Transaction;
use crate::commit::Protocol;
use crate::commit::Worker;
use crate::commit::by_columns::CarriedAccess;
#[cfg(feature = "history")]
use crate::history::{HistoryKey, Status};
use crate::row::encoding::{Key, KeyForm, KeyLookup};
use crate::step::Instance;
use crate::store::table::TableRef;

/// What was done to one key.
#[cfg_attr(not(feature = "history"), allow(dead_code, reason = "the row is for the recorder"))]
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// The key was looked up. This row was visible, or no row.
    Read(Option<NonNull<u8>>),
    /// The row that was [stamped](stamp) last was put under the key.
    Write,
    /// The key's row was deleted.
    Delete,
}

impl<P: Protocol> Transaction<'_, P> {
    /// Records what was done to a key of a table.
    #[inline(always)]
    pub(super) fn record(&self, table: TableRef, key: &impl Key, event: Event) {
        #[cfg(feature = "history")]
        if self.worker.recorder.is_some() {
            self.record_event(table, HistoryKey::of(key), event);
        }
    }

    /// Records what was done to a key that a row was looked up by.
    #[inline(always)]
    pub(super) fn record_lookup<K: Key>(
        &self,
        table: TableRef,
        key: &impl KeyLookup<K>,
        event: Event,
    ) {
        #[cfg(feature = "history")]
        if self.worker.recorder.is_some() {
            self.record_event(table, HistoryKey::of_lookup(key), event);
        }
    }

    /// Records what was done to an entry of a secondary index.
    #[inline(always)]
    pub(super) fn record_entry(&self, index: TableRef, key: &impl KeyForm, event: Event) {
        #[cfg(feature = "history")]
        if self.worker.recorder.is_some() {
            self.record_event(index, HistoryKey::encoded(key), event);
        }
    }

    /// Records what was done to the key of a row whose type is not known here.
    #[inline(always)]
    pub(super) fn record_untyped(&self, table: TableRef, row: NonNull<u8>, event: Event) {
        #[cfg(feature = "history")]
        if self.worker.recorder.is_some() {
            // SAFETY: a row of this table that is visible to this transaction.
            let key = unsafe { table.core().history_key(row) };
            self.record_event(table, key, event);
        }
    }

    /// Records that an access counts for another version than before. The row that a write has made again has the stamp
    /// of the one before. This runs the user's code, which encodes the key.
    #[cold]
    pub(super) fn record_carried(&self, access: CarriedAccess) {
        #[cfg(feature = "history")]
        if let Some(recorder) = &self.worker.recorder {
            let CarriedAccess { table, before, onto, written } = access;
            let core = table.core();
            // SAFETY: rows of this table that were visible to this transaction, or are its own; no other code has
            // the address of the row that was made again.
            let (key, before, now) = unsafe {
                if let Some((row, again)) = written {
                    core.set_stamp(again, core.stamp(row));
                }
                (core.history_key(onto), core.stamp(before), core.stamp(onto))
            };
            recorder.borrow_mut().read_later(core.number, &key, before, now);
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

    /// Returns whether the transaction is recorded.
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

    /// Records that an operation of a procedure runs, or goes on.
    #[doc(hidden)]
    #[inline(always)]
    pub fn record_step(&self, instance: Instance, goes_on: bool) {
        #[cfg(feature = "history")]
        if let Some(recorder) = &self.worker.recorder {
            recorder.borrow_mut().enter_step(instance, goes_on);
        }
    }

    /// Records that what an operation of a procedure did in the last round is kept.
    #[doc(hidden)]
    #[inline(always)]
    pub fn record_kept_step(&self, instance: Instance) {
        #[cfg(feature = "history")]
        if let Some(recorder) = &self.worker.recorder {
            recorder.borrow_mut().keep_step(instance);
        }
    }

    /// Records that a procedure begins again.
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

/// Records the invocation of a transaction, which may still fail to begin.
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

/// Writes into a new row which transaction wrote it. The next write that is recorded is that of this row.
///
/// # Safety
/// The row is complete, of the table, and no other code has its address yet.
#[inline(always)]
pub(super) unsafe fn stamp<P: Protocol>(worker: &Worker<P>, table: TableRef, row: NonNull<u8>) {
    #[cfg(feature = "history")]
    if let Some(recorder) = &worker.recorder {
        // SAFETY: by this function's contract. The database is recorded, since its workers have recorders.
        unsafe { table.core().set_stamp(row, recorder.borrow().next_stamp()) };
    }
}
