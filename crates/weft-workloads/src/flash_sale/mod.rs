//! A flash sale: orders that check a stock, most of them for a few hot items.
//!
//! Two transactions:
//!
//! - **order** reads how many units of an item are left. If there are enough, it takes some, counts them for the
//!   buyer, and inserts an order. Otherwise it does not succeed, and is counted as rolled back.
//! - **restock** adds units to an item. It is drawn so rarely that items are sold out some of the time.
//!
//! The check must see the present number of units, so the additions and subtractions of two orders do not commute.
//! [`Parameters::hot`] chooses one hot item or several.
//!
//! With [`Parameters::takes`] an order [takes](Transaction::take) the units instead, which fails if there are not enough, and
//! a restock gives them. Neither says how many are left, so those of one item commute.
//!
//! - `client`: the choice of the next order;
//! - `conditions`: the invariants, checked after a run.

mod client;
mod conditions;

#[cfg(test)]
mod tests;

use weft::protocol::Protocol;
use weft::{Builder, Database, Error, Failure, Record, Table, Transaction, column_of};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure, Shape};

pub use client::{Client, Request};

use crate::load::LoadInProgress;
use crate::popularity;
use crate::stashing::StashingClient;
use crate::workload::{
    Condition, LoadOptions, Outcome, Procedures, Progress, Workload, failure_of,
};
use client::RequestSource;

/// The most items, and the most buyers.
pub const RECORDS_MAX: u64 = popularity::RECORDS_MAX;

/// The units that a restock adds. One transaction in 50 restocks, and orders take two units on average. So about one order in
/// six is refused, once what was loaded is sold.
const UNITS_RESTOCKED: i64 = 80;

/// The size of the tables, and the popularity of the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The number of items, from 2 to [`RECORDS_MAX`].
    pub items: u64,
    /// The number of buyers, from 1 to [`RECORDS_MAX`].
    pub buyers: u64,
    /// The number of hot items: at least 1, and fewer than there are items.
    pub hot: u64,
    /// The share of the transactions for a hot item, in percent.
    pub hot_percent: u32,
    /// The units of each item after the load, at least 0.
    pub stock: i64,
    /// Whether orders take units, in place of reading how many are left.
    pub takes: bool,
}

impl Default for Parameters {
    /// Returns ten thousand items with a hundred units each, one of which is in nine of ten transactions, and a hundred thousand
    /// buyers, whose orders read how many units are left.
    fn default() -> Self {
        Parameters {
            items: 10_000,
            buyers: 100_000,
            hot: 1,
            hot_percent: 90,
            stock: 100,
            takes: false,
        }
    }
}

/// An item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "sale_items", storage = "hash")]
pub struct Item {
    /// The item's number, from 0. The hot items come first.
    #[record(key)]
    pub id: u64,
    /// The units that are left, never less than 0.
    #[record(min = 0)]
    pub left: i64,
    /// The units sold.
    pub sold: i64,
    /// All units that there ever were.
    pub supplied: i64,
}

/// A buyer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "sale_buyers", storage = "hash")]
pub struct Buyer {
    /// The buyer's number, from 0.
    #[record(key)]
    pub id: u64,
    /// The number of orders.
    pub orders: u32,
    /// The units in all of them.
    pub units: i64,
}

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "sale_orders", key(buyer, number))]
pub struct Order {
    /// The buyer.
    pub buyer: u64,
    /// The number among the buyer's orders, from 1.
    pub number: u32,
    /// The item.
    pub item: u64,
    /// The units.
    pub units: i64,
}

/// The handles of the tables.
struct Tables {
    items: Table<Item>,
    buyers: Table<Buyer>,
    orders: Table<Order>,
}

/// A loaded flash sale.
pub struct FlashSale<P: Protocol> {
    database: Database<P>,
    tables: Tables,
    parameters: Parameters,
    source: RequestSource,
}

/// Returns the shapes of the [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    [procedures_by(false), procedures_by(true)].concat()
}

/// Returns the shapes of the procedures that run if orders take units, or if they read how many are left.
fn procedures_by(takes: bool) -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    match takes {
        true => vec![PlaceOrderByTake::<Dbx>::shape(), RestockByGive::<Dbx>::shape()],
        false => vec![PlaceOrder::<Dbx>::shape(), Restock::<Dbx>::shape()],
    }
}

impl<P: Protocol> Workload<P> for FlashSale<P> {
    const NAME: &'static str = "flash-sale";
    const TRANSACTIONS: &'static [&'static str] = &["order", "restock"];
    type Parameters = Parameters;
    type Client = StashingClient<Client, P>;

    fn procedures(parameters: &Parameters) -> Procedures {
        Procedures::of(procedures_by(parameters.takes))
    }

    fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
        let &Parameters { items, buyers, hot, hot_percent, stock, takes: _ } = parameters;
        assert!(stock >= 0, "{stock} units");
        assert!((2..=RECORDS_MAX).contains(&items), "{items} items");
        assert!((1..=RECORDS_MAX).contains(&buyers), "{buyers} buyers");
        assert!((1..items).contains(&hot), "{hot} of {items} items are hot");
        assert!(hot_percent <= 100, "{hot_percent} percent");
        builder
            .table_with_capacity::<Item>(items as usize)
            .table_with_capacity::<Buyer>(buyers as usize)
            .table::<Order>()
    }

    fn fill(
        database: Database<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        let tables = Tables {
            items: database.table()?,
            buyers: database.table()?,
            orders: database.table()?,
        };
        let source = RequestSource::new(parameters);
        let sale = FlashSale { database, tables, parameters: *parameters, source };
        let &Parameters { items, buyers, stock, .. } = parameters;
        let mut loading = LoadInProgress::new(options, items + buyers);
        let item: fn(&i64, u64) -> Option<Item> =
            |&stock, id| Some(Item { id, left: stock, sold: 0, supplied: stock });
        loading.fill(&sale.database, &sale.tables.items, (&stock, items), item)?;
        let buyer: fn(&(), u64) -> Option<Buyer> = |(), id| Some(Buyer { id, orders: 0, units: 0 });
        loading.fill(&sale.database, &sale.tables.buyers, (&(), buyers), buyer)?;
        loading.finish();
        Ok(sale)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> Self::Client {
        StashingClient::new(self.source.client(seed, thread), &self.database)
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
        let snapshot = self.database.open_snapshot()?;
        conditions::verify(&snapshot, &self.tables, &self.parameters, &self.source, progress)
    }
}

/// Orders units of an item. Returns whether there were enough of them.
#[procedure(PlaceOrder)]
#[inline]
fn place_order<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    buyer: u64,
    item: u64,
    units: i64,
) -> Result<bool, Error> {
    let left = tx.get(&tables.items, &item)?.expect("items stay").left;
    if left < units {
        return Ok(false);
    }
    tx.update(&tables.items, &item, |row| {
        row.left -= units;
        row.sold += units;
    })?
    .expect("items stay");
    let number = tx.update(&tables.buyers, &buyer, |row| {
        row.orders += 1;
        row.units += units;
        row.orders
    })?;
    let number = number.expect("buyers stay");
    tx.insert(&tables.orders, Order { buyer, number, item, units })?;
    Ok(true)
}

/// Orders units of an item, by taking them. Returns whether there were enough of them.
#[procedure(PlaceOrderByTake)]
#[inline]
fn place_order_by_take<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    buyer: u64,
    item: u64,
    units: i64,
) -> Result<bool, Error> {
    match tx.take(&tables.items, &item, column_of!(Item.left), units) {
        Ok(()) => {}
        Err(Error::Failure(Failure::NotEnough { .. })) => return Ok(false),
        Err(error) => return Err(error),
    }
    tx.add(&tables.items, &item, column_of!(Item.sold), units)?;
    let number = tx.update(&tables.buyers, &buyer, |row| {
        row.orders += 1;
        row.units += units;
        row.orders
    })?;
    let number = number.expect("buyers stay");
    tx.insert(&tables.orders, Order { buyer, number, item, units })?;
    Ok(true)
}

/// Gives units to an item.
#[procedure(RestockByGive)]
#[inline]
fn restock_by_give<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    item: u64,
) -> Result<bool, Error> {
    tx.give(&tables.items, &item, column_of!(Item.left), UNITS_RESTOCKED)?;
    tx.add(&tables.items, &item, column_of!(Item.supplied), UNITS_RESTOCKED)?;
    Ok(true)
}

/// Adds units to an item.
#[procedure(Restock)]
#[inline]
fn restock<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    item: u64,
) -> Result<bool, Error> {
    tx.update(&tables.items, &item, |row| {
        row.left += UNITS_RESTOCKED;
        row.supplied += UNITS_RESTOCKED;
    })?
    .expect("items stay");
    Ok(true)
}

impl<P: Protocol> FlashSale<P> {
    /// Runs a request in a transaction. Returns whether it succeeds if it commits: whether enough units were left.
    ///
    /// # Errors
    /// The engine's error. After a conflict, the request must be run again.
    #[inline]
    pub fn run(&self, tx: &Transaction<'_, P>, request: &Request) -> Result<bool, Error> {
        let FlashSale { tables, parameters, .. } = self;
        match *request {
            Request::Order { buyer, item, units } if parameters.takes => {
                place_order_by_take(tables, tx, buyer, item, units)
            }
            Request::Order { buyer, item, units } => place_order(tables, tx, buyer, item, units),
            Request::Restock { item } if parameters.takes => restock_by_give(tables, tx, item),
            Request::Restock { item } => restock(tables, tx, item),
        }
    }

    /// Executes a request's procedure.
    #[inline]
    fn execute_procedure(&self, request: &Request) -> Option<Result<bool, Failure>> {
        let FlashSale { database, tables, parameters, .. } = self;
        let done = match *request {
            Request::Order { buyer, item, units } if parameters.takes => {
                database.execute(&mut PlaceOrderByTake::new(tables, buyer, item, units))
            }
            Request::Order { buyer, item, units } => {
                database.execute(&mut PlaceOrder::new(tables, buyer, item, units))
            }
            Request::Restock { item } if parameters.takes => {
                database.execute(&mut RestockByGive::new(tables, item))
            }
            Request::Restock { item } => database.execute(&mut Restock::new(tables, item)),
        };
        Some(done.map_err(failure_of))
    }
}
