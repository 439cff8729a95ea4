//! Benchmark workloads for the Weft database.
//!
//! Each workload is written once, against the engine's public interface, and runs under every protocol.
//! [`workload`] defines what a workload is to the harness. The workloads are:
//!
//! - [`articles`]: Articles, a site where articles are read and commented on;
//! - [`incr`]: INCR1 and INCRZ, increments of counters, some of which are hot;
//! - [`like`]: LIKE, users who like pages, some of which are popular;
//! - [`tatp`]: TATP, a mobile operator's register: very short transactions, most of which only read;
//! - [`tpcc`]: TPC-C, the order-entry benchmark of the Transaction Processing Performance Council;
//! - [`rubis`]: RUBiS, an auction site: users browse and bid, and some items are far more popular than others;
//! - [`ycsb`]: YCSB, single rows by key, some of them far more popular than others;
//! - [`flash_sale`]: orders that check a stock, most of them for a few hot items;
//! - [`queue`]: producers append to a table, and consumers take its oldest row;
//! - [`bank`]: transfers, many of them to or from a hot account, and audits of all accounts;
//! - [`shift`](mod@shift): a hot spot that moves and changes its kind every few seconds;
//! - [`mixture`]: all of these but the last in one database at once.
//!
//! Two modules measure without a database:
//!
//! - [`locks`]: locks that hardware regions may elide, under TATP's shortest transaction;
//! - [`rtm`]: hardware regions, to find how large they can be.
//!
//! ```
//! use weft::protocol::Dbx;
//! use weft_workloads::tpcc::{Parameters, Scale, Tpcc};
//! use weft_workloads::{LoadOptions, Workload};
//!
//! let parameters = Parameters { scale: Scale::TINY, ..Parameters::default() };
//! let tpcc = Tpcc::<Dbx>::load(&parameters, &LoadOptions::default())?;
//! let mut client = tpcc.client(1, 0, 1);
//! for _ in 0..100 {
//!     tpcc.execute(&mut client)?;
//! }
//! assert!(tpcc.verify(&|_, _| {})?.iter().all(|condition| condition.holds));
//! # Ok::<(), weft::Failure>(())
//! ```

pub mod aborts;
pub mod adaptive;
pub mod articles;
pub mod bank;
pub mod dbx;
pub mod dbx_tc;
pub mod doppel;
mod finding;
pub mod flash_sale;
pub mod htcc;
pub mod incr;
mod ledger;
pub mod like;
mod load;
pub mod locks;
pub mod mix;
pub mod mixture;
pub mod paper;
pub mod phases;
mod popularity;
pub mod procedures;
pub mod queue;
pub mod random;
pub mod rtm;
pub mod rubis;
pub mod shift;
pub mod snapshots;
pub mod stashing;
pub mod tatp;
pub mod tpcc;
#[cfg(test)]
mod trials;
pub mod variants;
mod view;
mod walk;
pub mod workload;
pub mod ycsb;

pub use workload::{Condition, LoadOptions, Outcome, Progress, StorageOptions, Workload};
