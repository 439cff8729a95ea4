//! The five transactions of RUBiS that write.
//!
//! Their new rows, keys included, are drawn in advance, so that no transaction has to request a key.

use weft::protocol::Protocol;
use weft::{Error, Transaction, column_of};
use weft_procedures::procedure;

use super::Tables;
use super::interactions::TransactionType;
use super::load::{add_bid, insert_newest};
use super::schema::{
    Auction, Bid, CategoryItems, Comment, Item, Purchase, Rating, RegionItems, User, earliness,
};

/// The row that a transaction stores.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A new user.
    RegisterUser(User),
    /// A new item.
    StoreItem(Item),
    /// An item bought at once.
    StoreBuyNow(Purchase),
    /// A bid.
    StoreBid(Bid),
    /// A comment.
    StoreComment(Comment),
}

impl Change {
    /// The number of kinds.
    pub(super) const KINDS: usize = 5;

    /// Returns the position of its kind.
    pub(super) fn kind(&self) -> usize {
        self.transaction() as usize - TransactionType::RegisterUser as usize
    }

    /// Returns the type of the transaction that stores it.
    pub fn transaction(&self) -> TransactionType {
        match self {
            Change::RegisterUser(_) => TransactionType::RegisterUser,
            Change::StoreItem(_) => TransactionType::StoreItem,
            Change::StoreBuyNow(_) => TransactionType::StoreBuyNow,
            Change::StoreBid(_) => TransactionType::StoreBid,
            Change::StoreComment(_) => TransactionType::StoreComment,
        }
    }
}

/// Makes a change, with commutative operations or without. Returns whether it succeeded; if not, it has written
/// nothing.
pub(super) fn run<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    change: &Change,
    operations: bool,
) -> Result<bool, Error> {
    match change {
        Change::RegisterUser(user) => register_user(tables, tx, user),
        Change::StoreItem(item) if operations => store_item(tables, tx, item),
        Change::StoreItem(item) => store_item_by_reading(tables, tx, item),
        Change::StoreBuyNow(purchase) => store_buy_now(tables, tx, purchase),
        Change::StoreBid(bid) if operations => store_bid(tables, tx, bid),
        Change::StoreBid(bid) => store_bid_by_reading(tables, tx, bid),
        Change::StoreComment(comment) if operations => store_comment(tables, tx, comment),
        Change::StoreComment(comment) => store_comment_by_reading(tables, tx, comment),
    }
}

/// Inserts a user. Does not succeed if the nickname is taken.
#[procedure(RegisterUser)]
pub(super) fn register_user<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    user: &User,
) -> Result<bool, Error> {
    if tx.get_by(&tables.users, User::NICKNAME, &user.nickname)?.is_some() {
        return Ok(false);
    }
    tx.insert(&tables.users, *user)?;
    tx.insert(&tables.ratings, Rating { user: user.id, rating: 0 })?;
    Ok(true)
}

/// Inserts an item, and adds it to the lists of its category and of its seller's region.
#[procedure(StoreItem)]
pub(super) fn store_item<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    item: &Item,
) -> Result<bool, Error> {
    let region = tx.get(&tables.users, &item.seller)?.expect("users are never removed").region;
    tx.insert(&tables.items, item.clone())?;
    tx.insert(&tables.auctions, Auction::new(item.id))?;
    let (in_category, in_region) = (item.category, (region, item.category));
    let order = (item.started, item.id);
    let newest = column_of!(CategoryItems.newest);
    tx.top_k_insert(&tables.category_items, &in_category, newest, order, item.id)?;
    let newest = column_of!(RegionItems.newest);
    tx.top_k_insert(&tables.region_items, &in_region, newest, order, item.id)?;
    Ok(true)
}

/// Does the same as `store_item`, by reading and writing.
#[procedure(StoreItemByReading)]
pub(super) fn store_item_by_reading<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    item: &Item,
) -> Result<bool, Error> {
    let region = tx.get(&tables.users, &item.seller)?.expect("users are never removed").region;
    tx.insert(&tables.items, item.clone())?;
    tx.insert(&tables.auctions, Auction::new(item.id))?;
    let (in_category, in_region) = (item.category, (region, item.category));
    tx.update(&tables.category_items, &in_category, |row| {
        insert_newest(&mut row.newest, item);
    })?
    .expect("every category has its list");
    tx.update(&tables.region_items, &in_region, |row| insert_newest(&mut row.newest, item))?
        .expect("every region has its list");
    Ok(true)
}

/// Records a purchase, and reduces the item's quantity. Does not succeed if the quantity left is too small.
#[procedure(StoreBuyNow)]
pub(super) fn store_buy_now<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    purchase: &Purchase,
) -> Result<bool, Error> {
    let &Purchase { item, quantity, date, .. } = purchase;
    if tx.get(&tables.items, &item)?.expect("items are never removed").quantity < quantity {
        return Ok(false);
    }
    tx.update(&tables.items, &item, |row| {
        row.quantity -= quantity;
        if row.quantity == 0 {
            row.ends = date;
        }
    })?;
    tx.insert(&tables.purchases, *purchase)?;
    Ok(true)
}

/// Records a bid as in the paper's Figure 7: it reads nothing except by commutative operations.
#[procedure(StoreBid)]
pub(super) fn store_bid<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    bid: &Bid,
) -> Result<bool, Error> {
    let &Bid { bidder, id, item, price, date, .. } = bid;
    let auctions = &tables.auctions;
    tx.insert(&tables.bids, *bid)?;
    tx.max(auctions, &item, column_of!(Auction.max_bid), price)?;
    let winner = (price, earliness(date));
    tx.ordered_put(auctions, &item, column_of!(Auction.max_bidder), winner, bidder)?;
    tx.add(auctions, &item, column_of!(Auction.number_of_bids), 1)?;
    tx.top_k_insert(auctions, &item, column_of!(Auction.top_bids), (price, id), bidder)?;
    Ok(true)
}

/// Records a bid as in the paper's Figure 6: it reads the auction, and then writes it.
#[procedure(StoreBidByReading)]
pub(super) fn store_bid_by_reading<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    bid: &Bid,
) -> Result<bool, Error> {
    tx.insert(&tables.bids, *bid)?;
    let updated = tx.update(&tables.auctions, &bid.item, |auction| add_bid(auction, bid))?;
    updated.expect("every item has an auction");
    Ok(true)
}

/// Inserts a comment, and adds to the rating of the user who gets it.
#[procedure(StoreComment)]
pub(super) fn store_comment<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    comment: &Comment,
) -> Result<bool, Error> {
    let &Comment { to_user, rating, .. } = comment;
    tx.insert(&tables.comments, *comment)?;
    tx.add(&tables.ratings, &to_user, column_of!(Rating.rating), rating)?;
    Ok(true)
}

/// Does the same as `store_comment`, by reading and writing.
#[procedure(StoreCommentByReading)]
pub(super) fn store_comment_by_reading<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    comment: &Comment,
) -> Result<bool, Error> {
    let &Comment { to_user, rating, .. } = comment;
    tx.insert(&tables.comments, *comment)?;
    tx.update(&tables.ratings, &to_user, |row| row.rating += rating)?
        .expect("every user has a rating");
    Ok(true)
}
