//! Grace periods: when may memory that was unlinked be freed? (DBX §5.5)
//!
//! A worker that runs a transaction is *pinned*: it may hold addresses of anything that was linked when it
//! began. Between transactions it is offline and holds no addresses. What is unlinked at some moment cannot
//! be reached by any transaction that begins later. So it may be freed once all transactions that were
//! running at that moment have ended. That time is a grace period.
//!
//! DBX detects it with a vector of transaction counters. Here a shared counter, the *grace clock*, takes the
//! place of the vector:
//!
//! ```text
//!   worker      begin: slot := clock            end: slot := OFFLINE
//!   reclaimer   unlink everything in a batch; tag := ++clock;
//!               free the batch when every slot >= tag (OFFLINE counts as infinity)
//! ```
//!
//! **Why it is safe.** Take a batch with tag `t` and a worker whose slot holds `s`.
//! - `s >= t`: the worker read the clock at or after the increment to `t`. The increment is a release, and
//!   every later one continues its release sequence. So the worker's acquire of the clock makes all unlinking
//!   before the increment visible to it, and it cannot find the batch. What it read in an earlier transaction
//!   happened before its store to the slot, which is a release, and so before the reclaimer frees anything.
//! - The reclaimer missed the worker's store to its slot (it saw OFFLINE or an older value). Between its
//!   store to the slot and its first look at shared data the worker executes a sequentially consistent fence,
//!   and so does the reclaimer between unlinking and looking at the slots. One of the two fences comes first.
//!   If it is the worker's, the reclaimer sees the slot. If it is the reclaimer's, the worker sees the
//!   unlinking, and cannot find the batch.
//! - Otherwise the reclaimer sees `s < t` and waits.
//!
//! **Visits.** Only the worker itself uses what it has gathered while it is pinned. While it is not, another
//! worker may *visit* it and take this over. Each of the two first announces itself, and then looks at the
//! other:
//!
//! ```text
//!   worker    slot := clock;   fence;   wait while it is visited
//!   visitor   visited := 1;    fence;   if the slot is OFFLINE: visit;   visited := 0
//! ```
//!
//! One of the two fences comes first. If it is the worker's, the visitor sees the slot and gives up. If it is
//! the visitor's, the worker sees that it is being visited, and waits. If a worker uses what it has gathered
//! while it is not pinned, it visits itself. The word `visited` lies beside the slot, on a line that the
//! worker writes in any case.

use weft_htm::word::{Ordering, Word, fence, spin_loop, yield_now};

/// The slot value of a worker that runs no transaction.
pub const OFFLINE: u64 = u64::MAX;

/// A word on a cache line of its own, since its owner writes it twice per transaction.
#[repr(align(64))]
#[derive(Debug)]
struct PaddedWord(Word);

/// A worker's slot, on a cache line of its own.
#[repr(align(64))]
#[derive(Debug)]
struct WorkerSlot {
    /// The value of the clock when the worker was pinned, or [`OFFLINE`].
    pinned: Word,
    /// 1 while the worker is visited.
    visited: Word,
}

/// The grace clock of a database, with a slot for each worker.
#[derive(Debug)]
pub struct GracePeriods {
    clock: PaddedWord,
    /// One more than the highest slot ever used, so that a scan covers only slots in use.
    slots_used: PaddedWord,
    slots: Box<[WorkerSlot]>,
}

impl GracePeriods {
    /// Creates a grace clock for up to `workers_max` workers.
    pub fn new(workers_max: usize) -> Self {
        GracePeriods {
            clock: PaddedWord(Word::new(1)),
            slots_used: PaddedWord(Word::new(0)),
            slots: (0..workers_max)
                .map(|_| WorkerSlot { pinned: Word::new(OFFLINE), visited: Word::new(0) })
                .collect(),
        }
    }

    /// Includes `slot` in the scans of [`GracePeriods::horizon`]. Must be called before the slot's first
    /// [`GracePeriods::pin`], by one thread at a time.
    pub fn enlist(&self, slot: usize) {
        let used = slot as u64 + 1;
        if self.slots_used.0.load(Ordering::SeqCst) < used {
            self.slots_used.0.store(used, Ordering::SeqCst);
        }
    }

    /// Returns one more than the highest slot that was ever used.
    pub fn slots_used(&self) -> usize {
        self.slots_used.0.load(Ordering::SeqCst) as usize
    }

    /// Pins the worker in `slot`. Until it is unpinned, nothing that it can find is freed, and it is not
    /// visited. Waits until a visit that is under way has ended.
    #[inline(always)]
    pub fn pin(&self, slot: usize) {
        self.pin_visited(slot);
        // Acquire: pairs with the release in `end_visit`. This load must come after the fence in
        // `pin_visited`, as `begin_visit` requires.
        if self.slots[slot].visited.load(Ordering::Acquire) != 0 {
            self.await_visitor(slot);
        }
    }

    #[cold]
    fn await_visitor(&self, slot: usize) {
        let mut spins = 0u32;
        while self.slots[slot].visited.load(Ordering::Acquire) != 0 {
            spins += 1;
            if cfg!(any(loom, shuttle)) || spins.is_multiple_of(64) {
                yield_now();
            } else {
                spin_loop();
            }
        }
    }

    /// Visits a worker that is not pinned. Returns false if it is pinned, or already visited. If this returns
    /// true, only the caller may use what the worker has gathered, until [`GracePeriods::end_visit`].
    pub fn begin_visit(&self, slot: usize) -> bool {
        let WorkerSlot { pinned, visited } = &self.slots[slot];
        // Acquire: pairs with the release in `end_visit`.
        if visited.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        // Pairs with the fence in `pin_visited`.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release in `unpin`.
        let is_offline = pinned.load(Ordering::Acquire) == OFFLINE;
        if !is_offline {
            self.end_visit(slot);
        }
        is_offline
    }

    /// Makes the calling worker, which is not pinned, visit itself. Waits until another visit has ended.
    pub fn visit_self(&self, slot: usize) {
        while !self.begin_visit(slot) {
            self.await_visitor(slot);
        }
    }

    /// Ends a visit.
    pub fn end_visit(&self, slot: usize) {
        // Release: pairs with the acquires in `begin_visit`, `pin` and `await_visitor`.
        self.slots[slot].visited.store(0, Ordering::Release);
    }

    /// As [`GracePeriods::pin`], for a worker that visits itself.
    #[inline(always)]
    pub fn pin_visited(&self, slot: usize) {
        // Acquire: pairs with the increment in `seal`; see "s >= t" above.
        let now = self.clock.0.load(Ordering::Acquire);
        // Release: pairs with the acquire in `horizon`. A reclaimer may read this value, and not the
        // `OFFLINE` that `unpin` stored before it. Then it must still see the reads of the worker's earlier
        // transaction as done. (A relaxed store would break the release of that `unpin`.)
        //
        // The fence makes the store visible before the worker reads anything. It pairs with the fences in
        // `horizon` and `begin_visit`.
        self.slots[slot].pinned.store(now, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Returns how many batches have been sealed since the worker in `slot` was pinned.
    pub fn sealed_since(&self, slot: usize) -> u64 {
        // Relaxed: only a hint, and the slot is the caller's own.
        self.clock.0.load(Ordering::Relaxed) - self.slots[slot].pinned.load(Ordering::Relaxed)
    }

    /// Unpins the worker in `slot`.
    #[inline(always)]
    pub fn unpin(&self, slot: usize) {
        // Release: pairs with the acquires in `horizon` and `begin_visit`, so that everything that the worker
        // reads in its transaction is read before the memory is freed and used again.
        self.slots[slot].pinned.store(OFFLINE, Ordering::Release);
    }

    /// Seals a batch of what the caller has unlinked, and returns its tag.
    #[inline]
    pub fn seal(&self) -> u64 {
        // Release: what was unlinked is visible to a worker that pins at the new value. Acquire: keeps the
        // clock a chain of happens-before from tag to tag.
        self.clock.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the horizon: batches with a tag up to this value may be freed.
    #[inline]
    pub fn horizon(&self) -> u64 {
        // Pairs with the fence in `pin_visited`.
        fence(Ordering::SeqCst);
        self.slots[..self.slots_used()]
            .iter()
            // Acquire: pairs with the releases in `unpin` and `pin_visited`.
            .map(|slot| slot.pinned.load(Ordering::Acquire))
            .min()
            .unwrap_or(OFFLINE)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_worker_holds_back_batches_sealed_since() {
        let grace = GracePeriods::new(2);
        grace.enlist(0);
        grace.enlist(1);
        grace.pin(0);
        let tag = grace.seal();
        assert!(grace.horizon() < tag, "worker 0 began before the seal");
        grace.pin(1);
        assert!(grace.horizon() < tag, "worker 0 still holds it back");
        grace.unpin(0);
        assert!(grace.horizon() >= tag, "worker 1 began after the seal and does not hold it back");
    }

    #[test]
    fn idle_workers_hold_nothing_back() {
        let grace = GracePeriods::new(3);
        (0..3).for_each(|slot| grace.enlist(slot));
        let tag = grace.seal();
        assert!(grace.horizon() >= tag);
    }

    #[test]
    fn a_worker_is_visited_unless_it_is_pinned_or_visited() {
        let grace = GracePeriods::new(1);
        grace.enlist(0);
        grace.pin(0);
        assert!(!grace.begin_visit(0), "it is pinned");
        grace.unpin(0);
        assert!(grace.begin_visit(0));
        assert!(!grace.begin_visit(0), "it is visited");
        grace.end_visit(0);
        grace.visit_self(0);
        grace.pin_visited(0);
        assert!(!grace.begin_visit(0), "it visits itself");
        grace.unpin(0);
        grace.end_visit(0);
        assert!(grace.begin_visit(0));
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A reader that finds a linked object never sees it freed while pinned. Nor does the freeing overtake
    /// what the reader did before it unpinned. Loom's cell reports any two accesses that are not ordered.
    #[test]
    fn loom_nothing_is_freed_under_a_pinned_reader() {
        loom::model(|| free_beside_a_reader_that_pins(1));
    }

    /// The reader pins twice. The reclaimer may see its second pin, and must then see its first transaction
    /// as ended.
    #[test]
    fn loom_nothing_is_freed_under_a_reader_that_pins_again() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| free_beside_a_reader_that_pins(2));
    }

    /// What a worker has gathered is used by one thread at a time: by the worker while it is pinned or visits
    /// itself, or by a visitor.
    #[test]
    fn loom_a_workers_lists_have_one_user_at_a_time() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let grace = Arc::new(GracePeriods::new(1));
            grace.enlist(0);
            let gathered = Arc::new(UnsafeCell::new(0));
            let visitor = {
                let (grace, gathered) = (Arc::clone(&grace), Arc::clone(&gathered));
                thread::spawn(move || {
                    if grace.begin_visit(0) {
                        // SAFETY: this is a visit; that this is enough is what the test checks.
                        gathered.with_mut(|gathered| unsafe { *gathered = 0 });
                        grace.end_visit(0);
                    }
                })
            };
            grace.pin(0);
            // SAFETY: the worker is pinned; that this is enough is what the test checks.
            gathered.with_mut(|gathered| unsafe { *gathered += 1 });
            grace.unpin(0);
            grace.visit_self(0);
            grace.pin_visited(0);
            // SAFETY: the worker visits itself; that this is enough is what the test checks.
            gathered.with_mut(|gathered| unsafe { *gathered += 1 });
            grace.unpin(0);
            grace.end_visit(0);
            visitor.join().unwrap();
        });
    }

    fn free_beside_a_reader_that_pins(pins: u32) {
        let grace = Arc::new(GracePeriods::new(2));
        grace.enlist(0);
        grace.enlist(1);
        let linked = Arc::new(Word::new(1));
        let object = Arc::new(UnsafeCell::new(7));
        let reader = {
            let (grace, linked, object) =
                (Arc::clone(&grace), Arc::clone(&linked), Arc::clone(&object));
            thread::spawn(move || {
                for _ in 0..pins {
                    grace.pin(0);
                    if linked.load(Ordering::Acquire) == 1 {
                        // SAFETY: linked when this thread was pinned; that this is enough is what the test
                        // checks.
                        let contents = object.with(|object| unsafe { *object });
                        assert_eq!(contents, 7, "freed while in use");
                    }
                    grace.unpin(0);
                }
            })
        };
        linked.store(0, Ordering::Release);
        let tag = grace.seal();
        if grace.horizon() >= tag {
            // SAFETY: the grace period has passed; that this is enough is what the test checks.
            object.with_mut(|object| unsafe { *object = 0 });
        }
        reader.join().unwrap();
    }
}
