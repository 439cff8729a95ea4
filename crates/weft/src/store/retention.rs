//! Retention: which snapshots are open, and which old versions are kept for them.
//!
//! A version that was replaced has an *interval*: from its own number up to that of its replacement. A
//! snapshot needs the version if its number lies in that interval. So the transaction that replaces a version
//! compares the interval with the numbers of the open snapshots, and knows whether to keep the version,
//! however old the oldest snapshot is. A version that falls between two open snapshots is dropped at once,
//! and a record has at most as many old versions as there are snapshots.
//!
//! A deleted record stays in its index while some snapshot can read one of its versions. Its newest row has
//! an interval, too: from its number up to that of the deletion. The older versions in the chain have theirs.
//! If no open snapshot lies in any of these intervals, the record may leave its index, even if older
//! snapshots are open: they do not see a row that was inserted and deleted after they were opened.
//!
//! # Lists
//!
//! An entry is on the list of the *greatest* snapshot that needs it. When that snapshot is closed, its list
//! is *released*. The closing thread, and the workers as they collect their garbage, then take the entries in
//! chunks and decide about each of them again. If a smaller snapshot needs an entry, it goes to the list of
//! that snapshot. Otherwise the version is unlinked from its record, or the record from its index.
//!
//! ```text
//!   worker's buffer --64 entries--> list of snapshot 12   [chunk][chunk][chunk
//!                                   list of snapshot 15   [chunk][chunk
//!                                          | close(15): the whole list, in one step
//!                                          v
//!                                   released              one chunk at a time: decide again
//! ```
//!
//! The lock on the lists is held for a few steps only, and nothing is looked up under it. A worker copies the
//! numbers of the open snapshots, decides, and then puts the entries on their lists. If a snapshot is closed
//! in between, its entries are released at once. A snapshot that is opened in between needs none of the
//! entries, since its number is greater than the end of their intervals.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::ops::DerefMut;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use weft_htm::word::{Mutex, Ordering, Word, spin_loop};

use crate::row::encoding::EncodedKey;
use crate::store::ages::SnapshotLife;
use crate::store::record::newest;
use crate::store::record::version::{
    ChainLocks, Deletion, NEVER, SnapshotView, UNNUMBERED, VersionHeader, seen_at,
};
use crate::store::table::TableRef;
use crate::sync::clock::Clock;

/// Metrics of the open snapshots, and of the old versions that are kept for them. A snapshot that was
/// forgotten shows here, by its age and by how much is kept for it.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SnapshotMetrics {
    /// The number of open snapshots.
    pub open: usize,
    /// How long the oldest of them has been open.
    pub oldest_age: Option<Duration>,
    /// The [label](crate::SnapshotOptions::label) of the oldest, if it has one.
    pub oldest_label: Option<&'static str>,
    /// The number of versions and records that are kept for them: replaced versions, and deleted records that
    /// are still in their indexes. A row that a snapshot can read counts, if it was changed or deleted since,
    /// once for itself and once for each of its index entries. (A key that was deleted and inserted again may
    /// count twice.)
    ///
    /// Each worker may hold some dozens more, until it collects its garbage. Under `none` and `htm-naive`
    /// deleted records are not counted.
    pub versions_held: u64,
    /// The memory that these take, in bytes: the blocks of versions and deletions, deleted records with their
    /// rows, their keys, and the lists that hold all of these. What rows own elsewhere, such as the text of a
    /// `String`, is not counted.
    pub bytes_held: u64,
}

/// The value of [`Retention::oldest`] when no snapshot is open.
pub const NONE_OPEN: u64 = u64::MAX;

/// The open snapshots of a database, and the versions that are kept for them.
#[derive(Debug)]
pub struct Retention {
    /// A lower bound of the numbers of all open snapshots.
    oldest: Word,
    /// Counts the openings, twice each: odd while an opening is under way.
    openings: Word,
    state: Mutex<State>,
    /// How many entries wait to be decided about again.
    released: Word,
    /// Locks of the chains of versions.
    pub chains: ChainLocks,
    retained: Word,
    retained_bytes: Word,
}

#[derive(Debug, Default)]
struct State {
    /// The open snapshots, in the order of their numbers.
    open: Vec<OpenSnapshot>,
    /// The lists of entries, each under the number of the greatest snapshot that needs its entries.
    lists: BTreeMap<u64, List>,
    /// The lists whose snapshots were closed. Each has at least one entry.
    released: Vec<List>,
}

impl State {
    /// Returns the numbers of the open snapshots that need versions, in order.
    fn needing(&self) -> impl Iterator<Item = u64> {
        self.open.iter().filter(|open| !open.is_void).map(|open| open.number)
    }
}

/// Entries in chunks. So a long list is not copied when it grows or moves.
#[derive(Debug, Default)]
struct List {
    chunks: Vec<Vec<RetainedEntry>>,
    entries: usize,
}

impl List {
    fn push(&mut self, entry: RetainedEntry) {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK_ENTRIES => chunk.push(entry),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_ENTRIES);
                chunk.push(entry);
                self.chunks.push(chunk);
            }
        }
        self.entries += 1;
    }

    fn take_chunk(&mut self) -> Vec<RetainedEntry> {
        let chunk = self.chunks.pop().unwrap_or_default();
        self.entries -= chunk.len();
        chunk
    }
}

/// How many entries a worker takes from the released lists at a time.
const CHUNK_ENTRIES: usize = if cfg!(loom) { 2 } else { 128 };

#[derive(Debug)]
struct OpenSnapshot {
    number: u64,
    /// How many readers have it open.
    readers: usize,
    life: Arc<SnapshotLife>,
    /// Whether it is too old, and nothing was read from it. Then nothing is kept for it.
    is_void: bool,
}

/// The numbers of the open snapshots at some moment.
#[derive(Debug, Default)]
pub struct OpenSnapshots {
    /// In ascending order. Some of these snapshots may be closed by now.
    numbers: Vec<u64>,
    /// The list has every open snapshot whose number is smaller than this.
    as_of: u64,
}

impl OpenSnapshots {
    /// Returns the numbers, in ascending order.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Returns whether the list has every open snapshot whose number is smaller than `number`.
    #[inline(always)]
    pub fn is_complete_below(&self, number: u64) -> bool {
        self.as_of >= number
    }

    /// Returns whether a snapshot from `begin` up to, but not including, `end` may be open.
    pub fn may_lie_in(&self, begin: u64, end: u64) -> bool {
        !self.is_complete_below(end) || greatest_in(&self.numbers, begin, end).is_some()
    }
}

/// Returns the greatest of `numbers`, which ascend, from `begin` up to, but not including, `end`.
fn greatest_in(numbers: &[u64], begin: u64, end: u64) -> Option<u64> {
    let below = numbers.partition_point(|&number| number < end);
    numbers[..below].last().copied().filter(|&number| number >= begin)
}

/// An entry: something that is kept for snapshots.
#[derive(Debug)]
pub struct RetainedEntry {
    /// What it is.
    pub item: RetainedItem,
    /// The record to which it belongs.
    pub record: NonNull<u8>,
    /// The record's table.
    pub table: TableRef,
    /// The number of a version's replacement, or of a record's deletion.
    pub end: u64,
    /// How many bytes of memory it takes, this entry included.
    bytes: u64,
}

/// What an entry keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetainedItem {
    /// A version that was replaced, given by its row.
    Version(NonNull<u8>),
    /// A deleted record, in its index under this key.
    DeletedRecord(EncodedKey),
    /// The place, in no chain, from which a row was moved back into its record. Snapshots may have returned the row
    /// there.
    Place(NonNull<u8>),
}

// SAFETY: the holder of the entry owns the memory at these addresses, on any thread.
unsafe impl Send for RetainedEntry {}

impl RetainedEntry {
    /// Creates the entry of a version that was replaced at `end`.
    ///
    /// # Safety
    /// The caller owns the version, which belongs to a record of `table`.
    pub unsafe fn version(
        row: NonNull<u8>,
        record: NonNull<u8>,
        table: TableRef,
        end: u64,
    ) -> RetainedEntry {
        let core = table.core();
        // SAFETY: by the contract.
        let (inline, deletion) =
            unsafe { (table.is_inline(record, row), VersionHeader::of(row).deletion().is_some()) };
        let bytes = size_of::<RetainedEntry>()
            + if inline { 0 } else { core.row_class.bytes() }
            + if deletion { size_of::<Deletion>() } else { 0 };
        RetainedEntry { item: RetainedItem::Version(row), record, table, end, bytes: bytes as u64 }
    }

    /// Creates the entry of a deleted record, which its index holds under `key`, and whose newest row was
    /// deleted at `end`.
    ///
    /// # Safety
    /// The caller took the record from a list of deleted records, and is pinned.
    pub unsafe fn deleted_record(
        key: EncodedKey,
        record: NonNull<u8>,
        table: TableRef,
        end: u64,
    ) -> RetainedEntry {
        let core = table.core();
        // SAFETY: by the contract.
        let inline = unsafe { newest(record).is_none_or(|row| table.is_inline(record, row)) };
        let bytes = size_of::<RetainedEntry>()
            + key.heap_bytes()
            + core.record_class.bytes()
            + if inline { 0 } else { core.row_class.bytes() }
            + size_of::<Deletion>();
        RetainedEntry {
            item: RetainedItem::DeletedRecord(key),
            record,
            table,
            end,
            bytes: bytes as u64,
        }
    }

    /// Creates the entry of a place from which a row was moved. `end` is greater than the number of every snapshot that
    /// may have found the row there.
    pub fn place(
        row: NonNull<u8>,
        record: NonNull<u8>,
        table: TableRef,
        end: u64,
    ) -> RetainedEntry {
        let bytes = size_of::<RetainedEntry>() + table.core().row_class.bytes();
        RetainedEntry { item: RetainedItem::Place(row), record, table, end, bytes: bytes as u64 }
    }

    /// Returns whether the entry is a version whose transaction has committed, but has not numbered it yet.
    ///
    /// # Safety
    /// The caller owns what the entry stands for.
    pub unsafe fn is_unnumbered(&self) -> bool {
        match self.item {
            // SAFETY: by the contract.
            RetainedItem::Version(row) => unsafe { VersionHeader::of(row).number() == UNNUMBERED },
            RetainedItem::DeletedRecord(_) | RetainedItem::Place(_) => false,
        }
    }

    /// Returns the greatest of the open snapshots that needs the entry. `open` must have all open snapshots
    /// with a smaller number than the entry's end.
    ///
    /// A deleted record may still have older versions that no snapshot needs. Then it must wait for their
    /// owners to unlink them. The owners do so soon if those versions are on released lists, or on their way
    /// there. If `may_rest`, the record is instead put on the list of the greatest snapshot for which such a
    /// version may be kept.
    ///
    /// # Safety
    /// The caller owns what the entry stands for, and is pinned.
    pub unsafe fn needed_by(
        &self,
        open: &[u64],
        may_rest: bool,
        chains: &ChainLocks,
    ) -> Option<u64> {
        // SAFETY: passed on to the caller.
        unsafe {
            match self.item {
                RetainedItem::Version(row) | RetainedItem::Place(row) => {
                    let (begin, end) = version_interval(row, self.end);
                    greatest_in(open, begin, end)
                }
                RetainedItem::DeletedRecord(_) => self.record_needed_by(open, may_rest, chains),
            }
        }
    }

    /// As [`RetainedEntry::needed_by`], for a deleted record.
    ///
    /// # Safety
    /// As for [`RetainedEntry::needed_by`].
    unsafe fn record_needed_by(
        &self,
        open: &[u64],
        may_rest: bool,
        chains: &ChainLocks,
    ) -> Option<u64> {
        // SAFETY: the record is not freed while it is on a list, and the caller is pinned.
        unsafe {
            let newest = || newest(self.record);
            // The newest row, and the number of its deletion. `None` if the record has a row again, or was
            // deleted again while no snapshot was open. Then its older versions have entries of their own.
            let deleted = || {
                let header = VersionHeader::of(newest()?);
                Some((header, header.deletion()?.as_ref().number))
            };
            let (header, deletion) = deleted()?;
            if let Some(number) = greatest_in(open, header.number(), deletion) {
                return Some(number);
            }
            // No snapshot reads the newest row, but one may read an older version through this record. While
            // the chain is locked, no version of it is unlinked.
            let _chain = chains.lock(self.record);
            let (header, deletion) = deleted()?;
            let mut oldest = header.predecessor()?;
            let older = open.partition_point(|&number| number < deletion);
            let is_reader =
                |number: &u64| matches!(seen_at(newest(), *number), SnapshotView::Row(_));
            let reader = open[..older].iter().rev().copied().find(is_reader);
            if reader.is_some() || !may_rest {
                return reader;
            }
            // A version that was itself deleted may still be on a list, because it hid an older version that
            // has been unlinked by now. So start from the oldest version.
            while let Some(older) = VersionHeader::of(oldest).predecessor() {
                oldest = older;
            }
            greatest_in(open, VersionHeader::of(oldest).number(), deletion)
        }
    }
}

/// Returns which snapshots need a version that was replaced at `end`: those from the first number up to, but
/// not including, the second.
///
/// # Safety
/// The caller owns the version.
unsafe fn version_interval(row: NonNull<u8>, end: u64) -> (u64, u64) {
    // SAFETY: by the contract; a deletion lives as long as its version.
    unsafe {
        let header = VersionHeader::of(row);
        let begin = match header.number() {
            // It has no number yet, so assume that it is as old as possible.
            UNNUMBERED | NEVER => 0,
            number => number,
        };
        // Between its deletion and its replacement, a deleted row tells snapshots not to look at older
        // versions. It is needed for that if there are older versions.
        if !header.is_deleted() || header.predecessor().is_some() {
            return (begin, end);
        }
        match header.deletion() {
            Some(deletion) => (begin, deletion.as_ref().number),
            None => (0, 0),
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Retention {
            oldest: Word::new(NONE_OPEN),
            openings: Word::new(0),
            state: Mutex::new(State::default()),
            released: Word::new(0),
            chains: ChainLocks::default(),
            retained: Word::new(0),
            retained_bytes: Word::new(0),
        }
    }
}

impl Retention {
    fn state(&self) -> impl DerefMut<Target = State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a snapshot, which takes its number by `take`. The snapshot is consistent when the commits under
    /// way have ended.
    ///
    /// A transaction that draws a number greater than the snapshot's sees from then on that the snapshot is
    /// open: the store to `oldest` comes before the clock's increment, and the increment before the
    /// transaction's draw.
    pub fn open(&self, clock: &Clock, life: &Arc<SnapshotLife>, take: impl FnOnce() -> u64) -> u64 {
        let mut state = self.state();
        self.openings.fetch_add(1, Ordering::SeqCst);
        if state.needing().next().is_none() {
            self.oldest.store(clock.number(), Ordering::SeqCst);
        }
        let number = take();
        debug_assert!(state.open.last().is_none_or(|last| last.number < number));
        let life = Arc::clone(life);
        state.open.push(OpenSnapshot { number, readers: 1, life, is_void: false });
        self.openings.fetch_add(1, Ordering::SeqCst);
        number
    }

    /// Adds a reader to a snapshot that is open.
    pub fn join(&self, number: u64) {
        let mut state = self.state();
        let joined = state.open.iter_mut().find(|open| open.number == number);
        joined.expect("only an open snapshot is joined").readers += 1;
    }

    /// Closes a snapshot for one reader. If it was the last reader, everything that was kept for the snapshot
    /// is [released](Retention::take_released), in one step however much it is.
    pub fn close(&self, number: u64) {
        let mut state = self.state();
        let position = state.open.iter().position(|open| open.number == number);
        let position = position.expect("a snapshot is closed as often as it is opened");
        state.open[position].readers -= 1;
        if state.open[position].readers > 0 {
            return;
        }
        state.open.remove(position);
        self.release(&mut state, number);
    }

    /// Releases what was kept for a snapshot that needs nothing any more.
    fn release(&self, state: &mut State, number: u64) {
        let oldest = state.needing().next().unwrap_or(NONE_OPEN);
        self.oldest.store(oldest, Ordering::SeqCst);
        if let Some(list) = state.lists.remove(&number) {
            self.released.fetch_add(list.entries as u64, Ordering::Relaxed);
            state.released.push(list);
        }
    }

    /// Refuses the readers of snapshots that are older than their limit. What was kept for such a snapshot is
    /// released, unless something was read from it: the rows may still be in use.
    pub fn expire(&self) {
        let mut state = self.state();
        for position in 0..state.open.len() {
            let open = &mut state.open[position];
            if open.life.expire() {
                open.is_void = true;
                let number = open.number;
                self.release(&mut state, number);
            }
        }
    }

    /// Returns a lower bound of the numbers of all open snapshots. Returns [`NONE_OPEN`] if no snapshot is
    /// open. Then no old version is read, and snapshots that are opened later will not need the versions of
    /// today either.
    ///
    /// SeqCst: a transaction calls this after it has drawn its number: see [`Retention::open`].
    #[inline(always)]
    pub fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::SeqCst)
    }

    /// Returns a count of the snapshots opened so far. Two results differ if, and only if, a snapshot was
    /// opened in between. Waits while one is being opened.
    pub fn openings(&self) -> u64 {
        loop {
            let openings = self.openings.load(Ordering::SeqCst);
            if openings.is_multiple_of(2) {
                return openings;
            }
            spin_loop();
        }
    }

    /// Returns whether a snapshot was opened, or is being opened, since [`Retention::openings`] returned
    /// `openings`.
    #[inline(always)]
    pub fn has_opened_since(&self, openings: u64) -> bool {
        self.openings.load(Ordering::SeqCst) != openings
    }

    /// Lists the open snapshots.
    pub fn list_open(&self, clock: &Clock, open: &mut OpenSnapshots) {
        // Read the clock first. A snapshot with a smaller number than this has incremented the clock already,
        // so its opening holds the lock by now, or held it before.
        open.as_of = clock.number();
        open.numbers.clear();
        open.numbers.extend(self.state().needing());
    }

    /// Puts entries on the lists of the snapshots that need them. Each entry comes with the number of its
    /// snapshot. `is_new` says that the entries have not been on a list before.
    pub fn keep(&self, needed: &mut Vec<(u64, RetainedEntry)>, is_new: bool) {
        if needed.is_empty() {
            return;
        }
        if is_new {
            let bytes = needed.iter().map(|(_, entry)| entry.bytes).sum();
            self.retained.fetch_add(needed.len() as u64, Ordering::Relaxed);
            self.retained_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let mut released = List::default();
        let state = &mut *self.state();
        for (number, entry) in needed.drain(..) {
            let position = state.open.binary_search_by_key(&number, |open| open.number);
            if position.is_ok_and(|position| !state.open[position].is_void) {
                state.lists.entry(number).or_default().push(entry);
            } else {
                // Closed since the caller listed the snapshots: another snapshot may need the entry.
                released.push(entry);
            }
        }
        if released.entries > 0 {
            self.released.fetch_add(released.entries as u64, Ordering::Relaxed);
            state.released.push(released);
        }
    }

    /// Takes some of the entries that were kept for snapshots that are closed now. The result is empty if
    /// there are no such entries. The caller decides about them again, and calls [`Retention::keep`] and
    /// [`Retention::forget`].
    pub fn take_released(&self) -> Vec<RetainedEntry> {
        // Relaxed: it makes no difference whether they are taken now or later.
        if self.released.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut state = self.state();
        let Some(list) = state.released.last_mut() else { return Vec::new() };
        let chunk = list.take_chunk();
        if list.entries == 0 {
            state.released.pop();
        }
        subtract(&self.released, chunk.len() as u64);
        chunk
    }

    /// Returns whether entries wait to be decided about again.
    pub fn has_released(&self) -> bool {
        self.released.load(Ordering::Relaxed) != 0
    }

    /// Removes entries that were on lists before from the counts of what is kept.
    pub fn forget(&self, unneeded: &[RetainedEntry]) {
        if !unneeded.is_empty() {
            subtract(&self.retained, unneeded.len() as u64);
            subtract(&self.retained_bytes, unneeded.iter().map(|entry| entry.bytes).sum());
        }
    }

    /// Takes all entries. Called when the database is dropped.
    pub fn take_all(&self) -> Vec<RetainedEntry> {
        let state = &mut *self.state();
        let lists = std::mem::take(&mut state.lists).into_values();
        lists.chain(state.released.drain(..)).flat_map(|list| list.chunks).flatten().collect()
    }

    /// Returns how many entries are kept.
    pub fn entries(&self) -> u64 {
        self.retained.load(Ordering::Relaxed)
    }

    /// Returns how many snapshots are open, and what is kept for them.
    pub fn metrics(&self) -> SnapshotMetrics {
        let state = self.state();
        let oldest = state.open.first().map(|open| &open.life);
        SnapshotMetrics {
            open: state.open.len(),
            oldest_age: oldest.map(|life| life.opened.elapsed()),
            oldest_label: oldest.and_then(|life| life.label),
            versions_held: self.retained.load(Ordering::Relaxed),
            bytes_held: self.retained_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Subtracts `value` from a counter. Relaxed: the counters are statistics and hints.
fn subtract(word: &Word, value: u64) {
    word.fetch_add(value.wrapping_neg(), Ordering::Relaxed);
}

/// The life of a snapshot without a limit, for tests.
#[cfg(test)]
pub fn life() -> Arc<SnapshotLife> {
    Arc::new(SnapshotLife::new(None, None))
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::clock::ActivityWords;
    use loom::sync::Arc;
    use loom::thread;

    /// A transaction that draws a greater number than a snapshot's sees that a snapshot is open that is at
    /// least as old, also while another one is being closed.
    #[test]
    fn loom_retention_an_open_snapshot_is_seen() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let clock = Arc::new(Clock::default());
            let commits = Arc::new(ActivityWords::new(1));
            let retention = Arc::new(Retention::default());
            let before = retention.open(&clock, &life(), || clock.take_number());
            let closer = {
                let retention = Arc::clone(&retention);
                thread::spawn(move || retention.close(before))
            };
            let opener = {
                let (clock, retention) = (Arc::clone(&clock), Arc::clone(&retention));
                thread::spawn(move || retention.open(&clock, &life(), || clock.take_number()))
            };
            commits.begin(0);
            let drawn = clock.number();
            let oldest = retention.oldest();
            let mut open = OpenSnapshots::default();
            if oldest != NONE_OPEN {
                retention.list_open(&clock, &mut open);
            }
            commits.end(0);
            let snapshot = opener.join().unwrap();
            closer.join().unwrap();
            if drawn > snapshot {
                assert!(oldest <= snapshot, "{oldest} is the oldest, though {snapshot} is open");
                assert!(open.may_lie_in(snapshot, drawn), "{snapshot} is not in {open:?}");
                assert!(open.numbers.contains(&snapshot), "{snapshot} is not in {open:?}");
            }
        });
    }

    /// A worker keeps entries for a snapshot that is being closed. Whether they are put on its list before or
    /// after, they are released: each entry is taken again once, and none stays on the list of a closed
    /// snapshot.
    #[test]
    fn loom_retention_nothing_is_kept_for_a_closed_snapshot() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let clock = Arc::new(Clock::default());
            let retention = Arc::new(Retention::default());
            let older = retention.open(&clock, &life(), || clock.take_number());
            let newer = retention.open(&clock, &life(), || clock.take_number());
            let entry = |needed_by: u64| {
                let (row, table) = (NonNull::dangling(), TableRef::dangling());
                let item = RetainedItem::Version(row);
                (
                    needed_by,
                    RetainedEntry { item, record: row, table, end: needed_by + 1, bytes: 1 },
                )
            };
            retention.keep(&mut vec![entry(newer), entry(older)], true);
            let closer = {
                let retention = Arc::clone(&retention);
                thread::spawn(move || {
                    retention.close(newer);
                    retention.take_released().len()
                })
            };
            retention.keep(&mut vec![entry(newer), entry(newer)], true);
            let mut taken = closer.join().unwrap();
            while retention.has_released() {
                taken += retention.take_released().len();
            }
            assert_eq!(taken, 3);
            let state = retention.state();
            assert_eq!(state.lists.keys().copied().collect::<Vec<_>>(), [older]);
            assert!(state.released.is_empty());
        });
    }
}

/// How [`Retention`] handles chunks.
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn entries(count: usize, needed_by: u64) -> Vec<(u64, RetainedEntry)> {
        let entry = |_| {
            let (row, table) = (NonNull::dangling(), TableRef::dangling());
            let item = RetainedItem::Version(row);
            (needed_by, RetainedEntry { item, record: row, table, end: needed_by + 1, bytes: 3 })
        };
        (0..count).map(entry).collect()
    }

    #[test]
    fn released_entries_come_in_chunks() {
        let (clock, retention) = (Clock::default(), Retention::default());
        let first = retention.open(&clock, &life(), || clock.take_number());
        let second = retention.open(&clock, &life(), || clock.take_number());
        let count = 10 * CHUNK_ENTRIES + 7;
        retention.keep(&mut entries(count, second), true);
        retention.keep(&mut entries(5, first), true);
        assert!(retention.take_released().is_empty(), "both are open");
        retention.close(second);
        let held = retention.metrics();
        assert_eq!(
            (held.versions_held, held.bytes_held),
            (count as u64 + 5, 3 * (count as u64 + 5))
        );
        let mut released = 0;
        while retention.has_released() {
            let chunk = retention.take_released();
            assert!((1..=CHUNK_ENTRIES).contains(&chunk.len()));
            released += chunk.len();
            retention.forget(&chunk);
        }
        assert_eq!(released, count);
        let held = retention.metrics();
        assert_eq!((held.versions_held, held.bytes_held), (5, 15), "of the one that is open");
        retention.keep(&mut entries(1, second), false);
        assert_eq!(retention.take_released().len(), 1, "kept for one that was closed before");
        assert_eq!(retention.take_all().len(), 5);
    }

    #[test]
    fn a_list_of_open_snapshots_knows_its_bound() {
        let (clock, retention) = (Clock::default(), Retention::default());
        let mut open = OpenSnapshots::default();
        assert!(open.may_lie_in(1, clock.number()), "nothing was listed");
        let first = retention.open(&clock, &life(), || clock.take_number());
        retention.list_open(&clock, &mut open);
        let now = clock.number();
        assert!(open.may_lie_in(first, now));
        assert!(!open.may_lie_in(first + 1, now) && !open.may_lie_in(0, first));
        let second = retention.open(&clock, &life(), || clock.take_number());
        assert!(open.may_lie_in(second, second + 1), "the list ends before it");
    }
}
