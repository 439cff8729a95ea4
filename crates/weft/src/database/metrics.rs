//! What a database has done, and holds: everything an operator needs to see, in one struct.

use weft_htm::Statistics;
use weft_htm::word::Ordering;

use crate::commit::PhaseMetrics;
use crate::durability::LogMetrics;
use crate::error::ConflictReason;
use crate::store::retention::SnapshotMetrics;
use crate::store::worker::Shared;

/// Counters since the database was opened, and sizes at the moment of the call. Counters are read
/// one after the other while transactions run, so they may be off from each other by a few.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Transactions committed.
    pub committed: u64,
    /// Transactions rolled back by their own decision: an error, a panic, a dropped handle.
    pub rolled_back: u64,
    /// Attempts that gave way to other transactions, in the order of [`ConflictReason::ALL`].
    pub aborted: [u64; ConflictReason::ALL.len()],
    /// The same, by the table that was contended, or one of whose indexes was: all tables, in the order in which
    /// they were declared.
    pub aborted_by_table: Vec<(&'static str, u64)>,
    /// How often a transaction lost so many times that it held all others back to get through.
    pub turnstile_closings: u64,
    /// Hardware regions, started, committed and aborted by cause.
    pub htm: Statistics,
    /// Threads that are workers of the database.
    pub workers: usize,
    /// The current global epoch.
    pub epoch: u64,
    /// Memory.
    pub memory: MemoryMetrics,
    /// Open snapshots, and what is kept for them.
    pub snapshots: SnapshotMetrics,
    /// The log, if there is one.
    pub log: Option<LogMetrics>,
    /// Repairs, under a protocol that makes them.
    pub repairs: RepairMetrics,
    /// Procedures that have committed in pieces, under `dbx-tc`; the others among those that are registered had
    /// one piece only, or ran as one beside a transaction that is none of them.
    pub committed_in_pieces: u64,
    /// Pieces of procedures that were done again by themselves, under `dbx-tc`. (They are not among
    /// [`Metrics::aborted`].)
    pub pieces_redone: u64,
    /// Under a protocol that commits in pieces: changes that were deferred, to be made together with others'.
    pub deferred: u64,
    /// Pieces of procedures that others had come before, but with changes that did not matter to them, so that they
    /// committed on top of these, under `dbx-tc`: see its option `by_columns`.
    pub pieces_carried_over: u64,
    /// Rows, and other values of the user's, whose `Drop` has panicked. The database drops them when no
    /// transaction is under way on their thread, and goes on.
    pub drops_panicked: u64,
    /// The phases, under a protocol that has them.
    pub phases: Option<PhaseMetrics>,
}

/// Transactions that could not commit as they were, and were run again as the same transactions, under
/// `htcc`. (They are not among [`Metrics::aborted`], unless they were restarted in the end.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairMetrics {
    /// How often one was repaired.
    pub repairs: u64,
    /// Operations that took their record from the workset cache (fast restoration).
    pub fast: u64,
    /// Operations whose record was looked up again (slow restoration).
    pub slow: u64,
    /// Operations of procedures that did not run again, as no stale read reached them.
    pub kept: u64,
}

/// Memory that a database holds.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MemoryMetrics {
    /// Size of the chunks that records, versions and index nodes are cut from, in bytes.
    pub chunk_bytes: u64,
    /// Versions and records that wait for their grace period, as of each worker's last
    /// collection. (What an idle worker has is taken over by another, which collects later.)
    pub retired_pending: u64,
}

impl Metrics {
    pub(crate) fn gather(shared: &Shared) -> Metrics {
        let mut metrics = Metrics {
            htm: shared.htm_statistics(),
            workers: shared.workers(),
            epoch: shared.clock.epoch(),
            turnstile_closings: shared.turnstile.closings(),
            ..Metrics::default()
        };
        metrics.memory.chunk_bytes = shared.memory.chunk_bytes();
        metrics.snapshots = shared.retention.metrics();
        metrics.aborted_by_table = shared.aborts.sums();
        for counters in &shared.counters {
            // Relaxed: each counter has one writer, and they need not agree with each other.
            metrics.committed += counters.committed.load(Ordering::Relaxed);
            metrics.rolled_back += counters.rolled_back.load(Ordering::Relaxed);
            metrics.memory.retired_pending += counters.retired_pending.load(Ordering::Relaxed);
            metrics.repairs.repairs += counters.repairs.load(Ordering::Relaxed);
            metrics.repairs.fast += counters.restored_fast.load(Ordering::Relaxed);
            metrics.repairs.kept += counters.kept.load(Ordering::Relaxed);
            metrics.repairs.slow += counters.restored_slow.load(Ordering::Relaxed);
            metrics.committed_in_pieces += counters.committed_in_pieces.load(Ordering::Relaxed);
            metrics.pieces_carried_over += counters.pieces_carried_over.load(Ordering::Relaxed);
            metrics.pieces_redone += counters.pieces_redone.load(Ordering::Relaxed);
            metrics.deferred += counters.deferred.load(Ordering::Relaxed);
            metrics.drops_panicked += counters.drops_panicked.load(Ordering::Relaxed);
            for (total, counter) in metrics.aborted.iter_mut().zip(&counters.aborted) {
                *total += counter.load(Ordering::Relaxed);
            }
        }
        metrics
    }

    /// Attempts that gave way to other transactions, by reason.
    pub fn aborted(&self) -> impl Iterator<Item = (ConflictReason, u64)> + '_ {
        ConflictReason::ALL.into_iter().zip(self.aborted)
    }

    /// Attempts that gave way to other transactions, in all.
    pub fn aborted_total(&self) -> u64 {
        self.aborted.iter().sum()
    }
}
