//! The results of a run: the same numbers for the tables and for the JSON.
//!
//! # The JSON
//!
//! An array with one object per database: for each protocol, in the order of `--protocol`, one for each value of
//! `--acknowledge`, and for each of these one for each value of `--snapshots`. Keys have the order below. No key is
//! ever left out; an unknown value is `null`.
//!
//! | key | value |
//! | --- | --- |
//! | `workload`, `protocol` | names; of a variant of a protocol the variant's, such as `htcc:restart`, as given on the command line |
//! | `htm_backend` | what ran the protocol's regions: `rtm`, or `software` for their twins; `null` for a protocol without regions |
//! | `twin` | the twin that replaces hardware regions in this run, if it affects how to read the results; else `null` |
//! | `snapshots` | the snapshots on which read-only transactions ran: `off`, `on` or `recent` |
//! | `acknowledge` | when commits returned: `durable`, `committed`, or `memory` without a log |
//! | `threads`, `seed` | as given on the command line |
//! | `warehouses`, `mix`, `scale`, `storage` | the workload's own options (these are TPC-C's; those of INCR1 and INCRZ are `distribution`, `records`, `hot_percent`, `change_seconds`, `alpha`, LIKE's `users`, `pages`, `alpha`, `write_percent`, TATP's `subscribers` and `mix`, those of Articles `articles`, `users`, `mix`, `alpha`, `operations`, of the bank `accounts`, `hot_percent`, `audit_percent`, of the flash sale `items`, `buyers`, `hot`, `hot_percent`, `stock`, `takes`, of the queue `backlog`, of the shifting hot spot `records`, `hot_percent`, `change_seconds`, of the mixture `scale`, those of locks `structure`, `kinds_elided`, `work`, `subscribers`, `updates`, `mix` and `theta`, YCSB's `preset`, `records`, `value_bytes`, `read`, `rmw`, `insert`, `scan`, `scan_rows`, `operations`, `theta`, `distribution`, `storage`) |
//! | `conflict_retries` | the number of conflicts after which regions gave up; `null` without `--conflict-retries` |
//! | `capacity_retries` | the number of times that a region was too large, after which it gave up; `null` without `--capacity-retries` |
//! | `by_rows` | whether commits went by rows alone (`--by-rows`) |
//! | `phase_length_ms` | the length of phases; `null` without `--phase-length` |
//! | `seconds`, `warmup_seconds` | length of a round, and of the warm-up before it |
//! | `rounds` | array of objects: `seconds`, `committed`, `user_rollbacks`, `throughput_per_second`, `aborts`, `cores_elsewhere`: the number of cores that other processes kept busy, `null` if the system does not tell, `latency_p99_us` of all types together, `null` without a sample |
//! | `committed` | transactions that committed, in all rounds |
//! | `user_rollbacks` | transactions that ran to the end and rolled back because the workload asks for it; not in `committed` |
//! | `throughput_per_second` | `median`, `min`, `max` of the rounds' committed transactions per second |
//! | `operations_per_second` | the same, multiplied by the operations of a transaction; `null` for a workload that does not count them |
//! | `ratio_to_first` | median over the rounds of this throughput divided by the first database's in the same round |
//! | `aborts` | attempts that were aborted and retried, by reason; in all rounds, without the warm-up |
//! | `aborts_per_commit` | their sum divided by `committed` |
//! | `aborts_by_table` | the same by contended table: `aborts`, and their `share` of all aborts; `null` without aborts |
//! | `transactions` | by type: `committed`, `user_rollbacks` |
//! | `success_rates` | by type: `measured`, the share of `committed` in all that ran to their end, and `specified`, the share in the workload's specification; types that did not run are left out; `null` for a workload that specifies no rates |
//! | `latency_us` | by type: `p50`, `p99`, `p999`, `max`, from the client's side, retries included; types without a sample are left out |
//! | `latency_all_us` | the same for all types together; `null` without a sample |
//! | `fairness` | by type: `greatest_by_mean`, the greatest latency divided by the mean one, and `threads`, an array of objects: `committed`, `share`, the part of the type's commits that the thread made, `mean_us`, `max_us` and `greatest_by_mean` of its latencies; what is unknown without a sample or a commit is `null` |
//! | `transactions_per_sample` | the number of transactions for each one whose latency is measured |
//! | `htm` | hardware regions: `started`, `committed`, `aborted_conflict`, `aborted_capacity`, `aborted_system_event`, `aborted_explicit`, `fallbacks` |
//! | `memory` | `resident_before_load_bytes`, `resident_after_load_bytes`, `resident_after_run_bytes` of the whole process; of this database `chunk_bytes` (memory taken for rows) and `retired_pending` (old versions not yet reused) |
//! | `log` | within the rounds: `bytes_written`, `transactions` (those that wrote something), `bytes_per_transaction`, `epochs_written`, `syncs`, `sync_mean_us`; `acknowledged_us`: latencies of all transactions together if commits are acknowledged when durable, else `null`; `durable_after_us`: the time until a commit for which no thread waits is durable, by a look every 2 ms. `null` without a log |
//! | `phases` | for a protocol with phases, within the rounds: `split_phases` that began, those `hurried` because a transaction waited, `split_records` at the end, `reconciled_rows`, transactions `refused`, those of them that were `stashed` while others ran, `split_ms` of split phases, `changing_ms` in which no phase ran; else `null` |
//! | `repairs` | `repairs`: transactions that were repaired; their operations that ran again on the record found before (`fast`), that used the index again (`slow`), or that did not run again (`kept`); `null` without repairs |
//! | `pieces` | for procedures in pieces: `committed` in several pieces, `redone`: retries of a piece after the first, `carried_over`: commits, `deferred`: changes; `null` if all are 0 |
//! | `versions_held` | old versions kept for snapshots at the end of a round, the maximum over the rounds |
//! | `verified` | `true`, `false`, or `null` without `--verify` |
//! | `conditions` | array of objects: `name`, `holds`, `checked`, `detail`; `null` without `--verify` |
//! | `contention` | the report of `weft-inspect`: where transactions conflicted, and what they did by label, since the database was opened; `null` without `--contention` |
//! | `pinned` | whether each thread had a core of its own |
//! | `logical_cores` | the number of cores that the process may use |
//! | `version`, `command_line` | of this program |
//!
//! The clients count `committed`; the engine counts `aborts`. Both are read within the same window, but not at the
//! same instant.

pub mod fairness;
pub mod json;
pub mod table;

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use weft_workloads::aborts::AbortsByTable;
use weft_workloads::dbx_tc::Pieces;
use weft_workloads::htcc::Repairs;
use weft_workloads::phases::Phases;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::workload::Condition;

use crate::arguments::{AcknowledgeName, BenchArguments};
use weft_options::protocols;

use super::Subject;
use super::contender::{Contender, Variant};
use super::round::{Plan, Round};
use super::statistics::{Spread, fraction, median_ratio};
use super::tally::Tally;
use fairness::Fairness;
use json::InOrder;

/// The engine's counters between two points in time.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Aborted attempts, by the name of the reason, zeros included.
    pub aborts: Vec<(&'static str, u64)>,
    /// Aborted attempts, by table.
    pub aborts_by_table: AbortsByTable,
    /// Hardware regions.
    pub htm: weft::htm::Statistics,
    /// The log's counters, if there is a log.
    pub log: Option<LogCounters>,
    /// The counters of phases, under a protocol that has them.
    pub phases: Option<Phases>,
    /// The counters of repairs.
    pub repairs: Repairs,
    /// The counters of pieces.
    pub pieces: Pieces,
    /// Versions kept for snapshots at the later of the points.
    pub versions_held: u64,
}

/// The counters of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogCounters {
    /// Bytes written.
    pub bytes: u64,
    /// Transactions that wrote something.
    pub transactions: u64,
    /// Epochs with such a transaction.
    pub epochs: u64,
    /// Syncs.
    pub syncs: u64,
    /// The total time of the syncs.
    pub sync_time: Duration,
}

impl Counters {
    /// Returns the counters so far.
    pub fn of(metrics: &weft::Metrics) -> Self {
        Counters {
            aborts: metrics.aborted().map(|(reason, count)| (reason.name(), count)).collect(),
            aborts_by_table: AbortsByTable::of(metrics),
            htm: metrics.htm,
            log: metrics.log.as_ref().map(|log| LogCounters {
                bytes: log.bytes_written,
                transactions: log.transactions,
                epochs: log.epochs_written,
                syncs: log.syncs,
                sync_time: log.sync_time,
            }),
            phases: Phases::of(metrics),
            repairs: Repairs::of(metrics),
            pieces: Pieces::of(metrics),
            versions_held: metrics.snapshots.versions_held,
        }
    }

    /// Returns the difference to the earlier counters `before`.
    pub fn since(mut self, before: &Counters) -> Self {
        for (abort, before) in self.aborts.iter_mut().zip(&before.aborts) {
            abort.1 -= before.1;
        }
        self.aborts_by_table = self.aborts_by_table.since(&before.aborts_by_table);
        if let (Some(log), Some(before)) = (&mut self.log, &before.log) {
            log.bytes -= before.bytes;
            log.transactions -= before.transactions;
            log.epochs -= before.epochs;
            log.syncs -= before.syncs;
            log.sync_time -= before.sync_time;
        }
        if let (Some(phases), Some(before)) = (&mut self.phases, &before.phases) {
            *phases = phases.since(before);
        }
        self.repairs = self.repairs.since(&before.repairs);
        self.pieces = self.pieces.since(&before.pieces);
        let (htm, before) = (&mut self.htm, &before.htm);
        htm.started -= before.started;
        htm.committed -= before.committed;
        htm.aborted_conflict -= before.aborted_conflict;
        htm.aborted_capacity -= before.aborted_capacity;
        htm.aborted_system_event -= before.aborted_system_event;
        htm.aborted_explicit -= before.aborted_explicit;
        htm.fallbacks -= before.fallbacks;
        self
    }

    /// Returns the sum over some rounds; `None` without rounds.
    fn sum<'a>(rounds: impl Iterator<Item = &'a Counters>) -> Option<Counters> {
        rounds.cloned().reduce(|mut sum, counters| {
            for (abort, more) in sum.aborts.iter_mut().zip(&counters.aborts) {
                abort.1 += more.1;
            }
            sum.aborts_by_table = sum.aborts_by_table.and_then(&counters.aborts_by_table);
            sum.htm += counters.htm;
            if let (Some(log), Some(more)) = (&mut sum.log, &counters.log) {
                log.bytes += more.bytes;
                log.transactions += more.transactions;
                log.epochs += more.epochs;
                log.syncs += more.syncs;
                log.sync_time += more.sync_time;
            }
            if let (Some(phases), Some(more)) = (&mut sum.phases, &counters.phases) {
                *phases = phases.and_then(more);
            }
            sum.repairs = sum.repairs.and_then(&counters.repairs);
            sum.pieces = sum.pieces.and_then(&counters.pieces);
            sum.versions_held = sum.versions_held.max(counters.versions_held);
            sum
        })
    }
}

/// The resident memory of the process, if the system reports it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resident {
    /// Before this protocol's database was loaded.
    pub before_load_bytes: Option<u64>,
    /// After this protocol's database was loaded.
    pub after_load_bytes: Option<u64>,
    /// After this protocol's last round.
    pub after_run_bytes: Option<u64>,
}

/// The properties that all protocols of a run share.
pub struct Description {
    threads: usize,
    seed: u64,
    conflict_retries: Option<u32>,
    capacity_retries: Option<u32>,
    by_rows: bool,
    phase_length_ms: Option<f64>,
    options: InOrder<&'static str, serde_json::Value>,
    operations: Option<u32>,
    success_rates: Option<&'static [f64]>,
    seconds: f64,
    warmup_seconds: f64,
    pinned: bool,
    logical_cores: Option<usize>,
    command_line: Vec<String>,
}

impl Description {
    /// Returns the description of the run that the arguments ask for.
    pub fn new(arguments: &BenchArguments, plan: &Plan, subject: Subject) -> Self {
        Description {
            threads: arguments.threads,
            seed: arguments.seed,
            conflict_retries: arguments.conflict_retries,
            capacity_retries: arguments.capacity_retries,
            by_rows: arguments.by_rows,
            phase_length_ms: arguments.phase_length,
            options: InOrder(subject.options),
            operations: subject.operations,
            success_rates: subject.success_rates,
            seconds: arguments.seconds,
            warmup_seconds: arguments.warmup,
            pinned: !plan.cores.is_empty(),
            logical_cores: std::thread::available_parallelism().ok().map(usize::from),
            command_line: std::env::args_os()
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect(),
        }
    }
}

/// Everything about one protocol, with the keys of the JSON. The module explains them.
#[derive(Serialize)]
pub struct Report<'a> {
    /// The name of the protocol in the tables.
    #[serde(skip)]
    pub label: &'a str,
    /// Whether the tables have what each thread got.
    #[serde(skip)]
    pub shows_threads: bool,
    pub workload: &'static str,
    pub protocol: &'a str,
    pub htm_backend: Option<String>,
    pub twin: Option<&'static str>,
    pub snapshots: Snapshots,
    pub acknowledge: &'static str,
    pub threads: usize,
    pub seed: u64,
    #[serde(flatten)]
    pub options: &'a InOrder<&'static str, serde_json::Value>,
    pub conflict_retries: Option<u32>,
    pub capacity_retries: Option<u32>,
    pub by_rows: bool,
    pub phase_length_ms: Option<f64>,
    pub seconds: f64,
    pub warmup_seconds: f64,
    pub rounds: Vec<RoundReport>,
    pub committed: u64,
    pub user_rollbacks: u64,
    pub throughput_per_second: Spread,
    pub operations_per_second: Option<Spread>,
    pub ratio_to_first: Option<f64>,
    pub aborts: InOrder<&'static str, u64>,
    pub aborts_per_commit: Option<f64>,
    pub aborts_by_table: Option<AbortsByTable>,
    pub transactions: InOrder<&'static str, Counts>,
    pub success_rates: Option<InOrder<&'static str, SuccessRate>>,
    pub latency_us: InOrder<&'static str, Latency>,
    pub latency_all_us: Option<Latency>,
    pub fairness: InOrder<&'static str, Fairness>,
    pub transactions_per_sample: u64,
    pub htm: HtmReport,
    pub memory: MemoryReport,
    pub log: Option<LogReport>,
    pub phases: Option<Phases>,
    pub repairs: Option<Repairs>,
    pub pieces: Option<Pieces>,
    pub versions_held: u64,
    pub verified: Option<bool>,
    pub conditions: Option<Vec<ConditionReport<'a>>>,
    pub contention: Option<weft_inspect::Report>,
    pub pinned: bool,
    pub logical_cores: Option<usize>,
    pub version: &'static str,
    pub command_line: &'a [String],
}

/// The numbers of one round.
#[derive(Serialize)]
pub struct RoundReport {
    pub seconds: f64,
    pub committed: u64,
    pub user_rollbacks: u64,
    pub throughput_per_second: f64,
    pub aborts: InOrder<&'static str, u64>,
    pub cores_elsewhere: Option<f64>,
    pub latency_p99_us: Option<f64>,
}

/// Transactions of one type.
#[derive(Clone, Copy, Serialize)]
pub struct Counts {
    pub committed: u64,
    pub user_rollbacks: u64,
}

/// The success rate of one transaction type.
#[derive(Clone, Copy, Serialize)]
pub struct SuccessRate {
    pub measured: f64,
    pub specified: f64,
}

/// Latencies of one type, in microseconds.
#[derive(Clone, Copy, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// The counters of hardware regions.
#[derive(Clone, Copy, Serialize)]
pub struct HtmReport {
    pub started: u64,
    pub committed: u64,
    pub aborted_conflict: u64,
    pub aborted_capacity: u64,
    pub aborted_system_event: u64,
    pub aborted_explicit: u64,
    pub fallbacks: u64,
}

/// Memory of the process and of one database.
#[derive(Clone, Copy, Serialize)]
pub struct MemoryReport {
    pub resident_before_load_bytes: Option<u64>,
    pub resident_after_load_bytes: Option<u64>,
    pub resident_after_run_bytes: Option<u64>,
    pub chunk_bytes: u64,
    pub retired_pending: u64,
}

/// The log of one database, within the rounds.
#[derive(Clone, Copy, Serialize)]
pub struct LogReport {
    pub bytes_written: u64,
    pub transactions: u64,
    pub bytes_per_transaction: Option<f64>,
    pub epochs_written: u64,
    pub syncs: u64,
    pub sync_mean_us: Option<f64>,
    pub acknowledged_us: Option<Latency>,
    pub durable_after_us: Option<Latency>,
}

/// The result of one invariant.
#[derive(Serialize)]
pub struct ConditionReport<'a> {
    pub name: &'a str,
    pub holds: bool,
    pub checked: u64,
    pub detail: Option<&'a str>,
}

impl<'a> Report<'a> {
    /// Returns the report of `contender`, which ran `rounds`. `first` is the rounds of the first protocol.
    pub fn new(
        description: &'a Description,
        (label, variant): (&'a str, &'a Variant),
        contender: &dyn Contender,
        rounds: &[Round],
        first: &[Round],
        resident: &Resident,
        conditions: Option<&'a [Condition]>,
    ) -> Self {
        let counters = Counters::sum(rounds.iter().map(|round| &round.counters))
            .expect("the parser accepts only one round or more");
        let throughput_per_second = Spread::of(rounds.iter().map(Round::throughput))
            .expect("the parser accepts only one round or more");
        let committed = rounds.iter().map(|round| round.committed).sum();
        let attempts_aborted = counters.aborts.iter().map(|(_, count)| count).sum();
        let in_turn = rounds.iter().zip(first).map(|(a, b)| (a.throughput(), b.throughput()));
        let (transactions, latency_us) = by_type(contender);
        let latency_all_us = latency_of_all(contender);
        let log =
            counters.log.as_ref().map(|log| LogReport::new(log, variant, latency_all_us, rounds));
        let htm_backend = contender.htm_backend();
        let in_software = htm_backend.as_deref() == Some("software");
        Report {
            label,
            shows_threads: false,
            workload: contender.workload(),
            protocol: &variant.protocol,
            twin: protocols::describe(contender.protocol()).twin.filter(|_| in_software),
            htm_backend,
            snapshots: variant.snapshots,
            acknowledge: variant.acknowledge.name(),
            threads: description.threads,
            seed: description.seed,
            options: &description.options,
            conflict_retries: description.conflict_retries,
            capacity_retries: description.capacity_retries,
            by_rows: description.by_rows,
            phase_length_ms: description.phase_length_ms,
            seconds: description.seconds,
            warmup_seconds: description.warmup_seconds,
            rounds: rounds.iter().map(RoundReport::new).collect(),
            committed,
            user_rollbacks: rounds.iter().map(|round| round.rolled_back).sum(),
            throughput_per_second,
            operations_per_second: description
                .operations
                .map(|operations| throughput_per_second.times(f64::from(operations))),
            ratio_to_first: median_ratio(in_turn),
            aborts_per_commit: fraction(attempts_aborted, committed),
            aborts: InOrder(counters.aborts),
            aborts_by_table: counters.aborts_by_table.any(),
            success_rates: description
                .success_rates
                .map(|specified| success_rates(&transactions, specified)),
            transactions,
            latency_us,
            latency_all_us,
            fairness: Fairness::by_type(contender.transactions(), rounds),
            transactions_per_sample: contender.transactions_per_sample(),
            htm: HtmReport::new(&counters.htm),
            memory: MemoryReport::new(resident, &contender.metrics().memory),
            log,
            phases: counters.phases,
            repairs: counters.repairs.any(),
            pieces: counters.pieces.any(),
            versions_held: counters.versions_held,
            verified: conditions.map(|all| all.iter().all(|condition| condition.holds)),
            conditions: conditions.map(|all| all.iter().map(ConditionReport::new).collect()),
            contention: contender.contention(),
            pinned: description.pinned,
            logical_cores: description.logical_cores,
            version: env!("CARGO_PKG_VERSION"),
            command_line: &description.command_line,
        }
    }
}

/// Returns the counts of every transaction type, and the latencies of those with samples.
fn by_type(
    contender: &dyn Contender,
) -> (InOrder<&'static str, Counts>, InOrder<&'static str, Latency>) {
    let types = contender.transactions().iter().copied().zip(contender.totals());
    let counts = types.clone().map(|(name, tally)| {
        (name, Counts { committed: tally.committed, user_rollbacks: tally.rolled_back })
    });
    let latencies = types.filter_map(|(name, tally)| Some((name, Latency::of(&tally.latency_ns)?)));
    (InOrder(counts.collect()), InOrder(latencies.collect()))
}

/// Returns the latencies of all transaction types together.
fn latency_of_all(contender: &dyn Contender) -> Option<Latency> {
    let mut all = Tally::new();
    contender.totals().iter().for_each(|tally| all.add(tally));
    Latency::of(&all.latency_ns)
}

/// Returns the committed share of each type, beside the specified share.
fn success_rates(
    transactions: &InOrder<&'static str, Counts>,
    specified: &[f64],
) -> InOrder<&'static str, SuccessRate> {
    let rates = transactions.0.iter().zip(specified).filter_map(|(&(name, counts), &specified)| {
        let ended = counts.committed + counts.user_rollbacks;
        Some((name, SuccessRate { measured: fraction(counts.committed, ended)?, specified }))
    });
    InOrder(rates.collect())
}

impl Latency {
    /// Returns the latencies of a histogram, unless it is empty.
    fn of(latency_ns: &Histogram<u64>) -> Option<Latency> {
        if latency_ns.is_empty() {
            return None;
        }
        let max = latency_ns.max() as f64 / 1000.0;
        // A quantile is the upper end of its bucket, which may exceed the maximum.
        let quantile = |q| f64::min(latency_ns.value_at_quantile(q) as f64 / 1000.0, max);
        Some(Latency { p50: quantile(0.5), p99: quantile(0.99), p999: quantile(0.999), max })
    }
}

impl LogReport {
    fn new(
        log: &LogCounters,
        variant: &Variant,
        latency_all_us: Option<Latency>,
        rounds: &[Round],
    ) -> Self {
        let looks = rounds.iter().filter_map(|round| round.durable_after_ns.clone());
        let durable_after = looks.reduce(|mut all, more| {
            all += more;
            all
        });
        let is_durable = variant.acknowledge == AcknowledgeName::Durable;
        LogReport {
            bytes_written: log.bytes,
            transactions: log.transactions,
            bytes_per_transaction: fraction(log.bytes, log.transactions),
            epochs_written: log.epochs,
            syncs: log.syncs,
            sync_mean_us: fraction(log.sync_time.as_micros() as u64, log.syncs),
            acknowledged_us: latency_all_us.filter(|_| is_durable),
            durable_after_us: durable_after.as_ref().and_then(Latency::of),
        }
    }
}

impl RoundReport {
    fn new(round: &Round) -> Self {
        RoundReport {
            seconds: round.seconds,
            committed: round.committed,
            user_rollbacks: round.rolled_back,
            throughput_per_second: round.throughput(),
            aborts: InOrder(round.counters.aborts.clone()),
            cores_elsewhere: round.cores_elsewhere,
            latency_p99_us: round.latency_p99_ns.map(|p99| p99 as f64 / 1000.0),
        }
    }
}

impl HtmReport {
    fn new(statistics: &weft::htm::Statistics) -> Self {
        HtmReport {
            started: statistics.started,
            committed: statistics.committed,
            aborted_conflict: statistics.aborted_conflict,
            aborted_capacity: statistics.aborted_capacity,
            aborted_system_event: statistics.aborted_system_event,
            aborted_explicit: statistics.aborted_explicit,
            fallbacks: statistics.fallbacks,
        }
    }
}

impl MemoryReport {
    fn new(resident: &Resident, engine: &weft::MemoryMetrics) -> Self {
        MemoryReport {
            resident_before_load_bytes: resident.before_load_bytes,
            resident_after_load_bytes: resident.after_load_bytes,
            resident_after_run_bytes: resident.after_run_bytes,
            chunk_bytes: engine.chunk_bytes,
            retired_pending: engine.retired_pending,
        }
    }
}

impl<'a> ConditionReport<'a> {
    fn new(condition: &'a Condition) -> Self {
        ConditionReport {
            name: &condition.name,
            holds: condition.holds,
            checked: condition.checked,
            detail: condition.detail.as_deref(),
        }
    }
}
