//! What a reader of the change feed costs the one worker that writes.
//!
//! `cargo bench -p weft-changes --bench feed [-- --directory DIR] [--seconds N]` prints transfers per second, as medians
//! of rounds in which the variants take turns: without and with a reader, for a log whose commits are acknowledged
//! before they are durable, for one that is waited for, and for a ring in memory; and without any log. The ratio is the
//! median of those of the rounds. A reader counts all changes, so that it decodes each transaction.
#![allow(missing_docs, reason = "a benchmark has no callers")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weft::{Acknowledge, Database, DurabilityOptions, Record, Table};
use weft_changes::{ChangeFeed, ChangeRing};

/// Rounds, whose median is reported.
const ROUNDS: usize = 7;

const ACCOUNTS: u64 = 10_000;

#[derive(Clone, Record)]
struct Account {
    #[record(key)]
    number: u64,
    balance: i64,
    name: String,
}

#[derive(Clone, Copy)]
enum Kind {
    Committed,
    Durable,
    Ring,
    Memory,
}

struct Bench {
    database: Database,
    accounts: Table<Account>,
}

fn open(kind: Kind, directory: &Path) -> Result<Bench, Box<dyn Error>> {
    let options = DurabilityOptions::new().checkpoint_log_bytes(None);
    let builder = Database::builder().table::<Account>();
    let builder = match kind {
        Kind::Committed => {
            builder.directory(directory).durability(options.acknowledge(Acknowledge::Committed))
        }
        Kind::Durable => builder.directory(directory).durability(options),
        Kind::Ring => builder.change_ring(64 << 20),
        Kind::Memory => builder,
    };
    let database = builder.open()?;
    let accounts = database.table::<Account>()?;
    let rows = (0..ACCOUNTS).map(|number| {
        let name = format!("the holder of account {number}");
        Ok::<_, weft::Error>(Account { number, balance: 0, name })
    });
    database.load(&accounts, [rows], |_| {})?;
    Ok(Bench { database, accounts })
}

/// Transfers for a time, and returns how many transfers there were per second.
fn write(bench: &Bench, time: Duration) -> Result<(f64, u64), weft::Error> {
    let mut random = fastrand::Rng::with_seed(1);
    let (start, mut transfers) = (Instant::now(), 0_u64);
    while start.elapsed() < time {
        for _ in 0..16 {
            let (from, to) = (random.u64(..ACCOUNTS / 2), random.u64(ACCOUNTS / 2..ACCOUNTS));
            bench.database.transact(|tx| {
                tx.update(&bench.accounts, &from, |account| account.balance -= 1)?;
                tx.update(&bench.accounts, &to, |account| account.balance += 1)
            })?;
            transfers += 1;
        }
    }
    Ok((transfers as f64 / start.elapsed().as_secs_f64(), transfers))
}

/// Runs a round. With a reader, also returns how many transactions it had read when the worker ended.
fn round(
    kind: Kind,
    has_reader: bool,
    directory: &Path,
    time: Duration,
) -> Result<(f64, f64), Box<dyn Error>> {
    let directory = directory.join("db");
    let bench = open(kind, &directory)?;
    let result = std::thread::scope(|scope| -> Result<(f64, f64), Box<dyn Error>> {
        let changes = if has_reader { Some(bench.database.changes_from_now()?) } else { None };
        let stop = std::sync::mpsc::channel::<()>();
        let reader = changes.map(|mut changes| {
            let stop = stop.1;
            scope.spawn(move || {
                let (mut read, mut columns) = (0_u64, 0);
                while stop.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
                    let limit = Duration::from_millis(20);
                    while let Some(transaction) = changes.next_timeout(limit).expect("it keeps up")
                    {
                        for change in transaction.changes() {
                            change.key::<Account>().expect("a key");
                            columns +=
                                change.column::<i64>("balance").expect("an i64").is_some() as u64;
                        }
                        read += 1;
                        if read % 1024 == 0
                            && stop.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected)
                        {
                            break;
                        }
                    }
                }
                (read, columns)
            })
        });
        let (rate, written) = write(&bench, time)?;
        drop(stop.0);
        let read = reader.map_or(0, |reader| reader.join().expect("the reader").0);
        Ok((rate, read as f64 / written as f64))
    });
    bench.database.close()?;
    drop(bench);
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    result
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut directory, mut seconds) = (std::env::temp_dir(), 0.5);
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--directory" => directory = PathBuf::from(value),
            "--seconds" => seconds = value.parse()?,
            _ => return Err(format!("{name} is not an option of this benchmark").into()),
        }
    }
    let directory = directory.join(format!("weft-feed-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let time = Duration::from_secs_f64(seconds);
    println!("kind        without reader/s  with reader/s  ratio  read by then");
    for (name, kind) in [
        ("committed", Kind::Committed),
        ("durable", Kind::Durable),
        ("ring", Kind::Ring),
        ("memory", Kind::Memory),
    ] {
        let (mut without, mut with, mut ratios, mut read) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            let plain = round(kind, false, &directory, time)?.0;
            without.push(plain);
            if matches!(kind, Kind::Memory) {
                continue;
            }
            let (rate, share) = round(kind, true, &directory, time)?;
            with.push(rate);
            ratios.push(rate / plain);
            read.push(share);
        }
        if matches!(kind, Kind::Memory) {
            println!("{name:<11} {:>16.0}", median(&mut without));
            continue;
        }
        println!(
            "{name:<11} {:>16.0} {:>14.0} {:>6.3} {:>13.2}",
            median(&mut without),
            median(&mut with),
            median(&mut ratios),
            median(&mut read)
        );
    }
    fs::remove_dir_all(&directory)?;
    Ok(())
}
