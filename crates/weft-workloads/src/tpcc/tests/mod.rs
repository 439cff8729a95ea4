//! Tests of the workload as a whole: the load, the transactions (against a plain model of the tables), and that
//! every protocol keeps the consistency conditions.

mod chopping;
mod concurrency;
mod model;
mod population;
mod procedures;

use crate::trials::runnable_protocols;
use weft::htm::Choice;
use weft::protocol::Protocol;

use super::{Parameters, Tpcc};
use crate::workload::{LoadOptions, Workload};

/// Returns a loaded database, with the HTM backend that the environment names.
pub(super) fn load<P: Protocol>(parameters: Parameters, seed: u64, threads: usize) -> Tpcc<P> {
    let htm = Choice::from_environment().expect("WEFT_HTM names a backend").unwrap_or(Choice::Auto);
    let options = LoadOptions { seed, threads, htm: Some(htm), ..LoadOptions::default() };
    Tpcc::load(&parameters, &options).expect("loads")
}

/// Panics with every condition that does not hold.
fn assert_consistent<P: Protocol>(tpcc: &Tpcc<P>, context: &str) {
    let conditions = tpcc.verify(&|_, _| {}).expect("verification reads every row");
    let broken: Vec<String> =
        conditions.iter().filter(|condition| !condition.holds).map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{context}:\n{}", broken.join("\n"));
}
