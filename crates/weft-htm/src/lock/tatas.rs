//! Test and test-and-set: a word that is 1 while the lock is held.
//!
//! A waiting thread only reads, so the line stays in the caches of all that wait until the holder's store takes
//! it away. Then all try at once. So this lock is for data that few threads want at a time.

use super::{AtEnd, Lock, Mode, Wait};
use crate::word::{Ordering, Word};

/// A spinlock of one word.
#[derive(Debug, Default)]
pub struct Tatas {
    held: Word,
}

impl Tatas {
    /// Takes the lock if it is free.
    #[inline]
    fn try_acquire(&self) -> bool {
        // Relaxed: only a hint. Acquire: pairs with the release in `finish`.
        self.held.load(Ordering::Relaxed) == 0
            && self.held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Runs a section of this thread, which holds the lock, and releases the lock.
    #[inline]
    fn finish<R>(&self, section: impl FnOnce() -> R) -> R {
        // Release: pairs with the acquire of the next holder, and with that of the regions that begin then.
        let _release = AtEnd(|| self.held.store(0, Ordering::Release));
        section()
    }
}

impl Lock for Tatas {
    const NAME: &'static str = "tatas";
    const SHARES: bool = false;

    #[inline]
    fn excludes(&self, _mode: Mode) -> bool {
        // Acquire: pairs with the release in `finish`.
        self.held.load(Ordering::Acquire) != 0
    }

    #[inline]
    fn hold<R>(&self, _mode: Mode, section: impl FnOnce() -> R) -> R {
        let mut wait = Wait::default();
        while !self.try_acquire() {
            wait.turn();
        }
        self.finish(section)
    }

    #[inline]
    fn try_hold<R>(&self, _mode: Mode, section: impl FnOnce() -> R) -> Option<R> {
        self.try_acquire().then(|| self.finish(section))
    }
}
