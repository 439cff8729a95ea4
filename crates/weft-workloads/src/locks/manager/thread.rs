//! What a thread of the storage manager owns, and the session in which it runs a transaction.

use weft::htm::Regions;
use weft::htm::lock::{Elidable, Lock, Mcs, Mode};
use weft::htm::word::{Ordering, Word};

use super::lock_table::{LockInfo, Request};
use super::parts::{Part, Parts};
use super::protected::Protected;
use super::transactions::Transaction;
use super::{Kinds, StorageManager};

/// The number of requests for locks that a thread has memory for: a block of Shore-MT's allocator has at most as
/// many objects as a word has bits.
pub(super) const REQUESTS: usize = 64;

/// The number of counters of Shore-MT's statistics (`sm_stats.dat`), all in one structure of each thread.
const COUNTERS: usize = 228;

/// The number of latches that a thread may hold at a time.
const LATCHES_MAX: usize = 4;

/// A counter among the statistics of a thread, with its position there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counter {
    PagesSought = 2,
    PagesFound = 3,
    RowsPinned = 66,
    RowsUnpinned = 67,
    Lookups = 94,
    Traversals = 97,
    PagesFixed = 136,
    PagesUnfixed = 138,
    TransactionsBegun = 146,
    TransactionsCommitted = 147,
    LocksReleased = 170,
    LocksRequested = 171,
    LocksAcquired = 172,
    LocksHeldAlready = 175,
    LocksInCache = 179,
    PageLocksAcquired = 188,
    RowLocksAcquired = 190,
    HashLookups = 210,
    HashProbes = 213,
    RecordsLogged = 54,
}

/// A latch that a thread holds.
#[derive(Debug, Default)]
struct HeldLatch {
    /// The number of the frame, plus 1; 0 if the thread holds none here.
    frame: Word,
    mode: Word,
    count: Word,
}

/// The memory of one thread.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Thread {
    pub(super) locks: LockInfo,
    pub(super) requests: Box<[Request]>,
    pub(super) next_request: Word,
    /// The number in its own block of the lock head that is tried first.
    pub(super) next_head: Word,
    pub(super) transaction: Transaction,
    /// The lock for the log of the transaction, which holds the log record while it is built.
    pub(super) log: Elidable<Protected<Mcs>>,
    pub(super) record: [Word; super::log::RECORD_WORDS_MAX],
    latches: [HeldLatch; LATCHES_MAX],
    counters: Box<[Word]>,
    /// The number of updates of rows in the current transaction.
    pub(super) updates: Word,
}

impl Thread {
    pub(super) fn new(kinds: Kinds, parts: Parts) -> Thread {
        let has_fences = parts.has(Part::Fences);
        Thread {
            locks: LockInfo::new(has_fences, kinds),
            requests: (0..REQUESTS).map(|_| Request::default()).collect(),
            next_request: Word::new(0),
            next_head: Word::new(0),
            transaction: Transaction::new(has_fences, kinds),
            log: Protected::new(has_fences, kinds.mcs),
            record: std::array::from_fn(|_| Word::new(0)),
            latches: Default::default(),
            counters: (0..COUNTERS).map(|_| Word::new(0)).collect(),
            updates: Word::new(0),
        }
    }
}

/// A thread in the storage manager, with the regions that it uses.
#[derive(Clone, Copy)]
pub(super) struct Session<'a> {
    pub(super) manager: &'a StorageManager,
    /// The number of the thread.
    pub(super) number: usize,
    pub(super) thread: &'a Thread,
    pub(super) regions: &'a Regions,
}

impl Session<'_> {
    #[inline(always)]
    pub(super) fn has(&self, part: Part) -> bool {
        self.manager.parts.has(part)
    }

    /// The beginning of each call into a component of the storage manager.
    #[inline(always)]
    pub(super) fn enter(&self) {
        #[cfg(weft_sim)]
        if self.has(Part::Stack) {
            weft::htm::simulation::sync::operate();
        }
    }

    /// Counts an event in the statistics of this thread.
    #[inline(always)]
    pub(super) fn count(&self, counter: Counter) {
        if self.has(Part::Statistics) {
            increment(&self.thread.counters[counter as usize], 1);
        }
    }

    /// Runs a section that excludes all others of its lock.
    #[inline(always)]
    pub(super) fn alone<L: Lock, R>(&self, lock: &Elidable<L>, section: impl FnMut() -> R) -> R {
        lock.section(Mode::Exclusive, self.regions, section)
    }

    /// Notes in the thread's list that it holds the latch of a frame. Returns the position in the list.
    #[inline]
    pub(super) fn note_latch(&self, frame: usize, mode: Mode) -> usize {
        // As Shore-MT does, search the list first: a thread may hold the latch already.
        let free = self.thread.latches.iter().position(|held| get(&held.frame) == 0);
        let position = free.expect("a thread holds few latches");
        let held = &self.thread.latches[position];
        set(&held.frame, frame as u64 + 1);
        set(&held.mode, mode as u64);
        set(&held.count, 1);
        position
    }

    /// Removes a latch from the thread's list.
    #[inline]
    pub(super) fn forget_latch(&self, position: usize) {
        let held = &self.thread.latches[position];
        set(&held.count, 0);
        set(&held.frame, 0);
    }
}

// Relaxed, in these three: each word has a lock that orders its accesses, or the region that replaces the lock, or it
// belongs to one thread.

/// Returns the value of a word that a lock protects.
#[inline(always)]
pub(super) fn get(word: &Word) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Replaces the value of a word that a lock protects.
#[inline(always)]
pub(super) fn set(word: &Word, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// Adds to a word that a lock protects, and returns the sum.
#[inline(always)]
pub(super) fn increment(word: &Word, by: u64) -> u64 {
    let sum = get(word).wrapping_add(by);
    set(word, sum);
    sum
}
