//! The driver of procedures that are repaired: it runs again only those operations that a stale read reaches
//! (HTCC, §4.2 and §4.3). It is for protocols that can undo single operations.

use std::cell::Cell;

use crate::INSIDE;
use crate::{Again, Driver, Next, Selection, StepAccess};
use weft::Error;
use weft::Transaction;
use weft::commit::CommitToken;
use weft::commit::{Abort, Executor, Protocol, RepairsTransactions};
use weft::schema::Record;
use weft::step::Instance;
use weft::store::worker::Counters;

/// Executes a procedure in a transaction, and commits the transaction at the end.
pub struct Stepwise<'t, 'db, P: Protocol> {
    transaction: &'t Transaction<'db, P>,
    ended: Cell<Option<Result<CommitToken, Abort>>>,
}

impl<'t, 'db, P: Protocol> Stepwise<'t, 'db, P> {
    /// Returns a driver for a transaction that has just begun.
    pub fn new(transaction: &'t Transaction<'db, P>) -> Self {
        if let Some(repairing) = transaction.worker(INSIDE).executor().repairing() {
            repairing.begin_steps();
        }
        Stepwise { transaction, ended: Cell::new(None) }
    }

    /// Returns how the execution has ended: with a commit, with a conflict, or with `None` if the procedure
    /// returned an error of its own.
    pub fn ended(&self) -> Option<Result<CommitToken, Abort>> {
        self.ended.take()
    }

    fn next_round(&self) {
        let worker = self.transaction.worker(INSIDE);
        if let Some(repairing) = worker.executor().repairing() {
            repairing.next_round(&worker.memory);
        }
        worker.next_round();
        self.transaction.record_next_round();
        self.transaction.forget_doom(INSIDE);
    }
}

impl<P: Protocol> Driver<P> for Stepwise<'_, '_, P> {
    fn transaction(&self) -> &Transaction<'_, P> {
        self.transaction
    }

    #[inline]
    fn enter<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        let worker = self.transaction.worker(INSIDE);
        if let Some(repairing) = worker.executor().repairing() {
            repairing.enter_step(accessed.instance, false);
        }
        self.transaction.record_step(accessed.instance, false);
        if let Some(again) = accessed.again {
            expect_again(self.transaction, accessed, again);
        }
        Ok(())
    }

    fn resume(&self, instance: Instance) {
        if let Some(repairing) = self.transaction.worker(INSIDE).executor().repairing() {
            repairing.enter_step(instance, true);
        }
        self.transaction.record_step(instance, true);
    }

    fn keep<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        let worker = self.transaction.worker(INSIDE);
        if let Some(repairing) = worker.executor().repairing() {
            repairing.keep_step(accessed.instance);
        }
        self.transaction.record_kept_step(accessed.instance);
        Counters::count(&worker.memory.counters().kept);
        Ok(())
    }

    fn restart_pass(&self) {
        self.next_round();
    }

    fn end_pass(&self, is_ok: bool) -> Next {
        let transaction = self.transaction;
        // Validation phase: commit, or find the conflict from which the pass's error followed.
        let committed = if is_ok && transaction.refusal().is_none() {
            transaction.commit_here(INSIDE)
        } else {
            match transaction.conflict() {
                Some(abort) => Err(abort),
                None => return Next::Return,
            }
        };
        let worker = transaction.worker(INSIDE);
        // Committed, or not to be repaired, or repaired too often.
        let is_on = |repairing: &mut <P::Executor as Executor>::Repairing| repairing.is_on();
        let is_repairable = worker.executor().repairing().is_some_and(is_on);
        if committed.is_ok() || !is_repairable || !transaction.may_have_another_round() {
            self.ended.set(Some(committed));
            return Next::Return;
        }
        // Repair (Figure 9): the next pass runs the stale instances, and those that depend on them.
        self.next_round();
        Counters::count(&worker.memory.counters().repairs);
        if let Err(abort) = committed {
            worker.memory.observe_conflict(abort.place(), true);
        }
        let stale = worker.executor().repairing().map(|repairing| repairing.stale_steps());
        Next::Pass(Selection::Stale(stale.unwrap_or_default()))
    }
}

/// Prepares an operation that runs again. If its key is the same as before, its record is known (*fast
/// restoration*, §4.1). Otherwise the record is looked up (*slow restoration*).
#[cold]
fn expect_again<P: Protocol, T: Record>(
    transaction: &Transaction<'_, P>,
    accessed: &StepAccess<'_, T>,
    again: Again,
) {
    let worker = transaction.worker(INSIDE);
    let counters = worker.memory.counters();
    // SAFETY: it is only used for a look-up.
    let table = unsafe { accessed.table.inner() };
    if again == Again::SamePlace
        && let Some(key) = accessed.key
        && let Some(repairing) = worker.executor().repairing()
        && let Some(record) = repairing.record_of_step(accessed.instance, table.reference())
        && let Some(row) = transaction.newest_row(table, key, record)
    {
        worker.buffer(table.number()).last = Some((record.address(), row));
        Counters::count(&counters.restored_fast);
    } else {
        Counters::count(&counters.restored_slow);
    }
}
