//! Workers: what a thread needs to run transactions on a database.
//!
//! A thread becomes a worker of a database by its first transaction on it, and stops being one
//! when it ends. A worker has a slot (for grace periods and counters), an arena, a list of
//! garbage, and an executor of the protocol. The database owns all of it; the thread keeps only
//! a registration, which its end releases.
//!
//! [`commit`] is what becomes of a commit's versions, [`thread`](mod@thread) the worker as its thread
//! has it, [`idle`] how other workers take over what an idle one holds, and `undoable` what the simulated
//! machine needs to undo whole transactions.

mod aborts;
mod commit;
mod discarded;
mod idle;
mod thread;
#[cfg(weft_sim)]
mod undoable;

use std::alloc::Layout;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, PoisonError};

#[cfg(weft_sim)]
use weft_htm::planted::Bug;
use weft_htm::word::{Mutex, Ordering, Word, yield_now};
use weft_htm::{Htm, Regions, Statistics, StatisticsReader};

pub use aborts::AbortsByTable;
pub use commit::{
    Committing, EngineLog, LoggedOperation, LoggedWrite, NOT_STAGED, Outcome, Replaced, Written,
};
use discarded::DiscardedList;
pub use discarded::{Discarded, contain};
pub use idle::IdleWorkers;
pub use thread::{Expected, IndexBuffer, Pinned, StoredForm, WorkerState};

use crate::error::{ConflictReason, Failure};
use crate::index::IndexWorker;
use crate::row::encoding::EncodedKey;
use crate::store::deadline::Deadline;
use crate::store::garbage::{Batch, DeletedRecord, Garbage, Retired};
use crate::store::recent::Recent;
use crate::store::record::Settled;
use crate::store::record::arena::{Arena, Class, Memory, allocate_huge, free_huge};
use crate::store::record::newest;
use crate::store::record::version::{Deletion, VersionHeader};
use crate::store::retention::{NONE_OPEN, OpenSnapshots, Retained, Retention};
use crate::store::table::TableRef;
use crate::sync::clock::{Clock, Commits};
use crate::sync::gate::Gate;
use crate::sync::reclaim::GracePeriods;
use crate::sync::turnstile::Turnstile;

/// What all workers of a database share, whatever the protocol.
pub struct Shared {
    pub memory: Memory,
    pub grace: GracePeriods,
    /// Workers that others take over from when they are idle.
    pub idle: IdleWorkers,
    pub clock: Arc<Clock>,
    /// Which workers are committing.
    pub commits: Commits,
    /// The open snapshots, and what is kept for them.
    pub retention: Retention,
    /// One of them, which readers share.
    pub recent: Recent,
    pub htm: Htm,
    pub counters: Box<[Counters]>,
    /// Aborts, by what they were about.
    pub aborts: AbortsByTable,
    /// Whether transactions begin: [`OPEN`], [`CLOSED`] or [`LOADING`].
    pub closed: Word,
    /// Keeps procedures in pieces and all else apart, under a protocol that has such.
    pub gate: Option<Arc<Gate>>,
    /// The history, if it is recorded.
    #[cfg(feature = "history")]
    pub(crate) recording: Option<Arc<crate::history::Recording>>,
    /// The log, if there is one.
    pub log: OnceLock<EngineLog>,
    /// Lets starving transactions through.
    pub turnstile: Turnstile,
    /// Garbage of workers that left, and how many batches of it there are.
    orphans: Mutex<VecDeque<Batch>>,
    orphan_batches: Word,
    slots: Mutex<Slots>,
}

/// Transactions begin.
pub const OPEN: u64 = 0;
/// No transaction begins any more.
pub const CLOSED: u64 = 1;
/// No transaction begins while a table is loaded.
pub const LOADING: u64 = 2;

impl Shared {
    /// Whether a transaction or a snapshot may begin.
    ///
    /// Relaxed: who changes it waits for all that were pinned before they could see it.
    #[inline(always)]
    pub fn check_open(&self) -> Result<(), Failure> {
        match self.closed.load(Ordering::Relaxed) {
            OPEN => Ok(()),
            LOADING => Err(Failure::Loading),
            _ => Err(Failure::Closed),
        }
    }
}

#[derive(Default)]
struct Slots {
    free: Vec<usize>,
    used: usize,
    htm_readers: Vec<Option<StatisticsReader>>,
    htm_departed: Statistics,
}

/// A worker's counters, written by it alone (a plain load and store each) and read by anybody.
/// They belong to the slot: a later worker of the slot counts on.
#[repr(align(64))]
#[derive(Debug, Default)]
pub struct Counters {
    pub committed: Word,
    pub rolled_back: Word,
    pub aborted: [Word; ConflictReason::ALL.len()],
    pub retired_pending: Word,
    pub repairs: Word,
    pub restored_fast: Word,
    pub restored_slow: Word,
    pub kept: Word,
    pub committed_in_pieces: Word,
    pub pieces_redone: Word,
    /// Changes that pieces have deferred.
    pub deferred: Word,
    pub pieces_carried_over: Word,
    /// Values of the user's whose `Drop` has panicked.
    pub drops_panicked: Word,
}

impl Counters {
    /// Adds one to a counter of the calling worker. Relaxed: a statistic, of a single writer.
    #[inline(always)]
    pub fn count(counter: &Word) {
        Counters::add(counter, 1);
    }

    /// Counts several, in the worker's own counter.
    #[inline(always)]
    pub fn add(counter: &Word, count: u64) {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

impl Shared {
    pub fn new(htm: Htm, workers_max: usize) -> Self {
        Shared {
            memory: Memory::default(),
            grace: GracePeriods::new(workers_max),
            idle: IdleWorkers::new(workers_max),
            clock: Arc::new(Clock::default()),
            commits: Commits::new(workers_max),
            retention: Retention::default(),
            recent: Recent::default(),
            htm,
            counters: (0..workers_max).map(|_| Counters::default()).collect(),
            aborts: AbortsByTable::default(),
            closed: Word::new(OPEN),
            gate: None,
            #[cfg(feature = "history")]
            recording: None,
            log: OnceLock::new(),
            turnstile: Turnstile::default(),
            orphans: Mutex::new(VecDeque::new()),
            orphan_batches: Word::new(0),
            slots: Mutex::new(Slots::default()),
        }
    }

    /// Number of workers at present.
    pub fn workers(&self) -> usize {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.used - slots.free.len()
    }

    /// HTM statistics of all workers, past ones included.
    pub fn htm_statistics(&self) -> Statistics {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = slots.htm_departed;
        for reader in slots.htm_readers.iter().flatten() {
            total += reader.statistics();
        }
        total
    }

    pub fn take_slot(&self) -> Option<usize> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.free.pop() {
            return Some(slot);
        }
        let slot = slots.used;
        if slot == self.counters.len() {
            return None;
        }
        slots.used += 1;
        slots.htm_readers.push(None);
        self.grace.enlist(slot);
        Some(slot)
    }

    pub fn set_reader(&self, slot: usize, reader: StatisticsReader) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.htm_readers[slot] = Some(reader);
    }

    pub fn give_slot(&self, slot: usize) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = slots.htm_readers[slot].take() {
            slots.htm_departed += reader.statistics();
        }
        slots.free.push(slot);
    }

    /// Leaves garbage to all workers.
    fn leave_orphans(&self, batches: Vec<Batch>) {
        if !batches.is_empty() {
            let mut orphans = self.orphans.lock().unwrap_or_else(PoisonError::into_inner);
            self.orphan_batches.fetch_add(batches.len() as u64, Ordering::Relaxed);
            orphans.extend(batches);
        }
    }

    /// Takes the garbage of workers that left, when the database is being dropped.
    pub fn take_orphans(&self) -> VecDeque<Batch> {
        std::mem::take(&mut *self.orphans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A worker's memory: its arena and its garbage, its slot among the grace periods, and its
/// hardware regions. Used by one thread at a time.
pub struct WorkerMemory {
    shared: Arc<Shared>,
    slot: usize,
    arena: UnsafeCell<Arena>,
    garbage: UnsafeCell<Garbage>,
    regions: Regions,
    /// The snapshot number that the commit under way has drawn. Like the next, a word though it is the
    /// worker's own, since regions write it.
    drawn: Word,
    /// 1 while a commit is under way.
    is_committing: Word,
    /// Whether its transactions put together what was committed before, and logged.
    is_reconciling: Cell<bool>,
    /// What is to be kept for snapshots, until there is enough of it for the common lists.
    retained: RefCell<Vec<Retained>>,
    /// The open snapshots, as the worker has listed them last.
    open_snapshots: RefCell<OpenSnapshots>,
    /// Deleted records that may leave their indexes in a later epoch than that of the deletion, and
    /// that epoch: see [`WorkerMemory::retire_deleted`].
    deleted: RefCell<VecDeque<(u64, Box<DeletedRecord>)>>,
    /// The writes of the commit under way, as they are to be logged.
    staged: RefCell<commit::Staged>,
    scratch: RefCell<Vec<u8>>,
    /// Values to drop when the transaction is over.
    discarded: DiscardedList,
    /// Whether the engine has called the user's code while it holds something of the worker's.
    is_in_user_code: Cell<bool>,
    /// When the transaction that begins has to give up, and after how many attempts.
    deadline: Cell<Option<(Deadline, u32)>>,
    /// The blocks of the transaction under way.
    #[cfg(weft_sim)]
    undoable: RefCell<undoable::Undoable>,
}

impl WorkerMemory {
    pub fn new(shared: Arc<Shared>, slot: usize) -> Self {
        let regions = Regions::new(&shared.htm);
        WorkerMemory {
            shared,
            slot,
            arena: UnsafeCell::new(Arena::default()),
            garbage: UnsafeCell::new(Garbage::default()),
            regions,
            drawn: Word::new(0),
            is_committing: Word::new(0),
            is_reconciling: Cell::new(false),
            retained: RefCell::default(),
            open_snapshots: RefCell::default(),
            deleted: RefCell::default(),
            staged: RefCell::default(),
            scratch: RefCell::default(),
            discarded: DiscardedList::default(),
            is_in_user_code: Cell::new(false),
            deadline: Cell::new(None),
            #[cfg(weft_sim)]
            undoable: RefCell::default(),
        }
    }

    #[inline(always)]
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    #[inline(always)]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether so much garbage waits for this transaction's end, perhaps among others', that it had better
    /// end soon: a quarter of the workers could have closed a batch of theirs, and at least two.
    pub fn holds_back_others(&self) -> bool {
        // In hasty builds a batch is a few entries.
        let grace = &self.shared.grace;
        let many = (grace.slots_used() as u64 / 4).max(2);
        !crate::store::IS_HASTY && grace.sealed_since(self.slot) > many
    }

    /// The present epoch.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.shared.clock.epoch()
    }

    /// The worker's number, as operations know it.
    #[inline(always)]
    pub fn core(&self) -> u32 {
        self.slot as u32
    }

    #[inline(always)]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters[self.slot]
    }

    /// Counts an attempt that gives way, by the reason and by the table that it is about.
    pub fn count_abort(&self, reason: ConflictReason, table: TableRef) {
        Counters::count(&self.counters().aborted[reason as usize]);
        self.shared.aborts.count(self.slot, table);
    }

    /// The arena. Every use is one call into it, which does not come back here.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the cell is the worker's own")]
    fn arena(&self) -> &mut Arena {
        // SAFETY: `WorkerMemory` is not Sync, and no method of this file holds the reference over
        // a call that could ask for it again.
        unsafe { &mut *self.arena.get() }
    }

    /// The garbage; as [`WorkerMemory::arena`].
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the cell is the worker's own")]
    fn garbage(&self) -> &mut Garbage {
        // SAFETY: as in `arena`.
        unsafe { &mut *self.garbage.get() }
    }

    /// Runs code of the user's types while the caller holds something of the worker's, its executor for one.
    /// If that code comes back to the transaction, it is refused.
    pub fn in_user_code<R>(&self, user_code: impl FnOnce() -> R) -> R {
        /// Puts back what was before, also if the user's code panics.
        struct Restore<'w>(&'w Cell<bool>, bool);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let before = self.is_in_user_code.replace(true);
        let _restore = Restore(&self.is_in_user_code, before);
        user_code()
    }

    /// Sets when the transaction that begins has to give up waiting, and the number of its attempts.
    #[inline(always)]
    pub fn set_deadline(&self, deadline: Option<Deadline>, attempts: u32) {
        self.deadline.set(deadline.map(|deadline| (deadline, attempts)));
    }

    /// Decides whether a wait for other transactions goes on.
    ///
    /// # Errors
    /// [`Failure::Closed`] or [`Failure::Loading`] if the database is not open; [`Failure::DeadlineExceeded`].
    pub fn keep_waiting(&self) -> Result<(), Failure> {
        self.shared.check_open()?;
        match self.deadline.get() {
            Some((deadline, attempts)) => deadline.check(attempts),
            None => Ok(()),
        }
    }

    /// See [`WorkerMemory::in_user_code`].
    #[inline(always)]
    pub fn is_in_user_code(&self) -> bool {
        self.is_in_user_code.get()
    }

    /// Begins a period in which nothing is freed that this worker can find.
    #[inline(always)]
    pub fn pin(&self) {
        self.shared.grace.pin(self.slot);
    }

    /// Ends the period, and collects garbage if there is enough.
    #[inline(always)]
    pub fn unpin(&self) {
        // Before the worker may be visited.
        let is_batch_full = self.garbage().is_batch_full();
        self.shared.grace.unpin(self.slot);
        if is_batch_full {
            self.collect();
        }
    }

    // ---- blocks ---------------------------------------------------------------------------

    #[inline(always)]
    pub fn allocate_block(&self, class: Class) -> NonNull<u8> {
        let block = self.arena().allocate(class, &self.shared.memory);
        #[cfg(weft_sim)]
        self.undoable.borrow_mut().note_allocated(block, class);
        block
    }

    /// The place of a new row of `table`, in a block of its own, with the header of a version that
    /// has no predecessor.
    #[inline(always)]
    pub fn allocate_row(&self, table: TableRef) -> NonNull<u8> {
        let block = self.allocate_block(table.core().row_class);
        #[cfg(weft_sim)]
        weft_htm::simulation::sync::touch(block.as_ptr(), table.core().row_class.bytes(), true);
        // SAFETY: a new block of the table's row class, which holds a header and a row.
        unsafe { VersionHeader::initialise(block) }
    }

    /// # Safety
    /// As for [`Arena::free`].
    #[inline(always)]
    pub unsafe fn free_block(&self, block: NonNull<u8>, class: Class) {
        #[cfg(weft_sim)]
        if Bug::is_any_planted()
            || self.undoable.borrow_mut().note_freed(block, class, &self.regions)
        {
            return;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.arena().free(block, class, &self.shared.memory) };
    }

    /// Drops a row that nobody can reach any more and, unless it lies inline in its record, frees
    /// its block. What a row owns is dropped when the transaction under way is over: see `discarded`.
    ///
    /// # Safety
    /// `row` is a complete row of `table`; neither it nor (if not `inline`) its block is used
    /// again.
    #[inline(always)]
    pub unsafe fn drop_row(&self, row: NonNull<u8>, table: TableRef, inline: bool) {
        #[cfg(weft_sim)]
        if Bug::is_any_planted() {
            return; // It may be in use, or have been dropped before.
        }
        if table.core().drop_row.is_some() {
            debug_assert!(!inline, "rows that own something have blocks of their own");
            return self.discard(Discarded::Row(row, table));
        }
        // SAFETY: passed on to the caller.
        unsafe { self.free_row(row, table, inline) };
    }

    /// Frees the memory of a row that owns nothing any more.
    ///
    /// # Safety
    /// As for [`WorkerMemory::drop_row`].
    #[inline(always)]
    unsafe fn free_row(&self, row: NonNull<u8>, table: TableRef, inline: bool) {
        // SAFETY: by the contract; rows that are not inline have blocks of the table's row class.
        unsafe {
            if let Some(deletion) = VersionHeader::of(row).deletion() {
                self.free(deletion.cast(), Deletion::LAYOUT);
            }
            if !inline {
                self.free_block(VersionHeader::block(row), table.core().row_class);
            }
        }
    }

    /// Frees the block of a record.
    ///
    /// # Safety
    /// No index leads to the record, nobody holds its address, and its rows are dropped.
    #[inline(always)]
    pub unsafe fn free_record(&self, record: NonNull<u8>, table: TableRef) {
        // SAFETY: by the contract; records have blocks of the table's record class.
        unsafe { self.free_block(record, table.core().record_class) };
    }

    // ---- garbage --------------------------------------------------------------------------

    /// Begins a transaction that the simulated machine may undo: blocks and garbage are as they were
    /// now, if it does. Ends the one before.
    #[cfg(weft_sim)]
    pub fn begin_undoable(&self) {
        self.garbage().mark();
        self.mark_discarded();
        let freed = self.undoable.borrow_mut().begin();
        if Bug::is_any_planted() {
            return; // They may be in use.
        }
        for (block, class) in freed {
            // SAFETY: whoever freed it did not use it again, and the region that might have brought it
            // back has committed.
            unsafe { self.arena().free(block, class, &self.shared.memory) };
        }
    }

    /// The transaction, or the piece of one, has begun no region, or its region has committed.
    #[cfg(weft_sim)]
    pub fn end_undoable(&self) {
        self.undoable.borrow_mut().end();
    }

    /// Takes back what has happened to blocks and garbage since [`WorkerMemory::begin_undoable`]: what
    /// was retired or freed is in use, and nothing leads to what was allocated.
    #[cfg(weft_sim)]
    pub fn undo(&self) {
        self.garbage().forget_since_mark();
        self.forget_discarded();
        let allocated = self.undoable.borrow_mut().undo();
        if Bug::is_any_planted() {
            return; // They may be in use.
        }
        for (block, class) in allocated.into_iter().rev() {
            // SAFETY: the region that has allocated the block is undone, and so is every word that led
            // to it. What unwinds out of the region has dropped all else.
            unsafe { self.arena().free(block, class, &self.shared.memory) };
        }
    }

    /// Retires a row that another version has replaced.
    #[inline(always)]
    pub fn retire_row(&self, row: NonNull<u8>, table: TableRef, inline: bool) {
        if !inline {
            self.garbage().push(Retired::Row(row, table), table.core().row_class.bytes());
        }
    }

    /// Queues a deleted record, to be unlinked after a grace period.
    ///
    /// If commits are logged, it stays in its index at least until the next epoch. A record that is
    /// inserted under its key counts its versions anew, and they have to be greater than those of
    /// this one: in another epoch they are.
    pub fn retire_deleted(&self, record: NonNull<u8>, table: TableRef, key: EncodedKey) {
        self.queue(Box::new(DeletedRecord { record, table, key }));
    }

    /// As [`WorkerMemory::retire_deleted`]. A call, lest commits that delete nothing pay for it.
    #[inline(never)]
    fn queue(&self, deleted: Box<DeletedRecord>) {
        if self.is_logging() {
            let epoch = self.shared.clock.epoch();
            self.deleted.borrow_mut().push_back((epoch, deleted));
        } else {
            self.push_deleted(deleted);
        }
    }

    /// Queues the deleted records whose epoch has ended.
    fn queue_deleted(&self) {
        let mut deleted = self.deleted.borrow_mut();
        if deleted.is_empty() {
            return;
        }
        let epoch = self.shared.clock.epoch();
        while deleted.front().is_some_and(|(deleted_in, _)| *deleted_in < epoch) {
            let (_, deleted) = deleted.pop_front().expect("there is a first");
            self.push_deleted(deleted);
        }
    }

    fn push_deleted(&self, deleted: Box<DeletedRecord>) {
        let bytes = deleted.table.core().record_class.bytes();
        self.garbage().push(Retired::Deleted(deleted), bytes);
    }

    /// Retires an unlinked record, with the row that it may still hold.
    pub fn retire_record(&self, record: NonNull<u8>, table: TableRef) {
        self.garbage().push(Retired::Record(record, table), table.core().record_class.bytes());
    }

    /// Seals what has gathered, and frees what is ripe. Only between transactions.
    #[cold]
    #[inline(never)]
    pub fn collect(&self) {
        let _visit = self.visit_self();
        let grace = &self.shared.grace;
        self.adopt_orphans();
        self.queue_deleted();
        grace.pin_visited(self.slot);
        self.shared.recent.close_if_old(self.shared.clock.epoch(), &self.shared.retention);
        self.take_over_idle();
        self.hand_over_retained();
        self.release_retained();
        grace.unpin(self.slot);
        self.garbage().seal(|| grace.seal());
        let horizon = grace.horizon();
        if self.shared.retention.oldest() != NONE_OPEN {
            // For the deleted records of all batches: their deletions have committed.
            self.list_open_snapshots();
        }
        while let Some(batch) = self.garbage().take_ripe(horizon) {
            // Unlinking reads index nodes, for which one must be pinned.
            grace.pin_visited(self.slot);
            let mut retired = batch.retired;
            for entry in retired.drain(..) {
                // SAFETY: the batch's grace period has passed.
                unsafe { self.release(entry) };
            }
            grace.unpin(self.slot);
            self.garbage().recycle(retired);
        }
        let pending = self.garbage().pending() as u64;
        self.counters().retired_pending.store(pending, Ordering::Relaxed);
    }

    /// Keeps other workers from taking over what this one has gathered while it is not pinned, as long as the
    /// result lives. While it is pinned they do not in any case.
    fn visit_self(&self) -> impl Drop {
        /// Ends the visit.
        struct Visit<'w>(&'w WorkerMemory);
        impl Drop for Visit<'_> {
            fn drop(&mut self) {
                self.0.shared.grace.end_visit(self.0.slot);
            }
        }
        self.shared.grace.visit_self(self.slot);
        Visit(self)
    }

    /// # Safety
    /// A grace period has passed since `entry` was retired.
    unsafe fn release(&self, entry: Retired) {
        // SAFETY: by the contract nobody can reach what was unlinked any more, and what is only
        // to be unlinked now is on this list alone.
        unsafe {
            match entry {
                Retired::Block(block, class) => self.free_block(block, class),
                Retired::Large(block, layout) => free_huge(block, *layout),
                Retired::Row(row, table) => self.drop_row(row, table, false),
                Retired::Deleted(deleted) => self.settle_deleted(deleted),
                Retired::Record(record, table) => {
                    table.drop_newest(record, self);
                    self.free_record(record, table);
                }
            }
        }
    }

    /// Unlinks a deleted record, unless it has a row again, or has to stay a while longer.
    ///
    /// # Safety
    /// A grace period has passed since the record was retired as deleted, and the worker is pinned.
    unsafe fn settle_deleted(&self, deleted: Box<DeletedRecord>) {
        let DeletedRecord { record, table, .. } = *deleted;
        // SAFETY: the record is on no other list, and so it is not freed; rows that are reached
        // from it are not freed while this worker is pinned.
        unsafe {
            if let Some(row) = newest(record)
                && let Some(deletion) = VersionHeader::of(row).deletion()
            {
                let end = deletion.as_ref().number;
                if self.shared.retention.oldest() < end {
                    let key = deleted.key.clone();
                    let entry = Retained::deleted_record(key, record, table, end);
                    let retention = &self.shared.retention;
                    let may_rest = !retention.has_released();
                    let needed_by = entry.needed_by(
                        self.open_snapshots.borrow().numbers(),
                        may_rest,
                        &retention.chains,
                    );
                    if needed_by.is_some() {
                        self.retain(entry);
                        return;
                    }
                }
            }
            match table.settle_deleted(record, &deleted.key, self) {
                Settled::Unlinked => self.retire_record(record, table),
                Settled::Kept => {}
                Settled::Busy => self.queue(deleted),
            }
        }
    }

    /// Takes over some of the garbage of workers that have left, or are idle.
    fn adopt_orphans(&self) {
        /// How many batches at a time.
        const ADOPTED: usize = 4;
        // Relaxed: whether they are adopted now or later makes no difference.
        if self.shared.orphan_batches.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut orphans = self.shared.orphans.lock().unwrap_or_else(PoisonError::into_inner);
        let adopted = orphans.len().min(ADOPTED);
        // Under the lock, or batches that are being left at this moment would not be counted.
        let left = (orphans.len() - adopted) as u64;
        self.shared.orphan_batches.store(left, Ordering::Relaxed);
        self.garbage().adopt(orphans.drain(..adopted));
    }

    /// Leaves: what can be freed is, the rest is left to the other workers.
    pub fn leave(&self) {
        self.collect();
        let visit = self.visit_self();
        // The worker that takes them over finds out whether their epoch has ended.
        for (_, deleted) in self.deleted.take() {
            self.push_deleted(deleted);
        }
        // What deleted records are kept for, too, of which `collect` may have found some.
        self.shared.grace.pin_visited(self.slot);
        loop {
            self.hand_over_retained();
            if self.retained.borrow().is_empty() {
                break;
            }
            // Another worker is about to number a version.
            yield_now();
        }
        self.shared.grace.unpin(self.slot);
        self.garbage().seal(|| self.shared.grace.seal());
        self.shared.leave_orphans(self.garbage().take_sealed());
        self.shared.idle.unregister(self.slot);
        drop(visit);
        self.counters().retired_pending.store(0, Ordering::Relaxed);
        // The user's code, of a thread that is no worker any more.
        self.run_discarded();
        self.arena().give_up(&self.shared.memory);
    }

    /// Takes what is kept for snapshots, when the database is being dropped.
    pub fn take_retained(&self) -> Vec<Retained> {
        self.retained.take()
    }

    /// Takes all garbage, when the database is being dropped.
    pub fn take_garbage(&self) -> Vec<Batch> {
        self.garbage().seal(|| 0);
        self.garbage().take_sealed()
    }
}

impl IndexWorker for WorkerMemory {
    #[inline(always)]
    fn regions(&self) -> &Regions {
        &self.regions
    }

    #[inline(always)]
    fn allocate(&self, layout: Layout) -> NonNull<u8> {
        match Class::of(layout) {
            Some(class) => self.allocate_block(class),
            None => allocate_huge(layout),
        }
    }

    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller; the same layout leads to the same place as above.
        unsafe {
            match Class::of(layout) {
                Some(class) => self.free_block(block, class),
                None => free_huge(block, layout),
            }
        }
    }

    unsafe fn retire(&self, block: NonNull<u8>, layout: Layout) {
        let retired = match Class::of(layout) {
            Some(class) => Retired::Block(block, class),
            None => Retired::Large(block, Box::new(layout)),
        };
        self.garbage().push(retired, layout.size());
    }
}
