//! Showing what came out: a table for people, JSON for programs.

use std::io::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use weft_sim::Profile;

use crate::arguments::{Common, Regions};
use crate::simulation::Outcome;

/// The columns: what they are called, and what stands in them.
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

/// Shows the outcomes, as was asked for.
///
/// # Errors
/// The results cannot be written.
pub fn show(
    title: &str,
    profile: &Profile,
    common: &Common,
    outcomes: &[Outcome],
) -> Result<(), String> {
    if let Some(target) = &common.json {
        let values: Vec<Value> =
            outcomes.iter().map(|outcome| value(title, profile, common, outcome)).collect();
        let text = serde_json::to_string_pretty(&values).expect("plain values");
        if write_json(target, &text)? {
            return Ok(());
        }
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(HEADINGS);
    table.column_iter_mut().skip(1).for_each(|column| {
        column.set_cell_alignment(CellAlignment::Right);
    });
    let alone = |outcome: &Outcome| {
        let same = |other: &&Outcome| other.protocol == outcome.protocol;
        let first = outcomes.iter().find(same).expect("at least itself");
        throughput(common, first) / first.cores as f64
    };
    // Of the one that takes part first, with as many cores.
    let ratio = |outcome: &Outcome| {
        let same = |other: &&Outcome| other.cores == outcome.cores;
        let first = outcomes.iter().find(same).expect("at least itself");
        throughput(common, outcome) / throughput(common, first)
    };
    for outcome in outcomes {
        let rate = throughput(common, outcome);
        let begun = outcome.counts.begun.max(1) as f64;
        let share = |aborted: u64| format!("{:.2} %", 100.0 * aborted as f64 / begun);
        table.add_row([
            outcome.protocol.clone(),
            outcome.cores.to_string(),
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
                microseconds(profile, outcome, 0.5),
                microseconds(profile, outcome, 0.99)
            ),
        ]);
    }
    let host_seconds: f64 = outcomes.iter().map(|outcome| outcome.host_seconds).sum();
    let regions = if common.htm == Regions::Rtm { "RTM where it has any" } else { "no RTM" };
    print(&format!(
        "{title}\nSIMULATED: {}, {regions}; {} ms of virtual time, seed {}\n\n{table}\n\nper core: \
         against the protocol's first line. vs first: against whoever \
         stands first, on as many cores. regions/tx, and the shares of them that aborted, by \
         cause.\nThe simulation took {host_seconds:.1} s.",
        profile.description, common.milliseconds, common.seed
    ))
}

/// Writes JSON to where it was asked for; whether that is standard output, and takes the table's place.
///
/// # Errors
/// It cannot be written.
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
/// It cannot be written.
pub fn print(text: &str) -> Result<(), String> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| format!("standard output: {error}"))
}

/// All transactions that ended.
fn executed(outcome: &Outcome) -> u64 {
    outcome.transactions + outcome.rolled_back
}

/// Committed transactions in a second of virtual time.
fn throughput(common: &Common, outcome: &Outcome) -> f64 {
    outcome.transactions as f64 / (common.milliseconds / 1e3)
}

/// The latency below which a share of the transactions lie.
fn microseconds(profile: &Profile, outcome: &Outcome, share: f64) -> f64 {
    let last = outcome.latencies.len() - 1;
    profile.seconds(outcome.latencies[(last as f64 * share) as usize]) * 1e6
}

/// An outcome as JSON.
fn value(title: &str, profile: &Profile, common: &Common, outcome: &Outcome) -> Value {
    let counts = outcome.counts;
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
        "latency_us_p50": microseconds(profile, outcome, 0.5),
        "latency_us_p99": microseconds(profile, outcome, 0.99),
        "regions_begun": counts.begun,
        "regions_committed": counts.committed,
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
