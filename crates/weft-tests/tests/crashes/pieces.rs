//! Crashes at random moments while procedures commit in pieces. Each procedure survives with all of its pieces or
//! with none, and with everything that it depends on.

use weft::durability::SimulatedDisk;
use weft::protocol::Protocol;
use weft::{
    Acknowledge, Database, DurabilityOptions, Error, Record, Table, Transaction,
    TransactionOptions, column_of,
};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};

use super::concurrent::{Workplace, rounds};
use super::place;
use weft_tests::{Seed, stress};

/// The number of transactions of each writer, in one row. All writers read and write it.
#[derive(Clone, Debug, Record)]
struct Board {
    #[record(key)]
    id: u32,
    transactions: Vec<u64>,
}

/// The number of all transactions.
#[derive(Clone, Copy, Debug, Record)]
struct Tally {
    #[record(key)]
    id: u32,
    sum: i64,
}

/// The record of one transaction.
#[derive(Clone, Copy, Debug, Record)]
struct Slip {
    #[record(key)]
    key: (u32, u64),
}

const WRITERS: usize = 3;

struct Tables {
    board: Table<Board>,
    tallies: Table<Tally>,
    slips: Table<Slip>,
}

/// A transaction of a writer, in four pieces. It yields between them, so that other writers run.
#[procedure(Work)]
fn work<P: Protocol>(tables: &Tables, tx: &Transaction<'_, P>, writer: u32) -> Result<u64, Error> {
    let number = tx
        .update(&tables.board, &0, |board| {
            let transactions = &mut board.transactions[writer as usize];
            *transactions += 1;
            *transactions
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

struct Office {
    database: Database<DbxTc>,
    tables: Tables,
}

impl Workplace for Office {
    type Protocol = DbxTc;

    fn open(disk: &SimulatedDisk, options: DurabilityOptions, manual: bool) -> Self {
        let known = DbxTcOptions::new().procedures([Work::<DbxTc>::shape()]).finest(true);
        let builder = Database::builder()
            .protocol::<DbxTc>()
            .table::<Board>()
            .table::<Tally>()
            .table::<Slip>();
        let database = place(builder.dbx_tc(known), disk, options, manual).open().unwrap();
        assert_eq!(database.chopping().procedures[0].pieces.len(), 4);
        let (board, tallies) = (database.table().unwrap(), database.table().unwrap());
        let tables = Tables { board, tallies, slips: database.table().unwrap() };
        Office { database, tables }
    }

    fn database(&self) -> &Database<DbxTc> {
        &self.database
    }

    fn fill(&self) {
        let filled = self.database.transact(|tx| {
            tx.insert(&self.tables.board, Board { id: 0, transactions: vec![0; WRITERS] })?;
            [0, 1]
                .into_iter()
                .try_for_each(|id| tx.insert(&self.tables.tallies, Tally { id, sum: 0 }))
        });
        filled.map_err(|error: Error| error).unwrap();
    }

    fn step(
        &self,
        writer: usize,
        acknowledge: Acknowledge,
        random: &mut fastrand::Rng,
    ) -> Option<u64> {
        let mut work = Work::new(&self.tables, writer as u32);
        if writer > 0 && acknowledge == Acknowledge::Durable {
            return Some(self.database.execute(&mut work).unwrap());
        }
        let options = TransactionOptions::new();
        let (number, token) = self.database.execute_with_token(&options, &mut work).unwrap();
        let waits = writer == 0 || random.u8(..8) == 0;
        waits.then(|| {
            self.database.wait_durable(token).unwrap();
            number
        })
    }

    fn check(&self, circumstances: &str) -> Vec<u64> {
        let Tables { board, tallies, slips } = &self.tables;
        let seen = self.database.snapshot(|snapshot| {
            let transactions =
                snapshot.get(board, &0)?.expect("the board exists").transactions.clone();
            for id in [0, 1] {
                let sum = snapshot.get(tallies, &id)?.expect("the tally exists").sum;
                let all: u64 = transactions.iter().sum();
                assert_eq!(sum, all as i64, "{transactions:?}: {circumstances}");
            }
            for (writer, &count) in transactions.iter().enumerate() {
                let slips = snapshot.prefix(slips, &(writer as u32));
                let numbers =
                    slips.map(|slip| Ok(slip?.key.1)).collect::<Result<Vec<_>, Error>>()?;
                let expected: Vec<u64> = (1..=count).collect();
                assert_eq!(numbers, expected, "writer {writer}: {circumstances}");
            }
            Ok::<_, Error>(transactions)
        });
        let metrics = self.database.metrics();
        assert!(metrics.committed < 1000 || metrics.committed_in_pieces > 0, "{metrics:?}");
        seen.unwrap()
    }
}

#[test]
fn procedures_in_pieces_survive_crashes_as_whole_transactions() {
    rounds::<Office>(&Seed::draw(), 18 * stress());
}
