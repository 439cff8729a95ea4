//! Stashes: requests that a thread sets aside because their transactions would have to wait, while it runs others.
//!
//! Narula et al., *Phase Reconciliation for Contended In-Memory Transactions* (OSDI 2014), §5.1 and §5.4: a
//! transaction that meets a split record in a split phase is stashed. It runs again in the next joined phase,
//! before any other, and that phase lasts until every stash is empty.
//!
//! The transaction itself is rolled back. What is set aside is the *request*: the work that the transaction was
//! asked to do. A stash belongs to a thread that has requests, such as a worker of a [`Pool`](crate::Pool):
//!
//! ```text
//!   request ---> transact --> has ended
//!                 |    ^
//!     meets a     v    |  joined phase
//!     split     [ stash ]
//!     record
//! ```

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::commit::CommitToken;
use crate::commit::Worker;
use crate::commit::{Dbx, Executor, Protocol, SplitsRecords, Unstable};
use crate::database::run::{RunResult, Strategy};
use crate::database::{Database, TransactionOptions};
use crate::error::{Error, Failure};
use crate::store::observer::Label;
use crate::transaction::Transaction;

/// Requests that a thread has set aside until the next joined phase, because their transactions met a split record
/// (see `Doppel` in `weft-protocols`). Under a protocol without phases it stays empty.
///
/// [`Database::transact`] blocks its thread until the transaction can run. A stash is for threads that have other
/// work to do in this time. They run the requests that are [due](Stash::take_due) first, and then new ones.
///
/// While a stash holds requests, a joined phase does not end, unless it has lasted as long as a split phase. So a
/// thread that goes to sleep with requests in its stash does not delay other threads by more than that.
///
/// ```
/// use std::collections::VecDeque;
/// use weft::{Database, Error, Record, column_of};
/// use weft_protocols::Doppel;
///
/// #[derive(Clone, Copy, Record)]
/// struct Page {
///     #[record(key)]
///     number: u64,
///     likes: u64,
/// }
///
/// /// What a client asks for.
/// enum Request {
///     Like(u64),
///     Show(u64),
/// }
///
/// let database = Database::builder().protocol::<Doppel>().table::<Page>().open()?;
/// let pages = database.table::<Page>()?;
/// database.transact(|tx| tx.insert(&pages, Page { number: 7, likes: 0 }))?;
///
/// let mut new = VecDeque::from([Request::Like(7), Request::Show(7), Request::Like(7)]);
/// let mut stash = database.stash(100);
/// loop {
///     let Some(request) = stash.take_due().or_else(|| new.pop_front()) else {
///         if stash.is_empty() {
///             break;
///         }
///         stash.wait()?;
///         continue;
///     };
///     let ended = stash.transact(request, |tx, request| match request {
///         Request::Like(page) => tx.add(&pages, page, column_of!(Page.likes), 1).map(|()| None),
///         Request::Show(page) => Ok(tx.get(&pages, page)?.map(|page| page.likes)),
///     });
///     match ended {
///         Some((_request, Ok(likes))) => assert!(likes.is_none_or(|likes| likes <= 2)),
///         Some((_request, Err(error))) => return Err(error),
///         None => {} // Set aside.
///     }
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Stash<T, P: Protocol = Dbx> {
    pub(super) database: Database<P>,
    /// Each request with the number of the phase in which it was set aside, the oldest first.
    requests: VecDeque<(u64, T)>,
    capacity: usize,
    pub(super) options: TransactionOptions,
    /// Whether this stash has told the database that it holds a request.
    is_noted: bool,
}

impl<P: Protocol> Database<P> {
    /// Returns a stash for at most `capacity` requests. When it is full, transactions block instead of being set
    /// aside, and the split phase ends early.
    pub fn stash<T>(&self, capacity: usize) -> Stash<T, P> {
        Stash {
            database: self.clone(),
            requests: VecDeque::new(),
            capacity,
            options: TransactionOptions::new(),
            is_noted: false,
        }
    }
}

impl<T, P: Protocol> Stash<T, P> {
    /// Sets limits for the transactions. Each run of a transaction counts from zero: the time in the stash does not
    /// count, and being set aside is not a retry.
    pub fn options(mut self, options: TransactionOptions) -> Self {
        self.options = options;
        self
    }

    /// Takes the oldest request that was set aside, if it can run now. Call this before you begin anything new.
    #[inline]
    pub fn take_due(&mut self) -> Option<T> {
        match self.requests.front() {
            Some(&(refused_in, _)) => {
                let is_due = P::has_whole_rows_since(&self.database.inner().protocol, refused_in);
                if is_due { self.requests.pop_front().map(|(_, request)| request) } else { None }
            }
            None => {
                self.note(false);
                None
            }
        }
    }

    /// Runs `body` as a transaction, as [`Database::transact`] does. When the transaction has ended, returns the
    /// request and the result. When it meets a split record, sets the request aside and returns `None`. If the
    /// stash is full, it waits instead.
    ///
    /// The errors are those of [`Database::transact`].
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[track_caller]
    pub fn transact<R, E: From<Error>>(
        &mut self,
        request: T,
        body: impl FnMut(&Transaction<'_, P>, &mut T) -> Result<R, E>,
    ) -> Option<(T, Result<R, E>)> {
        let (request, result) = self.transact_with_token(request, body)?;
        let acknowledged = result.and_then(|(value, token)| {
            self.database.acknowledge(token).map_err(Error::from)?;
            Ok(value)
        });
        Some((request, acknowledged))
    }

    /// As [`Stash::transact`], but returns when the transaction has committed in memory, as
    /// [`Database::transact_with_token`].
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[track_caller]
    #[allow(clippy::type_complexity, reason = "the request, and what transactions return")]
    pub fn transact_with_token<R, E: From<Error>>(
        &mut self,
        mut request: T,
        mut body: impl FnMut(&Transaction<'_, P>, &mut T) -> Result<R, E>,
    ) -> Option<(T, Result<(R, CommitToken), E>)> {
        let is_full = self.is_full();
        match self.run(is_full, |tx| body(tx, &mut request)) {
            Ok(result) => Some((request, result)),
            Err(refused_in) => self.set_aside(refused_in, request),
        }
    }

    /// As [`Stash::transact_with_token`], but a panic is a result, so that the request is not lost.
    #[allow(clippy::type_complexity, reason = "the request, and what transactions return")]
    pub(super) fn catch_transact<R, E: From<Error>>(
        &mut self,
        mut request: T,
        mut body: impl FnMut(&Transaction<'_, P>, &mut T) -> Result<R, E>,
    ) -> Option<(T, thread::Result<Result<(R, CommitToken), E>>)> {
        let is_full = self.is_full();
        let run = || self.run(is_full, |tx| body(tx, &mut request));
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(result)) => Some((request, Ok(result))),
            Ok(Err(refused_in)) => self.set_aside(refused_in, request),
            Err(panic) => Some((request, Err(panic))),
        }
    }

    /// Keeps a request that was refused in this phase.
    fn set_aside<R>(&mut self, refused_in: u64, request: T) -> Option<R> {
        self.requests.push_back((refused_in, request));
        self.note(true);
        None
    }

    /// Runs a transaction until it has ended. If it is refused a split record, returns `Err` with the number of the
    /// phase in which that happened, unless it `waits`: then it waits until it can run.
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[track_caller]
    fn run<R, E: From<Error>>(
        &self,
        waits: bool,
        mut body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<Result<(R, CommitToken), E>, u64> {
        // If phases begin while the transaction runs, and it is refused a record in the first split phase, it waits as if the
        // stash were full.
        if waits || !self.sets_aside() {
            return Ok(self.database.transact_with_token(&self.options, body));
        }
        self.run_in_phases(&mut body)
    }

    /// Runs a transaction until it has ended, or is refused a split record, as [`Stash::run`].
    #[inline(never)]
    #[track_caller]
    fn run_in_phases<R, E: From<Error>>(
        &self,
        mut body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<Result<(R, CommitToken), E>, u64> {
        // The refusal is the worker's, so the worker is claimed until the refusal is taken.
        let claim = match self.database.claim_worker(&self.options, Unstable::ENGINE) {
            Ok(claim) => claim,
            Err(failure) => return Ok(Err(Error::from(failure).into())),
        };
        let worker = claim.worker();
        if worker.active.get() {
            return Ok(self.database.transact_with_token(&self.options, body));
        }
        let _setting_aside = SetAsideGuard::begin(worker);
        let strategy = Strategy { sets_aside: true, ..Strategy::default() };
        let strategy = (strategy, Label::here());
        match self.database.run_closure(&self.options, strategy, &mut body) {
            RunResult::Ended(result) => Ok(result),
            RunResult::SetAside => {
                let splitting = worker.executor().splitting();
                Err(splitting.map_or(0, |splitting| splitting.take_refused()))
            }
        }
    }

    /// Waits until a request is due. Returns at once if the stash is empty. The wait makes the split phase end
    /// soon.
    ///
    /// # Errors
    /// [`Failure::Closed`], [`Failure::SingleThreaded`]; [`Failure::NestedTransaction`] inside a transaction.
    pub fn wait(&self) -> Result<(), Failure> {
        self.wait_while(|| true)
    }

    /// As [`Stash::wait`], but stops waiting when `has_nothing_else` returns `false`. It is called repeatedly, and
    /// says whether this thread has nothing else to do. It cannot run transactions.
    ///
    /// # Errors
    /// As [`Stash::wait`].
    pub fn wait_while(&self, has_nothing_else: impl Fn() -> bool) -> Result<(), Failure> {
        let Some(&(refused_in, _)) = self.requests.front() else { return Ok(()) };
        let claim = self.database.claim(None)?;
        let worker = claim.worker();
        if worker.active.get() {
            return Err(Failure::NestedTransaction);
        }
        let inner = self.database.inner();
        let keep_waiting = || {
            inner.shared.check_open().map_err(Some)?;
            // The worker belongs to the protocol as long as it waits.
            if worker.memory.in_user_code(&has_nothing_else) { Ok(()) } else { Err(None) }
        };
        match P::wait_for_whole_rows(inner, worker, refused_in, keep_waiting) {
            Ok(()) | Err(None) => Ok(()),
            Err(Some(failure)) => Err(failure),
        }
    }

    /// Returns how many requests are set aside.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether no request is set aside.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns whether no further request can be set aside.
    pub fn is_full(&self) -> bool {
        self.requests.len() >= self.capacity
    }

    /// Returns whether a transaction that begins now can be set aside. It cannot if the protocol never splits records, nor
    /// as long as there are no phases.
    #[inline(always)]
    pub fn sets_aside(&self) -> bool {
        P::SPLITS && P::has_work_between(&self.database.engine().protocol)
    }

    /// Removes all requests, the oldest first, whether they are due or not.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> {
        self.note(false);
        std::mem::take(&mut self.requests).into_iter().map(|(_, request)| request)
    }

    /// Tells the database whether this stash holds a request, if that has changed.
    #[inline]
    fn note(&mut self, is_holding: bool) {
        if self.is_noted != is_holding {
            self.is_noted = is_holding;
            P::note_stash(&self.database.inner().protocol, is_holding);
        }
    }
}

impl<T, P: Protocol> Drop for Stash<T, P> {
    fn drop(&mut self) {
        self.note(false);
    }
}

/// As long as this lives, a worker's transactions end when they are refused a split record.
struct SetAsideGuard<'w, P: Protocol>(&'w Worker<P>);

impl<'w, P: Protocol> SetAsideGuard<'w, P> {
    #[inline(always)]
    fn begin(worker: &'w Worker<P>) -> Self {
        if let Some(splitting) = worker.executor().splitting() {
            splitting.set_aside(true);
        }
        SetAsideGuard(worker)
    }
}

impl<P: Protocol> Drop for SetAsideGuard<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(splitting) = self.0.executor().splitting() {
            splitting.set_aside(false);
        }
    }
}
