//! Prefetching the rows of several keys at the same time; see [`Transaction::prefetch`].

use arrayvec::ArrayVec;
use weft_htm::prefetch::BATCH_KEYS;

use super::{RecordOf, Transaction};
use crate::commit::Protocol;
use crate::error::Error;
use crate::index::Lookup;
use crate::row::encoding::{Key, KeyForm};
use crate::row::schema::Record;
use crate::store::record::RecordPointer;
use crate::store::table::{FormIndex, PickForm, Table, with_form};
use crate::store::worker::StoredForm;

/// How much of a row is prefetched to be read. Most columns of a larger row are not needed, and cache lines that
/// are not needed delay the others.
pub(super) const PREFETCH_READ_BYTES: usize = 128;

/// How much of a row is prefetched to be updated. For a larger row, the hardware prefetches the rest automatically
/// during the copy.
pub(super) const PREFETCH_UPDATE_BYTES: usize = 512;

impl<P: Protocol> Transaction<'_, P> {
    #[inline(always)]
    pub(super) fn prefetch_rows<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl IntoIterator<Item = T::Key>,
        bytes_max: usize,
    ) -> Result<(), Error> {
        let table = self.enter(table)?;
        if P::REPAIRS && self.worker.round() > 0 {
            return Ok(()); // The rows were fetched in an earlier round.
        }
        let row_bytes = size_of::<T>().min(bytes_max);
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let index = K::pick(&table.primary);
            let mut keys = keys.into_iter().map(|key| K::from_key(&key)).fuse();
            loop {
                let batch: ArrayVec<K, BATCH_KEYS> = keys.by_ref().take(BATCH_KEYS).collect();
                if batch.is_empty() {
                    return Ok(());
                }
                self.prefetch_batch(index, table.number(), &batch, row_bytes);
            }
        })
    }

    /// Prefetches the rows of a few keys, step by step. The lines that one step requests for a key arrive while the
    /// step makes its requests for the other keys.
    #[inline(always)]
    fn prefetch_batch<K: StoredForm>(
        &self,
        index: &FormIndex<K>,
        number: usize,
        keys: &[K],
        row_bytes: usize,
    ) {
        // Step 1: the index nodes.
        for key in keys {
            index.prefetch(key);
        }
        // Step 2: the records.
        let mut records = ArrayVec::<RecordOf<P>, BATCH_KEYS>::new();
        for key in keys {
            let buffer = self.worker.buffer(number);
            let found = index.get(key, buffer.hint::<K>());
            if let Lookup::Found(address) = found {
                // SAFETY: the table's own index holds addresses of its records.
                let record: RecordOf<P> = unsafe { RecordPointer::from_address(address) };
                record.prefetch_header();
                records.push(record);
                // A single operation finds its record without this. (Also, what `newest` holds under such a
                // protocol is up to the protocol.)
                if !P::SINGLE_KEY {
                    buffer.announced.push(address);
                }
            }
        }
        // Step 3: the rows.
        for record in records {
            // SAFETY: the worker is pinned as long as `self` exists.
            unsafe { record.prefetch_row(row_bytes) };
        }
    }
}
