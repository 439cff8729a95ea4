//! Helpers for the engine's tests: every protocol, seeds that repeat a run, threads, and the amount of work.
//!
//! The tests themselves are in `tests/`. They are a package of their own, so that they can be compiled without
//! optimisation, which takes a tenth of the time, while the engine's unit tests are optimised.

mod barrier;
mod directory;
#[cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(loom, shuttle, weft_sim))
))]
pub mod hardware;
pub mod office;

use std::thread::{scope, yield_now};
use std::time::{SystemTime, UNIX_EPOCH};

use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft_protocols::HtmNaive;

pub use barrier::TestBarrier;
pub use directory::TemporaryDirectory;

/// Runs an expression once for every protocol, with the protocol as a type parameter. Leaves out the protocols
/// that accept only one operation on one row per transaction: these have no multi-step transactions to test, and
/// are tested in `tests/engine/atomic.rs`.
#[macro_export]
macro_rules! for_each_protocol {
    (|$parameter:ident| $body:expr) => {
        for protocol in weft_protocols::PROTOCOLS {
            if protocol.single_key {
                continue;
            }
            let _named = $crate::Named(protocol.name);
            weft_protocols::with_protocol!(protocol.name, |$parameter| $body)
                .expect("a listed protocol");
        }
    };
}

/// Runs an expression with one protocol for each type of executor: all but `atomic`, and those that differ from one of
/// these only in how they commit, wait, or exclude each other. (`stress.rs`, `snapshots.rs`, the hostile types and the
/// conformance suite run with all of them.)
#[macro_export]
macro_rules! for_each_kind {
    (|$parameter:ident| $body:expr) => {
        $crate::for_each_executor!(
            [NoControl, Dbx, TwoPhaseLocking, TimestampOrdering, Htcc, Doppel, DbxTc, Adaptive]
                | $parameter
                | $body
        )
    };
}

/// Runs an expression with one protocol for each kind of executor, for tests of the typed layer: this layer sees
/// only executors, so it cannot tell protocols with the same executor apart. (The protocols' own behaviour is
/// tested with all of them, by `stress.rs` here and by the conformance suite.)
#[macro_export]
macro_rules! for_each_executor {
    (|$parameter:ident| $body:expr) => {
        $crate::for_each_executor!(
            [NoControl, Dbx, TwoPhaseLocking, TimestampOrdering] |$parameter| $body
        )
    };
    ([$($protocol:ident),*] |$parameter:ident| $body:expr) => {
        for name in [$(<weft_protocols::$protocol as weft::protocol::Protocol>::NAME),*] {
            let _named = $crate::Named(name);
            $(if name == <weft_protocols::$protocol as weft::protocol::Protocol>::NAME {
                type $parameter = weft_protocols::$protocol;
                $body
            })*
        }
    };
}

/// Runs a test of the module `cases` under phase reconciliation over each of the two protocols that it can be over.
#[macro_export]
macro_rules! over_joined_protocols {
    ($($name:ident)*) => {$(
        mod $name {
            #[test]
            fn over_occ() {
                super::cases::$name::<weft::protocol::Silo>();
            }

            #[test]
            fn over_two_phase_locking() {
                super::cases::$name::<weft::protocol::TwoPhaseLocking>();
            }

            #[test]
            fn adaptive() {
                super::cases::$name::<weft_protocols::adaptive::Ordered>();
            }
        }
    )*};
}

/// Returns whether a transaction cannot begin until another thread's transaction has ended, so that a test cannot
/// interleave two of them. This is the case under a single lock for whole transactions, which `htm-naive` uses
/// where its regions do not work.
pub fn begin_waits<P: Protocol>() -> bool {
    P::NAME == HtmNaive::NAME
}

/// A guard that prints the protocol's name if the test fails under it.
pub struct Named(pub &'static str);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was protocol {}", self.0);
        }
    }
}

/// Tells other threads to stop when it is dropped, also if the test fails: it sets the word to 1.
pub struct StopOnDrop<'a>(pub &'a Word);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Relaxed);
    }
}

/// A seed for random choices, which is printed if the test fails. Set `WEFT_SEED` to repeat a run.
pub struct Seed(pub u64);

impl Seed {
    /// Returns the seed that `WEFT_SEED` gives, or one from the clock.
    pub fn draw() -> Self {
        let given = std::env::var("WEFT_SEED").ok();
        Seed(match given {
            Some(seed) => seed.parse().expect("WEFT_SEED is a number"),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
        })
    }

    /// Returns the random generator of one thread.
    pub fn random(&self, thread: usize) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.0.wrapping_add((thread as u64) << 48))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("WEFT_SEED={} repeats this", self.0);
        }
    }
}

/// Returns the factor by which tests multiply their usual work: `WEFT_STRESS`, or 1 by default.
pub fn stress() -> usize {
    let given = std::env::var("WEFT_STRESS").ok();
    given.map_or(1, |factor| factor.parse().expect("WEFT_STRESS is a number"))
}

/// Returns a number of threads that exceeds the cores of most machines that run the tests, but not the maximum of
/// the protocol.
pub fn threads<P: Protocol>() -> usize {
    P::WORKERS_MAX.min(6)
}

/// Yields to another thread, with a chance of one in four. Called in the middle of operations.
pub fn chaos(random: &mut fastrand::Rng) {
    if random.u8(..4) == 0 {
        yield_now();
    }
}

/// Panics without printing to the terminal, for panics that are part of a test.
pub fn panic_quietly(message: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(message))
}

/// Runs `work` on a new thread and joins the thread, so that its thread-local registrations are gone, too. (The
/// end of a scope waits only for the closure, and not for the thread's exit.)
pub fn on_a_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let result = scope(|scope| scope.spawn(work).join());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `work` on several threads at once, passes each its number, and joins the threads.
pub fn on_threads<R: Send>(threads: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    scope(|scope| {
        let work = &work;
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let ended: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
        let results = ended.into_iter();
        results.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}
