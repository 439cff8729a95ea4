//! Invariants that transactions keep and see, and the promise that every transaction ends.

use weft_conformance::invariants::{
    self, Bank, Counted, Indexed, Invariant, OnCall, Rewritten, Ring,
};
use weft_conformance::threads::{Mode, free_transactions, seeds};
use weft_conformance::{copies, starvation};

use crate::{every_protocol, with_snapshots};

fn run(invariant: &dyn Invariant) {
    every_protocol(seeds(200), |subject, seed| {
        invariants::check(invariant, subject, Mode::Interleaved(seed), 3, 8, 0)
    });
    every_protocol(seeds(3), |subject, seed| {
        invariants::check(invariant, subject, Mode::Free(seed), 5, free_transactions(1000), 0)
    });
    with_snapshots(seeds(200), |subject, seed| {
        invariants::check(invariant, subject, Mode::Interleaved(seed), 2, 8, 1)
    });
    with_snapshots(seeds(2), |subject, seed| {
        invariants::check(invariant, subject, Mode::Free(seed), 3, free_transactions(1000), 2)
    });
}

#[test]
fn a_bank_keeps_its_money() {
    run(&Bank);
}

#[test]
fn a_ring_stays_a_ring() {
    run(&Ring);
}

#[test]
fn somebody_is_on_call() {
    run(&OnCall);
}

#[test]
fn rewritten_rows_are_seen_when_they_are_finished() {
    run(&Rewritten);
}

#[test]
fn rows_are_as_many_as_were_counted() {
    run(&Counted);
}

#[test]
fn indexes_agree_with_their_table() {
    run(&Indexed);
}

#[test]
fn snapshots_follow_the_order_of_commits() {
    with_snapshots(seeds(1000), |subject, seed| {
        copies::check(subject, Mode::Interleaved(seed), 2, 1, 3)
    });
    with_snapshots(seeds(3), |subject, seed| copies::check(subject, Mode::Free(seed), 3, 2, 2000));
}

#[test]
fn a_long_transaction_gets_through() {
    every_protocol(seeds(4), |subject, seed| starvation::check(subject, Mode::Fair(seed), 3, 1));
    every_protocol(seeds(1), |subject, seed| starvation::check(subject, Mode::Free(seed), 4, 5));
}
