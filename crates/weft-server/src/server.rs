//! The server: what all connections share, and how it begins and ends.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use weft::htm::word::{Ordering, Word};
use weft::protocol::Dbx;
use weft::{CommitToken, Database, Failure, TransactionOptions};
use weft_replication::{NodeBuilder, ReplicatedLog};

use crate::backups::ServerBackups;
use crate::clients::Clients;
use crate::collector::Collector;
use crate::connection::{self, Opening};
use crate::counters::Counters;
use crate::effects::Effects;
use crate::health;
use crate::http;
use crate::inspect;
use crate::latency::Latency;
use crate::listeners::{ListenOptions, Listeners};
use crate::log::{Level, log};
use crate::monitor::Monitors;
use crate::procedures::{Procedure, Procedures, Served};
use crate::publish::PubSub;
use crate::reload;
use crate::replication::{self, Current, Replication, ReplicationOptions, Watching};
use crate::scripts::Scripts;
use crate::slow_log::SlowLog;
use crate::socket::Socket;
use crate::stop::{Done, Stop};
use crate::store::{Keys, Store};
use crate::systemd;
use crate::tables::{self, StoreOptions};
use crate::tls::Tls;
use crate::turns::{TURN_MAX, Turns};
use crate::users::Users;
use crate::waiting::Waiters;
use crate::watch::{WatchedKeys, Watches};
use crate::workers::Workers;

/// The options of a server: what the settings mean.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the data is kept.
    pub store: StoreOptions,
    /// Whether a reply waits until its commit is durable, if there is a directory.
    pub waits: bool,
    /// The password of the user `default`, if the file of users does not have this user.
    pub password: Option<String>,
    /// The file of users.
    pub users_file: Option<PathBuf>,
    /// Whether clients from other machines are refused as long as there is no password.
    pub is_protected: bool,
    /// How it is replicated.
    pub replication: ReplicationOptions,
    /// The most connections at the same time.
    pub clients_max: u64,
    /// The most memory for the requests and replies of all clients, in bytes; 0 for no limit.
    pub clients_bytes: u64,
    /// The longest request, and the longest queue of `MULTI`, in bytes.
    pub request_bytes: usize,
    /// How long a call of a script may take.
    pub script_time: Duration,
    /// The most memory that a call of a script may need, in bytes.
    pub script_bytes: usize,
    /// The longest output that may wait for one connection, in bytes.
    pub output_bytes: usize,
    /// The longest output of messages that may wait for one subscriber, in bytes.
    pub mailbox_bytes: usize,
    /// How long a connection may be silent, in seconds; 0 for ever.
    pub idle_seconds: u64,
    /// How often the system asks a silent client whether it is still there; zero for never.
    pub keep_alive: Duration,
    /// How long a client may take none of the output that waits for it.
    pub output_timeout: Duration,
    /// How long connections have to end when the server stops.
    pub stop_timeout: Duration,
    /// The slow log has commands that take at least so many microseconds; -1 for none.
    pub slow_log_micros: i64,
    /// How many commands the slow log has.
    pub slow_log_length: u64,
    /// `LATENCY` has commands that take at least so many milliseconds; 0 for none.
    pub latency_millis: u64,
    /// The classes of changes of keys that are published.
    pub notifications: u64,
    /// Where the program listens: see [`Listeners::bind`].
    pub listen: ListenOptions,
    /// The most threads that serve connections; 0 for one for each core.
    pub threads: usize,
    /// What the log has.
    pub log_level: Level,
    /// The file from which settings were read, which `CONFIG REWRITE` changes.
    pub settings_file: Option<PathBuf>,
    /// Whether systemd is told about the server's state, if it has started the process.
    pub notifies_systemd: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            store: StoreOptions::default(),
            waits: true,
            password: None,
            users_file: None,
            is_protected: true,
            replication: ReplicationOptions::default(),
            clients_max: 10_000,
            clients_bytes: 1 << 30,
            request_bytes: 64 << 20,
            script_time: Duration::from_secs(5),
            script_bytes: 64 << 20,
            output_bytes: 256 << 20,
            mailbox_bytes: 32 << 20,
            idle_seconds: 0,
            keep_alive: Duration::from_secs(300),
            output_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(10),
            slow_log_micros: 10_000,
            slow_log_length: 128,
            latency_millis: 0,
            notifications: 0,
            listen: ListenOptions::default(),
            threads: 0,
            log_level: Level::Info,
            settings_file: None,
            notifies_systemd: false,
        }
    }
}

/// A server.
#[derive(Debug)]
pub struct Server {
    /// The options with which it was opened.
    pub options: Options,
    /// The database.
    pub database: Database,
    /// The tables.
    pub store: Store,
    /// Its part in replication, if it is replicated.
    pub replication: Option<Replication>,
    /// The users.
    pub users: Arc<Users>,
    /// The clients.
    pub clients: Arc<Clients>,
    /// The keys under `WATCH`.
    pub watches: Watches,
    /// The order of clients at hot keys.
    pub turns: Arc<Turns>,
    /// The clients that wait for elements.
    pub waiters: Waiters,
    /// Publish/subscribe.
    pub publish: PubSub,
    /// The clients that monitor.
    pub monitors: Monitors,
    /// The scripts.
    pub scripts: Arc<Scripts>,
    /// The procedures that are called by their names.
    pub procedures: Procedures,
    /// How they are prepared for a database.
    new_procedures: Arc<[(String, NewProcedure)]>,
    /// The slow log.
    pub slow_log: Arc<SlowLog>,
    /// The commands that took long, by the second.
    pub latency: Arc<Latency>,
    /// What was counted.
    pub counters: Arc<Counters>,
    /// When the server was opened.
    pub started: Instant,
    /// Whether replies wait until their commits are durable.
    pub waits: bool,
    /// The setting `clients`.
    pub clients_max: Word,
    /// The setting `clients-memory`.
    pub clients_bytes_max: Word,
    /// How many bytes the requests and replies of all clients have.
    pub clients_bytes: Word,
    /// The setting `idle`, in seconds.
    pub idle_seconds: Word,
    /// The setting `protected-mode`.
    pub is_protected: Word,
    /// The setting `replica-serve-reads`.
    pub serves_reads: Word,
    /// When the last checkpoint was written, in seconds since 1970; at the beginning, when the server was opened.
    pub last_save: Word,
    /// The options, with what `CONFIG SET` has changed.
    live: Arc<Mutex<Options>>,
    /// The names of the settings that it has changed.
    changed: Arc<Mutex<BTreeSet<&'static str>>>,
    /// The certificate, if there is one.
    pub(crate) tls: Option<Tls>,
    /// Whether the server was asked to stop.
    pub(crate) stopping: Arc<watch::Sender<bool>>,
    /// Wakes the task that reads files again: see [`Reloader`](crate::Reloader).
    pub(crate) reloading: Arc<Notify>,
}

/// Prepares a server that has tables and procedures of the program, next to Redis's types.
///
/// ```
/// use weft::{Database, Error, Record, Table, Transaction};
/// use weft_procedures::procedure;
/// use weft_server::Server;
///
/// #[derive(Clone, Record)]
/// pub struct Item { #[record(key)] id: u64, stock: u32 }
///
/// /// Takes one item from the stock, and returns how many are left, or nothing if there was none.
/// #[procedure(Take, served)]
/// pub fn take(items: &Table<Item>, tx: &Transaction<'_>, id: u64) -> Result<Option<u32>, Error> {
///     let left = tx.update(items, &id, |item| {
///         let left = item.stock.checked_sub(1);
///         item.stock = left.unwrap_or(0);
///         left
///     })?;
///     Ok(left.flatten())
/// }
///
/// let database = weft_server::with_tables(Database::builder().table::<Item>()).open()?;
/// let items = database.table::<Item>()?;
/// database.transact(|tx| tx.insert(&items, Item { id: 7, stock: 3 }))?;
/// let server = Server::builder().database(database).procedure::<Take<'_>>("take").open()?;
/// // A client that says `TAKE 7`, or `FCALL take 0 7`, now gets 2.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    options: Options,
    database: Option<Database>,
    node: Option<(NodeBuilder<Dbx>, Arc<dyn ReplicatedLog>)>,
    procedures: Vec<(String, NewProcedure)>,
}

type NewProcedure = fn(&str, &Database) -> Result<Procedure, Failure>;

impl Builder {
    /// Sets the options. Those of the [store](Options::store) have no effect on a [database](Self::database) of the program.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Serves a database of the program, which has been opened with the tables of Redis's types:
    /// [`with_tables`](crate::with_tables). The server closes it when it stops.
    #[must_use]
    pub fn database(mut self, database: Database) -> Self {
        self.database = Some(database);
        self
    }

    /// Replicates the server through a log. The node has the tables of the program; those of Redis's types are added. The
    /// server ends the node when it stops. (The options of [`Options::replication`] that are for the node have no effect. Its
    /// directory is [`NodeBuilder::directory`].)
    ///
    /// ```
    /// use std::time::Duration;
    /// use weft::Database;
    /// use weft_replication::{NodeBuilder, SimulatedLog};
    /// use weft_server::Server;
    ///
    /// let log = SimulatedLog::new(1);
    /// let node = NodeBuilder::new(Database::builder).address("one.example:6379");
    /// let server = Server::builder().replicated(node, log.connect()).open()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn replicated(mut self, node: NodeBuilder<Dbx>, log: Arc<dyn ReplicatedLog>) -> Self {
        self.node = Some((node, log));
        self
    }

    /// Lets clients call a procedure: `NAME ARGUMENT …` or `FCALL NAME 0 ARGUMENT …`. Each call is a transaction, which is
    /// rolled back if the procedure returns an error.
    #[must_use]
    pub fn procedure<S: Served>(mut self, name: &str) -> Self {
        self.procedures.push((name.to_owned(), Procedure::new::<S>));
        self
    }

    /// Opens the server, and reads its users and certificates.
    ///
    /// # Errors
    /// The directory cannot be used, the database does not have the tables, or a file cannot be read.
    ///
    /// # Panics
    /// If a procedure has the name of a command, or of another procedure.
    pub fn open(self) -> io::Result<Arc<Server>> {
        let options = self.options;
        let node = match self.node {
            Some(_) if options.store.directory.is_some() => {
                return Err(io::Error::other(
                    "the directory of a replicated server is its node's: set it by NodeBuilder::directory",
                ));
            }
            None if !options.replication.log.is_empty() => Some(replicated_by_options(&options)?),
            node => node,
        };
        if node.is_some() && !options.waits {
            return Err(io::Error::other(
                "a replicated server replies when its commits are replicated: leave --acknowledge at-once out",
            ));
        }
        let backups = ServerBackups::at(&options.replication.backups).map_err(io::Error::other)?;
        let start = |(node, log)| replication::start(node, log, backups);
        let replication = node.map(start).transpose().map_err(io::Error::other)?;
        let database = match (&replication, self.database) {
            (Some(_), Some(_)) => {
                return Err(io::Error::other(
                    "a replicated server has the database of its node: give the tables to Builder::replicated",
                ));
            }
            (Some(replication), None) => replication.replica().database().clone(),
            (None, Some(database)) => database,
            (None, None) => {
                let is_inspected = options.listen.inspect_port != 0;
                let opened = tables::open(&options.store, is_inspected);
                opened.map_err(io::Error::other)?
            }
        };
        Server::new(options, (database, replication), self.procedures.into())
    }
}

/// Returns the node and the log of a server that the settings make replicated.
fn replicated_by_options(
    options: &Options,
) -> io::Result<(NodeBuilder<Dbx>, Arc<dyn ReplicatedLog>)> {
    let log = replication::open_log(&options.replication).map_err(io::Error::other)?;
    let (store, is_inspected) = (options.store.clone(), options.listen.inspect_port != 0);
    let node = NodeBuilder::new(move || tables::builder(&store, is_inspected))
        .address(&options.replication.address)
        .options(options.replication.node.clone());
    Ok(match &options.store.directory {
        Some((path, _)) => (node.directory(path), log),
        None => (node, log),
    })
}

impl Server {
    /// Opens a server with a database of its own, and reads its users and certificates.
    ///
    /// # Errors
    /// The directory cannot be used, or a file cannot be read.
    pub fn open(options: Options) -> io::Result<Arc<Self>> {
        Self::builder().options(options).open()
    }

    /// Prepares a server with tables and procedures of the program.
    pub fn builder() -> Builder {
        let options = Options::default();
        Builder { options, database: None, node: None, procedures: Vec::new() }
    }

    fn new(
        options: Options,
        (database, replication): (Database, Option<Replication>),
        new_procedures: Arc<[(String, NewProcedure)]>,
    ) -> io::Result<Arc<Self>> {
        let procedures = prepare(&new_procedures, &database)?;
        let (users_file, password) = (options.users_file.clone(), options.password.as_deref());
        let users = Users::open(users_file, password, procedures.commands().collect());
        let users = users.map_err(io::Error::other)?;
        let tls = Tls::open(&options.listen.tls).map_err(io::Error::other)?;
        let store = Store::new(tables::attach(&database).map_err(io::Error::other)?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let server = Server {
            waits: options.waits && database.durable_epoch().is_some(),
            clients_max: Word::new(0),
            clients_bytes_max: Word::new(0),
            clients_bytes: Word::new(0),
            idle_seconds: Word::new(0),
            is_protected: Word::new(0),
            serves_reads: Word::new(0),
            last_save: Word::new(now.as_secs()),
            live: Arc::new(Mutex::new(Options { password: None, ..options.clone() })),
            changed: Arc::default(),
            tls,
            stopping: Arc::new(watch::Sender::new(false)),
            reloading: Arc::default(),
            scripts: Arc::new(Scripts::new(options.request_bytes)),
            procedures,
            new_procedures,
            options,
            database,
            store,
            replication,
            users: Arc::new(users),
            clients: Arc::default(),
            watches: Watches::default(),
            turns: Arc::new(Turns::new(TURN_MAX)),
            waiters: Waiters::default(),
            publish: PubSub::default(),
            monitors: Monitors::default(),
            slow_log: Arc::default(),
            latency: Arc::default(),
            counters: Arc::new(Counters::new()),
            started: Instant::now(),
        };
        server.apply_settings();
        if server.replication.is_none() {
            server.count_start().map_err(io::Error::other)?;
        }
        Ok(Arc::new(server))
    }

    /// Returns the server that follows this one, with the next database of the node. They share what belongs to the process.
    ///
    /// # Errors
    /// The database does not have the tables.
    pub fn next(&self, replication: Replication) -> io::Result<Self> {
        let database = replication.replica().database().clone();
        let store = Store::new(tables::attach(&database).map_err(io::Error::other)?);
        let [clients_max, clients_bytes_max, clients_bytes, idle_seconds] =
            std::array::from_fn(|_| Word::new(0));
        let [is_protected, serves_reads, last_save] = std::array::from_fn(|_| Word::new(0));
        last_save.store(self.last_save.load(Ordering::Relaxed), Ordering::Relaxed);
        let server = Server {
            options: self.options.clone(),
            procedures: prepare(&self.new_procedures, &database)?,
            new_procedures: Arc::clone(&self.new_procedures),
            database,
            store,
            replication: Some(replication),
            users: Arc::clone(&self.users),
            clients: Arc::clone(&self.clients),
            watches: Watches::default(),
            turns: Arc::new(Turns::new(TURN_MAX)),
            waiters: Waiters::default(),
            publish: PubSub::default(),
            monitors: Monitors::default(),
            scripts: Arc::clone(&self.scripts),
            slow_log: Arc::clone(&self.slow_log),
            latency: Arc::clone(&self.latency),
            counters: Arc::clone(&self.counters),
            started: self.started,
            waits: self.waits,
            clients_max,
            clients_bytes_max,
            clients_bytes,
            idle_seconds,
            is_protected,
            serves_reads,
            last_save,
            live: Arc::clone(&self.live),
            changed: Arc::clone(&self.changed),
            tls: self.tls.clone(),
            stopping: Arc::clone(&self.stopping),
            reloading: Arc::clone(&self.reloading),
        };
        server.apply_settings();
        Ok(server)
    }

    /// Counts this start of the server in the database, so that no number of a collection is given twice.
    ///
    /// # Errors
    /// Those of the database.
    pub fn count_start(&self) -> Result<(), Failure> {
        let (number, seed) = tables::count_start(&self.database)?;
        self.store.begin(number, seed);
        Ok(())
    }

    /// Returns whether the server knows how keys are hashed in the database, which the first primary has decided.
    pub fn knows_keys(&self) -> bool {
        if self.store.seed() == 0
            && let Ok(Some(seed)) = tables::find_seed(&self.database)
        {
            self.store.set_seed(seed);
        }
        self.store.seed() != 0
    }

    /// Returns the options, with what `CONFIG SET` has changed.
    pub fn live(&self) -> MutexGuard<'_, Options> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of the settings that `CONFIG SET` has changed.
    pub fn changed(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the server to stop, as [`Server::serve`] does when its future is ready.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Accepts connections until `stop` is ready or a client asks for it. Then ends all connections, each after the
    /// commands that have arrived, and closes the database. The runtime that runs this accepts the connections, and
    /// [threads](Options::threads) of the server's own serve them.
    ///
    /// # Errors
    /// A thread cannot be started, or the last commits cannot be made durable.
    pub async fn serve(
        self: Arc<Self>,
        listeners: Listeners,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let current = Current::new(Arc::clone(&self));
        let watching = Watching::start(&current)?;
        let collector = match watching {
            // The primary has one.
            Some(_) => None,
            None => Some(Collector::start(Arc::clone(&self))?),
        };
        let workers = Arc::new(Workers::start(self.options.threads)?);
        let mut accepting = JoinSet::new();
        let counted = current.clone();
        let commands = move || {
            let counters = &counted.get().counters;
            counters.sample(Instant::now());
            counters.commands.load(Ordering::Relaxed)
        };
        accepting.spawn(workers.adapt(commands));
        for listener in listeners.tcp {
            let address = listener.local_addr()?.to_string();
            log(Level::Info, "listening", json!({ "address": address }));
            accepting.spawn(accept_tcp(current.clone(), Arc::clone(&workers), listener, None));
        }
        for listener in listeners.tls {
            let address = listener.local_addr()?.to_string();
            let tls = self.tls.clone().ok_or_else(|| io::Error::other(NO_CERTIFICATE))?;
            log(Level::Info, "listening", json!({ "address": address, "tls": true }));
            accepting.spawn(accept_tcp(current.clone(), Arc::clone(&workers), listener, Some(tls)));
        }
        let path = listeners.unix.as_ref().map(|(_, path)| path.clone());
        if let Some((listener, path)) = listeners.unix {
            log(Level::Info, "listening", json!({ "socket": path.display().to_string() }));
            accepting.spawn(accept_unix(current.clone(), Arc::clone(&workers), listener));
        }
        for listener in listeners.http {
            let address = listener.local_addr()?.to_string();
            log(Level::Info, "listening", json!({ "address": address, "http": true }));
            accepting.spawn(http::serve(current.clone(), listener));
        }
        let inspect_port = self.options.listen.inspect_port;
        if inspect_port != 0 {
            accepting.spawn(inspect::serve(current.clone(), inspect_port)?);
        }
        accepting.spawn(reload::when_asked(current.clone(), Arc::clone(&self.reloading)));
        let notifies_systemd = self.options.notifies_systemd;
        if notifies_systemd {
            systemd::notify("READY=1");
            accepting.spawn(health::watch_over(current.clone()));
        }
        // A replicated server that steps down is replaced by the next one. So from here on this function keeps only what the
        // servers share, and the memory of the first one's database is freed when its connections have ended.
        let (clients, stopping) = (Arc::clone(&self.clients), Arc::clone(&self.stopping));
        let (limit, database) = (self.options.stop_timeout, self.database.clone());
        let database = Some(database).filter(|_| watching.is_none());
        drop((self, current));
        let mut stops = stopping.subscribe();
        tokio::select! {
            () = stop => {
                stopping.send_replace(true);
            }
            // This function has a sender, so this ends with the value alone.
            _ = stops.wait_for(|stops| *stops) => {}
        }
        if notifies_systemd {
            systemd::notify("STOPPING=1");
        }
        log(Level::Info, "stopping", json!({ "clients": clients.len() }));
        accepting.shutdown().await;
        clients.stop();
        let deadline = Instant::now() + limit;
        while !clients.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(workers);
        if let Some(collector) = collector {
            collector.stop();
        }
        if let Some(path) = path {
            // A socket that is gone already needs no removal.
            let _ = std::fs::remove_file(path);
        }
        let closed = tokio::task::spawn_blocking(move || {
            if let Some(watching) = watching {
                watching.stop(limit);
            }
            database.map_or(Ok(()), |database| database.close_within(limit))
        });
        closed.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        log(Level::Info, "stopped", json!({}));
        Ok(())
    }

    /// Has the system ask silent clients whether they are still there.
    fn keep_alive(&self, stream: &TcpStream) {
        let interval = self.options.keep_alive;
        if interval.is_zero() {
            return;
        }
        let options = TcpKeepalive::new().with_time(interval).with_interval(interval / 3);
        // A connection without it is only closed later.
        let _ = SockRef::from(stream).set_tcp_keepalive(&options.with_retries(3));
    }

    /// Returns why a client with this address is refused.
    fn refuses(&self, peer: SocketAddr) -> Option<&'static str> {
        let is_protected =
            self.is_protected.load(Ordering::Relaxed) != 0 && self.users.admits_strangers();
        (is_protected && !peer.ip().to_canonical().is_loopback()).then_some(
            "-DENIED The server is in protected mode, and has no password: it accepts connections from this machine \
             only. Start it with --password-file, or with --protected-mode no if no stranger can reach it.\r\n",
        )
    }

    /// Forgets watched keys.
    pub fn unwatch(&self, keys: WatchedKeys) {
        if !keys.is_empty() {
            self.watches.forget(self, keys);
        }
    }

    /// Runs a transaction, and performs its effects after the commit. All transactions that run commands go through here.
    ///
    /// # Errors
    /// Those of the body, and those of the database.
    pub fn transact<R>(
        &self,
        effects: &Effects,
        options: &TransactionOptions,
        mut body: impl FnMut(&Keys<'_>) -> Done<R>,
    ) -> Done<(R, CommitToken)> {
        let (result, token) = self.database.transact_with_token(options, |tx| {
            effects.clear();
            let keys = Keys { tx, store: &self.store, effects };
            let result = body(&keys)?;
            effects.take_numbers(&keys)?;
            Ok::<_, Stop>(result)
        })?;
        if !effects.are_none() {
            self.perform(effects, token);
        }
        Ok((result, token))
    }

    /// Does what the commands of a transaction have noted for the time after the commit.
    fn perform(&self, effects: &Effects, token: CommitToken) {
        for (space, key) in effects.take_woken() {
            self.waiters.wake(space, &key);
        }
        self.publish.publish(effects, token);
        effects.take_shown().iter().for_each(|line| self.monitors.show(line));
    }
}

/// Accepts connections by TCP, and by TLS if there is a certificate.
async fn accept_tcp(
    current: Current,
    workers: Arc<Workers>,
    listener: TcpListener,
    tls: Option<Tls>,
) {
    loop {
        let accepted = listener.accept().await.and_then(|(stream, peer)| {
            // Replies are sent as a whole, so there is nothing to wait for.
            let _ = stream.set_nodelay(true);
            current.get().keep_alive(&stream);
            let local = stream.local_addr().map_or(String::new(), |local| local.to_string());
            let socket = Socket::DetachedTcp(stream.into_std()?);
            Ok((socket, (peer.to_string(), local), current.get().refuses(peer)))
        });
        match accepted {
            Ok((socket, addresses, refused)) => {
                let opening = Opening { socket, tls: tls.clone(), addresses, refused };
                connection::open(current.get(), workers.seat(), opening);
            }
            Err(error) => note_failed_accept(&error).await,
        }
    }
}

/// Accepts connections on a Unix socket.
async fn accept_unix(current: Current, workers: Arc<Workers>, listener: UnixListener) {
    let path = listener.local_addr().ok();
    let path = path.and_then(|local| Some(local.as_pathname()?.display().to_string()));
    let path = path.unwrap_or_default();
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => {
                let socket = Socket::DetachedUnix(stream);
                let addresses = (format!("{path}:0"), path.clone());
                let opening = Opening { socket, tls: None, addresses, refused: None };
                connection::open(current.get(), workers.seat(), opening);
            }
            Err(error) => note_failed_accept(&error).await,
        }
    }
}

async fn note_failed_accept(error: &io::Error) {
    log(Level::Error, "a connection cannot be accepted", json!({ "error": error.to_string() }));
    // The system may have no descriptors left, until connections end.
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Prepares procedures for a database.
fn prepare(new: &[(String, NewProcedure)], database: &Database) -> io::Result<Procedures> {
    let mut procedures = Procedures::default();
    for (name, new) in new {
        procedures.add(new(name, database).map_err(io::Error::other)?);
    }
    Ok(procedures)
}

const NO_CERTIFICATE: &str =
    "TLS needs a certificate and its key: give --tls-certificate and --tls-key";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_mode_refuses_strangers_without_a_password() {
        let open = |is_protected, password: Option<&str>| {
            let password = password.map(str::to_owned);
            Server::open(Options { is_protected, password, ..Options::default() }).unwrap()
        };
        let refused = |server: &Server, address: &str| {
            let reply = server.refuses(SocketAddr::new(address.parse().unwrap(), 7000));
            reply.inspect(|reply| assert!(reply.starts_with("-DENIED ") && reply.ends_with("\r\n")))
        };
        let (local, others) = (
            ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"],
            ["10.0.0.7", "0.0.0.0", "2001:db8::1", "::ffff:10.0.0.7"],
        );
        let protected = open(true, None);
        for address in local {
            assert_eq!(refused(&protected, address), None, "{address}");
        }
        for address in others {
            assert!(refused(&protected, address).is_some(), "{address}");
            assert_eq!(refused(&open(true, Some("secret")), address), None, "{address}");
            assert_eq!(refused(&open(false, None), address), None, "{address}");
        }
        // CONFIG SET changes it for the clients that connect afterwards.
        protected.is_protected.store(0, Ordering::Relaxed);
        assert_eq!(refused(&protected, "10.0.0.7"), None);
    }
}
