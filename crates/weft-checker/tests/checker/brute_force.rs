//! The checker against brute force, on small histories.
//!
//! A history comes from a small multiversion store without any concurrency control. Up to six transactions
//! interleave, and a read may be stale, or see what is not committed. Roughly half of the histories are
//! serializable. Brute force tries every serial order and replays the state, without any graph. If it finds an
//! order, the checker must find no anomaly. If it finds none, the checker must find an anomaly. There is one
//! exception: a read that found no row, and that could have seen one of several absent states. Then the checker
//! may miss an anomaly, and only the first half is required.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use weft_checker::{History, HistoryBuilder, Key, Level, Observed, Options, Status, check};

/// The number of keys, which are numbered from 0.
const KEYS: u8 = 4;

/// The kinds of operations. A scan covers `key` up to `key + span`.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Delete,
    Scan { span: u8 },
}

#[derive(Clone, Copy, Debug)]
struct PlannedOperation {
    kind: Kind,
    key: u8,
    /// Decides which state a read sees: mostly the newest committed one.
    luck: u8,
}

#[derive(Clone, Debug)]
struct Plan {
    transactions: Vec<(Vec<PlannedOperation>, u8)>,
    schedule: Vec<u8>,
    initial_rows: u8,
    /// Whether versions are numbered in the order of writes, not of commits. Then overwrites may form cycles.
    number_by_write: bool,
    /// Whether absences name the tombstone that was seen.
    name_tombstones: bool,
}

/// A state of a key: the operation that made it (transaction and position), or `None` at first, and whether it
/// is a row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    maker: Option<(usize, usize)>,
    row: bool,
}

#[derive(Clone, Debug)]
enum RecordedOperation {
    Read(u8, State),
    Write(u8, bool),
    Scan(u8, u8, Vec<(u8, State)>),
}

#[derive(Clone, Debug)]
struct Run {
    operations: Vec<RecordedOperation>,
    invoke_ns: u64,
    complete_ns: Option<u64>,
    status: Status,
    /// When it committed, in the order of commits.
    sequence: u64,
}

/// The store while the transactions run.
struct Store {
    committed: BTreeMap<u8, Vec<State>>,
    pending: Vec<BTreeMap<u8, State>>,
}

impl Store {
    fn see(&self, transaction: usize, key: u8, luck: u8) -> State {
        let own = &self.pending[transaction];
        if luck == 19 {
            // The transaction ignores its own write, if it has one.
            return *self.committed[&key].last().expect("the initial state");
        }
        if let Some(&state) = own.get(&key) {
            return state;
        }
        let states = &self.committed[&key];
        let dirty = self.pending.iter().find_map(|pending| pending.get(&key));
        match luck {
            16 | 17 => states[states.len().saturating_sub(2)],
            18 => dirty.copied().unwrap_or(states[states.len() - 1]),
            _ => states[states.len() - 1],
        }
    }
}

/// Runs the plan, and returns what each transaction did.
fn execute(plan: &Plan) -> Vec<Run> {
    let committed = (0..KEYS)
        .map(|key| (key, vec![State { maker: None, row: plan.initial_rows & (1 << key) != 0 }]));
    let count = plan.transactions.len();
    let mut store = Store { committed: committed.collect(), pending: vec![BTreeMap::new(); count] };
    let idle = Run {
        operations: Vec::new(),
        invoke_ns: 0,
        complete_ns: None,
        status: Status::Committed,
        sequence: 0,
    };
    let mut runs = vec![idle; count];
    let mut open: Vec<usize> = (0..count).collect();
    let mut clock_ns = 10;
    let mut schedule = plan.schedule.iter().copied().cycle();
    while !open.is_empty() {
        let place = usize::from(schedule.next().unwrap_or(0)) % open.len();
        let transaction = open[place];
        let (planned, outcome) = &plan.transactions[transaction];
        clock_ns += 10;
        let position = runs[transaction].operations.len();
        if position == 0 {
            runs[transaction].invoke_ns = clock_ns;
        }
        if let Some(&next) = planned.get(position) {
            let recorded = step(&mut store, transaction, position, next);
            runs[transaction].operations.push(recorded);
            continue;
        }
        open.remove(place);
        let pending = std::mem::take(&mut store.pending[transaction]);
        let run = &mut runs[transaction];
        run.sequence = clock_ns;
        run.complete_ns = Some(clock_ns);
        let commits = match outcome {
            0 => false,
            1 | 2 => {
                run.status = Status::Unknown;
                run.complete_ns = None;
                *outcome == 1
            }
            _ => true,
        };
        if *outcome == 0 {
            run.status = Status::Aborted;
        }
        if commits {
            for (key, state) in pending {
                store.committed.get_mut(&key).expect("every key").push(state);
            }
        }
    }
    runs
}

fn step(
    store: &mut Store,
    transaction: usize,
    position: usize,
    next: PlannedOperation,
) -> RecordedOperation {
    let PlannedOperation { kind, key, luck } = next;
    match kind {
        Kind::Read => RecordedOperation::Read(key, store.see(transaction, key, luck)),
        Kind::Write | Kind::Delete => {
            let row = matches!(kind, Kind::Write);
            let state = State { maker: Some((transaction, position)), row };
            store.pending[transaction].insert(key, state);
            RecordedOperation::Write(key, row)
        }
        Kind::Scan { span } => {
            let end = (key + span).min(KEYS);
            let seen = (key..end).map(|key| (key, store.see(transaction, key, luck)));
            RecordedOperation::Scan(key, end, seen.filter(|(_, state)| state.row).collect())
        }
    }
}

/// Returns the version number of a state.
fn number(plan: &Plan, runs: &[Run], state: State) -> u64 {
    let Some((transaction, position)) = state.maker else { return 0 };
    if plan.number_by_write {
        // The plan's own order of transactions, which is not the order of commits.
        return ((transaction as u64 + 1) << 8) | position as u64;
    }
    (runs[transaction].sequence << 8) | position as u64
}

fn observed(plan: &Plan, runs: &[Run], state: State) -> Observed {
    if state.row || (plan.name_tombstones && state.maker.is_some()) {
        Observed::Version(number(plan, runs, state))
    } else {
        Observed::Absent
    }
}

fn history(plan: &Plan, runs: &[Run]) -> History {
    let mut builder = HistoryBuilder::new();
    let table = builder.table("t");
    for (id, run) in runs.iter().enumerate() {
        let mut transaction = builder.transaction(id as u64, id as u32, run.invoke_ns);
        for (position, operation) in run.operations.iter().enumerate() {
            match operation {
                RecordedOperation::Read(key, state) => {
                    transaction.read(table, *key, observed(plan, runs, *state));
                }
                RecordedOperation::Write(key, row) => {
                    let maker = Some((id, position));
                    let version = number(plan, runs, State { maker, row: *row });
                    if *row {
                        transaction.write(table, *key, version);
                    } else {
                        transaction.delete(table, *key, version);
                    }
                }
                RecordedOperation::Scan(from, to, rows) => {
                    let rows = rows.iter().map(|(key, s)| (*key, number(plan, runs, *s)));
                    let range = (Bound::Included(Key::from(*from)), Bound::Excluded((*to).into()));
                    transaction.scan(table, range, rows);
                }
            }
        }
        transaction.end(run.status, run.complete_ns);
    }
    builder.build()
}

/// The search for a serial order by brute force.
struct Orders<'a> {
    plan: &'a Plan,
    runs: &'a [Run],
    strict: bool,
}

impl Orders<'_> {
    /// Returns whether there is a serial order, from any initial rows.
    fn exists(&self) -> bool {
        (0..1_u8 << KEYS).any(|rows| {
            let state = (0..KEYS).map(|key| (0, rows & (1 << key) != 0)).collect();
            let aborted = self.runs.iter().map(|run| run.status == Status::Aborted).collect();
            self.extend(state, aborted)
        })
    }

    /// Returns whether the transactions that are not `done` can follow, in the state that was reached.
    fn extend(&self, state: Vec<(u64, bool)>, done: Vec<bool>) -> bool {
        let left = |index: &usize| !done[*index];
        let remaining: Vec<usize> = (0..self.runs.len()).filter(left).collect();
        if remaining.iter().all(|&index| self.runs[index].status == Status::Unknown) {
            return true;
        }
        remaining.iter().any(|&index| {
            let late = self.strict
                && remaining.iter().any(|&other| {
                    let complete_ns = self.runs[other].complete_ns;
                    complete_ns.is_some_and(|time| time < self.runs[index].invoke_ns)
                });
            if late {
                return false;
            }
            let Some(next) = self.replay(index, &state) else { return false };
            let mut done = done.clone();
            done[index] = true;
            self.extend(next, done)
        })
    }

    /// Returns the state after a transaction, or `None` if it cannot have run in the state before.
    fn replay(&self, index: usize, before: &[(u64, bool)]) -> Option<Vec<(u64, bool)>> {
        let mut state = before.to_vec();
        for (position, operation) in self.runs[index].operations.iter().enumerate() {
            match operation {
                RecordedOperation::Read(key, seen) => {
                    let (version, row) = state[usize::from(*key)];
                    let fits = match observed(self.plan, self.runs, *seen) {
                        Observed::Version(0) => version == 0 && row,
                        Observed::Version(wanted) => version == wanted,
                        Observed::Absent => !row,
                    };
                    if !fits {
                        return None;
                    }
                }
                RecordedOperation::Write(key, row) => {
                    let maker = Some((index, position));
                    let version = number(self.plan, self.runs, State { maker, row: *row });
                    state[usize::from(*key)] = (version, *row);
                }
                RecordedOperation::Scan(from, to, rows) => {
                    let rows: Vec<(u8, u64)> = rows
                        .iter()
                        .map(|(key, seen)| (*key, number(self.plan, self.runs, *seen)))
                        .collect();
                    let there: Vec<(u8, u64)> = (*from..*to)
                        .map(|key| (key, state[usize::from(key)]))
                        .filter(|(_, (_, row))| *row)
                        .map(|(key, (version, _))| (key, version))
                        .collect();
                    if rows != there {
                        return None;
                    }
                }
            }
        }
        // Versions of a key must be installed in the order of their numbers.
        let rises = before.iter().zip(&state).all(|(old, new)| old.0 <= new.0);
        rises.then_some(state)
    }
}

/// Returns whether every read that found no row can have seen only one state. A delete of unknown outcome
/// counts as two states, because a read that found no row does not prove that it committed.
fn is_determined(plan: &Plan, runs: &[Run]) -> bool {
    let mut absent_states = [0; KEYS as usize];
    let mut missed = [false; KEYS as usize];
    for key in 0..KEYS {
        let is_row = |state: &State| state.maker.is_none() && state.row;
        let seen_as_row = runs.iter().filter(|run| run.status != Status::Aborted).any(|run| {
            run.operations.iter().any(|operation| match operation {
                RecordedOperation::Read(at, state) => *at == key && is_row(state),
                RecordedOperation::Scan(_, _, rows) => {
                    rows.iter().any(|(at, s)| *at == key && is_row(s))
                }
                RecordedOperation::Write(..) => false,
            })
        });
        absent_states[usize::from(key)] = usize::from(!seen_as_row);
    }
    for run in runs.iter().filter(|run| run.status != Status::Aborted) {
        for operation in &run.operations {
            match operation {
                RecordedOperation::Write(key, false) => {
                    let states = if run.status == Status::Unknown { 2 } else { 1 };
                    absent_states[usize::from(*key)] += states;
                }
                RecordedOperation::Write(..) => {}
                RecordedOperation::Read(key, state) => {
                    missed[usize::from(*key)] |= observed(plan, runs, *state) == Observed::Absent;
                }
                RecordedOperation::Scan(from, to, rows) => {
                    for key in *from..*to {
                        missed[usize::from(key)] |= rows.iter().all(|(at, _)| *at != key);
                    }
                }
            }
        }
    }
    missed.iter().zip(absent_states).all(|(&missed, states)| !missed || states <= 1)
}

fn kinds(deletes: bool) -> impl Strategy<Value = Kind> {
    prop_oneof![
        5 => Just(Kind::Read),
        5 => Just(Kind::Write),
        if deletes { 3 } else { 0 } => Just(Kind::Delete),
        2 => (1..=KEYS).prop_map(|span| Kind::Scan { span }),
    ]
}

fn plans(deletes: bool) -> impl Strategy<Value = Plan> {
    let operation = (kinds(deletes), 0..KEYS, 0..20_u8)
        .prop_map(|(kind, key, luck)| PlannedOperation { kind, key, luck });
    let transaction = (prop::collection::vec(operation, 1..5), 0..16_u8);
    (
        prop::collection::vec(transaction, 1..=6),
        prop::collection::vec(any::<u8>(), 1..32),
        any::<u8>(),
        prop::bool::weighted(0.1),
        any::<bool>(),
    )
        .prop_map(
            |(transactions, schedule, initial_rows, number_by_write, name_tombstones)| Plan {
                transactions,
                schedule,
                initial_rows,
                number_by_write,
                name_tombstones,
            },
        )
}

fn compare(plan: &Plan) -> Result<(), TestCaseError> {
    let runs = execute(plan);
    let history = history(plan, &runs);
    for level in [Level::Serializable, Level::Strict] {
        let strict = level == Level::Strict;
        let expected = Orders { plan, runs: &runs, strict }.exists();
        let report = check(&history, &Options { level, ..Options::default() });
        if expected {
            prop_assert!(report.is_ok(), "a serial order exists ({level:?}), but:\n{report}");
        } else if is_determined(plan, &runs) {
            prop_assert!(!report.is_ok(), "no serial order exists ({level:?}): {runs:#?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_brute_force_without_deletes(plan in plans(false)) {
        compare(&plan)?;
    }

    #[test]
    fn agrees_with_brute_force_with_deletes(plan in plans(true)) {
        compare(&plan)?;
    }
}

/// Protects the worth of the property tests: both verdicts occur, and often only one is possible.
#[test]
fn random_histories_have_both_verdicts() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut serializable, mut strict, mut determined) = (0, 0, 0);
    for _ in 0..1000 {
        let plan = plans(true).new_tree(&mut runner).expect("plans are not filtered").current();
        let runs = execute(&plan);
        let exists = |strict| Orders { plan: &plan, runs: &runs, strict }.exists();
        serializable += usize::from(exists(false));
        strict += usize::from(exists(true));
        determined += usize::from(is_determined(&plan, &runs) && !exists(true));
    }
    assert!((100..900).contains(&serializable), "{serializable} of 1000 are serializable");
    assert!(strict + 10 < serializable, "{strict} of 1000 are strictly serializable");
    assert!(determined > 100, "{determined} of 1000 are determined and wrong");
}
