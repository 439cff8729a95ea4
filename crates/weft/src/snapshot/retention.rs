//! Which snapshots are open, and which old versions are kept for them.
//!
//! A version that was replaced has an *interval*: from its own number up to that of its
//! replacement. A snapshot needs it if its number lies in the interval. So with
//! one glance at the numbers of the open snapshots the transaction that replaces a version knows
//! whether to keep it, however old the oldest snapshot is: one that falls between two open
//! snapshots goes at once, and a record has at most as many old versions as there are snapshots.
//!
//! A version that is kept stands on the list of the *greatest* snapshot that needs it. When that
//! one is closed its list is *released*: every entry is looked at again, by whoever closes the
//! snapshot and by the workers as they collect their garbage, and goes to the list of a smaller
//! snapshot that needs it as well, or is unlinked from its record and retired.
//!
//! A deleted record stays in its index, and on such a list, as long as a snapshot that is older
//! than the deletion is open.

use std::collections::BTreeMap;
use std::ops::DerefMut;
use std::ptr::NonNull;
use std::sync::PoisonError;
use std::time::Instant;

use weft_htm::word::{Mutex, Ordering, Word, spin_loop};

use crate::encoding::EncodedKey;
use crate::epoch::clock::Clock;
use crate::metrics::SnapshotMetrics;
use crate::record::version::{ChainLocks, NEVER, UNNUMBERED, VersionHeader};
use crate::table::TableRef;

/// The value of [`Retention::oldest`] when no snapshot is open.
pub const NONE_OPEN: u64 = u64::MAX;

/// The open snapshots of a database, and what is kept for them.
#[derive(Debug)]
pub struct Retention {
    /// No open snapshot's number is smaller.
    oldest: Word,
    /// Counts the openings, twice: odd while one is under way.
    openings: Word,
    state: Mutex<State>,
    /// How many entries wait to be looked at again.
    released: Word,
    /// Locks of the chains of versions.
    pub chains: ChainLocks,
    retained: Word,
    retained_bytes: Word,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of the numbers.
    open: Vec<OpenSnapshot>,
    /// By the greatest snapshot that needs them.
    lists: BTreeMap<u64, Vec<Retained>>,
    /// To be looked at again.
    released: Vec<Retained>,
}

#[derive(Debug)]
struct OpenSnapshot {
    number: u64,
    since: Instant,
    /// How many have it open.
    readers: usize,
}

/// Something that is kept for snapshots.
#[derive(Debug)]
pub struct Retained {
    /// What it is.
    pub kept: Kept,
    /// The record that it belongs to.
    pub record: NonNull<u8>,
    /// The record's table.
    pub table: TableRef,
    /// The number of a version's replacement, or of a record's deletion.
    pub end: u64,
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A version that was replaced, by its row.
    Version(NonNull<u8>),
    /// A deleted record, in its index under this key.
    DeletedRecord(EncodedKey),
}

// SAFETY: the addresses are of memory that whoever holds the entry owns, on any thread.
unsafe impl Send for Retained {}

impl Retained {
    /// The greatest of some snapshots, in the order of their numbers, that needs it.
    ///
    /// # Safety
    /// The entry owns what it stands for.
    pub unsafe fn needed_by(&self, open: &[u64]) -> Option<u64> {
        // SAFETY: not freed before it is retired.
        let (begin, end) = unsafe { self.interval() };
        let older = open.partition_point(|&number| number < end);
        open[..older].last().copied().filter(|&number| number >= begin)
    }

    /// Which snapshots need it: from the first number up to, but not including, the second.
    ///
    /// # Safety
    /// As for [`Retained::needed_by`].
    unsafe fn interval(&self) -> (u64, u64) {
        let Kept::Version(row) = self.kept else { return (0, self.end) };
        // SAFETY: by the contract; a deletion lives as long as its version.
        unsafe {
            let header = VersionHeader::of(row);
            let begin = match header.number() {
                // Not numbered yet: it may be as old as need be.
                UNNUMBERED | NEVER => 0,
                number => number,
            };
            // Between its deletion and its replacement a deleted row tells snapshots not to look
            // any further, if there is something to be found.
            if !header.is_deleted() || header.predecessor().is_some() {
                return (begin, self.end);
            }
            match header.deletion() {
                Some(deletion) => (begin, deletion.as_ref().number),
                None => (0, 0),
            }
        }
    }

    fn bytes(&self) -> u64 {
        let core = self.table.core();
        match self.kept {
            Kept::Version(_) => core.row_class.bytes() as u64,
            Kept::DeletedRecord(_) => core.record_class.bytes() as u64,
        }
    }
}

/// How many entries are looked at before others get their turn.
const RELEASED_AT_ONCE: usize = 1024;

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

    /// Opens a snapshot, which takes its number by `take`. It is consistent when the commits under
    /// way have ended.
    ///
    /// Whoever draws a number greater than the snapshot's sees it open from then on: the clock's
    /// increment comes after the store to `oldest`, and before the drawing.
    pub fn open(&self, clock: &Clock, take: impl FnOnce() -> u64) -> u64 {
        let mut state = self.state();
        self.openings.fetch_add(1, Ordering::SeqCst);
        if state.open.is_empty() {
            self.oldest.store(clock.number(), Ordering::SeqCst);
        }
        let number = take();
        debug_assert!(state.open.last().is_none_or(|last| last.number < number));
        state.open.push(OpenSnapshot { number, since: Instant::now(), readers: 1 });
        self.openings.fetch_add(1, Ordering::SeqCst);
        number
    }

    /// Opens a snapshot once more that is open.
    pub fn join(&self, number: u64) {
        let mut state = self.state();
        let joined = state.open.iter_mut().find(|open| open.number == number);
        joined.expect("somebody has it open").readers += 1;
    }

    /// Closes a snapshot. If nobody else has it open, what was kept for it alone is to be
    /// [looked at](Retention::take_released) again.
    pub fn close(&self, number: u64) {
        let mut state = self.state();
        let position = state.open.iter().position(|open| open.number == number);
        let position = position.expect("a snapshot is closed as often as it is opened");
        state.open[position].readers -= 1;
        if state.open[position].readers > 0 {
            return;
        }
        state.open.remove(position);
        let oldest = state.open.first().map_or(NONE_OPEN, |first| first.number);
        self.oldest.store(oldest, Ordering::SeqCst);
        if let Some(list) = state.lists.remove(&number) {
            self.released.fetch_add(list.len() as u64, Ordering::Relaxed);
            if state.released.is_empty() {
                state.released = list;
            } else {
                state.released.extend(list);
            }
        }
    }

    /// No open snapshot's number is smaller. [`NONE_OPEN`] if none is open; then nobody reads old
    /// versions, nor will anybody who comes later read those of today.
    ///
    /// SeqCst: a transaction calls this after it has drawn its number: see [`Retention::open`].
    #[inline(always)]
    pub fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::SeqCst)
    }

    /// How many snapshots have been opened so far; two results differ if, and only if, one was
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

    /// Whether a snapshot was opened, or is being opened, since [`Retention::openings`] said
    /// `openings`.
    #[inline(always)]
    pub fn has_opened_since(&self, openings: u64) -> bool {
        self.openings.load(Ordering::SeqCst) != openings
    }

    /// Puts the numbers of the open snapshots into `numbers`, in their order.
    pub fn list_open(&self, numbers: &mut Vec<u64>) {
        numbers.clear();
        numbers.extend(self.state().open.iter().map(|open| open.number));
    }

    /// Keeps entries for whom they are needed by, and returns those that are not needed any more.
    pub fn retain(&self, entries: &mut Vec<Retained>) -> Vec<Retained> {
        for entry in entries.iter() {
            self.retained.fetch_add(1, Ordering::Relaxed);
            self.retained_bytes.fetch_add(entry.bytes(), Ordering::Relaxed);
        }
        self.sort_in(&mut self.state(), entries.drain(..))
    }

    /// Looks again at some of what was kept for snapshots that are closed now, and returns what is
    /// not needed any more.
    pub fn take_released(&self) -> Vec<Retained> {
        // Relaxed: now or later makes no difference.
        if self.released.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut state = self.state();
        let from = state.released.len().saturating_sub(RELEASED_AT_ONCE);
        let entries: Vec<Retained> = state.released.drain(from..).collect();
        subtract(&self.released, entries.len() as u64);
        self.sort_in(&mut state, entries)
    }

    /// Whether something waits to be looked at again.
    pub fn has_released(&self) -> bool {
        self.released.load(Ordering::Relaxed) != 0
    }

    fn sort_in(
        &self,
        state: &mut State,
        entries: impl IntoIterator<Item = Retained>,
    ) -> Vec<Retained> {
        let open: Vec<u64> = state.open.iter().map(|open| open.number).collect();
        let mut unneeded = Vec::new();
        for entry in entries {
            // SAFETY: entries own what they stand for.
            match unsafe { entry.needed_by(&open) } {
                Some(number) => state.lists.entry(number).or_default().push(entry),
                None => {
                    subtract(&self.retained, 1);
                    subtract(&self.retained_bytes, entry.bytes());
                    unneeded.push(entry);
                }
            }
        }
        unneeded
    }

    /// Takes everything, when the database is being dropped.
    pub fn take_all(&self) -> Vec<Retained> {
        let state = &mut *self.state();
        let lists = std::mem::take(&mut state.lists).into_values().flatten();
        lists.chain(state.released.drain(..)).collect()
    }

    /// How many are open, and what is kept for them.
    pub fn metrics(&self) -> SnapshotMetrics {
        let state = self.state();
        SnapshotMetrics {
            open: state.open.len(),
            oldest_age: state.open.first().map(|open| open.since.elapsed()),
            versions_held: self.retained.load(Ordering::Relaxed),
            bytes_held: self.retained_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Relaxed: a statistic, or a hint.
fn subtract(word: &Word, value: u64) {
    word.fetch_add(value.wrapping_neg(), Ordering::Relaxed);
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::epoch::clock::Commits;
    use loom::sync::Arc;
    use loom::thread;

    /// Whoever draws a greater number than a snapshot's sees that one is open which is as old, also
    /// while another one is being closed.
    #[test]
    fn loom_retention_an_open_snapshot_is_seen() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let clock = Arc::new(Clock::default());
            let commits = Arc::new(Commits::new(1));
            let retention = Arc::new(Retention::default());
            let before = retention.open(&clock, || clock.take_number());
            let closer = {
                let retention = Arc::clone(&retention);
                thread::spawn(move || retention.close(before))
            };
            let opener = {
                let (clock, retention) = (Arc::clone(&clock), Arc::clone(&retention));
                thread::spawn(move || retention.open(&clock, || clock.take_number()))
            };
            commits.begin(0);
            let drawn = clock.number();
            let oldest = retention.oldest();
            let mut open = Vec::new();
            if oldest != NONE_OPEN {
                retention.list_open(&mut open);
            }
            commits.end(0);
            let snapshot = opener.join().unwrap();
            closer.join().unwrap();
            if drawn > snapshot {
                assert!(oldest <= snapshot, "{oldest} is the oldest, though {snapshot} is open");
                assert!(open.contains(&snapshot), "{snapshot} is none of {open:?}");
            }
        });
    }
}
