//! What the workers of a database share.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

use weft::Failure;
use weft::commit::{PhaseMetrics, ProtocolOptions, ProtocolShared};
use weft_htm::word::{Ordering, Word};

use super::beginning::KnownPlaces;
use super::classification::Plans;
use super::contention::Sketch;
use super::joined::JoinedProtocol;
use super::merging::MergeWork;
use super::metrics::{Count, MetricWords};
use super::options::PhaseOptions;
use super::phases::{Phase, Phases};
use super::splits::Splits;
use crate::clock::Clock;
use crate::turn::TurnLock;

/// What the workers of a database share.
#[doc(hidden)]
pub struct Reconciliation<J: JoinedProtocol> {
    pub(super) joined: Arc<J::Shared>,
    pub(super) phases: Phases,
    /// 1 while there are phases, under a protocol that adapts.
    pub(super) begun: SharedFlag,
    /// The records that are split. Written only by the worker that changes the phase, while no worker is in a
    /// transaction.
    pub(super) splits: UnsafeCell<Splits>,
    /// The split records whose slices are being merged.
    pub(super) merging: MergeWork,
    pub(super) slots: Box<[WorkerSlot]>,
    pub(super) options: PhaseOptions,
    pub(super) clock: Clock,
    /// When the present phase began, in nanoseconds of `clock`.
    pub(super) began: Word,
    /// The number of conflicts of all workers when the present phase began.
    pub(super) conflicts_before: Word,
    /// The number of records that are to be split in the next split phase.
    pub(super) chosen: Word,
    /// Under a protocol that adapts: until when the present joined phase lasts at least, because it is measured, and
    /// when further records may be chosen, because the last trial did not pay. In nanoseconds of `clock`.
    pub(super) joined_until: Word,
    pub(super) next_choice: Word,
    /// Under a protocol that adapts: when phases may begin again, after they have ended because nothing was done, and what
    /// conflicts cost when they began, in millionths of the time.
    pub(super) rest_until: Word,
    pub(super) conflict_cost: Word,
    /// Under a protocol that adapts: the places that conflicts were about lately.
    pub(super) known_places: KnownPlaces,
    /// How many transactions had been refused when the phase began.
    pub(super) refused_before: Word,
    /// The number of threads that wait for a joined phase, or have waited and not committed since.
    pub(super) waiting: Word,
    /// The number of stashes that hold transactions.
    pub(super) stashes: Word,
    /// The number of threads that change the phases for all workers.
    pub(super) coordinators: Word,
    /// Held by the worker that changes the phase, or that prevents a change.
    pub(super) plans: TurnLock<Plans>,
    pub(super) metrics: MetricWords,
}

// SAFETY: `splits` is written only by the worker that changes the phase, while no worker is in a transaction.
// It is read only in transactions, or by the worker that changes the phase. The same holds for each slot's
// sketch, which otherwise belongs to its worker. `phases` orders the two. All that they hold may move between
// threads.
unsafe impl<J: JoinedProtocol> Sync for Reconciliation<J> {}
// SAFETY: as for `Sync`.
unsafe impl<J: JoinedProtocol> Send for Reconciliation<J> {}

/// A word that is hardly ever written, on a cache line of its own.
#[repr(align(128))]
pub(super) struct SharedFlag(pub(super) Word);

/// The data of one worker.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct WorkerSlot {
    pub(super) sketch: UnsafeCell<Sketch>,
    /// The number of conflicts that the worker has had about records.
    pub(super) conflicts: Count,
    /// The number of transactions that were refused, and for which their thread waits.
    pub(super) awaited: Count,
    /// See [`PhaseMetrics::stashed`].
    pub(super) stashed: Count,
}

impl<J: JoinedProtocol> ProtocolShared for Reconciliation<J> {
    fn new(options: &ProtocolOptions) -> Result<Self, Failure> {
        let phase_options = options.given.get::<PhaseOptions>().cloned().unwrap_or_default();
        Ok(Reconciliation {
            joined: Arc::new(ProtocolShared::new(options)?),
            phases: Phases::new(options.workers_max),
            begun: SharedFlag(Word::new(0)),
            splits: UnsafeCell::default(),
            slots: (0..options.workers_max).map(|_| WorkerSlot::default()).collect(),
            options: phase_options,
            clock: Clock::new(),
            began: Word::new(0),
            conflicts_before: Word::new(0),
            chosen: Word::new(0),
            joined_until: Word::new(0),
            next_choice: Word::new(0),
            rest_until: Word::new(0),
            conflict_cost: Word::new(0),
            known_places: KnownPlaces::default(),
            refused_before: Word::new(0),
            waiting: Word::new(0),
            stashes: Word::new(0),
            coordinators: Word::new(0),
            merging: MergeWork::default(),
            plans: TurnLock::default(),
            metrics: MetricWords::default(),
        })
    }
}

impl<J: JoinedProtocol> Reconciliation<J> {
    /// Returns the records that are split in this phase.
    ///
    /// # Safety
    /// The caller is in a transaction, or changes the phase, and does not keep the reference longer.
    #[inline(always)]
    pub(super) unsafe fn splits(&self) -> &Splits {
        // SAFETY: by the contract, no worker writes it while the reference lives.
        unsafe { &*self.splits.get() }
    }

    /// Returns the time, in nanoseconds of the clock of phases.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Returns whether there are phases. As long as there aren't any, transactions are not announced.
    #[inline(always)]
    pub(super) fn has_phases(&self) -> bool {
        // Relaxed: see `transition::may_change`.
        !J::ADAPTS || self.begun.0.load(Ordering::Relaxed) != 0
    }

    /// Returns the sum of a count of all workers.
    pub(super) fn sum(&self, count: fn(&WorkerSlot) -> &Count) -> u64 {
        self.slots.iter().map(|slot| count(slot).load()).sum()
    }

    /// Returns the metrics of the phases.
    pub fn metrics(&self) -> PhaseMetrics {
        // Relaxed: statistics.
        let load = |word: &Word| word.load(Ordering::Relaxed);
        let stashed = self.sum(|slot| &slot.stashed);
        let mut metrics = PhaseMetrics::default();
        metrics.has_phases = self.has_phases();
        metrics.is_split = self.phases.present().phase() == Some(Phase::Split);
        metrics.split_phases = load(&self.metrics.split_phases);
        metrics.hurried = load(&self.metrics.hurried);
        metrics.reconciled_rows = load(&self.metrics.reconciled_rows);
        metrics.split_records = load(&self.chosen);
        // The sum of two counters: so a reading never shows more stashed transactions than refused ones.
        metrics.refused = self.sum(|slot| &slot.awaited) + stashed;
        metrics.stashed = stashed;
        metrics.split_time = Duration::from_nanos(load(&self.metrics.split_nanoseconds));
        metrics.changing_time = Duration::from_nanos(load(&self.metrics.changing_nanoseconds));
        metrics
    }
}
