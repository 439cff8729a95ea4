//! Golden histories: one small file for each anomaly and each format, and the report that the checker must
//! give, word for word.
//!
//! `tests/golden/NAME.jsonl` (or `.edn`) is the history, `tests/golden/NAME.txt` the report.

use std::collections::BTreeSet;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use weft_checker::{AnomalyKind, Class, Level, Options, Report, check, format};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn report(path: &Path, level: Level) -> Report {
    let file = fs::File::open(path).expect("the history can be opened");
    let read = format::read(BufReader::new(file), None, &mut |_| {});
    let history = read.unwrap_or_else(|error| panic!("{}: {error}", path.display())).history;
    check(&history, &Options { level, ..Options::default() })
}

fn histories() -> Vec<PathBuf> {
    let entries = fs::read_dir(directory()).expect("there are golden histories");
    let paths = entries.map(|entry| entry.expect("the directory can be read").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end != "txt")).collect();
    paths.sort();
    paths
}

#[test]
fn reports_match_their_golden_files() {
    let mut different = Vec::new();
    for path in histories() {
        let expected = fs::read_to_string(path.with_extension("txt")).unwrap_or_default();
        let found = report(&path, Level::Strict).to_string();
        if found != expected {
            different.push(format!("{}:\n{found}\ninstead of\n{expected}", path.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// The anomaly that each file must show. The words of reports may change, but not this.
#[test]
fn every_anomaly_is_found_and_named() {
    use AnomalyKind::*;
    let expected = [
        ("g0_dirty_write", DirtyWrite, Class::G0),
        ("g1a_aborted_read", AbortedRead, Class::G1a),
        ("g1b_intermediate_read", IntermediateRead, Class::G1b),
        ("g1c_circular_information_flow", CircularInformationFlow, Class::G1c),
        ("otv_observed_transaction_vanishes", ReadSkew, Class::GSingle),
        ("pmp_phantom", Phantom, Class::GSingle),
        ("lost_update", LostUpdate, Class::GSingle),
        ("lost_update_of_an_insert", LostUpdate, Class::GSingle),
        ("g_single_read_skew", ReadSkew, Class::GSingle),
        ("g_single_without_a_name", AntiDependencyCycle, Class::GSingle),
        ("g2_item_write_skew", WriteSkew, Class::G2Item),
        ("g2_item_three_in_a_circle", AntiDependencyCycle, Class::G2Item),
        ("g2_phantom", Phantom, Class::G2),
        ("g2_predicate_cycle", PredicateAntiDependencyCycle, Class::G2),
        ("read_only_anomaly", ReadOnlyAnomaly, Class::G2Item),
        ("long_fork", LongFork, Class::G2Item),
        ("stale_read", StaleRead, Class::RealTime),
        ("stale_absence", StaleRead, Class::RealTime),
        ("future_read", FutureRead, Class::RealTime),
        ("real_time_violation", RealTimeViolation, Class::RealTime),
        ("garbage_read", GarbageRead, Class::Inconsistent),
        ("read_of_an_own_later_write", GarbageRead, Class::Inconsistent),
        ("own_write_not_seen", OwnWriteNotSeen, Class::Inconsistent),
        ("own_row_missing_in_a_scan", OwnWriteNotSeen, Class::Inconsistent),
        ("own_deleted_row_in_a_scan", OwnWriteNotSeen, Class::Inconsistent),
        ("non_repeatable_read", NonRepeatableRead, Class::GSingle),
        ("impossible_absence", ImpossibleAbsence, Class::Inconsistent),
        ("absence_before_an_own_write", ImpossibleAbsence, Class::Inconsistent),
        ("duplicate_version", DuplicateVersion, Class::Inconsistent),
        ("unknown_outcome_seen", WriteSkew, Class::G2Item),
        ("deleted_row_still_scanned", ReadSkew, Class::GSingle),
        ("key_that_came_back", Phantom, Class::GSingle),
        ("append_lost_update", LostUpdate, Class::GSingle),
        ("append_g_single", ReadSkew, Class::GSingle),
        ("append_incompatible_order", IncompatibleOrder, Class::Inconsistent),
        ("append_aborted_in_the_midst", AbortedRead, Class::G1a),
        ("append_duplicate", DuplicateVersion, Class::Inconsistent),
        ("append_interleaved", DirtyWrite, Class::G0),
        ("append_lost_append", StaleRead, Class::RealTime),
        ("append_own_write_not_seen", OwnWriteNotSeen, Class::Inconsistent),
        ("register_lost_update", LostUpdate, Class::G2Item),
        ("register_write_skew", WriteSkew, Class::G2Item),
        ("register_stale_read", StaleRead, Class::RealTime),
    ];
    let serializable =
        ["serializable", "unknown_outcome_unseen", "append_serializable", "register_serializable"];
    let mut names: BTreeSet<String> = serializable.map(str::to_owned).into();
    names.extend(expected.map(|(name, _, _)| name.to_owned()));
    for path in histories() {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(names.remove(&name), "{name} is not in the list above");
        let strict = report(&path, Level::Strict);
        let plain = report(&path, Level::Serializable);
        let Some((_, kind, class)) = expected.iter().find(|(other, _, _)| *other == name) else {
            assert!(strict.is_ok() && plain.is_ok(), "{name}: {strict}");
            continue;
        };
        let first = strict.anomalies.first().unwrap_or_else(|| panic!("{name}: {strict}"));
        assert_eq!((first.kind, first.class), (*kind, *class), "{name}: {strict}");
        assert_eq!(plain.is_ok(), *class == Class::RealTime, "{name}: {plain}");
    }
    assert!(names.is_empty(), "there are no files for {names:?}");
}
