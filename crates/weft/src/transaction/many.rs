//! Operations on the rows of many keys: inserting, reading and updating them in batches, and deleting a range.
//!
//! Each does the same as a loop over the operation on one row, and less work. Rows are inserted in *runs*: the
//! index takes neighbouring keys under one lock, and searches once for them. Rows that are read or updated are
//! fetched first: all keys of a batch are looked up, then all records are requested, then all rows, so that the
//! waits for memory overlap (see [`super::prefetch`]).

use std::iter::Fuse;
use std::ops::RangeBounds;
use std::ptr::NonNull;

use arrayvec::ArrayVec;
use weft_htm::prefetch::BATCH_KEYS;

use super::lookup::LookupResult;
use super::prefetch::{PREFETCH_READ_BYTES, PREFETCH_UPDATE_BYTES};
use super::recording::{Event, stamp};
use super::writes::{PlaceOutcome, duplicate};
use super::{RecordOf, Transaction};
use crate::commit::{CachedInsertion, Executor, Protocol};
use crate::error::Error;
use crate::index::RunInsertion;
use crate::row::column::ColumnSet;
use crate::row::encoding::{Key, KeyLookup, KeyPart, WholeKey};
use crate::row::operation::Columns;
use crate::row::schema::{OrderedRecord, Record};
use crate::store::record::RecordPointer;
use crate::store::table::{FormIndex, PickForm, Table, TableInner, TableRef, with_form};
#[cfg(feature = "canary")]
use crate::store::worker::OperationFlaw;
use crate::store::worker::StoredForm;

/// How many rows are inserted together at most.
const RUN_ROWS: usize = 16;

impl<'db, P: Protocol> Transaction<'db, P> {
    /// Inserts rows. This does the same as [`Transaction::insert`] for each row, in their order, and is faster if
    /// the rows are in the order of their keys. Then the index is searched once for several rows.
    ///
    /// Up to sixteen rows are taken from the iterator before they are inserted. So an iterator that reads the table
    /// through this transaction may not find the rows that it has returned last. If it panics, these rows are not
    /// inserted.
    ///
    /// # Errors
    /// As [`Transaction::insert`]. The error names the row that was refused. The rows before it are inserted, and
    /// the rows after it are not. If the transaction is rolled back, nothing is inserted.
    ///
    /// ```
    /// # use weft::{Database, Record};
    /// # #[derive(Clone, Record)]
    /// # #[record(table = "lines")]
    /// # struct Line { #[record(key)] order: u32, #[record(key)] number: u8, item: u32 }
    /// # let database = Database::builder().table::<Line>().open()?;
    /// # let lines = database.table::<Line>()?;
    /// database.transact(|tx| {
    ///     let items = [701, 12, 388];
    ///     let rows = (1..).zip(items).map(|(number, item)| Line { order: 7, number, item });
    ///     tx.insert_many(&lines, rows)
    /// })?;
    /// # Ok::<(), weft::Error>(())
    /// ```
    pub fn insert_many<T: Record>(
        &self,
        table: &Table<T>,
        rows: impl IntoIterator<Item = T>,
    ) -> Result<(), Error> {
        let mut rows = rows.into_iter();
        // Each row has entries in the secondary indexes. If one of these is refused, so is the row, and no row after
        // it may be inserted. A protocol for single operations refuses the second row.
        if P::SINGLE_KEY || !table.inner.secondary.is_empty() {
            return rows.try_for_each(|row| self.insert(table, row));
        }
        with_form!(T::Key::WIDTH_BYTES, |K| {
            loop {
                let inner = self.enter_writing(table)?;
                let mut run = StagedRun::<P, K, T>::new(self, inner);
                let taken = run.take_rows(&mut rows);
                run.insert(K::pick(&inner.primary))?;
                if !taken? {
                    return Ok(());
                }
            }
        })
    }

    /// Returns the rows with these primary keys, in the order in which the keys are given; `None` for absent rows.
    ///
    /// This gives the same rows as [`Transaction::get`] for each key, but faster if the table is larger than the
    /// cache: the rows of sixteen keys are fetched from memory at the same time. Each row is read when it is
    /// returned, and shows what the transaction has written until then.
    ///
    /// # Errors
    /// [`Failure::ForeignTable`](crate::Failure::ForeignTable), at once. The items are those of
    /// [`Transaction::get`].
    ///
    /// ```
    /// # use weft::{Database, Record};
    /// # #[derive(Clone, Record)]
    /// # #[record(table = "accounts")]
    /// # struct Account { #[record(key)] id: u32, balance: i64 }
    /// # let database = Database::builder().table::<Account>().open()?;
    /// # let accounts = database.table::<Account>()?;
    /// # database.transact(|tx| tx.insert(&accounts, Account { id: 2, balance: 100 }))?;
    /// let total = database.transact(|tx| {
    ///     let mut total = 0;
    ///     for account in tx.get_many(&accounts, [1, 2, 3])? {
    ///         total += account?.map_or(0, |account| account.balance);
    ///     }
    ///     Ok::<i64, weft::Error>(total)
    /// })?;
    /// assert_eq!(total, 100);
    /// # Ok::<(), weft::Error>(())
    /// ```
    pub fn get_many<'tx, T: Record, I: IntoIterator<Item: KeyPart<T::Key>>>(
        &'tx self,
        table: &'tx Table<T>,
        keys: I,
    ) -> Result<TransactionRows<'tx, 'db, T, P, I::IntoIter>, Error> {
        self.enter(table)?;
        Ok(TransactionRows {
            transaction: self,
            table,
            keys: keys.into_iter().fuse(),
            batch: ArrayVec::new(),
            records: ArrayVec::new(),
            position: 0,
        })
    }

    /// Updates the rows with these primary keys, in their order, and returns how many there were. `change` gets the
    /// position of the row's key among the keys, and a copy of the row, as in [`Transaction::update`]. Keys without
    /// a row are skipped.
    ///
    /// This does the same as [`Transaction::update`] for each key, but faster if the table is larger than the cache:
    /// the rows of sixteen keys are fetched from memory at the same time.
    ///
    /// # Errors
    /// As [`Transaction::update`]. The error names the row that was refused. The rows before it are updated, and
    /// the rows after it are not. If the transaction is rolled back, no row is updated.
    pub fn update_many<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl IntoIterator<Item: KeyPart<T::Key>>,
        mut change: impl FnMut(usize, &mut T),
    ) -> Result<usize, Error> {
        self.enter(table)?;
        let mut keys = keys.into_iter().fuse();
        let (mut position, mut updated) = (0, 0);
        loop {
            let batch: ArrayVec<_, BATCH_KEYS> = keys.by_ref().take(BATCH_KEYS).collect();
            if batch.is_empty() {
                return Ok(updated);
            }
            let records = self.fetch_located(&table.inner, &batch, PREFETCH_UPDATE_BYTES);
            for (key, record) in batch.iter().zip(records) {
                let inner = self.enter_writing(table)?;
                let key = WholeKey(key);
                #[cfg(feature = "canary")]
                if record.is_none() && self.has_flaw(OperationFlaw::AbsentKeysSkipped) {
                    position += 1;
                    continue;
                }
                let located = self.located(inner, &key, record);
                let change = |row: &mut T| change(position, row);
                updated +=
                    usize::from(self.update_located(inner, &key, located, None, change)?.is_some());
                position += 1;
            }
        }
    }

    /// Deletes the rows whose primary keys lie in `range`, and returns how many there were. (This is a scan that
    /// deletes each row that it finds. No row is looked up.)
    ///
    /// # Errors
    /// As [`Transaction::range`] and [`Transaction::delete`].
    pub fn delete_range<T: OrderedRecord>(
        &self,
        table: &Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> Result<usize, Error> {
        let mut deleted = 0;
        let rows = self.range(table, range);
        #[cfg(feature = "canary")]
        let rows = {
            let is_kept = self.has_flaw(OperationFlaw::LastRowKept);
            let mut rows = rows.peekable();
            std::iter::from_fn(move || rows.next().filter(|_| !is_kept || rows.peek().is_some()))
        };
        for row in rows {
            // The row is the last one that was read in the table, so its record is known.
            deleted += usize::from(self.delete(table, &row?.key())?);
        }
        Ok(deleted)
    }

    /// Finds the records of a few keys and fetches their rows, or finds none if the transaction is repaired: then
    /// its rows were fetched in an earlier round, and look-ups know their records.
    #[inline(always)]
    fn fetch_located<T: Record>(
        &self,
        table: &TableInner<T>,
        keys: &[impl KeyPart<T::Key>],
        bytes_max: usize,
    ) -> ArrayVec<Option<RecordOf<P>>, BATCH_KEYS> {
        if P::REPAIRS && self.worker.round() > 0 {
            return keys.iter().map(|_| None).collect();
        }
        self.fetch_batch(table, keys, size_of::<T>().min(bytes_max))
    }

    /// Returns the record that was found under a key. If none was found, looks the key up: it may have been inserted
    /// since, and if it was not, the look-up returns the node that shows this.
    #[inline(always)]
    fn located<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &impl KeyLookup<T::Key>,
        found: Option<RecordOf<P>>,
    ) -> LookupResult<P> {
        match found {
            Some(record) => LookupResult::Record(record),
            None => self.locate(table, key),
        }
    }
}

/// An iterator over the rows with some primary keys, in the order in which the keys were given.
/// [`Transaction::get_many`] returns it.
#[must_use = "the rows are read as they are asked for"]
pub struct TransactionRows<'tx, 'db, T: Record, P: Protocol, I: Iterator<Item: KeyPart<T::Key>>> {
    transaction: &'tx Transaction<'db, P>,
    table: &'tx Table<T>,
    keys: Fuse<I>,
    /// The keys whose rows have been fetched. Below, the records that were found under them. Those from `position`
    /// on are still to be read.
    batch: ArrayVec<I::Item, BATCH_KEYS>,
    records: ArrayVec<Option<RecordOf<P>>, BATCH_KEYS>,
    position: usize,
}

impl<'tx, T: Record, P: Protocol, I: Iterator<Item: KeyPart<T::Key>>> Iterator
    for TransactionRows<'tx, '_, T, P, I>
{
    type Item = Result<Option<&'tx T>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.advance(None)
    }
}

impl<'tx, 'db, T: Record, P: Protocol, I: Iterator<Item: KeyPart<T::Key>>>
    TransactionRows<'tx, 'db, T, P, I>
{
    /// Returns these columns of the rows in place of the rows. The transaction depends only on them, and not on the
    /// whole rows, as with [`Transaction::get_columns`].
    ///
    /// ```
    /// # use weft::{Database, Error, Record, column_of};
    /// # #[derive(Clone, Copy, Record)]
    /// # struct Item { #[record(key)] id: u32, stock: u64, views: u64 }
    /// # let database = Database::builder().table::<Item>().open()?;
    /// # let items = database.table::<Item>()?;
    /// # let rows = [(1, 10), (2, 0)].map(|(id, stock)| Item { id, stock, views: 0 });
    /// # database.transact(|tx| tx.insert_many(&items, rows))?;
    /// let stocks = database.transact(|tx| {
    ///     let stocks = tx.get_many(&items, [2, 1, 3])?.columns(column_of!(Item.stock));
    ///     stocks.map(|stock| Ok(stock?.copied())).collect::<Result<Vec<_>, Error>>()
    /// })?;
    /// assert_eq!(stocks, [Some(0), Some(10), None]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn columns<C: Columns<T>>(self, columns: C) -> TransactionColumns<'tx, 'db, T, C, P, I> {
        TransactionColumns { rows: self, columns }
    }

    /// Reads the row with the next key. The transaction uses these columns of it, or the whole row.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn advance(&mut self, used: Option<ColumnSet>) -> Option<Result<Option<&'tx T>, Error>> {
        if self.position == self.batch.len() {
            // Nothing of the last batch is left if the code of a key panics.
            self.position = 0;
            self.batch.clear();
            let batch: ArrayVec<_, BATCH_KEYS> = self.keys.by_ref().take(BATCH_KEYS).collect();
            let inner = &self.table.inner;
            self.records = self.transaction.fetch_located(inner, &batch, PREFETCH_READ_BYTES);
            self.batch = batch;
        }
        let key = WholeKey(self.batch.get(self.position)?);
        let record = self.records[self.position];
        self.position += 1;
        let transaction = self.transaction;
        Some(transaction.enter_operation(self.table).and_then(|inner| {
            let located = transaction.located(inner, &key, record);
            transaction.get_located(inner, &key, located, |record| {
                transaction.read_using(inner.reference(), record, used)
            })
        }))
    }
}

/// An iterator over columns of the rows with some primary keys, in the order in which the keys were given.
/// [`TransactionRows::columns`] returns it.
#[must_use = "the rows are read as they are asked for"]
pub struct TransactionColumns<'tx, 'db, T, C, P, I>
where
    T: Record,
    C: Columns<T>,
    P: Protocol,
    I: Iterator<Item: KeyPart<T::Key>>,
{
    rows: TransactionRows<'tx, 'db, T, P, I>,
    columns: C,
}

impl<'tx, T, C, P, I> Iterator for TransactionColumns<'tx, '_, T, C, P, I>
where
    T: Record,
    C: Columns<T>,
    P: Protocol,
    I: Iterator<Item: KeyPart<T::Key>>,
{
    type Item = Result<Option<C::Values<'tx>>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let used = self.rows.transaction.used_columns::<T>(self.columns.set());
        let row = self.rows.advance(used)?;
        Some(row.map(|row| row.map(|row| self.columns.get(row))))
    }
}

/// Rows of one table in records of their own, which are to be inserted in their order. When this is dropped, so are
/// the rows that were not inserted.
struct StagedRun<'r, 'db, P: Protocol, K: StoredForm, T: Record> {
    transaction: &'r Transaction<'db, P>,
    table: &'r TableInner<T>,
    /// The keys, and the addresses of the records.
    keys: ArrayVec<(K, u64), RUN_ROWS>,
    /// The rows in the records.
    rows: ArrayVec<NonNull<u8>, RUN_ROWS>,
    /// How many of the rows were inserted, or taken back.
    settled: usize,
}

impl<'r, 'db, P: Protocol, K: StoredForm, T: Record> StagedRun<'r, 'db, P, K, T> {
    #[inline(always)]
    fn new(transaction: &'r Transaction<'db, P>, table: &'r TableInner<T>) -> Self {
        let (keys, rows) = (ArrayVec::new(), ArrayVec::new());
        StagedRun { transaction, table, keys, rows, settled: 0 }
    }

    /// Takes rows until the run is full. Returns false if there are no more. If a row is refused, the rows before it
    /// are in the run.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn take_rows(&mut self, rows: &mut impl Iterator<Item = T>) -> Result<bool, Error> {
        while !self.rows.is_full() {
            let Some(row) = rows.next() else { return Ok(false) };
            self.table.check(&row)?;
            // The key is encoded before the row is moved, since that runs the user's code.
            let key = row.key();
            if let Some(number) = T::KEY_NUMBER {
                let table = self.table;
                self.transaction.pass_number(&table.numbers, table.number(), number(&key));
            }
            let key = K::from_key(&key);
            let (record, row) = self.transaction.stage_row(self.table.reference(), row)?;
            self.keys.push((key, record.address()));
            self.rows.push(row);
        }
        Ok(true)
    }

    /// Inserts the rows.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn insert(&mut self, index: &FormIndex<K>) -> Result<(), Error> {
        let (transaction, table) = (self.transaction, self.table.reference());
        let worker = transaction.worker;
        // The iterator that the rows came from may have met a conflict.
        if let Some(abort) = transaction.doomed.get() {
            return Err(transaction.describe(abort).into());
        }
        for (key, address) in &self.keys {
            index.prefetch(key);
            worker.executor().prepare_insert(record_at::<P>(*address));
        }
        while self.settled < self.keys.len() {
            let (key, address) = &self.keys[self.settled];
            let number = self.table.number();
            let search = || index.get(key, worker.buffer(number).hint::<K>());
            let (executor, memory) = (worker.executor(), &worker.memory);
            let cached = executor.cache_insertion(table, || key.erase(), *address, memory, search);
            let inserted = match cached.map_err(|abort| transaction.doom_by(abort))? {
                CachedInsertion::ToIndex { alone } => {
                    let end = if alone { self.settled + 1 } else { self.keys.len() };
                    let hint = worker.buffer(number).hint::<K>();
                    index.insert_run(&self.keys[self.settled..end], hint, &memory.index(number))
                }
                CachedInsertion::Found(address) => RunInsertion::Found(address),
                CachedInsertion::Cached => {
                    let (record, row) = (record_at::<P>(*address), self.rows[self.settled]);
                    executor.insert(table, record, row, key.erase());
                    self.settled += 1;
                    if transaction.is_recorded() {
                        self.record(table, row);
                    }
                    continue;
                }
            };
            match inserted {
                RunInsertion::Inserted { count, change, sibling } => {
                    // The keys were absent. The new records are placeholders, which the commit makes visible.
                    let inserted = self.settled..self.settled + count;
                    self.settled = inserted.end;
                    let executor = worker.executor();
                    for position in inserted.clone() {
                        let (key, address) = &self.keys[position];
                        let record = record_at::<P>(*address);
                        executor.insert(table, record, self.rows[position], key.erase());
                    }
                    executor
                        .note_own_insertion(table, change, sibling)
                        .map_err(|abort| transaction.doom_by(abort))?;
                    if transaction.is_recorded() {
                        self.rows[inserted].iter().for_each(|&row| self.record(table, row));
                    }
                }
                RunInsertion::Found(address) => self.occupy(table, address)?,
            }
        }
        Ok(())
    }

    /// Puts the next row under its key, which has a record already, at `address`.
    #[cold]
    fn occupy(&mut self, table: TableRef, address: u64) -> Result<(), Error> {
        let (transaction, position) = (self.transaction, self.settled);
        let (record, row) = (record_at::<P>(self.keys[position].1), self.rows[position]);
        // SAFETY: a staged row, which is not settled yet.
        let key = transaction.is_recorded().then(|| unsafe { row.cast::<T>().as_ref() }.key());
        // From here on the row is not this value's, unless the key has no record any more.
        self.settled += 1;
        // SAFETY: the row was staged for this table, and is settled now. The address is the index's own.
        match unsafe { transaction.occupy::<T>(table, address, record, row)? } {
            None => {
                self.settled = position;
                Ok(())
            }
            Some(PlaceOutcome::At(_)) => {
                if let Some(key) = key {
                    transaction.record(table, &key, Event::Read(None));
                    transaction.record(table, &key, Event::Write);
                }
                Ok(())
            }
            Some(PlaceOutcome::Duplicate(row, existing)) => {
                let key = row.key();
                transaction.record(table, &key, Event::Read(Some(existing)));
                #[cfg(feature = "canary")]
                if transaction.has_flaw(OperationFlaw::RefusedKeyPassed) {
                    return Ok(());
                }
                Err(duplicate(self.table, &key))
            }
        }
    }

    /// Records that a row was inserted, and stamps it. No other transaction reads the row before this one commits.
    #[cold]
    fn record(&self, table: TableRef, row: NonNull<u8>) {
        let transaction = self.transaction;
        transaction.record_untyped(table, row, Event::Read(None));
        // SAFETY: the row is complete, and before the commit its record does not lead to it.
        unsafe { stamp(transaction.worker, table, row) };
        transaction.record_untyped(table, row, Event::Write);
    }
}

impl<P: Protocol, K: StoredForm, T: Record> Drop for StagedRun<'_, '_, P, K, T> {
    #[inline(always)]
    fn drop(&mut self) {
        for position in self.settled..self.rows.len() {
            let record = record_at::<P>(self.keys[position].1);
            let table = self.table.reference();
            // SAFETY: staged by `take_rows`, in no index, and discarded once.
            unsafe { self.transaction.discard_staged(table, record, self.rows[position]) };
        }
    }
}

/// Returns a staged record by its address.
#[inline(always)]
fn record_at<P: Protocol>(address: u64) -> RecordOf<P> {
    // SAFETY: the address of a record of this protocol, whose worker is pinned as long as its transaction lasts.
    unsafe { RecordPointer::from_address(address) }
}
