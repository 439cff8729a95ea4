//! Threads of a check: interleaved by a seed, one at a time, or free, on either machine.

use fastrand::Rng;

pub use crate::machine::for_each_seed;
use crate::machine::{self, Schedule};
use crate::subject::Stop;
use crate::verdict::Finding;

/// How threads run.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// One at a time, switched at shared accesses as the seed decides. The same seed is the same run.
    Interleaved(u64),
    /// Also interleaved, but switched only at random, so that every thread makes progress. For threads that go
    /// on until another has done something.
    Fair(u64),
    /// Free, with inputs from a seed. (The simulated machine runs them by virtual time, and so always in the
    /// same way.)
    Free(u64),
}

impl Mode {
    /// Returns the seed.
    pub fn seed(self) -> u64 {
        match self {
            Mode::Interleaved(seed) | Mode::Fair(seed) | Mode::Free(seed) => seed,
        }
    }

    /// Returns the random numbers of one thread.
    pub fn random(self, thread: usize) -> Rng {
        Rng::with_seed(self.seed().wrapping_add((thread as u64) << 48))
    }

    /// Runs `body` on `threads` threads at a time. Each runs about `transactions` transactions.
    ///
    /// # Errors
    /// The finding of a body; or a panic, of a body or because all threads wait for each other for ever.
    pub fn on_threads<R: Send>(
        self,
        check: &'static str,
        threads: usize,
        transactions: usize,
        body: impl Fn(usize, &mut Rng) -> Result<R, Finding> + Sync,
    ) -> Result<RunResult<R>, Finding> {
        let body = &body;
        let bodies = (0..threads).map(|thread| move || body(thread, &mut self.random(thread)));
        // A transaction of this crate makes about a hundred shared accesses.
        let points_expected = 100 * (threads * transactions) as u64;
        let (results, schedule) = machine::run(self, points_expected, bodies.collect());
        let results = match results {
            Ok(results) => results.into_iter().collect(),
            Err(message) => Err(Finding::new(check, "a panic", message)),
        };
        let mut ran = RunResult { results: Vec::new(), seed: self.seed(), schedule };
        ran.results = results.map_err(|finding| ran.found(finding))?;
        Ok(ran)
    }
}

/// The results of a run.
#[derive(Debug)]
pub struct RunResult<R> {
    /// What the threads returned, in their order.
    pub results: Vec<R>,
    seed: u64,
    schedule: Schedule,
}

impl<R> RunResult<R> {
    /// Adds to a finding how to repeat the run.
    pub fn found(&self, finding: Finding) -> Finding {
        Finding { seed: Some(self.seed), schedule: self.schedule.to_string(), ..finding }
    }
}

/// Yields to other threads now and then, in the middle of a transaction of a free run. (An interleaved run
/// switches anyway.)
pub fn chaos(random: &mut Rng) {
    if machine::runs_free() && random.u8(..4) == 0 {
        std::thread::yield_now();
    }
}

/// Returns the finding that a transaction's end means. A rollback that the body asked for is not one.
///
/// # Errors
/// A finding for every other error.
pub fn expect_end(check: &'static str, end: Result<(), Stop>) -> Result<(), Finding> {
    match end {
        Ok(()) | Err(Stop::RollBack) => Ok(()),
        Err(Stop::Broken(what)) => Err(Finding::new(check, "broken invariant", what)),
        Err(Stop::Engine(error)) => Err(Finding::new(check, "an error", error.to_string())),
    }
}

/// Returns how many seeds to run if `usual` are usual: `WEFT_STRESS` times as many, and only a part of them on
/// a machine on which runs take long.
///
/// # Panics
/// If the variable is not a number.
pub fn seeds(usual: u64) -> u64 {
    (usual * stress()).div_ceil(machine::SEEDS_PER_RUN)
}

/// As [`seeds`], for free runs.
///
/// # Panics
/// If the variable is not a number.
pub fn free_seeds(usual: u64) -> u64 {
    (usual * machine::FREE_RUNS * stress()).div_ceil(machine::SEEDS_PER_RUN)
}

/// Returns the variable `WEFT_STRESS`, or 1 if it is not set.
///
/// # Panics
/// If it is not a number.
pub fn stress() -> u64 {
    let given = std::env::var("WEFT_STRESS").ok();
    given.map_or(1, |factor| factor.parse().expect("WEFT_STRESS is a number"))
}

/// Returns how many transactions each thread of a free run makes if `usual` are usual.
pub const fn free_transactions(usual: usize) -> usize {
    usual / machine::FREE_RUN_DIVISOR
}
