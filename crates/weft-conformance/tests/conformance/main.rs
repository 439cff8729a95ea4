//! The conformance suite: every protocol of the engine's list, every check. See the crate's
//! documentation for what is checked, by whom, and how a failure is repeated.
#![cfg(not(any(loom, shuttle)))]

mod canary;
#[cfg(weft_sim)]
mod found;
mod histories;
mod invariants;
#[cfg(weft_sim)]
mod planted;
mod procedures;
#[cfg(not(weft_sim))]
mod schedules;
mod single_rows;

use weft_conformance::subject::{Named, Subject};
use weft_conformance::threads::for_each_seed;
use weft_conformance::verdict::Finding;

/// Fails the test with what was found under a protocol.
fn expect_nothing<R>(subject: &Subject, result: Result<R, Finding>) -> R {
    match result {
        Ok(value) => value,
        Err(finding) => panic!("protocol {subject}, {finding}"),
    }
}

/// Runs a check of every protocol that bears several threads, with so many seeds.
fn every_protocol(seeds: u64, check: impl Fn(&Subject, u64) -> Result<(), Finding>) {
    for subject in Subject::concurrent() {
        let _named = Named(subject);
        for_each_seed(seeds, |seed| expect_nothing(&subject, check(&subject, seed)));
    }
}

/// Runs a check with snapshots of every protocol, with so many seeds: snapshots are read by many
/// threads also where transactions bear one.
fn with_snapshots(seeds: u64, check: impl Fn(&Subject, u64) -> Result<(), Finding>) {
    for subject in Subject::all() {
        let _named = Named(subject);
        for_each_seed(seeds, |seed| expect_nothing(&subject, check(&subject, seed)));
    }
}
