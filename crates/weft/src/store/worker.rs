//! Workers: what a thread needs to run transactions on a database.
//!
//! A thread claims a worker for a transaction, and gives it up after it. A worker has a slot (for grace periods and
//! counters), an arena, a list of garbage, and an executor of the protocol. The database owns all of it, and makes
//! a worker when a thread finds no free one. A thread remembers the worker that it had last, and finds it again
//! with its next transaction, unless another thread has needed it since.
//!
//! - [`claim`]: how a thread gets a worker, and which one.
//! - `collect`: what a worker retires, and how it frees that after a grace period.
//! - [`commit`]: the steps of a commit that are the same for all protocols.
//! - [`thread`](mod@thread): the worker as its thread uses it.
//! - [`idle`]: how other workers take over what an idle one holds.
//! - `inline`: how rows are moved back into their records.
//! - `undoable`: what the simulated machine needs to undo whole transactions.

mod by_index;
mod claim;
mod collect;
mod commit;
mod discarded;
#[cfg(feature = "canary")]
mod flaw;
mod idle;
mod inline;
mod room;
mod row_counts;
mod thread;
#[cfg(weft_sim)]
mod undoable;

use std::alloc::Layout;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, OnceLock, PoisonError};

#[cfg(weft_sim)]
use weft_htm::planted::Bug;
use weft_htm::word::{Mutex, Ordering, Word};
use weft_htm::{Htm, Regions, Statistics, StatisticsReader};

pub use by_index::{CountsByIndex, IndexMemory, IndexUse};
pub use claim::{ClaimGuard, LastWorker, WorkerOwner, remembers_workers};
pub use commit::{
    CommitGuard, EngineLog, LoggedAs, LoggedOperation, LoggedWrite, NOT_STAGED, Prepared,
    RecordOutcome, ReplacedRow, WriteOutcome,
};
use discarded::DiscardedList;
pub use discarded::{DiscardedValue, contain};
#[cfg(feature = "canary")]
pub use flaw::OperationFlaw;
pub use idle::IdleWorkers;
use inline::LeftPlace;
pub use room::Growth;
pub use thread::{
    BufferPlace, ExpectedRecord, IndexBuffer, LeafHints, PinnedWorker, StoredForm, WorkerState,
};

use crate::error::{ConflictReason, Failure};
use crate::index::IndexWorker;
use crate::store::ages::{Ages, TransactionAge};
use crate::store::deadline::Deadline;
use crate::store::garbage::{Batch, Garbage, RetiredItem};
use crate::store::observer::{Observed, Observer};
use crate::store::recent::RecentSnapshot;
use crate::store::record::arena::{Arena, Memory, SizeClass, allocate_huge, free_huge};
use crate::store::record::tid::{Tid, TidWord};
use crate::store::record::version::{Deletion, VersionHeader};
use crate::store::retention::{OpenSnapshots, RetainedEntry, Retention};
use crate::store::table::TableRef;
use crate::sync::clock::{ActivityWords, Clock};
use crate::sync::gate::Gate;
use crate::sync::reclaim::GracePeriods;
use crate::sync::time::Time;
use crate::sync::turnstile::Turnstile;
use crate::sync::wait_queue::WaitQueue;

/// What all workers of a database share, whatever the protocol.
pub struct SharedState {
    pub memory: Memory,
    pub grace: GracePeriods,
    /// The workers whose lists others take over while they are idle.
    pub idle: IdleWorkers,
    pub clock: Arc<Clock>,
    /// The time that transactions go by.
    pub time: Time,
    /// A mistake that operations make on purpose.
    #[cfg(feature = "canary")]
    pub operation_flaw: Option<OperationFlaw>,
    /// See [`CommitsByRows`](crate::commit::CommitsByRows).
    pub commits_by_rows: bool,
    /// The first table, if there is one.
    pub first_table: OnceLock<TableRef>,
    /// Which workers are committing.
    pub commits: ActivityWords,
    /// The open snapshots, and what is kept for them.
    pub retention: Retention,
    /// The recent snapshot, which readers share.
    pub recent: RecentSnapshot,
    pub htm: Htm,
    pub counters: Box<[Counters]>,
    /// How many workers threads can claim at the same time. (One more may be the log's.)
    pub claimable_max: usize,
    /// What is counted by index.
    pub by_index: CountsByIndex,
    /// Whether transactions may begin: [`OPEN`], [`CLOSED`] or [`LOADING`].
    pub admission: Word,
    /// Keeps procedures in pieces apart from all other transactions, if the protocol runs procedures in
    /// pieces.
    pub gate: Option<Arc<Gate>>,
    /// The history, if it is recorded.
    #[cfg(feature = "history")]
    pub(crate) recording: Option<Arc<crate::history::Recording>>,
    /// The log, if there is one.
    pub log: OnceLock<EngineLog>,
    /// What must be done before the log ends an epoch, if there is anything.
    pub before_epoch_ends: OnceLock<Box<dyn BeforeEpochEnds>>,
    /// The version after which new records begin: see [`WorkerMemory::begin_versions`].
    versions_begin: TidWord,
    /// The ages of transactions, and the limits on them.
    pub ages: Ages,
    /// The database's observer, if it has one.
    pub observer: Option<Arc<dyn Observer>>,
    /// Lets starving transactions through.
    pub turnstile: Turnstile,
    /// Garbage of workers that have left, and the number of batches in it.
    orphans: Mutex<VecDeque<Batch>>,
    orphan_batches: Word,
    slots: Mutex<Slots>,
    /// The threads that wait for a worker.
    pub waiting: WaitQueue,
}

/// Makes sure that everything has been logged that belongs to an epoch.
pub trait BeforeEpochEnds: Send + Sync {
    /// Makes, and logs, the changes that were committed in the present epoch, but are not in the rows yet. The log calls it
    /// after the gate, from one thread at a time. Returns false if the epoch cannot end yet.
    fn make_whole(&self) -> bool;
}

/// The database is open: transactions may begin.
pub const OPEN: u64 = 0;
/// The database is closed: no transaction begins any more.
pub const CLOSED: u64 = 1;
/// A table is being loaded: no transaction begins until that is done.
pub const LOADING: u64 = 2;

impl SharedState {
    /// Returns an error unless a transaction or a snapshot may begin.
    ///
    /// Relaxed: a thread that changes the word then waits for all workers that were pinned before they could
    /// see the change.
    #[inline(always)]
    pub fn check_open(&self) -> Result<(), Failure> {
        match self.admission.load(Ordering::Relaxed) {
            OPEN => Ok(()),
            LOADING => Err(Failure::Loading),
            _ => Err(Failure::Closed),
        }
    }
}

#[derive(Default)]
struct Slots {
    /// Slots that no thread remembers. Another thread may have claimed one of them all the same.
    free: Vec<usize>,
    used: usize,
    /// How many threads remember each slot.
    remembered_by: Vec<u32>,
    /// Where the search for a worker that some thread remembers begins next.
    next_search: usize,
    htm_readers: Vec<Option<StatisticsReader>>,
    htm_departed: Statistics,
}

/// A worker's counters. Only the worker writes them (a plain load and store each); any thread may read them.
/// They belong to the slot: a later worker of the slot goes on counting.
#[repr(align(64))]
#[derive(Debug, Default)]
pub struct Counters {
    pub committed: Word,
    /// The transaction that is running, or 0: see [`ages`](crate::store::ages).
    pub running: Word,
    /// The transaction that was found to be too old.
    pub expired: Word,
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
    pub carried_over: Word,
    /// Commits that have applied operations again.
    pub reapplied: Word,
    /// Values of the user's types whose `Drop` panicked.
    pub drops_panicked: Word,
}

impl Counters {
    /// Adds one to a counter of the calling worker. Relaxed: a statistic with a single writer.
    #[inline(always)]
    pub fn count(counter: &Word) {
        Counters::add(counter, 1);
    }

    /// Adds `count`, which wraps around, to a counter of the calling worker.
    #[inline(always)]
    pub fn add(counter: &Word, count: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }
}

impl SharedState {
    pub fn new(htm: Htm, workers_max: usize) -> Self {
        SharedState {
            memory: Memory::default(),
            grace: GracePeriods::new(workers_max),
            idle: IdleWorkers::new(workers_max),
            clock: Arc::new(Clock::default()),
            time: Time::default(),
            #[cfg(feature = "canary")]
            operation_flaw: None,
            commits_by_rows: false,
            first_table: OnceLock::new(),
            commits: ActivityWords::new(workers_max),
            retention: Retention::default(),
            recent: RecentSnapshot::default(),
            htm,
            counters: (0..workers_max).map(|_| Counters::default()).collect(),
            claimable_max: workers_max,
            by_index: CountsByIndex::default(),
            admission: Word::new(OPEN),
            gate: None,
            #[cfg(feature = "history")]
            recording: None,
            log: OnceLock::new(),
            before_epoch_ends: OnceLock::new(),
            versions_begin: TidWord::new(Tid::at(0)),
            ages: Ages::default(),
            observer: None,
            turnstile: Turnstile::default(),
            orphans: Mutex::new(VecDeque::new()),
            orphan_batches: Word::new(0),
            slots: Mutex::new(Slots::default()),
            waiting: WaitQueue::default(),
        }
    }

    /// Advances the time. Looks at how much memory is used, and at the ages of transactions and snapshots, and marks
    /// those that are too old. Returns the oldest transaction.
    pub fn watch_ages(&self) -> Option<TransactionAge> {
        self.time.follow_system();
        if self.ages.snapshot_limit.is_some() {
            self.retention.expire();
        }
        if self.memory.limit().is_some() {
            self.measure_memory();
        }
        self.ages.watch(&self.counters[..self.grace.slots_used()])
    }

    /// Returns whether there are many more workers than cores (a few of them may be at rest), so that one may lose its core in
    /// the midst of its work. Tests take it as given.
    pub fn is_crowded(&self) -> bool {
        static CORES: LazyLock<usize> =
            LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
        // On the simulated machine each worker has a core.
        !cfg!(weft_sim) && (super::RECLAIMS_EARLY || self.grace.slots_used() > 2 * *CORES)
    }

    /// Returns the number of workers that threads remember, or use.
    pub fn workers(&self) -> usize {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.used.saturating_sub(slots.free.len())
    }

    /// Returns the HTM statistics of all workers.
    pub fn htm_statistics(&self) -> Statistics {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = slots.htm_departed;
        for reader in slots.htm_readers.iter().flatten() {
            total += reader.statistics();
        }
        total
    }

    /// Sets where the statistics of a slot's worker are read. The caller has claimed the slot.
    pub fn set_reader(&self, slot: usize, reader: StatisticsReader) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(previous) = slots.htm_readers[slot].replace(reader) {
            slots.htm_departed += previous.statistics();
        }
    }

    /// Leaves garbage for other workers to take over.
    fn leave_orphans(&self, batches: Vec<Batch>) {
        if !batches.is_empty() {
            let mut orphans = self.orphans.lock().unwrap_or_else(PoisonError::into_inner);
            self.orphan_batches.fetch_add(batches.len() as u64, Ordering::Relaxed);
            orphans.extend(batches);
        }
    }

    /// Takes the garbage of workers that have left. Called when the database is dropped.
    pub fn take_orphans(&self) -> VecDeque<Batch> {
        std::mem::take(&mut *self.orphans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A worker's memory: its arena, its garbage, its slot in the grace periods, and its hardware regions. Used
/// by one thread at a time.
pub struct WorkerMemory {
    shared: Arc<SharedState>,
    slot: usize,
    arena: UnsafeCell<Arena>,
    garbage: UnsafeCell<Garbage>,
    regions: Regions,
    /// The snapshot number that the commit under way has drawn. This field and the next are words, although
    /// only the worker uses them, because regions write them.
    drawn: Word,
    /// 1 while a commit is under way.
    is_committing: Word,
    /// Whether the worker's transactions only reconcile what was already committed and logged.
    is_reconciling: Cell<bool>,
    /// Entries to keep for snapshots, until there are enough of them for the common lists.
    retained: RefCell<Vec<RetainedEntry>>,
    /// The places from which rows were moved into their records, until the end of the batch of garbage.
    left_places: RefCell<Vec<LeftPlace>>,
    /// The open snapshots, as the worker last listed them.
    open_snapshots: RefCell<OpenSnapshots>,
    /// The version after which the placeholders of the transaction under way begin.
    versions_begin: Cell<u64>,
    /// The version after which new records began when the batch was sealed that is being freed.
    batch_begins: Cell<u64>,
    /// The version after which new records have to begin so that all deleted records may leave their indexes.
    begin_wanted: Cell<Tid>,
    /// The writes of the commit under way, encoded for the log.
    staged: RefCell<commit::StagedWrites>,
    /// What the next entries in the log belong to.
    logged_as: Cell<LoggedAs>,
    scratch: RefCell<Vec<u8>>,
    /// The time of the transaction under way: see [`Time`].
    now: Cell<u64>,
    /// Values to drop when the transaction has ended.
    discarded: DiscardedList,
    /// Whether the engine is calling the user's code while it holds something of the worker's.
    is_in_user_code: Cell<bool>,
    /// The position of the worker's counts in [`CountsByIndex`].
    counts_start: usize,
    /// What the worker's use of memory outside chunks has changed by since it was last reported, in bytes.
    unreported: Cell<i64>,
    /// The transaction under way, and how many writes it has made. Counted if memory is limited.
    writes: Cell<(u64, u64)>,
    /// The most writes that a transaction of the worker has made.
    writes_max: Cell<u64>,
    /// The transaction under way, as the database's observer sees it.
    pub observed: Option<Box<Observed>>,
    /// The deadline of the transaction that begins, and the number of its attempts.
    deadline: Cell<Option<(Deadline, u32)>>,
    /// The blocks that the transaction under way has allocated and freed.
    #[cfg(weft_sim)]
    undoable: RefCell<undoable::UndoableBlocks>,
}

impl WorkerMemory {
    pub fn new(shared: Arc<SharedState>, slot: usize) -> Self {
        let regions = Regions::new(&shared.htm);
        let counts_start = shared.by_index.start_of(slot);
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
            left_places: RefCell::default(),
            open_snapshots: RefCell::default(),
            versions_begin: Cell::new(0),
            batch_begins: Cell::new(0),
            begin_wanted: Cell::new(Tid::at(0)),
            staged: RefCell::default(),
            logged_as: Cell::new(LoggedAs::Transaction),
            scratch: RefCell::default(),
            now: Cell::new(0),
            discarded: DiscardedList::default(),
            is_in_user_code: Cell::new(false),
            counts_start,
            unreported: Cell::new(0),
            writes: Cell::new((0, 0)),
            writes_max: Cell::new(0),
            observed: None,
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
    pub fn shared(&self) -> &SharedState {
        &self.shared
    }

    /// Returns the time of the transaction under way, in milliseconds since 1970.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// Sets the time of the transaction that begins.
    #[inline(always)]
    pub fn set_now(&self, now: u64) {
        self.now.set(now);
    }

    /// Returns whether so much garbage waits for this transaction, perhaps among others, that it should end
    /// soon: whether more than two batches, and more than one for every four workers, were sealed since it
    /// began.
    pub fn holds_back_others(&self) -> bool {
        // Not in hasty builds, where a batch is only a few entries.
        let grace = &self.shared.grace;
        let many = (grace.slots_used() as u64 / 4).max(2);
        !crate::store::RECLAIMS_EARLY && grace.sealed_since(self.slot) > many
    }

    /// Returns the present epoch.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.shared.clock.epoch()
    }

    /// Returns the worker's number, as operations know it.
    #[inline(always)]
    pub fn core(&self) -> u32 {
        self.slot as u32
    }

    #[inline(always)]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters[self.slot]
    }

    /// Notes the transaction that is running, for [`Ages::watch`].
    #[inline(always)]
    pub fn note_running(&self, transaction: u64) {
        // Relaxed: the watcher compares numbers, and reads nothing else that is written before or after them.
        self.counters().running.store(transaction, Ordering::Relaxed);
    }

    /// Notes that no transaction is running.
    #[inline(always)]
    pub fn note_ended(&self) {
        self.note_running(0);
    }

    /// Counts an aborted attempt, by its reason and by the table in which the conflict was.
    pub fn count_abort(&self, reason: ConflictReason, table: TableRef) {
        Counters::count(&self.counters().aborted[reason as usize]);
        Counters::count(&self.counts(table.core().number).aborts);
    }

    /// Returns the arena. Every use is a single call into it, and that call does not use the worker's memory.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the cell is the worker's own")]
    fn arena(&self) -> &mut Arena {
        // SAFETY: `WorkerMemory` is not Sync, and no method of this file holds the reference across a call
        // that could ask for it again.
        unsafe { &mut *self.arena.get() }
    }

    /// Returns the garbage; as [`WorkerMemory::arena`].
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the cell is the worker's own")]
    fn garbage(&self) -> &mut Garbage {
        // SAFETY: as in `arena`.
        unsafe { &mut *self.garbage.get() }
    }

    /// Runs code of the user's types while the caller holds something of the worker's, for example its
    /// executor. If that code calls the transaction, the call is refused.
    pub fn in_user_code<R>(&self, user_code: impl FnOnce() -> R) -> R {
        /// Restores the previous state, also if the user's code panics.
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

    /// Sets when the transaction that begins must stop waiting, and the number of its attempts.
    #[inline(always)]
    pub fn set_deadline(&self, deadline: Option<Deadline>, attempts: u32) {
        self.deadline.set(deadline.map(|deadline| (deadline, attempts)));
    }

    /// Returns an error if a wait for other transactions must end.
    ///
    /// # Errors
    /// [`Failure::Closed`] or [`Failure::Loading`] if the database is not open; [`Failure::DeadlineExceeded`]
    /// if the deadline has passed.
    pub fn keep_waiting(&self) -> Result<(), Failure> {
        self.shared.check_open()?;
        match self.deadline.get() {
            Some((deadline, attempts)) => deadline.check(attempts),
            None => Ok(()),
        }
    }

    /// Returns whether the user's code is running: see [`WorkerMemory::in_user_code`].
    #[inline(always)]
    pub fn is_in_user_code(&self) -> bool {
        self.is_in_user_code.get()
    }

    /// Pins the worker: until it is unpinned, nothing that it can find is freed.
    #[inline(always)]
    pub fn pin(&self) {
        self.shared.grace.pin(self.slot);
    }

    /// Unpins the worker, and collects garbage if a batch is full.
    #[inline(always)]
    pub fn unpin(&self) {
        self.shared.grace.unpin(self.slot);
        if self.garbage().is_batch_full() {
            self.collect();
        }
    }

    // ---- blocks ---------------------------------------------------------------------------

    #[inline(always)]
    pub fn allocate_block(&self, class: SizeClass) -> NonNull<u8> {
        let block = self.arena().allocate(class, &self.shared.memory);
        #[cfg(weft_sim)]
        self.undoable.borrow_mut().note_allocated(block, class);
        block
    }

    /// Allocates a block for a row of `table`, with the header of a version that has no predecessor, and
    /// returns the address for the row.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn allocate_row(&self, table: TableRef) -> NonNull<u8> {
        let block = self.allocate_block(table.core().row_class);
        #[cfg(weft_sim)]
        weft_htm::simulation::sync::touch(block.as_ptr(), table.core().row_class.bytes(), true);
        // SAFETY: a new block of the table's row class, which holds a header, a row and what lies behind it.
        unsafe {
            let row = VersionHeader::initialise(block);
            if let Some(counted) = table.core().counted_heap(row) {
                counted.write(0);
            }
            row
        }
    }

    /// Allocates the block of a record of `table`.
    #[inline(always)]
    pub fn allocate_record(&self, table: TableRef) -> NonNull<u8> {
        Counters::count(&self.counts(table.core().number).records);
        self.allocate_block(table.core().record_class)
    }

    /// Frees the block of a record that was not published.
    ///
    /// # Safety
    /// As for [`Arena::free`]; [`WorkerMemory::allocate_record`] has returned the block for the same table.
    #[inline(always)]
    pub unsafe fn free_record_block(&self, block: NonNull<u8>, table: TableRef) {
        Counters::add(&self.counts(table.core().number).records, u64::MAX);
        // SAFETY: passed on to the caller.
        unsafe { self.free_block(block, table.core().record_class) };
    }

    /// # Safety
    /// As for [`Arena::free`].
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub unsafe fn free_block(&self, block: NonNull<u8>, class: SizeClass) {
        #[cfg(weft_sim)]
        if Bug::is_any_planted()
            || self.undoable.borrow_mut().note_freed(block, class, &self.regions)
        {
            return;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.arena().free(block, class, &self.shared.memory) };
    }

    /// Drops a row that no thread can reach any more. Unless the row lies inline in its record, also frees
    /// its block. What a row owns is dropped only when the transaction under way has ended: see `discarded`.
    ///
    /// # Safety
    /// `row` is a complete row of `table`. It is not used again, nor is its block unless the row is `inline`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub unsafe fn drop_row(&self, row: NonNull<u8>, table: TableRef, inline: bool) {
        #[cfg(weft_sim)]
        if Bug::is_any_planted() {
            return; // It may be in use, or have been dropped before.
        }
        if table.core().drop_row.is_some() {
            debug_assert!(!inline, "rows that own something have blocks of their own");
            return self.discard(DiscardedValue::Row(row, table));
        }
        // SAFETY: passed on to the caller.
        unsafe { self.free_row(row, table, inline) };
    }

    /// Frees the memory of a row that no longer owns anything.
    ///
    /// # Safety
    /// As for [`WorkerMemory::drop_row`].
    #[cfg_attr(not(debug_assertions), inline(always))]
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

    /// Frees the block of a record. If its inline slot is awaited, this is left to [`move_inline`].
    ///
    /// [`move_inline`]: WorkerMemory::move_inline
    ///
    /// # Safety
    /// No index leads to the record, no thread holds its address, and its rows have been dropped.
    #[inline(always)]
    pub unsafe fn free_record(&self, record: NonNull<u8>, table: TableRef) {
        Counters::add(&self.counts(table.core().number).records, u64::MAX);
        // SAFETY: by the contract; records have blocks of the table's record class.
        unsafe {
            if !table.inline_slot(record).is_some_and(VersionHeader::abandon_slot) {
                self.free_block(record, table.core().record_class);
            }
        }
    }

    // ---- garbage --------------------------------------------------------------------------

    /// Begins a transaction that the simulated machine may undo; if it does, blocks and garbage are again as
    /// they are now. Also ends the previous such transaction.
    #[cfg(weft_sim)]
    pub fn begin_undoable(&self) {
        self.garbage().mark();
        self.mark_discarded();
        let freed = self.undoable.borrow_mut().begin();
        if Bug::is_any_planted() {
            return; // The blocks may be in use.
        }
        for (block, class) in freed {
            // SAFETY: the code that freed the block did not use it again, and the region whose undoing could
            // have brought it back has committed.
            unsafe { self.arena().free(block, class, &self.shared.memory) };
        }
    }

    /// Notes that the transaction, or the piece of one, cannot be undone any more: it has begun no region, or
    /// its region has committed.
    #[cfg(weft_sim)]
    pub fn end_undoable(&self) {
        self.undoable.borrow_mut().end();
    }

    /// Takes back what has happened to blocks and garbage since [`WorkerMemory::begin_undoable`]: what was
    /// retired or freed is in use again, and nothing leads to what was allocated.
    #[cfg(weft_sim)]
    pub fn undo(&self) {
        self.garbage().forget_since_mark();
        self.forget_discarded();
        let allocated = self.undoable.borrow_mut().undo();
        if Bug::is_any_planted() {
            return; // The blocks may be in use.
        }
        for (block, class) in allocated.into_iter().rev() {
            // SAFETY: the region that allocated the block was undone, and so was every word that led to it.
            // Unwinding out of the region has dropped everything else.
            unsafe { self.arena().free(block, class, &self.shared.memory) };
        }
    }
}

impl IndexWorker for WorkerMemory {
    #[inline(always)]
    fn regions(&self) -> &Regions {
        &self.regions
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn allocate(&self, layout: Layout) -> NonNull<u8> {
        match SizeClass::of(layout) {
            Some(class) => self.allocate_block(class),
            None => {
                self.shared.memory.report_mapped(layout.size() as i64);
                allocate_huge(layout)
            }
        }
    }

    fn may_allocate(&self, bytes: usize) -> bool {
        self.shared.memory.may_index_take(bytes)
    }

    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller; the same layout selects the same allocator as in `allocate`.
        unsafe {
            match SizeClass::of(layout) {
                Some(class) => self.free_block(block, class),
                None => {
                    self.shared.memory.report_mapped(-(layout.size() as i64));
                    free_huge(block, layout);
                }
            }
        }
    }

    unsafe fn retire(&self, block: NonNull<u8>, layout: Layout) {
        let retired = match SizeClass::of(layout) {
            Some(class) => RetiredItem::Block(block, class),
            None => RetiredItem::Large(block, Box::new(layout)),
        };
        self.garbage().push(retired, layout.size());
    }
}
