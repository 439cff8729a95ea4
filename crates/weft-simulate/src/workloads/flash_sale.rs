//! `cargo simulate flash-sale`.

use clap::Args;
use weft_options::flash_sale::FlashSaleOptions;
use weft_protocols::with_protocol;
use weft_workloads::flash_sale;
use weft_workloads::variants::protocol_of;

use crate::arguments::{Common, Computing};
use crate::simulation::{Benchmark, Setting, SimulationResult, simulate_computing};

const HELP: &str = "\
What is simulated: a flash sale, as in `cargo lab bench flash-sale`, whose help says what its transactions do.

Example:
  cargo simulate flash-sale --hot 10 --protocol dbx,silo,2pl --machine xeon-8x10 --cores 1,8,40
      orders for ten hot items";

/// The flash sale.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct FlashSale {
    /// The workload's options.
    #[command(flatten)]
    options: FlashSaleOptions,
    /// How much the client computes.
    #[command(flatten)]
    computing: Computing,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for FlashSale {
    fn title(&self, _values: &[f64]) -> String {
        let FlashSaleOptions { items, hot, share, stock, takes, .. } = &self.options;
        let way = if *takes { ", by take" } else { "" };
        format!(
            "Flash sale, {items} items of {stock}, {share} % for {hot}{way}; {}",
            self.computing
        )
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<SimulationResult, String> {
        let parameters = self.options.parameters()?;
        with_protocol!(
            protocol_of(contender),
            |P| simulate_computing::<P, flash_sale::FlashSale<P>>(
                &parameters,
                self.computing.compute,
                setting
            )
        )
        .expect("the parser knows the names")
    }
}
