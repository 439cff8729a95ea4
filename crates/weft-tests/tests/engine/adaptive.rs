//! Tests of the protocol `adaptive`: that nothing is lost while what it does changes at random, that a leaked transaction
//! stops no others, and what it reports.

use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};
use weft::operation::Add;
use weft::{Database, Error, Record, Table, column_of};
use weft_inspect::InspectDatabase;
use weft_inspect::report::Action;
use weft_protocols::{Adaptive, AdaptiveOptions, BuilderExt, LabelledDatabase, PhaseOptions};
use weft_tests::StopOnDrop;

const COUNTERS: u32 = 4;
const THREADS: u64 = 3;
const TRANSACTIONS: u64 = 400;

#[derive(Clone, Debug, PartialEq, Record)]
struct Counter {
    #[record(key)]
    id: u32,
    count: i64,
    changes: i64,
}

/// A request that waits in the queue of a shop.
#[derive(Clone, Debug, PartialEq, Record)]
struct Request {
    #[record(key)]
    number: u64,
    amount: i64,
}

fn open(
    options: AdaptiveOptions,
    phases: PhaseOptions,
) -> (Database<Adaptive>, Table<Counter>, Table<Request>) {
    let builder = Database::builder().protocol::<Adaptive>().table::<Counter>().table::<Request>();
    let database = builder.adaptive(options).phases(phases).open().expect("the database opens");
    let (counters, requests) = (database.table().unwrap(), database.table().unwrap());
    let loaded: Result<(), Error> = database.transact(|tx| {
        (0..COUNTERS).try_for_each(|id| tx.insert(&counters, Counter { id, count: 0, changes: 0 }))
    });
    loaded.expect("the table is empty");
    (database, counters, requests)
}

/// Threads increment counters by operations and by updates, move amounts, and take the head of a queue, while all
/// decisions change at random. The sums show anything that is lost or done twice.
#[test]
fn nothing_is_lost_while_decisions_change_at_random() {
    for seed in 0..3 {
        let mut phases = PhaseOptions::new();
        phases.is_hasty = true;
        let (database, counters, requests) =
            open(AdaptiveOptions::new().forced_by_seed(Some(seed)), phases);
        let run = |thread: u64| {
            let mut random = fastrand::Rng::with_seed(seed << 8 | thread);
            let mut expected = (0, 0);
            for round in 0..TRANSACTIONS {
                let (one, other) = (random.u32(..COUNTERS), random.u32(..COUNTERS));
                match random.u32(..4) {
                    0 => {
                        let added: Result<(), Error> = database
                            .transact(|tx| tx.add(&counters, &one, column_of!(Counter.count), 1));
                        added.unwrap();
                        expected.0 += 1;
                    }
                    1 => {
                        let moved: Result<(), Error> = database.transact(|tx| {
                            tx.update(&counters, &one, |row| row.count -= 1)?;
                            tx.update(&counters, &other, |row| row.count += 1)?;
                            tx.add(&counters, &other, column_of!(Counter.changes), 1)
                        });
                        moved.unwrap();
                    }
                    2 => {
                        let request = Request { number: round * THREADS + thread, amount: 1 };
                        let sent: Result<(), Error> =
                            database.transact(|tx| tx.insert(&requests, request.clone()));
                        sent.unwrap();
                        expected.1 += 1;
                    }
                    _ => {
                        let taken: Result<i64, Error> = database.transact(|tx| {
                            let Some(first) = tx.range(&requests, ..).next().transpose()? else {
                                return Ok(0);
                            };
                            let (number, amount) = (first.number, first.amount);
                            tx.delete(&requests, &number)?;
                            tx.add(&counters, &one, column_of!(Counter.count), amount)?;
                            Ok(amount)
                        });
                        let taken = taken.unwrap();
                        expected = (expected.0 + taken, expected.1 - taken);
                    }
                }
            }
            expected
        };
        let expected = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
        });
        let found: Result<(i64, i64), Error> = database.transact(|tx| {
            let mut sums = (0, 0);
            for counter in tx.range(&counters, ..) {
                sums.0 += counter?.count;
            }
            for request in tx.range(&requests, ..) {
                sums.1 += request?.amount;
            }
            Ok(sums)
        });
        assert_eq!(found.unwrap(), expected, "seed {seed}");
    }
}

/// A transaction that is leaked in the midst of its work keeps its turns. The others go on without theirs.
#[test]
fn leaked_transaction_stops_no_others() {
    let mut phases = PhaseOptions::new();
    phases.is_hasty = true;
    let (database, counters, _) = open(AdaptiveOptions::new().forced_by_seed(Some(0)), phases);
    std::thread::scope(|scope| {
        let leak = || {
            let transaction = database.begin().expect("a worker is free");
            for id in 0..COUNTERS {
                transaction.update(&counters, &id, |row| row.count += 100).unwrap();
            }
            std::mem::forget(transaction);
        };
        scope.spawn(leak).join().unwrap();
    });
    for _ in 0..200 {
        for id in 0..COUNTERS {
            let updated: Result<_, Error> =
                database.transact(|tx| tx.update(&counters, &id, |row| row.count += 1));
            updated.unwrap();
        }
    }
    let rows: Result<Vec<i64>, Error> = database
        .transact(|tx| tx.range(&counters, ..).map(|row| row.map(|row| row.count)).collect());
    assert_eq!(rows.unwrap(), [200; COUNTERS as usize]);
}

/// Transactions conflict about updates, which cannot be split. Phases begin, find nothing to do, and end, although the
/// conflicts go on. Fault: after each look for records to split, phases had to be quiet for that long once more. So they never
/// ended, and all threads were stopped fifty times a second.
#[test]
fn phases_end_if_nothing_can_be_done() {
    let options = AdaptiveOptions::new().forced_by_seed(None).orders(false);
    let (database, counters, _) = open(options, PhaseOptions::new());
    let is_over = Word::new(0);
    let conflict = || {
        let updated: Result<_, Error> = database.transact(|tx| {
            let updated = tx.update(&counters, &1, |row| row.count += 1)?;
            std::thread::yield_now();
            Ok(updated)
        });
        updated.unwrap();
    };
    let has_phases = || database.metrics().phases.expect("it has phases").has_phases;
    let until = |is_reached: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_reached() {
            conflict();
            assert!(begun.elapsed() < Duration::from_secs(60), "phases: {}", has_phases());
        }
    };
    std::thread::scope(|scope| {
        let _stops = StopOnDrop(&is_over);
        for _ in 0..2 {
            scope.spawn(|| {
                while is_over.load(Ordering::Relaxed) == 0 {
                    conflict();
                }
            });
        }
        until(&has_phases);
        until(&|| !has_phases());
    });
}

/// The report names a split record by its table and key, and is empty as long as nothing is done.
#[test]
fn report_names_what_is_done() {
    let phases = PhaseOptions::new().length(Duration::from_secs(3600));
    let (database, counters, _) = open(AdaptiveOptions::new().forced_by_seed(None), phases);
    assert_eq!(database.contention().unwrap().points, []);
    database.label_split::<_, _, Add<_>>(&counters, &2, column_of!(Counter.count)).unwrap();
    let points = database.contention().unwrap().points;
    assert_eq!(points.len(), 1);
    assert_eq!((points[0].table.as_str(), points[0].key.as_deref()), ("counter", Some("2")));
    assert_eq!((&points[0].index, points[0].action), (&None, Action::Split));
    let nested = database.transact(|_| {
        Ok::<_, Error>(matches!(database.contention(), Err(weft::Failure::NestedTransaction)))
    });
    assert!(nested.unwrap());
}
