//! Who runs next.
//!
//! Programs run on virtual cores that are coroutines of one host thread, so exactly one of them runs at
//! any time, and it gives way only at *points*: before each access of a shared word, and when it waits.
//! A [`Schedule`] says who goes on at each of them.
//!
//! - [`Schedule::Time`]: the core whose virtual clock is behind all others. This is the schedule of
//!   measurements: accesses take effect in the order of virtual time.
//! - [`Schedule::Random`]: at a point in so many, anybody.
//! - [`Schedule::Priorities`]: PCT (Burckhardt et al., *A Randomized Scheduler with Probabilistic
//!   Guarantees of Finding Bugs*, ASPLOS 2010). Cores have random priorities, the highest runs, and at
//!   *depth* − 1 random points the one that runs falls behind all others. A bug that needs *d*
//!   particular orderings in a run of *n* points by *k* cores is found with a probability of at least
//!   1 / (k · n^(d−1)).
//! - [`Schedule::Replay`]: as a [`Trace`] says that an earlier run went.
//!
//! [`explore`](crate::explore::explore) has one more: all schedules with so many preemptions, one
//! after the other.
//!
//! Under all but the first, the clocks mean little. A core that waits (a spin loop, a time slice given
//! away) gives way to those that do not, until one of them has changed a word.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

/// How virtual cores take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The core that is behind in virtual time.
    Time,
    /// At one point in `switch_one_in`, on average, a core drawn at random.
    Random {
        /// One in so many points, at least 1.
        switch_one_in: u32,
    },
    /// The core with the highest priority.
    Priorities {
        /// One more than the number of points at which a priority falls, at least 1.
        depth: u32,
        /// How many points the run is expected to have; those where priorities fall are drawn from
        /// so many.
        points: u64,
    },
    /// As it was. When the trace ends, the core that runs goes on as long as it can.
    Replay(Trace),
}

/// Where a run switched from one core to another: enough to repeat it.
///
/// As text, a line each for the format, the number of cores, and every switch (the number of the
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
    /// The points at which a core went on that had not run before, in order, and that core.
    pub switches: Vec<(u64, usize)>,
}

const HEADER: &str = "weft-sim schedule 1";

impl fmt::Display for Trace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{HEADER}\ncores {}", self.cores)?;
        self.switches.iter().try_for_each(|(point, core)| writeln!(out, "{point} {core}"))
    }
}

/// A text is no [`Trace`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the schedule: expected {expected}")]
pub struct InvalidTrace {
    /// The line, from 1.
    pub line: usize,
    /// What should stand there.
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

/// What the choice at a point is between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// How many points came before.
    pub(crate) number: u64,
    /// The core that has come to this point.
    pub(crate) current: usize,
    /// The cores that can go on, a bit each; not the current one, if it waits or has ended and
    /// somebody else can.
    pub(crate) candidates: u128,
    /// Whether the current core waits.
    pub(crate) waits: bool,
    /// Whether all wait, so that they go on in turn.
    pub(crate) is_stalled: bool,
}

impl Point {
    /// The point before anything.
    pub(crate) const START: Point =
        Point { number: 0, current: 0, candidates: 0, waits: false, is_stalled: false };

    /// Whether the current core is one of those that can go on.
    pub(crate) fn current_may_go_on(&self) -> bool {
        self.candidates & 1 << self.current != 0
    }

    /// The core that goes on where nothing else is asked for: the current one, or else the next.
    pub(crate) fn default(&self) -> usize {
        if self.current_may_go_on() {
            return self.current;
        }
        let behind = self.candidates & (u128::MAX << self.current);
        let from = if behind != 0 { behind } else { self.candidates };
        from.trailing_zeros() as usize
    }
}

/// Chooses, point by point.
pub(crate) trait Chooser {
    /// The core that goes on, one of the candidates.
    fn choose(&mut self, point: Point) -> usize;
}

/// The `position`-th member of a set.
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
    /// The points at which a priority falls, the last one first.
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
        while self.falls.last().is_some_and(|&fall| fall <= point.number) {
            self.falls.pop();
            self.put_last(point.current);
        }
        if point.waits {
            self.put_last(point.current);
        }
        let may_go_on = |core: &&usize| point.candidates & 1 << **core != 0;
        *self.order.iter().find(may_go_on).expect("somebody can go on")
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
            // Another program than the one of the trace may not have that core at this point.
            Some((_, core)) if point.candidates & 1 << core != 0 => core,
            _ => point.default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the file: what is written is read again, and what is not a schedule is refused, with
    /// the line.
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

    /// Protects the default: who runs goes on, and else the next, round and round.
    #[test]
    fn the_default_is_the_current_core_or_the_next() {
        let point = |current, candidates| Point { current, candidates, ..Point::START };
        assert_eq!(point(1, 0b111).default(), 1);
        assert_eq!(point(1, 0b101).default(), 2);
        assert_eq!(point(2, 0b011).default(), 0);
    }
}
