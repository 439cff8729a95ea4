//! `cargo lab bench flash-sale`: the options and the help of the flash sale.

use std::io;

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::flash_sale::{FlashSale, Parameters};
use weft_workloads::snapshots::Snapshots;

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::flash_sale::FlashSaleOptions;

use weft_bench::harness::contender::{Benchmark, Contender, Variant, load_under};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// Approximate bytes of one item or buyer: the record, its entry in the hash table, and a second version if it was
/// written.
const ROW_BYTES: u64 = 180;

/// Approximate bytes that an order adds.
const ORDER_BYTES: u64 = 100;

/// An upper bound of the orders that one thread places in a second.
const ORDERS_PER_SECOND_MAX: u64 = 1_000_000;

const HELP: &str = "\
What is measured: a sale in which nearly all buyers want the same few items. Each thread runs one
transaction after the other:
  order    98 %  reads how many units of an item are left; if there are enough, it takes one to three,
                 counts them for the buyer, and inserts an order
  restock   2 %  adds units to an item
--share percent are for one of the --hot items, all others for the remaining items. The check must see
the present stock, so the orders of one item do not commute. About one order in six finds too few
units left, and is under `rolled back`. The latency of one transaction in 31 is measured.

Examples:
  cargo lab bench flash-sale --protocol dbx,silo,2pl --threads 2
      nine of ten orders are for the same item
  cargo lab bench flash-sale --hot 10 --threads 2 --verify
      ten hot items; checks afterwards that nothing was sold twice
  cargo lab bench flash-sale --takes --stock 1000000000 --protocol dbx,doppel,adaptive --threads 2
      each order takes its units or is refused, so the orders of one item commute; it is never sold out
  cargo lab bench flash-sale --share 0 --threads 2 --json results.json
      no hot items; writes all numbers as JSON

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure a flash sale: orders that check a stock, most of them for a few hot items
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct FlashSaleArguments {
    #[command(flatten)]
    options: FlashSaleOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// The flash sale, for any protocol.
struct FlashSaleBenchmark(Parameters);

impl Benchmark for FlashSaleBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        with_protocol!(variant.protocol(), |P| load_under::<P, FlashSale<P>, SAMPLE_OF_SMALL>(
            &self.0, options
        ))
        .expect("the parser accepts only names of the list")
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &FlashSaleArguments) -> Result<(), Stop> {
    let parameters = arguments.options.parameters().map_err(Stop::Usage)?;
    let Parameters { items, buyers, hot, hot_percent, stock, takes } = parameters;
    let subject = Subject {
        title: format!(
            "Flash sale, {}, {}, {hot_percent} % for {}{}",
            numbers::counted(items, "item"),
            numbers::counted(buyers, "buyer"),
            match hot {
                1 => "the hot one".to_owned(),
                hot => format!("the {hot} hot ones"),
            },
            if takes { ", by take" } else { "" },
        ),
        options: vec![
            ("items", items.into()),
            ("buyers", buyers.into()),
            ("hot", hot.into()),
            ("hot_percent", hot_percent.into()),
            ("stock", stock.into()),
            ("takes", takes.into()),
        ],
        operations: None,
        success_rates: None,
        is_single_key: false,
        snapshots: vec![Snapshots::Off],
        loaded_bytes: (items + buyers) * ROW_BYTES,
        growth_bytes_per_second: ORDERS_PER_SECOND_MAX * ORDER_BYTES,
    };
    harness::run(&arguments.bench, &FlashSaleBenchmark(parameters), subject, &mut io::stdout())
}
