//! The time of a transaction, and rows that expire.
//!
//! A row has expired if its time is not after the transaction's *now*. If the table has no hook, the row is then not
//! there: its record is read, and validated, as any other, and counts as absent. A row that is inserted with the same
//! key, or with the same key in a unique index, takes the place of the expired one, which is deleted in the same
//! transaction. If the table has a hook, the row is there until a transaction runs the hook for it.
//!
//! What a transaction has seen of the time is noted as the end of the period in which it would have seen the same. The
//! commit checks it: see [`Time`](crate::sync::time::Time).

use std::ptr::NonNull;

use weft_htm::word::{Ordering, fence};

use super::recording::Event;
use super::{LookupResult, RecordOf, Steps, Transaction};
use crate::commit::{Abort, Executor, Protocol, Unstable, Visible};
use crate::error::{ConflictReason, Error, Failure};
use crate::row::encoding::{Key, KeyForm};
use crate::row::schema::{Index, Record};
use crate::row::timestamp::Timestamp;
use crate::store::table::{Hook, Table, TableInner, with_form};
use crate::store::worker::{CommitGuard, Growth};

/// A hook of a table, under protocol `P`.
pub(crate) type TableHook<P, T> =
    dyn Fn(&Transaction<'_, P>, &T) -> Result<(), Error> + Send + Sync;

/// The end of the period in which a transaction would have seen the same, if it sees all rows: no time is later.
const ALWAYS: u64 = u64::MAX - 1;

/// Returns whether rows of type `T` disappear when they have expired.
pub(super) const fn disappears<T: Record>() -> bool {
    matches!(T::EXPIRY, Some(expiry) if !expiry.has_hook)
}

impl<'db, P: Protocol> Transaction<'db, P> {
    /// Returns the transaction's time: that of the database when the transaction began. It is the same until the
    /// transaction ends, and rows are [there or have expired](macro@crate::Record#rows-that-expire) by it.
    ///
    /// The time follows the system's clock, in steps of about 40 milliseconds, or
    /// [`DurabilityOptions::epoch_interval`](crate::DurabilityOptions::epoch_interval) if the database has a directory,
    /// and of 10 milliseconds if it has rows that expire. It never goes back, even if the clock does. After a restart it
    /// is at least that of every transaction that was recovered.
    ///
    /// The times of transactions agree with their serial order: of two transactions that ask for their time and commit,
    /// the later one has the same time as the earlier one, or a later time. A transaction for which this does not hold
    /// any more when it commits is run again.
    #[inline]
    pub fn now(&self) -> Timestamp {
        let now = self.worker.memory.now();
        self.rely_until(now + 1);
        Timestamp::from_millis(now)
    }

    /// Gives the transaction a time, and makes it see rows that have expired. It conflicts with no time of others, but others
    /// with its time. For changes that another database has committed at this time.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn commit_at(&self, time: Timestamp) {
        self.worker.memory.set_now(time.as_millis());
        self.valid_until.set(ALWAYS);
    }

    /// Notes that what the transaction has seen is right before `until` only.
    #[inline]
    fn rely_until(&self, until: u64) {
        if P::RESTARTS_IN_SNAPSHOTS && self.snapshot_opener().is_some() {
            // A snapshot has a time of its own.
            self.doomed.set(Some(self.time_conflict()));
        }
        let before = self.valid_until.get();
        self.valid_until.set(if before == 0 { until } else { before.min(until) });
    }

    /// Returns whether a row that was read has disappeared by now.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn has_disappeared<T: Record>(&self, row: &T) -> bool {
        if const { !disappears::<T>() } {
            return false;
        }
        let at = row.expires_at();
        if at == Timestamp::MAX || self.valid_until.get() == ALWAYS {
            return false;
        }
        let has_expired = at.as_millis() <= self.worker.memory.now();
        self.rely_until(if has_expired { u64::MAX } else { at.as_millis() });
        has_expired
    }

    /// As [`Transaction::has_disappeared`], for a row whose type is not known here.
    ///
    /// # Safety
    /// A row of the table.
    pub(super) unsafe fn has_disappeared_untyped(
        &self,
        core: &crate::store::table::TableCore,
        row: NonNull<u8>,
    ) -> bool {
        // SAFETY: by the contract.
        let Some(at) = (unsafe { core.disappears_at(row) }) else { return false };
        if self.valid_until.get() == ALWAYS {
            return false;
        }
        let has_expired = at <= self.worker.memory.now();
        self.rely_until(if has_expired { u64::MAX } else { at });
        has_expired
    }

    /// Returns whether others have committed with a *now* at which this transaction would have seen something else.
    pub(super) fn is_outdated(&self) -> bool {
        let until = self.valid_until.get();
        until != 0 && self.database.shared.time.claimed() >= until
    }

    /// Makes sure that the commit that follows agrees with the times of others. From here on the transaction is
    /// committing if it has looked at the time.
    #[doc(hidden)]
    #[inline(always)]
    pub fn agree_on_time(&self, _: Unstable) -> Result<(), Abort> {
        if self.valid_until.get() == 0 { Ok(()) } else { self.check_time() }
    }

    /// Holds the transaction's time: until the returned guard is dropped, no transaction with a later time that has
    /// looked at it commits. For procedures in pieces, which have no single commit with which their time could agree.
    ///
    /// In this period the transaction is committing, and takes its time from [`Transaction::held_now`].
    #[doc(hidden)]
    pub fn hold_time(&self, _: Unstable) -> Result<CommitGuard<'db>, Abort> {
        let holding = CommitGuard(&self.worker.memory);
        self.now();
        self.check_time()?;
        self.valid_until.set(0);
        #[cfg(feature = "canary")]
        if self.database.shared.time.flaw == Some(crate::sync::time::TimeFlaw::NotHeld) {
            self.worker.memory.end_commit();
        }
        Ok(holding)
    }

    /// Returns the transaction's time, which is [held](Transaction::hold_time).
    #[doc(hidden)]
    pub fn held_now(&self, _: Unstable) -> Timestamp {
        Timestamp::from_millis(self.worker.memory.now())
    }

    #[cold]
    #[inline(never)]
    fn check_time(&self) -> Result<(), Abort> {
        let memory = &self.worker.memory;
        let is_settled = memory.settle_time();
        memory.announce_commit();
        // Orders the announcement before the check: see `Time`.
        fence(Ordering::SeqCst);
        if is_settled && !self.is_outdated() { Ok(()) } else { Err(self.time_conflict()) }
    }

    /// Returns the conflict of a transaction whose time has passed.
    pub(super) fn time_conflict(&self) -> Abort {
        let tables = &self.database.shared.first_table;
        let table = *tables.get().expect("a transaction that conflicts has used a table");
        Abort::of_table(ConflictReason::TimePassed, table)
    }

    /// If the row with the same primary key as `row` has expired, deletes it and inserts `row`. Otherwise gives `row`
    /// back.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn take_place<T: Record>(
        &self,
        table: &TableInner<T>,
        row: T,
    ) -> Result<Option<T>, Error> {
        if const { !disappears::<T>() } {
            return Ok(Some(row));
        }
        if !self.delete_disappeared(table, &row.key())? {
            return Ok(Some(row));
        }
        self.insert_row(table, row)
    }

    /// Deletes the row under a key, if there is one and it has disappeared.
    fn delete_disappeared<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &T::Key,
    ) -> Result<bool, Error> {
        loop {
            let record = match self.locate(table, &key) {
                LookupResult::Record(record) => record,
                LookupResult::Absent(node) => {
                    self.note_node(table.reference(), node)?;
                    return Ok(false);
                }
            };
            match self.delete_record(table, record)? {
                Some(is_deleted) => return Ok(is_deleted),
                None => self.forget(table),
            }
        }
    }

    /// Deletes the row of a record, if it has one that has disappeared. Returns `None` if the record has left its index.
    pub(super) fn delete_record<T: Record>(
        &self,
        table: &TableInner<T>,
        record: RecordOf<P>,
    ) -> Result<Option<bool>, Error> {
        let reference = table.reference();
        // From the observation on, the user's code must not change the row. (A row that is inserted is in steps already.)
        let _steps = (!self.is_in_steps.get()).then(|| Steps::begin(self));
        let observed = self.read_for_write(reference, record)?;
        let row = match observed.visible {
            Visible::Removed => return Ok(None),
            Visible::Absent => {
                self.worker.executor().note_read(reference, record, observed.version);
                return Ok(Some(false));
            }
            Visible::Row(row) => row,
        };
        // SAFETY: a visible row of this table; see `row`.
        let old = unsafe { self.row::<T>(row) };
        self.record(reference, &old.key(), Event::Read(Some(row)));
        if !self.has_disappeared(old) {
            self.worker.executor().note_read(reference, record, observed.version);
            return Ok(Some(false));
        }
        self.make_room(reference, Growth::Delete)?;
        let primary = with_form!(T::Key::WIDTH_BYTES, |K| K::from_key(&old.key()).erase());
        for position in 0..table.secondary.len() {
            self.remove_entry_of(table, position, old, record, observed.version)?;
        }
        self.worker.executor().remove(reference, record, observed.version, primary);
        self.record(reference, &old.key(), Event::Delete);
        Ok(Some(true))
    }

    /// Removes up to `limit` rows that have expired by now, those that expired first, and returns how many there were.
    /// If the table has a [hook](crate::Database::on_expiry), runs it for each row, in this transaction.
    ///
    /// The database does this in the background. Call it before you use something that hooks may change: for example
    /// before you take from a stock to which an expired reservation gives back. If it returns less than `limit`, the
    /// transaction commits only if at its time, [`Transaction::now`], no further row had expired.
    ///
    /// # Errors
    /// - The errors of the hook. The transaction must then be rolled back.
    /// - [`Failure::NoExpiry`] if the rows of the table do not expire; [`Failure::NoHook`] if the table has a hook, and
    ///   it was not set.
    /// - As [`Transaction::delete`] and [`Transaction::range_by`].
    pub fn run_due<T: Record>(&self, table: &Table<T>, limit: usize) -> Result<usize, Error> {
        self.run_due_if(table, limit, &mut |_| true)
    }

    /// As [`Transaction::run_due`], for those rows that `wanted` returns true for.
    pub(crate) fn run_due_if<T: Record>(
        &self,
        table: &Table<T>,
        limit: usize,
        wanted: &mut dyn FnMut(&T) -> bool,
    ) -> Result<usize, Error> {
        let Some(expiry) = T::EXPIRY else {
            return Err(Failure::NoExpiry { table: table.name() }.into());
        };
        let hook = match expiry.has_hook {
            true => Some(table.inner.hook::<Hook<TableHook<P, T>>>()?),
            false => None,
        };
        let now = self.now();
        let mut due = Vec::new();
        let mut scan = match expiry.is_optional {
            true => {
                let times = Some(Timestamp::default())..=Some(now);
                self.range_by(table, Index::<T, Option<Timestamp>>::new(expiry.index), times)
            }
            false => self.range_by(table, Index::<T, Timestamp>::new(expiry.index), ..=now),
        };
        scan.show_disappeared();
        // The rows are gathered first, since the hook may change the table.
        while due.len() < limit
            && let Some(row) = scan.next().transpose()?
        {
            if wanted(row) {
                due.push(row);
            }
        }
        drop(scan);
        let mut run = 0;
        for row in due {
            let is_deleted = match hook {
                Some(_) => self.delete(table, &row.key())?,
                None => self
                    .enter_writing(table)
                    .and_then(|inner| self.delete_disappeared(inner, &row.key()))?,
            };
            if is_deleted {
                run += 1;
                hook.as_ref().map_or(Ok(()), |hook| (hook.0)(self, row))?;
            }
        }
        Ok(run)
    }
}
