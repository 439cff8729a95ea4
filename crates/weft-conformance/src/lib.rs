//! The conformance suite: every concurrency-control protocol of Weft must pass it, and the mutations of the
//! canary must not.
//!
//! # What it checks
//!
//! It checks every protocol for strict serializability, with the same code:
//!
//! | check | what runs | what judges |
//! | --- | --- | --- |
//! | [`scripts`] | the named anomalies, as explicit interleavings, step by step | all serial orders, and the checker |
//! | [`random`] | random transactions and procedures on few rows: interleaved by a seed, or free | the checker, by what the engine recorded; small runs also all serial orders |
//! | [`procedures`] | procedures, which some protocols commit in pieces, among transactions and snapshots | the checker; small runs also all serial orders |
//! | [`expiry`] | random transactions and procedures on rows that expire, by a clock that a thread sets | all serial orders with times that do not decrease; the checker |
//! | [`values`] | transactions that each write values of their own | the checker, by the values alone |
//! | [`invariants`] | a bank, a ring, counted rows, secondary indexes | the transactions themselves |
//! | [`copies`] | a counter, its copy, and snapshots of both | two snapshots, one after the other |
//! | [`starvation`] | a long transaction among short ones | the long transaction: it must end |
//!
//! Tests of `weft-workloads` check the consistency conditions of TPC-C and of YCSB. They run several clients on
//! tiny databases, under every protocol of the same list.
//!
//! Some protocols only make single operations on single rows atomic, and refuse everything else. They take part
//! only in checks where a transaction is one step and tables have no secondary indexes
//! ([`Subject::all_for_single_steps`](subject::Subject::all_for_single_steps)). All other protocols take part
//! in these checks, too.
//!
//! No two of the judges rely on the same information. The serial orders know what was shown. The recorder knows
//! which version every row is. The values know which write replaced which. The invariants know none of these.
//! If two of them judge the same run, they must agree.
//!
//! # Which protocols are tested
//!
//! [`Subject::all`](subject::Subject::all) is the engine's own list of protocols. This crate names no protocol,
//! so a protocol that joins the list is tested automatically. The protocols differ only in capabilities: how
//! many threads one supports, and whether it is limited to single rows.
//!
//! All protocols have snapshots. Some sessions of [`scripts`] are snapshots. [`random`] histories have
//! snapshots beside their transactions and among them. Snapshots also make audits of [`invariants`]. These
//! checks run even if the protocol supports only one writer, because other threads can still read.
//!
//! # On which machine
//!
//! It runs on threads of the operating system. Built with `--cfg weft_sim` (`cargo test-simulated`), it runs on
//! virtual cores of the simulated machine of `weft-sim`, with the profile of the papers' Haswell. What is
//! [interleaved by a seed](threads::Mode) then runs under random schedules or under priorities (PCT), and what
//! runs free runs by virtual time. The simulated machine has RTM, so each protocol is a subject three times:
//! with the machine's regions, with regions that give up for their twins at the first abort, and with twins
//! alone. [`scripts`] are not run there, because their single steps do not overlap.
//!
//! # What tests the suite
//!
//! The [canary](weft_protocols::canary) is a protocol with a list of mutations, each of which breaks one step.
//! The functions that judge the protocols are run on each mutation, with seeds from 0 on, until one finds the
//! break. The table of results is in `docs/planted-bugs.md`. The intact canary passes. On the simulated
//! machine, bugs are also planted in the protocols themselves (`weft_htm::planted`), because a region beside
//! its twin has more that can go wrong than a canary.
//!
//! # Seeds and amounts
//!
//! A failure prints `WEFT_SEED=…`. With that in the environment, the test runs the same again. The repetition
//! is exact if the threads were interleaved by the seed; if they ran free, only the inputs are the same. (In
//! both cases epochs tick by the clock, which seldom matters.) `WEFT_STRESS=n` runs n times as much. `WEFT_PROTOCOLS=name,name` tests only these protocols. On
//! the simulated machine every run is repeated exactly. A failure there also prints its schedule, which is the
//! text of a file. `WEFT_SCHEDULE=path`, beside the seed, repeats it even after a change of the way in which
//! schedules are drawn.
//!
//! Reading order: [`subject`] hides a protocol's type, [`step`] has the steps of transactions, [`oracle`] and
//! [`verdict`] judge, and [`schedule`] and [`threads`] run. The checks are the modules of the table.
#![cfg(not(any(loom, shuttle)))]

pub mod contents;
pub mod copies;
pub mod expiry;
pub mod invariants;
pub mod oracle;
pub mod procedures;
pub mod random;
#[cfg(not(weft_sim))]
pub mod schedule;
#[cfg(not(weft_sim))]
pub mod scripts;
pub mod starvation;
pub mod step;
pub mod subject;
pub mod threads;
pub mod values;
pub mod verdict;

// The machine that threads run on is one module with one interface, and only these lines choose which file
// implements it.
#[cfg(not(weft_sim))]
mod machine;
#[cfg(weft_sim)]
#[path = "machine_simulated.rs"]
mod machine;
