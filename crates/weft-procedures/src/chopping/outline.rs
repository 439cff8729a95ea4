//! What the analysis knows of procedures: their steps in order, and what each of them touches.
//!
//! An outline is made from the [`Shape`] of a procedure, or [read from text](super::text). It owns what it
//! says, so that it can be written for procedures that are in no program.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};

use super::excerpt::excerpt;
use weft::OutlineError;
use weft::operation::OperationKind;
use weft::plan::{self, Shape};

/// Procedures that run beside each other, and what holds for their tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlines {
    /// The procedures.
    pub procedures: Vec<Outline>,
    /// Which tables' rows go by tokens.
    pub tokens: Vec<Token>,
}

/// That the rows of some tables go by tokens, which are the rows of another.
///
/// A row of one of `tables` belongs to the token with the same key (or the key's beginning). A procedure
/// touches it only
///
/// - if it inserts the token itself, or
/// - if it deletes the token, and has found it.
///
/// No key of a token is ever inserted twice. So whoever deletes a token is the only one to touch its rows
/// from then on. That is about keys, which the analysis does not see: whoever declares it has to know, and
/// does well to have a test that records keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The table whose rows are tokens.
    pub table: String,
    /// Those whose rows go by them.
    pub tables: Vec<String>,
}

/// A procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// Its name.
    pub name: String,
    /// Its steps, in the order in which they run; their positions are their numbers.
    pub steps: Vec<OutlineStep>,
    /// Its loops, in the order in which they are entered.
    pub loops: Vec<OutlineLoop>,
}

/// Steps that may run several times: those from one number to before another.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlineLoop {
    /// The number of its first step.
    pub first: usize,
    /// That behind its last.
    pub end: usize,
    /// The steps that decide over what it goes.
    pub over: Vec<usize>,
}

/// A step of a procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlineStep {
    /// A name for it, of which the procedure has no other.
    pub label: String,
    /// What it does.
    pub access: OutlineAccess,
    /// The table.
    pub table: String,
    /// The secondary index by which it looks rows up, if it does.
    pub index: Option<String>,
    /// The columns whose values it looks at: for itself, for later steps, or for the result. If it goes by a
    /// secondary index, the index's columns belong to them.
    pub reads: Columns,
    /// Those to which it gives values, other than by `operations`.
    pub writes: Columns,
    /// Those that it changes by a commutative operation alone.
    pub operations: Vec<(String, OperationKind)>,
    /// The steps by which its key is found. One that stands later has been taken in an earlier iteration of
    /// a loop around both; so with `values` and `guards`.
    pub keys: Vec<usize>,
    /// The steps by which what it writes is found.
    pub values: Vec<usize>,
    /// The steps that decide whether it runs.
    pub guards: Vec<usize>,
    /// Whether the procedure may roll back, by its own decision, for what it has found here.
    pub may_roll_back: bool,
    /// Whether it has to be done at once, also if nobody would miss it for a while: then it is not deferred.
    pub at_once: bool,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlineAccess {
    /// Reads rows by their keys.
    Read,
    /// Reads the rows of a range, or those that an index leads to.
    Scan,
    /// Changes a row that is there: by what it reads of it, or not, or by commutative operations.
    Update,
    /// Inserts a row with a key that no other row has, and that nobody else inserts.
    Insert,
    /// Puts a row, whether there is one with its key or not.
    Upsert,
    /// Deletes a row.
    Delete,
}

/// Columns of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Columns {
    /// Any: it is not known which.
    Any,
    /// These, or none.
    These(BTreeSet<String>),
}

impl Columns {
    /// None.
    pub const NONE: Columns = Columns::These(BTreeSet::new());

    /// These.
    pub fn these<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Columns {
        Columns::These(names.into_iter().map(Into::into).collect())
    }

    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        *self == Columns::NONE
    }
}

impl OutlineStep {
    /// One with a label, and without anything else than what every step has.
    pub fn new(label: &str, access: OutlineAccess, table: &str) -> OutlineStep {
        let (reads, writes) = match access {
            OutlineAccess::Read | OutlineAccess::Scan => (Columns::Any, Columns::NONE),
            OutlineAccess::Update => (Columns::Any, Columns::Any),
            OutlineAccess::Insert | OutlineAccess::Upsert => (Columns::NONE, Columns::Any),
            OutlineAccess::Delete => (Columns::NONE, Columns::NONE),
        };
        OutlineStep {
            label: label.to_owned(),
            access,
            table: table.to_owned(),
            index: None,
            reads,
            writes,
            operations: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            guards: Vec::new(),
            may_roll_back: false,
            at_once: false,
        }
    }

    /// Whether it may change the table.
    pub fn changes(&self) -> bool {
        !matches!(self.access, OutlineAccess::Read | OutlineAccess::Scan)
    }

    /// The one operation that it consists in, if it is of that kind.
    pub fn operation(&self) -> Option<OperationKind> {
        let (_, kind) = *self.operations.first()?;
        let is_one = self.operations.iter().all(|&(_, other)| other == kind);
        let has_others = !self.reads.is_none() || !self.writes.is_none();
        (self.access == OutlineAccess::Update && is_one && !has_others).then_some(kind)
    }

    /// All steps that it depends on.
    pub fn dependencies(&self) -> impl Iterator<Item = usize> {
        self.keys.iter().chain(&self.values).chain(&self.guards).copied()
    }

    /// What it does, in a word: `read`, `scan`, `write`, `update`, `insert`, `upsert`, `delete`, or the
    /// operation's name.
    pub fn word(&self) -> &'static str {
        match self.access {
            OutlineAccess::Read => "read",
            OutlineAccess::Scan => "scan",
            OutlineAccess::Insert => "insert",
            OutlineAccess::Upsert => "upsert",
            OutlineAccess::Delete => "delete",
            OutlineAccess::Update => match self.operation() {
                Some(kind) => kind.name(),
                None if self.reads.is_none() && self.operations.is_empty() => "write",
                None => "update",
            },
        }
    }
}

impl Outline {
    /// That of a procedure of the program.
    ///
    /// A shape says where a procedure may roll back, and not for which step's sake. So all steps that may
    /// have run by then are taken for [steps](OutlineStep::may_roll_back) that decide it.
    pub fn of(shape: &Shape) -> Outline {
        let before_rollback = shape.steps_before_rollback();
        let mut steps: Vec<OutlineStep> = Vec::new();
        for (number, step) in shape.steps.iter().enumerate() {
            let same = |other: &&plan::Step| other.table.name == step.table.name;
            let label = match shape.steps[..number].iter().filter(same).count() {
                0 => step.table.name.to_owned(),
                before => format!("{}_{}", step.table.name, before + 1),
            };
            let numbers = |all: &mut dyn Iterator<Item = plan::Dependency>| {
                let numbers: BTreeSet<usize> = all.map(|dependency| dependency.on).collect();
                numbers.into_iter().filter(|&on| on != number).collect()
            };
            steps.push(OutlineStep {
                index: step.index.map(str::to_owned),
                keys: numbers(&mut step.key_dependencies()),
                values: numbers(&mut step.value_dependencies()),
                guards: numbers(&mut step.guards.iter().copied()),
                may_roll_back: number < before_rollback,
                at_once: is_at_once(step),
                ..touched(step, &label)
            });
        }
        let loops = shape.loops.iter().filter(|around| around.steps.0 < around.steps.1);
        let loops = loops.map(|around| OutlineLoop {
            first: around.steps.0,
            end: around.steps.1,
            over: around.guards.iter().map(|dependency| dependency.on).collect(),
        });
        Outline { name: shape.name.to_owned(), steps, loops: loops.collect() }
    }

    /// Whether it changes nothing.
    pub fn is_read_only(&self) -> bool {
        !self.steps.iter().any(OutlineStep::changes)
    }

    /// The loops around a step, from the outermost.
    pub fn loops_around(&self, step: usize) -> impl Iterator<Item = usize> {
        let is_around = move |around: &OutlineLoop| around.first <= step && step < around.end;
        (0..self.loops.len()).filter(move |&number| is_around(&self.loops[number]))
    }

    /// Whether there is a loop around both.
    pub fn share_a_loop(&self, one: usize, other: usize) -> bool {
        self.loops_around(one).any(|number| self.loops_around(other).any(|its| its == number))
    }

    /// The first step that depends on one that runs later, and the number of that one. A dependency
    /// within a loop around both is fine: an earlier iteration has taken that step.
    ///
    /// `end_of_loops` is that of [`Outline::check_loops`].
    pub(super) fn late_dependency(&self, end_of_loops: &[usize]) -> Option<(usize, usize)> {
        let mut beginning: Vec<usize> = (0..self.loops.len()).collect();
        beginning.sort_by_key(|&number| self.loops[number].first);
        let mut beginning = beginning.into_iter().peekable();
        for (number, step) in self.steps.iter().enumerate() {
            // What a loop goes over is late for each of its steps, or for none: ask at the first.
            let mut over: Vec<usize> = Vec::new();
            while let Some(around) = beginning.next_if(|&it| self.loops[it].first == number) {
                over.extend(&self.loops[around].over);
            }
            let is_late = |&on: &usize| on >= number && on >= end_of_loops[number];
            if let Some(on) = step.dependencies().chain(over).find(is_late) {
                return Some((number, on));
            }
        }
        None
    }

    /// Checks that loops have steps and lie within each other. Returns for each step where the
    /// outermost loop around it ends; 0 if it is in none.
    pub(super) fn check_loops(&self) -> Result<Vec<usize>, OutlineError> {
        for (position, one) in self.loops.iter().enumerate() {
            if one.first >= one.end || one.end > self.steps.len() {
                let what = format!("loop {position} has no steps, or such as there are not");
                return Err(self.refused(&what));
            }
        }
        let mut from_outside: Vec<usize> = (0..self.loops.len()).collect();
        from_outside.sort_by_key(|&number| {
            let OutlineLoop { first, end, .. } = self.loops[number];
            (first, Reverse(end))
        });
        let mut end_of_loops = vec![0; self.steps.len()];
        // The loops around the one that is looked at, from the outermost.
        let mut open: Vec<usize> = Vec::new();
        for number in from_outside {
            let OutlineLoop { first, end, .. } = self.loops[number];
            while open.pop_if(|around| self.loops[*around].end <= first).is_some() {}
            match open.last() {
                Some(&around) if self.loops[around].end < end => {
                    let what = format!("loop {around} ends within another that begins in it");
                    return Err(self.refused(&what));
                }
                Some(_) => {}
                None => end_of_loops[first..end].fill(end),
            }
            open.push(number);
        }
        Ok(end_of_loops)
    }

    fn refused(&self, what: &str) -> OutlineError {
        OutlineError::new(format!("{}: {what}", excerpt(&self.name)))
    }

    fn check(&self) -> Result<(), OutlineError> {
        let end_of_loops = self.check_loops()?;
        let mut labels: HashSet<&str> = HashSet::new();
        let over = self.loops.iter().flat_map(|around| &around.over);
        for on in self.steps.iter().flat_map(OutlineStep::dependencies).chain(over.copied()) {
            if on >= self.steps.len() {
                return Err(
                    self.refused(&format!("a step depends on step {on}, which there is not"))
                );
            }
        }
        for step in &self.steps {
            let label = excerpt(&step.label);
            if !labels.insert(&step.label) {
                return Err(self.refused(&format!("two steps are called '{label}'")));
            }
            let only_reads = !step.changes();
            if only_reads && !(step.writes.is_none() && step.operations.is_empty()) {
                let what = format!("'{label}' is a {} that changes columns", step.word());
                return Err(self.refused(&what));
            }
        }
        match self.late_dependency(&end_of_loops) {
            None => Ok(()),
            Some((number, _)) => {
                let label = excerpt(&self.steps[number].label);
                Err(self.refused(&format!("'{label}' depends on a step that runs later")))
            }
        }
    }
}

impl Outlines {
    /// Those of procedures of the program.
    pub fn of<'s>(shapes: impl IntoIterator<Item = &'s Shape>) -> Outlines {
        let procedures = shapes.into_iter().map(Outline::of).collect();
        Outlines { procedures, tokens: Vec::new() }
    }

    /// Whether all of it is possible: that loops lie within each other, that steps depend on such as there
    /// are, and that names are names of one thing.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self) -> Result<(), OutlineError> {
        let mut names = Names::default();
        self.procedures.iter().try_for_each(|procedure| names.add_procedure(procedure))?;
        self.tokens.iter().try_for_each(|token| names.add_token(token))
    }
}

/// The names of what was checked so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    procedures: HashSet<String>,
    /// The tables whose rows go by tokens.
    by_tokens: HashSet<String>,
}

impl Names {
    /// Checks a procedure, and that no earlier one has its name.
    pub(super) fn add_procedure(&mut self, procedure: &Outline) -> Result<(), OutlineError> {
        if !self.procedures.insert(procedure.name.clone()) {
            let name = excerpt(&procedure.name);
            return Err(OutlineError::new(format!("two procedures are called '{name}'")));
        }
        procedure.check()
    }

    /// Checks that the tables of a token go by no other.
    pub(super) fn add_token(&mut self, token: &Token) -> Result<(), OutlineError> {
        let is_taken = |table: &&String| self.by_tokens.contains(*table) || **table == token.table;
        if let Some(table) = token.tables.iter().find(is_taken) {
            let table = excerpt(table);
            let what = format!("the rows of '{table}' go by tokens of more than one table");
            return Err(OutlineError::new(what));
        }
        self.by_tokens.extend(token.tables.iter().cloned());
        Ok(())
    }
}

/// What a step of a shape touches.
fn touched(step: &plan::Step, label: &str) -> OutlineStep {
    use weft::plan::Access;
    let columns = |names: Option<&'static [&'static str]>| match names {
        Some(names) => Columns::these(names.iter().copied()),
        None => Columns::Any,
    };
    let (reads, writes) = (columns(step.reads), columns(step.writes));
    let of = |access| OutlineStep::new(label, access, step.table.name);
    match step.access {
        Access::Read => OutlineStep { reads, ..of(OutlineAccess::Read) },
        Access::Scan => OutlineStep { reads, ..of(OutlineAccess::Scan) },
        Access::Insert => of(OutlineAccess::Insert),
        Access::Delete => of(OutlineAccess::Delete),
        Access::ReadWrite if step.method == "upsert" => of(OutlineAccess::Upsert),
        Access::ReadWrite => {
            let is_integer = |name: &&&'static str| plan::has_integers(&step.table, name);
            let adds: Vec<&str> = step.adds.iter().filter(is_integer).copied().collect();
            let others = |columns: Columns| match columns {
                Columns::Any => Columns::Any,
                Columns::These(names) => {
                    let rest = names.into_iter().filter(|name| !adds.contains(&name.as_str()));
                    Columns::These(rest.collect())
                }
            };
            let operations = adds.iter().map(|name| ((*name).to_owned(), OperationKind::Add));
            let operations = operations.collect();
            let (reads, writes) = (others(reads), others(writes));
            OutlineStep { reads, writes, operations, ..of(OutlineAccess::Update) }
        }
        Access::Operation(kind) => {
            let step = of(OutlineAccess::Update);
            match writes {
                Columns::These(names) => OutlineStep {
                    reads: Columns::NONE,
                    writes: Columns::NONE,
                    operations: names.into_iter().map(|name| (name, kind)).collect(),
                    ..step
                },
                Columns::Any => step,
            }
        }
    }
}

/// Whether an operation has to be done at once: what can be done later is to add numbers, to columns that are in no
/// secondary index, of rows without constraints.
fn is_at_once(step: &plan::Step) -> bool {
    let changes = match step.access {
        plan::Access::ReadWrite => step.adds,
        plan::Access::Operation(OperationKind::Add) => step.writes.unwrap_or_default(),
        plan::Access::Operation(_) => return true,
        _ => return false,
    };
    let is_indexed =
        |name: &&str| step.table.indexes.iter().any(|index| index.columns.contains(name));
    !changes.is_empty() && (step.table.is_checked || changes.iter().any(is_indexed))
}
