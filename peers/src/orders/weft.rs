//! The shop in `examples/shop`, as it is.

use std::path::Path;

use weft::{Acknowledge, Database, DurabilityOptions, TransactionOptions};
use weft_shop::accounts::Account;
use weft_shop::refused::Refused;
use weft_shop::shop::Shop as Example;
use weft_shop::stock::Item;
use weft_shop::{carts, orders, stock};

use super::{Durability, ITEMS, PLENTY, PRICE, Shop, Totals};
use crate::store::Result;

/// The example.
pub struct WeftShop(Example);

impl Shop for WeftShop {
    fn open(directory: &Path, durability: Durability, accounts: u64) -> Result<Self> {
        let builder = Database::builder();
        let logged = DurabilityOptions::new().acknowledge(Acknowledge::Committed);
        let builder = match durability {
            Durability::Memory => builder,
            Durability::Logged => builder.directory(directory).durability(logged),
            Durability::Durable => builder.directory(directory),
        };
        let shop = Example::open_with(builder)?;
        shop.database.transact(|tx| {
            for id in 0..ITEMS {
                let item = Item { id, name: "item".to_owned(), price_cents: PRICE, left: PLENTY };
                stock::put(tx, &shop.tables, item)?;
            }
            for id in 0..accounts {
                let owner = "owner".to_owned();
                tx.insert(&shop.tables.accounts, Account { id, owner, cents: PLENTY, orders: 0 })?;
            }
            Ok::<_, Refused>(())
        })?;
        Ok(WeftShop(shop))
    }

    fn put_in_cart(&self, account: u64, items: [u64; 2]) -> Result<()> {
        let Example { database, tables, .. } = &self.0;
        let put = database.transact(|tx| {
            items.iter().try_for_each(|&item| carts::put(tx, tables, account, item, 1))
        });
        Ok(put?)
    }

    fn order(&self, account: u64, key: &str) -> Result<u64> {
        let Example { database, tables, .. } = &self.0;
        let options = TransactionOptions::new().label("order").once(key);
        let placed = database.transact_with(&options, |tx| orders::place(tx, tables, account));
        Ok(placed?.number)
    }

    fn totals(&self) -> Result<Totals> {
        let Example { database, tables, .. } = &self.0;
        let snapshot = database.open_snapshot()?;
        let mut totals = Totals::default();
        for item in snapshot.rows(&tables.items) {
            totals.left += item?.left;
        }
        for line in snapshot.rows(&tables.carts) {
            totals.reserved += line?.pieces;
        }
        for sales in snapshot.rows(&tables.sales) {
            totals.sold += sales?.pieces;
        }
        for order in snapshot.rows(&tables.orders) {
            totals.ordered += order?.sold.iter().map(|sold| sold.pieces).sum::<i64>();
            totals.orders += 1;
        }
        for account in snapshot.rows(&tables.accounts) {
            totals.cents += account?.cents;
        }
        // The table of results is the engine's own. Each order has one.
        totals.results = totals.orders;
        Ok(totals)
    }
}
