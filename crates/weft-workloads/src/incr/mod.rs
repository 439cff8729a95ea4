//! INCR1 and INCRZ: each transaction increments one counter, and some counters are hot.
//!
//! N. Narula, C. Cutler, E. Kohler, R. Morris: *Phase Reconciliation for Contended In-Memory Transactions*, OSDI
//! 2014 (Doppel), §8.2 to §8.4. There are a million keys of 16 bytes, and each transaction increments one. The two
//! workloads differ in the key:
//!
//! - **INCR1** ([`Popularity::Hot`]): a share of the transactions increments the one hot key. Each other
//!   transaction increments a key drawn uniformly from those that are not popular. The hot key may change over time
//!   (§8.3, Figure 10).
//! - **INCRZ** ([`Popularity::Zipf`]): the k-th most popular key is incremented in proportion to 1/k^alpha.
//!
//! An increment is an [operation](weft::operation), ADD, which returns nothing. So a protocol may let increments of
//! one key commute. It is one access to one row, so protocols that make only single accesses atomic can run it,
//! too. One of them is the paper's *Atomic*, its upper bound for protocols that lock.
//!
//! - `client`: the choice of the next key;
//! - `conditions`: the invariants, checked after a run.
//!
//! ## Differences from the paper's workload
//!
//! - Keys that are hot at some time are never incremented at other times: the [`HOT_KEYS_MAX`] keys that take turns
//!   are left out of the other draws. So the expected value of each of them is known. If the hot key does not
//!   change, it is the only one.
//! - The thread that ran an aborted transaction retries it before any other.

mod client;
mod conditions;

#[cfg(test)]
mod procedure_tests;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use weft::protocol::Protocol;
use weft::{Builder, Database, Error, Failure, Record, Table, Transaction, column_of};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure, Shape};

pub use client::{Client, Increment};

use crate::load::LoadInProgress;
use crate::popularity;
use crate::stashing::StashingClient;
use crate::workload::{
    Condition, LoadOptions, Outcome, Procedures, Progress, Workload, failure_of,
};
use client::RequestSource;

/// The fewest records: a hot one, and another.
pub const RECORDS_MIN: u64 = 2;

/// The most records.
pub const RECORDS_MAX: u64 = popularity::RECORDS_MAX;

/// The most keys that take turns in being hot; half of the records, if there are few. With a change every five
/// seconds, this is an hour and a half without repetition.
pub const HOT_KEYS_MAX: u64 = 1024;

/// The popularity of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// INCR1: one key is hot.
    Hot {
        /// The share of the transactions that increment the hot key, in percent: from 0 to 100.
        percent: f64,
        /// How the hot key changes; `None` if it does not.
        change: Option<Change>,
    },
    /// INCRZ: popularity follows Zipf's law.
    Zipf {
        /// The skew, at least 0; 0 is uniform.
        alpha: f64,
    },
}

/// How the hot key changes. On the simulated machine, changes are in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The time from which the first key is hot.
    pub since: Instant,
    /// How long each key is hot; more than 0.
    pub every: Duration,
}

impl Change {
    /// Returns the number of the hot key at `now`, from 0. Clients check this at intervals.
    pub fn count(&self, now: Instant) -> u64 {
        self.count_after(now.saturating_duration_since(self.since))
    }

    /// Returns the number of the hot key at present.
    pub(crate) fn count_now(&self) -> u64 {
        // At the 2.4 GHz of the paper's machine, as for phases.
        #[cfg(weft_sim)]
        if let Some(cycles) = weft::htm::simulation::cycles() {
            return self.count_after(Duration::from_nanos(cycles * 10 / 24));
        }
        self.count(Instant::now())
    }

    fn count_after(&self, elapsed: Duration) -> u64 {
        (elapsed.as_nanos() / self.every.as_nanos()) as u64
    }
}

/// Returns the share of the increments for the keys of these ranks, where 1 is the most popular, in percent. It is
/// computed from what the clients of INCRZ draw from, with this number of keys, alpha and seed (Table 1).
///
/// # Panics
/// A rank is less than 1 or greater than the number of keys.
pub fn percent_of_ranks(records: u64, alpha: f64, seed: u64, ranks: &[u64]) -> Vec<f64> {
    popularity::percent_of_ranks(records, alpha, seed, ranks)
}

/// The number of counters, and their popularity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The number of rows, from [`RECORDS_MIN`] to [`RECORDS_MAX`].
    pub records: u64,
    /// The popularity of the counters.
    pub popularity: Popularity,
}

impl Default for Parameters {
    /// Returns the paper's million keys, with every transaction on the hot one.
    fn default() -> Self {
        let popularity = Popularity::Hot { percent: 100.0, change: None };
        Parameters { records: 1_000_000, popularity }
    }
}

impl Parameters {
    /// Checks the parameters.
    ///
    /// # Panics
    /// A number is out of its range.
    fn check(&self) {
        let records = self.records;
        assert!((RECORDS_MIN..=RECORDS_MAX).contains(&records), "{records} records");
        match self.popularity {
            Popularity::Hot { percent, change } => {
                assert!((0.0..=100.0).contains(&percent), "{percent} percent");
                assert!(change.is_none_or(|change| !change.every.is_zero()), "changes every 0 s");
            }
            Popularity::Zipf { alpha } => {
                assert!(alpha >= 0.0 && alpha.is_finite(), "alpha is {alpha}");
            }
        }
    }
}

/// A row with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "counters", storage = "hash")]
pub struct Counter {
    /// The key, of sixteen bytes as in the paper: see [`key_of`].
    #[record(key)]
    pub id: u128,
    /// How often it was incremented.
    pub value: i64,
}

impl Counter {
    /// Returns the counter of a record as loaded: with the value 0.
    fn loaded((): &(), record: u64) -> Option<Counter> {
        Some(Counter { id: key_of(record), value: 0 })
    }
}

/// Returns the key of a record: sixteen bytes that look random. Keys of different records differ, because the
/// factor is odd.
#[inline]
pub fn key_of(record: u64) -> u128 {
    u128::from(record).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
}

/// A loaded table of counters.
pub struct Incr<P: Protocol> {
    database: Database<P>,
    counters: Table<Counter>,
    parameters: Parameters,
    source: RequestSource,
}

/// Returns the shapes of the [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    vec![IncrementCounter::<Dbx>::shape()]
}

impl<P: Protocol> Workload<P> for Incr<P> {
    const NAME: &'static str = "incr";
    const TRANSACTIONS: &'static [&'static str] = &["increment"];
    type Parameters = Parameters;
    type Client = StashingClient<Client, P>;

    fn procedures(_parameters: &Parameters) -> Procedures {
        Procedures::of(procedures())
    }

    fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
        parameters.check();
        builder.table_with_capacity::<Counter>(parameters.records as usize)
    }

    fn fill(
        database: Database<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        let records = parameters.records;
        let counters = database.table::<Counter>()?;
        let source = RequestSource::new(parameters, options.seed);
        let incr = Incr { database, counters, parameters: *parameters, source };
        let mut loading = LoadInProgress::new(options, records);
        loading.fill(&incr.database, &incr.counters, (&(), records), Counter::loaded)?;
        loading.finish();
        Ok(incr)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> Self::Client {
        let client = self.source.client(seed, thread, threads);
        StashingClient::new(client, &self.database)
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
        let account = (&self.counters, &self.parameters, &self.source);
        conditions::verify(&self.database.open_snapshot()?, account, progress)
    }
}

/// Adds 1 to a counter.
#[procedure(IncrementCounter)]
#[inline]
fn increment<P: Protocol>(
    counters: &Table<Counter>,
    tx: &Transaction<'_, P>,
    key: u128,
) -> Result<(), Error> {
    tx.add(counters, &key, column_of!(Counter.value), 1)
}

impl<P: Protocol> Incr<P> {
    /// Runs a request in a transaction. Returns whether it succeeds, which it does if it commits.
    ///
    /// # Errors
    /// The engine's error. After a conflict, the request must be run again.
    #[inline]
    pub fn run(&self, tx: &Transaction<'_, P>, request: &Increment) -> Result<bool, Error> {
        increment(&self.counters, tx, request.key)?;
        Ok(true)
    }

    /// Executes a request's procedure.
    #[inline]
    fn execute_procedure(&self, request: &Increment) -> Option<Result<bool, Failure>> {
        let mut procedure = IncrementCounter::new(&self.counters, request.key);
        let done: Result<(), Error> = self.database.execute(&mut procedure);
        Some(done.map(|()| true).map_err(failure_of))
    }
}
