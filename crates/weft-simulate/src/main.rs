//! `cargo simulate`: the workloads of `weft bench` on the simulated machine of `weft-sim`, in virtual
//! time.
//!
//! It is a program of its own, since it needs another build of the engine: that whose words and regions
//! belong to the simulated machine (`--cfg weft_sim`). `.cargo/config.toml` has the alias that builds and
//! runs it, in a directory of its own.
//!
//! - `arguments` says what can be asked for.
//! - `simulation` loads a database, runs it on so many virtual cores, and counts.
//! - `report` shows what came out, as a table and as JSON. Every figure is marked as simulated.

#[cfg(weft_sim)]
mod arguments;
#[cfg(weft_sim)]
mod report;
#[cfg(weft_sim)]
mod simulation;

use std::process::ExitCode;

#[cfg(weft_sim)]
fn main() -> ExitCode {
    use clap::Parser;

    match simulation::run(&arguments::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(weft_sim))]
fn main() -> ExitCode {
    eprintln!("error: this build has no simulated machine; run `cargo simulate` instead");
    ExitCode::from(2)
}
