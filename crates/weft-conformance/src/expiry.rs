//! Random transactions on rows that expire, while a thread sets the clock forward and removes what has expired.
//!
//! The oracle tries every serial order that real time allows, as that of [`crate::oracle`], and with it a time for
//! each transaction. Times never decrease along the order. A transaction that was shown its time has this time. Each
//! must have been shown what it would be shown if it ran alone at its time. So the oracle finds a transaction that still
//! sees a row after one for which the row had expired. The checker judges the recorded versions in addition. For it a
//! row that has expired is a version like any other, until it is removed.

use std::collections::BTreeMap;

use fastrand::Rng;
use weft::htm::word::{Ordering, Word};

use crate::subject::{ExpiringStore, Stop, Subject};
use crate::threads::{Mode, chaos, expect_end};
use crate::verdict::{Finding, judge};

/// What the clock shows at the beginning, in milliseconds.
pub const START: u64 = 1000;

/// A step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Asks for the time.
    Now,
    /// Reads a row.
    Get(u64),
    /// Reads a row by its unique index.
    GetByBadge(u64),
    /// Inserts or replaces a row: key, value, and when it expires (`u64::MAX` for never). Its badge is its key.
    Put(u64, u64, u64),
    /// Inserts a row, unless a row has its key or its badge: key, badge, value, and when it expires.
    Insert(u64, u64, u64, u64),
    /// Changes when a row expires.
    Change(u64, u64),
    /// Deletes a row.
    Delete(u64),
    /// Reads all rows.
    Scan,
    /// Reads a row that does not expire. Keys from [`COUNTS`] on are those of counts, which are there from the beginning,
    /// and keys from [`JOURNAL`] on those of the journal.
    Read(u64),
    /// Writes such a row.
    Write(u64, u64),
}

/// The first key of the counts.
pub const COUNTS: u64 = 100;

/// The first key of the journal.
pub const JOURNAL: u64 = 200;

/// The number of counts.
pub const COUNT: u64 = 2;

impl Step {
    /// Returns the same step on a key that is `by` places further on, if it is on a row that expires.
    pub fn shifted(mut self, by: u64) -> Self {
        if let Step::Get(key) | Step::Put(key, ..) | Step::Change(key, _) | Step::Delete(key) =
            &mut self
        {
            *key = (*key + by) % KEYS;
        }
        self
    }
}

/// The steps of a transaction, and what they showed.
pub type StepLog = Vec<(Step, Shown)>;

/// What a step showed to its transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// A value, or none.
    Value(Option<u64>),
    /// Whether there was a row, or was none if the step inserts.
    Happened(bool),
    /// Keys and values, in the order of the keys.
    Rows(Vec<(u64, u64)>),
}

/// The record of one transaction, or snapshot.
#[derive(Clone, Debug)]
struct Log {
    steps: Vec<(Step, Shown)>,
    began: usize,
    ended: usize,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    badge: u64,
    value: u64,
    until: u64,
}

/// The rows in a serial execution.
#[derive(Clone, Debug)]
struct State {
    expiring: BTreeMap<u64, Row>,
    lasting: BTreeMap<u64, u64>,
}

impl Default for State {
    fn default() -> Self {
        let lasting = (COUNTS..COUNTS + COUNT).map(|key| (key, 0)).collect();
        State { expiring: BTreeMap::new(), lasting }
    }
}

impl State {
    /// Makes a step's change at a time, and returns what the step shows.
    fn replay(&mut self, step: Step, now: u64) -> Shown {
        // What has expired is gone for good, since times never decrease.
        self.expiring.retain(|_, row| row.until > now);
        let rows = &mut self.expiring;
        match step {
            Step::Now => Shown::Value(Some(now)),
            Step::Get(key) => Shown::Value(rows.get(&key).map(|row| row.value)),
            Step::GetByBadge(badge) => {
                let row = rows.values().find(|row| row.badge == badge);
                Shown::Value(row.map(|row| row.value))
            }
            Step::Put(key, value, until) => {
                Shown::Happened(rows.insert(key, Row { badge: key, value, until }).is_some())
            }
            Step::Insert(key, badge, value, until) => {
                let is_free =
                    !rows.contains_key(&key) && rows.values().all(|row| row.badge != badge);
                if is_free {
                    rows.insert(key, Row { badge, value, until });
                }
                Shown::Happened(is_free)
            }
            Step::Change(key, until) => {
                let row = rows.get_mut(&key);
                Shown::Happened(row.map(|row| row.until = until).is_some())
            }
            Step::Delete(key) => Shown::Happened(rows.remove(&key).is_some()),
            Step::Scan => Shown::Rows(rows.iter().map(|(&key, row)| (key, row.value)).collect()),
            Step::Read(key) => Shown::Value(self.lasting.get(&key).copied()),
            Step::Write(key, value) => Shown::Happened(self.lasting.insert(key, value).is_some()),
        }
    }
}

/// Returns whether some order of the transactions, with times from `now` on that do not decrease, explains what they were
/// shown.
fn is_explained(state: &State, now: u64, end: u64, rest: &[&Log]) -> bool {
    rest.is_empty()
        || (0..rest.len()).any(|first| {
            let log = rest[first];
            if rest.iter().any(|other| other.ended < log.began) {
                return false;
            }
            let mut others = rest.to_vec();
            others.remove(first);
            (now..=end).any(|now| {
                let mut after = state.clone();
                log.steps.iter().all(|(step, shown)| after.replay(*step, now) == *shown)
                    && is_explained(&after, now, end, &others)
            })
        })
}

const KEYS: u64 = 3;

/// How often the clock is set forward.
const TICKS: u64 = 4;

fn any_step(random: &mut Rng, value: u64) -> Step {
    let key = random.u64(..KEYS);
    let until = match random.u64(..TICKS + 2) {
        0 => u64::MAX,
        millis => START + millis,
    };
    match random.u8(..20) {
        0..=4 => Step::Get(key),
        5 => Step::Now,
        6..=8 => Step::Put(key, value, until),
        // The badge of another key makes a conflict in the unique index more likely, and is left out by `Put`.
        9..=10 => Step::Insert(key, key, value, until),
        11 => Step::Insert(key + KEYS, key, value, until),
        12 => Step::Change(key, until),
        13 => Step::Delete(key),
        14 => Step::Scan,
        15 => Step::GetByBadge(key),
        16 => Step::Read(key % 2),
        17 => Step::Read(COUNTS + key % COUNT),
        _ => Step::Write(key % 2, value),
    }
}

/// Draws a step of a snapshot.
fn any_look(random: &mut Rng) -> Step {
    match random.u8(..6) {
        0 => Step::Now,
        1 => Step::Scan,
        2..=3 => Step::Get(random.u64(..KEYS)),
        4 => Step::Read(COUNTS + random.u64(..COUNT)),
        _ => Step::Read(random.u64(..2)),
    }
}

const CHECK: &str = "expiry";

/// Returns whether a put can fail because of another row's badge.
fn may_collide(step: &Step) -> bool {
    matches!(step, Step::Put(..))
}

/// Runs random transactions on rows that expire, and judges the results. There must be few transactions. If it
/// `records`, the checker judges as well.
///
/// # Errors
/// The finding, if there is one.
pub fn check(
    subject: &Subject,
    mode: Mode,
    transactions: usize,
    records: bool,
) -> Result<(), Finding> {
    let store: Box<dyn ExpiringStore> = subject.open_expiring(mode.seed(), records);
    let clock = Word::new(1);
    let tick = || clock.fetch_add(1, Ordering::SeqCst) as usize;
    let writers = subject.threads(2);
    let mut ran = mode.on_threads(CHECK, writers + 1, transactions, |thread, random| {
        let mut logs = Vec::new();
        if thread == writers {
            for _ in 0..TICKS {
                store.advance();
                if random.bool() && subject.threads_max > writers {
                    let removed = store.remove_expired();
                    removed.map_err(|error| Finding::new(CHECK, "an error", error.to_string()))?;
                }
                if random.bool() {
                    let looks: Vec<_> = (0..random.usize(1..4)).map(|_| any_look(random)).collect();
                    let mut log = Log { steps: Vec::new(), began: tick(), ended: 0 };
                    let (mut ended, steps) = (0, &mut log.steps);
                    let read = store.read_snapshot(&mut || ended = tick(), &mut |snapshot| {
                        for &step in &looks {
                            steps.push((step, snapshot.take(step)?));
                        }
                        Ok(())
                    });
                    read.map_err(|error| Finding::new(CHECK, "an error", error.to_string()))?;
                    logs.push(Log { ended, ..log });
                }
            }
            return Ok(logs);
        }
        for number in 0..transactions {
            let value = (thread * transactions + number) as u64;
            // Some transactions are procedures, of which one kind can be in pieces.
            if random.u8(..3) == 0 {
                let began = tick();
                let ended = match random.bool() {
                    true => store.stamp(random.u64(..COUNT), value, value),
                    false => {
                        let steps = (0..random.usize(1..4)).map(|_| any_step(random, value));
                        store.transact_steps(&steps.collect::<Vec<_>>())
                    }
                };
                let ended = ended.map(|steps| logs.push(Log { steps, began, ended: tick() }));
                expect_end(CHECK, ended)?;
                continue;
            }
            let steps: Vec<_> = (0..random.usize(1..4)).map(|_| any_step(random, value)).collect();
            let mut log = Log { steps: Vec::new(), began: 0, ended: 0 };
            let ended = store.transact(&mut |tx| {
                log = Log { steps: Vec::new(), began: tick(), ended: 0 };
                for &step in &steps {
                    match tx.take(step) {
                        // Another row has the badge: the transaction leaves no trace.
                        Err(weft::Error::Failure(weft::Failure::DuplicateKey { .. }))
                            if may_collide(&step) =>
                        {
                            return Err(Stop::RollBack);
                        }
                        shown => log.steps.push((step, shown?)),
                    }
                    chaos(random);
                }
                Ok(())
            });
            log.ended = tick();
            if ended.is_ok() {
                logs.push(log);
            }
            expect_end(CHECK, ended)?;
        }
        Ok(logs)
    })?;
    let logs: Vec<Log> = std::mem::take(&mut ran.results).into_iter().flatten().collect();
    let in_order: Vec<&Log> = logs.iter().collect();
    if !is_explained(&State::default(), START, START + TICKS, &in_order) {
        let what = "no serial order and times explain it";
        return Err(ran.found(Finding::new(CHECK, what, format!("{logs:#?}"))));
    }
    if records {
        judge(CHECK, &store.take_history()).map_err(|finding| ran.found(finding))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(steps: Vec<(Step, Shown)>, began: usize, ended: usize) -> Log {
        Log { steps, began, ended }
    }

    #[test]
    fn a_row_that_is_seen_after_it_has_expired_for_another_is_found() {
        let put = log(vec![(Step::Put(1, 7, START + 2), Shown::Happened(false))], 0, 1);
        let gone = |step| (step, Shown::Value(None));
        let there = |step| (step, Shown::Value(Some(7)));
        let note = (Step::Write(0, 1), Shown::Happened(false));
        let noted = (Step::Read(0), Shown::Value(Some(1)));
        let first = log(vec![gone(Step::Get(1)), note], 2, 5);
        let second = log(vec![noted.clone(), there(Step::Get(1))], 3, 6);
        let explained = |logs: &[&Log]| is_explained(&State::default(), START, START + 2, logs);
        assert!(!explained(&[&put, &first, &second]));
        let consistent = log(vec![noted, gone(Step::Get(1))], 3, 6);
        assert!(explained(&[&put, &first, &consistent]));
        let stale = log(vec![(Step::Now, Shown::Value(Some(START + 1)))], 3, 6);
        assert!(explained(&[&put, &first, &stale]), "it may have come first");
        let later = Log { began: 7, ended: 8, ..stale };
        assert!(!explained(&[&put, &first, &later]));
    }
}
