//! Workers as a protocol sees them: a worker's executor and its memory, and the list of a database's workers.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use weft_htm::word::{spin_loop, yield_now};

use super::{Executor, Protocol};
use crate::error::ConflictReason;
use crate::store::worker::{
    BufferPlace, ClaimGuard, IndexBuffer, SharedState, WorkerMemory, WorkerState,
};

/// A worker of a database. One thread at a time uses it: see [`Claim`].
pub struct Worker<P: Protocol> {
    state: WorkerState,
    executor: UnsafeCell<P::Executor>,
}

impl<P: Protocol> Worker<P> {
    fn new(
        shared: &Arc<SharedState>,
        protocol: &Arc<P::Shared>,
        slot: usize,
        indexes: usize,
    ) -> Self {
        let mut memory = WorkerMemory::new(Arc::clone(shared), slot);
        memory.observe();
        shared.set_reader(slot, memory.regions().reader());
        Worker {
            executor: UnsafeCell::new(P::Executor::new(protocol, slot)),
            state: WorkerState::new(memory, slot, indexes),
        }
    }

    /// Returns the executor. Every use is one call of a method. Most methods run no code of the user's types. While
    /// one of the others runs such code, [`WorkerMemory::in_user_code`] prevents it from getting here.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the cell is the worker's own")]
    pub fn executor(&self) -> &mut P::Executor {
        // SAFETY: only the thread that has claimed it uses a worker, and executor methods do not use the worker.
        unsafe { &mut *self.executor.get() }
    }

    /// Returns what the worker remembers of an index in this transaction. Every use ends before code of the user's
    /// types runs, and before the next use.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the cell is the worker's own")]
    pub fn buffer(&self, index: usize) -> &mut IndexBuffer {
        self.buffer_place(index).get()
    }

    /// Returns where [`Worker::buffer`] finds what it returns, during one operation.
    #[inline(always)]
    pub fn buffer_place(&self, index: usize) -> BufferPlace<'_> {
        let place = self.state.buffer_place(index);
        if P::REPAIRS && place.get().round != self.state.round() {
            place.get().rewind(self.state.round());
        }
        place
    }
}

impl<P: Protocol> Deref for Worker<P> {
    type Target = WorkerState;

    #[inline(always)]
    fn deref(&self) -> &WorkerState {
        &self.state
    }
}

/// A worker that the calling thread has claimed. Dropping the claim gives the worker up, unless the thread has another
/// claim of it, in which this one is nested.
pub struct Claim<'db, P: Protocol> {
    worker: &'db Worker<P>,
    guard: ClaimGuard<'db>,
}

impl<'db, P: Protocol> Claim<'db, P> {
    /// Returns the claim of a worker.
    #[inline(always)]
    pub fn new(worker: &'db Worker<P>, guard: ClaimGuard<'db>) -> Self {
        Claim { worker, guard }
    }

    /// Returns the worker. It must not be used after the claim is dropped.
    #[inline(always)]
    pub fn worker(&self) -> &'db Worker<P> {
        self.worker
    }

    /// Returns the worker, and the guard that gives it up.
    pub fn into_parts(self) -> (&'db Worker<P>, ClaimGuard<'db>) {
        (self.worker, self.guard)
    }
}

/// The place of a slot's worker.
type WorkerCell<P> = UnsafeCell<Option<Box<Worker<P>>>>;

/// The workers of a database, by slot. Only the thread that has claimed a slot uses its worker.
pub struct Workers<P: Protocol> {
    cells: Box<[WorkerCell<P>]>,
}

// SAFETY: each cell is accessed only by the thread that has claimed its slot (a claim acquires what the thread before
// it has released), or by the thread that drops the database.
unsafe impl<P: Protocol> Sync for Workers<P> {}
// SAFETY: a worker outside a transaction is not tied to a thread: it holds addresses of the database's memory, and
// executors are `Send`.
unsafe impl<P: Protocol> Send for Workers<P> {}

impl<P: Protocol> Workers<P> {
    pub fn new(workers_max: usize) -> Self {
        Workers { cells: (0..workers_max).map(|_| UnsafeCell::new(None)).collect() }
    }

    /// Returns the worker of a slot. Makes it, if the slot has none yet.
    ///
    /// # Safety
    /// The calling thread has claimed the slot.
    pub unsafe fn get_or_make(
        &self,
        slot: usize,
        shared: &Arc<SharedState>,
        protocol: &Arc<P::Shared>,
        indexes: usize,
    ) -> NonNull<Worker<P>> {
        // SAFETY: by this function's contract.
        let cell = unsafe { &mut *self.cells[slot].get() };
        let worker = cell.get_or_insert_with(|| {
            let worker = Box::new(Worker::new(shared, protocol, slot, indexes));
            // SAFETY: the memory is boxed, and is dropped with the database, when no other worker exists.
            unsafe { shared.idle.register(slot, &worker.memory) };
            worker
        });
        NonNull::from(&mut **worker)
    }

    /// Leaves a worker to other threads, because a thread that remembers it ends. If no other thread remembers it, frees
    /// what can be freed, and gives the worker's memory to the others.
    pub fn leave(&self, slot: usize, shared: &Arc<SharedState>, protocol: &Arc<P::Shared>) {
        if !shared.forget_slot(slot) {
            return;
        }
        shared.grace.await_visitor(slot);
        if !shared.grace.claim(slot) {
            // Another thread has just claimed the worker, and will remember it.
            return;
        }
        // SAFETY: this thread has claimed the slot.
        if let Some(worker) = unsafe { &*self.cells[slot].get() } {
            // Some executors hold something that belongs to the thread's last transaction.
            *worker.executor() = P::Executor::new(protocol, slot);
            worker.memory.leave();
        }
        shared.give_slot(slot);
    }

    /// Takes all workers, when the database is being dropped.
    pub fn take_all(&mut self) -> impl Iterator<Item = Box<Worker<P>>> {
        self.cells.iter_mut().filter_map(|cell| cell.get_mut().take())
    }
}

/// Waits before another attempt: for a random number of pauses below a bound that grows with each attempt. After a few
/// attempts it yields the core as well. If there are many more threads than cores, it does so again and again: then others
/// use the time, the other transaction perhaps among them. (A yield that finds no other thread takes as long as a few
/// pauses, and counts as these.)
///
/// After the first conflict the wait is short, since most transactions get through the second time. Those that do not
/// want a record that others write all the time. Each attempt takes the record's cache lines away from the core that
/// is about to commit, so it delays everybody. The bounds are therefore 2, 32, 512 and then 4096: two threads that
/// increment one record commit in long turns, with the lines in one core's cache.
///
/// Some protocols find by conflicts which records to split. So they must not avoid conflicts by long waits: under such
/// a protocol the bounds are 2, 4, 8 and so on.
///
/// How long the transaction is makes no difference. Longer waits for longer ones were tried, and cost more than they saved
/// (decision 51).
///
/// If a lock was denied, the other transaction still runs, and may release the lock soon. Then the bounds are 2, 4, 16,
/// 64 and so on.
#[cold]
pub fn backoff<P: Protocol>(worker: &Worker<P>, attempts: u32, reason: ConflictReason) {
    const PAUSES_MAX_LOG2: u32 = 12;
    const PAUSES_PER_YIELD: u32 = 16;
    const PAUSES_OF_YIELD: u32 = 8;
    let attempts = attempts.clamp(1, PAUSES_MAX_LOG2);
    let pauses_log2 = match reason {
        _ if P::COUNTS_CONFLICTS => attempts,
        ConflictReason::LockDenied => (2 * attempts - 2).max(1),
        _ => 4 * attempts - 3,
    };
    let mut pauses = worker.random.borrow_mut().u32(0..1 << pauses_log2.min(PAUSES_MAX_LOG2));
    while pauses > PAUSES_PER_YIELD && worker.memory.shared().is_crowded() {
        (0..PAUSES_PER_YIELD).for_each(|_| spin_loop());
        yield_now();
        pauses = pauses.saturating_sub(PAUSES_PER_YIELD + PAUSES_OF_YIELD);
    }
    (0..pauses).for_each(|_| spin_loop());
    if attempts > 3 {
        yield_now();
    }
}
