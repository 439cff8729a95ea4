//! `bench tpcc`: the options and the help of TPC-C. The command provides the protocols.

use std::io;

use clap::Args;
use weft_workloads::LoadOptions;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::tpcc::{Mix, Parameters};

use crate::arguments::BenchArguments;
use crate::harness::contender::{Benchmark, Contender, Variant};
use crate::harness::{self, Subject};
use crate::numbers;
use crate::stop::Stop;
use weft_options::several;
use weft_options::tpcc::{ScaleName, TpccOptions};

/// Approximate bytes of one loaded warehouse (measured: 140 MiB).
const WAREHOUSE_BYTES: u64 = 150 << 20;

/// Approximate bytes that one transaction of each type adds, in the order of a mix's weights (measured: 1,940 bytes
/// for New-Order and 170 for Payment).
const GROWTH_BYTES: [u64; 5] = [2_000, 200, 0, 0, 0];

/// An upper bound of the transactions of the standard mix that one thread runs in a second.
const TRANSACTIONS_PER_SECOND_MAX: u64 = 250_000;

const HELP: &str = "\
What is measured: TPC-C without think times. Each thread is a terminal that sends its next
transaction as soon as the previous one has ended. For every protocol the report shows committed
transactions per second of all types together (median, minimum and maximum of the rounds), aborts
and their reasons, and the latency of every transaction type, retries included.

Examples:
  cargo weft bench tpcc
      DBX, one thread, one warehouse; takes a quarter of a minute, and a few GiB for new orders
  cargo lab bench tpcc --protocol none,dbx --verify
      what concurrency control costs: DBX against no control, in turns; checks both databases
  cargo weft bench tpcc --threads 4 --warehouses 1 --mix payment
      four threads contend for the rows of one warehouse
  cargo weft bench tpcc --threads 2 --warehouses 1 --mix 50,0,0,0,50 --snapshots off,on
      what it gains to run large reads on snapshots
  cargo weft bench tpcc --directory /var/tmp --acknowledge memory,committed
      what the log costs; with `durable`, how long a commit waits for the disk
  cargo weft bench tpcc --seconds 60 --rounds 5 --json results.json
      longer rounds; writes all numbers as JSON

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure TPC-C: orders, payments and deliveries of a wholesaler with W warehouses
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[command(mut_args(several(&["snapshots"])))]
pub struct TpccArguments {
    #[command(flatten)]
    options: TpccOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// Returns the approximate bytes of one warehouse.
fn warehouse_bytes(scale: ScaleName) -> u64 {
    match scale {
        ScaleName::Specification => WAREHOUSE_BYTES,
        ScaleName::Tiny => 1 << 20,
    }
}

/// Loads TPC-C under the protocol of this name; returns `None` if the command does not have this protocol.
pub type Load = fn(&str, &Parameters, &LoadOptions<'_>) -> Option<Result<Box<dyn Contender>, Stop>>;

/// TPC-C, for the protocols of the command.
struct TpccBenchmark {
    parameters: Parameters,
    load: Load,
}

impl Benchmark for TpccBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        let parameters = Parameters { snapshots: variant.snapshots, ..self.parameters.clone() };
        (self.load)(variant.protocol(), &parameters, options)
            .expect("the parser accepts only names of the list")
    }
}

/// Runs the command. `load` loads a database under a protocol.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &TpccArguments, load: Load) -> Result<(), Stop> {
    let TpccArguments { options, bench } = arguments;
    let &TpccOptions { mix, scale, storage, delivery_search, .. } = options;
    let parameters = options
        .parameters(bench.threads, Snapshots::Off)
        .ok_or_else(|| Stop::Usage("with this many threads, give --warehouses".to_owned()))?;
    let warehouses = u64::from(parameters.warehouses);
    let size = numbers::counted(warehouses, "warehouse");
    let of_scale = match scale {
        ScaleName::Specification => String::new(),
        other => format!(" of {} scale", other.name()),
    };
    let subject = Subject {
        title: format!("TPC-C, mix {mix}, {size}{of_scale}"),
        options: vec![
            ("warehouses", warehouses.into()),
            ("mix", mix.to_string().into()),
            ("scale", scale.name().into()),
            ("storage", storage.name().into()),
            ("delivery_search", delivery_search.name().into()),
        ],
        operations: None,
        success_rates: None,
        is_single_key: false,
        snapshots: options.reading.snapshots.clone(),
        loaded_bytes: warehouses * warehouse_bytes(scale),
        growth_bytes_per_second: growth_bytes_per_second(&mix),
    };
    harness::run(bench, &TpccBenchmark { parameters, load }, subject, &mut io::stdout())
}

/// Returns an upper bound of the bytes that one thread adds to a database in a second.
fn growth_bytes_per_second(mix: &Mix) -> u64 {
    let weights = mix.weights().map(u64::from);
    let weighted: u64 =
        weights.iter().zip(GROWTH_BYTES).map(|(weight, bytes)| weight * bytes).sum();
    weighted * TRANSACTIONS_PER_SECOND_MAX / weights.iter().sum::<u64>()
}
