//! `cargo simulate incr`.

use std::time::{Duration, Instant};

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::incr;
use weft_workloads::incr::{Change, Popularity};
use weft_workloads::variants::protocol_of;

use crate::arguments::{Common, Computing};
use crate::simulation::{Axis, Benchmark, Outcome, Setting, listed, simulate_computing};

const HELP: &str = "\
What is simulated: INCR1 and INCRZ, as in `cargo lab bench incr`, whose help says what they are; but a hot key
that changes does so after milliseconds, since few seconds can be simulated.

Examples:
  cargo simulate incr --hot 100 --protocol atomic,silo,2pl --machine xeon-8x10 --cores 1,20,80
      every transaction increments the same counter, on the machine of the Doppel paper (Figure 9)
  cargo simulate incr --hot 0,10,50,100 --protocol doppel,silo --machine xeon-8x10 --cores 20 \
    --phase-length 5 --warmup 7 --milliseconds 20
      several shares for the hot one, and long enough for some phases (Figure 8)
  cargo simulate incr --alpha 0,1,1.4 --protocol atomic,silo,2pl --machine xeon-8x10 --cores 20
      popularity that falls off smoothly (Figure 11)
  cargo simulate incr --hot 10 --change 10 --protocol doppel --machine xeon-8x10 --cores 20 \
    --phase-length 1 --warmup 5 --milliseconds 25 --timeline 1 --json -
      throughput over time, as the hot key changes (Figure 10)";

/// The ranks whose share of the draws is reported: those of the paper's Table 1.
const RANKS: [u64; 4] = [1, 2, 10, 100];

/// INCR1 and INCRZ.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Incr {
    /// Counters
    #[arg(long, value_name = "N", default_value_t = incr::Parameters::default().records,
          value_parser = clap::value_parser!(u64).range(incr::RECORDS_MIN..=incr::RECORDS_MAX))]
    records: u64,
    /// INCR1: shares of the transactions that increment the hot key, in percent [default: 100]
    #[arg(long, value_name = "%,…", value_delimiter = ',', value_parser = percent,
          conflicts_with = "alpha")]
    hot: Vec<f64>,
    /// INCR1: for how long a key is the hot one, until it is another's turn [default: for ever]
    #[arg(long, value_name = "MS", conflicts_with = "alpha", value_parser = span)]
    change: Option<f64>,
    /// INCRZ: how uneven popularity is, from 0, all keys alike, to 5; several values in turns
    #[arg(long, value_name = "ALPHA,…", value_delimiter = ',', value_parser = alpha)]
    alpha: Vec<f64>,
    /// What the client computes.
    #[command(flatten)]
    computing: Computing,
    /// How to simulate.
    #[command(flatten)]
    common: Common,
}

impl Incr {
    fn is_zipf(&self) -> bool {
        !self.alpha.is_empty()
    }
}

impl Benchmark for Incr {
    fn title(&self, values: &[f64]) -> String {
        let (name, popularity) = match self.is_zipf() {
            true => ("INCRZ", format!("alpha {}", listed(values))),
            false => ("INCR1", format!("{} % for the hot one", listed(values))),
        };
        format!("{name}, {} counters, {popularity}; {}", self.records, self.computing)
    }

    fn axis(&self) -> Axis {
        match (self.is_zipf(), self.hot.is_empty()) {
            (true, _) => Axis { name: "alpha", values: self.alpha.clone() },
            (false, true) => Axis { name: "hot %", values: vec![100.0] },
            (false, false) => Axis { name: "hot %", values: self.hot.clone() },
        }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let value = setting.value.expect("there is an axis");
        let popularity = match self.is_zipf() {
            true => Popularity::Zipf { alpha: value },
            false => {
                let every = self.change.map(|change| Duration::from_secs_f64(change / 1e3));
                let change = every.map(|every| Change { since: Instant::now(), every });
                Popularity::Hot { percent: value, change }
            }
        };
        let parameters = incr::Parameters { records: self.records, popularity };
        let mut outcome =
            with_protocol!(protocol_of(contender), |P| simulate_computing::<P, incr::Incr<P>>(
                &parameters,
                self.computing.compute,
                setting
            ))
            .expect("the parser knows the names")?;
        if self.is_zipf() {
            let ranks = RANKS.into_iter().filter(|&rank| rank <= self.records);
            let ranks: Vec<u64> = ranks.collect();
            let seed = self.common.seed;
            let shares = incr::percent_of_ranks(self.records, value, seed, &ranks);
            outcome.percent_of_ranks = ranks.into_iter().zip(shares).collect();
        }
        Ok(outcome)
    }
}

fn span(text: &str) -> Result<f64, String> {
    let span = text.parse().ok().filter(|span| (0.01..=60_000.0).contains(span));
    span.ok_or_else(|| "expected a number of milliseconds from 0.01 to 60000".to_owned())
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
