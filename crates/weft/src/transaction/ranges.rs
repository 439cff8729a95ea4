//! Scans of ranges, prefixes and beginnings, by the primary key or by a secondary index.

use std::ops::RangeBounds;

use super::expiry::disappears;
use super::{Scan, Transaction};
use crate::commit::{Executor, Protocol};
use crate::error::{ConflictReason, Error};
use crate::row::encoding::{Key, KeyForm, KeyLookup, KeyPrefix, KeyStart, start_range};
use crate::row::schema::{Index, OrderedRecord, Record};
use crate::store::ranges::{encode_index_range, encode_range, lookup_of, prefix_of, start_of};
use crate::store::table::{Table, with_form, with_secondary};

impl<'db, P: Protocol> Transaction<'db, P> {
    /// Returns a scan of the rows whose primary keys lie in `range`, in the order of the keys. A range whose start is
    /// greater than its end has no rows.
    ///
    /// # Errors
    /// The scan's items are: [`Conflict`](crate::Conflict);
    /// [`Failure::ForeignTable`](crate::Failure::ForeignTable),
    /// [`Failure::DeadlineExceeded`](crate::Failure::DeadlineExceeded). After an error the transaction cannot commit,
    /// so a closure that ignores the error (`tx.range(…).count()`) changes nothing.
    pub fn range<'tx, T: OrderedRecord>(
        &'tx self,
        table: &'tx Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> Scan<'tx, 'db, T, P> {
        let scan = with_form!(T::Key::WIDTH_BYTES, |K| {
            let bounds = encode_range::<K, _>(&range);
            Scan::new::<K>(self, table, None, bounds)
        });
        #[cfg(feature = "history")]
        let scan = scan.recorded(|| crate::history::key_range(&range));
        scan
    }

    /// Returns a scan of the rows whose primary keys begin with `prefix`, in the order of the keys. For a key `(A,
    /// B, C)`, a prefix is an `A`, `(A,)` or `(A, B)`.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn prefix<'tx, T: OrderedRecord>(
        &'tx self,
        table: &'tx Table<T>,
        prefix: &(impl KeyPrefix<T::Key> + ?Sized),
    ) -> Scan<'tx, 'db, T, P> {
        let scan = with_form!(T::Key::WIDTH_BYTES, |K| {
            let bounds = K::prefix_range::<T::Key>(prefix);
            Scan::new::<K>(self, table, None, bounds)
        });
        #[cfg(feature = "history")]
        let scan = scan.recorded(|| crate::history::prefix_range(prefix));
        scan
    }

    /// Returns a scan of the rows whose primary keys start with a text or with bytes, in the order of the keys. For a
    /// key of several columns, `start` is a tuple of its first columns, of which the last one is the beginning of a
    /// text or of a byte string.
    ///
    /// ```
    /// # use weft::{Database, Error, Record};
    /// # #[derive(Clone, Record)]
    /// # struct File { #[record(key)] owner: u32, #[record(key)] path: String }
    /// # let database = Database::builder().table::<File>().open()?;
    /// # let files = database.table::<File>()?;
    /// # let paths = ["a/x", "b/x", "b/y"];
    /// # database.transact(|tx| tx.insert_many(&files, paths.map(|path| File { owner: 7, path: path.into() })))?;
    /// let count = database.transact(|tx| tx.starts_with(&files, (7, "b/")).count_rows())?;
    /// assert_eq!(count, 2);
    /// # Ok::<(), weft::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn starts_with<'tx, T: OrderedRecord>(
        &'tx self,
        table: &'tx Table<T>,
        start: impl KeyStart<T::Key>,
    ) -> Scan<'tx, 'db, T, P> {
        let scan = with_form!(T::Key::WIDTH_BYTES, |K| {
            Scan::new::<K>(self, table, None, start_range(&start))
        });
        #[cfg(feature = "history")]
        let scan = scan.recorded(|| crate::history::start_range(&start));
        scan
    }

    /// As [`Transaction::starts_with`], for the columns of a secondary index.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn starts_with_by<'tx, T: Record, K: Key>(
        &'tx self,
        table: &'tx Table<T>,
        index: Index<T, K>,
        start: impl KeyStart<K>,
    ) -> Scan<'tx, 'db, T, P> {
        with_secondary!(&table.inner.secondary[index.position()], |secondary| {
            Scan::new(self, table, Some(secondary), start_of(secondary, &start))
        })
    }

    /// Returns how many rows a table has. The transaction relies on the number, and not on what the rows contain: it
    /// commits although others update them, and conflicts with those that insert or delete.
    ///
    /// This takes the same time whatever the number is, since each worker counts what its commits insert and delete. But
    /// rows are counted one by one if they expire without a hook, because no transaction deletes them at their time, and
    /// under some of the laboratory's protocols. (A snapshot also counts them one by one, and conflicts with nothing:
    /// [`Snapshot::len`](crate::Snapshot::len).)
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn len<T: OrderedRecord>(&self, table: &Table<T>) -> Result<usize, Error> {
        if !const { disappears::<T>() }
            && let Some(rows) = self.read_row_counts(table)?
        {
            return Ok(rows);
        }
        self.range(table, ..).count_rows()
    }

    /// Reads the workers' counts of a table's rows, if the protocol has them.
    fn read_row_counts<T: Record>(&self, table: &Table<T>) -> Result<Option<usize>, Error> {
        let (inner, worker) = (self.enter(table)?, self.worker);
        let reference = inner.reference();
        if self.reads_snapshot() {
            return Ok(None);
        }
        let Some(added) = worker.executor().rows_added(reference) else { return Ok(None) };
        let Some((rows, notes)) = worker.memory.read_row_counts(inner.number()) else {
            return Err(self.doom(ConflictReason::RangeChanged, reference));
        };
        for note in notes {
            let noted = worker.executor().note_node(reference, note, None);
            noted.map_err(|abort| self.doom_by(abort))?;
        }
        // It can be less than 0 if the transaction has deleted a row that another one has deleted since.
        Ok(Some(usize::try_from(rows + added).unwrap_or(0)))
    }

    /// Returns the row with this key in a unique index, or `None` if there is no such row.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_by<'tx, T: Record, K: Key>(
        &'tx self,
        table: &'tx Table<T>,
        index: Index<T, K>,
        key: impl KeyLookup<K>,
    ) -> Result<Option<&'tx T>, Error> {
        let mut scan = with_secondary!(&table.inner.secondary[index.position()], |secondary| {
            Scan::new(self, table, Some(secondary), lookup_of(secondary, &key))
        });
        scan.next().transpose()
    }

    /// Returns a scan of the rows whose keys in a secondary index lie in `range`, in the order of the index.
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
            Scan::new(self, table, Some(secondary), bounds)
        })
    }

    /// Returns a scan of the rows whose keys in a secondary index begin with `prefix`, in the order of the index.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn prefix_by<'tx, T: Record, K: Key>(
        &'tx self,
        table: &'tx Table<T>,
        index: Index<T, K>,
        prefix: &(impl KeyPrefix<K> + ?Sized),
    ) -> Scan<'tx, 'db, T, P> {
        with_secondary!(&table.inner.secondary[index.position()], |secondary| {
            let bounds = prefix_of(secondary, prefix);
            Scan::new(self, table, Some(secondary), bounds)
        })
    }
}
