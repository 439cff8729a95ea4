//! How a transaction ends: it commits, rolls back, gives way to another one, or is repaired and goes on.

use std::mem::ManuallyDrop;

use super::Transaction;
use super::recording::record_invocation;
use crate::commit::{
    Abort, ChopsProcedures, CommitToken, Executor, Protocol, RepairsTransactions, Unstable,
};
use crate::error::{Conflict, Error, Failure};
use crate::store::observer::{Ending, Observed};
use crate::store::worker::{CommitGuard, Counters};
use weft_htm::word::yield_now;

/// How often a transaction is repaired before it is restarted.
const ROUNDS_MAX: u32 = 8;

impl<'db, P: Protocol> Transaction<'db, P> {
    /// Commits the transaction. If the database acknowledges only durable commits, returns when the transaction is
    /// durable. Otherwise pass the returned token to [`Database::wait_durable`](crate::Database::wait_durable) to
    /// wait for that.
    ///
    /// # Errors
    /// - [`Conflict`]: nothing was changed. Run the transaction again.
    /// - [`Failure::DeadlineExceeded`], or the failure of a scan that was overlooked: nothing was changed.
    /// - [`Failure::Storage`]: the transaction has committed, but could not be made durable.
    pub fn commit(self) -> Result<CommitToken, Error> {
        let database = self.database;
        let committed = match self.refusal() {
            None => self.finish(Unstable::ENGINE),
            Some(failure) => match self.conflict() {
                None => return Err((*failure).into()),
                Some(abort) => Err(abort),
            },
        };
        match committed {
            Ok(token) => {
                self.end_committed(Unstable::ENGINE);
                // The thread has no worker any more, and is not in a procedure.
                database.acknowledge(|| None, token)?;
                Ok(token)
            }
            Err(abort) => {
                let conflict = self.describe(abort);
                self.give_way(abort);
                Err(conflict.into())
            }
        }
    }

    /// Rolls the transaction back. (Dropping it does the same.)
    pub fn rollback(self) {}

    /// Returns why the transaction must not commit although its closure has returned without an error: one of its
    /// scans has failed, or its deadline has passed.
    #[doc(hidden)]
    #[inline(always)]
    pub fn refusal(&self) -> Option<Box<Failure>> {
        match self.has_failed_scan.get() || self.is_limited.get() {
            true => self.find_refusal(),
            false => None,
        }
    }

    pub(super) fn forget_failed_scan(&self) {
        if self.has_failed_scan.replace(false) {
            self.failed_scan.take();
        }
    }

    #[cold]
    fn find_refusal(&self) -> Option<Box<Failure>> {
        if self.has_failed_scan.get() {
            let failure = self.failed_scan.take();
            self.failed_scan.set(failure.clone());
            return failure;
        }
        let deadline = self.deadline.map_or(Ok(()), |deadline| deadline.check(self.attempt + 1));
        deadline.and_then(|()| self.check_age()).err().map(Box::new)
    }

    pub(super) fn check_age(&self) -> Result<(), Failure> {
        let memory = &self.worker.memory;
        self.database.shared.ages.check(memory.core() as usize, memory.counters())
    }

    /// Commits, by columns if necessary. After that the caller only has to
    /// [end](Transaction::end_committed) the transaction. After a conflict, the caller can
    /// [describe](Transaction::describe) the conflict, and must [give way](Transaction::give_way).
    #[doc(hidden)]
    #[inline(always)]
    pub fn finish(&self, _: Unstable) -> Result<CommitToken, Abort> {
        self.commit_by_columns(Unstable::ENGINE, || self.commit_here(Unstable::ENGINE))
    }

    /// Commits. After that the caller only has to [end](Transaction::end_committed) the transaction.
    #[doc(hidden)]
    #[inline(always)]
    pub fn commit_here(&self, _: Unstable) -> Result<CommitToken, Abort> {
        self.try_commit().or_else(|abort| self.commit_again(abort))
    }

    /// Tries to commit once.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn try_commit(&self) -> Result<CommitToken, Abort> {
        if let Some(abort) = self.doomed.get() {
            return Err(abort);
        }
        let memory = &self.worker.memory;
        if let Some(observed) = memory.observed() {
            observed.set_accessed(self.accessed());
            if observed.is_timed() {
                self.observe_commit(observed);
            }
        }
        self.stage_writes(Unstable::ENGINE);
        let _committing = CommitGuard(memory);
        self.agree_on_time(Unstable::ENGINE)?;
        // The executor calls the closure at its serialization point.
        self.worker.executor().commit(memory, || {
            self.record_serialization();
            memory.draw()
        })?;
        if !memory.is_reconciling() {
            Counters::count(&memory.counters().committed);
        }
        self.record_commit();
        Ok(CommitToken::of(memory.last_epoch_relied_on()))
    }

    /// Tells the observer that the commit begins. This runs the user's code.
    #[cold]
    #[inline(never)]
    fn observe_commit(&self, observed: &Observed) {
        let memory = &self.worker.memory;
        if !memory.is_reconciling() {
            let list_writes = &mut |list: &mut Vec<_>| self.worker.executor().list_writes(list);
            observed.observer.committing(observed, list_writes, memory);
        }
    }

    /// Tells the observer that the transaction fails without a conflict.
    #[cold]
    pub(crate) fn observe_failure(&self, ending: Ending<'_>) {
        if let Some(observed) = self.worker.memory.observed() {
            observed.observer.failed(observed.label(), ending);
        }
    }

    /// Encodes what is to be logged, before anything is locked or installed. If code of the user's types panics in
    /// this, the panic is passed on, and the transaction rolls back.
    #[doc(hidden)]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn stage_writes(&self, _: Unstable) {
        assert!(
            !self.is_torn.get(),
            "an operation of this transaction was left half done, because the row's type has panicked or does \
             not always return the same keys, and the closure went on; such a transaction cannot commit"
        );
        let memory = &self.worker.memory;
        if memory.is_staging() {
            self.stage_logged_writes();
        }
    }

    #[cold]
    #[inline(never)]
    fn stage_logged_writes(&self) {
        // SAFETY: the worker is pinned as long as `self` exists. The executor lists rows of their tables. Before
        // the transaction has ended, it drops none of them, and no other thread frees one.
        unsafe { self.worker.memory.stage(|list| self.worker.executor().list_writes(list)) };
    }

    /// Ends the transaction, which has committed.
    #[doc(hidden)]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn end_committed(self, _: Unstable) {
        // The transaction ends here, so `drop` must not roll it back.
        let mut this = ManuallyDrop::new(self);
        let memory = &this.worker.memory;
        if let Some(observed) = memory.observed() {
            memory.observe_committed(observed);
        }
        this.end();
        drop(this.claim.take());
    }

    /// Returns the conflict behind an error or a panic of the caller's code. Returns `None` if what that code has
    /// read is still current, so that the error or panic is its own.
    #[doc(hidden)]
    pub fn conflict(&self) -> Option<Abort> {
        // The panic takes the thread back to where its region began, and must get there.
        if self.worker.memory.regions().is_undone() {
            return None;
        }
        let has_looked = self.doomed.get().is_none() && self.valid_until.get() != 0;
        let is_settled = !has_looked || self.worker.memory.settle_time();
        let doomed = self.doomed.get().or_else(|| self.worker.executor().validate().err());
        doomed.or_else(|| (!is_settled || self.is_outdated()).then(|| self.time_conflict()))
    }

    /// Describes for people why the transaction must give way.
    #[cold]
    pub(crate) fn describe(&self, abort: Abort) -> Conflict {
        // SAFETY: the worker is pinned as long as `self` exists.
        unsafe { abort.into_conflict() }
    }

    /// Rolls the transaction back, and counts the conflict.
    #[doc(hidden)]
    #[cold]
    pub fn give_way(self, abort: Abort) {
        let mut this = ManuallyDrop::new(self);
        {
            let _rolling_back = RollbackGuard(&this);
            this.worker.memory.count_abort(abort.reason, abort.table);
            this.worker.executor().abort(&this.worker.memory);
            this.record_abort();
            this.worker.memory.observe_conflict(abort.place(), false);
            this.end();
        }
        this.forget_failed_scan();
        drop(this.claim.take());
    }

    /// Prepares a repair: undoes the transaction's writes, so that the body can run again as the same transaction
    /// (HTCC §4). The worker stays pinned, and what the operations have found is kept in the workset cache. Returns
    /// whether the transaction can be repaired.
    #[cold]
    pub(crate) fn repair(&self, abort: Abort) -> bool {
        let (worker, memory) = (self.worker, &self.worker.memory);
        let is_on = |repairing: &mut <P::Executor as Executor>::Repairing| repairing.is_on();
        if !worker.executor().repairing().is_some_and(is_on) || !self.may_have_another_round() {
            return false;
        }
        if worker.round() > 0 {
            // The other transaction may be waiting for a core.
            yield_now();
        }
        worker.next_round();
        self.keep_workset();
        if let Some(repairing) = worker.executor().repairing() {
            repairing.repair(memory);
        }
        Counters::count(&memory.counters().repairs);
        self.record_abort();
        memory.observe_conflict(abort.place(), true);
        record_invocation(worker);
        self.doomed.set(None);
        self.forget_failed_scan();
        self.is_used.set(false);
        self.is_torn.set(false);
        true
    }

    /// Returns whether the transaction may be repaired once more. It stays pinned in each round. So if it was
    /// interrupted for long, or fails again and again, the records that others have deleted pile up, and scans have
    /// to pass over them.
    #[doc(hidden)]
    pub fn may_have_another_round(&self) -> bool {
        // In another round the transaction has the same time as in this one.
        self.worker.round() < ROUNDS_MAX
            && !self.worker.memory.holds_back_others()
            && !self.is_outdated()
    }

    fn roll_back(&self) {
        let _rolling_back = RollbackGuard(self);
        if let Some(observed) = self.worker.memory.observed() {
            observed.observer.rolled_back();
        }
        if self.worker.memory.regions().is_undone() {
            return;
        }
        Counters::count(&self.worker.memory.counters().rolled_back);
        if self.claim.is_some() {
            self.observe_failure(Ending::Dropped);
        }
        // A panic just before the commit of a piece may have left a region open.
        if let Some(chopping) = self.worker.executor().chopping() {
            chopping.close_region(&self.worker.memory);
        }
        self.worker.executor().abort(&self.worker.memory);
        self.record_rollback();
        self.end();
    }

    #[inline(always)]
    fn end(&self) {
        self.worker.memory.note_ended();
        self.worker.memory.unpin();
        self.worker.active.set(false);
        // The transaction has ended, so the user's `Drop`s can do what they like.
        self.worker.memory.run_discarded();
    }
}

impl<P: Protocol> Drop for Transaction<'_, P> {
    fn drop(&mut self) {
        self.roll_back();
    }
}

/// A transaction that rolls back. If the simulated machine undoes the transaction's region, before or during the
/// rollback, nothing is left to roll back, and the transaction is forgotten. The worker stays pinned until the next
/// transaction begins, which is at once.
struct RollbackGuard<'t, 'db, P: Protocol>(&'t Transaction<'db, P>);

impl<P: Protocol> Drop for RollbackGuard<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        let worker = self.0.worker;
        if worker.memory.regions().is_undone() {
            worker.executor().abort(&worker.memory);
            worker.active.set(false);
        }
    }
}
