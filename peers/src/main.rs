//! Measures Weft beside systems that you could use instead, and prints a table of their speeds.
//!
//! `cargo run --release --manifest-path peers/Cargo.toml`, from the root of the repository. The modules, in reading
//! order:
//!
//! - [`store`]: the interface of a compared system, and the rows; [`stores`]: the systems, one file each;
//! - [`workloads`]: the transactions, one file for each workload;
//! - [`round`]: the measurement of one system; [`disturbance`]: whether other processes computed during it;
//! - [`turns`]: the order of the rounds; [`median`];
//! - [`systems`]: the list of systems; [`options`], [`machine`] and [`report`];
//! - [`orders`]: another measurement, of the orders of a web shop.

mod disturbance;
mod machine;
mod median;
mod options;
mod orders;
mod report;
mod round;
mod store;
mod stores;
mod systems;
mod turns;
mod workloads;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use mimalloc::MiMalloc;

use machine::Machine;
use options::Options;
use report::{Cell, Report};
use round::Plan;
use store::Result;
use systems::{System, WorkloadName};
use turns::{Entrant, Speed};

/// Systems that allocate memory for each transaction are faster with it: SurrealMX by a quarter, LMDB and redb by a
/// tenth. Weft is a tenth slower on the hot counter with one thread, and otherwise as fast as without.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    // An output that cannot be written is an error now, not in three minutes.
    if let Some(path) = &options.json {
        write(path, "")?;
    }
    let readme = readme_path();
    if options.readme {
        replaced_readme(&readme, "")?;
    }

    if options.orders {
        print!("{}", orders::measure(options, &plan(options), &Progress::new())?);
        return Ok(());
    }
    let report = measure(options)?;
    let table = report.markdown();
    print!("{table}");
    if let Some(path) = &options.json {
        write(path, &report.json()?)?;
    }
    if options.readme {
        write(&readme, &replaced_readme(&readme, &table)?)?;
    }
    Ok(())
}

/// Writes a file.
fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Returns the text of README.md with another table.
fn replaced_readme(path: &Path, table: &str) -> Result<String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    report::replace_table(&text, table)
        .map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Returns the path of the repository's README.md.
fn readme_path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "README.md"].iter().collect()
}

/// Returns the length of a round.
fn plan(options: &Options) -> Plan {
    Plan {
        processors: Machine::this().processors,
        warmup: options.seconds / 5,
        measured: options.seconds,
    }
}

/// Measures all columns of the table.
fn measure(options: &Options) -> Result<Report> {
    let (machine, plan) = (Machine::this(), plan(options));
    let progress = Progress::new();
    let mut cells = Vec::new();
    for &workload in options.workloads() {
        // One thread loads, whatever number the others have.
        let threads = match workload {
            WorkloadName::Load => vec![1],
            _ => options.threads(machine.processors),
        };
        for threads in threads {
            cells.extend(measure_column(options, &plan, (workload, threads), &progress)?);
        }
    }
    if cells.is_empty() {
        return Err("none of these systems is measured under these workloads; see --help".into());
    }
    let rounds = options.rounds.into();
    Ok(Report { machine, seconds: options.seconds.as_secs_f64(), rounds, cells })
}

/// Measures one column of the table: all systems under one workload with one number of threads.
fn measure_column(
    options: &Options,
    plan: &Plan,
    (workload, threads): (WorkloadName, usize),
    progress: &Progress,
) -> Result<Vec<Cell>> {
    let all = System::value_variants().iter().copied();
    let systems: Vec<_> = all.filter(|system| options.include(*system, workload)).collect();
    if systems.is_empty() {
        return Ok(Vec::new());
    }
    let column = report::column_title(workload, threads);
    progress.show(&format!("{column}: inserting the rows"));
    let mut entrants = Vec::with_capacity(systems.len());
    for system in &systems {
        let name = format!("{column}, {}", system.name());
        let contender =
            system.open(workload, threads).map_err(|error| format!("{name}: {error}"))?;
        entrants.push(Entrant { name, contender, rounds: Vec::new() });
    }

    let rounds = usize::from(options.rounds);
    turns::take_turns(&mut entrants, plan, rounds, &|turn, name| {
        progress.show(&format!("{name}: round {turn} of {rounds}"));
    })?;

    let mut cells = Vec::with_capacity(systems.len());
    for (system, entrant) in systems.into_iter().zip(entrants) {
        entrant.contender.verify().map_err(|error| format!("{}: {error}", entrant.name))?;
        let speed = Speed::of(&entrant.rounds, rounds).ok_or("there is at least one round")?;
        cells.push(Cell { system, workload, threads, speed, rounds: entrant.rounds });
    }
    Ok(cells)
}

/// One line on standard error that says what is being measured, if that is a terminal.
struct Progress {
    is_terminal: bool,
}

/// Clears a terminal's line from the cursor on.
const CLEAR_LINE: &str = "\x1b[K";

impl Progress {
    fn new() -> Self {
        Progress { is_terminal: std::io::stderr().is_terminal() }
    }

    /// Replaces the line.
    fn show(&self, text: &str) {
        if self.is_terminal {
            eprint!("\r{CLEAR_LINE}{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}
