//! Tables: a primary index, the secondary indexes, and what the type-erased layers below must
//! know of the rows.
//!
//! Records and access sets hold rows as plain addresses; [`TableCore`] is what goes with them. A
//! secondary index is a small table of its own: its rows ([`Entry`]) lead from an index key to
//! the primary record, and are read, inserted and deleted by the same protocol as any row. So
//! secondary indexes are transactional under every protocol, phantoms included.
//!
//! [`stored`] fills tables without transactions, and writes them out.

pub mod stored;

use std::alloc::Layout;
use std::any::Any;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Bound, Deref};
use std::ptr::NonNull;
use std::sync::Arc;

use weft_htm::word::{Ordering, Word};

use crate::durability::{StorageError, StoredTable};
use crate::encoding::{Key, KeyForm};
use crate::error::Failure;
use crate::index::bplus_tree::{BPlusTree, Direction, LeafHint, Page};
use crate::index::hash::HashTable;
use crate::index::{Insertion, LongKey, Lookup, NodeVersion};
use crate::protocol::access_set::is_inline;
use crate::protocol::{Dbx, Protocol, Settled};
use crate::record::arena::{BLOCK_BYTES_MAX, Class};
use crate::record::version::VersionHeader;
use crate::record::{RecordPointer, StoredRecord, row_of_newest};
use crate::schema::{Record, Storage};
use crate::snapshot::Snapshot;
use crate::worker::WorkerMemory;

use stored::{FillingMemories, RecoveringTable};

/// A handle to a table of row type `T`, in a database with protocol `P`. Cheap to clone, and
/// usable from any thread; get it from [`Database::table`](crate::Database::table).
pub struct Table<T: Record, P: Protocol = Dbx> {
    pub(crate) inner: Arc<TableInner<T, P>>,
}

impl<T: Record, P: Protocol> Clone for Table<T, P> {
    fn clone(&self) -> Self {
        Table { inner: Arc::clone(&self.inner) }
    }
}

impl<T: Record, P: Protocol> std::fmt::Debug for Table<T, P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Table").field("name", &T::TABLE).finish_non_exhaustive()
    }
}

/// What the type-erased layers know of a table, or of a secondary index. It is the first field
/// of [`TableInner`] and of [`Secondary`], and its functions rely on that.
#[derive(Debug)]
pub struct TableCore {
    pub name: &'static str,
    /// The secondary index's name, if it is one.
    pub index: Option<&'static str>,
    /// Number among the database's indexes.
    pub number: usize,
    pub row_class: Class,
    pub record_class: Class,
    /// Where a row's stamp lies, if the database is recorded: see [`crate::history`].
    #[cfg(feature = "history")]
    stamp_offset: Option<usize>,
    /// Its number in the log; [`NOT_LOGGED`] for what is not: secondary indexes, volatile tables, and
    /// everything in a database without a directory.
    log_number: Word,
    /// Appends a row as it is stored.
    encode_row: unsafe fn(NonNull<u8>, &mut Vec<u8>),
    /// Appends a row's key, and what has changed between two versions of it, as it is stored.
    encode_change: unsafe fn(NonNull<u8>, NonNull<u8>, &mut Vec<u8>),
    /// Appends a row's primary key as it is stored.
    encode_key: unsafe fn(NonNull<u8>, &mut Vec<u8>),
    /// Drops a row; `None` if rows own nothing.
    pub drop_row: Option<unsafe fn(NonNull<u8>)>,
    /// The key of a row, for people.
    pub format_key: unsafe fn(NonNull<u8>) -> String,
    /// Removes a record from the index, by the key of a row; false if it was not there.
    unlink: unsafe fn(TableRef, NonNull<u8>, NonNull<u8>, &WorkerMemory) -> bool,
    /// See [`Protocol::settle_deleted`].
    pub settle_deleted: unsafe fn(TableRef, NonNull<u8>, &WorkerMemory) -> Settled,
    /// A record's newest row.
    pub newest: unsafe fn(NonNull<u8>) -> Option<NonNull<u8>>,
    /// Whether a row of a record lies inline in it.
    pub is_inline: unsafe fn(TableRef, NonNull<u8>, NonNull<u8>) -> bool,
    /// Drops a record's newest row, if there is one.
    pub drop_newest: unsafe fn(TableRef, NonNull<u8>, &WorkerMemory),
}

/// The number in the log of what is not logged.
const NOT_LOGGED: u64 = u64::MAX;

impl TableCore {
    /// The table's number in the log, if it is logged.
    #[inline(always)]
    pub fn log_number(&self) -> Option<u32> {
        // Relaxed: set before the database is opened.
        let number = self.log_number.load(Ordering::Relaxed);
        (number != NOT_LOGGED).then_some(number as u32)
    }

    /// Has the table logged from now on.
    pub fn set_log_number(&self, number: u32) {
        self.log_number.store(number.into(), Ordering::Relaxed);
    }

    /// Appends a row as it is stored.
    ///
    /// # Safety
    /// `row` is a row of this table that is not dropped meanwhile; the table is logged.
    #[inline(always)]
    pub unsafe fn encode_row(&self, row: NonNull<u8>, output: &mut Vec<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { (self.encode_row)(row, output) };
    }

    /// Appends a row's primary key, which columns are not as they were in an earlier version, and
    /// their values.
    ///
    /// # Safety
    /// As for [`TableCore::encode_row`], of both.
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

    /// Appends a row's primary key as it is stored.
    ///
    /// # Safety
    /// As for [`TableCore::encode_row`].
    #[inline(always)]
    pub unsafe fn encode_key(&self, row: NonNull<u8>, output: &mut Vec<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { (self.encode_key)(row, output) };
    }

    /// Whether a record's first row lies inline in it: see [`record`](crate::record).
    #[inline(always)]
    pub fn holds_rows_inline(&self) -> bool {
        self.drop_row.is_none()
    }

    /// Writes behind a row who made it.
    ///
    /// # Safety
    /// `row` is a row of this table, which nobody else has the address of.
    #[cfg(feature = "history")]
    pub(crate) unsafe fn set_stamp(&self, row: NonNull<u8>, stamp: crate::history::Stamp) {
        let offset = self.stamp_offset.expect("the tables of a recorded database have stamps");
        // SAFETY: rows of this table have room for a stamp there, and it is the caller's alone.
        unsafe { row.add(offset).cast().write(stamp) };
    }

    /// Who made a row.
    ///
    /// # Safety
    /// `row` is a row of this table that was published, and is not freed meanwhile.
    #[cfg(feature = "history")]
    pub(crate) unsafe fn stamp(&self, row: NonNull<u8>) -> crate::history::Stamp {
        let offset = self.stamp_offset.expect("the tables of a recorded database have stamps");
        // SAFETY: every row was stamped before it was published, and is not changed since.
        unsafe { row.add(offset).cast().read() }
    }
}

/// The address of a [`TableCore`] (and of the table around it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRef(NonNull<TableCore>);

// SAFETY: a table core is never changed after it was made, and lives as long as its database;
// table references go where records of that database go, and no further.
unsafe impl Send for TableRef {}

impl TableRef {
    /// The core.
    #[inline(always)]
    pub fn core(&self) -> &TableCore {
        // SAFETY: see the Send impl: whoever holds a table reference belongs to the database,
        // which owns the table.
        unsafe { self.0.as_ref() }
    }

    /// Removes a record from the index, by the key of `row`; false if it was not there.
    ///
    /// # Safety
    /// The record is of this table, and `row` is a row of it that is not dropped; the worker of
    /// `memory` is pinned.
    pub unsafe fn unlink(
        self,
        record: NonNull<u8>,
        row: NonNull<u8>,
        memory: &WorkerMemory,
    ) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { (self.core().unlink)(self, record, row, memory) }
    }
}

/// What rows of type `R`, in an index of type `I` around the core, are to the layers below.
trait RowsOf<P: Protocol>: Sized {
    type Row: 'static;
    fn key_text(row: &Self::Row) -> String;
    fn encode_row(row: &Self::Row, output: &mut Vec<u8>);
    fn encode_change(row: &Self::Row, before: &Self::Row, output: &mut Vec<u8>);
    fn encode_key(row: &Self::Row, output: &mut Vec<u8>);
    fn remove(&self, row: &Self::Row, address: u64, memory: &WorkerMemory) -> bool;

    fn core(
        name: &'static str,
        index: Option<&'static str>,
        number: usize,
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
        let record_layout = match std::mem::needs_drop::<Self::Row>() {
            true => Layout::new::<StoredRecord<P::Header>>(),
            false => StoredRecord::<P::Header>::layout(layout),
        };
        let version_layout = VersionHeader::layout_with(layout);
        let (Some(row_class), Some(record_class), true) =
            (Class::of(version_layout), Class::of(record_layout), layout.align() <= 16)
        else {
            return Err(Failure::RowTooLarge {
                table: name,
                size_bytes: size_of::<Self::Row>(),
                size_max_bytes: BLOCK_BYTES_MAX - StoredRecord::<P::Header>::ROW_OFFSET,
            });
        };
        Ok(TableCore {
            name,
            index,
            number,
            row_class,
            record_class,
            #[cfg(feature = "history")]
            stamp_offset,
            log_number: Word::new(NOT_LOGGED),
            encode_row: encode_row::<Self, P>,
            encode_change: encode_change::<Self, P>,
            encode_key: encode_key::<Self, P>,
            drop_row: std::mem::needs_drop::<Self::Row>().then_some(drop_row::<Self::Row>),
            format_key: format_key::<Self, P>,
            unlink: unlink::<Self, P>,
            settle_deleted: settle_deleted::<Self, P>,
            newest: newest::<P>,
            is_inline: lies_inline::<P>,
            drop_newest: drop_newest::<P>,
        })
    }
}

unsafe fn drop_row<R>(row: NonNull<u8>) {
    // SAFETY: called through a `TableCore` whose rows are of type `R`, once per row.
    unsafe { row.cast::<R>().drop_in_place() };
}

unsafe fn encode_row<I: RowsOf<P>, P: Protocol>(row: NonNull<u8>, output: &mut Vec<u8>) {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::encode_row(unsafe { row.cast::<I::Row>().as_ref() }, output);
}

unsafe fn encode_change<I: RowsOf<P>, P: Protocol>(
    row: NonNull<u8>,
    before: NonNull<u8>,
    output: &mut Vec<u8>,
) {
    // SAFETY: called through the core of an `I`, with two rows of it.
    let (row, before) =
        unsafe { (row.cast::<I::Row>().as_ref(), before.cast::<I::Row>().as_ref()) };
    I::encode_change(row, before, output);
}

unsafe fn encode_key<I: RowsOf<P>, P: Protocol>(row: NonNull<u8>, output: &mut Vec<u8>) {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::encode_key(unsafe { row.cast::<I::Row>().as_ref() }, output);
}

unsafe fn format_key<I: RowsOf<P>, P: Protocol>(row: NonNull<u8>) -> String {
    // SAFETY: called through the core of an `I`, with a row of it.
    I::key_text(unsafe { row.cast::<I::Row>().as_ref() })
}

unsafe fn unlink<I: RowsOf<P>, P: Protocol>(
    table: TableRef,
    record: NonNull<u8>,
    row: NonNull<u8>,
    memory: &WorkerMemory,
) -> bool {
    // SAFETY: the core is the first field of an `I` (both are repr(C)), and the reference was
    // made from the address of the whole.
    let index = unsafe { table.0.cast::<I>().as_ref() };
    // SAFETY: a row of this table, not dropped, by the contract of `TableRef::unlink`.
    let row = unsafe { row.cast::<I::Row>().as_ref() };
    index.remove(row, record.as_ptr().expose_provenance() as u64, memory)
}

unsafe fn settle_deleted<I: RowsOf<P>, P: Protocol>(
    table: TableRef,
    record: NonNull<u8>,
    memory: &WorkerMemory,
) -> Settled {
    // SAFETY: the record waits on this worker's list, so it is not freed; it is of this table.
    let stored = unsafe { record.cast::<StoredRecord<P::Header>>().as_ref() };
    // Asked while nobody else writes the record: a row that was inserted, and deleted again, may
    // be on its way to be marked.
    let may_go = |epoch| {
        if memory.is_logging() && epoch >= memory.shared().clock.epoch() {
            return false; // See `WorkerMemory::retire_deleted`.
        }
        // SAFETY: as above; the worker is pinned.
        let header = unsafe { newest::<P>(record).map(|row| VersionHeader::of(row)) };
        // SAFETY: likewise.
        header.is_none_or(|header| unsafe { memory.shared().may_unlink(header) })
    };
    P::settle_deleted(stored, may_go, || {
        // SAFETY: as above.
        let row = unsafe { newest::<P>(record) }.expect("a deleted record keeps its row");
        // SAFETY: the row is dropped with the record, after it was unlinked.
        unsafe { unlink::<I, P>(table, record, row, memory) };
    })
}

unsafe fn newest<P: Protocol>(record: NonNull<u8>) -> Option<NonNull<u8>> {
    // SAFETY: called with a record of the database, which is not freed meanwhile.
    let stored = unsafe { record.cast::<StoredRecord<P::Header>>().as_ref() };
    row_of_newest(stored.newest.load(Ordering::Acquire))
}

unsafe fn lies_inline<P: Protocol>(table: TableRef, record: NonNull<u8>, row: NonNull<u8>) -> bool {
    let address = record.as_ptr().expose_provenance() as u64;
    // SAFETY: called with a record of the database.
    let record = unsafe { RecordPointer::<P::Header>::from_address(address) };
    is_inline(table, record, row)
}

unsafe fn drop_newest<P: Protocol>(table: TableRef, record: NonNull<u8>, memory: &WorkerMemory) {
    // SAFETY: called once, before the record itself is freed.
    unsafe {
        if let Some(row) = newest::<P>(record) {
            memory.drop_row(row, table, lies_inline::<P>(table, record, row));
        }
    }
}

// ---- indexes ----------------------------------------------------------------------------------

/// The form in which an index holds its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `u64`: up to eight bytes.
    Words1,
    /// `u128`: up to sixteen.
    Words2,
    /// [`LongKey`]: more, or of varying width.
    Long,
}

/// The narrowest form for keys of the given width.
pub const fn form_of(width_bytes: Option<usize>) -> Form {
    match width_bytes {
        Some(0..=8) => Form::Words1,
        Some(9..=16) => Form::Words2,
        _ => Form::Long,
    }
}

/// An index over keys of one form.
pub enum FormIndex<K: KeyForm> {
    Ordered(BPlusTree<K>),
    Hash(HashTable<K>),
}

impl<K: KeyForm> FormIndex<K> {
    fn new(storage: Storage, capacity: usize, memory: &WorkerMemory) -> Self {
        match storage {
            Storage::Ordered => FormIndex::Ordered(BPlusTree::new(memory)),
            Storage::Hash => FormIndex::Hash(HashTable::with_capacity(capacity, memory)),
        }
    }

    #[inline(always)]
    pub fn get(&self, key: &K, hint: &mut LeafHint<K>) -> Lookup {
        match self {
            FormIndex::Ordered(tree) => tree.get(key, hint),
            FormIndex::Hash(table) => table.get(key),
        }
    }

    /// Asks for what [`FormIndex::get`] will look at first, where that is known without looking.
    #[inline(always)]
    pub fn prefetch(&self, key: &K) {
        if let FormIndex::Hash(table) = self {
            table.prefetch(key);
        }
    }

    #[inline(always)]
    pub fn get_or_insert(
        &self,
        key: &K,
        address: u64,
        hint: &mut LeafHint<K>,
        memory: &WorkerMemory,
    ) -> Insertion {
        match self {
            FormIndex::Ordered(tree) => tree.get_or_insert(key, address, hint, memory),
            FormIndex::Hash(table) => table.get_or_insert(key, address, memory),
        }
    }

    /// Calls `visit` with the address of every record. One that is there throughout is visited once.
    pub fn for_each_address(&self, memory: &WorkerMemory, mut visit: impl FnMut(u64)) {
        match self {
            FormIndex::Ordered(tree) => {
                let (mut page, mut hint) = (Page::new(), LeafHint::new());
                let mut next = Some(Bound::Unbounded);
                while let Some(from) = next {
                    let (from, to) = (from.as_ref(), Bound::Unbounded);
                    tree.read_page(from, to, Direction::Forward, &mut page, &mut hint, memory);
                    page.addresses().iter().for_each(|&address| visit(address));
                    next = page.take_next();
                }
            }
            FormIndex::Hash(table) => table.for_each(|_, address| visit(address)),
        }
    }

    pub fn remove(&self, key: &K, address: u64, memory: &WorkerMemory) -> bool {
        match self {
            FormIndex::Ordered(tree) => tree.remove(key, address, memory),
            FormIndex::Hash(table) => table.remove(key, address, memory),
        }
    }

    /// Visits every record and frees the index's memory.
    fn tear_down(&mut self, memory: &WorkerMemory, visit: Option<impl FnMut(u64)>) {
        match self {
            FormIndex::Ordered(tree) => {
                if let Some(mut visit) = visit {
                    tree.for_each(|_, address| visit(address));
                }
                tree.clear(memory);
            }
            FormIndex::Hash(table) => {
                if let Some(mut visit) = visit {
                    table.for_each(|_, address| visit(address));
                }
                table.clear(memory);
            }
        }
    }
}

/// An index that is shared until its database is dropped, and torn down then.
pub struct SharedIndex<I>(UnsafeCell<I>);

// SAFETY: indexes are made to be shared; exclusive access is taken only in `tear_down`, whose
// caller has no other user of the index left.
unsafe impl<I: Sync> Sync for SharedIndex<I> {}

impl<I> SharedIndex<I> {
    fn new(index: I) -> Self {
        SharedIndex(UnsafeCell::new(index))
    }
}

impl<I> Deref for SharedIndex<I> {
    type Target = I;

    #[inline(always)]
    fn deref(&self) -> &I {
        // SAFETY: see the Sync impl.
        unsafe { &*self.0.get() }
    }
}

/// An index over keys of any form.
pub enum AnyIndex {
    Words1(FormIndex<u64>),
    Words2(FormIndex<u128>),
    Long(FormIndex<LongKey>),
}

/// Picks the index of one form out of any.
pub trait PickForm: KeyForm {
    /// The index, which is of this form.
    fn pick(index: &AnyIndex) -> &FormIndex<Self>;
    /// The secondary index, which is of this form.
    fn pick_secondary<P: Protocol>(index: &AnySecondary<P>) -> &Secondary<Self, P>;
}

macro_rules! pick_form {
    ($key:ty, $variant:ident) => {
        impl PickForm for $key {
            #[inline(always)]
            fn pick(index: &AnyIndex) -> &FormIndex<Self> {
                match index {
                    AnyIndex::$variant(index) => index,
                    _ => unreachable!("an index is made in the form of its key's width"),
                }
            }

            fn pick_secondary<P: Protocol>(index: &AnySecondary<P>) -> &Secondary<Self, P> {
                match index {
                    AnySecondary::$variant(index) => index,
                    _ => unreachable!("an index is made in the form of its key's width"),
                }
            }
        }
    };
}

pick_form!(u64, Words1);
pick_form!(u128, Words2);
pick_form!(LongKey, Long);

impl AnyIndex {
    fn new(form: Form, storage: Storage, capacity: usize, memory: &WorkerMemory) -> Self {
        match form {
            Form::Words1 => AnyIndex::Words1(FormIndex::new(storage, capacity, memory)),
            Form::Words2 => AnyIndex::Words2(FormIndex::new(storage, capacity, memory)),
            Form::Long => AnyIndex::Long(FormIndex::new(storage, capacity, memory)),
        }
    }

    fn tear_down(&mut self, memory: &WorkerMemory, visit: Option<impl FnMut(u64)>) {
        match self {
            AnyIndex::Words1(index) => index.tear_down(memory, visit),
            AnyIndex::Words2(index) => index.tear_down(memory, visit),
            AnyIndex::Long(index) => index.tear_down(memory, visit),
        }
    }
}

/// Evaluates an expression with the form of keys of a given constant width as a type parameter.
macro_rules! with_form {
    ($width:expr, |$form:ident| $body:expr) => {
        match const { $crate::table::form_of($width) } {
            $crate::table::Form::Words1 => {
                type $form = u64;
                $body
            }
            $crate::table::Form::Words2 => {
                type $form = u128;
                $body
            }
            $crate::table::Form::Long => {
                type $form = $crate::index::LongKey;
                $body
            }
        }
    };
}
pub(crate) use with_form;

/// Evaluates an expression with a secondary index of whatever form.
macro_rules! with_secondary {
    ($secondary:expr, |$index:ident| $body:expr) => {
        match $secondary {
            $crate::table::AnySecondary::Words1($index) => $body,
            $crate::table::AnySecondary::Words2($index) => $body,
            $crate::table::AnySecondary::Long($index) => $body,
        }
    };
}
pub(crate) use with_secondary;

// ---- tables -----------------------------------------------------------------------------------

/// What tells one database from another: the address of its only value, which every handle that
/// could be taken to the wrong database keeps alive.
#[derive(Debug)]
pub struct Identity;

/// A table, whatever its row type.
pub trait AnyTable<P: Protocol>: Any + Send + Sync {
    /// The table's name.
    fn name(&self) -> &'static str;

    /// Its number among the database's indexes.
    fn number(&self) -> usize;

    /// Has it logged from now on.
    fn set_log_number(&self, number: u32);

    /// The table as recovery sees it; `None` if it is volatile.
    fn recovering(self: Arc<Self>, memories: &Arc<FillingMemories>)
    -> Option<Arc<dyn StoredTable>>;

    /// Hands every row of part `part.0` of `part.1` to `sink`, encoded, as a snapshot sees them.
    fn encode_rows(
        self: Arc<Self>,
        snapshot: &Snapshot<P>,
        part: (u32, u32),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError>;

    /// The same, to be cast to its own type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    /// Drops every row that an index leads to, and frees the indexes' own memory. (Records lie in
    /// the chunks, which go as a whole.)
    ///
    /// # Safety
    /// The database is being dropped: no transaction is running or will run, and this is the
    /// only call.
    unsafe fn tear_down(&self, memory: &WorkerMemory);
}

impl<T: Record, P: Protocol> AnyTable<P> for TableInner<T, P> {
    fn name(&self) -> &'static str {
        T::TABLE
    }

    fn number(&self) -> usize {
        self.core.number
    }

    fn set_log_number(&self, number: u32) {
        self.core.set_log_number(number);
    }

    fn recovering(
        self: Arc<Self>,
        memories: &Arc<FillingMemories>,
    ) -> Option<Arc<dyn StoredTable>> {
        let table = RecoveringTable::new(self, Arc::clone(memories))?;
        Some(Arc::new(table))
    }

    fn encode_rows(
        self: Arc<Self>,
        snapshot: &Snapshot<P>,
        part: (u32, u32),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.encode_part(snapshot, part, sink)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    unsafe fn tear_down(&self, memory: &WorkerMemory) {
        for secondary in &self.secondary {
            with_secondary!(secondary, |index| {
                let visit = drop_visitor::<P>(index.reference(), memory);
                // SAFETY: by the contract nobody else uses the index.
                unsafe { &mut *index.index.0.get() }.tear_down(memory, visit);
            });
        }
        let visit = drop_visitor::<P>(self.reference(), memory);
        // SAFETY: as above.
        unsafe { &mut *self.primary.0.get() }.tear_down(memory, visit);
    }
}

/// What drops the rows of a table's records, if rows own anything.
fn drop_visitor<P: Protocol>(
    table: TableRef,
    memory: &WorkerMemory,
) -> Option<impl FnMut(u64) + '_> {
    table.core().drop_row?;
    Some(move |address| {
        // SAFETY: the index led to the record, and nobody else is there: each record is visited
        // once, and its row dropped once.
        unsafe {
            let record = RecordPointer::<P::Header>::from_address(address);
            drop_newest::<P>(table, record.block(), memory);
        }
    })
}

/// A table with rows of type `T`.
#[repr(C)]
pub struct TableInner<T: Record, P: Protocol> {
    core: TableCore,
    pub primary: SharedIndex<AnyIndex>,
    pub secondary: Vec<AnySecondary<P>>,
    /// Which database it belongs to.
    pub identity: Arc<Identity>,
    types: PhantomData<fn() -> (T, P)>,
}

impl<T: Record, P: Protocol> TableInner<T, P> {
    /// Makes the table; its indexes are numbered from `number` on.
    pub fn new(
        identity: &Arc<Identity>,
        number: usize,
        capacity: usize,
        memory: &WorkerMemory,
    ) -> Result<Self, Failure> {
        let form = form_of(T::Key::WIDTH_BYTES);
        let secondary = T::INDEXES
            .iter()
            .enumerate()
            .map(|(position, index)| {
                AnySecondary::new(T::TABLE, index, number + 1 + position, memory)
            })
            .collect::<Result<_, _>>()?;
        Ok(TableInner {
            core: <Self as RowsOf<P>>::core(T::TABLE, None, number, memory)?,
            primary: SharedIndex::new(AnyIndex::new(form, T::STORAGE, capacity, memory)),
            secondary,
            identity: Arc::clone(identity),
            types: PhantomData,
        })
    }

    /// The reference that goes into access sets. `self` lies in the `Arc` that the database
    /// holds.
    #[inline(always)]
    pub fn reference(&self) -> TableRef {
        TableRef(NonNull::from(self).cast())
    }

    #[inline(always)]
    pub fn number(&self) -> usize {
        self.core.number
    }
}

impl<T: Record, P: Protocol> RowsOf<P> for TableInner<T, P> {
    type Row = T;

    fn key_text(row: &T) -> String {
        format!("{:?}", row.key())
    }

    fn encode_row(row: &T, output: &mut Vec<u8>) {
        row.encode_row(output);
    }

    fn encode_change(row: &T, before: &T, output: &mut Vec<u8>) {
        T::encode_key(&row.key(), output);
        row.encode_changes(before, output);
    }

    fn encode_key(row: &T, output: &mut Vec<u8>) {
        T::encode_key(&row.key(), output);
    }

    fn remove(&self, row: &T, address: u64, memory: &WorkerMemory) -> bool {
        with_form!(T::Key::WIDTH_BYTES, |K| {
            K::pick(&self.primary).remove(&K::from_key(&row.key()), address, memory)
        })
    }
}

/// A row of a secondary index: where the entry's key leads.
#[derive(Clone)]
pub struct Entry<K> {
    /// The primary record's address.
    pub record: u64,
    /// The entry's own key, by which it is unlinked.
    pub key: K,
}

/// A secondary index over keys of one form.
#[repr(C)]
pub struct Secondary<K: KeyForm, P: Protocol> {
    core: TableCore,
    pub unique: bool,
    pub index: SharedIndex<FormIndex<K>>,
    protocol: PhantomData<fn() -> P>,
}

impl<K: KeyForm, P: Protocol> Secondary<K, P> {
    fn new(
        table: &'static str,
        description: &'static crate::schema::IndexDescription,
        number: usize,
        memory: &WorkerMemory,
    ) -> Result<Box<Self>, Failure> {
        Ok(Box::new(Secondary {
            core: <Self as RowsOf<P>>::core(table, Some(description.name), number, memory)?,
            unique: description.unique,
            index: SharedIndex::new(FormIndex::new(Storage::Ordered, 0, memory)),
            protocol: PhantomData,
        }))
    }

    /// As [`TableInner::reference`].
    #[inline(always)]
    pub fn reference(&self) -> TableRef {
        TableRef(NonNull::from(self).cast())
    }

    #[inline(always)]
    pub fn number(&self) -> usize {
        self.core.number
    }

    #[inline(always)]
    pub fn name(&self) -> Option<&'static str> {
        self.core.index
    }

    /// Reads the next page of a scan.
    #[inline(always)]
    pub fn read_page(
        &self,
        from: Bound<&K>,
        to: Bound<&K>,
        direction: Direction,
        page: &mut Page<K>,
        hint: &mut LeafHint<K>,
        memory: &WorkerMemory,
    ) -> NodeVersion {
        match &*self.index {
            FormIndex::Ordered(tree) => tree.read_page(from, to, direction, page, hint, memory),
            FormIndex::Hash(_) => unreachable!("secondary indexes are ordered"),
        }
    }
}

impl<K: KeyForm, P: Protocol> RowsOf<P> for Secondary<K, P> {
    type Row = Entry<K>;

    fn key_text(row: &Entry<K>) -> String {
        format!("{:x?}", row.key)
    }

    fn encode_row(_row: &Entry<K>, _output: &mut Vec<u8>) {
        unreachable!("indexes are not logged: they are built from their tables")
    }

    fn encode_change(row: &Entry<K>, _before: &Entry<K>, output: &mut Vec<u8>) {
        <Self as RowsOf<P>>::encode_row(row, output);
    }

    fn encode_key(row: &Entry<K>, output: &mut Vec<u8>) {
        <Self as RowsOf<P>>::encode_row(row, output);
    }

    fn remove(&self, row: &Entry<K>, address: u64, memory: &WorkerMemory) -> bool {
        self.index.remove(&row.key, address, memory)
    }
}

/// A secondary index over keys of any form.
pub enum AnySecondary<P: Protocol> {
    Words1(Box<Secondary<u64, P>>),
    Words2(Box<Secondary<u128, P>>),
    Long(Box<Secondary<LongKey, P>>),
}

impl<P: Protocol> AnySecondary<P> {
    fn new(
        table: &'static str,
        description: &'static crate::schema::IndexDescription,
        number: usize,
        memory: &WorkerMemory,
    ) -> Result<Self, Failure> {
        Ok(match form_of(description.width_bytes) {
            Form::Words1 => {
                AnySecondary::Words1(Secondary::new(table, description, number, memory)?)
            }
            Form::Words2 => {
                AnySecondary::Words2(Secondary::new(table, description, number, memory)?)
            }
            Form::Long => AnySecondary::Long(Secondary::new(table, description, number, memory)?),
        })
    }
}
