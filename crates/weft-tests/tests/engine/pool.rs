//! Tests of stashes and pools. A request that must wait for a joined phase is stashed, runs first in that phase,
//! and has ended before the next split phase begins. Every submission ends, and its submitter gets the result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use pollster::block_on;
use weft::operation::Add;
use weft::protocol::{PhaseMetrics, Protocol, Silo};
use weft::{
    Database, DurabilityOptions, Error, Failure, Pool, PoolOptions, Record, Stash, Submission,
    SubmitOptions, Table, Transaction, TransactionOptions, column_of,
};
use weft_protocols::PhaseOptions;
use weft_protocols::doppel::{JoinedProtocol, PhaseReconciliation};
use weft_protocols::{BuilderExt, LabelledDatabase};

use weft_tests::{TemporaryDirectory, TestBarrier, over_joined_protocols};

type Reconciled<J> = PhaseReconciliation<J>;

#[derive(Clone, Debug, PartialEq, Record)]
struct Page {
    #[record(key)]
    number: u32,
    likes: u64,
    title: String,
}

/// The page that is split, because its `likes` column is labelled.
const POPULAR: u32 = 1;
const PAGES: u32 = 3;

fn fill<P: Protocol>(database: &Database<P>) -> Table<Page> {
    let pages = database.table::<Page>().expect("the table is registered");
    let inserted: Result<(), Error> = database.transact(|tx| {
        (1..=PAGES).try_for_each(|number| {
            tx.insert(&pages, Page { number, likes: 0, title: format!("page {number}") })
        })
    });
    inserted.expect("the table is empty");
    pages
}

/// Opens a database whose phases end only when a thread waits, or a stash is full.
fn open<J: JoinedProtocol>() -> (Database<Reconciled<J>>, Table<Page>) {
    open_with(Duration::from_secs(3600))
}

fn open_with<J: JoinedProtocol>(length: Duration) -> (Database<Reconciled<J>>, Table<Page>) {
    let phases = PhaseOptions::new().length(length);
    let database = Database::builder().protocol::<Reconciled<J>>().table::<Page>().phases(phases);
    let database = database.open().expect("the database opens");
    let pages = fill(&database);
    let column = column_of!(Page.likes);
    database
        .label_split::<_, _, Add<_>>(&pages, &POPULAR, column)
        .expect("the column can be split");
    (database, pages)
}

fn metrics<J: JoinedProtocol>(database: &Database<Reconciled<J>>) -> PhaseMetrics {
    database.metrics().phases.expect("it has phases")
}

fn like<P: Protocol>(database: &Database<P>, pages: &Table<Page>, page: u32) {
    let liked: Result<(), Error> =
        database.transact(|tx| tx.add(pages, &page, column_of!(Page.likes), 1));
    liked.expect("the sum fits");
}

/// Likes the popular page until a split phase has begun, and returns how often it did.
fn into_split_phase<J: JoinedProtocol>(
    database: &Database<Reconciled<J>>,
    pages: &Table<Page>,
) -> u64 {
    let mut likes = 0;
    while !metrics(database).is_split {
        like(database, pages, POPULAR);
        likes += 1;
        assert!(likes < 1_000_000, "no split phase has begun");
    }
    likes
}

fn likes_of<P: Protocol>(
    tx: &Transaction<'_, P>,
    pages: &Table<Page>,
    page: u32,
) -> Result<u64, Error> {
    Ok(tx.get(pages, &page)?.expect("the row exists").likes)
}

over_joined_protocols!(
    requests_for_split_records_wait_for_the_next_joined_phase
    no_split_phase_begins_before_every_stash_is_empty
    stash_that_missed_a_joined_phase_waits_for_the_next
    dropped_stash_does_not_delay_split_phases
    full_stash_makes_its_thread_wait
    stashed_requests_can_be_taken_out
    user_errors_and_panics_are_not_stashed
    stashes_lose_no_request
    pool_runs_every_submission
    idle_pool_ends_the_phase
    pool_runs_other_requests_while_one_is_stashed
    pool_acknowledges_durable_commits
);

mod cases {
    use super::*;

    type Read = (u32, Result<u64, Error>);

    /// Reads a page, or stashes the request.
    fn read<J: JoinedProtocol>(
        stash: &mut Stash<u32, Reconciled<J>>,
        pages: &Table<Page>,
        page: u32,
    ) -> Option<Read> {
        stash.transact(page, |tx, &mut page| likes_of(tx, pages, page))
    }

    pub fn requests_for_split_records_wait_for_the_next_joined_phase<J: JoinedProtocol>() {
        let (database, pages) = open::<J>();
        let likes = into_split_phase(&database, &pages);
        let mut stash = database.stash(10);
        assert!(read(&mut stash, &pages, POPULAR).is_none());
        assert!(read(&mut stash, &pages, POPULAR).is_none());
        assert!(matches!(read(&mut stash, &pages, 2), Some((2, Ok(0)))), "page 2 is not split");
        let liked = stash.transact(POPULAR, |tx, page| -> Result<(), Error> {
            tx.add(&pages, page, column_of!(Page.likes), 1)
        });
        assert!(matches!(liked, Some((POPULAR, Ok(())))), "the page is split for likes");
        assert_eq!((stash.len(), stash.take_due()), (2, None));
        let split = metrics(&database);
        assert!(split.is_split);
        assert_eq!((split.refused, split.stashed), (2, 2));
        stash.wait().unwrap();
        for left in [1, 0] {
            assert_eq!(stash.take_due(), Some(POPULAR));
            assert_eq!(stash.len(), left);
            let (_, found) = read(&mut stash, &pages, POPULAR).expect("the row is whole");
            assert_eq!(found.unwrap(), likes + 1);
        }
        assert_eq!(stash.take_due(), None);
    }

    pub fn no_split_phase_begins_before_every_stash_is_empty<J: JoinedProtocol>() {
        let (database, pages) = open::<J>();
        into_split_phase(&database, &pages);
        let mut stash = database.stash(10);
        for _ in 0..2 {
            assert!(read(&mut stash, &pages, POPULAR).is_none());
        }
        stash.wait().unwrap();
        for _ in 0..2 {
            for _ in 0..20_000 {
                like(&database, &pages, POPULAR);
            }
            assert!(!metrics(&database).is_split, "a split phase began before the stash was empty");
            let request = stash.take_due().expect("two requests were stashed");
            read(&mut stash, &pages, request).expect("the row is whole").1.unwrap();
        }
        assert!(stash.is_empty() && stash.take_due().is_none());
        into_split_phase(&database, &pages);
    }

    pub fn stash_that_missed_a_joined_phase_waits_for_the_next<J: JoinedProtocol>() {
        let (database, pages) = open_with::<J>(Duration::from_millis(30));
        let mut stash = database.stash(10);
        // Repeats if the phase ends before the read.
        while stash.is_empty() {
            into_split_phase(&database, &pages);
            read(&mut stash, &pages, POPULAR);
        }
        // The phase ends. The next joined phase ends when it has lasted long enough for the stash to have had a
        // turn.
        let found: Result<u64, Error> = database.transact(|tx| likes_of(tx, &pages, POPULAR));
        found.unwrap();
        into_split_phase(&database, &pages);
        assert_eq!(stash.take_due(), None, "the record is split again");
        stash.wait().unwrap();
        assert_eq!(stash.take_due(), Some(POPULAR), "no other thread could end the phase");
    }

    pub fn dropped_stash_does_not_delay_split_phases<J: JoinedProtocol>() {
        let (database, pages) = open::<J>();
        into_split_phase(&database, &pages);
        let mut stash = database.stash(10);
        assert!(read(&mut stash, &pages, POPULAR).is_none());
        let read: Result<u64, Error> = database.transact(|tx| likes_of(tx, &pages, POPULAR));
        read.unwrap();
        assert!(!metrics(&database).is_split, "the read waited for a joined phase");
        drop(stash);
        into_split_phase(&database, &pages);
    }

    pub fn full_stash_makes_its_thread_wait<J: JoinedProtocol>() {
        let (database, pages) = open::<J>();
        let likes = into_split_phase(&database, &pages);
        let mut stash = database.stash(2);
        for _ in 0..2 {
            assert!(!stash.is_full());
            assert!(read(&mut stash, &pages, POPULAR).is_none());
        }
        assert!(stash.is_full());
        let (_, found) = read(&mut stash, &pages, POPULAR).expect("a full stash takes no request");
        assert_eq!(found.unwrap(), likes);
        assert_eq!(metrics(&database).stashed, 2);
        assert!(stash.take_due().is_some());
    }

    pub fn stashed_requests_can_be_taken_out<J: JoinedProtocol>() {
        let (database, pages) = open::<J>();
        into_split_phase(&database, &pages);
        let mut stash = database.stash(10);
        assert!(read(&mut stash, &pages, POPULAR).is_none());
        database.close().unwrap();
        assert_eq!(stash.wait(), Err(Failure::Closed));
        assert_eq!(stash.take_all().collect::<Vec<_>>(), [POPULAR]);
        assert!(stash.is_empty());
        assert_eq!(stash.wait(), Ok(()), "an empty stash has nothing to wait for");
        let after = read(&mut stash, &pages, POPULAR).expect("a closed database refuses it").1;
        assert!(matches!(after, Err(Error::Failure(Failure::Closed))), "{after:?}");
    }

    pub fn user_errors_and_panics_are_not_stashed<J: JoinedProtocol>() {
        let (database, pages) = open::<J>();
        into_split_phase(&database, &pages);
        let mut stash = database.stash::<u32>(10).options(TransactionOptions::new().retries_max(3));
        let ended = stash.transact(POPULAR, |tx, _| {
            tx.add(&pages, &POPULAR, column_of!(Page.likes), 1)?;
            Err::<(), Error>(Failure::Closed.into())
        });
        assert!(matches!(ended, Some((POPULAR, Err(Error::Failure(Failure::Closed))))));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            stash.transact(POPULAR, |tx, _| -> Result<(), Error> {
                tx.add(&pages, &POPULAR, column_of!(Page.likes), 1)?;
                panic!("on purpose")
            })
        }));
        assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
        // The transaction is refused even if its closure ignores the error.
        let swallowed = stash.transact(POPULAR, |tx, &mut page| {
            let _ = likes_of(tx, &pages, page);
            Ok::<(), Error>(())
        });
        assert!(swallowed.is_none());
        let nested: Result<(), Error> = database.transact(|_tx| {
            let nested = read(&mut stash, &pages, 2).expect("a nested transaction is refused").1;
            assert!(matches!(nested, Err(Error::Failure(Failure::NestedTransaction))));
            assert_eq!(stash.wait(), Err(Failure::NestedTransaction));
            Ok(())
        });
        nested.unwrap();
        assert_eq!(stash.len(), 1);
        // Without a stash, the thread waits.
        let read: Result<u64, Error> = database.transact(|tx| likes_of(tx, &pages, POPULAR));
        read.unwrap();
    }

    pub fn stashes_lose_no_request<J: JoinedProtocol>() {
        const THREADS: u64 = 3;
        const REQUESTS: u64 = 3000;
        let phases = PhaseOptions::new().length(Duration::from_micros(200));
        let database =
            Database::builder().protocol::<Reconciled<J>>().table::<Page>().phases(phases);
        let database = database.open().unwrap();
        let pages = fill(&database);
        for page in 1..=PAGES {
            let column = column_of!(Page.likes);
            database.label_split::<_, _, Add<_>>(&pages, &page, column).unwrap();
        }
        let work = |thread: u64| {
            let mut random = fastrand::Rng::with_seed(thread);
            let mut stash = database.stash::<(u64, bool)>(random.usize(1..40));
            // Requests that were begun and requests that have ended. Each request ends exactly once.
            let (mut begun, mut ended, mut likes) = (0, 0, 0);
            while ended < REQUESTS {
                let request = stash.take_due().or_else(|| {
                    (begun < REQUESTS).then(|| {
                        begun += 1;
                        (begun, random.bool())
                    })
                });
                let Some(request) = request else {
                    stash.wait().unwrap();
                    continue;
                };
                let done = stash.transact(request, |tx, &mut (number, is_like)| match is_like {
                    true => {
                        let page = 1 + (number % u64::from(PAGES)) as u32;
                        tx.add(&pages, &page, column_of!(Page.likes), 1)
                    }
                    false => {
                        // Reads all pages in one transaction.
                        (1..=PAGES).try_for_each(|page| likes_of(tx, &pages, page).map(drop))
                    }
                });
                if let Some(((_, is_like), result)) = done {
                    result.unwrap();
                    ended += 1;
                    likes += u64::from(is_like);
                }
            }
            assert!(stash.is_empty());
            likes
        };
        let likes: u64 = thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let total: Result<u64, Error> =
            database.transact(|tx| (1..=PAGES).map(|page| likes_of(tx, &pages, page)).sum());
        assert_eq!(total.unwrap(), likes);
        let metrics = metrics(&database);
        assert!(metrics.stashed > 0 && metrics.split_phases > 1, "{metrics:?}");
    }

    pub fn pool_runs_every_submission<J: JoinedProtocol>() {
        let (database, pages) = open::<J>();
        let options = PoolOptions::new().threads(2).queue(8).stash(16);
        let pool = database.pool(&options).unwrap();
        let mut liked: Vec<Submission<(), Error>> = Vec::new();
        let mut read: Vec<Submission<u64, Error>> = Vec::new();
        for number in 0..2000 {
            let pages = pages.clone();
            if number % 4 == 3 {
                read.push(pool.submit(move |tx| likes_of(tx, &pages, POPULAR)));
            } else {
                liked.push(
                    pool.submit(move |tx| tx.add(&pages, &POPULAR, column_of!(Page.likes), 1)),
                );
            }
        }
        liked.into_iter().for_each(|liked| liked.wait().unwrap());
        assert!(read.into_iter().all(|read| read.wait().unwrap() <= 1500));
        drop(pool);
        let found: Result<u64, Error> = database.transact(|tx| likes_of(tx, &pages, POPULAR));
        assert_eq!(found.unwrap(), 1500);
        assert!(metrics(&database).split_phases > 0);
    }

    pub fn idle_pool_ends_the_phase<J: JoinedProtocol>() {
        let (database, pages) = open::<J>();
        let likes = into_split_phase(&database, &pages);
        let pool = database.pool(&PoolOptions::new().threads(1)).unwrap();
        let read = {
            let pages = pages.clone();
            pool.submit(move |tx| likes_of(tx, &pages, POPULAR))
        };
        assert_eq!(read.wait().unwrap(), likes);
        assert_eq!(metrics(&database).stashed, 1);
    }

    pub fn pool_runs_other_requests_while_one_is_stashed<J: JoinedProtocol>() {
        let (database, pages) = open::<J>();
        let pool = database.pool(&PoolOptions::new().threads(1).queue(100)).unwrap();
        // Runs a first request, so that the pool's thread has its slice from the beginning of the phase.
        pool.submit(|_tx| Ok::<(), Error>(())).wait().unwrap();
        let likes = into_split_phase(&database, &pages);
        // While this thread is in a transaction of the split phase, the phase cannot end.
        let transaction = database.begin().unwrap();
        transaction.add(&pages, &POPULAR, column_of!(Page.likes), 1).unwrap();
        // The pool's only thread is blocked until all requests are queued.
        let (begun, go) = (Arc::new(TestBarrier::new(2)), Arc::new(TestBarrier::new(2)));
        let first: Submission<(), Error> = {
            let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
            pool.submit(move |_tx| {
                begun.wait();
                go.wait();
                Ok(())
            })
        };
        begun.wait();
        let read = {
            let pages = pages.clone();
            pool.submit(move |tx| likes_of(tx, &pages, POPULAR))
        };
        let liked: Vec<Submission<(), Error>> = (0..50)
            .map(|number| {
                let (pages, page) = (pages.clone(), if number % 2 == 0 { POPULAR } else { 2 });
                pool.submit(move |tx| tx.add(&pages, &page, column_of!(Page.likes), 1))
            })
            .collect();
        go.wait();
        first.wait().unwrap();
        liked.into_iter().for_each(|liked| liked.wait().unwrap());
        assert!(!read.has_ended(), "the read ended in a split phase");
        transaction.commit().unwrap();
        assert_eq!(read.wait().unwrap(), likes + 26);
    }

    pub fn pool_acknowledges_durable_commits<J: JoinedProtocol>() {
        let directory = TemporaryDirectory::new("pool");
        let open = || {
            let phases = PhaseOptions::new().length(Duration::from_millis(2));
            Database::builder()
                .protocol::<Reconciled<J>>()
                .table::<Page>()
                .phases(phases)
                .directory(&directory.0)
                .durability(DurabilityOptions::new())
                .open()
                .unwrap()
        };
        let database = open();
        let pages = fill(&database);
        let column = column_of!(Page.likes);
        database.label_split::<_, _, Add<_>>(&pages, &POPULAR, column).unwrap();
        let pool = database.pool(&PoolOptions::new().threads(2)).unwrap();
        let submit = |pool: &Pool<_>| -> Submission<(), Error> {
            let pages = pages.clone();
            pool.submit(move |tx| tx.add(&pages, &POPULAR, column_of!(Page.likes), 1))
        };
        for _ in 0..3 {
            let liked: Vec<_> = (0..100).map(|_| submit(&pool)).collect();
            let before = database.durable_epoch().unwrap();
            liked.into_iter().for_each(|liked| liked.wait().unwrap());
            assert!(
                database.durable_epoch().unwrap() > before,
                "likes were acknowledged before they were durable"
            );
        }
        database.close().unwrap();
        let refused = submit(&pool).wait().unwrap_err();
        assert!(matches!(refused, Error::Failure(Failure::Closed)), "{refused}");
        drop((pool, pages, database));
        let database = open();
        let pages = database.table::<Page>().unwrap();
        let found: Result<u64, Error> = database.transact(|tx| likes_of(tx, &pages, POPULAR));
        assert_eq!(found.unwrap(), 300);
    }
}

fn open_silo() -> (Database<Silo>, Table<Page>) {
    let database = Database::builder().protocol::<Silo>().table::<Page>().open().unwrap();
    let pages = fill(&database);
    (database, pages)
}

#[test]
fn a_submission_can_be_awaited() {
    let (database, pages) = open_silo();
    let pool = database.pool(&PoolOptions::new().threads(1)).unwrap();
    let begun = Arc::new(TestBarrier::new(2));
    let liked = {
        let (begun, pages) = (Arc::clone(&begun), pages.clone());
        pool.submit(move |tx| {
            begun.wait();
            tx.add(&pages, &2, column_of!(Page.likes), 7)?;
            likes_of(tx, &pages, 2)
        })
    };
    let mut future = Box::pin(liked);
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "the request has not begun");
    begun.wait();
    assert_eq!(block_on(future).unwrap(), 7);
    assert_eq!(block_on(pool.submit(move |tx| likes_of(tx, &pages, 2))).unwrap(), 7);
}

#[test]
fn a_full_queue_refuses() {
    let (database, pages) = open_silo();
    let pool = database.pool(&PoolOptions::new().threads(1).queue(1)).unwrap();
    let (begun, go) = (Arc::new(TestBarrier::new(2)), Arc::new(TestBarrier::new(2)));
    let first: Submission<(), Error> = {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        pool.submit(move |_tx| {
            begun.wait();
            go.wait();
            Ok(())
        })
    };
    begun.wait();
    let like = |likes: u64| {
        let pages = pages.clone();
        move |tx: &Transaction<'_, Silo>| -> Result<(), Error> {
            tx.add(&pages, &2, column_of!(Page.likes), likes)
        }
    };
    let second = pool
        .try_submit(&SubmitOptions::new(), like(1))
        .unwrap_or_else(|_| panic!("the queue has room"));
    assert_eq!(pool.queued(), 1);
    let Err(third) = pool.try_submit(&SubmitOptions::new(), like(10)) else {
        panic!("the queue is full")
    };
    go.wait();
    first.wait().unwrap();
    second.wait().unwrap();
    pool.submit(third).wait().unwrap();
    let found: Result<u64, Error> = database.transact(|tx| likes_of(tx, &pages, 2));
    assert_eq!(found.unwrap(), 11);
}

#[test]
fn errors_and_panics_reach_the_submitter() {
    #[derive(Debug)]
    enum Own {
        NotEnough(u64),
        Engine(Error),
    }

    impl From<Error> for Own {
        fn from(error: Error) -> Self {
            Own::Engine(error)
        }
    }

    let (database, pages) = open_silo();
    let pool = database.pool(&PoolOptions::new().threads(1)).unwrap();
    let own = {
        let pages = pages.clone();
        pool.submit(move |tx| -> Result<(), Own> {
            tx.add(&pages, &2, column_of!(Page.likes), 5)?;
            Err(Own::NotEnough(likes_of(tx, &pages, 2)?))
        })
    };
    assert!(matches!(own.wait(), Err(Own::NotEnough(5))));
    let missing = {
        let pages = pages.clone();
        pool.submit(move |tx| -> Result<(), Own> {
            Ok(tx.add(&pages, &77, column_of!(Page.likes), 5)?)
        })
    };
    let missing = missing.wait().unwrap_err();
    let Own::Engine(Error::Failure(Failure::NoSuchRow { .. })) = missing else {
        panic!("{missing:?}");
    };
    let panics = || {
        let pages = pages.clone();
        pool.submit(move |tx| -> Result<(), Own> {
            tx.add(&pages, &2, column_of!(Page.likes), 5)?;
            panic!("on purpose")
        })
    };
    let panicked = catch_unwind(AssertUnwindSafe(|| panics().wait())).unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"on purpose"));
    let panicked = catch_unwind(AssertUnwindSafe(|| block_on(panics()))).unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"on purpose"));
    // The pool's thread goes on, and the failed transactions have changed nothing.
    let found = pool.submit(move |tx| likes_of(tx, &pages, 2)).wait().unwrap();
    assert_eq!(found, 0);
}

#[test]
fn protocols_without_phases_stash_nothing() {
    let (database, pages) = open_silo();
    let mut stash = database.stash(0);
    let liked = stash.transact(2, |tx, page| tx.add(&pages, page, column_of!(Page.likes), 1));
    assert!(matches!(liked, Some((2, Ok::<(), Error>(())))));
    assert!(stash.is_empty() && stash.wait().is_ok() && stash.take_due().is_none());
}
