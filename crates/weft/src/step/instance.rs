//! Instances: the executions of a procedure's steps. A step in a loop has many.

use std::fmt;

/// The largest number of loops around a step.
pub const LOOPS_MAX: usize = 3;

/// The number of the present iteration of each loop around a step, from the outermost loop, counted from 1. It is 0
/// where there is no loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iteration([u32; LOOPS_MAX]);

impl Iteration {
    /// The iteration of a step outside all loops, or of an unknown one.
    pub const NONE: Iteration = Iteration([0; LOOPS_MAX]);

    /// Returns the iteration of the loops with a smaller depth than `depth`.
    #[inline(always)]
    pub fn outer(mut self, depth: usize) -> Iteration {
        self.0[depth..].fill(0);
        self
    }

    /// Returns the number of the iteration at a depth, which must be less than [`LOOPS_MAX`].
    pub fn at(self, depth: usize) -> u32 {
        self.0[depth]
    }

    #[inline(always)]
    pub fn set(&mut self, depth: usize, number: u32) {
        self.0[depth] = number;
        self.0[depth + 1..].fill(0);
    }
}

/// One execution of a step. A protocol notes it with every access, so that it knows where to begin again if the
/// access turns out to be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance {
    /// The step's number in the procedure's shape.
    pub step: usize,
    /// The iteration in which it runs.
    pub iteration: Iteration,
}

impl fmt::Display for Instance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.step)?;
        for number in self.iteration.0.iter().take_while(|&&number| number > 0) {
            write!(formatter, ".{number}")?;
        }
        Ok(())
    }
}
