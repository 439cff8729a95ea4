//! `cargo simulate incr`.

use clap::Args;
use weft::protocol::with_protocol;
use weft_workloads::incr;
use weft_workloads::incr::Popularity;

use crate::arguments::{Common, Computing};
use crate::simulation::{Benchmark, Outcome, Setting, simulate_computing};

const HELP: &str = "\
What is simulated: INCR1 and INCRZ, as in `weft bench incr`, whose help says what they are; but the hot
key stays, since few seconds can be simulated.

Examples:
  cargo simulate incr --hot 100 --protocol atomic,silo,2pl --machine xeon-8x10 --cores 1,20,80
      every transaction increments the same counter, on the machine of the Doppel paper (Figure 9)
  cargo simulate incr --alpha 1.4 --protocol atomic,silo,2pl --machine xeon-8x10 --cores 20
      popularity that falls off smoothly (Figure 11)";

/// INCR1 and INCRZ.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Incr {
    /// Counters
    #[arg(long, value_name = "N", default_value_t = incr::Parameters::default().records,
          value_parser = clap::value_parser!(u64).range(incr::RECORDS_MIN..=incr::RECORDS_MAX))]
    records: u64,
    /// INCR1: share of the transactions that increment the hot key, in percent [default: 100]
    #[arg(long, value_name = "%", value_parser = percent, conflicts_with = "alpha")]
    hot: Option<f64>,
    /// INCRZ: how uneven popularity is, from 0, all keys alike, to 5
    #[arg(long, value_name = "ALPHA", value_parser = alpha)]
    alpha: Option<f64>,
    /// What the client computes.
    #[command(flatten)]
    computing: Computing,
    /// How to simulate.
    #[command(flatten)]
    common: Common,
}

impl Incr {
    fn popularity(&self) -> Popularity {
        match self.alpha {
            Some(alpha) => Popularity::Zipf { alpha },
            None => Popularity::Hot { percent: self.hot.unwrap_or(100.0), change: None },
        }
    }
}

impl Benchmark for Incr {
    fn title(&self) -> String {
        let popularity = match self.popularity() {
            Popularity::Hot { percent, .. } => format!("{percent} % for the hot one"),
            Popularity::Zipf { alpha } => format!("alpha {alpha}"),
        };
        let name = if self.alpha.is_some() { "INCRZ" } else { "INCR1" };
        format!("{name}, {} counters, {popularity}; {}", self.records, self.computing)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let parameters = incr::Parameters { records: self.records, popularity: self.popularity() };
        with_protocol!(contender, |P| simulate_computing::<P, incr::Incr<P>>(
            &parameters,
            self.computing.compute,
            setting
        ))
        .expect("the parser knows the names")
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a percentage, a number from 0 to 100".to_owned())
}

/// Parses the unevenness of popularity.
pub fn alpha(text: &str) -> Result<f64, String> {
    let alpha = text.parse().ok().filter(|alpha| (0.0..=5.0).contains(alpha));
    alpha.ok_or_else(|| "expected a number from 0 to 5".to_owned())
}
