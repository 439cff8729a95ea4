//! A snapshot that readers share who do not need the latest state: of DBX-TC's *eventual snapshots* (2015, §4) the
//! part that readers see.
//!
//! The idea. Whoever opens a snapshot of the present state increments the global snapshot number, has writers leave
//! behind one more version of what they replace, waits for the commits under way and, under a protocol that commits
//! in pieces, for procedures that are between two of them. None of that is needed by a reader to whom a state of a
//! moment ago is as good. Such readers read at a number that was taken once in an epoch (40 ms; with a log, as often
//! as the log ends one), and share the versions that are kept for it.
//!
//! ```text
//!   epoch    |        7          |         8          |
//!   number    7.0  opened, waits   8.0  opened, waits
//!   readers        7.0  7.0  7.0        8.0  8.0
//! ```
//!
//! In each epoch the first reader *renews* the snapshot. Others do not wait for that, but read at the one before.
//! If readers have shared no snapshot in that epoch, they take a number of their own, which is shared as well.
//!
//! The number at which readers share a snapshot never decreases: of two numbers that were taken at once, the smaller
//! one is not shared if it comes later. So a thread's recent snapshots never go back in time.
//!
//! In the paper a number becomes a consistent snapshot when all transactions have ended that may have a smaller one:
//! commutative pieces that come late are redone on newer versions until then (Algorithm 1). Here a number is taken
//! when no procedure is between two pieces (see the gate of `dbx_tc`), so it is consistent at once, and nothing is
//! ever redone. What readers get is the same: a state that is consistent, and up to an epoch old.
//!
//! The snapshot counts as open until it is renewed. If nobody asks for it any more it would keep versions for
//! nothing; so workers that collect their garbage close it when it is two epochs old.

use std::sync::PoisonError;

use weft_htm::word::{Mutex, Ordering, Word};

use super::retention::Retention;
use crate::sync::clock::epoch_of;

/// The shared snapshot of a database, if there is one.
#[derive(Debug, Default)]
pub struct Recent {
    state: Mutex<State>,
    /// The epoch that its number lies in, or 0: so that it need not be locked to see that it is old.
    epoch: Word,
    /// 1 while somebody renews it.
    renewing: Word,
}

#[derive(Debug, Default)]
struct State {
    shared: Option<Taken>,
    /// The greatest number at which readers have shared a snapshot so far.
    greatest: u64,
}

/// A number at which readers share a snapshot, which counts as one that has it open.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub number: u64,
    pub times: Times,
}

/// When a snapshot was opened, for the history: readers that share it have read at that moment.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When that began, and when it was done, if it is recorded.
    #[cfg(feature = "history")]
    pub opened: Option<(u64, u64)>,
}

/// After how many epochs a snapshot that nobody renews is closed.
const EPOCHS_MAX: u64 = 2;

impl Recent {
    fn state(&self) -> impl std::ops::DerefMut<Target = State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the snapshot, if its number is of this epoch or a later one.
    pub fn join(&self, epoch: u64, retention: &Retention) -> Option<Taken> {
        // Relaxed: a hint.
        if self.epoch.load(Ordering::Relaxed) < epoch {
            return None;
        }
        let state = self.state();
        let taken = state.shared.filter(|taken| epoch_of(taken.number) >= epoch)?;
        // It is not closed meanwhile, since that takes the lock.
        retention.join(taken.number);
        Some(taken)
    }

    /// Has readers share another one, and closes the one before; unless readers have shared one with a
    /// greater number.
    pub fn share(&self, taken: Taken, retention: &Retention) {
        let before = {
            let mut state = self.state();
            if taken.number <= state.greatest {
                return;
            }
            state.greatest = taken.number;
            retention.join(taken.number);
            self.epoch.store(epoch_of(taken.number), Ordering::Relaxed);
            state.shared.replace(taken)
        };
        if let Some(before) = before {
            retention.close(before.number);
        }
    }

    /// Closes it. What was kept for it alone is to be released.
    pub fn close(&self, retention: &Retention) {
        let before = {
            let mut state = self.state();
            self.epoch.store(0, Ordering::Relaxed);
            state.shared.take()
        };
        if let Some(before) = before {
            retention.close(before.number);
        }
    }

    /// Closes it if it is so old that nobody seems to ask for it any more.
    #[inline]
    pub fn close_if_old(&self, epoch: u64, retention: &Retention) {
        // Relaxed: a hint.
        let taken = self.epoch.load(Ordering::Relaxed);
        if taken != 0 && taken + EPOCHS_MAX <= epoch {
            self.close(retention);
        }
    }

    /// Begins to renew it; `None` if somebody else does.
    pub fn begin_renewal(&self) -> Option<Renewal<'_>> {
        let begun =
            self.renewing.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        begun.then_some(Renewal(self))
    }
}

/// That somebody renews it, until this is dropped.
pub struct Renewal<'r>(&'r Recent);

impl Drop for Renewal<'_> {
    fn drop(&mut self) {
        self.0.renewing.store(0, Ordering::Release);
    }
}
