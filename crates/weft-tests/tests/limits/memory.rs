//! The memory limit, and the memory of each table and index.

use std::process::Command;

use weft::durability::StorageError;
use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft::{Builder, Database, DurabilityOptions, Error, Failure, Table};

use weft_tests::{TemporaryDirectory, for_each_executor};

use super::{Plain, Text, eventually, failure, in_a_process};

struct Tables<P: Protocol> {
    database: Database<P>,
    texts: Table<Text>,
    plains: Table<Plain>,
}

impl<P: Protocol> Tables<P> {
    fn of(builder: Builder<P>) -> Self {
        let database = builder.table::<Text>().table::<Plain>().open().unwrap();
        let (texts, plains) = (database.table().unwrap(), database.table().unwrap());
        Tables { database, texts, plains }
    }

    fn limited(bytes: u64) -> Self {
        Self::of(Database::builder().protocol::<P>().memory_limit(bytes))
    }

    fn insert(&self, row: Text) -> Result<(), Error> {
        self.database.transact(|tx| tx.insert(&self.texts, row.clone()))
    }

    fn delete(&self, id: u64) -> Result<bool, Error> {
        self.database.transact(|tx| tx.delete(&self.texts, &id))
    }

    fn change(&self, id: u64, text: &str) -> Result<Option<()>, Error> {
        self.database.transact(|tx| tx.update(&self.texts, &id, |row| row.text = text.to_owned()))
    }

    /// Inserts rows until one is refused. Returns how many there are.
    fn fill(&self, bytes: usize) -> u64 {
        let refused = (0..).find_map(|id| Some((id, self.insert(Text::new(id, bytes)).err()?)));
        let (id, error) = refused.unwrap();
        expect_full(error);
        id
    }

    fn check_within_limit(&self) {
        let memory = self.database.metrics().memory;
        assert!(memory.used_bytes <= memory.limit_bytes.unwrap(), "{memory:?}");
    }
}

fn expect_full(error: Error) {
    let Error::Failure(Failure::MemoryFull { used_bytes, limit_bytes }) = error else {
        panic!("{error}")
    };
    assert!(used_bytes > limit_bytes / 2, "{used_bytes} of {limit_bytes}");
}

const MIB: u64 = 1 << 20;

#[test]
fn growth_is_refused_and_all_else_goes_on() {
    for_each_executor!(|P| {
        let tables = Tables::<P>::limited(24 * MIB);
        let rows = tables.fill(2000);
        assert!(rows > 3000, "{rows} rows");
        tables.check_within_limit();
        // Reads, and updates that do not grow.
        for id in 0..rows {
            tables.change(id, &"y".repeat(2000)).unwrap();
            if id % 97 == 0 {
                let row = tables.database.transact(|tx| Ok(tx.get(&tables.texts, &id)?.cloned()));
                assert_eq!(row.unwrap_or_else(|error: Error| panic!("{error}")).unwrap().id, id);
            }
        }
        tables.check_within_limit();
        // An update that grows, an upsert of a new row, and many rows at once are refused, and change nothing.
        expect_full(tables.change(0, &"z".repeat(8 << 20)).unwrap_err());
        let upsert = |tx: &weft::Transaction<'_, P>| {
            tx.upsert(&tables.texts, Text::new(rows + 1, 8 << 20)).map(drop)
        };
        expect_full(tables.database.transact(upsert).unwrap_err());
        let many = |tx: &weft::Transaction<'_, P>| {
            let rows = (rows..2 * rows).map(|id| Text::new(id, 2000));
            tx.insert_many(&tables.texts, rows)
        };
        expect_full(tables.database.transact(many).unwrap_err());
        let count =
            |tx: &weft::Transaction<'_, P>| Ok::<_, Error>(tx.range(&tables.texts, ..).count());
        assert_eq!(tables.database.transact(count).unwrap() as u64, rows);
        // What is deleted makes room for as many rows.
        for round in 0..3 {
            for id in 0..rows / 2 {
                assert!(tables.delete(id).unwrap(), "round {round}, row {id}");
            }
            for id in 0..rows / 2 {
                eventually("an insertion in place of a deleted row", || {
                    // Garbage is collected as transactions go on.
                    let inserted = tables.insert(Text::new(id, 2000));
                    inserted.map_err(expect_full).ok()
                });
            }
            tables.check_within_limit();
        }
    });
}

#[test]
fn a_row_that_is_refused_leaves_the_transaction_usable() {
    for_each_executor!(|P| {
        let tables = Tables::<P>::limited(16 * MIB);
        let body = |tx: &weft::Transaction<'_, P>| {
            tx.insert(&tables.texts, Text::new(1, 10))?;
            expect_full(tx.insert(&tables.texts, Text::new(2, 32 << 20)).unwrap_err());
            tx.insert(&tables.texts, Text::new(3, 10))
        };
        tables.database.transact(body).unwrap();
        let ids = |tx: &weft::Transaction<'_, P>| {
            tx.range_by(&tables.texts, Text::GROUP, ..).map(|row| Ok::<_, Error>(row?.id)).collect()
        };
        let ids: Vec<u64> = tables.database.transact(ids).unwrap();
        assert_eq!(ids, [1, 3]);
    });
}

#[test]
fn the_message_says_what_to_do() {
    let tables = Tables::<weft::protocol::Dbx>::limited(1);
    let refused = failure(tables.insert(Text::new(1, 10)));
    let Failure::MemoryFull { used_bytes, limit_bytes: 1 } = refused else { panic!("{refused}") };
    assert_eq!(
        refused.to_string(),
        format!(
            "the database uses {used_bytes} bytes, and the limit is 1: the operation needs more; delete rows, drop \
             snapshots, or raise .memory_limit(bytes) in the builder"
        )
    );
    // Nothing is there to delete, and that can be said.
    assert!(!tables.delete(1).unwrap_or(false));
}

#[test]
fn memory_is_counted_by_table_and_index() {
    for_each_executor!(|P| {
        let tables = Tables::<P>::of(Database::builder().protocol::<P>());
        let sizes = |count: u64| (0..count).map(|id| (id, 100 + (id % 50) as usize));
        let heap = |bytes: usize| weft::column::allocation_bytes(bytes) as u64;
        for (id, bytes) in sizes(1000) {
            tables.insert(Text::new(id, bytes)).unwrap();
        }
        let measured = tables.database.metrics().memory;
        let names: Vec<_> =
            measured.indexes.iter().map(|index| (index.table, index.index)).collect();
        assert_eq!(names, [("texts", None), ("texts", Some("group")), ("plains", None)]);
        let [texts, group, plains] = &measured.indexes[..] else { panic!("{measured:?}") };
        let expected: u64 = sizes(1000).map(|(_, bytes)| heap(bytes)).sum();
        assert_eq!((texts.records, texts.heap_bytes), (1000, expected));
        assert!(texts.record_bytes >= 1000 * 64 && texts.node_bytes > 1000 * 16, "{texts:?}");
        assert_eq!((group.records, group.heap_bytes), (1000, 0));
        assert!(group.node_bytes > 0);
        assert_eq!((plains.records, plains.heap_bytes), (0, 0));
        assert!(measured.used_bytes >= measured.chunk_bytes);
        // Replaced versions and deleted rows count until they are freed.
        for (id, _) in sizes(1000) {
            tables.change(id, &"y".repeat(300)).unwrap();
        }
        for id in 500..1000 {
            tables.delete(id).unwrap();
        }
        eventually("garbage is freed", || {
            let _ = tables.change(0, &"y".repeat(300));
            let texts = tables.database.metrics().memory.indexes[0];
            // The last batch of garbage is still open.
            let is_freed = texts.records < 1000 && texts.heap_bytes < 1100 * heap(300);
            is_freed.then_some(())
        });
    });
}

#[test]
fn rolled_back_and_refused_rows_are_not_counted() {
    for_each_executor!(|P| {
        let tables = Tables::<P>::of(Database::builder().protocol::<P>());
        tables.insert(Text::new(1, 100)).unwrap();
        let before = tables.database.metrics().memory.indexes[0].heap_bytes;
        for _ in 0..20 {
            let body = |tx: &weft::Transaction<'_, P>| {
                let _ = tx.insert(&tables.texts, Text::new(1, 5000));
                tx.insert(&tables.texts, Text::new(2, 5000))?;
                tx.update(&tables.texts, &1, |row| row.text.push_str(&"z".repeat(5000)))?;
                Err::<(), _>(Error::from(Failure::Closed))
            };
            let _ = tables.database.transact(body).unwrap_err();
        }
        // Rows that were rolled back are dropped at the end of their transaction, or after a grace period.
        eventually("what was rolled back is dropped", || {
            tables.change(1, &"x".repeat(100)).unwrap();
            let now = tables.database.metrics().memory.indexes[0].heap_bytes;
            (now < before + 600 * 120).then_some(())
        });
    });
}

#[test]
fn loading_and_recovering_more_than_the_limit_is_refused() {
    let tables = Tables::<weft::protocol::Dbx>::limited(16 * MIB);
    let rows = || (0..100_000).map(|id| Ok::<_, Failure>(Plain::new(id)));
    let loaded = tables.database.load(&tables.plains, [rows()], |_| {});
    assert!(matches!(loaded, Err(Failure::MemoryFull { .. })), "{loaded:?}");
    let first =
        tables.database.transact(|tx| Ok::<_, Error>(tx.get(&tables.plains, &0)?.is_some()));
    assert!(!first.unwrap(), "the table is empty again");

    let directory = TemporaryDirectory::new("limits");
    let open = |limit: Option<u64>| {
        let builder = Database::builder().directory(&directory.0).table::<Plain>();
        builder.memory_limit(limit.unwrap_or(u64::MAX))
    };
    let database = open(None).open().unwrap();
    let plains = database.table::<Plain>().unwrap();
    database.load(&plains, [rows()], |_| {}).unwrap_or_else(|error| panic!("{error}"));
    drop((database, plains));
    let refused = open(Some(16 * MIB)).open().unwrap_err();
    let Failure::Storage(StorageError::MemoryFull { limit_bytes, .. }) = &refused else {
        panic!("{refused}")
    };
    assert_eq!(*limit_bytes, 16 * MIB);
    assert!(
        refused.to_string().ends_with("raise .memory_limit(bytes) in the builder"),
        "{refused}"
    );
    let database = open(Some(512 * MIB)).open().unwrap();
    assert_eq!(database.metrics().memory.indexes[0].records, 100_000);
}

/// Fault: recovery did not count what rows own that a change in the log had replaced.
#[test]
fn recovery_counts_what_changed_rows_own() {
    let directory = TemporaryDirectory::new("limits-changed");
    let open = || Tables::<weft::protocol::Dbx>::of(Database::builder().directory(&directory.0));
    let heap_bytes = |tables: &Tables<weft::protocol::Dbx>| {
        tables.database.metrics().memory.indexes[0].heap_bytes
    };
    let tables = open();
    (0..20).for_each(|id| tables.insert(Text::new(id, 0)).unwrap());
    (0..10).for_each(|id| assert!(tables.change(id, &"x".repeat(10_000)).unwrap().is_some()));
    drop(tables);
    let tables = open();
    let counted = heap_bytes(&tables);
    assert!((100_000..120_000).contains(&counted), "{counted}");
    (0..10).for_each(|id| assert!(tables.change(id, "").unwrap().is_some()));
    drop(tables);
    let counted = heap_bytes(&open());
    assert!(counted < 20_000, "{counted}");
}

const LIMIT: u64 = 256 * MIB;

/// The ways in which a program grows.
const CASES: [&str; 8] = ["plain", "texts", "short", "one", "snapshot", "threads", "log", "change"];

/// The body of a child process, which grows until it is refused, by all ways of its case.
#[test]
#[ignore = "another test runs it, as a process of its own"]
fn grows_until_it_is_refused() {
    let Ok(case) = std::env::var("WEFT_LIMITS_CASE") else { return };
    let directory = TemporaryDirectory::new("limits-log");
    let mut builder = Database::builder().memory_limit(LIMIT);
    if case == "log" {
        builder = builder
            .directory(&directory.0)
            .durability(DurabilityOptions::new().acknowledge(weft::Acknowledge::Committed));
    }
    let tables = Tables::<weft::protocol::Dbx>::of(builder);
    let plain = |id: u64| tables.database.transact(|tx| tx.insert(&tables.plains, Plain::new(id)));
    let until_refused = |mut attempt: Box<dyn FnMut(u64) -> Result<(), Error>>| {
        let refused = (0..).find_map(|id| Some((id, attempt(id).err()?)));
        let (rows, error) = refused.unwrap();
        expect_full(error);
        rows
    };
    let rows = match case.as_str() {
        "plain" => until_refused(Box::new(plain)),
        "texts" | "log" => tables.fill(3000),
        "short" => until_refused(Box::new(|id| {
            let rows = (0..100).map(|row| Text::new(100 * id + row, 40));
            tables.database.transact(|tx| tx.insert_many(&tables.texts, rows.clone()))
        })),
        // One transaction.
        "one" => {
            let rows = Word::new(0);
            let body = |tx: &weft::Transaction<'_>| {
                for id in 0.. {
                    rows.store(id, Ordering::Relaxed);
                    tx.insert(&tables.texts, Text::new(id, 200))?;
                }
                Ok(())
            };
            expect_full(tables.database.transact(body).unwrap_err());
            rows.load(Ordering::Relaxed)
        }
        // A snapshot keeps what is replaced.
        "snapshot" => {
            (0..20_000).for_each(|id| tables.insert(Text::new(id, 2000)).unwrap());
            let snapshot = tables.database.open_snapshot().unwrap();
            let again = until_refused(Box::new(|id| {
                // Each row is replaced for another snapshot.
                if id % 20_000 == 19_999 {
                    std::mem::forget(tables.database.open_snapshot()?);
                }
                tables.change(id % 20_000, &"y".repeat(2000)).map(drop)
            }));
            assert_eq!(snapshot.get(&tables.texts, &0).unwrap().unwrap().text, "x".repeat(2000));
            again
        }
        "threads" => {
            let next = Word::new(0);
            let work = || {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if let Err(error) = tables.insert(Text::new(id, 1000)) {
                        break expect_full(error);
                    }
                }
            };
            std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
            next.load(Ordering::Relaxed)
        }
        // Other rows and sizes take the place of those that were deleted.
        "change" => {
            let rows = tables.fill(3000);
            (0..rows).for_each(|id| assert!(tables.delete(id).unwrap()));
            let again = tables.fill(300);
            (0..again).for_each(|id| assert!(tables.delete(id).unwrap()));
            rows + until_refused(Box::new(plain))
        }
        _ => unreachable!("{case} is no case"),
    };
    let memory = tables.database.metrics().memory;
    let peak = peak_bytes();
    println!(
        "\n{case}: {rows} rows, {} MiB counted, {} MiB resident at most",
        memory.used_bytes / MIB,
        peak / MIB
    );
    assert!(peak <= LIMIT + LIMIT / 20, "{peak} bytes were resident, {memory:?}");
}

/// Returns the most memory that this process has had resident.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
#[cfg(target_os = "linux")]
fn resident_memory_stays_within_the_limit_and_five_percent() {
    for case in CASES {
        let command = Command::new(std::env::current_exe().unwrap());
        let printed = in_a_process(command, "memory::grows_until_it_is_refused", case);
        println!("{}", printed.lines().find(|line| line.starts_with(case)).unwrap());
    }
}
