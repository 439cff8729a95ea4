//! The columns of a row that matter to a step, for protocols that validate by columns.

use super::shape::has_integers;
use crate::plan::{Access, Shape, Step};
use crate::row::column::ColumnSet;
use crate::row::operation::OperationKind;

/// How a step uses the columns of a row that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepColumns {
    /// Columns that must be unchanged: the step uses their values, or replaces them.
    pub matters: ColumnSet,
    /// Columns that the step only adds to. They are not in `matters`.
    pub adds: ColumnSet,
}

impl StepColumns {
    /// All columns matter, because nothing is known about the step.
    pub const ALL: StepColumns = StepColumns { matters: ColumnSet::ALL, adds: ColumnSet::NONE };

    /// Returns the columns of each step of a procedure.
    pub fn of_steps(shape: &Shape) -> Vec<StepColumns> {
        shape.steps.iter().map(StepColumns::of).collect()
    }

    fn of(step: &Step) -> StepColumns {
        let sums = |names: &[&'static str]| {
            let positions = names.iter().filter(|name| has_integers(&step.table, name));
            let positions = positions.map(|name| position(step, name));
            ColumnSet::of(positions.filter(|position| *position < ColumnSet::SINGLE))
        };
        match step.access {
            Access::Read => StepColumns { matters: set(step, step.reads), adds: ColumnSet::NONE },
            // An upsert replaces all columns of the row.
            Access::ReadWrite if step.method == "upsert" => StepColumns::ALL,
            Access::ReadWrite => {
                let adds = match (step.reads, step.writes) {
                    (Some(_), Some(_)) => sums(step.adds),
                    _ => ColumnSet::NONE,
                };
                let matters = set(step, step.reads).and(set(step, step.writes)).without(adds);
                StepColumns { matters, adds }
            }
            Access::Operation(OperationKind::Add) => {
                let adds = step.writes.map_or(ColumnSet::NONE, sums);
                StepColumns { matters: set(step, step.writes).without(adds), adds }
            }
            Access::Operation(_) => {
                StepColumns { matters: set(step, step.writes), adds: ColumnSet::NONE }
            }
            // Whether a row is there at all does not depend on columns.
            Access::Scan | Access::Insert | Access::Delete => StepColumns::ALL,
        }
    }
}

fn position(step: &Step, name: &str) -> usize {
    let mut columns = step.table.columns.iter();
    columns.position(|column| column.name == name).expect("a shape names columns that there are")
}

fn set(step: &Step, names: Option<&[&'static str]>) -> ColumnSet {
    match names {
        Some(names) => ColumnSet::of(names.iter().map(|name| position(step, name))),
        None => ColumnSet::ALL,
    }
}
