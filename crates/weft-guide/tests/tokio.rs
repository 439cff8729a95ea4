//! Many calls of a database from tokio at once, with default options.

use std::sync::Arc;
use std::time::Duration;

use weft::{Database, DurabilityOptions, Error, PoolOptions, Record, Table};

#[derive(Clone, Record)]
struct Counter {
    #[record(key)]
    id: u32,
    value: u64,
}

const CALLS: u32 = 2000;

struct Directory(std::path::PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(name: &str) -> (Database, Table<Counter>, Directory) {
    let name = format!("weft-tokio-{name}-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    let database = Database::builder().table::<Counter>().directory(&directory.0);
    let database = database.durability(DurabilityOptions::new()).open().unwrap();
    let counters = database.table::<Counter>().unwrap();
    (database, counters, directory)
}

fn count(database: &Database, counters: &Table<Counter>) -> usize {
    database.snapshot(|snapshot| Ok::<_, Error>(snapshot.rows(counters).count())).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap()
}

fn insert_slowly(
    tx: &weft::Transaction<'_>,
    counters: &Table<Counter>,
    id: u32,
) -> Result<(), Error> {
    tx.insert(counters, Counter { id, value: 0 })?;
    std::thread::sleep(Duration::from_millis(1));
    Ok(())
}

/// Tokio starts 512 threads for them, twice as many as the database has workers.
#[test]
fn two_thousand_blocking_calls_at_once_all_succeed() {
    let (database, counters, _directory) = open("blocking");
    let runtime = runtime();
    let calls: Vec<_> = (0..CALLS)
        .map(|id| {
            let (database, counters) = (database.clone(), counters.clone());
            runtime.spawn_blocking(move || database.transact(|tx| insert_slowly(tx, &counters, id)))
        })
        .collect();
    for call in calls {
        runtime.block_on(call).unwrap().unwrap();
    }
    assert_eq!(count(&database, &counters), CALLS as usize);
}

#[test]
fn two_thousand_submissions_at_once_all_succeed() {
    let (database, counters, _directory) = open("pool");
    let pool = Arc::new(database.pool(&PoolOptions::new()).unwrap());
    let runtime = runtime();
    let tasks: Vec<_> = (0..CALLS)
        .map(|id| {
            let (pool, counters) = (Arc::clone(&pool), counters.clone());
            runtime
                .spawn(async move { pool.submit(move |tx| insert_slowly(tx, &counters, id)).await })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap().unwrap();
    }
    assert_eq!(count(&database, &counters), CALLS as usize);
}
