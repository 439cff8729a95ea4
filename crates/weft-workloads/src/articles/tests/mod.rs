//! Tests of the workload as a whole: the load, the transactions (against a plain model of the tables), how often
//! they are drawn, that every protocol keeps the invariants, and that verification finds damage.

mod concurrency;
mod damage;
mod model;
mod population;
mod procedures;

use std::time::Duration;

use crate::trials::runnable_protocols;
use weft::htm::Choice;
use weft::protocol::Protocol;

use super::conditions::Rule;
use super::{Articles, Mix, Parameters};
use crate::snapshots::Snapshots;
use crate::workload::{Condition, LoadOptions, Workload};

/// A database so small that all clients access the same rows.
const TINY: Parameters = Parameters {
    articles: 12,
    users: 5,
    mix: Mix::STANDARD,
    alpha: 1.0,
    operations: true,
    snapshots: Snapshots::Off,
};

/// Returns a loaded database, with the HTM backend that the environment names. The phases are so short that a test
/// has several.
fn load<P: Protocol>(parameters: &Parameters, seed: u64, threads: usize) -> Articles<P> {
    let htm = Choice::from_environment().expect("WEFT_HTM names a backend").unwrap_or(Choice::Auto);
    let phase_length = Some(Duration::from_millis(1));
    let options =
        LoadOptions { seed, threads, htm: Some(htm), phase_length, ..LoadOptions::default() };
    Articles::load(parameters, &options).expect("loads")
}

/// Returns the results of the invariants. Each must have been checked somewhere.
fn conditions<P: Protocol>(articles: &Articles<P>) -> Vec<Condition> {
    let conditions = articles.verify(&|_, _| {}).expect("verification reads every row");
    assert_eq!(conditions.len(), Rule::ALL.len());
    for (condition, rule) in conditions.iter().zip(Rule::ALL) {
        assert_eq!(condition.name, rule.name());
        assert!(condition.checked > 0, "{condition}");
        assert_eq!(condition.holds, condition.detail.is_none(), "{condition}");
    }
    conditions
}

/// Panics with every condition that does not hold.
fn assert_consistent<P: Protocol>(articles: &Articles<P>, context: &str) {
    let conditions = conditions(articles);
    let broken = conditions.iter().filter(|condition| !condition.holds);
    let broken: Vec<String> = broken.map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{context}:\n{}", broken.join("\n"));
}
