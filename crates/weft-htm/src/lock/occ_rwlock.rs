//! Shore-MT's `occ_rwlock`: a reader-writer lock for data that is read all the time and seldom written.
//!
//! ```text
//!   63                                   1   0
//!  +----------------------------------------+---+
//!  | readers, those included that are about | w |
//!  | to withdraw                            |   |
//!  +----------------------------------------+---+
//! ```
//!
//! Readers are optimistic. One addition announces a reader. Only if it shows a writer, the reader withdraws and
//! waits until the writer is gone. A writer sets its bit, which keeps new readers out, and waits for the
//! readers that are inside.
//!
//! Departures: Shore-MT's lock puts waiting threads to sleep; here they spin, as with the other locks. In the
//! paper's listing a region in exclusive mode tests for readers. Here it tests for readers and a writer, and a
//! region in shared mode tests for a writer.

use super::{AtEnd, Lock, Mode, Wait};
use crate::word::{Ordering, Word};

const WRITER: u64 = 1 << 0;
const READER: u64 = 1 << 1;

/// A reader-writer lock of one word.
#[derive(Debug, Default)]
pub struct OccRwLock {
    active: Word,
}

impl OccRwLock {
    /// Announces a reader and returns `true`. If there is a writer, returns `false` and announces none.
    #[inline]
    fn try_acquire_shared(&self) -> bool {
        // Acquire: pairs with the release of the previous writer.
        if self.active.fetch_add(READER, Ordering::Acquire) & WRITER == 0 {
            return true;
        }
        // Relaxed: this thread has done nothing that the writer would have to see.
        self.active.fetch_add(READER.wrapping_neg(), Ordering::Relaxed);
        false
    }

    fn wait_for_writer(&self, wait: &mut Wait) {
        wait.turn();
        // Relaxed: only a hint.
        while self.active.load(Ordering::Relaxed) & WRITER != 0 {
            wait.turn();
        }
    }

    #[inline]
    fn finish_shared<R>(&self, section: impl FnOnce() -> R) -> R {
        // Release: pairs with the acquire of the writer that finds no reader left.
        let _release = AtEnd(|| {
            self.active.fetch_add(READER.wrapping_neg(), Ordering::Release);
        });
        section()
    }

    #[inline]
    fn finish_exclusive<R>(&self, section: impl FnOnce() -> R) -> R {
        // Release: pairs with the acquires of the next holders, and with that of the regions that begin then.
        // It is a subtraction, because the word may also count readers that are about to withdraw.
        let _release = AtEnd(|| {
            self.active.fetch_add(WRITER.wrapping_neg(), Ordering::Release);
        });
        section()
    }
}

impl Lock for OccRwLock {
    const NAME: &'static str = "occ_rwlock";
    const SHARES: bool = true;

    #[inline]
    fn excludes(&self, mode: Mode) -> bool {
        // Acquire: pairs with the releases at the ends of sections.
        let active = self.active.load(Ordering::Acquire);
        match mode {
            Mode::Shared => active & WRITER != 0,
            Mode::Exclusive => active != 0,
        }
    }

    #[inline]
    fn hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> R {
        let mut wait = Wait::default();
        match mode {
            Mode::Shared => {
                while !self.try_acquire_shared() {
                    self.wait_for_writer(&mut wait);
                }
                self.finish_shared(section)
            }
            Mode::Exclusive => {
                // Acquire: pairs with the release of the previous writer.
                while self.active.fetch_or(WRITER, Ordering::Acquire) & WRITER != 0 {
                    self.wait_for_writer(&mut wait);
                }
                // Acquire: pairs with the releases of the readers that were inside.
                while self.active.load(Ordering::Acquire) != WRITER {
                    wait.turn();
                }
                self.finish_exclusive(section)
            }
        }
    }

    #[inline]
    fn try_hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> Option<R> {
        match mode {
            Mode::Shared => self.try_acquire_shared().then(|| self.finish_shared(section)),
            Mode::Exclusive => {
                // Acquire: pairs with the releases of the previous holders.
                let free =
                    self.active.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed);
                free.is_ok().then(|| self.finish_exclusive(section))
            }
        }
    }
}
