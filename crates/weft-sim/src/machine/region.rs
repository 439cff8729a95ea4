//! Hardware regions: RTM, as far as a program can observe it.
//!
//! What a region reads and writes is noted line by line. **Writes** must stay in the first-level cache. When a
//! line that the region has written is evicted, for any reason, by any thread of the core, the region aborts
//! ([`CAPACITY`]). **Reads** are still tracked after they have left that cache, in a structure of the core
//! whose size the profile gives. When a line falls out of that structure, the regions that have read it abort
//! in the same way. **Conflicts** are found at the access, and the requester wins. Any access of another thread
//! to a written line, and a write of another thread to a line that was read, aborts the region immediately. It
//! does not matter whether that thread is in a region (strong atomicity). **Nesting** is flat, seven deep, and
//! an abort ends the outermost region.
//!
//! A region that another thread aborts learns of it at its next step. Until then it does nothing, so it never
//! sees an inconsistent state. Its writes are undone immediately: the thread that caused the abort sees the old
//! values.

use super::cache::Lookup;
use super::{Machine, NO_HOLDER, OldValue, members};
use crate::status::{CAPACITY, CONFLICT, EXPLICIT, NESTED, RETRY, explicit};

/// How deep regions may be nested in each other.
const DEPTH_MAX: u32 = 7;

/// The error for a region that was rolled back. What it has overwritten is either restored already, or waits in
/// [`Machine::take_rolled_back`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// What XBEGIN now leaves in EAX (see [`status`](crate::status)).
    pub status: u32,
}

/// The region of one thread.
#[derive(Debug, Default)]
pub(super) struct Region {
    /// How many regions are open, nested; 0 outside.
    depth: u32,
    /// The status, if the region was rolled back and its thread does not know yet.
    aborted: Option<u32>,
    read: Vec<u32>,
    written: Vec<u32>,
    overwritten: Vec<OldValue>,
    /// Lines that were read and are tracked outside of the first level.
    kept: Vec<u32>,
}

impl Region {
    fn is_active(&self) -> bool {
        self.depth > 0 && self.aborted.is_none()
    }
}

impl Machine {
    /// Begins a region, or a nested one within the open region.
    ///
    /// # Errors
    /// If the open region is rolled back. A nesting deeper than seven is one reason.
    ///
    /// # Panics
    /// If the profile has no RTM.
    pub fn begin(&mut self, thread: usize) -> Result<(), Abort> {
        assert!(self.profile.read_set.is_some(), "{} has no RTM", self.profile.name);
        self.wait_for_accesses(thread);
        self.charge_computing(thread, self.profile.latencies.begin);
        self.interrupt_if_due(thread);
        self.check(thread)?;
        if self.threads[thread].region.depth == DEPTH_MAX {
            self.abort_for_itself(thread);
            return self.check(thread);
        }
        let state = &mut self.threads[thread];
        if state.region.depth == 0 {
            state.counts.begun += 1;
        }
        state.region.depth += 1;
        Ok(())
    }

    /// Ends the region that began last. If it is the outermost, all that it wrote becomes visible to other
    /// threads.
    ///
    /// # Errors
    /// If the region is rolled back.
    ///
    /// # Panics
    /// If the thread is not in a region.
    pub fn commit(&mut self, thread: usize) -> Result<(), Abort> {
        self.wait_for_accesses(thread);
        self.interrupt_if_due(thread);
        self.check(thread)?;
        let depth = self.threads[thread].region.depth;
        assert!(depth > 0, "a region is ended outside of one");
        if depth > 1 {
            self.threads[thread].region.depth -= 1;
            return Ok(());
        }
        self.charge_computing(thread, self.profile.latencies.commit);
        let state = &mut self.threads[thread];
        state.counts.lines_read += state.region.read.len() as u64;
        state.counts.lines_written += state.region.written.len() as u64;
        self.forget_lines(thread);
        let state = &mut self.threads[thread];
        state.region.overwritten.clear();
        state.region.depth = 0;
        state.counts.committed += 1;
        Ok(())
    }

    /// Rolls the thread's region back with XABORT, and returns the status.
    ///
    /// # Panics
    /// If the thread is not in a region.
    pub fn abort(&mut self, thread: usize, operand: u8) -> Abort {
        assert!(self.threads[thread].region.depth > 0, "XABORT outside of a region does nothing");
        if self.threads[thread].region.is_active() {
            self.abort_by(thread, explicit(operand));
        }
        self.check(thread).expect_err("the region was rolled back")
    }

    /// Returns whether the thread is in a region. A region that was rolled back counts until its thread learns
    /// of it.
    #[inline]
    pub fn is_inside(&self, thread: usize) -> bool {
        self.threads[thread].region.depth > 0
    }

    /// Notes the value at `address` before the thread's region wrote there. Does nothing outside of a region.
    #[inline]
    pub fn note_overwritten(&mut self, thread: usize, address: u64, value: u64) {
        let region = &mut self.threads[thread].region;
        if region.depth > 0 {
            region.overwritten.push(OldValue { address, value });
        }
    }

    /// Returns what rolled-back regions have overwritten, for each region the newest value first. The code that
    /// knows the values must restore them in this order, before any other code reads them.
    #[inline]
    pub fn take_rolled_back(&mut self) -> impl Iterator<Item = OldValue> + '_ {
        self.rolled_back.drain(..)
    }

    /// Returns whether there is any value to restore.
    #[inline]
    pub fn has_rolled_back(&self) -> bool {
        !self.rolled_back.is_empty()
    }

    /// Returns an error if the thread's region was rolled back, so that the thread learns of it.
    #[inline]
    pub(super) fn check(&mut self, thread: usize) -> Result<(), Abort> {
        match self.threads[thread].region.aborted {
            None => Ok(()),
            Some(status) => Err(self.learn(thread, status)),
        }
    }

    #[cold]
    fn learn(&mut self, thread: usize, status: u32) -> Abort {
        self.charge_computing(thread, self.profile.latencies.abort);
        let state = &mut self.threads[thread];
        state.region.aborted = None;
        state.region.depth = 0;
        let counter = if status & EXPLICIT != 0 {
            &mut state.counts.aborted_explicit
        } else if status & CAPACITY != 0 {
            &mut state.counts.aborted_capacity
        } else if status & CONFLICT != 0 {
            &mut state.counts.aborted_conflict
        } else {
            &mut state.counts.aborted_other
        };
        *counter += 1;
        Abort { status }
    }

    /// Adds a line to those that the region has read or written.
    #[inline]
    pub(super) fn track(&mut self, thread: usize, line: u32, is_write: bool) {
        let region = &mut self.threads[thread].region;
        if region.depth == 0 {
            return;
        }
        let state = &mut self.memory[line];
        if is_write && state.writer == NO_HOLDER {
            state.writer = thread as u8;
            region.written.push(line);
        } else if !is_write && state.readers & 1 << thread == 0 {
            state.readers |= 1 << thread;
            region.read.push(line);
        }
    }

    pub(super) fn abort_by_conflict(&mut self, thread: usize) {
        self.abort_by(thread, CONFLICT | RETRY);
    }

    /// Rolls back the thread's region, if there is one, because of an action of the thread that has no status
    /// bit of its own.
    pub(super) fn abort_for_itself(&mut self, thread: usize) {
        if self.threads[thread].region.is_active() {
            self.abort_by(thread, 0);
        }
    }

    /// Rolls back the region of a thread, if there is one. The lines that it has written leave the core's
    /// caches, where the processor drops them.
    #[cold]
    pub(super) fn abort_by(&mut self, thread: usize, status: u32) {
        let region = &mut self.threads[thread].region;
        if !region.is_active() {
            return;
        }
        let nested = if region.depth > 1 { NESTED } else { 0 };
        region.aborted = Some(status | nested);
        // The values go to the machine's user, newest first. The written lines leave the caches.
        self.rolled_back.extend(region.overwritten.drain(..).rev());
        let core = self.threads[thread].core;
        for position in 0..self.threads[thread].region.written.len() {
            let line = self.threads[thread].region.written[position];
            let place = self.memory.place(line);
            self.cores[core].first_level.remove(line, place);
            self.cores[core].second_level.remove(line, place);
            let state = &mut self.memory[line];
            state.cores &= !(1 << core);
            if usize::from(state.owner) == core {
                state.owner = NO_HOLDER;
                state.is_modified = false;
            }
        }
        self.forget_lines(thread);
    }

    /// Stops tracking the lines that a region has accessed.
    fn forget_lines(&mut self, thread: usize) {
        let region = &mut self.threads[thread].region;
        for line in region.read.drain(..) {
            self.memory[line].readers &= !(1 << thread);
        }
        for line in region.written.drain(..) {
            self.memory[line].writer = NO_HOLDER;
        }
        let core = self.threads[thread].core;
        for position in 0..self.threads[thread].region.kept.len() {
            let line = self.threads[thread].region.kept[position];
            if self.readers_on(core, line) == 0 {
                let place = self.memory.place(line);
                self.cores[core].read_set.as_mut().expect("it was kept there").remove(line, place);
            }
        }
        self.threads[thread].region.kept.clear();
    }

    /// Returns the threads of a core that are in a region and have read the line, one bit each.
    pub(super) fn readers_on(&self, core: usize, line: u32) -> u128 {
        let cores = self.cores.len();
        let threads = match self.profile.threads_per_core {
            1 => 1 << core,
            _ => 1 << core | 1 << (core + cores),
        };
        self.memory[line].readers & threads
    }

    /// Tracks a line further for the regions that have read it, when it leaves the first level.
    pub(super) fn keep_read(&mut self, core: usize, line: u32) {
        let readers = self.readers_on(core, line);
        let Some(read_set) = &mut self.cores[core].read_set else { return };
        if readers == 0 {
            return;
        }
        let touched = read_set.touch(line, self.memory.place(line));
        if touched == Lookup::Hit {
            return;
        }
        for reader in members(readers) {
            self.threads[reader].region.kept.push(line);
        }
        if let Lookup::Miss(Some(evicted)) = touched {
            for reader in members(self.readers_on(core, evicted)) {
                self.abort_by(reader, CAPACITY);
            }
        }
    }
}
