//! The twelve transactions that only read, and what a browser would get of them.
//!
//! An answer refers to rows and copies none. It is complete: for every item of a list its row and its
//! bids summed up, for every bid and comment its author. What lists the rows of a user shows the last 20
//! of them, a page of RUBiS.
//!
//! A list that is kept beside a table may be read in another state than the table, if others write
//! meanwhile. A transaction that has read two states does not commit, so what it does not find of a
//! list it leaves out, and runs on to be told.

use arrayvec::{ArrayString, ArrayVec};
use weft::protocol::Protocol;
use weft::{Error, Transaction};

use super::Tables;
use super::interactions::TransactionType;
use super::schema::{
    Auction, Bid, CATEGORIES, Category, Cents, Comment, Item, LISTED, NewestItems, Purchase,
    REGIONS, Region, User,
};

/// The most rows of a user in a list: `workload_number_of_items_per_page` of RUBiS.
pub(super) const PAGE: usize = 20;

/// What a transaction that only reads asks for.
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
    /// The transaction that asks.
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

/// The bids on an item, as a list of items shows them.
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

/// A line of a list of items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Listed<'a> {
    pub(super) item: &'a Item,
    pub(super) bidding: Bidding,
}

/// What is known of a user: others' comments with their authors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Profile<'a> {
    pub(super) user: &'a User,
    pub(super) rating: i64,
    pub(super) comments: ArrayVec<(&'a Comment, &'a User), PAGE>,
}

/// What a query finds.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "it lies on the stack, and is never moved far")]
pub(super) enum Answer<'a> {
    /// Nothing of what was asked for is there.
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
    /// Whether what was asked for is there.
    pub(super) fn is_found(&self) -> bool {
        !matches!(self, Answer::Nothing)
    }
}

/// A transaction that reads, and its tables.
struct Reader<'tx, 'db, P: Protocol> {
    tables: &'tx Tables<P>,
    tx: &'tx Transaction<'db, P>,
}

/// Asks.
pub(super) fn run<'tx, P: Protocol>(
    tables: &'tx Tables<P>,
    tx: &'tx Transaction<'_, P>,
    query: &Query,
) -> Result<Answer<'tx>, Error> {
    let reader = Reader { tables, tx };
    match query {
        Query::Authenticate { nickname, password } => reader.authenticate(nickname, password),
        Query::BrowseCategories { region } => reader.browse_categories(*region),
        Query::BrowseRegions => reader.browse_regions(),
        Query::SearchItemsByCategory { category } => {
            let list = tx.get(&tables.category_items, category)?;
            reader.list(list.map(|list| &list.newest))
        }
        Query::SearchItemsByRegion { region, category } => {
            let list = tx.get(&tables.region_items, &(*region, *category))?;
            reader.list(list.map(|list| &list.newest))
        }
        Query::ViewItem { item } | Query::PutBid { item } => reader.view_item(*item),
        Query::ViewUserInfo { user } => {
            Ok(reader.profile(*user)?.map_or(Answer::Nothing, Answer::Profile))
        }
        Query::ViewBidHistory { item } => reader.bid_history(*item),
        Query::BuyNow { item } => reader.form(*item, None),
        Query::PutComment { item, to_user } => reader.form(*item, Some(*to_user)),
        Query::AboutMe { user } => reader.about_me(*user),
    }
}

impl<'tx, P: Protocol> Reader<'tx, '_, P> {
    fn user(&self, user: u64) -> Result<Option<&'tx User>, Error> {
        self.tx.get(&self.tables.users, &user)
    }

    fn item(&self, item: u64) -> Result<Option<&'tx Item>, Error> {
        self.tx.get(&self.tables.items, &item)
    }

    /// An item and its bids summed up.
    fn listed(&self, item: u64) -> Result<Option<Listed<'tx>>, Error> {
        let Some(item) = self.item(item)? else { return Ok(None) };
        let auction = self.tx.get(&self.tables.auctions, &item.id)?;
        Ok(auction.map(|auction| Listed { item, bidding: Bidding::of(auction) }))
    }

    fn authenticate(
        &self,
        nickname: &ArrayString<20>,
        password: &str,
    ) -> Result<Answer<'tx>, Error> {
        let user = self.tx.get_by(&self.tables.users, User::NICKNAME, nickname)?;
        let user = user.filter(|user| user.password.as_str() == password);
        Ok(user.map_or(Answer::Nothing, |user| Answer::User(user.id)))
    }

    fn browse_categories(&self, region: Option<u8>) -> Result<Answer<'tx>, Error> {
        let region = match region {
            Some(region) => self.tx.get(&self.tables.regions, &region)?,
            None => None,
        };
        let mut categories = ArrayVec::new();
        for category in self.tx.range(&self.tables.categories, ..).take(categories.capacity()) {
            categories.push(category?);
        }
        Ok(Answer::Categories { region, categories })
    }

    fn browse_regions(&self) -> Result<Answer<'tx>, Error> {
        let mut regions = ArrayVec::new();
        for region in self.tx.range(&self.tables.regions, ..).take(regions.capacity()) {
            regions.push(region?);
        }
        Ok(Answer::Regions(regions))
    }

    /// The items of a list that is kept.
    fn list(&self, newest: Option<&NewestItems>) -> Result<Answer<'tx>, Error> {
        let Some(newest) = newest else { return Ok(Answer::Nothing) };
        self.tx.prefetch(&self.tables.items, newest.values().copied())?;
        self.tx.prefetch(&self.tables.auctions, newest.values().copied())?;
        let mut items = ArrayVec::new();
        for &item in newest.values() {
            items.extend(self.listed(item)?);
        }
        Ok(Answer::Items(items))
    }

    fn view_item(&self, item: u64) -> Result<Answer<'tx>, Error> {
        let Some(listed) = self.listed(item)? else { return Ok(Answer::Nothing) };
        let seller = self.user(listed.item.seller)?;
        Ok(seller.map_or(Answer::Nothing, |seller| Answer::Item { listed, seller }))
    }

    fn bid_history(&self, item: u64) -> Result<Answer<'tx>, Error> {
        let auction = self.tx.get(&self.tables.auctions, &item)?;
        let (Some(item), Some(auction)) = (self.item(item)?, auction) else {
            return Ok(Answer::Nothing);
        };
        let keys = auction.top_bids.tuples().map(|bid| (bid.value, bid.order.1));
        self.tx.prefetch(&self.tables.bids, keys.clone())?;
        self.tx.prefetch(&self.tables.users, keys.clone().map(|(bidder, _)| bidder))?;
        let mut bids = ArrayVec::new();
        for key in keys {
            let bid = self.tx.get(&self.tables.bids, &key)?;
            bids.extend(bid.zip(self.user(key.0)?));
        }
        Ok(Answer::Bids { item, bids })
    }

    /// An item, and its seller or another user.
    fn form(&self, item: u64, user: Option<u64>) -> Result<Answer<'tx>, Error> {
        let Some(item) = self.item(item)? else { return Ok(Answer::Nothing) };
        let user = self.user(user.unwrap_or(item.seller))?;
        Ok(user.map_or(Answer::Nothing, |user| Answer::Form { item, user }))
    }

    fn profile(&self, user: u64) -> Result<Option<Profile<'tx>>, Error> {
        let rating = self.tx.get(&self.tables.ratings, &user)?;
        let (Some(user), Some(rating)) = (self.user(user)?, rating) else { return Ok(None) };
        let mut comments = ArrayVec::new();
        for comment in self.tx.prefix(&self.tables.comments, &user.id).descending().take(PAGE) {
            let comment = comment?;
            comments.extend(self.user(comment.from_user)?.map(|author| (comment, author)));
        }
        Ok(Some(Profile { user, rating: rating.rating, comments }))
    }

    fn about_me(&self, user: u64) -> Result<Answer<'tx>, Error> {
        let Some(profile) = self.profile(user)? else { return Ok(Answer::Nothing) };
        let mut bids = ArrayVec::new();
        for bid in self.tx.prefix(&self.tables.bids, &user).descending().take(PAGE) {
            let bid = bid?;
            bids.extend(self.listed(bid.item)?.map(|listed| (bid, listed)));
        }
        let mut purchases = ArrayVec::new();
        for purchase in self.tx.prefix(&self.tables.purchases, &user).descending().take(PAGE) {
            let purchase = purchase?;
            purchases.extend(self.item(purchase.item)?.map(|item| (purchase, item)));
        }
        let mut selling = ArrayVec::new();
        let items = self.tx.prefix_by(&self.tables.items, Item::SELLER, &user);
        for item in items.descending().take(PAGE) {
            selling.extend(self.listed(item?.id)?);
        }
        Ok(Answer::AboutMe { profile, bids, purchases, selling })
    }
}
