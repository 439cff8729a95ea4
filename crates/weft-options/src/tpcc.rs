//! The options of TPC-C.

use clap::{Args, ValueEnum};
use weft_workloads::snapshots::Snapshots;
use weft_workloads::tpcc::{DeliverySearch, Mix, Parameters, Scale};

use crate::SnapshotsOptions;
use crate::values::whole_number;

/// The options of TPC-C.
#[derive(Args, Clone, Debug)]
pub struct TpccOptions {
    /// Size of the database, in warehouses [default: as many as threads]
    ///
    /// With fewer warehouses than threads, the threads compete for the same rows.
    #[arg(long, short, value_name = "W", value_parser = whole_number::<u16>(1..=u16::MAX.into()))]
    #[arg(allow_negative_numbers = true)]
    warehouses: Option<u16>,

    /// Number of threads that share a warehouse, in place of --warehouses
    ///
    /// For example, with 2 the five threads of a run share three warehouses, and the last thread has one to
    /// itself.
    #[arg(long, value_name = "N", value_parser = whole_number::<u16>(1..=u16::MAX.into()),
          conflicts_with = "warehouses")]
    #[arg(allow_negative_numbers = true)]
    threads_per_warehouse: Option<u16>,

    /// Transactions to draw from: standard, the name of one type, or five weights
    ///
    /// `standard` stands for the weights 45,43,4,4,4. The types, in the order of the weights, are
    /// `neworder`, `payment`, `orderstatus`, `delivery` and `stocklevel`.
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS", default_value_t = Mix::STANDARD)]
    pub mix: Mix,

    /// Rows per warehouse; `tiny` loads at once, and its results are not comparable
    #[arg(long, value_enum, default_value_t = ScaleName::Specification)]
    pub scale: ScaleName,

    /// Store the tables as declared, five of them as hash tables, or all of them as B+-trees
    #[arg(long, value_enum, default_value_t = StorageName::Declared)]
    pub storage: StorageName,

    /// Where Delivery begins its search for the oldest new order of a district
    #[arg(long, value_enum, default_value_t = DeliverySearchName::FromStart)]
    pub delivery_search: DeliverySearchName,

    /// The snapshots on which Order-Status and Stock-Level run.
    #[command(flatten)]
    pub reading: SnapshotsOptions,
}

/// The available numbers of rows.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum ScaleName {
    /// The specification's
    Specification,
    /// As few rows as possible
    Tiny,
}

impl ScaleName {
    /// Returns the name that the command line and the JSON use.
    pub fn name(self) -> &'static str {
        match self {
            ScaleName::Specification => "specification",
            ScaleName::Tiny => "tiny",
        }
    }

    fn scale(self) -> Scale {
        match self {
            ScaleName::Specification => Scale::SPECIFICATION,
            ScaleName::Tiny => Scale::TINY,
        }
    }
}

/// How tables are stored.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum StorageName {
    /// Five of nine as hash tables
    Declared,
    /// All as B+-trees
    Ordered,
}

impl StorageName {
    /// Returns the name that the command line and the JSON use.
    pub fn name(self) -> &'static str {
        match self {
            StorageName::Declared => "declared",
            StorageName::Ordered => "ordered",
        }
    }
}

/// Where Delivery begins its search for the oldest new order of a district.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum DeliverySearchName {
    /// At the smallest possible number: it passes delivered orders that a snapshot still shows
    FromStart,
    /// Behind the last order that the client has delivered, as in the code that the papers of DBX and DBX-TC measured
    BehindLast,
}

impl DeliverySearchName {
    /// Returns the name that the command line and the JSON use.
    pub fn name(self) -> &'static str {
        match self {
            DeliverySearchName::FromStart => "from-start",
            DeliverySearchName::BehindLast => "behind-last",
        }
    }
}

impl TpccOptions {
    /// Returns the parameters of the workload for this number of threads, whose readers use these snapshots.
    /// Returns `None` if there are not enough warehouses to give each thread one.
    pub fn parameters(&self, threads: usize, snapshots: Snapshots) -> Option<Parameters> {
        let sharing = self.threads_per_warehouse.map_or(1, usize::from);
        let warehouses = match self.warehouses {
            Some(warehouses) => warehouses,
            None => u16::try_from(threads.div_ceil(sharing)).ok()?,
        };
        Some(Parameters {
            warehouses,
            mix: self.mix,
            scale: self.scale.scale(),
            snapshots,
            all_ordered: self.storage == StorageName::Ordered,
            delivery_search: match self.delivery_search {
                DeliverySearchName::FromStart => DeliverySearch::FromStart,
                DeliverySearchName::BehindLast => DeliverySearch::BehindLast,
            },
        })
    }
}
