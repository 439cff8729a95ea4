//! The faults that hostile types have found in the engine, or were suspected of finding: a small test each.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use weft::column::{ColumnType, ColumnValue, DecodeError};
use weft::durability::SimulatedDisk;
use weft::encoding::{Key, KeyEncoder};
use weft::operation::{Add, ColumnOf, Max};
use weft::{
    Acknowledge, Database, DurabilityOptions, Error, Failure, Record, Table, Transaction,
    TransactionOptions,
};
use weft_htm::blocking::{self, MutexGuard};
use weft_procedures::chopping::Options;
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure};
use weft_protocols::*;

use crate::hook::{Misbehaved, use_transaction, with_transaction};
use crate::live::{self, Live};

type OnCall = Rc<dyn Fn()>;

thread_local! {
    /// What the drop of a [`Fragile`] row does on this thread.
    static ON_DROP: RefCell<Option<OnCall>> = const { RefCell::new(None) };
    /// What the clone of a fragile row does on this thread.
    static ON_CLONE: RefCell<Option<OnCall>> = const { RefCell::new(None) };
    /// What it does on this thread to encode the key of a fragile row.
    static ON_ENCODE: RefCell<Option<OnCall>> = const { RefCell::new(None) };
    /// What it does on this thread to compare a fragile row with a key.
    static ON_COMPARE: RefCell<Option<OnCall>> = const { RefCell::new(None) };
    /// What it does on this thread to write a [`Stubborn`] column.
    static ON_WRITE: RefCell<Option<OnCall>> = const { RefCell::new(None) };
}

fn call(what: &'static thread::LocalKey<RefCell<Option<OnCall>>>) {
    if let Some(call) = what.with_borrow(Option::clone) {
        call();
    }
}

fn panic_now() {
    if !thread::panicking() {
        resume_unwind(Box::new(Misbehaved));
    }
}

#[derive(Debug, Clone, Copy)]
struct FragileKey(u32);

impl PartialEq for FragileKey {
    fn eq(&self, other: &Self) -> bool {
        call(&ON_COMPARE);
        self.0 == other.0
    }
}

impl Key for FragileKey {
    const WIDTH_BYTES: Option<usize> = Some(4);
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        call(&ON_ENCODE);
        encoder.push(u64::from(self.0), 4);
    }
}

/// A row that owns something, and whose drop does what the test says.
#[derive(Clone, Record)]
#[record(table = "fragile", volatile)]
struct Fragile {
    #[record(key)]
    id: FragileKey,
    value: u64,
    #[allow(dead_code, reason = "it is there to be dropped")]
    owned: Owned,
}

struct Owned(Live);

impl Clone for Owned {
    fn clone(&self) -> Self {
        self.0.check("the clone");
        call(&ON_CLONE);
        Owned(Live::new())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.check("the drop");
        call(&ON_DROP);
    }
}

fn fragile(id: u32, value: u64) -> Fragile {
    Fragile { id: FragileKey(id), value, owned: Owned(Live::new()) }
}

/// Begins a test that counts values. Another must not run at the same time.
fn begin() -> MutexGuard<'static, ()> {
    let one = crate::run::ONE.lock().unwrap_or_else(PoisonError::into_inner);
    live::reset();
    one
}

/// All values were dropped, once each.
fn end() {
    let alive = live::count_alive();
    assert_eq!((live::take_violations(), alive), (Vec::new(), 0));
}

fn open_fragile<P: Protocol>() -> (Database<P>, Table<Fragile>) {
    let database = Database::builder().protocol::<P>().table::<Fragile>().open().unwrap();
    let table = database.table().unwrap();
    (database, table)
}

fn put<P: Protocol>(database: &Database<P>, table: &Table<Fragile>, id: u32, value: u64) {
    database.transact(|tx| tx.upsert(table, fragile(id, value)).map(drop)).unwrap();
}

fn value<P: Protocol>(database: &Database<P>, table: &Table<Fragile>, id: u32) -> Option<u64> {
    let get = |tx: &Transaction<'_, P>| {
        Ok::<_, Error>(tx.get(table, &FragileKey(id))?.map(|row| row.value))
    };
    database.transact(get).unwrap()
}

macro_rules! under_each {
    ($test:ident: $($name:ident $protocol:ident)*) => {
        mod $test {
            $(
                #[test]
                fn $name() {
                    super::$test::<weft_protocols::$protocol>();
                }
            )*
        }
    };
}

under_each!(a_drop_panics_in_a_commit:
    none NoControl dbx Dbx two_phase_locking TwoPhaseLocking timestamp_ordering TimestampOrdering);

/// Fault 2: rows were freed twice. The rows that a commit had installed stayed in the access set when the drop
/// of a row that it had replaced panicked.
fn a_drop_panics_in_a_commit<P: Protocol>() {
    let _one = begin();
    {
        let (database, table) = open_fragile::<P>();
        (1..=3).for_each(|id| put(&database, &table, id, 0));
        ON_DROP.set(Some(Rc::new(panic_now)));
        let committed = database.transact(|tx| {
            (1..=3).try_for_each(|id| {
                tx.update(&table, &FragileKey(id), |row| row.value = 1)?;
                tx.update(&table, &FragileKey(id), |row| row.value = 2).map(drop)
            })
        });
        committed.expect("that a row's drop panics is no concern of the transaction's");
        ON_DROP.set(None);
        assert_eq!([1, 2, 3].map(|id| value(&database, &table, id)), [Some(2); 3]);
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

under_each!(a_drop_panics_in_garbage_collection:
    none NoControl dbx Dbx two_phase_locking TwoPhaseLocking timestamp_ordering TimestampOrdering htcc Htcc);

/// Fault 7: the worker stayed pinned. The next transaction was told that it was nested, and `close` did not return.
fn a_drop_panics_in_garbage_collection<P: Protocol>() {
    let _one = begin();
    {
        let (database, table) = open_fragile::<P>();
        ON_DROP.set(Some(Rc::new(panic_now)));
        for turn in 0..3000 {
            // The test's own row may be dropped, too: there is none under this key.
            let upserted = || database.transact(|tx| tx.upsert(&table, fragile(1, turn)).map(drop));
            catch_unwind(AssertUnwindSafe(upserted))
                .map_err(drop)
                .expect("nothing but garbage is dropped")
                .unwrap();
        }
        ON_DROP.set(None);
        assert!(database.metrics().drops_panicked > 0, "garbage was collected");
        assert_eq!(value(&database, &table, 1), Some(2999));
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

/// A column that cannot always be written.
#[derive(Clone)]
struct Stubborn(u64);

impl ColumnValue for Stubborn {
    const TYPE: ColumnType = ColumnType::U64;
    fn write(&self, output: &mut Vec<u8>) {
        call(&ON_WRITE);
        self.0.write(output);
    }
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Stubborn(u64::read(input)?))
    }
    fn stored_bytes(&self) -> usize {
        8
    }
    fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

#[derive(Clone, Record)]
#[record(table = "stored")]
struct Stored {
    #[record(key)]
    id: u32,
    stubborn: Stubborn,
    text: String,
}

under_each!(a_column_panics_when_it_is_logged: none NoControl dbx Dbx two_phase_locking TwoPhaseLocking
    timestamp_ordering TimestampOrdering);

/// Fault 3: rows were freed twice. The log's entries were encoded after the rows were installed.
fn a_column_panics_when_it_is_logged<P: Protocol>() {
    let _one = begin();
    let disk = Arc::new(SimulatedDisk::new(1));
    let open = || {
        let durability = DurabilityOptions::new().acknowledge(Acknowledge::Committed);
        let builder = Database::builder()
            .protocol::<P>()
            .table::<Stored>()
            .directory("/db")
            .durability(durability);
        builder.backend(Arc::clone(&disk) as _, false).open().unwrap()
    };
    let get = |database: &Database<P>, id: u32| {
        let table = database.table::<Stored>().unwrap();
        let row: Result<_, Error> = database.transact(|tx| Ok(tx.get(&table, &id)?.cloned()));
        row.unwrap().map(|row| (row.stubborn.0, row.text))
    };
    let first = Some((1, "one".to_owned()));
    {
        let database = open();
        let table = database.table::<Stored>().unwrap();
        let row = Stored { id: 1, stubborn: Stubborn(1), text: "one".to_owned() };
        database.transact(|tx| tx.insert(&table, row.clone())).unwrap();
        ON_WRITE.set(Some(Rc::new(panic_now)));
        let written = catch_unwind(AssertUnwindSafe(|| {
            database.transact(|tx| -> Result<(), Error> {
                tx.update(&table, &1, |row| {
                    row.stubborn.0 = 2;
                    row.text = "two".to_owned();
                })?;
                tx.insert(&table, Stored { id: 2, ..row.clone() })
            })
        }));
        ON_WRITE.set(None);
        assert!(written.is_err_and(|panic| panic.is::<Misbehaved>()));
        assert_eq!((get(&database, 1), get(&database, 2)), (first.clone(), None));
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    let database = open();
    assert_eq!((get(&database, 1), get(&database, 2)), (first, None));
}

/// A key that changes when somebody has a hand on it.
#[derive(Clone, Debug)]
struct Fickle(Arc<AtomicU32>);

impl PartialEq for Fickle {
    fn eq(&self, other: &Self) -> bool {
        self.0.load(SeqCst) == other.0.load(SeqCst)
    }
}

impl Key for Fickle {
    const WIDTH_BYTES: Option<usize> = Some(4);
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        // The next time it says something else.
        encoder.push(u64::from(self.0.fetch_add(1, SeqCst)), 4);
    }
}

#[derive(Clone, Record)]
#[record(table = "fickle", volatile)]
struct FickleRow {
    #[record(key)]
    id: Fickle,
    owned: Owned,
}

under_each!(a_key_changes_its_encoding: none NoControl dbx Dbx two_phase_locking TwoPhaseLocking
    timestamp_ordering TimestampOrdering);

/// Fault 4: memory was used after it was freed. A deleted record was freed though the index still led to it,
/// because it was not found under the key that its type said by then.
fn a_key_changes_its_encoding<P: Protocol>() {
    let _one = begin();
    {
        let database = Database::builder().protocol::<P>().table::<FickleRow>().open().unwrap();
        let table = database.table::<FickleRow>().unwrap();
        for _ in 0..3 {
            let work = || {
                for id in 0..40 {
                    let key = |id| Fickle(Arc::new(AtomicU32::new(id)));
                    let row = FickleRow { id: key(id), owned: Owned(Live::new()) };
                    let few = TransactionOptions::new().retries_max(20);
                    let _ =
                        database.transact_with(&few, |tx| tx.upsert(&table, row.clone()).map(drop));
                    let _ =
                        database.transact_with(&few, |tx| tx.delete(&table, &key(id)).map(drop));
                    let _ = database.transact(|tx| {
                        tx.range(&table, ..).for_each(|row| row.unwrap().owned.0.check("a scan"));
                        Ok::<_, Error>(())
                    });
                }
            };
            // To the end of a thread, at which garbage is collected.
            thread::scope(|scope| scope.spawn(work).join().unwrap());
        }
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

/// A key that is encoded as another one when [`SHIFT`] says so.
#[derive(Clone, Debug, PartialEq)]
struct Shifting(u32);

static SHIFT: AtomicU32 = AtomicU32::new(0);

impl Key for Shifting {
    const WIDTH_BYTES: Option<usize> = Some(4);
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        encoder.push(u64::from(self.0 + SHIFT.load(SeqCst)), 4);
    }
}

#[derive(Clone, Record)]
#[record(table = "shifting", volatile)]
struct ShiftingRow {
    #[record(key)]
    id: Shifting,
    owned: Owned,
}

under_each!(a_deleted_row_says_another_key: none NoControl dbx Dbx two_phase_locking TwoPhaseLocking
    timestamp_ordering TimestampOrdering);

/// Fault 4, once more: between the deletion and the collection of garbage all keys change. The records were
/// not found under the new keys, and were freed while the index still led to them.
fn a_deleted_row_says_another_key<P: Protocol>() {
    let _one = begin();
    {
        let database = Database::builder().protocol::<P>().table::<ShiftingRow>().open().unwrap();
        let table = database.table::<ShiftingRow>().unwrap();
        let count = |tx: &Transaction<'_, P>| {
            let mut rows = 0;
            for row in tx.range(&table, ..) {
                row?.owned.0.check("a scan");
                rows += 1;
            }
            Ok::<_, Error>(rows)
        };
        let row = |id| ShiftingRow { id: Shifting(id), owned: Owned(Live::new()) };
        let work = || {
            let insert =
                |tx: &Transaction<'_, P>| (0..40).try_for_each(|id| tx.insert(&table, row(id)));
            database.transact(insert).unwrap();
            database
                .transact(|tx| {
                    (0..40).try_for_each(|id| tx.delete(&table, &Shifting(id)).map(drop))
                })
                .unwrap();
            SHIFT.store(1000, SeqCst);
        };
        // Garbage is collected at the end of a thread: the first leaves it behind, the second unlinks the
        // records, and the third frees them.
        thread::scope(|scope| scope.spawn(work).join().unwrap());
        let look = || {
            let absent =
                database.transact(|tx| Ok::<_, Error>(tx.get(&table, &Shifting(5000))?.is_none()));
            assert!(absent.unwrap());
        };
        (0..2).for_each(|_| thread::scope(|scope| scope.spawn(look).join().unwrap()));
        SHIFT.store(0, SeqCst);
        assert_eq!(database.transact(count).unwrap(), 0);
        assert_eq!(
            database
                .transact(|tx| {
                    (0..40).try_for_each(|id| tx.insert(&table, row(id)))?;
                    count(tx)
                })
                .unwrap(),
            40
        );
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "plain")]
struct PlainRow {
    #[record(key)]
    id: u32,
    text: String,
}

under_each!(a_row_is_read_after_a_change_in_the_same_transaction: none NoControl htm_naive HtmNaive);

/// Fault 5: a segmentation fault. A pointer to a row that the same transaction had changed was used with its
/// flags.
fn a_row_is_read_after_a_change_in_the_same_transaction<P: Protocol>() {
    let _one = begin();
    let database = Database::builder().protocol::<P>().table::<PlainRow>().open().unwrap();
    let table = database.table::<PlainRow>().unwrap();
    let row = |id: u32, text: &str| PlainRow { id, text: text.to_owned() };
    database.transact(|tx| (0..3).try_for_each(|id| tx.insert(&table, row(id, "first")))).unwrap();
    let read = database.transact(|tx| {
        tx.update(&table, &1, |row| row.text = "second".to_owned())?;
        tx.prefetch(&table, [0, 1, 2])?;
        tx.prefetch_for_update(&table, [1])?;
        let scanned: Vec<PlainRow> =
            tx.range(&table, ..).map(|row| row.cloned()).collect::<Result<_, Error>>()?;
        assert!(matches!(
            tx.insert(&table, row(1, "third")),
            Err(Error::Failure(Failure::DuplicateKey { .. }))
        ));
        assert!(tx.upsert(&table, row(1, "fourth"))?);
        Ok::<_, Error>((scanned, tx.get(&table, &1)?.cloned()))
    });
    let (scanned, last) = read.unwrap();
    assert_eq!(scanned, [row(0, "first"), row(1, "second"), row(2, "first")]);
    assert_eq!(last, Some(row(1, "fourth")));
    // Deleted, and looked at while its record is still in the index.
    let deleted = database.transact(|tx| {
        assert!(tx.delete(&table, &1)?);
        tx.prefetch(&table, [0, 1, 2])?;
        tx.prefetch_for_update(&table, [1])?;
        assert_eq!(tx.get(&table, &1)?, None);
        let scanned: Vec<PlainRow> =
            tx.range(&table, ..).map(|row| row.cloned()).collect::<Result<_, Error>>()?;
        assert!(!tx.delete(&table, &1)?);
        tx.insert(&table, row(1, "fifth"))?;
        Ok::<_, Error>((scanned, tx.get(&table, &1)?.cloned()))
    });
    let (scanned, last) = deleted.unwrap();
    assert_eq!(scanned, [row(0, "first"), row(2, "first")]);
    assert_eq!(last, Some(row(1, "fifth")));
}

/// A key that is compared through a pointer.
#[derive(Clone, Debug, PartialEq)]
struct Boxed(Box<u64>);

impl Key for Boxed {
    const WIDTH_BYTES: Option<usize> = Some(8);
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        encoder.push(*self.0, 8);
    }
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "boxed", volatile)]
struct BoxedRow {
    #[record(key)]
    id: Boxed,
}

under_each!(an_announced_row_is_deleted_first: none NoControl htm_naive HtmNaive dbx Dbx);

/// Fault 5, once more: the key of a row that is deleted is compared, through the pointer to it with its flag.
fn an_announced_row_is_deleted_first<P: Protocol>() {
    let _one = begin();
    let database = Database::builder().protocol::<P>().table::<BoxedRow>().open().unwrap();
    let table = database.table::<BoxedRow>().unwrap();
    let id = || Boxed(Box::new(1));
    database.transact(|tx| tx.insert(&table, BoxedRow { id: id() })).unwrap();
    let found = database.transact(|tx| {
        tx.prefetch(&table, [id(), id(), id()])?;
        assert!(tx.delete(&table, &id())?);
        Ok::<_, Error>(tx.get(&table, &id())?.cloned())
    });
    assert_eq!(found.unwrap(), None);
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "counted")]
struct Counted {
    #[record(key)]
    id: u32,
    large: i64,
    small: i8,
}

/// Fault 8: memory of another type was written. Two operations were taken for the same that have the position
/// of a column and the kind in common, but not the type.
#[test]
fn operations_on_a_split_column_by_another_type() {
    let _one = begin();
    // A hidden function lets anybody name a column, and lead to another.
    let large: ColumnOf<Counted, i64> =
        ColumnOf::new("small", |row| &row.large, |row| &mut row.large);
    let small: ColumnOf<Counted, i8> =
        ColumnOf::new("small", |row| &row.small, |row| &mut row.small);
    let phases = PhaseOptions::new().length(Duration::from_secs(3600));
    let database =
        Database::builder().protocol::<Doppel>().table::<Counted>().phases(phases).open().unwrap();
    let table = database.table::<Counted>().unwrap();
    database.transact(|tx| tx.insert(&table, Counted { id: 1, large: 0, small: 0 })).unwrap();
    // A slice of this operation is one byte.
    database.label_split::<_, _, Max<_>>(&table, &1, small).unwrap();
    while !database.metrics().phases.unwrap().is_split {
        database.transact(|tx| tx.max(&table, &1, small, 1)).unwrap();
    }
    database.transact(|tx| tx.max(&table, &1, small, 2)).unwrap();
    // This one would take eight.
    database.transact(|tx| tx.max(&table, &1, large, 0x0102_0304_0506_0708)).unwrap();
    database.transact(|tx| tx.max(&table, &1, small, 3)).unwrap();
    let row = database.transact(|tx| Ok::<_, Error>(tx.get(&table, &1)?.cloned())).unwrap();
    assert_eq!(row, Some(Counted { id: 1, large: 0x0102_0304_0506_0708, small: 3 }));
}

/// Suspected: a snapshot that a row's drop opens misses what workers have gathered of a split row.
#[test]
fn a_drop_opens_a_snapshot_while_rows_are_split() {
    let _one = begin();
    {
        let phases = PhaseOptions::new().length(Duration::from_secs(3600));
        let builder =
            Database::builder().protocol::<Doppel>().table::<Counted>().table::<Fragile>();
        let database = builder.phases(phases).open().unwrap();
        let (counted, table) =
            (database.table::<Counted>().unwrap(), database.table::<Fragile>().unwrap());
        let large = weft::column_of!(Counted.large);
        database.transact(|tx| tx.insert(&counted, Counted { id: 1, large: 0, small: 0 })).unwrap();
        put(&database, &table, 1, 0);
        database.label_split::<_, _, Add<_>>(&counted, &1, large).unwrap();
        let (acknowledged, seen) = (Rc::new(Cell::new(0_i64)), Rc::new(Cell::new(0)));
        let on_drop = {
            let (database, counted) = (database.clone(), counted.clone());
            let (acknowledged, seen) = (Rc::clone(&acknowledged), Rc::clone(&seen));
            move || {
                let snapshot = database.open_snapshot().expect("no transaction is under way");
                let row = snapshot.get(&counted, &1).unwrap().expect("it is there");
                if row.large != acknowledged.get() {
                    live::violation(format!("{} instead of {}", row.large, acknowledged.get()));
                }
                seen.set(seen.get() + 1);
            }
        };
        for turn in 0..4000 {
            database.transact(|tx| tx.add(&counted, &1, large, 1)).unwrap();
            acknowledged.set(acknowledged.get() + 1);
            if turn % 10 == 0 {
                ON_DROP.set(Some(Rc::new(on_drop.clone())));
                put(&database, &table, 1, turn);
                ON_DROP.set(None);
            }
        }
        assert!(database.metrics().phases.unwrap().split_phases > 0, "rows were split");
        // Garbage is dropped when the thread has enough of it.
        ON_DROP.set(Some(Rc::new(on_drop)));
        (0..2000).for_each(|turn| put(&database, &table, 1, turn));
        ON_DROP.set(None);
        assert!(seen.get() > 0, "rows were dropped");
        assert_eq!(database.metrics().drops_panicked, 0);
    }
    end();
}

#[derive(Clone, Record)]
#[record(table = "total")]
struct Total {
    #[record(key)]
    id: u32,
    sum: i64,
}

/// Adds to a total, which is deferred, and replaces a fragile row.
#[procedure(Spend)]
fn spend<P: Protocol>(
    notes: &Table<Counted>,
    totals: &Table<Total>,
    tx: &Transaction<'_, P>,
    id: u32,
    number: i64,
) -> Result<(), Error> {
    let before = tx.get(notes, &id)?.map_or(0, |note| note.large);
    tx.update(notes, &id, |note| note.large = before + 1)?;
    tx.update(totals, &id, |total| total.sum += number)?;
    Ok(())
}

/// Reads a total, and meets [`spend`] nowhere else: so what that adds is deferred.
#[procedure(Audit)]
fn audit<P: Protocol>(
    totals: &Table<Total>,
    others: &Table<PlainRow>,
    tx: &Transaction<'_, P>,
    id: u32,
    number: u32,
) -> Result<i64, Error> {
    let sum = tx.get(totals, &id)?.map_or(0, |total| total.sum);
    tx.insert(others, PlainRow { id: number, text: String::new() })?;
    Ok(sum)
}

/// Suspected: a snapshot that a row's drop opens misses what procedures have deferred.
#[test]
fn a_drop_opens_a_snapshot_while_sums_are_deferred() {
    let _one = begin();
    {
        let options = DbxTcOptions::new()
            .procedures([Spend::<DbxTc>::shape(), Audit::<DbxTc>::shape()])
            .chopping(Options::ALL);
        let builder = Database::builder()
            .protocol::<DbxTc>()
            .table::<Counted>()
            .table::<Total>()
            .table::<PlainRow>()
            .table::<Fragile>();
        let database = builder.dbx_tc(options).open().unwrap();
        let (notes, totals) =
            (database.table::<Counted>().unwrap(), database.table::<Total>().unwrap());
        let table = database.table::<Fragile>().unwrap();
        database.transact(|tx| tx.insert(&notes, Counted { id: 1, large: 0, small: 0 })).unwrap();
        database.transact(|tx| tx.insert(&totals, Total { id: 1, sum: 0 })).unwrap();
        put(&database, &table, 1, 0);
        let (acknowledged, seen) = (Rc::new(Cell::new(0_i64)), Rc::new(Cell::new(0)));
        let on_drop = {
            let (database, totals) = (database.clone(), totals.clone());
            let (acknowledged, seen) = (Rc::clone(&acknowledged), Rc::clone(&seen));
            move || {
                let snapshot = database.open_snapshot().expect("no transaction is under way");
                let row = snapshot.get(&totals, &1).unwrap().expect("it is there");
                // The procedure that has just committed is acknowledged when its rows are dropped.
                if !(acknowledged.get()..=acknowledged.get() + 1).contains(&row.sum) {
                    live::violation(format!("{} instead of {}", row.sum, acknowledged.get()));
                }
                seen.set(seen.get() + 1);
            }
        };
        ON_DROP.set(Some(Rc::new(on_drop)));
        for turn in 0..2000 {
            database.execute(&mut Spend::new(&notes, &totals, 1, 1)).unwrap();
            acknowledged.set(acknowledged.get() + 1);
            put(&database, &table, 1, turn);
        }
        ON_DROP.set(None);
        assert!(seen.get() > 0, "rows were dropped");
        assert!(database.metrics().deferred > 0, "sums were deferred");
        assert_eq!(database.metrics().drops_panicked, 0);
        let others = database.table::<PlainRow>().unwrap();
        database.execute(&mut Audit::new(&totals, &others, 1, 1)).unwrap();
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

/// Suspected: if the drop of a row panics while HTCC repairs a transaction, its writes are undone twice.
#[test]
fn a_drop_panics_in_a_repair() {
    let _one = begin();
    {
        let (database, table) = open_fragile::<Htcc>();
        (1..=2).for_each(|id| put(&database, &table, id, 0));
        let (ask, asked) = mpsc::channel::<()>();
        let (answer, answered) = mpsc::channel::<()>();
        blocking::scope(|scope| {
            let (database, table) = (&database, &table);
            scope.spawn(move || {
                for () in asked {
                    database
                        .transact(|tx| {
                            tx.update(table, &FragileKey(1), |row| row.value += 1).map(drop)
                        })
                        .unwrap();
                    answer.send(()).unwrap();
                }
            });
            ON_DROP.set(Some(Rc::new(panic_now)));
            let attempts = Cell::new(0);
            let committed = database.transact(|tx| {
                let seen = tx.get(table, &FragileKey(1))?.expect("it is there").value;
                tx.update(table, &FragileKey(2), |row| row.value = 100 + seen)?;
                tx.update(table, &FragileKey(2), |row| row.value += 1)?;
                if attempts.replace(attempts.get() + 1) < 2 {
                    ask.send(()).unwrap();
                    answered.recv().unwrap();
                }
                Ok::<_, Error>(seen)
            });
            ON_DROP.set(None);
            drop(ask);
            assert_eq!(committed.unwrap(), 2);
        });
        assert!(database.metrics().repairs.repairs > 0, "the transaction was repaired");
        assert_eq!(
            (value(&database, &table, 1), value(&database, &table, 2)),
            (Some(2), Some(103))
        );
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

under_each!(a_comparison_uses_the_transaction: none NoControl dbx Dbx htcc Htcc doppel Doppel dbx_tc DbxTc
    two_phase_locking TwoPhaseLocking timestamp_ordering TimestampOrdering);

/// Suspected: what a worker remembers of an index is borrowed while the user's code compares keys.
fn a_comparison_uses_the_transaction<P: Protocol>() {
    let _one = begin();
    {
        let (database, table) = open_fragile::<P>();
        (0..40).for_each(|id| put(&database, &table, id, 0));
        let is_nested = Rc::new(Cell::new(false));
        let on_compare = move || {
            if !is_nested.replace(true) {
                use_transaction();
                is_nested.set(false);
            }
        };
        ON_COMPARE.set(Some(Rc::new(on_compare)));
        let written = database.transact(|tx| {
            let elsewhere = Cell::new(0);
            let uses = || {
                let id = elsewhere.replace((elsewhere.get() + 7) % 40);
                // Refused in the middle of some operations, and carried out in others.
                let _ = tx.get(&table, &FragileKey(id));
                let _ = tx.prefetch(&table, [FragileKey(id), FragileKey(39 - id)]);
                let _ = tx.range(&table, ..).filter(|row| row.is_ok()).count();
            };
            with_transaction(&uses, || {
                tx.prefetch(&table, (0..10).map(FragileKey))?;
                for id in (0..40).chain(0..40) {
                    let before = tx.get(&table, &FragileKey(id))?.expect("it is there").value;
                    tx.update(&table, &FragileKey(id), |row| row.value = before + 1)?;
                }
                Ok::<_, Error>(())
            })
        });
        ON_COMPARE.set(None);
        written.unwrap();
        for id in 0..40 {
            assert_eq!(value(&database, &table, id), Some(2));
        }
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

under_each!(a_row_is_used_while_its_conflicts_are_counted: doppel Doppel doppel_locking DoppelLocking);

/// Suspected: a worker's sketch of its conflicts is borrowed while the code of a row's type runs. That code
/// encodes the key of a contended row, compares it, and clones the row for a worker's slice. Each comes back to
/// the transaction and to the database, and sometimes panics.
fn a_row_is_used_while_its_conflicts_are_counted<P: Protocol>() {
    /// More rows than a sketch has entries, so that entries are replaced.
    const ROWS: u32 = 40;
    /// One call in so many comes back; one in so many of those panics.
    const CALLS_PER_USE: u32 = 5;
    const USES_PER_PANIC: u32 = 7;
    let _one = begin();
    {
        // Each operation counts as a conflict, and a phase lasts for a few transactions.
        let mut phases = PhaseOptions::new();
        phases.is_hasty = true;
        let builder = Database::builder().protocol::<P>().table::<Fragile>().phases(phases);
        let database = builder.open().unwrap();
        let table = database.table::<Fragile>().unwrap();
        let sum = weft::column_of!(Fragile.value);
        (0..ROWS).for_each(|id| put(&database, &table, id, 0));
        let (calls, is_nested) = (Rc::new(Cell::new(0_u32)), Rc::new(Cell::new(false)));
        let on_call = {
            let (database, table, calls) = (database.clone(), table.clone(), Rc::clone(&calls));
            move || {
                if is_nested.get() || calls.replace(calls.get() + 1) % CALLS_PER_USE != 0 {
                    return;
                }
                is_nested.set(true);
                let id = FragileKey(calls.get() % ROWS);
                use_transaction();
                let _ = database.transact(|tx| tx.add(&table, &id, sum, 0));
                let _ =
                    database.open_snapshot().map(|snapshot| snapshot.get(&table, &id).map(drop));
                is_nested.set(false);
                if (calls.get() / CALLS_PER_USE).is_multiple_of(USES_PER_PANIC) {
                    panic_now();
                }
            }
        };
        let on_call: OnCall = Rc::new(on_call);
        let hooks = [&ON_CLONE, &ON_ENCODE, &ON_COMPARE];
        hooks.iter().for_each(|hook| hook.set(Some(Rc::clone(&on_call))));
        let (mut committed, mut refused, mut panicked) = ([0_u64; ROWS as usize], 0, 0);
        for turn in 0..3000_u32 {
            // One row is contended more than the others.
            let id = if turn % 2 == 0 { 7 } else { turn / 2 % ROWS };
            let added = catch_unwind(AssertUnwindSafe(|| {
                database.transact(|tx| {
                    let uses = || {
                        let other = FragileKey(calls.get() * 3 % ROWS);
                        let _ = tx.add(&table, &other, sum, 0);
                        let _ = tx.get(&table, &other);
                    };
                    with_transaction(&uses, || tx.add(&table, &FragileKey(id), sum, 1).map(drop))
                })
            }));
            match added {
                Ok(Ok(())) => committed[id as usize] += 1,
                // The code of the row's type has used the row of this very operation.
                Ok(Err(Error::Failure(Failure::NestedWrite { .. }))) => refused += 1,
                Ok(Err(error)) => panic!("{error}"),
                Err(panic) => {
                    assert!(panic.is::<Misbehaved>());
                    panicked += 1;
                }
            }
        }
        hooks.iter().for_each(|hook| hook.set(None));
        let count: u64 = committed.iter().sum();
        assert!(
            panicked > 0 && count > 1000,
            "{count} committed, {refused} refused, {panicked} panicked"
        );
        assert!(database.metrics().phases.unwrap().split_phases > 0, "rows were split");
        for (id, sum) in (0..).zip(committed) {
            assert_eq!(value(&database, &table, id), Some(sum), "row {id}");
        }
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

/// A type that says other index keys of a row when it is deleted made `transact` try again for ever, and keep
/// all other transactions of the database away.
#[test]
fn an_index_key_that_is_not_found_is_a_failure() {
    let _one = begin();
    let database = Database::builder().table::<Moving>().table::<PlainRow>().open().unwrap();
    let table = database.table::<Moving>().unwrap();
    database
        .transact(|tx| {
            tx.insert(&table, Moving { id: 1, group: Fickle(Arc::new(AtomicU32::new(5))) })
        })
        .unwrap();
    let deleted = database.transact(|tx| tx.delete(&table, &1));
    let told = Error::Failure(Failure::InconsistentKeys { table: "moving", index: Some("group") });
    assert_eq!(deleted.unwrap_err().to_string(), told.to_string());
    let id = |tx: &Transaction<'_, Dbx>| Ok::<_, Error>(tx.get(&table, &1)?.map(|row| row.id));
    assert_eq!(database.transact(id).unwrap(), Some(1), "the row is as it was");
    // A closure that goes on all the same cannot commit.
    let committed = catch_unwind(AssertUnwindSafe(|| {
        database.transact(|tx| {
            let _ = tx.delete(&table, &1);
            Ok::<_, Error>(())
        })
    }));
    assert!(committed.is_err());
    database.close_within(Duration::from_secs(1)).unwrap();
}

#[derive(Clone, Record)]
#[record(table = "moving", volatile)]
struct Moving {
    #[record(key)]
    id: u32,
    #[record(index)]
    group: Fickle,
}

fn open_stored() -> (Database<Dbx>, Table<Stored>) {
    let durability = DurabilityOptions::new().acknowledge(Acknowledge::Committed).threads(1);
    let builder = Database::builder().table::<Stored>().directory("/db").durability(durability);
    let database = builder.backend(Arc::new(SimulatedDisk::new(1)), false).open().unwrap();
    let table = database.table::<Stored>().unwrap();
    let row = Stored { id: 1, stubborn: Stubborn(1), text: "one".to_owned() };
    database.transact(|tx| tx.insert(&table, row.clone())).unwrap();
    (database, table)
}

/// A checkpoint waited for itself if the code of a row that it encoded asked for one, or closed the database.
#[test]
fn code_that_a_checkpoint_runs_asks_for_another() {
    let _one = begin();
    let (database, _) = open_stored();
    let told = Rc::new(RefCell::new(Vec::new()));
    let on_write = {
        let (database, told) = (database.clone(), Rc::clone(&told));
        move || {
            let answers = [
                database.checkpoint().err(),
                database.backup("/backup").err(),
                database.close().err(),
                database.close_within(Duration::from_secs(1)).err(),
            ];
            told.borrow_mut().push(answers);
        }
    };
    ON_WRITE.set(Some(Rc::new(on_write)));
    let written = database.checkpoint();
    ON_WRITE.set(None);
    // One thread writes it, and it may be another.
    assert!(
        told.borrow().iter().flatten().all(|answer| *answer == Some(Failure::NestedCheckpoint)),
        "{told:?}"
    );
    assert_eq!(written.unwrap().rows, 1);
    database.checkpoint().unwrap();
    database.close_within(Duration::from_secs(1)).unwrap();
}

/// Closing waited for a checkpoint, whatever the deadline.
#[test]
fn closing_keeps_its_deadline_while_a_checkpoint_is_written() {
    let _one = begin();
    let (database, _) = open_stored();
    let (begun, has_begun) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let may_go = blocking::Mutex::new(may_go);
    blocking::scope(|scope| {
        let database = &database;
        scope.spawn(move || {
            let is_first = AtomicU32::new(0);
            let written = database.checkpoint_with(|_| {
                if is_first.fetch_add(1, SeqCst) == 0 {
                    begun.send(()).unwrap();
                    may_go.lock().unwrap().recv().unwrap();
                }
            });
            written.unwrap();
        });
        has_begun.recv().unwrap();
        let limit = Duration::from_millis(50);
        let closed = database.close_within(limit);
        go.send(()).unwrap();
        assert_eq!(closed, Err(Failure::StillRunning { waited: limit }));
    });
    database.close_within(Duration::from_secs(1)).unwrap();
}

/// The rows that a load had come by stayed in the table, and were not in the log.
#[test]
fn a_load_whose_rows_panic_leaves_the_table_empty() {
    let _one = begin();
    {
        let (database, table) = open_fragile::<Dbx>();
        let rows = (0..5).map(|id| -> Result<Fragile, Error> {
            if id == 3 {
                panic_now();
            }
            Ok(fragile(id, 0))
        });
        let loaded = catch_unwind(AssertUnwindSafe(|| database.load(&table, [rows], |_| ())));
        assert!(loaded.is_err());
        assert_eq!([0, 1, 2].map(|id| value(&database, &table, id)), [None; 3]);
        put(&database, &table, 1, 7);
        assert_eq!(value(&database, &table, 1), Some(7));
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}
