//! Instances of steps: which of a loop's many.

use std::fmt;

/// The most loops around a step.
pub const LOOPS_MAX: usize = 3;

/// Which iteration of each loop around a step, from the outermost, counted from 1; 0 where there is no
/// loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iteration([u32; LOOPS_MAX]);

impl Iteration {
    /// Of no loop, or of none that is known.
    pub const NONE: Iteration = Iteration([0; LOOPS_MAX]);

    /// Of the loops with a lesser depth.
    #[inline(always)]
    pub fn outer(mut self, depth: usize) -> Iteration {
        self.0[depth..].fill(0);
        self
    }

    /// Of the loop at a depth, which is below [`LOOPS_MAX`].
    pub fn at(self, depth: usize) -> u32 {
        self.0[depth]
    }

    #[inline(always)]
    pub fn set(&mut self, depth: usize, number: u32) {
        self.0[depth] = number;
        self.0[depth + 1..].fill(0);
    }
}

/// One execution of a step: what a protocol notes with every access, so that it knows where to begin if that
/// turns out to be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance {
    /// The step's number in the procedure's shape.
    pub step: usize,
    /// The iteration.
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
