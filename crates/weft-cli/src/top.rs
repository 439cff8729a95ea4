//! `weft top`: starts `weft-top`, which is a program of its own, because its libraries would lengthen the first build of
//! `weft`.

use std::ffi::OsString;
use std::io;
use std::process::Command;

use clap::Args;
use weft_bench::stop::Stop;

/// The name of the program.
const PROGRAM: &str = "weft-top";

/// The options of `weft top`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct TopArguments {
    /// The address that the program gives to `weft_inspect::serve`, and options of weft-top: see `weft top --help`
    #[arg(value_name = "ADDRESS", required = true, num_args = 1.., allow_hyphen_values = true, trailing_var_arg = true)]
    arguments: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// If the program is missing or cannot be started.
pub fn run(arguments: &TopArguments) -> Result<(), Stop> {
    let beside = std::env::current_exe().ok();
    let beside = beside.map(|path| path.with_file_name(PROGRAM)).filter(|path| path.is_file());
    let program = beside.unwrap_or_else(|| PROGRAM.into());
    match Command::new(&program).args(&arguments.arguments).status() {
        // The program has said what is wrong.
        Ok(status) if !status.success() => std::process::exit(status.code().unwrap_or(1)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Stop::Failed(format!(
            "the program {PROGRAM} is neither beside this one nor in PATH; build it with `cargo build --release \
             --package {PROGRAM}`, or use `cargo top ADDRESS`"
        ))),
        Err(error) => Err(Stop::Failed(format!("cannot start {}: {error}", program.display()))),
    }
}
