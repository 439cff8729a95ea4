//! `cargo simulate locks`: locks take part, elided or not, in the place of protocols.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use weft::{Failure, Metrics};
use weft_workloads::locks::{self, Contest, Parameters, Protected, Structure, Visitor};
use weft_workloads::tatp::{Mix, SUBSCRIBERS_MAX};
use weft_workloads::workload::{Condition, Outcome as Ended};

use super::ycsb::theta;
use crate::arguments::Common;
use crate::simulation::{Benchmark, CYCLES_PER_TRANSACTION, Driven, Outcome, Setting, simulate};

const HELP: &str = "\
What is simulated: the locks of `No Free Lunch` (Cervini et al., DaMoN 2015), as in `cargo lab bench locks`,
whose help says what the workloads and the locks are. conflict, capacity, locked and other are shares
of the regions that were tried; fallbacks are sections whose lock was taken after two aborts.

Examples:
  cargo simulate locks
      each lock around the rows, taken and elided, on one to eight hardware threads of the Haswell
  cargo simulate locks --workload manager --lock occ_rwlock,tatas,mcs
      selected kinds elided (Figure 2 of the paper); without --lock, all (Figure 4)
  cargo simulate locks --workload manager --coarse
      all kinds elided, and one latch for the tree (Figure 5)
  cargo simulate locks --workload manager --lock occ_rwlock,tatas,mcs --mix standard
      all of TATP's transactions (Figure 3)
  cargo simulate locks --workload map --subscribers 1000000 --machine xeon-e7-4x10 --cores 1,10,40
      ten updates in a region, or under ten locks (Figure 1 of HTCC)
  cargo simulate locks --workload manager --work 500 --compute 20000
      longer sections, in transactions that do a lot beside them, as Shore-MT's do";

/// Locks.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[command(mut_arg("protocol", |arg| {
    arg.long("lock")
        .short('l')
        .default_value("occ_rwlock,tatas,mcs,srwlock")
        .value_parser(PossibleValuesParser::new(Contest::LOCKS))
        .help("Locks, separated by commas; with --workload manager, the kinds that are elided")
}))]
pub struct Locks {
    /// What the locks protect
    #[arg(long, short, value_enum, default_value_t = WorkloadName::Getsubdata)]
    workload: WorkloadName,
    /// Whether the locks are elided: `on`, or `off,on` to compare
    #[arg(long, value_name = "off|on", value_delimiter = ',', default_value = "off,on")]
    elide: Vec<Switch>,
    /// Probe the tree under one latch, with --workload manager
    #[arg(long)]
    coarse: bool,
    /// Size of what is protected
    #[arg(long, value_name = "N", default_value_t = Parameters::default().subscribers,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SUBSCRIBERS_MAX)))]
    subscribers: u32,
    /// Share of transactions that update a row, in percent, with --workload getsubdata
    #[arg(long, value_name = "%", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    updates: u8,
    /// Transactions of --workload manager: standard, the name of one type of TATP's, or seven weights
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS",
          default_value_t = Parameters::default().mix)]
    mix: Mix,
    /// How uneven popularity is, with --workload map: 0, all records alike, to 2
    #[arg(long, value_name = "THETA", default_value_t = 0.0, value_parser = theta)]
    theta: f64,
    /// Cycles that each section of a page computes, with --workload manager
    #[arg(long, value_name = "CYCLES", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    work: u64,
    /// Cycles that a transaction computes beside its sections
    #[arg(long, value_name = "CYCLES", default_value_t = CYCLES_PER_TRANSACTION,
          value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    compute: u64,
    /// How to simulate.
    #[command(flatten)]
    common: Common,
}

/// What the locks protect.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WorkloadName {
    /// Rows, under one lock
    Getsubdata,
    /// A B+-tree, under one coarse latch
    Probe,
    /// The parts of a storage manager, with the lock of each
    Manager,
    /// A hash map: elided, one lock for all of it; not elided, one for each record
    Map,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Switch {
    /// No
    Off,
    /// Yes
    On,
}

impl Locks {
    fn contest(&self) -> Contest {
        Contest {
            protected: match self.workload {
                WorkloadName::Getsubdata => Protected::Rows,
                WorkloadName::Probe => Protected::Tree,
                WorkloadName::Manager => Protected::Manager,
                WorkloadName::Map => Protected::Map,
            },
            locks: self.common.protocol.clone(),
            elisions: self.elide.iter().map(|&switch| switch == Switch::On).collect(),
            is_coarse: self.coarse,
            work: self.work,
            parameters: Parameters {
                subscribers: self.subscribers,
                updates: self.updates,
                mix: self.mix,
                theta: self.theta,
            },
        }
    }
}

impl Benchmark for Locks {
    fn title(&self, _values: &[f64]) -> String {
        let contest = self.contest();
        format!(
            "{}; {} {}s; {} cycles of computing for each transaction, {} in each page",
            contest.title(),
            self.subscribers,
            contest.size_of(),
            self.compute,
            self.work
        )
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn contenders(&self) -> Vec<String> {
        self.contest().names()
    }

    fn cores_max(&self, _contender: &str) -> usize {
        usize::MAX
    }

    fn check(&self) -> Result<(), String> {
        self.contest().check().map_err(str::to_owned)
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let run = Run { compute: self.compute, setting };
        self.contest()
            .load(contender, &setting.load_options(), run)
            .map_err(|failure| format!("{contender}, loading: {failure}"))?
    }
}

/// Runs what was loaded.
struct Run<'a> {
    compute: u64,
    setting: &'a Setting<'a>,
}

impl Visitor for Run<'_> {
    type Result = Result<Outcome, String>;

    fn visit<S: Structure + 'static>(self, locks: locks::Locks<S>) -> Self::Result {
        // On the heap: see `simulate`.
        let computing = Box::new(Computing { compute: self.compute, locks });
        simulate(&*computing, self.setting)
    }
}

/// Locks whose clients compute.
struct Computing<S> {
    compute: u64,
    locks: locks::Locks<S>,
}

impl<S: Structure> Driven for Computing<S> {
    type Client = locks::Client<S::Worker>;

    fn cycles_per_transaction(&self) -> u64 {
        self.compute
    }

    fn transactions(&self) -> &'static [&'static str] {
        locks::Locks::<S>::TRANSACTIONS
    }

    fn client(&self, seed: u64, core: usize, cores: usize) -> Self::Client {
        self.locks.client(seed, core, cores)
    }

    fn execute(&self, client: &mut Self::Client) -> Result<Ended, Failure> {
        Ok(self.locks.execute(client))
    }

    fn metrics(&self) -> Metrics {
        self.locks.metrics()
    }

    fn verify(&self) -> Result<Vec<Condition>, Failure> {
        Ok(self.locks.verify())
    }
}
