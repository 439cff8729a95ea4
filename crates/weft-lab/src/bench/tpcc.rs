//! `cargo lab bench tpcc`: TPC-C under every protocol.

use weft_bench::harness::contender::{Contender, load_under};
use weft_bench::stop::Stop;
use weft_bench::tpcc::TpccArguments;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::tpcc::{Parameters, Tpcc};

/// Runs the command.
///
/// # Errors
/// See [`weft_bench::harness::run`].
pub fn run(arguments: &TpccArguments) -> Result<(), Stop> {
    weft_bench::tpcc::run(arguments, load)
}

fn load(
    protocol: &str,
    parameters: &Parameters,
    options: &LoadOptions<'_>,
) -> Option<Result<Box<dyn Contender>, Stop>> {
    with_protocol!(protocol, |P| load_under::<P, Tpcc<P>, 1>(parameters, options))
}
