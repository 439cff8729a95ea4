//! `cargo simulate bank`.

use clap::Args;
use weft_options::bank::BankOptions;
use weft_protocols::with_protocol;
use weft_workloads::bank;
use weft_workloads::variants::protocol_of;

use crate::arguments::{Common, Computing};
use crate::simulation::{Benchmark, Setting, SimulationResult, simulate_computing};

const HELP: &str = "\
What is simulated: a bank, as in `cargo lab bench bank`, whose help says what its transactions do.

Example:
  cargo simulate bank --protocol dbx,silo,2pl --machine xeon-8x10 --cores 1,8,40
      transfers with a hot account, and audits among them";

/// The bank.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Bank {
    /// The workload's options.
    #[command(flatten)]
    options: BankOptions,
    /// How much the client computes.
    #[command(flatten)]
    computing: Computing,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Bank {
    fn title(&self, _values: &[f64]) -> String {
        let BankOptions { accounts, hot, audits } = &self.options;
        let shares = format!("{hot} % of the transfers with the hot one, {audits} % audit");
        format!("Bank, {accounts} accounts, {shares}; {}", self.computing)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<SimulationResult, String> {
        let parameters = self.options.parameters();
        with_protocol!(protocol_of(contender), |P| simulate_computing::<P, bank::Bank<P>>(
            &parameters,
            self.computing.compute,
            setting
        ))
        .expect("the parser knows the names")
    }
}
