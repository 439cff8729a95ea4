//! A database of rows that expire, behind an interface that hides the protocol's type.

use weft::history::History;
use weft::protocol::Protocol;
use weft_procedures::{Execute, Procedure, procedure};
use weft_protocols::{BuilderExt, DbxTcOptions};

use weft::{
    Database, Error, Failure, ManualClock, Record, Snapshot, Table, Timestamp, Transaction,
    TransactionOptions,
};

use super::{Opening, RETRIES_MAX, Stop};
use crate::expiry::{COUNT, COUNTS, JOURNAL, START, Shown, Step, StepLog};

/// A row that expires.
#[derive(Clone, Copy, Debug, Record)]
#[record(expires = until)]
struct Expiring {
    #[record(key)]
    key: u64,
    #[record(unique)]
    badge: u64,
    value: u64,
    until: Option<Timestamp>,
}

/// A database of rows that expire, and of rows that do not.
pub trait ExpiringStore: Send + Sync {
    /// Runs a transaction until it commits.
    ///
    /// # Errors
    /// The error of `body`, or too many conflicts in a row.
    fn transact(
        &self,
        body: &mut dyn FnMut(&dyn ExpiringSteps) -> Result<(), Stop>,
    ) -> Result<(), Stop>;

    /// Executes a procedure of these steps. A step may be on another key: see [`Step::shifted`].
    ///
    /// # Errors
    /// [`Stop::RollBack`] if another row has the badge of a row that is put; too many conflicts in a row.
    fn transact_steps(&self, steps: &[Step]) -> Result<StepLog, Stop>;

    /// Executes a procedure that sets a count, and notes its time in the journal. It has two pieces.
    ///
    /// # Errors
    /// Too many conflicts in a row.
    fn stamp(&self, count: u64, value: u64, entry: u64) -> Result<StepLog, Stop>;

    /// Runs the body on a snapshot, which takes only steps that read. Calls `opened` when the snapshot is open.
    fn read_snapshot(
        &self,
        opened: &mut dyn FnMut(),
        body: &mut dyn FnMut(&dyn ExpiringSteps) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Sets the clock forward by a millisecond.
    fn advance(&self);

    /// Removes the rows that have expired.
    ///
    /// # Errors
    /// None that the protocol should return.
    fn remove_expired(&self) -> Result<usize, Failure>;

    /// Returns the history so far. Nothing may be running.
    fn take_history(&self) -> History;
}

/// A transaction or snapshot, as its body sees it.
pub trait ExpiringSteps {
    /// Takes a step.
    ///
    /// # Errors
    /// Conflicts, and errors that the step does not expect.
    fn take(&self, step: Step) -> Result<Shown, Error>;
}

/// A row that does not expire.
#[derive(Clone, Copy, Debug, Record)]
struct Lasting {
    #[record(key)]
    key: u64,
    value: u64,
}

/// A count: a row that is always there.
#[derive(Clone, Copy, Debug, Record)]
struct Count {
    #[record(key)]
    key: u64,
    value: u64,
}

/// A row of the journal.
#[derive(Clone, Copy, Debug, Record)]
struct Entry {
    #[record(key)]
    key: u64,
    at: u64,
}

struct Tables {
    expiring: Table<Expiring>,
    lasting: Table<Lasting>,
    counts: Table<Count>,
    journal: Table<Entry>,
}

struct Expiries<P: Protocol> {
    database: Database<P>,
    clock: ManualClock,
    tables: Tables,
    options: TransactionOptions,
}

fn until(at: u64) -> Option<Timestamp> {
    (at != u64::MAX).then_some(Timestamp::from_millis(at))
}

/// Takes steps. What a step shows decides about the key of the next one.
#[procedure(TakeSteps)]
fn take_steps<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    steps: &[Step],
) -> Result<StepLog, Stop> {
    let mut log = StepLog::new();
    let mut shift = 0;
    for &step in steps {
        let step = step.shifted(shift);
        let shown = match step {
            Step::Now => Shown::Value(Some(tx.now().as_millis())),
            Step::Get(key) => Shown::Value(tx.get(&tables.expiring, &key)?.map(|row| row.value)),
            Step::GetByBadge(badge) => {
                let row = tx.get_by(&tables.expiring, Expiring::BADGE, &badge)?;
                Shown::Value(row.map(|row| row.value))
            }
            Step::Put(key, value, at) => {
                let row = Expiring { key, badge: key, value, until: until(at) };
                Shown::Happened(tx.upsert(&tables.expiring, row)?)
            }
            Step::Insert(key, badge, value, at) => {
                let row = Expiring { key, badge, value, until: until(at) };
                match tx.insert(&tables.expiring, row) {
                    Err(Error::Failure(Failure::DuplicateKey { .. })) => Shown::Happened(false),
                    inserted => Shown::Happened(inserted.map(|()| true)?),
                }
            }
            Step::Change(key, at) => {
                let changed = tx.update(&tables.expiring, &key, |row| row.until = until(at))?;
                Shown::Happened(changed.is_some())
            }
            Step::Delete(key) => Shown::Happened(tx.delete(&tables.expiring, &key)?),
            Step::Scan => {
                let rows = tx.range(&tables.expiring, ..);
                Shown::Rows(
                    rows.map(|row| row.map(|row| (row.key, row.value)))
                        .collect::<Result<_, _>>()?,
                )
            }
            Step::Read(key) if key >= JOURNAL => {
                Shown::Value(tx.get(&tables.journal, &(key - JOURNAL))?.map(|row| row.at))
            }
            Step::Read(key) if key >= COUNTS => {
                Shown::Value(tx.get(&tables.counts, &(key - COUNTS))?.map(|row| row.value))
            }
            Step::Read(key) => Shown::Value(tx.get(&tables.lasting, &key)?.map(|row| row.value)),
            Step::Write(key, value) => {
                Shown::Happened(tx.upsert(&tables.lasting, Lasting { key, value })?)
            }
        };
        shift = match &shown {
            Shown::Value(value) => value.map_or(0, |value| 1 + value % 2),
            Shown::Happened(happened) => u64::from(*happened),
            Shown::Rows(rows) => rows.len() as u64,
        };
        log.push((step, shown));
    }
    Ok(log)
}

/// Sets a count, and notes the time in the journal. Returns the count before, and the time. The journal is a piece of its
/// own.
#[procedure(Stamp)]
fn stamp<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    key: u64,
    value: u64,
    entry: u64,
) -> Result<(u64, u64), Stop> {
    let before = tx.get(&tables.counts, &key)?.expect("counts are never removed").value;
    tx.update(&tables.counts, &key, |row| row.value = value)?.expect("counts are never removed");
    let at = tx.now().as_millis();
    tx.insert(&tables.journal, Entry { key: entry, at })?;
    Ok((before, at))
}

pub(super) fn open<P: Protocol>(opening: Opening) -> Box<dyn ExpiringStore> {
    let clock = ManualClock::new(Timestamp::from_millis(START));
    let builder = Database::builder()
        .protocol::<P>()
        .table::<Expiring>()
        .table::<Lasting>()
        .table::<Count>()
        .table::<Entry>()
        .dbx_tc(DbxTcOptions::new().procedures([Stamp::<P>::shape()]).finest(true))
        .clock(&clock)
        .htm(opening.htm.0)
        .htm_retry_policy(opening.htm.1)
        .time_flaw(opening.time_flaw)
        .record_history(opening.records);
    let builder = opening.add_variant(builder);
    let database = builder.open().expect("a database opens");
    let tables = Tables {
        expiring: database.table().expect("it was added"),
        lasting: database.table().expect("it was added"),
        counts: database.table().expect("it was added"),
        journal: database.table().expect("it was added"),
    };
    for key in 0..COUNT {
        let filled = database.transact(|tx| tx.insert(&tables.counts, Count { key, value: 0 }));
        filled.expect("no other transaction is running");
    }
    // The initial rows have version 0, so their insertion is not recorded.
    if opening.records {
        drop(database.take_history());
    }
    let options = TransactionOptions::new().retries_max(RETRIES_MAX);
    Box::new(Expiries { database, clock, tables, options })
}

impl<P: Protocol> ExpiringStore for Expiries<P> {
    fn transact(
        &self,
        body: &mut dyn FnMut(&dyn ExpiringSteps) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.database.transact_with(&self.options, |transaction| {
            body(&InTransaction { tables: &self.tables, transaction })
        })
    }

    fn transact_steps(&self, steps: &[Step]) -> Result<StepLog, Stop> {
        let mut procedure = TakeSteps::new(&self.tables, steps);
        match self.database.execute_with(&self.options, &mut procedure) {
            Err(Stop::Engine(Error::Failure(Failure::DuplicateKey { .. }))) => Err(Stop::RollBack),
            ended => ended,
        }
    }

    fn stamp(&self, count: u64, value: u64, entry: u64) -> Result<StepLog, Stop> {
        let mut procedure = Stamp::new(&self.tables, count, value, entry);
        let (before, at) = self.database.execute_with(&self.options, &mut procedure)?;
        Ok(vec![
            (Step::Now, Shown::Value(Some(at))),
            (Step::Read(COUNTS + count), Shown::Value(Some(before))),
            (Step::Write(COUNTS + count, value), Shown::Happened(true)),
            (Step::Write(JOURNAL + entry, at), Shown::Happened(false)),
        ])
    }

    fn read_snapshot(
        &self,
        opened: &mut dyn FnMut(),
        body: &mut dyn FnMut(&dyn ExpiringSteps) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let snapshot = self.database.open_snapshot()?;
        opened();
        body(&OnSnapshot { tables: &self.tables, snapshot: &snapshot })
    }

    fn advance(&self) {
        self.clock.advance(std::time::Duration::from_millis(1));
    }

    fn remove_expired(&self) -> Result<usize, Failure> {
        self.database.remove_expired()
    }

    fn take_history(&self) -> History {
        self.database.take_history()
    }
}

struct InTransaction<'a, P: Protocol> {
    tables: &'a Tables,
    transaction: &'a Transaction<'a, P>,
}

impl<P: Protocol> ExpiringSteps for InTransaction<'_, P> {
    fn take(&self, step: Step) -> Result<Shown, Error> {
        let log =
            take_steps(self.tables, self.transaction, &[step]).map_err(|stop| match stop {
                Stop::Engine(error) => error,
                stop => unreachable!("{stop:?}"),
            })?;
        Ok(log.into_iter().next().expect("it has taken the step").1)
    }
}

struct OnSnapshot<'a> {
    tables: &'a Tables,
    snapshot: &'a Snapshot,
}

impl ExpiringSteps for OnSnapshot<'_> {
    fn take(&self, step: Step) -> Result<Shown, Error> {
        let (snapshot, Tables { expiring, lasting, .. }) = (self.snapshot, self.tables);
        Ok(match step {
            Step::Get(key) => Shown::Value(snapshot.get(expiring, &key)?.map(|row| row.value)),
            Step::Read(key) if key >= COUNTS => {
                let count = snapshot.get(&self.tables.counts, &(key - COUNTS))?;
                Shown::Value(count.map(|row| row.value))
            }
            Step::Read(key) => Shown::Value(snapshot.get(lasting, &key)?.map(|row| row.value)),
            Step::Scan => {
                let rows = snapshot.range(expiring, ..);
                Shown::Rows(
                    rows.map(|row| row.map(|row| (row.key, row.value)))
                        .collect::<Result<_, _>>()?,
                )
            }
            _ => Shown::Value(Some(snapshot.now().as_millis())),
        })
    }
}
