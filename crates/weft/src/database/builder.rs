//! The builder: the options with which a database is opened, and the steps of opening it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use weft_htm::{Choice, Htm, RetryPolicy};

use super::clock::ManualClock;
use super::expiry::Expiry;
use super::log_worker::LogWorker;
use super::once::{OnceOptions, Results};
use super::storage::{DurabilityOptions, Storage, StoragePlan};
use super::stored::{AnyTable, FillingMemories};
use super::versions::{Migration, Versions};
use super::{Database, Inner, UserHandles};
use crate::commit::{
    CommitsByRows, Dbx, Durability, Engine, GivenOptions, Protocol, ProtocolOptions,
    ProtocolShared, Workers, record_kind,
};
use crate::durability::{self, MigratedRows, RecoveryProgress, StorageError};
use crate::error::Failure;
#[cfg(feature = "history")]
use crate::history::Recording;
use crate::row::schema::{self, Record};
use crate::store::observer::Observer;
use crate::store::record::RecordKind;
use crate::store::table::{Identity, TableInner};
#[cfg(feature = "canary")]
use crate::store::worker::OperationFlaw;
use crate::store::worker::{CountsByIndex, SharedState, WorkerMemory};
use crate::sync::clock::{EPOCH_INTERVAL, Ticker};
#[cfg(feature = "canary")]
use crate::sync::time::TimeFlaw;

/// The default number of workers: of transactions, and reads of snapshots, that can run at the same time.
pub const WORKERS_MAX_DEFAULT: usize = 256;

/// Opens a [`Database`]: name its tables, then call [`Builder::open`].
#[must_use = "a builder does nothing until open() is called"]
pub struct Builder<P: Protocol = Dbx> {
    tables: Vec<TableMaker>,
    htm: Option<Choice>,
    retry_policy: RetryPolicy,
    custom_htm: Option<Htm>,
    workers_max: usize,
    reserve_bytes: usize,
    limits: Limits,
    #[cfg(feature = "history")]
    record_history: bool,
    storage: Option<StoragePlan>,
    clock: Option<ManualClock>,
    #[cfg(feature = "canary")]
    time_flaw: Option<TimeFlaw>,
    #[cfg(feature = "canary")]
    operation_flaw: Option<OperationFlaw>,
    versions: Versions<P>,
    pub(super) once: Option<OnceOptions>,
    all_ordered: bool,
    given: GivenOptions,
    protocol: PhantomData<P>,
}

/// The limits of a database.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    memory_bytes: Option<u64>,
    transaction_age: Option<Duration>,
    snapshot_age: Option<Duration>,
}

/// Makes a table. The second argument is its name, and the number of its first index. If the last one is true, the table is
/// stored in a B+-tree, whatever it declares.
type MakeTable = dyn FnOnce(
    &Arc<Identity>,
    (&'static str, usize),
    &'static RecordKind,
    &WorkerMemory,
    bool,
) -> Result<Arc<dyn AnyTable>, Failure>;

struct TableMaker {
    name: &'static str,
    indexes: usize,
    #[cfg(feature = "history")]
    descriptions: &'static [crate::row::schema::IndexDescription],
    make: Box<MakeTable>,
}

impl TableMaker {
    /// Returns what makes a table by this name of rows `T`, for `rows` rows. (It is compiled once for each row
    /// type, since it does not depend on the builder's protocol.)
    #[inline(never)]
    fn of<T: Record>(name: &'static str, rows: usize) -> TableMaker {
        TableMaker {
            name,
            indexes: 1 + T::INDEXES.len(),
            #[cfg(feature = "history")]
            descriptions: T::INDEXES,
            make: Box::new(move |identity, place, records, memory, all_ordered| {
                let storage = if all_ordered { schema::Storage::Ordered } else { T::STORAGE };
                let table =
                    TableInner::<T>::new(identity, place, (storage, rows), records, memory)?;
                Ok(Arc::new(table))
            }),
        }
    }
}

/// Returns the name as one that lasts as long as the program. Each name is kept once.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept = Box::leak(Box::<str>::from(name));
    names.insert(kept);
    kept
}

impl<P: Protocol> std::fmt::Debug for Builder<P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tables: Vec<_> = self.tables.iter().map(|table| table.name).collect();
        formatter.debug_struct("Builder").field("tables", &tables).finish_non_exhaustive()
    }
}

impl Builder {
    /// Returns a builder for a database without tables.
    pub(super) fn new() -> Builder {
        Builder {
            tables: Vec::new(),
            htm: None,
            retry_policy: RetryPolicy::default(),
            custom_htm: None,
            workers_max: WORKERS_MAX_DEFAULT,
            reserve_bytes: 0,
            limits: Limits::default(),
            #[cfg(feature = "history")]
            record_history: false,
            storage: None,
            clock: None,
            #[cfg(feature = "canary")]
            time_flaw: None,
            #[cfg(feature = "canary")]
            operation_flaw: None,
            versions: Versions::default(),
            once: None,
            all_ordered: false,
            given: GivenOptions::default(),
            protocol: PhantomData,
        }
    }
}

impl<P: Protocol> Builder<P> {
    /// Chooses the concurrency-control protocol. The default is [`Dbx`].
    ///
    /// ```
    /// use weft::protocol::Silo;
    /// use weft::{Database, Record};
    ///
    /// #[derive(Clone, Copy, Record)]
    /// struct Counter { #[record(key)] id: u32, value: u64 }
    ///
    /// let database = Database::builder().protocol::<Silo>().table::<Counter>().open()?;
    /// assert_eq!(database.protocol_name(), "silo");
    /// # Ok::<(), weft::Error>(())
    /// ```
    ///
    /// # Panics
    /// After a call of [`Builder::migrate`], whose hooks run under the protocol.
    pub fn protocol<Q: Protocol>(self) -> Builder<Q> {
        let Versions { current, oldest, hooks } = self.versions;
        assert!(hooks.is_empty(), "choose the protocol before the hooks of `migrate`");
        Builder {
            tables: self.tables,
            htm: self.htm,
            retry_policy: self.retry_policy,
            custom_htm: self.custom_htm,
            workers_max: self.workers_max,
            reserve_bytes: self.reserve_bytes,
            limits: self.limits,
            #[cfg(feature = "history")]
            record_history: self.record_history,
            storage: self.storage,
            clock: self.clock,
            #[cfg(feature = "canary")]
            time_flaw: self.time_flaw,
            #[cfg(feature = "canary")]
            operation_flaw: self.operation_flaw,
            versions: Versions { current, oldest, ..Versions::default() },
            once: self.once,
            all_ordered: self.all_ordered,
            given: self.given,
            protocol: PhantomData,
        }
    }

    /// Adds the table of row type `T`.
    pub fn table<T: Record>(self) -> Self {
        self.table_with_capacity::<T>(0)
    }

    /// Adds a table of row type `T` under another name than the type declares. So one type can have several tables,
    /// whose names are known when the program runs: one for each region or each tenant. Everything else is as the type
    /// declares it. [`Database::table_named`] returns the table.
    ///
    /// Names are never freed, so do not make ever new ones.
    ///
    /// ```
    /// use weft::{Database, Error, Record};
    ///
    /// #[derive(Clone, Copy, Record)]
    /// struct Item { #[record(key)] id: u32, left: u32 }
    ///
    /// let regions = ["items_north".to_owned(), "items_south".to_owned()];
    /// let builder = regions.iter().fold(Database::builder(), |builder, name| builder.table_named::<Item>(name));
    /// let database = builder.open()?;
    /// let (north, south) = (database.table_named::<Item>(&regions[0])?, database.table_named::<Item>(&regions[1])?);
    /// database.transact(|tx| {
    ///     tx.insert(&north, Item { id: 1, left: 10 })?;
    ///     tx.insert(&south, Item { id: 1, left: 20 })
    /// })?;
    /// assert_eq!(database.transact(|tx| Ok::<_, Error>(tx.get(&south, &1)?.map(|item| item.left)))?, Some(20));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn table_named<T: Record>(self, name: &str) -> Self {
        self.add_table::<T>(interned(name), 0)
    }

    /// Adds the table of row type `T`. If it is stored in a hash table, makes room for about `rows` rows from the
    /// start. The table still grows when it needs to.
    pub fn table_with_capacity<T: Record>(self, rows: usize) -> Self {
        self.add_table::<T>(T::TABLE, rows)
    }

    fn add_table<T: Record>(mut self, name: &'static str, rows: usize) -> Self {
        self.tables.push(TableMaker::of::<T>(name, rows));
        self
    }

    /// Stores all tables in B+-trees, also those that are declared as hash tables. Use it to measure what a hash
    /// table gains. Ranges of a table that is declared as a hash table still do not compile.
    ///
    /// ```
    /// use weft::{Database, Error, Record};
    ///
    /// #[derive(Clone, Copy, Record)]
    /// #[record(storage = "hash")]
    /// struct Item { #[record(key)] id: u32, left: u32 }
    ///
    /// let database = Database::builder().table::<Item>().all_ordered(true).open()?;
    /// let items = database.table::<Item>()?;
    /// let load = |tx: &weft::Transaction<'_>| {
    ///     [3, 1, 2].into_iter().try_for_each(|id| tx.insert(&items, Item { id, left: 10 }))
    /// };
    /// database.transact::<_, Error>(load)?;
    /// let snapshot = database.open_snapshot()?;
    /// let ids: Vec<u32> = snapshot.rows(&items).map(|row| Ok(row?.id)).collect::<Result<_, Error>>()?;
    /// assert_eq!(ids, [1, 2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn all_ordered(mut self, all_ordered: bool) -> Self {
        self.all_ordered = all_ordered;
        self
    }

    /// Gives a protocol its own options. If options of the same type are given several times, the last ones apply.
    /// Protocols have methods of their own for this, such as `htcc` in `weft-protocols`.
    #[doc(hidden)]
    pub fn protocol_options(mut self, options: impl Any + Send + Sync) -> Self {
        self.given.give(options);
        self
    }

    /// Chooses the HTM backend. Without this call the environment variable `WEFT_HTM` chooses it (`auto`, `rtm` or
    /// `software`). If that is not set either, the database uses software twins, which are faster than the regions of
    /// today's processors (decision 83). Only protocols of other crates that are something else without regions then use
    /// RTM where it works.
    pub fn htm(mut self, choice: Choice) -> Self {
        self.htm = Some(choice);
        self
    }

    /// Sets how often a hardware region is retried after an abort, by the abort's cause.
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

    /// Sets how many workers the database may have. The default is 256. A thread has a worker for the time of a
    /// transaction, or of a read from a snapshot, and any number of threads may use the database. If all workers are
    /// busy, a transaction waits. A worker is made when a thread finds no free one. Each of the `workers_max` costs about
    /// 200 bytes, also before it is made.
    pub fn workers_max(mut self, workers_max: usize) -> Self {
        self.workers_max = workers_max;
        self
    }

    /// Takes about `bytes` of memory from the operating system when the database is opened, and touches all of it,
    /// so that the database need not wait for fresh pages when it grows. (In a virtual machine the first use of a
    /// page can cost more than the transaction that needs it.) The default is 0.
    pub fn reserve_bytes(mut self, bytes: usize) -> Self {
        self.reserve_bytes = bytes;
        self
    }

    /// Sets how many bytes of memory the database may use. Before it would use more, inserts and updates that make
    /// rows larger fail with [`Failure::MemoryFull`]. Reads, deletes and other updates go on: an eighth of the limit, at
    /// least 4 MiB and at most 64 MiB, is kept for them.
    ///
    /// All that the database takes from the system counts ([`MemoryMetrics::used_bytes`]), and each open database counts
    /// alone. What the columns of a row own is counted as [`ColumnValue::heap_bytes`](crate::ColumnValue::heap_bytes)
    /// says. For columns of volatile tables, and for values that closures keep, that is nothing. The default is no limit.
    ///
    /// [`MemoryMetrics::used_bytes`]: crate::MemoryMetrics::used_bytes
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.limits.memory_bytes = Some(bytes);
        self
    }

    /// Sets how long a transaction may run. When it is older, its next operation, or its commit, fails with
    /// [`Failure::TransactionTooOld`]. As long as a transaction runs, no garbage is freed. The age is looked at once
    /// in 40 ms, or in [`DurabilityOptions::epoch_interval`] if the database has a directory. A database that is opened
    /// [at an epoch](Builder::at_epoch) has no such limit. The default is no limit.
    pub fn transaction_age_limit(mut self, limit: Duration) -> Self {
        self.limits.transaction_age = Some(limit);
        self
    }

    /// Sets how long a snapshot may be open. When it is older, its next read fails with
    /// [`Failure::SnapshotTooOld`], and what was kept for it is freed as transactions go on. If rows were read from it,
    /// they may still be in use: then everything is kept until the snapshot is dropped. The age is looked at as for
    /// [`Builder::transaction_age_limit`]. Checkpoints and backups have no such limit. The default is no limit.
    pub fn snapshot_age_limit(mut self, limit: Duration) -> Self {
        self.limits.snapshot_age = Some(limit);
        self
    }

    /// Makes [time](crate::Transaction::now) go by a clock that the program sets, instead of that of the system. No
    /// rows that have expired are removed in the background then: call [`Database::remove_expired`]. For tests.
    ///
    /// ```
    /// use std::time::Duration;
    /// use weft::{Database, Error, ManualClock, Record, Timestamp};
    ///
    /// #[derive(Clone, Record)]
    /// #[record(expires = until)]
    /// struct Session { #[record(key)] id: u32, until: Timestamp }
    ///
    /// let clock = ManualClock::new(Timestamp::from_millis(1_800_000_000_000));
    /// let database = Database::builder().table::<Session>().clock(&clock).open()?;
    /// let sessions = database.table::<Session>()?;
    /// database.transact(|tx| {
    ///     let until = tx.now() + Duration::from_secs(60);
    ///     tx.insert(&sessions, Session { id: 1, until })
    /// })?;
    /// clock.advance(Duration::from_secs(60));
    /// let found = database.transact(|tx| Ok::<_, Error>(tx.get(&sessions, &1)?.is_some()))?;
    /// assert!(!found, "it has expired");
    /// assert_eq!(database.remove_expired()?, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Makes the database treat time wrongly, to test the tests.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub fn time_flaw(mut self, flaw: Option<TimeFlaw>) -> Self {
        self.time_flaw = flaw;
        self
    }

    /// Makes operations of transactions do something wrong, to test the tests.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub fn operation_flaw(mut self, flaw: Option<OperationFlaw>) -> Self {
        self.operation_flaw = flaw;
        self
    }

    /// Records what every transaction reads and writes. [`Database::take_history`] returns it. Makes rows 16 to 24
    /// bytes larger, and everything slower. The default is `false`.
    #[cfg(feature = "history")]
    pub fn record_history(mut self, record: bool) -> Self {
        self.record_history = record;
        self
    }

    /// Keeps the database in a directory, so that it survives the end of the process, and crashes.
    /// [`Builder::open`] creates the directory if it does not exist, and recovers what is in it. Without this call
    /// the database lives in memory alone.
    ///
    /// Tables and columns are matched by name, and may differ from what is stored: see
    /// [how a schema changes](macro@crate::Record#how-a-schema-changes). What the program does not know is kept as it
    /// is. Each stored row must pass the [constraints](crate::Record::check) of its row type. Volatile tables begin
    /// empty.
    ///
    /// Only one process can have the directory open, and only once.
    pub fn directory(mut self, path: impl AsRef<Path>) -> Self {
        let directory = path.as_ref();
        match &mut self.storage {
            Some(plan) => plan.directory = directory.to_owned(),
            None => self.storage = Some(StoragePlan::new(directory)),
        }
        self
    }

    /// Sets how the data in the [directory](Builder::directory) is kept. Call [`Builder::directory`] first.
    ///
    /// # Panics
    /// If no directory has been named.
    pub fn durability(mut self, options: DurabilityOptions) -> Self {
        self.plan().options = options;
        self
    }

    /// Opens the database for reading only, as it was at the end of an earlier epoch. Transactions that write fail.
    /// The epoch must lie between that of the last checkpoint and the last durable one. The directory is not
    /// changed. To go on from there, make a copy with [`Database::backup`] and open it. Call [`Builder::directory`]
    /// first.
    ///
    /// # Panics
    /// If no directory has been named.
    pub fn at_epoch(mut self, epoch: u64) -> Self {
        self.plan().at_epoch = Some(epoch);
        self
    }

    /// Drops a stored table that earlier versions of the program had, with all of its rows. A stored table that is
    /// neither opened nor dropped is kept. Has no effect if there is no such table. Call [`Builder::directory`] first.
    ///
    /// # Panics
    /// If no directory has been named.
    pub fn drop_table(mut self, name: impl Into<String>) -> Self {
        self.plan().drop_tables.push(name.into());
        self
    }

    /// Declares the version of the program's schema. The default is 0. A version is needed only for changes that
    /// [`Builder::migrate`] makes: everything that the [descriptions of the
    /// tables](macro@crate::Record#how-a-schema-changes) say does not need one.
    ///
    /// A directory with an older version is brought to this one when it is opened, by a hook for each step. A new
    /// directory gets this version. A directory with a newer version is refused, unless the newer program has
    /// [allowed](Builder::rolls_back_to) it.
    ///
    /// ```
    /// use weft::{Database, Record};
    ///
    /// #[derive(Clone, Record)]
    /// struct Account { #[record(key)] id: u32, cents: i64 }
    ///
    /// #[derive(Clone, Record)]
    /// struct Total { #[record(key)] id: u32, cents: i64 }
    ///
    /// # let directory = std::env::temp_dir().join(format!("weft-version-{}", std::process::id()));
    /// # drop(Database::builder().table::<Account>().directory(&directory).open()?);
    /// let database = Database::builder()
    ///     .table::<Account>()
    ///     .table::<Total>()
    ///     .directory(&directory)
    ///     .version(1)
    ///     .migrate(0, |tx| {
    ///         let mut cents = 0;
    ///         for account in tx.range(&tx.table::<Account>()?, ..) {
    ///             cents += account?.cents;
    ///         }
    ///         Ok(tx.insert(&tx.table()?, Total { id: 0, cents })?)
    ///     })
    ///     .open()?;
    /// # drop(database);
    /// # std::fs::remove_dir_all(&directory).expect("it was made above");
    /// # Ok::<(), weft::Error>(())
    /// ```
    pub fn version(mut self, version: u32) -> Self {
        self.versions.current = version;
        self
    }

    /// Adds the hook that brings a directory from version `from` to the next one. [`Builder::open`] calls the hooks of
    /// all steps that a directory needs, in order and in one transaction. Their writes and the new version become
    /// durable in one step, together with all other changes of the schema: a crash leaves the directory as it was, or
    /// with all of it. All rows are written again for that. No hook is called for a new directory, nor for a database
    /// in memory.
    ///
    /// All hooks see the tables as the program has them now, in which each row passes its constraints already. What
    /// a hook needs from the stored columns must be a column of the program, or be
    /// [computed](macro@crate::Record#how-a-schema-changes) from them.
    ///
    /// If a hook returns an error, or panics, the database is not opened and the directory is unchanged. To try hooks,
    /// open the database with [`Builder::at_epoch`]: it runs them in memory. The transaction keeps in memory what it
    /// reads and writes.
    ///
    /// # Panics
    /// If there is a hook from this version already.
    pub fn migrate(
        mut self,
        from: u32,
        hook: impl Fn(&Migration<'_, P>) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
        + 'static,
    ) -> Self {
        let before = self.versions.hooks.insert(from, Box::new(hook));
        assert!(before.is_none(), "there are two hooks from version {from}");
        self
    }

    /// Allows older versions of the program, from `version` on, to open the directory again. Without this call, a
    /// directory opens with this version and newer ones. An older program must understand what the hooks have written.
    /// What it writes itself is not migrated when a newer program opens the directory the next time.
    pub fn rolls_back_to(mut self, version: u32) -> Self {
        self.versions.oldest = Some(version);
        self
    }

    /// Calls `watcher` from time to time while the directory is recovered, on any of the threads that recover it.
    /// Call [`Builder::directory`] first.
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

    /// Puts the directory, which must have been named before, on another backend, such as a simulated disk in a
    /// test. If `manual`, no thread writes the log in the background. The thread that waits for the log writes it.
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

    /// Returns the name of each index's table, by the number of the index.
    fn tables_of_indexes(&self) -> Box<[&'static str]> {
        let tables = self.tables.iter();
        tables.flat_map(|table| std::iter::repeat_n(table.name, table.indexes)).collect()
    }

    /// Returns the names of all indexes, by number.
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
    /// - [`Failure::DuplicateTable`], [`Failure::RowTooLarge`].
    /// - [`Failure::SingleKey`] if a table has secondary indexes and the protocol has none.
    /// - [`Failure::Htm`] if the chosen hardware is not there, [`Failure::HtmChoice`] if the value of `WEFT_HTM` is
    ///   not valid.
    /// - [`Failure::Thread`] if the operating system cannot start a thread.
    /// - [`Failure::Procedures`] if the declarations of the procedures are not valid.
    /// - [`Failure::Storage`] if the directory cannot be used: another process or handle has it open, its files are
    ///   damaged, the tables do not match what is stored, a stored row breaks a constraint, a hook fails, or code of the
    ///   program panics. The directory is then unlocked, and unchanged.
    pub fn open(self) -> Result<Database<P>, Failure> {
        #[cfg(feature = "history")]
        let recording = self.record_history.then(|| Recording::new(self.index_names()));
        let tables_of_indexes = self.tables_of_indexes();
        let htm = match self.custom_htm {
            Some(htm) => htm,
            None => {
                let choice = match self.htm {
                    Some(choice) => choice,
                    None => Choice::from_environment()?.unwrap_or(default_htm::<P>()),
                };
                Htm::open(choice, self.retry_policy)?
            }
        };
        // Under a protocol that may defer changes, the log has a worker of its own, which makes them.
        let of_log = usize::from(P::CHOPS && self.storage.is_some());
        let workers_max = self.workers_max.max(1) + of_log;
        // Deferred changes would be missing in a history.
        #[cfg(feature = "history")]
        let is_recorded = recording.is_some();
        #[cfg(not(feature = "history"))]
        let is_recorded = false;
        let may_defer = !is_recorded;
        let options = ProtocolOptions { workers_max, may_defer, given: self.given };
        // The state of the protocol, and the state that all workers share.
        let protocol: P::Shared = ProtocolShared::new(&options)?;
        let mut shared = SharedState::new(htm, workers_max);
        shared.claimable_max = workers_max - of_log;
        shared.by_index = CountsByIndex::new(workers_max, tables_of_indexes);
        shared.gate = protocol.gate();
        shared.commits_by_rows = options.given.get::<CommitsByRows>().is_some();
        shared.observer = options.given.get::<Arc<dyn Observer>>().cloned();
        if let Some(bytes) = self.limits.memory_bytes {
            shared.memory.set_limit(bytes);
        }
        shared.ages.transaction_limit = self.limits.transaction_age;
        shared.ages.snapshot_limit = self.limits.snapshot_age;
        #[cfg(feature = "history")]
        {
            shared.recording = recording.map(Arc::new);
        }
        // A database that is opened at an epoch has the time of that epoch.
        let is_past = self.storage.as_ref().is_some_and(|plan| plan.at_epoch.is_some());
        shared.time.set_manual(self.clock.is_some() || is_past);
        #[cfg(feature = "canary")]
        {
            shared.time.flaw = self.time_flaw;
            shared.operation_flaw = self.operation_flaw;
        }
        let shared = Arc::new(shared);
        shared.memory.reserve(self.reserve_bytes);
        let identity = Arc::new(Identity);
        let mut tables = BTreeMap::new();
        let mut indexes = 0;
        // The tables, empty. Their indexes are numbered in the order of the calls.
        let slot = shared.take_slot().expect("no thread uses the database yet");
        let memory = WorkerMemory::new(Arc::clone(&shared), slot);
        for table in self.tables {
            if P::SINGLE_KEY && table.indexes > 1 {
                let (protocol, table, attempted) = (P::NAME, table.name, "a secondary index");
                return Err(Failure::SingleKey { protocol, table, attempted });
            }
            let made = (table.make)(
                &identity,
                (table.name, indexes),
                const { &record_kind::<P>() },
                &memory,
                self.all_ordered,
            )?;
            if tables.insert(table.name, made).is_some() {
                return Err(Failure::DuplicateTable { table: table.name });
            }
            indexes += table.indexes;
        }
        memory.leave();
        shared.give_slot(slot);
        let first = tables.values().find(|table| table.number() == 0);
        if let Some(core) = first.map(|table| table.reference()) {
            let _ = shared.first_table.set(core);
        }
        let ticker = match self.storage {
            // The log ticks the clock. Without a log a thread of its own does.
            Some(_) => None,
            // The simulated machine's virtual time cannot contain a thread that ticks in the host's time.
            None if cfg!(weft_sim) => None,
            None => {
                let shared = Arc::clone(&shared);
                let tick = move || {
                    shared.clock.tick();
                    shared.watch_ages();
                };
                let ticker = Ticker::start(EPOCH_INTERVAL, tick);
                Some(ticker.map_err(|error| Failure::Thread { message: error.to_string() })?)
            }
        };
        let durability = self.storage.as_ref().map_or(Durability::None, StoragePlan::durability);
        let inner = Arc::new_cyclic(|this| Inner {
            this: Weak::clone(this),
            engine: Engine { protocol: Arc::new(protocol), shared, identity, durability },
            workers: Workers::new(workers_max),
            tables,
            indexes,
            ticker,
            storage: OnceLock::new(),
            expiry: Expiry::default(),
            results: OnceLock::new(),
        });
        if of_log > 0 {
            LogWorker::reserve(&inner);
        }
        let clock = self.clock.as_ref().filter(|_| !is_past);
        // Recovery, if there is a directory. It also starts the log. If it fails, the rows that it has recovered are
        // dropped with `inner`.
        if let Some(plan) = self.storage {
            // Decoding, and migrating, run code of the program, which may panic.
            let memories = Arc::new(FillingMemories::new(Arc::clone(&inner.shared)));
            let opened = catch_unwind(AssertUnwindSafe(|| {
                open_storage(plan, &self.versions, clock, &inner, &memories)
            }));
            // Dropped here, and not while a panic unwinds, since no rows are dropped during that.
            drop(memories);
            let storage = opened.unwrap_or_else(|panic| {
                Err(StorageError::Panicked { message: panic_message(&*panic) }.into())
            })?;
            let storage = inner.storage.get_or_init(|| storage);
            inner.shared.time.advance_to(storage.recovered().manifest.time);
            storage.start_checkpoints(&inner)?;
        }
        match clock {
            Some(clock) => clock.attach(&inner.shared),
            None => inner.shared.time.follow_system(),
        }
        if let Some(options) = self.once {
            let results = Results::open(&Database::of(Arc::clone(&inner)), options)?;
            inner.results.get_or_init(|| results);
        }
        let user = UserHandles(Arc::downgrade(&inner));
        Ok(Database { user: Some(Arc::new(user)), inner })
    }
}

/// Returns the message of a panic.
pub(super) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Returns the backend of a database for which none was chosen.
fn default_htm<P: Protocol>() -> Choice {
    if P::TWIN.is_some() { Choice::Auto } else { Choice::Software }
}

/// Recovers the tables that are not volatile, runs the hooks that the directory needs, and makes the log record changes
/// from now on. The hooks have the time of `clock`, or of the system, or the recovered time if it is later.
fn open_storage<P: Protocol>(
    plan: StoragePlan,
    versions: &Versions<P>,
    clock: Option<&ManualClock>,
    inner: &Arc<Inner<P>>,
    memories: &Arc<FillingMemories>,
) -> Result<Storage, Failure> {
    let mut tables: Vec<_> = inner.tables.values().collect();
    // Sorted into the order in which the program names them, by which they are numbered.
    tables.sort_by_key(|table| table.number());
    let (named, stored): (Vec<_>, Vec<_>) = tables
        .into_iter()
        .filter_map(|table| Some((table, Arc::clone(table).recovering(memories)?)))
        .unzip();
    let migrate = |from| {
        // The transaction needs a worker.
        memories.give_up();
        match clock {
            Some(clock) => inner.shared.time.advance_to(clock.time().as_millis()),
            None => inner.shared.time.follow_system(),
        }
        let database = Database::of(Arc::clone(inner));
        versions.run(from, &database)?;
        // The hooks have deleted and replaced rows, so what is written is what a snapshot shows.
        let mut snapshot = database
            .open_snapshot()
            .map_err(|failure| StorageError::Migration { from, message: failure.to_string() })?;
        // The log may delete rows that have expired, and replace them by changes of what was there.
        snapshot.show_expired();
        let tables: Vec<_> = named.iter().map(|&table| Arc::clone(table)).collect();
        let rows: MigratedRows = Box::new(move |position, (part, parts), sink| {
            let table = Arc::clone(&tables[position]);
            table.encode_rows(&snapshot, (part as u32, parts as u32), sink)
        });
        Ok(rows)
    };
    let storage = Storage::open(plan, &stored, &inner.shared, &versions.program(), migrate)?;
    for (table, &number) in named.iter().zip(&storage.recovered().table_numbers) {
        table.set_log_number(number);
    }
    Ok(storage)
}
