//! What happens in phases, counted.

use std::time::Duration;

use weft_htm::word::{Ordering, Word};

/// What happened in the phases of a database since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseMetrics {
    /// Whether it is a split phase at present.
    pub is_split: bool,
    /// Split phases that have begun.
    pub split_phases: u64,
    /// Of these, such as ended before their time, because somebody waited.
    pub hurried: u64,
    /// Rows that reconciliations have replaced.
    pub reconciled_rows: u64,
    /// Records that are split at present, or will be in the next split phase.
    pub split_records: u64,
    /// Transactions that met a split record, and had to wait.
    pub refused: u64,
    /// Of these, such as were [set aside](crate::Stash), while their threads went on with others.
    pub stashed: u64,
    /// Time spent in split phases that have ended.
    pub split_time: Duration,
    /// Time in which no transaction ran, because the phase changed.
    pub changing_time: Duration,
}

/// A count of one worker's, which others read.
#[derive(Default)]
pub(super) struct Count(Word);

impl Count {
    pub fn increment(&self) {
        // Relaxed: a statistic of one writer.
        self.0.store(self.load() + 1, Ordering::Relaxed);
    }

    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What whoever changes the phase counts.
#[derive(Default)]
pub(super) struct MetricWords {
    pub split_phases: Word,
    pub hurried: Word,
    pub reconciled_rows: Word,
    pub split_nanoseconds: Word,
    pub changing_nanoseconds: Word,
}
