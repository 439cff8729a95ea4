//! What HTCC keeps with every record besides its version (§3.1): whether the record is hot, how often it has
//! caused conflicts lately, and the lock under which hot records are accessed.
//!
//! **The flip in two phases.** If locks bind, a transaction that holds the lock of a hot record does not validate what it
//! has read there. So no transaction may use the record as a cold one at the same time.
//!
//! ```text
//!            conflicts                   grace period
//!   cold  ────────────────►  turning  ────────────────►  hot
//!   validated     ▲          validated, and locked       locked
//!                 └──────────────────────────────────────┘
//!                     no transaction holds the lock
//! ```
//!
//! A transaction that has found the record cold validates it, but leaves no trace that others could see. So the record is
//! *turning* until all transactions have ended that may have found it cold. Those that find it turning do both. In
//! the other direction one step is enough: all that use a hot record hold its lock.

use std::cell::Cell;

use weft::commit::access_set::TidHeader;
use weft::store::record::tid::{Tid, TidWord};
use weft_htm::word::{Ordering, Word};

/// The header of a record: its version and its heat.
///
/// It holds the paper's fields (Figure 3): *ts* is the TID word's version and *vis* its flags (*private* is a
/// placeholder, *dead* a deleted record). *hot*, *cnt* and *lock* are in the heat.
#[derive(Debug)]
pub struct HeatHeader {
    tid: TidWord,
    pub heat: HeatWord,
}

impl Default for HeatHeader {
    fn default() -> Self {
        HeatHeader { tid: TidWord::new(Tid::PLACEHOLDER), heat: HeatWord::default() }
    }
}

impl TidHeader for HeatHeader {
    #[inline(always)]
    fn tid(&self) -> &TidWord {
        &self.tid
    }
}

/// A record's heat, in one word.
///
/// ```text
///   63         45 44         26 25          16   15      14       4    3          2       1        0
///  +-------------+-------------+--------------+--------+----------+-----------+-------+---------+-----+
///  | hot since   | window      | excess of    | writer | shared   | exclusive | on the| turning | hot |
///  | this epoch  | (an epoch)  | repeated     | waits  | holders  | holder    | list  |         |     |
///  +-------------+-------------+--------------+--------+----------+-----------+-------+---------+-----+
/// ```
///
/// If a thread of its own flips records, the field *excess* counts conflicts, or, of a hot record, accesses.
#[derive(Debug, Default)]
pub struct HeatWord(Word);

/// The value of a [`HeatWord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heat(u64);

const HOT: u64 = 1;
const TURNING: u64 = 1 << 1;
const LISTED: u64 = 1 << 2;
const EXCLUSIVE: u64 = 1 << 3;
const SHARED_ONE: u64 = 1 << 4;
const SHARED: u64 = ((1 << 11) - 1) << 4;
const WRITER_WAITS: u64 = 1 << 15;
const EXCESS_ONE: u64 = 1 << 16;
const EXCESS: u64 = ((1 << 10) - 1) << 16;
const WINDOW_SHIFT: u32 = 26;
const HOT_SINCE_SHIFT: u32 = 45;
const EPOCH: u64 = (1 << 19) - 1;

/// The records whose locks a caller wants to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A record that is hot or turning. Its accesses need not be counted.
    Hot,
    /// The same, and the access is counted.
    Counted,
    /// Any record, which becomes hot by that.
    MadeHot,
    /// Any record.
    Any,
}

/// What came of a try to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAttempt {
    /// The caller has the lock. `is_hot` says whether the record was hot at that moment, and not only turning.
    Taken {
        /// Whether the record was hot.
        is_hot: bool,
    },
    /// Another transaction has the lock.
    Denied,
    /// The record is cold, so that it needs no lock.
    Cold,
}

impl LockAttempt {
    /// Whether the caller has the lock.
    pub fn is_taken(self) -> bool {
        matches!(self, LockAttempt::Taken { .. })
    }
}

/// The weights of the two kinds of conflicts: a second attempt's conflict adds `AGAIN`, a first attempt's
/// subtracts `FIRST`. They balance if four of five conflicts are followed by another one at the second attempt.
const AGAIN: u64 = 5;
const FIRST: u64 = 4;

/// Which attempt of its transaction met a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The first attempt.
    First,
    /// The second attempt: the transaction had been repaired or restarted, and has met a conflict again.
    Again,
}

/// The number of epochs for which a record stays hot: about a second. Then it becomes cold. If it is still
/// contended, it is hot again after an epoch or two.
const HOT_EPOCHS: u64 = 25;

impl Heat {
    /// Whether the record is to be accessed under its lock: whether it is hot or turning.
    #[inline(always)]
    pub fn is_hot(self) -> bool {
        self.0 & (HOT | TURNING) != 0
    }

    /// Whether the record is on the list of records to be flipped, which holds its address.
    pub fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    /// Whether the record has been hot for more than [`HOT_EPOCHS`].
    pub fn has_cooled(self, epoch: u64) -> bool {
        let since = self.0 >> HOT_SINCE_SHIFT & EPOCH;
        (epoch & EPOCH).wrapping_sub(since) & EPOCH > HOT_EPOCHS
    }

    fn with(self, shift: u32, epoch: u64) -> Heat {
        Heat((self.0 & !(EPOCH << shift)) | ((epoch & EPOCH) << shift))
    }

    /// Returns the heat after one more conflict in this epoch, and whether the record is to become hot: if the
    /// conflicts of second attempts exceed four fifths of those of first attempts by `hot_at`. Then more than four of
    /// five transactions that retry fail again. A transaction that succeeds at its second or third attempt has lost
    /// less time than it would by waiting for a lock.
    fn after_conflict(self, conflict: Conflict, epoch: u64, hot_at: u64) -> (Heat, bool) {
        // Conflicts of an earlier epoch do not count.
        let is_same_window = self.0 >> WINDOW_SHIFT & EPOCH == epoch & EPOCH;
        let before = if is_same_window { self.excess() } else { 0 };
        let excess = match conflict {
            Conflict::First => before.saturating_sub(FIRST),
            Conflict::Again => (before + AGAIN).min(EXCESS / EXCESS_ONE),
        };
        let counted = self.with_excess(excess).with(WINDOW_SHIFT, epoch);
        let is_contended = excess >= (AGAIN * hot_at).min(EXCESS / EXCESS_ONE);
        (counted, is_contended && !self.is_hot())
    }

    fn excess(self) -> u64 {
        (self.0 & EXCESS) / EXCESS_ONE
    }

    fn with_excess(self, excess: u64) -> Heat {
        Heat((self.0 & !EXCESS) | (excess * EXCESS_ONE))
    }

    /// Returns the heat with one more in the field *excess*, up to its limit.
    fn counted(self) -> Heat {
        self.with_excess((self.excess() + 1).min(EXCESS / EXCESS_ONE))
    }

    /// Returns the heat after an attempt to take the lock. `mode` is added for the new holder, and `own` is
    /// what the caller gives up for it.
    fn taken(self, wanted: Wanted, own: u64, mode: u64) -> Result<Heat, LockAttempt> {
        if matches!(wanted, Wanted::Hot | Wanted::Counted) && !self.is_hot() {
            return Err(LockAttempt::Cold);
        }
        let is_free = match mode {
            EXCLUSIVE => self.0 & (EXCLUSIVE | SHARED) == own,
            _ => self.0 & (EXCLUSIVE | WRITER_WAITS) == 0 && self.0 & SHARED != SHARED,
        };
        if !is_free {
            return Err(LockAttempt::Denied);
        }
        let mut taken = Heat(self.0 - own + mode);
        if mode == EXCLUSIVE {
            taken.0 &= !WRITER_WAITS;
        }
        Ok(match wanted {
            Wanted::Hot | Wanted::Any => taken,
            Wanted::Counted => taken.counted(),
            Wanted::MadeHot => Heat(taken.0 | HOT),
        })
    }
}

impl HeatWord {
    /// Returns the present value. Relaxed: the lock is taken by a compare-and-swap, and whether a record is hot
    /// is only a guess.
    #[inline(always)]
    pub fn load(&self) -> Heat {
        Heat(self.0.load(Ordering::Relaxed))
    }

    /// Changes the word, unless `change` returns `None`. Returns whether it has changed the word.
    fn change(&self, change: impl Fn(Heat) -> Option<Heat>) -> bool {
        let mut heat = self.load();
        while let Some(Heat(new)) = change(heat) {
            // Acquire: pairs with the release of the lock by its previous holder.
            match self.0.compare_exchange(heat.0, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => heat = Heat(found),
            }
        }
        false
    }

    /// Counts a conflict about the record, which may make it hot (§3.1, the field *cnt*).
    #[cold]
    pub fn note_conflict(&self, conflict: Conflict, epoch: u64, hot_at: u64) {
        self.change(|heat| {
            let (counted, is_contended) = heat.after_conflict(conflict, epoch, hot_at);
            Some(match is_contended {
                true => Heat(counted.with(HOT_SINCE_SHIFT, epoch).0 | HOT),
                false => counted,
            })
        });
    }

    /// Counts a conflict about the record as [`HeatWord::note_conflict`] does. Returns whether the record is to become
    /// hot.
    #[cold]
    pub fn count_conflict(&self, conflict: Conflict, epoch: u64, hot_at: u64) -> bool {
        let is_contended = Cell::new(false);
        self.change(|heat| {
            let (counted, contended) = heat.after_conflict(conflict, epoch, hot_at);
            is_contended.set(contended);
            Some(counted)
        });
        is_contended.get()
    }

    /// Counts a conflict, or an access, for the thread that flips records.
    #[cold]
    pub fn count(&self) {
        self.change(|heat| Some(heat.counted()));
    }

    /// Takes the count of [`HeatWord::count`], which begins again.
    pub fn take_count(&self) -> u64 {
        let count = Cell::new(0);
        self.change(|heat| {
            count.set(heat.excess());
            (heat.excess() > 0).then(|| heat.with_excess(0))
        });
        count.get()
    }

    /// Makes the record cold. A transaction that holds its lock keeps it.
    #[cold]
    pub fn cool(&self) {
        self.change(|heat| Some(Heat(heat.0 & !(HOT | TURNING))));
    }

    /// Makes the record cold, unless a transaction holds its lock. Returns whether it is cold.
    #[cold]
    pub fn cool_if_free(&self) -> bool {
        self.change(|Heat(heat)| {
            (heat & (EXCLUSIVE | SHARED) == 0).then_some(Heat(heat & !(HOT | TURNING)))
        })
    }

    /// Makes the record hot in one step.
    #[cold]
    pub fn heat(&self, epoch: u64) {
        self.change(|heat| Some(Heat(heat.with(HOT_SINCE_SHIFT, epoch).0 | HOT)));
    }

    /// The first phase of the flip: a record that is cold is turning.
    #[cold]
    pub fn turn(&self) {
        self.change(|Heat(heat)| (heat & HOT == 0).then_some(Heat(heat | TURNING)));
    }

    /// The second phase of the flip, after a grace period: a record that is turning is hot.
    #[cold]
    pub fn complete_turn(&self, epoch: u64) {
        self.change(|heat| {
            let hot = (heat.with(HOT_SINCE_SHIFT, epoch).0 & !TURNING) | HOT;
            (heat.0 & TURNING != 0).then_some(Heat(hot))
        });
    }

    /// Puts the record on the list. Returns whether it was not there.
    pub fn list(&self) -> bool {
        self.change(|heat| (!heat.is_listed()).then_some(Heat(heat.0 | LISTED)))
    }

    /// Takes the record from the list.
    pub fn unlist(&self) {
        // Release: the caller's uses of the record come before that another thread frees it.
        let before = self.0.fetch_add(LISTED.wrapping_neg(), Ordering::Release);
        debug_assert!(before & LISTED != 0, "{before:x}");
    }

    /// Changes the word as [`Heat::taken`] says.
    fn take(&self, wanted: Wanted, own: u64, mode: u64) -> LockAttempt {
        let outcome = Cell::new(LockAttempt::Denied);
        self.change(|heat| match heat.taken(wanted, own, mode) {
            Ok(taken) => {
                outcome.set(LockAttempt::Taken { is_hot: taken.0 & HOT != 0 });
                Some(taken)
            }
            Err(refused) => {
                outcome.set(refused);
                None
            }
        });
        outcome.get()
    }

    /// Takes a share of the lock, if no transaction holds it exclusively. Never waits.
    pub fn try_lock_shared(&self, wanted: Wanted) -> LockAttempt {
        self.take(wanted, 0, SHARED_ONE)
    }

    /// Takes the lock exclusively, if no other transaction holds it. With `is_upgrade` the caller gives up its
    /// own share in exchange. Never waits.
    pub fn try_lock_exclusive(&self, wanted: Wanted, is_upgrade: bool) -> LockAttempt {
        self.take(wanted, if is_upgrade { SHARED_ONE } else { 0 }, EXCLUSIVE)
    }

    /// Says that a transaction waits for the lock exclusively: it is not shared any more until one has had it so. Without
    /// that, transactions that share it one after the other would keep it for ever. Returns whether no other one had said
    /// so.
    pub fn announce_writer(&self) -> bool {
        self.change(|Heat(heat)| (heat & WRITER_WAITS == 0).then_some(Heat(heat | WRITER_WAITS)))
    }

    /// Says that the transaction does not wait any more. (Another one that does says so again.)
    pub fn withdraw_writer(&self) {
        self.change(|Heat(heat)| (heat & WRITER_WAITS != 0).then_some(Heat(heat & !WRITER_WAITS)));
    }

    /// Gives back a share of the lock.
    pub fn unlock_shared(&self) {
        // Release: pairs with the acquire in `change`.
        let before = self.0.fetch_add(SHARED_ONE.wrapping_neg(), Ordering::Release);
        debug_assert!(before & SHARED != 0 && before & EXCLUSIVE == 0, "{before:x}");
    }

    /// Gives back the exclusive lock.
    pub fn unlock_exclusive(&self) {
        // Release: pairs with the acquire in `change`.
        let before = self.0.fetch_add(EXCLUSIVE.wrapping_neg(), Ordering::Release);
        debug_assert!(before & EXCLUSIVE != 0 && before & SHARED == 0, "{before:x}");
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn conflicts_within_an_epoch_make_a_record_hot() {
        let heat = HeatWord::default();
        (0..100).for_each(|_| heat.note_conflict(Conflict::First, 0, 1));
        for _ in 0..100 {
            (0..3).for_each(|_| heat.note_conflict(Conflict::Again, 0, 4));
            (0..4).for_each(|_| heat.note_conflict(Conflict::First, 0, 4));
        }
        assert!(!heat.load().is_hot(), "most second attempts succeed");
        let contended = HeatWord::default();
        for conflict in 0..400 {
            contended.note_conflict(Conflict::First, 0, 9);
            if conflict % 10 > 0 {
                contended.note_conflict(Conflict::Again, 0, 9);
            }
        }
        assert!(contended.load().is_hot(), "nine of ten second attempts fail");
        for epoch in 1..10 {
            (0..2).for_each(|_| heat.note_conflict(Conflict::Again, epoch, 3));
            assert!(!heat.load().is_hot(), "two in an epoch are not three");
        }
        assert!(heat.try_lock_shared(Wanted::Any).is_taken());
        (0..3).for_each(|_| heat.note_conflict(Conflict::Again, 10, 3));
        assert!(heat.load().is_hot());
        assert!(!heat.load().has_cooled(10) && !heat.load().has_cooled(10 + HOT_EPOCHS));
        assert!(heat.load().has_cooled(11 + HOT_EPOCHS));
        (0..2000).for_each(|_| heat.note_conflict(Conflict::Again, 10 + HOT_EPOCHS, 3));
        assert!(heat.load().has_cooled(11 + HOT_EPOCHS), "conflicts do not keep it hot");
        heat.cool();
        assert!(!heat.load().is_hot());
        heat.unlock_shared();
        assert!(
            heat.try_lock_exclusive(Wanted::Any, false).is_taken(),
            "the lock was kept, and released"
        );
    }

    #[test]
    fn a_flip_takes_two_phases_and_a_free_lock() {
        let heat = HeatWord::default();
        assert_eq!(heat.try_lock_shared(Wanted::Hot), LockAttempt::Cold);
        heat.turn();
        assert!(heat.load().is_hot());
        let early = heat.try_lock_shared(Wanted::Hot);
        assert_eq!(early, LockAttempt::Taken { is_hot: false }, "it is turning");
        heat.complete_turn(7);
        let later = heat.try_lock_shared(Wanted::Hot);
        assert_eq!(later, LockAttempt::Taken { is_hot: true });
        assert!(!heat.cool_if_free() && heat.load().is_hot(), "two transactions hold the lock");
        heat.unlock_shared();
        heat.unlock_shared();
        assert!(heat.cool_if_free() && !heat.load().is_hot());
        heat.complete_turn(8);
        assert!(!heat.load().is_hot(), "only a record that is turning becomes hot");
    }

    #[test]
    fn a_writer_that_waits_comes_before_new_readers() {
        let heat = HeatWord::default();
        assert!(heat.try_lock_shared(Wanted::Any).is_taken());
        assert_eq!(heat.try_lock_exclusive(Wanted::Any, false), LockAttempt::Denied);
        heat.announce_writer();
        assert_eq!(heat.try_lock_shared(Wanted::Any), LockAttempt::Denied);
        heat.withdraw_writer();
        assert!(heat.try_lock_shared(Wanted::Any).is_taken());
        heat.announce_writer();
        (0..2).for_each(|_| heat.unlock_shared());
        assert!(heat.try_lock_exclusive(Wanted::Any, false).is_taken());
        heat.unlock_exclusive();
        assert!(heat.try_lock_shared(Wanted::Any).is_taken(), "no other writer waits");
    }

    #[test]
    fn counts_begin_again_when_they_are_taken() {
        let heat = HeatWord::default();
        (0..3).for_each(|_| heat.count());
        assert_eq!((heat.take_count(), heat.take_count()), (3, 0));
        heat.heat(1);
        for _ in 0..2 {
            assert!(heat.try_lock_exclusive(Wanted::Counted, false).is_taken());
            heat.unlock_exclusive();
        }
        assert_eq!(heat.take_count(), 2, "accesses of a hot record count");
        (0..5000).for_each(|_| heat.count());
        assert_eq!(heat.take_count(), EXCESS / EXCESS_ONE, "a count has a limit");
        assert!(heat.list() && !heat.list());
        heat.unlist();
        assert!(!heat.load().is_listed() && heat.load().is_hot());
    }

    #[test]
    fn wrapped_epochs_differ_from_late_ones() {
        let heat = HeatWord::default();
        heat.note_conflict(Conflict::Again, EPOCH, 1);
        assert!(!heat.load().has_cooled(EPOCH + HOT_EPOCHS));
        assert!(heat.load().has_cooled(EPOCH + HOT_EPOCHS + 1));
    }

    #[test]
    fn locks_are_shared_exclusive_and_upgraded() {
        let heat = HeatWord::default();
        assert!(
            heat.try_lock_shared(Wanted::Any).is_taken()
                && heat.try_lock_shared(Wanted::Any).is_taken()
        );
        assert!(
            !heat.try_lock_exclusive(Wanted::Any, false).is_taken()
                && !heat.try_lock_exclusive(Wanted::Any, true).is_taken()
        );
        heat.unlock_shared();
        assert!(!heat.try_lock_exclusive(Wanted::Any, false).is_taken());
        assert!(
            heat.try_lock_exclusive(Wanted::Any, true).is_taken(),
            "the caller's share is the only one"
        );
        assert!(
            !heat.try_lock_shared(Wanted::Any).is_taken()
                && !heat.try_lock_exclusive(Wanted::Any, false).is_taken()
        );
        heat.note_conflict(Conflict::Again, 7, 100);
        heat.unlock_exclusive();
        for _ in 0..SHARED / SHARED_ONE {
            assert!(heat.try_lock_shared(Wanted::Any).is_taken());
        }
        assert!(!heat.try_lock_shared(Wanted::Any).is_taken(), "all shares are taken");
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft-protocols --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;
    use weft::sync::reclaim::GracePeriods;

    /// An exclusive holder of the lock is alone, while other threads share the lock, upgrade it, count
    /// conflicts and change the flag. Loom's cell reports any two accesses that are not ordered.
    #[test]
    fn loom_heat_exclusive_holders_are_alone() {
        loom::model(|| {
            let shared = Arc::new((HeatWord::default(), UnsafeCell::new(0_u32)));
            let reader = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (heat, cell) = &*shared;
                    if !heat.try_lock_shared(Wanted::Any).is_taken() {
                        return 0;
                    }
                    // SAFETY: the thread holds a share of the lock; the test checks that this is enough to
                    // read.
                    cell.with(|value| unsafe { *value });
                    if heat.try_lock_exclusive(Wanted::Any, true).is_taken() {
                        // SAFETY: the thread holds the lock exclusively; the test checks that it is alone.
                        cell.with_mut(|value| unsafe { *value += 1 });
                        heat.unlock_exclusive();
                        return 1;
                    }
                    heat.unlock_shared();
                    0
                })
            };
            let counter = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.0.note_conflict(Conflict::Again, 1, 1);
                    shared.0.cool();
                })
            };
            let (heat, cell) = &*shared;
            let mut expected = 0;
            if heat.try_lock_exclusive(Wanted::Any, false).is_taken() {
                // SAFETY: the thread holds the lock exclusively; the test checks that it is alone.
                cell.with_mut(|value| unsafe { *value += 1 });
                heat.unlock_exclusive();
                expected = 1;
            }
            expected += reader.join().unwrap();
            counter.join().unwrap();
            assert!(
                heat.try_lock_exclusive(Wanted::Any, false).is_taken(),
                "all locks were released"
            );
            // SAFETY: the other threads have ended.
            assert_eq!(cell.with(|value| unsafe { *value }), expected);
        });
    }

    /// A transaction that finds a record cold, and one that holds the lock of a hot record, are not in progress at the
    /// same time, while a third thread flips the record. The cell stands for what only one of them may do.
    #[test]
    fn loom_heat_cold_and_hot_accesses_exclude_each_other() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(2));
        model.check(|| {
            let shared =
                Arc::new((HeatWord::default(), GracePeriods::new(2), UnsafeCell::new(0_u32)));
            (0..2).for_each(|slot| shared.1.enlist(slot));
            let cold = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (heat, grace, cell) = &*shared;
                    assert!(grace.claim(0));
                    grace.pin(0);
                    if !heat.load().is_hot() {
                        // SAFETY: the test checks that no other thread uses the cell now.
                        cell.with_mut(|value| unsafe { *value += 1 });
                    }
                    grace.unpin(0);
                })
            };
            let flipping = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (heat, grace, _) = &*shared;
                    heat.turn();
                    let tag = grace.seal();
                    if tag <= grace.horizon() {
                        heat.complete_turn(1);
                    }
                })
            };
            let (heat, _, cell) = &*shared;
            if heat.try_lock_exclusive(Wanted::Hot, false) == (LockAttempt::Taken { is_hot: true })
            {
                // SAFETY: as above.
                cell.with_mut(|value| unsafe { *value += 1 });
                heat.unlock_exclusive();
            }
            cold.join().unwrap();
            flipping.join().unwrap();
        });
    }
}
