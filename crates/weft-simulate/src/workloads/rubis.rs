//! `cargo simulate rubis`.

use clap::{Args, ValueEnum};
use weft_protocols::with_protocol;
use weft_workloads::rubis;
use weft_workloads::variants::protocol_of;

use super::incr::alpha;
use crate::arguments::{Common, Operations};
use crate::simulation::{Axis, Benchmark, Outcome, Setting, listed, simulate_under};

const HELP: &str = "\
What is simulated: RUBiS, as in `cargo lab bench rubis`, whose help says what its transactions do. In the
bidding mix all items are alike; in the contended mix half of the transactions are bids, on items of
which the k-th is drawn in proportion to 1 / k^alpha.

A tenth of the paper's users are loaded unless told otherwise: each figure has a database of its
own, and users are drawn alike, so that of more of them there are but more misses of the caches.

Examples:
  cargo simulate rubis --protocol dbx,silo,2pl
      RUBiS-B under three protocols on one to eight hardware threads of the papers' Haswell
  cargo simulate rubis --mix contended --machine xeon-8x10 --cores 1,20 --protocol silo,2pl
      RUBiS-C on the machine of the Doppel paper
  cargo simulate rubis --mix contended --alpha 0,1,1.8 --machine xeon-8x10 --cores 20 \
    --protocol doppel,silo,2pl --phase-length 5 --warmup 7 --milliseconds 20
      the more uneven the popularity of items, the more bids conflict (Figure 15)";

/// RUBiS.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Rubis {
    /// Which transactions run how often
    #[arg(long, short, value_enum, default_value_t = MixName::Bidding)]
    mix: MixName,
    /// How uneven the items' popularity is, in the contended mix; several values in turns
    #[arg(long, value_name = "ALPHA,…", value_delimiter = ',', value_parser = alpha,
          default_values_t = [rubis::Mix::ALPHA])]
    alpha: Vec<f64>,
    /// Users that are loaded
    #[arg(long, value_name = "N", default_value_t = rubis::Parameters::default().users / 10,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(rubis::USERS_MAX)))]
    users: u32,
    /// Items that are loaded, each an auction with ten bids on average
    #[arg(long, value_name = "N", default_value_t = rubis::Parameters::default().items,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(rubis::ITEMS_MAX)))]
    items: u32,
    /// Sum up by commutative operations, or by reading and writing
    #[arg(long, value_enum, default_value_t = Operations::On)]
    operations: Operations,
    /// How to simulate.
    #[command(flatten)]
    common: Common,
}

/// The mixes on offer.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum MixName {
    /// RUBiS-B: that of RUBiS itself, all items alike
    Bidding,
    /// RUBiS-C: half of the transactions are bids, on popular items
    Contended,
}

impl Rubis {
    /// What is loaded and run, where popularity, if it is uneven, is so by `alpha`.
    fn parameters(&self, alpha: Option<f64>) -> rubis::Parameters {
        let &Rubis { users, items, .. } = self;
        let mix = match alpha {
            None => rubis::Mix::Bidding,
            Some(alpha) => rubis::Mix::Contended { alpha },
        };
        let operations = self.operations == Operations::On;
        rubis::Parameters { users, items, mix, operations, ..rubis::Parameters::default() }
    }
}

impl Benchmark for Rubis {
    fn title(&self, values: &[f64]) -> String {
        let Rubis { users, items, operations, .. } = self;
        let mix = match self.mix {
            MixName::Bidding => "bidding".to_owned(),
            MixName::Contended => format!("contended, alpha {}", listed(values)),
        };
        format!("RUBiS, mix {mix}, {users} users, {items} items{operations}")
    }

    fn axis(&self) -> Axis {
        match self.mix {
            MixName::Bidding => Axis::default(),
            MixName::Contended => Axis { name: "alpha", values: self.alpha.clone() },
        }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let parameters = self.parameters(setting.value);
        with_protocol!(protocol_of(contender), |P| simulate_under::<P, rubis::Rubis<P>>(
            &parameters,
            setting
        ))
        .expect("the parser knows the names")
    }
}
