//! How the threads of a check run: interleaved by a seed, one at a time, or free.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{scope, yield_now};

use fastrand::Rng;
use weft_htm::interleave::{self, Options, Strategy};

use crate::subject::Stop;
use crate::verdict::Finding;

/// How threads run.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// One at a time, switched at shared accesses as the seed says; the same seed is the same run.
    Interleaved(u64),
    /// Likewise, but switched at random only, so that every thread gets on: for threads that go on
    /// until another has done something.
    Fair(u64),
    /// As the machine lets them, with inputs from a seed.
    Free(u64),
}

impl Mode {
    /// The seed.
    pub fn seed(self) -> u64 {
        match self {
            Mode::Interleaved(seed) | Mode::Fair(seed) | Mode::Free(seed) => seed,
        }
    }

    /// The generator of one thread.
    pub fn random(self, thread: usize) -> Rng {
        Rng::with_seed(self.seed().wrapping_add((thread as u64) << 48))
    }

    /// Runs `body` on so many threads at once; each runs about so many transactions.
    ///
    /// # Errors
    /// What a body finds; and a panic, of a body or because all wait for each other for ever.
    pub fn on_threads<R: Send>(
        self,
        check: &'static str,
        threads: usize,
        transactions: usize,
        body: impl Fn(usize, &mut Rng) -> Result<R, Finding> + Sync,
    ) -> Result<Vec<R>, Finding> {
        let body = &body;
        let bodies = (0..threads).map(|thread| move || body(thread, &mut self.random(thread)));
        let interleaved = |strategy| Options {
            strategy,
            // A transaction of this crate comes to about a hundred shared accesses.
            points_expected: 100 * (threads * transactions) as u64,
            points_max: 20_000_000,
            waits_max: 100_000,
            ..Options::default()
        };
        let run = || match self {
            Mode::Interleaved(seed) => {
                let options = interleaved(Strategy::FromSeed);
                interleave::run(seed, &options, bodies.collect()).results
            }
            Mode::Fair(seed) => {
                let options = interleaved(Strategy::Random { one_in: 16 });
                interleave::run(seed, &options, bodies.collect()).results
            }
            Mode::Free(_) => scope(|scope| {
                let running: Vec<_> = bodies.map(|body| scope.spawn(body)).collect();
                let ended = running.into_iter().map(|thread| thread.join());
                ended
                    .map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                    .collect()
            }),
        };
        let results: Result<Vec<R>, Finding> = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(results) => results.into_iter().collect(),
            Err(panic) => Err(Finding::new(check, "a panic", message(&*panic))),
        };
        results.map_err(|finding| self.found(finding))
    }

    /// Notes the seed.
    pub fn found(self, finding: Finding) -> Finding {
        Finding { seed: Some(self.seed()), ..finding }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Now and then lets another thread run, in the middle of a transaction of a free run. (An
/// interleaved one is switched anyway.)
pub fn chaos(random: &mut Rng) {
    if !interleave::is_running() && random.u8(..4) == 0 {
        yield_now();
    }
}

/// What a transaction's end means to a check: a rollback of its own is none of its concerns.
///
/// # Errors
/// Everything else.
pub fn expect_end(check: &'static str, end: Result<(), Stop>) -> Result<(), Finding> {
    match end {
        Ok(()) | Err(Stop::RollBack) => Ok(()),
        Err(Stop::Broken(what)) => Err(Finding::new(check, "broken invariant", what)),
        Err(Stop::Engine(error)) => Err(Finding::new(check, "an error", error.to_string())),
    }
}

/// How many times as much work as usual: `WEFT_STRESS`, 1 by default.
///
/// # Panics
/// If it is no number.
pub fn stress() -> u64 {
    let given = std::env::var("WEFT_STRESS").ok();
    given.map_or(1, |factor| factor.parse().expect("WEFT_STRESS is a number"))
}
