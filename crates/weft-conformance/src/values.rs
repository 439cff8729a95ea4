//! Histories whose versions follow from the values. This oracle does not need the engine's recorder.
//!
//! Every write here has read what it replaces, and writes a value that no other transaction writes. So the
//! values of a row form a chain, which gives the order of its versions, whatever the engine believes. (This is
//! the idea of the list-append histories of Kingsbury and Alvaro's Elle, VLDB 2020.) If two writes have read
//! the same value, one of them is lost. What was read of several rows goes through the checker, with positions
//! in the chains as versions.

use std::collections::HashMap;

use fastrand::Rng;
use weft::htm::word::{Ordering, Word};
use weft_checker::{HistoryBuilder, Observed, Options};

use crate::contents::{fill, rows};
use crate::step::{HASHED, Step};
use crate::subject::{Steps, Stop, Store, Subject};
use crate::threads::{Mode, chaos, expect_end};
use crate::verdict::Finding;

const CHECK: &str = "order of values";

/// Rows in each of the tables.
const ROWS: u64 = 4;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Saw(u64, i64),
    /// The key, the value that was read, and the value that was written.
    Replaced(u64, i64, i64),
}

#[derive(Debug)]
struct CommittedTransaction {
    operations: Vec<Operation>,
    began: u64,
    ended: u64,
}

fn initial() -> Vec<(u64, i64)> {
    (0..ROWS).chain(HASHED..HASHED + ROWS).map(|key| (key, 0)).collect()
}

fn read(tx: &dyn Steps, key: u64) -> Result<i64, Stop> {
    match tx.take(Step::Read(key))?.rows()[..] {
        [row] => Ok(row.value),
        _ => Err(Stop::Broken(format!("row {key} is gone"))),
    }
}

/// Reads and replaces a few rows.
fn act(
    store: &dyn Store,
    clock: &Word,
    random: &mut Rng,
    value: &mut i64,
) -> Result<Option<CommittedTransaction>, Stop> {
    let input = random.fork();
    let mut committed = CommittedTransaction { operations: Vec::new(), began: 0, ended: 0 };
    let end = store.transact(&mut |tx| {
        let mut random = input.clone();
        committed.began = clock.fetch_add(1, Ordering::SeqCst);
        committed.operations.clear();
        for _ in 0..random.usize(1..5) {
            let key = random.u64(..ROWS) + if random.bool() { HASHED } else { 0 };
            match random.u8(..6) {
                0..=1 => committed.operations.push(Operation::Saw(key, read(tx, key)?)),
                2 => {
                    let rows = tx.take(Step::Scan(0, HASHED))?.rows();
                    let saw = rows.iter().map(|row| Operation::Saw(row.key, row.value));
                    committed.operations.extend(saw);
                }
                _ => {
                    let before = read(tx, key)?;
                    *value += 1;
                    tx.take(Step::Write(key, *value))?;
                    committed.operations.push(Operation::Replaced(key, before, *value));
                }
            }
            chaos(&mut random);
        }
        if random.u8(..10) == 0 { Err(Stop::RollBack) } else { Ok(()) }
    });
    committed.ended = clock.fetch_add(1, Ordering::SeqCst);
    match end {
        Ok(()) => Ok(Some(committed)),
        Err(Stop::RollBack) => Ok(None),
        Err(stop) => Err(stop),
    }
}

/// Runs transactions that each write values of their own, and judges by the values.
///
/// # Errors
/// The finding, if there is one.
pub fn check(
    subject: &Subject,
    mode: Mode,
    threads: usize,
    transactions: usize,
) -> Result<(), Finding> {
    let store = subject.open(mode.seed());
    fill(&*store, &initial());
    let clock = Word::new(1);
    let threads = subject.threads(threads);
    let mut ran = mode.on_threads(CHECK, threads, transactions, |thread, random| {
        let mut value = (thread as i64 + 1) << 32;
        let mut all = Vec::new();
        for _ in 0..transactions {
            match act(&*store, &clock, random, &mut value) {
                Ok(committed) => all.extend(committed.map(|committed| (thread, committed))),
                Err(stop) => expect_end(CHECK, Err(stop))?,
            }
        }
        Ok(all)
    })?;
    let committed: Vec<(usize, CommittedTransaction)> =
        std::mem::take(&mut ran.results).into_iter().flatten().collect();
    let last: HashMap<u64, i64> =
        rows(&*store).into_iter().map(|(key, row)| (key, row.value)).collect();
    judge(&committed, &last).map_err(|finding| ran.found(finding))
}

/// Returns the place of every value in the chain of its row.
fn chains(
    committed: &[(usize, CommittedTransaction)],
    last: &HashMap<u64, i64>,
) -> Result<HashMap<(u64, i64), u64>, Finding> {
    let mut next: HashMap<(u64, i64), i64> = HashMap::new();
    for (_, transaction) in committed {
        for operation in &transaction.operations {
            if let Operation::Replaced(key, before, after) = *operation
                && let Some(other) = next.insert((key, before), after)
            {
                let witness = format!("row {key}: both {other} and {after} replaced {before}");
                return Err(Finding::new(CHECK, "two writes replaced the same value", witness));
            }
        }
    }
    let mut places = HashMap::new();
    for (key, mut value) in initial() {
        places.insert((key, value), 0);
        let mut place = 0;
        while let Some(&after) = next.get(&(key, value)) {
            (value, place) = (after, place + 1);
            places.insert((key, value), place);
        }
        if last.get(&key) != Some(&value) {
            let witness =
                format!("row {key}: {value} came last, but it holds {:?}", last.get(&key));
            return Err(Finding::new(CHECK, "the last value is not there", witness));
        }
    }
    Ok(places)
}

fn judge(
    committed: &[(usize, CommittedTransaction)],
    last: &HashMap<u64, i64>,
) -> Result<(), Finding> {
    let places = chains(committed, last)?;
    let place = |key: u64, value: i64| {
        places.get(&(key, value)).copied().ok_or_else(|| {
            let witness = format!("row {key}: {value} was never there");
            Finding::new(CHECK, "a value from nowhere", witness)
        })
    };
    let mut builder = HistoryBuilder::new();
    let table = builder.table("rows");
    for (id, (thread, transaction)) in committed.iter().enumerate() {
        let mut to = builder.transaction(id as u64 + 1, *thread as u32, transaction.began);
        for operation in &transaction.operations {
            match *operation {
                Operation::Saw(key, value) => {
                    to.read(table, key, Observed::Version(place(key, value)?));
                }
                Operation::Replaced(key, before, after) => {
                    to.read(table, key, Observed::Version(place(key, before)?));
                    to.write(table, key, place(key, after)?);
                }
            }
        }
        to.committed(transaction.ended);
    }
    let report = weft_checker::check(&builder.build(), &Options::default());
    if report.is_ok() {
        return Ok(());
    }
    let what = report.anomalies.iter().map(|anomaly| format!("{:?}", anomaly.kind)).collect();
    let witness = report.to_string();
    Err(Finding { check: CHECK, what, seed: None, schedule: String::new(), witness })
}
