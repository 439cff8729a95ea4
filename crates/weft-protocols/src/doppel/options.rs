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
    /// Each worker its own slices, as soon as it sees that the phase changes, while others still run transactions (§5.3,
    /// Figure 4). The slices of workers that run no transactions, and the sums, are merged by record.
    OwnSlices,
}

/// Bugs that are planted in the paper's mechanisms on purpose, for tests of the tests.
#[cfg(feature = "canary")]
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoppelFlaw {
    /// What workers have merged of their own slices is not in the new row.
    OwnSlicesForgotten,
    /// Operations are applied to slices although their transaction does not commit.
    AbortedApplied,
}

/// Options of the phases: how long they last.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PhaseOptions {
    /// How long a split phase lasts, unless it is hurried. Conflicts are counted for the same time before
    /// anything is split. The default is 20 ms, as in the paper.
    pub length: Duration,
    /// Which workers merge the slices at the end of a split phase.
    pub merging: Merging,
    /// Whether operations on split records are applied to slices when the transaction commits (§5.2, Figure 3). If
    /// not, they are applied at once, and undone if the transaction does not commit.
    pub applies_at_commit: bool,
    /// Whether a thread of its own changes the phases (§5.4), wherever the application runs one: see
    /// [`CoordinatedDatabase`](crate::CoordinatedDatabase).
    pub has_coordinator: bool,
    /// Whether every joined phase has the full length (§5.4). If not, it is short when records are to be split again.
    pub has_whole_joined_phases: bool,
    /// Whether conflicts are compared with the commits of the same time (§5.5). If not, those of a split phase count as
    /// if they were of the joined phase after it, so that more records are split.
    pub counts_same_time: bool,
    /// How many requests each of the workloads' clients sets aside (§5.2); 0 if clients wait instead. The paper does not
    /// state how many Doppel's workers stash.
    pub stash_capacity: usize,
    /// A bug that is planted on purpose.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub flaw: Option<DoppelFlaw>,
    /// Whether every record to which an operation is applied is split, and a phase lasts for a few transactions
    /// only. This is the default of hasty builds, for tests, whose runs are short.
    #[doc(hidden)]
    pub is_hasty: bool,
}

impl Default for PhaseOptions {
    fn default() -> Self {
        let is_hasty = weft::store::RECLAIMS_EARLY;
        PhaseOptions {
            length: Duration::from_millis(20),
            merging: Merging::default(),
            applies_at_commit: false,
            has_coordinator: false,
            has_whole_joined_phases: false,
            counts_same_time: false,
            stash_capacity: 1024,
            #[cfg(feature = "canary")]
            flaw: None,
            is_hasty,
        }
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

    /// Sets [`PhaseOptions::applies_at_commit`].
    pub fn applies_at_commit(mut self, applies_at_commit: bool) -> Self {
        self.applies_at_commit = applies_at_commit;
        self
    }

    /// Sets [`PhaseOptions::has_coordinator`].
    pub fn has_coordinator(mut self, has_coordinator: bool) -> Self {
        self.has_coordinator = has_coordinator;
        self
    }

    /// Sets [`PhaseOptions::has_whole_joined_phases`].
    pub fn has_whole_joined_phases(mut self, has_whole_joined_phases: bool) -> Self {
        self.has_whole_joined_phases = has_whole_joined_phases;
        self
    }

    /// Sets [`PhaseOptions::counts_same_time`].
    pub fn counts_same_time(mut self, counts_same_time: bool) -> Self {
        self.counts_same_time = counts_same_time;
        self
    }

    /// Sets [`PhaseOptions::stash_capacity`].
    pub fn stash_capacity(mut self, stash_capacity: usize) -> Self {
        self.stash_capacity = stash_capacity;
        self
    }

    /// Whether this bug was planted.
    #[cfg(feature = "canary")]
    pub(super) fn has_flaw(&self, flaw: DoppelFlaw) -> bool {
        self.flaw == Some(flaw)
    }
}
