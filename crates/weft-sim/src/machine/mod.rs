//! The model of the machine: hardware threads that access lines, what each access costs, and regions.
//!
//! It knows addresses, not values. The code that runs a program on it calls [`Machine::access`] before each
//! access to a shared word. It then makes the access itself, unless the machine has aborted a region. Costs go
//! to the clock of the thread that makes the access.
//!
//! # Caches
//!
//! Each core has a first-level and a second-level cache, and each socket has a last-level cache. A directory
//! knows for each line which cores hold it, and which of them, if any, owns it. So a line is in one of MESI's
//! four states:
//!
//! | state | cores | owner | written |
//! | --- | --- | --- | --- |
//! | invalid | none | – | – |
//! | shared | one or more | – | no |
//! | exclusive | one | that one | no |
//! | modified | one | that one | yes |
//!
//! A read that misses takes the line from its owner, whose copy becomes a shared one. If there is no owner, it
//! takes the line from the nearest of the last level, another socket and memory. (It is faster if the line
//! follows the one fetched before, because a prefetcher would already be fetching it.) A write by a core that
//! is not the owner takes the line from all others. An inclusive last level that evicts a line also takes it
//! from its cores.
//!
//! # Time
//!
//! See `overlap.rs`. A core does not wait for most of its misses.
//!
//! # Regions
//!
//! See `region.rs`. The machine does not know values, so it hands what is to be rolled back to its user:
//! [`Machine::take_rolled_back`].

mod access;
mod cache;
mod memory;
mod overlap;
mod region;
#[cfg(test)]
mod tests;

use std::ops::{Add, Sub};

use crate::profile::Profile;

use cache::Cache;
use memory::{Memory, NO_HOLDER};
#[cfg(test)]
pub(crate) use overlap::FILL_BUFFERS_MAX;
use overlap::{FillBuffers, InProgress};
use region::Region;

pub use region::Abort;

/// The largest number of hardware threads of a machine.
pub const THREADS_MAX: usize = 128;

/// What an access does with the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads it.
    Load,
    /// Loads it, and uses the value as an address.
    LoadPointer,
    /// Stores it.
    Store,
    /// Loads and stores it in one step, by an instruction with a `lock` prefix.
    Exchange,
}

/// A value that a region has overwritten, and that must be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldValue {
    /// The address of the word, as the user of the machine named it.
    pub address: u64,
    /// The value before.
    pub value: u64,
}

/// What a hardware thread has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accesses, of all kinds.
    pub accesses: u64,
    /// Accesses for which the core's own caches had no copy.
    pub misses: u64,
    /// Accesses that took the line from another core.
    pub transfers: u64,
    /// Page faults outside of regions.
    pub page_faults: u64,
    /// Timer interrupts.
    pub interrupts: u64,
    /// Outermost regions begun.
    pub begun: u64,
    /// Outermost regions committed.
    pub committed: u64,
    /// Lines that committed regions have read, also if they wrote them later.
    pub lines_read: u64,
    /// Lines that committed regions have written.
    pub lines_written: u64,
    /// Regions that another thread's access aborted.
    pub aborted_conflict: u64,
    /// Regions that the caches could not hold.
    pub aborted_capacity: u64,
    /// Regions aborted by XABORT.
    pub aborted_explicit: u64,
    /// Regions aborted by interrupts, faults and forbidden instructions.
    pub aborted_other: u64,
}

impl Counts {
    fn combine(self, other: Counts, combine: impl Fn(u64, u64) -> u64) -> Counts {
        Counts {
            accesses: combine(self.accesses, other.accesses),
            misses: combine(self.misses, other.misses),
            transfers: combine(self.transfers, other.transfers),
            page_faults: combine(self.page_faults, other.page_faults),
            interrupts: combine(self.interrupts, other.interrupts),
            begun: combine(self.begun, other.begun),
            committed: combine(self.committed, other.committed),
            lines_read: combine(self.lines_read, other.lines_read),
            lines_written: combine(self.lines_written, other.lines_written),
            aborted_conflict: combine(self.aborted_conflict, other.aborted_conflict),
            aborted_capacity: combine(self.aborted_capacity, other.aborted_capacity),
            aborted_explicit: combine(self.aborted_explicit, other.aborted_explicit),
            aborted_other: combine(self.aborted_other, other.aborted_other),
        }
    }
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        self.combine(other, |one, other| one + other)
    }
}

/// Returns what was counted between two moments.
impl Sub for Counts {
    type Output = Counts;

    fn sub(self, earlier: Counts) -> Counts {
        self.combine(earlier, |later, earlier| later - earlier)
    }
}

#[derive(Debug)]
struct Thread {
    core: usize,
    clock: u64,
    next_interrupt: u64,
    /// Whether it has a program to run, and so uses its share of the core.
    is_running: bool,
    /// The line that it last fetched from beyond the core's own caches.
    fetched: u32,
    region: Region,
    in_progress: InProgress,
    counts: Counts,
}

#[derive(Debug)]
struct Core {
    socket: usize,
    first_level: Cache,
    second_level: Cache,
    /// Lines that regions have read and that have left the first level.
    read_set: Option<Cache>,
    fill_buffers: FillBuffers,
}

/// Returns the members of a set of cores or threads.
fn members(set: u128) -> impl Iterator<Item = usize> {
    let mut rest = set;
    std::iter::from_fn(move || {
        let member = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (member < 128).then_some(member)
    })
}

/// A machine and the state of all its parts.
#[derive(Debug)]
pub struct Machine {
    profile: &'static Profile,
    threads: Vec<Thread>,
    cores: Vec<Core>,
    last_levels: Vec<Cache>,
    memory: Memory,
    /// Values that rolled-back regions have overwritten, to be restored in this order.
    rolled_back: Vec<OldValue>,
}

impl Machine {
    /// Makes a machine with empty caches. `seed` decides where pages lie in physical memory, and when the
    /// timers of the threads first go off.
    pub fn new(profile: &'static Profile, seed: u64) -> Machine {
        let mut random = fastrand::Rng::with_seed(seed);
        let threads = (0..profile.threads()).map(|thread| Thread {
            core: profile.core_of(thread),
            clock: 0,
            next_interrupt: random.u64(1..=profile.timer_period),
            is_running: false,
            fetched: u32::MAX,
            region: Region::default(),
            in_progress: InProgress::new(),
            counts: Counts::default(),
        });
        let threads = threads.collect();
        let cores = (0..profile.cores()).map(|core| Core {
            socket: profile.socket_of(core),
            first_level: Cache::new(profile.first_level),
            second_level: Cache::new(profile.second_level),
            read_set: profile.read_set.map(Cache::new),
            fill_buffers: FillBuffers::new(profile.fill_buffers),
        });
        Machine {
            profile,
            threads,
            cores: cores.collect(),
            last_levels: (0..profile.sockets).map(|_| Cache::new(profile.last_level)).collect(),
            memory: Memory::new(random.u64(..)),
            rolled_back: Vec::new(),
        }
    }

    /// Returns the machine's profile.
    pub fn profile(&self) -> &'static Profile {
        self.profile
    }

    /// Returns how many cycles have passed for a thread.
    #[inline]
    pub fn clock(&self, thread: usize) -> u64 {
        self.threads[thread].clock
    }

    /// Returns what a thread has counted so far.
    pub fn counts(&self, thread: usize) -> Counts {
        self.threads[thread].counts
    }

    /// Sets whether a thread has a program to run. A running thread slows the other thread of its core. A thread
    /// that stops waits for its accesses.
    pub fn set_running(&mut self, thread: usize, is_running: bool) {
        self.wait_for_accesses(thread);
        self.threads[thread].is_running = is_running;
    }

    /// Declares that the operating system has not mapped the whole pages of this range yet: the first access to
    /// each is a fault. All other pages are mapped.
    pub fn declare_absent(&mut self, address: u64, bytes: u64) {
        self.memory.declare_absent(address, bytes);
    }

    /// Makes a thread compute for a number of cycles.
    ///
    /// # Errors
    /// If the thread's region is rolled back.
    #[inline]
    pub fn compute(&mut self, thread: usize, cycles: u64) -> Result<(), Abort> {
        self.charge_computing(thread, cycles);
        self.interrupt_if_due(thread);
        self.check(thread)
    }

    /// Executes a full fence.
    ///
    /// # Errors
    /// If the thread's region is rolled back.
    pub fn fence(&mut self, thread: usize) -> Result<(), Abort> {
        self.wait_for_accesses(thread);
        self.compute(thread, self.profile.latencies.fence)
    }

    /// Executes PAUSE, which aborts a region.
    ///
    /// # Errors
    /// If the thread's region is rolled back.
    pub fn pause(&mut self, thread: usize) -> Result<(), Abort> {
        self.abort_for_itself(thread);
        self.threads[thread].in_progress.has_paused = true;
        self.compute(thread, self.profile.latencies.pause)
    }

    /// Makes a system call of `cycles` cycles, which aborts a region.
    ///
    /// # Errors
    /// If the thread's region is rolled back.
    pub fn system_call(&mut self, thread: usize, cycles: u64) -> Result<(), Abort> {
        self.abort_for_itself(thread);
        self.wait_for_accesses(thread);
        self.threads[thread].in_progress.has_paused = true;
        self.compute(thread, cycles)
    }

    /// Lets time pass for a thread that sleeps, until its clock shows `clock`.
    pub fn sleep_until(&mut self, thread: usize, clock: u64) {
        self.wait_until(thread, clock);
    }

    /// Returns the machine's own number of the line that holds the word at `address`.
    pub fn line(&mut self, thread: usize, address: u64) -> u32 {
        let socket = self.cores[self.threads[thread].core].socket;
        self.memory.line(address, socket)
    }

    /// Charges computing. It shares the core with the other thread that runs there; waiting for memory does
    /// not.
    #[inline]
    fn charge_computing(&mut self, thread: usize, cycles: u64) {
        let cycles = match self.sibling_is_running(thread) {
            true => cycles * self.profile.sibling_percent / 100,
            false => cycles,
        };
        self.issue(thread, cycles);
    }

    #[inline]
    fn sibling_is_running(&self, thread: usize) -> bool {
        if self.profile.threads_per_core == 1 {
            return false;
        }
        let cores = self.cores.len();
        let sibling = if thread < cores { thread + cores } else { thread - cores };
        self.threads[sibling].is_running
    }

    #[inline]
    fn interrupt_if_due(&mut self, thread: usize) {
        let state = &self.threads[thread];
        if state.clock >= state.next_interrupt {
            self.interrupt(thread);
        }
    }

    #[cold]
    fn interrupt(&mut self, thread: usize) {
        self.abort_for_itself(thread);
        self.wait_for_accesses(thread);
        let period = self.profile.timer_period;
        let state = &mut self.threads[thread];
        let missed = (state.clock - state.next_interrupt) / period;
        state.next_interrupt += period * (missed + 1);
        state.clock += self.profile.latencies.interrupt;
        state.counts.interrupts += 1;
    }
}
