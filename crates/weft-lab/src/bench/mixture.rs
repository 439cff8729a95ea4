//! `cargo lab bench mixture`: the options and the help of the mixture.

use std::io;

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::mixture::{Mixture, Parameters, SHARES};
use weft_workloads::snapshots::Snapshots;

use weft_bench::arguments::BenchArguments;
use weft_bench::stop::Stop;
use weft_options::mixture::MixtureOptions;
use weft_options::mixture::ScaleName;

use weft_bench::harness::contender::{Benchmark, Contender, Variant, load_under};
use weft_bench::harness::{self, Subject};

/// Approximate bytes of all tables, most of which are those of TPC-C and RUBiS.
const FULL_BYTES: u64 = 600 << 20;
const TINY_BYTES: u64 = 20 << 20;

/// An upper bound of the bytes that one thread adds in a second.
const GROWTH_BYTES_PER_SECOND: u64 = 100 << 20;

const HELP: &str = "\
What is measured: one database with the tables of all other workloads (except `shift`), whose clients
draw which workload their next transaction belongs to. A protocol meets every kind of record at the
same time: hot counters, popular pages, stocks, queues, and rows that are hardly ever written twice.
The shares, in percent, are:
  tpcc 10, ycsb 15, incr 10, like 10, rubis 10, tatp 15, articles 10, flash-sale 10, queue 5, bank 5
A transaction type in the report is a whole workload. Transactions that do not succeed by the rules of
their workload are under `rolled back`.

Examples:
  cargo lab bench mixture --protocol dbx,silo,2pl --threads 2
      about 600 MB for each protocol
  cargo lab bench mixture --scale tiny --threads 2 --verify
      checks the invariants of every workload afterwards

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure all workloads in one database at once
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct MixtureArguments {
    #[command(flatten)]
    options: MixtureOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// The mixture, for any protocol.
struct MixtureBenchmark(Parameters);

impl Benchmark for MixtureBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        with_protocol!(variant.protocol(), |P| load_under::<P, Mixture<P>, 1>(&self.0, options))
            .expect("the parser accepts only names of the list")
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &MixtureArguments) -> Result<(), Stop> {
    let parameters = arguments.options.parameters();
    let scale = arguments.options.scale;
    let subject = Subject {
        title: format!("Mixture of {} workloads, {} scale", SHARES.len(), scale.name()),
        options: vec![("scale", scale.name().into())],
        operations: None,
        success_rates: None,
        is_single_key: false,
        snapshots: vec![Snapshots::Off],
        loaded_bytes: match scale {
            ScaleName::Full => FULL_BYTES,
            ScaleName::Tiny => TINY_BYTES,
        },
        growth_bytes_per_second: GROWTH_BYTES_PER_SECOND,
    };
    harness::run(&arguments.bench, &MixtureBenchmark(parameters), subject, &mut io::stdout())
}
