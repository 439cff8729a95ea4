//! The parts that the optimistic protocols share: the read phase, and the work after a commit or an abort. The
//! protocols differ in how they commit, which each protocol's own file describes.
//!
//! The idea is from H. T. Kung and J. T. Robinson (*On Optimistic Methods for Concurrency Control*, 1981). A
//! transaction runs in three phases. In the *read phase* it takes no locks: it remembers the version of every
//! record that it reads, and keeps its writes private. In the *validation phase* it checks that what it has read is
//! still current. In the *write phase* it makes its writes visible. Validation and write phase must look atomic to
//! other transactions. [`CommitPhases::commit`] is these two phases.
//!
//! In this engine the read phase remembers three things:
//!
//! - the *read set*: records and the TID words they had. A record is read as a pair of TID word and newest row,
//!   under a seqlock (`TidWord::read_with`);
//! - the *write set*: records, the versions that the writes replace (every write has read its record, if only to
//!   copy it), and the rows to install;
//! - the *node set*: index nodes in which keys were found absent or ranges were scanned, with their versions. A
//!   node's version changes whenever a key is inserted into it or removed, so a phantom shows as a changed node.
//!
//! A record that was written by commutative operations alone may have been replaced by the time of the commit. Then the
//! operations are applied again, to the present version: see [`applied`](super::applied).
//!
//! A key to be inserted is put into the index in the read phase, with a *placeholder*: a record that is absent
//! until the commit. An abort unlinks it again.

use std::ptr::NonNull;
use std::sync::Arc;

use weft_htm::Region;
#[cfg(weft_sim)]
use weft_htm::planted::Bug;
use weft_htm::word::Ordering;

use super::access_set::{
    AccessSet, NodeEntry, ReadEntry, ReplacedVersion, TidHeader, WriteEntry, successor,
};
use super::applied::{StaleWrite, StaleWrites};
use super::by_columns::CarriedAccess;
use super::{
    Abort, DeletedOutcome, Executor, HoldOutcome, Never, Observation, Protocol,
    ReappliesOperations, Refusal, Visible, WriteMark,
};
use crate::error::ConflictReason;
use crate::index::bplus_tree::ScannedRange;
use crate::index::{Insertion, Lookup, NodeChange, NodeVersion};
use crate::row::column::{ColumnSet, UsedColumns};
use crate::row::encoding::EncodedKey;
use crate::row::operation::RepeatableOperation;
use crate::store::record::tid::{Tid, fence_after_locking, fence_before_validation};
use crate::store::record::{Newest, RecordPointer, StoredRecord};
use crate::store::table::TableRef;
#[cfg(feature = "canary")]
use crate::store::worker::OperationFlaw;
use crate::store::worker::{LoggedWrite, WorkerMemory};

/// An optimistic protocol: how it validates and writes.
#[doc(hidden)]
pub trait CommitPhases: Protocol<Header: TidHeader> {
    /// What a worker remembers from one transaction to the next.
    type Memory: Default + Send;

    /// Whether a commit that fails because of a stale version is tried again, if the transaction relies only on other
    /// columns, or has written by operations alone, or if only records without a row have left the ranges that it has
    /// scanned.
    const MAY_COMMIT_ONTO_PRESENT: bool = true;

    /// Reads a record's newest row together with its version.
    #[inline(always)]
    fn read_newest(
        shared: &Self::Shared,
        record: RecordPointer<Self::Header>,
        memory: &WorkerMemory,
    ) -> (Tid, *mut u8) {
        let _ = (shared, memory);
        read_newest(record)
    }

    /// See [`Executor::look_up`].
    #[inline(always)]
    fn look_up(
        shared: &Self::Shared,
        memory: &WorkerMemory,
        search: impl Fn(Option<&Region>) -> Lookup,
    ) -> Lookup {
        let _ = (shared, memory);
        search(None)
    }

    /// See [`Executor::place_absent`].
    #[inline(always)]
    fn place_absent(
        set: &mut AccessSet<Self::Header>,
        shared: &Self::Shared,
        place: (TableRef, impl FnOnce() -> EncodedKey, impl FnOnce(u64) -> Insertion),
        memory: &WorkerMemory,
    ) -> Result<Option<RecordPointer<Self::Header>>, Abort> {
        let _ = (set, shared, place, memory);
        Ok(None)
    }

    /// Validates what the transaction has read, and installs what it has written. On a conflict, leaves everything
    /// as it was.
    fn commit(
        set: &mut AccessSet<Self::Header>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort>;
}

/// What a commit can use besides the access set.
#[doc(hidden)]
pub struct CommitContext<'a, P: CommitPhases> {
    /// The number of attempts before this one.
    pub attempt: u32,
    /// What the database's workers share.
    pub shared: &'a P::Shared,
    /// What this worker remembers.
    pub remembered: &'a mut P::Memory,
    /// The worker's memory, with its hardware regions.
    pub memory: &'a WorkerMemory,
}

/// Runs an optimistic protocol on one worker.
#[doc(hidden)]
pub struct OptimisticExecutor<P: CommitPhases> {
    pub set: AccessSet<P::Header>,
    attempt: u32,
    shared: Arc<P::Shared>,
    remembered: P::Memory,
}

/// Returns the record of an entry of an access set.
#[inline(always)]
pub fn stored<'a, H>(record: RecordPointer<H>) -> &'a StoredRecord<H> {
    // SAFETY: by the executor's rules of use, the worker is pinned from `begin` to the end of `commit` or `abort`,
    // and found the record in this time. No caller keeps the reference longer.
    unsafe { record.get() }
}

impl<P: CommitPhases> Executor for OptimisticExecutor<P> {
    type Header = P::Header;
    type Shared = P::Shared;
    type Version = ReplacedVersion;
    type Splitting = Never;
    type Repairing = Never;
    type Chopping = Never;
    type Reapplying = Self;

    const READS_RANGES_AGAIN: bool = P::MAY_COMMIT_ONTO_PRESENT;

    #[inline(always)]
    fn reapplying(&mut self) -> Option<&mut Self> {
        P::MAY_COMMIT_ONTO_PRESENT.then_some(self)
    }

    #[inline(always)]
    fn look_up(
        &mut self,
        _table: TableRef,
        _key: impl Fn() -> EncodedKey,
        memory: &WorkerMemory,
        search: impl Fn(Option<&Region>) -> Lookup,
    ) -> Result<Lookup, Abort> {
        Ok(P::look_up(&self.shared, memory, search))
    }

    #[inline(always)]
    fn place_absent(
        &mut self,
        table: TableRef,
        key: impl FnOnce() -> EncodedKey,
        link: impl FnOnce(u64) -> Insertion,
        memory: &WorkerMemory,
    ) -> Result<Option<RecordPointer<P::Header>>, Abort> {
        P::place_absent(&mut self.set, &self.shared, (table, key, link), memory)
    }

    fn new(shared: &Arc<P::Shared>, _slot: usize) -> Self {
        OptimisticExecutor {
            set: AccessSet::default(),
            attempt: 0,
            shared: Arc::clone(shared),
            remembered: P::Memory::default(),
        }
    }

    #[inline(always)]
    fn begin(&mut self, attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal> {
        self.set.begin(memory);
        self.attempt = attempt;
        Ok(())
    }

    #[inline(always)]
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<P::Header>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        Ok(self.read_using(table, record, None, memory))
    }

    #[inline(always)]
    fn read_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<P::Header>,
        columns: ColumnSet,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        Ok(self.read_using(table, record, Some(columns), memory))
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        _table: TableRef,
        record: RecordPointer<P::Header>,
        memory: &WorkerMemory,
    ) -> Result<Observation<ReplacedVersion>, Abort> {
        if let Some(own) = self.set.observe_own(record) {
            self.set.notes.note_own_read(record, ColumnSet::ALL);
            return Ok(own);
        }
        let (observed, newest) = P::read_newest(&self.shared, record, memory);
        Ok(self.set.observe(observed, newest))
    }

    fn note_read(
        &mut self,
        table: TableRef,
        record: RecordPointer<P::Header>,
        version: ReplacedVersion,
    ) {
        self.set.note_read(table, record, version);
    }

    #[inline(always)]
    fn is_current(&self, record: RecordPointer<P::Header>, version: ReplacedVersion) -> bool {
        self.set.is_current(record, version)
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<P::Header>,
        version: ReplacedVersion,
        row: NonNull<u8>,
    ) {
        self.set.put(table, record, version, Some(row), None);
    }

    #[inline(always)]
    fn write_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<P::Header>,
        version: ReplacedVersion,
        row: NonNull<u8>,
        columns: UsedColumns,
    ) {
        self.set.put_columns(table, record, version, row, columns);
    }

    #[inline(always)]
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<P::Header>,
        version: ReplacedVersion,
        key: EncodedKey,
    ) {
        self.set.put(table, record, version, None, Some(key));
    }

    #[inline(always)]
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<P::Header>,
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
        self.set.accessed()
    }

    fn validate(&mut self) -> Result<(), Abort> {
        // The rows from which the transaction has drawn its conclusion were loaded before this fence.
        fence_before_validation();
        for entry in &self.set.writes {
            let tid = stored(entry.record).header.tid().load_relaxed();
            if tid != entry.expected {
                return Err(write_conflict(entry, tid));
            }
        }
        validate_reads(&self.set, |_| false)
    }

    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        self.set.list_writes(list);
    }

    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        let context = CommitContext {
            attempt: self.attempt,
            shared: &*self.shared,
            remembered: &mut self.remembered,
            memory,
        };
        self.set.open_row_counts(memory);
        let committed = P::commit(&mut self.set, context, &epoch);
        self.set.close_row_counts(memory, committed.is_ok());
        committed?;
        // The transaction has committed. The rest does not concern other transactions.
        self.retire(memory);
        Ok(())
    }

    fn carry_over(
        &mut self,
        abort: Abort,
        memory: &WorkerMemory,
        report: &mut dyn FnMut(CarriedAccess),
    ) -> Result<(), Abort> {
        match P::MAY_COMMIT_ONTO_PRESENT {
            true => self.set.carry_over(abort, memory, report),
            false => Err(abort),
        }
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
        self.set.drop_private(memory, |entry, key| {
            discard_placeholder(entry.record, entry.table, key, memory);
        });
    }
}

impl<P: CommitPhases> ReappliesOperations<P::Header, ReplacedVersion> for OptimisticExecutor<P> {
    #[inline(always)]
    fn note_applied<O>(
        &mut self,
        record: RecordPointer<P::Header>,
        version: ReplacedVersion,
        row: NonNull<u8>,
        operation: RepeatableOperation,
        own: O,
    ) {
        self.set.note_applied(record, version, row, operation, own);
    }

    fn take_stale(&mut self, abort: &Abort) -> Option<StaleWrites<P::Header>> {
        self.set.take_stale(abort)
    }

    fn write_again(&mut self, write: &StaleWrite<P::Header>, row: NonNull<u8>) {
        self.set.write_again(write, row);
    }

    fn put_back(&mut self, stale: StaleWrites<P::Header>) {
        self.set.put_back(stale);
    }
}

impl<P: CommitPhases> OptimisticExecutor<P> {
    /// Reads a record, of which the transaction uses these columns, or the row as a whole.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn read_using(
        &mut self,
        table: TableRef,
        record: RecordPointer<P::Header>,
        columns: Option<ColumnSet>,
        memory: &WorkerMemory,
    ) -> Visible {
        if let Some(own) = self.set.own_write(record) {
            #[cfg(feature = "canary")]
            if memory.has_flaw(OperationFlaw::OwnReadsForgotten) {
                return own;
            }
            self.set.note_own_read(record, columns);
            self.set.notes.note_own_read(record, columns.unwrap_or(ColumnSet::ALL));
            return own;
        }
        let (observed, newest) = P::read_newest(&self.shared, record, memory);
        let visible = super::access_set::visible(observed, newest);
        if !matches!(visible, Visible::Removed) {
            if let (Some(columns), Visible::Row(row)) = (columns, visible) {
                self.set.notes.note_read(self.set.reads.len(), row, columns);
            }
            self.set.reads.push(ReadEntry { record, observed, table });
        }
        visible
    }

    /// Does the work that is left after the writes were installed.
    #[inline(always)]
    pub fn retire(&mut self, memory: &WorkerMemory) {
        self.set.retire(memory, |entry, key| {
            discard_placeholder(entry.record, entry.table, key, memory);
        });
    }
}

// ---- steps of the phases ----------------------------------------------------------------------

/// Reads a record's newest row together with its version (DBX, Algorithm 2).
#[inline(always)]
pub fn read_newest<H: TidHeader>(record: RecordPointer<H>) -> (Tid, *mut u8) {
    let record = stored(record);
    // Acquire: pairs with the release store of the pointer in `install`. The stores of a hardware region appear all
    // at once, so the second load of the word would find it changed.
    record.header.tid().read_with(|| record.newest.load(Ordering::Acquire).address())
}

/// Locks the records of the write set, each at the version that its write expects. This locks and validates in one
/// step. It never waits, so it cannot deadlock in any order.
#[cfg_attr(not(debug_assertions), inline(always))]
pub fn lock_expected<H: TidHeader>(writes: &[WriteEntry<H>]) -> Result<(), Abort> {
    for (position, write) in writes.iter().enumerate() {
        if let Err(tid) = stored(write.record).header.tid().lock_at(write.expected) {
            unlock(&writes[..position]);
            return Err(write_conflict(write, tid));
        }
    }
    Ok(())
}

/// Releases the locks of writes that were not installed.
pub fn unlock<H: TidHeader>(writes: &[WriteEntry<H>]) {
    for write in writes {
        stored(write.record).header.tid().unlock(write.expected);
    }
}

/// Checks that everything that was read is still current. `is_own_lock` says whether this transaction itself has
/// locked a record.
#[cfg_attr(not(debug_assertions), inline(always))]
pub fn validate_reads<H: TidHeader>(
    set: &AccessSet<H>,
    is_own_lock: impl Fn(RecordPointer<H>) -> bool,
) -> Result<(), Abort> {
    for entry in &set.reads {
        let tid = stored(entry.record).header.tid().load_relaxed();
        if tid != entry.observed && !(tid == entry.observed.locked() && is_own_lock(entry.record)) {
            return Err(read_conflict(entry));
        }
    }
    validate_nodes(set)
}

/// Checks that all index nodes that were noted are unchanged, where the transaction relies on them.
#[inline(always)]
pub fn validate_nodes<H: TidHeader>(set: &AccessSet<H>) -> Result<(), Abort> {
    for entry in &set.nodes {
        if node_version(entry.node) != entry.node.version && !set.is_range_unchanged(entry) {
            return Err(range_conflict(entry));
        }
    }
    Ok(())
}

/// Returns the current version of an index node that was noted in this transaction.
#[inline(always)]
pub fn node_version(node: NodeVersion) -> u64 {
    // SAFETY: as for records: nodes are retired, but not freed, while the worker is pinned.
    unsafe { node.current() }
}

/// Installs the write set, whose records are locked. Releases the locks with the versions that `version` returns.
#[cfg_attr(not(debug_assertions), inline(always))]
pub fn install<H: TidHeader>(writes: &[WriteEntry<H>], version: impl Fn(&WriteEntry<H>) -> Tid) {
    for write in writes {
        let record = stored(write.record);
        #[cfg(weft_sim)]
        if Bug::UnlockedBeforeInstalled.is_planted() {
            record.header.tid().unlock(version(write));
            if let Some(row) = write.row {
                record.newest.store(Newest::of(row), Ordering::Release);
            }
            continue;
        }
        if let Some(row) = write.row {
            // Release: pairs with the acquire in `read_newest`. A thread that sees the row also sees its contents,
            // and that the record is locked.
            record.newest.store(Newest::of(row), Ordering::Release);
        }
        record.header.tid().unlock(version(write));
    }
}

/// Validation and write phase, with one lock bit per written record.
#[cfg_attr(not(debug_assertions), inline(always))]
pub fn commit_with_locks<H: TidHeader>(
    set: &mut AccessSet<H>,
    memory: &WorkerMemory,
    epoch: &impl Fn() -> u64,
) -> Result<(), Abort> {
    memory.announce_commit();
    lock_expected(&set.writes)?;
    // ==== serialization point ====
    // Orders the announcement before the draw as well.
    fence_after_locking(set.writes.len());
    let epoch = epoch();
    // The locks have validated the write set already.
    if let Err(abort) = validate_reads(set, |record| set.find_write(record).is_some()) {
        unlock(&set.writes);
        return Err(abort);
    }
    // SAFETY: the number is drawn, the write set is locked, and nothing can fail any more.
    unsafe { set.prepare_writes(memory) };
    install(&set.writes, |write| successor(write, epoch));
    Ok(())
}

/// Unlinks a placeholder that this transaction has put into the index under `key`. Leaves it there, and returns false,
/// if another transaction has committed a row into it, or has it on its garbage list.
pub fn discard_placeholder<H: TidHeader>(
    record: RecordPointer<H>,
    table: TableRef,
    key: &EncodedKey,
    memory: &WorkerMemory,
) -> bool {
    let word = stored(record).header.tid();
    let tid = word.lock();
    // SAFETY: the record is of the table, and the worker is pinned.
    let unlinked =
        tid.is_absent() && !tid.is_queued() && unsafe { table.unlink(record.block(), key, memory) };
    word.unlock(if unlinked { tid.removed() } else { tid });
    if unlinked {
        memory.retire_record(record.block(), table);
    }
    unlinked
}

/// Implements [`Protocol::settle_deleted`] for every protocol whose writers hold the lock of the TID word during a
/// commit.
pub fn settle_deleted<H: TidHeader>(
    record: &StoredRecord<H>,
    may_go: impl Fn(u64) -> bool,
    unlink: impl FnOnce() -> bool,
) -> DeletedOutcome {
    let word = record.header.tid();
    let tid = word.lock();
    if !tid.is_absent() {
        word.unlock(tid.dequeued());
        DeletedOutcome::Kept
    } else if may_go(tid.number()) {
        let unlinked = unlink();
        word.unlock(if unlinked { tid.removed() } else { tid.dequeued() });
        if unlinked { DeletedOutcome::Unlinked } else { DeletedOutcome::Kept }
    } else {
        word.unlock(tid);
        DeletedOutcome::Busy
    }
}

/// Implements [`Protocol::HOLD_ROW`] for every protocol whose writers hold the lock of the TID word when they
/// replace a row.
pub fn hold_row<H: TidHeader>(record: &StoredRecord<H>, action: &mut dyn FnMut()) -> HoldOutcome {
    let word = record.header.tid();
    let tid = word.load();
    if tid.is_locked() {
        return HoldOutcome::Busy;
    }
    if tid.is_absent() {
        return HoldOutcome::Absent;
    }
    if word.lock_at(tid).is_err() {
        return HoldOutcome::Busy;
    }
    action();
    word.unlock(tid);
    HoldOutcome::Held
}

// ---- conflicts --------------------------------------------------------------------------------

/// Returns an abort because of a record.
pub fn abort_at<H>(reason: ConflictReason, table: TableRef, record: RecordPointer<H>) -> Abort {
    Abort { reason, table, record: Some(record.block()) }
}

/// Returns the abort of a transaction whose read is not current any more.
#[cold]
pub fn read_conflict<H>(entry: &ReadEntry<H>) -> Abort {
    abort_at(ConflictReason::ReadChanged, entry.table, entry.record)
}

/// Returns the abort of a transaction that relies on an index node that has changed.
#[cold]
pub fn range_conflict(entry: &NodeEntry) -> Abort {
    Abort::of_table(ConflictReason::RangeChanged, entry.table)
}

/// Returns the abort of a transaction whose write found the record locked, or at another version.
#[cold]
pub fn write_conflict<H>(entry: &WriteEntry<H>, found: Tid) -> Abort {
    let reason = if found == entry.expected.locked() {
        ConflictReason::WriteLocked
    } else {
        ConflictReason::WriteChanged
    };
    abort_at(reason, entry.table, entry.record)
}
