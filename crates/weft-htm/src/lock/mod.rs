//! The locks of a storage manager, each of which hardware regions may elide. They are those that *No Free
//! Lunch* (Cervini, Porobic, Tözün, Ailamaki, DaMoN 2015) takes from Shore-MT.
//!
//! | lock | holders | what it is (§3.2) | what Shore-MT protects by it |
//! | --- | --- | --- | --- |
//! | [`Tatas`] | one | a word, tested before it is set | lightly contended sections: latching, logging |
//! | [`Mcs`] | one | a queue, in which each thread spins on a word of its own | short, contended sections |
//! | [`OccRwLock`] | readers or one writer | readers announce themselves, and withdraw from a writer | histograms; transactions against a checkpoint |
//! | [`SrwLock`] | readers or one writer | an [`Mcs`] queue before a word of holders | latches of pages |
//!
//! All implement one trait, [`Lock`], whose [`hold`](Lock::hold) runs a *section* under the lock. The caller
//! never has to release a lock. What a thread needs to wait in a queue lies on its stack.
//!
//! # Elision
//!
//! [`Elidable`] makes any of them elidable. Its section runs in a region that only *reads* the lock. It runs
//! under the lock itself if there is no hardware, or when two attempts have failed. The policy is the paper's,
//! and is documented with the code of the regions (`region/elision.rs`). Any number of threads can be in
//! regions at a time, as long as their accesses do not collide, also in exclusive mode. A thread that holds the
//! lock itself excludes all others that its mode excludes:
//!
//! ```text
//!               region, exclusive   region, shared   held, shared   held, exclusive
//!  a section     if no lines         if no lines      no             no
//!  exclusive     collide             collide
//!  a section     if no lines         yes              yes (*)        no
//!  shared        collide
//! ```
//!
//! (*) The region begins beside the threads that hold the lock. But the next of them to take or release it
//! stores to the lock's word, which aborts the region. So readers in regions gain only where threads seldom
//! take the lock itself.
//!
//! [`ElidedLock`](crate::ElidedLock) is different: a lock whose section begins and ends in different functions,
//! with DBX's policy, for the baseline that puts whole transactions into regions.
//!
//! ```
//! use weft_htm::lock::{Elidable, Mcs, Mode};
//! use weft_htm::{Choice, Htm, Regions, RetryPolicy, word::{Ordering, Word}};
//!
//! let htm = Htm::open(Choice::Auto, RetryPolicy::default()).unwrap();
//! let (lock, counter) = (Elidable::<Mcs>::new(true), Word::new(0));
//! std::thread::scope(|scope| {
//!     for _ in 0..2 {
//!         scope.spawn(|| {
//!             let regions = Regions::new(&htm); // one per worker thread
//!             for _ in 0..100 {
//!                 lock.section(Mode::Exclusive, &regions, || {
//!                     counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
//!                 });
//!             }
//!         });
//!     }
//! });
//! assert_eq!(counter.load(Ordering::Relaxed), 200);
//! ```
//!
//! # Counting
//!
//! A worker's [`Regions`] count the results of the sections that are to be elided: attempts (`started`),
//! elisions (`committed`), aborts by cause, and locks taken in the end (`fallbacks`). Without hardware nothing
//! is counted.

mod mcs;
mod occ_rwlock;
mod srwlock;
mod tatas;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::fmt;

use crate::region::Regions;
use crate::word::yield_now;

pub use mcs::Mcs;
pub use occ_rwlock::OccRwLock;
pub use srwlock::SrwLock;
pub use tatas::Tatas;

/// How a section holds its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Beside other readers, if the lock lets readers share it; otherwise alone.
    Shared,
    /// Alone.
    Exclusive,
}

/// A lock that threads wait for by spinning, and by yielding their time slices when that takes long.
pub trait Lock: Default + Send + Sync + fmt::Debug + 'static {
    /// The paper's name for the lock.
    const NAME: &'static str;

    /// Whether readers share the lock.
    const SHARES: bool;

    /// Returns whether a thread holds the lock, or is about to, in a mode that excludes a section of mode
    /// `mode`. A region that elides the lock reads this first.
    fn excludes(&self, mode: Mode) -> bool;

    /// Waits for the lock and runs `section` under it. A panic in `section` releases the lock.
    ///
    /// A section must not take the same lock again, in any mode: it might wait for itself.
    fn hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> R;

    /// Runs `section` under the lock if the lock can be taken without waiting. Returns `None` otherwise.
    fn try_hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> Option<R>;
}

/// A lock whose sections may run as hardware regions: see [the module](self).
// Alone on its line and on the one that is fetched with it: stores to a neighbour would abort regions.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Elidable<L> {
    lock: L,
    is_elided: bool,
}

impl<L: Lock> Elidable<L> {
    /// Makes a free lock, to be elided or not.
    pub fn new(is_elided: bool) -> Self {
        Elidable::around(L::default(), is_elided)
    }

    /// Makes `lock` elidable: it is free, and is to be elided or not.
    pub fn around(lock: L, is_elided: bool) -> Self {
        Elidable { lock, is_elided }
    }

    /// Returns the lock itself.
    pub fn lock(&self) -> &L {
        &self.lock
    }

    /// Runs `body` in a region that elides the lock, if this lock is to be elided and the policy allows it.
    /// Otherwise runs it under the lock. Waits for a thread that holds the lock itself.
    ///
    /// A `body` whose region aborts leaves no effect, and is run again. The [crate's documentation](crate)
    /// lists what aborts regions for certain.
    ///
    /// Sections of different locks may be nested: in a region the inner one becomes part of the outer one.
    #[inline]
    pub fn section<R>(&self, mode: Mode, regions: &Regions, mut body: impl FnMut() -> R) -> R {
        if self.is_elided
            && let Some(result) = regions.elide(|| self.lock.excludes(mode), &mut body)
        {
            return result;
        }
        self.lock.hold(mode, body)
    }

    /// Like [`section`](Elidable::section), but does not wait: it makes one attempt in a region, then one to
    /// take the lock. Returns `None` if the lock is held. (The paper's `attempt`.)
    #[inline]
    pub fn attempt<R>(
        &self,
        mode: Mode,
        regions: &Regions,
        mut body: impl FnMut() -> R,
    ) -> Option<R> {
        if self.is_elided
            && let Some(result) = regions.elide_once(|| self.lock.excludes(mode), &mut body)
        {
            return Some(result);
        }
        self.lock.try_hold(mode, body)
    }
}

/// The state of one wait for another thread. Its first turns spin, each twice as long as the one before. Later
/// turns yield the processor, so that a preempted holder can run.
#[derive(Default)]
struct Wait {
    turns: u32,
}

impl Wait {
    /// Turns that spin: 127 pauses in all.
    #[cfg(not(loom))]
    const TURNS_SPINNING: u32 = 7;

    #[cfg(not(loom))]
    fn turn(&mut self) {
        // A model checker lets others run at each of these calls, and so needs only one.
        if cfg!(shuttle) || self.turns == Self::TURNS_SPINNING {
            return yield_now();
        }
        (0..1 << self.turns).for_each(|_| crate::word::spin_loop());
        self.turns += 1;
    }

    /// loom would try every number of turns that two waiting threads can take alternately, which has no end. So
    /// from the fifth turn on this keeps one interleaving and lets loom try no other. (Once a model has failed,
    /// no other thread runs any more.)
    #[cfg(loom)]
    fn turn(&mut self) {
        assert!(!std::thread::panicking(), "no other thread will end this wait");
        self.turns += 1;
        if self.turns > 4 {
            loom::skip_branch();
        }
        yield_now();
    }
}

/// Runs a closure at the end of a section, also if the section panics.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    #[inline(always)]
    fn drop(&mut self) {
        (self.0)();
    }
}
