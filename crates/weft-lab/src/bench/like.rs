//! `cargo lab bench like`: the options and the help of LIKE.

use std::io;

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::like::{Like, Parameters};
use weft_workloads::snapshots::Snapshots;

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::like::LikeOptions;

use weft_bench::harness::contender::{Benchmark, Contender, Variant, load_under};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// Approximate bytes of one user or page: the record, its entry in the hash table, and a second version if it was
/// written.
const ROW_BYTES: u64 = 180;

/// The most bytes that the list of pages drawn takes.
const DRAWN_BYTES: u64 = 4 << 22;

const HELP: &str = "\
What is measured: a social network, in which users like pages. Each transaction is for a user, drawn
uniformly, and a page, the k-th most popular in proportion to 1 / k^alpha:
  like  adds 1 to the page's likes, by an operation that returns nothing, and updates the user's
        row: the page that the user liked last, and the number of likes
  read  reads the page's likes and the user's row
It is the workload LIKE of the Doppel paper, §8.5 to §8.7. With alpha 1.4 the most popular of a million
pages is in 32 % of all transactions, and its row is the only contended one. A protocol may let
additions commute and make readers of the page wait for them, so likes and reads have latencies of
their own. Pages are drawn before the clock runs. The latency of one transaction in 31 is measured.

Examples:
  cargo lab bench like --protocol dbx,silo,2pl --threads 2
      a million users, a million pages, half of the transactions like
  cargo lab bench like --write 90 --threads 2 --verify
      nine in ten do; checks afterwards that no like was lost
  cargo lab bench like --alpha 0 --threads 2 --json results.json
      all pages equally popular; writes all numbers as JSON

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure LIKE: users who like pages, and look at them
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct LikeArguments {
    #[command(flatten)]
    options: LikeOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// LIKE, for any protocol.
struct LikeBenchmark(Parameters);

impl Benchmark for LikeBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        with_protocol!(variant.protocol(), |P| load_under::<P, Like<P>, SAMPLE_OF_SMALL>(
            &self.0, options
        ))
        .expect("the parser accepts only names of the list")
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &LikeArguments) -> Result<(), Stop> {
    let options = &arguments.options;
    let parameters = options.parameters(options.alpha[0], options.write[0]);
    let Parameters { users, pages, alpha, write_percent } = parameters;
    let subject = Subject {
        title: format!(
            "LIKE, {}, {}, alpha {alpha}, {write_percent} % like",
            numbers::counted(users, "user"),
            numbers::counted(pages, "page"),
        ),
        options: vec![
            ("users", users.into()),
            ("pages", pages.into()),
            ("alpha", alpha.into()),
            ("write_percent", write_percent.into()),
        ],
        operations: None,
        success_rates: None,
        is_single_key: false,
        snapshots: vec![Snapshots::Off],
        loaded_bytes: (users + pages) * ROW_BYTES + DRAWN_BYTES,
        growth_bytes_per_second: 0,
    };
    harness::run(&arguments.bench, &LikeBenchmark(parameters), subject, &mut io::stdout())
}
