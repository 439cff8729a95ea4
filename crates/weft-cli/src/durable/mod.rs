//! The commands for databases that live in a directory: `weft log`, `weft recover`, `weft export`.
//!
//! None of them needs the program whose rows they are. What the rows consist of is stored beside
//! them, as descriptions of the tables ([`weft::description`]): enough to check each row, to bring
//! rows into the order of their keys, and to write them in other formats.
//!
//! 1. `log` looks at what is there.
//! 2. `recover` does what opening the database would do, in memory or for good, or writes what it
//!    has recovered as a backup.
//! 3. `export` recovers one table and writes it as a file for other programs.
//!
//! `reading` is what they share: a recovery that changes nothing, while the database may be open.
//! `table` keeps recovered rows; `report` is how files, cuts and problems are printed.

pub mod export;
pub mod log;
mod reading;
pub mod recover;
mod report;
mod table;

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::Args;
use weft::durability::{Phase, RecoveryProgress};

use weft_bench::progress::Progress;
use weft_bench::stop::Stop;
use weft_options::values::{Parser, whole_number};

/// The most threads that may read.
const THREADS_MAX: u64 = 1024;

/// What all of the commands take.
#[derive(Args, Debug)]
pub struct DirectoryArguments {
    /// The database's directory, with its MANIFEST
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Threads that read files and apply rows [default: as many as there are cores]
    #[arg(long, short, value_name = "N", value_parser = whole_number::<usize>(1..=THREADS_MAX), allow_negative_numbers = true)]
    threads: Option<usize>,
}

impl DirectoryArguments {
    /// The directory.
    ///
    /// # Errors
    /// There is none.
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

/// Accepts an epoch.
fn epoch() -> impl Parser<u64> {
    whole_number(0..=u64::MAX)
}

/// Makes sure that `path`, which is going to be written, does not lie in the database's directory.
fn expect_outside(path: &Path, directory: &Path) -> Result<(), Stop> {
    // What cannot be found out here, creating the file will find out.
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

/// Shows how far a recovery is.
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
