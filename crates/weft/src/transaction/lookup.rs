//! Look-ups: how a transaction finds the record under a key. It looks at what it remembers of the table, in the
//! workset cache of protocols that repair, and in the index.

use std::ptr::NonNull;

use weft_htm::Region;
use weft_htm::word::{Ordering, spin_loop};

use super::{RecordOf, Transaction};
use crate::commit::{Executor, Protocol, RepairsTransactions};
use crate::index::{Lookup, NodeVersion};
use crate::row::encoding::{Key, KeyForm, KeyLookup};
use crate::row::schema::Record;
use crate::store::record::RecordPointer;
use crate::store::table::{PickForm, TableInner, with_form};
use crate::store::worker::{Counters, ExpectedRecord};

/// What a look-up has found under a key.
pub(super) enum LookupResult<P: Protocol> {
    Record(RecordOf<P>),
    Absent(NodeVersion),
}

impl<P: Protocol> Transaction<'_, P> {
    /// Forgets what is remembered of a table, after a record turned out to have left the index.
    #[cold]
    pub(super) fn forget<T: Record>(&self, table: &TableInner<T>) {
        let buffer = self.worker.buffer(table.number());
        buffer.last = None;
        // However the record was found, the index is asked from now on.
        buffer.announced.clear();
        buffer.workset.clear();
        spin_loop();
    }

    /// Finds the record under a key.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn locate<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &impl KeyLookup<T::Key>,
    ) -> LookupResult<P> {
        if P::REPAIRS
            && self.worker.round() > 0
            && self.worker.executor().repairing().is_some_and(|repairing| repairing.replays())
        {
            return self.restore(table, key);
        }
        self.look_up(table, key)
    }

    /// Finds the record under a key, in a transaction that is repaired by replay. If the transaction has found it
    /// before, takes it from the workset cache (fast restoration, HTCC §4.1), or else from the index (slow
    /// restoration).
    #[cold]
    #[inline(never)]
    fn restore<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &impl KeyLookup<T::Key>,
    ) -> LookupResult<P> {
        let counters = self.worker.memory.counters();
        // The buffer is not borrowed while keys are compared, since that runs the user's code.
        let buffer = || self.worker.buffer(table.number());
        let expected = buffer().workset.expected();
        // (A borrowed form of a key cannot be compared with rows.)
        let is_it = |found: &ExpectedRecord| {
            key.as_key().is_some_and(|key| self.record_of(table, key, found.address).is_some())
        };
        let found = expected.into_iter().find(is_it);
        buffer().workset.note(found.as_ref());
        if let Some(ExpectedRecord { address, .. }) = found {
            Counters::count(&counters.restored_fast);
            // SAFETY: the address was found in the table's own index, in this transaction.
            return LookupResult::Record(unsafe { RecordPointer::from_address(address) });
        }
        Counters::count(&counters.restored_slow);
        self.look_up(table, key)
    }

    /// Keeps the records that the transaction has found, in the workset cache of the round that begins now.
    pub(super) fn keep_workset(&self) {
        let Some(repairing) = self.worker.executor().repairing() else { return };
        for (table, record, is_written) in repairing.found() {
            let buffer = self.worker.buffer(table.core().number);
            buffer.workset.push(record.address(), is_written);
        }
    }

    /// Returns the record at an address that was found in the table in this transaction, if the record has this
    /// key.
    #[inline(always)]
    fn record_of<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &T::Key,
        address: u64,
    ) -> Option<RecordOf<P>> {
        // SAFETY: an address from the table's own index, found in this transaction.
        let record: RecordOf<P> = unsafe { RecordPointer::from_address(address) };
        self.newest_row(table, key, record).map(|_| record)
    }

    /// Returns the newest row of a record that was found in the table in this transaction, if the record has this
    /// key.
    #[doc(hidden)]
    #[inline(always)]
    pub fn newest_row<T: Record>(
        &self,
        _table: &TableInner<T>,
        key: &T::Key,
        record: RecordOf<P>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the worker is pinned as long as `self` exists.
        let newest = unsafe { record.get() }.newest.load(Ordering::Acquire);
        // All rows of a record have the same key, whatever their version. So has a row that was deleted.
        let row = newest.row()?;
        // SAFETY: a row that was published; it is not freed while the worker is pinned.
        unsafe { self.row::<T>(row) }.key_equals(key).then_some(row)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn look_up<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &impl KeyLookup<T::Key>,
    ) -> LookupResult<P> {
        // The buffer is not borrowed while keys are compared or encoded, since that runs the user's code.
        let buffer = self.worker.buffer_place(table.number());
        if let Some(key) = key.as_key() {
            // First, the row that was read last in this table (DBX §6.2).
            if let Some((address, row)) = buffer.get().last {
                // SAFETY: remembered in this transaction.
                if unsafe { self.row::<T>(row) }.key_equals(key) {
                    // SAFETY: the address was remembered together with the row, in this transaction.
                    return LookupResult::Record(unsafe { RecordPointer::from_address(address) });
                }
            }
            // Second, the next record that was prefetched.
            if let Some(address) = buffer.get().next_announced()
                && let Some(record) = self.record_of(table, key, address)
            {
                buffer.get().expected += 1;
                return LookupResult::Record(record);
            }
        }
        // Last, the index.
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let (key, index) = (K::from_lookup(key), K::pick(&table.primary));
            let (executor, memory) = (self.worker.executor(), &self.worker.memory);
            let search =
                |region: Option<&Region>| index.look_up(region, &key, buffer.get().hint::<K>());
            let found = executor.look_up(table.reference(), || key.erase(), memory, search);
            let found = found.unwrap_or_else(|abort| {
                // Whatever is found now does not count.
                drop(self.doom_by(abort));
                search(None)
            });
            match found {
                Lookup::Found(address) => {
                    // SAFETY: the table's own index holds addresses of its records.
                    LookupResult::Record(unsafe { RecordPointer::from_address(address) })
                }
                Lookup::Absent(node) => {
                    let memory_of_index = memory.index(table.number());
                    let link = |address| {
                        let hint = buffer.get().hint::<K>();
                        index.get_or_insert(&key, address, hint, &memory_of_index)
                    };
                    match executor.place_absent(table.reference(), || key.erase(), link, memory) {
                        Ok(Some(record)) => LookupResult::Record(record),
                        Ok(None) => LookupResult::Absent(node),
                        Err(abort) => {
                            drop(self.doom_by(abort));
                            LookupResult::Absent(node)
                        }
                    }
                }
            }
        })
    }
}
