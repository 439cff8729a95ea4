//! The named anomalies under every protocol. `weft_conformance::scripts` has the schedules.

use weft_conformance::schedule::Script;
use weft_conformance::scripts;
use weft_conformance::subject::{NameOnPanic, Subject};

use crate::expect_nothing;

fn run_all(scripts: &[Script]) {
    for subject in Subject::concurrent() {
        let _named = NameOnPanic(subject);
        for script in scripts {
            expect_nothing(&subject, script.check(&subject));
        }
    }
}

#[test]
fn dirty_writes_dirty_reads_and_lost_updates() {
    run_all(&scripts::writes());
}

#[test]
fn read_skew_write_skew_and_long_forks() {
    run_all(&scripts::skews());
}

#[test]
fn phantoms() {
    run_all(&scripts::phantoms());
}

#[test]
fn absent_keys() {
    run_all(&scripts::absences());
}

#[test]
fn stale_reads() {
    run_all(&scripts::real_time());
}

#[test]
fn snapshots() {
    run_all(&scripts::snapshots());
}

#[test]
fn commutative_operations() {
    run_all(&scripts::operations());
}

#[test]
fn operations_without_effect() {
    run_all(&scripts::refusals());
}

#[test]
fn anomalies_between_columns() {
    run_all(&scripts::column_anomalies());
}

/// Transactions that use different columns do not disturb each other under these protocols. Under the others the
/// schedules are harmless.
#[test]
fn separate_columns() {
    run_all(&scripts::separate_columns());
    for subject in Subject::concurrent() {
        let by_columns = ["dbx", "dbx-spin", "silo", "occ", "htcc", "doppel", "dbx-tc", "adaptive"];
        if !by_columns.contains(&subject.name) {
            continue;
        }
        let _named = NameOnPanic(subject);
        for script in scripts::separate_columns() {
            let run = expect_nothing(&subject, script.check(&subject));
            assert!(run.went_through(), "{}: {run:#?}", script.name);
        }
    }
}
