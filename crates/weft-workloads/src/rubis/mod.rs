//! RUBiS, the Rice University Bidding System: an auction site.
//!
//! C. Amza and others: *Specification and Implementation of Dynamic Web Site Benchmarks*, WWC-5, 2002; as ported by
//! N. Narula and others in *Phase Reconciliation for Contended In-Memory Transactions* (Doppel, OSDI 2014, §7 and
//! §8.8). It has 7 tables, 17 transactions, and 26 interactions that run them.
//!
//! - [`schema`]: the tables, and the derived tables beside them;
//! - [`interactions`]: the interactions of users, their frequencies, and their transactions;
//! - `load`: the initial population, a million users and 33,000 auctions [by default](Parameters::default), as in
//!   the paper;
//! - `client`: draws requests, each with all of its input;
//! - [`queries`], [`changes`]: the transactions that read, and those that write;
//! - `conditions`: the invariants, checked after a run.
//!
//! A transaction is drawn as a [`Request`] with all its input. It is then [run](Rubis::run), and retried after each
//! conflict.
//!
//! ## Bids by commutative operations
//!
//! In RUBiS a bid reads the highest bid and the number of bids, and then writes both: the paper's Figure 6. But it
//! does not return them. In Figure 7 a bid takes the maximum, puts the bidder by that order, adds one to the
//! number, and inserts itself into the ten highest. All these operations commute, so their records can be split. In
//! the same way, a comment adds to a rating, and a new item inserts itself into two lists.
//! [`Parameters::operations`] chooses between the two.
//!
//! ## The mixes
//!
//! **RUBiS-B** is the bidding mix: each client draws one interaction after the other. The weights count how often
//! each occurs in 10,000 steps of RUBiS's clients.
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
//! *m* is measured: the shares that RUBiS published for a bidding run (its results for JBoss with 1,500 clients),
//! as cited by M. Mior's workload for NoSE. They leave out interactions for which NoSE has no queries. For those,
//! *t* is from RUBiS's transition table (`default_transitions.txt`): their frequency in a simulation of four
//! million steps of clients that follow it. The remaining 1,459 steps go back a page or end the session. The
//! interactions that write, in bold, add up to 689: the paper's *7 % total writes and 93 % total reads*. With the
//! forms that lead to them it is 15 %, which is presumably what RUBiS calls read-write.
//!
//! Pages that are always the same need no transaction, so a client leaves them out. Because of this, and of the
//! transactions that authenticate, 9.2 of 100 *transactions* write, and 5.0 are bids.
//!
//! In **RUBiS-C** half of all transactions are StoreBid, on an item drawn by Zipf's law with
//! [`alpha`](Mix::Contended). The other half are the rest of the bidding mix, in its proportions.
//!
//! ## Differences from RUBiS
//!
//! - As in the paper, there are no pages, images, web servers and think times. A client's next interaction does not
//!   depend on the previous one: the weights are kept, but sessions are not.
//! - Clients ask for loaded users and items, uniformly. They see rows that were added later only in lists.
//! - Auctions do not end, and winners are not notified; there is no table of old items.
//! - Bids and comments are clustered by user, as [`schema`] describes. There is no table `ids`, by which RUBiS
//!   numbers rows: clients number their own rows.
//! - A lot is [so large](Parameters::lot) that no item is sold out, and a run's last second is like its first.
//! - Of two equal highest bids the earlier wins; in the paper's Figure 7 the later wins. The list of highest bids
//!   has both.
//! - RUBiS selects an item's bids, a category's items and similar lists by scans. Here, as in the paper, these
//!   lists are stored.

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
use weft::{Builder, Database, Error, Failure, Table, Transaction};
use weft_procedures::{Execute, Procedure, Shape};

pub use changes::Change;
pub use client::Client;
pub use interactions::{Interaction, Mix, TransactionType};
pub use queries::Query;

use crate::stashing::StashingClient;
use crate::workload::{
    Condition, LoadOptions, Outcome, Procedures, Progress, Workload, failure_of,
};
use client::Ledgers;
use schema::{
    Auction, Bid, Category, CategoryItems, Comment, Item, Purchase, Rating, Region, RegionItems,
    User,
};

/// The most users that a database may have.
pub const USERS_MAX: u32 = 100_000_000;
/// The most items that a database may have.
pub const ITEMS_MAX: u32 = 100_000_000;

/// The size and the mix of a RUBiS database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The number of users, from 1 to [`USERS_MAX`].
    pub users: u32,
    /// The number of items, each with an auction, from 1 to [`ITEMS_MAX`].
    pub items: u32,
    /// The mix of transactions.
    pub mix: Mix,
    /// Whether commutative operations make the changes that commute, instead of reading and writing.
    pub operations: bool,
    /// The pieces for each of RUBiS's one to ten pieces that an item offers to be bought at once.
    pub lot: u32,
}

impl Default for Parameters {
    /// Returns the paper's setting, with the bidding mix.
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

/// A transaction with its input.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A transaction that only reads.
    Query(Query),
    /// A transaction that writes.
    Change(Change),
}

impl Request {
    /// Returns its type.
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

/// The handles of the tables.
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
    /// The seed of the load, with which verification draws the rows again.
    seed: u64,
    ledgers: Ledgers,
}

impl<P: Protocol> Rubis<P> {
    /// Runs a request in a transaction. Returns whether it succeeded. If not, because a row is missing or an item
    /// is sold out, it has written nothing. The result, which a browser would get, is computed and dropped.
    ///
    /// # Errors
    /// The engine's error.
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
    /// Executes a request's procedure. Returns `None` if the request returns rows.
    fn execute_procedure(&self, request: &Request) -> Option<Result<bool, Failure>> {
        let Request::Change(change) = request else { return None };
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

/// Returns the shapes of the [procedures](weft_procedures).
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

/// Returns the shapes of the procedures that run with commutative operations, or without.
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
    type Client = StashingClient<Client, P>;

    fn procedures(parameters: &Parameters) -> Procedures {
        Procedures::of(procedures_by(parameters.operations))
    }

    fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
        load::declare(parameters, builder)
    }

    fn fill(
        database: Database<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        load::fill(database, parameters, options)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> Self::Client {
        let client = Client::new(&self.parameters, &self.ledgers, self.seed, seed, thread);
        StashingClient::new(client, &self.database)
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
        let at_rest = conditions::DatabaseAtRest {
            snapshot: &self.database.open_snapshot()?,
            tables: &self.tables,
            parameters: &self.parameters,
            seed: self.seed,
            ledgers: &self.ledgers,
        };
        conditions::verify(&at_rest, progress)
    }
}
