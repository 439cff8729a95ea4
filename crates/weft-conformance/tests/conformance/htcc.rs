//! The HTCC of the paper: each mechanism alone is correct, and a flaw in one is found.

use weft_conformance::random::{self, Size};
use weft_conformance::subject::{HotSet, HtccMechanisms, Subject};
use weft_conformance::threads::{Mode, for_each_seed, seeds};
use weft_conformance::verdict::Finding;
use weft_protocols::HtccFlaw;

use crate::expect_nothing;

/// After this many seeds without a finding a flaw counts as missed.
const SEEDS: u64 = 3000;

const SIZE: Size = Size { threads: 4, transactions: 6, steps_max: 6, readers: 0 };

#[test]
fn each_mechanism_alone_is_strictly_serializable() {
    let none = HtccMechanisms::default();
    let alone = [
        HtccMechanisms { binding_locks: true, ..none },
        HtccMechanisms { binding_locks: true, two_phase_flip: true, ..none },
        HtccMechanisms { binding_locks: true, hot: HotSet::All, ..none },
        HtccMechanisms { binding_locks: true, hot: HotSet::HashTable, ..none },
        HtccMechanisms { background: true, ..none },
        HtccMechanisms::ALL,
    ];
    for mechanisms in alone {
        let subject = Subject::htcc_paper(mechanisms);
        for_each_seed(seeds(30), |seed| {
            expect_nothing(&subject, random::check(&subject, Mode::Interleaved(seed), SIZE));
        });
    }
}

fn expect_found(flaw: HtccFlaw, hot: HotSet, size: Size) {
    expect_found_by(random::check, flaw, hot, size);
}

type Check = fn(&Subject, Mode, Size) -> Result<(), Finding>;

fn expect_found_by(check: Check, flaw: HtccFlaw, hot: HotSet, size: Size) {
    let run = |flaw, seed| {
        let subject = Subject::htcc_paper(HtccMechanisms { hot, flaw, ..HtccMechanisms::ALL });
        check(&subject, Mode::Interleaved(seed), size)
    };
    let found = (0..SEEDS).find(|&seed| run(Some(flaw), seed).is_err());
    println!("{flaw:?}: found by seed {found:?}");
    let seed = found.expect("a seed finds the flaw");
    if let Err(finding) = run(None, seed) {
        panic!("without {flaw:?}, seed {seed}: {finding}");
    }
}

#[test]
fn records_that_turn_hot_at_once_are_found() {
    expect_found(HtccFlaw::TurnedAtOnce, HotSet::Contended, SIZE);
}

#[test]
fn a_lone_cold_read_that_is_not_validated_is_found() {
    let short = Size { transactions: 12, steps_max: 2, ..SIZE };
    expect_found_by(random::check_columns, HtccFlaw::LoneReadPassed, HotSet::HashTable, short);
}

#[test]
fn writers_that_share_a_binding_lock_are_found() {
    expect_found(HtccFlaw::WritersShare, HotSet::All, SIZE);
}

#[test]
fn locks_that_a_repair_gives_up_are_found() {
    let many = Size { threads: 5, transactions: 12, steps_max: 4, ..SIZE };
    expect_found(HtccFlaw::KeptUnlocked, HotSet::HashTable, many);
}
