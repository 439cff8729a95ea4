//! `cargo simulate articles`.

use clap::Args;
use weft_options::articles::ArticlesOptions;
use weft_options::several;
use weft_protocols::with_protocol;
use weft_workloads::articles;
use weft_workloads::variants::protocol_of;

use crate::arguments::Common;
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
#[command(mut_args(several(&["alpha"])))]
pub struct Articles {
    /// The workload's options.
    #[command(flatten)]
    options: ArticlesOptions,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Articles {
    fn title(&self, values: &[f64]) -> String {
        let ArticlesOptions { articles, users, mix, operations, .. } = &self.options;
        format!(
            "Articles, mix {mix}, {articles} articles, {users} users, alpha {}{}{}",
            listed(values),
            operations.of_operations(),
            self.options.reading.snapshots[0].in_title()
        )
    }

    fn axis(&self) -> Axis {
        Axis { name: "alpha", values: self.options.alpha.clone() }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let alpha = setting.value.expect("there is an axis");
        let parameters = self.options.parameters(alpha, self.options.reading.snapshots[0]);
        with_protocol!(protocol_of(contender), |P| simulate_under::<P, articles::Articles<P>>(
            &parameters,
            setting
        ))
        .expect("the parser knows the names")
    }
}
