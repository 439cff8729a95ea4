//! `cargo simulate tpcc`.

use clap::Args;
use weft_options::tpcc::{StorageName, TpccOptions};
use weft_protocols::with_protocol;
use weft_workloads::tpcc;
use weft_workloads::variants::protocol_of;

use crate::arguments::Common;
use crate::simulation::{Benchmark, Outcome, Setting, simulate_under};

/// TPC-C.
#[derive(Args, Debug)]
pub struct Tpcc {
    /// The workload's options.
    #[command(flatten)]
    options: TpccOptions,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Tpcc {
    fn title(&self, _values: &[f64]) -> String {
        let TpccOptions { mix, storage, reading, .. } = &self.options;
        let trees = if *storage == StorageName::Ordered { ", all tables as B+-trees" } else { "" };
        format!("TPC-C, mix {mix}{trees}{}", reading.snapshots[0].in_title())
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let parameters = self.options.parameters(setting.cores, self.options.reading.snapshots[0]);
        let parameters = parameters.ok_or("for this many cores, give --warehouses")?;
        with_protocol!(protocol_of(contender), |P| simulate_under::<P, tpcc::Tpcc<P>>(
            &parameters,
            setting
        ))
        .expect("the parser knows the names")
    }
}
