//! Scans: iterators over the rows of a range, leaf by leaf.
//!
//! A scan reads one leaf of the index at a time, into a page, and notes the leaf's version with the executor. If a
//! key is inserted into or removed from the leaf's part of the range before the transaction commits, the commit
//! fails. So no phantom appears in a range that was scanned. A scan that stops early relies only on what it has
//! read. The rows of a page are read one by one, when the iterator reaches them.

use std::ops::Bound;
use std::ptr::NonNull;

use weft_htm::prefetch::{LINE_BYTES, prefetch_lines};
use weft_htm::word::Ordering;

use super::Transaction;
#[cfg(feature = "history")]
use super::recording::Event;
use crate::commit::{Dbx, Executor, Protocol, Visible};
use crate::error::{ConflictReason, Error, Failure};
#[cfg(feature = "history")]
use crate::history::{HistoryKey, HistoryRange, ScanProgress, encoded_range};
use crate::index::bplus_tree::{Direction, Page, ScannedRange};
use crate::index::{LongKey, NodeVersion};
use crate::row::schema::Record;
use crate::store::ranges::{Bounds, is_empty};
use crate::store::record::{RecordPointer, row_offset};
use crate::store::table::{
    FormIndex, IndexEntry, PickForm, Secondary, Table, TableInner, TableRef,
};
use crate::store::worker::StoredForm;

/// An iterator over the rows of a range, in the order of the keys. [`Transaction::range`] and similar methods
/// return it.
///
/// A scan reads lazily: nothing before the first `next`, and only as far as it is iterated, so `take(n)` limits
/// what it reads. It sees what its own transaction has written until the moment at which it reads the leaf in
/// question.
#[must_use = "a scan reads nothing until it is iterated"]
pub struct Scan<'tx, 'db, T: Record, P: Protocol = Dbx> {
    transaction: &'tx Transaction<'db, P>,
    table: &'tx Table<T>,
    /// The addresses on the cursor's page that the scan has not reached yet. They lie in the page's own buffer,
    /// which does not move until the next page is read.
    addresses: NonNull<[u64]>,
    cursor: Cursor<'tx>,
    /// Whether it also returns rows that have disappeared because they have expired.
    shows_disappeared: bool,
}

/// How many rows ahead of its position a scan prefetches records.
const ROWS_AHEAD: usize = 6;

/// How many entries ahead of its position a scan of a secondary index prefetches the records that the entries lead
/// to. The entries themselves were prefetched earlier.
const ENTRIES_AHEAD: usize = 2;

/// Prefetches the primary record behind an entry that the scan will reach.
#[inline(always)]
fn prefetch_behind_entry<K: StoredForm, P: Protocol>(
    transaction: &Transaction<'_, P>,
    address: u64,
) {
    // SAFETY: an index of the transaction's database holds addresses of its records, and the transaction keeps its
    // worker pinned.
    let entry = unsafe { RecordPointer::<P::Header>::from_address(address).get() };
    if let Some(row) = entry.newest.load(Ordering::Acquire).row() {
        // SAFETY: a row that was published is not changed, and not freed while the worker is pinned.
        let leads_to = unsafe { transaction.row::<IndexEntry<K>>(row) }.record;
        prefetch_lines(std::ptr::without_provenance(leads_to as usize), LINE_BYTES);
    }
}

/// Prefetches a record that the scan will reach: all of it if the row is small, or else its header.
#[inline(always)]
fn prefetch_record<R, P: Protocol>(address: u64) {
    let bytes = row_offset::<P::Header>() + size_of::<R>();
    let bytes = if bytes <= 2 * LINE_BYTES { bytes } else { LINE_BYTES };
    prefetch_lines(std::ptr::without_provenance(address as usize), bytes);
}

/// The position of a scan, for any form of keys.
enum Cursor<'tx> {
    Words1(FormCursor<'tx, u64>),
    Words2(FormCursor<'tx, u128>),
    Long(FormCursor<'tx, LongKey>),
}

/// The position of a scan, for one form of keys.
struct FormCursor<'tx, K: StoredForm> {
    /// The secondary index that is scanned, or `None` for the primary index.
    secondary: Option<&'tx Secondary<K>>,
    bounds: Bounds<K>,
    direction: Direction,
    state: State<K>,
    /// How far the scan is recorded, if it is recorded.
    #[cfg(feature = "history")]
    progress: Option<Box<ScanProgress>>,
}

enum State<K> {
    Before,
    /// On a page. After it the scan goes on at `more`, or ends if that is `None`.
    Within {
        page: Page<K>,
        more: Option<Bound<K>>,
        noted: NodeNote,
    },
    After,
}

/// A page's leaf, and the position at which it was noted.
#[derive(Clone, Copy)]
struct NodeNote {
    node: NodeVersion,
    position: usize,
}

macro_rules! with_cursor {
    ($cursor:expr, |$form_cursor:ident| $body:expr) => {
        match $cursor {
            Cursor::Words1($form_cursor) => $body,
            Cursor::Words2($form_cursor) => $body,
            Cursor::Long($form_cursor) => $body,
        }
    };
}

/// A form of keys that a cursor can have.
pub(super) trait CursorForm: PickForm + StoredForm {
    #[doc(hidden)]
    fn wrap(cursor: WrappedCursor<'_, Self>) -> WrappedAny<'_>;
}

/// Keeps the private cursor types out of the trait's interface.
pub(super) struct WrappedCursor<'tx, K: StoredForm>(FormCursor<'tx, K>);
pub(super) struct WrappedAny<'tx>(Cursor<'tx>);

macro_rules! cursor_form {
    ($key:ty, $variant:ident) => {
        impl CursorForm for $key {
            fn wrap(cursor: WrappedCursor<'_, Self>) -> WrappedAny<'_> {
                WrappedAny(Cursor::$variant(cursor.0))
            }
        }
    };
}

cursor_form!(u64, Words1);
cursor_form!(u128, Words2);
cursor_form!(LongKey, Long);

impl<'tx, 'db, T: Record, P: Protocol> Scan<'tx, 'db, T, P> {
    /// Returns a scan of a secondary index, or of the primary index, which is ordered then.
    pub(super) fn new<K: CursorForm>(
        transaction: &'tx Transaction<'db, P>,
        table: &'tx Table<T>,
        secondary: Option<&'tx Secondary<K>>,
        bounds: Bounds<K>,
    ) -> Self {
        #[cfg(feature = "history")]
        let progress = match (&transaction.worker.recorder, secondary) {
            (Some(_), Some(index)) => {
                Some(Box::new(ScanProgress::new(index.number(), encoded_range(&bounds))))
            }
            _ => None,
        };
        let cursor = FormCursor {
            secondary,
            bounds,
            direction: Direction::Forward,
            state: State::Before,
            #[cfg(feature = "history")]
            progress,
        };
        let cursor = K::wrap(WrappedCursor(cursor)).0;
        Scan { transaction, table, addresses: NO_ADDRESSES, cursor, shows_disappeared: false }
    }

    /// Makes the scan return rows that have disappeared because they have expired, too.
    pub(super) fn show_disappeared(&mut self) {
        self.shows_disappeared = true;
    }

    /// Returns a scan of the same rows, from the greatest key to the least.
    ///
    /// # Panics
    /// If the scan has begun.
    pub fn descending(mut self) -> Self {
        with_cursor!(&mut self.cursor, |cursor| {
            assert!(matches!(cursor.state, State::Before), "the scan has begun");
            cursor.direction = Direction::Reverse;
            #[cfg(feature = "history")]
            cursor.progress.iter_mut().for_each(|progress| progress.turn());
        });
        self
    }
}

impl<'tx, T: Record, P: Protocol> Iterator for Scan<'tx, '_, T, P> {
    type Item = Result<&'tx T, Error>;

    // Inlined, since a loop calls it for each row, and a call costs a tenth of what a row costs.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // SAFETY: see `addresses`.
            let addresses = unsafe { self.addresses.as_ref() };
            let Some((&address, to_come)) = addresses.split_first() else {
                match self.read_page() {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(error) => return Some(Err(self.fail(error))),
                }
            };
            self.addresses = NonNull::from(to_come);
            match self.read_row(address, to_come) {
                Ok(None) => {}
                Ok(Some(row)) => return Some(Ok(row)),
                Err(error) => return Some(Err(self.fail(error))),
            }
        }
    }
}

/// The addresses of a scan that is on no page.
const NO_ADDRESSES: NonNull<[u64]> = NonNull::slice_from_raw_parts(NonNull::<u64>::dangling(), 0);

impl<'tx, T: Record, P: Protocol> Scan<'tx, '_, T, P> {
    /// Goes to the next page. Returns false if there is no further page.
    #[inline(never)]
    fn read_page(&mut self) -> Result<bool, Error> {
        let (transaction, table) = (self.transaction, self.table);
        let page = with_cursor!(&mut self.cursor, |cursor| cursor.read_page(transaction, table));
        Ok(match page? {
            Some(addresses) => {
                self.addresses = addresses;
                true
            }
            None => false,
        })
    }

    /// Reads the row behind an address of the page. Returns `None` if no row is visible.
    #[inline(always)]
    fn read_row(&mut self, address: u64, to_come: &[u64]) -> Result<Option<&'tx T>, Error> {
        let (transaction, table) = (self.transaction, &self.table.inner);
        transaction.check_user_code()?;
        let record = if self.is_secondary() {
            match self.read_entry(address, to_come)? {
                Some(record) => record,
                None => return Ok(None),
            }
        } else {
            if let Some(&ahead) = to_come.get(ROWS_AHEAD - 1) {
                prefetch_record::<T, P>(ahead);
            }
            // SAFETY: an index of the transaction's database holds addresses of its records.
            unsafe { RecordPointer::<P::Header>::from_address(address) }
        };
        match transaction.read(table.reference(), record)? {
            Visible::Row(row) => {
                self.record_row(row);
                // SAFETY: a visible row of the table.
                let visible = unsafe { transaction.remember(table, record, row) };
                let is_shown = !transaction.has_disappeared(visible) || self.shows_disappeared;
                Ok(is_shown.then_some(visible))
            }
            Visible::Absent if !self.is_secondary() => Ok(None),
            // The record's place in the leaf, or its entry, is gone as well, so the commit would fail. Fail now.
            _ => Err(transaction.doom(ConflictReason::RangeChanged, table.reference())),
        }
    }

    #[inline(always)]
    fn is_secondary(&self) -> bool {
        with_cursor!(&self.cursor, |cursor| cursor.secondary.is_some())
    }

    /// Reads an entry of the secondary index. Returns the primary record that it leads to, if the entry is visible.
    #[inline(never)]
    fn read_entry(
        &mut self,
        address: u64,
        to_come: &[u64],
    ) -> Result<Option<RecordPointer<P::Header>>, Error> {
        let transaction = self.transaction;
        with_cursor!(&mut self.cursor, |cursor| cursor.read_entry(transaction, address, to_come))
    }

    /// Ends the scan with an error. The transaction must not commit any more, because its closure may overlook the
    /// error, for example if it only counts the items.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.finish();
        if let Error::Failure(failure) = &error {
            self.transaction.failed_scan.set(Some(Box::new(failure.clone())));
            self.transaction.has_failed_scan.set(true);
        }
        error
    }

    fn finish(&mut self) {
        // SAFETY: see `addresses`.
        let stopped_at = unsafe { self.addresses.as_ref() }.first().copied();
        self.addresses = NO_ADDRESSES;
        let transaction = self.transaction;
        with_cursor!(&mut self.cursor, |cursor| cursor.finish(transaction, stopped_at));
    }
}

impl<T: Record, P: Protocol> Drop for Scan<'_, '_, T, P> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<T: Record, P: Protocol> std::fmt::Debug for Scan<'_, '_, T, P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scan").field("table", &T::TABLE).finish_non_exhaustive()
    }
}

impl<'tx, K: CursorForm> FormCursor<'tx, K> {
    /// Reads the next leaf, and returns its addresses, or `None` after the last leaf. The addresses are valid until
    /// the next call.
    fn read_page<T: Record, P: Protocol>(
        &mut self,
        transaction: &Transaction<'_, P>,
        table: &Table<T>,
    ) -> Result<Option<NonNull<[u64]>>, Error> {
        if matches!(self.state, State::After) {
            return Ok(None);
        }
        let inner = transaction.enter(table)?;
        let (mut page, from) = match std::mem::replace(&mut self.state, State::After) {
            State::Before => {
                if P::SINGLE_KEY {
                    let (protocol, table, attempted) = (P::NAME, T::TABLE, "a scan");
                    return Err(Failure::SingleKey { protocol, table, attempted }.into());
                }
                if is_empty(&self.bounds) {
                    return Ok(None);
                }
                let from = match self.direction {
                    Direction::Forward => self.bounds.0.clone(),
                    Direction::Reverse => self.bounds.1.clone(),
                };
                self.record_start(transaction);
                transaction.worker.executor().approach_range(
                    self.reference(inner),
                    || match &from {
                        Bound::Included(key) | Bound::Excluded(key) => key.hash(),
                        Bound::Unbounded => 0,
                    },
                );
                (transaction.worker.take_page::<K>(), from)
            }
            State::Within { page, more: Some(from), .. } => (page, from),
            State::Within { page, more: None, .. } => {
                self.record_end(transaction);
                transaction.worker.give_page(page);
                return Ok(None);
            }
            State::After => return Ok(None),
        };
        // Read the leaf, and note its version and the part of the range that it covers.
        let mut range = ScannedRange::new(from.as_ref(), self.end(), self.direction);
        let node = self.read_leaf(transaction, inner, from, &mut page);
        if let Some(range) = &mut range {
            range.found(&page);
        }
        let noted = match transaction.note_scanned(self.reference(inner), node, range) {
            Ok(position) => NodeNote { node, position },
            Err(conflict) => {
                transaction.worker.give_page(page);
                return Err(conflict);
            }
        };
        // Prefetch the first records of the page.
        let more = page.take_next();
        let first = page.addresses().iter().take(ROWS_AHEAD);
        match self.secondary {
            Some(_) => first.for_each(|&address| prefetch_record::<IndexEntry<K>, P>(address)),
            None => first.for_each(|&address| prefetch_record::<T, P>(address)),
        }
        let addresses = NonNull::from(page.addresses());
        self.state = State::Within { page, more, noted };
        Ok(Some(addresses))
    }

    /// Returns the index that is scanned.
    fn reference<T: Record>(&self, table: &TableInner<T>) -> TableRef {
        match self.secondary {
            Some(index) => index.reference(),
            None => table.reference(),
        }
    }

    /// Returns where the scan ends.
    fn end(&self) -> Bound<&K> {
        match self.direction {
            Direction::Forward => self.bounds.1.as_ref(),
            Direction::Reverse => self.bounds.0.as_ref(),
        }
    }

    fn read_leaf<T: Record, P: Protocol>(
        &self,
        transaction: &Transaction<'_, P>,
        table: &TableInner<T>,
        from: Bound<K>,
        page: &mut Page<K>,
    ) -> NodeVersion {
        let memory = &transaction.worker.memory;
        let (from, to) = (from.as_ref(), self.end());
        match self.secondary {
            Some(index) => {
                let hint = transaction.worker.buffer(index.number()).hint::<K>();
                index.read_page(from, to, self.direction, page, hint, memory)
            }
            None => {
                let hint = transaction.worker.buffer(table.number()).hint::<K>();
                match K::pick(&table.primary) {
                    FormIndex::Ordered(tree) => {
                        tree.read_page(from, to, self.direction, page, hint, memory)
                    }
                    FormIndex::Hash(_) => unreachable!(
                        "only tables that are `Ordered` have scans of the primary index"
                    ),
                }
            }
        }
    }

    /// Reads an entry of the secondary index. Returns the primary record that it leads to, if the entry is visible.
    fn read_entry<P: Protocol>(
        &mut self,
        transaction: &Transaction<'_, P>,
        address: u64,
        to_come: &[u64],
    ) -> Result<Option<RecordPointer<P::Header>>, Error> {
        let index = self.secondary.expect("a cursor on a secondary index");
        if let Some(&ahead) = to_come.get(ROWS_AHEAD - 1) {
            prefetch_record::<IndexEntry<K>, P>(ahead);
        }
        if let Some(&ahead) = to_come.get(ENTRIES_AHEAD - 1) {
            prefetch_behind_entry::<K, P>(transaction, ahead);
        }
        // SAFETY: an index of the transaction's database holds addresses of its records.
        let entry = unsafe { RecordPointer::<P::Header>::from_address(address) };
        match transaction.read(index.reference(), entry)? {
            Visible::Row(row) => {
                self.record_entry(transaction, index, row);
                // SAFETY: a visible row of the index, which leads to a record of the table.
                let record = unsafe {
                    RecordPointer::from_address(transaction.row::<IndexEntry<K>>(row).record)
                };
                Ok(Some(record))
            }
            Visible::Absent => Ok(None),
            Visible::Removed => {
                Err(transaction.doom(ConflictReason::RangeChanged, index.reference()))
            }
        }
    }

    /// Ends the scan, which has not followed the addresses of its page from `stopped_at` on.
    fn finish<P: Protocol>(&mut self, transaction: &Transaction<'_, P>, stopped_at: Option<u64>) {
        if let State::Within { page, noted, .. } = std::mem::replace(&mut self.state, State::After)
        {
            // (A scan that the user's types drop in the middle of an operation goes on relying on its whole page.)
            if let Some(address) = stopped_at
                && transaction.check_user_code().is_ok()
            {
                transaction.worker.executor().stop_scan(noted.position, noted.node, address);
            }
            transaction.worker.give_page(page);
        }
    }
}

// ---- for the history --------------------------------------------------------------------------

#[cfg(feature = "history")]
impl<T: Record, P: Protocol> Scan<'_, '_, T, P> {
    /// Makes the scan recorded, if the database is. It is a scan of the primary keys in `range`.
    pub(super) fn recorded(mut self, range: impl FnOnce() -> HistoryRange) -> Self {
        if self.transaction.worker.recorder.is_some() {
            let progress = Box::new(ScanProgress::new(self.table.inner.number(), range()));
            with_cursor!(&mut self.cursor, |cursor| cursor.progress = Some(progress));
        }
        self
    }

    fn record_visible(&mut self, row: NonNull<u8>) {
        let (transaction, table) = (self.transaction, self.table.inner.reference());
        // SAFETY: a visible row of the table.
        let key = unsafe { transaction.row::<T>(row) }.key();
        if self.is_secondary() {
            transaction.record(table, &key, Event::Read(Some(row)));
        } else {
            let key = HistoryKey::of(&key);
            with_cursor!(&mut self.cursor, |cursor| cursor.record(transaction, table, key, row));
        }
    }
}

#[cfg_attr(
    not(feature = "history"),
    allow(unused_variables, reason = "the arguments are for the recorder")
)]
impl<T: Record, P: Protocol> Scan<'_, '_, T, P> {
    /// Records that the scan has come to this row, and has seen no other row before it.
    #[inline(always)]
    fn record_row(&mut self, row: NonNull<u8>) {
        #[cfg(feature = "history")]
        if self.transaction.worker.recorder.is_some() {
            self.record_visible(row);
        }
    }
}

#[cfg_attr(
    not(feature = "history"),
    allow(unused_variables, reason = "the arguments are for the recorder")
)]
impl<K: StoredForm> FormCursor<'_, K> {
    /// Records that the scan begins.
    #[inline(always)]
    fn record_start<P: Protocol>(&mut self, transaction: &Transaction<'_, P>) {
        #[cfg(feature = "history")]
        if let (Some(recorder), Some(scan)) = (&transaction.worker.recorder, &mut self.progress) {
            recorder.borrow_mut().begin_scan(scan);
        }
    }

    /// Records that the scan has come to the end of its range, and has seen no further row before it.
    #[inline(always)]
    fn record_end<P: Protocol>(&mut self, transaction: &Transaction<'_, P>) {
        #[cfg(feature = "history")]
        if let (Some(recorder), Some(scan)) = (&transaction.worker.recorder, &mut self.progress) {
            recorder.borrow_mut().end_scan(scan);
        }
    }

    /// Records that the scan has come to this entry, and has seen no other entry before it.
    #[inline(always)]
    fn record_entry<P: Protocol>(
        &mut self,
        transaction: &Transaction<'_, P>,
        index: &Secondary<K>,
        row: NonNull<u8>,
    ) {
        #[cfg(feature = "history")]
        if transaction.worker.recorder.is_some() {
            // SAFETY: a visible row of the index.
            let key = HistoryKey::encoded(&unsafe { transaction.row::<IndexEntry<K>>(row) }.key);
            self.record(transaction, index.reference(), key, row);
        }
    }

    #[cfg(feature = "history")]
    fn record<P: Protocol>(
        &mut self,
        transaction: &Transaction<'_, P>,
        table: TableRef,
        key: HistoryKey,
        row: NonNull<u8>,
    ) {
        if let (Some(recorder), Some(scan)) = (&transaction.worker.recorder, &mut self.progress) {
            // SAFETY: a row of the table that is visible to the transaction.
            let seen = unsafe { table.core().stamp(row) };
            recorder.borrow_mut().scan_row(scan, key, seen);
        }
    }
}
