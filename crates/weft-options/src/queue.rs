//! The options of the queue.

use clap::Args;
use weft_workloads::queue::{BACKLOG_MAX, Parameters};

use crate::values::whole_number;

/// The options of the queue.
#[derive(Args, Clone, Debug)]
pub struct QueueOptions {
    /// Length of the queue before the run, in entries
    #[arg(long, value_name = "N", default_value_t = Parameters::default().backlog,
          value_parser = whole_number::<u64>(0..=BACKLOG_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub backlog: u64,
}

impl QueueOptions {
    /// Returns the parameters of the workload.
    pub fn parameters(&self) -> Parameters {
        Parameters { backlog: self.backlog }
    }
}
