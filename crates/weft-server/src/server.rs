//! The server: what all connections share, and how it begins and ends.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use weft::htm::word::{Ordering, Word};
use weft::{Database, Failure};

use crate::clients::Clients;
use crate::collector::Collector;
use crate::connection;
use crate::log::log;
use crate::procedures::{Procedure, Procedures, Served};
use crate::scripts::Scripts;
use crate::slow_log::SlowLog;
use crate::stop::{Done, Stop};
use crate::store::Store;
use crate::tables::{SPACES, StoreOptions};
use crate::watch::{WatchedKey, Watches};

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the data is kept.
    pub store: StoreOptions,
    /// Whether a reply waits until its commit is durable, if there is a directory.
    pub waits: bool,
    /// What clients have to give with `AUTH`.
    pub password: Option<String>,
    /// Whether clients from other machines are refused as long as there is no password.
    pub is_protected: bool,
    /// The most connections at the same time.
    pub clients_max: u64,
    /// The longest request, and the longest queue of `MULTI`, in bytes.
    pub request_bytes: usize,
    /// How long a call of a script may take.
    pub script_time: Duration,
    /// The most memory that a call of a script may need, in bytes.
    pub script_bytes: usize,
    /// The longest output that may wait for one connection, in bytes.
    pub output_bytes: usize,
    /// How long a connection may be silent, in seconds; 0 for ever.
    pub idle_seconds: u64,
    /// How long a client may take none of the output that waits for it.
    pub output_timeout: Duration,
    /// How long connections have to end when the server stops.
    pub stop_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            store: StoreOptions::default(),
            waits: true,
            password: None,
            is_protected: true,
            clients_max: 10_000,
            request_bytes: 64 << 20,
            script_time: Duration::from_secs(5),
            script_bytes: 64 << 20,
            output_bytes: 256 << 20,
            idle_seconds: 0,
            output_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(10),
        }
    }
}

/// Numbers that the server counts.
#[derive(Debug)]
pub struct Counters {
    /// Commands that were run.
    pub commands: Word,
    /// Connections that were accepted.
    pub accepted: Word,
    /// Connections that were refused.
    pub refused: Word,
    /// Error replies.
    pub errors: Word,
    /// Bytes received.
    pub input_bytes: Word,
    /// Bytes sent.
    pub output_bytes: Word,
    /// Keys that have expired and were removed in the background.
    pub expired: Word,
}

impl Counters {
    fn new() -> Self {
        let [commands, accepted, refused, errors, input_bytes, output_bytes, expired] =
            std::array::from_fn(|_| Word::new(0));
        Counters { commands, accepted, refused, errors, input_bytes, output_bytes, expired }
    }

    /// Sets all numbers to zero.
    pub fn reset(&self) {
        let Counters { commands, accepted, refused, errors, input_bytes, output_bytes, expired } =
            self;
        for counter in [commands, accepted, refused, errors, input_bytes, output_bytes, expired] {
            counter.store(0, Ordering::Relaxed);
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
    /// The clients.
    pub clients: Clients,
    /// The keys under `WATCH`.
    pub watches: Watches,
    /// The scripts.
    pub scripts: Scripts,
    /// The procedures that are called by their names.
    pub procedures: Procedures,
    /// The slow log.
    pub slow_log: SlowLog,
    /// What was counted.
    pub counters: Counters,
    /// When the server was opened.
    pub started: Instant,
    /// Whether replies wait until their commits are durable.
    pub waits: bool,
    /// The setting `maxclients`.
    pub clients_max: Word,
    /// The setting `timeout`, in seconds.
    pub idle_seconds: Word,
    /// The port and the directory, for `CONFIG GET`.
    port: Word,
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
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    options: Options,
    database: Option<Database>,
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

    /// Lets clients call a procedure: `NAME ARGUMENT …` or `FCALL NAME 0 ARGUMENT …`. Each call is a transaction, which is
    /// rolled back if the procedure returns an error.
    #[must_use]
    pub fn procedure<S: Served>(mut self, name: &str) -> Self {
        self.procedures.push((name.to_owned(), Procedure::new::<S>));
        self
    }

    /// Opens the server.
    ///
    /// # Errors
    /// [`Failure`], if the directory cannot be used, or the database does not have the tables.
    ///
    /// # Panics
    /// If a procedure has the name of a command, or of another procedure.
    pub fn open(self) -> Result<Arc<Server>, Failure> {
        let database = match self.database {
            Some(database) => database,
            None => crate::tables::open(&self.options.store)?,
        };
        let mut procedures = Procedures::default();
        for (name, new) in self.procedures {
            procedures.add(new(&name, &database)?);
        }
        Server::new(self.options, database, procedures)
    }
}

impl Server {
    /// Opens a server with a database of its own.
    ///
    /// # Errors
    /// [`Failure`], if the directory cannot be used.
    pub fn open(options: Options) -> Result<Arc<Self>, Failure> {
        Self::builder().options(options).open()
    }

    /// Prepares a server with tables and procedures of the program.
    pub fn builder() -> Builder {
        Builder { options: Options::default(), database: None, procedures: Vec::new() }
    }

    fn new(
        options: Options,
        database: Database,
        procedures: Procedures,
    ) -> Result<Arc<Self>, Failure> {
        let (tables, next) = crate::tables::attach(&database)?;
        Ok(Arc::new(Server {
            waits: options.waits && database.durable_epoch().is_some(),
            clients_max: Word::new(options.clients_max),
            idle_seconds: Word::new(options.idle_seconds),
            scripts: Scripts::new(options.request_bytes),
            procedures,
            options,
            database,
            store: Store::new(tables, next),
            clients: Clients::default(),
            watches: Watches::default(),
            slow_log: SlowLog::default(),
            counters: Counters::new(),
            started: Instant::now(),
            port: Word::new(0),
        }))
    }

    /// Accepts connections until `stop` is ready. Then ends all connections, each after the commands that have arrived,
    /// and closes the database.
    ///
    /// # Errors
    /// The thread of the background cannot be started, or the last commits cannot be made durable.
    pub async fn serve(
        self: Arc<Self>,
        tcp: Vec<TcpListener>,
        unix: Option<(UnixListener, PathBuf)>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let collector = Collector::start(Arc::clone(&self))?;
        let mut accepting = JoinSet::new();
        for listener in tcp {
            let address = listener.local_addr()?;
            self.port.store(u64::from(address.port()), Ordering::Relaxed);
            log("info", "listening", json!({ "address": address.to_string() }));
            accepting.spawn(Arc::clone(&self).accept_tcp(listener));
        }
        let path = unix.as_ref().map(|(_, path)| path.clone());
        if let Some((listener, path)) = unix {
            log("info", "listening", json!({ "socket": path.display().to_string() }));
            accepting.spawn(Arc::clone(&self).accept_unix(listener));
        }
        stop.await;
        log("info", "stopping", json!({ "clients": self.clients.len() }));
        accepting.shutdown().await;
        self.clients.stop();
        let limit = Instant::now() + self.options.stop_timeout;
        while !self.clients.is_empty() && Instant::now() < limit {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        collector.stop();
        if let Some(path) = path {
            // A socket that is gone already needs no removal.
            let _ = std::fs::remove_file(path);
        }
        let closed = tokio::task::spawn_blocking(move || {
            let limit = self.options.stop_timeout;
            self.database.close_within(limit)
        });
        closed.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        log("info", "stopped", json!({}));
        Ok(())
    }

    async fn accept_tcp(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // Replies are sent as a whole, so there is nothing to wait for.
                    let _ = stream.set_nodelay(true);
                    let local =
                        stream.local_addr().map_or(String::new(), |local| local.to_string());
                    let addresses = (peer.to_string(), local);
                    let refused = self.refuses(peer);
                    tokio::spawn(connection::serve(Arc::clone(&self), stream, addresses, refused));
                }
                Err(error) => self.note_failed_accept(&error).await,
            }
        }
    }

    async fn accept_unix(self: Arc<Self>, listener: UnixListener) {
        let path = listener.local_addr().ok();
        let path = path.and_then(|local| Some(local.as_pathname()?.display().to_string()));
        let path = path.unwrap_or_default();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let addresses = (format!("{path}:0"), path.clone());
                    tokio::spawn(connection::serve(Arc::clone(&self), stream, addresses, None));
                }
                Err(error) => self.note_failed_accept(&error).await,
            }
        }
    }

    async fn note_failed_accept(&self, error: &io::Error) {
        log("error", "a connection cannot be accepted", json!({ "error": error.to_string() }));
        // The system may have no descriptors left, until connections end.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    /// Returns why a client with this address is refused.
    fn refuses(&self, peer: SocketAddr) -> Option<&'static str> {
        let is_protected = self.options.is_protected && self.options.password.is_none();
        (is_protected && !peer.ip().to_canonical().is_loopback()).then_some(
            "-DENIED The server is in protected mode, and has no password: it accepts connections from this machine \
             only. Start it with --password-file, or with --protected-mode off if no stranger can reach it.\r\n",
        )
    }

    /// Forgets watched keys.
    pub fn unwatch(&self, keys: Vec<WatchedKey>) {
        if !keys.is_empty() {
            self.watches.forget(&self.database, &self.store, keys);
        }
    }

    /// Returns the settings that `CONFIG GET` shows.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let directory = self.options.store.directory.as_ref();
        let threshold = self.slow_log.threshold_micros.load(Ordering::Relaxed);
        vec![
            ("appendfsync", if self.waits { "always" } else { "everysec" }.to_owned()),
            ("appendonly", if directory.is_some() { "yes" } else { "no" }.to_owned()),
            ("databases", SPACES.to_string()),
            ("dir", directory.map_or(String::new(), |(path, _)| path.display().to_string())),
            ("maxclients", self.clients_max.load(Ordering::Relaxed).to_string()),
            ("maxmemory", self.options.store.memory_limit.unwrap_or(0).to_string()),
            ("maxmemory-policy", "noeviction".to_owned()),
            ("port", self.port.load(Ordering::Relaxed).to_string()),
            ("proto-max-bulk-len", self.options.request_bytes.to_string()),
            ("protected-mode", if self.options.is_protected { "yes" } else { "no" }.to_owned()),
            ("save", String::new()),
            ("slowlog-log-slower-than", threshold.cast_signed().to_string()),
            ("slowlog-max-len", self.slow_log.length_max.load(Ordering::Relaxed).to_string()),
            ("timeout", self.idle_seconds.load(Ordering::Relaxed).to_string()),
        ]
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// There is no such setting, or it can only be set when the server is started, or the value is not a number.
    pub fn set(&self, name: &str, value: &str) -> Done {
        let word = match name {
            "maxclients" => &self.clients_max,
            "timeout" => &self.idle_seconds,
            "slowlog-log-slower-than" => &self.slow_log.threshold_micros,
            "slowlog-max-len" => &self.slow_log.length_max,
            _ if self.settings().iter().any(|(known, _)| *known == name) => {
                return Err(format!(
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config: \
                     use the server's options"
                )
                .into());
            }
            _ => {
                return Err(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                )
                .into());
            }
        };
        let number = match (name, value) {
            ("slowlog-log-slower-than", "-1") => u64::MAX,
            _ => value.parse().map_err(|_| -> Stop {
                format!(
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - argument couldn't be parsed \
                     into an integer"
                )
                .into()
            })?,
        };
        word.store(number, Ordering::Relaxed);
        Ok(())
    }
}
