//! The run loop: one transaction, tried until it has ended.
//!
//! ```text
//!   turnstile, phases ── begin ── body ── commit ── end
//!          ▲                │       ▲  conflict │
//!          │                │       └─ repair ──┤  (htcc: the same transaction, its body once more)
//!          └─── wait ───────┴────── give way ───┘
//! ```
//!
//! All that runs transactions comes here, and finds one set of bounds: closures, procedures, stashes and pools.
//! What differs is in the [`Strategy`] and in the body. The loop is compiled once for each protocol. So it does not
//! know the types of what a body returns: these stay with the caller, and the body says what became of them, by an
//! [`Outcome`]. One indirect call per attempt is the price.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{Database, TransactionOptions, check_bounds};
use crate::commit::{
    Abort, ChopsProcedures, CommitToken, Executor, Protocol, Unstable, Worker, backoff,
};
use crate::error::{ConflictReason, Error, Failure};
use crate::plan::{Pieces, StepColumns};
use crate::store::deadline::Deadline;
use crate::transaction::Transaction;

/// What a body has come to. What it has returned is its caller's.
pub enum Outcome {
    /// It has returned a value: the transaction is to be committed.
    Returned,
    /// It has returned an error, which is its own, unless a conflict is behind it. If that `is_decided`, none is.
    Failed { is_decided: bool },
    /// Its driver has committed the transaction. Then it may have panicked.
    Committed(CommitToken, Option<Box<dyn Any + Send>>),
    /// Its driver could not commit the transaction.
    Conflict(Abort),
    /// The transaction cannot be run.
    Refused(Box<Failure>),
    /// It has panicked, and no conflict is behind that.
    Panicked(Box<dyn Any + Send>),
}

impl Outcome {
    /// What a closure has come to that has returned this.
    #[inline(always)]
    pub fn of<R, E>(returned: &Result<R, E>) -> Self {
        match returned {
            Ok(_) => Outcome::Returned,
            Err(_) => Outcome::Failed { is_decided: false },
        }
    }
}

/// What runs in a transaction. It is told the columns of the steps by which the transaction is committed, if it is
/// committed by columns.
pub type Body<'b, P> = dyn FnMut(&Transaction<'_, P>, Option<&[StepColumns]>) -> Outcome + 'b;

/// How a transaction is run.
#[derive(Clone, Copy, Default)]
pub struct Strategy<'s> {
    /// The pieces of the procedure that it is, under a protocol that [chops](Protocol::CHOPS).
    pub pieces: Option<&'s Pieces>,
    /// Whether its body is a driver, which does the repairs.
    pub is_driven: bool,
    /// Whether it ends when a split record is refused to it. It then is to be run again in a joined phase, and
    /// the caller sees to that.
    pub sets_aside: bool,
}

/// How a transaction has ended.
pub enum Ran {
    /// It has committed.
    Committed(CommitToken),
    /// Its body has failed, and it was rolled back.
    Failed,
    /// A split record was refused to it.
    SetAside,
}

/// As [`Ran`], with what the body has returned.
pub enum Ended<R, E> {
    /// With this result.
    With(Result<(R, CommitToken), E>),
    /// A split record was refused to it, and it is to be run again in a joined phase.
    SetAside,
}

impl<R, E: From<Error>> Ended<R, E> {
    #[inline(always)]
    fn of(ran: Result<Ran, Box<Failure>>, returned: Option<Result<R, E>>) -> Self {
        match (ran, returned) {
            (Ok(Ran::Committed(token)), Some(Ok(value))) => Ended::With(Ok((value, token))),
            (Ok(Ran::Failed), Some(Err(error))) => Ended::With(Err(error)),
            (Ok(Ran::SetAside), _) => Ended::SetAside,
            (Err(failure), _) => Ended::With(Err(Error::from(*failure).into())),
            _ => unreachable!("a transaction ends as its body has"),
        }
    }

    /// The result, of a transaction that is not set aside.
    #[inline(always)]
    pub fn result(self) -> Result<(R, CommitToken), E> {
        match self {
            Ended::With(result) => result,
            Ended::SetAside => unreachable!("it waits instead"),
        }
    }
}

impl<P: Protocol> Database<P> {
    /// Runs a closure as a transaction until it has ended; or, if it `sets_aside`, until a split record is refused
    /// to it.
    #[doc(hidden)]
    #[inline(always)]
    pub fn run_closure<R, E: From<Error>>(
        &self,
        worker: &Worker<P>,
        options: &TransactionOptions,
        sets_aside: bool,
        body: &mut impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Ended<R, E> {
        let strategy = Strategy { sets_aside, ..Strategy::default() };
        self.run_keeping(Unstable::ENGINE, worker, options, strategy, |tx, _, returned| {
            Outcome::of(returned.insert(body(tx)))
        })
    }

    /// Runs a body that puts what it returns into the place that it is given, which is empty then.
    #[doc(hidden)]
    #[inline(always)]
    pub fn run_keeping<R, E: From<Error>>(
        &self,
        _: Unstable,
        worker: &Worker<P>,
        options: &TransactionOptions,
        strategy: Strategy<'_>,
        mut body: impl FnMut(
            &Transaction<'_, P>,
            Option<&[StepColumns]>,
            &mut Option<Result<R, E>>,
        ) -> Outcome,
    ) -> Ended<R, E> {
        let mut returned = None;
        let ran = self.run(worker, options, strategy, &mut |tx, columns| {
            returned = None;
            body(tx, columns, &mut returned)
        });
        Ended::of(ran, returned)
    }

    /// Tries a transaction until it has ended.
    #[inline(never)]
    fn run(
        &self,
        worker: &Worker<P>,
        options: &TransactionOptions,
        strategy: Strategy<'_>,
        body: &mut Body<'_, P>,
    ) -> Result<Ran, Box<Failure>> {
        let deadline = options.deadline.and_then(Deadline::after);
        let mut attempt = 0;
        let mut closed_turnstile = None;
        loop {
            if !worker.active.get() {
                if closed_turnstile.is_none() {
                    let turnstile = &self.inner.shared.turnstile;
                    let mut keep_waiting = || self.check_wait(deadline, attempt);
                    closed_turnstile = turnstile.pass(attempt, &mut keep_waiting)?;
                }
                let keep_waiting = || self.check_wait(deadline, attempt);
                P::between_transactions(self.engine(), worker, keep_waiting)?;
            }
            let ran = worker
                .memory
                .regions()
                .restarting(|| self.attempt(worker, options, strategy, attempt, deadline, body))?;
            if let Some(ran) = ran {
                return Ok(ran);
            }
            attempt += 1;
            backoff(worker, attempt);
        }
    }

    /// Runs the body once, after `attempt` conflicts, or as often as the transaction is repaired, and commits.
    /// `None` after one more conflict that is within the bounds.
    #[inline(always)]
    fn attempt(
        &self,
        worker: &Worker<P>,
        options: &TransactionOptions,
        strategy: Strategy<'_>,
        attempt: u32,
        deadline: Option<Deadline>,
        body: &mut Body<'_, P>,
    ) -> Result<Option<Ran>, Box<Failure>> {
        let columns = match strategy.pieces {
            Some(pieces) if P::CHOPS => self.expect_procedure(worker, pieces, attempt)?,
            _ => None,
        };
        Transaction::start(self.engine(), worker, attempt, deadline)?;
        let transaction = Transaction::started(self.engine(), worker, attempt, deadline);
        if P::CHOPS && strategy.pieces.is_some_and(Pieces::are_one_by_one) {
            transaction.set_admitted();
        }
        let abort = loop {
            let outcome = catch_unwind(AssertUnwindSafe(|| body(&transaction, columns)));
            let abort = match outcome {
                Ok(Outcome::Returned) => match transaction.finish(columns, Unstable::ENGINE) {
                    Ok(token) => {
                        transaction.end_committed(Unstable::ENGINE);
                        return Ok(Some(Ran::Committed(token)));
                    }
                    Err(abort) => abort,
                },
                Ok(Outcome::Failed { is_decided }) => {
                    match if is_decided { None } else { transaction.conflict() } {
                        Some(abort) => abort,
                        None => return Ok(Some(Ran::Failed)),
                    }
                }
                Err(panic) => match transaction.conflict() {
                    Some(abort) => abort,
                    None => return unwind(transaction, panic),
                },
                Ok(Outcome::Panicked(panic)) => return unwind(transaction, panic),
                Ok(Outcome::Committed(token, panic)) => {
                    transaction.end_committed(Unstable::ENGINE);
                    match panic {
                        None => return Ok(Some(Ran::Committed(token))),
                        Some(panic) => resume_unwind(panic),
                    }
                }
                Ok(Outcome::Conflict(abort)) => abort,
                Ok(Outcome::Refused(failure)) => return Err(failure),
            };
            if !P::REPAIRS || strategy.is_driven || !transaction.repair() {
                break abort;
            }
        };
        if P::SPLITS && strategy.sets_aside && abort.reason == ConflictReason::Split {
            transaction.give_way(abort);
            return Ok(Some(Ran::SetAside));
        }
        // Spelled out only for those who get to see it: under contention conflicts are many.
        let last = || transaction.describe(abort);
        let bounds = check_bounds(options, deadline, attempt + 1, last);
        transaction.give_way(abort);
        Ok(bounds.map(|()| None)?)
    }

    /// Says that the transaction that begins next is a registered procedure. Returns the columns by which it is
    /// committed, if it is.
    fn expect_procedure<'p>(
        &self,
        worker: &Worker<P>,
        pieces: &'p Pieces,
        attempt: u32,
    ) -> Result<Option<&'p [StepColumns]>, Failure> {
        if worker.active.get() {
            return Err(Failure::NestedTransaction);
        }
        let in_pieces = pieces.are_one_by_one();
        // Between two pieces it cannot wait for the log, which would wait for it.
        if in_pieces && self.inner.is_durable() {
            self.inner.log()?.admit()?;
        }
        let Some(chopping) = worker.executor().chopping() else { return Ok(None) };
        chopping.expect_procedure(pieces);
        let columns = if in_pieces { None } else { pieces.columns() };
        Ok(columns.filter(|_| chopping.takes_notes(attempt)))
    }
}

/// Rolls back, and goes on panicking.
#[cold]
fn unwind<P: Protocol>(
    transaction: Transaction<'_, P>,
    panic: Box<dyn Any + Send>,
) -> Result<Option<Ran>, Box<Failure>> {
    drop(transaction);
    resume_unwind(panic)
}
