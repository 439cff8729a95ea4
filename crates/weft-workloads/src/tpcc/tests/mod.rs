//! Tests of the workload as a whole: what the load leaves, what the transactions do (against a
//! plain model of the tables), and that every protocol keeps the consistency conditions.

mod chopping;
mod concurrency;
mod model;
mod population;
mod procedures;

use weft::htm::Choice;
use weft::protocol::Protocol;
use weft_protocols::PROTOCOLS;

use super::{Parameters, Tpcc};
use crate::workload::{LoadOptions, Workload};

/// A loaded database, with the HTM backend that the environment asks for.
pub(super) fn load<P: Protocol>(parameters: Parameters, seed: u64, threads: usize) -> Tpcc<P> {
    let htm = Choice::from_environment().expect("WEFT_HTM names a backend").unwrap_or(Choice::Auto);
    let options = LoadOptions { seed, threads, htm, ..LoadOptions::default() };
    Tpcc::load(&parameters, &options).expect("loads")
}

/// The names of the protocols that can run TPC-C: all but those that make single operations on
/// single rows atomic, and refuse its tables.
fn runnable_protocols() -> Vec<&'static str> {
    let runnable = PROTOCOLS.iter().filter(|protocol| !protocol.single_key);
    runnable.map(|protocol| protocol.name).collect()
}

/// Fails with every condition that does not hold.
fn assert_consistent<P: Protocol>(tpcc: &Tpcc<P>, context: &str) {
    let conditions = tpcc.verify(&|_, _| {}).expect("verification reads every row");
    let broken: Vec<String> =
        conditions.iter().filter(|condition| !condition.holds).map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{context}:\n{}", broken.join("\n"));
}
