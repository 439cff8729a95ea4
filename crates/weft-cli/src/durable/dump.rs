//! `weft dump`: a whole database as one portable file. `weft restore`: a database from such a file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use weft::durability::{FileSystem, Manifest, RecoveryOptions, StorageError, StoredTable};
use weft_exchange::{DumpReader, DumpReport, restore_dump, write_dump};

use super::partial_file::PartialFile;
use super::reading::recover_in_memory;
use super::table::KeptState;
use super::{DirectoryArguments, epoch, expect_outside, report, show_recovery};
use weft_bench::harness::numeric;
use weft_bench::numbers::{counted, grouped};
use weft_bench::progress::Progress;
use weft_bench::stop::Stop;

/// The name that stands for standard input or output.
const STANDARD: &str = "-";

/// The help text below the options of `weft dump`.
const ABOUT_DUMP: &str = "\
A dump has every table with all rows, the descriptions of the tables, and what the program that last
opened DIR did not know and kept. Indexes are built again from their descriptions. It depends neither
on the machine nor on the version of the log, and is compressed and checksummed.

  $ weft dump shop.db -o shop.dump
  $ weft dump shop.db -o - | ssh other weft restore - shop.db
  $ weft dump shop.db -o yesterday.dump --up-to-epoch 812

The database is recovered into memory. Nothing is written into DIR, and the database may be open: the
dump then has the state at the end of the last epoch that is complete in the log. A program can write
a dump of its open database without that memory: `weft_exchange::dump`. FILE appears once it is
complete and synced.

Exit code: 0 if FILE was written; 1 if the database is damaged or FILE cannot be written; 2 if there
is no such database or epoch, or FILE exists.";

/// The help text below the options of `weft restore`.
const ABOUT_RESTORE: &str = "\
Open DIR with your program as usual: the tables are the same, and so is what older versions of the
program keep for newer ones.

  $ weft restore shop.dump shop.db
  $ weft restore shop.dump shop.db --dry-run     # reads and checks the whole dump, and writes nothing

Every checksum and every row is checked while FILE is read, a block at a time. DIR becomes a database
in the last step, when everything is on the disk and the end of FILE was found. If that does not come
about, DIR does not open, and you can remove it and restore again.

Exit code: 0 if the database was restored; 1 if FILE is damaged, or DIR cannot be written; 2 if FILE
cannot be read, or DIR is not empty.";

/// The options of `weft dump`.
#[derive(Args, Debug)]
#[command(after_long_help = ABOUT_DUMP)]
pub struct DumpArguments {
    #[command(flatten)]
    directory: DirectoryArguments,

    /// The file to write, or `-` for standard output
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Replace FILE if it exists
    #[arg(long)]
    replace: bool,

    /// Dump the state at the end of this epoch
    #[arg(long, value_name = "E", value_parser = epoch(), allow_negative_numbers = true)]
    up_to_epoch: Option<u64>,

    /// Print one JSON object in place of the report
    #[arg(long)]
    json: bool,
}

/// The options of `weft restore`.
#[derive(Args, Debug)]
#[command(after_long_help = ABOUT_RESTORE)]
pub struct RestoreArguments {
    /// A file that `weft dump` has written, or `-` for standard input
    file: PathBuf,

    /// The database's directory, which must be empty or not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Read and check FILE, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object in place of the report
    #[arg(long)]
    json: bool,
}

/// Dumps a database.
///
/// # Errors
/// There is no such database or epoch, something is damaged, or the file exists or cannot be written.
pub fn run(arguments: &DumpArguments) -> Result<(), Stop> {
    let directory = arguments.directory.directory()?;
    let file = &arguments.output;
    let unfinished = match file.as_os_str() == STANDARD {
        true => None,
        false if file.exists() && !arguments.replace => {
            let file = file.display();
            let message = format!("{file} exists: name another file, or replace it with --replace");
            return Err(Stop::Usage(message));
        }
        false => {
            expect_outside(file, directory)?;
            Some(PartialFile::create(file)?)
        }
    };

    let progress = Progress::new("recovering");
    let show = |recovery| show_recovery(&progress, recovery);
    let options = RecoveryOptions {
        threads: arguments.directory.threads(),
        up_to_epoch: arguments.up_to_epoch,
        progress: Some(&show),
        ..RecoveryOptions::default()
    };
    let reading = recover_in_memory(directory, &options, |manifest| {
        let tables = KeptState::tables(manifest);
        let stored = tables.iter().map(|table| Arc::clone(table) as Arc<dyn StoredTable>);
        Ok((tables.clone(), stored.collect()))
    })?;
    let recovered = &reading.recovered;
    let state = KeptState::new(recovered.epoch, &reading.tables, &recovered.table_numbers);
    progress.set_label("writing");
    let total = state.rows();
    let show = |written: weft_exchange::Progress| progress.set(written.rows, total);
    let manifest = &recovered.manifest;
    let dumped = match &unfinished {
        Some(unfinished) => write_dump(manifest, &state, file, &unfinished.file, show),
        None => write_dump(manifest, &state, "standard output".as_ref(), io::stdout().lock(), show),
    };
    drop(progress);
    let dumped = dumped?;
    if let Some(unfinished) = unfinished {
        unfinished.finish()?;
    }

    let mut text = String::new();
    if reading.is_open {
        text += report::OPEN;
    }
    text += &report::cut_lines(&recovered.cuts, "does not count");
    let is_open = Some(reading.is_open);
    let outcome = Outcome { file, directory, is_open, is_dry_run: false, dumped: &dumped };
    let text = text + &outcome.text();
    // The file has standard output to itself.
    let mut out: Box<dyn Write> = match file.as_os_str() == STANDARD {
        true => Box::new(io::stderr()),
        false => Box::new(io::stdout()),
    };
    outcome.print(arguments.json, &text, &mut *out)
}

/// Restores a database.
///
/// # Errors
/// The file is damaged or cannot be read, or the directory is not empty or cannot be written.
pub fn run_restore(arguments: &RestoreArguments) -> Result<(), Stop> {
    let RestoreArguments { file, directory, .. } = arguments;
    if Manifest::read(&FileSystem, directory)?.is_some() {
        let message = "it holds a database already, and a dump is restored into an empty directory";
        let directory = directory.clone();
        return Err(StorageError::NotADatabase { directory, message: message.to_owned() }.into());
    }
    let progress = Progress::new("restoring");
    let (name, input, length): (&Path, Box<dyn Read + Send>, u64) =
        match file.as_os_str() == STANDARD {
            true => ("standard input".as_ref(), Box::new(io::stdin()), 0),
            false => {
                let cannot = |error: io::Error| Stop::Usage(format!("{}: {error}", file.display()));
                let opened = File::open(file).map_err(cannot)?;
                let length = opened.metadata().map_err(cannot)?.len();
                (file, Box::new(io::BufReader::new(opened)), length)
            }
        };
    let show = |read: weft_exchange::Progress| progress.set(read.bytes, length.max(read.bytes));
    let mut dump = DumpReader::new(name, input)?.on_progress(show);
    let restored = match arguments.dry_run {
        true => {
            let mut row = Vec::new();
            while dump.next_row(&mut row)?.is_some() {}
            let report = dump.report();
            drop(dump);
            report
        }
        false => restore_dump(dump, &FileSystem, directory)?,
    };
    drop(progress);
    let is_dry_run = arguments.dry_run;
    let outcome = Outcome { file, directory, is_open: None, is_dry_run, dumped: &restored };
    outcome.print(arguments.json, &outcome.text(), &mut io::stdout())
}

/// What was dumped or restored.
struct Outcome<'a> {
    file: &'a Path,
    directory: &'a Path,
    /// For a dump, whether the database was open.
    is_open: Option<bool>,
    is_dry_run: bool,
    dumped: &'a DumpReport,
}

#[derive(Serialize)]
struct OutcomeJson<'a> {
    file: String,
    directory: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<bool>,
    dry_run: bool,
    epoch: u64,
    rows: u64,
    bytes: u64,
    tables: Vec<TableJson<'a>>,
}

#[derive(Serialize)]
struct TableJson<'a> {
    name: &'a str,
    rows: u64,
}

impl Outcome<'_> {
    fn text(&self) -> String {
        let DumpReport { epoch, tables, bytes, .. } = self.dumped;
        let (file, directory) = (self.file.display(), self.directory.display());
        let what = match (self.is_open, self.is_dry_run) {
            (Some(_), _) => format!("{file}: {directory}, at the end of epoch {epoch}"),
            (None, true) => format!("{file}: whole, made at the end of epoch {epoch}"),
            (None, false) => format!("{directory}: restored from {file}"),
        };
        let rows = counted(self.dumped.rows(), "row");
        let mut text = format!("{what}; {rows}, {}\n", counted(*bytes, "byte"));
        if !tables.is_empty() {
            let mut list = numeric(&["table"], &["rows"]);
            for (name, rows) in tables {
                list.add_row([name.clone(), grouped(*rows)]);
            }
            text += &format!("\n{list}\n");
        }
        text
    }

    fn print(&self, json: bool, text: &str, out: &mut dyn Write) -> Result<(), Stop> {
        if !json {
            return Ok(write!(out, "{text}")?);
        }
        let DumpReport { epoch, tables, bytes, .. } = self.dumped;
        let tables = tables.iter().map(|(name, rows)| TableJson { name, rows: *rows });
        let report = OutcomeJson {
            file: self.file.display().to_string(),
            directory: self.directory.display().to_string(),
            open: self.is_open,
            dry_run: self.is_dry_run,
            epoch: *epoch,
            rows: self.dumped.rows(),
            bytes: *bytes,
            tables: tables.collect(),
        };
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
        Ok(writeln!(out, "{text}")?)
    }
}
