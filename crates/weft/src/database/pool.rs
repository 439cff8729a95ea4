//! Pools: threads of the database's own, which run the transactions that other threads and tasks submit.
//!
//! A thread that calls [`Database::transact`] runs its transaction itself, and blocks while the transaction has to
//! wait. This is the shortest way, and the right one for as many threads as there are cores. But a server has more
//! clients than cores, and the threads of an executor must not block. A [`Pool`] has one thread per core. A transaction
//! that cannot run now is set aside in the thread's [`Stash`], and the thread goes on with other work. While a commit is
//! on its way to the disk, the thread goes on, too.
//!
//! ```text
//!   submit --> [ high   ] --> thread 0 <--> stash      weft-acknowledge (if commits wait for the disk)
//!   submit --> [ normal ] --> thread 1 <--> stash  --> waits until what was committed is durable
//!   submit --> [ low    ] --> urgent thread                |
//!      ^                                                   |
//!      +---------------- the submission's result <---------+
//! ```
//!
//! **Back-pressure.** Each procedure in the [queue](queue) belongs to a [`Submission`] that its submitter holds, and
//! leaves the queue with it. So the queue is never longer than what the program waits for, and [`Pool::submit`] need
//! not wait for room. A program that would rather refuse work asks [`Pool::try_submit`], which gives the procedure back
//! when the queue is full.

mod once;
mod queue;

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use queue::{Queue, Taken, Turn};

use crate::commit::{Dbx, Protocol};
use crate::database::once::{OnceRun, Results};
use crate::database::stash::Stash;
use crate::database::{Database, TransactionOptions};
use crate::error::{Error, Failure};
use crate::store::deadline::Deadline;
use crate::store::worker::contain;
use crate::transaction::Transaction;

pub use once::SubmitWith;
pub use queue::Priority;

/// Options of a [`Pool`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolOptions {
    /// How many threads run transactions. The default is one per core. If the protocol allows fewer workers, there
    /// are only as many threads as it allows.
    pub threads: usize,
    /// How many further threads run only transactions of [high priority](Priority::High), so that one of these need not
    /// wait for a long transaction to end. Default: 1. They sleep while there is no such transaction. One that sleeps
    /// also ends the submissions whose [deadlines](SubmitOptions::deadline) pass in the queue.
    pub urgent_threads: usize,
    /// How many procedures the queue holds before [`Pool::try_submit`] refuses. Default: 1024.
    pub queue: usize,
    /// How many procedures each thread can set aside. Default: 1024.
    pub stash: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        PoolOptions { threads, urgent_threads: 1, queue: 1024, stash: 1024 }
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

    /// Sets [`PoolOptions::urgent_threads`].
    pub fn urgent_threads(mut self, urgent_threads: usize) -> Self {
        self.urgent_threads = urgent_threads;
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

/// Options of one submission.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SubmitOptions {
    /// How soon the transaction runs. Default: [`Priority::Normal`].
    pub priority: Priority,
    /// How long after the call the transaction gives up, the time in the queue included. `None`, the default, sets no
    /// deadline. A transaction whose deadline passes in the queue is not run: the submission ends with
    /// [`Failure::DeadlineExceeded`] after 0 attempts. It ends at the deadline if one of the pool's threads has nothing
    /// else to do, and otherwise when a thread has ended its transaction. After the transaction has begun,
    /// [`TransactionOptions::deadline`] says when the deadline is checked.
    pub deadline: Option<Duration>,
    /// As [`TransactionOptions::retries_max`].
    pub retries_max: Option<u32>,
    /// A name for people, by which [`Pool::running`] and [`Failure::PoolStillRunning`] list the transaction. By default
    /// it is the name of the closure's type, which has the path of the function that submits it.
    pub label: Option<&'static str>,
}

impl SubmitOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`SubmitOptions::priority`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets [`SubmitOptions::deadline`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets [`SubmitOptions::retries_max`].
    pub fn retries_max(mut self, retries_max: u32) -> Self {
        self.retries_max = Some(retries_max);
        self
    }

    /// Sets [`SubmitOptions::label`].
    pub fn label(mut self, label: &'static str) -> Self {
        self.label = Some(label);
        self
    }
}

/// A pool of threads that run the transactions which other threads and tasks submit. A transaction that meets a split
/// record is set aside until it can run, and its thread goes on with other work.
///
/// Use a pool in asynchronous programs, and when there are more clients than cores; otherwise call
/// [`Database::transact`].
///
/// Dropping the pool [shuts it down](Pool::shutdown), and blocks until the transactions that have begun have ended. In
/// asynchronous code await the shutdown first.
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
    queue: Arc<Queue<Job<P>>>,
    /// How many procedures the queue holds before it is full.
    capacity: usize,
    /// The results that the database keeps, if it keeps them.
    results: Option<Arc<Results>>,
    threads: Vec<JoinHandle<()>>,
}

impl<P: Protocol> Database<P> {
    /// Starts a pool of threads for this database.
    ///
    /// # Errors
    /// [`Failure::Thread`] if the operating system cannot start a thread.
    pub fn pool(&self, options: &PoolOptions) -> Result<Pool<P>, Failure> {
        if self.inner().acknowledges_durable() {
            self.inner().start_acknowledger()?;
        }
        let queue = Arc::new(Queue::new());
        // If a thread cannot be started, dropping the pool ends those before it.
        let results = self.results().cloned();
        let mut pool = Pool { queue, capacity: options.queue, results, threads: Vec::new() };
        let threads = options.threads.clamp(1, P::WORKERS_MAX);
        let urgent_threads = options.urgent_threads.min(P::WORKERS_MAX - threads);
        let groups = [("", threads, Priority::Low), ("urgent-", urgent_threads, Priority::High)];
        for (group, threads, least) in groups {
            for number in 0..threads {
                let (stash, queue) = (self.stash(options.stash), Arc::clone(&pool.queue));
                let mut thread = PoolThread { stash, queue, least };
                let name = format!("weft-pool-{group}{number}");
                pool.threads.push(spawn(name, move || thread.work())?);
            }
        }
        Ok(pool)
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let thread = thread::Builder::new().name(name).spawn(body);
    thread.map_err(|error| Failure::Thread { message: error.to_string() })
}

impl<P: Protocol> Pool<P> {
    /// Submits `procedure`, which a thread of the pool runs as a transaction, as [`Database::transact`] does. Never
    /// blocks. The returned [`Submission`] is a future.
    pub fn submit<R, E, F>(&self, procedure: F) -> Submission<R, E>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static,
    {
        self.submit_with(&SubmitOptions::new(), procedure)
    }

    /// As [`Pool::submit`], with a priority, limits on time and retries, and a label, or
    /// [once](SubmitOptions::once) for a key.
    pub fn submit_with<R, E, F>(
        &self,
        options: &impl SubmitWith<P, R>,
        procedure: F,
    ) -> Submission<R, E>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static,
    {
        options.submit(self, procedure)
    }

    /// Submits a procedure at its turn. `name` is that of the user's procedure. If it runs `once` for a key, no thread takes
    /// it before it may run.
    fn submit_at<R, E>(
        &self,
        turn: Turn,
        options: &SubmitOptions,
        name: &'static str,
        once: Option<Arc<OnceRun>>,
        procedure: impl FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static,
    ) -> Submission<R, E>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let deadline = options.deadline.and_then(Deadline::after);
        let job = Job {
            procedure: Box::new(SubmittedProcedure { procedure, result: None, sender }),
            deadline,
            retries_max: options.retries_max,
            label: options.label.unwrap_or(name),
            once: once.clone(),
        };
        let ends_at = deadline.map(|deadline| deadline.at);
        let waits = once.as_ref().is_some_and(|once| !once.may_run());
        let label = job.label;
        let place = match self.queue.push(turn, label, ends_at, waits, job) {
            Ok(()) => Some(QueuePlace { queue: Arc::clone(&self.queue) as _, turn }),
            Err(job) => {
                job.end(Err(JobFailure::Engine(Failure::PoolShutDown.into())));
                None
            }
        };
        // Its turn may have come before it was in the queue.
        if waits && once.is_some_and(|once| once.may_run()) {
            self.queue.admit(turn);
        }
        Submission { outcome: Outcome::Unpolled(receiver), place }
    }

    /// As [`Pool::submit_with`], but refuses if as many procedures as the [options](PoolOptions::queue) say are in the
    /// queue. (A few more may be, if several threads submit at the same time.)
    ///
    /// # Errors
    /// Returns the procedure if the queue is full.
    pub fn try_submit<R, E, F>(
        &self,
        options: &impl SubmitWith<P, R>,
        procedure: F,
    ) -> Result<Submission<R, E>, F>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static,
    {
        match self.queued() >= self.capacity {
            true => Err(procedure),
            false => Ok(self.submit_with(options, procedure)),
        }
    }

    /// Returns how many procedures wait in the queue.
    pub fn queued(&self) -> usize {
        self.queue.length()
    }

    /// Returns the [labels](SubmitOptions::label) of the transactions that have begun and have not ended, the oldest
    /// submission first. They run, are set aside, or wait until they are durable.
    pub fn running(&self) -> Vec<&'static str> {
        self.queue.running()
    }

    /// Shuts the pool down. From this call on no transaction begins. The submissions in the queue, and later ones, end
    /// with [`Failure::PoolShutDown`], and their procedures are dropped without having run. Transactions that have begun
    /// run to their end, and are acknowledged.
    ///
    /// The returned future is ready when they have ended, or after `limit`. A transaction cannot be interrupted: one
    /// that goes on after that keeps its thread.
    pub fn shutdown(&self, limit: Duration) -> Shutdown {
        refuse(self.queue.shut_down());
        let (sender, receiver) = oneshot::channel();
        let queue = Arc::clone(&self.queue);
        let wait = move || {
            let running = queue.wait_until_ended(limit);
            let still_running =
                Failure::PoolStillRunning { waited: limit, running: running.clone() };
            // An error means that the future was dropped.
            let _ = sender.send(if running.is_empty() { Ok(()) } else { Err(still_running) });
        };
        let started = spawn("weft-pool-shutdown".to_owned(), wait);
        Shutdown { outcome: started.map(|_thread| Outcome::Unpolled(receiver)) }
    }
}

impl<P: Protocol> Drop for Pool<P> {
    fn drop(&mut self) {
        refuse(self.queue.shut_down());
        let this = thread::current().id();
        // A procedure may own the last handle of its pool. Then this is a thread of the pool, and cannot wait for itself.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != this) {
            // A panic of a procedure is passed on to the caller that submitted it. Any other panic was reported.
            let _ = thread.join();
        }
    }
}

/// Ends jobs that will not run.
fn refuse<P: Protocol>(jobs: Vec<Job<P>>) {
    for job in jobs {
        job.end(Err(JobFailure::Engine(Failure::PoolShutDown.into())));
    }
}

/// A submitted procedure, and its result when its transaction has ended. Await it, or call [`Submission::wait`].
///
/// If the submission is dropped before a thread of the pool has begun the transaction, the transaction is cancelled: it
/// leaves the queue, and the procedure is dropped without having run. A transaction that has begun runs to its end all
/// the same, and only its result is lost. So a timeout of your executor around a submission gives up the wait, and
/// cancels the transaction if it still can.
///
/// The result is there when the transaction has committed, or when it is durable, if commits are acknowledged when they
/// are durable. The procedure is dropped before that.
///
/// # Errors
/// Those of [`Database::transact_with`]; [`Failure::PoolShutDown`].
///
/// # Panics
/// The future panics if the procedure panicked, with what it panicked with.
#[derive(Debug)]
#[must_use = "dropping it cancels the transaction, unless it has begun"]
pub struct Submission<R, E = Error> {
    outcome: Outcome<thread::Result<Result<R, E>>>,
    /// The procedure's place in the queue, unless the result was received.
    place: Option<QueuePlace>,
}

impl<R, E> Submission<R, E> {
    /// Blocks until the transaction has ended, and returns its result. For callers without an executor. Do not call this
    /// inside a transaction.
    ///
    /// # Errors
    /// See [`Submission`].
    ///
    /// # Panics
    /// See [`Submission`].
    pub fn wait(mut self) -> Result<R, E> {
        let outcome = mem::replace(&mut self.outcome, Outcome::Received).wait();
        self.settle(outcome)
    }

    /// Returns whether the transaction has ended, so that [`Submission::wait`] would not block.
    pub fn has_ended(&self) -> bool {
        self.outcome.is_known()
    }

    /// Passes the outcome on to the caller. A panic is resumed.
    fn settle(&mut self, outcome: thread::Result<Result<R, E>>) -> Result<R, E> {
        self.place = None;
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<R, E> Future for Submission<R, E> {
    type Output = Result<R, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R, E>> {
        let outcome = ready!(self.outcome.poll(context));
        Poll::Ready(self.settle(outcome))
    }
}

impl<R, E> Drop for Submission<R, E> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take()
            && !self.has_ended()
        {
            place.queue.cancel(place.turn);
        }
    }
}

/// An outcome that another thread sends. Before it is polled for the first time, a caller can block on it without a
/// waker.
#[derive(Debug)]
enum Outcome<T> {
    Unpolled(oneshot::Receiver<T>),
    Polled(oneshot::AsyncReceiver<T>),
    Received,
}

/// Every procedure that is submitted, and every shutdown, has an outcome.
const SENT: &str = "every outcome is sent";

impl<T> Outcome<T> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<T> {
        let mut receiver = match mem::replace(self, Outcome::Received) {
            Outcome::Unpolled(receiver) => receiver.into_future(),
            Outcome::Polled(receiver) => receiver,
            Outcome::Received => panic!("a future was polled after it was ready"),
        };
        let polled = Pin::new(&mut receiver).poll(context);
        if polled.is_pending() {
            *self = Outcome::Polled(receiver);
        }
        polled.map(|received| received.expect(SENT))
    }

    fn wait(self) -> T {
        match self {
            Outcome::Unpolled(receiver) => receiver.recv().expect(SENT),
            Outcome::Polled(receiver) => pollster::block_on(receiver).expect(SENT),
            Outcome::Received => panic!("a caller waits for a future that was ready"),
        }
    }

    fn is_known(&self) -> bool {
        match self {
            Outcome::Unpolled(receiver) => receiver.has_message() || receiver.is_closed(),
            Outcome::Polled(receiver) => receiver.has_message() || receiver.is_closed(),
            Outcome::Received => true,
        }
    }
}

/// A place in a pool's queue.
struct QueuePlace {
    queue: Arc<dyn CancelsJobs>,
    turn: Turn,
}

impl std::fmt::Debug for QueuePlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.turn.fmt(formatter)
    }
}

/// A queue of a pool under any protocol.
trait CancelsJobs: Send + Sync {
    /// Drops a job that no thread has taken yet.
    fn cancel(&self, turn: Turn);
}

impl<P: Protocol> CancelsJobs for Queue<Job<P>> {
    fn cancel(&self, turn: Turn) {
        drop(Queue::cancel(self, turn));
    }
}

/// The future of [`Pool::shutdown`].
///
/// # Errors
/// [`Failure::PoolStillRunning`]; [`Failure::Thread`] if the operating system cannot start the thread that watches the
/// time.
#[derive(Debug)]
#[must_use = "the pool may still be running transactions"]
pub struct Shutdown {
    outcome: Result<Outcome<Result<(), Failure>>, Failure>,
}

impl Shutdown {
    /// Blocks until the pool is shut down. For callers without an executor.
    ///
    /// # Errors
    /// See [`Shutdown`].
    pub fn wait(self) -> Result<(), Failure> {
        self.outcome?.wait()
    }
}

impl Future for Shutdown {
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        match &mut self.outcome {
            Ok(outcome) => outcome.poll(context),
            Err(failure) => Poll::Ready(Err(failure.clone())),
        }
    }
}

/// A submitted procedure with its limits.
struct Job<P: Protocol> {
    procedure: Box<dyn Procedure<P>>,
    deadline: Option<Deadline>,
    retries_max: Option<u32>,
    label: &'static str,
    /// The run of its key, if the procedure runs once. Other procedures with the key wait until it is dropped.
    once: Option<Arc<OnceRun>>,
}

impl<P: Protocol> Job<P> {
    /// Sends the result to the submitter.
    fn end(self, ended: Result<(), JobFailure>) {
        // Runs code of the user's: of the result's types, and the waker of the task. A panic of it was reported, and is
        // not passed on to the pool's threads.
        contain(|| self.procedure.end(ended));
    }
}

/// A submitted procedure of any type, as a thread of the pool sees it.
trait Procedure<P: Protocol>: Send {
    /// Runs the procedure in a transaction.
    fn run(&mut self, tx: &Transaction<'_, P>) -> Result<(), JobFailure>;
    /// Sends the result to the caller that submitted the procedure.
    fn end(self: Box<Self>, ended: Result<(), JobFailure>);
}

/// Why a procedure has not committed.
enum JobFailure {
    /// The procedure returned an error of its own, or panicked. It has the error or the panic.
    Procedure,
    /// The engine returned this error.
    Engine(Error),
    /// Code of the rows' types panicked during the commit.
    Commit(Box<dyn Any + Send>),
}

impl From<Error> for JobFailure {
    fn from(error: Error) -> Self {
        JobFailure::Engine(error)
    }
}

struct SubmittedProcedure<F, R, E> {
    procedure: F,
    /// The result of the procedure's last run.
    result: Option<thread::Result<Result<R, E>>>,
    sender: oneshot::Sender<thread::Result<Result<R, E>>>,
}

impl<P, F, R, E> Procedure<P> for SubmittedProcedure<F, R, E>
where
    P: Protocol,
    R: Send + 'static,
    E: From<Error> + Send + 'static,
    F: FnMut(&Transaction<'_, P>) -> Result<R, E> + Send + 'static,
{
    fn run(&mut self, tx: &Transaction<'_, P>) -> Result<(), JobFailure> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.result = None;
            (self.procedure)(tx)
        }));
        let is_done = matches!(result, Ok(Ok(_)));
        self.result = Some(result);
        if is_done { Ok(()) } else { Err(JobFailure::Procedure) }
    }

    fn end(self: Box<Self>, ended: Result<(), JobFailure>) {
        let SubmittedProcedure { procedure, mut result, sender } = *self;
        let sent = match ended {
            Err(JobFailure::Engine(error)) => {
                catch_unwind(AssertUnwindSafe(|| Err(E::from(error))))
            }
            Err(JobFailure::Commit(panic)) => Err(panic),
            Ok(()) | Err(JobFailure::Procedure) => result.take().expect("the job was run"),
        };
        // A panic of either has no effect on the transaction, which has ended.
        contain(|| drop(procedure));
        contain(|| drop(result));
        // An error means that the submission was dropped: no caller waits for the result.
        let _ = sender.send(sent);
    }
}

/// One of a pool's threads.
struct PoolThread<P: Protocol> {
    /// Jobs that were set aside, with their numbers.
    stash: Stash<(u64, Job<P>), P>,
    queue: Arc<Queue<Job<P>>>,
    /// The lowest priority of the jobs that the thread takes.
    least: Priority,
}

impl<P: Protocol> PoolThread<P> {
    /// Runs jobs until the pool is shut down and no job is left. Jobs that were set aside come before new ones, as
    /// soon as they can run again.
    fn work(&mut self) {
        loop {
            if let Some((number, job)) = self.stash.take_due() {
                self.run(number, job);
                continue;
            }
            match self.queue.take(self.least, self.stash.is_empty()) {
                Taken::Job(number, job) => self.run(number, job),
                Taken::Nothing => self.wait(),
                Taken::ShutDown => return,
            }
        }
    }

    fn run(&mut self, number: u64, job: Job<P>) {
        let deadline = job.deadline;
        if let Some(Err(late)) = deadline.map(|deadline| deadline.check(0)) {
            return end(&self.queue, number, job, Err(Error::from(late).into()));
        }
        self.stash.options = TransactionOptions {
            retries_max: job.retries_max,
            deadline: deadline.map(|deadline| deadline.remaining()),
            label: Some(job.label),
            ..TransactionOptions::default()
        };
        let ended = self.stash.catch_transact((number, job), |tx, (_, job)| job.procedure.run(tx));
        let Some(((number, job), result)) = ended else { return };
        let result = result.unwrap_or_else(|panic| Err(JobFailure::Commit(panic)));
        if let (Some(once), Ok(_)) = (&job.once, &result) {
            once.commit(&self.stash.database);
        }
        let database = self.stash.database.inner();
        match result {
            Ok(((), token)) if database.acknowledges_durable() => {
                let queue = Arc::clone(&self.queue);
                database.when_durable(token, move |durable| {
                    let durable = durable.map_err(|failure| Error::from(failure).into());
                    end(&queue, number, job, durable);
                });
            }
            Ok(((), _)) => end(&self.queue, number, job, Ok(())),
            Err(mut failed) => {
                // The transaction counts its time from its beginning, and the submitter from the submission.
                if let JobFailure::Engine(Error::Failure(
                    Failure::DeadlineExceeded { deadline: limit, .. }
                    | Failure::WorkersBusy { deadline: limit, .. },
                )) = &mut failed
                    && let Some(deadline) = deadline
                {
                    *limit = deadline.limit;
                }
                end(&self.queue, number, job, Err(failed));
            }
        }
    }

    /// Waits, when the only jobs left are in the stash. The wait ends when one of them is due, or a new job is
    /// submitted.
    fn wait(&mut self) {
        if let Err(failure) = self.stash.wait_while(|| !self.queue.has_job(self.least)) {
            for (number, job) in self.stash.take_all() {
                end(&self.queue, number, job, Err(Error::from(failure.clone()).into()));
            }
        }
    }
}

/// Ends a job that a thread has taken.
fn end<P: Protocol>(
    queue: &Queue<Job<P>>,
    number: u64,
    job: Job<P>,
    ended: Result<(), JobFailure>,
) {
    job.end(ended);
    queue.end(number);
}
