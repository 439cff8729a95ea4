//! `cargo simulate tatp`.

use clap::Args;
use weft_options::tatp::TatpOptions;
use weft_protocols::with_protocol;
use weft_workloads::tatp;
use weft_workloads::variants::protocol_of;

use crate::arguments::Common;
use crate::simulation::{Benchmark, Outcome, Setting, simulate_under};

const HELP: &str = "\
What is simulated: TATP, as in `cargo lab bench tatp`, whose help says what its transactions do. Many
look for a row that does not exist. They do not succeed, and tx/s counts only those that do.

Examples:
  cargo simulate tatp --protocol dbx,silo,2pl
      three protocols on one to eight hardware threads of the papers' Haswell
  cargo simulate tatp --mix getsubdata --machine today-64c --cores 1,16,64
      the shortest transaction alone, on more cores than most have";

/// TATP.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Tatp {
    /// The workload's options.
    #[command(flatten)]
    options: TatpOptions,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Tatp {
    fn title(&self, _values: &[f64]) -> String {
        let TatpOptions { subscribers, mix, reading } = &self.options;
        format!("TATP, mix {mix}, {subscribers} subscribers{}", reading.snapshots[0].in_title())
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let parameters = self.options.parameters(self.options.reading.snapshots[0]);
        with_protocol!(protocol_of(contender), |P| simulate_under::<P, tatp::Tatp<P>>(
            &parameters,
            setting
        ))
        .expect("the parser knows the names")
    }
}
