//! The report: what is known of a database, as plain data.
//!
//! All times are whole nanoseconds, and all sizes are bytes. Counts are exact, unless their documentation says
//! otherwise. Times are sampled: see [`Sampling`]. New fields may be added in any version.

use serde::{Deserialize, Serialize};

/// The state of a database at one moment. Counts and times are sums since observation began, so the difference of two
/// reports is what happened between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Report {
    /// When the report was made, in milliseconds since 1970.
    pub taken_unix_ms: u64,
    /// For how long the database has been observed.
    pub observed_ns: u64,
    /// The name of the protocol.
    pub protocol: String,
    /// Whether the database was opened with an inspector. Without one, the report has only totals, and the points at
    /// which the protocol does something.
    pub is_observed: bool,
    /// How times are sampled.
    pub sampling: Sampling,
    /// The sums over the whole database.
    pub totals: Totals,
    /// What transactions did, by label. The label with the most time comes first.
    pub labels: Vec<LabelReport>,
    /// The points at which transactions conflict. The one with the most time lost comes first. These are the 32 with the
    /// most time lost, and all at which the protocol does something.
    pub points: Vec<PointReport>,
}

/// How times are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Sampling {
    /// About how much time passes between two transactions of a worker that are timed.
    pub period_ns: u64,
    /// How many transactions have ended.
    pub transactions: u64,
    /// How many of these were timed.
    pub timed: u64,
    /// For how many transactions these stand.
    pub represented: u64,
    /// The relative standard error of a mean over all timed transactions whose times vary as much as they are long: one
    /// over the root of their number.
    pub relative_error: f64,
    /// How many points a worker remembers. A point that is missing has lost at most [`Sampling::lost_ns_error`].
    pub points_max: u64,
    /// The most time that a point can have lost that is missing.
    pub lost_ns_error: u64,
}

/// A count with the name of what was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Count {
    /// What was counted, in snake case. Causes of aborts are named as by `weft::ConflictReason::name`.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// What transactions with one label did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LabelReport {
    /// The label.
    pub label: String,
    /// Where the label comes from.
    pub origin: LabelOrigin,
    /// Transactions that have committed.
    pub committed: u64,
    /// Transactions that have failed, by kind: `error` if the closure returned one, `panic`, `dropped` if the handle was
    /// dropped, `retries_exhausted`, `deadline_exceeded`, and others.
    pub failures: Vec<Count>,
    /// Attempts, those that have committed or failed included.
    pub attempts: u64,
    /// Attempts that were aborted by a conflict, by cause.
    pub aborts: Vec<Count>,
    /// Repairs of a transaction without a new attempt.
    pub repairs: u64,
    /// Rows that the transactions which have committed had read.
    pub rows_read: u64,
    /// Rows that they have inserted, changed or deleted.
    pub rows_written: u64,
    /// Bytes that they have appended to the log.
    pub logged_bytes: u64,
    /// From the beginning of the first attempt to the end of the commit in memory.
    pub latency: Quantiles,
    /// Time in closures, of all attempts. Estimated from the timed transactions.
    pub closure_ns: u64,
    /// Time between attempts, and in waits for locks. Each wait is timed.
    pub waiting_ns: u64,
    /// Time in commits, whether they succeeded or not. Estimated from the timed transactions.
    pub commit_ns: u64,
    /// Time in which callers waited until commits were durable. Each such wait is timed.
    pub log_ns: u64,
    /// Time in attempts that were aborted, and between attempts.
    pub lost_ns: u64,
}

/// Where a label comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LabelOrigin {
    /// From the transaction's options.
    #[default]
    Options,
    /// The name of a procedure.
    Procedure,
    /// The place in the source from which the transaction was run: file, line and column.
    Source,
}

/// Quantiles of a time. They are those of the timed transactions, to within 6 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Quantiles {
    /// How many transactions were timed.
    pub samples: u64,
    /// The sum over all transactions, estimated.
    pub sum_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// 99 of 100 transactions took at most this.
    pub p99_ns: u64,
    /// 999 of 1000 transactions took at most this.
    pub p999_ns: u64,
    /// The longest time that was seen.
    pub max_ns: u64,
}

/// A point at which transactions conflict: a record, or the range of an index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PointReport {
    /// The table.
    pub table: String,
    /// The secondary index, if it is one.
    pub index: Option<String>,
    /// The key of the record, or of a row close to the range. `None` if it is unknown.
    pub key: Option<String>,
    /// Whether the conflicts were not about one record: see [`PointReport::extent`].
    pub is_range: bool,
    /// How much of the table the point is.
    pub extent: Extent,
    /// The columns that the sampled writers have changed. Empty if none was sampled.
    pub columns: Vec<String>,
    /// Time that transactions have lost here: in attempts that were aborted, and in waits after them.
    pub lost_ns: u64,
    /// Attempts that were aborted here, by cause, since the point has been among those that are remembered.
    pub aborts: Vec<Count>,
    /// Waits between attempts that followed.
    pub waits: u64,
    /// Time in these waits. It is part of the time lost.
    pub waiting_ns: u64,
    /// Transactions that were repaired here without a new attempt.
    pub repairs: u64,
    /// What the protocol does here now.
    pub action: Action,
    /// For how long it has done this. `None` for [`Action::Nothing`].
    pub action_lasted_ns: Option<u64>,
    /// The transactions involved. Those that have lost most come first.
    pub labels: Vec<PointLabel>,
    /// What to change in the program, in one sentence.
    pub advice: Option<String>,
}

/// How much of a table or an index a point is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Extent {
    /// One record.
    #[default]
    Record,
    /// A range of keys, in which others were inserted or deleted.
    Range,
    /// Records that are gone, as at the head of a queue.
    GoneRecords,
    /// Many records, with a few conflicts on each.
    ManyRecords,
}

/// Transactions with one label, at one point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PointLabel {
    /// The label.
    pub label: String,
    /// Attempts that were aborted here.
    pub aborts: u64,
    /// Time that they have lost.
    pub lost_ns: u64,
    /// Commits with a write of the record that were tried, estimated from the timed transactions.
    pub writes: u64,
}

/// What a protocol does at a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// Nothing.
    #[default]
    Nothing,
    /// It tries whether a queue helps.
    Trial,
    /// Transactions queue for the point.
    Queued,
    /// Operations on the record go to slices of the workers.
    Split,
}

impl Action {
    /// Returns the name, as it is in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Action::Nothing => "nothing",
            Action::Trial => "trial",
            Action::Queued => "queued",
            Action::Split => "split",
        }
    }
}

/// Sums over a whole database, as `weft::Metrics` has them since the database was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Totals {
    /// Transactions that have committed.
    pub committed: u64,
    /// Transactions that rolled back without a conflict.
    pub rolled_back: u64,
    /// Attempts that were aborted by a conflict, by cause. All causes are listed.
    pub aborts: Vec<Count>,
    /// The same, by table. All tables are listed.
    pub aborts_by_table: Vec<Count>,
    /// Transactions that have applied operations again, and then committed.
    pub reapplied: u64,
    /// Repairs.
    pub repairs: u64,
    /// How often a starving transaction held back all others.
    pub turnstile_closings: u64,
    /// Workers that threads use, or have used last.
    pub workers: u64,
    /// How often a thread had to wait for a worker.
    pub worker_waits: u64,
    /// The current epoch.
    pub epoch: u64,
    /// Memory that the database uses.
    pub used_bytes: u64,
    /// The limit on it, if there is one.
    pub limit_bytes: Option<u64>,
    /// The memory of each table and index.
    pub memory: Vec<TableMemory>,
    /// The age of the oldest transaction, if one runs.
    pub oldest_transaction_ns: Option<u64>,
    /// Its label, if it has one.
    pub oldest_transaction_label: Option<String>,
    /// Open snapshots.
    pub snapshots: u64,
    /// The age of the oldest of them.
    pub oldest_snapshot_ns: Option<u64>,
    /// Its label, if it has one.
    pub oldest_snapshot_label: Option<String>,
    /// Memory that is kept for snapshots.
    pub snapshot_bytes: u64,
    /// The log, if there is one.
    pub log: Option<LogReport>,
    /// Checkpoints that were written. `None` without a directory.
    pub checkpoints: Option<u64>,
    /// Checkpoints that could not be written.
    pub checkpoints_failed: u64,
    /// The phases, under a protocol that has them.
    pub phases: Option<PhaseReport>,
    /// Rows that were removed because they had expired.
    pub expired_rows: u64,
}

/// The memory of a table, or of a secondary index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TableMemory {
    /// The table.
    pub table: String,
    /// The secondary index; `None` for the table itself.
    pub index: Option<String>,
    /// Records: rows, and deleted rows that are still in their index.
    pub records: u64,
    /// Memory of records, nodes, and of what rows own elsewhere.
    pub bytes: u64,
}

/// The log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LogReport {
    /// The state: `running`, `disk_full`, `failed` or `closed`.
    pub state: String,
    /// Everything that committed in this epoch, or before, is durable.
    pub durable_epoch: u64,
    /// How many epochs the log is behind.
    pub lag_epochs: u64,
    /// Transactions that are durable.
    pub transactions: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Bytes that wait to be written.
    pub buffered_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// The time of all syncs.
    pub sync_ns: u64,
    /// The time of the longest sync.
    pub sync_max_ns: u64,
    /// Bytes of all segments.
    pub segment_bytes: u64,
}

/// The phases of a protocol that has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PhaseReport {
    /// Whether the present phase is a split phase.
    pub is_split: bool,
    /// Split phases that have begun.
    pub split_phases: u64,
    /// Records that are split.
    pub split_records: u64,
    /// Transactions that had to wait because they met a split record.
    pub refused: u64,
    /// Time in split phases that have ended.
    pub split_ns: u64,
    /// Time in which no transaction ran because the phase changed.
    pub changing_ns: u64,
}
