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
//! 7. [`Snapshot`]: reading much, for long, without conflicts. [`Builder::directory`]: a database that
//!    survives its process, and crashes.
//!
//! # For who reads it
//!
//! Every file opens with what it is about. The modules are layers: each names only modules before it in this list,
//! and a test (`tests/layers.rs`) sees to that. From the bottom up:
//!
//! 1. `weft-htm` ([`htm`]): the words that threads share, hardware regions and their twins.
//! 2. `index`: from encoded keys to addresses. [`index`](mod@index) is the vocabulary, `key` how keys lie in nodes,
//!    `bplus_tree` and `hash` the two kinds.
//! 3. `sync`: the clock of epochs, grace periods, the turnstile, the gate.
//! 4. `step`: which execution of which step of a procedure something belongs to.
//! 5. `row`: rows as data. [`encoding`] is the order of keys, [`column`](mod@column) how values are stored, [`schema`]
//!    what a row type is, [`operation`] what commutes, [`description`] tables as other programs see them.
//! 6. `error`: what can go wrong.
//! 7. [`durability`]: the log, checkpoints and recovery, as files.
//! 8. `store`: `record`, its layout, its version word (`tid`), the chain of its versions (`version`), its memory
//!    (`arena`); `table`, from typed rows to addresses; `worker`, what a thread has of a database; `garbage` and
//!    `retention`, what waits to be freed, and what is kept for snapshots.
//! 9. `plan`: what a procedure declares, and in which pieces it may commit.
//! 10. `commit`: the interface of protocols (in its `mod.rs`) and what only some can do (`capabilities`);
//!     `access_set`, what a transaction remembers; `optimistic`, the phases that optimistic protocols share; `dbx`,
//!     `silo` and `two_phase_locking`.
//! 11. `transaction`: the operations on tables. `snapshot`: read-only views.
//! 12. `database`: opening (`builder`), the run loop (`run`), the directory (`storage`), filling tables (`load`),
//!     metrics, pools and stashes.
//!
//! The laboratory's protocols are in the crate `weft-protocols`, from `none`, the floor, on. Transactions whose steps
//! are known beforehand, and in which pieces they may commit, are in `weft-procedures`.
//!
//! With the cargo feature `history` there is also `history`, which records what transactions did,
//! for a checker.
#![warn(missing_docs)]

// `#[derive(Record)]` writes paths that start at `::weft`, in this crate's own tests too.
#[allow(unused_extern_crates)]
extern crate self as weft;

#[doc(hidden)]
pub mod commit;
mod database;
pub mod durability;
mod error;
#[cfg(feature = "history")]
pub mod history;
#[doc(hidden)]
pub mod index;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod raw_tree;
mod row;
mod snapshot;
#[doc(hidden)]
pub mod step;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod sync;
mod transaction;

pub use weft_htm as htm;
pub use weft_macros::{ColumnValue, Record};

pub use commit::CommitToken;
pub use database::metrics::{MemoryMetrics, Metrics, RepairMetrics};
pub use database::pool::{Pool, PoolOptions, Submission, SubmissionFuture};
#[doc(hidden)]
pub use database::run;
pub use database::stash::Stash;
pub use database::storage::{Acknowledge, CheckpointReport, DurabilityOptions};
pub use database::{Builder, Database, TransactionOptions, WORKERS_MAX_DEFAULT};
pub use error::{Conflict, ConflictReason, Error, Failure, OutlineError};
pub use row::column::ColumnValue;
pub use row::schema::{Index, Record, Violation};
pub use row::{column, description, encoding, operation, schema};
pub use snapshot::{Snapshot, SnapshotRows, SnapshotScan};
pub use store::retention::SnapshotMetrics;
pub use store::table::Table;
pub use transaction::{Scan, Transaction};

/// Concurrency-control protocols for applications, and what any protocol is to the engine.
///
/// Those of the laboratory are in the crate `weft-protocols`. What a protocol is made from, the modules `commit`, `store`,
/// `sync`, `plan`, `step`, `run` and `index`, can be used by other crates, but is not part of the promise of stability.
pub mod protocol {
    pub use crate::commit::{
        Abort, ChopsProcedures, Dbx, Executor, Never, Observation, PhaseMetrics, Protocol,
        ProtocolDescription, ProtocolOptions, ProtocolShared, Refusal, RepairsTransactions, Silo,
        SplitsRecords, Target, TwoPhaseLocking, TwoPhaseLockingNoWait, Visible, dbx, optimistic,
        silo, two_phase_locking,
    };
    pub use crate::store::record::{RecordHeader, Settled};
}

/// The examples of the README, compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeDoctests;

/// The examples of the page on stored rows, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/row-format.md")]
struct RowFormatDoctests;
