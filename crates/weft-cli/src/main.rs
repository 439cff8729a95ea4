//! The `weft` command.
//!
//! What happens from the command line to the exit code, and where it is written:
//!
//! 1. `arguments` says which commands and options there are, and what a value may be.
//! 2. `bench` and `check` are the commands, and `durable` has those for databases in a directory: `log`, `recover` and
//!    `export`. The harness of `bench` is [`weft_bench`], which the laboratory's command shares.
//! 3. [`weft_bench::stop`] turns whatever ended a command early into a message and an exit code.
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
mod durable;

use std::process::ExitCode;

use clap::Parser;
use weft_bench::harness;

use arguments::{Arguments, Command, Workload};

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Bench { workload: Workload::Compare(arguments) } => {
            harness::compare::run(&arguments)
        }
        Command::Bench { workload: Workload::Tpcc(arguments) } => bench::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Log { command } => durable::log::run(&command),
        Command::Recover(arguments) => durable::recover::run(&arguments),
        Command::Export(arguments) => durable::export::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => stop.report(),
    }
}
