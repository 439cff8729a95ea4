//! Why a request is refused.

use weft::{Error, Failure};

/// Why a request has no result. Its transaction has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is no such row.
    #[error("there is no such row in the table {0}")]
    NotFound(&'static str),
    /// There is not enough money, or not enough of an item.
    #[error("not enough: {0}")]
    NotEnough(String),
    /// The request is wrong in itself.
    #[error("{0}")]
    Invalid(String),
    /// The request contradicts an earlier one.
    #[error("{0}")]
    Conflict(String),
    /// The account has made too many requests.
    #[error("too many requests: wait a second")]
    TooMany,
    /// The shop has too much to do, or is closing.
    #[error("try again in a moment")]
    Busy,
    /// Something is wrong with the shop.
    #[error("{0}")]
    Internal(String),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::Failure(failure) => failure.into(),
            Error::Conflict(conflict) => Refused::Internal(conflict.to_string()),
        }
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoSuchRow { table, .. } => Refused::NotFound(table),
            Failure::NotEnough { table, column, .. } => {
                Refused::NotEnough(format!("{column} of {table}"))
            }
            Failure::Constraint { .. } | Failure::OutOfRange { .. } => {
                Refused::Invalid(failure.to_string())
            }
            Failure::DuplicateKey { .. }
            | Failure::OnceLabel { .. }
            | Failure::OnceResult { .. } => Refused::Conflict(failure.to_string()),
            Failure::DeadlineExceeded { .. }
            | Failure::WorkersBusy { .. }
            | Failure::MemoryFull { .. }
            | Failure::PoolShutDown => Refused::Busy,
            other => Refused::Internal(other.to_string()),
        }
    }
}
