//! The order in which the steps of a procedure have to run.

use super::conflict::{Sight, meeting};
use super::outline::Outline;

/// A constraint: one step has to run before another, or in the same piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// The step that has to run first.
    pub first: usize,
    /// The step that has to run after it.
    pub then: usize,
    /// The reason.
    pub why: Why,
}

/// The reason why a step has to run before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    // Not called `Result`: with two public types and variants of that name in sight, the compiler spells out
    // `std::result::Result` in what it tells the users of this crate.
    /// The second step uses what the first has found.
    Value,
    /// Both may access the same row, and one of them changes it.
    SameRow,
    /// One of them accesses the token of the other's rows: a token is inserted after its rows, or deleted
    /// before they are touched.
    Token,
    /// The procedure is written in this order, and steps are not reordered.
    Written,
}

/// Returns the order constraints of a procedure. With `reorder` only the necessary ones, otherwise also the
/// order as written.
pub(super) fn constraints(outline: &Outline, reorder: bool) -> Vec<Before> {
    let mut all = Vec::new();
    let steps = &outline.steps;
    for (then, step) in steps.iter().enumerate() {
        let loops = outline.loops_around(then).flat_map(|number| &outline.loops[number].over);
        for first in step.dependencies().chain(loops.copied()).filter(|&on| on != then) {
            all.push(Before { first, then, why: Why::Value });
        }
        for (first, earlier) in steps[..then].iter().enumerate() {
            if meeting(earlier, step, Sight::FINE).is_some() {
                all.push(Before { first, then, why: Why::SameRow });
                // The first step's next iteration comes after the second step's present one.
                if outline.share_a_loop(first, then) {
                    all.push(Before { first: then, then: first, why: Why::SameRow });
                }
            }
        }
        if !reorder && then > 0 {
            all.push(Before { first: then - 1, then, why: Why::Written });
            if outline.share_a_loop(then - 1, then) {
                all.push(Before { first: then, then: then - 1, why: Why::Written });
            }
        }
    }
    all
}
