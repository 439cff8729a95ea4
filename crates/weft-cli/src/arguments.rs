//! The commands and their options.

use clap::{Parser, Subcommand};
use weft_bench::harness::compare::CompareArguments;
use weft_bench::tpcc::TpccArguments;
use weft_options::values::names_of;

use crate::bench::PROTOCOLS;
use crate::check::CheckArguments;
use crate::durable::dump::{DumpArguments, RestoreArguments};
use crate::durable::export::ExportArguments;
use crate::durable::import::ImportArguments;
use crate::durable::log::LogCommand;
use crate::durable::recover::RecoverArguments;
use crate::durable::schema::SchemaCommand;
use crate::program::ProgramArguments;
use crate::report::ReportArguments;

/// Weft: an in-memory, multicore, strictly serializable transactional database.
#[derive(Debug, Parser)]
#[command(name = "weft", version, propagate_version = true, max_term_width = 100)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure throughput and latency under TPC-C (`cargo lab bench` has more workloads and protocols)
    Bench {
        /// The workload, or `compare`.
        #[command(subcommand)]
        workload: Workload,
    },
    /// Check a recorded history of transactions for serializability, and explain what is wrong
    Check(CheckArguments),
    /// Show live in the terminal what a database does, and where its transactions conflict: starts the program `weft-top`
    Top(ProgramArguments),
    /// Show what a flight recorder has recorded before a crash: as text, as JSON, or as a page for a browser
    Report(ReportArguments),
    /// Inspect a durable database's directory, or verify that it is intact; changes nothing
    Log {
        /// The command to run.
        #[command(subcommand)]
        command: LogCommand,
    },
    /// Recover a database: as a dry run, in place, or a past state into another directory
    Recover(RecoverArguments),
    /// Write one table of a database as CSV, Arrow or Parquet
    Export(ExportArguments),
    /// Add the rows of a CSV, Arrow or Parquet file to one table of a database
    Import(ImportArguments),
    /// Write a whole database as one portable file
    Dump(DumpArguments),
    /// Make a database of a file that `weft dump` has written
    Restore(RestoreArguments),
    /// Serve a database to clients of Redis: starts the program `weft-server` with these arguments
    Serve(ProgramArguments),
    /// Show the tables of a database, and how another version of the program would change them; changes nothing
    Schema {
        /// The command to run.
        #[command(subcommand)]
        command: SchemaCommand,
    },
}

/// The workloads of `weft bench`, and the command that compares their results.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// Compare the results of two runs: ratios, with their spread
    Compare(CompareArguments),
    /// TPC-C: orders, payments and deliveries of a wholesaler with W warehouses
    #[command(mut_arg("protocol", |argument| argument.value_parser(names_of(PROTOCOLS))))]
    #[command(mut_arg("hot_tables", |argument| argument.hide(true)))]
    #[command(mut_arg("paper", |argument| argument.hide(true)))]
    #[command(mut_arg("phase_length", |argument| argument.hide(true)))]
    Tpcc(Box<TpccArguments>),
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
