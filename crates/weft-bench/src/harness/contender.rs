//! Whoever takes part in a benchmark: a protocol with its loaded database, or something else that
//! does the same work, behind one face.
//!
//! The harness asks a contender for whole rounds, so this dynamic dispatch is nowhere near the
//! transactions: these are compiled for each protocol and workload by themselves.

use weft::protocol::Protocol;
use weft_workloads::incr::Change;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::variants::protocol_of;
use weft_workloads::workload::{Condition, LoadOptions, Outcome, Workload};

use crate::arguments::AcknowledgeName;
use crate::progress::Progress;
use crate::stop::Stop;

use super::round::{self, Plan, Round};
use super::tally::Tally;

/// In what contenders may differ.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The protocol's name, or that of a variant of it.
    pub protocol: String,
    /// On which snapshots read-only transactions run.
    pub snapshots: Snapshots,
    /// When commits return.
    pub acknowledge: AcknowledgeName,
}

impl Variant {
    /// The protocol's name.
    pub fn protocol(&self) -> &str {
        protocol_of(&self.protocol)
    }

    /// What the tables call it: `dbx+log+snapshots`, or `dbx+recent`.
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
        format!("{}{log}{snapshots}", self.protocol)
    }
}

/// What one `cargo lab bench` command is about.
pub trait Benchmark {
    /// Loads what takes part, for so many clients as `options` has threads; `options` say where
    /// the database keeps its data.
    ///
    /// # Errors
    /// Whatever the workload or the engine fails with.
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop>;

    /// How the workload changes while it runs, if it does: for the timeline.
    fn change(&self) -> Option<Change> {
        None
    }
}

/// Somebody who takes part, with the database that it keeps for the whole call.
pub trait Contender {
    /// The workload's name.
    fn workload(&self) -> &'static str;

    /// The names of the workload's transaction types.
    fn transactions(&self) -> &'static [&'static str];

    /// The protocol's name.
    fn protocol(&self) -> &'static str;

    /// What runs its regions: `rtm` or `software`; `None` if the protocol has no regions.
    fn htm_backend(&self) -> Option<String>;

    /// How many transactions run for each one whose latency is taken.
    fn transactions_per_sample(&self) -> u64;

    /// Runs one round.
    fn round(&mut self, plan: &Plan, progress: &Progress) -> Result<Round, Stop>;

    /// All rounds so far, by transaction type.
    fn totals(&self) -> &[Tally];

    /// The engine's own account of itself.
    fn metrics(&self) -> weft::Metrics;

    /// Checks the workload's invariants.
    fn verify(&self, progress: &Progress) -> Result<Vec<Condition>, Stop>;
}

/// What the threads of a round drive: a workload under a protocol ([`UnderProtocol`]), or something
/// without one.
pub trait Driven: Sync {
    /// The workload's name.
    const WORKLOAD: &'static str;

    /// The names of its transaction types.
    const TRANSACTIONS: &'static [&'static str];

    /// What one thread carries from one transaction to the next.
    type Client: Send;

    /// By what name it takes part.
    fn name(&self) -> &'static str;

    /// How many transactions run for each one whose latency is taken; see `tally`.
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

    /// The engine's own account of itself.
    fn metrics(&self) -> weft::Metrics;

    /// Waits until the log, if there is one, is written: what a round leaves to be written is not
    /// to disturb the next one, which is another contender's.
    fn flush(&self) -> Result<(), weft::Failure>;

    /// See [`Workload::verify`].
    fn verify(&self, progress: &Progress) -> Result<Vec<Condition>, weft::Failure>;
}

/// A workload loaded under protocol `P`, of which the latency of one transaction in `SAMPLE` is
/// taken; of each, if a commit waits for the disk.
pub struct UnderProtocol<P, W, const SAMPLE: u64> {
    workload: W,
    waits_for_disk: bool,
    protocol: std::marker::PhantomData<fn() -> P>,
}

impl<P: Protocol, W: Workload<P>, const SAMPLE: u64> Driven for UnderProtocol<P, W, SAMPLE> {
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

    fn metrics(&self) -> weft::Metrics {
        self.workload.database().metrics()
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
/// Whatever the workload or the engine fails with.
pub fn load_under<P: Protocol, W: Workload<P> + 'static, const SAMPLE: u64>(
    parameters: &W::Parameters,
    options: &LoadOptions<'_>,
) -> Result<Box<dyn Contender>, Stop> {
    let workload =
        W::load(parameters, options).map_err(|failure| failed_to_load(P::NAME, &failure))?;
    let acknowledge = options.storage.map(|storage| storage.durability.acknowledge);
    let waits_for_disk = acknowledge == Some(weft::Acknowledge::Durable);
    let protocol = std::marker::PhantomData;
    let driven = UnderProtocol::<P, W, SAMPLE> { workload, waits_for_disk, protocol };
    Ok(Box::new(Loaded::new(driven, options.threads)))
}

/// What a load ends with that fails.
pub fn failed_to_load(name: &str, failure: &weft::Failure) -> Stop {
    Stop::Failed(format!("{name}, loading: {failure}"))
}

/// What is driven, and its clients and results so far.
pub struct Loaded<D: Driven> {
    driven: D,
    /// One place per thread; filled in the first round, by the thread that uses the client.
    clients: Vec<Option<D::Client>>,
    totals: Vec<Tally>,
}

impl<D: Driven> Loaded<D> {
    /// Nothing has run yet.
    pub fn new(driven: D, threads: usize) -> Self {
        Loaded {
            driven,
            clients: (0..threads).map(|_| None).collect(),
            totals: vec![Tally::new(); D::TRANSACTIONS.len()],
        }
    }
}

impl<D: Driven> Contender for Loaded<D> {
    fn workload(&self) -> &'static str {
        D::WORKLOAD
    }

    fn transactions(&self) -> &'static [&'static str] {
        D::TRANSACTIONS
    }

    fn protocol(&self) -> &'static str {
        self.driven.name()
    }

    fn htm_backend(&self) -> Option<String> {
        self.driven.htm_backend()
    }

    fn transactions_per_sample(&self) -> u64 {
        self.driven.transactions_per_sample()
    }

    fn round(&mut self, plan: &Plan, progress: &Progress) -> Result<Round, Stop> {
        let round = round::run(&self.driven, &mut self.clients, &mut self.totals, plan, progress)?;
        let name = self.driven.name();
        self.driven.flush().map_err(|failure| Stop::Failed(format!("{name}, log: {failure}")))?;
        Ok(round)
    }

    fn totals(&self) -> &[Tally] {
        &self.totals
    }

    fn metrics(&self) -> weft::Metrics {
        self.driven.metrics()
    }

    fn verify(&self, progress: &Progress) -> Result<Vec<Condition>, Stop> {
        self.driven.verify(progress).map_err(|failure| {
            Stop::Failed(format!("{}, verifying: {failure}", self.driven.name()))
        })
    }
}
