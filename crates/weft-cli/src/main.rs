//! The `weft` command.
//!
//! From the command line to the exit code:
//!
//! 1. `arguments` defines the commands, their options, and the values that each option accepts.
//! 2. `bench` and `check` implement the commands of these names. `durable` implements the commands for databases in
//!    a directory: `log`, `recover`, `export`, `import`, `dump`, `restore` and `schema`. `serve` and `top` start programs of
//!    their own, and `report` reads what a flight recorder has recorded. The harness of `bench` is [`weft_bench`], which
//!    `weft-lab` shares.
//! 3. [`weft_bench::stop`] turns the reason that ended a command early into a message and an exit code.
//!
//! Results go to standard output. Progress and messages go to standard error; progress is shown only if standard
//! error is a terminal. Only the help and the messages about wrong arguments are coloured, and only on a terminal.
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | success, or the reader of the output closed it |
//! | 1 | the engine failed, a worker thread panicked, a verification or check failed, or a database is damaged |
//! | 2 | the arguments ask for something impossible, or name a file that cannot be read |

mod arguments;
mod bench;
mod check;
mod durable;
mod program;
mod report;

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
        Command::Import(arguments) => durable::import::run(&arguments),
        Command::Dump(arguments) => durable::dump::run(&arguments),
        Command::Restore(arguments) => durable::dump::run_restore(&arguments),
        Command::Top(arguments) => program::run("weft-top", &arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Schema { command } => durable::schema::run(&command),
        Command::Serve(arguments) => program::run("weft-server", &arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => stop.report(),
    }
}
