//! Transactions: typed operations on tables, between a begin and a commit.
//!
//! This is the layer that knows keys, rows and indexes. Every operation has the same shape: find
//! the record in an index, and tell the protocol's executor what is done with it. What the
//! executor does about it (remember, lock, validate, undo) is the protocol's affair.
//!
//! Rows are handed out as plain references. They are never changed while the transaction lasts:
//! an update makes a new version, also of a row that this transaction has written before.

mod scan;

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use weft_htm::word::{Ordering, spin_loop};

pub use scan::Scan;

use crate::database::Inner;
use crate::encoding::{Key, KeyForm, KeyPrefix};
use crate::error::{Conflict, ConflictReason, Error, Failure};
use crate::index::{Insertion, Lookup, NodeVersion};
use crate::protocol::{Abort, Dbx, Executor, Observation, Protocol, Visible};
use crate::record::{RecordPointer, StoredRecord};
use crate::schema::{Index, Record, Storage};
use crate::table::{
    Entry, FormIndex, PickForm, Secondary, Table, TableInner, TableRef, with_form, with_secondary,
};
use crate::worker::{Counters, StoredForm, Worker};

/// A running transaction.
///
/// All operations take `&self`, so that the rows they return can be held side by side. A
/// transaction belongs to the thread that began it. One that is dropped without a commit rolls
/// back.
///
/// Every operation may return a [`Conflict`]: another transaction got in the way, and this one
/// cannot commit any more. Pass it up (with `?`), and [`Database::transact`] runs the transaction
/// again. To swallow it is harmless and useless: the commit fails just the same.
///
/// [`Database::transact`]: crate::Database::transact
pub struct Transaction<'db, P: Protocol = Dbx> {
    database: &'db Inner<P>,
    worker: &'db Worker<P>,
    /// What dooms it, if anything does.
    doomed: Cell<Option<Abort>>,
    deadline: Option<(Instant, Duration)>,
    attempt: u32,
    /// Counts operations, so that the deadline is not looked at too often.
    operations: Cell<u32>,
}

impl<P: Protocol> std::fmt::Debug for Transaction<'_, P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let doomed = self.doomed.get().map(|abort| abort.reason);
        formatter.debug_struct("Transaction").field("doomed", &doomed).finish_non_exhaustive()
    }
}

/// Every so many operations the deadline is looked at: a clock costs about as much as a read.
const OPERATIONS_PER_DEADLINE_CHECK: u32 = 32;

/// How many keys are prefetched together: about as many lines as a core can wait for at a time.
const PREFETCH_BATCH: usize = 16;

/// How much of a row is prefetched to be read: of a larger one most columns are not needed, and
/// lines that nobody needs delay the others.
const PREFETCH_READ_BYTES: usize = 128;

/// How much of a row is prefetched to be updated: the hardware runs ahead by itself in the copy of
/// a still larger one.
const PREFETCH_UPDATE_BYTES: usize = 512;

type RecordOf<P> = RecordPointer<<P as Protocol>::Header>;

/// What stands under a key.
enum Located<P: Protocol> {
    Record(RecordOf<P>),
    Absent(NodeVersion),
}

/// What became of a row to be inserted.
enum Placed<P: Protocol, R> {
    At(RecordOf<P>),
    /// There is a visible row under the key; the new one comes back.
    Duplicate(R),
}

impl<'db, P: Protocol> Transaction<'db, P> {
    #[inline(always)]
    pub(crate) fn begin(
        database: &'db Inner<P>,
        worker: &'db Worker<P>,
        attempt: u32,
        deadline: Option<(Instant, Duration)>,
    ) -> Result<Self, Failure> {
        if worker.active.get() {
            return Err(Failure::NestedTransaction);
        }
        worker.memory.pin();
        // Relaxed: `close` waits for all that were pinned before they could see the flag.
        if database.shared.closed.load(Ordering::Relaxed) != 0 {
            worker.memory.unpin();
            return Err(Failure::Closed);
        }
        if worker.executor().begin(attempt).is_err() {
            worker.memory.unpin();
            return Err(Failure::SingleThreaded { protocol: P::NAME });
        }
        worker.active.set(true);
        worker.next_serial();
        Ok(Transaction {
            database,
            worker,
            doomed: Cell::new(None),
            deadline,
            attempt,
            operations: Cell::new(0),
        })
    }

    // ---- point operations -------------------------------------------------------------------

    /// The row with this primary key.
    ///
    /// # Errors
    /// [`Conflict`]; [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`].
    #[inline]
    pub fn get<T: Record>(&self, table: &Table<T, P>, key: &T::Key) -> Result<Option<&T>, Error> {
        let table = self.enter(table)?;
        loop {
            match self.locate(table, key) {
                Located::Record(record) => match self.read(table.reference(), record)? {
                    // SAFETY: a visible row of this table; see `row`.
                    Visible::Row(row) => {
                        return Ok(Some(unsafe { self.remember(table, record, row) }));
                    }
                    Visible::Absent => return Ok(None),
                    Visible::Removed => self.forget(table),
                },
                Located::Absent(node) => {
                    self.worker.executor().note_node(table.reference(), node);
                    return Ok(None);
                }
            }
        }
    }

    /// Brings the rows with these primary keys into the processor's cache, all at once, to be read
    /// soon, best in this order. A hint: it reads nothing as far as the transaction is concerned,
    /// and keys that are absent do no harm.
    ///
    /// In a table larger than the cache an operation waits three times for memory: for the
    /// index, for the record and for the row. Ten operations that are announced together wait
    /// about as long as one. Of a large row only the beginning is fetched;
    /// [`Transaction::prefetch_for_update`] fetches all of it.
    ///
    /// # Errors
    /// [`Conflict`] if the transaction met one before; [`Failure::ForeignTable`],
    /// [`Failure::DeadlineExceeded`].
    #[inline]
    pub fn prefetch<T: Record>(
        &self,
        table: &Table<T, P>,
        keys: impl IntoIterator<Item = T::Key>,
    ) -> Result<(), Error> {
        self.prefetch_rows(table, keys, PREFETCH_READ_BYTES)
    }

    /// As [`Transaction::prefetch`], for rows that are to be updated soon: an update copies the
    /// row, so the whole of it is fetched.
    ///
    /// # Errors
    /// As [`Transaction::prefetch`].
    #[inline]
    pub fn prefetch_for_update<T: Record>(
        &self,
        table: &Table<T, P>,
        keys: impl IntoIterator<Item = T::Key>,
    ) -> Result<(), Error> {
        self.prefetch_rows(table, keys, PREFETCH_UPDATE_BYTES)
    }

    /// Inserts a row.
    ///
    /// # Errors
    /// [`Failure::DuplicateKey`] if there is a row with its primary key, or with its key in a
    /// unique index; [`Failure::Constraint`]; [`Conflict`]; [`Failure::ForeignTable`],
    /// [`Failure::DeadlineExceeded`]. After a failure the table is as it was before the call.
    #[inline]
    pub fn insert<T: Record>(&self, table: &Table<T, P>, row: T) -> Result<(), Error> {
        let table = self.enter(table)?;
        check(&row)?;
        match self.insert_row(table, row)? {
            None => Ok(()),
            Some(row) => Err(duplicate(T::TABLE, None, &row.key())),
        }
    }

    /// Changes the row with this primary key, by a closure that gets a copy of it; returns what
    /// the closure returned, or `None` if there is no such row.
    ///
    /// # Errors
    /// [`Failure::KeyChanged`] if the closure changed the primary key, [`Failure::Constraint`],
    /// [`Failure::DuplicateKey`] if the change of a unique index's column meets another row,
    /// [`Failure::NestedWrite`] if the closure wrote the same row through the transaction;
    /// [`Conflict`]; [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`]. After a failure
    /// the row is as it was before the call.
    #[inline]
    pub fn update<T: Record, R>(
        &self,
        table: &Table<T, P>,
        key: &T::Key,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, Error> {
        let table = self.enter(table)?;
        match self.observe(table, key)? {
            Some((record, row, version)) => {
                // SAFETY: a visible row of this table; see `row`.
                let old = unsafe { self.row::<T>(row) };
                let read = UnwrittenRead {
                    worker: self.worker,
                    table: table.reference(),
                    record,
                    version,
                };
                let mut new = PrivateRow::cloned(self.worker, table.reference(), old);
                let result = change(new.get_mut());
                self.replace(table, record, version, old, new)?;
                std::mem::forget(read);
                Ok(Some(result))
            }
            None => Ok(None),
        }
    }

    /// Inserts a row, or replaces the one with the same primary key; true if it replaced one.
    ///
    /// # Errors
    /// As [`Transaction::insert`], but for the primary key.
    pub fn upsert<T: Record>(&self, table: &Table<T, P>, row: T) -> Result<bool, Error> {
        let inner = self.enter(table)?;
        check(&row)?;
        let Some(row) = self.insert_row(inner, row)? else { return Ok(false) };
        let Some((record, old, version)) = self.observe(inner, &row.key())? else {
            // Visible a moment ago, and in this transaction's read set: it has changed.
            return Err(self.doom(ConflictReason::ReadChanged, inner.reference()));
        };
        // SAFETY: a visible row of this table; see `row`.
        let old = unsafe { self.row::<T>(old) };
        let new = PrivateRow::new(self.worker, inner.reference(), row);
        self.replace(inner, record, version, old, new)?;
        Ok(true)
    }

    /// Deletes the row with this primary key; false if there is none.
    ///
    /// # Errors
    /// [`Conflict`]; [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`].
    pub fn delete<T: Record>(&self, table: &Table<T, P>, key: &T::Key) -> Result<bool, Error> {
        let table = self.enter(table)?;
        let Some((record, row, version)) = self.observe(table, key)? else { return Ok(false) };
        // SAFETY: a visible row of this table; see `row`.
        let row = unsafe { self.row::<T>(row) };
        for (position, secondary) in table.secondary.iter().enumerate() {
            with_secondary!(secondary, |index| self.remove_entry(index, row, position)?);
        }
        self.worker.executor().remove(table.reference(), record, version);
        Ok(true)
    }

    // ---- scans ------------------------------------------------------------------------------

    /// The rows whose primary keys lie in `range`, in the order of the keys.
    ///
    /// # Errors
    /// The scan's items are: [`Conflict`]; [`Failure::UnorderedTable`],
    /// [`Failure::InvalidRange`], [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`].
    pub fn range<'tx, T: Record>(
        &'tx self,
        table: &'tx Table<T, P>,
        range: impl RangeBounds<T::Key>,
    ) -> Scan<'tx, 'db, T, P> {
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let bounds = encode_range::<K, _>(&range);
            Scan::primary::<K>(self, table, bounds, || describe_range(&range))
        })
    }

    /// The rows whose primary keys begin with `prefix`, in the order of the keys: for a key
    /// `(A, B, C)`, a prefix is an `A`, `(A,)` or `(A, B)`.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn prefix<'tx, T: Record>(
        &'tx self,
        table: &'tx Table<T, P>,
        prefix: &impl KeyPrefix<T::Key>,
    ) -> Scan<'tx, 'db, T, P> {
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let bounds = K::prefix_range::<T::Key>(prefix);
            Scan::primary::<K>(self, table, bounds, Default::default)
        })
    }

    /// The row with this key in a unique index.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_by<'tx, T: Record, K: Key>(
        &'tx self,
        table: &'tx Table<T, P>,
        index: Index<T, K>,
        key: &K,
    ) -> Result<Option<&'tx T>, Error> {
        self.prefix_by(table, index, key).next().transpose()
    }

    /// The rows whose keys in a secondary index lie in `range`, in the order of the index.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn range_by<'tx, T: Record, K: Key>(
        &'tx self,
        table: &'tx Table<T, P>,
        index: Index<T, K>,
        range: impl RangeBounds<K>,
    ) -> Scan<'tx, 'db, T, P> {
        with_secondary!(&table.inner.secondary[index.position()], |secondary| {
            let bounds = encode_index_range(secondary, &range);
            Scan::secondary(self, table, secondary, bounds, || describe_range(&range))
        })
    }

    /// The rows whose keys in a secondary index begin with `prefix`, in the order of the index.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn prefix_by<'tx, T: Record, K: Key>(
        &'tx self,
        table: &'tx Table<T, P>,
        index: Index<T, K>,
        prefix: &impl KeyPrefix<K>,
    ) -> Scan<'tx, 'db, T, P> {
        with_secondary!(&table.inner.secondary[index.position()], |secondary| {
            let bounds = prefix_of(secondary, prefix);
            Scan::secondary(self, table, secondary, bounds, Default::default)
        })
    }

    // ---- the end ----------------------------------------------------------------------------

    /// Commits.
    ///
    /// # Errors
    /// [`Conflict`]: nothing was changed; run the transaction again.
    pub fn commit(self) -> Result<(), Error> {
        self.finish()
    }

    /// Rolls back. (So does dropping it.)
    pub fn rollback(self) {}

    #[inline(always)]
    pub(crate) fn finish(self) -> Result<(), Error> {
        // The end is here, not in `drop`.
        let this = ManuallyDrop::new(self);
        let memory = &this.worker.memory;
        let committed = match this.doomed.get() {
            Some(abort) => Err(abort),
            None => {
                let clock = &this.database.shared.clock;
                this.worker.executor().commit(memory, || clock.epoch())
            }
        };
        match committed {
            Ok(()) => {
                Counters::count(&memory.counters().committed);
                this.end();
                Ok(())
            }
            Err(abort) => Err(this.give_way(abort).into()),
        }
    }

    /// Rolls back after an error or a panic of the caller's. `Some` if it was not the caller's
    /// own, but came of a conflict.
    pub(crate) fn give_up(self) -> Option<Conflict> {
        let this = ManuallyDrop::new(self);
        let conflict = this.doomed.get().or_else(|| this.worker.executor().validate().err());
        match conflict {
            Some(abort) => Some(this.give_way(abort)),
            None => {
                this.roll_back();
                None
            }
        }
    }

    #[cold]
    fn give_way(&self, abort: Abort) -> Conflict {
        // SAFETY: still pinned.
        let conflict = unsafe { abort.into_conflict() };
        let counters = self.worker.memory.counters();
        Counters::count(&counters.aborted[abort.reason as usize]);
        self.worker.executor().abort(&self.worker.memory);
        self.end();
        conflict
    }

    fn roll_back(&self) {
        Counters::count(&self.worker.memory.counters().rolled_back);
        self.worker.executor().abort(&self.worker.memory);
        self.end();
    }

    #[inline(always)]
    fn end(&self) {
        // This may drop rows: a `drop` of the user's that runs a transaction finds itself nested.
        self.worker.memory.unpin();
        self.worker.active.set(false);
    }

    // ---- steps of the operations ------------------------------------------------------------

    /// What every operation begins with.
    #[inline(always)]
    fn enter<'t, T: Record>(&self, table: &'t Table<T, P>) -> Result<&'t TableInner<T, P>, Error> {
        if !std::sync::Arc::ptr_eq(&table.inner.identity, &self.database.identity) {
            return Err(Failure::ForeignTable { table: T::TABLE }.into());
        }
        if self.doomed.get().is_some() || self.deadline.is_some() {
            self.check_doom_and_deadline()?;
        }
        Ok(&table.inner)
    }

    #[cold]
    fn check_doom_and_deadline(&self) -> Result<(), Error> {
        if let Some(abort) = self.doomed.get() {
            // SAFETY: pinned, as long as `self` is there.
            return Err(unsafe { abort.into_conflict() }.into());
        }
        self.operations.set(self.operations.get().wrapping_add(1));
        match self.deadline {
            Some((at, deadline))
                if self.operations.get().is_multiple_of(OPERATIONS_PER_DEADLINE_CHECK)
                    && Instant::now() >= at =>
            {
                Err(Failure::DeadlineExceeded { deadline, attempts: self.attempt + 1 }.into())
            }
            _ => Ok(()),
        }
    }

    /// Dooms the transaction, and spells out why.
    #[cold]
    fn doom_by(&self, abort: Abort) -> Error {
        self.doomed.set(Some(abort));
        // SAFETY: pinned, as long as `self` is there.
        unsafe { abort.into_conflict() }.into()
    }

    #[cold]
    fn doom(&self, reason: ConflictReason, table: TableRef) -> Error {
        self.doom_by(Abort { reason, table, row: None })
    }

    #[inline(always)]
    fn read(&self, table: TableRef, record: RecordOf<P>) -> Result<Visible, Error> {
        self.worker.executor().read(table, record).map_err(|abort| self.doom_by(abort))
    }

    #[inline(always)]
    fn read_for_write(
        &self,
        table: TableRef,
        record: RecordOf<P>,
    ) -> Result<Observation<<P::Executor as Executor>::Version>, Error> {
        self.worker.executor().read_for_write(table, record).map_err(|abort| self.doom_by(abort))
    }

    /// A row as a reference.
    ///
    /// # Safety
    /// `row` is a row of type `R` that was visible in this transaction: then it is not changed,
    /// nor freed, as long as the transaction lasts, which cannot end while `self` is borrowed.
    #[inline(always)]
    unsafe fn row<R>(&self, row: NonNull<u8>) -> &R {
        // SAFETY: by the contract.
        unsafe { row.cast::<R>().as_ref() }
    }

    /// A row as a reference; remembered as the table's last one (DBX §6.2).
    ///
    /// # Safety
    /// As [`Transaction::row`].
    #[inline(always)]
    unsafe fn remember<T: Record>(
        &self,
        table: &TableInner<T, P>,
        record: RecordOf<P>,
        row: NonNull<u8>,
    ) -> &T {
        self.worker.buffer(table.number()).last = Some((record.address(), row));
        // SAFETY: by the contract.
        unsafe { self.row(row) }
    }

    /// After a record turned out to have left the index: looks elsewhere next time.
    #[cold]
    fn forget<T: Record>(&self, table: &TableInner<T, P>) {
        let buffer = self.worker.buffer(table.number());
        buffer.last = None;
        // Whatever it was found by, the index is asked from now on.
        buffer.announced.clear();
        spin_loop();
    }

    #[inline(always)]
    fn prefetch_rows<T: Record>(
        &self,
        table: &Table<T, P>,
        keys: impl IntoIterator<Item = T::Key>,
        bytes_max: usize,
    ) -> Result<(), Error> {
        let table = self.enter(table)?;
        let row_bytes = size_of::<T>().min(bytes_max);
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let index = K::pick(&table.primary);
            let mut keys = keys.into_iter().map(|key| K::from_key(&key)).fuse();
            loop {
                let batch: ArrayVec<K, PREFETCH_BATCH> =
                    keys.by_ref().take(PREFETCH_BATCH).collect();
                if batch.is_empty() {
                    return Ok(());
                }
                self.prefetch_batch(index, table.number(), &batch, row_bytes);
            }
        })
    }

    /// Asks for the rows of a few keys, step by step: what one step asks for arrives while the
    /// step asks for the other keys' lines.
    #[inline(always)]
    fn prefetch_batch<K: StoredForm>(
        &self,
        index: &FormIndex<K>,
        number: usize,
        keys: &[K],
        row_bytes: usize,
    ) {
        for key in keys {
            index.prefetch(key);
        }
        let mut records = ArrayVec::<RecordOf<P>, PREFETCH_BATCH>::new();
        for key in keys {
            let buffer = self.worker.buffer(number);
            let found = index.get(key, buffer.hint::<K>(), &self.worker.memory);
            if let Lookup::Found(address) = found {
                // SAFETY: the table's own index holds addresses of its records.
                let record: RecordOf<P> = unsafe { RecordPointer::from_address(address) };
                record.prefetch_header();
                records.push(record);
                buffer.announced.push(address);
            }
        }
        for record in records {
            // SAFETY: pinned, as long as `self` is there.
            unsafe { record.prefetch_row(row_bytes) };
        }
    }

    /// Finds the record under a key.
    #[inline(always)]
    fn locate<T: Record>(&self, table: &TableInner<T, P>, key: &T::Key) -> Located<P> {
        let buffer = self.worker.buffer(table.number());
        if let Some((address, row)) = buffer.last {
            // SAFETY: remembered in this transaction.
            if unsafe { self.row::<T>(row) }.key_equals(key) {
                // SAFETY: likewise.
                return Located::Record(unsafe { RecordPointer::from_address(address) });
            }
        }
        if let Some(&address) = buffer.announced.get(buffer.expected) {
            // SAFETY: an address from the table's own index, found in this transaction.
            let record: RecordOf<P> = unsafe { RecordPointer::from_address(address) };
            // SAFETY: pinned, as long as `self` is there.
            let newest = unsafe { record.get() }.newest.load(Ordering::Acquire);
            // All rows of a record have the same key, whatever their version.
            if let Some(row) = NonNull::new(newest)
                // SAFETY: a row that was published; it is not freed while the worker is pinned.
                && unsafe { self.row::<T>(row) }.key_equals(key)
            {
                buffer.expected += 1;
                return Located::Record(record);
            }
        }
        let found = with_form!(T::Key::WIDTH_BYTES, |K| {
            let key = K::from_key(key);
            K::pick(&table.primary).get(&key, buffer.hint::<K>(), &self.worker.memory)
        });
        match found {
            // SAFETY: the table's own index holds addresses of its records.
            Lookup::Found(address) => {
                Located::Record(unsafe { RecordPointer::from_address(address) })
            }
            Lookup::Absent(node) => Located::Absent(node),
        }
    }

    /// Finds the visible row under a key that is to be written; the read is validated with the
    /// write. Absence is noted as a read.
    #[inline(always)]
    #[allow(clippy::type_complexity, reason = "record, row and version belong together")]
    fn observe<T: Record>(
        &self,
        table: &TableInner<T, P>,
        key: &T::Key,
    ) -> Result<Option<(RecordOf<P>, NonNull<u8>, <P::Executor as Executor>::Version)>, Error> {
        loop {
            match self.locate(table, key) {
                Located::Record(record) => {
                    let observed = self.read_for_write(table.reference(), record)?;
                    match observed.visible {
                        Visible::Row(row) => return Ok(Some((record, row, observed.version))),
                        Visible::Absent => {
                            let executor = self.worker.executor();
                            executor.note_read(table.reference(), record, observed.version);
                            return Ok(None);
                        }
                        Visible::Removed => self.forget(table),
                    }
                }
                Located::Absent(node) => {
                    self.worker.executor().note_node(table.reference(), node);
                    return Ok(None);
                }
            }
        }
    }

    /// Inserts a row and its index entries. Gives the row back if there is one with its primary
    /// key.
    #[inline(always)]
    fn insert_row<T: Record>(&self, table: &TableInner<T, P>, row: T) -> Result<Option<T>, Error> {
        let reference = table.reference();
        let placed = with_form!(T::Key::WIDTH_BYTES, |K| {
            let key = K::from_key(&row.key());
            self.place(K::pick(&table.primary), reference, table.number(), &key, row)?
        });
        let record = match placed {
            Placed::At(record) => record,
            Placed::Duplicate(row) => return Ok(Some(row)),
        };
        if !table.secondary.is_empty() {
            self.insert_entries(table, record)?;
        }
        Ok(None)
    }

    /// Puts a row under a key of an index: into a new record, or into one that is absent.
    #[inline(always)]
    fn place<K: StoredForm, R>(
        &self,
        index: &FormIndex<K>,
        table: TableRef,
        number: usize,
        key: &K,
        row: R,
    ) -> Result<Placed<P, R>, Error> {
        let memory = &self.worker.memory;
        let core = table.core();
        let block = memory.allocate_block(core.record_class);
        // SAFETY: a new block of the table's record class.
        let record = unsafe { StoredRecord::<P::Header>::initialise(block) };
        // The row is written before the record can be found, and becomes visible at commit.
        let is_inline = core.holds_rows_inline();
        let row = if is_inline {
            let inline = record.inline_row();
            // SAFETY: the block reaches over the inline row.
            unsafe { inline.cast::<R>().write(row) };
            inline
        } else {
            PrivateRow::new(self.worker, table, row).into_raw()
        };
        loop {
            let hint = self.worker.buffer(number).hint::<K>();
            match index.get_or_insert(key, record.address(), hint, memory) {
                Insertion::Inserted { change, sibling } => {
                    let executor = self.worker.executor();
                    executor.insert(table, record, row);
                    executor
                        .note_own_insertion(table, change, sibling)
                        .map_err(|abort| self.doom_by(abort))?;
                    return Ok(Placed::At(record));
                }
                Insertion::Found(address) => {
                    // SAFETY: the table's own index holds addresses of its records.
                    let existing = unsafe { RecordPointer::from_address(address) };
                    // SAFETY: the row was written above, and moves on from here: the record was
                    // not linked, and the blocks are freed without dropping the row.
                    let take_back = || unsafe {
                        let taken = row.cast::<R>().read();
                        if !is_inline {
                            memory.free_block(row, core.row_class);
                        }
                        memory.free_block(block, core.record_class);
                        taken
                    };
                    let observed = match self.read_for_write(table, existing) {
                        Ok(observed) => observed,
                        Err(conflict) => {
                            drop(take_back());
                            return Err(conflict);
                        }
                    };
                    match observed.visible {
                        Visible::Removed => spin_loop(),
                        Visible::Absent => {
                            let row = PrivateRow::new(self.worker, table, take_back());
                            let row = row.into_raw();
                            self.worker.executor().write(table, existing, observed.version, row);
                            return Ok(Placed::At(existing));
                        }
                        Visible::Row(_) => {
                            let row = take_back();
                            // That it is there is a read like any other.
                            self.worker.executor().note_read(table, existing, observed.version);
                            return Ok(Placed::Duplicate(row));
                        }
                    }
                }
            }
        }
    }

    /// Inserts the index entries of a row that was just placed; takes everything back if one of
    /// them is a duplicate.
    fn insert_entries<T: Record>(
        &self,
        table: &TableInner<T, P>,
        record: RecordOf<P>,
    ) -> Result<(), Error> {
        let Visible::Row(row) = self.read(table.reference(), record)? else {
            unreachable!("the row was just written by this transaction")
        };
        // SAFETY: this transaction's own row; see `row`.
        let row = unsafe { self.row::<T>(row) };
        for position in 0..table.secondary.len() {
            if let Err(error) = self.insert_entry(table, position, row, record) {
                for (earlier, secondary) in table.secondary[..position].iter().enumerate() {
                    with_secondary!(secondary, |index| self.remove_entry(index, row, earlier)?);
                }
                let own = self.read_for_write(table.reference(), record)?;
                self.worker.executor().remove(table.reference(), record, own.version);
                return Err(error);
            }
        }
        Ok(())
    }

    fn insert_entry<T: Record>(
        &self,
        table: &TableInner<T, P>,
        position: usize,
        row: &T,
        record: RecordOf<P>,
    ) -> Result<(), Error> {
        with_secondary!(&table.secondary[position], |index| {
            let key = index_key(index, row, position);
            let entry = Entry { record: record.address(), key: key.clone() };
            let placed =
                self.place(&index.index, index.reference(), index.number(), &key, entry)?;
            match placed {
                Placed::At(_) => Ok(()),
                Placed::Duplicate(_) => Err(duplicate(T::TABLE, index.name(), &row.key())),
            }
        })
    }

    /// Removes the index entry of a visible row.
    fn remove_entry<K: StoredForm, T: Record>(
        &self,
        index: &Secondary<K, P>,
        row: &T,
        position: usize,
    ) -> Result<(), Error> {
        let key = index_key(index, row, position);
        let hint = self.worker.buffer(index.number()).hint::<K>();
        let Lookup::Found(address) = index.index.get(&key, hint, &self.worker.memory) else {
            // A visible row has its entry; so the row is not current any more.
            return Err(self.doom(ConflictReason::ReadChanged, index.reference()));
        };
        // SAFETY: the index's own address.
        let entry = unsafe { RecordPointer::from_address(address) };
        let observed = self.read_for_write(index.reference(), entry)?;
        match observed.visible {
            Visible::Row(_) => {
                self.worker.executor().remove(index.reference(), entry, observed.version);
                Ok(())
            }
            _ => Err(self.doom(ConflictReason::ReadChanged, index.reference())),
        }
    }

    /// Replaces a row that was observed by a new one, and moves its index entries.
    #[inline(always)]
    fn replace<T: Record>(
        &self,
        table: &TableInner<T, P>,
        record: RecordOf<P>,
        version: <P::Executor as Executor>::Version,
        old: &T,
        new: PrivateRow<'_, P, T>,
    ) -> Result<(), Error> {
        let key = || format!("{:?}", old.key());
        if !new.get().key_equals(&old.key()) {
            let changed = format!("{:?}", new.get().key());
            return Err(Failure::KeyChanged { table: T::TABLE, key: key(), changed }.into());
        }
        check(new.get())?;
        if !self.worker.executor().is_current(record, version) {
            return Err(Failure::NestedWrite { table: T::TABLE, key: key() }.into());
        }
        if !table.secondary.is_empty() {
            self.move_entries(table, record, old, new.get())?;
        }
        let row = new.into_raw();
        self.worker.buffer(table.number()).last = Some((record.address(), row));
        self.worker.executor().write(table.reference(), record, version, row);
        Ok(())
    }

    /// Moves the index entries of a row whose indexed columns change. The new entries come
    /// first, so that a duplicate leaves everything as it was.
    fn move_entries<T: Record>(
        &self,
        table: &TableInner<T, P>,
        record: RecordOf<P>,
        old: &T,
        new: &T,
    ) -> Result<(), Error> {
        let moved = |position: &usize| old.index_key_differs(new, *position);
        for position in (0..table.secondary.len()).filter(moved) {
            if let Err(error) = self.insert_entry(table, position, new, record) {
                for earlier in (0..position).filter(moved) {
                    let secondary = &table.secondary[earlier];
                    with_secondary!(secondary, |index| self.remove_entry(index, new, earlier)?);
                }
                return Err(error);
            }
        }
        for position in (0..table.secondary.len()).filter(moved) {
            let secondary = &table.secondary[position];
            with_secondary!(secondary, |index| self.remove_entry(index, old, position)?);
        }
        Ok(())
    }
}

impl<P: Protocol> Drop for Transaction<'_, P> {
    fn drop(&mut self) {
        self.roll_back();
    }
}

/// A row that was read to be updated. Dropped if the update does not come about, by an error or a
/// panic: then it was a plain read, and what followed from it holds only while the row is current.
struct UnwrittenRead<'w, P: Protocol> {
    worker: &'w Worker<P>,
    table: TableRef,
    record: RecordOf<P>,
    version: <P::Executor as Executor>::Version,
}

impl<P: Protocol> Drop for UnwrittenRead<'_, P> {
    #[cold]
    fn drop(&mut self) {
        self.worker.executor().note_read(self.table, self.record, self.version);
    }
}

/// A new version of a row that belongs to nobody yet; dropped, with its block, if a closure
/// panics or a check fails.
struct PrivateRow<'w, P: Protocol, R> {
    row: NonNull<R>,
    worker: &'w Worker<P>,
    table: TableRef,
}

impl<'w, P: Protocol, R> PrivateRow<'w, P, R> {
    fn new(worker: &'w Worker<P>, table: TableRef, row: R) -> Self {
        let block = worker.memory.allocate_block(table.core().row_class).cast::<R>();
        // SAFETY: a new block of the table's row class.
        unsafe { block.write(row) };
        PrivateRow { row: block, worker, table }
    }

    #[inline(always)]
    fn cloned(worker: &'w Worker<P>, table: TableRef, row: &R) -> Self
    where
        R: Clone,
    {
        let block = worker.memory.allocate_block(table.core().row_class).cast::<R>();
        // SAFETY: a new block of the table's row class. (If `clone` panics it stays unused until
        // the database is dropped.)
        unsafe { block.write(row.clone()) };
        PrivateRow { row: block, worker, table }
    }

    #[inline(always)]
    fn get(&self) -> &R {
        // SAFETY: written by `new` or `cloned`, and this value's own.
        unsafe { self.row.as_ref() }
    }

    #[inline(always)]
    fn get_mut(&mut self) -> &mut R {
        // SAFETY: as in `get`.
        unsafe { self.row.as_mut() }
    }

    /// Hands the row over to the executor.
    #[inline(always)]
    fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).row.cast()
    }
}

impl<P: Protocol, R> Drop for PrivateRow<'_, P, R> {
    fn drop(&mut self) {
        // SAFETY: complete, and nobody else has its address.
        unsafe { self.worker.memory.drop_row(self.row.cast(), self.table, false) };
    }
}

#[inline(always)]
fn check<T: Record>(row: &T) -> Result<(), Error> {
    row.check().map_err(|violation| {
        let key = format!("{:?}", row.key());
        Failure::Constraint { table: T::TABLE, key, violation }.into()
    })
}

#[cold]
fn duplicate(table: &'static str, index: Option<&'static str>, key: &impl Key) -> Error {
    Failure::DuplicateKey { table, index, key: format!("{key:?}") }.into()
}

fn index_key<K: KeyForm, P: Protocol, T: Record>(
    _index: &Secondary<K, P>,
    row: &T,
    position: usize,
) -> K {
    let mut encoder = K::Encoder::default();
    row.encode_index_key(position, &mut encoder);
    K::finish(encoder)
}

// ---- ranges -----------------------------------------------------------------------------------

/// A range of encoded keys.
type Bounds<K> = (Bound<K>, Bound<K>);

fn encode_range<K: KeyForm, T: Key>(range: &impl RangeBounds<T>) -> Bounds<K> {
    (range.start_bound().map(K::from_key), range.end_bound().map(K::from_key))
}

/// The range of a secondary index's entries whose columns lie in `range`. The entries of a
/// non-unique index go on behind the columns, with the primary key; so an included end means all
/// entries that begin with it, and an excluded start means none of them.
fn encode_index_range<F: KeyForm, P: Protocol, K: Key>(
    _index: &Secondary<F, P>,
    range: &impl RangeBounds<K>,
) -> Bounds<F> {
    let begin_with = |key: &K| F::prefix_range::<K>(key);
    // Whether a range is the wrong way round, or empty, is a matter of the columns alone.
    let columns = encode_range::<F, K>(range);
    if is_reversed(&columns) || is_empty(&columns) {
        return columns;
    }
    let start = match range.start_bound() {
        Bound::Included(key) => begin_with(key).0,
        Bound::Excluded(key) => match begin_with(key).1 {
            Bound::Included(last) => Bound::Excluded(last),
            Bound::Excluded(next) => Bound::Included(next),
            // Nothing is greater than the entries that begin with it.
            Bound::Unbounded => {
                let key = F::from_key(key);
                return (Bound::Excluded(key.clone()), Bound::Excluded(key));
            }
        },
        Bound::Unbounded => Bound::Unbounded,
    };
    let end = match range.end_bound() {
        Bound::Included(key) => begin_with(key).1,
        Bound::Excluded(key) => match begin_with(key).0 {
            Bound::Included(first) => Bound::Excluded(first),
            other => other,
        },
        Bound::Unbounded => Bound::Unbounded,
    };
    (start, end)
}

fn prefix_of<F: KeyForm, P: Protocol, K: Key>(
    _index: &Secondary<F, P>,
    prefix: &impl KeyPrefix<K>,
) -> Bounds<F> {
    F::prefix_range::<K>(prefix)
}

/// The ends of a range, for people.
fn describe_range<T: Key>(range: &impl RangeBounds<T>) -> (String, String) {
    let describe = |bound: Bound<&T>| match bound {
        Bound::Included(key) => format!("{key:?}"),
        Bound::Excluded(key) => format!("{key:?} (excluded)"),
        Bound::Unbounded => "unbounded".to_owned(),
    };
    (describe(range.start_bound()), describe(range.end_bound()))
}

/// Whether a range is written the wrong way round. (One that is merely empty is not.)
fn is_reversed<K: Ord>(bounds: &Bounds<K>) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match bounds {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start > end,
    }
}

/// Whether a range has no keys because it excludes the only one.
fn is_empty<K: Ord>(bounds: &Bounds<K>) -> bool {
    use Bound::{Excluded, Included};
    matches!(bounds, (Excluded(start), Excluded(end) | Included(end))
        | (Included(start), Excluded(end)) if start == end)
}

/// Fails for tables that have no order.
fn check_ordered<T: Record>() -> Result<(), Failure> {
    match T::STORAGE {
        Storage::Ordered => Ok(()),
        Storage::Hash => Err(Failure::UnorderedTable { table: T::TABLE }),
    }
}
