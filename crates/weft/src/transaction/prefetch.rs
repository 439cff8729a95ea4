//! Fetching the rows of several keys at the same time: the mechanism of [`Transaction::prefetch`],
//! [`Transaction::get_many`] and [`Transaction::update_many`].

use arrayvec::ArrayVec;
use weft_htm::prefetch::BATCH_KEYS;

use super::{RecordOf, Transaction};
use crate::commit::Protocol;
use crate::error::Error;
use crate::index::bplus_tree::LeafHint;
use crate::row::encoding::{Key, KeyForm, KeyPart, WholeKey};
use crate::row::schema::Record;
use crate::store::record::RecordPointer;
use crate::store::table::{FormIndex, PickForm, Table, TableInner, with_form};
use crate::store::worker::StoredForm;

/// How much of a row is prefetched to be read. Most columns of a larger row are not needed, and cache lines that
/// are not needed delay the others.
pub(super) const PREFETCH_READ_BYTES: usize = 128;

/// How much of a row is prefetched to be updated. For a larger row, the hardware prefetches the rest automatically
/// during the copy.
pub(super) const PREFETCH_UPDATE_BYTES: usize = 512;

impl<P: Protocol> Transaction<'_, P> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn prefetch_rows<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl IntoIterator<Item: KeyPart<T::Key>>,
        bytes_max: usize,
    ) -> Result<(), Error> {
        let table = self.enter(table)?;
        if P::REPAIRS && self.worker.round() > 0 {
            return Ok(()); // The rows were fetched in an earlier round.
        }
        let row_bytes = size_of::<T>().min(bytes_max);
        let mut keys = keys.into_iter().fuse();
        loop {
            let batch: ArrayVec<_, BATCH_KEYS> = keys.by_ref().take(BATCH_KEYS).collect();
            if batch.is_empty() {
                return Ok(());
            }
            let records = self.fetch_batch(table, &batch, row_bytes);
            // A single operation finds its record without this. (Also, what `newest` holds under such a protocol is
            // up to the protocol.)
            if !P::SINGLE_KEY {
                let found = records.iter().flatten().map(|record| record.address());
                self.worker.buffer(table.number()).announced.extend(found);
            }
        }
    }

    /// Finds the records of a few keys, and prefetches them and their rows, step by step. The lines that one step
    /// requests for a key arrive while the step makes its requests for the other keys. Nothing is read for the
    /// transaction. Returns `None` for a key that is in no index node at this time.
    #[inline(always)]
    pub(super) fn fetch_batch<T: Record>(
        &self,
        table: &TableInner<T>,
        keys: &[impl KeyPart<T::Key>],
        row_bytes: usize,
    ) -> ArrayVec<Option<RecordOf<P>>, BATCH_KEYS> {
        with_form!(T::Key::WIDTH_BYTES, |K| {
            // The keys are encoded before the buffer is borrowed, since that runs the user's code.
            let keys: ArrayVec<K, BATCH_KEYS> =
                keys.iter().map(|key| K::from_lookup(&WholeKey(key))).collect();
            let hint = self.worker.buffer(table.number()).hint::<K>();
            self.fetch_encoded(K::pick(&table.primary), hint, &keys, row_bytes)
        })
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn fetch_encoded<K: StoredForm>(
        &self,
        index: &FormIndex<K>,
        hint: &mut LeafHint<K>,
        keys: &[K],
        row_bytes: usize,
    ) -> ArrayVec<Option<RecordOf<P>>, BATCH_KEYS> {
        // Step 1: the index nodes. Each record is requested when its address is known.
        let mut records = ArrayVec::new();
        index.get_batch(keys, hint, |lookup| {
            records.push(lookup.address().map(|address| {
                // SAFETY: the table's own index holds addresses of its records.
                let record: RecordOf<P> = unsafe { RecordPointer::from_address(address) };
                record.prefetch_header();
                record
            }));
        });
        // Step 2: the rows.
        for record in records.iter().flatten() {
            // SAFETY: the worker is pinned as long as `self` exists.
            unsafe { record.prefetch_row(row_bytes) };
        }
        records
    }
}
