//! The executor of protocols whose transactions run one at a time, or as if one at a time. Writes are in place
//! at once, and an *undo log* takes them back.
//!
//! The idea. Reads follow the record's pointer. Writes swap the pointer and remember the old row in the undo
//! log, from which a rollback restores the pointers in reverse order. A commit numbers the rows that it has
//! written, unlinks what was deleted, frees the old rows and clears the log. There is no read set and no
//! validation, because no other transaction runs. Only readers of snapshots are there, and they skip versions
//! that have no number yet.
//!
//! *How* a transaction gets exclusive access to the database is the protocol's part, its [`Exclusion`].
//! [`none`](super::none) refuses a second transaction. [`htm_naive`](super::htm_naive) makes it wait, or lets
//! it run so that the result is the same as if it had waited.
//!
//! Header of a record: nothing. A record with a null pointer has no row. A record whose pointer has the flag
//! `ABSENT` has no row either; the pointer leads to the row that was deleted.
//!
//! **Memory.** If there is at most one worker and no snapshot is open, no other thread can read what a
//! transaction replaces or unlinks. So rows and records are freed at once, without a grace period. (Index nodes
//! are retired as under every protocol; the indexes do that.)
//!
//! Otherwise rows and records are retired as under every other protocol. This includes a row that was never
//! committed and that lies above a version kept for a snapshot: when that snapshot is closed, another thread
//! may be walking down the chain to unlink the version. A deleted record stays in its index as long as a
//! snapshot needs it. Until then it is on a list that later commits look through: see [`DeferredUnlinks`].

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::ptr::NonNull;
use std::sync::Arc;

use weft::commit::access_set::is_inline;
use weft::commit::{
    Abort, DeletedOutcome, Executor, Never, Observation, Refusal, Visible, WriteMark,
};
use weft::encoding::EncodedKey;
use weft::index::bplus_tree::ScannedRange;
use weft::index::{NodeChange, NodeVersion};
use weft::store::garbage::DeletedRecord;
use weft::store::record::version::{UNNUMBERED, VersionHeader};
use weft::store::record::{Newest, RecordPointer, StoredRecord};
use weft::store::retention::NONE_OPEN;
use weft::store::table::TableRef;
use weft::store::worker::{LoggedWrite, NOT_STAGED, WorkerMemory, WriteOutcome};
use weft_htm::word::{Ordering, fence};

/// How a transaction gets exclusive access to the database.
pub trait Exclusion: Default + Send + Sync + 'static {
    /// Whether there is at most one worker. If not, then after `leave` the next transaction may begin, and may
    /// replace what this one has written, while this one still finishes its commit.
    #[doc(hidden)]
    const IS_ONE_WORKER: bool;

    /// Begins exclusive access. Fails, without waiting, if another transaction is running and the protocol does
    /// not wait.
    #[doc(hidden)]
    fn enter(&self, memory: &WorkerMemory) -> Result<(), Refusal>;

    /// Ends what [`Exclusion::enter`] began, on the same worker. What was written in between becomes visible to
    /// the next transaction.
    #[doc(hidden)]
    fn leave(&self, memory: &WorkerMemory);

    /// The deleted records whose unlinking was put off. They may be accessed only between `enter` and `leave`.
    #[doc(hidden)]
    fn deferred(&self) -> &DeferredUnlinks;
}

/// The deleted records that stayed in their indexes because a snapshot was open. They belong to the transaction
/// that has exclusive access to the database.
#[derive(Debug, Default)]
pub struct DeferredUnlinks(UnsafeCell<DeferredRecords>);

/// The contents of [`DeferredUnlinks`].
#[derive(Debug, Default)]
struct DeferredRecords {
    /// The records by their addresses. None of them has a row.
    records: BTreeMap<NonNull<u8>, DeletedRecord>,
    /// Where the last commit stopped: the next one looks at the records after this one.
    seen: Option<NonNull<u8>>,
    /// How many records were put off since a commit last looked.
    added: usize,
}

/// How many deferred records a commit looks at, besides two for each record put off since the last look. This
/// bounds the time of a commit when a snapshot needs many of the records, and records that no snapshot needs do
/// not pile up.
const LOOKED_AT: usize = 32;

// SAFETY: only the transaction with exclusive access to the database accesses it. The records and tables belong
// to the database, not to a thread.
unsafe impl Sync for DeferredUnlinks {}
// SAFETY: as for `Sync`.
unsafe impl Send for DeferredUnlinks {}

/// A flag of a record's pointer: the row that it leads to was deleted.
const ABSENT: usize = 1;

/// Returns what a record with this pointer holds.
#[inline(always)]
fn visible(newest: Newest) -> Visible {
    present(newest).map_or(Visible::Absent, Visible::Row)
}

/// Returns the row that a pointer leads to, unless it is null or flagged as deleted.
#[inline(always)]
fn present(newest: Newest) -> Option<NonNull<u8>> {
    newest.row().filter(|_| !newest.has(ABSENT))
}

/// Returns the header of a row's version.
#[inline(always)]
fn header<'a>(row: NonNull<u8>) -> &'a VersionHeader {
    // SAFETY: the worker is pinned for the whole transaction, and the row comes from a record or is the
    // transaction's own.
    unsafe { VersionHeader::of(row) }
}

/// An entry of the undo log: one step of the transaction.
struct Undo {
    record: RecordPointer<()>,
    table: TableRef,
    /// The record's pointer before the step.
    before: Newest,
    /// The key under which the index leads to the record, if the step inserts or deletes.
    key: Option<EncodedKey>,
    /// Whether the step put the record into the index.
    created: bool,
    /// Whether the step deleted the row.
    removed: bool,
    /// The position of the write among the [staged](WorkerMemory::stage) ones, or [`NOT_STAGED`].
    staged: u32,
}

/// A row that no pointer leads to any more.
struct UnusedRow {
    row: NonNull<u8>,
    record: RecordPointer<()>,
    table: TableRef,
    /// Whether another thread may still be walking past it in the record's chain.
    is_passed: bool,
}

impl UnusedRow {
    /// Describes a row of this transaction's own that it has replaced, or that it rolls back. The transaction
    /// must still have exclusive access to the database.
    fn uncommitted(row: NonNull<u8>, step: &Undo) -> Self {
        let committed = NonNull::new(header(row).private_previous());
        // When the last version that was kept has been unlinked, the thread that unlinked it no longer needs
        // this row.
        let is_passed = committed.is_some_and(|committed| !header(committed).is_last());
        UnusedRow { row, record: step.record, table: step.table, is_passed }
    }
}

/// Runs one worker's transactions. Among all workers, one transaction runs at a time.
#[doc(hidden)]
pub struct ExclusiveExecutor<E> {
    exclusion: Arc<E>,
    log: Vec<Undo>,
    /// Rows and (in `unlinked`) records to be freed at the end of the transaction.
    unused: Vec<UnusedRow>,
    unlinked: Vec<(RecordPointer<()>, TableRef)>,
    /// Committed rows that were replaced, each with the row that has replaced it.
    replaced: Vec<(UnusedRow, NonNull<u8>)>,
    /// Deleted records whose unlinking this commit puts off.
    deferring: Vec<DeletedRecord>,
    /// Whether the last commit left deleted records in their indexes.
    has_deferred: bool,
}

// SAFETY: all lists are empty between transactions, when the executor may move to another thread; the exclusion
// is `Sync`.
unsafe impl<E: Exclusion> Send for ExclusiveExecutor<E> {}

/// Acquire: pairs with the store of an earlier transaction. Between that store and this load lie the `leave` of
/// that transaction and the `enter` of this one. These would be enough, if both were lock operations. But two
/// hardware regions in their place order nothing in terms of the language's memory model.
const LOAD: Ordering = Ordering::Acquire;
/// Release: pairs with [`LOAD`].
const STORE: Ordering = Ordering::Release;

#[inline(always)]
fn stored<'a>(record: RecordPointer<()>) -> &'a StoredRecord<()> {
    // SAFETY: the worker is pinned for the whole transaction, by the executor's rules of use.
    unsafe { record.get() }
}

impl<E: Exclusion> Executor for ExclusiveExecutor<E> {
    type Header = ();
    type Shared = E;
    /// The record's pointer when it was observed.
    type Version = Newest;
    type Splitting = Never;
    type Repairing = Never;
    type Chopping = Never;
    type Reapplying = Never;

    fn new(exclusion: &Arc<E>, _slot: usize) -> Self {
        ExclusiveExecutor {
            exclusion: Arc::clone(exclusion),
            log: Vec::new(),
            unused: Vec::new(),
            unlinked: Vec::new(),
            replaced: Vec::new(),
            deferring: Vec::new(),
            has_deferred: false,
        }
    }

    #[inline(always)]
    fn begin(&mut self, _attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal> {
        #[cfg(weft_sim)]
        memory.begin_undoable();
        self.exclusion.enter(memory)
    }

    #[inline(always)]
    fn read(
        &mut self,
        _table: TableRef,
        record: RecordPointer<()>,
        _memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        Ok(visible(stored(record).newest.load(LOAD)))
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        _table: TableRef,
        record: RecordPointer<()>,
        _memory: &WorkerMemory,
    ) -> Result<Observation<Newest>, Abort> {
        let version = stored(record).newest.load(LOAD);
        Ok(Observation { visible: visible(version), version })
    }

    fn note_read(&mut self, _table: TableRef, _record: RecordPointer<()>, _version: Newest) {}

    fn is_current(&self, record: RecordPointer<()>, version: Newest) -> bool {
        stored(record).newest.load(LOAD) == version
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<()>,
        version: Newest,
        row: NonNull<u8>,
    ) {
        self.log(record, table, version, None);
        header(row).set_previous(committed_before(version));
        stored(record).newest.store(Newest::of(row), STORE);
    }

    #[inline(always)]
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<()>,
        version: Newest,
        key: EncodedKey,
    ) {
        self.log(record, table, version, Some(key)).removed = true;
        let deleted = NonNull::new(committed_before(version));
        let marked = deleted.map_or(Newest::NONE, |deleted| Newest::of(deleted).with(ABSENT));
        stored(record).newest.store(marked, STORE);
    }

    #[inline(always)]
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<()>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        self.log(record, table, Newest::NONE, Some(key)).created = true;
        stored(record).newest.store(Newest::of(row), STORE);
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
        (0, self.log.len())
    }

    fn validate(&mut self) -> Result<(), Abort> {
        Ok(())
    }

    /// Lists the last step on each record: it decides what the record holds in the end.
    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        let records = self.log.iter().enumerate();
        let mut steps: Vec<(NonNull<u8>, usize)> =
            records.map(|(position, step)| (step.record.block(), position)).collect();
        // Sort by record, and within a record by the order of the steps.
        steps.sort_unstable();
        for (index, &(record, position)) in steps.iter().enumerate() {
            let step = &mut self.log[position];
            let newest = stored(step.record).newest.load(LOAD);
            let written = match newest.row() {
                _ if steps.get(index + 1).is_some_and(|(later, _)| *later == record) => None,
                Some(row) if !newest.has(ABSENT) => Some(WriteOutcome::Row(row)),
                Some(deleted) if !header(deleted).is_deleted() => {
                    Some(WriteOutcome::Deleted(deleted))
                }
                _ => None,
            };
            step.staged = match written {
                Some(written) => {
                    list.push(LoggedWrite { table: step.table, written });
                    list.len() as u32 - 1
                }
                None => NOT_STAGED,
            };
        }
    }

    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        // Nothing was written, so there is nothing to number or to free.
        if self.log.is_empty() {
            self.exclusion.leave(memory);
            return Ok(());
        }
        epoch();
        let is_alone = E::IS_ONE_WORKER && memory.shared().retention.oldest() == NONE_OPEN;
        // Drawn while no other transaction can commit.
        let order = memory.is_logging().then(|| memory.next_sequence());
        // Number the rows that stay, and collect the transaction's own rows that later steps have replaced.
        for step in &self.log {
            let newest = stored(step.record).newest.load(LOAD);
            if let Some(row) = present(newest)
                && header(row).number() == UNNUMBERED
            {
                memory.number(row);
            }
            // A row of this transaction's own, which this later step has replaced.
            if let Some(row) = present(step.before)
                && header(row).number() == UNNUMBERED
            {
                self.unused.push(UnusedRow::uncommitted(row, step));
            }
        }
        // Find what was replaced or deleted.
        for position in 0..self.log.len() {
            self.settle(position, is_alone, memory);
        }
        if cfg!(not(weft_sim)) {
            self.defer();
            self.unlink_deferred(memory);
            self.exclusion.leave(memory);
        } else {
            // The shared list is not made of simulated words, so the simulated machine does not roll it back.
            // That is why a record deleted in a region goes onto the list after the region has committed.
            // Nothing may interrupt this: a transaction that put a row into the record again in between, or
            // deleted that row too, would not find the record on the list.
            memory.regions().uninterrupted(|| {
                self.unlink_deferred(memory);
                self.exclusion.leave(memory);
                self.defer();
            });
        }
        if let Some(order) = order {
            let staged = self.log.iter().filter(|step| step.staged != NOT_STAGED);
            memory.log(staged.map(|step| (step.staged, order)));
        }
        if self.has_deferred {
            // For the next commit. This takes a lock, hence only after the exclusive access has ended.
            memory.list_open_snapshots();
        }
        self.log.clear();
        // The replaced rows: freed at once if no other thread can read them, otherwise kept for snapshots or
        // retired.
        for (replaced, row) in self.replaced.drain(..) {
            if is_alone && header(replaced.row).is_last() && header(row).cut(replaced.row) {
                drop_row(memory, replaced);
                continue;
            }
            let inline = is_inline(replaced.table, replaced.record, replaced.row);
            let block = replaced.record.block();
            // SAFETY: this transaction has replaced the row, and has just committed.
            unsafe { memory.supersede(replaced.table, block, row, replaced.row, inline) };
        }
        self.free_unused(is_alone, memory);
        Ok(())
    }

    fn mark(&mut self) -> WriteMark {
        WriteMark { writes: self.log.len(), ..WriteMark::default() }
    }

    fn keep(&mut self, _mark: WriteMark) {}

    /// Undoes the steps, the last one first. The records that were put into an index stay there, without a row, until
    /// the transaction ends.
    fn undo_to(&mut self, mark: WriteMark, _memory: &WorkerMemory) {
        let mut created = Vec::new();
        while self.log.len() > mark.writes
            && let Some(mut step) = self.undo_step()
        {
            if step.created {
                step.removed = true;
                created.push(step);
            }
        }
        self.log.append(&mut created);
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        #[cfg(weft_sim)]
        if memory.regions().is_undone() {
            return self.forget(memory);
        }
        // Undo the steps, the last one first.
        while let Some(step) = self.undo_step() {
            if step.created {
                self.unlinked.extend(unlink(memory, &step));
            }
        }
        self.exclusion.leave(memory);
        // A reader of a snapshot that is open, or is being opened, may have met the undone rows. A reader of a
        // snapshot that is opened after this fence finds them gone.
        fence(Ordering::SeqCst);
        let is_alone = E::IS_ONE_WORKER && memory.shared().retention.oldest() == NONE_OPEN;
        self.free_unused(is_alone, memory);
    }
}

impl<E: Exclusion> ExclusiveExecutor<E> {
    /// Adds a step to the undo log.
    #[inline(always)]
    fn log(
        &mut self,
        record: RecordPointer<()>,
        table: TableRef,
        before: Newest,
        key: Option<EncodedKey>,
    ) -> &mut Undo {
        let (created, removed, staged) = (false, false, NOT_STAGED);
        self.log.push(Undo { record, table, before, key, created, removed, staged });
        self.log.last_mut().expect("just pushed")
    }

    /// Undoes the last step, and returns it. What it has written becomes unused.
    fn undo_step(&mut self) -> Option<Undo> {
        let step = self.log.pop()?;
        let written = stored(step.record).newest.load(LOAD);
        stored(step.record).newest.store(step.before, STORE);
        if let Some(row) = present(written) {
            self.unused.push(UnusedRow::uncommitted(row, &step));
        }
        Some(step)
    }

    /// Decides what the commit has to do about one step: which row or record the step has replaced or deleted.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn settle(&mut self, position: usize, is_alone: bool, memory: &WorkerMemory) {
        let step = &self.log[position];
        let (record, table) = (step.record, step.table);
        let newest = stored(record).newest.load(LOAD);
        match newest.row() {
            // Inserted and deleted again: the last step that deleted the row unlinks the record.
            None => {
                if step.removed {
                    self.unlinked.extend(unlink(memory, step));
                }
            }
            // Deleted, and not inserted again.
            Some(deleted) if newest.has(ABSENT) => {
                if !step.removed || header(deleted).is_deleted() {
                    return;
                }
                // SAFETY: this transaction has deleted it, and no other thread is in a transaction.
                unsafe { memory.mark_deleted(record.block(), deleted) };
                // SAFETY: pinned.
                let may_go = is_alone && unsafe { memory.may_unlink(header(deleted)) };
                if may_go {
                    if let Some(unlinked) = unlink(memory, step) {
                        self.unlinked.push(unlinked);
                        self.unused.push(UnusedRow {
                            row: deleted,
                            record,
                            table,
                            is_passed: false,
                        });
                    }
                } else if let Some(key) = step.key.clone() {
                    let record = record.block();
                    self.deferring.push(DeletedRecord { record, table, key });
                }
            }
            Some(row) => {
                if let Some(replaced) = self.replaced_by(position) {
                    let is_passed = false;
                    self.replaced
                        .push((UnusedRow { row: replaced, record, table, is_passed }, row));
                }
            }
        }
    }

    /// Returns the committed row that a step has replaced, if it has replaced one. Only the first step on a
    /// record has.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn replaced_by(&self, position: usize) -> Option<NonNull<u8>> {
        let step = &self.log[position];
        let before = step.before.row()?;
        let is_first = if !step.before.has(ABSENT) {
            header(before).number() != UNNUMBERED
        } else {
            // The step put a row in the place of a deleted one, which an earlier transaction deleted, or this
            // one.
            header(before).is_deleted()
                && self.log[..position].iter().all(|earlier| earlier.record != step.record)
        };
        is_first.then_some(before)
    }

    /// Puts off the unlinking of the records that this transaction has deleted.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn defer(&mut self) {
        if !self.deferring.is_empty() {
            // SAFETY: called between `enter` and `leave`, or in a section that nothing interrupts.
            let deferred = unsafe { &mut *self.exclusion.deferred().0.get() };
            deferred.added += self.deferring.len();
            let deferring = self.deferring.drain(..).map(|deleted| (deleted.record, deleted));
            deferred.records.extend(deferring);
            self.has_deferred = true;
        }
    }

    /// Forgets a transaction whose region the simulated machine has rolled back. No pointer leads to what it
    /// has written any more. Its own rows are not dropped; only their blocks are given back. The rollback can
    /// happen at any point of the transaction, so nothing says which rows were complete.
    #[cfg(weft_sim)]
    #[cold]
    fn forget(&mut self, memory: &WorkerMemory) {
        self.log.clear();
        self.unused.clear();
        self.unlinked.clear();
        self.replaced.clear();
        self.deferring.clear();
        memory.undo();
    }

    /// Unlinks deleted records that no snapshot needs any more, some at each commit.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn unlink_deferred(&mut self, memory: &WorkerMemory) {
        // SAFETY: between `enter` and `leave`.
        let deferred = unsafe { &mut *self.exclusion.deferred().0.get() };
        self.has_deferred = !deferred.records.is_empty();
        if self.has_deferred {
            for (replaced, _) in &self.replaced {
                // The record has a row again.
                if header(replaced.row).is_deleted() {
                    deferred.records.remove(&replaced.record.block());
                }
            }
            deferred.unlink_unneeded(memory);
        }
    }

    /// Frees or retires the rows and records that are not used any more.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn free_unused(&mut self, is_alone: bool, memory: &WorkerMemory) {
        for unused in self.unused.drain(..) {
            if is_alone && !unused.is_passed {
                drop_row(memory, unused);
            } else {
                let inline = is_inline(unused.table, unused.record, unused.row);
                // SAFETY: the executor has taken the row out of its record.
                unsafe {
                    memory.retire_row(unused.table, unused.record.block(), unused.row, inline);
                }
            }
        }
        for (record, table) in self.unlinked.drain(..) {
            if is_alone {
                // SAFETY: it is unlinked, its rows are dropped, and no other transaction has found it: see
                // "Memory" in the module's documentation.
                unsafe { memory.free_record(record.block(), table) };
            } else {
                // The row is retired separately.
                stored(record).newest.store(Newest::NONE, STORE);
                memory.retire_record(record.block(), table);
            }
        }
    }
}

impl DeferredRecords {
    /// Looks at some of the records, and unlinks those that no snapshot needs.
    #[cold]
    fn unlink_unneeded(&mut self, memory: &WorkerMemory) {
        let count = LOOKED_AT + 2 * std::mem::take(&mut self.added);
        let from = self.seen.map_or(Bound::Unbounded, Bound::Excluded);
        let mut unlinked = Vec::new();
        let mut last = None;
        for (&block, DeletedRecord { table, key, .. }) in
            self.records.range((from, Bound::Unbounded)).take(count)
        {
            last = Some(block);
            // SAFETY: a record on the list is not freed, and no other thread writes it now.
            let record = unsafe { block.cast::<StoredRecord<()>>().as_ref() };
            let newest = record.newest.load(LOAD);
            let row = newest.row().filter(|_| newest.has(ABSENT));
            let row = row.expect("a record that has a row again is off the list");
            // SAFETY: pinned.
            if unsafe { memory.may_unlink(header(row)) } {
                // SAFETY: the record is of the table. Its row is dropped with it.
                if unsafe { table.unlink(block, key, memory) } {
                    memory.retire_record(block, *table);
                }
                unlinked.push(block);
            }
        }
        // After the last record, the next look starts at the first.
        self.seen = last;
        for block in unlinked {
            self.records.remove(&block);
        }
    }
}

/// Returns the committed row that a write of this transaction replaces, if the write finds `newest` in the
/// record. An earlier write of the same transaction leads on to the committed row.
#[inline(always)]
fn committed_before(newest: Newest) -> *mut u8 {
    match newest.row() {
        None => std::ptr::null_mut(),
        Some(row) if header(row).number() == UNNUMBERED => header(row).private_previous(),
        Some(row) => row.as_ptr(),
    }
}

/// Takes a record out of its index, under the key of the step that has inserted or deleted it. Returns `None`
/// if it is out already, or if the index leads to it under another key.
fn unlink(memory: &WorkerMemory, step: &Undo) -> Option<(RecordPointer<()>, TableRef)> {
    let key = step.key.as_ref()?;
    // SAFETY: the record is of the table, and the worker is pinned.
    let unlinked = unsafe { step.table.unlink(step.record.block(), key, memory) };
    unlinked.then_some((step.record, step.table))
}

/// Drops a row that no pointer leads to.
fn drop_row(memory: &WorkerMemory, unused: UnusedRow) {
    let inline = is_inline(unused.table, unused.record, unused.row);
    // SAFETY: each row occurs in the log at most once as `before` without the flag, or was the record's newest
    // when the step that wrote it was undone. No reference to it is left: see "Memory" in the module's
    // documentation.
    unsafe { memory.drop_row(unused.row, unused.table, inline) };
}

/// Implements [`Protocol::settle_deleted`](super::Protocol::settle_deleted). The commit that deletes a row also
/// unlinks its record, so records are never queued for unlinking.
pub fn settle_deleted(unlink: impl FnOnce() -> bool) -> DeletedOutcome {
    if unlink() { DeletedOutcome::Unlinked } else { DeletedOutcome::Kept }
}
