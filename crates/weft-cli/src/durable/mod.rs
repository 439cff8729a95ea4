//! The commands for databases that live in a directory: `weft log`, `weft recover`, `weft export`, `weft import`,
//! `weft dump`, `weft restore`, `weft schema`.
//!
//! No command needs the program that defines the rows. The database stores descriptions of its tables beside the
//! rows ([`weft::description`]). They are enough to check each row, to sort rows by key, and to write them in other
//! formats.
//!
//! 1. `log` looks at what the directory holds.
//! 2. `recover` does what opening the database would do: in memory, for good, or into a backup.
//! 3. `export` recovers one table and writes it as a file for other programs.
//! 4. `import` does the reverse: it writes the rows of a file into the log.
//! 5. `dump` writes a whole database as one portable file, and restores it.
//! 6. `schema` shows the tables, and compares them with those of another version of the program.
//!
//! They share `reading`, a recovery that changes nothing and works while the database is open. `table` sorts
//! recovered rows. `partial_file` is a file that appears once it is complete. `report` formats files, cuts and problems.

pub mod dump;
pub mod export;
pub mod import;
pub mod log;
mod partial_file;
mod reading;
pub mod recover;
mod report;
pub mod schema;
mod table;

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::Args;
use weft::durability::{Phase, RecoveryProgress};

use weft_bench::progress::Progress;
use weft_bench::stop::Stop;
use weft_options::values::{Parser, whole_number};

/// The most threads that `--threads` accepts.
const THREADS_MAX: u64 = 1024;

/// The arguments that all these commands take.
#[derive(Args, Debug)]
pub struct DirectoryArguments {
    /// The database's directory; it contains a file MANIFEST
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Threads that read files and apply rows [default: the number of cores]
    #[arg(long, short, value_name = "N", value_parser = whole_number::<usize>(1..=THREADS_MAX), allow_negative_numbers = true)]
    threads: Option<usize>,
}

impl DirectoryArguments {
    /// Returns the directory.
    ///
    /// # Errors
    /// The directory does not exist.
    fn directory(&self) -> Result<&Path, Stop> {
        match self.directory.is_dir() {
            true => Ok(&self.directory),
            false => {
                let directory = self.directory.display();
                Err(Stop::Usage(format!("there is no directory {directory}")))
            }
        }
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        self.threads.unwrap_or_else(cores)
    }
}

/// Returns a parser of epochs.
fn epoch() -> impl Parser<u64> {
    whole_number(0..=u64::MAX)
}

/// Returns an error if `path`, which is about to be written, lies in the database's directory.
fn expect_outside(path: &Path, directory: &Path) -> Result<(), Stop> {
    // A path that cannot be resolved here is left to the caller: creating the file will report the error.
    let absolute = |path: &Path| path.canonicalize().ok();
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let place = absolute(path).or_else(|| absolute(parent));
    match (place, absolute(directory)) {
        (Some(place), Some(directory)) if place.starts_with(&directory) => {
            let (path, directory) = (path.display(), directory.display());
            Err(Stop::Usage(format!("{path} lies in the database's directory, {directory}")))
        }
        _ => Ok(()),
    }
}

/// Shows how far a recovery has come.
fn show_recovery(progress: &Progress, recovery: RecoveryProgress) {
    if progress.is_shown() {
        progress.set_label(match recovery.phase {
            Phase::ReadLog => "reading the log",
            Phase::LoadCheckpoint => "loading the checkpoint",
            Phase::Replay => "replaying the log",
            Phase::BuildIndexes => "building indexes",
        });
        progress.set(recovery.done, recovery.total);
    }
}
