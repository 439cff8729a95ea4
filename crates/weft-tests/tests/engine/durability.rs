//! Tests of databases with a directory: committed rows survive reopening under every protocol, and errors say what
//! is wrong.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft::durability::{SimulatedDisk, StorageError};
use weft::protocol::{Dbx, Protocol};
use weft::{
    Acknowledge, Builder, Database, DurabilityOptions, Error, Failure, Record, Snapshot, Table,
    TransactionOptions,
};
use weft_protocols::{Atomic, NoControl};

use weft_tests::TemporaryDirectory;
use weft_tests::{Seed, for_each_executor, for_each_kind, stress, threads};

#[derive(Clone, Debug, PartialEq, Record)]
struct Item {
    #[record(key)]
    id: u32,
    #[record(index)]
    group: u8,
    #[record(unique)]
    label: String,
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(storage = "hash")]
struct Cell {
    #[record(key)]
    id: u32,
    value: u64,
}

/// A row of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Waiting {
    #[record(key)]
    id: u32,
    thread: u64,
    turn: u64,
}

#[derive(Clone, Copy, Debug, Record)]
#[record(volatile)]
struct Scratch {
    #[record(key)]
    id: u32,
}

struct Fixture<P: Protocol> {
    database: Database<P>,
    items: Table<Item>,
    cells: Table<Cell>,
}

fn builder<P: Protocol>(directory: &Path) -> Builder<P> {
    let options = DurabilityOptions::new().threads(2);
    Database::builder()
        .protocol::<P>()
        .table::<Item>()
        .table::<Cell>()
        .table::<Scratch>()
        .directory(directory)
        .durability(options)
}

fn item(id: u32, value: u64) -> Item {
    Item { id, group: (value % 5) as u8, label: format!("{id} is {value}"), value }
}

impl<P: Protocol> Fixture<P> {
    fn open(directory: &Path) -> Self {
        Self::with(builder(directory))
    }

    fn with(builder: Builder<P>) -> Self {
        let database = builder.open().unwrap();
        let (items, cells) = (database.table().unwrap(), database.table().unwrap());
        Fixture { database, items, cells }
    }

    fn put(&self, id: u32, value: u64) -> Result<(), Error> {
        self.database.transact(|tx| {
            tx.upsert(&self.items, item(id, value))?;
            tx.upsert(&self.cells, Cell { id, value })?;
            Ok(())
        })
    }

    fn delete(&self, id: u32) -> Result<(), Error> {
        self.database.transact(|tx| {
            tx.delete(&self.items, &id)?;
            tx.delete(&self.cells, &id)?;
            Ok(())
        })
    }

    /// Returns the rows, and checks that every way to read them agrees.
    fn state(&self) -> BTreeMap<u32, u64> {
        // Unlike `Database::snapshot`, `open_snapshot` does not wait until what it shows is durable.
        let read = |snapshot: &Snapshot| {
            let mut state = BTreeMap::new();
            for row in snapshot.range(&self.items, ..) {
                let row = row?;
                assert_eq!(row, &item(row.id, row.value));
                let found = snapshot.get_by(&self.items, Item::LABEL, &row.label)?;
                assert_eq!(found, Some(row), "by its label");
                assert_eq!(snapshot.get(&self.cells, &row.id)?.unwrap().value, row.value);
                state.insert(row.id, row.value);
            }
            assert_eq!(snapshot.rows(&self.cells).count(), state.len());
            assert_eq!(snapshot.range_by(&self.items, Item::GROUP, ..).count(), state.len());
            Ok::<_, Error>(state)
        };
        read(&self.database.open_snapshot().unwrap()).unwrap()
    }
}

#[test]
fn committed_rows_survive_reopening() {
    let seed = Seed::draw();
    for_each_executor!(|P| {
        let directory = TemporaryDirectory::new("again");
        let mut random = seed.random(0);
        let mut model = BTreeMap::new();
        for round in 0..4 {
            let fixture = Fixture::<P>::open(&directory.0);
            assert_eq!(fixture.state(), model, "round {round}");
            for turn in 0..40 {
                let id = random.u32(0..30);
                if random.u8(0..3) == 0 {
                    fixture.delete(id).unwrap();
                    model.remove(&id);
                } else {
                    let value = round * 1000 + turn;
                    fixture.put(id, value).unwrap();
                    model.insert(id, value);
                }
            }
            if round == 1 {
                let report = fixture.database.checkpoint().unwrap();
                assert_eq!(report.rows, 2 * model.len() as u64);
            }
            assert_eq!(fixture.state(), model);
            if round == 2 {
                fixture.database.close().unwrap();
            }
        }
    });
}

/// Many threads write the same few rows. Recovery restores the last state.
#[test]
fn concurrent_writers_recover_to_the_last_state() {
    let seed = Seed::draw();
    for_each_kind!(|P| {
        let directory = TemporaryDirectory::new("writers");
        let options = DurabilityOptions::new()
            .acknowledge(Acknowledge::Committed)
            .epoch_interval(Duration::from_millis(1))
            .loggers(2);
        let before = {
            let fixture = Fixture::<P>::with(builder(&directory.0).durability(options));
            std::thread::scope(|scope| {
                for thread in 0..threads::<P>().min(4) {
                    let (fixture, seed) = (&fixture, &seed);
                    scope.spawn(move || {
                        let mut random = seed.random(thread);
                        for turn in 0..400 * stress() as u64 {
                            let id = random.u32(0..8);
                            match random.u8(0..4) {
                                0 => fixture.delete(id).unwrap(),
                                _ => fixture.put(id, turn).unwrap(),
                            }
                            if thread == 0 && turn % 150 == 100 {
                                fixture.database.checkpoint().unwrap();
                            }
                        }
                    });
                }
            });
            fixture.state()
        };
        let fixture = Fixture::<P>::open(&directory.0);
        assert_eq!(fixture.state(), before);
    });
}

/// Records leave their index and others come under the same keys, many times within one epoch, in which the log has only
/// its numbers to tell which write was the last.
#[test]
fn keys_that_come_again_within_an_epoch_recover_to_the_last_state() {
    let seed = Seed::draw();
    for_each_kind!(|P| {
        let directory = TemporaryDirectory::new("again_and_again");
        let open = || {
            let options = DurabilityOptions::new()
                .acknowledge(Acknowledge::Committed)
                .epoch_interval(Duration::from_secs(20));
            let builder = Database::builder().protocol::<P>().table::<Waiting>();
            builder.directory(&directory.0).durability(options).open().unwrap()
        };
        let read = |database: &Database<P>| {
            let waiting = database.table::<Waiting>().unwrap();
            let snapshot = database.open_snapshot().unwrap();
            let rows = snapshot.range(&waiting, ..).map(|row| row.copied());
            rows.collect::<Result<Vec<_>, Failure>>().unwrap()
        };
        let before = {
            let database = open();
            let waiting = database.table::<Waiting>().unwrap();
            std::thread::scope(|scope| {
                for thread in 0..threads::<P>().min(2) {
                    let (database, waiting, seed) = (&database, &waiting, &seed);
                    scope.spawn(move || {
                        let mut random = seed.random(thread);
                        for turn in 0..2_000 * stress() as u64 {
                            // The rows before the first one have just been deleted: a scan passes over them.
                            let from = random.u32(0..100);
                            let row =
                                Waiting { id: random.u32(0..200), thread: thread as u64, turn };
                            database
                                .transact(|tx| {
                                    let rows = tx.range(waiting, from..).take(2);
                                    let ids = rows
                                        .map(|row| Ok(row?.id))
                                        .collect::<Result<Vec<_>, Error>>()?;
                                    for id in ids {
                                        tx.delete(waiting, &id)?;
                                    }
                                    tx.upsert(waiting, row)
                                })
                                .unwrap();
                        }
                    });
                }
            });
            read(&database)
        };
        assert_eq!(read(&open()), before);
    });
}

/// The directory can be opened again as soon as the last handle is dropped, even while threads that used the
/// database are still ending.
#[test]
fn the_last_handle_frees_the_directory() {
    let directory = TemporaryDirectory::new("handles");
    for turn in 0..50 {
        let fixture = Fixture::<Dbx>::open(&directory.0);
        std::thread::scope(|scope| {
            for id in 0..4 {
                let fixture = &fixture;
                scope.spawn(move || fixture.put(id, turn).unwrap());
            }
        });
    }
}

/// A row that is too long to be stored is refused, and the log is unaffected.
#[test]
fn rows_that_are_too_long_are_refused() {
    let directory = TemporaryDirectory::new("long");
    let fixture = Fixture::<Dbx>::open(&directory.0);
    fixture.put(1, 1).unwrap();
    let long = || {
        // `calloc` returns zero pages, which take no memory until they are touched.
        String::from_utf8(vec![0; 1 << 29]).expect("zeros are UTF-8")
    };
    let inserted = fixture
        .database
        .transact(|tx| tx.insert(&fixture.items, Item { label: long(), ..item(2, 2) }));
    let updated = fixture
        .database
        .transact(|tx| tx.update(&fixture.items, &1, |item| item.label = long()).map(drop));
    for refused in [inserted, updated] {
        let Err(Error::Failure(failure @ Failure::StoredRowTooLarge { .. })) = refused else {
            panic!("{refused:?}")
        };
        assert!(failure.to_string().contains("takes 536870930 bytes"), "{failure}");
    }
    fixture.put(3, 3).unwrap();
    fixture.database.flush().unwrap();
    assert_eq!(fixture.state().len(), 2);
}

/// Under `atomic`, too, transactions are logged.
#[test]
fn atomic_operations_are_logged() {
    let directory = TemporaryDirectory::new("atomic");
    let open = || {
        let options = DurabilityOptions::new().acknowledge(Acknowledge::Committed);
        Database::builder()
            .protocol::<Atomic>()
            .table::<Cell>()
            .directory(&directory.0)
            .durability(options)
            .open()
            .unwrap()
    };
    let count = |database: &Database<Atomic>| {
        let cells = database.table::<Cell>().unwrap();
        let read = database.snapshot(|snapshot| {
            let values: Vec<_> =
                (0..4).map(|id| Ok(snapshot.get(&cells, &id)?.map(|cell| cell.value))).collect();
            values.into_iter().collect::<Result<Vec<_>, Error>>()
        });
        read.unwrap()
    };
    {
        let database = open();
        let cells = database.table::<Cell>().unwrap();
        for id in 0..4 {
            database.transact(|tx| tx.insert(&cells, Cell { id, value: 0 })).unwrap();
        }
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for turn in 0..1000 {
                        let id = turn % 3;
                        let add = |cell: &mut Cell| cell.value += 1;
                        database.transact(|tx| tx.update(&cells, &id, add)).unwrap();
                    }
                });
            }
        });
        database.transact(|tx| tx.delete(&cells, &3)).unwrap();
        assert_eq!(count(&database), [Some(1002), Some(999), Some(999), None]);
    }
    assert_eq!(count(&open()), [Some(1002), Some(999), Some(999), None]);
}

#[test]
fn a_token_tells_when_a_commit_is_durable() {
    let directory = TemporaryDirectory::new("token");
    let options = DurabilityOptions::new()
        .acknowledge(Acknowledge::Committed)
        .epoch_interval(Duration::from_secs(3600));
    let fixture = Fixture::<Dbx>::with(builder(&directory.0).durability(options));
    let insert = |id| {
        let body = |tx: &weft::Transaction<'_, Dbx>| tx.insert(&fixture.items, item(id, 1));
        fixture
            .database
            .transact_with_token::<_, Error>(&TransactionOptions::new(), body)
            .unwrap()
            .1
    };
    let first = insert(1);
    assert!(
        fixture.database.durable_epoch().unwrap() < first.epoch(),
        "no transaction waits for it"
    );
    fixture.database.wait_durable(first).unwrap();
    assert!(fixture.database.durable_epoch().unwrap() >= first.epoch());
    let second = insert(2);
    assert!(second > first);
    fixture.database.flush().unwrap();
    assert!(fixture.database.durable_epoch().unwrap() >= second.epoch());
    // The token of a read-only transaction covers the commits that it has read.
    let body = |tx: &weft::Transaction<'_, Dbx>| Ok(tx.get(&fixture.items, &2)?.is_some());
    let read = fixture.database.transact_with_token::<_, Error>(&TransactionOptions::new(), body);
    let (found, token) = read.unwrap();
    assert!(found && token >= second);
    let by_hand = fixture.database.begin().unwrap();
    by_hand.insert(&fixture.items, item(3, 1)).unwrap();
    assert!(by_hand.commit().unwrap() > second);
    assert_eq!(fixture.database.metrics().log.unwrap().state, weft::durability::LogState::Running);
}

#[test]
fn an_earlier_epoch_can_be_read_and_backed_up() {
    let directory = TemporaryDirectory::new("epochs");
    let mut states = Vec::new();
    {
        let fixture = Fixture::<Dbx>::open(&directory.0);
        let mut model = BTreeMap::new();
        for value in 0..10 {
            let body = |tx: &weft::Transaction<'_, Dbx>| {
                tx.upsert(&fixture.items, item(value % 4, u64::from(value)))?;
                tx.upsert(&fixture.cells, Cell { id: value % 4, value: u64::from(value) })
            };
            let options = TransactionOptions::new();
            let (_, token) =
                fixture.database.transact_with_token::<_, Error>(&options, body).unwrap();
            fixture.database.wait_durable(token).unwrap();
            model.insert(value % 4, u64::from(value));
            states.push((token.epoch(), model.clone()));
        }
    }
    for (epoch, model) in &states {
        let fixture = Fixture::<Dbx>::with(builder(&directory.0).at_epoch(*epoch));
        assert_eq!(&fixture.state(), model, "epoch {epoch}");
        assert!(matches!(
            fixture.put(1, 1),
            Err(Error::Failure(Failure::ReadOnly { epoch: at })) if at == *epoch
        ));
        assert!(matches!(fixture.database.checkpoint(), Err(Failure::ReadOnly { .. })));
    }
    let (epoch, model) = &states[4];
    let other = TemporaryDirectory::new("copy");
    {
        let fixture = Fixture::<Dbx>::with(builder(&directory.0).at_epoch(*epoch));
        let report = fixture.database.backup(&other.0).unwrap();
        assert_eq!(report.rows, 2 * model.len() as u64);
        assert!(matches!(
            fixture.database.backup(&other.0),
            Err(Failure::Storage(StorageError::NotADatabase { .. }))
        ));
    }
    let copy = Fixture::<Dbx>::open(&other.0);
    assert_eq!(&copy.state(), model);
    copy.put(100, 100).unwrap();
    let fixture = Fixture::<Dbx>::open(&directory.0);
    assert_eq!(fixture.state(), states.last().unwrap().1, "the later epochs are unchanged");
    // A backup of a running database.
    let third = TemporaryDirectory::new("online");
    fixture.database.backup(&third.0).unwrap();
    fixture.put(50, 50).unwrap();
    assert_eq!(Fixture::<Dbx>::open(&third.0).state(), states.last().unwrap().1);
}

#[test]
fn directory_cannot_be_opened_twice() {
    let directory = TemporaryDirectory::new("once");
    let fixture = Fixture::<Dbx>::open(&directory.0);
    let second = builder::<Dbx>(&directory.0).open();
    assert!(matches!(second, Err(Failure::Storage(StorageError::AlreadyOpen { .. }))));
    drop(fixture);
    Fixture::<Dbx>::open(&directory.0);
}

#[test]
fn volatile_tables_begin_empty() {
    let directory = TemporaryDirectory::new("volatile");
    for _ in 0..2 {
        let fixture = Fixture::<Dbx>::open(&directory.0);
        let scratch = fixture.database.table::<Scratch>().unwrap();
        fixture.database.transact(|tx| tx.insert(&scratch, Scratch { id: 1 })).unwrap();
        fixture.put(1, 1).unwrap();
    }
}

#[test]
fn database_in_memory_has_nothing_durable() {
    let database = Database::builder().table::<Item>().open().unwrap();
    assert_eq!(database.checkpoint(), Err(Failure::InMemory));
    assert_eq!(database.flush(), Err(Failure::InMemory));
    assert_eq!(database.durable_epoch(), None);
    assert!(database.recovered().is_none());
    assert!(database.metrics().log.is_none());
}

/// After a failed sync, every later transaction is refused with the same error, and none is acknowledged.
#[test]
fn failed_sync_stops_all_writing() {
    let disk = SimulatedDisk::new(7);
    let open = |disk: &SimulatedDisk| {
        let options = DurabilityOptions::new().threads(1);
        builder::<Dbx>(Path::new("/db")).backend(Arc::new(disk.clone()), true).durability(options)
    };
    let fixture = Fixture::with(open(&disk));
    fixture.put(1, 1).unwrap();
    disk.fail_sync(disk.syncs() + 1);
    let failed = fixture.put(2, 2);
    assert!(
        matches!(failed, Err(Error::Failure(Failure::Storage(StorageError::SyncFailed { .. })))),
        "{failed:?}"
    );
    let later = fixture.put(3, 3);
    assert!(matches!(
        later,
        Err(Error::Failure(Failure::Storage(StorageError::SyncFailed { .. })))
    ));
    assert_eq!(fixture.state().len(), 2, "the put that was refused at its start has no effect");
    assert!(fixture.database.close().is_err());
    drop(fixture);
    let state = Fixture::with(open(&disk.crash(1))).state();
    assert!(state.contains_key(&1) && !state.contains_key(&3), "{state:?}");
}

/// Without a spare, a full disk makes commits fail. When space is available again, writing resumes and nothing is
/// lost.
#[test]
fn a_full_disk_stops_writing_until_there_is_space() {
    let disk = SimulatedDisk::new(7);
    let open = |disk: &SimulatedDisk| {
        let options = DurabilityOptions::new().threads(1).spare_bytes(0).reserve_bytes(0);
        builder::<Dbx>(Path::new("/db")).backend(Arc::new(disk.clone()), false).durability(options)
    };
    let fixture = Fixture::with(open(&disk));
    fixture.put(1, 1).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 100));
    let mut refused = 0;
    for value in 0..5 {
        match fixture.put(2, value) {
            Err(Error::Failure(Failure::Storage(StorageError::DiskFull { .. }))) => refused += 1,
            result => panic!("{result:?}"),
        }
    }
    assert_eq!(refused, 5);
    disk.set_capacity(None);
    // The loggers check periodically whether there is space again.
    let mut looks = 0;
    while let Err(Failure::Storage(StorageError::DiskFull { .. })) = fixture.database.flush() {
        looks += 1;
        assert!(looks < 10_000, "writing does not resume");
        std::thread::sleep(Duration::from_millis(1));
    }
    fixture.put(4, 4).unwrap();
    let expected = fixture.state();
    assert!(expected.contains_key(&4));
    drop(fixture);
    assert_eq!(Fixture::with(open(&disk.crash(1))).state(), expected);
}

/// Loaded rows are visible to all transactions and durable. A load that fails leaves no row.
#[test]
fn a_table_is_loaded_whole_or_not_at_all() {
    for_each_executor!(|P| {
        let directory = TemporaryDirectory::new("load");
        let rows =
            |from: u32, to: u32| (from..to).map(|id| Ok::<_, Error>(item(id, u64::from(id))));
        let expected: BTreeMap<u32, u64> = (0..3000).map(|id| (id, u64::from(id))).collect();
        {
            let fixture = Fixture::<P>::open(&directory.0);
            let load = |parts: Vec<std::ops::Range<u32>>| {
                let parts = parts.into_iter().map(|part| rows(part.start, part.end));
                fixture.database.load(&fixture.items, parts, |_| {})
            };
            let cells = (0..3000).map(|id| Ok::<_, Error>(Cell { id, value: id.into() }));
            assert_eq!(fixture.database.load(&fixture.cells, [cells], |_| {}).unwrap(), 3000);
            // Loads with a duplicate primary key, with a duplicate label, and with an error of the caller's.
            let twice = load(vec![0..2000, 1000..3000]);
            assert!(matches!(
                twice,
                Err(Error::Failure(Failure::DuplicateKey { index: None, .. }))
            ));
            let label = || Item { label: "one and the same".into(), ..item(7000, 0) };
            let labels = [Ok::<_, Error>(label()), Ok(Item { id: 7001, ..label() })];
            let twice = fixture.database.load(&fixture.items, [labels], |_| {});
            assert!(matches!(
                twice,
                Err(Error::Failure(Failure::DuplicateKey { index: Some("label"), .. }))
            ));
            let broken = rows(0, 100).chain([Err(Failure::InMemory.into())]);
            let failed = fixture.database.load(&fixture.items, [broken], |_| {});
            assert!(matches!(failed, Err(Error::Failure(Failure::InMemory))));
            let snapshot = fixture.database.open_snapshot().unwrap();
            assert_eq!(
                snapshot.rows(&fixture.items).count(),
                0,
                "failed loads leave the table empty"
            );
            let refused = load(std::iter::once(0..10).collect());
            assert!(matches!(refused, Err(Error::Failure(Failure::SnapshotOpen))));
            drop(snapshot);
            let meanwhile = Mutex::new(None);
            let parts = [rows(0, 1500), rows(1500, 3000)].map(|part| {
                part.inspect(|row| {
                    if row.as_ref().unwrap().id == 700 {
                        *meanwhile.lock().unwrap() = Some(fixture.put(1, 1));
                    }
                })
            });
            assert_eq!(fixture.database.load(&fixture.items, parts, |_| {}).unwrap(), 3000);
            assert!(matches!(
                meanwhile.into_inner().unwrap(),
                Some(Err(Error::Failure(Failure::Loading)))
            ));
            assert_eq!(fixture.state(), expected);
            let again = load(std::iter::once(0..1).collect());
            assert!(matches!(again, Err(Error::Failure(Failure::NotEmpty { .. }))));
            assert!(fixture.database.transact(|tx| tx.insert(&fixture.items, item(5, 5))).is_err());
        }
        let fixture = Fixture::<P>::open(&directory.0);
        assert_eq!(fixture.state(), expected);
        fixture.delete(17).unwrap();
        fixture.put(18, 3).unwrap();
        assert_eq!(fixture.state().len(), 2999);
    });
}

/// A newer version of a program opens a database that the older version has stored, with a new column that has a
/// default, a new index and a new table. The older version cannot open the newer version's database.
#[test]
fn a_database_grows_with_its_program() {
    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "people")]
    struct Before {
        #[record(key)]
        id: u32,
        name: String,
    }

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "people")]
    struct After {
        #[record(key)]
        id: u32,
        #[record(index)]
        name: String,
        #[record(default = 30)]
        age: u8,
    }

    let directory = TemporaryDirectory::new("grows");
    let old = || Database::builder().table::<Before>().directory(&directory.0);
    let new = || {
        let builder = Database::builder().table::<After>().table::<Cell>();
        builder.directory(&directory.0)
    };
    {
        let database = old().open().unwrap();
        let people = database.table::<Before>().unwrap();
        for (id, name) in [(1, "Ada"), (2, "Grace"), (3, "Ada")] {
            let row = Before { id, name: name.to_owned() };
            database.transact(|tx| tx.insert(&people, row.clone())).unwrap();
        }
        database.checkpoint().unwrap();
        let row = Before { id: 4, name: "Edsger".to_owned() };
        database.transact(|tx| tx.insert(&people, row.clone())).unwrap();
    }
    for round in 0..2 {
        let database = new().open().unwrap();
        let people = database.table::<After>().unwrap();
        let found = database.snapshot(|snapshot| {
            let named = snapshot.prefix_by(&people, After::NAME, &"Ada".to_owned());
            let named: Result<Vec<_>, _> = named.map(|row| row.cloned()).collect();
            Ok::<_, Error>((named?, snapshot.get(&people, &4)?.cloned()))
        });
        let ada = |id, age| After { id, name: "Ada".to_owned(), age };
        let edsger = After { id: 4, name: "Edsger".to_owned(), age: 30 };
        assert_eq!(found.unwrap(), (vec![ada(1, 30 + round), ada(3, 30)], Some(edsger)));
        database.transact(|tx| tx.update(&people, &1, |row| row.age += 1)).unwrap();
    }
    // The old program can open it, too, and keeps the column that it lacks.
    old().open().unwrap();
    let database = new().open().unwrap();
    let people = database.table::<After>().unwrap();
    let ada = database.snapshot(|snapshot| Ok::<_, Error>(snapshot.get(&people, &1)?.cloned()));
    assert_eq!(ada.unwrap().unwrap().age, 32);
}

/// A row whose `Drop` requests a checkpoint, a backup and a snapshot.
#[derive(Clone, Record)]
#[record(volatile)]
struct Asking {
    #[record(key)]
    id: u32,
    #[allow(dead_code, reason = "it is there to be dropped")]
    question: Question,
}

#[derive(Clone)]
struct Question;

type Ask = Box<dyn Fn()>;

thread_local! {
    static ASK: std::cell::RefCell<Option<Ask>> = const { std::cell::RefCell::new(None) };
}

impl Drop for Question {
    fn drop(&mut self) {
        ASK.with_borrow(|ask| ask.iter().for_each(|ask| ask()));
    }
}

/// Asks for a checkpoint when its thread ends.
struct AtEnd(Database<NoControl>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        assert_eq!(self.0.checkpoint().err(), Some(Failure::ThreadEnding));
    }
}

thread_local! {
    static AT_END: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) };
}

fn open_on(disk: &SimulatedDisk, options: DurabilityOptions) -> Database {
    let builder = Database::builder().table::<Cell>().directory("/db").durability(options);
    builder.backend(Arc::new(disk.clone()), false).open().unwrap()
}

/// Fault: a second call of `close` returned without an error, although the first one had lost commits.
#[test]
fn closing_again_returns_the_error_again() {
    let disk = SimulatedDisk::new(1);
    let options = DurabilityOptions::new().threads(1).spare_bytes(0);
    let database = open_on(&disk, options.acknowledge(Acknowledge::Committed));
    let cells = database.table::<Cell>().unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    database.transact(|tx| tx.insert(&cells, Cell { id: 1, value: 1 })).unwrap();
    for _ in 0..2 {
        let closed = database.close();
        assert!(
            matches!(closed, Err(Failure::Storage(StorageError::DiskFull { .. }))),
            "{closed:?}"
        );
        disk.set_capacity(None);
    }
}

/// Fault: if the last step of a load failed, the rows could be there again after a crash, beside later commits.
#[test]
fn a_failed_load_does_not_come_back_after_a_crash() {
    let options = || DurabilityOptions::new().threads(1);
    let rows = || (0..10).map(|id| Ok::<_, Failure>(Cell { id, value: 1 }));
    // How many operations of the disk a load takes.
    let disk = SimulatedDisk::new(0);
    let database = open_on(&disk, options());
    let before = disk.operations();
    database.load(&database.table::<Cell>().unwrap(), [rows()], |_| {}).unwrap();
    let operations = disk.operations() - before;
    drop(database);
    for stop in 1..=operations {
        let disk = SimulatedDisk::new(stop);
        let database = open_on(&disk, options());
        let cells = database.table::<Cell>().unwrap();
        disk.stop_at(disk.operations() + stop);
        let loaded = database.load(&cells, [rows()], |_| {});
        // The disk works again.
        disk.stop_at(u64::MAX);
        let inserted = database.transact(|tx| tx.insert(&cells, Cell { id: 100, value: 1 }));
        let expected = match (&loaded, &inserted) {
            (Ok(10), _) => continue,
            (Err(_), Ok(())) => vec![100],
            // The log has ended with an error, and either state may be there.
            (Err(_), Err(_)) => continue,
            other => panic!("{other:?}"),
        };
        for crash in 0..4 {
            let database = open_on(&disk.crash(crash), options());
            let cells = database.table::<Cell>().unwrap();
            let ids = database.snapshot(|snapshot| {
                snapshot
                    .rows(&cells)
                    .map(|row| Ok::<_, Error>(row?.id))
                    .collect::<Result<Vec<_>, _>>()
            });
            assert_eq!(ids.unwrap(), expected, "stopped at {stop} of {operations}, crash {crash}");
        }
    }
}

/// Fault: the parts of a checkpoint were told apart by the positions of the rows, which change in a hash table while it
/// grows and as rows are deleted. So the checkpoint had some rows twice, and others were lost.
#[test]
fn a_changing_hash_table_is_divided_among_the_parts_of_a_checkpoint() {
    let options = DurabilityOptions::new().threads(1).acknowledge(Acknowledge::Committed);
    let database = open_on(&SimulatedDisk::new(1), options);
    let cells = database.table::<Cell>().unwrap();
    let insert = |ids: std::ops::Range<u32>| {
        let insert = |tx: &weft::Transaction<'_>| {
            ids.clone().try_for_each(|id| tx.insert(&cells, Cell { id, value: 0 }))
        };
        database.transact(insert).unwrap();
    };
    let delete = |id: u32| assert!(database.transact(|tx| tx.delete(&cells, &id)).unwrap());
    insert(0..1100);
    (1000..1100).for_each(delete);
    database
        .read_stored(|_, source| {
            let rows_of = |part, parts| {
                let mut rows = Vec::new();
                source.rows(0, part, parts, &mut |row| {
                    rows.push(row.to_vec());
                    Ok(())
                })?;
                rows.sort_unstable();
                Ok::<_, StorageError>(rows)
            };
            let all = rows_of(0, 1)?;
            let mut divided = rows_of(0, 3)?;
            (2..20).for_each(|thousand| insert(thousand * 1000..(thousand + 1) * 1000));
            divided.extend(rows_of(1, 3)?);
            (0..500).for_each(delete);
            divided.extend(rows_of(2, 3)?);
            divided.sort_unstable();
            assert_eq!((all.len(), divided.len()), (1000, 1000));
            assert!(all == divided, "a row is in no part, or in two");
            Ok(())
        })
        .unwrap();
}

/// A thread-local value that asks for a checkpoint when it is dropped is refused, since the engine's own thread-local values
/// are gone by then. Other threads can still write checkpoints, and close the database.
#[test]
fn a_thread_that_ends_leaves_no_checkpoint_held() {
    let directory = TemporaryDirectory::new("thread-end");
    let builder = Database::builder().protocol::<NoControl>().table::<Asking>();
    let database = builder.directory(&directory.0).open().unwrap();
    let handle = database.clone();
    std::thread::spawn(move || {
        // The thread-local value that is used first is dropped last.
        AT_END.set(Some(AtEnd(handle.clone())));
        handle.checkpoint().unwrap();
    })
    .join()
    .unwrap();
    database.checkpoint().unwrap();
    database.close().unwrap();
}

/// A checkpoint, a backup and a snapshot wait for the commits in progress. A row that a commit replaces is dropped
/// after that commit has ended, so its `Drop` may request all three.
#[test]
fn drop_can_request_a_checkpoint_a_backup_and_a_snapshot() {
    let directory = TemporaryDirectory::new("amid");
    let database = Database::builder()
        .protocol::<NoControl>()
        .table::<Asking>()
        .directory(directory.0.join("database"))
        .open()
        .unwrap();
    let table = database.table::<Asking>().unwrap();
    let write = || {
        database.transact(|tx| tx.upsert(&table, Asking { id: 1, question: Question })).unwrap();
    };
    write();
    let answered = std::rc::Rc::new(std::cell::Cell::new(0));
    let ask = {
        let (database, answered) = (database.clone(), std::rc::Rc::clone(&answered));
        let backup = directory.0.join("backup");
        move || {
            let answers = [
                database.checkpoint().err(),
                database.backup(&backup).err(),
                database.open_snapshot().err(),
            ];
            assert!(answers.iter().all(Option::is_none), "{answers:?}");
            answered.set(answered.get() + 1);
        }
    };
    ASK.set(Some(Box::new(ask)));
    write();
    ASK.set(None);
    assert_eq!(answered.get(), 1, "the replaced row was dropped once");
    assert_eq!(database.metrics().drops_panicked, 0);
    database.checkpoint().unwrap();
}
