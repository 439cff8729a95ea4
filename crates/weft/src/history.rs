//! The history recorder: what every transaction read and wrote, for a checker to judge.
//!
//! Compiled in by the cargo feature `history`, and active in databases that were opened with
//! [`Builder::record_history`]. Others have the same layout and do the same as without the feature,
//! but for one branch per operation.
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
//! A recorder that believed the version numbers of the protocol under test would be blind to a
//! protocol that hands out wrong ones. So rows carry an identity of their own. In a recorded
//! database every row has a *stamp* behind it, in the same block:
//!
//! ```text
//!  row, as ever     | padding | transaction: u64 | which of its writes: u64 |
//!  0                          stamp_offset                            + 16
//! ```
//!
//! It is written while the row is private, and never again. Whoever gets a row gets with it the
//! stamp of the very version that it reads, whatever the protocol did to hand it out. (Index
//! entries are rows too, and stamped as well.)
//!
//! A stamp says who wrote, but not in which order. The order comes from one counter for the whole
//! database: a commit draws a number from it when it asks for the epoch, which every protocol
//! does at its serialization point, with its write locks held or inside its hardware region. So
//! of two transactions that write the same key, the one that installs its version first has the
//! smaller number. When the history is taken, transactions are put in the order of these numbers,
//! and their writes are numbered through: these are the versions of the [`History`]. Aborted
//! transactions are among them, with numbers that nobody should ever see in a read.
//!
//! # What is recorded
//!
//! - [`Transaction::get`] is a read. An update, an upsert or a delete is the read of what it
//!   replaces, and then a write or a delete, if there was something to do it to. An insert is the
//!   read of nothing, and a write; or, if it fails by a duplicate key, the read of that row.
//! - A [`Scan`] is recorded as far as it went: to the end of its range if it was iterated to the
//!   end, else to the last row that it returned. If the transaction writes between two steps of
//!   a scan, the scan is recorded in parts, each before or after the write as it was. A key that
//!   the transaction itself has written since the scan began, and that the scan has passed
//!   without showing it, is left out of the range: a scan looks at whole leaves in advance.
//! - A secondary index is a table of its own, named `table.index`. A row that is inserted, deleted
//!   or moved in the index writes and deletes the index's entries, and a scan by the index is
//!   a scan of the entries, and a read of each row that they lead to. So predicates on secondary
//!   indexes are as exact as those on primary keys.
//! - A snapshot is a transaction of a session of its own. Its completion is the moment at which it
//!   has been opened; it is recorded when it is closed.
//! - What is announced by [`Transaction::prefetch`] is not read, and not recorded.
//! - Each attempt of [`Database::transact`] is a transaction of its own.
//! - The time of invocation is taken before a transaction begins, that of completion when its
//!   commit or rollback has returned. (What [`Database::transact`] does between two attempts is
//!   outside of both.)
//!
//! Of an absence it is not recorded which deletion it came from: there is no row that could carry
//! a stamp.
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
pub(crate) use key::{encoded_range, key_range, prefix_range};
pub(crate) use recorder::{Recorder, Recording, ScanProgress, Stamp};

/// A range of keys.
pub(crate) type HistoryRange = (Bound<HistoryKey>, Bound<HistoryKey>);

/// What a database's transactions did; from [`Database::take_history`].
///
/// [`Database::take_history`]: crate::Database::take_history
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// All transactions that have ended, in the order in which they were invoked.
    pub transactions: Vec<Transaction>,
}

/// One transaction, or one attempt at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// Its number in this history: 1, 2, and so on in the order of invocation.
    pub id: u64,
    /// Who ran it: a number for each time that a thread became a worker of the database.
    pub session: u32,
    /// When it was invoked, by a monotonic clock that started when the database was opened.
    pub invoke_ns: u64,
    /// When its commit or rollback had returned, by the same clock.
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
    /// The caller rolled it back: by an error, a panic, or in so many words.
    RolledBack,
}

/// One operation.
///
/// A version is a number. Versions of one key are ordered by number; no two writes have the same.
/// Zero is what was there before the history began.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A key was looked up.
    Read {
        /// The table, or `table.index`.
        table: Arc<str>,
        /// The key.
        key: HistoryKey,
        /// What was there; `None` if no row was visible.
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
        /// The version that says that there is no row any more.
        version: u64,
    },
    /// All keys of a range were looked up.
    Scan {
        /// The table, or `table.index`.
        table: Arc<str>,
        /// Where the range that was covered begins.
        from: Bound<HistoryKey>,
        /// Where it ends.
        to: Bound<HistoryKey>,
        /// The rows that were there, in the order in which they were seen.
        rows: Vec<(HistoryKey, u64)>,
    },
}
