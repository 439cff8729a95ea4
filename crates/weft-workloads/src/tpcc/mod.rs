//! TPC-C, revision 5.11: a wholesale supplier's order entry.
//!
//! Warehouses of ten districts each with three thousand customers; five kinds of transaction.
//! The code is arranged for a reader who has the specification at hand; clause numbers stand
//! where each step is.
//!
//! - [`schema`]: the nine tables (clause 1);
//! - [`random`]: `NURand`, last names, random text (clauses 2.1.6 and 4.3.2);
//! - [`load`]: the initial population (clause 4.3);
//! - [`customer`]: the selection of a customer by number or name;
//! - [`new_order`], [`payment`], [`order_status`], [`delivery`], [`stock_level`]: the five
//!   transactions, one file each (clauses 2.4 to 2.8): input, output, profile;
//! - [`mix`]: how often each is drawn (clause 5.2.4);
//! - [`client`]: what stands for a terminal and its user;
//! - [`conditions`]: the consistency conditions (clause 3.3.2) and some more, checked after a run.
//!
//! ## Where this is not the benchmark of the specification
//!
//! - Clients think no time and type no keys (clause 5.2.5): each runs one transaction after the
//!   other. Results are transactions per second, not tpmC, and comparable only with others
//!   obtained so.
//! - Terminals are not bound to a district: a client draws a district for each transaction, and a
//!   warehouse too if it has several for a home ([`client`]).
//! - An order with an item that does not exist is rolled back as soon as this is found, and all items
//!   are looked up first, so that New-Order can be chopped. Clause 2.4.2.3 would have the rest of the
//!   profile executed before the roll-back, which leaves no trace but the time it takes: that of one
//!   order in a hundred.
//! - Delivery is not deferred to a queue (clause 2.7.2): it is executed when it is drawn, and its
//!   ten districts are delivered by one transaction, which clause 2.7 allows.
//! - Every transaction is executed serializably, also Stock-Level, which clause 2.8 would allow to
//!   see less. If so asked for ([`Parameters::snapshots`]), Stock-Level and Order-Status read a
//!   snapshot, which is serializable, too.
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
use crate::workload::{Condition, LoadOptions, Outcome, Progress, Workload, failure_of};
use mix::TransactionType;
use random::Constants;
use schema::{
    Customer, DISTRICTS, District, History, Item, NewOrderRow, Order, OrderLine, Stock, Warehouse,
};

/// Size and mix of a TPC-C database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The number of warehouses, W of the specification; at least 1.
    pub warehouses: u16,
    /// How often each transaction is drawn.
    pub mix: Mix,
    /// Rows per warehouse.
    pub scale: Scale,
    /// On which snapshots Stock-Level and Order-Status run instead of as transactions.
    pub snapshots: Snapshots,
    /// Whether all tables are B+-trees, also those that are declared as hash tables.
    pub all_ordered: bool,
}

impl Parameters {
    /// All districts, warehouse by warehouse.
    fn districts(&self) -> impl Iterator<Item = (u16, u8)> + Clone + use<> {
        (1..=self.warehouses).flat_map(|w_id| (1..=DISTRICTS).map(move |d_id| (w_id, d_id)))
    }
}

impl Default for Parameters {
    /// One warehouse, the standard mix, the specification's cardinalities, no snapshots, tables as they are declared.
    fn default() -> Self {
        Parameters {
            warehouses: 1,
            mix: Mix::STANDARD,
            scale: Scale::SPECIFICATION,
            snapshots: Snapshots::Off,
            all_ordered: false,
        }
    }
}

/// Cardinalities (clause 4.3.3.1). Anything but [`Scale::SPECIFICATION`] is for tests: fewer rows
/// are more contended and sit in nearer caches, so that measurements mean something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Items, and rows of stock per warehouse.
    pub items: u32,
    /// Customers per district.
    pub customers_per_district: u32,
    /// Orders per district after the load, of which the last 30 % are not delivered.
    pub orders_per_district: u32,
}

impl Scale {
    /// The cardinalities of the specification.
    pub const SPECIFICATION: Scale =
        Scale { items: 100_000, customers_per_district: 3_000, orders_per_district: 3_000 };

    /// A database that loads at once, for tests.
    pub const TINY: Scale =
        Scale { items: 200, customers_per_district: 30, orders_per_district: 30 };

    /// Whether these are the cardinalities of the specification.
    pub fn is_specification(&self) -> bool {
        *self == Scale::SPECIFICATION
    }

    /// Orders per district that the load leaves delivered: 2,100 in the specification.
    pub const fn delivered_per_district(&self) -> u32 {
        self.orders_per_district - self.orders_per_district * 3 / 10
    }

    /// Last names in use: the load gives the first customers of a district one of each.
    pub(crate) const fn last_names(&self) -> u32 {
        if self.customers_per_district < random::LAST_NAMES {
            self.customers_per_district
        } else {
            random::LAST_NAMES
        }
    }
}

/// Handles of the nine tables.
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
    /// Clients made so far; gives each its origin of history rows.
    clients: Word,
}

impl<P: Protocol> Tpcc<P> {
    /// As [`Workload::load`], but `builder`, which names no tables, says where the database lies
    /// and how: `options`, which name no directory, decide the rows only.
    ///
    /// # Errors
    /// Those of [`Workload::load`].
    pub fn load_with(
        builder: Builder<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        load::load(builder, parameters, options)
    }

    /// Opens a database that was loaded before, with the same parameters and seed; `builder`, which
    /// names no tables, says where it lies.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn reopen(
        builder: Builder<P>,
        parameters: &Parameters,
        seed: u64,
    ) -> Result<Self, Failure> {
        load::reopen(builder, parameters, seed)
    }

    /// The parameters it was loaded with.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }
}

/// The shapes of its [procedures](weft_procedures).
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

/// What its tables' rows go by: a row of `NEW-ORDER` is the token of an order and its lines. New-Order inserts
/// all of them; Delivery touches those whose token it has deleted. Order numbers are counted, so there is never
/// another token with the same key.
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

    fn load(parameters: &Parameters, options: &LoadOptions<'_>) -> Result<Self, Failure> {
        let builder = options.builder_with(procedures(), tokens());
        load::load(builder.all_ordered(parameters.all_ordered), parameters, options)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> Client {
        // ORDERING: relaxed, since only the numbers' being different matters.
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
