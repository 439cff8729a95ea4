//! Invariants that transactions keep and see, and the promise that every transaction ends.

use weft_conformance::invariants::{
    self, Bank, IndexEntries, Invariant, OnCall, Queue, Ring, RowCount, RowRewrites,
};
use weft_conformance::threads::{Mode, free_seeds, free_transactions, seeds};
use weft_conformance::{copies, starvation};

use crate::{every_protocol, with_snapshots};

fn run(invariant: &dyn Invariant) {
    every_protocol(seeds(80), |subject, seed| {
        invariants::check(invariant, subject, Mode::Interleaved(seed), 3, 8, 0)
    });
    every_protocol(free_seeds(1), |subject, seed| {
        invariants::check(invariant, subject, Mode::Free(seed), 5, free_transactions(1000), 0)
    });
    with_snapshots(seeds(80), |subject, seed| {
        invariants::check(invariant, subject, Mode::Interleaved(seed), 2, 8, 1)
    });
    with_snapshots(free_seeds(1), |subject, seed| {
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
fn at_least_one_is_on_call() {
    run(&OnCall);
}

#[test]
fn rewritten_rows_are_seen_only_when_finished() {
    run(&RowRewrites);
}

#[test]
fn row_counts_are_exact() {
    run(&RowCount);
}

#[test]
fn a_queue_is_taken_in_order() {
    run(&Queue);
}

#[test]
fn indexes_agree_with_their_table() {
    run(&IndexEntries);
}

#[test]
fn snapshots_follow_the_order_of_commits() {
    with_snapshots(seeds(400), |subject, seed| {
        copies::check(subject, Mode::Interleaved(seed), 2, 1, 3)
    });
    with_snapshots(free_seeds(1), |subject, seed| {
        copies::check(subject, Mode::Free(seed), 3, 2, 500)
    });
}

#[test]
fn long_transaction_commits_in_the_end() {
    every_protocol(seeds(2), |subject, seed| starvation::check(subject, Mode::Fair(seed), 3, 1));
    every_protocol(seeds(1), |subject, seed| starvation::check(subject, Mode::Free(seed), 4, 5));
}
