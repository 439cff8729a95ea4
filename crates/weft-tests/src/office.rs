//! An office whose writers work with a procedure in four pieces, for tests of what becomes of its pieces. Two of them can be
//! deferred.
#![allow(missing_docs, reason = "the columns and tables of a test")]

use weft::protocol::Protocol;
use weft::{Builder, Database, Error, Record, Table, Transaction, column_of};
use weft_procedures::chopping::{Options, PieceKind};
use weft_procedures::{Procedure, procedure};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};

/// How often each writer has worked, in one row. All writers read and write it.
#[derive(Clone, Debug, Record)]
pub struct Board {
    #[record(key)]
    pub id: u32,
    pub works: Vec<u64>,
}

/// How often all writers have worked.
#[derive(Clone, Copy, Debug, Record)]
pub struct Tally {
    #[record(key)]
    pub id: u32,
    pub sum: i64,
}

/// The record of one work.
#[derive(Clone, Copy, Debug, Record)]
pub struct Slip {
    #[record(key)]
    pub key: (u32, u64),
}

/// What the last review has found.
#[derive(Clone, Copy, Debug, Record)]
pub struct Found {
    #[record(key)]
    pub id: u32,
    pub sum: i64,
}

/// The number of writers.
pub const WRITERS: usize = 3;

/// The tables of the office.
pub struct Office {
    pub board: Table<Board>,
    pub tallies: Table<Tally>,
    pub slips: Table<Slip>,
    pub found: Table<Found>,
}

/// The work of a writer, in four pieces. It yields between them, so that other writers run. Returns how often the
/// writer has worked.
#[procedure(Work)]
pub fn work<P: Protocol>(
    office: &Office,
    tx: &Transaction<'_, P>,
    writer: u32,
) -> Result<u64, Error> {
    let number = tx
        .update(&office.board, &0, |board| {
            let works = &mut board.works[writer as usize];
            *works += 1;
            *works
        })?
        .expect("the board exists");
    std::thread::yield_now();
    tx.add(&office.tallies, &0, column_of!(Tally.sum), 1)?;
    std::thread::yield_now();
    tx.insert(&office.slips, Slip { key: (writer, number) })?;
    std::thread::yield_now();
    tx.add(&office.tallies, &1, column_of!(Tally.sum), 1)?;
    Ok(number)
}

/// Reads both tallies, and writes down what it has found. Because of this procedure, the additions to the tallies can be
/// deferred.
#[procedure(Review)]
pub fn review<P: Protocol>(office: &Office, tx: &Transaction<'_, P>) -> Result<[i64; 2], Error> {
    let one = tx.get(&office.tallies, &0)?.expect("the tally exists").sum;
    let other = tx.get(&office.tallies, &1)?.expect("the tally exists").sum;
    tx.update(&office.found, &0, |found| found.sum = one)?.expect("the row exists");
    Ok([one, other])
}

impl Office {
    /// Opens an office, whose writers work in pieces. `place` says where the log is.
    pub fn open(place: impl FnOnce(Builder<DbxTc>) -> Builder<DbxTc>) -> (Database<DbxTc>, Office) {
        let known = DbxTcOptions::new().procedures([Work::<DbxTc>::shape()]).finest(true);
        Self::open_with(known, place)
    }

    /// As [`Office::open`], where a writer's additions to the tallies are deferred.
    pub fn open_deferring(
        place: impl FnOnce(Builder<DbxTc>) -> Builder<DbxTc>,
    ) -> (Database<DbxTc>, Office) {
        let known = DbxTcOptions::new()
            .procedures([Work::<DbxTc>::shape(), Review::<DbxTc>::shape()])
            .chopping(Options::ALL)
            .finest(true);
        let (database, office) = Self::open_with(known, place);
        let pieces = &database.chopping().procedures[0].pieces;
        let deferred = pieces.iter().filter(|piece| piece.kind == PieceKind::Deferred).count();
        assert_eq!(deferred, 2);
        (database, office)
    }

    fn open_with(
        known: DbxTcOptions,
        place: impl FnOnce(Builder<DbxTc>) -> Builder<DbxTc>,
    ) -> (Database<DbxTc>, Office) {
        let builder = Database::builder()
            .protocol::<DbxTc>()
            .table::<Board>()
            .table::<Tally>()
            .table::<Slip>()
            .table::<Found>()
            .dbx_tc(known);
        let database = place(builder).open().unwrap();
        assert_eq!(database.chopping().procedures[0].pieces.len(), 4);
        let (board, tallies) = (database.table().unwrap(), database.table().unwrap());
        let (slips, found) = (database.table().unwrap(), database.table().unwrap());
        let office = Office { board, tallies, slips, found };
        (database, office)
    }

    /// Inserts the rows that exist before the writers work.
    pub fn fill(&self, database: &Database<DbxTc>) {
        let filled: Result<(), Error> = database.transact(|tx| {
            tx.insert(&self.board, Board { id: 0, works: vec![0; WRITERS] })?;
            tx.insert(&self.found, Found { id: 0, sum: 0 })?;
            (0..2).try_for_each(|id| tx.insert(&self.tallies, Tally { id, sum: 0 }))
        });
        filled.unwrap();
    }
}
