//! Weft: an in-memory, multicore, serializable transactional database.
//!
//! It is a library: rows are Rust structs, tables live in the process's memory, and a transaction
//! is a closure that either happens as a whole, as if nothing else ran meanwhile, or not at all.
//! Any number of threads run transactions at a time, and they are *strictly serializable*: their
//! effect is that of running one after the other, in an order in which a transaction that had
//! ended before another began comes first.
//!
//! ```
//! use weft::{Database, Error, Record};
//!
//! #[derive(Clone, Record)]
//! struct Account {
//!     #[record(key)]
//!     id: u32,
//!     cents: i64,
//! }
//!
//! let database = Database::builder().table::<Account>().open()?;
//! let accounts = database.table::<Account>()?;
//! database.transact(|tx| {
//!     tx.insert(&accounts, Account { id: 1, cents: 100 })?;
//!     tx.insert(&accounts, Account { id: 2, cents: 0 })
//! })?;
//!
//! // Moves money if there is enough of it; true if so.
//! let transfer = |from: u32, to: u32, cents: i64| {
//!     database.transact(|tx| {
//!         if tx.get(&accounts, &from)?.is_none_or(|account| account.cents < cents) {
//!             return Ok(false);
//!         }
//!         tx.update(&accounts, &from, |account| account.cents -= cents)?;
//!         tx.update(&accounts, &to, |account| account.cents += cents)?;
//!         Ok::<bool, Error>(true)
//!     })
//! };
//! std::thread::scope(|scope| {
//!     let both = [scope.spawn(|| transfer(1, 2, 60)), scope.spawn(|| transfer(1, 2, 60))];
//!     let moved = both.map(|thread| thread.join().unwrap().unwrap());
//!     assert_ne!(moved[0], moved[1], "the money is enough for one of them");
//! });
//!
//! let total = database.transact(|tx| {
//!     tx.range(&accounts, ..).map(|row| row.map(|row| row.cents)).sum::<Result<i64, Error>>()
//! })?;
//! assert_eq!(total, 100);
//! # Ok::<(), Error>(())
//! ```
//!
//! # For who uses it
//!
//! In reading order:
//!
//! 1. [`Record`](macro@Record) makes a struct a row type: its primary key, its secondary indexes,
//!    its constraints. What can be a column is said in [`column`](mod@column), and what can be a
//!    key in [`encoding`].
//! 2. [`Database`]: [`Database::builder`] names the tables, [`Database::transact`] runs
//!    transactions, [`Database::metrics`] tells how it is going.
//! 3. [`Transaction`]: get, insert, update, upsert, delete; [`Scan`]s of ranges and prefixes, by
//!    the primary key or by a secondary index; [`Transaction::prefetch`].
//! 4. [`Error`]: a [`Conflict`] is cured by running the transaction again, which `transact` does;
//!    a [`Failure`] is not.
//! 5. [`protocol`]: the concurrency-control protocols, of which one is the parameter of
//!    [`Database`]. The default, [`protocol::Dbx`], is the right one for an application.
//!
//! 6. [`operation`]: changes of a column that commute, for rows that many want to change at a time.
//!
//! 7. [`procedure`](mod@procedure): transactions whose steps are known beforehand, for protocols that
//!    can do better with them.
//!
//! 8. [`Snapshot`]: reading much, for long, without conflicts. [`Builder::directory`]: a database that
//!    survives its process, and crashes.
//!
//! # For who reads it
//!
//! Every file opens with what it is about. From the bottom up:
//!
//! 1. `weft-htm` ([`htm`]): the words that threads share, hardware regions and their twins.
//! 2. `epoch`: `clock`, the epoch that orders commits; `reclaim`, when memory may be freed;
//!    `garbage`, what waits for that.
//! 3. `record`: the layout of a record (in its `mod.rs`), its version word (`tid`), the chain of its
//!    versions (`version`), and where its memory comes from (`arena`).
//! 4. `index`: the memory store. [`index`](mod@index) is the vocabulary, `key` how keys lie in
//!    nodes, `bplus_tree` and `hash` the two kinds.
//! 5. `protocol`: `mod.rs` is the interface, `access_set` what a transaction remembers,
//!    `optimistic` the phases that the optimistic protocols share, and then one file for each
//!    protocol, from `none`, the floor, on.
//! 6. [`encoding`], [`schema`], [`operation`], `table`: from typed rows and keys to bytes and addresses.
//!    [`column`](mod@column) and [`description`]: rows and tables as they are stored outside memory.
//! 7. `worker`: what a thread has of a database. `transaction` and the files under it: the
//!    operations. `turnstile`: how a starving transaction gets through. `database`: opening, the
//!    retry loop, closing.
//! 8. [`procedure`](mod@procedure): what a transaction will do, and how it is done by steps.
//! 9. `snapshot`: read-only views, and the versions that are kept for them.
//! 10. [`durability`]: the log, checkpoints and recovery, of which `storage` makes a database with a
//!     directory; `load`: filling tables without transactions.
//! 11. `error`, `metrics`, `prefetch`: as they say.
//!
//! With the cargo feature `history` there is also `history`, which records what transactions did,
//! for a checker.
#![warn(missing_docs)]

// `#[derive(Record)]` writes paths that start at `::weft`, in this crate's own tests too.
#[allow(unused_extern_crates)]
extern crate self as weft;

pub mod column;
pub(crate) mod database;
mod deadline;
pub mod description;
pub mod durability;
pub mod encoding;
pub(crate) mod epoch;
mod error;
#[cfg(feature = "history")]
pub mod history;
#[doc(hidden)]
pub mod index;
mod load;
mod metrics;
pub mod operation;
mod pool;
mod prefetch;
pub mod procedure;
pub mod protocol;
mod ranges;
pub(crate) mod record;
pub mod schema;
mod snapshot;
mod stash;
mod storage;
pub(crate) mod table;
mod transaction;
mod turnstile;
pub(crate) mod worker;

pub use weft_htm as htm;
pub use weft_macros::{ColumnValue, Record, procedure};

pub use column::ColumnValue;
pub use database::{Builder, Database, TransactionOptions, WORKERS_MAX_DEFAULT};
pub use error::{Conflict, ConflictReason, Error, Failure};
pub use metrics::{MemoryMetrics, Metrics, RepairMetrics, SnapshotMetrics};
pub use pool::{Pool, PoolOptions, Submission, SubmissionFuture};
pub use schema::{Index, Record, Violation};
pub use snapshot::{Snapshot, SnapshotRows, SnapshotScan};
pub use stash::Stash;
pub use storage::{Acknowledge, CheckpointReport, CommitToken, DurabilityOptions};
pub use table::Table;
pub use transaction::{Scan, Transaction};

/// The examples of the README, compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeDoctests;

/// The examples of the page on stored rows, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/row-format.md")]
struct RowFormatDoctests;
