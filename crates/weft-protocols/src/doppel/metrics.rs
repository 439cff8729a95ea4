//! What happens in phases, counted.

use weft_htm::word::{Ordering, Word};

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
