//! Submissions that run once for a key.
//!
//! A submission joins the line of its key at once. Until its turn comes, no thread takes it from the queue.

use std::any::type_name;
use std::sync::Arc;
use std::task::{Wake, Waker};

use super::queue::{Queue, Turn};
use super::{Job, Pool, Submission, SubmitOptions};
use crate::commit::Protocol;
use crate::database::once::{Once, OnceKey, OnceRun};
use crate::error::{Error, Failure};
use crate::row::column::ColumnValue;
use crate::transaction::Transaction;

impl SubmitOptions {
    /// Makes the transaction run once for `key`, as [`TransactionOptions::once`](crate::TransactionOptions::once) does.
    /// A submission that waits for another one with its key does not occupy a thread. It has its turn in the
    /// order of the submissions, whatever their priorities are.
    pub fn once<'k>(self, key: impl Into<OnceKey<'k>>) -> Once<'k, Self> {
        Once { key: key.into(), options: self }
    }
}

/// The options that [`Pool::submit_with`] takes for a transaction with the result `R`: [`SubmitOptions`], or
/// [`Once`] if the result can be stored.
pub trait SubmitWith<P: Protocol, R> {
    /// Submits a procedure with these options.
    #[doc(hidden)]
    fn submit<E, F>(&self, pool: &Pool<P>, procedure: F) -> Submission<R, E>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static;
}

impl<P: Protocol, R> SubmitWith<P, R> for SubmitOptions {
    fn submit<E, F>(&self, pool: &Pool<P>, procedure: F) -> Submission<R, E>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static,
    {
        pool.submit_at(pool.queue.turn(self.priority), self, type_name::<F>(), None, procedure)
    }
}

impl<P: Protocol, R: ColumnValue> SubmitWith<P, R> for Once<'_, SubmitOptions> {
    fn submit<E, F>(&self, pool: &Pool<P>, mut procedure: F) -> Submission<R, E>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static,
    {
        let (options, name) = (&self.options, type_name::<F>());
        let turn = pool.queue.turn(options.priority);
        let Some(results) = &pool.results else {
            let refused = |_: &Transaction<'_, P>| Err(Error::from(Failure::ResultsNotKept).into());
            return pool.submit_at(turn, options, name, None, refused);
        };
        let waker = Waker::from(Arc::new(Admit { queue: Arc::clone(&pool.queue), turn }));
        let once = Arc::new(OnceRun::join(results, self.key, options.label, waker));
        let run = Arc::clone(&once);
        let run = move |tx: &Transaction<'_, P>| run.transact(tx, &mut procedure);
        pool.submit_at(turn, options, name, Some(once), run)
    }
}

/// Lets the threads of a pool take a job whose turn has come.
struct Admit<P: Protocol> {
    queue: Arc<Queue<Job<P>>>,
    turn: Turn,
}

impl<P: Protocol> Wake for Admit<P> {
    fn wake(self: Arc<Self>) {
        self.queue.admit(self.turn);
    }
}
