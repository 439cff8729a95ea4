//! Procedures that commit in pieces: each is in one transaction of the feed, with all of its pieces.

use std::sync::Arc;

use weft::Database;
use weft::durability::SimulatedDisk;
use weft_changes::{ChangeFeed, ChangeRing, Changes, Position};
use weft_procedures::Execute;
use weft_protocols::DbxTc;
use weft_tests::office::{Board, Found, Office, Slip, Tally, WRITERS, Work};
use weft_tests::stress;

/// Follows the works of all writers. Returns how many transactions of the feed have more than one work.
fn follow(changes: &mut Changes, works: u64) -> u64 {
    let (mut board, mut tallies, mut slips, mut joined) = (None, [None, None], 0, 0);
    while slips < works {
        let transaction = changes.next().unwrap().unwrap();
        let before = slips;
        for change in transaction.changes() {
            if change.is::<Board>() {
                board = change.apply::<Board>(board).unwrap();
            } else if change.is::<Tally>() {
                let tally: &mut Option<Tally> =
                    &mut tallies[change.key::<Tally>().unwrap() as usize];
                *tally = change.apply(tally.take()).unwrap();
            } else if change.is::<Slip>() {
                slips += 1;
            } else {
                assert!(change.is::<Found>(), "filled with the others");
            }
        }
        // No work of which only some pieces were seen.
        let worked: u64 = board.as_ref().unwrap().works.iter().sum();
        assert_eq!(worked, slips, "{transaction:?}");
        for tally in &tallies {
            assert_eq!(tally.unwrap().sum as u64, slips, "{transaction:?}");
        }
        joined += u64::from(slips > before + 1);
    }
    joined
}

fn works_appear_whole(database: &Database<DbxTc>, office: &Office) {
    let works = 40 * stress() as u64;
    office.fill(database);
    let mut changes = database.changes(Position::START).unwrap();
    let all = WRITERS as u64 * works;
    let joined = std::thread::scope(|scope| {
        for writer in 0..WRITERS as u32 {
            scope.spawn(move || {
                for _ in 0..works {
                    database.execute(&mut Work::new(office, writer)).unwrap();
                }
            });
        }
        follow(&mut changes, all)
    });
    let in_pieces = database.metrics().committed_in_pieces;
    println!("{in_pieces} of {all} works in pieces, {joined} transactions of several");
    assert!(in_pieces > 0);
}

#[test]
fn pieces_of_a_procedure_are_one_transaction() {
    let (database, office) = Office::open(|builder| {
        let disk = Arc::new(SimulatedDisk::new(1));
        builder.workers_max(8).directory("/db").backend(disk, false)
    });
    works_appear_whole(&database, &office);
}

#[test]
fn pieces_of_a_procedure_are_one_transaction_of_a_ring() {
    let (database, office) = Office::open(|builder| builder.workers_max(8).change_ring(4 << 20));
    works_appear_whole(&database, &office);
}

/// Two procedures, neither of which comes first on both rows, in one feed transaction: with one worker, a procedure is
/// in a transaction of its own.
#[test]
fn procedures_one_after_the_other_are_apart() {
    let (database, office) = Office::open(|builder| builder.workers_max(8).change_ring(1 << 20));
    office.fill(&database);
    let mut changes = database.changes(Position::START).unwrap();
    for _ in 0..20 {
        database.execute(&mut Work::new(&office, 0)).unwrap();
    }
    assert_eq!(follow(&mut changes, 20), 0);
}
