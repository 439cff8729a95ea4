//! The options of protocols with phases.

use std::time::Duration;

/// Which workers merge the slices of split records into the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Merging {
    /// The worker that changes the phase, while all others wait.
    OneWorker,
    /// This worker and all that wait for the next phase: each takes one record after the other.
    #[default]
    ByRecord,
}

/// Options of the phases: how long they last.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PhaseOptions {
    /// How long a split phase lasts, unless it is hurried. Conflicts are counted for the same time before
    /// anything is split. The default is 20 ms, as in the paper.
    pub length: Duration,
    /// Which workers merge the slices at the end of a split phase.
    pub merging: Merging,
    /// Whether every record to which an operation is applied is split, and a phase lasts for a few transactions
    /// only. This is the default of hasty builds, for tests, whose runs are short.
    #[doc(hidden)]
    pub is_hasty: bool,
}

impl Default for PhaseOptions {
    fn default() -> Self {
        let is_hasty = weft::store::RECLAIMS_EARLY;
        PhaseOptions { length: Duration::from_millis(20), merging: Merging::default(), is_hasty }
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

    /// Sets [`PhaseOptions::merging`].
    pub fn merging(mut self, merging: Merging) -> Self {
        self.merging = merging;
        self
    }
}
