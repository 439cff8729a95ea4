//! The `weft-lab` command: all protocols, all workloads, and the papers' figures.
//!
//! `bench` is the harness of [`weft_bench`] for every workload and every protocol. Each workload adds one small
//! file with its own options. `bench/rtm.rs` does not use the harness: it measures hardware regions alone.
//! `figures` runs `bench` for each point of the papers' figures, and `weft-figures` draws them. `procedures` and
//! `chop` show what is known of the workloads' transactions before they run.
//!
//! Results go to standard output. Progress and messages go to standard error; progress is shown only if standard
//! error is a terminal. Only the help and the messages about wrong arguments are coloured, and only on a terminal.
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | success, or the reader of the output closed it |
//! | 1 | the engine failed, a worker thread panicked, or a verification failed |
//! | 2 | the arguments ask for something impossible, or name a file that cannot be read |

mod arguments;
mod bench;
mod chop;
mod figures;
mod procedures;
mod protocols;

use std::process::ExitCode;

use clap::Parser;
use weft_bench::harness;

use arguments::{Arguments, Command, Workload};

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Bench { workload } => match workload {
            Workload::Articles(arguments) => bench::articles::run(&arguments),
            Workload::Bank(arguments) => bench::bank::run(&arguments),
            Workload::Compare(arguments) => harness::compare::run(&arguments),
            Workload::FlashSale(arguments) => bench::flash_sale::run(&arguments),
            Workload::Incr(arguments) => bench::incr::run(&arguments),
            Workload::Like(arguments) => bench::like::run(&arguments),
            Workload::Locks(arguments) => bench::locks::run(&arguments),
            Workload::Map(arguments) => bench::map::run(&arguments),
            Workload::Mixture(arguments) => bench::mixture::run(&arguments),
            Workload::Queue(arguments) => bench::queue::run(&arguments),
            Workload::Rtm(arguments) => bench::rtm::run(&arguments),
            Workload::Rubis(arguments) => bench::rubis::run(&arguments),
            Workload::Shift(arguments) => bench::shift::run(&arguments),
            Workload::Tatp(arguments) => bench::tatp::run(&arguments),
            Workload::Tpcc(arguments) => bench::tpcc::run(&arguments),
            Workload::Ycsb(arguments) => bench::ycsb::run(&arguments),
        },
        Command::Chop(arguments) => chop::run(&arguments),
        Command::Figures(arguments) => figures::run(&arguments),
        Command::Procedures(arguments) => procedures::run(&arguments),
        Command::Protocols => protocols::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => stop.report(),
    }
}
