//! Procedures under DBX-TC, whose commits, rollbacks and snapshots rely on what the analysis finds.

use std::cell::{Cell, RefCell};
use std::thread::{scope, sleep};
use std::time::Duration;

use weft::protocol::Protocol;
use weft::{
    Database, Error, Failure, ManualClock, Record, Table, Timestamp, Transaction, column_of,
    columns_of,
};
use weft_procedures::chopping::Options;
use weft_procedures::{Execute, Procedure, Shape, procedure};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};

use super::Refused;

/// A callback that a procedure calls at numbered points, from 1, at which a test may run other transactions.
type Meanwhile<'a> = &'a (dyn Fn(u32) + 'a);

const NOTHING: Meanwhile<'static> = &|_| ();

#[derive(Clone, Debug, PartialEq, Record)]
struct Tariff {
    #[record(key)]
    id: u32,
    current: u32,
    levels: [(i64, i64); 2],
    total: i64,
    at_switch: i64,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Account {
    #[record(key)]
    id: u32,
    cents: i64,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Total {
    #[record(key)]
    id: u32,
    sum: i64,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Slip {
    #[record(key)]
    number: u32,
    sum: i64,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Raw {
    #[record(key)]
    id: u32,
    r#type: i64,
}

/// The open database of a test. Row 1 of each table exists.
struct Opened {
    database: Database<DbxTc>,
    tariffs: Table<Tariff>,
    accounts: Table<Account>,
    totals: Table<Total>,
    slips: Table<Slip>,
}

fn open(options: DbxTcOptions) -> Opened {
    let clock = ManualClock::new(Timestamp::from_millis(1_000));
    let builder = Database::builder().protocol::<DbxTc>().clock(&clock).dbx_tc(options);
    let builder = builder.table::<Tariff>().table::<Account>().table::<Total>().table::<Slip>();
    let database = builder.open().expect("opens");
    let opened = Opened {
        tariffs: database.table().expect("the table is registered"),
        accounts: database.table().expect("the table is registered"),
        totals: database.table().expect("the table is registered"),
        slips: database.table().expect("the table is registered"),
        database,
    };
    let levels = [(10, 0), (20, 0)];
    let tariff = Tariff { id: 1, current: 0, levels, total: 0, at_switch: 0 };
    let filled: Result<(), Error> = opened.database.transact(|tx| {
        tx.insert(&opened.tariffs, tariff.clone())?;
        tx.insert(&opened.accounts, Account { id: 1, cents: 100 })?;
        tx.insert(&opened.totals, Total { id: 1, sum: 0 })?;
        tx.insert(&opened.slips, Slip { number: 1, sum: 0 })
    });
    filled.expect("fills");
    opened
}

fn known(procedures: impl IntoIterator<Item = &'static Shape>) -> DbxTcOptions {
    DbxTcOptions::new().procedures(procedures)
}

/// Returns a callback that acts at a point of a procedure, but only the first time.
fn once(at: u32, act: impl Fn()) -> impl Fn(u32) {
    let has_acted = Cell::new(false);
    move |point| {
        if point == at && !has_acted.replace(true) {
            act();
        }
    }
}

/// Adds the present level to the total.
#[procedure(Buy)]
fn buy<P: Protocol>(
    tariffs: &Table<Tariff>,
    tx: &Transaction<'_, P>,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    tx.update(tariffs, &1, |tariff| tariff.total += tariff.levels[tariff.current as usize].0)?;
    meanwhile(1);
    Ok(())
}

/// Changes the level, and notes the total.
#[procedure(Switch)]
fn switch<P: Protocol>(tariffs: &Table<Tariff>, tx: &Transaction<'_, P>) -> Result<(), Error> {
    tx.update(tariffs, &1, |tariff| {
        tariff.current = 1;
        tariff.at_switch = tariff.total;
    })?;
    Ok(())
}

/// Reads the present level in other ways.
#[procedure(ReadLevels)]
fn read_levels<P: Protocol>(
    tariffs: &Table<Tariff>,
    tx: &Transaction<'_, P>,
) -> Result<i64, Error> {
    tx.update_columns(
        tariffs,
        &1,
        columns_of!(Tariff.{total, levels, current}),
        |(total, levels, current)| *total += levels[*current as usize].0,
    )?;
    let row = tx.get(tariffs, &1)?.expect("the tariff exists");
    Ok(row.levels[row.current as usize].0)
}

/// Fault: a column that was read in an index, under a field, was not noted as read. So a commit by columns went on
/// although that column had changed.
#[test]
fn columns_in_indexes_under_fields_are_read() {
    assert_eq!(Buy::<DbxTc>::shape().steps[0].reads, Some(&["current", "levels", "total"][..]));
    let reads: Vec<_> = ReadLevels::<DbxTc>::shape().steps.iter().map(|step| step.reads).collect();
    assert_eq!(reads, [Some(&["current", "levels", "total"][..]), Some(&["current", "levels"])]);

    let procedures = [Buy::<DbxTc>::shape(), Switch::<DbxTc>::shape()];
    let opened = &open(known(procedures).eventual_snapshots(true));
    let switch = once(1, || {
        scope(|scope| {
            let switch = || opened.database.execute(&mut Switch::new(&opened.tariffs));
            scope.spawn(switch).join().expect("does not panic").expect("commits");
        });
    });
    opened.database.execute(&mut Buy::new(&opened.tariffs, &switch)).expect("commits");
    let row = opened.database.transact(|tx| {
        Ok::<_, Error>(tx.get(&opened.tariffs, &1)?.expect("the tariff exists").clone())
    });
    let row = row.expect("is read");
    let serial = [(10, 10), (20, 0)];
    assert!(serial.contains(&(row.total, row.at_switch)), "{row:?}");
}

/// Takes from an account, and counts that. Fails afterwards if there was too little.
#[procedure(Withdraw)]
fn withdraw<P: Protocol>(
    accounts: &Table<Account>,
    totals: &Table<Total>,
    tx: &Transaction<'_, P>,
    cents: i64,
) -> Result<(), Refused> {
    let left = tx.update(accounts, &1, |account| {
        account.cents -= cents;
        account.cents
    })?;
    tx.update(totals, &1, |total| total.sum += 1)?;
    let checked = if left < Some(0) { Err(Refused::TooLarge) } else { Ok(()) };
    checked?;
    Ok(())
}

/// Fault: the `?` on a variable was not seen as a rollback, so the first piece had committed before it.
#[test]
fn procedure_that_returns_its_own_result_leaves_no_change() {
    let opened = open(known([Withdraw::<DbxTc>::shape()]).finest(true));
    let mut withdraw = Withdraw::new(&opened.accounts, &opened.totals, 200);
    assert_eq!(opened.database.execute(&mut withdraw), Err(Refused::TooLarge));
    let left: Result<_, Error> = opened.database.transact(|tx| {
        let cents = tx.get(&opened.accounts, &1)?.expect("the account exists").cents;
        Ok((cents, tx.get(&opened.totals, &1)?.expect("the total exists").sum))
    });
    assert_eq!(left.expect("is read"), (100, 0));
}

/// Inserts a row and changes it.
#[procedure(ChangeRaw)]
fn change_raw<P: Protocol>(rows: &Table<Raw>, tx: &Transaction<'_, P>) -> Result<i64, Error> {
    tx.insert(rows, Raw { id: 5, r#type: 1 })?;
    tx.update(rows, &5, |row| row.r#type += 1)?;
    let row = tx.get(rows, &5)?.expect("the row was inserted");
    Ok(row.r#type)
}

/// Fault: a column whose name is a raw identifier had another name in the shape than in the table, and the execution
/// panicked.
#[test]
fn column_with_a_raw_identifier_is_found() {
    let shape = ChangeRaw::<DbxTc>::shape();
    assert_eq!(shape.steps[1].writes, Some(&["type"][..]));
    assert_eq!(shape.steps[2].reads, Some(&["type"][..]));
    assert_eq!(shape.steps[0].columns.last().map(|(name, _)| *name), Some("type"));
    let database = Database::builder().protocol::<DbxTc>().table::<Raw>();
    let database = database.dbx_tc(known([shape]).eventual_snapshots(true)).open().expect("opens");
    let rows = database.table::<Raw>().expect("the table is registered");
    assert_eq!(database.execute(&mut ChangeRaw::new(&rows)).expect("commits"), 2);
    database.transact(|tx| tx.add(&rows, &5, column_of!(Raw.r#type), 1)).expect("commits");
}

/// Pays into an account, and adds the amount to the total, which is deferred.
#[procedure(Pay)]
fn pay<P: Protocol>(
    accounts: &Table<Account>,
    totals: &Table<Total>,
    tx: &Transaction<'_, P>,
    cents: i64,
) -> Result<i64, Error> {
    let before = tx.get(accounts, &1)?.expect("the account exists").cents;
    tx.update(accounts, &1, |account| account.cents = before + cents)?;
    tx.update(totals, &1, |total| total.sum += cents)?;
    Ok(before)
}

/// Reads the total, and inserts a slip with it.
#[procedure(Review)]
fn review<P: Protocol>(
    totals: &Table<Total>,
    slips: &Table<Slip>,
    tx: &Transaction<'_, P>,
    number: u32,
) -> Result<i64, Error> {
    let sum = tx.get(totals, &1)?.expect("the total exists").sum;
    tx.insert(slips, Slip { number, sum })?;
    Ok(sum)
}

/// Changes a tariff, in one piece.
#[procedure(ChangeLevel)]
fn change_level<P: Protocol>(
    tariffs: &Table<Tariff>,
    tx: &Transaction<'_, P>,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    tx.update(tariffs, &1, |tariff| tariff.current = 1)?;
    meanwhile(1);
    Ok(())
}

/// Fault: a snapshot that a procedure opened while it ran as one piece missed what others had deferred in the meantime.
#[test]
fn snapshot_in_a_procedure_of_one_piece_misses_no_deferred_change() {
    let procedures =
        [Pay::<DbxTc>::shape(), Review::<DbxTc>::shape(), ChangeLevel::<DbxTc>::shape()];
    for is_eventual in [false, true] {
        let options = known(procedures).chopping(Options::ALL).eventual_snapshots(is_eventual);
        let opened = &open(options);
        let look = once(1, || {
            scope(|scope| {
                let mut pay = Pay::new(&opened.accounts, &opened.totals, 10);
                let pay = move || opened.database.execute(&mut pay);
                scope.spawn(pay).join().expect("does not panic").expect("commits");
            });
            assert_eq!(opened.database.metrics().deferred, 1);
            match opened.database.open_snapshot() {
                Ok(snapshot) => {
                    let account = snapshot.get(&opened.accounts, &1).expect("reads");
                    let total = snapshot.get(&opened.totals, &1).expect("reads");
                    let seen = (account.map(|it| it.cents), total.map(|it| it.sum));
                    assert_eq!(seen, (Some(110), Some(10)));
                }
                Err(failure) => assert!(matches!(failure, Failure::NestedTransaction)),
            }
        });
        let mut change = ChangeLevel::new(&opened.tariffs, &look);
        opened.database.execute(&mut change).expect("commits");
        let snapshot = opened.database.open_snapshot().expect("opens");
        let total = snapshot.get(&opened.totals, &1).expect("reads");
        assert_eq!(total.map(|it| it.sum), Some(10), "the deferred change is not lost");
    }
}

/// Counts at the total, and then reads the accounts: two pieces, of which the second conflicts with others. Asks for the
/// time.
#[procedure(CountAndRead)]
fn count_and_read<P: Protocol>(
    accounts: &Table<Account>,
    totals: &Table<Total>,
    tx: &Transaction<'_, P>,
    meanwhile: Meanwhile<'_>,
) -> Result<(i64, Timestamp), Error> {
    tx.update(totals, &1, |total| total.sum += 1)?;
    // The first piece commits here. The rows are read below.
    let rows = tx.range(accounts, ..);
    meanwhile(1);
    let mut cents = 0;
    for row in rows {
        cents += row?.cents;
    }
    Ok((cents, tx.now()))
}

/// Changes an account.
#[procedure(SetCents)]
fn set_cents<P: Protocol>(accounts: &Table<Account>, tx: &Transaction<'_, P>) -> Result<(), Error> {
    tx.update(accounts, &1, |account| account.cents = 7)?;
    Ok(())
}

/// Fault: while a procedure held the time, a conflicting piece that only read got the number of the piece before it. A
/// snapshot between the two showed the first piece without what the second one had read.
#[test]
fn conflicting_piece_that_reads_has_its_own_place_while_the_time_is_held() {
    let procedures = [CountAndRead::<DbxTc>::shape(), SetCents::<DbxTc>::shape()];
    let opened = &open(known(procedures).finest(true).eventual_snapshots(true));
    assert_eq!(opened.database.chopping().procedures[0].pieces.len(), 2);
    let (read, seen) = scope(|scope| {
        let opening = RefCell::new(None);
        // After the first piece, a snapshot is drawn. Then the account changes, and the second piece reads it.
        let meanwhile = once(1, || {
            let seen = || {
                let snapshot = opened.database.open_snapshot().expect("opens");
                let account = snapshot.get(&opened.accounts, &1).expect("reads");
                let total = snapshot.get(&opened.totals, &1).expect("reads");
                (account.expect("is there").cents, total.expect("is there").sum)
            };
            opening.replace(Some(scope.spawn(seen)));
            // The snapshot waits for the procedure, so the test cannot wait for the snapshot. If it is drawn late, the
            // test finds nothing.
            sleep(Duration::from_millis(100));
            let set = || opened.database.execute(&mut SetCents::new(&opened.accounts));
            scope.spawn(set).join().expect("does not panic").expect("commits");
        });
        let mut count = CountAndRead::new(&opened.accounts, &opened.totals, &meanwhile);
        let read = opened.database.execute(&mut count).expect("commits");
        let opening = opening.take().expect("a snapshot was opened");
        (read, opening.join().expect("does not panic"))
    });
    assert_eq!(read.0, 7);
    assert_ne!(seen, (100, 1), "the snapshot shows the procedure, but not what it has read");
    let mut again = CountAndRead::new(&opened.accounts, &opened.totals, NOTHING);
    assert_eq!(opened.database.execute(&mut again).expect("commits").0, 7);
}
