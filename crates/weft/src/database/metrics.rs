//! The metrics of a database: all that an operator needs to see, in one struct.

use weft_htm::Statistics;
use weft_htm::word::Ordering;

use crate::commit::PhaseMetrics;
use crate::database::expiry::ExpiryMetrics;
use crate::database::storage::CheckpointMetrics;
use crate::durability::LogMetrics;
use crate::error::ConflictReason;
use crate::store::ages::TransactionAge;
use crate::store::retention::SnapshotMetrics;
use crate::store::table::TableCore;
use crate::store::worker::{IndexUse, SharedState};

/// Counters since the database was opened, and sizes at the moment of the call. Counters are read one after the
/// other while transactions run, so they may differ from each other by a few.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Transactions that have committed.
    pub committed: u64,
    /// Transactions that rolled back without a conflict: by an error, a panic or a dropped handle.
    pub rolled_back: u64,
    /// Attempts that were aborted by a conflict, in the order of [`ConflictReason::ALL`].
    pub aborted: [u64; ConflictReason::ALL.len()],
    /// The same, by the table in which the conflict was, or in one of whose indexes. All tables are listed, in the
    /// order in which they were declared.
    pub aborted_by_table: Vec<(&'static str, u64)>,
    /// Transactions that have committed although another transaction had changed their rows first, because they had
    /// changed these rows by [operations](crate::operation) alone, and applied the operations again.
    pub reapplied: u64,
    /// How often a [starving](crate::Database#starvation) transaction closed the turnstile, to hold all others
    /// back.
    pub turnstile_closings: u64,
    /// Hardware regions that were started, that committed, and that aborted, by cause.
    pub htm: Statistics,
    /// How many workers threads use, or have used last. (A thread that ends leaves its worker to others.)
    pub workers: usize,
    /// How often a transaction, or a read from a snapshot, had to wait because all workers were busy.
    pub worker_waits: u64,
    /// The current global epoch.
    pub epoch: u64,
    /// Memory that the database holds.
    pub memory: MemoryMetrics,
    /// The transaction that has been running for longest, if one is running. As long as it runs, no garbage is freed.
    pub oldest_transaction: Option<TransactionAge>,
    /// Open snapshots, and the memory that is kept for them.
    pub snapshots: SnapshotMetrics,
    /// The log, if there is one.
    pub log: Option<LogMetrics>,
    /// The checkpoints, if there is a directory.
    pub checkpoints: Option<CheckpointMetrics>,
    /// Repairs, under a protocol that makes them.
    pub repairs: RepairMetrics,
    /// Procedures that have committed in pieces, under `dbx-tc`. The other registered procedures had only one
    /// piece, or ran as one piece beside a transaction that is not a registered procedure.
    pub committed_in_pieces: u64,
    /// Pieces of procedures that were run again without the rest of their procedure, under `dbx-tc`. (They are not
    /// counted in [`Metrics::aborted`].)
    pub pieces_redone: u64,
    /// Changes that were deferred, to be made together with those of other procedures, under a protocol that
    /// commits in pieces.
    pub deferred: u64,
    /// Commits that were tried again at once, because other transactions had changed only columns that the
    /// transaction does not use (see [`Transaction::get_columns`](crate::Transaction::get_columns)), or a range that it has
    /// scanned still had the same rows in other places.
    pub carried_over: u64,
    /// Rows, and other values of the user's types, whose `Drop` has panicked. The database catches the panic and
    /// goes on. It drops such values when no transaction is running on their thread.
    pub drops_panicked: u64,
    /// The phases, under a protocol that has them.
    pub phases: Option<PhaseMetrics>,
    /// The removal of rows that have expired, if any rows expire.
    pub expiry: Option<ExpiryMetrics>,
}

/// Repairs under `htcc`: a transaction that could not commit as it was, and was run again as the same transaction.
/// (They are not counted in [`Metrics::aborted`], unless the transaction was restarted in the end.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairMetrics {
    /// How many repairs were made.
    pub repairs: u64,
    /// Operations that took their record from the workset cache (fast restoration).
    pub fast: u64,
    /// Operations whose record was looked up again (slow restoration).
    pub slow: u64,
    /// Operations of procedures that did not run again, because no stale read reached them.
    pub kept: u64,
}

/// The memory of a table with its primary index, or of a secondary index. It is part of
/// [`MemoryMetrics::used_bytes`]. The rest is what is free in chunks, or held by versions that were replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexMemoryMetrics {
    /// The table.
    pub table: &'static str,
    /// The secondary index; `None` for the table itself.
    pub index: Option<&'static str>,
    /// How many records there are: rows, and deleted rows that are still in their index. Exact when no transaction
    /// runs.
    pub records: u64,
    /// The blocks of the records, each with one row. A row that was updated may take another block for a while; that
    /// is not counted here.
    pub record_bytes: u64,
    /// The nodes or arrays of the index, with long keys.
    pub node_bytes: u64,
    /// What the rows own elsewhere, such as the text of a `String`, as
    /// [`ColumnValue::heap_bytes`](crate::ColumnValue::heap_bytes) says. Replaced versions count as long as they are
    /// kept. 0 for a volatile table.
    pub heap_bytes: u64,
}

/// Memory that a database holds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MemoryMetrics {
    /// Size of the chunks that records, versions and index nodes are cut from, in bytes.
    pub chunk_bytes: u64,
    /// All memory that the database has taken from the system and uses, in bytes: chunks, large arrays of indexes, what
    /// rows own elsewhere, buffers of the log, and lists of garbage and of versions kept for snapshots. With a
    /// [limit](crate::Builder::memory_limit) also the access sets of large transactions. It is exact to within 64 KiB for
    /// each worker, and as far as [`ColumnValue::heap_bytes`](crate::ColumnValue::heap_bytes) is exact. What rows owned
    /// and have freed counts as long as the global allocator keeps it. (With a limit, the database has the GNU
    /// allocator give it back when memory is scarce.)
    pub used_bytes: u64,
    /// The limit, if there is one.
    pub limit_bytes: Option<u64>,
    /// The memory of each table and index, in the order of their declaration.
    pub indexes: Vec<IndexMemoryMetrics>,
    /// Versions and records that wait for their grace period, as of each worker's last collection. (Another worker
    /// takes over what an idle worker has, and collects it later.)
    pub retired_pending: u64,
}

impl IndexMemoryMetrics {
    pub(crate) fn of(core: &TableCore, used: IndexUse) -> Self {
        IndexMemoryMetrics {
            table: core.name,
            index: core.index,
            records: used.records,
            record_bytes: used.records * core.record_bytes() as u64,
            node_bytes: used.node_bytes,
            heap_bytes: used.heap_bytes,
        }
    }
}

impl Metrics {
    pub(crate) fn gather(shared: &SharedState) -> Metrics {
        let mut metrics = Metrics {
            htm: shared.htm_statistics(),
            workers: shared.workers(),
            worker_waits: shared.waiting.joined(),
            epoch: shared.clock.epoch(),
            turnstile_closings: shared.turnstile.closings(),
            oldest_transaction: shared.watch_ages(),
            ..Metrics::default()
        };
        metrics.memory.chunk_bytes = shared.memory.chunk_bytes();
        metrics.memory.used_bytes = shared.measure_memory();
        metrics.memory.limit_bytes = shared.memory.limit();
        metrics.snapshots = shared.retention.metrics();
        metrics.aborted_by_table = shared.by_index.aborts();
        for counters in &shared.counters {
            // Relaxed: each counter has one writer, and the counters need not be consistent with each other.
            metrics.committed += counters.committed.load(Ordering::Relaxed);
            metrics.reapplied += counters.reapplied.load(Ordering::Relaxed);
            metrics.rolled_back += counters.rolled_back.load(Ordering::Relaxed);
            metrics.memory.retired_pending += counters.retired_pending.load(Ordering::Relaxed);
            metrics.repairs.repairs += counters.repairs.load(Ordering::Relaxed);
            metrics.repairs.fast += counters.restored_fast.load(Ordering::Relaxed);
            metrics.repairs.kept += counters.kept.load(Ordering::Relaxed);
            metrics.repairs.slow += counters.restored_slow.load(Ordering::Relaxed);
            metrics.committed_in_pieces += counters.committed_in_pieces.load(Ordering::Relaxed);
            metrics.carried_over += counters.carried_over.load(Ordering::Relaxed);
            metrics.pieces_redone += counters.pieces_redone.load(Ordering::Relaxed);
            metrics.deferred += counters.deferred.load(Ordering::Relaxed);
            metrics.drops_panicked += counters.drops_panicked.load(Ordering::Relaxed);
            for (total, counter) in metrics.aborted.iter_mut().zip(&counters.aborted) {
                *total += counter.load(Ordering::Relaxed);
            }
        }
        metrics
    }

    /// Returns how many attempts were aborted by a conflict, by reason.
    pub fn aborted(&self) -> impl Iterator<Item = (ConflictReason, u64)> + '_ {
        ConflictReason::ALL.into_iter().zip(self.aborted)
    }

    /// Returns how many attempts were aborted by a conflict, in all.
    pub fn aborted_total(&self) -> u64 {
        self.aborted.iter().sum()
    }
}
