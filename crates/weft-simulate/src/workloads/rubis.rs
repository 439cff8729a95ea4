//! `cargo simulate rubis`.

use clap::Args;
use weft_options::rubis::{MixName, RubisOptions};
use weft_options::several;
use weft_protocols::with_protocol;
use weft_workloads::rubis;
use weft_workloads::variants::protocol_of;

use crate::arguments::Common;
use crate::simulation::{Axis, Benchmark, Outcome, Setting, listed, simulate_under};

const HELP: &str = "\
What is simulated: RUBiS, as in `cargo lab bench rubis`, whose help says what its transactions do. In the
bidding mix all items are equally popular. In the contended mix half of the transactions are bids,
and the k-th item is drawn in proportion to 1 / k^alpha.

By default a tenth of the paper's users are loaded. Each figure has a database of its own, and all
users are equally active, so more users would only cause more cache misses.

Examples:
  cargo simulate rubis --protocol dbx,silo,2pl
      RUBiS-B under three protocols on one to eight hardware threads of the papers' Haswell
  cargo simulate rubis --mix contended --machine xeon-8x10 --cores 1,20 --protocol silo,2pl
      RUBiS-C on the machine of the Doppel paper
  cargo simulate rubis --mix contended --alpha 0,1,1.8 --machine xeon-8x10 --cores 20 \
    --protocol doppel,silo,2pl --phase-length 5 --warmup 7 --milliseconds 20
      the more uneven the popularity of items, the more bids conflict (Figure 15)";

/// A tenth of the users of `cargo lab bench rubis`.
const USERS_DEFAULT: &str = "100000";

/// RUBiS.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[command(mut_args(several(&["alpha"])))]
#[command(mut_arg("users", |arg| arg.default_value(USERS_DEFAULT)))]
pub struct Rubis {
    /// The workload's options.
    #[command(flatten)]
    options: RubisOptions,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Rubis {
    fn title(&self, values: &[f64]) -> String {
        let RubisOptions { users, items, operations, .. } = &self.options;
        let mix = match self.options.mix {
            MixName::Bidding => "bidding".to_owned(),
            MixName::Contended => format!("contended, alpha {}", listed(values)),
        };
        format!("RUBiS, mix {mix}, {users} users, {items} items{}", operations.of_operations())
    }

    fn axis(&self) -> Axis {
        match self.options.alphas() {
            None => Axis::default(),
            Some(alphas) => Axis { name: "alpha", values: alphas.to_vec() },
        }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let parameters = self.options.parameters(setting.value);
        with_protocol!(protocol_of(contender), |P| simulate_under::<P, rubis::Rubis<P>>(
            &parameters,
            setting
        ))
        .expect("the parser knows the names")
    }
}
