//! Replication: what the server does as the primary, as a standby, and when it changes.
//!
//! A server follows a [node](weft_replication::Node) of a replicated database. The node's database changes when it steps down,
//! and with it all that belongs to the data: the tables, the clients that wait, the keys under `WATCH`, the subscriptions. So
//! such a server is a sequence of [`Server`]s, one for each database of the node. They share what belongs to the process: the
//! listeners, the users, the settings, the counters. [`Current`] is the last of them. A thread watches the node:
//!
//! ```text
//!   node begins, and reads the log       Loading    commands on data are answered with LOADING
//!   node has read it                     Standby    reads, if the client or the settings allow it
//!   node is the primary                  Primary    everything, as soon as this start is counted
//!   node has stepped down, or stopped    Over       the connections are ended, the next server begins
//! ```
//!
//! A node with a directory or backups needs the log to begin again. Until it can, the old server stays `Over`.
//!
//! Everything that a primary says is sent only when its commits are replicated, and then only if the node was the only
//! primary when it was computed: see `flush` in `connection.rs`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::watch;
use weft::htm::word::{Ordering, Word};
use weft::protocol::Dbx;
use weft_replication::{
    Node, NodeBuilder, NodeRole, NodeStatus, Replica, ReplicatedLog, ReplicationError, Report,
};

use crate::backups::ServerBackups;
use crate::clients::Client;
use crate::collector::Collector;
use crate::commands::{Command, flags};
use crate::log::{Level, log};
use crate::server::Server;
use crate::stop::{Done, Stop};
use crate::tables;

/// How often the lag is measured.
const LAG_INTERVAL: Duration = Duration::from_millis(500);
/// How long a change of the node is awaited before the thread looks whether it has to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How long a promotion may take, if the command does not say it.
pub const PROMOTION_TIME: Duration = Duration::from_secs(30);

/// The error reply to a write at a standby, as Redis has it. Clients connect again when they get it.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
/// The error reply to a command whose outcome is unknown. It has no code that makes clients repeat the command.
pub const UNKNOWN: &str = "ERR the outcome is unknown: this server is no longer the primary, and the command may have happened. Look for \
     what it has changed at the next primary before you repeat it";
/// The error reply to a command that waited, as Redis has it.
pub const UNBLOCKED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
/// The error reply to commands that wait for `EXEC`.
pub const ABORTED: &str = "EXECABORT Transaction discarded because this server is no longer the primary: begin it again at the next one";
const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// How a server is replicated: what the settings mean.
#[derive(Clone, Debug)]
pub struct ReplicationOptions {
    /// The replicated log, such as `kafka://one:9092,two:9092/topic`; empty if the server is not replicated.
    pub log: String,
    /// Where clients and the other servers find this one, such as `one.example:6379`.
    pub address: String,
    /// Whether a standby answers reads of clients that have not said `READONLY`.
    pub serves_reads: bool,
    /// On how many machines the log keeps what it has acknowledged, at least: what `WAIT` returns.
    pub copies: u32,
    /// How the brokers of Kafka know the server, and it them.
    pub kafka: BrokerOptions,
    /// A directory or the address of an object store, for backups; empty if it has no place for them. It needs the feature `backups`.
    pub backups: String,
    /// The options of the node.
    pub node: weft_replication::Options,
}

impl Default for ReplicationOptions {
    fn default() -> Self {
        ReplicationOptions {
            log: String::new(),
            address: String::new(),
            serves_reads: false,
            copies: 2,
            kafka: BrokerOptions::default(),
            backups: String::new(),
            node: weft_replication::Options::default(),
        }
    }
}

/// How a password is proved to brokers, as the settings name it.
pub const MECHANISMS: [&str; 3] = ["scram-sha-512", "scram-sha-256", "plain"];

/// How a server connects with the brokers of Kafka.
#[derive(Clone)]
pub struct BrokerOptions {
    /// A PEM file with the authorities of the brokers' certificates, which encrypts the connections. Default: `None`.
    pub authorities: Option<PathBuf>,
    /// A PEM file with the server's certificate, if the brokers want one. Default: `None`.
    pub certificate: Option<PathBuf>,
    /// A PEM file with the certificate's key. Default: `None`.
    pub key: Option<PathBuf>,
    /// The user; empty if the server does not log in.
    pub user: String,
    /// The user's password. It does not appear in debug output.
    pub password: String,
    /// How the password is proved: `scram-sha-512` by default, `scram-sha-256`, or `plain`.
    pub mechanism: &'static str,
    /// The identity of the topic that is accepted; empty to accept any.
    pub identity: String,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        BrokerOptions {
            authorities: None,
            certificate: None,
            key: None,
            user: String::new(),
            password: String::new(),
            mechanism: MECHANISMS[0],
            identity: String::new(),
        }
    }
}

impl fmt::Debug for BrokerOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = formatter.debug_struct("BrokerOptions");
        output.field("authorities", &self.authorities).field("certificate", &self.certificate);
        output.field("user", &self.user).field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// What a replicated server does with its present database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It reads the log, and what it has is old.
    Loading,
    /// It follows the primary.
    Standby,
    /// It is the primary.
    Primary,
    /// It follows the log no more, or with another database.
    Over,
}

impl Standing {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Loading => "loading",
            Standing::Standby => "standby",
            Standing::Primary => "primary",
            Standing::Over => "stopped",
        }
    }
}

/// A server's part in replication.
#[derive(Debug)]
pub struct Replication {
    node: Arc<Node<Dbx>>,
    replica: Replica<Dbx>,
    /// The [`Standing`], as a number.
    standing: Word,
    backups: ServerBackups,
    /// How many times this process was no longer the primary.
    pub steps_down: Arc<Word>,
    lag: Mutex<Lag>,
}

/// How far a standby is behind the primary.
#[derive(Clone, Copy, Debug)]
struct Lag {
    /// How many records of the log it has not read, when that was measured last.
    records: u64,
    /// Whether the log answered the last measurement. If not, nothing is known of what has been appended since.
    is_measured: bool,
    /// The log's end when it was measured last, and when that was.
    goal: (Instant, u64),
    /// The last time of which the standby is known to have everything.
    current_at: Instant,
}

impl Replication {
    /// Begins with the database that a node has now.
    fn new(node: Arc<Node<Dbx>>, backups: ServerBackups, steps_down: Arc<Word>) -> Self {
        let (replica, _) = node.current();
        let now = Instant::now();
        let lag = Mutex::new(Lag {
            records: 0,
            is_measured: false,
            goal: (now, u64::MAX),
            current_at: now,
        });
        let standing = Word::new(Standing::Loading as u64);
        Replication { node, replica, standing, backups, steps_down, lag }
    }

    /// Returns the database.
    pub fn replica(&self) -> &Replica<Dbx> {
        &self.replica
    }

    /// Returns what the server does.
    #[inline]
    pub fn standing(&self) -> Standing {
        // SeqCst: a client that was told about a promotion finds it. On x86 this is a plain load.
        match self.standing.load(Ordering::SeqCst) {
            standing if standing == Standing::Loading as u64 => Standing::Loading,
            standing if standing == Standing::Standby as u64 => Standing::Standby,
            standing if standing == Standing::Primary as u64 => Standing::Primary,
            _ => Standing::Over,
        }
    }

    /// Changes what the server does. Returns whether it did something else before.
    fn set_standing(&self, standing: Standing) -> bool {
        self.standing.swap(standing as u64, Ordering::SeqCst) != standing as u64
    }

    /// Returns what the node does.
    pub fn status(&self) -> NodeStatus {
        self.node.status()
    }

    /// Returns the address of the primary, if it is known and another server's. It is not known while the server loads.
    pub fn other_primary(&self) -> Option<Arc<str>> {
        let status = self.status();
        status.primary.filter(|_| status.role != NodeRole::Primary)
    }

    /// Returns why the node has stopped, if it has met a fault.
    pub fn fault(&self) -> Option<String> {
        self.node.fault().map(|fault| fault.to_string())
    }

    /// Returns which records of the log are missing, if this server waits for another one that may have them.
    pub fn missing(&self) -> Option<String> {
        let missing = self.node.missing().filter(|_| self.standing() != Standing::Primary)?;
        Some(format!("{missing}; start the server that was the primary, which may have them"))
    }

    /// Returns what has happened to the node that an operator should know of.
    pub fn reports(&self) -> Vec<Report> {
        self.node.reports()
    }

    /// Returns the node's directory, if it has one.
    pub fn directory(&self) -> Option<&Path> {
        self.node.directory()
    }

    /// Writes all rows to the node's directory.
    ///
    /// # Errors
    /// Those of [`Node::checkpoint`].
    pub fn checkpoint(&self) -> Result<(), ReplicationError> {
        self.node.checkpoint()
    }

    /// Returns the identity of the replicated log, if the log can still be used.
    pub fn log_identity(&self) -> Option<String> {
        self.node.log_identity().ok()
    }

    /// Writes a backup, and describes it.
    ///
    /// # Errors
    /// Those of [`ServerBackups::back_up`].
    pub fn back_up(&self) -> Result<String, ReplicationError> {
        self.backups.back_up(&self.node)
    }

    /// Removes records of the log that backups make superfluous. Returns the first offset that stays, if records may be removed.
    ///
    /// # Errors
    /// Those of [`ServerBackups::truncate_log`].
    pub fn truncate_log(&self) -> Result<Option<u64>, ReplicationError> {
        self.backups.truncate_log(&self.node)
    }

    /// Returns how many records of the log the server has not read, and for how long it has not had everything. If the log
    /// does not answer, the number is the last one that was measured, and the time grows.
    pub fn lag(&self) -> (u64, Duration) {
        match self.standing() {
            Standing::Primary => (0, Duration::ZERO),
            _ => {
                let lag = *self.hold_lag();
                let is_current = lag.is_measured && lag.records == 0;
                (lag.records, if is_current { Duration::ZERO } else { lag.current_at.elapsed() })
            }
        }
    }

    fn hold_lag(&self) -> MutexGuard<'_, Lag> {
        self.lag.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measure_lag(&self) {
        let next = self.node.status().next_offset;
        let behind = self.node.records_behind();
        let mut lag = self.hold_lag();
        if next >= lag.goal.1 {
            lag.current_at = lag.goal.0;
        }
        // A log that does not answer leaves the server behind by an unknown number.
        lag.is_measured = behind.is_ok();
        if let Ok(records) = behind {
            lag.records = records;
            lag.goal = (Instant::now(), next + records);
            if records == 0 {
                lag.current_at = lag.goal.0;
            }
        }
    }

    /// Makes the node the primary, and waits until the server serves. With `gives_up_missing` also if records of the log are
    /// missing; they are lost then.
    ///
    /// # Errors
    /// Why it is not.
    pub fn promote(&self, limit: Duration, gives_up_missing: bool) -> Result<(), ReplicationError> {
        let begin = Instant::now();
        match gives_up_missing {
            true => self.node.promote_without_missing(limit)?,
            false => self.node.promote(limit)?,
        };
        while self.standing() != Standing::Primary {
            if self.standing() == Standing::Over {
                return Err(ReplicationError::NotPrimary);
            }
            if begin.elapsed() > limit {
                return Err(ReplicationError::TimedOut);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Proves that what the server has computed so far was up to date. Returns whether that is so.
    pub async fn is_proved(&self) -> bool {
        if self.replica.is_certain() {
            return true;
        }
        let replica = self.replica.clone();
        let proved = tokio::task::spawn_blocking(move || replica.confirm());
        matches!(proved.await, Ok(Ok(())))
    }
}

/// What a client may do at a standby.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtStandby {
    /// Whether it wants to read what the standby has: `READONLY`.
    pub reads: bool,
    /// Whether it understands `-REDIRECT`: `CLIENT CAPA redirect`.
    pub is_redirected: bool,
}

impl Server {
    /// Returns what the server does, if it is replicated.
    #[inline]
    pub fn standing(&self) -> Option<Standing> {
        self.replication.as_ref().map(Replication::standing)
    }

    /// Returns whether the server's data may be changed.
    #[inline]
    pub fn writes(&self) -> bool {
        !matches!(self.standing(), Some(Standing::Loading | Standing::Standby | Standing::Over))
    }

    /// Returns whether the data is kept in a directory.
    pub fn has_directory(&self) -> bool {
        match &self.replication {
            Some(replication) => replication.directory().is_some(),
            // A database of the program has a directory of its own.
            None => self.database.durable_epoch().is_some(),
        }
    }

    /// Returns whether the server's connections end because its node follows the log with another database, or has stopped.
    pub fn is_over(&self) -> bool {
        self.standing() == Some(Standing::Over)
    }

    /// Checks that a server that is not the primary may run a command.
    ///
    /// # Errors
    /// The error reply.
    #[cold]
    pub fn admit(&self, command: &Command, is_data: bool, client: AtStandby) -> Done {
        let Some(replication) = &self.replication else { return Ok(()) };
        let standing = replication.standing();
        if standing == Standing::Over {
            return Err(self.read_only());
        }
        // These have an effect on what a standby does not have.
        let is_primary_only = ["watch", "publish", "spublish"].contains(&command.name)
            || command.name.ends_with("subscribe") && !command.name.contains("unsub");
        let is_free = command.name == "info";
        if !(is_data || is_primary_only) || is_free {
            return Ok(());
        }
        let is_write = is_primary_only || command.has(flags::WRITE);
        if (is_write || !client.reads)
            && client.is_redirected
            && let Some(address) = replication.other_primary()
        {
            return Err(format!("REDIRECT {address}").into());
        }
        if is_write {
            return Err(self.read_only());
        }
        if standing == Standing::Loading {
            return Err(match replication.missing() {
                Some(missing) => format!("LOADING {missing}").into(),
                None => LOADING.into(),
            });
        }
        if client.reads || self.serves_reads.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let of = self.primary_named(" of the primary at ");
        Err(format!(
            "READONLY This server is a standby{of}. Ask the primary, or say READONLY to read what the standby has"
        )
        .into())
    }

    /// Returns the error reply to a write at a standby.
    pub fn read_only(&self) -> Stop {
        format!("{READ_ONLY}{}", self.primary_named(" The primary is at ")).into()
    }

    /// Returns the primary's address behind a text, or nothing if it is not known.
    fn primary_named(&self, before: &str) -> String {
        let address = self.replication.as_ref().and_then(Replication::other_primary);
        address.map_or(String::new(), |address| format!("{before}{address}"))
    }
}

/// The server that serves now.
#[derive(Clone, Debug)]
pub struct Current(Arc<watch::Sender<Arc<Server>>>);

impl Current {
    /// Begins with a server.
    pub fn new(server: Arc<Server>) -> Self {
        Current(Arc::new(watch::Sender::new(server)))
    }

    /// Returns the server.
    pub fn get(&self) -> Arc<Server> {
        Arc::clone(&self.0.borrow())
    }

    /// Returns what tells of each change from now on.
    pub fn changes(&self) -> watch::Receiver<Arc<Server>> {
        self.0.subscribe()
    }

    fn set(&self, server: Arc<Server>) {
        self.0.send_replace(server);
    }
}

/// Starts a node with the tables of Redis's types next to those of the program.
///
/// # Errors
/// The options contradict each other, or the system refuses a thread.
pub fn start(
    node: NodeBuilder<Dbx>,
    log: Arc<dyn ReplicatedLog>,
    backups: ServerBackups,
) -> Result<Replication, ReplicationError> {
    let node = backups.attach(tables::with_replicated_tables(node)).start(log)?;
    Ok(Replication::new(Arc::new(node), backups, Arc::new(Word::new(0))))
}

/// Opens the log that the settings name.
///
/// # Errors
/// Why it cannot be used.
pub fn open_log(options: &ReplicationOptions) -> Result<Arc<dyn ReplicatedLog>, String> {
    let name = &options.log;
    let wrong = || format!("'{name}' is no log: write kafka://BROKER:PORT,BROKER:PORT/TOPIC");
    let (brokers, topic) =
        name.strip_prefix("kafka://").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
    let brokers: Vec<&str> = brokers.split(',').filter(|broker| !broker.is_empty()).collect();
    if brokers.is_empty() || topic.is_empty() {
        return Err(wrong());
    }
    open_topic(&brokers, topic, options)
}

#[cfg(feature = "kafka")]
fn open_topic(
    brokers: &[&str],
    topic: &str,
    options: &ReplicationOptions,
) -> Result<Arc<dyn ReplicatedLog>, String> {
    use weft_replication::kafka::{KafkaLog, KafkaLogin, KafkaMechanism, KafkaOptions, KafkaTls};

    let kafka = &options.kafka;
    let client = match (&kafka.certificate, &kafka.key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => return Err("--replicate-certificate and --replicate-key belong together".to_owned()),
    };
    if client.is_some() && kafka.authorities.is_none() {
        return Err("--replicate-certificate needs --replicate-authorities".to_owned());
    }
    if kafka.user.is_empty() != kafka.password.is_empty() {
        return Err("--replicate-user and --replicate-password-file belong together".to_owned());
    }
    let mechanism = match kafka.mechanism {
        "plain" => KafkaMechanism::Plain,
        "scram-sha-256" => KafkaMechanism::ScramSha256,
        _ => KafkaMechanism::ScramSha512,
    };
    let login =
        KafkaLogin { mechanism, user: kafka.user.clone(), password: kafka.password.clone() };
    let topic = KafkaOptions {
        insync_replicas_min: options.copies,
        identity: Some(kafka.identity.clone()).filter(|identity| !identity.is_empty()),
        tls: kafka.authorities.clone().map(|authorities| KafkaTls { authorities, client }),
        login: Some(login).filter(|login| !login.user.is_empty()),
        ..KafkaOptions::new(brokers, topic)
    };
    match KafkaLog::open(&topic) {
        Ok(log) => Ok(Arc::new(log)),
        Err(error) => Err(format!("the log cannot be used: {error}")),
    }
}

#[cfg(not(feature = "kafka"))]
fn open_topic(
    _: &[&str],
    _: &str,
    _: &ReplicationOptions,
) -> Result<Arc<dyn ReplicatedLog>, String> {
    Err("this program was built without Kafka: build it with --features kafka".to_owned())
}

/// The thread that watches the node.
#[derive(Debug)]
pub struct Watching {
    node: Arc<Node<Dbx>>,
    thread: JoinHandle<()>,
    stops: Arc<Word>,
}

impl Watching {
    /// Starts the thread, if the server is replicated.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn start(current: &Current) -> io::Result<Option<Self>> {
        let server = current.get();
        let Some(replication) = &server.replication else { return Ok(None) };
        let node = Arc::clone(&replication.node);
        let stops = Arc::new(Word::new(0));
        let watcher = Watcher {
            current: current.clone(),
            node: Arc::clone(&node),
            stops: Arc::clone(&stops),
            collector: None,
            measured: Instant::now(),
            reported: 0,
            missing: None,
            has_told_fault: false,
        };
        let thread = std::thread::Builder::new().name("weft-roles".to_owned());
        let thread = thread.spawn(move || watcher.run())?;
        Ok(Some(Watching { node, thread, stops }))
    }

    /// Ends the thread, and the node. A primary first waits until its commits are replicated.
    pub fn stop(self, limit: Duration) {
        self.stops.store(1, Ordering::SeqCst);
        let _ = self.thread.join();
        self.node.stop(limit);
    }
}

struct Watcher {
    current: Current,
    node: Arc<Node<Dbx>>,
    stops: Arc<Word>,
    collector: Option<Collector>,
    measured: Instant,
    /// How many of the node's reports are in the log.
    reported: usize,
    /// What the log has said of missing records last.
    missing: Option<String>,
    /// Whether the log says why the node has stopped.
    has_told_fault: bool,
}

impl Watcher {
    fn run(mut self) {
        while self.stops.load(Ordering::SeqCst) == 0 {
            let server = self.current.get();
            let replication = server.replication.as_ref().expect("all are replicated");
            self.tell(replication);
            let (replica, status) = self.node.current();
            // The node has no other database until it can open one, which can need the log.
            let begins_again = status.role == NodeRole::Standby && replica.is_over();
            if replica != replication.replica || status.role == NodeRole::Stopped || begins_again {
                self.end(&server, replication);
            }
            if replica != replication.replica {
                self.begin_again(&server, replication);
                continue;
            }
            let standing = match status.role {
                NodeRole::Stopped => Standing::Over,
                NodeRole::Standby if begins_again => Standing::Over,
                NodeRole::Primary => self.lead(&server, replication),
                NodeRole::Standby if status.is_current && server.knows_keys() => Standing::Standby,
                NodeRole::Standby => Standing::Loading,
            };
            if replication.set_standing(standing) {
                let (name, generation) = (standing.name(), status.token.generation);
                log(Level::Info, "role", json!({ "role": name, "generation": generation }));
            }
            if self.measured.elapsed() > LAG_INTERVAL && standing != Standing::Primary {
                replication.measure_lag();
                self.measured = Instant::now();
            }
            self.node.wait_for_change((&replica, &status), LOOK_INTERVAL);
        }
        if let Some(collector) = self.collector.take() {
            collector.stop();
        }
    }

    /// Writes to the log what an operator should know of the node.
    fn tell(&mut self, replication: &Replication) {
        let reports = replication.reports();
        for report in &reports[self.reported..] {
            let level = match report {
                Report::Repaired { .. } | Report::BackupSkipped(_) => Level::Warn,
                _ => Level::Error,
            };
            log(level, "a report of the node", json!({ "report": report.to_string() }));
        }
        self.reported = reports.len();
        let missing = replication.missing();
        if missing != self.missing {
            match &missing {
                Some(missing) => {
                    log(Level::Error, "records are missing", json!({ "missing": missing }));
                }
                None => log(Level::Info, "no records are missing any more", json!({})),
            }
            self.missing = missing;
        }
    }

    /// Prepares the server of a node that has become the primary. Returns what the server does then.
    fn lead(&mut self, server: &Arc<Server>, replication: &Replication) -> Standing {
        let standing = replication.standing();
        if standing == Standing::Primary {
            return standing;
        }
        let counted = server.count_start().map_err(|error| error.to_string());
        let begun = counted
            .and_then(|()| Collector::start(Arc::clone(server)).map_err(|error| error.to_string()));
        match begun {
            Ok(collector) => {
                self.collector = Some(collector);
                Standing::Primary
            }
            Err(error) => {
                // The node has stepped down again, or will be asked again.
                log(Level::Warn, "cannot serve as the primary yet", json!({ "error": error }));
                standing
            }
        }
    }

    /// Ends the connections of a server whose database is over.
    fn end(&mut self, server: &Arc<Server>, replication: &Replication) {
        let before = replication.standing();
        let fault = replication.fault();
        if !replication.set_standing(Standing::Over) {
            // The node could not begin again.
            if let Some(fault) = fault.filter(|_| !self.has_told_fault) {
                log(Level::Error, "the node has stopped", json!({ "fault": fault }));
                self.has_told_fault = true;
            }
            return;
        }
        self.has_told_fault = fault.is_some();
        if before == Standing::Primary {
            replication.steps_down.fetch_add(1, Ordering::Relaxed);
        }
        let level = if fault.is_some() { Level::Error } else { Level::Warn };
        let (was, clients) = (before.name(), server.clients.len());
        log(level, "the role is over", json!({ "was": was, "clients": clients, "fault": fault }));
        if let Some(collector) = self.collector.take() {
            collector.stop();
        }
        end_clients(&server.clients.all());
    }

    /// Goes on with the node's next database.
    fn begin_again(&self, server: &Arc<Server>, replication: &Replication) {
        let steps_down = Arc::clone(&replication.steps_down);
        let backups = replication.backups.clone();
        let next = Replication::new(Arc::clone(&self.node), backups, steps_down);
        match server.next(next) {
            Ok(next) => {
                self.current.set(Arc::new(next));
                // Those that have connected in the meantime.
                end_clients(&server.clients.all());
            }
            Err(error) => {
                log(Level::Error, "cannot go on", json!({ "error": error.to_string() }));
                std::thread::sleep(LAG_INTERVAL);
            }
        }
    }
}

fn end_clients(clients: &[Arc<Client>]) {
    clients.iter().for_each(|client| client.stop());
}
