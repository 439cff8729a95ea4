//! `cargo lab bench compare`: compares two result files, measurement by measurement.
//!
//! Two measurements are compared if they are of the same thing: the same workload, protocol, backend of the
//! regions, number of threads, log and snapshots. Other options that differ between the two runs (more warehouses,
//! longer rounds) are reported, because they may explain the whole ratio.
//!
//! Rounds of two runs are not neighbours in time. So the ratio is that of the medians. Beside it are the smallest
//! and the largest ratio of any two rounds.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::input::read_text;
use crate::numbers;
use crate::stop::Stop;

use super::report::json::JsonTarget;
use super::report::table::numeric;
use super::statistics::Spread;

/// The most bytes that a file of results may have: 64 MiB.
const FILE_BYTES_MAX: usize = 64 << 20;

/// The options of the command.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  cargo lab bench tpcc --protocol dbx,silo --threads 2 --json before.json
  (a change)
  cargo lab bench tpcc --protocol dbx,silo --threads 2 --json after.json
  cargo lab bench compare before.json after.json --at-least 0.95

The two runs happen at different times, and other load may slow the machine down in one of them. For
a close comparison, measure both in one run, where the rounds take turns.

Exit codes: 0, the files were compared; 1, a ratio is below --at-least; 2, a file cannot be read, or
the files have no measurement in common.")]
pub struct CompareArguments {
    /// Results written by `cargo lab bench … --json` or `cargo simulate … --json`
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// Results of the same benchmark, to compare with BEFORE
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Exit with 1 if the throughput of any measurement is less than this share of that in BEFORE
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    at_least: Option<f64>,
    /// Write the comparison as JSON to this file; `-` prints JSON instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| *ratio > 0.0 && ratio.is_finite());
    ratio.ok_or_else(|| "expected a number above 0, such as 0.95".to_owned())
}

/// The keys that must be equal for two measurements to be of the same thing, as `bench` and `simulate` name them.
const IDENTITY: [&str; 11] = [
    "simulated",
    "workload",
    "title",
    "machine",
    "protocol",
    "htm_backend",
    "htm",
    "threads",
    "cores",
    "acknowledge",
    "snapshots",
];

/// The keys that hold results, or describe the machine, and so are not settings.
const RESULTS: [&str; 41] = [
    "aborts",
    "aborts_by_table",
    "aborts_per_commit",
    "aborts_per_transaction",
    "accesses",
    "accesses_per_host_second",
    "cache_misses",
    "command_line",
    "committed",
    "conditions",
    "contention",
    "fairness",
    "fallbacks_per_transaction",
    "host_seconds",
    "latency_all_us",
    "latency_us",
    "latency_us_p50",
    "latency_us_p99",
    "line_transfers",
    "log",
    "memory",
    "operations_per_second",
    "percent_of_ranks",
    "phases",
    "pieces",
    "ratio_to_first",
    "region_lines_read",
    "region_lines_written",
    "repairs",
    "rounds",
    "success_rates",
    "throughput_per_second",
    "timeline",
    "transactions",
    "transactions_by_type",
    "transactions_per_sample",
    "transactions_per_second",
    "transactions_rolled_back",
    "user_rollbacks",
    "verified",
    "versions_held",
];

/// A measurement in a file.
#[derive(Debug)]
pub(super) struct Measurement {
    /// The values of the keys in [`IDENTITY`], without those that are null.
    identity: Vec<(&'static str, Value)>,
    /// The other options of its run.
    pub(super) settings: Map<String, Value>,
    throughput: Spread,
    aborts_per_transaction: Option<f64>,
}

impl Measurement {
    /// Returns the measurement in a JSON object; [`None`] if it has no throughput.
    pub(super) fn new(object: &Map<String, Value>) -> Option<Self> {
        let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_f64);
        let throughput = match object.get("throughput_per_second") {
            Some(spread) => Spread {
                median: number(spread, "median")?,
                min: number(spread, "min")?,
                max: number(spread, "max")?,
            },
            None => Spread::of([object.get("transactions_per_second").and_then(Value::as_f64)?])?,
        };
        // In a file of `bench`, `htm` is an object of counters.
        let identifies = |value: &&Value| !value.is_null() && !value.is_object();
        let identity = IDENTITY
            .iter()
            .filter_map(|&key| Some((key, object.get(key).filter(identifies)?.clone())))
            .collect();
        let is_setting = |key: &str| {
            let is_counter = key.starts_with("regions_");
            !is_counter && !RESULTS.contains(&key) && !IDENTITY.contains(&key)
        };
        let settings = object
            .iter()
            .filter(|(key, _)| is_setting(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let aborts = ["aborts_per_commit", "aborts_per_transaction"];
        let aborts_per_transaction = aborts.iter().find_map(|key| object.get(*key)?.as_f64());
        Some(Measurement { identity, settings, throughput, aborts_per_transaction })
    }

    /// Returns the value of this key of the identity, if the measurement has it.
    fn member(&self, key: &str) -> Option<&Value> {
        self.identity.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

/// Reads the measurements of a file.
fn read(path: &Path) -> Result<Vec<Measurement>, Stop> {
    let named = |what: String| Stop::Usage(format!("'{}': {what}", path.display()));
    let text = read_text(path, FILE_BYTES_MAX).map_err(|error| named(error.to_string()))?;
    let value: Value =
        serde_json::from_str(&text).map_err(|error| named(format!("not JSON: {error}")))?;
    let measurements: Option<Vec<Measurement>> = value
        .as_array()
        .and_then(|array| array.iter().map(|it| Measurement::new(it.as_object()?)).collect());
    measurements.filter(|measurements| !measurements.is_empty()).ok_or_else(|| {
        named(
            "no results of a benchmark; `cargo lab bench … --json FILE` and `cargo simulate … --json \
             FILE` write them"
                .to_owned(),
        )
    })
}

/// Two measurements of the same thing.
#[derive(Debug, Serialize)]
struct Pair {
    /// What distinguishes the pair from the others, such as `dbx, threads 2`.
    label: String,
    before_per_second: Spread,
    after_per_second: Spread,
    /// `after` divided by `before`: of the medians, and the extremes of any two rounds.
    ratio: Spread,
    before_aborts_per_transaction: Option<f64>,
    after_aborts_per_transaction: Option<f64>,
}

impl Pair {
    /// Compares the spreads: whether every round after was faster, or slower, than every round before.
    fn verdict(&self) -> &'static str {
        match self.ratio {
            Spread { min, .. } if min > 1.0 => "faster",
            Spread { max, .. } if max < 1.0 => "slower",
            Spread { median: 1.0, min: 1.0, max: 1.0 } => "the same",
            _ => "overlap",
        }
    }
}

/// The result of a comparison.
#[derive(Debug, Serialize)]
struct Comparison {
    pairs: Vec<Pair>,
    /// Measurements that only one of the files has.
    unmatched: Vec<String>,
    /// Options that differ between the two runs.
    differences: Vec<String>,
}

/// Pairs the measurements. If a file has several of the same thing, they are paired in their order.
fn compare(before: &[Measurement], after: &[Measurement]) -> Comparison {
    // A label shows only keys that vary between measurements of one protocol.
    let all: Vec<&Measurement> = before.iter().chain(after).collect();
    let varies = |key: &str| {
        all.iter().any(|one| {
            let same = |other: &&&Measurement| other.member("protocol") == one.member("protocol");
            all.iter().filter(same).any(|other| other.member(key) != one.member(key))
        })
    };
    let varying: Vec<&str> = IDENTITY.into_iter().filter(|&key| varies(key)).collect();
    let label = |measurement: &Measurement| {
        let parts = measurement.identity.iter().filter_map(|(key, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match *key {
                "protocol" => Some(text),
                _ if varying.contains(key) => Some(format!("{key} {text}")),
                _ => None,
            }
        });
        parts.collect::<Vec<_>>().join(", ")
    };
    let mut rest: Vec<&Measurement> = after.iter().collect();
    let (mut pairs, mut unmatched, mut differences) = (Vec::new(), Vec::new(), Vec::new());
    for old in before {
        let Some(position) = rest.iter().position(|new| new.identity == old.identity) else {
            unmatched.push(format!("{} (before only)", label(old)));
            continue;
        };
        let new = rest.remove(position);
        for (key, value) in &old.settings {
            let other = new.settings.get(key).unwrap_or(&Value::Null);
            let difference = format!("{key}: {value} before, {other} after");
            if other != value && !differences.contains(&difference) {
                differences.push(difference);
            }
        }
        let (one, other) = (old.throughput, new.throughput);
        pairs.push(Pair {
            label: label(old),
            before_per_second: one,
            after_per_second: other,
            ratio: Spread {
                median: other.median / one.median,
                min: other.min / one.max,
                max: other.max / one.min,
            },
            before_aborts_per_transaction: old.aborts_per_transaction,
            after_aborts_per_transaction: new.aborts_per_transaction,
        });
    }
    unmatched.extend(rest.into_iter().map(|new| format!("{} (after only)", label(new))));
    Comparison { pairs, unmatched, differences }
}

/// Runs `cargo lab bench compare`.
///
/// # Errors
/// A file cannot be read or has no results, the files have no measurement in common, or a ratio is below
/// `--at-least`; the last error comes after the report.
pub fn run(arguments: &CompareArguments) -> Result<(), Stop> {
    let target = arguments.json.as_deref().map(JsonTarget::check).transpose()?;
    let (before, after) = (read(&arguments.before)?, read(&arguments.after)?);
    let comparison = compare(&before, &after);
    if comparison.pairs.is_empty() {
        return Err(Stop::Usage(format!(
            "'{}' and '{}' have no measurement in common: {}",
            arguments.before.display(),
            arguments.after.display(),
            comparison.unmatched.join("; ")
        )));
    }
    let mut out = io::stdout().lock();
    if let Some(target) = &target {
        target.write(&comparison, &mut out)?;
    }
    if !target.is_some_and(|target| target.is_standard_output()) {
        show(&comparison, &mut out)?;
    }
    let Some(least) = arguments.at_least else { return Ok(()) };
    let below = |pair: &&Pair| pair.ratio.median < least;
    match comparison.pairs.iter().find(below) {
        None => Ok(()),
        Some(pair) => Err(Stop::Failed(format!(
            "{}: the throughput is {:.3} of that before, which is below --at-least {least}",
            pair.label, pair.ratio.median
        ))),
    }
}

/// Prints the comparison as a table.
fn show(comparison: &Comparison, out: &mut impl Write) -> io::Result<()> {
    let mut table = numeric(
        &["measured"],
        &["before", "min–max", "after", "min–max", "ratio", "min–max", "aborts/tx", "rounds"],
    );
    let range =
        |spread: Spread| format!("{}–{}", numbers::rate(spread.min), numbers::rate(spread.max));
    for pair in &comparison.pairs {
        let aborts = |aborts: Option<f64>| aborts.map_or("–".to_owned(), |it| format!("{it:.4}"));
        table.add_row([
            pair.label.clone(),
            numbers::rate(pair.before_per_second.median),
            range(pair.before_per_second),
            numbers::rate(pair.after_per_second.median),
            range(pair.after_per_second),
            format!("{:.3}", pair.ratio.median),
            format!("{:.3}–{:.3}", pair.ratio.min, pair.ratio.max),
            format!(
                "{} → {}",
                aborts(pair.before_aborts_per_transaction),
                aborts(pair.after_aborts_per_transaction)
            ),
            pair.verdict().to_owned(),
        ]);
    }
    writeln!(out, "{table}")?;
    for unmatched in &comparison.unmatched {
        writeln!(out, "Not compared: {unmatched}.")?;
    }
    for difference in &comparison.differences {
        writeln!(out, "Set differently: {difference}.")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn measured(value: Value) -> Measurement {
        Measurement::new(value.as_object().unwrap()).unwrap()
    }

    fn bench(protocol: &str, threads: u32, [min, median, max]: [f64; 3]) -> Value {
        json!({
            "workload": "tpcc", "protocol": protocol, "threads": threads, "snapshots": "off",
            "warehouses": 1, "htm": { "started": 5 }, "htm_backend": null,
            "throughput_per_second": { "median": median, "min": min, "max": max },
            "aborts_per_commit": 0.25, "committed": median,
        })
    }

    /// Measurements are paired by their identity, not by position, and those without a counterpart are named.
    #[test]
    fn matching_results_are_compared() {
        let before = [
            measured(bench("dbx", 1, [90.0, 100.0, 110.0])),
            measured(bench("dbx", 2, [1.0, 1.0, 1.0])),
            measured(bench("silo", 1, [9.0, 10.0, 11.0])),
        ];
        let after = [
            measured(bench("silo", 1, [12.0, 20.0, 22.0])),
            measured(bench("tso", 1, [5.0, 5.0, 5.0])),
            measured(bench("dbx", 1, [50.0, 95.0, 120.0])),
        ];
        let comparison = compare(&before, &after);
        let labels: Vec<&str> = comparison.pairs.iter().map(|pair| &*pair.label).collect();
        assert_eq!(labels, ["dbx, threads 1", "silo, threads 1"]);
        let unmatched = ["dbx, threads 2 (before only)", "tso, threads 1 (after only)"];
        assert_eq!(comparison.unmatched, unmatched);
        let [dbx, silo] = &comparison.pairs[..] else { panic!("two pairs") };
        assert_eq!(dbx.ratio, Spread { median: 0.95, min: 50.0 / 110.0, max: 120.0 / 90.0 });
        assert_eq!(dbx.verdict(), "overlap");
        assert_eq!(silo.ratio, Spread { median: 2.0, min: 12.0 / 11.0, max: 22.0 / 9.0 });
        assert_eq!(silo.verdict(), "faster");
        assert_eq!(silo.after_aborts_per_transaction, Some(0.25));
        assert!(comparison.differences.is_empty(), "{:?}", comparison.differences);
    }

    /// Protects against mistaking a larger database for a faster engine.
    #[test]
    fn different_settings_are_reported() {
        let mut other = bench("dbx", 1, [1.0, 1.0, 1.0]);
        other["warehouses"] = json!(4);
        let comparison = compare(&[measured(bench("dbx", 1, [1.0, 1.0, 1.0]))], &[measured(other)]);
        assert_eq!(comparison.differences, ["warehouses: 1 before, 4 after"]);
        assert_eq!(comparison.pairs[0].verdict(), "the same");
    }

    /// Fault: results that were missing in the list of results were reported as options that differ.
    #[test]
    fn different_results_are_not_settings() {
        let keys = [
            "aborts_by_table",
            "latency_all_us",
            "percent_of_ranks",
            "pieces",
            "region_lines_read",
            "region_lines_written",
            "repairs",
            "timeline",
            "transactions_rolled_back",
        ];
        let with = |value: u32| {
            let mut measurement = bench("dbx", 1, [1.0, 1.0, 1.0]);
            keys.iter().for_each(|key| measurement[key] = json!({ "p50": value }));
            measured(measurement)
        };
        let comparison = compare(&[with(1)], &[with(2)]);
        assert_eq!(comparison.differences, [""; 0]);
    }

    /// Results of simulations, which have one round, are compared, too.
    #[test]
    fn simulations_are_compared() {
        let simulated = |cores: u32, rate: f64| {
            measured(json!({
                "simulated": true, "title": "TPC-C", "machine": "haswell-4c8t", "htm": "rtm",
                "protocol": "dbx", "cores": cores, "transactions_per_second": rate,
                "aborts_per_transaction": 0.5, "regions_begun": rate, "host_seconds": rate,
            }))
        };
        let comparison = compare(&[simulated(1, 10.0), simulated(8, 70.0)], &[simulated(8, 35.0)]);
        assert_eq!(comparison.pairs.len(), 1);
        assert_eq!(comparison.pairs[0].label, "dbx, cores 8");
        assert_eq!(comparison.pairs[0].verdict(), "slower");
        assert!(comparison.differences.is_empty(), "{:?}", comparison.differences);
    }
}
