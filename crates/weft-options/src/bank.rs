//! The options of the bank.

use clap::Args;
use weft_workloads::bank::{ACCOUNTS_MAX, ACCOUNTS_MIN, Parameters};

use crate::values::whole_number;

/// The options of the bank.
#[derive(Args, Clone, Debug)]
pub struct BankOptions {
    /// Number of accounts; an audit reads all of them
    #[arg(long, value_name = "N", default_value_t = Parameters::default().accounts,
          value_parser = whole_number::<u64>(ACCOUNTS_MIN..=ACCOUNTS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub accounts: u64,

    /// Share of the transfers with the hot account on one side, in percent
    #[arg(long, value_name = "%", default_value_t = Parameters::default().hot_percent,
          value_parser = whole_number::<u32>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    pub hot: u32,

    /// Share of the transactions that audit, in percent; the others transfer
    #[arg(long, value_name = "%", default_value_t = Parameters::default().audit_percent,
          value_parser = whole_number::<u32>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    pub audits: u32,
}

impl BankOptions {
    /// Returns the parameters of the workload.
    pub fn parameters(&self) -> Parameters {
        let &BankOptions { accounts, hot, audits } = self;
        Parameters { accounts, hot_percent: hot, audit_percent: audits }
    }
}
