//! Carts: what customers want to order. A cart reserves its pieces for a time, and then gives them back.

use std::time::Duration;

use serde::{Serialize, Serializer};
use weft::{Error, Record, Table, Timestamp, Transaction, column_of};

use crate::refused::Refused;
use crate::shop::Tables;
use crate::stock::Item;

/// For how long a cart reserves an item, since the customer has last changed the number of pieces.
pub const RESERVED: Duration = Duration::from_secs(15 * 60);

/// An item in the cart of an account. Its pieces were taken from the stock. When it expires, [`give_back`] is called in
/// the transaction that removes it.
#[derive(Clone, Debug, Record, Serialize)]
#[record(table = "cart_lines", key(account, item), expires(until, hook))]
pub struct CartLine {
    /// The number of the account.
    pub account: u64,
    /// The number of the item.
    pub item: u64,
    /// How many pieces.
    #[record(min = 1, max = 1_000)]
    pub pieces: i64,
    /// Until when they are reserved: milliseconds since the year 1970.
    #[serde(serialize_with = "as_millis")]
    pub until: Timestamp,
}

fn as_millis<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_millis())
}

/// Says how many pieces of an item are in a cart, and reserves them. With zero pieces the item leaves the cart.
///
/// # Errors
/// [`Refused::NotFound`] if there is no such account or item; [`Refused::NotEnough`] if others have reserved or bought
/// the pieces; [`Refused::Invalid`] if there are too many.
pub fn put(
    tx: &Transaction<'_>,
    tables: &Tables,
    account: u64,
    item: u64,
    pieces: i64,
) -> Result<(), Refused> {
    tx.get(&tables.accounts, &account)?.ok_or(Refused::NotFound("accounts"))?;
    loop {
        match reserve(tx, tables, account, item, pieces) {
            // Carts that have expired by now give their pieces back first.
            Err(Refused::NotEnough(_)) if tx.run_due(&tables.carts, 100)? > 0 => {}
            reserved => return reserved,
        }
    }
}

/// Changes the number of reserved pieces, if as many are left.
fn reserve(
    tx: &Transaction<'_>,
    tables: &Tables,
    account: u64,
    item: u64,
    pieces: i64,
) -> Result<(), Refused> {
    let reserved = tx.get(&tables.carts, &(account, item))?.map_or(0, |line| line.pieces);
    if pieces > reserved {
        tx.take(&tables.items, &item, column_of!(Item.left), pieces - reserved)?;
    } else {
        tx.give(&tables.items, &item, column_of!(Item.left), reserved - pieces)?;
    }
    match pieces {
        0 => tx.delete(&tables.carts, &(account, item))?,
        _ => {
            let until = tx.now() + RESERVED;
            tx.upsert(&tables.carts, CartLine { account, item, pieces, until })?
        }
    };
    Ok(())
}

/// Gives the pieces of a cart line back that has expired.
///
/// # Errors
/// Those of [`Transaction::give`].
pub fn give_back(tx: &Transaction<'_>, items: &Table<Item>, line: &CartLine) -> Result<(), Error> {
    tx.give(items, &line.item, column_of!(Item.left), line.pieces)
}

/// Returns what is in a cart.
///
/// # Errors
/// Those of a scan.
pub fn show(tx: &Transaction<'_>, tables: &Tables, account: u64) -> Result<Vec<CartLine>, Refused> {
    tx.prefix(&tables.carts, &account).map(|line| Ok(line?.clone())).collect()
}
