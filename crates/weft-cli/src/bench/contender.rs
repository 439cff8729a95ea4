//! A protocol with its loaded database, behind one face for all protocols and workloads.
//!
//! The harness asks a contender for whole rounds, so this dynamic dispatch is nowhere near the
//! transactions: these are compiled for each protocol and workload by themselves.

use weft::protocol::Protocol;
use weft_workloads::workload::{Condition, LoadOptions, Workload};

use crate::arguments::BenchArguments;
use crate::progress::Progress;
use crate::stop::Stop;

use super::round::{self, Plan, Round};
use super::tally::Tally;

/// A workload for whatever protocol: what one `weft bench` command is about.
pub trait Benchmark {
    /// What the workload is told to load and to run.
    type Parameters: Clone + Send + Sync;

    /// The workload under protocol `P`.
    type Workload<P: Protocol>: Workload<P, Parameters = Self::Parameters> + 'static;
}

/// A protocol that takes part, with the database that it keeps for the whole call.
pub trait Contender {
    /// The workload's name.
    fn workload(&self) -> &'static str;

    /// The names of the workload's transaction types.
    fn transactions(&self) -> &'static [&'static str];

    /// The protocol's name.
    fn protocol(&self) -> &'static str;

    /// What runs its regions: `rtm` or `software`; `None` if the protocol has no regions.
    fn htm_backend(&self) -> Option<String>;

    /// Runs one round.
    fn round(&mut self, plan: &Plan, progress: &Progress) -> Result<Round, Stop>;

    /// All rounds so far, by transaction type.
    fn totals(&self) -> &[Tally];

    /// The engine's own account of itself.
    fn metrics(&self) -> weft::Metrics;

    /// Checks the workload's invariants.
    fn verify(&self, progress: &Progress) -> Result<Vec<Condition>, Stop>;
}

/// A workload loaded under protocol `P`.
pub struct Loaded<P: Protocol, W: Workload<P>> {
    workload: W,
    /// One place per thread; filled in the first round, by the thread that uses the client.
    clients: Vec<Option<W::Client>>,
    totals: Vec<Tally>,
    protocol: std::marker::PhantomData<fn() -> P>,
}

impl<P: Protocol, W: Workload<P>> Loaded<P, W> {
    /// Opens and fills a database.
    ///
    /// # Errors
    /// Whatever the workload or the engine fails with.
    pub fn load(
        parameters: &W::Parameters,
        arguments: &BenchArguments,
        htm: weft::htm::Choice,
        progress: &Progress,
    ) -> Result<Self, Stop> {
        let options = LoadOptions {
            seed: arguments.seed,
            threads: arguments.threads,
            htm,
            reserve_bytes: arguments.reserve_mib << 20,
            progress: &|done, total| progress.set(done, total),
        };
        let workload = W::load(parameters, &options)
            .map_err(|failure| Stop::Failed(format!("{}, loading: {failure}", P::NAME)))?;
        Ok(Loaded {
            workload,
            clients: (0..arguments.threads).map(|_| None).collect(),
            totals: vec![Tally::new(); W::TRANSACTIONS.len()],
            protocol: std::marker::PhantomData,
        })
    }
}

impl<P: Protocol, W: Workload<P>> Contender for Loaded<P, W> {
    fn workload(&self) -> &'static str {
        W::NAME
    }

    fn transactions(&self) -> &'static [&'static str] {
        W::TRANSACTIONS
    }

    fn protocol(&self) -> &'static str {
        P::NAME
    }

    fn htm_backend(&self) -> Option<String> {
        P::USES_HTM.then(|| self.workload.database().htm_backend().to_string())
    }

    fn round(&mut self, plan: &Plan, progress: &Progress) -> Result<Round, Stop> {
        round::run(&self.workload, &mut self.clients, &mut self.totals, plan, progress)
    }

    fn totals(&self) -> &[Tally] {
        &self.totals
    }

    fn metrics(&self) -> weft::Metrics {
        self.workload.database().metrics()
    }

    fn verify(&self, progress: &Progress) -> Result<Vec<Condition>, Stop> {
        self.workload
            .verify(&|done, total| progress.set(done, total))
            .map_err(|failure| Stop::Failed(format!("{}, verifying: {failure}", P::NAME)))
    }
}
