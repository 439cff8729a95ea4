//! Deferred execution (§3.2): which steps may wait for the end of the epoch.
//!
//! A *publisher's* step that changes columns by commutative operations alone, of which nobody uses the result,
//! commutes with itself in other instances, but conflicts with the *subscribers*, which read the columns.
//! If it waits until the epoch ends, then all subscribers of this epoch come before it, and all of the next
//! come after it. That is in order if nothing else says which of them comes first: the paper's premise is
//! that no other C-edges connect the publisher and the subscriber.
//!
//! The premise is about one pair. Of several pairs it does not say enough: let `x` be deferred by the first
//! procedure and read by the second, and `y` the other way round. There is no C-edge left, and yet each of two
//! transactions misses what the other does. So there is a second premise here: let everything be put together
//! that C-edges connect; then it must be possible to put these parts in an order in which all subscribers
//! stand before their publishers. Within an epoch a transaction then has its place by its part, and within
//! the part by its conflicting piece.
//!
//! For that, the epoch in which a transaction publishes has to be the one of its conflicting piece, and not of
//! its beginning or its end.
//!
//! The steps are found as the largest set that keeps to both premises: of all that could be deferred, those
//! are dropped that do not, until none is left to drop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::outline::{OutlineAccess, OutlineStep, Outlines};
use super::result::{Conflict, NotDeferred, Standing, StepNumber};

/// What is deferred, and what could be but for this.
#[derive(Clone, Debug, Default)]
pub(super) struct Deferral {
    steps: BTreeSet<StepNumber>,
    pub(super) refused: Vec<(StepNumber, NotDeferred)>,
}

impl Deferral {
    /// All that could be deferred.
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

    /// Takes a step out.
    pub(super) fn refuse(&mut self, step: StepNumber, why: NotDeferred) {
        self.steps.remove(&step);
        self.refused.push((step, why));
    }

    /// Drops what does not keep to the premises, and writes down in the conflicts what is deferred.
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
            // Two that are published together, and do not commute.
            if self.contains(subscriber) {
                return Some((publisher.max(subscriber), NotDeferred::Mutual));
            }
            if parts.of[publisher.procedure] == parts.of[subscriber.procedure] {
                let way = way(publisher.procedure, subscriber.procedure, conflicts);
                return Some((publisher, NotDeferred::Connected(way)));
            }
        }
        // From subscribers to publishers, part by part; those that are on a circle.
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

/// What C-edges connect, whole procedures being one.
struct Parts {
    /// Of each procedure.
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

/// The conflicts by which one procedure is connected to another: the fewest.
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
