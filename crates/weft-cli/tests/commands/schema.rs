//! `weft schema` as a process, on a directory of one version of a program, and one of the next version.

use std::path::{Path, PathBuf};

use serde_json::Value;
use weft::description::StoredRow;
use weft::schema::Violation;
use weft::{Database, Record};

use crate::support::{run, text, written};

#[derive(Clone, Record)]
struct Account {
    #[record(key)]
    id: u32,
    #[record(index)]
    owner: String,
    cents: u32,
    note: String,
}

/// The next version.
mod next {
    use super::*;

    #[derive(Clone, Record)]
    #[record(was = "account", dropped(note), check = never)]
    pub struct Client {
        #[record(key)]
        id: u64,
        #[record(unique, was = "owner")]
        name: String,
        #[record(default = Some(3))]
        rank: Option<u8>,
        cents: i64,
    }

    fn never(_: &Client) -> Result<(), Violation> {
        Ok(())
    }

    #[derive(Clone, Record)]
    #[record(table = "account", dropped(note, cents, owner))]
    pub struct Computed {
        #[record(key)]
        id: u32,
        #[record(computed = length)]
        length: u64,
    }

    fn length(row: &StoredRow<'_>) -> Result<u64, Violation> {
        Ok(row.get::<String>("owner")?.len() as u64)
    }

    #[derive(Clone, Record)]
    #[record(table = "account")]
    pub struct Refused {
        #[record(key)]
        id: u32,
        cents: String,
    }
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let name = format!("weft-schema-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the directory can be made");
        Directory(path)
    }

    fn of<T: Record>(name: &str) -> Directory {
        let directory = Directory::new(name);
        open::<T>(&directory.0).close().expect("it is open");
        directory
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("the path is UTF-8")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open<T: Record>(path: &Path) -> Database {
    Database::builder().table::<T>().directory(path).open().expect("it is a directory")
}

fn accounts(name: &str, owners: &[&str]) -> Directory {
    let directory = Directory::new(name);
    let database = open::<Account>(&directory.0);
    let table = database.table::<Account>().expect("it is open");
    for (id, owner) in (0..).zip(owners) {
        let row = Account { id, owner: (*owner).into(), cents: 5, note: String::new() };
        database.transact(|tx| tx.insert(&table, row.clone())).expect("the row is new");
    }
    database.close().expect("it is open");
    directory
}

#[test]
fn schema_is_shown() {
    let directory = Directory::of::<next::Client>("show");
    assert_eq!(
        written(&["schema", "show", directory.text()]),
        "table client (ordered), key (id), was account\n  id: u64\n  name: String, was owner\n  \
         rank: Option<u8>, default Some(3)\n  cents: i64\n  unique index name (name)\n  check never\n"
    );
    let json: Value =
        serde_json::from_str(&written(&["schema", "show", directory.text(), "--json"])).unwrap();
    assert_eq!(json["tables"][0]["columns"][2]["type"], "Option<u8>");
    let output = run(&["schema", "show", "/no/such/directory"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn differences_and_rows_that_do_not_fit_are_listed() {
    let old = accounts("old", &["Ada", "Grace", "Ada", "Edsger"]);
    let new = Directory::of::<next::Client>("new");
    let expected = "  it was `account`\n  column `id` is stored as u32, and becomes u64\n  \
                    column `name` was `owner`\n  column `rank` gets its default\n  \
                    column `cents` is stored as u32, and becomes i64\n  column `note` is dropped\n  \
                    unique index `name` (name) is built\n  index `owner` is dropped\n  \
                    check `never` is added\n";
    let diff = written(&["schema", "diff", old.text(), new.text()]);
    assert_eq!(diff, format!("table client\n{expected}"));
    assert_eq!(written(&["schema", "diff", old.text(), old.text()]), "nothing changes\n");

    let output = run(&["schema", "migrate", old.text(), new.text(), "--dry-run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output.stdout), format!("table client: 4 rows tried\n{expected}"));
    let message = "2 rows have the same values in the unique index `name`: 0; 2";
    assert!(text(&output.stderr).contains(message), "{output:?}");
    let output = run(&["schema", "migrate", old.text(), new.text()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--dry-run"), "{output:?}");

    let computed = Directory::of::<next::Computed>("computed");
    let tried = written(&["schema", "migrate", old.text(), computed.text(), "--dry-run"]);
    assert!(tried.contains("column `length` is computed from the row"), "{tried}");
    assert!(tried.contains("not tried"), "{tried}");
}

#[test]
fn versions_and_hooks_are_shown() {
    let old = accounts("version-old", &["Ada"]);
    let new = Directory::new("version-new");
    let program = |path: &Path| {
        let builder = Database::builder().table::<Account>().directory(path).version(2);
        builder.rolls_back_to(1).migrate(0, |_| Ok(())).migrate(1, |_| Ok(())).open()
    };
    drop(program(&new.0).expect("it is empty"));
    let shown = written(&["schema", "show", new.text()]);
    let version = "version 2, opens with programs of version 1 and newer\n\ntable account";
    assert!(shown.starts_with(version), "{shown}");
    let diff = written(&["schema", "diff", old.text(), new.text()]);
    let expected = "the program's hook from version 0 to 1 runs\n\
                    the program's hook from version 1 to 2 runs\n";
    assert_eq!(diff, expected);
    let tried = written(&["schema", "migrate", old.text(), new.text(), "--dry-run"]);
    assert!(tried.contains("from version 1 to 2 runs; not tried"), "{tried}");
    let report = written(&["schema", "diff", old.text(), new.text(), "--json"]);
    let json: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(json["hooks"], serde_json::json!([0, 1]));
    // The other way round, the program is too old.
    let output = run(&["schema", "diff", new.text(), old.text()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("the program has version 0"), "{output:?}");
    drop(program(&old.0).expect("the hooks run"));
    assert_eq!(written(&["schema", "diff", old.text(), new.text()]), "nothing changes\n");
    // Tools keep the version.
    written(&["recover", old.text()]);
    assert!(written(&["schema", "show", old.text()]).starts_with("version 2"));
}

#[test]
fn what_stands_in_the_way_is_reported_with_advice() {
    let old = accounts("refused-old", &["Ada"]);
    let new = Directory::of::<next::Refused>("refused-new");
    let output = run(&["schema", "diff", old.text(), new.text(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    let obstacles = json["obstacles"].as_array().unwrap();
    assert_eq!(obstacles.len(), 3, "{obstacles:?}");
    assert!(text(&output.stderr).contains("`#[record(dropped(note))]`"), "{output:?}");
    let dropped = ["schema", "diff", old.text(), new.text(), "--drop-table", "account"];
    let output = run(&dropped);
    assert!(text(&output.stderr).contains("leave out one of the two"), "{output:?}");
}
