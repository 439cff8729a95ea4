//! The shop on redb.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redb::backends::InMemoryBackend;
use redb::{
    Database, Durability as Commit, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};

use super::{Durability, ITEMS, PLENTY, PRICE, RESERVED_MS, Shop, Totals};
use crate::store::Result;

/// The name, the price and how many are left.
const ITEM: TableDefinition<'_, u64, (&str, i64, i64)> = TableDefinition::new("items");
/// The owner, the cents and the number of orders.
const ACCOUNT: TableDefinition<'_, u64, (&str, i64, u64)> = TableDefinition::new("accounts");
/// By account and item: the pieces, and until when they are reserved.
const CART: TableDefinition<'_, (u64, u64), (i64, u64)> = TableDefinition::new("cart_lines");
/// The same, by time.
const CART_BY_TIME: TableDefinition<'_, (u64, u64, u64), ()> = TableDefinition::new("by_time");
/// By account and number: the lines.
const ORDER: TableDefinition<'_, (u64, u64), Vec<Line>> = TableDefinition::new("orders");
/// The pieces and the cents.
const SALES: TableDefinition<'_, u64, (i64, i64)> = TableDefinition::new("sales");
/// By key: the label, and the number and the cents of the order.
const RESULT: TableDefinition<'_, &str, (&str, u64, i64)> = TableDefinition::new("results");

/// A line of an order: the item, the pieces and what they have cost.
type Line = (u64, i64, i64);

/// How often what was logged is brought to the disk.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// A database, and when it was last synchronized.
pub struct RedbShop {
    database: Database,
    durability: Durability,
    synced: Mutex<Instant>,
}

impl RedbShop {
    fn write<R>(&self, body: impl FnOnce(&WriteTransaction) -> Result<R>) -> Result<R> {
        let mut transaction = self.database.begin_write()?;
        // redb has one writer at a time, so the mutex is free.
        let mut synced = self.synced.lock().map_err(|_| "a writer panicked")?;
        let is_due = synced.elapsed() >= SYNC_INTERVAL;
        let commit = match self.durability {
            Durability::Durable => Commit::Immediate,
            Durability::Logged if is_due => Commit::Immediate,
            Durability::Logged | Durability::Memory => Commit::None,
        };
        transaction.set_durability(commit)?;
        let result = body(&transaction)?;
        transaction.commit()?;
        if is_due {
            *synced = Instant::now();
        }
        Ok(result)
    }
}

fn now_ms() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

impl Shop for RedbShop {
    fn open(directory: &Path, durability: Durability, accounts: u64) -> Result<Self> {
        let database = match durability {
            Durability::Memory => Database::builder().create_with_backend(InMemoryBackend::new())?,
            Durability::Logged | Durability::Durable => {
                Database::create(directory.join("shop.redb"))?
            }
        };
        let shop = RedbShop { database, durability, synced: Mutex::new(Instant::now()) };
        shop.write(|tx| {
            let (mut items, mut sales) = (tx.open_table(ITEM)?, tx.open_table(SALES)?);
            for item in 0..ITEMS {
                items.insert(item, ("item", PRICE, PLENTY))?;
                sales.insert(item, (0, 0))?;
            }
            let mut table = tx.open_table(ACCOUNT)?;
            for account in 0..accounts {
                table.insert(account, ("owner", PLENTY, 0))?;
            }
            tx.open_table(CART)?;
            tx.open_table(CART_BY_TIME)?;
            tx.open_table(ORDER)?;
            tx.open_table(RESULT)?;
            Ok(())
        })?;
        Ok(shop)
    }

    fn put_in_cart(&self, account: u64, items: [u64; 2]) -> Result<()> {
        self.write(|tx| {
            let mut stock = tx.open_table(ITEM)?;
            let (mut carts, mut by_time) = (tx.open_table(CART)?, tx.open_table(CART_BY_TIME)?);
            tx.open_table(ACCOUNT)?.get(account)?.ok_or("no such account")?;
            let until = now_ms()? + RESERVED_MS;
            for item in items {
                let mut row = stock.get_mut(item)?.ok_or("no such item")?;
                let (name, price, left) = row.value();
                let name = name.to_owned();
                if left < 1 {
                    return Err("not enough".into());
                }
                row.insert((&*name, price, left - 1))?;
                carts.insert((account, item), (1, until))?;
                by_time.insert((until, account, item), ())?;
            }
            Ok(())
        })
    }

    fn order(&self, account: u64, key: &str) -> Result<u64> {
        self.write(|tx| {
            let mut results = tx.open_table(RESULT)?;
            if let Some(result) = results.get(key)? {
                let (label, number, _) = result.value();
                return if label == "order" { Ok(number) } else { Err("another label".into()) };
            }
            let (mut carts, mut by_time) = (tx.open_table(CART)?, tx.open_table(CART_BY_TIME)?);
            let (items, mut sales) = (tx.open_table(ITEM)?, tx.open_table(SALES)?);
            let mut lines = Vec::new();
            for line in carts.extract_from_if((account, 0)..=(account, u64::MAX), |_, _| true)? {
                let (line, reserved) = line?;
                let ((_, item), (pieces, until)) = (line.value(), reserved.value());
                by_time.remove((until, account, item))?;
                let (_, price, _) = items.get(item)?.ok_or("no such item")?.value();
                lines.push((item, pieces, price * pieces));
            }
            if lines.is_empty() {
                return Err("the cart is empty".into());
            }
            for (item, pieces, cents) in &lines {
                let mut row = sales.get_mut(item)?.ok_or("no such item")?;
                let (pieces_before, cents_before) = row.value();
                row.insert((pieces_before + pieces, cents_before + cents))?;
            }
            let sum: i64 = lines.iter().map(|(_, _, cents)| cents).sum();
            let mut accounts = tx.open_table(ACCOUNT)?;
            let mut row = accounts.get_mut(account)?.ok_or("no such account")?;
            let (owner, cents, orders) = row.value();
            let (owner, number) = (owner.to_owned(), orders + 1);
            if cents < sum {
                return Err("not enough".into());
            }
            row.insert((&*owner, cents - sum, number))?;
            tx.open_table(ORDER)?.insert((account, number), lines)?;
            results.insert(key, ("order", number, sum))?;
            Ok(number)
        })
    }

    fn totals(&self) -> Result<Totals> {
        let tx = self.database.begin_read()?;
        let mut totals = Totals::default();
        for row in tx.open_table(ITEM)?.iter()? {
            totals.left += row?.1.value().2;
        }
        for row in tx.open_table(CART)?.iter()? {
            totals.reserved += row?.1.value().0;
        }
        for row in tx.open_table(SALES)?.iter()? {
            totals.sold += row?.1.value().0;
        }
        for row in tx.open_table(ORDER)?.iter()? {
            totals.ordered += row?.1.value().iter().map(|line| line.1).sum::<i64>();
            totals.orders += 1;
        }
        for row in tx.open_table(ACCOUNT)?.iter()? {
            totals.cents += row?.1.value().1;
        }
        totals.results = tx.open_table(RESULT)?.iter()?.count() as u64;
        Ok(totals)
    }
}
