//! Random transactions, recorded and judged by the checker; and histories judged by their values.

use weft::OperationFlaw;
use weft_conformance::random::{self, Size};
use weft_conformance::subject::Subject;
use weft_conformance::threads::{Mode, for_each_seed, free_seeds, free_transactions, seeds};
use weft_conformance::values;
use weft_conformance::verdict::Finding;

use crate::{every_protocol, expect_nothing, with_snapshots};

/// Few transactions, so that each run can be tried in every serial order.
const SMALL: Size = Size { threads: 3, transactions: 2, steps_max: 4, readers: 0 };
const MEDIUM: Size = Size { threads: 4, transactions: 6, steps_max: 6, readers: 0 };
const FREE: Size =
    Size { threads: 5, transactions: free_transactions(2000), steps_max: 6, readers: 0 };

#[test]
fn small_interleaved_histories_pass_both_oracles() {
    every_protocol(seeds(800), |subject, seed| {
        random::check(subject, Mode::Interleaved(seed), SMALL)
    });
}

/// Few rows, so that commits by columns meet commits that matter to them.
#[test]
fn transactions_that_name_columns_are_strictly_serializable() {
    let size = Size { threads: 3, transactions: 3, ..SMALL };
    every_protocol(seeds(1200), |subject, seed| {
        random::check_columns(subject, Mode::Interleaved(seed), size)
    });
}

#[test]
fn interleaved_histories_that_name_columns_are_strictly_serializable() {
    every_protocol(seeds(160), |subject, seed| {
        random::check_columns(subject, Mode::Interleaved(seed), MEDIUM)
    });
}

#[test]
fn free_histories_that_name_columns_are_strictly_serializable() {
    every_protocol(free_seeds(1), |subject, seed| {
        random::check_columns(subject, Mode::Free(seed), FREE)
    });
}

#[test]
fn interleaved_histories_are_strictly_serializable() {
    every_protocol(seeds(320), |subject, seed| {
        random::check(subject, Mode::Interleaved(seed), MEDIUM)
    });
}

/// In rounds of 2,500 transactions. `WEFT_STRESS=100` makes it 100,000 for each protocol, and `WEFT_STRESS=1000` a million.
#[test]
fn free_histories_are_strictly_serializable() {
    every_protocol(free_seeds(2), |subject, seed| random::check(subject, Mode::Free(seed), FREE));
}

#[test]
fn small_interleaved_histories_with_snapshots_pass_both_oracles() {
    let size = Size { threads: 2, transactions: 2, steps_max: 4, readers: 1 };
    with_snapshots(seeds(600), |subject, seed| {
        random::check(subject, Mode::Interleaved(seed), size)
    });
}

#[test]
fn interleaved_histories_with_snapshots_are_strictly_serializable() {
    let size = Size { readers: 2, ..MEDIUM };
    with_snapshots(seeds(200), |subject, seed| {
        random::check(subject, Mode::Interleaved(seed), size)
    });
}

#[test]
fn free_histories_with_snapshots_are_strictly_serializable() {
    let size = Size { threads: 3, readers: 2, ..FREE };
    with_snapshots(free_seeds(1), |subject, seed| random::check(subject, Mode::Free(seed), size));
}

/// A protocol that supports only one thread has serial histories.
#[test]
fn histories_of_one_thread_are_serial() {
    for subject in Subject::all().into_iter().filter(|subject| subject.threads_max == 1) {
        for_each_seed(seeds(20), |seed| {
            expect_nothing(&subject, random::check(&subject, Mode::Free(seed), MEDIUM));
        });
    }
}

#[test]
fn interleaved_values_are_strictly_serializable() {
    every_protocol(seeds(160), |subject, seed| {
        values::check(subject, Mode::Interleaved(seed), 3, 6)
    });
}

#[test]
fn free_values_are_strictly_serializable() {
    every_protocol(free_seeds(1), |subject, seed| {
        values::check(subject, Mode::Free(seed), 5, free_transactions(2000))
    });
}

/// After this many seeds without a finding a flaw counts as missed.
const SEEDS: u64 = 3000;

/// What the oracle that tries serial orders finds, although the checker passes the history.
const UNEXPLAINED: &str = "no serial order explains it, though the checker passes it";

type Check<'a> = dyn Fn(&Subject, Mode) -> Result<(), Finding> + 'a;

/// Runs checks on an engine with a flaw, until one of them finds it by one of these names.
fn expect_found_by(flaw: OperationFlaw, names: &[&str], checks: &[&Check<'_>]) {
    let subject = Subject::flawed_operations(flaw);
    let is_found = |&seed: &u64| {
        checks.iter().any(|check| {
            let found = check(&subject, Mode::Interleaved(seed)).err();
            found.is_some_and(|finding| names.iter().any(|name| finding.names(name)))
        })
    };
    let found_at = (0..SEEDS).find(is_found);
    println!("{flaw:?}: found by seed {found_at:?}");
    assert!(found_at.is_some(), "{flaw:?} is not found in {SEEDS} seeds");
}

fn expect_found(flaw: OperationFlaw, names: &[&str]) {
    let small = |subject: &Subject, mode: Mode| random::check(subject, mode, SMALL);
    let medium = |subject: &Subject, mode: Mode| random::check(subject, mode, MEDIUM);
    expect_found_by(flaw, names, &[&small, &medium]);
}

#[test]
fn absent_keys_that_are_skipped_are_found() {
    expect_found(OperationFlaw::AbsentKeysSkipped, &[UNEXPLAINED]);
}

#[test]
fn last_row_that_is_kept_is_found() {
    expect_found(OperationFlaw::LastRowKept, &[UNEXPLAINED]);
}

#[test]
fn numbers_that_are_not_taken_are_found() {
    expect_found(OperationFlaw::NumbersNotTaken, &["a key was generated twice"]);
}

#[test]
fn page_that_forgets_its_position_is_found() {
    expect_found(OperationFlaw::PositionForgotten, &[UNEXPLAINED]);
}

#[test]
fn run_that_passes_a_refused_key_is_found() {
    expect_found(OperationFlaw::RefusedKeyPassed, &[UNEXPLAINED]);
}

/// Finds a flaw by what transactions that name columns were shown. The history has the versions to which accesses were
/// moved, so the checker passes it.
fn expect_found_by_columns(flaw: OperationFlaw) {
    let size = Size { threads: 3, transactions: 3, ..SMALL };
    let columns = |subject: &Subject, mode: Mode| random::check_columns(subject, mode, size);
    expect_found_by(flaw, &[UNEXPLAINED], &[&columns]);
}

#[test]
fn changed_columns_that_count_as_the_same_are_found() {
    expect_found_by_columns(OperationFlaw::ChangedColumnsPassed);
}

#[test]
fn rows_that_keep_old_columns_are_found() {
    expect_found_by_columns(OperationFlaw::OldColumnsKept);
}

#[test]
fn operations_that_are_applied_again_after_a_read_of_their_result_are_found() {
    expect_found_by_columns(OperationFlaw::OwnReadsForgotten);
}

#[test]
fn operations_that_are_applied_again_to_the_first_row_are_found() {
    expect_found(OperationFlaw::AppliedToFirstRow, &[UNEXPLAINED]);
}

#[test]
fn rows_that_are_copied_before_their_record_is_held_are_found() {
    expect_found(OperationFlaw::CopiedBeforeHeld, &["LostUpdate", "StaleRead"]);
}

#[test]
fn moved_rows_that_open_snapshots_miss_are_found() {
    let size = Size { readers: 2, ..MEDIUM };
    let snapshots = |subject: &Subject, mode: Mode| random::check(subject, mode, size);
    expect_found_by(OperationFlaw::MovedAsNew, &["ImpossibleAbsence", "StaleRead"], &[&snapshots]);
}
