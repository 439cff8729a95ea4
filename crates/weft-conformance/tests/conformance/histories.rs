//! Random transactions, recorded and judged by the checker; and histories judged by their values.

use weft_conformance::random::{self, Size};
use weft_conformance::subject::Subject;
use weft_conformance::threads::{Mode, stress};
use weft_conformance::values;
use weft_htm::interleave::for_each_seed;

use crate::{every_protocol, expect_nothing, with_snapshots};

/// Few transactions, each run tried in every serial order.
const SMALL: Size = Size { threads: 3, transactions: 2, steps_max: 4, readers: 0 };
const MEDIUM: Size = Size { threads: 4, transactions: 6, steps_max: 6, readers: 0 };
const FREE: Size = Size { threads: 5, transactions: 2000, steps_max: 6, readers: 0 };

#[test]
fn small_interleaved_histories_pass_both_oracles() {
    every_protocol(2000 * stress(), |subject, seed| {
        random::check(subject, Mode::Interleaved(seed), SMALL)
    });
}

#[test]
fn interleaved_histories_are_strictly_serializable() {
    every_protocol(800 * stress(), |subject, seed| {
        random::check(subject, Mode::Interleaved(seed), MEDIUM)
    });
}

/// In rounds of 10,000 transactions; `WEFT_STRESS=10` makes it a million for each protocol.
#[test]
fn free_histories_are_strictly_serializable() {
    every_protocol(10 * stress(), |subject, seed| random::check(subject, Mode::Free(seed), FREE));
}

#[test]
fn small_interleaved_histories_with_snapshots_pass_both_oracles() {
    let size = Size { threads: 2, transactions: 2, steps_max: 4, readers: 1 };
    with_snapshots(1500 * stress(), |subject, seed| {
        random::check(subject, Mode::Interleaved(seed), size)
    });
}

#[test]
fn interleaved_histories_with_snapshots_are_strictly_serializable() {
    let size = Size { readers: 2, ..MEDIUM };
    with_snapshots(500 * stress(), |subject, seed| {
        random::check(subject, Mode::Interleaved(seed), size)
    });
}

#[test]
fn free_histories_with_snapshots_are_strictly_serializable() {
    let size = Size { threads: 3, readers: 2, ..FREE };
    with_snapshots(5 * stress(), |subject, seed| random::check(subject, Mode::Free(seed), size));
}

/// A protocol that bears one thread has serial histories.
#[test]
fn histories_of_one_thread_are_serial() {
    for subject in Subject::all().iter().filter(|subject| subject.threads_max == 1) {
        for_each_seed(50 * stress(), |seed| {
            expect_nothing(subject, random::check(subject, Mode::Free(seed), MEDIUM));
        });
    }
}

#[test]
fn interleaved_values_are_strictly_serializable() {
    every_protocol(400 * stress(), |subject, seed| {
        values::check(subject, Mode::Interleaved(seed), 3, 6)
    });
}

#[test]
fn free_values_are_strictly_serializable() {
    every_protocol(3 * stress(), |subject, seed| values::check(subject, Mode::Free(seed), 5, 2000));
}
