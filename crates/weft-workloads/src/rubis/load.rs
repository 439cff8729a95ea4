//! The initial population of RUBiS: users, the items that they sell, bids and comments.
//!
//! The random choices for a user, and those for an item with its bids and its comment, come from separate sources.
//! Each source is derived from the seed and the identifier. So the rows do not depend on the number of threads, and
//! clients and verification can draw them again.
//!
//! The proportions are those of RUBiS's own load (`rubis.properties`). Four fifths of the items are unique, and
//! there are up to ten pieces of the others. 40 % have a reserve price, and 10 % can be bought at once. An item has
//! up to 20 bids, and 95 % of the items have a comment.

use std::fmt::Write;

use arrayvec::{ArrayString, ArrayVec};
use weft::operation::{Operation, Ordered, OrderedTuple, TopKInsert};
use weft::protocol::Protocol;
use weft::{Builder, Database, Failure};

use super::schema::{
    Auction, Bid, CATEGORIES, Category, CategoryItems, Cents, Comment, Date, Item, NewestItems,
    Purchase, REGIONS, Rating, Region, RegionItems, TopBids, User, earliness,
};
use super::{ITEMS_MAX, Ledgers, Parameters, Rubis, Tables, USERS_MAX};
use crate::load::LoadInProgress;
use crate::random::Random;
use crate::workload::LoadOptions;

/// The streams of random numbers of items are above those of users, and those of clients above both.
const ITEM_STREAMS: u64 = 1 << 40;
pub(super) const CLIENT_STREAMS: u64 = 1 << 41;

/// The most bids on a loaded item.
const BIDS_MAX: usize = 20;

const DAY: Date = 24 * 60 * 60 * 1000;

/// The end of the first week. All loaded rows are earlier, and clients begin here.
pub(super) const LOADED_UNTIL: Date = 7 * DAY;

/// The highest possible bid.
pub(super) const BID_MAX: Cents = 1_000_000;

/// The ratings of comments, and the text for each.
pub(super) const RATINGS: [(i64, &str); 5] = [
    (-5, "This is a very bad comment. Stay away from this seller!"),
    (-3, "This is a comment below average. I do not recommend this user!"),
    (0, "This is a neutral comment. It is neither a good nor a bad seller!"),
    (3, "This is a comment above average. You can trust this seller!"),
    (5, "This is an excellent comment. You can make really great deals with this seller!"),
];

const SENTENCE: &str =
    "This incredible item is exactly what you need, and it has a lot of features. ";

/// Formats a text that is known to fit.
pub(super) fn text<const N: usize>(arguments: std::fmt::Arguments<'_>) -> ArrayString<N> {
    let mut text = ArrayString::new();
    text.write_fmt(arguments).expect("the text fits");
    text
}

/// Returns the nickname of a user.
pub(super) fn nickname_of(user: u64) -> ArrayString<20> {
    text(format_args!("user{user}"))
}

/// Returns the password of a user.
pub(super) fn password_of(user: u64) -> ArrayString<20> {
    text(format_args!("pass{user}"))
}

/// Returns the row of a user.
pub(super) fn user_of(id: u64, region: u8, created: Date) -> User {
    User {
        id,
        firstname: text(format_args!("Great{id}")),
        lastname: text(format_args!("User{id}")),
        nickname: nickname_of(id),
        password: password_of(id),
        email: text(format_args!("Great{id}.User{id}@rubis.com")),
        balance: 0,
        created,
        region,
    }
}

/// Draws a user, as loaded.
pub(super) fn draw_user(seed: u64, id: u64) -> User {
    let mut random = Random::new(seed, id);
    let region = random.within_u8(1, REGIONS);
    user_of(id, region, random.0.u64(0..LOADED_UNTIL / 2))
}

/// Draws an item: its price, its quantity and other columns. `lot` pieces are sold as one.
pub(super) fn draw_item(
    random: &mut Random,
    id: u64,
    seller: u64,
    started: Date,
    lot: u32,
) -> Item {
    let category = random.within_u8(1, CATEGORIES);
    let pieces = if random.chance(80) { 1 } else { random.within(1, 10) };
    let initial_price = 100 * random.within_i64(1, 5_000);
    let reserve_price =
        if random.chance(40) { initial_price + 100 * random.within_i64(1, 1_000) } else { 0 };
    let buy_now =
        if random.chance(10) { initial_price + 100 * random.within_i64(1, 1_000) } else { 0 };
    let length = random.within(10, 255) as usize;
    Item {
        id,
        name: text(format_args!("RUBiS automatically generated item #{id}")),
        description: SENTENCE.chars().cycle().take(length).collect(),
        initial_price,
        quantity: pieces * lot,
        offered: pieces * lot,
        reserve_price,
        buy_now,
        started,
        ends: started + DAY * random.0.u64(1..=7),
        seller,
        category,
    }
}

/// Draws the seller of a loaded item, which is the first draw of the item's source.
#[inline]
pub(super) fn seller_of(seed: u64, item: u64, users: u32) -> u64 {
    draw_seller(&mut Random::new(seed, ITEM_STREAMS + item), users)
}

#[inline]
fn draw_seller(random: &mut Random, users: u32) -> u64 {
    random.within(1, users).into()
}

/// A loaded item with its bids and its comment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    pub(super) item: Item,
    pub(super) bids: ArrayVec<Bid, BIDS_MAX>,
    pub(super) comment: Option<Comment>,
}

impl Offer {
    pub(super) fn draw(seed: u64, id: u64, parameters: &Parameters) -> Offer {
        let users = parameters.users;
        let mut random = Random::new(seed, ITEM_STREAMS + id);
        let random = &mut random;
        let seller = draw_seller(random, users);
        let started = random.0.u64(0..LOADED_UNTIL / 2);
        let item = draw_item(random, id, seller, started, parameters.lot);
        let bids = (0..random.within(0, BIDS_MAX as u32)).map(|number| Bid {
            bidder: random.within(1, users).into(),
            id: id * BIDS_MAX as u64 + u64::from(number),
            item: id,
            quantity: 1,
            price: random.within_i64(1, BID_MAX),
            date: random.0.u64(started..LOADED_UNTIL),
        });
        let bids = bids.collect();
        let comment = random.chance(95).then(|| {
            let from_user = random.within(1, users).into();
            let date = random.0.u64(started..LOADED_UNTIL);
            draw_comment(random, id, (seller, from_user, id), date)
        });
        Offer { item, bids, comment }
    }

    /// Returns the auction row, with the sums of the bids.
    fn auction(&self) -> Auction {
        let mut auction = Auction::new(self.item.id);
        for bid in &self.bids {
            add_bid(&mut auction, bid);
        }
        // Among loaded bids, the earliest of the highest wins, regardless of the order of the draws.
        let highest = self.bids.iter().max_by_key(|bid| (bid.price, earliness(bid.date)));
        if let Some(bid) = highest {
            auction.max_bidder = winner(bid);
        }
        auction
    }
}

/// Draws a comment, with its rating, by a user on another user and an item.
pub(super) fn draw_comment(
    random: &mut Random,
    id: u64,
    (to_user, from_user, item): (u64, u64, u64),
    date: Date,
) -> Comment {
    let (rating, comment) = RATINGS[random.within(0, RATINGS.len() as u32 - 1) as usize];
    Comment { to_user, id, from_user, item, rating, date, comment: text(format_args!("{comment}")) }
}

/// Adds a bid to an auction without commutative operations, as in the paper's Figure 6: of two equal bids, the one
/// that is stored first wins.
pub(super) fn add_bid(auction: &mut Auction, bid: &Bid) {
    if bid.price > auction.max_bid {
        auction.max_bid = bid.price;
        auction.max_bidder = winner(bid);
    }
    auction.number_of_bids += 1;
    insert_top(&mut auction.top_bids, bid);
}

fn winner(bid: &Bid) -> Ordered<(Cents, u64), u64> {
    let order = (bid.price, earliness(bid.date));
    OrderedTuple::new(order, bid.bidder).into()
}

/// Inserts a bid into a list without a commutative operation.
fn insert_top(top: &mut TopBids, bid: &Bid) {
    let order = (bid.price, bid.id);
    TopKInsert(order, bid.bidder).apply(top).expect("what does not fit is left out");
}

/// Inserts an item into a list without a commutative operation.
pub(super) fn insert_newest(newest: &mut NewestItems, item: &Item) {
    let order = (item.started, item.id);
    TopKInsert(order, item.id).apply(newest).expect("what does not fit is left out");
}

/// The sums over all loaded items.
struct Sums {
    /// The rating of each user.
    ratings: Vec<i64>,
    categories: Vec<NewestItems>,
    /// The newest items of each region and category, region by region.
    regions: Vec<NewestItems>,
}

impl Sums {
    fn of(seed: u64, parameters: &Parameters) -> Sums {
        let lists = usize::from(CATEGORIES);
        let mut sums = Sums {
            ratings: vec![0; parameters.users as usize + 1],
            categories: vec![NewestItems::default(); lists],
            regions: vec![NewestItems::default(); lists * usize::from(REGIONS)],
        };
        for id in 1..=u64::from(parameters.items) {
            let Offer { item, comment, .. } = Offer::draw(seed, id, parameters);
            if let Some(comment) = comment {
                sums.ratings[comment.to_user as usize] += comment.rating;
            }
            let region = usize::from(draw_user(seed, item.seller).region) - 1;
            let category = usize::from(item.category) - 1;
            insert_newest(&mut sums.categories[category], &item);
            insert_newest(&mut sums.regions[region * lists + category], &item);
        }
        sums
    }
}

/// The source of the rows.
struct Source<'a> {
    seed: u64,
    parameters: &'a Parameters,
    sums: Sums,
}

impl Source<'_> {
    /// Returns the `n`-th item, counted from 0.
    fn offer(&self, n: u64) -> Offer {
        Offer::draw(self.seed, n + 1, self.parameters)
    }

    fn category_items(&self, _: u64) -> Vec<CategoryItems> {
        let lists = (1..=CATEGORIES).zip(&self.sums.categories);
        lists.map(|(category, newest)| CategoryItems { category, newest: newest.clone() }).collect()
    }

    fn region_items(&self, _: u64) -> Vec<RegionItems> {
        let keys = (1..=REGIONS).flat_map(|region| (1..=CATEGORIES).map(move |it| (region, it)));
        let lists = keys.zip(&self.sums.regions);
        let rows = lists.map(|((region, category), newest)| RegionItems {
            region,
            category,
            newest: newest.clone(),
        });
        rows.collect()
    }
}

/// Returns all rows of `categories`.
pub(super) fn categories() -> impl Iterator<Item = Category> {
    (1..=CATEGORIES).map(|id| Category { id, name: text(format_args!("Category {id}")) })
}

/// Returns all rows of `regions`.
pub(super) fn regions() -> impl Iterator<Item = Region> {
    (1..=REGIONS).map(|id| Region { id, name: text(format_args!("Region {id}")) })
}

/// Adds the tables.
///
/// # Panics
/// A number in `parameters` is out of its range.
pub(super) fn declare<P: Protocol>(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
    let &Parameters { users, items, lot, .. } = parameters;
    assert!((1..=USERS_MAX).contains(&users), "{users} users");
    assert!((1..=ITEMS_MAX).contains(&items), "{items} items");
    assert!((1..=u32::MAX / 10).contains(&lot), "{lot} pieces to a lot");
    let lists = usize::from(CATEGORIES);
    builder
        .table_with_capacity::<User>(users as usize)
        .table_with_capacity::<Rating>(users as usize)
        .table_with_capacity::<Item>(items as usize)
        .table_with_capacity::<Auction>(items as usize)
        .table::<Bid>()
        .table::<Purchase>()
        .table::<Comment>()
        .table::<Category>()
        .table::<Region>()
        .table_with_capacity::<CategoryItems>(lists)
        .table_with_capacity::<RegionItems>(lists * usize::from(REGIONS))
}

/// Fills the tables.
pub(super) fn fill<P: Protocol>(
    database: Database<P>,
    parameters: &Parameters,
    options: &LoadOptions<'_>,
) -> Result<Rubis<P>, Failure> {
    let tables = Tables {
        users: database.table()?,
        ratings: database.table()?,
        items: database.table()?,
        auctions: database.table()?,
        bids: database.table()?,
        purchases: database.table()?,
        comments: database.table()?,
        categories: database.table()?,
        regions: database.table()?,
        category_items: database.table()?,
        region_items: database.table()?,
    };
    let sums = Sums::of(options.seed, parameters);
    let source = &Source { seed: options.seed, parameters, sums };
    let (users, items) = (u64::from(parameters.users), u64::from(parameters.items));
    // Per item: the item, its auction, its bids, and usually a comment.
    let mut loading = LoadInProgress::new(options, 2 * users + items * (10 * 10 + 2 * 10 + 9) / 10);
    loading.fill(&database, &tables.categories, (&(), 1), |(), _| categories())?;
    loading.fill(&database, &tables.regions, (&(), 1), |(), _| regions())?;
    loading.fill(&database, &tables.category_items, (source, 1), Source::category_items)?;
    loading.fill(&database, &tables.region_items, (source, 1), Source::region_items)?;
    loading.fill(&database, &tables.users, (source, users), |source, n| {
        [draw_user(source.seed, n + 1)]
    })?;
    loading.fill(&database, &tables.ratings, (source, users), |source, n| {
        [Rating { user: n + 1, rating: source.sums.ratings[n as usize + 1] }]
    })?;
    let of_items = (source, items);
    loading.fill(&database, &tables.items, of_items, |source, n| [source.offer(n).item])?;
    loading.fill(&database, &tables.auctions, of_items, |source, n| [source.offer(n).auction()])?;
    loading.fill(&database, &tables.comments, of_items, |source, n| source.offer(n).comment)?;
    loading.fill(&database, &tables.bids, of_items, |source, n| source.offer(n).bids)?;
    loading.finish();
    Ok(Rubis {
        database,
        tables,
        parameters: *parameters,
        seed: options.seed,
        ledgers: Ledgers::default(),
    })
}
