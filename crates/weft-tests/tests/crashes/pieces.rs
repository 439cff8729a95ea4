//! Crashes at random moments while procedures commit in pieces. Each procedure survives with all of its pieces or
//! with none, and with everything that it depends on.

use std::ops::AddAssign;
use std::time::Duration;

use weft::column::{ColumnType, ColumnValue, DecodeError};
use weft::durability::{SimulatedDisk, StorageError};
use weft::protocol::Protocol;
use weft::{
    Acknowledge, Database, DurabilityOptions, Error, Failure, Record, Table, Transaction,
    TransactionOptions,
};
use weft_htm::word::{Ordering, Word};
use weft_procedures::chopping::Options;
use weft_procedures::{Execute, Procedure, procedure};
use weft_protocols::{BuilderExt, DbxTc, DbxTcOptions};
use weft_tests::office::{Office, Review, Work};
use weft_tests::{Seed, stress};

use super::concurrent::{Workplace, rounds};
use super::place;

/// An office, in which a writer's additions to the tallies are deferred or not.
struct OfficeDatabase<const DEFERS: bool> {
    database: Database<DbxTc>,
    office: Office,
}

impl<const DEFERS: bool> Workplace for OfficeDatabase<DEFERS> {
    type Protocol = DbxTc;

    fn open(disk: &SimulatedDisk, options: DurabilityOptions, manual: bool) -> Self {
        let place = |builder| place(builder, disk, options, manual);
        let (database, office) =
            if DEFERS { Office::open_deferring(place) } else { Office::open(place) };
        OfficeDatabase { database, office }
    }

    fn database(&self) -> &Database<DbxTc> {
        &self.database
    }

    fn fill(&self) {
        self.office.fill(&self.database);
    }

    fn step(
        &self,
        writer: usize,
        acknowledge: Acknowledge,
        random: &mut fastrand::Rng,
    ) -> Option<u64> {
        if DEFERS && random.u8(..4) == 0 {
            let [one, other] = self.database.execute(&mut Review::new(&self.office)).unwrap();
            assert_eq!(one, other, "additions are published together");
        }
        let mut work = Work::new(&self.office, writer as u32);
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
        let Office { board, tallies, slips, found } = &self.office;
        let seen = self.database.snapshot(|snapshot| {
            let works = snapshot.get(board, &0)?.expect("the board exists").works.clone();
            for id in [0, 1] {
                let sum = snapshot.get(tallies, &id)?.expect("the tally exists").sum;
                let all: u64 = works.iter().sum();
                assert_eq!(sum, all as i64, "{works:?}: {circumstances}");
            }
            let found = snapshot.get(found, &0)?.expect("the row exists").sum;
            assert!(
                found <= works.iter().sum::<u64>() as i64,
                "{found}, {works:?}: {circumstances}"
            );
            for (writer, &count) in works.iter().enumerate() {
                let slips = snapshot.prefix(slips, &(writer as u32));
                let numbers =
                    slips.map(|slip| Ok(slip?.key.1)).collect::<Result<Vec<_>, Error>>()?;
                let expected: Vec<u64> = (1..=count).collect();
                assert_eq!(numbers, expected, "writer {writer}: {circumstances}");
            }
            Ok::<_, Error>(works)
        });
        let metrics = self.database.metrics();
        assert!(metrics.committed < 1000 || metrics.committed_in_pieces > 0, "{metrics:?}");
        assert!(metrics.deferred == 0 || DEFERS, "{metrics:?}");
        assert!(metrics.committed < 1000 || metrics.deferred > 0 || !DEFERS, "{metrics:?}");
        seen.unwrap()
    }
}

#[test]
fn procedures_in_pieces_survive_crashes_as_whole_transactions() {
    rounds::<OfficeDatabase<false>>(&Seed::draw(), 18 * stress());
}

#[test]
fn deferred_changes_survive_crashes_with_their_procedures() {
    rounds::<OfficeDatabase<true>>(&Seed::draw(), 18 * stress());
}

/// A sum whose type refuses additions that were deferred, while [`IS_FULL`] is not 0.
#[derive(Clone, Copy, Debug)]
struct Sum(i64);

static IS_FULL: Word = Word::new(0);

impl AddAssign<i64> for Sum {
    fn add_assign(&mut self, number: i64) {
        self.0 += number;
    }
}

impl ColumnValue for Sum {
    const TYPE: ColumnType = i64::TYPE;

    fn write(&self, output: &mut Vec<u8>) {
        self.0.write(output);
    }

    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        i64::read(input).map(Sum)
    }

    fn add_difference(&self, after: &Self, before: &Self) -> Option<Self> {
        (IS_FULL.load(Ordering::Relaxed) == 0).then(|| Sum(self.0 + after.0 - before.0))
    }
}

#[derive(Clone, Copy, Debug, Record)]
struct Total {
    #[record(key)]
    id: u32,
    sum: Sum,
}

#[derive(Clone, Copy, Debug, Record)]
struct Mark {
    #[record(key)]
    id: u32,
    value: i64,
}

#[derive(Clone, Copy, Debug, Record)]
struct Report {
    #[record(key)]
    id: u32,
    sum: i64,
}

/// Counts in a mark, and adds to a total.
#[procedure(AddTo)]
fn add_to<P: Protocol>(
    totals: &Table<Total>,
    marks: &Table<Mark>,
    tx: &Transaction<'_, P>,
    amount: i64,
) -> Result<(), Error> {
    let before = tx.get(marks, &0)?.expect("it exists").value;
    tx.update(marks, &0, |mark| mark.value = before + 1)?.expect("it exists");
    tx.update(totals, &0, |total| total.sum += amount)?.expect("it exists");
    Ok(())
}

/// Reads a total. Because of this procedure, additions to it can be deferred.
#[procedure(ReadTotal)]
fn read_total<P: Protocol>(
    totals: &Table<Total>,
    reports: &Table<Report>,
    tx: &Transaction<'_, P>,
) -> Result<i64, Error> {
    let sum = tx.get(totals, &0)?.expect("it exists").sum.0;
    tx.upsert(reports, Report { id: 0, sum })?;
    Ok(sum)
}

/// A sum that cannot be made keeps its epoch from becoming durable, and says so. What was durable before stays whole.
#[test]
fn a_deferred_sum_that_cannot_be_made_holds_its_epoch() {
    let disk = SimulatedDisk::new(0);
    let open = || {
        let known = DbxTcOptions::new()
            .procedures([AddTo::<DbxTc>::shape(), ReadTotal::<DbxTc>::shape()])
            .chopping(Options::ALL);
        let builder = Database::builder()
            .protocol::<DbxTc>()
            .table::<Total>()
            .table::<Mark>()
            .table::<Report>()
            .dbx_tc(known);
        // Only callers that wait end epochs.
        let options = DurabilityOptions::new()
            .acknowledge(Acknowledge::Committed)
            .epoch_interval(Duration::from_secs(3600));
        let database = place(builder, &disk, options, false).open().unwrap();
        let tables = (database.table::<Total>().unwrap(), database.table::<Mark>().unwrap());
        (database, tables)
    };
    let (database, (totals, marks)) = open();
    let filled: Result<(), Error> = database.transact(|tx| {
        tx.insert(&totals, Total { id: 0, sum: Sum(0) })?;
        tx.insert(&marks, Mark { id: 0, value: 0 })
    });
    filled.unwrap();
    let add = |amount| database.execute(&mut AddTo::new(&totals, &marks, amount)).unwrap();
    let held = |result: Result<(), Failure>| match result {
        Err(Failure::Storage(StorageError::EpochHeld)) => {}
        other => panic!("{other:?}"),
    };
    add(1);
    database.flush().unwrap();
    IS_FULL.store(1, Ordering::Relaxed);
    add(10);
    assert_eq!(database.metrics().deferred, 2);
    held(database.flush());
    held(database.flush());
    let closure: Result<_, Error> = database.transact(|tx| tx.get(&marks, &0).map(|_| ()));
    let refused = closure.unwrap_err().to_string();
    assert!(refused.contains("does not fit its column"), "{refused}");
    // As soon as the sum can be made, the epoch can end.
    IS_FULL.store(0, Ordering::Relaxed);
    database.flush().unwrap();
    let reports = database.table::<Report>().unwrap();
    assert_eq!(database.execute(&mut ReadTotal::new(&totals, &reports)).unwrap(), 11);
    add(100);
    IS_FULL.store(1, Ordering::Relaxed);
    held(database.close());
    drop((database, totals, marks, reports));
    IS_FULL.store(0, Ordering::Relaxed);
    let (database, (totals, marks)) = open();
    let (sum, count) = database
        .snapshot(|snapshot| {
            let sum = snapshot.get(&totals, &0)?.expect("it exists").sum.0;
            Ok::<_, Error>((sum, snapshot.get(&marks, &0)?.expect("it exists").value))
        })
        .unwrap();
    assert_eq!((sum, count), (11, 2), "the last procedure has left nothing");
}
