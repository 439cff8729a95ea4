//! The options of the flash sale.

use clap::Args;
use weft_workloads::flash_sale::{Parameters, RECORDS_MAX};

use crate::values::whole_number;

/// The most units of an item: as many as can be counted without an overflow in any run.
const STOCK_MAX: u64 = 1 << 53;

/// The options of the flash sale.
#[derive(Args, Clone, Debug)]
pub struct FlashSaleOptions {
    /// Number of items
    #[arg(long, value_name = "N", default_value_t = Parameters::default().items,
          value_parser = whole_number::<u64>(2..=RECORDS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub items: u64,

    /// Number of buyers
    #[arg(long, value_name = "N", default_value_t = Parameters::default().buyers,
          value_parser = whole_number::<u64>(1..=RECORDS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub buyers: u64,

    /// Number of hot items; fewer than --items
    #[arg(long, value_name = "N", default_value_t = Parameters::default().hot,
          value_parser = whole_number::<u64>(1..=RECORDS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub hot: u64,

    /// Share of the transactions for a hot item, in percent
    #[arg(long, value_name = "%", default_value_t = Parameters::default().hot_percent,
          value_parser = whole_number::<u32>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    pub share: u32,

    /// Units of each item at the beginning; with enough of them, none is sold out
    #[arg(long, value_name = "N", default_value_t = Parameters::default().stock,
          value_parser = whole_number::<i64>(0..=STOCK_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub stock: i64,

    /// Orders take units of an item, and do not read how many are left, so that orders of one item commute
    #[arg(long)]
    pub takes: bool,
}

impl FlashSaleOptions {
    /// Returns the parameters of the workload.
    ///
    /// # Errors
    /// All items are hot.
    pub fn parameters(&self) -> Result<Parameters, String> {
        let &FlashSaleOptions { items, buyers, hot, share, stock, takes } = self;
        if hot >= items {
            return Err(format!("--hot {hot} leaves no other items: give more than {hot} --items"));
        }
        Ok(Parameters { items, buyers, hot, hot_percent: share, stock, takes })
    }
}
