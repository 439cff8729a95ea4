//! Running procedures on a database.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use super::{Database, Ended, TransactionOptions};
use crate::error::Error;
use crate::procedure::OwnedOutput;
use crate::protocol::Protocol;
use crate::storage::CommitToken;
use crate::transaction::{Stepwise, Transaction};
use crate::worker::Worker;

impl<P: Protocol> Database<P> {
    /// Executes a [procedure](mod@crate::procedure) as a transaction until it commits, and returns its
    /// output: [`Database::transact`] of its function, with all that is said there. Under `htcc` with
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
    /// As [`Database::transact`].
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
        if !P::executes_steps(&self.inner.protocol) {
            return self.transact_with_token(options, |tx| procedure.run(tx).map(F::into_owned));
        }
        let worker = self.worker().map_err(Error::from)?;
        let retried = self.retry(worker, options, |attempt, deadline| {
            self.attempt_stepwise(worker, options, attempt, deadline, procedure)
        });
        match retried.map_err(Error::from)? {
            Ended::With(result) => result,
            Ended::SetAside => unreachable!("it is not set aside"),
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
