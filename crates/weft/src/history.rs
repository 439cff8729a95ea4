//! The history recorder, which records what every transaction read and wrote, so that a checker can
//! judge it.
//!
//! The cargo feature `history` compiles it in. It is active in databases that were opened with
//! [`Builder::record_history`]. Other databases have the same layout and behave the same as without
//! the feature, except for one branch per operation.
//!
//! ```
//! use weft::history::{HistoryKey, Operation};
//! use weft::{Database, Error, Record};
//!
//! #[derive(Clone, Record)]
//! #[record(table = "counters")]
//! struct Counter {
//!     #[record(key)]
//!     id: u32,
//!     value: u64,
//! }
//!
//! let database: Database =
//!     Database::builder().table::<Counter>().record_history(true).open()?;
//! let counters = database.table()?;
//! database.transact(|tx| tx.insert(&counters, Counter { id: 7, value: 0 }))?;
//! database.transact(|tx| tx.update(&counters, &7, |counter| counter.value += 1))?;
//!
//! let history = database.take_history();
//! let (table, key) = ("counters".into(), HistoryKey::Integer(7));
//! assert_eq!(history.transactions[1].operations, [
//!     Operation::Read { table: "counters".into(), key: key.clone(), version: Some(1) },
//!     Operation::Write { table, key, version: 2 },
//! ]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # The identity of a version
//!
//! A recorder that trusted the version numbers of the protocol under test could not detect a
//! protocol that hands out wrong ones. So rows carry an identity of their own. In a recorded
//! database every row is followed by a *stamp*, in the same block:
//!
//! ```text
//!  row, unchanged   | padding | transaction: u64 | number of the write: u64 |
//!  0                          stamp_offset                            + 16
//! ```
//!
//! The stamp is written while the row is private, and never again. A reader that gets a row also
//! gets the stamp of exactly the version that it reads, whatever the protocol did to return it.
//! (Index entries are rows too, and have stamps as well.)
//!
//! A stamp says which transaction wrote the row, but not in which order. The order comes from one
//! counter for the whole database. A commit draws a number from it when it asks for the epoch.
//! Every protocol does this at its serialization point, with its write locks held or inside its
//! hardware region. So of two transactions that write the same key, the one that installs its
//! version first has the smaller number. When the history is taken, the transactions are put in the
//! order of these numbers, and their writes are numbered in that order. These numbers are the
//! versions of the [`History`]. The writes of aborted transactions have versions too, which no read
//! should ever see.
//!
//! # What is recorded
//!
//! - [`Transaction::get`] is a read. An update, an upsert or a delete is a read of what it
//!   replaces, and then a write or a delete, if it changes something. An insert is a read of
//!   nothing, and a write. If it fails because of a duplicate key, it is a read of that row.
//! - A [`Scan`] is recorded as far as it went: to the end of its range if it was iterated to the
//!   end, otherwise to the last row that it returned. If the transaction writes between two steps
//!   of a scan, the scan is recorded in parts, each before or after the write as it happened. A
//!   scan reads whole leaves in advance. So it may pass a key that the transaction itself has
//!   written since the scan began, without returning it. The recorded range leaves out such a key.
//! - A secondary index is a table of its own, named `table.index`. A row that is inserted, deleted
//!   or moved in the index writes and deletes the index's entries. A scan by the index is a scan of
//!   the entries, and a read of each row that they lead to. So predicates on secondary indexes are
//!   as exact as those on primary keys.
//! - A snapshot is a transaction of a session of its own. Its completion is the moment at which it
//!   has been opened. It is recorded when it is closed.
//! - A commit may rely on a later version of a row than the transaction has read, because the columns that it uses are
//!   the same there, or because operations were applied again. Then the recorded read has that later version.
//! - [`Transaction::prefetch`] only announces keys. It is not a read, and is not recorded.
//! - Each attempt of [`Database::transact`] is a transaction of its own.
//! - The time of invocation is taken before a transaction begins, and the time of completion when
//!   its commit or rollback has returned. (What [`Database::transact`] does between two attempts is
//!   outside both.)
//!
//! For an absence, the history does not say which deletion caused it, because there is no row that
//! could carry a stamp.
//!
//! [`Builder::record_history`]: crate::Builder::record_history
//! [`Transaction::get`]: crate::Transaction::get
//! [`Transaction::prefetch`]: crate::Transaction::prefetch
//! [`Database::transact`]: crate::Database::transact
//! [`Scan`]: crate::Scan

mod json;
mod key;
mod recorder;

use std::ops::Bound;
use std::sync::Arc;

pub use key::HistoryKey;
pub(crate) use key::{encoded_range, key_range, prefix_range, start_range};
pub(crate) use recorder::{Recorder, Recording, ScanProgress, Stamp};

/// A range of keys.
pub(crate) type HistoryRange = (Bound<HistoryKey>, Bound<HistoryKey>);

/// What a database's transactions did. Returned by [`Database::take_history`].
///
/// [`Database::take_history`]: crate::Database::take_history
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// All transactions that have ended, in the order in which they were invoked.
    pub transactions: Vec<Transaction>,
}

/// One transaction, or one attempt of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// The transaction's number in this history: 1, 2, and so on in the order of invocation.
    pub id: u64,
    /// The session that ran it. Each worker of the database is a session: its transactions ran one after
    /// the other, perhaps on different threads.
    pub session: u32,
    /// The time of invocation, by a monotonic clock that started when the database was opened.
    pub invoke_ns: u64,
    /// The time at which its commit or rollback had returned, by the same clock.
    pub complete_ns: u64,
    /// How it ended.
    pub status: Status,
    /// What it did, in program order.
    pub operations: Vec<Operation>,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It committed.
    Committed,
    /// A conflict aborted it.
    Aborted,
    /// The caller rolled it back, by an error, a panic or an explicit call.
    RolledBack,
}

/// One operation.
///
/// A version is a number. The versions of one key are ordered by number, and no two writes have the
/// same version. Version zero is what existed before the history began.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A key was looked up.
    Read {
        /// The table, or `table.index`.
        table: Arc<str>,
        /// The key.
        key: HistoryKey,
        /// The version that was there; `None` if no row was visible.
        version: Option<u64>,
    },
    /// A row was inserted or replaced.
    Write {
        /// The table, or `table.index`.
        table: Arc<str>,
        /// The key.
        key: HistoryKey,
        /// The new version.
        version: u64,
    },
    /// A row was deleted.
    Delete {
        /// The table, or `table.index`.
        table: Arc<str>,
        /// The key.
        key: HistoryKey,
        /// The version that stands for the absence of the row.
        version: u64,
    },
    /// All keys of a range were looked up.
    Scan {
        /// The table, or `table.index`.
        table: Arc<str>,
        /// The beginning of the range that the scan covered.
        from: Bound<HistoryKey>,
        /// The end of that range.
        to: Bound<HistoryKey>,
        /// The rows that the scan saw, in the order in which it saw them.
        rows: Vec<(HistoryKey, u64)>,
    },
}
