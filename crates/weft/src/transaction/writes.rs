//! Inserting and replacing rows: their place in the primary index, and their entries in the secondary indexes.

use std::ptr::NonNull;

use smallvec::SmallVec;
use weft_htm::Region;
use weft_htm::word::spin_loop;

use super::expiry::disappears;
use super::private_row::PrivateRow;
use super::recording::{Event, stamp};
use super::{RecordOf, Steps, Transaction};
use crate::commit::{Abort, CachedInsertion, Executor, Protocol, Visible};
use crate::error::{Error, Failure};
use crate::index::{Insertion, Lookup};
use crate::row::column::UsedColumns;
use crate::row::encoding::{Key, KeyForm};
use crate::row::schema::Record;
use crate::store::record::version::VersionHeader;
use crate::store::record::{RecordHeader, RecordPointer, StoredRecord};
use crate::store::table::{
    FormIndex, IndexEntry, PickForm, Secondary, TableInner, TableRef, index_key, with_form,
    with_secondary,
};
use crate::store::worker::{Growth, StoredForm};

/// What happened to a row that was to be inserted.
pub(super) enum PlaceOutcome<P: Protocol, R> {
    At(RecordOf<P>),
    /// There is a visible row under the key, the second field. The first is the new row, given back.
    Duplicate(R, NonNull<u8>),
}

impl<P: Protocol> Transaction<'_, P> {
    /// Inserts a row and its index entries. Gives the row back if there is one with the same primary key.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn insert_row<T: Record>(
        &self,
        table: &TableInner<T>,
        row: T,
    ) -> Result<Option<T>, Error> {
        let reference = table.reference();
        let key = row.key();
        if let Some(number) = T::KEY_NUMBER {
            self.pass_number(&table.numbers, table.number(), number(&key));
        }
        let placed = with_form!(T::Key::WIDTH_BYTES, |K| {
            let key = K::from_key(&key);
            self.place(K::pick(&table.primary), reference, table.number(), &key, row)?
        });
        let record = match placed {
            PlaceOutcome::At(record) => record,
            PlaceOutcome::Duplicate(row, existing) => {
                self.record(reference, &key, Event::Read(Some(existing)));
                // Dropped before the row is returned: if this drop panics, the row is dropped, too.
                drop(key);
                return Ok(Some(row));
            }
        };
        self.record(reference, &key, Event::Read(None));
        self.record(reference, &key, Event::Write);
        if const { !T::INDEXES.is_empty() } {
            self.insert_entries(table, record)?;
        }
        Ok(None)
    }

    /// Puts a row under a key of an index: into a new record, or into an existing record without a visible row.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn place<K: StoredForm, R>(
        &self,
        index: &FormIndex<K>,
        table: TableRef,
        number: usize,
        key: &K,
        row: R,
    ) -> Result<PlaceOutcome<P, R>, Error> {
        let (record, row) = self.stage_row(table, row)?;
        self.worker.executor().prepare_insert(record);
        // SAFETY: the row is complete, and no other code has its address.
        unsafe { stamp(self.worker, table, row) };
        loop {
            let executor = self.worker.executor();
            let search = || index.get(key, self.worker.buffer(number).hint::<K>());
            let (address, memory) = (record.address(), &self.worker.memory);
            let cached = executor.cache_insertion(table, || key.erase(), address, memory, search);
            let inserted = match cached {
                Ok(CachedInsertion::ToIndex { .. }) => {
                    let hint = self.worker.buffer(number).hint::<K>();
                    index.get_or_insert(key, address, hint, &memory.index(number))
                }
                Ok(CachedInsertion::Found(address)) => Insertion::Found(address),
                Ok(CachedInsertion::Cached) => {
                    executor.insert(table, record, row, key.erase());
                    return Ok(PlaceOutcome::At(record));
                }
                Err(abort) => {
                    // SAFETY: as for `occupy`, below.
                    unsafe { self.discard_staged(table, record, row) };
                    return Err(self.doom_by(abort));
                }
            };
            match inserted {
                Insertion::Inserted { change, sibling } => {
                    // The key was absent. The new record is a placeholder, which the commit makes visible.
                    let executor = self.worker.executor();
                    executor.insert(table, record, row, key.erase());
                    executor
                        .note_own_insertion(table, change, sibling)
                        .map_err(|abort| self.doom_by(abort))?;
                    return Ok(PlaceOutcome::At(record));
                }
                Insertion::Found(address) => {
                    // SAFETY: the row was staged above for this table, and is taken back by this call only. The
                    // address is the index's own.
                    if let Some(outcome) = unsafe { self.occupy::<R>(table, address, record, row)? }
                    {
                        return Ok(outcome);
                    }
                }
            }
        }
    }

    /// Writes a row into a new record, which is in no index yet.
    ///
    /// # Errors
    /// [`Failure::MemoryFull`].
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn stage_row<R>(
        &self,
        table: TableRef,
        row: R,
    ) -> Result<(RecordOf<P>, NonNull<u8>), Error> {
        let memory = &self.worker.memory;
        let core = table.core();
        // SAFETY: this is a row of the table. (The user's code, which this runs, finds no operation half done.)
        let heap_bytes = unsafe { core.heap_bytes_of(&row) };
        memory.make_room::<Error>(core, Growth::Insert, heap_bytes)?;
        let block = memory.allocate_record(table);
        // SAFETY: a new block of the table's record class.
        let record = unsafe { StoredRecord::<P::Header>::initialise(block) };
        // SAFETY: as above.
        unsafe { record.get() }.header.begin_after(memory.versions_begin());
        // The row is written before the record can be found, and becomes visible at the commit.
        let place = if core.holds_rows_inline() {
            // SAFETY: new, and the block has room for the inline version.
            unsafe { record.initialise_inline() }
        } else {
            memory.allocate_row(table)
        };
        // SAFETY: a new place for a row of the table.
        unsafe {
            place.cast::<R>().write(row);
            memory.count_heap_of::<R>(table, place.cast(), heap_bytes);
        }
        Ok((record, place))
    }

    /// Takes a row out of a record that was staged for it, and frees the record.
    ///
    /// # Safety
    /// [`Transaction::stage_row`] has returned both, for a row of this type and this table. The record is in no
    /// index, and the caller forgets both.
    pub(super) unsafe fn take_back<R>(
        &self,
        table: TableRef,
        record: RecordOf<P>,
        row: NonNull<u8>,
    ) -> R {
        let (memory, core) = (&self.worker.memory, table.core());
        // SAFETY: by the contract. The blocks are freed without dropping the row, which is moved out.
        unsafe {
            let taken = row.cast::<R>().read();
            memory.count_heap_of::<R>(table, row.cast(), 0);
            if !core.holds_rows_inline() {
                memory.free_block(VersionHeader::block(row), core.row_class);
            }
            memory.free_record_block(record.block(), table);
            taken
        }
    }

    /// Drops a staged row, and frees its record. What the row owns is dropped when the transaction has ended.
    ///
    /// # Safety
    /// As [`Transaction::take_back`].
    pub(super) unsafe fn discard_staged(
        &self,
        table: TableRef,
        record: RecordOf<P>,
        row: NonNull<u8>,
    ) {
        let (memory, core) = (&self.worker.memory, table.core());
        // SAFETY: by the contract.
        unsafe {
            memory.drop_row(row, table, core.holds_rows_inline());
            memory.free_record_block(record.block(), table);
        }
    }

    /// Puts a staged row under a key that has a record already, at `address`. Returns `None`, with the row still
    /// staged, if that record has left the index.
    ///
    /// # Safety
    /// As [`Transaction::take_back`], unless this returns `None`. The table's own index has returned the address
    /// in this transaction.
    pub(super) unsafe fn occupy<R>(
        &self,
        table: TableRef,
        address: u64,
        staged: RecordOf<P>,
        row: NonNull<u8>,
    ) -> Result<Option<PlaceOutcome<P, R>>, Error> {
        let memory = &self.worker.memory;
        // SAFETY: the table's own index holds addresses of its records.
        let existing = unsafe { RecordPointer::from_address(address) };
        // The new record is not needed.
        // SAFETY: passed on to the caller.
        let take_back = || unsafe { self.take_back::<R>(table, staged, row) };
        let observed = match self.read_for_write(table, existing) {
            Ok(observed) => observed,
            Err(conflict) => {
                drop(take_back());
                return Err(conflict);
            }
        };
        match observed.visible {
            Visible::Removed => {
                spin_loop();
                Ok(None)
            }
            // The record is a placeholder, or its row was deleted: it gets the row, in a block of its own.
            Visible::Absent => {
                // SAFETY: the place of the staged row.
                let heap_bytes = unsafe { memory.counted_heap(table, row) };
                let new = PrivateRow::new(self.worker, table, take_back());
                new.count_heap(heap_bytes);
                let row = new.into_raw();
                self.worker.executor().write(table, existing, observed.version, row);
                Ok(Some(PlaceOutcome::At(existing)))
            }
            Visible::Row(present) => {
                let row = take_back();
                // Seeing the existing row is a read like any other, and must be validated.
                self.worker.executor().note_read(table, existing, observed.version);
                Ok(Some(PlaceOutcome::Duplicate(row, present)))
            }
        }
    }

    /// Inserts the index entries of a row that was just placed. If one of them is a duplicate, removes the row and
    /// the entries again.
    fn insert_entries<T: Record>(
        &self,
        table: &TableInner<T>,
        record: RecordOf<P>,
    ) -> Result<(), Error> {
        let _steps = Steps::begin(self);
        let Visible::Row(row) = self.read(table.reference(), record)? else {
            unreachable!("the row was just written by this transaction")
        };
        // SAFETY: this transaction's own row; see `row`.
        let row = unsafe { self.row::<T>(row) };
        for position in 0..table.secondary.len() {
            if let Err(error) = self.insert_entry(table, position, row, record) {
                let key = with_form!(T::Key::WIDTH_BYTES, |K| K::from_key(&row.key()).erase());
                let own = self.read_for_write(table.reference(), record)?;
                for earlier in 0..position {
                    self.remove_entry_of(table, earlier, row, record, own.version)?;
                }
                self.worker.executor().remove(table.reference(), record, own.version, key);
                self.record(table.reference(), &row.key(), Event::Delete);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Inserts a row's entry into one of the table's secondary indexes.
    fn insert_entry<T: Record>(
        &self,
        table: &TableInner<T>,
        position: usize,
        row: &T,
        record: RecordOf<P>,
    ) -> Result<(), Error> {
        with_secondary!(&table.secondary[position], |index| {
            let key = index_key(row, position);
            loop {
                let Some(other) = self.place_entry(index, &key, record)? else { return Ok(()) };
                // If the other row has expired, this one takes its place.
                if !const { disappears::<T>() } || self.delete_record(table, other)? != Some(true) {
                    let (index, key) = (index.name(), row.index_key_text(position));
                    return Err(Failure::DuplicateKey { table: table.name(), index, key }.into());
                }
            }
        })
    }

    /// Inserts an entry that leads to a record into an index. If there is such an entry, returns the record to which it
    /// leads. (This and [`Transaction::remove_entry`] are compiled for each form of keys, and not for each type of rows.)
    fn place_entry<K: StoredForm>(
        &self,
        index: &Secondary<K>,
        key: &K,
        record: RecordOf<P>,
    ) -> Result<Option<RecordOf<P>>, Error> {
        let entry = IndexEntry { record: record.address(), key: key.clone() };
        match self.place(&index.index, index.reference(), index.number(), key, entry)? {
            PlaceOutcome::At(_) => {
                self.record_entry(index.reference(), key, Event::Read(None));
                self.record_entry(index.reference(), key, Event::Write);
                Ok(None)
            }
            PlaceOutcome::Duplicate(_, existing) => {
                self.record_entry(index.reference(), key, Event::Read(Some(existing)));
                // SAFETY: a visible row of the index; see `row`.
                let leads_to = unsafe { self.row::<IndexEntry<K>>(existing) }.record;
                // SAFETY: an entry leads to a record of the table.
                Ok(Some(unsafe { RecordPointer::from_address(leads_to) }))
            }
        }
    }

    /// Removes the entry that a visible row of a record has in one of the table's secondary indexes.
    pub(super) fn remove_entry_of<T: Record>(
        &self,
        table: &TableInner<T>,
        position: usize,
        row: &T,
        record: RecordOf<P>,
        version: <P::Executor as Executor>::Version,
    ) -> Result<(), Error> {
        with_secondary!(&table.secondary[position], |index| {
            if !self.remove_entry(index, &index_key(row, position), record)? {
                // A visible row has its entry. So either the row is no longer current, or its type returns another
                // key than before.
                self.worker.executor().note_read(table.reference(), record, version);
                return Err(self.miss(index.reference()));
            }
        });
        Ok(())
    }

    /// Removes the index entry of a visible row of a record. Returns false if there is no such entry. The entry
    /// must lead to this record. Each record that has a row has one entry in each index, whatever keys the user's
    /// types return. So when a record is freed, no entry leads to it.
    fn remove_entry<K: StoredForm>(
        &self,
        index: &Secondary<K>,
        key: &K,
        record: RecordOf<P>,
    ) -> Result<bool, Error> {
        let search = |region: Option<&Region>| {
            index.index.look_up(region, key, self.worker.buffer(index.number()).hint::<K>())
        };
        let (executor, memory) = (self.worker.executor(), &self.worker.memory);
        let found = executor.look_up(index.reference(), || key.erase(), memory, search);
        let found = found.map_err(|abort| self.doom_by(abort))?;
        let Lookup::Found(address) = found else { return Ok(false) };
        // SAFETY: the index's own address.
        let entry = unsafe { RecordPointer::from_address(address) };
        let observed = self.read_for_write(index.reference(), entry)?;
        let Visible::Row(present) = observed.visible else { return Ok(false) };
        // SAFETY: a visible row of the index; see `row`.
        if unsafe { self.row::<IndexEntry<K>>(present) }.record != record.address() {
            return Ok(false);
        }
        let (reference, erased) = (index.reference(), key.erase());
        self.worker.executor().remove(reference, entry, observed.version, erased);
        self.record_entry(index.reference(), key, Event::Read(Some(present)));
        self.record_entry(index.reference(), key, Event::Delete);
        Ok(true)
    }

    /// Replaces an observed row by a new one, and moves its index entries. (If the new row were passed by value, each
    /// update would copy it on the stack, with loads that wait for the stores just before.) `columns` are those that
    /// were used, if not the whole row was.
    ///
    /// # Safety
    /// If this succeeds, the new row belongs to the executor, and the caller [forgets](std::mem::forget) it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) unsafe fn replace<T: Record>(
        &self,
        table: &TableInner<T>,
        record: RecordOf<P>,
        version: <P::Executor as Executor>::Version,
        old: &T,
        new: &PrivateRow<'_, P, T>,
        columns: Option<UsedColumns>,
    ) -> Result<(), Error> {
        let key = || format!("{:?}", old.key());
        if !new.get().key_equals(&old.key()) {
            let changed = format!("{:?}", new.get().key());
            return Err(Failure::KeyChanged { table: table.name(), key: key(), changed }.into());
        }
        table.check(new.get())?;
        self.count_changed(table.reference(), NonNull::from(old).cast(), new)?;
        // If the update's closure has written this row, replacing the row would lose that write.
        if !self.worker.executor().is_current(record, version) {
            return Err(Failure::NestedWrite { table: table.name(), key: key() }.into());
        }
        if const { !T::INDEXES.is_empty() } {
            self.move_entries(table, record, version, old, new.get())?;
        }
        let row = new.stamped();
        self.worker.buffer(table.number()).last = Some((record.address(), row));
        let (executor, table) = (self.worker.executor(), table.reference());
        match columns {
            None => executor.write(table, record, version, row),
            Some(columns) => executor.write_columns(table, record, version, row, columns),
        }
        Ok(())
    }

    /// Counts what a changed copy of a row owns elsewhere.
    ///
    /// # Errors
    /// [`Failure::MemoryFull`] if that is more than the row owned before, and there is no room.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn count_changed<T: Record>(
        &self,
        table: TableRef,
        old: NonNull<u8>,
        new: &PrivateRow<'_, P, T>,
    ) -> Result<(), Error> {
        if !std::mem::needs_drop::<T>() {
            return Ok(());
        }
        let (core, memory) = (table.core(), &self.worker.memory);
        // SAFETY: both are rows of the table, and the new one is this transaction's own.
        let (before, now) =
            unsafe { (memory.counted_heap(table, old), core.heap_bytes(new.row())) };
        if now > before {
            memory.make_room::<Error>(core, Growth::Insert, now)?;
        }
        new.count_heap(now);
        Ok(())
    }

    /// Replaces the row of a record by a changed copy of it. No other transaction can change the record at this
    /// time. The columns that were changed are in no secondary index.
    ///
    /// # Safety
    /// `new` is a row of the table, in a block of its own, and belongs to the caller, who gives it away by this
    /// call.
    #[doc(hidden)]
    pub unsafe fn replace_untyped(
        &self,
        table: TableRef,
        record: RecordOf<P>,
        new: NonNull<u8>,
    ) -> Result<(), Abort> {
        let (memory, executor) = (&self.worker.memory, self.worker.executor());
        let observed = executor.read_for_write(table, record, memory).inspect_err(|_| {
            // SAFETY: by this function's contract.
            unsafe { memory.drop_row(new, table, false) };
        })?;
        let Visible::Row(old) = observed.visible else {
            unreachable!("a record that no other transaction can change has lost its row")
        };
        // SAFETY: the row is complete, and no other code has its address.
        unsafe { stamp(self.worker, table, new) };
        self.record_untyped(table, old, Event::Read(Some(old)));
        executor.write(table, record, observed.version, new);
        self.record_untyped(table, old, Event::Write);
        Ok(())
    }

    /// Moves the index entries of a row whose indexed columns change. New entries are inserted before old ones are
    /// removed, so that a duplicate leaves everything as it was.
    fn move_entries<T: Record>(
        &self,
        table: &TableInner<T>,
        record: RecordOf<P>,
        version: <P::Executor as Executor>::Version,
        old: &T,
        new: &T,
    ) -> Result<(), Error> {
        let _steps = Steps::begin(self);
        // The row's type is asked only once, so that an index loses its old entry exactly if its new entry was
        // inserted.
        let moved: SmallVec<[usize; 8]> = (0..table.secondary.len())
            .filter(|&position| old.index_key_differs(new, position))
            .collect();
        for (count, &position) in moved.iter().enumerate() {
            if let Err(error) = self.insert_entry(table, position, new, record) {
                for &earlier in &moved[..count] {
                    self.remove_entry_of(table, earlier, new, record, version)?;
                }
                return Err(error);
            }
        }
        for position in moved {
            self.remove_entry_of(table, position, old, record, version)?;
        }
        Ok(())
    }
}

#[cold]
pub(super) fn duplicate<T: Record>(table: &TableInner<T>, key: &T::Key) -> Error {
    Failure::DuplicateKey { table: table.name(), index: None, key: format!("{key:?}") }.into()
}
