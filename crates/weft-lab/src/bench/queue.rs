//! `cargo lab bench queue`: the options and the help of the queue.

use std::io;

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::queue::{Parameters, Queue};
use weft_workloads::snapshots::Snapshots;

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::queue::QueueOptions;

use weft_bench::harness::contender::{Benchmark, Contender, Variant, load_under};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// Approximate bytes of one entry, and of the rows of clients.
const ENTRY_BYTES: u64 = 130;
const CLIENTS_BYTES: u64 = 1 << 20;

const HELP: &str = "\
What is measured: a table that is used as a queue. Each thread runs one transaction after the other,
half of each type:
  produce  draws the next number from the row at the queue's end, and inserts an entry under it
  consume  finds the oldest entry by a scan, deletes it, and notes it in the row of its client
All producers conflict at one end and all consumers at the other. If the queue is empty, a consumer
is under `rolled back`. The latency of one transaction in 31 is measured. A table has the share and
the waits of each thread, as producer and as consumer.

Examples:
  cargo lab bench queue --protocol dbx,silo,2pl --threads 2
      a queue of about a thousand entries
  cargo lab bench queue --backlog 0 --threads 2 --verify
      a queue that is often empty; checks afterwards that each entry was consumed once, in order

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure a queue: producers append to a table, and consumers take its oldest row
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct QueueArguments {
    #[command(flatten)]
    options: QueueOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// The queue, for any protocol.
struct QueueBenchmark(Parameters);

impl Benchmark for QueueBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        with_protocol!(variant.protocol(), |P| load_under::<P, Queue<P>, SAMPLE_OF_SMALL>(
            &self.0, options
        ))
        .expect("the parser accepts only names of the list")
    }

    fn shows_threads(&self) -> bool {
        true
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &QueueArguments) -> Result<(), Stop> {
    let parameters = arguments.options.parameters();
    let Parameters { backlog } = parameters;
    let subject = Subject {
        title: match backlog {
            1 => "Queue, 1 entry at first".to_owned(),
            more => format!("Queue, {} entries at first", numbers::grouped(more)),
        },
        options: vec![("backlog", backlog.into())],
        operations: None,
        success_rates: None,
        is_single_key: false,
        snapshots: vec![Snapshots::Off],
        loaded_bytes: backlog * ENTRY_BYTES + CLIENTS_BYTES,
        growth_bytes_per_second: 0,
    };
    harness::run(&arguments.bench, &QueueBenchmark(parameters), subject, &mut io::stdout())
}
