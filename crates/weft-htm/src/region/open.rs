//! Regions that outlive the function that began them.
//!
//! XBEGIN is executed in [`Regions::open`], XEND in [`Regions::close`], and any code may run in between, after the
//! frame of `open` is gone. If the region aborts then, control comes back into that frame. That is sound
//! because nothing is left of what happened since: the processor puts back all registers, the stack
//! pointer included, and all memory, and the stack is memory. So the frame is there as it was, XBEGIN merely
//! answers differently, and for the compiler, which sees one statement that returns one status, the other
//! answer was never given. The one thing that could survive a roll-back is an effect outside of memory and
//! registers: a system call, or input and output. Those abort a region before they happen. Whatever the code
//! in between does (user code, allocation, unwinding from a panic), it is either part of a region that
//! commits, or it never happened.
//!
//! On the simulated machine an abort unwinds: to [`Regions::restarting`], or to [`Regions::unless_undone`].

use super::{Aborts, Counter, Regions, RetryPolicy};
use crate::status::{Cause, LOCKED, STARTED};

/// Where a worker is, as to regions that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// In none.
    Outside,
    /// In one. Written inside the region: an abort undoes it, so whoever reads this *is* in the region.
    InRegion,
    /// In none, but it has taken the [lock](super::ElidedLock) for which one would stand.
    UnderLock,
}

/// What has become of [`Regions::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The region is open.
    InRegion,
    /// There is no hardware, or the retry policy gave up.
    GaveUp,
    /// The retry policy gave up at a region that was too large for the caches. The same will be so again.
    TooLarge,
}

impl Regions {
    /// Opens a region, as often as `policy` allows. An abort takes the thread back to here, and what it has done
    /// since has not happened then. Regions that are [run](Regions::run) before it is
    /// [closed](Regions::close) are part of it.
    ///
    /// # Panics
    ///
    /// One is open already, or the worker holds an [`ElidedLock`](super::ElidedLock).
    #[inline]
    pub fn open(&self, policy: RetryPolicy) -> Opened {
        assert!(self.section.get() == Section::Outside, "a worker has one region open");
        self.open_if(policy, || true, || false)
    }

    /// Commits the region that is open: what was done in it appears to the other threads.
    ///
    /// # Panics
    ///
    /// None is.
    #[inline]
    pub fn close(&self) {
        let rtm = self.rtm_of_open();
        self.section.set(Section::Outside);
        // SAFETY: the region is open: see `Section::InRegion`. Regions that began since have ended: a body of
        // `Regions::run` does.
        unsafe { rtm.end() };
        #[cfg(weft_sim)]
        self.suffered.take();
        self.counters.add(Counter::Committed);
    }

    /// Rolls the region back that is open, because a word that it met is locked by a software twin.
    ///
    /// # Panics
    ///
    /// None is.
    #[inline]
    pub fn abort_open_locked(&self) -> ! {
        let rtm = self.rtm_of_open();
        // SAFETY: the region is open: see `Section::InRegion`.
        unsafe { rtm.abort::<LOCKED>() }
    }

    /// Opens a region in which `may_stay` holds; before it tries again after one in which that did not, it waits
    /// until `still_locked` answers `false`, or patience runs out.
    #[inline]
    pub(super) fn open_if(
        &self,
        policy: RetryPolicy,
        may_stay: impl Fn() -> bool,
        still_locked: impl Fn() -> bool,
    ) -> Opened {
        let Some(rtm) = self.hardware() else { return Opened::GaveUp };
        #[cfg(not(weft_sim))]
        let mut aborts = Aborts::default();
        #[cfg(weft_sim)]
        let mut aborts: Aborts = self.suffered.take();
        loop {
            // The region may unwind to a place from which this function is called again.
            #[cfg(weft_sim)]
            self.suffered.set(aborts);
            let status = rtm.begin();
            if status == STARTED {
                if may_stay() {
                    self.section.set(Section::InRegion);
                    return Opened::InRegion;
                }
                // SAFETY: `begin` has just said that the region started.
                unsafe { rtm.abort::<LOCKED>() }
            }
            if !self.may_retry(status, policy, &mut aborts, &still_locked) {
                #[cfg(weft_sim)]
                self.suffered.take();
                return match Cause::of(status) {
                    Cause::Capacity => Opened::TooLarge,
                    Cause::Locked | Cause::Conflict | Cause::SystemEvent => Opened::GaveUp,
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

    /// Protects the software backend: none is ever open, so none can be closed.
    #[test]
    fn software_opens_none() {
        let regions = Regions::new(&Htm::software());
        assert_eq!(regions.open(regions.policy()), Opened::GaveUp);
        catch_unwind(AssertUnwindSafe(|| regions.close())).unwrap_err();
        let aborted = catch_unwind(AssertUnwindSafe(|| -> () { regions.abort_open_locked() }));
        aborted.unwrap_err();
        assert_eq!(regions.statistics(), crate::Statistics::default());
    }
}
