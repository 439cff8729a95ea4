//! Tables: a primary index, the secondary indexes, and what the type-erased layers below need to know of the
//! rows.
//!
//! [`core`] describes a table's rows to code that has only their addresses. [`forms`] has the indexes, by the
//! form of their keys. A secondary index is a small table of its own: its rows ([`IndexEntry`]) lead from an index
//! key to the primary record, and are read, inserted and deleted by the same protocol as any other row. So
//! secondary indexes are transactional under every protocol, and protected from phantoms as well.

mod core;
mod forms;

use std::any::Any;
use std::marker::PhantomData;
use std::ops::Bound;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use self::core::RowsOf;
pub use self::core::{Rebase, TableCore, TableRef};
use crate::durability::format::STORED_BYTES_MAX;
use crate::error::Failure;
use crate::index::bplus_tree::{BPlusTree, Direction, LeafHint, Page};
use crate::index::{Insertion, LongKey, NodeVersion};
use crate::row::column::{ColumnSet, allocation_bytes};
use crate::row::description::TableDescription;
use crate::row::encoding::{EncodedKey, Key, KeyForm};
use crate::row::generated::{FIRST_NUMBER, KeyNumbers};
use crate::row::schema::{Record, Storage};
use crate::store::record::{RecordKind, record_at};
use crate::store::worker::{WorkerMemory, contain};
pub use forms::with_form;
pub(crate) use forms::with_secondary;
pub use forms::{AnyIndex, Form, FormIndex, PickForm, SharedIndex, form_of};

/// A handle to a table of row type `T`. It is cheap to clone, and can be used from any thread.
/// [`Database::table`](crate::Database::table) returns it.
pub struct Table<T: Record> {
    pub(crate) inner: Arc<TableInner<T>>,
}

impl<T: Record> Table<T> {
    /// Returns the table's name.
    pub fn name(&self) -> &'static str {
        self.inner.name()
    }

    /// Returns the table itself, for protocols of other crates.
    ///
    /// # Safety
    /// The caller meets the contracts of the functions that it calls on the result.
    #[doc(hidden)]
    pub unsafe fn inner(&self) -> &TableInner<T> {
        &self.inner
    }
}

impl<T: Record> Clone for Table<T> {
    fn clone(&self) -> Self {
        Table { inner: Arc::clone(&self.inner) }
    }
}

impl<T: Record> std::fmt::Debug for Table<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Table").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// The identity of a database: the address of its only value. Handles that could be used with the wrong
/// database keep it alive, so that no other database gets the same address.
#[derive(Debug)]
pub struct Identity;

/// Returns a function that drops the row of a record, or `None` if rows own nothing.
fn drop_visitor(table: TableRef, memory: &WorkerMemory) -> Option<impl FnMut(u64) + '_> {
    table.core().drop_row?;
    Some(move |address| {
        // SAFETY: the index led to the record, and no other thread uses the table. Each record is visited
        // once, so its row is dropped once.
        unsafe { table.drop_newest(record_at(address), memory) };
    })
}

/// A table with rows of type `T`.
#[repr(C)]
pub struct TableInner<T: Record> {
    core: TableCore,
    pub primary: SharedIndex<AnyIndex>,
    pub secondary: Vec<AnySecondary>,
    /// The numbers of the primary keys, if these are generated.
    pub numbers: KeyNumbers,
    /// The identity of the database to which the table belongs.
    pub identity: Arc<Identity>,
    /// What the program runs when a row has expired, if the table has a hook, and it was set: a [`Hook`].
    hook: Mutex<Option<SharedHook>>,
    rows: PhantomData<fn() -> T>,
}

type SharedHook = Arc<dyn Any + Send + Sync>;

/// What a program runs when a row has expired. `F` is a closure's type, which depends on the protocol.
pub struct Hook<F: ?Sized>(pub Box<F>);

impl<T: Record> TableInner<T> {
    /// Creates the table, with the storage `storage` for about `capacity` rows. Its indexes are numbered from
    /// `number` on.
    pub fn new(
        identity: &Arc<Identity>,
        (name, number): (&'static str, usize),
        (storage, capacity): (Storage, usize),
        records: &'static RecordKind,
        memory: &WorkerMemory,
    ) -> Result<Self, Failure> {
        let form = form_of(T::Key::WIDTH_BYTES);
        let secondary = T::INDEXES
            .iter()
            .enumerate()
            .map(|(position, index)| {
                AnySecondary::new(name, index, number + 1 + position, records, memory)
            })
            .collect::<Result<_, _>>()?;
        Ok(TableInner {
            core: <Self as RowsOf>::core(name, None, number, records, memory)?,
            primary: SharedIndex::new(AnyIndex::new(
                form,
                storage,
                capacity,
                &memory.index(number),
            )),
            secondary,
            numbers: KeyNumbers::new(FIRST_NUMBER),
            identity: Arc::clone(identity),
            hook: Mutex::default(),
            rows: PhantomData,
        })
    }

    /// Returns the reference that goes into access sets. `self` lies in the `Arc` that the database holds.
    #[inline(always)]
    pub fn reference(&self) -> TableRef {
        TableRef(NonNull::from(self).cast())
    }

    #[inline(always)]
    pub fn number(&self) -> usize {
        self.core.number
    }

    pub fn name(&self) -> &'static str {
        self.core.name
    }

    /// Checks that a row may be written.
    #[inline(always)]
    pub fn check(&self, row: &T) -> Result<(), Failure> {
        check(self.name(), row)
    }

    /// Returns the cores of the table and of its secondary indexes, in order.
    pub fn cores(&self) -> Vec<&TableCore> {
        let secondary =
            self.secondary.iter().map(|index| with_secondary!(index, |index| &index.core));
        std::iter::once(&self.core).chain(secondary).collect()
    }

    /// Makes the table logged from now on.
    pub fn set_log_number(&self, number: u32) {
        self.core.set_log_number(number);
    }

    /// Sets what the program runs when a row has expired.
    pub fn set_hook(&self, hook: Option<SharedHook>) {
        let replaced = {
            let mut place = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *place, hook)
        };
        contain(|| drop(replaced));
    }

    /// Returns what the program runs when a row has expired: a value of type `H`.
    ///
    /// # Errors
    /// [`Failure::NoHook`] if it was not set.
    pub fn hook<H: Send + Sync + 'static>(&self) -> Result<Arc<H>, Failure> {
        let hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let hook = hook.and_then(|hook| hook.downcast().ok());
        hook.ok_or(Failure::NoHook { table: self.name() })
    }

    /// Drops the rows of all records in the indexes, and frees the indexes' own memory. (The records lie in
    /// chunks, which are freed as a whole.)
    ///
    /// # Safety
    /// The database is being dropped: no transaction is running or will run. This is called only once.
    pub unsafe fn tear_down(&self, memory: &WorkerMemory) {
        // A hook may hold tables, also its own.
        self.set_hook(None);
        for secondary in &self.secondary {
            with_secondary!(secondary, |index| {
                let visit = drop_visitor(index.reference(), memory);
                // SAFETY: by the contract nothing else uses the index.
                unsafe { &mut *index.index.0.get() }.tear_down(memory, visit);
            });
        }
        let visit = drop_visitor(self.reference(), memory);
        // SAFETY: as above.
        unsafe { &mut *self.primary.0.get() }.tear_down(memory, visit);
    }
}

impl<T: Record> RowsOf for TableInner<T> {
    type Row = T;
    const ARE_PLAIN: bool = T::PLAIN.is_some();

    fn key_text(row: &T) -> String {
        format!("{:?}", row.key())
    }

    fn heap_bytes(row: &T) -> usize {
        row.heap_bytes()
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

    fn index_key(row: &T) -> EncodedKey {
        with_form!(T::Key::WIDTH_BYTES, |K| K::from_key(&row.key()).erase())
    }

    fn remove(&self, key: &EncodedKey, address: u64, memory: &WorkerMemory) -> bool {
        with_form!(T::Key::WIDTH_BYTES, |K| {
            K::pick(&self.primary).remove(&K::restore(key), address, &memory.index(self.number()))
        })
    }

    fn insert(&self, key: &EncodedKey, address: u64, memory: &WorkerMemory) -> bool {
        let inserted = with_form!(T::Key::WIDTH_BYTES, |K| {
            let (index, hint) = (K::pick(&self.primary), &mut LeafHint::new());
            index.get_or_insert(&K::restore(key), address, hint, &memory.index(self.number()))
        });
        matches!(inserted, Insertion::Inserted { .. })
    }

    fn find(&self, key: &EncodedKey) -> Option<u64> {
        let found = with_form!(T::Key::WIDTH_BYTES, |K| {
            K::pick(&self.primary).get(&K::restore(key), &mut LeafHint::new())
        });
        found.address()
    }

    fn description(name: &str) -> Option<TableDescription> {
        TableDescription::named::<T>(name)
    }

    fn same_columns(row: &T, other: &T, columns: ColumnSet) -> bool {
        row.same_columns(other, columns)
    }

    fn rebase(row: &T, before: &T, onto: &T, adds: ColumnSet) -> Option<T> {
        row.rebase(before, onto, adds)
    }

    fn same_index_keys(row: &T, other: &T) -> bool {
        (0..T::INDEXES.len()).all(|index| !row.index_key_differs(other, index))
    }

    fn may_be_written(row: &T) -> bool {
        check(T::TABLE, row).is_ok()
    }

    const DISAPPEAR: bool = matches!(T::EXPIRY, Some(expiry) if !expiry.has_hook);

    fn disappears_at(row: &T) -> u64 {
        row.expires_at().as_millis()
    }

    #[cfg(feature = "history")]
    fn history_key(row: &T) -> crate::history::HistoryKey {
        crate::history::HistoryKey::of(&row.key())
    }
}

/// A row of a secondary index: an index key and the record to which it leads.
#[derive(Clone)]
pub struct IndexEntry<K> {
    /// The primary record's address.
    pub record: u64,
    /// The entry's own key, for messages and histories.
    pub key: K,
}

/// A secondary index over keys of one form.
#[repr(C)]
pub struct Secondary<K: KeyForm> {
    core: TableCore,
    pub unique: bool,
    pub index: SharedIndex<FormIndex<K>>,
}

impl<K: KeyForm> Secondary<K> {
    fn new(
        table: &'static str,
        description: &'static crate::row::schema::IndexDescription,
        number: usize,
        records: &'static RecordKind,
        memory: &WorkerMemory,
    ) -> Result<Box<Self>, Failure> {
        Ok(Box::new(Secondary {
            core: <Self as RowsOf>::core(table, Some(description.name), number, records, memory)?,
            unique: description.unique,
            index: SharedIndex::new(FormIndex::new(Storage::Ordered, 0, &memory.index(number))),
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

    /// Returns a key of this index in a form that is the same for all indexes.
    pub fn erased(&self, key: K) -> EncodedKey {
        key.erase()
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
        self.tree().read_page(from, to, direction, page, hint, memory)
    }

    /// Returns the index itself.
    #[inline(always)]
    pub fn tree(&self) -> &BPlusTree<K> {
        match &*self.index {
            FormIndex::Ordered(tree) => tree,
            FormIndex::Hash(_) => unreachable!("secondary indexes are ordered"),
        }
    }
}

impl<K: KeyForm> RowsOf for Secondary<K> {
    type Row = IndexEntry<K>;

    fn key_text(row: &IndexEntry<K>) -> String {
        format!("{:x?}", row.key)
    }

    fn heap_bytes(row: &IndexEntry<K>) -> usize {
        allocation_bytes(row.key.erased_heap_bytes())
    }

    fn encode_row(_row: &IndexEntry<K>, _output: &mut Vec<u8>) {
        unreachable!("indexes are not logged: they are built from their tables")
    }

    fn encode_change(row: &IndexEntry<K>, _before: &IndexEntry<K>, output: &mut Vec<u8>) {
        <Self as RowsOf>::encode_row(row, output);
    }

    fn encode_key(row: &IndexEntry<K>, output: &mut Vec<u8>) {
        <Self as RowsOf>::encode_row(row, output);
    }

    fn index_key(row: &IndexEntry<K>) -> EncodedKey {
        row.key.erase()
    }

    fn remove(&self, key: &EncodedKey, address: u64, memory: &WorkerMemory) -> bool {
        self.index.remove(&K::restore(key), address, &memory.index(self.number()))
    }

    fn insert(&self, key: &EncodedKey, address: u64, memory: &WorkerMemory) -> bool {
        let (key, memory) = (K::restore(key), memory.index(self.number()));
        let inserted = self.index.get_or_insert(&key, address, &mut LeafHint::new(), &memory);
        matches!(inserted, Insertion::Inserted { .. })
    }

    fn find(&self, key: &EncodedKey) -> Option<u64> {
        self.index.get(&K::restore(key), &mut LeafHint::new()).address()
    }

    #[cfg(feature = "history")]
    fn history_key(row: &IndexEntry<K>) -> crate::history::HistoryKey {
        crate::history::HistoryKey::encoded(&row.key)
    }
}

/// A secondary index over keys of any form.
pub enum AnySecondary {
    Words1(Box<Secondary<u64>>),
    Words2(Box<Secondary<u128>>),
    Long(Box<Secondary<LongKey>>),
}

impl AnySecondary {
    fn new(
        table: &'static str,
        description: &'static crate::row::schema::IndexDescription,
        number: usize,
        records: &'static RecordKind,
        memory: &WorkerMemory,
    ) -> Result<Self, Failure> {
        Ok(match form_of(description.width_bytes) {
            Form::Words1 => {
                AnySecondary::Words1(Secondary::new(table, description, number, records, memory)?)
            }
            Form::Words2 => {
                AnySecondary::Words2(Secondary::new(table, description, number, records, memory)?)
            }
            Form::Long => {
                AnySecondary::Long(Secondary::new(table, description, number, records, memory)?)
            }
        })
    }
}

/// Checks that a row may be written to a table.
#[cfg_attr(not(debug_assertions), inline(always))]
fn check<T: Record>(table: &'static str, row: &T) -> Result<(), Failure> {
    // A row that owns no memory is far shorter than that.
    if const { std::mem::needs_drop::<T>() } && row.stored_bytes() > STORED_BYTES_MAX {
        return Err(Failure::StoredRowTooLarge {
            table,
            key: format!("{:?}", row.key()),
            stored_bytes: row.stored_bytes(),
            stored_bytes_max: STORED_BYTES_MAX,
        });
    }
    row.check().map_err(|violation| {
        let key = format!("{:?}", row.key());
        Failure::Constraint { table, key, violation }
    })
}

/// Returns a row's key in one of its secondary indexes.
pub fn index_key<K: KeyForm, T: Record>(row: &T, position: usize) -> K {
    let mut encoder = K::Encoder::default();
    row.encode_index_key(position, &mut encoder);
    K::finish(encoder)
}
