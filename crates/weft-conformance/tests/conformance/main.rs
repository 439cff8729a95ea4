//! The conformance suite: every check on every protocol of the engine's list. The crate's documentation says
//! what is checked, what judges, and how to repeat a failure.
#![cfg(not(any(loom, shuttle)))]

#[cfg(not(weft_sim))]
mod acknowledged_reads;
mod adaptive;
mod canary;
mod doppel;
mod expiry;
#[cfg(weft_sim)]
mod found;
mod histories;
#[cfg(not(weft_sim))]
mod htcc;
mod invariants;
#[cfg(not(weft_sim))]
mod paper;
#[cfg(weft_sim)]
mod planted;
mod procedures;
#[cfg(not(weft_sim))]
mod schedules;
mod single_rows;

use weft_conformance::subject::{NameOnPanic, Subject};
use weft_conformance::threads::for_each_seed;
use weft_conformance::verdict::Finding;

/// Fails the test if something was found under a protocol.
fn expect_nothing<R>(subject: &Subject, result: Result<R, Finding>) -> R {
    match result {
        Ok(value) => value,
        Err(finding) => panic!("protocol {subject}, {finding}"),
    }
}

/// Runs a check of every protocol that supports several threads, with `seeds` seeds.
fn every_protocol(seeds: u64, check: impl Fn(&Subject, u64) -> Result<(), Finding>) {
    for subject in Subject::concurrent() {
        let _named = NameOnPanic(subject);
        for_each_seed(seeds, |seed| expect_nothing(&subject, check(&subject, seed)));
    }
}

/// Runs a check with snapshots of every protocol, with `seeds` seeds. Many threads read snapshots even if the
/// protocol runs transactions on only one.
fn with_snapshots(seeds: u64, check: impl Fn(&Subject, u64) -> Result<(), Finding>) {
    for subject in Subject::all() {
        let _named = NameOnPanic(subject);
        for_each_seed(seeds, |seed| expect_nothing(&subject, check(&subject, seed)));
    }
}
