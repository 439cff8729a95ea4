//! Latency of durable commits, beside a bare write and sync of as many bytes.
//!
//! `cargo bench -p weft --bench commit [-- --directory DIR] [--seconds N] [--clients 1,2,8,64] [--reserve BYTES]` prints a row for each
//! number of clients. A client is a thread that updates a row of its own and waits until the update is durable, again
//! and again. In the rows `pool` the clients submit their updates to a pool of two threads. Each round measures the
//! bare write and sync on the same file system first, by one thread, which appends to a file. A row is the median of several
//! rounds. `--reserve` sets [`DurabilityOptions::reserve_bytes`].
#![allow(missing_docs, reason = "a benchmark has no callers")]

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weft::{Database, DurabilityOptions, PoolOptions, Record, Table, column_of};

/// Rounds, whose median is reported.
const ROUNDS: usize = 5;

#[derive(Clone, Record)]
struct Account {
    #[record(key)]
    number: u64,
    balance: i64,
    name: String,
}

struct Options {
    directory: PathBuf,
    seconds: f64,
    clients: Vec<usize>,
    reserve_bytes: u64,
}

impl Options {
    fn parse() -> Result<Options, Box<dyn Error>> {
        let mut options = Options {
            directory: std::env::temp_dir(),
            seconds: 0.5,
            clients: vec![1, 2, 8, 64],
            reserve_bytes: DurabilityOptions::new().reserve_bytes,
        };
        let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--directory" => options.directory = value.into(),
                "--seconds" => options.seconds = value.parse()?,
                "--clients" => {
                    options.clients = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
                }
                "--reserve" => options.reserve_bytes = value.parse()?,
                _ => return Err(format!("{name} is not an option of this benchmark").into()),
            }
        }
        Ok(options)
    }
}

/// What one round has measured.
struct Round {
    /// The median of bare writes with a sync.
    bare_us: f64,
    p50_us: f64,
    p99_us: f64,
    commits_per_second: f64,
    commits_per_sync: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
    let directory = options.directory.join(format!("weft-bench-{}", std::process::id()));
    fs::create_dir(&directory)?;
    println!("{}", options.directory.display());
    println!("clients          p50 us  p99 us  bare us  p50/bare  commits/s  commits/sync");
    let result = options.clients.iter().try_for_each(|&clients| {
        row(&options, &directory, clients, false)?;
        row(&options, &directory, clients, true)
    });
    fs::remove_dir_all(&directory)?;
    result
}

fn row(
    options: &Options,
    directory: &Path,
    clients: usize,
    in_pool: bool,
) -> Result<(), Box<dyn Error>> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(round(options, directory, clients, in_pool)?);
    }
    let of = |pick: fn(&Round) -> f64| median(rounds.iter().map(pick).collect());
    println!(
        "{clients:>4} {:<10} {:>8.1} {:>7.1} {:>8.1} {:>9.2} {:>10.0} {:>13.1}",
        if in_pool { "pool" } else { "threads" },
        of(|round| round.p50_us),
        of(|round| round.p99_us),
        of(|round| round.bare_us),
        of(|round| round.p50_us / round.bare_us),
        of(|round| round.commits_per_second),
        of(|round| round.commits_per_sync),
    );
    Ok(())
}

fn round(
    options: &Options,
    directory: &Path,
    clients: usize,
    in_pool: bool,
) -> Result<Round, Box<dyn Error>> {
    let directory = directory.join("database");
    let database = Database::builder()
        .directory(&directory)
        .durability(DurabilityOptions::new().reserve_bytes(options.reserve_bytes))
        .table::<Account>()
        .open()?;
    let accounts = database.table::<Account>()?;
    database.transact(|tx| {
        (0..clients as u64).try_for_each(|number| {
            let name = format!("the account of client {number}");
            tx.insert(&accounts, Account { number, balance: 0, name })
        })
    })?;
    let time = Duration::from_secs_f64(options.seconds);
    // Measure the size of a commit, and then as many bytes without a database.
    let before = log_of(&database);
    commit_for(&database, &accounts, 1, false, time / 10)?;
    let after = log_of(&database);
    let bytes = (after.bytes_written - before.bytes_written)
        / (after.epochs_written - before.epochs_written);
    let bare_us = bare(&directory.join("bare"), bytes as usize, time / 2)?;
    let before = log_of(&database);
    let start = Instant::now();
    let mut times_us = commit_for(&database, &accounts, clients, in_pool, time)?;
    let seconds = start.elapsed().as_secs_f64();
    let after = log_of(&database);
    database.close()?;
    fs::remove_dir_all(&directory)?;
    times_us.sort_unstable_by(f64::total_cmp);
    let commits = times_us.len() as f64;
    Ok(Round {
        bare_us,
        p50_us: times_us[times_us.len() / 2],
        p99_us: times_us[times_us.len() * 99 / 100],
        commits_per_second: commits / seconds,
        commits_per_sync: commits / (after.syncs - before.syncs) as f64,
    })
}

fn log_of(database: &Database) -> weft::durability::LogMetrics {
    database.metrics().log.expect("the database has a directory")
}

/// Lets clients commit for some time. Returns how long each commit took.
fn commit_for(
    database: &Database,
    accounts: &Table<Account>,
    clients: usize,
    in_pool: bool,
    time: Duration,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let pool = match in_pool {
        true => Some(database.pool(&PoolOptions::new().threads(2))?),
        false => None,
    };
    let client = &|number: u64| {
        let mut times_us = Vec::new();
        let end = Instant::now() + time;
        let mut last = Instant::now();
        while last < end {
            let committed = match &pool {
                Some(pool) => {
                    let accounts = accounts.clone();
                    pool.submit(move |tx| {
                        tx.add(&accounts, &number, column_of!(Account.balance), 1)
                    })
                    .wait()
                }
                None => database
                    .transact(|tx| tx.add(accounts, &number, column_of!(Account.balance), 1)),
            };
            committed.expect("the disk works");
            let now = Instant::now();
            times_us.push((now - last).as_secs_f64() * 1e6);
            last = now;
        }
        times_us
    };
    Ok(std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..clients as u64).map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client panicked")).collect()
    }))
}

/// Appends `bytes` bytes to a file and syncs them, again and again. Returns the median time in microseconds.
fn bare(path: &Path, bytes: usize, time: Duration) -> Result<f64, Box<dyn Error>> {
    let mut file: File = OpenOptions::new().create_new(true).append(true).open(path)?;
    let content = vec![1; bytes];
    file.sync_all()?;
    let mut times_us = Vec::new();
    let start = Instant::now();
    let mut last = start;
    while last - start < time {
        file.write_all(&content)?;
        file.sync_data()?;
        let now = Instant::now();
        times_us.push((now - last).as_secs_f64() * 1e6);
        last = now;
    }
    fs::remove_file(path)?;
    Ok(median(times_us))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
