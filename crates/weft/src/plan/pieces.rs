//! The pieces in which a procedure is executed.

use super::{Shape, StepColumns};

/// The pieces in which a procedure is executed: ranges of its steps, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    procedure: &'static str,
    /// Of each piece its first step, and behind them the number of steps.
    starts: Vec<usize>,
    conflicting: Option<usize>,
    /// Of each step whether it is deferred.
    deferred: Vec<bool>,
    /// Whether any is.
    publishes: bool,
    /// Of each step, if they commit by columns.
    columns: Option<Vec<StepColumns>>,
    /// Whether each is a region, if it can be.
    in_regions: bool,
}

impl Pieces {
    /// The pieces of a procedure. `starts` has the first step of each, and behind them the number of steps;
    /// `conflicting` is the position of the one whose place among those of others is the transaction's; `deferred`
    /// says of each step whether it is deferred.
    pub fn new(
        procedure: &'static str,
        starts: Vec<usize>,
        conflicting: Option<usize>,
        deferred: Vec<bool>,
    ) -> Pieces {
        let publishes = deferred.contains(&true);
        let (columns, in_regions) = (None, false);
        Pieces { procedure, starts, conflicting, deferred, publishes, columns, in_regions }
    }

    /// Has each be a region, where there is hardware for that.
    pub fn in_regions(self) -> Pieces {
        Pieces { in_regions: true, ..self }
    }

    /// Makes each step a piece, as no analysis would.
    #[cfg(feature = "canary")]
    pub fn unmerge(&mut self) {
        let steps = self.start(self.count());
        self.starts = (0..=steps).collect();
    }

    /// Has them commit by columns; `shape` is the procedure's.
    pub fn by_columns(self, shape: &Shape) -> Pieces {
        Pieces { columns: Some(StepColumns::of_steps(shape)), ..self }
    }

    /// Leaves out what columns have to be as they were, as no step says.
    #[cfg(feature = "canary")]
    pub fn neglect_columns(&mut self) {
        for step in self.columns.iter_mut().flatten() {
            step.matters = crate::row::column::ColumnSet::NONE;
        }
    }

    /// The columns of the steps, if they commit by columns.
    pub fn columns(&self) -> Option<&[StepColumns]> {
        self.columns.as_deref()
    }

    /// The procedure's name.
    pub fn procedure(&self) -> &'static str {
        self.procedure
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The position of the piece that a step is in.
    pub fn of_step(&self, step: usize) -> usize {
        self.starts.partition_point(|&start| start <= step).saturating_sub(1)
    }

    /// The first step of the piece at a position; of the one behind the last, the number of steps.
    pub fn start(&self, piece: usize) -> usize {
        self.starts[piece]
    }

    /// Whether they are executed one by one: if they are several, and also the only one, if it defers something
    /// or is a region.
    pub fn are_one_by_one(&self) -> bool {
        self.count() > 1 || self.publishes() || self.in_regions
    }

    /// Whether a step is deferred, if the procedure runs in pieces.
    #[inline]
    pub fn defers(&self, step: usize) -> bool {
        self.deferred[step]
    }

    /// Whether any step is.
    pub fn publishes(&self) -> bool {
        self.publishes
    }

    /// The position of the piece whose place among those of others is the transaction's, if there is one.
    pub fn conflicting(&self) -> Option<usize> {
        self.conflicting
    }
}
