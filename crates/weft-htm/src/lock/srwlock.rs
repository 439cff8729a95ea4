//! Shore-MT's `srwlock`, the latch of pages: readers and a writer, and a queue for those who have
//! to wait.
//!
//! ```text
//!   63                                   1   0
//!  +----------------------------------------+---+
//!  | readers                                | w |   one exchange takes it, if that can be at once;
//!  +----------------------------------------+---+   whoever cannot goes through the queue
//!   queue: an MCS lock
//! ```
//!
//! Only the first in the queue waits on the word, so that a release is contended for by one thread,
//! and they come in the order of their arrival: a writer that has set its bit and waits for readers
//! to go keeps later ones in the queue behind it.
//!
//! It can say how many readers there are and in which mode it is held, as Shore-MT's latches have
//! to. Sections in regions are not among them: they hold nothing.

use super::{AtEnd, Lock, Mcs, Mode, Wait};
use crate::word::{Ordering, Word};

const WRITER: u64 = 1 << 0;
const READER: u64 = 1 << 1;

/// A reader-writer lock with a queue.
#[derive(Debug, Default)]
pub struct SrwLock {
    holders: Word,
    queue: Mcs,
}

impl SrwLock {
    /// The number of readers that hold it.
    pub fn readers(&self) -> u64 {
        // Relaxed: it may change at once.
        self.holders.load(Ordering::Relaxed) / READER
    }

    /// The mode in which it is held, if it is. A writer counts from when it waits for the last
    /// readers.
    pub fn mode(&self) -> Option<Mode> {
        // Relaxed: it may change at once.
        match self.holders.load(Ordering::Relaxed) {
            0 => None,
            holders if holders & WRITER != 0 => Some(Mode::Exclusive),
            _ => Some(Mode::Shared),
        }
    }

    /// Adds a reader, or the writer, unless somebody's being there forbids it.
    #[inline]
    fn try_acquire(&self, mode: Mode) -> bool {
        // Relaxed: a hint.
        let holders = self.holders.load(Ordering::Relaxed);
        let (may, added) = match mode {
            Mode::Shared => (holders & WRITER == 0, READER),
            Mode::Exclusive => (holders == 0, WRITER),
        };
        may && self.try_add(holders, added)
    }

    #[inline]
    fn try_add(&self, holders: u64, added: u64) -> bool {
        // Acquire: pairs with the releases in `finish`.
        self.holders
            .compare_exchange(holders, holders + added, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Goes through the queue.
    #[cold]
    #[inline(never)]
    fn acquire_in_turn(&self, mode: Mode) {
        self.queue.hold(Mode::Exclusive, || {
            let added = if mode == Mode::Shared { READER } else { WRITER };
            let mut wait = Wait::default();
            loop {
                // Relaxed: the exchange looks again.
                let holders = self.holders.load(Ordering::Relaxed);
                if holders & WRITER == 0 && self.try_add(holders, added) {
                    break;
                }
                wait.turn();
            }
            // The writer's bit keeps new readers out. Acquire: pairs with the releases of those
            // that were inside.
            while mode == Mode::Exclusive && self.holders.load(Ordering::Acquire) != WRITER {
                wait.turn();
            }
        });
    }

    #[inline]
    fn finish<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> R {
        let added = if mode == Mode::Shared { READER } else { WRITER };
        // Release: pairs with the acquires of whoever is next, and with that of the regions that
        // begin then.
        let _release = AtEnd(|| {
            self.holders.fetch_add(added.wrapping_neg(), Ordering::Release);
        });
        section()
    }
}

impl Lock for SrwLock {
    const NAME: &'static str = "srwlock";
    const SHARES: bool = true;

    #[inline]
    fn excludes(&self, mode: Mode) -> bool {
        // Acquire: pairs with the releases in `finish`.
        let holders = self.holders.load(Ordering::Acquire);
        match mode {
            Mode::Shared => holders & WRITER != 0,
            Mode::Exclusive => holders != 0,
        }
    }

    #[inline]
    fn hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> R {
        if !self.try_acquire(mode) {
            self.acquire_in_turn(mode);
        }
        self.finish(mode, section)
    }

    #[inline]
    fn try_hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> Option<R> {
        self.try_acquire(mode).then(|| self.finish(mode, section))
    }
}
