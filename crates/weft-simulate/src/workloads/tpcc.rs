//! `cargo simulate tpcc`.

use clap::Args;
use weft_options::tpcc::{DeliverySearchName, StorageName, TpccOptions};
use weft_protocols::with_protocol;
use weft_workloads::tpcc;
use weft_workloads::variants::protocol_of;

use crate::arguments::Common;
use crate::simulation::{Benchmark, Setting, SimulationResult, simulate_under};

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
        let TpccOptions { mix, storage, delivery_search, reading, .. } = &self.options;
        let trees = if *storage == StorageName::Ordered { ", all tables as B+-trees" } else { "" };
        let delivery = match delivery_search {
            DeliverySearchName::FromStart => "",
            DeliverySearchName::BehindLast => ", Delivery searches behind its last order",
        };
        format!("TPC-C, mix {mix}{trees}{delivery}{}", reading.snapshots[0].in_title())
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<SimulationResult, String> {
        let parameters = self.options.parameters(setting.cores, self.options.reading.snapshots[0]);
        let parameters = parameters.ok_or("for this many cores, give --warehouses")?;
        with_protocol!(protocol_of(contender), |P| simulate_under::<P, tpcc::Tpcc<P>>(
            &parameters,
            setting
        ))
        .expect("the parser knows the names")
    }
}
