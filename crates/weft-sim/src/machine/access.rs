//! One access: which threads must give up the line, where it comes from, and what must make room for it.

use super::cache::Lookup;
use super::overlap::Fetch;
use super::{Abort, Access, Machine, NO_HOLDER, members};
use crate::profile::LINES_PER_PAGE;
use crate::status::CAPACITY;

impl Machine {
    /// Accesses the word at `address`. Rolls back the regions of other threads that collide with it: restore
    /// what [`Machine::take_rolled_back`] returns before you make the access.
    ///
    /// # Errors
    /// If the thread's own region is rolled back. The access then does not take place.
    #[inline]
    pub fn access(&mut self, thread: usize, address: u64, access: Access) -> Result<(), Abort> {
        self.threads[thread].counts.accesses += 1;
        self.access_uncounted(thread, address, access)
    }

    /// Stores to memory that no other thread uses, such as the stack. This is not counted as an access.
    ///
    /// # Errors
    /// As for [`Machine::access`].
    pub fn access_private(&mut self, thread: usize, address: u64) -> Result<(), Abort> {
        self.access_uncounted(thread, address, Access::Store)
    }

    #[inline]
    fn access_uncounted(
        &mut self,
        thread: usize,
        address: u64,
        access: Access,
    ) -> Result<(), Abort> {
        self.interrupt_if_due(thread);
        self.check(thread)?;
        if access == Access::Exchange {
            self.wait_for_accesses(thread);
        }
        let line = self.line(thread, address);
        if self.memory.is_absent(line) {
            self.fault(thread, line)?;
        }
        let is_write = matches!(access, Access::Store | Access::Exchange);
        // The requester wins: regions of other threads that conflict are rolled back first.
        self.resolve_conflicts(thread, line, is_write);
        let fetch = self.fetch(thread, line, is_write);
        self.charge_access(thread, line, access, fetch);
        // The line that made room may have been one of the region's own.
        self.check(thread)?;
        self.track(thread, line, is_write);
        Ok(())
    }

    /// Handles the first touch of a page. In a region it aborts the region, and the page stays absent.
    #[cold]
    fn fault(&mut self, thread: usize, line: u32) -> Result<(), Abort> {
        self.abort_for_itself(thread);
        self.check(thread)?;
        self.wait_for_accesses(thread);
        let socket = self.cores[self.threads[thread].core].socket;
        self.memory.map(line, socket);
        self.threads[thread].clock += self.profile.latencies.page_fault;
        self.threads[thread].counts.page_faults += 1;
        Ok(())
    }

    /// Rolls back the regions of other threads that conflict with this access: the thread that requests a line
    /// wins it.
    #[inline]
    fn resolve_conflicts(&mut self, thread: usize, line: u32, is_write: bool) {
        let state = &self.memory[line];
        let (readers, writer) = (state.readers, state.writer);
        if writer != NO_HOLDER && usize::from(writer) != thread {
            self.abort_by_conflict(writer.into());
        }
        let others = readers & !(1 << thread);
        if is_write && others != 0 {
            members(others).for_each(|other| self.abort_by_conflict(other));
        }
    }

    /// Brings a line into the core's caches, for writing if `is_write`, and returns how. `None` if the first level
    /// held it.
    #[inline]
    fn fetch(&mut self, thread: usize, line: u32, is_write: bool) -> Option<Fetch> {
        let core = self.threads[thread].core;
        let place = self.memory.place(line);
        let first = self.cores[core].first_level.touch(line, place);
        if first == Lookup::Hit {
            let state = &mut self.memory[line];
            if !is_write || usize::from(state.owner) == core {
                state.is_modified |= is_write;
                return None;
            }
        }
        let mut cycles = 0;
        let mut is_streamed = false;
        if let Lookup::Miss(evicted) = first {
            if let Some(evicted) = evicted {
                self.leave_first_level(core, evicted);
            }
            cycles = match self.cores[core].second_level.touch(line, place) {
                Lookup::Hit => self.profile.latencies.second_level,
                Lookup::Miss(evicted) => {
                    if let Some(evicted) = evicted {
                        self.leave_second_level(core, evicted);
                    }
                    self.threads[thread].counts.misses += 1;
                    0
                }
            };
        }
        // The directory says whether the core holds the line. If it does not, the line comes from elsewhere.
        let state = self.memory[line];
        let is_there = state.cores & 1 << core != 0;
        if !is_there {
            Fetch { cycles, is_streamed } = self.fetch_from_elsewhere(thread, line, place);
        }
        self.memory[line].cores |= 1 << core;
        if is_write {
            let taken = self.take_from_all_others(thread, line);
            is_streamed &= taken <= cycles;
            cycles = cycles.max(taken);
            let state = &mut self.memory[line];
            state.owner = core as u8;
            state.is_modified = true;
        }
        // An exclusive line of this core only changes its state.
        (cycles > 0).then_some(Fetch { cycles, is_streamed })
    }

    /// Finds the nearest copy of a line that the core does not hold, and returns how it is fetched.
    fn fetch_from_elsewhere(&mut self, thread: usize, line: u32, place: u64) -> Fetch {
        let latencies = self.profile.latencies;
        let core = self.threads[thread].core;
        let socket = self.cores[core].socket;
        let state = self.memory[line];
        // Every fetch also fills the socket's last level.
        let in_last_level = self.enter_last_level(socket, line, place);
        // The owner's copy becomes a shared one.
        if state.owner != NO_HOLDER {
            let owner = usize::from(state.owner);
            let state = &mut self.memory[line];
            state.owner = NO_HOLDER;
            state.is_modified = false;
            self.threads[thread].counts.transfers += 1;
            let cycles = match self.cores[owner].socket == socket {
                true => latencies.other_core,
                false => latencies.other_socket,
            };
            return Fetch { cycles, is_streamed: false };
        }
        if state.cores == 0 {
            // No other core has the line: it is exclusive.
            self.memory[line].owner = core as u8;
        }
        let from_others = |other: usize| self.cores[other].socket == socket;
        let cycles = if in_last_level {
            latencies.last_level
        } else if members(state.cores).any(from_others) {
            latencies.other_core
        } else if state.cores != 0 {
            latencies.other_socket
        } else if self.memory.home(line) == socket {
            latencies.memory
        } else {
            latencies.other_memory
        };
        // A line that follows the one fetched before, in the same page, is already being prefetched.
        let before = std::mem::replace(&mut self.threads[thread].fetched, line);
        let is_next = before.checked_add(1) == Some(line);
        let is_streamed = is_next
            && !u64::from(line).is_multiple_of(LINES_PER_PAGE)
            && latencies.streamed < cycles;
        Fetch { cycles: if is_streamed { latencies.streamed } else { cycles }, is_streamed }
    }

    /// Takes a line from all cores but the thread's own, and returns how many cycles pass until all have
    /// answered.
    fn take_from_all_others(&mut self, thread: usize, line: u32) -> u64 {
        let core = self.threads[thread].core;
        let socket = self.cores[core].socket;
        let place = self.memory.place(line);
        let mut cycles = 0;
        for other in members(self.memory[line].cores & !(1 << core)) {
            let holder = &mut self.cores[other];
            holder.first_level.remove(line, place);
            holder.second_level.remove(line, place);
            let latencies = &self.profile.latencies;
            if holder.socket == socket {
                cycles = cycles.max(latencies.other_core);
            } else {
                self.last_levels[holder.socket].remove(line, place);
                cycles = cycles.max(latencies.other_socket);
            }
        }
        self.memory[line].cores = 1 << core;
        cycles
    }

    /// Accesses a line in the last level of a socket, and returns whether it was there.
    fn enter_last_level(&mut self, socket: usize, line: u32, place: u64) -> bool {
        match self.last_levels[socket].touch(line, place) {
            Lookup::Hit => true,
            Lookup::Miss(evicted) => {
                if let Some(evicted) = evicted {
                    self.leave_last_level(socket, evicted);
                }
                false
            }
        }
    }

    /// Handles the eviction of a line from the first level. If a region has written it, the region aborts. If a
    /// region has read it, the line is tracked elsewhere from now on.
    fn leave_first_level(&mut self, core: usize, line: u32) {
        let state = self.memory[line];
        if state.writer != NO_HOLDER && self.threads[usize::from(state.writer)].core == core {
            self.abort_by(state.writer.into(), CAPACITY);
        }
        self.keep_read(core, line);
        let place = self.memory.place(line);
        if !self.cores[core].second_level.holds(line, place) {
            self.leave_core(core, line);
        }
    }

    fn leave_second_level(&mut self, core: usize, line: u32) {
        let place = self.memory.place(line);
        if !self.cores[core].first_level.holds(line, place) {
            self.leave_core(core, line);
        }
    }

    /// Notes that the core no longer holds a copy.
    fn leave_core(&mut self, core: usize, line: u32) {
        let state = &mut self.memory[line];
        state.cores &= !(1 << core);
        if usize::from(state.owner) == core {
            state.owner = NO_HOLDER;
            state.is_modified = false;
        }
    }

    /// Handles the eviction of a line from the last level. An inclusive last level also takes it from its
    /// cores, and so from their regions.
    fn leave_last_level(&mut self, socket: usize, line: u32) {
        if !self.profile.is_inclusive {
            return;
        }
        let state = self.memory[line];
        let place = self.memory.place(line);
        for core in members(state.cores) {
            if self.cores[core].socket == socket {
                self.cores[core].first_level.remove(line, place);
                self.cores[core].second_level.remove(line, place);
                self.leave_core(core, line);
            }
        }
        if state.writer != NO_HOLDER && self.socket_of(state.writer.into()) == socket {
            self.abort_by(state.writer.into(), CAPACITY);
        }
    }

    fn socket_of(&self, thread: usize) -> usize {
        self.cores[self.threads[thread].core].socket
    }
}
