//! Tests of the protocol `atomic`: single operations on single rows from many threads, and the refusal of all
//! other operations.

use std::thread::{scope, yield_now};

use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft::{ConflictReason, Database, Error, Failure, Record, Table};
use weft_protocols::Atomic;

use weft_tests::{Seed, TestBarrier, on_a_thread, on_threads, stress};

const THREADS: usize = 6;

/// A row that is stored inline in its record.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "counters", storage = "hash")]
struct Counter {
    #[record(key)]
    id: u32,
    value: u64,
    /// Copies of `value`. They expose a read that mixes two versions.
    copies: [u64; 6],
}

/// A row that owns heap memory, so each version has a block of its own.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "notes")]
struct Note {
    #[record(key)]
    id: String,
    value: u64,
    contents: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Record)]
#[record(table = "indexed")]
struct Indexed {
    #[record(key)]
    id: u32,
    #[record(index)]
    group: u32,
}

/// The interface of both row types, so that each test runs on both.
trait Row: Record + PartialEq + std::fmt::Debug {
    fn new(id: u32, value: u64) -> Self;
    fn key_of(id: u32) -> Self::Key;
    fn value(&self) -> u64;
    fn set(&mut self, value: u64);
    fn check_whole(&self);
}

impl Row for Counter {
    fn new(id: u32, value: u64) -> Self {
        Counter { id, value, copies: [value; 6] }
    }
    fn key_of(id: u32) -> u32 {
        id
    }
    fn value(&self) -> u64 {
        self.value
    }
    fn set(&mut self, value: u64) {
        *self = Self::new(self.id, value);
    }
    fn check_whole(&self) {
        assert_eq!(self.copies, [self.value; 6]);
    }
}

impl Row for Note {
    fn new(id: u32, value: u64) -> Self {
        let (id, contents) = (Self::key_of(id), vec![value; 1 + (value % 50) as usize]);
        Note { id, value, contents }
    }
    fn key_of(id: u32) -> String {
        format!("note {id}, whose key has a tail")
    }
    fn value(&self) -> u64 {
        self.value
    }
    fn set(&mut self, value: u64) {
        self.value = value;
        self.contents = vec![value; 1 + (value % 50) as usize];
    }
    fn check_whole(&self) {
        assert!(self.contents.iter().all(|&copy| copy == self.value));
        assert_eq!(self.contents.len() as u64, 1 + self.value % 50);
    }
}

struct Fixture<R: Row> {
    database: Database<Atomic>,
    table: Table<R>,
}

impl<R: Row> Fixture<R> {
    fn new() -> Self {
        let database = Database::builder().protocol::<Atomic>().table::<R>().open().unwrap();
        let table = database.table().unwrap();
        Fixture { database, table }
    }

    fn get(&self, id: u32) -> Option<u64> {
        let found = self.database.transact(|tx| {
            let row = tx.get(&self.table, &R::key_of(id))?;
            row.inspect(|row| row.check_whole());
            Ok::<_, Error>(row.map(Row::value))
        });
        found.unwrap()
    }

    /// Returns false if the row exists already.
    fn insert(&self, id: u32, value: u64) -> bool {
        let inserted = self.database.transact(|tx| tx.insert(&self.table, R::new(id, value)));
        match inserted {
            Ok(()) => true,
            Err(Error::Failure(Failure::DuplicateKey { .. })) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn add(&self, id: u32, amount: u64) -> Option<u64> {
        let changed = self.database.transact(|tx| {
            tx.update(&self.table, &R::key_of(id), |row| {
                row.set(row.value() + amount);
                row.value()
            })
        });
        changed.unwrap()
    }

    /// Returns true if it replaced a row.
    fn upsert(&self, id: u32, value: u64) -> bool {
        self.database.transact(|tx| tx.upsert(&self.table, R::new(id, value))).unwrap()
    }

    fn delete(&self, id: u32) -> bool {
        self.database.transact(|tx| tx.delete(&self.table, &R::key_of(id))).unwrap()
    }
}

// ---- one operation at a time ---------------------------------------------------------------------

/// Runs the five operations on one thread, and checks their results.
fn answers<R: Row>() {
    let it = Fixture::<R>::new();
    assert_eq!(it.get(1), None);
    assert_eq!(it.add(1, 5), None);
    assert!(!it.delete(1));
    assert!(it.insert(1, 10));
    assert!(!it.insert(1, 11), "the row exists already");
    assert_eq!(it.get(1), Some(10));
    assert_eq!(it.add(1, 5), Some(15));
    assert!(it.upsert(1, 20));
    assert_eq!(it.get(1), Some(20));
    assert!(it.delete(1));
    assert_eq!(it.get(1), None);
    assert!(!it.upsert(1, 30));
    assert_eq!(it.get(1), Some(30));
    assert!(it.delete(1));
    assert!(it.insert(1, 40));
    assert_eq!(it.get(1), Some(40));
}

#[test]
fn operations_return_the_usual_results() {
    answers::<Counter>();
    answers::<Note>();
}

/// A roll-back restores the row, and removes the placeholder of an insertion.
fn rollback<R: Row>() {
    let it = Fixture::<R>::new();
    it.insert(1, 10);
    let stop = || Err::<(), Error>(Failure::Closed.into());
    let roll_back = |operation: &dyn Fn(&weft::Transaction<'_, Atomic>)| {
        let ended = it.database.transact(|tx| {
            operation(tx);
            stop()
        });
        assert!(matches!(ended, Err(Error::Failure(Failure::Closed))));
    };
    roll_back(&|tx| assert!(tx.insert(&it.table, R::new(2, 20)).is_ok()));
    roll_back(&|tx| assert!(tx.update(&it.table, &R::key_of(1), |row| row.set(99)).is_ok()));
    roll_back(&|tx| assert!(tx.upsert(&it.table, R::new(1, 99)).is_ok()));
    roll_back(&|tx| assert!(tx.delete(&it.table, &R::key_of(1)).unwrap()));
    assert_eq!((it.get(1), it.get(2)), (Some(10), None));
    assert!(it.insert(2, 21));
    assert_eq!(it.get(2), Some(21));
}

#[test]
fn rollback_leaves_no_trace() {
    rollback::<Counter>();
    rollback::<Note>();
}

/// If two transactions write the same row, or insert the same key, the second to commit conflicts.
#[test]
fn the_second_of_two_writes_of_a_row_conflicts() {
    let it = Fixture::<Counter>::new();
    it.insert(1, 10);
    let conflict = |tx: weft::Transaction<'_, Atomic>, key: &str| match tx.commit() {
        Err(Error::Conflict(conflict)) => {
            assert_eq!(conflict.reason, ConflictReason::WriteChanged);
            assert_eq!((conflict.table, conflict.key.as_deref()), ("counters", Some(key)));
        }
        other => panic!("{other:?}"),
    };
    let tx = it.database.begin().unwrap();
    tx.update(&it.table, &1, |row| row.set(0)).unwrap();
    on_a_thread(|| it.add(1, 1));
    conflict(tx, "1");

    let tx = it.database.begin().unwrap();
    tx.delete(&it.table, &1).unwrap();
    on_a_thread(|| it.add(1, 1));
    conflict(tx, "1");

    // The other transaction fills this one's placeholder, so this one must not unlink it when it aborts.
    let tx = it.database.begin().unwrap();
    tx.insert(&it.table, Counter::new(2, 20)).unwrap();
    assert!(on_a_thread(|| it.insert(2, 21)));
    conflict(tx, "2");
    assert_eq!((it.get(1), it.get(2)), (Some(12), Some(21)));
}

/// Another transaction cannot commit its row into a placeholder that the first transaction removes.
#[test]
fn insert_into_a_removed_placeholder_conflicts() {
    let it = Fixture::<Counter>::new();
    let step = TestBarrier::new(2);
    scope(|scope| {
        scope.spawn(|| {
            let first = it.database.begin().unwrap();
            first.insert(&it.table, Counter::new(3, 30)).unwrap();
            step.wait();
            step.wait();
            first.rollback();
            step.wait();
        });
        step.wait();
        let second = it.database.begin().unwrap();
        second.insert(&it.table, Counter::new(3, 31)).unwrap();
        step.wait();
        step.wait();
        assert!(matches!(second.commit(), Err(Error::Conflict(_))));
    });
    assert_eq!(it.get(3), None);
    assert!(it.insert(3, 32));
    assert_eq!(it.get(3), Some(32));
}

// ---- many threads --------------------------------------------------------------------------------

/// Detects lost updates, torn rows, and rows that are freed while they are read.
fn increments<R: Row>() {
    const KEYS: u32 = 3;
    let rounds = 5_000 * stress() as u64;
    let it = Fixture::<R>::new();
    (0..KEYS).for_each(|id| assert!(it.insert(id, 0)));
    on_threads(THREADS, |thread| {
        let mut least = [0; KEYS as usize];
        for round in 0..rounds {
            let id = (thread as u32 + round as u32) % KEYS;
            let after = it.add(id, 1).unwrap();
            assert!(after > least[id as usize], "a counter has gone back");
            least[id as usize] = after;
            let id = (id + 1) % KEYS;
            let seen = it.get(id).unwrap();
            assert!(seen >= least[id as usize], "a counter has gone back");
            least[id as usize] = seen;
        }
    });
    let total: u64 = (0..KEYS).map(|id| it.get(id).unwrap()).sum();
    assert_eq!(total, THREADS as u64 * rounds);
}

#[test]
fn no_increment_is_lost() {
    increments::<Counter>();
    increments::<Note>();
}

/// Rows come and go under all five operations. Each successful insert, upsert and delete says whether a row
/// existed, so in the end the sums must match the rows that exist, key by key. Memory must stop growing after a
/// warm-up.
fn churn<R: Row>(seed: &Seed) {
    const KEYS: usize = 4;
    let it = Fixture::<R>::new();
    let appeared: [Word; KEYS] = Default::default();
    let disappeared: [Word; KEYS] = Default::default();
    let rounds = |factor: usize| 4_000 * factor;
    let load = |first: u64, factor: usize| {
        on_threads(THREADS, |thread| {
            let mut random = seed.random(thread + THREADS * first as usize);
            for _ in 0..rounds(factor) {
                let key = random.usize(..KEYS);
                let (id, value) = (key as u32, random.u64(..1_000));
                match random.u8(..6) {
                    0 if it.insert(id, value) => drop(appeared[key].fetch_add(1, RELAXED)),
                    1 if !it.upsert(id, value) => drop(appeared[key].fetch_add(1, RELAXED)),
                    2 | 3 if it.delete(id) => drop(disappeared[key].fetch_add(1, RELAXED)),
                    4 => drop(it.add(id, 1)),
                    5 => drop(it.get(id)),
                    _ => {}
                }
                if random.u8(..32) == 0 {
                    yield_now();
                }
            }
        });
        for key in 0..KEYS {
            let there = appeared[key].load(RELAXED) - disappeared[key].load(RELAXED);
            assert_eq!(there, u64::from(it.get(key as u32).is_some()), "key {key}");
        }
    };
    load(0, 1);
    load(1, 1);
    let warm = it.database.metrics().memory.chunk_bytes;
    load(2, 5 * stress());
    let after = it.database.metrics().memory.chunk_bytes;
    let room = (2 << 20) * 2 * THREADS as u64;
    assert!(after <= warm + room, "chunks grew from {warm} to {after} bytes");
}

const RELAXED: Ordering = Ordering::Relaxed;

#[test]
fn memory_stays_bounded_as_rows_come_and_go() {
    let seed = Seed::draw();
    churn::<Counter>(&seed);
    churn::<Note>(&seed);
}

/// Every row is dropped exactly once, whether it was committed, replaced, deleted or rolled back.
#[test]
fn rows_are_dropped_once() {
    #[derive(Debug, Record)]
    #[record(table = "counted", volatile)]
    struct Counted {
        #[record(key)]
        id: u32,
        live: &'static Live,
    }
    #[derive(Debug)]
    struct Live(Word);
    impl Counted {
        fn new(id: u32, live: &'static Live) -> Self {
            live.0.fetch_add(1, RELAXED);
            Counted { id, live }
        }
    }
    impl Clone for Counted {
        fn clone(&self) -> Self {
            Counted::new(self.id, self.live)
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            let before = self.live.0.fetch_add(u64::MAX, RELAXED);
            assert!((1..1 << 40).contains(&before), "a row was dropped twice");
        }
    }
    let live: &'static Live = Box::leak(Box::new(Live(Word::new(0))));
    let seed = Seed::draw();
    let database = Database::builder().protocol::<Atomic>().table::<Counted>().open().unwrap();
    let table = database.table::<Counted>().unwrap();
    on_threads(THREADS, |thread| {
        let mut random = seed.random(thread);
        for _ in 0..3_000 {
            let id = random.u32(..3);
            let ended = database.transact(|tx| match random.u8(..4) {
                0 => tx.insert(&table, Counted::new(id, live)),
                1 => tx.upsert(&table, Counted::new(id, live)).map(drop),
                2 => tx.update(&table, &id, |_| ()).map(drop),
                _ => tx.delete(&table, &id).map(drop),
            });
            match ended {
                Ok(()) | Err(Error::Failure(Failure::DuplicateKey { .. })) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    drop((database, table));
    assert_eq!(live.0.load(RELAXED), 0);
}

// ---- what the protocol refuses -------------------------------------------------------------------

fn single_key(table: &'static str, attempted: &'static str) -> Failure {
    Failure::SingleKey { protocol: Atomic::NAME, table, attempted }
}

fn failure<R>(result: Result<R, Error>) -> Failure {
    match result {
        Err(Error::Failure(failure)) => failure,
        Err(Error::Conflict(conflict)) => panic!("{conflict}"),
        Ok(_) => panic!("it was allowed"),
    }
}

#[test]
fn a_second_operation_is_refused_and_nothing_happens() {
    let it = Fixture::<Counter>::new();
    it.insert(1, 10);
    it.insert(2, 20);
    let refused = single_key("counters", "a second operation in one transaction");
    let both = it.database.transact(|tx| {
        tx.update(&it.table, &1, |row| row.set(11))?;
        tx.update(&it.table, &2, |row| row.set(21))
    });
    assert_eq!(failure(both), refused);
    assert_eq!((it.get(1), it.get(2)), (Some(10), Some(20)));
    // Also on the same row, after a read, and inside the closure of an update.
    let again = it.database.transact(|tx| {
        tx.get(&it.table, &1)?;
        tx.get(&it.table, &1).map(drop)
    });
    assert_eq!(failure(again), refused);
    let inside = it.database.transact(|tx| {
        tx.update(&it.table, &1, |row| {
            let other = tx.get(&it.table, &2)?;
            row.set(other.map_or(0, |row| row.value));
            Ok::<_, Error>(())
        })?
        .expect("the row exists")
    });
    assert_eq!(failure(inside), refused);
    assert_eq!(it.get(1), Some(10));
    let message = refused.to_string();
    for words in ["counters", "atomic", "a second operation", "another protocol"] {
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn scans_are_refused() {
    let it = Fixture::<Note>::new();
    it.insert(1, 10);
    let scanned = it.database.transact(|tx| {
        tx.range(&it.table, ..).next().transpose()?;
        Ok::<_, Error>(())
    });
    assert_eq!(failure(scanned), single_key("notes", "a scan"));
    let scanned = it.database.transact(|tx| {
        let mut scan = tx.range(&it.table, ..).descending();
        assert!(scan.next().is_some_and(|row| row.is_err()));
        assert!(scan.next().is_none(), "a scan ends after its error");
        Ok::<_, Error>(())
    });
    assert_eq!(failure(scanned), single_key("notes", "a scan"), "an error is not overlooked");
}

#[test]
fn secondary_indexes_are_refused_at_the_start() {
    let opened =
        Database::builder().protocol::<Atomic>().table::<Counter>().table::<Indexed>().open();
    assert_eq!(opened.unwrap_err(), single_key("indexed", "a secondary index"));
}

#[test]
fn prefetching_is_not_an_operation() {
    let it = Fixture::<Counter>::new();
    it.insert(1, 10);
    it.delete(1);
    it.insert(1, 11);
    let found = it.database.transact(|tx| {
        tx.prefetch(&it.table, [1, 2, 3])?;
        tx.prefetch_for_update(&it.table, [1])?;
        tx.update(&it.table, &1, |row| row.value)
    });
    assert_eq!(found.unwrap(), Some(11));
}
