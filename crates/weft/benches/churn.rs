//! Churn: threads update random rows of one table, and do nothing else. The memory does not grow,
//! however long they run: replaced versions are reused after their grace period.
//!
//! With `--hold-snapshot` one snapshot is open for this number of seconds, from the second sixth of
//! the time on. During this time the memory grows by one version of each row, and no more. When the
//! snapshot is dropped, the memory that was kept for it is reused.
//!
//! `cargo bench -p weft --bench churn -- [SECONDS] [ROWS] [THREADS] [--hold-snapshot SECONDS]`
//! (by default 10, 1000000 and 2)

use std::time::{Duration, Instant};

use weft::{Database, Error, Record};

/// A row of about the size of YCSB's.
#[derive(Clone, Copy, Record)]
#[record(table = "rows", storage = "hash")]
struct Row {
    #[record(key)]
    key: u64,
    payload: [u64; 12],
}

fn usage() -> ! {
    eprintln!(
        "usage: churn [SECONDS] [ROWS] [THREADS] [--hold-snapshot SECONDS], whole numbers above 0"
    );
    std::process::exit(2)
}

fn main() -> Result<(), Error> {
    let (mut numbers, mut held) = (Vec::new(), None);
    let mut arguments = std::env::args().skip(1).filter(|it| it != "--bench");
    let number = |argument: Option<String>| match argument.map(|argument| argument.parse::<u64>()) {
        Some(Ok(number)) if number > 0 => number,
        _ => usage(),
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--hold-snapshot" => held = Some(Duration::from_secs(number(arguments.next()))),
            _ => numbers.push(number(Some(argument))),
        }
    }
    if numbers.len() > 3 {
        usage();
    }
    let argument = |position, default| numbers.get(position).copied().unwrap_or(default);
    let (seconds, rows, threads) = (argument(0, 10), argument(1, 1_000_000), argument(2, 2));

    let database = Database::builder().table_with_capacity::<Row>(rows as usize).open()?;
    let table = database.table::<Row>()?;
    for first in (0..rows).step_by(1000) {
        database.transact(|tx| {
            (first..rows.min(first + 1000))
                .try_for_each(|key| tx.insert(&table, Row { key, payload: [key; 12] }))
        })?;
    }

    let start = Instant::now();
    let end = start + Duration::from_secs(seconds);
    report(&database, start);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (database, table) = (&database, &table);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    while Instant::now() < end {
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
        let step = Duration::from_secs(seconds.div_ceil(6));
        let sleep_until = |deadline: Instant| {
            std::thread::sleep(deadline.min(end).saturating_duration_since(Instant::now()));
        };
        sleep_until(start + step);
        report(&database, start);
        if let Some(held) = held {
            let snapshot = database.open_snapshot()?;
            let dropped = (Instant::now() + held).min(end);
            while Instant::now() < dropped {
                sleep_until((Instant::now() + step.min(held / 4)).min(dropped));
                report(&database, start);
            }
            let dropping = Instant::now();
            drop(snapshot);
            println!("the snapshot is dropped, in {:.3} s", dropping.elapsed().as_secs_f64());
            report(&database, start);
        }
        while Instant::now() < end {
            sleep_until(Instant::now() + step);
            report(&database, start);
        }
        workers.into_iter().try_for_each(|worker| worker.join().expect("workers do not panic"))
    })
}

fn report(database: &Database, start: Instant) {
    let metrics = database.metrics();
    let resident = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = resident.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    println!(
        "{:4.0} s: {:>11} transactions, {:4} MiB of chunks, {:>7} versions held ({} MiB), resident {}",
        start.elapsed().as_secs_f64(),
        metrics.committed,
        metrics.memory.chunk_bytes >> 20,
        metrics.snapshots.versions_held,
        metrics.snapshots.bytes_held >> 20,
        resident.unwrap_or("unknown").trim(),
    );
}
