//! Random transactions on few rows, every one recorded, and the checker.
//!
//! In small runs the threads are interleaved by the seed at the engine's shared accesses, and both
//! oracles judge: the checker by the versions that the engine has recorded, and that of
//! [`crate::oracle`] by what the transactions were shown. In large runs the threads run free, and
//! the checker judges alone.

use fastrand::Rng;
use weft::htm::word::{Ordering, Word};

use crate::oracle::{Log, is_serializable};
use crate::schedule::{fill, rows};
use crate::step::{HASHED, State, Step, state_of};
use crate::subject::{Stop, Store, Subject};
use crate::threads::{Mode, chaos, expect_end};
use crate::verdict::{Finding, judge};

/// Rows of the ordered table: about every other key has one at a time.
const KEYS: u64 = 8;
/// Rows of the hash table.
const HASHED_KEYS: u64 = 4;
/// Index groups that rows are in.
const GROUPS: u8 = 8;

/// How much a run does.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Threads.
    pub threads: usize,
    /// Transactions of each thread.
    pub transactions: usize,
    /// Steps of a transaction, at most; 0 for a single one that every protocol knows.
    pub steps_max: usize,
}

/// What a transaction is to do. It does the same when it is run again.
struct Program {
    steps: Vec<Step>,
    rolls_back: bool,
}

/// A value that nobody else writes.
type Values<'a> = dyn FnMut() -> i64 + 'a;

fn any_step(random: &mut Rng, value: &mut Values<'_>) -> Step {
    let key =
        if random.u8(..4) == 0 { HASHED + random.u64(..HASHED_KEYS) } else { random.u64(..KEYS) };
    let ordered = key % KEYS;
    let from = random.u64(..KEYS);
    let to = random.u64(from + 1..=KEYS + 2);
    match random.u8(..20) {
        0..=4 => Step::Read(key),
        5 => Step::ReadByBadge(ordered),
        6..=9 => Step::Write(key, value()),
        10 => Step::AddIfNotNegative(ordered, -random.i64(0..1 << 40)),
        11 => Step::Move(ordered, random.u8(..GROUPS)),
        12..=13 => Step::Insert(key, value()),
        14 => Step::Upsert(key, value()),
        15..=16 => Step::Delete(key),
        17 => Step::Scan(from, to),
        18 => Step::ScanBack(from, to),
        _ => Step::ScanGroup(random.u8(..GROUPS)),
    }
}

/// A step that also a protocol of single rows knows. (None that replaces a row or inserts it: that
/// looks twice, and such a protocol answers for the second look only.)
fn any_single_step(random: &mut Rng, value: &mut Values<'_>) -> Step {
    loop {
        let step = any_step(random, value);
        let is_single =
            matches!(step, Step::Read(_) | Step::Write(..) | Step::Insert(..) | Step::Delete(_));
        if is_single {
            return step;
        }
    }
}

fn program(random: &mut Rng, steps_max: usize, value: &mut Values<'_>) -> Program {
    let steps = match steps_max {
        0 => vec![any_single_step(random, value)],
        _ => (0..random.usize(1..=steps_max)).map(|_| any_step(random, value)).collect(),
    };
    Program { steps, rolls_back: random.u8(..12) == 0 }
}

/// Every other row of each table.
fn initial() -> Vec<(u64, i64)> {
    let keys = (0..KEYS).chain(HASHED..HASHED + HASHED_KEYS).step_by(2);
    keys.map(|key| (key, key as i64 + 1)).collect()
}

fn fill_one_by_one(store: &dyn Store) {
    initial().into_iter().for_each(|row| fill(store, &[row]));
}

/// All rows, by a transaction for each.
fn rows_one_by_one(store: &dyn Store) -> State {
    let mut found = State::new();
    for key in (0..KEYS).chain(HASHED..HASHED + HASHED_KEYS) {
        let read = store.transact(&mut |tx| {
            found.extend(tx.take(Step::Read(key))?.rows().into_iter().map(|row| (key, row)));
            Ok(())
        });
        read.expect("nothing is in the way");
    }
    found
}

/// Runs one transaction to its end.
fn run_program(
    store: &dyn Store,
    program: &Program,
    clock: &Word,
    random: &mut Rng,
) -> Result<Log, Finding> {
    let tick = || clock.fetch_add(1, Ordering::SeqCst) as usize;
    let mut log = Log::default();
    let end = store.transact(&mut |tx| {
        log = Log { began: tick(), ..Log::default() };
        for &step in &program.steps {
            log.steps.push((step, tx.take(step)?));
            chaos(random);
        }
        if program.rolls_back { Err(Stop::RollBack) } else { Ok(()) }
    });
    log.committed = end.is_ok();
    expect_end(CHECK, end)?;
    log.ended = tick();
    Ok(log)
}

const CHECK: &str = "random history";

/// Runs random transactions and judges what comes of them.
///
/// # Errors
/// What is found.
pub fn check(subject: &Subject, mode: Mode, size: Size) -> Result<(), Finding> {
    let store = subject.open_recorded();
    fill_one_by_one(&*store);
    // What was there before has version 0.
    drop(store.take_history());
    let clock = Word::new(1);
    let threads = subject.threads(size.threads);
    let logs = mode.on_threads(CHECK, threads, size.transactions, |thread, random| {
        let mut last = (thread as i64) << 40;
        let mut value = || {
            last += 1 << 20;
            last
        };
        (0..size.transactions)
            .map(|_| {
                let program = program(random, size.steps_max, &mut value);
                run_program(&*store, &program, &clock, random)
            })
            .collect::<Result<Vec<Log>, Finding>>()
    })?;
    let left = if size.steps_max == 0 { rows_one_by_one(&*store) } else { rows(&*store) };
    let verdict = judge(CHECK, &store.take_history());
    if threads * size.transactions <= SMALL {
        let logs: Vec<Log> = logs.into_iter().flatten().collect();
        let is_explained = is_serializable(&state_of(&initial()), &logs, &left);
        if !is_explained && verdict.is_ok() {
            let what = "no serial order explains it, though the checker passes it";
            let witness = format!("{logs:#?}, left {left:#?}");
            return Err(mode.found(Finding::new(CHECK, what, witness)));
        }
    }
    verdict.map_err(|finding| mode.found(finding))
}

/// Runs with so few transactions are tried in every serial order.
const SMALL: usize = 9;
