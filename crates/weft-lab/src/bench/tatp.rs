//! `cargo lab bench tatp`: the options and the help of TATP.

use std::io;

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::tatp::{Parameters, Tatp, TransactionType};

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::several;
use weft_options::tatp::TatpOptions;

use weft_bench::harness::contender::{Benchmark, Contender, Variant, load_under};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// Approximate bytes of one loaded subscriber with all its rows (measured: 1,070 bytes), and of the arrays of the
/// hash tables.
const SUBSCRIBER_BYTES: u64 = 1_300;

const HELP: &str = "\
What is measured: TATP, the register of a mobile operator. Each thread runs one transaction after
the other, for subscribers some of whom are drawn far more often than others:
  getsubdata      35 %  reads the row of a subscriber
  getnewdest      10 %  reads a special facility, and the numbers to which it forwards calls
  getaccessdata   35 %  reads the data of one type of access
  updatesubdata    2 %  changes a subscriber and a special facility
  updatelocation  14 %  changes a subscriber, found by number
  insertcallfwd    2 %  inserts a call forwarding for a subscriber, found by number
  deletecallfwd    2 %  deletes a call forwarding
Many transactions ask for rows that do not exist, and so do not succeed. Transactions per second
counts those that succeed, as the specification does; the others are under `rolled back`. A table
compares the shares of success with those that the specification states. The latency of one
transaction in 31 is measured.

Examples:
  cargo lab bench tatp
      DBX, one thread, 80,000 subscribers, the standard mix
  cargo lab bench tatp --mix getsubdata --protocol dbx,silo,2pl --threads 2
      the shortest transaction alone, under three protocols in turns
  cargo lab bench tatp --threads 4 --subscribers 1000 --verify
      four threads among few subscribers; checks the database afterwards
  cargo lab bench tatp --snapshots off,on
      shows whether reading from snapshots pays off

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure TATP: the register of a mobile operator, read and changed by very short transactions
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[command(mut_args(several(&["snapshots"])))]
pub struct TatpArguments {
    #[command(flatten)]
    options: TatpOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// TATP, for any protocol.
struct TatpBenchmark(Parameters);

impl Benchmark for TatpBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        let parameters = Parameters { snapshots: variant.snapshots, ..self.0 };
        with_protocol!(variant.protocol(), |P| load_under::<P, Tatp<P>, SAMPLE_OF_SMALL>(
            &parameters,
            options
        ))
        .expect("the parser accepts only names of the list")
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &TatpArguments) -> Result<(), Stop> {
    let TatpArguments { options, bench } = arguments;
    let &TatpOptions { subscribers, mix, .. } = options;
    let subject = Subject {
        title: format!(
            "TATP, mix {mix}, {}",
            numbers::counted(u64::from(subscribers), "subscriber")
        ),
        options: vec![("subscribers", subscribers.into()), ("mix", mix.to_string().into())],
        operations: None,
        success_rates: Some(&TransactionType::SUCCESS_RATES),
        is_single_key: false,
        snapshots: options.reading.snapshots.clone(),
        loaded_bytes: u64::from(subscribers) * SUBSCRIBER_BYTES,
        // The mix deletes as many rows as it inserts.
        growth_bytes_per_second: 0,
    };
    let benchmark = TatpBenchmark(options.parameters(Snapshots::Off));
    harness::run(bench, &benchmark, subject, &mut io::stdout())
}
