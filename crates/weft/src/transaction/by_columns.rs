//! Operations that name the columns that they use, and commits by columns.

use super::{RecordOf, Transaction};
use crate::commit::{Abort, ChopsProcedures, Executor, Protocol, Unstable, Visible};
use crate::error::Error;
use crate::row::column::{ColumnSet, UsedColumns};
use crate::row::encoding::KeyLookup;
use crate::row::operation::Columns;
use crate::row::schema::Record;
use crate::store::table::{Table, TableRef};
use crate::store::worker::Counters;

/// How often a commit is tried again with the present versions, before the transaction is run again.
const CARRIED_OVER_MAX: u32 = 8;

/// Adds the column that says whether a row is there, if rows expire.
#[inline(always)]
pub(super) fn with_expiry<T: Record>(columns: ColumnSet) -> ColumnSet {
    match T::EXPIRY {
        Some(expiry) => columns.with(expiry.column),
        None => columns,
    }
}

impl<P: Protocol> Transaction<'_, P> {
    /// Returns these columns of the row with this primary key, or `None` if there is no such row.
    ///
    /// The transaction depends only on these columns, and not on the whole row as with [`Transaction::get`]. Under
    /// the optimistic protocols it commits even if other transactions change other columns of the row in the
    /// meantime. Under the other protocols this is a read of the whole row.
    ///
    /// ```
    /// # use weft::{Database, Error, Record, column_of, columns_of};
    /// # #[derive(Clone, Record)]
    /// # struct Shop { #[record(key)] id: u32, tax: u16, name: String, sales: i64 }
    /// # let database = Database::builder().table::<Shop>().open()?;
    /// # let shops = database.table::<Shop>()?;
    /// # let name = String::from("corner");
    /// # database.transact(|tx| tx.insert(&shops, Shop { id: 7, tax: 19, name: name.clone(), sales: 0 }))?;
    /// database.transact(|tx| {
    ///     let tax = tx.get_columns(&shops, &7, column_of!(Shop.tax))?;
    ///     assert_eq!(tax, Some(&19));
    ///     let both = tx.get_columns(&shops, &7, columns_of!(Shop.{tax, name}))?;
    ///     assert_eq!(both.map(|(tax, name)| (*tax, name.as_str())), Some((19, "corner")));
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    #[inline]
    pub fn get_columns<'tx, T: Record, C: Columns<T>>(
        &'tx self,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
        columns: C,
    ) -> Result<Option<C::Values<'tx>>, Error> {
        let table = self.enter_operation(table)?;
        let used = self.used_columns::<T>(columns.set());
        let row = self.get_located(table, &key, self.locate(table, &key), |record| {
            self.read_using(table.reference(), record, used)
        })?;
        Ok(row.map(|row| columns.get(row)))
    }

    /// Changes these columns of the row with this primary key. `change` gets references to the columns of a copy of
    /// the row, which then replaces the row. Returns what `change` returned, or `None` if there is no such row.
    ///
    /// The transaction depends only on these columns, and not on the whole row as with [`Transaction::update`].
    /// Under the optimistic protocols it commits even if other transactions change other columns of the row in the
    /// meantime, and both changes are kept. So name all columns that `change` reads or writes, and no others. Each
    /// of them counts as read. Under the other protocols this is an update of the whole row.
    ///
    /// The row is treated as a whole if a column changes that a secondary index is ordered by, if the transaction
    /// writes the row twice, and in a volatile table.
    ///
    /// ```
    /// # use weft::{Database, Error, Record, column_of, columns_of};
    /// # #[derive(Clone, Record)]
    /// # struct Shop { #[record(key)] id: u32, next: u32, sales: i64, count: u32 }
    /// # let database = Database::builder().table::<Shop>().open()?;
    /// # let shops = database.table::<Shop>()?;
    /// # database.transact(|tx| tx.insert(&shops, Shop { id: 7, next: 1, sales: 0, count: 0 }))?;
    /// database.transact(|tx| {
    ///     tx.update_columns(&shops, &7, columns_of!(Shop.{sales, count}), |(sales, count)| {
    ///         *sales += 300;
    ///         *count += 1;
    ///     })?;
    ///     tx.update_columns(&shops, &7, column_of!(Shop.next), |next| *next += 1)
    /// })?;
    /// # let row = database.transact(|tx| Ok::<_, Error>(tx.get(&shops, &7)?.cloned()))?.unwrap();
    /// # assert_eq!((row.next, row.sales, row.count), (2, 300, 1));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::update`].
    #[inline]
    pub fn update_columns<T: Record, C: Columns<T>, R>(
        &self,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
        columns: C,
        change: impl FnOnce(C::ValuesMut<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        let table = self.enter_writing(table)?;
        let located = self.locate(table, &key);
        let used = self.used_columns::<T>(columns.set()).map(UsedColumns::matter);
        self.update_located(table, &key, located, used, |row| change(columns.get_mut(row)))
    }

    /// Returns the columns that the steps of a procedure use, by which it is committed, if it has any.
    #[doc(hidden)]
    pub fn columns<'p>(&self, steps: Option<&'p [UsedColumns]>) -> Option<&'p [UsedColumns]> {
        steps.filter(|_| !self.goes_by_rows())
    }

    /// Returns what an operation that names these columns uses of a row: them, and whether the row is there; or `None` if it
    /// uses the whole row.
    #[inline(always)]
    pub(super) fn used_columns<T: Record>(&self, columns: ColumnSet) -> Option<ColumnSet> {
        (!self.goes_by_rows()).then(|| with_expiry::<T>(columns))
    }

    /// Reads these columns of a record, or the whole row.
    #[inline(always)]
    pub(super) fn read_using(
        &self,
        table: TableRef,
        record: RecordOf<P>,
        columns: Option<ColumnSet>,
    ) -> Result<Visible, Error> {
        match columns {
            None => self.read(table, record),
            Some(columns) => self.read_columns(table, record, columns),
        }
    }

    /// Returns whether the transaction commits by rows although it names columns: it is recorded, and is committed in
    /// several pieces. A checker takes these for one transaction, which reads one version of each row, and what an earlier
    /// piece has read cannot be moved to a later version any more.
    #[inline(always)]
    fn goes_by_rows(&self) -> bool {
        self.is_recorded()
            && self.worker.executor().chopping().is_some_and(|chopping| chopping.is_in_pieces())
    }

    /// Commits by `commit`. If that fails, but nothing that matters has changed, tries again with the present
    /// versions.
    #[doc(hidden)]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn commit_by_columns<R>(
        &self,
        _: Unstable,
        commit: impl Fn() -> Result<R, Abort>,
    ) -> Result<R, Abort> {
        let mut carried_over = 0;
        loop {
            match commit() {
                Ok(committed) => return Ok(committed),
                Err(abort) => self.carry_over(abort, &mut carried_over)?,
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn carry_over(&self, abort: Abort, carried_over: &mut u32) -> Result<(), Abort> {
        if self.is_final(&abort) || *carried_over == CARRIED_OVER_MAX {
            return Err(abort);
        }
        let memory = &self.worker.memory;
        let report = &mut |access| self.record_carried(access);
        memory.in_user_code(|| self.worker.executor().carry_over(abort, memory, report))?;
        *carried_over += 1;
        memory.observe_conflict(abort.place(), true);
        Counters::count(&memory.counters().carried_over);
        Ok(())
    }
}
