//! Random transactions on rows that expire, with times and serial orders judged together; and flaws of the time that
//! must be found.

use weft::sync::time::TimeFlaw;
use weft_conformance::expiry;
use weft_conformance::subject::Subject;
use weft_conformance::threads::{Mode, seeds};

use crate::with_snapshots;

#[test]
fn times_and_serial_orders_of_interleaved_transactions_agree() {
    with_snapshots(seeds(600), |subject, seed| {
        expiry::check(subject, Mode::Interleaved(seed), 3, seed % 2 == 0)
    });
}

#[test]
fn times_and_serial_orders_of_free_transactions_agree() {
    with_snapshots(seeds(60), |subject, seed| {
        expiry::check(subject, Mode::Free(seed), 3, seed % 2 == 0)
    });
}

fn expect_found(flaw: TimeFlaw) {
    let subject = Subject::flawed_time(flaw);
    let is_found = |&seed: &u64| {
        let found = expiry::check(&subject, Mode::Interleaved(seed), 3, false).err();
        found.is_some_and(|finding| finding.names("no serial order and times explain it"))
    };
    assert!((0..20_000).any(|seed| is_found(&seed)), "{flaw:?}");
}

#[test]
fn end_that_is_not_checked_is_found() {
    expect_found(TimeFlaw::EndNotChecked);
}

#[test]
fn commits_that_are_not_awaited_are_found() {
    expect_found(TimeFlaw::CommitsNotAwaited);
}

#[test]
fn procedure_in_pieces_that_does_not_hold_its_time_is_found() {
    expect_found(TimeFlaw::NotHeld);
}
