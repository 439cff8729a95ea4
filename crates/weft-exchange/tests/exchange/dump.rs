//! Dumps: what comes back, what a damaged file does, and what a crash or a full disk leaves of a restored directory.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weft::durability::{FileSystem, Manifest, SimulatedDisk, StorageError, verify};
use weft::{
    Builder, ColumnValue, Database, DurabilityOptions, Error, Failure, OnceOptions, Record,
    TransactionOptions,
};
use weft_exchange::{DumpReader, DumpReport, dump, restore_dump};

#[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
enum Status {
    Open,
    Closed,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    id: u32,
    #[record(unique)]
    owner: String,
    cents: Option<i64>,
    status: Status,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "events", storage = "hash")]
struct Event {
    #[record(key)]
    id: u64,
    text: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "empty", key(a, b))]
struct Empty {
    b: u8,
    a: String,
}

/// The accounts of a later version of the program.
mod next {
    use weft::{ColumnValue, Record};

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "accounts")]
    pub struct Account {
        #[record(key)]
        pub id: u32,
        #[record(unique)]
        pub owner: String,
        pub cents: Option<i64>,
        pub status: Status,
        #[record(default = 7)]
        pub rank: u16,
    }

    #[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
    pub enum Status {
        Open,
        Closed,
    }
}

fn on(builder: Builder, disk: &SimulatedDisk, directory: &str) -> Builder {
    let options = DurabilityOptions::new().threads(2).checkpoint_log_bytes(None);
    builder.directory(directory).durability(options).backend(Arc::new(disk.clone()), true)
}

fn builder() -> Builder {
    Database::builder().table::<Account>().table::<Event>().table::<Empty>()
}

fn open(disk: &SimulatedDisk, directory: &str) -> Result<Database, Failure> {
    on(builder(), disk, directory).open()
}

fn account(id: u32) -> Account {
    Account {
        id,
        owner: format!("owner {id}"),
        cents: id.is_multiple_of(3).then_some(i64::from(id) - 5),
        status: if id.is_multiple_of(2) { Status::Open } else { Status::Closed },
    }
}

fn put<T: Record>(database: &Database, rows: impl IntoIterator<Item = T>) {
    let table = database.table::<T>().unwrap();
    for row in rows {
        database.transact(|tx| tx.upsert(&table, row.clone()).map(drop)).unwrap();
    }
}

fn rows<T: Record>(database: &Database) -> Vec<T> {
    let table = database.table::<T>().unwrap();
    let read = database.snapshot(|snapshot| {
        snapshot.rows(&table).map(|row| Ok(row?.clone())).collect::<Result<Vec<T>, Error>>()
    });
    read.unwrap()
}

/// Returns a database with rows of all kinds, some of them in a checkpoint.
fn small(disk: &SimulatedDisk) -> Database {
    let database = open(disk, "/db").unwrap();
    put(&database, (0..6).map(account));
    database.checkpoint().unwrap();
    put(&database, [Account { cents: Some(1), ..account(2) }]);
    put(&database, (0..4).map(|id| Event { id, text: vec![id as u8; id as usize] }));
    database
}

fn name() -> &'static Path {
    Path::new("the.dump")
}

fn dumped(database: &Database) -> (Vec<u8>, DumpReport) {
    let mut file = Vec::new();
    let report = dump(database, name(), &mut file, |_| ()).unwrap();
    assert_eq!(report.bytes, file.len() as u64);
    (file, report)
}

fn restored(file: &[u8], disk: &SimulatedDisk) -> Result<DumpReport, StorageError> {
    restore_dump(DumpReader::new(name(), file)?, disk, "/copy".as_ref())
}

/// Asserts that two databases have the same rows.
#[track_caller]
fn check_same(one: &Database, other: &Database) {
    let events = |database: &Database| {
        let mut events = rows::<Event>(database);
        events.sort_by_key(|event| event.id);
        events
    };
    assert_eq!(rows::<Account>(one), rows::<Account>(other));
    assert_eq!(events(one), events(other));
    assert_eq!(rows::<Empty>(one), rows::<Empty>(other));
}

#[test]
fn restored_database_is_the_same() {
    let disk = SimulatedDisk::new(1);
    let database = small(&disk);
    let (file, report) = dumped(&database);
    let expected = [("accounts", 6), ("events", 4), ("empty", 0)];
    assert_eq!(report.tables, expected.map(|(name, rows)| (name.to_owned(), rows)));
    let back = restored(&file, &disk).unwrap();
    assert_eq!(back, report);
    verify(&disk, "/copy".as_ref(), 1).unwrap();
    let copy = open(&disk, "/copy").unwrap();
    check_same(&database, &copy);
    let manifest = |directory: &str| Manifest::read(&disk, directory.as_ref()).unwrap().unwrap();
    assert_ne!(manifest("/db").database, manifest("/copy").database);
    // Both go on: the unique index is there, and so is the log.
    let accounts = copy.table::<Account>().unwrap();
    let twice = Account { id: 99, ..account(3) };
    assert!(copy.transact(|tx| tx.insert(&accounts, twice.clone())).is_err());
    put(&copy, [account(100)]);
    drop(copy);
    assert_eq!(rows::<Account>(&open(&disk, "/copy").unwrap()).len(), 7);
}

#[test]
fn stored_results_are_kept_by_restart_dump_and_backup() {
    let disk = SimulatedDisk::new(1);
    let open = |directory| on(builder().once(OnceOptions::new()), &disk, directory).open().unwrap();
    let call = |database: &Database, id: u32| {
        let accounts = database.table::<Account>().unwrap();
        let options = TransactionOptions::new().once("request 1");
        let called: Result<u32, Error> = database.transact_with(&options, |tx| {
            tx.insert(&accounts, account(id))?;
            Ok(id)
        });
        called.unwrap()
    };
    let database = open("/db");
    assert_eq!(call(&database, 1), 1);
    database.backup("/backup").unwrap();
    let (file, report) = dumped(&database);
    assert!(report.tables.contains(&("weft_once".to_owned(), 1)), "{report:?}");
    restored(&file, &disk).unwrap();
    drop(database);
    for directory in ["/db", "/backup", "/copy"] {
        let database = open(directory);
        assert_eq!(call(&database, 2), 1, "{directory}: the first call's result is stored");
        assert_eq!(rows::<Account>(&database), [account(1)], "{directory}");
    }
}

#[test]
fn dump_is_read_without_the_row_types() {
    let database = small(&SimulatedDisk::new(1));
    let (file, _) = dumped(&database);
    let mut reader = DumpReader::new(name(), &file[..]).unwrap();
    let tables = reader.tables().to_vec();
    let (mut row, mut read) = (Vec::new(), Vec::new());
    while let Some(table) = reader.next_row(&mut row).unwrap() {
        read.push((table, tables[table].read_row(&row).unwrap()[0].to_string()));
    }
    assert_eq!(reader.next_row(&mut row).unwrap(), None, "it stays at the end");
    let accounts = (0..6).map(|id| (0, id.to_string()));
    assert_eq!(read[..6], accounts.collect::<Vec<_>>());
    assert_eq!(read.len(), 10);
}

#[test]
fn rows_of_many_blocks_and_rows_longer_than_a_block_come_back() {
    let disk = SimulatedDisk::new(1);
    let database = open(&disk, "/db").unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    put(&database, (0..400).map(account));
    put(
        &database,
        (0..40).map(|id| {
            let length = if id % 10 == 3 { 1 << 20 } else { random.usize(..30_000) };
            Event { id, text: (0..length).map(|_| random.u8(..)).collect() }
        }),
    );
    let mut calls = 0;
    let mut file = Vec::new();
    dump(&database, name(), &mut file, |_| calls += 1).unwrap();
    assert!(calls > 8, "{calls} blocks");
    restored(&file, &disk).unwrap();
    check_same(&database, &open(&disk, "/copy").unwrap());
}

#[test]
fn what_a_program_does_not_know_is_in_the_dump() {
    let disk = SimulatedDisk::new(1);
    let newer = Database::builder().table::<next::Account>().table::<Event>();
    let newer_account = |id, rank| next::Account {
        id,
        owner: format!("owner {id}"),
        cents: None,
        status: next::Status::Open,
        rank,
    };
    let database = on(newer, &disk, "/db").open().unwrap();
    put(&database, (0..3).map(|id| newer_account(id, 40)));
    put(&database, [Event { id: 1, text: b"kept".to_vec() }]);
    drop(database);
    // An older program, which knows neither the column nor the table.
    let older = on(Database::builder().table::<Account>(), &disk, "/db").open().unwrap();
    put(&older, [account(1), account(9)]);
    let (file, report) = dumped(&older);
    assert_eq!(report.rows(), 5);
    drop(older);
    restored(&file, &disk).unwrap();

    let older = on(Database::builder().table::<Account>(), &disk, "/copy").open().unwrap();
    put(&older, [account(2)]);
    drop(older);
    let newer = Database::builder().table::<next::Account>().table::<Event>();
    let newer = on(newer, &disk, "/copy").open().unwrap();
    let ranks = rows::<next::Account>(&newer).iter().map(|row| row.rank).collect::<Vec<_>>();
    assert_eq!(ranks, [40, 40, 40, 7]);
    assert_eq!(rows::<Event>(&newer), [Event { id: 1, text: b"kept".to_vec() }]);
}

#[test]
fn dump_has_the_version_of_the_schema() {
    let disk = SimulatedDisk::new(1);
    drop(small(&disk));
    let program = |directory: &str| on(builder(), &disk, directory).version(1);
    let database = program("/db").rolls_back_to(0).migrate(0, |_| Ok(())).open().unwrap();
    let (file, _) = dumped(&database);
    assert_eq!(DumpReader::new(name(), &file[..]).unwrap().versions(), (1, 0));
    restored(&file, &disk).unwrap();
    let manifest = Manifest::read(&disk, "/copy".as_ref()).unwrap().unwrap();
    assert_eq!((manifest.schema, manifest.oldest_schema), (1, 0));
    check_same(
        &database,
        &program("/copy").migrate(0, |_| panic!("it is up to date")).open().unwrap(),
    );
}

/// Asserts that a dump is refused as damaged, and that no database came of it.
#[track_caller]
fn check_refused(file: &[u8], circumstances: &str) {
    let disk = SimulatedDisk::new(1);
    match restored(file, &disk) {
        Err(StorageError::Damaged { .. } | StorageError::UnknownVersion { .. }) => {}
        other => panic!("{circumstances}: {other:?}"),
    }
    let manifest = Manifest::read(&disk, "/copy".as_ref());
    assert!(matches!(manifest, Ok(None)), "{circumstances}: {manifest:?}");
}

#[test]
fn dump_that_was_cut_off_anywhere_is_refused() {
    let (file, _) = dumped(&small(&SimulatedDisk::new(1)));
    for length in 0..file.len() {
        check_refused(&file[..length], &format!("{length} of {} bytes", file.len()));
    }
    check_refused(&[&file[..], &[0]].concat(), "a byte more");
    check_refused(&[&file[..], &file].concat(), "twice");
}

#[test]
fn dump_with_a_flipped_bit_is_refused() {
    let (file, _) = dumped(&small(&SimulatedDisk::new(1)));
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        check_refused(&damaged, &format!("bit {bit}"));
    }
}

#[test]
fn dump_with_blocks_in_another_order_is_refused() {
    let disk = SimulatedDisk::new(1);
    let (file, _) = dumped(&small(&disk));
    let mut blocks = Vec::new();
    let mut rest = &file[12..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[5..9].try_into().unwrap()) as usize;
        let (block, after) = rest.split_at(9 + length);
        blocks.push(block);
        rest = after;
    }
    assert_eq!(blocks.len(), 4, "the tables, two blocks of rows, and the end");
    for order in [&[0, 2, 1, 3][..], &[0, 1, 3], &[0, 1, 1, 2, 3], &[0, 1, 2], &[1, 2, 3], &[]] {
        let blocks = order.iter().flat_map(|&block: &usize| blocks[block]);
        let changed: Vec<u8> = file[..12].iter().chain(blocks).copied().collect();
        check_refused(&changed, &format!("{order:?}"));
    }
}

#[derive(Clone, Debug, PartialEq, ColumnValue)]
enum Note {
    Empty,
    Text(String),
    Due { after: Duration, at: SystemTime },
}

/// A row with columns of many types, and a generated key.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "tasks")]
struct Task {
    #[record(key, generated)]
    id: u64,
    note: Note,
    counts: HashMap<String, u32>,
    days: BTreeSet<u16>,
}

fn task(id: u64) -> Task {
    let note = match id % 3 {
        0 => Note::Empty,
        1 => Note::Text(format!("task {id}")),
        _ => Note::Due {
            after: Duration::from_millis(id),
            at: SystemTime::UNIX_EPOCH - Duration::from_nanos(id),
        },
    };
    let counts = (0..id as u32).map(|count| (format!("count {count}"), count)).collect();
    Task { id, note, counts, days: (0..id as u16).collect() }
}

#[test]
fn generated_keys_and_columns_of_all_types_are_restored() {
    let disk = SimulatedDisk::new(1);
    let open = |directory: &str| on(Database::builder().table::<Task>(), &disk, directory).open();
    let insert = |database: &Database| {
        let tasks = database.table::<Task>().unwrap();
        database.transact(|tx| tx.insert_generated(&tasks, task)).unwrap()
    };
    let database = open("/db").unwrap();
    let last = (0..9).map(|_| insert(&database)).max().unwrap();
    let tasks = database.table::<Task>().unwrap();
    assert!(database.transact(|tx| tx.delete(&tasks, &last)).unwrap());
    let (file, _) = dumped(&database);
    restored(&file, &disk).unwrap();
    let copy = open("/copy").unwrap();
    assert_eq!(rows::<Task>(&copy), (1..last).map(task).collect::<Vec<_>>());
    assert!(insert(&copy) > last, "the key of the deleted row came back");
}

/// Makes a dump of one table a dump of version 1, whose descriptions end before the next key.
fn as_version_1(file: &[u8]) -> Vec<u8> {
    let (header_bytes, start) = (9, 12);
    let length = u32::from_le_bytes(file[start + 5..start + 9].try_into().unwrap()) as usize;
    let (block, rest) = file[start..].split_at(header_bytes + length);
    let mut payload = snap::raw::Decoder::new().decompress_vec(&block[header_bytes..]).unwrap();
    assert_eq!(payload.pop(), Some(0), "the table has no generated keys");
    let payload = snap::raw::Encoder::new().compress_vec(&payload).unwrap();
    let mut checked = vec![block[4]];
    checked.extend((payload.len() as u32).to_le_bytes());
    checked.extend(payload);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&0_u64.to_le_bytes()), &checked);
    [b"WEFTDUMP", &[1, 0, 0, 0][..], &checksum.to_le_bytes(), &checked, rest].concat()
}

#[test]
fn dump_of_version_1_is_restored() {
    let disk = SimulatedDisk::new(1);
    let open = |directory: &str| on(Database::builder().table::<Event>(), &disk, directory).open();
    let database = open("/db").unwrap();
    put(&database, (0..4).map(|id| Event { id, text: vec![id as u8] }));
    let (file, _) = dumped(&database);
    restored(&as_version_1(&file), &disk).unwrap();
    let copy = open("/copy").unwrap();
    let mut copied = rows::<Event>(&copy);
    copied.sort_by_key(|event| event.id);
    assert_eq!(copied, (0..4).map(|id| Event { id, text: vec![id as u8] }).collect::<Vec<_>>());
}

#[test]
fn other_versions_and_other_files_are_told_apart() {
    let (mut file, _) = dumped(&small(&SimulatedDisk::new(1)));
    file[8] = 3;
    let refused = restored(&file, &SimulatedDisk::new(1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the.dump has format version 3, which this version of Weft cannot read"
    );
    let refused = restored(b"id,owner\r\n", &SimulatedDisk::new(1)).unwrap_err();
    let expected = "the.dump is damaged at byte 0: it does not begin as a dump does";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn directory_that_is_not_empty_is_refused() {
    let disk = SimulatedDisk::new(1);
    let (file, _) = dumped(&small(&disk));
    let reader = || DumpReader::new(name(), &file[..]).unwrap();
    let before: Vec<_> = disk.files().iter().map(|path| disk.contents(path)).collect();
    let refused = restore_dump(reader(), &disk, "/db".as_ref());
    assert!(matches!(refused, Err(StorageError::NotADatabase { .. })), "{refused:?}");
    let after: Vec<_> = disk.files().iter().map(|path| disk.contents(path)).collect();
    assert_eq!(before, after);
}

#[test]
fn crash_anywhere_in_a_restore_leaves_no_half_database() {
    let source = small(&SimulatedDisk::new(1));
    let (file, _) = dumped(&source);
    let disk = SimulatedDisk::new(1);
    restored(&file, &disk).unwrap();
    let (mut whole, mut none) = (0, 0);
    for stop in 1..=disk.operations() {
        for seed in 0..4 {
            let disk = SimulatedDisk::new(seed);
            disk.stop_at(stop);
            assert!(restored(&file, &disk).is_err(), "operation {stop}: no crash");
            let after = disk.crash(seed);
            match Manifest::read(&after, "/copy".as_ref()) {
                Ok(Some(_)) => {
                    check_same(&source, &open(&after, "/copy").unwrap());
                    whole += 1;
                }
                Ok(None) => {
                    // Nothing is left, so it can be restored again.
                    restored(&file, &after).unwrap();
                    none += 1;
                }
                Err(StorageError::NotADatabase { .. }) => {
                    assert!(open(&after, "/copy").is_err(), "operation {stop}, seed {seed}");
                    none += 1;
                }
                Err(error) => panic!("operation {stop}, seed {seed}: {error}"),
            }
        }
    }
    assert!(whole > 0 && none > 10, "{whole} whole, {none} none");
}

#[test]
fn restore_onto_a_full_disk_can_be_repeated() {
    let source = small(&SimulatedDisk::new(1));
    let (file, _) = dumped(&source);
    let disk = SimulatedDisk::new(1);
    restored(&file, &disk).unwrap();
    for capacity in (0..disk.used_bytes()).step_by(29) {
        let disk = SimulatedDisk::new(capacity);
        disk.set_capacity(Some(capacity));
        let refused = restored(&file, &disk);
        assert!(matches!(refused, Err(StorageError::DiskFull { .. })), "{capacity}: {refused:?}");
        disk.set_capacity(None);
        match Manifest::read(&disk, "/copy".as_ref()) {
            Ok(None) => drop(restored(&file, &disk).unwrap()),
            Err(StorageError::NotADatabase { .. }) => {}
            other => panic!("{capacity}: {other:?}"),
        }
    }
}

/// A writer with space for some bytes.
struct FullWriter(usize);

impl std::io::Write for FullWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match bytes.len().min(self.0) {
            0 => Err(std::io::ErrorKind::StorageFull.into()),
            written => {
                self.0 -= written;
                Ok(written)
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn dump_onto_a_full_disk_is_an_error() {
    let database = small(&SimulatedDisk::new(1));
    let (file, _) = dumped(&database);
    for space in 0..file.len() {
        let refused = dump(&database, name(), FullWriter(space), |_| ());
        let expected = StorageError::DiskFull { path: name().to_owned() };
        assert_eq!(refused, Err(Failure::Storage(expected)), "{space} bytes");
    }
    // The database goes on, and can be dumped again.
    put(&database, [account(77)]);
    assert_eq!(dumped(&database).1.rows(), 11);
}

#[test]
fn database_without_tables_and_database_in_memory() {
    let disk = SimulatedDisk::new(1);
    let database = on(Database::builder(), &disk, "/db").open().unwrap();
    let (file, report) = dumped(&database);
    assert_eq!(report.rows(), 0);
    restored(&file, &disk).unwrap();
    on(Database::builder(), &disk, "/copy").open().unwrap();
    let in_memory = builder().open().unwrap();
    assert_eq!(dump(&in_memory, name(), Vec::new(), |_| ()), Err(Failure::InMemory));
}

#[test]
fn real_files_are_restored_into_a_new_directory() {
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dump");
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir_all(&scratch).unwrap();
    let database = small(&SimulatedDisk::new(1));
    let (file, _) = dumped(&database);
    let copy = scratch.join("copy");
    restore_dump(DumpReader::new(name(), &file[..]).unwrap(), &FileSystem, &copy).unwrap();
    check_same(&database, &builder().directory(&copy).open().unwrap());
}
