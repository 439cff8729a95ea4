//! `weft recover`: recovers a database as opening it would, as a dry run, in place, or into another directory.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use weft::durability::{
    CheckpointOptions, CheckpointProgress, FileSystem, Manifest, RecoveryOptions, RecoveryProgress,
    RecoveryReport, StorageError, StoredTable, checked_tables, end_run, lock, recover,
    write_backup,
};

use super::reading::{read_manifest, recover_in_memory};
use super::table::KeptState;
use super::{DirectoryArguments, epoch, expect_outside, report, show_recovery};
use weft_bench::harness::numeric;
use weft_bench::numbers::{counted, grouped, span};
use weft_bench::progress::Progress;
use weft_bench::stop::Stop;

/// The help text below the options.
const ABOUT: &str = "\
Opening a database recovers it, so this command is never required. Use it to see in advance what
recovery would do, or to recover a state of the past:

  $ weft recover DIR --dry-run                        # does what opening would do, without writing
  $ weft recover DIR                                  # cuts off torn tails, removes leftovers and
                                                      # seals the log, as the next opening would
  $ weft recover DIR --up-to-epoch 812 --into OTHER   # writes the state at the end of epoch 812 as
                                                      # a new database; DIR stays unchanged

You can choose any epoch from the checkpoint's on; `weft log inspect DIR` shows them. Rows are
checked against the stored descriptions of their tables. Secondary indexes are not built: they are
defined by the program. With --into all rows are held in memory.

If something is damaged, the command names the file and offset and writes nothing. With --dry-run or
--into, DIR is only read, and the database may be open.

Exit code: 0 if the database was recovered; 1 if it is damaged; 2 if DIR is not a database, is open,
or does not reach the epoch.";

/// The options of `weft recover`.
#[derive(Args, Debug)]
#[command(after_long_help = ABOUT)]
pub struct RecoverArguments {
    #[command(flatten)]
    directory: DirectoryArguments,

    /// Write nothing; report what would be recovered and what would be cut off
    #[arg(long, conflicts_with = "into")]
    dry_run: bool,

    /// Recover the state at the end of this epoch; with --dry-run or --into
    #[arg(long, value_name = "E", value_parser = epoch(), allow_negative_numbers = true)]
    up_to_epoch: Option<u64>,

    /// Write the recovered state into this directory, which must be empty or not exist, and leave DIR unchanged
    #[arg(long, value_name = "OTHER")]
    into: Option<PathBuf>,

    /// Print one JSON object in place of the report
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// The directory holds no database or cannot be read, something is damaged, or something cannot be
/// written.
pub fn run(arguments: &RecoverArguments) -> Result<(), Stop> {
    let directory = arguments.directory.directory()?;
    if arguments.up_to_epoch.is_some() && !arguments.dry_run && arguments.into.is_none() {
        let message = "--up-to-epoch cannot be used on DIR itself, whose later epochs would be lost; \
                       add --into OTHER to write that state into another directory, or --dry-run";
        return Err(Stop::Usage(message.to_owned()));
    }
    let outcome = match &arguments.into {
        Some(into) => recover_into(arguments, directory, into)?,
        None if arguments.dry_run => try_recovery(arguments, directory)?,
        None => repair(arguments, directory)?,
    };
    let mut out = io::stdout().lock();
    if arguments.json {
        let report = outcome.json(directory);
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
    } else {
        write!(out, "{}", outcome.text(directory))?;
    }
    Ok(())
}

/// What the command did.
enum Action {
    Nothing,
    Repaired,
    Written { into: PathBuf, backup: Manifest },
}

/// A finished recovery, to be reported.
struct RecoveryOutcome {
    action: Action,
    is_open: bool,
    recovered: RecoveryReport,
    /// Each table's name, and its number of rows; without `--into`, the number of rows read.
    tables: Vec<(String, u64)>,
}

fn options<'a>(
    arguments: &RecoverArguments,
    progress: &'a (dyn Fn(RecoveryProgress) + Sync),
) -> RecoveryOptions<'a> {
    RecoveryOptions {
        threads: arguments.directory.threads(),
        up_to_epoch: arguments.up_to_epoch,
        progress: Some(progress),
        ..RecoveryOptions::default()
    }
}

fn try_recovery(arguments: &RecoverArguments, directory: &Path) -> Result<RecoveryOutcome, Stop> {
    let progress = Progress::new("recovering");
    let show = |recovery| show_recovery(&progress, recovery);
    let reading = recover_in_memory(directory, &options(arguments, &show), |manifest| {
        let tables = checked_tables(manifest);
        Ok((tables.clone(), tables))
    })?;
    Ok(RecoveryOutcome {
        action: Action::Nothing,
        is_open: reading.is_open,
        tables: counts(&reading.tables),
        recovered: reading.recovered,
    })
}

/// Recovers in place. Recovery begins a new run, which this ends, so that its log is sealed.
fn repair(arguments: &RecoverArguments, directory: &Path) -> Result<RecoveryOutcome, Stop> {
    // Read the manifest before locking: locking would create a file in a directory that is not a database.
    read_manifest(directory)?;
    let _lock = lock(&FileSystem, directory)?;
    let manifest = read_manifest(directory)?;
    let progress = Progress::new("recovering");
    let show = |recovery| show_recovery(&progress, recovery);
    let options = RecoveryOptions { loggers: manifest.loggers, ..options(arguments, &show) };
    let tables = checked_tables(&manifest);
    let mut recovered = recover(&FileSystem, directory, &tables, &options)?;
    // The epochs that recovery skipped contain no commits, so they can belong to the run that ends here.
    let last = recovered.next_epoch - 1;
    end_run(&FileSystem, directory, &mut recovered.manifest, last)?;
    Ok(RecoveryOutcome {
        action: Action::Repaired,
        is_open: false,
        tables: counts(&tables),
        recovered,
    })
}

/// Writes the recovered state into another directory.
fn recover_into(
    arguments: &RecoverArguments,
    directory: &Path,
    into: &Path,
) -> Result<RecoveryOutcome, Stop> {
    expect_outside(into, directory)?;
    // Check the target before the long recovery, not only when writing to it.
    if Manifest::read(&FileSystem, into)?.is_some() {
        let message = "it holds a database already, and --into needs an empty directory".to_owned();
        return Err(StorageError::NotADatabase { directory: into.to_owned(), message }.into());
    }
    let progress = Progress::new("recovering");
    let show = |recovery| show_recovery(&progress, recovery);
    let reading = recover_in_memory(directory, &options(arguments, &show), |manifest| {
        let tables = KeptState::tables(manifest);
        let stored = tables.iter().map(|table| Arc::clone(table) as Arc<dyn StoredTable>);
        Ok((tables.clone(), stored.collect()))
    })?;
    let recovered = reading.recovered;
    let tables =
        reading.tables.iter().map(|table| (table.description().name.clone(), table.rows()));
    let tables = tables.collect();

    let state = KeptState::new(recovered.epoch, &reading.tables, &recovered.table_numbers);
    let rows = state.rows();
    let show = |written: CheckpointProgress| {
        if progress.is_shown() {
            progress.set_label("writing");
            progress.set(written.rows, rows);
        }
    };
    let threads = arguments.directory.threads();
    let checkpoint = CheckpointOptions { threads, progress: Some(&show), ..Default::default() };
    let backup = write_backup(&FileSystem, into, &recovered.manifest, &state, &checkpoint)?;
    let action = Action::Written { into: into.to_owned(), backup };
    Ok(RecoveryOutcome { action, is_open: reading.is_open, recovered, tables })
}

fn counts(tables: &[Arc<dyn StoredTable>]) -> Vec<(String, u64)> {
    tables.iter().map(|table| (table.description().name.clone(), table.rows())).collect()
}

/// The report that `--json` prints.
#[derive(Serialize)]
struct RecoverReport<'a> {
    directory: String,
    dry_run: bool,
    open: bool,
    epoch: u64,
    checkpoint_epoch: Option<u64>,
    checkpoint_rows: u64,
    checkpoint_bytes: u64,
    log_bytes: u64,
    transactions: u64,
    writes: u64,
    tables: Vec<TableJson<'a>>,
    cuts: Vec<report::CutReport>,
    seconds: SecondsJson,
    into: Option<IntoJson>,
}

#[derive(Serialize)]
struct TableJson<'a> {
    name: &'a str,
    /// The number of rows in the table; without `--into`, the number of rows read, which includes rows that a later
    /// row replaced.
    rows: u64,
}

#[derive(Serialize)]
struct SecondsJson {
    read_log: f64,
    load_checkpoint: f64,
    replay: f64,
    settle: f64,
}

#[derive(Serialize)]
struct IntoJson {
    directory: String,
    rows: u64,
    bytes: u64,
}

impl RecoveryOutcome {
    fn json(&self, directory: &Path) -> RecoverReport<'_> {
        let recovered = &self.recovered;
        let durations = &recovered.durations;
        let into = match &self.action {
            Action::Written { into, backup } => Some(IntoJson {
                directory: into.display().to_string(),
                rows: backup.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.rows()),
                bytes: backup.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.bytes()),
            }),
            Action::Nothing | Action::Repaired => None,
        };
        RecoverReport {
            directory: directory.display().to_string(),
            dry_run: matches!(self.action, Action::Nothing),
            open: self.is_open,
            epoch: recovered.epoch,
            checkpoint_epoch: recovered.checkpoint_epoch,
            checkpoint_rows: recovered.checkpoint_rows,
            checkpoint_bytes: recovered.checkpoint_bytes,
            log_bytes: recovered.log_bytes,
            transactions: recovered.transactions,
            writes: recovered.entries,
            tables: self
                .tables
                .iter()
                .map(|(name, rows)| TableJson { name, rows: *rows })
                .collect(),
            cuts: report::cuts(&recovered.cuts),
            seconds: SecondsJson {
                read_log: durations.read_log.as_secs_f64(),
                load_checkpoint: durations.load_checkpoint.as_secs_f64(),
                replay: durations.replay.as_secs_f64(),
                settle: durations.settle.as_secs_f64(),
            },
            into,
        }
    }

    fn text(&self, directory: &Path) -> String {
        let recovered = &self.recovered;
        let (directory, epoch) = (directory.display(), recovered.epoch);
        let mut text = String::new();
        if self.is_open {
            text += report::OPEN;
        }
        text +=
            &format!("{directory}: the state at the end of epoch {epoch}\n\n{}\n", self.phases());
        if !self.tables.is_empty() {
            text += &format!("\n{}\n", self.rows());
        }
        let is_cut = matches!(self.action, Action::Repaired);
        let cuts =
            report::cut_lines(&recovered.cuts, if is_cut { "cut off" } else { "does not count" });
        if !cuts.is_empty() {
            text += &format!("\n{cuts}");
        }
        text += &match &self.action {
            Action::Nothing => "\nA dry run: nothing was written.\n".to_owned(),
            Action::Repaired => {
                "\nThe log is whole and sealed: nothing is left to be done at the next opening.\n"
                    .to_owned()
            }
            Action::Written { into, backup } => {
                let checkpoint = backup.checkpoint.as_ref();
                let rows = checkpoint.map_or(0, |checkpoint| checkpoint.rows());
                let bytes = checkpoint.map_or(0, |checkpoint| checkpoint.bytes());
                format!(
                    "\nWritten into {}: {}, {}. {directory} is as it was.\n",
                    into.display(),
                    counted(rows, "row"),
                    counted(bytes, "byte")
                )
            }
        };
        text
    }

    /// Returns a table of what each phase read, and how long it took.
    fn phases(&self) -> comfy_table::Table {
        let (recovered, durations) = (&self.recovered, &self.recovered.durations);
        let checkpoint = match recovered.checkpoint_epoch {
            Some(epoch) => format!(
                "of epoch {epoch}: {}, {}",
                counted(recovered.checkpoint_rows, "row"),
                counted(recovered.checkpoint_bytes, "byte")
            ),
            None => "none".to_owned(),
        };
        let replayed = format!(
            "{}, {}",
            counted(recovered.transactions, "transaction"),
            counted(recovered.entries, "write")
        );
        let mut phases = numeric(&["phase", "of"], &["time"]);
        let mut add = |phase: &str, what: String, time: Duration| {
            phases.add_row([phase.to_owned(), what, span(time.as_secs_f64())]);
        };
        add("read the log", counted(recovered.log_bytes, "byte"), durations.read_log);
        add("load the checkpoint", checkpoint, durations.load_checkpoint);
        add("replay the log", replayed, durations.replay);
        if matches!(self.action, Action::Repaired) {
            add("settle", counted(recovered.cuts.len() as u64, "cut"), durations.settle);
        }
        phases
    }

    fn rows(&self) -> comfy_table::Table {
        let is_kept = matches!(self.action, Action::Written { .. });
        let mut list = numeric(&["table"], &[if is_kept { "rows" } else { "rows read" }]);
        for (name, rows) in &self.tables {
            list.add_row([name.clone(), grouped(*rows)]);
        }
        list
    }
}
