//! The real machine: threads of the operating system, interleaved by `weft_htm::interleave`.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::scope;

use weft::htm::{Choice, RetryPolicy};
use weft_htm::interleave::{self, Options, Strategy};

pub use weft_htm::seeds::for_each_seed;

use crate::threads::Mode;

/// One of this many seeds that a test asks for is run. `.ci/deep conformance` runs five times as many as
/// a test asks for, with `WEFT_STRESS=100`.
pub(crate) const SEEDS_PER_RUN: u64 = 20;

/// A free run has the number of transactions that a test asks for, divided by this.
pub(crate) const FREE_RUN_DIVISOR: usize = 4;

/// There are so many times as many free runs as other runs, where there is more than one: as many transactions as if each
/// were not divided.
pub(crate) const FREE_RUNS: u64 = FREE_RUN_DIVISOR as u64;

/// The ways in which databases run their regions, with names. There are only software twins here: regions of a
/// processor would abort at every switch to another thread.
pub(crate) const REGIONS: &[(&str, Choice, RetryPolicy)] =
    &[("", Choice::Software, RetryPolicy { conflict: 0, capacity: 0, system_event: 0 })];

/// How a run was interleaved. It is empty, because the seed determines it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule;

impl fmt::Display for Schedule {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Runs each body on a thread of its own. An error is the message of a panic.
pub(crate) fn run<R: Send, B: FnOnce() -> R + Send>(
    mode: Mode,
    points_expected: u64,
    bodies: Vec<B>,
) -> (Result<Vec<R>, String>, Schedule) {
    let interleaved = |strategy| Options {
        strategy,
        points_expected,
        points_max: 20_000_000,
        waits_max: 100_000,
        ..Options::default()
    };
    let run = || match mode {
        Mode::Interleaved(seed) => {
            interleave::run(seed, &interleaved(Strategy::FromSeed), bodies).results
        }
        Mode::Fair(seed) => {
            interleave::run(seed, &interleaved(Strategy::Random { one_in: 16 }), bodies).results
        }
        Mode::Free(_) => scope(|scope| {
            let running: Vec<_> = bodies.into_iter().map(|body| scope.spawn(body)).collect();
            let ended = running.into_iter().map(|thread| thread.join());
            ended.map(|end| end.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        }),
    };
    let results = catch_unwind(AssertUnwindSafe(run)).map_err(|panic| message(&*panic));
    (results, Schedule)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Returns whether threads seldom switch, so that extra yields help.
pub(crate) fn runs_free() -> bool {
    !interleave::is_running()
}
