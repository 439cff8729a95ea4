//! A transaction's access set: the records that it has read, the writes that it is to make, and the index nodes
//! that it relies on. For all protocols that keep a transaction's writes private until it commits.
//!
//! In the order of this file: the entries; the set, and the questions that the read phase asks of it; what happens
//! to rows and records when the transaction has ended. [`positions`](super::positions) finds a record's own write.
//!
//! A worker reuses its set from one transaction to the next.

use std::ptr::NonNull;

use weft_htm::word::Ordering;

use super::applied::AppliedOperations;
use super::by_columns::ColumnNotes;
use super::positions::Positions;
use super::{Observation, RecordHeader, Visible, WriteMark};
use crate::index::bplus_tree::ScannedRange;
use crate::index::{NodeChange, NodeVersion};
use crate::row::column::UsedColumns;
use crate::row::encoding::EncodedKey;
use crate::store::record::tid::{Tid, TidWord};
use crate::store::record::version::VersionHeader;
use crate::store::record::{Newest, RecordPointer};
use crate::store::table::TableRef;
use crate::store::worker::{
    LoggedWrite, NOT_STAGED, Prepared, RecordOutcome, ReplacedRow, WorkerMemory, WriteOutcome,
};

/// A record header that has a TID word, and maybe other fields.
pub trait TidHeader: Default + Send + Sync + 'static {
    /// Returns the TID word.
    fn tid(&self) -> &TidWord;
}

impl<H: TidHeader> RecordHeader for H {
    fn mark_loaded(&self) {
        // The placeholder's version is older than any that a transaction has written.
        self.tid().unlock(Tid::PLACEHOLDER.written_at(self.tid().load_relaxed().version()));
    }

    #[inline(always)]
    fn begin_after(&self, version: u64) {
        self.tid().unlock(Tid::placeholder_after(version));
    }
}

/// The header of a protocol that needs only the TID word (see [`crate::store::record::tid`]).
#[derive(Debug)]
pub struct TidOnly {
    tid: TidWord,
}

impl Default for TidOnly {
    fn default() -> Self {
        TidOnly { tid: TidWord::new(Tid::PLACEHOLDER) }
    }
}

impl TidHeader for TidOnly {
    #[inline(always)]
    fn tid(&self) -> &TidWord {
        &self.tid
    }
}

/// A record that was read, and its version at that time.
pub struct ReadEntry<H> {
    pub record: RecordPointer<H>,
    pub observed: Tid,
    pub table: TableRef,
}

impl<H> Clone for ReadEntry<H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for ReadEntry<H> {}

impl<H> ReadEntry<H> {
    /// Relies on the present version of a record that was read without a row, if it still has none. Returns whether it does.
    /// A record that is removed has left its index, and its key may have another one by now. So it has to be one that a
    /// scan has found: the scan would have found the other one, too.
    pub fn rely_on_absence(&mut self, present: Tid, nodes: &[NodeEntry]) -> bool {
        let is_absent = self.observed.is_absent() && present.is_absent() && !present.is_locked();
        let record = self.record;
        let holds = is_absent
            && (!present.is_removed() || nodes.iter().any(|node| node.has_followed(record)));
        if holds {
            self.observed = present;
        }
        holds
    }
}

/// A record that is to be written.
pub struct WriteEntry<H> {
    pub record: RecordPointer<H>,
    pub table: TableRef,
    /// The version that the write replaces. The record is locked only if it still has this version.
    pub expected: Tid,
    /// The row of that version (if the record is deleted, the row that it had), if it ever had one. The flags
    /// say what was [prepared](WriteEntry::prepare).
    pub replaced: Newest,
    /// The row to install, or `None` to leave the record without a row.
    pub row: Option<NonNull<u8>>,
    /// The key from which the index leads to the record, if this transaction has inserted or deleted it. See
    /// [`AccessSet::key_of`].
    pub key: WriteKey,
    /// The write's position among those that are [staged](WorkerMemory::stage), or [`NOT_STAGED`].
    pub staged: u32,
}

/// Flags of [`WriteEntry::replaced`]: whether the new version has its number, and whether it is detached from the
/// version that it replaces.
const NUMBERED: usize = 1;
const DETACHED: usize = 2;

impl<H> WriteEntry<H> {
    /// Returns the row that the write replaces or deletes; `None` if the record is absent.
    #[inline(always)]
    pub fn replaced_row(&self) -> Option<NonNull<u8>> {
        if self.expected.is_absent() { None } else { self.replaced.row() }
    }

    /// Returns by how many rows the write changes a table's number of rows.
    #[inline(always)]
    fn rows_added(&self) -> i64 {
        i64::from(self.row.is_some()) - i64::from(!self.expected.is_absent())
    }

    /// Returns whether the row to be replaced still lies where it was found. The engine may have moved it
    /// ([`Protocol::HOLD_ROW`](super::Protocol::HOLD_ROW)). The commit has locked the record, or runs in a region.
    #[inline(always)]
    pub fn is_in_place(&self) -> bool {
        self.newest() == self.replaced.address()
    }

    #[inline(always)]
    fn newest(&self) -> *mut u8 {
        // SAFETY: the worker has been pinned since before it found the record.
        let record = unsafe { self.record.get() };
        // Relaxed: the lock, or the region, orders this.
        record.newest.load(Ordering::Relaxed).address()
    }

    /// Finds the row to be replaced again if the engine has moved it. The commit has locked the record.
    #[inline(always)]
    pub fn find_replaced(&mut self) {
        self.relocate(self.newest());
    }

    /// Notes that the row to be replaced lies at `newest`.
    #[inline(always)]
    pub fn relocate(&mut self, newest: *mut u8) {
        if newest != self.replaced.address() {
            self.replaced = Newest::at(newest);
            link(self.row, newest);
        }
    }

    /// Makes the write replace another version, with the row `onto`, by a row that was [made
    /// again](super::made_row).
    pub fn move_onto(&mut self, version: Tid, onto: NonNull<u8>, row: NonNull<u8>) {
        (self.expected, self.replaced, self.row) = (version, Newest::of(onto), Some(row));
        link(self.row, onto.as_ptr());
    }

    /// Does for the version to be installed what can be done before: see [`WorkerMemory::prepare`].
    ///
    /// # Safety
    /// The commit has drawn its number, and has locked the record.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn prepare(&mut self, memory: &WorkerMemory) {
        self.find_replaced();
        let Some(row) = self.row else { return };
        // SAFETY: passed on to the caller; the row is this transaction's own.
        self.replaced = match unsafe { memory.prepare(row, self.replaced_row()) } {
            Prepared::No => self.replaced,
            Prepared::Numbered => self.replaced.with(NUMBERED),
            Prepared::Detached => self.replaced.with(NUMBERED | DETACHED),
        };
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn prepared(&self) -> Prepared {
        if self.replaced.has(DETACHED) {
            Prepared::Detached
        } else if self.replaced.has(NUMBERED) {
            Prepared::Numbered
        } else {
            Prepared::No
        }
    }
}

/// The position of a write's key in the access set, and whether the transaction has put the record into the index.
/// Few writes have a key. So the key is stored apart, which keeps entries short and without a destructor.
#[derive(Clone, Copy, Debug)]
pub struct WriteKey {
    /// Twice the position in the list of keys, plus one if the record was created.
    word: u32,
}

impl WriteKey {
    /// No key: the record is in the index, and stays there.
    pub const NONE: WriteKey = WriteKey { word: u32::MAX };

    /// Returns whether this transaction has put the record into the index.
    #[inline(always)]
    pub fn is_created(self) -> bool {
        self.word & 1 == 1 && self.word != u32::MAX
    }
}

const _: () = assert!(size_of::<WriteEntry<TidOnly>>() == 48);
const _: () = assert!(!std::mem::needs_drop::<WriteEntry<TidOnly>>());

/// What a write must know of the version that it replaces.
#[derive(Clone, Copy, Debug)]
pub struct ReplacedVersion {
    /// The version, unlocked.
    pub observed: Tid,
    newest: *mut u8,
    /// This transaction's own row, if the write set has the record with a row.
    own: Option<NonNull<u8>>,
    /// The position of the record in the write set.
    own_position: Option<usize>,
    /// How many writes the set had.
    writes: usize,
}

impl ReplacedVersion {
    /// Returns the row of the version that is replaced, or null if it never had one.
    pub fn newest(&self) -> *mut u8 {
        self.newest
    }

    /// Returns this transaction's own row, if that is what the write replaces.
    #[inline(always)]
    pub fn own(&self) -> Option<NonNull<u8>> {
        self.own
    }
}

/// An index node that the transaction relies on.
#[derive(Clone, Copy)]
pub struct NodeEntry {
    pub node: NodeVersion,
    pub table: TableRef,
    /// The range in the node that the transaction relies on, if it is not the whole node.
    pub range: Option<ScannedRange>,
}

impl NodeEntry {
    /// Returns whether this is of a scan that has come to the record.
    fn has_followed<H>(&self, record: RecordPointer<H>) -> bool {
        let range = self.range.as_ref();
        range.is_some_and(|range| range.followed().contains(&record.address()))
    }
}

/// A private row that the transaction has replaced before any other thread saw it. The transaction's own references
/// to it last until the transaction ends.
pub struct SupersededRow<H> {
    pub record: RecordPointer<H>,
    pub row: NonNull<u8>,
    pub table: TableRef,
}

/// Everything that a transaction has accessed.
pub struct AccessSet<H> {
    pub reads: Vec<ReadEntry<H>>,
    pub writes: Vec<WriteEntry<H>>,
    pub nodes: Vec<NodeEntry>,
    pub superseded: Vec<SupersededRow<H>>,
    /// The operations by which the transaction has written rows.
    pub applied: AppliedOperations<H>,
    pub notes: ColumnNotes<H>,
    keys: Vec<EncodedKey>,
    positions: Positions,
    /// How many savepoints are open.
    savepoints: usize,
    /// The writes that were replaced since the first of them began.
    replaced: Vec<ReplacedWrite>,
    /// Whether writes were undone. The set may have keys and operations of theirs, although it has no write.
    has_undone: bool,
    /// Whether a write may have added or deleted a row.
    may_change_counts: bool,
    /// The version with which all placeholders of the transaction begin.
    placeholder: Tid,
}

/// What a write was before the transaction wrote the same record again.
struct ReplacedWrite {
    position: usize,
    row: Option<NonNull<u8>>,
    key: WriteKey,
}

// SAFETY: an access set moves between threads only with its worker, and only when it is empty, between
// transactions.
unsafe impl<H> Send for AccessSet<H> {}

impl<H> Default for AccessSet<H> {
    fn default() -> Self {
        AccessSet {
            reads: Vec::new(),
            writes: Vec::new(),
            nodes: Vec::new(),
            superseded: Vec::new(),
            applied: AppliedOperations::default(),
            notes: ColumnNotes::default(),
            keys: Vec::new(),
            positions: Positions::default(),
            savepoints: 0,
            replaced: Vec::new(),
            has_undone: false,
            may_change_counts: false,
            placeholder: Tid::PLACEHOLDER,
        }
    }
}

impl<H: TidHeader> AccessSet<H> {
    /// Begins a transaction.
    #[inline(always)]
    pub fn begin(&mut self, memory: &WorkerMemory) {
        debug_assert!(self.reads.is_empty() && self.writes.is_empty());
        self.placeholder = Tid::placeholder_after(memory.versions_begin());
    }

    /// Returns the version with which the placeholders of the transaction begin.
    pub fn placeholder(&self) -> Tid {
        self.placeholder
    }

    // ---- the read phase ----------------------------------------------------------------------

    /// Returns what this transaction itself has written to a record, if anything.
    #[inline(always)]
    pub fn own_write(&self, record: RecordPointer<H>) -> Option<Visible> {
        let position = self.find_write(record)?;
        Some(visible_own(&self.writes[position]))
    }

    /// As [`AccessSet::own_write`], for a record that the transaction is about to write again.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn observe_own(&self, record: RecordPointer<H>) -> Option<Observation<ReplacedVersion>> {
        let position = self.find_write(record)?;
        let entry = &self.writes[position];
        let version = ReplacedVersion {
            observed: entry.expected,
            newest: entry.replaced.address(),
            own: entry.row,
            own_position: Some(position),
            writes: self.writes.len(),
        };
        Some(Observation { visible: visible_own(entry), version })
    }

    /// Returns what a write must know of a record that this transaction has not written yet.
    #[inline(always)]
    pub fn observe(&self, observed: Tid, newest: *mut u8) -> Observation<ReplacedVersion> {
        let writes = self.writes.len();
        let version = ReplacedVersion { observed, newest, own: None, own_position: None, writes };
        Observation { visible: visible(observed, newest), version }
    }

    /// See [`super::Executor::is_current`].
    #[inline(always)]
    pub fn is_current(&self, record: RecordPointer<H>, version: ReplacedVersion) -> bool {
        match version.own_position {
            Some(position) => self.writes[position].row == version.own,
            // Most update closures write nothing, so the look-up is seldom needed.
            None => self.writes.len() == version.writes || self.find_write(record).is_none(),
        }
    }

    /// See [`super::Executor::note_read`].
    pub fn note_read(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        version: ReplacedVersion,
    ) {
        // If this transaction has written the record, the write is validated instead.
        match version.own_position {
            None => self.reads.push(ReadEntry { record, observed: version.observed, table }),
            Some(_) => self.note_own_read(record, None),
        }
    }

    /// Adds a write to the write set, or replaces this transaction's earlier write. If `row` is `None`, the write
    /// deletes the record from under `key`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn put(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        version: ReplacedVersion,
        row: Option<NonNull<u8>>,
        key: Option<EncodedKey>,
    ) {
        self.may_change_counts |= row.is_none() | version.observed.is_absent();
        let key = key.map_or(WriteKey::NONE, |key| self.hold_key(key, false));
        match version.own_position {
            Some(position) => {
                let entry = &mut self.writes[position];
                if self.savepoints > 0 {
                    self.replaced.push(ReplacedWrite { position, row: entry.row, key: entry.key });
                }
                if let Some(row) = entry.row {
                    self.superseded.push(SupersededRow { record, row, table });
                }
                entry.row = row;
                // An insertion keeps its own key, by which it is unlinked if it fails.
                if !entry.key.is_created() {
                    entry.key = key;
                }
                link(row, entry.replaced.address());
            }
            None => {
                link(row, version.newest);
                self.push_write(WriteEntry {
                    record,
                    table,
                    expected: version.observed,
                    replaced: Newest::at(version.newest),
                    row,
                    key,
                    staged: NOT_STAGED,
                });
            }
        }
    }

    /// As [`AccessSet::put`], for a row of which the transaction has used and written only these columns.
    #[inline(always)]
    pub fn put_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        version: ReplacedVersion,
        row: NonNull<u8>,
        columns: UsedColumns,
    ) {
        self.put(table, record, version, Some(row), None);
        // A row that was written before, by whatever operation, is written as a whole: it then has no note.
        if version.own_position.is_none() {
            self.notes.note_write(record, row, columns);
        }
    }

    /// Adds the write of a placeholder that this transaction has put into an index, under `key`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        self.may_change_counts = true;
        let key = self.hold_key(key, true);
        self.push_write(WriteEntry {
            record,
            table,
            expected: self.placeholder,
            replaced: Newest::NONE,
            row: Some(row),
            key,
            staged: NOT_STAGED,
        });
    }

    // ---- savepoints --------------------------------------------------------------------------

    /// See [`super::Executor::mark`].
    pub fn mark(&mut self) -> WriteMark {
        self.savepoints += 1;
        let (writes, replaced) = (self.writes.len(), self.replaced.len());
        WriteMark { writes, replaced, ..WriteMark::default() }
    }

    /// See [`super::Executor::keep`].
    pub fn keep(&mut self) {
        self.savepoints -= 1;
        if self.savepoints == 0 {
            self.replaced.clear();
        }
    }

    /// See [`super::Executor::undo_to`]. What was written is superseded. The records that the transaction has put into
    /// an index stay there, and in the set, as if their rows had been deleted again.
    pub fn undo_to(&mut self, mark: WriteMark) {
        self.has_undone = true;
        // The records that had been written before get the rows that they had.
        let mut end = self.superseded.len();
        while self.replaced.len() > mark.replaced {
            let Some(ReplacedWrite { position, row, key }) = self.replaced.pop() else { break };
            let entry = &mut self.writes[position];
            let (record, table) = (entry.record, entry.table);
            let undone = std::mem::replace(&mut entry.row, row);
            entry.key = key;
            let found = self.superseded[..end].iter().rposition(|old| Some(old.row) == row);
            if let Some(found) = found {
                self.superseded.swap_remove(found);
                end = found;
            }
            self.superseded.extend(undone.map(|row| SupersededRow { record, row, table }));
            self.note_own_read(record, None);
        }
        // The records that had not been written count as read.
        let mut kept = mark.writes;
        for position in mark.writes..self.writes.len() {
            let entry = &mut self.writes[position];
            let (record, table, observed) = (entry.record, entry.table, entry.expected);
            let undone = entry.row.take();
            if entry.key.is_created() {
                self.writes.swap(kept, position);
                kept += 1;
            } else {
                self.reads.push(ReadEntry { record, observed, table });
            }
            self.superseded.extend(undone.map(|row| SupersededRow { record, row, table }));
            self.note_own_read(record, None);
        }
        self.writes.truncate(kept);
        self.reindex_writes();
        self.keep();
    }

    // ---- how many rows there are -------------------------------------------------------------

    /// See [`super::Executor::rows_added`].
    pub fn rows_added(&self, table: TableRef) -> i64 {
        let of_table = self.writes.iter().filter(|entry| entry.table == table);
        of_table.map(WriteEntry::rows_added).sum()
    }

    /// Opens the worker's counts of the rows whose number the commit changes: see [`WorkerMemory::open_rows`].
    #[inline(always)]
    pub fn open_row_counts(&self, memory: &WorkerMemory) {
        if self.may_change_counts {
            self.for_each_count(|number, _| memory.open_rows(number));
        }
    }

    /// Closes the counts that [`AccessSet::open_row_counts`] has opened.
    #[inline(always)]
    pub fn close_row_counts(&self, memory: &WorkerMemory, has_committed: bool) {
        if self.may_change_counts {
            if has_committed {
                self.for_each_count(|number, added| memory.add_rows(number, added));
            }
            self.for_each_count(|number, _| memory.close_rows(number, has_committed));
        }
    }

    /// Calls `visit` for each write that changes how many rows a table has: with the number of the table's primary index,
    /// and by how much.
    #[inline(always)]
    fn for_each_count(&self, visit: impl Fn(usize, i64)) {
        for entry in &self.writes {
            let (core, added) = (entry.table.core(), entry.rows_added());
            if added != 0 && core.index.is_none() {
                visit(core.number, added);
            }
        }
    }

    /// See [`super::Executor::accessed`].
    pub fn accessed(&self) -> (usize, usize) {
        (self.reads.len(), self.writes.len())
    }

    // ---- the end -----------------------------------------------------------------------------

    /// Prepares the versions to be installed: see [`WorkerMemory::prepare`].
    ///
    /// # Safety
    /// The commit has drawn its number, has locked every record of the write set, and cannot fail any more.
    #[inline(always)]
    pub unsafe fn prepare_writes(&mut self, memory: &WorkerMemory) {
        for entry in &mut self.writes {
            // SAFETY: passed on to the caller.
            unsafe { entry.prepare(memory) };
        }
    }

    /// Notes that the commit has given the versions to be installed their numbers. They do not get them again: another
    /// transaction may have replaced or deleted a row by then, and a deletion changes the number.
    pub fn note_numbered(&mut self) {
        for entry in self.writes.iter_mut().filter(|entry| entry.row.is_some()) {
            entry.replaced = entry.replaced.with(NUMBERED);
        }
    }

    /// See [`super::Executor::list_writes`].
    pub fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        for entry in &mut self.writes {
            entry.staged = match logged(entry) {
                Some(write) => {
                    list.push(write);
                    list.len() as u32 - 1
                }
                None => NOT_STAGED,
            };
        }
    }

    /// Finishes a commit: appends its writes to the log, numbers them, hands what they have replaced or deleted to
    /// the garbage collection (DBX §5.5), and clears the set. `discard` unlinks a placeholder of this transaction.
    #[inline(always)]
    pub fn retire(&mut self, memory: &WorkerMemory, discard: impl Fn(&WriteEntry<H>, &EncodedKey)) {
        let order = |entry: &WriteEntry<H>| entry.expected.order_in(memory.drawn_epoch());
        self.retire_in_order(memory, order, discard);
    }

    /// As [`AccessSet::retire`]. `order` gives the order of a record's writes in the log, within an epoch.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn retire_in_order(
        &mut self,
        memory: &WorkerMemory,
        order: impl Fn(&WriteEntry<H>) -> u64,
        discard: impl Fn(&WriteEntry<H>, &EncodedKey),
    ) {
        if memory.is_logging() && !self.writes.is_empty() {
            let staged = self.writes.iter().filter(|entry| entry.staged != NOT_STAGED);
            memory.log(staged.map(|entry| (entry.staged, order(entry))));
        }
        for entry in &self.writes {
            let replaced = entry.replaced.row();
            let outcome = match (entry.row, self.key_of(entry)) {
                (Some(row), _) => {
                    let replaced = replaced.map(|row| ReplacedRow {
                        row,
                        was_deleted: entry.expected.is_absent(),
                        inline: is_inline(entry.table, entry.record, row),
                    });
                    RecordOutcome::Written { row, replaced, prepared: entry.prepared() }
                }
                // The record was inserted, and deleted again.
                (None, Some(key)) if entry.key.is_created() => {
                    discard(entry, key);
                    continue;
                }
                (None, Some(key)) if !entry.expected.is_absent() => RecordOutcome::Deleted {
                    row: replaced.expect("a row was visible"),
                    key,
                    is_queued: entry.expected.is_queued(),
                },
                // A deletion of an absent row: nothing has happened.
                (None, _) => continue,
            };
            // SAFETY: this transaction has made this change, and has just committed.
            unsafe { memory.conclude(entry.table, entry.record.block(), outcome) };
        }
        self.drop_superseded(memory);
        self.clear();
    }

    /// Finishes an abort: drops the rows that no other thread has seen, and clears the set. `discard` unlinks a
    /// placeholder of this transaction.
    pub fn drop_private(
        &mut self,
        memory: &WorkerMemory,
        discard: impl Fn(&WriteEntry<H>, &EncodedKey),
    ) {
        for entry in &self.writes {
            if let Some(key) = self.created_key(entry) {
                discard(entry, key);
            }
            if let Some(row) = entry.row {
                // SAFETY: each private row is dropped once, since it is either the write entry's or superseded.
                unsafe { drop_private(entry.record, row, entry.table, memory) };
            }
        }
        self.drop_superseded(memory);
        self.clear();
    }

    fn drop_superseded(&mut self, memory: &WorkerMemory) {
        if self.superseded.is_empty() {
            return;
        }
        for SupersededRow { record, row, table } in self.superseded.drain(..) {
            // SAFETY: as above.
            unsafe { drop_private(record, row, table, memory) };
        }
    }

    // ---- the set itself ----------------------------------------------------------------------

    /// Empties the set.
    #[inline]
    pub fn clear(&mut self) {
        self.reads.clear();
        self.nodes.clear();
        self.superseded.clear();
        self.notes.clear();
        if !self.writes.is_empty() || self.has_undone {
            self.has_undone = false;
            self.writes.clear();
            self.applied.clear();
            self.keys.clear();
            self.positions.clear();
            self.savepoints = 0;
            self.replaced.clear();
            self.may_change_counts = false;
        }
    }

    /// Returns whether the transaction has read one record once, and done nothing else. Such a transaction needs no
    /// validation, since the read saw version and row together.
    #[inline(always)]
    pub fn is_one_read(&self) -> bool {
        self.reads.len() == 1 && self.writes.is_empty() && self.nodes.is_empty()
    }

    /// Returns the position of this transaction's own write of `record` in the write set.
    #[inline(always)]
    pub fn find_write(&self, record: RecordPointer<H>) -> Option<usize> {
        if self.writes.is_empty() {
            return None;
        }
        self.positions.find(record.block(), |position| self.writes[position].record == record)
    }

    /// Keeps the key of a write until the set is cleared.
    #[inline]
    pub fn hold_key(&mut self, key: EncodedKey, is_created: bool) -> WriteKey {
        let word = u32::try_from(self.keys.len()).ok().and_then(|position| position.checked_mul(2));
        let word = word.expect("a transaction has fewer than two billion writes");
        self.keys.push(key);
        WriteKey { word: word | u32::from(is_created) }
    }

    /// Returns the key of a record that is inserted or deleted.
    #[inline(always)]
    pub fn key_of(&self, entry: &WriteEntry<H>) -> Option<&EncodedKey> {
        self.keys.get(entry.key.word as usize / 2)
    }

    /// Returns the key of a record that this transaction has put into the index.
    #[inline(always)]
    pub fn created_key(&self, entry: &WriteEntry<H>) -> Option<&EncodedKey> {
        if entry.key.is_created() { self.key_of(entry) } else { None }
    }

    /// Adds the write of a record that has no write yet.
    #[inline(always)]
    pub fn push_write(&mut self, entry: WriteEntry<H>) {
        self.positions.insert(entry.record.block(), self.writes.len(), |position| {
            self.writes[position].record.block()
        });
        self.writes.push(entry);
    }

    /// Sorts the writes by address. Positions from before become invalid.
    pub fn sort_writes(&mut self) {
        self.writes.sort_unstable_by_key(|entry| entry.record.block());
        self.reindex_writes();
    }

    /// Moves the writes for which `is_first` holds before the others, and returns how many there are. Positions
    /// from before become invalid.
    pub fn partition_writes(&mut self, is_first: impl Fn(&WriteEntry<H>) -> bool) -> usize {
        let mut first = 0;
        for position in 0..self.writes.len() {
            if is_first(&self.writes[position]) {
                self.writes.swap(first, position);
                first += 1;
            }
        }
        self.reindex_writes();
        first
    }

    fn reindex_writes(&mut self) {
        self.positions.clear();
        for (position, entry) in self.writes.iter().enumerate() {
            self.positions.insert(entry.record.block(), position, |position| {
                self.writes[position].record.block()
            });
        }
    }

    /// Notes an index node, or a range in it. Returns the position of the note.
    #[inline(always)]
    pub fn note_node(
        &mut self,
        table: TableRef,
        node: NodeVersion,
        range: Option<ScannedRange>,
    ) -> usize {
        self.nodes.push(NodeEntry { node, table, range });
        self.nodes.len() - 1
    }

    /// Notes that the scan which has noted this node at this position has read nothing from an address on.
    #[inline]
    pub fn stop_scan(&mut self, position: usize, node: NodeVersion, address: u64) {
        if let Some(entry) = self.nodes.get_mut(position)
            && entry.node.word == node.word
            && let Some(range) = &mut entry.range
        {
            range.stop_at(address);
        }
    }

    /// Decides whether a node that has changed since it was noted is unchanged where the transaction relies on it:
    /// no record has come into the range, except those that the transaction has put there itself.
    #[cold]
    #[inline(never)]
    pub fn is_range_unchanged(&self, entry: &NodeEntry) -> bool {
        let is_own = |address| self.has_inserted(address);
        // SAFETY: node and range were noted together, and the worker is pinned as long as it has an access set.
        entry.range.is_some_and(|range| unsafe { range.is_unchanged(entry.node, &is_own) })
    }

    /// Reads ranges again whose leaves have changed, and relies on the leaves as they are now if there is nothing else in
    /// them, apart from records that have left the index. Fails with the table of a range for which that is not so. Each record
    /// that a scan has followed still has to be found in the state in which the scan saw it.
    pub fn read_ranges_again(&mut self) -> Result<(), TableRef> {
        let mut further = Vec::new();
        for position in 0..self.nodes.len() {
            let entry = &self.nodes[position];
            // SAFETY: nodes are retired, but not freed, while the worker is pinned.
            if unsafe { entry.node.current() } == entry.node.version {
                continue;
            }
            let Some(range) = &entry.range else { return Err(entry.table) };
            let is_own = |address| self.has_inserted(address);
            let mut first = None;
            let mut note = |node| match first {
                None => first = Some(node),
                Some(_) => further.push(NodeEntry { node, ..*entry }),
            };
            // SAFETY: the range is of a table of the database, and the worker is pinned.
            let is_the_same = unsafe { range.read_again(&is_own, &mut note) };
            match first {
                Some(node) if is_the_same => self.nodes[position].node = node,
                _ => return Err(entry.table),
            }
        }
        self.nodes.append(&mut further);
        Ok(())
    }

    /// Returns whether the transaction has put the record at this address into its index, which leads to it now.
    fn has_inserted(&self, address: u64) -> bool {
        // SAFETY: the address is in an index of this database now, and the worker is pinned. So the record is
        // not freed, whether it came into the index before or after the pinning.
        let record = unsafe { RecordPointer::from_address(address) };
        let is_insertion = |position: usize| self.writes[position].key.is_created();
        self.find_write(record).is_some_and(is_insertion)
    }

    /// Accounts for this transaction's own change of a node. Returns false if another transaction had changed the
    /// node since it was noted, and a look at the node at the commit would not show whether that matters.
    #[inline]
    pub fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> bool {
        for position in 0..self.nodes.len() {
            let entry = &mut self.nodes[position];
            if entry.node.word != change.word {
                continue;
            }
            // Only this transaction has changed the node: rely on the new version. After a split, a part of the
            // range is in the sibling, so rely on that as well.
            if entry.node.version == change.before {
                entry.node.version = change.after;
                let range = entry.range;
                if let Some(node) = sibling {
                    self.note_node(table, node, range);
                }
            } else if entry.range.is_none() || sibling.is_some() {
                return false;
            }
        }
        true
    }
}

/// Returns what the log must hold of a write, if the write changes anything.
fn logged<H>(entry: &WriteEntry<H>) -> Option<LoggedWrite> {
    let before = entry.replaced_row();
    let written = match (entry.row, before) {
        (Some(row), Some(before)) => WriteOutcome::Changed { row, before },
        (Some(row), None) => WriteOutcome::Row(row),
        (None, Some(deleted)) => WriteOutcome::Deleted(deleted),
        (None, None) => return None,
    };
    Some(LoggedWrite { table: entry.table, written })
}

/// Makes a private row point to the row that it is to replace.
#[inline(always)]
fn link(row: Option<NonNull<u8>>, replaced: *mut u8) {
    if let Some(row) = row {
        // SAFETY: the row is this transaction's own.
        unsafe { VersionHeader::of(row) }.set_previous(replaced);
    }
}

/// Returns what a record with this version word and newest row shows.
#[inline(always)]
pub fn visible(tid: Tid, newest: *mut u8) -> Visible {
    if !tid.is_absent() {
        // A record that is not absent has been committed with a row.
        debug_assert!(!newest.is_null());
        return NonNull::new(newest).map_or(Visible::Absent, Visible::Row);
    }
    if tid.is_removed() { Visible::Removed } else { Visible::Absent }
}

#[inline(always)]
fn visible_own<H>(entry: &WriteEntry<H>) -> Visible {
    entry.row.map_or(Visible::Absent, Visible::Row)
}

/// Returns the word that committing `write` in `epoch` gives its record: the version after the one that it
/// replaces.
#[inline(always)]
pub fn successor<H>(write: &WriteEntry<H>, epoch: u64) -> Tid {
    written_at(write, write.expected.next(epoch))
}

/// Returns the word that committing `write` at `version` gives its record.
#[inline(always)]
pub fn written_at<H>(write: &WriteEntry<H>, version: Tid) -> Tid {
    match write.row {
        Some(_) => write.expected.written_at(version),
        // Inserted and deleted again, or a deletion of an absent row: nothing has happened.
        None if write.expected.is_absent() => write.expected,
        None => write.expected.deleted_at(version),
    }
}

/// Drops a row that no other thread has seen.
///
/// # Safety
/// The row is complete, of this table, and the caller's own. It is not dropped again.
pub unsafe fn drop_private<H>(
    record: RecordPointer<H>,
    row: NonNull<u8>,
    table: TableRef,
    memory: &WorkerMemory,
) {
    // SAFETY: by this function's contract.
    unsafe { memory.drop_row(row, table, is_inline(table, record, row)) };
}

/// Returns whether a row of `record` lies inline in it.
#[inline(always)]
pub fn is_inline<H>(table: TableRef, record: RecordPointer<H>, row: NonNull<u8>) -> bool {
    table.core().holds_rows_inline() && record.inline_row() == row
}
