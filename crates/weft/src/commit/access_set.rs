//! What a transaction has read, is to write, and which index nodes it relies on; for all
//! protocols that keep a transaction's writes private until it commits.
//!
//! The order of this file: the entries; the set, and the questions that the read phase asks of
//! it; what becomes of rows and records when the transaction has ended; the table by which a
//! record's own write is found.
//!
//! A set is reused from one transaction to the next.

use std::ptr::NonNull;

use super::{Observation, RecordHeader, Visible};
use crate::index::bplus_tree::ScannedRange;
use crate::index::{NodeChange, NodeVersion};
use crate::row::encoding::EncodedKey;
use crate::store::record::tid::{Tid, TidWord};
use crate::store::record::version::VersionHeader;
use crate::store::record::{RecordPointer, StoredRecord};
use crate::store::table::TableRef;
use crate::store::worker::{self, LoggedWrite, NOT_STAGED, Outcome, WorkerMemory, Written};

/// A record header that holds a TID word, perhaps beside other things.
pub trait TidHeader: Default + Send + Sync + 'static {
    /// The word.
    fn tid(&self) -> &TidWord;
}

impl<H: TidHeader> RecordHeader for H {
    fn mark_loaded(&self) {
        // Older than any version that a transaction has written.
        self.tid().unlock(Tid::PLACEHOLDER.written_at(Tid::at(0)));
    }
}

/// The header of a protocol that needs nothing but the TID word (see [`crate::store::record::tid`]).
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

/// A record read, and the version it had.
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

/// A record to be written.
pub struct WriteEntry<H> {
    pub record: RecordPointer<H>,
    pub table: TableRef,
    /// The version that the write replaces; the lock is taken at this version and no other.
    pub expected: Tid,
    /// The row of that version (of a deleted record, the row it had); null if it never had one.
    pub replaced: *mut u8,
    /// The row to install; `None` to leave the record without one.
    pub row: Option<NonNull<u8>>,
    /// The key that the index leads to the record from; of records that this transaction has inserted or
    /// deleted. See [`AccessSet::key_of`].
    pub key: WriteKey,
    /// Where the write stands among those that are [staged](WorkerMemory::stage), or [`NOT_STAGED`].
    pub staged: u32,
}

/// Where in the access set the key of a write is, and whether the transaction has put the record into the
/// index. Few writes have a key: so an entry is short, and nothing has to be done to drop it.
#[derive(Clone, Copy, Debug)]
pub struct WriteKey {
    /// The position in the list of keys, twice; plus one if the record was created.
    word: u32,
}

impl WriteKey {
    /// The write changes a record that is in the index, and stays there.
    pub const NONE: WriteKey = WriteKey { word: u32::MAX };

    /// Whether this transaction has put the record into the index.
    #[inline(always)]
    pub fn is_created(self) -> bool {
        self.word & 1 == 1 && self.word != u32::MAX
    }
}

const _: () = assert!(size_of::<WriteEntry<TidOnly>>() == 48);
const _: () = assert!(!std::mem::needs_drop::<WriteEntry<TidOnly>>());

/// What a write must know of the version that it replaces.
#[derive(Clone, Copy, Debug)]
pub struct Replaced {
    /// The version, unlocked.
    pub observed: Tid,
    newest: *mut u8,
    /// This transaction's own row, if the record is in the write set with one.
    own: Option<NonNull<u8>>,
    /// Where in the write set it is.
    own_position: Option<usize>,
    /// How many writes there were.
    writes: usize,
}

impl Replaced {
    /// The row of the version that is replaced; null if it never had one.
    pub fn newest(&self) -> *mut u8 {
        self.newest
    }
}

/// An index node relied on.
#[derive(Clone, Copy)]
pub struct NodeEntry {
    pub node: NodeVersion,
    pub table: TableRef,
    /// What of it, if not all.
    pub range: Option<ScannedRange>,
}

/// A private row that was replaced before anybody else saw it: the transaction's own references
/// to it last until it ends.
pub struct Superseded<H> {
    pub record: RecordPointer<H>,
    pub row: NonNull<u8>,
    pub table: TableRef,
}

/// Everything that a transaction has accessed.
pub struct AccessSet<H> {
    pub reads: Vec<ReadEntry<H>>,
    pub writes: Vec<WriteEntry<H>>,
    pub nodes: Vec<NodeEntry>,
    pub superseded: Vec<Superseded<H>>,
    keys: Vec<EncodedKey>,
    positions: Positions,
}

// SAFETY: an access set moves between threads only with its worker, empty between transactions.
unsafe impl<H> Send for AccessSet<H> {}

impl<H> Default for AccessSet<H> {
    fn default() -> Self {
        AccessSet {
            reads: Vec::new(),
            writes: Vec::new(),
            nodes: Vec::new(),
            superseded: Vec::new(),
            keys: Vec::new(),
            positions: Positions::default(),
        }
    }
}

impl<H: TidHeader> AccessSet<H> {
    // ---- the read phase ----------------------------------------------------------------------

    /// What this transaction itself has written to a record, if anything.
    #[inline(always)]
    pub fn own_write(&self, record: RecordPointer<H>) -> Option<Visible> {
        let position = self.find_write(record)?;
        Some(visible_own(&self.writes[position]))
    }

    /// Likewise, for a write that is to replace it.
    #[inline(always)]
    pub fn observe_own(&self, record: RecordPointer<H>) -> Option<Observation<Replaced>> {
        let position = self.find_write(record)?;
        let entry = &self.writes[position];
        let version = Replaced {
            observed: entry.expected,
            newest: entry.replaced,
            own: entry.row,
            own_position: Some(position),
            writes: self.writes.len(),
        };
        Some(Observation { visible: visible_own(entry), version })
    }

    /// A record that this transaction has not written yet, as a write that is to replace it sees
    /// it.
    #[inline(always)]
    pub fn observe(&self, observed: Tid, newest: *mut u8) -> Observation<Replaced> {
        let writes = self.writes.len();
        let version = Replaced { observed, newest, own: None, own_position: None, writes };
        Observation { visible: visible(observed, newest), version }
    }

    /// See [`super::Executor::is_current`].
    #[inline(always)]
    pub fn is_current(&self, record: RecordPointer<H>, version: Replaced) -> bool {
        match version.own_position {
            Some(position) => self.writes[position].row == version.own,
            // Most closures write nothing at all.
            None => self.writes.len() == version.writes || self.find_write(record).is_none(),
        }
    }

    /// See [`super::Executor::note_read`].
    pub fn note_read(&mut self, table: TableRef, record: RecordPointer<H>, version: Replaced) {
        // This transaction's own write, if there is one, is validated itself.
        if version.own_position.is_none() {
            self.reads.push(ReadEntry { record, observed: version.observed, table });
        }
    }

    /// Adds a write to the write set, or replaces this transaction's earlier one. If there is no row, the
    /// record is deleted from under `key`.
    #[inline(always)]
    pub fn put(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        version: Replaced,
        row: Option<NonNull<u8>>,
        key: Option<EncodedKey>,
    ) {
        let key = key.map_or(WriteKey::NONE, |key| self.hold_key(key, false));
        match version.own_position {
            Some(position) => {
                let entry = &mut self.writes[position];
                if let Some(row) = entry.row {
                    self.superseded.push(Superseded { record, row, table });
                }
                entry.row = row;
                if !entry.key.is_created() {
                    entry.key = key;
                }
                link(row, entry.replaced);
            }
            None => {
                link(row, version.newest);
                self.push_write(WriteEntry {
                    record,
                    table,
                    expected: version.observed,
                    replaced: version.newest,
                    row,
                    key,
                    staged: NOT_STAGED,
                });
            }
        }
    }

    /// Adds the write of a placeholder that this transaction has put into an index, under `key`.
    #[inline(always)]
    pub fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        let key = self.hold_key(key, true);
        self.push_write(WriteEntry {
            record,
            table,
            expected: Tid::PLACEHOLDER,
            replaced: std::ptr::null_mut(),
            row: Some(row),
            key,
            staged: NOT_STAGED,
        });
    }

    // ---- the end -----------------------------------------------------------------------------

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

    /// After a commit: appends what it has written to the log, numbers it, hands what it has replaced
    /// or deleted to the garbage collection (DBX §5.5), and forgets everything. `discard` unlinks a
    /// placeholder of this transaction.
    #[inline(always)]
    pub fn retire(&mut self, memory: &WorkerMemory, discard: impl Fn(&WriteEntry<H>, &EncodedKey)) {
        let order = |entry: &WriteEntry<H>| entry.expected.order_in(memory.drawn_epoch());
        self.retire_in_order(memory, order, discard);
    }

    /// As [`AccessSet::retire`]; `order` orders the writes of a record in the log, within an epoch.
    #[inline(always)]
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
            let replaced = NonNull::new(entry.replaced);
            let outcome = match (entry.row, self.key_of(entry)) {
                (Some(row), _) => {
                    let replaced = replaced.map(|row| worker::Replaced {
                        row,
                        was_deleted: entry.expected.is_absent(),
                        inline: is_inline(entry.table, entry.record, row),
                    });
                    Outcome::Written { row, replaced }
                }
                // Inserted and deleted again.
                (None, Some(key)) if entry.key.is_created() => {
                    discard(entry, key);
                    continue;
                }
                (None, Some(key)) if !entry.expected.is_absent() => Outcome::Deleted {
                    row: replaced.expect("a row was visible"),
                    key,
                    is_queued: entry.expected.is_queued(),
                },
                // Deleted where there was nothing: nothing happened.
                (None, _) => continue,
            };
            // SAFETY: this transaction has done so, and has just committed.
            unsafe { memory.conclude(entry.table, entry.record.block(), outcome) };
        }
        self.drop_superseded(memory);
        self.clear();
    }

    /// After an abort: drops what nobody else has seen, and forgets everything. `discard` unlinks
    /// a placeholder of this transaction.
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
                // SAFETY: each private row is dropped once: it is either the write entry's or superseded.
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
        for Superseded { record, row, table } in self.superseded.drain(..) {
            // SAFETY: as above.
            unsafe { drop_private(record, row, table, memory) };
        }
    }

    // ---- the set itself ----------------------------------------------------------------------

    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        self.reads.clear();
        self.nodes.clear();
        self.superseded.clear();
        if !self.writes.is_empty() {
            self.writes.clear();
            self.keys.clear();
            self.positions.clear();
        }
    }

    /// Whether the transaction has read one record, once, and done nothing else: then the read,
    /// which saw version and row together, is the transaction.
    #[inline(always)]
    pub fn is_one_read(&self) -> bool {
        self.reads.len() == 1 && self.writes.is_empty() && self.nodes.is_empty()
    }

    /// The position among the writes of this transaction's own write of `record`.
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

    /// The key of a record that is inserted or deleted.
    #[inline(always)]
    pub fn key_of(&self, entry: &WriteEntry<H>) -> Option<&EncodedKey> {
        self.keys.get(entry.key.word as usize / 2)
    }

    /// The key of a record that this transaction has put into the index.
    #[inline(always)]
    pub fn created_key(&self, entry: &WriteEntry<H>) -> Option<&EncodedKey> {
        if entry.key.is_created() { self.key_of(entry) } else { None }
    }

    /// Adds a write of a record that has none yet.
    #[inline(always)]
    pub fn push_write(&mut self, entry: WriteEntry<H>) {
        self.positions.insert(entry.record.block(), self.writes.len(), |position| {
            self.writes[position].record.block()
        });
        self.writes.push(entry);
    }

    /// Sorts the writes by address. Positions found before mean nothing afterwards.
    pub fn sort_writes(&mut self) {
        self.writes.sort_unstable_by_key(|entry| entry.record.block());
        self.find_writes_anew();
    }

    /// Puts the writes for which `is_first` holds before the others; how many they are. Positions found
    /// before mean nothing afterwards.
    pub fn partition_writes(&mut self, is_first: impl Fn(&WriteEntry<H>) -> bool) -> usize {
        let mut first = 0;
        for position in 0..self.writes.len() {
            if is_first(&self.writes[position]) {
                self.writes.swap(first, position);
                first += 1;
            }
        }
        self.find_writes_anew();
        first
    }

    fn find_writes_anew(&mut self) {
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

    /// The scan that has noted this node at this position has read nothing from an address on.
    #[inline]
    pub fn stop_scan(&mut self, position: usize, node: NodeVersion, address: u64) {
        if let Some(entry) = self.nodes.get_mut(position)
            && entry.node.word == node.word
            && let Some(range) = &mut entry.range
        {
            range.stop_at(address);
        }
    }

    /// Whether what a transaction relies on in a node that has changed since it was noted is as it was: no
    /// record has come into the range but those that it has put there itself.
    #[cold]
    #[inline(never)]
    pub fn is_range_unchanged(&self, entry: &NodeEntry) -> bool {
        let is_own = |address| {
            // SAFETY: an address that is stored in an index of this database, which the worker entered before
            // it was pinned last, or since.
            let record = unsafe { RecordPointer::from_address(address) };
            let is_insertion = |position: usize| self.writes[position].key.is_created();
            self.find_write(record).is_some_and(is_insertion)
        };
        // SAFETY: noted together, and the worker is pinned as long as it has an access set.
        entry.range.is_some_and(|range| unsafe { range.is_unchanged(entry.node, &is_own) })
    }

    /// Takes this transaction's own change of a node into account. False if the node had changed
    /// before, by another's doing, since it was noted, and a look at it at the commit will not tell whether
    /// that matters.
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

/// What the log is to hold of a write, if anything has happened.
fn logged<H>(entry: &WriteEntry<H>) -> Option<LoggedWrite> {
    let before = NonNull::new(entry.replaced).filter(|_| !entry.expected.is_absent());
    let written = match (entry.row, before) {
        (Some(row), Some(before)) => Written::Changed { row, before },
        (Some(row), None) => Written::Row(row),
        (None, Some(deleted)) => Written::Deleted(deleted),
        (None, None) => return None,
    };
    Some(LoggedWrite { table: entry.table, written })
}

/// Has a row that nobody else has seen lead to the one that it is to replace.
#[inline(always)]
fn link(row: Option<NonNull<u8>>, replaced: *mut u8) {
    if let Some(row) = row {
        // SAFETY: the row is this transaction's own.
        unsafe { VersionHeader::of(row) }.set_previous(replaced);
    }
}

/// What a record with this version word and newest row shows.
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

/// The word that committing `write` in `epoch` gives its record: the version after the one that it
/// replaces.
#[inline(always)]
pub fn successor<H>(write: &WriteEntry<H>, epoch: u64) -> Tid {
    written_at(write, write.expected.next(epoch))
}

/// The word that committing `write` at `version` gives its record.
#[inline(always)]
pub fn written_at<H>(write: &WriteEntry<H>, version: Tid) -> Tid {
    match write.row {
        Some(_) => write.expected.written_at(version),
        // Inserted and deleted again, or deleted where there was nothing: nothing happened.
        None if write.expected.is_absent() => write.expected,
        None => write.expected.deleted_at(version),
    }
}

/// Drops a row that no other thread has seen.
///
/// # Safety
/// The row is complete, of this table, and the caller's own: it is not dropped again.
pub unsafe fn drop_private<H>(
    record: RecordPointer<H>,
    row: NonNull<u8>,
    table: TableRef,
    memory: &WorkerMemory,
) {
    // SAFETY: by the contract.
    unsafe { memory.drop_row(row, table, is_inline(table, record, row)) };
}

/// Whether a row of `record` lies inline in it.
#[inline(always)]
pub fn is_inline<H>(table: TableRef, record: RecordPointer<H>, row: NonNull<u8>) -> bool {
    table.core().holds_rows_inline() && record.inline_row() == row
}

const _: () = assert!(size_of::<StoredRecord<Tid>>().is_multiple_of(16));

/// A small open-addressing hash table from a record's address to its position in a list. Among the
/// writes it answers "did I write this record?", which every read after the first write asks.
pub struct Positions {
    /// Generation (upper half) and position (lower half). A slot of another generation is free, so
    /// that forgetting everything takes one addition. The length is a power of two.
    slots: Vec<u64>,
    /// The present generation, in the upper half; never 0.
    generation: u64,
    used: usize,
}

const POSITIONS_MIN: usize = 128;
const GENERATION_ONE: u64 = 1 << 32;

impl Default for Positions {
    fn default() -> Self {
        Positions { slots: vec![0; POSITIONS_MIN], generation: GENERATION_ONE, used: 0 }
    }
}

impl Positions {
    #[inline(always)]
    fn start(&self, block: NonNull<u8>) -> usize {
        // Fibonacci hashing; blocks are at least 16 bytes apart.
        let hash = (block.as_ptr() as usize as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    /// The position in a slot, if it is of this generation.
    #[inline(always)]
    fn position(&self, slot: usize) -> Option<usize> {
        // In the present generation what is left is the position, and else far more.
        let position = self.slots[slot] ^ self.generation;
        (position < GENERATION_ONE).then_some(position as usize)
    }

    #[inline(always)]
    pub fn find(&self, block: NonNull<u8>, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mut slot = self.start(block);
        loop {
            let position = self.position(slot)?;
            if is_it(position) {
                return Some(position);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    #[inline(always)]
    pub fn insert(
        &mut self,
        block: NonNull<u8>,
        position: usize,
        at: impl Fn(usize) -> NonNull<u8>,
    ) {
        if self.used * 2 >= self.slots.len() {
            self.grow(position, at);
        }
        self.used += 1;
        self.place(block, position);
    }

    #[inline(always)]
    fn place(&mut self, block: NonNull<u8>, position: usize) {
        let mut slot = self.start(block);
        while self.position(slot).is_some() {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = self.generation | position as u64;
    }

    #[cold]
    fn grow(&mut self, positions: usize, at: impl Fn(usize) -> NonNull<u8>) {
        let len = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(len, 0);
        for position in 0..positions {
            self.place(at(position), position);
        }
    }

    #[inline(always)]
    pub fn clear(&mut self) {
        self.used = 0;
        self.generation = self.generation.wrapping_add(GENERATION_ONE);
        // What a huge transaction has needed is not kept for every small one; and generations that
        // come round again begin with empty slots.
        if self.generation == 0 || self.slots.len() > 16 * POSITIONS_MIN {
            *self = Positions::default();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn positions_are_found_through_growth_and_clearing() {
        let blocks: Vec<NonNull<u8>> = (1..=5000usize)
            .map(|n| NonNull::new(std::ptr::without_provenance_mut(n * 48)).unwrap())
            .collect();
        let mut positions = Positions::default();
        for round in 0..3 {
            for (position, &block) in blocks.iter().enumerate() {
                assert_eq!(positions.find(block, |found| blocks[found] == block), None, "{round}");
                positions.insert(block, position, |position| blocks[position]);
            }
            for (position, &block) in blocks.iter().enumerate() {
                assert_eq!(positions.find(block, |found| blocks[found] == block), Some(position));
            }
            positions.clear();
        }
    }

    #[test]
    fn a_generation_that_comes_round_again_finds_nothing() {
        let block = NonNull::new(std::ptr::without_provenance_mut(48)).unwrap();
        let mut positions = Positions::default();
        positions.insert(block, 7, |_| block);
        positions.generation = u64::MAX - u64::from(u32::MAX);
        positions.used = 0;
        assert_eq!(positions.find(block, |_| true), None);
        positions.insert(block, 8, |_| block);
        assert_eq!(positions.find(block, |_| true), Some(8));
        positions.clear();
        assert_eq!(positions.generation, GENERATION_ONE);
        assert_eq!(positions.find(block, |_| true), None);
    }
}
