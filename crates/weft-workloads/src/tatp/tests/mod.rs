//! Tests of the workload as a whole: the load, the transactions (against a plain model of the tables), how often
//! they succeed, and that every protocol keeps the invariants.

mod concurrency;
mod model;
mod population;
mod procedures;

use crate::trials::runnable_protocols;
use weft::htm::Choice;
use weft::protocol::Protocol;

use super::{Parameters, Tatp};
use crate::workload::{Condition, LoadOptions, Workload};

/// Returns a loaded database, with the HTM backend that the environment names.
fn load<P: Protocol>(parameters: &Parameters, seed: u64, threads: usize) -> Tatp<P> {
    let htm = Choice::from_environment().expect("WEFT_HTM names a backend").unwrap_or(Choice::Auto);
    let options = LoadOptions { seed, threads, htm: Some(htm), ..LoadOptions::default() };
    Tatp::load(parameters, &options).expect("loads")
}

/// Returns the results of the invariants. Each must have been checked somewhere, except that of call forwardings,
/// all of which may have been deleted.
fn conditions<P: Protocol>(tatp: &Tatp<P>) -> Vec<Condition> {
    let conditions = tatp.verify(&|_, _| {}).expect("verification reads every row");
    assert_eq!(conditions.len(), 6);
    for (position, condition) in conditions.iter().enumerate() {
        assert!(condition.checked > 0 || position == 4, "{conditions:?}");
    }
    conditions
}

/// Panics with every condition that does not hold.
fn assert_consistent<P: Protocol>(tatp: &Tatp<P>, context: &str) {
    let broken: Vec<String> = conditions(tatp)
        .iter()
        .filter(|condition| !condition.holds)
        .map(ToString::to_string)
        .collect();
    assert!(broken.is_empty(), "{context}:\n{}", broken.join("\n"));
}
