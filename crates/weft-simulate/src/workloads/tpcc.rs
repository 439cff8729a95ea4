//! `cargo simulate tpcc`.

use clap::{Args, ValueEnum};
use weft_protocols::with_protocol;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::tpcc;
use weft_workloads::variants::protocol_of;

use crate::arguments::Common;
use crate::simulation::{Benchmark, Outcome, Setting, simulate_under};

/// TPC-C.
#[derive(Args, Debug)]
pub struct Tpcc {
    /// Size of the database [default: as many as cores]
    #[arg(long, short, value_name = "W", value_parser = clap::value_parser!(u16).range(1..))]
    warehouses: Option<u16>,
    /// Cores that share a warehouse, in place of --warehouses
    #[arg(long, value_name = "N", conflicts_with = "warehouses",
          value_parser = clap::value_parser!(u16).range(1..))]
    threads_per_warehouse: Option<u16>,
    /// Transactions to draw from: standard, the name of one type, or five weights
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS", default_value_t = tpcc::Mix::STANDARD)]
    mix: tpcc::Mix,
    /// Rows per warehouse; `tiny` loads at once
    #[arg(long, value_enum, default_value_t = Scale::Specification)]
    scale: Scale,
    /// Tables as they are declared, or all of them in order
    #[arg(long, value_enum, default_value_t = Storage::Declared)]
    storage: Storage,
    /// On which snapshots Order-Status and Stock-Level run: none; each on one of its own; or
    /// all on one that they share, of up to 40 ms ago
    #[arg(long, value_name = "off|on|recent", default_value_t = Snapshots::Off)]
    snapshots: Snapshots,
    /// How to simulate.
    #[command(flatten)]
    common: Common,
}

/// Sizes of TPC-C.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scale {
    /// That of the specification
    Specification,
    /// As small as it can be
    Tiny,
}

/// How tables are stored.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Storage {
    /// Five of nine as hash tables
    Declared,
    /// All as B+-trees
    Ordered,
}

impl Scale {
    /// The workload's name for it.
    fn scale(self) -> tpcc::Scale {
        match self {
            Scale::Specification => tpcc::Scale::SPECIFICATION,
            Scale::Tiny => tpcc::Scale::TINY,
        }
    }
}

impl Tpcc {
    fn warehouses(&self, cores: usize) -> u16 {
        match (self.warehouses, self.threads_per_warehouse) {
            (Some(warehouses), _) => warehouses,
            (None, Some(threads)) => (cores as u16).div_ceil(threads),
            (None, None) => cores as u16,
        }
    }
}

impl Benchmark for Tpcc {
    fn title(&self, _values: &[f64]) -> String {
        let trees = if self.storage == Storage::Ordered { ", all tables as B+-trees" } else { "" };
        format!("TPC-C, mix {}{trees}{}", self.mix, self.snapshots.in_title())
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let parameters = tpcc::Parameters {
            warehouses: self.warehouses(setting.cores),
            mix: self.mix,
            scale: self.scale.scale(),
            snapshots: self.snapshots,
            all_ordered: self.storage == Storage::Ordered,
        };
        with_protocol!(protocol_of(contender), |P| simulate_under::<P, tpcc::Tpcc<P>>(
            &parameters,
            setting
        ))
        .expect("the parser knows the names")
    }
}
