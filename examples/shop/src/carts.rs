//! Carts: what customers want to order. A cart does not reserve anything: the order takes from the stock.

use serde::Serialize;
use weft::{Record, Transaction};

use crate::refused::Refused;
use crate::shop::Tables;

/// An item in the cart of an account.
#[derive(Clone, Debug, Record, Serialize)]
#[record(table = "carts", key(account, item))]
pub struct CartLine {
    /// The number of the account.
    pub account: u64,
    /// The number of the item.
    pub item: u64,
    /// How many pieces.
    #[record(min = 1, max = 1_000)]
    pub pieces: i64,
}

/// Says how many pieces of an item are in a cart. With zero pieces the item leaves the cart.
///
/// # Errors
/// [`Refused::NotFound`] if there is no such account or item; [`Refused::Invalid`] if there are too many.
pub fn put(tx: &Transaction<'_>, tables: &Tables, line: CartLine) -> Result<(), Refused> {
    tx.get(&tables.accounts, &line.account)?.ok_or(Refused::NotFound("accounts"))?;
    tx.get(&tables.items, &line.item)?.ok_or(Refused::NotFound("items"))?;
    match line.pieces {
        0 => tx.delete(&tables.carts, &(line.account, line.item))?,
        _ => tx.upsert(&tables.carts, line)?,
    };
    Ok(())
}

/// Returns what is in a cart.
///
/// # Errors
/// Those of a scan.
pub fn show(tx: &Transaction<'_>, tables: &Tables, account: u64) -> Result<Vec<CartLine>, Refused> {
    tx.prefix(&tables.carts, &account).map(|line| Ok(line?.clone())).collect()
}
