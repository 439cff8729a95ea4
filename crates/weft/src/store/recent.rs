//! The recent snapshot: one that readers share if they do not need the latest state. It is the part of
//! DBX-TC's *eventual snapshots* (2015, §4) that readers see.
//!
//! The idea: to open a snapshot of the present state is not free. It increments the global snapshot number,
//! and makes writers keep one more version of what they replace. It waits for the commits under way and,
//! under a protocol that commits in pieces, for procedures that are between two pieces. A reader that is
//! content with a state of a moment ago needs none of that. Such readers read at a number that was taken once
//! in an epoch (40 ms; with a log, as often as the log ends an epoch), and share the versions that are kept
//! for it.
//!
//! ```text
//!   epoch    |        7          |         8          |
//!   number    7.0  opened, waits   8.0  opened, waits
//!   readers        7.0  7.0  7.0        8.0  8.0
//! ```
//!
//! In each epoch the first reader *renews* the snapshot. Other readers do not wait for that, but read at the
//! previous number. If readers have shared no snapshot in that epoch either, they take a number of their own,
//! which is then shared as well.
//!
//! The number at which readers share a snapshot never decreases: of two numbers that are taken at the same
//! time, the smaller one is not shared if it comes later. So a thread's recent snapshots never go back in
//! time.
//!
//! In the paper a number becomes a consistent snapshot when all transactions that may have a smaller number
//! have ended. Until then, commutative pieces that come late are redone on newer versions (Algorithm 1):
//! [`eventual`](super::eventual) has that part. By default a number is taken when no procedure is between two pieces
//! (see the gate of `dbx_tc`). Therefore it is consistent at once, and nothing has to be redone. Readers get the same in
//! both: a state that is consistent, and at most about one epoch old.
//!
//! The snapshot counts as open until it is renewed. If readers no longer ask for it, it would keep versions
//! for nothing. Therefore workers that collect their garbage close it when it is two epochs old.

use std::sync::{Arc, PoisonError};

use weft_htm::word::{Mutex, Ordering, Word};

use super::ages::SnapshotLife;
use super::eventual::AdjustedRows;
use super::retention::Retention;
use crate::sync::clock::epoch_of;

/// The recent snapshot of a database, if there is one.
#[derive(Debug, Default)]
pub struct RecentSnapshot {
    state: Mutex<State>,
    /// The epoch of its number, or 0 without a snapshot. So readers see without taking the lock that it is old.
    epoch: Word,
    /// 1 while a thread renews it.
    renewing: Word,
}

#[derive(Debug, Default)]
struct State {
    shared: Option<SharedSnapshot>,
    /// The greatest number at which readers have shared a snapshot so far.
    greatest: u64,
}

/// A number at which readers share a snapshot. This value itself counts as one reader that has the snapshot
/// open.
#[derive(Clone, Debug)]
pub struct SharedSnapshot {
    pub number: u64,
    /// The snapshot's time.
    pub now: u64,
    pub life: Arc<SnapshotLife>,
    /// What it sees in place of the records' own rows, if there is anything.
    pub adjusted: Option<Arc<AdjustedRows>>,
    pub times: OpeningTimes,
}

/// When a snapshot was opened, for histories: what its readers read counts as read at that moment.
#[derive(Clone, Copy, Debug)]
pub struct OpeningTimes {
    /// The times at which the opening began and ended, if the history is recorded.
    #[cfg(feature = "history")]
    pub opened: Option<(u64, u64)>,
}

/// After how many epochs a snapshot that is not renewed is closed.
const EPOCHS_MAX: u64 = 2;

impl RecentSnapshot {
    fn state(&self) -> impl std::ops::DerefMut<Target = State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the snapshot if its number is from `epoch` or a later epoch.
    pub fn join(&self, epoch: u64, retention: &Retention) -> Option<SharedSnapshot> {
        // Relaxed: a hint.
        if self.epoch.load(Ordering::Relaxed) < epoch {
            return None;
        }
        let state = self.state();
        let snapshot = state.shared.as_ref();
        let snapshot = snapshot.filter(|snapshot| epoch_of(snapshot.number) >= epoch)?.clone();
        // The snapshot cannot be closed at the same time, since closing takes the lock.
        retention.join(snapshot.number);
        Some(snapshot)
    }

    /// Makes readers share `snapshot`, and closes the previous one. Does nothing if readers have
    /// already shared one with the same or a greater number.
    pub fn share(&self, snapshot: SharedSnapshot, retention: &Retention) {
        let before = {
            let mut state = self.state();
            if snapshot.number <= state.greatest {
                return;
            }
            state.greatest = snapshot.number;
            retention.join(snapshot.number);
            self.epoch.store(epoch_of(snapshot.number), Ordering::Relaxed);
            state.shared.replace(snapshot)
        };
        if let Some(before) = before {
            retention.close(before.number);
        }
    }

    /// Closes the snapshot. What was kept for it alone is then released.
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

    /// Closes the snapshot if it is so old that readers no longer seem to ask for it.
    #[inline]
    pub fn close_if_old(&self, epoch: u64, retention: &Retention) {
        // Relaxed: a hint.
        let taken = self.epoch.load(Ordering::Relaxed);
        if taken != 0 && taken + EPOCHS_MAX <= epoch {
            self.close(retention);
        }
    }

    /// Begins to renew the snapshot. Returns `None` if another thread is renewing it.
    pub fn begin_renewal(&self) -> Option<Renewal<'_>> {
        let begun =
            self.renewing.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        begun.then_some(Renewal(self))
    }
}

/// The right to renew the snapshot. No other thread renews it until this is dropped.
pub struct Renewal<'r>(&'r RecentSnapshot);

impl Drop for Renewal<'_> {
    fn drop(&mut self) {
        self.0.renewing.store(0, Ordering::Release);
    }
}
