//! Transactions: typed operations on tables, between a begin and a commit.
//!
//! This layer knows keys, rows and indexes. Every operation has the same form: it finds the record in an index, and
//! tells the protocol's executor what happens to the record. The protocol decides what the executor does then:
//! remember, lock, validate or undo.
//!
//! The caller gets rows as plain references. A row does not change while the transaction lasts: an update makes a
//! new version, even of a row that this transaction has written before.

mod by_columns;
mod deferred;
mod end;
mod expiry;
mod generated;
mod lookup;
mod many;
mod operations;
mod prefetch;
mod private_row;
mod ranges;
mod reapply;
mod recording;
mod savepoint;
mod scan;
mod snapshot_reads;
mod writes;

use std::cell::Cell;
use std::ptr::NonNull;

pub(crate) use expiry::TableHook;
pub use many::{TransactionColumns, TransactionRows};
pub use scan::{ColumnScan, Scan};

use crate::commit::{
    Abort, Claim, Dbx, Engine, Executor, Observation, Protocol, Refusal, Unstable, Visible, Worker,
};
use crate::error::{ConflictReason, Error, Failure};
use crate::index::NodeVersion;
use crate::index::bplus_tree::ScannedRange;
use crate::row::column::{ColumnSet, UsedColumns};
use crate::row::encoding::{Key, KeyForm, KeyLookup, KeyPart};
use crate::row::schema::Record;
use crate::store::deadline::Deadline;
use crate::store::record::RecordPointer;
use crate::store::table::{Table, TableInner, TableRef, with_form};
#[cfg(feature = "canary")]
use crate::store::worker::OperationFlaw;
use crate::store::worker::{Growth, WorkerMemory};
use lookup::LookupResult;
use prefetch::{PREFETCH_READ_BYTES, PREFETCH_UPDATE_BYTES};
use private_row::PrivateRow;
use recording::{Event, record_invocation};
use snapshot_reads::SnapshotOpener;
use writes::duplicate;

/// A running transaction, with the operations on tables.
///
/// All operations take `&self`, so that you can hold several rows that they return at the same time. A transaction
/// belongs to the thread that began it. Dropping it without a commit rolls it back.
///
/// Every operation may return a [`Conflict`](crate::Conflict): another transaction got in the way, and this one can no
/// longer commit. Return the conflict (with `?`), and [`Database::transact`] runs the transaction again. If you ignore the
/// conflict, no harm is done, but the commit fails all the same.
///
/// Every operation, and the commit, fails with [`Failure::TransactionTooOld`] if the transaction is older than the
/// database's [limit](crate::Builder::transaction_age_limit). Operations that write fail with
/// [`Failure::MemoryFull`] if they would need more memory than the database [may
/// use](crate::Builder::memory_limit), and the transaction can go on without them.
///
/// [`Database::transact`]: crate::Database::transact
pub struct Transaction<'db, P: Protocol = Dbx> {
    database: &'db Engine<P>,
    worker: &'db Worker<P>,
    /// The claim of the worker, if it ends with the transaction.
    claim: Option<Claim<'db, P>>,
    /// The conflict that dooms the transaction, if one does.
    doomed: Cell<Option<Abort>>,
    deadline: Option<&'db Deadline>,
    /// Whether the deadline counts, and a limit on the transaction's age.
    is_limited: Cell<bool>,
    /// Opens the snapshot that the transaction is to read, if it is to read one.
    snapshot_opener: Option<&'db SnapshotOpener<'db>>,
    /// Whether no snapshot could be opened, so that the attempt is an ordinary one.
    has_no_snapshot: Cell<bool>,
    /// The snapshot's number; 0 if the transaction reads what is committed now, or its first operation has not begun.
    snapshot: Cell<u64>,
    /// How many records the transaction has read in its snapshot.
    snapshot_reads: Cell<usize>,
    /// Whether an operation that writes has begun.
    writes: Cell<bool>,
    /// The failure of a scan, if one has failed with more than a conflict: see [`Transaction::refusal`].
    failed_scan: Cell<Option<Box<Failure>>>,
    has_failed_scan: Cell<bool>,
    attempt: u32,
    /// Counts operations, so that the deadline is not checked too often.
    operations: Cell<u32>,
    /// Whether the transaction has made the one operation that a single-key protocol allows.
    is_used: Cell<bool>,
    /// Whether the log has allowed the transaction to write.
    is_admitted: Cell<bool>,
    /// The end of the period in which the transaction would have seen the same rows as not expired, in milliseconds
    /// since 1970; 0 if it has not looked at the time.
    valid_until: Cell<u64>,
    /// Whether an operation was left half done.
    is_torn: Cell<bool>,
    /// Whether an operation in several steps is under way: see [`Steps`].
    is_in_steps: Cell<bool>,
}

/// The condition under which a transaction could move to another thread. No protocol meets it: a transaction uses the
/// worker that its thread has claimed. It is written as a condition because the compiler then reports one error, with
/// this note, and not one for each field of a worker.
#[diagnostic::on_unimplemented(
    message = "a transaction stays on the thread that began it",
    note = "a transaction stays on the thread that began it, so a task cannot hold it across an `.await`: await before \
            or after `Database::transact`, or give the closure to `Pool::submit` and await the submission"
)]
#[doc(hidden)]
pub trait HeldAcrossAwait {}

// SAFETY: no type implements the condition.
unsafe impl<P: Protocol + HeldAcrossAwait> Send for Transaction<'_, P> {}
// SAFETY: as above.
unsafe impl<P: Protocol + HeldAcrossAwait> Sync for Transaction<'_, P> {}

impl<P: Protocol> std::fmt::Debug for Transaction<'_, P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let doomed = self.doomed.get().map(|abort| abort.reason);
        formatter.debug_struct("Transaction").field("doomed", &doomed).finish_non_exhaustive()
    }
}

/// The deadline is checked once in this many operations, since reading a clock costs about as much as a read.
const OPERATIONS_PER_DEADLINE_CHECK: u32 = 32;

type RecordOf<P> = RecordPointer<<P as Protocol>::Header>;

impl<'db, P: Protocol> Transaction<'db, P> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn begin(
        database: &'db Engine<P>,
        worker: &'db Worker<P>,
        attempt: u32,
        deadline: Option<&'db Deadline>,
        _: Unstable,
    ) -> Result<Self, Failure> {
        Self::start(database, worker, false, attempt, deadline)?;
        Ok(Self::started(database, worker, attempt, deadline))
    }

    /// Lets the claim of the worker end with the transaction.
    pub(crate) fn with_claim(mut self, claim: Claim<'db, P>) -> Self {
        self.claim = Some(claim);
        self
    }

    /// Does what must come before a transaction exists. If this succeeds, the caller must make the transaction
    /// next, by [`Transaction::started`]. `is_pinned` says whether the worker is pinned already.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn start(
        database: &Engine<P>,
        worker: &Worker<P>,
        is_pinned: bool,
        attempt: u32,
        deadline: Option<&Deadline>,
    ) -> Result<(), Failure> {
        if !is_pinned && worker.active.get() {
            return Err(Failure::NestedTransaction);
        }
        // Before the transaction begins, the executor may already be at work for others that have committed. This
        // call may come from the user's code that it runs.
        if (P::SPLITS || P::CHOPS) && worker.memory.is_in_user_code() {
            return Err(Failure::NestedOperation);
        }
        record_invocation(worker);
        if P::CHOPS {
            worker.memory.set_deadline(deadline.copied(), attempt + 1);
        }
        // Pin the worker: from here on, nothing that the transaction can find is freed.
        worker.executor().announce(is_pinned);
        if !is_pinned {
            worker.memory.pin();
        }
        let beginning = BeginGuard(&worker.memory);
        // A reconciliation that has begun is finished, even if the database is closed in the meantime.
        if let Err(failure) = database.shared.check_open()
            && !worker.memory.is_reconciling()
        {
            worker.executor().retract();
            return Err(failure);
        }
        worker.memory.set_now(database.shared.time.present());
        worker.memory.begin_versions();
        // Before the executor begins, since from there on a region may be open, which can be undone at any store.
        worker.next_serial();
        if let Err(refusal) = worker.executor().begin(attempt, &worker.memory) {
            worker.executor().retract();
            return Err(match refusal {
                Refusal::Busy => Failure::SingleThreaded { protocol: P::NAME },
                Refusal::Failure(failure) => failure,
            });
        }
        // The transaction has begun, so the worker stays pinned.
        std::mem::forget(beginning);
        worker.active.set(true);
        Ok(())
    }

    /// Returns the transaction that was started on this worker.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn started(
        database: &'db Engine<P>,
        worker: &'db Worker<P>,
        attempt: u32,
        deadline: Option<&'db Deadline>,
    ) -> Self {
        Transaction {
            database,
            worker,
            claim: None,
            doomed: Cell::new(None),
            deadline,
            is_limited: Cell::new(
                deadline.is_some() || database.shared.ages.transaction_limit.is_some(),
            ),
            snapshot_opener: None,
            has_no_snapshot: Cell::new(false),
            snapshot: Cell::new(0),
            snapshot_reads: Cell::new(0),
            writes: Cell::new(false),
            failed_scan: Cell::new(None),
            has_failed_scan: Cell::new(false),
            attempt,
            operations: Cell::new(0),
            is_used: Cell::new(false),
            is_admitted: Cell::new(false),
            valid_until: Cell::new(0),
            is_torn: Cell::new(false),
            is_in_steps: Cell::new(false),
        }
    }

    #[cfg(feature = "canary")]
    fn has_flaw(&self, flaw: OperationFlaw) -> bool {
        self.worker.memory.has_flaw(flaw)
    }

    // ---- for drivers of procedures, in other crates -----------------------------------------

    /// Returns the worker that the transaction runs on.
    #[doc(hidden)]
    #[inline(always)]
    pub fn worker(&self, _: Unstable) -> &'db Worker<P> {
        self.worker
    }

    /// Returns the part of the database that the transaction works on.
    #[doc(hidden)]
    #[inline(always)]
    pub fn engine(&self, _: Unstable) -> &'db Engine<P> {
        self.database
    }

    /// Returns the conflict that dooms the transaction, if one does.
    #[doc(hidden)]
    pub fn doomed(&self) -> Option<Abort> {
        self.doomed.get()
    }

    /// Removes the conflict that dooms the transaction. What the transaction has done since was undone, also an
    /// operation that was half done when the simulated machine rolled a region back.
    #[doc(hidden)]
    pub fn forget_doom(&self, _: Unstable) {
        self.doomed.set(None);
        self.is_torn.set(false);
        self.forget_failed_scan();
    }

    /// Removes the deadline, and the limit on the age.
    #[doc(hidden)]
    pub fn forget_deadline(&self) {
        self.is_limited.set(false);
    }

    // ---- point operations -------------------------------------------------------------------

    /// Returns the row with this primary key, or `None` if there is no such row.
    ///
    /// The key is given by reference, or in a borrowed form ([`KeyLookup`]): a `&str` if it is a `String`, a tuple of
    /// borrowed parts if it has several columns.
    ///
    /// ```
    /// # use weft::{Database, Record};
    /// # #[derive(Clone, Record)]
    /// # struct Grade { #[record(key)] pupil: String, #[record(key)] year: u16, grade: u8 }
    /// # let database = Database::builder().table::<Grade>().open()?;
    /// # let grades = database.table::<Grade>()?;
    /// # database.transact(|tx| tx.insert(&grades, Grade { pupil: "Ada".into(), year: 3, grade: 1 }))?;
    /// database.transact(|tx| {
    ///     let grade = tx.get(&grades, ("Ada", 3))?;
    ///     assert_eq!(grade.map(|row| row.grade), Some(1));
    ///     Ok::<_, weft::Error>(())
    /// })?;
    /// # Ok::<(), weft::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Conflict`](crate::Conflict); [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`].
    #[inline]
    pub fn get<T: Record>(
        &self,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
    ) -> Result<Option<&T>, Error> {
        let table = self.enter_operation(table)?;
        self.get_located(table, &key, self.locate(table, &key), |record| {
            self.read(table.reference(), record)
        })
    }

    /// Returns whether there is a row with this primary key. (This reads the row, as [`Transaction::get`] does.)
    ///
    /// # Errors
    /// As [`Transaction::get`].
    #[inline]
    pub fn contains<T: Record>(
        &self,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
    ) -> Result<bool, Error> {
        Ok(self.get(table, key)?.is_some())
    }

    /// Fetches the rows with these primary keys into the processor's cache, all at the same time. Call it before
    /// you read the rows, and read them in this order if you can. This is only a hint: the transaction does not
    /// read anything by it, and absent keys do no harm.
    ///
    /// If a table is larger than the cache, an operation waits for memory three times: for the index, for the
    /// record and for the row. Ten operations whose rows were prefetched together wait about as long as one. Only
    /// the beginning of a large row is fetched. [`Transaction::prefetch_for_update`] fetches more.
    ///
    /// # Errors
    /// [`Conflict`](crate::Conflict) if the transaction met one before; [`Failure::ForeignTable`],
    /// [`Failure::DeadlineExceeded`].
    #[inline]
    pub fn prefetch<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl IntoIterator<Item: KeyPart<T::Key>>,
    ) -> Result<(), Error> {
        self.prefetch_rows(table, keys, PREFETCH_READ_BYTES)
    }

    /// As [`Transaction::prefetch`], for rows that are about to be updated. An update copies the whole row, so this
    /// fetches more of a large row.
    ///
    /// # Errors
    /// As [`Transaction::prefetch`].
    #[inline]
    pub fn prefetch_for_update<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl IntoIterator<Item: KeyPart<T::Key>>,
    ) -> Result<(), Error> {
        self.prefetch_rows(table, keys, PREFETCH_UPDATE_BYTES)
    }

    /// Inserts a row.
    ///
    /// # Errors
    /// - [`Failure::DuplicateKey`] if there is a row with the same primary key, or with the same key in a unique
    ///   index.
    /// - [`Failure::Constraint`] if the row breaks one of its constraints.
    /// - [`Failure::StoredRowTooLarge`] if the row is too long to be stored.
    /// - [`Conflict`](crate::Conflict), [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`].
    ///
    /// After a failure the table is as it was before the call.
    #[inline]
    pub fn insert<T: Record>(&self, table: &Table<T>, row: T) -> Result<(), Error> {
        let table = self.enter_writing(table)?;
        table.check(&row)?;
        let Some(row) = self.insert_row(table, row)? else { return Ok(()) };
        match self.take_place(table, row)? {
            None => Ok(()),
            Some(row) => Err(duplicate(table, &row.key())),
        }
    }

    /// Updates the row with this primary key. `change` gets a copy of the row and changes it. The changed copy
    /// replaces the row. Returns what `change` returned, or `None` if there is no such row.
    ///
    /// # Errors
    /// - [`Failure::KeyChanged`] if `change` changed the primary key.
    /// - [`Failure::Constraint`] if the changed row breaks one of its constraints.
    /// - [`Failure::DuplicateKey`] if another row has the new key in a unique index.
    /// - [`Failure::StoredRowTooLarge`] if the changed row is too long to be stored.
    /// - [`Failure::NestedWrite`] if `change` wrote the same row through the transaction.
    /// - [`Conflict`](crate::Conflict), [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`].
    ///
    /// After a failure the row is as it was before the call.
    #[inline]
    pub fn update<T: Record, R>(
        &self,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, Error> {
        let table = self.enter_writing(table)?;
        self.update_located(table, &key, self.locate(table, &key), None, change)
    }

    /// As [`Transaction::update`], for a key that was located before. `columns` are those that `change` uses, if it
    /// does not use the whole row.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn update_located<T: Record, R>(
        &self,
        table: &TableInner<T>,
        key: &impl KeyLookup<T::Key>,
        located: LookupResult<P>,
        columns: Option<UsedColumns>,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, Error> {
        match self.observe_located(table, key, located)? {
            Some((record, row, version)) => {
                // SAFETY: a visible row of this table; see `row`.
                let old = unsafe { self.row::<T>(row) };
                let read = UnwrittenRead {
                    worker: self.worker,
                    table: table.reference(),
                    record,
                    version,
                };
                self.make_room(table.reference(), Growth::Update)?;
                let mut new = PrivateRow::cloned(self.worker, table.reference(), old);
                let result = change(new.get_mut());
                // SAFETY: the row is forgotten in the next line.
                unsafe { self.replace(table, record, version, old, &new, columns)? };
                std::mem::forget(new);
                self.record_lookup(table.reference(), key, Event::Write);
                // The write validates the read.
                std::mem::forget(read);
                Ok(Some(result))
            }
            None => Ok(None),
        }
    }

    /// Inserts a row, or replaces the row with the same primary key. Returns whether it replaced one.
    ///
    /// # Errors
    /// As [`Transaction::insert`], except for a duplicate primary key.
    pub fn upsert<T: Record>(&self, table: &Table<T>, row: T) -> Result<bool, Error> {
        let inner = self.enter_writing(table)?;
        inner.check(&row)?;
        let Some(row) = self.insert_row(inner, row)? else { return Ok(false) };
        let Some(row) = self.take_place(inner, row)? else { return Ok(false) };
        let Some((record, old, version)) = self.observe(inner, &&row.key())? else {
            // The row was visible a moment ago, and is in this transaction's read set.
            return Err(self.miss(inner.reference()));
        };
        // SAFETY: a visible row of this table; see `row`.
        let old = unsafe { self.row::<T>(old) };
        self.make_room(inner.reference(), Growth::Update)?;
        let new = PrivateRow::new(self.worker, inner.reference(), row);
        // SAFETY: the row is forgotten in the next line.
        unsafe { self.replace(inner, record, version, old, &new, None)? };
        std::mem::forget(new);
        self.record(inner.reference(), &old.key(), Event::Write);
        Ok(true)
    }

    /// Deletes the row with this primary key. Returns whether there was such a row.
    ///
    /// # Errors
    /// [`Conflict`](crate::Conflict); [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`].
    pub fn delete<T: Record>(
        &self,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
    ) -> Result<bool, Error> {
        let table = self.enter_writing(table)?;
        self.make_room(table.reference(), Growth::Delete)?;
        // The key is encoded first, since after the observation the user's code must not change the row any more.
        let primary = with_form!(T::Key::WIDTH_BYTES, |K| K::from_lookup(&key).erase());
        let Some((record, row, version)) = self.observe(table, &key)? else { return Ok(false) };
        // SAFETY: a visible row of this table; see `row`.
        let row = unsafe { self.row::<T>(row) };
        let steps = Steps::begin(self);
        for position in 0..table.secondary.len() {
            self.remove_entry_of(table, position, row, record, version)?;
        }
        drop(steps);
        self.worker.executor().remove(table.reference(), record, version, primary);
        self.record_lookup(table.reference(), &key, Event::Delete);
        Ok(true)
    }

    // ---- steps of the operations ------------------------------------------------------------

    /// The beginning of every operation.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn enter<'t, T: Record>(&self, table: &'t Table<T>) -> Result<&'t TableInner<T>, Error> {
        #[cfg(weft_sim)]
        weft_htm::simulation::sync::operate();
        if !std::sync::Arc::ptr_eq(&table.inner.identity, &self.database.identity) {
            return Err(Failure::ForeignTable { table: table.name() }.into());
        }
        if self.doomed.get().is_some() || self.is_limited.get() {
            self.check_doom_and_deadline()?;
        }
        if self.is_in_steps.get() {
            return Err(Failure::NestedOperation.into());
        }
        self.check_user_code()?;
        Ok(&table.inner)
    }

    /// Refuses operations that code of the user's types begins while the executor is at work, under protocols whose
    /// executors run such code.
    #[inline(always)]
    pub(super) fn check_user_code(&self) -> Result<(), Error> {
        if (P::SPLITS || P::CHOPS) && self.worker.memory.is_in_user_code() {
            return Err(Failure::NestedOperation.into());
        }
        Ok(())
    }

    /// The beginning of every operation that writes.
    #[inline(always)]
    fn enter_writing<'t, T: Record>(
        &self,
        table: &'t Table<T>,
    ) -> Result<&'t TableInner<T>, Error> {
        self.writes.set(true);
        if self.database.is_durable() && !self.is_admitted.replace(true) {
            self.admit()?;
        }
        // The first operation opens the snapshot, if the transaction is to read one.
        let inner = self.enter_operation(table)?;
        if self.reads_snapshot() {
            return Err(self.leave_snapshot(inner.reference()));
        }
        Ok(inner)
    }

    /// Notes that the log has already allowed the transaction to write.
    pub(crate) fn set_admitted(&self) {
        self.is_admitted.set(true);
    }

    /// Asks the log whether the transaction may write. Waits while the log has too much to write already.
    #[cold]
    fn admit(&self) -> Result<(), Error> {
        Ok(self.database.log()?.admit().map_err(Failure::from)?)
    }

    /// The beginning of every operation on a single row.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn enter_operation<'t, T: Record>(
        &self,
        table: &'t Table<T>,
    ) -> Result<&'t TableInner<T>, Error> {
        let inner = self.enter(table)?;
        if P::SINGLE_KEY && self.is_used.replace(true) {
            let attempted = "a second operation in one transaction";
            return Err(
                Failure::SingleKey { protocol: P::NAME, table: inner.name(), attempted }.into()
            );
        }
        Ok(inner)
    }

    /// Makes sure that a write stays within the memory limit.
    #[inline(always)]
    pub(super) fn make_room(&self, table: TableRef, growth: Growth) -> Result<(), Error> {
        self.worker.memory.make_room(table.core(), growth, 0)
    }

    #[cold]
    fn check_doom_and_deadline(&self) -> Result<(), Error> {
        if let Some(abort) = self.doomed.get() {
            return Err(self.describe(abort).into());
        }
        if !self.is_limited.get() {
            return Ok(());
        }
        if P::RESTARTS_IN_SNAPSHOTS {
            self.open_its_snapshot()?;
        }
        self.check_age()?;
        self.operations.set(self.operations.get().wrapping_add(1));
        match self.deadline {
            Some(deadline)
                if self.operations.get().is_multiple_of(OPERATIONS_PER_DEADLINE_CHECK) =>
            {
                Ok(deadline.check(self.attempt + 1)?)
            }
            _ => Ok(()),
        }
    }

    /// Dooms the transaction, and returns the conflict as an error.
    #[doc(hidden)]
    #[cold]
    pub fn doom_by(&self, abort: Abort) -> Error {
        self.doomed.set(Some(abort));
        self.describe(abort).into()
    }

    #[cold]
    fn doom(&self, reason: ConflictReason, table: TableRef) -> Error {
        self.doom_by(Abort::of_table(reason, table))
    }

    /// Returns the error for a row that the transaction has seen, and noted as read, but does not find under its
    /// keys. Either the row has changed since, which is a conflict. Or its type does not always return the same
    /// keys. In this case a retry would not help, and the transaction must not commit as it is.
    #[cold]
    fn miss(&self, table: TableRef) -> Error {
        // A protocol for single operations has no reads to validate. What it has not found may have changed.
        if P::SINGLE_KEY || self.conflict().is_some() {
            return self.doom(ConflictReason::ReadChanged, table);
        }
        self.is_torn.set(true);
        let core = table.core();
        Failure::InconsistentKeys { table: core.name, index: core.index }.into()
    }

    #[inline(always)]
    fn read(&self, table: TableRef, record: RecordOf<P>) -> Result<Visible, Error> {
        if self.reads_snapshot() {
            return Ok(self.read_in_snapshot(record));
        }
        let memory = &self.worker.memory;
        self.worker.executor().read(table, record, memory).map_err(|abort| self.doom_by(abort))
    }

    /// As [`Transaction::read`], for an operation that uses only these columns.
    #[inline(always)]
    fn read_columns(
        &self,
        table: TableRef,
        record: RecordOf<P>,
        columns: ColumnSet,
    ) -> Result<Visible, Error> {
        if self.reads_snapshot() {
            return Ok(self.read_in_snapshot(record));
        }
        let (executor, memory) = (self.worker.executor(), &self.worker.memory);
        let read = executor.read_columns(table, record, columns, memory);
        read.map_err(|abort| self.doom_by(abort))
    }

    #[inline(always)]
    fn read_for_write(
        &self,
        table: TableRef,
        record: RecordOf<P>,
    ) -> Result<Observation<<P::Executor as Executor>::Version>, Error> {
        if self.reads_snapshot() {
            return Err(self.leave_snapshot(table));
        }
        let (executor, memory) = (self.worker.executor(), &self.worker.memory);
        executor.read_for_write(table, record, memory).map_err(|abort| self.doom_by(abort))
    }

    #[inline(always)]
    fn note_node(&self, table: TableRef, node: NodeVersion) -> Result<(), Error> {
        self.note_scanned(table, node, None).map(drop)
    }

    /// Notes the range of a node that was scanned. Returns the position of the note.
    #[inline(always)]
    fn note_scanned(
        &self,
        table: TableRef,
        node: NodeVersion,
        range: Option<ScannedRange>,
    ) -> Result<usize, Error> {
        if self.reads_snapshot() {
            return Ok(0);
        }
        self.worker.executor().note_node(table, node, range).map_err(|abort| self.doom_by(abort))
    }

    /// Returns a row as a reference.
    ///
    /// # Safety
    /// `row` is a row of type `R` that was visible in this transaction. Such a row is neither changed nor freed as
    /// long as the transaction lasts, and the transaction cannot end while `self` is borrowed.
    #[inline(always)]
    unsafe fn row<R>(&self, row: NonNull<u8>) -> &R {
        #[cfg(weft_sim)]
        weft_htm::simulation::sync::touch(row.as_ptr(), size_of::<R>(), false);
        // SAFETY: by this function's contract.
        unsafe { row.cast::<R>().as_ref() }
    }

    /// Returns a row as a reference, and remembers it as the last row that was read in the table (DBX §6.2).
    ///
    /// # Safety
    /// As [`Transaction::row`].
    #[inline(always)]
    unsafe fn remember<T: Record>(
        &self,
        table: &TableInner<T>,
        record: RecordOf<P>,
        row: NonNull<u8>,
    ) -> &T {
        self.worker.buffer(table.number()).last = Some((record.address(), row));
        // SAFETY: by this function's contract.
        unsafe { self.row(row) }
    }

    /// Returns the visible row under a key that was located before. If there is no row, notes its absence. `read`
    /// reads a record.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn get_located<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &impl KeyLookup<T::Key>,
        mut located: LookupResult<P>,
        read: impl Fn(RecordOf<P>) -> Result<Visible, Error>,
    ) -> Result<Option<&T>, Error> {
        loop {
            match located {
                LookupResult::Record(record) => match read(record)? {
                    Visible::Row(row) => {
                        self.record_lookup(table.reference(), key, Event::Read(Some(row)));
                        // SAFETY: a visible row of this table; see `row`.
                        let visible = unsafe { self.remember(table, record, row) };
                        return Ok((!self.has_disappeared(visible)).then_some(visible));
                    }
                    Visible::Absent => break,
                    Visible::Removed => self.forget(table),
                },
                LookupResult::Absent(node) => {
                    self.note_node(table.reference(), node)?;
                    break;
                }
            }
            located = self.locate(table, key);
        }
        self.record_lookup(table.reference(), key, Event::Read(None));
        Ok(None)
    }

    /// Finds the visible row under a key that is about to be written. The read is validated with the write. If
    /// there is no row, its absence is noted as a read.
    #[inline(always)]
    #[allow(clippy::type_complexity, reason = "record, row and version belong together")]
    fn observe<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &impl KeyLookup<T::Key>,
    ) -> Result<Option<(RecordOf<P>, NonNull<u8>, <P::Executor as Executor>::Version)>, Error> {
        self.observe_located(table, key, self.locate(table, key))
    }

    /// As [`Transaction::observe`], for a key that was located before.
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[allow(clippy::type_complexity, reason = "record, row and version belong together")]
    fn observe_located<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &impl KeyLookup<T::Key>,
        mut located: LookupResult<P>,
    ) -> Result<Option<(RecordOf<P>, NonNull<u8>, <P::Executor as Executor>::Version)>, Error> {
        loop {
            match located {
                LookupResult::Record(record) => {
                    let observed = self.read_for_write(table.reference(), record)?;
                    match observed.visible {
                        Visible::Row(row) => {
                            self.record_lookup(table.reference(), key, Event::Read(Some(row)));
                            // SAFETY: a visible row of this table; see `row`.
                            if self.has_disappeared(unsafe { self.row::<T>(row) }) {
                                let executor = self.worker.executor();
                                executor.note_read(table.reference(), record, observed.version);
                                return Ok(None);
                            }
                            return Ok(Some((record, row, observed.version)));
                        }
                        Visible::Absent => {
                            // Nothing will be written, so the absence must be validated as a read.
                            let executor = self.worker.executor();
                            executor.note_read(table.reference(), record, observed.version);
                            break;
                        }
                        Visible::Removed => self.forget(table),
                    }
                }
                LookupResult::Absent(node) => {
                    self.note_node(table.reference(), node)?;
                    break;
                }
            }
            located = self.locate(table, key);
        }
        self.record_lookup(table.reference(), key, Event::Read(None));
        Ok(None)
    }
}

/// An operation in several steps, between which the user's code runs. That code must not use the transaction at
/// that time. If it panics, only some of the steps were done, and the transaction must not commit, even if its
/// closure goes on.
struct Steps<'t> {
    is_torn: &'t Cell<bool>,
    is_in_steps: &'t Cell<bool>,
}

impl<'t> Steps<'t> {
    #[inline(always)]
    fn begin<P: Protocol>(transaction: &'t Transaction<'_, P>) -> Self {
        transaction.is_in_steps.set(true);
        Steps { is_torn: &transaction.is_torn, is_in_steps: &transaction.is_in_steps }
    }
}

impl Drop for Steps<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.is_in_steps.set(false);
        if std::thread::panicking() {
            self.is_torn.set(true);
        }
    }
}

/// A transaction that is about to begin, and whose worker is pinned. Dropping this unpins the worker, unless the
/// simulated machine undoes the region: then the worker stays pinned, since the next transaction begins at once.
struct BeginGuard<'w>(&'w WorkerMemory);

impl Drop for BeginGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.regions().is_undone() {
            self.0.note_ended();
            self.0.unpin();
        }
    }
}

/// A row that was read to be updated. It is dropped if an error or a panic prevents the update. The row then counts
/// as a plain read, since the error or the panic is valid only while the row is current.
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
