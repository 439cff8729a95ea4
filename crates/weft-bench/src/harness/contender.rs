//! Contenders of a benchmark: a protocol with its loaded database, or something else that does the same work,
//! behind one trait.
//!
//! The harness calls a contender once for each round, so this dynamic dispatch does not affect transactions: they
//! are compiled separately for each protocol and workload.

use weft::protocol::Protocol;
use weft_inspect::InspectDatabase;
use weft_protocols::{CoordinatedDatabase, coordinator_of};
use weft_workloads::incr::Change;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::variants::protocol_of;
use weft_workloads::workload::{Condition, LoadOptions, Outcome, Workload};

use crate::arguments::{AcknowledgeName, Observation};
use crate::progress::Progress;
use crate::stop::Stop;

use super::round::{self, Plan, Round};
use super::tally::Tally;

/// The properties in which contenders may differ.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The name of the protocol, or of a variant of it.
    pub protocol: String,
    /// The snapshots on which read-only transactions run.
    pub snapshots: Snapshots,
    /// When commits return.
    pub acknowledge: AcknowledgeName,
    /// Whether the database is observed.
    pub observation: Observation,
}

impl Variant {
    /// Returns the name of the protocol.
    pub fn protocol(&self) -> &str {
        protocol_of(&self.protocol)
    }

    /// Returns the name in the tables, such as `dbx+log+snapshots` or `dbx+recent`.
    pub fn label(&self) -> String {
        let log = match self.acknowledge {
            AcknowledgeName::Memory => "",
            AcknowledgeName::Committed => "+log",
            AcknowledgeName::Durable => "+durable",
        };
        let snapshots = match self.snapshots {
            Snapshots::Off => "",
            Snapshots::On => "+snapshots",
            Snapshots::Recent => "+recent",
        };
        let observed = match self.observation {
            Observation::Off => "",
            Observation::On => "+contention",
        };
        format!("{}{log}{snapshots}{observed}", self.protocol)
    }
}

/// The workload of one `cargo lab bench` command.
pub trait Benchmark {
    /// Loads a contender for `options.threads` clients. `options` also says where the database keeps its data.
    ///
    /// # Errors
    /// The errors of the workload and of the engine.
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop>;

    /// Returns how the workload changes during a run, for the timeline; `None` if it does not change.
    fn change(&self) -> Option<Change> {
        None
    }

    /// Returns whether the tables have what each thread got.
    fn shows_threads(&self) -> bool {
        false
    }
}

/// A contender, with the database that it keeps for the whole run.
pub trait Contender {
    /// Returns the workload's name.
    fn workload(&self) -> &'static str;

    /// Returns the names of the workload's transaction types.
    fn transactions(&self) -> &'static [&'static str];

    /// Returns the protocol's name.
    fn protocol(&self) -> &'static str;

    /// Returns the backend of its regions: `rtm` or `software`; `None` if the protocol has no regions.
    fn htm_backend(&self) -> Option<String>;

    /// Returns the number of transactions for each one whose latency is measured.
    fn transactions_per_sample(&self) -> u64;

    /// Runs one round.
    fn round(&mut self, plan: &Plan, progress: &Progress) -> Result<Round, Stop>;

    /// Returns the sums over all rounds so far, by transaction type.
    fn totals(&self) -> &[Tally];

    /// Returns the engine's metrics.
    fn metrics(&self) -> weft::Metrics;

    /// Returns the report of where transactions conflict, if the database is observed.
    fn contention(&self) -> Option<weft_inspect::Report>;

    /// Checks the workload's invariants.
    fn verify(&self, progress: &Progress) -> Result<Vec<Condition>, Stop>;
}

/// What the threads of a round run: a workload under a protocol ([`UnderProtocol`]), or something without a
/// protocol.
pub trait System: Sync {
    /// The workload's name.
    const WORKLOAD: &'static str;

    /// The names of the workload's transaction types.
    const TRANSACTIONS: &'static [&'static str];

    /// The state that a thread carries from one transaction to the next.
    type Client: Send;

    /// Returns the name of the contender.
    fn name(&self) -> &'static str;

    /// Returns the number of transactions for each one whose latency is measured; see `tally`.
    fn transactions_per_sample(&self) -> u64;

    /// See [`Contender::htm_backend`].
    fn htm_backend(&self) -> Option<String>;

    /// See [`Workload::client`].
    fn client(&self, seed: u64, thread: usize, threads: usize) -> Self::Client;

    /// See [`Workload::execute`].
    fn execute(&self, client: &mut Self::Client) -> Result<Outcome, weft::Failure>;

    /// See [`Workload::finish`].
    fn finish(&self, client: &mut Self::Client) -> Result<(), weft::Failure> {
        let _ = client;
        Ok(())
    }

    /// Returns the database if a thread of its own changes its phases.
    fn coordinator(&self) -> Option<&(dyn CoordinatedDatabase + Sync)> {
        None
    }

    /// Returns the engine's metrics.
    fn metrics(&self) -> weft::Metrics;

    /// See [`Contender::contention`].
    fn contention(&self) -> Option<weft_inspect::Report> {
        None
    }

    /// Waits until the log, if there is one, is written. Otherwise the writing would disturb the next round, which
    /// is another contender's.
    fn flush(&self) -> Result<(), weft::Failure>;

    /// See [`Workload::verify`].
    fn verify(&self, progress: &Progress) -> Result<Vec<Condition>, weft::Failure>;
}

/// A workload loaded under protocol `P`. The latency of one transaction in `SAMPLE` is measured; if commits wait
/// for the disk, that of every transaction.
pub struct UnderProtocol<P, W, const SAMPLE: u64> {
    workload: W,
    waits_for_disk: bool,
    protocol: std::marker::PhantomData<fn() -> P>,
}

impl<P: Protocol, W: Workload<P>, const SAMPLE: u64> System for UnderProtocol<P, W, SAMPLE> {
    const WORKLOAD: &'static str = W::NAME;
    const TRANSACTIONS: &'static [&'static str] = W::TRANSACTIONS;
    type Client = W::Client;

    fn name(&self) -> &'static str {
        P::NAME
    }

    fn transactions_per_sample(&self) -> u64 {
        if self.waits_for_disk { 1 } else { SAMPLE }
    }

    fn htm_backend(&self) -> Option<String> {
        P::USES_HTM.then(|| self.workload.database().htm_backend().to_string())
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> W::Client {
        self.workload.client(seed, thread, threads)
    }

    #[inline]
    fn execute(&self, client: &mut W::Client) -> Result<Outcome, weft::Failure> {
        self.workload.execute(client)
    }

    fn finish(&self, client: &mut W::Client) -> Result<(), weft::Failure> {
        self.workload.finish(client)
    }

    fn coordinator(&self) -> Option<&(dyn CoordinatedDatabase + Sync)> {
        coordinator_of(self.workload.database())
    }

    fn metrics(&self) -> weft::Metrics {
        self.workload.database().metrics()
    }

    fn contention(&self) -> Option<weft_inspect::Report> {
        let report = self.workload.database().contention().ok();
        report.filter(|report| report.is_observed)
    }

    fn flush(&self) -> Result<(), weft::Failure> {
        let database = self.workload.database();
        match database.durable_epoch() {
            Some(_) => database.flush(),
            None => Ok(()),
        }
    }

    fn verify(&self, progress: &Progress) -> Result<Vec<Condition>, weft::Failure> {
        self.workload.verify(&|done, total| progress.set(done, total))
    }
}

/// Loads a workload under a protocol.
///
/// # Errors
/// The errors of the workload and of the engine.
pub fn load_under<P: Protocol, W: Workload<P> + 'static, const SAMPLE: u64>(
    parameters: &W::Parameters,
    options: &LoadOptions<'_>,
) -> Result<Box<dyn Contender>, Stop> {
    let workload =
        W::load(parameters, options).map_err(|failure| failed_to_load(P::NAME, &failure))?;
    let acknowledge = options.storage.map(|storage| storage.durability.acknowledge);
    let waits_for_disk = acknowledge == Some(weft::Acknowledge::Durable);
    let protocol = std::marker::PhantomData;
    let system = UnderProtocol::<P, W, SAMPLE> { workload, waits_for_disk, protocol };
    Ok(Box::new(LoadedContender::new(system, options.threads)))
}

/// Returns the error for a load that failed.
pub fn failed_to_load(name: &str, failure: &weft::Failure) -> Stop {
    Stop::Failed(format!("{name}, loading: {failure}"))
}

/// A loaded contender with its clients, and its results so far.
pub struct LoadedContender<D: System> {
    system: D,
    /// One element per thread; set in the first round, by the thread that uses the client.
    clients: Vec<Option<D::Client>>,
    totals: Vec<Tally>,
}

impl<D: System> LoadedContender<D> {
    /// Creates a contender that has not run.
    pub fn new(system: D, threads: usize) -> Self {
        LoadedContender {
            system,
            clients: (0..threads).map(|_| None).collect(),
            totals: vec![Tally::new(); D::TRANSACTIONS.len()],
        }
    }
}

impl<D: System> Contender for LoadedContender<D> {
    fn workload(&self) -> &'static str {
        D::WORKLOAD
    }

    fn transactions(&self) -> &'static [&'static str] {
        D::TRANSACTIONS
    }

    fn protocol(&self) -> &'static str {
        self.system.name()
    }

    fn htm_backend(&self) -> Option<String> {
        self.system.htm_backend()
    }

    fn transactions_per_sample(&self) -> u64 {
        self.system.transactions_per_sample()
    }

    fn round(&mut self, plan: &Plan, progress: &Progress) -> Result<Round, Stop> {
        let round = round::run(&self.system, &mut self.clients, &mut self.totals, plan, progress)?;
        let name = self.system.name();
        self.system.flush().map_err(|failure| Stop::Failed(format!("{name}, log: {failure}")))?;
        Ok(round)
    }

    fn totals(&self) -> &[Tally] {
        &self.totals
    }

    fn metrics(&self) -> weft::Metrics {
        self.system.metrics()
    }

    fn contention(&self) -> Option<weft_inspect::Report> {
        self.system.contention()
    }

    fn verify(&self, progress: &Progress) -> Result<Vec<Condition>, Stop> {
        self.system.verify(progress).map_err(|failure| {
            Stop::Failed(format!("{}, verifying: {failure}", self.system.name()))
        })
    }
}
