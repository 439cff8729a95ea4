//! `cargo lab bench locks`: locks that hardware regions may elide, under TATP's transactions.
//!
//! The contenders are locks, elided or not, instead of protocols.

use std::io;

use clap::Args;
use weft::Failure;
use weft::protocol::ProtocolDescription;
use weft_workloads::locks::{
    Client, LockComparison, Locks, Parameters, ProtectedStructure, StorageManager, Structure,
    Visitor,
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
    Benchmark, Contender, LoadedContender, System, Variant, failed_to_load,
};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// Approximate bytes of one subscriber: a row, and its entry in a tree.
const SUBSCRIBER_BYTES: u64 = 400;

/// Approximate bytes of one subscriber with rows in all of TATP's tables.
const ROWS_BYTES: u64 = 4_000;

const HELP: &str = "\
What is measured: the locks of `No Free Lunch` (Cervini et al., DaMoN 2015), each taken and elided.
A section of an elided lock runs as a hardware region; after two aborts it takes the lock. Each
thread reads the row of one subscriber after the other, some far more often than others, as TATP's
getsubdata does, without a database. The table of regions shows why sections aborted. The locks:
occ_rwlock (readers and a writer), tatas (a word), mcs (a queue), srwlock (readers, a writer and a
queue); `none` takes no lock, for comparison.

Workloads:
  getsubdata  all rows under one lock; a section reads one row, or updates one (--updates)
  map         a hash map; each transaction updates ten records. Elided: one lock for the whole map,
              with the retries of --conflict-retries. Not elided: one lock for each record, taken in
              their order (HTCC, §2.1). --subscribers is the number of records
  probe       a B+-tree; each look-up is a section of one coarse latch (§5 of the paper)
  manager     this transaction in a storage manager like Shore-MT: pages, buffer pool, lock table,
              transactions and log, each with its usual lock: occ_rwlock for mounts and checkpoints,
              tatas for the buffer pool's buckets, mcs for the lock table, for transactions and the
              log, srwlock for pages. --lock chooses the kinds that are elided together if --elide
              is on. --coarse puts the tree under one mcs lock instead of a latch for each page.
              --mix adds TATP's other transactions. --without leaves parts out, to show what each
              contributes

If the processor has no RTM (`software`), elided locks are taken as well, so both results are the
same.

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
Exit code: 0 success; 1 a verified condition does not hold; 2 wrong arguments.";

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

/// Returns the description of the contender with this name.
fn describe(name: &str) -> &'static ProtocolDescription {
    let found = LOCKS.iter().find(|contender| contender.name == name);
    found.expect("the parser accepts only names of this list")
}

/// Locks around one of the structures.
struct LocksBenchmark(LockComparison);

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

/// Turns loaded locks into a contender.
struct Enter {
    name: &'static str,
    threads: usize,
}

impl Visitor for Enter {
    type Result = Box<dyn Contender>;

    fn visit<S: Structure + 'static>(self, locks: Locks<S>) -> Self::Result {
        Box::new(LoadedContender::new(NamedLocks { name: self.name, locks }, self.threads))
    }
}

/// Locks with the name of their contender.
struct NamedLocks<S> {
    name: &'static str,
    locks: Locks<S>,
}

impl<S: Structure> System for NamedLocks<S> {
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
        let message = "locks have no transactions to log: remove --directory";
        return Err(Stop::Usage(message.to_owned()));
    }
    let locks = &arguments.bench.protocol;
    let comparison = arguments.options.comparison(locks);
    let Parameters { subscribers, updates, mix, theta } = comparison.parameters;
    comparison.check().map_err(|message| Stop::Usage(message.to_owned()))?;
    let is_manager = comparison.protected == ProtectedStructure::Manager;
    let absent: Vec<&str> = comparison.absent.iter().map(|part| part.name()).collect();
    let is_map = comparison.protected == ProtectedStructure::Map;
    let has_rows = is_manager && StorageManager::has_other_tables(mix);
    let subscriber_bytes = if has_rows { ROWS_BYTES } else { SUBSCRIBER_BYTES };
    let subject = Subject {
        title: format!(
            "{}; {}",
            comparison.title(),
            numbers::counted(u64::from(subscribers), comparison.size_of())
        ),
        options: vec![
            ("structure", comparison.protected.name().into()),
            ("kinds_elided", is_manager.then(|| locks.join(",")).into()),
            ("without", is_manager.then(|| absent.join(",")).into()),
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
    let bench = BenchArguments { protocol: comparison.names(), ..arguments.bench.clone() };
    harness::run(&bench, &LocksBenchmark(comparison), subject, &mut io::stdout())
}
