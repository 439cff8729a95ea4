//! **tso**: timestamp ordering, with one small hardware region for each access of a record.
//!
//! V. Leis, A. Kemper, T. Neumann: *Exploiting Hardware Transactional Memory in Main-Memory
//! Databases*, ICDE 2014. It is the HTO among the protocols with which HTCC (Wu and Tan, USENIX
//! ATC 2016, §5) compares itself, and as there the paper's storage layer is left out.
//!
//! The idea. Every transaction draws a *timestamp* when it begins, and the serial order is the
//! order of timestamps: it is fixed before anything is read, so nothing is left to validate. What
//! remains is to see to it, access by access, that a transaction finds the state that its place
//! in the order asks for. A record remembers the latest timestamps that have read it and written
//! it. A transaction that comes too late, to read what a younger one has overwritten or to write
//! what a younger one has read, gives way, and begins again with a new timestamp. To check a
//! record's timestamps, change them and take its row is one step: a region of a few words, which
//! never grows with the transaction.
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
//! So the version *is* the timestamp of its writer. The lock bit of the TID word is the software
//! twin's *latch*, held for the length of one access. In the following, T is a transaction and
//! its timestamp.
//!
//! - **Read**. If a smaller P is pending, wait for its end. If the write timestamp is greater than
//!   T, conflict. Else raise the read timestamp to T and take the newest row. (A greater P does
//!   not matter: its version comes after T's place.)
//! - **Write** takes two steps. To *reserve*: wait for a smaller P as above; conflict if P, the
//!   read or the write timestamp is greater than T; else T is pending. Rows stay private. To
//!   *install*, at commit: swap the pointer, T is the write timestamp, nobody is pending.
//!
//! Only the younger waits for the older, so nobody waits in a circle.
//!
//! **Why it is serializable.** Say T reads version V of a record, V <= T. No version between V
//! and T can come later: a writer W of one, V < W < T, must have been pending when T read, and T
//! would have waited for it; or it reserves after, and finds a read timestamp of at least T, or a
//! pending transaction greater than W (T itself, if T read in order to write). So T has read the
//! newest version before its place, for good. And it has seen nothing uncommitted, since a
//! pending row is not in the record yet, and to install cannot fail.
//!
//! **The serialization point** of a transaction is the moment at which it draws its timestamp, in
//! `begin`. That lies within its duration, so the order is that of real time as well: strict
//! serializability. An error or a panic of the caller's is concluded from the state at that
//! moment; `validate` need only protect what was read in order to be written.
//!
//! **Keys that are not there** have no record to carry timestamps. For all of them together each
//! index has a read timestamp: of the youngest transaction that has found a key absent in it, or
//! has scanned a part of it.
//!
//! ```text
//!   reader R                                inserter W
//!     read the leaf, at version v             link the placeholder: the leaf's version moves on
//!     raise the index's read timestamp to R   fence
//!     fence                                   index's read timestamp > W? conflict
//!     leaf's version is not v? conflict
//! ```
//!
//! One of the fences comes first. If it is R's, W sees the timestamp, and gives way if it is older
//! than R. If it is W's, R sees another version. So if both go on, and the leaf was read before W
//! came, W is the younger. If it was read after, R finds the placeholder, which is pending by W
//! from before it was linked.
//!
//! **Records that go** take their timestamps with them, which must not matter to those who come.
//! - *The read timestamp.* If it is greater than the write timestamp, it is that of a transaction
//!   that found the record absent. Every such reader raises the index's read timestamp too, while
//!   it has the record to itself. The record is unlinked under the latch, hence later, and whoever
//!   inserts the key anew comes later still and sees the timestamp.
//! - *The write timestamp.* A deleted record is unlinked when all transactions that ran when the
//!   delete committed have ended. Those that run then were pinned later, and drew their timestamps
//!   after that: they are all younger than the deletion. Until then an older one finds the record
//!   in the index, and conflicts. But a record that gets a row again while it waits, and loses
//!   that one too, does not begin to wait anew. The second deletion therefore raises a write
//!   timestamp of the index. Whoever finds a key absent, or inserts one, below that conflicts: also
//!   who finds a placeholder that a still younger transaction has put in the place of the record.
//! - *A placeholder* of a transaction that rolls back is unlinked at once; whoever has found it
//!   absent has raised the index's read timestamp as above. Whoever waits for it finds that it was
//!   removed, and looks the key up again. Its own transaction has found the key absent as well: if
//!   it commits after all (the row was inserted and deleted again), or ends with an error that it
//!   concluded from that, it raises the timestamp before the placeholder goes.
//!
//! **Snapshots** are numbered when they are opened, and a transaction's place among them is the
//! number that it draws when it commits. Nothing but snapshots depends on that order, which is not
//! quite the order of timestamps: of two transactions in progress the younger may have overwritten
//! what the older has read, and commit first. A snapshot opened in between would show the younger
//! one's writes and not the older one's. So a transaction that has written something gives way if
//! a snapshot was opened between its timestamp and its commit. Then all whose writes a snapshot
//! shows have smaller timestamps than all others: it is a prefix of the serial order.
//!
//! **Starvation.** One that gives way is run again after a randomized wait, with a new timestamp,
//! hence as the youngest; long transactions lose against short ones. One that has lost very often
//! [closes the turnstile](weft::Database#starvation). A wait for another transaction is long but
//! bounded, and ends with a conflict, so that deadlines hold while somebody sleeps in a
//! transaction.
//!
//! **Departures from the paper**
//! - The paper writes in place, with an undo log, and gives way to a write that is so recent that
//!   its transaction may still be running (its *safe timestamp* tells). Here rows are private until
//!   they are installed, and the pending word tells exactly what is under way: the younger waits,
//!   as in strict timestamp ordering, and the older reads on.
//! - The paper's regions elide a latch, and fall back to taking it. Here that is a latch on the
//!   record, whose bit every region tests. The twin is the same algorithm at the same granularity,
//!   so results with and without RTM may be compared.
//! - Phantoms are not the paper's subject. An index's timestamps are coarse: a scan anywhere in
//!   it makes older transactions that still insert into it give way.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use weft::ConflictReason;
use weft::commit::access_set::{AccessSet, Replaced, TidHeader, WriteEntry, visible, written_at};
use weft::commit::optimistic::{abort_at, node_version, stored};
use weft::commit::{Abort, Executor, Never, Observation, Protocol, Refusal, Settled, Visible};
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

// SAFETY: a record is changed under the lock in its header; access sets install or discard each row once.
unsafe impl Protocol for TimestampOrdering {
    const NAME: &'static str = "tso";
    const TITLE: &'static str = "timestamp ordering, one small HTM region per access";
    const SOURCE: &'static str = "Leis et al., ICDE 2014; HTO in Wu and Tan, USENIX ATC 2016";
    const USES_HTM: bool = true;
    /// The younger wait for its writes.
    const KEEPS_LOCKS: bool = true;
    type Header = RecordTimestamps;
    type Shared = TimestampOrderingShared;
    type Executor = TimestampOrderingExecutor;

    fn settle_deleted(
        record: &StoredRecord<RecordTimestamps>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> Settled {
        let word = &record.header.tid;
        let tid = word.lock();
        // A reservation rests on the word as it was: the flags must stay.
        if record.header.pending.load(Ordering::Relaxed) != NOBODY {
            word.unlock(tid);
            Settled::Busy
        } else if !tid.is_absent() {
            word.unlock(tid.dequeued());
            Settled::Kept
        } else if may_go(0) {
            let unlinked = unlink();
            word.unlock(if unlinked { tid.removed() } else { tid.dequeued() });
            if unlinked { Settled::Unlinked } else { Settled::Kept }
        } else {
            word.unlock(tid);
            Settled::Busy
        }
    }
}

/// What the protocol keeps with every record; the layout is in the [module](self).
///
/// `read` and `pending` are accessed in a region or under the latch, and so without any order of
/// their own: the latch passes from one holder to the next with release and acquire.
#[derive(Debug)]
pub struct RecordTimestamps {
    tid: TidWord,
    read: Word,
    pending: Word,
}

/// The value of `pending` when there is no such transaction. Timestamps begin at 1.
const NOBODY: u64 = 0;

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<StoredRecord<RecordTimestamps>>() == 32);

impl Default for RecordTimestamps {
    fn default() -> Self {
        RecordTimestamps {
            tid: TidWord::new(Tid::PLACEHOLDER),
            read: Word::new(0),
            pending: Word::new(NOBODY),
        }
    }
}

impl TidHeader for RecordTimestamps {
    #[inline(always)]
    fn tid(&self) -> &TidWord {
        &self.tid
    }
}

/// A record under this protocol.
type TimedRecord = StoredRecord<RecordTimestamps>;

/// What the workers share: the counter of timestamps, and the timestamps of indexes.
#[derive(Debug)]
pub struct TimestampOrderingShared {
    /// The timestamp drawn last.
    clock: Padded<Word>,
    /// Of each index, by its number. Those whose numbers are [`INDEXES`] apart share them.
    indexes: Box<[Padded<IndexTimestamps>]>,
}

/// More than most databases have indexes.
const INDEXES: usize = 64;

/// On cache lines of its own: many write it.
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

/// What became of an access.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Access {
    /// It was in time: the record's version word, unlatched, and its newest row.
    Granted(Tid, *mut u8),
    /// An older transaction is to write the record: try again after its end.
    Wait(u64),
    /// A younger transaction was here before.
    TooLate,
}

/// Runs `step` while nobody else accesses the record: in a hardware region or, in the twin, under
/// the latch. It is given the version word, and returns what the word shall be, and a result.
#[inline(always)]
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

/// Reads the record at `time`.
#[inline(always)]
fn read_at(record: &TimedRecord, time: u64, index: &IndexTimestamps, regions: &Regions) -> Access {
    exclusively(record, regions, |tid| {
        let pending = record.header.pending.load(Ordering::Relaxed);
        if pending != NOBODY && pending < time {
            return (tid, Access::Wait(pending));
        }
        if tid.is_removed() {
            return (tid, Access::Granted(tid, ptr::null_mut()));
        }
        // A placeholder knows nothing of a record that stood for the key before it.
        let is_forgotten = tid == Tid::PLACEHOLDER && index.has_early_deletion_after(time);
        if tid.timestamp() > time || is_forgotten {
            return (tid, Access::TooLate);
        }
        mark_read(record, tid, time, index);
        (tid, Access::Granted(tid, newest(record)))
    })
}

/// Leaves word of a read at `time`. The caller has the record to itself.
#[inline(always)]
fn mark_read(record: &TimedRecord, tid: Tid, time: u64, index: &IndexTimestamps) {
    if record.header.read.load(Ordering::Relaxed) < time {
        record.header.read.store(time, Ordering::Relaxed);
    }
    if tid.is_absent() {
        // The record may be unlinked before this mark has served its time.
        index.mark_read(time);
    }
}

/// Makes `time` pending, unless it is already.
#[inline(always)]
fn reserve(record: &TimedRecord, time: u64, regions: &Regions) -> Access {
    exclusively(record, regions, |tid| {
        let header = &record.header;
        let pending = header.pending.load(Ordering::Relaxed);
        if pending != NOBODY && pending < time {
            return (tid, Access::Wait(pending));
        }
        if tid.is_removed() {
            return (tid, Access::Granted(tid, ptr::null_mut()));
        }
        let read = header.read.load(Ordering::Relaxed);
        if pending > time || read > time || tid.timestamp() > time {
            return (tid, Access::TooLate);
        }
        header.pending.store(time, Ordering::Relaxed);
        (tid, Access::Granted(tid, newest(record)))
    })
}

/// Installs a version, and ends the reservation: the transaction pending commits.
#[inline(always)]
fn install(record: &TimedRecord, after: Tid, row: Option<NonNull<u8>>, regions: &Regions) {
    exclusively(record, regions, |_| {
        if let Some(row) = row {
            // Release: pairs with the acquire of those who look at a record's newest row, for its
            // key, without accessing the record (`Transaction::locate`).
            record.newest.store(Newest::of(row), Ordering::Release);
        }
        record.header.pending.store(NOBODY, Ordering::Relaxed);
        (after, ())
    });
}

/// Ends a reservation without a write. If the transaction goes on to commit, what it has seen was
/// `read_at` some time.
#[inline]
fn release(record: &TimedRecord, read_at: Option<u64>, index: &IndexTimestamps, regions: &Regions) {
    exclusively(record, regions, |tid| {
        if let Some(time) = read_at {
            mark_read(record, tid, time, index);
        }
        record.header.pending.store(NOBODY, Ordering::Relaxed);
        (tid, ())
    });
}

/// The newest row. Relaxed: by the latch, or the region, its contents are seen as well.
#[inline(always)]
fn newest(record: &TimedRecord) -> *mut u8 {
    record.newest.load(Ordering::Relaxed).address()
}

/// Rounds of a wait that spin: about as long as a short transaction takes.
const WAIT_ROUNDS_SPINNING: u32 = 256;
/// Rounds that follow, each of which gives the processor away: the writer may have been preempted,
/// or sleep.
const WAIT_ROUNDS_YIELDING: u32 = 1 << 14;

/// Waits until `writer` is not pending any more; false if patience runs out.
#[cold]
fn wait_for_end_of(writer: u64, record: &TimedRecord) -> bool {
    for round in 0..WAIT_ROUNDS_SPINNING + WAIT_ROUNDS_YIELDING {
        // Relaxed: the access that follows synchronizes with whatever the writer has left.
        if record.header.pending.load(Ordering::Relaxed) != writer {
            return true;
        }
        if round < WAIT_ROUNDS_SPINNING { spin_loop() } else { yield_now() }
    }
    false
}

// ---- keys that are not there ------------------------------------------------------------------

/// The timestamps of all keys that an index does not hold.
#[derive(Debug, Default)]
struct IndexTimestamps {
    /// Of the youngest transaction that has found keys absent.
    read: Word,
    /// Of the youngest that has made one absent whose record may be unlinked too early.
    write: Word,
}

impl IndexTimestamps {
    /// Leaves word that keys were found absent at `time`. The caller has their record to itself,
    /// or [protects](IndexTimestamps::protect) a node.
    #[inline(always)]
    fn mark_read(&self, time: u64) {
        raise(&self.read, time);
    }

    /// Leaves word that a record was deleted at `time` that waits to be unlinked since before. To
    /// be called before the deletion is installed: then whoever misses the record sees the word.
    #[cold]
    fn mark_early_deletion(&self, time: u64) {
        raise(&self.write, time);
    }

    /// For a reader that has seen a node at some version: sees to it that older transactions
    /// insert nothing there any more, unless the node has changed since.
    #[inline(always)]
    fn protect(
        &self,
        time: u64,
        is_unchanged: impl FnOnce() -> bool,
    ) -> Result<(), ConflictReason> {
        self.mark_read(time);
        // Pairs with the fence in `admits`.
        fence(Ordering::SeqCst);
        if !is_unchanged() {
            Err(ConflictReason::RangeChanged)
        } else if self.has_early_deletion_after(time) {
            Err(ConflictReason::TimestampOrder)
        } else {
            Ok(())
        }
    }

    /// Whether an insertion at `time`, which others can see already, does not come too late.
    #[inline(always)]
    fn admits(&self, time: u64) -> bool {
        // Pairs with the fence in `protect`.
        fence(Ordering::SeqCst);
        self.read.load(Ordering::Relaxed) <= time && !self.has_early_deletion_after(time)
    }

    /// Whether a younger transaction than `time` has made a key absent whose record may be gone.
    #[inline(always)]
    fn has_early_deletion_after(&self, time: u64) -> bool {
        self.write.load(Ordering::Relaxed) > time
    }
}

/// Raises a timestamp to at least `time`.
///
/// Relaxed, all three, as are the loads that it must not escape, in `protect` and `admits`. What
/// orders them are the fences there, or else the latch of a record: who raises it has the record
/// to itself, or installs it afterwards; who looks has missed the record in the index, or has put
/// another one there, after it was unlinked under the latch.
#[inline(always)]
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

/// A record that this transaction is pending on.
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
    /// How many snapshots had been opened before it was drawn.
    snapshots_opened: u64,
    set: AccessSet<RecordTimestamps>,
    /// All records that it is pending on but its own placeholders.
    reservations: Vec<Reservation>,
}

// SAFETY: there are reservations only within a transaction, which stays on its thread.
unsafe impl Send for TimestampOrderingExecutor {}

impl Executor for TimestampOrderingExecutor {
    type Header = RecordTimestamps;
    type Shared = TimestampOrderingShared;
    type Version = Replaced;
    type Splitting = Never;
    type Repairing = Never;
    type Chopping = Never;

    fn new(shared: &Arc<TimestampOrderingShared>, _slot: usize) -> Self {
        TimestampOrderingExecutor {
            shared: Arc::clone(shared),
            time: 0,
            snapshots_opened: 0,
            set: AccessSet::default(),
            reservations: Vec::new(),
        }
    }

    #[inline(always)]
    fn begin(&mut self, _attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal> {
        debug_assert!(self.set.writes.is_empty() && self.reservations.is_empty());
        self.snapshots_opened = memory.shared().retention.openings();
        // ==== serialization point ====
        self.time = self.shared.clock.0.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(())
    }

    #[inline(always)]
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
                Access::Granted(tid, newest) => return Ok(visible(tid, newest)),
                access => give_way_or_wait(access, table, record)?,
            }
        }
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<RecordTimestamps>,
        memory: &WorkerMemory,
    ) -> Result<Observation<Replaced>, Abort> {
        let was_pending = self.is_pending_on(record);
        if was_pending && let Some(own) = self.set.observe_own(record) {
            return Ok(own);
        }
        loop {
            match reserve(stored(record), self.time, memory.regions()) {
                Access::Granted(tid, newest) => {
                    if !was_pending && !tid.is_removed() {
                        self.reservations.push(Reservation { record, table });
                    }
                    return Ok(self.set.observe(tid, newest));
                }
                access => give_way_or_wait(access, table, record)?,
            }
        }
    }

    /// The reservation lasts to the end of the transaction, which tells it from a write.
    fn note_read(
        &mut self,
        _table: TableRef,
        _record: RecordPointer<RecordTimestamps>,
        _version: Replaced,
    ) {
    }

    #[inline(always)]
    fn is_current(&self, record: RecordPointer<RecordTimestamps>, version: Replaced) -> bool {
        self.set.is_current(record, version)
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<RecordTimestamps>,
        version: Replaced,
        row: NonNull<u8>,
    ) {
        self.set.put(table, record, version, Some(row), None);
    }

    #[inline(always)]
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<RecordTimestamps>,
        version: Replaced,
        key: EncodedKey,
    ) {
        self.set.put(table, record, version, None, Some(key));
    }

    #[inline(always)]
    fn prepare_insert(&mut self, record: RecordPointer<RecordTimestamps>) {
        // Relaxed: whoever finds the record in the index sees what was written before it was put
        // there.
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

    /// Nothing that was read can have become wrong. But reservations are about to be given up, and
    /// placeholders with them: what was read by way of these is marked as read before.
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
        // Versions are timestamps, and hold no epoch; but snapshots, a log or a history have to
        // learn when the records' writers came, one after the other, and here everything to be
        // written is reserved.
        if let Some(first) = self.set.writes.first() {
            epoch();
            if memory.shared().retention.has_opened_since(self.snapshots_opened) {
                return Err(abort_at(ConflictReason::TimestampOrder, first.table, first.record));
            }
        }
        // From here on nothing can fail.
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
                // Inserted and deleted again: all that remains is that the key was absent.
                self.shared.index_of(entry.table).mark_read(self.time);
            }
        }
        if reservations_used < self.reservations.len() {
            self.release_reservations(Some(self.time), memory);
        }
        self.reservations.clear();
        // Committed; what follows is nobody else's concern.
        let order = |_: &WriteEntry<RecordTimestamps>| self.time;
        let discard = |entry: &WriteEntry<RecordTimestamps>, key: &EncodedKey| {
            discard_placeholder(entry, key, memory);
        };
        self.set.retire_in_order(memory, order, discard);
        Ok(())
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        self.release_reservations(None, memory);
        self.reservations.clear();
        self.set.drop_private(memory, |entry, key| discard_placeholder(entry, key, memory));
    }
}

impl TimestampOrderingExecutor {
    /// Whether this transaction has reserved the record, or inserted it. Relaxed: nobody else
    /// writes this timestamp, or anything over it.
    #[inline(always)]
    fn is_pending_on(&self, record: RecordPointer<RecordTimestamps>) -> bool {
        stored(record).header.pending.load(Ordering::Relaxed) == self.time
    }

    /// Ends the reservations that no version was installed by.
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

/// After an access that was not granted: waits, or says why the transaction must give way.
#[cold]
fn give_way_or_wait(
    access: Access,
    table: TableRef,
    record: RecordPointer<RecordTimestamps>,
) -> Result<(), Abort> {
    match access {
        Access::Wait(writer) if wait_for_end_of(writer, stored(record)) => Ok(()),
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
    // Pending by this transaction from the start: nobody else has written it.
    debug_assert_eq!(tid, Tid::PLACEHOLDER);
    // SAFETY: the record is of the table, and the worker is pinned.
    let unlinked = unsafe { entry.table.unlink(entry.record.block(), key, memory) };
    header.pending.store(NOBODY, Ordering::Relaxed);
    header.tid.unlock(if unlinked { tid.removed() } else { tid });
    if unlinked {
        memory.retire_record(entry.record.block(), entry.table);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
