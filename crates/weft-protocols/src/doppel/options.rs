//! The options of protocols with phases.

use std::time::Duration;

/// Options of the phases: how long they last.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PhaseOptions {
    /// How long a split phase lasts, unless it is hurried. Conflicts are counted for the same time before
    /// anything is split. The default is 20 ms, as in the paper.
    pub length: Duration,
    /// Whether every record to which an operation is applied is split, and a phase lasts for a few transactions
    /// only. This is the default of hasty builds, for tests, whose runs are short.
    #[doc(hidden)]
    pub is_hasty: bool,
}

impl Default for PhaseOptions {
    fn default() -> Self {
        let is_hasty = weft::store::RECLAIMS_EARLY;
        PhaseOptions { length: Duration::from_millis(20), is_hasty }
    }
}

impl PhaseOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`PhaseOptions::length`].
    pub fn length(mut self, length: Duration) -> Self {
        self.length = length;
        self.is_hasty = false;
        self
    }
}
