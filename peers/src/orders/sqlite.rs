//! The shop on SQLite: one connection behind a mutex, which has one writer at a time anyway.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::{Durability, ITEMS, PLENTY, PRICE, RESERVED_MS, Shop, Totals};
use crate::store::Result;

/// The lines of an order are one value, as in the other shops.
const TABLES: &str = "
    CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER NOT NULL,
        left INTEGER NOT NULL CHECK (left >= 0));
    CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT NOT NULL,
        cents INTEGER NOT NULL CHECK (cents >= 0), orders INTEGER NOT NULL);
    CREATE TABLE cart_lines (account INTEGER, item INTEGER, pieces INTEGER NOT NULL,
        until INTEGER NOT NULL, PRIMARY KEY (account, item)) WITHOUT ROWID;
    CREATE INDEX by_time ON cart_lines (until);
    CREATE TABLE orders (account INTEGER, number INTEGER, lines BLOB NOT NULL,
        PRIMARY KEY (account, number)) WITHOUT ROWID;
    CREATE TABLE sales (item INTEGER PRIMARY KEY, pieces INTEGER NOT NULL, cents INTEGER NOT NULL);
    CREATE TABLE results (key TEXT PRIMARY KEY, label TEXT NOT NULL, number INTEGER NOT NULL,
        cents INTEGER NOT NULL) WITHOUT ROWID;";

/// The bytes of a line of an order: the item, the pieces and the cents.
const LINE_BYTES: usize = 24;

/// The connection, with its mutex.
pub struct SqliteShop(Mutex<Connection>);

impl SqliteShop {
    fn transact<R>(&self, body: impl FnOnce(&Connection) -> Result<R>) -> Result<R> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // It will write.
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let result = body(&connection);
        let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
        connection.prepare_cached(end)?.execute([])?;
        result
    }
}

/// Returns an error unless a statement has changed one row.
fn one_row(changed: usize) -> Result<()> {
    if changed == 1 { Ok(()) } else { Err("no such row, or not enough".into()) }
}

impl Shop for SqliteShop {
    fn open(directory: &Path, durability: Durability, accounts: u64) -> Result<Self> {
        // The mutex makes SQLite's own one superfluous.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let file = directory.join("shop.sqlite");
        let path = if durability == Durability::Memory { Path::new(":memory:") } else { &file };
        let connection = Connection::open_with_flags(path, flags)?;
        connection.set_prepared_statement_cache_capacity(32);
        connection.execute_batch(match durability {
            Durability::Memory => "PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY;",
            Durability::Logged => "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;",
            Durability::Durable => "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;",
        })?;
        connection.execute_batch(TABLES)?;
        let shop = SqliteShop(Mutex::new(connection));
        shop.transact(|tx| {
            let mut item = tx.prepare("INSERT INTO items VALUES (?1, 'item', ?2, ?3)")?;
            let mut sales = tx.prepare("INSERT INTO sales VALUES (?1, 0, 0)")?;
            for id in 0..ITEMS.cast_signed() {
                item.execute((id, PRICE, PLENTY))?;
                sales.execute([id])?;
            }
            let mut account = tx.prepare("INSERT INTO accounts VALUES (?1, 'owner', ?2, 0)")?;
            for id in 0..accounts.cast_signed() {
                account.execute((id, PLENTY))?;
            }
            Ok(())
        })?;
        Ok(shop)
    }

    fn put_in_cart(&self, account: u64, items: [u64; 2]) -> Result<()> {
        let account = account.cast_signed();
        self.transact(|tx| {
            tx.prepare_cached("SELECT 1 FROM accounts WHERE id = ?1")?
                .query_row([account], |_| Ok(()))?;
            let mut take =
                tx.prepare_cached("UPDATE items SET left = left - 1 WHERE id = ?1 AND left >= 1")?;
            let mut put = tx.prepare_cached(
                "INSERT INTO cart_lines VALUES (?1, ?2, 1, unixepoch('subsec') * 1000 + ?3)",
            )?;
            for item in items.map(u64::cast_signed) {
                one_row(take.execute([item])?)?;
                put.execute((account, item, RESERVED_MS.cast_signed()))?;
            }
            Ok(())
        })
    }

    fn order(&self, account: u64, key: &str) -> Result<u64> {
        let account = account.cast_signed();
        self.transact(|tx| {
            let result: Option<(String, i64)> = tx
                .prepare_cached("SELECT label, number FROM results WHERE key = ?1")?
                .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            if let Some((label, number)) = result {
                return if label == "order" {
                    Ok(number.cast_unsigned())
                } else {
                    Err("another label".into())
                };
            }
            let mut cart = tx.prepare_cached(
                "SELECT item, pieces, pieces * price FROM cart_lines JOIN items ON id = item
                 WHERE account = ?1 ORDER BY item",
            )?;
            let (mut lines, mut sum) = (Vec::new(), 0);
            let mut sell = tx.prepare_cached(
                "UPDATE sales SET pieces = pieces + ?2, cents = cents + ?3 WHERE item = ?1",
            )?;
            let mut rows = cart.query([account])?;
            while let Some(row) = rows.next()? {
                let (item, pieces, cents): (i64, i64, i64) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                one_row(sell.execute((item, pieces, cents))?)?;
                for number in [item, pieces, cents] {
                    lines.extend_from_slice(&number.to_le_bytes());
                }
                sum += cents;
            }
            if lines.is_empty() {
                return Err("the cart is empty".into());
            }
            tx.prepare_cached("DELETE FROM cart_lines WHERE account = ?1")?.execute([account])?;
            let number: i64 = tx
                .prepare_cached(
                    "UPDATE accounts SET cents = cents - ?2, orders = orders + 1
                     WHERE id = ?1 AND cents >= ?2 RETURNING orders",
                )?
                .query_row([account, sum], |row| row.get(0))?;
            tx.prepare_cached("INSERT INTO orders VALUES (?1, ?2, ?3)")?
                .execute((account, number, lines))?;
            tx.prepare_cached("INSERT INTO results VALUES (?1, 'order', ?2, ?3)")?
                .execute((key, number, sum))?;
            Ok(number.cast_unsigned())
        })
    }

    fn totals(&self) -> Result<Totals> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |select: &str| connection.query_row(select, [], |row| row.get::<_, i64>(0));
        let mut ordered = 0;
        let mut orders = connection.prepare("SELECT lines FROM orders")?;
        let mut rows = orders.query([])?;
        while let Some(row) = rows.next()? {
            for line in row.get_ref(0)?.as_blob()?.chunks_exact(LINE_BYTES) {
                ordered += i64::from_le_bytes(line[8..16].try_into()?);
            }
        }
        Ok(Totals {
            left: sum("SELECT sum(left) FROM items")?,
            reserved: sum("SELECT coalesce(sum(pieces), 0) FROM cart_lines")?,
            sold: sum("SELECT sum(pieces) FROM sales")?,
            ordered,
            orders: sum("SELECT count(*) FROM orders")?.cast_unsigned(),
            cents: sum("SELECT sum(cents) FROM accounts")?,
            results: sum("SELECT count(*) FROM results")?.cast_unsigned(),
        })
    }
}
