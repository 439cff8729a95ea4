//! The transactions as procedures.

use std::cell::RefCell;

use weft::operation::TopK;
use weft::protocol::Dbx;

use super::{TINY, load};
use crate::procedures::rehearsal::{Change as Other, Met, Subject, Tally, subject};
use crate::rubis::schema::{
    Auction, Bid, CategoryItems, Comment, Item, Purchase, Rating, RegionItems, User,
};
use crate::rubis::{Change, Query, Request, Rubis, changes, queries};
use crate::stashing::Draws;
use crate::workload::Workload;

/// Returns some changes to rows that a transaction has accessed, and to rows of a user.
fn others(rubis: &Rubis<Dbx>, random: &mut fastrand::Rng, met: &[Met], user: u64) -> Vec<Other> {
    (0..random.usize(1..=3)).filter_map(|_| other(rubis, random, met, user)).collect()
}

fn other(rubis: &Rubis<Dbx>, random: &mut fastrand::Rng, met: &[Met], user: u64) -> Option<Other> {
    let tables = &rubis.tables;
    let number = random.u64(1..1_000);
    let (id, some_item, some_user) = (number << 40, number % 25 + 1, number % 40 + 1);
    // Rows that scans return are not in `met`.
    match random.u32(..8) {
        0 => {
            let row = Bid { bidder: user, id, item: some_item, quantity: 1, price: 7, date: 7 };
            return Some(Other::put(&tables.bids, (user, id), Some(row)));
        }
        1 => {
            let row = Purchase { buyer: user, id, item: some_item, quantity: 1, date: 7 };
            return Some(Other::put(&tables.purchases, (user, id), Some(row)));
        }
        2 => {
            let row = Comment {
                to_user: user,
                id,
                from_user: some_user,
                item: some_item,
                rating: 1,
                date: 7,
                comment: Default::default(),
            };
            return Some(Other::put(&tables.comments, (user, id), Some(row)));
        }
        3 => {
            return Some(Other::update(&tables.items, some_item, move |row: &mut Item| {
                row.seller = user;
            }));
        }
        _ => {}
    }
    if met.is_empty() {
        return None;
    }
    let met = &met[random.usize(..met.len())];
    if let Some(&key) = met.key::<Item>() {
        return Some(Other::update(&tables.items, key, move |row: &mut Item| {
            row.quantity = number as u32 % 4;
            row.seller = some_user;
        }));
    }
    if let Some(&key) = met.key::<Auction>() {
        let is_emptied = random.bool();
        return Some(Other::update(&tables.auctions, key, move |row: &mut Auction| {
            row.max_bid += 1;
            row.number_of_bids += 1;
            if is_emptied {
                row.top_bids = TopK::default();
            }
        }));
    }
    if let Some(&key) = met.key::<User>() {
        return Some(Other::update(&tables.users, key, move |row: &mut User| {
            row.region = number as u8 % 62 + 1;
            row.balance += 1;
        }));
    }
    if let Some(&key) = met.key::<Rating>() {
        return Some(Other::update(&tables.ratings, key, |row: &mut Rating| row.rating += 1));
    }
    if let Some(&key) = met.key::<CategoryItems>() {
        return Some(Other::update(&tables.category_items, key, |row: &mut CategoryItems| {
            row.newest = TopK::default();
        }));
    }
    if let Some(&key) = met.key::<RegionItems>() {
        return Some(Other::update(&tables.region_items, key, |row: &mut RegionItems| {
            row.newest = TopK::default();
        }));
    }
    if let Some(&key) = met.key::<Bid>() {
        return Some(Other::put::<Bid>(&tables.bids, key, None));
    }
    None
}

/// Tries a transaction, with commutative operations or without.
fn try_one(rubis: &Rubis<Dbx>, request: &Request, seed: u64, tally: &mut Tally) {
    let random = RefCell::new(fastrand::Rng::with_seed(seed));
    let tables = &rubis.tables;
    let user = match request {
        Request::Query(Query::AboutMe { user } | Query::ViewUserInfo { user }) => *user,
        _ => seed % 40 + 1,
    };
    let mut attempt = |subject: &Subject<'_>| {
        let choose = |met: &[Met]| others(rubis, &mut random.borrow_mut(), met, user);
        let mut own = fastrand::Rng::with_seed(!seed);
        let context = format!("seed {seed}");
        tally.trial(rubis.database(), subject, subject.shape, &mut own, &choose, &context);
    };
    match request {
        Request::Query(query) => match query {
            Query::Authenticate { nickname, password } => {
                attempt(&subject!(|| queries::Authenticate::new(tables, nickname, password)));
            }
            Query::BrowseCategories { region } => {
                attempt(&subject!(|| queries::BrowseCategories::new(tables, *region)));
            }
            Query::BrowseRegions => attempt(&subject!(|| queries::BrowseRegions::new(tables))),
            Query::SearchItemsByCategory { category } => {
                attempt(&subject!(|| queries::SearchItemsByCategory::new(tables, *category)));
            }
            Query::SearchItemsByRegion { region, category } => {
                attempt(&subject!(|| {
                    queries::SearchItemsByRegion::new(tables, *region, *category)
                }));
            }
            Query::ViewItem { item } | Query::PutBid { item } => {
                attempt(&subject!(|| queries::ViewItem::new(tables, *item)));
            }
            Query::ViewUserInfo { user } => {
                attempt(&subject!(|| queries::ViewUserInfo::new(tables, *user)));
            }
            Query::ViewBidHistory { item } => {
                attempt(&subject!(|| queries::ViewBidHistory::new(tables, *item)));
            }
            Query::BuyNow { item } => attempt(&subject!(|| queries::BuyNow::new(tables, *item))),
            Query::PutComment { item, to_user } => {
                attempt(&subject!(|| queries::PutComment::new(tables, *item, *to_user)));
            }
            Query::AboutMe { user } => attempt(&subject!(|| queries::AboutMe::new(tables, *user))),
        },
        Request::Change(change) => match change {
            Change::RegisterUser(user) => {
                attempt(&subject!(|| changes::RegisterUser::new(tables, user)));
            }
            Change::StoreItem(item) => {
                attempt(&subject!(|| changes::StoreItem::new(tables, item)));
                attempt(&subject!(|| changes::StoreItemByReading::new(tables, item)));
            }
            Change::StoreBuyNow(purchase) => {
                attempt(&subject!(|| changes::StoreBuyNow::new(tables, purchase)));
            }
            Change::StoreBid(bid) => {
                attempt(&subject!(|| changes::StoreBid::new(tables, bid)));
                attempt(&subject!(|| changes::StoreBidByReading::new(tables, bid)));
            }
            Change::StoreComment(comment) => {
                attempt(&subject!(|| changes::StoreComment::new(tables, comment)));
                attempt(&subject!(|| changes::StoreCommentByReading::new(tables, comment)));
            }
        },
    }
}

#[test]
fn a_repair_comes_to_the_same_as_a_run_from_the_start() {
    let rubis: Rubis<Dbx> = load(&TINY, 3, 1);
    let mut client = rubis.client(1, 0, 1);
    let mut tallies: Vec<(_, Tally)> = Vec::new();
    for seed in 0..3_000 {
        let request = client.draw();
        let of_type = request.transaction_type();
        let position = tallies.iter().position(|(known, _)| *known == of_type);
        let position = position.unwrap_or_else(|| {
            tallies.push((of_type, Tally::default()));
            tallies.len() - 1
        });
        let tally = &mut tallies[position].1;
        // Most transactions of the mix are queries of one kind.
        if tally.trials < 150 {
            try_one(&rubis, &request, seed, tally);
        }
    }
    for (of_type, tally) in &tallies {
        println!("{of_type:?}: {tally:?}");
        assert!(tally.trials > 0 && tally.kept + tally.ran_again > 0, "{of_type:?}: {tally:?}");
    }
    assert_eq!(tallies.len(), crate::rubis::TransactionType::ALL.len(), "every transaction");
}
