//! The options that every benchmark has. A check of one value alone happens here, before anything runs. The harness
//! checks what depends on several options.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use weft::{Acknowledge, DurabilityOptions};
use weft_options::values::{
    SEED_DEFAULT, milliseconds, paper_mechanisms, protocol_names, seconds_or_zero,
    seconds_positive, seed, whole_number,
};

use crate::harness::timeline;

/// The most threads: as many as a database has slots for workers, less one for the thread that loads and verifies.
const THREADS_MAX: u64 = weft::WORKERS_MAX_DEFAULT as u64 - 1;

/// The largest value of `--conflict-retries` and of `--capacity-retries`.
const RETRIES_MAX: u64 = 1_000_000;

/// The options that every benchmark has.
#[derive(Args, Clone, Debug)]
pub struct BenchArguments {
    /// Protocols to measure, separated by commas
    ///
    /// Several protocols take turns, round by round (A B A B …), so that other load on the machine affects all of
    /// them equally. Each protocol has a database of its own for the whole run, loaded once, so all databases must
    /// fit in memory together. Name a protocol twice to see how much two measurements of the same thing differ.
    #[arg(long, short, value_name = "NAME,…", value_delimiter = ',', default_value = "dbx",
          value_parser = protocol_names())]
    pub protocol: Vec<String>,

    /// Tables whose records are hot under `htcc:tables-hot` and `htcc:paper`, separated by commas
    #[arg(long, value_name = "TABLE,…", value_delimiter = ',')]
    pub hot_tables: Vec<String>,

    /// Mechanisms that variants `NAME:paper` have, separated by commas [default: all of the paper's]
    ///
    /// With `no-` before each name: all mechanisms but these.
    #[arg(long, value_name = "MECHANISM,…", value_delimiter = ',', value_parser = paper_mechanisms())]
    pub paper: Vec<String>,

    /// Threads that run transactions, each pinned to a core if there are enough cores
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = whole_number::<usize>(1..=THREADS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub threads: usize,

    /// Length of one measured round of one protocol, in seconds
    #[arg(long, value_name = "S", default_value = "4", value_parser = seconds_positive)]
    #[arg(allow_negative_numbers = true)]
    pub seconds: f64,

    /// Unmeasured time before every round, in seconds, for caches to warm up; may be 0
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

    /// Hardware transactional memory: use it if it works, require it, or use the software twins
    ///
    /// `auto` uses hardware regions if they work. `rtm` refuses to run if they do not. `software` always runs the
    /// software twins. Without this option the environment variable WEFT_HTM decides; without both, each protocol uses
    /// its default: hardware regions for those that are something else without them (such as htm-naive), and otherwise
    /// software twins, which are faster.
    #[arg(long, value_name = "auto|rtm|software", value_parser = htm_choices())]
    pub htm: Option<weft::htm::Choice>,

    /// Number of conflicts after which a hardware region gives up and its software twin runs [default: 8]
    ///
    /// This is the papers' restart threshold. Software twins have no such limit.
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(0..=RETRIES_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub conflict_retries: Option<u32>,

    /// Number of times that a hardware region is too large for the caches, after which its software twin runs
    /// [default: 10]
    ///
    /// With 1, a region that does not fit is not tried again.
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(0..=RETRIES_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub capacity_retries: Option<u32>,

    /// Let commits go by whole rows, also where transactions name the columns that they use
    ///
    /// By default a transaction under an optimistic protocol commits although others have changed its rows, if they have
    /// changed other columns, or the same ones by operations that commute. The papers' systems know no columns.
    #[arg(long)]
    pub by_rows: bool,

    /// Memory that every database allocates and touches before it is loaded, in MiB
    ///
    /// The operating system does work at the first use of a page; in a virtual machine this can take longer than
    /// the transaction that needs the page. A reserve that covers the growth (a kilobyte per transaction of TPC-C's
    /// standard mix) moves this work out of the measured rounds.
    #[arg(long, value_name = "MIB", default_value_t = 0, value_parser = whole_number::<usize>(0..=1 << 24))]
    #[arg(allow_negative_numbers = true)]
    pub reserve_mib: usize,

    /// Length of the phases of `doppel` and `doppel-2pl`, in milliseconds [default: 20]
    ///
    /// A transaction that reads a split record waits until the phase ends. So short phases keep latencies low. Long
    /// phases have fewer phase changes, in which nothing runs. Other protocols have no phases.
    #[arg(long, value_name = "MS", value_parser = milliseconds())]
    #[arg(allow_negative_numbers = true)]
    pub phase_length: Option<f64>,

    /// Check the workload's invariants on every database after the last round
    ///
    /// If an invariant does not hold, both its sides are printed, and the exit code is 1.
    #[arg(long)]
    pub verify: bool,

    /// Observe the databases, and print at the end where transactions conflicted, and what to change
    ///
    /// The report also has counts and latencies by transaction. With `--contention=off,on` an observed database takes
    /// turns with one that is not, which shows what observing costs.
    #[arg(long, value_name = "off|on,…", value_delimiter = ',', num_args = 0..=1, require_equals = true,
          default_value = "off", default_missing_value = "on")]
    pub contention: Vec<Observation>,

    /// Keep the databases in DIR, with a log, instead of only in memory
    ///
    /// Each database has a subdirectory of its own, which is removed at the end. The load ends with a checkpoint.
    /// No checkpoint is written after that, so the log takes space until the end of the run.
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,

    /// When commits return; several values take turns, and `memory` does not use the directory
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

    /// The longest time between two epochs; each epoch in which something was written costs a sync
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = whole_number::<u64>(1..=10_000),
          requires = "directory")]
    #[arg(allow_negative_numbers = true)]
    pub epoch_interval_ms: u64,

    /// Write the results as JSON to this file; `-` prints JSON instead of the report
    ///
    /// The JSON is an array with one object per database. A path that cannot be written is rejected before the run.
    /// An existing file keeps its content until the results are there.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write throughput over time, ten times a second: as JSON, or as a picture if FILE ends in `.svg`
    ///
    /// The picture has a panel for each database, which shows its rounds side by side. Give the option twice to get
    /// both.
    #[arg(long, value_name = "FILE", value_parser = timeline::file)]
    pub timeline: Vec<PathBuf>,
}

impl BenchArguments {
    /// Returns the length of phases, if `--phase-length` was given.
    pub fn phase_length(&self) -> Option<Duration> {
        self.phase_length.map(|milliseconds| Duration::from_secs_f64(milliseconds / 1e3))
    }

    /// Returns when the databases acknowledge commits, in turns.
    pub fn acknowledges(&self) -> &[AcknowledgeName] {
        if self.directory.is_some() { &self.acknowledge } else { &[AcknowledgeName::Memory] }
    }

    /// Returns the durability options of a database with a directory.
    pub fn durability(&self, acknowledge: Acknowledge) -> DurabilityOptions {
        DurabilityOptions::new()
            .acknowledge(acknowledge)
            .loggers(self.loggers)
            .epoch_interval(Duration::from_millis(self.epoch_interval_ms))
            .checkpoint_log_bytes(None)
            .threads(self.threads)
    }
}

/// Whether a database is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Observation {
    /// It is not
    Off,
    /// It is, and the report has a part on contention
    On,
}

/// When a commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AcknowledgeName {
    /// When it is durable, so that it survives any crash
    Durable,
    /// When it has committed in memory; it becomes durable soon after
    Committed,
    /// When it has committed in memory; there is no log, so it never becomes durable
    Memory,
}

impl AcknowledgeName {
    /// Returns the name on the command line and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            AcknowledgeName::Durable => "durable",
            AcknowledgeName::Committed => "committed",
            AcknowledgeName::Memory => "memory",
        }
    }

    /// Returns the engine's name for it; `None` without a log.
    pub fn mode(self) -> Option<Acknowledge> {
        match self {
            AcknowledgeName::Durable => Some(Acknowledge::Durable),
            AcknowledgeName::Committed => Some(Acknowledge::Committed),
            AcknowledgeName::Memory => None,
        }
    }
}

/// Returns a parser of the choices of an HTM backend.
fn htm_choices() -> impl TypedValueParser<Value = weft::htm::Choice> {
    PossibleValuesParser::new(["auto", "rtm", "software"])
        .try_map(|text| text.parse::<weft::htm::Choice>())
}
