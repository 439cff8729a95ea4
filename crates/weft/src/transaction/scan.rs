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
use crate::index::bplus_tree::{BPlusTree, Direction, Page, ScannedRange};
use crate::index::{LongKey, NodeVersion};
use crate::row::column::ColumnSet;
use crate::row::encoding::{Key, KeyForm, KeyLookup};
use crate::row::operation::Columns;
use crate::row::schema::{Index, Record};
use crate::store::ranges::{Bounds, entry_of, is_empty, leave_out};
use crate::store::record::{RecordPointer, row_offset};
use crate::store::table::{
    AnyIndex, FormIndex, IndexEntry, PickForm, Secondary, Table, TableRef, with_form,
    with_secondary,
};
#[cfg(feature = "canary")]
use crate::store::worker::OperationFlaw;
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
    /// How many records without a visible row it has passed over.
    passed_over: u32,
}

/// So many deleted records that a scan passes over are too many: see [`Scan::note_passed_over`].
const PASSED_OVER_MANY: u32 = 16;

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

/// Prefetches a record that the scan will reach: all of it if its row of so many bytes is small, or else its header.
#[inline(always)]
fn prefetch_record<P: Protocol>(address: u64, row_bytes: usize) {
    let bytes = row_offset::<P::Header>() + row_bytes;
    let bytes = if bytes <= 2 * LINE_BYTES { bytes } else { LINE_BYTES };
    prefetch_lines(std::ptr::without_provenance(address as usize), bytes);
}

/// What a cursor knows of the table that is scanned. It does not depend on the type of the rows, so the pages are read
/// by code that is compiled once for each form of keys, and not for each type.
#[derive(Clone, Copy)]
struct ScannedTable<'a> {
    reference: TableRef,
    primary: &'a AnyIndex,
    row_bytes: usize,
}

impl<'a> ScannedTable<'a> {
    #[inline(always)]
    fn of<T: Record>(table: &'a Table<T>) -> Self {
        let inner = &*table.inner;
        ScannedTable {
            reference: inner.reference(),
            primary: &inner.primary,
            row_bytes: size_of::<T>(),
        }
    }
}

/// The position of a scan, for any form of keys.
#[allow(clippy::large_enum_variant, reason = "it lies on the stack, and is seldom moved")]
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

/// A form of keys whose cursor can be taken out of a scan.
trait PickCursor: StoredForm {
    fn cursor<'c, 'tx>(cursor: &'c mut Cursor<'tx>) -> Option<&'c mut FormCursor<'tx, Self>>;
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

        impl PickCursor for $key {
            fn cursor<'c, 'tx>(
                cursor: &'c mut Cursor<'tx>,
            ) -> Option<&'c mut FormCursor<'tx, Self>> {
                match cursor {
                    Cursor::$variant(cursor) => Some(cursor),
                    _ => None,
                }
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
        Scan {
            transaction,
            table,
            addresses: NO_ADDRESSES,
            cursor,
            shows_disappeared: false,
            passed_over: 0,
        }
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
            assert!(matches!(cursor.state, State::Before), "{HAS_BEGUN}");
            if cursor.direction == Direction::Forward {
                cursor.turn();
            }
        });
        self
    }

    /// Returns a scan of the rows after a primary key, in the direction of the scan: call
    /// [`descending`](Scan::descending) before it. A row with this key need not exist. So the key of a page's last row
    /// leads to the next page, whatever happens to that row in the meantime.
    ///
    /// ```
    /// # use weft::{Database, Error, Record};
    /// # #[derive(Clone, Record)]
    /// # struct Song { #[record(key)] title: String }
    /// # let database = Database::builder().table::<Song>().open()?;
    /// # let songs = database.table::<Song>()?;
    /// # let titles = ["Ain't", "Black", "Crazy", "Dream"];
    /// # database.transact(|tx| tx.insert_many(&songs, titles.map(|title| Song { title: title.into() })))?;
    /// let page = |after: &str| {
    ///     database.transact(|tx| {
    ///         let rows = tx.range(&songs, ..).after(after).take(2);
    ///         rows.map(|row| row.map(|row| row.title.clone())).collect::<Result<Vec<_>, Error>>()
    ///     })
    /// };
    /// let first = page("")?;
    /// assert_eq!(first, ["Ain't", "Black"]);
    /// assert_eq!(page(first.last().unwrap())?, ["Crazy", "Dream"]);
    /// # Ok::<(), weft::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the scan has begun, or is one of a secondary index, which has [`after_by`](Scan::after_by).
    pub fn after(mut self, key: impl KeyLookup<T::Key>) -> Self {
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let cursor = K::cursor(&mut self.cursor).filter(|cursor| cursor.secondary.is_none());
            let cursor = cursor.expect("a scan of a secondary index is continued by `after_by`");
            #[cfg(feature = "canary")]
            if self.transaction.has_flaw(OperationFlaw::PositionForgotten) {
                return self;
            }
            cursor.leave_out(K::from_lookup(&key));
            #[cfg(feature = "history")]
            if let Some(progress) = &mut cursor.progress {
                progress.leave_out(HistoryKey::of_lookup(&key));
            }
        });
        self
    }

    /// As [`Scan::after`], for a scan of a secondary index: returns a scan of the rows after the position of the row
    /// with these columns and this primary key. (In a unique index the columns alone are the position.)
    ///
    /// ```
    /// # use weft::{Database, Error, Record};
    /// # #[derive(Clone, Copy, Debug, PartialEq, Record)]
    /// # struct Bid { #[record(key)] id: u32, #[record(index)] cents: u64 }
    /// # let database = Database::builder().table::<Bid>().open()?;
    /// # let bids = database.table::<Bid>()?;
    /// # let rows = [(1, 500), (2, 700), (3, 500)];
    /// # database.transact(|tx| tx.insert_many(&bids, rows.map(|(id, cents)| Bid { id, cents })))?;
    /// let next = database.transact(|tx| {
    ///     let best_first = tx.range_by(&bids, Bid::CENTS, ..).descending();
    ///     best_first.after_by(Bid::CENTS, &500, &3).take(10).map(|row| Ok(*row?)).collect::<Result<Vec<_>, Error>>()
    /// })?;
    /// assert_eq!(next, [Bid { id: 1, cents: 500 }]);
    /// # Ok::<(), weft::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the scan has begun, or is not one of this index.
    pub fn after_by<K: Key>(
        mut self,
        index: Index<T, K>,
        columns: impl KeyLookup<K>,
        key: &T::Key,
    ) -> Self {
        let secondary = &self.table.inner.secondary[index.position()];
        with_cursor!(&mut self.cursor, |cursor| {
            let scanned = cursor.secondary.map(Secondary::number);
            let number = with_secondary!(secondary, |secondary| secondary.number());
            assert_eq!(scanned, Some(number), "the scan is not one of the index {index:?}");
            let position = entry_of(index, &columns, key);
            #[cfg(feature = "history")]
            if let Some(progress) = &mut cursor.progress {
                progress.leave_out(HistoryKey::encoded(&position));
            }
            cursor.leave_out(position);
        });
        self
    }

    /// Returns a scan of these columns of the rows. The transaction relies on which rows there are, and on these columns
    /// of those that it comes to: under the optimistic protocols it commits although other transactions change other
    /// columns of them in the meantime, as with [`Transaction::get_columns`].
    ///
    /// ```
    /// # use weft::{Database, Error, Record, columns_of};
    /// # #[derive(Clone, Copy, Record)]
    /// # struct Item { #[record(key)] id: u32, price: u64, stock: u64, views: u64 }
    /// # let database = Database::builder().table::<Item>().open()?;
    /// # let items = database.table::<Item>()?;
    /// # let rows = [(1, 5, 10), (2, 3, 0)].map(|(id, price, stock)| Item { id, price, stock, views: 0 });
    /// # database.transact(|tx| tx.insert_many(&items, rows))?;
    /// // Nothing here is disturbed by transactions that count views.
    /// let worth = database.transact(|tx| {
    ///     let priced = tx.range(&items, ..).columns(columns_of!(Item.{price, stock}));
    ///     priced.map(|item| item.map(|(price, stock)| price * stock)).sum::<Result<u64, Error>>()
    /// })?;
    /// assert_eq!(worth, 50);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn columns<C: Columns<T>>(self, columns: C) -> ColumnScan<'tx, 'db, T, C, P> {
        ColumnScan { scan: self, columns }
    }

    /// Returns the first of the rows, or `None` if the scan has no rows. The transaction relies on the range up to
    /// this row.
    ///
    /// # Errors
    /// As the items of the scan.
    pub fn first_row(mut self) -> Result<Option<&'tx T>, Error> {
        self.next().transpose()
    }

    /// Returns the last of the rows, or `None` if the scan has no rows. It is read from the other end, so this takes
    /// as long as [`Scan::first_row`]. (`last`, the method of iterators, reads all rows.)
    ///
    /// # Errors
    /// As the items of the scan.
    ///
    /// # Panics
    /// If the scan has begun.
    pub fn last_row(mut self) -> Result<Option<&'tx T>, Error> {
        with_cursor!(&mut self.cursor, |cursor| {
            assert!(matches!(cursor.state, State::Before), "{HAS_BEGUN}");
            cursor.turn();
        });
        self.first_row()
    }

    /// Returns how many rows the scan has still to return. The transaction relies on which rows there are, and not on
    /// their columns, except for the one by which they expire: under the optimistic protocols it commits although other
    /// transactions update the rest. (`count`, the method of iterators, also counts an error.)
    ///
    /// # Errors
    /// As the items of the scan.
    pub fn count_rows(mut self) -> Result<usize, Error> {
        let columns = self.transaction.used_columns::<T>(ColumnSet::NONE);
        let mut rows = 0;
        while let Some(row) = self.advance(columns) {
            row?;
            rows += 1;
        }
        Ok(rows)
    }
}

const HAS_BEGUN: &str = "the scan has begun";

impl<'tx, T: Record, P: Protocol> Iterator for Scan<'tx, '_, T, P> {
    type Item = Result<&'tx T, Error>;

    // Inlined, since a loop calls it for each row, and a call costs a tenth of what a row costs.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.advance(None)
    }
}

/// An iterator over columns of the rows of a range, in the order of the keys. [`Scan::columns`] returns it.
#[must_use = "a scan reads nothing until it is iterated"]
pub struct ColumnScan<'tx, 'db, T: Record, C: Columns<T>, P: Protocol = Dbx> {
    scan: Scan<'tx, 'db, T, P>,
    columns: C,
}

impl<'tx, T: Record, C: Columns<T>, P: Protocol> Iterator for ColumnScan<'tx, '_, T, C, P> {
    type Item = Result<C::Values<'tx>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let used = self.scan.transaction.used_columns::<T>(self.columns.set());
        let row = self.scan.advance(used)?;
        Some(row.map(|row| self.columns.get(row)))
    }
}

impl<T: Record, C: Columns<T>, P: Protocol> std::fmt::Debug for ColumnScan<'_, '_, T, C, P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.scan.fmt(formatter)
    }
}

/// The addresses of a scan that is on no page.
const NO_ADDRESSES: NonNull<[u64]> = NonNull::slice_from_raw_parts(NonNull::<u64>::dangling(), 0);

impl<'tx, T: Record, P: Protocol> Scan<'tx, '_, T, P> {
    /// Goes to the next row. The transaction uses these columns of it, or the whole row.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn advance(&mut self, columns: Option<ColumnSet>) -> Option<Result<&'tx T, Error>> {
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
            match self.read_row(address, to_come, columns) {
                Ok(None) => {
                    self.passed_over += 1;
                    if self.passed_over == PASSED_OVER_MANY {
                        self.note_passed_over();
                    }
                }
                Ok(Some(row)) => return Some(Ok(row)),
                Err(error) => return Some(Err(self.fail(error))),
            }
        }
    }

    /// Makes deleted records leave the index sooner. (Those before a queue's head would take far longer to pass over
    /// than the head takes to be read.)
    #[cold]
    #[inline(never)]
    fn note_passed_over(&self) {
        let table = self.table.inner.reference();
        let index = with_cursor!(&self.cursor, |cursor| cursor.reference(table));
        index.core().note_passed_over(self.transaction.worker.memory.shared().clock.epoch());
    }

    /// Goes to the next page. Returns false if there is no further page.
    #[inline(never)]
    fn read_page(&mut self) -> Result<bool, Error> {
        let has_ended = with_cursor!(&self.cursor, |cursor| matches!(cursor.state, State::After));
        if has_ended {
            return Ok(false);
        }
        self.transaction.enter(self.table)?;
        let page = self.cursor.read_page(self.transaction, ScannedTable::of(self.table))?;
        self.addresses = page.unwrap_or(NO_ADDRESSES);
        Ok(page.is_some())
    }

    /// Reads the row behind an address of the page. Returns `None` if no row is visible.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn read_row(
        &mut self,
        address: u64,
        to_come: &[u64],
        columns: Option<ColumnSet>,
    ) -> Result<Option<&'tx T>, Error> {
        let (transaction, table) = (self.transaction, &self.table.inner);
        transaction.check_user_code()?;
        let record = if self.is_secondary() {
            match self.read_entry(address, to_come)? {
                Some(record) => record,
                None => return Ok(None),
            }
        } else {
            if let Some(&ahead) = to_come.get(ROWS_AHEAD - 1) {
                prefetch_record::<P>(ahead, size_of::<T>());
            }
            // SAFETY: an index of the transaction's database holds addresses of its records.
            unsafe { RecordPointer::<P::Header>::from_address(address) }
        };
        match transaction.read_using(table.reference(), record, columns)? {
            Visible::Row(row) => {
                self.record_row(row);
                // SAFETY: a visible row of the table.
                let visible = unsafe { transaction.remember(table, record, row) };
                let is_shown = !transaction.has_disappeared(visible) || self.shows_disappeared;
                Ok(is_shown.then_some(visible))
            }
            Visible::Absent if !self.is_secondary() => Ok(None),
            // The commit reads the range again.
            Visible::Removed if !self.is_secondary() && P::Executor::READS_RANGES_AGAIN => Ok(None),
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
        formatter.debug_struct("Scan").field("table", &self.table.name()).finish_non_exhaustive()
    }
}

impl Cursor<'_> {
    /// As [`FormCursor::read_page`].
    #[inline(never)]
    fn read_page<P: Protocol>(
        &mut self,
        transaction: &Transaction<'_, P>,
        table: ScannedTable<'_>,
    ) -> Result<Option<NonNull<[u64]>>, Error> {
        with_cursor!(self, |cursor| cursor.read_page(transaction, table))
    }
}

impl<K: StoredForm> FormCursor<'_, K> {
    /// Reverses the direction.
    fn turn(&mut self) {
        self.direction = match self.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        #[cfg(feature = "history")]
        self.progress.iter_mut().for_each(|progress| progress.turn());
    }

    /// Leaves the keys up to this one out, in the direction of the scan.
    fn leave_out(&mut self, position: K) {
        assert!(matches!(self.state, State::Before), "{HAS_BEGUN}");
        leave_out(&mut self.bounds, position, self.direction == Direction::Reverse);
    }
}

impl<'tx, K: CursorForm> FormCursor<'tx, K> {
    /// Reads the next leaf, and returns its addresses, or `None` after the last leaf. The addresses are valid until
    /// the next call.
    fn read_page<P: Protocol>(
        &mut self,
        transaction: &Transaction<'_, P>,
        table: ScannedTable<'_>,
    ) -> Result<Option<NonNull<[u64]>>, Error> {
        let scanned = self.reference(table.reference);
        let (mut page, from) = match std::mem::replace(&mut self.state, State::After) {
            State::Before => {
                if P::SINGLE_KEY {
                    let (protocol, attempted) = (P::NAME, "a scan");
                    let table = table.reference.core().name;
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
                if !transaction.reads_snapshot() {
                    self.enter_range(transaction, scanned, &from)?;
                }
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
        let tree = self.tree(table);
        let mut range = ScannedRange::new(tree, from.as_ref(), self.end(), self.direction);
        let node = self.read_leaf(transaction, (scanned, tree), from, &mut page);
        if let Some(range) = &mut range {
            range.found(&page);
        }
        let noted = match transaction.note_scanned(scanned, node, range) {
            Ok(position) => NodeNote { node, position },
            Err(conflict) => {
                transaction.worker.give_page(page);
                return Err(conflict);
            }
        };
        // Prefetch the first records of the page.
        let more = page.take_next();
        let row_bytes = match self.secondary {
            Some(_) => size_of::<IndexEntry<K>>(),
            None => table.row_bytes,
        };
        for &address in page.addresses().iter().take(ROWS_AHEAD) {
            prefetch_record::<P>(address, row_bytes);
        }
        let addresses = NonNull::from(page.addresses());
        self.state = State::Within { page, more, noted };
        Ok(Some(addresses))
    }

    /// Tells the executor that the scan begins.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn enter_range<P: Protocol>(
        &self,
        transaction: &Transaction<'_, P>,
        scanned: TableRef,
        from: &Bound<K>,
    ) -> Result<(), Error> {
        let executor = transaction.worker.executor();
        executor.approach_range(scanned, || match from {
            Bound::Included(key) | Bound::Excluded(key) => key.hash(),
            Bound::Unbounded => 0,
        });
        let end = |bound: &Bound<K>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.erase()),
            Bound::Unbounded => None,
        };
        let ends = || [end(&self.bounds.0), end(&self.bounds.1)];
        let entered = executor.enter_range(scanned, ends, &transaction.worker.memory);
        entered.map_err(|abort| transaction.doom_by(abort))
    }

    /// Returns the index that is scanned. `table` is the table, and stands for its primary index.
    fn reference(&self, table: TableRef) -> TableRef {
        self.secondary.map_or(table, Secondary::reference)
    }

    /// Returns where the scan ends.
    fn end(&self) -> Bound<&K> {
        match self.direction {
            Direction::Forward => self.bounds.1.as_ref(),
            Direction::Reverse => self.bounds.0.as_ref(),
        }
    }

    /// Returns the tree that is scanned.
    fn tree<'t>(&self, table: ScannedTable<'t>) -> &'t BPlusTree<K>
    where
        'tx: 't,
    {
        match self.secondary {
            Some(index) => index.tree(),
            None => match K::pick(table.primary) {
                FormIndex::Ordered(tree) => tree,
                FormIndex::Hash(_) => {
                    unreachable!("only tables that are `Ordered` have scans of the primary index")
                }
            },
        }
    }

    fn read_leaf<P: Protocol>(
        &self,
        transaction: &Transaction<'_, P>,
        (scanned, tree): (TableRef, &BPlusTree<K>),
        from: Bound<K>,
        page: &mut Page<K>,
    ) -> NodeVersion {
        let hint = transaction.worker.buffer(scanned.core().number).hint::<K>();
        let (from, to, memory) = (from.as_ref(), self.end(), &transaction.worker.memory);
        tree.read_page(from, to, self.direction, page, hint, memory)
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
            prefetch_record::<P>(ahead, size_of::<IndexEntry<K>>());
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
