//! In which order the steps of a procedure have to run.

use super::conflict::{Sight, meeting};
use super::outline::Outline;

/// That a step has to run before another, or in the same piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// The one.
    pub first: usize,
    /// The other.
    pub then: usize,
    /// Why.
    pub why: Why,
}

/// Why a step has to run before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    // Not called `Result`: with two public types and variants of that name in sight, the compiler spells out
    // `std::result::Result` in what it tells the users of this crate.
    /// The other uses what it has found.
    Value,
    /// Both may be on the same row, and one of them changes it.
    SameRow,
    /// The other's token is the table's: it is inserted after its rows, or deleted before them.
    Token,
    /// They stand so in the procedure, and steps are not put in another order.
    Written,
}

/// What has to run before what. With `reorder` as far as it must be; else as it is written.
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
                // The next iteration of the one comes after this of the other.
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
