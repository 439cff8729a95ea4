//! `cargo simulate incr`.

use std::time::{Duration, Instant};

use clap::Args;
use weft_options::incr::IncrOptions;
use weft_options::several;
use weft_options::values::milliseconds;
use weft_protocols::with_protocol;
use weft_workloads::incr;
use weft_workloads::incr::Change;
use weft_workloads::variants::protocol_of;

use crate::arguments::{Common, Computing};
use crate::simulation::{Axis, Benchmark, Outcome, Setting, listed, simulate_computing};

const HELP: &str = "\
What is simulated: INCR1 and INCRZ, as in `cargo lab bench incr`, whose help says what they are. But a hot key
that changes does so after milliseconds, because only short times can be simulated.

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
#[command(mut_args(several(&["hot", "alpha"])))]
pub struct Incr {
    /// The workload's options.
    #[command(flatten)]
    options: IncrOptions,
    /// INCR1: how long a key stays hot before another key becomes the hot one [default: for ever]
    #[arg(long, value_name = "MS", conflicts_with = "alpha", value_parser = milliseconds())]
    change: Option<f64>,
    /// How much the client computes.
    #[command(flatten)]
    computing: Computing,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Incr {
    fn title(&self, values: &[f64]) -> String {
        let (name, popularity) = match self.options.is_zipf() {
            true => ("INCRZ", format!("alpha {}", listed(values))),
            false => ("INCR1", format!("{} % for the hot one", listed(values))),
        };
        format!("{name}, {} counters, {popularity}; {}", self.options.records, self.computing)
    }

    fn axis(&self) -> Axis {
        let name = if self.options.is_zipf() { "alpha" } else { "hot %" };
        Axis { name, values: self.options.values().to_vec() }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let value = setting.value.expect("there is an axis");
        let every = self.change.map(|change| Duration::from_secs_f64(change / 1e3));
        let change = every.map(|every| Change { since: Instant::now(), every });
        let parameters = self.options.parameters(value, change);
        let mut outcome =
            with_protocol!(protocol_of(contender), |P| simulate_computing::<P, incr::Incr<P>>(
                &parameters,
                self.computing.compute,
                setting
            ))
            .expect("the parser knows the names")?;
        if self.options.is_zipf() {
            let ranks = RANKS.into_iter().filter(|&rank| rank <= self.options.records);
            let ranks: Vec<u64> = ranks.collect();
            let seed = self.common.seed;
            let shares = incr::percent_of_ranks(self.options.records, value, seed, &ranks);
            outcome.percent_of_ranks = ranks.into_iter().zip(shares).collect();
        }
        Ok(outcome)
    }
}
