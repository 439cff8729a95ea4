//! The options of the experiments with locks, elided or not, under TATP's transactions.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, ValueEnum};
use weft_workloads::locks::{LockComparison, Parameters, Part, ProtectedStructure};
use weft_workloads::tatp::{Mix, SUBSCRIBERS_MAX};

use crate::protocols::LOCKS;
use crate::values::whole_number;
use crate::{Switch, popularity};

/// The options of the experiments with locks.
#[derive(Args, Clone, Debug)]
pub struct LocksOptions {
    /// What the locks protect
    #[arg(long, short, value_enum, default_value_t = WorkloadName::Getsubdata)]
    workload: WorkloadName,

    /// Elide the locks: `off`, `on`, or `off,on` to compare
    #[arg(long, value_name = "off|on", value_delimiter = ',', default_value = "off,on")]
    elide: Vec<Switch>,

    /// Probe the tree under one latch, with --workload manager
    #[arg(long)]
    coarse: bool,

    /// Parts of the storage manager to leave out, separated by commas, with --workload manager
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = part())]
    without: Vec<Part>,

    /// Size of what the locks protect
    #[arg(long, value_name = "N", default_value_t = Parameters::default().subscribers,
          value_parser = whole_number::<u32>(1..=SUBSCRIBERS_MAX.into()))]
    #[arg(allow_negative_numbers = true)]
    subscribers: u32,

    /// Share of transactions that update a row, in percent, with --workload getsubdata
    #[arg(long, value_name = "%", default_value_t = 0, value_parser = whole_number::<u8>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    updates: u8,

    /// Transactions of --workload manager: standard, the name of one type of TATP's, or seven weights
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS",
          default_value_t = Parameters::default().mix)]
    mix: Mix,

    /// How uneven popularity is, from 0 (all records alike) to 5, with --workload map
    #[arg(long, value_name = "THETA", default_value_t = 0.0, value_parser = popularity())]
    #[arg(allow_negative_numbers = true)]
    theta: f64,
}

/// Returns the parser for a part of the storage manager.
fn part() -> impl TypedValueParser<Value = Part> {
    let names = PossibleValuesParser::new(Part::ALL.map(Part::name));
    names.map(|name| Part::named(&name).expect("the parser accepts only names of parts"))
}

/// What the locks protect.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WorkloadName {
    /// Rows, under one lock
    Getsubdata,
    /// A B+-tree, under one coarse latch
    Probe,
    /// The parts of a storage manager, with the lock of each
    Manager,
    /// A hash map, under one lock for all of it if elided, otherwise under one for each record
    Map,
}

impl WorkloadName {
    fn protected(self) -> ProtectedStructure {
        match self {
            WorkloadName::Getsubdata => ProtectedStructure::Rows,
            WorkloadName::Probe => ProtectedStructure::Tree,
            WorkloadName::Manager => ProtectedStructure::Manager,
            WorkloadName::Map => ProtectedStructure::Map,
        }
    }
}

impl LocksOptions {
    /// Returns the comparison in which these locks take part.
    pub fn comparison(&self, locks: &[String]) -> LockComparison {
        let &LocksOptions { workload, coarse, subscribers, updates, mix, theta, .. } = self;
        LockComparison {
            protected: workload.protected(),
            locks: locks.to_vec(),
            elisions: self.elide.iter().map(|switch| switch.is_on()).collect(),
            is_coarse: coarse,
            absent: self.without.clone(),
            parameters: Parameters { subscribers, updates, mix, theta },
        }
    }
}

/// Turns the option for protocols into one for locks.
pub fn in_place_of_protocols(arg: Arg) -> Arg {
    let locks = LOCKS.iter().take(LockComparison::LOCKS.len());
    let names = locks.map(|lock| PossibleValue::new(lock.name).help(lock.title));
    arg.long("lock")
        .short('l')
        .default_value("occ_rwlock,tatas,mcs,srwlock")
        .value_parser(PossibleValuesParser::new(names))
        .help("Locks, separated by commas")
        .long_help(
            "Locks, separated by commas\n\nThey take turns, each with rows of its own. With --workload \
             manager, name the kinds to elide.",
        )
}
