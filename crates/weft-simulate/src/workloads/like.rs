//! `cargo simulate like`.

use clap::Args;
use weft::protocol::with_protocol;
use weft_workloads::like;

use super::incr::alpha;
use crate::arguments::{Common, Computing};
use crate::simulation::{Benchmark, Outcome, Setting, simulate_computing};

const HELP: &str = "\
What is simulated: LIKE, as in `weft bench like`, whose help says what its transactions do.

Example:
  cargo simulate like --write 90 --protocol silo,2pl --machine xeon-8x10 --cores 1,20
      nine likes to one read, on the machine of the Doppel paper (Figure 12)";

/// LIKE.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct Like {
    /// Users
    #[arg(long, value_name = "N", default_value_t = like::Parameters::default().users,
          value_parser = clap::value_parser!(u64).range(1..=like::RECORDS_MAX))]
    users: u64,
    /// Pages
    #[arg(long, value_name = "N", default_value_t = like::Parameters::default().pages,
          value_parser = clap::value_parser!(u64).range(1..=like::RECORDS_MAX))]
    pages: u64,
    /// How uneven the popularity of pages is, from 0, all alike, to 5
    #[arg(long, value_name = "ALPHA", default_value_t = like::Parameters::default().alpha,
          value_parser = alpha)]
    alpha: f64,
    /// Share of the transactions that like, in percent; the others read
    #[arg(long, value_name = "%", default_value_t = like::Parameters::default().write_percent,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    write: u32,
    /// What the client computes.
    #[command(flatten)]
    computing: Computing,
    /// How to simulate.
    #[command(flatten)]
    common: Common,
}

impl Benchmark for Like {
    fn title(&self) -> String {
        let Like { users, pages, alpha, write, computing, .. } = self;
        format!("LIKE, {users} users, {pages} pages, alpha {alpha}, {write} % like; {computing}")
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let &Like { users, pages, alpha, write, .. } = self;
        let parameters = like::Parameters { users, pages, alpha, write_percent: write };
        with_protocol!(contender, |P| simulate_computing::<P, like::Like<P>>(
            &parameters,
            self.computing.compute,
            setting
        ))
        .expect("the parser knows the names")
    }
}
