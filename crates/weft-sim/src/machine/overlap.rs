//! Overlap: a core computes, and starts further accesses, while its misses are in progress.
//!
//! An access changes caches, directory and memory at once, in program order. Only its time passes later:
//!
//! | access | the thread waits |
//! | --- | --- |
//! | load of a pointer | until its line is there, because the next address depends on it |
//! | other load | when the instructions behind it fill the reorder window, and its line is not there |
//! | store | when the store buffer is full. Stores leave it in program order |
//! | exchange, fence, begin and end of a region, fault, interrupt, system call | until all loads and stores before it are done, and, for an exchange, until its own line is there |
//! | first load after PAUSE | until its line is there, because a branch was predicted to go on waiting |
//!
//! A miss occupies one of the core's fill buffers until its line is there. If all are occupied, it starts when
//! the first of them is free. An access to a line that is under way waits for that line, if it waits at all.
//!
//! The two threads of a core share the fill buffers. Each has half of the reorder window and of the store
//! buffer, if both run.

use std::collections::VecDeque;

use super::{Access, Machine};

/// How many instructions a core starts in a cycle. The charges for computing assume the same
/// ([`Options::cycles_per_access`](crate::Options::cycles_per_access)).
const INSTRUCTIONS_PER_CYCLE: u64 = 2;

/// The largest number of fill buffers of a core.
pub(crate) const FILL_BUFFERS_MAX: usize = 16;

/// The buffers that hold the misses of a core while they are in progress.
#[derive(Debug)]
pub(super) struct FillBuffers {
    /// The line that each buffer is, or was last, waiting for.
    lines: [u32; FILL_BUFFERS_MAX],
    /// When the line of each buffer arrives. Buffers that the core does not have are occupied for ever.
    arrivals: [u64; FILL_BUFFERS_MAX],
    /// The latest of all arrivals.
    last_arrival: u64,
}

impl FillBuffers {
    pub(super) fn new(count: usize) -> FillBuffers {
        let mut arrivals = [u64::MAX; FILL_BUFFERS_MAX];
        arrivals[..count].fill(0);
        FillBuffers { lines: [u32::MAX; FILL_BUFFERS_MAX], arrivals, last_arrival: 0 }
    }

    /// Starts a miss at `start`, or when a buffer is free, and returns when the line arrives.
    fn start(&mut self, line: u32, start: u64, cycles: u64) -> u64 {
        let mut first = 0;
        for buffer in 1..FILL_BUFFERS_MAX {
            if self.arrivals[buffer] < self.arrivals[first] {
                first = buffer;
            }
        }
        let arrival = start.max(self.arrivals[first]) + cycles;
        self.lines[first] = line;
        self.arrivals[first] = arrival;
        self.last_arrival = self.last_arrival.max(arrival);
        arrival
    }

    /// Returns when a line arrives that was under way at `now`; `now` if it was not under way.
    #[inline]
    fn arrival(&self, line: u32, now: u64) -> u64 {
        // All buffers are compared at once, without a branch for each.
        let is_held = self.lines.iter().fold(false, |held, &other| held | (other == line));
        if self.last_arrival <= now || !is_held {
            return now;
        }
        let buffers = self.lines.iter().zip(&self.arrivals).filter(|&(&other, _)| other == line);
        buffers.fold(now, |latest, (_, &arrival)| latest.max(arrival))
    }
}

/// A load that lasts longer than the reorder window.
#[derive(Clone, Copy, Debug)]
struct LongLoad {
    /// The thread's issue time at which the window behind the load is full.
    window_full: u64,
    arrival: u64,
}

/// The accesses of a thread that are in progress.
#[derive(Debug)]
pub(super) struct InProgress {
    /// The cycles that the thread has waited. Its issue time is its clock without them: it does not advance
    /// while the thread waits.
    waited: u64,
    /// Loads, in program order.
    long_loads: VecDeque<LongLoad>,
    /// `window_full` of the first of them; `u64::MAX` without any.
    window_full: u64,
    /// When all loads so far are done.
    loaded: u64,
    /// For each store in the store buffer, when it leaves.
    stores: VecDeque<u64>,
    /// When all stores so far have left the store buffer.
    stored: u64,
    /// Whether the thread has paused since its last load.
    pub(super) has_paused: bool,
}

impl InProgress {
    pub(super) fn new() -> InProgress {
        InProgress {
            waited: 0,
            long_loads: VecDeque::new(),
            window_full: u64::MAX,
            loaded: 0,
            stores: VecDeque::new(),
            stored: 0,
            has_paused: false,
        }
    }
}

/// How a line gets into the core's first level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    /// The time that it takes.
    pub(super) cycles: u64,
    /// Whether the line follows, in its page, the line that was fetched before. It arrives this time after it.
    pub(super) is_streamed: bool,
}

impl Machine {
    /// Charges an access of this kind to the thread. `fetch` is `None` if the first level holds the line.
    #[inline]
    pub(super) fn charge_access(
        &mut self,
        thread: usize,
        line: u32,
        access: Access,
        fetch: Option<Fetch>,
    ) {
        let now = self.threads[thread].clock;
        self.issue(thread, self.profile.latencies.first_level);
        if let Some(fetch) = fetch {
            return self.charge_miss(thread, line, access, fetch, now);
        }
        // The line may still be under way. Then the load that fetched it limits the reorder window already, so
        // another load of it adds nothing.
        let fills = &self.cores[self.threads[thread].core].fill_buffers;
        match access {
            Access::Load => self.threads[thread].in_progress.has_paused = false,
            Access::Store => {
                let arrival = fills.arrival(line, now);
                self.store(thread, arrival);
            }
            Access::LoadPointer | Access::Exchange => {
                let arrival = fills.arrival(line, now);
                self.await_line(thread, access, arrival);
            }
        }
    }

    /// Charges an access that began at `now`, and for which the first level did not hold the line.
    fn charge_miss(&mut self, thread: usize, line: u32, access: Access, fetch: Fetch, now: u64) {
        let fills = &mut self.cores[self.threads[thread].core].fill_buffers;
        let start = if fetch.is_streamed { fills.arrival(line - 1, now) } else { now };
        let arrival = fills.start(line, start, fetch.cycles);
        match access {
            Access::Load if !self.threads[thread].in_progress.has_paused => {
                self.load(thread, now, arrival);
            }
            Access::Store => self.store(thread, arrival),
            Access::Load | Access::LoadPointer | Access::Exchange => {
                self.await_line(thread, access, arrival);
            }
        }
    }

    /// Lets the thread wait until the line of its access is there.
    #[inline]
    fn await_line(&mut self, thread: usize, access: Access, arrival: u64) {
        self.threads[thread].in_progress.has_paused = false;
        self.wait_until(thread, arrival);
        if access == Access::Exchange {
            self.charge_computing(thread, self.profile.latencies.locked);
        }
    }

    /// Notes a load that began at `now`.
    fn load(&mut self, thread: usize, now: u64, arrival: u64) {
        let window = self.share(thread, self.profile.reorder_window) / INSTRUCTIONS_PER_CYCLE;
        let state = &mut self.threads[thread];
        let waits = &mut state.in_progress;
        waits.loaded = waits.loaded.max(arrival);
        // Waiting only postpones the moment at which the window is full, so shorter loads never fill it.
        if arrival > now + window {
            let window_full = state.clock - waits.waited + window;
            waits.long_loads.push_back(LongLoad { window_full, arrival });
            waits.window_full = waits.window_full.min(window_full);
        }
    }

    /// Puts a store into the store buffer.
    #[inline]
    fn store(&mut self, thread: usize, arrival: u64) {
        let state = &mut self.threads[thread];
        state.in_progress.stored = state.in_progress.stored.max(arrival);
        if state.in_progress.stored > state.clock {
            self.buffer_store(thread);
        }
    }

    /// Lets a store wait in the store buffer, because its line, or that of a store before it, is under way.
    fn buffer_store(&mut self, thread: usize) {
        let entries = self.share(thread, self.profile.store_buffer);
        let state = &mut self.threads[thread];
        let stores = &mut state.in_progress.stores;
        while stores.front().is_some_and(|&leaves| leaves <= state.clock) {
            stores.pop_front();
        }
        stores.push_back(state.in_progress.stored);
        if stores.len() as u64 > entries {
            let leaves = stores.pop_front().expect("the buffer is full");
            self.wait_until(thread, leaves);
        }
    }

    /// Lets a thread issue instructions for a number of cycles. It waits when the window behind a load is full.
    #[inline]
    pub(super) fn issue(&mut self, thread: usize, cycles: u64) {
        let state = &mut self.threads[thread];
        state.clock += cycles;
        if state.clock - state.in_progress.waited > state.in_progress.window_full {
            self.retire_long_loads(thread);
        }
    }

    /// Waits for each load whose window is full.
    #[cold]
    fn retire_long_loads(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        let waits = &mut state.in_progress;
        while let Some(&LongLoad { window_full, arrival }) = waits.long_loads.front()
            && state.clock - waits.waited > window_full
        {
            let cycles = arrival.saturating_sub(window_full + waits.waited);
            waits.waited += cycles;
            state.clock += cycles;
            waits.long_loads.pop_front();
        }
        waits.window_full = waits.long_loads.front().map_or(u64::MAX, |load| load.window_full);
    }

    /// Lets a thread wait until its clock shows `clock`.
    #[inline]
    pub(super) fn wait_until(&mut self, thread: usize, clock: u64) {
        let state = &mut self.threads[thread];
        let cycles = clock.saturating_sub(state.clock);
        state.in_progress.waited += cycles;
        state.clock += cycles;
    }

    /// Lets a thread wait until all its loads and stores are done.
    #[inline]
    pub fn wait_for_accesses(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        let done = state.in_progress.loaded.max(state.in_progress.stored);
        if done > state.clock {
            self.wait_until(thread, done);
            let in_progress = &mut self.threads[thread].in_progress;
            in_progress.long_loads.clear();
            in_progress.window_full = u64::MAX;
        }
    }

    /// Returns the thread's share of a part of its core that has `entries` entries.
    #[inline]
    fn share(&self, thread: usize, entries: u64) -> u64 {
        if self.sibling_is_running(thread) { entries / 2 } else { entries }
    }
}
