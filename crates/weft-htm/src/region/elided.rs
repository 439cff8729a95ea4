//! *Lock elision*: a lock that a thread does not take if a hardware region can do without.
//!
//! It is one coarse lock with two ways to hold it. The first is a region. It starts at [`ElidedLock::enter`],
//! ends at [`ElidedLock::leave`], and only *reads* the lock, so that any number of threads can be inside at a
//! time as long as their accesses do not collide. If regions keep aborting, the thread takes the lock itself,
//! by a store, which aborts every region that has read it. No region starts again before the lock is free. So a
//! thread that holds the lock itself is alone. A thread in a region does not see other threads' changes, nor
//! they its own, until the region ends.
//!
//! ```text
//!   63                       2      1        0
//!  +--------------------------+----------+------+
//!  |            0             | reserved | held |        a region starts only if all is 0
//!  +--------------------------+----------+------+
//! ```
//!
//! XBEGIN is executed in `enter`, XEND in `leave`, and any code may run in between: [`open`](super::open) says
//! why that is sound. Whatever that code does is either part of a region that commits, or it never happened and
//! is done again under the lock.
//!
//! **Fairness.** A thread that waits for the lock spins, then yields its time slices. After a while it
//! *reserves* the lock. From then on no other thread can take the lock, nor start a region, until that thread
//! has held it.
use super::open::{Opened, Section};
use super::{Regions, WAIT_ROUNDS_SPINNING};
use crate::word::{Ordering, Word, spin_loop, yield_now};

const HELD: u64 = 1 << 0;
const RESERVED: u64 = 1 << 1;

/// Time slices that a waiting thread yields before it reserves the lock.
const YIELDS_BEFORE_RESERVING: u32 = 32;

/// A mutual-exclusion lock that hardware regions elide.
///
/// ```
/// use weft_htm::{Choice, ElidedLock, Htm, Regions, RetryPolicy, word::{Ordering, Word}};
///
/// let htm = Htm::open(Choice::Auto, RetryPolicy::default()).unwrap();
/// let (lock, counter) = (ElidedLock::default(), Word::new(0));
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| {
///             let regions = Regions::new(&htm); // one per worker thread
///             for _ in 0..100 {
///                 lock.enter(&regions);
///                 counter.store(counter.load(Ordering::Acquire) + 1, Ordering::Release);
///                 lock.leave(&regions);
///             }
///         });
///     }
/// });
/// assert_eq!(counter.load(Ordering::Acquire), 200);
/// ```
#[derive(Debug, Default)]
#[repr(align(128))] // alone on its line and on the one that is fetched with it: see `Counters`
pub struct ElidedLock {
    word: Word,
}

impl ElidedLock {
    /// Enters the section that the lock protects: in a region, as often as the retry policy allows, and
    /// otherwise by taking the lock. Waits while another thread holds the lock itself.
    ///
    /// An abort of the region takes the thread back to here, and undoes everything that it has done since.
    ///
    /// # Panics
    ///
    /// If the worker of `regions` already holds an elided lock.
    #[inline]
    pub fn enter(&self, regions: &Regions) {
        assert!(regions.section.get() == Section::Outside, "a worker holds one elided lock");
        // Relaxed: only a hint; the next region checks it.
        let still_locked = || self.word.load(Ordering::Relaxed) != 0;
        let is_free = || self.is_free_for_region();
        if regions.open_if(regions.policy, is_free, still_locked) == Opened::InRegion {
            return;
        }
        self.acquire();
        regions.section.set(Section::UnderLock);
    }

    /// Leaves the section, and makes its changes visible to the other threads.
    ///
    /// # Panics
    ///
    /// If the worker of `regions` holds no elided lock.
    #[inline]
    pub fn leave(&self, regions: &Regions) {
        match regions.section.get() {
            // The region may enclose that of another elided lock: the processor counts nested regions, and
            // commits at the end of the outermost one.
            Section::InRegion => regions.close(),
            Section::UnderLock => {
                regions.section.set(Section::Outside);
                // Release: pairs with the acquire in `acquire`, and with the load in `is_free_for_region`.
                self.word.fetch_and(!HELD, Ordering::Release);
            }
            Section::Outside => panic!("the worker holds no elided lock"),
        }
    }

    /// Reads the lock, in a region, and returns whether it is free.
    #[inline(always)]
    fn is_free_for_region(&self) -> bool {
        #[cfg(weft_sim)]
        if crate::planted::Bug::LockNotRead.is_planted() {
            return true;
        }
        // Acquire: pairs with the release in `leave`. If the lock is taken after this load, the store hits a
        // line that the region has read, and so aborts the region.
        self.word.load(Ordering::Acquire) == 0
    }

    /// Takes the lock.
    #[inline]
    fn acquire(&self) {
        if !self.try_acquire(0) {
            self.wait_and_acquire();
        }
    }

    /// Takes the lock if its word is `free`.
    #[inline]
    fn try_acquire(&self, free: u64) -> bool {
        // Acquire: pairs with the release in `leave` of the previous holder. The store to the word also aborts
        // all regions that read it, so they have ended before what follows.
        self.word.compare_exchange(free, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn wait_and_acquire(&self) {
        let (mut free, mut round) = (0, 0);
        loop {
            // Relaxed: only a hint; the exchanges below check it.
            let word = self.word.load(Ordering::Relaxed);
            if word == free && self.try_acquire(free) {
                return;
            }
            if round < WAIT_ROUNDS_SPINNING {
                (0..1 << round).for_each(|_| spin_loop());
            } else {
                yield_now();
            }
            round = (round + 1).min(WAIT_ROUNDS_SPINNING + YIELDS_BEFORE_RESERVING);
            let impatient = round == WAIT_ROUNDS_SPINNING + YIELDS_BEFORE_RESERVING;
            // An impatient thread reserves the lock while another holds it. Relaxed: a reservation orders nothing;
            // the acquisition that follows it does.
            if impatient
                && word == HELD
                && self
                    .word
                    .compare_exchange(HELD, HELD | RESERVED, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                free = RESERVED;
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle, weft_sim))))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;
    use crate::Htm;

    /// Protects mutual exclusion and the reservation. There are more threads than cores, and each wants the
    /// lock again immediately. All of them end, and no increment is lost.
    #[test]
    fn one_thread_at_a_time_is_under_the_lock() {
        const THREADS: u64 = 6;
        const ROUNDS: u64 = 5_000;
        let (lock, counter) = (ElidedLock::default(), Word::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let regions = Regions::new(&Htm::software());
                    for round in 0..ROUNDS {
                        lock.enter(&regions);
                        let value = counter.load(Ordering::Relaxed);
                        if round % 64 == 0 {
                            yield_now();
                        }
                        counter.store(value + 1, Ordering::Relaxed);
                        lock.leave(&regions);
                    }
                });
            }
        });
        assert_eq!(counter.load(Ordering::Relaxed), THREADS * ROUNDS);
        assert_eq!(lock.word.load(Ordering::Relaxed), 0, "neither held nor reserved");
    }

    /// Protects the reservation itself: when the lock is released, it is not free for other threads.
    #[test]
    fn a_thread_that_has_waited_long_is_the_next() {
        let (lock, order) = (ElidedLock::default(), crate::word::Mutex::new(Vec::new()));
        let holder = Regions::new(&Htm::software());
        lock.enter(&holder);
        thread::scope(|scope| {
            scope.spawn(|| {
                let regions = Regions::new(&Htm::software());
                lock.enter(&regions);
                order.lock().unwrap().push("waited");
                lock.leave(&regions);
            });
            while lock.word.load(Ordering::Relaxed) & RESERVED == 0 {
                yield_now();
            }
            lock.leave(&holder);
            lock.enter(&holder);
            order.lock().unwrap().push("came back");
            lock.leave(&holder);
        });
        assert_eq!(*order.lock().unwrap(), ["waited", "came back"]);
    }

    /// Protects against a worker that enters twice, or leaves a section that it has not entered: it panics, and
    /// the lock stays as it was.
    #[test]
    fn misuse_panics() {
        let lock = ElidedLock::default();
        let regions = Regions::new(&Htm::software());
        catch_unwind(AssertUnwindSafe(|| lock.leave(&regions))).unwrap_err();
        lock.enter(&regions);
        catch_unwind(AssertUnwindSafe(|| lock.enter(&regions))).unwrap_err();
        lock.leave(&regions);
        assert_eq!(lock.word.load(Ordering::Relaxed), 0);
    }
}
