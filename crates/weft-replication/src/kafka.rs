//! A topic of Kafka as the replicated log.
//!
//! The topic belongs to one database. [`KafkaLog::open`] refuses a topic unless it has
//!
//! | setting | value | because |
//! | --- | --- | --- |
//! | partitions | 1 | The order of all records is what the protocol rests on. |
//! | `min.insync.replicas` | 2 or more | A record that is confirmed is on two machines. So there must be three replicas, for one to fail. |
//! | `unclean.leader.election.enable` | `false` | A machine that lacks confirmed records must not become the leader. |
//! | `retention.ms`, `retention.bytes` | -1 | A node that starts reads all records. |
//! | `cleanup.policy` | `delete` | Compaction would remove records. |
//! | `max.message.bytes` | 910000 or more | A record is that long with its batch. |
//! | `compression.type` | `producer` or `uncompressed` | The client cannot read what the brokers compress. (Weft compresses the records itself.) |
//!
//! ```rust,no_run
//! use std::sync::Arc;
//!
//! use weft::{Database, Record};
//! use weft_replication::NodeBuilder;
//! use weft_replication::kafka::{KafkaLog, KafkaOptions};
//!
//! #[derive(Clone, Record)]
//! struct Account {
//!     #[record(key)]
//!     id: u32,
//!     cents: i64,
//! }
//!
//! let log = KafkaLog::open(&KafkaOptions::new(&["one:9092", "two:9092", "three:9092"], "accounts"))?;
//! let node = NodeBuilder::new(Database::builder).table::<Account>().start(Arc::new(log))?;
//! # Ok::<(), weft_replication::ReplicationError>(())
//! ```
//!
//! # Quotas
//!
//! The user with which nodes connect must have no quota (`producer_byte_rate`, `consumer_byte_rate`, `request_percentage`). When
//! a broker answers that a quota is exceeded, it has already appended the record. The client waits, and then sends the record
//! again, until an answer names no quota. So the log gets more copies of the record, which have no effect, and the commit waits
//! longer, up to [`KafkaOptions::timeout`]. The brokers do not show quotas with the topic's settings, so
//! [`KafkaLog::open`] cannot check this.
//!
//! # What happens when brokers fail
//!
//! The client asks for the leader of the topic, and asks again if that refuses or closes the connection. A broker that
//! stops answering without closing it, such as a machine without power, does neither. So when a call has not been answered
//! in time, the connection is given up, and the next call asks another broker for the leader. A call never takes much longer
//! than [`KafkaOptions::timeout`].
//!
//! A thread asks every second whether the topic is still the same one. If somebody has deleted it and made it again, every
//! call fails with [`LogError::Misconfigured`], and nodes stop.

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use rskafka::BackoffConfig;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{ClientBuilder, Credentials, SaslConfig};
use rskafka::record::Record;
use tokio::runtime::{Builder, Runtime};

use crate::RECORD_BYTES_MAX;
use crate::log::{LogError, LogRecord, ReplicatedLog};

mod settings;
mod topic;
mod wire;

use topic::TopicState;
use wire::{Security, Wire};

/// How many bytes a batch with one record may take beside the record.
const BATCH_BYTES: u64 = 10_000;

/// How many bytes a read asks for at most, if the first record is not longer.
const READ_BYTES: i32 = 4 << 20;

/// The time of every record: Kafka's value for none. Brokers refuse records whose time is an hour ahead of theirs, so a node with
/// a wrong clock could not write.
const NO_TIME: DateTime<Utc> = DateTime::from_timestamp_millis(-1).expect("it is a time");

/// The time from one question whether the topic is still the same to the next one.
const WATCH: Duration = Duration::from_secs(1);

/// A topic of Kafka with one partition.
pub struct KafkaLog {
    /// Runs the client. It is there until this is dropped.
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
}

/// What a log and the thread that watches its topic share.
struct Shared {
    options: KafkaOptions,
    security: Security,
    /// The topic's identity when it was opened.
    identity: String,
    connection: Mutex<Connection>,
    /// Why this topic cannot be used any more.
    replaced: OnceLock<String>,
    is_over: Mutex<bool>,
    ends: Condvar,
}

/// The connection with the broker that leads.
struct Connection {
    partition: Option<Arc<PartitionClient>>,
    /// The addresses of all brokers that are known. The first one is asked first.
    brokers: Vec<String>,
}

/// How a topic of Kafka is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaOptions {
    /// The addresses of brokers, such as `localhost:9092`. The client finds the others automatically.
    pub brokers: Vec<String>,
    /// The topic, which must exist.
    pub topic: String,
    /// After how long an append or a read fails. Default: 10 s.
    pub timeout: Duration,
    /// The least `min.insync.replicas` with which the topic is accepted. Default: 2. With 1, the failure of one machine can
    /// lose commits that were acknowledged.
    pub insync_replicas_min: u32,
    /// What [`KafkaLog::identity`] must return, so that a topic that somebody has made again is refused. Default: `None`, which
    /// accepts any.
    pub identity: Option<String>,
    /// Encrypts the connections, if the brokers do that. Default: `None`.
    pub tls: Option<KafkaTls>,
    /// Logs in, if the brokers want that. Default: `None`.
    pub login: Option<KafkaLogin>,
}

/// How connections with brokers are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaTls {
    /// A PEM file with the certificates of the authorities that the brokers' certificates must come from. For a service with a
    /// public certificate, this is the operating system's file, such as `/etc/ssl/certs/ca-certificates.crt`.
    pub authorities: PathBuf,
    /// A PEM file with the certificate of this client, and one with its private key, if the brokers want them.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// How a client logs in.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaLogin {
    /// How the password is proved.
    pub mechanism: KafkaMechanism,
    /// The user.
    pub user: String,
    /// The password. It does not appear in debug output.
    pub password: String,
}

/// How a password is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KafkaMechanism {
    /// The password is sent. Use it only with TLS.
    Plain,
    /// SCRAM-SHA-256, which does not send the password.
    ScramSha256,
    /// SCRAM-SHA-512, which does not send the password.
    ScramSha512,
}

impl KafkaMechanism {
    /// Returns the name that Kafka uses for it.
    pub fn name(self) -> &'static str {
        match self {
            KafkaMechanism::Plain => "PLAIN",
            KafkaMechanism::ScramSha256 => "SCRAM-SHA-256",
            KafkaMechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl fmt::Debug for KafkaLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = formatter.debug_struct("KafkaLogin");
        output.field("mechanism", &self.mechanism).field("user", &self.user);
        output.finish_non_exhaustive()
    }
}

impl KafkaOptions {
    /// Returns the default options for a topic.
    pub fn new(brokers: &[&str], topic: &str) -> KafkaOptions {
        KafkaOptions {
            brokers: brokers.iter().map(|&broker| broker.to_owned()).collect(),
            topic: topic.to_owned(),
            timeout: Duration::from_secs(10),
            insync_replicas_min: 2,
            identity: None,
            tls: None,
            login: None,
        }
    }

    /// How long one broker may take to answer, if there are others to ask.
    fn step(&self) -> Duration {
        self.timeout / 3
    }

    /// Asks brokers until one answers. An answer that the topic or the client is not as it must be ends that, too.
    fn ask<R>(
        &self,
        security: &Security,
        brokers: &[String],
        mut question: impl FnMut(&mut Wire) -> Result<R, LogError>,
    ) -> Result<R, LogError> {
        let mut failures = Vec::new();
        for broker in brokers {
            let asked = Wire::connect(broker, security, self.step());
            match asked.and_then(|mut wire| question(&mut wire)) {
                Err(LogError::Unavailable(failure)) => failures.push(failure),
                answered => return answered,
            }
        }
        Err(LogError::Unavailable(match failures.is_empty() {
            true => "no broker was named".to_owned(),
            false => failures.join("; "),
        }))
    }

    /// Checks the settings of the topic.
    fn check(&self, settings: &settings::Settings) -> Result<(), LogError> {
        let topic = &self.topic;
        let number = |text: &str, least: u64| text.parse().is_ok_and(|number: u64| number >= least);
        let (replicas_min, bytes_min) =
            (u64::from(self.insync_replicas_min), RECORD_BYTES_MAX as u64 + BATCH_BYTES);
        let check = |name: &str, wanted: &str, fits: &dyn Fn(&str) -> bool| {
            let value = settings.get(name).cloned().flatten().unwrap_or_default();
            match fits(&value) {
                true => Ok(()),
                false => Err(LogError::Misconfigured(format!(
                    "topic `{topic}` has `{name}={value}`, and must have {wanted}: set it with kafka-configs, and open it again"
                ))),
            }
        };
        let at_least = |least: u64| format!("{least} or more");
        check("min.insync.replicas", &at_least(replicas_min), &|it| number(it, replicas_min))?;
        check("max.message.bytes", &at_least(bytes_min), &|it| number(it, bytes_min))?;
        let compression = |value: &str| matches!(value, "producer" | "uncompressed");
        check("compression.type", "producer or uncompressed", &compression)?;
        for (name, wanted) in [
            ("unclean.leader.election.enable", "false"),
            ("retention.ms", "-1"),
            ("retention.bytes", "-1"),
            ("cleanup.policy", "delete"),
        ] {
            check(name, wanted, &|value| value == wanted)?;
        }
        Ok(())
    }

    /// Says that the topic is another one.
    fn another(&self, expected: &str, found: &str) -> String {
        let topic = &self.topic;
        format!(
            "topic `{topic}` is `{found}`, and must be `{expected}`: somebody has deleted it and made it again, or these are the brokers of another cluster. Do not use this topic; restore the database from a backup"
        )
    }
}

impl KafkaLog {
    /// Connects with a topic, and checks its settings.
    ///
    /// # Errors
    /// [`LogError::Unavailable`]; [`LogError::Misconfigured`] if the topic does not exist, is another one than expected, or has a
    /// setting that does not fit, or if the brokers refuse the certificate or the password.
    pub fn open(options: &KafkaOptions) -> Result<KafkaLog, LogError> {
        let security = Security::new(options)?;
        let topic = &options.topic;
        let (state, settings) = options.ask(&security, &options.brokers, |wire| {
            Ok((topic::ask(wire, topic)?, settings::ask(wire, topic)?))
        })?;
        match state.partitions {
            1 => {}
            0 => {
                return Err(LogError::Misconfigured(format!(
                    "topic `{topic}` does not exist; create it with one partition"
                )));
            }
            partitions => {
                return Err(LogError::Misconfigured(format!(
                    "topic `{topic}` has {partitions} partitions, and must have one"
                )));
            }
        }
        if let Some(expected) = &options.identity
            && *expected != state.identity
        {
            return Err(LogError::Misconfigured(options.another(expected, &state.identity)));
        }
        options.check(&settings)?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let unavailable = |error: std::io::Error| LogError::Unavailable(error.to_string());
        let runtime = runtime.map_err(unavailable)?;
        let shared = Arc::new(Shared {
            options: options.clone(),
            security,
            identity: state.identity.clone(),
            connection: Mutex::new(Connection {
                partition: None,
                brokers: all_brokers(&options.brokers, &state),
            }),
            replaced: OnceLock::new(),
            is_over: Mutex::new(false),
            ends: Condvar::new(),
        });
        let log = KafkaLog { runtime: Some(runtime), shared: Arc::clone(&shared) };
        log.partition()?;
        let watch = thread::Builder::new().name("weft-kafka-watch".to_owned());
        watch.spawn(move || shared.watch()).map_err(unavailable)?;
        Ok(log)
    }

    /// Returns the identity of the topic: the cluster's identifier, a slash, and the topic's. A topic that is deleted and made
    /// again has another one.
    ///
    /// # Errors
    /// [`LogError::Misconfigured`] if the topic has become another one.
    pub fn identity(&self) -> Result<String, LogError> {
        self.shared.usable()?;
        Ok(self.shared.identity.clone())
    }

    /// Asks the brokers for the topic's settings again, and checks them. A monitor can call this now and then: a retention that
    /// somebody sets by mistake removes records some time later.
    ///
    /// # Errors
    /// [`LogError::Unavailable`]; [`LogError::Misconfigured`] if a setting does not fit, or the topic is another one.
    pub fn check(&self) -> Result<(), LogError> {
        let shared = &*self.shared;
        shared.usable()?;
        let brokers = shared.connection().brokers.clone();
        let options = &shared.options;
        let ask = |wire: &mut Wire| settings::ask(wire, &options.topic);
        options.check(&options.ask(&shared.security, &brokers, ask)?)
    }

    /// Removes all records before an offset.
    ///
    /// # Errors
    /// [`LogError::Unavailable`], [`LogError::Misconfigured`].
    pub fn truncate_before(&self, offset: u64) -> Result<(), LogError> {
        let timeout = self.shared.options.timeout;
        let (offset, limit_ms) = (offset as i64, timeout.as_millis() as i32);
        let removed = self.with(timeout, move |partition| async move {
            partition.delete_records(offset, limit_ms).await
        });
        removed?.map_err(unavailable)
    }

    /// Returns the connection with the broker that leads, which is made if there isn't one.
    fn partition(&self) -> Result<Arc<PartitionClient>, LogError> {
        let shared = &*self.shared;
        let mut connection = shared.connection();
        if let Some(partition) = &connection.partition {
            return Ok(Arc::clone(partition));
        }
        let runtime = self.runtime.as_ref().expect("it is there until the log is dropped");
        let end = Instant::now() + shared.options.timeout;
        let mut failures = Vec::new();
        // Each broker in turn: one that doesn't answer must not be asked again and again.
        for _ in 0..connection.brokers.len() {
            let broker = connection.brokers[0].clone();
            match shared.connect(runtime, &broker) {
                Ok(partition) => {
                    connection.partition = Some(Arc::clone(&partition));
                    return Ok(partition);
                }
                Err(LogError::Unavailable(failure)) => {
                    failures.push(format!("{broker}: {failure}"))
                }
                Err(error) => return Err(error),
            }
            connection.brokers.rotate_left(1);
            if Instant::now() > end {
                break;
            }
        }
        Err(LogError::Unavailable(failures.join("; ")))
    }

    /// Does something with the partition, on the client's thread. So it can be called from any thread, also from one of an
    /// executor.
    fn with<R: Send + 'static, F: Future<Output = Result<R, Error>> + Send>(
        &self,
        limit: Duration,
        work: impl FnOnce(Arc<PartitionClient>) -> F + Send + 'static,
    ) -> Result<Result<R, Error>, LogError> {
        self.shared.usable()?;
        let partition = self.partition()?;
        let runtime = self.runtime.as_ref().expect("it is there until the log is dropped");
        let of_call = Arc::clone(&partition);
        let result = call(runtime, limit, async move { work(of_call).await });
        if result.is_err() {
            self.shared.give_up(&partition);
        }
        // The answer may come from another topic of this name.
        self.shared.usable()?;
        result
    }
}

impl Shared {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the topic is not known to be another one.
    fn usable(&self) -> Result<(), LogError> {
        match self.replaced.get() {
            Some(why) => Err(LogError::Misconfigured(why.clone())),
            None => Ok(()),
        }
    }

    /// Forgets a connection that does not answer. The next call asks another broker.
    fn give_up(&self, partition: &Arc<PartitionClient>) {
        let mut connection = self.connection();
        if connection.partition.as_ref().is_some_and(|it| Arc::ptr_eq(it, partition)) {
            connection.partition = None;
            connection.brokers.rotate_left(1);
        }
    }

    /// Compares the topic with the one that was opened.
    fn compare(&self, state: &TopicState) -> Result<(), LogError> {
        if state.partitions > 0 && state.identity != self.identity {
            let why = self.options.another(&self.identity, &state.identity);
            let _ = self.replaced.set(why);
        }
        self.usable()
    }

    /// Asks a broker for the leader, and connects with that.
    fn connect(&self, runtime: &Runtime, broker: &str) -> Result<Arc<PartitionClient>, LogError> {
        let options = &self.options;
        let mut wire = Wire::connect(broker, &self.security, options.step()).map_err(passing)?;
        self.compare(&topic::ask(&mut wire, &options.topic)?)?;
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(5),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
            deadline: Some(options.timeout),
        };
        let mut builder = ClientBuilder::new(vec![broker.to_owned()]).backoff_config(backoff);
        if let Some(tls) = &self.security.tls {
            builder = builder.tls_config(Arc::clone(tls));
        }
        if let Some(KafkaLogin { mechanism, user, password }) = &options.login {
            let credentials = Credentials::new(user.clone(), password.clone());
            builder = builder.sasl_config(match mechanism {
                KafkaMechanism::Plain => SaslConfig::Plain(credentials),
                KafkaMechanism::ScramSha256 => SaslConfig::ScramSha256(credentials),
                KafkaMechanism::ScramSha512 => SaslConfig::ScramSha512(credentials),
            });
        }
        let name = options.topic.clone();
        let connect = async move {
            let client = builder.build().await?;
            client.partition_client(name, 0, UnknownTopicHandling::Error).await
        };
        let connected = call(runtime, options.step(), connect)?;
        Ok(Arc::new(connected.map_err(unavailable)?))
    }

    /// Asks again and again whether the topic is still the same, until the log is dropped.
    fn watch(&self) {
        let mut wire = None;
        let mut turn = 0;
        loop {
            let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.ends.wait_timeout_while(is_over, WATCH, |is_over| !*is_over);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 || self.usable().is_err() {
                return;
            }
            if wire.is_none() {
                let brokers = self.connection().brokers.clone();
                let broker = &brokers[turn % brokers.len()];
                wire = Wire::connect(broker, &self.security, self.options.step()).ok();
            }
            let asked = wire.as_mut().map(|wire| topic::ask(wire, &self.options.topic));
            match asked {
                Some(Ok(state)) => {
                    let _ = self.compare(&state);
                    let mut connection = self.connection();
                    connection.brokers = all_brokers(&connection.brokers, &state);
                }
                _ => {
                    wire = None;
                    turn += 1;
                }
            }
        }
    }
}

/// Adds the brokers that a broker knows to some addresses.
fn all_brokers(brokers: &[String], state: &TopicState) -> Vec<String> {
    let mut all = brokers.to_vec();
    for broker in &state.brokers {
        if !all.contains(broker) {
            all.push(broker.clone());
        }
    }
    all
}

/// Makes an error one that may pass: what was right once may be right again.
fn passing(error: LogError) -> LogError {
    LogError::Unavailable(match error {
        LogError::Unavailable(what) | LogError::Misconfigured(what) => what,
        other => other.to_string(),
    })
}

impl Drop for KafkaLog {
    fn drop(&mut self) {
        *self.shared.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.ends.notify_all();
        // Waiting for the runtime would panic on a thread of an executor.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs a future on a runtime, and waits for it, but for no longer than `limit`.
fn call<R: Send + 'static>(
    runtime: &Runtime,
    limit: Duration,
    future: impl Future<Output = R> + Send + 'static,
) -> Result<R, LogError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        if let Ok(result) = tokio::time::timeout(limit, future).await {
            // An error means that the caller has given up.
            let _ = sender.send(result);
        }
    });
    receiver.recv().map_err(|_| LogError::Unavailable(format!("no answer within {limit:?}")))
}

fn unavailable(error: Error) -> LogError {
    LogError::Unavailable(error.to_string())
}

impl ReplicatedLog for KafkaLog {
    fn append(&self, record: &[u8]) -> Result<u64, LogError> {
        let record = Record {
            key: None,
            value: Some(record.to_vec()),
            headers: Default::default(),
            timestamp: NO_TIME,
        };
        let offsets = self.with(self.shared.options.timeout, |partition| async move {
            partition.produce(vec![record], Compression::NoCompression).await
        });
        let offsets = offsets?.map_err(unavailable)?;
        let no_offset = || LogError::Unavailable("the answer has no offset".to_owned());
        offsets.first().and_then(|&offset| u64::try_from(offset).ok()).ok_or_else(no_offset)
    }

    fn read(&self, from: u64, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        let (offset, wait_ms) = (from as i64, wait.as_millis() as i32);
        let read = self.with(self.shared.options.timeout + wait, move |partition| async move {
            partition.fetch_records(offset, 1..READ_BYTES, wait_ms).await
        });
        let out_of_range = ProtocolError::OffsetOutOfRange;
        match read? {
            Ok((records, _)) => Ok(records
                .into_iter()
                .map(|read| LogRecord {
                    offset: read.offset as u64,
                    bytes: read.record.value.unwrap_or_default().into(),
                })
                .collect()),
            Err(Error::ServerError { protocol_error, .. }) if protocol_error == out_of_range => {
                let (first, end) = self.range()?;
                match (first..=end).contains(&from) {
                    // Another broker leads now, which has the record.
                    true => Err(LogError::Unavailable("the leader has changed".to_owned())),
                    false => Err(LogError::OutOfRange { offset: from, first, end }),
                }
            }
            Err(error) => Err(unavailable(error)),
        }
    }

    fn identity(&self) -> Result<String, LogError> {
        KafkaLog::identity(self)
    }

    fn truncate_before(&self, offset: u64) -> Result<(), LogError> {
        KafkaLog::truncate_before(self, offset)
    }

    fn range(&self) -> Result<(u64, u64), LogError> {
        let range = self.with(self.shared.options.timeout, |partition| async move {
            let first = partition.get_offset(OffsetAt::Earliest).await?;
            Ok((first as u64, partition.get_offset(OffsetAt::Latest).await? as u64))
        });
        range?.map_err(unavailable)
    }
}

impl fmt::Debug for KafkaLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = &self.shared.options.topic;
        formatter.debug_struct("KafkaLog").field("topic", topic).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: a topic with `compression.type=lz4` was accepted. The brokers compressed the records, no node could read them,
    /// and the primary went on acknowledging commits.
    #[test]
    fn topics_whose_brokers_compress_records_are_refused() {
        let options = KafkaOptions::new(&["one:9092"], "accounts");
        let check = |compression: &str| {
            let settings = [
                ("min.insync.replicas", "2"),
                ("max.message.bytes", "1048588"),
                ("unclean.leader.election.enable", "false"),
                ("retention.ms", "-1"),
                ("retention.bytes", "-1"),
                ("cleanup.policy", "delete"),
                ("compression.type", compression),
            ];
            options.check(
                &settings.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).into(),
            )
        };
        for accepted in ["producer", "uncompressed"] {
            assert_eq!(check(accepted), Ok(()));
        }
        for refused in ["gzip", "snappy", "lz4", "zstd"] {
            let error = check(refused).unwrap_err().to_string();
            let expected =
                format!("`compression.type={refused}`, and must have producer or uncompressed");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
