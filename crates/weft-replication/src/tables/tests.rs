use std::path::Path;
use std::sync::Arc;

use weft::column::ColumnValue;
use weft::durability::format::{WriteKind, push_transaction, push_write};
use weft::durability::{Manifest, SimulatedDisk};
use weft::operation::OperationKind;
use weft::protocol::Dbx;
use weft_changes::LoggedTables;

use super::*;

#[derive(Clone, Debug, PartialEq, Record)]
struct Item {
    #[record(key)]
    id: u32,
    stock: u32,
}

/// Appends an operation on the stock of item 1, which lies behind the version `version`.
fn push_operation(bytes: &mut Vec<u8>, version: u64, kind: OperationKind, number: u32) {
    push_write(bytes, WriteKind::Operation, 0, version, |bytes| {
        Item::encode_key(&1, bytes);
        // The column's position is 1.
        bytes.extend_from_slice(&[1, kind as u8]);
        number.write(bytes);
    });
}

fn push_put(bytes: &mut Vec<u8>, version: u64, item: &Item) {
    push_write(bytes, WriteKind::Put, 0, version, |bytes| item.encode_row(bytes));
}

/// Fault: a worker gave a piece and took it in one epoch. The standby took it first, which is impossible, and stopped.
#[test]
fn epoch_in_which_a_worker_takes_what_it_has_given_is_applied() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let builder = Database::builder().protocol::<Dbx>().table::<Item>().directory("/db");
    let database = builder.backend(Arc::clone(&disk) as _, false).open().unwrap();
    let items = database.table::<Item>().unwrap();
    let item = |id, stock| Item { id, stock };
    let inserted: Result<(), Error> = database.transact(|tx| {
        tx.insert(&items, item(1, 0))?;
        tx.insert(&items, item(2, 0))
    });
    inserted.unwrap();
    // The first worker has written item 2 after the second one, which has changed item 1 twice.
    let mut bytes = Vec::new();
    push_transaction(&mut bytes);
    push_put(&mut bytes, 1, &item(2, 20));
    push_transaction(&mut bytes);
    push_operation(&mut bytes, 0, OperationKind::Add, 1);
    push_transaction(&mut bytes);
    push_operation(&mut bytes, 0, OperationKind::Take, 1);
    push_put(&mut bytes, 0, &item(2, 10));
    let manifest = Manifest::read(&*disk, Path::new("/db")).unwrap().unwrap();
    let epoch = LoggedTables::new(&manifest).read(1, bytes, "a test").unwrap();
    let tables: [Box<dyn AppliedTable<Dbx>>; 1] = [Box::new(items)];
    apply(&database, &tables, &epoch, Timestamp::from_millis(1)).unwrap();
    let items = database.table::<Item>().unwrap();
    let snapshot = database.open_snapshot().unwrap();
    let rows: Vec<Item> = snapshot.rows(&items).map(|row| row.unwrap().clone()).collect();
    assert_eq!(rows, [item(1, 0), item(2, 20)]);
}
