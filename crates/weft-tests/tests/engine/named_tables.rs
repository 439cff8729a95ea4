//! Tests of several tables with rows of one type, whose names are known when the program runs.

use std::time::Duration;

use weft::protocol::Protocol;
use weft::{Database, Error, Failure, ManualClock, Record, Table, Timestamp};
use weft_tests::{TemporaryDirectory, for_each_executor, for_each_kind};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(index(name = by_code, columns(code), unique))]
struct Item {
    #[record(key)]
    id: u32,
    code: u64,
    #[record(min = 0)]
    left: i64,
}

const REGIONS: [&str; 3] = ["items_north", "items_south", "item"];

fn item(id: u32) -> Item {
    Item { id, code: u64::from(id), left: 10 }
}

fn regions<P: Protocol>(database: &Database<P>) -> [Table<Item>; 3] {
    REGIONS.map(|name| database.table_named::<Item>(name).unwrap())
}

#[test]
fn tables_of_one_type_have_rows_and_indexes_of_their_own() {
    fn check<P: Protocol>() {
        let builder = Database::builder().protocol::<P>().table::<Item>();
        let builder = builder.table_named::<Item>(REGIONS[0]).table_named::<Item>(REGIONS[1]);
        let database = builder.open().unwrap();
        let [north, south, own] = regions(&database);
        assert_eq!([north.name(), south.name(), own.name()], REGIONS);
        let filled: Result<(), Error> = database.transact(|tx| {
            tx.insert_many(&north, [item(1), item(2)])?;
            tx.insert(&south, Item { left: 5, ..item(1) })?;
            tx.update(&south, &1, |row| row.left += 1)?;
            assert_eq!(tx.get(&own, &1)?, None);
            Ok(())
        });
        filled.unwrap();
        let moved: Result<(), Error> = database.transact(|tx| {
            assert_eq!([tx.len(&north)?, tx.len(&south)?, tx.len(&own)?], [2, 1, 0]);
            assert_eq!(tx.get_by(&south, Item::BY_CODE, &1)?.map(|row| row.left), Some(6));
            assert_eq!(tx.get_by(&south, Item::BY_CODE, &2)?, None);
            let row = tx.get(&north, &2)?.cloned();
            tx.delete(&north, &2)?;
            tx.insert(&own, row.unwrap())
        });
        moved.unwrap();
        let snapshot = database.open_snapshot().unwrap();
        assert_eq!(snapshot.rows(&own).count(), 1);
        assert_eq!(snapshot.rows(&north).count(), 1);
    }
    for_each_executor!(|P| check::<P>());
}

#[test]
fn failures_name_the_table_and_not_its_type() {
    fn check<P: Protocol>() {
        if P::SINGLE_KEY {
            return;
        }
        let builder = Database::builder().protocol::<P>();
        let database = builder.table_named::<Item>("items_north").open().unwrap();
        let north = database.table_named::<Item>("items_north").unwrap();
        database.transact(|tx| tx.insert(&north, item(1))).unwrap();
        let failure = |body: &dyn Fn(&weft::Transaction<'_, P>) -> Result<(), Error>| {
            database.transact(body).unwrap_err().to_string()
        };
        let messages = [
            failure(&|tx| tx.insert(&north, item(1))),
            failure(&|tx| tx.insert(&north, Item { code: 1, ..item(2) })),
            failure(&|tx| tx.insert(&north, Item { left: -1, ..item(3) })),
            failure(&|tx| tx.take(&north, &1, weft::column_of!(Item.left), 11)),
            failure(&|tx| tx.add(&north, &7, weft::column_of!(Item.left), 1)),
            failure(&|tx| tx.update(&north, &1, |row| row.id = 5).map(drop)),
        ];
        for message in messages {
            assert!(message.contains("items_north"), "{message}");
        }
    }
    for_each_kind!(|P| check::<P>());
}

#[test]
fn a_name_must_be_registered_once_and_with_the_type() {
    #[derive(Clone, Record)]
    #[record(table = "items_north")]
    struct Other {
        #[record(key)]
        id: u32,
    }
    let builder = || Database::builder().table_named::<Item>("items_north");
    let database = builder().open().unwrap();
    let unknown = database.table::<Item>().unwrap_err().to_string();
    assert!(unknown.starts_with("table item is not registered"), "{unknown}");
    let unknown = database.table_named::<Item>("items_east").unwrap_err().to_string();
    assert!(unknown.contains("Item>(\"items_east\")"), "{unknown}");
    assert!(matches!(database.table::<Other>(), Err(Failure::UnknownTable { .. })));
    let twice = builder().table_named::<Item>("items_north").open();
    assert!(matches!(twice, Err(Failure::DuplicateTable { table: "items_north" })), "{twice:?}");
    let twice = builder().table::<Other>().open();
    assert!(matches!(twice, Err(Failure::DuplicateTable { table: "items_north" })), "{twice:?}");
}

#[test]
fn named_tables_survive_a_restart_in_any_order() {
    let directory = TemporaryDirectory::new("named-tables");
    let open = |names: [&str; 3]| {
        let builder = Database::builder().directory(&directory.0);
        let named =
            names.into_iter().fold(builder, |builder, name| builder.table_named::<Item>(name));
        named.open().unwrap()
    };
    let database = open(REGIONS);
    for (id, table) in (1..).zip(regions(&database)) {
        database.transact(|tx| tx.insert(&table, item(id))).unwrap();
    }
    drop(database);
    let database = open([REGIONS[2], REGIONS[0], REGIONS[1]]);
    database.checkpoint().unwrap();
    for (id, table) in (1..).zip(regions(&database)) {
        database.transact(|tx| tx.insert(&table, item(id + 10))).unwrap();
    }
    drop(database);
    let database = open(REGIONS);
    for (id, table) in (1..).zip(regions(&database)) {
        let rows: Result<Vec<u32>, Error> =
            database.transact(|tx| tx.range(&table, ..).map(|row| Ok(row?.id)).collect());
        assert_eq!(rows.unwrap(), [id, id + 10]);
    }
}

#[derive(Clone, Debug, Record)]
#[record(expires = until)]
struct Session {
    #[record(key)]
    id: u32,
    until: Timestamp,
}

#[test]
fn rows_of_every_named_table_expire() {
    let start = Timestamp::from_millis(1_000_000);
    let clock = ManualClock::new(start);
    let builder = Database::builder().clock(&clock);
    let database = builder.table_named::<Session>("day").table_named::<Session>("night").open();
    let database = database.unwrap();
    let tables = ["day", "night"].map(|name| database.table_named::<Session>(name).unwrap());
    for (id, table) in (1..).zip(&tables) {
        let until = start + Duration::from_secs(id.into());
        database.transact(|tx| tx.insert(table, Session { id, until })).unwrap();
    }
    clock.advance(Duration::from_secs(3));
    assert_eq!(database.remove_expired().unwrap(), 2);
}
