//! The one suite that every concurrency-control protocol of Weft has to pass, and that the canary
//! must not.
//!
//! # What it asks
//!
//! Strict serializability, of all protocols, in the same words:
//!
//! | check | what runs | who judges |
//! | --- | --- | --- |
//! | [`scripts`] | the named anomalies, as explicit interleavings, step by step | all serial orders, and the checker |
//! | [`random`] | random transactions on few rows: interleaved by a seed, or free | the checker, by what the engine recorded; small runs also all serial orders |
//! | [`procedures`] | procedures, which some commit in pieces, among transactions and snapshots | the checker; small runs also all serial orders |
//! | [`values`] | transactions that each write values of their own | the checker, by the values alone |
//! | [`invariants`] | a bank, a ring, counted rows, secondary indexes | the transactions themselves |
//! | [`copies`] | a counter, its copy, and snapshots of both | two snapshots, one after the other |
//! | [`starvation`] | a long transaction among short ones | that it ends |
//!
//! The consistency conditions of TPC-C and of YCSB are kept by tests of `weft-workloads`, which
//! run several clients on tiny databases at every protocol of the same list.
//!
//! A protocol that only makes single operations on single rows atomic takes part where a
//! transaction is one step and tables have no secondary indexes
//! ([`Subject::all_for_single_steps`](subject::Subject::all_for_single_steps)), and nowhere else:
//! the rest it refuses. All others are asked the same there, too.
//!
//! No two of the judges share what they believe: the serial orders know what was shown, the
//! recorder knows which version every row is, the values know who replaced whom, and the invariants
//! know none of these. Where two of them judge the same run, they must agree.
//!
//! # Who is asked
//!
//! [`Subject::all`](subject::Subject::all) is the engine's own list of protocols. Nothing in this
//! crate names one, so a protocol that joins the list is tested by that line. What differs between
//! them is asked by capability: how many threads one bears, and whether it knows single rows only.
//!
//! All of them have snapshots. [`scripts`] has sessions that are snapshots, [`random`] histories have
//! them beside, and among, their transactions, and audits of [`invariants`] are made by snapshots too;
//! these also run where one thread writes and all others only look.
//!
//! # On which machine
//!
//! On threads of the operating system; and, built with `--cfg weft_sim` (`cargo test-simulated`), on
//! virtual cores of the simulated machine of `weft-sim`, the papers' Haswell. What is
//! [interleaved by a seed](threads::Mode) runs there under schedules at random or by priorities (PCT),
//! and what runs free, by virtual time. There is RTM there, so each protocol is a subject three times:
//! with the machine's regions, with regions that are given up for their twins at the first abort, and
//! with twins alone. [`scripts`] are not run there, whose single steps do not overlap.
//!
//! # Who watches the suite
//!
//! The [canary](weft_protocols::canary) is a protocol with a list of mutations, each of which breaks
//! one step. The same functions that judge the protocols are run on each of them, with seeds from 0
//! on, until one finds the break; the table is in `docs/planted-bugs.md`. The intact canary passes.
//! On the simulated machine, bugs are planted in the protocols themselves, too
//! (`weft_htm::planted`): between a region and its twin there is more to get wrong than in a canary.
//!
//! # Seeds and amounts
//!
//! Whatever fails prints `WEFT_SEED=…`, and with that in the environment it runs the same again:
//! exactly so where the threads were interleaved by the seed, and with the same inputs where they
//! ran free. (Epochs tick by the clock in both, which hardly ever matters.) `WEFT_STRESS=n` runs n
//! times as much (with 10, a million recorded transactions for each protocol), and `WEFT_PROTOCOLS=name,name` asks only these.
//! On the simulated machine every run is repeated exactly. What is found there is printed with its
//! schedule, too, which is the text of a file: `WEFT_SCHEDULE=path`, beside the seed, repeats it even if the
//! way in which schedules are drawn has changed meanwhile.
//!
//! In the order of reading: [`subject`] hides a protocol's type, [`step`] is what transactions are
//! made of, [`oracle`] and [`verdict`] judge, [`schedule`] and [`threads`] run, and the checks are
//! the modules of the table.
#![cfg(not(any(loom, shuttle)))]

pub mod contents;
pub mod copies;
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

// The machine that threads run on is one module with one face, chosen here and nowhere else.
#[cfg(not(weft_sim))]
mod machine;
#[cfg(weft_sim)]
#[path = "machine_simulated.rs"]
mod machine;
