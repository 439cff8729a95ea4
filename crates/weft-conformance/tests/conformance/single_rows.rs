//! Transactions of a single step. Some protocols only make single operations on single rows atomic, and take
//! part in these tests alone.

use weft_conformance::random::{self, Size};
use weft_conformance::subject::{NameOnPanic, Subject};
use weft_conformance::threads::{Mode, for_each_seed, free_seeds, free_transactions, seeds};

use crate::expect_nothing;

/// Each transaction is a single step.
const SMALL: Size = Size { threads: 3, transactions: 3, steps_max: 0, readers: 0 };
const MEDIUM: Size = Size { threads: 4, transactions: 12, steps_max: 0, readers: 0 };
const FREE: Size =
    Size { threads: 5, transactions: free_transactions(2000), steps_max: 0, readers: 0 };

fn run(size: Size, seeds: u64, mode: impl Fn(u64) -> Mode) {
    for subject in Subject::all_for_single_steps() {
        let _named = NameOnPanic(subject);
        for_each_seed(seeds, |seed| {
            expect_nothing(&subject, random::check(&subject, mode(seed), size));
        });
    }
}

#[test]
fn small_interleaved_histories_of_single_steps_pass_both_oracles() {
    run(SMALL, seeds(200), Mode::Interleaved);
}

#[test]
fn interleaved_histories_of_single_steps_are_linearizable() {
    run(MEDIUM, seeds(80), Mode::Interleaved);
}

/// A snapshot may read any number of rows.
#[test]
fn interleaved_histories_of_single_steps_with_snapshots_are_strictly_serializable() {
    run(Size { threads: 3, readers: 2, ..MEDIUM }, seeds(240), Mode::Interleaved);
}

#[test]
fn free_histories_of_single_steps_with_snapshots_are_strictly_serializable() {
    run(Size { threads: 3, readers: 2, ..FREE }, free_seeds(2), Mode::Free);
}

#[test]
fn free_histories_of_single_steps_are_linearizable() {
    run(FREE, free_seeds(2), Mode::Free);
}
