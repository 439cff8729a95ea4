//! The chopping graph: the steps of two instances of each procedure, with S-edges and C-edges.
//!
//! An SC-cycle is a cycle with at least one edge of each kind. Two steps `a` and `b` of an instance are on one
//! exactly if there is a path from `a` to `b` that passes through no other step of this instance: the path
//! begins with a C-edge, and the S-edge between `a` and `b` closes the cycle. Whether there is such a path does
//! not depend on how *other* instances are chopped: within each of them every step can reach every other, by
//! S-edges or within one piece. It does not depend on how this instance is chopped either. So the relation *on
//! a cycle with* is known from the start, and merging steps makes no new cycles. That is why one pass reaches
//! the fixpoint, why the result does not depend on the order of merges, and why no merge is unnecessary (Shasha
//! and others, 1995, Theorem on the finest chopping).

use std::collections::{BTreeMap, VecDeque};

use super::outline::Outlines;
use super::result::{Conflict, Standing, StepNumber, Vertex};

/// The chopping graph.
pub(super) struct Graph<'a> {
    outlines: &'a Outlines,
    /// For each step the steps to which it has C-edges.
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

    /// Returns the shortest path between two steps of a procedure's first instance that passes through no other
    /// step of that instance.
    pub(super) fn way(&self, procedure: usize, from: usize, to: usize) -> Option<Vec<Vertex>> {
        let vertex = |step| Vertex { instance: 1, step: StepNumber { procedure, step } };
        let (start, goal) = (vertex(from), vertex(to));
        // A breadth-first search.
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
        // The S-edges of all other instances. Consecutive S-edges lead to every sibling.
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
