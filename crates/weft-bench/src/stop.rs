//! Why a command ends early, and with which exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use weft::durability::StorageError;

/// What ended a command before it was done, or made its result a failure.
#[derive(Debug)]
pub enum Stop {
    /// The arguments ask for something that cannot be had: exit code 2, the one that clap uses for
    /// the errors that it finds itself. The text says what is allowed.
    Usage(String),
    /// The command ran and failed: exit code 1.
    Failed(String),
    /// The reader of standard output went away, as `head` does: nothing more to say, exit code 0.
    ReaderGone,
}

impl Stop {
    /// Tells the user, and returns the exit code of the process.
    pub fn report(self) -> ExitCode {
        let (message, hint, code) = match self {
            Stop::Usage(message) => (message, "\n\nFor more information, try '--help'.", 2),
            Stop::Failed(message) => (message, "", 1),
            Stop::ReaderGone => return ExitCode::SUCCESS,
        };
        // Standard error may be closed too. The exit code still tells.
        let _ = writeln!(io::stderr(), "error: {message}{hint}");
        ExitCode::from(code)
    }
}

/// An error of writing to standard output.
impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Stop::ReaderGone,
            _ => Stop::Failed(format!("cannot write to standard output: {error}")),
        }
    }
}

/// An error of the database's files, as what ends a command: what could be had from another
/// directory, or at another time, is an argument's fault; what is wrong with the files is not.
impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Stop {
        let message = error.to_string();
        match error {
            StorageError::NotADatabase { .. }
            | StorageError::AlreadyOpen { .. }
            | StorageError::EpochUnavailable { .. }
            | StorageError::Io { .. } => Stop::Usage(message),
            _ => Stop::Failed(message),
        }
    }
}
