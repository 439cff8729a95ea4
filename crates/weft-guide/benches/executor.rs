//! How a pool serves an executor: `cargo bench -p weft-guide --bench executor`.
//!
//! First, 2,000 durable transactions of 1 ms at once, through `spawn_blocking` and through a pool: the time until all
//! are durable. Then 100,000 short transactions, submitted at once by tasks on an executor of one thread, whose queue is
//! full nearly all the time. A timer on the same executor should fire every millisecond, and how late it is at most is
//! the executor's lag.
#![allow(missing_docs, reason = "a benchmark has no callers")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use weft::{Database, DurabilityOptions, Error, PoolOptions, Record, Table};

#[derive(Clone, Record)]
struct Counter {
    #[record(key)]
    id: u32,
    value: u64,
}

const COUNTERS: u32 = 1000;
const ROUNDS: usize = 3;

fn fill(database: &Database) -> Table<Counter> {
    let counters = database.table::<Counter>().expect("the table is registered");
    let insert = |tx: &weft::Transaction<'_>| {
        (0..COUNTERS).try_for_each(|id| tx.insert(&counters, Counter { id, value: 0 }))
    };
    database.transact(insert).expect("the table is empty");
    counters
}

fn count(tx: &weft::Transaction<'_>, counters: &Table<Counter>, call: u32) -> Result<(), Error> {
    tx.update(counters, &(call % COUNTERS), |counter| counter.value += 1).map(drop)
}

fn count_slowly(
    tx: &weft::Transaction<'_>,
    counters: &Table<Counter>,
    call: u32,
) -> Result<(), Error> {
    std::thread::sleep(Duration::from_millis(1));
    count(tx, counters, call)
}

fn wait_for_all<R>(runtime: &Runtime, tasks: Vec<tokio::task::JoinHandle<Result<R, Error>>>) {
    for task in tasks {
        runtime.block_on(task).expect("it does not panic").expect("the transaction commits");
    }
}

/// Makes 2,000 durable calls at once, and returns how long they take.
fn durable_calls(in_pool: bool) -> Duration {
    let directory = std::env::temp_dir().join(format!("weft-executor-{}", std::process::id()));
    let builder = Database::builder().table::<Counter>().directory(&directory);
    let database = builder.durability(DurabilityOptions::new()).open().expect("it opens");
    let counters = fill(&database);
    let pool = Arc::new(database.pool(&PoolOptions::new()).expect("threads can be started"));
    let runtime = Builder::new_multi_thread().build().expect("threads can be started");
    let start = Instant::now();
    let tasks = (0..2000).map(|call| {
        let (database, counters) = (database.clone(), counters.clone());
        let pool = Arc::clone(&pool);
        match in_pool {
            true => runtime.spawn(async move {
                pool.submit(move |tx| count_slowly(tx, &counters, call)).await
            }),
            false => runtime
                .spawn_blocking(move || database.transact(|tx| count_slowly(tx, &counters, call))),
        }
    });
    wait_for_all(&runtime, tasks.collect());
    let time = start.elapsed();
    drop((pool, runtime, counters, database));
    std::fs::remove_dir_all(directory).expect("it exists");
    time
}

/// Submits 100,000 transactions at once, and returns how long they take, and the executor's lag.
fn lag() -> (Duration, Duration) {
    let database = Database::builder().table::<Counter>().open().expect("it opens");
    let counters = fill(&database);
    let pool = Arc::new(database.pool(&PoolOptions::new()).expect("threads can be started"));
    let runtime = Builder::new_current_thread().enable_time().build().expect("it starts");
    let late_max = Arc::new(Mutex::new(Duration::ZERO));
    runtime.block_on(async {
        let late = Arc::clone(&late_max);
        let timer = tokio::spawn(async move {
            loop {
                let due = Instant::now() + Duration::from_millis(1);
                tokio::time::sleep_until(tokio::time::Instant::from_std(due)).await;
                let mut late_max = late.lock().expect("no holder panics");
                *late_max = late_max.max(due.elapsed());
            }
        });
        let start = Instant::now();
        let mut tasks = Vec::new();
        for call in 0..100_000 {
            let (pool, counters) = (Arc::clone(&pool), counters.clone());
            tasks.push(tokio::spawn(async move {
                pool.submit(move |tx| count(tx, &counters, call)).await
            }));
            // As a server that accepts connections does, let the other tasks run. Tokio runs 61 tasks between two looks
            // at its timers, so with more new tasks than that the timer's task would wait in a run queue that grows.
            if call % 30 == 0 {
                tokio::task::yield_now().await;
            }
        }
        for task in tasks {
            task.await.expect("it does not panic").expect("the transaction commits");
        }
        timer.abort();
        (start.elapsed(), *late_max.lock().expect("no holder panics"))
    })
}

fn main() {
    for _ in 0..ROUNDS {
        let (blocking, pool) = (durable_calls(false), durable_calls(true));
        println!("2,000 durable calls of 1 ms: spawn_blocking {blocking:.2?}, pool {pool:.2?}");
    }
    for _ in 0..ROUNDS {
        let (time, lag) = lag();
        println!("100,000 submissions: {time:.2?}, the executor's lag at most {lag:.2?}");
    }
}
