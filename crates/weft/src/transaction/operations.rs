//! Commutative operations: see [`operation`](crate::operation).

use super::private_row::PrivateRow;
use super::recording::Event;
use super::{LookupResult, RecordOf, Transaction, UnwrittenRead};
use crate::commit::{Executor, Protocol, SplitsRecords, Target};
use crate::error::{Error, Failure};
use crate::row::column::write_leb128;
use crate::row::operation::{
    Add, And, BoundedSet, ColumnOf, ColumnOperation, Give, Integer, Max, Min, Mul, Operation,
    OperationKind, Or, Order, Ordered, OrderedPut, OutOfRange, Payload, Take, TopK, TopKEntries,
    TopKInsert, Union,
};
use crate::row::schema::Record;
use crate::store::table::{Table, TableInner};
use crate::store::worker::Growth;

impl<P: Protocol> Transaction<'_, P> {
    /// Applies a commutative [operation](crate::operation) to a column of the row with this primary key. It does
    /// not return the column's value: to get that, read the row.
    ///
    /// Under the optimistic protocols `dbx` and `silo` (and `occ` and `dbx-spin`, for comparison) transactions that
    /// apply operations to the same row do not abort each other. If another transaction has replaced the row by the
    /// time of the commit, the commit applies the operations to the present row
    /// ([`Metrics::reapplied`](crate::Metrics::reapplied)). This holds unless the transaction also reads the row, or
    /// writes it in another way, or the column belongs to a secondary index, or the operation owns memory. A read of
    /// columns by name ([`Transaction::get_columns`]) only requires that these columns are the same in the present row. If
    /// the operation fails on the present row, the transaction is run again, so the error is returned here.
    ///
    /// ```
    /// # use weft::operation::Add;
    /// # use weft::{Database, Error, Record, column_of};
    /// # #[derive(Clone, Record)]
    /// # struct Page { #[record(key)] id: u32, likes: u64 }
    /// # let database = Database::builder().table::<Page>().open()?;
    /// # let pages = database.table::<Page>()?;
    /// # database.transact(|tx| tx.insert(&pages, Page { id: 7, likes: 0 }))?;
    /// database.transact(|tx| tx.apply(&pages, &7, column_of!(Page.likes), Add(1)))?;
    /// # assert_eq!(database.transact(|tx| Ok::<_, Error>(tx.get(&pages, &7)?.unwrap().likes))?, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Failure::NoSuchRow`] if there is no row with this key.
    /// - [`Failure::OutOfRange`] if the result does not fit the column's type.
    /// - [`Failure::NotEnough`] if [`Take`] takes more than there is, or if the result of [`Take`], [`Give`] or [`Add`]
    ///   is outside the column's declared bounds.
    /// - [`Failure::Constraint`], [`Failure::DuplicateKey`], [`Failure::StoredRowTooLarge`] as for
    ///   [`Transaction::update`].
    /// - [`Conflict`](crate::Conflict), [`Failure::ForeignTable`], [`Failure::DeadlineExceeded`].
    ///
    /// After a failure the row is as it was before the call.
    #[inline]
    pub fn apply<T: Record, V: 'static, O: Operation<V>>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        operation: O,
    ) -> Result<(), Error> {
        let table = self.enter_writing(table)?;
        let located = self.locate(table, &key);
        if P::SPLITS
            && let LookupResult::Record(record) = located
            && self.apply_to_slice(table, record, key, column, &operation)?
        {
            return Ok(());
        }
        let Some((record, row, version)) = self.observe_located(table, &key, located)? else {
            return Err(no_such_row(table, key));
        };
        // SAFETY: a visible row of this table; see `row`.
        let old = unsafe { self.row::<T>(row) };
        let read = UnwrittenRead { worker: self.worker, table: table.reference(), record, version };
        if let Some(message) = operation.shortage(column.get(old), column.bounds()) {
            return Err(not_enough(table, key, column, O::KIND, message));
        }
        self.make_room(table.reference(), Growth::Update)?;
        let mut new = PrivateRow::cloned(self.worker, table.reference(), old);
        operation
            .apply(column.get_mut(new.get_mut()))
            .map_err(|error| out_of_range(table, key, column, O::KIND, error))?;
        let row = new.row();
        // SAFETY: the row is forgotten in the next line.
        unsafe { self.replace(table, record, version, old, &new, None)? };
        std::mem::forget(new);
        self.record(table.reference(), key, Event::Write);
        std::mem::forget(read);
        self.note_applied((record, version, row), column, operation);
        Ok(())
    }

    /// If the row is split, applies an operation to this worker's slice of it, and returns true. If the row is not
    /// split, returns false, and the caller applies the operation to the row itself.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn apply_to_slice<T: Record, V: 'static, O: Operation<V>>(
        &self,
        table: &TableInner<T>,
        record: RecordOf<P>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        operation: &O,
    ) -> Result<bool, Error> {
        let memory = &self.worker.memory;
        // A check needs the columns that it reads, and moving index entries needs the whole row. So such operations
        // are not split.
        let splittable = match column.unsplittable::<O>() {
            None => ColumnOperation::new::<T, V, O>(column),
            Some(_) => None,
        };
        let reference = table.reference();
        let Some(splitting) = self.worker.executor().splitting() else { return Ok(false) };
        let target = splitting.target(reference, record, splittable.as_ref(), memory);
        let slice = match target.map_err(|abort| self.doom_by(abort))? {
            Target::Row => return Ok(false),
            Target::Slice(slice) => slice,
        };
        // The code of the user's types comes first, since it may panic. Nothing has happened by then.
        let is_logged = memory.is_logging() && reference.core().log_number().is_some();
        let mut bytes = Vec::new();
        if is_logged {
            bytes = memory.take_scratch();
            memory.in_user_code(|| {
                write_operation(key, column, operation, &mut bytes);
            });
        }
        #[cfg(weft_sim)]
        weft_htm::simulation::sync::touch(slice.as_ptr(), size_of::<O::Slice>(), true);
        let accumulate = || {
            memory.in_user_code(|| {
                // SAFETY: a slice of this operation, which only this worker uses, in this transaction. What the
                // user's types try to do with the transaction in this time is refused.
                let gathered = unsafe { slice.cast::<O::Slice>().as_mut() };
                operation.accumulate(gathered)
            })
        };
        let mut accumulated = accumulate();
        let Some(splitting) = self.worker.executor().splitting() else { return Ok(false) };
        if accumulated.is_err()
            && let Some(reserve) = splitting.reserve(record, splittable.as_ref())
            // SAFETY: as above. Only operations on integers draw, and they run no code of the user's.
            && operation.draw(unsafe { slice.cast::<O::Slice>().as_mut() }, reserve)
        {
            accumulated = accumulate();
        }
        let Ok(undo) = accumulated else {
            return Err(self.doom_by(splitting.refuse_undecided(reference, record)));
        };
        // SAFETY: the operation was applied to the slice just now, and the slice exists as long as the phase lasts.
        unsafe { splitting.undo_log().push::<V, O>(slice, undo) };
        if is_logged {
            splitting.log_operation(reference, record, &bytes, O::IS_STAMPED);
            memory.give_scratch(bytes);
        }
        Ok(true)
    }

    /// Adds a number to a column.
    ///
    /// # Errors
    /// As [`Transaction::apply`]; [`Failure::OutOfRange`] if the sum does not fit the column's type;
    /// [`Failure::NotEnough`] if the column has bounds, and the sum is outside them.
    #[inline]
    pub fn add<T: Record, V: Integer>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        number: V,
    ) -> Result<(), Error> {
        self.apply(table, key, column, Add(number))
    }

    /// Takes a number from a column, if there is that much: the rest is not below the column's declared minimum
    /// (`#[record(min = 0)]`), or the least value of its type. Otherwise nothing is taken, and this fails with
    /// [`Failure::NotEnough`].
    ///
    /// The failure is the transaction's own decision as any other: pass it on with `?`, and the transaction rolls
    /// back, or match it, and go on. It is validated like a read: when the transaction ends there really is not
    /// enough, with the takes of all transactions that have committed, and with nothing of those that have not. A
    /// take that succeeds does not depend on how much there is. So transactions that take from one row do not abort
    /// each other under the protocols for which [`Transaction::apply`] says so, and under `doppel` each worker takes
    /// from its own share.
    ///
    /// ```
    /// # use weft::{Database, Error, Failure, Record, column_of};
    /// #[derive(Clone, Record)]
    /// struct Item {
    ///     #[record(key)]
    ///     id: u32,
    ///     #[record(min = 0)]
    ///     stock: i64,
    /// }
    /// #[derive(Clone, Record)]
    /// struct Order { #[record(key)] number: u64, item: u32, pieces: i64 }
    ///
    /// # let database = Database::builder().table::<Item>().table::<Order>().open()?;
    /// # let (items, orders) = (database.table::<Item>()?, database.table::<Order>()?);
    /// # database.transact(|tx| tx.insert(&items, Item { id: 7, stock: 5 }))?;
    /// let buy = |number, pieces| {
    ///     database.transact(|tx| {
    ///         tx.take(&items, &7, column_of!(Item.stock), pieces)?;
    ///         tx.insert(&orders, Order { number, item: 7, pieces })
    ///     })
    /// };
    /// buy(1, 4)?;
    /// match buy(2, 4) {
    ///     Err(Error::Failure(Failure::NotEnough { .. })) => println!("sold out"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::apply`]; [`Failure::NotEnough`]; [`Failure::OutOfRange`] if the number is negative.
    #[inline]
    pub fn take<T: Record, V: Integer>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        number: V,
    ) -> Result<(), Error> {
        self.apply(table, key, column, Take(number))
    }

    /// Gives back to a column what [`Transaction::take`] takes from it.
    ///
    /// # Errors
    /// As [`Transaction::add`]; [`Failure::OutOfRange`] if the number is negative.
    #[inline]
    pub fn give<T: Record, V: Integer>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        number: V,
    ) -> Result<(), Error> {
        self.apply(table, key, column, Give(number))
    }

    /// Multiplies a column by a number.
    ///
    /// # Errors
    /// As [`Transaction::apply`]; [`Failure::OutOfRange`] if the product does not fit the column's type.
    #[inline]
    pub fn mul<T: Record, V: Integer>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        number: V,
    ) -> Result<(), Error> {
        self.apply(table, key, column, Mul(number))
    }

    /// Replaces a column by a number, if the number is greater.
    ///
    /// # Errors
    /// As [`Transaction::apply`].
    #[inline]
    pub fn max<T: Record, V: Integer>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        number: V,
    ) -> Result<(), Error> {
        self.apply(table, key, column, Max(number))
    }

    /// Replaces a column by a number, if the number is less.
    ///
    /// # Errors
    /// As [`Transaction::apply`].
    #[inline]
    pub fn min<T: Record, V: Integer>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        number: V,
    ) -> Result<(), Error> {
        self.apply(table, key, column, Min(number))
    }

    /// Sets a `bool` column to true if `bits` is true, or sets those bits of an integer column that are set in
    /// `bits`.
    ///
    /// # Errors
    /// As [`Transaction::apply`].
    #[inline]
    pub fn or<T: Record, V: 'static>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        bits: V,
    ) -> Result<(), Error>
    where
        Or<V>: Operation<V>,
    {
        self.apply(table, key, column, Or(bits))
    }

    /// Sets a `bool` column to false if `bits` is false, or clears those bits of an integer column that are not set
    /// in `bits`.
    ///
    /// # Errors
    /// As [`Transaction::apply`].
    #[inline]
    pub fn and<T: Record, V: 'static>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        bits: V,
    ) -> Result<(), Error>
    where
        And<V>: Operation<V>,
    {
        self.apply(table, key, column, And(bits))
    }

    /// Puts a value with an order into a column. It replaces the present value if that has a lesser order. Of several
    /// values with the same order the first stays.
    ///
    /// # Errors
    /// As [`Transaction::apply`].
    #[inline]
    pub fn ordered_put<T: Record, O: Order, V: Payload>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, Ordered<O, V>>,
        order: O,
        value: V,
    ) -> Result<(), Error> {
        self.apply(table, key, column, OrderedPut(order, value))
    }

    /// Inserts a value with an order into a column, which keeps the `K` entries with the greatest orders. Of several
    /// with the same order, the first ones stay, and are listed first. The column's type says whether a value can have
    /// several entries, or only its best one ([`OnePerValue`](crate::operation::OnePerValue)).
    ///
    /// # Errors
    /// As [`Transaction::apply`].
    #[inline]
    pub fn top_k_insert<T: Record, O: Order, V: Payload, E: TopKEntries<V>, const K: usize>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, TopK<O, V, K, E>>,
        order: O,
        value: V,
    ) -> Result<(), Error> {
        self.apply(table, key, column, TopKInsert(order, value))
    }

    /// Adds the elements of a set to the set in a column.
    ///
    /// # Errors
    /// As [`Transaction::apply`]; [`Failure::OutOfRange`] if there would be more than `N` elements.
    #[inline]
    pub fn union<T: Record, V: Order, const N: usize>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, BoundedSet<V, N>>,
        elements: BoundedSet<V, N>,
    ) -> Result<(), Error> {
        self.apply(table, key, column, Union(elements))
    }
}

/// Appends an operation to `output`, in its stored form for the log.
fn write_operation<T: Record, V: 'static, O: Operation<V>>(
    key: &T::Key,
    column: ColumnOf<T, V>,
    operation: &O,
    output: &mut Vec<u8>,
) {
    T::encode_key(key, output);
    write_leb128(column.position() as u64, output);
    output.push(O::KIND as u8);
    operation.write(output);
}

#[cold]
pub(super) fn no_such_row<T: Record>(table: &TableInner<T>, key: &T::Key) -> Error {
    Failure::NoSuchRow { table: table.name(), key: format!("{key:?}") }.into()
}

#[cold]
fn not_enough<T: Record, V>(
    table: &TableInner<T>,
    key: &T::Key,
    column: ColumnOf<T, V>,
    operation: OperationKind,
    message: String,
) -> Error {
    let key = format!("{key:?}");
    let (table, column) = (table.name(), column.name());
    Failure::NotEnough { table, key, column, operation, message }.into()
}

#[cold]
pub(super) fn out_of_range<T: Record, V>(
    table: &TableInner<T>,
    key: &T::Key,
    column: ColumnOf<T, V>,
    operation: OperationKind,
    error: OutOfRange,
) -> Error {
    Failure::OutOfRange {
        table: table.name(),
        key: format!("{key:?}"),
        column: column.name(),
        operation,
        message: error.message,
    }
    .into()
}
