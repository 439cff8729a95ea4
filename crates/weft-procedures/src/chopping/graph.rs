//! The chopping graph: the steps of two instances of each procedure, with S-edges and C-edges.
//!
//! An SC-cycle is a cycle with at least one of either. Two steps `a` and `b` of an instance are on one as soon
//! as there is a way from `a` to `b` that goes over no other step of this instance: the S-edge between the
//! two closes it, and the way begins with a C-edge. Whether there is one does not depend on how *other*
//! instances are chopped, for within each of them S-edges, or being in one piece, lead from anywhere to
//! everywhere; nor on how this one is. So the relation *on a cycle with* is known from the start, and merging
//! steps makes no new cycles. That is why one pass comes to the fixpoint, why it is the same in whatever order
//! merges are made, and why nothing is merged that need not be (Shasha and others, 1995, Theorem on the
//! finest chopping).

use std::collections::{BTreeMap, VecDeque};

use super::outline::Outlines;
use super::result::{Conflict, Standing, StepNumber, Vertex};

/// The graph.
pub(super) struct Graph<'a> {
    outlines: &'a Outlines,
    /// Of each step those that it has C-edges to.
    edges: BTreeMap<StepNumber, Vec<StepNumber>>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(outlines: &'a Outlines, conflicts: &[Conflict]) -> Self {
        let mut edges: BTreeMap<StepNumber, Vec<StepNumber>> = BTreeMap::new();
        for conflict in conflicts.iter().filter(|it| it.standing == Standing::Edge) {
            edges.entry(conflict.one).or_default().push(conflict.other);
            if conflict.one != conflict.other {
                edges.entry(conflict.other).or_default().push(conflict.one);
            }
        }
        Graph { outlines, edges }
    }

    /// Whether a step has C-edges.
    pub(super) fn has_edges(&self, step: StepNumber) -> bool {
        self.edges.contains_key(&step)
    }

    /// The shortest way between two steps of a procedure's first instance that goes over no other step of it.
    pub(super) fn way(&self, procedure: usize, from: usize, to: usize) -> Option<Vec<Vertex>> {
        let vertex = |step| Vertex { instance: 1, step: StepNumber { procedure, step } };
        let (start, goal) = (vertex(from), vertex(to));
        let mut came_from: BTreeMap<Vertex, Vertex> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(at) = queue.pop_front() {
            for next in self.neighbours(at, procedure) {
                let is_own = next.instance == 1 && next.step.procedure == procedure;
                if came_from.contains_key(&next) || (is_own && next != goal) {
                    continue;
                }
                came_from.insert(next, at);
                if next == goal {
                    let mut way = vec![goal];
                    while way[0] != start {
                        way.insert(0, came_from[&way[0]]);
                    }
                    return Some(way);
                }
                queue.push_back(next);
            }
        }
        None
    }

    fn neighbours(&self, at: Vertex, procedure: usize) -> Vec<Vertex> {
        let mut all = Vec::new();
        for &step in self.edges.get(&at.step).into_iter().flatten() {
            let is_same = step.procedure == at.step.procedure;
            let instances = (1..=2).filter(|&instance| !is_same || instance != at.instance);
            all.extend(instances.map(|instance| Vertex { instance, step }));
        }
        // The S-edges of all others: consecutive ones lead to all siblings.
        if at.instance != 1 || at.step.procedure != procedure {
            let own = at.step.procedure;
            let siblings = (0..self.outlines.procedures[own].steps.len()).filter(|&step| {
                let number = StepNumber { procedure: own, step };
                step != at.step.step && self.has_edges(number)
            });
            all.extend(siblings.map(|step| {
                let step = StepNumber { procedure: own, step };
                Vertex { instance: at.instance, step }
            }));
        }
        all
    }
}
