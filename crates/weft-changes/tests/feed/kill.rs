//! Processes that write and follow their own changes, and are killed in the middle of it.
//!
//! The process is this test program, with the test [`runs_until_it_is_killed`]. Its reader appends a line to a file for
//! each transaction: the position, and what the transaction was. The file is the reader's state: after a kill it goes on
//! from the position in the last whole line. Every transfer of a writer must be in the file once, and in order.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft::protocol::{Dbx, Protocol, TwoPhaseLocking};
use weft::{Acknowledge, Database, DurabilityOptions};
use weft_changes::{ChangeFeed, Position, Transaction};
use weft_tests::{TemporaryDirectory, stress};

use crate::bank::{Bank, Writer};

const DIRECTORY: &str = "WEFT_FEED_DIRECTORY";
const PROTOCOL: &str = "WEFT_FEED_PROTOCOL";
const SEED: &str = "WEFT_FEED_SEED";
const WRITERS: u32 = 2;

fn open<P: Protocol>(directory: &Path) -> Bank<P> {
    // Small segments and frequent checkpoints, so that kills hit all kinds of work.
    let options = DurabilityOptions::new()
        .acknowledge(Acknowledge::Committed)
        .epoch_interval(Duration::from_millis(2))
        .loggers(2)
        .segment_bytes(64 << 10)
        .checkpoint_log_bytes(Some(300 << 10))
        .keep_log_bytes(1 << 30)
        .threads(1);
    let builder = Database::builder().protocol::<P>().directory(directory.join("db"));
    Bank::open(builder.durability(options)).unwrap()
}

/// Reads the reader's file: the last position, and the last transfer of each writer. Cuts off a line that was not
/// written to its end.
fn read_state(directory: &Path) -> (Position, BTreeMap<u32, u64>) {
    let path = directory.join("reader");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    std::fs::write(&path, &text[..whole]).unwrap();
    let (mut position, mut transfers) = (Position::START, BTreeMap::new());
    for line in text[..whole].lines() {
        let mut parts = line.split(' ');
        let mut next = || parts.next().expect("a line has three parts");
        let (at, writer, number): (Position, u32, u64) =
            (next().parse().unwrap(), next().parse().unwrap(), next().parse().unwrap());
        assert!(at > position || position == Position::START, "{line} after {position}");
        position = at;
        let before = transfers.insert(writer, number).unwrap_or(0);
        assert_eq!(number, before + 1, "writer {writer}, in the line {line}");
    }
    (position, transfers)
}

fn append(file: &mut std::fs::File, transaction: &Transaction) {
    let mut writers = transaction.changes().filter(|change| change.is::<Writer>());
    let change = writers.next().expect("every transfer counts");
    let writer = change.key::<Writer>().unwrap();
    let number: u64 = change.column("transfers").unwrap().expect("the count changes");
    assert_eq!(writers.count(), 0);
    let line = format!("{} {writer} {number}\n", transaction.position());
    file.write_all(line.as_bytes()).unwrap();
}

fn run<P: Protocol>(directory: &Path, seed: u64) {
    let bank = open::<P>(directory);
    let (position, _) = read_state(directory);
    println!("\nopen");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let bank = &bank;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed + u64::from(writer));
                loop {
                    bank.transfer(writer, &mut random).unwrap();
                }
            });
        }
        let path = directory.join("reader");
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        for transaction in bank.database.changes(position).unwrap() {
            append(&mut file, &transaction.unwrap());
        }
    });
}

#[test]
#[ignore = "the others run it, as a process of its own"]
fn runs_until_it_is_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    match &*std::env::var(PROTOCOL).unwrap() {
        Dbx::NAME => run::<Dbx>(Path::new(&directory), seed),
        TwoPhaseLocking::NAME => run::<TwoPhaseLocking>(Path::new(&directory), seed),
        other => panic!("no {other}"),
    }
}

fn kill_again_and_again<P: Protocol>(rounds: usize) {
    let seed = match std::env::var("WEFT_SEED") {
        Ok(seed) => seed.parse().expect("WEFT_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
    };
    println!("WEFT_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = TemporaryDirectory::new("feed");
    let mut seen = 0;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::runs_until_it_is_killed", "--ignored", "--nocapture"])
            .env(DIRECTORY, &directory.0)
            .env(PROTOCOL, P::NAME)
            .env(SEED, random.u32(..).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        if random.u8(..5) > 0 {
            let output = BufReader::new(child.stdout.take().unwrap());
            let is_open = output.lines().map_while(Result::ok).any(|line| line == "open");
            assert!(is_open, "round {round}: the process ended: {:?}", child.wait());
        }
        sleep(Duration::from_millis(random.u64(5..120)));
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "round {round}: it ended on its own: {ended:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 5 == 4 || round + 1 == rounds {
            // Read the rest of the feed. Then everything in the database must have been in it.
            let (position, mut transfers) = read_state(&directory.0);
            let bank = open::<P>(&directory.0);
            let mut file =
                OpenOptions::new().append(true).open(directory.0.join("reader")).unwrap();
            let mut changes = bank.database.changes(position).unwrap();
            while let Some(transaction) = changes.try_next().unwrap() {
                append(&mut file, &transaction);
            }
            transfers.clear();
            transfers.extend(read_state(&directory.0).1);
            assert_eq!(transfers, bank.state().writers, "round {round}");
            seen = transfers.values().sum();
            bank.database.close().unwrap();
        }
    }
    println!("{rounds} kills under {}, {seen} transactions", P::NAME);
    assert!(seen > 0);
}

#[test]
fn killed_process_loses_and_doubles_nothing_dbx() {
    kill_again_and_again::<Dbx>(10 * stress());
}

#[test]
fn killed_process_loses_and_doubles_nothing_2pl() {
    kill_again_and_again::<TwoPhaseLocking>(10 * stress());
}
