//! **2pl** and **2pl-nowait**: strict two-phase locking on records.
//!
//! K. P. Eswaran, J. N. Gray, R. A. Lorie, I. L. Traiger: *The Notions of Consistency and Predicate Locks in a
//! Database System*, CACM 1976 (two-phase locking); D. J. Rosenkrantz, R. E. Stearns, P. M. Lewis: *System Level
//! Concurrency Control for Distributed Database Systems*, TODS 1978 (wait-die). It is the baseline "2PL" of HTCC
//! (Wu and Tan, USENIX ATC 2016, §5), with the same policy against deadlocks.
//!
//! The idea. A transaction locks a record before it looks at it: shared to read, and exclusively to write. It
//! releases no lock before it ends. So nothing that it has read can change while it runs, and there is nothing to
//! validate. This has two costs. Every read writes to the record's header twice. And transactions can deadlock:
//! block each other in a circle. Two policies against deadlocks are here, and they differ in nothing else:
//!
//! - *wait-die* (`2pl`): every transaction has a timestamp, its age. A transaction may wait only for younger ones.
//!   If it would have to wait for an older one, it dies (aborts), and is run again. All waiting goes from older to
//!   younger, so there is no circle. A transaction that dies keeps its timestamp. So it grows older in comparison
//!   with the others, until no older one is left.
//! - *no-wait* (`2pl-nowait`): a transaction that does not get a lock at once dies.
//!
//! Writes stay private until the commit, which installs them and releases all locks.
//!
//! Header of a record: a TID word (whose lock bit is never set; see `record/tid.rs`), and a
//! *lock word*:
//!
//! ```text
//!   63                                                 13      12         11     10            0
//!  +-----------------------------------------------------+---------+-----------+---------------+
//!  | timestamp                                           | pending | exclusive | shared holders|
//!  +-----------------------------------------------------+---------+-----------+---------------+
//! ```
//!
//! - *free*: the three lower fields are 0. The timestamp has no meaning.
//! - *exclusive*: the timestamp is the holder's. By it the holder recognizes its own lock.
//! - *shared holders*: their number. The timestamp is the smallest of all that have joined since the lock was last
//!   free. So no holder's timestamp is smaller.
//! - *pending*: a writer waits for the shared holders to leave. The timestamp is the writer's, which is smaller
//!   than any holder's. No further holder can join, so an endless stream of readers does not keep the writer out.
//!
//! **Wait-die on the lock word.** A transaction that does not get the lock compares its timestamp with the word's.
//! If its own is smaller, it waits; otherwise it dies. While it waits, it looks at the word repeatedly and applies
//! the rule each time. The word's timestamp is never larger than that of any transaction that the requester would
//! wait for. So a transaction waits only for younger ones, at all times. (It may die in vain: the holder whose
//! timestamp the word shows may have left.)
//!
//! *Upgrade.* A transaction that has read a record, and is to write it, is a shared holder itself. If it is the
//! only one, it takes the lock exclusively in one step. Otherwise it looks at the timestamp. If that is its own, no
//! holder is older, and it waits for the others as a pending writer. If not, it dies. If two holders upgrade at the
//! same time, the younger one dies, which also releases its share. (Rows that are read in order to be written, as
//! by `update`, are locked exclusively at once.)
//!
//! *No pending bit is left behind.* A writer sets the bit before it waits, and the transaction that takes the lock
//! exclusively clears it. The waiting writer stops in one of two ways. It gets the lock, which clears the bit. Or
//! it finds an older timestamp in the word, and dies. While the bit is set, only another pending writer lowers the
//! timestamp: no shared holder can join, not even an older one, which waits. So if the bit is still set when a
//! writer dies, it belongs to an older writer, which waits in its place. The oldest of them never dies. A writer
//! that waits for an exclusive holder does not set the bit: the holder leaves with a plain store, and the word is
//! free for the next transaction that comes.
//!
//! **The serialization point** is the beginning of the commit. The transaction holds all its locks there, and
//! validates all index nodes that it relies on after it.
//!
//! **Starvation.** Under `2pl` a transaction keeps its timestamp while it is run again. The oldest transaction dies
//! only because of a timestamp that an older reader has left behind. The [turnstile](crate::Database#starvation) is
//! for this case, and for `2pl-nowait`. (A transaction that the caller begins and retries by hand gets a new
//! timestamp each time.) A wait for a lock can last as long as the transaction that holds it: deadlines are checked
//! before and after the wait. A leaked transaction holds its locks for good.
//!
//! **Departures from the papers**
//! - Phantoms. The 1976 paper locks predicates, and textbooks lock the key next to a gap. Here a range, or the
//!   absence of a key, is noted as a version of the index node, and validated when all locks are held, as in Silo
//!   (§4.6 of that paper). So an insertion into a range that was scanned does not wait for the scanner. The scanner
//!   aborts instead. (A key that is absent although it has a record, because its row was deleted, is locked like
//!   any other.)
//! - The lock is a word in the record's header, without a queue. A lock manager's tables and latches would be most
//!   of the cost. So the holders of a shared lock are not known, and a requester compares its timestamp only with
//!   the oldest.
//! - Each worker takes timestamps in blocks. They are unique, but they show only roughly which transaction came
//!   first. Wait-die needs no more.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use weft_htm::word::{Ordering, Word, spin_loop, yield_now};

use super::access_set::{AccessSet, ReplacedVersion, TidHeader, WriteEntry, successor, visible};
use super::optimistic::{abort_at, stored, validate_nodes};
use super::positions::Positions;
use super::{
    Abort, DeletedOutcome, Executor, HoldFunction, HoldOutcome, Never, Observation, Protocol,
    Refusal, Visible, WriteMark,
};
use crate::error::ConflictReason;
use crate::index::bplus_tree::ScannedRange;
use crate::index::{NodeChange, NodeVersion};
use crate::row::encoding::EncodedKey;
use crate::store::record::tid::{Tid, TidWord, fence_before_validation};
use crate::store::record::{Newest, RecordPointer, StoredRecord};
use crate::store::table::TableRef;
use crate::store::worker::{LoggedWrite, WorkerMemory};

/// Strict two-phase locking with wait-die. See the [module](self) for the papers and the idea.
#[derive(Debug)]
pub enum TwoPhaseLocking {}

// SAFETY: a record is read and changed only under its lock. Access sets install or discard each row once.
unsafe impl Protocol for TwoPhaseLocking {
    const NAME: &'static str = "2pl";
    const TITLE: &'static str = "two-phase locking, wait-die";
    const SOURCE: &'static str =
        "Eswaran et al., CACM 1976; Rosenkrantz et al., TODS 1978; Wu and Tan, ATC 2016";
    const USES_HTM: bool = false;
    const KEEPS_LOCKS: bool = true;
    type Header = LockHeader;
    type Shared = Timestamps;
    type Executor = LockingExecutor<true>;

    fn settle_deleted(
        record: &StoredRecord<LockHeader>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        settle_deleted(record, may_go, unlink)
    }

    const UNLINKS_AT_ONCE: bool = true;
    const HOLD_ROW: Option<HoldFunction<LockHeader>> = Some(hold_row);
}

/// Strict two-phase locking that never waits. See the [module](self) for the papers and the idea.
#[derive(Debug)]
pub enum TwoPhaseLockingNoWait {}

// SAFETY: a record is read and changed only under its lock. Access sets install or discard each row once.
unsafe impl Protocol for TwoPhaseLockingNoWait {
    const NAME: &'static str = "2pl-nowait";
    const TITLE: &'static str = "two-phase locking, aborts instead of waiting";
    const SOURCE: &'static str = "Eswaran et al., CACM 1976";
    const USES_HTM: bool = false;
    const KEEPS_LOCKS: bool = true;
    type Header = LockHeader;
    type Shared = Timestamps;
    type Executor = LockingExecutor<false>;

    fn settle_deleted(
        record: &StoredRecord<LockHeader>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        settle_deleted(record, may_go, unlink)
    }

    const UNLINKS_AT_ONCE: bool = true;
    const HOLD_ROW: Option<HoldFunction<LockHeader>> = Some(hold_row);
}

// ---- the lock word ----------------------------------------------------------------------------

/// A record's lock. The [module](self) describes its layout and rules.
#[derive(Debug, Default)]
#[repr(transparent)]
struct LockWord(Word);

const SHARED_ONE: u64 = 1;
const SHARED: u64 = (1 << 11) - 1;
const EXCLUSIVE: u64 = 1 << 11;
const PENDING: u64 = 1 << 12;
const STATE: u64 = SHARED | EXCLUSIVE | PENDING;
/// 51 bits remain for timestamps. They last for seven years of ten million transactions a second.
const TIMESTAMP_SHIFT: u32 = 13;
/// A timestamp younger than all others.
const TIMESTAMP_MAX: u64 = u64::MAX >> TIMESTAMP_SHIFT;

const _: () = assert!(STATE == (1 << TIMESTAMP_SHIFT) - 1);

/// The lock was not granted: the transaction must die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockDenied;

/// What a transaction does next when it asks for a lock, given the lock word that it has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockStep {
    /// Takes the lock, by changing the word to this.
    Take(u64),
    /// Begins to wait as a pending writer, which it announces by changing the word to this.
    Announce(u64),
    /// Looks at the word again.
    Wait,
    /// Gives up.
    Die,
}

const fn timestamp_of(word: u64) -> u64 {
    word >> TIMESTAMP_SHIFT
}

const fn exclusive(timestamp: u64) -> u64 {
    timestamp << TIMESTAMP_SHIFT | EXCLUSIVE
}

const fn pending(timestamp: u64, holders: u64) -> u64 {
    timestamp << TIMESTAMP_SHIFT | PENDING | holders
}

/// Returns the word after one more holder has joined.
const fn with_holder(word: u64, timestamp: u64) -> u64 {
    let holders = word & SHARED;
    let is_oldest = holders == 0 || timestamp < timestamp_of(word);
    let oldest = if is_oldest { timestamp } else { timestamp_of(word) };
    oldest << TIMESTAMP_SHIFT | (holders + SHARED_ONE)
}

/// The rule for a transaction that asks for a share of the lock, and holds none.
const fn share<const WAITS: bool>(word: u64, timestamp: u64) -> LockStep {
    if word & (EXCLUSIVE | PENDING) == 0 && word & SHARED < SHARED {
        LockStep::Take(with_holder(word, timestamp))
    } else if WAITS && timestamp < timestamp_of(word) {
        LockStep::Wait
    } else {
        LockStep::Die
    }
}

/// The rule for a transaction that asks for the lock exclusively. It holds `own` shares of the lock: none, or one,
/// which it upgrades.
const fn seize<const WAITS: bool>(word: u64, timestamp: u64, own: u64) -> LockStep {
    let is_pending = word & PENDING != 0;
    // If the two are equal, the timestamp is this transaction's own: as a pending writer, as a shared holder, or
    // from an earlier attempt.
    let is_oldest = timestamp <= timestamp_of(word);
    if word & (EXCLUSIVE | SHARED) == own && (!is_pending || is_oldest || own != 0) {
        LockStep::Take(exclusive(timestamp))
    } else if !WAITS || !is_oldest {
        LockStep::Die
    } else if word & EXCLUSIVE != 0 || is_pending && timestamp == timestamp_of(word) {
        LockStep::Wait
    } else {
        LockStep::Announce(pending(timestamp, word & SHARED))
    }
}

impl LockWord {
    /// Takes a share of the lock if the lock is free.
    #[inline(always)]
    fn try_lock_shared(&self, timestamp: u64) -> bool {
        // Relaxed: the compare-and-swap checks the word again.
        let word = self.0.load(Ordering::Relaxed);
        word & STATE == 0 && self.change(word, with_holder(word, timestamp))
    }

    /// Takes the lock exclusively if it is free.
    #[inline(always)]
    fn try_lock_exclusive(&self, timestamp: u64) -> bool {
        // Relaxed: as above.
        let word = self.0.load(Ordering::Relaxed);
        word & STATE == 0 && self.change(word, exclusive(timestamp))
    }

    /// Takes a share of the lock. The caller holds none.
    fn lock_shared<const WAITS: bool>(&self, timestamp: u64) -> Result<(), LockDenied> {
        self.lock(|word| share::<WAITS>(word, timestamp))
    }

    /// Takes the lock exclusively. The caller holds `own` shares of it.
    fn lock_exclusive<const WAITS: bool>(
        &self,
        timestamp: u64,
        own: u64,
    ) -> Result<(), LockDenied> {
        self.lock(|word| seize::<WAITS>(word, timestamp, own))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn lock(&self, rule: impl Fn(u64) -> LockStep) -> Result<(), LockDenied> {
        let mut waits = 0u32;
        loop {
            // Relaxed: every step except waiting and dying checks the word again.
            let word = self.0.load(Ordering::Relaxed);
            match rule(word) {
                LockStep::Take(locked) if self.change(word, locked) => return Ok(()),
                LockStep::Take(_) => {}
                LockStep::Announce(announced) => {
                    self.change(word, announced);
                }
                LockStep::Wait => {
                    waits += 1;
                    // The holder may be waiting for this core.
                    if waits.is_multiple_of(64) { yield_now() } else { spin_loop() }
                }
                LockStep::Die => return Err(LockDenied),
            }
        }
    }

    /// Acquire: pairs with the releases in `unlock_shared` and `unlock_exclusive`. A writer sees that all readers
    /// before it are done, since each reader's decrement is part of the release sequence of the earlier ones. A
    /// reader sees what the writer before it has installed.
    #[inline(always)]
    fn change(&self, word: u64, to: u64) -> bool {
        self.0.compare_exchange(word, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Returns whether the lock is held exclusively with this timestamp. Only the transaction with this timestamp
    /// may ask. No other transaction takes the lock under it, so a relaxed load is sufficient.
    #[inline(always)]
    fn is_exclusive_of(&self, timestamp: u64) -> bool {
        self.0.load(Ordering::Relaxed) == exclusive(timestamp)
    }

    /// Locks a record that no other thread can find yet. Putting it into an index publishes it.
    #[inline(always)]
    fn lock_unpublished(&self, timestamp: u64) {
        self.0.store(exclusive(timestamp), Ordering::Relaxed);
    }

    /// Gives a share back. Release: pairs with the acquire in `change` of the next writer, which must not install
    /// before this reader has read.
    #[inline(always)]
    fn unlock_shared(&self) {
        let word = self.0.fetch_add(SHARED_ONE.wrapping_neg(), Ordering::Release);
        debug_assert!(word & SHARED != 0 && word & EXCLUSIVE == 0, "{word:x}");
    }

    /// Releases the lock. A plain store is sufficient: while the lock is held exclusively, no other thread changes
    /// the word. Release: pairs with the acquire in `change` of the next holder.
    #[inline(always)]
    fn unlock_exclusive(&self) {
        debug_assert!(self.0.load(Ordering::Relaxed) & STATE == EXCLUSIVE);
        self.0.store(0, Ordering::Release);
    }
}

/// The header of a record under two-phase locking.
#[derive(Debug)]
pub struct LockHeader {
    tid: TidWord,
    lock: LockWord,
}

impl Default for LockHeader {
    fn default() -> Self {
        LockHeader { tid: TidWord::new(Tid::PLACEHOLDER), lock: LockWord::default() }
    }
}

impl TidHeader for LockHeader {
    #[inline(always)]
    fn tid(&self) -> &TidWord {
        &self.tid
    }
}

/// See [`Protocol::settle_deleted`]. If a deleted record has a shared lock, a transaction has found it absent and
/// relies on that. So the record stays until the lock is gone.
fn settle_deleted(
    record: &StoredRecord<LockHeader>,
    may_go: impl Fn(u64) -> bool,
    unlink: impl FnOnce() -> bool,
) -> DeletedOutcome {
    let LockHeader { tid: word, lock } = &record.header;
    // With this timestamp every other transaction is older, and may wait for this lock. The holder does not wait
    // for any other lock while it holds this one.
    if !lock.try_lock_exclusive(TIMESTAMP_MAX) {
        return DeletedOutcome::Busy;
    }
    let tid = word.load_relaxed();
    let settled = if !tid.is_absent() {
        word.unlock(tid.dequeued());
        DeletedOutcome::Kept
    } else if may_go(tid.number()) {
        let unlinked = unlink();
        word.unlock(if unlinked { tid.removed() } else { tid.dequeued() });
        if unlinked { DeletedOutcome::Unlinked } else { DeletedOutcome::Kept }
    } else {
        DeletedOutcome::Busy
    };
    lock.unlock_exclusive();
    settled
}

/// See [`Protocol::HOLD_ROW`]. A transaction that has read the row holds its lock, and keeps the row where it is.
fn hold_row(record: &StoredRecord<LockHeader>, action: &mut dyn FnMut()) -> HoldOutcome {
    let LockHeader { tid, lock } = &record.header;
    // As in `settle_deleted`.
    if !lock.try_lock_exclusive(TIMESTAMP_MAX) {
        return HoldOutcome::Busy;
    }
    let outcome = if tid.load_relaxed().is_absent() {
        HoldOutcome::Absent
    } else {
        action();
        HoldOutcome::Held
    };
    lock.unlock_exclusive();
    outcome
}

// ---- timestamps -------------------------------------------------------------------------------

/// Hands out timestamps to the workers.
#[derive(Debug, Default)]
pub struct Timestamps {
    next: Word,
}

/// How many timestamps a worker takes at a time. Enough that the counter is no bottleneck, and so few that a slow
/// worker soon uses up what it has.
const TIMESTAMPS_PER_BLOCK: u64 = 32;

impl Timestamps {
    /// Returns timestamps that no other worker gets.
    #[cold]
    fn take_block(&self) -> Range<u64> {
        // Relaxed: timestamps must be unique, but they need not be ordered with anything else.
        let first = self.next.fetch_add(TIMESTAMPS_PER_BLOCK, Ordering::Relaxed);
        first..first + TIMESTAMPS_PER_BLOCK
    }
}

// ---- the locks of a transaction ---------------------------------------------------------------

/// A lock that a transaction holds.
struct HeldLock {
    record: RecordPointer<LockHeader>,
    is_exclusive: bool,
}

/// The locks that a transaction holds, each listed once.
#[derive(Default)]
struct HeldLocks {
    locks: Vec<HeldLock>,
    /// Finds the locks before `indexed` by their records. Only a lock that is not free has to be looked up, so
    /// locks are entered when a look-up needs them.
    positions: Positions,
    indexed: usize,
}

// SAFETY: a worker's locks move between threads only with the worker, and between transactions it holds none.
unsafe impl Send for HeldLocks {}

impl HeldLocks {
    #[inline(always)]
    fn push(&mut self, record: RecordPointer<LockHeader>, is_exclusive: bool) {
        self.locks.push(HeldLock { record, is_exclusive });
    }

    /// Returns the position of the lock on a record.
    fn find(&mut self, record: RecordPointer<LockHeader>) -> Option<usize> {
        let locks = &self.locks;
        while self.indexed < locks.len() {
            let block = locks[self.indexed].record.block();
            self.positions.insert(block, self.indexed, |position| locks[position].record.block());
            self.indexed += 1;
        }
        self.positions.find(record.block(), |position| locks[position].record == record)
    }

    /// Releases all locks.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn release(&mut self) {
        for held in &self.locks {
            let lock = &stored(held.record).header.lock;
            if held.is_exclusive { lock.unlock_exclusive() } else { lock.unlock_shared() }
        }
        self.locks.clear();
        if self.indexed > 0 {
            self.positions.clear();
            self.indexed = 0;
        }
    }
}

// ---- running transactions ---------------------------------------------------------------------

/// Runs two-phase locking on one worker: with wait-die, or without waiting.
#[doc(hidden)]
pub struct LockingExecutor<const WAITS: bool> {
    /// The writes of the transaction, and the index nodes that it relies on. There is no read set.
    set: AccessSet<LockHeader>,
    held: HeldLocks,
    /// The transaction's timestamp. Without waiting it only has to distinguish the holders of locks, and is the
    /// worker's slot.
    timestamp: u64,
    /// Timestamps for the worker's next transactions.
    timestamps: Range<u64>,
    shared: Arc<Timestamps>,
}

impl<const WAITS: bool> Executor for LockingExecutor<WAITS> {
    type Header = LockHeader;
    type Shared = Timestamps;
    type Version = ReplacedVersion;
    type Splitting = Never;
    type Repairing = Never;
    type Chopping = Never;
    type Reapplying = Never;

    fn new(shared: &Arc<Timestamps>, slot: usize) -> Self {
        LockingExecutor {
            set: AccessSet::default(),
            held: HeldLocks::default(),
            timestamp: slot as u64,
            timestamps: 0..0,
            shared: Arc::clone(shared),
        }
    }

    #[inline(always)]
    fn begin(&mut self, attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal> {
        debug_assert!(self.held.locks.is_empty());
        self.set.begin(memory);
        self.grow_older(attempt);
        Ok(())
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<LockHeader>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        if !stored(record).header.lock.try_lock_shared(self.timestamp)
            && let Some(visible) = self.read_contended(table, record, memory)?
        {
            return Ok(visible);
        }
        let (tid, newest) = current(record);
        if tid.is_removed() {
            stored(record).header.lock.unlock_shared();
            return Ok(Visible::Removed);
        }
        self.held.push(record, false);
        Ok(visible(tid, newest))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<LockHeader>,
        memory: &WorkerMemory,
    ) -> Result<Observation<ReplacedVersion>, Abort> {
        if !stored(record).header.lock.try_lock_exclusive(self.timestamp)
            && let Some(observation) = self.seize_contended(table, record, memory)?
        {
            return Ok(observation);
        }
        let (tid, newest) = current(record);
        if tid.is_removed() {
            stored(record).header.lock.unlock_exclusive();
        } else {
            self.held.push(record, true);
        }
        Ok(self.set.observe(tid, newest))
    }

    /// Does nothing: the lock protects the read as well as it would have protected the write.
    #[inline(always)]
    fn note_read(&mut self, _: TableRef, _: RecordPointer<LockHeader>, _: ReplacedVersion) {}

    #[inline(always)]
    fn is_current(&self, record: RecordPointer<LockHeader>, version: ReplacedVersion) -> bool {
        self.set.is_current(record, version)
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<LockHeader>,
        version: ReplacedVersion,
        row: NonNull<u8>,
    ) {
        self.set.put(table, record, version, Some(row), None);
    }

    #[inline(always)]
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<LockHeader>,
        version: ReplacedVersion,
        key: EncodedKey,
    ) {
        self.set.put(table, record, version, None, Some(key));
    }

    #[inline(always)]
    fn prepare_insert(&mut self, record: RecordPointer<LockHeader>) {
        stored(record).header.lock.lock_unpublished(self.timestamp);
    }

    #[inline(always)]
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<LockHeader>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        self.held.push(record, true);
        self.set.insert(table, record, row, key);
    }

    #[inline(always)]
    fn note_node(
        &mut self,
        table: TableRef,
        node: NodeVersion,
        range: Option<ScannedRange>,
    ) -> Result<usize, Abort> {
        Ok(self.set.note_node(table, node, range))
    }

    #[inline(always)]
    fn stop_scan(&mut self, position: usize, node: NodeVersion, address: u64) {
        self.set.stop_scan(position, node, address);
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        if self.set.note_own_insertion(table, change, sibling) {
            Ok(())
        } else {
            Err(Abort::of_table(ConflictReason::RangeChanged, table))
        }
    }

    fn rows_added(&self, table: TableRef) -> Option<i64> {
        Some(self.set.rows_added(table))
    }

    fn accessed(&self) -> (usize, usize) {
        let shared = self.held.locks.iter().filter(|held| !held.is_exclusive);
        (shared.count(), self.set.accessed().1)
    }

    /// Rows are locked. Only index nodes can have changed: keys may have been inserted into a range that was read.
    fn validate(&mut self) -> Result<(), Abort> {
        fence_before_validation();
        validate_nodes(&self.set)
    }

    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        self.set.list_writes(list);
    }

    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        // ==== serialization point ====
        // Every lock is held. A fence is needed between this transaction's own insertions and its validation of the
        // nodes. Without it, two transactions that have each inserted where the other one scanned could both miss
        // the other's insertion. The same holds for the counts of rows that it opens. (The fence pairs with the same
        // line in the other transaction. A transaction that relies on no node needs no fence.)
        self.set.open_row_counts(memory);
        if !self.set.nodes.is_empty() {
            fence_before_validation();
        }
        if self.set.writes.is_empty() {
            validate_nodes(&self.set)?;
            self.held.release();
            self.set.clear();
            return Ok(());
        }
        // Drawn with all locks held: if two transactions conflict, the later one draws a later number.
        let epoch = epoch();
        if let Err(abort) = validate_nodes(&self.set) {
            self.set.close_row_counts(memory, false);
            return Err(abort);
        }
        for write in &self.set.writes {
            self.install(write, epoch, memory);
        }
        self.set.close_row_counts(memory, true);
        self.held.release();
        // The transaction has committed. The rest does not concern other transactions.
        self.set.retire(memory, |_, _| {});
        Ok(())
    }

    fn mark(&mut self) -> WriteMark {
        self.set.mark()
    }

    fn keep(&mut self, _mark: WriteMark) {
        self.set.keep();
    }

    fn undo_to(&mut self, mark: WriteMark, _memory: &WorkerMemory) {
        self.set.undo_to(mark);
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        for write in &self.set.writes {
            if let Some(key) = self.set.created_key(write) {
                discard_placeholder(write, key, memory);
            }
        }
        self.held.release();
        self.set.drop_private(memory, |_, _| {});
    }
}

impl<const WAITS: bool> LockingExecutor<WAITS> {
    /// Takes a new timestamp for the first attempt. A retry keeps the timestamp, and so its age.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn grow_older(&mut self, attempt: u32) {
        if WAITS && attempt == 0 {
            if self.timestamps.is_empty() {
                self.timestamps = self.shared.take_block();
            }
            self.timestamp = self.timestamps.start;
            self.timestamps.start += 1;
        }
    }

    /// Takes a share of a lock that was not free. If this transaction holds the lock already, returns what it sees.
    #[inline(never)]
    fn read_contended(
        &mut self,
        table: TableRef,
        record: RecordPointer<LockHeader>,
        memory: &WorkerMemory,
    ) -> Result<Option<Visible>, Abort> {
        let lock = &stored(record).header.lock;
        let see = || {
            let (tid, newest) = current(record);
            visible(tid, newest)
        };
        if lock.is_exclusive_of(self.timestamp) {
            return Ok(Some(self.set.own_write(record).unwrap_or_else(see)));
        }
        if self.held.find(record).is_some() {
            return Ok(Some(see()));
        }
        let wait = || lock.lock_shared::<WAITS>(self.timestamp);
        let locked = if WAITS { memory.observe_wait(table, record.block(), wait) } else { wait() };
        locked.map_err(|LockDenied| denied(table, record))?;
        Ok(None)
    }

    /// Takes a lock that was not free exclusively. If this transaction holds the lock already, returns what it
    /// sees.
    #[inline(never)]
    fn seize_contended(
        &mut self,
        table: TableRef,
        record: RecordPointer<LockHeader>,
        memory: &WorkerMemory,
    ) -> Result<Option<Observation<ReplacedVersion>>, Abort> {
        let lock = &stored(record).header.lock;
        let see = |set: &AccessSet<LockHeader>| {
            let (tid, newest) = current(record);
            set.observe(tid, newest)
        };
        if lock.is_exclusive_of(self.timestamp) {
            let own = self.set.observe_own(record);
            return Ok(Some(own.unwrap_or_else(|| see(&self.set))));
        }
        let held = self.held.find(record);
        let shares = held.map_or(0, |_| SHARED_ONE);
        let wait = || lock.lock_exclusive::<WAITS>(self.timestamp, shares);
        let locked = if WAITS { memory.observe_wait(table, record.block(), wait) } else { wait() };
        locked.map_err(|LockDenied| denied(table, record))?;
        Ok(held.map(|position| {
            self.held.locks[position].is_exclusive = true;
            see(&self.set)
        }))
    }

    /// Makes a write visible to the next holder of the lock.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn install(&self, write: &WriteEntry<LockHeader>, epoch: u64, memory: &WorkerMemory) {
        let record = stored(write.record);
        debug_assert!(record.header.lock.is_exclusive_of(self.timestamp));
        debug_assert_eq!(record.header.tid.load_relaxed(), write.expected);
        match (write.row, self.set.created_key(write)) {
            (Some(row), _) => {
                // Release: pairs with the acquire loads of code that looks at rows without a lock:
                // `Transaction::locate`, and the code that names the key of a conflict.
                record.newest.store(Newest::of(row), Ordering::Release);
                record.header.tid.unlock(successor(write, epoch));
            }
            // The record was inserted, and deleted again.
            (None, Some(key)) => discard_placeholder(write, key, memory),
            (None, None) => record.header.tid.unlock(successor(write, epoch)),
        }
    }
}

/// Returns a record's version and newest row. The caller holds the record's lock, which has ordered these loads
/// after all stores of the earlier holders.
#[inline(always)]
fn current(record: RecordPointer<LockHeader>) -> (Tid, *mut u8) {
    let record = stored(record);
    (record.header.tid.load_relaxed(), record.newest.load(Ordering::Relaxed).address())
}

/// Unlinks a placeholder that this transaction has put into the index under `key`, and has kept locked since then.
/// A transaction that waits for the lock then finds the record removed, and looks the key up again.
fn discard_placeholder(write: &WriteEntry<LockHeader>, key: &EncodedKey, memory: &WorkerMemory) {
    // SAFETY: the record is of the table, and the worker is pinned.
    if unsafe { write.table.unlink(write.record.block(), key, memory) } {
        stored(write.record).header.tid.unlock(write.expected.removed());
        memory.retire_record(write.record.block(), write.table);
    }
}

#[cold]
fn denied(table: TableRef, record: RecordPointer<LockHeader>) -> Abort {
    abort_at(ConflictReason::LockDenied, table, record)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests;
