//! `weft dump`, `weft restore` and `weft import` as processes, on directories that a program has written.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use weft::schema::Violation;
use weft::{Database, Error, Record};

use crate::support::{run, text, weft, written};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    id: u32,
    #[record(unique)]
    owner: String,
    #[record(default = 5)]
    cents: i64,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "seats", check = is_taken)]
struct Seat {
    #[record(key)]
    number: u16,
    taken_by: Option<String>,
}

fn is_taken(seat: &Seat) -> Result<(), Violation> {
    if seat.taken_by.is_some() { Ok(()) } else { Err("it is free".into()) }
}

/// The accounts of an earlier version of the program.
mod earlier {
    use weft::Record;

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "accounts")]
    pub struct Account {
        #[record(key)]
        pub id: u32,
        #[record(unique)]
        pub owner: String,
    }
}

fn account(id: u32, owner: &str, cents: i64) -> Account {
    Account { id, owner: owner.to_owned(), cents }
}

/// A directory for one test, which contains a database.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("exchange-{name}"));
        // Remove the directory that an earlier run may have left.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the directory can be made");
        let scratch = Scratch(path);
        let database = scratch.open("db");
        put(&database, [account(1, "Ada", 10), account(2, "Grace, \"Hopper\"", -3)]);
        scratch
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the path is UTF-8").to_owned()
    }

    fn open(&self, name: &str) -> Database {
        let builder = Database::builder().table::<Account>().table::<Seat>();
        builder.directory(self.path(name)).open().expect("the directory is whole")
    }

    fn accounts(&self, name: &str) -> Vec<Account> {
        rows(&self.open(name))
    }

    /// Writes a file, and returns its path.
    fn file(&self, name: &str, contents: &str) -> String {
        fs::write(self.path(name), contents).expect("the file can be written");
        self.path(name)
    }
}

fn put<T: Record>(database: &Database, rows: impl IntoIterator<Item = T>) {
    let table = database.table::<T>().expect("it is open");
    for row in rows {
        database.transact(|tx| tx.upsert(&table, row.clone()).map(drop)).expect("it fits");
    }
}

fn rows<T: Record>(database: &Database) -> Vec<T> {
    let table = database.table::<T>().expect("it is open");
    let read = database.snapshot(|snapshot| {
        snapshot.rows(&table).map(|row| Ok(row?.clone())).collect::<Result<Vec<T>, Error>>()
    });
    read.expect("the rows can be read")
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

// ---- dump and restore -----------------------------------------------------------------------

#[test]
fn database_is_dumped_and_restored() {
    let scratch = Scratch::new("round-trip");
    let (db, file, copy) = (scratch.path("db"), scratch.path("a.dump"), scratch.path("copy"));
    let report = written(&["dump", &db, "-o", &file]);
    assert!(report.contains("2 rows") && report.contains("accounts"), "{report}");
    assert!(!Path::new(&format!("{file}.unfinished")).exists());

    let tried = json(&written(&["restore", &file, &copy, "--dry-run", "--json"]));
    assert_eq!((&tried["dry_run"], &tried["rows"]), (&true.into(), &2.into()));
    assert!(!Path::new(&copy).exists(), "a dry run writes nothing");
    let report = written(&["restore", &file, &copy]);
    assert!(report.contains("restored from") && report.contains("2 rows"), "{report}");
    assert_eq!(scratch.accounts("copy"), scratch.accounts("db"));
    written(&["log", "verify", &copy]);

    // An existing file and an existing database are not overwritten.
    let message = fail(2, &["dump", &db, "-o", &file]);
    assert!(message.contains("--replace"), "{message}");
    let report = json(&written(&["dump", &db, "-o", &file, "--replace", "--json"]));
    assert_eq!(report["tables"][0]["name"], "accounts");
    assert_eq!((&report["open"], &report["rows"]), (&false.into(), &2.into()));
    let message = fail(2, &["restore", &file, &copy]);
    assert!(message.contains("it holds a database already"), "{message}");
    let message = fail(2, &["dump", &db, "-o", &scratch.path("db/inside.dump")]);
    assert!(message.contains("lies in the database's directory"), "{message}");
    let message = fail(2, &["dump", &scratch.path("none"), "-o", &file, "--replace"]);
    assert!(message.contains("there is no directory"), "{message}");
    let message = fail(2, &["restore", &scratch.path("none"), &scratch.path("new")]);
    assert!(message.contains("none"), "{message}");
}

#[test]
fn dump_goes_through_a_pipe() {
    let scratch = Scratch::new("pipe");
    let output = run(&["dump", &scratch.path("db"), "-o", "-"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("2 rows"), "{output:?}");
    let mut restore = weft();
    restore.args(["restore", "-", &scratch.path("copy")]).stdin(Stdio::piped());
    let mut child = restore.stdout(Stdio::piped()).spawn().expect("the binary starts");
    child.stdin.take().expect("it is piped").write_all(&output.stdout).expect("it reads");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(scratch.accounts("copy"), scratch.accounts("db"));
}

#[test]
fn open_database_is_dumped_as_it_is_in_the_log() {
    let scratch = Scratch::new("open");
    let database = scratch.open("db");
    put(&database, [account(3, "Edsger", 0)]);
    let file = scratch.path("a.dump");
    let report = written(&["dump", &scratch.path("db"), "-o", &file]);
    assert!(report.starts_with("the database is open"), "{report}");
    assert!(report.contains("3 rows"), "{report}");
    written(&["restore", &file, &scratch.path("copy")]);
    assert_eq!(scratch.accounts("copy"), rows::<Account>(&database));
}

#[test]
fn past_state_is_dumped() {
    let scratch = Scratch::new("past");
    let epoch = {
        let database = scratch.open("db");
        let epoch = database.recovered().expect("it has a directory").epoch;
        put(&database, [account(3, "Edsger", 0)]);
        epoch
    };
    let (db, file) = (scratch.path("db"), scratch.path("a.dump"));
    let report = written(&["dump", &db, "-o", &file, "--up-to-epoch", &epoch.to_string()]);
    assert!(report.contains("2 rows"), "{report}");
    let message = fail(2, &["dump", &db, "-o", &scratch.path("b"), "--up-to-epoch", "99999"]);
    assert!(message.contains("cannot open epoch 99999"), "{message}");
    assert!(!Path::new(&scratch.path("b.unfinished")).exists());
}

#[test]
fn damaged_dump_is_named_with_the_place() {
    let scratch = Scratch::new("damaged");
    let (file, copy) = (scratch.path("a.dump"), scratch.path("copy"));
    written(&["dump", &scratch.path("db"), "-o", &file]);
    let bytes = fs::read(&file).expect("it was written");
    fs::write(&file, &bytes[..bytes.len() - 1]).expect("it can be written");
    let message = fail(1, &["restore", &file, &copy]);
    assert!(message.contains("a.dump is damaged at byte"), "{message}");
    assert!(message.contains("it was cut off"), "{message}");
    assert!(!Path::new(&copy).join("MANIFEST").exists());
    // The same directory takes the whole file.
    fs::write(&file, &bytes).expect("it can be written");
    written(&["restore", &file, &copy]);
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_is_reported() {
    let scratch = Scratch::new("full");
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let mut dump = weft();
    dump.args(["dump", &scratch.path("db"), "-o", "-"]).stdout(full);
    let output = dump.output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = text(&output.stderr);
    assert!(message.contains("no space left on the disk for standard output"), "{message}");
}

// ---- import ---------------------------------------------------------------------------------

#[test]
fn rows_are_added_in_one_step() {
    let scratch = Scratch::new("added");
    let db = scratch.path("db");
    let file = scratch.file("new.csv", "owner,id\nEdsger,7\n\"Barbara, L.\",3\n");
    let tried = written(&["import", &db, "accounts", &file, "--dry-run"]);
    assert!(tried.contains("2 rows added, 0 replaced, 0 skipped"), "{tried}");
    assert!(tried.contains("nothing was written"), "{tried}");
    assert_eq!(scratch.accounts("db").len(), 2);

    let report = json(&written(&["import", &db, "accounts", &file, "--json"]));
    assert_eq!((&report["added"], &report["dry_run"]), (&2.into(), &false.into()));
    written(&["log", "verify", &db]);
    // The column that the file does not have gets its default.
    let expected = [
        account(1, "Ada", 10),
        account(2, "Grace, \"Hopper\"", -3),
        account(3, "Barbara, L.", 5),
        account(7, "Edsger", 5),
    ];
    assert_eq!(scratch.accounts("db"), expected);

    // The state before is there, as the report says.
    let before = report["epoch_before"].to_string();
    let earlier = scratch.path("earlier");
    written(&["recover", &db, "--up-to-epoch", &before, "--into", &earlier]);
    assert_eq!(scratch.accounts("earlier").len(), 2);
}

#[test]
fn exported_table_is_imported_again() {
    let scratch = Scratch::new("exported");
    let file = scratch.path("accounts.csv");
    written(&["export", &scratch.path("db"), "accounts", &file]);
    drop(scratch.open("empty"));
    written(&["import", &scratch.path("empty"), "accounts", &file]);
    assert_eq!(scratch.accounts("empty"), scratch.accounts("db"));
    // An import of no rows is one as well.
    let none = scratch.file("none.csv", "id,owner\n");
    let report = written(&["import", &scratch.path("db"), "accounts", &none]);
    assert!(report.contains("0 rows added"), "{report}");
    assert_eq!(scratch.accounts("db").len(), 2);
}

#[test]
fn rows_come_from_standard_input() {
    let scratch = Scratch::new("stdin");
    let mut import = weft();
    import.args(["import", &scratch.path("db"), "accounts", "-"]).stdin(Stdio::piped());
    let mut child = import.stdout(Stdio::piped()).spawn().expect("the binary starts");
    child.stdin.take().expect("it is piped").write_all(b"id,owner\n9,Alan\n").expect("it reads");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(scratch.accounts("db")[2], account(9, "Alan", 5));
}

#[test]
fn duplicates_are_listed_skipped_or_replaced() {
    let scratch = Scratch::new("duplicates");
    let db = scratch.path("db");
    let file = scratch.file("new.csv", "id,owner\n5,E\n1,A\n\"5\",F\n");
    let before = fs::read(scratch.0.join("db/MANIFEST")).expect("it is there");
    let message = fail(1, &["import", &db, "accounts", &file]);
    for part in [
        "new.csv, line 3: row 1 is in the table already",
        "new.csv, line 4: row 5 is in line 2, too",
        "2 rows cannot be added to `accounts`, and nothing was changed",
    ] {
        assert!(message.contains(part), "{part:?} is missing in {message}");
    }
    assert_eq!(before, fs::read(scratch.0.join("db/MANIFEST")).expect("it is there"));

    let skip = ["import", &db, "accounts", &file, "--on-duplicate", "skip"];
    let report = written(&skip);
    assert!(report.contains("1 row added, 0 replaced, 2 skipped"), "{report}");
    assert_eq!(scratch.accounts("db")[2], account(5, "E", 5));

    // A replaced row keeps what the file does not have.
    let replace = ["import", &db, "accounts", &file, "--on-duplicate", "replace"];
    let report = written(&replace);
    assert!(report.contains("0 rows added, 2 replaced, 0 skipped"), "{report}");
    let expected = [account(1, "A", 10), account(2, "Grace, \"Hopper\"", -3), account(5, "F", 5)];
    assert_eq!(scratch.accounts("db"), expected);
}

#[test]
fn unique_indexes_are_checked() {
    let scratch = Scratch::new("unique");
    let db = scratch.path("db");
    let file = scratch.file("new.csv", "id,owner\n5,Ada\n6,Alan\n7,Alan\n");
    for on_duplicate in ["error", "skip", "replace"] {
        let message = fail(1, &["import", &db, "accounts", &file, "--on-duplicate", on_duplicate]);
        for part in [
            "line 2: the unique index `owner` has \"Ada\" for row 1 in the table",
            "line 4: the unique index `owner` has \"Alan\" for row 6 in line 3",
        ] {
            assert!(message.contains(part), "{part:?} is missing in {message}");
        }
    }
    assert_eq!(scratch.accounts("db").len(), 2);
    // Rows may swap their values, and a replaced row gives up its own.
    let swap = scratch.file("swap.csv", "id,owner\n1,\"Grace, \"\"Hopper\"\"\"\n2,Ada\n");
    written(&["import", &db, "accounts", &swap, "--on-duplicate", "replace"]);
    let expected = [account(1, "Grace, \"Hopper\"", 10), account(2, "Ada", -3)];
    assert_eq!(scratch.accounts("db"), expected);
}

#[test]
fn values_that_do_not_fit_are_named_by_line_and_column() {
    let scratch = Scratch::new("values");
    let db = scratch.path("db");
    let cases = [
        ("id,owner\n5,E\n-1,F\n", "line 3, column `id`: expected u32, found \"-1\""),
        ("id,owner\n5\n", "line 2: 1 fields, but the header has 2"),
        ("id,name\n5,E\n", "its column 2 is \"name\", which the table does not have"),
        ("id,cents\n5,5\n", "column `owner` is missing, and has no default"),
        ("", "the file is empty"),
    ];
    for (contents, expected) in cases {
        let file = scratch.file("new.csv", contents);
        let message = fail(1, &["import", &db, "accounts", &file]);
        assert!(message.contains(expected), "{expected:?} is missing in {message}");
    }
    let file = scratch.file("new.xls", "");
    assert!(fail(2, &["import", &db, "accounts", &file]).contains("should end in .csv"));
    let none = scratch.path("none.csv");
    assert!(fail(2, &["import", &db, "accounts", &none]).contains("none.csv"));
    let message = fail(2, &["import", &db, "orders", &none]);
    assert!(message.contains("no table `orders`, but `accounts`, `seats`"), "{message}");
    assert_eq!(scratch.accounts("db").len(), 2);
}

#[test]
fn tables_with_checks_are_left_to_the_program() {
    let scratch = Scratch::new("checks");
    let db = scratch.path("db");
    let file = scratch.file("new.csv", "number,taken_by\n1,Ada\n2,\n");
    let message = fail(2, &["import", &db, "seats", &file]);
    assert!(message.contains("the check `is_taken`, which only the program can run"), "{message}");
    let report = written(&["import", &db, "seats", &file, "--unchecked"]);
    assert!(report.contains("not run: the check `is_taken`"), "{report}");
    let builder = Database::builder().table::<Account>().table::<Seat>();
    let refused = builder.directory(&db).open().map(drop).expect_err("seat 2 is free");
    assert!(refused.to_string().contains("row 2: is_taken: it is free"), "{refused}");
}

#[test]
fn open_database_is_refused() {
    let scratch = Scratch::new("refused-open");
    let file = scratch.file("new.csv", "id,owner\n5,E\n");
    let database = scratch.open("db");
    let message = fail(2, &["import", &scratch.path("db"), "accounts", &file]);
    assert!(message.contains("is open already"), "{message}");
    assert_eq!(rows::<Account>(&database).len(), 2);
}

#[test]
fn columns_that_the_last_program_did_not_know_are_imported() {
    let scratch = Scratch::new("kept");
    let db = scratch.path("db");
    let open = || {
        let builder = Database::builder().table::<earlier::Account>();
        builder.directory(&db).open().expect("an earlier program opens it")
    };
    put(&open(), [earlier::Account { id: 3, owner: "Edsger".into() }]);
    let file = scratch.file("new.csv", "id,owner,cents\n4,Alan,44\n1,Ada,11\n");
    written(&["import", &db, "accounts", &file, "--on-duplicate", "replace"]);
    let other = scratch.file("other.csv", "id,owner\n2,Grace\n");
    put(&open(), [earlier::Account { id: 5, owner: "Barbara".into() }]);
    written(&["import", &db, "accounts", &other, "--on-duplicate", "replace"]);
    let expected = [
        account(1, "Ada", 11),
        account(2, "Grace", -3),
        account(3, "Edsger", 5),
        account(4, "Alan", 44),
        account(5, "Barbara", 5),
    ];
    assert_eq!(scratch.accounts("db"), expected);
}
