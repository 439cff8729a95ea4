//! Exploration: all schedules of a small program, one after the other, within a bound on preemptions (Musuvathi
//! and Qadeer, *Iterative Context Bounding*, PLDI 2007).
//!
//! A *preemption* is a switch away from a core that could have gone on. Most bugs need one or two of them.
//! Switches at the end of a program, or when a core waits, are free. The schedules are the paths of a tree,
//! whose nodes are the points with more than one choice. The tree is walked depth first: each run repeats the
//! choices of the previous run up to the last node that is not exhausted.

use std::cell::RefCell;
use std::rc::Rc;

use crate::run::{Case, Failure, Options};
use crate::schedule::{Chooser, Point};

/// The result of an exploration.
#[derive(Debug)]
pub struct Exploration {
    /// How many runs were made.
    pub runs: u64,
    /// Whether these were all schedules within the bound.
    pub is_complete: bool,
    /// The failure of the last run, if it failed. [`Failure::trace`] repeats it.
    pub failure: Option<Failure>,
}

/// Runs a new case from `case` under one schedule after the other. Stops when a run fails, when all schedules
/// with at most `preemptions_max` preemptions have been run, or after `runs_max` runs. The schedule of
/// `options` is ignored.
///
/// # Panics
/// As for [`run`](crate::run::run).
pub fn explore<'a>(
    options: &Options,
    preemptions_max: u32,
    runs_max: u64,
    mut case: impl FnMut() -> Case<'a>,
) -> Exploration {
    let path: Rc<RefCell<Vec<Node>>> = Rc::default();
    let mut runs = 0;
    while runs < runs_max {
        let chooser =
            DepthFirst { path: Rc::clone(&path), depth: 0, preemptions_left: preemptions_max };
        runs += 1;
        if let Err(failure) = case().run_with(options, Some(Box::new(chooser))) {
            return Exploration { runs, is_complete: false, failure: Some(failure) };
        }
        // Go to the next path: the last node that has another choice takes it.
        let mut path = path.borrow_mut();
        while path.last().is_some_and(|node| node.choices.len() == 1) {
            path.pop();
        }
        match path.last_mut() {
            Some(node) => _ = node.choices.remove(0),
            None => return Exploration { runs, is_complete: true, failure: None },
        }
    }
    Exploration { runs, is_complete: false, failure: None }
}

/// A point with a choice, on the path of the current run.
struct Node {
    /// The cores still to be tried here, the current choice first.
    choices: Vec<usize>,
}

struct DepthFirst {
    path: Rc<RefCell<Vec<Node>>>,
    /// How many nodes of the path this run has passed.
    depth: usize,
    preemptions_left: u32,
}

impl Chooser for DepthFirst {
    fn choose(&mut self, point: Point) -> usize {
        let default = point.default();
        let may_switch = !point.current_may_go_on() || self.preemptions_left > 0;
        if point.candidates.count_ones() == 1 || point.is_stalled || !may_switch {
            return default;
        }
        let mut path = self.path.borrow_mut();
        if self.depth == path.len() {
            let is_other = |core: &usize| point.candidates & 1 << core != 0 && *core != default;
            let others = (0..128).filter(is_other);
            path.push(Node { choices: std::iter::once(default).chain(others).collect() });
        }
        let chosen = path[self.depth].choices[0];
        self.depth += 1;
        if point.current_may_go_on() && chosen != point.current {
            self.preemptions_left -= 1;
        }
        chosen
    }
}
