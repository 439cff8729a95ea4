//! Invariants that transactions keep and see, and the promise that each of them ends.

use weft_conformance::invariants::{self, Bank, Counted, Indexed, Invariant, OnCall, Ring};
use weft_conformance::starvation;
use weft_conformance::threads::{Mode, stress};

use crate::every_protocol;

fn run(invariant: &dyn Invariant) {
    every_protocol(200 * stress(), |subject, seed| {
        invariants::check(invariant, subject, Mode::Interleaved(seed), 3, 8)
    });
    every_protocol(3 * stress(), |subject, seed| {
        invariants::check(invariant, subject, Mode::Free(seed), 5, 1000)
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
fn rows_are_as_many_as_were_counted() {
    run(&Counted);
}

#[test]
fn indexes_agree_with_their_table() {
    run(&Indexed);
}

#[test]
fn a_long_transaction_gets_through() {
    every_protocol(4 * stress(), |subject, seed| {
        starvation::check(subject, Mode::Fair(seed), 3, 1)
    });
    every_protocol(stress(), |subject, seed| starvation::check(subject, Mode::Free(seed), 4, 5));
}
