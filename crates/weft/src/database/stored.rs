//! Tables as they are stored: filled without transactions, by recovery and by bulk loading, and written out from a
//! snapshot.
//!
//! A row that is filled in here is visible to all threads at once. It has the number 0, as if it had always been
//! there. So no other thread may use the table while it is filled.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use weft_htm::word::{Ordering, yield_now};

use crate::durability::{StorageError, StoredTable};
use crate::error::{Failure, RowViolations};
use crate::index::bplus_tree::LeafHint;
use crate::index::{IndexKey, Insertion, LongKey, Lookup};
use crate::row::column::DecodeError;
use crate::row::description::{RowChange, StoredRow, TableDescription};
use crate::row::encoding::{Key, KeyForm};
use crate::row::schema::{Record, Storage, Violation};
use crate::snapshot::Snapshot;
use crate::store::record::version::VersionHeader;
use crate::store::record::{Newest, newest, newest_word, record_at};
use crate::store::table::{
    FormIndex, IndexEntry, PickForm, Secondary, Table, TableCore, TableInner, TableRef, index_key,
    with_form, with_secondary,
};
use crate::store::worker::{LeafHints, SharedState, StoredForm, WorkerMemory, contain};

/// Returns the table of rows `T` that has this name.
///
/// # Errors
/// [`Failure::UnknownTable`] if there isn't one.
pub fn find_table<T: Record>(
    tables: &BTreeMap<&'static str, Arc<dyn AnyTable>>,
    name: &str,
) -> Result<Table<T>, Failure> {
    let table = tables.get(name).cloned();
    match table.and_then(|table| table.into_any().downcast::<TableInner<T>>().ok()) {
        Some(inner) => Ok(Table { inner }),
        None => {
            let row_type = std::any::type_name::<T>();
            let call = match name == T::TABLE {
                true => format!(".table::<{row_type}>()"),
                false => format!(".table_named::<{row_type}>({name:?})"),
            };
            Err(Failure::UnknownTable { table: name.to_owned(), call, row_type })
        }
    }
}

/// A table of any row type.
pub trait AnyTable: Any + Send + Sync {
    /// Returns the table's name.
    fn name(&self) -> &'static str;

    /// Returns the table's number among the database's indexes.
    fn number(&self) -> usize;

    /// Returns the reference to the table.
    fn reference(&self) -> TableRef;

    /// Returns the cores of the table and of its secondary indexes, in order.
    fn cores(&self) -> Vec<&TableCore>;

    /// Returns the number of the next generated key, if keys are generated.
    fn next_key(&self) -> Option<u64>;

    /// Makes the log record the table's changes from now on, under this number.
    fn set_log_number(&self, number: u32);

    /// Returns the table as recovery sees it, or `None` if it is volatile.
    fn recovering(self: Arc<Self>, memories: &Arc<FillingMemories>)
    -> Option<Arc<dyn StoredTable>>;

    /// Passes the rows of part `part.0` of `part.1` to `sink`, encoded, as the snapshot shows them.
    fn encode_rows(
        self: Arc<Self>,
        snapshot: &Snapshot,
        part: (u32, u32),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError>;

    /// Returns the same table, to be cast to its own type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    /// Drops every row that an index leads to, and frees the memory of the indexes. (Records lie in chunks, which
    /// are freed as a whole.)
    ///
    /// # Safety
    /// The database is being dropped: no transaction is running or will run, and this is the only call.
    unsafe fn tear_down(&self, memory: &WorkerMemory);
}

impl<T: Record> AnyTable for TableInner<T> {
    fn name(&self) -> &'static str {
        TableInner::name(self)
    }

    fn number(&self) -> usize {
        TableInner::number(self)
    }

    fn reference(&self) -> TableRef {
        TableInner::reference(self)
    }

    fn cores(&self) -> Vec<&TableCore> {
        TableInner::cores(self)
    }

    fn next_key(&self) -> Option<u64> {
        T::KEY_NUMBER.map(|_| self.numbers.next())
    }

    fn set_log_number(&self, number: u32) {
        TableInner::set_log_number(self, number);
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
        snapshot: &Snapshot,
        (part, parts): (u32, u32),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let table = Table { inner: self };
        let mut encoded = Vec::new();
        for (position, row) in (0u64..).zip(snapshot.rows(&table)) {
            let row: &T = row.map_err(|failure| StorageError::Io {
                operation: "read the rows of",
                path: table.name().into(),
                message: failure.to_string(),
            })?;
            if T::STORAGE == Storage::Ordered && position % u64::from(parts) != u64::from(part) {
                continue;
            }
            encoded.clear();
            row.encode_row(&mut encoded);
            // Each part has a scan of its own. In a hash table, insertions and deletions that take place in the meantime
            // change the order of the rows, so a row's position cannot tell its part.
            if T::STORAGE == Storage::Hash && crc32c::crc32c(&encoded) % parts != part {
                continue;
            }
            sink(&encoded)?;
        }
        Ok(())
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    unsafe fn tear_down(&self, memory: &WorkerMemory) {
        // SAFETY: the caller upholds the contract.
        unsafe { TableInner::tear_down(self, memory) };
    }
}

/// Worker memories for threads that fill tables: as many as there are threads at work at the same time.
pub struct FillingMemories {
    shared: Arc<SharedState>,
    slots: Box<[MemorySlot]>,
}

/// The place of a memory, which one thread takes at a time. It has a cache line of its own, since it is taken for every
/// single row.
#[repr(align(64))]
#[derive(Default)]
struct MemorySlot(Mutex<FillingMemory>);

/// A worker's memory, and its buffers.
#[derive(Default)]
struct FillingMemory {
    /// The memory with its worker's slot, if a thread has needed it so far.
    memory: Option<(usize, WorkerMemory)>,
    /// One for a stored row, and one for the changed row.
    buffers: [Vec<u8>; 2],
}

thread_local! {
    /// The memory slot that this thread used last, which is most likely free.
    static LAST_SLOT: Cell<usize> = const { Cell::new(0) };
}

/// A worker's memory that is pinned as long as this lives, also if the user's code panics.
struct PinnedMemory<'m>(&'m WorkerMemory);

impl<'m> PinnedMemory<'m> {
    fn new(memory: &'m WorkerMemory) -> Self {
        memory.pin();
        memory.begin_versions();
        PinnedMemory(memory)
    }
}

impl Drop for PinnedMemory<'_> {
    fn drop(&mut self) {
        self.0.unpin();
    }
}

impl FillingMemories {
    pub fn new(shared: Arc<SharedState>) -> Self {
        let slots = (0..shared.counters.len()).map(|_| MemorySlot::default()).collect();
        FillingMemories { shared, slots }
    }

    /// Runs `work` with one of the memories, pinned. Waits while other threads use all of them.
    pub fn with<R>(&self, work: impl FnOnce(&WorkerMemory) -> R) -> R {
        self.with_buffers(|memory, _| work(memory))
    }

    /// As [`FillingMemories::with`], with two buffers, whose contents are left over from earlier calls.
    fn with_buffers<R>(&self, work: impl FnOnce(&WorkerMemory, &mut [Vec<u8>; 2]) -> R) -> R {
        let mut filling = self.take_free();
        let FillingMemory { memory, buffers } = &mut *filling;
        let (_, memory) = memory.as_ref().expect("`take_free` returns a place with a memory");
        let pinned = PinnedMemory::new(memory);
        let result = work(memory, buffers);
        drop(pinned);
        // Drop the rows that were replaced or taken out.
        memory.run_discarded();
        result
    }

    /// Returns the place of a memory that no other thread uses.
    // Tries all places, beginning with the one used last. A place gets its memory when a slot of a worker is free.
    fn take_free(&self) -> MutexGuard<'_, FillingMemory> {
        let last = LAST_SLOT.get();
        loop {
            for number in (last..last + self.slots.len()).map(|number| number % self.slots.len()) {
                let mut filling = match self.slots[number].0.try_lock() {
                    Ok(filling) => filling,
                    Err(TryLockError::Poisoned(filling)) => filling.into_inner(),
                    Err(TryLockError::WouldBlock) => continue,
                };
                if filling.memory.is_none() {
                    let Some(slot) = self.shared.take_slot() else { continue };
                    let memory = WorkerMemory::new(Arc::clone(&self.shared), slot);
                    filling.memory = Some((slot, memory));
                }
                LAST_SLOT.set(number);
                return filling;
            }
            yield_now();
        }
    }

    /// Gives up the memories that no thread uses at present. Later calls take others.
    pub fn give_up(&self) {
        for memory_slot in &self.slots {
            let mut filling = memory_slot.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((slot, memory)) = filling.memory.take() {
                memory.leave();
                self.shared.give_slot_back(slot);
            }
        }
    }
}

impl Drop for FillingMemories {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The result of filling in a row.
pub enum FillOutcome {
    /// The row is new.
    New,
    /// The row has replaced one with the same key.
    Replaced,
    /// The row was dropped, because there is one with the same key, in the record at this address.
    Present(u64),
}

impl<T: Record> TableInner<T> {
    /// Fills in a row. If it `replaces` one with the same key, no other thread uses the key at the same time. The hints
    /// are those of the primary index, and no older than the last time at which the thread was pinned.
    pub fn fill(
        &self,
        row: T,
        replaces: bool,
        hints: &mut LeafHints,
        memory: &WorkerMemory,
    ) -> FillOutcome {
        let key = row.key();
        if let Some(number) = T::KEY_NUMBER {
            self.numbers.pass(number(&key));
        }
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let (index, hint) = (K::pick(&self.primary), K::hint(hints));
            fill::<K, T>(index, self.reference(), &K::from_key(&key), (row, replaces), hint, memory)
        })
    }

    /// Takes a row out, and returns whether it was there. No other thread uses the key at the same time.
    fn take_out(&self, key: &T::Key, memory: &WorkerMemory) -> bool {
        let table = self.reference();
        let found = with_form!(T::Key::WIDTH_BYTES, |K| {
            let key = K::from_key(key);
            let index = K::pick(&self.primary);
            match index.get(&key, &mut LeafHint::new()) {
                Lookup::Found(address) => {
                    index.remove(&key, address, &memory.index(self.number())).then_some(address)
                }
                Lookup::Absent(_) => None,
            }
        });
        let Some(address) = found else { return false };
        memory.count_filled(self.number(), -1);
        memory.retire_record(record_at(address), table);
        true
    }

    /// Replaces a row by what `change` makes of it, and returns whether it was there. No other thread uses the key
    /// at the same time.
    fn replace<E>(
        &self,
        key: &T::Key,
        memory: &WorkerMemory,
        change: impl FnOnce(&T) -> Result<T, E>,
    ) -> Result<bool, E> {
        let found = with_form!(T::Key::WIDTH_BYTES, |K| {
            let index = K::pick(&self.primary);
            index.get(&K::from_key(key), &mut LeafHint::new())
        });
        let Lookup::Found(address) = found else { return Ok(false) };
        // SAFETY: the table's own index holds the record, no other thread uses the key, and the record was filled
        // in with a row.
        let mut place =
            unsafe { newest(record_at(address)).expect("filled in with a row").cast::<T>() };
        // SAFETY: as above.
        let row = unsafe { place.as_mut() };
        let replaced = std::mem::replace(row, change(row)?);
        // SAFETY: as above.
        contain(|| unsafe { memory.count_row_heap(self.reference(), place.cast()) });
        // A drop that panics must not stop the recovery, here as everywhere.
        contain(|| drop(replaced));
        Ok(true)
    }

    /// Calls `visit` with the rows of a part of the table, and the addresses of their records. No other thread writes
    /// to the table.
    fn for_each_row(
        &self,
        (part, parts): (usize, usize),
        memory: &WorkerMemory,
        mut visit: impl FnMut(u64, &T),
    ) {
        let mut visit = |address: u64| {
            // Blocks are at least 16 bytes apart. So neighbours go to different parts.
            if (address >> 4) as usize % parts != part {
                return;
            }
            // SAFETY: the table's own index holds the record, no other thread writes to the table, and the record
            // has a row.
            let row = unsafe { newest(record_at(address)).map(|row| row.cast::<T>().as_ref()) };
            if let Some(row) = row {
                visit(address, row);
            }
        };
        with_form!(T::Key::WIDTH_BYTES, |K| {
            K::pick(&self.primary).for_each_address(memory, &mut visit);
        });
    }

    /// Builds a part of a secondary index from the table's rows. Calls `check` with each row, and `duplicate` with each
    /// row whose entry is there already, and the row of that entry. No other thread writes to the table.
    fn build_index(
        &self,
        position: usize,
        part: (usize, usize),
        memory: &WorkerMemory,
        check: Option<&dyn Fn(&T)>,
        duplicate: &dyn Fn(usize, &T, &T),
    ) {
        self.for_each_row(part, memory, |address, row| {
            if let Some(check) = check {
                check(row);
            }
            let other = with_secondary!(&self.secondary[position], |index| {
                fill_entry(index, position, row, address, memory)
            });
            if let Some(other) = other {
                // SAFETY: the entry was made for a row of this table, in this or another part.
                let other = unsafe { newest(record_at(other)).map(|row| row.cast::<T>().as_ref()) };
                duplicate(position, row, other.expect("filled in with a row"));
            }
        });
    }

    /// Builds a part of all secondary indexes, and calls `check` once with each row of the part. Calls `duplicate` with
    /// the position of a unique index, and two rows that have the same key in it.
    pub fn build_indexes(
        &self,
        part: (usize, usize),
        memory: &WorkerMemory,
        check: Option<&dyn Fn(&T)>,
        duplicate: &dyn Fn(usize, &T, &T),
    ) {
        if let (true, Some(check)) = (self.secondary.is_empty(), check) {
            self.for_each_row(part, memory, |_, row| check(row));
        }
        // The rows are checked while the first index is built, which visits them anyway.
        for index in 0..self.secondary.len() {
            self.build_index(index, part, memory, check.filter(|_| index == 0), duplicate);
        }
    }

    /// Returns whether the table has no rows, and no deleted ones that are still in its index.
    pub fn is_empty(&self, memory: &WorkerMemory) -> bool {
        self.count_rows(memory) == 0
    }

    /// Removes all rows. No other thread uses the table at the same time.
    pub fn clear(&self, memory: &WorkerMemory) {
        for secondary in &self.secondary {
            with_secondary!(secondary, |index| {
                clear_entries(index, memory);
            });
        }
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let index = K::pick(&self.primary);
            clear(index, self.reference(), memory, |row: &T| K::from_key(&row.key()));
        });
    }

    /// Returns the number of rows, if no other thread uses the table.
    pub fn count_rows(&self, memory: &WorkerMemory) -> u64 {
        let mut rows = 0;
        with_form!(T::Key::WIDTH_BYTES, |K| {
            K::pick(&self.primary).for_each_address(memory, &mut |_| rows += 1);
        });
        rows
    }
}

/// Removes all rows from an index that was filled. `key_of` returns the key under which a row is in the index.
fn clear<K: KeyForm, R>(
    index: &FormIndex<K>,
    table: TableRef,
    memory: &WorkerMemory,
    key_of: impl Fn(&R) -> K,
) {
    let number = table.core().number;
    let mut addresses = Vec::new();
    index.for_each_address(memory, &mut |address| addresses.push(address));
    for address in addresses {
        let record = record_at(address);
        // SAFETY: the index leads to the record, which has a row of the table's type, and no other thread uses the
        // table.
        let row = unsafe { newest(record) };
        let row = row.expect("filled in with a row");
        let mut key = None;
        // SAFETY: as above.
        contain(|| key = Some(key_of(unsafe { row.cast::<R>().as_ref() })));
        // If the row's type panics, or returns another key than before, the row stays.
        if key.is_some_and(|key| index.remove(&key, address, &memory.index(number))) {
            memory.count_filled(number, -1);
            memory.retire_record(record, table);
        }
    }
}

fn clear_entries<K: KeyForm>(index: &Secondary<K>, memory: &WorkerMemory) {
    clear(&index.index, index.reference(), memory, |entry: &IndexEntry<K>| entry.key.clone());
}

/// Fills in the entry of a row in a secondary index. If there is an entry with the same key, returns the address of the
/// record that it leads to.
fn fill_entry<K: KeyForm, T: Record>(
    index: &Secondary<K>,
    position: usize,
    row: &T,
    address: u64,
    memory: &WorkerMemory,
) -> Option<u64> {
    let key: K = index_key(row, position);
    let entry = IndexEntry { record: address, key: key.clone() };
    let filled = fill::<K, IndexEntry<K>>(
        &index.index,
        index.reference(),
        &key,
        (entry, false),
        &mut LeafHint::new(),
        memory,
    );
    let FillOutcome::Present(entry) = filled else { return None };
    // SAFETY: the index leads to the record, which was filled in with an entry before that, and entries are neither
    // replaced nor removed while an index is built.
    unsafe { newest(record_at(entry)).map(|entry| entry.cast::<IndexEntry<K>>().as_ref().record) }
}

/// Puts a row into an index under its key. If there is a row with this key, the new one replaces it, or is dropped. The
/// thread has been pinned since the hint was made.
fn fill<K: KeyForm, R>(
    index: &FormIndex<K>,
    table: TableRef,
    key: &K,
    (row, replaces): (R, bool),
    hint: &mut LeafHint<K>,
    memory: &WorkerMemory,
) -> FillOutcome {
    let core = table.core();
    // SAFETY: this is a row of the table. (The caller holds nothing while this runs the user's code.)
    let heap_bytes = unsafe { core.heap_bytes(NonNull::from(&row).cast()) };
    let block = memory.allocate_record(table);
    // SAFETY: `block` is new and of the table's record class, and rows are of the table's type. No other thread has
    // the record's address before it is in the index, and no other thread uses the key if a row is to be replaced.
    unsafe {
        // A new record that holds the row, with the number 0.
        core.records.initialise(block, memory.versions_begin());
        let place = match core.holds_rows_inline() {
            true => VersionHeader::initialise(block.add(core.records.layout.size())),
            false => memory.allocate_row(table),
        };
        place.cast::<R>().write(row);
        memory.count_heap(table, place, heap_bytes);
        VersionHeader::of(place).set_number(0);
        core.records.mark_loaded(block);
        newest_word(block).store(Newest::of(place), Ordering::Release);
        let address = block.as_ptr().expose_provenance() as u64;
        let existing = match index.get_or_insert(key, address, hint, &memory.index(core.number)) {
            Insertion::Inserted { .. } => {
                memory.count_filled(core.number, 1);
                return FillOutcome::New;
            }
            Insertion::Found(address) if !replaces => {
                memory.drop_row(place, table, core.holds_rows_inline());
                memory.free_record_block(block, table);
                return FillOutcome::Present(address);
            }
            Insertion::Found(address) => record_at(address),
        };
        // The key has a record already. That record gets the row, in a block of its own.
        let moved = memory.allocate_row(table);
        std::ptr::copy_nonoverlapping(place.cast::<R>().as_ptr(), moved.cast().as_ptr(), 1);
        memory.count_heap(table, place, 0);
        memory.count_heap(table, moved, heap_bytes);
        VersionHeader::of(moved).set_number(0);
        if !core.holds_rows_inline() {
            memory.free_block(VersionHeader::block(place), core.row_class);
        }
        memory.free_record_block(block, table);
        let newest = newest_word(existing);
        let replaced = newest.load(Ordering::Acquire).row().expect("filled in with a row");
        newest.store(Newest::of(moved), Ordering::Release);
        memory.drop_row(replaced, table, table.is_inline(existing, replaced));
        FillOutcome::Replaced
    }
}

/// A table that recovery fills.
pub struct RecoveringTable<T: Record> {
    table: Arc<TableInner<T>>,
    description: TableDescription,
    memories: Arc<FillingMemories>,
    violations: Mutex<RowViolations>,
    /// The threads of recovery have divided the keys among them as they are stored. Keys that are stored differently are the
    /// same if a faulty key type encodes them alike. A thread that changes a record holds one of these, chosen by the encoded key.
    keys: [Mutex<()>; KEY_LOCKS],
}

/// How many locks a table has during recovery.
const KEY_LOCKS: usize = 256;

impl<T: Record> RecoveringTable<T> {
    /// Returns the table for recovery, or `None` if it is volatile.
    pub fn new(table: Arc<TableInner<T>>, memories: Arc<FillingMemories>) -> Option<Self> {
        let description = TableDescription::named::<T>(table.name())?;
        let keys = std::array::from_fn(|_| Mutex::default());
        Some(RecoveringTable { table, description, memories, violations: Mutex::default(), keys })
    }

    /// Keeps other threads from the record of a key.
    fn hold(&self, key: &T::Key) -> MutexGuard<'_, ()> {
        let hash = with_form!(T::Key::WIDTH_BYTES, |K| K::from_key(key).hash());
        self.keys[hash as usize % KEY_LOCKS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a row does not fit, because of a check, or because of the unique index at a position.
    fn note(&self, row: &T, index: Option<usize>, violation: Violation) {
        let key = row.key();
        // In the order of the index, so that rows with the same key in it are listed together.
        let mut order = vec![index.map_or(0, |index| index as u8 + 1)];
        if let Some(index) = index {
            order.extend_from_slice(index_key::<LongKey, T>(row, index).to_bytes().as_ref());
        }
        order.extend_from_slice(LongKey::from_key(&key).to_bytes().as_ref());
        let key = format!("{key:?}");
        let mut violations = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
        violations.add(order, key, violation);
    }
}

impl<T: Record> StoredTable for RecoveringTable<T> {
    fn description(&self) -> &TableDescription {
        &self.description
    }

    fn put(&self, row: &[u8]) -> Result<(), DecodeError> {
        let row = decode(row, T::decode_row)?;
        let hints = &mut LeafHints::default();
        let _held = self.hold(&row.key());
        self.memories.with(|memory| self.table.fill(row, true, hints, memory));
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<(), DecodeError> {
        let key = decode(key, T::decode_key)?;
        if let Some(number) = T::KEY_NUMBER {
            self.table.numbers.pass(number(&key));
        }
        let _held = self.hold(&key);
        self.memories.with(|memory| self.table.take_out(&key, memory));
        Ok(())
    }

    fn change(&self, key: &[u8], change: &RowChange<'_>) -> Result<bool, DecodeError> {
        let key = decode(key, T::decode_key)?;
        let _held = self.hold(&key);
        self.memories.with_buffers(|memory, buffers| {
            buffers.iter_mut().for_each(Vec::clear);
            let [stored, changed] = buffers;
            self.table.replace(&key, memory, |row| {
                row.encode_row(stored);
                change.apply(&self.description, stored, changed)?;
                decode(changed, T::decode_row)
            })
        })
    }

    fn build_indexes(&self, part: usize, parts: usize) -> Result<(), StorageError> {
        let check: &dyn Fn(&T) = &|row| {
            if let Err(violation) = row.check() {
                self.note(row, None, violation);
            }
        };
        let check = const { T::IS_CHECKED }.then_some(check);
        let duplicate = |index: usize, row: &T, other: &T| {
            let name = T::INDEXES[index].name;
            for (row, other) in [(row, other), (other, row)] {
                let other = other.key();
                let message =
                    format!("it has the same values as row {other:?} in the unique index `{name}`");
                self.note(row, Some(index), message.into());
            }
        };
        self.memories.with(|memory| {
            self.table.build_indexes((part, parts), memory, check, &duplicate);
        });
        Ok(())
    }

    fn checked(&self) -> Result<(), StorageError> {
        let mut violations = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *violations).into_result(self.table.name())
    }

    fn compute(
        &self,
        column: usize,
        row: &StoredRow<'_>,
        output: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        match T::COLUMNS[column].computed {
            Some(compute) => compute(row, output),
            None => Err("the column is not computed".into()),
        }
    }

    fn migrate(&self, row: &StoredRow<'_>) -> Result<(), Violation> {
        let Some(row) = T::migrate(row)? else { return Ok(()) };
        let key = row.key();
        let hints = &mut LeafHints::default();
        match self.memories.with(|memory| self.table.fill(row, false, hints, memory)) {
            FillOutcome::New => Ok(()),
            _ => Err(format!("its migration makes row {key:?}, which exists already").into()),
        }
    }

    fn encode_rows(
        &self,
        part: (usize, usize),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let (mut encoded, mut outcome) = (Vec::new(), Ok(()));
        self.memories.with(|memory| {
            self.table.for_each_row(part, memory, |_, row| {
                encoded.clear();
                row.encode_row(&mut encoded);
                if outcome.is_ok() {
                    outcome = sink(&encoded);
                }
            });
        });
        outcome
    }

    fn next_key(&self) -> Option<u64> {
        AnyTable::next_key(&*self.table)
    }

    fn pass_keys(&self, next: u64) {
        self.table.numbers.pass(next.saturating_sub(1));
    }

    fn rows(&self) -> u64 {
        self.memories.with(|memory| self.table.count_rows(memory))
    }
}

/// Decodes a value that takes up all of `input`.
fn decode<R>(
    mut input: &[u8],
    read: impl FnOnce(&mut &[u8]) -> Result<R, DecodeError>,
) -> Result<R, DecodeError> {
    let value = read(&mut input)?;
    match input.is_empty() {
        true => Ok(value),
        false => Err(DecodeError::new(input, "there are bytes behind the end")),
    }
}
