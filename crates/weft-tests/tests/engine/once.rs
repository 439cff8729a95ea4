//! Tests of transactions that run once for a key. However often, from wherever and at the same time as others a call is
//! made, its transaction happens once, and all calls return its result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{scope, sleep, spawn};
use std::time::Duration;

use weft::column::{ColumnType, DecodeError};
use weft::durability::SimulatedDisk;
use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft::{
    Acknowledge, ColumnValue, Database, DurabilityOptions, Error, Failure, OnceOptions,
    PoolOptions, Record, SubmitOptions, Table, Transaction, TransactionOptions,
};

use weft_procedures::{Execute, Procedure, procedure};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};
use weft_tests::{Seed, for_each_kind, on_threads, panic_quietly, stress, threads};

/// A row that only one transaction can insert.
#[derive(Clone, Debug, PartialEq, Record)]
struct Order {
    #[record(key)]
    number: u64,
    item: u64,
}

/// The number of orders, and a row that all transactions of a test change.
#[derive(Clone, Debug, Record)]
struct Count {
    #[record(key)]
    id: u32,
    orders: u64,
}

struct Shop<P: Protocol> {
    database: Database<P>,
    orders: Table<Order>,
    counts: Table<Count>,
}

impl<P: Protocol> Shop<P> {
    fn open(options: OnceOptions) -> Self {
        let builder = Database::builder().protocol::<P>().table::<Order>().table::<Count>();
        let shop = Shop::of(builder.once(options).open().unwrap());
        shop.database.transact(|tx| tx.insert(&shop.counts, Count { id: 0, orders: 0 })).unwrap();
        shop
    }

    fn of(database: Database<P>) -> Self {
        let (orders, counts) = (database.table().unwrap(), database.table().unwrap());
        Shop { database, orders, counts }
    }

    /// Places an order, and returns its number. The numbers are given out in order.
    fn place(&self, tx: &Transaction<'_, P>, item: u64) -> Result<u64, Error> {
        let next = |count: &mut Count| {
            count.orders += 1;
            count.orders
        };
        let number = tx.update(&self.counts, &0, next)?.expect("the row exists");
        tx.insert(&self.orders, Order { number, item })?;
        Ok(number)
    }

    fn order(&self, key: u64) -> Result<u64, Error> {
        self.database.transact_with(&order_options().once(key), |tx| self.place(tx, key))
    }

    /// Returns the orders by number.
    fn orders(&self) -> Vec<Order> {
        let snapshot = self.database.open_snapshot().unwrap();
        snapshot.rows(&self.orders).map(|order| order.unwrap().clone()).collect()
    }

    /// Returns whether the result of a key is kept. If it is not, the call stores another one.
    fn keeps(&self, key: u64) -> bool {
        let mut ran = false;
        let result: Result<u64, Error> =
            self.database.transact_with(&order_options().once(key), |_tx| {
                ran = true;
                Ok(0)
            });
        result.unwrap();
        !ran
    }
}

fn order_options() -> TransactionOptions {
    TransactionOptions::new().label("order")
}

fn failure<R: std::fmt::Debug>(result: Result<R, Error>) -> Failure {
    match result {
        Err(Error::Failure(failure)) => failure,
        result => panic!("{result:?}"),
    }
}

#[test]
fn a_second_call_returns_the_first_result() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::open(OnceOptions::new());
        for (key, number) in [(7, 1), (8, 2), (7, 1), (9, 3), (8, 2)] {
            assert_eq!(shop.order(key).unwrap(), number);
        }
        let items: Vec<u64> = shop.orders().iter().map(|order| order.item).collect();
        assert_eq!(items, [7, 8, 9]);
    });
}

/// Several threads call with the same keys, at random. Each key has one order, whose number all calls return.
#[test]
fn thousands_of_concurrent_duplicates_happen_once() {
    for_each_kind!(|P| {
        let seed = Seed::draw();
        let (keys, calls) = (60, 300 * stress());
        let shop = Shop::<P>::open(OnceOptions::new());
        let numbers = on_threads(threads::<P>(), |thread| {
            let mut random = seed.random(thread);
            let mut numbers = vec![0; keys as usize];
            for call in 0..calls as u64 {
                // All threads come by each key at about the same time.
                let key = (call / 5 + random.u64(..2)) % keys;
                let number = shop.order(key).unwrap();
                let known = std::mem::replace(&mut numbers[key as usize], number);
                assert!(known == 0 || known == number, "{known} was {number} before");
            }
            numbers
        });
        let orders = shop.orders();
        assert!(orders.len() <= keys as usize);
        for numbers in numbers {
            for (key, number) in numbers.into_iter().enumerate().filter(|&(_, number)| number > 0) {
                assert_eq!(orders[number as usize - 1].item, key as u64);
            }
        }
        assert!(orders.iter().map(|order| order.number).eq(1..=orders.len() as u64));
    });
}

#[test]
fn thousands_of_submissions_happen_once() {
    for_each_kind!(|P| {
        let seed = Seed::draw();
        let shop = Arc::new(Shop::<P>::open(OnceOptions::new()));
        let pool = shop.database.pool(&PoolOptions::new().threads(2)).unwrap();
        let mut random = seed.random(0);
        let submissions: Vec<_> = (0..1000 * stress() as u64)
            .map(|call| {
                let (key, shop) = ((call / 50 + random.u64(..3)).to_string(), Arc::clone(&shop));
                let options = SubmitOptions::new().label("order").once(&key);
                let item = key.parse().unwrap();
                let submission = pool.submit_with(&options, move |tx| shop.place(tx, item));
                (item, submission)
            })
            .collect();
        let placed: Vec<(u64, u64)> = submissions
            .into_iter()
            .map(|(item, submission)| (item, submission.wait().unwrap()))
            .collect();
        let orders = shop.orders();
        for (item, number) in placed {
            assert_eq!(orders[number as usize - 1].item, item);
        }
        let mut items: Vec<u64> = orders.iter().map(|order| order.item).collect();
        items.sort_unstable();
        items.dedup();
        assert_eq!(items.len(), orders.len(), "an item was ordered twice");
    });
}

#[test]
fn keys_of_each_kind_are_keys_of_their_own() {
    let shop = Shop::<weft::protocol::Dbx>::open(OnceOptions::new());
    let (text, bytes) = ("31".to_owned(), vec![0x31]);
    let keys: [weft::OnceKey<'_>; 4] = [(&text).into(), (&bytes).into(), 31_u64.into(), "".into()];
    for (number, key) in (1..).zip(keys) {
        let place = || {
            shop.database
                .transact_with(&TransactionOptions::new().once(key), |tx| shop.place(tx, 0))
        };
        assert_eq!(place().unwrap(), number);
        assert_eq!(place().unwrap(), number);
    }
    let same: [(weft::OnceKey<'_>, weft::OnceKey<'_>); 3] = [
        ("31".into(), (&text).into()),
        ([0x31_u8][..].into(), b"1".into()),
        (31_u128.into(), 31_u64.into()),
    ];
    assert!(same.iter().all(|(one, other)| one == other));
}

#[test]
fn errors_and_panics_are_not_stored() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::open(OnceOptions::new());
        let options = TransactionOptions::new().once("key");
        let failed = shop.database.transact_with(&options, |tx| {
            shop.place(tx, 1)?;
            tx.insert(&shop.counts, Count { id: 0, orders: 0 })?;
            Ok(0_u64)
        });
        assert!(matches!(failure(failed), Failure::DuplicateKey { .. }));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            shop.database.transact_with(&options, |tx| -> Result<u64, Error> {
                shop.place(tx, 2)?;
                panic_quietly("the closure panics")
            })
        }));
        assert!(panicked.is_err() && shop.orders().is_empty());
        let place = |item| shop.database.transact_with(&options, |tx| shop.place(tx, item));
        assert_eq!((place(3).unwrap(), place(4).unwrap()), (1, 1));
        assert_eq!(shop.orders(), [Order { number: 1, item: 3 }]);
    });
}

/// A call that holds its key until the test lets it end.
struct Holder {
    end: Sender<Result<u64, ()>>,
    ended: Receiver<bool>,
}

impl Holder {
    /// Begins the call, and returns when its closure runs.
    fn begin(database: &Database, key: &'static str) -> Holder {
        let ((begun, has_begun), (end, may_end), (tell, ended)) =
            (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let database = database.clone();
        spawn(move || {
            let options = TransactionOptions::new().once(key);
            // The closure runs again if another key has the same place in the index.
            let mut result: Option<Result<u64, ()>> = None;
            let done = database.transact_with(&options, |_tx| {
                let result = result.get_or_insert_with(|| {
                    begun.send(()).expect("the test waits");
                    may_end.recv().expect("the test lets it end")
                });
                result.map_err(|()| Error::from(Failure::InMemory))
            });
            tell.send(done.is_ok()).expect("the test waits");
        });
        has_begun.recv().expect("the closure runs");
        Holder { end, ended }
    }

    fn end(self, result: Result<u64, ()>) {
        self.end.send(result).expect("the closure waits");
        assert_eq!(self.ended.recv(), Ok(result.is_ok()));
    }
}

fn open() -> Database {
    Database::builder().once(OnceOptions::new()).open().unwrap()
}

/// Calls with the same key as the holder. The result is how many such calls had run before.
fn call(database: &Database, ran: &Word) -> Result<u64, Error> {
    database.transact_with(&TransactionOptions::new().once("key"), |_tx| {
        Ok(ran.fetch_add(1, Ordering::SeqCst))
    })
}

#[test]
fn calls_wait_for_the_first_and_return_its_result() {
    let database = open();
    let holder = Holder::begin(&database, "key");
    let ran = Word::new(0);
    scope(|scope| {
        let calls: Vec<_> = (0..20).map(|_| scope.spawn(|| call(&database, &ran))).collect();
        // Another key does not wait.
        let other = database
            .transact_with(&TransactionOptions::new().once("other"), |_tx| Ok::<u64, Error>(5));
        assert_eq!(other.unwrap(), 5);
        holder.end(Ok(17));
        for call in calls {
            assert_eq!(call.join().unwrap().unwrap(), 17);
        }
    });
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[test]
fn one_call_runs_when_the_first_fails() {
    let database = open();
    let holder = Holder::begin(&database, "key");
    let ran = Word::new(0);
    scope(|scope| {
        let calls: Vec<_> = (0..20).map(|_| scope.spawn(|| call(&database, &ran))).collect();
        holder.end(Err(()));
        for call in calls {
            assert_eq!(call.join().unwrap().unwrap(), 0);
        }
    });
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[test]
fn a_call_waits_until_its_deadline() {
    let database = open();
    let holder = Holder::begin(&database, "key");
    let deadline = Duration::from_millis(5);
    let options = TransactionOptions::new().deadline(deadline).once("key");
    let late = database.transact_with(&options, |_tx| Ok::<u64, Error>(0));
    assert_eq!(failure(late), Failure::DeadlineExceeded { deadline, attempts: 0 });
    holder.end(Ok(17));
    let options = TransactionOptions::new().once("key");
    assert_eq!(database.transact_with(&options, |_tx| Ok::<u64, Error>(0)).unwrap(), 17);
}

#[test]
fn a_call_that_waits_ends_when_the_database_is_closed() {
    let database = open();
    let holder = Holder::begin(&database, "key");
    scope(|scope| {
        let waiting = scope.spawn(|| {
            let options = TransactionOptions::new().once("key");
            database.transact_with(&options, |_tx| Ok::<u64, Error>(0))
        });
        let closed = database.close_within(Duration::from_millis(1));
        assert!(matches!(closed, Err(Failure::StillRunning { .. })));
        assert_eq!(failure(waiting.join().unwrap()), Failure::Closed);
    });
    // The transaction of the holder has begun before, and may commit.
    holder.end(Ok(17));
}

#[test]
fn a_call_inside_a_transaction_is_refused() {
    let database = open();
    let options = TransactionOptions::new().once("key");
    let outer = database.transact_with(&options, |_tx| {
        // It would wait for the transaction in which it is.
        let inner = database.transact_with(&options, |_tx| Ok::<(), Error>(()));
        assert_eq!(failure(inner), Failure::NestedTransaction);
        Ok::<u64, Error>(1)
    });
    assert_eq!(outer.unwrap(), 1);
}

#[test]
fn submissions_that_wait_occupy_no_thread() {
    let database = open();
    let pool = database.pool(&PoolOptions::new().threads(1).urgent_threads(0)).unwrap();
    let holder = Holder::begin(&database, "key");
    let submit =
        |options: SubmitOptions| pool.submit_with(&options.once("key"), |_tx| Ok::<u64, Error>(0));
    let waiting: Vec<_> = (0..100).map(|_| submit(SubmitOptions::new())).collect();
    let cancelled = submit(SubmitOptions::new());
    let late = submit(SubmitOptions::new().deadline(Duration::from_millis(1)));
    assert_eq!(pool.submit(|_tx| Ok::<u64, Error>(3)).wait().unwrap(), 3);
    drop(cancelled);
    let deadline = Duration::from_millis(1);
    assert_eq!(failure(late.wait()), Failure::DeadlineExceeded { deadline, attempts: 0 });
    assert_eq!(pool.queued(), 100);
    holder.end(Ok(17));
    for submission in waiting {
        assert_eq!(submission.wait().unwrap(), 17);
    }
}

#[test]
fn submissions_that_wait_end_when_the_pool_is_shut_down() {
    let database = open();
    let pool = database.pool(&PoolOptions::new().threads(1)).unwrap();
    let holder = Holder::begin(&database, "key");
    let options = SubmitOptions::new().once("key");
    let waiting = pool.submit_with(&options, |_tx| Ok::<u64, Error>(0));
    pool.shutdown(Duration::from_secs(60)).wait().unwrap();
    assert_eq!(failure(waiting.wait()), Failure::PoolShutDown);
    let refused = pool.submit_with(&options, |_tx| Ok::<u64, Error>(0));
    assert_eq!(failure(refused.wait()), Failure::PoolShutDown);
    holder.end(Ok(17));
}

/// If the holder of a key fails in a pool, the next submission has its turn.
#[test]
fn the_next_submission_runs_when_the_first_fails() {
    let database = open();
    let pool = database.pool(&PoolOptions::new().threads(2)).unwrap();
    let submissions: Vec<_> = (0..10_u64)
        .map(|number| {
            pool.submit_with(&SubmitOptions::new().once("key"), move |_tx| match number {
                0..4 => Err(Error::from(Failure::InMemory)),
                4 => panic_quietly("the closure panics"),
                number => Ok(number),
            })
        })
        .collect();
    let mut ended = submissions.into_iter().map(|submission| {
        catch_unwind(AssertUnwindSafe(|| submission.wait())).map_err(|_panic| ())
    });
    assert!(ended.by_ref().take(4).all(|ended| ended.unwrap().is_err()));
    assert!(ended.next().unwrap().is_err());
    assert_eq!(ended.map(|ended| ended.unwrap().unwrap()).collect::<Vec<_>>(), [5; 5]);
}

/// The messages of each wrong use.
#[test]
fn wrong_uses_are_failures_that_name_the_cause() {
    let database = open();
    let order = TransactionOptions::new().label("order").once("17");
    database.transact_with(&order, |_tx| Ok::<u64, Error>(4)).unwrap();
    let run = |options: &weft::Once<'_, TransactionOptions>| {
        failure(database.transact_with(options, |_tx| Ok::<u64, Error>(0)))
    };
    let refused = run(&TransactionOptions::new().label("payment").once("17"));
    let (stored, label) = (Some("order".to_owned()), Some("payment".to_owned()));
    assert_eq!(refused, Failure::OnceLabel { key: "17".to_owned(), stored, label });
    assert_eq!(
        refused.to_string(),
        "key 17 belongs to `order`, and this is `payment`; use a key for one kind of transaction only"
    );
    assert_eq!(
        run(&TransactionOptions::new().once("17")).to_string(),
        "key 17 belongs to `order`, and this is a transaction without a label; use a key for one kind of transaction \
         only"
    );
    let refused = failure(database.transact_with(&order, |_tx| Ok::<_, Error>(String::new())));
    assert!(matches!(&refused, Failure::OnceResult { key, .. } if key == "17"));
    assert_eq!(
        refused.to_string(),
        "the transaction with key 17 has run before, and its result cannot be returned: the result is stored as u64, \
         and is no String"
    );
    let without = Database::builder().open().unwrap();
    let refused = failure(without.transact_with(&order, |_tx| Ok::<(), Error>(())));
    assert_eq!(refused, Failure::ResultsNotKept);
    assert_eq!(
        refused.to_string(),
        "the database keeps no results of transactions; open it with .once(OnceOptions::new())"
    );
    let pool = without.pool(&PoolOptions::new().threads(1)).unwrap();
    let refused = pool.submit_with(&SubmitOptions::new().once(1_u64), |_tx| Ok::<(), Error>(()));
    assert_eq!(failure(refused.wait()), Failure::ResultsNotKept);
}

#[derive(Debug, PartialEq, ColumnValue)]
struct Receipt {
    number: u64,
}

/// The receipt of a later version of the program.
mod later {
    use super::ColumnValue;

    #[derive(Debug, PartialEq, ColumnValue)]
    pub struct Receipt {
        pub number: u64,
        #[column(default = true)]
        pub is_paid: bool,
    }
}

#[test]
fn results_of_an_earlier_type_are_converted() {
    let database = open();
    let options = TransactionOptions::new().once(1_u64);
    database.transact_with(&options, |_tx| Ok::<_, Error>(Receipt { number: 3 })).unwrap();
    let same = database.transact_with(&options, |_tx| Ok::<_, Error>(Receipt { number: 0 }));
    assert_eq!(same.unwrap(), Receipt { number: 3 });
    let converted = database.transact_with(&options, |_tx| {
        Ok::<_, Error>(later::Receipt { number: 0, is_paid: false })
    });
    assert_eq!(converted.unwrap(), later::Receipt { number: 3, is_paid: true });
    let options = TransactionOptions::new().once(2_u64);
    database.transact_with(&options, |_tx| Ok::<_, Error>(5_u32)).unwrap();
    assert_eq!(database.transact_with(&options, |_tx| Ok::<_, Error>(0_u64)).unwrap(), 5);
    assert_eq!(
        database.transact_with(&options, |_tx| Ok::<_, Error>(None::<u32>)).unwrap(),
        Some(5)
    );
    let options = TransactionOptions::new().once(3_u64);
    database.transact_with(&options, |_tx| Ok::<_, Error>(())).unwrap();
    database.transact_with(&options, |_tx| Ok::<_, Error>(())).unwrap();
}

/// What a [`Hostile`] result does in one of its operations.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Nothing,
    PanicIn(&'static str),
    CallTheDatabaseIn(&'static str),
    /// Writes what it cannot read.
    Lie,
}

thread_local! {
    static DOES: std::cell::Cell<Does> = const { std::cell::Cell::new(Does::Nothing) };
    static DATABASE: std::cell::RefCell<Option<Database>> = const { std::cell::RefCell::new(None) };
}

/// A result whose operations misbehave.
#[derive(Debug, PartialEq)]
struct Hostile(u8);

impl Hostile {
    fn called(operation: &str) {
        match DOES.get() {
            Does::PanicIn(place) if place == operation => panic_quietly("the result panics"),
            Does::CallTheDatabaseIn(place) if place == operation => {
                let database = DATABASE.with_borrow(|database| database.clone().unwrap());
                let options = TransactionOptions::new().once("key");
                let refused = database.transact_with(&options, |_tx| Ok::<(), Error>(()));
                assert_eq!(failure(refused), Failure::NestedTransaction);
            }
            _ => {}
        }
    }
}

impl ColumnValue for Hostile {
    const TYPE: ColumnType = ColumnType::U8;

    fn write(&self, output: &mut Vec<u8>) {
        Hostile::called("write");
        if DOES.get() != Does::Lie {
            output.push(self.0);
        }
    }

    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Hostile::called("read");
        u8::read(input).map(Hostile)
    }
}

#[test]
fn hostile_results_spoil_nothing() {
    let database = open();
    DATABASE.set(Some(database.clone()));
    let call = |key: u64, does: Does| {
        DOES.set(does);
        let options = TransactionOptions::new().once(key);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            database.transact_with(&options, |_tx| Ok::<_, Error>(Hostile(key as u8)))
        }));
        DOES.set(Does::Nothing);
        ended.map_err(|_panic| "panicked")
    };
    assert_eq!(call(1, Does::PanicIn("write")).unwrap_err(), "panicked");
    // It was not stored, and its key was given up.
    assert_eq!(call(1, Does::CallTheDatabaseIn("write")).unwrap().unwrap(), Hostile(1));
    assert_eq!(call(1, Does::PanicIn("read")).unwrap_err(), "panicked");
    assert_eq!(call(1, Does::CallTheDatabaseIn("read")).unwrap().unwrap(), Hostile(1));
    call(9, Does::Lie).unwrap().unwrap();
    let unreadable = failure(call(9, Does::Nothing).unwrap());
    assert!(matches!(unreadable, Failure::OnceResult { .. }), "{unreadable}");
    DATABASE.set(None);
}

thread_local! {
    static ON_DROP: std::cell::RefCell<Option<Box<dyn Fn()>>> = const { std::cell::RefCell::new(None) };
}

/// A row whose `Drop` calls what a test has set.
#[derive(Clone, Record)]
#[record(volatile)]
struct Caller {
    #[record(key)]
    id: u32,
    #[allow(dead_code, reason = "it is there to be dropped")]
    calls: Calls,
}

#[derive(Clone)]
struct Calls;

impl Drop for Calls {
    fn drop(&mut self) {
        let call = ON_DROP.with_borrow_mut(Option::take);
        call.iter().for_each(|call| call());
    }
}

/// Fault: a call in the `Drop` of a row waited for the transaction of the same key, at whose end it ran.
#[test]
fn a_call_in_the_drop_of_a_row_does_not_wait_for_itself() {
    let database = Database::builder().table::<Caller>().once(OnceOptions::new()).open().unwrap();
    let callers = database.table::<Caller>().unwrap();
    database.transact(|tx| tx.insert(&callers, Caller { id: 1, calls: Calls })).unwrap();
    let options = TransactionOptions::new().once("key");
    let (told, tells) = mpsc::channel();
    let call = {
        let database = database.clone();
        move || {
            let options = TransactionOptions::new().once("key");
            let refused = database.transact_with(&options, |_tx| Ok::<(), Error>(()));
            told.send(failure(refused)).unwrap();
        }
    };
    ON_DROP.set(Some(Box::new(call)));
    let committed = database.transact_with(&options, |tx| {
        tx.update(&callers, &1, |_row| ())?;
        // This drops the row that the first update has made, when the transaction has ended.
        tx.update(&callers, &1, |_row| ())?;
        Ok::<(), Error>(())
    });
    committed.unwrap();
    assert_eq!(tells.try_recv(), Ok(Failure::NestedTransaction));
}

#[test]
fn the_oldest_results_are_removed_beyond_the_maximum() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::open(OnceOptions::new().results_max(10));
        for key in 0..100 {
            shop.order(key).unwrap();
        }
        // 16 are removed at a time: 96 have been stored when the last were removed.
        assert!((90..100).all(|key| shop.keeps(key)));
        assert!((0..10).all(|key| !shop.keeps(key)));
        assert_eq!(shop.orders().len(), 100, "what the transactions did is kept");
    });
}

#[test]
fn results_are_removed_after_their_retention() {
    let shop = Shop::<weft::protocol::Dbx>::open(OnceOptions::new().retention(Duration::ZERO));
    for key in 0..100 {
        shop.order(key).unwrap();
    }
    assert!(!shop.keeps(0) && shop.keeps(99));
    let shop = Shop::<weft::protocol::Dbx>::open(OnceOptions::new().retention(Duration::MAX));
    for key in 0..100 {
        shop.order(key).unwrap();
    }
    assert!((0..100).all(|key| shop.keeps(key)));
}

fn open_on<P: Protocol>(disk: &SimulatedDisk, options: OnceOptions) -> Shop<P> {
    let builder = Database::builder().protocol::<P>().table::<Order>().table::<Count>();
    let builder = builder.once(options).workers_max(8).directory(Path::new("/shop"));
    let durability = DurabilityOptions::new().acknowledge(Acknowledge::Committed);
    let builder = builder.durability(durability).backend(Arc::new(disk.clone()), true);
    let shop = Shop::of(builder.open().unwrap());
    shop.database.transact(|tx| tx.upsert(&shop.counts, Count { id: 0, orders: 0 })).unwrap();
    shop
}

/// A program that is started again removes the results of its earlier run, the oldest first.
#[test]
fn results_of_an_earlier_run_are_removed_in_order() {
    let disk = SimulatedDisk::new(1);
    let shop = open_on::<weft::protocol::Dbx>(&disk, OnceOptions::new());
    for key in 0..40 {
        if key == 16 {
            // The order of results is known to a millisecond.
            sleep(Duration::from_millis(2));
        }
        shop.order(key).unwrap();
    }
    shop.database.close().unwrap();
    drop(shop);
    let shop = open_on::<weft::protocol::Dbx>(&disk, OnceOptions::new().results_max(40));
    assert!((0..40).all(|key| shop.keeps(key)));
    assert!((40..56).all(|key| !shop.keeps(key)));
    assert!((16..56).all(|key| shop.keeps(key)));
    assert!(!shop.keeps(0));
}

/// A result that was acknowledged as durable is found after a crash, also if the call that has stored it did not wait.
#[test]
fn a_result_is_returned_as_durable_only_when_it_is() {
    for_each_kind!(|P| {
        let disk = SimulatedDisk::new(1);
        let shop = open_on::<P>(&disk, OnceOptions::new());
        let number = shop.order(7).unwrap();
        let options = order_options().once(7_u64);
        let (again, token) =
            shop.database.transact_with_token(&options, |tx| shop.place(tx, 0)).unwrap();
        assert_eq!(again, number);
        shop.database.wait_durable(token).unwrap();
        let recovered = open_on::<P>(&disk.crash(1), OnceOptions::new());
        assert!(recovered.keeps(7));
        assert_eq!(recovered.orders(), [Order { number, item: 7 }]);
    });
}

/// A program without the option leaves the results as they are.
#[test]
fn a_program_that_does_not_keep_results_leaves_them() {
    let disk = SimulatedDisk::new(1);
    let shop = open_on::<weft::protocol::Dbx>(&disk, OnceOptions::new());
    shop.order(7).unwrap();
    shop.database.checkpoint().unwrap();
    shop.database.close().unwrap();
    drop(shop);
    let builder = Database::builder().directory(Path::new("/shop"));
    let without = builder.backend(Arc::new(disk.clone()), true).open().unwrap();
    without.close().unwrap();
    drop(without);
    assert!(open_on::<weft::protocol::Dbx>(&disk, OnceOptions::new()).keeps(7));
}

/// Places an order with a given number. Without a key it runs in two pieces.
#[procedure(Place)]
fn place<P: Protocol>(
    counts: &Table<Count>,
    orders: &Table<Order>,
    tx: &Transaction<'_, P>,
    number: u64,
) -> Result<u64, Error> {
    let before = tx.get(counts, &0)?.expect("the row exists").orders;
    tx.update(counts, &0, |count| count.orders = before + 1)?;
    tx.insert(orders, Order { number, item: before })?;
    Ok(before + 1)
}

impl<P: Protocol> Shop<P> {
    fn execute(&self, key: u64, number: u64) -> Result<u64, Error> {
        let mut place = Place::new(&self.counts, &self.orders, number);
        self.database.execute_with(&order_options().once(key), &mut place)
    }
}

#[test]
fn procedures_run_once() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::open(OnceOptions::new());
        for (key, number) in [(7, 1), (8, 2), (7, 1), (9, 3), (8, 2)] {
            assert_eq!(shop.execute(key, key).unwrap(), number);
        }
        // A failure is not stored, and leaves nothing behind.
        assert!(matches!(failure(shop.execute(10, 7)), Failure::DuplicateKey { .. }));
        assert_eq!(shop.execute(10, 11).unwrap(), 4);
        // A closure and a procedure with the same key are the same transaction.
        assert_eq!(shop.order(7).unwrap(), 1);
        let numbers: Vec<u64> = shop.orders().iter().map(|order| order.number).collect();
        assert_eq!(numbers, [7, 8, 9, 11]);
    });
}

/// A procedure that runs in pieces is one transaction with its result, also beside others in pieces.
#[test]
fn procedures_in_pieces_run_once_as_a_whole() {
    let known = DbxTcOptions::new().procedures([Place::<DbxTc>::shape()]).finest(true);
    let builder = Database::builder().protocol::<DbxTc>().table::<Order>().table::<Count>();
    let shop = Shop::of(builder.once(OnceOptions::new()).dbx_tc(known).open().unwrap());
    shop.database.transact(|tx| tx.insert(&shop.counts, Count { id: 0, orders: 0 })).unwrap();
    assert_eq!(shop.database.chopping().procedures[0].pieces.len(), 2);
    let calls = 400 * stress() as u64;
    on_threads(3, |thread| {
        for call in 0..calls {
            let first = shop.execute(call, call).unwrap();
            assert_eq!(shop.execute(call, call).unwrap(), first);
            let number = (1 << 40) + ((thread as u64) << 32) + call;
            let mut other = Place::new(&shop.counts, &shop.orders, number);
            shop.database.execute(&mut other).unwrap();
        }
    });
    let orders = shop.orders();
    assert_eq!(orders.iter().filter(|order| order.number < calls).count() as u64, calls);
    assert_eq!(orders.len() as u64, 4 * calls);
    let mut items: Vec<u64> = orders.iter().map(|order| order.item).collect();
    items.sort_unstable();
    assert!(items.into_iter().eq(0..4 * calls), "each order has found all before it");
    assert!(shop.database.metrics().committed_in_pieces > 0);
    // A duplicate order in the second piece fails as a whole.
    assert!(matches!(failure(shop.execute(calls, 0)), Failure::DuplicateKey { .. }));
}

#[test]
fn results_of_procedures_survive_a_crash() {
    for_each_kind!(|P| {
        let disk = SimulatedDisk::new(1);
        let shop = open_on::<P>(&disk, OnceOptions::new());
        let mut place = Place::new(&shop.counts, &shop.orders, 7);
        let options = order_options().once(7_u64);
        let (number, token) = shop.database.execute_with_token(&options, &mut place).unwrap();
        shop.database.wait_durable(token).unwrap();
        let recovered = open_on::<P>(&disk.crash(1), OnceOptions::new());
        assert_eq!(recovered.execute(7, 8).unwrap(), number);
        assert_eq!(recovered.orders(), [Order { number: 7, item: 0 }]);
    });
}
