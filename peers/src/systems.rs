//! The list of the compared systems, by the names that options and tables give them.

use std::marker::PhantomData;

use clap::ValueEnum;
use serde::Serialize;
use weft::protocol::Dbx;
use weft_protocols::Doppel;

use crate::machine::package_version;
use crate::round::{Contender, Loading, StoreAndClients};
use crate::store::{Result, Store};
use crate::stores::weft::{HashedRow, Weft};
use crate::stores::{lmdb, mutex, redb, sharded, sqlite, stm, surrealmx};
use crate::workloads::{
    Counter, Incr, Like, Points, Reads, Rmw, Together, Transfers, Workload, YcsbA, YcsbB,
};

/// A compared system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Weft with its default protocol
    Weft,
    /// Weft with the protocol `doppel`: the hot counter only
    Doppel,
    /// Weft with its default protocol and a hash table: in the workloads with a million rows
    WeftHash,
    /// A hash map behind a mutex, both of the standard library
    Mutex,
    /// 1,024 hash maps behind mutexes, which a transaction locks in their order: in the workloads with a million rows
    Sharded,
    /// fast-stm, software transactional memory: in the workloads with a million rows
    Stm,
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
#[serde(rename_all = "kebab-case")]
pub enum WorkloadName {
    /// Every transaction adds 1 to the same row
    Counter,
    /// Every transaction moves 1 between two of 1,000 accounts
    Transfers,
    /// Ten operations on 100,000 rows in a transaction; 95 % of them are reads
    Reads,
    /// One operation on a million rows, all equally popular; a fifth are updates
    Rmw,
    /// Sixteen of these operations in one transaction, in any order
    Together,
    /// A like of a page, which is one of a million by Zipf's law, and of a user; or a look at both
    Like,
    /// One operation on a million rows, by Zipf's law; half are updates
    YcsbA,
    /// One operation on a million rows, by Zipf's law; 5 % are updates
    YcsbB,
    /// Adds 1 to one of a million rows
    Incr0,
    /// Adds 1 to the same row every second time, or else to one of a million
    Incr50,
    /// The rows per second at which a million rows are inserted in the order of their keys, by one thread
    Load,
}

impl WorkloadName {
    /// The workloads of the table in README.md, in its order.
    pub const TABLE: [Self; 3] = [Self::Counter, Self::Transfers, Self::Reads];

    /// Returns whether the workload has a million rows.
    pub fn is_large(self) -> bool {
        !Self::TABLE.contains(&self)
    }

    /// Returns the name in tables.
    pub fn title(self) -> &'static str {
        match self {
            WorkloadName::Counter => Counter::NAME,
            WorkloadName::Transfers => Transfers::NAME,
            WorkloadName::Reads => Reads::NAME,
            WorkloadName::Rmw => Points::<Rmw>::NAME,
            WorkloadName::Together => Together::NAME,
            WorkloadName::Like => Like::NAME,
            WorkloadName::YcsbA => Points::<YcsbA>::NAME,
            WorkloadName::YcsbB => Points::<YcsbB>::NAME,
            WorkloadName::Incr0 => Incr::<0>::NAME,
            WorkloadName::Incr50 => Incr::<50>::NAME,
            WorkloadName::Load => "load, rows",
        }
    }
}

impl System {
    /// Returns the name in tables, as Markdown.
    pub fn title(self) -> &'static str {
        match self {
            System::Weft => "**Weft**",
            System::Doppel => "**Weft**, protocol `doppel`",
            System::WeftHash => "**Weft**, hash table",
            System::Mutex => "`Mutex<HashMap>`",
            System::Sharded => "1,024 × `Mutex<HashMap>`",
            System::Stm => "fast-stm",
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
            System::Weft | System::Doppel | System::WeftHash | System::Mutex | System::Sharded => {
                None
            }
            System::Stm => Some(format!("fast-stm {}", package_version("fast-stm")?)),
            System::Surrealmx => Some(format!("SurrealMX {}", package_version("surrealmx")?)),
            System::Lmdb => {
                let heed::LmdbVersion { major, minor, patch, .. } = heed::lmdb_version();
                Some(format!("LMDB {major}.{minor}.{patch}"))
            }
            System::Sqlite => Some(format!("SQLite {}", rusqlite::version())),
            System::Redb => Some(format!("redb {}", package_version("redb")?)),
        }
    }

    /// Returns whether the system is measured under a workload, unless options say otherwise. `doppel` is meant for
    /// hot rows.
    pub fn runs(self, workload: WorkloadName) -> bool {
        use WorkloadName::{Counter, Incr0, Incr50};
        match self {
            System::Doppel => matches!(workload, Counter | Incr0 | Incr50),
            System::WeftHash | System::Sharded | System::Stm => workload.is_large(),
            _ => true,
        }
    }

    /// Opens the system with the rows of a workload.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(self, workload: WorkloadName, threads: usize) -> Result<Box<dyn Contender>> {
        match workload {
            WorkloadName::Counter => self.with_store(&ClientsOf::<Counter>::new(threads)),
            WorkloadName::Transfers => self.with_store(&ClientsOf::<Transfers>::new(threads)),
            WorkloadName::Reads => self.with_store(&ClientsOf::<Reads>::new(threads)),
            WorkloadName::Rmw => self.with_store(&ClientsOf::<Points<Rmw>>::new(threads)),
            WorkloadName::Together => self.with_store(&ClientsOf::<Together>::new(threads)),
            WorkloadName::Like => self.with_store(&ClientsOf::<Like>::new(threads)),
            WorkloadName::YcsbA => self.with_store(&ClientsOf::<Points<YcsbA>>::new(threads)),
            WorkloadName::YcsbB => self.with_store(&ClientsOf::<Points<YcsbB>>::new(threads)),
            WorkloadName::Incr0 => self.with_store(&ClientsOf::<Incr<0>>::new(threads)),
            WorkloadName::Incr50 => self.with_store(&ClientsOf::<Incr<50>>::new(threads)),
            WorkloadName::Load => self.with_store(&Load),
        }
    }

    fn with_store(self, opener: &impl Opener) -> Result<Box<dyn Contender>> {
        match self {
            System::Weft => opener.open::<Weft<Dbx>>(),
            System::Doppel => opener.open::<Weft<Doppel>>(),
            System::WeftHash => opener.open::<Weft<Dbx, HashedRow>>(),
            System::Mutex => opener.open::<mutex::MutexMap>(),
            System::Sharded => opener.open::<sharded::ShardedMap>(),
            System::Stm => opener.open::<stm::Stm>(),
            System::Surrealmx => opener.open::<surrealmx::SurrealMx>(),
            System::Lmdb => opener.open::<lmdb::Lmdb>(),
            System::Sqlite => opener.open::<sqlite::Sqlite>(),
            System::Redb => opener.open::<redb::Redb>(),
        }
    }
}

/// What a workload does with a system of any type.
trait Opener {
    fn open<S: Store + 'static>(&self) -> Result<Box<dyn Contender>>;
}

/// Opens a store once, and runs a workload's clients on it.
struct ClientsOf<W> {
    threads: usize,
    workload: PhantomData<W>,
}

impl<W> ClientsOf<W> {
    fn new(threads: usize) -> Self {
        ClientsOf { threads, workload: PhantomData }
    }
}

impl<W: Workload + 'static> Opener for ClientsOf<W> {
    fn open<S: Store + 'static>(&self) -> Result<Box<dyn Contender>> {
        Ok(Box::new(StoreAndClients::<S, W>::open(self.threads, W::ROWS)?))
    }
}

/// Opens a store with a million rows in each round.
struct Load;

impl Opener for Load {
    fn open<S: Store + 'static>(&self) -> Result<Box<dyn Contender>> {
        Ok(Box::new(Loading::<S>::new(Points::<Rmw>::ROWS)))
    }
}
