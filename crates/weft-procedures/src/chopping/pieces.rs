//! The pieces in which a procedure is executed, made from those that the analysis has found.

use weft::plan::Pieces;

use super::{Chopped, Piece, PieceKind};

/// Returns the pieces of a procedure. It is one piece if the pieces that were found are not ranges of the steps
/// as written.
///
/// If not `finest`, pieces without a conflict that matters join their neighbours, because a commit of their own
/// would gain nothing.
pub fn pieces_of(procedure: &'static str, chopped: &Chopped, finest: bool) -> Pieces {
    let steps = chopped.pieces.iter().map(|piece| piece.steps.len()).sum();
    let is_conflicting = |piece: &Piece| piece.kind == PieceKind::Conflicting;
    let found = &chopped.pieces;
    let mut conflicting = found.iter().position(is_conflicting);
    let mut starts = vec![0];
    if chopped.is_as_written {
        // A piece begins after each of these.
        let mut ends: Vec<usize> = (0..found.len().saturating_sub(1)).collect();
        if !finest {
            let mut ends_that_matter = (0..found.len()).filter(|&end| !meets_nobody(&found[end]));
            ends_that_matter.next_back();
            ends = ends_that_matter.collect();
        }
        starts.extend(ends.iter().map(|end| found[end + 1].steps[0]));
        conflicting = conflicting.map(|position| ends.partition_point(|&end| end < position));
    } else {
        conflicting = conflicting.map(|_| 0);
    }
    starts.push(steps);
    let mut deferred = vec![false; steps];
    let are = chopped.pieces.iter().filter(|piece| piece.kind == PieceKind::Deferred);
    are.flat_map(|piece| &piece.steps).for_each(|&step| deferred[step] = true);
    Pieces::new(procedure, starts, conflicting, deferred)
}

/// Returns all steps as one piece, whatever the analysis has found.
pub fn one_piece_of(procedure: &'static str, chopped: &Chopped) -> Pieces {
    let steps = chopped.pieces.iter().map(|piece| piece.steps.len()).sum();
    Pieces::new(procedure, vec![0, steps], Some(0), vec![false; steps])
}

/// Whether a piece has no conflict that matters, so that it can be anywhere among the pieces of others. It may
/// access the same records as they do, but not the same columns, or only to add to them; a commit [by
/// columns](Pieces::by_columns) takes account of that.
fn meets_nobody(piece: &Piece) -> bool {
    match piece.kind {
        PieceKind::Commutative | PieceKind::Reading | PieceKind::Static => true,
        PieceKind::Conflicting | PieceKind::Exclusive | PieceKind::Deferred => false,
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{Options, Outlines, chop};
    use super::*;

    fn pieces(text: &str, options: Options) -> Pieces {
        let outlines: Outlines = text.parse().expect("is well-formed");
        pieces_of("p", &chop(&outlines, options).expect("is possible").procedures[0], true)
    }

    #[test]
    fn pieces_without_conflicts_join_their_neighbours() {
        let of = |text: &str| {
            let outlines: Outlines = text.parse().expect("is well-formed");
            let options = Options { reordering: false, ..Options::ALL };
            let chopping = chop(&outlines, options).expect("is possible");
            [true, false].map(|finest| {
                let found = pieces_of("p", &chopping.procedures[0], finest);
                let starts: Vec<usize> =
                    (0..found.count()).map(|piece| found.start(piece)).collect();
                (starts, found.conflicting())
            })
        };
        // One static, one conflicting and one commutative piece.
        let around = "
            procedure p
                a: read s (x)
                b: update t (x); values from a
                c: add u (x)
            end
        ";
        assert_eq!(of(around), [(vec![0, 1, 2], Some(1)), (vec![0], Some(0))]);
        // Only commutative pieces.
        let sums = "
            procedure p
                a: add t (x)
                b: add u (x)
            end
        ";
        assert_eq!(of(sums), [(vec![0, 1], None), (vec![0], None)]);
        // An exclusive piece, of rows whose token the procedure has taken, makes no other transaction wait. A
        // piece before it without a conflict that matters joins it.
        let tokens = "
            token t for o
            procedure p
                a: read s (x)
                b: delete t
                c: add u (x)
                d: update o (x)
                e: add u (y)
            end
            procedure q
                a: insert o
                b: insert t
            end
        ";
        assert_eq!(of(tokens), [(vec![0, 1, 2, 3, 4], Some(1)), (vec![0, 2], Some(0))]);
    }

    #[test]
    fn steps_belong_to_their_pieces() {
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
    fn reordered_steps_are_one_piece() {
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
