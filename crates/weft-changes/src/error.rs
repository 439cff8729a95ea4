//! Errors of the change feed.

use weft::Failure;
use weft::column::DecodeError;
use weft::durability::StorageError;

use crate::position::Position;

/// Why there are no changes, or why a change cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangesError {
    /// What follows the position is no longer there, or was never in the log. Take a
    /// [snapshot](crate::ChangeFeed::snapshot_with_position), and go on from its position.
    #[error(
        "the reader fell behind: the changes after {position} are gone, and those after {oldest} are left; take a \
         snapshot with snapshot_with_position() and go on from its position{}",
        hint(*is_unlogged)
    )]
    FellBehind {
        /// The reader's position.
        position: Position,
        /// The earliest position from which the feed can go on.
        oldest: Position,
        /// Whether a bulk load or a migration has changed rows without logging each change. Otherwise the log, or
        /// the ring, was not kept for long enough.
        is_unlogged: bool,
    },
    /// The position belongs to another database, or to an earlier life of a database in memory.
    #[error(
        "position {position} belongs to another database, or to one in memory that is gone; take a snapshot with \
         snapshot_with_position() and go on from its position"
    )]
    ForeignPosition {
        /// The position.
        position: Position,
    },
    /// The position lies after everything in the database, as if the directory had been replaced by an older copy.
    #[error(
        "position {position} lies after the last durable epoch, {durable_epoch}: the directory is older than the \
         position; take a snapshot with snapshot_with_position() and go on from its position"
    )]
    Ahead {
        /// The position.
        position: Position,
        /// The database's last durable epoch.
        durable_epoch: u64,
    },
    /// The table is volatile, so its changes are not logged.
    #[error(
        "table `{table}` is volatile, and has no changes to watch; remove `volatile` from its attributes"
    )]
    Volatile {
        /// The table.
        table: &'static str,
    },
    /// The change belongs to another table.
    #[error(
        "the change is one of table `{found}`, not of `{table}`; ask change.is::<Row>() or change.is_of(&table) first"
    )]
    OtherTable {
        /// The table of the row type that was asked for.
        table: &'static str,
        /// The table that has changed.
        found: String,
    },
    /// The change was logged for an earlier form of the table, which cannot be converted.
    #[error(
        "a change of table `{table}` has an earlier form that cannot be converted: {message}; take a snapshot with \
         snapshot_with_position() and go on from its position"
    )]
    Schema {
        /// The table.
        table: &'static str,
        /// What stands in the way.
        message: String,
    },
    /// A change was to be applied to a row that is not there.
    #[error(
        "a change of table `{table}` needs the row before it, which was not given; apply the changes to a snapshot's \
         rows from its position on, and in order"
    )]
    NoRow {
        /// The table.
        table: &'static str,
    },
    /// A value cannot be decoded.
    #[error("a change of table `{table}` cannot be decoded: {source}")]
    Decode {
        /// The table.
        table: String,
        /// The reason.
        source: DecodeError,
    },
    /// The database has no log and no ring, is read-only, or failed.
    #[error("{0}{in_memory}", in_memory = if *.0 == Failure::InMemory { IN_MEMORY } else { "" })]
    Failure(#[from] Failure),
}

const IN_MEMORY: &str = "; a change feed needs a log or a ring: open the database with .directory(path), or with \
                         .change_ring(bytes)";

fn hint(is_unlogged: bool) -> &'static str {
    match is_unlogged {
        true => " (a bulk load or a migration changed rows that are not in the log)",
        false => {
            " (for more time, raise keep_log_bytes of the durability options, or the bytes of the ring)"
        }
    }
}

impl From<StorageError> for ChangesError {
    fn from(error: StorageError) -> ChangesError {
        ChangesError::Failure(error.into())
    }
}
