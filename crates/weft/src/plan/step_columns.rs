//! The columns of a row that matter to a step, for protocols that validate by columns.

use super::shape::has_integers;
use crate::plan::{Access, Shape, Step};
use crate::row::column::{ColumnSet, UsedColumns};
use crate::row::operation::OperationKind;

impl Shape {
    /// Returns how each step of the procedure uses the columns of rows.
    pub fn used_columns(&self) -> Vec<UsedColumns> {
        self.steps.iter().map(Step::used_columns).collect()
    }
}

impl Step {
    fn used_columns(&self) -> UsedColumns {
        let sums = |names: &[&'static str]| {
            let positions = names.iter().filter(|name| has_integers(&self.table, name));
            let positions = positions.map(|name| self.position(name));
            ColumnSet::of(positions.filter(|position| *position < ColumnSet::SINGLE))
        };
        match self.access {
            Access::Read => UsedColumns::matter(self.set(self.reads)),
            // An upsert replaces all columns of the row.
            Access::ReadWrite if self.method == "upsert" => UsedColumns::ALL,
            Access::ReadWrite => {
                let adds = match (self.reads, self.writes) {
                    (Some(_), Some(_)) => sums(self.adds),
                    _ => ColumnSet::NONE,
                };
                let matters = self.set(self.reads).and(self.set(self.writes)).without(adds);
                UsedColumns { matters, adds }
            }
            Access::Operation(OperationKind::Add) => {
                let adds = self.writes.map_or(ColumnSet::NONE, sums);
                UsedColumns { matters: self.set(self.writes).without(adds), adds }
            }
            Access::Operation(_) => UsedColumns::matter(self.set(self.writes)),
            // Whether a row is there at all does not depend on columns.
            Access::Scan | Access::Insert | Access::Delete => UsedColumns::ALL,
        }
    }

    fn position(&self, name: &str) -> usize {
        let mut columns = self.table.columns.iter();
        let position = columns.position(|column| column.name == name);
        position.expect("a shape names columns that there are")
    }

    fn set(&self, names: Option<&[&'static str]>) -> ColumnSet {
        match names {
            Some(names) => ColumnSet::of(names.iter().map(|name| self.position(name))),
            None => ColumnSet::ALL,
        }
    }
}
