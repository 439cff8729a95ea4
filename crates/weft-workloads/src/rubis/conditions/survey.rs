//! A pass over all tables that adds up what the rules compare.
//!
//! The order of the tables ensures that one side of a rule is known when the other is read:
//!
//! 1. users and items: which of them exist, and which items are the newest of each list;
//! 2. bids, purchases and comments: their sums, by item and by user;
//! 3. auctions, ratings and lists, compared with the results of 1 and 2; indexes, compared with 1.
//!
//! The sums are in plain arrays, with a [place](Places) for each user and each item.

use std::collections::BTreeMap;

use weft::Failure;

use super::{AtRest, Findings, Rule};
use crate::rubis::Change;
use crate::rubis::interactions::TransactionType;
use crate::rubis::load::{Offer, categories, draw_user, nickname_of, regions};
use crate::rubis::schema::{
    Auction, CATEGORIES, Cents, Date, FIRST_NEW_ID, Item, LISTED, NewestItems, REGIONS, User,
    earliness, new_id,
};
use crate::walk;
use crate::workload::Progress;

/// Reads the database and checks every rule.
pub(super) fn take(rubis: &AtRest<'_>, progress: Progress<'_>) -> Result<Findings, Failure> {
    let mut survey = Survey::new(rubis, progress);
    survey.read_users()?;
    survey.read_items()?;
    survey.read_bids()?;
    survey.read_purchases()?;
    survey.read_comments()?;
    survey.compare_auctions()?;
    survey.compare_ratings()?;
    survey.compare_lists()?;
    survey.compare_fixed_tables()?;
    survey.compare_nicknames()?;
    survey.compare_sellers()?;
    survey.compare_counts();
    Ok(survey.findings)
}

/// The position of each identifier in an array. Loaded identifiers come first, then those that clients have chosen,
/// client by client.
struct Places {
    loaded: u64,
    /// For each client: the place of its first identifier, and how many it has chosen.
    clients: Vec<(u64, u64)>,
    total: usize,
}

impl Places {
    fn new(loaded: u32, chosen: impl Iterator<Item = u64>) -> Places {
        let loaded = u64::from(loaded);
        let mut end = loaded;
        let clients = chosen.map(|count| {
            end += count;
            (end - count, count)
        });
        let clients = clients.collect();
        Places { loaded, clients, total: end as usize }
    }

    /// Returns the place of an identifier; `None` if it was neither loaded nor chosen.
    fn place(&self, id: u64) -> Option<usize> {
        if (1..=self.loaded).contains(&id) {
            return Some(id as usize - 1);
        }
        let client = usize::try_from((id / FIRST_NEW_ID).checked_sub(1)?).ok()?;
        let &(first, count) = self.clients.get(client)?;
        let number = id % FIRST_NEW_ID;
        (number < count).then(|| (first + number) as usize)
    }

    fn is_loaded(&self, id: u64) -> bool {
        (1..=self.loaded).contains(&id)
    }

    /// Returns all identifiers that may be in use, and for each sequence the next one, which may not.
    fn ids(&self) -> impl Iterator<Item = u64> {
        let of_clients = (0..).zip(&self.clients);
        let of_clients = of_clients
            .flat_map(|(client, &(_, count))| (0..=count).map(move |n| new_id(client, n)));
        (0..=self.loaded + 1).chain(of_clients)
    }
}

/// The greatest of the values put in. It is implemented separately, so that an error in the engine's sets shows.
#[derive(Clone, Default)]
struct Greatest<T>(Vec<T>);

impl<T: Ord> Greatest<T> {
    fn put(&mut self, value: T) {
        let position = self.0.iter().position(|other| *other < value).unwrap_or(self.0.len());
        if position < LISTED {
            self.0.insert(position, value);
            self.0.truncate(LISTED);
        }
    }
}

/// What the pass has found about an item.
#[derive(Clone, Default)]
struct ItemSums {
    exists: bool,
    seller: u64,
    quantity: u32,
    offered: u32,
    ends: Date,
    bids: i64,
    max_bid: Cents,
    /// The dates and bidders of the highest bids.
    highest: Vec<(Date, u64)>,
    top: Greatest<(Cents, u64, u64)>,
    sold: u64,
    /// Whether a purchase was made at the item's end.
    sold_at_end: bool,
}

/// What the pass has found about a user.
#[derive(Clone, Default)]
struct UserSums {
    /// The user's region; 0 if there is no such user.
    region: u8,
    rating: i64,
}

/// The number of rows of a kind that were found, and the number that were loaded.
#[derive(Clone, Copy, Default)]
struct Count {
    found: u64,
    loaded: u64,
}

struct Survey<'a> {
    rubis: &'a AtRest<'a>,
    findings: Findings,
    user_places: Places,
    item_places: Places,
    users: Vec<UserSums>,
    items: Vec<ItemSums>,
    /// The newest items, by category.
    categories: Vec<Greatest<(Date, u64)>>,
    /// The newest items, by region and then category.
    regions: Vec<Greatest<(Date, u64)>>,
    /// The items of each seller.
    sellers: BTreeMap<u64, Vec<u64>>,
    /// The counts of rows, by [`Change::kind`].
    counts: [Count; Change::KINDS],
    stored: [u64; Change::KINDS],
    progress: Progress<'a>,
    rows_done: u64,
    rows: u64,
}

impl<'a> Survey<'a> {
    fn new(rubis: &'a AtRest<'a>, progress: Progress<'a>) -> Self {
        let accounts = rubis.ledgers.accounts();
        let parameters = rubis.parameters;
        let chosen = accounts.iter().map(|account| account.users);
        let user_places = Places::new(parameters.users, chosen);
        let chosen = accounts.iter().map(|account| account.items);
        let item_places = Places::new(parameters.items, chosen);
        let stored: [u64; Change::KINDS] =
            std::array::from_fn(|kind| accounts.iter().map(|account| account.stored[kind]).sum());
        // Users are read three times, items four times, and a loaded item has ten bids.
        let (users, items) = (user_places.total as u64, item_places.total as u64);
        let rows = 3 * users + 14 * items + stored.iter().sum::<u64>();
        let lists = usize::from(CATEGORIES);
        Survey {
            rubis,
            findings: Findings::default(),
            users: vec![UserSums::default(); user_places.total],
            items: vec![ItemSums::default(); item_places.total],
            user_places,
            item_places,
            categories: vec![Greatest::default(); lists],
            regions: vec![Greatest::default(); lists * usize::from(REGIONS)],
            sellers: BTreeMap::new(),
            counts: [Count::default(); Change::KINDS],
            stored,
            progress,
            rows_done: 0,
            rows,
        }
    }

    /// Counts a row as read, and reports the progress.
    #[inline]
    fn done(&mut self) {
        self.rows_done += 1;
        if self.rows_done.is_multiple_of(8192) {
            (self.progress)(self.rows_done.min(self.rows), self.rows);
        }
    }

    /// Counts a row of the kind that a transaction stores.
    fn count(&mut self, transaction: TransactionType, loaded: bool) {
        let count = &mut self.counts[kind_of(transaction)];
        count.found += 1;
        count.loaded += u64::from(loaded);
        self.done();
    }

    fn has_user(&self, id: u64) -> bool {
        self.user_places.place(id).is_some_and(|place| self.users[place].region > 0)
    }

    /// Returns the sums of the item with this identifier, if the item exists.
    fn item(&mut self, id: u64) -> Option<&mut ItemSums> {
        let place = self.item_places.place(id)?;
        Some(&mut self.items[place]).filter(|item| item.exists)
    }

    fn read_users(&mut self) -> Result<(), Failure> {
        let (rubis, seed) = (self.rubis, self.rubis.seed);
        let ids: Vec<u64> = self.user_places.ids().collect();
        walk::keys(
            rubis.snapshot,
            &rubis.tables.users,
            ids.into_iter(),
            |id, user: Option<&User>| {
                let is_loaded = self.user_places.is_loaded(id);
                if is_loaded {
                    let loaded = Some(draw_user(seed, id));
                    let place = format_args!("user {id}");
                    self.findings.check_equal(Rule::Loaded, place, user, loaded.as_ref());
                }
                let Some(user) = user else { return self.done() };
                self.count(TransactionType::RegisterUser, is_loaded);
                let place = self.user_places.place(id);
                let holds = place.is_some() && (1..=REGIONS).contains(&user.region);
                self.findings.check(
                    Rule::References,
                    holds,
                    format_args!(
                        "no client has stored this user, or there is no such region: {user:?}"
                    ),
                );
                if let Some(place) = place {
                    self.users[place].region = user.region;
                }
            },
        )
    }

    fn read_items(&mut self) -> Result<(), Failure> {
        let rubis = self.rubis;
        let ids: Vec<u64> = self.item_places.ids().collect();
        walk::keys(rubis.snapshot, &rubis.tables.items, ids.into_iter(), |id, item| {
            let is_loaded = self.item_places.is_loaded(id);
            if is_loaded {
                self.compare_loaded_item(id, item);
            }
            let Some(item) = item else { return self.done() };
            self.count(TransactionType::StoreItem, is_loaded);
            self.put_item(item);
        })
    }

    /// Compares an item, except for its quantity, with the loaded one. Counts the rows that were loaded with it.
    fn compare_loaded_item(&mut self, id: u64, item: Option<&Item>) {
        let offer = Offer::draw(self.rubis.seed, id, self.rubis.parameters);
        self.counts[kind_of(TransactionType::StoreBid)].loaded += offer.bids.len() as u64;
        let comments = u64::from(offer.comment.is_some());
        self.counts[kind_of(TransactionType::StoreComment)].loaded += comments;
        let expected = item.map_or(offer.item.clone(), |item| Item {
            quantity: item.quantity,
            ends: if item.quantity == 0 { item.ends } else { offer.item.ends },
            ..offer.item
        });
        let place = format_args!("item {id}");
        self.findings.check_equal(Rule::Loaded, place, item, Some(&expected));
    }

    fn put_item(&mut self, item: &Item) {
        let place = self.item_places.place(item.id);
        let seller = self.user_places.place(item.seller);
        let region = seller.map_or(0, |place| self.users[place].region);
        self.findings.check(
            Rule::References,
            place.is_some() && region > 0 && (1..=CATEGORIES).contains(&item.category),
            format_args!(
                "no client has stored this item, its seller does not exist, or its category does not: {item:?}"
            ),
        );
        let category = usize::from(item.category).wrapping_sub(1);
        if let Some(list) = self.categories.get_mut(category) {
            list.put((item.started, item.id));
            if region > 0 {
                let list = usize::from(region - 1) * usize::from(CATEGORIES) + category;
                self.regions[list].put((item.started, item.id));
            }
        }
        self.sellers.entry(item.seller).or_default().push(item.id);
        if let Some(place) = place {
            self.items[place] = ItemSums {
                exists: true,
                seller: item.seller,
                quantity: item.quantity,
                offered: item.offered,
                ends: item.ends,
                ..ItemSums::default()
            };
        }
    }

    fn read_bids(&mut self) -> Result<(), Failure> {
        let rubis = self.rubis;
        for bid in rubis.snapshot.rows(&rubis.tables.bids) {
            let bid = bid?;
            self.count(TransactionType::StoreBid, false);
            let has_bidder = self.has_user(bid.bidder);
            let item = self.item(bid.item);
            let holds = has_bidder && item.is_some();
            if let Some(item) = item {
                item.bids += 1;
                if bid.price > item.max_bid {
                    item.max_bid = bid.price;
                    item.highest.clear();
                }
                if bid.price == item.max_bid {
                    item.highest.push((bid.date, bid.bidder));
                }
                item.top.put((bid.price, bid.id, bid.bidder));
            }
            let place = format_args!("a bid by no user, or on no item: {bid:?}");
            self.findings.check(Rule::References, holds, place);
        }
        Ok(())
    }

    fn read_purchases(&mut self) -> Result<(), Failure> {
        let rubis = self.rubis;
        for purchase in rubis.snapshot.rows(&rubis.tables.purchases) {
            let purchase = purchase?;
            self.count(TransactionType::StoreBuyNow, false);
            let has_buyer = self.has_user(purchase.buyer);
            let item = self.item(purchase.item);
            let holds = has_buyer && item.is_some();
            if let Some(item) = item {
                item.sold += u64::from(purchase.quantity);
                item.sold_at_end |= purchase.date == item.ends;
            }
            let place = format_args!("a purchase by no user, or of no item: {purchase:?}");
            self.findings.check(Rule::References, holds, place);
        }
        Ok(())
    }

    fn read_comments(&mut self) -> Result<(), Failure> {
        let rubis = self.rubis;
        for comment in rubis.snapshot.rows(&rubis.tables.comments) {
            let comment = comment?;
            self.count(TransactionType::StoreComment, false);
            let has_author = self.has_user(comment.from_user);
            let seller = self.item(comment.item).map(|item| item.seller);
            let holds = has_author && seller == Some(comment.to_user);
            let place =
                format_args!("a comment by no user, or not on an item's seller: {comment:?}");
            self.findings.check(Rule::References, holds, place);
            if let Some(place) = self.user_places.place(comment.to_user) {
                self.users[place].rating += comment.rating;
            }
        }
        Ok(())
    }

    fn compare_auctions(&mut self) -> Result<(), Failure> {
        let rubis = self.rubis;
        let ids: Vec<u64> = self.item_places.ids().collect();
        walk::keys(rubis.snapshot, &rubis.tables.auctions, ids.into_iter(), |id, auction| {
            self.done();
            let sums = self.item(id).map(std::mem::take);
            let is_paired = sums.is_some() == auction.is_some();
            let place = format_args!("item {id} without auction, or the other way round");
            self.findings.check(Rule::References, is_paired, place);
            if let (Some(sums), Some(auction)) = (sums, auction) {
                self.compare_auction(&sums, auction);
            }
        })
    }

    fn compare_auction(&mut self, sums: &ItemSums, auction: &Auction) {
        let by_operations = self.rubis.parameters.operations;
        let findings = &mut self.findings;
        let place = format_args!("item {}", auction.item);
        findings.check_equal(Rule::BidsCounted, place, auction.number_of_bids, sums.bids);
        findings.check_equal(Rule::MaxBid, place, auction.max_bid, sums.max_bid);
        let holds = match auction.max_bidder.tuple() {
            None => sums.bids == 0,
            Some(winner) => {
                let (price, earliness_kept) = winner.order;
                let first = sums.highest.iter().map(|&(date, _)| date).min();
                price == sums.max_bid
                    && sums.highest.iter().any(|&(date, bidder)| {
                        bidder == winner.value
                            && earliness(date) == earliness_kept
                            && (Some(date) == first || !by_operations)
                    })
            }
        };
        let kept = auction.max_bidder.tuple();
        let highest = (sums.max_bid, &sums.highest);
        let violation = format_args!("{place}: {kept:?}, highest bids: {highest:?}");
        findings.check(Rule::MaxBidder, holds, violation);
        let top = auction.top_bids.tuples();
        let top: Vec<_> = top.map(|bid| (bid.order.0, bid.order.1, bid.value)).collect();
        findings.check_equal(Rule::TopBids, place, &top, &sums.top.0);
        let holds = u64::from(sums.quantity) + sums.sold == u64::from(sums.offered)
            && (sums.quantity > 0 || sums.sold_at_end);
        let &ItemSums { quantity, offered, sold, .. } = sums;
        let violation = format_args!("{place}: {quantity} of {offered} left, {sold} sold");
        findings.check(Rule::Quantities, holds, violation);
    }

    fn compare_ratings(&mut self) -> Result<(), Failure> {
        let rubis = self.rubis;
        let ids: Vec<u64> = self.user_places.ids().collect();
        walk::keys(rubis.snapshot, &rubis.tables.ratings, ids.into_iter(), |id, row| {
            let rating = row.map(|row| row.rating);
            self.done();
            let has_user = self.has_user(id);
            let place = format_args!("user {id} without rating, or the other way round");
            self.findings.check(Rule::References, has_user == rating.is_some(), place);
            if let (Some(rating), Some(place)) = (rating, self.user_places.place(id)) {
                let sum = self.users[place].rating;
                let user = format_args!("user {id}");
                self.findings.check_equal(Rule::Ratings, user, rating, sum);
            }
        })
    }

    fn compare_lists(&mut self) -> Result<(), Failure> {
        let rubis = self.rubis;
        let listed = |newest: &NewestItems| -> Option<Vec<(Date, u64)>> {
            let tuples = newest.tuples();
            let is_named = newest.tuples().all(|tuple| tuple.value == tuple.order.1);
            is_named.then(|| tuples.map(|tuple| tuple.order).collect())
        };
        walk::keys(
            rubis.snapshot,
            &rubis.tables.category_items,
            1..=CATEGORIES,
            |category, row| {
                let newest = row.map(|row| listed(&row.newest));
                let expected = &self.categories[usize::from(category) - 1].0;
                let place = format_args!("category {category}");
                let newest = newest.flatten();
                self.findings.check_equal(
                    Rule::CategoryItems,
                    place,
                    newest.as_ref(),
                    Some(expected),
                );
            },
        )?;
        let keys = (1..=REGIONS).flat_map(|region| (1..=CATEGORIES).map(move |c| (region, c)));
        walk::keys(rubis.snapshot, &rubis.tables.region_items, keys, |(region, category), row| {
            let newest = row.map(|row| listed(&row.newest));
            let list = usize::from(region - 1) * usize::from(CATEGORIES);
            let expected = &self.regions[list + usize::from(category) - 1].0;
            let place = format_args!("region {region}, category {category}");
            let newest = newest.flatten();
            self.findings.check_equal(Rule::RegionItems, place, newest.as_ref(), Some(expected));
        })
    }

    fn compare_fixed_tables(&mut self) -> Result<(), Failure> {
        let AtRest { snapshot, tables, .. } = self.rubis;
        let found: Vec<_> = snapshot.rows(&tables.categories).collect::<Result<_, _>>()?;
        let expected: Vec<_> = categories().collect();
        let expected = expected.iter().collect();
        self.findings.check_equal(Rule::Loaded, format_args!("categories"), found, expected);
        let found: Vec<_> = snapshot.rows(&tables.regions).collect::<Result<_, _>>()?;
        let expected: Vec<_> = regions().collect();
        let expected = expected.iter().collect();
        self.findings.check_equal(Rule::Loaded, format_args!("regions"), found, expected);
        Ok(())
    }

    /// Checks the unique index of users.
    fn compare_nicknames(&mut self) -> Result<(), Failure> {
        let rubis = self.rubis;
        let ids: Vec<u64> = self.user_places.ids().collect();
        for id in ids {
            self.done();
            let nickname = nickname_of(id);
            let user = rubis.snapshot.get_by(&rubis.tables.users, User::NICKNAME, &nickname)?;
            let (found, expected) = (user.map(|user| user.id), self.has_user(id).then_some(id));
            let place = format_args!("nickname {nickname}");
            self.findings.check_equal(Rule::Indexes, place, found, expected);
        }
        Ok(())
    }

    /// Checks the index of items by seller.
    fn compare_sellers(&mut self) -> Result<(), Failure> {
        let rubis = self.rubis;
        for (seller, items) in std::mem::take(&mut self.sellers) {
            self.done();
            let found = rubis.snapshot.prefix_by(&rubis.tables.items, Item::SELLER, &seller);
            let found: Vec<u64> = found.map(|item| Ok(item?.id)).collect::<Result<_, Failure>>()?;
            let place = format_args!("items of user {seller}");
            self.findings.check_equal(Rule::Indexes, place, found, items);
        }
        Ok(())
    }

    fn compare_counts(&mut self) {
        let &Places { loaded: users, .. } = &self.user_places;
        let &Places { loaded: items, .. } = &self.item_places;
        self.counts[kind_of(TransactionType::RegisterUser)].loaded = users;
        self.counts[kind_of(TransactionType::StoreItem)].loaded = items;
        for (kind, table) in ["users", "items", "buy_now", "bids", "comments"].iter().enumerate() {
            let Count { found, loaded } = self.counts[kind];
            let stored = self.stored[kind];
            let violation =
                format_args!("{table}: {found} rows; {loaded} loaded and {stored} stored");
            self.findings.check(Rule::Counted, found == loaded + stored, violation);
        }
    }
}

/// Returns the [`Change::kind`] of what a transaction stores.
fn kind_of(transaction: TransactionType) -> usize {
    transaction as usize - TransactionType::RegisterUser as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_identifier_has_a_place_of_its_own() {
        let places = Places::new(3, [2, 0, 1].into_iter());
        let ids = [1, 2, 3, new_id(0, 0), new_id(0, 1), new_id(2, 0)];
        for (place, id) in ids.into_iter().enumerate() {
            assert_eq!(places.place(id), Some(place), "{id}");
        }
        assert_eq!(places.total, ids.len());
        let others = [0, 4, new_id(0, 2), new_id(1, 0), new_id(2, 1), new_id(3, 0), u64::MAX];
        for id in others {
            assert_eq!(places.place(id), None, "{id}");
        }
        let all: Vec<u64> = places.ids().collect();
        assert!(ids.iter().chain(&others[..5]).all(|id| all.contains(id)), "{all:?}");
        assert_eq!(all.len(), ids.len() + 5);
    }

    #[test]
    fn the_greatest_are_kept_in_order() {
        let mut greatest = Greatest(Vec::new());
        (0..1_000_u32).for_each(|number| greatest.put(number * 377 % 1_000));
        assert_eq!(greatest.0, [999, 998, 997, 996, 995, 994, 993, 992, 991, 990]);
    }
}
