//! SQLite in memory: one connection behind a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OpenFlags};

use crate::store::{Operation, Result, Store, checksum, payload};

const ADD: &str = "UPDATE rows SET number = number + ?2 WHERE id = ?1";
const ADD_RETURNING: &str = "UPDATE rows SET number = number + ?2 WHERE id = ?1 RETURNING number";
const READ: &str = "SELECT payload FROM rows WHERE id = ?1";

/// The connection, with its mutex.
pub struct Sqlite(Mutex<Connection>);

impl Sqlite {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a transaction of several statements.
    fn transact<R>(&self, body: impl FnOnce(&Connection) -> Result<R>) -> Result<R> {
        let connection = self.lock();
        connection.prepare_cached("BEGIN")?.execute([])?;
        match body(&connection) {
            Ok(result) => {
                connection.prepare_cached("COMMIT")?.execute([])?;
                Ok(result)
            }
            Err(error) => {
                connection.prepare_cached("ROLLBACK")?.execute([])?;
                Err(error)
            }
        }
    }
}

/// Returns an error unless a statement has changed one row.
fn one_row(changed: usize) -> Result<()> {
    if changed == 1 { Ok(()) } else { Err("no such row".into()) }
}

impl Store for Sqlite {
    fn open(rows: u64) -> Result<Self> {
        // The mutex makes SQLite's own one superfluous.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(":memory:", flags)?;
        connection.execute_batch(
            "PRAGMA synchronous = OFF;
             PRAGMA temp_store = MEMORY;
             CREATE TABLE rows (id INTEGER PRIMARY KEY, number INTEGER NOT NULL, payload BLOB NOT NULL);",
        )?;
        let store = Sqlite(Mutex::new(connection));
        store.transact(|connection| {
            let mut insert = connection.prepare("INSERT INTO rows VALUES (?1, 0, ?2)")?;
            for key in 0..rows {
                insert.execute((i64::try_from(key)?, payload(key)))?;
            }
            Ok(())
        })?;
        Ok(store)
    }

    fn add_one(&self, key: u64) -> Result<()> {
        // One statement outside a transaction is a transaction.
        let connection = self.lock();
        one_row(connection.prepare_cached(ADD)?.execute((key.cast_signed(), 1))?)
    }

    fn transfer(&self, from: u64, to: u64) -> Result<(i64, i64)> {
        self.transact(|connection| {
            let mut add = connection.prepare_cached(ADD_RETURNING)?;
            let from = add.query_row((from.cast_signed(), -1), |row| row.get(0))?;
            let to = add.query_row((to.cast_signed(), 1), |row| row.get(0))?;
            Ok((from, to))
        })
    }

    fn perform(&self, operations: &[Operation]) -> Result<u32> {
        self.transact(|connection| {
            let mut read = connection.prepare_cached(READ)?;
            let mut add = connection.prepare_cached(ADD)?;
            let mut sum = 0_u32;
            for operation in operations {
                match *operation {
                    Operation::Read(key) => {
                        let one =
                            read.query_row([key], |row| Ok(checksum(row.get_ref(0)?.as_blob()?)))?;
                        sum = sum.wrapping_add(one);
                    }
                    Operation::Update(key) => one_row(add.execute((key, 1))?)?,
                }
            }
            Ok(sum)
        })
    }

    fn numbers(&self) -> Result<Vec<i64>> {
        let connection = self.lock();
        let mut select = connection.prepare("SELECT number FROM rows ORDER BY id")?;
        let numbers = select.query_map([], |row| row.get(0))?;
        Ok(numbers.collect::<rusqlite::Result<_>>()?)
    }
}
