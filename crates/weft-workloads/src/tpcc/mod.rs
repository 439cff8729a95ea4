//! TPC-C, revision 5.11: a wholesale supplier's order entry.
//!
//! There are warehouses of ten districts, each with three thousand customers, and five types of transaction. The
//! code is arranged for a reader who has the specification at hand: each step has its clause number.
//!
//! - [`schema`]: the nine tables (clause 1);
//! - [`random`]: `NURand`, last names, random text (clauses 2.1.6 and 4.3.2);
//! - [`load`]: the initial population (clause 4.3);
//! - [`customer`]: the selection of a customer by number or name;
//! - [`new_order`], [`payment`], [`order_status`], [`delivery`], [`stock_level`]: the five
//!   transactions, one file each (clauses 2.4 to 2.8): input, output, profile;
//! - [`mix`]: how often each is drawn (clause 5.2.4);
//! - [`client`]: the counterpart of a terminal and its user;
//! - [`conditions`]: the consistency conditions (clause 3.3.2) and further ones, checked after a run.
//!
//! ## Differences from the specification
//!
//! - Clients have no think times and keying times (clause 5.2.5): each runs one transaction after the other.
//!   Results are transactions per second, not tpmC. They can be compared only with results that were obtained in
//!   the same way.
//! - Terminals are not bound to a district. A client draws a district for each transaction. If it has several home
//!   warehouses, it draws one of these too ([`client`]).
//! - All items are looked up first, and an order with an item that does not exist is rolled back as soon as this is
//!   found. So New-Order can be chopped. In clause 2.4.2.3, the rest of the profile is executed before the
//!   roll-back. This leaves no trace, but it takes time: that of one order in a hundred.
//! - Delivery is not deferred to a queue (clause 2.7.2). It is executed when it is drawn, and one transaction
//!   delivers for all ten districts, which clause 2.7 allows.
//! - Every transaction is executed serializably, also Stock-Level, for which clause 2.8 allows weaker isolation.
//!   With [`Parameters::snapshots`], Stock-Level and Order-Status read a snapshot, which is serializable too.
//! - Text is ASCII.

#![allow(
    clippy::inconsistent_digit_grouping,
    reason = "the cents of an amount are set apart: 5_000_00 is 5,000.00"
)]

pub mod client;
pub mod conditions;
pub mod customer;
pub mod delivery;
pub mod load;
pub mod mix;
pub mod new_order;
pub mod order_status;
pub mod payment;
pub mod random;
pub mod schema;
pub mod stock_level;

#[cfg(test)]
mod tests;

use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft::schema::Record;
use weft::{Builder, Database, Failure, Table};
use weft_procedures::chopping::Token;
use weft_procedures::{Procedure, Shape};

pub use client::Client;
pub use mix::Mix;

use crate::snapshots::Snapshots;
use crate::workload::{
    Condition, LoadOptions, Outcome, Procedures, Progress, Workload, failure_of,
};
use mix::TransactionType;
use random::Constants;
use schema::{
    Customer, DISTRICTS, District, History, Item, NewOrderRow, Order, OrderLine, Stock, Warehouse,
};

/// The size and the mix of a TPC-C database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The number of warehouses, W in the specification; at least 1.
    pub warehouses: u16,
    /// How often each transaction is drawn.
    pub mix: Mix,
    /// The numbers of rows per warehouse.
    pub scale: Scale,
    /// The snapshots on which Stock-Level and Order-Status run instead of as transactions.
    pub snapshots: Snapshots,
    /// Whether all tables are B+-trees, including those that are declared as hash tables.
    pub all_ordered: bool,
    /// Where Delivery begins its search for the oldest new order of a district.
    pub delivery_search: DeliverySearch,
}

impl Parameters {
    /// Returns all districts, warehouse by warehouse.
    fn districts(&self) -> impl Iterator<Item = (u16, u8)> + Clone + use<> {
        (1..=self.warehouses).flat_map(|w_id| (1..=DISTRICTS).map(move |d_id| (w_id, d_id)))
    }
}

impl Default for Parameters {
    /// Returns one warehouse, the standard mix and the specification's cardinalities, without snapshots, and with
    /// tables as they are declared.
    fn default() -> Self {
        Parameters {
            warehouses: 1,
            mix: Mix::STANDARD,
            scale: Scale::SPECIFICATION,
            snapshots: Snapshots::Off,
            all_ordered: false,
            delivery_search: DeliverySearch::FromStart,
        }
    }
}

/// Where Delivery begins its search for the oldest new order of a district.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliverySearch {
    /// At the smallest possible order number. So it passes the new orders that were delivered while a snapshot shows
    /// them.
    FromStart,
    /// Behind the last order that the client has delivered there, as in Silo's code for TPC-C, from which DBX's derives
    /// (DBX, §7.1). The result is the same: order numbers are counted up, and the oldest order is delivered first.
    BehindLast,
}

/// Cardinalities (clause 4.3.3.1). All values except [`Scale::SPECIFICATION`] are for tests: with fewer rows there
/// is more contention, and the rows fit into smaller caches, so measurements have another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The number of items, and of rows of stock per warehouse.
    pub items: u32,
    /// The number of customers per district.
    pub customers_per_district: u32,
    /// The number of orders per district after the load. The last 30 % of them are not delivered.
    pub orders_per_district: u32,
}

impl Scale {
    /// The cardinalities of the specification.
    pub const SPECIFICATION: Scale =
        Scale { items: 100_000, customers_per_district: 3_000, orders_per_district: 3_000 };

    /// A database that loads immediately, for tests.
    pub const TINY: Scale =
        Scale { items: 200, customers_per_district: 30, orders_per_district: 30 };

    /// Returns whether these are the cardinalities of the specification.
    pub fn is_specification(&self) -> bool {
        *self == Scale::SPECIFICATION
    }

    /// Returns the number of orders per district that the load delivers: 2,100 in the specification.
    pub const fn delivered_per_district(&self) -> u32 {
        self.orders_per_district - self.orders_per_district * 3 / 10
    }

    /// Returns the number of last names in use. The load gives each of them to one of the first customers of a
    /// district.
    pub(crate) const fn last_names(&self) -> u32 {
        if self.customers_per_district < random::LAST_NAMES {
            self.customers_per_district
        } else {
            random::LAST_NAMES
        }
    }
}

/// The handles of the nine tables.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) warehouse: Table<Warehouse>,
    pub(crate) district: Table<District>,
    pub(crate) customer: Table<Customer>,
    pub(crate) history: Table<History>,
    pub(crate) new_order: Table<NewOrderRow>,
    pub(crate) order: Table<Order>,
    pub(crate) order_line: Table<OrderLine>,
    pub(crate) item: Table<Item>,
    pub(crate) stock: Table<Stock>,
}

/// A loaded TPC-C database.
pub struct Tpcc<P: Protocol> {
    database: Database<P>,
    tables: Tables,
    parameters: Parameters,
    constants: Constants,
    /// The number of clients created so far. Each client gets its origin of history rows from it.
    clients: Word,
}

impl<P: Protocol> Tpcc<P> {
    /// Loads the database as [`Workload::load`] does, but opens it with `builder`, which says where and how it is
    /// stored. `builder` must not name tables. `options` must not name a directory; they determine only the rows.
    ///
    /// # Errors
    /// Those of [`Workload::load`].
    pub fn load_with(
        builder: Builder<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        load::fill(load::declare(parameters, builder).open()?, parameters, options)
    }

    /// Opens a database that was loaded earlier with the same parameters and seed. `builder` says where it is
    /// stored, and must not name tables.
    ///
    /// # Errors
    /// The engine's error.
    pub fn reopen(
        builder: Builder<P>,
        parameters: &Parameters,
        seed: u64,
    ) -> Result<Self, Failure> {
        load::reopen(builder, parameters, seed)
    }

    /// Returns the parameters with which the database was loaded.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }
}

/// Returns the shapes of the [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    vec![
        new_order::NewOrder::<Dbx>::shape(),
        payment::Payment::<Dbx>::shape(),
        order_status::OrderStatus::<Dbx>::shape(),
        delivery::Delivery::<Dbx>::shape(),
        stock_level::StockLevel::<Dbx>::shape(),
    ]
}

/// Returns the tokens: a row of `NEW-ORDER` is the token of an order and its lines. New-Order inserts all of them.
/// Delivery accesses only those whose token it has deleted. Order numbers are counted up, so a deleted token's key
/// is never used again.
pub fn tokens() -> Vec<Token> {
    let name = |name: &str| name.to_owned();
    let tables = vec![name(schema::Order::TABLE), name(schema::OrderLine::TABLE)];
    vec![Token { table: name(schema::NewOrderRow::TABLE), tables }]
}

impl<P: Protocol> Workload<P> for Tpcc<P> {
    const NAME: &'static str = "tpcc";
    const TRANSACTIONS: &'static [&'static str] = &TransactionType::NAMES;
    type Parameters = Parameters;
    type Client = Client;

    fn procedures(_parameters: &Parameters) -> Procedures {
        Procedures { shapes: procedures(), tokens: tokens() }
    }

    fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
        load::declare(parameters, builder.all_ordered(parameters.all_ordered))
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

    fn client(&self, seed: u64, thread: usize, threads: usize) -> Client {
        // Relaxed: the numbers must only be different.
        let number = self.clients.fetch_add(1, Ordering::Relaxed) as u32;
        Client::new(&self.parameters, self.constants, seed, number, thread, threads)
    }

    fn execute(&self, client: &mut Client) -> Result<Outcome, Failure> {
        let transaction = client.draw_transaction();
        let rolled_back = match transaction {
            TransactionType::NewOrder => new_order::execute(self, client)?,
            TransactionType::Payment => payment::execute(self, client)?,
            TransactionType::OrderStatus => order_status::execute(self, client)?,
            TransactionType::Delivery => delivery::execute(self, client)?,
            TransactionType::StockLevel => stock_level::execute(self, client)?,
        };
        Ok(Outcome::new(transaction as usize, rolled_back))
    }

    fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure> {
        conditions::verify(
            &self.database.open_snapshot()?,
            &self.tables,
            &self.parameters,
            progress,
        )
    }
}
