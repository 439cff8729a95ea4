//! TATP, the Telecom Application Transaction Processing benchmark: a mobile operator's register of subscribers,
//! their locations and their services.
//!
//! S. Neuvonen, A. Wolski, M. Manner, V. Raatikka: *Telecom Application Transaction Processing Benchmark (TATP),
//! Description*, 2009, the paper's \[15\] in *No Free Lunch* (Cervini et al., DaMoN 2015). It has seven very short
//! transactions on four tables. 80 % of them only read, and many ask for rows that do not exist.
//!
//! - [`schema`]: the four tables;
//! - `load`: the initial population, 80,000 subscribers [by default](Parameters::default), as in
//!   the paper;
//! - `client`: the random choices, among them the non-uniform one of a subscriber;
//! - `queries`, `changes`: the transactions that read, and those that write;
//! - [`mix`]: how often each is drawn, and how often it succeeds;
//! - `conditions`: the invariants, checked after a run.
//!
//! ## Success
//!
//! A transaction of TATP may run to its end and still not *succeed*, because the row that it asks for does not
//! exist, or because the row that it inserts exists already. The specification says how often each type succeeds
//! ([`TransactionType::SUCCESS_RATES`]), and counts only transactions that succeed. The harness does the same: a
//! transaction that does not succeed changes nothing, and is counted as rolled back.
//!
//! ## Differences from the specification
//!
//! - Results are transactions per second of one process, whose clients call the database directly, without a
//!   network and without SQL. There are no 20 minutes of ramp-up.
//! - There is one set of subscribers. The specification allows several, each in a database of its own.

mod changes;
mod client;
mod conditions;
mod load;
pub mod mix;
mod queries;
pub mod schema;

#[cfg(test)]
mod tests;

use weft::protocol::Protocol;
use weft::{Builder, Database, Failure, Table};
use weft_procedures::{Procedure, Shape};

pub use client::Client;
pub(crate) use client::unevenness;
pub use mix::{Mix, TransactionType};

use crate::snapshots::Snapshots;
use crate::workload::{
    Condition, LoadOptions, Outcome, Procedures, Progress, Workload, failure_of,
};
use changes::Change;
use client::Ledgers;
use queries::Query;
use schema::{AccessInfo, CallForwarding, SpecialFacility, Subscriber};

/// The largest number of subscribers: ten times as many as in the largest population of the specification.
pub const SUBSCRIBERS_MAX: u32 = 100_000_000;

/// The size and the mix of a TATP database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The number of subscribers: from 1 to [`SUBSCRIBERS_MAX`].
    pub subscribers: u32,
    /// How often each transaction is drawn.
    pub mix: Mix,
    /// The snapshots on which the read-only transactions run.
    pub snapshots: Snapshots,
}

impl Default for Parameters {
    /// Returns the population of *No Free Lunch*, with the standard mix and without snapshots.
    fn default() -> Self {
        Parameters { subscribers: 80_000, mix: Mix::STANDARD, snapshots: Snapshots::Off }
    }
}

/// The handles of the four tables.
struct Tables {
    subscriber: Table<Subscriber>,
    access_info: Table<AccessInfo>,
    special_facility: Table<SpecialFacility>,
    call_forwarding: Table<CallForwarding>,
}

/// A loaded TATP database.
pub struct Tatp<P: Protocol> {
    database: Database<P>,
    tables: Tables,
    parameters: Parameters,
    /// The seed of the load, with which verification draws the rows again.
    seed: u64,
    ledgers: Ledgers,
}

/// Returns the shapes of the [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    vec![
        queries::GetSubscriberData::<Dbx>::shape(),
        queries::GetNewDestination::<Dbx>::shape(),
        queries::GetAccessData::<Dbx>::shape(),
        changes::UpdateSubscriberData::<Dbx>::shape(),
        changes::UpdateLocation::<Dbx>::shape(),
        changes::InsertCallForwarding::<Dbx>::shape(),
        changes::DeleteCallForwarding::<Dbx>::shape(),
    ]
}

impl<P: Protocol> Workload<P> for Tatp<P> {
    const NAME: &'static str = "tatp";
    const TRANSACTIONS: &'static [&'static str] = &TransactionType::NAMES;
    type Parameters = Parameters;
    type Client = Client;

    fn procedures(_parameters: &Parameters) -> Procedures {
        Procedures::of(procedures())
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

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> Client {
        Client::new(&self.parameters, &self.ledgers, seed, thread)
    }

    #[inline]
    fn execute(&self, client: &mut Client) -> Result<Outcome, Failure> {
        let transaction = client.draw_transaction();
        let query = |query| queries::execute(self, &query);
        let succeeded = match transaction {
            TransactionType::GetSubscriberData => query(Query::draw_subscriber_data(client))?,
            TransactionType::GetNewDestination => query(Query::draw_new_destination(client))?,
            TransactionType::GetAccessData => query(Query::draw_access_data(client))?,
            TransactionType::UpdateSubscriberData => {
                let change = Change::draw_subscriber_data(client);
                changes::execute(self, client, &change)?
            }
            TransactionType::UpdateLocation => {
                let change = Change::draw_location(client);
                changes::execute(self, client, &change)?
            }
            TransactionType::InsertCallForwarding => {
                let change = Change::draw_insert(client);
                changes::execute(self, client, &change)?
            }
            TransactionType::DeleteCallForwarding => {
                let change = Change::draw_delete(client);
                changes::execute(self, client, &change)?
            }
        };
        Ok(Outcome::new(transaction as usize, !succeeded))
    }

    fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure> {
        let at_rest = conditions::DatabaseAtRest {
            snapshot: &self.database.open_snapshot()?,
            tables: &self.tables,
            subscribers: self.parameters.subscribers,
            seed: self.seed,
            ledgers: &self.ledgers,
        };
        conditions::verify(&at_rest, progress)
    }
}
