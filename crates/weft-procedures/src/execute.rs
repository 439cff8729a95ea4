//! Executing procedures on a database.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use weft::commit::{ChopsProcedures, Executor, Protocol, Worker};
use weft::plan::Pieces;
use weft::run::{BodyOutcome, Strategy};
use weft::store::observer::Label;
use weft::{
    ColumnValue, CommitToken, Database, Error, Failure, Once, Transaction, TransactionOptions,
};

use crate::INSIDE;
use crate::OwnedOutput;
use crate::one_piece::OnePiece;
use crate::piecewise::Piecewise;
use crate::stepwise::Stepwise;

/// Executes procedures on a database.
pub trait Execute<P: Protocol> {
    /// Executes a [procedure](crate::Procedure) as a transaction until it commits, and returns its output. This
    /// is [`Database::transact`] with the procedure's function, and all that is documented there applies.
    ///
    /// Under `dbx-tc`, a registered procedure runs in pieces. Bounds apply to the first piece. Errors after the
    /// first piece are errors of the program, and leave the transaction [halfway](Failure::Halfway).
    ///
    /// Under `htcc` with the option `dependencies`, a procedure that meets a conflict does not run again from
    /// its beginning. Only those of its operations run again that depend on what has changed.
    ///
    /// ```
    /// use weft::{Database, Error, Record, Table, Transaction, protocol::Protocol};
    /// use weft_procedures::{Execute, procedure};
    ///
    /// #[derive(Clone, Record)]
    /// struct Page { #[record(key)] id: u32, views: u64 }
    ///
    /// #[procedure(View)]
    /// fn view<P: Protocol>(
    ///     pages: &Table<Page>,
    ///     tx: &Transaction<'_, P>,
    ///     id: u32,
    /// ) -> Result<Option<u64>, Error> {
    ///     tx.update(pages, &id, |page| {
    ///         page.views += 1;
    ///         page.views
    ///     })
    /// }
    ///
    /// let database = Database::builder().table::<Page>().open()?;
    /// let pages = database.table::<Page>()?;
    /// database.transact(|tx| tx.insert(&pages, Page { id: 7, views: 0 }))?;
    /// assert_eq!(database.execute(&mut View::new(&pages, 7))?, Some(1));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::transact`]; [`Failure::Halfway`].
    fn execute<F: OwnedOutput<P>>(&self, procedure: &mut F) -> Result<F::Owned, F::Error> {
        self.execute_with(&TransactionOptions::default(), procedure)
    }

    /// As [`Execute::execute`], within the bounds of [`TransactionOptions`], or [once](TransactionOptions::once) for a
    /// key.
    ///
    /// A procedure that runs once is not executed in pieces, because its result could not be stored with its first
    /// piece. It runs as the function would in [`Database::transact_with`].
    ///
    /// # Errors
    /// As [`Database::transact_with`].
    fn execute_with<F: OwnedOutput<P>>(
        &self,
        options: &impl ExecuteWith<P, F>,
        procedure: &mut F,
    ) -> Result<F::Owned, F::Error>;

    /// As [`Execute::execute_with`], but returns as [`Database::transact_with_token`].
    ///
    /// # Errors
    /// As [`Database::transact_with`].
    fn execute_with_token<F: OwnedOutput<P>>(
        &self,
        options: &impl ExecuteWith<P, F>,
        procedure: &mut F,
    ) -> Result<(F::Owned, CommitToken), F::Error>;
}

impl<P: Protocol> Execute<P> for Database<P> {
    fn execute_with<F: OwnedOutput<P>>(
        &self,
        options: &impl ExecuteWith<P, F>,
        procedure: &mut F,
    ) -> Result<F::Owned, F::Error> {
        let (result, token) = self.execute_with_token(options, procedure)?;
        self.acknowledge(token).map_err(Error::from)?;
        Ok(result)
    }

    #[inline]
    fn execute_with_token<F: OwnedOutput<P>>(
        &self,
        options: &impl ExecuteWith<P, F>,
        procedure: &mut F,
    ) -> Result<(F::Owned, CommitToken), F::Error> {
        options.execute(self, procedure)
    }
}

/// The options that [`Execute::execute_with`] takes for a procedure: [`TransactionOptions`], or [`Once`] if the
/// procedure's output can be stored.
pub trait ExecuteWith<P: Protocol, F: OwnedOutput<P>> {
    /// Executes a procedure with these options.
    #[doc(hidden)]
    fn execute(
        &self,
        database: &Database<P>,
        procedure: &mut F,
    ) -> Result<(F::Owned, CommitToken), F::Error>;
}

impl<P: Protocol, F: OwnedOutput<P, Owned: ColumnValue>> ExecuteWith<P, F>
    for Once<'_, TransactionOptions>
{
    fn execute(
        &self,
        database: &Database<P>,
        procedure: &mut F,
    ) -> Result<(F::Owned, CommitToken), F::Error> {
        database.transact_with_token(self, |tx| procedure.run(tx).map(F::into_owned))
    }
}

impl<P: Protocol, F: OwnedOutput<P>> ExecuteWith<P, F> for TransactionOptions {
    #[inline]
    fn execute(
        &self,
        database: &Database<P>,
        procedure: &mut F,
    ) -> Result<(F::Owned, CommitToken), F::Error> {
        if P::CHOPS {
            // The pieces belong to a worker, so the worker is claimed for the whole procedure.
            let claim = database.claim_worker(self, INSIDE).map_err(Error::from)?;
            let worker = claim.worker();
            if worker.memory.is_in_user_code() {
                return Err(Error::from(Failure::NestedOperation).into());
            }
            let chopping = worker.executor().chopping();
            if let Some(pieces) = chopping.and_then(|chopping| chopping.pieces_of(F::shape())) {
                return execute_in_pieces(database, worker, self, &pieces, procedure);
            }
        }
        if P::REPAIRS && P::executes_steps(&database.open_engine(INSIDE).protocol) {
            return execute_stepwise(database, self, procedure);
        }
        let mut body = |tx: &Transaction<'_, P>| procedure.run(tx).map(F::into_owned);
        database.run_closure(self, labelled::<P, F>(Strategy::default()), &mut body).result()
    }
}

/// Returns a strategy, with the label of a procedure whose options have none.
fn labelled<P: Protocol, F: OwnedOutput<P>>(strategy: Strategy<'_>) -> (Strategy<'_>, Label) {
    (strategy, Label::Procedure(F::shape().name))
}

/// Executes a procedure piece by piece, or as one piece if it has only one.
fn execute_in_pieces<P: Protocol, F: OwnedOutput<P>>(
    database: &Database<P>,
    worker: &Worker<P>,
    options: &TransactionOptions,
    pieces: &Pieces,
    procedure: &mut F,
) -> Result<(F::Owned, CommitToken), F::Error> {
    if !pieces.are_one_by_one() {
        let strategy = Strategy { pieces: Some(pieces), ..Strategy::default() };
        let strategy = labelled::<P, F>(strategy);
        let ended = database.run_keeping(INSIDE, options, strategy, |tx, columns, returned| {
            let driver = OnePiece::new(tx, columns);
            let result = match columns {
                Some(_) => procedure.execute(&driver).map(F::into_owned),
                None => procedure.run(tx).map(F::into_owned),
            };
            BodyOutcome::of(returned.insert(result))
        });
        return ended.result();
    }
    let strategy = Strategy { pieces: Some(pieces), is_driven: true, sets_aside: false };
    let strategy = labelled::<P, F>(strategy);
    let ended = database.run_keeping(INSIDE, options, strategy, |tx, _, returned| {
        let driver = Piecewise::new(tx, pieces);
        if F::shape().uses_time
            && let Err(abort) = driver.hold_time()
        {
            return BodyOutcome::Conflict(Box::new(abort));
        }
        let executed = || procedure.execute(&driver).map(F::into_owned);
        let executed = catch_unwind(AssertUnwindSafe(executed));
        let (ended, halfway) = (driver.ended(), driver.halfway());
        drop(driver);
        match (ended, executed) {
            (Some(Ok(token)), executed) => {
                if let Some(chopping) = worker.executor().chopping() {
                    chopping.end_pieces(&worker.memory);
                }
                committed(token, executed, returned)
            }
            (Some(Err(abort)), _) => BodyOutcome::Conflict(Box::new(abort)),
            // An error of its own: it does not follow from a conflict, or there would be another pass.
            (None, Ok(result)) => match halfway {
                Some(failure) => BodyOutcome::Refused(Box::new(failure)),
                None => failed(tx, result, returned),
            },
            (None, Err(panic)) => BodyOutcome::Panicked(Box::new(panic)),
        }
    });
    ended.result()
}

/// Executes a procedure step by step. A conflict that was not repaired is handled like that of any transaction.
fn execute_stepwise<P: Protocol, F: OwnedOutput<P>>(
    database: &Database<P>,
    options: &TransactionOptions,
    procedure: &mut F,
) -> Result<(F::Owned, CommitToken), F::Error> {
    let strategy = labelled::<P, F>(Strategy { is_driven: true, ..Strategy::default() });
    let ended = database.run_keeping(INSIDE, options, strategy, |tx, _, returned| {
        let driver = Stepwise::new(tx);
        let executed = || procedure.execute(&driver).map(F::into_owned);
        let executed = catch_unwind(AssertUnwindSafe(executed));
        match (driver.ended(), executed) {
            (Some(Ok(token)), executed) => committed(token, executed, returned),
            (Some(Err(abort)), _) => BodyOutcome::Conflict(Box::new(abort)),
            // An error of its own: it does not follow from a conflict, or there would be another pass.
            (None, Ok(result)) => failed(tx, result, returned),
            (None, Err(panic)) => resume_unwind(panic),
        }
    });
    ended.result()
}

/// Returns the outcome of a procedure that has not committed, although there was no conflict. Either it has returned an
/// error, or the transaction must not commit.
fn failed<P: Protocol, R, E>(
    transaction: &Transaction<'_, P>,
    result: Result<R, E>,
    returned: &mut Option<Result<R, E>>,
) -> BodyOutcome {
    match transaction.refusal().filter(|_| result.is_ok()) {
        Some(failure) => BodyOutcome::Refused(failure),
        None => {
            *returned = Some(result);
            BodyOutcome::FailedWithoutConflict
        }
    }
}

/// Returns the outcome of a procedure that has committed, and keeps its result, unless the procedure has panicked
/// since.
fn committed<T>(
    token: CommitToken,
    executed: thread::Result<T>,
    returned: &mut Option<T>,
) -> BodyOutcome {
    match executed {
        Ok(result) => {
            *returned = Some(result);
            BodyOutcome::Committed(token)
        }
        Err(panic) => BodyOutcome::CommittedAndPanicked(Box::new(panic)),
    }
}
