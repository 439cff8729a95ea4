//! `weft log`, `weft recover` and `weft export` as processes, on intact and damaged directories with a log and a
//! checkpoint.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use weft::column::DecodeError;
use weft::description::{RowChange, TableDescription};
use weft::durability::format::{WriteKind, push_transaction, push_write};
use weft::durability::{
    CheckpointOptions, CheckpointSource, Epochs, FileSystem, Log, LogOptions, Manifest,
    RecoveryOptions, RecoveryReport, StorageError, StoredTable, end_run, lock, recover,
    write_checkpoint,
};
use weft::{ColumnValue, Record};
use weft_exchange::{Format, Importer};

use crate::support::{run, text, written};

#[derive(Clone, Record)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    id: i32,
    owner: String,
    cents: Option<i64>,
}

#[derive(Clone, Record)]
#[record(table = "orders", key(customer, number))]
struct Order {
    number: u16,
    customer: String,
}

fn account(id: i32, owner: &str, cents: Option<i64>) -> Account {
    Account { id, owner: owner.to_owned(), cents }
}

fn order(customer: &str, number: u16) -> Order {
    Order { number, customer: customer.to_owned() }
}

fn descriptions() -> Vec<TableDescription> {
    [TableDescription::of::<Account>(), TableDescription::of::<Order>()]
        .map(|table| table.expect("neither is volatile"))
        .into()
}

fn encoded<T: Record>(row: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    row.encode_row(&mut bytes);
    bytes
}

// ---- building a database --------------------------------------------------------------------

/// A table that recovery finds, but whose rows it ignores.
struct AnyTable(TableDescription);

impl StoredTable for AnyTable {
    fn description(&self) -> &TableDescription {
        &self.0
    }

    fn put(&self, _row: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn delete(&self, _key: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn change(&self, _key: &[u8], _change: &RowChange<'_>) -> Result<bool, DecodeError> {
        Ok(true)
    }

    fn build_indexes(&self, _part: usize, _parts: usize) -> Result<(), StorageError> {
        Ok(())
    }

    fn encode_rows(
        &self,
        _part: (usize, usize),
        _sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        Ok(())
    }

    fn rows(&self) -> u64 {
        0
    }
}

struct Clock(Mutex<u64>);

impl Epochs for Clock {
    fn close_epoch(&self) -> Option<u64> {
        let mut epoch = self.0.lock().expect("no thread panics while it holds the lock");
        *epoch += 1;
        Some(*epoch - 1)
    }
}

/// The rows of both tables at the end of an epoch.
struct State {
    epoch: u64,
    rows: [Vec<Vec<u8>>; 2],
}

impl CheckpointSource for State {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn rows(
        &self,
        table: u32,
        _part: u32,
        _parts: u32,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.rows[table as usize].iter().try_for_each(|row| sink(row))
    }
}

/// A run of a database whose log the test writes directly.
struct Run {
    directory: PathBuf,
    log: Log,
    clock: Arc<Clock>,
    recovered: RecoveryReport,
}

impl Run {
    fn begin(directory: &Path) -> Run {
        let tables: Vec<Arc<dyn StoredTable>> = descriptions()
            .into_iter()
            .map(|table| Arc::new(AnyTable(table)) as Arc<dyn StoredTable>)
            .collect();
        let options = RecoveryOptions::default();
        let recovered = recover(&FileSystem, directory, &tables, &options).expect("it is whole");
        let clock = Arc::new(Clock(Mutex::new(recovered.next_epoch)));
        let log = Log::start(
            Arc::new(FileSystem),
            &directory.join("log"),
            LogOptions { manual: true, ..LogOptions::default() },
            1,
            Arc::clone(&clock) as Arc<dyn Epochs>,
            recovered.next_epoch,
            &recovered.next_segments,
        );
        let log = log.expect("a log can be written");
        Run { directory: directory.to_owned(), log, clock, recovered }
    }

    /// Writes an epoch with one transaction, and returns the epoch.
    fn epoch(&self, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let epoch = *self.clock.0.lock().expect("no thread panics while it holds the lock");
        self.log.append(0, epoch, |buffer| {
            push_transaction(buffer);
            write(buffer);
        });
        self.log.step().expect("the epoch can be written");
        epoch
    }

    fn checkpoint(&mut self, state: &State) {
        let manifest = Mutex::new(self.recovered.manifest.clone());
        let options = CheckpointOptions::default();
        write_checkpoint(&FileSystem, &self.directory, &manifest, state, &options)
            .expect("the checkpoint can be written");
        self.recovered.manifest =
            manifest.into_inner().expect("no thread panics while it holds the lock");
    }

    fn end(mut self) {
        self.log.shutdown().expect("the log can be ended");
        let epoch = self.log.durable_epoch();
        end_run(&FileSystem, &self.directory, &mut self.recovered.manifest, epoch)
            .expect("the run can be ended");
    }
}

fn put(buffer: &mut Vec<u8>, table: u32, version: u64, row: &impl Record) {
    push_write(buffer, WriteKind::Put, table, version, |buffer| row.encode_row(buffer));
}

/// The directory that [`database`] makes, and its epochs.
struct TestDatabase {
    directory: PathBuf,
    /// The epoch of the checkpoint.
    checkpoint: u64,
    /// The last epoch.
    last: u64,
}

/// Makes a database with a checkpoint and a sealed log, whose second run was killed while it wrote.
fn database(name: &str) -> TestDatabase {
    let scratch = scratch(name);
    let alive = scratch.join("alive");
    let mut run = Run::begin(&alive);
    run.epoch(|buffer| {
        put(buffer, 0, 1, &account(-5, "Ada", Some(100)));
        put(buffer, 0, 2, &account(300, "Grace", None));
    });
    let checkpoint = run.epoch(|buffer| {
        put(buffer, 0, 1, &account(7, "Edsger, \"Dijkstra\"", Some(-1)));
        for (version, order) in [order("b", 1), order("a", 256), order("a", 2)].iter().enumerate() {
            put(buffer, 1, version as u64, order);
        }
    });
    let accounts = [
        account(-5, "Ada", Some(100)),
        account(300, "Grace", None),
        account(7, "Edsger, \"Dijkstra\"", Some(-1)),
    ];
    let orders = [order("b", 1), order("a", 256), order("a", 2)];
    run.checkpoint(&State {
        epoch: checkpoint,
        rows: [accounts.iter().map(encoded).collect(), orders.iter().map(encoded).collect()],
    });
    run.epoch(|buffer| push_write(buffer, WriteKind::Delete, 0, 1, |buffer| 300_i32.write(buffer)));
    run.end();

    let run = Run::begin(&alive);
    run.epoch(|buffer| put(buffer, 0, 1, &account(7, "Edsger", Some(0))));
    let last = run.epoch(|buffer| put(buffer, 0, 1, &account(1, "", None)));
    let killed = scratch.join("db");
    copy(&alive, &killed);
    // Opening a database always takes the lock.
    lock(&FileSystem, &killed).expect("the database is not open");
    let segment = newest_segment(&killed);
    let mut bytes = fs::read(&segment).expect("the segment is there");
    bytes.extend_from_slice(b"\xf5WFT, and then the power failed");
    fs::write(segment, bytes).expect("the segment can be written");
    TestDatabase { directory: killed, checkpoint, last }
}

/// Makes an empty directory for one test; each test uses a name of its own.
fn scratch(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("durable-{name}"));
    // Remove the directory that an earlier run may have left.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the test directory can be made");
    directory
}

fn copy(from: &Path, to: &Path) {
    for (name, bytes) in contents(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("directories can be made");
        fs::write(path, bytes).expect("files can be written");
    }
}

/// Returns every file below a directory.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(next).expect("the directory is there") {
            let path = entry.expect("the directory can be read").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(directory).expect("it lies in it").to_owned();
                found.insert(name, fs::read(path).expect("the file can be read"));
            }
        }
    }
    found
}

/// Asserts that no file below a directory was changed, created or removed.
#[track_caller]
fn unchanged(directory: &Path, before: &BTreeMap<PathBuf, Vec<u8>>) {
    let after = contents(directory);
    let names = before.keys().chain(after.keys());
    let changed: Vec<_> = names.filter(|&name| before.get(name) != after.get(name)).collect();
    assert!(changed.is_empty(), "{changed:?} should be as they were");
}

fn newest_segment(directory: &Path) -> PathBuf {
    let segments = contents(directory).into_keys().filter(|name| name.starts_with("log"));
    directory.join(segments.max().expect("there is a log"))
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).expect("the file is there");
    bytes[offset] ^= 1;
    fs::write(path, bytes).expect("the file can be written");
}

// ---- running the command --------------------------------------------------------------------

fn shown(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// Runs the command, asserts that it exits with this code, and returns its message.
#[track_caller]
fn fail(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    let message = text(&output.stderr);
    assert!(message.starts_with("error: ") && !message.contains("panicked"), "{message}");
    message.to_owned()
}

fn json(output: &str) -> Value {
    serde_json::from_str(output).expect("nothing but JSON")
}

// ---- tests ----------------------------------------------------------------------------------

#[test]
fn inspect_matches_the_golden_file() {
    let made = database("inspect");
    let directory = shown(&made.directory);
    let before = contents(&made.directory);
    let report = written(&["log", "inspect", directory]);
    for line in report.lines().filter(|line| line.starts_with('|')) {
        assert!(line.chars().count() <= 100, "a line of over 100 columns:\n{line}");
    }
    let manifest = Manifest::read(&FileSystem, &made.directory).unwrap().unwrap();
    let database: String = manifest.database.iter().map(|byte| format!("{byte:02x}")).collect();
    let report = report.replace(directory, "DIR").replace(&database, "DATABASE");
    assert_eq!(report, include_str!("golden/inspect.txt"), "{report}");
    unchanged(&made.directory, &before);
}

#[test]
fn inspect_has_json_for_machines() {
    let made = database("inspect-json");
    let report = json(&written(&["log", "inspect", shown(&made.directory), "--json"]));
    assert_eq!((&report["open"], &report["run"]), (&false.into(), &2.into()));
    assert_eq!(report["epoch"], made.last);
    assert_eq!(report["checkpoint"]["epoch"], made.checkpoint);
    assert_eq!(report["checkpoint"]["rows"], 6);
    assert_eq!(report["tables"][1]["name"], "orders");
    let columns = serde_json::json!([
        {"name": "number", "type": "u16", "key": 1},
        {"name": "customer", "type": "String", "key": 0},
    ]);
    assert_eq!(report["tables"][1]["columns"], columns);
    assert_eq!(report["segments"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["segments"][1]["sealed"], false);
    assert_eq!(report["cuts"][0]["bytes"], 31);
    assert_eq!(report["cuts"][0]["file"], shown(&newest_segment(&made.directory)));
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(0));
}

#[test]
fn verify_prints_every_problem_with_file_and_offset() {
    let made = database("verify");
    let directory = shown(&made.directory);
    let whole = written(&["log", "verify", directory]);
    assert!(whole.starts_with("torn: 31 bytes of "), "{whole}");
    assert!(whole.contains(": intact; 6 rows in the checkpoint, 5 transactions with "), "{whole}");
    assert!(whole.ends_with(&format!("end of epoch {}\n", made.last)), "{whole}");
    let report = json(&written(&["log", "verify", directory, "--json"]));
    assert_eq!((&report["ok"], &report["epoch"]), (&true.into(), &made.last.into()));

    let rows = format!("checkpoint-{:020}/1-0.rows", made.checkpoint);
    flip(&made.directory.join(&rows), 70);
    flip(&made.directory.join("log/0-0000000001.log"), 70);
    let before = contents(&made.directory);
    let output = run(&["log", "verify", directory, "--threads", "1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output.stderr), format!("error: {directory}: 2 problems\n"));
    let told: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    for (line, file) in told.iter().zip(["log/0-0000000001.log", &rows]) {
        let expected = format!("problem: {directory}/{file} is damaged at byte 0: a frame of ");
        assert!(line.starts_with(&expected), "{line}");
    }
    let output = run(&["log", "verify", directory, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = json(text(&output.stdout));
    assert_eq!((&report["ok"], &report["problems"][1]["offset"]), (&false.into(), &0.into()));
    assert_eq!(report["problems"][1]["file"], format!("{directory}/{rows}"));

    let inspected = run(&["log", "inspect", directory]);
    assert_eq!(inspected.status.code(), Some(1), "{inspected:?}");
    assert!(text(&inspected.stdout).contains("state       unknown"), "{inspected:?}");
    let csv = made.directory.with_file_name("accounts.csv");
    for command in [
        &["recover", directory][..],
        &["recover", directory, "--dry-run"],
        &["export", directory, "accounts", shown(&csv)],
    ] {
        assert!(fail(1, command).contains("0-0000000001.log is damaged at byte 0: "));
    }
    assert!(!csv.exists() && !csv.with_extension("csv.unfinished").exists());
    unchanged(&made.directory, &before);

    flip(&made.directory.join("MANIFEST"), 80);
    assert!(fail(1, &["log", "verify", directory]).contains("1 problem"));
    assert!(fail(1, &["log", "inspect", directory]).contains("MANIFEST is damaged at byte 0"));
}

#[test]
fn an_open_database_is_read_and_not_repaired() {
    let made = database("open");
    let directory = shown(&made.directory);
    let before = contents(&made.directory);
    let csv = made.directory.with_file_name("orders.csv");
    let _lock = lock(&FileSystem, &made.directory).expect("the database is not open");
    for command in [
        &["log", "inspect", directory][..],
        &["log", "verify", directory],
        &["recover", directory, "--dry-run"],
        &["export", directory, "orders", shown(&csv)],
    ] {
        let told = written(command);
        assert!(told.starts_with("the database is open: "), "{command:?}: {told}");
    }
    assert!(csv.exists());
    for command in [&["log", "verify"][..], &["log", "inspect"], &["recover", "--dry-run"]] {
        let report = json(&written(&[command, &[directory, "--json"]].concat()));
        assert_eq!(report["open"], true, "{command:?}");
    }
    assert!(fail(2, &["recover", directory]).contains("is open already"));
    unchanged(&made.directory, &before);
}

#[test]
fn dry_run_predicts_recovery() {
    let made = database("recover");
    let directory = shown(&made.directory);
    let before = contents(&made.directory);
    let told = written(&["recover", directory, "--dry-run", "--threads", "2"]);
    for expected in [
        format!("{directory}: the state at the end of epoch {}\n", made.last),
        format!("of epoch {}: 6 rows, ", made.checkpoint),
        "| replay the log      | 3 transactions, 3 writes".to_owned(),
        "| accounts |         5 |".to_owned(),
        "does not count: 31 bytes of ".to_owned(),
        "A dry run: nothing was written.".to_owned(),
    ] {
        assert!(told.contains(&expected), "{expected:?} is missing in:\n{told}");
    }
    let dry = json(&written(&["recover", directory, "--dry-run", "--json"]));
    assert_eq!((&dry["dry_run"], &dry["epoch"]), (&true.into(), &made.last.into()));
    unchanged(&made.directory, &before);

    let earlier = made.last - 1;
    let earlier =
        ["recover", directory, "--dry-run", "--json", "--up-to-epoch", &earlier.to_string()];
    assert_eq!(json(&written(&earlier))["writes"], 2);

    let told = written(&["recover", directory]);
    assert!(told.contains("cut off: 31 bytes of ") && told.contains("| settle "), "{told}");
    let report = json(&written(&["log", "inspect", directory, "--json"]));
    assert_eq!(report["cuts"].as_array().map(Vec::len), Some(0));
    let segments = report["segments"].as_array().expect("an array");
    assert!(segments.iter().all(|segment| segment["sealed"] == true), "{segments:?}");
    assert!(report["epoch"].as_u64() >= Some(made.last), "{report}");

    let repaired = json(&written(&["recover", directory, "--json"]));
    assert_eq!(repaired["cuts"].as_array().map(Vec::len), Some(0));
    assert_eq!(repaired["writes"], dry["writes"], "the same state again");
    Run::begin(&made.directory).epoch(|buffer| put(buffer, 1, 1, &order("c", 1)));
    written(&["log", "verify", directory]);
}

#[test]
fn a_past_state_goes_into_another_directory() {
    let made = database("into");
    let directory = shown(&made.directory);
    let before = contents(&made.directory);
    let into = made.directory.with_file_name("past");
    let epoch = made.checkpoint.to_string();
    let past = ["recover", directory, "--up-to-epoch", &epoch, "--into", shown(&into)];
    let told = written(&past);
    assert!(told.contains("| accounts |    3 |"), "{told}");
    assert!(told.contains(&format!("Written into {}: 6 rows, ", shown(&into))), "{told}");
    written(&["log", "verify", shown(&into)]);
    let csv = into.with_file_name("past.csv");
    written(&["export", shown(&into), "accounts", shown(&csv)]);
    let expected =
        "id,owner,cents\r\n-5,Ada,100\r\n7,\"Edsger, \"\"Dijkstra\"\"\",-1\r\n300,Grace,\r\n";
    assert_eq!(fs::read_to_string(&csv).expect("it was written"), expected);
    Run::begin(&into).epoch(|buffer| put(buffer, 1, 1, &order("c", 1)));
    written(&["log", "verify", shown(&into)]);

    let report = json(&written(&[
        "recover",
        directory,
        "--json",
        "--into",
        shown(&into.with_file_name("present")),
    ]));
    assert_eq!(report["epoch"], made.last);
    assert_eq!(report["into"]["rows"], 6, "three accounts and three orders");

    assert!(fail(2, &past).contains("it holds a database already"));
    let inside = made.directory.join("inside");
    assert!(fail(2, &["recover", directory, "--into", shown(&inside)]).contains("lies in"));
    assert!(fail(2, &["recover", directory, "--up-to-epoch", &epoch]).contains("add --into OTHER"));
    let unknown = (made.last + 1).to_string();
    let message = fail(2, &["recover", directory, "--dry-run", "--up-to-epoch", &unknown]);
    let range = format!("from epoch {} to {}", made.checkpoint, made.last);
    assert!(message.contains(&range), "{message}");
    unchanged(&made.directory, &before);
}

#[test]
fn a_table_is_exported_in_the_order_of_its_keys() {
    let made = database("export");
    let directory = shown(&made.directory);
    let before = contents(&made.directory);
    let csv = made.directory.with_file_name("table.csv");
    fs::write(&csv, "what was there before").expect("the file can be written");
    let told = written(&["export", directory, "accounts", shown(&csv)]);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("does not count: 31 bytes of "), "{told}");
    let expected = "id,owner,cents\r\n-5,Ada,100\r\n1,\"\",\r\n7,Edsger,0\r\n";
    let summary = format!(
        "{}: 3 rows of `accounts` at the end of epoch {}, {} bytes of CSV",
        shown(&csv),
        made.last,
        expected.len()
    );
    assert_eq!(lines[1..], [summary]);
    assert_eq!(fs::read_to_string(&csv).expect("it was written"), expected);

    written(&["export", directory, "orders", shown(&csv), "--threads", "3"]);
    let expected = "number,customer\r\n2,a\r\n256,a\r\n1,b\r\n";
    assert_eq!(fs::read_to_string(&csv).expect("it was written"), expected);

    let epoch = made.checkpoint.to_string();
    let tables = descriptions();
    for format in [Format::ArrowIpc, Format::Parquet] {
        let path = csv.with_extension(format.extension());
        written(&["export", directory, "accounts", shown(&path), "--up-to-epoch", &epoch]);
        let file = fs::File::open(&path).expect("it was written");
        let rows = Importer::new(&tables[0], format, shown(&path), file).expect("it can be read");
        let ids = rows.map(|row| {
            let row = row.expect("it can be read");
            Account::decode_row(&mut &row[..]).expect("it is a row").id
        });
        assert_eq!(ids.collect::<Vec<_>>(), [-5, 7, 300], "{format}");
    }
    unchanged(&made.directory, &before);
}

/// An export does not read the files of other tables, so they may be damaged.
#[test]
fn an_export_reads_one_table() {
    let made = database("one-table");
    let directory = shown(&made.directory);
    flip(&made.directory.join(format!("checkpoint-{:020}/1-0.rows", made.checkpoint)), 70);
    let csv = made.directory.with_file_name("table.csv");
    written(&["export", directory, "accounts", shown(&csv)]);
    assert!(fail(1, &["export", directory, "orders", shown(&csv)]).contains("1-0.rows is damaged"));
    let kept = fs::read_to_string(&csv).expect("it is still there");
    assert!(kept.starts_with("id,owner,cents"), "a failed export leaves what was there: {kept}");
}

#[test]
fn impossible_requests_are_refused() {
    let made = database("refused");
    let directory = shown(&made.directory);
    let empty = scratch("refused-empty");
    let foreign = scratch("refused-foreign");
    fs::write(foreign.join("notes.txt"), "mine").expect("the file can be written");
    let csv = empty.with_file_name("never.csv");
    let csv = shown(&csv);
    for (place, expected) in [
        ("/nowhere/at/all", "there is no directory /nowhere/at/all"),
        (shown(&empty), "it has no MANIFEST"),
        (shown(&foreign), "it holds `notes.txt`"),
    ] {
        for command in [
            &["log", "inspect", place][..],
            &["log", "verify", place],
            &["recover", place],
            &["recover", place, "--dry-run"],
            &["export", place, "accounts", csv],
        ] {
            let message = fail(2, command);
            assert!(message.contains(expected), "{command:?}: {message}");
        }
    }
    assert_eq!(contents(&empty).len() + contents(&foreign).len(), 1, "nothing is made there");
    let inside = made.directory.join("table.csv");
    let cases: &[(&[&str], &str)] = &[
        (&["log", "inspect", directory, "--threads", "0"], "from 1 to 1024"),
        (&["log", "repair", directory], "unrecognized subcommand 'repair'"),
        (&["recover", directory, "--dry-run", "--into", "x"], "cannot be used with"),
        (&["recover", directory, "--dry-run", "--up-to-epoch", "-1"], "from 0 to"),
        (&["export", directory, "account", csv], "no table `account`, but `accounts`, `orders`"),
        (&["export", directory, "accounts", "accounts.xlsx"], ".parquet"),
        (&["export", directory, "accounts", shown(&inside)], "lies in the database's directory"),
        (&["export", directory, "accounts", "/nowhere/at/all.csv"], "/nowhere/at/all.csv: "),
        (&["export", directory, "accounts", csv, "--up-to-epoch", "0"], "cannot open epoch 0"),
    ];
    for (arguments, expected) in cases {
        let message = fail(2, arguments);
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    assert!(!Path::new(csv).exists());
}

#[test]
fn help_covers_the_essentials() {
    for (command, words) in [
        (&["log", "--help"][..], &["inspect", "verify"][..]),
        (&["log", "inspect", "--help"], &["sealed", "leftovers", "Exit code"]),
        (&["log", "verify", "--help"], &["torn tail", "Exit code"]),
        (&["recover", "--help"], &["--up-to-epoch 812 --into OTHER", "--dry-run", "Exit code"]),
        (&["export", "--help"], &[".parquet", "order of their primary keys", "Exit code"]),
        (&["--help"], &["log", "recover", "export"]),
    ] {
        let help = written(command);
        for word in words {
            assert!(help.contains(word), "{word:?} is missing in:\n{help}");
        }
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "a line of over 100 columns:\n{line}");
        }
    }
}

/// Runs the command and asserts that it ends within a minute.
#[cfg(unix)]
fn run_briefly(arguments: &[&str]) -> std::process::Output {
    use std::time::{Duration, Instant};

    let start = Instant::now();
    let mut child = crate::support::weft()
        .args(arguments)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    while child.try_wait().expect("it can be waited for").is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().expect("it runs");
            panic!("{arguments:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it has ended")
}

#[cfg(unix)]
#[test]
fn fifo_in_place_of_a_file_is_refused_by_every_command() {
    let made = database("fifo");
    let directory = shown(&made.directory);
    let files: Vec<PathBuf> = contents(&made.directory).into_keys().collect();
    for expected in ["LOCK", "MANIFEST", "log/", "checkpoint-"] {
        let is_there = files.iter().any(|name| shown(name).starts_with(expected));
        assert!(is_there, "no {expected} in {files:?}");
    }
    let into = made.directory.with_extension("into");
    let csv = made.directory.with_extension("csv");
    let commands: &[&[&str]] = &[
        &["log", "inspect", directory],
        &["log", "verify", directory],
        &["recover", directory, "--dry-run"],
        &["recover", directory],
        &["recover", directory, "--into", shown(&into)],
        &["export", directory, "accounts", shown(&csv)],
    ];
    for name in &files {
        let path = made.directory.join(name);
        let bytes = fs::read(&path).expect("it is a file");
        fs::remove_file(&path).expect("it is there");
        let made_fifo = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made_fifo.expect("mkfifo starts").success());
        for &arguments in commands {
            let output = run_briefly(arguments);
            let told = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert!(!told.contains("panicked"), "{arguments:?}: {told}");
            // These commands do not read the rows of the checkpoint, or not those of all tables.
            let may_succeed =
                shown(name).starts_with("checkpoint-") && matches!(arguments[0], "log" | "export");
            if !may_succeed {
                assert_ne!(output.status.code(), Some(0), "{arguments:?}: {told}");
            }
            if output.status.code() != Some(0) {
                let is_named = told.contains(shown(&path)) && told.contains("is a FIFO");
                assert!(is_named, "{arguments:?}, {}: {told}", name.display());
            }
        }
        fs::remove_file(&path).expect("the FIFO is there");
        fs::write(&path, bytes).expect("the file can be put back");
    }
    assert_eq!(run_briefly(&["log", "verify", directory]).status.code(), Some(0));
}
