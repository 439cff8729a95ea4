//! The pieces in which a procedure is executed.

use super::Shape;
use crate::row::column::UsedColumns;

/// The pieces in which a procedure is executed: consecutive ranges of its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    procedure: &'static str,
    /// The first step of each piece, followed by the number of steps.
    starts: Vec<usize>,
    conflicting: Option<usize>,
    /// For each step, whether it is deferred.
    deferred: Vec<bool>,
    /// Whether any step is deferred.
    publishes: bool,
    /// Whether any step reads what other procedures defer.
    subscribes: bool,
    /// The columns of each step, if the pieces are committed by columns.
    columns: Option<Vec<UsedColumns>>,
    /// Whether each piece is a hardware region, if there is hardware for that.
    in_regions: bool,
}

impl Pieces {
    /// Returns the pieces of a procedure. `starts` has the first step of each piece, followed by the number of
    /// steps. `conflicting` is the position of the conflicting piece: its place in the order of all pieces is the
    /// transaction's place in the serial order. `deferred` says for each step whether it is deferred.
    pub fn new(
        procedure: &'static str,
        starts: Vec<usize>,
        conflicting: Option<usize>,
        deferred: Vec<bool>,
    ) -> Pieces {
        Pieces {
            procedure,
            starts,
            conflicting,
            publishes: deferred.contains(&true),
            deferred,
            subscribes: false,
            columns: None,
            in_regions: false,
        }
    }

    /// Says whether a step reads what other procedures defer.
    pub fn subscribing(self, subscribes: bool) -> Pieces {
        Pieces { subscribes, ..self }
    }

    /// Makes each piece a hardware region, where there is hardware for that.
    pub fn in_regions(self) -> Pieces {
        Pieces { in_regions: true, ..self }
    }

    /// Makes each step a piece, which is wrong: no analysis would allow it.
    #[cfg(feature = "canary")]
    pub fn unmerge(&mut self) {
        let steps = self.start(self.count());
        self.starts = (0..=steps).collect();
    }

    /// Makes the pieces commit by columns. `shape` is the procedure's.
    pub fn by_columns(self, shape: &Shape) -> Pieces {
        Pieces { columns: Some(shape.used_columns()), ..self }
    }

    /// Ignores which columns must be unchanged, which is wrong: no step allows it.
    #[cfg(feature = "canary")]
    pub fn neglect_columns(&mut self) {
        for step in self.columns.iter_mut().flatten() {
            step.matters = crate::row::column::ColumnSet::NONE;
        }
    }

    /// Returns the columns of the steps, if the pieces are committed by columns.
    pub fn columns(&self) -> Option<&[UsedColumns]> {
        self.columns.as_deref()
    }

    /// Returns the procedure's name.
    pub fn procedure(&self) -> &'static str {
        self.procedure
    }

    /// Returns the number of pieces.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the position of the piece that a step is in.
    pub fn of_step(&self, step: usize) -> usize {
        self.starts.partition_point(|&start| start <= step).saturating_sub(1)
    }

    /// Returns the first step of the piece at a position. For the position after the last piece, returns the number
    /// of steps.
    pub fn start(&self, piece: usize) -> usize {
        self.starts[piece]
    }

    /// Returns whether the pieces are executed one by one. This is so for several pieces, and also for a single one
    /// that defers something or is a region.
    pub fn are_one_by_one(&self) -> bool {
        self.count() > 1 || self.publishes() || self.in_regions
    }

    /// Returns whether a step is deferred, if the procedure runs in pieces.
    #[inline]
    pub fn defers(&self, step: usize) -> bool {
        self.deferred[step]
    }

    /// Returns whether any step is deferred, so that its changes must be published.
    pub fn publishes(&self) -> bool {
        self.publishes
    }

    /// Returns whether any step reads what other procedures defer.
    pub fn subscribes(&self) -> bool {
        self.subscribes
    }

    /// Returns the position of the conflicting piece, if there is one: its place in the order of all pieces is the
    /// transaction's place in the serial order.
    pub fn conflicting(&self) -> Option<usize> {
        self.conflicting
    }
}
