//! YCSB: operations that read, modify, insert and scan rows by key. Some rows are far more popular than others.
//!
//! B. F. Cooper, A. Silberstein, E. Tam, R. Ramakrishnan, R. Sears: *Benchmarking Cloud Serving Systems with YCSB*,
//! SoCC 2010; in the form that the DBX and Silo papers measure: keys of eight bytes, values of 100, and by
//! [default](Parameters::default) 80 % reads and 20 % read-modify-writes of one row each, all rows equally popular
//! (DBX §7.1).
//!
//! - [`row`]: the rows, whose value sizes are constants of their types;
//! - [`mix`]: the kinds of operations, and how often each is drawn;
//! - [`zipf`]: the popularity of the rows;
//! - [`client`]: a client's operations, drawn before the measurement starts, and its keys;
//! - [`raw`]: the same operations on the memory store alone, without transactions;
//! - [`survey`]: the invariants, checked after a run.
//!
//! ## Differences from YCSB's own client
//!
//! - There is no update that overwrites one field without reading. A row of Weft is replaced as a whole. So an
//!   engine that keeps the other fields has to read them, which makes the update a read-modify-write.
//! - A value is one column of bytes, and the keys are numbers instead of strings. Rows are loaded in the order of
//!   their keys. Arithmetic spreads popularity over them, not a hash function, which might map two ranks to one
//!   row.
//! - Popularity does not follow insertions. Inserted rows are read by scans, and with [`Distribution::Latest`] by
//!   the client that inserted them.
//! - A transaction may have several operations.

pub mod client;
pub mod mix;
pub mod raw;
pub mod row;
pub mod survey;
pub mod zipf;

#[cfg(test)]
mod tests;

use std::hint::black_box;

use weft::protocol::Protocol;
use weft::schema::Storage;
use weft::{Builder, Database, Error, Failure, Snapshot, Table};

pub use client::{Client, RECORDS_MAX};
pub use mix::{Kind, Mix};
pub use raw::RawYcsb;
pub use row::{Row, RowVisitor, VALUE_BYTES, with_row};

use crate::load::LoadInProgress;
use crate::walk;
use crate::workload::{Condition, LoadOptions, Outcome, Progress, Workload, failure_of};
use client::{Ledgers, TransactionChanges};
use survey::{Survey, expected_keys};

/// The popularity of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Zipf's law, with the popular rows scattered over all keys.
    Zipf,
    /// Zipf's law by age: the rows that a client inserted last are those that it reads most.
    Latest,
}

/// The size of the table, and the transactions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The number of loaded rows, from 1 to [`RECORDS_MAX`].
    pub records: u64,
    /// How often each operation is drawn.
    pub mix: Mix,
    /// The number of operations in one transaction; at least 1.
    pub operations: u32,
    /// The longest scan, in rows; at least 1. The lengths are uniform from 1.
    pub scan_rows: u16,
    /// The unevenness of popularity: see [`zipf`]. With 0, all rows are equally popular.
    pub theta: f64,
    /// The distribution of popularity.
    pub distribution: Distribution,
}

impl Default for Parameters {
    /// Returns the setting of the DBX paper, with a million rows.
    fn default() -> Self {
        Parameters {
            records: 1_000_000,
            mix: Mix::DBX,
            operations: 1,
            scan_rows: 100,
            theta: 0.0,
            distribution: Distribution::Zipf,
        }
    }
}

impl Parameters {
    /// Returns whether a transaction is one access to one loaded row. Then protocols that make only such an access
    /// atomic can run it.
    pub fn is_single_key(&self) -> bool {
        let others = self.mix.share(Kind::Insert) + self.mix.share(Kind::Scan);
        self.operations == 1 && others == 0
    }

    /// # Panics
    /// A number is out of its range.
    fn check(&self, storage: Storage) {
        assert!((1..=RECORDS_MAX).contains(&self.records), "{} records", self.records);
        assert!(self.operations > 0, "a transaction has operations");
        assert!(self.scan_rows > 0, "a scan reads rows");
        let scans = self.mix.share(Kind::Scan) > 0;
        assert!(!scans || storage == Storage::Ordered, "a hash table cannot be scanned");
    }
}

/// The names of the transaction types. A transaction of one operation has the operation's name, and transactions of
/// several operations have one more name.
const TRANSACTIONS: [&str; 5] =
    [Kind::NAMES[0], Kind::NAMES[1], Kind::NAMES[2], Kind::NAMES[3], "mixed"];

/// The position of the last name.
const MIXED: usize = 4;

/// A loaded YCSB table of rows `R`.
pub struct Ycsb<P: Protocol, R: Row> {
    database: Database<P>,
    table: Table<R>,
    parameters: Parameters,
    ledgers: Ledgers,
}

impl<P: Protocol, R: Row> Workload<P> for Ycsb<P, R> {
    const NAME: &'static str = "ycsb";
    const TRANSACTIONS: &'static [&'static str] = &TRANSACTIONS;
    type Parameters = Parameters;
    type Client = Client;

    /// # Panics
    /// A number in `parameters` is out of its range, or a hash table is to be scanned.
    fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
        parameters.check(R::STORAGE);
        builder.table_with_capacity::<R>(parameters.records as usize)
    }

    fn fill(
        database: Database<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        let table = database.table::<R>()?;
        let ycsb = Ycsb { database, table, parameters: *parameters, ledgers: Ledgers::default() };
        let mut loading = LoadInProgress::new(options, parameters.records);
        let loaded: fn(&(), u64) -> Option<R> = |(), key| Some(R::new(key));
        loading.fill(&ycsb.database, &ycsb.table, (&(), parameters.records), loaded)?;
        loading.finish();
        Ok(ycsb)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> Client {
        Client::new(&self.parameters, &self.ledgers, seed, thread)
    }

    #[inline]
    fn execute(&self, client: &mut Client) -> Result<Outcome, Failure> {
        let range = client.advance();
        let transaction = client.transaction_type(range.start);
        let planned = &*client;
        let done = self.database.transact(|tx| -> Result<TransactionChanges, Error> {
            let mut done = TransactionChanges::default();
            for &operation in planned.operations(range.clone()) {
                let key = planned.key(operation);
                match operation.kind() {
                    Kind::Read => {
                        let row = tx.get(&self.table, &key)?.expect("no row is ever deleted");
                        black_box(row.digest());
                    }
                    Kind::ReadModifyWrite => {
                        let updated = tx.update(&self.table, &key, R::modify)?;
                        updated.expect("no row is ever deleted");
                        done.modified += 1;
                    }
                    Kind::Insert => {
                        tx.insert(&self.table, R::new(planned.fresh_key(done.inserted)))?;
                        done.inserted += 1;
                    }
                    Kind::Scan => {
                        let mut digest = 0;
                        for row in tx.range(&self.table, key..).take(operation.rows()) {
                            digest ^= row?.digest();
                        }
                        black_box(digest);
                    }
                }
            }
            Ok(done)
        });
        client.note(done.map_err(failure_of)?);
        Ok(Outcome::new(transaction, false))
    }

    fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure> {
        let snapshot = self.database.open_snapshot()?;
        verify(&snapshot, &self.table, self.parameters.records, &self.ledgers, progress)
    }
}

/// Checks every invariant of a database at rest.
fn verify<R: Row>(
    snapshot: &Snapshot,
    table: &Table<R>,
    records: u64,
    ledgers: &Ledgers,
    progress: Progress<'_>,
) -> Result<Vec<Condition>, Failure> {
    let mut survey = Survey::new();
    let mut expected = expected_keys(records, ledgers);
    let report = |done: u64| {
        if done.is_multiple_of(4096) {
            progress(done.min(records), records);
        }
    };
    match R::STORAGE {
        // Compare all rows, in order, with the keys that should exist.
        Storage::Ordered => {
            for (row, done) in snapshot.rows(table).zip(1..) {
                survey.add(expected.next(), Some(row?));
                report(done);
            }
            expected.for_each(|key| survey.add::<R>(Some(key), None));
        }
        // Check that each expected key has a row, and that each client's next key does not.
        Storage::Hash => {
            let unused: Vec<u64> = ledgers.inserted().iter().map(|&(_, end)| end).collect();
            let mut done = 0;
            let mut visit = |expected: Option<u64>, row: Option<&R>| {
                survey.add(expected, row);
                done += 1;
                report(done);
            };
            walk::keys(snapshot, table, expected, |key, row| visit(Some(key), row))?;
            walk::keys(snapshot, table, unused.into_iter(), |_, row| visit(None, row))?;
        }
    }
    Ok(survey.conditions(ledgers))
}
