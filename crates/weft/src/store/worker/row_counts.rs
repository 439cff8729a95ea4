//! How many rows a table has: exact, and no row or word that every insertion writes.
//!
//! Each worker counts the rows that its own transactions have inserted, less those that they have deleted. The sum over
//! all workers is the number of rows. A commit that changes the number *opens* the worker's count of the table before it
//! validates what it has read, and *closes* it when its writes are installed. A count is one word, with a version, as
//! an index node has one:
//!
//! ```text
//!   63                                    28 27                    1   0
//!  +----------------------------------------+-----------------------+------+
//!  | rows, modulo 2^36                      | version               | open |
//!  +----------------------------------------+-----------------------+------+
//! ```
//!
//! [`Transaction::len`](crate::Transaction::len) reads the counts that are closed, and notes the words like the versions
//! of index nodes, so the commit validates them in the same way.
//!
//! Why that is serializable: a count is open from before the validation to after the installation. So if two
//! transactions have each read what the other one writes, one of them finds the other's lock, or its open count. The
//! exchanges or the fence between locking and validation order opening before validating, as they order the locks.
//!
//! A transaction does not note its own worker's counts, which no other transaction changes while it runs. It notes how many
//! workers there are: one that is new has counts that were not read.

use std::ptr::NonNull;

use smallvec::SmallVec;
use weft_htm::word::{Ordering, spin_loop, yield_now};

use super::WorkerMemory;
use super::by_index::IndexCounts;
use crate::index::NodeVersion;

/// How often the counts are read again if one of them has changed while they were read.
const ROUNDS_MAX: u32 = 16;

/// How often a count that is open is looked at before the core is given to others.
const SPINS: u32 = 64;

/// Where the rows begin in the word.
const ROWS_SHIFT: u32 = 28;

const OPEN: u64 = 1;

const VERSION: u64 = (1 << ROWS_SHIFT) - 1 - OPEN;

impl IndexCounts {
    /// Opens the worker's count of the rows. The caller executes a sequentially consistent fence, or an exchange, before
    /// it validates.
    #[inline(always)]
    fn open_rows(&self) {
        self.rows.store(self.rows.load(Ordering::Relaxed) | OPEN, Ordering::Relaxed);
    }

    /// Adds to the count, which is open.
    #[inline(always)]
    fn add_rows(&self, added: i64) {
        super::Counters::add(&self.rows, (added as u64) << ROWS_SHIFT);
    }

    /// Closes the count, if it is open. It gets another version if it `has_changed`.
    #[inline(always)]
    fn close_rows(&self, has_changed: bool) {
        let word = self.rows.load(Ordering::Relaxed);
        if word & OPEN == 0 {
            return;
        }
        let version = (word & VERSION).wrapping_add(if has_changed { 2 } else { 0 }) & VERSION;
        // Release: pairs with the acquire in `read_rows`.
        self.rows.store(word & !(VERSION | OPEN) | version, Ordering::Release);
    }

    /// Returns the worker's count of the rows. The caller is the worker, or no worker is running.
    #[inline(always)]
    fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed) >> ROWS_SHIFT
    }

    /// Reads the count of another worker. Waits while the count is open.
    fn read_rows(&self) -> (u64, NodeVersion) {
        let mut spins = 0_u32;
        loop {
            // Acquire: pairs with the release in `close_rows`.
            let version = self.rows.load(Ordering::Acquire);
            if version & OPEN == 0 {
                let note = NodeVersion { word: NonNull::from(&self.rows), version };
                return (version >> ROWS_SHIFT, note);
            }
            spins += 1;
            if spins.is_multiple_of(SPINS) { yield_now() } else { spin_loop() }
        }
    }
}

impl WorkerMemory {
    /// Opens this worker's count of an index's rows: see the [module](self).
    #[inline(always)]
    pub fn open_rows(&self, index: usize) {
        self.counts(index).open_rows();
    }

    /// Adds to the count of an index's rows that this worker has opened.
    #[inline(always)]
    pub fn add_rows(&self, index: usize, added: i64) {
        self.counts(index).add_rows(added);
    }

    /// Closes the count that was opened, after a commit that has changed it, or has failed.
    #[inline(always)]
    pub fn close_rows(&self, index: usize, has_changed: bool) {
        self.counts(index).close_rows(has_changed);
    }

    /// Counts rows that came into an index, or were taken out, while no transaction runs.
    pub fn count_filled(&self, index: usize, change: i64) {
        self.counts(index).add_rows(change);
    }

    /// Returns how many rows an index has, without those that the running transaction adds, and what the transaction
    /// relies on by that. Returns `None` if the counts do not come to rest.
    pub fn read_row_counts(&self, index: usize) -> Option<(i64, SmallVec<[NodeVersion; 8]>)> {
        for _ in 0..ROUNDS_MAX {
            let slots = self.shared.grace.slots_used_word();
            // Acquire: the worker that was enlisted last has done nothing before.
            let used = slots.load(Ordering::Acquire);
            let mut notes = SmallVec::new();
            notes.push(NodeVersion { word: NonNull::from(slots), version: used });
            let mut rows = self.counts(index).rows();
            for slot in (0..used as usize).filter(|&slot| slot != self.slot) {
                let (counted, note) = self.shared.by_index.counts_of(slot, index).read_rows();
                rows = rows.wrapping_add(counted);
                notes.push(note);
            }
            // If nothing has changed since, all counts were the table's at one moment.
            if notes.iter().all(is_current) {
                // The sum is right modulo 2^36, as the counts are.
                return Some(((rows << ROWS_SHIFT >> ROWS_SHIFT) as i64, notes));
            }
            spin_loop();
        }
        None
    }
}

fn is_current(note: &NodeVersion) -> bool {
    // SAFETY: the words of counts and of slots live as long as the database.
    unsafe { note.current() == note.version }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;
    use weft_htm::word::{Word, fence_after_exchange};

    use super::*;
    use crate::store::record::tid::fence_before_validation;

    /// Runs two transactions that each read the other worker's count and insert a row if it is 0. `commit` commits
    /// one of them. Returns whether both have inserted.
    fn do_both_insert(commit: fn(&IndexCounts, &IndexCounts, NodeVersion) -> bool) -> bool {
        let counts = Arc::new([IndexCounts::default(), IndexCounts::default()]);
        let transaction = move |counts: &[IndexCounts; 2], own: usize| {
            let (rows, note) = counts[1 - own].read_rows();
            rows == 0 && commit(&counts[own], &counts[1 - own], note)
        };
        let there = {
            let counts = Arc::clone(&counts);
            thread::spawn(move || transaction(&counts, 1))
        };
        let here = transaction(&counts, 0);
        let both = there.join().unwrap() && here;
        let inserted = counts.iter().map(IndexCounts::rows).sum::<u64>();
        assert!(both || inserted <= 1);
        both
    }

    /// A commit as the protocols do it.
    fn open_and_validate(own: &IndexCounts, _: &IndexCounts, note: NodeVersion) -> bool {
        own.open_rows();
        fence_before_validation();
        let is_valid = is_current(&note);
        own.add_rows(i64::from(is_valid));
        own.close_rows(is_valid);
        is_valid
    }

    #[test]
    fn loom_row_counts_two_transactions_that_rely_on_them() {
        loom::model(|| assert!(!do_both_insert(open_and_validate)));
    }

    /// As above, where the fence is an exchange of a lock.
    #[test]
    fn loom_row_counts_are_open_before_validation_with_locks() {
        loom::model(|| {
            let both = do_both_insert(|own, _, note| {
                own.open_rows();
                let lock = Word::new(0);
                lock.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).unwrap();
                fence_after_exchange();
                let is_valid = is_current(&note);
                own.add_rows(i64::from(is_valid));
                own.close_rows(is_valid);
                is_valid
            });
            assert!(!both);
        });
    }

    /// The model finds a commit that opens its count only when it has validated.
    #[test]
    #[should_panic(expected = "both")]
    fn loom_row_counts_opened_too_late() {
        loom::model(|| {
            let both = do_both_insert(|own, _, note| {
                fence_before_validation();
                let is_valid = is_current(&note);
                own.open_rows();
                own.add_rows(i64::from(is_valid));
                own.close_rows(is_valid);
                is_valid
            });
            assert!(!both, "both have inserted");
        });
    }
}
