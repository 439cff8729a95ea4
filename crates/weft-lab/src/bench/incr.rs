//! `cargo lab bench incr`: the options and the help of INCR1 and INCRZ.

use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::incr::{Change, Incr, Parameters, Popularity};
use weft_workloads::snapshots::Snapshots;

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::incr::IncrOptions;
use weft_options::values::seconds_or_zero;

use weft_bench::harness::contender::{Benchmark, Contender, Variant, load_under};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// Approximate bytes of one counter: the record, its entry in the hash table, and a second version if it was
/// incremented.
const COUNTER_BYTES: u64 = 180;

/// The most bytes that the list of records drawn takes.
const DRAWN_BYTES: u64 = 4 << 22;

const HELP: &str = "\
What is measured: one table of counters, with keys of 16 bytes in a hash table. Each transaction adds
1 to one counter, by an operation that returns nothing. The workloads differ in the counters chosen:
  INCR1 (--hot)    that share of the transactions is for the one hot key; all others are for keys
                   that are not popular. With --change the hot key changes from time to time
  INCRZ (--alpha)  the k-th most popular key is incremented in proportion to 1 / k^alpha; the most
                   popular of a million gets 0.16 % with 0.6, 7 % with 1, 32 % with 1.4, 61 % with 2
They are the workloads of the Doppel paper, §8.2 to §8.4. If all increments are for the hot key, a
protocol that serializes increments of one key gains nothing from a second thread. `atomic`, a
single instruction for each transaction, is the upper bound of what such protocols can reach.
Keys are drawn before the clock runs. The latency of one transaction in 31 is measured, because
reading the clock for each would take longer than an increment.

Examples:
  cargo lab bench incr --protocol dbx,silo,2pl,atomic --threads 2
      every transaction increments the same counter
  cargo lab bench incr --hot 10 --protocol dbx,silo --threads 2 --verify
      one transaction in ten does; checks every popular counter afterwards
  cargo lab bench incr --alpha 1.4 --threads 4 --json results.json
      popularity that decreases smoothly; writes all numbers as JSON
  cargo lab bench incr --hot 10 --change 5 --threads 2 --rounds 1 --seconds 30 --timeline incr.svg
      a new hot key every five seconds; draws how throughput reacts (Figure 10)

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure INCR1 and INCRZ: increments of counters, some of which are hot
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct IncrArguments {
    #[command(flatten)]
    options: IncrOptions,

    /// INCR1: seconds until another key becomes the hot one; 0 keeps the hot key for the whole run
    ///
    /// The keys that take turns are not incremented at other times. There are a thousand of them (or half of
    /// --records, if that is less).
    #[arg(long, value_name = "S", default_value = "0", conflicts_with = "alpha",
          value_parser = seconds_or_zero())]
    #[arg(allow_negative_numbers = true)]
    change: f64,

    #[command(flatten)]
    bench: BenchArguments,
}

/// INCR1 or INCRZ, for any protocol.
struct IncrBenchmark(Parameters);

impl Benchmark for IncrBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        with_protocol!(variant.protocol(), |P| load_under::<P, Incr<P>, SAMPLE_OF_SMALL>(
            &self.0, options
        ))
        .expect("the parser accepts only names of the list")
    }

    fn change(&self) -> Option<Change> {
        match self.0.popularity {
            Popularity::Hot { change, .. } => change,
            Popularity::Zipf { .. } => None,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &IncrArguments) -> Result<(), Stop> {
    let options = &arguments.options;
    let parameters = options.parameters(options.values()[0], change(arguments)?);
    let Parameters { records, popularity } = parameters;
    let (name, hot_percent, change_seconds, alpha) = match popularity {
        Popularity::Hot { percent, change } => {
            let seconds = change.map(|change| change.every.as_secs_f64());
            ("INCR1", Some(percent), seconds, None)
        }
        Popularity::Zipf { alpha } => ("INCRZ", None, None, Some(alpha)),
    };
    let subject = Subject {
        title: format!(
            "{name}, {}, {}",
            numbers::counted(records, "counter"),
            described(&popularity)
        ),
        options: vec![
            ("distribution", name.to_lowercase().into()),
            ("records", records.into()),
            ("hot_percent", hot_percent.into()),
            ("change_seconds", change_seconds.into()),
            ("alpha", alpha.into()),
        ],
        operations: Some(1),
        success_rates: None,
        is_single_key: true,
        snapshots: vec![Snapshots::Off],
        loaded_bytes: records * COUNTER_BYTES + DRAWN_BYTES,
        growth_bytes_per_second: 0,
    };
    harness::run(&arguments.bench, &IncrBenchmark(parameters), subject, &mut io::stdout())
}

/// Returns how the hot key changes, from now on.
fn change(arguments: &IncrArguments) -> Result<Option<Change>, Stop> {
    if arguments.change == 0.0 {
        return Ok(None);
    }
    let every = Duration::from_secs_f64(arguments.change);
    if every.is_zero() {
        return Err(Stop::Usage(format!(
            "--change {} is less than a nanosecond; 0 means that the hot key stays",
            arguments.change
        )));
    }
    Ok(Some(Change { since: Instant::now(), every }))
}

/// Describes in a few words which keys are popular.
fn described(popularity: &Popularity) -> String {
    match popularity {
        Popularity::Hot { percent, change } => {
            let changes = change.map_or(String::new(), |change| {
                format!(", another one every {}", numbers::span(change.every.as_secs_f64()))
            });
            format!("{percent} % for the hot one{changes}")
        }
        Popularity::Zipf { alpha } if *alpha == 0.0 => "all alike".to_owned(),
        Popularity::Zipf { alpha } => format!("alpha {alpha}"),
    }
}
