//! A small test for each fault that hostile types have found in the engine, and for each suspected fault.

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
    /// Runs on this thread whenever a [`Fragile`] row is dropped.
    static ON_DROP: RefCell<Option<OnCall>> = const { RefCell::new(None) };
    /// Runs on this thread whenever a fragile row is cloned.
    static ON_CLONE: RefCell<Option<OnCall>> = const { RefCell::new(None) };
    /// Runs on this thread whenever the key of a fragile row is encoded.
    static ON_ENCODE: RefCell<Option<OnCall>> = const { RefCell::new(None) };
    /// Runs on this thread whenever a fragile row is compared with a key.
    static ON_COMPARE: RefCell<Option<OnCall>> = const { RefCell::new(None) };
    /// Runs on this thread whenever a [`Stubborn`] column is written.
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

/// A row that owns a value, and whose drop runs [`ON_DROP`].
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

/// Begins a test that counts live values. It holds a lock, because another such test must not run at the same time.
fn begin() -> MutexGuard<'static, ()> {
    let one = crate::run::ONE.lock().unwrap_or_else(PoisonError::into_inner);
    live::reset();
    one
}

/// Checks that every value was dropped exactly once.
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

under_each!(commit_survives_a_panicking_drop:
    none NoControl dbx Dbx two_phase_locking TwoPhaseLocking timestamp_ordering TimestampOrdering);

/// Fault 2: rows were freed twice. When the drop of a replaced row panicked, the rows that the commit had
/// installed stayed in its access set.
fn commit_survives_a_panicking_drop<P: Protocol>() {
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
        committed.expect("a panic in a replaced row's drop does not fail the transaction");
        ON_DROP.set(None);
        assert_eq!([1, 2, 3].map(|id| value(&database, &table, id)), [Some(2); 3]);
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

under_each!(garbage_collection_survives_a_panicking_drop:
    none NoControl dbx Dbx two_phase_locking TwoPhaseLocking timestamp_ordering TimestampOrdering htcc Htcc);

/// Fault 7: the worker stayed pinned. The next transaction was refused as nested, and `close` did not return.
fn garbage_collection_survives_a_panicking_drop<P: Protocol>() {
    let _one = begin();
    {
        let (database, table) = open_fragile::<P>();
        ON_DROP.set(Some(Rc::new(panic_now)));
        for turn in 0..3000 {
            // The closure's own row is never dropped here, because the upsert stores it.
            let upserted = || database.transact(|tx| tx.upsert(&table, fragile(1, turn)).map(drop));
            catch_unwind(AssertUnwindSafe(upserted))
                .map_err(drop)
                .expect("only garbage is dropped")
                .unwrap();
        }
        ON_DROP.set(None);
        assert!(database.metrics().drops_panicked > 0, "no garbage was collected");
        assert_eq!(value(&database, &table, 1), Some(2999));
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

/// A column whose writing may panic.
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

under_each!(column_that_panics_while_logged_undoes_the_commit: none NoControl dbx Dbx two_phase_locking TwoPhaseLocking
    timestamp_ordering TimestampOrdering);

/// Fault 3: rows were freed twice, because the log's entries were encoded after the rows were installed.
fn column_that_panics_while_logged_undoes_the_commit<P: Protocol>() {
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

/// A key that changes whenever it is encoded.
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
        // The next call encodes another number.
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

under_each!(key_that_changes_its_encoding_frees_no_reachable_record: none NoControl dbx Dbx two_phase_locking TwoPhaseLocking
    timestamp_ordering TimestampOrdering);

/// Fault 4: memory was used after it was freed. The type encoded a deleted record's key differently by then, so
/// the record was not found in the index. It was freed although the index still led to it.
fn key_that_changes_its_encoding_frees_no_reachable_record<P: Protocol>() {
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
            // Joins the thread, because a thread that ends collects garbage.
            thread::scope(|scope| scope.spawn(work).join().unwrap());
        }
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

/// A key whose encoding depends on [`SHIFT`].
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

under_each!(deleted_row_with_another_key_frees_no_reachable_record: none NoControl dbx Dbx two_phase_locking TwoPhaseLocking
    timestamp_ordering TimestampOrdering);

/// Fault 4 again: all keys change between the deletion and the collection of garbage. The records were not found
/// under the new keys, and were freed although the index still led to them.
fn deleted_row_with_another_key_frees_no_reachable_record<P: Protocol>() {
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
        // A thread collects garbage when it ends: the first leaves the records behind, the second unlinks them,
        // and the third frees them.
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

under_each!(own_changes_can_be_read: none NoControl htm_naive HtmNaive);

/// Fault 5: a segmentation fault. A pointer to a row that the same transaction had changed was used without
/// removing its flag bits.
fn own_changes_can_be_read<P: Protocol>() {
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
    // The row is deleted, and read while its record is still in the index.
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

/// A key whose comparison follows a pointer.
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

under_each!(prefetched_row_can_be_deleted: none NoControl htm_naive HtmNaive dbx Dbx);

/// Fault 5 again: the key of a deleted row was compared through a pointer with a flag bit.
fn prefetched_row_can_be_deleted<P: Protocol>() {
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

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "counted")]
struct Counted {
    #[record(key)]
    id: u32,
    large: i64,
    small: i8,
}

/// Fault 8: memory of another type was written. Two operations were considered equal if they had the same column
/// position and the same kind, even if their types differed.
#[test]
fn operation_of_another_type_keeps_a_split_column_intact() {
    let _one = begin();
    // A function that is hidden from the documentation lets a user name one column and refer to another.
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
    // A slice of this one takes eight bytes.
    database.transact(|tx| tx.max(&table, &1, large, 0x0102_0304_0506_0708)).unwrap();
    database.transact(|tx| tx.max(&table, &1, small, 3)).unwrap();
    let row = database.transact(|tx| Ok::<_, Error>(tx.get(&table, &1)?.cloned())).unwrap();
    assert_eq!(row, Some(Counted { id: 1, large: 0x0102_0304_0506_0708, small: 3 }));
}

/// Suspected fault: a snapshot that a row's drop opens misses the operations in workers' slices.
#[test]
fn snapshot_opened_by_a_drop_shows_split_rows_whole() {
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
                let snapshot = database.open_snapshot().expect("no transaction is in progress");
                let row = snapshot.get(&counted, &1).unwrap().expect("the row exists");
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
        assert!(database.metrics().phases.unwrap().split_phases > 0, "no rows were split");
        // Garbage is dropped when the thread has collected enough of it.
        ON_DROP.set(Some(Rc::new(on_drop)));
        (0..2000).for_each(|turn| put(&database, &table, 1, turn));
        ON_DROP.set(None);
        assert!(seen.get() > 0, "no rows were dropped");
        assert_eq!(database.metrics().drops_panicked, 0);
    }
    end();
}

#[derive(Clone, Copy, Record)]
#[record(table = "total")]
struct Total {
    #[record(key)]
    id: u32,
    sum: i64,
}

/// Adds to a total, which can be deferred, after it has counted in a note.
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

/// Reads a total, and conflicts with [`spend`] nowhere else, so that the addition can be deferred.
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

/// Suspected fault: a snapshot that a row's drop opens misses deferred changes of procedures.
#[test]
fn snapshot_opened_by_a_drop_shows_deferred_sums() {
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
                let snapshot = database.open_snapshot().expect("no transaction is in progress");
                let row = snapshot.get(&totals, &1).unwrap().expect("the row exists");
                // When rows are dropped, the last procedure may have committed before the test has counted it.
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
        assert!(seen.get() > 0, "no rows were dropped");
        assert!(database.metrics().deferred > 0, "no sums were deferred");
        assert_eq!(database.metrics().drops_panicked, 0);
        let others = database.table::<PlainRow>().unwrap();
        database.execute(&mut Audit::new(&totals, &others, 1, 1)).unwrap();
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

/// Suspected fault: if the drop of a row panics while HTCC repairs a transaction, the writes are undone twice.
#[test]
fn repair_survives_a_panicking_drop() {
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
                let seen = tx.get(table, &FragileKey(1))?.expect("the row exists").value;
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
        assert!(database.metrics().repairs.repairs > 0, "the transaction was not repaired");
        assert_eq!(
            (value(&database, &table, 1), value(&database, &table, 2)),
            (Some(2), Some(103))
        );
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

under_each!(key_comparison_can_use_the_transaction: none NoControl dbx Dbx htcc Htcc doppel Doppel dbx_tc DbxTc
    adaptive Adaptive
    two_phase_locking TwoPhaseLocking timestamp_ordering TimestampOrdering);

/// Suspected fault: the index buffer of a worker is borrowed while user code compares keys.
fn key_comparison_can_use_the_transaction<P: Protocol>() {
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
                // These operations are refused in the middle of some operations, and succeed in others.
                let _ = tx.get(&table, &FragileKey(id));
                let _ = tx.prefetch(&table, [FragileKey(id), FragileKey(39 - id)]);
                let _ = tx.range(&table, ..).filter(|row| row.is_ok()).count();
            };
            with_transaction(&uses, || {
                tx.prefetch(&table, (0..10).map(FragileKey))?;
                for id in (0..40).chain(0..40) {
                    let before = tx.get(&table, &FragileKey(id))?.expect("the row exists").value;
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

under_each!(row_code_can_use_the_database_while_conflicts_are_counted: doppel Doppel doppel_locking DoppelLocking
    adaptive Adaptive);

/// Suspected fault: a worker's sketch of its conflicts is borrowed while the code of a row type runs. That code
/// encodes the key of a contended row, compares it, and clones the row for a worker's slice. Here each of these
/// uses the transaction and the database, and sometimes panics.
fn row_code_can_use_the_database_while_conflicts_are_counted<P: Protocol>() {
    /// More rows than a sketch has entries, so that entries are replaced.
    const ROWS: u32 = 40;
    /// One in this many calls uses the database. One in `USES_PER_PANIC` of those panics.
    const CALLS_PER_USE: u32 = 5;
    const USES_PER_PANIC: u32 = 7;
    let _one = begin();
    {
        // With this option every operation counts as a conflict, and a phase lasts for a few transactions.
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
            // Every second transaction adds to row 7, so that it is contended more than the others.
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
                // The row type's code has used the row that this operation writes.
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
        assert!(database.metrics().phases.unwrap().split_phases > 0, "no rows were split");
        for (id, sum) in (0..).zip(committed) {
            assert_eq!(value(&database, &table, id), Some(sum), "row {id}");
        }
        database.close_within(Duration::from_secs(1)).unwrap();
    }
    end();
}

/// Fault: a type that reported other index keys when a row was deleted made `transact` retry for ever, and block
/// all other transactions of the database.
#[test]
fn missing_index_key_is_a_failure() {
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
    assert_eq!(database.transact(id).unwrap(), Some(1), "the row has changed");
    // A closure that ignores the error cannot commit.
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

/// Fault: a checkpoint waited for itself if the code of a row that it encoded requested a checkpoint, or closed
/// the database.
#[test]
fn checkpoint_within_a_checkpoint_is_refused() {
    let _one = begin();
    let (database, _) = open_stored();
    let told = Rc::new(RefCell::new(Vec::new()));
    let on_write = {
        let (database, told) = (database.clone(), Rc::clone(&told));
        move || {
            let answers = [
                database.checkpoint().err(),
                database.backup("/backup").err(),
                database.read_stored(|_, _| Ok(())).err(),
                database.close().err(),
                database.close_within(Duration::from_secs(1)).err(),
            ];
            told.borrow_mut().push(answers);
        }
    };
    ON_WRITE.set(Some(Rc::new(on_write)));
    let written = database.checkpoint();
    ON_WRITE.set(None);
    // The thread that writes the checkpoint may be another one, on which ON_WRITE is not set.
    assert!(
        told.borrow().iter().flatten().all(|answer| *answer == Some(Failure::NestedCheckpoint)),
        "{told:?}"
    );
    assert_eq!(written.unwrap().rows, 1);
    database.checkpoint().unwrap();
    database.close_within(Duration::from_secs(1)).unwrap();
}

/// The function that reads the stored rows runs while checkpoints wait. It may panic, fail, and read and write the
/// database, but not wait for itself.
#[test]
fn stored_rows_are_read_by_code_that_misbehaves() {
    let _one = begin();
    let (database, table) = open_stored();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        database.read_stored(|_, source| source.rows(0, 0, 1, &mut |_| panic!("in the sink")))
    }));
    assert!(panicked.is_err());
    let failed = database.read_stored(|_, source| {
        source.rows(0, 0, 1, &mut |_| Err(weft::durability::StorageError::Closed))
    });
    assert!(matches!(failed, Err(Failure::Storage(_))), "{failed:?}");
    let read = database.read_stored(|_, source| {
        assert_eq!(database.checkpoint().unwrap_err(), Failure::NestedCheckpoint);
        assert_eq!(database.close().unwrap_err(), Failure::NestedCheckpoint);
        database.transact(|tx| tx.delete(&table, &1)).unwrap();
        let mut rows = 0;
        source.rows(0, 0, 1, &mut |_| {
            rows += 1;
            Ok(())
        })?;
        Ok(rows)
    });
    assert_eq!(read.unwrap(), 1, "the row is there as it was before it was deleted");
    assert_eq!(database.checkpoint().unwrap().rows, 0);
    database.close_within(Duration::from_secs(1)).unwrap();
}

/// Fault: closing waited for a checkpoint without regard to its deadline.
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

/// Fault: when a load panicked, the rows that it had already read stayed in the table, and were not in the log.
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
