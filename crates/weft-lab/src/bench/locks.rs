//! `cargo lab bench locks`: locks that hardware regions may elide, under TATP's transactions.
//!
//! What takes turns here is a lock, elided or not, in the place of a protocol.

use std::io;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use weft::Failure;
use weft::protocol::ProtocolDescription;
use weft_workloads::locks::{
    Client, Contest, Locks, Parameters, Protected, StorageManager, Structure, Visitor,
};
use weft_workloads::snapshots::Snapshots;
use weft_workloads::tatp::{Mix, SUBSCRIBERS_MAX};
use weft_workloads::workload::{Condition, LoadOptions, Outcome};

use weft_bench::arguments::{self, BenchArguments};
use weft_bench::numbers;
use weft_bench::progress::Progress;
use weft_bench::protocols::LOCKS;
use weft_bench::stop::Stop;

use weft_bench::harness::contender::{
    Benchmark, Contender, Driven, Loaded, Variant, failed_to_load,
};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject, Switch};

/// About what one subscriber takes: a row, and its place in a tree.
const SUBSCRIBER_BYTES: u64 = 200;

/// About what one takes with places in all of TATP's tables.
const ROWS_BYTES: u64 = 2_000;

const HELP: &str = "\
What is measured: the locks of `No Free Lunch` (Cervini et al., DaMoN 2015), each taken as it is,
and elided: its sections then run as hardware regions, and under the lock if two of them abort.
Each thread reads the row of one subscriber after the other, some far more often than others, as
TATP's getsubdata does; no database takes part. The table of regions shows why sections aborted.
The locks: occ_rwlock (readers and a writer), tatas (a word), mcs (a queue), srwlock (readers, a
writer and a queue); `none` is no lock, to compare with.

Workloads:
  getsubdata  all rows under one lock; a section reads one, or updates one (--updates)
  map         a hash map of which each transaction updates ten records: elided, by one lock for the
              whole map, as --conflict-retries says; not elided, by a lock for each record, in their
              order (HTCC, §2.1). --subscribers is the number of records
  probe       a B+-tree; each look-up is a section of one coarse latch (§5 of the paper)
  manager     the sections of this transaction in a storage manager like Shore-MT, each with the
              lock that is there: occ_rwlock for the histogram, tatas for frames and the list of
              transactions, mcs for the lock table, srwlock for pages. --lock says which kinds are
              elided, together, when --elide is on; --coarse has the tree probed under one mcs, in
              place of the latches of its pages; --mix has TATP's other transactions, too; --work has each section of a page compute, too:
              how long regions last after their first store decides how often they collide

Where the processor has no RTM (`software`), elided locks are taken too: then both are the same.

Examples:
  cargo lab bench locks
      each lock, taken and elided, in turns
  cargo lab bench locks --workload manager --lock occ_rwlock,tatas,mcs --threads 4
      selected kinds elided (Figure 2 of the paper); without --lock, all (Figure 4)
  cargo lab bench locks --workload manager --coarse --threads 4
      all kinds elided, and one latch for the tree (Figure 5)
  cargo lab bench locks --workload manager --lock occ_rwlock,tatas,mcs --mix standard --threads 4
      all of TATP's transactions (Figure 3)
  cargo lab bench locks --workload probe --lock none,mcs --threads 2 --json results.json
      what a coarse latch costs, taken and elided

`cargo simulate locks` runs the same on a simulated machine with RTM and more cores.
Exit code: 0 done; 1 a verified condition does not hold; 2 wrong arguments.";

/// Measure locks, taken and elided by hardware regions, under TATP's transactions
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[command(mut_arg("protocol", |arg| {
    arg.long("lock")
        .short('l')
        .default_value("occ_rwlock,tatas,mcs,srwlock")
        .value_parser(lock_names())
        .help("Locks to measure, separated by commas")
        .long_help("Locks to measure, separated by commas\n\nThey take turns, round by round, each \
                    with rows of its own. With --workload manager: the kinds that are elided.")
}))]
#[command(mut_arg("directory", |arg| arg.hide(true)))]
#[command(mut_arg("acknowledge", |arg| arg.hide(true)))]
#[command(mut_arg("loggers", |arg| arg.hide(true)))]
#[command(mut_arg("epoch_interval_ms", |arg| arg.hide(true)))]
#[command(mut_arg("reserve_mib", |arg| arg.hide(true)))]
#[command(mut_arg("phase_length", |arg| arg.hide(true)))]
pub struct LocksArguments {
    /// What the locks protect; see below
    #[arg(long, short, value_enum, default_value_t = WorkloadName::Getsubdata)]
    workload: WorkloadName,

    /// Whether the locks are elided: `on`, or `off,on` to compare
    #[arg(long, value_name = "off|on", value_delimiter = ',', default_value = "off,on")]
    elide: Vec<Switch>,

    /// Probe the tree under one latch, with --workload manager
    #[arg(long)]
    coarse: bool,

    /// Steps of about a cycle that each section of a page computes, with --workload manager
    #[arg(long, value_name = "STEPS", default_value_t = 0, value_parser = steps)]
    #[arg(allow_negative_numbers = true)]
    work: u64,

    /// Size of what is protected
    #[arg(long, value_name = "N", default_value_t = Parameters::default().subscribers,
          value_parser = subscribers)]
    #[arg(allow_negative_numbers = true)]
    subscribers: u32,

    /// Share of transactions that update a row, in percent, with --workload getsubdata
    #[arg(long, value_name = "%", default_value_t = 0, value_parser = percent)]
    #[arg(allow_negative_numbers = true)]
    updates: u8,

    /// Transactions of --workload manager: standard, the name of one type of TATP's, or seven weights
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS",
          default_value_t = Parameters::default().mix)]
    mix: Mix,

    /// How uneven popularity is, with --workload map: 0, all records alike, to 5
    #[arg(long, value_name = "THETA", default_value_t = 0.0, value_parser = super::ycsb::theta)]
    #[arg(allow_negative_numbers = true)]
    theta: f64,

    #[command(flatten)]
    bench: BenchArguments,
}

/// What the locks protect.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum WorkloadName {
    /// Rows
    Getsubdata,
    /// A B+-tree
    Probe,
    /// The parts of a storage manager
    Manager,
    /// A hash map
    Map,
}

impl WorkloadName {
    fn protected(self) -> Protected {
        match self {
            WorkloadName::Getsubdata => Protected::Rows,
            WorkloadName::Probe => Protected::Tree,
            WorkloadName::Manager => Protected::Manager,
            WorkloadName::Map => Protected::Map,
        }
    }
}

/// The contender of this name.
fn describe(name: &str) -> &'static ProtocolDescription {
    let found = LOCKS.iter().find(|contender| contender.name == name);
    found.expect("names are made of those that the parser lets through")
}

/// Accepts the names of locks.
fn lock_names() -> impl TypedValueParser<Value = String> {
    let locks = LOCKS.iter().take(5);
    PossibleValuesParser::new(locks.map(|lock| PossibleValue::new(lock.name).help(lock.title)))
}

/// Locks around whatever.
struct LocksBenchmark(Contest);

impl Benchmark for LocksBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        let name = describe(&variant.protocol).name;
        let enter = Enter { name, threads: options.threads };
        self.0.load(name, options, enter).map_err(|failure| failed_to_load(name, &failure))
    }
}

/// Makes a contender of what was loaded.
struct Enter {
    name: &'static str,
    threads: usize,
}

impl Visitor for Enter {
    type Result = Box<dyn Contender>;

    fn visit<S: Structure + 'static>(self, locks: Locks<S>) -> Self::Result {
        Box::new(Loaded::new(Named { name: self.name, locks }, self.threads))
    }
}

/// Locks that take part by a name.
struct Named<S> {
    name: &'static str,
    locks: Locks<S>,
}

impl<S: Structure> Driven for Named<S> {
    const WORKLOAD: &'static str = "locks";
    const TRANSACTIONS: &'static [&'static str] = Locks::<S>::TRANSACTIONS;
    type Client = Client<S::Worker>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn transactions_per_sample(&self) -> u64 {
        SAMPLE_OF_SMALL
    }

    fn htm_backend(&self) -> Option<String> {
        self.locks.htm_backend().map(|backend| backend.to_string())
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> Self::Client {
        self.locks.client(seed, thread, threads)
    }

    #[inline]
    fn execute(&self, client: &mut Self::Client) -> Result<Outcome, Failure> {
        Ok(self.locks.execute(client))
    }

    fn metrics(&self) -> weft::Metrics {
        self.locks.metrics()
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn verify(&self, _progress: &Progress) -> Result<Vec<Condition>, Failure> {
        Ok(self.locks.verify())
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &LocksArguments) -> Result<(), Stop> {
    if arguments.bench.directory.is_some() {
        let message = "locks have no transactions to log: they go without --directory";
        return Err(Stop::Usage(message.to_owned()));
    }
    let &LocksArguments { workload, subscribers, updates, coarse, work, mix, theta, .. } =
        arguments;
    let locks = &arguments.bench.protocol;
    let contest = Contest {
        protected: workload.protected(),
        locks: locks.clone(),
        elisions: Switch::are_on(&arguments.elide),
        is_coarse: coarse,
        work,
        parameters: Parameters { subscribers, updates, mix, theta },
    };
    contest.check().map_err(|message| Stop::Usage(message.to_owned()))?;
    let is_manager = contest.protected == Protected::Manager;
    let is_map = contest.protected == Protected::Map;
    let has_rows = is_manager && StorageManager::has_other_tables(mix);
    let subscriber_bytes = if has_rows { ROWS_BYTES } else { SUBSCRIBER_BYTES };
    let subject = Subject {
        title: format!(
            "{}; {}",
            contest.title(),
            numbers::counted(u64::from(subscribers), contest.size_of())
        ),
        options: vec![
            ("structure", contest.protected.name().into()),
            ("kinds_elided", is_manager.then(|| locks.join(",")).into()),
            ("work", is_manager.then_some(work).into()),
            ("subscribers", subscribers.into()),
            ("updates", updates.into()),
            ("mix", is_manager.then(|| mix.to_string()).into()),
            ("theta", is_map.then_some(theta).into()),
        ],
        operations: None,
        success_rates: None,
        is_single_key: true,
        snapshots: vec![Snapshots::Off],
        loaded_bytes: u64::from(subscribers) * subscriber_bytes,
        growth_bytes_per_second: 0,
    };
    let bench = BenchArguments { protocol: contest.names(), ..arguments.bench.clone() };
    harness::run(&bench, &LocksBenchmark(contest), subject, &mut io::stdout())
}

fn subscribers(text: &str) -> Result<u32, String> {
    let subscribers = arguments::whole_number(text, 1..=u64::from(SUBSCRIBERS_MAX))?;
    Ok(u32::try_from(subscribers).expect("the range fits"))
}

fn steps(text: &str) -> Result<u64, String> {
    arguments::whole_number(text, 0..=1_000_000)
}

fn percent(text: &str) -> Result<u8, String> {
    let percent = arguments::whole_number(text, 0..=100)?;
    Ok(u8::try_from(percent).expect("the range fits"))
}
