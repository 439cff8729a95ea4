//! `cargo lab bench ycsb`: the options, presets and help of YCSB.

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

/// An upper bound of the operations that one thread runs in a second.
const OPERATIONS_PER_SECOND_MAX: u64 = 5_000_000;

/// The most bytes that a client's list of operations drawn takes.
const CLIENT_BYTES: u64 = 8 << 22;

const HELP: &str = "\
What is measured: rows of a key of 8 bytes and a value, in one table. Each thread runs one
transaction after the other. A transaction has --operations operations, drawn by their shares:
  read    reads a row with its whole value
  rmw     reads a row, modifies a part of it and writes it back
  insert  inserts a row under a new key that only this client uses
  scan    reads up to --scan-rows rows in the order of their keys
Operations are drawn before the clock runs. The latency of one transaction in 31 is measured,
because reading the clock for each would take a tenth of the time.

Presets (other options override a preset's values; if one share is given, those not given are 0):
  dbx  80 read, 20 rmw, values of 100 bytes, uniform: the setting of the DBX and Silo papers
  a    50 read, 50 rmw: YCSB A, update heavy, such as a store of sessions
  b    95 read, 5 rmw: YCSB B, read mostly, such as tags of photographs
  c    100 read: YCSB C, read only, such as a cache of profiles
  d    95 read, 5 insert, newest rows most popular: YCSB D, such as status messages
  e    95 scan, 5 insert: YCSB E, short ranges, such as threads of a conversation
  f    50 read, 50 rmw: YCSB F, such as records that their users change
a to f have values of 1000 bytes and --theta 0.99, as YCSB has. YCSB's updates (A, B) overwrite one
field of ten. Weft replaces a row as a whole, so here an update is a read-modify-write, and A is F.

`--protocol raw` is not a protocol: it runs the B+-tree of the memory store without transactions, to
show what they cost. It pins, looks up, and reads the row; an rmw copies the row to a new version
and swaps the record's pointer to it. It has no versions to validate, no access sets, no locks, no
commit and no rollback. Each operation is atomic, but a scan is not.

Examples:
  cargo lab bench ycsb
      DBX, one thread, a million rows of 100 bytes; takes a quarter of a minute
  cargo lab bench ycsb --protocol raw,none,dbx --rounds 5 --verify
      what a transaction of one operation costs compared with the tree alone
  cargo lab bench ycsb --threads 4 --theta 0.99 --rmw 100 --records 1000
      four threads contend for a few rows
  cargo lab bench ycsb --preset e --json results.json
      short scans during insertions; writes all numbers as JSON

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure YCSB: single rows read, modified, inserted and scanned by key
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[command(mut_arg("protocol", |arg| arg.value_parser(protocol_names_or_raw())))]
pub struct YcsbArguments {
    /// A complete setting, described below
    #[arg(long, value_enum, default_value_t = Preset::Dbx)]
    preset: Preset,

    #[command(flatten)]
    options: YcsbOptions,

    /// Size of a row's value: 8, 100 or 1000 [default: from the preset]
    #[arg(long, value_name = "BYTES", value_parser = value_bytes)]
    #[arg(allow_negative_numbers = true)]
    value_bytes: Option<usize>,

    /// Share of reads, in percent [default: from the preset]
    #[arg(long, value_name = "%", value_parser = whole_number::<u8>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    read: Option<u8>,

    /// Share of read-modify-writes, in percent [default: from the preset]
    #[arg(long, value_name = "%", value_parser = whole_number::<u8>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    rmw: Option<u8>,

    /// Share of insertions, in percent [default: from the preset]
    #[arg(long, value_name = "%", value_parser = whole_number::<u8>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    insert: Option<u8>,

    /// Share of scans, in percent [default: from the preset]
    #[arg(long, value_name = "%", value_parser = whole_number::<u8>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    scan: Option<u8>,

    /// Skew of popularity: the k-th row is accessed in proportion to 1 / k^theta [default: from the preset]
    ///
    /// With 0 all rows are equally popular. With 0.99 the most popular of a million rows gets 6.5 % of all
    /// accesses, with 1.2 it gets 20 %, with 2 it gets 61 %.
    #[arg(long, value_name = "THETA", value_parser = theta())]
    #[arg(allow_negative_numbers = true)]
    theta: Option<f64>,

    /// Which rows are popular [default: from the preset]
    #[arg(long, value_enum)]
    distribution: Option<DistributionName>,

    #[command(flatten)]
    bench: BenchArguments,
}

/// The presets.
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
    /// Returns the name on the command line and in the JSON.
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

    /// Returns the shares of reads, read-modify-writes, insertions and scans, in percent.
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

/// The rows that are popular.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DistributionName {
    /// Popular rows are scattered over all keys
    Zipf,
    /// The rows that the client inserted last, and after them the rows loaded last
    Latest,
}

impl DistributionName {
    /// Returns the name on the command line and in the JSON.
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

/// Returns the title of the report.
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

/// Returns the shares given on the command line, or the preset's if none is given.
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

/// Returns an error if the memory store without transactions takes part with options that need transactions.
fn check_raw(bench: &BenchArguments, storage: StorageName) -> Result<(), Stop> {
    if bench.protocol.iter().all(|name| name != RAW) {
        return Ok(());
    }
    if storage != StorageName::Tree {
        let message = "--protocol raw is the B+-tree alone: use --storage tree";
        return Err(Stop::Usage(message.to_owned()));
    }
    let is_logged = bench.acknowledges().iter().any(|name| name.mode().is_some());
    if is_logged {
        return Err(Stop::Usage(
            "--protocol raw has no transactions to log: remove --directory".to_owned(),
        ));
    }
    Ok(())
}

/// Returns the approximate bytes of one row: the record, in steps of a cache line, and its entry in the index.
fn row_bytes(value_bytes: usize) -> u64 {
    (24 + value_bytes as u64).next_multiple_of(64) + 24
}

/// Returns the approximate bytes of one database and its clients.
fn loaded_bytes(parameters: &Parameters, value_bytes: usize, threads: usize) -> u64 {
    // After a write, a row has a version of its own besides the space inside its record.
    let versions = if parameters.mix.share(Kind::ReadModifyWrite) > 0 { 2 } else { 1 };
    parameters.records * row_bytes(value_bytes) * versions + CLIENT_BYTES * threads as u64
}

/// The name of the memory store without transactions.
const RAW: &str = weft_options::protocols::RAW.name;

/// YCSB, for any row type and any protocol.
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
            .expect("the parser accepts only sizes that rows have")
    }
}

/// Loads the contender `name`, once the row type is known.
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
        .expect("the parser accepts only names of the list")
    }
}

/// The memory store without transactions, as a contender.
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
        format!("rows have fixed sizes: expected one of {}", sizes.join(", "))
    })
}
