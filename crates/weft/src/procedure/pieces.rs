//! The pieces in which a procedure is executed.

use super::chopping::{Chopped, PieceKind};

/// The pieces in which a procedure is executed: ranges of its steps, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    procedure: &'static str,
    /// Of each piece its first step, and behind them the number of steps.
    starts: Vec<usize>,
    conflicting: Option<usize>,
}

impl Pieces {
    /// Those that were found for a procedure. One piece, if they are not ranges of the steps as written.
    pub fn of(procedure: &'static str, chopped: &Chopped) -> Pieces {
        let steps = chopped.pieces.iter().map(|piece| piece.steps.len()).sum();
        let is_conflicting = |piece: &super::chopping::Piece| piece.kind == PieceKind::Conflicting;
        let mut conflicting = chopped.pieces.iter().position(is_conflicting);
        let mut starts: Vec<usize> = Vec::new();
        if chopped.is_as_written {
            starts.extend(chopped.pieces.iter().filter_map(|piece| piece.steps.first()));
        } else {
            starts.push(0);
            conflicting = conflicting.map(|_| 0);
        }
        starts.push(steps);
        Pieces { procedure, starts, conflicting }
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

    /// The position of the piece whose place among those of others is the transaction's, if there is one.
    pub fn conflicting(&self) -> Option<usize> {
        self.conflicting
    }
}
