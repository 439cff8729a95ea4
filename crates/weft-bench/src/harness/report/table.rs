//! The report as text: plain tables of at most 100 columns that can be pasted into Markdown.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use weft_workloads::dbx_tc::Pieces;
use weft_workloads::htcc::Repairs;
use weft_workloads::phases::Phases;

use crate::numbers::{counted, grouped, microseconds, rate, size};

use super::super::statistics::fraction;
use super::{Latency, Report};

/// The reports of all protocols.
pub struct Tables<'a>(pub &'a [Report<'a>]);

impl fmt::Display for Tables<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reports = self.0;
        writeln!(formatter, "\n{}", throughput(reports))?;
        for twin in twins(reports) {
            writeln!(formatter, "{twin}")?;
        }
        if let Some(table) = operations(reports) {
            writeln!(formatter, "\n{table}")?;
        }
        writeln!(formatter, "\n{}", transactions(reports))?;
        if let Some(table) = threads(reports) {
            writeln!(formatter, "\n{table}\n{THREADS_LEGEND}")?;
        }
        if let Some(table) = success_rates(reports) {
            writeln!(formatter, "\n{table}")?;
        }
        match aborts(reports) {
            Some(table) => {
                writeln!(formatter, "\n{table}")?;
                for report in reports {
                    if let Some(by_table) = &report.aborts_by_table {
                        writeln!(formatter, "{}, by table: {by_table}", report.label)?;
                    }
                }
                writeln!(formatter)?;
            }
            None => writeln!(formatter, "\nNo attempt was aborted.\n")?,
        }
        if let Some(table) = regions(reports) {
            writeln!(formatter, "{table}\n")?;
        }
        if let Some(table) = repairs(reports) {
            writeln!(formatter, "{table}\n{}\n", Repairs::LEGEND)?;
        }
        if let Some(table) = pieces(reports) {
            writeln!(formatter, "{table}\n{}\n", Pieces::LEGEND)?;
        }
        if let Some(table) = phases(reports) {
            writeln!(formatter, "{table}\n{}\n", Phases::LEGEND)?;
        }
        writeln!(formatter, "{}\n", memory(reports))?;
        for table in [log(reports), versions(reports)].into_iter().flatten() {
            writeln!(formatter, "{table}\n")?;
        }
        for report in reports {
            if let Some(verdict) = verdict(report) {
                writeln!(formatter, "{}: {verdict}", report.label)?;
            }
        }
        for report in reports {
            if let Some(contention) = &report.contention {
                writeln!(formatter, "{}: contention\n{contention}", report.label)?;
            }
        }
        Ok(())
    }
}

/// Returns an empty table with these headings, and all columns aligned to the left.
pub fn plain(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(headings);
    table
}

/// Returns an empty table whose first columns hold words and whose other columns hold numbers.
pub fn numeric(words: &[&str], numbers: &[&str]) -> Table {
    let mut table = plain(&[words, numbers].concat());
    for column in table.column_iter_mut().skip(words.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Returns the throughput of each protocol, compared with the first.
fn throughput(reports: &[Report<'_>]) -> Table {
    let versus = format!("vs {}", reports[0].label);
    let mut table =
        numeric(&["protocol", "htm"], &["transactions/s", "min", "max", &versus, "aborts/commit"]);
    for report in reports {
        let spread = &report.throughput_per_second;
        table.add_row([
            report.label.to_owned(),
            report.htm_backend.clone().unwrap_or("-".to_owned()),
            rate(spread.median),
            rate(spread.min),
            rate(spread.max),
            report.ratio_to_first.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
            report.aborts_per_commit.map_or("-".to_owned(), |aborts| format!("{aborts:.4}")),
        ]);
    }
    table
}

/// Returns the rates of operations; `None` if they are not counted, or equal the rates of transactions.
fn operations(reports: &[Report<'_>]) -> Option<Table> {
    let mut table = numeric(&["protocol"], &["operations/s", "min", "max"]);
    for report in reports {
        if let Some(spread) = report.operations_per_second
            && spread != report.throughput_per_second
        {
            let rates = [spread.median, spread.min, spread.max].map(rate);
            table.add_row(std::iter::once(report.label.to_owned()).chain(rates));
        }
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the twins that replace hardware regions, if this affects how to read the rates.
fn twins(reports: &[Report<'_>]) -> impl Iterator<Item = String> {
    let twins = reports.iter().filter_map(|report| report.twin.map(|twin| (report, twin)));
    twins.map(|(report, twin)| format!("{}: no RTM here, so its twin runs: {twin}.", report.label))
}

/// Returns how many transactions of each type there were, and how long they took.
fn transactions(reports: &[Report<'_>]) -> Table {
    let mut table = numeric(
        &["protocol", "transaction"],
        &["committed", "rolled back", "p50 µs", "p99 µs", "p99.9 µs", "max µs"],
    );
    for report in reports {
        for (name, counts) in &report.transactions.0 {
            if counts.committed + counts.user_rollbacks == 0 {
                continue;
            }
            let sampled = report.latency_us.0.iter().find(|(other, _)| other == name);
            let shown = |pick: fn(&Latency) -> f64| {
                sampled.map_or("-".to_owned(), |(_, latency)| microseconds(pick(latency)))
            };
            table.add_row([
                report.label.to_owned(),
                (*name).to_owned(),
                grouped(counts.committed),
                grouped(counts.user_rollbacks),
                shown(|latency| latency.p50),
                shown(|latency| latency.p99),
                shown(|latency| latency.p999),
                shown(|latency| latency.max),
            ]);
        }
    }
    table
}

const THREADS_LEGEND: &str = "\
share: of the type's commits; max/mean: the greatest latency divided by the mean one, of the sampled
transactions; 1.0 if all have waited equally long";

/// Returns what each thread got; `None` unless the tables are to have it.
fn threads(reports: &[Report<'_>]) -> Option<Table> {
    let mut table = numeric(
        &["protocol", "transaction", "thread"],
        &["committed", "share %", "mean µs", "max µs", "max/mean"],
    );
    let shown = |number: Option<f64>, text: &dyn Fn(f64) -> String| {
        number.map_or_else(|| "-".to_owned(), text)
    };
    let ratio = |number: f64| format!("{number:.1}");
    for report in reports.iter().filter(|report| report.shows_threads) {
        for (name, fairness) in &report.fairness.0 {
            for (number, thread) in fairness.threads.iter().enumerate() {
                table.add_row([
                    report.label.to_owned(),
                    (*name).to_owned(),
                    number.to_string(),
                    grouped(thread.committed),
                    shown(thread.share, &|share| format!("{:.1}", share * 100.0)),
                    shown(thread.mean_us, &microseconds),
                    shown(thread.max_us, &microseconds),
                    shown(thread.greatest_by_mean, &ratio),
                ]);
            }
            let mut all = vec![report.label.to_owned(), (*name).to_owned(), "all".to_owned()];
            all.resize(7, String::new());
            all.push(shown(fairness.greatest_by_mean, &ratio));
            table.add_row(all);
        }
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the share of transactions that succeeded; `None` if the workload specifies no shares.
fn success_rates(reports: &[Report<'_>]) -> Option<Table> {
    let mut table =
        numeric(&["protocol", "transaction"], &["succeeded %", "by the specification %"]);
    for report in reports {
        for (name, rate) in report.success_rates.iter().flat_map(|rates| &rates.0) {
            let percent =
                [rate.measured, rate.specified].map(|rate| format!("{:.2}", rate * 100.0));
            let [measured, specified] = percent;
            table.add_row([report.label.to_owned(), (*name).to_owned(), measured, specified]);
        }
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the reasons for aborts; `None` if no attempt was aborted.
fn aborts(reports: &[Report<'_>]) -> Option<Table> {
    let mut table = numeric(&["protocol", "abort reason"], &["aborts", "per 1000 commits"]);
    for report in reports {
        for &(reason, count) in report.aborts.0.iter().filter(|(_, count)| *count > 0) {
            let per_1000 = fraction(count * 1000, report.committed)
                .map_or("-".to_owned(), |aborts| format!("{aborts:.3}"));
            table.add_row([report.label.to_owned(), reason.to_owned(), grouped(count), per_1000]);
        }
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the outcomes of hardware regions, in percent of those started; `None` if no region was started.
fn regions(reports: &[Report<'_>]) -> Option<Table> {
    let mut table = numeric(
        &["protocol"],
        &["regions/tx", "aborted %", "conflict", "capacity", "system", "locked", "fallbacks"],
    );
    for report in reports.iter().filter(|report| report.htm.started > 0) {
        let htm = &report.htm;
        let percent = |count: u64| {
            let share = fraction(count * 100, htm.started);
            share.map_or("-".to_owned(), |share| format!("{share:.3}"))
        };
        let per_transaction = fraction(htm.started, report.committed + report.user_rollbacks);
        table.add_row([
            report.label.to_owned(),
            per_transaction.map_or("-".to_owned(), |regions| format!("{regions:.2}")),
            percent(htm.started - htm.committed),
            percent(htm.aborted_conflict),
            percent(htm.aborted_capacity),
            percent(htm.aborted_system_event),
            percent(htm.aborted_explicit),
            percent(htm.fallbacks),
        ]);
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the repairs; `None` without repairs.
fn repairs(reports: &[Report<'_>]) -> Option<Table> {
    let mut table = numeric(&["protocol"], &Repairs::HEADINGS);
    for report in reports {
        if let Some(repairs) = &report.repairs {
            let cells = repairs.cells(report.committed);
            table.add_row(std::iter::once(report.label.to_owned()).chain(cells));
        }
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the counts of pieces; `None` if no protocol ran pieces.
fn pieces(reports: &[Report<'_>]) -> Option<Table> {
    let mut table = numeric(&["protocol"], &Pieces::HEADINGS);
    for report in reports {
        if let Some(pieces) = &report.pieces {
            let cells = pieces.cells(report.committed);
            table.add_row(std::iter::once(report.label.to_owned()).chain(cells));
        }
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the counts of phases; `None` if no protocol has phases.
fn phases(reports: &[Report<'_>]) -> Option<Table> {
    let mut table = numeric(&["protocol"], &Phases::HEADINGS);
    for report in reports {
        if let Some(phases) = &report.phases {
            table.add_row(std::iter::once(report.label.to_owned()).chain(phases.cells()));
        }
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the memory of the process, with all of its databases. The last column is the memory of one database.
fn memory(reports: &[Report<'_>]) -> Table {
    let mut table = numeric(
        &["protocol"],
        &["resident before load", "after load", "after last round", "rows and indexes"],
    );
    let known = |bytes: Option<u64>| bytes.map_or("-".to_owned(), size);
    for report in reports {
        table.add_row([
            report.label.to_owned(),
            known(report.memory.resident_before_load_bytes),
            known(report.memory.resident_after_load_bytes),
            known(report.memory.resident_after_run_bytes),
            size(report.memory.chunk_bytes),
        ]);
    }
    table
}

/// Returns what was written to the logs; `None` without logs.
fn log(reports: &[Report<'_>]) -> Option<Table> {
    let mut table = numeric(
        &["protocol"],
        &["log", "bytes/write tx", "epochs", "syncs", "sync mean µs", "durable p50 µs", "p99 µs"],
    );
    for report in reports {
        let Some(log) = &report.log else { continue };
        let shown = |pick: fn(&Latency) -> f64| {
            // The latency of commits that waited for the log, or else that of the probe.
            let latency = log.acknowledged_us.as_ref().or(log.durable_after_us.as_ref());
            latency.map_or("-".to_owned(), |latency| microseconds(pick(latency)))
        };
        table.add_row([
            report.label.to_owned(),
            size(log.bytes_written),
            log.bytes_per_transaction.map_or("-".to_owned(), |bytes| format!("{bytes:.1}")),
            grouped(log.epochs_written),
            grouped(log.syncs),
            log.sync_mean_us.map_or("-".to_owned(), microseconds),
            shown(|latency| latency.p50),
            shown(|latency| latency.p99),
        ]);
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the versions kept for snapshots; `None` if snapshots are not used.
fn versions(reports: &[Report<'_>]) -> Option<Table> {
    let mut table = numeric(&["protocol"], &["versions held for snapshots, at most"]);
    for report in reports.iter().filter(|report| report.snapshots.are_used()) {
        table.add_row([report.label.to_owned(), grouped(report.versions_held)]);
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the result of the verification; `None` without `--verify`.
fn verdict(report: &Report<'_>) -> Option<String> {
    let conditions = report.conditions.as_ref()?;
    let checked = conditions.iter().map(|condition| condition.checked).sum();
    let broken = conditions.iter().filter(|condition| !condition.holds).count();
    Some(if broken == 0 {
        format!(
            "verified, all {} hold ({} made)",
            counted(conditions.len() as u64, "condition"),
            counted(checked, "check")
        )
    } else {
        format!("NOT CORRECT, {broken} of {} broken", counted(conditions.len() as u64, "condition"))
    })
}
