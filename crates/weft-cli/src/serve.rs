//! `weft serve`: starts the program `weft-server`, which is a command of its own so that this one stays small.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use weft_bench::stop::Stop;

/// The arguments of `weft serve`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct ServeArguments {
    /// Arguments of `weft-server`, such as --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Runs the server in place of this process. It is looked for beside this program, and then in `PATH`.
///
/// # Errors
/// It is not there, or cannot be started.
pub fn run(arguments: &ServeArguments) -> Result<(), Stop> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(NAME));
    let program = beside.filter(|program| program.exists()).unwrap_or_else(|| PathBuf::from(NAME));
    let error = Command::new(&program).args(&arguments.arguments).exec();
    Err(Stop::Failed(match error.kind() {
        ErrorKind::NotFound => format!(
            "{NAME} is neither beside this program nor in PATH; build it with `cargo build --release -p {NAME}`, or \
             install it with `cargo install --path crates/{NAME}`"
        ),
        _ => format!("{}: {error}", program.display()),
    }))
}

const NAME: &str = "weft-server";
