//! `cargo simulate ycsb`.

use clap::Args;
use weft_options::ycsb::{StorageName, YcsbOptions, theta};
use weft_protocols::with_protocol;
use weft_workloads::variants::protocol_of;
use weft_workloads::ycsb;
use weft_workloads::ycsb::Distribution;
use weft_workloads::ycsb::row::{FixedRow, InHashTable, InTree};

use crate::arguments::Common;
use crate::simulation::{Benchmark, Outcome, Setting, simulate_under};

/// YCSB's rows: a counter of eight bytes, and padding up to a hundred.
type Row<I> = FixedRow<92, I>;

/// YCSB.
#[derive(Args, Debug)]
#[command(mut_arg("records", |arg| arg.default_value("100000")))]
pub struct Ycsb {
    /// Reads, read-modify-writes, insertions and scans, in percent
    #[arg(long, value_name = "R,W,I,S", value_parser = mix, default_value = "80,20,0,0")]
    mix: ycsb::Mix,
    /// How uneven the popularity of rows is, from 0 (all rows are equally popular) to 5
    #[arg(long, value_name = "THETA", default_value_t = 0.0, value_parser = theta())]
    theta: f64,
    /// The workload's options.
    #[command(flatten)]
    options: YcsbOptions,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Ycsb {
    fn title(&self, _values: &[f64]) -> String {
        let YcsbOptions { records, operations, storage, .. } = &self.options;
        let index = match storage {
            StorageName::Tree => "a B+-tree",
            StorageName::Hash => "a hash table",
        };
        let rows = format!("{records} rows of 100 bytes in {index}, theta {}", self.theta);
        format!("YCSB, {}, {rows}, {operations} per transaction", self.mix)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let parameters = self.options.parameters(self.mix, self.theta, Distribution::Zipf)?;
        with_protocol!(protocol_of(contender), |P| match self.options.storage {
            StorageName::Tree => {
                simulate_under::<P, ycsb::Ycsb<P, Row<InTree>>>(&parameters, setting)
            }
            StorageName::Hash => {
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
