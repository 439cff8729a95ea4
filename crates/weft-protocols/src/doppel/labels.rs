//! Labels: rows that the application wants split, contended or not (Doppel, §5.5, manual data labeling).

use std::ptr::NonNull;
use std::sync::Arc;

use weft::Database;
use weft::commit::access_set::TidHeader;
use weft::encoding::{EncodedKey, Key, KeyForm};
use weft::operation::{ColumnOf, ColumnOperation, Operation};
use weft::schema::Record;
use weft::store::record::StoredRecord;
use weft::store::table::TableInner;
use weft::store::table::{Table, with_form};
use weft::store::worker::PinnedWorker;
use weft::{Failure, TransactionOptions};

use super::contention::ContendedRecord;
use super::{JoinedProtocol, PhaseReconciliation, classification};
use crate::INSIDE;

/// Labels rows that are to be split, in a database under a protocol with phases.
pub trait LabelledDatabase {
    /// Labels a row: as long as it exists, it is split for the operation `O` on a column in every split phase,
    /// contended or not. A row can have labels for several columns; the last label for a column counts.
    ///
    /// At most 64 rows are split at a time. Further labelled rows stay whole until labels of other rows are removed, or
    /// these rows are deleted.
    ///
    /// The database finds out automatically which rows are contended. A label is for a rush that you can
    /// foresee: it spares the first transactions the conflicts from which the database would learn.
    ///
    /// ```
    /// # use weft::operation::Add;
    /// # use weft_protocols::{Doppel, LabelledDatabase};
    /// # use weft::{Database, Error, Record, column_of};
    /// # #[derive(Clone, Record)]
    /// # struct Page { #[record(key)] id: u32, likes: u64 }
    /// # let database = Database::builder().protocol::<Doppel>().table::<Page>().open()?;
    /// # let pages = database.table::<Page>()?;
    /// # database.transact(|tx| tx.insert(&pages, Page { id: 7, likes: 0 }))?;
    /// database.label_split::<_, _, Add<_>>(&pages, &7, column_of!(Page.likes))?;
    /// for _ in 0..100 {
    ///     database.transact(|tx| tx.add(&pages, &7, column_of!(Page.likes), 1))?;
    /// }
    /// assert!(database.metrics().phases.unwrap().split_phases > 0);
    /// let likes = database.transact(|tx| Ok::<_, Error>(tx.get(&pages, &7)?.unwrap().likes))?;
    /// assert_eq!(likes, 100);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::NoSuchRow`]; [`Failure::Unsplittable`] if the column is in a secondary index, owns memory or is
    /// read by a check, or if it has bounds that the operation does not keep; [`Failure::ForeignTable`];
    /// [`Failure::NestedTransaction`]; [`Failure::Closed`].
    fn label_split<T: Record, V: 'static, O: Operation<V>>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
    ) -> Result<(), Failure>;

    /// Removes all labels of a row.
    ///
    /// # Errors
    /// [`Failure::NoSuchRow`]; [`Failure::ForeignTable`]; [`Failure::NestedTransaction`];
    /// [`Failure::Closed`].
    fn remove_split_labels<T: Record>(&self, table: &Table<T>, key: &T::Key)
    -> Result<(), Failure>;
}

impl<J: JoinedProtocol> LabelledDatabase for Database<PhaseReconciliation<J>> {
    fn label_split<T: Record, V: 'static, O: Operation<V>>(
        &self,
        table: &Table<T>,
        key: &T::Key,
        column: ColumnOf<T, V>,
    ) -> Result<(), Failure> {
        let unsplittable = |reason| Failure::Unsplittable {
            table: table.name(),
            column: column.name(),
            operation: O::KIND,
            reason,
        };
        if let Some(reason) = column.unsplittable::<O>() {
            return Err(unsplittable(reason));
        }
        let Some(operation) = ColumnOperation::new::<T, V, O>(column) else {
            return Err(unsplittable("the column owns memory"));
        };
        with_record(self, table, key, |record, key| {
            let contended = ContendedRecord::of(record, inner_of(table).reference(), key);
            classification::label(self.open_engine(INSIDE), contended, operation);
        })
    }

    fn remove_split_labels<T: Record>(
        &self,
        table: &Table<T>,
        key: &T::Key,
    ) -> Result<(), Failure> {
        with_record(self, table, key, |record, _| {
            classification::remove_labels(
                self.open_engine(INSIDE),
                inner_of(table).reference(),
                record,
            );
        })
    }
}

/// Runs `body` with the record of a row that exists now, and with its key, on a pinned worker.
fn with_record<J: JoinedProtocol, T: Record>(
    database: &Database<PhaseReconciliation<J>>,
    table: &Table<T>,
    key: &T::Key,
    body: impl FnOnce(NonNull<u8>, EncodedKey),
) -> Result<(), Failure> {
    if !Arc::ptr_eq(&inner_of(table).identity, &database.open_engine(INSIDE).identity) {
        return Err(Failure::ForeignTable { table: table.name() });
    }
    let claim = database.claim_worker(&TransactionOptions::new(), INSIDE)?;
    let worker = claim.worker();
    if worker.active.get() {
        return Err(Failure::NestedTransaction);
    }
    database.open_engine(INSIDE).shared.check_open()?;
    // Encode the key before the worker is pinned, because this runs the user's code.
    let encoded = with_form!(T::Key::WIDTH_BYTES, |K| K::from_key(key).erase());
    let pinned = PinnedWorker::new(worker);
    // SAFETY: the worker is pinned.
    let record = unsafe { inner_of(table).reference().find(&encoded) }.filter(|record| {
        // SAFETY: the table's own index holds addresses of its records, and the worker is pinned.
        let stored = unsafe { record.cast::<StoredRecord<J::Header>>().as_ref() };
        !stored.header.tid().load_unlocked().is_absent()
    });
    let is_there = record.map(|record| body(record, encoded)).is_some();
    drop(pinned);
    match is_there {
        true => Ok(()),
        false => Err(Failure::NoSuchRow { table: table.name(), key: format!("{key:?}") }),
    }
}

/// Returns the table behind the handle.
fn inner_of<T: Record>(table: &Table<T>) -> &TableInner<T> {
    // SAFETY: only a pinned worker looks up records in it, and only transactions change it.
    unsafe { table.inner() }
}
