//! A client of RUBiS: its draws, and an account of what it has stored.

use std::sync::Arc;

use weft::htm::word::{Mutex, Ordering, Word};

use super::changes::Change;
use super::interactions::{Draw, Interaction, Mix, TransactionType, Work};
use super::load::{
    BID_MAX, CLIENT_STREAMS, LOADED_UNTIL, draw_comment, draw_item, nickname_of, password_of,
    seller_of, user_of,
};
use super::queries::Query;
use super::schema::{Bid, CATEGORIES, Date, Purchase, REGIONS, new_id};
use super::{Parameters, Request};
use crate::random::Random;
use crate::stashing::{Draws, Requested};
use crate::ycsb::zipf::Zipf;

/// The counts of a client's actions. Only the client writes them; they are read at the end.
#[repr(align(64))]
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The number of identifiers that it has chosen for users, and for items.
    users: Word,
    items: Word,
    /// The number of committed transactions that stored something, by [`Change::kind`].
    stored: [Word; Change::KINDS],
}

/// The counts of a client, as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Account {
    pub(super) users: u64,
    pub(super) items: u64,
    pub(super) stored: [u64; Change::KINDS],
}

/// The ledgers of all clients of a database.
#[derive(Debug, Default)]
pub(super) struct Ledgers(Mutex<Vec<Arc<Ledger>>>);

impl Ledgers {
    /// Opens a ledger for one more client, and returns the client's number and the ledger.
    fn open(&self) -> (u32, Arc<Ledger>) {
        let mut ledgers = self.0.lock().expect("no client panics with the lock");
        let ledger = Arc::<Ledger>::default();
        ledgers.push(Arc::clone(&ledger));
        (ledgers.len() as u32 - 1, ledger)
    }

    /// Returns the account of each client, in the order of their numbers.
    pub(super) fn accounts(&self) -> Vec<Account> {
        let ledgers = self.0.lock().expect("no client panics with the lock");
        // Relaxed: read after the clients' threads have been joined.
        let read = |word: &Word| word.load(Ordering::Relaxed);
        let account = |ledger: &Arc<Ledger>| Account {
            users: read(&ledger.users),
            items: read(&ledger.items),
            stored: std::array::from_fn(|kind| read(&ledger.stored[kind])),
        };
        ledgers.iter().map(account).collect()
    }
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    pub(super) random: Random,
    parameters: Parameters,
    /// The seed of the load, with which the seller of an item is drawn again.
    loaded_seed: u64,
    number: u32,
    /// The number of new bids, purchases and comments so far.
    rows: u64,
    /// The time of the last request.
    date: Date,
    draw: Draw,
    /// The popularity of items, in the contended mix.
    zipf: Option<Zipf>,
    /// The second transaction of an interaction whose first is in progress.
    next: Option<Request>,
    ledger: Arc<Ledger>,
}

impl Client {
    /// Creates the client of the `thread`-th thread.
    pub(super) fn new(
        parameters: &Parameters,
        ledgers: &Ledgers,
        loaded_seed: u64,
        seed: u64,
        thread: usize,
    ) -> Client {
        let (number, ledger) = ledgers.open();
        let zipf = match parameters.mix {
            Mix::Bidding => None,
            Mix::Contended { alpha } => Some(Zipf::new(parameters.items.into(), alpha)),
        };
        Client {
            random: Random::new(seed, CLIENT_STREAMS + thread as u64),
            parameters: *parameters,
            loaded_seed,
            number,
            rows: 0,
            date: LOADED_UNTIL,
            draw: Draw::new(zipf.is_none()),
            zipf,
            next: None,
            ledger,
        }
    }

    /// Draws the input of a transaction of an interaction.
    fn draw_transaction(
        &mut self,
        interaction: Interaction,
        transaction: TransactionType,
    ) -> Request {
        match transaction {
            TransactionType::Authenticate => {
                let user = self.draw_user();
                let (nickname, password) = (nickname_of(user), password_of(user));
                Query::Authenticate { nickname, password }.into()
            }
            TransactionType::BrowseCategories => {
                let in_region = interaction == Interaction::BrowseCategoriesInRegion;
                let region = in_region.then(|| self.random.within_u8(1, REGIONS));
                Query::BrowseCategories { region }.into()
            }
            TransactionType::BrowseRegions => Query::BrowseRegions.into(),
            TransactionType::SearchItemsByCategory => {
                let category = self.random.within_u8(1, CATEGORIES);
                Query::SearchItemsByCategory { category }.into()
            }
            TransactionType::SearchItemsByRegion => {
                let region = self.random.within_u8(1, REGIONS);
                let category = self.random.within_u8(1, CATEGORIES);
                Query::SearchItemsByRegion { region, category }.into()
            }
            TransactionType::ViewItem => Query::ViewItem { item: self.draw_item() }.into(),
            TransactionType::ViewUserInfo => Query::ViewUserInfo { user: self.draw_user() }.into(),
            TransactionType::ViewBidHistory => {
                Query::ViewBidHistory { item: self.draw_item() }.into()
            }
            TransactionType::BuyNow => Query::BuyNow { item: self.draw_item() }.into(),
            TransactionType::PutBid => Query::PutBid { item: self.draw_item() }.into(),
            TransactionType::PutComment => {
                let item = self.draw_item();
                Query::PutComment { item, to_user: self.seller_of(item) }.into()
            }
            TransactionType::AboutMe => Query::AboutMe { user: self.draw_user() }.into(),
            TransactionType::RegisterUser => {
                let id = new_id(self.number, count(&self.ledger.users));
                let region = self.random.within_u8(1, REGIONS);
                Change::RegisterUser(user_of(id, region, self.date)).into()
            }
            TransactionType::StoreItem => {
                let id = new_id(self.number, count(&self.ledger.items));
                let seller = self.draw_user();
                let lot = self.parameters.lot;
                Change::StoreItem(draw_item(&mut self.random, id, seller, self.date, lot)).into()
            }
            TransactionType::StoreBuyNow => {
                let (buyer, item, id) = (self.draw_user(), self.draw_item(), self.next_id());
                let row = Purchase { buyer, id, item, quantity: 1, date: self.date };
                Change::StoreBuyNow(row).into()
            }
            TransactionType::StoreBid => {
                let item = self.draw_item();
                self.draw_bid(item)
            }
            TransactionType::StoreComment => {
                let (from_user, item, id) = (self.draw_user(), self.draw_item(), self.next_id());
                let whom = (self.seller_of(item), from_user, item);
                Change::StoreComment(draw_comment(&mut self.random, id, whom, self.date)).into()
            }
        }
    }

    /// Draws a bid on an item.
    fn draw_bid(&mut self, item: u64) -> Request {
        let row = Bid {
            bidder: self.draw_user(),
            id: self.next_id(),
            item,
            quantity: 1,
            price: self.random.within_i64(1, BID_MAX),
            date: self.date,
        };
        Change::StoreBid(row).into()
    }

    /// Chooses a loaded user.
    #[inline]
    fn draw_user(&mut self) -> u64 {
        self.random.within(1, self.parameters.users).into()
    }

    /// Chooses a loaded item, uniformly.
    #[inline]
    fn draw_item(&mut self) -> u64 {
        self.random.within(1, self.parameters.items).into()
    }

    /// Returns the seller of a loaded item, which the previous page showed.
    fn seller_of(&self, item: u64) -> u64 {
        seller_of(self.loaded_seed, item, self.parameters.users)
    }

    /// Returns an identifier for a bid, a purchase or a comment.
    fn next_id(&mut self) -> u64 {
        self.rows += 1;
        new_id(self.number, self.rows)
    }
}

impl Draws for Client {
    type Request = Request;

    #[inline]
    fn draw(&mut self) -> Request {
        // Each client has a time of its own. It advances by a millisecond with each transaction, so that a run can
        // be repeated, and no clock is read.
        self.date += 1;
        if let Some(zipf) = &self.zipf
            && self.random.chance(Mix::CONTENDED_BIDS)
        {
            let item = zipf.draw(&mut self.random.0) + 1;
            return self.draw_bid(item);
        }
        if let Some(request) = self.next.take() {
            return request;
        }
        let (interaction, work) = self.draw.draw(&mut self.random);
        match work {
            Work::Nothing => unreachable!("only interactions with transactions are drawn"),
            Work::One(transaction) => self.draw_transaction(interaction, transaction),
            Work::Authenticated(transaction) => {
                let user = self.draw_user();
                let request = match transaction {
                    TransactionType::AboutMe => Query::AboutMe { user }.into(),
                    _ => self.draw_transaction(interaction, transaction),
                };
                self.next = Some(request);
                let (nickname, password) = (nickname_of(user), password_of(user));
                Query::Authenticate { nickname, password }.into()
            }
        }
    }

    #[inline]
    fn note(&mut self, request: &Request, succeeded: bool) {
        if let Request::Change(change) = request
            && succeeded
        {
            count(&self.ledger.stored[change.kind()]);
        }
    }
}

impl Requested for Request {
    fn transaction(&self) -> usize {
        self.transaction_type() as usize
    }
}

/// Adds one, and returns the previous count.
#[inline]
fn count(counter: &Word) -> u64 {
    // Relaxed: it has one writer, and other threads read it only after joining that writer's thread.
    let before = counter.load(Ordering::Relaxed);
    counter.store(before + 1, Ordering::Relaxed);
    before
}
