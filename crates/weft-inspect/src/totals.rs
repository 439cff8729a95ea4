//! The sums over a whole database, from its metrics.

use std::time::Duration;

use weft::durability::LogState;
use weft::{ConflictReason, Metrics};

use crate::report::{Count, LogReport, PhaseReport, TableMemory, Totals};

/// Returns a time in nanoseconds.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns how often each reason has aborted an attempt.
pub(crate) fn by_cause(counts: &[u64; ConflictReason::ALL.len()]) -> Vec<Count> {
    let named = ConflictReason::ALL.iter().zip(counts);
    named.map(|(reason, &count)| Count { name: reason.name().to_owned(), count }).collect()
}

/// Returns the name of a log's state, in snake case.
fn state_name(state: LogState) -> &'static str {
    match state {
        LogState::Running => "running",
        LogState::DiskFull => "disk_full",
        LogState::Failed => "failed",
        LogState::Closed => "closed",
    }
}

impl Totals {
    /// Returns the metrics as plain data.
    pub fn of(metrics: &Metrics) -> Totals {
        let by_table = metrics.aborted_by_table.iter();
        let memory = metrics.memory.indexes.iter().map(|index| TableMemory {
            table: index.table.to_owned(),
            index: index.index.map(str::to_owned),
            records: index.records,
            bytes: index.record_bytes + index.node_bytes + index.heap_bytes,
        });
        let oldest = metrics.oldest_transaction;
        Totals {
            committed: metrics.committed,
            rolled_back: metrics.rolled_back,
            aborts: by_cause(&metrics.aborted),
            aborts_by_table: by_table
                .map(|&(table, count)| Count { name: table.to_owned(), count })
                .collect(),
            reapplied: metrics.reapplied,
            repairs: metrics.repairs.repairs,
            turnstile_closings: metrics.turnstile_closings,
            workers: metrics.workers as u64,
            worker_waits: metrics.worker_waits,
            epoch: metrics.epoch,
            used_bytes: metrics.memory.used_bytes,
            limit_bytes: metrics.memory.limit_bytes,
            memory: memory.collect(),
            oldest_transaction_ns: oldest.map(|oldest| nanoseconds(oldest.age)),
            oldest_transaction_label: oldest.and_then(|oldest| oldest.label).map(str::to_owned),
            snapshots: metrics.snapshots.open as u64,
            oldest_snapshot_ns: metrics.snapshots.oldest_age.map(nanoseconds),
            oldest_snapshot_label: metrics.snapshots.oldest_label.map(str::to_owned),
            snapshot_bytes: metrics.snapshots.bytes_held,
            log: metrics.log.as_ref().map(|log| LogReport {
                state: state_name(log.state).to_owned(),
                durable_epoch: log.durable_epoch,
                lag_epochs: metrics.epoch.saturating_sub(log.durable_epoch),
                transactions: log.transactions,
                written_bytes: log.bytes_written,
                buffered_bytes: log.buffered_bytes,
                syncs: log.syncs,
                sync_ns: nanoseconds(log.sync_time),
                sync_max_ns: nanoseconds(log.sync_time_max),
                segment_bytes: log.segment_bytes,
            }),
            checkpoints: metrics.checkpoints.as_ref().map(|checkpoints| checkpoints.written),
            checkpoints_failed: metrics.checkpoints.as_ref().map_or(0, |some| some.failed),
            phases: metrics.phases.map(|phases| PhaseReport {
                is_split: phases.is_split,
                split_phases: phases.split_phases,
                split_records: phases.split_records,
                refused: phases.refused,
                split_ns: nanoseconds(phases.split_time),
                changing_ns: nanoseconds(phases.changing_time),
            }),
            expired_rows: metrics.expiry.as_ref().map_or(0, |expiry| expiry.removed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: the name was the variant's in lower case, `diskfull`, and not in snake case as documented.
    #[test]
    fn names_of_log_states_are_in_snake_case() {
        assert_eq!(state_name(LogState::DiskFull), "disk_full");
        assert_eq!(state_name(LogState::Running), "running");
    }
}
