//! Tests of a pool's submissions: they never block an executor, can be cancelled until they begin, have priorities and
//! deadlines, and end with a typed failure if the pool is shut down first. Every procedure is dropped exactly once.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use pollster::block_on;
use weft::column::{ColumnType, DecodeError};
use weft::durability::{Backend, File, LockError, LockGuard, SimulatedDisk};
use weft::htm::word::{Ordering, Word};
use weft::{
    ColumnValue, Database, DurabilityOptions, Error, Failure, Pool, PoolOptions, Priority, Record,
    Submission, SubmitOptions, Table, TransactionOptions,
};

use weft_tests::{Seed, on_a_thread, on_threads, panic_quietly};

#[derive(Clone, Debug, PartialEq, Record)]
struct Counter {
    #[record(key)]
    id: u32,
    value: u64,
}

fn fill(database: &Database) -> Table<Counter> {
    let counters = database.table::<Counter>().expect("the table is registered");
    let row = Counter { id: 1, value: 0 };
    database.transact(|tx| tx.insert(&counters, row.clone())).expect("the table is empty");
    counters
}

fn open() -> (Database, Table<Counter>) {
    let database = Database::builder().table::<Counter>().open().expect("the database opens");
    let counters = fill(&database);
    (database, counters)
}

fn open_on(disk: Arc<dyn Backend>) -> Database {
    let builder = Database::builder().table::<Counter>().directory(Path::new("/database"));
    builder.backend(disk, false).durability(DurabilityOptions::new()).open().unwrap()
}

fn open_durable(disk: &SimulatedDisk) -> Database {
    open_on(Arc::new(disk.clone()))
}

fn value(database: &Database, counters: &Table<Counter>) -> u64 {
    let value = database.transact(|tx| Ok::<_, Error>(tx.get(counters, &1)?.map(|row| row.value)));
    value.unwrap().expect("the row exists")
}

fn add(pool: &Pool, counters: &Table<Counter>) -> Submission<(), Error> {
    let counters = counters.clone();
    pool.submit(move |tx| tx.update(&counters, &1, |row| row.value += 1).map(drop))
}

fn failure<R: std::fmt::Debug>(result: Result<R, Error>) -> Failure {
    match result {
        Err(Error::Failure(failure)) => failure,
        result => panic!("{result:?}"),
    }
}

/// A transaction that runs until the test lets it end.
struct Blocker {
    submission: Submission<(), Error>,
    go: Sender<()>,
}

impl Blocker {
    /// Submits such a transaction, and returns when it has begun.
    fn begin(pool: &Pool) -> Blocker {
        Blocker::begin_with(pool, &SubmitOptions::new().label("blocker"))
    }

    fn begin_with(pool: &Pool, options: &SubmitOptions) -> Blocker {
        let ((begun, has_begun), (go, may_go)) = (mpsc::channel(), mpsc::channel());
        let submission = pool.submit_with(options, move |_tx| {
            begun.send(()).expect("the test waits");
            may_go.recv().expect("the test lets it end");
            Ok(())
        });
        has_begun.recv().expect("a thread of the pool takes it");
        Blocker { submission, go }
    }

    fn end(self) {
        self.go.send(()).expect("it waits");
        self.submission.wait().expect("it does nothing that could fail");
    }
}

fn one_thread() -> PoolOptions {
    PoolOptions::new().threads(1)
}

/// A token that a procedure owns, so that a test sees when the procedure is dropped.
fn token() -> (Arc<()>, Arc<()>) {
    let token = Arc::new(());
    (Arc::clone(&token), token)
}

#[test]
fn an_executor_goes_on_while_the_queue_is_full() {
    let (database, counters) = open();
    let pool = database.pool(&one_thread().queue(1)).unwrap();
    let blocker = Blocker::begin(&pool);
    block_on(async {
        // Each is polled on this thread, which is also the one that lets the pool go on.
        let mut submissions: Vec<_> = (0..1000).map(|_| add(&pool, &counters)).collect();
        for submission in &mut submissions {
            let mut context = Context::from_waker(Waker::noop());
            assert!(pin!(submission).poll(&mut context).is_pending());
        }
        assert_eq!(pool.queued(), 1000);
        assert!(pool.try_submit(&SubmitOptions::new(), |_tx| Ok::<(), Error>(())).is_err());
        blocker.go.send(()).unwrap();
        blocker.submission.await.unwrap();
        for submission in submissions {
            submission.await.unwrap();
        }
    });
    assert_eq!((pool.queued(), value(&database, &counters)), (0, 1000));
}

#[test]
fn a_submission_that_is_dropped_before_it_begins_is_cancelled() {
    let (database, counters) = open();
    let pool = database.pool(&one_thread()).unwrap();
    let blocker = Blocker::begin(&pool);
    let (owned, token) = token();
    let cancelled = {
        let counters = counters.clone();
        pool.submit(move |tx| {
            let _owned = &owned;
            tx.update(&counters, &1, |row| row.value += 1)
        })
    };
    let mut cancelled: Submission<_, Error> = cancelled;
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(&mut cancelled).poll(&mut context).is_pending());
    assert_eq!((pool.queued(), Arc::strong_count(&token)), (1, 2));
    drop(cancelled);
    assert_eq!((pool.queued(), Arc::strong_count(&token)), (0, 1), "it is dropped at once");
    blocker.end();
    add(&pool, &counters).wait().unwrap();
    assert_eq!(value(&database, &counters), 1);
}

#[test]
fn a_submission_that_is_dropped_after_it_has_begun_runs_to_its_end() {
    let (database, counters) = open();
    let pool = database.pool(&one_thread()).unwrap();
    let ((begun, has_begun), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
    let submission: Submission<(), Error> = {
        let counters = counters.clone();
        pool.submit(move |tx| {
            begun.send(()).unwrap();
            let _ = may_go.recv();
            tx.update(&counters, &1, |row| row.value += 1).map(drop)
        })
    };
    has_begun.recv().unwrap();
    drop(submission);
    drop(go);
    add(&pool, &counters).wait().unwrap();
    assert_eq!(value(&database, &counters), 2);
}

/// The procedure is dropped before its submitter gets the result.
#[test]
fn a_submitter_has_back_what_its_procedure_owned() {
    let (database, _) = open();
    let pool = database.pool(&one_thread()).unwrap();
    for _ in 0..1000 {
        let (owned, token) = token();
        let submission = pool.submit(move |_tx| {
            let _owned = &owned;
            Ok::<(), Error>(())
        });
        submission.wait().unwrap();
        assert_eq!(Arc::strong_count(&token), 1);
    }
}

/// Counts how often it is dropped.
struct Counted(Arc<Word>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Threads submit transactions and drop some of the submissions, before, while and after they run.
#[test]
fn every_submission_is_run_once_or_cancelled() {
    const SUBMISSIONS: u64 = 500;
    let seed = Seed::draw();
    let (database, counters) = open();
    let pool = database.pool(&PoolOptions::new().threads(2)).unwrap();
    let (dropped, ran) = (Arc::new(Word::new(0)), Arc::new(Word::new(0)));
    let waited: u64 = on_threads(4, |thread| {
        let mut random = seed.random(thread);
        let (mut waited, mut held) = (0, Vec::new());
        for _ in 0..SUBMISSIONS {
            let (counted, ran) = (Counted(Arc::clone(&dropped)), Arc::clone(&ran));
            let counters = counters.clone();
            let priorities = [Priority::High, Priority::Normal, Priority::Low];
            let options = SubmitOptions::new().priority(priorities[random.usize(..3)]);
            let submission = pool.submit_with(&options, move |tx| {
                let _counted = &counted;
                ran.fetch_add(1, Ordering::SeqCst);
                tx.add(&counters, &1, weft::column_of!(Counter.value), 1)
            });
            let submission: Submission<(), Error> = submission;
            match random.u8(..4) {
                0 => drop(submission),
                1 => {
                    submission.wait().unwrap();
                    waited += 1;
                }
                _ => held.push(submission),
            }
            if random.u8(..8) == 0 && !held.is_empty() {
                drop(held.swap_remove(random.usize(..held.len())));
            }
        }
        for submission in held {
            submission.wait().unwrap();
            waited += 1;
        }
        waited
    })
    .into_iter()
    .sum();
    pool.shutdown(Duration::MAX).wait().unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 4 * SUBMISSIONS);
    let committed = value(&database, &counters);
    assert!((waited..=4 * SUBMISSIONS).contains(&committed), "{waited} {committed}");
    assert!(ran.load(Ordering::SeqCst) >= committed, "a conflict may run it again");
}

/// Without urgent threads, so that the order of one thread is seen.
#[test]
fn a_high_priority_comes_before_what_was_submitted_earlier() {
    let (database, _) = open();
    let pool = database.pool(&one_thread().urgent_threads(0)).unwrap();
    let blocker = Blocker::begin(&pool);
    let (order, ran) = mpsc::channel();
    let submit = |priority, number: u32| -> Submission<(), Error> {
        let order = order.clone();
        pool.submit_with(&SubmitOptions::new().priority(priority), move |_tx| {
            order.send(number).unwrap();
            Ok(())
        })
    };
    let submissions = [
        submit(Priority::Low, 5),
        submit(Priority::Normal, 3),
        submit(Priority::High, 1),
        submit(Priority::Normal, 4),
        submit(Priority::High, 2),
    ];
    blocker.end();
    submissions.into_iter().for_each(|submission| submission.wait().unwrap());
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[test]
fn a_high_priority_does_not_wait_for_long_transactions() {
    let (database, counters) = open();
    let pool = database.pool(&PoolOptions::new().threads(2)).unwrap();
    let blockers = [Blocker::begin(&pool), Blocker::begin(&pool)];
    let normal = add(&pool, &counters);
    let urgent = {
        let counters = counters.clone();
        let options = SubmitOptions::new().priority(Priority::High);
        pool.submit_with(&options, move |tx| Ok::<_, Error>(tx.get(&counters, &1)?.unwrap().value))
    };
    assert_eq!(urgent.wait().unwrap(), 0);
    assert!(!normal.has_ended(), "the urgent thread takes nothing else");
    blockers.into_iter().for_each(Blocker::end);
    normal.wait().unwrap();
}

fn submit_late(pool: &Pool, ran: &Arc<()>) -> Submission<(), Error> {
    let ran = Arc::clone(ran);
    let options = SubmitOptions::new().deadline(Duration::from_millis(20));
    pool.submit_with(&options, move |_tx| {
        let _ran = &ran;
        panic!("a transaction has run after its deadline")
    })
}

#[test]
fn a_deadline_ends_a_submission_in_the_queue() {
    let (database, _) = open();
    let expected = Failure::DeadlineExceeded { deadline: Duration::from_millis(20), attempts: 0 };
    let token = Arc::new(());
    let pool = database.pool(&one_thread()).unwrap();
    let blocker = Blocker::begin(&pool);
    // The only ordinary thread is busy, and remains so.
    let late = submit_late(&pool, &token);
    assert_eq!(failure(block_on(late)), expected);
    assert_eq!((Arc::strong_count(&token), pool.queued()), (1, 0));
    blocker.end();
    // Without urgent threads, the submission ends when the thread is free.
    let pool = database.pool(&one_thread().urgent_threads(0)).unwrap();
    let blocker = Blocker::begin(&pool);
    let late = submit_late(&pool, &token);
    thread::sleep(Duration::from_millis(21));
    assert!(!late.has_ended());
    blocker.end();
    assert_eq!(failure(late.wait()), expected);
}

#[test]
fn a_failure_names_the_deadline_as_it_was_submitted() {
    let database = Database::builder().table::<Counter>().workers_max(1).open().unwrap();
    fill(&database);
    let pool = database.pool(&one_thread()).unwrap();
    let held = database.begin().unwrap();
    let deadline = Duration::from_millis(20);
    let options = SubmitOptions::new().deadline(deadline);
    let refused = pool.submit_with(&options, |_tx| Ok::<(), Error>(()));
    // The thread that waits for a worker gives up at the deadline, if it was there before.
    let failure = failure(refused.wait());
    let (Failure::WorkersBusy { deadline: named, .. }
    | Failure::DeadlineExceeded { deadline: named, .. }) = failure
    else {
        panic!("{failure}")
    };
    assert_eq!(named, deadline);
    drop(held);
}

#[test]
fn retries_are_limited() {
    let (database, counters) = open();
    let pool = database.pool(&one_thread()).unwrap();
    let options = SubmitOptions::new().retries_max(2);
    let conflicting = pool.submit_with(&options, move |tx| {
        tx.get(&counters, &1)?;
        // Another thread changes the row before this transaction does.
        on_a_thread(|| database.transact(|tx| tx.update(&counters, &1, |row| row.value += 1)))?;
        tx.update(&counters, &1, |row| row.value += 1)
    });
    assert!(matches!(failure(conflicting.wait()), Failure::RetriesExhausted { attempts: 3, .. }));
}

/// An error whose conversion from the engine's error panics.
#[derive(Debug)]
struct Unconvertible;

impl From<Error> for Unconvertible {
    fn from(_: Error) -> Self {
        panic_quietly("the conversion panics")
    }
}

/// Panics when it is dropped, once it is armed.
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 && !thread::panicking() {
            panic_quietly("the drop panics");
        }
    }
}

/// Panics when it is dropped, with a payload that panics when it is dropped.
struct DoubleBomb;

impl Drop for DoubleBomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(Bomb(true)))
    }
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic_quietly("the waker panics")
    }
}

/// Whatever panics, the pool's threads go on, in memory and with commits that wait for the disk.
#[test]
fn panics_of_the_users_code_do_not_end_a_thread() {
    let disk = SimulatedDisk::new(1);
    for database in [open().0, open_durable(&disk)] {
        let counters = database.table::<Counter>().unwrap();
        let _ = database.transact(|tx| tx.insert(&counters, Counter { id: 1, value: 0 }));
        let pool = database.pool(&one_thread().urgent_threads(0)).unwrap();
        let changing = |change: fn()| {
            let counters = counters.clone();
            move |tx: &weft::Transaction<'_>| {
                tx.update(&counters, &1, |row| row.value += 1)?;
                change();
                Ok::<(), Error>(())
            }
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.submit(changing(|| panic_quietly("the procedure panics"))).wait()
        }));
        assert!(panicked.is_err());

        let converted = catch_unwind(AssertUnwindSafe(|| {
            let options = SubmitOptions::new().deadline(Duration::ZERO);
            pool.submit_with(&options, |_tx| Ok::<(), Unconvertible>(())).wait()
        }));
        assert!(converted.is_err());

        let (bomb, change) = (Bomb(true), changing(|| ()));
        let owned = pool.submit(move |tx| {
            let _bomb = &bomb;
            change(tx)
        });
        owned.wait().expect("the transaction commits before the procedure is dropped");

        // Fault: the panic of the payload was passed on, and the outcome was lost.
        let (bomb, change) = (DoubleBomb, changing(|| ()));
        let owned = pool.submit(move |tx| {
            let _bomb = &bomb;
            change(tx)
        });
        owned.wait().expect("the transaction commits before the procedure is dropped");

        let change = changing(|| ());
        let unwanted = pool.submit(move |tx| change(tx).map(|()| Bomb(true)));
        let mut unwanted: Submission<Bomb, Error> = unwanted;
        let waker = Waker::from(Arc::new(PanickingWaker));
        // What it returns panics here if it has already run, and on the pool's thread if not.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let mut context = Context::from_waker(&waker);
            pin!(&mut unwanted).poll(&mut context).is_pending()
        }));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unwanted)));

        // The unwanted submission may still run: the one thread ends it before it runs another.
        add(&pool, &counters).wait().unwrap();
        let before = value(&database, &counters);
        add(&pool, &counters).wait().unwrap();
        assert_eq!(value(&database, &counters), before + 1);
        pool.shutdown(Duration::MAX).wait().unwrap();
    }
}

/// A number whose bytes for the log cannot be written if it is 13.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fragile(u8);

impl ColumnValue for Fragile {
    const TYPE: ColumnType = ColumnType::U8;

    fn write(&self, output: &mut Vec<u8>) {
        if self.0 == 13 {
            panic_quietly("thirteen");
        }
        output.push(self.0);
    }

    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        u8::read(input).map(Fragile)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Shelf {
    #[record(key)]
    id: u32,
    content: Fragile,
}

/// Fault: a panic during the commit ended the pool's thread. The submission's outcome was lost, and the pool could not be shut
/// down.
#[test]
fn a_panic_during_the_commit_does_not_end_a_thread() {
    let durability = DurabilityOptions::new();
    let builder = Database::builder().table::<Shelf>().directory("/db").durability(durability);
    let database = builder.backend(Arc::new(SimulatedDisk::new(1)), false).open().unwrap();
    let shelves = database.table::<Shelf>().unwrap();
    database.transact(|tx| tx.insert(&shelves, Shelf { id: 1, content: Fragile(1) })).unwrap();
    let pool = database.pool(&one_thread().urgent_threads(0)).unwrap();
    let put = |content: u8| {
        let shelves = shelves.clone();
        pool.submit(move |tx| tx.update(&shelves, &1, |row| row.content = Fragile(content)))
    };
    let panic = catch_unwind(AssertUnwindSafe(|| put(13).wait())).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"thirteen"));
    assert_eq!(put(14).wait().unwrap(), Some(()));
    pool.shutdown(Duration::MAX).wait().unwrap();
}

#[test]
fn shutdown_refuses_what_is_queued_and_waits_for_what_runs() {
    let (database, counters) = open();
    let pool = database.pool(&one_thread()).unwrap();
    let blocker = Blocker::begin(&pool);
    let (owned, token) = token();
    let queued = pool.submit(move |_tx| {
        let _owned = &owned;
        Ok::<(), Error>(())
    });
    assert_eq!(pool.running(), ["blocker"]);
    let waited = Duration::from_millis(10);
    let still_running = Failure::PoolStillRunning { waited, running: vec!["blocker"] };
    assert_eq!(block_on(pool.shutdown(waited)), Err(still_running.clone()));
    assert_eq!(
        still_running.to_string(),
        "transactions are still running 10ms after the pool was shut down: blocker; shut it down again to wait longer"
    );
    assert!(queued.has_ended());
    assert_eq!(failure(queued.wait()), Failure::PoolShutDown);
    assert_eq!(Arc::strong_count(&token), 1);
    assert_eq!(failure(add(&pool, &counters).wait()), Failure::PoolShutDown);
    let shutdown = pool.shutdown(Duration::MAX);
    blocker.end();
    block_on(shutdown).unwrap();
    assert!(pool.running().is_empty());
    assert_eq!(value(&database, &counters), 0);
}

/// Without a label the submission has the name of its closure's type.
#[test]
fn a_submission_is_labelled_by_its_closure() {
    let (database, _) = open();
    let pool = database.pool(&one_thread()).unwrap();
    let blocker = Blocker::begin_with(&pool, &SubmitOptions::new());
    assert!(pool.running()[0].contains("submissions::Blocker::begin_with"), "{:?}", pool.running());
    blocker.end();
}

#[test]
fn the_pool_keeps_its_database() {
    let disk = SimulatedDisk::new(1);
    let database = open_durable(&disk);
    let counters = fill(&database);
    let pool = database.pool(&one_thread()).unwrap();
    drop(database);
    for _ in 0..10 {
        add(&pool, &counters).wait().unwrap();
    }
    let last = add(&pool, &counters);
    // The directory is free when the pool is dropped, even if a transaction is being acknowledged.
    drop((pool, counters));
    let result = last.wait();
    assert!(matches!(result, Ok(()) | Err(Error::Failure(Failure::PoolShutDown))), "{result:?}");
    let database = open_durable(&disk);
    let counters = database.table::<Counter>().unwrap();
    assert_eq!(value(&database, &counters), if result.is_ok() { 11 } else { 10 });
}

/// A procedure owns the last handle of its pool, which is dropped on a thread of the pool, or on the one that
/// acknowledges.
#[test]
fn a_pool_can_be_dropped_by_its_own_thread() {
    let disk = SimulatedDisk::new(1);
    for database in [open().0, open_durable(&disk)] {
        let counters = database.table::<Counter>().unwrap();
        let pool = Arc::new(database.pool(&PoolOptions::new().threads(2)).unwrap());
        let (go, may_go): (Sender<()>, Receiver<()>) = mpsc::channel();
        let submission: Submission<(), Error> = {
            let (owned, counters) = (Arc::clone(&pool), counters.clone());
            pool.submit(move |tx| {
                let _owned = &owned;
                let _ = may_go.recv();
                tx.upsert(&counters, Counter { id: 2, value: 0 }).map(drop)
            })
        };
        drop(pool);
        drop(go);
        submission.wait().unwrap();
    }
}

#[test]
fn durability_can_be_awaited() {
    let (in_memory, _) = open();
    let (_, token) = in_memory
        .transact_with_token(&TransactionOptions::new(), |_tx| Ok::<(), Error>(()))
        .unwrap();
    assert_eq!(block_on(in_memory.when_durable(token)), Err(Failure::InMemory));
    let disk = SimulatedDisk::new(1);
    let database = open_durable(&disk);
    let counters = fill(&database);
    let commit = || {
        let options = TransactionOptions::new();
        let add = |tx: &weft::Transaction<'_>| tx.update(&counters, &1, |row| row.value += 1);
        database.transact_with_token(&options, add).unwrap().1
    };
    let futures: Vec<_> = (0..10)
        .map(|_| {
            let token = commit();
            (token, database.when_durable(token))
        })
        .collect();
    for (token, durable) in futures {
        block_on(durable).unwrap();
        assert!(database.durable_epoch() >= Some(token.epoch()));
    }
    drop(database.when_durable(commit()));
    disk.fail_sync(disk.syncs() + 1);
    let lost = block_on(database.when_durable(commit()));
    assert!(matches!(lost, Err(Failure::Storage(_))), "{lost:?}");
}

/// The failure of the disk reaches every submission.
#[test]
fn commits_that_cannot_become_durable_fail() {
    let disk = SimulatedDisk::new(1);
    let database = open_durable(&disk);
    let counters = fill(&database);
    let pool = database.pool(&PoolOptions::new().threads(2)).unwrap();
    add(&pool, &counters).wait().unwrap();
    disk.fail_sync(disk.syncs() + 1);
    let submissions: Vec<_> = (0..100).map(|_| add(&pool, &counters)).collect();
    for submission in submissions {
        let failure = failure(submission.wait());
        assert!(matches!(failure, Failure::Storage(_)), "{failure}");
    }
    pool.shutdown(Duration::MAX).wait().unwrap();
}

/// A disk that syncs nothing while the test holds its lock.
#[derive(Debug)]
struct HeldDisk {
    disk: SimulatedDisk,
    hold: Arc<Mutex<()>>,
}

#[derive(Debug)]
struct HeldFile {
    file: Box<dyn File>,
    hold: Arc<Mutex<()>>,
}

impl HeldDisk {
    fn hold(&self, file: io::Result<Box<dyn File>>) -> io::Result<Box<dyn File>> {
        Ok(Box::new(HeldFile { file: file?, hold: Arc::clone(&self.hold) }))
    }
}

impl Backend for HeldDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.create_directory(path)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.disk.list(directory)
    }
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.hold(self.disk.create_new(path))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.hold(self.disk.open(path))
    }
    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.disk.open_read_only(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_directory(path)
    }
    fn try_lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        self.disk.try_lock(path)
    }
}

impl File for HeldFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.file.allocate(bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }
    fn sync(&self) -> io::Result<()> {
        let _held = self.hold.lock();
        self.file.sync()
    }
}

/// While an epoch is on its way to the disk, the pool's only thread runs the next transactions.
#[test]
fn a_thread_goes_on_while_commits_wait_for_the_disk() {
    let hold = Arc::new(Mutex::new(()));
    let disk = HeldDisk { disk: SimulatedDisk::new(1), hold: Arc::clone(&hold) };
    let database = open_on(Arc::new(disk));
    let counters = fill(&database);
    let pool = database.pool(&one_thread().urgent_threads(0)).unwrap();
    let held = hold.lock().unwrap();
    let adding: Vec<_> = (0..100).map(|_| add(&pool, &counters)).collect();
    let (ran, has_run) = mpsc::channel();
    let last: Submission<(), Error> = pool.submit(move |_tx| {
        ran.send(()).unwrap();
        Ok(())
    });
    has_run.recv().unwrap();
    assert!(adding.iter().chain([&last]).all(|submission| !submission.has_ended()));
    assert_eq!(pool.running().len(), 101);
    let mut shutdown = pin!(pool.shutdown(Duration::MAX));
    let polled = shutdown.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "the pool is not shut down before all are acknowledged");
    drop(held);
    adding.into_iter().chain([last]).for_each(|submission| submission.wait().unwrap());
    block_on(shutdown).unwrap();
}
