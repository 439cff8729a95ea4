//! **atomic**: single operations on single rows, each made atomic by one atomic instruction; the upper bound
//! for schemes that lock.
//!
//! N. Narula, C. Cutler, E. Kohler, R. Morris: *Phase Reconciliation for Contended In-Memory Transactions*,
//! OSDI 2014, §8.1 and §8.2: the system *Atomic*, which the INCR1 experiment compares with Doppel, OCC and 2PL.
//!
//! The idea. If a transaction is one read or one read-modify-write of one row, the processor can make it atomic
//! on its own: a read is a load of the pointer to the row, and a change is a compare-and-swap of that pointer.
//! The protocol locks no record, validates nothing and counts no versions. What remains is the price of moving
//! a contended cache line from core to core, which a locking scheme pays as well. So on such transactions no
//! protocol that keeps a row in one place can be faster. For other transactions the protocol cannot be used.
//!
//! They are refused: under a protocol with [`Protocol::SINGLE_KEY`] a transaction is one `get`, `insert`,
//! `update`, `upsert` or `delete`. A second operation, a scan, or a table with secondary indexes fails with
//! [`Failure::SingleKey`](weft::Failure::SingleKey).
//!
//! Header of a record: nothing. Everything is in the word that leads to the newest row, so that one instruction
//! can change it. Rows are aligned to 16 bytes, which leaves four bits for flags.
//!
//! ```text
//!   63                                        4   3     2       1        0
//!  +-------------------------------------------+-----+-------+--------+--------+
//!  | address of the newest row / 16            |  0  |queued |removed | absent |
//!  +-------------------------------------------+-----+-------+--------+--------+
//! ```
//!
//! - all zero: a placeholder, which has never had a row.
//! - *absent*: the row was deleted. Its address stays, because the row gives the record's key.
//! - *removed*: the record has left the index, or is about to. This is final.
//! - *queued*: a worker has the record on its garbage list. A record is on at most one list.
//!
//! **Serialization point**: of a write, the moment at which it draws its snapshot number, just after its
//! compare-and-swap at commit. In between, a transaction that meets the new row waits for the number. The
//! compare-and-swap succeeds only if the word is still the one that the operation saw. An equal word means the
//! same version: while the worker is pinned, a replaced row is not freed and its address is not used again, and
//! a row is installed only once. Of a read, and of a write that changes nothing (because the key is absent, or
//! is already there), the serialization point is the load of the word, or the look-up in the index. Operations
//! on different rows are ordered in real time, because each transaction begins with a sequentially consistent
//! fence (in pinning; see `sync/reclaim.rs`), which the exchange of an earlier transaction cannot pass.
//!
//! (If the number were drawn before the exchange, a snapshot could show one write and miss another, although
//! some transaction has found the second write there, and afterwards has not found the first.)
//!
//! **Departures from the paper**
//! - The paper's Atomic adds to an integer in place, by an atomic increment that cannot fail. Rows here are
//!   immutable versions, and an update is any closure. So it writes a new row, and swaps pointers. A swap that
//!   fails is a conflict, and the transaction is retried.
//! - The paper's keys exist from the start. Here they come and go. An insert first links a placeholder, because
//!   it may still be rolled back, and fills it by the same exchange. A deleted record is unlinked after a grace
//!   period (DBX §5.5), unless it is filled again. A transaction that finds a record in the middle of its
//!   unlinking looks the key up again until the record is gone. Otherwise a thread waits for another one only
//!   while that one draws its number.
//!
//! **Starvation**: an exchange fails only because another one has succeeded, so some transaction always makes
//! progress. The engine makes sure that every transaction does (backoff, and the turnstile).

use std::ptr::{self, NonNull};
use std::sync::Arc;

use weft::ConflictReason;
use weft::commit::access_set::is_inline;
use weft::commit::{
    Abort, DeletedOutcome, Executor, Never, Observation, Protocol, Refusal, Visible, WriteMark,
};
use weft::encoding::EncodedKey;
use weft::index::bplus_tree::ScannedRange;
use weft::index::{NodeChange, NodeVersion};
use weft::store::record::version::{UNNUMBERED, VersionHeader};
use weft::store::record::{Newest, RecordPointer, StoredRecord};
use weft::store::table::TableRef;
use weft::store::worker::{
    LoggedWrite, Prepared, RecordOutcome, ReplacedRow, WorkerMemory, WriteOutcome,
};
use weft_htm::word::{Ordering, yield_now};

/// One atomic instruction per transaction. See the [module](self) for the paper and the idea.
#[derive(Debug)]
pub enum Atomic {}

// SAFETY: an operation is one exchange of a record's row, and it hands on the row that it has replaced.
unsafe impl Protocol for Atomic {
    const NAME: &'static str = "atomic";
    const TITLE: &'static str = "one atomic instruction on one row: the bound for locking schemes";
    const SOURCE: &'static str = "Narula et al., OSDI 2014, §8.2";
    const USES_HTM: bool = false;
    const SINGLE_KEY: bool = true;
    type Header = ();
    type Shared = ();
    type Executor = AtomicExecutor;

    fn settle_deleted(
        record: &StoredRecord<()>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        let mut found = record.newest.load(LOAD);
        loop {
            if found.has(ABSENT) && !may_go(0) {
                return DeletedOutcome::Busy;
            }
            let dequeued = found.without(QUEUED);
            let settled = if found.has(ABSENT) { dequeued.with(REMOVED) } else { dequeued };
            match exchange(record, found, settled) {
                Ok(()) if settled.has(REMOVED) => {
                    if unlink() {
                        return DeletedOutcome::Unlinked;
                    }
                    // No other thread changes a record that is marked as removed.
                    record.newest.store(dequeued, STORE);
                    return DeletedOutcome::Kept;
                }
                Ok(()) => return DeletedOutcome::Kept,
                Err(now) => found = now,
            }
        }
    }
}

const ABSENT: usize = 1 << 0;
const REMOVED: usize = 1 << 1;
const QUEUED: usize = 1 << 2;

/// Acquire: pairs with the release in [`exchange`], so a thread that finds a row finds its contents.
const LOAD: Ordering = Ordering::Acquire;
/// Release: pairs with [`LOAD`].
const STORE: Ordering = Ordering::Release;

/// Returns a record's word, once the transaction that wrote it has drawn its number.
#[cfg_attr(not(debug_assertions), inline(always))]
fn settled(record: &StoredRecord<()>) -> Newest {
    loop {
        let newest = record.newest.load(LOAD);
        let Some(row) = newest.row() else { return newest };
        // SAFETY: the worker has been pinned since before the record was found.
        let version = unsafe { VersionHeader::of(row) };
        let is_settled = match newest.has(ABSENT) {
            false => version.number() != UNNUMBERED,
            true => newest.has(REMOVED) || version.is_deleted(),
        };
        if is_settled {
            return newest;
        }
        yield_now();
    }
}

/// Returns what a record with this word holds.
#[cfg_attr(not(debug_assertions), inline(always))]
fn visible(newest: Newest) -> Visible {
    if !newest.has(ABSENT | REMOVED) {
        return newest.row().map_or(Visible::Absent, Visible::Row);
    }
    if newest.has(REMOVED) {
        // The thread that removes it is about to unlink it.
        yield_now();
        return Visible::Removed;
    }
    Visible::Absent
}

fn address_of(row: Option<NonNull<u8>>) -> *mut u8 {
    row.map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// The one atomic instruction of the protocol. `Err` holds the word that was found instead of `current`.
#[inline(always)]
fn exchange(record: &StoredRecord<()>, current: Newest, new: Newest) -> Result<(), Newest> {
    // Release: pairs with `LOAD`, because the new row was written before. Acquire, on failure as well, because
    // the caller may look at the row that was found.
    record.newest.compare_exchange(current, new, Ordering::AcqRel, LOAD).map(|_| ())
}

#[inline(always)]
fn stored<'a>(record: RecordPointer<()>) -> &'a StoredRecord<()> {
    // SAFETY: the worker is pinned for the whole transaction, by the executor's rules of use.
    unsafe { record.get() }
}

/// The one write of a transaction.
struct Write {
    record: RecordPointer<()>,
    table: TableRef,
    /// The word that the write replaces.
    expected: Newest,
    /// The row to install; `None` to leave the record without one.
    row: Option<NonNull<u8>>,
    /// The key under which the index leads to the record, if the write inserts or deletes.
    key: Option<EncodedKey>,
    /// Whether this transaction has put the record into the index.
    is_created: bool,
}

impl Write {
    /// Returns the row that was visible before.
    fn replaced(&self) -> Option<NonNull<u8>> {
        self.expected.row().filter(|_| !self.expected.has(ABSENT))
    }
}

/// Runs `atomic` on one worker.
#[doc(hidden)]
pub struct AtomicExecutor {
    write: Option<Write>,
}

// SAFETY: there is no write between transactions, when the executor may change threads.
unsafe impl Send for AtomicExecutor {}

impl Executor for AtomicExecutor {
    type Header = ();
    type Shared = ();
    /// The word that was observed.
    type Version = Newest;
    type Splitting = Never;
    type Repairing = Never;
    type Chopping = Never;
    type Reapplying = Never;

    fn new(_shared: &Arc<()>, _slot: usize) -> Self {
        AtomicExecutor { write: None }
    }

    #[inline(always)]
    fn begin(&mut self, _attempt: u32, _memory: &WorkerMemory) -> Result<(), Refusal> {
        Ok(())
    }

    #[inline(always)]
    fn read(
        &mut self,
        _table: TableRef,
        record: RecordPointer<()>,
        _memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        Ok(visible(settled(stored(record))))
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        _table: TableRef,
        record: RecordPointer<()>,
        _memory: &WorkerMemory,
    ) -> Result<Observation<Newest>, Abort> {
        let version = settled(stored(record));
        Ok(Observation { visible: visible(version), version })
    }

    fn note_read(&mut self, _table: TableRef, _record: RecordPointer<()>, _version: Newest) {}

    fn is_current(&self, _record: RecordPointer<()>, _version: Newest) -> bool {
        // There is only one operation, and it has not written yet.
        self.write.is_none()
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<()>,
        version: Newest,
        row: NonNull<u8>,
    ) {
        let (expected, row, key) = (version, Some(row), None);
        self.write = Some(Write { record, table, expected, row, key, is_created: false });
    }

    #[inline(always)]
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<()>,
        version: Newest,
        key: EncodedKey,
    ) {
        let (expected, row, key) = (version, None, Some(key));
        self.write = Some(Write { record, table, expected, row, key, is_created: false });
    }

    #[inline(always)]
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<()>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        let (expected, row, key) = (Newest::NONE, Some(row), Some(key));
        self.write = Some(Write { record, table, expected, row, key, is_created: true });
    }

    #[inline(always)]
    fn note_node(
        &mut self,
        _table: TableRef,
        _node: NodeVersion,
        _range: Option<ScannedRange>,
    ) -> Result<usize, Abort> {
        Ok(0)
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        _table: TableRef,
        _change: NodeChange,
        _sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    fn accessed(&self) -> (usize, usize) {
        (usize::from(self.write.is_none()), usize::from(self.write.is_some()))
    }

    fn validate(&mut self) -> Result<(), Abort> {
        // What the one operation saw was true at the moment at which it looked.
        Ok(())
    }

    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        let Some(write) = &self.write else { return };
        let written = match (write.row, write.replaced()) {
            (Some(row), Some(before)) => WriteOutcome::Changed { row, before },
            (Some(row), None) => WriteOutcome::Row(row),
            (None, Some(deleted)) => WriteOutcome::Deleted(deleted),
            (None, None) => unreachable!("only visible rows are removed"),
        };
        list.push(LoggedWrite { table: write.table, written });
    }

    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        let Some(write) = &self.write else { return Ok(()) };
        let before = write.expected.row();
        if let Some(row) = write.row {
            // SAFETY: no other thread has seen the row yet.
            unsafe { VersionHeader::of(row) }.set_previous(address_of(before));
        }
        // The exchange, by which other transactions see the write. They wait until it has its number.
        let replaced_word = install(write)?;
        // ==== serialization point ====
        epoch();
        if memory.is_logging() {
            // No other worker replaces the row before the row has its number. So the log's numbers ascend for
            // each record as well.
            let order = memory.next_sequence();
            memory.log(std::iter::once((0, order)));
        }
        let outcome = match (write.row, &write.key) {
            (Some(row), _) => {
                let replaced = before.map(|row| ReplacedRow {
                    row,
                    was_deleted: write.expected.has(ABSENT),
                    inline: is_inline(write.table, write.record, row),
                });
                RecordOutcome::Written { row, replaced, prepared: Prepared::No }
            }
            (None, Some(key)) => RecordOutcome::Deleted {
                row: before.expect("only visible rows are removed"),
                key,
                is_queued: replaced_word.has(QUEUED),
            },
            (None, None) => unreachable!("what is removed has a key"),
        };
        // SAFETY: the exchange has made this change of the record, and no other exchange can have.
        unsafe { memory.conclude(write.table, write.record.block(), outcome) };
        self.write = None;
        Ok(())
    }

    fn mark(&mut self) -> WriteMark {
        WriteMark { writes: usize::from(self.write.is_some()), ..WriteMark::default() }
    }

    fn keep(&mut self, _mark: WriteMark) {}

    fn undo_to(&mut self, mark: WriteMark, memory: &WorkerMemory) {
        if mark.writes == 0 {
            self.abort(memory);
        }
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        let Some(write) = self.write.take() else { return };
        let Some(row) = write.row else { return };
        if write.is_created {
            discard_placeholder(&write, memory);
        }
        let inline = is_inline(write.table, write.record, row);
        // SAFETY: the row was not installed, so no other thread has seen it, and this is the only place that
        // drops it.
        unsafe { memory.drop_row(row, write.table, inline) };
    }
}

/// Makes a write visible, if the record is still as the write has seen it. Returns the word that it replaced.
#[cfg_attr(not(debug_assertions), inline(always))]
fn install(write: &Write) -> Result<Newest, Abort> {
    let mut current = write.expected;
    loop {
        // A record on a garbage list stays on it.
        let new = match write.row {
            Some(row) if current.has(QUEUED) => Newest::of(row).with(QUEUED),
            Some(row) => Newest::of(row),
            None => current.with(ABSENT | QUEUED),
        };
        let Err(found) = exchange(stored(write.record), current, new) else { return Ok(current) };
        if found.with(QUEUED) != current.with(QUEUED) {
            return Err(write_conflict(write));
        }
        // The version is the same; the record was only taken off a garbage list.
        current = found;
    }
}

/// Unlinks a placeholder that this transaction has put into the index, unless another transaction has put a row
/// into the placeholder.
fn discard_placeholder(write: &Write, memory: &WorkerMemory) {
    let key = write.key.as_ref().expect("what is inserted has a key");
    if exchange(stored(write.record), Newest::NONE, Newest::NONE.with(REMOVED)).is_ok() {
        // SAFETY: the record is of the table, and the worker is pinned.
        if unsafe { write.table.unlink(write.record.block(), key, memory) } {
            memory.retire_record(write.record.block(), write.table);
        }
    }
}

#[cold]
fn write_conflict(write: &Write) -> Abort {
    let record = Some(write.record.block());
    Abort { reason: ConflictReason::WriteChanged, table: write.table, record }
}
