//! The cost of an open snapshot: memory, and the longest stall of another thread.
//!
//! ```text
//! cargo bench -p weft --bench held_snapshot -- [queue | indexed | large] [seconds] [snapshots]
//! ```
//!
//! One thread changes the database while snapshots are open:
//!
//! - `queue` inserts and deletes rows, always with new keys;
//! - `indexed` changes an indexed column of a few rows;
//! - `large` does the same in a table of many rows, so that there is much to release in the end.
//!
//! A second thread runs small transactions and a short scan, and records how long the longest of
//! them took. The program prints what is kept for the snapshots, and the memory of the process,
//! while they are open and after they are closed.

use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};
use weft::{Database, Error, Record, Table};

#[derive(Clone, Copy, Record)]
struct Job {
    #[record(key)]
    id: u64,
    #[record(index)]
    state: u64,
    #[record(unique)]
    ticket: u64,
    payload: [u64; 4],
}

#[derive(Clone, Copy, Record)]
#[record(storage = "hash")]
struct Counter {
    #[record(key)]
    id: u64,
    value: u64,
}

/// Returns how many rows there are at any time.
fn rows(load: &str) -> u64 {
    if load == "large" { 300_000 } else { 100 }
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).filter(|it| it != "--bench");
    let load = arguments.next().unwrap_or_else(|| "queue".to_owned());
    let seconds =
        arguments.next().map_or(60, |seconds| seconds.parse().expect("a number of seconds"));
    let snapshots: u64 = arguments.next().map_or(1, |count| count.parse().expect("a number"));
    let database = Database::builder().table::<Job>().table::<Counter>().open()?;
    let jobs = database.table::<Job>()?;
    let counters = database.table::<Counter>()?;
    for id in 0..rows(&load) {
        database.transact(|tx| tx.insert(&jobs, job(id, id)))?;
    }
    database.transact(|tx| tx.insert(&counters, Counter { id: 0, value: 0 }))?;

    let stopped = Word::new(0);
    let stall = Word::new(0);
    let changes = Word::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| change(&database, &jobs, &load, &stopped, &changes));
        scope.spawn(|| watch(&database, &jobs, &counters, &stopped, &stall));
        std::thread::sleep(Duration::from_secs(1));
        print(&database, "before", &changes, &stall);
        let open: Vec<_> = (0..snapshots)
            .map(|_| {
                let snapshot = database.open_snapshot().expect("the database is open");
                std::thread::sleep(Duration::from_millis(50));
                snapshot
            })
            .collect();
        for passed in (0..seconds).step_by(10) {
            std::thread::sleep(Duration::from_secs(10.min(seconds - passed)));
            let what = format!("open {:3} s", (passed + 10).min(seconds));
            print(&database, &what, &changes, &stall);
        }
        let began = Instant::now();
        drop(open);
        println!("closing took {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
        print(&database, "closed", &changes, &stall);
        std::thread::sleep(Duration::from_secs(5));
        print(&database, "5 s later", &changes, &stall);
        stopped.store(1, Ordering::Relaxed);
    });
    Ok(())
}

fn job(id: u64, state: u64) -> Job {
    Job { id, state, ticket: 1 << 40 | id, payload: [id; 4] }
}

/// Changes the database until it is told to stop.
fn change(database: &Database, jobs: &Table<Job>, load: &str, stopped: &Word, changes: &Word) {
    let rows = rows(load);
    let mut turn = rows;
    while stopped.load(Ordering::Relaxed) == 0 {
        let changed = match load {
            "queue" => database.transact(|tx| {
                tx.insert(jobs, job(turn, turn))?;
                tx.delete(jobs, &(turn - rows)).map(drop)
            }),
            "indexed" | "large" => database
                .transact(|tx| tx.update(jobs, &(turn % rows), |job| job.state = turn).map(drop)),
            _ => panic!("the load is 'queue', 'indexed' or 'large'"),
        };
        changed.expect("no other transaction conflicts for long");
        turn += 1;
        changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs small transactions, and records the longest time, in microseconds.
fn watch(
    database: &Database,
    jobs: &Table<Job>,
    counters: &Table<Counter>,
    stopped: &Word,
    stall: &Word,
) {
    while stopped.load(Ordering::Relaxed) == 0 {
        let began = Instant::now();
        let counted = database.transact(|tx| tx.update(counters, &0, |counter| counter.value += 1));
        counted.expect("no other transaction conflicts for long");
        // The scan may conflict with the queue. It is tried only once.
        let first = database.begin().map(|tx| tx.range(jobs, ..).next().is_some());
        let _ = first;
        let took = began.elapsed().as_micros() as u64;
        // Between the load and the store the other thread may begin to measure again, which does no
        // harm.
        if took > stall.load(Ordering::Relaxed) {
            stall.store(took, Ordering::Relaxed);
        }
    }
}

/// Prints what is held, and the longest stall since the previous line.
fn print(database: &Database, what: &str, changes: &Word, stall: &Word) {
    let metrics = database.metrics();
    println!(
        "{what:10} {:10} changes  {:8} versions  {:7.1} MiB held  {:7.1} MiB chunks  {:7.1} MiB \
         resident  longest stall {:8.1} ms",
        changes.load(Ordering::Relaxed),
        metrics.snapshots.versions_held,
        mib(metrics.snapshots.bytes_held),
        mib(metrics.memory.chunk_bytes),
        mib(resident_bytes()),
        stall.swap(0, Ordering::Relaxed) as f64 / 1e3,
    );
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Returns the memory of the process, as Linux counts it; 0 elsewhere.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}
