//! `cargo lab bench rubis`: the options and the help of RUBiS.

use std::io;

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::rubis::{Mix, Parameters, Rubis};
use weft_workloads::snapshots::Snapshots;

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::rubis::RubisOptions;

use weft_bench::harness::contender::{Benchmark, Contender, Variant, load_under};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// Bytes of a loaded user, and of an item with its bids and its comment. Both are approximate: measured, including
/// the arrays of the hash tables.
const USER_BYTES: u64 = 680;
const ITEM_BYTES: u64 = 3_000;

/// Bytes that a bid adds, approximate and measured, and an upper bound of the bids that a thread adds in a second.
const BID_BYTES: u64 = 200;
const BIDS_PER_SECOND_MAX: u64 = 500_000;

const HELP: &str = "\
What is measured: RUBiS, an auction site whose users browse, bid, buy, sell and comment. Only the
database's part is run: each thread runs one transaction after the other, as the browsers of many
users would send them. Of 100 transactions in the bidding mix:
  auth            12.3   finds a user by nickname and password
  categories      10.4   reads all 20 categories
  regions          2.6   reads all 62 regions
  searchcategory  21.2   reads the ten newest items of a category, and the bids for each
  searchregion     8.4   the same for a category in a region
  viewitem        18.9   reads an item, its seller, and its bids
  viewuser         3.3   reads a user, their rating, and others' comments
  bidhistory       2.1   reads the ten highest bids on an item, and their bidders
  buynow           1.5   reads what the form to buy an item shows
  putbid           7.2   reads what the form to bid for an item shows
  putcomment       0.6   reads what the form to comment on a seller shows
  aboutme          2.3   reads a user's bids, purchases and sales, and comments on the user
  registeruser     1.4   inserts a user
  storeitem        0.7   inserts an item, also into the lists of its category and region
  storebuynow      1.5   buys one piece of an item
  storebid         5.0   inserts a bid, and updates the item: number of bids, highest, ten highest
  storecomment     0.6   inserts a comment, and adds to the seller's rating
In the contended mix half of the transactions are storebid, on items of which the k-th is drawn in
proportion to 1 / k^alpha. The other half are the others, in the proportions above.

Bids, comments and new items are summed up by commutative operations, which return nothing about
the row: the order of two bids makes no difference. With `--operations off` transactions read and
then write, as in RUBiS itself. The two mixes are RUBiS-B and RUBiS-C of the Doppel paper, which has
both forms of storebid (its Figures 7 and 6). The latency of one transaction in 31 is measured.

Examples:
  cargo lab bench rubis
      DBX, one thread, a million users, 33,000 items, the bidding mix: the paper's RUBiS-B
  cargo lab bench rubis --mix contended --threads 2 --protocol dbx,silo,2pl
      the paper's RUBiS-C, under three protocols in turns
  cargo lab bench rubis --mix contended --alpha 0 --threads 2
      as many bids, but for all items equally
  cargo lab bench rubis --threads 4 --users 1000 --items 100 --verify
      four threads among few items; checks the database afterwards

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure RUBiS: an auction site, with bids for popular items
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct RubisArguments {
    #[command(flatten)]
    options: RubisOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// RUBiS, for any protocol.
struct RubisBenchmark(Parameters);

impl Benchmark for RubisBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        with_protocol!(variant.protocol(), |P| load_under::<P, Rubis<P>, SAMPLE_OF_SMALL>(
            &self.0, options
        ))
        .expect("the parser accepts only names of the list")
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &RubisArguments) -> Result<(), Stop> {
    let RubisArguments { options, bench } = arguments;
    let &RubisOptions { users, items, operations, .. } = options;
    let alpha = options.alphas().map(|alphas| alphas[0]);
    if alpha.is_none() && !options.alpha.is_empty() {
        let message = "--alpha needs --mix contended: the bidding mix draws items uniformly";
        return Err(Stop::Usage(message.to_owned()));
    }
    let parameters = options.parameters(alpha);
    let mix = parameters.mix;
    let mut listed = vec![("mix", mix.name().into())];
    listed.extend(alpha.map(|alpha| ("alpha", alpha.into())));
    listed.extend([
        ("users", users.into()),
        ("items", items.into()),
        ("operations", operations.name().into()),
    ]);
    let subject = Subject {
        title: format!(
            "RUBiS, mix {mix}, {}, {}{}",
            numbers::counted(u64::from(users), "user"),
            numbers::counted(u64::from(items), "item"),
            operations.of_operations()
        ),
        options: listed,
        operations: None,
        success_rates: None,
        is_single_key: false,
        snapshots: vec![Snapshots::Off],
        loaded_bytes: u64::from(users) * USER_BYTES + u64::from(items) * ITEM_BYTES,
        growth_bytes_per_second: match mix {
            Mix::Bidding => BID_BYTES * BIDS_PER_SECOND_MAX / 10,
            Mix::Contended { .. } => BID_BYTES * BIDS_PER_SECOND_MAX,
        },
    };
    harness::run(bench, &RubisBenchmark(parameters), subject, &mut io::stdout())
}
