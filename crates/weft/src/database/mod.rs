//! Databases: opening a database, finding its tables, and running transactions on it.

mod background;
mod builder;
mod claims;
mod clock;
pub mod expiry;
mod load;
mod log_worker;
pub mod metrics;
pub mod once;
pub mod pool;
#[doc(hidden)]
pub mod run;
pub mod snapshots;
pub mod stash;
pub mod storage;
mod stored;
mod versions;

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use weft_htm::Backend;
use weft_htm::word::{Ordering, yield_now};

use crate::commit::{Claim, CommitToken, Dbx, Engine, Protocol, Unstable, Worker, Workers};
use crate::error::{Conflict, Error, Failure};
#[cfg(feature = "history")]
use crate::history::History;
use crate::row::schema::Record;
use crate::snapshot::{SnapshotHome, SnapshotSource};
use crate::store::deadline::Deadline;
use crate::store::garbage::RetiredItem;
use crate::store::observer::Label;
use crate::store::retention::RetainedItem;
use crate::store::table::Table;
use crate::store::worker::{CLOSED, WorkerMemory};
use crate::sync::clock::Ticker;
use crate::sync::reclaim::OFFLINE;
use crate::transaction::Transaction;

pub use builder::{Builder, WORKERS_MAX_DEFAULT};
pub use clock::ManualClock;
use expiry::Expiry;
use metrics::{IndexMemoryMetrics, Metrics};
use once::{Results, TransactWith};
use storage::Storage;
use stored::{AnyTable, find_table};
pub use versions::Migration;

/// An in-memory database that runs its transactions under the concurrency-control protocol `P`.
///
/// A `Database` is a handle: its clones refer to the same database. When the last handle is dropped, the database
/// is dropped too, with everything in it. Databases are independent of each other, and a process may have several.
///
/// # Starvation
/// Every transaction gets through in the end. [`Database::transact`] runs a transaction again after a conflict, and
/// three measures make sure that it commits at some point:
///
/// - `transact` waits before each attempt, for a random time that grows.
/// - Where a protocol has locks to wait for, the older transaction is preferred.
/// - A transaction that was aborted a hundred times, or again and again for 100 ms
///   ([`TransactionOptions::starves_after`]), closes a turnstile: no other transaction begins until it has ended.
///   [`Metrics::turnstile_closings`] counts how often this happened. If it happens often, too many
///   transactions want one row.
///
/// So a transaction must not wait for another thread's transaction on the same database. A retry loop of your own
/// around [`Database::begin`] waits at a closed turnstile, but it cannot close it.
///
/// ```
/// use weft::{Database, Error, Record};
///
/// #[derive(Clone, Record)]
/// #[record(table = "counters")]
/// struct Counter {
///     #[record(key)]
///     name: String,
///     value: i64,
/// }
///
/// let database = Database::builder().table::<Counter>().open()?;
/// let counters = database.table::<Counter>()?;
/// let value = database.transact(|tx| {
///     tx.insert(&counters, Counter { name: "visits".into(), value: 41 })?;
///     tx.update(&counters, "visits", |counter| {
///         counter.value += 1;
///         counter.value
///     })
/// })?;
/// assert_eq!(value, Some(42));
/// # Ok::<(), Error>(())
/// ```
pub struct Database<P: Protocol = Dbx> {
    /// Shared by the handles of the database's users. The handle of an automatic checkpoint does not have it.
    /// Declared before `inner`, so that the database still exists when the last user handle is dropped.
    user: Option<Arc<UserHandles<P>>>,
    inner: Arc<Inner<P>>,
}

/// Dropped with the last handle that a user has of a database. This ends the run immediately, even if a checkpoint
/// is being written.
struct UserHandles<P: Protocol>(Weak<Inner<P>>);

impl<P: Protocol> Drop for UserHandles<P> {
    fn drop(&mut self) {
        let Some(inner) = self.0.upgrade() else { return };
        inner.expiry.stop();
        if let Some(storage) = inner.storage.get() {
            // There is no caller left to return an error to. Commits that were acknowledged as durable are durable.
            let _ = storage.end(None);
            storage.unlock();
        }
    }
}

impl<P: Protocol> Clone for Database<P> {
    fn clone(&self) -> Self {
        Database { user: self.user.clone(), inner: Arc::clone(&self.inner) }
    }
}

impl<P: Protocol> std::fmt::Debug for Database<P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Database").field("protocol", &P::NAME).finish_non_exhaustive()
    }
}

/// The state that the handles of a database share.
pub struct Inner<P: Protocol> {
    /// The shared state itself, for the threads that remember a worker.
    this: Weak<Inner<P>>,
    engine: Engine<P>,
    workers: Workers<P>,
    /// Ordered by type, so that a run that is repeated frees its memory in the same order.
    tables: BTreeMap<&'static str, Arc<dyn AnyTable>>,
    /// Number of indexes, primary and secondary, of all tables.
    indexes: usize,
    /// Ticks the clock, if no log does.
    ticker: Option<Ticker>,
    /// The directory, if the database has one, once it is open.
    storage: OnceLock<Storage>,
    /// Removes rows that have expired.
    expiry: Expiry<P>,
    /// The results of transactions that run once, if the database keeps them.
    results: OnceLock<Arc<Results>>,
}

impl<P: Protocol> Deref for Inner<P> {
    type Target = Engine<P>;

    #[inline(always)]
    fn deref(&self) -> &Engine<P> {
        &self.engine
    }
}

impl<P: Protocol> Drop for Inner<P> {
    fn drop(&mut self) {
        self.ticker = None;
        self.expiry.stop();
        // Garbage first: the rows in it are no longer in any index. Then the indexes, with all other rows. No
        // handle is left through which the rows' `Drop`s could use the database.
        let memory = WorkerMemory::new(Arc::clone(&self.shared), 0);
        memory.drop_immediately();
        let left = self.shared.take_orphans();
        let mut kept = self.shared.retention.take_all();
        let workers = self.workers.take_all().flat_map(|worker| {
            kept.extend(worker.memory.take_retained());
            for value in worker.memory.take_discarded() {
                memory.drop_discarded(value);
            }
            worker.memory.take_garbage()
        });
        for entry in left.into_iter().chain(workers).flat_map(|batch| batch.retired) {
            // SAFETY: no transaction is left that could reach anything.
            unsafe { drop_retired(entry, &memory) };
        }
        for entry in kept {
            // Deleted records are still in their indexes, so `tear_down` drops their rows.
            // SAFETY: no transaction and no snapshot is left that could reach the row, and the owner of an entry owns
            // its row. Records are freed after this.
            unsafe {
                match entry.item {
                    RetainedItem::Version(row) => {
                        let inline = entry.table.is_inline(entry.record, row);
                        memory.drop_row(row, entry.table, inline);
                    }
                    RetainedItem::Place(row) => memory.drop_row(row, entry.table, false),
                    RetainedItem::DeletedRecord(_) => {}
                }
            }
        }
        for table in self.tables.values() {
            // SAFETY: the last handle is gone, and a transaction borrows a handle.
            unsafe { table.tear_down(&memory) };
        }
    }
}

/// Drops what a retired row owns, when the database is being dropped.
///
/// # Safety
/// No thread can reach the entry any more.
unsafe fn drop_retired(entry: RetiredItem, memory: &WorkerMemory) {
    // SAFETY: by this function's contract.
    unsafe {
        match entry {
            RetiredItem::Row(row, table) => memory.drop_row(row, table, false),
            RetiredItem::Record(record, table) => table.drop_newest(record, memory),
            RetiredItem::InlineSlot(record, table) => memory.give_up_slot(table, record),
            RetiredItem::Large(block, layout) => {
                crate::store::record::arena::free_huge(block, *layout)
            }
            // Blocks lie in chunks, which are freed as a whole. A deleted record is still in its index.
            RetiredItem::Block(..) | RetiredItem::Deleted(_) => {}
        }
    }
}

/// Options of a transaction: limits on retries and time, and a label. [`TransactionOptions::once`] adds a key.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// The largest number of times that a transaction is run again after a conflict. `None`, the default, sets no
    /// limit. (Repairs, under `htcc`, are not counted.)
    pub retries_max: Option<u32>,
    /// How long after the call the transaction gives up. `None`, the default, sets no deadline. The deadline is
    /// checked between attempts, inside the closure once in several operations, and just before the commit. A closure
    /// that no longer calls the database cannot be interrupted.
    pub deadline: Option<Duration>,
    /// How long the transaction lets itself be aborted before it holds all others [back](Database#starvation). The time
    /// counts from the first conflict. `None`, the default, is 100 ms.
    pub starves_after: Option<Duration>,
    /// What the transaction does, as [`Metrics::oldest_transaction`] and failures show it. `None` is the default.
    pub label: Option<&'static str>,
}

impl TransactionOptions {
    /// Returns options without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`TransactionOptions::retries_max`].
    pub fn retries_max(mut self, retries_max: u32) -> Self {
        self.retries_max = Some(retries_max);
        self
    }

    /// Sets [`TransactionOptions::deadline`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets [`TransactionOptions::starves_after`].
    pub fn starves_after(mut self, time: Duration) -> Self {
        self.starves_after = Some(time);
        self
    }

    /// Sets [`TransactionOptions::label`].
    pub fn label(mut self, label: &'static str) -> Self {
        self.label = Some(label);
        self
    }
}

impl Database {
    /// Returns a builder, which opens a database. The protocol is [`Dbx`] unless [`Builder::protocol`] chooses
    /// another one.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<P: Protocol> Database<P> {
    /// Returns the table of row type `T`.
    ///
    /// # Errors
    /// [`Failure::UnknownTable`] if the database was opened without this table; [`Failure::Thread`] if the operating
    /// system cannot start the thread that removes rows that have expired.
    pub fn table<T: Record>(&self) -> Result<Table<T>, Failure> {
        self.table_named(T::TABLE)
    }

    /// Returns the table of row type `T` that was added [under this name](Builder::table_named).
    ///
    /// # Errors
    /// As [`Database::table`].
    pub fn table_named<T: Record>(&self, name: &str) -> Result<Table<T>, Failure> {
        let table = find_table::<T>(&self.inner.tables, name)?;
        if const { T::EXPIRY.is_some() } {
            self.remove_in_background(&table)?;
        }
        Ok(table)
    }

    /// Returns an internal handle, not counted among the user's handles.
    pub(crate) fn of(inner: Arc<Inner<P>>) -> Self {
        Database { user: None, inner }
    }

    /// Runs `body` as a transaction until it commits, and returns what `body` returned.
    ///
    /// When the transaction conflicts with another one, it is rolled back, and `body` runs again after a random
    /// wait. The longest possible wait doubles with each attempt, up to a bound. `transact` retries until the
    /// transaction commits (see [starvation](#starvation)).
    ///
    /// When `body` returns an error of its own, or panics, the transaction is rolled back, and the error or the
    /// panic is passed on to the caller. Before that, `transact` validates what `body` has read. If something has
    /// changed since, this counts as a conflict, and `body` runs again. So every error that you get follows from a
    /// consistent state.
    ///
    /// `body` may run several times, so it must be safe to repeat what it does outside the database.
    ///
    /// A transaction needs one of the database's [workers](Builder::workers_max), which it has from its beginning to
    /// its end. If all of them are busy, `transact` waits. The thread that has waited longest gets the next worker.
    ///
    /// # Errors
    /// - The errors of `body`.
    /// - [`Failure::NestedTransaction`] inside another transaction of this thread.
    /// - [`Failure::SingleThreaded`], [`Failure::Loading`], [`Failure::Closed`].
    /// - [`Failure::ThreadEnding`] in a destructor that runs at the end of the thread.
    /// - [`Failure::Storage`] if the transaction cannot be made durable.
    #[track_caller]
    pub fn transact<R, E: From<Error>>(
        &self,
        body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.transact_with(&TransactionOptions::default(), body)
    }

    /// As [`Database::transact`], with limits on retries and time, or [once](TransactionOptions::once) for a key.
    ///
    /// # Errors
    /// Those of [`Database::transact`]; also [`Failure::RetriesExhausted`], [`Failure::DeadlineExceeded`],
    /// [`Failure::WorkersBusy`]; and those of [`TransactionOptions::once`].
    #[track_caller]
    pub fn transact_with<R, E: From<Error>>(
        &self,
        options: &impl TransactWith<P, R>,
        body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (result, token) = self.transact_with_token(options, body)?;
        self.acknowledge(token).map_err(Error::from)?;
        Ok(result)
    }

    /// Waits until the transaction may be acknowledged.
    #[doc(hidden)]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn acknowledge(&self, token: CommitToken) -> Result<(), Failure> {
        self.inner.acknowledge(|| self.claimed_worker(), token)
    }

    /// As [`Database::transact_with`], but returns when the transaction has committed in memory, whatever the
    /// database's [options](crate::DurabilityOptions::acknowledge) say. Also returns a token, which
    /// [`Database::wait_durable`] takes to wait until the transaction is durable.
    ///
    /// # Errors
    /// As [`Database::transact_with`].
    #[inline(always)]
    #[track_caller]
    pub fn transact_with_token<R, E: From<Error>>(
        &self,
        options: &impl TransactWith<P, R>,
        body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<(R, CommitToken), E> {
        options.run(self, body)
    }

    /// Begins a transaction, which the caller [commits](Transaction::commit). Dropping it rolls it back. Use this
    /// to write your own retry loop; otherwise use [`Database::transact`].
    ///
    /// # Errors
    /// [`Failure::NestedTransaction`], [`Failure::SingleThreaded`], [`Failure::Loading`], [`Failure::Closed`],
    /// [`Failure::ThreadEnding`].
    #[track_caller]
    pub fn begin(&self) -> Result<Transaction<'_, P>, Failure> {
        let claim = self.claim(None)?;
        let worker = claim.worker();
        if !worker.active.get() {
            self.inner.shared.turnstile.pass(false, &mut || self.check_wait(None, 0))?;
            P::between_transactions(&self.inner.engine, worker, || self.check_wait(None, 0))?;
        }
        let transaction = Transaction::begin(self.engine(), worker, 0, None, Unstable::ENGINE)?;
        if let Some(observed) = worker.memory.observed() {
            observed.attempt.set(0);
            observed.begin(&Label::here());
        }
        Ok(transaction.with_claim(claim))
    }

    /// Returns an error if a transaction that waits must stop waiting: the database is not open, or the deadline
    /// has passed.
    pub(crate) fn check_wait(
        &self,
        deadline: Option<&Deadline>,
        attempts: u32,
    ) -> Result<(), Failure> {
        self.inner.shared.check_open()?;
        deadline.map_or(Ok(()), |deadline| deadline.check(attempts))
    }

    /// Closes the database: no transaction begins any more, on any handle.
    ///
    /// Returns when the running transactions have ended and, if the database has a directory, all commits are
    /// durable. Also waits for a checkpoint, a backup or a load. If a transaction was leaked with
    /// [`std::mem::forget`], this never returns, but [`Database::close_within`] does.
    ///
    /// A row type's own code may call this in one place: the `drop` of a row runs outside any transaction, and can
    /// close the database. Other code of a row type runs inside a transaction, a checkpoint, a backup or a load,
    /// and would wait for itself. It gets an error, and the database stays open.
    ///
    /// # Errors
    /// - [`Failure::NestedTransaction`] if this thread is in a transaction.
    /// - [`Failure::NestedCheckpoint`] if this thread is in a checkpoint, a backup or a load.
    /// - [`Failure::Storage`] if the last commits could not be made durable.
    pub fn close(&self) -> Result<(), Failure> {
        self.close_by(None)
    }

    /// As [`Database::close`], but waits for at most `limit` for running transactions, checkpoints, backups and
    /// loads. So it returns by then even if code of a row type blocks inside one of them.
    ///
    /// # Errors
    /// Those of [`Database::close`]; [`Failure::StillRunning`] if one of them is still running after `limit`. Even
    /// then no transaction begins any more. Call this again to finish closing.
    pub fn close_within(&self, limit: Duration) -> Result<(), Failure> {
        self.close_by(Deadline::after(limit))
    }

    fn close_by(&self, deadline: Option<Deadline>) -> Result<(), Failure> {
        if self.claimed_worker().is_some_and(|worker| worker.active.get()) {
            return Err(Failure::NestedTransaction);
        }
        if let Some(storage) = self.inner.storage.get() {
            storage.check_user_code()?;
        }
        self.inner.shared.admission.store(CLOSED, Ordering::SeqCst);
        // The threads that wait for a worker stop waiting.
        self.inner.shared.waiting.wake_all();
        self.inner.expiry.stop_soon();
        // A transaction that is pinned from now on sees the flag, and does not begin. Wait for those pinned before.
        while self.inner.shared.grace.horizon() != OFFLINE {
            if let Some(deadline) = deadline
                && deadline.has_passed()
            {
                return Err(Failure::StillRunning { waited: deadline.limit });
            }
            yield_now();
        }
        match self.inner.storage.get() {
            Some(storage) => storage.end(deadline),
            None => Ok(()),
        }
    }

    /// Takes the history that was recorded since the database was opened, or since the last history was taken.
    ///
    /// Call this when no transaction runs. A transaction that has not ended is not part of the history, but what
    /// others have read of it is. Each history is independent of the others: what was written before it began is
    /// version 0.
    ///
    /// # Panics
    /// If the database was opened without [`Builder::record_history`].
    #[cfg(feature = "history")]
    pub fn take_history(&self) -> History {
        let recording = self.inner.shared.recording.as_ref();
        recording.expect("the database was opened with record_history(true)").take()
    }

    /// Returns counters of what the database has done so far, and sizes of what it holds.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::gather(&self.inner.shared);
        let storage = self.inner.storage.get();
        metrics.log = self.log_metrics();
        metrics.checkpoints = storage.map(Storage::checkpoint_metrics);
        let mut tables: Vec<_> = self.inner.tables.values().collect();
        tables.sort_unstable_by_key(|table| table.number());
        let by_index = &self.inner.shared.by_index;
        for core in tables.iter().flat_map(|table| table.cores()) {
            metrics.memory.indexes.push(IndexMemoryMetrics::of(core, by_index.of(core.number)));
        }
        metrics.expiry = self.inner.expiry.metrics(&self.inner.shared);
        metrics.phases = P::phase_metrics(&self.inner.protocol);
        metrics
    }

    /// Returns the part of the [metrics](Database::metrics) that is about the log, which costs little. `None` if there is no
    /// log.
    pub fn log_metrics(&self) -> Option<crate::durability::LogMetrics> {
        self.inner.storage.get().and_then(Storage::log_metrics)
    }

    /// Returns the protocol's name.
    pub fn protocol_name(&self) -> &'static str {
        P::NAME
    }

    /// Returns the HTM backend that was chosen when the database was opened.
    pub fn htm_backend(&self) -> Backend {
        self.inner.shared.htm.backend()
    }

    /// Returns the database as a snapshot holds it.
    fn home(&self) -> SnapshotHome {
        let user = self.user.as_ref().map(|user| Arc::clone(user) as Arc<dyn Any + Send + Sync>);
        SnapshotHome { _user: user, source: Arc::clone(&self.inner) as Arc<dyn SnapshotSource> }
    }

    /// Returns the part of the database that its transactions work on.
    #[inline(always)]
    pub(crate) fn engine(&self) -> &Engine<P> {
        &self.inner.engine
    }

    /// As `engine`, for other crates.
    #[doc(hidden)]
    #[inline(always)]
    pub fn open_engine(&self, _: Unstable) -> &Engine<P> {
        self.engine()
    }

    /// As `claim`, for other crates.
    #[doc(hidden)]
    #[inline(always)]
    pub fn claim_worker(
        &self,
        options: &TransactionOptions,
        _: Unstable,
    ) -> Result<Claim<'_, P>, Failure> {
        self.claim(options.deadline.and_then(Deadline::after).as_ref())
    }

    /// Returns the results that the database keeps, if it keeps them.
    fn results(&self) -> Option<&Arc<Results>> {
        self.inner.results.get()
    }

    /// Returns the state that the handles share.
    #[inline(always)]
    pub(crate) fn inner(&self) -> &Inner<P> {
        &self.inner
    }

    /// Returns the worker that this thread has claimed, if it has claimed one.
    pub(crate) fn claimed_worker(&self) -> Option<&Worker<P>> {
        self.inner.claimed()
    }

    /// Claims a worker for this thread. Waits while all of them are busy.
    ///
    /// # Errors
    /// [`Failure::WorkersBusy`] after the deadline; [`Failure::Closed`], [`Failure::Loading`],
    /// [`Failure::ThreadEnding`].
    #[inline(always)]
    pub(crate) fn claim(&self, deadline: Option<&Deadline>) -> Result<Claim<'_, P>, Failure> {
        self.inner.claim(deadline)
    }
}

fn check_bounds(
    options: &TransactionOptions,
    deadline: Option<&Deadline>,
    attempts: u32,
    last: impl FnOnce() -> Conflict,
) -> Result<(), Failure> {
    if options.retries_max.is_some_and(|retries_max| attempts > retries_max) {
        return Err(Failure::RetriesExhausted { attempts, last: last() });
    }
    deadline.map_or(Ok(()), |deadline| deadline.check(attempts))
}
