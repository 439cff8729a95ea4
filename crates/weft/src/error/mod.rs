//! What can go wrong, in two kinds that callers treat differently.
//!
//! A [`Conflict`] means that other transactions got in the way: nothing is wrong, run the
//! transaction again. [`Database::transact`](crate::Database::transact) does so by itself, so
//! only those who begin and commit by hand ever see one. A [`Failure`] means that trying again
//! will not help. [`Error`] is either.

mod storage;

use std::fmt;
use std::time::Duration;

pub use storage::{NotRegular, StorageError};

use crate::row::operation::OperationKind;
use crate::row::schema::Violation;

/// Why an operation or a commit did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another transaction got in the way: run this one again.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Running the transaction again would fail again.
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// A transaction that had to give way to another, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("conflict: {}", describe(reason.words(), table, *index, key.as_deref()))]
pub struct Conflict {
    /// What the other transaction had done.
    pub reason: ConflictReason,
    /// The table it happened in.
    pub table: &'static str,
    /// The secondary index of that table, if it happened there.
    pub index: Option<&'static str>,
    /// The key, where it is known (a range has none).
    pub key: Option<String>,
}

/// What another transaction had done that this one cannot commit beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConflictReason {
    /// A row (or the absence of one) that this transaction read has changed.
    ReadChanged,
    /// A row that this transaction was to write has changed since it was read.
    WriteChanged,
    /// A row that this transaction was to write is being committed by another.
    WriteLocked,
    /// Keys were inserted into or removed from a range that this transaction scanned, or where it
    /// found a key absent.
    RangeChanged,
    /// Another transaction came first in a row or a range, in a way that the order of the two
    /// transactions' timestamps does not allow.
    TimestampOrder,
    /// Another transaction holds a lock on a row, and the protocol does not let this one wait.
    LockDenied,
    /// A row is split among the workers at present, for operations of other transactions.
    Split,
}

impl ConflictReason {
    /// Every reason.
    pub const ALL: [ConflictReason; 7] = [
        ConflictReason::ReadChanged,
        ConflictReason::WriteChanged,
        ConflictReason::WriteLocked,
        ConflictReason::RangeChanged,
        ConflictReason::TimestampOrder,
        ConflictReason::LockDenied,
        ConflictReason::Split,
    ];

    /// The reason's name for machines: in snake case, and stable.
    pub const fn name(self) -> &'static str {
        match self {
            ConflictReason::ReadChanged => "read_changed",
            ConflictReason::WriteChanged => "write_changed",
            ConflictReason::WriteLocked => "write_locked",
            ConflictReason::RangeChanged => "range_changed",
            ConflictReason::TimestampOrder => "timestamp_order",
            ConflictReason::LockDenied => "lock_denied",
            ConflictReason::Split => "split",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            ConflictReason::ReadChanged => "a row that was read has changed",
            ConflictReason::WriteChanged => "a row to be written has changed",
            ConflictReason::WriteLocked => "a row to be written is being committed by another",
            ConflictReason::RangeChanged => "keys came or went in a range that was read",
            ConflictReason::TimestampOrder => {
                "another transaction came first, against the order of timestamps"
            }
            ConflictReason::LockDenied => "a row is locked by another, and not waited for",
            ConflictReason::Split => "a row is split among the workers at present",
        }
    }
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Why something cannot be done, however often it is tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The transaction was retried as often as its options allow.
    #[error("gave up after {attempts} attempts; the last {last}")]
    RetriesExhausted {
        /// How often it was run.
        attempts: u32,
        /// What stopped the last attempt.
        last: Conflict,
    },
    /// The deadline of the transaction's options passed.
    #[error("deadline of {deadline:?} passed after {attempts} attempts")]
    DeadlineExceeded {
        /// The deadline, counted from the call.
        deadline: Duration,
        /// How often it was run.
        attempts: u32,
    },
    /// A row with this key is there already.
    #[error("{}", describe("a row with this key exists", table, *index, Some(key)))]
    DuplicateKey {
        /// The table.
        table: &'static str,
        /// The unique secondary index whose key it is; none for the primary key.
        index: Option<&'static str>,
        /// The key.
        key: String,
    },
    /// A row breaks one of its own constraints.
    #[error("table {table}, key {key}: {violation}")]
    Constraint {
        /// The table.
        table: &'static str,
        /// The row's key.
        key: String,
        /// Which constraint, and how.
        violation: Violation,
    },
    /// An update closure changed a column of the primary key.
    #[error(
        "table {table}: an update changed the primary key from {key} to {changed}; \
         delete the row and insert another instead"
    )]
    KeyChanged {
        /// The table.
        table: &'static str,
        /// The key of the row that was updated.
        key: String,
        /// The key that the closure left it with.
        changed: String,
    },
    /// An update closure wrote the very row that it was given.
    #[error("table {table}, key {key}: the row was written again inside its own update closure")]
    NestedWrite {
        /// The table.
        table: &'static str,
        /// The row's key.
        key: String,
    },
    /// A commutative operation was to change a row that is not there.
    #[error("{}", describe("there is no row to change", table, None, Some(key)))]
    NoSuchRow {
        /// The table.
        table: &'static str,
        /// The key.
        key: String,
    },
    /// A row was to be split for an operation that cannot be split.
    #[error("table {table}, column {column}: {operation} cannot be split, since {reason}")]
    Unsplittable {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The operation.
        operation: OperationKind,
        /// Why not.
        reason: &'static str,
    },
    /// What a commutative operation makes of a column is not within the column's type.
    #[error("table {table}, key {key}: {operation} on column {column}: {message}")]
    OutOfRange {
        /// The table.
        table: &'static str,
        /// The row's key.
        key: String,
        /// The column.
        column: &'static str,
        /// The operation.
        operation: OperationKind,
        /// What does not fit.
        message: String,
    },
    /// The database was opened without this table.
    #[error("table {table} is not registered; name it in the builder: .table::<{row_type}>()")]
    UnknownTable {
        /// The table.
        table: &'static str,
        /// Its row type.
        row_type: &'static str,
    },
    /// The builder was given two tables of one name.
    #[error("table {table} is registered twice")]
    DuplicateTable {
        /// The table.
        table: &'static str,
    },
    /// A table's rows are larger than a row may be.
    #[error(
        "table {table}: a row takes {size_bytes} bytes, at most {size_max_bytes} are possible, aligned to 16 at most; put large columns on the heap"
    )]
    RowTooLarge {
        /// The table.
        table: &'static str,
        /// Size of the row type.
        size_bytes: usize,
        /// Largest possible size.
        size_max_bytes: usize,
    },
    /// A row with its texts and lists is longer than a stored row may be.
    #[error(
        "table {table}, key {key}: the row takes {stored_bytes} bytes when it is stored, and at most {stored_bytes_max} are possible; divide it among several rows"
    )]
    StoredRowTooLarge {
        /// The table.
        table: &'static str,
        /// The row's primary key.
        key: String,
        /// Length of the row as it would be stored.
        stored_bytes: usize,
        /// The most.
        stored_bytes_max: usize,
    },
    /// A table handle was used with a transaction of another database.
    #[error("table {table} belongs to another database than the transaction")]
    ForeignTable {
        /// The table.
        table: &'static str,
    },
    /// A range was asked of a table that has no order.
    #[error(
        "table {table} is stored in a hash table, which has no order to scan by; declare storage = \"ordered\""
    )]
    UnorderedTable {
        /// The table.
        table: &'static str,
    },
    /// A range whose start lies behind its end.
    #[error("table {table}: the range starts at {start}, behind its end {end}")]
    InvalidRange {
        /// The table.
        table: &'static str,
        /// The start.
        start: String,
        /// The end.
        end: String,
    },
    /// A transaction was begun on a thread that is already running one on this database; or a snapshot
    /// was opened by the `drop` of a row, in the middle of a commit.
    #[error("this thread is already in a transaction on this database; pass it down instead")]
    NestedTransaction,
    /// A row's type has called the transaction, or opened a snapshot, in the middle of an operation of that
    /// transaction: in its `clone`, for example.
    #[error(
        "a row's type has used the transaction that was at work on the row; do that in the transaction's \
         closure instead"
    )]
    NestedOperation,
    /// A row's type has said other keys of the row than when the row was written, so that the row is not where it
    /// has to be. The transaction cannot commit.
    #[error(
        "{}; a row's key, and its index keys, have to stay the same for as long as the row is in the table",
        describe("a row is not under the key that its type says", table, *index, None)
    )]
    InconsistentKeys {
        /// The table.
        table: &'static str,
        /// The secondary index that the row is missing in; none for the primary key.
        index: Option<&'static str>,
    },
    /// Under `dbx-tc`, a procedure has deferred a sum, and a column that it is to be added to does not hold it.
    /// The sum is not lost: it waits, and with it all that is no procedure in pieces, until other procedures
    /// have moved the column away from the end of its range.
    #[error(
        "a sum that a procedure has deferred does not fit its column in table '{table}'; it waits until another \
         procedure has changed the column, so that it fits"
    )]
    DeferredOutOfRange {
        /// The table.
        table: &'static str,
    },
    /// A checkpoint, a backup or a load was asked for, or the database was to be closed, by code that runs for
    /// one of them: by a row's type, or by what watches the progress.
    #[error(
        "this thread is in the middle of a checkpoint, a backup or a load, and would wait for itself; ask for \
         this when that has ended"
    )]
    NestedCheckpoint,
    /// The database was to be closed, and a transaction, a checkpoint, a backup or a load has not ended in time.
    #[error(
        "a transaction, a checkpoint, a backup or a load is still running {waited:?} after the database was \
         closed; close it again when that has ended"
    )]
    StillRunning {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Too many threads use the database at a time.
    #[error("{workers_max} threads use the database already, as many as it was opened for")]
    TooManyWorkers {
        /// The limit.
        workers_max: usize,
    },
    /// The protocol runs one transaction at a time, and another thread is running one.
    #[error(
        "protocol {protocol} has no concurrency control: one transaction at a time, on one thread"
    )]
    SingleThreaded {
        /// The protocol.
        protocol: &'static str,
    },
    /// The protocol makes one operation on one row atomic, and more was asked of it.
    #[error(
        "table {table}: {attempted} is more than protocol {protocol} can do, which makes one operation on one row atomic; open the database under another protocol"
    )]
    SingleKey {
        /// The protocol.
        protocol: &'static str,
        /// The table.
        table: &'static str,
        /// What was asked.
        attempted: &'static str,
    },
    /// A procedure that runs in pieces, under a protocol that chops, has failed behind its
    /// first piece, by an error that is no conflict. That is an error of the program: pieces that were committed
    /// before stay.
    #[error(
        "procedure {procedure} has failed at step {step}, and what it had committed before stays: behind the first piece there must be no errors"
    )]
    Halfway {
        /// The procedure.
        procedure: &'static str,
        /// The number of the step that it had come to.
        step: usize,
    },
    /// What is said of the procedures that a database is opened with is not possible.
    #[error(transparent)]
    Procedures(#[from] OutlineError),
    /// The database was closed.
    #[error("the database is closed")]
    Closed,
    /// Something is wrong with the files of the database, or with the disk. If a commit returns it,
    /// the transaction has committed in memory, but is not known to be durable.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The database was opened at an earlier epoch, and can only be read.
    #[error("the database was opened as it was at the end of epoch {epoch}, and can only be read")]
    ReadOnly {
        /// The epoch.
        epoch: u64,
    },
    /// Durability was asked of a database that was opened without a directory.
    #[error("the database lives in memory alone; open it with .directory(path)")]
    InMemory,
    /// A snapshot was opened inside a transaction, while rows are split. When the transaction is run again
    /// they are not.
    #[error(
        "rows are split at present, and a snapshot cannot be opened inside a transaction; run the transaction again"
    )]
    RowsSplit,
    /// A table is being loaded, and nothing else can be done meanwhile.
    #[error("a table of the database is being loaded; try again when that is done")]
    Loading,
    /// A table cannot be loaded while a snapshot is open, which is not to see the rows.
    #[error("a snapshot is open; close it before a table is loaded")]
    SnapshotOpen,
    /// A table that is to be loaded has rows already.
    #[error("table {table} has rows, or had some a moment ago; only an empty table can be loaded")]
    NotEmpty {
        /// The table.
        table: &'static str,
    },
    /// A transaction was begun by a destructor that runs at the end of its thread.
    #[error("the thread is ending; run the transaction before its thread-local values are dropped")]
    ThreadEnding,
    /// What was asked of the hardware is not there.
    #[error(transparent)]
    Htm(#[from] weft_htm::Unavailable),
    /// The environment variable that chooses the HTM backend has no valid value.
    #[error(transparent)]
    HtmChoice(#[from] weft_htm::InvalidChoice),
    /// The operating system gave no thread: for the epoch clock, checkpoints, or a pool.
    #[error("cannot start a thread: {message}")]
    Thread {
        /// The operating system's words.
        message: String,
    },
}

fn describe(what: &str, table: &str, index: Option<&str>, key: Option<&str>) -> String {
    let index = index.map(|index| format!(", index {index}")).unwrap_or_default();
    let key = key.map(|key| format!(", key {key}")).unwrap_or_default();
    format!("{what} (table {table}{index}{key})")
}

/// What is wrong with what the chopping of procedures is to start from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutlineError(String);

impl OutlineError {
    /// An error with this message.
    #[doc(hidden)]
    pub fn new(message: String) -> Self {
        OutlineError(message)
    }
}
