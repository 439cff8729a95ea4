//! The interface between a workload and the harness that runs it: how the workload is loaded, what a client runs,
//! and how the result is verified.
//!
//! A workload is written once, for every protocol. The harness:
//!
//! 1. calls [`Workload::load`], which opens a new database with the workload's tables and fills it;
//! 2. creates one [client](Workload::client) per thread and calls [`Workload::execute`] on it until the time is up:
//!    each call runs one whole transaction, and retries conflicts inside;
//! 3. calls [`Workload::verify`] after all clients have stopped, and reports every [`Condition`].

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft::commit::CommitsByRows;
use weft::htm::RetryPolicy;
use weft::protocol::Protocol;
use weft::store::observer::Observer;
use weft::{Builder, Database, DurabilityOptions, Error, Failure};
use weft_procedures::Shape;
use weft_procedures::chopping::Token;
use weft_protocols::{
    AdaptiveOptions, BuilderExt, DbxPaperOptions, DbxTcOptions, HtccOptions, PhaseOptions,
};

/// A callback for the progress of a long task: `(done, total)`, in rows.
///
/// The threads that do the work call it, at most a few hundred times a second. It should return quickly.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// A workload, written once for every protocol.
pub trait Workload<P: Protocol>: Send + Sync + Sized {
    /// The workload's name on the command line and in results.
    const NAME: &'static str;

    /// The names of its transaction types; [`Outcome::transaction`] is a position in this list.
    const TRANSACTIONS: &'static [&'static str];

    /// The size of the database and the properties of the workload.
    type Parameters: Clone + Send + Sync;

    /// The state that a client carries from one transaction to the next: random numbers, home, buffers.
    type Client: Send;

    /// Returns the procedures that run with these parameters.
    fn procedures(parameters: &Self::Parameters) -> Procedures {
        let _ = parameters;
        Procedures::default()
    }

    /// Adds the workload's tables to those of a database.
    ///
    /// # Panics
    /// A number in `parameters` is out of its range.
    fn declare(parameters: &Self::Parameters, builder: Builder<P>) -> Builder<P>;

    /// Fills the workload's tables, which are empty. The same parameters and seed give the same rows (except for
    /// dates), with any number of threads.
    ///
    /// # Errors
    /// A failure of the engine.
    fn fill(
        database: Database<P>,
        parameters: &Self::Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure>;

    /// Opens a database with the workload's tables, and fills it.
    ///
    /// # Errors
    /// A failure of the engine.
    ///
    /// # Panics
    /// A number in `parameters` is out of its range.
    fn load(parameters: &Self::Parameters, options: &LoadOptions<'_>) -> Result<Self, Failure> {
        let builder = options.builder_with(Self::procedures(parameters));
        Self::fill(Self::declare(parameters, builder).open()?, parameters, options)
    }

    /// Returns the database under test.
    fn database(&self) -> &Database<P>;

    /// Creates the client for the `thread`-th of `threads` threads, counted from 0. `seed` is the run's seed;
    /// clients of different threads draw different numbers from it.
    fn client(&self, seed: u64, thread: usize, threads: usize) -> Self::Client;

    /// Generates the input of one transaction and runs it to its end. Conflicts are retried inside.
    ///
    /// # Errors
    /// A failure of the engine, which is permanent.
    fn execute(&self, client: &mut Self::Client) -> Result<Outcome, Failure>;

    /// Runs the transactions that a client has set aside (see [`weft::Stash`]) to their end.
    ///
    /// # Errors
    /// As [`Workload::execute`].
    fn finish(&self, client: &mut Self::Client) -> Result<(), Failure> {
        let _ = client;
        Ok(())
    }

    /// Checks every invariant. No transaction may be running.
    ///
    /// # Errors
    /// A failure of the engine; a broken invariant is a [`Condition`] that does not hold.
    fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure>;
}

/// The procedures of a workload, for protocols that run them in pieces.
#[derive(Debug, Default)]
pub struct Procedures {
    /// The shapes.
    pub shapes: Vec<&'static Shape>,
    /// What the workload declares for [chopping](weft_procedures::chopping).
    pub tokens: Vec<Token>,
}

impl Procedures {
    /// Returns procedures for which nothing is declared.
    pub(crate) fn of(shapes: Vec<&'static Shape>) -> Procedures {
        Procedures { shapes, tokens: Vec::new() }
    }
}

/// The options for loading a workload.
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// The seed; the same seed gives the same rows.
    pub seed: u64,
    /// Threads to load with.
    pub threads: usize,
    /// The HTM backend for the database; `None` for the protocol's default.
    pub htm: Option<weft::htm::Choice>,
    /// The number of conflicts after which a hardware region gives up; `None` for the engine's default.
    pub conflict_retries: Option<u32>,
    /// The number of times that a hardware region may be too large before it gives up; `None` for the engine's default.
    pub capacity_retries: Option<u32>,
    /// Whether commits go by rows alone, although transactions name the columns that they use.
    pub by_rows: bool,
    /// The memory that the database allocates and touches before it is filled.
    pub reserve_bytes: usize,
    /// The length of phases, under a protocol that has them; `None` for the engine's default.
    pub phase_length: Option<Duration>,
    /// The options of `dbx:paper`, under that protocol; `None` for its default.
    pub dbx_paper: Option<DbxPaperOptions>,
    /// The options of `doppel`, except the length of phases; `None` for the engine's default.
    pub doppel: Option<&'a PhaseOptions>,
    /// The options of `htcc`, under that protocol; `None` for the engine's default.
    pub htcc: Option<&'a HtccOptions>,
    /// The options of `dbx-tc`, except those that the workload sets; `None` for the engine's default.
    pub dbx_tc: Option<&'a DbxTcOptions>,
    /// The options of `adaptive`, under that protocol; `None` for the engine's default.
    pub adaptive: Option<&'a AdaptiveOptions>,
    /// The observer of the database, if it has one.
    pub observer: Option<&'a Arc<dyn Observer>>,
    /// Where the database keeps its data; `None` for in memory only.
    pub storage: Option<StorageOptions<'a>>,
    /// Called with the number of rows loaded so far.
    pub progress: Progress<'a>,
}

/// Where and how a database keeps its data.
#[derive(Clone, Copy, Debug)]
pub struct StorageOptions<'a> {
    /// The directory, which must not contain a database yet.
    pub directory: &'a Path,
    /// The durability options. In all acknowledge modes the load waits for the disk only once for each table, when
    /// it writes a checkpoint.
    pub durability: &'a DurabilityOptions,
}

impl LoadOptions<'_> {
    /// Returns `default` with the thresholds that the options set.
    pub(crate) fn retry_policy(&self, default: RetryPolicy) -> RetryPolicy {
        RetryPolicy {
            conflict: self.conflict_retries.unwrap_or(default.conflict),
            capacity: self.capacity_retries.unwrap_or(default.capacity),
            ..default
        }
    }

    /// Returns a builder of the database of a workload with these procedures.
    pub(crate) fn builder_with<P: Protocol>(&self, procedures: Procedures) -> Builder<P> {
        let Procedures { shapes, tokens } = procedures;
        let dbx_tc = self.dbx_tc.cloned().unwrap_or_default().procedures(shapes).tokens(tokens);
        let builder =
            Database::builder().protocol::<P>().reserve_bytes(self.reserve_bytes).dbx_tc(dbx_tc);
        let builder = match self.htm {
            Some(choice) => builder.htm(choice),
            None => builder,
        };
        let (builder, policy) = match self.dbx_paper {
            Some(options) => (builder.dbx_paper(options), options.retry_policy()),
            None => (builder, RetryPolicy::default()),
        };
        let builder = builder.htm_retry_policy(self.retry_policy(policy));
        let builder = match self.by_rows {
            true => builder.protocol_options(CommitsByRows),
            false => builder,
        };
        let builder = match (self.doppel.cloned(), self.phase_length) {
            (None, None) => builder,
            (Some(options), None) => builder.phases(options),
            (options, Some(length)) => builder.phases(options.unwrap_or_default().length(length)),
        };
        let builder = match self.htcc {
            Some(options) => builder.htcc(options.clone()),
            None => builder,
        };
        let builder = match self.adaptive {
            Some(options) => builder.adaptive(options.clone()),
            None => builder,
        };
        let builder = match self.observer {
            Some(observer) => builder.protocol_options(Arc::clone(observer)),
            None => builder,
        };
        match self.storage {
            Some(StorageOptions { directory, durability }) => {
                // Workers write a checkpoint, so a protocol's limit on workers applies to the threads that write
                // it.
                let threads = durability.threads.clamp(1, P::WORKERS_MAX);
                builder.directory(directory).durability(durability.clone().threads(threads))
            }
            None => builder,
        }
    }
}

impl Default for LoadOptions<'_> {
    /// Returns the defaults: one thread, seed 0, the protocol's default of the HTM backend, the engine's defaults for phases, `htcc` and
    /// `dbx-tc`, no directory, and no report of progress.
    fn default() -> Self {
        LoadOptions {
            seed: 0,
            threads: 1,
            htm: None,
            reserve_bytes: 0,
            conflict_retries: None,
            capacity_retries: None,
            by_rows: false,
            phase_length: None,
            dbx_paper: None,
            doppel: None,
            htcc: None,
            dbx_tc: None,
            adaptive: None,
            observer: None,
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

/// The outcome of a transaction that ran to its end. It counts in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its type: a position in [`Workload::TRANSACTIONS`].
    pub transaction: usize,
    /// Whether the workload asked for a roll-back, for example because of an unused item number, or the transaction
    /// did not succeed by the workload's rules and changed nothing. A conflict is never the reason.
    pub rolled_back: bool,
    /// When it began, if it was set aside while others ran.
    pub begun: Option<Moment>,
}

impl Outcome {
    /// Returns the outcome of a transaction that ran without being set aside.
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

/// Returns the present moment.
pub(crate) fn now() -> Moment {
    #[cfg(not(weft_sim))]
    return std::time::Instant::now();
    #[cfg(weft_sim)]
    weft::htm::simulation::cycles().unwrap_or_default()
}

/// The result of checking an invariant.
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

/// Returns the failure in an engine's error, after conflicts have been retried.
pub(crate) fn failure_of(error: Error) -> Failure {
    match error {
        Error::Failure(failure) => failure,
        Error::Conflict(conflict) => {
            unreachable!("a conflict is retried without limit, but was returned: {conflict:?}")
        }
    }
}
