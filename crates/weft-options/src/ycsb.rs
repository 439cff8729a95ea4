//! The options of YCSB that `cargo lab bench` and `cargo simulate` share.

use clap::{Args, ValueEnum};
use weft::schema::Storage;
use weft_workloads::ycsb::{Distribution, Kind, Mix, Parameters, RECORDS_MAX};

use crate::values::whole_number;

pub use crate::popularity as theta;

/// The most operations in a transaction.
const OPERATIONS_MAX: u64 = 10_000;

/// The options of YCSB that both commands have.
#[derive(Args, Clone, Debug)]
pub struct YcsbOptions {
    /// Number of rows to load
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = whole_number::<u64>(1..=RECORDS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub records: u64,

    /// Length of the longest scan, in rows; lengths are uniform from 1
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole_number::<u16>(1..=u16::MAX.into()))]
    #[arg(allow_negative_numbers = true)]
    pub scan_rows: u16,

    /// Number of operations in one transaction
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u32>(1..=OPERATIONS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub operations: u32,

    /// Kind of index; a hash table cannot be scanned
    #[arg(long, value_enum, default_value_t = StorageName::Tree)]
    pub storage: StorageName,
}

/// The available kinds of index.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum StorageName {
    /// A B+-tree
    Tree,
    /// A hash table
    Hash,
}

impl StorageName {
    /// Returns the name that the command line and the JSON use.
    pub fn name(self) -> &'static str {
        match self {
            StorageName::Tree => "tree",
            StorageName::Hash => "hash",
        }
    }

    /// Returns the engine's name for it.
    pub fn storage(self) -> Storage {
        match self {
            StorageName::Tree => Storage::Ordered,
            StorageName::Hash => Storage::Hash,
        }
    }
}

impl YcsbOptions {
    /// Returns the parameters of the workload for this mix and this popularity of rows.
    ///
    /// # Errors
    /// The mix scans, but the storage is a hash table.
    pub fn parameters(
        &self,
        mix: Mix,
        theta: f64,
        distribution: Distribution,
    ) -> Result<Parameters, String> {
        let &YcsbOptions { records, scan_rows, operations, storage } = self;
        if storage == StorageName::Hash && mix.share(Kind::Scan) > 0 {
            return Err("a hash table cannot be scanned: scans need --storage tree".to_owned());
        }
        Ok(Parameters { records, mix, operations, scan_rows, theta, distribution })
    }
}
