//! The reasons for which a command ends early, and their exit codes.

use std::io::{self, Write};
use std::process::ExitCode;

use weft::durability::StorageError;

/// The reason for which a command ended early, or for which its result is a failure.
#[derive(Debug)]
pub enum Stop {
    /// The arguments ask for something impossible. The exit code is 2, as for the errors that clap finds. The text
    /// says what is allowed.
    Usage(String),
    /// The command ran and failed. The exit code is 1.
    Failed(String),
    /// The reader of standard output closed it, as `head` does. There is no message, and the exit code is 0.
    ReaderGone,
}

impl Stop {
    /// Prints the message, and returns the exit code of the process.
    pub fn report(self) -> ExitCode {
        let (message, hint, code) = match self {
            Stop::Usage(message) => (message, "\n\nFor more information, try '--help'.", 2),
            Stop::Failed(message) => (message, "", 1),
            Stop::ReaderGone => return ExitCode::SUCCESS,
        };
        // Standard error may be closed, too; the exit code remains.
        let _ = writeln!(io::stderr(), "error: {message}{hint}");
        ExitCode::from(code)
    }
}

/// Converts an error in writing to standard output.
impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Stop::ReaderGone,
            _ => Stop::Failed(format!("cannot write to standard output: {error}")),
        }
    }
}

/// Converts an error of the database's files. If another directory, epoch or time could succeed, the arguments are
/// wrong; if the files are damaged, the command has failed.
impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Stop {
        let message = match &error {
            StorageError::DiskFull { path } => {
                let path = path.display();
                format!(
                    "no space left on the disk for {path}; free some, and run the command again"
                )
            }
            error => error.to_string(),
        };
        match error {
            StorageError::NotADatabase { .. }
            | StorageError::AlreadyOpen { .. }
            | StorageError::EpochUnavailable { .. }
            | StorageError::Io { .. } => Stop::Usage(message),
            _ => Stop::Failed(message),
        }
    }
}
