//! `weft log`: what a database's directory contains, and whether it is intact.

use std::io::{self, Write};
use std::path::Path;

use clap::{Args, Subcommand};
use serde::Serialize;
use weft::description::TableDescription;
use weft::durability::{
    FileSystem, Report, SegmentReport, StorageError, TableReport, inspect, lock_for_reading, verify,
};

use super::{DirectoryArguments, report};
use weft_bench::harness::numeric;
use weft_bench::numbers::{counted, grouped};
use weft_bench::stop::Stop;

/// The help text below the options of `weft log inspect`.
const ABOUT_INSPECT: &str = "\
The report shows:
  tables    each table, by its stored description. A table whose rows were once stored in another
            way appears twice; the one marked `old` is no longer written
  segments  the files of the log. A `sealed` segment was completed by an earlier run. A frame is a
            part with a checksum of its own. After a crash an epoch is kept or lost as a whole
  cuts      the end of a log that was being written when the power failed or the process was
            killed. It was never acknowledged as durable; opening the database cuts it off
  leftovers files that a checkpoint has made unnecessary; opening the database removes them

The command writes nothing. It also works while the database is open, and then says so.

Exit code: 0 if nothing is wrong; 1 if something is damaged; 2 if DIR is not a database or cannot be
read.";

/// The help text below the options of `weft log verify`.
const ABOUT_VERIFY: &str = "\
The command reads every byte of the log and of the checkpoint. It checks the checksums, the order of
the epochs, that no epoch is missing that was acknowledged as durable, and that each row and each
key fits its table. It prints every problem, not only the first one, with file and offset.

A torn tail, as a crash leaves it, is not damage; it is mentioned.

The command writes nothing. It also works while the database is open, and then says so.

Exit code: 0 if the database is intact; 1 if it is not; 2 if DIR is not a database or cannot be
read.";

/// The commands of `weft log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Show what the directory holds: the state it recovers to, tables, segments, and what a crash left
    #[command(after_long_help = ABOUT_INSPECT)]
    Inspect(LogArguments),
    /// Read everything in the directory, row by row, and print every problem
    #[command(after_long_help = ABOUT_VERIFY)]
    Verify(LogArguments),
}

/// The options of both commands.
#[derive(Args, Debug)]
pub struct LogArguments {
    #[command(flatten)]
    directory: DirectoryArguments,

    /// Print one JSON object in place of the report
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// The directory holds no database or cannot be read, something is damaged, or the results cannot
/// be written.
pub fn run(command: &LogCommand) -> Result<(), Stop> {
    match command {
        LogCommand::Inspect(arguments) => run_inspect(arguments),
        LogCommand::Verify(arguments) => run_verify(arguments),
    }
}

fn run_inspect(arguments: &LogArguments) -> Result<(), Stop> {
    let directory = arguments.directory.directory()?;
    let found = inspect(&FileSystem, directory, arguments.directory.threads())?;
    if arguments.json {
        print_json(&InspectReport::new(directory, &found))?;
    } else {
        write!(io::stdout(), "{}", inspect_text(directory, &found))?;
    }
    match found.problems.len() as u64 {
        0 => Ok(()),
        problems => Err(damaged(directory, problems)),
    }
}

fn run_verify(arguments: &LogArguments) -> Result<(), Stop> {
    let directory = arguments.directory.directory()?;
    let is_open = lock_for_reading(&FileSystem, directory)?.open_elsewhere;
    let verified = verify(&FileSystem, directory, arguments.directory.threads());
    let (found, problems) = match verified {
        Ok(report) => (Some(report), Vec::new()),
        Err(problems) => (None, problems),
    };
    if let [problem @ (StorageError::NotADatabase { .. } | StorageError::Io { .. })] = &problems[..]
    {
        return Err(problem.clone().into());
    }
    if arguments.json {
        print_json(&VerifyReport {
            directory: directory.display().to_string(),
            ok: problems.is_empty(),
            open: is_open,
            epoch: found.as_ref().and_then(|report| report.epoch),
            cuts: report::cuts(found.as_ref().map_or(&[], |report| &report.cuts)),
            problems: report::problems(&problems),
        })?;
    } else {
        let mut out = io::stdout().lock();
        if is_open {
            write!(out, "{}", report::OPEN)?;
        }
        write!(out, "{}", report::problem_lines(&problems))?;
        if let Some(found) = &found {
            write!(out, "{}", verify_text(directory, found))?;
        }
    }
    match problems.len() as u64 {
        0 => Ok(()),
        problems => Err(damaged(directory, problems)),
    }
}

fn damaged(directory: &Path, problems: u64) -> Stop {
    Stop::Failed(format!("{}: {}", directory.display(), counted(problems, "problem")))
}

fn print_json(report: &impl Serialize) -> Result<(), Stop> {
    let text = serde_json::to_string_pretty(report).map_err(io::Error::from)?;
    Ok(writeln!(io::stdout(), "{text}")?)
}

// ---- text reports ---------------------------------------------------------------------------

fn verify_text(directory: &Path, found: &Report) -> String {
    let checkpoint = found.manifest.checkpoint.as_ref();
    let rows = counted(checkpoint.map_or(0, |checkpoint| checkpoint.rows()), "row");
    let writes: u64 = found
        .tables
        .iter()
        .map(|table| table.puts + table.changes + table.operations + table.deletes)
        .sum();
    let (transactions, writes) =
        (counted(found.transactions, "transaction"), counted(writes, "write"));
    format!(
        "{}{}: intact; {rows} in the checkpoint, {transactions} with {writes} in the log, the state \
         at the end of epoch {}\n",
        report::cut_lines(&found.cuts, "torn"),
        directory.display(),
        found.epoch.unwrap_or(0),
    )
}

fn inspect_text(directory: &Path, found: &Report) -> String {
    let manifest = &found.manifest;
    let mut text = String::new();
    if found.is_open {
        text += report::OPEN;
    }
    text += &format!("database    {}, opened {}\n", hex(&manifest.database), times(manifest.run));
    text += &match found.epoch {
        Some(epoch) => format!("state       the end of epoch {epoch}\n"),
        None => "state       unknown, because something is damaged\n".to_owned(),
    };
    text += &match &manifest.checkpoint {
        Some(checkpoint) => format!(
            "checkpoint  the end of epoch {}: {}, {} in {}\n",
            checkpoint.epoch,
            counted(checkpoint.rows(), "row"),
            counted(checkpoint.bytes(), "byte"),
            counted(checkpoint.files.len() as u64, "file"),
        ),
        None => "checkpoint  none\n".to_owned(),
    };
    let bytes = found.segments.iter().map(|segment| segment.bytes).sum();
    text += &format!(
        "log         {}, {} in {}\n",
        counted(found.transactions, "transaction"),
        counted(bytes, "byte"),
        counted(found.segments.len() as u64, "segment"),
    );
    if !found.tables.is_empty() {
        text += &format!("\n{}\n", tables(&found.tables));
    }
    if !found.segments.is_empty() {
        text += &format!("\n{}\n", segments(directory, &found.segments));
    }
    let notes = [
        report::cut_lines(&found.cuts, "will be cut off"),
        found.leftovers.iter().map(|path| format!("leftover: {}\n", path.display())).collect(),
        report::problem_lines(&found.problems),
    ];
    for notes in notes.iter().filter(|notes| !notes.is_empty()) {
        text += &format!("\n{notes}");
    }
    text
}

fn tables(tables: &[TableReport]) -> comfy_table::Table {
    let mut list = numeric(
        &["table", "written"],
        &["checkpoint rows", "log: puts", "changes", "operations", "deletes", "bytes"],
    );
    for table in tables {
        list.add_row([
            table.name.clone(),
            if table.is_current { "now" } else { "old" }.to_owned(),
            grouped(table.checkpoint_rows),
            grouped(table.puts),
            grouped(table.changes),
            grouped(table.operations),
            grouped(table.deletes),
            grouped(table.log_bytes),
        ]);
    }
    list
}

fn segments(directory: &Path, segments: &[SegmentReport]) -> comfy_table::Table {
    let mut list =
        numeric(&["segment", "state"], &["bytes", "frames", "epochs", "first epoch", "last epoch"]);
    let epoch = |epoch: Option<u64>| epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
    for segment in segments {
        list.add_row([
            report::within(&segment.path, directory),
            if segment.is_sealed { "sealed" } else { "last run's" }.to_owned(),
            grouped(segment.bytes),
            grouped(segment.frames),
            grouped(segment.epochs),
            epoch(segment.first_epoch),
            epoch(segment.last_epoch),
        ]);
    }
    list
}

fn times(number: u64) -> String {
    counted(number, "time")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// ---- JSON reports ---------------------------------------------------------------------------

#[derive(Serialize)]
struct VerifyReport {
    directory: String,
    ok: bool,
    open: bool,
    epoch: Option<u64>,
    cuts: Vec<report::CutReport>,
    problems: Vec<report::ProblemReport>,
}

#[derive(Serialize)]
struct InspectReport {
    directory: String,
    open: bool,
    database: String,
    run: u64,
    epoch: Option<u64>,
    checkpoint: Option<CheckpointJson>,
    transactions: u64,
    tables: Vec<TableJson>,
    segments: Vec<SegmentJson>,
    cuts: Vec<report::CutReport>,
    leftovers: Vec<String>,
    problems: Vec<report::ProblemReport>,
}

#[derive(Serialize)]
struct CheckpointJson {
    epoch: u64,
    rows: u64,
    bytes: u64,
    files: usize,
}

#[derive(Serialize)]
struct TableJson {
    number: u32,
    name: String,
    current: bool,
    columns: Vec<ColumnJson>,
    checkpoint_rows: u64,
    puts: u64,
    changes: u64,
    operations: u64,
    deletes: u64,
    log_bytes: u64,
}

#[derive(Serialize)]
struct ColumnJson {
    name: String,
    #[serde(rename = "type")]
    type_of: String,
    /// The column's position in the primary key, from 0.
    key: Option<usize>,
}

#[derive(Serialize)]
struct SegmentJson {
    file: String,
    logger: u32,
    sequence: u64,
    sealed: bool,
    bytes: u64,
    frames: u64,
    epochs: u64,
    first_epoch: Option<u64>,
    last_epoch: Option<u64>,
}

impl InspectReport {
    fn new(directory: &Path, found: &Report) -> InspectReport {
        let manifest = &found.manifest;
        let checkpoint = manifest.checkpoint.as_ref().map(|checkpoint| CheckpointJson {
            epoch: checkpoint.epoch,
            rows: checkpoint.rows(),
            bytes: checkpoint.bytes(),
            files: checkpoint.files.len(),
        });
        let table = |table: &TableReport| TableJson {
            number: table.number,
            name: table.name.clone(),
            current: table.is_current,
            columns: columns(&manifest.tables[table.number as usize]),
            checkpoint_rows: table.checkpoint_rows,
            puts: table.puts,
            changes: table.changes,
            operations: table.operations,
            deletes: table.deletes,
            log_bytes: table.log_bytes,
        };
        let segment = |segment: &SegmentReport| SegmentJson {
            file: segment.path.display().to_string(),
            logger: segment.logger,
            sequence: segment.sequence,
            sealed: segment.is_sealed,
            bytes: segment.bytes,
            frames: segment.frames,
            epochs: segment.epochs,
            first_epoch: segment.first_epoch,
            last_epoch: segment.last_epoch,
        };
        InspectReport {
            directory: directory.display().to_string(),
            open: found.is_open,
            database: hex(&manifest.database),
            run: manifest.run,
            epoch: found.epoch,
            checkpoint,
            transactions: found.transactions,
            tables: found.tables.iter().map(table).collect(),
            segments: found.segments.iter().map(segment).collect(),
            cuts: report::cuts(&found.cuts),
            leftovers: found.leftovers.iter().map(|path| path.display().to_string()).collect(),
            problems: report::problems(&found.problems),
        }
    }
}

fn columns(table: &TableDescription) -> Vec<ColumnJson> {
    let column = |(position, column): (usize, &weft::description::ColumnDescription)| ColumnJson {
        name: column.name.clone(),
        type_of: column.type_of.to_string(),
        key: table.key.iter().position(|&key| key == position),
    };
    table.columns.iter().enumerate().map(column).collect()
}
