//! Shapes: what a procedure declares. These are its steps, what each step accesses, and which steps depend on
//! which.

use std::fmt;

use crate::row::column::{ColumnSet, ColumnType};
use crate::row::operation::OperationKind;
use crate::row::schema::{Column, IndexDescription, Record};
use crate::step::{Instance, Iteration};
use crate::store::table::Table;

/// The shape of a procedure. `#[procedure]` derives it when the function is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The procedure's name, for example `new_order`.
    pub name: &'static str,
    /// The procedure's operations, in the order in which they run. A step's position is its number.
    pub steps: &'static [Step],
    /// The loops that contain operations, in the order in which they are entered.
    pub loops: &'static [Loop],
    /// The places where the procedure may end with an error of its own, which rolls back.
    pub rollbacks: &'static [Rollback],
    /// Whether the procedure asks for its [time](crate::Transaction::now).
    pub uses_time: bool,
}

/// An operation of a procedure, as it appears in the program. In a loop it has many [instances](Instance).
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The method of [`Transaction`](crate::Transaction) that the step calls.
    pub method: &'static str,
    /// What the step does to the table.
    pub access: Access,
    /// The table.
    pub table: TableShape,
    /// The secondary index by which the step looks rows up, if it uses one.
    pub index: Option<&'static str>,
    /// The columns of a row that the step reads. `None` means any.
    pub reads: Option<&'static [&'static str]>,
    /// The columns that the step writes. `None` means any.
    pub writes: Option<&'static [&'static str]>,
    /// Those of `writes` that the step only adds to, or subtracts from (`+=`, `-=`). It uses their previous values
    /// for nothing else.
    pub adds: &'static [&'static str],
    /// The loops around the step, from the outermost, as positions in [`Shape::loops`].
    pub loops: &'static [usize],
    /// The steps whose results determine this step's key, or its range. If the step inserts a row whose columns are
    /// known one by one, see also [`Step::columns`].
    pub keys: &'static [Dependency],
    /// The steps whose results it uses for anything else.
    pub values: &'static [Dependency],
    /// If the step inserts a row that the program writes column by column: for each column, the steps that it
    /// depends on.
    pub columns: &'static [(&'static str, &'static [Dependency])],
    /// The steps that decide whether this step runs.
    pub guards: &'static [Dependency],
    /// The step's line in the source.
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
    /// Returns whether the access may change the table.
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

/// What a shape knows of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableShape {
    /// The table's name.
    pub name: &'static str,
    /// The table's columns.
    pub columns: &'static [Column],
    /// The columns of the primary key, as positions in `columns`.
    pub key_columns: &'static [usize],
    /// The table's secondary indexes.
    pub indexes: &'static [IndexDescription],
    /// Whether its rows have constraints of their own.
    pub is_checked: bool,
    /// Whether its rows expire.
    pub expires: bool,
}

impl TableShape {
    /// Returns the shape of a table that is reached from a procedure's argument. Called by `#[procedure]`.
    #[doc(hidden)]
    pub const fn reached<A: ?Sized, T: Record>(_: fn(&A) -> &Table<T>) -> Self {
        TableShape {
            name: T::TABLE,
            columns: T::COLUMNS,
            key_columns: T::KEY_COLUMNS,
            indexes: T::INDEXES,
            is_checked: T::IS_CHECKED,
            expires: T::EXPIRY.is_some(),
        }
    }

    /// Returns the columns with these names.
    pub fn columns_named(&self, names: &[&str]) -> ColumnSet {
        let named =
            |(position, column): (usize, &Column)| names.contains(&column.name).then_some(position);
        ColumnSet::of(self.columns.iter().enumerate().filter_map(named))
    }

    fn is_key_column(&self, name: &str) -> bool {
        self.key_columns.iter().any(|&position| self.columns[position].name == name)
    }
}

/// A dependency: a step uses the result of another step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dependency {
    /// The number of the other step.
    pub on: usize,
    /// If the step also uses results of *earlier* iterations of a loop around both steps, the depth of the
    /// outermost such loop, counted from 0. If `None`, it uses the result of the same iteration.
    pub carried: Option<usize>,
}

/// A loop that contains operations.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    /// The number of the loop's first step, and the number after that of its last step.
    pub steps: (usize, usize),
    /// How many loops are around this one.
    pub depth: usize,
    /// The steps that decide what the loop iterates over, and how often.
    pub guards: &'static [Dependency],
    /// The loop's line in the source.
    pub line: u32,
}

/// A place where a procedure may end with an error of its own.
#[derive(Clone, Copy, Debug)]
pub struct Rollback {
    /// Only steps with smaller numbers can have run at this place.
    pub before: usize,
    /// The line of this place in the source.
    pub line: u32,
}

impl Step {
    /// Returns whether the step is an operation that depends on how much there is: on a column with bounds, or one
    /// that takes. Such operations do not commute, since one can leave too little for another.
    pub fn may_fall_short(&self) -> bool {
        let is_bounded = |column: &&Column| {
            column.bounds.is_some() && self.writes.is_none_or(|names| names.contains(&column.name))
        };
        match self.access {
            Access::Operation(OperationKind::Take) => true,
            Access::Operation(_) => self.table.columns.iter().any(|column| is_bounded(&column)),
            _ => false,
        }
    }

    /// Returns the dependencies of the step's key.
    pub fn key_dependencies(&self) -> impl Iterator<Item = Dependency> {
        let of_key = self.columns.iter().filter(|(name, _)| self.table.is_key_column(name));
        merged(self.keys.iter().chain(of_key.flat_map(|(_, on)| on.iter())))
    }

    /// Returns the dependencies of everything except the key.
    pub fn value_dependencies(&self) -> impl Iterator<Item = Dependency> {
        let others = self.columns.iter().filter(|(name, _)| !self.table.is_key_column(name));
        merged(self.values.iter().chain(others.flat_map(|(_, on)| on.iter())))
    }

    /// Returns the dependencies of the step's key and of its values.
    pub fn dependencies(&self) -> impl Iterator<Item = Dependency> {
        let columns = self.columns.iter().flat_map(|(_, on)| on.iter());
        self.keys.iter().chain(self.values).chain(columns).copied()
    }
}

/// Returns one dependency on each step, in the order of the steps.
fn merged<'d>(all: impl Iterator<Item = &'d Dependency>) -> impl Iterator<Item = Dependency> {
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
    /// Returns whether the procedure writes nothing.
    pub fn is_read_only(&self) -> bool {
        self.steps.iter().all(|step| !step.access.writes())
    }

    /// Returns whether a piece may begin with this step. It may not if a loop is around both this step and the one
    /// before.
    pub fn may_begin_piece(&self, step: usize) -> bool {
        self.loops.iter().all(|around| step <= around.steps.0 || step >= around.steps.1)
    }

    /// Returns how many steps, from the first, may have run when the procedure ends with an error of its own. All
    /// of them must be in the first piece, so that the error rolls them back.
    ///
    /// A step that may [find too little](Step::may_fall_short) is such an end. In a loop, the steps behind it may have
    /// run in an earlier iteration.
    pub fn steps_before_rollback(&self) -> usize {
        let short = (1..).zip(self.steps).filter(|(_, step)| step.may_fall_short());
        let short = short.map(|(steps, step)| match step.loops.first() {
            Some(&outermost) => self.loops[outermost].steps.1,
            None => steps,
        });
        self.rollbacks.iter().map(|rollback| rollback.before).chain(short).max().unwrap_or(0)
    }

    /// Returns how many loops two steps have in common.
    fn common_loops(&self, one: usize, other: usize) -> usize {
        let both = self.steps[one].loops.iter().zip(self.steps[other].loops);
        both.take_while(|(one, other)| one == other).count()
    }

    /// Returns whether one instance comes before another, if both run.
    pub fn precedes(&self, one: Instance, other: Instance) -> bool {
        let common = self.common_loops(one.step, other.step);
        let within = |iteration: Iteration| iteration.outer(common);
        (within(one.iteration), one.step) < (within(other.iteration), other.step)
    }

    /// Decides whether a dependency between two steps exists between these instances of the steps.
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

    /// Returns whether an instance depends directly on another.
    pub fn depends(&self, dependent: Instance, source: Instance) -> bool {
        let mut all = self.steps[dependent.step].dependencies();
        all.any(|dependency| self.reaches(dependency, source, dependent))
    }
}

/// Returns whether a column's type is an integer, so that sums in it are the same in any order.
pub fn has_integers(table: &TableShape, name: &str) -> bool {
    use ColumnType::{I8, I16, I32, I64, I128, U8, U16, U32, U64, U128};
    let column = table.columns.iter().find(|column| column.name == name);
    let type_of = column.and_then(|column| column.type_of.as_ref());
    matches!(type_of, Some(I8 | I16 | I32 | I64 | I128 | U8 | U16 | U32 | U64 | U128))
}
