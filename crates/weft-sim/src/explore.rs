//! All schedules of a small program, one after the other, as far as a bound on preemptions allows
//! (Musuvathi and Qadeer, *Iterative Context Bounding*, PLDI 2007).
//!
//! A *preemption* is a switch away from a core that could have gone on. Most bugs need one or two of
//! them; switches at the end of a program, or when a core waits, are free. The schedules are the paths
//! of a tree, whose nodes are the points with more than one choice; it is walked depth first, and each
//! run repeats the choices of the one before up to the last that is not exhausted.

use std::cell::RefCell;
use std::rc::Rc;

use crate::run::{Case, Failure, Options};
use crate::schedule::{Chooser, Point};

/// What an exploration has come to.
#[derive(Debug)]
pub struct Exploration {
    /// How many runs there were.
    pub runs: u64,
    /// Whether these were all schedules within the bound.
    pub is_complete: bool,
    /// The first run that failed, which was the last one. [`Failure::trace`] repeats it.
    pub failure: Option<Failure>,
}

/// Runs the case that `case` makes, always anew, under one schedule after the other, until one fails, all
/// have been run that have at most `preemptions_max` preemptions, or `runs_max` have been run. The
/// schedule of `options` does not matter.
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
        // To the next path: the last node that has another choice takes it.
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

/// A point with a choice, on the path of the present run.
struct Node {
    /// The cores that are still to go on here, the present one first.
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
