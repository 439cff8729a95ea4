//! All threads of a run on one core.
//!
//! Only one of them ever runs, and to hand the baton to a thread of the same core takes a third of
//! the time that it takes to wake another core. The threads of other runs, and all others, stay
//! free to go where they like. This is for speed only: where it cannot be done, nothing is lost.

/// The core that a run's threads share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Core(#[cfg(target_os = "linux")] usize);

#[cfg(target_os = "linux")]
impl Core {
    /// The core that this thread, which is about to wait for the run to end, leaves free.
    pub(super) fn current() -> Option<Core> {
        // SAFETY: the call has no conditions.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok().map(Core)
    }

    /// Keeps this thread on the core.
    pub(super) fn keep_this_thread(self) {
        // SAFETY: a set of cores is an array of integers, for which all zeros are a value: the
        // empty set.
        let mut cores: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        if self.0 < libc::CPU_SETSIZE as usize {
            // SAFETY: the number is one that the set has room for.
            unsafe { libc::CPU_SET(self.0, &mut cores) };
            // SAFETY: the set outlives the call, and its size is given. 0 is this thread. An error
            // leaves the thread where it is allowed to be now.
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
