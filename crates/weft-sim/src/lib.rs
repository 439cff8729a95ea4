//! A simulated multicore machine with hardware transactional memory, in virtual time: for those who
//! have neither RTM nor eighty cores, and for tests that want every interleaving.
//!
//! [`machine`] is the model: caches, coherence, hardware threads and regions, driven by calls.
//! [`profile`] has the machines that can be simulated, with the sources of their numbers. [`run`](mod@run)
//! runs programs on its virtual cores, each a coroutine of one host thread, in turns that a
//! [`schedule`] decides: by virtual time, at random, by random priorities, or all that there are
//! ([`explore`](mod@explore)). [`sync`] has the words that the programs share, [`region`](mod@region) their
//! hardware regions, [`local`] what they keep by thread.
//!
//! ```
//! use weft_sim::sync::{AtomicU64, Ordering};
//! use weft_sim::{Options, Profile, Program, run};
//!
//! let counter = AtomicU64::new(0);
//! let program = || (0..100).for_each(|_| _ = counter.fetch_add(1, Ordering::Relaxed));
//! let options = Options::new(Profile::named("haswell-4c8t").unwrap(), 1);
//! let report = run(&options, vec![Box::new(program) as Program<'_>, Box::new(program)]).unwrap();
//! assert_eq!(counter.load(Ordering::Relaxed), 200);
//! assert!(report.cycles > 0);
//! ```
//!
//! Everything follows from a seed. Two runs of the same accesses with the same seed end with the same
//! clocks and counts, bit for bit, in whatever process.
//!
//! # What the model leaves out
//!
//! Figures from it are shapes and ratios, not predictions. It knows nothing of
//!
//! - **store buffers**: each access takes effect at once, in program order, so memory is
//!   sequentially consistent. A missing fence is not found here (but by loom), and a store that
//!   misses is as slow as a load;
//! - **out-of-order execution**: a miss is waited for before the next access begins. Only lines that
//!   follow one another are fetched ahead, and without taking room in the first level;
//! - **bandwidth and queues**: an access to memory, or to a line that many want, costs the same
//!   however many others are under way;
//! - **plain memory**, but for what a program [declares](sync::touch): for stacks, heaps, and lists of a
//!   thread's own there is only a [stand-in](PrivateMemory), and nothing of them is rolled back. A region
//!   must not free words that it has written either, if their memory is used again;
//! - **page faults**, but for pages that are [declared absent](Machine::declare_absent);
//! - **instructions**: no instruction cache, no branches; computing is what the program says it is;
//! - **address translation**: no TLB; pages are of 4 KiB;
//! - **replacement that is not exact**: least recently used, where processors approximate it;
//! - **the rest of an operating system**: threads stay on their hardware threads, and are interrupted
//!   by a timer and nothing else;
//! - **evictions that are not the program's**: code, page tables and the kernel take no room in any
//!   cache.

pub mod explore;
pub mod local;
pub mod machine;
#[cfg(unix)]
pub mod pages;
pub mod profile;
pub mod region;
pub mod run;
pub mod schedule;
pub mod status;
pub mod sync;

pub use explore::{Exploration, explore};
pub use machine::{Aborted, Access, Counts, Machine, Overwritten};
pub use profile::{PROFILES, Profile};
pub use run::{Case, Failure, Options, PrivateMemory, Program, Report, run};
pub use schedule::{Schedule, Trace};

/// The virtual core that this code runs on, from 0; [`None`] outside of runs.
pub fn core() -> Option<usize> {
    run::current().map(run::Run::core)
}

/// Cycles that have passed for the virtual core that this code runs on; [`None`] outside of runs.
pub fn cycles() -> Option<u64> {
    run::current().map(|run| run.machine.borrow().clock(run.core()))
}

/// What the virtual core that this code runs on has done so far; [`None`] outside of runs.
pub fn counts() -> Option<Counts> {
    run::current().map(|run| run.machine.borrow().counts(run.core()))
}

/// Runs `body` without letting other virtual cores go on, whatever it accesses. It must not wait for
/// them.
pub fn uninterrupted<R>(body: impl FnOnce() -> R) -> R {
    /// Puts back what was there before, also when the body unwinds.
    struct Uninterrupted(&'static run::Run, bool);
    impl Drop for Uninterrupted {
        fn drop(&mut self) {
            self.0.is_uninterrupted.set(self.1);
        }
    }
    let _uninterrupted =
        run::current().map(|run| Uninterrupted(run, run.is_uninterrupted.replace(true)));
    body()
}

/// Lets the virtual core that this code runs on compute for a number of cycles. Nothing outside of runs.
pub fn compute(cycles: u64) {
    if let Some(run) = run::current()
        && !region::is_undone()
    {
        let computed = run.machine.borrow_mut().compute(run.core(), cycles);
        region::settle(run, computed);
    }
}
