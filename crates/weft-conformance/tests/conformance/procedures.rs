//! Procedures, which some protocols commit in pieces, beside all other transactions.

use weft::protocol::Protocol;
use weft_conformance::procedures::{self, OperationSet};
use weft_conformance::subject::{Cut, Subject};
use weft_conformance::threads::{Mode, for_each_seed, free_seeds, free_transactions, seeds};
use weft_conformance::verdict::Finding;
use weft_protocols::{DbxPaper, DbxTc, Flaw};

use crate::{every_protocol, expect_nothing};

#[test]
fn small_interleaved_procedures_pass_both_oracles() {
    every_protocol(seeds(240), |subject, seed| {
        procedures::check(subject, Mode::Interleaved(seed), 3, 3, OperationSet::Rows)
    });
}

#[test]
fn small_interleaved_procedures_pass_both_oracles_where_others_read_what_they_insert() {
    every_protocol(seeds(120), |subject, seed| {
        procedures::check(subject, Mode::Interleaved(seed), 3, 3, OperationSet::Entries)
    });
}

#[test]
fn small_interleaved_procedures_with_sums_are_explained_by_serial_orders() {
    every_protocol(seeds(400), |subject, seed| {
        procedures::check(subject, Mode::Interleaved(seed), 3, 3, OperationSet::Sums)
    });
}

#[test]
fn small_interleaved_procedures_with_deferred_sums_are_explained_by_serial_orders() {
    every_protocol(seeds(400), |subject, seed| {
        procedures::check(subject, Mode::Interleaved(seed), 3, 3, OperationSet::Deferral)
    });
}

#[test]
fn interleaved_procedures_are_strictly_serializable() {
    every_protocol(seeds(160), |subject, seed| {
        procedures::check(subject, Mode::Interleaved(seed), 4, 8, OperationSet::Rows)
    });
}

/// Under `dbx:paper`, a transaction scanned a range, did not find a key there, and put an empty record under it. Another one
/// filled the record before the first read it. The scan was still taken for current, and the first saw the row as well.
#[test]
fn an_empty_record_that_another_transaction_fills_is_no_part_of_what_was_scanned() {
    let of_paper = |subject: &&Subject| subject.name == DbxPaper::NAME;
    for subject in Subject::concurrent().iter().filter(of_paper) {
        let mode = Mode::Interleaved(11_598_173_582_807_573_825);
        expect_nothing(subject, procedures::check(subject, mode, 3, 3, OperationSet::Entries));
    }
}

#[test]
fn interleaved_procedures_are_strictly_serializable_where_others_read_what_they_insert() {
    every_protocol(seeds(60), |subject, seed| {
        procedures::check(subject, Mode::Interleaved(seed), 4, 8, OperationSet::Entries)
    });
}

#[test]
fn free_procedures_are_strictly_serializable() {
    every_protocol(free_seeds(3), |subject, seed| {
        let with = [OperationSet::Rows, OperationSet::Entries][(seed % 2) as usize];
        procedures::check(subject, Mode::Free(seed), 5, free_transactions(2000), with)
    });
}

/// Runs the checks above on a protocol with a flaw. Returns the first seed at which one of them finds it.
fn seeds_until_caught(
    flaw: Flaw,
    threads: usize,
    transactions: usize,
    with: OperationSet,
) -> Option<u64> {
    let subject = Subject::flawed(flaw);
    (0..1000).find(|&seed| {
        procedures::check(&subject, Mode::Interleaved(seed), threads, transactions, with).is_err()
    })
}

#[test]
fn pieces_that_should_be_merged_are_found() {
    for (threads, transactions, with) in
        [(3, 3, OperationSet::Rows), (3, 3, OperationSet::Sums), (4, 8, OperationSet::Rows)]
    {
        let caught = seeds_until_caught(Flaw::NothingMerged, threads, transactions, with);
        assert!(caught.is_some(), "{threads} threads, {transactions} transactions, {with:?}");
    }
}

#[test]
fn outsiders_that_miss_deferred_changes_are_found() {
    let caught = seeds_until_caught(Flaw::NothingPublished, 3, 3, OperationSet::Deferral);
    assert!(caught.is_some());
}

#[test]
fn publishers_that_are_not_awaited_are_found() {
    let subject = Subject::flawed(Flaw::PublishersNotAwaited);
    // One seed of some 1,400 finds it, and one of these does so soon.
    let caught = (1_500..20_000).find(|&seed| {
        procedures::check(&subject, Mode::Interleaved(seed), 3, 3, OperationSet::Deferral).is_err()
    });
    assert!(caught.is_some());
}

#[test]
fn outsiders_between_pieces_are_found() {
    for (threads, transactions, with) in
        [(3, 3, OperationSet::Rows), (3, 3, OperationSet::Sums), (4, 8, OperationSet::Rows)]
    {
        let caught = seeds_until_caught(Flaw::GateOpen, threads, transactions, with);
        assert!(caught.is_some(), "{threads} threads, {transactions} transactions, {with:?}");
    }
}

/// Runs small interleaved procedures, with snapshots that are drawn between their pieces.
fn check_eventual(subject: &Subject, seed: u64, with: OperationSet) -> Result<(), Finding> {
    procedures::check_cut(subject, Mode::Interleaved(seed), 3, 3, with, Cut::Eventual)
}

#[test]
fn snapshots_drawn_between_pieces_are_explained_by_serial_orders() {
    for subject in Subject::concurrent().iter().filter(|subject| subject.name == DbxTc::NAME) {
        for with in [OperationSet::Sums, OperationSet::Deferral, OperationSet::Rows] {
            for_each_seed(seeds(1600), |seed| {
                expect_nothing(subject, check_eventual(subject, seed, with));
            });
        }
    }
}

#[test]
fn snapshots_on_which_pieces_are_missing_are_found() {
    for flaw in [Flaw::NotRedone, Flaw::NotUndone] {
        let subject = Subject::flawed(flaw);
        let is_caught = |&seed: &u64| check_eventual(&subject, seed, OperationSet::Sums).is_err();
        assert!((0..10_000).any(|seed| is_caught(&seed)), "{flaw:?}");
    }
}

#[test]
fn columns_that_have_changed_are_found() {
    let caught = seeds_until_caught(Flaw::ColumnsNeglected, 3, 3, OperationSet::Sums);
    assert!(caught.is_some());
}
