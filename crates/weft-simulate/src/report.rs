//! The report: a table for people, JSON for programs.

use std::io::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use weft_sim::Profile;

use weft_workloads::dbx_tc::Pieces;
use weft_workloads::htcc::Repairs;
use weft_workloads::phases::Phases;

use crate::arguments::{Common, Regions};
use crate::simulation::{Benchmark, SimulationResult, TypeResult};

/// The column headings.
const HEADINGS: [&str; 13] = [
    "protocol",
    "cores",
    "tx/s (simulated)",
    "per core",
    "vs first",
    "aborts/tx",
    "regions/tx",
    "conflict",
    "capacity",
    "locked",
    "other",
    "fallbacks/tx",
    "p50, p99 in us",
];

/// Shows the outcomes, as the user chose.
///
/// # Errors
/// If the results cannot be written.
pub fn show(
    benchmark: &dyn Benchmark,
    profile: &Profile,
    outcomes: &[SimulationResult],
) -> Result<(), String> {
    let common = benchmark.common();
    let axis = benchmark.axis();
    if let Some(target) = &common.json {
        let title = |outcome: &SimulationResult| benchmark.title(outcome.value.as_slice());
        let values: Vec<Value> = outcomes
            .iter()
            .map(|outcome| value(&title(outcome), profile, common, outcome))
            .collect();
        let text = serde_json::to_string_pretty(&values).expect("plain values");
        if write_json(target, &text)? {
            return Ok(());
        }
    }
    let labels = Labels { axis: (axis.values.len() > 1).then_some(axis.name) };
    let mut table = labels.table(&HEADINGS[2..]);
    let alone = |outcome: &SimulationResult| {
        let same = |other: &&SimulationResult| {
            other.protocol == outcome.protocol && other.value == outcome.value
        };
        let first = outcomes.iter().find(same).expect("at least itself");
        throughput(common, first) / first.cores as f64
    };
    // The throughput relative to the first outcome with as many cores and the same value.
    let ratio = |outcome: &SimulationResult| {
        let same = |other: &&SimulationResult| {
            other.cores == outcome.cores && other.value == outcome.value
        };
        let first = outcomes.iter().find(same).expect("at least itself");
        throughput(common, outcome) / throughput(common, first)
    };
    for outcome in outcomes {
        let rate = throughput(common, outcome);
        let begun = outcome.counts.begun.max(1) as f64;
        let share = |aborted: u64| format!("{:.2} %", 100.0 * aborted as f64 / begun);
        table.add_row(labels.of(outcome).into_iter().chain([
            format!("{rate:.0}"),
            format!("{:.2}", rate / outcome.cores as f64 / alone(outcome)),
            format!("{:.3}", ratio(outcome)),
            format!("{:.3}", outcome.aborts_per_transaction),
            format!("{:.1}", outcome.counts.begun as f64 / executed(outcome) as f64),
            share(outcome.counts.aborted_conflict),
            share(outcome.counts.aborted_capacity),
            share(outcome.counts.aborted_explicit),
            share(outcome.counts.aborted_other),
            format!("{:.3}", outcome.fallbacks_per_transaction),
            format!(
                "{:.1}, {:.1}",
                microseconds(profile, &outcome.latencies, 0.5),
                microseconds(profile, &outcome.latencies, 0.99)
            ),
        ]));
    }
    let types = if common.types { labels.types(profile, outcomes) } else { String::new() };
    let aborts = if common.types { labels.aborts(outcomes) } else { String::new() };
    let phases = labels.phases(outcomes);
    let repairs = labels.repairs(outcomes);
    let pieces = labels.pieces(outcomes);
    let host_seconds: f64 = outcomes.iter().map(|outcome| outcome.host_seconds).sum();
    let regions = if common.htm == Regions::Rtm { "RTM where it has any" } else { "no RTM" };
    let title = benchmark.title(&axis.values);
    print(&format!(
        "{title}\nSIMULATED: {}, {regions}; {} ms of virtual time, seed {}\n\n{table}\n\n\
         {types}{aborts}{phases}{repairs}{pieces}per core: \
         relative to the protocol's first line. vs first: relative to the first \
         line with as many cores. conflict, capacity, locked, other: shares of regions that \
         aborted.\nThe simulation took {host_seconds:.1} s.",
        profile.description, common.milliseconds, common.seed
    ))
}

/// Writes JSON to `target`. Returns whether that is standard output, so that the JSON replaces the table.
///
/// # Errors
/// If it cannot be written.
pub fn write_json(target: &str, text: &str) -> Result<bool, String> {
    if target == "-" {
        return print(text).map(|()| true);
    }
    let written = std::fs::write(target, format!("{text}\n"));
    written.map(|()| false).map_err(|error| format!("{target}: {error}"))
}

/// Prints to standard output.
///
/// # Errors
/// If it cannot be written.
pub fn print(text: &str) -> Result<(), String> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| format!("standard output: {error}"))
}

/// Returns the number of all transactions that ended.
fn executed(outcome: &SimulationResult) -> u64 {
    outcome.transactions + outcome.rolled_back
}

/// Returns how many transactions committed in a second of virtual time.
fn throughput(common: &Common, outcome: &SimulationResult) -> f64 {
    outcome.transactions as f64 / (common.milliseconds / 1e3)
}

/// Returns the latency below which the given share of the latencies lie. They are in ascending order, at least
/// one.
fn microseconds(profile: &Profile, latencies: &[u64], share: f64) -> f64 {
    let last = latencies.len() - 1;
    profile.seconds(latencies[(last as f64 * share) as usize]) * 1e6
}

/// Returns the mean latency.
fn mean_microseconds(profile: &Profile, latencies: &[u64]) -> f64 {
    profile.seconds(latencies.iter().sum()) * 1e6 / latencies.len() as f64
}

/// The first columns of each table, which identify the simulation.
struct Labels {
    /// The name of the varied option, if one is varied.
    axis: Option<&'static str>,
}

impl Labels {
    /// Returns an empty table with these columns after the labels. Numbers are aligned right, protocols left.
    fn table(&self, headings: &[&str]) -> Table {
        let labels = self.axis.into_iter().chain(HEADINGS[..2].iter().copied());
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(labels.chain(headings.iter().copied()));
        table.column_iter_mut().for_each(|column| {
            column.set_cell_alignment(CellAlignment::Right);
        });
        let protocol = usize::from(self.axis.is_some());
        let column = table.column_mut(protocol).expect("it was just made");
        column.set_cell_alignment(CellAlignment::Left);
        table
    }

    /// Returns the label cells of an outcome.
    fn of(&self, outcome: &SimulationResult) -> Vec<String> {
        let value = outcome.value.filter(|_| self.axis.is_some());
        let value = value.map(|value| value.to_string());
        value.into_iter().chain([outcome.protocol.clone(), outcome.cores.to_string()]).collect()
    }

    /// Returns the transactions of each type, and their latencies, as a table.
    fn types(&self, profile: &Profile, outcomes: &[SimulationResult]) -> String {
        let mut table =
            self.table(&["type", "committed", "rolled back", "mean us", "p50 us", "p99 us"]);
        for outcome in outcomes {
            for of_type in outcome.types.iter().filter(|of_type| !of_type.latencies.is_empty()) {
                let at = |share| microseconds(profile, &of_type.latencies, share);
                table.add_row(self.of(outcome).into_iter().chain([
                    of_type.name.to_owned(),
                    of_type.committed.to_string(),
                    of_type.rolled_back.to_string(),
                    format!("{:.2}", mean_microseconds(profile, &of_type.latencies)),
                    format!("{:.2}", at(0.5)),
                    format!("{:.2}", at(0.99)),
                ]));
            }
        }
        format!("{table}\n\n")
    }

    /// Returns in which tables transactions conflicted, one line for each outcome.
    fn aborts(&self, outcomes: &[SimulationResult]) -> String {
        let mut lines = String::new();
        for outcome in outcomes {
            if let Some(by_table) = &outcome.aborts_by_table {
                let of = self.of(outcome).join(" ");
                lines += &format!("{of}: aborts by table, including the warm-up: {by_table}\n");
            }
        }
        if lines.is_empty() { lines } else { lines + "\n" }
    }

    /// Returns what was done in pieces, as a table. The text is empty if nothing was.
    fn pieces(&self, outcomes: &[SimulationResult]) -> String {
        let mut table = self.table(&Pieces::HEADINGS);
        for outcome in outcomes {
            if let Some(pieces) = &outcome.pieces {
                table.add_row(self.of(outcome).into_iter().chain(pieces.cells(outcome.committed)));
            }
        }
        match table.is_empty() {
            true => String::new(),
            false => format!("{table}\n{} This includes the warm-up.\n\n", Pieces::LEGEND),
        }
    }

    /// Returns what was repaired, as a table. The text is empty if nothing was.
    fn repairs(&self, outcomes: &[SimulationResult]) -> String {
        let mut table = self.table(&Repairs::HEADINGS);
        for outcome in outcomes {
            if let Some(repairs) = &outcome.repairs {
                table.add_row(self.of(outcome).into_iter().chain(repairs.cells(outcome.committed)));
            }
        }
        match table.is_empty() {
            true => String::new(),
            false => format!("{table}\n{} This includes the warm-up.\n\n", Repairs::LEGEND),
        }
    }

    /// Returns what happened in phases, as a table. The text is empty if no protocol has phases.
    fn phases(&self, outcomes: &[SimulationResult]) -> String {
        let mut table = self.table(&Phases::HEADINGS);
        for outcome in outcomes {
            if let Some(phases) = &outcome.phases {
                table.add_row(self.of(outcome).into_iter().chain(phases.cells()));
            }
        }
        match table.is_empty() {
            true => String::new(),
            false => format!("{table}\n{} This includes the warm-up.\n\n", Phases::LEGEND),
        }
    }
}

/// Returns the transactions of a type as JSON.
fn of_type(profile: &Profile, of_type: &TypeResult) -> Value {
    let latencies = &of_type.latencies;
    let at = |share| (!latencies.is_empty()).then(|| microseconds(profile, latencies, share));
    let mean = (!latencies.is_empty()).then(|| mean_microseconds(profile, latencies));
    json!({
        "type": of_type.name,
        "committed": of_type.committed,
        "rolled_back": of_type.rolled_back,
        "latency_us_mean": mean,
        "latency_us_p50": at(0.5),
        "latency_us_p99": at(0.99),
    })
}

/// Returns throughput over time as JSON, or `None` if no timeline was requested. A last interval that is
/// shorter than the others is left out.
fn timeline(common: &Common, outcome: &SimulationResult) -> Option<Value> {
    let interval = common.timeline?;
    let whole = (common.milliseconds / interval + 1e-9) as usize;
    let intervals = outcome.timeline.iter().take(whole).enumerate();
    let intervals = intervals.map(|(position, &transactions)| {
        json!({
            "until_ms": (position + 1) as f64 * interval,
            "transactions_per_second": transactions as f64 / (interval / 1e3),
        })
    });
    Some(intervals.collect())
}

/// Returns the shares of some ranks as JSON, by rank.
fn percent_of_ranks(outcome: &SimulationResult) -> Option<Value> {
    let shares = outcome.percent_of_ranks.iter();
    let shares = shares.map(|&(rank, percent)| (rank.to_string(), json!(percent)));
    (!outcome.percent_of_ranks.is_empty()).then(|| Value::Object(shares.collect()))
}

/// Returns an outcome as JSON.
fn value(title: &str, profile: &Profile, common: &Common, outcome: &SimulationResult) -> Value {
    let counts = outcome.counts;
    let types: Vec<Value> = outcome.types.iter().map(|types| of_type(profile, types)).collect();
    json!({
        "simulated": true,
        "title": title,
        "machine": profile.name,
        "htm": if common.htm == Regions::Rtm { "rtm" } else { "none" },
        "protocol": outcome.protocol,
        "cores": outcome.cores,
        "seed": common.seed,
        "virtual_seconds": common.milliseconds / 1e3,
        "virtual_seconds_warmup": common.warmup / 1e3,
        "cycles_per_transaction_of_the_client": outcome.cycles_per_transaction,
        "transactions": outcome.transactions,
        "transactions_rolled_back": outcome.rolled_back,
        "transactions_per_second": throughput(common, outcome),
        "aborts_per_transaction": outcome.aborts_per_transaction,
        "aborts_by_table": outcome.aborts_by_table,
        "latency_us_p50": microseconds(profile, &outcome.latencies, 0.5),
        "latency_us_p99": microseconds(profile, &outcome.latencies, 0.99),
        "transactions_by_type": types,
        "timeline": timeline(common, outcome),
        "percent_of_ranks": percent_of_ranks(outcome),
        "phases": outcome.phases,
        "repairs": outcome.repairs,
        "conflict_retries": common.conflict_retries,
        "capacity_retries": common.capacity_retries,
        "by_rows": common.by_rows,
        "pieces": outcome.pieces,
        "phase_length_ms": common.phase_length,
        "regions_begun": counts.begun,
        "regions_committed": counts.committed,
        "region_lines_read": counts.lines_read,
        "region_lines_written": counts.lines_written,
        "regions_aborted_conflict": counts.aborted_conflict,
        "regions_aborted_capacity": counts.aborted_capacity,
        "regions_aborted_explicit": counts.aborted_explicit,
        "regions_aborted_other": counts.aborted_other,
        "fallbacks_per_transaction": outcome.fallbacks_per_transaction,
        "accesses": counts.accesses,
        "cache_misses": counts.misses,
        "line_transfers": counts.transfers,
        "host_seconds": outcome.host_seconds,
        "accesses_per_host_second": outcome.accesses_per_host_second,
    })
}
