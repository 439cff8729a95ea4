//! The twelve transactions of RUBiS that only read, and their results.
//!
//! A result refers to rows and does not copy them. It is complete: for every item of a list it has the row and the
//! sums of its bids, for every bid and comment its author. A list of a user's rows shows the last 20, as a page of
//! RUBiS does.
//!
//! If other transactions write at the same time, a list that is stored beside a table may be read in another state
//! than the table. A transaction that has read two states cannot commit. So it leaves out list entries that it does
//! not find, and continues until validation aborts it.

use arrayvec::{ArrayString, ArrayVec};
use weft::protocol::Protocol;
use weft::{Error, Transaction};
use weft_procedures::procedure;

use super::Tables;
use super::interactions::TransactionType;
use super::schema::{
    Auction, Bid, CATEGORIES, Category, Cents, Comment, Item, LISTED, Purchase, REGIONS, Region,
    User,
};

/// The most rows of a user in a list: RUBiS's `workload_number_of_items_per_page`.
pub(super) const PAGE: usize = 20;

/// The input of a transaction that only reads.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "they are the transactions' inputs")]
pub enum Query {
    Authenticate { nickname: ArrayString<20>, password: ArrayString<20> },
    BrowseCategories { region: Option<u8> },
    BrowseRegions,
    SearchItemsByCategory { category: u8 },
    SearchItemsByRegion { region: u8, category: u8 },
    ViewItem { item: u64 },
    ViewUserInfo { user: u64 },
    ViewBidHistory { item: u64 },
    BuyNow { item: u64 },
    PutBid { item: u64 },
    PutComment { item: u64, to_user: u64 },
    AboutMe { user: u64 },
}

impl Query {
    /// Returns the type of the transaction.
    pub fn transaction(&self) -> TransactionType {
        match self {
            Query::Authenticate { .. } => TransactionType::Authenticate,
            Query::BrowseCategories { .. } => TransactionType::BrowseCategories,
            Query::BrowseRegions => TransactionType::BrowseRegions,
            Query::SearchItemsByCategory { .. } => TransactionType::SearchItemsByCategory,
            Query::SearchItemsByRegion { .. } => TransactionType::SearchItemsByRegion,
            Query::ViewItem { .. } => TransactionType::ViewItem,
            Query::ViewUserInfo { .. } => TransactionType::ViewUserInfo,
            Query::ViewBidHistory { .. } => TransactionType::ViewBidHistory,
            Query::BuyNow { .. } => TransactionType::BuyNow,
            Query::PutBid { .. } => TransactionType::PutBid,
            Query::PutComment { .. } => TransactionType::PutComment,
            Query::AboutMe { .. } => TransactionType::AboutMe,
        }
    }
}

/// The sums of the bids on an item, as a list of items shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bidding {
    pub(super) number: i64,
    pub(super) highest: Cents,
    pub(super) winner: Option<u64>,
}

impl Bidding {
    fn of(auction: &Auction) -> Bidding {
        Bidding {
            number: auction.number_of_bids,
            highest: auction.max_bid,
            winner: auction.max_bidder.value().copied(),
        }
    }
}

/// A line in a list of items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Listed<'a> {
    pub(super) item: &'a Item,
    pub(super) bidding: Bidding,
}

impl<'a> Listed<'a> {
    fn new(item: &'a Item, auction: &Auction) -> Self {
        Listed { item, bidding: Bidding::of(auction) }
    }
}

/// The profile of a user, with the comments on the user and their authors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Profile<'a> {
    pub(super) user: &'a User,
    pub(super) rating: i64,
    pub(super) comments: ArrayVec<(&'a Comment, &'a User), PAGE>,
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "it lies on the stack, and is never moved far")]
pub(super) enum Answer<'a> {
    /// The row that was asked for does not exist.
    Nothing,
    User(u64),
    Categories {
        region: Option<&'a Region>,
        categories: ArrayVec<&'a Category, { CATEGORIES as usize }>,
    },
    Regions(ArrayVec<&'a Region, { REGIONS as usize }>),
    Items(ArrayVec<Listed<'a>, LISTED>),
    Item {
        listed: Listed<'a>,
        seller: &'a User,
    },
    Form {
        item: &'a Item,
        user: &'a User,
    },
    Profile(Profile<'a>),
    Bids {
        item: &'a Item,
        bids: ArrayVec<(&'a Bid, &'a User), LISTED>,
    },
    AboutMe {
        profile: Profile<'a>,
        bids: ArrayVec<(&'a Bid, Listed<'a>), PAGE>,
        purchases: ArrayVec<(&'a Purchase, &'a Item), PAGE>,
        selling: ArrayVec<Listed<'a>, PAGE>,
    },
}

impl Answer<'_> {
    /// Returns whether the rows that were asked for exist.
    pub(super) fn is_found(&self) -> bool {
        !matches!(self, Answer::Nothing)
    }
}

/// Runs a query.
pub(super) fn run<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    query: &Query,
) -> Result<Answer<'tx>, Error> {
    match query {
        Query::Authenticate { nickname, password } => authenticate(tables, tx, nickname, password),
        Query::BrowseCategories { region } => browse_categories(tables, tx, *region),
        Query::BrowseRegions => browse_regions(tables, tx),
        Query::SearchItemsByCategory { category } => {
            search_items_by_category(tables, tx, *category)
        }
        Query::SearchItemsByRegion { region, category } => {
            search_items_by_region(tables, tx, *region, *category)
        }
        Query::ViewItem { item } | Query::PutBid { item } => view_item(tables, tx, *item),
        Query::ViewUserInfo { user } => view_user_info(tables, tx, *user),
        Query::ViewBidHistory { item } => view_bid_history(tables, tx, *item),
        Query::BuyNow { item } => buy_now(tables, tx, *item),
        Query::PutComment { item, to_user } => put_comment(tables, tx, *item, *to_user),
        Query::AboutMe { user } => about_me(tables, tx, *user),
    }
}

#[procedure(Authenticate)]
pub(super) fn authenticate<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    nickname: &ArrayString<20>,
    password: &str,
) -> Result<Answer<'tx>, Error> {
    let user = tx.get_by(&tables.users, User::NICKNAME, nickname)?;
    let user = user.filter(|user| user.password.as_str() == password);
    Ok(user.map_or(Answer::Nothing, |user| Answer::User(user.id)))
}

#[procedure(BrowseCategories)]
pub(super) fn browse_categories<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    region: Option<u8>,
) -> Result<Answer<'tx>, Error> {
    let region = match region {
        Some(region) => tx.get(&tables.regions, &region)?,
        None => None,
    };
    let mut categories = ArrayVec::new();
    for category in tx.range(&tables.categories, ..).take(categories.capacity()) {
        categories.push(category?);
    }
    Ok(Answer::Categories { region, categories })
}

#[procedure(BrowseRegions)]
pub(super) fn browse_regions<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
) -> Result<Answer<'tx>, Error> {
    let mut regions = ArrayVec::new();
    for region in tx.range(&tables.regions, ..).take(regions.capacity()) {
        regions.push(region?);
    }
    Ok(Answer::Regions(regions))
}

/// Returns the items in the list of a category.
#[procedure(SearchItemsByCategory)]
pub(super) fn search_items_by_category<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    category: u8,
) -> Result<Answer<'tx>, Error> {
    let list = tx.get(&tables.category_items, &category)?;
    let Some(newest) = list.map(|list| &list.newest) else { return Ok(Answer::Nothing) };
    tx.prefetch(&tables.items, newest.values().copied())?;
    tx.prefetch(&tables.auctions, newest.values().copied())?;
    let mut items = ArrayVec::new();
    for &item in newest.values() {
        let Some(item) = tx.get(&tables.items, &item)? else { continue };
        let auction = tx.get(&tables.auctions, &item.id)?;
        items.extend(auction.map(|auction| Listed::new(item, auction)));
    }
    Ok(Answer::Items(items))
}

/// Returns the items in the list of a category in a region.
#[procedure(SearchItemsByRegion)]
pub(super) fn search_items_by_region<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    region: u8,
    category: u8,
) -> Result<Answer<'tx>, Error> {
    let list = tx.get(&tables.region_items, &(region, category))?;
    let Some(newest) = list.map(|list| &list.newest) else { return Ok(Answer::Nothing) };
    tx.prefetch(&tables.items, newest.values().copied())?;
    tx.prefetch(&tables.auctions, newest.values().copied())?;
    let mut items = ArrayVec::new();
    for &item in newest.values() {
        let Some(item) = tx.get(&tables.items, &item)? else { continue };
        let auction = tx.get(&tables.auctions, &item.id)?;
        items.extend(auction.map(|auction| Listed::new(item, auction)));
    }
    Ok(Answer::Items(items))
}

#[procedure(ViewItem)]
pub(super) fn view_item<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    item: u64,
) -> Result<Answer<'tx>, Error> {
    let Some(item) = tx.get(&tables.items, &item)? else { return Ok(Answer::Nothing) };
    let Some(auction) = tx.get(&tables.auctions, &item.id)? else { return Ok(Answer::Nothing) };
    let seller = tx.get(&tables.users, &item.seller)?;
    let listed = Listed::new(item, auction);
    Ok(seller.map_or(Answer::Nothing, |seller| Answer::Item { listed, seller }))
}

#[procedure(ViewBidHistory)]
pub(super) fn view_bid_history<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    item: u64,
) -> Result<Answer<'tx>, Error> {
    let auction = tx.get(&tables.auctions, &item)?;
    let item = tx.get(&tables.items, &item)?;
    let (Some(item), Some(auction)) = (item, auction) else { return Ok(Answer::Nothing) };
    let keys = auction.top_bids.tuples().map(|bid| (bid.value, bid.order.1));
    tx.prefetch(&tables.bids, keys.clone())?;
    tx.prefetch(&tables.users, keys.clone().map(|(bidder, _)| bidder))?;
    let mut bids = ArrayVec::new();
    for key in keys {
        let bid = tx.get(&tables.bids, &key)?;
        let bidder = tx.get(&tables.users, &key.0)?;
        bids.extend(bid.zip(bidder));
    }
    Ok(Answer::Bids { item, bids })
}

/// Returns an item and its seller.
#[procedure(BuyNow)]
pub(super) fn buy_now<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    item: u64,
) -> Result<Answer<'tx>, Error> {
    let Some(item) = tx.get(&tables.items, &item)? else { return Ok(Answer::Nothing) };
    let user = tx.get(&tables.users, &item.seller)?;
    Ok(user.map_or(Answer::Nothing, |user| Answer::Form { item, user }))
}

/// Returns an item and a user.
#[procedure(PutComment)]
pub(super) fn put_comment<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    item: u64,
    to_user: u64,
) -> Result<Answer<'tx>, Error> {
    let Some(item) = tx.get(&tables.items, &item)? else { return Ok(Answer::Nothing) };
    let user = tx.get(&tables.users, &to_user)?;
    Ok(user.map_or(Answer::Nothing, |user| Answer::Form { item, user }))
}

#[procedure(ViewUserInfo)]
pub(super) fn view_user_info<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    user: u64,
) -> Result<Answer<'tx>, Error> {
    let rating = tx.get(&tables.ratings, &user)?;
    let user = tx.get(&tables.users, &user)?;
    let (Some(user), Some(rating)) = (user, rating) else { return Ok(Answer::Nothing) };
    let mut comments = ArrayVec::new();
    for comment in tx.prefix(&tables.comments, &user.id).descending().take(PAGE) {
        let comment = comment?;
        let author = tx.get(&tables.users, &comment.from_user)?;
        comments.extend(author.map(|author| (comment, author)));
    }
    Ok(Answer::Profile(Profile { user, rating: rating.rating, comments }))
}

#[procedure(AboutMe)]
pub(super) fn about_me<'tx, P: Protocol>(
    tables: &'tx Tables,
    tx: &'tx Transaction<'_, P>,
    user: u64,
) -> Result<Answer<'tx>, Error> {
    // The user's profile, as others see it.
    let rating = tx.get(&tables.ratings, &user)?;
    let row = tx.get(&tables.users, &user)?;
    let (Some(row), Some(rating)) = (row, rating) else { return Ok(Answer::Nothing) };
    let mut comments = ArrayVec::new();
    for comment in tx.prefix(&tables.comments, &user).descending().take(PAGE) {
        let comment = comment?;
        let author = tx.get(&tables.users, &comment.from_user)?;
        comments.extend(author.map(|author| (comment, author)));
    }
    let profile = Profile { user: row, rating: rating.rating, comments };

    let mut bids = ArrayVec::new();
    for bid in tx.prefix(&tables.bids, &user).descending().take(PAGE) {
        let bid = bid?;
        let Some(item) = tx.get(&tables.items, &bid.item)? else { continue };
        let auction = tx.get(&tables.auctions, &item.id)?;
        bids.extend(auction.map(|auction| (bid, Listed::new(item, auction))));
    }
    let mut purchases = ArrayVec::new();
    for purchase in tx.prefix(&tables.purchases, &user).descending().take(PAGE) {
        let purchase = purchase?;
        let item = tx.get(&tables.items, &purchase.item)?;
        purchases.extend(item.map(|item| (purchase, item)));
    }
    let mut selling = ArrayVec::new();
    for item in tx.prefix_by(&tables.items, Item::SELLER, &user).descending().take(PAGE) {
        // Read the row again, by its key.
        let Some(item) = tx.get(&tables.items, &item?.id)? else { continue };
        let auction = tx.get(&tables.auctions, &item.id)?;
        selling.extend(auction.map(|auction| Listed::new(item, auction)));
    }
    Ok(Answer::AboutMe { profile, bids, purchases, selling })
}
