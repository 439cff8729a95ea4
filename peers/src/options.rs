//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::systems::{System, WorkloadName};

/// Measures Weft beside systems that you could use instead, and prints a table of their speeds.
///
/// Every system keeps the same rows in memory, runs the same transactions with the same number of threads, is
/// serializable, and writes nothing to a disk. The systems take turns in every round, so that whatever slows the
/// machine down slows all of them. At the end the rows of each system are checked: if a sum is wrong, the program
/// ends with an error.
///
/// A figure is the median of the rounds in which no other process computed. For a good table, close other programs
/// and use the default options. peers/README.md says what is compared and how to read it.
#[derive(Clone, Debug, Parser)]
#[command(name = "weft-peers", version, after_help = EXAMPLES)]
pub struct Options {
    /// The length of a round, in seconds; a fifth of it is added as a warm-up
    #[arg(long, default_value = "0.5", value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Duration,

    /// The number of rounds of each system under each workload
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// The numbers of threads, separated by commas [default: 1 and the number of processors, at least 2]
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", value_parser = threads)]
    pub threads: Vec<usize>,

    /// Measures these systems only, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub only: Vec<System>,

    /// Measures these workloads, separated by commas [default: counter, transfers, reads]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub workloads: Vec<WorkloadName>,

    /// Writes all rounds to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Replaces the table in README.md of the repository's root
    #[arg(long, conflicts_with_all = ["only", "workloads"])]
    pub readme: bool,

    /// Measures orders of the web shop in examples/shop instead, on Weft, redb and SQLite: in memory, logged (acknowledged
    /// before they are on the disk) and durable
    #[arg(long, conflicts_with_all = ["only", "workloads", "json", "readme"])]
    pub orders: bool,

    /// The directory in which orders are stored
    #[arg(long, value_name = "DIRECTORY", default_value = "/tmp", requires = "orders")]
    pub directory: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  cargo run --release --manifest-path peers/Cargo.toml
      the whole table, in less than three minutes
  cargo run --release --manifest-path peers/Cargo.toml -- --only weft,lmdb --threads 2
      two systems, with two threads
  cargo run --release --manifest-path peers/Cargo.toml -- --workloads rmw,like,ycsb-a,ycsb-b,incr0,incr50
      the rivals' loops: single operations on a million rows
  cargo run --release --manifest-path peers/Cargo.toml -- --orders --rounds 3
      orders of the web shop, in two minutes
  cargo run --release --manifest-path peers/Cargo.toml -- --seconds 0.05 --rounds 1
      a few seconds: shows that everything works, and no useful figures";

impl Options {
    /// Returns the numbers of threads, or the default for a machine with this number of processors.
    pub fn threads(&self, processors: usize) -> Vec<usize> {
        if self.threads.is_empty() { vec![1, processors.max(2)] } else { self.threads.clone() }
    }

    /// Returns the workloads that are measured.
    pub fn workloads(&self) -> &[WorkloadName] {
        if self.workloads.is_empty() { &WorkloadName::TABLE } else { &self.workloads }
    }

    /// Returns whether a system is measured under a workload.
    pub fn include(&self, system: System, workload: WorkloadName) -> bool {
        (self.only.is_empty() || self.only.contains(&system)) && system.runs(workload)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=3_600.0).contains(seconds));
    let seconds = seconds.ok_or("give a number of seconds from 0.001 to 3600, such as 0.5")?;
    Ok(Duration::from_secs_f64(seconds))
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| (1..=1_024).contains(threads));
    threads.ok_or_else(|| "give a number of threads from 1 to 1024".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn options_are_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn default_is_one_thread_and_all_processors() {
        let options = Options::parse_from(["weft-peers"]);
        assert_eq!(options.threads(1), [1, 2]);
        assert_eq!(options.threads(16), [1, 16]);
        assert_eq!(Options::parse_from(["weft-peers", "--threads", "3"]).threads(16), [3]);
    }

    #[test]
    fn doppel_is_measured_with_the_hot_counter_only() {
        let options = Options::parse_from(["weft-peers"]);
        assert!(options.include(System::Doppel, WorkloadName::Counter));
        assert!(!options.include(System::Doppel, WorkloadName::Reads));
    }

    #[test]
    fn only_selects_systems_and_keeps_the_readme_as_it_is() {
        let options = Options::parse_from(["weft-peers", "--only", "weft,redb"]);
        assert!(options.include(System::Redb, WorkloadName::Transfers));
        assert!(!options.include(System::Lmdb, WorkloadName::Transfers));
        assert!(Options::try_parse_from(["weft-peers", "--only", "weft", "--readme"]).is_err());
        assert!(Options::try_parse_from(["weft-peers", "--seconds", "0"]).is_err());
        assert!(Options::try_parse_from(["weft-peers", "--threads", "0"]).is_err());
    }
}
