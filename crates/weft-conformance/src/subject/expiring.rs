//! A database of rows that expire, behind an interface that hides the protocol's type.

use weft::history::History;
use weft::protocol::Protocol;
use weft::{
    Database, Error, Failure, ManualClock, Record, Snapshot, Table, Timestamp, Transaction,
    TransactionOptions,
};

use super::{Opening, RETRIES_MAX, Stop};
use crate::expiry::{START, Shown, Step};

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

struct Tables<P: Protocol> {
    database: Database<P>,
    clock: ManualClock,
    expiring: Table<Expiring>,
    lasting: Table<Lasting>,
}

pub(super) fn open<P: Protocol>(opening: Opening) -> Box<dyn ExpiringStore> {
    let clock = ManualClock::new(Timestamp::from_millis(START));
    let builder = Database::builder()
        .protocol::<P>()
        .table::<Expiring>()
        .table::<Lasting>()
        .clock(&clock)
        .htm(opening.htm.0)
        .htm_retry_policy(opening.htm.1)
        .time_flaw(opening.time_flaw)
        .record_history(opening.records);
    let database = builder.open().expect("a database opens");
    let expiring = database.table().expect("it was added");
    let lasting = database.table().expect("it was added");
    Box::new(Tables { database, clock, expiring, lasting })
}

impl<P: Protocol> ExpiringStore for Tables<P> {
    fn transact(
        &self,
        body: &mut dyn FnMut(&dyn ExpiringSteps) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let options = TransactionOptions::new().retries_max(RETRIES_MAX);
        self.database.transact_with(&options, |transaction| {
            body(&InTransaction { tables: self, transaction })
        })
    }

    fn read_snapshot(
        &self,
        opened: &mut dyn FnMut(),
        body: &mut dyn FnMut(&dyn ExpiringSteps) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let snapshot = self.database.open_snapshot()?;
        opened();
        body(&OnSnapshot { tables: self, snapshot: &snapshot })
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
    tables: &'a Tables<P>,
    transaction: &'a Transaction<'a, P>,
}

impl<P: Protocol> ExpiringSteps for InTransaction<'_, P> {
    fn take(&self, step: Step) -> Result<Shown, Error> {
        let (tx, Tables { expiring, lasting, .. }) = (self.transaction, self.tables);
        let until = |at: u64| (at != u64::MAX).then_some(Timestamp::from_millis(at));
        Ok(match step {
            Step::Now => Shown::Value(Some(tx.now().as_millis())),
            Step::Get(key) => Shown::Value(tx.get(expiring, &key)?.map(|row| row.value)),
            Step::GetByBadge(badge) => {
                let row = tx.get_by(expiring, Expiring::BADGE, &badge)?;
                Shown::Value(row.map(|row| row.value))
            }
            Step::Put(key, value, at) => {
                let row = Expiring { key, badge: key, value, until: until(at) };
                Shown::Happened(tx.upsert(expiring, row)?)
            }
            Step::Insert(key, badge, value, at) => {
                let row = Expiring { key, badge, value, until: until(at) };
                match tx.insert(expiring, row) {
                    Err(Error::Failure(Failure::DuplicateKey { .. })) => Shown::Happened(false),
                    inserted => Shown::Happened(inserted.map(|()| true)?),
                }
            }
            Step::Change(key, at) => {
                let changed = tx.update(expiring, &key, |row| row.until = until(at))?;
                Shown::Happened(changed.is_some())
            }
            Step::Delete(key) => Shown::Happened(tx.delete(expiring, &key)?),
            Step::Scan => {
                let rows = tx.range(expiring, ..);
                Shown::Rows(
                    rows.map(|row| row.map(|row| (row.key, row.value)))
                        .collect::<Result<_, _>>()?,
                )
            }
            Step::Read(key) => Shown::Value(tx.get(lasting, &key)?.map(|row| row.value)),
            Step::Write(key, value) => Shown::Happened(tx.upsert(lasting, Lasting { key, value })?),
        })
    }
}

struct OnSnapshot<'a, P: Protocol> {
    tables: &'a Tables<P>,
    snapshot: &'a Snapshot,
}

impl<P: Protocol> ExpiringSteps for OnSnapshot<'_, P> {
    fn take(&self, step: Step) -> Result<Shown, Error> {
        let (snapshot, Tables { expiring, lasting, .. }) = (self.snapshot, self.tables);
        Ok(match step {
            Step::Get(key) => Shown::Value(snapshot.get(expiring, &key)?.map(|row| row.value)),
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
