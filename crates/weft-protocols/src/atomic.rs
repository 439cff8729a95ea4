//! **atomic**: single operations on single rows, each made atomic by one atomic instruction; the
//! upper bound for schemes that lock.
//!
//! N. Narula, C. Cutler, E. Kohler, R. Morris: *Phase Reconciliation for Contended In-Memory
//! Transactions*, OSDI 2014, §8.1 and §8.2: the system *Atomic*, which the INCR1 experiment
//! compares Doppel, OCC and 2PL with.
//!
//! The idea. If a transaction is one read or one read-modify-write of one row, the processor can
//! do it alone: a read is a load of the pointer to the row, a change is a compare-and-swap of it.
//! No record is ever locked, nothing is validated, no version is counted. What remains is the
//! price of moving a contended cache line from core to core, which whoever locks pays as well. So
//! no protocol that keeps a row in one place can be faster on a workload of such transactions; and
//! it is worth nothing for any other.
//!
//! That other is refused: under a protocol with [`Protocol::SINGLE_KEY`] a transaction is one
//! `get`, `insert`, `update`, `upsert` or `delete`. A second operation, a scan, or a table with
//! secondary indexes is [`Failure::SingleKey`](weft::Failure::SingleKey).
//!
//! Header of a record: nothing. Everything is in the word that leads to the newest row, so that
//! one instruction can change it; rows are aligned to 16 bytes, which leaves four bits.
//!
//! ```text
//!   63                                        4   3     2       1        0
//!  +-------------------------------------------+-----+-------+--------+--------+
//!  | address of the newest row / 16            |  0  |queued |removed | absent |
//!  +-------------------------------------------+-----+-------+--------+--------+
//! ```
//!
//! - all zero: a placeholder, which has had no row yet.
//! - *absent*: the row was deleted; its address stays, since it tells the record's key.
//! - *removed*: the record has left the index, or will in a moment. Final.
//! - *queued*: a worker has the record on its garbage list. It is on one list at most.
//!
//! **Serialization point**: of a write, the moment at which it draws its snapshot number, just after
//! its compare-and-swap at commit; in between, whoever comes upon what it has written waits for the
//! number. The compare-and-swap succeeds only if the word still is what the operation saw. Such a word means the same version, since a row that was
//! replaced is not freed, nor its address used again, while the worker is pinned, and a row is
//! installed once. Of a read, and of a write that comes to nothing (the key is absent, or there
//! already), the load of the word, or the look-up in the index. Operations on different rows are
//! ordered in real time because each transaction begins with a sequentially consistent fence (in
//! pinning; see `epoch/reclaim.rs`), which the exchange of the one before it cannot pass.
//!
//! (Were the number drawn before the exchange, a snapshot might show one write and miss another,
//! though somebody has found the second there, and after that not the first.)
//!
//! **Departures from the paper**
//! - The paper's Atomic adds to an integer in place, by an atomic increment that cannot fail. Rows
//!   here are immutable versions, and an update is any closure: so it writes a new row, and swaps
//!   pointers. A swap that fails is a conflict, and the transaction is run again.
//! - The paper's keys are there from the start. Here they come and go: an insert first links a
//!   placeholder, for it may still be rolled back, and fills it by the same exchange; a deleted
//!   record is unlinked after a grace period (DBX §5.5), unless it is filled again. Who finds a
//!   record that is being unlinked looks its key up again until it is gone: but for that, a thread
//!   waits for another only as long as a number takes.
//!
//! **Starvation**: an exchange fails because another one has succeeded, so some transaction always
//! gets on; that every one does is left to the engine (backoff, and the turnstile).

use std::ptr::{self, NonNull};
use std::sync::Arc;

use weft::ConflictReason;
use weft::commit::access_set::is_inline;
use weft::commit::{Abort, Executor, Never, Observation, Protocol, Refusal, Settled, Visible};
use weft::encoding::EncodedKey;
use weft::index::bplus_tree::ScannedRange;
use weft::index::{NodeChange, NodeVersion};
use weft::store::record::version::{UNNUMBERED, VersionHeader};
use weft::store::record::{Newest, RecordPointer, StoredRecord};
use weft::store::table::TableRef;
use weft::store::worker::{LoggedWrite, Outcome, Replaced, WorkerMemory, Written};
use weft_htm::word::{Ordering, yield_now};

/// One atomic instruction per transaction. See the [module](self) for the paper and the idea.
#[derive(Debug)]
pub enum Atomic {}

// SAFETY: an operation is one exchange of a record's row, which hands the one that it has replaced on.
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
    ) -> Settled {
        let mut found = record.newest.load(LOAD);
        loop {
            if found.has(ABSENT) && !may_go(0) {
                return Settled::Busy;
            }
            let dequeued = found.without(QUEUED);
            let settled = if found.has(ABSENT) { dequeued.with(REMOVED) } else { dequeued };
            match exchange(record, found, settled) {
                Ok(()) if settled.has(REMOVED) => {
                    if unlink() {
                        return Settled::Unlinked;
                    }
                    // No other thread changes what is removed.
                    record.newest.store(dequeued, STORE);
                    return Settled::Kept;
                }
                Ok(()) => return Settled::Kept,
                Err(now) => found = now,
            }
        }
    }
}

const ABSENT: usize = 1 << 0;
const REMOVED: usize = 1 << 1;
const QUEUED: usize = 1 << 2;

/// Acquire: pairs with the release in [`exchange`]: whoever finds a row finds its contents.
const LOAD: Ordering = Ordering::Acquire;
/// Release: pairs with [`LOAD`].
const STORE: Ordering = Ordering::Release;

/// A record's word, when whoever has written it has a number.
#[inline(always)]
fn settled(record: &StoredRecord<()>) -> Newest {
    loop {
        let newest = record.newest.load(LOAD);
        let Some(row) = newest.row() else { return newest };
        // SAFETY: pinned since before the record was found.
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

/// What a record with this word shows.
#[inline(always)]
fn visible(newest: Newest) -> Visible {
    if !newest.has(ABSENT | REMOVED) {
        return newest.row().map_or(Visible::Absent, Visible::Row);
    }
    if newest.has(REMOVED) {
        // Whoever removes it is about to unlink it.
        yield_now();
        return Visible::Removed;
    }
    Visible::Absent
}

fn address_of(row: Option<NonNull<u8>>) -> *mut u8 {
    row.map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// The one atomic instruction. `Err` holds what was there instead of `current`.
#[inline(always)]
fn exchange(record: &StoredRecord<()>, current: Newest, new: Newest) -> Result<(), Newest> {
    // Release: pairs with `LOAD`: the new row was written before. Acquire, also on failure: what
    // is found instead may be looked at.
    record.newest.compare_exchange(current, new, Ordering::AcqRel, LOAD).map(|_| ())
}

#[inline(always)]
fn stored<'a>(record: RecordPointer<()>) -> &'a StoredRecord<()> {
    // SAFETY: the worker is pinned for the whole transaction, by the executor's rules of use.
    unsafe { record.get() }
}

/// The write of a transaction.
struct Write {
    record: RecordPointer<()>,
    table: TableRef,
    /// The word that it replaces.
    expected: Newest,
    /// The row to install; `None` to leave the record without one.
    row: Option<NonNull<u8>>,
    /// The key that the index leads to the record from, if it is inserted or deleted.
    key: Option<EncodedKey>,
    /// Whether this transaction has put the record into the index.
    is_created: bool,
}

impl Write {
    /// The row that was visible before.
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
        // There is one operation, and it has not written yet.
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

    fn validate(&mut self) -> Result<(), Abort> {
        // Whatever the one operation saw was so at the moment at which it looked.
        Ok(())
    }

    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        let Some(write) = &self.write else { return };
        let written = match (write.row, write.replaced()) {
            (Some(row), Some(before)) => Written::Changed { row, before },
            (Some(row), None) => Written::Row(row),
            (None, Some(deleted)) => Written::Deleted(deleted),
            (None, None) => unreachable!("only visible rows are removed"),
        };
        list.push(LoggedWrite { table: write.table, written });
    }

    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        let Some(write) = &self.write else { return Ok(()) };
        let before = write.expected.row();
        if let Some(row) = write.row {
            // SAFETY: nobody else has seen the row yet.
            unsafe { VersionHeader::of(row) }.set_previous(address_of(before));
        }
        let replaced_word = install(write)?;
        // ==== serialization point ====
        epoch();
        if memory.is_logging() {
            // No other worker replaces the row before it has its number, so these numbers ascend, too.
            let order = memory.next_in_log();
            memory.log(std::iter::once((0, order)));
        }
        let outcome = match (write.row, &write.key) {
            (Some(row), _) => {
                let replaced = before.map(|row| Replaced {
                    row,
                    was_deleted: write.expected.has(ABSENT),
                    inline: is_inline(write.table, write.record, row),
                });
                Outcome::Written { row, replaced }
            }
            (None, Some(key)) => Outcome::Deleted {
                row: before.expect("only visible rows are removed"),
                key,
                is_queued: replaced_word.has(QUEUED),
            },
            (None, None) => unreachable!("what is removed has a key"),
        };
        // SAFETY: the exchange has done so, and only one can have.
        unsafe { memory.conclude(write.table, write.record.block(), outcome) };
        self.write = None;
        Ok(())
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        let Some(write) = self.write.take() else { return };
        let Some(row) = write.row else { return };
        if write.is_created {
            discard_placeholder(&write, memory);
        }
        let inline = is_inline(write.table, write.record, row);
        // SAFETY: the row was not installed, so nobody else has seen it; and this is the only
        // place that drops it.
        unsafe { memory.drop_row(row, write.table, inline) };
    }
}

/// Makes a write visible, if the record still is what the write has seen; returns the word that it
/// replaced.
#[inline(always)]
fn install(write: &Write) -> Result<Newest, Abort> {
    let mut current = write.expected;
    loop {
        // A record on a garbage list stays there.
        let new = match write.row {
            Some(row) if current.has(QUEUED) => Newest::of(row).with(QUEUED),
            Some(row) => Newest::of(row),
            None => current.with(ABSENT | QUEUED),
        };
        let Err(found) = exchange(stored(write.record), current, new) else { return Ok(current) };
        if found.with(QUEUED) != current.with(QUEUED) {
            return Err(write_conflict(write));
        }
        // The same version: it was only taken off a garbage list.
        current = found;
    }
}

/// Unlinks a placeholder that this transaction has put into the index, unless another transaction has
/// put a row into it.
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
