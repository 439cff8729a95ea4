//! Invariants that every transaction keeps, and every transaction sees, if the engine is serializable. They are
//! a third oracle, which knows neither versions nor orders.
//!
//! Each invariant fills the tables with rows for which it holds. Threads change the rows in ways that keep it,
//! and *audit* it: they read everything in one transaction and check it. An audit that fails ends its
//! transaction with an error. The engine returns such an error only if it follows from a state that the
//! database had, so an error that comes out is a finding.
//!
//! Snapshots see what transactions see. *Readers* are threads that audit one snapshot after the other, and
//! sometimes the same one again later.

use fastrand::Rng;

use crate::contents::fill;
use crate::step::{HASHED, Row, Step, StepResult};
use crate::subject::{Moment, OpenTransaction, Steps, Stop, Store, Subject};
use crate::threads::{Mode, chaos, expect_end};
use crate::verdict::Finding;

/// An invariant, and the transactions that keep it.
pub trait Invariant: Sync {
    /// Returns the name of the invariant.
    fn name(&self) -> &'static str;

    /// Returns the initial rows.
    fn initial(&self) -> Vec<(u64, i64)>;

    /// Runs one transaction's body: changes something, and keeps the invariant.
    ///
    /// # Errors
    /// Conflicts; [`Stop::Broken`] if it sees that the invariant does not hold.
    fn change(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop>;

    /// Checks whether the invariant holds.
    ///
    /// # Errors
    /// Conflicts (but not on a snapshot); [`Stop::Broken`] if the invariant does not hold.
    fn audit(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop>;
}

/// Runs changes and audits of an invariant on `threads` threads, and audits of snapshots on `readers` more.
///
/// # Errors
/// The finding, if there is one.
pub fn check(
    invariant: &dyn Invariant,
    subject: &Subject,
    mode: Mode,
    threads: usize,
    transactions: usize,
    readers: usize,
) -> Result<(), Finding> {
    let store = subject.open(mode.seed());
    fill(&*store, &invariant.initial());
    let writers = subject.threads(threads);
    let ran =
        mode.on_threads(invariant.name(), writers + readers, transactions, |thread, random| {
            if thread >= writers {
                let end = audit_snapshots(invariant, &*store, random, transactions);
                return expect_end(invariant.name(), end);
            }
            (0..transactions).try_for_each(|_| transact(invariant, &*store, random, false))
        })?;
    transact(invariant, &*store, &mut mode.random(99), true).map_err(|found| ran.found(found))
}

fn audit_snapshots(
    invariant: &dyn Invariant,
    store: &dyn Store,
    random: &mut Rng,
    snapshots: usize,
) -> Result<(), Stop> {
    let mut kept: Option<Box<dyn OpenTransaction + '_>> = None;
    for _ in 0..snapshots {
        let snapshot = store.open_snapshot(Moment::any(random));
        invariant.audit(&*snapshot, random)?;
        if let Some(kept) = &kept {
            invariant.audit(&**kept, random)?;
        }
        kept = match random.u8(..3) {
            0 => Some(snapshot),
            1 => None,
            _ => kept,
        };
    }
    Ok(())
}

fn transact(
    invariant: &dyn Invariant,
    store: &dyn Store,
    random: &mut Rng,
    only_audits: bool,
) -> Result<(), Finding> {
    let input = random.fork();
    let end = store.transact(&mut |tx| {
        let mut random = input.clone();
        if only_audits || random.u8(..3) == 0 {
            return invariant.audit(tx, &mut random);
        }
        invariant.change(tx, &mut random)?;
        match random.u8(..8) {
            // The invariant must also hold in the middle of a transaction.
            0 => invariant.audit(tx, &mut random),
            1 => Err(Stop::RollBack),
            _ => Ok(()),
        }
    });
    expect_end(invariant.name(), end)
}

fn broken<R>(what: String) -> Result<R, Stop> {
    Err(Stop::Broken(what))
}

/// Returns the row under a key.
fn read(tx: &dyn Steps, key: u64) -> Result<Row, Stop> {
    match tx.take(Step::Read(key))?.rows()[..] {
        [row] => Ok(row),
        _ => broken(format!("row {key} is gone")),
    }
}

/// Replaces the value of an existing row.
fn write(tx: &dyn Steps, key: u64, value: i64) -> Result<(), Stop> {
    match tx.take(Step::Write(key, value))? {
        StepResult::Happened(true) => Ok(()),
        _ => broken(format!("row {key} is gone")),
    }
}

// ---- a bank -----------------------------------------------------------------------------------

/// A bank: transfers between accounts keep the total.
#[derive(Debug)]
pub struct Bank;

const ACCOUNTS: u64 = 5;
const TOTAL: i64 = 2 * ACCOUNTS as i64 * 100;

fn account(random: &mut Rng) -> u64 {
    random.u64(..ACCOUNTS) + if random.bool() { HASHED } else { 0 }
}

impl Invariant for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    fn initial(&self) -> Vec<(u64, i64)> {
        (0..ACCOUNTS).chain(HASHED..HASHED + ACCOUNTS).map(|key| (key, 100)).collect()
    }

    fn change(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        let (from, to) = (account(random), account(random));
        let giver = read(tx, from)?.value;
        let amount = random.i64(1..60).min(giver);
        chaos(random);
        write(tx, from, giver - amount)?;
        chaos(random);
        let taker = read(tx, to)?.value;
        write(tx, to, taker + amount)
    }

    fn audit(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        let mut total = 0;
        match random.u8(..3) {
            0 => {
                let rows = tx.take(Step::Scan(0, HASHED))?.rows();
                total += rows.iter().map(|row| row.value).sum::<i64>();
            }
            1 => {
                let rows = tx.take(Step::ScanBack(0, HASHED))?.rows();
                total += rows.iter().map(|row| row.value).sum::<i64>();
            }
            _ => {
                for key in 0..ACCOUNTS {
                    total += read(tx, key)?.value;
                }
            }
        }
        chaos(random);
        for key in HASHED..HASHED + ACCOUNTS {
            total += read(tx, key)?.value;
        }
        match total {
            TOTAL => Ok(()),
            _ => broken(format!("{total} in all instead of {TOTAL}")),
        }
    }
}

// ---- a ring -----------------------------------------------------------------------------------

/// A ring: each row names the next, and swapping two neighbours keeps all rows in one ring.
#[derive(Debug)]
pub struct Ring;

const LINKS: u64 = 7;

/// Returns the key of a link. Even links are in the hash table.
fn link(number: u64) -> u64 {
    if number.is_multiple_of(2) { HASHED + number } else { number }
}

impl Invariant for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn initial(&self) -> Vec<(u64, i64)> {
        (0..LINKS).map(|number| (link(number), link((number + 1) % LINKS) as i64)).collect()
    }

    fn change(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        // Turn a, b, c, d into a, c, b, d.
        let a = link(random.u64(..LINKS));
        let b = read(tx, a)?.value;
        chaos(random);
        let c = read(tx, b as u64)?.value;
        let d = read(tx, c as u64)?.value;
        write(tx, a, c)?;
        chaos(random);
        write(tx, c as u64, b)?;
        write(tx, b as u64, d)
    }

    fn audit(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        let first = link(random.u64(..LINKS));
        let mut visited = vec![first];
        loop {
            let next = read(tx, visited[visited.len() - 1])?.value as u64;
            if next == first && visited.len() == LINKS as usize {
                return Ok(());
            }
            if visited.contains(&next) {
                return broken(format!("from {visited:?} back to {next}"));
            }
            visited.push(next);
            chaos(random);
        }
    }
}

// ---- on call ----------------------------------------------------------------------------------

/// Staff on call, against write skew: at least one of a few rows always holds 1. A transaction that sets one to
/// 0 has seen that another holds 1.
#[derive(Debug)]
pub struct OnCall;

/// The rows of the staff, in both tables.
const STAFF: [u64; 3] = [1, HASHED, 2];

fn on_call(tx: &dyn Steps, random: &mut Rng) -> Result<i64, Stop> {
    let mut count = 0;
    for key in STAFF {
        count += read(tx, key)?.value;
        chaos(random);
    }
    if count > 0 { Ok(count) } else { broken("no row says that it is on call".to_owned()) }
}

impl Invariant for OnCall {
    fn name(&self) -> &'static str {
        "on call"
    }

    fn initial(&self) -> Vec<(u64, i64)> {
        STAFF.map(|key| (key, 1)).to_vec()
    }

    fn change(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        let one = STAFF[random.usize(..STAFF.len())];
        let leaves = on_call(tx, random)? > 1 && read(tx, one)?.value == 1;
        write(tx, one, i64::from(!leaves))
    }

    fn audit(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        on_call(tx, random).map(drop)
    }
}

// ---- rewritten rows ---------------------------------------------------------------------------

/// Rewritten rows: transactions write the same few rows again and again, and leave even values behind. Many
/// roll back. So rows that no other transaction may see come and go, in the middle of what other transactions
/// read.
#[derive(Debug)]
pub struct RowRewrites;

/// The rewritten rows, two of each table.
const REWRITTEN: [u64; 4] = [1, 2, HASHED, HASHED + 1];

impl Invariant for RowRewrites {
    fn name(&self) -> &'static str {
        "rewritten rows"
    }

    fn initial(&self) -> Vec<(u64, i64)> {
        REWRITTEN.map(|key| (key, 0)).to_vec()
    }

    fn change(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        let key = REWRITTEN[random.usize(..REWRITTEN.len())];
        let value = read(tx, key)?.value;
        for _ in 0..random.u8(..3) {
            write(tx, key, value + 1)?;
            chaos(random);
        }
        if random.u8(..4) == 0 {
            tx.take(Step::Delete(key))?;
            tx.take(Step::Insert(key, value + 3))?;
        }
        write(tx, key, value + 2)?;
        if random.u8(..3) == 0 { Err(Stop::RollBack) } else { Ok(()) }
    }

    fn audit(&self, tx: &dyn Steps, _random: &mut Rng) -> Result<(), Stop> {
        for key in REWRITTEN {
            let value = read(tx, key)?.value;
            if value % 2 != 0 {
                return broken(format!("row {key} is {value}"));
            }
        }
        Ok(())
    }
}

// ---- counted rows -----------------------------------------------------------------------------

/// Counted rows, against phantoms: rows come and go, and other rows count them, all of them and by group.
#[derive(Debug)]
pub struct RowCount;

/// How many rows may exist, at keys both far apart and close together.
const PLACES: u64 = 12;
/// The row that counts all.
const COUNT: u64 = HASHED;

fn place(number: u64) -> u64 {
    // The last digit is the group: 0, 1 or 2.
    10 * (number * number / 2) + number % 3
}

fn group_count(group: u8) -> u64 {
    COUNT + 1 + u64::from(group)
}

impl Invariant for RowCount {
    fn name(&self) -> &'static str {
        "counted rows"
    }

    fn initial(&self) -> Vec<(u64, i64)> {
        (COUNT..COUNT + 4).map(|key| (key, 0)).collect()
    }

    fn change(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        let key = place(random.u64(..PLACES));
        // Some transactions look first, others insert and see.
        let is_there = match random.bool() {
            true => !tx.take(Step::Read(key))?.rows().is_empty(),
            false => tx.take(Step::Insert(key, 0))? == StepResult::Happened(false),
        };
        chaos(random);
        let difference = if is_there {
            if tx.take(Step::Delete(key))? != StepResult::Happened(true) {
                return broken(format!("row {key} disappeared while this transaction saw it"));
            }
            -1
        } else {
            tx.take(Step::Upsert(key, 1))?;
            1
        };
        for count in [group_count((key % 10) as u8), COUNT] {
            let before = read(tx, count)?.value;
            write(tx, count, before + difference)?;
            chaos(random);
        }
        Ok(())
    }

    fn audit(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        let group = random.u8(..3);
        let (scan, count) = match random.u8(..4) {
            0 => (Step::Scan(0, HASHED), COUNT),
            1 => (Step::ScanBack(0, HASHED), COUNT),
            2 => (Step::Len, COUNT),
            _ => (Step::ScanGroup(group), group_count(group)),
        };
        // Scan and count, in either order.
        let counted_first = random.bool();
        let before = if counted_first { Some(read(tx, count)?.value) } else { None };
        chaos(random);
        let found = match tx.take(scan)? {
            StepResult::Value(rows) => rows.expect("a number of rows"),
            scanned => scanned.rows().len() as i64,
        };
        chaos(random);
        let counted = before.map_or_else(|| read(tx, count).map(|row| row.value), Ok)?;
        if found == counted { Ok(()) } else { broken(format!("{scan:?}: {found}, not {counted}")) }
    }
}

// ---- a queue ----------------------------------------------------------------------------------

/// A queue: consumers take the row with the lowest number, and go on to other rows. No row is taken out of turn, so the
/// numbers in the queue have no gap, and begin with how many were taken.
#[derive(Debug)]
pub struct Queue;

/// The row with the number that is placed next, and those that count what was taken.
const PLACED: u64 = HASHED;
const TAKEN: std::ops::Range<u64> = HASHED + 1..HASHED + 4;

/// The queue ends with this number, and begins again when it is empty.
const NUMBERS: u64 = 900;

impl Invariant for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn initial(&self) -> Vec<(u64, i64)> {
        let entries = (0..6).map(|number| (number, 0));
        entries.chain([(PLACED, 6)]).chain(TAKEN.map(|key| (key, 0))).collect()
    }

    fn change(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        if random.u8(..5) < 3
            && let [first] = tx.take(Step::First(0))?.rows()[..]
        {
            if tx.take(Step::Delete(first.key))? != StepResult::Happened(true) {
                return broken(format!("entry {} disappeared", first.key));
            }
            chaos(random);
            let counter = random.u64(TAKEN);
            let taken = read(tx, counter)?.value;
            chaos(random);
            return write(tx, counter, taken + 1);
        }
        let placed = read(tx, PLACED)?.value as u64;
        if placed < NUMBERS {
            tx.take(Step::Insert(placed, 0))?;
            chaos(random);
            return write(tx, PLACED, placed as i64 + 1);
        }
        if tx.take(Step::First(0))?.rows().is_empty() {
            for key in TAKEN.chain([PLACED]) {
                write(tx, key, 0)?;
            }
        }
        Ok(())
    }

    fn audit(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        let entries = tx.take(Step::Scan(0, HASHED))?.rows();
        chaos(random);
        let mut taken = 0;
        for key in TAKEN {
            taken += read(tx, key)?.value;
        }
        let placed = read(tx, PLACED)?.value;
        let numbers = entries.iter().map(|row| row.key as i64);
        if numbers.eq(taken..placed) {
            Ok(())
        } else {
            broken(format!("{entries:?}, where {taken} were taken of {placed}"))
        }
    }
}

// ---- secondary indexes ------------------------------------------------------------------------

/// Indexed rows: every row has its entry in each index, and every entry has its row.
#[derive(Debug)]
pub struct IndexEntries;

const INDEXED: u64 = 8;
const GROUPS: u8 = 8;

impl Invariant for IndexEntries {
    fn name(&self) -> &'static str {
        "indexes"
    }

    fn initial(&self) -> Vec<(u64, i64)> {
        (0..INDEXED).step_by(2).map(|key| (key, 0)).collect()
    }

    fn change(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        for _ in 0..random.u8(1..4) {
            let key = random.u64(..INDEXED);
            tx.take(match random.u8(..8) {
                0 => Step::Insert(key, 1),
                1 => Step::Upsert(key, 2),
                2 | 3 => Step::Delete(key),
                _ => Step::Move(key, random.u8(..GROUPS)),
            })?;
            chaos(random);
        }
        Ok(())
    }

    fn audit(&self, tx: &dyn Steps, random: &mut Rng) -> Result<(), Stop> {
        let all = tx.take(Step::Scan(0, HASHED))?.rows();
        chaos(random);
        let mut grouped = Vec::new();
        for group in 0..GROUPS {
            let found = tx.take(Step::ScanGroup(group))?.rows();
            if found.iter().any(|row| row.group != group) {
                return broken(format!("group {group} has {found:?}"));
            }
            grouped.extend(found);
        }
        grouped.sort_unstable();
        if grouped != all {
            return broken(format!("rows {all:?}, by group {grouped:?}"));
        }
        for key in 0..INDEXED {
            let found = tx.take(Step::ReadByBadge(key))?.rows();
            let expected: Vec<Row> = all.iter().copied().filter(|row| row.key == key).collect();
            if found != expected {
                return broken(format!("rows {all:?}, but by badge {key}: {found:?}"));
            }
        }
        Ok(())
    }
}
