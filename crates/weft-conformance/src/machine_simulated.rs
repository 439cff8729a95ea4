//! The interface of `machine.rs` on the simulated machine: threads are virtual cores of `weft-sim`.
//!
//! [`Mode::Interleaved`] is a random schedule or one by priorities (PCT). [`Mode::Free`] is virtual time.
//! Regions are those of the machine, beside their twins. Some databases give up each region at its first abort,
//! so that twins run wherever regions do.

use std::cell::Cell;
use std::fmt;

use fastrand::Rng;
use weft::htm::simulation::{
    Failure, Options, Profile, Program, Schedule as Turns, Trace, run as simulate,
};
use weft::htm::{Choice, RetryPolicy};

pub use weft_htm::seeds::for_each_seed;

use crate::threads::Mode;

/// How a run was interleaved; `None` if it was by virtual time.
#[derive(Clone, Debug)]
pub(crate) struct Schedule(Option<Trace>);

impl fmt::Display for Schedule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |trace| trace.fmt(out))
    }
}

/// One of this many seeds that a test asks for is run, because there are three subjects for each protocol.
pub(crate) const SEEDS_PER_RUN: u64 = 8;

/// A free run has the number of transactions that a test asks for, divided by this. The machine charges every
/// access, and the same inputs give the same run. A region that is a whole transaction is retried until it fits
/// between the others'.
pub(crate) const FREE_RUN_DIVISOR: usize = 20;

/// There are so many times as many free runs as other runs.
pub(crate) const FREE_RUNS: u64 = 1;

/// The ways in which databases run their regions, with names.
pub(crate) const REGIONS: &[(&str, Choice, RetryPolicy)] = &[
    ("regions", Choice::Auto, RetryPolicy::DEFAULT),
    ("impatient", Choice::Auto, RetryPolicy { conflict: 1, capacity: 1, system_event: 1 }),
    ("twins", Choice::Software, RetryPolicy { conflict: 0, capacity: 0, system_event: 0 }),
];

/// The papers' processor.
const PROFILE: &str = "haswell-4c8t";

/// The environment variable that names a file with a schedule to repeat.
const SCHEDULE_VARIABLE: &str = "WEFT_SCHEDULE";

/// Returns the schedule of a run.
fn turns(mode: Mode, points: u64) -> Turns {
    if let Ok(path) = std::env::var(SCHEDULE_VARIABLE)
        && !matches!(mode, Mode::Free(_))
    {
        let text = std::fs::read_to_string(&path).expect("WEFT_SCHEDULE names a file");
        return Turns::Replay(text.parse::<Trace>().expect("it holds a schedule"));
    }
    match mode {
        Mode::Interleaved(seed) => {
            let mut random = Rng::with_seed(seed);
            match random.bool() {
                true => Turns::Random { switch_one_in: [1, 4, 16, 64][random.usize(..4)] },
                false => Turns::Priorities { depth: random.u32(2..6), points },
            }
        }
        Mode::Fair(_) => Turns::Random { switch_one_in: 16 },
        Mode::Free(_) => Turns::Time,
    }
}

/// Runs each body on a virtual core of its own. An error says why the run did not end well.
pub(crate) fn run<R, B: FnOnce() -> R>(
    mode: Mode,
    points_expected: u64,
    bodies: Vec<B>,
) -> (Result<Vec<R>, String>, Schedule) {
    let profile = Profile::named(PROFILE).expect("the machine has a profile");
    let options = Options {
        waits_max: 400_000,
        points_max: 40_000_000,
        ..Options::new(profile, mode.seed()).schedule(turns(mode, points_expected))
    };
    let results: Vec<Cell<Option<R>>> = bodies.iter().map(|_| Cell::new(None)).collect();
    let programs = bodies.into_iter().zip(&results);
    let programs = programs
        .map(|(body, result)| -> Program<'_> { Box::new(move || result.set(Some(body()))) });
    let schedule = |trace| Schedule((!matches!(mode, Mode::Free(_))).then_some(trace));
    match simulate(&options, programs.collect()) {
        Ok(report) => {
            let results = results.into_iter().map(|result| result.into_inner());
            (
                Ok(results.map(|result| result.expect("its program has ended")).collect()),
                schedule(report.trace),
            )
        }
        Err(failure) => (Err(message(&failure)), schedule(failure.trace().clone())),
    }
}

/// Returns what went wrong, without the schedule.
fn message(failure: &Failure) -> String {
    match failure {
        Failure::Panicked { core, message, .. } => format!("core {core}: {message}"),
        Failure::Deadlock { waiting, .. } => format!("the cores {waiting:?} wait for ever"),
        Failure::Endless { points, .. } => format!("no end after {points} points"),
        Failure::Wrong { message, .. } => message.clone(),
    }
}

/// Returns `false`: the schedule switches cores anyway.
pub(crate) fn runs_free() -> bool {
    false
}
