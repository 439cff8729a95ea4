//! Scans of snapshots: iterators over the rows of a range, leaf by leaf.
//!
//! While the worker is pinned, a scan reads a leaf of the index, and finds every row on it that the snapshot sees.
//! Between two leaves the worker is not pinned. The rows that were found are kept for the snapshot, and the scan
//! finds the next leaf by its key. So a scan that takes an hour holds back only the memory that the snapshot holds
//! back anyway.

use std::marker::PhantomData;
use std::ops::Bound;
use std::ptr::NonNull;
use std::sync::Arc;

use weft_htm::prefetch::{LINE_BYTES, prefetch_lines};

use super::Snapshot;
use crate::error::Failure;
#[cfg(feature = "history")]
use crate::history::{HistoryKey, HistoryRange, ScanProgress, encoded_range};
use crate::index::bplus_tree::{Direction, LeafHint, Page};
use crate::row::encoding::{EncodedKey, Key, KeyForm, KeyLookup};
use crate::row::schema::{Index, Record};
use crate::store::ranges::{Bounds, entry_of, is_empty, leave_out};
#[cfg(feature = "history")]
use crate::store::table::Secondary;
use crate::store::table::{
    FormIndex, IndexEntry, PickForm, Table, TableInner, with_form, with_secondary,
};
use crate::store::worker::{StoredForm, WorkerState};

/// An iterator over the rows of a range, as a [`Snapshot`] sees them, in the order of the keys. [`Snapshot::range`]
/// and similar methods return it.
///
/// A scan reads lazily: nothing before the first `next`, and only to the end of the index leaf that it has reached.
#[must_use = "a scan reads nothing until it is iterated"]
pub struct SnapshotScan<'s, T: Record> {
    snapshot: &'s Snapshot,
    table: Arc<TableInner<T>>,
    /// The rows that were found. Those from `position` on are still to be returned.
    rows: Vec<NonNull<T>>,
    position: usize,
    is_reverse: bool,
    /// The leaves that are still to be read.
    pages: Box<dyn Pages<T> + Send>,
    #[cfg(feature = "history")]
    progress: Option<Box<ScanProgress>>,
}

// SAFETY: the rows are kept for the snapshot, on any thread, and rows are `Send` and `Sync`.
unsafe impl<T: Record> Send for SnapshotScan<'_, T> {}

impl<T: Record> std::fmt::Debug for SnapshotScan<'_, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SnapshotScan")
            .field("table", &self.table.name())
            .finish_non_exhaustive()
    }
}

const HAS_BEGUN: &str = "the scan has begun";

/// The leaves of an index, one after the other.
trait Pages<T: Record> {
    /// Finds the rows of the next leaf that the snapshot sees. Returns false if there is no further leaf. The
    /// worker is pinned.
    fn read(
        &mut self,
        snapshot: &Snapshot,
        table: &TableInner<T>,
        worker: &WorkerState,
        rows: &mut Vec<NonNull<T>>,
    ) -> Result<bool, Failure>;

    /// Reverses the direction, before the first leaf is read.
    fn turn(&mut self);

    /// Leaves the keys up to this one out, in the direction of the scan. Returns false if this is not a scan of this
    /// index.
    fn leave_out(&mut self, secondary: Option<usize>, position: &EncodedKey) -> bool;
}

impl<'s, T: Record> SnapshotScan<'s, T> {
    pub(super) fn primary<K: PickForm + StoredForm>(
        snapshot: &'s Snapshot,
        table: &Table<T>,
        bounds: Bounds<K>,
    ) -> Self {
        Self::new(snapshot, table, Box::new(Leaves::new(None, bounds)))
    }

    pub(super) fn secondary<K: PickForm + StoredForm>(
        snapshot: &'s Snapshot,
        table: &Table<T>,
        index: usize,
        bounds: Bounds<K>,
    ) -> Self {
        #[cfg(feature = "history")]
        let entries = snapshot.recorder().is_some().then(|| {
            let number = K::pick_secondary(&table.inner.secondary[index]).number();
            Box::new(ScanProgress::new(number, encoded_range(&bounds)))
        });
        let leaves = Leaves::new(Some(index), bounds);
        #[cfg(feature = "history")]
        let leaves = Leaves { entries, ..leaves };
        Self::new(snapshot, table, Box::new(leaves))
    }

    pub(super) fn unordered<K: PickForm + StoredForm>(
        snapshot: &'s Snapshot,
        table: &Table<T>,
    ) -> Self {
        Self::new(
            snapshot,
            table,
            Box::new(Buckets::<K> { is_read: false, form: Default::default() }),
        )
    }

    fn new(snapshot: &'s Snapshot, table: &Table<T>, pages: Box<dyn Pages<T> + Send>) -> Self {
        SnapshotScan {
            snapshot,
            table: Arc::clone(&table.inner),
            rows: Vec::new(),
            position: 0,
            is_reverse: false,
            pages,
            #[cfg(feature = "history")]
            progress: None,
        }
    }

    /// Returns a scan of the same rows, from the greatest key to the least. (In a table without an order this makes
    /// no difference.)
    ///
    /// # Panics
    /// If the scan has begun.
    pub fn descending(mut self) -> Self {
        if !self.is_reverse {
            self.turn();
        }
        self
    }

    fn turn(&mut self) {
        self.is_reverse = !self.is_reverse;
        self.pages.turn();
        #[cfg(feature = "history")]
        self.progress.iter_mut().for_each(|progress| progress.turn());
    }

    /// Returns a scan of the rows after a primary key, as [`Scan::after`](crate::Scan::after) does.
    ///
    /// # Panics
    /// If the scan has begun, is one of a secondary index, or has no order.
    pub fn after(mut self, key: impl KeyLookup<T::Key>) -> Self {
        with_form!(T::Key::WIDTH_BYTES, |K| {
            let position = K::from_lookup(&key).erase();
            let is_left_out = self.pages.leave_out(None, &position);
            assert!(is_left_out, "only a scan by the primary key is continued by `after`");
        });
        #[cfg(feature = "history")]
        if let Some(progress) = &mut self.progress {
            progress.leave_out(HistoryKey::of_lookup(&key));
        }
        self
    }

    /// Returns a scan of the rows after a position in a secondary index, as
    /// [`Scan::after_by`](crate::Scan::after_by) does.
    ///
    /// # Panics
    /// If the scan has begun, or is not one of this index.
    pub fn after_by<K: Key>(
        mut self,
        index: Index<T, K>,
        columns: impl KeyLookup<K>,
        key: &T::Key,
    ) -> Self {
        let position = index.position();
        let entry = with_secondary!(&self.table.secondary[position], |secondary| {
            secondary.erased(entry_of(index, &columns, key))
        });
        let is_left_out = self.pages.leave_out(Some(position), &entry);
        assert!(is_left_out, "the scan is not one of the index {index:?}");
        self
    }

    /// Returns the first of the rows, or `None` if the scan has no rows.
    ///
    /// # Errors
    /// As the items of the scan.
    pub fn first_row(mut self) -> Result<Option<&'s T>, Failure> {
        self.next().transpose()
    }

    /// Returns the last of the rows, or `None` if the scan has no rows. It is read from the other end.
    ///
    /// # Errors
    /// As the items of the scan.
    ///
    /// # Panics
    /// If the scan has begun.
    pub fn last_row(mut self) -> Result<Option<&'s T>, Failure> {
        self.turn();
        self.first_row()
    }

    /// Returns how many rows the scan has still to return.
    ///
    /// # Errors
    /// As the items of the scan.
    pub fn count_rows(mut self) -> Result<usize, Failure> {
        self.try_fold(0, |rows, row| row.map(|_| rows + 1))
    }

    /// Reads the next leaf. Returns false if there is no further leaf.
    fn read_leaf(&mut self) -> Result<bool, Failure> {
        self.record_start();
        self.rows.clear();
        self.position = 0;
        let SnapshotScan { snapshot, table, rows, pages, .. } = self;
        if !Arc::ptr_eq(&table.identity, snapshot.database.source.identity()) {
            return Err(Failure::ForeignTable { table: table.name() });
        }
        snapshot.read_pinned(|worker| pages.read(snapshot, table, worker, rows))?
    }
}

impl<'s, T: Record> Iterator for SnapshotScan<'s, T> {
    type Item = Result<&'s T, Failure>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(&row) = self.rows.get(self.position) {
                self.position += 1;
                self.record_row(row);
                // SAFETY: a row of the table that the snapshot needs.
                if !unsafe { self.snapshot.shows::<T>(row.cast()) } {
                    continue;
                }
                // SAFETY: a row of the table that the snapshot needs. It is kept, unchanged, as long as the
                // snapshot is open, and the scan borrows the snapshot.
                return Some(Ok(unsafe { row.as_ref() }));
            }
            match self.read_leaf() {
                Ok(true) => {}
                Ok(false) => {
                    self.record_end();
                    return None;
                }
                Err(failure) => {
                    self.pages = Box::new(NoMorePages);
                    return Some(Err(failure));
                }
            }
        }
    }
}

/// Takes the place of the leaves after a scan has failed.
struct NoMorePages;

impl<T: Record> Pages<T> for NoMorePages {
    fn read(
        &mut self,
        _snapshot: &Snapshot,
        _table: &TableInner<T>,
        _worker: &WorkerState,
        _rows: &mut Vec<NonNull<T>>,
    ) -> Result<bool, Failure> {
        Ok(false)
    }

    fn turn(&mut self) {}

    fn leave_out(&mut self, _secondary: Option<usize>, _position: &EncodedKey) -> bool {
        false
    }
}

/// The leaves of a B+-tree.
struct Leaves<K: StoredForm> {
    /// The position of the secondary index that is read, or `None` for the primary index.
    secondary: Option<usize>,
    bounds: Bounds<K>,
    direction: Direction,
    /// Where the next leaf begins.
    next: NextLeaf<K>,
    page: Page<K>,
    /// How far the scan of a secondary index is recorded.
    #[cfg(feature = "history")]
    entries: Option<Box<ScanProgress>>,
}

/// What a scan reads next.
enum NextLeaf<K> {
    First,
    From(Bound<K>),
    Nothing,
}

impl<K: StoredForm> Leaves<K> {
    fn new(secondary: Option<usize>, bounds: Bounds<K>) -> Self {
        let (direction, next, page) = (Direction::Forward, NextLeaf::First, Page::new());
        Leaves {
            secondary,
            bounds,
            direction,
            next,
            page,
            #[cfg(feature = "history")]
            entries: None,
        }
    }

    /// Returns where the next leaf begins, or `None` after the last leaf.
    fn advance(&mut self) -> Option<Bound<K>> {
        match std::mem::replace(&mut self.next, NextLeaf::Nothing) {
            NextLeaf::First if is_empty(&self.bounds) => None,
            NextLeaf::First => Some(match self.direction {
                Direction::Forward => self.bounds.0.clone(),
                Direction::Reverse => self.bounds.1.clone(),
            }),
            NextLeaf::From(from) => Some(from),
            NextLeaf::Nothing => None,
        }
    }
}

/// How many records ahead of its position a scan prefetches.
const RECORDS_AHEAD: usize = 6;

/// Visits addresses, and prefetches the records behind them some steps ahead.
#[cfg_attr(not(debug_assertions), inline(always))]
fn for_each_prefetched(addresses: &[u64], mut visit: impl FnMut(u64)) {
    let prefetch = |address: u64| {
        prefetch_lines(std::ptr::without_provenance(address as usize), 2 * LINE_BYTES);
    };
    addresses.iter().take(RECORDS_AHEAD).for_each(|&address| prefetch(address));
    for (position, &address) in addresses.iter().enumerate() {
        if let Some(&ahead) = addresses.get(position + RECORDS_AHEAD) {
            prefetch(ahead);
        }
        visit(address);
    }
}

impl<K: PickForm + StoredForm, T: Record> Pages<T> for Leaves<K> {
    fn read(
        &mut self,
        snapshot: &Snapshot,
        table: &TableInner<T>,
        worker: &WorkerState,
        rows: &mut Vec<NonNull<T>>,
    ) -> Result<bool, Failure> {
        let Some(from) = self.advance() else { return Ok(false) };
        #[cfg(feature = "history")]
        self.record_begin(snapshot);
        let to = match self.direction {
            Direction::Forward => self.bounds.1.as_ref(),
            Direction::Reverse => self.bounds.0.as_ref(),
        };
        let (direction, page) = (self.direction, &mut self.page);
        let (mut hint, memory) = (LeafHint::new(), &worker.memory);
        // SAFETY: the worker is pinned, and an index holds addresses of its table's records.
        let see = |address| unsafe { snapshot.see(address) };
        match self.secondary {
            Some(position) => {
                let index = K::pick_secondary(&table.secondary[position]);
                index.read_page(from.as_ref(), to, direction, page, &mut hint, memory);
                let mut entries = Vec::with_capacity(page.addresses().len());
                for_each_prefetched(page.addresses(), |address| {
                    entries.extend(see(address).map(NonNull::cast::<IndexEntry<K>>));
                });
                self.next = page.take_next().map_or(NextLeaf::Nothing, NextLeaf::From);
                #[cfg(feature = "history")]
                self.record_entries(snapshot, index, &entries);
                let leads_to = |entry: &NonNull<IndexEntry<K>>| {
                    // SAFETY: a row of the index, and the worker is pinned.
                    unsafe { entry.as_ref() }.record
                };
                let records: Vec<u64> = entries.iter().map(leads_to).collect();
                // If the snapshot sees an entry, it also sees the row of the record that the entry leads to.
                for_each_prefetched(&records, |record| {
                    rows.extend(see(record).map(NonNull::cast::<T>));
                });
            }
            None => {
                let FormIndex::Ordered(tree) = K::pick(&table.primary) else {
                    unreachable!("checked before the first leaf")
                };
                tree.read_page(from.as_ref(), to, direction, page, &mut hint, memory);
                self.next = page.take_next().map_or(NextLeaf::Nothing, NextLeaf::From);
                for_each_prefetched(page.addresses(), |address| {
                    rows.extend(see(address).map(NonNull::cast::<T>));
                });
            }
        }
        Ok(true)
    }

    fn turn(&mut self) {
        assert!(matches!(self.next, NextLeaf::First), "{HAS_BEGUN}");
        self.direction = match self.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        #[cfg(feature = "history")]
        self.entries.iter_mut().for_each(|entries| entries.turn());
    }

    fn leave_out(&mut self, secondary: Option<usize>, position: &EncodedKey) -> bool {
        if secondary != self.secondary {
            return false;
        }
        assert!(matches!(self.next, NextLeaf::First), "{HAS_BEGUN}");
        let position = K::restore(position);
        #[cfg(feature = "history")]
        if let Some(entries) = &mut self.entries {
            entries.leave_out(HistoryKey::encoded(&position));
        }
        leave_out(&mut self.bounds, position, self.direction == Direction::Reverse);
        true
    }
}

/// All rows of a hash table, read at once. Also used for a table that is declared as a hash table, but stored in a
/// B+-tree.
struct Buckets<K> {
    is_read: bool,
    form: PhantomData<fn() -> K>,
}

impl<K: PickForm + StoredForm, T: Record> Pages<T> for Buckets<K> {
    fn read(
        &mut self,
        snapshot: &Snapshot,
        table: &TableInner<T>,
        worker: &WorkerState,
        rows: &mut Vec<NonNull<T>>,
    ) -> Result<bool, Failure> {
        if std::mem::replace(&mut self.is_read, true) {
            return Ok(false);
        }
        K::pick(&table.primary).for_each_address(&worker.memory, &mut |address| {
            // SAFETY: the worker is pinned, and an index holds addresses of its table's records.
            rows.extend(unsafe { snapshot.see(address) }.map(NonNull::cast::<T>));
        });
        Ok(true)
    }

    fn turn(&mut self) {
        assert!(!self.is_read, "{HAS_BEGUN}");
    }

    fn leave_out(&mut self, _secondary: Option<usize>, _position: &EncodedKey) -> bool {
        false
    }
}

// ---- for the history --------------------------------------------------------------------------

#[cfg(feature = "history")]
impl<T: Record> SnapshotScan<'_, T> {
    /// Makes the scan recorded, if the database is. It is a scan of the primary keys in `range`.
    pub(super) fn recorded(mut self, range: impl FnOnce() -> HistoryRange) -> Self {
        if self.snapshot.recorder().is_some() {
            self.progress = Some(Box::new(ScanProgress::new(self.table.number(), range())));
        }
        self
    }
}

#[cfg(feature = "history")]
impl<K: StoredForm> Leaves<K> {
    /// Records that the scan of a secondary index begins.
    fn record_begin(&mut self, snapshot: &Snapshot) {
        if let (Some(mut recorder), Some(scan)) = (snapshot.recorder(), &mut self.entries) {
            recorder.begin_scan(scan);
        }
    }

    /// Records the entries of a leaf. If the leaf is the last one, also records that the scan ends.
    fn record_entries(
        &mut self,
        snapshot: &Snapshot,
        index: &Secondary<K>,
        entries: &[NonNull<IndexEntry<K>>],
    ) {
        let (Some(mut recorder), Some(scan)) = (snapshot.recorder(), &mut self.entries) else {
            return;
        };
        let core = index.reference();
        for &entry in entries {
            // SAFETY: a row of the index that the snapshot sees, of a recorded database.
            let (key, seen) = unsafe {
                (HistoryKey::encoded(&entry.as_ref().key), core.core().stamp(entry.cast()))
            };
            recorder.scan_row(scan, key, seen);
        }
        if matches!(self.next, NextLeaf::Nothing) {
            recorder.end_scan(scan);
        }
    }
}

/// Recording. A scan of a whole hash table is recorded as reads of the rows found. So are the rows that a secondary
/// index leads to.
#[cfg_attr(
    not(feature = "history"),
    allow(unused_variables, reason = "the arguments are for the recorder")
)]
impl<T: Record> SnapshotScan<'_, T> {
    #[inline(always)]
    fn record_start(&mut self) {
        #[cfg(feature = "history")]
        if let (Some(mut recorder), Some(scan)) = (self.snapshot.recorder(), &mut self.progress) {
            recorder.begin_scan(scan);
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn record_row(&mut self, row: NonNull<T>) {
        #[cfg(feature = "history")]
        if let Some(mut recorder) = self.snapshot.recorder() {
            let reference = self.table.reference();
            // SAFETY: a row that the snapshot sees, of a recorded database.
            let (key, seen) = unsafe {
                (HistoryKey::of(&row.as_ref().key()), reference.core().stamp(row.cast()))
            };
            match &mut self.progress {
                Some(scan) => recorder.scan_row(scan, key, seen),
                None => recorder.read(self.table.number(), key, Some(seen)),
            }
        }
    }

    #[inline(always)]
    fn record_end(&mut self) {
        #[cfg(feature = "history")]
        if let (Some(mut recorder), Some(mut scan)) =
            (self.snapshot.recorder(), self.progress.take())
        {
            recorder.end_scan(&mut scan);
        }
    }
}
