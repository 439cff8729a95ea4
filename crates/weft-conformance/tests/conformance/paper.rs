//! The DBX of the paper: each mechanism alone is correct, and a flaw in it is found.

use weft_conformance::copies;
use weft_conformance::invariants::{self, Bank, RowCount};
use weft_conformance::random::{self, Size};
use weft_conformance::subject::Subject;
use weft_conformance::threads::Mode;
use weft_conformance::verdict::Finding;
use weft_protocols::{DbxPaperOptions, PaperFlaw};

/// After this many seeds without a finding a check counts as blind.
const SEEDS: u64 = 3000;
/// How many seeds each mechanism must survive alone.
const SEEDS_ALONE: u64 = 12;

type Check = fn(&Subject, u64) -> Result<(), Finding>;

fn histories(subject: &Subject, seed: u64) -> Result<(), Finding> {
    let size = Size { threads: 4, transactions: 6, steps_max: 6, readers: 1 };
    random::check(subject, Mode::Interleaved(seed), size)
}

fn counted_rows(subject: &Subject, seed: u64) -> Result<(), Finding> {
    invariants::check(&RowCount, subject, Mode::Interleaved(seed), 3, 8, 0)
}

fn bank(subject: &Subject, seed: u64) -> Result<(), Finding> {
    invariants::check(&Bank, subject, Mode::Interleaved(seed), 3, 8, 0)
}

/// Returns the paper's protocol with each mechanism alone, and its counterpart with a spinlock.
fn each_alone() -> [DbxPaperOptions; 6] {
    let none = DbxPaperOptions::none;
    [
        none().reads_in_regions(true),
        none().look_ups_in_regions(true),
        none().absent_records(true),
        none().global_fallback(true),
        none().versions_in_region(true),
        none().spinlock(true),
    ]
}

/// A mechanism must not rely on another one, since each can be switched off.
#[test]
fn each_mechanism_is_correct_alone() {
    for options in each_alone() {
        let subject = Subject::paper(options);
        for seed in 0..SEEDS_ALONE {
            for check in [histories, counted_rows, bank] {
                if let Err(finding) = check(&subject, seed) {
                    panic!("{options:?}, seed {seed}: {finding}");
                }
            }
        }
    }
}

fn expect_found(flaw: PaperFlaw, options: DbxPaperOptions, check: Check) {
    let flawed = Subject::paper(options.flawed(flaw));
    let found = (0..SEEDS).find(|&seed| check(&flawed, seed).is_err());
    let Some(found_at) = found else { panic!("{flaw:?} is not found in {SEEDS} seeds") };
    println!("{flaw:?}: found by seed {found_at}");
    if let Err(finding) = check(&Subject::paper(options), found_at) {
        panic!("without {flaw:?}, seed {found_at}: {finding}");
    }
}

#[test]
fn reads_without_their_region_are_found() {
    expect_found(PaperFlaw::UnprotectedReads, DbxPaperOptions::new(), bank);
    expect_found(
        PaperFlaw::UnprotectedReads,
        DbxPaperOptions::none().reads_in_regions(true),
        histories,
    );
}

#[test]
fn empty_records_that_are_not_validated_are_found() {
    let options = DbxPaperOptions::none().absent_records(true);
    expect_found(PaperFlaw::AbsenceNotValidated, options, histories);
    expect_found(PaperFlaw::AbsenceNotValidated, options, counted_rows);
}

#[test]
fn commits_that_fall_back_without_the_lock_are_found() {
    expect_found(PaperFlaw::LockNotTaken, DbxPaperOptions::new(), bank);
    expect_found(PaperFlaw::LockNotTaken, DbxPaperOptions::new(), histories);
}

#[test]
fn versions_that_are_numbered_too_early_are_found() {
    let options = DbxPaperOptions::new();
    expect_found(PaperFlaw::NumberedTooEarly, options, |subject, seed| {
        copies::check(subject, Mode::Interleaved(seed), 2, 2, 4)
    });
}
