//! Shore-MT's `srwlock`, the latch of pages: a reader-writer lock with a queue for threads that have to wait.
//!
//! ```text
//!   63                                   1   0
//!  +----------------------------------------+---+
//!  | readers                                | w |   one exchange takes the lock if it can be taken at once;
//!  +----------------------------------------+---+   a thread that cannot take it goes through the queue
//!   queue: an MCS lock
//! ```
//!
//! Only the first thread in the queue waits on the word. So only one thread contends for a release, and threads
//! get the lock in the order of their arrival. A writer that has set its bit and waits for readers to leave
//! keeps later threads in the queue behind it.
//!
//! The lock can tell how many readers it has and in which mode it is held, as Shore-MT's latches must. Sections
//! in regions do not count: they hold nothing.

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
    /// Returns the number of readers that hold the lock.
    pub fn readers(&self) -> u64 {
        // Relaxed: the number may be outdated anyway by the time that the caller sees it.
        self.holders.load(Ordering::Relaxed) / READER
    }

    /// Returns the mode in which the lock is held, or `None` if it is free. A writer counts from the moment it
    /// waits for the last readers.
    pub fn mode(&self) -> Option<Mode> {
        // Relaxed: the mode may be outdated anyway by the time that the caller sees it.
        match self.holders.load(Ordering::Relaxed) {
            0 => None,
            holders if holders & WRITER != 0 => Some(Mode::Exclusive),
            _ => Some(Mode::Shared),
        }
    }

    /// Adds a reader, or the writer, unless the current holders exclude it.
    #[inline]
    fn try_acquire(&self, mode: Mode) -> bool {
        // Relaxed: only a hint.
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

    /// Takes the lock through the queue.
    #[cold]
    #[inline(never)]
    fn acquire_in_turn(&self, mode: Mode) {
        self.queue.hold(Mode::Exclusive, || {
            let added = if mode == Mode::Shared { READER } else { WRITER };
            let mut wait = Wait::default();
            loop {
                // Relaxed: only a hint; the exchange checks it.
                let holders = self.holders.load(Ordering::Relaxed);
                if holders & WRITER == 0 && self.try_add(holders, added) {
                    break;
                }
                wait.turn();
            }
            // A writer's bit now keeps new readers out. It waits for those inside. Acquire: pairs with their
            // releases.
            while mode == Mode::Exclusive && self.holders.load(Ordering::Acquire) != WRITER {
                wait.turn();
            }
        });
    }

    #[inline]
    fn finish<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> R {
        let added = if mode == Mode::Shared { READER } else { WRITER };
        // Release: pairs with the acquires of the next holders, and with that of the regions that begin then.
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
