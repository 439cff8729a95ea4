//! Idle workers: how other workers take over what an idle worker has gathered.
//!
//! A worker gathers what it retires, and what must be kept for snapshots, on lists of its own, and processes
//! them when they are long enough. If its thread runs no more transactions, nothing would process these
//! lists. Deleted records would stay in their indexes, where scans pass over them, and so would versions that
//! no snapshot needs. So the other workers *visit* a worker that has finished no transaction for a while, and
//! take over its lists.
//!
//! A visit is a claim: a visitor claims the idle worker, as a thread that runs a transaction does (see
//! [`GracePeriods`](crate::sync::reclaim::GracePeriods)). So no thread uses the worker during the visit. A thread that
//! wants to claim the worker at that moment waits for the end of the visit.
//!
//! In each epoch one worker looks for idle workers, while it collects its own garbage. A worker counts as
//! idle if it has finished no transaction since such a look in an earlier epoch. That is a guess, and it may
//! be wrong.

use std::ptr;
use std::sync::PoisonError;

use weft_htm::word::{Mutex, Ordering, Word, WordPointer};

use super::{SharedState, WorkerMemory};
use crate::store::garbage::Batch;
use crate::store::retention::RetainedEntry;

/// The workers that may be visited.
pub struct IdleWorkers {
    /// The workers' memories, by slot. Null for a slot without a worker, or whose worker is not visited.
    memories: Box<[WordPointer<WorkerMemory>]>,
    /// The last epoch in which a worker looked for idle ones.
    epoch: Word,
    /// What was last seen of each worker, by slot.
    activity: Mutex<Vec<WorkerActivity>>,
}

/// A worker's count of finished transactions, as another worker last saw it.
#[derive(Clone, Copy, Debug, Default)]
struct WorkerActivity {
    /// How many transactions the worker had finished.
    finished: u64,
    /// The epoch in which this count was first seen.
    epoch: u64,
}

/// The lists that a visitor takes from a worker.
#[derive(Default)]
struct Holdings {
    retained: Vec<RetainedEntry>,
    batches: Vec<Batch>,
}

impl IdleWorkers {
    /// Creates the registry for up to `workers_max` workers.
    pub fn new(workers_max: usize) -> Self {
        IdleWorkers {
            memories: (0..workers_max).map(|_| WordPointer::new(ptr::null_mut())).collect(),
            epoch: Word::new(0),
            activity: Mutex::new(Vec::new()),
        }
    }

    /// Registers a worker, to be visited while it is idle.
    ///
    /// # Safety
    /// The memory belongs to the worker of `slot`, and stays where it is as long as the database exists.
    pub unsafe fn register(&self, slot: usize, memory: &WorkerMemory) {
        // Release: pairs with the acquire in `visit`.
        self.memories[slot].store(ptr::from_ref(memory).cast_mut(), Ordering::Release);
    }

    /// Returns whether the caller should look for idle workers. True for one worker in each epoch.
    fn is_due(&self, epoch: u64) -> bool {
        // Relaxed: the list that the caller then uses is protected by a lock.
        let last = self.epoch.load(Ordering::Relaxed);
        last < epoch
            && self
                .epoch
                .compare_exchange(last, epoch, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

impl SharedState {
    /// Takes what the worker of a slot has gathered, if no thread uses the worker.
    fn visit(&self, slot: usize) -> Option<Holdings> {
        if !self.grace.begin_visit(slot) {
            return None;
        }
        let memory = self.idle.memories[slot].load(Ordering::Acquire);
        // SAFETY: the memory was registered, and exists as long as the database.
        let holdings = unsafe { memory.as_ref() }.map(|memory| {
            // Only a thread that has claimed the worker uses its lists, and now that is this thread.
            Holdings {
                retained: memory.retained.take(),
                batches: {
                    memory.seal_garbage();
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
    /// Takes over what idle workers have gathered. The calling worker must be pinned.
    pub(super) fn take_over_idle(&self) {
        let shared = self.shared();
        let epoch = shared.clock.epoch();
        if !shared.idle.is_due(epoch) {
            return;
        }
        let mut activity = shared.idle.activity.lock().unwrap_or_else(PoisonError::into_inner);
        activity.resize(shared.grace.slots_used(), WorkerActivity::default());
        for (slot, activity) in activity.iter_mut().enumerate() {
            let counters = &shared.counters[slot];
            // Relaxed: whether a worker is idle is only a guess.
            let finished = counters.committed.load(Ordering::Relaxed)
                + counters.rolled_back.load(Ordering::Relaxed);
            if activity.epoch == 0 || activity.finished != finished {
                *activity = WorkerActivity { finished, epoch };
            } else if activity.epoch < epoch
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
        self.shared.leave_orphans(holdings.batches);
    }
}
