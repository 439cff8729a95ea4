//! `weft bench`: TPC-C under the protocols that an application may choose.

use weft::protocol::{Dbx, Protocol, Silo, TwoPhaseLocking};
use weft_bench::harness::contender::{Contender, load_under};
use weft_bench::stop::Stop;
use weft_bench::tpcc::TpccArguments;
use weft_workloads::LoadOptions;
use weft_workloads::tpcc::{Parameters, Tpcc};

/// The protocols of the `weft` command. `weft-lab` has the others.
pub const PROTOCOLS: &[&str] = &[Dbx::NAME, Silo::NAME, TwoPhaseLocking::NAME];

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
    match protocol {
        Dbx::NAME => Some(load_under::<Dbx, Tpcc<Dbx>, 1>(parameters, options)),
        Silo::NAME => Some(load_under::<Silo, Tpcc<Silo>, 1>(parameters, options)),
        TwoPhaseLocking::NAME => {
            Some(load_under::<TwoPhaseLocking, Tpcc<TwoPhaseLocking>, 1>(parameters, options))
        }
        _ => None,
    }
}
