//! Measures recovery: writes a database with a log of a given size, and opens it again.
//!
//! ```text
//! recovery write DIR [MIB] [ROWS]   writes ROWS rows (1000000), updated until the log has MIB MiB (1024)
//! recovery checkpoint DIR           replaces the log by a checkpoint
//! recovery open DIR [THREADS]       recovers the database, and prints how long that took
//! ```
//!
//! Each command is a process of its own, so that the peak of its memory is known, too.

use std::sync::Mutex;
use std::time::Instant;

use weft::{Acknowledge, Database, DurabilityOptions, Error, Record};

/// A row of about the size of YCSB's.
#[derive(Clone, Copy, Record)]
#[record(table = "rows")]
struct Row {
    #[record(key)]
    key: u64,
    payload: [u64; 12],
}

/// Rows inserted by one transaction.
const BATCH_ROWS: u64 = 100;

fn open(directory: &str, threads: usize) -> Result<Database, Error> {
    let options = DurabilityOptions::new()
        .acknowledge(Acknowledge::Committed)
        .checkpoint_log_bytes(None)
        .threads(threads);
    let phase = Mutex::new(None);
    let watcher = move |progress: weft::durability::RecoveryProgress| {
        let mut phase = phase.lock().expect("no thread panics while it holds the lock");
        if phase.replace(progress.phase) != Some(progress.phase) {
            println!("{:?}: {} in all", progress.phase, progress.total);
        }
    };
    let builder = Database::builder().table::<Row>().directory(directory).durability(options);
    Ok(builder.watch_recovery(watcher).open()?)
}

fn write(directory: &str, mebibytes: u64, rows: u64) -> Result<(), Error> {
    let database = open(directory, 2)?;
    let table = database.table::<Row>()?;
    for first in (0..rows).step_by(BATCH_ROWS as usize) {
        database.transact(|tx| {
            (first..rows.min(first + BATCH_ROWS))
                .try_for_each(|key| tx.insert(&table, Row { key, payload: [key; 12] }))
        })?;
    }
    let is_short = || {
        let written = database.metrics().log.map_or(0, |log| log.bytes_written);
        written < mebibytes << 20
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (database, table, is_short) = (&database, &table, &is_short);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    while is_short() {
                        for _ in 0..1000 {
                            let key = random.u64(..rows);
                            database
                                .transact(|tx| tx.update(table, &key, |row| row.payload[0] += 1))?;
                        }
                    }
                    Ok::<(), Error>(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("they do not panic"))
    })?;
    database.close()?;
    println!("{:?}", database.metrics().log);
    Ok(())
}

fn recover(directory: &str, threads: usize) -> Result<(), Error> {
    let begun = Instant::now();
    let database = open(directory, threads)?;
    let seconds = begun.elapsed().as_secs_f64();
    let recovered = database.recovered().expect("it has a directory");
    let table = database.table::<Row>()?;
    let rows = database.snapshot(|snapshot| Ok::<_, Error>(snapshot.rows(&table).count()))?;
    let put = recovered.checkpoint_rows + recovered.entries;
    println!(
        "{threads} threads: {seconds:.2} s, {:.0} rows/s\n\
         checkpoint: {} rows, {} MiB; log: {} transactions, {} rows, {} MiB; {rows} rows at the end\n\
         {:?}",
        put as f64 / seconds,
        recovered.checkpoint_rows,
        recovered.checkpoint_bytes >> 20,
        recovered.transactions,
        recovered.entries,
        recovered.log_bytes >> 20,
        recovered.durations,
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let number = |position: usize, default: u64| {
        arguments.get(position).map_or(Some(default), |text| text.parse().ok())
    };
    match (arguments.first().map(String::as_str), arguments.get(1), number(2, 0), number(3, 0)) {
        (Some("write"), Some(directory), Some(_), Some(_)) => {
            write(directory, number(2, 1024).unwrap_or(1024), number(3, 1_000_000).unwrap_or(1))?;
        }
        (Some("checkpoint"), Some(directory), ..) => {
            println!("{:?}", open(directory, 2)?.checkpoint()?);
        }
        (Some("open"), Some(directory), Some(threads), _) => {
            recover(directory, threads.max(1) as usize)?;
        }
        _ => {
            eprintln!(
                "usage: recovery write DIR [MIB] [ROWS] | checkpoint DIR | open DIR [THREADS]"
            );
            std::process::exit(2)
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!("peak memory {}", peak.unwrap_or("unknown").trim());
    Ok(())
}
