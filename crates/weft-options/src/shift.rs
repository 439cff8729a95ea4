//! The options of the shifting hot spot.

use clap::Args;
use weft_workloads::incr::Change;
use weft_workloads::shift::{Parameters, RECORDS_MAX, RECORDS_MIN};

use crate::values::whole_number;

/// The options of the shifting hot spot, except the one that says how often it changes.
#[derive(Args, Clone, Debug)]
pub struct ShiftOptions {
    /// Number of rows
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = whole_number::<u64>(RECORDS_MIN..=RECORDS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub records: u64,

    /// Share of the transactions that go to the hot spot, in percent
    #[arg(long, value_name = "%", default_value_t = 50, value_parser = whole_number::<u32>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    pub hot: u32,
}

impl ShiftOptions {
    /// Returns the parameters of the workload.
    pub fn parameters(&self, change: Change) -> Parameters {
        Parameters { records: self.records, hot_percent: self.hot, change }
    }
}
