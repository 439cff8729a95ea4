//! One harness for every workload and every protocol.
//!
//! A benchmark goes through these steps, in the order of [`run`]:
//!
//! 1. **Check**: whether the options together are possible, and whether the file for the results can be written, so
//!    that such an error shows before the run and not after it.
//! 2. **Load**: each protocol gets a database of its own (`contender`), which it keeps to the end.
//! 3. **Rounds**: the protocols take turns, one at a time on the machine (`round`):
//!
//!    ```text
//!    |warm-up| none, seconds |warm-up| dbx, seconds |warm-up| none, seconds |warm-up| dbx, …
//!    '----------------- round 1 -------------------''-------------- round 2 --------------
//!    ```
//!
//!    So a machine that slows down for a while slows all protocols down, and a protocol is compared
//!    with another within a round, where the two are closest in time. Every round begins with a
//!    warm-up, because the caches then hold the other protocol's database.
//! 4. **Verify**, if asked for: the workload's invariants on every database.
//! 5. **Report**: one set of numbers (`report`), as tables for people and as JSON for programs.
//!
//! Everything said here about protocols holds for all contenders: a protocol may take part several times, with and
//! without a log, with and without snapshots (`contender::Variant`). A database with a log has a directory of its
//! own (`scratch`). Its log is written completely before the next contender's turn.
//!
//! `timeline` writes throughput over time, if asked for. `compare` compares the results of two runs.
//!
//! The result of the rounds is their median, and a ratio is the median of the rounds' ratios (`statistics`).
//! `tally` explains how latencies are measured.

pub mod compare;
pub mod contender;
mod elsewhere;
mod probe;
mod report;
pub mod round;
mod scratch;
mod statistics;
pub mod tally;
#[cfg(test)]
mod tests;
pub mod timeline;

use std::io::{self, Write};
use std::time::Duration;

use weft_options::protocols;
use weft_workloads::htcc::{NOT_SERIALIZABLE, is_serializable, options_of};
use weft_workloads::snapshots::Snapshots;
use weft_workloads::variants::protocol_of;
use weft_workloads::workload::{Condition, LoadOptions, StorageOptions};
use weft_workloads::{adaptive, dbx, dbx_tc, doppel, paper};

use crate::arguments::{BenchArguments, Observation};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::{memory, numbers};

use contender::{Benchmark, Contender, Variant};
use report::json::JsonOutput;
pub use report::json::{JsonTarget, try_to_write};
pub use report::table::{numeric, plain};
use report::{Description, Report, table};
use round::{Plan, Round};
use scratch::Scratch;
pub use statistics::Spread;

/// The description of one run for the harness, besides the options of every benchmark.
pub struct Subject {
    /// The heading, such as `TPC-C, standard mix, 4 warehouses`.
    pub title: String,
    /// The workload's own options, with their names in the JSON.
    pub options: Vec<(&'static str, serde_json::Value)>,
    /// The number of operations in a transaction, if the workload counts them.
    pub operations: Option<u32>,
    /// The share of each transaction type that succeeds by the workload's specification, if the specification
    /// states it. A transaction that does not succeed is counted as rolled back.
    pub success_rates: Option<&'static [f64]>,
    /// Whether each transaction is one access to one row. Some protocols can run only such transactions.
    pub is_single_key: bool,
    /// The snapshots on which read-only transactions run, in turns.
    pub snapshots: Vec<Snapshots>,
    /// The approximate bytes of memory of one loaded database.
    pub loaded_bytes: u64,
    /// An upper bound of its growth in bytes per second, for each thread that runs transactions.
    pub growth_bytes_per_second: u64,
}

/// A contender's entry in the benchmark, and its measurements so far.
struct BenchmarkEntry {
    /// Its name, with a number if it takes part more than once.
    label: String,
    variant: Variant,
    contender: Box<dyn Contender>,
    /// Declared after `contender`, so that the directory is removed after the database in it is dropped.
    _directory: Option<Scratch>,
    rounds: Vec<Round>,
    memory: report::Resident,
    conditions: Option<Vec<Condition>>,
}

/// Runs a benchmark from the options to the report, which is written to `out`.
///
/// # Errors
/// The options ask for something impossible, the engine fails, or a condition does not hold; the last error comes
/// after the report.
pub fn run(
    arguments: &BenchArguments,
    benchmark: &dyn Benchmark,
    subject: Subject,
    out: &mut impl Write,
) -> Result<(), Stop> {
    let htm = check(arguments, &subject)?;
    let plan = Plan::new(arguments);
    let json = arguments.json.as_deref().map(JsonTarget::check).transpose()?;
    timeline::check(&arguments.timeline)?;
    if let Some(parent) = &arguments.directory {
        // Before anything is announced, make sure that the directory can be written.
        drop(Scratch::create(parent, 0)?);
    }
    // A program that reads the JSON from standard output needs it to contain nothing else.
    let for_people = !matches!(&json, Some(target) if target.is_standard_output());
    if for_people {
        heading(arguments, &plan, &subject, out)?;
    }
    warn_if_too_large(arguments, &subject);

    let mut entries = load(arguments, htm, benchmark, &variants(arguments, &subject))?;
    run_rounds(&mut entries, arguments, &plan)?;
    if arguments.verify {
        for entry in &mut entries {
            let progress = Progress::new(&format!("verifying {}", entry.label));
            entry.conditions = Some(entry.contender.verify(&progress)?);
        }
    }

    let rounds = entries.iter().map(|entry| (entry.label.as_str(), entry.rounds.as_slice()));
    let drawn = timeline::write(&arguments.timeline, &subject.title, rounds, benchmark.change());
    let description = Description::new(arguments, &plan, subject);
    let reports = reports(&entries, &description, benchmark.shows_threads());
    let shown = show(&reports, json.as_ref(), for_people, out);
    // A broken condition matters more than an error in showing the results.
    broken_conditions(&entries)?;
    shown.and(drawn)
}

/// Writes the results to the JSON target and, unless JSON replaces it, the report to `out`. If one of the two cannot be
/// written, the other one is.
fn show(
    reports: &[Report<'_>],
    json: Option<&JsonTarget>,
    for_people: bool,
    out: &mut impl Write,
) -> Result<(), Stop> {
    let written = json.map_or(Ok(()), |target| target.write(&JsonOutput(reports), out));
    let shown = match for_people {
        true => write!(out, "{}", table::Tables(reports)).map_err(Stop::from),
        false => Ok(()),
    };
    written.and(shown)
}

/// Checks what depends on several options or on the machine, and returns the choice of the HTM backend.
fn check(arguments: &BenchArguments, subject: &Subject) -> Result<Option<weft::htm::Choice>, Stop> {
    paper::check(arguments.protocol.iter().map(String::as_str), &arguments.paper)
        .map_err(Stop::Usage)?;
    for name in &arguments.protocol {
        let protocol = protocols::describe(protocol_of(name));
        if protocol.single_key && !subject.is_single_key {
            return Err(Stop::Usage(format!(
                "protocol '{name}' makes only single accesses of single rows atomic: it runs `cargo \
                 lab bench incr`, and `cargo lab bench ycsb` with --operations 1 and no shares of \
                 --insert and --scan, and nothing else"
            )));
        }
        if arguments.verify && !is_serializable(name) {
            return Err(Stop::Usage(format!("{name} {NOT_SERIALIZABLE}")));
        }
        if let Some(threads_max) = protocols::threads_max(protocol)
            && arguments.threads > threads_max
        {
            let allowed = match threads_max {
                1 => "--threads 1".to_owned(),
                more => format!("--threads 1 to {more}"),
            };
            return Err(Stop::Usage(format!(
                "protocol '{name}' allows only {allowed}, not {}",
                arguments.threads
            )));
        }
    }
    let htm = match arguments.htm {
        Some(choice) => Some(choice),
        None => weft::htm::Choice::from_environment()
            .map_err(|invalid| Stop::Usage(invalid.to_string()))?,
    };
    match weft::htm::Htm::open(htm.unwrap_or_default(), weft::htm::RetryPolicy::default()) {
        Ok(_) => Ok(htm),
        Err(unavailable) => Err(Stop::Usage(format!(
            "{unavailable}; --htm auto and --htm software work on every machine"
        ))),
    }
}

/// Prints what is about to run, and for how long.
fn heading(
    arguments: &BenchArguments,
    plan: &Plan,
    subject: &Subject,
    out: &mut impl Write,
) -> Result<(), Stop> {
    let variants = variants(arguments, subject);
    let labels: Vec<String> = variants.iter().map(Variant::label).collect();
    let seconds = database_seconds(arguments) * variants.len() as f64;
    writeln!(
        out,
        "{}; {}{}, seed {}",
        subject.title,
        numbers::counted(arguments.threads as u64, "thread"),
        if plan.cores.is_empty() { " (not pinned: too few cores)" } else { "" },
        arguments.seed
    )?;
    writeln!(
        out,
        "{}: {} of {}, each after {} of warm-up; {} in all, and the load",
        labels.join(", "),
        numbers::counted(arguments.rounds, "round"),
        numbers::span(arguments.seconds),
        numbers::span(arguments.warmup),
        numbers::span(seconds)
    )?;
    if variants.len() > 1 {
        writeln!(out, "They take turns, and each has a database of its own.")?;
    }
    Ok(())
}

/// Returns the seconds for which each database is used.
fn database_seconds(arguments: &BenchArguments) -> f64 {
    (arguments.seconds + arguments.warmup) * arguments.rounds as f64
}

/// Warns if the run may need more memory than the machine has; the system would kill it without a message.
fn warn_if_too_large(arguments: &BenchArguments, subject: &Subject) {
    let growth = subject.growth_bytes_per_second as f64
        * arguments.threads as f64
        * database_seconds(arguments);
    let database_bytes = subject.loaded_bytes as f64 + growth;
    let databases = variants(arguments, subject).len() as u64;
    let needed = (database_bytes * databases as f64) as u64;
    if let Some(available) = memory::available_bytes()
        && needed > available
    {
        let _ = writeln!(
            io::stderr(),
            "warning: {} may grow to {} of memory, and {} are free; the system may end the run",
            numbers::counted(databases, "database"),
            numbers::size(needed),
            numbers::size(available)
        );
    }
}

/// Returns the contenders' variants, in order.
fn variants(arguments: &BenchArguments, subject: &Subject) -> Vec<Variant> {
    let mut variants = Vec::new();
    for protocol in &arguments.protocol {
        for &acknowledge in arguments.acknowledges() {
            for &snapshots in &subject.snapshots {
                for &observation in &arguments.contention {
                    let protocol = protocol.clone();
                    variants.push(Variant { protocol, snapshots, acknowledge, observation });
                }
            }
        }
    }
    variants
}

/// Loads a database for each contender.
fn load(
    arguments: &BenchArguments,
    htm: Option<weft::htm::Choice>,
    benchmark: &dyn Benchmark,
    variants: &[Variant],
) -> Result<Vec<BenchmarkEntry>, Stop> {
    let mut entries: Vec<BenchmarkEntry> = Vec::with_capacity(variants.len());
    for variant in variants {
        let name = variant.label();
        let earlier = entries.iter().filter(|entry| entry.variant.label() == name).count();
        let label = if earlier == 0 { name } else { format!("{name} ({})", earlier + 1) };
        let durability = variant.acknowledge.mode().map(|mode| arguments.durability(mode));
        let directory = match (&arguments.directory, &durability) {
            (Some(parent), Some(_)) => Some(Scratch::create(parent, entries.len())?),
            _ => None,
        };
        let before_load_bytes = memory::resident_bytes();
        let progress = Progress::new(&format!("loading {label}"));
        let dbx_paper = dbx::options_of(&variant.protocol, &arguments.paper);
        let htcc = options_of(&variant.protocol, &arguments.hot_tables, &arguments.paper);
        let doppel = doppel::options_of(&variant.protocol, &arguments.paper);
        let dbx_tc = dbx_tc::options_of(&variant.protocol, &arguments.paper);
        let adaptive = adaptive::options_of(&variant.protocol);
        let is_observed = variant.observation == Observation::On;
        let observer = is_observed.then(|| weft_inspect::observer(None));
        let options = LoadOptions {
            seed: arguments.seed,
            threads: arguments.threads,
            htm,
            reserve_bytes: arguments.reserve_mib << 20,
            phase_length: arguments.phase_length(),
            conflict_retries: arguments.conflict_retries,
            capacity_retries: arguments.capacity_retries,
            by_rows: arguments.by_rows,
            dbx_paper,
            doppel: doppel.as_ref(),
            htcc: htcc.as_ref(),
            dbx_tc: dbx_tc.as_ref(),
            adaptive: adaptive.as_ref(),
            observer: observer.as_ref(),
            storage: directory.as_ref().zip(durability.as_ref()).map(|(directory, durability)| {
                StorageOptions { directory: directory.path(), durability }
            }),
            progress: &|done, total| progress.set(done, total),
        };
        let contender = benchmark.load(variant, &options)?;
        let memory = report::Resident {
            before_load_bytes,
            after_load_bytes: memory::resident_bytes(),
            after_run_bytes: None,
        };
        entries.push(BenchmarkEntry {
            label,
            variant: variant.clone(),
            contender,
            _directory: directory,
            rounds: Vec::new(),
            memory,
            conditions: None,
        });
    }
    Ok(entries)
}

/// Runs all rounds, with the contenders in turns.
fn run_rounds(
    entries: &mut [BenchmarkEntry],
    arguments: &BenchArguments,
    plan: &Plan,
) -> Result<(), Stop> {
    for round in 1..=arguments.rounds {
        for entry in &mut *entries {
            let label = format!("{} round {round} of {}", entry.label, arguments.rounds);
            let measured = entry.contender.round(plan, &Progress::new(&label))?;
            entry.rounds.push(measured);
            entry.memory.after_run_bytes = memory::resident_bytes();
        }
    }
    Ok(())
}

/// Returns a report for each contender. The rounds of the first are the base of the others' ratios.
fn reports<'a>(
    entries: &'a [BenchmarkEntry],
    description: &'a Description,
    shows_threads: bool,
) -> Vec<Report<'a>> {
    let first = &entries[0].rounds;
    entries
        .iter()
        .map(|entry| {
            let conditions = entry.conditions.as_deref();
            let report = Report::new(
                description,
                (entry.label.as_str(), &entry.variant),
                &*entry.contender,
                &entry.rounds,
                first,
                &entry.memory,
                conditions,
            );
            Report { shows_threads, ..report }
        })
        .collect()
}

/// Returns an error that names every condition that does not hold, with both sides.
fn broken_conditions(entries: &[BenchmarkEntry]) -> Result<(), Stop> {
    let broken: Vec<String> = entries
        .iter()
        .flat_map(|entry| {
            let conditions = entry.conditions.iter().flatten();
            conditions
                .filter(|condition| !condition.holds)
                .map(|condition| format!("\n  {}: {condition}", entry.label))
        })
        .collect();
    if broken.is_empty() {
        Ok(())
    } else {
        Err(Stop::Failed(format!("verification failed:{}", broken.concat())))
    }
}

/// Converts a number of seconds whose bounds the parser has checked.
fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
