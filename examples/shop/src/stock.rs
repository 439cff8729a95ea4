//! Stock: what is for sale, and how much of it is left.

use serde::Serialize;
use weft::{Record, Transaction, column_of};

use crate::orders::Sales;
use crate::refused::Refused;
use crate::shop::Tables;

/// An item. The number of pieces left never goes below zero. Those in carts are reserved, and not among them.
#[derive(Clone, Debug, Record, Serialize)]
#[record(table = "items")]
pub struct Item {
    /// The number of the item.
    #[record(key)]
    pub id: u64,
    /// The name of the item.
    pub name: String,
    /// The price of a piece, in cents.
    #[record(min = 0, max = 100_000_000)]
    pub price_cents: i64,
    /// How many pieces are left.
    #[record(min = 0)]
    pub left: i64,
}

/// Adds an item, or replaces it.
///
/// # Errors
/// [`Refused::Invalid`] if a number is less than zero.
pub fn put(tx: &Transaction<'_>, tables: &Tables, item: Item) -> Result<(), Refused> {
    if tx.get(&tables.sales, &item.id)?.is_none() {
        tx.insert(&tables.sales, Sales { item: item.id, pieces: 0, cents: 0 })?;
    }
    tx.upsert(&tables.items, item)?;
    Ok(())
}

/// Adds pieces of an item.
///
/// # Errors
/// [`Refused::NotFound`]; [`Refused::Invalid`] if the number is less than zero.
pub fn restock(
    tx: &Transaction<'_>,
    tables: &Tables,
    item: u64,
    pieces: i64,
) -> Result<(), Refused> {
    tx.give(&tables.items, &item, column_of!(Item.left), pieces)?;
    Ok(())
}

/// Returns an item, if there is one with this number.
///
/// # Errors
/// Those of [`Transaction::get`].
pub fn find(tx: &Transaction<'_>, tables: &Tables, id: u64) -> Result<Option<Item>, Refused> {
    Ok(tx.get(&tables.items, &id)?.cloned())
}

/// Returns all items.
///
/// # Errors
/// Those of a scan.
pub fn list(tx: &Transaction<'_>, tables: &Tables) -> Result<Vec<Item>, Refused> {
    tx.range(&tables.items, ..).map(|item| Ok(item?.clone())).collect()
}
