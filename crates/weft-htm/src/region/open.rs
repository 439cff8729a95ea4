//! Regions that outlive the function that began them.
//!
//! XBEGIN is executed in [`Regions::open`], XEND in [`Regions::close`], and any code may run in between, after
//! the frame of `open` is gone. If the region aborts then, control comes back into that frame. That is sound
//! because the abort undoes everything that happened since. The processor restores all registers, the stack
//! pointer included, and all memory, and the stack is memory. So the frame is there as it was, and XBEGIN only
//! returns another status. The compiler sees one statement that returns one status; the earlier return never
//! happened. Only an effect outside of memory and registers could survive a rollback: a system call, or input
//! and output. Those abort a region before they happen. Whatever the code in between does (user code,
//! allocation, unwinding from a panic), it is either part of a region that commits, or it never happened.
//!
//! On the simulated machine an abort unwinds: to [`Regions::restarting`], or to [`Regions::unless_undone`].

use super::{Aborts, Counter, Regions, RetryPolicy};
use crate::status::{Cause, LOCKED, STARTED};

/// A worker's state with respect to open regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// In no region.
    Outside,
    /// In a region. This is written inside the region, and an abort undoes it. So code that reads it *is* in
    /// the region.
    InRegion,
    /// In no region: the worker has taken the [lock](super::ElidedLock) itself that a region would elide.
    UnderLock,
}

/// The result of [`Regions::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    /// The region is open.
    InRegion,
    /// There is no hardware, or the retry policy gave up.
    GaveUp,
    /// The retry policy gave up at a region that was too large for the caches. It will be too large again.
    TooLarge,
}

impl Regions {
    /// Opens a region, and retries as often as `policy` allows. An abort takes the thread back to here, and
    /// undoes everything that it has done since. Regions that are [run](Regions::run) before this one is
    /// [closed](Regions::close) become part of it.
    ///
    /// # Panics
    ///
    /// If a region is already open, or the worker holds an [`ElidedLock`](super::ElidedLock).
    #[inline]
    pub fn open(&self, policy: RetryPolicy) -> OpenOutcome {
        self.open_unless(policy, || false)
    }

    /// As [`open`](Regions::open), but no region is open while `is_excluded` returns `true` when it begins. The next try
    /// waits until it returns `false`, for a bounded time.
    ///
    /// # Panics
    ///
    /// If a region is already open, or the worker holds an [`ElidedLock`](super::ElidedLock).
    #[inline]
    pub fn open_unless(&self, policy: RetryPolicy, is_excluded: impl Fn() -> bool) -> OpenOutcome {
        assert!(self.section.get() == Section::Outside, "a worker has one region open");
        self.open_if(policy, || !is_excluded(), &is_excluded)
    }

    /// Commits the open region: its changes become visible to the other threads.
    ///
    /// # Panics
    ///
    /// If no region is open.
    #[inline]
    pub fn close(&self) {
        let rtm = self.rtm_of_open();
        self.section.set(Section::Outside);
        // SAFETY: the region is open: see `Section::InRegion`. Regions that began inside it have ended, because
        // `Regions::run` ends each that it begins.
        unsafe { rtm.end() };
        #[cfg(weft_sim)]
        self.suffered.take();
        self.counters.add(Counter::Committed);
    }

    /// Rolls the open region back, because a software twin holds the lock of a word that it needs.
    ///
    /// # Panics
    ///
    /// If no region is open.
    #[inline]
    pub fn abort_open_locked(&self) -> ! {
        let rtm = self.rtm_of_open();
        // SAFETY: the region is open: see `Section::InRegion`.
        unsafe { rtm.abort::<LOCKED>() }
    }

    /// Opens a region in which `may_stay` returns `true`. If it returns `false`, the region aborts. Before the
    /// next try this waits until `still_locked` returns `false`, within the rounds of a bounded wait.
    #[inline]
    pub(super) fn open_if(
        &self,
        policy: RetryPolicy,
        may_stay: impl Fn() -> bool,
        still_locked: impl Fn() -> bool,
    ) -> OpenOutcome {
        let Some(rtm) = self.hardware() else { return OpenOutcome::GaveUp };
        #[cfg(not(weft_sim))]
        let mut aborts = Aborts::default();
        #[cfg(weft_sim)]
        let mut aborts: Aborts = self.suffered.take();
        loop {
            // On the simulated machine the region may unwind to a place from which this function is called
            // again.
            #[cfg(weft_sim)]
            self.suffered.set(aborts);
            let status = rtm.begin();
            if status == STARTED {
                if may_stay() {
                    self.section.set(Section::InRegion);
                    return OpenOutcome::InRegion;
                }
                // SAFETY: `begin` has just said that the region started.
                unsafe { rtm.abort::<LOCKED>() }
            }
            if !self.may_retry(status, policy, &mut aborts, &still_locked) {
                #[cfg(weft_sim)]
                self.suffered.take();
                return match Cause::of(status) {
                    Cause::Capacity => OpenOutcome::TooLarge,
                    Cause::Locked | Cause::Conflict | Cause::SystemEvent => OpenOutcome::GaveUp,
                };
            }
        }
    }

    #[inline]
    fn rtm_of_open(&self) -> crate::rtm::Rtm {
        match (self.section.get(), self.rtm) {
            (Section::InRegion, Some(rtm)) => rtm,
            _ => panic!("no region is open"),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle, weft_sim))))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::Htm;

    /// Protects the software backend: no region is ever open, so none can be closed.
    #[test]
    fn software_opens_no_region() {
        let regions = Regions::new(&Htm::software());
        assert_eq!(regions.open(regions.policy()), OpenOutcome::GaveUp);
        catch_unwind(AssertUnwindSafe(|| regions.close())).unwrap_err();
        let aborted = catch_unwind(AssertUnwindSafe(|| -> () { regions.abort_open_locked() }));
        aborted.unwrap_err();
        assert_eq!(regions.statistics(), crate::Statistics::default());
    }
}
