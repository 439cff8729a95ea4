//! The load, and how often clients draw each transaction and item.

use weft::protocol::Dbx;

use super::{TINY, assert_consistent, load};
use crate::rubis::load::{Offer, draw_user, nickname_of, seller_of};
use crate::rubis::schema::{CATEGORIES, REGIONS};
use crate::rubis::{
    Change, Interaction, Mix, Parameters, Query, Request, Rubis, TransactionType,
    interactions::Work,
};
use crate::stashing::Draws;
use crate::workload::Workload;

#[test]
fn the_load_is_the_same_on_any_number_of_threads() {
    const SEED: u64 = 41;
    let parameters = Parameters { users: 25_000, items: 21_000, ..Parameters::default() };
    for threads in [1, 3] {
        let rubis: Rubis<Dbx> = load(&parameters, SEED, threads);
        assert_consistent(&rubis, &format!("{threads} threads, seed {SEED}"));
    }
}

#[test]
fn the_population_has_the_proportions_of_rubis() {
    const SEED: u64 = 42;
    const ITEMS: u32 = 20_000;
    let parameters = Parameters { users: 1_000, items: ITEMS, lot: 1, ..Parameters::default() };
    let (mut unique, mut reserved, mut to_buy, mut bids, mut comments) = (0, 0, 0, [0; 21], 0);
    let (mut categories, mut sellers) = ([0; CATEGORIES as usize], vec![0; 1_001]);
    for id in 1..=u64::from(ITEMS) {
        let offer = Offer::draw(SEED, id, &parameters);
        assert_eq!(offer, Offer::draw(SEED, id, &parameters));
        assert_ne!(offer, Offer::draw(SEED + 1, id, &parameters));
        assert_eq!(seller_of(SEED, id, 1_000), offer.item.seller, "seed {SEED}, item {id}");
        assert_eq!(offer.item.quantity, offer.item.offered);
        assert!((1..=10).contains(&offer.item.quantity));
        unique += u32::from(offer.item.quantity == 1);
        reserved += u32::from(offer.item.reserve_price > 0);
        to_buy += u32::from(offer.item.buy_now > 0);
        bids[offer.bids.len()] += 1;
        comments += u32::from(offer.comment.is_some());
        categories[usize::from(offer.item.category) - 1] += 1;
        sellers[offer.item.seller as usize] += 1;
    }
    // One in ten of those that are not drawn to be unique also has a single piece.
    for (count, percent) in [(unique, 82), (reserved, 40), (to_buy, 10), (comments, 95)] {
        let expected = ITEMS / 100 * percent;
        assert!(count.abs_diff(expected) < ITEMS / 100, "seed {SEED}: {count}, not {expected}");
    }
    let near = |counts: &[u32], percent: u32| {
        let expected = counts.iter().sum::<u32>() / counts.len() as u32;
        counts.iter().all(|&count| count.abs_diff(expected) < expected * percent / 100)
    };
    assert!(near(&bids, 15), "seed {SEED}: {bids:?}");
    assert!(near(&categories, 15), "seed {SEED}: {categories:?}");
    assert!(sellers[0] == 0 && sellers[1..].iter().all(|&count| count > 2), "seed {SEED}");
    let mut regions = [0; REGIONS as usize];
    (1..=50_000).for_each(|id| regions[usize::from(draw_user(SEED, id).region) - 1] += 1);
    assert!(near(&regions, 20), "seed {SEED}: {regions:?}");
}

/// Returns how often each type is drawn in this number of requests.
fn drawn(parameters: &Parameters, seed: u64, requests: u32) -> [f64; 17] {
    let rubis: Rubis<Dbx> = load(&Parameters { users: 10, items: 10, ..*parameters }, seed, 1);
    let mut client = rubis.client(seed, 0, 1);
    let mut counts = [0_u32; 17];
    for _ in 0..requests {
        counts[client.draw().transaction_type() as usize] += 1;
    }
    counts.map(|count| f64::from(count) / f64::from(requests))
}

/// Returns how often each type should be drawn in the bidding mix.
fn shares() -> [f64; 17] {
    let mut weights = [0.0; 17];
    for (_, weight, work) in Interaction::ALL {
        match work {
            Work::Nothing => {}
            Work::One(transaction) => weights[transaction as usize] += f64::from(weight),
            Work::Authenticated(transaction) => {
                weights[TransactionType::Authenticate as usize] += f64::from(weight);
                weights[transaction as usize] += f64::from(weight);
            }
        }
    }
    let total: f64 = weights.iter().sum();
    weights.map(|weight| weight / total)
}

/// Returns the share of transactions that write.
fn writes(shares: &[f64; 17]) -> f64 {
    let writing = TransactionType::ALL.into_iter().filter(|transaction| transaction.writes());
    writing.map(|transaction| shares[transaction as usize]).sum()
}

#[test]
fn transactions_are_drawn_as_often_as_their_interactions() {
    const SEED: u64 = 43;
    let expected = shares();
    let bid = TransactionType::StoreBid as usize;
    assert!((writes(&expected) - 0.092).abs() < 0.0005, "{}", writes(&expected));
    assert!((expected[bid] - 0.050).abs() < 0.0005, "{}", expected[bid]);
    let drawn_shares = drawn(&TINY, SEED, 400_000);
    for (drawn, expected) in drawn_shares.into_iter().zip(expected) {
        assert!((drawn - expected).abs() < 0.003, "seed {SEED}: {drawn}, not {expected}");
    }
    // In the contended mix, half of the transactions are bids. The others keep their proportions.
    let contended = Parameters { mix: Mix::Contended { alpha: 1.0 }, ..TINY };
    let drawn_shares = drawn(&contended, SEED, 400_000);
    for (position, (drawn, share)) in drawn_shares.into_iter().zip(expected).enumerate() {
        let expected = if position == bid { 0.5 } else { share / (1.0 - expected[bid]) / 2.0 };
        assert!((drawn - expected).abs() < 0.003, "seed {SEED}: {drawn}, not {expected}");
    }
}

/// In the paper's Table 1, with a million keys and 1.8, the first has 53.13 %, and the second 15.26 %.
#[test]
fn popular_items_get_their_share_of_the_contended_bids() {
    const SEED: u64 = 44;
    const REQUESTS: u32 = 200_000;
    let mix = Mix::Contended { alpha: Mix::ALPHA };
    let parameters = Parameters { users: 100, items: 33_000, mix, ..Parameters::default() };
    let rubis: Rubis<Dbx> = load(&parameters, SEED, 1);
    let mut client = rubis.client(SEED, 0, 1);
    let (mut all, mut first, mut second) = (0.0, 0.0, 0.0);
    for _ in 0..REQUESTS {
        if let Request::Change(Change::StoreBid(bid)) = client.draw() {
            all += 1.0;
            first += f64::from(u8::from(bid.item == 1));
            second += f64::from(u8::from(bid.item == 2));
        }
    }
    assert!((first / all - 0.5313_f64).abs() < 0.006, "seed {SEED}: {}", first / all);
    assert!((second / all - 0.1526_f64).abs() < 0.005, "seed {SEED}: {}", second / all);
}

/// After a login, the client gets the page for which it had to log in. No two new rows have the same key.
#[test]
fn requests_follow_each_other_and_have_keys_of_their_own() {
    const SEED: u64 = 45;
    let rubis: Rubis<Dbx> = load(&TINY, SEED, 1);
    let mut clients = [rubis.client(SEED, 0, 2), rubis.client(SEED, 1, 2)];
    let mut keys = Vec::new();
    let mut logged_in = 0;
    for client in &mut clients {
        let mut before: Option<Request> = None;
        for _ in 0..20_000 {
            let request = client.draw();
            let login = match &before {
                Some(Request::Query(Query::Authenticate { nickname, .. })) => Some(*nickname),
                _ => None,
            };
            let is_page = match &request {
                Request::Query(Query::AboutMe { user }) => {
                    assert_eq!(
                        login,
                        Some(nickname_of(*user)),
                        "seed {SEED}: it is about the user"
                    );
                    true
                }
                Request::Query(
                    Query::BuyNow { .. } | Query::PutBid { .. } | Query::PutComment { .. },
                ) => true,
                // To sell an item, the user must choose its category.
                Request::Query(Query::BrowseCategories { region: None }) => login.is_some(),
                _ => false,
            };
            assert_eq!(is_page, login.is_some(), "seed {SEED}: {before:?}, {request:?}");
            logged_in += u32::from(is_page);
            let key = match &request {
                Request::Query(_) => None,
                Request::Change(Change::RegisterUser(row)) => Some((0, row.id)),
                Request::Change(Change::StoreItem(row)) => Some((1, row.id)),
                Request::Change(Change::StoreBuyNow(row)) => Some((2, row.id)),
                Request::Change(Change::StoreBid(row)) => Some((3, row.id)),
                Request::Change(Change::StoreComment(row)) => Some((4, row.id)),
            };
            keys.extend(key);
            before = Some(request);
        }
    }
    assert!(logged_in > 4_000, "seed {SEED}: {logged_in}");
    let count = keys.len();
    assert!(count > 3_000, "seed {SEED}: {count} new rows");
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), count, "seed {SEED}");
}
