//! Grace periods: when may memory that was unlinked be freed? (DBX §5.5)
//!
//! A worker that runs a transaction is *pinned*: it may hold addresses of anything that was linked when it
//! began. Between transactions it holds no addresses. What is unlinked at some moment cannot
//! be reached by any transaction that begins later. So it may be freed once all transactions that were
//! running at that moment have ended. That time is a grace period.
//!
//! DBX detects it with a vector of transaction counters. Here a shared counter, the *grace clock*, takes the
//! place of the vector:
//!
//! ```text
//!   worker      begin: slot := clock            end: slot := CLAIMED or FREE
//!   reclaimer   unlink everything in a batch; tag := ++clock;
//!               free the batch when every slot >= tag (CLAIMED and FREE count as infinity)
//! ```
//!
//! **Why it is safe.** Take a batch with tag `t` and a worker whose slot holds `s`.
//! - `s >= t`: the worker read the clock at or after the increment to `t`. The increment is a release, and
//!   every later one continues its release sequence. So the worker's acquire of the clock makes all unlinking
//!   before the increment visible to it, and it cannot find the batch. What it read in an earlier transaction
//!   happened before its store to the slot, which is a release, and so before the reclaimer frees anything.
//! - The reclaimer missed the worker's store to its slot (it saw CLAIMED, FREE or an older value). Between its
//!   store to the slot and its first look at shared data the worker executes a sequentially consistent fence,
//!   and so does the reclaimer between unlinking and looking at the slots. One of the two fences comes first.
//!   If it is the worker's, the reclaimer sees the slot. If it is the reclaimer's, the worker sees the
//!   unlinking, and cannot find the batch.
//! - Otherwise the reclaimer sees `s < t` and waits.
//!
//! **Claims.** The word of a worker also says whether a thread uses the worker:
//!
//! ```text
//!   FREE      no thread uses the worker          claim_pinned, claim, begin_visit: compare-and-swap from FREE
//!   VISITED   another worker takes over what this one has gathered     end_visit: -> FREE
//!   CLAIMED   a thread has it, and runs no transaction now             pin: -> clock      release: -> FREE
//!   clock     a thread has it, and runs a transaction                  unpin: -> CLAIMED
//! ```
//!
//! Every change from `FREE` is a compare-and-swap, so one thread has the worker at a time. It acquires what the
//! thread before it has released. A claim for a single transaction pins in the same step
//! ([`GracePeriods::claim_pinned`]). The compare-and-swap takes the place of the fence that a pin needs, so such
//! a claim costs no further ordering instruction. The first three values are greater than every value of the
//! clock, so none of them holds back a batch.

use weft_htm::word::{Ordering, Word, fence, fence_after_exchange, spin_loop, yield_now};

/// The horizon if no worker runs a transaction.
pub const OFFLINE: u64 = u64::MAX;

/// The word of a worker that no thread uses.
const FREE: u64 = u64::MAX;
/// The word of a worker that a thread has claimed, and that runs no transaction.
const CLAIMED: u64 = u64::MAX - 1;
/// The word of a free worker whose lists another worker takes over. It is the least of the three.
const VISITED: u64 = u64::MAX - 2;

/// A word on a cache line of its own. The owner of a worker's word writes it three times per transaction.
#[repr(align(64))]
#[derive(Debug)]
struct PaddedWord(Word);

/// The grace clock of a database, with a slot for each worker.
#[derive(Debug)]
pub struct GracePeriods {
    clock: PaddedWord,
    /// One more than the highest slot ever used, so that a scan covers only slots in use.
    slots_used: PaddedWord,
    slots: Box<[PaddedWord]>,
}

impl GracePeriods {
    /// Creates a grace clock for up to `workers_max` workers.
    pub fn new(workers_max: usize) -> Self {
        GracePeriods {
            clock: PaddedWord(Word::new(1)),
            slots_used: PaddedWord(Word::new(0)),
            slots: (0..workers_max).map(|_| PaddedWord(Word::new(FREE))).collect(),
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

    /// Returns the word that has [`GracePeriods::slots_used`].
    pub fn slots_used_word(&self) -> &Word {
        &self.slots_used.0
    }

    /// Claims the worker in `slot` if it is free.
    #[inline]
    pub fn claim(&self, slot: usize) -> bool {
        let word = &self.slots[slot].0;
        // Acquire: pairs with the releases in `release` and `end_visit`, so that the worker is as the thread
        // before this one has left it.
        word.load(Ordering::Relaxed) == FREE
            && word.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Claims the worker in `slot` if it is free, and pins it: [`GracePeriods::claim`] and
    /// [`GracePeriods::pin`] in one step.
    #[inline(always)]
    pub fn claim_pinned(&self, slot: usize) -> bool {
        // Acquire: as in `pin`.
        let now = self.clock.0.load(Ordering::Acquire);
        // Acquire: as in `claim`. Release: as in `pin`.
        let word = &self.slots[slot].0;
        let claimed = word.compare_exchange(FREE, now, Ordering::AcqRel, Ordering::Relaxed);
        // Orders the exchange before everything that the transaction reads, as the fence in `pin` does.
        fence_after_exchange();
        claimed.is_ok()
    }

    /// Gives up the worker in `slot`, which the calling thread has claimed, and which is not pinned.
    #[inline(always)]
    pub fn release(&self, slot: usize) {
        // Release: pairs with the acquires in `claim`, `claim_pinned` and `begin_visit`.
        self.slots[slot].0.store(FREE, Ordering::Release);
    }

    /// Waits until a visit of the worker in `slot` that is under way has ended.
    pub fn await_visitor(&self, slot: usize) {
        let mut spins = 0u32;
        while self.slots[slot].0.load(Ordering::Relaxed) == VISITED {
            spins += 1;
            if cfg!(any(loom, shuttle)) || spins.is_multiple_of(64) {
                yield_now();
            } else {
                spin_loop();
            }
        }
    }

    /// Visits a worker that is free. If this returns true, only the caller may use what the worker has gathered,
    /// until [`GracePeriods::end_visit`].
    pub fn begin_visit(&self, slot: usize) -> bool {
        let word = &self.slots[slot].0;
        // Acquire: as in `claim`.
        word.load(Ordering::Relaxed) == FREE
            && word.compare_exchange(FREE, VISITED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Ends a visit.
    pub fn end_visit(&self, slot: usize) {
        // Release: as in `release`.
        self.slots[slot].0.store(FREE, Ordering::Release);
    }

    /// Pins the worker in `slot`, which the calling thread has claimed. Until it is unpinned, nothing that it can
    /// find is freed.
    #[inline(always)]
    pub fn pin(&self, slot: usize) {
        // Acquire: pairs with the increment in `seal`; see "s >= t" above.
        let now = self.clock.0.load(Ordering::Acquire);
        // Release: pairs with the acquire in `horizon`. A reclaimer may read this value, and not the
        // `CLAIMED` that `unpin` stored before it. Then it must still see the reads of the worker's earlier
        // transaction as done. (A relaxed store would break the release of that `unpin`.)
        //
        // The fence makes the store visible before the worker reads anything. It pairs with the fence in
        // `horizon`.
        self.slots[slot].0.store(now, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Returns how many batches have been sealed since the worker in `slot` was pinned.
    pub fn sealed_since(&self, slot: usize) -> u64 {
        // Relaxed: only a hint, and the slot is the caller's own.
        self.clock.0.load(Ordering::Relaxed) - self.slots[slot].0.load(Ordering::Relaxed)
    }

    /// Unpins the worker in `slot`. The calling thread still has it.
    #[inline(always)]
    pub fn unpin(&self, slot: usize) {
        // Release: pairs with the acquire in `horizon`, so that everything that the worker reads in its
        // transaction is read before the memory is freed and used again.
        self.slots[slot].0.store(CLAIMED, Ordering::Release);
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
        // Pairs with the fences in `pin` and `claim_pinned`.
        fence(Ordering::SeqCst);
        self.slots[..self.slots_used()]
            .iter()
            // Acquire: pairs with the releases in `unpin`, `release`, `pin` and `claim_pinned`.
            .map(|slot| slot.0.load(Ordering::Acquire))
            .filter(|&word| word < VISITED)
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
    fn a_worker_has_one_user_at_a_time() {
        let grace = GracePeriods::new(1);
        grace.enlist(0);
        assert!(grace.claim_pinned(0));
        let tag = grace.seal();
        assert!(grace.horizon() < tag, "it is pinned");
        assert!(!grace.claim(0) && !grace.claim_pinned(0) && !grace.begin_visit(0));
        grace.unpin(0);
        assert_eq!(grace.horizon(), OFFLINE, "it is claimed and not pinned");
        assert!(!grace.claim(0) && !grace.claim_pinned(0) && !grace.begin_visit(0));
        grace.release(0);
        assert!(grace.begin_visit(0));
        assert_eq!(grace.horizon(), OFFLINE, "it is visited");
        assert!(!grace.claim(0) && !grace.claim_pinned(0) && !grace.begin_visit(0));
        grace.end_visit(0);
        assert!(grace.claim(0));
        grace.pin(0);
        assert!(grace.horizon() < OFFLINE);
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
        loom::model(|| free_beside_a_reader(1, false));
    }

    /// The reader pins twice. The reclaimer may see its second pin, and must then see its first transaction
    /// as ended.
    #[test]
    fn loom_nothing_is_freed_under_a_reader_that_pins_again() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| free_beside_a_reader(2, false));
    }

    /// A reader that claims a worker for each transaction, in one step with the pin.
    #[test]
    fn loom_nothing_is_freed_under_a_reader_that_claims() {
        loom::model(|| free_beside_a_reader(1, true));
    }

    /// As before, twice.
    #[test]
    fn loom_nothing_is_freed_under_a_reader_that_claims_again() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| free_beside_a_reader(2, true));
    }

    /// A worker is used by one thread at a time: by one that has claimed it, or by a visitor.
    #[test]
    fn loom_a_worker_has_one_user_at_a_time() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let grace = Arc::new(GracePeriods::new(1));
            grace.enlist(0);
            let worker = Arc::new(UnsafeCell::new(0));
            let used = |worker: &UnsafeCell<u32>| {
                // SAFETY: the calling thread has the worker; that this is enough is what the test checks.
                worker.with_mut(|worker| unsafe { *worker += 1 });
            };
            let users = [0, 1].map(|user| {
                let (grace, worker) = (Arc::clone(&grace), Arc::clone(&worker));
                thread::spawn(move || {
                    if user == 0 && grace.begin_visit(0) {
                        used(&worker);
                        grace.end_visit(0);
                    } else if user == 1 && grace.claim(0) {
                        used(&worker);
                        grace.pin(0);
                        used(&worker);
                        grace.unpin(0);
                        used(&worker);
                        grace.release(0);
                    }
                })
            });
            for _ in 0..2 {
                if grace.claim_pinned(0) {
                    used(&worker);
                    grace.unpin(0);
                    used(&worker);
                    grace.release(0);
                }
            }
            users.into_iter().for_each(|user| user.join().unwrap());
        });
    }

    fn free_beside_a_reader(pins: u32, claims: bool) {
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
                    match claims {
                        true => assert!(grace.claim_pinned(0)),
                        false => grace.pin(0),
                    }
                    if linked.load(Ordering::Acquire) == 1 {
                        // SAFETY: linked when this thread was pinned; that this is enough is what the test
                        // checks.
                        let contents = object.with(|object| unsafe { *object });
                        assert_eq!(contents, 7, "freed while in use");
                    }
                    grace.unpin(0);
                    if claims {
                        grace.release(0);
                    }
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
