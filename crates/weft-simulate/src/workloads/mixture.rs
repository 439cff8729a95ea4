//! `cargo simulate mixture`.

use clap::Args;
use weft_options::mixture::MixtureOptions;
use weft_protocols::with_protocol;
use weft_workloads::mixture;
use weft_workloads::variants::protocol_of;

use crate::arguments::Common;
use crate::simulation::{Benchmark, Setting, SimulationResult, simulate_under};

const HELP: &str = "\
What is simulated: all workloads in one database, as in `cargo lab bench mixture`, whose help has their shares.

Example:
  cargo simulate mixture --scale tiny --protocol dbx,silo,2pl --machine xeon-8x10 --cores 8,40
      every kind of record at the same time";

/// The mixture.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Mixture {
    /// The workload's options.
    #[command(flatten)]
    options: MixtureOptions,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Mixture {
    fn title(&self, _values: &[f64]) -> String {
        format!("Mixture of all workloads, {} scale", self.options.scale.name())
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<SimulationResult, String> {
        let parameters = self.options.parameters();
        with_protocol!(protocol_of(contender), |P| simulate_under::<P, mixture::Mixture<P>>(
            &parameters,
            setting
        ))
        .expect("the parser knows the names")
    }
}
