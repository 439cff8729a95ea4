//! What the engine's tests share: every protocol, seeds that repeat a run, and the amount of work.
//!
//! The tests themselves are in `tests/`. They are a package of their own, so that they can be compiled without
//! optimisation, which takes a tenth of the time, while the engine's unit tests are optimised.

mod directory;
pub mod hardware;
mod meeting;

use std::thread::{scope, yield_now};
use std::time::{SystemTime, UNIX_EPOCH};

use weft::protocol::Protocol;
use weft_protocols::HtmNaive;

pub use directory::TemporaryDirectory;
pub use meeting::Meeting;

/// Runs an expression once for every protocol, with the protocol as a type parameter. Protocols
/// that make single operations on single rows atomic, and refuse everything else, have no
/// transactions to test: `tests/atomic.rs` is theirs.
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

/// Runs an expression once for one protocol of each executor: for tests of what the typed layer
/// does, which sees executors and cannot tell more apart. (What protocols do themselves is tested
/// with all of them, here by `stress.rs` and otherwise by the conformance suite. The engine compiled
/// for ten protocols is most of what a build of the tests takes.)
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

/// Whether a transaction waits to begin until another thread's has ended, so that a test cannot let
/// two of them take turns: so it is under one lock for whole transactions, which is what `htm-naive`
/// has where its regions do not work.
pub fn begin_waits<P: Protocol>() -> bool {
    P::NAME == HtmNaive::NAME
}

/// Names the protocol that a failed test was running.
pub struct Named(pub &'static str);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was protocol {}", self.0);
        }
    }
}

/// A seed, which is printed if the test fails; `WEFT_SEED` repeats one.
pub struct Seed(pub u64);

impl Seed {
    /// Returns the seed that `WEFT_SEED` gives, or one from the clock.
    pub fn new() -> Self {
        let given = std::env::var("WEFT_SEED").ok();
        Seed(match given {
            Some(seed) => seed.parse().expect("WEFT_SEED is a number"),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
        })
    }

    /// The generator of one thread.
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

/// How many times as much work as usual: `WEFT_STRESS`, 1 by default.
pub fn stress() -> usize {
    let given = std::env::var("WEFT_STRESS").ok();
    given.map_or(1, |factor| factor.parse().expect("WEFT_STRESS is a number"))
}

/// More threads than most machines that run the tests have cores, or as many as the protocol
/// bears.
pub fn threads<P: Protocol>() -> usize {
    P::WORKERS_MAX.min(6)
}

/// Now and then lets another thread run, in the middle of something.
pub fn chaos(random: &mut fastrand::Rng) {
    if random.u8(..4) == 0 {
        yield_now();
    }
}

/// Panics without a word on the terminal: for panics that belong to a test.
pub fn panic_quietly(message: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(message))
}

/// Runs `work` on a thread of its own, to the thread's very end: its registrations are gone then.
/// (The end of a scope alone waits for less.)
pub fn on_a_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let result = scope(|scope| scope.spawn(work).join());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `work` on several threads at once, with their numbers, to the threads' very ends.
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
