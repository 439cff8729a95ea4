//! `cargo lab bench like`: what is LIKE's alone.

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

/// About what one user or page takes: the record, its place in the hash table, and a second version of
/// those that were liked or have liked.
const ROW_BYTES: u64 = 180;

/// What the pages that were drawn take at most.
const DRAWN_BYTES: u64 = 4 << 22;

const HELP: &str = "\
What is measured: a social network, in which users like pages. Each transaction is about a user, drawn
uniformly, and a page, the k-th most popular in proportion to 1 / k^alpha:
  like  adds 1 to the page's likes, as an operation that asks for no result, and updates the user's
        row: which page the user has liked last, and how many
  read  reads the page's likes and the user's row
It is the workload LIKE of the Doppel paper, §8.5 to §8.7. With alpha 1.4 the most popular of a million
pages is in 32 % of all transactions, and its row is all that they contend for. A protocol may let
additions commute, and make whoever reads the page wait for them: so likes and reads have latencies of
their own. Pages are drawn before the clock runs. The latency of one transaction in 31 is taken.

Examples:
  cargo lab bench like --protocol dbx,silo,2pl --threads 2
      a million users, a million pages, half of the transactions like
  cargo lab bench like --write 90 --threads 2 --verify
      nine in ten do; checks afterwards that no like was lost
  cargo lab bench like --alpha 0 --threads 2 --json results.json
      all pages alike, all numbers for a program

`cargo lab protocols` says what each protocol is and where it is from.
Exit code: 0 done; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure LIKE: users who like pages, and look at them
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct LikeArguments {
    #[command(flatten)]
    options: LikeOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// LIKE under whatever protocol.
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
        .expect("the parser lets only names of the list through")
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
