//! The commands of the laboratory.

use clap::{Parser, Subcommand};
use weft_bench::harness::compare::CompareArguments;
use weft_bench::tpcc::TpccArguments;

use crate::bench::articles::ArticlesArguments;
use crate::bench::incr::IncrArguments;
use crate::bench::like::LikeArguments;
use crate::bench::locks::LocksArguments;
use crate::bench::rtm::RtmArguments;
use crate::bench::rubis::RubisArguments;
use crate::bench::tatp::TatpArguments;
use crate::bench::ycsb::YcsbArguments;
use crate::chop::ChopArguments;
use crate::figures::FiguresArguments;
use crate::procedures::ProceduresArguments;

/// Weft's laboratory: every concurrency control protocol under every workload, the figures of the papers, and what
/// their analyses find
#[derive(Debug, Parser)]
#[command(name = "weft-lab", version, propagate_version = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure throughput and latency of one or more protocols under a workload
    Bench {
        /// The workload.
        #[command(subcommand)]
        workload: Workload,
    },
    /// Find the pieces in which the transactions of a workload may commit, and why not in smaller ones
    Chop(ChopArguments),
    /// Measure the papers' figures again, and draw them beside what the papers found
    Figures(FiguresArguments),
    /// Show what the transactions of a workload do, and what follows from what: text, or a graph
    Procedures(ProceduresArguments),
    /// List the concurrency control protocols: name, what it is, where it is from
    Protocols,
}

/// The workloads of `cargo lab bench`, and what compares their results.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// Articles: a site where articles are read and commented on
    Articles(ArticlesArguments),
    /// Compare the results of two calls: ratios, with their spread
    Compare(CompareArguments),
    /// INCR1 and INCRZ: increments of counters, some of which are hot
    Incr(IncrArguments),
    /// LIKE: users who like pages, and look at them; some pages are far more popular than others
    Like(LikeArguments),
    /// Locks, taken and elided by hardware regions, under TATP's shortest transaction
    Locks(LocksArguments),
    /// Hardware regions: how large they can be, and how long, until they abort
    Rtm(RtmArguments),
    /// RUBiS: an auction site, with bids for popular items
    Rubis(RubisArguments),
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
