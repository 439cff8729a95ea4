//! Reading the rows of many keys in batches: see [`Snapshot::get_many`].

use std::iter::Fuse;
use std::ptr::NonNull;

use arrayvec::ArrayVec;
use weft_htm::prefetch::{BATCH_KEYS, LINE_BYTES, prefetch_lines};
use weft_htm::word::Ordering;

use super::Snapshot;
use crate::error::Failure;
use crate::index::bplus_tree::LeafHint;
use crate::row::encoding::{Key, KeyForm, KeyPart, WholeKey};
use crate::row::schema::Record;
use crate::store::record::version::VersionHeader;
use crate::store::record::{newest_word, record_at};
use crate::store::table::{FormIndex, PickForm, Table, TableInner, with_form};
use crate::store::worker::StoredForm;

/// An iterator over the rows with some primary keys, as a [`Snapshot`] sees them, in the order in which the keys
/// were given. [`Snapshot::get_many`] returns it.
#[must_use = "the rows are read as they are asked for"]
pub struct SnapshotRows<'s, T: Record, I: Iterator<Item: KeyPart<T::Key>>> {
    snapshot: &'s Snapshot,
    table: &'s TableInner<T>,
    keys: Fuse<I>,
    /// The keys whose rows have been read. Below, their rows. Those from `position` on are still to be returned.
    batch: ArrayVec<I::Item, BATCH_KEYS>,
    rows: ArrayVec<Option<NonNull<u8>>, BATCH_KEYS>,
    position: usize,
    /// Whether a batch could not be read. Then no item follows.
    has_failed: bool,
}

impl Snapshot {
    /// Returns the rows with these primary keys, in the order in which the keys are given; `None` for absent rows.
    ///
    /// This gives the same rows as [`Snapshot::get`] for each key, but much faster: while one row is being fetched
    /// from memory, the next ones are requested. It takes keys from the iterator sixteen at a time.
    ///
    /// # Errors
    /// [`Failure::ForeignTable`], at once. The items are those of [`Snapshot::get`]. No item follows an error.
    ///
    /// ```
    /// # use weft::{Database, Record};
    /// # #[derive(Clone, Record)]
    /// # #[record(table = "accounts")]
    /// # struct Account { #[record(key)] id: u32, balance: i64 }
    /// # let database = Database::builder().table::<Account>().open()?;
    /// # let accounts = database.table::<Account>()?;
    /// database.transact(|tx| tx.insert(&accounts, Account { id: 2, balance: 100 }))?;
    /// let snapshot = database.open_snapshot()?;
    /// let mut total = 0;
    /// for account in snapshot.get_many(&accounts, [1, 2, 3])? {
    ///     total += account?.map_or(0, |account| account.balance);
    /// }
    /// assert_eq!(total, 100);
    /// # Ok::<(), weft::Error>(())
    /// ```
    pub fn get_many<'s, T: Record, I: IntoIterator<Item: KeyPart<T::Key>>>(
        &'s self,
        table: &'s Table<T>,
        keys: I,
    ) -> Result<SnapshotRows<'s, T, I::IntoIter>, Failure> {
        Ok(SnapshotRows {
            snapshot: self,
            table: self.enter(table)?,
            keys: keys.into_iter().fuse(),
            batch: ArrayVec::new(),
            rows: ArrayVec::new(),
            position: 0,
            has_failed: false,
        })
    }

    /// Finds what the snapshot sees under each of a few keys, step by step. The cache lines that one step requests
    /// for a key arrive while the step goes through the other keys.
    fn see_batch<K: StoredForm>(
        &self,
        index: &FormIndex<K>,
        keys: impl Iterator<Item = K>,
    ) -> Result<ArrayVec<Option<NonNull<u8>>, BATCH_KEYS>, Failure> {
        let keys: ArrayVec<K, BATCH_KEYS> = keys.collect();
        self.read_pinned(|_| {
            // Step 1: the index nodes. Each record is requested when its address is known.
            let mut records = ArrayVec::<Option<u64>, BATCH_KEYS>::new();
            index.get_batch(&keys, &mut LeafHint::new(), |lookup| {
                if let Some(address) = lookup.address() {
                    prefetch_lines(record_at(address).as_ptr(), LINE_BYTES);
                }
                records.push(lookup.address());
            });
            // Step 2: the newest versions.
            for &address in records.iter().flatten() {
                // Relaxed: nothing is read through the pointer.
                // SAFETY: the address is from the table's own index, and the worker has been pinned since.
                let newest = unsafe { newest_word(record_at(address)) }.load(Ordering::Relaxed);
                prefetch_lines(
                    newest.address().wrapping_sub(size_of::<VersionHeader>()),
                    2 * LINE_BYTES,
                );
            }
            // SAFETY: as above.
            let see =
                |address: Option<u64>| address.and_then(|address| unsafe { self.see(address) });
            records.into_iter().map(see).collect()
        })
    }
}

impl<'s, T: Record, I: Iterator<Item: KeyPart<T::Key>>> SnapshotRows<'s, T, I> {
    /// Reads the next batch. Returns false if there are no more keys.
    fn read_batch(&mut self) -> Result<bool, Failure> {
        self.position = 0;
        self.rows.clear();
        // Before the worker is pinned, since the iterator of keys may run any code.
        self.batch = self.keys.by_ref().take(BATCH_KEYS).collect();
        if self.batch.is_empty() {
            return Ok(false);
        }
        self.rows = with_form!(T::Key::WIDTH_BYTES, |K| {
            let keys = self.batch.iter().map(|key| K::from_lookup(&WholeKey(key)));
            self.snapshot.see_batch::<K>(K::pick(&self.table.primary), keys)
        })?;
        Ok(true)
    }
}

impl<'s, T: Record, I: Iterator<Item: KeyPart<T::Key>>> Iterator for SnapshotRows<'s, T, I> {
    type Item = Result<Option<&'s T>, Failure>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        if self.position == self.rows.len() {
            match self.read_batch() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(failure) => {
                    self.has_failed = true;
                    return Some(Err(failure));
                }
            }
        }
        let row = self.rows[self.position];
        self.snapshot.record_read(self.table, &WholeKey(&self.batch[self.position]), row);
        self.position += 1;
        // SAFETY: a row of the table that the snapshot needs. It is kept as long as the snapshot is open.
        let row = row.filter(|&row| unsafe { self.snapshot.shows::<T>(row) });
        // SAFETY: as above.
        Some(Ok(row.map(|row| unsafe { row.cast::<T>().as_ref() })))
    }
}
