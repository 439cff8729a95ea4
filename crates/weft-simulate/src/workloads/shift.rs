//! `cargo simulate shift`.

use std::time::{Duration, Instant};

use clap::Args;
use weft_options::shift::ShiftOptions;
use weft_options::values::milliseconds;
use weft_protocols::with_protocol;
use weft_workloads::incr::Change;
use weft_workloads::shift;
use weft_workloads::variants::protocol_of;

use crate::arguments::{Common, Computing};
use crate::simulation::{Benchmark, Setting, SimulationResult, simulate_computing};

const HELP: &str = "\
What is simulated: a hot spot that moves and changes its kind, as in `cargo lab bench shift`, whose help
says what its transactions do. But it changes after milliseconds, because only short times can be
simulated.

Example:
  cargo simulate shift --protocol dbx,silo,2pl --machine xeon-8x10 --cores 8 --milliseconds 6
      each kind of hot spot once";

/// The shifting hot spot.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Shift {
    /// The workload's options.
    #[command(flatten)]
    options: ShiftOptions,
    /// How long the hot spot stays before it moves and changes its kind
    #[arg(long, value_name = "MS", default_value = "2", value_parser = milliseconds())]
    change: f64,
    /// How much the client computes.
    #[command(flatten)]
    computing: Computing,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Shift {
    fn title(&self, _values: &[f64]) -> String {
        let ShiftOptions { records, hot } = &self.options;
        let spot = format!("{hot} % to a hot spot that changes every {} ms", self.change);
        format!("Shift, {records} rows, {spot}; {}", self.computing)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<SimulationResult, String> {
        let every = Duration::from_secs_f64(self.change / 1e3);
        let parameters = self.options.parameters(Change { since: Instant::now(), every });
        with_protocol!(protocol_of(contender), |P| simulate_computing::<P, shift::Shift<P>>(
            &parameters,
            self.computing.compute,
            setting
        ))
        .expect("the parser knows the names")
    }
}
