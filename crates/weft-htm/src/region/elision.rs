//! The regions that stand for the sections of elidable locks, by the policy of *No Free Lunch*
//! (Cervini, Porobic, Tözün, Ailamaki: *Applying HTM to an OLTP System: No Free Lunch*, DaMoN 2015,
//! §3.2).
//!
//! A region begins by reading the lock, and aborts if somebody holds it. That is also its
//! *subscription*: whoever takes the lock later stores to a line that the region has read, and so
//! aborts it.
//!
//! There are two attempts, which the paper found best. What comes between them, and before the lock
//! is taken, depends on the status that the abort left:
//!
//! | the abort | then |
//! | --- | --- |
//! | the lock was held | wait until it is free |
//! | a conflict | wait 0 to 9 pauses, at random |
//! | another, of which the processor says that a retry may succeed | one pause |
//! | another | take the lock at once |
//!
//! To wait for a lock that was held is what avoids the lemming effect: were it an attempt lost like
//! any other, one thread that takes the lock would send all others to take it too, one after the
//! other, and none would ever elide it again.
//!
//! Departures from the paper: the wait for the lock ends after some hundred time slices that were
//! given away, since the thread then queues for the lock, which it does without burning its core;
//! and the random numbers come from what the worker has counted, so that the same run draws the
//! same.

use super::{Counter, Regions, wait_until_free};
use crate::status::{Cause, LOCKED, Remedy};
use crate::word::spin_loop;

/// How often a section is tried in a region before its lock is taken.
const ATTEMPTS: u32 = 2;

/// A conflict is waited out for fewer pauses than this.
const PAUSES_MAX: u64 = 10;

impl Regions {
    /// Runs `body` in a region that stands for a lock, unless `is_excluded` says, inside, that
    /// somebody holds the lock. `None`: there is no hardware, or the attempts have failed; the lock
    /// has to be taken.
    #[inline(always)]
    pub(crate) fn elide<R>(
        &self,
        is_excluded: impl Fn() -> bool,
        body: &mut impl FnMut() -> R,
    ) -> Option<R> {
        let mut attempt = 1;
        loop {
            match self.try_elide(&is_excluded, body)? {
                Ok(result) => return Some(result),
                Err(status) if !self.remedy(status, attempt, &is_excluded) => return None,
                Err(_) => attempt += 1,
            }
        }
    }

    /// Likewise, by a single attempt that waits for nothing.
    #[inline(always)]
    pub(crate) fn elide_once<R>(
        &self,
        is_excluded: impl Fn() -> bool,
        body: &mut impl FnMut() -> R,
    ) -> Option<R> {
        match self.try_elide(&is_excluded, body)? {
            Ok(result) => Some(result),
            Err(status) => {
                self.count_abort(status);
                self.count_fallback();
                None
            }
        }
    }

    /// One attempt; `Err` has the status of the abort. Of a body that did not commit nothing
    /// remains.
    #[inline(always)]
    fn try_elide<R>(
        &self,
        is_excluded: &impl Fn() -> bool,
        body: &mut impl FnMut() -> R,
    ) -> Option<Result<R, u32>> {
        let rtm = self.hardware()?;
        let attempted = rtm.attempt(|| {
            if is_excluded() {
                // SAFETY: in the body of an attempt, which is a region.
                unsafe { rtm.abort::<LOCKED>() }
            }
            body()
        });
        if attempted.is_ok() {
            self.counters.add(Counter::Committed);
        }
        Some(attempted)
    }

    /// Counts an abort, does what helps against its cause, and says whether to try again.
    #[cold]
    #[inline(never)]
    fn remedy(&self, status: u32, attempt: u32, is_excluded: &dyn Fn() -> bool) -> bool {
        self.count_abort(status);
        let may_succeed = match Remedy::of(status) {
            Remedy::WaitForLock => wait_until_free(is_excluded),
            Remedy::BackOff => {
                (0..self.draw_pauses()).for_each(|_| spin_loop());
                true
            }
            Remedy::Nothing => {
                spin_loop();
                true
            }
            Remedy::TakeLock => false,
        };
        let retry = may_succeed && attempt < ATTEMPTS;
        if !retry {
            self.count_fallback();
        }
        retry
    }

    fn count_abort(&self, status: u32) {
        self.counters.add(match Cause::of(status) {
            Cause::Locked => Counter::Locked,
            Cause::Conflict => Counter::Conflict,
            Cause::Capacity => Counter::Capacity,
            Cause::SystemEvent => Counter::SystemEvent,
        });
    }

    /// How long to wait after a conflict. What two workers have counted differs as soon as one of
    /// them has been luckier than the other.
    fn draw_pauses(&self) -> u64 {
        let counted = self.counters.get(Counter::Committed) << 20
            ^ self.counters.get(Counter::Conflict) << 4
            ^ self.counters.get(Counter::Fallback);
        let scattered = (counted ^ counted >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (scattered >> 32) % PAUSES_MAX
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Htm;

    /// Protects the bounds of the random wait, and that it is one: every length comes, none longer.
    #[test]
    fn waits_after_conflicts_are_of_every_length() {
        let regions = Regions::new(&Htm::software());
        let mut drawn = [0_u32; PAUSES_MAX as usize];
        for _ in 0..10_000 {
            regions.counters.add(Counter::Conflict);
            drawn[regions.draw_pauses() as usize] += 1;
        }
        assert!(drawn.iter().all(|&count| count > 500), "{drawn:?}");
    }

    /// Protects the software backend: the body is never run, and nothing is counted.
    #[test]
    fn software_elides_nothing() {
        let regions = Regions::new(&Htm::software());
        let elided = regions.elide(|| panic!("asked"), &mut || panic!("ran"));
        assert_eq!(elided, None::<()>);
        let elided = regions.elide_once(|| panic!("asked"), &mut || panic!("ran"));
        assert_eq!(elided, None::<()>);
        assert_eq!(regions.statistics(), crate::Statistics::default());
    }
}
