//! Schedules: which core runs next.
//!
//! Programs run on virtual cores that are coroutines of one host thread. So exactly one of them runs at any
//! time, and it yields only at *points*: before each access to a shared word, and when it waits. A [`Schedule`]
//! decides which core runs on from each point.
//!
//! - [`Schedule::Time`]: the core whose virtual clock is behind all others. This is the schedule of
//!   measurements: accesses take effect in the order of virtual time.
//! - [`Schedule::Random`]: on average at one point in `switch_one_in`, a random core.
//! - [`Schedule::Priorities`]: PCT (Burckhardt et al., *A Randomized Scheduler with Probabilistic Guarantees of
//!   Finding Bugs*, ASPLOS 2010). Cores have random priorities, and the core with the highest one runs. At
//!   *depth* − 1 random points the running core falls behind all others. A bug that needs *d* particular
//!   orderings in a run of *n* points by *k* cores is found with a probability of at least 1 / (k · n^(d−1)).
//! - [`Schedule::Replay`]: as recorded in the [`Trace`] of an earlier run.
//!
//! [`explore`](crate::explore::explore) has one more: all schedules with a bounded number of preemptions, one
//! after the other.
//!
//! Under all schedules but the first, the clocks mean little. A core that waits (in a spin loop, or by yielding
//! its time slice) lets the cores that do not wait run, until one of them has changed a word.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

/// How virtual cores take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The core that is behind all others in virtual time.
    Time,
    /// At one point in `switch_one_in`, on average, a core drawn at random.
    Random {
        /// One point in this many, at least 1.
        switch_one_in: u32,
    },
    /// The core with the highest priority.
    Priorities {
        /// One more than the number of points at which a priority falls, at least 1.
        depth: u32,
        /// How many points the run is expected to have. The points where priorities fall are drawn from these.
        points: u64,
    },
    /// The switches of an earlier run. When the trace ends, the current core goes on as long as it can.
    Replay(Trace),
}

/// The points where a run switched from one core to another: enough to repeat it.
///
/// As text, it has one line each for the format, the number of cores, and every switch (the number of the
/// point, and the core that went on):
///
/// ```text
/// weft-sim schedule 1
/// cores 2
/// 0 0
/// 17 1
/// 42 0
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Number of cores.
    pub cores: usize,
    /// The switches in order: the number of the point, and the core that went on there instead of the current
    /// one.
    pub switches: Vec<(u64, usize)>,
}

const HEADER: &str = "weft-sim schedule 1";

impl fmt::Display for Trace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{HEADER}\ncores {}", self.cores)?;
        self.switches.iter().try_for_each(|(point, core)| writeln!(out, "{point} {core}"))
    }
}

/// The error for a text that is not a [`Trace`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the schedule: expected {expected}")]
pub struct InvalidTrace {
    /// The line, from 1.
    pub line: usize,
    /// What should be in the line.
    pub expected: &'static str,
}

impl FromStr for Trace {
    type Err = InvalidTrace;

    fn from_str(text: &str) -> Result<Trace, InvalidTrace> {
        let mut lines = text.lines();
        let invalid = |line, expected| InvalidTrace { line, expected };
        if lines.next() != Some(HEADER) {
            return Err(invalid(1, HEADER));
        }
        let cores = lines.next().and_then(|line| line.strip_prefix("cores ")?.parse().ok());
        let cores = cores.ok_or(invalid(2, "cores, and how many"))?;
        let mut switches: Vec<(u64, usize)> = Vec::new();
        for (position, line) in lines.enumerate() {
            let expected = "the number of a point, greater than the one before, and a core";
            let parts = line.split_once(' ');
            let switch = parts.and_then(|(at, core)| Some((at.parse().ok()?, core.parse().ok()?)));
            match switch {
                Some((point, core))
                    if core < cores && switches.last().is_none_or(|last| last.0 < point) =>
                {
                    switches.push((point, core));
                }
                _ => return Err(invalid(position + 3, expected)),
            }
        }
        Ok(Trace { cores, switches })
    }
}

/// The input for the choice at a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// How many points came before.
    pub(crate) number: u64,
    /// The core that has reached this point.
    pub(crate) current: usize,
    /// The cores that can go on, one bit each. The current core is not among them if it has ended, or if it
    /// waits and another core can go on.
    pub(crate) candidates: u128,
    /// Whether the current core waits.
    pub(crate) waits: bool,
    /// Whether all cores wait, so that they go on in turn.
    pub(crate) is_stalled: bool,
}

impl Point {
    /// The point before the first access.
    pub(crate) const START: Point =
        Point { number: 0, current: 0, candidates: 0, waits: false, is_stalled: false };

    /// Returns whether the current core is one of those that can go on.
    pub(crate) fn current_may_go_on(&self) -> bool {
        self.candidates & 1 << self.current != 0
    }

    /// Returns the core that goes on by default: the current one if it can, otherwise the next.
    pub(crate) fn default(&self) -> usize {
        if self.current_may_go_on() {
            return self.current;
        }
        let behind = self.candidates & (u128::MAX << self.current);
        let from = if behind != 0 { behind } else { self.candidates };
        from.trailing_zeros() as usize
    }
}

/// Chooses which core goes on, point by point.
pub(crate) trait Chooser {
    /// Returns the core that goes on, one of the candidates.
    fn choose(&mut self, point: Point) -> usize;
}

/// Returns the `position`-th member of a set.
fn member(set: u128, position: u32) -> usize {
    let rest = (0..position).fold(set, |rest, _| rest & (rest - 1));
    rest.trailing_zeros() as usize
}

pub(crate) struct AtRandom {
    random: Rng,
    switch_one_in: u32,
}

impl AtRandom {
    pub(crate) fn new(seed: u64, switch_one_in: u32) -> AtRandom {
        AtRandom { random: Rng::with_seed(seed), switch_one_in: switch_one_in.max(1) }
    }
}

impl Chooser for AtRandom {
    fn choose(&mut self, point: Point) -> usize {
        if point.current_may_go_on() && self.random.u32(0..self.switch_one_in) != 0 {
            return point.current;
        }
        member(point.candidates, self.random.u32(0..point.candidates.count_ones()))
    }
}

pub(crate) struct ByPriority {
    /// The cores, the one with the highest priority first.
    order: Vec<usize>,
    /// The points at which a priority falls, the next one last.
    falls: Vec<u64>,
}

impl ByPriority {
    pub(crate) fn new(seed: u64, cores: usize, depth: u32, points: u64) -> ByPriority {
        let mut random = Rng::with_seed(seed);
        let mut order: Vec<usize> = (0..cores).collect();
        random.shuffle(&mut order);
        let mut falls: Vec<u64> = (1..depth).map(|_| random.u64(0..points.max(1))).collect();
        falls.sort_unstable_by(|one, other| other.cmp(one));
        ByPriority { order, falls }
    }

    fn put_last(&mut self, core: usize) {
        self.order.retain(|&other| other != core);
        self.order.push(core);
    }
}

impl Chooser for ByPriority {
    fn choose(&mut self, point: Point) -> usize {
        // PCT's change points: the running core falls behind all others.
        while self.falls.last().is_some_and(|&fall| fall <= point.number) {
            self.falls.pop();
            self.put_last(point.current);
        }
        if point.waits {
            self.put_last(point.current);
        }
        let may_go_on = |core: &&usize| point.candidates & 1 << **core != 0;
        *self.order.iter().find(may_go_on).expect("at least one core can go on")
    }
}

pub(crate) struct Replayed {
    switches: std::iter::Peekable<std::vec::IntoIter<(u64, usize)>>,
}

impl Replayed {
    pub(crate) fn new(trace: Trace) -> Replayed {
        Replayed { switches: trace.switches.into_iter().peekable() }
    }
}

impl Chooser for Replayed {
    fn choose(&mut self, point: Point) -> usize {
        match self.switches.next_if(|switch| switch.0 <= point.number) {
            // A program other than that of the trace may not have that core at this point.
            Some((_, core)) if point.candidates & 1 << core != 0 => core,
            _ => point.default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the text format: a written trace is read back, and a text that is not a schedule is refused,
    /// with its line.
    #[test]
    fn traces_go_through_their_text() {
        let trace = Trace { cores: 3, switches: vec![(0, 1), (17, 2), (40, 0)] };
        assert_eq!(trace.to_string().parse(), Ok(trace));
        for (text, line) in [
            ("", 1),
            ("weft-sim schedule 2\ncores 1\n", 1),
            ("weft-sim schedule 1\n", 2),
            ("weft-sim schedule 1\ncores x\n", 2),
            ("weft-sim schedule 1\ncores 2\n0\n", 3),
            ("weft-sim schedule 1\ncores 2\n0 2\n", 3),
            ("weft-sim schedule 1\ncores 2\n5 0\n5 1\n", 4),
        ] {
            assert_eq!(text.parse::<Trace>().unwrap_err().line, line, "{text:?}");
        }
    }

    /// Protects the default: the current core goes on if it can, otherwise the next one, cyclically.
    #[test]
    fn the_default_is_the_current_core_or_the_next() {
        let point = |current, candidates| Point { current, candidates, ..Point::START };
        assert_eq!(point(1, 0b111).default(), 1);
        assert_eq!(point(1, 0b101).default(), 2);
        assert_eq!(point(2, 0b011).default(), 0);
    }
}
