//! The locks of a storage manager, each of which hardware regions may elide: those that *No Free
//! Lunch* (Cervini, Porobic, Tözün, Ailamaki, DaMoN 2015) takes from Shore-MT.
//!
//! | lock | holders | what it is (§3.2) | what Shore-MT protects by it |
//! | --- | --- | --- | --- |
//! | [`Tatas`] | one | a word, tested before it is set | lightly contended sections: latching, logging |
//! | [`Mcs`] | one | a queue, in which each thread spins on a word of its own | short, contended sections |
//! | [`OccRwLock`] | readers or one writer | readers announce themselves, and withdraw from a writer | histograms; transactions against a checkpoint |
//! | [`SrwLock`] | readers or one writer | an [`Mcs`] queue before a word of holders | latches of pages |
//!
//! All are one trait, [`Lock`], whose [`hold`](Lock::hold) runs a *section* under the lock. Nothing
//! of a lock is left to be released by hand, and what a thread needs to wait in a queue lies on its
//! stack.
//!
//! # Elision
//!
//! [`Elidable`] puts the choice around any of them: its section runs in a region that only *reads*
//! the lock, and under the lock itself where there is no hardware, or when two attempts have
//! failed. The policy is the paper's, and stands with the code of the regions
//! (`region/elision.rs`). Any number of threads can be in regions at a time, as long as their
//! accesses do not collide, also in exclusive mode; and whoever holds the lock for real is alone
//! with those that his mode lets in.
//!
//! ```text
//!               region, exclusive   region, shared   held, shared   held, exclusive
//!  a section     if no lines         if no lines      no             no
//!  exclusive     collide             collide
//!  a section     if no lines         yes              yes (*)        no
//!  shared        collide
//! ```
//!
//! (*) It begins beside those that hold the lock; but the next of them to come or go stores to the
//! lock's word, and aborts it. So readers in regions gain only where hardly anybody takes the lock
//! for real.
//!
//! [`ElidedLock`](crate::ElidedLock) is another thing: a lock whose section begins and ends in
//! different functions, with DBX's policy, for the baseline that puts whole transactions into
//! regions.
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
//! A worker's [`Regions`] count what becomes of the sections that are to be elided: attempts
//! (`started`), elisions (`committed`), aborts by cause, and locks taken in the end (`fallbacks`).
//! Where there is no hardware nothing is counted.

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
    /// Beside other readers, if the lock lets readers share it; alone, if not.
    Shared,
    /// Alone.
    Exclusive,
}

/// A lock that threads take by spinning, and by giving their time slices away when that takes long.
pub trait Lock: Default + Send + Sync + fmt::Debug + 'static {
    /// The paper's name for it.
    const NAME: &'static str;

    /// Whether readers share it.
    const SHARES: bool;

    /// Whether somebody holds the lock, or is about to, who would keep a section of this mode out.
    /// What a region reads first.
    fn excludes(&self, mode: Mode) -> bool;

    /// Runs `section` under the lock, for which it waits. A panic in it releases the lock.
    ///
    /// A section must not take the same lock again, in whatever mode: it might wait for itself.
    fn hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> R;

    /// Runs `section` under the lock if that is free for the mode at once; else `None`.
    fn try_hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> Option<R>;
}

/// A lock whose sections may run as hardware regions: see [the module](self).
// Alone on its line and on the one that is fetched with it: a neighbour's stores would abort
// regions.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Elidable<L> {
    lock: L,
    is_elided: bool,
}

impl<L: Lock> Elidable<L> {
    /// A free lock, to be elided or not.
    pub fn new(is_elided: bool) -> Self {
        Elidable { lock: L::default(), is_elided }
    }

    /// The lock itself.
    pub fn lock(&self) -> &L {
        &self.lock
    }

    /// Runs `body` in a region that stands for the lock, if it is to be elided and the policy lets
    /// it, or else under the lock. Waits for whoever holds it for real.
    ///
    /// Of a `body` in a region that aborts nothing remains, and it is run again. The [crate's
    /// documentation](crate) lists what aborts regions for certain.
    ///
    /// Sections may be nested, of different locks: in a region the inner one becomes part of the
    /// outer one.
    #[inline]
    pub fn section<R>(&self, mode: Mode, regions: &Regions, mut body: impl FnMut() -> R) -> R {
        if self.is_elided
            && let Some(result) = regions.elide(|| self.lock.excludes(mode), &mut body)
        {
            return result;
        }
        self.lock.hold(mode, body)
    }

    /// The same without waiting: one attempt in a region, then one to take the lock; `None` if that
    /// is held. (The paper's `attempt`.)
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

/// One wait for somebody else: turns that spin, each twice as long as the one before, and then
/// turns that give the processor away, so that a holder that was preempted can run.
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
        // A model checker lets others run at each of these calls, and so needs one.
        if cfg!(shuttle) || self.turns == Self::TURNS_SPINNING {
            return yield_now();
        }
        (0..1 << self.turns).for_each(|_| crate::word::spin_loop());
        self.turns += 1;
    }

    /// loom would try every number of turns that two waiting threads can take by turns, which has
    /// no end. So from the fifth on it goes on with this one interleaving and tries no other. (And
    /// once a model has failed nobody comes any more.)
    #[cfg(loom)]
    fn turn(&mut self) {
        assert!(!std::thread::panicking(), "nobody will end this wait");
        self.turns += 1;
        if self.turns > 4 {
            loom::skip_branch();
        }
        yield_now();
    }
}

/// Does something at the end of a section, also if that ends in a panic.
struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    #[inline(always)]
    fn drop(&mut self) {
        (self.0)();
    }
}
