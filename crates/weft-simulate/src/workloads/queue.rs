//! `cargo simulate queue`.

use clap::Args;
use weft_options::queue::QueueOptions;
use weft_protocols::with_protocol;
use weft_workloads::queue;
use weft_workloads::variants::protocol_of;

use crate::arguments::{Common, Computing};
use crate::simulation::{Benchmark, Setting, SimulationResult, simulate_computing};

const HELP: &str = "\
What is simulated: a queue, as in `cargo lab bench queue`, whose help says what its transactions do.

Example:
  cargo simulate queue --protocol dbx,silo,2pl --machine xeon-8x10 --cores 1,8,40
      producers and consumers on up to forty cores";

/// The queue.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Queue {
    /// The workload's options.
    #[command(flatten)]
    options: QueueOptions,
    /// How much the client computes.
    #[command(flatten)]
    computing: Computing,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Queue {
    fn title(&self, _values: &[f64]) -> String {
        format!("Queue, {} entries at first; {}", self.options.backlog, self.computing)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<SimulationResult, String> {
        let parameters = self.options.parameters();
        with_protocol!(protocol_of(contender), |P| simulate_computing::<P, queue::Queue<P>>(
            &parameters,
            self.computing.compute,
            setting
        ))
        .expect("the parser knows the names")
    }
}
