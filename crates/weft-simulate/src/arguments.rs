//! What can be asked for.

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use weft::protocol::NAMES;
use weft_sim::PROFILES;
use weft_workloads::{tpcc, ycsb};

/// Weft's workloads on a simulated machine: shapes and ratios for machines that you do not have
///
/// All figures are simulated: the engine's own code runs on virtual cores in virtual time, with a model
/// of caches, coherence and RTM. The same arguments give the same figures, to the last bit.
#[derive(Debug, Parser)]
#[command(name = "cargo simulate", max_term_width = 100)]
pub struct Arguments {
    /// What to run.
    #[command(subcommand)]
    pub workload: Workload,
}

/// The workloads.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// TPC-C: orders, payments and deliveries of a wholesaler with W warehouses
    Tpcc(Tpcc),
    /// YCSB: single rows of 100 bytes in a B+-tree, read, modified, inserted and scanned
    Ycsb(Ycsb),
}

/// TPC-C.
#[derive(Args, Debug)]
pub struct Tpcc {
    /// Size of the database [default: as many as cores]
    #[arg(long, short, value_name = "W", value_parser = clap::value_parser!(u16).range(1..))]
    pub warehouses: Option<u16>,
    /// Transactions to draw from: standard, the name of one type, or five weights
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS", default_value_t = tpcc::Mix::STANDARD)]
    pub mix: tpcc::Mix,
    /// Rows per warehouse; `tiny` loads at once
    #[arg(long, value_enum, default_value_t = Scale::Specification)]
    pub scale: Scale,
    /// How to simulate.
    #[command(flatten)]
    pub common: Common,
}

/// Sizes of TPC-C.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Scale {
    /// That of the specification
    Specification,
    /// As small as it can be
    Tiny,
}

impl Scale {
    /// The workload's name for it.
    pub fn scale(self) -> tpcc::Scale {
        match self {
            Scale::Specification => tpcc::Scale::SPECIFICATION,
            Scale::Tiny => tpcc::Scale::TINY,
        }
    }
}

/// YCSB.
#[derive(Args, Debug)]
pub struct Ycsb {
    /// Rows that are loaded
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..=ycsb::RECORDS_MAX))]
    pub records: u64,
    /// Reads, read-modify-writes, insertions and scans, in percent
    #[arg(long, value_name = "R,W,I,S", value_parser = mix, default_value = "80,20,0,0")]
    pub mix: ycsb::Mix,
    /// How uneven popularity is: 0, all rows alike, to 2
    #[arg(long, value_name = "THETA", default_value_t = 0.0, value_parser = theta)]
    pub theta: f64,
    /// Operations in one transaction
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub operations: u32,
    /// How to simulate.
    #[command(flatten)]
    pub common: Common,
}

/// What every simulation has.
#[derive(Args, Debug)]
pub struct Common {
    /// Protocols, separated by commas
    #[arg(long, short, value_name = "NAME,…", value_delimiter = ',', default_value = "dbx",
          value_parser = PossibleValuesParser::new(NAMES))]
    pub protocol: Vec<String>,
    /// Numbers of virtual cores, separated by commas
    #[arg(long, short, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8")]
    pub cores: Vec<usize>,
    /// The machine
    #[arg(long, value_name = "PROFILE", default_value = PROFILES[0].name,
          value_parser = PossibleValuesParser::new(PROFILES.iter().map(|profile| profile.name)))]
    pub machine: String,
    /// Regions in the machine's RTM, if it has any, or software twins only
    #[arg(long, value_enum, default_value_t = Regions::Rtm)]
    pub htm: Regions,
    /// Virtual time that is measured
    #[arg(long, value_name = "MS", default_value_t = 4.0, value_parser = milliseconds)]
    pub milliseconds: f64,
    /// Virtual time before that, in which the caches warm up
    #[arg(long, value_name = "MS", default_value_t = 1.0, value_parser = milliseconds)]
    pub warmup: f64,
    /// Decides the rows, the clients' choices, and all that the machine leaves to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Check the workload's invariants on every database
    #[arg(long)]
    pub verify: bool,
    /// Write the results as JSON to this file, or with `-` to standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
}

/// What runs regions.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Regions {
    /// The simulated machine's RTM
    Rtm,
    /// Software twins
    None,
}

fn mix(text: &str) -> Result<ycsb::Mix, String> {
    let shares: Result<Vec<u8>, _> = text.split(',').map(str::parse).collect();
    let shares: Option<[u8; 4]> = shares.ok().and_then(|shares| shares.try_into().ok());
    let mix = shares.and_then(ycsb::Mix::new);
    mix.ok_or_else(|| "expected four percentages that add up to 100".to_owned())
}

fn theta(text: &str) -> Result<f64, String> {
    let theta = text.parse().ok().filter(|theta| (0.0..=2.0).contains(theta));
    theta.ok_or_else(|| "expected a number from 0 to 2".to_owned())
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let span = text.parse().ok().filter(|span| (0.0..=60_000.0).contains(span));
    span.ok_or_else(|| "expected a number of milliseconds from 0 to 60000".to_owned())
}
