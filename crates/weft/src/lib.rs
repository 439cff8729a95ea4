//! Weft is an in-memory, multicore, strictly serializable transactional database.
//!
//! Weft is a library: rows are Rust structs, and tables live in the memory of the process. A transaction is a
//! closure. Either all of it takes effect, as if no other transaction ran at the same time, or no part of it does.
//!
//! Any number of threads run transactions at the same time. Every transaction is *strictly serializable*: the
//! result is as if the transactions ran one after the other, and a transaction that ended before another one began
//! comes first in that order.
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
//! // Moves money if there is enough of it. Returns whether it did.
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
//! # Where to start
//!
//! In reading order:
//!
//! 1. [`Record`](macro@Record) makes a struct a row type, with its primary key, secondary indexes and constraints.
//!    [`column`](mod@column) lists the types that a column can have, and [`encoding`] those that a key can have.
//! 2. [`Database`]: [`Database::builder`] names the tables, [`Database::transact`] runs transactions, and
//!    [`Database::metrics`] returns the counters.
//! 3. [`Transaction`] has the operations: get, insert, update, upsert and delete; [`Scan`]s of ranges and prefixes,
//!    by the primary key or by a secondary index; operations on many rows, as [`Transaction::insert_many`]; and
//!    [`Transaction::prefetch`].
//! 4. [`Error`] is either a [`Conflict`] or a [`Failure`]. After a conflict `transact` runs the transaction again.
//!    After a failure it does not help to run the transaction again at once.
//! 5. [`protocol`] has the concurrency-control protocols. One of them is the type parameter of [`Database`]. The
//!    default, [`protocol::Dbx`], is the right one for an application.
//! 6. [`operation`] has changes of a column that commute, for rows that many threads change at the same time.
//! 7. [`Snapshot`] is a read-only view of the database, for large and long reads without conflicts. (A
//!    [recent](Database::open_recent_snapshot) one is cheaper, and some milliseconds old.)
//! 8. [`Builder::directory`] makes a database that survives the end of its process, and crashes.
//! 9. [`Pool`] runs transactions for async programs. [`TransactionOptions::once`] runs a transaction once for a key. [Rows
//!    can expire](macro@Record#rows-that-expire).
//!
//! The guide, in `docs/guide/src` of the repository, explains all of this in chapters.
//!
//! # How the source is organised
//!
//! Every file begins with a description of what is in it. The modules are layers: each module names only modules
//! above it in this list, and a test (`tests/layers.rs`) checks this.
//!
//! 1. `weft-htm` ([`htm`]): the words that threads share, and hardware regions with their software twins.
//! 2. `index`: the indexes, which map encoded keys to addresses. [`index`](mod@index) defines the vocabulary, `key`
//!    says how keys lie in nodes, and `bplus_tree` and `hash` are the two kinds of index.
//! 3. `sync`: the clock of epochs, grace periods, the turnstile and the gate.
//! 4. `step`: the numbers that identify one execution of one step of a procedure.
//! 5. `row`: rows as data. [`encoding`] defines the order of keys, [`column`](mod@column) how values are stored,
//!    [`schema`] what a row type is, and [`operation`] which changes commute. [`description`] describes tables to
//!    other programs.
//! 6. `error`: what can go wrong.
//! 7. [`durability`]: the files of the log and of checkpoints, and recovery.
//! 8. `store`: `record` has a record's layout, its version word (`tid`), the chain of its versions (`version`) and
//!    its memory (`arena`). `table` maps typed rows to addresses. `worker` is what a thread keeps for a database.
//!    `garbage` holds what waits to be freed, and `retention` what is kept for snapshots.
//! 9. `plan`: what a procedure declares, and the pieces in which it may commit.
//! 10. `commit`: the interface of protocols (in its `mod.rs`), and what only some protocols can do
//!     (`capabilities`). `access_set` is the read and write sets of a transaction, `optimistic` the phases that
//!     optimistic protocols share, and `dbx`, `silo` and `two_phase_locking` are protocols.
//! 11. `transaction`: the operations on tables. `snapshot`: read-only views.
//! 12. `database`: opening a database (`builder`), the run loop (`run`), the directory (`storage`), bulk loading
//!     (`load`), metrics, pools and stashes.
//!
//! The crate `weft-protocols` has the laboratory's protocols, beginning with `none`, which has no concurrency
//! control and so shows the minimal cost. The crate `weft-procedures` has procedures, which are transactions whose
//! steps are known in advance, and finds the pieces in which they may commit.
//!
//! The cargo features `bytes`, `jiff`, `rust_decimal` and `uuid` make types of these libraries columns and keys.
//!
//! With the cargo feature `history` there is also the module `history`, which records what transactions did, for a
//! checker.
#![warn(missing_docs)]
// Without that feature part of what these crates use has no user.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unused_imports))]

// `#[derive(Record)]` writes paths that start at `::weft`, in this crate's own tests too.
#[allow(unused_extern_crates)]
extern crate self as weft;

mod database;
pub mod durability;
mod error;
#[cfg(feature = "history")]
pub mod history;
mod row;
mod snapshot;
mod transaction;

// What other crates build protocols and drivers of procedures from. It rests on rules that only its comments state, so
// an application, which has not asked for the feature `internals`, cannot name it.
#[cfg(not(feature = "internals"))]
mod commit;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod commit;
#[cfg(not(feature = "internals"))]
mod index;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod index;
#[cfg(not(feature = "internals"))]
mod plan;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod plan;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod raw_tree;
#[cfg(not(feature = "internals"))]
mod step;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod step;
#[cfg(not(feature = "internals"))]
mod store;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod store;
#[cfg(not(feature = "internals"))]
mod sync;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod sync;

pub use weft_htm as htm;
pub use weft_macros::{ColumnValue, Key, Record};

pub use commit::CommitToken;
pub use database::expiry::ExpiryMetrics;
pub use database::metrics::{IndexMemoryMetrics, MemoryMetrics, Metrics, RepairMetrics};
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use database::once::ReplicatedResult;
pub use database::once::{Once, OnceKey, OnceOptions, TransactWith};
pub use database::pool::{
    Pool, PoolOptions, Priority, Shutdown, Submission, SubmitOptions, SubmitWith,
};
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use database::run;
pub use database::snapshots::SnapshotOptions;
pub use database::stash::Stash;
pub use database::storage::CheckpointMetrics;
pub use database::storage::{Acknowledge, CheckpointReport, DurabilityOptions};
pub use database::{
    Builder, Database, ManualClock, Migration, TransactionOptions, WORKERS_MAX_DEFAULT,
};
pub use error::{Conflict, ConflictReason, Error, Failure, OutlineError};
pub use row::column::ColumnValue;
pub use row::encoding::Key;
pub use row::schema::{Index, OrderedRecord, Record, Violation};
pub use row::timestamp::Timestamp;
pub use row::{column, description, encoding, operation, schema};
pub use snapshot::{Snapshot, SnapshotRows, SnapshotScan};
pub use store::ages::TransactionAge;
pub use store::retention::SnapshotMetrics;
pub use store::table::Table;
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use store::worker::OperationFlaw;
pub use transaction::{ColumnScan, Scan, Transaction, TransactionColumns, TransactionRows};

/// The concurrency-control protocols for applications, and the interface between a protocol and the engine.
///
/// The laboratory's protocols are in the crate `weft-protocols`. Other crates can implement more: the cargo feature
/// `internals` makes the modules public that a protocol is built from (`commit`, `store`, `sync`, `plan`, `step`, `run` and
/// `index`). They have no promise of stability, and their functions rely on rules that only their comments state.
pub mod protocol {
    pub use crate::commit::{
        Abort, ChopsProcedures, Dbx, Executor, Never, Observation, PhaseMetrics, Protocol,
        ProtocolDescription, ProtocolOptions, ProtocolShared, Refusal, RepairsTransactions, Silo,
        SplitsRecords, Target, TwoPhaseLocking, TwoPhaseLockingNoWait, Visible, dbx, silo,
        two_phase_locking,
    };
    pub use crate::store::record::{DeletedOutcome, HoldOutcome, RecordHeader};
}

/// The example of the README, compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeDoctests;

/// The examples of the page on stored rows, compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/row-format.md")]
struct RowFormatDoctests;
