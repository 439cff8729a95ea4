//! Running procedures on a database.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use super::{Database, Ended, TransactionOptions};
use crate::error::{Error, Failure};
use crate::procedure::{OwnedOutput, Pieces};
use crate::protocol::{Executor, Protocol};
use crate::storage::CommitToken;
use crate::transaction::{OnePiece, Piecewise, Stepwise, Transaction};
use crate::worker::Worker;

impl<P: Protocol> Database<P> {
    /// Executes a [procedure](mod@crate::procedure) as a transaction until it commits, and returns its
    /// output: [`Database::transact`] of its function, with all that is said there.
    ///
    /// Under `dbx-tc`, a procedure that is [registered](crate::protocol::DbxTcOptions) runs in pieces. Bounds are
    /// those of the first one, and errors behind it are errors of the program, by which the transaction is left
    /// [halfway](crate::Failure::Halfway).
    ///
    /// Under `htcc` with
    /// [`HtccOptions::dependencies`](crate::protocol::HtccOptions::dependencies), a procedure that has met another
    /// transaction does not run again from its beginning, but only those of its operations that depend on what
    /// has changed.
    ///
    /// ```
    /// # use weft::{Database, Error, Record, Table, Transaction, procedure, protocol::{Htcc, HtccOptions, Protocol}};
    /// #[derive(Clone, Record)]
    /// struct Page { #[record(key)] id: u32, views: u64 }
    ///
    /// #[procedure(View)]
    /// fn view<P: Protocol>(
    ///     pages: &Table<Page, P>,
    ///     tx: &Transaction<'_, P>,
    ///     id: u32,
    /// ) -> Result<Option<u64>, Error> {
    ///     tx.update(pages, &id, |page| {
    ///         page.views += 1;
    ///         page.views
    ///     })
    /// }
    ///
    /// let options = HtccOptions::new().dependencies(true);
    /// let database = Database::<Htcc>::builder().table::<Page>().htcc(options).open()?;
    /// let pages = database.table::<Page>()?;
    /// database.transact(|tx| tx.insert(&pages, Page { id: 7, views: 0 }))?;
    /// assert_eq!(database.execute(&mut View::new(&pages, 7))?, Some(1));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::transact`]; [`Failure::Halfway`].
    pub fn execute<F: OwnedOutput<P>>(&self, procedure: &mut F) -> Result<F::Owned, F::Error> {
        self.execute_with(&TransactionOptions::default(), procedure)
    }

    /// As [`Database::execute`], within bounds.
    ///
    /// # Errors
    /// As [`Database::transact_with`].
    pub fn execute_with<F: OwnedOutput<P>>(
        &self,
        options: &TransactionOptions,
        procedure: &mut F,
    ) -> Result<F::Owned, F::Error> {
        let (result, token) = self.execute_with_token(options, procedure)?;
        self.acknowledge(token).map_err(Error::from)?;
        Ok(result)
    }

    /// As [`Database::execute_with`], but returns as [`Database::transact_with_token`].
    ///
    /// # Errors
    /// As [`Database::transact_with`].
    #[inline]
    pub fn execute_with_token<F: OwnedOutput<P>>(
        &self,
        options: &TransactionOptions,
        procedure: &mut F,
    ) -> Result<(F::Owned, CommitToken), F::Error> {
        if P::CHOPS {
            let worker = self.worker().map_err(Error::from)?;
            if worker.memory.is_in_user_code() {
                return Err(Error::from(Failure::NestedOperation).into());
            }
            if let Some(pieces) = worker.executor().pieces_of(F::shape()) {
                let retried = self.retry(worker, options, |attempt, deadline| {
                    self.attempt_in_pieces(worker, options, attempt, deadline, &pieces, procedure)
                });
                return retried.map_err(Error::from)?.result();
            }
        }
        if !P::executes_steps(&self.inner.protocol) {
            return self.transact_with_token(options, |tx| procedure.run(tx).map(F::into_owned));
        }
        let worker = self.worker().map_err(Error::from)?;
        let retried = self.retry(worker, options, |attempt, deadline| {
            self.attempt_stepwise(worker, options, attempt, deadline, procedure)
        });
        retried.map_err(Error::from)?.result()
    }

    /// Executes the procedure, after `attempt` conflicts in its first piece.
    fn attempt_in_pieces<F: OwnedOutput<P>>(
        &self,
        worker: &Worker<P>,
        options: &TransactionOptions,
        attempt: u32,
        deadline: Option<(Instant, Duration)>,
        pieces: &Pieces,
        procedure: &mut F,
    ) -> ControlFlow<Ended<F::Owned, F::Error>> {
        let end = |result| ControlFlow::Break(Ended::With(result));
        let fail = |failure: Failure| end(Err(Error::from(failure).into()));
        if worker.active.get() {
            return fail(Failure::NestedTransaction);
        }
        let in_pieces = pieces.are_one_by_one();
        // Between two pieces it cannot wait for the log, which would wait for it.
        if in_pieces
            && let Some(storage) = &self.inner.storage
            && let Err(failure) = storage.log().and_then(|log| Ok(log.admit()?))
        {
            return fail(failure);
        }
        worker.executor().expect_procedure(pieces);
        if !in_pieces {
            let columns = pieces.columns().filter(|_| worker.executor().takes_notes(attempt));
            let mut body = |tx: &Transaction<'_, P>| match columns {
                Some(_) => {
                    let driver = OnePiece::new(tx, tx.columns(columns));
                    procedure.execute(&driver).map(F::into_owned)
                }
                None => procedure.run(tx).map(F::into_owned),
            };
            return self
                .attempt::<false, _, _>(worker, options, attempt, deadline, columns, &mut body);
        }
        let transaction = match Transaction::begin(&self.inner, worker, attempt, deadline) {
            Ok(transaction) => transaction,
            Err(failure) => return fail(failure),
        };
        transaction.set_admitted();
        let driver = Piecewise::new(&transaction, pieces);
        let executed = || procedure.execute(&driver).map(F::into_owned);
        let result = catch_unwind(AssertUnwindSafe(executed));
        let (ended, halfway) = (driver.ended(), driver.halfway());
        drop(driver);
        match (ended, result) {
            (Some(Ok(token)), result) => {
                worker.executor().end_pieces(&worker.memory);
                transaction.end_committed();
                match result {
                    Ok(result) => end(result.map(|value| (value, token))),
                    Err(panic) => resume_unwind(panic),
                }
            }
            (Some(Err(abort)), _) => self.give_way(transaction, abort, options, attempt, deadline),
            // Its own error: no conflict is behind it, or else there would be another pass.
            (None, Ok(result)) => match halfway {
                Some(failure) => fail(failure),
                None => end(Err(result.err().expect("it has not committed"))),
            },
            (None, Err(panic)) => {
                drop(transaction);
                resume_unwind(panic)
            }
        }
    }

    /// Executes the procedure once, step by step, after `attempt` conflicts that it was not repaired from.
    fn attempt_stepwise<F: OwnedOutput<P>>(
        &self,
        worker: &Worker<P>,
        options: &TransactionOptions,
        attempt: u32,
        deadline: Option<(Instant, Duration)>,
        procedure: &mut F,
    ) -> ControlFlow<Ended<F::Owned, F::Error>> {
        let end = |result| ControlFlow::Break(Ended::With(result));
        let transaction = match Transaction::begin(&self.inner, worker, attempt, deadline) {
            Ok(transaction) => transaction,
            Err(failure) => return end(Err(Error::from(failure).into())),
        };
        let driver = Stepwise::new(&transaction);
        let executed = || procedure.execute(&driver).map(F::into_owned);
        let result = catch_unwind(AssertUnwindSafe(executed));
        let abort = match (driver.ended(), result) {
            (Some(Ok(token)), result) => {
                transaction.end_committed();
                return match result {
                    Ok(result) => end(result.map(|value| (value, token))),
                    Err(panic) => resume_unwind(panic),
                };
            }
            (Some(Err(abort)), _) => abort,
            // Its own error: no conflict is behind it, or else there would be another pass.
            (None, Ok(result)) => return end(Err(result.err().expect("it has not committed"))),
            (None, Err(panic)) => match transaction.conflict() {
                Some(abort) => abort,
                None => {
                    drop(transaction);
                    resume_unwind(panic)
                }
            },
        };
        self.give_way(transaction, abort, options, attempt, deadline)
    }
}
