//! Pools: threads of the database's own, which run the transactions that other threads submit.
//!
//! A thread that calls [`Database::transact`] runs its transaction itself, and blocks while the transaction has to
//! wait. This is the shortest way, and the right one for as many threads as there are cores. But a server has more
//! clients than cores. A client that reads a split record (see `Doppel` in `weft-protocols`) must not make a core
//! wait for 20 ms. A [`Pool`] has one thread per core. A transaction that cannot run now is set aside in the
//! thread's [`Stash`], and the thread goes on with other work.
//!
//! ```text
//!   submit --> queue --> worker 0 <--> stash     acknowledger (if commits wait for the disk)
//!   submit -->       --> worker 1 <--> stash  --> waits until what was committed is durable
//!   submit -->                                        |
//!      ^                                              |
//!      +------------- the submission's result <-------+
//! ```
//!
//! **Back-pressure**: the queue and the stashes are bounded. When the workers do not keep up, [`Pool::submit`]
//! blocks, and [`Pool::try_submit`] gives the procedure back.

use std::any::Any;
use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::commit::CommitToken;
use crate::commit::{Dbx, Protocol};
use crate::database::Database;
use crate::database::stash::Stash;
use crate::error::{Error, Failure};
use crate::transaction::Transaction;

/// Options of a [`Pool`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolOptions {
    /// How many threads run transactions. The default is one per core. If the protocol allows fewer workers, there
    /// are only as many threads as it allows.
    pub threads: usize,
    /// How many procedures the queue can hold. Default: 1024.
    pub queue: usize,
    /// How many procedures each thread can set aside. Default: 1024.
    pub stash: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        PoolOptions { threads, queue: 1024, stash: 1024 }
    }
}

impl PoolOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`PoolOptions::threads`].
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets [`PoolOptions::queue`].
    pub fn queue(mut self, queue: usize) -> Self {
        self.queue = queue;
        self
    }

    /// Sets [`PoolOptions::stash`].
    pub fn stash(mut self, stash: usize) -> Self {
        self.stash = stash;
        self
    }
}

/// A pool of threads that run the transactions which other threads submit. A transaction that meets a split record
/// is set aside until it can run, and its thread goes on with other work.
///
/// Use a pool when there are more clients than cores; otherwise call [`Database::transact`]. Dropping the pool
/// finishes all submitted transactions, and then ends the threads.
///
/// ```
/// use weft::{Database, Error, PoolOptions, Record, column_of};
/// use weft_protocols::Doppel;
///
/// #[derive(Clone, Copy, Record)]
/// struct Auction {
///     #[record(key)]
///     item: u64,
///     bids: u64,
///     highest: i64,
/// }
///
/// let database = Database::builder().protocol::<Doppel>().table::<Auction>().open()?;
/// let auctions = database.table::<Auction>()?;
/// database.transact(|tx| tx.insert(&auctions, Auction { item: 7, bids: 0, highest: 0 }))?;
///
/// let pool = database.pool(&PoolOptions::new().threads(2))?;
/// let bids: Vec<_> = (1..=100)
///     .map(|amount| {
///         let auctions = auctions.clone();
///         pool.submit(move |tx| {
///             tx.add(&auctions, &7, column_of!(Auction.bids), 1)?;
///             tx.max(&auctions, &7, column_of!(Auction.highest), amount)
///         })
///     })
///     .collect();
/// // In asynchronous code: `bid.await`.
/// bids.into_iter().try_for_each(|bid: weft::Submission<(), Error>| bid.wait())?;
/// let auction = pool.submit(move |tx| Ok::<_, Error>(tx.get(&auctions, &7)?.cloned())).wait()?;
/// assert_eq!(auction.map(|auction| (auction.bids, auction.highest)), Some((100, 100)));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Pool<P: Protocol = Dbx> {
    /// `None` while the pool is being dropped.
    queue: Option<Sender<Box<dyn Job<P>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<P: Protocol> Database<P> {
    /// Starts a pool of threads for this database.
    ///
    /// # Errors
    /// [`Failure::Thread`] if the operating system cannot start a thread.
    pub fn pool(&self, options: &PoolOptions) -> Result<Pool<P>, Failure> {
        let (queue, submitted) = bounded(options.queue);
        let mut pool = Pool { queue: Some(queue), threads: Vec::new() };
        let acknowledger = match self.acknowledges_durable() {
            false => None,
            true => {
                let (sender, committed) = bounded(options.queue.max(1));
                let database = self.clone();
                pool.spawn("weft-acknowledge", move || acknowledge(&database, &committed))?;
                Some(sender)
            }
        };
        for number in 0..options.threads.clamp(1, P::WORKERS_MAX) {
            let (stash, submitted) = (self.stash(options.stash), submitted.clone());
            let acknowledger = acknowledger.clone();
            let mut worker = PoolWorker { stash, submitted, acknowledger };
            pool.spawn(&format!("weft-pool-{number}"), move || worker.work())?;
        }
        Ok(pool)
    }
}

impl<P: Protocol> Pool<P> {
    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(body);
        let thread = spawned.map_err(|error| Failure::Thread { message: error.to_string() })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Submits `procedure`, which a thread of the pool runs as a transaction, as [`Database::transact`] does.
    /// Blocks while the queue is full. Do not call this inside a transaction: a procedure in the queue may be
    /// waiting for it.
    ///
    /// The submission returns the result when the transaction has committed, or when it is durable, if commits are
    /// acknowledged when they are durable. If you drop the submission, the transaction runs all the same.
    pub fn submit<R, E, F>(&self, procedure: F) -> Submission<R, E>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static,
    {
        let (submitted, submission) = QueuedJob::new(procedure);
        if self.queue().send(Box::new(submitted)).is_err() {
            unreachable!("the workers listen until the pool is dropped");
        }
        submission
    }

    /// As [`Pool::submit`], but does not block.
    ///
    /// # Errors
    /// Returns the procedure if the queue is full.
    pub fn try_submit<R, E, F>(&self, procedure: F) -> Result<Submission<R, E>, F>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static,
    {
        let (submitted, submission) = QueuedJob::new(procedure);
        match self.queue().try_send(Box::new(submitted)) {
            Ok(()) => Ok(submission),
            Err(TrySendError::Disconnected(_)) => {
                unreachable!("the workers listen until the pool is dropped")
            }
            Err(TrySendError::Full(job)) => {
                let submitted: Box<QueuedJob<F, R, E>> =
                    job.into_any().downcast().expect("the queue gives back the job that was sent");
                Err(submitted.procedure)
            }
        }
    }

    /// Returns how many procedures wait in the queue.
    pub fn queued(&self) -> usize {
        self.queue().len()
    }

    fn queue(&self) -> &Sender<Box<dyn Job<P>>> {
        self.queue.as_ref().expect("the pool has its queue until it is dropped")
    }
}

impl<P: Protocol> Drop for Pool<P> {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // A panic of a procedure is passed on to the caller that submitted it. Any other panic was reported.
            let _ = thread.join();
        }
    }
}

/// The result of a submitted procedure, which is there when its transaction has ended. Call [`Submission::wait`],
/// or `.await` the submission.
#[derive(Debug)]
#[must_use = "dropping it loses the result: you would not know whether it has committed"]
pub struct Submission<R, E = Error> {
    receiver: oneshot::Receiver<thread::Result<Result<R, E>>>,
}

impl<R, E> Submission<R, E> {
    /// Blocks until the transaction has ended, and returns its result. Do not call this inside a transaction.
    ///
    /// # Errors
    /// Those of [`Database::transact`].
    ///
    /// # Panics
    /// If the procedure panicked, with what it panicked with.
    pub fn wait(self) -> Result<R, E> {
        settle(self.receiver.recv())
    }

    /// Returns whether the transaction has ended, so that [`Submission::wait`] would not block.
    pub fn has_ended(&self) -> bool {
        self.receiver.has_message() || self.receiver.is_closed()
    }
}

impl<R, E> IntoFuture for Submission<R, E> {
    type Output = Result<R, E>;
    type IntoFuture = SubmissionFuture<R, E>;

    fn into_future(self) -> SubmissionFuture<R, E> {
        SubmissionFuture { receiver: self.receiver.into_future() }
    }
}

/// The future of a [`Submission`].
#[derive(Debug)]
pub struct SubmissionFuture<R, E = Error> {
    receiver: oneshot::AsyncReceiver<thread::Result<Result<R, E>>>,
}

impl<R, E> Future for SubmissionFuture<R, E> {
    type Output = Result<R, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R, E>> {
        Pin::new(&mut self.receiver).poll(context).map(settle)
    }
}

/// Passes the received result on to the caller of the pool. A panic is resumed.
fn settle<R, E>(
    received: Result<thread::Result<Result<R, E>>, oneshot::RecvError>,
) -> Result<R, E> {
    match received {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(oneshot::RecvError) => panic!("the thread of the pool has ended before its time"),
    }
}

/// A submitted procedure of any type, as a thread of the pool sees it.
trait Job<P: Protocol>: Send {
    /// Runs the procedure in a transaction.
    fn run(&mut self, tx: &Transaction<'_, P>) -> Result<(), JobFailure>;
    /// Sends the result to the caller that submitted the procedure.
    fn end(self: Box<Self>, ended: Result<(), JobFailure>);
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// Why a procedure has not committed.
enum JobFailure {
    /// The procedure returned an error of its own, or panicked. The job has the error or the panic.
    Procedure,
    /// The engine returned this error.
    Engine(Error),
}

impl From<Error> for JobFailure {
    fn from(error: Error) -> Self {
        JobFailure::Engine(error)
    }
}

/// A procedure in the queue.
struct QueuedJob<F, R, E> {
    procedure: F,
    /// The result of the procedure's last run.
    result: Option<thread::Result<Result<R, E>>>,
    sender: oneshot::Sender<thread::Result<Result<R, E>>>,
}

impl<F, R, E> QueuedJob<F, R, E> {
    fn new(procedure: F) -> (Self, Submission<R, E>) {
        let (sender, receiver) = oneshot::channel();
        (QueuedJob { procedure, result: None, sender }, Submission { receiver })
    }
}

impl<P, F, R, E> Job<P> for QueuedJob<F, R, E>
where
    P: Protocol,
    R: Send + 'static,
    E: From<Error> + Send + 'static,
    F: FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static,
{
    fn run(&mut self, tx: &Transaction<'_, P>) -> Result<(), JobFailure> {
        let result = catch_unwind(AssertUnwindSafe(|| (self.procedure)(tx)));
        let is_done = matches!(result, Ok(Ok(_)));
        self.result = Some(result);
        if is_done { Ok(()) } else { Err(JobFailure::Procedure) }
    }

    fn end(self: Box<Self>, ended: Result<(), JobFailure>) {
        let result = match ended {
            Err(JobFailure::Engine(error)) => Ok(Err(E::from(error))),
            Ok(()) | Err(JobFailure::Procedure) => self.result.expect("the job was run"),
        };
        // An error means that the submission was dropped: no caller waits for the result.
        let _ = self.sender.send(result);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// A transaction that has committed. It is acknowledged when it is durable.
type CommittedJob<P> = (CommitToken, Box<dyn Job<P>>);

/// One of a pool's threads.
struct PoolWorker<P: Protocol> {
    stash: Stash<Box<dyn Job<P>>, P>,
    submitted: Receiver<Box<dyn Job<P>>>,
    acknowledger: Option<Sender<CommittedJob<P>>>,
}

impl<P: Protocol> PoolWorker<P> {
    /// Runs jobs until the pool is dropped and no job is left. Jobs that were set aside come before new ones, as
    /// soon as they can run again.
    fn work(&mut self) {
        loop {
            let job = match self.stash.take_due() {
                Some(job) => Some(job),
                // With an empty stash, block until the next job is submitted.
                None if self.stash.is_empty() => match self.submitted.recv() {
                    Ok(job) => Some(job),
                    Err(_ended) => return,
                },
                None => self.submitted.try_recv().ok(),
            };
            match job {
                Some(job) => self.run(job),
                None => self.wait(),
            }
        }
    }

    fn run(&mut self, job: Box<dyn Job<P>>) {
        let ended = self.stash.transact_with_token(job, |tx, job| job.run(tx));
        let Some((job, result)) = ended else { return };
        match (result, &self.acknowledger) {
            (Ok(((), token)), Some(acknowledger)) => {
                self.stash.database().inner().expect_wait();
                if acknowledger.send((token, job)).is_err() {
                    unreachable!("the acknowledger listens as long as there are workers");
                }
            }
            (result, _) => job.end(result.map(drop)),
        }
    }

    /// Waits, when the only jobs left are in the stash. The wait ends when one of them is due, or a new job is
    /// submitted.
    fn wait(&mut self) {
        if let Err(failure) = self.stash.wait_while(|| self.submitted.is_empty()) {
            for job in self.stash.take_all() {
                job.end(Err(JobFailure::Engine(failure.clone().into())));
            }
        }
    }
}

/// Acknowledges transactions when they are durable, in the order in which they arrive. After a wait for one
/// transaction its whole epoch is durable.
fn acknowledge<P: Protocol>(database: &Database<P>, committed: &Receiver<CommittedJob<P>>) {
    for (token, job) in committed {
        let durable = database.wait_durable(token);
        job.end(durable.map_err(|failure| JobFailure::Engine(failure.into())));
    }
}
