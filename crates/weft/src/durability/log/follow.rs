//! Followers: readers that read the log's files while the log is written.
//!
//! A follower reads what is durable, and then waits for more. The log's own thread wakes it, once in an
//! interval at most. So the callers that write epochs never pay for a follower.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use weft_htm::blocking::MutexGuard;
use weft_htm::word::Ordering;

use super::{Log, LogCore, State, lock};
use crate::durability::backend::Backend;
use crate::durability::directory;
use crate::error::StorageError;

/// A reader of the log that waits for more.
pub struct Follower {
    /// The last epoch that it has read.
    epoch: u64,
    waker: Waker,
}

impl Log {
    /// Returns where the segments lie: the backend, and the directory on it.
    pub fn place(&self) -> (&Arc<dyn Backend>, &Path) {
        (&self.shared.backend, &self.shared.directory)
    }

    /// Returns the sequence number of the segment that a logger is writing, and how many of its bytes are
    /// whole frames. These include all epochs that were durable before the call. Returns `None` if the
    /// logger has written nothing since the log was started.
    pub fn open_segment(&self, logger: u32) -> Option<(u64, u64)> {
        self.shared.segments.get(logger as usize)?.open()
    }

    /// Returns the last epoch with something in it that has become durable since the log was started, or 0.
    /// (The number of an epoch without anything in it may be used again after a crash.)
    pub fn written_epoch(&self) -> u64 {
        lock(&self.shared.state).written_epoch
    }

    /// Returns what the readers of the log share: what the last call has returned if a reader still has it, or else
    /// a new one.
    pub fn shared_by_followers<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut state = lock(&self.shared.state);
        let known = state.shared_by_followers.upgrade().and_then(|known| known.downcast().ok());
        known.unwrap_or_else(|| {
            let shared = Arc::<T>::default();
            state.shared_by_followers = Arc::downgrade(&(Arc::clone(&shared) as _));
            shared
        })
    }

    /// Makes the log wake `waker` when an epoch after `epoch` with something in it is durable, or when the
    /// log ends. Returns false, and does not wake it, if there is such an epoch already.
    ///
    /// # Errors
    /// [`StorageError::Closed`], or the error by which the log has failed.
    pub fn follow(&self, epoch: u64, waker: &Waker) -> Result<bool, StorageError> {
        let waker = waker.clone();
        let mut state = lock(&self.shared.state);
        if state.written_epoch > epoch {
            return Ok(false);
        }
        match &state.failure {
            Some(error) => return Err(error.clone()),
            None if state.closed => return Err(StorageError::Closed),
            None => {}
        }
        // Each task is entered once, however often it asks.
        let same = state.followers.iter_mut().find(|follower| follower.waker.will_wake(&waker));
        match same {
            Some(follower) => follower.epoch = follower.epoch.min(epoch),
            None => state.followers.push(Follower { epoch, waker }),
        }
        Ok(true)
    }

    /// Returns the last epoch with changes that are not in the log, because a bulk load or a migration made
    /// them; 0 if there isn't one.
    pub fn unlogged_epoch(&self) -> u64 {
        // Acquire: pairs with the release in `mark_unlogged`.
        self.shared.unlogged_epoch.load(Ordering::Acquire)
    }

    /// Records, before they are durable, that changes of `epoch` are not in the log.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn mark_unlogged(&self, epoch: u64) -> Result<(), StorageError> {
        let shared = &*self.shared;
        directory::mark_unlogged(&*shared.backend, &shared.directory, epoch)?;
        shared.unlogged_epoch.store(epoch, Ordering::Release);
        Ok(())
    }
}

impl LogCore {
    /// Wakes the followers for which there is something to read, and all of them if the log has ended.
    pub fn wake_followers(&self, mut state: MutexGuard<'_, State>) {
        if state.followers.is_empty() {
            return;
        }
        let (written, has_ended) = (state.written_epoch, state.closed || state.failure.is_some());
        let written = written.max(self.unlogged_epoch.load(Ordering::Acquire));
        let is_due = |follower: &mut Follower| has_ended || follower.epoch < written;
        let woken: Vec<_> = state.followers.extract_if(.., is_due).collect();
        drop(state);
        for follower in woken {
            // A waker is code of the user's, which must not end the log's thread.
            let _ = catch_unwind(AssertUnwindSafe(|| follower.waker.wake()));
        }
    }
}
