//! What a node cannot do.

use weft::Failure;

use crate::directory::DirectoryError;
use crate::log::LogError;
use crate::reader::Fault;

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
    /// A backup cannot be written or used.
    #[error("the backups: {0}")]
    Backup(String),
    /// The object store with the backups does not answer. A node that begins again tries it again.
    #[error("the store with the backups does not answer: {0}")]
    BackupStore(String),
    /// The options or the tables do not fit.
    #[error("{0}")]
    Unfit(String),
    /// The transaction or the database has failed.
    #[error(transparent)]
    Engine(#[from] weft::Error),
}

/// Why a node cannot go on at present. The node tries again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The last call of the replicated log has failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The object store with the backups does not answer.
    #[error("the store with the backups does not answer: {0}")]
    BackupStore(String),
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
