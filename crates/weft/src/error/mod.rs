//! Errors, in two kinds that callers treat differently.
//!
//! A [`Conflict`] means that another transaction got in the way. Nothing is wrong: run the
//! transaction again. [`Database::transact`](crate::Database::transact) does this automatically, so
//! only callers that begin and commit transactions themselves see a conflict. A [`Failure`] means
//! that trying again will not help. [`Error`] is either.

mod storage;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

pub(crate) use storage::RowViolations;
pub use storage::{NotRegular, RowViolation, StorageError};

use crate::row::operation::OperationKind;
use crate::row::schema::Violation;

/// Why an operation or a commit did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another transaction got in the way. Run this one again.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Running the transaction again would not help.
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// A conflict: this transaction had to abort because of another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("conflict: {}", describe(reason.words(), table, *index, key.as_deref()))]
pub struct Conflict {
    /// What the other transaction did.
    pub reason: ConflictReason,
    /// The table in which the conflict happened.
    pub table: &'static str,
    /// The secondary index of that table, if the conflict happened in an index.
    pub index: Option<&'static str>,
    /// The key, if it is known. A conflict on a range has no key.
    pub key: Option<String>,
}

/// What another transaction did that prevents this one from committing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConflictReason {
    /// A row that this transaction read, or found absent, has changed.
    ReadChanged,
    /// A row that this transaction was to write has changed since it was read.
    WriteChanged,
    /// Another transaction is committing a row that this transaction was to write.
    WriteLocked,
    /// Another transaction inserted or removed keys in a range that this transaction scanned, or at
    /// a place where this transaction found a key absent.
    RangeChanged,
    /// Another transaction accessed a row or a range first, in an order that the timestamps of the
    /// two transactions do not allow.
    TimestampOrder,
    /// Another transaction holds a lock on a row, and the protocol does not let this one wait.
    LockDenied,
    /// A row is split among the workers for a commutative operation, and this transaction needs the
    /// row for something else.
    Split,
    /// Another transaction has committed with a later time ([`Transaction::now`](crate::Transaction::now)), at
    /// which a row that this transaction has seen had expired. Or this transaction has asked for the time.
    TimePassed,
}

impl ConflictReason {
    /// Every reason.
    pub const ALL: [ConflictReason; 8] = [
        ConflictReason::ReadChanged,
        ConflictReason::WriteChanged,
        ConflictReason::WriteLocked,
        ConflictReason::RangeChanged,
        ConflictReason::TimestampOrder,
        ConflictReason::LockDenied,
        ConflictReason::Split,
        ConflictReason::TimePassed,
    ];

    /// Returns the reason's name for machines, in snake case. These names are stable.
    pub const fn name(self) -> &'static str {
        match self {
            ConflictReason::ReadChanged => "read_changed",
            ConflictReason::WriteChanged => "write_changed",
            ConflictReason::WriteLocked => "write_locked",
            ConflictReason::RangeChanged => "range_changed",
            ConflictReason::TimestampOrder => "timestamp_order",
            ConflictReason::LockDenied => "lock_denied",
            ConflictReason::Split => "split",
            ConflictReason::TimePassed => "time_passed",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            ConflictReason::ReadChanged => "a row that was read has changed",
            ConflictReason::WriteChanged => "a row to be written has changed",
            ConflictReason::WriteLocked => "another transaction is committing a row to be written",
            ConflictReason::RangeChanged => "keys were added or removed in a range that was read",
            ConflictReason::TimestampOrder => {
                "another transaction came first, which the order of timestamps does not allow"
            }
            ConflictReason::LockDenied => "another transaction holds a lock that this one needs",
            ConflictReason::Split => "a row is split among the workers",
            ConflictReason::TimePassed => "another transaction has committed at a later time",
        }
    }
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Why something cannot be done, even if it is tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The transaction was retried as often as its options allow.
    #[error("gave up after {attempts} attempts; the last {last}")]
    RetriesExhausted {
        /// How often the transaction was run.
        attempts: u32,
        /// What stopped the last attempt.
        last: Conflict,
    },
    /// The deadline in the transaction's options passed.
    #[error("deadline of {deadline:?} passed after {attempts} attempts")]
    DeadlineExceeded {
        /// The deadline, counted from the call.
        deadline: Duration,
        /// How often the transaction was run.
        attempts: u32,
    },
    /// The database has reached its [memory limit](crate::Builder::memory_limit), and the operation would need more
    /// memory. Nothing was changed. Rows can still be read and deleted, and updated if they do not grow.
    #[error(
        "the database uses {used_bytes} bytes, and the limit is {limit_bytes}: the operation needs more; delete rows, \
         drop snapshots, or raise .memory_limit(bytes) in the builder"
    )]
    MemoryFull {
        /// How many bytes the database uses, with what the operation needs.
        used_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The transaction is older than the database's [limit](crate::Builder::transaction_age_limit). Nothing was
    /// changed.
    #[error(
        "{} has run for {age:?}, and the limit is {limit:?}; make it shorter, or raise .transaction_age_limit(time) in \
         the builder",
        labelled("the transaction", *label)
    )]
    TransactionTooOld {
        /// How long the transaction has been running.
        age: Duration,
        /// The limit.
        limit: Duration,
        /// The transaction's label, if it has one.
        label: Option<&'static str>,
    },
    /// The snapshot is older than the database's [limit](crate::Builder::snapshot_age_limit).
    #[error(
        "{} has been open for {age:?}, and the limit is {limit:?}; drop it and open another one, or raise \
         .snapshot_age_limit(time) in the builder",
        labelled("the snapshot", *label)
    )]
    SnapshotTooOld {
        /// How long the snapshot has been open.
        age: Duration,
        /// The limit.
        limit: Duration,
        /// The snapshot's label, if it has one.
        label: Option<&'static str>,
    },
    /// A row with this key already exists.
    #[error("{}", describe("a row with this key exists", table, *index, Some(key)))]
    DuplicateKey {
        /// The table.
        table: &'static str,
        /// The unique secondary index that the key belongs to; `None` for the primary key.
        index: Option<&'static str>,
        /// The key: the values of the index's columns, or the primary key.
        key: String,
    },
    /// A row breaks one of its own constraints.
    #[error("table {table}, key {}: {violation}", shortened(key))]
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
        "table {table}: an update changed the primary key from {} to {}; \
         delete the row and insert another instead",
        shortened(key),
        shortened(changed)
    )]
    KeyChanged {
        /// The table.
        table: &'static str,
        /// The key of the row that was updated.
        key: String,
        /// The key that the closure left it with.
        changed: String,
    },
    /// The closure of an insertion made a row with another primary key than the generated one.
    #[error(
        "table {table}: a row was made with the primary key {}, and the generated key is {}; \
         use the generated key, or insert the row by `insert`",
        shortened(made),
        shortened(key)
    )]
    GeneratedKeyNotUsed {
        /// The table.
        table: &'static str,
        /// The generated key.
        key: String,
        /// The key of the row.
        made: String,
    },
    /// All keys up to the greatest of their type were generated, or passed by.
    #[error(
        "table {table}: no key is left that could be generated, because a row has had the \
         greatest one; insert the row by `insert` with a free key, or widen the key's type"
    )]
    KeysExhausted {
        /// The table.
        table: &'static str,
    },
    /// An update closure wrote the same row that it was given.
    #[error(
        "table {table}, key {}: the row was written again inside its own update closure",
        shortened(key)
    )]
    NestedWrite {
        /// The table.
        table: &'static str,
        /// The row's key.
        key: String,
    },
    /// A commutative operation was applied to a row that does not exist.
    #[error("{}", describe("there is no row to change", table, None, Some(key)))]
    NoSuchRow {
        /// The table.
        table: &'static str,
        /// The key.
        key: String,
    },
    /// Rows that have expired were to be removed from a table whose rows do not expire.
    #[error("the rows of table {table} do not expire; declare `#[record(expires = column)]`")]
    NoExpiry {
        /// The table.
        table: &'static str,
    },
    /// Rows that have expired were to be removed, and the table's hook was not set. Or a hook was set for a table
    /// without one.
    #[error(
        "table {table} has no hook for rows that have expired; declare `#[record(expires(column, hook))]`, and set it by `Database::on_expiry`"
    )]
    NoHook {
        /// The table.
        table: &'static str,
    },
    /// A row was labelled split for an operation that cannot be split.
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
    /// The result of a commutative operation is outside the range of the column's type.
    #[error("table {table}, key {}: {operation} on column {column}: {message}", shortened(key))]
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
    /// An operation would leave less in a column than its declared minimum, or more than its declared maximum. Or it
    /// takes more than there is. The row is as it was.
    #[error("table {table}, key {}: {operation} on column {column}: {message}", shortened(key))]
    NotEnough {
        /// The table.
        table: &'static str,
        /// The row's key.
        key: String,
        /// The column.
        column: &'static str,
        /// The operation.
        operation: OperationKind,
        /// The result, and the bound that it is beyond.
        message: String,
    },
    /// The database was opened without this table.
    #[error("table {table} is not registered; name it in the builder: {call}")]
    UnknownTable {
        /// The table.
        table: String,
        /// The call of the builder that registers it.
        call: String,
        /// Its row type.
        row_type: &'static str,
    },
    /// The builder was given two tables with the same name.
    #[error("table {table} is registered twice")]
    DuplicateTable {
        /// The table.
        table: &'static str,
    },
    /// A table's row type is larger than a row may be.
    #[error(
        "table {table}: a row takes {size_bytes} bytes; at most {size_max_bytes} are possible, with an alignment of at most 16; put large columns on the heap"
    )]
    RowTooLarge {
        /// The table.
        table: &'static str,
        /// The size of the row type, in bytes.
        size_bytes: usize,
        /// The largest possible size, in bytes.
        size_max_bytes: usize,
    },
    /// A row, including its texts and lists, is longer than a stored row may be.
    #[error(
        "table {table}, key {}: the row takes {stored_bytes} bytes when stored, and at most {stored_bytes_max} are possible; divide it among several rows",
        shortened(key)
    )]
    StoredRowTooLarge {
        /// The table.
        table: &'static str,
        /// The row's primary key.
        key: String,
        /// The length of the row when stored, in bytes.
        stored_bytes: usize,
        /// The largest possible length, in bytes.
        stored_bytes_max: usize,
    },
    /// A table handle was used with a transaction of another database.
    #[error("table {table} belongs to another database than the transaction")]
    ForeignTable {
        /// The table.
        table: &'static str,
    },
    /// A transaction was begun on a thread that is already running one on this database. Or the
    /// `drop` of a row opened a snapshot in the middle of a commit.
    #[error("this thread is already in a transaction on this database; pass it down instead")]
    NestedTransaction,
    /// A row's type, for example its `clone`, used the transaction or opened a snapshot during an
    /// operation of that transaction.
    #[error(
        "a row's type (its `clone`, for example) used the transaction during an operation on the row; do that in the transaction's \
         closure instead"
    )]
    NestedOperation,
    /// A row's type now returns other keys for the row than when the row was written. So the row is
    /// not where it has to be, and the transaction cannot commit.
    #[error(
        "{}; a row's key and its index keys must not change while the row is in the table",
        describe("a row is not stored under the key that its type returns", table, *index, None)
    )]
    InconsistentKeys {
        /// The table.
        table: &'static str,
        /// The secondary index that lacks the row; `None` for the primary key.
        index: Option<&'static str>,
    },
    /// Under `dbx-tc`, a procedure deferred an addition to a column, and the column cannot hold the
    /// sum. The addition is not lost. It waits until other procedures have moved the column away
    /// from the end of its range. Everything that is not a procedure in pieces waits with it.
    #[error(
        "a sum that a procedure deferred does not fit its column in table '{table}'; it waits until another \
         procedure has changed the column so that the sum fits"
    )]
    DeferredOutOfRange {
        /// The table.
        table: &'static str,
    },
    /// Code that runs as part of a checkpoint, a backup or a load requested another one of these,
    /// or closed the database. Such code is a row's type, or a callback that watches the progress.
    #[error(
        "this thread is running a checkpoint, a backup or a load, and would wait for itself; do this when \
         that has ended"
    )]
    NestedCheckpoint,
    /// While the database was being closed, a transaction, a checkpoint, a backup or a load did not
    /// end in time.
    #[error(
        "a transaction, a checkpoint, a backup or a load is still running {waited:?} after the database was \
         closed; close it again when that has ended"
    )]
    StillRunning {
        /// How long the caller waited.
        waited: Duration,
    },
    /// All workers of the database were busy until the transaction's deadline.
    #[error(
        "all {workers_max} workers of the database were busy until the transaction's deadline of {deadline:?}; allow \
         more time, run fewer or shorter transactions at the same time, or raise .workers_max(n) in the builder"
    )]
    WorkersBusy {
        /// How many workers the database may have.
        workers_max: usize,
        /// The deadline.
        deadline: Duration,
    },
    /// All workers of a raw tree are in use. (Transactions wait for a worker instead.)
    #[error("all {workers_max} workers of the tree are in use; drop one of them first")]
    TooManyWorkers {
        /// The limit.
        workers_max: usize,
    },
    /// The protocol runs one transaction at a time, and another thread is running one.
    #[error(
        "protocol {protocol} has no concurrency control: run one transaction at a time, on one thread"
    )]
    SingleThreaded {
        /// The protocol.
        protocol: &'static str,
    },
    /// The protocol makes one operation on one row atomic, and the transaction did more than that.
    #[error(
        "table {table}: protocol {protocol} can only make one operation on one row atomic, and {attempted} is more than that; open the database under another protocol"
    )]
    SingleKey {
        /// The protocol.
        protocol: &'static str,
        /// The table.
        table: &'static str,
        /// What the transaction attempted.
        attempted: &'static str,
    },
    /// A procedure that runs in pieces, under a protocol that chops, failed after its first piece
    /// with an error that is not a conflict. This is an error in the program. The pieces that were
    /// committed before it stay committed.
    #[error(
        "procedure {procedure} has failed at step {step}, and the pieces that it had committed before stay committed; return errors from its first piece only"
    )]
    Halfway {
        /// The procedure.
        procedure: &'static str,
        /// The number of the step at which it failed.
        step: usize,
    },
    /// The declarations of the procedures that the database is opened with are wrong, or contradict
    /// each other.
    #[error(transparent)]
    Procedures(#[from] OutlineError),
    /// A transaction was to run [once](crate::TransactionOptions::once) for a key, and the result that is stored under
    /// the key belongs to a transaction with another label.
    #[error(
        "key {} belongs to {}, and this is {}; use a key for one kind of transaction only",
        shortened(key),
        labelled_or_not(stored.as_deref()),
        labelled_or_not(label.as_deref())
    )]
    OnceLabel {
        /// The key.
        key: String,
        /// The label of the transaction whose result is stored, if it had one.
        stored: Option<String>,
        /// The label of the transaction that was to run, if it has one.
        label: Option<String>,
    },
    /// The result that is stored under the key of a transaction that was to run
    /// [once](crate::TransactionOptions::once) is not of the type that the transaction returns.
    #[error(
        "the transaction with key {} has run before, and its result cannot be returned: {message}",
        shortened(key)
    )]
    OnceResult {
        /// The key.
        key: String,
        /// What does not fit, with both types.
        message: String,
    },
    /// A transaction was to run [once](crate::TransactionOptions::once) for a key, and the database was opened without
    /// the table of results.
    #[error(
        "the database keeps no results of transactions; open it with .once(OnceOptions::new())"
    )]
    ResultsNotKept,
    /// The database was closed.
    #[error("the database is closed")]
    Closed,
    /// The pool was shut down before the transaction began. It has not run.
    #[error("the pool was shut down before the transaction began; it has not run")]
    PoolShutDown,
    /// While a pool was being shut down, transactions that had begun did not end in time.
    #[error(
        "transactions are still running {waited:?} after the pool was shut down: {}; shut it down again to wait longer",
        running.join(", ")
    )]
    PoolStillRunning {
        /// How long the caller waited.
        waited: Duration,
        /// The labels of the transactions.
        running: Vec<&'static str>,
    },
    /// Something is wrong with the files of the database, or with the disk. If a commit returns
    /// this error, the transaction has committed in memory, but is not known to be durable.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The database was opened as of an earlier epoch, and can only be read.
    #[error("the database was opened as it was at the end of epoch {epoch}, and can only be read")]
    ReadOnly {
        /// The epoch.
        epoch: u64,
    },
    /// The caller requested durability of a database that was opened without a directory.
    #[error("the database is in memory only; open it with .directory(path)")]
    InMemory,
    /// A snapshot was opened inside a transaction while rows are split. When the transaction runs
    /// again they are not split.
    #[error(
        "rows are split, and until they are joined again a snapshot cannot be opened inside a transaction; run the transaction again"
    )]
    RowsSplit,
    /// A table is being loaded. The database can do nothing else until that is done.
    #[error("a table of the database is being loaded; try again when that is done")]
    Loading,
    /// A table cannot be loaded while a snapshot is open, because the snapshot must not see the new
    /// rows.
    #[error("a snapshot is open; close it before you load a table")]
    SnapshotOpen,
    /// The table to be loaded already has rows.
    #[error("table {table} has rows, or had some a moment ago; only an empty table can be loaded")]
    NotEmpty {
        /// The table.
        table: &'static str,
    },
    /// A transaction was begun by a destructor that runs at the end of its thread.
    #[error("the thread is ending; run the transaction before its thread-local values are dropped")]
    ThreadEnding,
    /// The requested hardware transactional memory is not available.
    #[error(transparent)]
    Htm(#[from] weft_htm::Unavailable),
    /// The environment variable that selects the HTM backend has an invalid value.
    #[error(transparent)]
    HtmChoice(#[from] weft_htm::InvalidChoice),
    /// The operating system could not start a thread for the epoch clock, for checkpoints or for a
    /// pool.
    #[error("cannot start a thread: {message}")]
    Thread {
        /// The operating system's message.
        message: String,
    },
}

/// Returns `what`, followed by the place where it happened.
fn describe(what: &str, table: &str, index: Option<&str>, key: Option<&str>) -> String {
    let index = index.map(|index| format!(", index {index}")).unwrap_or_default();
    let key = key.map(|key| format!(", key {}", shortened(key))).unwrap_or_default();
    format!("{what} (table {table}{index}{key})")
}

/// Returns `what`, followed by its label.
fn labelled(what: &str, label: Option<&str>) -> String {
    label.map_or_else(|| what.to_owned(), |label| format!("{what} `{label}`"))
}

/// Returns the name of a transaction by its label, which it may not have.
fn labelled_or_not(label: Option<&str>) -> String {
    label.map_or_else(|| "a transaction without a label".to_owned(), |label| format!("`{label}`"))
}

/// The greatest number of a key's characters in a message.
const KEY_CHARS_MAX: usize = 120;

/// Returns a key as it is in messages: only the beginning if it is long.
fn shortened(key: &str) -> Cow<'_, str> {
    match key.char_indices().nth(KEY_CHARS_MAX) {
        None => Cow::Borrowed(key),
        Some((end, _)) => Cow::Owned(format!("{}… ({} bytes)", &key[..end], key.len())),
    }
}

/// An error in the declarations that the chopping of procedures starts from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutlineError(String);

impl OutlineError {
    /// Returns an error with this message.
    #[doc(hidden)]
    pub fn new(message: String) -> Self {
        OutlineError(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_are_shortened_in_messages() {
        let error = |key: String| Failure::NoSuchRow { table: "t", key }.to_string();
        assert_eq!(error("7".to_owned()), "there is no row to change (table t, key 7)");
        let expected =
            format!("there is no row to change (table t, key {}… (2000 bytes))", "ä".repeat(120));
        assert_eq!(error("ä".repeat(1000)), expected);
    }
}
