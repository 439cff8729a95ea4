//! Deferred sums: they are noted now, and added to the row later (DBX-TC, §3.2).

use super::operations::{no_such_row, out_of_range};
use super::{LookupResult, RecordOf, Transaction};
use crate::commit::{ChopsProcedures, DeferredChange, Executor, Protocol, RowDelta, Visible};
use crate::error::{Error, Failure};
use crate::row::column::ColumnSet;
use crate::row::encoding::KeyLookup;
use crate::row::operation::{ColumnOf, Operation, OperationKind};
use crate::row::schema::Record;
use crate::store::table::{Table, TableInner};

impl<P: Protocol> Transaction<'_, P> {
    /// As [`Transaction::update`], with a closure that only adds to some columns. The additions are made later.
    #[doc(hidden)]
    pub fn update_later<T: Record, R>(
        &self,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
        columns: ColumnSet,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, Error> {
        let table = self.enter_operation(table)?;
        let Some((record, row)) = self.find(table, &key)? else { return Ok(None) };
        let mut after = row.clone();
        let result = change(&mut after);
        self.defer(table, record, RowDelta { before: row.clone(), after, columns })?;
        Ok(Some(result))
    }

    /// As [`Transaction::apply`] for an addition, which is made later.
    #[doc(hidden)]
    pub fn apply_later<T: Record, V: 'static, O: Operation<V>>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        operation: O,
    ) -> Result<(), Error> {
        let table = self.enter_operation(table)?;
        let (record, row) = self.find(table, &key)?.ok_or_else(|| no_such_row(table, key))?;
        let mut after = row.clone();
        operation
            .apply(column.get_mut(&mut after))
            .map_err(|error| out_of_range(table, key, column, O::KIND, error))?;
        let columns = ColumnSet::of([column.position()]);
        self.defer(table, record, RowDelta { before: row.clone(), after, columns })
    }

    /// Defers a change. It must be certain that its sums will fit their columns' types, because after the procedure
    /// has committed it is too late to find out.
    fn defer<T: Record>(
        &self,
        table: &TableInner<T>,
        record: RecordOf<P>,
        delta: RowDelta<T>,
    ) -> Result<(), Error> {
        let RowDelta { before, after, columns } = &delta;
        if let Some(column) = after.lacks_room(before, before, *columns) {
            return Err(Failure::OutOfRange {
                table: table.name(),
                key: format!("{:?}", before.key()),
                column: T::COLUMNS.get(column).map_or("", |column| column.name),
                operation: OperationKind::Add,
                message: "a deferred sum must be small, and its column must be at least a quarter of its range \
                          away from the end of the range"
                    .to_owned(),
            }
            .into());
        }
        let sums = Box::new(delta);
        let change = DeferredChange { table: table.reference(), record, sums };
        if let Some(chopping) = self.worker.executor().chopping() {
            chopping.defer(change);
        }
        Ok(())
    }

    /// Returns the visible row under a key, and its record.
    fn find<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &impl KeyLookup<T::Key>,
    ) -> Result<Option<(RecordOf<P>, &T)>, Error> {
        loop {
            match self.locate(table, key) {
                LookupResult::Record(record) => match self.read(table.reference(), record)? {
                    Visible::Row(row) => {
                        // SAFETY: a visible row of this table; see `row`.
                        let visible = unsafe { self.row::<T>(row) };
                        return Ok((!self.has_disappeared(visible)).then_some((record, visible)));
                    }
                    Visible::Absent => return Ok(None),
                    Visible::Removed => self.forget(table),
                },
                LookupResult::Absent(node) => {
                    self.note_node(table.reference(), node)?;
                    return Ok(None);
                }
            }
        }
    }
}
