//! `cargo simulate`: the workloads of `cargo lab bench` on the simulated machine of `weft-sim`, in virtual
//! time.
//!
//! It is a separate program, because it needs another build of the engine, whose words and regions belong to
//! the simulated machine (`--cfg weft_sim`). `.cargo/config.toml` has the alias that builds and runs it, with a
//! build directory of its own.
//!
//! - `arguments` defines the command line.
//! - `workloads` has a file for each workload: its options, and how it is loaded.
//! - `simulation` runs the loaded workload on virtual cores, and counts.
//! - `report` shows the results, as a table and as JSON. Every figure is marked as simulated.
//! - `progress` shows progress to a user who waits.
//! - `rtm` measures hardware regions alone, and has a table of its own.

#[cfg(weft_sim)]
mod arguments;
#[cfg(weft_sim)]
mod progress;
#[cfg(weft_sim)]
mod report;
#[cfg(weft_sim)]
mod rtm;
#[cfg(weft_sim)]
mod simulation;
#[cfg(weft_sim)]
mod workloads;

use std::process::ExitCode;

#[cfg(weft_sim)]
fn main() -> ExitCode {
    use arguments::{Arguments, Workload};
    use clap::Parser;

    let outcome = match Arguments::parse().workload {
        Workload::Articles(articles) => simulation::run(&articles),
        Workload::Bank(bank) => simulation::run(&bank),
        Workload::FlashSale(sale) => simulation::run(&sale),
        Workload::Incr(incr) => simulation::run(&incr),
        Workload::Like(like) => simulation::run(&like),
        Workload::Locks(locks) => simulation::run(&locks),
        Workload::Mixture(mixture) => simulation::run(&mixture),
        Workload::Queue(queue) => simulation::run(&queue),
        Workload::Rtm(rtm) => rtm::run(&rtm),
        Workload::Rubis(rubis) => simulation::run(&rubis),
        Workload::Shift(shift) => simulation::run(&shift),
        Workload::Tatp(tatp) => simulation::run(&tatp),
        Workload::Tpcc(tpcc) => simulation::run(&tpcc),
        Workload::Ycsb(ycsb) => simulation::run(&ycsb),
    };
    match outcome {
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
