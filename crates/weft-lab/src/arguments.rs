//! The commands of `weft-lab`.

use clap::{Parser, Subcommand};
use weft_bench::harness::compare::CompareArguments;
use weft_bench::tpcc::TpccArguments;

use crate::bench::articles::ArticlesArguments;
use crate::bench::bank::BankArguments;
use crate::bench::flash_sale::FlashSaleArguments;
use crate::bench::incr::IncrArguments;
use crate::bench::like::LikeArguments;
use crate::bench::locks::LocksArguments;
use crate::bench::map::MapArguments;
use crate::bench::mixture::MixtureArguments;
use crate::bench::queue::QueueArguments;
use crate::bench::rtm::RtmArguments;
use crate::bench::rubis::RubisArguments;
use crate::bench::shift::ShiftArguments;
use crate::bench::tatp::TatpArguments;
use crate::bench::ycsb::YcsbArguments;
use crate::chop::ChopArguments;
use crate::figures::FiguresArguments;
use crate::procedures::ProceduresArguments;

/// Weft's laboratory: every concurrency control protocol under every workload, the papers' figures, and analyses of
/// transactions
#[derive(Debug, Parser)]
#[command(name = "weft-lab", version, propagate_version = true, max_term_width = 100)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one value, which is parsed once")]
pub enum Command {
    /// Measure throughput and latency of one or more protocols under a workload
    Bench {
        /// The workload, or `compare`.
        #[command(subcommand)]
        workload: Workload,
    },
    /// Show how the transactions of a workload can be chopped into pieces, and why not into smaller ones
    Chop(ChopArguments),
    /// Measure the papers' figures again, and draw the results beside the papers' own
    Figures(FiguresArguments),
    /// Show the steps of a workload's transactions and their dependencies, as text or as a graph
    Procedures(ProceduresArguments),
    /// List the concurrency control protocols: name, description, source
    Protocols,
}

/// The workloads of `cargo lab bench`, the command that compares their results, and the map of all of them.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// Articles: a site where articles are read and commented on
    Articles(ArticlesArguments),
    /// A bank: transfers, many of them to or from one hot account, and audits of all accounts
    Bank(BankArguments),
    /// Compare the results of two runs: ratios, with their spread
    Compare(CompareArguments),
    /// A flash sale: orders that check a stock, most of them for a few hot items
    FlashSale(FlashSaleArguments),
    /// INCR1 and INCRZ: increments of counters, some of which are hot
    Incr(IncrArguments),
    /// LIKE: users who like pages, and look at them; some pages are far more popular than others
    Like(LikeArguments),
    /// Locks, taken and elided by hardware regions, under TATP's shortest transaction
    Locks(LocksArguments),
    /// The map: every protocol on a grid of workloads, and one protocol beside the best of the others
    Map(MapArguments),
    /// All other workloads in one database at once
    Mixture(MixtureArguments),
    /// A queue: producers append to a table, and consumers take its oldest row
    Queue(QueueArguments),
    /// Hardware regions: how large they can be, and how long, until they abort
    Rtm(RtmArguments),
    /// RUBiS: an auction site, with bids for popular items
    Rubis(RubisArguments),
    /// A hot spot that moves and changes its kind every few seconds
    Shift(ShiftArguments),
    /// TATP: the register of a mobile operator, read and changed by very short transactions
    Tatp(TatpArguments),
    /// TPC-C: orders, payments and deliveries of a wholesaler with W warehouses
    Tpcc(TpccArguments),
    /// YCSB: single rows read, modified, inserted and scanned by key, some more often than others
    Ycsb(YcsbArguments),
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
