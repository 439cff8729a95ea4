//! `cargo lab bench locks`: locks that hardware regions may elide, under TATP's transactions.
//!
//! What takes turns here is a lock, elided or not, in the place of a protocol.

use std::io;

use clap::Args;
use weft::Failure;
use weft::protocol::ProtocolDescription;
use weft_workloads::locks::{
    Client, Contest, Locks, Parameters, Protected, StorageManager, Structure, Visitor,
};
use weft_workloads::snapshots::Snapshots;
use weft_workloads::workload::{Condition, LoadOptions, Outcome};

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::progress::Progress;
use weft_bench::stop::Stop;
use weft_options::locks::{LocksOptions, in_place_of_protocols};
use weft_options::protocols::LOCKS;

use weft_bench::harness::contender::{
    Benchmark, Contender, Driven, Loaded, Variant, failed_to_load,
};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

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
#[command(mut_arg("protocol", in_place_of_protocols))]
#[command(mut_arg("directory", |arg| arg.hide(true)))]
#[command(mut_arg("acknowledge", |arg| arg.hide(true)))]
#[command(mut_arg("loggers", |arg| arg.hide(true)))]
#[command(mut_arg("epoch_interval_ms", |arg| arg.hide(true)))]
#[command(mut_arg("reserve_mib", |arg| arg.hide(true)))]
#[command(mut_arg("phase_length", |arg| arg.hide(true)))]
pub struct LocksArguments {
    #[command(flatten)]
    options: LocksOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// The contender of this name.
fn describe(name: &str) -> &'static ProtocolDescription {
    let found = LOCKS.iter().find(|contender| contender.name == name);
    found.expect("names are made of those that the parser lets through")
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
    let locks = &arguments.bench.protocol;
    let contest = arguments.options.contest(locks);
    let Parameters { subscribers, updates, mix, theta } = contest.parameters;
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
            ("work", is_manager.then_some(contest.work).into()),
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
