//! Hardware regions: RTM, as far as a program can tell.
//!
//! What a region reads and writes is noted line by line. **Writes** must stay in the first-level
//! cache: when a line that the region has written is evicted, for whatever reason, by whichever thread
//! of the core, the region aborts ([`CAPACITY`]). **Reads** go on being tracked after they have left
//! that cache, in a structure of the core whose size is the profile's; when a line falls out of that,
//! the region that has read it aborts in the same way. **Conflicts** are seen at
//! the access, and the one who accesses wins: any access of another thread to a written line, and a
//! write of another thread to a line that was read, aborts the region at once, whether that thread
//! is in a region or not (strong atomicity). **Nesting** is flat, seven deep; an abort ends the
//! outermost region.
//!
//! A region that is aborted by others learns of it at its next step. Until then it does nothing, so
//! it never sees a state that is not its own. Its writes are gone at once: whoever caused the abort
//! sees what was there before.

use super::cache::Touched;
use super::{Machine, NOBODY, Overwritten, members};
use crate::status::{CAPACITY, CONFLICT, EXPLICIT, NESTED, RETRY, explicit};

/// How deep regions may be nested in each other.
const DEPTH_MAX: u32 = 7;

/// The thread's region was rolled back; what it has overwritten is restored, or waits in
/// [`Machine::take_rolled_back`] to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted {
    /// What XBEGIN now leaves in EAX (see [`status`](crate::status)).
    pub status: u32,
}

/// The region of one thread.
#[derive(Debug, Default)]
pub(super) struct Region {
    /// How many regions are open; 0 outside.
    depth: u32,
    /// The region was rolled back, which its thread does not know yet.
    aborted: Option<u32>,
    read: Vec<u32>,
    written: Vec<u32>,
    overwritten: Vec<Overwritten>,
    /// Lines that were read and are tracked outside of the first level.
    kept: Vec<u32>,
}

impl Region {
    fn is_active(&self) -> bool {
        self.depth > 0 && self.aborted.is_none()
    }
}

impl Machine {
    /// Begins a region, or one within the region that is open.
    ///
    /// # Errors
    /// The region that is open is rolled back; a nesting deeper than seven is one reason.
    ///
    /// # Panics
    /// The profile has no RTM.
    pub fn begin(&mut self, thread: usize) -> Result<(), Aborted> {
        assert!(self.profile.read_set.is_some(), "{} has no RTM", self.profile.name);
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

    /// Ends the region that began last. If it is the outermost, all that it wrote is there for
    /// everybody.
    ///
    /// # Errors
    /// The region is rolled back.
    ///
    /// # Panics
    /// The thread is in no region.
    pub fn commit(&mut self, thread: usize) -> Result<(), Aborted> {
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
    /// The thread is in no region.
    pub fn abort(&mut self, thread: usize, operand: u8) -> Aborted {
        assert!(self.threads[thread].region.depth > 0, "XABORT outside of a region does nothing");
        if self.threads[thread].region.is_active() {
            self.abort_by(thread, explicit(operand));
        }
        self.check(thread).expect_err("the region was rolled back")
    }

    /// Whether the thread is in a region. One that was rolled back counts until its thread knows.
    #[inline]
    pub fn is_inside(&self, thread: usize) -> bool {
        self.threads[thread].region.depth > 0
    }

    /// Notes what stood at `address` before the region of the thread wrote there. Nothing outside
    /// of a region.
    #[inline]
    pub fn note_overwritten(&mut self, thread: usize, address: u64, value: u64) {
        let region = &mut self.threads[thread].region;
        if region.depth > 0 {
            region.overwritten.push(Overwritten { address, value });
        }
    }

    /// What regions that were rolled back have overwritten, the newest value of each first. Whoever
    /// knows the values puts them back in this order, before anything else reads them.
    #[inline]
    pub fn take_rolled_back(&mut self) -> impl Iterator<Item = Overwritten> + '_ {
        self.rolled_back.drain(..)
    }

    /// Whether there is anything to put back.
    #[inline]
    pub fn has_rolled_back(&self) -> bool {
        !self.rolled_back.is_empty()
    }

    /// Lets a thread know that its region was rolled back.
    #[inline]
    pub(super) fn check(&mut self, thread: usize) -> Result<(), Aborted> {
        match self.threads[thread].region.aborted {
            None => Ok(()),
            Some(status) => Err(self.learn(thread, status)),
        }
    }

    #[cold]
    fn learn(&mut self, thread: usize, status: u32) -> Aborted {
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
        Aborted { status }
    }

    /// Adds a line to what the region has read or written.
    #[inline]
    pub(super) fn track(&mut self, thread: usize, line: u32, is_write: bool) {
        let region = &mut self.threads[thread].region;
        if region.depth == 0 {
            return;
        }
        let state = &mut self.memory[line];
        if is_write && state.writer == NOBODY {
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

    /// Rolls back the thread's region, if it is in one, for something that it does itself and that
    /// has no bit of its own.
    pub(super) fn abort_for_itself(&mut self, thread: usize) {
        if self.threads[thread].region.is_active() {
            self.abort_by(thread, 0);
        }
    }

    /// Rolls back the region of a thread that is in one. What it has written leaves its caches, as
    /// the processor drops it there.
    #[cold]
    pub(super) fn abort_by(&mut self, thread: usize, status: u32) {
        let region = &mut self.threads[thread].region;
        if !region.is_active() {
            return;
        }
        let nested = if region.depth > 1 { NESTED } else { 0 };
        region.aborted = Some(status | nested);
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
                state.owner = NOBODY;
                state.is_modified = false;
            }
        }
        self.forget_lines(thread);
    }

    /// Stops tracking what a region has touched.
    fn forget_lines(&mut self, thread: usize) {
        let region = &mut self.threads[thread].region;
        for line in region.read.drain(..) {
            self.memory[line].readers &= !(1 << thread);
        }
        for line in region.written.drain(..) {
            self.memory[line].writer = NOBODY;
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

    /// The threads of a core in a region that have read the line, a bit each.
    pub(super) fn readers_on(&self, core: usize, line: u32) -> u128 {
        let cores = self.cores.len();
        let threads = match self.profile.threads_per_core {
            1 => 1 << core,
            _ => 1 << core | 1 << (core + cores),
        };
        self.memory[line].readers & threads
    }

    /// Goes on tracking a line for the regions that have read it, when it leaves the first level.
    pub(super) fn keep_read(&mut self, core: usize, line: u32) {
        let readers = self.readers_on(core, line);
        let Some(read_set) = &mut self.cores[core].read_set else { return };
        if readers == 0 {
            return;
        }
        let touched = read_set.touch(line, self.memory.place(line));
        if touched == Touched::Hit {
            return;
        }
        for reader in members(readers) {
            self.threads[reader].region.kept.push(line);
        }
        if let Touched::Miss(Some(evicted)) = touched {
            for reader in members(self.readers_on(core, evicted)) {
                self.abort_by(reader, CAPACITY);
            }
        }
    }
}
