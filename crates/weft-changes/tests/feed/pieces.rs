//! Procedures that commit in pieces, which are transactions of the feed in one epoch.

use std::sync::Arc;

use weft::durability::SimulatedDisk;
use weft::protocol::Protocol;
use weft::{Database, Error, Record, Table, Transaction, column_of};
use weft_changes::{ChangeFeed, Position};
use weft_procedures::{Execute, Procedure, procedure};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};
use weft_tests::stress;

/// How often each writer has worked.
#[derive(Clone, Debug, Record)]
struct Board {
    #[record(key)]
    id: u32,
    works: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Record)]
struct Tally {
    #[record(key)]
    id: u32,
    sum: i64,
}

#[derive(Clone, Copy, Debug, Record)]
struct Slip {
    #[record(key)]
    key: (u32, u64),
}

struct Tables {
    board: Table<Board>,
    tallies: Table<Tally>,
    slips: Table<Slip>,
}

const WRITERS: u32 = 3;

/// Four pieces. It yields between them, so that other writers run.
#[procedure(Work)]
fn work<P: Protocol>(tables: &Tables, tx: &Transaction<'_, P>, writer: u32) -> Result<u64, Error> {
    let number = tx
        .update(&tables.board, &0, |board| {
            let works = &mut board.works[writer as usize];
            *works += 1;
            *works
        })?
        .expect("the board exists");
    std::thread::yield_now();
    tx.add(&tables.tallies, &0, column_of!(Tally.sum), 1)?;
    std::thread::yield_now();
    tx.insert(&tables.slips, Slip { key: (writer, number) })?;
    std::thread::yield_now();
    tx.add(&tables.tallies, &1, column_of!(Tally.sum), 1)?;
    Ok(number)
}

#[test]
fn pieces_of_a_procedure_are_in_one_epoch() {
    let works = 40 * stress() as u64;
    let known = DbxTcOptions::new().procedures([Work::<DbxTc>::shape()]).finest(true);
    let builder = Database::builder()
        .protocol::<DbxTc>()
        .table::<Board>()
        .table::<Tally>()
        .table::<Slip>()
        .dbx_tc(known)
        .workers_max(8)
        .directory("/db");
    let disk = Arc::new(SimulatedDisk::new(1));
    let database = builder.backend(disk, false).open().unwrap();
    assert_eq!(database.chopping().procedures[0].pieces.len(), 4);
    let tables = Tables {
        board: database.table().unwrap(),
        tallies: database.table().unwrap(),
        slips: database.table().unwrap(),
    };
    let founded: Result<(), Error> = database.transact(|tx| {
        tx.insert(&tables.board, Board { id: 0, works: vec![0; WRITERS as usize] })?;
        (0..2).try_for_each(|id| tx.insert(&tables.tallies, Tally { id, sum: 0 }))
    });
    founded.unwrap();
    let mut changes = database.changes(Position::START).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (database, tables) = (&database, &tables);
            scope.spawn(move || {
                for _ in 0..works {
                    database.execute(&mut Work::new(tables, writer)).unwrap();
                }
            });
        }
        let (mut board, mut tallies, mut slips) = (None, [None, None], 0);
        while slips < u64::from(WRITERS) * works {
            let transaction = changes.next().unwrap().unwrap();
            for change in transaction.changes() {
                if change.is::<Board>() {
                    board = change.apply::<Board>(board).unwrap();
                } else if change.is::<Tally>() {
                    let tally: &mut Option<Tally> =
                        &mut tallies[change.key::<Tally>().unwrap() as usize];
                    *tally = change.apply(tally.take()).unwrap();
                } else {
                    slips += 1;
                }
            }
            // Behind the last transaction of an epoch there is no procedure of which only some pieces were seen.
            if !transaction.position().to_string().ends_with("end") {
                continue;
            }
            let worked: u64 = board.as_ref().unwrap().works.iter().sum();
            assert_eq!(worked, slips);
            for tally in &tallies {
                assert_eq!(tally.unwrap().sum as u64, slips);
            }
        }
    });
}
