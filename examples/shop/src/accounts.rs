//! Accounts: the customers and their money.

use serde::Serialize;
use weft::{Record, Transaction, column_of};

use crate::refused::Refused;
use crate::shop::Tables;

/// The account of a customer. Its money never goes below zero.
#[derive(Clone, Debug, Record, Serialize)]
#[record(table = "accounts")]
pub struct Account {
    /// The number of the account.
    #[record(key)]
    pub id: u64,
    /// The name of the customer.
    pub owner: String,
    /// The money, in cents.
    #[record(min = 0)]
    pub cents: i64,
    /// How many orders the customer has placed.
    pub orders: u64,
}

/// Opens an account without money.
///
/// # Errors
/// [`Refused::Conflict`] if there is one with this number.
pub fn open(tx: &Transaction<'_>, tables: &Tables, id: u64, owner: &str) -> Result<(), Refused> {
    tx.insert(&tables.accounts, Account { id, owner: owner.to_owned(), cents: 0, orders: 0 })?;
    Ok(())
}

/// Pays money into an account.
///
/// # Errors
/// [`Refused::NotFound`]; [`Refused::Invalid`] if it is less than nothing.
pub fn pay_in(tx: &Transaction<'_>, tables: &Tables, id: u64, cents: i64) -> Result<(), Refused> {
    tx.give(&tables.accounts, &id, column_of!(Account.cents), cents)?;
    Ok(())
}

/// Returns an account.
///
/// # Errors
/// [`Refused::NotFound`].
pub fn show(tx: &Transaction<'_>, tables: &Tables, id: u64) -> Result<Account, Refused> {
    tx.get(&tables.accounts, &id)?.cloned().ok_or(Refused::NotFound("accounts"))
}
