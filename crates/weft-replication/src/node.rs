//! A node of a replicated database: the primary, or a standby.
//!
//! A node has a thread that follows the log. What a node keeps between two changes of its role is a *life*: an open
//! database, and a member of the protocol. A primary that steps down may have committed in memory what the log never
//! accepted. So it begins a new life, with an empty database, its directory or a backup, and follows the log from there.

use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weft::durability::{
    Backend, CheckpointOptions, FileSystem, Manifest, StorageError, write_backup,
};
use weft::protocol::Protocol;
use weft::{
    Acknowledge, Builder, Database, DurabilityOptions, Failure, ManualClock, OnceOptions, Record,
    Snapshot, Timestamp, TransactWith, Transaction, TransactionOptions,
};
use weft_changes::{LoggedTables, ring_disk};

use crate::base::{BackupSource, FoundBackup, capture};
use crate::directory::{Directory, DirectoryError, Loss, Origin, Place};
use crate::disk::{Mode, ReplicatedDisk, Sink};
use crate::link::{End, Link, Session, Step};
use crate::log::{LogError, ReplicatedLog};
use crate::member::{Event, Role};
use crate::position::StoredPosition;
use crate::reader::{Fault, Position, ReplicationToken};
use crate::record::BODY_BYTES_MAX;
use crate::tables::{AppliedTable, ApplyError, Declared, DeclaredResults, DeclaredTable, apply};
use crate::tail::Kept;

mod fence;
mod view;

pub use view::{NodeStatus, Replica};

/// How many bytes of its changes a database keeps for readers of the change feed.
const RING_BYTES: u64 = 8 << 20;

/// How often a node asks the others for records that are missing.
const QUESTION_INTERVAL: Duration = Duration::from_secs(1);

/// How often a node looks whether it should write its rows to its directory.
const BASE_INTERVAL: Duration = Duration::from_millis(100);

/// The directory of a database, on the file system in memory.
const DIRECTORY: &str = "replicated";

/// Options of a node. All nodes of a database have the same lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// For how long an append proves that its node is the primary. With zero, every read of a primary is followed by an append
    /// that proves it. Choose that if machines may be suspended: the clock of a process stands still in that time. Default:
    /// 500 ms.
    pub lease: Duration,
    /// The time from one heartbeat of the primary to the next. Default: 100 ms.
    pub heartbeat: Duration,
    /// After how long without a record of the primary a standby takes over; `None` if it never does that automatically. It
    /// must be at least twice the lease. Default: 3 s.
    pub silence: Option<Duration>,
    /// For how long the log may fail to answer before a primary gives up, and its commits that wait have an unknown outcome.
    /// Default: 30 s.
    pub deadline: Duration,
    /// How long a read of the log waits for a record, and the time from a call that fails to the next one. Default: 20 ms.
    pub poll: Duration,
    /// After how many bytes of records a node with a directory writes all rows there, so that it need not replay the records
    /// when it starts. Default: 64 MiB.
    pub base_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            lease: Duration::from_millis(500),
            heartbeat: Duration::from_millis(100),
            silence: Some(Duration::from_secs(3)),
            deadline: Duration::from_secs(30),
            poll: Duration::from_millis(20),
            base_bytes: 64 << 20,
        }
    }
}

/// Why a node cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicationError {
    /// The node is not the primary, or no longer. The transaction has changed nothing.
    #[error("the node is not the primary; ask another node")]
    NotPrimary,
    /// The node has ceased to be the primary while the commit waited for the log. The transaction may have committed. If it
    /// has, the next primary has it.
    #[error(
        "the outcome is unknown: the transaction may have committed; look for what it has written at the next primary"
    )]
    OutcomeUnknown,
    /// What was waited for has not happened in time.
    #[error("the time is over; ask again, or ask another node")]
    TimedOut,
    /// The node has stopped.
    #[error("the node has stopped: {0}")]
    Stopped(#[from] Fault),
    /// Records of the log are missing. Another node may have them, and appends them again when it starts. Until then no node
    /// that lacks them becomes the primary.
    #[error("{0}; start the node that was the primary, which may have them")]
    RecordsMissing(Fault),
    /// The node was shut down.
    #[error("the node was shut down")]
    ShutDown,
    /// The log cannot be reached.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The object store with the backups has an error, or the backups have.
    #[error("the backups: {0}")]
    Backup(String),
    /// The options or the tables do not fit.
    #[error("{0}")]
    Unfit(String),
    /// The transaction or the database has failed.
    #[error(transparent)]
    Engine(#[from] weft::Error),
}

impl From<Failure> for ReplicationError {
    fn from(failure: Failure) -> Self {
        ReplicationError::Engine(failure.into())
    }
}

impl From<DirectoryError> for ReplicationError {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Log(error) => ReplicationError::Log(error),
            error => ReplicationError::Unfit(error.to_string()),
        }
    }
}

/// Something that an operator should know of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// Records that this node has are not in the log, and other ones are. They are lost.
    Lost(Loss),
    /// The log had lost records that this node has. The node has appended them again.
    Repaired {
        /// How many.
        records: usize,
    },
    /// Records were missing when another node became the primary. They are lost, unless that other node has them.
    Missing(Fault),
    /// A backup was passed over.
    BackupSkipped(String),
    /// The node has begun with a backup, since the log does not continue what its directory had. That is in this directory
    /// now.
    SetAside(PathBuf),
    /// The rows could not be written to the node's directory. The node goes on, and tries again.
    BaseFailed(String),
}

impl Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Lost(loss) => loss.fmt(formatter),
            Report::Repaired { records } => {
                write!(formatter, "{records} records that the log had lost were appended again")
            }
            Report::Missing(fault) => write!(formatter, "a new primary went on although {fault}"),
            Report::BackupSkipped(what) => write!(formatter, "backup {what}"),
            Report::SetAside(path) => write!(
                formatter,
                "the node has begun with a backup; what its directory had is in {}",
                path.display()
            ),
            Report::BaseFailed(error) => {
                write!(formatter, "the rows could not be written to the node's directory: {error}")
            }
        }
    }
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRole {
    /// It follows the primary.
    Standby,
    /// It is the primary.
    Primary,
    /// It has stopped, because of a [`Fault`], or because it was shut down.
    Stopped,
}

/// Prepares a database that was just opened.
type Prepare<P> = dyn Fn(&Database<P>) -> Result<(), Failure> + Send + Sync;

/// Declares the tables of a replicated database. [`NodeBuilder::start`] starts a node.
pub struct NodeBuilder<P: Protocol> {
    open: Box<dyn Fn() -> Builder<P> + Send + Sync>,
    tables: Vec<Box<dyn DeclaredTable<P>>>,
    options: Options,
    address: String,
    clock: Option<ManualClock>,
    prepare: Box<Prepare<P>>,
    place: Option<Place>,
    backups: Option<Arc<dyn BackupSource>>,
    /// The last moment of which the node applies anything, if it is to stay there.
    until: Option<ReplicationToken>,
}

impl<P: Protocol> NodeBuilder<P> {
    /// Begins with what `open` returns: a builder with options, but without tables and without a directory. It is called
    /// again whenever the node begins again as a standby.
    pub fn new(open: impl Fn() -> Builder<P> + Send + Sync + 'static) -> Self {
        NodeBuilder {
            open: Box::new(open),
            tables: Vec::new(),
            options: Options::default(),
            place: None,
            backups: None,
            until: None,
            address: String::new(),
            clock: None,
            prepare: Box::new(|_| Ok(())),
        }
    }

    /// Names where the node finds a backup to begin with.
    #[cfg(feature = "object-store")]
    pub(crate) fn backup_source(mut self, backups: Arc<dyn BackupSource>) -> Self {
        self.backups = Some(backups);
        self
    }

    /// Gives the node a directory, which is created if it does not exist. With it,
    ///
    /// - a commit of the primary is acknowledged when the log has it *and* the directory has it;
    /// - a node that is started again goes on from there, and need not read the whole log;
    /// - records that the log loses, because all of its machines lost power, are appended again.
    ///
    /// A directory belongs to one node and one log.
    pub fn directory(mut self, path: impl AsRef<Path>) -> Self {
        self.place = Some(Place::new(path.as_ref()));
        self
    }

    /// As [`NodeBuilder::directory`], on another file system: for tests.
    #[doc(hidden)]
    pub fn directory_on(mut self, backend: Arc<dyn Backend>, path: impl AsRef<Path>) -> Self {
        self.place = Some(Place { backend, path: path.as_ref().to_owned() });
        self
    }

    /// Adds a table, as [`Builder::table`] does. All nodes have the same tables.
    pub fn table<T: Record>(self) -> Self {
        self.table_named::<T>(T::TABLE)
    }

    /// Adds a table with this name, as [`Builder::table_named`] does.
    pub fn table_named<T: Record>(mut self, name: &str) -> Self {
        let declared = Declared::<T> { name: name.to_owned(), row_type: std::marker::PhantomData };
        self.tables.push(Box::new(declared));
        self
    }

    /// Keeps the results of transactions that run once for a key, as [`Builder::once`] does. They are replicated, so a
    /// transaction whose outcome is unknown can be asked for again at the next primary, and happens once:
    /// [`Primary::transact_with`].
    pub fn once(mut self, options: OnceOptions) -> Self {
        self.tables.push(Box::new(DeclaredResults(options)));
        self
    }

    /// Sets the address at which clients find this node, such as `one.example:6379`. When the node becomes the primary, the
    /// other nodes learn it from the log: [`Node::status`].
    pub fn address(mut self, address: &str) -> Self {
        self.address = address.to_owned();
        self
    }

    /// Makes the time of this node go by a clock that the program sets, while the node is the primary: see
    /// [`Builder::clock`]. (A clock that is given to the database's builder has no effect.)
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Sets what is called with each database that the node opens, before it is used. Hooks of rows that expire are set here:
    /// [`Database::on_expiry`]. They run at the primary alone, and what they have done is replicated. The call must not begin
    /// a transaction.
    pub fn prepare(
        mut self,
        prepare: impl Fn(&Database<P>) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        self.prepare = Box::new(prepare);
        self
    }

    /// Sets the options.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Writes the state at an earlier moment into a directory, which must be empty or not exist: everything up to the end of the
    /// epoch `at`, or of the last one before it. An ordinary [`Database`] opens it. Begins with a backup, if there is one that is
    /// old enough, and reads the log from there. Returns the moment.
    ///
    /// # Errors
    /// [`ReplicationError::Unfit`] if the log ends before that moment; [`ReplicationError::TimedOut`]; those of
    /// [`NodeBuilder::start`].
    pub fn restore_at(
        mut self,
        log: Arc<dyn ReplicatedLog>,
        at: ReplicationToken,
        directory: impl AsRef<Path>,
        limit: Duration,
    ) -> Result<ReplicationToken, ReplicationError> {
        (self.place, self.until, self.options.silence) = (None, Some(at), None);
        let node = self.start(log)?;
        let core = &*node.core;
        core.wait(limit, |state| state.is_there || state.role == NodeRole::Stopped);
        let (life, token) = {
            let state = core.state();
            state.check()?;
            match state.is_there {
                true => (Arc::clone(&state.life), state.token),
                false => return Err(ReplicationError::TimedOut),
            }
        };
        if token < at && core.setup.log.range()?.1 == core.state().next_offset {
            let what = format!("the replicated log ends with {token:?}, which is before {at:?}");
            return Err(ReplicationError::Unfit(what));
        }
        capture(&life, |manifest, source, _| {
            write_backup(
                &FileSystem,
                directory.as_ref(),
                manifest,
                source,
                &CheckpointOptions::default(),
            )
        })?;
        Ok(token)
    }

    /// Starts a node, as a standby. With a [directory](NodeBuilder::directory), the log must be reachable: it decides which
    /// of the directory's records count.
    ///
    /// # Errors
    /// - [`ReplicationError::Unfit`] if the options contradict each other, a table cannot be replicated, or the directory
    ///   belongs to another log or has another error.
    /// - [`ReplicationError::Log`] if the log cannot be reached.
    /// - [`ReplicationError::Engine`] if the database cannot be opened, or the system cannot start a thread.
    pub fn start(self, log: Arc<dyn ReplicatedLog>) -> Result<Node<P>, ReplicationError> {
        let refuse = |what: String| Err(ReplicationError::Unfit(what));
        let Options { lease, heartbeat, silence, .. } = self.options;
        if heartbeat >= lease && !lease.is_zero() {
            return refuse("the heartbeat must be shorter than the lease".to_owned());
        }
        if silence.is_some_and(|silence| silence < 2 * lease) {
            return refuse("the silence must be at least twice the lease".to_owned());
        }
        let open = |place| Ok::<_, ReplicationError>(Directory::open(place, &log.identity()?)?);
        let directory = self.place.as_ref().map(open).transpose()?;
        let setup = Setup { log, builder: self, directory };
        let (life, reports) = setup.begin(false)?;
        let position = life.applied().position;
        let core = Arc::new(Core {
            setup,
            state: Mutex::new(State {
                life,
                role: NodeRole::Standby,
                token: position.token(),
                next_offset: position.next,
                missing: None,
                reports,
                fault: None,
                promotions: 0,
                times_primary: 0,
                gives_up_missing: false,
                is_there: false,
                is_stopping: false,
                is_current: false,
                primary: None,
            }),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&core);
        let thread = thread::Builder::new().name("weft-replication".to_owned());
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| of_thread.run())).is_err() {
                let fault = unfit(&"code of the program has panicked");
                of_thread.change(|state| {
                    (state.role, state.fault) = (NodeRole::Stopped, Some(fault));
                });
            }
        };
        let no_thread = |error: std::io::Error| {
            ReplicationError::from(Failure::Thread { message: error.to_string() })
        };
        let mut node = Node { core, threads: vec![thread.spawn(run).map_err(no_thread)?] };
        if node.core.setup.directory.is_some() {
            let core = Arc::clone(&node.core);
            let thread = thread::Builder::new().name("weft-base".to_owned());
            node.threads.push(thread.spawn(move || core.keep_bases()).map_err(no_thread)?);
        }
        Ok(node)
    }
}

/// What all lives of a node have in common.
struct Setup<P: Protocol> {
    log: Arc<dyn ReplicatedLog>,
    builder: NodeBuilder<P>,
    directory: Option<Directory>,
}

/// An open database, and its connection with the log.
pub struct Life<P: Protocol> {
    pub database: Database<P>,
    tables: Vec<Box<dyn AppliedTable<P>>>,
    pub link: Arc<Link>,
    /// The clock of the database while the node is a standby. It shows the primary's time, as far as it was applied.
    clock: ManualClock,
    /// What a fence of this node says: its address, and the database's manifest, which has its tables.
    fence: Vec<u8>,
    /// Held while an epoch is applied.
    pub applied: Mutex<Applied>,
    /// Held while somebody reads all rows.
    pub capturing: Mutex<()>,
    /// What the node's directory has behind the position with which the life begins, and where in the log that ends.
    replay: Mutex<(Vec<Kept>, u64)>,
}

/// How far a standby's database is.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    pub position: Position,
    /// The body of the last fence before the position.
    pub body: Vec<u8>,
}

/// A life that has begun, and what the operator should know of that.
type Begun<P> = (Arc<Life<P>>, Vec<Report>);

impl<P: Protocol> Life<P> {
    fn applied(&self) -> MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Protocol> Setup<P> {
    /// Decides where a life begins: with the directory, with a backup, or with the first record of the log.
    fn origin(&self, all: bool) -> Result<(Origin, Vec<Report>), ReplicationError> {
        let mut reports = Vec::new();
        let mut origin = Origin::default();
        if let Some(directory) = &self.directory {
            match directory.load(&*self.log, all) {
                Err(DirectoryError::Unconnected(_)) if self.builder.backups.is_some() => {
                    reports.push(Report::SetAside(directory.set_aside()?));
                    origin = directory.load(&*self.log, all)?;
                }
                loaded => origin = loaded?,
            }
        }
        let is_empty = origin.base.is_none() && origin.replay.is_empty();
        let Some(backups) = self.builder.backups.as_ref().filter(|_| is_empty) else {
            return Ok((origin, reports));
        };
        let (identity, (first, _)) = (self.log.identity()?, self.log.range()?);
        let (found, skipped) = backups
            .newest(&identity, first, self.builder.until)
            .map_err(ReplicationError::Backup)?;
        reports.extend(skipped.into_iter().map(Report::BackupSkipped));
        match found {
            Some(found) => {
                let FoundBackup { stored, .. } = &found;
                let (position, body) = (stored.position, stored.body.clone());
                origin = Origin { position, body, next: position.next, ..origin };
                origin.base = Some((found.backend, found.path));
                if let Some(directory) = &self.directory {
                    let base = origin.base.take().expect("it was set");
                    (origin.base, origin.journal) = directory.install(base, found.stored)?;
                }
            }
            None if first > 0 => {
                let what = format!(
                    "the replicated log begins with record {first}, and no backup reaches to it"
                );
                return Err(ReplicationError::Backup(what));
            }
            None => {}
        }
        Ok((origin, reports))
    }

    /// Opens the database that the directory has, or an empty one. Also returns what the operator should know. `all` says
    /// that all records of the directory are compared with the log.
    fn begin(&self, all: bool) -> Result<Begun<P>, ReplicationError> {
        let NodeBuilder { open, tables, options, address, prepare, .. } = &self.builder;
        let (origin, mut reports) = self.origin(all)?;
        let Origin { base, position, body, replay, next, journal, loss, repaired } = origin;
        reports.extend(loss.map(Report::Lost));
        reports.extend((repaired > 0).then_some(Report::Repaired { records: repaired }));
        let link = Arc::new(Link::new(Arc::clone(&self.log), options, position, journal));
        let memory = ring_disk(RING_BYTES);
        if let Some((backend, path)) = &base {
            let manifest = read_file(&**backend, &path.join("MANIFEST"))?;
            write_manifest(&*memory, &manifest).map_err(|error| {
                let name = Path::new(DIRECTORY).join("MANIFEST");
                Failure::from(StorageError::io("write", &name, &error))
            })?;
        }
        let is_new = base.is_none();
        let threads = base.as_ref().and_then(|_| thread::available_parallelism().ok());
        let sink = Arc::clone(&link) as _;
        let disk = ReplicatedDisk::new(Arc::clone(&memory), sink, Path::new(DIRECTORY), base);
        let durability = DurabilityOptions::new()
            .acknowledge(Acknowledge::Durable)
            .segment_bytes(RING_BYTES / 8)
            .checkpoint_log_bytes(None)
            .spare_bytes(0)
            .loggers(1)
            .threads(threads.map_or(1, usize::from));
        let builder = tables.iter().fold(open(), |builder, table| table.declare(builder));
        let clock = ManualClock::new(Timestamp::from_millis(0));
        let builder = builder.directory(DIRECTORY).durability(durability).clock(&clock);
        let database = builder.backend(Arc::new(disk), false).open()?;
        if !is_new {
            // The time goes on from that of the rows.
            clock.set(database.open_snapshot()?.now());
        }
        let (_, stored, _) = database.readable_log()?;
        for number in stored.current_tables() {
            let name = &stored.tables[number as usize].name;
            if !tables.iter().any(|table| table.name() == name) {
                let what = format!(
                    "table `{name}` cannot be replicated: add it with NodeBuilder::table, or the results of transactions with \
                     NodeBuilder::once, not with the database's builder"
                );
                return Err(ReplicationError::Unfit(what));
            }
        }
        let manifest = read_file(&*memory, &Path::new(DIRECTORY).join("MANIFEST"))?;
        let fence = fence::encode(address, &manifest);
        if fence.len() > BODY_BYTES_MAX {
            return Err(ReplicationError::Unfit("there are too many tables".to_owned()));
        }
        let tables = tables.iter().map(|table| table.find(&database)).collect::<Result<_, _>>()?;
        prepare(&database)?;
        let life = Life {
            database,
            tables,
            link,
            clock,
            fence,
            applied: Mutex::new(Applied { position, body }),
            capturing: Mutex::default(),
            replay: Mutex::new((replay, next)),
        };
        Ok((Arc::new(life), reports))
    }
}

fn unfit(error: &impl Display) -> Fault {
    Fault::Unfit { message: error.to_string() }
}

fn read_file(backend: &dyn Backend, path: &Path) -> Result<Vec<u8>, Failure> {
    let read = crate::position::read_file(backend, path);
    read.map_err(|error| StorageError::io("read", path, &error).into())
}

fn write_manifest(disk: &dyn Backend, manifest: &[u8]) -> std::io::Result<()> {
    let directory = Path::new(DIRECTORY);
    disk.create_directory(directory)?;
    disk.create_new(&directory.join("MANIFEST"))?.write_at(manifest, 0)
}

/// Reads the tables that a fence names.
fn read_tables(manifest: &[u8]) -> Result<LoggedTables, String> {
    let (disk, directory) = (ring_disk(RING_BYTES), Path::new(DIRECTORY));
    write_manifest(&*disk, manifest).map_err(|error| error.to_string())?;
    match Manifest::read(&*disk, directory) {
        Ok(Some(manifest)) => Ok(LoggedTables::new(&manifest)),
        Ok(None) => Err("the fence has no manifest".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What a node's thread and its handles share.
struct Core<P: Protocol> {
    setup: Setup<P>,
    state: Mutex<State<P>>,
    changed: Condvar,
}

struct State<P: Protocol> {
    life: Arc<Life<P>>,
    role: NodeRole,
    /// The end of the last epoch that the database has.
    token: ReplicationToken,
    next_offset: u64,
    /// Which records the node lacks before those that it has read.
    missing: Option<Fault>,
    reports: Vec<Report>,
    /// Why the node has stopped.
    fault: Option<Fault>,
    /// How many threads wait in [`Node::promote`] until the node becomes the primary.
    promotions: usize,
    /// How often the node has become the primary.
    times_primary: u64,
    /// Whether the node may become the primary although records are missing.
    gives_up_missing: bool,
    /// Whether the node has applied everything up to the moment where it stays.
    is_there: bool,
    is_stopping: bool,
    /// Whether the database has everything that the log had when the node began to read it.
    is_current: bool,
    /// The address of the primary, if it has published one.
    primary: Option<Arc<str>>,
}

impl<P: Protocol> State<P> {
    /// Returns whether the database has everything that was acknowledged with a token.
    fn has(&self, token: ReplicationToken) -> bool {
        // A primary has what it has acknowledged itself.
        self.token >= token
            || self.role == NodeRole::Primary && self.token.generation == token.generation
    }

    fn check(&self) -> Result<(), ReplicationError> {
        match (&self.fault, self.role) {
            (Some(fault), _) => Err(ReplicationError::Stopped(fault.clone())),
            (None, NodeRole::Stopped) => Err(ReplicationError::ShutDown),
            (None, _) => Ok(()),
        }
    }
}

impl<P: Protocol> Core<P> {
    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes all threads that wait for a change.
    fn change(&self, change: impl FnOnce(&mut State<P>)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Changes the state, and wakes all threads that wait for a change, if `change` returns true.
    fn change_quietly(&self, change: impl FnOnce(&mut State<P>) -> bool) {
        if change(&mut self.state()) {
            self.changed.notify_all();
        }
    }

    /// Waits until `condition` holds, but for no longer than `limit`. Returns whether it holds.
    fn wait(&self, limit: Duration, mut condition: impl FnMut(&mut State<P>) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), limit, |it| !condition(it));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Lives one life after the other, until the node stops. This is what the node's thread does.
    fn run(&self) {
        loop {
            let life = Arc::clone(&self.state().life);
            let end = self.live(&life).err().unwrap_or(End::Stopped);
            if end == End::Stopped {
                // The commits so far are replicated, and no transaction begins any more.
                let _ = life.database.close_within(self.setup.builder.options.deadline);
            }
            self.sync_journal(&life);
            life.link.end(end.clone());
            let memory = life.link.session().member.memory();
            let next = match end {
                // The directory finds the same records and reports them, with the file in which it keeps them.
                End::Forked(Some(loss)) if self.setup.directory.is_none() => {
                    self.report(Report::Lost(loss));
                    self.begin_again(false)
                }
                // Without a directory, this process alone remembers what the log had.
                End::SteppedDown | End::GaveUp if self.setup.directory.is_none() => {
                    let next = self.begin_again(false);
                    next.inspect(|(life, _)| life.link.session().member.remember(memory))
                }
                End::SteppedDown | End::GaveUp => self.begin_again(false),
                End::Forked(_) => self.begin_again(true),
                // The node was too slow for the log.
                End::Fault(Fault::Gone { .. }) if self.setup.builder.backups.is_some() => {
                    self.begin_again(false)
                }
                End::Fault(fault) => Err(Some(fault)),
                End::Stopped => Err(None),
            };
            let is_over = next.is_err();
            self.change(|state| {
                state.missing = None;
                match next {
                    Ok((life, reports)) => {
                        let position = life.applied().position;
                        state.life = life;
                        state.role = NodeRole::Standby;
                        state.is_current = false;
                        state.reports.extend(reports);
                        (state.token, state.next_offset) = (position.token(), position.next);
                    }
                    Err(fault) => {
                        state.role = NodeRole::Stopped;
                        state.fault = fault;
                    }
                }
            });
            // No transaction begins any more in the database of the life that is over.
            let _ = life.database.close_within(Duration::ZERO);
            if is_over {
                return;
            }
        }
    }

    /// Opens the database again. If the log cannot be reached, tries until it can. Returns a fault, or `None` if the node is to
    /// stop.
    fn begin_again(&self, all: bool) -> Result<Begun<P>, Option<Fault>> {
        loop {
            match self.setup.begin(all) {
                Err(ReplicationError::Log(LogError::Unavailable(_))) => {
                    if self.wait(self.setup.builder.options.poll, |state| state.is_stopping) {
                        return Err(None);
                    }
                }
                begun => return begun.map_err(|error| Some(unfit(&error))),
            }
        }
    }

    fn report(&self, report: Report) {
        self.change(|state| state.reports.push(report));
    }

    /// Has the directory keep what it was given.
    fn sync_journal(&self, life: &Life<P>) {
        let pending = life.link.session().journal.as_ref().map(crate::journal::Journal::begin_sync);
        // What is not on the disk then is read from the log again.
        let _ = pending.map(crate::journal::PendingSync::wait);
    }

    /// Writes the rows to the directory when there is much to replay without that. This is what a thread of the node does.
    fn keep_bases(&self) {
        let base_bytes = self.setup.builder.options.base_bytes;
        while !self.wait(BASE_INTERVAL, |state| state.is_stopping || state.fault.is_some()) {
            let life = Arc::clone(&self.state().life);
            let is_due = life
                .link
                .session()
                .journal
                .as_ref()
                .is_some_and(|journal| journal.bytes_since_base() > base_bytes);
            if is_due && let Err(error) = self.write_base(&life) {
                self.report(Report::BaseFailed(error.to_string()));
            }
        }
    }

    /// Writes the rows to the directory. Returns whether there are any that it does not have already.
    fn write_base(&self, life: &Life<P>) -> Result<bool, ReplicationError> {
        let Some(directory) = &self.setup.directory else {
            return Err(ReplicationError::Unfit("the node has no directory".to_owned()));
        };
        if let Some(journal) = &mut life.link.session().journal {
            journal.begin_base();
        }
        let failed = |error: std::io::Error, path: &Path| StorageError::io("write", path, &error);
        let written = capture(life, |manifest, source, applied| {
            let counted = applied.position.counted;
            let base = directory.begin_base(counted);
            let Some(base) = base.map_err(|error| failed(error, directory.path()))? else {
                return Ok(None);
            };
            let options = CheckpointOptions::default();
            write_backup(&*base.backend, &base.path, manifest, source, &options)?;
            Ok(Some((base, applied.clone())))
        })?;
        let Some((base, Applied { position, body })) = written else { return Ok(false) };
        // The records before the base must not be the last ones that the directory has.
        self.sync_journal(life);
        let stored = StoredPosition { log: directory.identity().to_owned(), position, body };
        let ended = directory.end_base(base, stored);
        let ended = ended.map_err(|error| Failure::from(failed(error, directory.path())))?;
        Ok(ended)
    }

    /// Follows the log, and leads when it is time for that.
    fn live(&self, life: &Life<P>) -> Result<(), End> {
        self.follow(life)?;
        self.lead(life)
    }

    /// Applies what the primary writes. Returns when this node is the primary.
    fn follow(&self, life: &Life<P>) -> Result<(), End> {
        let Options { silence, deadline, poll, .. } = self.setup.builder.options;
        // Nodes that miss the same primary do not all stand at the same time.
        let silence =
            silence.map(|silence| silence.mul_f64(1.0 + fastrand::Rng::new().f64() / 2.0));
        let link = &life.link;
        let mut tables = self.replay(life)?;
        // Whether the last read has found the log's end, and whether this node has ever read all that there was. While a
        // primary is busy, no read finds the end. So the node asks where the end is, and reads up to there.
        let (mut is_at_end, mut has_read_all) = (false, false);
        let mut goal = None;
        let (mut stood, mut asked) = (Duration::ZERO, Duration::ZERO);
        loop {
            let (is_promoted, gives_up_missing, is_stopping) = {
                let state = self.state();
                (state.promotions > 0, state.gives_up_missing, state.is_stopping)
            };
            if is_stopping {
                return Err(End::Stopped);
            }
            let mut session = link.session();
            let member = &mut session.member;
            let now = link.now();
            // A standby that is slow may not have read for a while what the primary has written.
            let is_silent =
                is_at_end && silence.is_some_and(|silence| now > member.heard() + silence);
            let can_stand = member.role() == Role::Standby
                && (member.missing().is_none() || gives_up_missing && is_promoted);
            if can_stand && (is_promoted && has_read_all || is_silent) {
                member.stand(&life.fence);
                stood = now;
            }
            if member.role() == Role::Candidate && now > stood + deadline {
                return Err(End::GaveUp);
            }
            if member.missing().is_some() && now > asked + QUESTION_INTERVAL {
                link.question(member);
                asked = now;
            }
            let mut events = Vec::new();
            let step = link.step(&mut session, |event| {
                events.push(event);
                Ok(())
            });
            let role = self.look_at(&mut session);
            let next_offset = session.member.next_offset();
            drop(session);
            for event in events {
                if self.stays_before(&event) {
                    return self.stay();
                }
                let token = self.apply(life, &mut tables, event)?;
                self.change(|state| state.token = token.unwrap_or(state.token));
            }
            let step = step?;
            is_at_end = step == Step::Nothing;
            if !has_read_all {
                goal = goal.or_else(|| self.setup.log.range().ok().map(|(_, end)| end));
                has_read_all = is_at_end || goal.is_some_and(|goal| next_offset >= goal);
            }
            self.change_quietly(|state| {
                std::mem::replace(&mut state.is_current, has_read_all) != has_read_all
            });
            if is_at_end && self.setup.builder.until.is_some() {
                return self.stay();
            }
            match role {
                Role::Primary => return Ok(()),
                _ if step == Step::Failed => thread::sleep(poll),
                _ => {}
            }
        }
    }

    /// Returns whether an event is behind the moment where the node stays.
    fn stays_before(&self, event: &Event) -> bool {
        let token = match event {
            Event::Apply { token, .. } => *token,
            Event::Follows { generation, .. } => {
                ReplicationToken { generation: *generation, epoch: 0 }
            }
            _ => return false,
        };
        self.setup.builder.until.is_some_and(|until| token > until)
    }

    /// Does nothing more until the node is stopped.
    fn stay(&self) -> Result<(), End> {
        self.change(|state| state.is_there = true);
        while !self.wait(Duration::from_secs(1), |state| state.is_stopping) {}
        Err(End::Stopped)
    }

    /// Notes what others may ask for, and returns the member's role.
    fn look_at(&self, session: &mut Session) -> Role {
        let repaired = std::mem::take(&mut session.repaired);
        let lost = session.member.take_lost();
        let (missing, next_offset) =
            (session.member.missing().cloned(), session.member.next_offset());
        let mut state = self.state();
        state.next_offset = next_offset;
        state.missing = missing;
        state.reports.extend((repaired > 0).then_some(Report::Repaired { records: repaired }));
        state.reports.extend(lost.map(Report::Missing));
        session.member.role()
    }

    /// Applies what the directory has behind the rows with which the life began. Returns the tables of the last fence.
    fn replay(&self, life: &Life<P>) -> Result<Option<LoggedTables>, End> {
        let body = life.applied().body.clone();
        let read = |body: &[u8]| {
            let (_, manifest) = fence::decode(body).map_err(|what| unfit(&what))?;
            read_tables(manifest).map_err(|what| unfit(&what))
        };
        let mut tables = (!body.is_empty()).then(|| read(&body)).transpose()?;
        let (replay, next) = {
            let mut replay = life.replay.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut replay.0), replay.1)
        };
        for Kept { offset, bytes, .. } in replay {
            let event = {
                let mut session = life.link.session();
                session.member.resume(offset);
                let event = session.member.read(offset, &bytes, life.link.now())?;
                session.member.trim_tail();
                event
            };
            if let Some(event) = event {
                let token = self.apply(life, &mut tables, event)?;
                self.change(|state| state.token = token.unwrap_or(state.token));
            }
            if self.state().is_stopping {
                return Err(End::Stopped);
            }
        }
        let position = {
            let mut session = life.link.session();
            session.member.resume(next);
            session.member.position()
        };
        // The records of the directory have offsets that may be earlier than theirs.
        life.applied().position = position;
        Ok(tables)
    }

    /// Does what follows from a record, and returns how far the database is then, if it has changed.
    fn apply(
        &self,
        life: &Life<P>,
        tables: &mut Option<LoggedTables>,
        event: Event,
    ) -> Result<Option<ReplicationToken>, Fault> {
        match event {
            Event::Follows { generation, body, position } => {
                let (address, manifest) = fence::decode(&body).map_err(|what| unfit(&what))?;
                *tables = Some(read_tables(manifest).map_err(|what| unfit(&what))?);
                self.change(|state| state.primary = address.map(Arc::from));
                *life.applied() = Applied { position, body };
                Ok(Some(ReplicationToken { generation, epoch: 0 }))
            }
            Event::Apply { token, content, position } => {
                let ReplicationToken { generation, epoch: number } = token;
                let place = format!("epoch {number} of generation {generation}");
                let tables = tables.as_ref().expect("a fence comes before all epochs");
                let apply = || {
                    let epoch = tables.read(number, content, &place)?;
                    // A reader of this node's time never is ahead of the rows, nor behind: the transaction commits with the
                    // time.
                    let before = life.clock.time();
                    let time = epoch.time().map_or(before, Timestamp::from_millis).max(before);
                    apply(&life.database, &life.tables, &epoch, time)?;
                    life.clock.set(time);
                    Ok::<_, ApplyError>(())
                };
                let mut applied = life.applied();
                // It runs code of the row types.
                match catch_unwind(AssertUnwindSafe(apply)) {
                    Ok(Ok(())) => {
                        applied.position = position;
                        Ok(Some(token))
                    }
                    Ok(Err(error)) => Err(unfit(&format_args!("{place}: {error}"))),
                    Err(_) => Err(unfit(&format_args!("{place}: code of a row type has panicked"))),
                }
            }
            Event::Won | Event::Acknowledged { .. } | Event::SteppedDown => Ok(None),
            Event::Missing(_) | Event::Asked(_) => Ok(None),
        }
    }

    /// Is the primary. Returns why it no longer is.
    fn lead(&self, life: &Life<P>) -> Result<(), End> {
        let (link, heartbeat) = (&life.link, self.setup.builder.options.heartbeat);
        // The primary before may have a lease until then.
        let serves_from = link.session().member.serves_from();
        let left = serves_from.saturating_sub(link.now());
        if self.wait(left, |state| state.is_stopping) {
            return Err(End::Stopped);
        }
        // What was applied so far lies in the log already, and must not be appended as epochs of this node.
        life.database.flush().map_err(|error| unfit(&error))?;
        link.prove_history()?;
        {
            let mut applied = life.applied();
            let position = link.session().member.position();
            *applied = Applied { position, body: life.fence.clone() };
            link.begin_writing();
        }
        link.beat()?;
        // From here on what the background commits is replicated, too.
        life.database.recall_results().map_err(|error| unfit(&error))?;
        let clock = self.setup.builder.clock.as_ref();
        life.database.follow_clock(clock).map_err(|error| unfit(&error))?;
        let token = link.session().member.token();
        let address = &*self.setup.builder.address;
        let own_address = (!address.is_empty()).then(|| Arc::from(address));
        self.change(|state| {
            (state.role, state.token) = (NodeRole::Primary, token);
            (state.promotions, state.times_primary) = (0, state.times_primary + 1);
            state.primary = own_address.clone();
        });
        loop {
            if self.wait(heartbeat, |state| state.is_stopping) {
                return Err(End::Stopped);
            }
            link.beat()?;
            self.look_at(&mut link.session());
        }
    }
}

/// A node of a replicated database. Dropping it shuts it down.
pub struct Node<P: Protocol> {
    core: Arc<Core<P>>,
    threads: Vec<JoinHandle<()>>,
}

/// An error of the backups.
#[cfg(feature = "object-store")]
pub fn unwritable(error: impl Display) -> ReplicationError {
    ReplicationError::Backup(error.to_string())
}

#[cfg(feature = "object-store")]
impl<P: Protocol> Node<P> {
    pub(crate) fn life(&self) -> Result<Arc<Life<P>>, ReplicationError> {
        let state = self.core.state();
        state.check()?;
        Ok(Arc::clone(&state.life))
    }

    pub(crate) fn log_identity(&self) -> Result<String, ReplicationError> {
        Ok(self.core.setup.log.identity()?)
    }

    pub(crate) fn truncate_before(&self, offset: u64) -> Result<(), ReplicationError> {
        Ok(self.core.setup.log.truncate_before(offset)?)
    }
}

impl<P: Protocol> Node<P> {
    /// Returns what the node does now.
    pub fn role(&self) -> NodeRole {
        self.core.state().role
    }

    /// Returns the end of the last epoch that the node has applied. (A primary returns the beginning of its generation. It
    /// has more than that.)
    pub fn token(&self) -> ReplicationToken {
        self.core.state().token
    }

    /// Returns why the node has stopped, if it has met a fault.
    pub fn fault(&self) -> Option<Fault> {
        self.core.state().fault.clone()
    }

    /// Returns why the last call of the replicated log has failed, if it has. The node tries again.
    pub fn trouble(&self) -> Option<LogError> {
        let life = Arc::clone(&self.core.state().life);
        life.link.trouble()
    }

    /// Returns how many records of the log the node has not read yet.
    ///
    /// # Errors
    /// [`ReplicationError::Log`], [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`].
    pub fn records_behind(&self) -> Result<u64, ReplicationError> {
        let life = {
            let state = self.core.state();
            state.check()?;
            match state.role {
                NodeRole::Primary => Arc::clone(&state.life),
                _ => {
                    let next = state.next_offset;
                    drop(state);
                    return Ok(self.core.setup.log.range()?.1.saturating_sub(next));
                }
            }
        };
        let next = life.link.session().member.next_offset();
        Ok(self.core.setup.log.range()?.1.saturating_sub(next))
    }

    /// Returns the primary, if this node is the primary.
    ///
    /// # Errors
    /// [`ReplicationError::NotPrimary`], [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`].
    pub fn primary(&self) -> Result<Primary<P>, ReplicationError> {
        let state = self.core.state();
        state.check()?;
        match state.role {
            NodeRole::Primary => {
                let (life, generation) = (Arc::clone(&state.life), state.token.generation);
                Ok(Primary { life, generation })
            }
            _ => Err(ReplicationError::NotPrimary),
        }
    }

    /// Makes this node the primary, and returns it. Waits for at most `limit`. If there is a primary, it steps down.
    ///
    /// # Errors
    /// [`ReplicationError::TimedOut`] if the log does not answer, or other nodes were faster again and again;
    /// [`ReplicationError::NotPrimary`] if another node has taken over already; [`ReplicationError::RecordsMissing`] if the
    /// log has lost records that another node may have; [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`].
    pub fn promote(&self, limit: Duration) -> Result<Primary<P>, ReplicationError> {
        let core = &*self.core;
        let before = {
            let mut state = core.state();
            // The role of a primary that has been replaced is Primary until its life has ended.
            let waits = match state.role {
                NodeRole::Standby => true,
                NodeRole::Primary => state.life.link.mode() == Mode::Ended,
                NodeRole::Stopped => false,
            };
            if !waits {
                drop(state);
                return self.primary();
            }
            state.promotions += 1;
            state.times_primary
        };
        let has_ended =
            |state: &mut State<P>| state.role == NodeRole::Stopped || state.times_primary != before;
        core.wait(limit, has_ended);
        let mut state = core.state();
        if has_ended(&mut state) {
            drop(state);
            return self.primary();
        }
        state.promotions -= 1;
        Err(match &state.missing {
            Some(fault) => ReplicationError::RecordsMissing(fault.clone()),
            None => ReplicationError::TimedOut,
        })
    }

    /// As [`Node::promote`], also if records of the log are [missing](Node::missing). They are lost then. Do that only if no
    /// node that could have them will come back.
    ///
    /// # Errors
    /// Those of [`Node::promote`], except [`ReplicationError::RecordsMissing`].
    pub fn promote_without_missing(&self, limit: Duration) -> Result<Primary<P>, ReplicationError> {
        self.core.change(|state| state.gives_up_missing = true);
        let promoted = self.promote(limit);
        self.core.change(|state| state.gives_up_missing = false);
        promoted
    }

    /// Returns what has happened to this node that an operator should know of, the oldest first: records that the log has
    /// lost, and what has become of them.
    pub fn reports(&self) -> Vec<Report> {
        self.core.state().reports.clone()
    }

    /// Returns which records of the log are missing, if some are that another node may append again.
    pub fn missing(&self) -> Option<Fault> {
        self.core.state().missing.clone()
    }

    /// Returns the path of the node's directory, if it has one.
    pub fn directory(&self) -> Option<&Path> {
        self.core.setup.directory.as_ref().map(Directory::path)
    }

    /// Writes all rows to the node's directory, so that it need not replay records from before this when it starts. A node
    /// does so automatically from time to time.
    ///
    /// # Errors
    /// [`ReplicationError::Unfit`] without a directory; [`ReplicationError::Engine`], [`ReplicationError::Stopped`],
    /// [`ReplicationError::ShutDown`].
    pub fn checkpoint(&self) -> Result<(), ReplicationError> {
        let life = {
            let state = self.core.state();
            state.check()?;
            Arc::clone(&state.life)
        };
        self.core.write_base(&life).map(|_| ())
    }

    /// Waits until this node has everything that was acknowledged with `token`, but for no longer than `limit`.
    ///
    /// # Errors
    /// [`ReplicationError::TimedOut`], [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`].
    pub fn wait_for(
        &self,
        token: ReplicationToken,
        limit: Duration,
    ) -> Result<(), ReplicationError> {
        let core = &*self.core;
        core.wait(limit, |state| state.has(token) || state.role == NodeRole::Stopped);
        let state = core.state();
        match state.has(token) {
            true => Ok(()),
            false => state.check().and(Err(ReplicationError::TimedOut)),
        }
    }

    /// Returns the database as it is now at this node: a standby's, which may be behind the primary's, or the primary's. It shows
    /// nothing that is not replicated: at a primary, this waits for the log as a commit does.
    ///
    /// # Errors
    /// [`ReplicationError::NotPrimary`] if the node has just ceased to be the primary: ask again.
    /// [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`], [`ReplicationError::Engine`].
    pub fn snapshot(&self) -> Result<NodeSnapshot<P>, ReplicationError> {
        let (life, token) = {
            let state = self.core.state();
            state.check()?;
            (Arc::clone(&state.life), state.token)
        };
        let snapshot = life.database.open_snapshot()?;
        // Everything that a standby has lies in the log. A primary has commits that wait for it.
        if life.link.mode() != Mode::Following {
            let replicated = life.database.wait_durable(snapshot.token());
            replicated.map_err(|_| ReplicationError::NotPrimary)?;
        }
        Ok(NodeSnapshot { snapshot, token, life })
    }

    /// Shuts the node down. A primary first waits until its transactions have ended and its commits are replicated, but for no
    /// longer than the [deadline](Options::deadline).
    pub fn shut_down(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.core.change(|state| state.is_stopping = true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<P: Protocol> fmt::Debug for Node<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Node").field("role", &self.role()).finish_non_exhaustive()
    }
}

impl<P: Protocol> fmt::Debug for NodeBuilder<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("NodeBuilder")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl<P: Protocol> Drop for Node<P> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A snapshot of a node's database: whole epochs of the primary.
pub struct NodeSnapshot<P: Protocol> {
    snapshot: Snapshot,
    token: ReplicationToken,
    life: Arc<Life<P>>,
}

impl<P: Protocol> NodeSnapshot<P> {
    /// Returns the snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns a table to read in the snapshot.
    ///
    /// # Errors
    /// [`Failure::UnknownTable`].
    pub fn table<T: Record>(&self) -> Result<weft::Table<T>, Failure> {
        self.life.database.table()
    }

    /// Returns the table with this name to read in the snapshot.
    ///
    /// # Errors
    /// [`Failure::UnknownTable`].
    pub fn table_named<T: Record>(&self, name: &str) -> Result<weft::Table<T>, Failure> {
        self.life.database.table_named(name)
    }

    /// Returns a moment that the snapshot has reached. It may show the next epochs, too.
    pub fn token(&self) -> ReplicationToken {
        self.token
    }
}

/// The primary, for as long as its node is the primary.
pub struct Primary<P: Protocol> {
    life: Arc<Life<P>>,
    generation: u64,
}

impl<P: Protocol> Primary<P> {
    /// Returns the database.
    ///
    /// A commit in it is acknowledged when it is replicated. Anything that is read without [`Primary::transact`] needs
    /// [`Primary::confirm`] afterwards, since this node may have been replaced without knowing it. Bulk loads are refused. Do not
    /// close the database: shut the node down.
    pub fn database(&self) -> &Database<P> {
        &self.life.database
    }

    /// Runs a transaction, as [`Database::transact`] does. When it returns, the transaction is replicated, and nothing that
    /// it has read was out of date. Also returns a token, for which a standby can [wait](Node::wait_for).
    ///
    /// # Errors
    /// Those of [`Database::transact`]; [`ReplicationError::NotPrimary`] and [`ReplicationError::OutcomeUnknown`].
    #[track_caller]
    pub fn transact<R, E: From<weft::Error> + From<ReplicationError>>(
        &self,
        body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<(R, ReplicationToken), E> {
        self.transact_with(&TransactionOptions::new(), body)
    }

    /// Runs a transaction with options, as [`Primary::transact`] does.
    ///
    /// With a [key](TransactionOptions::once) the transaction happens once, also if its outcome is unknown: ask again with
    /// the key, at the next primary. If the transaction has committed, this returns its result, and otherwise runs it. The
    /// nodes need [`NodeBuilder::once`].
    ///
    /// # Errors
    /// As [`Primary::transact`].
    #[track_caller]
    pub fn transact_with<R, E: From<weft::Error> + From<ReplicationError>>(
        &self,
        options: &impl TransactWith<P, R>,
        body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<(R, ReplicationToken), E> {
        self.check()?;
        let (result, token) = match self.life.database.transact_with_token(options, body) {
            Ok(committed) => committed,
            // The error follows from what was read.
            Err(error) => {
                self.confirm()?;
                return Err(error);
            }
        };
        let unknown = || ReplicationError::OutcomeUnknown;
        self.life.database.wait_durable(token).map_err(|_| unknown())?;
        self.confirm().map_err(|_| unknown())?;
        Ok((result, ReplicationToken { generation: self.generation, epoch: token.epoch() }))
    }

    /// Proves that this node was the only primary until now. If it does, everything that was read before was up to date.
    /// Within the lease of the last append this waits for nothing; otherwise it appends a heartbeat.
    ///
    /// # Errors
    /// [`ReplicationError::NotPrimary`].
    pub fn confirm(&self) -> Result<(), ReplicationError> {
        let link = &self.life.link;
        link.prove(link.now()).map_err(|_| ReplicationError::NotPrimary)
    }

    fn check(&self) -> Result<(), ReplicationError> {
        match self.life.link.mode() {
            Mode::Writing => Ok(()),
            Mode::Following | Mode::Ended => Err(ReplicationError::NotPrimary),
        }
    }
}
