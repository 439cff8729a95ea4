//! One harness for every workload and every protocol.
//!
//! A benchmark goes through these steps, in the order of [`run`]:
//!
//! 1. **Check**: what the options ask for together can be had, and the file for the results can be
//!    written. Nobody should learn that after the run.
//! 2. **Load**: each protocol gets a database of its own (`contender`), which it keeps to the end.
//! 3. **Rounds**: the protocols take turns, one at a time on the machine (`round`):
//!
//!    ```text
//!    |warm-up| none, seconds |warm-up| dbx, seconds |warm-up| none, seconds |warm-up| dbx, …
//!    '----------------- round 1 -------------------''-------------- round 2 --------------
//!    ```
//!
//!    So a machine that slows down for a while slows all protocols down, and a protocol is compared
//!    with another within a round, where the two lie closest in time. Every round begins with a
//!    warm-up, since the caches hold the other protocol's database then.
//! 4. **Verify**, if asked for: the workload's invariants on every database.
//! 5. **Report**: one set of numbers (`report`), as tables for people and as JSON for programs.
//!
//! What is said here of protocols holds for all that takes turns: a protocol may take part several
//! times, with a log and without, with snapshots and without (`contender::Variant`). A database
//! with a log has a directory of its own (`scratch`), and its log is written to the end before the
//! next one's turn.
//!
//! `timeline` writes throughput over time, if asked for. `compare` puts the results of two calls side by side.
//!
//! The middle of the rounds is their median, and a ratio is the median of the rounds' ratios
//! (`statistics`). How latencies are taken is told in `tally`.

pub mod compare;
pub mod contender;
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
use weft_workloads::dbx_tc;
use weft_workloads::htcc::{NOT_SERIALIZABLE, is_serializable, options_of};
use weft_workloads::snapshots::Snapshots;
use weft_workloads::variants::protocol_of;
use weft_workloads::workload::{Condition, LoadOptions, StorageOptions};

use crate::arguments::BenchArguments;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::{memory, numbers};

use contender::{Benchmark, Contender, Variant};
use report::json::JsonOutput;
pub use report::json::JsonTarget;
pub use report::table::{numeric, plain};
use report::{Description, Report, table};
use round::{Plan, Round};
use scratch::Scratch;

/// What the harness has to be told about one call, apart from the options of every benchmark.
pub struct Subject {
    /// The heading, such as `TPC-C, standard mix, 4 warehouses`.
    pub title: String,
    /// The workload's own options, as they are called in the JSON.
    pub options: Vec<(&'static str, serde_json::Value)>,
    /// How many operations one transaction has, if the workload counts them.
    pub operations: Option<u32>,
    /// The share of each transaction type that succeeds by the workload's specification, if it
    /// states that; what does not succeed is counted as rolled back.
    pub success_rates: Option<&'static [f64]>,
    /// Whether each transaction is one access of one row, which is all that some protocols can do.
    pub is_single_key: bool,
    /// On which snapshots read-only transactions run, in turns.
    pub snapshots: Vec<Snapshots>,
    /// About how much memory one loaded database takes.
    pub loaded_bytes: u64,
    /// By how much it grows in a second, at most, for each thread that runs transactions.
    pub growth_bytes_per_second: u64,
}

/// One contender's part in the benchmark, and what has been measured of it so far.
struct Entry {
    /// What it is called, with its number if it takes part more than once.
    label: String,
    variant: Variant,
    contender: Box<dyn Contender>,
    /// Goes after the database in it.
    _directory: Option<Scratch>,
    rounds: Vec<Round>,
    memory: report::Resident,
    conditions: Option<Vec<Condition>>,
}

/// Runs a benchmark from the options to the report, which goes to `out`.
///
/// # Errors
/// Options that ask for something that cannot be had, a failure of the engine, or a condition that
/// does not hold; in the last case after the report.
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
    // A program that reads the JSON from standard output wants nothing else there.
    if let Some(parent) = &arguments.directory {
        // Whether it can be written is known before anything is announced.
        drop(Scratch::create(parent, 0)?);
    }
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
    let shown = show(&reports(&entries, &description), json.as_ref(), for_people, out);
    // A wrong result outweighs that it could not be shown, or that nobody read it to the end.
    broken_conditions(&entries)?;
    shown.and(drawn)
}

/// Writes the results wherever they were asked for.
fn show(
    reports: &[Report<'_>],
    json: Option<&JsonTarget>,
    for_people: bool,
    out: &mut impl Write,
) -> Result<(), Stop> {
    if let Some(target) = json {
        target.write(&JsonOutput(reports), out)?;
    }
    if for_people {
        write!(out, "{}", table::Tables(reports))?;
    }
    Ok(())
}

/// Checks what depends on more than one option, or on the machine.
fn check(arguments: &BenchArguments, subject: &Subject) -> Result<weft::htm::Choice, Stop> {
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
        Some(choice) => choice,
        None => weft::htm::Choice::from_environment()
            .map_err(|invalid| Stop::Usage(invalid.to_string()))?
            .unwrap_or_default(),
    };
    match weft::htm::Htm::open(htm, weft::htm::RetryPolicy::default()) {
        Ok(_) => Ok(htm),
        Err(unavailable) => Err(Stop::Usage(format!(
            "{unavailable}; --htm auto and --htm software work on every machine"
        ))),
    }
}

/// Says what is about to run, and for how long.
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

/// For how long each database is used.
fn database_seconds(arguments: &BenchArguments) -> f64 {
    (arguments.seconds + arguments.warmup) * arguments.rounds as f64
}

/// Warns before a run that the machine may be too small for; the system would end it with no word.
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

/// Whoever takes part, in order.
fn variants(arguments: &BenchArguments, subject: &Subject) -> Vec<Variant> {
    let mut variants = Vec::new();
    for protocol in &arguments.protocol {
        for &acknowledge in arguments.acknowledges() {
            for &snapshots in &subject.snapshots {
                variants.push(Variant { protocol: protocol.clone(), snapshots, acknowledge });
            }
        }
    }
    variants
}

/// Loads a database for each contender.
fn load(
    arguments: &BenchArguments,
    htm: weft::htm::Choice,
    benchmark: &dyn Benchmark,
    variants: &[Variant],
) -> Result<Vec<Entry>, Stop> {
    let mut entries: Vec<Entry> = Vec::with_capacity(variants.len());
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
        let htcc = options_of(&variant.protocol, &arguments.hot_tables);
        let dbx_tc = dbx_tc::options_of(&variant.protocol);
        let options = LoadOptions {
            seed: arguments.seed,
            threads: arguments.threads,
            htm,
            reserve_bytes: arguments.reserve_mib << 20,
            phase_length: arguments.phase_length(),
            conflict_retries: arguments.conflict_retries,
            htcc: htcc.as_ref(),
            dbx_tc: dbx_tc.as_ref(),
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
        entries.push(Entry {
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

/// Runs all rounds, the protocols in turns.
fn run_rounds(entries: &mut [Entry], arguments: &BenchArguments, plan: &Plan) -> Result<(), Stop> {
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

/// One report per protocol, the first one's rounds being what the others' are divided by.
fn reports<'a>(entries: &'a [Entry], description: &'a Description) -> Vec<Report<'a>> {
    let first = &entries[0].rounds;
    entries
        .iter()
        .map(|entry| {
            let conditions = entry.conditions.as_deref();
            Report::new(
                description,
                (entry.label.as_str(), &entry.variant),
                &*entry.contender,
                &entry.rounds,
                first,
                &entry.memory,
                conditions,
            )
        })
        .collect()
}

/// Fails with every condition that does not hold, both sides named.
fn broken_conditions(entries: &[Entry]) -> Result<(), Stop> {
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

/// A span of the options, whose bounds the parser has checked.
fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
