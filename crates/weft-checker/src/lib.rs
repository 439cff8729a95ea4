//! Checks recorded histories of transactions for serializability, and names the anomalies that it finds.
//!
//! A recorder tells a [`HistoryBuilder`] what every transaction read (which *version* of which key) and wrote,
//! and when it was invoked and complete. [`check`](check()) decides whether some serial order of the committed
//! transactions explains all of it, at the chosen [`Level`]. If not, it shows the shortest reason that it
//! finds. The crate knows nothing of the engine whose histories it judges, so that it cannot share the engine's
//! mistakes.
//!
//! ```
//! use weft_checker::{AnomalyKind, HistoryBuilder, Observed, Options, check};
//!
//! // Two withdrawals that both read the initial balance.
//! let mut builder = HistoryBuilder::new();
//! let accounts = builder.table("accounts");
//! for withdrawal in [1, 2] {
//!     let mut transaction = builder.transaction(withdrawal, 0, 100 * withdrawal);
//!     transaction.read(accounts, 5, Observed::Version(0));
//!     transaction.write(accounts, 5, withdrawal);
//!     transaction.committed(1000);
//! }
//! let report = check(&builder.build(), &Options::default());
//! assert!(report.has(AnomalyKind::LostUpdate));
//! let why = &report.anomalies[0].steps[0].why;
//! assert_eq!(
//!     why,
//!     "T2 read the initial version of accounts/5, which T1 overwrote with version 1"
//! );
//! ```
//!
//! # How
//!
//! The direct serialization graph (Adya, *Weak Consistency*, MIT 1999; Adya, Liskov, O'Neil, ICDE 2000) has a
//! node for each committed transaction, and an edge for each reason why one must precede another. With known
//! versions there are three kinds of edges. They concern items or, if a scan saw that a key had no row,
//! predicates. Strict serializability adds one more:
//!
//! | edge from T1 to T2 | because |
//! | --- | --- |
//! | ww | T2 overwrote what T1 wrote |
//! | wr, reads-from | T2 read what T1 wrote |
//! | rw, anti-dependency | T2 overwrote what T1 read, or inserted what T1 had not found |
//! | real time | T1 was complete before T2 was invoked |
//!
//! A history whose versions are in the order of their numbers is serializable if and only if the graph has no
//! cycle and each read alone is possible. The kinds of a cycle's edges say which anomaly it is. Elle
//! (Kingsbury, Alvaro, *Elle: Inferring Isolation Anomalies from Experimental Observations*, VLDB 2020) does
//! the same for histories that do not tell versions. This crate also reads its two kinds of histories, see
//! [`format`](mod@format).
//!
//! There are never false alarms. What cannot be known is decided in favour of the system: an absence may be any
//! absent state, a transaction of unknown outcome has committed only if another transaction saw its writes, and
//! equal times order nothing. So the checker may miss an anomaly in histories with such reads. It may also miss
//! one in list-append and rw-register histories, whose order of versions is partly unknown. If versions are
//! numbered and absences name their tombstones, the verdict is exact.
//!
//! # Cost
//!
//! Near linear. Each operation has a bounded number of edges, each scan O(log keys) for every gap between its
//! rows, and the real-time order three for each transaction. Strongly connected components are found in one
//! pass. A million transactions of ten operations, scans among them, take under half a minute of processor time
//! and less than 1 GiB (`examples/million.rs`).
//!
//! # Reading order
//!
//! `key`, `history`: what is recorded. `versions`, `absence`, `ranges`: the versions of each key, reads that
//! found no row, scans. `resolve`: the edges. `real_time`, `graph`: the rest of the graph, and its cycles.
//! `witness`, `naming`, `words`, `report`: what to show. `check` runs them in this order.

mod absence;
mod check;
pub mod format;
mod graph;
mod history;
mod key;
mod naming;
mod ranges;
mod real_time;
mod report;
mod resolve;
mod versions;
mod witness;
mod words;

pub use check::{Phase, check, check_with_progress};
pub use history::{
    History, HistoryBuilder, INITIAL, KeyId, Observed, Operation, Scan, Status, TableId,
    Transaction, TransactionBuilder,
};
pub use key::Key;
pub use report::{Anomaly, AnomalyKind, Class, EdgeCounts, EdgeKind, Level, Options, Report, Step};
