//! Commands that are programs of their own, so that this one stays small: `weft serve` is `weft-server`, and `weft top` is
//! `weft-top`.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use weft_bench::stop::Stop;

/// The arguments of a command that is a program of its own.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct ProgramArguments {
    /// Arguments of the program, such as --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Runs a program in place of this process. It is looked for beside this program, and then in `PATH`.
///
/// # Errors
/// It is not there, or cannot be started.
pub fn run(name: &str, arguments: &ProgramArguments) -> Result<(), Stop> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(name));
    let program = beside.filter(|program| program.is_file()).unwrap_or_else(|| PathBuf::from(name));
    let error = Command::new(&program).args(&arguments.arguments).exec();
    Err(Stop::Failed(match error.kind() {
        ErrorKind::NotFound => format!(
            "the program {name} is neither beside this one nor in PATH; build it with `cargo build --release --package \
             {name}`, or install it with `cargo install --path crates/{name}`"
        ),
        _ => format!("cannot start {}: {error}", program.display()),
    }))
}
