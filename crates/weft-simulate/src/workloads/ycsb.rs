//! `cargo simulate ycsb`.

use clap::{Args, ValueEnum};
use weft_protocols::with_protocol;
use weft_workloads::variants::protocol_of;
use weft_workloads::ycsb;
use weft_workloads::ycsb::Distribution;
use weft_workloads::ycsb::row::{FixedRow, InHashTable, InTree};

use crate::arguments::Common;
use crate::simulation::{Benchmark, Outcome, Setting, simulate_under};

/// YCSB's rows: a counter of eight bytes, and so many to fill them up to a hundred.
type Row<I> = FixedRow<92, I>;

/// The kinds of index.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Storage {
    /// A B+-tree
    Tree,
    /// A hash table, which cannot be scanned
    Hash,
}

/// YCSB.
#[derive(Args, Debug)]
pub struct Ycsb {
    /// Rows that are loaded
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..=ycsb::RECORDS_MAX))]
    records: u64,
    /// Reads, read-modify-writes, insertions and scans, in percent
    #[arg(long, value_name = "R,W,I,S", value_parser = mix, default_value = "80,20,0,0")]
    mix: ycsb::Mix,
    /// How uneven popularity is: 0, all rows alike, to 2
    #[arg(long, value_name = "THETA", default_value_t = 0.0, value_parser = theta)]
    theta: f64,
    /// The index of the rows
    #[arg(long, value_enum, default_value_t = Storage::Tree)]
    storage: Storage,
    /// Operations in one transaction
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    operations: u32,
    /// How to simulate.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Ycsb {
    fn title(&self, _values: &[f64]) -> String {
        let index = match self.storage {
            Storage::Tree => "a B+-tree",
            Storage::Hash => "a hash table",
        };
        let rows = format!("{} rows of 100 bytes in {index}, theta {}", self.records, self.theta);
        format!("YCSB, {}, {rows}, {} per transaction", self.mix, self.operations)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let parameters = ycsb::Parameters {
            records: self.records,
            mix: self.mix,
            operations: self.operations,
            scan_rows: 100,
            theta: self.theta,
            distribution: Distribution::Zipf,
        };
        if self.storage == Storage::Hash && self.mix.share(ycsb::Kind::Scan) > 0 {
            return Err(
                "a hash table cannot be scanned: --mix with scans needs --storage tree".into()
            );
        }
        with_protocol!(protocol_of(contender), |P| match self.storage {
            Storage::Tree => {
                simulate_under::<P, ycsb::Ycsb<P, Row<InTree>>>(&parameters, setting)
            }
            Storage::Hash => {
                simulate_under::<P, ycsb::Ycsb<P, Row<InHashTable>>>(&parameters, setting)
            }
        })
        .expect("the parser knows the names")
    }
}

fn mix(text: &str) -> Result<ycsb::Mix, String> {
    let shares: Result<Vec<u8>, _> = text.split(',').map(str::parse).collect();
    let shares: Option<[u8; 4]> = shares.ok().and_then(|shares| shares.try_into().ok());
    let mix = shares.and_then(ycsb::Mix::new);
    mix.ok_or_else(|| "expected four percentages that add up to 100".to_owned())
}

pub fn theta(text: &str) -> Result<f64, String> {
    let theta = text.parse().ok().filter(|theta| (0.0..=2.0).contains(theta));
    theta.ok_or_else(|| "expected a number from 0 to 2".to_owned())
}
