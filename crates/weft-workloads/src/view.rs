//! An interface to read from an ordinary transaction or from a snapshot.
//!
//! A read-only transaction is written once, against [`View`]. The workload's parameters choose between the two.

use std::ops::RangeBounds;

use weft::encoding::{Key, KeyPrefix};
use weft::operation::Columns;
use weft::protocol::Protocol;
use weft::schema::{Index, OrderedRecord, Record};
use weft::{Error, Snapshot, Table, Transaction};

/// A state of the database that can be read.
pub(crate) trait View<P: Protocol> {
    /// Returns the row with this primary key.
    fn get<T: Record>(&self, table: &Table<T>, key: &T::Key) -> Result<Option<&T>, Error>;

    /// Returns these columns of the row with this primary key.
    fn get_columns<'v, T: Record, C: Columns<T>>(
        &'v self,
        table: &Table<T>,
        key: &T::Key,
        columns: C,
    ) -> Result<Option<C::Values<'v>>, Error>;

    /// Returns the rows whose primary keys are in `range`, in order.
    fn range<'v, T: OrderedRecord>(
        &'v self,
        table: &'v Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> impl Iterator<Item = Result<&'v T, Error>>;

    /// Returns the rows whose primary keys begin with `prefix`, in order.
    fn prefix<'v, T: OrderedRecord>(
        &'v self,
        table: &'v Table<T>,
        prefix: &impl KeyPrefix<T::Key>,
    ) -> impl Iterator<Item = Result<&'v T, Error>>;

    /// Returns the rows whose keys in a secondary index begin with `prefix`, in order.
    fn prefix_by<'v, T: Record, K: Key>(
        &'v self,
        table: &'v Table<T>,
        index: Index<T, K>,
        prefix: &impl KeyPrefix<K>,
    ) -> impl Iterator<Item = Result<&'v T, Error>>;

    /// Returns the last of the rows that `prefix_by` returns.
    fn last_by<'v, T: Record, K: Key>(
        &'v self,
        table: &'v Table<T>,
        index: Index<T, K>,
        prefix: &impl KeyPrefix<K>,
    ) -> Result<Option<&'v T>, Error>;

    /// Returns the rows with these primary keys, in the order of the keys.
    fn get_many<'v, T: Record>(
        &'v self,
        table: &'v Table<T>,
        keys: impl Iterator<Item = T::Key> + Clone,
    ) -> Result<impl Iterator<Item = Result<Option<&'v T>, Error>>, Error>;
}

impl<P: Protocol> View<P> for Transaction<'_, P> {
    #[inline(always)]
    fn get<T: Record>(&self, table: &Table<T>, key: &T::Key) -> Result<Option<&T>, Error> {
        self.get(table, key)
    }

    #[inline(always)]
    fn get_columns<'v, T: Record, C: Columns<T>>(
        &'v self,
        table: &Table<T>,
        key: &T::Key,
        columns: C,
    ) -> Result<Option<C::Values<'v>>, Error> {
        self.get_columns(table, key, columns)
    }

    #[inline(always)]
    fn range<'v, T: OrderedRecord>(
        &'v self,
        table: &'v Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> impl Iterator<Item = Result<&'v T, Error>> {
        self.range(table, range)
    }

    #[inline(always)]
    fn prefix<'v, T: OrderedRecord>(
        &'v self,
        table: &'v Table<T>,
        prefix: &impl KeyPrefix<T::Key>,
    ) -> impl Iterator<Item = Result<&'v T, Error>> {
        self.prefix(table, prefix)
    }

    #[inline(always)]
    fn prefix_by<'v, T: Record, K: Key>(
        &'v self,
        table: &'v Table<T>,
        index: Index<T, K>,
        prefix: &impl KeyPrefix<K>,
    ) -> impl Iterator<Item = Result<&'v T, Error>> {
        self.prefix_by(table, index, prefix)
    }

    #[inline(always)]
    fn last_by<'v, T: Record, K: Key>(
        &'v self,
        table: &'v Table<T>,
        index: Index<T, K>,
        prefix: &impl KeyPrefix<K>,
    ) -> Result<Option<&'v T>, Error> {
        self.prefix_by(table, index, prefix).descending().next().transpose()
    }

    #[inline(always)]
    fn get_many<'v, T: Record>(
        &'v self,
        table: &'v Table<T>,
        keys: impl Iterator<Item = T::Key> + Clone,
    ) -> Result<impl Iterator<Item = Result<Option<&'v T>, Error>>, Error> {
        self.get_many(table, keys)
    }
}

impl<P: Protocol> View<P> for Snapshot {
    #[inline(always)]
    fn get<T: Record>(&self, table: &Table<T>, key: &T::Key) -> Result<Option<&T>, Error> {
        Ok(self.get(table, key)?)
    }

    #[inline(always)]
    fn get_columns<'v, T: Record, C: Columns<T>>(
        &'v self,
        table: &Table<T>,
        key: &T::Key,
        columns: C,
    ) -> Result<Option<C::Values<'v>>, Error> {
        Ok(self.get(table, key)?.map(|row| columns.get(row)))
    }

    #[inline(always)]
    fn range<'v, T: OrderedRecord>(
        &'v self,
        table: &'v Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> impl Iterator<Item = Result<&'v T, Error>> {
        self.range(table, range).map(|row| Ok(row?))
    }

    #[inline(always)]
    fn prefix<'v, T: OrderedRecord>(
        &'v self,
        table: &'v Table<T>,
        prefix: &impl KeyPrefix<T::Key>,
    ) -> impl Iterator<Item = Result<&'v T, Error>> {
        self.prefix(table, prefix).map(|row| Ok(row?))
    }

    #[inline(always)]
    fn prefix_by<'v, T: Record, K: Key>(
        &'v self,
        table: &'v Table<T>,
        index: Index<T, K>,
        prefix: &impl KeyPrefix<K>,
    ) -> impl Iterator<Item = Result<&'v T, Error>> {
        self.prefix_by(table, index, prefix).map(|row| Ok(row?))
    }

    #[inline(always)]
    fn last_by<'v, T: Record, K: Key>(
        &'v self,
        table: &'v Table<T>,
        index: Index<T, K>,
        prefix: &impl KeyPrefix<K>,
    ) -> Result<Option<&'v T>, Error> {
        Ok(self.prefix_by(table, index, prefix).descending().next().transpose()?)
    }

    #[inline(always)]
    fn get_many<'v, T: Record>(
        &'v self,
        table: &'v Table<T>,
        keys: impl Iterator<Item = T::Key> + Clone,
    ) -> Result<impl Iterator<Item = Result<Option<&'v T>, Error>>, Error> {
        Ok(self.get_many(table, keys)?.map(|row| Ok(row?)))
    }
}
