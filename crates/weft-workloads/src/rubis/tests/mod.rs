//! Tests of the workload as a whole: the load, the transactions (against a plain model of the tables), how often
//! they are drawn, and that every protocol keeps the invariants.

mod concurrency;
mod model;
mod population;
mod procedures;

use crate::trials::runnable_protocols;
use weft::htm::Choice;
use weft::protocol::Protocol;

use super::{Parameters, Rubis};
use crate::workload::{Condition, LoadOptions, Workload};

/// A database so small that all clients access the same rows, and that lots are sold out.
pub(super) const TINY: Parameters =
    Parameters { users: 40, items: 25, mix: super::Mix::Bidding, operations: true, lot: 1 };

/// Returns a loaded database, with the HTM backend that the environment names.
pub(super) fn load<P: Protocol>(parameters: &Parameters, seed: u64, threads: usize) -> Rubis<P> {
    let htm = Choice::from_environment().expect("WEFT_HTM names a backend").unwrap_or(Choice::Auto);
    let options = LoadOptions { seed, threads, htm: Some(htm), ..LoadOptions::default() };
    Rubis::load(parameters, &options).expect("loads")
}

/// Panics with every condition that does not hold, or that was not checked at all.
fn assert_consistent<P: Protocol>(rubis: &Rubis<P>, context: &str) {
    let conditions = rubis.verify(&|_, _| {}).expect("verification reads every row");
    let is_broken = |condition: &&Condition| !condition.holds || condition.checked == 0;
    let broken: Vec<String> =
        conditions.iter().filter(is_broken).map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{context}:\n{}", broken.join("\n"));
}
