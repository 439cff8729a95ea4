//! Workers: what a thread needs to run transactions on a database.
//!
//! A thread becomes a worker of a database by its first transaction on it, and stops being one
//! when it ends. A worker has a slot (for grace periods and counters), an arena, a list of
//! garbage, and an executor of the protocol. The database owns all of it; the thread keeps only
//! a registration, which its end releases.

use std::alloc::Layout;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, PoisonError};

use weft_htm::word::{Mutex, Ordering, Word};
use weft_htm::{Htm, Regions, Statistics, StatisticsReader};

use crate::durability::{Log, format};
use crate::encoding::KeyForm;
use crate::epoch::clock::{Clock, Commits, epoch_of};
use crate::epoch::garbage::{Batch, Garbage, Retired};
use crate::epoch::reclaim::GracePeriods;
use crate::error::{ConflictReason, Failure};
use crate::index::bplus_tree::{LeafHint, Page};
use crate::index::{IndexWorker, LongKey};
use crate::protocol::{Executor, Protocol, Settled};
use crate::record::arena::{Arena, Class, Memory, allocate_huge, free_huge};
use crate::record::version::{self, Deletion, NEVER, UNNUMBERED, VersionHeader};
use crate::snapshot::retention::{Kept, NONE_OPEN, Retained, Retention};
use crate::table::TableRef;
use crate::turnstile::Turnstile;

/// What all workers of a database share, whatever the protocol.
pub struct Shared {
    pub memory: Memory,
    pub grace: GracePeriods,
    pub clock: Arc<Clock>,
    /// Which workers are committing.
    pub commits: Commits,
    /// The open snapshots, and what is kept for them.
    pub retention: Retention,
    pub htm: Htm,
    pub counters: Box<[Counters]>,
    /// Whether transactions begin: [`OPEN`], [`CLOSED`] or [`LOADING`].
    pub closed: Word,
    /// The history, if it is recorded.
    #[cfg(feature = "history")]
    pub(crate) recording: Option<Arc<crate::history::Recording>>,
    /// The log, if there is one.
    pub log: OnceLock<EngineLog>,
    /// Lets starving transactions through.
    pub turnstile: Turnstile,
    /// Garbage of workers that left, and how many batches of it there are.
    orphans: Mutex<Vec<Batch>>,
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

/// The log, as the workers see it.
#[derive(Debug)]
pub struct EngineLog {
    pub log: Arc<Log>,
    /// For protocols whose versions do not order the writes of a record.
    sequence: Word,
    /// The last epoch in which anything was appended.
    last_epoch: Word,
}

impl EngineLog {
    pub fn new(log: Arc<Log>) -> Self {
        EngineLog { log, sequence: Word::new(0), last_epoch: Word::new(0) }
    }

    /// Notes that something was appended in an epoch.
    #[cold]
    fn raise_last_epoch(&self, epoch: u64) {
        let mut last = self.last_epoch.load(Ordering::Relaxed);
        // Release: pairs with the acquire in `last_epoch`.
        while last < epoch
            && let Err(now) =
                self.last_epoch.compare_exchange(last, epoch, Ordering::Release, Ordering::Relaxed)
        {
            last = now;
        }
    }

    /// The last epoch in which anything was appended: if it is durable, all is.
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch.load(Ordering::Acquire)
    }
}

/// A write of a committed transaction, for the log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedWrite {
    pub table: TableRef,
    pub written: Written,
    /// Orders the writes of a key within an epoch.
    pub order: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug)]
pub enum Written {
    /// A row.
    Row(NonNull<u8>),
    /// Nothing: this row was deleted.
    Deleted(NonNull<u8>),
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
}

impl Counters {
    /// Adds one to a counter of the calling worker. Relaxed: a statistic, of a single writer.
    #[inline(always)]
    pub fn count(counter: &Word) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Shared {
    pub fn new(htm: Htm, workers_max: usize) -> Self {
        Shared {
            memory: Memory::default(),
            grace: GracePeriods::new(workers_max),
            clock: Arc::new(Clock::default()),
            commits: Commits::new(workers_max),
            retention: Retention::default(),
            htm,
            counters: (0..workers_max).map(|_| Counters::default()).collect(),
            closed: Word::new(OPEN),
            #[cfg(feature = "history")]
            recording: None,
            log: OnceLock::new(),
            turnstile: Turnstile::default(),
            orphans: Mutex::new(Vec::new()),
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

    /// Whether a record may leave its index whose newest version this is: if it was deleted, no
    /// snapshot needs it, and no older version is on some list, which leads to the record.
    ///
    /// # Safety
    /// As for [`VersionHeader::of`].
    pub unsafe fn may_unlink(&self, newest: &VersionHeader) -> bool {
        // SAFETY: passed on to the caller; a deletion lives as long as its version.
        unsafe {
            let is_old_enough = match newest.deletion() {
                Some(deletion) => self.retention.oldest() >= deletion.as_ref().number,
                None => newest.number() == NEVER,
            };
            is_old_enough && newest.predecessor().is_none()
        }
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

    /// Takes the garbage of workers that left, when the database is being dropped.
    pub fn take_orphans(&self) -> Vec<Batch> {
        std::mem::take(&mut *self.orphans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The shard of a key, by which recovery divides the work among threads.
fn shard_of(key: &[u8]) -> u16 {
    let mut hash = 0u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    (hash >> 48) as u16
}

/// How many entries a worker gathers before it puts them on the common lists.
const RETAINED_AT_ONCE: usize = if cfg!(feature = "hasty-reclamation") { 1 } else { 64 };

/// A worker's memory: its arena and its garbage, its slot among the grace periods, and its
/// hardware regions. Used by one thread at a time.
pub struct WorkerMemory {
    shared: Arc<Shared>,
    slot: usize,
    arena: UnsafeCell<Arena>,
    garbage: UnsafeCell<Garbage>,
    regions: Regions,
    /// The snapshot number that the commit under way has drawn.
    drawn: Cell<u64>,
    /// Whether a commit is under way.
    is_committing: Cell<bool>,
    /// What is to be kept for snapshots, until there is enough of it for the common lists.
    retained: RefCell<Vec<Retained>>,
    /// The numbers of the snapshots that are open, as of the commit under way; empty if they have
    /// not been asked for.
    open_snapshots: RefCell<Vec<u64>>,
    /// The key of the row that is being logged.
    encoded_key: RefCell<Vec<u8>>,
    /// Deleted records that may leave their indexes in a later epoch than that of the deletion, and
    /// that epoch: see [`WorkerMemory::retire_deleted`].
    deleted: RefCell<VecDeque<(u64, Retired)>>,
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
            drawn: Cell::new(0),
            is_committing: Cell::new(false),
            retained: RefCell::default(),
            open_snapshots: RefCell::default(),
            encoded_key: RefCell::default(),
            deleted: RefCell::default(),
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

    #[inline(always)]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters[self.slot]
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

    /// Begins a period in which nothing is freed that this worker can find.
    #[inline(always)]
    pub fn pin(&self) {
        self.shared.grace.pin(self.slot);
    }

    /// Ends the period, and collects garbage if there is enough.
    #[inline(always)]
    pub fn unpin(&self) {
        self.shared.grace.unpin(self.slot);
        if self.garbage().is_batch_full() {
            self.collect();
        }
    }

    // ---- blocks ---------------------------------------------------------------------------

    #[inline(always)]
    pub fn allocate_block(&self, class: Class) -> NonNull<u8> {
        self.arena().allocate(class, &self.shared.memory)
    }

    /// The place of a new row of `table`, in a block of its own, with the header of a version that
    /// has no predecessor.
    #[inline(always)]
    pub fn allocate_row(&self, table: TableRef) -> NonNull<u8> {
        let block = self.allocate_block(table.core().row_class);
        // SAFETY: a new block of the table's row class, which holds a header and a row.
        unsafe { VersionHeader::initialise(block) }
    }

    /// # Safety
    /// As for [`Arena::free`].
    #[inline(always)]
    pub unsafe fn free_block(&self, block: NonNull<u8>, class: Class) {
        // SAFETY: passed on to the caller.
        unsafe { self.arena().free(block, class, &self.shared.memory) };
    }

    /// Drops a row that nobody can reach any more and, unless it lies inline in its record, frees
    /// its block.
    ///
    /// # Safety
    /// `row` is a complete row of `table`; neither it nor (if not `inline`) its block is used
    /// again.
    #[inline(always)]
    pub unsafe fn drop_row(&self, row: NonNull<u8>, table: TableRef, inline: bool) {
        let core = table.core();
        if let Some(drop_row) = core.drop_row {
            // SAFETY: by the contract.
            unsafe { drop_row(row) };
        }
        // SAFETY: by the contract; rows that are not inline have blocks of the table's row class.
        unsafe {
            if let Some(deletion) = VersionHeader::of(row).deletion() {
                self.free(deletion.cast(), Deletion::LAYOUT);
            }
            if !inline {
                self.free_block(VersionHeader::block(row), core.row_class);
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

    // ---- commits --------------------------------------------------------------------------

    /// Draws the snapshot number of the transaction that is being committed, and returns its
    /// epoch. From here to [`WorkerMemory::end_commit`] snapshots wait for it.
    #[inline(always)]
    pub fn draw(&self) -> u64 {
        self.shared.commits.begin(self.slot);
        self.is_committing.set(true);
        let number = self.shared.clock.number();
        self.drawn.set(number);
        epoch_of(number)
    }

    /// The epoch that has to be durable for the transaction that has just committed to be so: its own
    /// or, if it has written nothing, the last in which anything was written. 0 if there is no log.
    #[inline(always)]
    pub fn last_epoch_relied_on(&self) -> u64 {
        let drawn = epoch_of(self.drawn.replace(0));
        match self.shared.log.get() {
            None => 0,
            Some(_) if drawn != 0 => drawn,
            Some(engine) => engine.last_epoch(),
        }
    }

    /// Ends the commit that [`WorkerMemory::draw`] began, if it did: what was committed has its
    /// numbers.
    #[inline(always)]
    pub fn end_commit(&self) {
        if self.is_committing.replace(false) {
            self.shared.commits.end(self.slot);
            self.open_snapshots.borrow_mut().clear();
        }
    }

    /// This worker's slot, if it is committing.
    pub fn committing_slot(&self) -> Option<usize> {
        self.is_committing.get().then_some(self.slot)
    }

    /// The epoch that the commit under way has drawn.
    #[inline(always)]
    pub fn drawn_epoch(&self) -> u64 {
        epoch_of(self.drawn.get())
    }

    /// Whether commits are logged.
    #[inline(always)]
    pub fn is_logging(&self) -> bool {
        self.shared.log.get().is_some()
    }

    /// A number for the log, greater than all before: see [`LoggedWrite::order`].
    pub fn next_in_log(&self) -> u64 {
        let log = self.shared.log.get().expect("asked only if commits are logged");
        // Relaxed: two who write the same record draw one after the other.
        log.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends the writes of the commit under way to the log, if there is one.
    #[inline(never)]
    pub fn log(&self, writes: impl Iterator<Item = LoggedWrite>) {
        let Some(engine) = self.shared.log.get() else { return };
        let mut writes = writes.filter_map(|write| Some((write.table.core().log_number()?, write)));
        let Some(first) = writes.next() else { return };
        let epoch = self.drawn_epoch();
        engine.log.append(self.slot, epoch, |buffer| {
            format::push_transaction(buffer);
            let mut key = self.encoded_key.borrow_mut();
            for (number, write) in std::iter::once(first).chain(writes) {
                let core = write.table.core();
                let (Written::Row(row) | Written::Deleted(row)) = write.written;
                key.clear();
                // SAFETY: pinned, so what was written or deleted just now is not freed; only logged
                // tables have a number.
                unsafe { core.encode_key(row, &mut key) };
                let shard = shard_of(&key);
                match write.written {
                    Written::Row(row) => {
                        format::push_put(buffer, number, shard, write.order, |buffer| {
                            // SAFETY: likewise.
                            unsafe { core.encode_row(row, buffer) };
                        });
                    }
                    Written::Deleted(_) => {
                        format::push_delete(buffer, number, shard, write.order, |buffer| {
                            buffer.extend_from_slice(&key);
                        });
                    }
                }
            }
        });
        if engine.last_epoch.load(Ordering::Relaxed) < epoch {
            engine.raise_last_epoch(epoch);
        }
    }

    /// Gives a row that was installed by the commit under way its number.
    #[inline(always)]
    pub fn number(&self, row: NonNull<u8>) {
        // SAFETY: pinned, and installed while it was.
        unsafe { VersionHeader::of(row) }.set_number(self.drawn.get());
    }

    /// Retires a version that the commit under way has replaced: at once, or when no snapshot
    /// needs it any more. `row` is what has replaced it, and has its number.
    ///
    /// # Safety
    /// The caller has replaced the version, in the record in block `record`, of `table`, and it
    /// alone; the worker is pinned since before.
    #[inline(always)]
    pub unsafe fn supersede(
        &self,
        table: TableRef,
        record: NonNull<u8>,
        row: NonNull<u8>,
        replaced: NonNull<u8>,
        inline: bool,
    ) {
        // SAFETY: pinned, and each is or was the record's.
        let (new, old) = unsafe { (VersionHeader::of(row), VersionHeader::of(replaced)) };
        if self.shared.retention.oldest() == NONE_OPEN && old.is_last() && new.cut(replaced) {
            self.retire_row(replaced, table, inline);
        } else {
            // SAFETY: passed on to the caller.
            unsafe { self.keep_or_unlink(table, record, replaced) };
        }
    }

    /// As [`WorkerMemory::supersede`], for a row that was deleted before. Whoever has deleted it has
    /// committed, and is about to mark it.
    ///
    /// # Safety
    /// As for [`WorkerMemory::supersede`].
    pub unsafe fn supersede_deleted(
        &self,
        table: TableRef,
        record: NonNull<u8>,
        row: NonNull<u8>,
        deleted: NonNull<u8>,
        inline: bool,
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            while !VersionHeader::of(deleted).is_deleted() {
                weft_htm::word::yield_now();
            }
            self.supersede(table, record, row, deleted, inline);
        }
    }

    /// # Safety
    /// As for [`WorkerMemory::supersede`].
    #[cold]
    unsafe fn keep_or_unlink(&self, table: TableRef, record: NonNull<u8>, replaced: NonNull<u8>) {
        let end = self.drawn.get();
        let entry = Retained { kept: Kept::Version(replaced), record, table, end };
        self.list_open_snapshots();
        // SAFETY: by the contract the version is the caller's to retire.
        if unsafe { entry.needed_by(&self.open_snapshots.borrow()) }.is_some() {
            self.retain(entry);
        } else {
            // SAFETY: likewise.
            unsafe { self.unlink_version(&entry) };
        }
    }

    /// Asks for the open snapshots, once per commit. (Those that are opened later need nothing that
    /// the commit replaces.)
    fn list_open_snapshots(&self) {
        let mut open = self.open_snapshots.borrow_mut();
        if open.is_empty() && self.shared.retention.oldest() != NONE_OPEN {
            self.shared.retention.list_open(&mut open);
        }
    }

    /// Unlinks a version from its record, and retires it.
    ///
    /// # Safety
    /// The caller owns the version, and is pinned since before it came to own it.
    unsafe fn unlink_version(&self, entry: &Retained) {
        let Kept::Version(row) = entry.kept else { unreachable!("only versions are unlinked") };
        let core = entry.table.core();
        // SAFETY: a record is not freed as long as something hangs below its newest version.
        let (deletion, inline) = unsafe {
            let deletion = VersionHeader::of(row).deletion();
            let chain = self.shared.retention.chains.lock(entry.record);
            version::unlink((core.newest)(entry.record), row);
            drop(chain);
            (deletion, (core.is_inline)(entry.table, entry.record, row))
        };
        if let Some(deletion) = deletion {
            // SAFETY: it has gone with its version.
            unsafe { self.retire(deletion.cast(), Deletion::LAYOUT) };
        }
        self.retire_row(row, entry.table, inline);
    }

    /// Marks a row as deleted by the commit under way: it stays its record's newest.
    ///
    /// # Safety
    /// The caller has deleted the row, and it alone; the worker is pinned since before.
    pub unsafe fn mark_deleted(&self, record: NonNull<u8>, row: NonNull<u8>) {
        // SAFETY: pinned.
        let header = unsafe { VersionHeader::of(row) };
        // Whoever has written the row has committed, and is about to number it.
        while header.number() == UNNUMBERED {
            weft_htm::word::yield_now();
        }
        if self.shared.retention.oldest() == NONE_OPEN {
            header.set_number(NEVER);
            return;
        }
        let block = self.allocate(Deletion::LAYOUT);
        let _chain = self.shared.retention.chains.lock(record);
        // SAFETY: a new block of that layout; the chain is locked.
        unsafe { header.mark_deleted(self.drawn.get(), block) };
    }

    /// Keeps something for the snapshots that are open.
    fn retain(&self, entry: Retained) {
        self.retained.borrow_mut().push(entry);
        if self.retained.borrow().len() >= RETAINED_AT_ONCE {
            self.hand_over_retained();
        }
    }

    /// Puts what is to be kept on the common lists.
    fn hand_over_retained(&self) {
        if self.retained.borrow().is_empty() {
            return;
        }
        let unneeded = self.shared.retention.retain(&mut self.retained.borrow_mut());
        // SAFETY: they were on this worker's own list, hence its own; and see `retire_unneeded`.
        unsafe { self.retire_unneeded(unneeded) };
    }

    /// Looks again at some of what was kept for snapshots that are closed now; false if there was
    /// nothing. To be called while pinned.
    pub fn release_retained(&self) -> bool {
        let is_more = self.shared.retention.has_released();
        let unneeded = self.shared.retention.take_released();
        // SAFETY: they were on the common lists, whose entries own what they stand for; the worker
        // was pinned before it took them.
        unsafe { self.retire_unneeded(unneeded) };
        is_more
    }

    /// # Safety
    /// The entries own what they stand for, and the worker is pinned since before they came here.
    unsafe fn retire_unneeded(&self, entries: Vec<Retained>) {
        for entry in entries {
            match entry.kept {
                // SAFETY: by the contract.
                Kept::Version(_) => unsafe { self.unlink_version(&entry) },
                Kept::DeletedRecord => self.retire_deleted(entry.record, entry.table),
            }
        }
    }

    // ---- garbage --------------------------------------------------------------------------

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
    pub fn retire_deleted(&self, record: NonNull<u8>, table: TableRef) {
        if self.is_logging() {
            let epoch = self.shared.clock.epoch();
            self.deleted.borrow_mut().push_back((epoch, Retired::Deleted(record, table)));
        } else {
            self.push_deleted(Retired::Deleted(record, table), table);
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
            let (_, retired) = deleted.pop_front().expect("there is a first");
            if let Retired::Deleted(_, table) = retired {
                self.push_deleted(retired, table);
            }
        }
    }

    fn push_deleted(&self, deleted: Retired, table: TableRef) {
        self.garbage().push(deleted, table.core().record_class.bytes());
    }

    /// Retires an unlinked record, with the row that it may still hold.
    pub fn retire_record(&self, record: NonNull<u8>, table: TableRef) {
        self.garbage().push(Retired::Record(record, table), table.core().record_class.bytes());
    }

    /// Seals what has gathered, and frees what is ripe. Only between transactions.
    #[cold]
    #[inline(never)]
    pub fn collect(&self) {
        self.adopt_orphans();
        self.queue_deleted();
        self.pin();
        self.release_retained();
        self.shared.grace.unpin(self.slot);
        self.garbage().seal(|| self.shared.grace.seal());
        let horizon = self.shared.grace.horizon();
        while let Some(batch) = self.garbage().take_ripe(horizon) {
            // Unlinking reads index nodes, for which one must be pinned.
            self.pin();
            let mut retired = batch.retired;
            for entry in retired.drain(..) {
                // SAFETY: the batch's grace period has passed.
                unsafe { self.release(entry) };
            }
            self.shared.grace.unpin(self.slot);
            self.garbage().recycle(retired);
        }
        let pending = self.garbage().pending() as u64;
        self.counters().retired_pending.store(pending, Ordering::Relaxed);
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
                Retired::Deleted(record, table) => self.settle_deleted(record, table),
                Retired::Record(record, table) => {
                    (table.core().drop_newest)(table, record, self);
                    self.free_record(record, table);
                }
            }
        }
    }

    /// Unlinks a deleted record, unless it has a row again, or has to stay a while longer.
    ///
    /// # Safety
    /// A grace period has passed since the record was retired as deleted, and the worker is pinned.
    unsafe fn settle_deleted(&self, record: NonNull<u8>, table: TableRef) {
        // SAFETY: the record is on no other list, and so it is not freed; rows that are reached
        // from it are not freed while this worker is pinned.
        unsafe {
            if let Some(row) = (table.core().newest)(record) {
                let header = VersionHeader::of(row);
                if let Some(deletion) = header.deletion()
                    && self.shared.retention.oldest() < deletion.as_ref().number
                {
                    let end = deletion.as_ref().number;
                    self.retain(Retained { kept: Kept::DeletedRecord, record, table, end });
                    return;
                }
            }
            match (table.core().settle_deleted)(table, record, self) {
                Settled::Unlinked => self.retire_record(record, table),
                Settled::Kept => {}
                Settled::Busy => self.retire_deleted(record, table),
            }
        }
    }

    fn adopt_orphans(&self) {
        // Relaxed: whether they are adopted now or later makes no difference.
        if self.shared.orphan_batches.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut orphans = self.shared.orphans.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, or batches that are being left at this moment would not be counted.
        self.shared.orphan_batches.store(0, Ordering::Relaxed);
        self.garbage().adopt(orphans.drain(..));
    }

    /// Leaves: what can be freed is, the rest is left to the other workers.
    pub fn leave(&self) {
        self.collect();
        // Whoever takes them over finds out whether their epoch has ended.
        for (_, deleted) in self.deleted.take() {
            if let Retired::Deleted(_, table) = deleted {
                self.push_deleted(deleted, table);
            }
        }
        // What deleted records are kept for, too, of which `collect` may have found some.
        self.pin();
        self.hand_over_retained();
        self.shared.grace.unpin(self.slot);
        self.garbage().seal(|| self.shared.grace.seal());
        let batches = self.garbage().take_sealed();
        if !batches.is_empty() {
            let mut orphans = self.shared.orphans.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.orphan_batches.fetch_add(batches.len() as u64, Ordering::Relaxed);
            orphans.extend(batches);
        }
        self.counters().retired_pending.store(0, Ordering::Relaxed);
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

/// What a worker remembers of one index within one transaction.
pub struct IndexBuffer {
    /// The transaction that it is good for.
    serial: u64,
    /// The record used last, and its row: the paper's one-node buffer (DBX §6.2), by which an
    /// update of a row just read needs no second look-up.
    pub last: Option<(u64, NonNull<u8>)>,
    /// Addresses of records that were prefetched, in the order in which they are expected.
    pub announced: Vec<u64>,
    /// The position of the next one that is expected.
    pub expected: usize,
    hints: LeafHints,
}

/// A leaf hint for each form of keys; an index uses the one of its form.
pub struct LeafHints {
    words1: LeafHint<u64>,
    words2: LeafHint<u128>,
    long: LeafHint<LongKey>,
}

/// A form of keys, with what the worker keeps for it.
pub trait StoredForm: KeyForm {
    /// The hint of this form.
    fn hint(hints: &mut LeafHints) -> &mut LeafHint<Self>;
    /// The spare scan pages of this form.
    fn pages(pages: &mut SparePages) -> &mut Vec<Page<Self>>;
}

/// Scan pages between two scans.
#[derive(Default)]
pub struct SparePages {
    words1: Vec<Page<u64>>,
    words2: Vec<Page<u128>>,
    long: Vec<Page<LongKey>>,
}

macro_rules! stored_form {
    ($key:ty, $field:ident) => {
        impl StoredForm for $key {
            #[inline(always)]
            fn hint(hints: &mut LeafHints) -> &mut LeafHint<Self> {
                &mut hints.$field
            }
            #[inline(always)]
            fn pages(pages: &mut SparePages) -> &mut Vec<Page<Self>> {
                &mut pages.$field
            }
        }
    };
}

stored_form!(u64, words1);
stored_form!(u128, words2);
stored_form!(LongKey, long);

impl IndexBuffer {
    fn new() -> Self {
        IndexBuffer {
            serial: 0,
            last: None,
            announced: Vec::new(),
            expected: 0,
            hints: LeafHints {
                words1: LeafHint::new(),
                words2: LeafHint::new(),
                long: LeafHint::new(),
            },
        }
    }

    /// Forgets everything, for the transaction `serial`.
    #[inline(always)]
    fn start(&mut self, serial: u64) {
        self.serial = serial;
        self.last = None;
        self.announced.clear();
        self.expected = 0;
        self.hints.words1.reset();
        self.hints.words2.reset();
        self.hints.long.reset();
    }

    #[inline(always)]
    pub fn hint<K: StoredForm>(&mut self) -> &mut LeafHint<K> {
        K::hint(&mut self.hints)
    }
}

/// Everything of one worker.
pub struct Worker<P: Protocol> {
    pub memory: WorkerMemory,
    executor: UnsafeCell<P::Executor>,
    /// Whether it is in a transaction.
    pub active: Cell<bool>,
    /// Counts its transactions.
    serial: Cell<u64>,
    buffers: UnsafeCell<Vec<IndexBuffer>>,
    spare_pages: RefCell<SparePages>,
    pub random: RefCell<fastrand::Rng>,
    /// Records its transactions, if they are recorded.
    #[cfg(feature = "history")]
    pub recorder: Option<RefCell<crate::history::Recorder>>,
}

impl<P: Protocol> Worker<P> {
    fn new(shared: &Arc<Shared>, protocol: &Arc<P::Shared>, slot: usize, indexes: usize) -> Self {
        let memory = WorkerMemory::new(Arc::clone(shared), slot);
        shared.set_reader(slot, memory.regions.reader());
        Worker {
            memory,
            executor: UnsafeCell::new(P::Executor::new(protocol, slot)),
            active: Cell::new(false),
            serial: Cell::new(0),
            buffers: UnsafeCell::new((0..indexes).map(|_| IndexBuffer::new()).collect()),
            spare_pages: RefCell::default(),
            // For backoff only; results do not depend on it.
            random: RefCell::new(fastrand::Rng::with_seed(slot as u64)),
            #[cfg(feature = "history")]
            recorder: shared.recording.as_ref().map(|recording| RefCell::new(recording.recorder())),
        }
    }

    /// The executor. Every use is one call of a method that runs no user code.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the cell is the worker's own")]
    pub fn executor(&self) -> &mut P::Executor {
        // SAFETY: a worker is used by its own thread only, and executor methods do not come back
        // to the worker.
        unsafe { &mut *self.executor.get() }
    }

    /// What the worker remembers of an index in this transaction. As for the executor, every
    /// use ends before user code runs or another is made.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the cell is the worker's own")]
    pub fn buffer(&self, index: usize) -> &mut IndexBuffer {
        // SAFETY: as in `executor`: index operations do not come back to the worker's buffers.
        let buffer = unsafe { &mut (&mut *self.buffers.get())[index] };
        if buffer.serial != self.serial.get() {
            buffer.start(self.serial.get());
        }
        buffer
    }

    /// Starts the next transaction's count.
    #[inline(always)]
    pub fn next_serial(&self) {
        self.serial.set(self.serial.get() + 1);
    }

    pub fn take_page<K: StoredForm>(&self) -> Page<K> {
        K::pages(&mut self.spare_pages.borrow_mut()).pop().unwrap_or_default()
    }

    pub fn give_page<K: StoredForm>(&self, page: Page<K>) {
        K::pages(&mut self.spare_pages.borrow_mut()).push(page);
    }
}

/// The place of a slot's worker.
type WorkerCell<P> = UnsafeCell<Option<Box<Worker<P>>>>;

/// The workers of a database, by slot. A slot's worker is used by the thread that holds the slot.
pub struct Workers<P: Protocol> {
    cells: Box<[WorkerCell<P>]>,
}

// SAFETY: each cell is accessed only by the thread that holds its slot (slots are handed out and
// taken back under a lock), or by the thread that drops the database.
unsafe impl<P: Protocol> Sync for Workers<P> {}
// SAFETY: a worker that is in no transaction is not tied to a thread: what it holds are addresses
// of the database's memory, and executors are Send.
unsafe impl<P: Protocol> Send for Workers<P> {}

impl<P: Protocol> Workers<P> {
    pub fn new(workers_max: usize) -> Self {
        Workers { cells: (0..workers_max).map(|_| UnsafeCell::new(None)).collect() }
    }

    /// Makes the calling thread a worker; `None` if there are too many.
    pub fn join(
        &self,
        shared: &Arc<Shared>,
        protocol: &Arc<P::Shared>,
        indexes: usize,
    ) -> Option<(usize, NonNull<Worker<P>>)> {
        let slot = shared.take_slot()?;
        // SAFETY: the slot is this thread's now.
        let cell = unsafe { &mut *self.cells[slot].get() };
        let worker = cell.insert(Box::new(Worker::new(shared, protocol, slot, indexes)));
        Some((slot, NonNull::from(&mut **worker)))
    }

    /// Ends the calling thread's time as the worker of `slot`.
    ///
    /// # Safety
    /// The slot is the calling thread's, and it will not use the worker again.
    pub unsafe fn leave(&self, shared: &Shared, slot: usize) {
        // SAFETY: the slot is this thread's until `give_slot`.
        let cell = unsafe { &mut *self.cells[slot].get() };
        if let Some(worker) = cell.take() {
            if worker.active.get() {
                // A transaction was leaked with `mem::forget`. Its locks and references may
                // outlive the thread, so the worker stays, pinned, for good.
                Box::leak(worker);
                return;
            }
            worker.memory.leave();
        }
        shared.give_slot(slot);
    }

    /// All workers, when the database is being dropped.
    pub fn take_all(&mut self) -> impl Iterator<Item = Box<Worker<P>>> {
        self.cells.iter_mut().filter_map(|cell| cell.get_mut().take())
    }
}
