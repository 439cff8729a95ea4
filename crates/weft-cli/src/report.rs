//! `weft report`: shows what a flight recorder has recorded.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use weft_bench::numbers::counted;
use weft_bench::stop::Stop;
use weft_inspect::report::Count;
use weft_inspect::{Entry, FLIGHT_FILE, Flight, PREVIOUS_FLIGHT_FILE, Report, page};

/// The most lines of the table over time.
const LINES_MAX: usize = 20;

/// The help text below the options.
const EXAMPLE: &str = "\
Example: a program has crashed, and runs again.

  $ weft report /var/lib/shop --previous
  $ weft report /var/lib/shop --previous --page shop.html

The recorder is weft_inspect::FlightRecorder. Exit code: 0, also if some records are damaged; 2 if the file cannot be read.";

/// The options of `weft report`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLE)]
pub struct ReportArguments {
    /// A flight recorder's file, or a database's directory that has one
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// In a directory, read the file of the recorder before the last one
    #[arg(long)]
    previous: bool,

    /// Print everything as one JSON object
    #[arg(long, conflicts_with = "page")]
    json: bool,

    /// Write a page for a browser, with everything inside
    #[arg(long, value_name = "HTML")]
    page: Option<PathBuf>,
}

/// What was recorded, as JSON.
#[derive(Serialize)]
struct Recorded<'f> {
    file: String,
    reports: Vec<&'f Report>,
    panics: Vec<Panic<'f>>,
    skipped: &'f [String],
}

#[derive(Serialize)]
struct Panic<'f> {
    unix_us: u64,
    message: &'f str,
}

/// Runs the command.
///
/// # Errors
/// If the file cannot be read, or the output cannot be written.
pub fn run(arguments: &ReportArguments) -> Result<(), Stop> {
    let name = if arguments.previous { PREVIOUS_FLIGHT_FILE } else { FLIGHT_FILE };
    let file = match arguments.file.is_dir() {
        true => arguments.file.join(name),
        false => arguments.file.clone(),
    };
    let flight = Flight::read(&file)
        .map_err(|error| Stop::Usage(format!("cannot read {}: {error}", file.display())))?;
    let panics: Vec<_> = flight
        .entries
        .iter()
        .filter_map(|(unix_us, entry)| match entry {
            Entry::Panic(message) => Some(Panic { unix_us: *unix_us, message }),
            _ => None,
        })
        .collect();
    let mut output = std::io::stdout().lock();
    if let Some(page) = &arguments.page {
        return write_page(page, &flight, &panics);
    }
    if arguments.json {
        let recorded = Recorded {
            file: file.display().to_string(),
            reports: flight.reports().collect(),
            panics,
            skipped: &flight.skipped,
        };
        serde_json::to_writer(&mut output, &recorded).map_err(std::io::Error::from)?;
        writeln!(output)?;
        return Ok(());
    }
    write!(output, "{}", text(&file, &flight, &panics))?;
    Ok(())
}

/// Returns the notes that stand above the reports.
fn notes(flight: &Flight, panics: &[Panic<'_>]) -> Vec<String> {
    let panics =
        panics.iter().map(|panic| format!("{}: {}", time_of(panic.unix_us), panic.message));
    let skipped = flight.skipped.iter().map(|message| format!("skipped: {message}"));
    panics.chain(skipped).collect()
}

fn write_page(path: &Path, flight: &Flight, panics: &[Panic<'_>]) -> Result<(), Stop> {
    let page = page::of_recorded(flight.reports(), &notes(flight, panics));
    std::fs::write(path, page)
        .map_err(|error| Stop::Usage(format!("cannot write {}: {error}", path.display())))
}

fn time_of(unix_us: u64) -> String {
    // Later times cannot be printed.
    let seconds_max = Duration::from_secs(253_402_300_799);
    let time = UNIX_EPOCH + Duration::from_micros(unix_us).min(seconds_max);
    humantime::format_rfc3339_millis(time).to_string()
}

fn text(file: &Path, flight: &Flight, panics: &[Panic<'_>]) -> String {
    let reports: Vec<_> = flight.reports().collect();
    let mut text = format!("{}: {}", file.display(), counted(reports.len() as u64, "report"));
    if let [first, .., last] = &*reports {
        let time_of = |report: &Report| time_of(report.taken_unix_ms.saturating_mul(1000));
        text += &format!(", from {} to {}", time_of(first), time_of(last));
    }
    text += "\n";
    for note in notes(flight, panics) {
        text += &format!("{note}\n");
    }
    if reports.len() > 1 {
        text += &format!("\n{}\n", over_time(&reports));
    }
    if let Some(last) = reports.last() {
        text += &format!("\nThe last report:\n\n{last}");
    }
    text
}

/// Returns a table of what happened between some of the reports.
fn over_time(reports: &[&Report]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "until",
        "committed/s",
        "aborted/s",
        "oldest transaction ms",
        "log epochs behind",
        "memory MiB",
    ]);
    table.column_iter_mut().skip(1).for_each(|column| {
        column.set_cell_alignment(CellAlignment::Right);
    });
    let step = (reports.len() - 1).div_ceil(LINES_MAX);
    let chosen: Vec<_> =
        reports.iter().rev().step_by(step).collect::<Vec<_>>().into_iter().rev().collect();
    for pair in chosen.windows(2) {
        let (before, report) = (&pair[0].totals, &pair[1].totals);
        let millis = pair[1].taken_unix_ms.saturating_sub(pair[0].taken_unix_ms).max(1);
        let rate = |before: u64, now: u64| now.saturating_sub(before) * 1000 / millis;
        let sum = |counts: &[Count]| counts.iter().map(|count| count.count).sum();
        let log = report.log.as_ref().map_or(String::new(), |log| log.lag_epochs.to_string());
        table.add_row([
            time_of(pair[1].taken_unix_ms.saturating_mul(1000)),
            rate(before.committed, report.committed).to_string(),
            rate(sum(&before.aborts), sum(&report.aborts)).to_string(),
            report.oldest_transaction_ns.map_or(String::new(), |age| (age / 1_000_000).to_string()),
            log,
            (report.used_bytes >> 20).to_string(),
        ]);
    }
    table
}
