//! The message for each bad use.

use std::sync::Arc;

use weft::durability::SimulatedDisk;
use weft::{Database, Failure, Record};
use weft_changes::{ChangeFeed, ChangesError, Position};

use crate::bank::{Account, Bank, Receipt};

#[derive(Clone, Debug, Record)]
#[record(volatile)]
struct Session {
    #[record(key)]
    id: u32,
}

fn bank(disk: &SimulatedDisk) -> Bank<weft::protocol::Dbx> {
    let builder = Database::builder().directory("/db");
    Bank::open(builder.backend(Arc::new(disk.clone()), true)).unwrap()
}

#[test]
fn database_in_memory_needs_a_ring() {
    let bank = Bank::open(Database::builder()).unwrap();
    let refused = bank.database.changes_from_now().unwrap_err();
    assert_eq!(refused, ChangesError::Failure(Failure::InMemory));
    assert!(refused.to_string().contains(".change_ring(bytes)"), "{refused}");
    let refused = bank.database.snapshot_with_position().map(|_| ()).unwrap_err();
    assert_eq!(refused, ChangesError::Failure(Failure::InMemory));
}

#[test]
fn read_only_database_has_no_feed() {
    let disk = SimulatedDisk::new(1);
    let bank = bank(&disk);
    bank.transfer(0, &mut fastrand::Rng::with_seed(1)).unwrap();
    let epoch = bank.database.durable_epoch().unwrap();
    drop(bank);
    let builder = Database::builder().directory("/db").backend(Arc::new(disk), true);
    let bank = Bank::open(builder.at_epoch(epoch)).unwrap();
    let refused = bank.database.changes(Position::START).unwrap_err();
    assert_eq!(refused, ChangesError::Failure(Failure::ReadOnly { epoch }));
}

#[test]
fn position_of_another_database_is_refused() {
    let (one, other) = (bank(&SimulatedDisk::new(1)), bank(&SimulatedDisk::new(2)));
    let (_, position) = one.database.snapshot_with_position().unwrap();
    let refused = other.database.changes(position).unwrap_err();
    assert_eq!(refused, ChangesError::ForeignPosition { position });
    assert!(refused.to_string().contains("snapshot_with_position"), "{refused}");
}

#[test]
fn position_after_the_end_is_refused() {
    let disk = SimulatedDisk::new(1);
    let first = bank(&disk);
    let mut random = fastrand::Rng::with_seed(1);
    first.transfer(0, &mut random).unwrap();
    let old = disk.crash(1);
    for _ in 0..20 {
        first.transfer(0, &mut random).unwrap();
    }
    let (_, position) = first.database.snapshot_with_position().unwrap();
    let refused = bank(&old).database.changes(position).unwrap_err();
    assert!(matches!(refused, ChangesError::Ahead { .. }), "{refused}");
    assert!(refused.to_string().contains("older than the position"), "{refused}");
}

#[test]
fn text_that_is_no_position_is_refused() {
    for text in
        ["", "x", "1-2", "00-1-2", "0000000000000001-2-4294967295", "0000000000000001-2-3-4"]
    {
        let refused = text.parse::<Position>().unwrap_err();
        assert!(refused.to_string().contains("is not a position"), "{refused}");
    }
    let text = "00c0ffee00c0ffee-1234-5";
    assert_eq!(text.parse::<Position>().unwrap().to_string(), text);
    assert_eq!(Position::START.to_string().parse(), Ok(Position::START));
}

#[test]
fn volatile_and_foreign_tables_cannot_be_watched() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let builder = Database::builder().table::<Session>().directory("/db").backend(disk, true);
    let database = builder.open().unwrap();
    let sessions = database.table::<Session>().unwrap();
    let refused = database.watch(&sessions, ..).unwrap_err();
    assert_eq!(refused, ChangesError::Volatile { table: "session" });
    let other = bank(&SimulatedDisk::new(2));
    let refused = database.watch(&other.accounts, ..).unwrap_err();
    assert_eq!(refused, ChangesError::Failure(Failure::ForeignTable { table: "account" }));
}

#[test]
fn change_of_another_table_is_not_decoded() {
    let bank = bank(&SimulatedDisk::new(1));
    let mut changes = bank.database.changes_from_now().unwrap();
    let account = Account { id: 1, cents: 0, note: String::new() };
    bank.database.transact(|tx| tx.insert(&bank.accounts, account.clone())).unwrap();
    bank.database.transact(|tx| tx.update(&bank.accounts, &1, |row| row.cents = 2)).unwrap();
    let inserted = changes.try_next().unwrap().unwrap();
    let refused = inserted.changes().next().unwrap().row::<Receipt>().unwrap_err();
    let found = "account".to_owned();
    assert_eq!(refused, ChangesError::OtherTable { table: "receipt", found });
    let updated = changes.try_next().unwrap().unwrap();
    let change = updated.changes().next().unwrap();
    let refused = change.apply::<Account>(None).unwrap_err();
    assert_eq!(refused, ChangesError::NoRow { table: "account" });
    assert!(change.column::<String>("cents").is_err(), "the column is an i64");
    assert_eq!(change.column::<i64>("unknown").unwrap(), None);
}
