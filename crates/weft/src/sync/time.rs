//! The time of a database: one number that never decreases, and that transactions take as their *now*.
//!
//! A transaction reads `present` once, when it begins. Two transactions that run at the same time may have different
//! *nows*, and the one with the earlier *now* may be the later one in the serial order. That is wrong if it shows: if
//! the later one still sees a row that had expired for the earlier one. So a transaction that has looked at the time
//! keeps two rules when it commits:
//!
//! ```text
//!   1  settle its now      claimed := now (if that is more);  wait for the commits under way;  settled := now
//!   2  check its end       announce the commit;  if claimed >= until: conflict
//!      commit
//! ```
//!
//! `until` is the earliest time at which it would have seen something else: the expiry of a row that it has seen, or
//! the next millisecond if it has asked for the time itself.
//!
//! Say transaction A commits with a *now* that is not before B's `until`. Then B is not after A in the serial
//! order. B checks its end after it has announced its commit, and A waits for announced commits after it has claimed
//! its *now* (both steps on each side are sequentially consistent). So B either finds A's claim, and gives up, or A
//! waits until B has installed its writes, and only then commits. Only the first transaction of each *now* waits.
//!
//! Therefore each transaction can be given a time from its *now* on and before its `until`, such that these times
//! never decrease along the serial order. The protocols need not know of it.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use weft_htm::word::{Ordering, Word};

use super::clock::ActivityWords;

/// The time of a database, in milliseconds since 1970, on a cache line of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
pub struct Time {
    present: Word,
    claimed: Word,
    settled: Word,
    /// The greatest *now* that the log has.
    logged: Word,
    /// Whether the time does not follow the system's clock: 1 or 0.
    is_manual: Word,
    /// A mistake that is made on purpose.
    #[cfg(feature = "canary")]
    pub flaw: Option<TimeFlaw>,
}

/// What can be wrong with a database's time, on purpose: to test the tests.
#[cfg(feature = "canary")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFlaw {
    /// A transaction does not check its end when it commits.
    EndNotChecked,
    /// A transaction claims its *now*, and does not wait for the commits under way.
    CommitsNotAwaited,
    /// A procedure in pieces does not hold its *now*.
    NotHeld,
}

/// How often a thread yields while it waits for commits, before it gives up. A protocol may make one commit wait for
/// another transaction, which must not wait for that commit.
const YIELDS_MAX: u32 = 1000;

/// Raises a word to `value`, if it is less.
fn raise(word: &Word, value: u64) {
    let mut before = word.load(Ordering::SeqCst);
    while before < value
        && let Err(now) = word.compare_exchange(before, value, Ordering::SeqCst, Ordering::SeqCst)
    {
        before = now;
    }
}

impl Time {
    /// Returns the present time.
    ///
    /// Relaxed: a transaction that begins after another one has returned has synchronized with it, and does not see
    /// an older value.
    #[inline(always)]
    pub fn present(&self) -> u64 {
        self.present.load(Ordering::Relaxed)
    }

    /// Advances the time to `time`, if that is later. It never goes back.
    pub fn advance_to(&self, time: u64) {
        raise(&self.present, time);
    }

    /// Returns whether the time does not follow the system's clock.
    pub fn is_manual(&self) -> bool {
        // SeqCst: rare.
        self.is_manual.load(Ordering::SeqCst) != 0
    }

    /// Says whether the time does not follow the system's clock.
    pub fn set_manual(&self, is_manual: bool) {
        self.is_manual.store(is_manual.into(), Ordering::SeqCst);
    }

    /// Advances the time to that of the system's clock, unless the time is set by hand.
    pub fn follow_system(&self) {
        if !self.is_manual() {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.advance_to(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        }
    }

    /// Returns the greatest *now* that a transaction which has looked at the time may commit with.
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::SeqCst)
    }

    /// Returns the greatest *now* with which a transaction wants to commit. The caller has announced its commit,
    /// with a fence after it.
    pub fn claimed(&self) -> u64 {
        #[cfg(feature = "canary")]
        if self.flaw == Some(TimeFlaw::EndNotChecked) {
            return 0;
        }
        self.claimed.load(Ordering::SeqCst)
    }

    /// Settles a *now*: waits until every commit under way that may not come after it has ended. Returns false if a
    /// commit did not end. The caller is not committing.
    #[inline]
    pub fn settle(&self, now: u64, commits: &ActivityWords, slots_used: usize) -> bool {
        self.settled() >= now || self.settle_slowly(now, commits, slots_used)
    }

    #[cold]
    fn settle_slowly(&self, now: u64, commits: &ActivityWords, slots_used: usize) -> bool {
        raise(&self.claimed, now);
        #[cfg(feature = "canary")]
        let slots_used =
            if self.flaw == Some(TimeFlaw::CommitsNotAwaited) { 0 } else { slots_used };
        let yields = Cell::new(0);
        let waited = commits.wait_while(slots_used, || {
            yields.set(yields.get() + 1);
            if yields.get() < YIELDS_MAX { Ok(()) } else { Err(()) }
        });
        if waited.is_ok() {
            raise(&self.settled, now);
        }
        waited.is_ok()
    }

    /// Calls `log`, which must write a *now* to the log, unless the log has it already, or a later one.
    #[inline]
    pub fn log(&self, now: u64, log: impl FnOnce()) {
        if self.logged.load(Ordering::SeqCst) < now {
            log();
            raise(&self.logged, now);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_time_never_goes_back() {
        let time = Time::default();
        time.set_manual(true);
        time.advance_to(100);
        time.advance_to(90);
        time.follow_system();
        assert_eq!(time.present(), 100);
    }

    #[test]
    fn a_now_is_not_settled_while_a_commit_does_not_end() {
        let (time, commits) = (Time::default(), ActivityWords::new(1));
        commits.begin(0);
        assert!(!time.settle(5, &commits, 1));
        assert_eq!((time.claimed(), time.settled()), (5, 0));
        commits.end(0);
        assert!(time.settle(5, &commits, 1));
        assert_eq!(time.settled(), 5);
        commits.begin(0);
        assert!(time.settle(4, &commits, 1), "it was settled with 5");
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;
    use weft_htm::word::fence;

    /// A transaction that has seen a row until 5 does not commit after one for which the row had expired at 5.
    #[test]
    fn loom_time_a_row_is_not_seen_after_it_has_expired_for_another() {
        loom::model(|| {
            let (time, commits) = (Arc::new(Time::default()), Arc::new(ActivityWords::new(2)));
            // The order of the two commits.
            let order = Arc::new(Word::new(0));
            let sees_it = {
                let (time, commits, order) = (time.clone(), commits.clone(), order.clone());
                thread::spawn(move || {
                    commits.announce(1);
                    fence(Ordering::SeqCst);
                    let place = (time.claimed() < 5).then(|| order.fetch_add(1, Ordering::SeqCst));
                    commits.end(1);
                    place
                })
            };
            let has_settled = time.settle(5, &commits, 2);
            let place = has_settled.then(|| order.fetch_add(1, Ordering::SeqCst));
            if let (Some(sees_it), Some(place)) = (sees_it.join().unwrap(), place) {
                assert!(sees_it < place);
            }
        });
    }
}
