//! `cargo simulate locks`: the contenders are locks, elided or not, in place of protocols.

use clap::Args;
use weft::{Failure, Metrics};
use weft_options::locks::{LocksOptions, in_place_of_protocols};
use weft_workloads::locks::{self, LockComparison, Structure, Visitor};
use weft_workloads::workload::{Condition, Outcome};

use crate::arguments::Common;
use crate::simulation::{
    Benchmark, CYCLES_PER_TRANSACTION, Setting, SimulationResult, System, simulate,
};

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
  cargo simulate locks --workload manager --without fences
      the same without the fences of Shore-MT's locks";

/// Locks.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[command(mut_arg("protocol", in_place_of_protocols))]
pub struct Locks {
    /// The workload's options.
    #[command(flatten)]
    options: LocksOptions,
    /// Cycles that a transaction computes outside of its sections
    #[arg(long, value_name = "CYCLES", default_value_t = CYCLES_PER_TRANSACTION,
          value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    compute: u64,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Locks {
    fn comparison(&self) -> LockComparison {
        self.options.comparison(&self.common.protocol)
    }
}

impl Benchmark for Locks {
    fn title(&self, _values: &[f64]) -> String {
        let comparison = self.comparison();
        format!(
            "{}; {} {}s; {} cycles of computing for each transaction",
            comparison.title(),
            comparison.parameters.subscribers,
            comparison.size_of(),
            self.compute
        )
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn contenders(&self) -> Vec<String> {
        self.comparison().names()
    }

    fn cores_max(&self, _contender: &str) -> usize {
        usize::MAX
    }

    fn check(&self) -> Result<(), String> {
        self.comparison().check().map_err(str::to_owned)
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<SimulationResult, String> {
        let run = Run { compute: self.compute, setting };
        self.comparison()
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
    type Result = Result<SimulationResult, String>;

    fn visit<S: Structure + 'static>(self, locks: locks::Locks<S>) -> Self::Result {
        // It must lie on the heap: see `simulate`.
        let computing = Box::new(ComputingLocks { compute: self.compute, locks });
        simulate(&*computing, self.setting)
    }
}

/// Locks, and how much their clients compute.
struct ComputingLocks<S> {
    compute: u64,
    locks: locks::Locks<S>,
}

impl<S: Structure> System for ComputingLocks<S> {
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

    fn execute(&self, client: &mut Self::Client) -> Result<Outcome, Failure> {
        Ok(self.locks.execute(client))
    }

    fn metrics(&self) -> Metrics {
        self.locks.metrics()
    }

    fn verify(&self) -> Result<Vec<Condition>, Failure> {
        Ok(self.locks.verify())
    }
}
