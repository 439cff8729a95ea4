//! `weft export`: one table of a database, as a file for other programs.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use weft::description::TableDescription;
use weft::durability::{Manifest, RecoveryOptions, StagedTable, StoredTable};
use weft_exchange::{ExportError, Exporter, Format};

use super::partial_file::PartialFile;
use super::reading::recover_in_memory;
use super::table::take_rows;
use super::{DirectoryArguments, epoch, expect_outside, report, show_recovery};
use weft_bench::numbers::counted;
use weft_bench::progress::Progress;
use weft_bench::stop::Stop;

/// The help text below the options.
const ABOUT: &str = "\
The ending of FILE chooses the format: .csv (RFC 4180, with a header), .arrow or .feather (Arrow
IPC), .parquet (Apache Parquet). Rows are in the order of their primary keys. Arrow and Parquet need
a build with `--features columnar`; in Weft's repository, `cargo export` makes one.

  $ weft export shop.db accounts accounts.parquet
  $ weft export shop.db accounts yesterday.csv --up-to-epoch 812

The table is recovered into memory. Checkpoint files of other tables are not read. Nothing is
written into DIR, and the database may be open. FILE appears once it is complete, and then replaces
a file of that name.

Exit code: 0 if FILE was written; 1 if the database is damaged or FILE cannot be written; 2 if there
is no such database, table, epoch or format.";

/// The options of `weft export`.
#[derive(Args, Debug)]
#[command(after_long_help = ABOUT)]
pub struct ExportArguments {
    #[command(flatten)]
    directory: DirectoryArguments,

    /// The table's name, as `weft log inspect DIR` lists it
    table: String,

    /// The file to write; its ending chooses the format
    file: PathBuf,

    /// Export the state at the end of this epoch
    #[arg(long, value_name = "E", value_parser = epoch(), allow_negative_numbers = true)]
    up_to_epoch: Option<u64>,
}

/// Exports a table to a file.
///
/// # Errors
/// There is no such database, table, epoch or format; something is damaged; or the file cannot be written.
pub fn run(arguments: &ExportArguments) -> Result<(), Stop> {
    let directory = arguments.directory.directory()?;
    let format = Format::from_path(&arguments.file).ok_or_else(|| {
        let file = arguments.file.display();
        Stop::Usage(format!(
            "{file}: expected a name that ends in .csv, .arrow, .feather or .parquet"
        ))
    })?;
    expect_outside(&arguments.file, directory)?;
    let unfinished = PartialFile::create(&arguments.file)?;

    let progress = Progress::new("recovering");
    let show = |recovery| show_recovery(&progress, recovery);
    let options = RecoveryOptions {
        threads: arguments.directory.threads(),
        up_to_epoch: arguments.up_to_epoch,
        progress: Some(&show),
        ..RecoveryOptions::default()
    };
    let reading = recover_in_memory(directory, &options, |manifest| {
        let wanted = find(manifest, &arguments.table, directory)?;
        let table = Arc::new(StagedTable::new(wanted.clone()));
        let tables = with_others(manifest, Arc::clone(&table) as Arc<dyn StoredTable>);
        Ok((table, tables))
    })?;

    let table = reading.tables;
    let rows = take_rows(&table);
    progress.set_label("writing");
    let total = rows.len() as u64;
    let mut bytes = 0;
    let exporter = Exporter::new(table.description(), format, &unfinished.file);
    let written = exporter.and_then(|exporter| {
        let mut exporter = exporter.on_progress(|written| {
            progress.set(written.rows, total);
            bytes = written.bytes;
        });
        rows.iter().try_for_each(|row| exporter.push(row))?;
        exporter.finish().map(drop)
    });
    drop(progress);
    written.map_err(|error: ExportError| Stop::Failed(error.to_string()))?;
    unfinished.finish()?;

    let mut out = io::stdout().lock();
    if reading.is_open {
        write!(out, "{}", report::OPEN)?;
    }
    write!(out, "{}", report::cut_lines(&reading.recovered.cuts, "does not count"))?;
    writeln!(
        out,
        "{}: {} of `{}` at the end of epoch {}, {} of {format}",
        arguments.file.display(),
        counted(total, "row"),
        arguments.table,
        reading.recovered.epoch,
        counted(bytes, "byte"),
    )?;
    Ok(())
}

/// Returns a table of the directory, and after it all others. The rows of the others are left where they are. Recovery
/// needs all tables, because it matches them by their names and former names.
pub fn with_others(manifest: &Manifest, table: Arc<dyn StoredTable>) -> Vec<Arc<dyn StoredTable>> {
    let name = table.description().name.clone();
    let others = manifest.current_tables().into_iter();
    let others = others.map(|number| &manifest.tables[number as usize]);
    let others = others.filter(|other| other.name != name);
    let unread = |other: &_| Arc::new(StagedTable::without_rows(TableDescription::clone(other)));
    let others = others.map(|other| unread(other) as Arc<dyn StoredTable>);
    std::iter::once(table).chain(others).collect()
}

/// Returns the description of the table with this name.
pub fn find<'a>(
    manifest: &'a Manifest,
    name: &str,
    directory: &Path,
) -> Result<&'a TableDescription, Stop> {
    let number = manifest.table_number(name).ok_or_else(|| {
        let table = |number: &u32| format!("`{}`", manifest.tables[*number as usize].name);
        let tables: Vec<String> = manifest.current_tables().iter().map(table).collect();
        let directory = directory.display();
        Stop::Usage(match tables.is_empty() {
            true => format!("{directory} has no tables"),
            false => format!("{directory} has no table `{name}`, but {}", tables.join(", ")),
        })
    })?;
    Ok(&manifest.tables[number as usize])
}
