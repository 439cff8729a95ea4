//! INCR1 and INCRZ: each transaction increments one counter, and some counters are hot.
//!
//! N. Narula, C. Cutler, E. Kohler, R. Morris: *Phase Reconciliation for Contended In-Memory
//! Transactions*, OSDI 2014 (Doppel), §8.2 to §8.4: a million keys of 16 bytes, of which each
//! transaction increments one. The two workloads differ in which:
//!
//! - **INCR1** ([`Popularity::Hot`]): a share of the transactions increments the one hot key, each
//!   other one a key that is drawn uniformly from those that are not popular. The hot key may change
//!   in the course of time (§8.3, Figure 10).
//! - **INCRZ** ([`Popularity::Zipf`]): the k-th most popular key is incremented in proportion to
//!   1/k^alpha.
//!
//! An increment is an [operation](weft::operation), ADD, which asks for no result: so a protocol may
//! let increments of one key commute. It is one access of one row, so protocols run it too that make
//! only that atomic, among them the paper's *Atomic*, its upper bound for schemes that lock.
//!
//! - `client`: which key is incremented next;
//! - `conditions`: the invariants, checked after a run.
//!
//! ## Where this is not the paper's workload
//!
//! - Keys that are hot at some time are nobody's choice at other times: of a million keys, the
//!   [`HOT_KEYS_MAX`] that take turns are left out of what others are drawn from. So the value that
//!   each of them must have is known. If the hot key does not change, it is the only one.
//! - A transaction that was aborted is run again by the thread that ran it, before any other.

mod client;
mod conditions;

#[cfg(test)]
mod procedure_tests;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Record, Table, Transaction, column_of};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure, Shape};

pub use client::{Client, Increment};

use crate::load::Loading;
use crate::popularity;
use crate::stashing::Stashing;
use crate::workload::{Condition, LoadOptions, Outcome, Progress, Workload, failure_of};
use client::Choice;

/// The fewest records: one that is hot, and another.
pub const RECORDS_MIN: u64 = 2;

/// The most records.
pub const RECORDS_MAX: u64 = popularity::RECORDS_MAX;

/// How many keys take turns in being hot, at most; half of the records, if there are few. Every five
/// seconds another one: that is an hour and a half without repetition.
pub const HOT_KEYS_MAX: u64 = 1024;

/// Which keys are incremented more often than others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// INCR1: one.
    Hot {
        /// The share of the transactions that increment it, in percent: from 0 to 100.
        percent: f64,
        /// When another key becomes the hot one; never if `None`.
        change: Option<Change>,
    },
    /// INCRZ: by Zipf's law.
    Zipf {
        /// How uneven it is; at least 0, where all are alike.
        alpha: f64,
    },
}

/// When the hot key changes. On the simulated machine that is a matter of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// From when on the first key is hot.
    pub since: Instant,
    /// For how long each one is; above 0.
    pub every: Duration,
}

impl Change {
    /// The how many-th hot key it is, from 0. Clients look now and then.
    pub fn count(&self, now: Instant) -> u64 {
        self.count_after(now.saturating_duration_since(self.since))
    }

    /// Likewise, at present.
    pub(crate) fn count_now(&self) -> u64 {
        // At the 2.4 GHz of the paper's machine, as phases are.
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

/// The share of the increments that go to the keys of these ranks, from 1 for the most popular one, in
/// percent: of what the clients of INCRZ draw from, with this many keys, this alpha, and this seed (Table 1).
///
/// # Panics
/// If a rank is not one of the keys'.
pub fn percent_of_ranks(records: u64, alpha: f64, seed: u64, ranks: &[u64]) -> Vec<f64> {
    popularity::percent_of_ranks(records, alpha, seed, ranks)
}

/// Number of counters, and which are hot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Rows that are loaded: from [`RECORDS_MIN`] to [`RECORDS_MAX`].
    pub records: u64,
    /// Which of them are popular.
    pub popularity: Popularity,
}

impl Default for Parameters {
    /// The paper's million of keys, and every transaction on the hot one.
    fn default() -> Self {
        let popularity = Popularity::Hot { percent: 100.0, change: None };
        Parameters { records: 1_000_000, popularity }
    }
}

impl Parameters {
    /// # Panics
    /// If a number is out of its range.
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

/// A row: a counter.
#[derive(Clone, Debug, PartialEq, Eq, Record)]
#[record(table = "counters", storage = "hash")]
pub struct Counter {
    /// Sixteen bytes, as in the paper: see [`key_of`].
    #[record(key)]
    pub id: u128,
    /// How often it was incremented.
    pub value: i64,
}

impl Counter {
    /// The counter of a record as it is loaded: 0.
    fn loaded((): &(), record: u64) -> Option<Counter> {
        Some(Counter { id: key_of(record), value: 0 })
    }
}

/// The key of a record: sixteen bytes that look random, and differ from those of every other record,
/// since the factor is odd.
#[inline]
pub fn key_of(record: u64) -> u128 {
    u128::from(record).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
}

/// A loaded table of counters.
pub struct Incr<P: Protocol> {
    database: Database<P>,
    counters: Table<Counter>,
    parameters: Parameters,
    choice: Choice,
}

/// The shapes of its [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    vec![IncrementCounter::<Dbx>::shape()]
}

impl<P: Protocol> Workload<P> for Incr<P> {
    const NAME: &'static str = "incr";
    const TRANSACTIONS: &'static [&'static str] = &["increment"];
    type Parameters = Parameters;
    type Client = Stashing<Client, P>;

    /// # Panics
    /// If a number in `parameters` is out of its range.
    fn load(parameters: &Parameters, options: &LoadOptions<'_>) -> Result<Self, Failure> {
        parameters.check();
        let records = parameters.records;
        let database = options
            .builder_with::<P>(procedures(), Vec::new())
            .table_with_capacity::<Counter>(records as usize)
            .open()?;
        let counters = database.table::<Counter>()?;
        let choice = Choice::new(parameters, options.seed);
        let incr = Incr { database, counters, parameters: *parameters, choice };
        let mut loading = Loading::new(options, records);
        loading.fill(&incr.database, &incr.counters, (&(), records), Counter::loaded)?;
        loading.finish();
        Ok(incr)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> Self::Client {
        let client = self.choice.client(seed, thread, threads);
        Stashing::new(client, &self.database)
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
        let account = (&self.counters, &self.parameters, &self.choice);
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
    /// The transaction; whether it has succeeded, as it does once it has committed.
    ///
    /// # Errors
    /// The engine's, among them a conflict, after which it is to be run again.
    #[inline]
    pub fn run(&self, tx: &Transaction<'_, P>, request: &Increment) -> Result<bool, Error> {
        increment(&self.counters, tx, request.key)?;
        Ok(true)
    }

    /// Executes a request's procedure, unless it may be set aside.
    #[inline]
    fn execute_procedure(&self, request: &Increment) -> Option<Result<bool, Failure>> {
        if P::SPLITS {
            return None;
        }
        let mut procedure = IncrementCounter::new(&self.counters, request.key);
        let done: Result<(), Error> = self.database.execute(&mut procedure);
        Some(done.map(|()| true).map_err(failure_of))
    }
}
