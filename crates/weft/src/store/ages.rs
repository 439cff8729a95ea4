//! The ages of transactions and snapshots, and the limits on them.
//!
//! A transaction that lasts holds back garbage, and a snapshot holds back versions. The thread that ticks the epochs
//! looks at the workers each time, and notes which transaction it sees there, and since when. So a transaction pays
//! for two stores, of its number when it begins and of 0 when it ends, and reads no clock. Its age is known to within
//! the time between two such looks.
//!
//! ```text
//!   worker      running := label | serial number            running := 0
//!   watcher     same number as at the last look: older than the limit?  expired := running
//!   worker      the next operation: running == expired?     the transaction is too old
//! ```

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use weft_htm::word::{Mutex, Ordering, Word};

use crate::error::Failure;
use crate::store::worker::Counters;

/// A transaction, by the time for which it has been running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionAge {
    /// How long it has been running, to within the time between two epochs. Each attempt counts from its own
    /// beginning.
    pub age: Duration,
    /// The [label](crate::TransactionOptions::label), if it has one.
    pub label: Option<&'static str>,
}

/// How many bits of [`Counters::running`] are the transaction's number. The bits above are the label's.
const SERIAL_BITS: u32 = 48;

/// What is known of the ages of a database's transactions.
#[derive(Debug, Default)]
pub struct Ages {
    /// The limits that the builder has set.
    pub transaction_limit: Option<Duration>,
    pub snapshot_limit: Option<Duration>,
    /// The labels so far. Their numbers begin with 1.
    labels: Mutex<Vec<&'static str>>,
    /// The transaction that was seen last on each worker, and when it was first seen.
    seen: Mutex<Vec<(u64, Instant)>>,
}

impl Ages {
    /// Returns the number of a label, with which a worker notes it in [`Counters::running`]. After 65535 labels, new
    /// ones are not shown.
    pub fn number_of(&self, label: &'static str) -> u64 {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        let position = labels.iter().position(|&known| known == label).unwrap_or(labels.len());
        if position == usize::from(u16::MAX) {
            return 0;
        }
        if position == labels.len() {
            labels.push(label);
        }
        (position as u64 + 1) << SERIAL_BITS
    }

    /// Returns the label that a worker has noted.
    fn label(&self, running: u64) -> Option<&'static str> {
        let number = (running >> SERIAL_BITS) as usize;
        let labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        labels.get(number.checked_sub(1)?).copied()
    }

    /// Looks at the workers, and marks the transactions that are older than the limit. Returns the oldest one.
    pub fn watch(&self, workers: &[Counters]) -> Option<TransactionAge> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if seen.len() < workers.len() {
            seen.resize(workers.len(), (0, now));
        }
        let mut oldest: Option<(u64, Instant)> = None;
        for (counters, seen) in workers.iter().zip(&mut *seen) {
            // Relaxed, as are all accesses to these words: whether a transaction is seen now or at the next look does
            // not matter.
            let running = counters.running.load(Ordering::Relaxed);
            if running != seen.0 {
                *seen = (running, now);
            }
            if running != 0 {
                if self.transaction_limit.is_some_and(|limit| now - seen.1 > limit) {
                    counters.expired.store(running, Ordering::Relaxed);
                }
                if oldest.is_none_or(|(_, since)| seen.1 < since) {
                    oldest = Some(*seen);
                }
            }
        }
        drop(seen);
        oldest
            .map(|(running, since)| TransactionAge { age: now - since, label: self.label(running) })
    }

    /// Checks that the transaction that runs on the worker in `slot` is not marked as too old.
    ///
    /// # Errors
    /// [`Failure::TransactionTooOld`].
    pub fn check(&self, slot: usize, counters: &Counters) -> Result<(), Failure> {
        let running = counters.running.load(Ordering::Relaxed);
        let Some(limit) = self.transaction_limit else { return Ok(()) };
        if running == 0 || counters.expired.load(Ordering::Relaxed) != running {
            return Ok(());
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let age = seen[slot].1.elapsed();
        drop(seen);
        Err(Failure::TransactionTooOld { age, limit, label: self.label(running) })
    }
}

/// A bit of [`SnapshotLife::state`]: something was read from the snapshot.
const READ: u64 = 1;
/// A bit of [`SnapshotLife::state`]: the snapshot is too old.
const EXPIRED: u64 = 2;

/// The life of a snapshot: since when it has been open, and whether it may still be read.
#[derive(Debug)]
pub struct SnapshotLife {
    pub opened: Instant,
    pub label: Option<&'static str>,
    /// How long it may be read.
    limit: Option<Duration>,
    state: Word,
}

impl SnapshotLife {
    pub fn new(label: Option<&'static str>, limit: Option<Duration>) -> Self {
        SnapshotLife { opened: Instant::now(), label, limit, state: Word::new(0) }
    }

    /// Lets a reader read.
    ///
    /// The exchange here and the one in [`SnapshotLife::expire`] are in one order. So either the reader is refused,
    /// or nothing that it reads is freed before the snapshot is closed.
    ///
    /// # Errors
    /// [`Failure::SnapshotTooOld`].
    #[inline(always)]
    pub fn begin_read(&self) -> Result<(), Failure> {
        // Acquire: as in `begin_first_read`.
        if self.state.load(Ordering::Acquire) == READ { Ok(()) } else { self.begin_first_read() }
    }

    #[cold]
    fn begin_first_read(&self) -> Result<(), Failure> {
        match (self.state.fetch_or(READ, Ordering::AcqRel) & EXPIRED, self.limit) {
            (EXPIRED, Some(limit)) => {
                let age = self.opened.elapsed();
                Err(Failure::SnapshotTooOld { age, limit, label: self.label })
            }
            _ => Ok(()),
        }
    }

    /// Refuses readers from now on, if the snapshot is older than its limit. Returns true if nothing was read, so that
    /// nothing need be kept for it any more.
    pub fn expire(&self) -> bool {
        self.limit.is_some_and(|limit| self.opened.elapsed() > limit)
            && self.state.fetch_or(EXPIRED, Ordering::AcqRel) == 0
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// If a reader was let in, nothing that it reads is released.
    #[test]
    fn loom_ages_a_reader_and_the_limit() {
        loom::model(|| {
            let life = Arc::new(SnapshotLife::new(None, Some(Duration::ZERO)));
            std::thread::sleep(Duration::from_nanos(1));
            let reader = {
                let life = Arc::clone(&life);
                thread::spawn(move || life.begin_read().is_ok())
            };
            let is_released = life.expire();
            let has_read = reader.join().unwrap();
            assert!(!(is_released && has_read));
            assert!(life.begin_read().is_err() && !life.expire());
        });
    }
}
