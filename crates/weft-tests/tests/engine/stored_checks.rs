//! Tests of a row type that gets a constraint after its rows were stored. A database with a row that violates the
//! constraint cannot be opened with that row type.

use std::path::Path;
use weft::htm::word::{Ordering, Word};

use weft::durability::StorageError;
use weft::{Builder, Database, DurabilityOptions, Error, Failure, Record, TransactionOptions};
use weft_tests::TemporaryDirectory;

/// The row types without constraints.
mod before {
    use weft::Record;

    #[derive(Clone, Copy, Record)]
    #[record(table = "account")]
    pub struct Account {
        #[record(key)]
        pub id: i32,
        #[record(index)]
        pub branch: u8,
        pub cents: i64,
    }

    #[derive(Clone, Record)]
    #[record(table = "name", storage = "hash")]
    pub struct Name {
        #[record(key)]
        pub id: String,
        pub length: u64,
    }
}

/// The row type whose constraint was dropped.
mod dropped {
    use weft::Record;

    #[derive(Clone, Record)]
    #[record(table = "name", storage = "hash", dropped(length_of_id))]
    pub struct Name {
        #[record(key)]
        pub id: String,
        pub length: u64,
    }
}

/// The row types with constraints.
mod now {
    use std::sync::atomic::Ordering;

    use weft::Record;
    use weft::schema::Violation;

    #[derive(Clone, Copy, Debug, Record)]
    #[record(table = "account", check = not_negative)]
    pub struct Account {
        #[record(key)]
        pub id: i32,
        #[record(index)]
        pub branch: u8,
        pub cents: i64,
    }

    fn not_negative(account: &Account) -> Result<(), Violation> {
        if account.cents < 0 { Err("cents must not be negative".into()) } else { Ok(()) }
    }

    #[derive(Clone, Debug, Record)]
    #[record(table = "name", storage = "hash", check = length_of_id)]
    pub struct Name {
        #[record(key)]
        pub id: String,
        pub length: u64,
    }

    fn length_of_id(name: &Name) -> Result<(), Violation> {
        super::NAMES_CHECKED.fetch_add(1, Ordering::Relaxed);
        if name.length == name.id.len() as u64 { Ok(()) } else { Err("wrong length".into()) }
    }
}

/// A row type whose constraint panics.
mod panicking {
    use weft::Record;
    use weft::schema::Violation;

    #[derive(Clone, Copy, Debug, Record)]
    #[record(table = "account", check = panic_at_666)]
    pub struct Account {
        #[record(key)]
        pub id: i32,
        #[record(index)]
        pub branch: u8,
        pub cents: i64,
    }

    fn panic_at_666(account: &Account) -> Result<(), Violation> {
        assert!(account.cents != 666, "the constraint does not like 666");
        Ok(())
    }
}

/// Counts the checks of the constraint of names. Only one test uses that table.
static NAMES_CHECKED: Word = Word::new(0);

fn builder<T: Record>(directory: &Path, threads: usize) -> Builder {
    let options = DurabilityOptions::new().threads(threads);
    Database::builder().table::<T>().directory(directory).durability(options)
}

fn put_accounts(database: &Database, accounts: impl IntoIterator<Item = (i32, i64)>) {
    let table = database.table::<before::Account>().unwrap();
    let accounts: Vec<(i32, i64)> = accounts.into_iter().collect();
    let put = database.transact(|tx| {
        for &(id, cents) in &accounts {
            tx.upsert(&table, before::Account { id, branch: (id % 3) as u8, cents })?;
        }
        Ok::<_, Error>(())
    });
    put.unwrap();
}

/// Closes a database and releases its directory.
fn close(database: Database) {
    database.close().unwrap();
}

fn cents(database: &Database, id: i32) -> Option<i64> {
    let table = database.table::<now::Account>().unwrap();
    let read = database.transact(|tx| Ok::<_, Error>(tx.get(&table, &id)?.map(|row| row.cents)));
    read.unwrap()
}

/// Checks that the directory cannot be opened, because of this number of accounts, the first of which is `id`.
#[track_caller]
fn expect_refused(directory: &Path, threads: usize, id: &str, count: usize) {
    let error = builder::<now::Account>(directory, threads)
        .open()
        .expect_err("a row violates the constraint");
    let message = error.to_string();
    let Failure::Storage(StorageError::Constraint { table, rows, count: found }) = error else {
        panic!("{message}");
    };
    assert_eq!((table.as_str(), rows[0].key.as_str()), ("account", id), "{message}");
    assert_eq!((rows.len(), found), (count.min(20), count as u64), "{message}");
    assert!(rows.iter().all(|row| row.violation.message == "cents must not be negative"));
    for words in ["`account`", id, "cents must not be negative", "correct them"] {
        assert!(message.contains(words), "{message} does not say {words}");
    }
}

#[test]
fn stored_row_that_breaks_a_new_constraint_is_refused() {
    for threads in [1, 4] {
        let directory = TemporaryDirectory::new("checks-log");
        let database = builder::<before::Account>(&directory.0, threads).open().unwrap();
        put_accounts(&database, (-50..1000).map(|id| (id, i64::from(id % 7))));
        // These rows are in the checkpoint.
        put_accounts(&database, [(700, -1), (30, -1)]);
        database.checkpoint().unwrap();
        // These rows are in the log.
        put_accounts(&database, [(600, -1), (20, -1), (-49, -1), (900, -1)]);
        close(database);
        // Before the correction below, negative keys have negative cents, so the first such key is reported.
        expect_refused(&directory.0, threads, "-50", 49);

        let database = builder::<before::Account>(&directory.0, threads).open().unwrap();
        put_accounts(&database, (-50..0).map(|id| (id, 0)));
        close(database);
        expect_refused(&directory.0, threads, "20", 5);

        // The database can be opened and corrected without the constraint.
        let database = builder::<before::Account>(&directory.0, threads).open().unwrap();
        put_accounts(&database, [(20, 0), (30, 0), (600, 0), (700, 0), (900, 0)]);
        close(database);
        let database = builder::<now::Account>(&directory.0, threads).open().unwrap();
        assert_eq!(cents(&database, 700), Some(0));
    }
}

#[test]
fn earlier_version_of_a_row_may_break_a_new_constraint() {
    let directory = TemporaryDirectory::new("checks-old");
    let database = builder::<before::Account>(&directory.0, 2).open().unwrap();
    put_accounts(&database, (0..100).map(|id| (id, -1)));
    database.checkpoint().unwrap();
    // The log overwrites or deletes all of these rows.
    put_accounts(&database, (0..50).map(|id| (id, -2)));
    put_accounts(&database, (0..90).map(|id| (id, 3)));
    let table = database.table::<before::Account>().unwrap();
    for id in 90..100 {
        database.transact(|tx| tx.delete(&table, &id).map(drop)).unwrap();
    }
    close(database);
    let database = builder::<now::Account>(&directory.0, 2)
        .open()
        .expect("the final rows satisfy the constraint");
    let sum: i64 = (0..100).filter_map(|id| cents(&database, id)).sum();
    assert_eq!(sum, 270);
}

#[test]
fn stored_row_of_a_hash_table_is_checked_once() {
    let directory = TemporaryDirectory::new("checks-hash");
    let database = builder::<before::Name>(&directory.0, 3).open().unwrap();
    let table = database.table::<before::Name>().unwrap();
    let put = |id: &str, length| {
        let name = before::Name { id: id.to_owned(), length };
        database.transact(|tx| tx.upsert(&table, name.clone())).unwrap();
    };
    for id in ["", "a", "bb", "ccc", "dddd"] {
        put(id, 9);
        put(id, id.len() as u64);
    }
    database.checkpoint().unwrap();
    close(database);
    let database = builder::<now::Name>(&directory.0, 3).open().unwrap();
    assert_eq!(NAMES_CHECKED.load(Ordering::Relaxed), 5);
    close(database);

    let error = builder::<before::Name>(&directory.0, 3).open().unwrap_err().to_string();
    assert!(error.contains("the check `length_of_id`"), "an older program may break it: {error}");
    let database = builder::<dropped::Name>(&directory.0, 3).open().unwrap();
    let table = database.table::<dropped::Name>().unwrap();
    for id in ["zz", "ccc", "y"] {
        let name = dropped::Name { id: id.to_owned(), length: 9 };
        database.transact(|tx| tx.upsert(&table, name.clone())).unwrap();
    }
    close(database);
    let error = builder::<now::Name>(&directory.0, 3).open().expect_err("three rows violate it");
    assert!(error.to_string().contains("\"ccc\""), "not the first violation in key order: {error}");
}

#[test]
fn past_state_is_checked() {
    let directory = TemporaryDirectory::new("checks-past");
    let database = builder::<before::Account>(&directory.0, 1).open().unwrap();
    put_accounts(&database, [(1, -1)]);
    let table = database.table::<before::Account>().unwrap();
    let options = TransactionOptions::new();
    let put = database.transact_with_token::<_, Error>(&options, |tx| {
        tx.upsert(&table, before::Account { id: 2, branch: 0, cents: 1 })
    });
    let (_, token) = put.unwrap();
    // The next transaction gets a later epoch.
    database.wait_durable(token).unwrap();
    put_accounts(&database, [(1, 1)]);
    close(database);
    let past = builder::<now::Account>(&directory.0, 1).at_epoch(token.epoch()).open();
    let error = past.expect_err("the row was negative then");
    assert!(matches!(error, Failure::Storage(StorageError::Constraint { .. })), "{error}");
    assert!(builder::<now::Account>(&directory.0, 1).open().is_ok());
}

#[test]
fn constraint_that_panics_leaves_the_directory_usable() {
    for threads in [1, 4] {
        let directory = TemporaryDirectory::new("checks-panic");
        let database = builder::<before::Account>(&directory.0, threads).open().unwrap();
        put_accounts(&database, (0..500).map(|id| (id, i64::from(id))));
        put_accounts(&database, [(77, 666), (400, 666)]);
        close(database);
        let opened = builder::<panicking::Account>(&directory.0, threads).open();
        let error = opened.expect_err("the constraint panics");
        let Failure::Storage(StorageError::Panicked { message }) = error else { panic!("{error}") };
        assert!(message.contains("does not like 666"), "{message:?}");
        // The directory's lock is released, and the rows are unchanged.
        let database = builder::<now::Account>(&directory.0, threads).open().unwrap();
        assert_eq!(cents(&database, 400), Some(666));
    }
}
