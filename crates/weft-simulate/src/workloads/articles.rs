//! `cargo simulate articles`.

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::articles;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::variants::protocol_of;

use super::incr::alpha;
use crate::arguments::{Common, Operations};
use crate::simulation::{Axis, Benchmark, Outcome, Setting, listed, simulate_under};

const HELP: &str = "\
What is simulated: Articles, as in `cargo lab bench articles`, whose help says what its transactions do.

Examples:
  cargo simulate articles --protocol dbx,silo,2pl,htm-naive
      four protocols on one to eight hardware threads of the papers' Haswell (Figure 15 of DBX-TC)
  cargo simulate articles --alpha 0,1,2 --cores 8 --protocol dbx,silo,2pl
      the more uneven the popularity of articles and users, the more comments and names conflict
  cargo simulate articles --mix addcomment --operations off --cores 8 --protocol dbx,2pl
      comments alone, counted by reading and writing";

/// Articles.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Articles {
    /// Articles that are loaded, with 3.55 comments each on average
    #[arg(long, value_name = "N", default_value_t = articles::Parameters::default().articles,
          value_parser = clap::value_parser!(u64).range(1..=articles::RECORDS_MAX))]
    articles: u64,
    /// Users that are loaded
    #[arg(long, value_name = "N", default_value_t = articles::Parameters::default().users,
          value_parser = clap::value_parser!(u64).range(1..=articles::RECORDS_MAX))]
    users: u64,
    /// Transactions to draw from: standard, the name of one type, or four weights
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS",
          default_value_t = articles::Mix::STANDARD)]
    mix: articles::Mix,
    /// How uneven popularity is, from 0, all alike, to 5; several values in turns
    #[arg(long, value_name = "ALPHA,…", value_delimiter = ',', value_parser = alpha,
          default_values_t = [articles::Parameters::default().alpha])]
    alpha: Vec<f64>,
    /// Count comments by a commutative operation, or by reading and writing
    #[arg(long, value_enum, default_value_t = Operations::On)]
    operations: Operations,
    /// On which snapshots transactions that only read run: none; each on one of its own; or
    /// all on one that they share, of up to 40 ms ago
    #[arg(long, value_name = "off|on|recent", default_value_t = Snapshots::Off)]
    snapshots: Snapshots,
    /// How to simulate.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Articles {
    fn title(&self, values: &[f64]) -> String {
        let Articles { articles, users, mix, operations, .. } = self;
        format!(
            "Articles, mix {mix}, {articles} articles, {users} users, alpha {}{operations}{}",
            listed(values),
            self.snapshots.in_title()
        )
    }

    fn axis(&self) -> Axis {
        Axis { name: "alpha", values: self.alpha.clone() }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let &Articles { articles, users, mix, operations, .. } = self;
        let parameters = articles::Parameters {
            articles,
            users,
            mix,
            alpha: setting.value.expect("there is an axis"),
            operations: operations == Operations::On,
            snapshots: self.snapshots,
        };
        with_protocol!(protocol_of(contender), |P| simulate_under::<P, articles::Articles<P>>(
            &parameters,
            setting
        ))
        .expect("the parser knows the names")
    }
}
