//! What the analysis knows of procedures: their steps in order, and what each of them touches.
//!
//! An outline is made from the [`Shape`] of a procedure, or [read from text](super::text). It owns what it
//! says, so that it can be written for procedures that are in no program.

use std::collections::BTreeSet;

use crate::column::ColumnType;
use crate::operation::OperationKind;
use crate::procedure::{self, Shape, TableShape};

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
            let same = |other: &&procedure::Step| other.table.name == step.table.name;
            let label = match shape.steps[..number].iter().filter(same).count() {
                0 => step.table.name.to_owned(),
                before => format!("{}_{}", step.table.name, before + 1),
            };
            let numbers = |all: &mut dyn Iterator<Item = procedure::Dependency>| {
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

    fn check(&self) -> Result<(), OutlineError> {
        let refuse = |what: String| Err(OutlineError(format!("{}: {what}", self.name)));
        for (position, one) in self.loops.iter().enumerate() {
            if one.first >= one.end || one.end > self.steps.len() {
                return refuse(format!("loop {position} has no steps, or such as there are not"));
            }
            let crosses = |other: &OutlineLoop| {
                one.first < other.first && other.first < one.end && one.end < other.end
            };
            if self.loops.iter().any(crosses) {
                return refuse(format!("loop {position} ends within another that begins in it"));
            }
        }
        for (number, step) in self.steps.iter().enumerate() {
            let label = &step.label;
            if self.steps[..number].iter().any(|other| other.label == *label) {
                return refuse(format!("two steps are called '{label}'"));
            }
            let over = self.loops_around(number).flat_map(|number| &self.loops[number].over);
            for on in step.dependencies().chain(over.copied()) {
                if on >= self.steps.len() {
                    return refuse(format!("'{label}' depends on step {on}, which there is not"));
                }
                if on >= number && !self.share_a_loop(on, number) {
                    return refuse(format!("'{label}' depends on a step that runs later"));
                }
            }
            let only_reads = !step.changes();
            if only_reads && !(step.writes.is_none() && step.operations.is_empty()) {
                return refuse(format!("'{label}' is a {} that changes columns", step.word()));
            }
        }
        Ok(())
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
        for (position, procedure) in self.procedures.iter().enumerate() {
            let name = &procedure.name;
            if self.procedures[..position].iter().any(|other| other.name == *name) {
                return Err(OutlineError(format!("two procedures are called '{name}'")));
            }
            procedure.check()?;
        }
        for (position, token) in self.tokens.iter().enumerate() {
            for table in &token.tables {
                let before =
                    self.tokens[..position].iter().any(|other| other.tables.contains(table));
                if before || *table == token.table {
                    let what = format!("the rows of '{table}' go by tokens of more than one table");
                    return Err(OutlineError(what));
                }
            }
        }
        Ok(())
    }
}

/// What is wrong with outlines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutlineError(String);

/// What a step of a shape touches.
fn touched(step: &procedure::Step, label: &str) -> OutlineStep {
    use crate::procedure::Access;
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
            let is_integer = |name: &&&'static str| has_integers(&step.table, name);
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
fn is_at_once(step: &procedure::Step) -> bool {
    let changes = match step.access {
        procedure::Access::ReadWrite => step.adds,
        procedure::Access::Operation(OperationKind::Add) => step.writes.unwrap_or_default(),
        procedure::Access::Operation(_) => return true,
        _ => return false,
    };
    let is_indexed =
        |name: &&str| step.table.indexes.iter().any(|index| index.columns.contains(name));
    !changes.is_empty() && (step.table.is_checked || changes.iter().any(is_indexed))
}

/// Whether sums in a column are the same in any order.
pub(crate) fn has_integers(table: &TableShape, name: &str) -> bool {
    use ColumnType::{I8, I16, I32, I64, I128, U8, U16, U32, U64, U128};
    let column = table.columns.iter().find(|column| column.name == name);
    let type_of = column.and_then(|column| column.type_of.as_ref());
    matches!(type_of, Some(I8 | I16 | I32 | I64 | I128 | U8 | U16 | U32 | U64 | U128))
}
