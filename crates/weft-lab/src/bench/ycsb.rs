//! `cargo lab bench ycsb`: what is YCSB's alone.

use std::io;

use clap::{Args, ValueEnum};
use weft::Failure;
use weft::schema::Storage;
use weft_protocols::with_protocol;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::variants::protocol_of;
use weft_workloads::workload::{Condition, LoadOptions, Outcome};
use weft_workloads::ycsb::raw::RawClient;
use weft_workloads::ycsb::{
    Distribution, Kind, Mix, Parameters, RawYcsb, Row, RowVisitor, VALUE_BYTES, Ycsb, with_row,
};

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::progress::Progress;
use weft_bench::stop::Stop;
use weft_options::values::{protocol_names_or_raw, whole_number};
use weft_options::ycsb::{StorageName, YcsbOptions, theta};

use weft_bench::harness::contender::{
    Benchmark, Contender, Driven, Loaded, Variant, failed_to_load, load_under,
};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// More operations than one thread runs in a second.
const OPERATIONS_PER_SECOND_MAX: u64 = 5_000_000;

/// What one operation in a client's memory of them takes, and how many it has at most.
const CLIENT_BYTES: u64 = 8 << 22;

const HELP: &str = "\
What is measured: rows of a key of 8 bytes and a value, in one table. Each thread runs one
transaction after the other; each transaction has --operations of these, drawn by their shares:
  read    reads a row, and all of its value
  rmw     reads a row, modifies a part of it and writes it back
  insert  inserts a row under a key of the client's own
  scan    reads up to --scan-rows rows in the order of their keys
Operations are drawn before the clock runs. The latency of one transaction in 31 is taken, since
reading the clock for each would take a tenth of the time.

Presets (single options given beside one win over it; a share that is not named is 0 as soon as one
is):
  dbx  80 read, 20 rmw, values of 100 bytes, all rows alike: the setting of the DBX and Silo papers
  a    50 read, 50 rmw: YCSB A, update heavy, such as a store of sessions
  b    95 read, 5 rmw: YCSB B, read mostly, such as tags of photographs
  c    100 read: YCSB C, read only, such as a cache of profiles
  d    95 read, 5 insert, the latest rows most: YCSB D, such as status messages
  e    95 scan, 5 insert: YCSB E, short ranges, such as threads of a conversation
  f    50 read, 50 rmw: YCSB F, such as records that their users change
a to f have values of 1000 bytes and --theta 0.99, as YCSB has. Its updates (A, B) overwrite one
field of ten; a row of Weft is replaced as a whole, so that is a read-modify-write, and A is F.

`--protocol raw` is no protocol: the B+-tree of the memory store without transactions, to see what
they cost on top. It pins, looks up, and reads the row; an rmw copies the row to a new version and
swaps the record's pointer to it. It has no versions to validate, no access sets, no locks, no
commit, no rollback: operations are atomic one by one, scans not at all.

Examples:
  cargo lab bench ycsb
      DBX, one thread, a million rows of 100 bytes: a quarter of a minute
  cargo lab bench ycsb --protocol raw,none,dbx --rounds 5 --verify
      what a transaction of one operation costs over the tree alone
  cargo lab bench ycsb --threads 4 --theta 0.99 --rmw 100 --records 1000
      four threads fight for a few rows
  cargo lab bench ycsb --preset e --json results.json
      short scans while others insert, all numbers for a program

`cargo lab protocols` says what each protocol is and where it is from.
Exit code: 0 done; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure YCSB: single rows read, modified, inserted and scanned by key
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[command(mut_arg("protocol", |arg| arg.value_parser(protocol_names_or_raw())))]
pub struct YcsbArguments {
    /// A whole setting at once; see below
    #[arg(long, value_enum, default_value_t = Preset::Dbx)]
    preset: Preset,

    #[command(flatten)]
    options: YcsbOptions,

    /// Size of a row's value: 8, 100 or 1000 [default: by the preset]
    #[arg(long, value_name = "BYTES", value_parser = value_bytes)]
    #[arg(allow_negative_numbers = true)]
    value_bytes: Option<usize>,

    /// Share of reads, in percent [default: by the preset]
    #[arg(long, value_name = "%", value_parser = whole_number::<u8>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    read: Option<u8>,

    /// Share of read-modify-writes, in percent [default: by the preset]
    #[arg(long, value_name = "%", value_parser = whole_number::<u8>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    rmw: Option<u8>,

    /// Share of insertions, in percent [default: by the preset]
    #[arg(long, value_name = "%", value_parser = whole_number::<u8>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    insert: Option<u8>,

    /// Share of scans, in percent [default: by the preset]
    #[arg(long, value_name = "%", value_parser = whole_number::<u8>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    scan: Option<u8>,

    /// How uneven popularity is: the k-th row is accessed in proportion to 1 / k^theta [default: by
    /// the preset]
    ///
    /// 0: all rows alike. With 0.99 the most popular of a million rows gets 6.5 % of all accesses,
    /// with 1.2 it gets 20 %, with 2 it gets 61 %.
    #[arg(long, value_name = "THETA", value_parser = theta())]
    #[arg(allow_negative_numbers = true)]
    theta: Option<f64>,

    /// Which rows are popular [default: by the preset]
    #[arg(long, value_enum)]
    distribution: Option<DistributionName>,

    #[command(flatten)]
    bench: BenchArguments,
}

/// The settings on offer.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Preset {
    Dbx,
    A,
    B,
    C,
    D,
    E,
    F,
}

impl Preset {
    /// As on the command line and in the JSON.
    fn name(self) -> &'static str {
        match self {
            Preset::Dbx => "dbx",
            Preset::A => "a",
            Preset::B => "b",
            Preset::C => "c",
            Preset::D => "d",
            Preset::E => "e",
            Preset::F => "f",
        }
    }

    /// Reads, read-modify-writes, insertions and scans, in percent.
    fn shares(self) -> [u8; 4] {
        match self {
            Preset::Dbx => [80, 20, 0, 0],
            Preset::A | Preset::F => [50, 50, 0, 0],
            Preset::B => [95, 5, 0, 0],
            Preset::C => [100, 0, 0, 0],
            Preset::D => [95, 0, 5, 0],
            Preset::E => [0, 0, 5, 95],
        }
    }

    fn value_bytes(self) -> usize {
        if self == Preset::Dbx { 100 } else { 1000 }
    }

    fn theta(self) -> f64 {
        if self == Preset::Dbx { 0.0 } else { 0.99 }
    }

    fn distribution(self) -> DistributionName {
        if self == Preset::D { DistributionName::Latest } else { DistributionName::Zipf }
    }
}

/// Which rows are popular.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DistributionName {
    /// Rows scattered over all keys
    Zipf,
    /// The rows that the client has inserted last, and then the last ones that were loaded
    Latest,
}

impl DistributionName {
    /// As on the command line and in the JSON.
    fn name(self) -> &'static str {
        match self {
            DistributionName::Zipf => "zipf",
            DistributionName::Latest => "latest",
        }
    }

    fn distribution(self) -> Distribution {
        match self {
            DistributionName::Zipf => Distribution::Zipf,
            DistributionName::Latest => Distribution::Latest,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &YcsbArguments) -> Result<(), Stop> {
    let YcsbArguments { preset, options, bench, .. } = arguments;
    let storage = options.storage;
    let value_bytes = arguments.value_bytes.unwrap_or(preset.value_bytes());
    let distribution = arguments.distribution.unwrap_or(preset.distribution());
    let theta = arguments.theta.unwrap_or(preset.theta());
    let parameters = options
        .parameters(mix(arguments)?, theta, distribution.distribution())
        .map_err(Stop::Usage)?;
    check_raw(bench, storage)?;
    let shares = Kind::ALL.map(|kind| (Kind::NAMES[kind as usize], parameters.mix.share(kind)));
    let mut listed = vec![
        ("preset", preset.name().into()),
        ("records", parameters.records.into()),
        ("value_bytes", value_bytes.into()),
    ];
    listed.extend(shares.map(|(name, share)| (name, share.into())));
    listed.extend([
        ("scan_rows", parameters.scan_rows.into()),
        ("operations", parameters.operations.into()),
        ("theta", parameters.theta.into()),
        ("distribution", distribution.name().into()),
        ("storage", storage.name().into()),
    ]);
    let subject = Subject {
        title: title(storage, &parameters, value_bytes),
        options: listed,
        operations: Some(parameters.operations),
        success_rates: None,
        snapshots: vec![Snapshots::Off],
        is_single_key: parameters.is_single_key(),
        loaded_bytes: loaded_bytes(&parameters, value_bytes, bench.threads),
        growth_bytes_per_second: row_bytes(value_bytes)
            * OPERATIONS_PER_SECOND_MAX
            * u64::from(parameters.mix.share(Kind::Insert))
            / 100,
    };
    let benchmark = YcsbBenchmark { parameters, value_bytes, storage: storage.storage() };
    harness::run(bench, &benchmark, subject, &mut io::stdout())
}

/// What is run, in a few words.
fn title(storage: StorageName, parameters: &Parameters, value_bytes: usize) -> String {
    let popularity = match parameters.distribution {
        Distribution::Zipf if parameters.theta == 0.0 => "all alike".to_owned(),
        Distribution::Zipf => format!("theta {}", parameters.theta),
        Distribution::Latest => format!("the latest most (theta {})", parameters.theta),
    };
    let operations = match parameters.operations {
        1 => String::new(),
        more => format!(", {} per transaction", numbers::counted(u64::from(more), "operation")),
    };
    format!(
        "YCSB, {}{operations}\n{} of {value_bytes} bytes in a {}, {popularity}",
        parameters.mix,
        numbers::counted(parameters.records, "row"),
        match storage {
            StorageName::Tree => "B+-tree",
            StorageName::Hash => "hash table",
        },
    )
}

/// The shares: those named on the command line, or else the preset's.
fn mix(arguments: &YcsbArguments) -> Result<Mix, Stop> {
    let named = [arguments.read, arguments.rmw, arguments.insert, arguments.scan];
    let shares = match named {
        [None, None, None, None] => arguments.preset.shares(),
        _ => named.map(Option::unwrap_or_default),
    };
    Mix::new(shares).ok_or_else(|| {
        let total: u32 = shares.iter().map(|&share| u32::from(share)).sum();
        let [read, rmw, insert, scan] = shares;
        Stop::Usage(format!(
            "the shares must add up to 100, not {total}: --read {read} --rmw {rmw} --insert \
             {insert} --scan {scan}"
        ))
    })
}

/// Checks that the tree without transactions is asked for no more than it is.
fn check_raw(bench: &BenchArguments, storage: StorageName) -> Result<(), Stop> {
    if bench.protocol.iter().all(|name| name != RAW) {
        return Ok(());
    }
    if storage != StorageName::Tree {
        let message = "--protocol raw is the B+-tree alone: it needs --storage tree";
        return Err(Stop::Usage(message.to_owned()));
    }
    let is_logged = bench.acknowledges().iter().any(|name| name.mode().is_some());
    if is_logged {
        return Err(Stop::Usage(
            "--protocol raw has no transactions to log: it goes without --directory".to_owned(),
        ));
    }
    Ok(())
}

/// About what one row takes: the record, in steps of a cache line, and its place in the index.
fn row_bytes(value_bytes: usize) -> u64 {
    (24 + value_bytes as u64).next_multiple_of(64) + 24
}

/// About what one database takes, and its clients.
fn loaded_bytes(parameters: &Parameters, value_bytes: usize, threads: usize) -> u64 {
    // A row that was written has a version of its own behind the place that its record has for it.
    let versions = if parameters.mix.share(Kind::ReadModifyWrite) > 0 { 2 } else { 1 };
    parameters.records * row_bytes(value_bytes) * versions + CLIENT_BYTES * threads as u64
}

/// The name under which the memory store takes part without transactions.
const RAW: &str = weft_options::protocols::RAW.name;

/// YCSB with whatever rows, under whatever protocol.
struct YcsbBenchmark {
    parameters: Parameters,
    value_bytes: usize,
    storage: Storage,
}

impl Benchmark for YcsbBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        let load = Load { name: &variant.protocol, parameters: &self.parameters, options };
        with_row(self.value_bytes, self.storage, load)
            .expect("the parser lets only sizes through that there are rows of")
    }
}

/// Loads what takes part by the name of `name`, once the row type is known.
struct Load<'a> {
    name: &'a str,
    parameters: &'a Parameters,
    options: &'a LoadOptions<'a>,
}

impl RowVisitor for Load<'_> {
    type Output = Result<Box<dyn Contender>, Stop>;

    fn visit<R: Row>(self) -> Self::Output {
        let Load { name, parameters, options } = self;
        if name == RAW {
            let raw = RawYcsb::<R>::load(parameters, options)
                .map_err(|failure| failed_to_load(name, &failure))?;
            return Ok(Box::new(Loaded::new(Raw(raw), options.threads)));
        }
        with_protocol!(protocol_of(name), |P| load_under::<P, Ycsb<P, R>, SAMPLE_OF_SMALL>(
            parameters, options
        ))
        .expect("the parser lets only names of the list through")
    }
}

/// The memory store without transactions.
struct Raw<R: Row>(RawYcsb<R>);

impl<R: Row> Driven for Raw<R> {
    const WORKLOAD: &'static str = "ycsb";
    const TRANSACTIONS: &'static [&'static str] = RawYcsb::<R>::TRANSACTIONS;
    type Client = RawClient<R>;

    fn name(&self) -> &'static str {
        RAW
    }

    fn transactions_per_sample(&self) -> u64 {
        SAMPLE_OF_SMALL
    }

    fn htm_backend(&self) -> Option<String> {
        None
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> RawClient<R> {
        self.0.client(seed, thread)
    }

    #[inline]
    fn execute(&self, client: &mut RawClient<R>) -> Result<Outcome, Failure> {
        Ok(self.0.execute(client))
    }

    fn metrics(&self) -> weft::Metrics {
        self.0.metrics()
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn verify(&self, progress: &Progress) -> Result<Vec<Condition>, Failure> {
        self.0.verify(&|done, total| progress.set(done, total))
    }
}

fn value_bytes(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|bytes| VALUE_BYTES.contains(bytes)).ok_or_else(|| {
        let sizes: Vec<String> = VALUE_BYTES.iter().map(usize::to_string).collect();
        format!("rows are of fixed sizes: expected one of {}", sizes.join(", "))
    })
}
