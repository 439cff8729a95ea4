//! `weft import`: the rows of a file, added to one table of a database, without the program to which the table belongs.
//!
//! ```text
//!   read     the file; each row is encoded by the table's stored description
//!   recover  the table, in memory; nothing is written yet
//!   resolve  which rows are added, and whether keys and unique indexes allow it
//!   write    the rows as one transaction, in an epoch of its own, into the log of a new run
//! ```
//!
//! Resolving is the last part of recovery, before it changes the directory. So an import that is refused changes
//! nothing. An epoch of the log is kept or lost as a whole.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use clap::{Args, ValueEnum};
use serde::Serialize;
use weft::column::DecodeError;
use weft::description::{RowChange, TableDescription};
use weft::durability::format::{STORED_BYTES_MAX, WriteKind, push_transaction, push_write};
use weft::durability::{
    Backend, Epochs, FileSystem, Log, LogOptions, Manifest, RecoveryOptions, StagedTable,
    StorageError, StoredTable, end_run, lock, recover,
};
use weft_bench::numbers::counted;
use weft_bench::progress::Progress;
use weft_bench::stop::Stop;
use weft_exchange::{FilePlace, ImportError, Importer};

use super::export::{find, with_others};
use super::reading::read_manifest;
use super::table::sort_key;
use super::{DirectoryArguments, show_recovery};

/// The name that stands for standard input.
const STANDARD: &str = "-";

/// How many rows that stand in the way a message lists at most.
const ROWS_MAX: usize = 20;

/// The help text below the options.
const ABOUT: &str = "\
The ending of FILE chooses the format: .csv (RFC 4180, with a header), .arrow or .feather (Arrow
IPC), .parquet (Apache Parquet). Arrow and Parquet need a build with `--features columnar`. The
file's columns are found by name, in any order. A column that the file does not have gets its
default. `weft export` writes files that can be imported again.

  $ weft import shop.db accounts accounts.csv --dry-run
  $ weft import shop.db accounts accounts.csv --on-duplicate replace
  $ produce-rows | weft import shop.db accounts -          # CSV from standard input

All rows are added in one step, or none: an error names the line and the column, and nothing has
changed. Nor does a crash leave a part of them. The database must not be open. The command keeps the
rows of the table and of the file in memory.

Primary keys and unique indexes are checked. The program's own checks, and types that refuse some
values, are code of the program, and are not run. If the table has checks, the command refuses it
unless you add --unchecked. If a row breaks one of them, the program will not open DIR and says so;
the state before the import is then still there: `weft recover DIR --up-to-epoch E --into OTHER`.
The report has the number E.

Exit code: 0 if the rows were added; 1 if a row does not fit, or DIR is damaged or cannot be written;
2 if there is no such database, table or file, or the database is open.";

/// The options of `weft import`.
#[derive(Args, Debug)]
#[command(after_long_help = ABOUT)]
pub struct ImportArguments {
    #[command(flatten)]
    directory: DirectoryArguments,

    /// The table's name, as `weft log inspect DIR` lists it
    table: String,

    /// The file to read; its ending is the format; `-` is CSV from standard input
    file: PathBuf,

    /// What to do with a row whose primary key is in the table already, or twice in the file
    #[arg(long, value_enum, value_name = "WHAT", default_value = "error")]
    on_duplicate: OnDuplicate,

    /// Add rows to a table with checks, which only the program can run
    #[arg(long)]
    unchecked: bool,

    /// Do everything but write
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object in place of the report
    #[arg(long)]
    json: bool,
}

/// What to do with a row whose primary key exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnDuplicate {
    /// Add no rows at all, and list the duplicates
    Error,
    /// Leave the row that is there
    Skip,
    /// Take the values of the file's columns; other columns keep theirs
    Replace,
}

/// Imports a file.
///
/// # Errors
/// There is no such database, table or file; it is open; rows do not fit; or something is damaged or cannot be written.
pub fn run(arguments: &ImportArguments) -> Result<(), Stop> {
    let directory = arguments.directory.directory()?;
    // Read the manifest before locking: locking would create a file in a directory that is not a database.
    read_manifest(directory)?;
    let _lock = lock(&FileSystem, directory)?;
    let manifest = read_manifest(directory)?;
    let mut description = find(&manifest, &arguments.table, directory)?.clone();
    // The rows have all columns, also those that the last program did not know.
    description.kept = 0;
    if !description.checks.is_empty() && !arguments.unchecked {
        return Err(Stop::Usage(format!(
            "table `{}` has {}, which only the program can run; import the file with the program, \
             or add --unchecked to leave it to the next opening, which refuses the directory if a \
             row breaks a check",
            description.name,
            names(&description.checks)
        )));
    }

    let progress = Progress::new("reading the file");
    let incoming = Incoming::read(arguments, &description, &progress)?;
    let table = Arc::new(ImportTable::new(&description, incoming, arguments.on_duplicate));
    let show = |recovery| show_recovery(&progress, recovery);
    let options = RecoveryOptions {
        threads: arguments.directory.threads(),
        dry_run: arguments.dry_run,
        progress: Some(&show),
        ..RecoveryOptions::default()
    };
    let imported = import(Arc::new(FileSystem), directory, &table, &options);
    drop(progress);
    if let Some(Err(message)) = table.resolved.get() {
        return Err(Stop::Failed(message.clone()));
    }
    let epochs = imported?;
    let outcome = Outcome {
        arguments,
        directory,
        checks: &description.checks,
        resolved: table.resolved(),
        epoch_before: epochs.0,
        epoch: epochs.1,
    };
    outcome.print()
}

/// Recovers the table, and writes the rows as one transaction, unless the recovery is a dry run. Returns the last epochs
/// before and after that.
///
/// # Errors
/// Those of recovery and of the log. If the import is refused, [`ImportTable::resolved`] has the reason.
fn import(
    backend: Arc<dyn Backend>,
    directory: &Path,
    table: &Arc<ImportTable>,
    options: &RecoveryOptions<'_>,
) -> Result<(u64, u64), StorageError> {
    let manifest = Manifest::read(&*backend, directory)?.unwrap_or_else(Manifest::empty);
    let tables = with_others(&manifest, Arc::clone(table) as Arc<dyn StoredTable>);
    let mut recovered = recover(&*backend, directory, &tables, options)?;
    let epoch_before = recovered.epoch;
    if options.dry_run {
        return Ok((epoch_before, epoch_before));
    }
    let puts = &table.resolved().puts;
    let epoch = recovered.next_epoch;
    let log = Log::start(
        Arc::clone(&backend),
        &directory.join("log"),
        LogOptions { manual: true, ..LogOptions::default() },
        1,
        Arc::new(Clock(Mutex::new(epoch))),
        epoch,
        &recovered.next_segments,
    )?;
    if !puts.is_empty() {
        log.append(0, epoch, |buffer| {
            push_transaction(buffer);
            for row in puts {
                let write = |buffer: &mut Vec<u8>| buffer.extend_from_slice(row);
                push_write(buffer, WriteKind::Put, recovered.table_numbers[0], 1, write);
            }
        });
    }
    log.shutdown()?;
    end_run(&*backend, directory, &mut recovered.manifest, log.durable_epoch())?;
    Ok((epoch_before, recovered.manifest.recovered_epoch))
}

/// The epochs of a run in which only this command writes.
struct Clock(Mutex<u64>);

impl Epochs for Clock {
    fn close_epoch(&self) -> Option<u64> {
        let mut epoch = hold(&self.0);
        *epoch += 1;
        Some(*epoch - 1)
    }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rows of the file.
struct Incoming {
    file: String,
    rows: Vec<(FilePlace, Box<[u8]>)>,
    /// The positions of the table's columns that the file does not have.
    absent: Vec<usize>,
}

impl Incoming {
    fn read(
        arguments: &ImportArguments,
        table: &TableDescription,
        progress: &Progress,
    ) -> Result<Incoming, Stop> {
        let path = &arguments.file;
        let is_standard = path.as_os_str() == STANDARD;
        let importer = match is_standard {
            true => Importer::from_csv_stream(table, "standard input", io::stdin()),
            false => Importer::open(table, path),
        };
        let mut importer = importer.map_err(stop)?.on_progress(|read| {
            progress.set(read.bytes, read.bytes_total.unwrap_or(read.bytes));
        });
        let absent = (0..table.columns.len()).filter(|&column| !importer.has_column(column));
        let absent = absent.collect();
        let (mut rows, mut row) = (Vec::new(), Vec::new());
        while importer.next_row(&mut row).map_err(stop)? {
            rows.push((importer.place(), row[..].into()));
        }
        let file = if is_standard { "standard input".into() } else { path.display().to_string() };
        Ok(Incoming { file, rows, absent })
    }
}

/// Converts an error of the file. If another file could succeed, the arguments are wrong.
fn stop(error: ImportError) -> Stop {
    let message = error.to_string();
    match error {
        ImportError::Io { .. } | ImportError::UnknownFormat { .. } => Stop::Usage(message),
        _ => Stop::Failed(message),
    }
}

/// The table into which rows are imported, as recovery sees it.
struct ImportTable {
    staged: StagedTable,
    on_duplicate: OnDuplicate,
    incoming: Mutex<Option<Incoming>>,
    /// The rows to write, or why the import is refused.
    resolved: OnceLock<Result<Resolved, String>>,
}

impl ImportTable {
    fn new(description: &TableDescription, incoming: Incoming, on_duplicate: OnDuplicate) -> Self {
        ImportTable {
            staged: StagedTable::new(description.clone()),
            on_duplicate,
            incoming: Mutex::new(Some(incoming)),
            resolved: OnceLock::new(),
        }
    }

    /// Returns what the import writes, after a recovery that has succeeded.
    fn resolved(&self) -> &Resolved {
        let resolved = self.resolved.get().and_then(|resolved| resolved.as_ref().ok());
        resolved.expect("a recovery checks its tables")
    }
}

impl StoredTable for ImportTable {
    fn description(&self) -> &TableDescription {
        self.staged.description()
    }

    fn put(&self, row: &[u8]) -> Result<(), DecodeError> {
        self.staged.put(row)
    }

    fn delete(&self, key: &[u8]) -> Result<(), DecodeError> {
        self.staged.delete(key)
    }

    fn change(&self, key: &[u8], change: &RowChange<'_>) -> Result<bool, DecodeError> {
        self.staged.change(key, change)
    }

    fn build_indexes(&self, part: usize, parts: usize) -> Result<(), StorageError> {
        self.staged.build_indexes(part, parts)
    }

    /// Resolves the import, which ends the recovery if it is refused.
    fn checked(&self) -> Result<(), StorageError> {
        let incoming = hold(&self.incoming).take().expect("a recovery checks its tables once");
        let resolved = resolve(&self.staged, &incoming, self.on_duplicate);
        let is_refused = resolved.is_err();
        let _ = self.resolved.set(resolved);
        // The command reports the refusal itself.
        if is_refused { Err(StorageError::Closed) } else { Ok(()) }
    }

    fn encode_rows(
        &self,
        part: (usize, usize),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.staged.encode_rows(part, sink)
    }

    fn rows(&self) -> u64 {
        self.staged.rows()
    }
}

/// What an import writes.
struct Resolved {
    /// The rows, in the order of the file.
    puts: Vec<Box<[u8]>>,
    added: u64,
    replaced: u64,
    skipped: u64,
}

/// A row of the table after the import.
struct FinalRow {
    row: Box<[u8]>,
    /// Its position and its place in the file, if it comes from there.
    imported: Option<(usize, FilePlace)>,
    /// Whether the table had a row with this key before.
    was_stored: bool,
}

/// Decides what becomes of each row of the file, and checks the unique indexes.
///
/// # Errors
/// Why the import is refused: a message with the rows that stand in the way.
fn resolve(
    staged: &StagedTable,
    incoming: &Incoming,
    on_duplicate: OnDuplicate,
) -> Result<Resolved, String> {
    let table = staged.description();
    let key_of = |row: &[u8]| sort_key(table, &table.key, row);
    let mut rows: HashMap<Vec<u8>, FinalRow> = HashMap::new();
    for row in staged.take_rows(0, 1) {
        rows.insert(key_of(&row), FinalRow { row, imported: None, was_stored: true });
    }
    let mut problems = Problems { file: &incoming.file, first: Vec::new(), count: 0 };
    let mut skipped = 0;
    for (position, (place, row)) in incoming.rows.iter().enumerate() {
        if row.len() > STORED_BYTES_MAX {
            problems.add(*place, format!("the row is longer than {STORED_BYTES_MAX} bytes"));
            continue;
        }
        let imported = Some((position, *place));
        match (rows.entry(key_of(row)), on_duplicate) {
            (Entry::Vacant(entry), _) => {
                entry.insert(FinalRow { row: row.clone(), imported, was_stored: false });
            }
            (Entry::Occupied(entry), OnDuplicate::Error) => {
                let key = in_words(table, &table.key, row);
                problems.add(
                    *place,
                    match entry.get().imported {
                        Some((_, other)) => format!("row {key} is in {other}, too"),
                        None => format!("row {key} is in the table already"),
                    },
                );
            }
            (Entry::Occupied(_), OnDuplicate::Skip) => skipped += 1,
            (Entry::Occupied(mut entry), OnDuplicate::Replace) => {
                let found = entry.get_mut();
                found.row = merged(table, &found.row, row, &incoming.absent);
                found.imported = imported;
            }
        }
    }
    let mut imported: Vec<_> = rows.values().filter_map(|row| Some((row.imported?, row))).collect();
    imported.sort_unstable_by_key(|((position, _), _)| *position);
    for index in table.indexes.iter().filter(|index| index.unique) {
        let key_of = |row: &FinalRow| sort_key(table, &index.columns, &row.row);
        let stored = rows.values().filter(|row| row.imported.is_none());
        let mut found: HashMap<Vec<u8>, &FinalRow> = stored.map(|row| (key_of(row), row)).collect();
        for ((_, place), row) in &imported {
            if let Some(other) = found.insert(key_of(row), row) {
                let values = in_words(table, &index.columns, &row.row);
                let key = in_words(table, &table.key, &other.row);
                let of = match other.imported {
                    Some((_, other)) => format!("row {key} in {other}"),
                    None => format!("row {key} in the table"),
                };
                problems.add(
                    *place,
                    format!("the unique index `{}` has {values} for {of}", index.name),
                );
            }
        }
    }
    problems.into_result(&table.name)?;
    let replaced = imported.iter().filter(|(_, row)| row.was_stored).count() as u64;
    Ok(Resolved {
        added: imported.len() as u64 - replaced,
        replaced,
        skipped,
        puts: imported.iter().map(|(_, row)| row.row.clone()).collect(),
    })
}

/// Returns the row of the file with the stored row's values of the columns that the file does not have.
fn merged(table: &TableDescription, stored: &[u8], row: &[u8], absent: &[usize]) -> Box<[u8]> {
    let (Ok(stored), Ok(mut values)) = (table.read_row(stored), table.read_row(row)) else {
        return row.into();
    };
    absent.iter().for_each(|&column| values[column] = stored[column].clone());
    let mut merged = Vec::with_capacity(row.len());
    for (column, value) in table.columns.iter().zip(&values) {
        value.write(&column.type_of, &mut merged).expect("it was read as a value of this type");
    }
    merged.into()
}

/// Returns the values of some columns of a row, for messages.
fn in_words(table: &TableDescription, columns: &[usize], row: &[u8]) -> String {
    let values = table.read_row(row).unwrap_or_default();
    let values = columns.iter().map(|&column| values[column].to_string());
    values.collect::<Vec<_>>().join(", ")
}

/// The rows that stand in the way of an import.
struct Problems<'a> {
    file: &'a str,
    first: Vec<String>,
    count: u64,
}

impl Problems<'_> {
    fn add(&mut self, place: FilePlace, what: String) {
        self.count += 1;
        if self.first.len() < ROWS_MAX {
            self.first.push(format!("{}, {place}: {what}", self.file));
        }
    }

    fn into_result(mut self, table: &str) -> Result<(), String> {
        if self.count == 0 {
            return Ok(());
        }
        if self.count > ROWS_MAX as u64 {
            self.first.push(format!("and {} more", self.count - ROWS_MAX as u64));
        }
        let rows = counted(self.count, "row");
        self.first.push(format!(
            "{rows} cannot be added to `{table}`, and nothing was changed; see --on-duplicate for \
             rows with the same primary key"
        ));
        Err(self.first.join("\n"))
    }
}

/// A finished import, to be reported.
struct Outcome<'a> {
    arguments: &'a ImportArguments,
    directory: &'a Path,
    checks: &'a [String],
    resolved: &'a Resolved,
    epoch_before: u64,
    epoch: u64,
}

#[derive(Serialize)]
struct OutcomeJson<'a> {
    directory: String,
    table: &'a str,
    file: String,
    dry_run: bool,
    added: u64,
    replaced: u64,
    skipped: u64,
    /// The checks that the program runs when it opens the directory.
    unchecked: &'a [String],
    epoch_before: u64,
    epoch: u64,
}

impl Outcome<'_> {
    fn print(&self) -> Result<(), Stop> {
        let Outcome { arguments, resolved, epoch_before, epoch, .. } = self;
        let mut out = io::stdout().lock();
        if arguments.json {
            let report = OutcomeJson {
                directory: self.directory.display().to_string(),
                table: &arguments.table,
                file: arguments.file.display().to_string(),
                dry_run: arguments.dry_run,
                added: resolved.added,
                replaced: resolved.replaced,
                skipped: resolved.skipped,
                unchecked: self.checks,
                epoch_before: *epoch_before,
                epoch: *epoch,
            };
            let text = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
            return Ok(writeln!(out, "{text}")?);
        }
        let (table, file) = (&arguments.table, arguments.file.display());
        let added = counted(resolved.added, "row");
        let Resolved { replaced, skipped, .. } = resolved;
        writeln!(
            out,
            "`{table}` from {file}: {added} added, {replaced} replaced, {skipped} skipped"
        )?;
        if arguments.dry_run {
            return Ok(writeln!(out, "A dry run: nothing was written.")?);
        }
        if !self.checks.is_empty() {
            let checks = names(self.checks);
            writeln!(out, "not run: {checks}; the program runs them when it opens the directory")?;
        }
        let directory = self.directory.display();
        Ok(writeln!(
            out,
            "durable at the end of epoch {epoch}; the state before is that of epoch {epoch_before}: \
             weft recover {directory} --up-to-epoch {epoch_before} --into OTHER"
        )?)
    }
}

/// Returns the names of checks, for messages.
fn names(checks: &[String]) -> String {
    let checks: Vec<_> = checks.iter().map(|check| format!("`{check}`")).collect();
    let noun = if checks.len() == 1 { "the check" } else { "the checks" };
    format!("{noun} {}", checks.join(", "))
}

#[cfg(test)]
mod tests {
    use weft::durability::SimulatedDisk;
    use weft::{Builder, Database, DurabilityOptions, Error, Record};

    use super::*;

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "accounts")]
    struct Account {
        #[record(key)]
        id: u32,
        owner: String,
    }

    fn builder(disk: &SimulatedDisk) -> Builder {
        let options = DurabilityOptions::new().threads(1).checkpoint_log_bytes(None);
        let builder = Database::builder().table::<Account>().directory("/db").durability(options);
        builder.backend(Arc::new(disk.clone()), true)
    }

    fn account(id: u32) -> Account {
        Account { id, owner: format!("owner {id}") }
    }

    fn ids(disk: &SimulatedDisk) -> Vec<u32> {
        let database = builder(disk).open().expect("the directory is whole");
        let accounts = database.table::<Account>().expect("it is open");
        let read = database.snapshot(|snapshot| {
            snapshot.rows(&accounts).map(|row| Ok(row?.id)).collect::<Result<Vec<_>, Error>>()
        });
        read.expect("the rows can be read")
    }

    /// Imports accounts 3 to 99.
    fn import_accounts(disk: &SimulatedDisk) -> Result<(u64, u64), StorageError> {
        let table = TableDescription::of::<Account>().expect("it is not volatile");
        let rows = (3..100).map(|id| {
            let mut row = Vec::new();
            account(id).encode_row(&mut row);
            (FilePlace::Row(id.into()), row.into())
        });
        let file = "accounts.csv".to_owned();
        let incoming = Incoming { file, rows: rows.collect(), absent: Vec::new() };
        let table = Arc::new(ImportTable::new(&table, incoming, OnDuplicate::Error));
        import(Arc::new(disk.clone()), "/db".as_ref(), &table, &RecoveryOptions::default())
    }

    /// Fault: the import matched the table with the directory alone. If another table named it as its former name, the
    /// other table was read, renamed and filled with the rows of the file.
    #[test]
    fn rows_go_into_the_named_table_and_not_into_one_that_had_its_name() {
        #[derive(Clone, Debug, PartialEq, Record)]
        #[record(table = "clients", was = "accounts")]
        struct Client {
            #[record(key)]
            id: u32,
            owner: String,
        }
        #[derive(Clone, Debug, PartialEq, Record)]
        #[record(table = "clients")]
        struct NewClient {
            #[record(key)]
            id: u32,
            owner: String,
        }
        let disk = SimulatedDisk::new(1);
        let empty = || {
            let options = DurabilityOptions::new().threads(1).checkpoint_log_bytes(None);
            let builder = Database::builder().directory("/db").durability(options);
            builder.backend(Arc::new(disk.clone()), true)
        };
        let put = |database: &Database, id| {
            let accounts = database.table::<Account>().expect("it is open");
            database.transact(|tx| tx.insert(&accounts, account(id))).expect("it is new");
        };
        put(&empty().table::<Account>().open().expect("it is new"), 1);
        // Without the former name, `clients` is a new table, and the accounts are kept.
        drop(empty().table::<NewClient>().open().expect("it is new"));
        drop(empty().table::<Client>().open().expect("it is stored"));
        import_accounts(&disk).expect("the rows fit");
        let database = empty().table::<Account>().table::<Client>().open().expect("it is whole");
        let accounts = database.table::<Account>().expect("it is open");
        let clients = database.table::<Client>().expect("it is open");
        let snapshot = database.open_snapshot().expect("it is open");
        assert_eq!(snapshot.rows(&accounts).count(), 98);
        assert_eq!(snapshot.rows(&clients).count(), 0);
    }

    #[test]
    fn crash_at_any_operation_leaves_all_rows_or_none() {
        let disk = SimulatedDisk::new(1);
        let database = builder(&disk).open().expect("it is new");
        let accounts = database.table::<Account>().expect("it is open");
        for id in 0..3 {
            database.transact(|tx| tx.insert(&accounts, account(id))).expect("it is new");
        }
        drop((database, accounts));
        let whole = disk.snapshot();
        let before = whole.operations();
        let (epoch_before, epoch) = import_accounts(&whole).expect("the rows fit");
        let operations = whole.operations() - before;
        assert!(epoch > epoch_before);
        assert_eq!(ids(&whole), (0..100).collect::<Vec<_>>());
        let (mut all, mut none) = (0, 0);
        for stop in 1..=operations {
            for seed in 0..4 {
                let disk = disk.snapshot();
                disk.stop_at(before + stop);
                assert!(import_accounts(&disk).is_err(), "operation {stop}: no crash");
                match ids(&disk.crash(seed)).len() {
                    3 => none += 1,
                    100 => all += 1,
                    rows => panic!("operation {stop}, seed {seed}: {rows} rows"),
                }
            }
        }
        assert!(all > 4 && none > 4, "{all} with all rows, {none} with none");
    }
}
