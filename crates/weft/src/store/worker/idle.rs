//! What idle workers hold, and how other workers take it over.
//!
//! A worker gathers what it retires, and what is to be kept for snapshots, on lists of its own, and deals with
//! them when they are long enough. If its thread runs no more transactions, the lists would stay as they are:
//! deleted records in their indexes, where scans pass over them, and versions that no snapshot needs. So the other
//! workers *visit* a worker that has finished no transaction for a while, and take over its lists.
//!
//! ```text
//!   worker    pinned (in a transaction): the lists are its own           begin_visit fails
//!             collecting, leaving: it visits itself                      begin_visit fails
//!             otherwise                                                  others may visit it
//!   visitor   begin_visit, move the lists out, end_visit                 a worker that pins waits
//! ```
//!
//! Visits are part of a worker's collection of its own garbage, of one worker in an epoch. A worker counts as idle if
//! it has finished no transaction since the collection of an earlier epoch. That is a guess, which may be wrong: the
//! handshake of [`GracePeriods`](crate::sync::reclaim::GracePeriods) is what makes a visit safe.

use std::collections::VecDeque;
use std::ptr;
use std::sync::PoisonError;

use weft_htm::word::{Mutex, Ordering, Word, WordPointer};

use super::{Shared, WorkerMemory};
use crate::store::garbage::{Batch, DeletedRecord};
use crate::store::retention::Retained;

/// The workers that may be visited.
pub struct IdleWorkers {
    /// By slot; null where there is no worker, or one that is not visited.
    memories: Box<[WordPointer<WorkerMemory>]>,
    /// The last epoch in which a worker looked for idle ones.
    epoch: Word,
    /// By slot.
    watched: Mutex<Vec<Watched>>,
}

/// When a worker was seen to finish transactions.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// How many it had finished.
    finished: u64,
    /// The epoch in which it was seen first that it had.
    epoch: u64,
}

/// What a worker held.
#[derive(Default)]
struct Holdings {
    retained: Vec<Retained>,
    deleted: VecDeque<(u64, Box<DeletedRecord>)>,
    batches: Vec<Batch>,
}

impl IdleWorkers {
    /// For up to `workers_max` workers.
    pub fn new(workers_max: usize) -> Self {
        IdleWorkers {
            memories: (0..workers_max).map(|_| WordPointer::new(ptr::null_mut())).collect(),
            epoch: Word::new(0),
            watched: Mutex::new(Vec::new()),
        }
    }

    /// Has a worker visited when it is idle.
    ///
    /// # Safety
    /// The memory belongs to the worker of `slot`, and stays where it is until
    /// [`IdleWorkers::unregister`].
    pub unsafe fn register(&self, slot: usize, memory: &WorkerMemory) {
        // Release: pairs with the acquire in `visit`.
        self.memories[slot].store(ptr::from_ref(memory).cast_mut(), Ordering::Release);
    }

    /// Has a worker visited no more. The caller is that worker and visits itself, so no other visit is under
    /// way.
    pub(super) fn unregister(&self, slot: usize) {
        self.memories[slot].store(ptr::null_mut(), Ordering::Release);
    }

    /// Whether the caller is to look for idle workers: one worker does in an epoch.
    fn is_due(&self, epoch: u64) -> bool {
        // Relaxed: the list that the caller goes on to is behind a lock.
        let last = self.epoch.load(Ordering::Relaxed);
        last < epoch
            && self
                .epoch
                .compare_exchange(last, epoch, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

impl Shared {
    /// Takes what the worker of a slot holds, if it is between two transactions.
    fn visit(&self, slot: usize) -> Option<Holdings> {
        if !self.grace.begin_visit(slot) {
            return None;
        }
        let memory = self.idle.memories[slot].load(Ordering::Acquire);
        // SAFETY: it was registered, and is not unregistered before the visit has ended.
        let holdings = unsafe { memory.as_ref() }.map(|memory| {
            // What the worker holds is touched by it while it is pinned or visits itself, and else
            // by a visitor: by one thread at a time.
            Holdings {
                retained: memory.retained.take(),
                deleted: memory.deleted.take(),
                batches: {
                    memory.garbage().seal(|| self.grace.seal());
                    memory.garbage().take_sealed()
                },
            }
        });
        if holdings.is_some() {
            self.counters[slot].retired_pending.store(0, Ordering::Relaxed);
        }
        self.grace.end_visit(slot);
        holdings
    }
}

impl WorkerMemory {
    /// Takes over what idle workers hold. To be called while this worker is pinned, and visits itself.
    pub(super) fn take_over_idle(&self) {
        let shared = self.shared();
        let epoch = shared.clock.epoch();
        if !shared.idle.is_due(epoch) {
            return;
        }
        let mut watched = shared.idle.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.resize(shared.grace.slots_used(), Watched::default());
        for (slot, watched) in watched.iter_mut().enumerate() {
            let counters = &shared.counters[slot];
            // Relaxed: a guess.
            let finished = counters.committed.load(Ordering::Relaxed)
                + counters.rolled_back.load(Ordering::Relaxed);
            if watched.epoch == 0 || watched.finished != finished {
                *watched = Watched { finished, epoch };
            } else if watched.epoch < epoch
                && slot != self.slot
                && let Some(holdings) = shared.visit(slot)
            {
                self.take_over(holdings);
            }
        }
    }

    fn take_over(&self, holdings: Holdings) {
        self.retained.borrow_mut().extend(holdings.retained);
        self.hand_over_retained();
        // If their epoch has not ended, that will be found out.
        for (_, deleted) in holdings.deleted {
            self.push_deleted(deleted);
        }
        self.shared.leave_orphans(holdings.batches);
    }
}
