//! Transactions: typed operations on tables, between a begin and a commit.
//!
//! This is the layer that knows keys, rows and indexes. Every operation has the same shape: find
//! the record in an index, and tell the protocol's executor what is done with it. What the
//! executor does about it (remember, lock, validate, undo) is the protocol's affair.
//!
//! Rows are handed out as plain references. They are never changed while the transaction lasts:
//! an update makes a new version, also of a row that this transaction has written before.

mod by_columns;
mod deferred;
mod lookup;
mod operations;
mod prefetch;
mod private_row;
mod recording;
mod scan;
mod writes;

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::RangeBounds;
use std::ptr::NonNull;

pub use scan::Scan;

use weft_htm::word::yield_now;

use crate::commit::{
    Abort, ChopsProcedures, CommitToken, Dbx, Engine, Executor, Observation, Protocol, Refusal,
    RepairsTransactions, Unstable, Visible, Worker,
};
use crate::error::{Conflict, ConflictReason, Error, Failure};
use crate::index::NodeVersion;
use crate::index::bplus_tree::ScannedRange;
use crate::plan::StepColumns;
use crate::row::encoding::{Key, KeyForm, KeyPrefix};
use crate::row::schema::{Index, Record};
use crate::store::deadline::Deadline;
use crate::store::ranges::{describe_range, encode_index_range, encode_range, prefix_of};
use crate::store::record::RecordPointer;
use crate::store::table::{Table, TableInner, TableRef, check, with_form, with_secondary};
use crate::store::worker::{Committing, Counters, WorkerMemory};
use lookup::Located;
use prefetch::{PREFETCH_READ_BYTES, PREFETCH_UPDATE_BYTES};
use private_row::PrivateRow;
use recording::{Event, record_invocation};
use writes::duplicate;

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
    database: &'db Engine<P>,
    worker: &'db Worker<P>,
    /// What dooms it, if anything does.
    doomed: Cell<Option<Abort>>,
    deadline: Cell<Option<Deadline>>,
    attempt: u32,
    /// Counts operations, so that the deadline is not looked at too often.
    operations: Cell<u32>,
    /// Whether it has had the one operation that a single-key protocol allows.
    is_used: Cell<bool>,
    /// Whether the log has let it write.
    is_admitted: Cell<bool>,
    /// Whether an operation was left when it was half done.
    is_torn: Cell<bool>,
    /// Whether an operation in several steps is under way: see [`Steps`].
    is_in_steps: Cell<bool>,
}

impl<P: Protocol> std::fmt::Debug for Transaction<'_, P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let doomed = self.doomed.get().map(|abort| abort.reason);
        formatter.debug_struct("Transaction").field("doomed", &doomed).finish_non_exhaustive()
    }
}

/// How often a transaction is repaired before it is restarted.
const ROUNDS_MAX: u32 = 8;

/// Every so many operations the deadline is looked at: a clock costs about as much as a read.
const OPERATIONS_PER_DEADLINE_CHECK: u32 = 32;

type RecordOf<P> = RecordPointer<<P as Protocol>::Header>;

impl<'db, P: Protocol> Transaction<'db, P> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn begin(
        database: &'db Engine<P>,
        worker: &'db Worker<P>,
        attempt: u32,
        deadline: Option<Deadline>,
        _: Unstable,
    ) -> Result<Self, Failure> {
        Self::start(database, worker, attempt, deadline)?;
        Ok(Self::started(database, worker, attempt, deadline))
    }

    /// What has to be done before a transaction is there. If this returns without an error, it has to be
    /// made next, by [`Transaction::started`].
    #[inline(always)]
    pub(crate) fn start(
        database: &Engine<P>,
        worker: &Worker<P>,
        attempt: u32,
        deadline: Option<Deadline>,
    ) -> Result<(), Failure> {
        if worker.active.get() {
            return Err(Failure::NestedTransaction);
        }
        // The executor may be at work before the transaction begins, for others that have committed.
        if (P::SPLITS || P::CHOPS) && worker.memory.is_in_user_code() {
            return Err(Failure::NestedOperation);
        }
        record_invocation(worker);
        if P::CHOPS {
            worker.memory.set_deadline(deadline, attempt + 1);
        }
        worker.executor().announce();
        worker.memory.pin();
        let beginning = Beginning(&worker.memory);
        // A reconciliation that has begun is finished, whoever closes the database meanwhile.
        if let Err(failure) = database.shared.check_open()
            && !worker.memory.is_reconciling()
        {
            worker.executor().retract();
            return Err(failure);
        }
        if let Err(refusal) = worker.executor().begin(attempt, &worker.memory) {
            worker.executor().retract();
            return Err(match refusal {
                Refusal::Busy => Failure::SingleThreaded { protocol: P::NAME },
                Refusal::Failure(failure) => failure,
            });
        }
        std::mem::forget(beginning);
        worker.active.set(true);
        worker.next_serial();
        Ok(())
    }

    /// The transaction that was started on this worker.
    #[inline(always)]
    pub(crate) fn started(
        database: &'db Engine<P>,
        worker: &'db Worker<P>,
        attempt: u32,
        deadline: Option<Deadline>,
    ) -> Self {
        Transaction {
            database,
            worker,
            doomed: Cell::new(None),
            deadline: Cell::new(deadline),
            attempt,
            operations: Cell::new(0),
            is_used: Cell::new(false),
            is_admitted: Cell::new(false),
            is_torn: Cell::new(false),
            is_in_steps: Cell::new(false),
        }
    }

    // ---- for drivers of procedures, in other crates -----------------------------------------

    /// The worker that it runs on.
    #[doc(hidden)]
    #[inline(always)]
    pub fn worker(&self, _: Unstable) -> &'db Worker<P> {
        self.worker
    }

    /// What it works on.
    #[doc(hidden)]
    #[inline(always)]
    pub fn engine(&self, _: Unstable) -> &'db Engine<P> {
        self.database
    }

    /// What dooms it, if anything does.
    #[doc(hidden)]
    pub fn doomed(&self) -> Option<Abort> {
        self.doomed.get()
    }

    /// Says that nothing dooms it any more: what it has done since was undone.
    #[doc(hidden)]
    pub fn forget_doom(&self, _: Unstable) {
        self.doomed.set(None);
    }

    /// Says that it has no deadline any more.
    #[doc(hidden)]
    pub fn forget_deadline(&self) {
        self.deadline.set(None);
    }

    // ---- point operations -------------------------------------------------------------------

    /// The row with this primary key.
    ///
    /// # Errors
    /// [`Conflict`]; [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`].
    #[inline]
    pub fn get<T: Record>(&self, table: &Table<T>, key: &T::Key) -> Result<Option<&T>, Error> {
        let table = self.enter_operation(table)?;
        loop {
            match self.locate(table, key) {
                Located::Record(record) => match self.read(table.reference(), record)? {
                    Visible::Row(row) => {
                        self.record(table.reference(), key, Event::Read(Some(row)));
                        // SAFETY: a visible row of this table; see `row`.
                        return Ok(Some(unsafe { self.remember(table, record, row) }));
                    }
                    Visible::Absent => break,
                    Visible::Removed => self.forget(table),
                },
                Located::Absent(node) => {
                    self.note_node(table.reference(), node)?;
                    break;
                }
            }
        }
        self.record(table.reference(), key, Event::Read(None));
        Ok(None)
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
        table: &Table<T>,
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
        table: &Table<T>,
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
    pub fn insert<T: Record>(&self, table: &Table<T>, row: T) -> Result<(), Error> {
        let table = self.enter_writing(table)?;
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
        table: &Table<T>,
        key: &T::Key,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, Error> {
        let table = self.enter_writing(table)?;
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
                self.record(table.reference(), key, Event::Write);
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
    pub fn upsert<T: Record>(&self, table: &Table<T>, row: T) -> Result<bool, Error> {
        let inner = self.enter_writing(table)?;
        check(&row)?;
        let Some(row) = self.insert_row(inner, row)? else { return Ok(false) };
        let Some((record, old, version)) = self.observe(inner, &row.key())? else {
            // It was visible a moment ago, and is in this transaction's read set.
            return Err(self.miss(inner.reference()));
        };
        // SAFETY: a visible row of this table; see `row`.
        let old = unsafe { self.row::<T>(old) };
        let new = PrivateRow::new(self.worker, inner.reference(), row);
        self.replace(inner, record, version, old, new)?;
        self.record(inner.reference(), &old.key(), Event::Write);
        Ok(true)
    }

    /// Deletes the row with this primary key; false if there is none.
    ///
    /// # Errors
    /// [`Conflict`]; [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`].
    pub fn delete<T: Record>(&self, table: &Table<T>, key: &T::Key) -> Result<bool, Error> {
        let table = self.enter_writing(table)?;
        // Encoded first: from the observation on, the user's code can no longer change the row.
        let primary = with_form!(T::Key::WIDTH_BYTES, |K| K::from_key(key).erase());
        let Some((record, row, version)) = self.observe(table, key)? else { return Ok(false) };
        // SAFETY: a visible row of this table; see `row`.
        let row = unsafe { self.row::<T>(row) };
        let steps = Steps::begin(self);
        for position in 0..table.secondary.len() {
            self.remove_entry_of(table, position, row, record, version)?;
        }
        drop(steps);
        self.worker.executor().remove(table.reference(), record, version, primary);
        self.record(table.reference(), key, Event::Delete);
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
        table: &'tx Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> Scan<'tx, 'db, T, P> {
        let scan = with_form!(T::Key::WIDTH_BYTES, |K| {
            let bounds = encode_range::<K, _>(&range);
            Scan::primary::<K>(self, table, bounds, || describe_range(&range))
        });
        #[cfg(feature = "history")]
        let scan = scan.recorded(|| crate::history::key_range(&range));
        scan
    }

    /// The rows whose primary keys begin with `prefix`, in the order of the keys: for a key
    /// `(A, B, C)`, a prefix is an `A`, `(A,)` or `(A, B)`.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn prefix<'tx, T: Record>(
        &'tx self,
        table: &'tx Table<T>,
        prefix: &impl KeyPrefix<T::Key>,
    ) -> Scan<'tx, 'db, T, P> {
        let scan = with_form!(T::Key::WIDTH_BYTES, |K| {
            let bounds = K::prefix_range::<T::Key>(prefix);
            Scan::primary::<K>(self, table, bounds, Default::default)
        });
        #[cfg(feature = "history")]
        let scan = scan.recorded(|| crate::history::prefix_range(prefix));
        scan
    }

    /// The row with this key in a unique index.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_by<'tx, T: Record, K: Key>(
        &'tx self,
        table: &'tx Table<T>,
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
        table: &'tx Table<T>,
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
        table: &'tx Table<T>,
        index: Index<T, K>,
        prefix: &impl KeyPrefix<K>,
    ) -> Scan<'tx, 'db, T, P> {
        with_secondary!(&table.inner.secondary[index.position()], |secondary| {
            let bounds = prefix_of(secondary, prefix);
            Scan::secondary(self, table, secondary, bounds, Default::default)
        })
    }

    // ---- the end ----------------------------------------------------------------------------

    /// Commits. Returns when the transaction is durable, if the database acknowledges durable commits
    /// only. The token serves to [wait](crate::Database::wait_durable) for that where it does not.
    ///
    /// # Errors
    /// [`Conflict`]: nothing was changed; run the transaction again. [`Failure::Storage`]: it has
    /// committed, but could not be made durable.
    pub fn commit(self) -> Result<CommitToken, Error> {
        let (database, worker) = (self.database, self.worker);
        match self.finish(None, Unstable::ENGINE) {
            Ok(token) => {
                self.end_committed(Unstable::ENGINE);
                database.acknowledge(|| Some(worker), token)?;
                Ok(token)
            }
            Err(abort) => {
                let conflict = self.describe(abort);
                self.give_way(abort);
                Err(conflict.into())
            }
        }
    }

    /// Rolls back. (So does dropping it.)
    pub fn rollback(self) {}

    /// Commits, by [columns](Transaction::columns) if there are any. Then nothing is left to do but to
    /// [end](Transaction::end_committed). Or there is a conflict, to be [described](Transaction::describe) and
    /// to [give way](Transaction::give_way) to.
    #[doc(hidden)]
    #[inline(always)]
    pub fn finish(
        &self,
        columns: Option<&[StepColumns]>,
        _: Unstable,
    ) -> Result<CommitToken, Abort> {
        self.commit_by_columns(Unstable::ENGINE, self.columns(columns), || {
            self.commit_here(Unstable::ENGINE)
        })
    }

    /// Commits, if it can. Then nothing is left to do but to [end](Transaction::end_committed).
    #[doc(hidden)]
    #[inline(always)]
    pub fn commit_here(&self, _: Unstable) -> Result<CommitToken, Abort> {
        if let Some(abort) = self.doomed.get() {
            return Err(abort);
        }
        let memory = &self.worker.memory;
        self.stage_writes(Unstable::ENGINE);
        let _committing = Committing(memory);
        self.worker.executor().commit(memory, || {
            self.record_serialization();
            memory.draw()
        })?;
        if !memory.is_reconciling() {
            Counters::count(&memory.counters().committed);
        }
        self.record_commit();
        Ok(CommitToken::of(memory.last_epoch_relied_on()))
    }

    /// Encodes what is to be logged, before anything is locked or installed. If the user's types panic,
    /// this does, and the transaction rolls back.
    #[doc(hidden)]
    #[inline(always)]
    pub fn stage_writes(&self, _: Unstable) {
        assert!(
            !self.is_torn.get(),
            "an operation of this transaction was left half done, because the row's type has panicked or does \
             not always say the same keys, and the closure went on; such a transaction cannot commit"
        );
        let memory = &self.worker.memory;
        if memory.is_staging() {
            self.stage_logged_writes();
        }
    }

    #[cold]
    #[inline(never)]
    fn stage_logged_writes(&self) {
        // SAFETY: pinned, as long as `self` is there; what the executor lists are rows of their tables,
        // of which it drops none, nor the others free any, before the transaction has ended.
        unsafe { self.worker.memory.stage(|list| self.worker.executor().list_writes(list)) };
    }

    /// Ends the transaction, which has committed.
    #[doc(hidden)]
    #[inline(always)]
    pub fn end_committed(self, _: Unstable) {
        // The end is here, not in `drop`.
        ManuallyDrop::new(self).end();
    }

    /// The conflict behind an error or a panic of the caller's; `None` if that was the caller's
    /// own, concluded from what still is current.
    #[doc(hidden)]
    pub fn conflict(&self) -> Option<Abort> {
        self.doomed.get().or_else(|| self.worker.executor().validate().err())
    }

    /// Spells out why the transaction must give way.
    #[cold]
    pub(crate) fn describe(&self, abort: Abort) -> Conflict {
        // SAFETY: pinned, as long as `self` is there.
        unsafe { abort.into_conflict() }
    }

    /// Rolls back, and counts the conflict.
    #[doc(hidden)]
    #[cold]
    pub fn give_way(self, abort: Abort) {
        let this = ManuallyDrop::new(self);
        let _rolling_back = RollingBack(&this);
        this.worker.memory.count_abort(abort.reason, abort.table);
        this.worker.executor().abort(&this.worker.memory);
        this.record_abort();
        this.end();
    }

    /// Undoes what it was to write, for the body to be run again as the same transaction: the worker stays
    /// pinned, and what the operations have found is known (HTCC §4). Whether that can be done.
    #[cold]
    pub(crate) fn repair(&self) -> bool {
        let (worker, memory) = (self.worker, &self.worker.memory);
        let is_on = |repairing: &mut <P::Executor as Executor>::Repairing| repairing.is_on();
        if !worker.executor().repairing().is_some_and(is_on) || !self.may_have_another_round() {
            return false;
        }
        if worker.round() > 0 {
            // The other may be waiting for a core.
            yield_now();
        }
        worker.next_round();
        self.keep_workset();
        if let Some(repairing) = worker.executor().repairing() {
            repairing.repair(memory);
        }
        Counters::count(&memory.counters().repairs);
        self.record_abort();
        record_invocation(worker);
        self.doomed.set(None);
        self.is_used.set(false);
        self.is_torn.set(false);
        true
    }

    /// Whether the transaction may go into another round. Each keeps it pinned: one that was interrupted for
    /// long, or goes on failing, lets what others have deleted pile up, where scans come across it.
    #[doc(hidden)]
    pub fn may_have_another_round(&self) -> bool {
        self.worker.round() < ROUNDS_MAX && !self.worker.memory.holds_back_others()
    }

    fn roll_back(&self) {
        let _rolling_back = RollingBack(self);
        if self.worker.memory.regions().is_undone() {
            return;
        }
        Counters::count(&self.worker.memory.counters().rolled_back);
        // One that has panicked as it was about to commit a piece may have left a region open.
        if let Some(chopping) = self.worker.executor().chopping() {
            chopping.close_region(&self.worker.memory);
        }
        self.worker.executor().abort(&self.worker.memory);
        self.record_rollback();
        self.end();
    }

    #[inline(always)]
    fn end(&self) {
        self.worker.memory.unpin();
        self.worker.active.set(false);
        // The transaction is over, and the user's `Drop`s may do as they like.
        self.worker.memory.run_discarded();
    }

    // ---- steps of the operations ------------------------------------------------------------

    /// What every operation begins with.
    #[inline(always)]
    fn enter<'t, T: Record>(&self, table: &'t Table<T>) -> Result<&'t TableInner<T>, Error> {
        #[cfg(weft_sim)]
        weft_htm::simulation::sync::operate();
        if !std::sync::Arc::ptr_eq(&table.inner.identity, &self.database.identity) {
            return Err(Failure::ForeignTable { table: T::TABLE }.into());
        }
        if self.doomed.get().is_some() || self.deadline.get().is_some() {
            self.check_doom_and_deadline()?;
        }
        if self.is_in_steps.get() {
            return Err(Failure::NestedOperation.into());
        }
        self.check_user_code()?;
        Ok(&table.inner)
    }

    /// Refuses operations that the user's types begin while the executor is at work, under protocols whose
    /// executors call them.
    #[inline(always)]
    pub(super) fn check_user_code(&self) -> Result<(), Error> {
        if (P::SPLITS || P::CHOPS) && self.worker.memory.is_in_user_code() {
            return Err(Failure::NestedOperation.into());
        }
        Ok(())
    }

    /// What every operation begins with that writes.
    #[inline(always)]
    fn enter_writing<'t, T: Record>(
        &self,
        table: &'t Table<T>,
    ) -> Result<&'t TableInner<T>, Error> {
        if self.database.is_durable() && !self.is_admitted.replace(true) {
            self.admit()?;
        }
        self.enter_operation(table)
    }

    /// Says that the log was asked already whether the transaction may write.
    pub(crate) fn set_admitted(&self) {
        self.is_admitted.set(true);
    }

    /// Asks the log whether the transaction may write; waits if there is too much in it already.
    #[cold]
    fn admit(&self) -> Result<(), Error> {
        Ok(self.database.log()?.admit().map_err(Failure::from)?)
    }

    /// What every operation on a single row begins with.
    #[inline(always)]
    fn enter_operation<'t, T: Record>(
        &self,
        table: &'t Table<T>,
    ) -> Result<&'t TableInner<T>, Error> {
        let inner = self.enter(table)?;
        if P::SINGLE_KEY && self.is_used.replace(true) {
            let attempted = "a second operation in one transaction";
            return Err(Failure::SingleKey { protocol: P::NAME, table: T::TABLE, attempted }.into());
        }
        Ok(inner)
    }

    #[cold]
    fn check_doom_and_deadline(&self) -> Result<(), Error> {
        if let Some(abort) = self.doomed.get() {
            return Err(self.describe(abort).into());
        }
        self.operations.set(self.operations.get().wrapping_add(1));
        match self.deadline.get() {
            Some(deadline)
                if self.operations.get().is_multiple_of(OPERATIONS_PER_DEADLINE_CHECK) =>
            {
                Ok(deadline.check(self.attempt + 1)?)
            }
            _ => Ok(()),
        }
    }

    /// Dooms the transaction, and spells out why.
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

    /// Explains that a row that the transaction has seen, and noted as read, is not under its keys. Either it
    /// has changed since. Or its type does not always say the same keys: then to run the transaction again
    /// would not help, and as it is it must not commit.
    #[cold]
    fn miss(&self, table: TableRef) -> Error {
        // A protocol for single operations has no reads to validate: what it has not found may have changed.
        if P::SINGLE_KEY || self.conflict().is_some() {
            return self.doom(ConflictReason::ReadChanged, table);
        }
        self.is_torn.set(true);
        let core = table.core();
        Failure::InconsistentKeys { table: core.name, index: core.index }.into()
    }

    #[inline(always)]
    fn read(&self, table: TableRef, record: RecordOf<P>) -> Result<Visible, Error> {
        let memory = &self.worker.memory;
        self.worker.executor().read(table, record, memory).map_err(|abort| self.doom_by(abort))
    }

    #[inline(always)]
    fn read_for_write(
        &self,
        table: TableRef,
        record: RecordOf<P>,
    ) -> Result<Observation<<P::Executor as Executor>::Version>, Error> {
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
        self.worker.executor().note_node(table, node, range).map_err(|abort| self.doom_by(abort))
    }

    /// A row as a reference.
    ///
    /// # Safety
    /// `row` is a row of type `R` that was visible in this transaction: then it is not changed,
    /// nor freed, as long as the transaction lasts, which cannot end while `self` is borrowed.
    #[inline(always)]
    unsafe fn row<R>(&self, row: NonNull<u8>) -> &R {
        #[cfg(weft_sim)]
        weft_htm::simulation::sync::touch(row.as_ptr(), size_of::<R>(), false);
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
        table: &TableInner<T>,
        record: RecordOf<P>,
        row: NonNull<u8>,
    ) -> &T {
        self.worker.buffer(table.number()).last = Some((record.address(), row));
        // SAFETY: by the contract.
        unsafe { self.row(row) }
    }

    /// Finds the visible row under a key that is to be written; the read is validated with the
    /// write. Absence is noted as a read.
    #[inline(always)]
    #[allow(clippy::type_complexity, reason = "record, row and version belong together")]
    fn observe<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &T::Key,
    ) -> Result<Option<(RecordOf<P>, NonNull<u8>, <P::Executor as Executor>::Version)>, Error> {
        self.observe_located(table, key, self.locate(table, key))
    }

    /// As [`Transaction::observe`], of what was found under the key just now.
    #[inline(always)]
    #[allow(clippy::type_complexity, reason = "record, row and version belong together")]
    fn observe_located<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &T::Key,
        mut located: Located<P>,
    ) -> Result<Option<(RecordOf<P>, NonNull<u8>, <P::Executor as Executor>::Version)>, Error> {
        loop {
            match located {
                Located::Record(record) => {
                    let observed = self.read_for_write(table.reference(), record)?;
                    match observed.visible {
                        Visible::Row(row) => {
                            self.record(table.reference(), key, Event::Read(Some(row)));
                            return Ok(Some((record, row, observed.version)));
                        }
                        Visible::Absent => {
                            let executor = self.worker.executor();
                            executor.note_read(table.reference(), record, observed.version);
                            break;
                        }
                        Visible::Removed => self.forget(table),
                    }
                }
                Located::Absent(node) => {
                    self.note_node(table.reference(), node)?;
                    break;
                }
            }
            located = self.locate(table, key);
        }
        self.record(table.reference(), key, Event::Read(None));
        Ok(None)
    }
}

impl<P: Protocol> Drop for Transaction<'_, P> {
    fn drop(&mut self) {
        self.roll_back();
    }
}

/// An operation in several steps, between which the user's code runs. That code must not use the transaction
/// then. If it panics, some steps were done and others not, and the transaction must not commit, even if its
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

/// A transaction that has not begun yet, for which its worker is pinned. That it stays if the simulated machine
/// undoes its region: the next begins at once.
struct Beginning<'w>(&'w WorkerMemory);

impl Drop for Beginning<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.regions().is_undone() {
            self.0.unpin();
        }
    }
}

/// A transaction that rolls back. If the simulated machine undoes its region, before or meanwhile, nothing
/// is left to be rolled back, and it is forgotten. It stays pinned until the next begins, at once.
struct RollingBack<'t, 'db, P: Protocol>(&'t Transaction<'db, P>);

impl<P: Protocol> Drop for RollingBack<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        let worker = self.0.worker;
        if worker.memory.regions().is_undone() {
            worker.executor().abort(&worker.memory);
            worker.active.set(false);
        }
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
