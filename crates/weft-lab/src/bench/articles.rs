//! `cargo lab bench articles`: the options and the help of Articles.

use std::io;

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::articles::{Articles, Parameters, TransactionType};
use weft_workloads::snapshots::Snapshots;

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::articles::ArticlesOptions;
use weft_options::several;

use weft_bench::harness::contender::{Benchmark, Contender, Variant, load_under};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// Bytes of a loaded article with its comments, and of a user. Both are approximate: measured, including the arrays
/// of the hash tables.
const ARTICLE_BYTES: u64 = 1_900;
const USER_BYTES: u64 = 1_000;

/// The most bytes that the list of articles and users drawn takes.
const DRAWN_BYTES: u64 = 8 << 22;

/// Bytes that a comment adds, approximate and measured, and an upper bound of the comments that a thread adds in a
/// second if it does nothing else.
const COMMENT_BYTES: u64 = 450;
const COMMENTS_PER_SECOND_MAX: u64 = 500_000;

const HELP: &str = "\
What is measured: Articles, a site where articles are posted and commented on. It is a benchmark of
H-Store, and one that DBX-TC was evaluated with. Each thread runs one transaction after the other:
  getarticle   35 %  reads an article
  getcomments  35 %  reads the first five comments on an article
  addcomment   20 %  inserts a comment, and counts it in its article
  updateuser   10 %  changes a user's last name
The k-th most popular article, and the k-th most active user, are drawn in proportion to 1 / k^alpha,
before the clock runs. With alpha 1, the first of 100,000 articles gets 8 % of all requests for an
article, and the first of 200 users gets 17 %.

Comments are counted by a commutative operation, which does not return the count: the order of two
comments makes no difference, and clients number their own comments. With `--operations off` a
transaction reads the count, numbers its comment by it, and writes it, as in H-Store. The table of
comments grows during the run. The latency of one transaction in 31 is measured.

Examples:
  cargo lab bench articles
      DBX, one thread, 100,000 articles, 200 users, the standard mix
  cargo lab bench articles --protocol dbx,silo,2pl --threads 2
      three protocols in turns, as in Figure 15 of the DBX-TC paper
  cargo lab bench articles --mix addcomment --alpha 2 --protocol doppel,silo --threads 2
      all clients comment on the same few articles
  cargo lab bench articles --threads 4 --articles 100 --users 10 --verify
      four threads among few articles; checks the database afterwards
  cargo lab bench articles --snapshots off,on
      shows whether reading from snapshots pays off

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure Articles: a site where articles are read and commented on
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[command(mut_args(several(&["snapshots"])))]
pub struct ArticlesArguments {
    #[command(flatten)]
    options: ArticlesOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// Articles, for any protocol.
struct ArticlesBenchmark(Parameters);

impl Benchmark for ArticlesBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        let parameters = Parameters { snapshots: variant.snapshots, ..self.0 };
        with_protocol!(variant.protocol(), |P| load_under::<P, Articles<P>, SAMPLE_OF_SMALL>(
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
pub fn run(arguments: &ArticlesArguments) -> Result<(), Stop> {
    let ArticlesArguments { options, bench } = arguments;
    let &ArticlesOptions { articles, users, mix, operations, .. } = options;
    let parameters = options.parameters(options.alpha[0], Snapshots::Off);
    let alpha = parameters.alpha;
    let weights = mix.weights().map(u64::from);
    let of_comments = weights[TransactionType::AddComment as usize];
    let comments = COMMENTS_PER_SECOND_MAX * of_comments / weights.iter().sum::<u64>();
    let subject = Subject {
        title: format!(
            "Articles, mix {mix}, {}, {}, alpha {alpha}{}",
            numbers::counted(articles, "article"),
            numbers::counted(users, "user"),
            operations.of_operations()
        ),
        options: vec![
            ("articles", articles.into()),
            ("users", users.into()),
            ("mix", mix.to_string().into()),
            ("alpha", alpha.into()),
            ("operations", operations.name().into()),
        ],
        operations: None,
        success_rates: None,
        is_single_key: false,
        snapshots: options.reading.snapshots.clone(),
        loaded_bytes: articles * ARTICLE_BYTES + users * USER_BYTES + DRAWN_BYTES,
        growth_bytes_per_second: comments * COMMENT_BYTES,
    };
    harness::run(bench, &ArticlesBenchmark(parameters), subject, &mut io::stdout())
}
