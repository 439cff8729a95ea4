//! The interface to a replicated log.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A record of the log, and its offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The record's place in the log.
    pub offset: u64,
    /// The record, as it was appended.
    pub bytes: Arc<[u8]>,
}

/// A log that is kept on several machines: a sequence of records, each with an offset. Offsets grow by one from record to
/// record.
///
/// Replication relies on the following, and on nothing more:
///
/// - All readers see the same record at the same offset.
/// - When [`append`](ReplicatedLog::append) has returned an offset, the record is at that offset, and everything before it
///   can be read. It stays there, except that a log may lose records at its end when all of its machines fail. Replication
///   notices that, and stops.
/// - An append that returns an error may have appended the record, may append it later, or never. Any append may append the
///   record twice.
pub trait ReplicatedLog: Debug + Send + Sync {
    /// Appends a record, which has at most [`RECORD_BYTES_MAX`](crate::RECORD_BYTES_MAX) bytes. Returns its offset when the
    /// log keeps it on as many machines as it promises.
    ///
    /// # Errors
    /// Any error means that the record's fate is unknown.
    fn append(&self, record: &[u8]) -> Result<u64, LogError>;

    /// Returns some records from `from` on, in order. If there isn't one, waits for the first one, but not for much longer
    /// than `wait`, and then returns none.
    ///
    /// # Errors
    /// [`LogError::OutOfRange`] if `from` is after the log's end or before its beginning.
    fn read(&self, from: u64, wait: Duration) -> Result<Vec<LogRecord>, LogError>;

    /// Returns what distinguishes this log from all others, also from one that was made later under the same name. A node's
    /// directory and the backups remember it.
    ///
    /// # Errors
    /// If the log cannot be reached.
    fn identity(&self) -> Result<String, LogError>;

    /// Removes records before `offset`, or some of them, or none.
    ///
    /// # Errors
    /// If the log cannot be reached, or cannot remove records.
    fn truncate_before(&self, offset: u64) -> Result<(), LogError>;

    /// Returns the offset of the first record that can still be read, and the offset of the next record to be appended.
    ///
    /// # Errors
    /// If the log cannot be reached.
    fn range(&self) -> Result<(u64, u64), LogError>;
}

/// Why a replicated log did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The log could not be reached, did not answer in time, or had another problem that may pass.
    #[error("the replicated log does not answer: {0}")]
    Unavailable(String),
    /// The log cannot be used as it is set up.
    #[error("{0}")]
    Misconfigured(String),
    /// The log does not have the offset that was asked for.
    #[error(
        "the replicated log has no record {offset}: it holds the records from {first} to before {end}"
    )]
    OutOfRange {
        /// The offset that was asked for.
        offset: u64,
        /// The first record's offset.
        first: u64,
        /// The offset of the next record to be appended.
        end: u64,
    },
}
