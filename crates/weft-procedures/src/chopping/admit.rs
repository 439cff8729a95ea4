//! Admission: adding a procedure to others that are running already.

use std::fmt;

use super::Options;
use super::analysis::chop;
use super::outline::{Outline, Outlines};
use super::result::{Chopping, PieceKind, StepNumber};
use weft::OutlineError;

/// Why a procedure cannot run beside the others that are running.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotAdmitted {
    /// Its outline is not possible.
    #[error(transparent)]
    Outline(#[from] OutlineError),
    /// A running procedure would have to be chopped differently.
    #[error("{0}")]
    Changes(Change),
}

/// How a running procedure would have to be chopped differently.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The running procedure.
    pub procedure: String,
    /// The labels of the steps in question: two that would have to be in one piece, or the steps of a piece.
    pub steps: Vec<String>,
    /// The reason: the cycle, or how the piece would change.
    pub why: String,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { procedure, steps, why } = self;
        write!(formatter, "'{procedure}' runs in other pieces: {}: {why}", steps.join(" and "))
    }
}

/// Checks whether a procedure can run beside the running ones, in the pieces that [`chop`] has found for them,
/// without any of them being chopped differently. If so, returns the chopping of all.
///
/// The pieces of the running procedures stay the same, and so does what is relied on: that a piece is deferred
/// or not, that its rows belong to no other transaction, that its tables do not change. A piece that had no
/// conflict may be a conflicting one from now on.
///
/// # Errors
/// It cannot; the error names the procedure, the steps and the cycle. Or the outline is not possible.
pub fn admit(
    running: &Outlines,
    added: &Outline,
    options: Options,
) -> Result<Chopping, NotAdmitted> {
    let before = chop(running, options)?;
    let mut all = running.clone();
    all.procedures.push(added.clone());
    let after = chop(&all, options)?;
    for (number, (outline, old)) in before.each().enumerate() {
        let new = &after.procedures[number];
        let change = |steps: &[usize], why: String| {
            let steps = steps.iter().map(|&step| outline.steps[step].label.clone()).collect();
            NotAdmitted::Changes(Change { procedure: outline.name.clone(), steps, why })
        };
        let position =
            |step: usize| old.pieces.iter().position(|piece| piece.steps.contains(&step));
        let new_merge = new.merges.iter().find(|it| position(it.one) != position(it.other));
        if let Some(merge) = new_merge {
            let lost = [merge.one, merge.other].into_iter().find_map(|step| {
                let kind = position(step).map(|piece| old.pieces[piece].kind)?;
                lost(&after, StepNumber { procedure: number, step }, kind)
            });
            let why = after.explain(number, merge);
            let why = lost.map_or(why.clone(), |lost| format!("{lost}: {why}"));
            return Err(change(&[merge.one, merge.other], why));
        }
        for (piece, now) in old.pieces.iter().zip(&new.pieces) {
            use PieceKind::{Deferred, Exclusive, Static};
            if piece.steps != now.steps {
                return Err(change(&piece.steps, "they run in another order".to_owned()));
            }
            let is_relied_on = |kind| matches!(kind, Deferred | Exclusive | Static);
            if piece.kind != now.kind && (is_relied_on(piece.kind) || is_relied_on(now.kind)) {
                let (kind, other) = (piece.kind, now.kind);
                let why = format!("a {kind} piece becomes a {other} one");
                return Err(change(&piece.steps, why));
            }
        }
    }
    Ok(after)
}

/// Returns why a step is no longer in a piece of this kind, if there is a specific reason.
fn lost(after: &Chopping, number: StepNumber, kind: PieceKind) -> Option<String> {
    let step = after.step(number);
    let (label, table) = (&step.label, &step.table);
    match kind {
        PieceKind::Deferred => {
            let (_, why) = after.not_deferred.iter().find(|(refused, _)| *refused == number)?;
            let why = after.explain_not_deferred(why);
            Some(format!("{label} could not be deferred any more, for {why}"))
        }
        PieceKind::Exclusive => {
            let (_, why) = after.without_token.iter().find(|(refused, _)| refused == table)?;
            Some(format!("rows of {table} would not go by tokens any more, for {why}"))
        }
        _ => None,
    }
}
