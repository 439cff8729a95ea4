//! Auctions: customers bid, and the highest bidders are listed.

use serde::Serialize;
use weft::operation::{OnePerValue, TopK};
use weft::{Record, Transaction, column_of};

use crate::refused::Refused;
use crate::shop::Tables;

/// An auction. Many customers may bid at the same time: bids are operations that commute.
#[derive(Clone, Debug, Record)]
#[record(table = "auctions")]
pub struct Auction {
    /// The number of the auction.
    #[record(key)]
    pub id: u64,
    /// The name of the thing that is sold.
    pub name: String,
    /// How many bids there were.
    pub bids: u64,
    /// The five highest bidders: the cents, and the number of the account.
    pub leaders: TopK<i64, u64, 5, OnePerValue>,
}

/// The leaderboard of an auction.
#[derive(Clone, Debug, Serialize)]
pub struct Leaderboard {
    /// The name of the thing that is sold.
    pub name: String,
    /// How many bids there were.
    pub bids: u64,
    /// The highest bidders, the highest first.
    pub leaders: Vec<Leader>,
}

/// A bidder on the leaderboard.
#[derive(Clone, Debug, Serialize)]
pub struct Leader {
    /// The name of the customer.
    pub owner: String,
    /// The highest bid of the customer, in cents.
    pub cents: i64,
}

/// Opens an auction.
///
/// # Errors
/// [`Refused::Conflict`] if there is one with this number.
pub fn open(tx: &Transaction<'_>, tables: &Tables, id: u64, name: &str) -> Result<(), Refused> {
    let (name, leaders) = (name.to_owned(), TopK::default());
    tx.insert(&tables.auctions, Auction { id, name, bids: 0, leaders })?;
    Ok(())
}

/// Bids for what an auction sells.
///
/// # Errors
/// [`Refused::NotFound`]; [`Refused::Invalid`] if the bid is not more than nothing.
pub fn bid(
    tx: &Transaction<'_>,
    tables: &Tables,
    id: u64,
    account: u64,
    cents: i64,
) -> Result<(), Refused> {
    if cents <= 0 {
        return Err(Refused::Invalid("a bid is more than nothing".to_owned()));
    }
    tx.get(&tables.accounts, &account)?.ok_or(Refused::NotFound("accounts"))?;
    tx.add(&tables.auctions, &id, column_of!(Auction.bids), 1)?;
    tx.top_k_insert(&tables.auctions, &id, column_of!(Auction.leaders), cents, account)?;
    Ok(())
}

/// Returns the leaderboard of an auction, if there is one with this number.
///
/// # Errors
/// Those of [`Transaction::get`].
pub fn find(
    tx: &Transaction<'_>,
    tables: &Tables,
    id: u64,
) -> Result<Option<Leaderboard>, Refused> {
    let Some(auction) = tx.get(&tables.auctions, &id)? else { return Ok(None) };
    let leaders = auction.leaders.tuples().map(|tuple| {
        let account = tx.get(&tables.accounts, &tuple.value)?;
        let owner = account.map(|account| account.owner.clone()).unwrap_or_default();
        Ok(Leader { owner, cents: tuple.order })
    });
    let leaders = leaders.collect::<Result<_, Refused>>()?;
    Ok(Some(Leaderboard { name: auction.name.clone(), bids: auction.bids, leaders }))
}
