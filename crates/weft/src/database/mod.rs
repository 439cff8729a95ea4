//! Databases: opening one, registering its tables, running transactions on it.

mod builder;
mod load;
pub mod metrics;
pub mod pool;
#[doc(hidden)]
pub mod run;
mod snapshots;
pub mod stash;
pub mod storage;
mod stored;

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_htm::Backend;
use weft_htm::word::{Ordering, yield_now};

use crate::commit::{CommitToken, Dbx, Engine, Protocol, Unstable, Worker, Workers};
use crate::error::{Conflict, Error, Failure};
#[cfg(feature = "history")]
use crate::history::History;
use crate::row::schema::Record;
use crate::snapshot::{SnapshotHome, SnapshotSource};
use crate::store::deadline::Deadline;
use crate::store::garbage::Retired;
use crate::store::retention::{Kept, Retained};
use crate::store::table::{Identity, Table, TableInner};
use crate::store::worker::{CLOSED, Shared, WorkerMemory, WorkerState};
use crate::sync::clock::Ticker;
use crate::sync::reclaim::OFFLINE;
use crate::transaction::Transaction;

pub use builder::{Builder, WORKERS_MAX_DEFAULT};
use metrics::Metrics;
use run::Ended;
use storage::Storage;
use stored::AnyTable;

/// An in-memory database under concurrency-control protocol `P`.
///
/// A handle: clones lead to the same database, which goes, with everything in it, when the last
/// one is dropped. Databases are independent of each other; a process may hold several.
///
/// # Starvation
/// A transaction that meets a conflict is run again by [`Database::transact`], and every one gets
/// through in the end. Attempts are kept apart by a randomized wait that grows; where a protocol
/// has locks to wait for, the older transaction is preferred; and one that was aborted a hundred
/// times closes a turnstile: no other transaction begins until it has ended.
/// ([`Metrics::turnstile_closings`] counts these; a database that often needs it is asked too much
/// of one row.) It follows that a transaction must not wait for another thread's transaction on
/// the same database. A loop of the caller's own around [`Database::begin`] respects the
/// turnstile, but cannot close it.
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
///     tx.update(&counters, &"visits".into(), |counter| {
///         counter.value += 1;
///         counter.value
///     })
/// })?;
/// assert_eq!(value, Some(42));
/// # Ok::<(), Error>(())
/// ```
pub struct Database<P: Protocol = Dbx> {
    /// What the handles of the database's users share; a checkpoint that is written by itself has
    /// none. Before `inner`, so that the last of them finds the database still there.
    user: Option<Arc<UserHandles<P>>>,
    inner: Arc<Inner<P>>,
}

/// Goes with the last handle that a user has of a database: the run ends then and there, even if
/// a checkpoint is being written.
struct UserHandles<P: Protocol>(Weak<Inner<P>>);

impl<P: Protocol> Drop for UserHandles<P> {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade()
            && let Some(storage) = &inner.storage
        {
            // Nobody is left to be told of an error. What was acknowledged as durable is so.
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

/// What the handles of a database share.
pub struct Inner<P: Protocol> {
    engine: Engine<P>,
    workers: Workers<P>,
    /// In an order that does not change, so that a run that is repeated frees its memory in the same order.
    tables: BTreeMap<TypeId, Arc<dyn AnyTable>>,
    /// Number of indexes, primary and secondary, of all tables.
    indexes: usize,
    /// Ticks the clock, if no log does.
    ticker: Option<Ticker>,
    /// The directory, if the database has one.
    storage: Option<Storage>,
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
        // Garbage first: rows in it are no longer in any index. Then the indexes with the rest. No handle is
        // left by which the rows' `Drop`s could come back.
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
            // Deleted records are still in their indexes.
            if let Kept::Version(row) = entry.kept {
                // SAFETY: likewise, nor any snapshot; and whoever owns an entry owns its version.
                unsafe { drop_kept(row, &entry, &memory) };
            }
        }
        for table in self.tables.values() {
            // SAFETY: the last handle is gone, and a transaction borrows one.
            unsafe { table.tear_down(&memory) };
        }
    }
}

/// Drops what retired rows own, when the database is being dropped.
///
/// # Safety
/// Nobody can reach the entry any more.
unsafe fn drop_retired(entry: Retired, memory: &WorkerMemory) {
    // SAFETY: by the contract.
    unsafe {
        match entry {
            Retired::Row(row, table) => memory.drop_row(row, table, false),
            Retired::Record(record, table) => table.drop_newest(record, memory),
            Retired::Large(block, layout) => crate::store::record::arena::free_huge(block, *layout),
            // Blocks lie in chunks; a deleted record is still in its index.
            Retired::Block(..) | Retired::Deleted(_) => {}
        }
    }
}

/// Drops what a version owns that was kept for snapshots.
///
/// # Safety
/// Nobody can reach the version any more.
unsafe fn drop_kept(row: NonNull<u8>, entry: &Retained, memory: &WorkerMemory) {
    // SAFETY: by the contract; records go after this.
    unsafe { memory.drop_row(row, entry.table, entry.table.is_inline(entry.record, row)) };
}

/// Bounds on a transaction's retries.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// How often a transaction that met a conflict is run again; for ever if `None`. (Repairs, under `htcc`,
    /// are not counted.)
    pub retries_max: Option<u32>,
    /// After what time, counted from the call, it gives up: between attempts, and inside the
    /// closure at its next few operations. Never, if `None`. (A closure that stops calling the
    /// database cannot be interrupted.)
    pub deadline: Option<Duration>,
}

impl TransactionOptions {
    /// No bounds.
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
}

impl Database {
    /// Starts to open a database. [`Builder::protocol`] chooses another protocol than the default.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<P: Protocol> Database<P> {
    /// The table of row type `T`.
    ///
    /// # Errors
    /// [`Failure::UnknownTable`] if the database was opened without it.
    pub fn table<T: Record>(&self) -> Result<Table<T>, Failure> {
        let table = self.inner.tables.get(&TypeId::of::<T>()).cloned();
        match table.and_then(|table| table.into_any().downcast::<TableInner<T>>().ok()) {
            Some(inner) => Ok(Table { inner }),
            None => {
                Err(Failure::UnknownTable { table: T::TABLE, row_type: std::any::type_name::<T>() })
            }
        }
    }

    /// A handle that is no user's.
    pub(crate) fn of(inner: Arc<Inner<P>>) -> Self {
        Database { user: None, inner }
    }

    /// Runs `body` as a transaction until it commits, and returns what it returned.
    ///
    /// A conflict with another transaction rolls back and runs `body` again, after a randomized
    /// wait that doubles each time, for as long as it takes (see [starvation](#starvation)). An `Err` of `body`'s own, or a
    /// panic, rolls back and passes through. (If it was caused by what other transactions were
    /// doing meanwhile, that is, if what `body` has read is not current any more, it counts as a
    /// conflict: what passes through was concluded from a consistent state.)
    ///
    /// `body` may run several times: whatever it does besides the database must bear that.
    ///
    /// # Errors
    /// Those of `body`; and [`Failure::NestedTransaction`], [`Failure::TooManyWorkers`],
    /// [`Failure::SingleThreaded`], [`Failure::Closed`].
    pub fn transact<R, E: From<Error>>(
        &self,
        body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.transact_with(&TransactionOptions::default(), body)
    }

    /// As [`Database::transact`], within bounds.
    ///
    /// # Errors
    /// Also [`Failure::RetriesExhausted`], [`Failure::DeadlineExceeded`].
    pub fn transact_with<R, E: From<Error>>(
        &self,
        options: &TransactionOptions,
        body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (result, token) = self.transact_with_token(options, body)?;
        self.acknowledge(token).map_err(Error::from)?;
        Ok(result)
    }

    /// Whether commits are acknowledged when they are durable.
    fn acknowledges_durable(&self) -> bool {
        self.inner.acknowledges_durable()
    }

    /// Waits until the transaction may be acknowledged.
    #[doc(hidden)]
    #[inline(always)]
    pub fn acknowledge(&self, token: CommitToken) -> Result<(), Failure> {
        self.inner.acknowledge(|| self.registered_worker(), token)
    }

    /// As [`Database::transact_with`], but returns when the transaction has committed in memory,
    /// whatever the database's [options](crate::DurabilityOptions::acknowledge) say, with a token by
    /// which one may [wait](Database::wait_durable) until it is durable.
    ///
    /// # Errors
    /// As [`Database::transact_with`].
    #[inline(always)]
    pub fn transact_with_token<R, E: From<Error>>(
        &self,
        options: &TransactionOptions,
        mut body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<(R, CommitToken), E> {
        let worker = self.worker().map_err(Error::from)?;
        self.run_closure(worker, options, false, &mut body).result()
    }

    /// Begins a transaction, to be [committed](Transaction::commit) by the caller; dropping it
    /// rolls it back. For those who want a retry loop of their own.
    ///
    /// # Errors
    /// [`Failure::NestedTransaction`], [`Failure::TooManyWorkers`], [`Failure::SingleThreaded`],
    /// [`Failure::Closed`].
    pub fn begin(&self) -> Result<Transaction<'_, P>, Failure> {
        let worker = self.worker()?;
        if !worker.active.get() {
            self.inner.shared.turnstile.pass(0, &mut || self.check_wait(None, 0))?;
            P::between_transactions(&self.inner.engine, worker, || self.check_wait(None, 0))?;
        }
        Transaction::begin(self.engine(), worker, 0, None, Unstable::ENGINE)
    }

    /// Whether one that waits at the turnstile should go on waiting.
    pub(crate) fn check_wait(
        &self,
        deadline: Option<Deadline>,
        attempts: u32,
    ) -> Result<(), Failure> {
        self.inner.shared.check_open()?;
        deadline.map_or(Ok(()), |deadline| deadline.check(attempts))
    }

    /// Closes the database: no transaction begins any more, on any handle. Returns when the
    /// running ones have ended (so never, if one was leaked with [`std::mem::forget`]; see
    /// [`Database::close_within`]), and all that has committed is durable, if the database has a
    /// directory. It also waits for a checkpoint, a backup or a load.
    ///
    /// A row type's own code may call this: the `drop` of a row does so outside any transaction, and closes the
    /// database. Other code of a row type runs inside a transaction, a checkpoint, a backup or a load, which
    /// would wait for itself. It gets an error, and the database stays open.
    ///
    /// # Errors
    /// [`Failure::NestedTransaction`] if this very thread is in a transaction;
    /// [`Failure::NestedCheckpoint`] if it is in a checkpoint, a backup or a load; [`Failure::Storage`] if the
    /// last commits could not be made durable.
    pub fn close(&self) -> Result<(), Failure> {
        self.close_by(None)
    }

    /// As [`Database::close`], but waits no longer than `limit` for running transactions, checkpoints, backups
    /// and loads. (So it returns by then even if code of a row type blocks inside one of them.)
    ///
    /// # Errors
    /// Those of [`Database::close`]; [`Failure::StillRunning`] if one of them is still running after
    /// `limit`. No transaction begins any more all the same, and the database may be closed again.
    pub fn close_within(&self, limit: Duration) -> Result<(), Failure> {
        self.close_by(Deadline::after(limit))
    }

    fn close_by(&self, deadline: Option<Deadline>) -> Result<(), Failure> {
        if registered(&self.inner).is_some_and(|worker| worker.active.get()) {
            return Err(Failure::NestedTransaction);
        }
        if let Some(storage) = &self.inner.storage {
            storage.check_user_code()?;
        }
        self.inner.shared.closed.store(CLOSED, Ordering::SeqCst);
        while self.inner.shared.grace.horizon() != OFFLINE {
            if let Some(deadline) = deadline
                && deadline.has_passed()
            {
                return Err(Failure::StillRunning { waited: deadline.limit });
            }
            yield_now();
        }
        match &self.inner.storage {
            Some(storage) => storage.end(deadline),
            None => Ok(()),
        }
    }

    /// Takes what was recorded since the database was opened, or since the last history was taken.
    ///
    /// To be called when no transaction runs: one that has not ended is not part of the history, but
    /// what others have read of it is. Each history stands for itself: what was written before it
    /// began is version 0.
    ///
    /// # Panics
    /// If the database was opened without [`Builder::record_history`].
    #[cfg(feature = "history")]
    pub fn take_history(&self) -> History {
        let recording = self.inner.shared.recording.as_ref();
        recording.expect("the database was opened with record_history(true)").take()
    }

    /// What the database has done, and holds, so far.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::gather(&self.inner.shared);
        metrics.log = self.inner.storage.as_ref().and_then(Storage::log_metrics);
        metrics.phases = P::phase_metrics(&self.inner.protocol);
        metrics
    }

    /// The protocol's name.
    pub fn protocol_name(&self) -> &'static str {
        P::NAME
    }

    /// The HTM backend that was chosen when the database was opened.
    pub fn htm_backend(&self) -> Backend {
        self.inner.shared.htm.backend()
    }

    /// The database, for a snapshot.
    fn home(&self) -> SnapshotHome {
        let user = self.user.as_ref().map(|user| Arc::clone(user) as Arc<dyn Any + Send + Sync>);
        SnapshotHome { _user: user, source: Arc::clone(&self.inner) as Arc<dyn SnapshotSource> }
    }

    /// What its transactions work on.
    #[inline(always)]
    pub(crate) fn engine(&self) -> &Engine<P> {
        &self.inner.engine
    }

    /// As `engine`, for crates outside.
    #[doc(hidden)]
    #[inline(always)]
    pub fn open_engine(&self, _: Unstable) -> &Engine<P> {
        self.engine()
    }

    /// As `worker`, for crates outside.
    #[doc(hidden)]
    #[inline(always)]
    pub fn open_worker(&self, _: Unstable) -> Result<&Worker<P>, Failure> {
        self.worker()
    }

    /// What the handles share.
    #[inline(always)]
    pub(crate) fn inner(&self) -> &Inner<P> {
        &self.inner
    }

    /// This thread's worker, if it is one.
    pub(crate) fn registered_worker(&self) -> Option<&Worker<P>> {
        registered(&self.inner)
    }

    /// This thread's worker; makes the thread one if need be.
    #[inline(always)]
    pub(crate) fn worker(&self) -> Result<&Worker<P>, Failure> {
        match registered(&self.inner) {
            Some(worker) => Ok(worker),
            None => register(&self.inner),
        }
    }
}

/// Makes this thread a worker of a database.
#[cold]
#[inline(never)]
fn register<P: Protocol>(inner: &Arc<Inner<P>>) -> Result<&Worker<P>, Failure> {
    if inner.shared.closed.load(Ordering::SeqCst) == CLOSED {
        return Err(Failure::Closed);
    }
    let Some((slot, worker)) = inner.workers.join(&inner.shared, &inner.protocol, inner.indexes)
    else {
        let workers_max = inner.shared.counters.len();
        return Err(Failure::TooManyWorkers { workers_max });
    };
    let seat = Box::new(Seat { inner: Arc::downgrade(inner), slot });
    let seated = REGISTRATIONS.try_with(|registrations| {
        let mut registrations = registrations.borrow_mut();
        registrations.retain(|registration| registration.seat.is_taken());
        registrations.push(Registration {
            database: Arc::as_ptr(inner).cast(),
            worker: worker.cast(),
            seat,
        });
    });
    if seated.is_err() {
        // The thread is ending, and its locals are gone; the seat was given up with the
        // closure.
        return Err(Failure::ThreadEnding);
    }
    // SAFETY: the worker is boxed, and lives until the thread's registration ends.
    Ok(unsafe { worker.as_ref() })
}

impl<P: Protocol> SnapshotSource for Inner<P> {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    fn registered(&self) -> Option<&WorkerState> {
        registered(self).map(Deref::deref)
    }

    fn register(self: Arc<Self>) -> Result<(), Failure> {
        register(&self).map(drop)
    }
}

fn check_bounds(
    options: &TransactionOptions,
    deadline: Option<Deadline>,
    attempts: u32,
    last: impl FnOnce() -> Conflict,
) -> Result<(), Failure> {
    if options.retries_max.is_some_and(|retries_max| attempts > retries_max) {
        return Err(Failure::RetriesExhausted { attempts, last: last() });
    }
    deadline.map_or(Ok(()), |deadline| deadline.check(attempts))
}

// ---- registration of threads ------------------------------------------------------------------

/// One database of which this thread is a worker.
struct Registration {
    /// The address of the database's shared part. The seat's weak reference keeps the address
    /// from being used again.
    database: *const (),
    worker: NonNull<()>,
    seat: Box<dyn AnySeat>,
}

trait AnySeat {
    /// Whether the database is still there.
    fn is_taken(&self) -> bool;
}

/// A slot held by this thread; dropping it leaves the database.
struct Seat<P: Protocol> {
    inner: Weak<Inner<P>>,
    slot: usize,
}

impl<P: Protocol> AnySeat for Seat<P> {
    fn is_taken(&self) -> bool {
        self.inner.strong_count() > 0
    }
}

impl<P: Protocol> Drop for Seat<P> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            // SAFETY: the slot is this thread's, whose registration of it ends here.
            unsafe { inner.workers.leave(&inner.shared, self.slot) };
        }
    }
}

#[cfg(not(weft_sim))]
thread_local! {
    static REGISTRATIONS: RefCell<Vec<Registration>> = const { RefCell::new(Vec::new()) };
}
/// Each virtual core is a worker of its own.
#[cfg(weft_sim)]
static REGISTRATIONS: weft_htm::simulation::local::Local<RefCell<Vec<Registration>>> =
    weft_htm::simulation::local::Local::new(|| RefCell::new(Vec::new()));

/// This thread's worker of a database, if it is one.
#[inline(always)]
fn registered<P: Protocol>(inner: &Inner<P>) -> Option<&Worker<P>> {
    let database = std::ptr::from_ref(inner).cast::<()>();
    // Fails only while the thread's locals are being destroyed: then it is a worker no more.
    let worker = REGISTRATIONS.try_with(|registrations| {
        let registrations = registrations.borrow();
        let found = registrations.iter().find(|registration| registration.database == database);
        found.map(|registration| registration.worker)
    });
    // SAFETY: the worker belongs to this database, by the address; its type is the database's;
    // and it is boxed and lives until this thread's registration ends, or the database does.
    worker.ok().flatten().map(|worker| unsafe { worker.cast::<Worker<P>>().as_ref() })
}
