//! The workers of a database, as its threads claim them.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use weft_htm::word::Ordering;

use super::Inner;
use crate::commit::{Claim, Protocol, Worker};
use crate::error::Failure;
use crate::snapshot::{ClaimedState, SnapshotSource};
use crate::store::deadline::Deadline;
use crate::store::table::Identity;
use crate::store::worker::{
    CLOSED, ClaimGuard, LastWorker, SharedState, WorkerOwner, remembers_workers,
};

impl<P: Protocol> Inner<P> {
    /// The address by which threads know the database.
    #[inline(always)]
    fn address(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Returns the worker of an entry for this database, which the calling thread has claimed, or claims before it uses
    /// the worker.
    #[inline(always)]
    fn worker_of(&self, last: &LastWorker) -> &Worker<P> {
        // SAFETY: the entry's address shows that the worker belongs to this database, so its type is the database's.
        // It lives as long as the database, and no other thread uses it during the claim.
        unsafe { last.worker().cast::<Worker<P>>().as_ref() }
    }

    /// Returns the worker that this thread has claimed, if it has claimed one.
    pub(super) fn claimed(&self) -> Option<&Worker<P>> {
        let last = LastWorker::find(self.address())?;
        // SAFETY: `find` has just returned the entry.
        let last = unsafe { last.as_ref() };
        last.is_claimed().then(|| self.worker_of(last))
    }

    /// Claims a worker for this thread. Waits while all of them are busy.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn claim(&self, deadline: Option<&Deadline>) -> Result<Claim<'_, P>, Failure> {
        if let Some(last) = LastWorker::find(self.address()) {
            // SAFETY: `find` has just returned the entry.
            let entry = unsafe { last.as_ref() };
            if entry.is_claimed() {
                // SAFETY: the thread has claimed the slot.
                return Ok(unsafe { self.begin_claim(last) });
            }
            if self.shared.waiting.is_empty() && self.shared.grace.claim(entry.slot()) {
                // SAFETY: the thread has just claimed the slot.
                return Ok(unsafe { self.begin_claim(last) });
            }
        }
        self.claim_slowly(deadline)
    }

    /// Returns the worker that this thread had last, with its entry, if no other thread waits for a worker. It is not
    /// claimed yet.
    #[inline(always)]
    pub(super) fn last_worker(&self) -> Option<(&Worker<P>, NonNull<LastWorker>)> {
        let last = LastWorker::find(self.address())?;
        // SAFETY: `find` has just returned the entry.
        let entry = unsafe { last.as_ref() };
        self.shared.waiting.is_empty().then(|| (self.worker_of(entry), last))
    }

    /// # Safety
    /// As [`ClaimGuard::new`].
    #[inline(always)]
    unsafe fn begin_claim(&self, last: NonNull<LastWorker>) -> Claim<'_, P> {
        // SAFETY: by this function's contract.
        let (entry, guard) = unsafe { (last.as_ref(), ClaimGuard::new(&self.shared, last)) };
        Claim::new(self.worker_of(entry), guard)
    }

    #[cold]
    #[inline(never)]
    fn claim_slowly(&self, deadline: Option<&Deadline>) -> Result<Claim<'_, P>, Failure> {
        let shared = &self.engine.shared;
        if !remembers_workers() {
            return Err(Failure::ThreadEnding);
        }
        // SAFETY: `find` has just returned the entry.
        let had = LastWorker::find(self.address()).map(|last| unsafe { last.as_ref() }.slot());
        let slot = match had {
            Some(slot) => {
                // Another worker may only have taken over what the worker had gathered.
                shared.grace.await_visitor(slot);
                match shared.waiting.is_empty() && shared.grace.claim(slot) {
                    true => slot,
                    false => shared.take_slot_or_wait(deadline)?,
                }
            }
            None if shared.admission.load(Ordering::SeqCst) == CLOSED => {
                return Err(Failure::Closed);
            }
            None => shared.take_slot_or_wait(deadline)?,
        };
        // SAFETY: the thread has claimed the slot.
        let worker =
            unsafe { self.workers.get_or_make(slot, shared, &self.engine.protocol, self.indexes) };
        let owner = || Box::new(Owner(Weak::clone(&self.this))) as Box<dyn WorkerOwner>;
        match LastWorker::remember(self.address(), slot, worker.cast(), owner) {
            Some(last) => {
                shared.set_remembered(slot, had);
                // SAFETY: the thread has claimed the slot.
                Ok(unsafe { self.begin_claim(last) })
            }
            None => {
                shared.give_slot_back(slot);
                Err(Failure::ThreadEnding)
            }
        }
    }
}

/// The database of a worker that a thread remembers.
struct Owner<P: Protocol>(Weak<Inner<P>>);

impl<P: Protocol> WorkerOwner for Owner<P> {
    fn exists(&self) -> bool {
        self.0.strong_count() > 0
    }

    fn leave(&self, slot: usize) {
        if let Some(inner) = self.0.upgrade() {
            inner.workers.leave(slot, &inner.shared, &inner.protocol);
        }
    }
}

impl<P: Protocol> SnapshotSource for Inner<P> {
    fn shared(&self) -> &SharedState {
        &self.shared
    }

    fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    fn claim(&self) -> Result<ClaimedState<'_>, Failure> {
        if let Some((worker, last)) = self.last_worker() {
            let mut guard = ClaimGuard::none(&self.shared);
            if guard.claim_pinned(last) {
                return Ok(ClaimedState { state: worker, is_pinned: true, _guard: guard });
            }
        }
        let (worker, guard) = Inner::claim(self, None)?.into_parts();
        Ok(ClaimedState { state: worker, is_pinned: false, _guard: guard })
    }
}
