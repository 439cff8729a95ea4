//! The regions that elide the locks of sections, by the policy of *No Free Lunch* (Cervini, Porobic, Tözün,
//! Ailamaki: *Applying HTM to an OLTP System: No Free Lunch*, DaMoN 2015, §3.2).
//!
//! A region begins by reading the lock, and aborts if a thread holds it. That read is also its *subscription*:
//! a thread that takes the lock later stores to a line that the region has read, and so aborts it.
//!
//! There are two attempts, which the paper found best. What happens between them, and before the lock is taken,
//! depends on the status that the abort left:
//!
//! | the abort | then |
//! | --- | --- |
//! | the lock was held | wait until it is free |
//! | a conflict | wait 0 to 9 pauses, at random |
//! | another, and the processor says that a retry may succeed | one pause |
//! | another | take the lock at once |
//!
//! Waiting for a lock that was held avoids the lemming effect. If such an abort counted as a failed attempt,
//! one thread that takes the lock would make all others take it too, one after the other, and no thread would
//! ever elide it again.
//!
//! Departures from the paper: the wait for the lock ends after some hundred yielded time slices. The thread
//! then queues for the lock, which does not burn its core. And the random numbers come from what the worker has
//! counted, so that the same run draws the same numbers.

use super::{Counter, Regions, wait_until_free};
use crate::status::{Cause, LOCKED, Remedy};
use crate::word::spin_loop;

/// How often a section is tried in a region before its lock is taken.
const ATTEMPTS: u32 = 2;

/// The bound of the wait after a conflict: it is fewer pauses than this.
const PAUSES_MAX: u64 = 10;

impl Regions {
    /// Runs `body` in a region that elides a lock, unless `is_excluded` says, inside, that a thread holds the
    /// lock. Returns `None` if there is no hardware or the attempts have failed. The caller must then take the
    /// lock.
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

    /// Like [`elide`](Regions::elide), but makes a single attempt and does not wait.
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

    /// Makes one attempt. `Err` has the status of the abort. A body that did not commit leaves no effect.
    /// `None` means that there is no hardware.
    #[inline(always)]
    fn try_elide<R>(
        &self,
        is_excluded: &impl Fn() -> bool,
        body: &mut impl FnMut() -> R,
    ) -> Option<Result<R, u32>> {
        let rtm = self.hardware()?;
        let attempted = rtm.attempt(|| {
            if is_excluded() {
                // SAFETY: this is the body of an attempt, and so inside a region.
                unsafe { rtm.abort::<LOCKED>() }
            }
            body()
        });
        if attempted.is_ok() {
            self.counters.add(Counter::Committed);
        }
        Some(attempted)
    }

    /// Counts an abort, applies the remedy for its cause, and returns whether to try again.
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

    /// Draws how long to wait after a conflict. The numbers that two workers have counted differ as soon as one
    /// of them has had more luck than the other.
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

    /// Protects the random wait and its bound: every length below the bound occurs, and no other.
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

    /// Protects the software backend: it never runs the body, and counts nothing.
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
