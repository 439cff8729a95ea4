//! Each rule can fail: the test damages one row, and exactly the rules about this row must report it.

use weft::operation::{Operation, OrderedTuple, TopK, TopKInsert};
use weft::protocol::Dbx;
use weft::{Error, Transaction};

use super::Rule;
use crate::rubis::load::{LOADED_UNTIL, draw_user, user_of};
use crate::rubis::schema::{Auction, Bid, Comment, Item, Purchase};
use crate::rubis::tests::{TINY, load};
use crate::rubis::{Rubis, Tables};
use crate::workload::Workload;

const SEED: u64 = 3;

/// Returns a small database on which all kinds of transactions have been run.
fn database() -> Rubis<Dbx> {
    let rubis: Rubis<Dbx> = load(&TINY, SEED, 1);
    let mut client = rubis.client(SEED, 0, 1);
    for _ in 0..2_000 {
        rubis.execute(&mut client).expect("a transaction runs to its end");
    }
    rubis
}

/// Returns the rules that do not hold.
fn broken_rules(rubis: &Rubis<Dbx>) -> Vec<Rule> {
    let conditions = rubis.verify(&|_, _| {}).expect("verification reads every row");
    for (condition, rule) in conditions.iter().zip(Rule::ALL) {
        assert_eq!(condition.name, rule.name());
        assert!(condition.checked > 0, "{condition}");
        assert_eq!(condition.holds, condition.detail.is_none(), "{condition}");
    }
    Rule::ALL.into_iter().zip(conditions).filter(|(_, c)| !c.holds).map(|(rule, _)| rule).collect()
}

type Change = fn(&Tables, &Transaction<'_, Dbx>) -> Result<(), Error>;

/// Runs the transactions, then changes rows without the clients, and compares the rules that break.
#[track_caller]
fn assert_breaks(expected: &[Rule], change: Change) {
    let rubis = database();
    assert_eq!(broken_rules(&rubis), [], "before the change");
    rubis.database.transact(|tx| change(&rubis.tables, tx)).expect("the change commits");
    assert_eq!(broken_rules(&rubis), expected);
}

/// Returns an item with more bids than are listed.
fn popular(tables: &Tables, tx: &Transaction<'_, Dbx>) -> Result<Auction, Error> {
    for item in 1..=u64::from(TINY.items) {
        let auction = tx.get(&tables.auctions, &item)?.expect("an auction");
        if auction.number_of_bids > 12 {
            return Ok(auction.clone());
        }
    }
    panic!("seed {SEED}: no item is popular");
}

fn first<T: Clone>(mut rows: impl Iterator<Item = Result<T, Error>>) -> Result<T, Error> {
    rows.next().expect("there are rows")
}

fn a_purchase(tables: &Tables, tx: &Transaction<'_, Dbx>) -> Result<Purchase, Error> {
    first(tx.range(&tables.purchases, ..).map(|row| row.cloned()))
}

fn a_comment(tables: &Tables, tx: &Transaction<'_, Dbx>) -> Result<Comment, Error> {
    first(
        tx.range(&tables.comments, ..)
            .map(|row| row.cloned())
            .filter(|row| row.as_ref().is_ok_and(|row| row.rating != 0)),
    )
}

#[test]
fn number_of_bids() {
    assert_breaks(&[Rule::BidsCounted], |tables, tx| {
        tx.update(&tables.auctions, &7, |row| row.number_of_bids += 1).map(drop)
    });
}

#[test]
fn greatest_bid() {
    assert_breaks(&[Rule::MaxBid], |tables, tx| {
        tx.update(&tables.auctions, &7, |row| row.max_bid += 1).map(drop)
    });
}

#[test]
fn winner_who_has_not_bidden() {
    assert_breaks(&[Rule::MaxBidder], |tables, tx| {
        let Auction { item, max_bidder, .. } = popular(tables, tx)?;
        let mut winner = max_bidder.tuple().expect("somebody wins").clone();
        winner.value = if winner.value == 1 { 2 } else { 1 };
        tx.update(&tables.auctions, &item, |row| row.max_bidder = winner.into()).map(drop)
    });
}

#[test]
fn winner_who_was_not_the_first() {
    assert_breaks(&[Rule::MaxBidder], |tables, tx| {
        let Auction { item, max_bidder, .. } = popular(tables, tx)?;
        let OrderedTuple { order, value, .. } = *max_bidder.tuple().expect("somebody wins");
        // The same bid again, one time unit later: it should not win, but this makes it win.
        let date = u64::MAX - order.1 + 1;
        let later = Bid { bidder: value, id: 1, item, quantity: 1, price: order.0, date };
        let winner = OrderedTuple::new((order.0, order.1 - 1), value);
        // Otherwise the row is as if the bid had been stored correctly, in place of the lowest of the highest bids.
        let last = first(tx.range(&tables.bids, ..).filter_map(|row| {
            let row = row.cloned();
            row.as_ref().is_ok_and(|row| row.item == item && row.price < order.0 / 4).then_some(row)
        }))?;
        assert!(tx.delete(&tables.bids, &(last.bidder, last.id))?);
        tx.insert(&tables.bids, later)?;
        tx.update(&tables.auctions, &item, |row| {
            row.max_bidder = winner.into();
            TopKInsert((order.0, 1), value).apply(&mut row.top_bids).expect("it fits");
        })
        .map(drop)
    });
}

#[test]
fn list_of_bids() {
    assert_breaks(&[Rule::TopBids], |tables, tx| {
        let Auction { item, top_bids, .. } = popular(tables, tx)?;
        let mut fewer = TopK::default();
        for tuple in top_bids.tuples().skip(1) {
            TopKInsert(tuple.order, tuple.value).apply(&mut fewer).expect("it fits");
        }
        tx.update(&tables.auctions, &item, |row| row.top_bids = fewer).map(drop)
    });
}

#[test]
fn bid_that_was_lost() {
    assert_breaks(&[Rule::BidsCounted, Rule::Counted], |tables, tx| {
        let Auction { item, top_bids, .. } = popular(tables, tx)?;
        let least = top_bids.tuples().last().expect("bids").order;
        let lost = first(tx.range(&tables.bids, ..).filter_map(|row| {
            let row = row.cloned();
            row.as_ref().is_ok_and(|row| row.item == item && row.price < least.0).then_some(row)
        }))?;
        tx.delete(&tables.bids, &(lost.bidder, lost.id)).map(drop)
    });
}

#[test]
fn highest_bid_that_was_lost() {
    let expected = [Rule::BidsCounted, Rule::MaxBid, Rule::MaxBidder, Rule::TopBids, Rule::Counted];
    assert_breaks(&expected, |tables, tx| {
        let highest = popular(tables, tx)?.top_bids.tuples().next().expect("bids").clone();
        tx.delete(&tables.bids, &(highest.value, highest.order.1)).map(drop)
    });
}

#[test]
fn rating() {
    assert_breaks(&[Rule::Ratings], |tables, tx| {
        tx.update(&tables.ratings, &9, |row| row.rating -= 1).map(drop)
    });
}

#[test]
fn comment_that_was_lost() {
    assert_breaks(&[Rule::Ratings, Rule::Counted], |tables, tx| {
        let comment = a_comment(tables, tx)?;
        tx.delete(&tables.comments, &(comment.to_user, comment.id)).map(drop)
    });
}

#[test]
fn comment_by_an_unknown_user() {
    assert_breaks(&[Rule::References], |tables, tx| {
        let comment = a_comment(tables, tx)?;
        let key = (comment.to_user, comment.id);
        tx.update(&tables.comments, &key, |row| row.from_user = 41).map(drop)
    });
}

#[test]
fn list_of_a_category() {
    assert_breaks(&[Rule::CategoryItems], |tables, tx| {
        let category = tx.get(&tables.items, &1)?.expect("an item").category;
        tx.update(&tables.category_items, &category, |row| row.newest = TopK::default()).map(drop)
    });
}

#[test]
fn list_of_a_region() {
    assert_breaks(&[Rule::RegionItems], |tables, tx| {
        let item = tx.get(&tables.items, &1)?.expect("an item");
        let region = tx.get(&tables.users, &item.seller)?.expect("a user").region;
        let key = (region, item.category);
        tx.update(&tables.region_items, &key, |row| row.newest = TopK::default()).map(drop)
    });
}

#[test]
fn quantity() {
    assert_breaks(&[Rule::Quantities], |tables, tx| {
        tx.update(&tables.items, &5, |row| row.quantity += 1).map(drop)
    });
}

#[test]
fn purchase_that_was_lost() {
    assert_breaks(&[Rule::Quantities, Rule::Counted], |tables, tx| {
        let purchase = a_purchase(tables, tx)?;
        tx.delete(&tables.purchases, &(purchase.buyer, purchase.id)).map(drop)
    });
}

#[test]
fn sold_out_at_another_time() {
    assert_breaks(&[Rule::Quantities], |tables, tx| {
        for item in 1..=u64::from(TINY.items) {
            if tx.get(&tables.items, &item)?.expect("an item").quantity == 0 {
                return tx.update(&tables.items, &item, |row| row.ends = 1).map(drop);
            }
        }
        panic!("seed {SEED}: nothing is sold out");
    });
}

#[test]
fn loaded_row_has_changed() {
    assert_breaks(&[Rule::Loaded], |tables, tx| {
        tx.update(&tables.items, &5, |row| row.description.push('!')).map(drop)
    });
    assert_breaks(&[Rule::Loaded], |tables, tx| {
        tx.update(&tables.users, &5, |row| row.balance += 1).map(drop)
    });
    assert_breaks(&[Rule::Loaded], |tables, tx| tx.delete(&tables.regions, &62).map(drop));
}

#[test]
fn auction_missing() {
    assert_breaks(&[Rule::References], |tables, tx| tx.delete(&tables.auctions, &5).map(drop));
}

#[test]
fn rating_missing() {
    assert_breaks(&[Rule::References], |tables, tx| tx.delete(&tables.ratings, &5).map(drop));
}

/// As after a transaction whose rollback missed one row.
#[test]
fn user_that_leaked() {
    assert_breaks(&[Rule::References, Rule::Counted, Rule::Indexes], |tables, tx| {
        tx.insert(&tables.users, user_of(u64::from(TINY.users) + 1, 1, LOADED_UNTIL))
    });
}

#[test]
fn item_that_leaked() {
    let expected = [Rule::CategoryItems, Rule::References, Rule::Counted];
    assert_breaks(&expected, |tables, tx| {
        let item = tx.get(&tables.items, &1)?.expect("an item").clone();
        let leaked = Item { id: 26, started: u64::MAX, seller: 41, ..item };
        tx.insert(&tables.items, leaked)
    });
}

#[test]
fn nickname_of_another_user() {
    assert_breaks(&[Rule::Loaded, Rule::Indexes], |tables, tx| {
        let nickname = draw_user(SEED, 999).nickname;
        tx.update(&tables.users, &5, |row| row.nickname = nickname).map(drop)
    });
}

/// A test cannot damage an index without its table. So this changes the row that the index leads to.
#[test]
fn purchase_by_an_unknown_user() {
    assert_breaks(&[Rule::Quantities, Rule::References, Rule::Counted], |tables, tx| {
        let row = Purchase { buyer: 41, id: 1, item: 1, quantity: 1, date: LOADED_UNTIL };
        tx.insert(&tables.purchases, row)
    });
}

#[test]
fn violation_shows_both_sides() {
    let rubis = database();
    let change = rubis
        .database
        .transact(|tx| tx.update(&rubis.tables.auctions, &2, |row| row.number_of_bids = 1_234));
    change.expect("the change commits");
    let conditions = rubis.verify(&|_, _| {}).expect("verification reads every row");
    let detail = conditions[Rule::BidsCounted as usize].detail.as_ref().expect("a violation");
    assert!(detail.starts_with("item 2: 1234, not "), "{detail}");
}
