//! The options that every benchmark has. Everything that can be said about one value
//! alone is checked here, before anything runs; what depends on several of them is checked by the harness.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use weft::{Acknowledge, DurabilityOptions};
use weft_options::values::{
    SEED_DEFAULT, milliseconds, protocol_names, seconds_or_zero, seconds_positive, seed,
    whole_number,
};

use crate::harness::timeline;

/// The most threads: as many as a database has places for, less the one that loads and verifies.
const THREADS_MAX: u64 = weft::WORKERS_MAX_DEFAULT as u64 - 1;

/// The most conflicts that a region survives.
const CONFLICT_RETRIES_MAX: u64 = 1_000_000;

/// The options that every benchmark has.
#[derive(Args, Clone, Debug)]
pub struct BenchArguments {
    /// Protocols to measure, separated by commas
    ///
    /// Several take turns, round by round (A B A B …), so that whatever else the machine does hits
    /// all of them alike. Each keeps a database of its own for the whole call, loaded once, so all
    /// of them must fit in memory together. Name a protocol twice to see how far two measurements
    /// of the very same thing lie apart.
    #[arg(long, short, value_name = "NAME,…", value_delimiter = ',', default_value = "dbx",
          value_parser = protocol_names())]
    pub protocol: Vec<String>,

    /// Tables whose records are hot under `htcc:tables-hot`, separated by commas
    #[arg(long, value_name = "TABLE,…", value_delimiter = ',')]
    pub hot_tables: Vec<String>,

    /// Threads that run transactions, each pinned to a core where there are enough
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = whole_number::<usize>(1..=THREADS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub threads: usize,

    /// Length of one measured round of one protocol
    #[arg(long, value_name = "S", default_value = "4", value_parser = seconds_positive)]
    #[arg(allow_negative_numbers = true)]
    pub seconds: f64,

    /// Unmeasured time before every round, in which caches warm up; may be 0
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds_or_zero())]
    #[arg(allow_negative_numbers = true)]
    pub warmup: f64,

    /// Rounds per protocol; the result is their median
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = whole_number::<u64>(1..=1000))]
    #[arg(allow_negative_numbers = true)]
    pub rounds: u64,

    /// Seed of the rows and of the clients' choices, the same for every protocol
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT, value_parser = seed())]
    #[arg(allow_negative_numbers = true)]
    pub seed: u64,

    /// Hardware transactional memory: where it works, insist on it, or its software twins
    ///
    /// `auto` uses it where it works, `rtm` refuses to run where it does not, and `software` runs
    /// the software twins everywhere. Without the option the environment variable WEFT_HTM says it,
    /// else it is auto.
    #[arg(long, value_name = "auto|rtm|software", value_parser = htm_choices())]
    pub htm: Option<weft::htm::Choice>,

    /// At which conflict a hardware region gives up, and its software twin takes over [default: 8]
    ///
    /// It is the papers' restart threshold. Software twins have none.
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(0..=CONFLICT_RETRIES_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub conflict_retries: Option<u32>,

    /// Memory that every database takes and touches before it is loaded, in MiB
    ///
    /// A page's first use is the operating system's work, and in a virtual machine can take longer
    /// than the transaction that needs it. With a reserve that covers the growth (a kilobyte per
    /// transaction of TPC-C's standard mix) it falls outside of the measured rounds.
    #[arg(long, value_name = "MIB", default_value_t = 0, value_parser = whole_number::<usize>(0..=1 << 24))]
    #[arg(allow_negative_numbers = true)]
    pub reserve_mib: usize,

    /// How long the phases of `doppel` and `doppel-2pl` last [default: 20]
    ///
    /// What is read of a split record waits until the phase ends. So short phases keep latencies low,
    /// and long ones have fewer changes in which nothing runs. Other protocols have no phases.
    #[arg(long, value_name = "MS", value_parser = milliseconds())]
    #[arg(allow_negative_numbers = true)]
    pub phase_length: Option<f64>,

    /// Check the workload's invariants on every database after the last round
    ///
    /// If one does not hold, it is named with both its sides, and the exit code is 1.
    #[arg(long)]
    pub verify: bool,

    /// Keep the databases in DIR, with a log, instead of in memory alone
    ///
    /// Each has a subdirectory of its own, which is removed at the end. The load ends with a
    /// checkpoint; none is written after that, so the log takes space as long as the call runs.
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,

    /// When commits return; several values take turns, and `memory` among them has no directory
    #[arg(
        long,
        value_name = "WHEN,…",
        value_delimiter = ',',
        default_value = "durable",
        requires = "directory"
    )]
    pub acknowledge: Vec<AcknowledgeName>,

    /// Threads that write the log, each to files of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<usize>(1..=64),
          requires = "directory")]
    #[arg(allow_negative_numbers = true)]
    pub loggers: usize,

    /// The longest time from one epoch to the next; each that has written something costs a sync
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = whole_number::<u64>(1..=10_000),
          requires = "directory")]
    #[arg(allow_negative_numbers = true)]
    pub epoch_interval_ms: u64,

    /// Write the results as JSON too; `-`: to standard output, in place of the report
    ///
    /// An array with one object per database. A path that cannot be written is refused before the
    /// run, and an existing file keeps its content until the results are there.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write throughput over time, ten times a second: as JSON, or as a picture if FILE ends in `.svg`
    ///
    /// The picture has a panel for each database, in which its rounds stand side by side. The option
    /// may be given twice, once for each.
    #[arg(long, value_name = "FILE", value_parser = timeline::file)]
    pub timeline: Vec<PathBuf>,
}

impl BenchArguments {
    /// How long phases last, if that was said.
    pub fn phase_length(&self) -> Option<Duration> {
        self.phase_length.map(|milliseconds| Duration::from_secs_f64(milliseconds / 1e3))
    }

    /// By what the databases acknowledge commits, in turns.
    pub fn acknowledges(&self) -> &[AcknowledgeName] {
        if self.directory.is_some() { &self.acknowledge } else { &[AcknowledgeName::Memory] }
    }

    /// How a database keeps its data that has a directory.
    pub fn durability(&self, acknowledge: Acknowledge) -> DurabilityOptions {
        DurabilityOptions::new()
            .acknowledge(acknowledge)
            .loggers(self.loggers)
            .epoch_interval(Duration::from_millis(self.epoch_interval_ms))
            .checkpoint_log_bytes(None)
            .threads(self.threads)
    }
}

/// When a commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AcknowledgeName {
    /// When it survives any crash
    Durable,
    /// When it has committed in memory; it becomes durable soon after
    Committed,
    /// Likewise, and it never becomes durable: without a log
    Memory,
}

impl AcknowledgeName {
    /// As on the command line and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            AcknowledgeName::Durable => "durable",
            AcknowledgeName::Committed => "committed",
            AcknowledgeName::Memory => "memory",
        }
    }

    /// The engine's name for it; `None` without a log.
    pub fn mode(self) -> Option<Acknowledge> {
        match self {
            AcknowledgeName::Durable => Some(Acknowledge::Durable),
            AcknowledgeName::Committed => Some(Acknowledge::Committed),
            AcknowledgeName::Memory => None,
        }
    }
}

/// Accepts the ways to choose a backend.
fn htm_choices() -> impl TypedValueParser<Value = weft::htm::Choice> {
    PossibleValuesParser::new(["auto", "rtm", "software"])
        .try_map(|text| text.parse::<weft::htm::Choice>())
}
