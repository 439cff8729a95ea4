//! Deferred execution (§3.2): which steps may wait for the end of the epoch.
//!
//! A *publisher* has a step that changes columns only by commutative operations, whose result no step uses. The
//! step commutes with itself in other instances, but conflicts with the *subscribers*, which read the columns.
//! If the step waits until the epoch ends, all subscribers of this epoch come before it, and all of the next
//! epoch come after it. This is correct if nothing else decides which of them comes first. So the paper's
//! premise is that no other C-edges connect the publisher and the subscriber.
//!
//! The premise is about one pair, and is not enough for several pairs. Let `x` be deferred by the first
//! procedure and read by the second, and `y` the other way round. No C-edge is left, and yet each of two
//! transactions misses what the other does. So there is a second premise here. Take the connected components of
//! the C-edges as parts. It must be possible to order the parts so that all subscribers come before their
//! publishers. Within an epoch, a transaction's place in the serial order is then given by its part, and within
//! the part by its conflicting piece.
//!
//! For this, the epoch in which a transaction publishes must be that of its conflicting piece, not that of its
//! beginning or its end.
//!
//! The steps to defer are the largest set that fulfils both premises: start with all candidates, and drop those
//! that violate a premise, until no more have to be dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::outline::{OutlineAccess, OutlineStep, Outlines};
use super::result::{Conflict, NotDeferred, Standing, StepNumber};

/// The steps that are deferred, and those that cannot be, with the reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Deferral {
    steps: BTreeSet<StepNumber>,
    pub(super) refused: Vec<(StepNumber, NotDeferred)>,
}

impl Deferral {
    /// Returns all steps that could be deferred.
    pub(super) fn candidates(outlines: &Outlines, conflicts: &[Conflict]) -> Deferral {
        let mut steps = BTreeSet::new();
        for (procedure, outline) in outlines.procedures.iter().enumerate() {
            for (number, step) in outline.steps.iter().enumerate() {
                let at = StepNumber { procedure, step: number };
                let mut of_step = conflicts.iter().filter_map(|conflict| {
                    let other = conflict.across(at)?;
                    (conflict.standing == Standing::Edge).then_some((conflict, other))
                });
                let only_operates = step.access == OutlineAccess::Update
                    && step.reads.is_none()
                    && step.writes.is_none()
                    && !step.operations.is_empty();
                let is_used = || {
                    let uses = |step: &OutlineStep| step.dependencies().any(|on| on == number);
                    outline.steps.iter().any(uses)
                        || outline.loops.iter().any(|around| around.over.contains(&number))
                };
                let is_read_elsewhere = of_step.clone().next().is_some()
                    && of_step.all(|(conflict, other)| {
                        !conflict.meeting.rows && other.procedure != procedure
                    });
                if only_operates
                    && !step.at_once
                    && !step.may_roll_back
                    && !is_used()
                    && is_read_elsewhere
                {
                    steps.insert(at);
                }
            }
        }
        Deferral { steps, refused: Vec::new() }
    }

    /// Whether a step is deferred.
    pub(super) fn contains(&self, step: StepNumber) -> bool {
        self.steps.contains(&step)
    }

    /// Takes a step out, for a reason.
    pub(super) fn refuse(&mut self, step: StepNumber, why: NotDeferred) {
        self.steps.remove(&step);
        self.refused.push((step, why));
    }

    /// Drops the steps that violate the premises, and marks in the conflicts what is deferred.
    pub(super) fn settle(&mut self, outlines: &Outlines, conflicts: &mut [Conflict]) {
        loop {
            for conflict in conflicts.iter_mut() {
                let deferred =
                    [conflict.one, conflict.other].into_iter().find(|&it| self.contains(it));
                conflict.standing = match (conflict.standing, deferred) {
                    (Standing::ByToken, _) => Standing::ByToken,
                    (_, Some(publisher)) => Standing::Deferred { publisher },
                    (_, None) => Standing::Edge,
                };
            }
            let parts = Parts::new(outlines, conflicts);
            match self.first_against(&parts, conflicts) {
                Some((step, why)) => self.refuse(step, why),
                None => return,
            }
        }
    }

    fn first_against(
        &self,
        parts: &Parts,
        conflicts: &[Conflict],
    ) -> Option<(StepNumber, NotDeferred)> {
        let pairs = || {
            conflicts.iter().filter_map(|conflict| match conflict.standing {
                Standing::Deferred { publisher } => Some((publisher, conflict.across(publisher)?)),
                _ => None,
            })
        };
        for (publisher, subscriber) in pairs() {
            // Two steps that are published together, and do not commute.
            if self.contains(subscriber) {
                return Some((publisher.max(subscriber), NotDeferred::Mutual));
            }
            // The paper's premise: no other C-edges connect the two.
            if parts.of[publisher.procedure] == parts.of[subscriber.procedure] {
                let way = way(publisher.procedure, subscriber.procedure, conflicts);
                return Some((publisher, NotDeferred::Connected(way)));
            }
        }
        // The second premise: edges lead from subscribers to publishers, part by part. A publisher on a circle
        // is refused.
        let edges: BTreeSet<(usize, usize)> = pairs()
            .map(|(publisher, subscriber)| {
                (parts.of[subscriber.procedure], parts.of[publisher.procedure])
            })
            .collect();
        let reaches = |from: usize, to: usize| {
            let (mut known, mut queue) = (BTreeSet::from([from]), VecDeque::from([from]));
            while let Some(at) = queue.pop_front() {
                let next = edges.iter().filter(|edge| edge.0 == at).map(|edge| edge.1);
                queue.extend(next.filter(|&next| known.insert(next)));
            }
            known.contains(&to)
        };
        let on_circle = pairs().filter(|(publisher, subscriber)| {
            reaches(parts.of[publisher.procedure], parts.of[subscriber.procedure])
        });
        on_circle.map(|(publisher, _)| publisher).max().map(|step| (step, NotDeferred::Mutual))
    }
}

/// The connected components of the C-edges, where each procedure counts as a whole.
struct Parts {
    /// For each procedure the number of its part.
    of: Vec<usize>,
}

impl Parts {
    fn new(outlines: &Outlines, conflicts: &[Conflict]) -> Parts {
        let mut of: Vec<usize> = (0..outlines.procedures.len()).collect();
        for conflict in conflicts.iter().filter(|it| it.standing == Standing::Edge) {
            let (one, other) = (of[conflict.one.procedure], of[conflict.other.procedure]);
            of.iter_mut().filter(|part| **part == other).for_each(|part| *part = one);
        }
        Parts { of }
    }
}

/// Returns the shortest chain of conflicts that connects one procedure to another.
fn way(from: usize, to: usize, conflicts: &[Conflict]) -> Vec<usize> {
    let mut came_by: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        for (position, conflict) in conflicts.iter().enumerate() {
            let ends = (conflict.one.procedure, conflict.other.procedure);
            let next = if ends.0 == at { ends.1 } else { ends.0 };
            let is_at = ends.0 == at || ends.1 == at;
            if conflict.standing == Standing::Edge
                && is_at
                && next != from
                && !came_by.contains_key(&next)
            {
                came_by.insert(next, (at, position));
                queue.push_back(next);
            }
        }
    }
    let (mut way, mut at) = (Vec::new(), to);
    while at != from {
        let (before, position) = came_by[&at];
        way.insert(0, position);
        at = before;
    }
    way
}
