//! The steps of a commit that are the same for all protocols.
//!
//! ```text
//!   stage      encode the writes for the log                          the user's code runs here
//!   ---------- the protocol's part: lock, validate, draw the number, install, unlock
//!   log        append what was staged                                 from here on no code of the
//!   number     give the versions that were installed the number       user's runs, and nothing
//!   supersede  keep what they have replaced for snapshots, or         can fail
//!              unlink and retire it
//! ```
//!
//! A protocol that draws its number before it installs may do most of the last two steps in between, while no
//! other thread can reach the new versions: [`WorkerMemory::prepare`].
//!
//! [`WorkerMemory::stage`] comes before the serialization point: if a row's encoding panics, the transaction
//! rolls back as after any other panic. Of the three steps after it, [`WorkerMemory::log`] is the first, and
//! [`WorkerMemory::conclude`] does the other two for each record. See
//! [`version`](crate::store::record::version) for the chains of versions, and
//! [`retention`](crate::store::retention) for which snapshots need which versions.

use std::ptr::NonNull;
use std::sync::Arc;

use weft_htm::word::{Ordering, Word, yield_now};

use super::WorkerMemory;
use crate::durability::format::{self, WriteKind};
use crate::durability::{Acknowledger, Log};
use crate::index::IndexWorker;
use crate::row::encoding::EncodedKey;
use crate::store::record::newest;
use crate::store::record::version::{self, Deletion, NEVER, UNNUMBERED, VersionHeader};
use crate::store::retention::{NONE_OPEN, RetainedEntry, RetainedItem};
use crate::store::table::TableRef;
use crate::sync::clock::epoch_of;

/// The log, as the workers see it.
#[derive(Debug)]
pub struct EngineLog {
    pub log: Arc<Log>,
    /// Does what has to be done when a commit is durable.
    pub acknowledger: Acknowledger,
    /// Numbers the writes, for protocols whose versions do not order the writes of a record.
    sequence: Word,
    /// The last epoch that a writer has drawn. It covers every writer of which another transaction can have
    /// seen anything.
    last_epoch: Word,
}

impl EngineLog {
    pub fn new(log: Arc<Log>) -> Self {
        let acknowledger = Acknowledger::default();
        EngineLog { log, acknowledger, sequence: Word::new(0), last_epoch: Word::new(0) }
    }

    /// Notes that a writer has drawn its number in this epoch. Called before the writer installs anything.
    ///
    /// So a reader that has seen anything of the writer's finds at least the writer's epoch in
    /// [`EngineLog::last_epoch`]. It may have seen a row, the absence of a row, a changed index node, or a
    /// record that was unlinked since.
    ///
    /// All accesses are Relaxed. The reader has acquired what the writer released later, so the reader's load
    /// comes after the writer's load or exchange here, and a later load of one word does not return an older
    /// value. (The protocol `atomic` installs before it draws. But its readers wait for the number, which
    /// comes after this.)
    #[inline(always)]
    fn note_drawn(&self, epoch: u64) {
        if self.last_epoch.load(Ordering::Relaxed) < epoch {
            self.raise_last_epoch(epoch);
        }
    }

    #[cold]
    fn raise_last_epoch(&self, epoch: u64) {
        let mut last = self.last_epoch.load(Ordering::Relaxed);
        while last < epoch
            && let Err(now) =
                self.last_epoch.compare_exchange(last, epoch, Ordering::Relaxed, Ordering::Relaxed)
        {
            last = now;
        }
    }

    /// Returns the last epoch in which anything was written that the caller can have seen. Once this epoch is
    /// durable, everything that the caller has seen is.
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch.load(Ordering::Relaxed)
    }
}

/// A write of a transaction that is about to commit, for the log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedWrite {
    pub table: TableRef,
    pub written: WriteOutcome,
}

// SAFETY: rows and tables belong to the database, not to a thread.
unsafe impl Send for LoggedWrite {}

/// What a worker's next entries in the log belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedAs {
    /// A transaction of their own.
    Transaction,
    /// A procedure in pieces, which has logged nothing yet.
    FirstPiece,
    /// The procedure in pieces whose entries the worker has logged last.
    LaterPiece,
}

/// The position of a write that is not staged, and so does not go to the log.
pub const NOT_STAGED: u32 = u32::MAX;

/// Writes of the commit under way, encoded for the log.
#[derive(Debug, Default)]
pub struct StagedWrites {
    /// The writes to stage. Filled by the executor.
    list: Vec<LoggedWrite>,
    /// One entry for each write in `list`.
    writes: Vec<StagedWrite>,
    bytes: Vec<u8>,
}

/// A write that is encoded for the log.
#[derive(Clone, Copy, Debug)]
struct StagedWrite {
    kind: WriteKind,
    /// The table's number; `None` if the table is not logged.
    table: Option<u32>,
    /// The end of its bytes in [`StagedWrites::bytes`]. They begin where those of the previous write end.
    end: usize,
}

/// What a commit has done to a record.
#[derive(Debug)]
pub enum RecordOutcome<'k> {
    /// A row was installed, perhaps in place of another.
    Written { row: NonNull<u8>, replaced: Option<ReplacedRow>, prepared: Prepared },
    /// The row was deleted. It stays with the record until the record is unlinked from under its key, since
    /// older snapshots may need it. If the record `is_queued`, it is already on a list of deleted records.
    Deleted { row: NonNull<u8>, key: &'k EncodedKey, is_queued: bool },
}

/// How much [`WorkerMemory::prepare`] has done for a version before it was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Nothing.
    No,
    /// It has its number.
    Numbered,
    /// It has its number, and does not lead to the version that it replaces, which no snapshot needs.
    Detached,
}

/// A row that a commit has replaced.
#[derive(Clone, Copy, Debug)]
pub struct ReplacedRow {
    pub row: NonNull<u8>,
    /// Whether it had been deleted before it was replaced.
    pub was_deleted: bool,
    /// Whether it lies inline in its record.
    pub inline: bool,
}

/// A commutative operation of a committed transaction, for the log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedOperation<'a> {
    pub table: TableRef,
    /// A number that orders the writes of a key within an epoch.
    pub order: u64,
    /// Its stored form.
    pub bytes: &'a [u8],
}

/// What a transaction has written under a key.
#[derive(Clone, Copy, Debug)]
pub enum WriteOutcome {
    /// A row. Nothing is known of what was there before.
    Row(NonNull<u8>),
    /// A row that replaces another one with the same key. The other one is the result of the previous write
    /// of the key, in the order of the log.
    Changed {
        /// The row.
        row: NonNull<u8>,
        /// The row that it replaced.
        before: NonNull<u8>,
    },
    /// No row: this row was deleted.
    Deleted(NonNull<u8>),
}

/// How many entries a worker gathers before it puts them on the common lists. (When it collects its garbage,
/// it does so with fewer, too.)
const RETAINED_AT_ONCE: usize = if crate::store::RECLAIMS_EARLY { 1 } else { 64 };

impl WorkerMemory {
    /// Draws the snapshot number of the transaction that is being committed, and returns its epoch. From here
    /// until [`WorkerMemory::end_commit`] new snapshots wait for this commit.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn draw(&self) -> u64 {
        // Relaxed, as are all accesses to these two words: only this worker uses them.
        if self.is_committing.load(Ordering::Relaxed) == 0 {
            self.shared.commits.begin(self.slot);
            self.is_committing.store(1, Ordering::Relaxed);
        }
        let number = self.shared.clock.number();
        self.drawn.store(number, Ordering::Relaxed);
        let epoch = epoch_of(number);
        if let Some(engine) = self.shared.log.get() {
            engine.note_drawn(epoch);
        }
        epoch
    }

    /// As [`WorkerMemory::draw`], for a piece of a procedure that has its place in the serial order already: its
    /// versions get the number `place` of the conflicting piece. See [`eventual`](crate::store::eventual).
    #[inline]
    pub fn draw_at(&self, place: u64) -> u64 {
        let epoch = self.draw();
        self.drawn.store(place, Ordering::Relaxed);
        epoch
    }

    /// Returns the number that the commit under way has drawn, if it has drawn one.
    #[inline]
    pub fn drawn_number(&self) -> Option<u64> {
        let drawn = self.drawn.load(Ordering::Relaxed);
        (drawn != 0).then_some(drawn)
    }

    /// Makes new snapshots wait for this commit already, so that [`WorkerMemory::draw`] does not have to. The
    /// caller executes a sequentially consistent fence between the two. (A commit may have drawn its number
    /// already: see `doppel`.)
    #[inline(always)]
    pub fn announce_commit(&self) {
        if self.is_committing.load(Ordering::Relaxed) == 0 {
            self.shared.commits.announce(self.slot);
            self.is_committing.store(1, Ordering::Relaxed);
        }
    }

    /// Settles the time of the transaction under way, which is not committing: see [`Time`](crate::sync::time::Time).
    /// The log then has it no later than what the transaction writes. Returns false if another commit does not end.
    pub fn settle_time(&self) -> bool {
        let (shared, now) = (&self.shared, self.now());
        if !shared.time.settle(now, &shared.commits, shared.grace.slots_used()) {
            return false;
        }
        if let Some(engine) = shared.log.get() {
            shared.time.log(now, || {
                let epoch = self.draw();
                self.append_to_log(engine, epoch, |buffer| format::push_time(buffer, now));
                self.end_commit();
            });
        }
        true
    }

    /// Returns the epoch that must be durable before the committing transaction is. If the transaction has
    /// written something, this is its own epoch; otherwise the last epoch in which anything was written that
    /// it can have read. Returns 0 if there is no log. Must be called before the commit
    /// [ends](WorkerMemory::end_commit).
    #[inline(always)]
    pub fn last_epoch_relied_on(&self) -> u64 {
        let drawn = epoch_of(self.drawn.load(Ordering::Relaxed));
        match self.shared.log.get() {
            None => 0,
            Some(_) if drawn != 0 => drawn,
            Some(engine) => engine.last_epoch(),
        }
    }

    /// Ends the commit that [`WorkerMemory::draw`] began, if there is one. Everything that was committed has
    /// its number by now.
    #[inline(always)]
    pub fn end_commit(&self) {
        if self.is_committing.load(Ordering::Relaxed) != 0 {
            self.is_committing.store(0, Ordering::Relaxed);
            // If the commit has failed, the next attempt may write nothing, and then draws no number.
            self.drawn.store(0, Ordering::Relaxed);
            self.shared.commits.end(self.slot);
        }
    }

    /// Returns whether the commit under way has drawn its number.
    pub fn has_drawn(&self) -> bool {
        self.drawn.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a commit of this worker is under way.
    pub fn is_committing(&self) -> bool {
        self.is_committing.load(Ordering::Relaxed) != 0
    }

    /// Returns the epoch that the commit under way has drawn.
    #[inline(always)]
    pub fn drawn_epoch(&self) -> u64 {
        epoch_of(self.drawn.load(Ordering::Relaxed))
    }

    /// Returns whether commits are logged.
    #[inline(always)]
    pub fn is_logging(&self) -> bool {
        self.shared.log.get().is_some()
    }

    /// Returns whether the worker's transactions only reconcile what others have already committed and
    /// logged.
    #[inline(always)]
    pub fn is_reconciling(&self) -> bool {
        self.is_reconciling.get()
    }

    /// Sets [`WorkerMemory::is_reconciling`].
    pub fn set_reconciling(&self, is_reconciling: bool) {
        self.is_reconciling.set(is_reconciling);
    }

    /// Returns a number for the log that is greater than all before it, for protocols whose versions do not
    /// order the writes of a record.
    pub fn next_sequence(&self) -> u64 {
        let log = self.shared.log.get().expect("called only if commits are logged");
        // Relaxed: two transactions that write the same record draw one after the other.
        log.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether the transaction's writes must be staged.
    #[inline(always)]
    pub fn is_staging(&self) -> bool {
        self.is_logging() && !self.is_reconciling()
    }

    /// Returns how many bytes were staged for the last commit, if there is a log.
    pub fn staged_bytes(&self) -> Option<u64> {
        self.is_staging().then(|| self.staged.borrow().bytes.len() as u64)
    }

    /// Encodes writes for the log. `list_writes` lists them. [`WorkerMemory::log`] refers to a write by its
    /// position in the list.
    ///
    /// This runs the user's code. If that panics, nothing has happened yet. During the call the caller must
    /// not borrow anything from the worker.
    ///
    /// # Safety
    /// The worker is pinned. The rows belong to their tables, and are not freed before the worker is
    /// unpinned.
    #[cold]
    #[inline(never)]
    pub unsafe fn stage(&self, list_writes: impl FnOnce(&mut Vec<LoggedWrite>)) {
        // Taken out of the worker, so that nothing is borrowed while the user's code runs.
        let mut staged = self.staged.take();
        let StagedWrites { list, writes, bytes } = &mut staged;
        list.clear();
        writes.clear();
        bytes.clear();
        list_writes(list);
        for write in list.iter() {
            let core = write.table.core();
            let table = core.log_number();
            let kind = match write.written {
                WriteOutcome::Row(_) => WriteKind::Put,
                WriteOutcome::Changed { .. } => WriteKind::Change,
                WriteOutcome::Deleted(_) => WriteKind::Delete,
            };
            if table.is_some() {
                let start = bytes.len();
                // SAFETY: passed on to the caller; only logged tables have a number.
                unsafe {
                    match write.written {
                        WriteOutcome::Row(row) => core.encode_row(row, bytes),
                        WriteOutcome::Changed { row, before } => {
                            core.encode_change(row, before, bytes)
                        }
                        WriteOutcome::Deleted(row) => core.encode_key(row, bytes),
                    }
                }
                // Fails if the row is longer than `stored_bytes` has said.
                assert!(
                    bytes.len().saturating_sub(start) <= format::ENTRY_BYTES_MAX,
                    "a row of table '{}' is too long for the log",
                    core.name
                );
            }
            writes.push(StagedWrite { kind, table, end: bytes.len() });
        }
        self.staged.replace(staged);
    }

    /// Takes an empty buffer, to be given back by [`WorkerMemory::give_scratch`].
    pub fn take_scratch(&self) -> Vec<u8> {
        let mut scratch = self.scratch.take();
        scratch.clear();
        scratch
    }

    /// Gives a buffer back.
    pub fn give_scratch(&self, scratch: Vec<u8>) {
        self.scratch.replace(scratch);
    }

    /// Appends to the log, and counts the memory that its buffers take.
    #[inline]
    fn append_to_log(&self, engine: &EngineLog, epoch: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let more = engine.log.append(self.slot, epoch, write);
        self.shared.memory.add_logged(more);
    }

    /// Appends staged writes of the commit under way to the log. Each is given by its position among the
    /// staged writes, and a number that orders the writes of a key within an epoch.
    #[inline(never)]
    pub fn log(&self, writes: impl Iterator<Item = (u32, u64)>) {
        let Some(engine) = self.shared.log.get().filter(|_| !self.is_reconciling()) else { return };
        let mut staged = self.staged.borrow_mut();
        let StagedWrites { writes: staged_writes, bytes: staged_bytes, .. } = &*staged;
        let mut writes = writes.filter_map(|(position, order)| {
            let position = position as usize;
            let StagedWrite { kind, table, end } = staged_writes[position];
            let start = position.checked_sub(1).map_or(0, |before| staged_writes[before].end);
            Some((kind, table?, order, &staged_bytes[start..end]))
        });
        let Some(first) = writes.next() else { return };
        let epoch = self.drawn_epoch();
        let logged_as = self.logged_as.get();
        self.append_to_log(engine, epoch, |buffer| {
            if logged_as != LoggedAs::LaterPiece {
                format::push_transaction(buffer);
            }
            for (kind, table, order, bytes) in std::iter::once(first).chain(writes) {
                format::push_write(buffer, kind, table, order, |buffer| {
                    buffer.extend_from_slice(bytes);
                });
            }
        });
        staged.writes.clear();
        if logged_as == LoggedAs::FirstPiece {
            self.logged_as.set(LoggedAs::LaterPiece);
        }
    }

    /// Sets what the next entries in the log belong to. All pieces of a procedure lie in one epoch, and the worker
    /// logs no other write between them. So the log has them as one transaction.
    pub fn set_logged_as(&self, logged_as: LoggedAs) {
        self.logged_as.set(logged_as);
    }

    /// Appends operations of the commit under way to the log. If `is_more`, they continue the entry of its
    /// writes, which was appended just before.
    pub fn log_operations<'o>(
        &self,
        operations: impl Iterator<Item = LoggedOperation<'o>>,
        is_more: bool,
    ) {
        let Some(engine) = self.shared.log.get() else { return };
        let epoch = self.drawn_epoch();
        self.append_to_log(engine, epoch, |buffer| {
            if !is_more {
                format::push_transaction(buffer);
            }
            for LoggedOperation { table, order, bytes } in operations {
                let Some(number) = table.core().log_number() else { continue };
                format::push_write(buffer, WriteKind::Operation, number, order, |buffer| {
                    buffer.extend_from_slice(bytes);
                });
            }
        });
    }

    /// Gives a version its number before it is installed, and detaches it from the version that it will replace
    /// (given unless that one was deleted) if no snapshot needs that one. So the new version does not have to be
    /// changed once other threads work with it.
    ///
    /// That no snapshot is open is as good to know now as after the installation. A snapshot that is opened
    /// later has a greater number than the commit, waits for the commit, and sees the new version.
    ///
    /// # Safety
    /// The commit has drawn its number. It has locked the record, and no other thread can reach the version
    /// `row`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub unsafe fn prepare(&self, row: NonNull<u8>, replaced: Option<NonNull<u8>>) -> Prepared {
        self.number(row);
        let Some(replaced) = replaced else { return Prepared::Numbered };
        // SAFETY: the worker is pinned, and both rows are, or will be, the record's.
        let (new, old) = unsafe { (VersionHeader::of(row), VersionHeader::of(replaced)) };
        if self.shared.retention.oldest() == NONE_OPEN && old.is_last() {
            new.set_previous(std::ptr::null_mut());
            Prepared::Detached
        } else {
            Prepared::Numbered
        }
    }

    /// Concludes the commit under way for one record. If a row was installed, numbers it, and supersedes the
    /// row that it replaced. If the row was deleted, marks it as deleted, and queues its record to be
    /// unlinked.
    ///
    /// # Safety
    /// `outcome` is what the commit has done to the record in block `record`, of `table`. This is called once
    /// for each record. The worker has been pinned since before the commit.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub unsafe fn conclude(
        &self,
        table: TableRef,
        record: NonNull<u8>,
        outcome: RecordOutcome<'_>,
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            match outcome {
                RecordOutcome::Written { row, replaced, prepared } => {
                    if prepared == Prepared::No {
                        self.number(row);
                    }
                    match replaced {
                        None => {}
                        Some(ReplacedRow { row: replaced, was_deleted: false, inline })
                            if prepared == Prepared::Detached =>
                        {
                            self.retire_row(table, record, replaced, inline);
                        }
                        Some(ReplacedRow { row: replaced, was_deleted: false, inline }) => {
                            self.supersede(table, record, row, replaced, inline);
                        }
                        Some(ReplacedRow { row: deleted, was_deleted: true, inline }) => {
                            self.supersede_deleted(table, record, row, deleted, inline);
                        }
                    }
                }
                RecordOutcome::Deleted { row, key, is_queued } => {
                    self.mark_deleted(record, row);
                    if !is_queued {
                        self.retire_deleted(record, table, key.clone());
                    }
                }
            }
        }
    }

    /// Gives a row that the commit under way has installed its number.
    #[inline(always)]
    pub fn number(&self, row: NonNull<u8>) {
        // SAFETY: the worker is pinned, and has been since before it installed the row.
        unsafe { VersionHeader::of(row) }.set_number(self.drawn.load(Ordering::Relaxed));
    }

    /// Retires a version that the commit under way has replaced: at once, or when no snapshot needs it any
    /// more. `row` is the version that has replaced it, and already has its number.
    ///
    /// # Safety
    /// Only the caller has replaced the version, in the record in block `record`, of `table`. The worker has
    /// been pinned since before.
    #[inline(always)]
    pub unsafe fn supersede(
        &self,
        table: TableRef,
        record: NonNull<u8>,
        row: NonNull<u8>,
        replaced: NonNull<u8>,
        inline: bool,
    ) {
        // SAFETY: the worker is pinned, and both rows are, or were, the record's.
        let (new, old) = unsafe { (VersionHeader::of(row), VersionHeader::of(replaced)) };
        // The common case: no snapshot is open and nothing hangs below, so one compare-and-swap unlinks the
        // version.
        if self.shared.retention.oldest() == NONE_OPEN && old.is_last() && new.cut(replaced) {
            // SAFETY: the version was the caller's, and nothing leads to it any more.
            unsafe { self.retire_row(table, record, replaced, inline) };
        } else {
            // SAFETY: passed on to the caller.
            unsafe { self.keep_or_unlink(table, record, replaced) };
        }
    }

    /// As [`WorkerMemory::supersede`], for a row that had been deleted. The transaction that deleted it has
    /// committed, and is about to mark it.
    ///
    /// # Safety
    /// As for [`WorkerMemory::supersede`].
    #[inline(never)]
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
                yield_now();
            }
            self.supersede(table, record, row, deleted, inline);
        }
    }

    /// Keeps a replaced version for the snapshots that need it, or else unlinks and retires it.
    ///
    /// # Safety
    /// As for [`WorkerMemory::supersede`].
    #[cold]
    unsafe fn keep_or_unlink(&self, table: TableRef, record: NonNull<u8>, replaced: NonNull<u8>) {
        let end = self.drawn.load(Ordering::Relaxed);
        // SAFETY: by the contract the version is the caller's to retire.
        let entry = unsafe { RetainedEntry::version(replaced, record, table, end) };
        self.know_open_snapshots(end);
        let chains = &self.shared.retention.chains;
        // SAFETY: as above.
        let needed_by =
            unsafe { entry.needed_by(self.open_snapshots.borrow().numbers(), false, chains) };
        if needed_by.is_some() {
            self.retain(entry);
        } else {
            // SAFETY: as above.
            unsafe { self.unlink_version(&entry, replaced) };
        }
    }

    /// Lists the open snapshots, unless the worker already knows all those with smaller numbers than `end`.
    /// (Snapshots that are opened later need nothing that was replaced, or deleted, at `end`. One that is on
    /// the list may be closed by now. Then an entry is kept for longer than necessary, until
    /// [`WorkerMemory::hand_over_retained`].)
    fn know_open_snapshots(&self, end: u64) {
        if !self.open_snapshots.borrow().is_complete_below(end) {
            self.list_open_snapshots();
        }
    }

    /// Updates the worker's list of the open snapshots.
    pub fn list_open_snapshots(&self) {
        self.shared.retention.list_open(&self.shared.clock, &mut self.open_snapshots.borrow_mut());
    }

    /// Returns whether a record whose newest version this is may leave its index. The row must have been
    /// deleted, no snapshot may need it, and no older version may be on a list, since such an entry leads to
    /// the record. If the worker does not know which snapshots are open, this returns false. (See
    /// [`WorkerMemory::list_open_snapshots`].)
    ///
    /// # Safety
    /// As for [`VersionHeader::of`].
    pub unsafe fn may_unlink(&self, newest: &VersionHeader) -> bool {
        // SAFETY: passed on to the caller; a deletion lives as long as its version.
        unsafe {
            let is_needed = match newest.deletion() {
                Some(deletion) => {
                    let deletion = deletion.as_ref().number;
                    self.shared.retention.oldest() < deletion
                        && self.open_snapshots.borrow().may_lie_in(newest.number(), deletion)
                }
                None => newest.number() != NEVER,
            };
            !is_needed && newest.predecessor().is_none()
        }
    }

    /// Unlinks the version of an entry from its record, and retires it.
    ///
    /// # Safety
    /// The caller owns the version, and has been pinned since before it came to own it.
    unsafe fn unlink_version(&self, entry: &RetainedEntry, row: NonNull<u8>) {
        // SAFETY: a record is not freed as long as a version hangs below its newest one.
        let (deletion, inline) = unsafe {
            let deletion = VersionHeader::of(row).deletion();
            let chain = self.shared.retention.chains.lock(entry.record);
            version::unlink(newest(entry.record), row);
            drop(chain);
            (deletion, entry.table.is_inline(entry.record, row))
        };
        if let Some(deletion) = deletion {
            // SAFETY: nothing leads to the deletion any more, since its version is unlinked.
            unsafe { self.retire(deletion.cast(), Deletion::LAYOUT) };
        }
        // SAFETY: the version is the caller's, and nothing leads to it any more.
        unsafe {
            self.retire_row(entry.table, entry.record, row, inline);
            self.await_vacant_slot(entry.table, entry.record);
        }
    }

    /// Marks a row as deleted by the commit under way. It stays its record's newest row.
    ///
    /// # Safety
    /// Only the caller has deleted the row. The worker has been pinned since before.
    pub unsafe fn mark_deleted(&self, record: NonNull<u8>, row: NonNull<u8>) {
        // SAFETY: the worker is pinned.
        let header = unsafe { VersionHeader::of(row) };
        // The transaction that wrote the row has committed, and is about to number it.
        while header.number() == UNNUMBERED {
            yield_now();
        }
        // No snapshot is open, so none needs to know the number of the deletion.
        if self.shared.retention.oldest() == NONE_OPEN {
            header.set_number(NEVER);
            return;
        }
        let block = self.allocate(Deletion::LAYOUT);
        let _chain = self.shared.retention.chains.lock(record);
        // SAFETY: a new block with that layout; the chain is locked.
        unsafe { header.mark_deleted(self.drawn.load(Ordering::Relaxed), block) };
    }

    /// Keeps an entry for the snapshots that are open.
    pub(super) fn retain(&self, entry: RetainedEntry) {
        self.retained.borrow_mut().push(entry);
        if self.retained.borrow().len() >= RETAINED_AT_ONCE {
            self.hand_over_retained();
        }
    }

    /// Puts what is kept for snapshots on their lists. The worker must be pinned.
    pub(super) fn hand_over_retained(&self) {
        let mut entries = self.retained.take();
        // It is known which snapshots need a version only once the version has its number. So the others
        // wait.
        // SAFETY: the entries are on this worker's own list, so this worker owns what they stand for.
        let mut unnumbered =
            entries.extract_if(.., |entry| unsafe { entry.is_unnumbered() }).collect::<Vec<_>>();
        // SAFETY: as above, and the worker has been pinned since before the entries came here.
        unsafe { self.decide(&mut entries, true) };
        // Put the buffer back, to be used again.
        entries.append(&mut unnumbered);
        self.retained.replace(entries);
    }

    /// Takes some of what was kept for snapshots that are closed now, and decides again whether to keep it.
    /// Returns false if there was nothing. The worker must be pinned.
    pub fn release_retained(&self) -> bool {
        let mut entries = self.shared.retention.take_released();
        let is_any = !entries.is_empty();
        // SAFETY: the entries were on the common lists, and such an entry owns what it stands for. The worker
        // was pinned before it took them.
        unsafe { self.decide(&mut entries, false) };
        is_any
    }

    /// Keeps those entries that an open snapshot needs, and retires the others. `is_new` says that they have
    /// not been on a list before. This takes the retention's lock twice, and looks nothing up while it holds
    /// it.
    ///
    /// # Safety
    /// The entries own what they stand for, and the worker has been pinned since before they came here.
    pub(super) unsafe fn decide(&self, entries: &mut Vec<RetainedEntry>, is_new: bool) {
        if entries.is_empty() {
            return;
        }
        let retention = &self.shared.retention;
        self.list_open_snapshots();
        let may_rest = is_new && !retention.has_released();
        let (mut needed, mut unneeded) = (Vec::new(), Vec::new());
        {
            let open = self.open_snapshots.borrow();
            for entry in entries.drain(..) {
                // SAFETY: by the contract.
                match unsafe { entry.needed_by(open.numbers(), may_rest, &retention.chains) } {
                    Some(number) => needed.push((number, entry)),
                    None => unneeded.push(entry),
                }
            }
        }
        retention.keep(&mut needed, is_new);
        if !is_new {
            retention.forget(&unneeded);
        }
        // SAFETY: by the contract.
        unsafe { self.retire_unneeded(unneeded) };
    }

    /// Retires what no snapshot needs: unlinks versions, and queues deleted records to be unlinked. (What a place is left
    /// from lies in the record now.)
    ///
    /// # Safety
    /// The entries own what they stand for, and the worker has been pinned since before they came here.
    unsafe fn retire_unneeded(&self, entries: Vec<RetainedEntry>) {
        for entry in entries {
            match entry.item {
                // SAFETY: by the contract.
                RetainedItem::Version(row) => unsafe { self.unlink_version(&entry, row) },
                // SAFETY: by the contract.
                RetainedItem::Place(row) => unsafe {
                    self.retire_row(entry.table, entry.record, row, false);
                },
                RetainedItem::DeletedRecord(key) => {
                    self.retire_deleted(entry.record, entry.table, key)
                }
            }
        }
    }
}

/// A commit under way. It ends when this value is dropped, whatever happens.
pub struct CommitGuard<'w>(pub &'w WorkerMemory);

impl Drop for CommitGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.end_commit();
    }
}
