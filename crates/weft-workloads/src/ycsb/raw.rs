//! The same operations on the memory store alone, without transactions. DBX §7.3.2 compares the cost of its
//! smallest transactions with this.
//!
//! The rows, the load, the clients and their operations are those of [`Ycsb`](super::Ycsb). The index, the records,
//! the memory and the grace periods below are also the same. [`weft::raw_tree`] says what an operation does there,
//! and lists what is left out. Here each operation is atomic only on its own, also where a transaction would have
//! several, and a scan is not atomic at all. Nevertheless all invariants of [`survey`](super::survey) hold, because
//! each is about single rows, or sums of them.

use std::hint::black_box;
use std::thread;

use weft::htm::Choice;
use weft::raw_tree::{RawTree, RawWorker};
use weft::schema::Storage;
use weft::{Failure, Metrics};

use super::client::{Client, Ledgers, TransactionChanges};
use super::survey::{Survey, expected_keys};
use super::{Kind, Parameters, Row};
use crate::load::shares;
use crate::workload::{Condition, LoadOptions, Outcome, Progress};

/// A loaded YCSB tree of rows `R`, without transactions.
pub struct RawYcsb<R: Row> {
    pub(super) tree: RawTree<R>,
    parameters: Parameters,
    ledgers: Ledgers,
}

/// The state that a thread carries from one group of operations to the next.
#[derive(Debug)]
pub struct RawClient<R> {
    client: Client,
    worker: RawWorker<R>,
}

impl<R: Row> RawYcsb<R> {
    /// The name in benchmarks.
    pub const NAME: &'static str = "raw";

    /// The names of the transaction types.
    pub const TRANSACTIONS: &'static [&'static str] = &super::TRANSACTIONS;

    /// Creates and fills a tree. See [`Workload::load`](crate::Workload::load).
    ///
    /// # Errors
    /// The engine's error.
    ///
    /// # Panics
    /// A number in `parameters` is out of its range, or the rows are for a hash table.
    pub fn load(parameters: &Parameters, options: &LoadOptions<'_>) -> Result<Self, Failure> {
        assert!(R::STORAGE == Storage::Ordered, "the raw index is the B+-tree");
        parameters.check(R::STORAGE);
        let tree =
            RawTree::<R>::open(options.htm.unwrap_or(Choice::Software), options.reserve_bytes)?;
        let load = |keys: std::ops::Range<u64>| -> Result<(), Failure> {
            let mut worker = tree.worker()?;
            for key in keys {
                assert!(worker.insert(key, R::new(key)), "key {key} is loaded once");
            }
            Ok(())
        };
        thread::scope(|scope| {
            let shares = shares(parameters.records, options.threads);
            let threads: Vec<_> = shares.map(|keys| scope.spawn(move || load(keys))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no load panics"))
        })?;
        (options.progress)(parameters.records, parameters.records);
        Ok(RawYcsb { tree, parameters: *parameters, ledgers: Ledgers::default() })
    }

    /// Creates the client of the `thread`-th thread.
    ///
    /// # Panics
    /// There are more clients than workers of a database.
    pub fn client(&self, seed: u64, thread: usize) -> RawClient<R> {
        let worker = self.tree.worker().expect("as many workers as threads are allowed");
        RawClient { client: Client::new(&self.parameters, &self.ledgers, seed, thread), worker }
    }

    /// Runs the operations of one transaction, one by one.
    #[inline]
    pub fn execute(&self, client: &mut RawClient<R>) -> Outcome {
        let RawClient { client, worker } = client;
        let range = client.advance();
        let transaction = client.transaction_type(range.start);
        let mut done = TransactionChanges::default();
        for &operation in client.operations(range) {
            let key = client.key(operation);
            match operation.kind() {
                Kind::Read => {
                    let digest = worker.get(key, R::digest);
                    black_box(digest.expect("no row is ever deleted"));
                }
                Kind::ReadModifyWrite => {
                    assert!(worker.update(key, R::modify), "no row is ever deleted");
                    done.modified += 1;
                }
                Kind::Insert => {
                    let key = client.fresh_key(done.inserted);
                    assert!(worker.insert(key, R::new(key)), "a fresh key is not in use");
                    done.inserted += 1;
                }
                Kind::Scan => {
                    let mut digest = 0;
                    worker.scan(key, operation.rows(), |row| digest ^= row.digest());
                    black_box(digest);
                }
            }
        }
        client.note(done);
        Outcome::new(transaction, false)
    }

    /// Returns the metrics of the memory and of hardware regions.
    pub fn metrics(&self) -> Metrics {
        self.tree.metrics()
    }

    /// Checks every invariant. No client may be running.
    ///
    /// # Errors
    /// [`Failure::TooManyWorkers`].
    pub fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure> {
        let mut survey = Survey::new();
        let mut expected = expected_keys(self.parameters.records, &self.ledgers);
        self.tree.worker()?.scan(0, usize::MAX, |row| survey.add(expected.next(), Some(row)));
        expected.for_each(|key| survey.add::<R>(Some(key), None));
        progress(self.parameters.records, self.parameters.records);
        Ok(survey.conditions(&self.ledgers))
    }
}
