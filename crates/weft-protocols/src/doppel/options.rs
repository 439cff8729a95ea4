//! How phases are to be.

use std::time::Duration;

/// How phases are to be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PhaseOptions {
    /// How long a split phase lasts, unless it is hurried, and how long conflicts are counted before
    /// anything is split: 20 ms by default, as in the paper.
    pub length: Duration,
    /// Whether every record that an operation is applied to is split, and a phase lasts for a few
    /// transactions only: the default of hasty builds, for tests, whose runs are short.
    #[doc(hidden)]
    pub is_hasty: bool,
}

impl Default for PhaseOptions {
    fn default() -> Self {
        let is_hasty = weft::store::IS_HASTY;
        PhaseOptions { length: Duration::from_millis(20), is_hasty }
    }
}

impl PhaseOptions {
    /// The defaults.
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
