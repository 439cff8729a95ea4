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
//! The connection is neither encrypted nor authenticated.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use chrono::Utc;
use rskafka::BackoffConfig;
use rskafka::client::ClientBuilder;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::record::Record;
use tokio::runtime::{Builder, Runtime};

use crate::RECORD_BYTES_MAX;
use crate::log::{LogError, LogRecord, ReplicatedLog};

mod settings;

/// How many bytes a batch with one record may take beside the record.
const BATCH_BYTES: u64 = 10_000;

/// How many bytes a read asks for at most, if the first record is not longer.
const READ_BYTES: i32 = 4 << 20;

/// A topic of Kafka with one partition.
pub struct KafkaLog {
    /// Runs the client. It is there until this is dropped.
    runtime: Option<Runtime>,
    partition: Arc<PartitionClient>,
    timeout: Duration,
    /// The topic's name.
    identity: String,
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
}

impl KafkaOptions {
    /// Returns the default options for a topic.
    pub fn new(brokers: &[&str], topic: &str) -> KafkaOptions {
        KafkaOptions {
            brokers: brokers.iter().map(|&broker| broker.to_owned()).collect(),
            topic: topic.to_owned(),
            timeout: Duration::from_secs(10),
            insync_replicas_min: 2,
        }
    }
}

impl KafkaLog {
    /// Connects with a topic, and checks its settings.
    ///
    /// # Errors
    /// [`LogError::Unavailable`]; [`LogError::Misconfigured`] if the topic does not exist, or a setting does not fit.
    pub fn open(options: &KafkaOptions) -> Result<KafkaLog, LogError> {
        let timeout = options.timeout;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| LogError::Unavailable(error.to_string()))?;
        let name = options.topic.clone();
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(5),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
            deadline: Some(timeout),
        };
        let builder = ClientBuilder::new(options.brokers.clone()).backoff_config(backoff);
        let connect = async move {
            let client = builder.build().await?;
            let topics = client.list_topics().await?;
            let found = topics.iter().find(|topic| topic.name == name);
            let what = match found.map_or(0, |topic| topic.partitions.len()) {
                // To ask for the partition of a topic that does not exist could create it.
                1 => {
                    return Ok(client
                        .partition_client(name, 0, UnknownTopicHandling::Error)
                        .await?);
                }
                0 => format!("topic `{name}` does not exist; create it with one partition"),
                partitions => {
                    format!("topic `{name}` has {partitions} partitions, and must have one")
                }
            };
            Err(LogError::Misconfigured(what))
        };
        let partition = Arc::new(call(&runtime, timeout, connect)??);
        check(options)?;
        let identity = format!("kafka {}", options.topic);
        Ok(KafkaLog { runtime: Some(runtime), partition, timeout, identity })
    }

    /// Does something with the partition, on the client's thread. So it can be called from any thread, also from one of an
    /// executor.
    fn with<R: Send + 'static, F: Future<Output = Result<R, Error>> + Send>(
        &self,
        limit: Duration,
        work: impl FnOnce(Arc<PartitionClient>) -> F + Send + 'static,
    ) -> Result<Result<R, Error>, LogError> {
        let partition = Arc::clone(&self.partition);
        let runtime = self.runtime.as_ref().expect("it is there until the log is dropped");
        call(runtime, limit, async move { work(partition).await })
    }
}

/// Checks the settings of a topic.
fn check(options: &KafkaOptions) -> Result<(), LogError> {
    let topic = &options.topic;
    let mut failure = LogError::Misconfigured("no broker was named".to_owned());
    let found = options.brokers.iter().find_map(|broker| {
        let found = settings::ask(broker, topic, options.timeout);
        found.map_err(|error| failure = LogError::Unavailable(error.to_string())).ok()
    });
    let settings = found.ok_or(failure)?;
    let number = |text: &str, least: u64| text.parse().is_ok_and(|number: u64| number >= least);
    let (replicas_min, bytes_min) =
        (u64::from(options.insync_replicas_min), RECORD_BYTES_MAX as u64 + BATCH_BYTES);
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

impl Drop for KafkaLog {
    fn drop(&mut self) {
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

impl From<Error> for LogError {
    fn from(error: Error) -> LogError {
        unavailable(error)
    }
}

impl ReplicatedLog for KafkaLog {
    fn append(&self, record: &[u8]) -> Result<u64, LogError> {
        let record = Record {
            key: None,
            value: Some(record.to_vec()),
            headers: Default::default(),
            timestamp: Utc::now(),
        };
        let offsets = self.with(self.timeout, |partition| async move {
            partition.produce(vec![record], Compression::NoCompression).await
        });
        let no_offset = || LogError::Unavailable("the answer has no offset".to_owned());
        offsets??.first().and_then(|&offset| u64::try_from(offset).ok()).ok_or_else(no_offset)
    }

    fn read(&self, from: u64, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        let (offset, wait_ms) = (from as i64, wait.as_millis() as i32);
        let read = self.with(self.timeout + wait, move |partition| async move {
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
                Err(LogError::OutOfRange { offset: from, first, end })
            }
            Err(error) => Err(unavailable(error)),
        }
    }

    fn identity(&self) -> Result<String, LogError> {
        Ok(self.identity.clone())
    }

    fn truncate_before(&self, offset: u64) -> Result<(), LogError> {
        let (offset, timeout_ms) = (offset as i64, self.timeout.as_millis() as i32);
        self.with(self.timeout, move |partition| async move {
            partition.delete_records(offset, timeout_ms).await
        })??;
        Ok(())
    }

    fn range(&self) -> Result<(u64, u64), LogError> {
        let range = self.with(self.timeout, |partition| async move {
            let first = partition.get_offset(OffsetAt::Earliest).await?;
            Ok((first as u64, partition.get_offset(OffsetAt::Latest).await? as u64))
        });
        Ok(range??)
    }
}

impl fmt::Debug for KafkaLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = self.partition.topic();
        formatter.debug_struct("KafkaLog").field("topic", &topic).finish_non_exhaustive()
    }
}
