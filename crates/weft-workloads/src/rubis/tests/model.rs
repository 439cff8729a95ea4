//! The 17 transactions against a plain model: maps of the rows of RUBiS's own tables. The model finds the contents
//! of derived tables by reading every row.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::trials::with_protocol;
use arrayvec::ArrayVec;
use weft::Error;
use weft::protocol::{Dbx, Protocol};

use super::{TINY, assert_consistent, load, runnable_protocols};
use crate::rubis::load::{
    LOADED_UNTIL, Offer, categories, draw_user, nickname_of, password_of, regions, user_of,
};
use crate::rubis::queries::{self, Answer, Bidding, ListedItem, PAGE, Profile};
use crate::rubis::schema::{
    Bid, Category, Comment, Date, Item, LISTED, Purchase, Region, User, new_id,
};
use crate::rubis::{Change, Mix, Parameters, Query, Request, Rubis, TransactionType, changes};
use crate::stashing::RequestClient;
use crate::walk;
use crate::workload::Workload;

/// The seven tables.
#[derive(Debug, PartialEq)]
struct Model {
    users: BTreeMap<u64, User>,
    items: BTreeMap<u64, Item>,
    bids: BTreeMap<(u64, u64), Bid>,
    purchases: BTreeMap<(u64, u64), Purchase>,
    comments: BTreeMap<(u64, u64), Comment>,
    categories: Vec<Category>,
    regions: Vec<Region>,
}

impl Model {
    fn empty() -> Model {
        Model {
            users: BTreeMap::new(),
            items: BTreeMap::new(),
            bids: BTreeMap::new(),
            purchases: BTreeMap::new(),
            comments: BTreeMap::new(),
            categories: categories().collect(),
            regions: regions().collect(),
        }
    }

    fn loaded(seed: u64, parameters: &Parameters) -> Model {
        let mut model = Model::empty();
        for id in 1..=u64::from(parameters.users) {
            model.users.insert(id, draw_user(seed, id));
        }
        for id in 1..=u64::from(parameters.items) {
            let Offer { item, bids, comment } = Offer::draw(seed, id, parameters);
            model.items.insert(id, item);
            model.bids.extend(bids.into_iter().map(|bid| ((bid.bidder, bid.id), bid)));
            model.comments.extend(comment.map(|row| ((row.to_user, row.id), row)));
        }
        model
    }

    /// Reads all rows of a database whose only client has the number 0.
    fn read<P: Protocol>(rubis: &Rubis<P>) -> Model {
        let (snapshot, tables) =
            (rubis.database.open_snapshot().expect("a snapshot"), &rubis.tables);
        let mut model = Model::empty();
        let ids = |loaded: u32| (1..=u64::from(loaded)).chain((0..500).map(|n| new_id(0, n)));
        let &Parameters { users, items, .. } = &rubis.parameters;
        walk::keys(&snapshot, &tables.users, ids(users), |id, row| {
            model.users.extend(row.map(|row| (id, *row)));
        })
        .expect("reads");
        walk::keys(&snapshot, &tables.items, ids(items), |id, row| {
            model.items.extend(row.map(|row| (id, row.clone())));
        })
        .expect("reads");
        for row in snapshot.rows(&tables.bids) {
            let row = row.expect("reads");
            model.bids.insert((row.bidder, row.id), *row);
        }
        for row in snapshot.rows(&tables.purchases) {
            let row = row.expect("reads");
            model.purchases.insert((row.buyer, row.id), *row);
        }
        for row in snapshot.rows(&tables.comments) {
            let row = row.expect("reads");
            model.comments.insert((row.to_user, row.id), *row);
        }
        model
    }

    fn bids_on(&self, item: u64) -> impl Iterator<Item = &Bid> {
        self.bids.values().filter(move |bid| bid.item == item)
    }

    fn listed(&self, item: u64) -> ListedItem<'_> {
        let highest = self.bids_on(item).max_by_key(|bid| (bid.price, Reverse(bid.date)));
        let bidding = Bidding {
            number: self.bids_on(item).count() as i64,
            highest: highest.map_or(0, |bid| bid.price),
            winner: highest.map(|bid| bid.bidder),
        };
        ListedItem { item: &self.items[&item], bidding }
    }

    /// Returns a list of the newest items for which `is_of` is true.
    fn newest(&self, is_of: impl Fn(&Item) -> bool) -> Answer<'_> {
        let mut items: Vec<(Date, u64)> = self
            .items
            .values()
            .filter(|item| is_of(item))
            .map(|item| (item.started, item.id))
            .collect();
        items.sort_unstable_by_key(|&item| Reverse(item));
        let items = items.into_iter().take(LISTED);
        Answer::Items(items.map(|(_, item)| self.listed(item)).collect())
    }

    fn profile(&self, user: u64) -> Profile<'_> {
        let about = || self.comments.values().filter(move |comment| comment.to_user == user);
        let authors = about().rev().take(PAGE);
        Profile {
            user: &self.users[&user],
            rating: about().map(|comment| comment.rating).sum(),
            comments: authors.map(|row| (row, &self.users[&row.from_user])).collect(),
        }
    }

    fn answer(&self, query: &Query) -> Answer<'_> {
        match query {
            Query::Authenticate { nickname, password } => {
                let user = self.users.values().find(|user| user.nickname == *nickname);
                let user = user.filter(|user| user.password == *password);
                user.map_or(Answer::Nothing, |user| Answer::User(user.id))
            }
            Query::BrowseCategories { region } => Answer::Categories {
                region: region.map(|region| &self.regions[usize::from(region) - 1]),
                categories: self.categories.iter().collect(),
            },
            Query::BrowseRegions => Answer::Regions(self.regions.iter().collect()),
            Query::SearchItemsByCategory { category } => {
                self.newest(|item| item.category == *category)
            }
            Query::SearchItemsByRegion { region, category } => self.newest(|item| {
                item.category == *category && self.users[&item.seller].region == *region
            }),
            Query::ViewItem { item } | Query::PutBid { item } => match self.items.get(item) {
                Some(row) => {
                    let seller = &self.users[&row.seller];
                    Answer::Item { listed: self.listed(*item), seller }
                }
                None => Answer::Nothing,
            },
            Query::ViewUserInfo { user } if self.users.contains_key(user) => {
                Answer::Profile(self.profile(*user))
            }
            Query::ViewBidHistory { item } if self.items.contains_key(item) => {
                let mut bids: Vec<&Bid> = self.bids_on(*item).collect();
                bids.sort_unstable_by_key(|bid| Reverse((bid.price, bid.id)));
                let bids = bids.into_iter().take(LISTED);
                let bids = bids.map(|bid| (bid, &self.users[&bid.bidder])).collect();
                Answer::Bids { item: &self.items[item], bids }
            }
            Query::BuyNow { item } if self.items.contains_key(item) => {
                let item = &self.items[item];
                Answer::Form { item, user: &self.users[&item.seller] }
            }
            Query::PutComment { item, to_user } if self.items.contains_key(item) => {
                Answer::Form { item: &self.items[item], user: &self.users[to_user] }
            }
            Query::AboutMe { user } if self.users.contains_key(user) => self.about_me(*user),
            _ => Answer::Nothing,
        }
    }

    fn about_me(&self, user: u64) -> Answer<'_> {
        let bids = self.bids.values().rev().filter(|bid| bid.bidder == user).take(PAGE);
        let bids: ArrayVec<_, PAGE> = bids.map(|bid| (bid, self.listed(bid.item))).collect();
        let purchases = self.purchases.values().rev().filter(|purchase| purchase.buyer == user);
        let purchases = purchases.take(PAGE).map(|row| (row, &self.items[&row.item])).collect();
        let selling = self.items.values().rev().filter(|item| item.seller == user).take(PAGE);
        let selling = selling.map(|item| self.listed(item.id)).collect();
        Answer::AboutMe { profile: self.profile(user), bids, purchases, selling }
    }

    /// Changes the model. Returns whether the transaction succeeded.
    fn change(&mut self, change: &Change) -> bool {
        match change.clone() {
            Change::RegisterUser(row) => {
                if self.users.values().any(|user| user.nickname == row.nickname) {
                    return false;
                }
                self.users.insert(row.id, row);
            }
            Change::StoreItem(row) => drop(self.items.insert(row.id, row)),
            Change::StoreBuyNow(row) => {
                let item = self.items.get_mut(&row.item).expect("an item");
                if item.quantity < row.quantity {
                    return false;
                }
                item.quantity -= row.quantity;
                if item.quantity == 0 {
                    item.ends = row.date;
                }
                self.purchases.insert((row.buyer, row.id), row);
            }
            Change::StoreBid(row) => drop(self.bids.insert((row.bidder, row.id), row)),
            Change::StoreComment(row) => drop(self.comments.insert((row.to_user, row.id), row)),
        }
        true
    }
}

/// Runs a query on a database, and compares the result with the model's. Returns whether anything was found.
fn ask<P: Protocol>(rubis: &Rubis<P>, model: &Model, query: &Query, context: &str) -> bool {
    let found = rubis.database.transact(|tx| {
        let answer = queries::run(&rubis.tables, tx, query)?;
        assert_eq!(answer, model.answer(query), "{context}: {query:?}");
        Ok::<_, Error>(answer.is_found())
    });
    found.unwrap_or_else(|error| panic!("{context}: {error}"))
}

/// Changes a database and the model. Returns whether the transaction succeeded.
fn make<P: Protocol>(rubis: &Rubis<P>, model: &mut Model, change: &Change, context: &str) -> bool {
    let operations = rubis.parameters.operations;
    let made = rubis.database.transact(|tx| changes::run(&rubis.tables, tx, change, operations));
    let made = made.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(made, model.change(change), "{context}: {change:?}");
    made
}

fn agrees<P: Protocol>(parameters: &Parameters, seed: u64) {
    let context = format!("{}, {parameters:?}, seed {seed}", P::NAME);
    let rubis: Rubis<P> = load(parameters, seed, 1);
    let mut model = Model::loaded(seed, parameters);
    let mut client = rubis.client(seed, 0, 1);
    let mut ended = [[0_u32; 2]; 17];
    for _ in 0..4_000 {
        let request = client.draw();
        let succeeded = match &request {
            Request::Query(query) => ask(&rubis, &model, query, &context),
            Request::Change(change) => make(&rubis, &mut model, change, &context),
        };
        client.note(&request, succeeded);
        ended[request.transaction_type() as usize][usize::from(succeeded)] += 1;
    }
    assert_eq!(Model::read(&rubis), model, "{context}");
    assert_consistent(&rubis, &context);
    assert!(ended.iter().all(|[_, succeeded]| *succeeded > 0), "{context}: {ended:?}");
    assert!(ended[TransactionType::StoreBuyNow as usize][0] > 0, "{context}: nothing is sold out");
}

#[test]
fn every_protocol_agrees_with_the_model() {
    for name in runnable_protocols() {
        with_protocol!(name, |P| agrees::<P>(&TINY, 51)).expect("a name of the list");
    }
}

#[test]
fn every_protocol_agrees_with_the_model_without_commutative_operations() {
    let mix = Mix::Contended { alpha: 1.0 };
    let parameters = Parameters { mix, operations: false, ..TINY };
    for name in runnable_protocols() {
        with_protocol!(name, |P| agrees::<P>(&parameters, 52)).expect("a name of the list");
    }
}

/// Queries and changes that clients never draw.
#[test]
fn missing_rows_are_not_found() {
    const SEED: u64 = 53;
    let rubis: Rubis<Dbx> = load(&TINY, SEED, 1);
    let mut model = Model::loaded(SEED, &TINY);
    let context = format!("seed {SEED}");
    let (nickname, password) = (nickname_of(7), password_of(7));
    assert!(ask(&rubis, &model, &Query::Authenticate { nickname, password }, &context));
    let nowhere = [
        Query::Authenticate { nickname, password: password_of(8) },
        Query::Authenticate { nickname: nickname_of(41), password: password_of(41) },
        Query::ViewItem { item: 26 },
        Query::PutBid { item: 0 },
        Query::BuyNow { item: 26 },
        Query::PutComment { item: 26, to_user: 1 },
        Query::ViewBidHistory { item: 26 },
        Query::ViewUserInfo { user: 41 },
        Query::AboutMe { user: 41 },
    ];
    for query in nowhere {
        assert!(!ask(&rubis, &model, &query, &context), "{query:?}");
    }
    // A nickname that is in use, and more pieces than the item has. Both change nothing.
    let twin = User { nickname, ..user_of(new_id(9, 0), 3, LOADED_UNTIL) };
    assert!(!make(&rubis, &mut model, &Change::RegisterUser(twin), &context));
    let too_many = Purchase { buyer: 1, id: 1, item: 3, quantity: 11, date: LOADED_UNTIL };
    assert!(!make(&rubis, &mut model, &Change::StoreBuyNow(too_many), &context));
    assert_consistent(&rubis, &context);
}

/// Of two equal highest bids the earlier wins, regardless of which is stored first. Both are in the history.
#[test]
fn the_earlier_of_two_equal_bids_wins() {
    const SEED: u64 = 54;
    let rubis: Rubis<Dbx> = load(&TINY, SEED, 1);
    let mut model = Model::loaded(SEED, &TINY);
    let context = format!("seed {SEED}");
    let price = 10_000_000;
    for (bidder, later) in [(1, 5), (2, 3), (3, 4)] {
        let (id, date) = (new_id(0, bidder), LOADED_UNTIL + later);
        let bid = Bid { bidder, id, item: 4, quantity: 1, price, date };
        assert!(make(&rubis, &mut model, &Change::StoreBid(bid), &context));
    }
    assert!(ask(&rubis, &model, &Query::ViewBidHistory { item: 4 }, &context));
    assert!(ask(&rubis, &model, &Query::ViewItem { item: 4 }, &context));
    assert_eq!(model.listed(4).bidding.winner, Some(2));
}

/// Checks the clients' ledgers, by which verification counts the rows.
#[test]
fn clients_count_what_they_store() {
    const SEED: u64 = 55;
    let rubis: Rubis<Dbx> = load(&TINY, SEED, 1);
    let mut clients = [rubis.client(SEED, 0, 2), rubis.client(SEED, 1, 2)];
    let mut stored = 0;
    for number in 0..4_000 {
        let outcome = rubis.execute(&mut clients[number % 2]).expect("it runs to its end");
        let transaction = TransactionType::ALL[outcome.transaction];
        stored += u64::from(transaction.writes() && !outcome.rolled_back);
    }
    let accounts = rubis.ledgers.accounts();
    let sum: u64 = accounts.iter().flat_map(|account| account.stored).sum();
    assert_eq!((accounts.len(), sum), (2, stored), "seed {SEED}");
    assert_consistent(&rubis, &format!("seed {SEED}"));
}
