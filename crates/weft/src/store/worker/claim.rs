//! Claims: how a thread gets a worker for a transaction, and which one.
//!
//! ```text
//!   the thread has a worker already (a nested call)           the same worker
//!   the worker that the thread had last is free               that one: one compare-and-swap
//!   a worker that no thread remembers; a new worker;          found under a lock
//!   any free worker
//!   no worker is free                                         the thread waits: see `sync::wait_queue`
//! ```
//!
//! A thread *remembers* the worker that it had last ([`LastWorker`]), in a thread-local list with an entry for each
//! database. That is only a hint. Several threads may remember the same worker, and the word of the worker's slot
//! decides which of them has it (see [`GracePeriods`](crate::sync::reclaim::GracePeriods)). The slots know how many
//! threads remember them, so that a thread which looks for a worker prefers one that no other thread will want back. When
//! the last of these threads ends, it leaves the worker behind for others.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::PoisonError;

use super::{SharedState, Slots};
use crate::error::Failure;
use crate::store::deadline::Deadline;

/// The worker of one database that a thread had last.
pub struct LastWorker {
    /// The address of the database's shared part. The owner's weak reference keeps the address from being used again.
    database: *const (),
    slot: Cell<usize>,
    /// The worker of that slot. It exists as long as the database.
    worker: Cell<NonNull<()>>,
    /// How many claims of this thread the worker has. A claim can be nested in another one, and can outlast it: a row's
    /// `Drop` runs while the worker is claimed, and may begin a transaction that it keeps.
    claims: Cell<u32>,
    owner: Box<dyn WorkerOwner>,
}

/// The database of a [`LastWorker`], under any protocol.
pub trait WorkerOwner {
    /// Returns whether the database still exists.
    fn exists(&self) -> bool;

    /// Leaves a worker to other threads, because a thread that remembers it ends.
    fn leave(&self, slot: usize);
}

/// The workers that a thread remembers, one for each database.
#[derive(Default)]
struct LastWorkers(RefCell<Vec<NonNull<LastWorker>>>);

impl Drop for LastWorkers {
    fn drop(&mut self) {
        #[cfg(not(weft_sim))]
        NEWEST.set(None);
        for last in self.0.take() {
            // SAFETY: the entry was boxed, and only this list and claims of this thread lead to it.
            let entry = unsafe { last.as_ref() };
            // A transaction that was leaked, or that another thread-local value holds, still uses the entry.
            if !entry.is_claimed() {
                entry.owner.leave(entry.slot.get());
                // SAFETY: as above; no claim is left.
                drop(unsafe { Box::from_raw(last.as_ptr()) });
            }
        }
    }
}

#[cfg(not(weft_sim))]
thread_local! {
    static LAST_WORKERS: LastWorkers = const { LastWorkers(RefCell::new(Vec::new())) };
    /// The entry that was used last. It needs no destructor, so reading it takes one instruction.
    static NEWEST: Cell<Option<NonNull<LastWorker>>> = const { Cell::new(None) };
}
/// On the simulated machine each virtual core remembers workers of its own.
#[cfg(weft_sim)]
static LAST_WORKERS: weft_htm::simulation::local::Local<LastWorkers> =
    weft_htm::simulation::local::Local::new(LastWorkers::default);

/// Returns whether the calling thread can remember workers. While its thread-local values are destroyed, it cannot.
pub fn remembers_workers() -> bool {
    LAST_WORKERS.try_with(|_| ()).is_ok()
}

impl LastWorker {
    /// Returns the worker of a database that the calling thread had last, if it had one. The result is valid until
    /// the thread remembers a worker of another database, unless the worker is claimed.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn find(database: *const ()) -> Option<NonNull<LastWorker>> {
        #[cfg(not(weft_sim))]
        // (`Cell::get` of a `LocalKey` is not inlined.)
        if let Ok(Some(newest)) = NEWEST.try_with(Cell::get)
            // SAFETY: before an entry is freed, `NEWEST` is cleared.
            && unsafe { newest.as_ref() }.database == database
        {
            return Some(newest);
        }
        LastWorker::search(database)
    }

    /// Searches the thread's list for the entry of a database.
    #[cold]
    #[inline(never)]
    fn search(database: *const ()) -> Option<NonNull<LastWorker>> {
        // This fails only while the thread's locals are being destroyed.
        let found = LAST_WORKERS.try_with(|last| {
            let last = last.0.borrow();
            // SAFETY: entries are boxed, and stay as long as they are in the list.
            last.iter().copied().find(|last| unsafe { last.as_ref() }.database == database)
        });
        let found = found.ok().flatten();
        #[cfg(not(weft_sim))]
        if found.is_some() {
            NEWEST.set(found);
        }
        found
    }

    /// Remembers a worker, which the calling thread has claimed. Returns `None` if the thread is ending.
    pub fn remember(
        database: *const (),
        slot: usize,
        worker: NonNull<()>,
        owner: impl FnOnce() -> Box<dyn WorkerOwner>,
    ) -> Option<NonNull<LastWorker>> {
        let last = match LastWorker::find(database) {
            Some(last) => last,
            None => LAST_WORKERS
                .try_with(|all| {
                    let mut all = all.0.borrow_mut();
                    #[cfg(not(weft_sim))]
                    NEWEST.set(None);
                    all.retain(|last| {
                        // SAFETY: as in `find`.
                        let exists = unsafe { last.as_ref() }.owner.exists();
                        if !exists {
                            // SAFETY: the entry was boxed. A claim borrows its database, so no claim is left.
                            drop(unsafe { Box::from_raw(last.as_ptr()) });
                        }
                        exists
                    });
                    let last = Box::new(LastWorker {
                        database,
                        slot: Cell::new(slot),
                        worker: Cell::new(worker),
                        claims: Cell::new(0),
                        owner: owner(),
                    });
                    let last = NonNull::from(Box::leak(last));
                    all.push(last);
                    last
                })
                .ok()?,
        };
        // SAFETY: the entry is in the list.
        let entry = unsafe { last.as_ref() };
        entry.slot.set(slot);
        entry.worker.set(worker);
        Some(last)
    }

    /// Returns the worker's slot.
    #[inline(always)]
    pub fn slot(&self) -> usize {
        self.slot.get()
    }

    /// Returns the worker.
    #[inline(always)]
    pub fn worker(&self) -> NonNull<()> {
        self.worker.get()
    }

    /// Returns whether this thread has claimed the worker.
    #[inline(always)]
    pub fn is_claimed(&self) -> bool {
        self.claims.get() > 0
    }
}

/// A claim of a worker by the calling thread. Dropping the last one gives the worker up.
pub struct ClaimGuard<'s> {
    shared: &'s SharedState,
    /// `None` if the claim has yet to be made.
    last: Option<NonNull<LastWorker>>,
}

impl<'s> ClaimGuard<'s> {
    /// Returns a guard of a claim that has yet to be made.
    #[inline(always)]
    pub fn none(shared: &'s SharedState) -> Self {
        ClaimGuard { shared, last: None }
    }

    /// Begins a claim, which may be nested in another one.
    ///
    /// # Safety
    /// `last` is the calling thread's entry for the database of `shared`, and the thread has claimed the slot in it.
    #[inline(always)]
    pub unsafe fn new(shared: &'s SharedState, last: NonNull<LastWorker>) -> Self {
        // SAFETY: by this function's contract the entry exists.
        let claims = &unsafe { last.as_ref() }.claims;
        // A thread can leak claims, but not so many.
        claims.set(claims.get().checked_add(1).expect("less than four billion claims"));
        ClaimGuard { shared, last: Some(last) }
    }

    /// Claims the worker in the calling thread's entry for this database, and pins it. Returns false if the worker is
    /// not free: another thread uses it, or this one does in another claim. The guard must be [`ClaimGuard::none`].
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn claim_pinned(&mut self, last: NonNull<LastWorker>) -> bool {
        debug_assert!(self.last.is_none());
        // SAFETY: the caller has just found the entry, and the thread's other claims keep it.
        let entry = unsafe { last.as_ref() };
        let is_claimed = self.shared.grace.claim_pinned(entry.slot());
        if is_claimed {
            // The thread had not claimed the worker before, since then it would not be free.
            entry.claims.set(1);
            self.last = Some(last);
        }
        is_claimed
    }
}

impl Drop for ClaimGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let Some(last) = self.last else { return };
        // SAFETY: an entry is not freed as long as its worker is claimed, and the thread's list outlives the database
        // of a claim, or has left the entry to it.
        let last = unsafe { last.as_ref() };
        let left = last.claims.get() - 1;
        last.claims.set(left);
        if left == 0 {
            self.shared.release_slot(last.slot.get());
        }
    }
}

impl SharedState {
    /// Gives up a slot that the calling thread has claimed. If other threads wait for one, the first of them gets it.
    #[inline(always)]
    pub fn release_slot(&self, slot: usize) {
        self.grace.release(slot);
        self.serve_waiting(slot);
    }

    /// Gives a slot that is free to the first of the waiting threads.
    #[inline(always)]
    fn serve_waiting(&self, slot: usize) {
        if !self.waiting.is_empty() {
            self.serve_waiting_from(slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn serve_waiting_from(&self, slot: usize) {
        self.waiting.serve(&mut || self.grace.claim(slot).then_some(slot));
    }

    /// Claims a slot, if one is free. Prefers a slot that no thread remembers, then one that was never used.
    pub fn take_slot(&self) -> Option<usize> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(slot) = slots.free.pop() {
            // A thread that remembers a slot, although the slot does not remember the thread, may have claimed it.
            if self.grace.claim(slot) {
                return Some(slot);
            }
        }
        let slot = slots.used;
        if slot < self.counters.len() {
            // Claimed before others can see it.
            let is_claimed = self.grace.claim(slot);
            debug_assert!(is_claimed, "a slot that was never used is free");
            slots.used += 1;
            slots.htm_readers.push(None);
            slots.remembered_by.push(0);
            self.grace.enlist(slot);
            return Some(slot);
        }
        let found = (slots.next_search..slots.used).chain(0..slots.next_search);
        let found = found.into_iter().find(|&slot| self.grace.claim(slot))?;
        slots.next_search = (found + 1) % slots.used;
        Some(found)
    }

    /// Claims a slot, and waits until one is free.
    ///
    /// # Errors
    /// [`Failure::Closed`] or [`Failure::Loading`] if the thread would have to wait, and the database is not open;
    /// [`Failure::WorkersBusy`] if the deadline passes.
    pub fn take_slot_or_wait(&self, deadline: Option<&Deadline>) -> Result<usize, Failure> {
        if self.waiting.is_empty()
            && let Some(slot) = self.take_slot()
        {
            return Ok(slot);
        }
        let mut keep_waiting = || {
            self.check_open()?;
            match deadline {
                Some(deadline) if deadline.has_passed() => Err(Failure::WorkersBusy {
                    workers_max: self.claimable_max,
                    deadline: deadline.limit,
                }),
                Some(deadline) => Ok(Some(deadline.remaining())),
                None => Ok(None),
            }
        };
        self.waiting.wait(&mut || self.take_slot(), &mut keep_waiting)
    }

    /// Notes that a thread remembers a slot, which it has claimed, and no longer the slot that it `had` before.
    pub fn set_remembered(&self, slot: usize, had: Option<usize>) {
        self.with_slots(|slots| {
            slots.remembered_by[slot] += 1;
            if let Some(had) = had
                && slots.forget(had)
            {
                slots.free.push(had);
            }
        });
    }

    /// Notes that a thread no longer remembers a slot. Returns whether no other thread does.
    pub fn forget_slot(&self, slot: usize) -> bool {
        self.with_slots(|slots| slots.forget(slot))
    }

    /// Gives up a slot that the calling thread has claimed, and that no thread remembers.
    pub fn give_slot(&self, slot: usize) {
        self.with_slots(|slots| {
            slots.free.push(slot);
            // Released under the lock: a thread that takes the slot from the list finds it free.
            self.grace.release(slot);
        });
        self.serve_waiting(slot);
    }

    /// Gives up a slot that the calling thread has [taken](SharedState::take_slot) for something else than
    /// transactions.
    pub fn give_slot_back(&self, slot: usize) {
        match self.with_slots(|slots| slots.remembered_by[slot]) {
            0 => self.give_slot(slot),
            _ => self.release_slot(slot),
        }
    }

    fn with_slots<R>(&self, use_them: impl FnOnce(&mut Slots) -> R) -> R {
        use_them(&mut self.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Slots {
    /// Notes that a thread no longer remembers a slot. Returns whether no other thread does.
    fn forget(&mut self, slot: usize) -> bool {
        self.remembered_by[slot] -= 1;
        self.remembered_by[slot] == 0
    }
}
