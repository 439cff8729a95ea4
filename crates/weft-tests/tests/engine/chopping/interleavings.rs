//! Execution of procedures on a store of a few rows: serially, or in pieces in every interleaving.

use std::collections::{BTreeMap, BTreeSet};

use weft::operation::OperationKind;
use weft_procedures::chopping::{
    Chopping, ConflictTreatment, OutlineAccess, PieceKind, StepNumber,
};

use super::program::{COLUMNS, ITERATIONS, KeyOf, Program, Set, applied, has};

/// One instance of a procedure.
#[derive(Clone, Debug)]
pub struct Run {
    program: usize,
    argument: i64,
}

impl Run {
    pub fn draw(program: usize, random: &mut fastrand::Rng) -> Run {
        Run { program, argument: random.i64(1..=4) }
    }
}

type Row = [i64; COLUMNS.len()];
type Tables = BTreeMap<String, BTreeMap<i64, Row>>;

/// The state of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Progress {
    /// The number of pieces that have run.
    pieces: usize,
    /// What the steps have returned, by step and iteration. A step that has not run, or was skipped, has no entry.
    found: BTreeMap<(usize, usize), i64>,
    rolled_back: bool,
    /// The epoch that the run's deferred changes belong to.
    epoch: Option<u32>,
}

/// A deferred change, which waits for the end of its epoch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Pending {
    run: usize,
    table: String,
    key: i64,
    column: usize,
    kind: &'static str,
    amount: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct State {
    tables: Tables,
    progress: Vec<Progress>,
    pending: Vec<Pending>,
    epoch: u32,
    /// Whether the deferred changes of all earlier epochs have been published.
    is_published: bool,
}

/// The final rows, and what each run has returned (`None` if it rolled back).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outcome {
    tables: Tables,
    found: Vec<Option<BTreeMap<(usize, usize), i64>>>,
}

impl Outcome {
    pub fn has_rolled_back(&self) -> bool {
        self.found.iter().any(Option::is_none)
    }
}

impl State {
    fn first(runs: usize) -> State {
        let rows = |offset: i64| {
            BTreeMap::from([(0, [offset, offset + 1]), (1, [offset + 2, offset + 3])])
        };
        let tables = ["x", "y", "z", "w", "row"].into_iter().zip(1..);
        let mut tables: Tables =
            tables.map(|(name, offset)| (name.to_owned(), rows(offset))).collect();
        tables.insert("token".to_owned(), BTreeMap::new());
        let progress = vec![Progress::default(); runs];
        State { tables, progress, pending: Vec::new(), epoch: 0, is_published: true }
    }

    /// Returns what is compared. Results of pure operations are not part of it, because an operation returns
    /// nothing.
    fn outcome(&self) -> Outcome {
        let found = self
            .progress
            .iter()
            .map(|progress| (!progress.rolled_back).then(|| progress.found.clone()));
        Outcome { tables: self.tables.clone(), found: found.collect() }
    }

    /// Runs some steps of a run atomically. Steps in a loop run iteration by iteration.
    fn run(&mut self, program: &Program, of: (usize, &Run), steps: &[usize], is_deferred: bool) {
        let before = self.clone();
        let mut rest = steps;
        while let Some(&first) = rest.first() {
            let together = |step: &&usize| program.outline.share_a_loop(first, **step);
            let (length, rounds) = match program.is_in_loop(first) {
                true => (rest.iter().take_while(together).count(), ITERATIONS),
                false => (1, 1),
            };
            let (group, others) = rest.split_at(length);
            rest = others;
            for iteration in 0..rounds {
                for &step in group {
                    self.step(program, of, (step, iteration), is_deferred);
                    let found = self.progress[of.0].found.get(&(step, iteration));
                    let may_roll_back = program.outline.steps[step].may_roll_back;
                    if may_roll_back && found.is_some_and(|found| found % 3 == 0) {
                        *self = before;
                        self.progress[of.0].rolled_back = true;
                        return;
                    }
                }
            }
        }
    }

    /// Returns the sum of the results of the steps `on`, which a step depends on.
    fn sum(
        &self,
        program: &Program,
        run: usize,
        (step, iteration): (usize, usize),
        on: &[usize],
    ) -> i64 {
        let found = &self.progress[run].found;
        let each = on.iter().map(|&on| {
            let is_shared = program.outline.share_a_loop(on, step);
            let iterations = match is_shared {
                true if on < step => iteration..iteration + 1,
                true => iteration.saturating_sub(1)..iteration,
                false => 0..ITERATIONS,
            };
            iterations
                .map(|iteration| found.get(&(on, iteration)).copied().unwrap_or(0))
                .sum::<i64>()
        });
        each.sum()
    }

    fn step(
        &mut self,
        program: &Program,
        (run, of): (usize, &Run),
        (number, iteration): (usize, usize),
        is_deferred: bool,
    ) {
        let step = &program.outline.steps[number];
        let at = (number, iteration);
        let key = match program.keys[number] {
            KeyOf::Shared => {
                let by = of.argument + self.sum(program, run, at, &step.keys) + iteration as i64;
                if !step.guards.is_empty() && self.sum(program, run, at, &step.guards) % 4 == 0 {
                    return;
                }
                by.rem_euclid(2)
            }
            // Odd, so that the guard of a step that depends on this one lets that step run.
            KeyOf::Own => 101 + 2 * run as i64,
            KeyOf::Found(on) => match self.progress[run].found.get(&(on, 0)) {
                Some(&key) if key >= 100 => key,
                _ => return,
            },
        };
        let amount = of.argument + number as i64 * 7 + self.sum(program, run, at, &step.values);
        let rows = self.tables.get_mut(&step.table).expect("the table exists");
        let look = |row: &Row| {
            let read = COLUMNS.iter().zip(row).filter(|(name, _)| has(&step.reads, name));
            read.fold(1_i64, |all, (_, value)| (all * 31 + value).rem_euclid(1_009))
        };
        let found = match step.access {
            OutlineAccess::Read => rows.get(&key).map_or(0, look),
            OutlineAccess::Scan if step.table == "token" => {
                rows.keys().next().copied().unwrap_or(0)
            }
            OutlineAccess::Scan => rows
                .iter()
                .fold(1, |all, (key, row)| (all * 37 + key + look(row)).rem_euclid(1_009)),
            OutlineAccess::Insert | OutlineAccess::Upsert => {
                let row = std::array::from_fn(|column| amount + column as i64);
                rows.insert(key, row);
                1
            }
            OutlineAccess::Delete => i64::from(rows.remove(&key).is_some()),
            OutlineAccess::Update if is_deferred => {
                for (name, kind) in &step.operations {
                    let column = COLUMNS.iter().position(|it| it == name).expect("a column");
                    let (table, kind) = (step.table.clone(), kind.name());
                    self.pending.push(Pending { run, table, key, column, kind, amount });
                }
                self.pending.sort();
                return;
            }
            OutlineAccess::Update => match rows.get_mut(&key) {
                None => 0,
                Some(row) => {
                    let seen = look(row);
                    for (column, name) in COLUMNS.iter().enumerate() {
                        if has(&step.writes, name) {
                            row[column] =
                                (seen * 13 + amount * 5 + column as i64).rem_euclid(1_013);
                        }
                    }
                    for (name, kind) in &step.operations {
                        let column = COLUMNS.iter().position(|it| it == name).expect("a column");
                        row[column] = applied(*kind, row[column], amount);
                    }
                    seen
                }
            },
        };
        let only_operates = step.access == OutlineAccess::Update
            && step.reads == weft_procedures::chopping::Columns::NONE
            && !step.operations.is_empty()
            && step.writes == step.reads;
        // An operation returns nothing, so that deferral makes no difference to it.
        if !only_operates || is_used(program, number) {
            self.progress[run].found.insert(at, found);
        }
    }

    /// Applies the deferred changes of earlier epochs.
    fn publish(&mut self) {
        let epoch = self.epoch;
        let (due, later): (Vec<Pending>, Vec<Pending>) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|it| self.progress[it.run].epoch.is_some_and(|noted| noted < epoch));
        self.pending = later;
        for it in due {
            let kind = OperationKind::ALL.into_iter().find(|kind| kind.name() == it.kind);
            let rows = self.tables.get_mut(&it.table).expect("the table exists");
            if let Some(row) = rows.get_mut(&it.key) {
                row[it.column] = applied(kind.expect("a kind"), row[it.column], it.amount);
            }
        }
        self.is_published = true;
    }
}

fn is_used(program: &Program, number: usize) -> bool {
    let step = &program.outline.steps[number];
    step.may_roll_back
        || program.outline.steps.iter().any(|it| it.dependencies().any(|on| on == number))
}

/// Returns the outcomes of all serial orders, where each procedure runs as it is written.
pub fn serial_outcomes(set: &Set, runs: &[Run]) -> BTreeSet<Outcome> {
    let mut outcomes = BTreeSet::new();
    let mut states = vec![(State::first(runs.len()), BTreeSet::new())];
    while let Some((state, done)) = states.pop() {
        let left = (0..runs.len()).filter(|run| !done.contains(run));
        let next: Vec<usize> = left.collect();
        if next.is_empty() {
            outcomes.insert(state.outcome());
        }
        for run in next {
            let (mut state, mut done) = (state.clone(), done.clone());
            let program = &set.programs[runs[run].program];
            let steps: Vec<usize> = (0..program.outline.steps.len()).collect();
            state.run(program, (run, &runs[run]), &steps, false);
            done.insert(run);
            states.push((state, done));
        }
    }
    outcomes
}

/// The result of exploring all interleavings.
pub struct Explored {
    pub states: usize,
    pub outcomes: BTreeSet<Outcome>,
}

/// The largest number of epochs that end while runs are in progress.
const EPOCHS: u32 = 2;

/// Runs the pieces in every interleaving. If a piece is deferred, epochs may end at any point.
pub fn explore(set: &Set, runs: &[Run], chopping: &Chopping) -> Explored {
    let pieces = |run: usize| &chopping.procedures[runs[run].program].pieces;
    let has_kind = |run: usize, kind| pieces(run).iter().any(|piece| piece.kind == kind);
    let is_deferring = (0..runs.len()).any(|run| has_kind(run, PieceKind::Deferred));
    let mut outcomes = BTreeSet::new();
    let mut known = BTreeSet::new();
    let mut states = vec![State::first(runs.len())];
    while let Some(state) = states.pop() {
        if !known.insert(state.clone()) {
            continue;
        }
        let is_over = |run: usize| {
            state.progress[run].rolled_back || state.progress[run].pieces == pieces(run).len()
        };
        if (0..runs.len()).all(is_over) {
            let mut last = state.clone();
            last.epoch += 1;
            last.publish();
            outcomes.insert(last.outcome());
        }
        if is_deferring && state.is_published && state.epoch < EPOCHS {
            states.push(State { epoch: state.epoch + 1, is_published: false, ..state.clone() });
        }
        let publishes =
            |run: usize| state.progress[run].epoch.is_some_and(|noted| noted < state.epoch);
        if !state.is_published && (0..runs.len()).all(|run| !publishes(run) || is_over(run)) {
            let mut next = state.clone();
            next.publish();
            states.push(next);
        }
        for run in (0..runs.len()).filter(|&run| !is_over(run)) {
            let program = &set.programs[runs[run].program];
            let piece = &pieces(run)[state.progress[run].pieces];
            let subscribes = piece.steps.iter().any(|&step| {
                let number = StepNumber { procedure: runs[run].program, step };
                chopping.conflicts.iter().any(|it| match it.treatment {
                    ConflictTreatment::Deferred { publisher } => {
                        it.across(publisher) == Some(number)
                    }
                    _ => false,
                })
            });
            if subscribes && !state.is_published {
                continue;
            }
            let mut next = state.clone();
            let is_deferred = piece.kind == PieceKind::Deferred;
            next.run(program, (run, &runs[run]), &piece.steps, is_deferred);
            if !next.progress[run].rolled_back {
                next.progress[run].pieces += 1;
                let decides = match has_kind(run, PieceKind::Conflicting) {
                    true => piece.kind == PieceKind::Conflicting,
                    false => is_deferred && next.progress[run].epoch.is_none(),
                };
                if decides && has_kind(run, PieceKind::Deferred) {
                    next.progress[run].epoch = Some(state.epoch);
                }
            }
            states.push(next);
        }
    }
    Explored { states: known.len(), outcomes }
}
