//! `cargo simulate tatp`.

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::tatp;
use weft_workloads::variants::protocol_of;

use crate::arguments::Common;
use crate::simulation::{Benchmark, Outcome, Setting, simulate_under};

const HELP: &str = "\
What is simulated: TATP, as in `cargo lab bench tatp`, whose help says what its transactions do. Many ask
for what is not there: such a transaction does not succeed, and tx/s are of those that do.

Examples:
  cargo simulate tatp --protocol dbx,silo,2pl
      three protocols on one to eight hardware threads of the papers' Haswell
  cargo simulate tatp --mix getsubdata --machine today-64c --cores 1,16,64
      the shortest transaction alone, on more cores than most have";

/// TATP.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Tatp {
    /// Size of the database
    #[arg(long, short, value_name = "N", default_value_t = tatp::Parameters::default().subscribers,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(tatp::SUBSCRIBERS_MAX)))]
    subscribers: u32,
    /// Transactions to draw from: standard, the name of one type, or seven weights
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS", default_value_t = tatp::Mix::STANDARD)]
    mix: tatp::Mix,
    /// On which snapshots transactions that only read run: none; each on one of its own; or
    /// all on one that they share, of up to 40 ms ago
    #[arg(long, value_name = "off|on|recent", default_value_t = Snapshots::Off)]
    snapshots: Snapshots,
    /// How to simulate.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Tatp {
    fn title(&self, _values: &[f64]) -> String {
        let Tatp { subscribers, mix, snapshots, .. } = self;
        format!("TATP, mix {mix}, {subscribers} subscribers{}", snapshots.in_title())
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let &Tatp { subscribers, mix, .. } = self;
        let parameters = tatp::Parameters { subscribers, mix, snapshots: self.snapshots };
        with_protocol!(protocol_of(contender), |P| simulate_under::<P, tatp::Tatp<P>>(
            &parameters,
            setting
        ))
        .expect("the parser knows the names")
    }
}
