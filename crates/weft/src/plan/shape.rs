//! What a procedure declares: its steps, what each of them accesses, and what follows from what.

use std::fmt;

use crate::row::column::{ColumnSet, ColumnType};
use crate::row::operation::OperationKind;
use crate::row::schema::{Column, IndexDescription, Record};
use crate::step::{Instance, Iteration};
use crate::store::table::Table;

/// The shape of a procedure. `#[procedure]` finds it out when the function is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The procedure's name, as in `new_order`.
    pub name: &'static str,
    /// Its operations, in the order in which they run; their positions are their numbers.
    pub steps: &'static [Step],
    /// Its loops that have operations, in the order in which they are entered.
    pub loops: &'static [Loop],
    /// Where it may end with an error of its own, which rolls back.
    pub rollbacks: &'static [Rollback],
}

/// An operation of a procedure, as it stands in the program. In a loop it has many
/// [instances](Instance).
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The method of [`Transaction`](crate::Transaction) that it calls.
    pub method: &'static str,
    /// What it does to the table.
    pub access: Access,
    /// The table.
    pub table: TableShape,
    /// The secondary index by which it looks rows up, if it does.
    pub index: Option<&'static str>,
    /// The columns that it reads of a row; `None`: any.
    pub reads: Option<&'static [&'static str]>,
    /// The columns that it writes; `None`: any.
    pub writes: Option<&'static [&'static str]>,
    /// Those of `writes` that it does nothing with but to add to them, or to subtract from them (`+=`, `-=`):
    /// what was there before goes nowhere else.
    pub adds: &'static [&'static str],
    /// The loops around it, from the outermost: positions in [`Shape::loops`].
    pub loops: &'static [usize],
    /// The steps by which its key, or its range, is found. Where it inserts a row whose columns are known
    /// one by one, see [`Step::columns`].
    pub keys: &'static [Dependency],
    /// The steps whose results it uses otherwise.
    pub values: &'static [Dependency],
    /// If it inserts a row that is written out column by column: what each of them is found by.
    pub columns: &'static [(&'static str, &'static [Dependency])],
    /// The steps that decide whether it runs at all.
    pub guards: &'static [Dependency],
    /// Its line in the source.
    pub line: u32,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads rows by their primary keys.
    Read,
    /// Changes a row, after reading it.
    ReadWrite,
    /// Inserts a row.
    Insert,
    /// Deletes a row.
    Delete,
    /// Reads the rows of a range, or those that a secondary index leads to.
    Scan,
    /// Applies a commutative operation to a column.
    Operation(OperationKind),
}

impl Access {
    /// Whether it may change the table.
    pub fn writes(self) -> bool {
        !matches!(self, Access::Read | Access::Scan)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Read => formatter.pad("read"),
            Access::ReadWrite => formatter.pad("read-write"),
            Access::Insert => formatter.pad("insert"),
            Access::Delete => formatter.pad("delete"),
            Access::Scan => formatter.pad("scan"),
            Access::Operation(kind) => formatter.pad(kind.name()),
        }
    }
}

/// A table, as far as a shape is concerned.
#[derive(Clone, Copy, Debug)]
pub struct TableShape {
    /// Its name.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
    /// The columns of its primary key: positions in `columns`.
    pub key_columns: &'static [usize],
    /// Its secondary indexes.
    pub indexes: &'static [IndexDescription],
    /// Whether its rows have constraints of their own.
    pub is_checked: bool,
}

impl TableShape {
    /// That of a table which is reached from a procedure's argument. Called by `#[procedure]`.
    #[doc(hidden)]
    pub const fn reached<A: ?Sized, T: Record>(_: fn(&A) -> &Table<T>) -> Self {
        TableShape {
            name: T::TABLE,
            columns: T::COLUMNS,
            key_columns: T::KEY_COLUMNS,
            indexes: T::INDEXES,
            is_checked: T::IS_CHECKED,
        }
    }

    /// The columns of these names.
    pub fn columns_named(&self, names: &[&str]) -> ColumnSet {
        let named =
            |(position, column): (usize, &Column)| names.contains(&column.name).then_some(position);
        ColumnSet::of(self.columns.iter().enumerate().filter_map(named))
    }

    fn is_key_column(&self, name: &str) -> bool {
        self.key_columns.iter().any(|&position| self.columns[position].name == name)
    }
}

/// That a step uses what another has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dependency {
    /// The number of the other step.
    pub on: usize,
    /// If it also uses what the other has found in *earlier* iterations of a loop around both: the depth of
    /// the outermost such loop, from 0. Otherwise it uses what the same iteration has found.
    pub carried: Option<usize>,
}

/// A loop that has operations in it.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    /// The numbers of its first step, and of that behind its last.
    pub steps: (usize, usize),
    /// How many loops are around it.
    pub depth: usize,
    /// The steps that decide over what it goes, and how often.
    pub guards: &'static [Dependency],
    /// Its line in the source.
    pub line: u32,
}

/// A place where a procedure may end with an error that is not the engine's.
#[derive(Clone, Copy, Debug)]
pub struct Rollback {
    /// Only steps with lesser numbers may have run by then.
    pub before: usize,
    /// Its line in the source.
    pub line: u32,
}

impl Step {
    /// What its key depends on.
    pub fn key_dependencies(&self) -> impl Iterator<Item = Dependency> {
        let of_key = self.columns.iter().filter(|(name, _)| self.table.is_key_column(name));
        joined(self.keys.iter().chain(of_key.flat_map(|(_, on)| on.iter())))
    }

    /// What it depends on otherwise.
    pub fn value_dependencies(&self) -> impl Iterator<Item = Dependency> {
        let others = self.columns.iter().filter(|(name, _)| !self.table.is_key_column(name));
        joined(self.values.iter().chain(others.flat_map(|(_, on)| on.iter())))
    }

    /// What its key or its values depend on.
    pub fn dependencies(&self) -> impl Iterator<Item = Dependency> {
        let columns = self.columns.iter().flat_map(|(_, on)| on.iter());
        self.keys.iter().chain(self.values).chain(columns).copied()
    }
}

/// Each step once, in order.
fn joined<'d>(all: impl Iterator<Item = &'d Dependency>) -> impl Iterator<Item = Dependency> {
    let mut steps = std::collections::BTreeMap::new();
    for &Dependency { on, carried } in all {
        let known = steps.entry(on).or_insert(carried);
        *known = outermost(*known, carried);
    }
    steps.into_iter().map(|(on, carried)| Dependency { on, carried })
}

fn outermost(one: Option<usize>, other: Option<usize>) -> Option<usize> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Shape {
    /// Whether it writes nothing.
    pub fn is_read_only(&self) -> bool {
        self.steps.iter().all(|step| !step.access.writes())
    }

    /// Whether a piece may begin with this step: whether no loop lies around both it and the one before.
    pub fn may_begin_piece(&self, step: usize) -> bool {
        self.loops.iter().all(|around| step <= around.steps.0 || step >= around.steps.1)
    }

    /// How many steps, from the first, may have run when it ends with an error of its own: these belong
    /// into one piece, the first, which the error then rolls back.
    pub fn steps_before_rollback(&self) -> usize {
        self.rollbacks.iter().map(|rollback| rollback.before).max().unwrap_or(0)
    }

    /// How many loops two steps have in common.
    fn common_loops(&self, one: usize, other: usize) -> usize {
        let both = self.steps[one].loops.iter().zip(self.steps[other].loops);
        both.take_while(|(one, other)| one == other).count()
    }

    /// Whether one instance comes before another, if both run.
    pub fn precedes(&self, one: Instance, other: Instance) -> bool {
        let common = self.common_loops(one.step, other.step);
        let within = |iteration: Iteration| iteration.outer(common);
        (within(one.iteration), one.step) < (within(other.iteration), other.step)
    }

    /// Whether a step that depends on another so does in these instances of the two.
    pub fn reaches(&self, dependency: Dependency, source: Instance, dependent: Instance) -> bool {
        if dependency.on != source.step {
            return false;
        }
        let common = self.common_loops(source.step, dependent.step);
        let same = |depth| source.iteration.outer(depth) == dependent.iteration.outer(depth);
        match dependency.carried.filter(|&depth| depth < common) {
            Some(depth) => {
                same(depth) && source.iteration.at(depth) <= dependent.iteration.at(depth)
            }
            None => same(common),
        }
    }

    /// Whether an instance depends on another, directly.
    pub fn depends(&self, dependent: Instance, source: Instance) -> bool {
        let mut all = self.steps[dependent.step].dependencies();
        all.any(|dependency| self.reaches(dependency, source, dependent))
    }
}

/// Whether sums in a column are the same in any order.
pub fn has_integers(table: &TableShape, name: &str) -> bool {
    use ColumnType::{I8, I16, I32, I64, I128, U8, U16, U32, U64, U128};
    let column = table.columns.iter().find(|column| column.name == name);
    let type_of = column.and_then(|column| column.type_of.as_ref());
    matches!(type_of, Some(I8 | I16 | I32 | I64 | I128 | U8 | U16 | U32 | U64 | U128))
}
