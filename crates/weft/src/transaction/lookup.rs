//! How a transaction finds the record under a key: what it remembers of the table, the workset cache of
//! protocols that repair, and the index.

use std::ptr::NonNull;

use weft_htm::word::{Ordering, spin_loop};

use super::{RecordOf, Transaction};
use crate::encoding::{Key, KeyForm};
use crate::index::{Lookup, NodeVersion};
use crate::protocol::{Executor, Protocol};
use crate::record::RecordPointer;
use crate::schema::Record;
use crate::table::{PickForm, TableInner, with_form};
use crate::worker::Counters;

/// What stands under a key.
pub(super) enum Located<P: Protocol> {
    Record(RecordOf<P>),
    Absent(NodeVersion),
}

impl<P: Protocol> Transaction<'_, P> {
    /// After a record turned out to have left the index: looks elsewhere next time.
    #[cold]
    pub(super) fn forget<T: Record>(&self, table: &TableInner<T, P>) {
        let buffer = self.worker.buffer(table.number());
        buffer.last = None;
        // Whatever it was found by, the index is asked from now on.
        buffer.announced.clear();
        if self.restores() {
            buffer.position -= 1;
            buffer.workset[buffer.position] = 0;
        }
        spin_loop();
    }

    /// Finds the record under a key.
    #[inline(always)]
    pub(super) fn locate<T: Record>(&self, table: &TableInner<T, P>, key: &T::Key) -> Located<P> {
        if self.restores() { self.restore(table, key) } else { self.look_up(table, key) }
    }

    /// Whether the workset cache is kept.
    #[inline(always)]
    fn restores(&self) -> bool {
        P::REPAIRS && self.worker.executor().caches_records()
    }

    /// Finds the record under a key: in the workset cache, if the operation has found it before (fast
    /// restoration, HTCC §4.1), or else by the index, for the cache to know it (slow restoration).
    #[inline(always)]
    fn restore<T: Record>(&self, table: &TableInner<T, P>, key: &T::Key) -> Located<P> {
        let buffer = self.worker.buffer(table.number());
        let position = buffer.position;
        buffer.position += 1;
        if self.worker.round() > 0 {
            let counters = self.worker.memory.counters();
            let known = buffer.workset.get(position).copied();
            if let Some(record) = known.and_then(|address| self.record_of(table, key, address)) {
                Counters::count(&counters.restored_fast);
                return Located::Record(record);
            }
            Counters::count(&counters.restored_slow);
        }
        let located = self.look_up(table, key);
        let address = match &located {
            Located::Record(record) => record.address(),
            Located::Absent(_) => 0,
        };
        let workset = &mut self.worker.buffer(table.number()).workset;
        match workset.get_mut(position) {
            Some(known) => *known = address,
            None => workset.push(address),
        }
        located
    }

    /// The record at an address, which was found in the table in this transaction, if its key is this one.
    #[inline(always)]
    fn record_of<T: Record>(
        &self,
        table: &TableInner<T, P>,
        key: &T::Key,
        address: u64,
    ) -> Option<RecordOf<P>> {
        if address == 0 {
            return None;
        }
        // SAFETY: an address from the table's own index, found in this transaction.
        let record: RecordOf<P> = unsafe { RecordPointer::from_address(address) };
        self.newest_row(table, key, record).map(|_| record)
    }

    /// The newest row of a record, which was found in the table in this transaction, if its key is this one.
    #[inline(always)]
    pub(super) fn newest_row<T: Record>(
        &self,
        _table: &TableInner<T, P>,
        key: &T::Key,
        record: RecordOf<P>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: pinned, as long as `self` is there.
        let newest = unsafe { record.get() }.newest.load(Ordering::Acquire);
        // All rows of a record have the same key, whatever their version.
        let row = NonNull::new(newest)?;
        // SAFETY: a row that was published; it is not freed while the worker is pinned.
        unsafe { self.row::<T>(row) }.key_equals(key).then_some(row)
    }

    #[inline(always)]
    fn look_up<T: Record>(&self, table: &TableInner<T, P>, key: &T::Key) -> Located<P> {
        let buffer = self.worker.buffer(table.number());
        if let Some((address, row)) = buffer.last {
            // SAFETY: remembered in this transaction.
            if unsafe { self.row::<T>(row) }.key_equals(key) {
                // SAFETY: likewise.
                return Located::Record(unsafe { RecordPointer::from_address(address) });
            }
        }
        if let Some(&address) = buffer.announced.get(buffer.expected)
            && let Some(record) = self.record_of(table, key, address)
        {
            buffer.expected += 1;
            return Located::Record(record);
        }
        let found = with_form!(T::Key::WIDTH_BYTES, |K| {
            let key = K::from_key(key);
            K::pick(&table.primary).get(&key, buffer.hint::<K>())
        });
        match found {
            Lookup::Found(address) => {
                // SAFETY: the table's own index holds addresses of its records.
                Located::Record(unsafe { RecordPointer::from_address(address) })
            }
            Lookup::Absent(node) => Located::Absent(node),
        }
    }
}
