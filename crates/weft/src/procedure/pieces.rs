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

    /// All steps as one piece, whatever was found.
    pub(crate) fn one(procedure: &'static str, chopped: &Chopped) -> Pieces {
        let steps = chopped.pieces.iter().map(|piece| piece.steps.len()).sum();
        Pieces { procedure, starts: vec![0, steps], conflicting: Some(0) }
    }

    /// Makes each step a piece, as no analysis would.
    #[cfg(feature = "canary")]
    pub(crate) fn unmerge(&mut self) {
        let steps = self.start(self.count());
        self.starts = (0..=steps).collect();
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::chopping::{Options, Outlines, chop};
    use super::*;

    fn pieces(text: &str, options: Options) -> Pieces {
        let outlines: Outlines = text.parse().expect("is well-formed");
        Pieces::of("p", &chop(&outlines, options).expect("is possible").procedures[0])
    }

    #[test]
    fn steps_are_in_the_pieces_that_were_found() {
        let text = "
            procedure p
                a: read s (x)
                b: update t (x); values from a
                c: write t (y)
                d: add u (x)
            end
        ";
        let found = pieces(text, Options { reordering: false, ..Options::ALL });
        assert_eq!((found.count(), found.conflicting()), (3, Some(1)));
        assert_eq!([0, 1, 2, 3].map(|step| found.of_step(step)), [0, 1, 1, 2]);
        assert_eq!([0, 1, 2, 3].map(|piece| found.start(piece)), [0, 1, 3, 4]);
    }

    #[test]
    fn steps_in_another_order_are_one_piece() {
        let text = "
            procedure p
                a: update t (x)
                b: add u (x)
                c: update t (x)
            end
        ";
        assert!(pieces(text, Options { reordering: false, ..Options::ALL }).count() == 1);
        let reordered = pieces(text, Options::ALL);
        assert_eq!(
            (reordered.count(), reordered.conflicting(), reordered.start(1)),
            (1, Some(0), 3)
        );
    }
}
