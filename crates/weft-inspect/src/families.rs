//! The report as families of metrics, with names and units by the conventions of Prometheus.

use crate::report::{Action, Count, LogReport, PhaseReport, PointReport, Report};

/// The most points of a report that become metrics: each has time series of its own.
const POINTS_MAX: usize = 20;

/// Whether a metric only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, while the database is open.
    Counter,
    /// It also falls.
    Gauge,
}

/// The unit of a metric. The values of [`Sample`] are in the units of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count.
    None,
    /// Bytes.
    Bytes,
    /// Seconds. In the report they are nanoseconds.
    Seconds,
}

/// Metrics with one name.
#[derive(Clone, Debug)]
pub struct Family {
    /// The name, without unit and `_total`.
    pub name: &'static str,
    /// Whether it is a counter.
    pub kind: Kind,
    /// The unit.
    pub unit: Unit,
    /// What it means.
    pub help: &'static str,
    /// Its metrics, each with other labels.
    pub samples: Vec<Sample>,
}

/// One metric.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The labels: names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The value, in the unit of the report.
    pub value: u64,
}

impl Family {
    /// Returns the name under which Prometheus has it.
    pub fn full_name(&self) -> String {
        let unit = match self.unit {
            Unit::None => "",
            Unit::Bytes => "_bytes",
            Unit::Seconds => "_seconds",
        };
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{suffix}", self.name)
    }

    /// Returns a value in the family's unit.
    pub fn in_unit(&self, value: u64) -> f64 {
        match self.unit {
            Unit::Seconds => value as f64 / 1e9,
            Unit::None | Unit::Bytes => value as f64,
        }
    }
}

/// The families that have been made so far.
struct Families(Vec<Family>);

impl Families {
    fn add(
        &mut self,
        (name, kind, unit): (&'static str, Kind, Unit),
        help: &'static str,
        mut samples: Vec<Sample>,
    ) {
        // A name with the same labels may occur only once, and two points can have the same key.
        samples.sort_by(|left, right| left.labels.cmp(&right.labels));
        samples.dedup_by(|next, kept| {
            let is_same = next.labels == kept.labels;
            if is_same {
                kept.value = match kind {
                    Kind::Counter => kept.value.saturating_add(next.value),
                    Kind::Gauge => kept.value.max(next.value),
                };
            }
            is_same
        });
        self.0.push(Family { name, kind, unit, help, samples });
    }

    /// Adds a family with one metric, which has no labels. Without a value the family has no metric.
    fn one(&mut self, name: (&'static str, Kind, Unit), help: &'static str, value: Option<u64>) {
        let sample = |value| Sample { labels: Vec::new(), value };
        self.add(name, help, value.map(sample).into_iter().collect());
    }
}

/// Returns samples of counts, with a label that has the name of what was counted.
fn counts<'c>(
    label: &'static str,
    others: &'c [(&'static str, String)],
    counts: &'c [Count],
) -> impl Iterator<Item = Sample> + 'c {
    counts.iter().map(move |count| {
        let mut labels = others.to_vec();
        labels.push((label, count.name.clone()));
        Sample { labels, value: count.count }
    })
}

/// Returns all families. A family is there even if it has no metrics now.
pub fn of(report: &Report) -> Vec<Family> {
    use Kind::{Counter, Gauge};
    use Unit::{Bytes, None as NoUnit, Seconds};

    let mut all = Families(Vec::new());
    let totals = &report.totals;
    all.one(
        ("weft_transactions_committed", Counter, NoUnit),
        "Transactions that have committed",
        Some(totals.committed),
    );
    all.one(
        ("weft_transactions_rolled_back", Counter, NoUnit),
        "Transactions that rolled back without a conflict",
        Some(totals.rolled_back),
    );
    all.add(
        ("weft_attempts_aborted", Counter, NoUnit),
        "Attempts that were aborted by a conflict",
        counts("cause", &[], &totals.aborts).collect(),
    );
    all.add(
        ("weft_table_attempts_aborted", Counter, NoUnit),
        "Attempts that were aborted by a conflict in a table",
        counts("table", &[], &totals.aborts_by_table).collect(),
    );
    all.one(
        ("weft_transactions_reapplied", Counter, NoUnit),
        "Transactions that have applied operations again, and then committed",
        Some(totals.reapplied),
    );
    all.one(
        ("weft_repairs", Counter, NoUnit),
        "Repairs of transactions without a new attempt",
        Some(totals.repairs),
    );
    all.one(
        ("weft_turnstile_closings", Counter, NoUnit),
        "How often a starving transaction held back all others",
        Some(totals.turnstile_closings),
    );
    all.one(
        ("weft_worker_waits", Counter, NoUnit),
        "How often a thread had to wait for a worker",
        Some(totals.worker_waits),
    );
    all.one(
        ("weft_expired_rows", Counter, NoUnit),
        "Rows that were removed because they had expired",
        Some(totals.expired_rows),
    );
    all.one(
        ("weft_workers", Gauge, NoUnit),
        "Workers that threads use, or have used last",
        Some(totals.workers),
    );
    all.one(("weft_epoch", Gauge, NoUnit), "The current epoch", Some(totals.epoch));
    all.one(
        ("weft_memory_used", Gauge, Bytes),
        "Memory that the database uses",
        Some(totals.used_bytes),
    );
    all.one(
        ("weft_memory_limit", Gauge, Bytes),
        "The limit on the memory that the database uses",
        totals.limit_bytes,
    );
    let of_tables = |value: fn(&crate::report::TableMemory) -> u64| {
        let sample = |memory: &crate::report::TableMemory| Sample {
            labels: vec![
                ("table", memory.table.clone()),
                ("index", memory.index.clone().unwrap_or_default()),
            ],
            value: value(memory),
        };
        totals.memory.iter().map(sample).collect()
    };
    all.add(
        ("weft_table_memory", Gauge, Bytes),
        "Memory of a table or secondary index",
        of_tables(|memory| memory.bytes),
    );
    all.add(
        ("weft_table_records", Gauge, NoUnit),
        "Records of a table or secondary index",
        of_tables(|memory| memory.records),
    );
    all.one(
        ("weft_oldest_transaction", Gauge, Seconds),
        "Age of the oldest running transaction; 0 if none runs",
        Some(totals.oldest_transaction_ns.unwrap_or(0)),
    );
    all.one(("weft_snapshots_open", Gauge, NoUnit), "Open snapshots", Some(totals.snapshots));
    all.one(
        ("weft_oldest_snapshot", Gauge, Seconds),
        "Age of the oldest open snapshot; 0 if none is open",
        Some(totals.oldest_snapshot_ns.unwrap_or(0)),
    );
    all.one(
        ("weft_snapshots_held", Gauge, Bytes),
        "Memory that is kept for snapshots",
        Some(totals.snapshot_bytes),
    );
    all.one(
        ("weft_checkpoints_written", Counter, NoUnit),
        "Checkpoints that were written",
        totals.checkpoints,
    );
    all.one(
        ("weft_checkpoints_failed", Counter, NoUnit),
        "Checkpoints that could not be written",
        totals.checkpoints.map(|_| totals.checkpoints_failed),
    );
    add_log(&mut all, totals.log.as_ref());
    add_phases(&mut all, totals.phases.as_ref());
    add_labels(&mut all, report);
    add_points(&mut all, &report.points[..report.points.len().min(POINTS_MAX)]);
    all.0
}

fn add_log(all: &mut Families, log: Option<&LogReport>) {
    use Kind::{Counter, Gauge};
    use Unit::{Bytes, None as NoUnit, Seconds};

    let of = |value: fn(&LogReport) -> u64| log.map(value);
    all.one(
        ("weft_log_running", Gauge, NoUnit),
        "1 if the log works normally, and 0 otherwise",
        of(|log| u64::from(log.state == "running")),
    );
    all.one(
        ("weft_log_transactions", Counter, NoUnit),
        "Transactions that have become durable",
        of(|log| log.transactions),
    );
    all.one(
        ("weft_log_written", Counter, Bytes),
        "Bytes written to the log",
        of(|log| log.written_bytes),
    );
    all.one(("weft_log_syncs", Counter, NoUnit), "Syncs of the log", of(|log| log.syncs));
    all.one(
        ("weft_log_sync", Counter, Seconds),
        "Time of all syncs of the log",
        of(|log| log.sync_ns),
    );
    all.one(
        ("weft_log_buffered", Gauge, Bytes),
        "Bytes that wait to be written to the log",
        of(|log| log.buffered_bytes),
    );
    all.one(
        ("weft_log_segments", Gauge, Bytes),
        "Bytes of all segments of the log",
        of(|log| log.segment_bytes),
    );
    all.one(
        ("weft_log_lag_epochs", Gauge, NoUnit),
        "How many epochs the log is behind",
        of(|log| log.lag_epochs),
    );
}

fn add_phases(all: &mut Families, phases: Option<&PhaseReport>) {
    use Kind::{Counter, Gauge};
    use Unit::{None as NoUnit, Seconds};

    let of = |value: fn(&PhaseReport) -> u64| phases.map(value);
    all.one(
        ("weft_phase_split", Gauge, NoUnit),
        "1 in a split phase, and 0 in a joined phase",
        of(|phases| u64::from(phases.is_split)),
    );
    all.one(
        ("weft_split_phases", Counter, NoUnit),
        "Split phases that have begun",
        of(|phases| phases.split_phases),
    );
    all.one(
        ("weft_split_records", Gauge, NoUnit),
        "Records that are split",
        of(|phases| phases.split_records),
    );
    all.one(
        ("weft_split_refused", Counter, NoUnit),
        "Transactions that had to wait because they met a split record",
        of(|phases| phases.refused),
    );
    all.one(
        ("weft_split_phase", Counter, Seconds),
        "Time in split phases that have ended",
        of(|phases| phases.split_ns),
    );
    all.one(
        ("weft_phase_change", Counter, Seconds),
        "Time in which no transaction ran because the phase changed",
        of(|phases| phases.changing_ns),
    );
}

fn add_labels(all: &mut Families, report: &Report) {
    use Kind::{Counter, Gauge};
    use Unit::{Bytes, None as NoUnit, Seconds};

    type Value = fn(&crate::report::LabelReport) -> u64;
    let of = |value: Value| {
        let sample = |label: &crate::report::LabelReport| Sample {
            labels: vec![("label", label.label.clone())],
            value: value(label),
        };
        report.labels.iter().map(sample).collect()
    };
    let of_counts = |name: &'static str, of: fn(&crate::report::LabelReport) -> &[Count]| {
        let samples = |label: &crate::report::LabelReport| {
            counts(name, &[("label", label.label.clone())], of(label)).collect::<Vec<_>>()
        };
        report.labels.iter().flat_map(samples).collect()
    };
    let of_parts = |parts: &[(&'static str, &str, Value)]| {
        let sample = |label: &crate::report::LabelReport| {
            let of_part = |&(name, part, value): &(&'static str, &str, Value)| Sample {
                labels: vec![("label", label.label.clone()), (name, part.to_owned())],
                value: value(label),
            };
            parts.iter().map(of_part).collect::<Vec<_>>()
        };
        report.labels.iter().flat_map(sample).collect()
    };
    all.add(
        ("weft_label_transactions_committed", Counter, NoUnit),
        "Transactions with a label that have committed",
        of(|label| label.committed),
    );
    all.add(
        ("weft_label_transactions_failed", Counter, NoUnit),
        "Transactions with a label that have failed",
        of_counts("kind", |label| &label.failures),
    );
    all.add(
        ("weft_label_attempts", Counter, NoUnit),
        "Attempts of transactions with a label",
        of(|label| label.attempts),
    );
    all.add(
        ("weft_label_attempts_aborted", Counter, NoUnit),
        "Attempts of transactions with a label that were aborted by a conflict",
        of_counts("cause", |label| &label.aborts),
    );
    all.add(
        ("weft_label_rows_read", Counter, NoUnit),
        "Rows that transactions with a label have read",
        of(|label| label.rows_read),
    );
    all.add(
        ("weft_label_rows_written", Counter, NoUnit),
        "Rows that transactions with a label have inserted, changed or deleted",
        of(|label| label.rows_written),
    );
    all.add(
        ("weft_label_logged", Counter, Bytes),
        "Bytes that transactions with a label have appended to the log",
        of(|label| label.logged_bytes),
    );
    all.add(
        ("weft_label_time", Counter, Seconds),
        "Estimated time of transactions with a label, by what they did",
        of_parts(&[
            ("part", "closure", |label| label.closure_ns),
            ("part", "waiting", |label| label.waiting_ns),
            ("part", "commit", |label| label.commit_ns),
            ("part", "log", |label| label.log_ns),
        ]),
    );
    all.add(
        ("weft_label_lost", Counter, Seconds),
        "Estimated time in aborted attempts of transactions with a label, and between attempts",
        of(|label| label.lost_ns),
    );
    all.add(
        ("weft_label_latency", Gauge, Seconds),
        "Quantiles of the sampled latency of transactions with a label, since they are observed",
        of_parts(&[
            ("quantile", "0.5", |label| label.latency.p50_ns),
            ("quantile", "0.99", |label| label.latency.p99_ns),
            ("quantile", "0.999", |label| label.latency.p999_ns),
        ]),
    );
}

fn add_points(all: &mut Families, points: &[PointReport]) {
    use Kind::{Counter, Gauge};
    use Unit::{None as NoUnit, Seconds};

    let labels = |point: &PointReport| {
        vec![
            ("table", point.table.clone()),
            ("index", point.index.clone().unwrap_or_default()),
            ("key", point.key.clone().unwrap_or_default()),
        ]
    };
    let sample = |point, value| Sample { labels: labels(point), value };
    all.add(
        ("weft_point_lost", Counter, Seconds),
        "Estimated time that transactions have lost at a point where they conflict",
        points.iter().map(|point| sample(point, point.lost_ns)).collect(),
    );
    all.add(
        ("weft_point_attempts_aborted", Counter, NoUnit),
        "Attempts that were aborted at a point",
        points
            .iter()
            .flat_map(|point| counts("cause", &labels(point), &point.aborts).collect::<Vec<_>>())
            .collect(),
    );
    let acts = |point: &&PointReport| point.action != Action::Nothing;
    all.add(
        ("weft_point_action", Gauge, NoUnit),
        "1 for each point at which the protocol does something, which the label says",
        points
            .iter()
            .filter(acts)
            .map(|point| {
                let mut sample = sample(point, 1);
                sample.labels.push(("action", point.action.name().to_owned()));
                sample
            })
            .collect(),
    );
}

/// Returns the names of all metrics, as Prometheus has them. So a program can check its dashboards and alerts.
pub fn metric_names() -> Vec<String> {
    of(&Report::default()).iter().map(Family::full_name).collect()
}
