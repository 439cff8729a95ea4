//! **tso**: timestamp ordering, with one small hardware region for each access of a record.
//!
//! V. Leis, A. Kemper, T. Neumann: *Exploiting Hardware Transactional Memory in Main-Memory Databases*,
//! ICDE 2014. It is the protocol HTO with which HTCC (Wu and Tan, USENIX ATC 2016, §5) compares itself. As in
//! HTCC, the paper's storage layer is left out.
//!
//! The idea. Every transaction draws a *timestamp* when it begins, and the serial order is the order of
//! timestamps. This order is fixed before anything is read, so nothing is left to validate. Instead, each
//! access checks that the transaction finds the state that its place in the order asks for. A record remembers
//! the latest timestamp that has read it and the latest that has written it. A transaction comes too late if it
//! reads what a younger one has overwritten, or writes what a younger one has read. Then it aborts and is
//! retried with a new timestamp. Checking a record's timestamps, changing them and taking its row is one step:
//! a region of a few words, which never grows with the transaction.
//!
//! Header of a record, 24 bytes:
//!
//! ```text
//!   63                                     4   3      2       1       0
//!  +----------------------------------------+-------+-------+--------+-------+
//!  | write timestamp: the newest version's  |queued |removed| absent | latch |   tid
//!  +----------------------------------------+-------+-------+--------+-------+
//!  | read timestamp: of the youngest transaction that has read the record    |   read
//!  +-------------------------------------------------------------------------+
//!  | pending: timestamp of the running transaction that is to write it, or 0 |   pending
//!  +-------------------------------------------------------------------------+
//! ```
//!
//! So the version *is* the timestamp of its writer. The lock bit of the TID word is the software twin's
//! *latch*, held for the length of one access. Below, T stands for a transaction and for its timestamp.
//!
//! - **Read**. If a smaller P is pending, wait for its end. If the write timestamp is greater than T, conflict.
//!   Otherwise raise the read timestamp to T and take the newest row. (A greater P does not matter: its version
//!   comes after T's place.)
//! - **Write** takes two steps. *Reserve*: wait for a smaller P as above; conflict if P, the read timestamp or
//!   the write timestamp is greater than T; otherwise set pending to T. Rows stay private. *Install*, at
//!   commit: swap the pointer, set the write timestamp to T, and clear pending.
//!
//! Only the younger transaction waits for the older, so there is no deadlock.
//!
//! **Why it is serializable.** Suppose T reads version V of a record, with V <= T. No version W with V < W < T
//! can be installed later. Its writer was pending when T read, and then T would have waited for it; or it
//! reserves after that, and then it finds a read timestamp of at least T, or a pending transaction greater than
//! W (T itself, if T has read in order to write), and aborts. So T has read the newest version before its
//! place, and this stays true. T has seen nothing uncommitted either, because a pending row is not in the
//! record yet, and installing cannot fail.
//!
//! **The serialization point** of a transaction is the moment at which it draws its timestamp, in `begin`. That
//! lies within its duration, so the order is also that of real time: strict serializability. If the caller's
//! code ends with an error or a panic, that follows from the state at this moment. So `validate` need only
//! protect what was read in order to be written.
//!
//! **Absent keys** have no record that could carry timestamps. For all absent keys together, each index has a
//! read timestamp: that of the youngest transaction that has found a key absent in it, or has scanned a part of
//! it.
//!
//! ```text
//!   reader R                                inserter W
//!     read the leaf, at version v             link the placeholder: the leaf's version moves on
//!     raise the index's read timestamp to R   fence
//!     fence                                   index's read timestamp > W? conflict
//!     leaf's version is not v? conflict
//! ```
//!
//! One of the two fences comes first. If it is R's, W sees the timestamp, and aborts if W is older than R. If
//! it is W's, R sees another version. So if both go on, and R read the leaf before W's placeholder was linked,
//! then W is the younger. If R read the leaf afterwards, R finds the placeholder, which was pending for W
//! before it was linked.
//!
//! **Records that are unlinked** take their timestamps with them. That must not matter to later transactions.
//! - *The read timestamp.* If it is greater than the write timestamp, a transaction has found the record
//!   absent. Every such reader also raises the index's read timestamp while it has the record to itself. The
//!   record is unlinked under the latch, hence later. A transaction that inserts the key again comes later
//!   still, and sees the index's timestamp.
//! - *The write timestamp.* A deleted record is unlinked when all transactions that ran when the delete
//!   committed have ended. Transactions that run at the time of the unlinking were pinned later than the
//!   delete, and drew their timestamps after that. So all of them are younger than the deletion. Until then an
//!   older transaction finds the record in the index, and conflicts. But if a record gets a row again while it
//!   waits to be unlinked, and loses that row too, its wait does not start again. Therefore the second deletion
//!   raises a write timestamp of the index. A transaction with a smaller timestamp that finds a key absent, or
//!   inserts one, conflicts. This includes a transaction that finds a placeholder which a still younger
//!   transaction has put in the place of the record.
//! - *A placeholder* of a transaction that rolls back is unlinked at once. A transaction that found it absent
//!   has raised the index's read timestamp, as above. A transaction that waits for it finds that it was
//!   removed, and looks the key up again. The placeholder's own transaction has found the key absent as well.
//!   It may commit after all (if it inserted the row and deleted it again), or end with an error that follows
//!   from the absence. Then it raises the index's read timestamp before the placeholder is unlinked.
//!
//! **Snapshots** are numbered when they are opened, and a transaction's place among them is the number that it
//! draws when it commits. Only snapshots depend on that order, which is not quite the order of timestamps. Of
//! two transactions in progress the younger may have overwritten what the older has read, and may commit first.
//! A snapshot opened in between would show the younger one's writes and not the older one's. So a transaction
//! that has written something aborts if a snapshot was opened between its timestamp and its commit. Then every
//! transaction whose writes a snapshot shows has a smaller timestamp than all others: the snapshot is a prefix
//! of the serial order.
//!
//! **Starvation.** A transaction that aborts is retried after a randomized wait, with a new timestamp, hence as
//! the youngest. Long transactions lose against short ones. One that has been aborted very often [closes the
//! turnstile](weft::Database#starvation). A wait for another transaction is long but bounded, and ends with a
//! conflict. So deadlines hold even if another thread sleeps inside a transaction.
//!
//! **Departures from the paper**
//! - The paper writes in place, with an undo log. It aborts a transaction that meets a write so recent that the
//!   writer may still be running (the paper's *safe timestamp* decides this). Here rows are private until they
//!   are installed, and the pending word says exactly which write is in progress. The younger transaction
//!   waits, as in strict timestamp ordering, and the older one reads on.
//! - The paper's regions elide a latch, and fall back to taking it. Here that is a latch on the record, whose
//!   bit every region tests. The twin is the same algorithm at the same granularity, so results with and
//!   without RTM may be compared.
//! - Phantoms are not the paper's subject. An index's timestamps are coarse: a scan anywhere in the index
//!   aborts older transactions that insert into it afterwards.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use weft::ConflictReason;
use weft::commit::access_set::{
    AccessSet, ReplacedVersion, TidHeader, WriteEntry, visible, written_at,
};
use weft::commit::optimistic::{abort_at, node_version, stored};
use weft::commit::{
    Abort, DeletedOutcome, Executor, Never, Observation, Protocol, Refusal, Visible, WriteMark,
};
use weft::encoding::EncodedKey;
use weft::index::bplus_tree::ScannedRange;
use weft::index::{NodeChange, NodeVersion};
use weft::store::record::tid::{Tid, TidWord};
use weft::store::record::{Newest, RecordPointer, StoredRecord};
use weft::store::table::TableRef;
use weft::store::worker::{LoggedWrite, WorkerMemory};
use weft_htm::Regions;
use weft_htm::word::{Ordering, Word, fence, spin_loop, yield_now};

/// Timestamp ordering with small hardware regions. See the [module](self) for the paper and the
/// idea.
#[derive(Debug)]
pub enum TimestampOrdering {}

// SAFETY: a record is changed under the latch in its header; access sets install or discard each row once.
unsafe impl Protocol for TimestampOrdering {
    const NAME: &'static str = "tso";
    const TITLE: &'static str = "timestamp ordering, one small HTM region per access";
    const SOURCE: &'static str = "Leis et al., ICDE 2014; HTO in Wu and Tan, USENIX ATC 2016";
    const USES_HTM: bool = true;
    /// Younger transactions wait for the writes of a running one.
    const KEEPS_LOCKS: bool = true;
    type Header = RecordTimestamps;
    type Shared = TimestampOrderingShared;
    type Executor = TimestampOrderingExecutor;

    fn settle_deleted(
        record: &StoredRecord<RecordTimestamps>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        let word = &record.header.tid;
        let tid = word.lock();
        // A reservation relies on the word as it was, so the flags must stay.
        if record.header.pending.load(Ordering::Relaxed) != NOT_PENDING {
            word.unlock(tid);
            DeletedOutcome::Busy
        } else if !tid.is_absent() {
            word.unlock(tid.dequeued());
            DeletedOutcome::Kept
        } else if may_go(0) {
            let unlinked = unlink();
            word.unlock(if unlinked { tid.removed() } else { tid.dequeued() });
            if unlinked { DeletedOutcome::Unlinked } else { DeletedOutcome::Kept }
        } else {
            word.unlock(tid);
            DeletedOutcome::Busy
        }
    }
}

/// What the protocol keeps with every record; the layout is in the [module](self).
///
/// `read` and `pending` are accessed in a region or under the latch, so the accesses need no ordering of their
/// own: the latch passes from one holder to the next with release and acquire.
#[derive(Debug)]
pub struct RecordTimestamps {
    tid: TidWord,
    read: Word,
    pending: Word,
}

/// The value of `pending` when no transaction has reserved the record. Timestamps begin at 1.
const NOT_PENDING: u64 = 0;

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<StoredRecord<RecordTimestamps>>() == 32);

impl Default for RecordTimestamps {
    fn default() -> Self {
        RecordTimestamps {
            tid: TidWord::new(Tid::PLACEHOLDER),
            read: Word::new(0),
            pending: Word::new(NOT_PENDING),
        }
    }
}

impl TidHeader for RecordTimestamps {
    #[inline(always)]
    fn tid(&self) -> &TidWord {
        &self.tid
    }
}

/// A record with this protocol's header.
type TimedRecord = StoredRecord<RecordTimestamps>;

/// What the workers share: the counter of timestamps, and the timestamps of indexes.
#[derive(Debug)]
pub struct TimestampOrderingShared {
    /// The last timestamp that was drawn.
    clock: Padded<Word>,
    /// The timestamps of each index, by its number. Indexes whose numbers differ by a multiple of [`INDEXES`]
    /// share them.
    indexes: Box<[Padded<IndexTimestamps>]>,
}

/// The number of separate index timestamps: more than most databases have indexes.
const INDEXES: usize = 64;

/// A value on cache lines of its own, because many workers write it.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Padded<T>(T);

impl Default for TimestampOrderingShared {
    fn default() -> Self {
        TimestampOrderingShared {
            clock: Padded::default(),
            indexes: (0..INDEXES).map(|_| Padded::default()).collect(),
        }
    }
}

impl TimestampOrderingShared {
    #[inline(always)]
    fn index_of(&self, table: TableRef) -> &IndexTimestamps {
        &self.indexes[table.core().number % INDEXES].0
    }
}

// ---- accesses of a record ---------------------------------------------------------------------

/// The result of an access to a record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AccessResult {
    /// The access was in time. Contains the record's version word, without the latch, and its newest row.
    Granted(Tid, *mut u8),
    /// An older transaction is about to write the record: try again after its end. Contains its timestamp.
    Wait(u64),
    /// A younger transaction has read or written the record before.
    TooLate,
}

/// Runs `step` while no other thread accesses the record: in a hardware region or, in the twin, under the
/// latch. `step` is given the version word. It returns the new word, and a result.
#[cfg_attr(not(debug_assertions), inline(always))]
fn exclusively<R>(record: &TimedRecord, regions: &Regions, step: impl Fn(Tid) -> (Tid, R)) -> R {
    let word = &record.header.tid;
    let in_region = regions.run(
        |region| {
            let tid = word.load_relaxed();
            if tid.is_locked() {
                region.abort_locked();
            }
            let (after, result) = step(tid);
            if after != tid {
                word.store_in_region(after);
            }
            result
        },
        || word.load_relaxed().is_locked(),
    );
    if let Some(result) = in_region {
        return result;
    }
    let (after, result) = step(word.lock());
    word.unlock(after);
    result
}

/// Reads the record at timestamp `time`: the *read* of the module's description.
#[cfg_attr(not(debug_assertions), inline(always))]
fn read_at(
    record: &TimedRecord,
    time: u64,
    index: &IndexTimestamps,
    regions: &Regions,
) -> AccessResult {
    exclusively(record, regions, |tid| {
        let pending = record.header.pending.load(Ordering::Relaxed);
        if pending != NOT_PENDING && pending < time {
            return (tid, AccessResult::Wait(pending));
        }
        if tid.is_removed() {
            return (tid, AccessResult::Granted(tid, ptr::null_mut()));
        }
        // A placeholder does not know the write timestamp of a record that had the key before it. The index's
        // write timestamp stands in for that.
        let is_forgotten = tid == Tid::PLACEHOLDER && index.has_early_deletion_after(time);
        if tid.timestamp() > time || is_forgotten {
            return (tid, AccessResult::TooLate);
        }
        mark_read(record, tid, time, index);
        (tid, AccessResult::Granted(tid, newest(record)))
    })
}

/// Records a read at timestamp `time`. The caller has the record to itself.
#[inline(always)]
fn mark_read(record: &TimedRecord, tid: Tid, time: u64, index: &IndexTimestamps) {
    if record.header.read.load(Ordering::Relaxed) < time {
        record.header.read.store(time, Ordering::Relaxed);
    }
    if tid.is_absent() {
        // The record may be unlinked while the mark is still needed, so the index is marked as well.
        index.mark_read(time);
    }
}

/// Makes `time` pending, unless it is already: the *reserve* of the module's description.
#[cfg_attr(not(debug_assertions), inline(always))]
fn reserve(record: &TimedRecord, time: u64, regions: &Regions) -> AccessResult {
    exclusively(record, regions, |tid| {
        let header = &record.header;
        let pending = header.pending.load(Ordering::Relaxed);
        if pending != NOT_PENDING && pending < time {
            return (tid, AccessResult::Wait(pending));
        }
        if tid.is_removed() {
            return (tid, AccessResult::Granted(tid, ptr::null_mut()));
        }
        let read = header.read.load(Ordering::Relaxed);
        if pending > time || read > time || tid.timestamp() > time {
            return (tid, AccessResult::TooLate);
        }
        header.pending.store(time, Ordering::Relaxed);
        (tid, AccessResult::Granted(tid, newest(record)))
    })
}

/// Installs a version and ends the reservation: the *install* of the module's description. The pending
/// transaction is committing.
#[cfg_attr(not(debug_assertions), inline(always))]
fn install(record: &TimedRecord, after: Tid, row: Option<NonNull<u8>>, regions: &Regions) {
    exclusively(record, regions, |_| {
        if let Some(row) = row {
            // Release: pairs with the acquire of a thread that looks at a record's newest row for its key,
            // without accessing the record (`Transaction::locate`).
            record.newest.store(Newest::of(row), Ordering::Release);
        }
        record.header.pending.store(NOT_PENDING, Ordering::Relaxed);
        (after, ())
    });
}

/// Ends a reservation without a write. If the transaction commits, `read_at` is its timestamp, and what it saw
/// of the record counts as read at that time.
#[inline]
fn release(record: &TimedRecord, read_at: Option<u64>, index: &IndexTimestamps, regions: &Regions) {
    exclusively(record, regions, |tid| {
        if let Some(time) = read_at {
            mark_read(record, tid, time, index);
        }
        record.header.pending.store(NOT_PENDING, Ordering::Relaxed);
        (tid, ())
    });
}

/// Returns the newest row. Relaxed: the latch, or the region, makes its contents visible as well.
#[inline(always)]
fn newest(record: &TimedRecord) -> *mut u8 {
    record.newest.load(Ordering::Relaxed).address()
}

/// The rounds of a wait that spin: about as long as a short transaction takes.
const WAIT_ROUNDS_SPINNING: u32 = 256;
/// The rounds that follow, each of which yields the processor: the writer may have been preempted, or may
/// sleep.
const WAIT_ROUNDS_YIELDING: u32 = 1 << 14;

/// Waits until `writer` is not pending any more. Returns false if the rounds are used up before.
#[cold]
fn wait_for_end_of(writer: u64, record: &TimedRecord) -> bool {
    for round in 0..WAIT_ROUNDS_SPINNING + WAIT_ROUNDS_YIELDING {
        // Relaxed: the access that follows synchronizes with what the writer has left.
        if record.header.pending.load(Ordering::Relaxed) != writer {
            return true;
        }
        if round < WAIT_ROUNDS_SPINNING { spin_loop() } else { yield_now() }
    }
    false
}

// ---- keys that are not there ------------------------------------------------------------------

/// The timestamps of all keys that are absent from an index.
#[derive(Debug, Default)]
struct IndexTimestamps {
    /// Of the youngest transaction that has found keys absent.
    read: Word,
    /// Of the youngest transaction that has deleted a row whose record may be unlinked too early.
    write: Word,
}

impl IndexTimestamps {
    /// Records that keys were found absent at `time`. The caller has their record to itself, or
    /// [protects](IndexTimestamps::protect) a node.
    #[inline(always)]
    fn mark_read(&self, time: u64) {
        raise(&self.read, time);
    }

    /// Records that a row was deleted at `time` whose record has been waiting to be unlinked since an earlier
    /// deletion. To be called before the deletion is installed: then a transaction that misses the record sees
    /// the timestamp.
    #[cold]
    fn mark_early_deletion(&self, time: u64) {
        raise(&self.write, time);
    }

    /// Protects what a reader has seen in a node at some version: from here on older transactions can insert
    /// nothing there. Fails if the node has changed since.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn protect(
        &self,
        time: u64,
        is_unchanged: impl FnOnce() -> bool,
    ) -> Result<(), ConflictReason> {
        self.mark_read(time);
        // SeqCst: pairs with the fence in `admits`. The one that comes second sees the write before the other.
        fence(Ordering::SeqCst);
        if !is_unchanged() {
            Err(ConflictReason::RangeChanged)
        } else if self.has_early_deletion_after(time) {
            Err(ConflictReason::TimestampOrder)
        } else {
            Ok(())
        }
    }

    /// Whether an insertion at `time`, which other threads can see already, is in time.
    #[inline(always)]
    fn admits(&self, time: u64) -> bool {
        // SeqCst: pairs with the fence in `protect`.
        fence(Ordering::SeqCst);
        self.read.load(Ordering::Relaxed) <= time && !self.has_early_deletion_after(time)
    }

    /// Whether a transaction younger than `time` has deleted a row whose record may be gone.
    #[inline(always)]
    fn has_early_deletion_after(&self, time: u64) -> bool {
        self.write.load(Ordering::Relaxed) > time
    }
}

/// Raises a timestamp to at least `time`.
///
/// All three accesses are Relaxed, and so are the loads in `protect` and `admits` that must see the raised
/// value. They are ordered by the fences there, or by the latch of a record. In the latter case the thread that
/// raises the timestamp has the record to itself, or installs the record's version afterwards. The thread that
/// looks at the timestamp has missed the record in the index, or has put another one there after this one was
/// unlinked under the latch.
#[cfg_attr(not(debug_assertions), inline(always))]
fn raise(timestamp: &Word, time: u64) {
    let mut current = timestamp.load(Ordering::Relaxed);
    while current < time {
        match timestamp.compare_exchange(current, time, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => current = found,
        }
    }
}

// ---- a worker's transactions ------------------------------------------------------------------

/// A record on which this transaction is pending.
struct Reservation {
    record: RecordPointer<RecordTimestamps>,
    table: TableRef,
}

/// Runs `tso` on one worker.
#[doc(hidden)]
pub struct TimestampOrderingExecutor {
    shared: Arc<TimestampOrderingShared>,
    /// The transaction's timestamp.
    time: u64,
    /// How many snapshots had been opened before the timestamp was drawn.
    snapshots_opened: u64,
    set: AccessSet<RecordTimestamps>,
    /// All records on which the transaction is pending, except its own placeholders.
    reservations: Vec<Reservation>,
}

// SAFETY: reservations exist only within a transaction, which stays on its thread.
unsafe impl Send for TimestampOrderingExecutor {}

impl Executor for TimestampOrderingExecutor {
    type Header = RecordTimestamps;
    type Shared = TimestampOrderingShared;
    type Version = ReplacedVersion;
    type Splitting = Never;
    type Repairing = Never;
    type Chopping = Never;
    type Reapplying = Never;

    fn new(shared: &Arc<TimestampOrderingShared>, _slot: usize) -> Self {
        TimestampOrderingExecutor {
            shared: Arc::clone(shared),
            time: 0,
            snapshots_opened: 0,
            set: AccessSet::default(),
            reservations: Vec::new(),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn begin(&mut self, _attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal> {
        debug_assert!(self.set.writes.is_empty() && self.reservations.is_empty());
        self.snapshots_opened = memory.shared().retention.openings();
        // The time of day is looked at before and after the draw, since it must agree with the order of timestamps.
        let time_of_day = &memory.shared().time;
        loop {
            let now = time_of_day.present();
            // ==== serialization point ====
            self.time = self.shared.clock.0.fetch_add(1, Ordering::SeqCst) + 1;
            if time_of_day.present() == now {
                memory.set_now(now);
                return Ok(());
            }
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<RecordTimestamps>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        if self.is_pending_on(record)
            && let Some(own) = self.set.own_write(record)
        {
            return Ok(own);
        }
        let index = self.shared.index_of(table);
        loop {
            match read_at(stored(record), self.time, index, memory.regions()) {
                AccessResult::Granted(tid, newest) => return Ok(visible(tid, newest)),
                access => give_way_or_wait(access, table, record)?,
            }
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<RecordTimestamps>,
        memory: &WorkerMemory,
    ) -> Result<Observation<ReplacedVersion>, Abort> {
        let was_pending = self.is_pending_on(record);
        if was_pending && let Some(own) = self.set.observe_own(record) {
            return Ok(own);
        }
        loop {
            match reserve(stored(record), self.time, memory.regions()) {
                AccessResult::Granted(tid, newest) => {
                    if !was_pending && !tid.is_removed() {
                        self.reservations.push(Reservation { record, table });
                    }
                    return Ok(self.set.observe(tid, newest));
                }
                access => give_way_or_wait(access, table, record)?,
            }
        }
    }

    /// Does nothing: the reservation lasts to the end of the transaction, which then treats it as a read if
    /// nothing was written.
    fn note_read(
        &mut self,
        _table: TableRef,
        _record: RecordPointer<RecordTimestamps>,
        _version: ReplacedVersion,
    ) {
    }

    #[inline(always)]
    fn is_current(
        &self,
        record: RecordPointer<RecordTimestamps>,
        version: ReplacedVersion,
    ) -> bool {
        self.set.is_current(record, version)
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<RecordTimestamps>,
        version: ReplacedVersion,
        row: NonNull<u8>,
    ) {
        self.set.put(table, record, version, Some(row), None);
    }

    #[inline(always)]
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<RecordTimestamps>,
        version: ReplacedVersion,
        key: EncodedKey,
    ) {
        self.set.put(table, record, version, None, Some(key));
    }

    #[inline(always)]
    fn prepare_insert(&mut self, record: RecordPointer<RecordTimestamps>) {
        // Relaxed: a thread that finds the record in the index sees what was written before it was put there.
        stored(record).header.pending.store(self.time, Ordering::Relaxed);
    }

    #[inline(always)]
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<RecordTimestamps>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        self.set.insert(table, record, row, key);
    }

    #[inline(always)]
    fn note_node(
        &mut self,
        table: TableRef,
        node: NodeVersion,
        _range: Option<ScannedRange>,
    ) -> Result<usize, Abort> {
        let index = self.shared.index_of(table);
        index
            .protect(self.time, || node_version(node) == node.version)
            .map_err(|reason| Abort::of_table(reason, table))?;
        Ok(0)
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        table: TableRef,
        _change: NodeChange,
        _sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        if self.shared.index_of(table).admits(self.time) {
            Ok(())
        } else {
            Err(Abort::of_table(ConflictReason::TimestampOrder, table))
        }
    }

    /// What was read cannot have become wrong. But reservations are about to be given up, and placeholders with
    /// them. So what was read through these is marked as read first.
    fn accessed(&self) -> (usize, usize) {
        (self.reservations.len(), self.set.accessed().1)
    }

    fn validate(&mut self) -> Result<(), Abort> {
        for &Reservation { record, table } in &self.reservations {
            let record = stored(record);
            let tid = record.header.tid.lock();
            mark_read(record, tid, self.time, self.shared.index_of(table));
            record.header.tid.unlock(tid);
        }
        for entry in self.set.writes.iter().filter(|entry| entry.key.is_created()) {
            self.shared.index_of(entry.table).mark_read(self.time);
        }
        Ok(())
    }

    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        self.set.list_writes(list);
    }

    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        // Versions are timestamps, and contain no epoch. But snapshots, a log or a history must learn the order
        // in which a record's writers came. At this point everything to be written is reserved, so for each
        // record the writers draw their numbers one after the other.
        if let Some(first) = self.set.writes.first() {
            epoch();
            if memory.shared().retention.has_opened_since(self.snapshots_opened) {
                return Err(abort_at(ConflictReason::TimestampOrder, first.table, first.record));
            }
        }
        // From here on nothing can fail. The write phase:
        let version = Tid::at(self.time);
        let mut reservations_used = 0;
        for entry in &self.set.writes {
            let happened = entry.row.is_some() || !entry.expected.is_absent();
            if happened {
                if entry.row.is_none() && entry.expected.is_queued() {
                    self.shared.index_of(entry.table).mark_early_deletion(self.time);
                }
                let after = written_at(entry, version);
                install(stored(entry.record), after, entry.row, memory.regions());
                reservations_used += usize::from(!entry.key.is_created());
            } else if entry.key.is_created() {
                // Inserted and deleted again: it only has to be recorded that the key was absent.
                self.shared.index_of(entry.table).mark_read(self.time);
            }
        }
        // Records that were reserved and not written count as read.
        if reservations_used < self.reservations.len() {
            self.release_reservations(Some(self.time), memory);
        }
        self.reservations.clear();
        // Committed. What follows does not concern other transactions.
        let order = |_: &WriteEntry<RecordTimestamps>| self.time;
        let discard = |entry: &WriteEntry<RecordTimestamps>, key: &EncodedKey| {
            discard_placeholder(entry, key, memory);
        };
        self.set.retire_in_order(memory, order, discard);
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
        self.release_reservations(None, memory);
        self.reservations.clear();
        self.set.drop_private(memory, |entry, key| discard_placeholder(entry, key, memory));
    }
}

impl TimestampOrderingExecutor {
    /// Whether this transaction has reserved the record, or inserted it. Relaxed: no other thread writes this
    /// timestamp, or overwrites it.
    #[inline(always)]
    fn is_pending_on(&self, record: RecordPointer<RecordTimestamps>) -> bool {
        stored(record).header.pending.load(Ordering::Relaxed) == self.time
    }

    /// Ends the reservations under which no version was installed.
    #[cold]
    fn release_reservations(&self, read_at: Option<u64>, memory: &WorkerMemory) {
        for &Reservation { record, table } in &self.reservations {
            if self.is_pending_on(record) {
                let index = self.shared.index_of(table);
                release(stored(record), read_at, index, memory.regions());
            }
        }
    }
}

/// Waits after an access that was not granted, or returns why the transaction must abort.
#[cold]
fn give_way_or_wait(
    access: AccessResult,
    table: TableRef,
    record: RecordPointer<RecordTimestamps>,
) -> Result<(), Abort> {
    match access {
        AccessResult::Wait(writer) if wait_for_end_of(writer, stored(record)) => Ok(()),
        _ => Err(abort_at(ConflictReason::TimestampOrder, table, record)),
    }
}

/// Unlinks a placeholder that this transaction has put into the index under `key`.
fn discard_placeholder(
    entry: &WriteEntry<RecordTimestamps>,
    key: &EncodedKey,
    memory: &WorkerMemory,
) {
    let header = &stored(entry.record).header;
    let tid = header.tid.lock();
    // Pending for this transaction from the start, so no other transaction has written it.
    debug_assert_eq!(tid, Tid::PLACEHOLDER);
    // SAFETY: the record is of the table, and the worker is pinned.
    let unlinked = unsafe { entry.table.unlink(entry.record.block(), key, memory) };
    header.pending.store(NOT_PENDING, Ordering::Relaxed);
    header.tid.unlock(if unlinked { tid.removed() } else { tid });
    if unlinked {
        memory.retire_record(entry.record.block(), entry.table);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
