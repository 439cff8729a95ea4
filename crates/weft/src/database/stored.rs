//! Tables as they are stored: filled without transactions, by recovery and by bulk loading, and
//! written out from a snapshot.
//!
//! What is filled in here is there for everybody at once, with the number 0, as if it had always
//! been: so nobody else may use the table meanwhile.

use std::any::Any;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use weft_htm::word::{Ordering, yield_now};

use crate::durability::{StorageError, StoredTable};
use crate::index::bplus_tree::LeafHint;
use crate::index::{Insertion, Lookup};
use crate::row::column::DecodeError;
use crate::row::description::{RowChange, TableDescription};
use crate::row::encoding::{Key, KeyForm};
use crate::row::schema::{Record, Violation};
use crate::snapshot::Snapshot;
use crate::store::record::version::VersionHeader;
use crate::store::record::{Newest, newest, newest_word, record_at};
use crate::store::table::{
    Entry, FormIndex, PickForm, Secondary, Table, TableInner, TableRef, index_key, with_form,
    with_secondary,
};
use crate::store::worker::{Shared, WorkerMemory, contain};

/// A table, whatever its row type.
pub trait AnyTable: Any + Send + Sync {
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
        snapshot: &Snapshot,
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

impl<T: Record> AnyTable for TableInner<T> {
    fn name(&self) -> &'static str {
        T::TABLE
    }

    fn number(&self) -> usize {
        TableInner::number(self)
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
            if position % u64::from(parts) != u64::from(part) {
                continue;
            }
            let row = row.map_err(|failure| StorageError::Io {
                operation: "read the rows of",
                path: T::TABLE.into(),
                message: failure.to_string(),
            })?;
            encoded.clear();
            row.encode_row(&mut encoded);
            sink(&encoded)?;
        }
        Ok(())
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    unsafe fn tear_down(&self, memory: &WorkerMemory) {
        // SAFETY: passed on to the caller.
        unsafe { TableInner::tear_down(self, memory) };
    }
}

/// Worker memories for threads that fill tables: as many as are at work at a time.
pub struct FillingMemories {
    shared: Arc<Shared>,
    seats: Box<[Seat]>,
}

/// On a cache line of its own: it is taken for every single row.
#[repr(align(64))]
#[derive(Default)]
struct Seat(Mutex<Seated>);

#[derive(Default)]
struct Seated {
    /// A worker memory, if one was needed here yet, with its slot.
    memory: Option<(usize, WorkerMemory)>,
    /// For a stored row, and for what becomes of it.
    buffers: [Vec<u8>; 2],
}

thread_local! {
    /// The seat that this thread had last, which is most likely free.
    static SEAT: Cell<usize> = const { Cell::new(0) };
}

/// A worker's memory, pinned as long as this lives: also if the user's code panics.
struct PinnedMemory<'m>(&'m WorkerMemory);

impl<'m> PinnedMemory<'m> {
    fn new(memory: &'m WorkerMemory) -> Self {
        memory.pin();
        PinnedMemory(memory)
    }
}

impl Drop for PinnedMemory<'_> {
    fn drop(&mut self) {
        self.0.unpin();
    }
}

impl FillingMemories {
    pub fn new(shared: Arc<Shared>) -> Self {
        let seats = (0..shared.counters.len()).map(|_| Seat::default()).collect();
        FillingMemories { shared, seats }
    }

    /// Runs `work` with one of the memories, pinned.
    pub fn with<R>(&self, work: impl FnOnce(&WorkerMemory) -> R) -> R {
        self.with_buffers(|memory, _| work(memory))
    }

    /// As [`FillingMemories::with`], with two buffers of whatever contents.
    fn with_buffers<R>(&self, work: impl FnOnce(&WorkerMemory, &mut [Vec<u8>; 2]) -> R) -> R {
        let mut seat = self.take_seat();
        let Seated { memory, buffers } = &mut *seat;
        let (_, memory) = memory.get_or_insert_with(|| {
            let slot = self.shared.take_slot().expect("no more threads than workers");
            (slot, WorkerMemory::new(Arc::clone(&self.shared), slot))
        });
        let pinned = PinnedMemory::new(memory);
        let result = work(memory, buffers);
        drop(pinned);
        // What was replaced, or taken out again.
        memory.run_discarded();
        result
    }

    fn take_seat(&self) -> MutexGuard<'_, Seated> {
        let last = SEAT.get();
        loop {
            for number in (last..last + self.seats.len()).map(|number| number % self.seats.len()) {
                match self.seats[number].0.try_lock() {
                    Ok(seat) => {
                        SEAT.set(number);
                        return seat;
                    }
                    Err(TryLockError::Poisoned(seat)) => return seat.into_inner(),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
            yield_now();
        }
    }
}

impl Drop for FillingMemories {
    fn drop(&mut self) {
        for seat in &mut self.seats {
            let seat = seat.0.get_mut().unwrap_or_else(PoisonError::into_inner);
            if let Some((slot, memory)) = seat.memory.take() {
                memory.leave();
                self.shared.give_slot(slot);
            }
        }
    }
}

/// What became of a row to be filled in.
pub enum Filled {
    /// It is there.
    New,
    /// There was one with its key already, which it has replaced.
    Replaced,
}

impl<T: Record> TableInner<T> {
    /// Fills in a row. Nobody else uses the row's key meanwhile.
    pub fn fill(&self, row: T, memory: &WorkerMemory) -> Filled {
        let key = row.key();
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let index = K::pick(&self.primary);
            fill::<K, T>(index, self.reference(), &K::from_key(&key), row, memory)
        })
    }

    /// Takes a row out, if it is there. Nobody else uses the key meanwhile.
    fn take_out(&self, key: &T::Key, memory: &WorkerMemory) -> bool {
        let table = self.reference();
        let found = with_form!(T::Key::WIDTH_BYTES, |K| {
            let key = K::from_key(key);
            let index = K::pick(&self.primary);
            match index.get(&key, &mut LeafHint::new()) {
                Lookup::Found(address) => index.remove(&key, address, memory).then_some(address),
                Lookup::Absent(_) => None,
            }
        });
        let Some(address) = found else { return false };
        memory.retire_record(record_at(address), table);
        true
    }

    /// Replaces a row, if it is there, by what `change` makes of it. Nobody else uses the key
    /// meanwhile; the thread is pinned.
    fn replace<E>(&self, key: &T::Key, change: impl FnOnce(&T) -> Result<T, E>) -> Result<bool, E> {
        let found = with_form!(T::Key::WIDTH_BYTES, |K| {
            let index = K::pick(&self.primary);
            index.get(&K::from_key(key), &mut LeafHint::new())
        });
        let Lookup::Found(address) = found else { return Ok(false) };
        // SAFETY: the table's own index holds it, and nobody else is there; it was filled in with a
        // row.
        let row = unsafe {
            newest(record_at(address)).expect("filled in with a row").cast::<T>().as_mut()
        };
        let replaced = std::mem::replace(row, change(row)?);
        // As everywhere, a drop that panics is no concern of what goes on here.
        contain(|| drop(replaced));
        Ok(true)
    }

    /// Calls `visit` with the rows of a part of the table, and their records' addresses, until it
    /// says that it wants no more. No other thread writes to the table.
    fn for_each_row(
        &self,
        (part, parts): (usize, usize),
        memory: &WorkerMemory,
        mut visit: impl FnMut(u64, &T) -> ControlFlow<()>,
    ) {
        let mut flow = ControlFlow::Continue(());
        let mut visit = |address: u64| {
            // Blocks are at least 16 bytes apart; neighbours go to different parts.
            if (address >> 4) as usize % parts != part || flow.is_break() {
                return;
            }
            // SAFETY: the table's own index holds it, and nobody else is there; it has a row.
            let row = unsafe { newest(record_at(address)).map(|row| row.cast::<T>().as_ref()) };
            if let Some(row) = row {
                flow = visit(address, row);
            }
        };
        with_form!(T::Key::WIDTH_BYTES, |K| {
            K::pick(&self.primary).for_each_address(memory, &mut visit);
        });
    }

    /// Builds a part of a secondary index, from the rows that are there, and calls `check` with each
    /// of them.
    fn build_index(
        &self,
        position: usize,
        part: (usize, usize),
        memory: &WorkerMemory,
        check: Option<&dyn Fn(&T)>,
    ) -> Result<(), DuplicateEntry<T::Key>> {
        let mut outcome = Ok(());
        self.for_each_row(part, memory, |address, row| {
            if let Some(check) = check {
                check(row);
            }
            let is_new = with_secondary!(&self.secondary[position], |index| {
                fill_entry(index, position, row, address, memory)
            });
            if is_new {
                return ControlFlow::Continue(());
            }
            outcome = Err(DuplicateEntry { index: position, key: row.key() });
            ControlFlow::Break(())
        });
        outcome
    }

    /// Builds a part of all secondary indexes, and calls `check` once with each row of the part.
    pub fn build_indexes(
        &self,
        part: (usize, usize),
        memory: &WorkerMemory,
        check: Option<&dyn Fn(&T)>,
    ) -> Result<(), DuplicateEntry<T::Key>> {
        if let (true, Some(check)) = (self.secondary.is_empty(), check) {
            self.for_each_row(part, memory, |_, row| {
                check(row);
                ControlFlow::Continue(())
            });
        }
        // While the first index is built, the rows are visited anyway.
        (0..self.secondary.len()).try_for_each(|index| {
            self.build_index(index, part, memory, check.filter(|_| index == 0))
        })
    }

    /// Whether nothing is in the table, nor is about to leave it.
    pub fn is_empty(&self, memory: &WorkerMemory) -> bool {
        self.count_rows(memory) == 0
    }

    /// Takes everything out. Nobody else uses the table meanwhile.
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

    /// How many rows there are, if nobody else is there.
    pub fn count_rows(&self, memory: &WorkerMemory) -> u64 {
        let mut rows = 0;
        with_form!(T::Key::WIDTH_BYTES, |K| {
            K::pick(&self.primary).for_each_address(memory, |_| rows += 1);
        });
        rows
    }
}

/// Two rows have the same key in a unique index.
pub struct DuplicateEntry<K> {
    /// The index's position.
    pub index: usize,
    /// The primary key of one of them.
    pub key: K,
}

/// Takes everything out of an index that was filled; `key_of` says where a row is.
fn clear<K: KeyForm, R>(
    index: &FormIndex<K>,
    table: TableRef,
    memory: &WorkerMemory,
    key_of: impl Fn(&R) -> K,
) {
    let mut addresses = Vec::new();
    index.for_each_address(memory, |address| addresses.push(address));
    for address in addresses {
        let record = record_at(address);
        // SAFETY: the index leads to the record, which has a row of the table's type, and nobody
        // else is there.
        let row = unsafe { newest(record) };
        let row = row.expect("filled in with a row");
        let mut key = None;
        // SAFETY: as above.
        contain(|| key = Some(key_of(unsafe { row.cast::<R>().as_ref() })));
        // If the row's type panics, or says another key than before, the row stays.
        if key.is_some_and(|key| index.remove(&key, address, memory)) {
            memory.retire_record(record, table);
        }
    }
}

fn clear_entries<K: KeyForm>(index: &Secondary<K>, memory: &WorkerMemory) {
    clear(&index.index, index.reference(), memory, |entry: &Entry<K>| entry.key.clone());
}

/// Fills in the entry of a row in a secondary index; false if there was one with its key.
fn fill_entry<K: KeyForm, T: Record>(
    index: &Secondary<K>,
    position: usize,
    row: &T,
    address: u64,
    memory: &WorkerMemory,
) -> bool {
    let key: K = index_key(row, position);
    let entry = Entry { record: address, key: key.clone() };
    let filled = fill::<K, Entry<K>>(&index.index, index.reference(), &key, entry, memory);
    matches!(filled, Filled::New)
}

/// Puts a row under a key of an index.
fn fill<K: KeyForm, R>(
    index: &FormIndex<K>,
    table: TableRef,
    key: &K,
    row: R,
    memory: &WorkerMemory,
) -> Filled {
    let core = table.core();
    let block = memory.allocate_block(core.record_class);
    // SAFETY: a new block of the table's record class, and rows of the table's type; nobody else
    // has the record's address before it is in the index, nor uses the key.
    unsafe {
        core.records.initialise(block);
        let place = match core.holds_rows_inline() {
            true => VersionHeader::initialise(block.add(core.records.layout.size())),
            false => memory.allocate_row(table),
        };
        place.cast::<R>().write(row);
        VersionHeader::of(place).set_number(0);
        core.records.mark_loaded(block);
        newest_word(block).store(Newest::of(place), Ordering::Release);
        let mut hint = LeafHint::new();
        let address = block.as_ptr().expose_provenance() as u64;
        let existing = match index.get_or_insert(key, address, &mut hint, memory) {
            Insertion::Inserted { .. } => return Filled::New,
            Insertion::Found(address) => record_at(address),
        };
        // The record that is there takes the row over, in a block of its own.
        let moved = memory.allocate_row(table);
        std::ptr::copy_nonoverlapping(place.cast::<R>().as_ptr(), moved.cast().as_ptr(), 1);
        VersionHeader::of(moved).set_number(0);
        if !core.holds_rows_inline() {
            memory.free_block(VersionHeader::block(place), core.row_class);
        }
        memory.free_block(block, core.record_class);
        let newest = newest_word(existing);
        let replaced = newest.load(Ordering::Acquire).row().expect("filled in with a row");
        newest.store(Newest::of(moved), Ordering::Release);
        memory.drop_row(replaced, table, table.is_inline(existing, replaced));
        Filled::Replaced
    }
}

/// A table that recovery fills.
pub struct RecoveringTable<T: Record> {
    table: Arc<TableInner<T>>,
    description: TableDescription,
    memories: Arc<FillingMemories>,
    violation: Mutex<Option<StoredViolation>>,
}

/// A stored row that breaks a constraint.
struct StoredViolation {
    /// Its primary key, encoded, and in words.
    encoded_key: Vec<u8>,
    key: String,
    violation: Violation,
}

impl<T: Record> RecoveringTable<T> {
    /// `None` if the table is volatile.
    pub fn new(table: Arc<TableInner<T>>, memories: Arc<FillingMemories>) -> Option<Self> {
        let description = TableDescription::of::<T>()?;
        Some(RecoveringTable { table, description, memories, violation: Mutex::new(None) })
    }

    /// Checks a row, and keeps what is wrong with it if no row with a smaller key is known that
    /// breaks a constraint.
    fn check(&self, row: &T) {
        let Err(violation) = row.check() else { return };
        let key = row.key();
        let encoded_key =
            with_form!(T::Key::WIDTH_BYTES, |K| K::from_key(&key).to_bytes().as_ref().to_vec());
        let mut first = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|first| encoded_key < first.encoded_key) {
            let key = format!("{key:?}");
            *first = Some(StoredViolation { encoded_key, key, violation });
        }
    }
}

impl<T: Record> StoredTable for RecoveringTable<T> {
    fn description(&self) -> &TableDescription {
        &self.description
    }

    fn put(&self, row: &[u8]) -> Result<(), DecodeError> {
        let row = decode(row, T::decode_row)?;
        self.memories.with(|memory| self.table.fill(row, memory));
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<(), DecodeError> {
        let key = decode(key, T::decode_key)?;
        self.memories.with(|memory| self.table.take_out(&key, memory));
        Ok(())
    }

    fn change(&self, key: &[u8], change: &RowChange<'_>) -> Result<bool, DecodeError> {
        let key = decode(key, T::decode_key)?;
        self.memories.with_buffers(|_pinned, buffers| {
            buffers.iter_mut().for_each(Vec::clear);
            let [stored, changed] = buffers;
            self.table.replace(&key, |row| {
                row.encode_row(stored);
                change.apply(&self.description, stored, changed)?;
                decode(changed, T::decode_row)
            })
        })
    }

    fn build_indexes(&self, part: usize, parts: usize) -> Result<(), StorageError> {
        let check: &dyn Fn(&T) = &|row| self.check(row);
        let check = const { T::IS_CHECKED }.then_some(check);
        let built =
            self.memories.with(|memory| self.table.build_indexes((part, parts), memory, check));
        built.map_err(|DuplicateEntry { index, key }| StorageError::SchemaMismatch {
            message: format!(
                "table `{}`: two rows have the same key in the unique index `{}`, one of them the \
                 row with the primary key {key:?}",
                T::TABLE,
                T::INDEXES[index].name,
            ),
        })
    }

    fn checked(&self) -> Result<(), StorageError> {
        let mut found = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
        match found.take() {
            None => Ok(()),
            Some(StoredViolation { key, violation, .. }) => {
                Err(StorageError::Constraint { table: T::TABLE.to_owned(), key, violation })
            }
        }
    }

    fn rows(&self) -> u64 {
        self.memories.with(|memory| self.table.count_rows(memory))
    }
}

/// Decodes all of `input`.
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
