//! `cargo lab bench shift`: the options and the help of the shifting hot spot.

use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::incr::Change;
use weft_workloads::shift::{Parameters, Shift};
use weft_workloads::snapshots::Snapshots;

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::shift::ShiftOptions;
use weft_options::values::seconds_positive;

use weft_bench::harness::contender::{Benchmark, Contender, Variant, load_under};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// Approximate bytes of one row: the record, its entry in the hash table, and a second version.
const ROW_BYTES: u64 = 180;

const HELP: &str = "\
What is measured: how a protocol follows a hot spot. Each transaction updates one row that is not hot.
--hot percent also go to the hot spot, which is for --change seconds each:
  add     a counter: transactions add to it by an operation that returns nothing
  modify  another row: transactions read it, and write what they have computed from it
  take    the oldest row of a table: transactions find and delete it, and insert another at the end
Then it begins again with other rows. All other transactions are `plain`. What a protocol has learned
of the hot spot becomes wrong each time. The latency of one transaction in 31 is measured.

Examples:
  cargo lab bench shift --protocol dbx,silo,2pl --threads 2 --seconds 6
      each round sees each kind once
  cargo lab bench shift --change 3 --threads 2 --rounds 1 --seconds 30 --timeline shift.svg
      draws how throughput reacts to each change
  cargo lab bench shift --reaction --protocol adaptive --change 0.5 --threads 2 --seconds 10
      how long after each change something is decided about the new hot spot: median and greatest
  cargo lab bench shift --hot 90 --threads 2 --seconds 6 --verify
      checks afterwards that no change was lost

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure a hot spot that moves and changes its kind every few seconds
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct ShiftArguments {
    #[command(flatten)]
    options: ShiftOptions,

    /// Seconds until the hot spot moves and changes its kind
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds_positive)]
    #[arg(allow_negative_numbers = true)]
    change: f64,

    /// Report how long after each change `adaptive` decides something about the new hot spot
    #[arg(long, conflicts_with_all = ["verify", "timeline", "contention", "directory", "paper"])]
    reaction: bool,

    #[command(flatten)]
    bench: BenchArguments,
}

/// The shifting hot spot, for any protocol.
struct ShiftBenchmark(Parameters);

impl Benchmark for ShiftBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        with_protocol!(variant.protocol(), |P| load_under::<P, Shift<P>, SAMPLE_OF_SMALL>(
            &self.0, options
        ))
        .expect("the parser accepts only names of the list")
    }

    fn change(&self) -> Option<Change> {
        Some(self.0.change)
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &ShiftArguments) -> Result<(), Stop> {
    let every = Duration::from_secs_f64(arguments.change);
    if every.is_zero() {
        return Err(Stop::Usage(format!(
            "--change {} is less than a nanosecond",
            arguments.change
        )));
    }
    let parameters = arguments.options.parameters(Change { since: Instant::now(), every });
    if arguments.reaction {
        return super::reaction::run(&arguments.bench, &parameters);
    }
    let Parameters { records, hot_percent, .. } = parameters;
    let subject = Subject {
        title: format!(
            "Shift, {}, {hot_percent} % to a hot spot that changes every {}",
            numbers::counted(records, "row"),
            numbers::span(arguments.change),
        ),
        options: vec![
            ("records", records.into()),
            ("hot_percent", hot_percent.into()),
            ("change_seconds", arguments.change.into()),
        ],
        operations: None,
        success_rates: None,
        is_single_key: false,
        snapshots: vec![Snapshots::Off],
        loaded_bytes: records * ROW_BYTES,
        growth_bytes_per_second: 0,
    };
    harness::run(&arguments.bench, &ShiftBenchmark(parameters), subject, &mut io::stdout())
}
