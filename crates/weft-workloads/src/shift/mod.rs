//! A hot spot that moves and changes its kind.
//!
//! Each transaction updates one row that is not hot. A share of them also goes to the hot spot, which is for some
//! seconds each:
//!
//! 1. a *counter*, to which transactions **add** by an [operation](weft::operation) that returns nothing, so that a
//!    protocol may let additions commute;
//! 2. a *row* that transactions **modify**: they read it, and write what they have computed from it;
//! 3. the *oldest row of a table*, which transactions **take**: they find it by a scan, delete it, and insert another
//!    row at the table's end.
//!
//! Then it begins again, with another counter. So whatever a protocol has learned of the hot spot becomes wrong, by
//! its place and by its kind. The other transactions are **plain**.
//!
//! - `client`: the choice of the next transaction;
//! - `conditions`: the invariants, checked after a run.

mod client;
mod conditions;

#[cfg(test)]
mod tests;

use weft::protocol::Protocol;
use weft::{Builder, Database, Error, Failure, Record, Table, Transaction, column_of};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure, Shape};

pub use client::{Client, Kind, Request, SpotNumber, hot_spot};

use crate::incr::Change;
use crate::load::LoadInProgress;
use crate::popularity;
use crate::stashing::StashingClient;
use crate::workload::{
    Condition, LoadOptions, Outcome, Procedures, Progress, Workload, failure_of,
};
use client::RequestSource;

/// The number of rows that take turns in being hot.
pub const HOT_ROWS: u64 = 64;

/// The fewest rows: the hot ones, and another.
pub const RECORDS_MIN: u64 = HOT_ROWS + 1;

/// The most rows.
pub const RECORDS_MAX: u64 = popularity::RECORDS_MAX;

/// The length of the table whose oldest row is hot at times.
const LINE_LENGTH: u64 = 1_000;

/// The number of rows, and how the hot spot changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The number of rows, from [`RECORDS_MIN`] to [`RECORDS_MAX`]. The first of them take turns in being hot.
    pub records: u64,
    /// The share of the transactions that go to the hot spot, in percent.
    pub hot_percent: u32,
    /// How often the hot spot moves and changes its kind.
    pub change: Change,
}

/// A row, hot or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "shift_spots", storage = "hash")]
pub struct Spot {
    /// The row's number, from 0.
    #[record(key)]
    pub id: u64,
    /// How often it was changed.
    pub value: i64,
}

/// A row of the table whose oldest row is hot at times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "shift_line", storage = "ordered")]
pub struct Ticket {
    /// The row's number.
    #[record(key)]
    pub number: u64,
    /// The row that was updated in the transaction that inserted this one.
    pub with: u64,
}

/// The handles of the tables.
struct Tables {
    spots: Table<Spot>,
    line: Table<Ticket>,
}

/// A loaded database.
pub struct Shift<P: Protocol> {
    database: Database<P>,
    tables: Tables,
    parameters: Parameters,
    source: RequestSource,
}

/// Returns the shapes of the [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    vec![Plain::<Dbx>::shape(), Add::<Dbx>::shape(), Modify::<Dbx>::shape(), Take::<Dbx>::shape()]
}

impl<P: Protocol> Workload<P> for Shift<P> {
    const NAME: &'static str = "shift";
    const TRANSACTIONS: &'static [&'static str] = &["plain", "add", "modify", "take"];
    type Parameters = Parameters;
    type Client = StashingClient<Client, P>;

    fn procedures(_parameters: &Parameters) -> Procedures {
        Procedures::of(procedures())
    }

    fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
        let &Parameters { records, hot_percent, change } = parameters;
        assert!((RECORDS_MIN..=RECORDS_MAX).contains(&records), "{records} rows");
        assert!(hot_percent <= 100, "{hot_percent} percent");
        assert!(!change.every.is_zero(), "changes every 0 s");
        builder.table_with_capacity::<Spot>(records as usize).table::<Ticket>()
    }

    fn fill(
        database: Database<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        let tables = Tables { spots: database.table()?, line: database.table()? };
        let source = RequestSource::new(parameters);
        let shift = Shift { database, tables, parameters: *parameters, source };
        let records = parameters.records;
        let mut loading = LoadInProgress::new(options, records + LINE_LENGTH);
        let spot: fn(&(), u64) -> Option<Spot> = |(), id| Some(Spot { id, value: 0 });
        loading.fill(&shift.database, &shift.tables.spots, (&(), records), spot)?;
        let ticket: fn(&(), u64) -> Option<Ticket> = |(), number| Some(Ticket { number, with: 0 });
        loading.fill(&shift.database, &shift.tables.line, (&(), LINE_LENGTH), ticket)?;
        loading.finish();
        Ok(shift)
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

/// Updates a row that is not hot.
#[procedure(Plain)]
#[inline]
fn plain<P: Protocol>(tables: &Tables, tx: &Transaction<'_, P>, other: u64) -> Result<(), Error> {
    tx.update(&tables.spots, &other, |row| row.value += 1)?.expect("rows stay");
    Ok(())
}

/// Adds 1 to the hot counter, and updates another row.
#[procedure(Add)]
#[inline]
fn add<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    hot: u64,
    other: u64,
) -> Result<(), Error> {
    tx.add(&tables.spots, &hot, column_of!(Spot.value), 1)?;
    tx.update(&tables.spots, &other, |row| row.value += 1)?.expect("rows stay");
    Ok(())
}

/// Reads and writes the hot row, and updates another one.
#[procedure(Modify)]
#[inline]
fn modify<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    hot: u64,
    other: u64,
) -> Result<(), Error> {
    let value = tx.get(&tables.spots, &hot)?.expect("rows stay").value;
    tx.update(&tables.spots, &hot, |row| row.value = value + 1)?.expect("rows stay");
    tx.update(&tables.spots, &other, |row| row.value += 1)?.expect("rows stay");
    Ok(())
}

/// Takes the oldest row of the line, inserts one at its end, and updates another row.
#[procedure(Take)]
#[inline]
fn take<P: Protocol>(tables: &Tables, tx: &Transaction<'_, P>, other: u64) -> Result<(), Error> {
    // An attempt that reads two states of the database may find no row. It does not commit.
    let Some(oldest) = tx.range(&tables.line, ..).next() else {
        return Ok(());
    };
    let number = oldest?.number;
    tx.delete(&tables.line, &number)?;
    tx.insert(&tables.line, Ticket { number: number + LINE_LENGTH, with: other })?;
    tx.update(&tables.spots, &other, |row| row.value += 1)?.expect("rows stay");
    Ok(())
}

impl<P: Protocol> Shift<P> {
    /// Runs a request in a transaction. Returns whether it succeeds, which it does if it commits.
    ///
    /// # Errors
    /// The engine's error. After a conflict, the request must be run again.
    #[inline]
    pub fn run(&self, tx: &Transaction<'_, P>, request: &Request) -> Result<bool, Error> {
        let tables = &self.tables;
        match *request {
            Request::Plain { other } => plain(tables, tx, other)?,
            Request::Add { hot, other } => add(tables, tx, hot.key(), other)?,
            Request::Modify { hot, other } => modify(tables, tx, hot.key(), other)?,
            Request::Take { other } => take(tables, tx, other)?,
        }
        Ok(true)
    }

    /// Executes a request's procedure.
    #[inline]
    fn execute_procedure(&self, request: &Request) -> Option<Result<bool, Failure>> {
        let Shift { database, tables, .. } = self;
        let done: Result<(), Error> = match *request {
            Request::Plain { other } => database.execute(&mut Plain::new(tables, other)),
            Request::Add { hot, other } => {
                database.execute(&mut Add::new(tables, hot.key(), other))
            }
            Request::Modify { hot, other } => {
                database.execute(&mut Modify::new(tables, hot.key(), other))
            }
            Request::Take { other } => database.execute(&mut Take::new(tables, other)),
        };
        Some(done.map(|()| true).map_err(failure_of))
    }
}
