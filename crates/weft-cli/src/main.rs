//! The `weft` command.
//!
//! What happens from the command line to the exit code, and where it is written:
//!
//! 1. `arguments` says which commands and options there are, and what a value may be.
//! 2. `protocols`, `procedures`, `chop`, `bench` and `check` are the commands, and `durable` has those for databases in a
//!    directory: `log`, `recover` and `export`. `bench` is one harness for every workload and every
//!    protocol; a workload adds one small file with its own options (`bench/articles.rs`,
//!    `bench/incr.rs`, `bench/like.rs`, `bench/locks.rs`, `bench/rubis.rs`, `bench/tatp.rs`,
//!    `bench/tpcc.rs`, `bench/ycsb.rs`). `bench/rtm.rs` stands beside it: it is about hardware regions
//!    alone. So does `bench/compare.rs`, which compares the results of two calls. `plot` draws curves over time.
//!    `figures` calls `bench` for each point of the papers' figures; `weft-figures` draws these.
//! 3. `stop` turns whatever ended a command early into a message and an exit code.
//!
//! Results go to standard output. Progress and messages go to standard error; progress is shown
//! only where standard error is a terminal. Nothing is ever coloured but the help and the messages
//! about wrong arguments, and these only on a terminal.
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | done; or the reader of the output went away |
//! | 1 | the engine failed, a worker thread panicked, what was verified or checked does not hold, or a database is damaged |
//! | 2 | the arguments ask for something that cannot be had, or name a file that cannot be read |

mod arguments;
mod bench;
mod check;
mod chop;
mod durable;
mod figures;
mod input;
mod memory;
mod numbers;
mod plot;
mod procedures;
mod progress;
mod protocols;
mod stop;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command, Workload};

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Bench { workload: Workload::Articles(arguments) } => {
            bench::articles::run(&arguments)
        }
        Command::Bench { workload: Workload::Compare(arguments) } => {
            bench::compare::run(&arguments)
        }
        Command::Bench { workload: Workload::Incr(arguments) } => bench::incr::run(&arguments),
        Command::Bench { workload: Workload::Like(arguments) } => bench::like::run(&arguments),
        Command::Bench { workload: Workload::Locks(arguments) } => bench::locks::run(&arguments),
        Command::Bench { workload: Workload::Rtm(arguments) } => bench::rtm::run(&arguments),
        Command::Bench { workload: Workload::Rubis(arguments) } => bench::rubis::run(&arguments),
        Command::Bench { workload: Workload::Tatp(arguments) } => bench::tatp::run(&arguments),
        Command::Bench { workload: Workload::Tpcc(arguments) } => bench::tpcc::run(&arguments),
        Command::Bench { workload: Workload::Ycsb(arguments) } => bench::ycsb::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Chop(arguments) => chop::run(&arguments),
        Command::Figures(arguments) => figures::run(&arguments),
        Command::Procedures(arguments) => procedures::run(&arguments),
        Command::Protocols => protocols::run(),
        Command::Log { command } => durable::log::run(&command),
        Command::Recover(arguments) => durable::recover::run(&arguments),
        Command::Export(arguments) => durable::export::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => stop.report(),
    }
}
