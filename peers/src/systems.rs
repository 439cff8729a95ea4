//! The list of the compared systems, by the names that options and tables give them.

use clap::ValueEnum;
use serde::Serialize;
use weft::protocol::Dbx;
use weft_protocols::Doppel;

use crate::machine::package_version;
use crate::round::{Contender, StoreAndClients};
use crate::store::Result;
use crate::stores::{lmdb, mutex, redb, sqlite, surrealmx, weft as weft_store};
use crate::workloads::{Counter, Reads, Transfers, Workload};

/// A compared system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// Weft with its default protocol
    Weft,
    /// Weft with the protocol `doppel`: the hot counter only
    Doppel,
    /// A hash map behind a mutex, both of the standard library
    Mutex,
    /// SurrealMX
    Surrealmx,
    /// LMDB, through the crate heed
    Lmdb,
    /// SQLite in memory, through the crate rusqlite
    Sqlite,
    /// redb with its in-memory backend
    Redb,
}

/// A workload's name in options and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadName {
    /// Every transaction adds 1 to the same row
    Counter,
    /// Every transaction moves 1 between two of 1,000 accounts
    Transfers,
    /// Ten operations on 100,000 rows in a transaction; 95 % of them are reads
    Reads,
}

impl WorkloadName {
    /// All workloads, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Counter, Self::Transfers, Self::Reads];

    /// Returns the name in tables.
    pub fn title(self) -> &'static str {
        match self {
            WorkloadName::Counter => Counter::NAME,
            WorkloadName::Transfers => Transfers::NAME,
            WorkloadName::Reads => Reads::NAME,
        }
    }
}

impl System {
    /// Returns the name in tables, as Markdown.
    pub fn title(self) -> &'static str {
        match self {
            System::Weft => "**Weft**",
            System::Doppel => "**Weft**, protocol `doppel`",
            System::Mutex => "`Mutex<HashMap>`",
            System::Surrealmx => "SurrealMX",
            System::Lmdb => "LMDB",
            System::Sqlite => "SQLite",
            System::Redb => "redb",
        }
    }

    /// Returns the name in options.
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("no system is hidden");
        value.get_name().to_owned()
    }

    /// Returns the name and the version of what was linked; `None` if it is part of Weft or of Rust.
    pub fn version(self) -> Option<String> {
        match self {
            System::Weft | System::Doppel | System::Mutex => None,
            System::Surrealmx => Some(format!("SurrealMX {}", package_version("surrealmx")?)),
            System::Lmdb => {
                let heed::LmdbVersion { major, minor, patch, .. } = heed::lmdb_version();
                Some(format!("LMDB {major}.{minor}.{patch}"))
            }
            System::Sqlite => Some(format!("SQLite {}", rusqlite::version())),
            System::Redb => Some(format!("redb {}", package_version("redb")?)),
        }
    }

    /// Returns whether the system is measured under a workload. `doppel` is meant for hot rows.
    pub fn runs(self, workload: WorkloadName) -> bool {
        self != System::Doppel || workload == WorkloadName::Counter
    }

    /// Opens the system with the rows of a workload.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(self, workload: WorkloadName, threads: usize) -> Result<Box<dyn Contender>> {
        match workload {
            WorkloadName::Counter => self.open_for::<Counter>(threads, Counter::ROWS),
            WorkloadName::Transfers => self.open_for::<Transfers>(threads, Transfers::ROWS),
            WorkloadName::Reads => self.open_for::<Reads>(threads, Reads::ROWS),
        }
    }

    fn open_for<W: Workload + 'static>(
        self,
        threads: usize,
        rows: u64,
    ) -> Result<Box<dyn Contender>> {
        Ok(match self {
            System::Weft => {
                Box::new(StoreAndClients::<weft_store::Weft<Dbx>, W>::open(threads, rows)?)
            }
            System::Doppel => {
                Box::new(StoreAndClients::<weft_store::Weft<Doppel>, W>::open(threads, rows)?)
            }
            System::Mutex => Box::new(StoreAndClients::<mutex::MutexMap, W>::open(threads, rows)?),
            System::Surrealmx => {
                Box::new(StoreAndClients::<surrealmx::SurrealMx, W>::open(threads, rows)?)
            }
            System::Lmdb => Box::new(StoreAndClients::<lmdb::Lmdb, W>::open(threads, rows)?),
            System::Sqlite => Box::new(StoreAndClients::<sqlite::Sqlite, W>::open(threads, rows)?),
            System::Redb => Box::new(StoreAndClients::<redb::Redb, W>::open(threads, rows)?),
        })
    }
}
