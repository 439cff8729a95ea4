//! Databases: opening one, registering its tables, running transactions on it.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use weft_htm::word::{Ordering, spin_loop, yield_now};
use weft_htm::{Backend, Choice, Htm, RetryPolicy};

use crate::durability::{self, RecoveryProgress};
use crate::epoch::clock::{EPOCH_INTERVAL, Ticker};
use crate::epoch::garbage::Retired;
use crate::epoch::reclaim::OFFLINE;
use crate::error::{Conflict, Error, Failure};
#[cfg(feature = "history")]
use crate::history::{History, Recording};
use crate::metrics::Metrics;
use crate::protocol::{Dbx, Protocol};
use crate::schema::Record;
use crate::snapshot::retention::{Kept, Retained};
use crate::storage::{CommitToken, DurabilityOptions, Storage, StoragePlan};
use crate::table::stored::FillingMemories;
use crate::table::{AnyTable, Identity, Table, TableInner};
use crate::transaction::Transaction;
use crate::worker::{CLOSED, Shared, Worker, WorkerMemory, Workers};

/// How many threads may use a database at a time, unless the builder says otherwise.
pub const WORKERS_MAX_DEFAULT: usize = 256;

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
/// let database: Database = Database::builder().table::<Counter>().open()?;
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
            let _ = storage.end();
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
pub(crate) struct Inner<P: Protocol> {
    pub shared: Arc<Shared>,
    pub identity: Arc<Identity>,
    protocol: Arc<P::Shared>,
    workers: Workers<P>,
    /// In an order that does not change, so that a run that is repeated frees its memory in the same order.
    pub tables: BTreeMap<TypeId, Arc<dyn AnyTable<P>>>,
    /// Number of indexes, primary and secondary, of all tables.
    indexes: usize,
    /// Ticks the clock, if no log does.
    ticker: Option<Ticker>,
    /// The directory, if the database has one.
    pub storage: Option<Storage>,
}

impl<P: Protocol> Drop for Inner<P> {
    fn drop(&mut self) {
        self.ticker = None;
        // Garbage first: rows in it are no longer in any index. Then the indexes with the rest.
        let memory = WorkerMemory::new(Arc::clone(&self.shared), 0);
        let left = self.shared.take_orphans();
        let mut kept = self.shared.retention.take_all();
        let workers = self.workers.take_all().flat_map(|worker| {
            kept.extend(worker.memory.take_retained());
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
            Retired::Record(record, table) => (table.core().drop_newest)(table, record, memory),
            Retired::Large(block, layout) => crate::record::arena::free_huge(block, *layout),
            // Blocks lie in chunks; a deleted record is still in its index.
            Retired::Block(..) | Retired::Deleted(..) => {}
        }
    }
}

/// Drops what a version owns that was kept for snapshots.
///
/// # Safety
/// Nobody can reach the version any more.
unsafe fn drop_kept(row: NonNull<u8>, entry: &Retained, memory: &WorkerMemory) {
    let core = entry.table.core();
    // SAFETY: by the contract; records go after this.
    unsafe {
        let inline = (core.is_inline)(entry.table, entry.record, row);
        memory.drop_row(row, entry.table, inline);
    }
}

/// Opens a [`Database`]: name its tables, then [`Builder::open`].
#[must_use = "a builder does nothing until open() is called"]
pub struct Builder<P: Protocol = Dbx> {
    tables: Vec<TableMaker<P>>,
    htm: Option<Choice>,
    retry_policy: RetryPolicy,
    custom_htm: Option<Htm>,
    workers_max: usize,
    reserve_bytes: usize,
    #[cfg(feature = "history")]
    record_history: bool,
    storage: Option<StoragePlan>,
    protocol: PhantomData<P>,
}

type MadeTable<P> = (TypeId, Arc<dyn AnyTable<P>>);

/// Makes a table whose indexes are numbered from the second argument on.
type MakeTable<P> =
    dyn FnOnce(&Arc<Identity>, usize, &WorkerMemory) -> Result<MadeTable<P>, Failure>;

struct TableMaker<P: Protocol> {
    name: &'static str,
    indexes: usize,
    #[cfg(feature = "history")]
    descriptions: &'static [crate::schema::IndexDescription],
    make: Box<MakeTable<P>>,
}

impl<P: Protocol> std::fmt::Debug for Builder<P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tables: Vec<_> = self.tables.iter().map(|table| table.name).collect();
        formatter.debug_struct("Builder").field("tables", &tables).finish_non_exhaustive()
    }
}

impl<P: Protocol> Builder<P> {
    /// Adds the table of row type `T`.
    pub fn table<T: Record>(self) -> Self {
        self.table_with_capacity::<T>(0)
    }

    /// Adds the table of row type `T`, made for about `rows` rows from the start, if it is stored
    /// in a hash table. It grows all the same.
    pub fn table_with_capacity<T: Record>(mut self, rows: usize) -> Self {
        self.tables.push(TableMaker {
            name: T::TABLE,
            indexes: 1 + T::INDEXES.len(),
            #[cfg(feature = "history")]
            descriptions: T::INDEXES,
            make: Box::new(move |identity, number, memory| {
                let table = TableInner::<T, P>::new(identity, number, rows, memory)?;
                Ok((TypeId::of::<T>(), Arc::new(table)))
            }),
        });
        self
    }

    /// Chooses the HTM backend. Without this call the environment variable `WEFT_HTM` does
    /// (`auto`, `rtm` or `software`), and else [`Choice::Auto`] applies.
    pub fn htm(mut self, choice: Choice) -> Self {
        self.htm = Some(choice);
        self
    }

    /// Sets how often hardware regions are retried, by the cause of their abort.
    pub fn htm_retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.retry_policy = policy;
        self
    }

    /// Uses a backend that was opened elsewhere, such as an emulated one in a test.
    #[doc(hidden)]
    pub fn custom_htm(mut self, htm: Htm) -> Self {
        self.custom_htm = Some(htm);
        self
    }

    /// Sets how many threads may use the database at a time; 256 by default. Each costs about
    /// 200 bytes, whether it is used or not.
    pub fn workers_max(mut self, workers_max: usize) -> Self {
        self.workers_max = workers_max;
        self
    }

    /// Takes about `bytes` of memory from the operating system at once, and touches all of it, so
    /// that the growth of the database does not wait for fresh pages later. (In a virtual machine
    /// the first use of a page can cost more than the transaction that needs it.) None by default.
    pub fn reserve_bytes(mut self, bytes: usize) -> Self {
        self.reserve_bytes = bytes;
        self
    }

    /// Records what every transaction reads and writes, to be taken with
    /// [`Database::take_history`]. Rows become 16 to 24 bytes larger, and everything slower. Off by
    /// default.
    #[cfg(feature = "history")]
    pub fn record_history(mut self, record: bool) -> Self {
        self.record_history = record;
        self
    }

    /// Keeps the database in a directory, which is made if need be, so that it survives the end of the
    /// process, and crashes. What is there already is recovered when the database is opened. Without
    /// this call it lives in memory alone.
    ///
    /// Tables are matched by name. New ones, new indexes, and columns with a
    /// [default](crate::Record#columns-that-come-later) may be added; whatever else differs from
    /// what is stored is refused. Volatile tables begin empty.
    ///
    /// One process may have the directory open, once.
    pub fn directory(mut self, path: impl AsRef<Path>) -> Self {
        let directory = path.as_ref();
        match &mut self.storage {
            Some(plan) => plan.directory = directory.to_owned(),
            None => self.storage = Some(StoragePlan::new(directory)),
        }
        self
    }

    /// Sets how the data in the [directory](Builder::directory) is kept, which has been named before.
    ///
    /// # Panics
    /// If no directory has been named.
    pub fn durability(mut self, options: DurabilityOptions) -> Self {
        self.plan().options = options;
        self
    }

    /// Opens the database as it was at the end of an earlier epoch, to be read: transactions that
    /// write fail. The epoch lies between that of the last checkpoint and the last durable one. The
    /// directory, named before, is left as it is; [`Database::backup`] makes another one of it,
    /// where one can go on.
    ///
    /// # Panics
    /// If no directory has been named.
    pub fn at_epoch(mut self, epoch: u64) -> Self {
        self.plan().at_epoch = Some(epoch);
        self
    }

    /// Has `watcher` called now and then while the directory, named before, is recovered, by any of
    /// the threads that do it.
    ///
    /// # Panics
    /// If no directory has been named.
    pub fn watch_recovery(
        mut self,
        watcher: impl Fn(RecoveryProgress) + Send + Sync + 'static,
    ) -> Self {
        self.plan().watcher = Some(Arc::new(watcher));
        self
    }

    /// Puts the directory, named before, on another backend, such as a simulated disk in a test. If
    /// `manual`, no thread writes the log: whoever waits for it does.
    #[doc(hidden)]
    pub fn backend(mut self, backend: Arc<dyn durability::Backend>, manual: bool) -> Self {
        let plan = self.plan();
        plan.backend = backend;
        plan.manual = manual;
        self
    }

    fn plan(&mut self) -> &mut StoragePlan {
        self.storage.as_mut().expect("name the directory first: .directory(path)")
    }

    /// The names of all indexes, by number.
    #[cfg(feature = "history")]
    fn index_names(&self) -> Vec<Arc<str>> {
        let names = self.tables.iter().flat_map(|table| {
            let secondary = table.descriptions.iter();
            let secondary = secondary.map(|index| format!("{}.{}", table.name, index.name).into());
            std::iter::once(table.name.into()).chain(secondary)
        });
        names.collect()
    }

    /// Opens the database.
    ///
    /// # Errors
    /// [`Failure::DuplicateTable`], [`Failure::RowTooLarge`], [`Failure::SingleKey`] for a table
    /// with secondary indexes under a protocol that has none, [`Failure::Htm`] if hardware was
    /// asked for that is not there, [`Failure::HtmChoice`] if `WEFT_HTM` has no valid value,
    /// [`Failure::Thread`]; [`Failure::Storage`] if the directory cannot be used: somebody else has it
    /// open, its files are damaged, the tables do not fit what is stored.
    pub fn open(self) -> Result<Database<P>, Failure> {
        #[cfg(feature = "history")]
        let recording = self.record_history.then(|| Recording::new(self.index_names()));
        let htm = match self.custom_htm {
            Some(htm) => htm,
            None => {
                let choice = match self.htm {
                    Some(choice) => choice,
                    None => Choice::from_environment()?.unwrap_or(Choice::Auto),
                };
                Htm::open(choice, self.retry_policy)?
            }
        };
        let workers_max = self.workers_max.max(1);
        #[cfg_attr(not(feature = "history"), allow(unused_mut, reason = "nothing to record"))]
        let mut shared = Shared::new(htm, workers_max);
        #[cfg(feature = "history")]
        {
            shared.recording = recording.map(Arc::new);
        }
        let shared = Arc::new(shared);
        shared.memory.reserve(self.reserve_bytes);
        let identity = Arc::new(Identity);
        let mut names = std::collections::HashSet::new();
        let mut tables = BTreeMap::new();
        let mut indexes = 0;
        let memory = WorkerMemory::new(Arc::clone(&shared), 0);
        for table in self.tables {
            if P::SINGLE_KEY && table.indexes > 1 {
                let (protocol, table, attempted) = (P::NAME, table.name, "a secondary index");
                return Err(Failure::SingleKey { protocol, table, attempted });
            }
            let (row_type, made) = (table.make)(&identity, indexes, &memory)?;
            if !names.insert(table.name) || tables.insert(row_type, made).is_some() {
                return Err(Failure::DuplicateTable { table: table.name });
            }
            indexes += table.indexes;
        }
        memory.leave();
        let storage = match self.storage {
            Some(plan) => Some(open_storage(plan, &tables, &shared)?),
            None => None,
        };
        let ticker = match storage {
            Some(_) => None,
            // Virtual time has no place for a thread that ticks in the host's.
            None if cfg!(weft_sim) => None,
            None => Some(
                Ticker::start(Arc::clone(&shared.clock), EPOCH_INTERVAL)
                    .map_err(|error| Failure::Thread { message: error.to_string() })?,
            ),
        };
        let inner = Arc::new(Inner {
            shared,
            identity,
            protocol: Arc::default(),
            workers: Workers::new(workers_max),
            tables,
            indexes,
            ticker,
            storage,
        });
        if let Some(storage) = &inner.storage {
            storage.start_checkpoints(&inner)?;
        }
        let user = UserHandles(Arc::downgrade(&inner));
        Ok(Database { user: Some(Arc::new(user)), inner })
    }
}

/// Recovers the tables that are not volatile, and has them logged.
fn open_storage<P: Protocol>(
    plan: StoragePlan,
    tables: &BTreeMap<TypeId, Arc<dyn AnyTable<P>>>,
    shared: &Arc<Shared>,
) -> Result<Storage, Failure> {
    let memories = Arc::new(FillingMemories::new(Arc::clone(shared)));
    let mut tables: Vec<_> = tables.values().collect();
    // In the order in which the program names them, in which they are numbered.
    tables.sort_by_key(|table| table.number());
    let (named, stored): (Vec<_>, Vec<_>) = tables
        .into_iter()
        .filter_map(|table| Some((table, Arc::clone(table).recovering(&memories)?)))
        .unzip();
    let storage = Storage::open(plan, &stored, shared)?;
    for (table, &number) in named.iter().zip(&storage.recovered().table_numbers) {
        table.set_log_number(number);
    }
    Ok(storage)
}

/// Bounds on a transaction's retries.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// How often a transaction that met a conflict is run again; for ever if `None`.
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

impl<P: Protocol> Database<P> {
    /// Starts to open a database.
    pub fn builder() -> Builder<P> {
        Builder {
            tables: Vec::new(),
            htm: None,
            retry_policy: RetryPolicy::default(),
            custom_htm: None,
            workers_max: WORKERS_MAX_DEFAULT,
            reserve_bytes: 0,
            #[cfg(feature = "history")]
            record_history: false,
            storage: None,
            protocol: PhantomData,
        }
    }

    /// The table of row type `T`.
    ///
    /// # Errors
    /// [`Failure::UnknownTable`] if the database was opened without it.
    pub fn table<T: Record>(&self) -> Result<Table<T, P>, Failure> {
        let table = self.inner.tables.get(&TypeId::of::<T>()).cloned();
        match table.and_then(|table| table.into_any().downcast::<TableInner<T, P>>().ok()) {
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
        if let Some(storage) = &self.inner.storage
            && storage.acknowledges_durable()
        {
            self.wait_durable(token).map_err(Error::from)?;
        }
        Ok(result)
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
        // A deadline beyond the end of time is none.
        let deadline = options
            .deadline
            .and_then(|deadline| Some((Instant::now().checked_add(deadline)?, deadline)));
        let mut attempt = 0;
        let mut closed_turnstile = None;
        loop {
            if closed_turnstile.is_none() && !worker.active.get() {
                closed_turnstile = self
                    .inner
                    .shared
                    .turnstile
                    .pass(attempt, || self.check_wait(deadline, attempt))
                    .map_err(Error::from)?;
            }
            let ended = worker
                .memory
                .regions()
                .restarting(|| self.attempt(worker, options, attempt, deadline, &mut body));
            if let ControlFlow::Break(result) = ended {
                return result;
            }
            attempt += 1;
            backoff(worker, attempt);
        }
    }

    /// Runs the closure once, after `attempt` conflicts. Goes on after one more that is within the
    /// bounds.
    #[inline(always)]
    fn attempt<R, E: From<Error>>(
        &self,
        worker: &Worker<P>,
        options: &TransactionOptions,
        attempt: u32,
        deadline: Option<(Instant, Duration)>,
        body: &mut impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> ControlFlow<Result<(R, CommitToken), E>> {
        let transaction = match Transaction::begin(&self.inner, worker, attempt, deadline) {
            Ok(transaction) => transaction,
            Err(failure) => return ControlFlow::Break(Err(Error::from(failure).into())),
        };
        let result = catch_unwind(AssertUnwindSafe(|| body(&transaction)));
        let (transaction, abort) = match result {
            Ok(Ok(value)) => match transaction.finish() {
                Ok(token) => return ControlFlow::Break(Ok((value, token))),
                Err(stopped) => stopped,
            },
            Ok(Err(error)) => match transaction.conflict() {
                Some(abort) => (transaction, abort),
                None => return ControlFlow::Break(Err(error)),
            },
            Err(panic) => match transaction.conflict() {
                Some(abort) => (transaction, abort),
                None => {
                    drop(transaction);
                    resume_unwind(panic)
                }
            },
        };
        // Spelled out only for those who get to see it: under contention conflicts are many.
        let bounds = check_bounds(options, deadline, attempt + 1, || transaction.describe(abort));
        transaction.give_way(abort);
        match bounds {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => ControlFlow::Break(Err(Error::from(failure).into())),
        }
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
            self.inner.shared.turnstile.pass(0, || self.check_wait(None, 0))?;
        }
        Transaction::begin(&self.inner, worker, 0, None)
    }

    /// Whether one that waits at the turnstile should go on waiting.
    pub(crate) fn check_wait(
        &self,
        deadline: Option<(Instant, Duration)>,
        attempts: u32,
    ) -> Result<(), Failure> {
        self.inner.shared.check_open()?;
        check_deadline(deadline, attempts)
    }

    /// Closes the database: no transaction begins any more, on any handle. Returns when the
    /// running ones have ended (so never, if one was leaked with [`std::mem::forget`]), and all that
    /// has committed is durable, if the database has a directory.
    ///
    /// # Errors
    /// [`Failure::NestedTransaction`] if this very thread is in one; [`Failure::Storage`] if the last
    /// commits could not be made durable.
    pub fn close(&self) -> Result<(), Failure> {
        if registered(&self.inner).is_some_and(|worker| worker.active.get()) {
            return Err(Failure::NestedTransaction);
        }
        self.inner.shared.closed.store(CLOSED, Ordering::SeqCst);
        while self.inner.shared.grace.horizon() != OFFLINE {
            yield_now();
        }
        match &self.inner.storage {
            Some(storage) => Ok(storage.end()?),
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
            None => self.register(),
        }
    }

    #[cold]
    #[inline(never)]
    fn register(&self) -> Result<&Worker<P>, Failure> {
        if self.inner.shared.closed.load(Ordering::SeqCst) == CLOSED {
            return Err(Failure::Closed);
        }
        let inner = &self.inner;
        let Some((slot, worker)) =
            inner.workers.join(&inner.shared, &inner.protocol, inner.indexes)
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
}

fn check_bounds(
    options: &TransactionOptions,
    deadline: Option<(Instant, Duration)>,
    attempts: u32,
    last: impl FnOnce() -> Conflict,
) -> Result<(), Failure> {
    if options.retries_max.is_some_and(|retries_max| attempts > retries_max) {
        return Err(Failure::RetriesExhausted { attempts, last: last() });
    }
    check_deadline(deadline, attempts)
}

fn check_deadline(deadline: Option<(Instant, Duration)>, attempts: u32) -> Result<(), Failure> {
    match deadline {
        Some((at, deadline)) if Instant::now() >= at => {
            Err(Failure::DeadlineExceeded { deadline, attempts })
        }
        _ => Ok(()),
    }
}

/// Waits before another attempt: up to 2^attempts pauses, at random, so that transactions that
/// met once do not meet again. After a while it yields as well: there may be more threads than
/// cores, and the other transaction's may be waiting for this one's.
#[cold]
fn backoff<P: Protocol>(worker: &Worker<P>, attempts: u32) {
    const SPINS_MAX_LOG2: u32 = 12;
    let spins = worker.random.borrow_mut().u32(0..1 << attempts.min(SPINS_MAX_LOG2));
    for _ in 0..spins {
        spin_loop();
    }
    if attempts > 3 {
        yield_now();
    }
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
fn registered<P: Protocol>(inner: &Arc<Inner<P>>) -> Option<&Worker<P>> {
    let database = Arc::as_ptr(inner).cast::<()>();
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
