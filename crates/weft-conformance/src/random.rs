//! Random transactions on few rows. Nearly all runs are recorded, and the checker judges them.
//!
//! In small runs the seed interleaves the threads at the engine's shared accesses, and both oracles judge. The
//! checker judges by the versions that the engine has recorded, and [`crate::oracle`] by what the transactions
//! were shown. In large runs the threads run free, and the checker judges alone.
//!
//! If there are readers, some threads only open snapshots, read and close them. The other threads also hold
//! some snapshots open while they go on with their transactions. A snapshot is recorded, and judged, as one
//! transaction at the moment when it was opened.

use std::collections::HashSet;

use fastrand::Rng;
use weft::htm::word::{Ordering, Word};

use crate::contents::{fill, rows};
use crate::oracle::{Log, is_serializable};
use crate::step::{
    Change, Column, GENERATED, HASHED, LINES, State, Step, StepResult, is_for_procedures, state_of,
};
use crate::subject::{Body, Moment, OpenTransaction, Stop, Store, Subject, TransactionStash};
use crate::threads::{Mode, chaos, expect_end};
use crate::verdict::{Finding, judge};

/// Keys of the ordered table. About half of them have a row at any time.
const KEYS: u64 = 8;
/// Keys of the hash table.
const HASHED_KEYS: u64 = 4;
/// Index groups of the rows.
const GROUPS: u8 = 8;

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// How many threads run transactions.
    pub threads: usize,
    /// How many transactions each thread runs.
    pub transactions: usize,
    /// How many steps a transaction has at most. 0 means a single step that every protocol supports.
    pub steps_max: usize,
    /// How many threads only read snapshots. If 0, no thread opens any.
    pub readers: usize,
}

/// The program of a transaction. It does the same when it is run again.
struct Program {
    steps: Vec<Step>,
    rolls_back: bool,
}

/// Returns a value that no other transaction writes.
type Values<'a> = dyn FnMut() -> i64 + 'a;

fn any_step(random: &mut Rng, value: &mut Values<'_>) -> Step {
    let key =
        if random.u8(..4) == 0 { HASHED + random.u64(..HASHED_KEYS) } else { random.u64(..KEYS) };
    let ordered = key % KEYS;
    let from = random.u64(..KEYS);
    let to = random.u64(from + 1..=KEYS + 2);
    match random.u8(..51) {
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
        // Most of them on rows that can be split.
        19 => Step::Add(ordered, random.i64(1..1 << 20)),
        20..=22 => Step::Add(HASHED + key % HASHED_KEYS, random.i64(1..1 << 20)),
        24..=27 => any_column_step(random),
        31 => Step::Len,
        32 => Step::DeleteRange(from, (from + 2).min(to)),
        33 => Step::First(ordered),
        34 => Step::Last(to),
        35 => Step::Page(ordered),
        36 => Step::PageBack(to),
        37 => Step::GroupPage(random.u8(..GROUPS), ordered),
        38..=40 => {
            let changes =
                [Change::Write, Change::Insert, Change::Upsert, Change::Delete, Change::Add];
            let change = changes[random.usize(..changes.len())];
            let value = if change == Change::Add { random.i64(1..1 << 20) } else { value() };
            Step::InSavepoint { change, key, value, is_kept: random.bool() }
        }
        41 => Step::BadgesFrom(ordered),
        42 => Step::WriteMany([key % KEYS, from, to % KEYS], value()),
        43 => Step::Generate(value()),
        44 => match random.bool() {
            true => Step::Read(GENERATED + random.u64(1..4)),
            false => Step::Delete(GENERATED + random.u64(1..4)),
        },
        45..=46 => Step::InsertMany(any_run(random), value()),
        47..=49 => any_step_on_lines(random, from, to, value),
        50 => Step::InSavepoint {
            change: Change::InsertMany,
            key: LINES + from,
            value: value(),
            is_kept: random.bool(),
        },
        28..=30 => Step::Take(HASHED + key % HASHED_KEYS, random.i64(-(1 << 21)..1 << 22)),
        _ => Step::ScanGroup(random.u8(..GROUPS)),
    }
}

/// Draws the keys of a run, mostly of the table without secondary indexes. Most of them follow each other. The others
/// leave gaps, descend, or come twice.
fn any_run(random: &mut Rng) -> [u64; 4] {
    let (table, keys) = match random.u8(..6) {
        0 => (0, KEYS),
        1 => (HASHED, HASHED_KEYS),
        _ => (LINES, KEYS),
    };
    let first = random.u64(..keys);
    let distance = [1, 1, 1, 2, 3, keys - 1][random.usize(..6)];
    std::array::from_fn(|place| table + (first + distance * place as u64) % keys)
}

/// Draws a step on the rows that are inserted in runs, with keys from `from` on.
fn any_step_on_lines(random: &mut Rng, from: u64, to: u64, value: &mut Values<'_>) -> Step {
    let key = LINES + from;
    match random.u8(..8) {
        0..=1 => Step::Read(key),
        2 => Step::Write(key, value()),
        3 => Step::Delete(key),
        4..=5 => Step::Scan(key, LINES + to),
        6 => Step::DeleteRange(key, LINES + to),
        _ => Step::WriteMany([key, LINES + to, LINES + to / 2], value()),
    }
}

/// Draws a step that names a column, or that operates on a row in another way beside such steps.
fn any_column_step(random: &mut Rng) -> Step {
    let key = if random.bool() { HASHED + random.u64(..2) } else { random.u64(..4) };
    let column = if random.bool() { Column::Value } else { Column::Mark };
    match random.u8(..10) {
        0..=1 => Step::ReadColumn(key, column),
        2..=3 => Step::AddToColumn(key, column, random.i64(1..1 << 20)),
        4 => Step::AddToColumn(key, column, -random.i64(1..1 << 20)),
        5..=7 => Step::Add(key, random.i64(1..1 << 20)),
        8 => Step::CountRows(0, random.u64(2..=4)),
        _ => Step::Read(key),
    }
}

/// Draws a step that a protocol of single rows also supports. (An upsert is not one: it looks at the row twice,
/// and such a protocol is correct only for the second look.)
fn any_single_step(random: &mut Rng, value: &mut Values<'_>) -> Step {
    loop {
        let step = any_step(random, value);
        let is_single = match step {
            Step::Read(key) | Step::Delete(key) | Step::Write(key, _) => key < GENERATED,
            Step::Add(..) | Step::Take(..) | Step::Insert(..) => true,
            _ => false,
        };
        if is_single {
            return step;
        }
    }
}

/// Draws a step of a snapshot.
fn any_look(random: &mut Rng, steps_max: usize) -> Step {
    loop {
        match any_step(random, &mut || 0) {
            step @ Step::Read(key) if steps_max > 0 || key < GENERATED => return step,
            step @ Step::Scan(from, _) if steps_max > 0 || from < GENERATED => return step,
            step @ Step::ScanBack(..) => return step,
            step @ (Step::ReadByBadge(_)
            | Step::ScanGroup(_)
            | Step::BadgesFrom(_)
            | Step::Len
            | Step::First(_)
            | Step::Last(_)
            | Step::Page(_)
            | Step::PageBack(_)
            | Step::GroupPage(..))
                if steps_max > 0 =>
            {
                return step;
            }
            _ => {}
        }
    }
}

fn program(
    random: &mut Rng,
    steps_max: usize,
    by_columns: bool,
    value: &mut Values<'_>,
) -> Program {
    let steps =
        match steps_max {
            0 => vec![any_single_step(random, value)],
            _ if by_columns => (0..random.usize(2..=steps_max))
                .map(|_| {
                    if random.u8(..5) > 0 {
                        any_column_step(random)
                    } else {
                        any_step(random, value)
                    }
                })
                .collect(),
            _ => (0..random.usize(1..=steps_max)).map(|_| any_step(random, value)).collect(),
        };
    Program { steps, rolls_back: random.u8(..12) == 0 }
}

/// Returns the initial rows: every other row of each table.
fn initial() -> Vec<(u64, i64)> {
    let keys = (0..KEYS).chain(HASHED..HASHED + HASHED_KEYS).step_by(2);
    keys.map(|key| (key, key as i64 + 1)).collect()
}

fn fill_one_by_one(store: &dyn Store) {
    initial().into_iter().for_each(|row| fill(store, &[row]));
}

/// Returns all rows, read by one transaction for each.
fn rows_one_by_one(store: &dyn Store) -> State {
    let mut found = State::new();
    for key in (0..KEYS).chain(HASHED..HASHED + HASHED_KEYS) {
        let read = store.transact(&mut |tx| {
            found.extend(tx.take(Step::Read(key))?.rows().into_iter().map(|row| (key, row)));
            Ok(())
        });
        read.expect("no other transaction is running");
    }
    found
}

/// Runs one transaction to its end. Returns `None` if `transact` sets it aside.
fn run_program(
    transact: impl FnOnce(&mut Body<'_>) -> Option<Result<(), Stop>>,
    program: &Program,
    clock: &Word,
    random: &mut Rng,
) -> Result<Option<Log>, Finding> {
    let tick = || clock.fetch_add(1, Ordering::SeqCst) as usize;
    let mut log = Log::default();
    let ended = transact(&mut |tx| {
        log = Log { began: tick(), ..Log::default() };
        for &step in &program.steps {
            log.steps.push((step, tx.take(step)?));
            chaos(random);
        }
        if program.rolls_back { Err(Stop::RollBack) } else { Ok(()) }
    });
    let Some(end) = ended else { return Ok(None) };
    log.committed = end.is_ok();
    expect_end(CHECK, end)?;
    log.ended = tick();
    Ok(Some(log))
}

/// Runs one transaction to its end, whose steps a procedure takes.
fn run_procedure(store: &dyn Store, program: &Program, clock: &Word) -> Result<Log, Finding> {
    let tick = || clock.fetch_add(1, Ordering::SeqCst) as usize;
    let mut log = Log { began: tick(), ..Log::default() };
    let ended = store.transact_steps(&program.steps, KEYS, program.rolls_back);
    log.committed = ended.is_ok();
    expect_end(CHECK, ended.map(|steps| log.steps = steps))?;
    log.ended = tick();
    Ok(log)
}

/// The transactions of one thread, some of which were set aside.
struct StashedPrograms<'a> {
    stash: Box<dyn TransactionStash + 'a>,
    /// All programs that were begun.
    programs: Vec<Program>,
}

/// How many transactions a thread sets aside, at most.
const ASIDE_MAX: usize = 2;

impl StashedPrograms<'_> {
    /// Runs the transactions that were set aside and can run now, and then `program`, if there is one.
    fn turn(
        &mut self,
        program: Option<Program>,
        clock: &Word,
        random: &mut Rng,
        logs: &mut Vec<Log>,
    ) -> Result<(), Finding> {
        let StashedPrograms { stash, programs } = self;
        let mut run = |stash: &mut dyn TransactionStash, number: usize, program: &Program| {
            let transact = |body: &mut Body<'_>| stash.transact(number, body);
            logs.extend(run_program(transact, program, clock, random)?);
            Ok(())
        };
        while let Some(number) = stash.take_due() {
            run(&mut **stash, number, &programs[number])?;
        }
        if let Some(program) = program {
            programs.push(program);
            let number = programs.len() - 1;
            run(&mut **stash, number, &programs[number])?;
        }
        Ok(())
    }
}

/// The snapshots of one thread.
struct Snapshots<'a> {
    store: &'a dyn Store,
    clock: &'a Word,
    steps_max: usize,
    /// The state that they show.
    of: Moment,
    open: Vec<(Box<dyn OpenTransaction + 'a>, Log)>,
    closed: Vec<Log>,
}

/// How many snapshots a thread has open at a time.
const OPEN_MAX: usize = 3;

impl Snapshots<'_> {
    /// Opens a snapshot, reads in an open one, or closes one.
    fn turn(&mut self, random: &mut Rng) -> Result<(), Finding> {
        if self.open.is_empty() || self.open.len() < OPEN_MAX && random.u8(..4) == 0 {
            let of = self.of;
            let began = of.began(self.clock.fetch_add(1, Ordering::SeqCst) as usize);
            let snapshot = self.store.open_snapshot(of);
            let ended = self.clock.fetch_add(1, Ordering::SeqCst) as usize;
            let steps = vec![(Step::Snapshot, StepResult::Happened(true))];
            self.open.push((snapshot, Log { steps, committed: true, began, ended }));
            return Ok(());
        }
        let chosen = random.usize(..self.open.len());
        let (snapshot, log) = &mut self.open[chosen];
        for _ in 0..random.usize(1..=self.steps_max.max(3)) {
            let step = any_look(random, self.steps_max);
            let shown = snapshot.take(step);
            let shown =
                shown.map_err(|error| Finding::new(CHECK, "an error", error.to_string()))?;
            log.steps.push((step, shown));
            chaos(random);
        }
        if random.u8(..3) == 0 {
            self.close(chosen);
        }
        Ok(())
    }

    fn close(&mut self, chosen: usize) {
        let (snapshot, log) = self.open.swap_remove(chosen);
        snapshot.commit().expect("a snapshot never conflicts");
        self.closed.push(log);
    }

    /// Closes all snapshots.
    fn end(mut self) -> Vec<Log> {
        while !self.open.is_empty() {
            self.close(0);
        }
        self.closed
    }
}

const CHECK: &str = "random history";

/// Runs random transactions and judges the results.
///
/// # Errors
/// The finding, if there is one.
pub fn check(subject: &Subject, mode: Mode, size: Size) -> Result<(), Finding> {
    run(subject, mode, size, Kind { by_columns: false, is_recorded: true })
}

/// Runs random transactions, most of whose steps name columns. Half of the small runs are not recorded, and are judged
/// only by what the transactions were shown: procedures that commit in pieces go by rows if they are recorded.
///
/// # Errors
/// The finding, if there is one.
pub fn check_columns(subject: &Subject, mode: Mode, size: Size) -> Result<(), Finding> {
    let is_recorded =
        size.threads * size.transactions > SMALL || (mode.seed() / 2).is_multiple_of(2);
    run(subject, mode, size, Kind { by_columns: true, is_recorded })
}

/// The kind of a run.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Whether most steps name columns.
    by_columns: bool,
    is_recorded: bool,
}

/// Counts a thread when it ends.
struct EndGuard<'a>(&'a Word);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn run(subject: &Subject, mode: Mode, size: Size, kind: Kind) -> Result<(), Finding> {
    let Kind { by_columns, is_recorded } = kind;
    let seed = mode.seed();
    let store = if is_recorded { subject.open_recorded(seed) } else { subject.open(seed) };
    fill_one_by_one(&*store);
    // The initial rows have version 0, so their insertion is not recorded.
    if is_recorded {
        drop(store.take_history());
    }
    let clock = Word::new(1);
    let writers = subject.threads(size.threads);
    let readers = if subject.has_snapshots { size.readers } else { 0 };
    let threads = writers + readers;
    let coordinators = usize::from(store.coordinate(&|| false));
    let ended = Word::new(0);
    let all = threads + coordinators;
    let mut ran = mode.on_threads(CHECK, all, size.transactions, |thread, random| {
        if thread >= threads {
            store.coordinate(&|| ended.load(Ordering::Relaxed) < threads as u64);
            return Ok(Vec::new());
        }
        let _ended = EndGuard(&ended);
        let mut snapshots = Snapshots {
            store: &*store,
            clock: &clock,
            steps_max: size.steps_max,
            // A snapshot of the present finds more.
            of: match readers > 0 && random.u8(..4) == 0 {
                true => Moment::Recent,
                false => Moment::Now,
            },
            open: Vec::new(),
            closed: Vec::new(),
        };
        if thread >= writers {
            for _ in 0..2 * size.transactions {
                snapshots.turn(random)?;
            }
            return Ok(snapshots.end());
        }
        let mut last = (thread as i64) << 40;
        let mut value = || {
            last += 1 << 20;
            last
        };
        let mut logs = Vec::new();
        let mut stashed =
            store.stash(ASIDE_MAX).map(|stash| StashedPrograms { stash, programs: Vec::new() });
        for number in 0..size.transactions {
            let program = program(random, size.steps_max, by_columns, &mut value);
            // In every other run, every other transaction is a procedure, if it can be one.
            let is_procedure = mode.seed() % 2 == 1
                && (thread + number) % 2 == 0
                && program.steps.iter().all(|step| is_for_procedures(*step));
            match &mut stashed {
                None if is_procedure => logs.push(run_procedure(&*store, &program, &clock)?),
                Some(stashed) => stashed.turn(Some(program), &clock, random, &mut logs)?,
                None => {
                    let transact = |body: &mut Body<'_>| Some(store.transact(body));
                    logs.extend(run_program(transact, &program, &clock, random)?);
                }
            }
            if readers > 0 && random.bool() {
                snapshots.turn(random)?;
            }
        }
        while let Some(stashed) = &mut stashed
            && stashed.stash.wait()
        {
            stashed.turn(None, &clock, random, &mut logs)?;
        }
        logs.append(&mut snapshots.end());
        Ok(logs)
    })?;
    let left = if size.steps_max == 0 { rows_one_by_one(&*store) } else { rows(&*store) };
    let verdict = if is_recorded { judge(CHECK, &store.take_history()) } else { Ok(()) };
    let logs: Vec<Log> = std::mem::take(&mut ran.results).into_iter().flatten().collect();
    if let Some(key) = key_generated_twice(&logs) {
        let witness = format!("key {key}");
        return Err(ran.found(Finding::new(CHECK, "a key was generated twice", witness)));
    }
    assert!(is_recorded || logs.len() <= SMALL, "only the oracle for small runs judges");
    if logs.len() <= SMALL {
        let is_explained = is_serializable(&state_of(&initial()), &logs, &left);
        if !is_explained && verdict.is_ok() {
            let what = "no serial order explains it, though the checker passes it";
            let witness = format!("{logs:#?}, left {left:#?}");
            return Err(ran.found(Finding::new(CHECK, what, witness)));
        }
    }
    verdict.map_err(|finding| ran.found(finding))
}

/// Returns a key that two transactions have generated, although no key is generated twice.
fn key_generated_twice(logs: &[Log]) -> Option<i64> {
    let committed = logs.iter().filter(|log| log.committed);
    let keys = committed.flat_map(|log| &log.steps).filter_map(|step| match step {
        (Step::Generate(_), StepResult::Value(key)) => *key,
        _ => None,
    });
    let mut known = HashSet::new();
    keys.into_iter().find(|&key| !known.insert(key))
}

/// Runs with at most this many transactions are tried in every serial order.
const SMALL: usize = 9;
