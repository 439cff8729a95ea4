//! `bench tpcc`: what is TPC-C's alone. Which protocols it runs under is the command's.

use std::io;

use clap::{Args, ValueEnum};
use weft_workloads::LoadOptions;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::tpcc::{Mix, Parameters, Scale};

use crate::arguments::{self, BenchArguments};
use crate::harness::contender::{Benchmark, Contender, Variant};
use crate::harness::{self, Subject};
use crate::numbers;
use crate::stop::Stop;

/// The most warehouses: their numbers are 16 bits wide.
const WAREHOUSES_MAX: u64 = 65_535;

/// About what one warehouse takes once loaded: measured, 140 MiB.
const WAREHOUSE_BYTES: u64 = 150 << 20;

/// About what one transaction of each type leaves behind, in the order of a mix's weights:
/// measured, 1,940 bytes for New-Order and 170 for Payment.
const GROWTH_BYTES: [u64; 5] = [2_000, 200, 0, 0, 0];

/// More transactions of the standard mix than one thread runs in a second.
const TRANSACTIONS_PER_SECOND_MAX: u64 = 250_000;

const HELP: &str = "\
What is measured: TPC-C without think times. Each thread is a terminal that sends its next
transaction as soon as the one before has ended. The report shows, for every protocol, committed
transactions per second of all types together (median, least and most of the rounds), how often
attempts were aborted and why, and for every type of transaction how long it took, retries included.

Examples:
  cargo weft bench tpcc
      DBX, one thread, one warehouse: a quarter of a minute, and a few GiB of new orders
  cargo lab bench tpcc --protocol none,dbx --verify
      what concurrency control costs: DBX against none at all, in turns; checks both databases
  cargo weft bench tpcc --threads 4 --warehouses 1 --mix payment
      four threads fight for the rows of one warehouse
  cargo weft bench tpcc --threads 2 --warehouses 1 --mix 50,0,0,0,50 --snapshots off,on
      what it is worth that large reads run on snapshots
  cargo weft bench tpcc --directory /var/tmp --acknowledge memory,committed
      what the log costs; with `durable`, how long a commit waits for the disk
  cargo weft bench tpcc --seconds 60 --rounds 5 --json results.json
      longer rounds, all numbers for a program

`cargo lab protocols` says what each protocol is and where it is from.
Exit code: 0 done; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure TPC-C: orders, payments and deliveries of a wholesaler with W warehouses
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct TpccArguments {
    /// Size of the database [default: as many as threads]
    ///
    /// With fewer warehouses than threads, the threads fight for the same rows.
    #[arg(long, short, value_name = "W", value_parser = warehouses)]
    #[arg(allow_negative_numbers = true)]
    warehouses: Option<u16>,

    /// Threads that share a warehouse, in place of --warehouses
    ///
    /// Of five threads, two to a warehouse, the last has one to itself.
    #[arg(long, value_name = "N", value_parser = warehouses, conflicts_with = "warehouses")]
    #[arg(allow_negative_numbers = true)]
    threads_per_warehouse: Option<u16>,

    /// Transactions to draw from: standard, the name of one type, or five weights
    ///
    /// `standard` stands for the weights 45,43,4,4,4. The types, in the order of the weights, are
    /// `neworder`, `payment`, `orderstatus`, `delivery` and `stocklevel`.
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS", default_value_t = Mix::STANDARD)]
    mix: Mix,

    /// Rows per warehouse; `tiny` loads at once, and measures nothing comparable
    #[arg(long, value_enum, default_value_t = ScaleName::Specification)]
    scale: ScaleName,

    /// Tables as they are declared, five of them hash tables; or all of them in order, as B+-trees
    #[arg(long, value_enum, default_value_t = StorageName::Declared)]
    storage: StorageName,

    /// Whether Stock-Level and Order-Status run on snapshots: `on`, or `off,on,recent` to compare
    ///
    /// A snapshot never conflicts with anything, so nothing of it is ever run again. `on`: each has one of its
    /// own, of the present state. `recent`: all share one that is renewed every 40 ms or, with a log, as often
    /// as that ends an epoch.
    #[arg(long, value_name = "off|on|recent", value_delimiter = ',', default_value = "off")]
    #[arg(num_args = 0..=1, default_missing_value = "on")]
    snapshots: Vec<Snapshots>,

    #[command(flatten)]
    bench: BenchArguments,
}

/// The cardinalities on offer.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScaleName {
    Specification,
    Tiny,
}

impl ScaleName {
    /// As on the command line and in the JSON.
    fn name(self) -> &'static str {
        match self {
            ScaleName::Specification => "specification",
            ScaleName::Tiny => "tiny",
        }
    }

    fn scale(self) -> Scale {
        match self {
            ScaleName::Specification => Scale::SPECIFICATION,
            ScaleName::Tiny => Scale::TINY,
        }
    }

    /// About the memory of one warehouse.
    fn warehouse_bytes(self) -> u64 {
        match self {
            ScaleName::Specification => WAREHOUSE_BYTES,
            ScaleName::Tiny => 1 << 20,
        }
    }
}

/// How tables are stored.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum StorageName {
    Declared,
    Ordered,
}

impl StorageName {
    /// As on the command line and in the JSON.
    fn name(self) -> &'static str {
        match self {
            StorageName::Declared => "declared",
            StorageName::Ordered => "ordered",
        }
    }
}

/// Loads TPC-C under the protocol of this name; `None` if the command has not got that.
pub type Load = fn(&str, &Parameters, &LoadOptions<'_>) -> Option<Result<Box<dyn Contender>, Stop>>;

/// TPC-C under whatever protocol.
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
            .expect("the parser lets only names of the list through")
    }
}

/// Runs the command; `load` loads a database under a protocol.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &TpccArguments, load: Load) -> Result<(), Stop> {
    let bench = &arguments.bench;
    let sharing = arguments.threads_per_warehouse.map_or(1, usize::from);
    let warehouses = match arguments.warehouses {
        Some(warehouses) => warehouses,
        None => u16::try_from(bench.threads.div_ceil(sharing))
            .map_err(|_| Stop::Usage("so many threads need --warehouses".to_owned()))?,
    };
    let size = numbers::counted(u64::from(warehouses), "warehouse");
    let scale = match arguments.scale {
        ScaleName::Specification => String::new(),
        other => format!(" of {} scale", other.name()),
    };
    let parameters = Parameters {
        warehouses,
        mix: arguments.mix,
        scale: arguments.scale.scale(),
        snapshots: Snapshots::Off,
        all_ordered: arguments.storage == StorageName::Ordered,
    };
    let subject = Subject {
        title: format!("TPC-C, mix {}, {size}{scale}", arguments.mix),
        options: vec![
            ("warehouses", warehouses.into()),
            ("mix", arguments.mix.to_string().into()),
            ("scale", arguments.scale.name().into()),
            ("storage", arguments.storage.name().into()),
        ],
        operations: None,
        success_rates: None,
        is_single_key: false,
        snapshots: arguments.snapshots.clone(),
        loaded_bytes: u64::from(warehouses) * arguments.scale.warehouse_bytes(),
        growth_bytes_per_second: growth_bytes_per_second(&arguments.mix),
    };
    harness::run(bench, &TpccBenchmark { parameters, load }, subject, &mut io::stdout())
}

/// What one thread adds to a database in a second, at most.
fn growth_bytes_per_second(mix: &Mix) -> u64 {
    let weights = mix.weights().map(u64::from);
    let weighted: u64 =
        weights.iter().zip(GROWTH_BYTES).map(|(weight, bytes)| weight * bytes).sum();
    weighted * TRANSACTIONS_PER_SECOND_MAX / weights.iter().sum::<u64>()
}

fn warehouses(text: &str) -> Result<u16, String> {
    let warehouses = arguments::whole_number(text, 1..=WAREHOUSES_MAX)?;
    Ok(u16::try_from(warehouses).expect("the range fits"))
}
