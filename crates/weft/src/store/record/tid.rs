//! The TID word: a record's version, and the few flags that every optimistic protocol needs.
//!
//! ```text
//!   63                        20 19                      4   3      2       1       0
//!  +----------------------------+-------------------------+------+-------+--------+------+
//!  |  epoch of the last write   |  writes in that epoch   |queued|removed| absent | lock |
//!  +----------------------------+-------------------------+------+-------+--------+------+
//! ```
//!
//! - *lock*: a commit is installing a new version, or the record is being unlinked.
//! - *absent*: the record has no visible row. Either no transaction has committed one yet (the record is a
//!   placeholder for its key in the index), or the row was deleted.
//! - *removed*: the record is no longer in any index. A transaction that still holds its address looks the
//!   key up again. This bit is never cleared.
//! - *queued*: the record is on some worker's garbage list, to be unlinked. It is on at most one such list,
//!   and is therefore freed only once.
//!
//! Two equal words mean the same version: each write increments the sequence, or moves to a later epoch. 44
//! bits of epoch last for [years](crate::sync::clock::EPOCH_MAX). 16 bits of sequence allow 65,536 writes of
//! one record in an epoch of 40 ms. If there are more, the sequence carries over into the epoch. This does no
//! harm: versions still grow, and [`Tid::order_in`] still orders the writes of an epoch.
//! Epoch and sequence together are the paper's sequence number (DBX §5.1).

use weft_htm::word::{Ordering, Word, fence, fence_after_exchange, spin_loop, yield_now};

use crate::sync::clock::EPOCH_SHIFT;

/// A record's version word.
#[derive(Debug)]
#[repr(transparent)]
pub struct TidWord(Word);

/// The value of a [`TidWord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Tid(u64);

const LOCK: u64 = 1;
const ABSENT: u64 = 1 << 1;
const REMOVED: u64 = 1 << 2;
const QUEUED: u64 = 1 << 3;
const FLAGS: u64 = LOCK | ABSENT | REMOVED | QUEUED;
const SEQUENCE_ONE: u64 = 1 << 4;

const _: () = assert!(FLAGS < SEQUENCE_ONE && SEQUENCE_ONE < 1 << EPOCH_SHIFT);

impl Tid {
    /// The value for a new placeholder: never committed, no visible row.
    pub const PLACEHOLDER: Tid = Tid(ABSENT);

    /// Returns the value for a new placeholder whose versions begin after this one.
    #[inline(always)]
    pub const fn placeholder_after(version: u64) -> Tid {
        Tid(version | ABSENT)
    }

    /// Returns the version that so many more writes in its epoch make of one that is given as a number.
    pub const fn after_writes(version: u64, writes: u64) -> Tid {
        Tid(version + writes * SEQUENCE_ONE)
    }

    /// Returns the version alone, as a number.
    #[inline(always)]
    pub const fn number(self) -> u64 {
        self.version().0
    }

    /// Returns whether a commit or an unlinking holds the record.
    #[inline(always)]
    pub const fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    /// Returns whether the record has no visible row.
    #[inline(always)]
    pub const fn is_absent(self) -> bool {
        self.0 & ABSENT != 0
    }

    /// Returns whether the record has left its index for good.
    #[inline(always)]
    pub const fn is_removed(self) -> bool {
        self.0 & REMOVED != 0
    }

    /// Returns whether the record is on a garbage list, to be unlinked.
    #[inline(always)]
    pub const fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    /// Returns the epoch of the last write, or 0 if there was none.
    pub const fn epoch(self) -> u64 {
        self.0 >> EPOCH_SHIFT
    }

    /// Returns the same version, locked.
    #[inline(always)]
    pub const fn locked(self) -> Tid {
        Tid(self.0 | LOCK)
    }

    /// Returns the same version, unlocked.
    #[inline(always)]
    pub const fn unlocked(self) -> Tid {
        Tid(self.0 & !LOCK)
    }

    /// Returns the version alone, without the flags.
    #[inline(always)]
    pub const fn version(self) -> Tid {
        Tid(self.0 & !FLAGS)
    }

    /// Returns the later of two versions, without the flags.
    #[inline(always)]
    pub const fn later(self, other: Tid) -> Tid {
        let (this, other) = (self.version(), other.version());
        if this.0 >= other.0 { this } else { other }
    }

    /// Returns the first version in `epoch` that is later than this one, without flags.
    #[inline(always)]
    pub const fn next(self, epoch: u64) -> Tid {
        // The first write in this epoch: the sequence starts again at 0.
        if epoch > self.epoch() {
            Tid(epoch << EPOCH_SHIFT)
        } else {
            Tid(self.version().0 + SEQUENCE_ONE)
        }
    }

    /// Returns a number that orders the writes of a record within `epoch`, for the write that replaces this
    /// version. Each write in an epoch replaces what the one before left. A write that replaces a version
    /// from an earlier epoch comes first, with number 0.
    #[inline(always)]
    pub const fn order_in(self, epoch: u64) -> u64 {
        match self.version().0.checked_sub(epoch << EPOCH_SHIFT) {
            Some(writes) => writes / SEQUENCE_ONE + 1,
            None => 0,
        }
    }

    /// Returns the version whose writer has this timestamp, without flags. For protocols that order
    /// transactions by timestamps: the timestamp takes the place of epoch and sequence.
    #[inline(always)]
    pub const fn at(timestamp: u64) -> Tid {
        Tid(timestamp * SEQUENCE_ONE)
    }

    /// Returns the timestamp of the version's writer, if versions are timestamps; 0 if nothing was written.
    #[inline(always)]
    pub const fn timestamp(self) -> u64 {
        self.0 / SEQUENCE_ONE
    }

    /// Returns the word after a write that makes `version` the record's next version: unlocked, with a
    /// visible row. `queued` is kept, because the record is still on a garbage list.
    #[inline(always)]
    pub const fn written_at(self, version: Tid) -> Tid {
        Tid(version.0 | self.0 & QUEUED)
    }

    /// Returns the word after a deletion that makes `version` the record's next version: unlocked, no visible
    /// row, queued to be unlinked.
    #[inline(always)]
    pub const fn deleted_at(self, version: Tid) -> Tid {
        Tid(version.0 | ABSENT | QUEUED)
    }

    /// Returns the word after a write in `epoch`: unlocked, with a visible row.
    #[inline(always)]
    pub const fn written(self, epoch: u64) -> Tid {
        self.written_at(self.next(epoch))
    }

    /// Returns the word after a deletion in `epoch`: unlocked, no visible row, queued to be unlinked.
    #[inline(always)]
    pub const fn deleted(self, epoch: u64) -> Tid {
        self.deleted_at(self.next(epoch))
    }

    /// Returns the same version, no longer on a garbage list.
    pub const fn dequeued(self) -> Tid {
        Tid(self.0 & !QUEUED)
    }

    /// Returns the last value that a record's word ever has: unlinked.
    pub const fn removed(self) -> Tid {
        Tid((self.0 | ABSENT | REMOVED) & !(LOCK | QUEUED))
    }
}

impl TidWord {
    /// Creates a word that holds `tid`.
    #[inline(always)]
    pub fn new(tid: Tid) -> Self {
        TidWord(Word::new(tid.0))
    }

    /// Loads the value. Acquire: pairs with the release in [`TidWord::unlock`], so a thread that sees a
    /// version also sees the row that belongs to it.
    #[inline(always)]
    pub fn load(&self) -> Tid {
        Tid(self.0.load(Ordering::Acquire))
    }

    /// Loads the value without ordering: for validation, which has a fence of its own, and inside hardware
    /// regions, which are ordered as a whole.
    #[inline(always)]
    pub fn load_relaxed(&self) -> Tid {
        Tid(self.0.load(Ordering::Relaxed))
    }

    /// Stores a value inside a hardware region, whose end publishes everything at once.
    #[inline(always)]
    pub fn store_in_region(&self, tid: Tid) {
        self.0.store(tid.0, Ordering::Relaxed);
    }

    /// Locks the record if it is still at the unlocked version `expected`. One instruction takes the write
    /// lock and validates what the writer had read.
    ///
    /// Acquire: pairs with the release in [`TidWord::unlock`] by the previous holder. No other thread may see
    /// anything that the new holder does before it sees the lock; therefore installations use release stores.
    #[inline(always)]
    pub fn lock_at(&self, expected: Tid) -> Result<(), Tid> {
        debug_assert!(!expected.is_locked());
        self.0
            .compare_exchange(expected.0, expected.0 | LOCK, Ordering::Acquire, Ordering::Relaxed)
            .map(|_| ())
            .map_err(Tid)
    }

    /// Waits until the record is unlocked, locks it at its present version, and returns that version. The
    /// caller must hold no other lock.
    pub fn lock(&self) -> Tid {
        loop {
            let tid = self.load_unlocked();
            if self.lock_at(tid).is_ok() {
                return tid;
            }
        }
    }

    /// Waits until the record is unlocked, and returns the value. A lock is held only for the length of an
    /// installation. So this spins briefly, and then yields, since the holder may have been preempted.
    #[inline(always)]
    pub fn load_unlocked(&self) -> Tid {
        let tid = self.load();
        if tid.is_locked() { self.wait_until_unlocked() } else { tid }
    }

    #[cold]
    fn wait_until_unlocked(&self) -> Tid {
        let mut spins = 0u32;
        loop {
            let tid = self.load();
            if !tid.is_locked() {
                return tid;
            }
            spins += 1;
            if spins.is_multiple_of(64) { yield_now() } else { spin_loop() }
        }
    }

    /// Raises the word to `version`, unless it is already at a later one. The word holds a version without
    /// flags. Relaxed: a lock, or a grace period, orders its readers and writers.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn raise(&self, version: Tid) {
        let mut current = self.load_relaxed();
        while current.0 < version.0 {
            let order = Ordering::Relaxed;
            match self.0.compare_exchange(current.0, version.0, order, order) {
                Ok(_) => return,
                Err(found) => current = Tid(found),
            }
        }
    }

    /// Stores `tid`, which is unlocked, and so publishes the version. Release: pairs with [`TidWord::load`]
    /// and [`TidWord::lock_at`].
    #[inline(always)]
    pub fn unlock(&self, tid: Tid) {
        debug_assert!(!tid.is_locked());
        self.0.store(tid.0, Ordering::Release);
    }

    /// Reads something together with the version to which it belongs, by a seqlock. This is the software twin
    /// of DBX's Algorithm 2, which puts the two reads in a region.
    ///
    /// `read` must use acquire loads, and their partners must be release stores made under the lock. Then, if
    /// `read` sees anything of a newer version, the second load of the word sees at least that version's
    /// lock, and differs from the first.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn read_with<R: Copy>(&self, read: impl Fn() -> R) -> (Tid, R) {
        loop {
            let before = self.load_unlocked();
            let value = read();
            // Relaxed: ordered after `read`'s acquire loads by those loads themselves.
            if self.load_relaxed() == before {
                return (before, value);
            }
        }
    }
}

/// Separates the locking of the write set from the validation of the read set: a fence. No validation load
/// may be satisfied before every write lock is visible. Otherwise two transactions could each miss the
/// other's lock (write skew). The partner is the same fence in the other transaction.
#[inline(always)]
pub fn fence_before_validation() {
    fence(Ordering::SeqCst);
}

/// As [`fence_before_validation`], after `locked` locks were taken one after the other, each by an exchange.
#[inline(always)]
pub fn fence_after_locking(locked: usize) {
    if locked == 0 { fence(Ordering::SeqCst) } else { fence_after_exchange() }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn versions_only_increase() {
        let first = Tid::PLACEHOLDER.written(5);
        assert!(!first.is_absent() && !first.is_locked());
        assert_eq!(first.epoch(), 5);
        let second = first.written(5);
        assert!(second.0 > first.0);
        let third = second.written(6);
        assert_eq!(third.epoch(), 6);
        assert!(third.0 > second.0);
        let stale_clock = third.written(5);
        assert!(stale_clock.0 > third.0, "an older epoch never takes a version back");
    }

    #[test]
    fn a_deleted_record_stays_queued_when_reinserted() {
        let deleted = Tid::PLACEHOLDER.written(1).deleted(1);
        assert!(deleted.is_absent() && deleted.is_queued() && !deleted.is_locked());
        let again = deleted.written(1);
        assert!(!again.is_absent() && again.is_queued());
        assert!(!again.dequeued().is_queued());
        let removed = deleted.locked().removed();
        assert!(removed.is_removed() && removed.is_absent() && !removed.is_locked());
    }

    #[test]
    fn locking_validates_the_version() {
        let word = TidWord::new(Tid::PLACEHOLDER.written(1));
        let seen = word.load();
        word.lock_at(seen).unwrap();
        assert_eq!(word.lock_at(seen), Err(seen.locked()));
        word.unlock(seen.written(1));
        assert_eq!(word.lock_at(seen), Err(seen.written(1)), "the version has moved on");
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    struct Kernel {
        tid: TidWord,
        row: Word,
    }

    fn install(kernel: &Kernel, row: u64) -> bool {
        let seen = kernel.tid.load_unlocked();
        if kernel.tid.lock_at(seen).is_err() {
            return false;
        }
        kernel.row.store(row, Ordering::Release);
        kernel.tid.unlock(seen.written(1));
        true
    }

    /// A reader pairs a row with the version that installed it, and with no other version.
    #[test]
    fn loom_version_install_and_read() {
        loom::model(|| {
            let kernel =
                Arc::new(Kernel { tid: TidWord::new(Tid::PLACEHOLDER), row: Word::new(0) });
            let writer = {
                let kernel = Arc::clone(&kernel);
                thread::spawn(move || {
                    install(&kernel, 1);
                })
            };
            let (tid, row) = kernel.tid.read_with(|| kernel.row.load(Ordering::Acquire));
            assert_eq!(tid.is_absent(), row == 0, "row {row} paired with {tid:?}");
            writer.join().unwrap();
        });
    }

    /// Two transactions cannot both commit if each locks its own record and then validates the other's
    /// version (write skew).
    #[test]
    fn loom_locks_are_visible_before_validation() {
        loom::model(|| {
            let records = Arc::new([
                TidWord::new(Tid::PLACEHOLDER.written(1)),
                TidWord::new(Tid::PLACEHOLDER.written(1)),
            ]);
            let commit = |records: &[TidWord; 2], own: usize, other: usize| {
                let (mine, theirs) = (records[own].load(), records[other].load_relaxed());
                if theirs.is_locked() || records[own].lock_at(mine).is_err() {
                    return false;
                }
                fence_after_locking(1);
                let valid = records[other].load_relaxed() == theirs;
                records[own].unlock(if valid { mine.written(1) } else { mine });
                valid && theirs.epoch() == 1 && theirs == Tid::PLACEHOLDER.written(1)
            };
            let there = {
                let records = Arc::clone(&records);
                thread::spawn(move || commit(&records, 0, 1))
            };
            let here = commit(&records, 1, 0);
            assert!(!(here && there.join().unwrap()), "write skew");
        });
    }
}
