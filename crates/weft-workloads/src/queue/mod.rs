//! A queue: producers append to a table, and consumers take its oldest row.
//!
//! Two transactions, drawn in equal shares, so that the queue neither runs empty nor grows without bound:
//!
//! - **produce** draws the next number from the row at the queue's end, and inserts an entry under it;
//! - **consume** finds the entry with the lowest number by a scan, and deletes it. If the queue is empty, it does not
//!   succeed, and is counted as rolled back.
//!
//! Each also updates a row of its client. So all producers conflict at one end and all consumers at the other, where
//! a scan, an insertion and a deletion meet in an index. Entries are consumed once each, and in the order of their
//! numbers, which is that of their production.
//!
//! - `client`: the choice between the two, and an account of both;
//! - `conditions`: the invariants, checked after a run.

mod client;
mod conditions;

#[cfg(test)]
mod tests;

use weft::protocol::Protocol;
use weft::{Builder, Database, Error, Failure, Record, Table, Transaction};
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

/// The most entries that are loaded.
pub const BACKLOG_MAX: u64 = popularity::RECORDS_MAX;

/// The most clients of a database, each of which has a row.
const CLIENTS_MAX: u64 = 1 << 12;

/// The producer of the loaded entries, which is no client.
const LOADER: u32 = u32::MAX;

/// The key of the only row of the queue's end.
const END: u8 = 0;

/// The length of the queue after the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The number of entries that are loaded, at most [`BACKLOG_MAX`].
    pub backlog: u64,
}

impl Default for Parameters {
    /// Returns a queue of a thousand entries.
    fn default() -> Self {
        Parameters { backlog: 1_000 }
    }
}

/// An entry of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "queue_entries", storage = "ordered")]
pub struct Entry {
    /// The number, from 0, in the order of production.
    #[record(key)]
    pub number: u64,
    /// The client that produced it.
    pub producer: u32,
    /// The number among those that this client produced, from 1.
    pub sequence: u64,
}

/// The end of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "queue_end", storage = "hash")]
pub struct End {
    /// Always 0: there is one row.
    #[record(key)]
    pub id: u8,
    /// The number of the next entry.
    pub next: u64,
}

/// A client of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "queue_clients", storage = "hash")]
pub struct Participant {
    /// The client's number, from 0.
    #[record(key)]
    pub id: u32,
    /// How many entries it has produced.
    pub produced: u64,
    /// How many entries it has consumed.
    pub consumed: u64,
    /// The sum of the numbers that it has consumed.
    pub sum: u64,
    /// The number that it has consumed last, plus one; 0 if it has not consumed any.
    pub after_last: u64,
    /// How many entries it has consumed after one with a higher number.
    pub disordered: u64,
}

/// The handles of the tables.
struct Tables {
    entries: Table<Entry>,
    end: Table<End>,
    clients: Table<Participant>,
}

/// A loaded queue.
pub struct Queue<P: Protocol> {
    database: Database<P>,
    tables: Tables,
    parameters: Parameters,
    source: RequestSource,
}

/// Returns the shapes of the [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    vec![Produce::<Dbx>::shape(), Consume::<Dbx>::shape()]
}

impl<P: Protocol> Workload<P> for Queue<P> {
    const NAME: &'static str = "queue";
    const TRANSACTIONS: &'static [&'static str] = &["produce", "consume"];
    type Parameters = Parameters;
    type Client = StashingClient<Client, P>;

    fn procedures(_parameters: &Parameters) -> Procedures {
        Procedures::of(procedures())
    }

    fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
        assert!(parameters.backlog <= BACKLOG_MAX, "{} entries", parameters.backlog);
        builder
            .table::<Entry>()
            .table::<End>()
            .table_with_capacity::<Participant>(CLIENTS_MAX as usize)
    }

    fn fill(
        database: Database<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        let (entries, end, clients) = (database.table()?, database.table()?, database.table()?);
        let tables = Tables { entries, end, clients };
        let source = RequestSource::new();
        let queue = Queue { database, tables, parameters: *parameters, source };
        let Queue { database, tables, .. } = &queue;
        let backlog = parameters.backlog;
        let mut loading = LoadInProgress::new(options, backlog + CLIENTS_MAX + 1);
        let entry: fn(&(), u64) -> Option<Entry> =
            |(), number| Some(Entry { number, producer: LOADER, sequence: number + 1 });
        loading.fill(database, &tables.entries, (&(), backlog), entry)?;
        let end: fn(&u64, u64) -> Option<End> = |&next, _| Some(End { id: END, next });
        loading.fill(database, &tables.end, (&backlog, 1), end)?;
        let client: fn(&(), u64) -> Option<Participant> = |(), id| {
            let none = Participant {
                id: id as u32,
                produced: 0,
                consumed: 0,
                sum: 0,
                after_last: 0,
                disordered: 0,
            };
            Some(none)
        };
        loading.fill(database, &tables.clients, (&(), CLIENTS_MAX), client)?;
        loading.finish();
        Ok(queue)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    /// # Panics
    /// There are too many clients.
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

/// Appends an entry.
#[procedure(Produce)]
#[inline]
fn produce<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    client: u32,
) -> Result<bool, Error> {
    let number = tx.update(&tables.end, &END, |end| {
        end.next += 1;
        end.next - 1
    })?;
    let number = number.expect("the end stays");
    let sequence = tx.update(&tables.clients, &client, |row| {
        row.produced += 1;
        row.produced
    })?;
    let sequence = sequence.expect("clients stay");
    tx.insert(&tables.entries, Entry { number, producer: client, sequence })?;
    Ok(true)
}

/// Takes the oldest entry. Returns whether there was one.
#[procedure(Consume)]
#[inline]
fn consume<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    client: u32,
) -> Result<bool, Error> {
    let Some(oldest) = tx.range(&tables.entries, ..).next() else {
        return Ok(false);
    };
    let number = oldest?.number;
    tx.delete(&tables.entries, &number)?;
    tx.update(&tables.clients, &client, |row| {
        row.consumed += 1;
        row.sum += number;
        row.disordered += u64::from(number < row.after_last);
        row.after_last = number + 1;
    })?
    .expect("clients stay");
    Ok(true)
}

impl<P: Protocol> Queue<P> {
    /// Runs a request in a transaction. Returns whether it succeeds if it commits: whether there was an entry.
    ///
    /// # Errors
    /// The engine's error. After a conflict, the request must be run again.
    #[inline]
    pub fn run(&self, tx: &Transaction<'_, P>, request: &Request) -> Result<bool, Error> {
        match *request {
            Request::Produce { client } => produce(&self.tables, tx, client),
            Request::Consume { client } => consume(&self.tables, tx, client),
        }
    }

    /// Executes a request's procedure.
    #[inline]
    fn execute_procedure(&self, request: &Request) -> Option<Result<bool, Failure>> {
        let Queue { database, tables, .. } = self;
        let done = match *request {
            Request::Produce { client } => database.execute(&mut Produce::new(tables, client)),
            Request::Consume { client } => database.execute(&mut Consume::new(tables, client)),
        };
        Some(done.map_err(failure_of))
    }
}
