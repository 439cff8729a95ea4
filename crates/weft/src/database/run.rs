//! The run loop: runs one transaction until it commits or fails for good.
//!
//! ```text
//!   worker ── turnstile, phases ── begin ── body ── commit ── end
//!                    ▲                │       ▲  conflict │
//!                    │                │       └─ repair ──┤  (htcc: the same transaction, its body once more)
//!                    └─── wait ───────┴────── give way ───┘
//! ```
//!
//! Everything that runs transactions uses this loop: closures, procedures, stashes and pools. So all of them have
//! the same limits. They differ in the [`Strategy`] and in the body.
//!
//! The loop is compiled once for each protocol, so it does not know the type of a body's result. The result stays
//! with the caller, and the body tells the loop by a [`BodyOutcome`] what happened. This costs one indirect call per
//! attempt.

use std::any::Any;
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use super::{Database, TransactionOptions, check_bounds};
use crate::commit::{
    Abort, ChopsProcedures, CommitToken, Executor, Protocol, Unstable, Worker, backoff,
};
use crate::error::{ConflictReason, Error, Failure};
use crate::plan::Pieces;
use crate::row::column::UsedColumns;
use crate::snapshot::Snapshot;
use crate::store::ages::SnapshotLife;
use crate::store::deadline::Deadline;
use crate::store::observer::{Ending, Label, Observed};
use crate::store::worker::{ClaimGuard, LastWorker};
use crate::sync::turnstile::Patience;
use crate::transaction::Transaction;

/// A transaction that only reads, and has lost, reads a snapshot if it has read so many records. With fewer, it is run again
/// sooner than a snapshot is opened.
const READS_FOR_SNAPSHOT: usize = if crate::store::RECLAIMS_EARLY { 1 } else { 32 };

/// How one run of a body ended. The value or error that the body returned stays with its caller.
///
/// It is returned in two registers, since each variant has at most one word. (A larger value would be returned in
/// memory, and read at once by loads that are wider than the stores. Such loads wait for the stores to reach the
/// cache.)
pub enum BodyOutcome {
    /// The body returned a value: commit the transaction.
    Returned,
    /// The body returned an error. It is the body's own, unless a conflict has caused it.
    Failed,
    /// The body returned an error, and no conflict has caused this.
    FailedWithoutConflict,
    /// The body's driver has committed the transaction.
    Committed(CommitToken),
    /// The body's driver has committed the transaction, and then panicked, with this payload.
    CommittedAndPanicked(Box<Box<dyn Any + Send>>),
    /// The body's driver could not commit the transaction.
    Conflict(Box<Abort>),
    /// The transaction cannot be run.
    Refused(Box<Failure>),
    /// The body panicked, with this payload, and no conflict has caused this.
    Panicked(Box<Box<dyn Any + Send>>),
}

const _: () = assert!(size_of::<BodyOutcome>() == 16 && size_of::<RunEnd>() == 16);

impl BodyOutcome {
    /// Returns the outcome of a closure that has returned `returned`.
    #[inline(always)]
    pub fn of<R, E>(returned: &Result<R, E>) -> Self {
        match returned {
            Ok(_) => BodyOutcome::Returned,
            Err(_) => BodyOutcome::Failed,
        }
    }
}

/// The body of a transaction. If the transaction is committed by columns, the second argument has the columns of
/// its steps.
trait Body<P: Protocol> {
    fn run(&mut self, tx: &Transaction<'_, P>, columns: Option<&[UsedColumns]>) -> BodyOutcome;

    /// Returns what the transaction is called if its options have no label.
    fn label(&self) -> &Label;
}

impl<P, F> Body<P> for (Label, F)
where
    P: Protocol,
    F: FnMut(&Transaction<'_, P>, Option<&[UsedColumns]>) -> BodyOutcome,
{
    #[inline(always)]
    fn run(&mut self, tx: &Transaction<'_, P>, columns: Option<&[UsedColumns]>) -> BodyOutcome {
        (self.1)(tx, columns)
    }

    fn label(&self) -> &Label {
        &self.0
    }
}

/// How a transaction is run.
#[derive(Clone, Copy, Default)]
pub struct Strategy<'s> {
    /// The pieces of the procedure, if the transaction is one and the protocol [chops](Protocol::CHOPS).
    pub pieces: Option<&'s Pieces>,
    /// Whether the body is a driver, which makes the repairs.
    pub is_driven: bool,
    /// Whether the loop ends when the transaction is refused a split record. The caller then runs the transaction
    /// again in a joined phase.
    pub sets_aside: bool,
}

/// How a transaction has ended, without the result of its body. Returned in two registers, as [`BodyOutcome`] is.
pub enum RunEnd {
    /// It has committed.
    Committed(CommitToken),
    /// Its body has failed, and it was rolled back.
    Failed,
    /// It was refused a split record.
    SetAside,
    /// It could not be run, or has reached one of its bounds.
    Refused(Box<Failure>),
}

/// How an attempt of a transaction has ended.
enum AttemptEnd {
    /// The transaction has ended with it.
    Ended(RunEnd),
    /// There was a conflict, and the limits allow another attempt. The second value is whether the body has run to its end and has
    /// only read, and much.
    Conflict(ConflictReason, bool),
    /// It has not begun, because another thread uses the worker.
    Busy,
}

/// How a transaction has ended, with the result of its body.
pub enum RunResult<R, E> {
    /// It has ended with this result.
    Ended(Result<(R, CommitToken), E>),
    /// It was refused a split record. The caller must run it again in a joined phase.
    SetAside,
}

impl<R, E: From<Error>> RunResult<R, E> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn of(end: RunEnd, returned: Option<Result<R, E>>) -> Self {
        // One match inside another, since a match on a pair copies the result to build the pair.
        match end {
            RunEnd::Committed(token) => match returned {
                Some(Ok(value)) => RunResult::Ended(Ok((value, token))),
                _ => unreachable!("the transaction committed without its body's value"),
            },
            RunEnd::Failed => match returned {
                Some(Err(error)) => RunResult::Ended(Err(error)),
                _ => unreachable!("the transaction failed without its body's error"),
            },
            RunEnd::SetAside => RunResult::SetAside,
            RunEnd::Refused(failure) => RunResult::Ended(Err(Error::from(*failure).into())),
        }
    }

    /// Returns the result of a transaction that cannot be set aside.
    #[inline(always)]
    pub fn result(self) -> Result<(R, CommitToken), E> {
        match self {
            RunResult::Ended(result) => result,
            RunResult::SetAside => {
                unreachable!("a transaction that is not set aside waits instead")
            }
        }
    }
}

impl<P: Protocol> Database<P> {
    /// Runs a closure as a transaction until it has ended.
    #[doc(hidden)]
    #[inline(always)]
    pub fn run_closure<R, E: From<Error>>(
        &self,
        options: &TransactionOptions,
        (strategy, label): (Strategy<'_>, Label),
        body: &mut impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> RunResult<R, E> {
        self.run_keeping(Unstable::ENGINE, options, (strategy, label), |tx, _, returned| {
            BodyOutcome::of(returned.insert(body(tx)))
        })
    }

    /// Runs a body that stores its result in its last argument, which is `None` at the beginning of each attempt.
    #[doc(hidden)]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn run_keeping<R, E: From<Error>>(
        &self,
        _: Unstable,
        options: &TransactionOptions,
        (strategy, label): (Strategy<'_>, Label),
        mut body: impl FnMut(
            &Transaction<'_, P>,
            Option<&[UsedColumns]>,
            &mut Option<Result<R, E>>,
        ) -> BodyOutcome,
    ) -> RunResult<R, E> {
        let mut returned = None;
        let body = |tx: &Transaction<'_, P>, columns: Option<&[UsedColumns]>| {
            returned = None;
            body(tx, columns, &mut returned)
        };
        let end = self.run(options, strategy, &mut (label, body));
        RunResult::of(end, returned)
    }

    /// Runs a transaction until it has ended.
    #[inline(never)]
    fn run(
        &self,
        options: &TransactionOptions,
        strategy: Strategy<'_>,
        body: &mut dyn Body<P>,
    ) -> RunEnd {
        let deadline = options.deadline.and_then(Deadline::after);
        // Passed on by reference: a copy would be read by loads that are wider than the store that has just written it,
        // and would wait for that store.
        let deadline = deadline.as_ref();
        let shared = &self.inner.shared;
        let mut guard = ClaimGuard::none(shared);
        // The first attempt claims the worker that the thread had last, and pins it in the same step, unless it has to
        // wait for something else before that.
        let has_work_before =
            P::has_work_between(&self.engine().protocol) || shared.turnstile.is_closed();
        let mut remembered = match has_work_before {
            true => None,
            false => self.inner.last_worker(),
        };
        loop {
            let (worker, last) = match remembered.take() {
                Some((worker, last)) => (worker, Some(last)),
                None => match self.claim_aside(deadline, &mut guard) {
                    Ok(worker) => (worker, None),
                    Err(refused) => return RunEnd::Refused(refused),
                },
            };
            match self.run_attempts((worker, last), &mut guard, options, strategy, deadline, body) {
                Ok(Some(end)) => return end,
                // Another thread uses the worker, or this one does in another claim.
                Ok(None) => {}
                Err(failure) => {
                    if let Some(observed) = worker.memory.observed() {
                        let label = options.label.map_or_else(|| *body.label(), Label::Given);
                        observed.observer.failed(label, Ending::Refused(&failure));
                    }
                    return RunEnd::Refused(failure);
                }
            }
        }
    }

    /// Claims a worker where the thread may have to wait for one, or has one already.
    #[cold]
    #[inline(never)]
    fn claim_aside<'a>(
        &'a self,
        deadline: Option<&Deadline>,
        guard: &mut ClaimGuard<'a>,
    ) -> Result<&'a Worker<P>, Box<Failure>> {
        let (worker, claimed) = self.claim(deadline).map_err(Box::new)?.into_parts();
        *guard = claimed;
        Ok(worker)
    }

    /// Attempts a transaction until it has ended. If `last` is given, the first attempt claims and pins the worker.
    /// Returns `None` if the worker is not free.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn run_attempts(
        &self,
        (worker, mut last): (&Worker<P>, Option<NonNull<LastWorker>>),
        guard: &mut ClaimGuard<'_>,
        options: &TransactionOptions,
        strategy: Strategy<'_>,
        deadline: Option<&Deadline>,
        body: &mut dyn Body<P>,
    ) -> Result<Option<RunEnd>, Box<Failure>> {
        let mut attempt = 0;
        // A starving transaction keeps the turnstile closed until it has ended.
        let mut closed_turnstile = None;
        let mut patience = Patience::new(options.starves_after);
        // A transaction that only reads, and has lost, reads a snapshot. One that turns out to write does not do so again.
        let (mut reads_snapshot, mut may_read_snapshot) = (false, P::RESTARTS_IN_SNAPSHOTS);
        loop {
            if last.is_none() && !worker.active.get() {
                if closed_turnstile.is_none() {
                    let turnstile = &self.inner.shared.turnstile;
                    let mut keep_waiting = || self.check_wait(deadline, attempt);
                    closed_turnstile =
                        turnstile.pass(patience.is_over(attempt), &mut keep_waiting)?;
                }
                let keep_waiting = || self.check_wait(deadline, attempt);
                P::between_transactions(self.engine(), worker, keep_waiting)?;
            }
            let end = worker.memory.regions().restarting(|| {
                let mut is_pinned = false;
                if let Some(last) = last.take() {
                    is_pinned = guard.claim_pinned(last);
                    if !is_pinned {
                        return Ok(AttemptEnd::Busy);
                    }
                }
                let attempt = (attempt, reads_snapshot);
                self.attempt((worker, is_pinned), options, strategy, attempt, deadline, body)
            })?;
            let (reason, has_only_read) = match end {
                AttemptEnd::Ended(end) => return Ok(Some(end)),
                AttemptEnd::Conflict(reason, has_only_read) => (reason, has_only_read),
                AttemptEnd::Busy => return Ok(None),
            };
            attempt += 1;
            reads_snapshot = has_only_read && std::mem::take(&mut may_read_snapshot);
            if !reads_snapshot {
                backoff(worker, attempt, reason);
            }
        }
    }

    /// Makes one attempt: runs the body and commits. Under a protocol that repairs transactions, this may run the
    /// body several times. `attempt` is the number of conflicts so far, and `is_pinned` says whether the worker's claim
    /// has pinned it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn attempt(
        &self,
        (worker, is_pinned): (&Worker<P>, bool),
        options: &TransactionOptions,
        strategy: Strategy<'_>,
        (attempt, reads_snapshot): (u32, bool),
        deadline: Option<&Deadline>,
        body: &mut dyn Body<P>,
    ) -> Result<AttemptEnd, Box<Failure>> {
        let columns = match strategy.pieces {
            Some(pieces) if P::CHOPS => self.expect_procedure(worker, pieces, attempt)?,
            _ => None,
        };
        Transaction::start(self.engine(), worker, is_pinned, attempt, deadline)?;
        if let Some(label) = options.label {
            worker.set_label(label);
        }
        if let Some(observed) = worker.memory.observed() {
            observed.attempt.set(attempt);
            begin_observed(observed, options, body);
        }
        // The snapshot lives as long as the transaction.
        let snapshot = OnceCell::new();
        let opener = || self.open_for_attempt(worker, &snapshot);
        let mut transaction = Transaction::started(self.engine(), worker, attempt, deadline);
        if P::RESTARTS_IN_SNAPSHOTS && reads_snapshot {
            transaction.read_snapshot(&opener);
        }
        let mut has_only_read = false;
        if P::CHOPS && strategy.pieces.is_some_and(Pieces::are_one_by_one) {
            transaction.set_admitted();
        }
        // Each pass runs the body once. After a conflict the transaction is repaired and makes another pass, or
        // leaves the loop.
        let abort = loop {
            let outcome = catch_unwind(AssertUnwindSafe(|| body.run(&transaction, columns)));
            let abort = match outcome {
                Ok(BodyOutcome::Returned) => match transaction.refusal() {
                    None => match transaction.finish(Unstable::ENGINE) {
                        Ok(token) => {
                            transaction.end_committed(Unstable::ENGINE);
                            return Ok(AttemptEnd::Ended(RunEnd::Committed(token)));
                        }
                        Err(abort) => {
                            has_only_read = transaction.has_only_read(READS_FOR_SNAPSHOT);
                            abort
                        }
                    },
                    Some(failure) => match transaction.conflict() {
                        Some(abort) => abort,
                        None => return Err(failure),
                    },
                },
                Ok(BodyOutcome::Failed) => match transaction.conflict() {
                    Some(abort) => abort,
                    None => return Ok(failed(&transaction)),
                },
                Ok(BodyOutcome::FailedWithoutConflict) => return Ok(failed(&transaction)),
                Err(panic) => match transaction.conflict() {
                    Some(abort) => abort,
                    None => return unwind(transaction, panic),
                },
                Ok(BodyOutcome::Panicked(panic)) => return unwind(transaction, *panic),
                Ok(BodyOutcome::Committed(token)) => {
                    transaction.end_committed(Unstable::ENGINE);
                    return Ok(AttemptEnd::Ended(RunEnd::Committed(token)));
                }
                Ok(BodyOutcome::CommittedAndPanicked(panic)) => {
                    transaction.end_committed(Unstable::ENGINE);
                    resume_unwind(*panic)
                }
                Ok(BodyOutcome::Conflict(abort)) => *abort,
                Ok(BodyOutcome::Refused(failure)) => return Err(failure),
            };
            if !P::REPAIRS || strategy.is_driven || !transaction.repair(abort) {
                break abort;
            }
        };
        if P::SPLITS && strategy.sets_aside && abort.reason == ConflictReason::Split {
            transaction.give_way(abort);
            return Ok(AttemptEnd::Ended(RunEnd::SetAside));
        }
        // The conflict is described only if the caller gets to see it, since under contention there are many.
        let last = || transaction.describe(abort);
        let bounds = check_bounds(options, deadline, attempt + 1, last);
        transaction.give_way(abort);
        Ok(bounds.map(|()| AttemptEnd::Conflict(abort.reason, has_only_read))?)
    }

    /// Opens a snapshot for an attempt to read, if that is possible now. Returns its number.
    ///
    /// # Errors
    /// The attempt cannot go on.
    #[cold]
    #[inline(never)]
    fn open_for_attempt(
        &self,
        worker: &Worker<P>,
        snapshot: &OnceCell<Snapshot>,
    ) -> Result<Option<u64>, Failure> {
        let shared = &self.inner.shared;
        if self.check_no_commit().is_err() {
            return Ok(None);
        }
        let life = SnapshotLife::new(None, None);
        let take = || shared.clock.take_number();
        // A thread that has lost its core within its commit may be away for milliseconds. Until it goes on, the snapshot is
        // not consistent, and all others would keep versions for it.
        let open = || match shared.is_crowded() {
            true => Snapshot::open_soon(self.home(), life, take),
            false => Some(Snapshot::open(self.home(), life, take)),
        };
        let Some(opened) = P::with_whole_rows(self.engine(), worker, open)? else {
            return Ok(None);
        };
        // As in `open_snapshot`.
        shared.check_open()?;
        #[cfg(feature = "history")]
        if let (Some(recorder), Some(times)) = (&worker.recorder, opened.recorded_times()) {
            recorder.borrow_mut().set_times(times);
        }
        let opened = snapshot.get_or_init(|| opened);
        Ok(Some(opened.number()))
    }

    /// Announces that the transaction that begins next is a registered procedure. Returns the columns of its steps
    /// if it is committed by columns.
    fn expect_procedure<'p>(
        &self,
        worker: &Worker<P>,
        pieces: &'p Pieces,
        attempt: u32,
    ) -> Result<Option<&'p [UsedColumns]>, Failure> {
        if worker.active.get() {
            return Err(Failure::NestedTransaction);
        }
        let in_pieces = pieces.are_one_by_one();
        // Between two pieces the transaction cannot wait for the log, because the log would wait for the
        // transaction.
        if in_pieces && self.inner.is_durable() {
            self.inner.log()?.admit()?;
        }
        let Some(chopping) = worker.executor().chopping() else { return Ok(None) };
        chopping.expect_procedure(pieces);
        let columns = if in_pieces { None } else { pieces.columns() };
        Ok(columns.filter(|_| chopping.takes_notes(attempt)))
    }
}

/// Tells the database's observer that an attempt begins.
#[cold]
#[inline(never)]
fn begin_observed<P: Protocol>(
    observed: &Observed,
    options: &TransactionOptions,
    body: &dyn Body<P>,
) {
    match options.label {
        Some(label) => observed.begin(&Label::Given(label)),
        None => observed.begin(body.label()),
    }
}

/// Returns the end of an attempt whose body has returned an error.
#[cold]
fn failed<P: Protocol>(transaction: &Transaction<'_, P>) -> AttemptEnd {
    transaction.observe_failure(Ending::Error);
    AttemptEnd::Ended(RunEnd::Failed)
}

/// Rolls back, and resumes the panic.
#[cold]
fn unwind<P: Protocol>(
    transaction: Transaction<'_, P>,
    panic: Box<dyn Any + Send>,
) -> Result<AttemptEnd, Box<Failure>> {
    transaction.observe_failure(Ending::Panic);
    drop(transaction);
    resume_unwind(panic)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::cell::Cell;
    use std::thread::scope;

    use crate::{Database, Error, Record};

    #[derive(Clone, Debug, Record)]
    struct Account {
        #[record(key)]
        id: u32,
        balance: i64,
    }

    /// A thread may have lost its core within its commit. Readers that have lost don't wait for it, with a snapshot for which
    /// all others keep versions, but make ordinary attempts.
    #[test]
    fn reader_that_has_lost_does_not_wait_for_a_commit_that_does_not_end() {
        let committing = 2 * std::thread::available_parallelism().map_or(1, usize::from) + 1;
        let builder = Database::builder().workers_max(committing + 1).table::<Account>();
        let database = builder.open().unwrap();
        let accounts = database.table::<Account>().unwrap();
        let shared = &database.inner.shared;
        shared.grace.enlist(committing);
        assert!(shared.is_crowded());
        for id in 0..100 {
            database.transact(|tx| tx.insert(&accounts, Account { id, balance: 0 })).unwrap();
        }
        let read_beside_writes = |writes: u32| {
            let attempts = Cell::new(0);
            let sum = database.transact(|tx| {
                attempts.set(attempts.get() + 1);
                let mut sum = 0;
                for id in 0..100 {
                    sum += tx.get(&accounts, &id)?.map_or(0, |account| account.balance);
                }
                if attempts.get() <= writes {
                    let add = |account: &mut Account| account.balance += 1;
                    let write = || database.transact(|tx| tx.update(&accounts, &7, add).map(drop));
                    scope(|scope| scope.spawn(write).join().unwrap()).unwrap();
                }
                assert!(database.metrics().snapshots.open <= 1);
                Ok::<_, Error>((sum, database.metrics().snapshots.open))
            });
            (sum.unwrap(), attempts.get())
        };
        shared.commits.begin(committing);
        assert_eq!(read_beside_writes(3), ((3, 0), 4), "an ordinary attempt sees the newest sum");
        shared.commits.end(committing);
        assert_eq!(read_beside_writes(3), ((4, 1), 2), "the second attempt reads a snapshot");
        assert_eq!(database.metrics().snapshots.open, 0);
    }
}
