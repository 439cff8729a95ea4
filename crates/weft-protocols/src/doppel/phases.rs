//! Phases: which phase it is, which workers are in a transaction, and how one phase gives way to the next.
//!
//! ```text
//!   worker                                   worker that changes the phase (one at a time)
//!     running := 1                             word := changing
//!     fence                                    fence
//!     word: joined or split?  go on            wait until no worker is running
//!           changing?  running := 0, wait      merge slices, or make them
//!     … transaction …                          word := the next phase
//!     running := 0
//! ```
//!
//! Where workers merge their own slices (§5.3), a worker that sees the change announces itself again, and does so while
//! `word` is `changing`. After all transactions have ended, the worker that changes the phase sets `word := settled`, and
//! waits until no such worker is announced. By the same fences, no worker begins to merge its own slices after that.
//!
//! One of the two fences comes first. If it is the worker's, the worker that changes the phase sees it running,
//! and waits for the end of its transaction. If it is the other one, the worker sees the change, and steps
//! back. So no transaction runs while the phase changes, and each transaction runs within one phase (Doppel,
//! §5.1). A worker outside of a transaction delays no change, however long it sleeps.

use weft_htm::word::{Ordering, Word, fence, yield_now};

/// The kind of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// All operations are possible, and all rows are whole.
    Joined,
    /// Operations on split records go to slices. Every other access to a split record is refused.
    Split,
}

/// The present phase, with a number that grows from one phase to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedPhase {
    word: u64,
}

const JOINED: u64 = 0;
const SPLIT: u64 = 1;
const CHANGING: u64 = 2;
/// The phase changes, and workers do not begin to merge their own slices any more.
const SETTLED: u64 = 3;
const KIND: u64 = 3;
const NUMBER_ONE: u64 = 4;

impl NumberedPhase {
    /// Returns the kind of the phase, or `None` while the phase changes.
    #[inline(always)]
    pub fn phase(self) -> Option<Phase> {
        match self.word & KIND {
            JOINED => Some(Phase::Joined),
            SPLIT => Some(Phase::Split),
            _ => None,
        }
    }

    /// Returns the phase's number. Phases are numbered in the order in which they come.
    #[inline(always)]
    pub fn number(self) -> u64 {
        self.word / NUMBER_ONE
    }
}

#[repr(align(128))]
#[derive(Debug, Default)]
struct Padded(Word);

/// The phases of one database.
#[derive(Debug)]
pub struct Phases {
    word: Padded,
    /// For each slot, 1 while its worker is in a transaction.
    running: Box<[Padded]>,
}

impl Phases {
    /// Starts with a joined phase, for up to `workers_max` workers.
    pub fn new(workers_max: usize) -> Phases {
        Phases {
            word: Padded(Word::new(JOINED)),
            running: (0..workers_max).map(|_| Padded::default()).collect(),
        }
    }

    /// Returns the present phase.
    #[inline(always)]
    pub fn present(&self) -> NumberedPhase {
        // Acquire: pairs with the release in `PhaseChange::end`. A worker that sees a phase sees what was prepared
        // for it.
        NumberedPhase { word: self.word.0.load(Ordering::Acquire) }
    }

    /// Returns whether the phase is changing.
    #[inline(always)]
    pub fn is_changing(&self) -> bool {
        self.present().phase().is_none()
    }

    /// Says that a worker is about to begin a transaction. A sequentially consistent fence must come between
    /// this and [`Phases::enter`].
    #[inline(always)]
    pub fn announce(&self, slot: usize) {
        // Relaxed: the fence makes it visible.
        self.running[slot].0.store(1, Ordering::Relaxed);
    }

    /// Enters the present phase, after [`Phases::announce`] and a fence. Waits while it changes.
    #[inline(always)]
    pub fn enter(&self, slot: usize) -> NumberedPhase {
        let present = self.present();
        if present.phase().is_some() { present } else { self.enter_next(slot) }
    }

    #[cold]
    fn enter_next(&self, slot: usize) -> NumberedPhase {
        loop {
            self.leave(slot);
            while self.present().phase().is_none() {
                yield_now();
            }
            self.announce(slot);
            fence(Ordering::SeqCst);
            let present = self.present();
            if present.phase().is_some() {
                return present;
            }
        }
    }

    /// Says that a worker's transaction has ended.
    #[inline(always)]
    pub fn leave(&self, slot: usize) {
        // Release: pairs with the acquire in `is_anyone_running`. What the transaction did to slices and
        // records is visible before other workers touch them.
        self.running[slot].0.store(0, Ordering::Release);
    }

    /// Announces a worker that is about to merge its own slices, and is in no transaction. Returns whether it may: the
    /// phase is changing, and the worker that changes it waits for this worker until it [leaves](Phases::leave).
    pub fn begin_own_merge(&self, slot: usize) -> bool {
        self.announce(slot);
        fence(Ordering::SeqCst);
        let may_merge = self.present().word & KIND == CHANGING;
        if !may_merge {
            self.leave(slot);
        }
        may_merge
    }

    /// Whether any of the first `slots` workers is in a transaction.
    pub fn is_anyone_running(&self, slots: usize) -> bool {
        self.running[..slots].iter().any(|running| running.0.load(Ordering::Acquire) != 0)
    }

    /// Begins to change the phase, and waits until no transaction is running. Returns `None` if that takes more
    /// than `yields_max` yields. Only one worker may do this at a time, on a thread that runs no transaction
    /// itself. `slots` returns the number of slots that may have workers.
    pub fn begin_change(
        &self,
        slots: impl Fn() -> usize,
        yields_max: u32,
    ) -> Option<PhaseChange<'_>> {
        let before = self.present();
        // Relaxed: the fence makes it visible. It pairs with the worker's fence after `announce`.
        self.word.0.store((before.number() * NUMBER_ONE) | CHANGING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let change = PhaseChange { phases: self, before };
        let mut yields = 0;
        while self.is_anyone_running(slots()) {
            if yields == yields_max {
                return None;
            }
            yields += 1;
            yield_now();
        }
        Some(change)
    }
}

/// A phase change in progress: no worker is in a transaction. If it is dropped without an [end](PhaseChange::end),
/// also by a panic, the phase is again what it was before.
#[derive(Debug)]
pub struct PhaseChange<'a> {
    phases: &'a Phases,
    before: NumberedPhase,
}

impl PhaseChange<'_> {
    /// Waits until no worker merges its own slices, and lets no worker begin with that any more.
    pub fn settle(&self, slots: impl Fn() -> usize) {
        // Relaxed: the fence makes it visible. It pairs with the worker's fence in `begin_own_merge`.
        let settled = (self.before.number() * NUMBER_ONE) | SETTLED;
        self.phases.word.0.store(settled, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.phases.is_anyone_running(slots()) {
            yield_now();
        }
    }

    /// Ends the change. The next phase is of this kind.
    pub fn end(self, next: Phase) {
        let kind = match next {
            Phase::Joined => JOINED,
            Phase::Split => SPLIT,
        };
        let word = ((self.before.number() + 1) * NUMBER_ONE) | kind;
        // Release: pairs with the acquire in `present`.
        self.phases.word.0.store(word, Ordering::Release);
        std::mem::forget(self);
    }
}

impl Drop for PhaseChange<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `present`.
        self.phases.word.0.store(self.before.word, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn begin(phases: &Phases, slot: usize) -> NumberedPhase {
        phases.announce(slot);
        fence(Ordering::SeqCst);
        phases.enter(slot)
    }

    #[test]
    fn phases_alternate_and_are_numbered() {
        let phases = Phases::new(2);
        let first = begin(&phases, 0);
        assert_eq!((first.phase(), first.number()), (Some(Phase::Joined), 0));
        phases.leave(0);
        phases.begin_change(|| 2, 0).unwrap().end(Phase::Split);
        let second = begin(&phases, 1);
        assert_eq!((second.phase(), second.number()), (Some(Phase::Split), 1));
        assert!(phases.is_anyone_running(2));
        assert!(!phases.is_anyone_running(1));
        assert!(phases.begin_change(|| 2, 3).is_none(), "one is running");
        assert_eq!(phases.present(), second);
        phases.leave(1);
        let change = phases.begin_change(|| 2, 0).unwrap();
        assert_eq!(phases.present().phase(), None);
        assert!(phases.begin_own_merge(1), "the phase changes");
        phases.leave(1);
        change.settle(|| 2);
        assert!(!phases.begin_own_merge(1), "it is too late");
        assert!(!phases.is_anyone_running(2));
        drop(change);
        assert_eq!(phases.present(), second, "given up");
        assert!(!phases.begin_own_merge(1), "the phase does not change");
        phases.begin_change(|| 2, 0).unwrap().end(Phase::Joined);
        assert_eq!(phases.present().phase(), Some(Phase::Joined));
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft-protocols --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A worker changes its slice in a transaction, and the worker that changes the phase reads all slices. The
    /// two never meet: loom's cell reports any two accesses that are not ordered. What was added in the first
    /// phase is merged at its end.
    #[test]
    fn loom_phases_worker_and_merger_never_share_a_slice() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let phases = Arc::new(Phases::new(1));
            let slice = Arc::new(UnsafeCell::new(0_u32));
            let worker = {
                let (phases, slice) = (Arc::clone(&phases), Arc::clone(&slice));
                thread::spawn(move || {
                    let mut in_first = 0;
                    for _ in 0..2 {
                        phases.announce(0);
                        fence(Ordering::SeqCst);
                        let present = phases.enter(0);
                        // SAFETY: the worker is in a transaction; the test checks that this is enough.
                        slice.with_mut(|slice| unsafe { *slice += 1 });
                        phases.leave(0);
                        in_first += u32::from(present.number() == 0);
                    }
                    in_first
                })
            };
            let change = phases.begin_change(|| 1, u32::MAX).unwrap();
            // SAFETY: no worker is in a transaction; the test checks that this is enough.
            let merged = slice.with_mut(|slice| unsafe { std::mem::take(&mut *slice) });
            change.end(Phase::Joined);
            assert_eq!(merged, worker.join().unwrap());
        });
    }

    /// A worker merges its own slice, and the worker that changes the phase merges it otherwise. It is merged once, and
    /// the two never meet.
    #[test]
    fn loom_phases_slice_is_merged_by_its_worker_or_at_the_end() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let phases = Arc::new(Phases::new(1));
            let slice = Arc::new(UnsafeCell::new(1_u32));
            let owner = {
                let (phases, slice) = (Arc::clone(&phases), Arc::clone(&slice));
                thread::spawn(move || {
                    if !phases.begin_own_merge(0) {
                        return 0;
                    }
                    // SAFETY: the worker is announced; the test checks that this is enough.
                    let own = slice.with_mut(|slice| unsafe { std::mem::take(&mut *slice) });
                    phases.leave(0);
                    own
                })
            };
            let change = phases.begin_change(|| 1, u32::MAX).unwrap();
            change.settle(|| 1);
            // SAFETY: no worker merges its own slice any more; the test checks that this is enough.
            let rest = slice.with_mut(|slice| unsafe { std::mem::take(&mut *slice) });
            change.end(Phase::Joined);
            assert_eq!(owner.join().unwrap() + rest, 1);
        });
    }
}
