//! Keeps all threads of a run on one core.
//!
//! Only one of them ever runs. To hand the baton to a thread of the same core takes a third of the time that it
//! takes to wake another core. The threads of other runs, and all other threads, stay free to move. This is for
//! speed only: where it cannot be done, the run is merely slower.

/// The core that a run's threads share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Core(#[cfg(target_os = "linux")] usize);

#[cfg(target_os = "linux")]
impl Core {
    /// Returns the core of this thread, which is free for the run: this thread is about to wait for the run's
    /// end.
    pub(super) fn current() -> Option<Core> {
        // SAFETY: the call has no preconditions.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok().map(Core)
    }

    /// Binds this thread to the core.
    pub(super) fn keep_this_thread(self) {
        // SAFETY: a set of cores is an array of integers. All zeros is a valid value: the empty set.
        let mut cores: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        if self.0 < libc::CPU_SETSIZE as usize {
            // SAFETY: the number is within the set's capacity.
            unsafe { libc::CPU_SET(self.0, &mut cores) };
            // SAFETY: the set outlives the call, and its size is given. 0 is this thread. If the call fails,
            // the thread stays where it is allowed to be now.
            unsafe { libc::sched_setaffinity(0, size_of_val(&cores), &cores) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Core {
    pub(super) fn current() -> Option<Core> {
        None
    }

    pub(super) fn keep_this_thread(self) {}
}
