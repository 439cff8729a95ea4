//! A simulated multicore machine with hardware transactional memory, in virtual time. It is for users who have
//! neither RTM nor eighty cores, and for tests that must try many interleavings.
//!
//! [`machine`] is the model: caches, coherence, hardware threads and regions, driven by calls. [`profile`] has
//! the machines that can be simulated, with the sources of their numbers. [`run`](mod@run) runs programs on the
//! machine's virtual cores. Each virtual core is a coroutine of one host thread, and a [`schedule`] decides
//! which of them runs next: by virtual time, at random, by random priorities, or through all schedules in turn
//! ([`explore`](mod@explore)). [`sync`] has the words that the programs share, [`region`](mod@region) their
//! hardware regions, and [`local`] what they keep by thread.
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
//! Everything follows from a seed. Two runs of the same accesses with the same seed end with the same clocks
//! and counts, bit for bit, in any process.
//!
//! # What the model leaves out
//!
//! Figures from it are shapes and ratios, not predictions. The model does not include
//!
//! - **reordering**: cores overlap their accesses, and stores wait in a store buffer, but only in time. Each access
//!   takes effect immediately, in program order, so memory is sequentially consistent. Loom finds a missing fence;
//!   this machine does not;
//! - **most of out-of-order execution**: the next access after a load of a pointer waits for it, whatever address
//!   it has. No other load is waited for because of its value, and no branch is mispredicted, except at the end of
//!   a loop that pauses. Only lines that follow one another are prefetched, and they take no room in the first
//!   level;
//! - **bandwidth and queues**, except a core's [fill buffers](Profile::fill_buffers): an access to memory, or to a
//!   contended line, costs the same however many other cores have accesses in progress;
//! - **plain memory**, except what a program [declares](sync::touch). A [stand-in](PrivateMemory) represents
//!   stacks, heaps and a thread's own lists, and none of these is rolled back. So a region must not free words
//!   that it has written, if their memory is used again;
//! - **page faults**, except on pages that are [declared absent](declare_absent);
//! - **instructions**: there is no instruction cache and there are no branches. Computing takes the time that
//!   the program states;
//! - **address translation**: there is no TLB. Pages have 4 KiB;
//! - **inexact replacement**: the model evicts the least recently used line, where processors approximate that;
//! - **the rest of an operating system**: threads stay on their hardware threads, and only a timer interrupts
//!   them;
//! - **evictions by other code**: code, page tables and the kernel take no room in any cache.

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

use std::ops::Range;

pub use explore::{Exploration, explore};
pub use machine::{Abort, Access, Counts, Machine, OldValue};
pub use profile::{PROFILES, Profile};
pub use run::{Case, Failure, Options, PrivateMemory, Program, Report, run};
pub use schedule::{Schedule, Trace};

/// Returns the virtual core that this code runs on, from 0. [`None`] outside of runs.
pub fn core() -> Option<usize> {
    run::current().map(run::Run::core)
}

/// Returns how many cycles have passed for the virtual core that this code runs on. [`None`] outside of runs.
pub fn cycles() -> Option<u64> {
    run::current().map(|run| run.machine.borrow().clock(run.core()))
}

/// Returns what the virtual core that this code runs on has counted so far. [`None`] outside of runs.
pub fn counts() -> Option<Counts> {
    run::current().map(|run| run.machine.borrow().counts(run.core()))
}

/// Declares that the operating system has not mapped the whole pages of this range of addresses: the first access
/// to each is a fault. Does nothing outside of runs.
pub fn declare_absent(addresses: Range<u64>) {
    if let Some(run) = run::current() {
        let bytes = addresses.end - addresses.start;
        run.machine.borrow_mut().declare_absent(addresses.start, bytes);
    }
}

/// Runs `body` without letting other virtual cores run, whatever it accesses. It must not wait for them.
pub fn uninterrupted<R>(body: impl FnOnce() -> R) -> R {
    /// Restores the state that was there before, also when the body unwinds.
    struct UninterruptedGuard(&'static run::Run, bool);
    impl Drop for UninterruptedGuard {
        fn drop(&mut self) {
            self.0.is_uninterrupted.set(self.1);
        }
    }
    let _uninterrupted =
        run::current().map(|run| UninterruptedGuard(run, run.is_uninterrupted.replace(true)));
    body()
}

/// Makes the virtual core that this code runs on compute for a number of cycles. Does nothing outside of runs.
pub fn compute(cycles: u64) {
    if let Some(run) = run::current()
        && !region::is_undone()
    {
        let computed = run.machine.borrow_mut().compute(run.core(), cycles);
        region::settle(run, computed);
    }
}
