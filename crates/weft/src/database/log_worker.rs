//! The worker of the log: makes the changes that procedures have deferred before an epoch ends.
//!
//! A deferred change belongs to the epoch of its procedure. If the epoch became durable without it, a crash would lose a
//! part of a procedure that has committed. So the thread that ends an epoch has the changes made, when no procedure is
//! between two pieces. That thread may be any that waits for the log, even one in a transaction. It cannot use the worker
//! of that transaction, and cannot wait for another one, since all others may be waiting for the log. So the log has one
//! of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use weft_htm::word::yield_now;

use super::Inner;
use crate::commit::{Engine, Protocol, ProtocolShared, Worker};
use crate::error::Failure;
use crate::store::worker::BeforeEpochEnds;

/// The worker in a slot that no thread can claim.
pub(super) struct LogWorker<P: Protocol> {
    inner: Weak<Inner<P>>,
    slot: usize,
}

impl<P: Protocol> LogWorker<P> {
    /// Takes a slot for the log, and keeps it. The database has been opened, and runs no transaction yet.
    pub fn reserve(inner: &Arc<Inner<P>>) {
        let slot = inner.shared.take_slot().expect("no thread uses the database yet");
        if inner.protocol.defers() {
            let log_worker = LogWorker { inner: Arc::downgrade(inner), slot };
            let set = inner.shared.before_epoch_ends.set(Box::new(log_worker));
            assert!(set.is_ok(), "the log has one worker");
        }
    }
}

impl<P: Protocol> BeforeEpochEnds for LogWorker<P> {
    /// If the sums do not fit, or code of the rows' types panics, the changes wait, and so does the end of the epoch.
    fn make_whole(&self) -> bool {
        // The log has ended before the database goes.
        let Some(inner) = self.inner.upgrade() else { return true };
        let Inner { engine: Engine { shared, protocol, .. }, indexes, .. } = &*inner;
        // SAFETY: the slot is the log's, which calls this from one thread at a time.
        let worker = unsafe { inner.workers.get_or_make(self.slot, shared, protocol, *indexes) };
        // SAFETY: workers live as long as the database, which `inner` keeps.
        let worker: &Worker<P> = unsafe { worker.as_ref() };
        loop {
            match catch_unwind(AssertUnwindSafe(|| P::make_whole(worker))) {
                Ok(Ok(())) => return true,
                // Another worker is making the changes, and transactions no longer begin.
                Ok(Err(Failure::Closed | Failure::Loading)) => yield_now(),
                Ok(Err(_)) | Err(_) => return false,
            }
        }
    }
}
