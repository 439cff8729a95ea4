//! The seven tables of RUBiS, and the derived tables that Doppel's port stores beside them.
//!
//! | table | key | stored in | rows |
//! | --- | --- | --- | --- |
//! | [`User`] | id | hash table; by nickname | users |
//! | [`Item`] | id | hash table; by seller | items |
//! | [`Category`] | id | B+-tree | 20 |
//! | [`Region`] | id | B+-tree | 62 |
//! | [`Bid`] | bidder, id | B+-tree | up to 20 for each item |
//! | [`Purchase`], `buy_now` | buyer, id | B+-tree | none |
//! | [`Comment`] | user who gets the comment, id | B+-tree | one for 95 % of the items |
//! | [`Auction`] | item | hash table | items |
//! | [`Rating`] | user | hash table | users |
//! | [`CategoryItems`] | category | hash table | 20 |
//! | [`RegionItems`] | region, category | hash table | 1240 |
//!
//! The last four are what the paper's §7 materializes: `maxBid`, `maxBidder`, `numBids` and `bidsPerItemIndex` for
//! each item, `userRating` for each user, and the indexes of items by category and by region. They are tables of
//! their own because they are *hot*: they are changed by commutative operations, and phase reconciliation splits
//! whole rows. A split row can be neither read nor changed by other operations, so it must not contain columns that
//! are only read. For the same reason none of these tables has an index or owns memory.
//!
//! Bids, purchases and comments are clustered by the user of their lists: the bids of a user, the purchases, and
//! the comments on the user are adjacent, and need no index.
//!
//! Identifiers of loaded rows begin at 1; clients number their new rows, see [`new_id`].

use arrayvec::ArrayString;
use weft::Record;
use weft::operation::{Ordered, TopK};

/// An amount of money.
pub type Cents = i64;

/// Milliseconds since the site opened.
pub type Date = u64;

/// The number of categories, which are numbered from 1.
pub const CATEGORIES: u8 = 20;

/// The number of regions, which are numbered from 1.
pub const REGIONS: u8 = 62;

/// The length of the stored lists of items and bids, as in Doppel's port.
pub const LISTED: usize = 10;

/// The identifiers of loaded rows are below this.
pub const FIRST_NEW_ID: u64 = 1 << 32;

/// Returns the identifier of a client's `number`-th new row of a kind, both counted from 0. Identifiers of
/// different clients differ, so clients need not coordinate.
#[inline]
pub fn new_id(client: u32, number: u64) -> u64 {
    (u64::from(client) + 1) * FIRST_NEW_ID + number
}

/// Returns the second part of the order of the highest bidders: of two equal bids, the earlier one is greater.
#[inline]
pub fn earliness(date: Date) -> u64 {
    u64::MAX - date
}

/// A row of `users`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "users", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of RUBiS")]
pub struct User {
    #[record(key)]
    pub id: u64,
    pub firstname: ArrayString<20>,
    pub lastname: ArrayString<20>,
    #[record(unique)]
    pub nickname: ArrayString<20>,
    pub password: ArrayString<20>,
    pub email: ArrayString<50>,
    pub balance: Cents,
    pub created: Date,
    pub region: u8,
}

/// The sum of the comments on a user, as a row of its own.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "ratings", storage = "hash")]
pub struct Rating {
    /// The user.
    #[record(key)]
    pub user: u64,
    /// The sum of the ratings of all comments.
    pub rating: i64,
}

/// A row of `items`: the columns that bids do not change.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "items", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of RUBiS")]
pub struct Item {
    #[record(key)]
    pub id: u64,
    pub name: ArrayString<50>,
    pub description: String,
    pub initial_price: Cents,
    /// How many pieces can still be bought at once.
    pub quantity: u32,
    /// How many pieces there were.
    pub offered: u32,
    pub reserve_price: Cents,
    /// The price at which it can be bought at once; 0 if it cannot.
    pub buy_now: Cents,
    pub started: Date,
    /// The end of the auction, or when the item was sold out.
    pub ends: Date,
    #[record(index)]
    pub seller: u64,
    pub category: u8,
}

/// The highest bids on an item, ordered by price and identifier. The values are the bidders.
pub type TopBids = TopK<(Cents, u64), u64, LISTED>;

/// The sums of the bids on an item.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "auctions", storage = "hash")]
pub struct Auction {
    /// The item.
    #[record(key)]
    pub item: u64,
    /// The number of bids.
    pub number_of_bids: i64,
    /// The highest bid; 0 without bids.
    pub max_bid: Cents,
    /// The bidder of the highest bid; of several, the [first](earliness).
    pub max_bidder: Ordered<(Cents, u64), u64>,
    /// The highest bids with their bidders.
    pub top_bids: TopBids,
}

impl Auction {
    /// Returns an auction without bids.
    pub fn new(item: u64) -> Auction {
        Auction {
            item,
            number_of_bids: 0,
            max_bid: 0,
            max_bidder: Ordered::default(),
            top_bids: TopK::default(),
        }
    }
}

/// A row of `bids`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "bids", key(bidder, id))]
#[allow(missing_docs, reason = "the columns are those of RUBiS")]
pub struct Bid {
    pub bidder: u64,
    pub id: u64,
    pub item: u64,
    pub quantity: u32,
    /// The price of one piece.
    pub price: Cents,
    pub date: Date,
}

/// A row of `buy_now`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "buy_now", key(buyer, id))]
#[allow(missing_docs, reason = "the columns are those of RUBiS")]
pub struct Purchase {
    pub buyer: u64,
    pub id: u64,
    pub item: u64,
    pub quantity: u32,
    pub date: Date,
}

/// A row of `comments`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "comments", key(to_user, id))]
#[allow(missing_docs, reason = "the columns are those of RUBiS")]
pub struct Comment {
    /// The seller of the item.
    pub to_user: u64,
    pub id: u64,
    pub from_user: u64,
    pub item: u64,
    pub rating: i64,
    pub date: Date,
    pub comment: ArrayString<80>,
}

/// A row of `categories`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "categories")]
#[allow(missing_docs, reason = "the columns are those of RUBiS")]
pub struct Category {
    #[record(key)]
    pub id: u8,
    pub name: ArrayString<50>,
}

/// A row of `regions`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "regions")]
#[allow(missing_docs, reason = "the columns are those of RUBiS")]
pub struct Region {
    #[record(key)]
    pub id: u8,
    pub name: ArrayString<25>,
}

/// The newest items of a list, ordered by start and identifier.
pub type NewestItems = TopK<(Date, u64), u64, LISTED>;

/// The newest items of a category.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "category_items", storage = "hash")]
pub struct CategoryItems {
    /// The category.
    #[record(key)]
    pub category: u8,
    /// The newest items.
    pub newest: NewestItems,
}

/// The newest items of a category whose sellers are in a region.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "region_items", storage = "hash", key(region, category))]
pub struct RegionItems {
    /// The seller's region.
    pub region: u8,
    /// The category.
    pub category: u8,
    /// The newest items.
    pub newest: NewestItems,
}
