//! Orders: a cart is paid. Its pieces were taken from the stock when they were put into the cart.

use serde::Serialize;
use weft::protocol::Dbx;
use weft::{ColumnValue, Error, Migration, Record, Table, Transaction, column_of};

use crate::accounts::Account;
use crate::carts;
use crate::refused::Refused;
use crate::shop::Tables;
use crate::stock::Item;

/// An item of an order.
#[derive(Clone, Debug, PartialEq, ColumnValue, Serialize)]
pub struct Sold {
    /// The number of the item.
    pub item: u64,
    /// How many pieces.
    pub pieces: i64,
    /// What they have cost.
    pub cents: i64,
}

/// An order of an account.
#[derive(Clone, Debug, Record, Serialize)]
#[record(table = "orders", key(account, number))]
pub struct Order {
    /// The number of the account.
    pub account: u64,
    /// The number among the orders of the account, from 1 on.
    pub number: u64,
    /// What was sold.
    pub sold: Vec<Sold>,
}

/// How much of an item was sold. There is such a row for each item.
#[derive(Clone, Debug, Record, Serialize)]
#[record(table = "sales")]
pub struct Sales {
    /// The number of the item.
    #[record(key)]
    pub item: u64,
    /// How many pieces.
    pub pieces: i64,
    /// What they have cost.
    pub cents: i64,
}

/// What the customer gets for an order.
#[derive(Clone, Debug, PartialEq, ColumnValue, Serialize)]
pub struct Receipt {
    /// The number among the orders of the account.
    pub number: u64,
    /// What was paid.
    pub cents: i64,
}

/// Orders what is in the cart of an account.
///
/// # Errors
/// [`Refused::NotFound`]; [`Refused::NotEnough`] if the money is not enough; [`Refused::Conflict`] if the cart is
/// empty.
pub fn place(tx: &Transaction<'_>, tables: &Tables, account: u64) -> Result<Receipt, Refused> {
    let mut sold = Vec::new();
    for line in carts::show(tx, tables, account)? {
        // The order depends on the price alone, so that it does not conflict with those who take from the stock.
        let price = tx.get_columns(&tables.items, &line.item, column_of!(Item.price_cents))?;
        let cents = price.ok_or(Refused::NotFound("items"))? * line.pieces;
        // The line is deleted before it has expired, so its pieces are not given back.
        tx.delete(&tables.carts, &(account, line.item))?;
        sold.push(Sold { item: line.item, pieces: line.pieces, cents });
    }
    if sold.is_empty() {
        return Err(Refused::Conflict("the cart is empty".to_owned()));
    }
    count(tx, &tables.sales, &sold)?;
    let cents = sold.iter().map(|sold| sold.cents).sum();
    tx.take(&tables.accounts, &account, column_of!(Account.cents), cents)?;
    let number = tx.update(&tables.accounts, &account, |account| {
        account.orders += 1;
        account.orders
    })?;
    let number = number.ok_or(Refused::NotFound("accounts"))?;
    tx.insert(&tables.orders, Order { account, number, sold })?;
    Ok(Receipt { number, cents })
}

/// Returns the orders of an account, the newest first.
///
/// # Errors
/// Those of a scan.
pub fn list(tx: &Transaction<'_>, tables: &Tables, account: u64) -> Result<Vec<Order>, Refused> {
    tx.prefix(&tables.orders, &account).descending().map(|order| Ok(order?.clone())).collect()
}

/// Counts what was sold. These are operations, so orders of the same item do not conflict.
fn count(tx: &Transaction<'_>, sales: &Table<Sales>, sold: &[Sold]) -> Result<(), Error> {
    for Sold { item, pieces, cents } in sold {
        tx.add(sales, item, column_of!(Sales.pieces), *pieces)?;
        tx.add(sales, item, column_of!(Sales.cents), *cents)?;
    }
    Ok(())
}

/// Brings a directory to version 2 of the schema: counts what was sold before there was the table of sales.
///
/// # Errors
/// Those of its operations.
pub fn count_sales(
    tx: &Migration<'_, Dbx>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let sales = tx.table()?;
    for item in tx.range(&tx.table::<Item>()?, ..) {
        tx.insert(&sales, Sales { item: item?.id, pieces: 0, cents: 0 })?;
    }
    for order in tx.range(&tx.table::<Order>()?, ..) {
        count(tx, &sales, &order?.sold)?;
    }
    Ok(())
}
