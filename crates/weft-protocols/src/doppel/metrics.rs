//! Counters of what happens in phases.

use weft_htm::word::{Ordering, Word};

/// A counter that one worker increments and others read.
#[derive(Default)]
pub(super) struct Count(Word);

impl Count {
    pub fn increment(&self) {
        // Relaxed: a statistic with one writer.
        self.0.store(self.load() + 1, Ordering::Relaxed);
    }

    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters that the worker updates that changes the phase.
#[derive(Default)]
pub(super) struct MetricWords {
    pub split_phases: Word,
    pub hurried: Word,
    pub reconciled_rows: Word,
    pub split_nanoseconds: Word,
    pub changing_nanoseconds: Word,
}
