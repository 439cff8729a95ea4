//! Names of tables and columns that are given up and used again, in directories that several versions of a program open.

use super::*;

/// Defines a table with rows of an id and a number.
macro_rules! table {
    ($name:ident, $($attribute:tt)*) => {
        #[derive(Clone, Debug, PartialEq, Record)]
        #[record($($attribute)*)]
        struct $name {
            #[record(key)]
            id: u32,
            cents: i64,
        }
    };
}

table!(Accounts, table = "accounts");
table!(NewClients, table = "clients");
table!(Clients, table = "clients", was = "accounts");

fn accounts() -> Vec<Accounts> {
    (1..4).map(|id| Accounts { id, cents: 100 }).collect()
}

/// Fault: a checkpoint compared the kept table alone with the directory. A table that named it as its former name was
/// read in its place, and the checkpoint had the rows of the wrong table.
#[test]
fn kept_table_keeps_its_rows_beside_a_table_that_had_its_name() {
    let disk = SimulatedDisk::new(7);
    put(&open::<Accounts>(&disk).unwrap(), accounts());
    // This program forgets the former name, so its table is new.
    let database = open::<NewClients>(&disk).unwrap();
    put(&database, [NewClients { id: 1, cents: 5 }]);
    drop(database);
    // The next one has the former name. The table is stored already, so it stays what it is.
    let database = open::<Clients>(&disk).unwrap();
    assert_eq!(rows::<Clients>(&database), [Clients { id: 1, cents: 5 }]);
    database.checkpoint().unwrap();
    database.backup("/backup").unwrap();
    database.close().unwrap();
    drop(database);
    let program = || on(Database::builder().table::<Accounts>().table::<NewClients>(), &disk);
    for directory in [DIRECTORY, "/backup"] {
        let database = program().directory(directory).open().unwrap();
        assert_eq!(rows::<Accounts>(&database), accounts(), "{directory}");
        assert_eq!(rows::<NewClients>(&database), [NewClients { id: 1, cents: 5 }]);
    }
}

/// Fault: a table that took over the name of a table which was renamed in the same program was new and empty. When both
/// were renamed, their names in the directory depended on the order of the program's tables.
#[test]
fn table_takes_over_a_name_that_another_one_gives_up() {
    table!(Orders, table = "orders");
    table!(SecondOrders, table = "orders_v2");
    table!(NextOrders, table = "orders", was = "orders_v2");
    table!(Archive, table = "orders_archive", was = "orders");

    let older = || Database::builder().table::<Orders>().table::<SecondOrders>();
    let older_reversed = || Database::builder().table::<SecondOrders>().table::<Orders>();
    let newer = || Database::builder().table::<NextOrders>().table::<Archive>();
    let newer_reversed = || Database::builder().table::<Archive>().table::<NextOrders>();
    for first in [older as fn() -> Builder, older_reversed] {
        for second in [newer as fn() -> Builder, newer_reversed] {
            let disk = SimulatedDisk::new(7);
            let database = on(first(), &disk).open().unwrap();
            put(&database, [Orders { id: 1, cents: 10 }]);
            put(&database, [SecondOrders { id: 2, cents: 20 }]);
            drop(database);
            for _ in 0..2 {
                let database = on(second(), &disk).open().unwrap();
                assert_eq!(rows::<NextOrders>(&database), [NextOrders { id: 2, cents: 20 }]);
                assert_eq!(rows::<Archive>(&database), [Archive { id: 1, cents: 10 }]);
            }
            // The release is rolled back, and made again.
            let database = on(older(), &disk).open().unwrap();
            assert_eq!(rows::<Orders>(&database), [Orders { id: 1, cents: 10 }]);
            assert_eq!(rows::<SecondOrders>(&database), [SecondOrders { id: 2, cents: 20 }]);
            database.checkpoint().unwrap();
            drop(database);
            let database = on(second(), &disk).open().unwrap();
            assert_eq!(rows::<NextOrders>(&database), [NextOrders { id: 2, cents: 20 }]);
            assert_eq!(rows::<Archive>(&database), [Archive { id: 1, cents: 10 }]);
        }
    }
}

/// Fault: a column that took over the name of a column which was renamed in the same program had its default in all rows.
#[test]
fn column_takes_over_a_name_that_another_one_gives_up() {
    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "items")]
    struct Item {
        #[record(key)]
        id: u32,
        price: u32,
        #[record(default = 0)]
        price_v2: u64,
    }
    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "items")]
    struct NextItem {
        #[record(key)]
        id: u32,
        #[record(was = "price")]
        price_old: u32,
        #[record(default = 0, was = "price_v2")]
        price: u64,
    }
    let disk = SimulatedDisk::new(7);
    let item = Item { id: 1, price: 10, price_v2: 20 };
    put(&open::<Item>(&disk).unwrap(), [item.clone()]);
    for _ in 0..2 {
        let database = open::<NextItem>(&disk).unwrap();
        assert_eq!(rows::<NextItem>(&database), [NextItem { id: 1, price_old: 10, price: 20 }]);
        database.checkpoint().unwrap();
    }
    assert_eq!(rows::<Item>(&open::<Item>(&disk).unwrap()), [item]);
}

/// Fault: the older program kept the newer column beside its own column of the same name. It wrote a manifest with two
/// columns of one name, which no program could read.
#[test]
fn older_program_is_refused_if_a_column_name_was_used_again() {
    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "items")]
    struct Item {
        #[record(key)]
        id: u32,
        a: u8,
    }
    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "items")]
    struct NextItem {
        #[record(key)]
        id: u32,
        #[record(was = "a")]
        b: u8,
        #[record(default = 9)]
        a: u8,
    }
    let disk = SimulatedDisk::new(7);
    put(&open::<Item>(&disk).unwrap(), [Item { id: 1, a: 5 }]);
    drop(open::<NextItem>(&disk).unwrap());
    let message = refusal::<Item>(&disk);
    assert!(message.contains("renamed the program's column `a`"), "{message}");
    let database = open::<NextItem>(&disk).unwrap();
    assert_eq!(rows::<NextItem>(&database), [NextItem { id: 1, b: 5, a: 9 }]);
}

/// Fault: the older program opened the renamed table under its old name, and kept the newer table of this name. The
/// directory then had two tables of one name, and a later program read the rows of both as one table.
#[test]
fn older_program_is_refused_if_a_table_name_was_used_again() {
    let disk = SimulatedDisk::new(7);
    put(&open::<Accounts>(&disk).unwrap(), accounts());
    let newer = || on(Database::builder().table::<Clients>().table::<Accounts>(), &disk);
    let database = newer().open().unwrap();
    put(&database, [Accounts { id: 9, cents: 1 }]);
    drop(database);
    let message = refusal::<Accounts>(&disk);
    assert!(message.contains("renamed the program's table of this name to `clients`"), "{message}");
    let database = newer().open().unwrap();
    assert_eq!(rows::<Clients>(&database).len(), 3);
    assert_eq!(rows::<Accounts>(&database), [Accounts { id: 9, cents: 1 }]);
}
