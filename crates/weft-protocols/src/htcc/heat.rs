//! What HTCC keeps with every record besides its version (§3.1): whether the record is hot, how often it has
//! caused conflicts lately, and the lock under which hot records are accessed.

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
///   63         45 44         26 25          16 15       2    1           0
///  +-------------+-------------+--------------+----------+-----------+-----+
///  | hot since   | window      | excess of    | shared   | exclusive | hot |
///  | this epoch  | (an epoch)  | repeated     | holders  | holder    |     |
///  +-------------+-------------+--------------+----------+-----------+-----+
/// ```
#[derive(Debug, Default)]
pub struct HeatWord(Word);

/// The value of a [`HeatWord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heat(u64);

const HOT: u64 = 1;
const EXCLUSIVE: u64 = 1 << 1;
const SHARED_ONE: u64 = 1 << 2;
const SHARED: u64 = ((1 << 14) - 1) << 2;
const EXCESS_ONE: u64 = 1 << 16;
const EXCESS: u64 = ((1 << 10) - 1) << 16;
const WINDOW_SHIFT: u32 = 26;
const HOT_SINCE_SHIFT: u32 = 45;
const EPOCH: u64 = (1 << 19) - 1;

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
    /// Whether the record is to be accessed under its lock.
    #[inline(always)]
    pub fn is_hot(self) -> bool {
        self.0 & HOT != 0
    }

    /// Whether the record has been hot for more than [`HOT_EPOCHS`].
    pub fn has_cooled(self, epoch: u64) -> bool {
        let since = self.0 >> HOT_SINCE_SHIFT & EPOCH;
        (epoch & EPOCH).wrapping_sub(since) & EPOCH > HOT_EPOCHS
    }

    fn with(self, shift: u32, epoch: u64) -> Heat {
        Heat((self.0 & !(EPOCH << shift)) | ((epoch & EPOCH) << shift))
    }

    /// Returns the heat after one more conflict in this epoch. The record becomes hot if the conflicts of
    /// second attempts exceed four fifths of those of first attempts by `hot_at`. Then more than four of five
    /// transactions that retry fail again. A transaction that succeeds at its second or third attempt has lost
    /// less time than it would by waiting for a lock.
    fn after_conflict(self, conflict: Conflict, epoch: u64, hot_at: u64) -> Heat {
        // Conflicts of an earlier epoch do not count.
        let is_same_window = self.0 >> WINDOW_SHIFT & EPOCH == epoch & EPOCH;
        let before = if is_same_window { (self.0 & EXCESS) / EXCESS_ONE } else { 0 };
        let excess = match conflict {
            Conflict::First => before.saturating_sub(FIRST),
            Conflict::Again => (before + AGAIN).min(EXCESS / EXCESS_ONE),
        };
        let counted = Heat((self.0 & !EXCESS) | (excess * EXCESS_ONE)).with(WINDOW_SHIFT, epoch);
        match excess >= (AGAIN * hot_at).min(EXCESS / EXCESS_ONE) && !self.is_hot() {
            true => Heat(counted.with(HOT_SINCE_SHIFT, epoch).0 | HOT),
            false => counted,
        }
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
        self.change(|heat| Some(heat.after_conflict(conflict, epoch, hot_at)));
    }

    /// Makes the record cold. A transaction that holds its lock keeps it.
    #[cold]
    pub fn cool(&self) {
        self.change(|heat| Some(Heat(heat.0 & !HOT)));
    }

    /// Takes a share of the lock, if no transaction holds it exclusively. Never waits.
    pub fn try_lock_shared(&self) -> bool {
        self.change(|Heat(heat)| {
            let is_free = heat & EXCLUSIVE == 0 && heat & SHARED != SHARED;
            is_free.then(|| Heat(heat + SHARED_ONE))
        })
    }

    /// Takes the lock exclusively, if no other transaction holds it. With `is_upgrade` the caller gives up its
    /// own share in exchange. Never waits.
    pub fn try_lock_exclusive(&self, is_upgrade: bool) -> bool {
        let own = if is_upgrade { SHARED_ONE } else { 0 };
        self.change(|Heat(heat)| {
            let is_free = heat & (EXCLUSIVE | SHARED) == own;
            is_free.then(|| Heat((heat - own) | EXCLUSIVE))
        })
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
        assert!(heat.try_lock_shared());
        (0..3).for_each(|_| heat.note_conflict(Conflict::Again, 10, 3));
        assert!(heat.load().is_hot());
        assert!(!heat.load().has_cooled(10) && !heat.load().has_cooled(10 + HOT_EPOCHS));
        assert!(heat.load().has_cooled(11 + HOT_EPOCHS));
        (0..2000).for_each(|_| heat.note_conflict(Conflict::Again, 10 + HOT_EPOCHS, 3));
        assert!(heat.load().has_cooled(11 + HOT_EPOCHS), "conflicts do not keep it hot");
        heat.cool();
        assert!(!heat.load().is_hot());
        heat.unlock_shared();
        assert!(heat.try_lock_exclusive(false), "the lock was kept, and released");
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
        assert!(heat.try_lock_shared() && heat.try_lock_shared());
        assert!(!heat.try_lock_exclusive(false) && !heat.try_lock_exclusive(true));
        heat.unlock_shared();
        assert!(!heat.try_lock_exclusive(false));
        assert!(heat.try_lock_exclusive(true), "the caller's share is the only one");
        assert!(!heat.try_lock_shared() && !heat.try_lock_exclusive(false));
        heat.note_conflict(Conflict::Again, 7, 100);
        heat.unlock_exclusive();
        for _ in 0..SHARED / SHARED_ONE {
            assert!(heat.try_lock_shared());
        }
        assert!(!heat.try_lock_shared(), "all shares are taken");
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft-protocols --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

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
                    if !heat.try_lock_shared() {
                        return 0;
                    }
                    // SAFETY: the thread holds a share of the lock; the test checks that this is enough to
                    // read.
                    cell.with(|value| unsafe { *value });
                    if heat.try_lock_exclusive(true) {
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
            if heat.try_lock_exclusive(false) {
                // SAFETY: the thread holds the lock exclusively; the test checks that it is alone.
                cell.with_mut(|value| unsafe { *value += 1 });
                heat.unlock_exclusive();
                expected = 1;
            }
            expected += reader.join().unwrap();
            counter.join().unwrap();
            assert!(heat.try_lock_exclusive(false), "all locks were released");
            // SAFETY: the other threads have ended.
            assert_eq!(cell.with(|value| unsafe { *value }), expected);
        });
    }
}
