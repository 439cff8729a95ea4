//! The options and tables of a node.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use std::{fmt, thread};

use weft::durability::{Backend, CheckpointOptions, FileSystem, write_backup};
use weft::protocol::Protocol;
use weft::{Builder, Database, Failure, ManualClock, OnceOptions, Record};

use super::error::ReplicationError;
use super::life::{Setup, unfit};
use super::state::{Core, State, StayReason};
use super::{Node, NodeRole};
use crate::base::{BackupSource, capture};
use crate::directory::{Directory, Place};
use crate::log::ReplicatedLog;
use crate::reader::ReplicationToken;
use crate::tables::{Declared, DeclaredResults, DeclaredTable};

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

/// Prepares a database that was just opened.
type Prepare<P> = dyn Fn(&Database<P>) -> Result<(), Failure> + Send + Sync;

/// Declares the tables of a replicated database. [`NodeBuilder::start`] starts a node.
pub struct NodeBuilder<P: Protocol> {
    pub(super) open: Box<dyn Fn() -> Builder<P> + Send + Sync>,
    pub(super) tables: Vec<Box<dyn DeclaredTable<P>>>,
    pub(super) options: Options,
    pub(super) address: String,
    pub(super) clock: Option<ManualClock>,
    pub(super) prepare: Box<Prepare<P>>,
    pub(super) place: Option<Place>,
    pub(super) backups: Option<Arc<dyn BackupSource>>,
    /// The last moment of which the node applies anything, if it is to stay there.
    pub(super) until: Option<ReplicationToken>,
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
    /// [`Primary::transact_with`](super::Primary::transact_with).
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
        core.wait(limit, |state| state.stays.is_some() || state.role == NodeRole::Stopped);
        let (life, token, reason) = {
            let state = core.state();
            state.check()?;
            let reason = state.stays.ok_or(ReplicationError::TimedOut)?;
            (Arc::clone(&state.life), state.token, reason)
        };
        if token < at && reason == StayReason::LogEnd {
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
    /// - [`ReplicationError::BackupStore`] if the store with the backups cannot be reached, and [`ReplicationError::Backup`]
    ///   if the log has been truncated and no backup reaches to its first record.
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
        let mut reports = Vec::new();
        let life = setup.begin(false, &mut reports)?;
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
                stays: None,
                is_stopping: false,
                is_current: false,
                primary: None,
                trouble: None,
            }),
            changed: Condvar::new(),
            writing_base: Mutex::default(),
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

impl<P: Protocol> fmt::Debug for NodeBuilder<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("NodeBuilder")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
