//! The command line.

use std::fmt;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use weft_options::values::{milliseconds, milliseconds_or_zero, paper_mechanisms, protocol_names};
use weft_sim::PROFILES;

use crate::rtm::Rtm;
use crate::simulation::CYCLES_OF_SMALL;
use crate::workloads::articles::Articles;
use crate::workloads::bank::Bank;
use crate::workloads::flash_sale::FlashSale;
use crate::workloads::incr::Incr;
use crate::workloads::like::Like;
use crate::workloads::locks::Locks;
use crate::workloads::mixture::Mixture;
use crate::workloads::queue::Queue;
use crate::workloads::rubis::Rubis;
use crate::workloads::shift::Shift;
use crate::workloads::tatp::Tatp;
use crate::workloads::tpcc::Tpcc;
use crate::workloads::ycsb::Ycsb;

/// Weft's workloads on a simulated machine: shapes and ratios for machines that you do not have
///
/// All figures are simulated: the engine's own code runs on virtual cores in virtual time, with a model
/// of caches, coherence and RTM. The same arguments give the same figures, to the last bit.
#[derive(Debug, Parser)]
#[command(name = "cargo simulate", max_term_width = 100)]
pub struct Arguments {
    /// The workload to run.
    #[command(subcommand)]
    pub workload: Workload,
}

/// The workloads.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// Articles: a site where articles are read and commented on
    Articles(Articles),
    /// A bank: transfers, many of them to or from one hot account, and audits of all accounts
    Bank(Bank),
    /// A flash sale: orders that check a stock, most of them for a few hot items
    FlashSale(FlashSale),
    /// INCR1 and INCRZ: increments of counters, some of which are hot
    Incr(Incr),
    /// LIKE: users who like pages, and look at them; some pages are far more popular than others
    Like(Like),
    /// Locks, taken and elided by hardware regions, under TATP's shortest transaction
    Locks(Locks),
    /// All other workloads in one database at once
    Mixture(Mixture),
    /// A queue: producers append to a table, and consumers take its oldest row
    Queue(Queue),
    /// Hardware regions: how large they can be, and how long, until they abort
    Rtm(Rtm),
    /// RUBiS: an auction site, with bids for popular items
    Rubis(Rubis),
    /// A hot spot that moves and changes its kind every few milliseconds
    Shift(Shift),
    /// TATP: the register of a mobile operator, read and changed by very short transactions
    Tatp(Tatp),
    /// TPC-C: orders, payments and deliveries of a wholesaler with W warehouses
    Tpcc(Tpcc),
    /// YCSB: single rows of 100 bytes in a B+-tree or a hash table, read, modified, inserted and scanned
    Ycsb(Ycsb),
}

/// The options that every workload has.
#[derive(Args, Debug)]
pub struct Common {
    /// Protocols to run, separated by commas
    #[arg(long, short, value_name = "NAME,…", value_delimiter = ',', default_value = "dbx",
          value_parser = protocol_names())]
    pub protocol: Vec<String>,
    /// Tables whose records are hot under `htcc:tables-hot` and `htcc:paper`, separated by commas
    #[arg(long, value_name = "TABLE,…", value_delimiter = ',')]
    pub hot_tables: Vec<String>,
    /// Mechanisms that variants `NAME:paper` have, separated by commas [default: all of the paper's]
    ///
    /// With `no-` before each name: all mechanisms but these.
    #[arg(long, value_name = "MECHANISM,…", value_delimiter = ',', value_parser = paper_mechanisms())]
    pub paper: Vec<String>,
    /// Numbers of virtual cores, separated by commas
    #[arg(long, short, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8")]
    pub cores: Vec<usize>,
    /// The machine to simulate
    #[arg(long, value_name = "PROFILE", default_value = PROFILES[0].name, value_parser = machines())]
    pub machine: String,
    /// Run regions in the machine's RTM, if it has RTM, or run only software twins
    #[arg(long, value_enum, default_value_t = Regions::Rtm)]
    pub htm: Regions,
    /// Number of conflicts at which a region gives up, so that its software twin takes over [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub conflict_retries: Option<u32>,
    /// Number of times that a region is too large for the caches, after which its software twin takes over
    /// [default: 10]
    ///
    /// With 1, a region that does not fit is not tried again.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub capacity_retries: Option<u32>,
    /// Let commits go by whole rows, also where transactions name the columns that they use
    ///
    /// By default a transaction under an optimistic protocol commits although others have changed its rows, if they have
    /// changed other columns, or the same ones by operations that commute. The papers' systems know no columns.
    #[arg(long)]
    pub by_rows: bool,
    /// Virtual time to measure
    #[arg(long, value_name = "MS", default_value_t = 4.0, value_parser = milliseconds_or_zero())]
    pub milliseconds: f64,
    /// Virtual time before the measurement, for warming up the caches
    #[arg(long, value_name = "MS", default_value_t = 1.0, value_parser = milliseconds_or_zero())]
    pub warmup: f64,
    /// Seed of the rows, of the clients' choices, and of everything random in the machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Length of the phases of `doppel` and `doppel-2pl` [default: 20]
    ///
    /// Make the warm-up long enough for the first joined phase: records are split only after it.
    #[arg(long, value_name = "MS", value_parser = milliseconds())]
    pub phase_length: Option<f64>,
    /// Let the private memory of clients and engine take room in caches and regions, or leave it out
    #[arg(long, value_enum, value_name = "on|off", default_value_t = Private::On)]
    pub private_memory: Private,
    /// Count committed transactions in intervals of this length, for --json
    #[arg(long, value_name = "MS", value_parser = milliseconds())]
    pub timeline: Option<f64>,
    /// Also show for each type of transaction how many there were, how long they took, and in which tables they
    /// conflicted
    #[arg(long)]
    pub types: bool,
    /// Check the workload's invariants on every database
    #[arg(long)]
    pub verify: bool,
    /// Write the results as JSON to this file, or to standard output if it is `-`, in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
}

impl Common {
    /// Returns the length of phases, if it was given.
    pub fn phase_length(&self) -> Option<Duration> {
        self.phase_length.map(|milliseconds| Duration::from_secs_f64(milliseconds / 1e3))
    }
}

/// How much the client of a very short transaction computes.
#[derive(Args, Clone, Copy, Debug)]
pub struct Computing {
    /// Cycles that the client computes for each transaction, without the database's part
    ///
    /// Weft's own clients draw their transactions before the clock runs. The clients of the paper are part of a
    /// server written in Go, and compute more.
    #[arg(long, value_name = "CYCLES", default_value_t = CYCLES_OF_SMALL,
          value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub compute: u64,
}

impl fmt::Display for Computing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} cycles of computing for each transaction", self.compute)
    }
}

/// Whether the simulation includes private memory.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Private {
    /// Include it
    On,
    /// Leave it out: regions hold only what lies in shared memory
    Off,
}

/// How regions are run.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Regions {
    /// The simulated machine's RTM
    Rtm,
    /// Software twins, which `cargo lab bench` calls `software`
    #[value(alias = "software")]
    None,
}

/// Returns a parser that accepts the names of machines.
pub fn machines() -> PossibleValuesParser {
    PossibleValuesParser::new(PROFILES.iter().map(|profile| profile.name))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
