//! Outlines: what the analysis knows of procedures. An outline lists a procedure's steps in order, and what
//! each of them touches.
//!
//! An outline is made from the [`Shape`] of a procedure, or [read from text](super::text). It owns its
//! contents, so that it can also describe procedures that are in no program.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};

use super::excerpt::excerpt;
use weft::OutlineError;
use weft::operation::OperationKind;
use weft::plan::{self, Shape};

/// Procedures that run beside each other, and the declarations about their tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlines {
    /// The procedures.
    pub procedures: Vec<Outline>,
    /// The tables whose rows are guarded by tokens.
    pub tokens: Vec<Token>,
}

/// Declares that the rows of some tables are guarded by tokens, which are the rows of another table.
///
/// A row of one of `tables` belongs to the token with the same key (or with the beginning of its key). A
/// procedure touches the row only
///
/// - if it inserts the token itself, or
/// - if it deletes the token, and has found it.
///
/// No key of a token is ever inserted twice. So the transaction that deletes a token is the only one to touch
/// its rows from then on. This is a property of keys, which the analysis does not see. If you declare a token,
/// you have to be sure of it; a test that records keys can check it.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The table whose rows are the tokens.
    pub table: String,
    /// The tables whose rows are guarded by them.
    pub tables: Vec<String>,
}

/// A procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// Its name.
    pub name: String,
    /// Its steps, in the order in which they run. A step's position is its number.
    pub steps: Vec<OutlineStep>,
    /// Its loops, in the order in which they are entered.
    pub loops: Vec<OutlineLoop>,
}

/// A loop: the range of steps that may run several times.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlineLoop {
    /// The number of its first step.
    pub first: usize,
    /// The number after that of its last step.
    pub end: usize,
    /// The steps that decide what it iterates over.
    pub over: Vec<usize>,
}

/// A step of a procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlineStep {
    /// The step's label, which is unique in the procedure.
    pub label: String,
    /// What the step does.
    pub access: OutlineAccess,
    /// The table.
    pub table: String,
    /// The secondary index through which it looks rows up, if it uses one.
    pub index: Option<String>,
    /// The columns whose values it reads: for itself, for later steps, or for the result. If it uses a
    /// secondary index, the index's columns are among them.
    pub reads: Columns,
    /// The columns to which it gives values, other than by `operations`.
    pub writes: Columns,
    /// The columns that it changes only by a commutative operation.
    pub operations: Vec<(String, OperationKind)>,
    /// The steps on which its key depends. A step that comes later in the order is one of an earlier iteration
    /// of a loop around both. The same holds for `values` and `guards`.
    pub keys: Vec<usize>,
    /// The steps on which the written values depend.
    pub values: Vec<usize>,
    /// The steps that decide whether it runs.
    pub guards: Vec<usize>,
    /// Whether the procedure may decide to roll back because of what this step has found.
    pub may_roll_back: bool,
    /// Whether the step must run at once, and may not be deferred.
    pub at_once: bool,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlineAccess {
    /// Reads rows by key.
    Read,
    /// Reads the rows of a range, or those that an index leads to.
    Scan,
    /// Changes an existing row: depending on what it reads of it, independently of that, or by commutative
    /// operations.
    Update,
    /// Inserts a row with a key that no other row has, and that no other transaction inserts.
    Insert,
    /// Inserts a row, or replaces the row with its key.
    Upsert,
    /// Deletes a row.
    Delete,
}

/// Columns of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Columns {
    /// Any columns: it is not known which.
    Any,
    /// These columns, or none.
    These(BTreeSet<String>),
}

impl Columns {
    /// No columns.
    pub const NONE: Columns = Columns::These(BTreeSet::new());

    /// Returns these columns.
    pub fn these<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Columns {
        Columns::These(names.into_iter().map(Into::into).collect())
    }

    /// Whether it contains no columns.
    pub fn is_none(&self) -> bool {
        *self == Columns::NONE
    }
}

impl OutlineStep {
    /// Returns a step with a label and the defaults of its access.
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

    /// Whether the step may change the table.
    pub fn changes(&self) -> bool {
        !matches!(self.access, OutlineAccess::Read | OutlineAccess::Scan)
    }

    /// Returns the kind of the commutative operation, if the step consists only of operations of one kind.
    pub fn operation(&self) -> Option<OperationKind> {
        let (_, kind) = *self.operations.first()?;
        let is_one = self.operations.iter().all(|&(_, other)| other == kind);
        let has_others = !self.reads.is_none() || !self.writes.is_none();
        (self.access == OutlineAccess::Update && is_one && !has_others).then_some(kind)
    }

    /// Returns all steps that it depends on.
    pub fn dependencies(&self) -> impl Iterator<Item = usize> {
        self.keys.iter().chain(&self.values).chain(&self.guards).copied()
    }

    /// Returns what the step does, in a word: `read`, `scan`, `write`, `update`, `insert`, `upsert`, `delete`,
    /// or the operation's name.
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
    /// Returns the outline of a procedure of the program.
    ///
    /// A shape says where a procedure may roll back, but not which step is the reason. So all steps that may
    /// have run by then count as [steps](OutlineStep::may_roll_back) that decide it.
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

    /// Whether the procedure changes nothing.
    pub fn is_read_only(&self) -> bool {
        !self.steps.iter().any(OutlineStep::changes)
    }

    /// Returns the loops around a step, from the outermost.
    pub fn loops_around(&self, step: usize) -> impl Iterator<Item = usize> {
        let is_around = move |around: &OutlineLoop| around.first <= step && step < around.end;
        (0..self.loops.len()).filter(move |&number| is_around(&self.loops[number]))
    }

    /// Whether a loop is around both steps.
    pub fn share_a_loop(&self, one: usize, other: usize) -> bool {
        self.loops_around(one).any(|number| self.loops_around(other).any(|its| its == number))
    }

    /// Returns the first step that depends on a step that runs later, and the number of that later step. A
    /// dependency within a loop around both is fine: it refers to an earlier iteration.
    ///
    /// `end_of_loops` is the result of [`Outline::check_loops`].
    pub(super) fn late_dependency(&self, end_of_loops: &[usize]) -> Option<(usize, usize)> {
        let mut beginning: Vec<usize> = (0..self.loops.len()).collect();
        beginning.sort_by_key(|&number| self.loops[number].first);
        let mut beginning = beginning.into_iter().peekable();
        for (number, step) in self.steps.iter().enumerate() {
            // The steps on which a loop depends are late for all of its steps or for none, so check them at its
            // first.
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

    /// Checks that every loop has steps, and that loops are nested. Returns, for each step, where the outermost
    /// loop around it ends, or 0 if it is in no loop.
    pub(super) fn check_loops(&self) -> Result<Vec<usize>, OutlineError> {
        for (position, one) in self.loops.iter().enumerate() {
            if one.first >= one.end || one.end > self.steps.len() {
                let what = format!("loop {position} has no steps, or steps that do not exist");
                return Err(self.refused(&what));
            }
        }
        let mut from_outside: Vec<usize> = (0..self.loops.len()).collect();
        from_outside.sort_by_key(|&number| {
            let OutlineLoop { first, end, .. } = self.loops[number];
            (first, Reverse(end))
        });
        let mut end_of_loops = vec![0; self.steps.len()];
        // The loops around the present one, from the outermost.
        let mut open: Vec<usize> = Vec::new();
        for number in from_outside {
            let OutlineLoop { first, end, .. } = self.loops[number];
            while open.pop_if(|around| self.loops[*around].end <= first).is_some() {}
            match open.last() {
                Some(&around) if self.loops[around].end < end => {
                    let what = format!("loop {around} ends inside a loop that begins in it");
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
                    self.refused(&format!("a step depends on step {on}, which does not exist"))
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
    /// Returns the outlines of procedures of the program.
    pub fn of<'s>(shapes: impl IntoIterator<Item = &'s Shape>) -> Outlines {
        let procedures = shapes.into_iter().map(Outline::of).collect();
        Outlines { procedures, tokens: Vec::new() }
    }

    /// Checks that the outlines are possible: that loops are nested, that steps depend on existing steps, and
    /// that names are unique.
    ///
    /// # Errors
    /// The first thing that is not possible.
    pub fn check(&self) -> Result<(), OutlineError> {
        let mut names = Names::default();
        self.procedures.iter().try_for_each(|procedure| names.add_procedure(procedure))?;
        self.tokens.iter().try_for_each(|token| names.add_token(token))
    }
}

/// The names that have been checked so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    procedures: HashSet<String>,
    /// The tables whose rows are guarded by tokens.
    by_tokens: HashSet<String>,
}

impl Names {
    /// Checks a procedure, and that its name is new.
    pub(super) fn add_procedure(&mut self, procedure: &Outline) -> Result<(), OutlineError> {
        if !self.procedures.insert(procedure.name.clone()) {
            let name = excerpt(&procedure.name);
            return Err(OutlineError::new(format!("two procedures are called '{name}'")));
        }
        procedure.check()
    }

    /// Checks that the tables of a token are guarded by no other tokens.
    pub(super) fn add_token(&mut self, token: &Token) -> Result<(), OutlineError> {
        let is_taken = |table: &&String| self.by_tokens.contains(*table) || **table == token.table;
        if let Some(table) = token.tables.iter().find(is_taken) {
            let table = excerpt(table);
            let what =
                format!("the rows of '{table}' are guarded by tokens of more than one table");
            return Err(OutlineError::new(what));
        }
        self.by_tokens.extend(token.tables.iter().cloned());
        Ok(())
    }
}

/// Describes what a step of a shape touches.
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
            let update = of(OutlineAccess::Update);
            match writes {
                // Of equal orders the first stays, so the order of two such steps can matter.
                writes
                    if step.may_fall_short()
                        || matches!(
                            kind,
                            OperationKind::OrderedPut | OperationKind::TopKInsert
                        ) =>
                {
                    OutlineStep { reads: writes.clone(), writes, ..update }
                }
                Columns::These(names) => OutlineStep {
                    reads: Columns::NONE,
                    writes: Columns::NONE,
                    operations: names.into_iter().map(|name| (name, kind)).collect(),
                    ..update
                },
                Columns::Any => update,
            }
        }
    }
}

/// Whether a step must run at once. What can wait is adding numbers to columns that are in no secondary index, have
/// no bounds, and are read by no check.
fn is_at_once(step: &plan::Step) -> bool {
    let changes = match step.access {
        // Only changes of single rows can wait.
        plan::Access::ReadWrite if step.method == "update_many" => return true,
        plan::Access::ReadWrite => step.adds,
        plan::Access::Operation(OperationKind::Add) => step.writes.unwrap_or_default(),
        plan::Access::Operation(_) => return true,
        _ => return false,
    };
    let is_indexed =
        |name: &&str| step.table.indexes.iter().any(|index| index.columns.contains(name));
    let is_checked = |name: &&str| {
        let column = step.table.columns.iter().find(|column| column.name == *name);
        column.is_some_and(|it| step.table.is_checked && (it.is_checked || it.bounds.is_some()))
    };
    changes.iter().any(|name| is_indexed(name) || is_checked(name))
}
