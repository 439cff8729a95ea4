//! Stashes: a thread sets transactions aside that would have to wait, and goes on with others.
//!
//! Narula et al., *Phase Reconciliation for Contended In-Memory Transactions* (OSDI 2014), §5.1 and
//! §5.4: a transaction that meets a split record in a split phase is stashed, and runs again, before any
//! other, in the next joined phase; that lasts until every stash is empty.
//!
//! What is set aside is not the transaction, which is rolled back, but what it was asked to do: the
//! *request*. A stash belongs to whoever has requests, such as a worker of a [`Pool`](crate::Pool):
//!
//! ```text
//!   request ---> transact --> has ended
//!                 |    ^
//!     meets a     v    |  joined phase
//!     split     [ stash ]
//!     record
//! ```

use std::collections::VecDeque;

use crate::commit::CommitToken;
use crate::commit::Worker;
use crate::commit::{Dbx, Executor, Protocol, SplitsRecords};
use crate::database::{Database, Ended, TransactionOptions};
use crate::error::{Error, Failure};
use crate::transaction::Transaction;

/// Requests that a thread has set aside, because their transactions would have had to wait for the next
/// joined phase (see `Doppel` in `weft-protocols`). Under protocols without phases, none.
///
/// [`Database::transact`] waits with its thread until what it has to do can be done. A stash is for threads
/// that have more to do meanwhile: they take what is [due](Stash::take_due) first, and then what is new.
///
/// While a stash holds anything, a joined phase is not ended before it is empty, or before it has lasted as
/// long as a split phase: a thread that falls asleep with a stash delays others by no more than that.
///
/// ```
/// use std::collections::VecDeque;
/// use weft::{Database, Error, Record, column_of};
/// use weft_protocols::Doppel;
///
/// #[derive(Clone, Record)]
/// struct Page {
///     #[record(key)]
///     number: u64,
///     likes: u64,
/// }
///
/// /// What somebody asks for.
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
    database: Database<P>,
    /// Each with the number of the phase in which it was set aside, the oldest first.
    requests: VecDeque<(u64, T)>,
    capacity: usize,
    options: TransactionOptions,
    /// Whether the database has been told that it holds something.
    is_noted: bool,
}

impl<P: Protocol> Database<P> {
    /// A stash for as many requests as `capacity`. When it is full, transactions wait, and the split phase
    /// is ended before its time.
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
    /// Sets bounds for the transactions. They count from each time that one is run: neither the time in the
    /// stash nor being set aside is part of them.
    pub fn options(mut self, options: TransactionOptions) -> Self {
        self.options = options;
        self
    }

    /// Takes the oldest request that was set aside and can go on now. To be asked before anything new is
    /// begun.
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

    /// Runs `body` as a transaction, as [`Database::transact`] does, until it has ended: then the request is
    /// given back, with what came of it. Or until it meets a split record: then the request is set aside, and
    /// `None` is returned. (If the stash is full, it waits instead.)
    ///
    /// The errors are those of [`Database::transact`].
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
    #[inline(always)]
    #[allow(clippy::type_complexity, reason = "the request, and what transactions return")]
    pub fn transact_with_token<R, E: From<Error>>(
        &mut self,
        mut request: T,
        mut body: impl FnMut(&Transaction<'_, P>, &mut T) -> Result<R, E>,
    ) -> Option<(T, Result<(R, CommitToken), E>)> {
        let is_full = self.is_full();
        match self.run(is_full, |tx| body(tx, &mut request)) {
            Ok(result) => Some((request, result)),
            Err(refused_in) => {
                self.requests.push_back((refused_in, request));
                self.note(true);
                None
            }
        }
    }

    /// Runs a transaction to its end; `Err` with the number of the phase in which it was refused something,
    /// unless it `waits` then.
    #[inline(always)]
    fn run<R, E: From<Error>>(
        &self,
        waits: bool,
        mut body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<Result<(R, CommitToken), E>, u64> {
        let worker = match self.database.worker() {
            Ok(worker) => worker,
            Err(failure) => return Ok(Err(Error::from(failure).into())),
        };
        if !P::SPLITS || waits || worker.active.get() {
            return Ok(self.database.transact_with_token(&self.options, body));
        }
        let _setting_aside = SettingAside::begin(worker);
        match self.database.run_closure(worker, &self.options, true, &mut body) {
            Ended::With(result) => Ok(result),
            Ended::SetAside => {
                let splitting = worker.executor().splitting();
                Err(splitting.map_or(0, |splitting| splitting.take_refused()))
            }
        }
    }

    /// Waits until something is due; not at all if nothing was set aside. The split phase is ended soon.
    ///
    /// # Errors
    /// [`Failure::Closed`], [`Failure::TooManyWorkers`], [`Failure::SingleThreaded`];
    /// [`Failure::NestedTransaction`] within a transaction.
    pub fn wait(&self) -> Result<(), Failure> {
        self.wait_while(|| true)
    }

    /// As [`Stash::wait`], but as long as `has_nothing_else` only, which is asked over and over: whether this
    /// thread has nothing else to do.
    ///
    /// # Errors
    /// As [`Stash::wait`].
    pub fn wait_while(&self, has_nothing_else: impl Fn() -> bool) -> Result<(), Failure> {
        let Some(&(refused_in, _)) = self.requests.front() else { return Ok(()) };
        let worker = self.database.worker()?;
        if worker.active.get() {
            return Err(Failure::NestedTransaction);
        }
        let inner = self.database.inner();
        let keep_waiting = || {
            inner.shared.check_open().map_err(Some)?;
            if has_nothing_else() { Ok(()) } else { Err(None) }
        };
        match P::wait_for_whole_rows(inner, worker, refused_in, keep_waiting) {
            Ok(()) | Err(None) => Ok(()),
            Err(Some(failure)) => Err(failure),
        }
    }

    /// How many requests were set aside.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether none is set aside.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether no more can be set aside.
    pub fn is_full(&self) -> bool {
        self.requests.len() >= self.capacity
    }

    /// Takes out all that was set aside, the oldest first, due or not.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> {
        self.note(false);
        std::mem::take(&mut self.requests).into_iter().map(|(_, request)| request)
    }

    /// Tells the database whether something is set aside.
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

/// While a worker's transactions are set aside if they are refused something.
struct SettingAside<'w, P: Protocol>(&'w Worker<P>);

impl<'w, P: Protocol> SettingAside<'w, P> {
    #[inline(always)]
    fn begin(worker: &'w Worker<P>) -> Self {
        if let Some(splitting) = worker.executor().splitting() {
            splitting.set_aside(true);
        }
        SettingAside(worker)
    }
}

impl<P: Protocol> Drop for SettingAside<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(splitting) = self.0.executor().splitting() {
            splitting.set_aside(false);
        }
    }
}
