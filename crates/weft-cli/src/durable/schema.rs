//! `weft schema`: the tables of a directory, how they differ from those of a program, and a trial of the change.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;
use weft::description::{OpenedTable, TableDescription, TableMatch, compare};
use weft::durability::{Manifest, RecoveryOptions, StagedTable, StoredTable};
use weft_bench::numbers::counted;
use weft_bench::progress::Progress;
use weft_bench::stop::Stop;

use super::reading::{read_manifest, recover_in_memory};
use super::table::{sort_key, take_rows};
use super::{DirectoryArguments, report, show_recovery};

/// The help text below the options of `weft schema diff` and `weft schema migrate`.
const ABOUT_NEW: &str = "\
NEW is a directory that the new version of your program has created: open an empty directory with
it. Only its MANIFEST is read, so a directory with this one file is enough; keep it beside the
program's sources to compare any database with that version.

Exit code: 0 if the program can open DIR; 1 if something stands in the way; 2 if DIR or NEW is not a
database or cannot be read.";

/// How many rows of a table a message lists at most.
const ROWS_MAX: usize = 20;

/// The commands of `weft schema`.
#[derive(Debug, Subcommand)]
pub enum SchemaCommand {
    /// Show the tables of a directory, as the last program that opened it has described them
    Show(ShowArguments),
    /// Show what a program would change in a directory when it opens it, and what stands in the way
    #[command(after_long_help = ABOUT_NEW)]
    Diff(DiffArguments),
    /// Try the change with all rows, and list those that do not fit; changes nothing
    #[command(after_long_help = ABOUT_NEW)]
    Migrate(MigrateArguments),
}

/// The options of `weft schema show`.
#[derive(Args, Debug)]
pub struct ShowArguments {
    #[command(flatten)]
    directory: DirectoryArguments,

    /// Print one JSON object in place of the report
    #[arg(long)]
    json: bool,
}

/// The options of `weft schema diff`.
#[derive(Args, Debug)]
pub struct DiffArguments {
    #[command(flatten)]
    directory: DirectoryArguments,

    /// A directory that the new version of the program has created
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// A stored table that the program drops; may be repeated
    #[arg(long = "drop-table", value_name = "TABLE")]
    drop_tables: Vec<String>,

    /// Print one JSON object in place of the report
    #[arg(long)]
    json: bool,
}

/// The options of `weft schema migrate`.
#[derive(Args, Debug)]
pub struct MigrateArguments {
    #[command(flatten)]
    diff: DiffArguments,

    /// Only try it: the program itself changes the directory when it opens it
    #[arg(long, required = true)]
    dry_run: bool,
}

/// Runs the command.
///
/// # Errors
/// A directory holds no database or cannot be read, something stands in the way, or the results cannot be written.
pub fn run(command: &SchemaCommand) -> Result<(), Stop> {
    match command {
        SchemaCommand::Show(arguments) => show(arguments),
        SchemaCommand::Diff(arguments) => diff(arguments, false),
        SchemaCommand::Migrate(arguments) => {
            debug_assert!(arguments.dry_run, "the option is required");
            diff(&arguments.diff, true)
        }
    }
}

fn print<R: Serialize>(json: bool, report: &R, text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    if json {
        let text = serde_json::to_string_pretty(report).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
    } else {
        write!(out, "{text}")?;
    }
    Ok(())
}

/// Returns the tables of a manifest, in their present form.
fn tables_of(manifest: &Manifest) -> Vec<TableDescription> {
    let numbers = manifest.current_tables().into_iter();
    numbers.map(|number| manifest.tables[number as usize].clone()).collect()
}

#[derive(Serialize)]
struct TableJson {
    name: String,
    storage: &'static str,
    columns: Vec<ColumnJson>,
    key: Vec<String>,
    /// The number of the next generated key, at least; `null` if keys are not generated.
    next_key: Option<u64>,
    indexes: Vec<IndexJson>,
    checks: Vec<String>,
    was: Vec<String>,
}

#[derive(Serialize)]
struct ColumnJson {
    name: String,
    #[serde(rename = "type")]
    type_of: String,
    default: Option<String>,
    computed: bool,
    was: Vec<String>,
    /// Whether the last program that opened the directory did not know the column.
    kept: bool,
}

#[derive(Serialize)]
struct IndexJson {
    name: String,
    columns: Vec<String>,
    unique: bool,
}

impl TableJson {
    fn new(table: &TableDescription) -> TableJson {
        let names = |positions: &[usize]| {
            positions.iter().map(|&position| table.columns[position].name.clone()).collect()
        };
        let known = table.columns.len() - table.kept;
        let columns = table.columns.iter().enumerate().map(|(position, column)| {
            let value = |default: &Vec<u8>| column.type_of.read_value(&mut &default[..]).ok();
            ColumnJson {
                name: column.name.clone(),
                type_of: column.type_of.to_string(),
                default: column.default.as_ref().and_then(value).map(|value| value.to_string()),
                computed: column.is_computed,
                was: column.was.clone(),
                kept: position >= known,
            }
        });
        let indexes = table.indexes.iter().map(|index| IndexJson {
            name: index.name.clone(),
            columns: names(&index.columns),
            unique: index.unique,
        });
        TableJson {
            name: table.name.clone(),
            storage: match table.storage {
                weft::schema::Storage::Ordered => "ordered",
                weft::schema::Storage::Hash => "hash",
            },
            columns: columns.collect(),
            key: names(&table.key),
            next_key: table.next_key,
            indexes: indexes.collect(),
            checks: table.checks.clone(),
            was: table.was.clone(),
        }
    }

    fn text(&self) -> String {
        let mut text =
            format!("table {} ({}), key ({})", self.name, self.storage, self.key.join(", "));
        self.next_key.iter().for_each(|next| text += &format!(", generated from {next} on"));
        self.was.iter().for_each(|name| text += &format!(", was {name}"));
        text.push('\n');
        for column in &self.columns {
            let _ = write!(text, "  {}: {}", column.name, column.type_of);
            column.default.iter().for_each(|default| text += &format!(", default {default}"));
            column.was.iter().for_each(|name| text += &format!(", was {name}"));
            text += if column.computed { ", computed" } else { "" };
            text += if column.kept { ", kept for a newer program" } else { "" };
            text.push('\n');
        }
        for IndexJson { name, columns, unique } in &self.indexes {
            let kind = if *unique { "unique index" } else { "index" };
            let _ = writeln!(text, "  {kind} {name} ({})", columns.join(", "));
        }
        self.checks.iter().for_each(|check| text += &format!("  check {check}\n"));
        text
    }
}

fn show(arguments: &ShowArguments) -> Result<(), Stop> {
    let manifest = read_manifest(arguments.directory.directory()?)?;
    let tables: Vec<_> = tables_of(&manifest).iter().map(TableJson::new).collect();
    let text: Vec<_> = tables.iter().map(TableJson::text).collect();
    #[derive(Serialize)]
    struct Schema {
        version: u32,
        /// The version of the oldest programs that may open the directory.
        oldest_version: u32,
        tables: Vec<TableJson>,
    }
    let Manifest { schema: version, oldest_schema: oldest_version, .. } = manifest;
    let mut text = text.join("\n");
    if version > 0 {
        text.insert_str(
            0,
            &format!(
                "version {version}, opens with programs of version {oldest_version} and newer\n\n"
            ),
        );
    }
    print(arguments.json, &Schema { version, oldest_version, tables }, &text)
}

/// What opening a directory with a program would change.
#[derive(Serialize)]
struct Changes {
    /// The version of the schema in the directory, and that of the program.
    version: (u32, u32),
    /// The versions whose hooks run.
    hooks: Vec<u32>,
    tables: Vec<TableChanges>,
    /// What stands in the way.
    obstacles: Vec<String>,
}

#[derive(Serialize)]
struct TableChanges {
    name: String,
    changes: Vec<String>,
    /// How many rows were tried; without `migrate`, none are.
    rows: Option<u64>,
}

fn diff(arguments: &DiffArguments, tries: bool) -> Result<(), Stop> {
    let directory = arguments.directory.directory()?;
    let (old, new) = (read_manifest(directory)?, read_manifest(&arguments.new)?);
    let (stored, current) = (tables_of(&old), tables_of(&new));
    let mut changes = changes(&stored, &current, &arguments.drop_tables);
    changes.version = (old.schema, new.schema);
    // The program is refused if it does not have all of them.
    changes.hooks = (old.schema..new.schema).collect();
    if new.schema < old.oldest_schema {
        changes.obstacles.push(format!(
            "the directory has version {}, which opens with programs of version {} and newer, and \
             the program has version {}",
            old.schema, old.oldest_schema, new.schema
        ));
    }
    if tries && changes.obstacles.is_empty() {
        try_rows(arguments, directory, &current, &mut changes)?;
    }
    let mut text = String::new();
    for from in &changes.hooks {
        let _ = writeln!(
            text,
            "the program's hook from version {from} to {} runs{}",
            from + 1,
            if tries { "; not tried, because it is code of the program" } else { "" }
        );
    }
    if new.schema < old.schema {
        let _ = writeln!(text, "the program has version {}, and {} stays", new.schema, old.schema);
    }
    for TableChanges { name, changes, rows } in &changes.tables {
        let _ = match rows {
            Some(rows) => writeln!(text, "table {name}: {} tried", counted(*rows, "row")),
            None => writeln!(text, "table {name}"),
        };
        changes.iter().for_each(|change| text += &format!("  {change}\n"));
    }
    if text.is_empty() && changes.obstacles.is_empty() {
        text += "nothing changes\n";
    }
    print(arguments.json, &changes, &text)?;
    match changes.obstacles.is_empty() {
        true => Ok(()),
        false => Err(Stop::Failed(changes.obstacles.join("\n"))),
    }
}

fn changes(
    stored: &[TableDescription],
    current: &[TableDescription],
    dropped: &[String],
) -> Changes {
    let (tables, obstacles) = (Vec::new(), Vec::new());
    let mut changes = Changes { version: (0, 0), hooks: Vec::new(), tables, obstacles };
    let matches = match compare(stored, current, dropped) {
        Ok(matches) => matches,
        Err(mismatch) => {
            let line =
                |it: &weft::description::Difference| format!("table `{}`: {}", it.table, it.what);
            changes.obstacles = mismatch.differences.iter().map(line).collect();
            return changes;
        }
    };
    let mut is_stored = vec![false; current.len()];
    for (table, matched) in stored.iter().zip(&matches) {
        let (name, lines) = match matched {
            TableMatch::Dropped => (&table.name, vec!["it is dropped, with all rows".to_owned()]),
            TableMatch::Kept => {
                (&table.name, vec!["the program does not have it; its rows are kept".to_owned()])
            }
            TableMatch::Opened(opened) => {
                is_stored[opened.current] = true;
                let now = &current[opened.current];
                (&now.name, lines(table, now, opened))
            }
        };
        if !lines.is_empty() {
            changes.tables.push(TableChanges { name: name.clone(), changes: lines, rows: None });
        }
    }
    for (table, _) in current.iter().zip(is_stored).filter(|(_, is_stored)| !is_stored) {
        let changes_of = vec!["it is new, and empty".to_owned()];
        changes.tables.push(TableChanges {
            name: table.name.clone(),
            changes: changes_of,
            rows: None,
        });
    }
    changes
}

/// Describes what becomes of a table.
fn lines(stored: &TableDescription, now: &TableDescription, opened: &OpenedTable) -> Vec<String> {
    let mut lines = Vec::new();
    if stored.name != now.name {
        lines.push(format!("it was `{}`", stored.name));
    }
    lines.extend(opened.in_words(stored, now));
    let index = |table: &TableDescription, position: usize| {
        let index = &table.indexes[position];
        let columns = index.columns.iter().map(|&column| &*table.columns[column].name);
        (index.name.clone(), columns.collect::<Vec<_>>().join(", "), index.unique)
    };
    let indexes = |table: &TableDescription| {
        (0..table.indexes.len()).map(|at| index(table, at)).collect::<Vec<_>>()
    };
    let (before, after) = (indexes(stored), indexes(now));
    for (name, columns, unique) in after.iter().filter(|index| !before.contains(index)) {
        let kind = if *unique { "unique index" } else { "index" };
        lines.push(format!("{kind} `{name}` ({columns}) is built"));
    }
    for (name, ..) in before.iter().filter(|index| !after.contains(index)) {
        if !after.iter().any(|(other, ..)| other == name) {
            lines.push(format!("index `{name}` is dropped"));
        }
    }
    for check in now.checks.iter().filter(|check| !stored.checks.contains(check)) {
        lines.push(format!("check `{check}` is added"));
    }
    for check in stored.checks.iter().filter(|check| !now.checks.contains(check)) {
        lines.push(format!("check `{check}` is dropped"));
    }
    lines
}

/// Converts all rows in memory, and looks for rows that unique indexes do not allow.
fn try_rows(
    arguments: &DiffArguments,
    directory: &Path,
    current: &[TableDescription],
    changes: &mut Changes,
) -> Result<(), Stop> {
    let progress = Progress::new("recovering");
    let show = |recovery| show_recovery(&progress, recovery);
    let options = RecoveryOptions {
        threads: arguments.directory.threads(),
        progress: Some(&show),
        drop_tables: &arguments.drop_tables,
        ..RecoveryOptions::default()
    };
    let reading = recover_in_memory(directory, &options, |manifest| {
        // Tables whose rows the program's code makes can only be tried by the program.
        let stored = tables_of(manifest);
        let matches = compare(&stored, current, &arguments.drop_tables);
        let needs_code = |position: usize| {
            matches.iter().flatten().any(|matched| {
                matches!(matched, TableMatch::Opened(it) if it.current == position && it.needs_code())
            })
        };
        let tables = (0..current.len()).filter(|&position| !needs_code(position));
        let tables: Vec<_> =
            tables.map(|position| Arc::new(StagedTable::new(current[position].clone()))).collect();
        let stored = tables.iter().map(|table| Arc::clone(table) as Arc<dyn StoredTable>);
        let stored = stored.collect();
        Ok((tables, stored))
    });
    let reading = match reading {
        Ok(reading) => reading,
        Err(Stop::Failed(message)) => {
            changes.obstacles.push(message);
            return Ok(());
        }
        Err(stop) => return Err(stop),
    };
    drop(progress);
    if reading.is_open {
        eprint!("{}", report::OPEN);
    }
    for description in current {
        let name = &description.name;
        let tried = reading.tables.iter().find(|table| table.description().name == *name);
        let place = changes.tables.iter().position(|table| table.name == *name);
        let place = place.unwrap_or_else(|| {
            let unchanged = TableChanges { name: name.clone(), changes: Vec::new(), rows: None };
            changes.tables.push(unchanged);
            changes.tables.len() - 1
        });
        match tried {
            None => changes.tables[place].changes.push(
                "not tried, because its rows need code of the program: open DIR with the program \
                 and `at_epoch`, which changes nothing"
                    .to_owned(),
            ),
            Some(table) => {
                let rows = take_rows(table);
                changes.tables[place].rows = Some(rows.len() as u64);
                duplicates(description, &rows, &mut changes.obstacles);
            }
        }
    }
    Ok(())
}

/// Notes the rows that have the same values in a unique index.
fn duplicates(table: &TableDescription, rows: &[Box<[u8]>], obstacles: &mut Vec<String>) {
    for index in table.indexes.iter().filter(|index| index.unique) {
        let mut found: HashMap<Vec<u8>, Vec<&[u8]>> = HashMap::new();
        for row in rows {
            found.entry(sort_key(table, &index.columns, row)).or_default().push(row);
        }
        let mut groups: Vec<_> = found.into_values().filter(|rows| rows.len() > 1).collect();
        groups.sort_by_cached_key(|rows| sort_key(table, &table.key, rows[0]));
        let key = |row: &&[u8]| {
            let values = table.read_row(row).unwrap_or_default();
            let key: Vec<_> = table.key.iter().map(|&column| values[column].to_string()).collect();
            key.join(", ")
        };
        for rows in groups.iter().take(ROWS_MAX) {
            let keys: Vec<_> = rows.iter().take(ROWS_MAX).map(key).collect();
            obstacles.push(format!(
                "table `{}`: {} have the same values in the unique index `{}`: {}",
                table.name,
                counted(rows.len() as u64, "row"),
                index.name,
                keys.join("; ")
            ));
        }
        if groups.len() > ROWS_MAX {
            let more = groups.len() - ROWS_MAX;
            obstacles.push(format!("table `{}`: and {more} more groups of rows", table.name));
        }
    }
}
