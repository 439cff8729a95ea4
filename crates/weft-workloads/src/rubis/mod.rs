//! RUBiS, the Rice University Bidding System: an auction site.
//!
//! C. Amza and others: *Specification and Implementation of Dynamic Web Site Benchmarks*, WWC-5, 2002;
//! as N. Narula and others port it in *Phase Reconciliation for Contended In-Memory Transactions*
//! (Doppel, OSDI 2014, §7 and §8.8): 7 tables, 17 transactions, and the 26 interactions that run them.
//!
//! - [`schema`]: the tables, and what is kept beside them;
//! - [`interactions`]: what users do, how often, and which transactions that takes;
//! - `load`: the initial population, a million users and 33,000 auctions
//!   [by default](Parameters::default), as in the paper;
//! - `client`: draws requests, each with all of its input;
//! - [`queries`], [`changes`]: the transactions that read, and those that write;
//! - `conditions`: the invariants, checked after a run.
//!
//! A transaction is drawn as a [`Request`], which says all about it, and then [run](Rubis::run), as often
//! as it takes.
//!
//! ## Bids by commutative operations
//!
//! In RUBiS a bid reads what is highest so far, and how many bids there are, and then writes both: the
//! paper's Figure 6. But it tells nobody. In Figure 7 it takes the maximum, puts the bidder by that
//! order, adds one to the number, and inserts itself into the ten highest, which all commute, and can
//! be split. A comment adds to a rating, a new item inserts itself into two lists, in the same way.
//! [`Parameters::operations`] chooses between the two.
//!
//! ## The mixes
//!
//! **RUBiS-B** is the bidding mix: each client draws one interaction after the other, by these weights,
//! of 10,000 steps that clients of RUBiS take.
//!
//! | interaction | weight | transactions |
//! | --- | ---: | --- |
//! | Home, Register, Browse | 184 t, 96 t, 765 m | |
//! | RegisterUser | 107 m | **RegisterUser** |
//! | BrowseCategories | 539 m | BrowseCategories |
//! | SearchItemsInCategory | 1594 m | SearchItemsByCategory |
//! | BrowseRegions | 192 t | BrowseRegions |
//! | BrowseCategoriesInRegion | 189 t | BrowseCategories, with the region |
//! | SearchItemsInRegion | 634 m | SearchItemsByRegion |
//! | ViewItem | 1417 m | ViewItem |
//! | ViewUserInfo | 248 m | ViewUserInfo |
//! | ViewBidHistory | 154 m | ViewBidHistory |
//! | BuyNowAuth, PutBidAuth, PutCommentAuth, AboutMeAuth | 142 t, 510 t, 0 t, 159 t | |
//! | BuyNow | 116 m | Authenticate, BuyNow |
//! | StoreBuyNow | 110 m | **StoreBuyNow** |
//! | PutBid | 540 m | Authenticate, PutBid |
//! | StoreBid | 374 m | **StoreBid** |
//! | PutComment | 46 m | Authenticate, PutComment |
//! | StoreComment | 45 m | **StoreComment** |
//! | Sell, SellItemForm | 53 t, 51 t | |
//! | SelectCategoryToSellItem | 52 t | Authenticate, BrowseCategories |
//! | RegisterItem | 53 m | **StoreItem** |
//! | AboutMe | 171 m | Authenticate, AboutMe |
//!
//! *m* is measured: the shares that RUBiS published of a bidding run (its results for JBoss with 1,500
//! clients), as M. Mior's workload for NoSE cites them. They leave out what NoSE has no queries for, so
//! *t* is from RUBiS's transition table (`default_transitions.txt`): as often as clients that follow it
//! come by, in a simulation of four million steps. The remaining 1,459 go back a page or end the
//! session. What writes, in bold, adds up to 689, the paper's *7 % total writes and 93 % total reads*.
//! With the forms that lead there it is 15 %, which is presumably what RUBiS calls read-write.
//!
//! Pages that are always the same take no transaction, so a client leaves them out. That, and the
//! transactions that authenticate, make it that of 100 *transactions* 9.2 write, and 5.0 are bids.
//!
//! In **RUBiS-C** half of all transactions are StoreBid, on an item that is drawn by Zipf's law with
//! [`alpha`](Mix::Contended); the other half are the rest of the bidding mix in its proportions.
//!
//! ## Where this is not RUBiS
//!
//! - There are no pages, images, web servers and think times, as in the paper. A client's next
//!   interaction does not depend on the last one: the weights are kept, sessions are not.
//! - Clients ask for what was loaded, all users and items alike, not for what was added later but by
//!   lists.
//! - Auctions do not end, and nobody is told to have won; there is no table of old items.
//! - Bids and comments are clustered by user, as [`schema`] says, and there is no table `ids`, by which
//!   RUBiS numbers rows: clients number theirs.
//! - A lot is [so large](Parameters::lot) that none is sold out, and a run's last second is like its
//!   first.
//! - Of two highest bids that are equal the earlier wins; in the paper's Figure 7, the later one. The list
//!   of highest bids has both.
//! - RUBiS selects an item's bids, a category's items and the like by scans. Here they are lists that
//!   are kept, as in the paper.

pub mod changes;
mod client;
mod conditions;
pub mod interactions;
mod load;
pub mod queries;
pub mod schema;

#[cfg(test)]
mod tests;

use std::hint::black_box;

use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Table, Transaction};
use weft_procedures::{Execute, Procedure, Shape};

pub use changes::Change;
pub use client::Client;
pub use interactions::{Interaction, Mix, TransactionType};
pub use queries::Query;

use crate::stashing::Stashing;
use crate::workload::{Condition, LoadOptions, Outcome, Progress, Workload, failure_of};
use client::Ledgers;
use schema::{
    Auction, Bid, Category, CategoryItems, Comment, Item, Purchase, Rating, Region, RegionItems,
    User,
};

/// The most users, and the most items, that are loaded.
pub const USERS_MAX: u32 = 100_000_000;
/// See [`USERS_MAX`].
pub const ITEMS_MAX: u32 = 100_000_000;

/// Size and mix of a RUBiS database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The number of users: from 1 to [`USERS_MAX`].
    pub users: u32,
    /// The number of items, each of which is an auction: from 1 to [`ITEMS_MAX`].
    pub items: u32,
    /// How often each transaction is drawn.
    pub mix: Mix,
    /// Whether changes that commute are made by commutative operations, or else by reading and writing.
    pub operations: bool,
    /// Pieces for each of RUBiS's one to ten that an item offers to be bought at once.
    pub lot: u32,
}

impl Default for Parameters {
    /// The setting of the paper, and the bidding mix.
    fn default() -> Self {
        Parameters {
            users: 1_000_000,
            items: 33_000,
            mix: Mix::Bidding,
            operations: true,
            lot: 10_000,
        }
    }
}

/// A transaction with all of its input.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// One that only reads.
    Query(Query),
    /// One that writes.
    Change(Change),
}

impl Request {
    /// Its type.
    pub fn transaction_type(&self) -> TransactionType {
        match self {
            Request::Query(query) => query.transaction(),
            Request::Change(change) => change.transaction(),
        }
    }
}

impl From<Query> for Request {
    fn from(query: Query) -> Self {
        Request::Query(query)
    }
}

impl From<Change> for Request {
    fn from(change: Change) -> Self {
        Request::Change(change)
    }
}

/// Handles of the tables.
struct Tables {
    users: Table<User>,
    ratings: Table<Rating>,
    items: Table<Item>,
    auctions: Table<Auction>,
    bids: Table<Bid>,
    purchases: Table<Purchase>,
    comments: Table<Comment>,
    categories: Table<Category>,
    regions: Table<Region>,
    category_items: Table<CategoryItems>,
    region_items: Table<RegionItems>,
}

/// A loaded RUBiS database.
pub struct Rubis<P: Protocol> {
    database: Database<P>,
    tables: Tables,
    parameters: Parameters,
    /// Of the load: verification draws the rows again.
    seed: u64,
    ledgers: Ledgers,
}

impl<P: Protocol> Rubis<P> {
    /// Does what a request asks for; whether it succeeded. If it has not, because something is not
    /// there or sold out, it has written nothing. What a browser would get is computed, and dropped.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn run(&self, tx: &Transaction<'_, P>, request: &Request) -> Result<bool, Error> {
        match request {
            Request::Query(query) => {
                let answer = queries::run(&self.tables, tx, query)?;
                Ok(black_box(&answer).is_found())
            }
            Request::Change(change) => {
                changes::run(&self.tables, tx, change, self.parameters.operations)
            }
        }
    }
}

impl<P: Protocol> Rubis<P> {
    /// Executes a request's procedure, unless it may be set aside, or returns rows.
    fn execute_procedure(&self, request: &Request) -> Option<Result<bool, Failure>> {
        let Request::Change(change) = request else { return None };
        if P::SPLITS {
            return None;
        }
        let Rubis { database, tables, parameters: Parameters { operations, .. }, .. } = self;
        let done = match change {
            Change::RegisterUser(user) => {
                database.execute(&mut changes::RegisterUser::new(tables, user))
            }
            Change::StoreItem(item) if *operations => {
                database.execute(&mut changes::StoreItem::new(tables, item))
            }
            Change::StoreItem(item) => {
                database.execute(&mut changes::StoreItemByReading::new(tables, item))
            }
            Change::StoreBuyNow(purchase) => {
                database.execute(&mut changes::StoreBuyNow::new(tables, purchase))
            }
            Change::StoreBid(bid) if *operations => {
                database.execute(&mut changes::StoreBid::new(tables, bid))
            }
            Change::StoreBid(bid) => {
                database.execute(&mut changes::StoreBidByReading::new(tables, bid))
            }
            Change::StoreComment(comment) if *operations => {
                database.execute(&mut changes::StoreComment::new(tables, comment))
            }
            Change::StoreComment(comment) => {
                database.execute(&mut changes::StoreCommentByReading::new(tables, comment))
            }
        };
        Some(done.map_err(failure_of))
    }
}

/// The shapes of its [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    vec![
        queries::Authenticate::<Dbx>::shape(),
        queries::BrowseCategories::<Dbx>::shape(),
        queries::BrowseRegions::<Dbx>::shape(),
        queries::SearchItemsByCategory::<Dbx>::shape(),
        queries::SearchItemsByRegion::<Dbx>::shape(),
        queries::ViewItem::<Dbx>::shape(),
        queries::ViewUserInfo::<Dbx>::shape(),
        queries::ViewBidHistory::<Dbx>::shape(),
        queries::BuyNow::<Dbx>::shape(),
        queries::PutComment::<Dbx>::shape(),
        queries::AboutMe::<Dbx>::shape(),
        changes::RegisterUser::<Dbx>::shape(),
        changes::StoreItem::<Dbx>::shape(),
        changes::StoreItemByReading::<Dbx>::shape(),
        changes::StoreBuyNow::<Dbx>::shape(),
        changes::StoreBid::<Dbx>::shape(),
        changes::StoreBidByReading::<Dbx>::shape(),
        changes::StoreComment::<Dbx>::shape(),
        changes::StoreCommentByReading::<Dbx>::shape(),
    ]
}

/// Those that are run with commutative operations, or without.
fn procedures_by(operations: bool) -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    let by_operations = [
        changes::StoreItem::<Dbx>::shape().name,
        changes::StoreBid::<Dbx>::shape().name,
        changes::StoreComment::<Dbx>::shape().name,
    ];
    let by_reading = [
        changes::StoreItemByReading::<Dbx>::shape().name,
        changes::StoreBidByReading::<Dbx>::shape().name,
        changes::StoreCommentByReading::<Dbx>::shape().name,
    ];
    let left_out = if operations { by_reading } else { by_operations };
    procedures().into_iter().filter(|shape| !left_out.contains(&shape.name)).collect()
}

impl<P: Protocol> Workload<P> for Rubis<P> {
    const NAME: &'static str = "rubis";
    const TRANSACTIONS: &'static [&'static str] = &TransactionType::NAMES;
    type Parameters = Parameters;
    type Client = Stashing<Client, P>;

    /// # Panics
    /// If a number in `parameters` is out of its range.
    fn load(parameters: &Parameters, options: &LoadOptions<'_>) -> Result<Self, Failure> {
        load::load(parameters, options)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> Self::Client {
        let client = Client::new(&self.parameters, &self.ledgers, self.seed, seed, thread);
        Stashing::new(client, &self.database)
    }

    #[inline]
    fn execute(&self, client: &mut Self::Client) -> Result<Outcome, Failure> {
        client.execute_or(
            |request| self.execute_procedure(request),
            |tx, request| self.run(tx, request),
        )
    }

    fn finish(&self, client: &mut Self::Client) -> Result<(), Failure> {
        client.finish(|tx, request| self.run(tx, request))
    }

    fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure> {
        let at_rest = conditions::AtRest {
            snapshot: &self.database.open_snapshot()?,
            tables: &self.tables,
            parameters: &self.parameters,
            seed: self.seed,
            ledgers: &self.ledgers,
        };
        conditions::verify(&at_rest, progress)
    }
}
