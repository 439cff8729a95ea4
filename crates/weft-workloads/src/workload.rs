//! What a workload is to the harness that runs it: how it loads, what one client does, and how
//! to tell afterwards that the database is right.
//!
//! A workload is written once, for every protocol. The harness:
//!
//! 1. calls [`Workload::load`], which opens a database of its own and fills it;
//! 2. makes one [client](Workload::client) per thread and calls [`Workload::execute`] on it until
//!    the time is up: each call is one whole transaction, conflicts retried inside;
//! 3. once all clients have stopped, calls [`Workload::verify`] and reports every [`Condition`].

use std::fmt;
use std::path::Path;
use std::time::Duration;

use weft::htm::RetryPolicy;
use weft::protocol::Protocol;
use weft::{Builder, Database, DurabilityOptions, Error, Failure};
use weft_procedures::Shape;
use weft_procedures::chopping::Token;
use weft_protocols::{BuilderExt, DbxTcOptions, HtccOptions, PhaseOptions};

/// Told how much of a long task is done: `(done, total)`, in rows.
///
/// It is called from the threads that do the work, a few hundred times a second at most, and
/// should return quickly.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// One workload, written once for every protocol.
pub trait Workload<P: Protocol>: Send + Sync + Sized {
    /// The workload's name on the command line and in results.
    const NAME: &'static str;

    /// The names of its transaction types; [`Outcome::transaction`] is a position in it.
    const TRANSACTIONS: &'static [&'static str];

    /// Size of the database and shape of the load.
    type Parameters: Clone + Send + Sync;

    /// What one client carries from one transaction to the next: random numbers, home, buffers.
    type Client: Send;

    /// Opens a database and fills it. The same parameters and seed give the same rows (but for
    /// the dates in them), whatever the number of threads.
    ///
    /// # Errors
    /// Parameters out of range, or what the engine reports.
    fn load(parameters: &Self::Parameters, options: &LoadOptions<'_>) -> Result<Self, Failure>;

    /// The database under test.
    fn database(&self) -> &Database<P>;

    /// The client for the `thread`-th of `threads` threads, `thread` counted from 0. `seed` is
    /// the run's: clients of different threads draw different numbers from the same seed.
    fn client(&self, seed: u64, thread: usize, threads: usize) -> Self::Client;

    /// Generates the input of one transaction and runs it to its end; conflicts are retried
    /// inside.
    ///
    /// # Errors
    /// A failure of the engine, which no retry would cure.
    fn execute(&self, client: &mut Self::Client) -> Result<Outcome, Failure>;

    /// Runs what a client has begun and set aside (see [`weft::Stash`]) to its end.
    ///
    /// # Errors
    /// As [`Workload::execute`].
    fn finish(&self, client: &mut Self::Client) -> Result<(), Failure> {
        let _ = client;
        Ok(())
    }

    /// Checks every invariant. Only while no transaction is running.
    ///
    /// # Errors
    /// A failure of the engine; a broken invariant is a [`Condition`] that does not hold.
    fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure>;
}

/// How to load, apart from what.
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// Repeats the same rows.
    pub seed: u64,
    /// Threads to load with.
    pub threads: usize,
    /// The HTM backend for the database.
    pub htm: weft::htm::Choice,
    /// At which conflict a hardware region gives up; as the engine has it if `None`.
    pub conflict_retries: Option<u32>,
    /// Memory for the database to take, and touch, before it is filled.
    pub reserve_bytes: usize,
    /// How long phases last, under a protocol that has them; as the engine has it if `None`.
    pub phase_length: Option<Duration>,
    /// What of `htcc` is done, under that protocol; as the engine has it if `None`.
    pub htcc: Option<&'a HtccOptions>,
    /// How procedures are chopped under `dbx-tc`, and which is the workload's to say; as the engine has it if
    /// `None`.
    pub dbx_tc: Option<&'a DbxTcOptions>,
    /// Where the database keeps its data; in memory alone if `None`.
    pub storage: Option<StorageOptions<'a>>,
    /// Told of the rows loaded so far.
    pub progress: Progress<'a>,
}

/// Where a database keeps its data, and how.
#[derive(Clone, Copy, Debug)]
pub struct StorageOptions<'a> {
    /// The directory, in which there is no database yet.
    pub directory: &'a Path,
    /// How. Whatever commits are acknowledged by, the load waits for the disk only once for each table,
    /// when it writes a checkpoint.
    pub durability: &'a DurabilityOptions,
}

impl LoadOptions<'_> {
    /// Starts to open the database.
    pub(crate) fn builder<P: Protocol>(&self) -> Builder<P> {
        let builder =
            Database::builder().protocol::<P>().htm(self.htm).reserve_bytes(self.reserve_bytes);
        let builder = match self.conflict_retries {
            Some(conflict) => {
                builder.htm_retry_policy(RetryPolicy { conflict, ..RetryPolicy::default() })
            }
            None => builder,
        };
        let builder = match self.phase_length {
            Some(length) => builder.phases(PhaseOptions::new().length(length)),
            None => builder,
        };
        let builder = match self.htcc {
            Some(options) => builder.htcc(options.clone()),
            None => builder,
        };
        match self.storage {
            Some(StorageOptions { directory, durability }) => {
                // A checkpoint is written by workers.
                let threads = durability.threads.clamp(1, P::WORKERS_MAX);
                builder.directory(directory).durability(durability.clone().threads(threads))
            }
            None => builder,
        }
    }

    /// Starts to open the database of a workload with these procedures.
    pub(crate) fn builder_with<P: Protocol>(
        &self,
        procedures: Vec<&'static Shape>,
        tokens: Vec<Token>,
    ) -> Builder<P> {
        let known = self.dbx_tc.cloned().unwrap_or_default();
        self.builder().dbx_tc(known.procedures(procedures).tokens(tokens))
    }
}

impl Default for LoadOptions<'_> {
    /// One thread, seed 0, whatever HTM there is, phases of the usual length, the whole of `htcc` and of
    /// `dbx-tc`, no directory, no report of progress.
    fn default() -> Self {
        LoadOptions {
            seed: 0,
            threads: 1,
            htm: weft::htm::Choice::Auto,
            reserve_bytes: 0,
            conflict_retries: None,
            phase_length: None,
            htcc: None,
            dbx_tc: None,
            storage: None,
            progress: &|_, _| {},
        }
    }
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LoadOptions")
            .field("seed", &self.seed)
            .field("threads", &self.threads)
            .field("htm", &self.htm)
            .finish_non_exhaustive()
    }
}

/// How one transaction ended. Both ways it has run to completion and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its type: a position in [`Workload::TRANSACTIONS`].
    pub transaction: usize,
    /// Whether it ended in a roll-back that the workload asked for, such as an unused item
    /// number, or did not succeed, as the workload has it, and changed nothing; never because of a
    /// conflict.
    pub rolled_back: bool,
    /// When it was begun, if others ran in between: it had been set aside.
    pub begun: Option<Moment>,
}

impl Outcome {
    /// A transaction that ran from its beginning to its end.
    #[inline]
    pub fn new(transaction: usize, rolled_back: bool) -> Outcome {
        Outcome { transaction, rolled_back, begun: None }
    }
}

/// A point in time.
#[cfg(not(weft_sim))]
pub type Moment = std::time::Instant;

/// A point in virtual time: the cycles of the simulated machine.
#[cfg(weft_sim)]
pub type Moment = u64;

/// The present moment.
pub(crate) fn now() -> Moment {
    #[cfg(not(weft_sim))]
    return std::time::Instant::now();
    #[cfg(weft_sim)]
    weft::htm::simulation::cycles().unwrap_or_default()
}

/// What became of one invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The invariant in words, such as `TPC-C consistency condition 1: W_YTD = sum(D_YTD)`.
    pub name: String,
    /// Whether it held everywhere it was checked.
    pub holds: bool,
    /// The number of places where it was checked.
    pub checked: u64,
    /// The first place where it did not hold, with both sides.
    pub detail: Option<String>,
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds { "holds" } else { "BROKEN" };
        write!(formatter, "{}: {verdict} ({} checked)", self.name, self.checked)?;
        match &self.detail {
            Some(detail) => write!(formatter, ": {detail}"),
            None => Ok(()),
        }
    }
}

/// What remains of an engine's error once conflicts are retried.
pub(crate) fn failure_of(error: Error) -> Failure {
    match error {
        Error::Failure(failure) => failure,
        Error::Conflict(conflict) => {
            unreachable!("a conflict is retried without limit, and yet came out: {conflict:?}")
        }
    }
}
