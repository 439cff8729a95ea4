//! How the rows of several keys are fetched at once.

use arrayvec::ArrayVec;

use super::Snapshot;
use crate::encoding::{Key, KeyForm};
use crate::error::Failure;
use crate::index::Lookup;
use crate::index::bplus_tree::LeafHint;
use crate::protocol::Protocol;
use crate::record::RecordPointer;
use crate::schema::Record;
use crate::table::{FormIndex, PickForm, Table, with_form};
use crate::transaction::{PREFETCH_BATCH, PREFETCH_READ_BYTES};
use crate::worker::StoredForm;

impl<P: Protocol> Snapshot<P> {
    /// Brings the rows with these primary keys into the processor's cache, all at once, to be read
    /// soon, as [`Transaction::prefetch`](crate::Transaction::prefetch) does. A hint: keys that are
    /// absent do no harm. What is fetched of each row is its newest version, which is the one that
    /// a young snapshot reads, but for a few.
    ///
    /// # Errors
    /// [`Failure::ForeignTable`], [`Failure::TooManyWorkers`].
    pub fn prefetch<T: Record>(
        &self,
        table: &Table<T, P>,
        keys: impl IntoIterator<Item = T::Key>,
    ) -> Result<(), Failure> {
        let inner = self.enter(table)?;
        let row_bytes = size_of::<T>().min(PREFETCH_READ_BYTES);
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let index = K::pick(&inner.primary);
            let mut keys = keys.into_iter().map(|key| K::from_key(&key)).fuse();
            loop {
                // Before the worker is pinned: the keys may come from anywhere.
                let batch: ArrayVec<K, PREFETCH_BATCH> =
                    keys.by_ref().take(PREFETCH_BATCH).collect();
                if batch.is_empty() {
                    return Ok(());
                }
                self.prefetch_batch(index, &batch, row_bytes)?;
            }
        })
    }

    /// Asks for the rows of a few keys, step by step: what one step asks for arrives while the
    /// step asks for the other keys' lines.
    fn prefetch_batch<K: StoredForm>(
        &self,
        index: &FormIndex<K>,
        keys: &[K],
        row_bytes: usize,
    ) -> Result<(), Failure> {
        keys.iter().for_each(|key| index.prefetch(key));
        self.pinned(|worker| {
            let mut hint = LeafHint::new();
            let mut records = ArrayVec::<RecordPointer<P::Header>, PREFETCH_BATCH>::new();
            for key in keys {
                if let Lookup::Found(address) = index.get(key, &mut hint, &worker.memory) {
                    // SAFETY: the table's own index holds addresses of its records.
                    let record = unsafe { RecordPointer::from_address(address) };
                    record.prefetch_header();
                    records.push(record);
                }
            }
            for record in records {
                // SAFETY: pinned since the address came from the index.
                unsafe { record.prefetch_row(row_bytes) };
            }
        })
    }
}
