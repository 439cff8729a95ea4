//! Databases with a directory: how the engine uses the modules of [`durability`](crate::durability).
//!
//! ```text
//!   open        lock the directory; recover the tables; start the clock behind what was recovered;
//!               start the log, which ticks it
//!   commit      draw an epoch; append the writes to the log; wait until the epoch is durable, if
//!               the database acknowledges durable commits only
//!   checkpoint  open a snapshot at the end of an epoch; wait until that is durable; write all rows
//!               as the snapshot shows them; the log before it goes
//!   close       write and sync the rest of the log, and record that the run has ended well
//! ```

use std::cell::RefCell;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_htm::blocking::{Condvar, Mutex, hold};

use super::background::{self, Stop};
use super::stored::AnyTable;
use super::{Database, Inner};
use crate::commit::{CommitToken, Durability, Protocol};
use crate::durability::{
    Backend, CheckpointOptions, CheckpointOutcome, CheckpointProgress, CheckpointSource, Epochs,
    FileSystem, LockGuard, Log, LogMetrics, LogOptions, Manifest, Migrate, MigratedRows,
    ProgramVersion, RecoveryOptions, RecoveryProgress, RecoveryReport, StagedTable, StorageError,
    StoredTable, end_run, lock, read_rows, recover_as, write_backup, write_checkpoint,
};
use crate::error::Failure;
use crate::row::description::TableDescription;
use crate::snapshot::Snapshot;
use crate::store::ages::SnapshotLife;
use crate::store::deadline::Deadline;
use crate::store::worker::{EngineLog, SharedState};
use crate::sync::clock::{epoch_of, last_number_of};
use crate::sync::gate::Outsider;

/// When a commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// When the transaction, and all that it depends on, is durable: it survives any crash. A commit waits for the
    /// disk, about as long as a sync takes. Many commits share one sync.
    #[default]
    Durable,
    /// When the transaction has committed in memory. It becomes durable soon after: within
    /// [`DurabilityOptions::epoch_interval`] and the time of one or two syncs. It never becomes durable without all
    /// that it depends on. [`Database::wait_durable`] waits for one transaction.
    Committed,
}

/// How a database with a directory keeps its data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DurabilityOptions {
    /// When a commit returns. Default: [`Acknowledge::Durable`].
    pub acknowledge: Acknowledge,
    /// The longest time from one epoch to the next. Every epoch in which something was written costs a sync.
    /// Default: 10 ms (in the papers 40 ms).
    pub epoch_interval: Duration,
    /// How many threads write the log, each to its own files. Default: 1.
    pub loggers: usize,
    /// Size of a file of the log, in bytes. Default: 64 MiB.
    pub segment_bytes: u64,
    /// About how many bytes of the log may wait for the disk. When there are more, writing transactions wait, too.
    /// Default: 256 MiB.
    pub buffer_bytes_max: usize,
    /// After how many bytes of log the database writes a checkpoint automatically; `None` for never. Default: 1
    /// GiB.
    pub checkpoint_log_bytes: Option<u64>,
    /// How many threads recover the database, and write its checkpoints. Default: one per core.
    pub threads: usize,
    /// How many bytes of the disk the log keeps for what has committed when the disk is found to be full. From then
    /// on transactions that write are refused, until there is space for so many bytes again. As long as they
    /// suffice, everything that has committed becomes durable, and reads go on. 0 for none. Default: 16 MiB.
    pub spare_bytes: u64,
    /// How many bytes of its file the log fills with zeros at a time before it writes small groups of transactions there. Where a
    /// sync takes long if the file grows with it, as on ext4 and XFS, commits are durable sooner: 1.4 times as many in a second
    /// by one client on ext4. The zeros are written once more than needed, which is for nothing on file systems that never
    /// write over bytes, such as Btrfs and ZFS. 0 for none. Default: 512 KiB.
    pub reserve_bytes: u64,
    /// How many bytes of the log stay after a checkpoint has made them needless for recovery, so that readers of the
    /// log (the crate `weft-changes`) can be that far behind, and still go on after a restart. Whole files stay, and
    /// no more of them than fit. Default: 0.
    pub keep_log_bytes: u64,
}

impl Default for DurabilityOptions {
    fn default() -> Self {
        let log = LogOptions::default();
        DurabilityOptions {
            acknowledge: Acknowledge::default(),
            epoch_interval: log.epoch_interval,
            loggers: log.loggers,
            segment_bytes: log.segment_bytes,
            buffer_bytes_max: log.buffer_bytes_max,
            checkpoint_log_bytes: Some(1 << 30),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            spare_bytes: 16 << 20,
            reserve_bytes: 512 << 10,
            keep_log_bytes: 0,
        }
    }
}

impl DurabilityOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`DurabilityOptions::acknowledge`].
    pub fn acknowledge(mut self, acknowledge: Acknowledge) -> Self {
        self.acknowledge = acknowledge;
        self
    }

    /// Sets [`DurabilityOptions::epoch_interval`].
    pub fn epoch_interval(mut self, interval: Duration) -> Self {
        self.epoch_interval = interval;
        self
    }

    /// Sets [`DurabilityOptions::loggers`].
    pub fn loggers(mut self, loggers: usize) -> Self {
        self.loggers = loggers;
        self
    }

    /// Sets [`DurabilityOptions::segment_bytes`].
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets [`DurabilityOptions::buffer_bytes_max`].
    pub fn buffer_bytes_max(mut self, bytes: usize) -> Self {
        self.buffer_bytes_max = bytes;
        self
    }

    /// Sets [`DurabilityOptions::checkpoint_log_bytes`].
    pub fn checkpoint_log_bytes(mut self, bytes: Option<u64>) -> Self {
        self.checkpoint_log_bytes = bytes;
        self
    }

    /// Sets [`DurabilityOptions::threads`].
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets [`DurabilityOptions::spare_bytes`].
    pub fn spare_bytes(mut self, bytes: u64) -> Self {
        self.spare_bytes = bytes;
        self
    }

    /// Sets [`DurabilityOptions::reserve_bytes`].
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.reserve_bytes = bytes;
        self
    }

    /// Sets [`DurabilityOptions::keep_log_bytes`].
    pub fn keep_log_bytes(mut self, bytes: u64) -> Self {
        self.keep_log_bytes = bytes;
        self
    }

    fn log_options(&self, manual: bool) -> LogOptions {
        LogOptions {
            loggers: self.loggers.max(1),
            epoch_interval: self.epoch_interval,
            segment_bytes: self.segment_bytes,
            buffer_bytes_max: self.buffer_bytes_max,
            spare_bytes: self.spare_bytes,
            reserve_bytes: self.reserve_bytes,
            manual,
            ..LogOptions::default()
        }
    }
}

/// A function that is called from time to time while a database is recovered.
pub(crate) type RecoveryWatcher = Arc<dyn Fn(RecoveryProgress) + Send + Sync>;

/// Where and how a database is to be stored.
#[derive(Clone)]
pub(crate) struct StoragePlan {
    pub directory: PathBuf,
    pub options: DurabilityOptions,
    pub backend: Arc<dyn Backend>,
    /// Whether no thread writes the log or checkpoints in the background: for tests that must be repeatable.
    pub manual: bool,
    pub at_epoch: Option<u64>,
    pub watcher: Option<RecoveryWatcher>,
    /// The names of stored tables that the program drops.
    pub drop_tables: Vec<String>,
}

impl StoragePlan {
    pub fn new(directory: &Path) -> Self {
        StoragePlan {
            directory: directory.to_owned(),
            options: DurabilityOptions::default(),
            backend: Arc::new(FileSystem),
            manual: false,
            at_epoch: None,
            watcher: None,
            drop_tables: Vec::new(),
        }
    }

    /// Returns what happens to commits when the process ends.
    pub fn durability(&self) -> Durability {
        match self.at_epoch {
            Some(epoch) => Durability::ReadOnly { epoch },
            None => {
                let acknowledges_durable = self.options.acknowledge == Acknowledge::Durable;
                Durability::Logged { acknowledges_durable }
            }
        }
    }
}

/// The directory of an open database.
pub(crate) struct Storage {
    plan: StoragePlan,
    manifest: Mutex<Manifest>,
    /// `None` if the database was opened for reading only.
    log: Option<Arc<Log>>,
    recovered: RecoveryReport,
    checkpointing: Checkpointing,
    checkpointer: Mutex<Option<Checkpointer>>,
    /// Set when the run has ended well.
    has_ended: OnceLock<()>,
    /// Kept as long as the database is open.
    lock: Mutex<Option<Box<dyn LockGuard>>>,
}

/// Lets one checkpoint, backup or load run at a time.
#[derive(Default)]
struct Checkpointing {
    state: Mutex<CheckpointState>,
    has_ended: Condvar,
}

#[derive(Default)]
struct CheckpointState {
    is_held: bool,
    /// How many bytes had been logged when the last checkpoint began.
    logged_before: u64,
    metrics: CheckpointMetrics,
}

/// The checkpoints that a database has written since it was opened, also those of bulk loads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointMetrics {
    /// How many were written.
    pub written: u64,
    /// How many could not be written. The checkpoint before it stays, and so does the log. The database tries again.
    pub failed: u64,
    /// Why the last one could not be written; `None` if it was.
    pub last_failure: Option<Failure>,
}

impl Checkpointing {
    /// Waits until no other thread writes a checkpoint. Returns false if the deadline passes before that.
    fn hold(&self, deadline: Option<Deadline>) -> bool {
        let mut state = hold(&self.state);
        while state.is_held {
            state = match deadline {
                None => self.has_ended.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    let waited = self.has_ended.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.is_held = true;
        true
    }

    fn give_up(&self) {
        hold(&self.state).is_held = false;
        self.has_ended.notify_all();
    }
}

/// As long as this lives, no other checkpoint, backup or load begins. The user's code that the calling thread runs
/// in this time [must not](Storage::in_user_code) ask for one, nor close the database.
pub(crate) struct CheckpointHold<'s> {
    storage: &'s Storage,
    _in_user_code: UserCodeGuard,
}

impl Drop for CheckpointHold<'_> {
    fn drop(&mut self) {
        self.storage.checkpointing.give_up();
    }
}

thread_local! {
    /// The storages for whose checkpoints, backups and loads this thread is running user code.
    static USER_CODE_OF: RefCell<Vec<*const ()>> = const { RefCell::new(Vec::new()) };
}

/// As long as this lives, this thread runs user code for a checkpoint, a backup or a load.
pub(crate) struct UserCodeGuard(PhantomData<*const ()>);

impl Drop for UserCodeGuard {
    fn drop(&mut self) {
        let _ = USER_CODE_OF.try_with(|storages| storages.borrow_mut().pop());
    }
}

/// The engine's epochs, as the log sees them.
struct EngineEpochs(Weak<SharedState>);

impl Epochs for EngineEpochs {
    fn close_epoch(&self) -> Option<u64> {
        let shared = self.0.upgrade().expect("the log is shut down before the engine goes");
        // No procedure may have pieces in two epochs, since one of them could survive without the other. So the
        // log passes the gate as an outsider, which waits until no procedure is between two pieces.
        let gate = shared.gate.as_ref();
        let _outsider = gate.map(|gate| {
            let entered = Outsider::enter(gate, || shared.grace.slots_used(), || Ok(()));
            entered.unwrap_or_else(|never: Infallible| match never {})
        });
        // What procedures have deferred belongs to this epoch, too.
        if let Some(before) = shared.before_epoch_ends.get()
            && !before.make_whole()
        {
            return None;
        }
        let epoch = shared.clock.tick();
        shared.commits.wait(shared.grace.slots_used());
        Some(epoch)
    }

    fn pass_time(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.watch_ages();
        }
    }
}

impl Storage {
    /// Recovers `tables`, which are empty, and starts the log. If the directory has an older version of the schema than
    /// the program, calls `migrate` with that version, before anything is written.
    pub fn open(
        plan: StoragePlan,
        tables: &[Arc<dyn StoredTable>],
        shared: &Arc<SharedState>,
        version: &ProgramVersion,
        migrate: impl Fn(u32) -> Result<MigratedRows, StorageError>,
    ) -> Result<Storage, StorageError> {
        let guard = lock(&*plan.backend, &plan.directory)?;
        let report = |progress| {
            if let Some(watcher) = &plan.watcher {
                watcher(progress);
            }
        };
        let options = RecoveryOptions {
            threads: plan.options.threads.clamp(1, shared.counters.len()),
            loggers: plan.options.loggers.max(1) as u32,
            up_to_epoch: plan.at_epoch,
            progress: Some(&report),
            check_room: Some(&|| shared.check_memory()),
            drop_tables: &plan.drop_tables,
            keep_log_bytes: plan.options.keep_log_bytes,
            ..RecoveryOptions::default()
        };
        let mut migrate = |from, epoch, time| {
            shared.clock.start_at(epoch);
            shared.time.advance_to(time);
            let rows = migrate(from)?;
            Ok((rows, shared.time.present()))
        };
        let program = Some((version, &mut migrate as &mut Migrate<'_>));
        let recovered = recover_as(&*plan.backend, &plan.directory, tables, &options, program)?;
        // Start the clock after the last recovered epoch.
        shared.clock.start_at(recovered.next_epoch);
        let log = match plan.at_epoch {
            Some(_) => None,
            None => {
                let log = Arc::new(Log::start(
                    Arc::clone(&plan.backend),
                    &plan.directory.join("log"),
                    plan.options.log_options(plan.manual),
                    shared.counters.len(),
                    Arc::new(EngineEpochs(Arc::downgrade(shared))),
                    recovered.next_epoch,
                    &recovered.next_segments,
                )?);
                let set = shared.log.set(EngineLog::new(Arc::clone(&log)));
                assert!(set.is_ok(), "a database has one log");
                Some(log)
            }
        };
        Ok(Storage {
            manifest: Mutex::new(recovered.manifest.clone()),
            plan,
            log,
            recovered,
            checkpointing: Checkpointing::default(),
            checkpointer: Mutex::new(None),
            has_ended: OnceLock::new(),
            lock: Mutex::new(Some(guard)),
        })
    }

    /// Returns the numbers of the tables that are stored with columns that the program does not have, or that it does
    /// not have at all.
    fn kept_tables(&self) -> Vec<u32> {
        let manifest = hold(&self.manifest);
        let mut numbers = manifest.current_tables();
        numbers.retain(|number| {
            manifest.tables[*number as usize].kept > 0
                || !self.recovered.table_numbers.contains(number)
        });
        numbers
    }

    /// Returns what was recovered.
    pub fn recovered(&self) -> &RecoveryReport {
        &self.recovered
    }

    /// Waits until no other thread writes a checkpoint or a backup, or loads a table, and prevents others from
    /// beginning one.
    ///
    /// # Errors
    /// [`Failure::NestedCheckpoint`] if this thread is inside one of these, since it would wait for itself.
    pub fn hold_checkpoints(&self) -> Result<CheckpointHold<'_>, Failure> {
        self.check_user_code()?;
        self.checkpointing.hold(None);
        Ok(CheckpointHold { storage: self, _in_user_code: self.in_user_code() })
    }

    /// Notes that this thread runs user code for a checkpoint, a backup or a load. That code must not ask for
    /// another one, nor close the database: the thread would wait for itself. (A thread that drops its thread-local
    /// values can no longer note it.)
    pub fn in_user_code(&self) -> UserCodeGuard {
        let storage: *const Storage = self;
        let _ = USER_CODE_OF.try_with(|storages| storages.borrow_mut().push(storage.cast()));
        UserCodeGuard(PhantomData)
    }

    /// Checks that this thread does not run [such code](Storage::in_user_code).
    pub fn check_user_code(&self) -> Result<(), Failure> {
        let storage: *const Storage = self;
        let is_inside =
            USER_CODE_OF.try_with(|storages| storages.borrow().contains(&storage.cast()));
        if is_inside == Ok(true) { Err(Failure::NestedCheckpoint) } else { Ok(()) }
    }

    pub fn log_metrics(&self) -> Option<LogMetrics> {
        self.log.as_ref().map(|log| log.metrics())
    }

    pub fn checkpoint_metrics(&self) -> CheckpointMetrics {
        hold(&self.checkpointing.state).metrics.clone()
    }

    /// Ends the run: makes everything durable that was committed. Waits for a running checkpoint, backup or load.
    ///
    /// # Errors
    /// - [`Failure::StillRunning`] if that takes longer than to the deadline.
    /// - [`Failure::NestedCheckpoint`] inside a checkpoint, a backup or a load.
    /// - [`Failure::Storage`].
    pub fn end(&self, deadline: Option<Deadline>) -> Result<(), Failure> {
        self.check_user_code()?;
        let still_running = || {
            let waited = deadline.map_or(Duration::ZERO, |deadline| deadline.limit);
            Failure::StillRunning { waited }
        };
        let checkpointer = hold(&self.checkpointer).take();
        if let Some(checkpointer) = checkpointer
            && let Err(checkpointer) = checkpointer.stop(deadline)
        {
            *hold(&self.checkpointer) = Some(checkpointer);
            return Err(still_running());
        }
        if !self.checkpointing.hold(deadline) {
            return Err(still_running());
        }
        let _no_checkpoint = CheckpointHold { storage: self, _in_user_code: self.in_user_code() };
        Ok(self.end_log()?)
    }

    /// Makes everything durable that was committed, and ends the log.
    fn end_log(&self) -> Result<(), StorageError> {
        let Some(log) = &self.log else { return Ok(()) };
        if self.has_ended.get().is_some() {
            return Ok(());
        }
        log.shutdown()?;
        let (backend, directory) = (&*self.plan.backend, &self.plan.directory);
        end_run(backend, directory, &mut hold(&self.manifest), log.durable_epoch())?;
        self.has_ended.get_or_init(|| ());
        Ok(())
    }

    /// Unlocks the directory. The run must have [ended](Storage::end).
    ///
    /// This is not left to the drop of the storage: a thread that has just ended, and gives its worker back, may
    /// hold the storage for a moment longer than the last handle.
    pub fn unlock(&self) {
        *hold(&self.lock) = None;
    }

    /// Starts the thread that writes checkpoints automatically, if the options ask for it.
    pub fn start_checkpoints<P: Protocol>(&self, inner: &Arc<Inner<P>>) -> Result<(), Failure> {
        let Some(bytes) = self.plan.options.checkpoint_log_bytes else { return Ok(()) };
        if self.log.is_none() || self.plan.manual {
            return Ok(());
        }
        *hold(&self.checkpointer) = Some(Checkpointer::start(Arc::downgrade(inner), bytes)?);
        Ok(())
    }
}

/// The snapshot that a checkpoint, or a backup, is written from.
struct CheckpointedSnapshot<'a, P: Protocol> {
    snapshot: Snapshot,
    database: &'a Database<P>,
    /// The descriptions of the tables, by number.
    descriptions: Vec<TableDescription>,
    /// The tables that the program does not have, or not with all columns, by number.
    kept: Vec<(u32, Arc<StagedTable>)>,
}

impl<P: Protocol> CheckpointedSnapshot<'_, P> {
    /// Returns the program's table with this number in the manifest.
    fn table(&self, number: u32) -> Option<&Arc<dyn AnyTable>> {
        let name = &self.descriptions[number as usize].name;
        self.database.inner().tables.values().find(|table| table.name() == name)
    }

    /// Reads the rows that memory does not have, or not with all columns, from the directory, which holds them as they
    /// were at the snapshot's epoch.
    fn read_kept(&mut self, storage: &Storage) -> Result<(), StorageError> {
        let numbers = storage.kept_tables();
        if numbers.is_empty() {
            return Ok(());
        }
        let table = |number| {
            let description = self.descriptions[number as usize].clone();
            (number, Arc::new(StagedTable::new(description)))
        };
        self.kept = numbers.into_iter().map(table).collect();
        let has_columns = self.kept.iter().any(|(_, table)| table.description().kept > 0);
        if has_columns
            && storage.plan.at_epoch.is_some()
            && storage.recovered.migrated_from.is_some()
        {
            let message = "hooks were tried on a table with columns that the program does not have; \
                           open the directory itself before this";
            return Err(StorageError::SchemaMismatch { message: message.to_owned() });
        }
        let stored = |table: &Arc<StagedTable>| Arc::clone(table) as Arc<dyn StoredTable>;
        let tables = self.kept.iter().map(|(number, table)| (*number, stored(table)));
        let tables: Vec<_> = tables.collect();
        let StoragePlan { backend, directory, options, at_epoch, .. } = &storage.plan;
        let epoch = at_epoch.unwrap_or_else(|| self.epoch());
        read_rows(&**backend, directory, &tables, epoch, options.threads.max(1))
    }
}

impl<P: Protocol> CheckpointSource for CheckpointedSnapshot<'_, P> {
    fn epoch(&self) -> u64 {
        epoch_of(self.snapshot.number())
    }

    fn next_key(&self, table: u32) -> Option<u64> {
        let kept = self.kept.iter().find(|(number, _)| *number == table);
        let kept = kept.and_then(|(_, kept)| kept.next_key());
        self.table(table).and_then(|table| table.next_key()).max(kept)
    }

    fn time(&self) -> u64 {
        self.snapshot.now().as_millis()
    }

    fn rows(
        &self,
        table: u32,
        part: u32,
        parts: u32,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        if let Some((_, kept)) = self.kept.iter().find(|(number, _)| *number == table) {
            return kept.encode_rows((part as usize, parts as usize), sink);
        }
        let table = self.table(table).expect("a current table is one that is open");
        let (table, inner) = (Arc::clone(table), self.database.inner());
        let _in_user_code = inner.storage.get().map(Storage::in_user_code);
        table.encode_rows(&self.snapshot, (part, parts), sink)
    }
}

/// What a checkpoint, or a backup, has written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// The checkpoint has the state at the end of this epoch.
    pub epoch: u64,
    /// How many rows it holds.
    pub rows: u64,
    /// The length of its files, in bytes.
    pub bytes: u64,
}

impl Snapshot {
    /// Returns a token that stands for all commits that the snapshot shows. When [`Database::wait_durable`] has
    /// returned for it, no crash loses what was read from the snapshot. ([`Database::snapshot`] waits
    /// automatically, if commits are acknowledged when they are durable.)
    pub fn token(&self) -> CommitToken {
        let log = self.shared().log.get();
        // The epochs of all that the snapshot shows are at most the log's last epoch, and at most the snapshot's.
        let last_epoch = |engine: &EngineLog| engine.last_epoch().min(epoch_of(self.number()));
        CommitToken::of(log.map_or(0, last_epoch))
    }
}

impl<P: Protocol> Database<P> {
    fn storage(&self) -> Result<&Storage, Failure> {
        self.inner().storage.get().ok_or(Failure::InMemory)
    }

    /// Returns the database's directory, if it has one.
    pub fn directory(&self) -> Option<&Path> {
        self.inner().storage.get().map(|storage| &*storage.plan.directory)
    }

    /// Returns what was found in the directory when the database was opened, or `None` if the database has no
    /// directory.
    pub fn recovered(&self) -> Option<&RecoveryReport> {
        self.inner().storage.get().map(Storage::recovered)
    }

    /// Returns the last durable epoch, or `None` if the database has no log.
    pub fn durable_epoch(&self) -> Option<u64> {
        self.inner().shared.log.get().map(|engine| engine.log.durable_epoch())
    }

    /// Waits until a transaction is durable, with all that it depends on.
    ///
    /// # Errors
    /// - [`Failure::InMemory`], [`Failure::ReadOnly`].
    /// - [`Failure::Storage`] if the transaction is not durable. After [`StorageError::DiskFull`] it becomes
    ///   durable when there is space again. After any other error it does not.
    /// - [`Failure::NestedTransaction`] between two pieces of a procedure, because the log waits for the
    ///   procedure's end.
    pub fn wait_durable(&self, commit: CommitToken) -> Result<(), Failure> {
        self.inner().wait_durable(self.claimed_worker(), commit)
    }

    /// Returns a future that is ready when a transaction is durable, with all that it depends on: what
    /// [`Database::wait_durable`] waits for. So a task can run short transactions itself, with
    /// [`Database::transact_with_token`], and await the disk without blocking its executor.
    ///
    /// The wait begins with this call. Dropping the future has no effect on the transaction. The future is woken by a
    /// thread of the database, which wakes all others too, so a waker must not block.
    ///
    /// # Errors
    /// The future has those of [`Database::wait_durable`], except [`Failure::NestedTransaction`]: do not block on the
    /// future inside a transaction. [`Failure::Thread`] if the system cannot start the thread.
    pub fn when_durable(
        &self,
        commit: CommitToken,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<P> {
        let (sender, durable) = oneshot::async_channel();
        self.inner().when_durable(commit, move |result| {
            // An error means that the future was dropped.
            let _ = sender.send(result);
        });
        async move { durable.await.expect("every commit that was reported is acknowledged") }
    }

    /// If commits are acknowledged when they are durable, waits until everything is durable that may have been read
    /// from the snapshot so far.
    pub(crate) fn await_durable_reads(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        self.inner().acknowledge(|| self.claimed_worker(), snapshot.token())
    }

    /// Waits until everything is durable that has committed so far.
    ///
    /// # Errors
    /// As [`Database::wait_durable`].
    pub fn flush(&self) -> Result<(), Failure> {
        self.engine().log()?;
        self.wait_durable(self.last_commit())
    }

    /// Returns a token that stands for all that has committed so far.
    fn last_commit(&self) -> CommitToken {
        let log = self.inner().shared.log.get();
        // A commit under way may have appended to the log in the present epoch, and not have reported it yet. So
        // the token is of the present epoch, not of the last one reported.
        let epoch = log.map_or(0, |_| self.inner().shared.clock.epoch());
        CommitToken::of(epoch)
    }

    /// Writes a checkpoint, which has all rows as they are now. Then removes the log before it, so that the next
    /// opening need not replay it. Transactions can run at the same time.
    ///
    /// # Errors
    /// - [`Failure::InMemory`], [`Failure::ReadOnly`].
    /// - [`Failure::NestedTransaction`] in the `drop` of a row, if that is part of a commit.
    /// - [`Failure::NestedCheckpoint`] inside another checkpoint, a backup or a load.
    /// - [`Failure::Storage`] if the checkpoint cannot be written. The checkpoint before it is still there then,
    ///   and so is the log.
    pub fn checkpoint(&self) -> Result<CheckpointReport, Failure> {
        self.checkpoint_with(|_| {})
    }

    /// As [`Database::checkpoint`]. From time to time one of the threads that write it calls `progress`.
    ///
    /// # Errors
    /// As [`Database::checkpoint`].
    pub fn checkpoint_with(
        &self,
        progress: impl Fn(CheckpointProgress) + Sync,
    ) -> Result<CheckpointReport, Failure> {
        let storage = self.storage()?;
        self.engine().log()?;
        self.check_no_commit()?;
        let mut held = storage.hold_checkpoints()?;
        let progress = |part| {
            let _in_user_code = storage.in_user_code();
            progress(part);
        };
        self.checkpoint_while_held(storage, &mut held, false, &progress)
    }

    /// Writes a checkpoint, and counts it. `held` shows that no other thread is writing one. `is_load` says that it
    /// has rows that were not logged.
    pub(crate) fn checkpoint_while_held(
        &self,
        storage: &Storage,
        _held: &mut CheckpointHold<'_>,
        is_load: bool,
        progress: &(dyn Fn(CheckpointProgress) + Sync),
    ) -> Result<CheckpointReport, Failure> {
        let log = self.engine().log()?;
        let logged = log.metrics().bytes_written;
        let written = self.write_checkpoint(storage, log, is_load, progress);
        let mut state = hold(&storage.checkpointing.state);
        match &written {
            Ok(_) => {
                state.logged_before = logged;
                state.metrics.written += 1;
            }
            Err(_) => state.metrics.failed += 1,
        }
        state.metrics.last_failure = written.as_ref().err().cloned();
        written
    }

    fn write_checkpoint(
        &self,
        storage: &Storage,
        log: &Log,
        is_load: bool,
        progress: &(dyn Fn(CheckpointProgress) + Sync),
    ) -> Result<CheckpointReport, Failure> {
        if is_load {
            // The checkpoint's epoch has no other changes than those of the load, so a reader of the log has not
            // passed it. What procedures have deferred belongs to the epoch before.
            let (claim, clock) = (self.claim(None)?, &self.inner().shared.clock);
            P::with_whole_rows(self.engine(), claim.worker(), || clock.tick())?;
        }
        let mut source = self.snapshot_source(storage, "checkpoint")?;
        // The log must be durable up to the snapshot's epoch before the checkpoint replaces it.
        log.wait_durable(source.epoch())?;
        if is_load {
            log.mark_unlogged(source.epoch())?;
        }
        source.read_kept(storage)?;
        let plan = &storage.plan;
        let options = CheckpointOptions {
            threads: plan.options.threads.max(1),
            progress: Some(progress),
            keep_log_bytes: plan.options.keep_log_bytes,
        };
        let (backend, directory) = (&*plan.backend, &*plan.directory);
        let written = write_checkpoint(backend, directory, &storage.manifest, &source, &options);
        if is_load && written.is_err() {
            // The table will be empty again, so no crash may bring the rows of this checkpoint back.
            let restored = hold(&storage.manifest).restore(backend, directory);
            restored.inspect_err(|error| log.fail(error.clone()))?;
        }
        let CheckpointOutcome { checkpoint, .. } = written?;
        let (rows, bytes) = (checkpoint.rows(), checkpoint.bytes());
        Ok(CheckpointReport { epoch: checkpoint.epoch, rows, bytes })
    }

    /// Copies the database as it is now into another directory, which must be empty or not exist. The copy is an
    /// independent database. Transactions can run at the same time.
    ///
    /// A database that was opened [at an earlier epoch](crate::Builder::at_epoch) can be backed up, too. Open the
    /// copy to go on from that epoch.
    ///
    /// # Errors
    /// - [`Failure::InMemory`].
    /// - [`Failure::NestedTransaction`] and [`Failure::NestedCheckpoint`] as for [`Database::checkpoint`].
    /// - [`Failure::Storage`].
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<CheckpointReport, Failure> {
        self.backup_with(directory, |_| {})
    }

    /// As [`Database::backup`]. From time to time one of the threads that write it calls `progress`.
    ///
    /// # Errors
    /// As [`Database::backup`].
    pub fn backup_with(
        &self,
        directory: impl AsRef<Path>,
        progress: impl Fn(CheckpointProgress) + Sync,
    ) -> Result<CheckpointReport, Failure> {
        let plan = &self.storage()?.plan;
        let progress = |part| {
            let _in_user_code = self.inner().storage.get().map(Storage::in_user_code);
            progress(part);
        };
        let options = CheckpointOptions {
            threads: plan.options.threads.max(1),
            progress: Some(&progress),
            keep_log_bytes: 0,
        };
        let backup = self.read_stored(|manifest, source| {
            write_backup(&*plan.backend, directory.as_ref(), manifest, source, &options)
        })?;
        let checkpoint = backup.checkpoint.expect("a backup is a checkpoint");
        let (rows, bytes) = (checkpoint.rows(), checkpoint.bytes());
        Ok(CheckpointReport { epoch: checkpoint.epoch, rows, bytes })
    }

    /// Passes all rows to `read`, in their stored form, as they are now: what [`Database::backup`] copies. They include
    /// the tables and columns that the program does not have. Transactions can run at the same time, but no checkpoint
    /// is written.
    ///
    /// # Errors
    /// Those of [`Database::backup`], and those of `read`.
    pub fn read_stored<R>(
        &self,
        read: impl FnOnce(&Manifest, &dyn CheckpointSource) -> Result<R, StorageError>,
    ) -> Result<R, Failure> {
        let storage = self.storage()?;
        self.check_no_commit()?;
        let _alone = storage.hold_checkpoints()?;
        let mut source = self.snapshot_source(storage, "backup")?;
        if let Some(log) = &storage.log
            && !storage.kept_tables().is_empty()
        {
            log.wait_durable(source.epoch())?;
        }
        source.read_kept(storage)?;
        let mut manifest = hold(&storage.manifest).clone();
        manifest.note_keys(&source);
        Ok(read(&manifest, &source)?)
    }

    /// Ends the present epoch, and returns a snapshot of the state at its end, which has no limit on its age.
    fn snapshot_source(
        &self,
        storage: &Storage,
        label: &'static str,
    ) -> Result<CheckpointedSnapshot<'_, P>, Failure> {
        let clock = &self.inner().shared.clock;
        let claim = self.claim(None)?;
        let number = || last_number_of(clock.tick());
        let life = SnapshotLife::new(Some(label), None);
        let mut snapshot = self.open_snapshot_by(claim.worker(), life, number)?;
        // The log may delete rows that have expired, and replace them by changes of what was there.
        snapshot.show_expired();
        let descriptions = hold(&storage.manifest).tables.clone();
        Ok(CheckpointedSnapshot { snapshot, database: self, descriptions, kept: Vec::new() })
    }

    /// Returns a snapshot of the present state, and an epoch. When this returns, the state is durable. The log
    /// after the epoch continues the snapshot.
    ///
    /// # Errors
    /// As [`Database::checkpoint`], except [`Failure::NestedCheckpoint`].
    #[doc(hidden)]
    pub fn snapshot_with_epoch(&self) -> Result<(Snapshot, u64), Failure> {
        let log = self.engine().log()?;
        self.check_no_commit()?;
        let snapshot = self.snapshot_source(self.storage()?, "changes")?.snapshot;
        let epoch = epoch_of(snapshot.number());
        log.wait_durable(epoch)?;
        let stored = hold(&self.storage()?.manifest).base_epoch();
        Ok((snapshot, log.written_epoch().max(stored).min(epoch)))
    }

    /// Returns the log, and what describes its tables, for the crate that reads it while it is written. Also returns
    /// an epoch: what is durable is the state at its end.
    ///
    /// # Errors
    /// [`Failure::InMemory`], [`Failure::ReadOnly`].
    #[doc(hidden)]
    pub fn readable_log(&self) -> Result<(Arc<Log>, Manifest, u64), Failure> {
        let log = Arc::clone(self.engine().log()?);
        let manifest = hold(&self.storage()?.manifest).clone();
        let epoch = log.written_epoch().max(manifest.base_epoch());
        Ok((log, manifest, epoch))
    }

    /// Returns how many bytes the log has grown since the last checkpoint.
    fn log_since_checkpoint(&self) -> u64 {
        let Ok(storage) = self.storage() else { return 0 };
        let logged = storage.log_metrics().map_or(0, |metrics| metrics.bytes_written);
        logged.saturating_sub(hold(&storage.checkpointing.state).logged_before)
    }
}

/// The thread that writes checkpoints automatically.
struct Checkpointer {
    stop: Stop,
    thread: JoinHandle<()>,
}

/// How often the thread looks at the length of the log.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The longest time after which a checkpoint that could not be written is tried again.
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(60);

impl Checkpointer {
    fn start<P: Protocol>(inner: Weak<Inner<P>>, log_bytes: u64) -> Result<Checkpointer, Failure> {
        let stop = Stop::default();
        let stopped = stop.clone();
        let work = move || {
            let mut interval = LOOK_INTERVAL;
            while stopped.pause(interval) {
                let Some(inner) = inner.upgrade() else { return };
                let database = Database::of(inner);
                if database.log_since_checkpoint() >= log_bytes {
                    // A checkpoint that fails is tried again, after twice the time. The metrics report it.
                    interval = match database.checkpoint() {
                        Ok(_) => LOOK_INTERVAL,
                        Err(_) => (2 * interval).min(RETRY_INTERVAL_MAX),
                    };
                }
            }
        };
        Ok(Checkpointer { stop, thread: background::start("weft-checkpoint", work)? })
    }

    /// Stops and joins the thread. If that takes longer than to the deadline, returns the thread as an error: it
    /// may be writing a checkpoint.
    fn stop(self, deadline: Option<Deadline>) -> Result<(), Checkpointer> {
        self.stop.request();
        while let Some(deadline) = deadline
            && !self.thread.is_finished()
        {
            if deadline.has_passed() {
                return Err(self);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // If the thread has panicked, the panic's message was printed.
        let _ = self.thread.join();
        Ok(())
    }
}
