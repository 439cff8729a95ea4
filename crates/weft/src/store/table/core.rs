//! The type-erased view of a table: records and access sets hold rows as plain addresses, and a [`TableCore`]
//! says how to handle them.

use std::alloc::Layout;
use std::ptr::NonNull;

use weft_htm::word::{Ordering, Word};

use crate::error::Failure;
use crate::row::column::ColumnSet;
use crate::row::description::TableDescription;
use crate::row::encoding::EncodedKey;
use crate::store::record::arena::{BLOCK_BYTES_MAX, SizeClass};
use crate::store::record::version::VersionHeader;
use crate::store::record::{DeletedOutcome, RecordKind, newest, record_at};
use crate::store::worker::WorkerMemory;

/// What the type-erased layers know of a table, or of a secondary index. It is the first field of
/// [`TableInner`](super::TableInner) and of [`Secondary`](super::Secondary), and its functions rely on that.
#[derive(Debug)]
pub struct TableCore {
    pub name: &'static str,
    /// The secondary index's name, if this is one.
    pub index: Option<&'static str>,
    /// The number of the index among the database's indexes.
    pub number: usize,
    pub row_class: SizeClass,
    pub record_class: SizeClass,
    /// The size of a row, with what lies behind it.
    pub row_bytes: usize,
    /// The offset of the word behind a row that says how many bytes it owns elsewhere, if rows own anything: see
    /// [`WorkerMemory::count_heap`].
    heap_offset: Option<usize>,
    /// Returns how many bytes a row owns elsewhere.
    heap_bytes: unsafe fn(NonNull<u8>) -> usize,
    /// Whether the engine moves rows back into their records: see `store::worker::inline`.
    moves_rows: bool,
    /// The kind of the table's records, by the database's protocol.
    pub records: &'static RecordKind,
    /// The offset of a row's stamp, if the database records a history: see [`crate::history`].
    #[cfg(feature = "history")]
    stamp_offset: Option<usize>,
    /// The table's number in the log, or [`NOT_LOGGED`]. Not logged are secondary indexes, volatile tables,
    /// and everything in a database without a directory.
    log_number: Word,
    /// One more than the last epoch in which a scan passed over many deleted records, or 0.
    passed_over: Word,
    /// Appends a row in its stored form.
    encode_row: unsafe fn(NonNull<u8>, &mut Vec<u8>),
    /// Appends a row's key, and what has changed between two versions of the row, in its stored form.
    encode_change: unsafe fn(NonNull<u8>, NonNull<u8>, &mut Vec<u8>),
    /// Appends a row's primary key in its stored form.
    encode_key: unsafe fn(NonNull<u8>, &mut Vec<u8>),
    /// See [`TableCore::same_columns`].
    same_columns: unsafe fn(NonNull<u8>, NonNull<u8>, ColumnSet) -> bool,
    /// See [`TableCore::rebase`].
    rebase: unsafe fn(Rebase, NonNull<u8>) -> bool,
    /// See [`TableCore::same_index_keys`].
    same_index_keys: unsafe fn(NonNull<u8>, NonNull<u8>) -> bool,
    /// See [`TableCore::may_be_written`].
    may_be_written: unsafe fn(NonNull<u8>) -> bool,
    /// Returns when a row disappears, in milliseconds since 1970; `None` if rows of this table do not.
    disappears_at: Option<unsafe fn(NonNull<u8>) -> u64>,
    /// Drops a row; `None` if rows own nothing.
    pub drop_row: Option<unsafe fn(NonNull<u8>)>,
    /// Clones a row to another address.
    clone_row: unsafe fn(NonNull<u8>, NonNull<u8>),
    /// Returns a row's key, as the index holds it.
    index_key: unsafe fn(NonNull<u8>) -> EncodedKey,
    /// Returns the record that the index holds under a key.
    find: unsafe fn(TableRef, &EncodedKey) -> Option<NonNull<u8>>,
    /// Returns the key of a row, for histories.
    #[cfg(feature = "history")]
    history_key: unsafe fn(NonNull<u8>) -> crate::history::HistoryKey,
    /// Returns the table's description under a name, if the rows are those of a table that is not volatile.
    pub description: fn(&str) -> Option<TableDescription>,
    /// Formats the key of a row, for messages.
    pub format_key: unsafe fn(NonNull<u8>) -> String,
    /// Removes a record from under a key of the index. Returns false if it was not there.
    unlink: unsafe fn(TableRef, NonNull<u8>, &EncodedKey, &WorkerMemory) -> bool,
    /// Puts a record under a key of the index. Returns false if another record is there.
    link: unsafe fn(TableRef, NonNull<u8>, &EncodedKey, &WorkerMemory) -> bool,
}

/// More than any row can own. So sums of what rows' types say do not overflow.
const HEAP_BYTES_MAX: usize = 1 << 40;

/// The value of `log_number` in a table that is not logged.
const NOT_LOGGED: u64 = u64::MAX;

impl TableCore {
    /// Returns the table's number in the log, if it is logged.
    #[inline(always)]
    pub fn log_number(&self) -> Option<u32> {
        // Relaxed: set before the database is open.
        let number = self.log_number.load(Ordering::Relaxed);
        (number != NOT_LOGGED).then_some(number as u32)
    }

    /// Notes that a scan has passed over many deleted records. From then on they leave the index sooner.
    #[cold]
    pub fn note_passed_over(&self, epoch: u64) {
        // Relaxed, here and below: when they leave is a matter of speed alone.
        if self.passed_over.load(Ordering::Relaxed) <= epoch {
            self.passed_over.store(epoch + 1, Ordering::Relaxed);
        }
    }

    /// Returns whether a scan has passed over many deleted records in this epoch or the one before.
    pub fn is_passed_over(&self, epoch: u64) -> bool {
        self.passed_over.load(Ordering::Relaxed) >= epoch
    }

    /// Returns how many bytes a record takes, with one row.
    pub fn record_bytes(&self) -> usize {
        let row = if self.holds_rows_inline() { 0 } else { self.row_class.bytes() };
        self.record_class.bytes() + row
    }

    /// Makes the table logged from now on.
    pub fn set_log_number(&self, number: u32) {
        self.log_number.store(number.into(), Ordering::Relaxed);
    }

    /// Appends a row to `output` in its stored form.
    ///
    /// # Safety
    /// `row` is a row of this table, and is not dropped during the call. The table has a
    /// [description](TableCore::description).
    #[inline(always)]
    pub unsafe fn encode_row(&self, row: NonNull<u8>, output: &mut Vec<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { (self.encode_row)(row, output) };
    }

    /// Appends a row's primary key, which columns differ from an earlier version, and their values.
    ///
    /// # Safety
    /// As for [`TableCore::encode_row`], for both rows.
    #[inline(always)]
    pub unsafe fn encode_change(
        &self,
        row: NonNull<u8>,
        before: NonNull<u8>,
        output: &mut Vec<u8>,
    ) {
        // SAFETY: passed on to the caller.
        unsafe { (self.encode_change)(row, before, output) };
    }

    /// Appends a row's primary key to `output` in its stored form.
    ///
    /// # Safety
    /// As for [`TableCore::encode_row`].
    #[inline(always)]
    pub unsafe fn encode_key(&self, row: NonNull<u8>, output: &mut Vec<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { (self.encode_key)(row, output) };
    }

    /// Returns how many bytes a row owns elsewhere. This runs the user's code.
    ///
    /// # Safety
    /// `row` is a row of this table, and is not dropped during the call.
    #[inline(always)]
    pub unsafe fn heap_bytes(&self, row: NonNull<u8>) -> usize {
        match self.heap_offset {
            // SAFETY: passed on to the caller.
            Some(_) => unsafe { (self.heap_bytes)(row) }.min(HEAP_BYTES_MAX),
            None => 0,
        }
    }

    /// Returns the word behind a row that says how many bytes were counted for what it owns.
    ///
    /// # Safety
    /// `row` is the place of a row of this table, in a block of the table's row class.
    #[inline(always)]
    pub unsafe fn counted_heap(&self, row: NonNull<u8>) -> Option<NonNull<usize>> {
        // SAFETY: by the contract, the block has room for the word.
        self.heap_offset.map(|offset| unsafe { row.add(offset) }.cast())
    }

    /// As [`TableCore::heap_bytes`], for a row of a known type. One without `Drop` owns nothing.
    ///
    /// # Safety
    /// The rows of this table are of type `R`.
    #[inline(always)]
    pub unsafe fn heap_bytes_of<R>(&self, row: &R) -> usize {
        match std::mem::needs_drop::<R>() {
            // SAFETY: passed on to the caller.
            true => unsafe { self.heap_bytes(NonNull::from(row).cast()) },
            false => 0,
        }
    }

    /// Clones a row to the address `place`.
    ///
    /// # Safety
    /// `row` is a row of this table, and is not dropped during the call. `place` has room for a row, and
    /// belongs to the caller.
    pub unsafe fn clone_row(&self, row: NonNull<u8>, place: NonNull<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { (self.clone_row)(row, place) };
    }

    /// Writes the stamp of the transaction that made a row behind another place for a row, if rows have stamps.
    ///
    /// # Safety
    /// `row` is a row of this table that has its stamp. `place` is that of a row of this table, and the caller's own.
    #[cfg_attr(not(feature = "history"), allow(unused_variables, reason = "there are no stamps"))]
    pub unsafe fn copy_stamp(&self, row: NonNull<u8>, place: NonNull<u8>) {
        #[cfg(feature = "history")]
        if self.stamp_offset.is_some() {
            // SAFETY: passed on to the caller.
            unsafe { self.set_stamp(place, self.stamp(row)) };
        }
    }

    /// Returns whether these columns are known to be equal in two versions of a row:
    /// [`Record::same_columns`]. Always false for the rows of a secondary index.
    ///
    /// [`Record::same_columns`]: crate::Record::same_columns
    ///
    /// # Safety
    /// As for [`TableCore::encode_row`], for both rows; but the table need not be logged.
    pub unsafe fn same_columns(
        &self,
        row: NonNull<u8>,
        other: NonNull<u8>,
        columns: ColumnSet,
    ) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { (self.same_columns)(row, other, columns) }
    }

    /// Applies a change to another version of the row, and writes the result to `place`:
    /// [`Record::rebase`](crate::Record::rebase). Returns false, and writes nothing, if that is not possible.
    /// It never is for the rows of a secondary index.
    ///
    /// The caller must check whether the row [may be written](TableCore::may_be_written), and whether the
    /// [entries](TableCore::same_index_keys) of secondary indexes change.
    ///
    /// # Safety
    /// As for [`TableCore::encode_row`], for all three rows. `place` has room for a row, and belongs to the
    /// caller.
    pub unsafe fn rebase(&self, change: Rebase, place: NonNull<u8>) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { (self.rebase)(change, place) }
    }

    /// Returns whether two versions of a row have the same keys in all secondary indexes.
    ///
    /// # Safety
    /// As for [`TableCore::same_columns`].
    pub unsafe fn same_index_keys(&self, row: NonNull<u8>, other: NonNull<u8>) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { (self.same_index_keys)(row, other) }
    }

    /// Returns whether a change, of which these columns matter, has the same effect on the other version: they are the
    /// same there, and no entry of a secondary index changes.
    ///
    /// # Safety
    /// As for [`TableCore::rebase`].
    pub unsafe fn may_be_moved(&self, change: Rebase, matters: ColumnSet) -> bool {
        let Rebase { row, before, onto, .. } = change;
        // SAFETY: passed on to the caller.
        unsafe {
            self.same_columns(before, onto, matters)
                && self.same_index_keys(before, row)
                && self.same_index_keys(before, onto)
        }
    }

    /// Returns whether a row meets the table's constraints, and is not too large to be stored.
    ///
    /// # Safety
    /// `row` is a row of this table, and is not dropped during the call.
    pub unsafe fn may_be_written(&self, row: NonNull<u8>) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { (self.may_be_written)(row) }
    }

    /// Returns when a row disappears because it expires, in milliseconds since 1970. Returns `None` if it does not.
    ///
    /// # Safety
    /// `row` is a row of this table, and is not dropped during the call.
    pub unsafe fn disappears_at(&self, row: NonNull<u8>) -> Option<u64> {
        // SAFETY: passed on to the caller.
        self.disappears_at.map(|at| unsafe { at(row) }).filter(|&at| at != u64::MAX)
    }

    /// Returns the key of a row, for histories.
    ///
    /// # Safety
    /// `row` is a row of this table, and is not dropped during the call.
    #[cfg(feature = "history")]
    pub unsafe fn history_key(&self, row: NonNull<u8>) -> crate::history::HistoryKey {
        // SAFETY: passed on to the caller.
        unsafe { (self.history_key)(row) }
    }

    /// Returns a row's key, as the index holds it. This runs the user's code.
    ///
    /// # Safety
    /// `row` is a row of this table, and is not dropped during the call.
    pub unsafe fn index_key(&self, row: NonNull<u8>) -> EncodedKey {
        // SAFETY: passed on to the caller.
        unsafe { (self.index_key)(row) }
    }

    /// Returns whether the first row of a record lies inline in it: see [`record`](crate::store::record).
    #[inline(always)]
    pub fn holds_rows_inline(&self) -> bool {
        self.drop_row.is_none()
    }

    /// Returns whether the engine moves rows back into their records.
    #[inline(always)]
    pub fn moves_rows(&self) -> bool {
        self.moves_rows
    }

    /// Writes the stamp of the transaction that made a row behind the row.
    ///
    /// # Safety
    /// `row` is a row of this table, and only the caller has its address.
    #[cfg(feature = "history")]
    pub(crate) unsafe fn set_stamp(&self, row: NonNull<u8>, stamp: crate::history::Stamp) {
        let offset = self.stamp_offset.expect("the tables of a recorded database have stamps");
        // SAFETY: rows of this table have room for a stamp there, and only the caller can reach it.
        unsafe { row.add(offset).cast().write(stamp) };
    }

    /// Returns the stamp of the transaction that made a row.
    ///
    /// # Safety
    /// `row` is a row of this table that was published, and is not freed during the call.
    #[cfg(feature = "history")]
    pub(crate) unsafe fn stamp(&self, row: NonNull<u8>) -> crate::history::Stamp {
        let offset = self.stamp_offset.expect("the tables of a recorded database have stamps");
        // SAFETY: every row is stamped before it is published, and does not change afterwards.
        unsafe { row.add(offset).cast().read() }
    }
}

/// A change to a row, to be applied to another version of it.
#[derive(Clone, Copy, Debug)]
pub struct Rebase {
    /// The row that the change has made.
    pub row: NonNull<u8>,
    /// The version of which the change has made it.
    pub before: NonNull<u8>,
    /// The version to which the change is to be applied.
    pub onto: NonNull<u8>,
    /// The columns to which the change has only added.
    pub adds: ColumnSet,
}

/// The address of a [`TableCore`], and of the table or index that it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRef(pub(super) NonNull<TableCore>);

// SAFETY: a table core does not change after it was made, except for shared words, and lives as long as its
// database. Table references go where records of that database go, and no further.
unsafe impl Send for TableRef {}
// SAFETY: as above.
unsafe impl Sync for TableRef {}

impl TableRef {
    /// Creates a reference to no table. It must not be followed.
    #[cfg(test)]
    pub fn dangling() -> TableRef {
        TableRef(NonNull::dangling())
    }

    /// Returns the core.
    #[inline(always)]
    pub fn core(&self) -> &TableCore {
        // SAFETY: see the Send impl: the holder of a table reference belongs to the database, which owns the
        // table.
        unsafe { self.0.as_ref() }
    }

    /// Returns the record under a key of the table, if there is one.
    ///
    /// # Safety
    /// The worker is pinned.
    pub unsafe fn find(self, key: &EncodedKey) -> Option<NonNull<u8>> {
        // SAFETY: passed on to the caller.
        unsafe { (self.core().find)(self, key) }
    }

    /// Returns whether a row of a record of the table lies inline in the record.
    pub fn is_inline(self, record: NonNull<u8>, row: NonNull<u8>) -> bool {
        self.core().holds_rows_inline() && row == self.inline_row(record)
    }

    /// Returns the header of the inline slot of a record, if rows of the table are moved there.
    ///
    /// # Safety
    /// The record is of this table, and is not freed as long as the result is used.
    #[inline(always)]
    pub unsafe fn inline_slot<'a>(self, record: NonNull<u8>) -> Option<&'a VersionHeader> {
        // SAFETY: by the contract; if rows are moved, the record has room for an inline version.
        self.core().moves_rows().then(|| unsafe { VersionHeader::of(self.inline_row(record)) })
    }

    /// Returns the address of a record's inline row, if the table holds rows inline.
    #[inline(always)]
    pub fn inline_row(self, record: NonNull<u8>) -> NonNull<u8> {
        // Wrapping: if the table does not hold rows inline, the block may end before this address.
        let row = record.as_ptr().wrapping_add(self.core().records.row_offset());
        // SAFETY: blocks do not lie at the end of the address space.
        unsafe { NonNull::new_unchecked(row) }
    }

    /// Drops a record's newest row, if there is one.
    ///
    /// # Safety
    /// The record is of this table, and no other thread can reach it. This is called once, before the record
    /// is freed.
    pub unsafe fn drop_newest(self, record: NonNull<u8>, memory: &WorkerMemory) {
        // SAFETY: by the contract.
        unsafe {
            if let Some(row) = newest(record) {
                memory.drop_row(row, self, self.is_inline(record, row));
            }
        }
    }

    /// Decides what to do with a deleted record of the table after its grace period: see
    /// [`Protocol::settle_deleted`](crate::protocol::Protocol::settle_deleted).
    ///
    /// # Safety
    /// The record is on this worker's list of deleted records. The worker is pinned.
    pub unsafe fn settle_deleted(
        self,
        record: NonNull<u8>,
        key: &EncodedKey,
        memory: &WorkerMemory,
    ) -> DeletedOutcome {
        // Called while no other transaction can write the record: until then a row may be inserted and
        // deleted again, and its deletion may not be marked yet.
        let may_go = |version| {
            if memory.is_logging() && !memory.may_begin_again(version) {
                return false;
            }
            // SAFETY: the record is on a list, which keeps it from being freed, and the worker is pinned.
            let header = unsafe { newest(record).map(|row| VersionHeader::of(row)) };
            // SAFETY: as above.
            header.is_none_or(|header| unsafe { memory.may_unlink(header) })
        };
        // SAFETY: as above.
        unsafe {
            let mut unlink = || self.unlink(record, key, memory);
            self.core().records.settle_deleted(record, &may_go, &mut unlink)
        }
    }

    /// Removes a record from under a key of the index. Returns false if it was not there. In that case the
    /// index may hold the record under another key, so it must not be freed.
    ///
    /// # Safety
    /// The record is of this table. The worker of `memory` is pinned.
    #[must_use]
    pub unsafe fn unlink(
        self,
        record: NonNull<u8>,
        key: &EncodedKey,
        memory: &WorkerMemory,
    ) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { (self.core().unlink)(self, record, key, memory) }
    }

    /// Puts a record under a key of the index. Returns false if another record is there.
    ///
    /// # Safety
    /// The record is of this table, has rows of this key only, and is in this index under no other key. The worker of
    /// `memory` is pinned.
    #[must_use]
    pub unsafe fn link(self, record: NonNull<u8>, key: &EncodedKey, memory: &WorkerMemory) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { (self.core().link)(self, record, key, memory) }
    }
}

/// What the type-erased layers need to know of the rows of an index. The index begins with a [`TableCore`].
pub(super) trait RowsOf: Sized {
    type Row: Clone + 'static;
    /// Whether the rows are known to be [plain](crate::schema::PlainRow).
    const ARE_PLAIN: bool = false;
    fn key_text(row: &Self::Row) -> String;
    fn heap_bytes(row: &Self::Row) -> usize;
    fn encode_row(row: &Self::Row, output: &mut Vec<u8>);
    fn encode_change(row: &Self::Row, before: &Self::Row, output: &mut Vec<u8>);
    fn encode_key(row: &Self::Row, output: &mut Vec<u8>);
    fn index_key(row: &Self::Row) -> EncodedKey;
    fn remove(&self, key: &EncodedKey, address: u64, memory: &WorkerMemory) -> bool;
    fn insert(&self, key: &EncodedKey, address: u64, memory: &WorkerMemory) -> bool;
    fn find(&self, key: &EncodedKey) -> Option<u64>;
    #[cfg(feature = "history")]
    fn history_key(row: &Self::Row) -> crate::history::HistoryKey;

    fn description(_name: &str) -> Option<TableDescription> {
        None
    }

    fn same_columns(_row: &Self::Row, _other: &Self::Row, _columns: ColumnSet) -> bool {
        false
    }

    fn rebase(
        _row: &Self::Row,
        _before: &Self::Row,
        _onto: &Self::Row,
        _adds: ColumnSet,
    ) -> Option<Self::Row> {
        None
    }

    fn same_index_keys(_row: &Self::Row, _other: &Self::Row) -> bool {
        true
    }

    fn may_be_written(_row: &Self::Row) -> bool {
        true
    }

    /// Whether rows disappear when they have expired.
    const DISAPPEAR: bool = false;

    fn disappears_at(_row: &Self::Row) -> u64 {
        u64::MAX
    }

    fn core(
        name: &'static str,
        index: Option<&'static str>,
        number: usize,
        records: &'static RecordKind,
        memory: &WorkerMemory,
    ) -> Result<TableCore, Failure> {
        let layout = Layout::new::<Self::Row>();
        #[cfg(feature = "history")]
        let (stamp_offset, layout) = match memory.shared().recording {
            Some(_) => {
                let (offset, layout) = crate::history::Stamp::behind(layout);
                (Some(offset), layout)
            }
            None => (None, layout),
        };
        #[cfg(not(feature = "history"))]
        let _ = memory;
        let (heap_offset, layout) = match std::mem::needs_drop::<Self::Row>() {
            true => {
                let behind = layout.extend(Layout::new::<usize>());
                let (layout, offset) = behind.expect("rows are far shorter than the address space");
                (Some(offset), layout)
            }
            false => (None, layout),
        };
        let record_layout = match heap_offset {
            Some(_) => records.layout,
            None => records.layout_with(layout),
        };
        let version_layout = VersionHeader::layout_with(layout);
        let (Some(row_class), Some(record_class), true) = (
            SizeClass::of(version_layout),
            SizeClass::of_record(record_layout),
            layout.align() <= 16,
        ) else {
            return Err(Failure::RowTooLarge {
                table: name,
                size_bytes: size_of::<Self::Row>(),
                size_max_bytes: BLOCK_BYTES_MAX - records.row_offset(),
            });
        };
        Ok(TableCore {
            name,
            index,
            number,
            row_class,
            record_class,
            row_bytes: layout.size(),
            heap_offset,
            heap_bytes: heap_bytes::<Self>,
            moves_rows: Self::ARE_PLAIN && records.moves_rows(),
            records,
            #[cfg(feature = "history")]
            stamp_offset,
            log_number: Word::new(NOT_LOGGED),
            passed_over: Word::new(0),
            encode_row: encode_row::<Self>,
            encode_change: encode_change::<Self>,
            encode_key: encode_key::<Self>,
            clone_row: clone_row::<Self::Row>,
            same_columns: same_columns::<Self>,
            rebase: rebase::<Self>,
            same_index_keys: same_index_keys::<Self>,
            may_be_written: may_be_written::<Self>,
            disappears_at: match Self::DISAPPEAR {
                true => Some(disappears_at::<Self>),
                false => None,
            },
            index_key: index_key::<Self>,
            find: find::<Self>,
            #[cfg(feature = "history")]
            history_key: history_key::<Self>,
            drop_row: std::mem::needs_drop::<Self::Row>().then_some(drop_row::<Self::Row>),
            description: Self::description,
            format_key: format_key::<Self>,
            unlink: unlink::<Self>,
            link: link::<Self>,
        })
    }
}

unsafe fn clone_row<R: Clone>(row: NonNull<u8>, place: NonNull<u8>) {
    // SAFETY: called through a `TableCore` whose rows are of type `R`, with a row and room for one.
    unsafe { place.cast::<R>().write(row.cast::<R>().as_ref().clone()) };
}

unsafe fn same_columns<I: RowsOf>(
    row: NonNull<u8>,
    other: NonNull<u8>,
    columns: ColumnSet,
) -> bool {
    // SAFETY: called through the core of an `I`, with two rows of it.
    let (row, other) = unsafe { (row.cast::<I::Row>().as_ref(), other.cast::<I::Row>().as_ref()) };
    I::same_columns(row, other, columns)
}

unsafe fn rebase<I: RowsOf>(change: Rebase, place: NonNull<u8>) -> bool {
    let Rebase { row, before, onto, adds } = change;
    // SAFETY: called through the core of an `I`, with rows of it.
    let [row, before, onto] =
        [row, before, onto].map(|row| unsafe { row.cast::<I::Row>().as_ref() });
    match I::rebase(row, before, onto, adds) {
        Some(rebased) => {
            // SAFETY: the caller's room for a row.
            unsafe { place.cast::<I::Row>().write(rebased) };
            true
        }
        None => false,
    }
}

unsafe fn same_index_keys<I: RowsOf>(row: NonNull<u8>, other: NonNull<u8>) -> bool {
    // SAFETY: called through the core of an `I`, with two rows of it.
    let (row, other) = unsafe { (row.cast::<I::Row>().as_ref(), other.cast::<I::Row>().as_ref()) };
    I::same_index_keys(row, other)
}

unsafe fn may_be_written<I: RowsOf>(row: NonNull<u8>) -> bool {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::may_be_written(unsafe { row.cast::<I::Row>().as_ref() })
}

unsafe fn disappears_at<I: RowsOf>(row: NonNull<u8>) -> u64 {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::disappears_at(unsafe { row.cast::<I::Row>().as_ref() })
}

#[cfg(feature = "history")]
unsafe fn history_key<I: RowsOf>(row: NonNull<u8>) -> crate::history::HistoryKey {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::history_key(unsafe { row.cast::<I::Row>().as_ref() })
}

unsafe fn index_key<I: RowsOf>(row: NonNull<u8>) -> EncodedKey {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::index_key(unsafe { row.cast::<I::Row>().as_ref() })
}

unsafe fn find<I: RowsOf>(table: TableRef, key: &EncodedKey) -> Option<NonNull<u8>> {
    // SAFETY: as in `unlink`.
    let address = unsafe { table.0.cast::<I>().as_ref() }.find(key)?;
    Some(record_at(address))
}

unsafe fn drop_row<R>(row: NonNull<u8>) {
    // SAFETY: called through a `TableCore` whose rows are of type `R`, once per row.
    unsafe { row.cast::<R>().drop_in_place() };
}

unsafe fn heap_bytes<I: RowsOf>(row: NonNull<u8>) -> usize {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::heap_bytes(unsafe { row.cast::<I::Row>().as_ref() })
}

unsafe fn encode_row<I: RowsOf>(row: NonNull<u8>, output: &mut Vec<u8>) {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::encode_row(unsafe { row.cast::<I::Row>().as_ref() }, output);
}

unsafe fn encode_change<I: RowsOf>(row: NonNull<u8>, before: NonNull<u8>, output: &mut Vec<u8>) {
    // SAFETY: called through the core of an `I`, with two rows of it.
    let (row, before) =
        unsafe { (row.cast::<I::Row>().as_ref(), before.cast::<I::Row>().as_ref()) };
    I::encode_change(row, before, output);
}

unsafe fn encode_key<I: RowsOf>(row: NonNull<u8>, output: &mut Vec<u8>) {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::encode_key(unsafe { row.cast::<I::Row>().as_ref() }, output);
}

unsafe fn format_key<I: RowsOf>(row: NonNull<u8>) -> String {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::key_text(unsafe { row.cast::<I::Row>().as_ref() })
}

unsafe fn unlink<I: RowsOf>(
    table: TableRef,
    record: NonNull<u8>,
    key: &EncodedKey,
    memory: &WorkerMemory,
) -> bool {
    // SAFETY: the core is the first field of an `I` (both are repr(C)), and the reference was made from the
    // address of the whole `I`.
    let index = unsafe { table.0.cast::<I>().as_ref() };
    index.remove(key, record.as_ptr().expose_provenance() as u64, memory)
}

unsafe fn link<I: RowsOf>(
    table: TableRef,
    record: NonNull<u8>,
    key: &EncodedKey,
    memory: &WorkerMemory,
) -> bool {
    // SAFETY: as in `unlink`.
    let index = unsafe { table.0.cast::<I>().as_ref() };
    index.insert(key, record.as_ptr().expose_provenance() as u64, memory)
}
