//! The locks of *No Free Lunch* (Cervini, Porobic, Tözün, Ailamaki: *Applying HTM to an OLTP System: No Free
//! Lunch*, DaMoN 2015) under TATP's transactions, each elided by hardware regions or not. Also the locks of a hash
//! map.
//!
//! There is no database, and there are no transactions of Weft. The locks measured are those of
//! [`weft::htm::lock`], around structures in memory whose rows are words.
//!
//! - [`Register`]: the subscribers under one lock of any kind, with one section for each row that is read or
//!   updated;
//! - [`Probe`]: the engine's B+-tree, with one coarse latch of any kind around each look-up (§5), or without a
//!   latch;
//! - [`StorageManager`]: the structures that the paper's transaction goes through in Shore-MT (pages, buffer pool,
//!   lock table, transactions, log), with all four locks where Shore-MT has them (§3.2). Kinds of locks may be elided
//!   alone and together (§4), and a coarse latch may replace all latches of a look-up (§5);
//! - [`Map`]: a hash map in which a transaction updates ten records, all in one region or each under a lock of its
//!   own. This is HTCC's comparison of regions with fine-grained locks.
//!
//! A [`LockComparison`] is a comparison of such locks.
//!
//! Subscribers are drawn unevenly, as in [TATP](crate::tatp), and the map's records by Zipf's law. Clients run one
//! transaction after the other.

mod comparison;
mod manager;
mod map;
mod probe;
mod register;
#[cfg(test)]
mod tests;

#[cfg(not(weft_sim))]
use std::hint::black_box;
use std::sync::Arc;

use weft::htm::word::{Mutex, Ordering, Word};
use weft::htm::{Backend, Htm, Regions, RetryPolicy, Statistics, StatisticsReader};
use weft::{Failure, Metrics};

use crate::random::Random;
use crate::tatp::{Mix, SUBSCRIBERS_MAX, TransactionType, unevenness};
use crate::workload::{Condition, LoadOptions, Outcome};

pub use comparison::{LockComparison, ProtectedStructure, Visitor};
pub use manager::{Kinds, Part, Parts, StorageManager};
pub use map::Map;
pub use probe::Probe;
pub use register::{NoLock, Register};

/// The words of a subscriber's row: a cache line.
const ROW_WORDS: usize = 8;

/// The size of the structures, and the properties of the transactions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The number of subscribers, or of a map's records: from 1 to [`SUBSCRIBERS_MAX`].
    pub subscribers: u32,
    /// The share of transactions that update a row of a [`Register`], in percent.
    pub updates: u8,
    /// The transactions of a [`StorageManager`].
    pub mix: Mix,
    /// The skew of the popularity of a [`Map`]'s records: θ of Zipf's law.
    pub theta: f64,
}

impl Default for Parameters {
    /// Returns the paper's population, with its shortest transaction.
    fn default() -> Self {
        let mix = Mix::only(TransactionType::GetSubscriberData);
        Parameters { subscribers: 80_000, updates: 0, mix, theta: 0.0 }
    }
}

/// A structure that the locks protect.
pub trait Structure: Send + Sync + Sized {
    /// The names of the transaction types.
    const TRANSACTIONS: &'static [&'static str];

    /// The state with which a thread accesses the structure.
    type Worker: Send;

    /// Creates the state of the `thread`-th of `threads` threads.
    ///
    /// # Errors
    /// The engine's error.
    fn worker(&self, seed: u64, thread: usize, threads: usize) -> Result<Self::Worker, Failure>;

    /// Returns whether some of its locks are elided.
    fn is_elided(&self) -> bool;

    /// Draws a transaction, and runs it.
    fn execute(
        &self,
        worker: &mut Self::Worker,
        regions: &Regions,
        draws: &mut TransactionSource,
    ) -> TransactionResult;

    /// Checks the invariants after `updates` updates of rows. No client may be running.
    fn conditions(&self, updates: u64) -> Vec<Condition>;
}

/// A structure, and the accounts of its clients.
pub struct Locks<S> {
    structure: S,
    parameters: Parameters,
    htm: Htm,
    accounts: Mutex<Vec<Account>>,
}

/// The source from which a client draws its transactions.
#[derive(Debug)]
pub struct TransactionSource {
    random: Random,
    subscribers: u32,
    unevenness: u32,
    updates: u8,
    mix: Mix,
}

impl TransactionSource {
    /// Chooses a subscriber, some far more often than others.
    #[inline]
    fn subscriber(&mut self) -> u32 {
        self.random.nurand(self.unevenness, 0, 1, self.subscribers)
    }

    /// Chooses a number below `count`.
    #[inline]
    fn one_of(&mut self, count: u32) -> u32 {
        self.random.within(0, count - 1)
    }

    /// Returns whether the next transaction is an update.
    #[inline]
    fn is_update(&mut self) -> bool {
        self.updates > 0 && self.random.chance(self.updates.into())
    }
}

/// The result of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct TransactionResult {
    /// Its type.
    transaction: usize,
    /// Whether it found what it asked for.
    succeeded: bool,
    /// The number of rows that it updated.
    updates: u64,
}

impl TransactionResult {
    /// Returns the result of a transaction that found what it asked for.
    fn updating(transaction: usize, updates: u64) -> TransactionResult {
        TransactionResult { transaction, succeeded: true, updates }
    }
}

/// The counters of a client that verification and reports read.
struct Account {
    updates: Arc<Word>,
    regions: StatisticsReader,
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client<W> {
    draws: TransactionSource,
    updated: Arc<Word>,
    regions: Regions,
    worker: W,
}

impl<S: Structure> Locks<S> {
    /// The names of the transaction types.
    pub const TRANSACTIONS: &'static [&'static str] = S::TRANSACTIONS;

    /// Loads a structure. `fill` creates it for a number of subscribers.
    ///
    /// # Errors
    /// The options ask for hardware that does not exist, or `fill` returns an error.
    ///
    /// # Panics
    /// A number in `parameters` is out of its range.
    pub fn load(
        parameters: &Parameters,
        options: &LoadOptions<'_>,
        fill: impl FnOnce(u32) -> Result<S, Failure>,
    ) -> Result<Self, Failure> {
        let &Parameters { subscribers, updates, .. } = parameters;
        assert!((1..=SUBSCRIBERS_MAX).contains(&subscribers), "{subscribers} subscribers");
        assert!(updates <= 100, "{updates} percent");
        let htm = Htm::open(
            options.htm.unwrap_or_default(),
            options.retry_policy(RetryPolicy::default()),
        )?;
        let structure = fill(subscribers)?;
        (options.progress)(subscribers.into(), subscribers.into());
        let accounts = Mutex::default();
        Ok(Locks { structure, parameters: *parameters, htm, accounts })
    }

    /// Returns the backend of the regions that replace locks; `None` if no lock is elided.
    pub fn htm_backend(&self) -> Option<Backend> {
        self.structure.is_elided().then(|| self.htm.backend())
    }

    /// Creates the client of the `thread`-th of `threads` threads.
    ///
    /// # Panics
    /// There are more clients than workers of a database.
    pub fn client(&self, seed: u64, thread: usize, threads: usize) -> Client<S::Worker> {
        let (regions, updated) = (Regions::new(&self.htm), Arc::new(Word::new(0)));
        let account = Account { updates: Arc::clone(&updated), regions: regions.reader() };
        self.accounts.lock().expect("no client panics with the lock").push(account);
        let &Parameters { subscribers, updates, mix, .. } = &self.parameters;
        let (random, unevenness) = (Random::new(seed, thread as u64), unevenness(subscribers));
        let worker = self.structure.worker(seed, thread, threads);
        Client {
            draws: TransactionSource { random, subscribers, unevenness, updates, mix },
            updated,
            regions,
            worker: worker.expect("as many workers as threads are allowed"),
        }
    }

    /// Runs one transaction.
    #[inline]
    pub fn execute(&self, client: &mut Client<S::Worker>) -> Outcome {
        let Client { draws, updated, regions, worker } = client;
        let ran = self.structure.execute(worker, regions, draws);
        if ran.updates > 0 {
            // Relaxed: it has one writer, and other threads read it only after joining that writer's thread.
            updated.store(updated.load(Ordering::Relaxed) + ran.updates, Ordering::Relaxed);
        }
        Outcome::new(ran.transaction, !ran.succeeded)
    }

    /// Returns the counts of elided sections of all clients so far, with the aborts by cause.
    pub fn statistics(&self) -> Statistics {
        let accounts = self.accounts.lock().expect("no client panics with the lock");
        accounts.iter().map(|account| account.regions.statistics()).sum()
    }

    /// Returns the same counts as the metrics of a database; all others are 0.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        metrics.htm = self.statistics();
        metrics
    }

    /// Checks every invariant. No client may be running.
    pub fn verify(&self) -> Vec<Condition> {
        let accounts = self.accounts.lock().expect("no client panics with the lock");
        // Relaxed: see `execute`.
        let updates = accounts.iter().map(|account| account.updates.load(Ordering::Relaxed)).sum();
        self.structure.conditions(updates)
    }
}

/// Computes without accessing memory.
#[inline]
fn compute(steps: u64) {
    #[cfg(weft_sim)]
    weft::htm::simulation::compute(steps);
    #[cfg(not(weft_sim))]
    (0..steps).for_each(|step| _ = black_box(step));
}

/// Returns a number below 4,096 that looks random.
fn scattered(key: u32) -> u32 {
    key.wrapping_mul(0x9E37_79B9) >> 20
}

/// Returns the words of a row of `words` words that follow from its number and the count of its updates: the third
/// word, and all after it.
fn pattern(number: u64, updates: u64, words: usize) -> impl Iterator<Item = u64> {
    (2..words as u64).map(move |position| number << 32 ^ updates << 4 ^ position)
}

/// A subscriber's row: its number, the count of its updates, and words that match the two.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Row([Word; ROW_WORDS]);

impl Row {
    fn new(s_id: u32) -> Row {
        let row = Row::default();
        row.fill(s_id.into(), 0);
        row
    }

    // Relaxed, here and below: the lock orders the accesses, or the region that replaces it.

    /// Returns the number of the row; 0 if this place is empty.
    #[inline(always)]
    fn number(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    /// Returns how often it was updated.
    #[inline(always)]
    fn updates(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }

    fn fill(&self, s_id: u64, updates: u64) {
        let words = [s_id, updates].into_iter().chain(pattern(s_id, updates, ROW_WORDS));
        self.0.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    fn words(&self) -> [u64; ROW_WORDS] {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Reads the whole row.
    #[inline(always)]
    fn digest(&self) -> u64 {
        self.0.iter().fold(0, |sum, word| sum ^ word.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn update(&self) {
        self.fill(self.number(), self.updates() + 1);
    }

    fn is_whole(&self) -> bool {
        let words = self.words();
        pattern(words[0], words[1], ROW_WORDS).eq(words[2..].iter().copied())
    }
}
