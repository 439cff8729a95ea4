//! The operations of a transaction, as steps of a procedure. Each has the name and the arguments of the method
//! of [`Transaction`](weft::Transaction), preceded by the slot for its result.

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::ptr;

use crate::place::Place;
use crate::slot::ResultSlot;
use crate::walk::{Decision, Walk};
use crate::{Driver, Passes, StepAccess};
use weft::Error;
use weft::column::ColumnSet;
use weft::commit::Protocol;
use weft::encoding::{Key, KeyEncoder, KeyLookup, KeyPart, KeyPrefix, KeyStart};
use weft::operation::{
    Add, And, BoundedSet, ColumnOf, Columns, Give, Integer, Max, Min, Mul, Operation, Or, Order,
    Ordered, OrderedPut, Payload, Take, TopK, TopKEntries, TopKInsert, Union,
};
use weft::schema::{GeneratedRecord, Index, OrderedRecord, Record};
use weft::step::Instance;
use weft::store::table::Table;
use weft::{Scan, Transaction};

/// An instance of a step that the walk has reached.
#[doc(hidden)]
pub struct At<'w, 'tx, P: Protocol, D: Driver<P>> {
    pub(super) walk: &'w Walk<'tx, P, D>,
    pub(super) instance: Instance,
}

impl<'w, 'tx, P: Protocol, D: Driver<P>> At<'w, 'tx, P, D> {
    /// Runs an operation that is complete when it returns, or returns its kept result. If `is_same` says that
    /// it returns the same as before, what depends on it does not run again.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn operate<T: Record, R: Clone>(
        self,
        slot: &ResultSlot<R>,
        table: &Table<T>,
        key: Option<&T::Key>,
        place: impl FnOnce() -> Place,
        is_same: impl FnOnce(&R, &R) -> bool,
        operation: impl FnOnce(&'tx Transaction<'tx, P>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let At { walk, instance } = self;
        if matches!(D::PASSES, Passes::One) {
            walk.driver.come_to(instance.step);
            return operation(walk.driver.transaction());
        }
        let place = walk.place(place);
        match walk.decide(instance, slot, table, key, &place, R::clone)? {
            Decision::Keep(result) => Ok(result),
            Decision::Run(before) => {
                let result = operation(walk.driver.transaction());
                // Errors are not kept, so an error cannot be compared with an earlier one.
                let is_same = match (&before, &result) {
                    (Some(before), Ok(result)) => is_same(before, result),
                    _ => false,
                };
                if !is_same {
                    walk.note_change(instance);
                }
                let result = result?;
                walk.driver.leave(&walk.accessed(instance, table, key, &place))?;
                if walk.is_kept(instance) {
                    walk.put(instance, slot, place, result.clone());
                }
                Ok(result)
            }
        }
    }

    /// Runs an operation on the row with a primary key.
    #[inline(always)]
    fn point<T: Record, R: Clone>(
        self,
        slot: &ResultSlot<R>,
        table: &Table<T>,
        key: &impl KeyLookup<T::Key>,
        is_same: impl FnOnce(&R, &R) -> bool,
        operation: impl FnOnce(&'tx Transaction<'tx, P>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.operate(slot, table, key.as_key(), || Place::lookup(key), is_same, operation)
    }

    fn scan<T: Record>(
        self,
        slot: &'w ResultSlot<ScannedRows<'tx, T>>,
        table: &'tx Table<T>,
        place: impl FnOnce() -> Place,
        scan: impl FnOnce(&'tx Transaction<'tx, P>) -> Scan<'tx, 'tx, T, P>,
    ) -> Rows<'w, 'tx, T, P, D> {
        let At { walk, instance } = self;
        let narrowing = Narrowing::default();
        if matches!(D::PASSES, Passes::One) {
            walk.driver.come_to(instance.step);
            let state = State::Running { scan: scan(walk.driver.transaction()), before: None };
            return Rows { walk, instance, slot, is_kept: false, narrowing, state, open: None };
        }
        let mut open = None;
        let (place, is_kept) = (walk.place(place), walk.is_kept(instance));
        let state = match walk.decide(instance, slot, table, None, &place, |_| ()) {
            Ok(Decision::Keep(())) => State::Kept(0),
            Ok(Decision::Run(before)) => {
                if is_kept {
                    walk.put(instance, slot, place, ScannedRows::default());
                }
                if before.is_none() {
                    walk.note_change(instance);
                }
                open = Some(OpenScan::new(walk.driver));
                State::Running { scan: scan(walk.driver.transaction()), before }
            }
            Err(error) => State::Refused(Some(error)),
        };
        Rows { walk, instance, slot, is_kept, narrowing, state, open }
    }

    // ---- operations on one row --------------------------------------------------------------

    pub fn get<T: Record>(
        self,
        slot: &ResultSlot<Option<&'tx T>>,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
    ) -> Result<Option<&'tx T>, Error> {
        self.point(slot, table, &key, is_same_row, |tx| tx.get(table, Given(&key)))
    }

    pub fn contains<T: Record>(
        self,
        slot: &ResultSlot<bool>,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
    ) -> Result<bool, Error> {
        self.point(slot, table, &key, PartialEq::eq, |tx| tx.contains(table, Given(&key)))
    }

    pub fn get_columns<T: Record, C: Columns<T>>(
        self,
        slot: &ResultSlot<Option<C::Values<'tx>>>,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
        columns: C,
    ) -> Result<Option<C::Values<'tx>>, Error> {
        // References to columns are not compared, so the result counts as changed.
        let operation = |tx: &'tx Transaction<'tx, P>| tx.get_columns(table, Given(&key), columns);
        self.point(slot, table, &key, |_, _| false, operation)
    }

    pub fn get_by<T: Record, K: Key>(
        self,
        slot: &ResultSlot<Option<&'tx T>>,
        table: &'tx Table<T>,
        index: Index<T, K>,
        key: impl KeyLookup<K>,
    ) -> Result<Option<&'tx T>, Error> {
        let place = || Place::key_by(index.position(), &key);
        self.operate(slot, table, None, place, is_same_row, |tx| {
            tx.get_by(table, index, Given(&key))
        })
    }

    /// Returns the last of the rows that a secondary index has under a prefix. Views of the database have this
    /// read besides the reads of a transaction.
    pub fn last_by<T: Record, K: Key>(
        self,
        slot: &ResultSlot<Option<&'tx T>>,
        table: &'tx Table<T>,
        index: Index<T, K>,
        prefix: &impl KeyPrefix<K>,
    ) -> Result<Option<&'tx T>, Error> {
        let place = || Place::prefix::<K>(Some(index.position()), prefix);
        self.operate(slot, table, None, place, is_same_row, |tx| {
            tx.prefix_by(table, index, prefix).last_row()
        })
    }

    #[inline]
    pub fn insert<T: Record>(
        self,
        slot: &ResultSlot<()>,
        table: &Table<T>,
        row: T,
    ) -> Result<(), Error> {
        let key = row.key();
        self.point(slot, table, &&key, PartialEq::eq, |tx| tx.insert(table, row))
    }

    pub fn upsert<T: Record>(
        self,
        slot: &ResultSlot<bool>,
        table: &Table<T>,
        row: T,
    ) -> Result<bool, Error> {
        let key = row.key();
        self.point(slot, table, &&key, PartialEq::eq, |tx| tx.upsert(table, row))
    }

    /// (The key is not known before, so the row may be anywhere. If this runs again, it draws another key.)
    pub fn insert_generated<T: GeneratedRecord>(
        self,
        slot: &ResultSlot<T::Key>,
        table: &Table<T>,
        row: impl FnOnce(T::Key) -> T,
    ) -> Result<T::Key, Error> {
        self.operate(slot, table, None, Place::anywhere, PartialEq::eq, |tx| {
            tx.insert_generated(table, row)
        })
    }

    pub fn update<T: Record, R: Clone>(
        self,
        slot: &ResultSlot<Option<R>>,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, Error> {
        // The result of a closure may have any type, so it cannot be compared: it counts as changed.
        let At { walk, instance } = self;
        self.point(
            slot,
            table,
            &key,
            |_, _| false,
            |tx| match walk.driver.defers(instance) {
                false => tx.update(table, Given(&key), change),
                true => tx.update_later(table, Given(&key), walk.sums_of(instance), change),
            },
        )
    }

    pub fn update_columns<T: Record, C: Columns<T>, R: Clone>(
        self,
        slot: &ResultSlot<Option<R>>,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
        columns: C,
        change: impl FnOnce(C::ValuesMut<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        let At { walk, instance } = self;
        self.point(
            slot,
            table,
            &key,
            |_, _| false,
            |tx| match walk.driver.defers(instance) {
                false => tx.update_columns(table, Given(&key), columns, change),
                true => tx.update_later(table, Given(&key), walk.sums_of(instance), |row| {
                    change(columns.get_mut(row))
                }),
            },
        )
    }

    pub fn delete<T: Record>(
        self,
        slot: &ResultSlot<bool>,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
    ) -> Result<bool, Error> {
        self.point(slot, table, &key, PartialEq::eq, |tx| tx.delete(table, Given(&key)))
    }

    // ---- operations on many rows ------------------------------------------------------------

    /// As [`Transaction::get_many`].
    #[inline]
    pub fn get_many<T: Record, I>(
        self,
        slot: &ResultSlot<Vec<Option<&'tx T>>>,
        table: &'tx Table<T>,
        keys: I,
    ) -> Result<impl Iterator<Item = Result<Option<&'tx T>, Error>> + use<'tx, T, I, P, D>, Error>
    where
        I: IntoIterator<Item: KeyPart<T::Key>, IntoIter: Clone>,
    {
        let keys = keys.into_iter();
        if matches!(D::PASSES, Passes::One) {
            let At { walk, instance } = self;
            walk.driver.come_to(instance.step);
            return Ok(RowsOfKeys::Running(walk.driver.transaction().get_many(table, keys)?));
        }
        let place = || Place::keys::<T::Key>(keys.clone());
        let are_same = |before: &Vec<_>, now: &Vec<_>| {
            before.len() == now.len()
                && before.iter().zip(now).all(|(before, now)| is_same_row(before, now))
        };
        let rows = self.operate(slot, table, None, place, are_same, |tx| {
            tx.get_many(table, keys.clone())?.collect::<Result<Vec<_>, Error>>()
        })?;
        Ok(RowsOfKeys::Read(rows.into_iter().map(Ok)))
    }

    pub fn insert_many<T: Record>(
        self,
        slot: &ResultSlot<()>,
        table: &Table<T>,
        rows: impl IntoIterator<Item = T>,
    ) -> Result<(), Error> {
        if matches!(D::PASSES, Passes::One) {
            self.walk.driver.come_to(self.instance.step);
            return self.walk.driver.transaction().insert_many(table, rows);
        }
        let rows: Vec<T> = rows.into_iter().collect();
        let keys = self.walk.place(|| Place::keys::<T::Key>(rows.iter().map(T::key)));
        self.operate(slot, table, None, || keys, PartialEq::eq, |tx| tx.insert_many(table, rows))
    }

    pub fn update_many<T: Record, I>(
        self,
        slot: &ResultSlot<usize>,
        table: &Table<T>,
        keys: I,
        change: impl FnMut(usize, &mut T),
    ) -> Result<usize, Error>
    where
        I: IntoIterator<Item: KeyPart<T::Key>, IntoIter: Clone>,
    {
        let keys = keys.into_iter();
        let place = || Place::keys::<T::Key>(keys.clone());
        self.operate(slot, table, None, place, PartialEq::eq, |tx| {
            tx.update_many(table, keys.clone(), change)
        })
    }

    pub fn delete_range<T: OrderedRecord>(
        self,
        slot: &ResultSlot<usize>,
        table: &Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> Result<usize, Error> {
        let place = self.walk.place(|| Place::range(None, &range));
        self.operate(slot, table, None, || place, PartialEq::eq, |tx| tx.delete_range(table, range))
    }

    pub fn len<T: OrderedRecord>(
        self,
        slot: &ResultSlot<usize>,
        table: &Table<T>,
    ) -> Result<usize, Error> {
        self.operate(slot, table, None, Place::anywhere, PartialEq::eq, |tx| tx.len(table))
    }

    // ---- scans ------------------------------------------------------------------------------

    pub fn range<T: OrderedRecord>(
        self,
        slot: &'w ResultSlot<ScannedRows<'tx, T>>,
        table: &'tx Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> Rows<'w, 'tx, T, P, D> {
        let place = self.walk.place(|| Place::range(None, &range));
        self.scan(slot, table, || place, |tx| tx.range(table, range))
    }

    pub fn range_by<T: Record, K: Key>(
        self,
        slot: &'w ResultSlot<ScannedRows<'tx, T>>,
        table: &'tx Table<T>,
        index: Index<T, K>,
        range: impl RangeBounds<K>,
    ) -> Rows<'w, 'tx, T, P, D> {
        let place = self.walk.place(|| Place::range(Some(index.position()), &range));
        self.scan(slot, table, || place, |tx| tx.range_by(table, index, range))
    }

    pub fn prefix<T: OrderedRecord>(
        self,
        slot: &'w ResultSlot<ScannedRows<'tx, T>>,
        table: &'tx Table<T>,
        prefix: &(impl KeyPrefix<T::Key> + ?Sized),
    ) -> Rows<'w, 'tx, T, P, D> {
        let place = || Place::prefix::<T::Key>(None, prefix);
        self.scan(slot, table, place, |tx| tx.prefix(table, prefix))
    }

    pub fn prefix_by<T: Record, K: Key>(
        self,
        slot: &'w ResultSlot<ScannedRows<'tx, T>>,
        table: &'tx Table<T>,
        index: Index<T, K>,
        prefix: &(impl KeyPrefix<K> + ?Sized),
    ) -> Rows<'w, 'tx, T, P, D> {
        let place = || Place::prefix::<K>(Some(index.position()), prefix);
        self.scan(slot, table, place, |tx| tx.prefix_by(table, index, prefix))
    }

    pub fn starts_with<T: OrderedRecord>(
        self,
        slot: &'w ResultSlot<ScannedRows<'tx, T>>,
        table: &'tx Table<T>,
        start: impl KeyStart<T::Key>,
    ) -> Rows<'w, 'tx, T, P, D> {
        let place = self.walk.place(|| Place::start::<T::Key>(None, &start));
        self.scan(slot, table, || place, |tx| tx.starts_with(table, start))
    }

    pub fn starts_with_by<T: Record, K: Key>(
        self,
        slot: &'w ResultSlot<ScannedRows<'tx, T>>,
        table: &'tx Table<T>,
        index: Index<T, K>,
        start: impl KeyStart<K>,
    ) -> Rows<'w, 'tx, T, P, D> {
        let place = self.walk.place(|| Place::start::<K>(Some(index.position()), &start));
        self.scan(slot, table, || place, |tx| tx.starts_with_by(table, index, start))
    }

    // ---- commutative operations -------------------------------------------------------------

    pub fn apply<T: Record, V: 'static, O: Operation<V>>(
        self,
        slot: &ResultSlot<()>,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        operation: O,
    ) -> Result<(), Error> {
        let At { walk, instance } = self;
        self.point(slot, table, &key, PartialEq::eq, |tx| match walk.driver.defers(instance) {
            false => tx.apply(table, key, column, operation),
            true => tx.apply_later(table, key, column, operation),
        })
    }

    pub fn or<T: Record, V: 'static>(
        self,
        slot: &ResultSlot<()>,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        bits: V,
    ) -> Result<(), Error>
    where
        Or<V>: Operation<V>,
    {
        self.apply(slot, table, key, column, Or(bits))
    }

    pub fn and<T: Record, V: 'static>(
        self,
        slot: &ResultSlot<()>,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
        bits: V,
    ) -> Result<(), Error>
    where
        And<V>: Operation<V>,
    {
        self.apply(slot, table, key, column, And(bits))
    }

    pub fn ordered_put<T: Record, O: Order, V: Payload>(
        self,
        slot: &ResultSlot<()>,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, Ordered<O, V>>,
        order: O,
        value: V,
    ) -> Result<(), Error> {
        self.apply(slot, table, key, column, OrderedPut(order, value))
    }

    pub fn top_k_insert<T: Record, O: Order, V: Payload, E: TopKEntries<V>, const K: usize>(
        self,
        slot: &ResultSlot<()>,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, TopK<O, V, K, E>>,
        order: O,
        value: V,
    ) -> Result<(), Error> {
        self.apply(slot, table, key, column, TopKInsert(order, value))
    }

    pub fn union<T: Record, V: Order, const N: usize>(
        self,
        slot: &ResultSlot<()>,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, BoundedSet<V, N>>,
        elements: BoundedSet<V, N>,
    ) -> Result<(), Error> {
        self.apply(slot, table, key, column, Union(elements))
    }
}

/// Operations on a column that take one integer.
macro_rules! integer_operations {
    ($($method:ident $operation:ident),*) => {
        impl<P: Protocol, D: Driver<P>> At<'_, '_, P, D> {
            $(
                pub fn $method<T: Record, V: Integer>(
                    self,
                    slot: &ResultSlot<()>,
                    table: &Table<T>,
                    key: &T::Key,
                    column: ColumnOf<T, V>,
                    number: V,
                ) -> Result<(), Error> {
                    self.apply(slot, table, key, column, $operation(number))
                }
            )*
        }
    };
}

integer_operations!(add Add, take Take, give Give, mul Mul, max Max, min Min);

impl<P: Protocol, D: Driver<P>> Walk<'_, P, D> {
    /// Returns the columns that an instance adds to.
    fn sums_of(&self, instance: Instance) -> ColumnSet {
        let step = &self.shape().steps[instance.step];
        step.table.columns_named(step.adds)
    }

    fn accessed<'a, T: Record>(
        &self,
        instance: Instance,
        table: &'a Table<T>,
        key: Option<&'a T::Key>,
        place: &'a Place,
    ) -> StepAccess<'a, T> {
        let access = self.shape().steps[instance.step].access;
        StepAccess { instance, access, table, key, place, again: None }
    }
}

/// A key that the caller has given. It is used for the operation, and for its place.
#[derive(Debug)]
struct Given<'k, Q>(&'k Q);

impl<K: Key, Q: KeyLookup<K>> KeyLookup<K> for Given<'_, Q> {
    #[inline(always)]
    fn encode_lookup(&self, encoder: &mut impl KeyEncoder) {
        self.0.encode_lookup(encoder);
    }

    #[inline(always)]
    fn as_key(&self) -> Option<&K> {
        self.0.as_key()
    }
}

/// Whether a look-up has found the same as before. Rows are immutable, so the same address means the same
/// contents.
fn is_same_row<T>(before: &Option<&T>, now: &Option<&T>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => ptr::eq(*before, *now),
        (before, now) => before.is_none() && now.is_none(),
    }
}

/// The rows of many keys: those that the transaction is reading, or those that the step has read.
enum RowsOfKeys<N, R> {
    Running(N),
    Read(R),
}

impl<I, N: Iterator<Item = I>, R: Iterator<Item = I>> Iterator for RowsOfKeys<N, R> {
    type Item = I;

    #[inline]
    fn next(&mut self) -> Option<I> {
        match self {
            RowsOfKeys::Running(rows) => rows.next(),
            RowsOfKeys::Read(rows) => rows.next(),
        }
    }
}

/// What a scan has read so far.
#[doc(hidden)]
pub struct ScannedRows<'tx, T> {
    rows: Vec<&'tx T>,
    /// Whether the scan has reached its end.
    is_over: bool,
    /// What the scan was read as a whole for, after these rows.
    summary: Option<Summary<'tx, T>>,
    narrowing: Narrowing,
}

impl<T> Default for ScannedRows<'_, T> {
    fn default() -> Self {
        let (rows, narrowing) = Default::default();
        ScannedRows { rows, is_over: false, summary: None, narrowing }
    }
}

/// What a scan that is read as a whole returns.
enum Summary<'tx, T> {
    /// The last row.
    Last(Option<&'tx T>),
    /// The number of rows.
    Count(usize),
}

impl<T> Copy for Summary<'_, T> {}

impl<T> Clone for Summary<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Summary<'_, T> {
    fn equals(&self, now: &Self) -> bool {
        match (self, now) {
            (Summary::Last(before), Summary::Last(now)) => is_same_row(before, now),
            (Summary::Count(before), Summary::Count(now)) => before == now,
            _ => false,
        }
    }
}

/// How a procedure narrows a scan after the call that begins it. A scan keeps its rows only if this is the same.
#[derive(Clone, Default, PartialEq)]
struct Narrowing {
    is_descending: bool,
    /// The position after which it begins.
    after: Option<Place>,
}

/// The rows of a scan that is a step. They are read on demand, or are the kept ones of an earlier pass.
#[must_use = "a scan reads nothing until it is iterated"]
pub struct Rows<'w, 'tx, T: Record, P: Protocol, D: Driver<P>> {
    walk: &'w Walk<'tx, P, D>,
    instance: Instance,
    slot: &'w ResultSlot<ScannedRows<'tx, T>>,
    is_kept: bool,
    narrowing: Narrowing,
    state: State<'tx, T, P>,
    open: Option<OpenScan<'tx, P, D>>,
}

/// A guard: as long as it lives, the scan may read on. The driver is told of its beginning and end.
struct OpenScan<'tx, P: Protocol, D: Driver<P>>(&'tx D, PhantomData<fn() -> P>);

impl<'tx, P: Protocol, D: Driver<P>> OpenScan<'tx, P, D> {
    fn new(driver: &'tx D) -> Self {
        driver.open_scan();
        OpenScan(driver, PhantomData)
    }
}

impl<P: Protocol, D: Driver<P>> Drop for OpenScan<'_, P, D> {
    fn drop(&mut self) {
        self.0.close_scan();
    }
}

#[allow(clippy::large_enum_variant, reason = "it lies on the stack, and mostly is the largest")]
enum State<'tx, T: Record, P: Protocol> {
    Running {
        scan: Scan<'tx, 'tx, T, P>,
        /// What the scan read in the pass before, as long as it reads the same.
        before: Option<ScannedRows<'tx, T>>,
    },
    /// The scan keeps its rows. This many of them have been returned.
    Kept(usize),
    Refused(Option<Error>),
}

impl<'tx, T: Record, P: Protocol, D: Driver<P>> Rows<'_, 'tx, T, P, D> {
    /// Narrows the scan, unless it keeps its rows.
    fn narrow(mut self, narrow: impl FnOnce(Scan<'tx, 'tx, T, P>) -> Scan<'tx, 'tx, T, P>) -> Self {
        if let State::Running { scan, before } = self.state {
            self.state = State::Running { scan: narrow(scan), before };
        }
        self
    }

    /// As [`Scan::descending`].
    ///
    /// # Panics
    /// If the scan has begun.
    pub fn descending(mut self) -> Self {
        self.narrowing.is_descending = true;
        self.narrow(Scan::descending)
    }

    /// As [`Scan::after`].
    ///
    /// # Panics
    /// As [`Scan::after`].
    pub fn after(mut self, key: impl KeyLookup<T::Key>) -> Self {
        self.narrowing.after = self.is_kept.then(|| Place::lookup::<T::Key>(&key));
        self.narrow(|scan| scan.after(key))
    }

    /// As [`Scan::after_by`].
    ///
    /// # Panics
    /// As [`Scan::after_by`].
    pub fn after_by<K: Key>(
        mut self,
        index: Index<T, K>,
        columns: impl KeyLookup<K>,
        key: &T::Key,
    ) -> Self {
        self.narrowing.after = self.is_kept.then(|| Place::position(&columns, key));
        self.narrow(|scan| scan.after_by(index, columns, key))
    }

    /// As [`Scan::first_row`].
    ///
    /// # Errors
    /// As [`Scan::first_row`].
    pub fn first_row(mut self) -> Result<Option<&'tx T>, Error> {
        self.next().transpose()
    }

    /// As [`Scan::last_row`].
    ///
    /// # Errors
    /// As [`Scan::last_row`].
    ///
    /// # Panics
    /// If the scan has begun.
    pub fn last_row(self) -> Result<Option<&'tx T>, Error> {
        self.summarize(
            |scan| Ok(Summary::Last(scan.last_row()?)),
            |summary| match summary {
                Summary::Last(row) => Some(row),
                Summary::Count(_) => None,
            },
        )
    }

    /// As [`Scan::count_rows`].
    ///
    /// # Errors
    /// As [`Scan::count_rows`].
    pub fn count_rows(self) -> Result<usize, Error> {
        self.summarize(
            |scan| Ok(Summary::Count(scan.count_rows()?)),
            |summary| match summary {
                Summary::Count(rows) => Some(rows),
                Summary::Last(_) => None,
            },
        )
    }

    /// Reads the rest of the scan as a whole, or takes what is kept of it if that is `wanted`.
    fn summarize<R>(
        mut self,
        read: impl FnOnce(Scan<'tx, 'tx, T, P>) -> Result<Summary<'tx, T>, Error>,
        wanted: impl FnOnce(Summary<'tx, T>) -> Option<R>,
    ) -> Result<R, Error> {
        let Rows { walk, instance, .. } = self;
        let summary = match self.state {
            State::Running { scan, before } => {
                match D::PASSES {
                    Passes::One => walk.driver.come_to(instance.step),
                    Passes::FromStep | Passes::Any => walk.driver.resume(instance),
                }
                let summary = read(scan)?;
                if self.is_kept {
                    let entry = self.slot.find(instance.iteration);
                    let scanned = &mut entry.expect("it was put there when the scan began").result;
                    if before.is_some_and(|known| {
                        !known.summary.is_some_and(|before| before.equals(&summary))
                    }) {
                        walk.note_change(instance);
                    }
                    (scanned.summary, scanned.narrowing) = (Some(summary), self.narrowing);
                }
                Some(summary)
            }
            State::Kept(position) => {
                let entry = self.slot.find(instance.iteration);
                let scanned = &entry.expect("it is kept").result;
                let is_kept = scanned.rows.len() == position && scanned.narrowing == self.narrowing;
                scanned.summary.filter(|_| is_kept)
            }
            State::Refused(ref mut error) => match error.take() {
                Some(error) => return Err(error),
                None => None,
            },
        };
        summary.and_then(wanted).ok_or_else(|| walk.read_on::<T>(instance))
    }
}

impl<'tx, T: Record, P: Protocol, D: Driver<P>> Iterator for Rows<'_, 'tx, T, P, D> {
    type Item = Result<&'tx T, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if matches!(D::PASSES, Passes::One)
            && let State::Running { scan, .. } = &mut self.state
        {
            self.walk.driver.come_to(self.instance.step);
            return scan.next();
        }
        self.next_in_passes()
    }
}

impl<'tx, T: Record, P: Protocol, D: Driver<P>> Rows<'_, 'tx, T, P, D> {
    /// Returns the next row, if a driver may walk several passes.
    #[inline(never)]
    fn next_in_passes(&mut self) -> Option<Result<&'tx T, Error>> {
        match &mut self.state {
            State::Running { scan, before } => {
                self.walk.driver.resume(self.instance);
                let next = scan.next();
                if !self.is_kept {
                    if next.is_none() {
                        self.open = None;
                    }
                    return next;
                }
                let entry = self.slot.find(self.instance.iteration);
                let scanned = &mut entry.expect("it was put there when the scan began").result;
                let position = scanned.rows.len();
                if position == 0 {
                    scanned.narrowing.clone_from(&self.narrowing);
                }
                match &next {
                    Some(Ok(row)) => scanned.rows.push(row),
                    Some(Err(_)) => {}
                    None => {
                        scanned.is_over = true;
                        self.open = None;
                    }
                }
                // Compare with the pass before: at the first difference, what depends on the scan has to run
                // again.
                if let Some(known) = before {
                    let is_same = match &next {
                        Some(Ok(row)) => {
                            known.rows.get(position).is_some_and(|old| ptr::eq(*old, *row))
                        }
                        Some(Err(_)) => false,
                        None => known.is_over && known.rows.len() == position,
                    };
                    if !is_same {
                        self.walk.note_change(self.instance);
                        *before = None;
                    }
                }
                next
            }
            State::Kept(position) => {
                let entry = self.slot.find(self.instance.iteration);
                let scanned = &entry.expect("it is kept").result;
                let is_same = *position > 0 || scanned.narrowing == self.narrowing;
                match scanned.rows.get(*position) {
                    Some(row) if is_same => {
                        *position += 1;
                        Some(Ok(row))
                    }
                    None if is_same && scanned.is_over => None,
                    _ => Some(Err(self.walk.read_on::<T>(self.instance))),
                }
            }
            State::Refused(error) => error.take().map(Err),
        }
    }
}
