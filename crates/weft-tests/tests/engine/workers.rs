//! Tests of workers, which a thread has for the time of a transaction. More threads than workers use a database; a thread
//! that finds all workers busy waits, in its turn, until its deadline, or until the database is closed.

use std::sync::mpsc::channel;
use std::thread::{self, scope, yield_now};
use std::time::Duration;

use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Record, Table, TransactionOptions};

use weft_tests::{
    TestBarrier, begin_waits, for_each_executor, for_each_kind, on_a_thread, on_threads,
};

#[derive(Clone, Debug, Record)]
struct Hit {
    #[record(key)]
    id: u32,
    count: u64,
    /// Owns memory, so that replaced rows are dropped by whatever thread has their worker.
    text: String,
}

fn open<P: Protocol>(workers: usize) -> (Database<P>, Table<Hit>) {
    let builder = Database::builder().protocol::<P>().table::<Hit>().workers_max(workers);
    let database = builder.open().unwrap();
    let hits = database.table::<Hit>().unwrap();
    for id in 0..8 {
        let row = Hit { id, count: 0, text: String::new() };
        database.transact(|tx| tx.insert(&hits, row.clone())).unwrap();
    }
    (database, hits)
}

fn hit<P: Protocol>(database: &Database<P>, hits: &Table<Hit>, id: u32) -> Result<(), Error> {
    let hit = database.transact(|tx| {
        tx.update(hits, &id, |hit| {
            hit.count += 1;
            hit.text = format!("hit {} times", hit.count);
        })
    });
    assert!(hit? == Some(()), "the row exists");
    Ok(())
}

fn count<P: Protocol>(database: &Database<P>, hits: &Table<Hit>) -> u64 {
    let sum = database.snapshot(|snapshot| {
        snapshot.rows(hits).map(|hit| Ok::<_, Error>(hit?.count)).sum::<Result<u64, _>>()
    });
    sum.unwrap()
}

#[test]
fn more_threads_than_workers_take_turns() {
    for_each_kind!(|P| {
        if P::WORKERS_MAX == 1 {
            continue;
        }
        let (database, hits) = open::<P>(2);
        on_threads(12, |thread| {
            for round in 0..50 {
                hit(&database, &hits, (thread % 8) as u32).unwrap();
                if round % 10 == 0 {
                    count(&database, &hits);
                }
            }
        });
        assert_eq!(count(&database, &hits), 600);
        assert!(database.metrics().workers <= 2);
    });
}

/// All threads are alive until the last one has run its transaction.
#[test]
fn ten_thousand_threads_run_transactions() {
    const THREADS: usize = 10_000;
    let (database, hits) = open::<weft::protocol::Dbx>(256);
    let all = TestBarrier::new(THREADS);
    scope(|scope| {
        for thread in 0..THREADS {
            let (database, hits, all) = (&database, &hits, &all);
            let builder = thread::Builder::new().stack_size(128 << 10);
            let work = move || {
                hit(database, hits, (thread % 8) as u32).unwrap();
                all.wait();
            };
            builder.spawn_scoped(scope, work).expect("the system can start the thread");
        }
    });
    assert_eq!(count(&database, &hits), THREADS as u64);
}

#[test]
fn idle_threads_keep_no_worker() {
    for_each_executor!(|P| {
        let (database, hits) = open::<P>(1);
        let barrier = TestBarrier::new(5);
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Err(error) = hit(&database, &hits, 0) {
                        // Single-threaded protocols accept one thread at a time.
                        assert_eq!(error.to_string(), single_threaded::<P>());
                        yield_now();
                    }
                    // The thread stays alive, and has no worker.
                    barrier.wait();
                    barrier.wait();
                });
            }
            barrier.wait();
            hit(&database, &hits, 0).unwrap();
            barrier.wait();
        });
        assert_eq!(count(&database, &hits), 5);
    });
}

fn single_threaded<P: Protocol>() -> String {
    Failure::SingleThreaded { protocol: P::NAME }.to_string()
}

#[test]
fn wait_for_a_worker_ends_at_the_deadline() {
    for_each_executor!(|P| {
        let (database, hits) = open::<P>(1);
        let held = database.begin().unwrap();
        let options = TransactionOptions::new().deadline(Duration::from_millis(20));
        let body = |tx: &weft::Transaction<'_, P>| tx.get(&hits, &0).map(drop);
        let waited = on_a_thread(|| database.transact_with(&options, body));
        let Err(Error::Failure(failure)) = waited else { panic!("{waited:?}") };
        let deadline = Duration::from_millis(20);
        assert_eq!(failure, Failure::WorkersBusy { workers_max: 1, deadline });
        assert_eq!(
            failure.to_string(),
            "all 1 workers of the database were busy until the transaction's deadline of 20ms; allow more time, \
             run fewer or shorter transactions at the same time, or raise .workers_max(n) in the builder"
        );
        assert_eq!(database.metrics().worker_waits, 1);
        drop(held);
        on_a_thread(|| database.transact_with(&options, body)).unwrap();
    });
}

#[test]
fn threads_get_workers_in_the_order_in_which_they_wait() {
    for_each_executor!(|P| {
        let (database, hits) = open::<P>(1);
        let held = database.begin().unwrap();
        let (sender, order) = channel();
        scope(|scope| {
            for number in 0..5 {
                let (database, hits, sender) = (&database, &hits, sender.clone());
                scope.spawn(move || {
                    database
                        .transact(|tx| {
                            sender.send(number).unwrap();
                            tx.get(hits, &0).map(drop)
                        })
                        .unwrap();
                });
                while database.metrics().worker_waits <= number {
                    yield_now();
                }
            }
            held.rollback();
        });
        drop(sender);
        assert_eq!(order.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    });
}

/// A thread that runs transaction after transaction lets another one have a turn.
#[test]
fn busy_thread_gives_way_to_one_that_waits() {
    for_each_executor!(|P| {
        let (database, hits) = open::<P>(1);
        let stop = Word::new(0);
        scope(|scope| {
            scope.spawn(|| {
                while stop.load(Ordering::SeqCst) == 0 {
                    hit(&database, &hits, 0).unwrap();
                }
            });
            while database.metrics().committed < 1000 {
                yield_now();
            }
            (0..100).for_each(|_| hit(&database, &hits, 1).unwrap());
            stop.store(1, Ordering::SeqCst);
        });
    });
}

#[test]
fn closing_ends_the_wait_for_a_worker() {
    for_each_executor!(|P| {
        let (database, hits) = open::<P>(1);
        let held = database.begin().unwrap();
        scope(|scope| {
            let waiting = scope.spawn(|| hit(&database, &hits, 0));
            while database.metrics().worker_waits == 0 {
                yield_now();
            }
            let closing = scope.spawn(|| database.close());
            let waited = waiting.join().unwrap();
            assert!(matches!(waited, Err(Error::Failure(Failure::Closed))), "{waited:?}");
            held.rollback();
            closing.join().unwrap().unwrap();
        });
    });
}

#[test]
fn threads_that_end_leave_their_workers_to_others() {
    for_each_executor!(|P| {
        let (database, hits) = open::<P>(64);
        for _ in 0..100 {
            on_a_thread(|| hit(&database, &hits, 0).unwrap());
        }
        assert!(database.metrics().workers <= 1, "only this thread still remembers a worker");
        assert_eq!(count(&database, &hits), 100);
    });
}

/// Two threads share a worker, and one of them moves to another one. When all threads have ended, none is counted.
#[test]
fn a_thread_that_moves_to_another_worker_leaves_its_old_one() {
    for_each_executor!(|P| {
        if P::WORKERS_MAX == 1 {
            continue;
        }
        let (database, hits) = on_a_thread(|| open::<P>(2));
        let step = || (TestBarrier::new(2), TestBarrier::new(2));
        let ((moves, moved), (first_has, first_ends), (second_has, second_ends)) =
            (step(), step(), step());
        scope(|scope| {
            let first = scope.spawn(|| {
                hit(&database, &hits, 0).unwrap();
                first_has.wait();
                moves.wait();
                let held = database.begin().unwrap();
                moved.wait();
                moved.wait();
                held.rollback();
                first_ends.wait();
            });
            first_has.wait();
            let second = scope.spawn(|| {
                hit(&database, &hits, 1).unwrap();
                second_has.wait();
                second_ends.wait();
            });
            second_has.wait();
            let third = scope.spawn(|| {
                // No worker is left that no thread remembers, so it shares the first one.
                hit(&database, &hits, 2).unwrap();
                moves.wait();
                moved.wait();
                hit(&database, &hits, 2).unwrap();
                moved.wait();
                first_ends.wait();
                second_ends.wait();
            });
            // The scope alone does not wait until the threads have left their workers.
            for thread in [first, second, third] {
                thread.join().expect("it does not panic");
            }
        });
        assert_eq!(database.metrics().workers, 0);
    });
}

/// A worker is given up before the wait for the disk, or by a handle's commit.
#[test]
fn worker_is_free_as_soon_as_its_transaction_has_ended() {
    for_each_executor!(|P| {
        let (database, hits) = open::<P>(1);
        let tx = database.begin().unwrap();
        assert_eq!(tx.get(&hits, &0).unwrap().unwrap().count, 0);
        tx.commit().unwrap();
        on_a_thread(|| hit(&database, &hits, 0).unwrap());
        // A snapshot inside a transaction uses the transaction's worker.
        if !begin_waits::<P>() {
            let seen = database.transact(|_tx| {
                let snapshot = database.open_snapshot()?;
                Ok::<_, Error>(snapshot.get(&hits, &0)?.map(|hit| hit.count))
            });
            assert_eq!(seen.unwrap(), Some(1));
        }
        on_a_thread(|| hit(&database, &hits, 0).unwrap());
        assert_eq!(count(&database, &hits), 2);
    });
}
