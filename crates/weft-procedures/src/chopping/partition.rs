//! The partition of a procedure's steps into pieces: an equivalence relation that grows by merges.

use std::collections::{BTreeSet, VecDeque};

use super::order::Before;

/// The steps of a procedure in groups, and the order constraints between them.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    /// For each step the number of its group, which is the number of the group's first step.
    groups: Vec<usize>,
    constraints: Vec<Before>,
}

impl Partition {
    /// Starts with each step as a group of its own.
    pub(super) fn new(steps: usize, constraints: Vec<Before>) -> Partition {
        Partition { groups: (0..steps).collect(), constraints }
    }

    pub(super) fn group(&self, step: usize) -> usize {
        self.groups[step]
    }

    /// Merges the groups of two steps. Returns whether they were different groups.
    pub(super) fn merge(&mut self, one: usize, other: usize) -> bool {
        let (one, other) = (self.groups[one], self.groups[other]);
        let (first, last) = (one.min(other), one.max(other));
        self.groups.iter_mut().filter(|group| **group == last).for_each(|group| *group = first);
        first != last
    }

    /// Returns the numbers of the groups.
    pub(super) fn numbers(&self) -> BTreeSet<usize> {
        self.groups.iter().copied().collect()
    }

    /// Returns the constraints between different groups.
    fn between(&self) -> impl Iterator<Item = Before> {
        let differ = |before: &&Before| self.group(before.first) != self.group(before.then);
        self.constraints.iter().filter(differ).copied()
    }

    /// Returns a constraint by which another group has to come before this one.
    pub(super) fn before(&self, group: usize) -> Option<Before> {
        self.between().find(|before| self.group(before.then) == group)
    }

    /// Returns the shortest circle of constraints by which a group has to come before itself, if there is one.
    pub(super) fn circle(&self) -> Option<Vec<Before>> {
        let from = |group: usize| self.way_around(group);
        self.numbers().into_iter().filter_map(from).min_by_key(Vec::len)
    }

    fn way_around(&self, start: usize) -> Option<Vec<Before>> {
        // A breadth-first search, so the first way that is found is the shortest.
        let mut came_by: Vec<Option<Before>> = vec![None; self.groups.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(group) = queue.pop_front() {
            for before in self.between().filter(|before| self.group(before.first) == group) {
                let next = self.group(before.then);
                if came_by[next].is_some() {
                    continue;
                }
                came_by[next] = Some(before);
                if next != start {
                    queue.push_back(next);
                    continue;
                }
                let mut way = vec![before];
                while self.group(way[0].first) != start {
                    let earlier = came_by[self.group(way[0].first)];
                    way.insert(0, earlier.expect("it was come by"));
                }
                return Some(way);
            }
        }
        None
    }

    /// Returns the groups in an order in which they can run: `first` at the beginning, if it is given, and
    /// otherwise as written, as far as possible. The steps of each group are in an order in which they can run.
    ///
    /// # Panics
    /// If a group has to come before itself, or another before `first`.
    pub(super) fn in_order(&self, first: Option<usize>) -> Vec<Vec<usize>> {
        let mut left = self.numbers();
        let mut pieces = Vec::new();
        while !left.is_empty() {
            let is_next = |group: usize| {
                self.between().all(|before| {
                    self.group(before.then) != group || !left.contains(&self.group(before.first))
                })
            };
            let begins = first.filter(|group| left.contains(group));
            let next = begins.or_else(|| left.iter().copied().find(|&group| is_next(group)));
            let next = next.filter(|&group| is_next(group)).expect("there is no circle");
            left.remove(&next);
            pieces.push((0..self.groups.len()).filter(|&step| self.group(step) == next).collect());
        }
        pieces
    }
}
