//! `cargo simulate like`.

use clap::Args;
use weft_options::like::LikeOptions;
use weft_options::several;
use weft_protocols::with_protocol;
use weft_workloads::like;
use weft_workloads::variants::protocol_of;

use crate::arguments::{Common, Computing};
use crate::simulation::{Axis, Benchmark, Outcome, Setting, listed, simulate_computing};

const HELP: &str = "\
What is simulated: LIKE, as in `cargo lab bench like`, whose help says what its transactions do.

Examples:
  cargo simulate like --write 90 --protocol silo,2pl --machine xeon-8x10 --cores 1,20
      nine likes to one read, on the machine of the Doppel paper (Figure 12)
  cargo simulate like --alpha 0,1.4 --protocol doppel,silo,2pl --machine xeon-8x10 --cores 20 \
    --warmup 25 --milliseconds 100 --types
      latencies of likes and of reads, over some phases of 20 ms (Table 3)";

/// LIKE.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[command(mut_args(several(&["alpha", "write"])))]
pub struct Like {
    /// The workload's options.
    #[command(flatten)]
    options: LikeOptions,
    /// How much the client computes.
    #[command(flatten)]
    computing: Computing,
    /// The options of the simulation.
    #[command(flatten)]
    common: Common,
}

impl Like {
    fn varies_alpha(&self) -> bool {
        self.options.alpha.len() > 1
    }
}

impl Benchmark for Like {
    fn title(&self, values: &[f64]) -> String {
        let Like { options, computing, .. } = self;
        let LikeOptions { users, pages, alpha, write } = options;
        let (alpha, write) = match self.varies_alpha() {
            true => (listed(values), listed(write)),
            false => (listed(alpha), listed(values)),
        };
        format!("LIKE, {users} users, {pages} pages, alpha {alpha}, {write} % like; {computing}")
    }

    fn axis(&self) -> Axis {
        match self.varies_alpha() {
            true => Axis { name: "alpha", values: self.options.alpha.clone() },
            false => Axis {
                name: "write %",
                values: self.options.write.iter().copied().map(f64::from).collect(),
            },
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.varies_alpha() && self.options.write.len() > 1 {
            return Err("only one of --alpha and --write can have several values".to_owned());
        }
        Ok(())
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<Outcome, String> {
        let options = &self.options;
        let value = setting.value.expect("there is an axis");
        let (alpha, write_percent) = match self.varies_alpha() {
            true => (value, options.write[0]),
            false => (options.alpha[0], value as u32),
        };
        let parameters = options.parameters(alpha, write_percent);
        with_protocol!(protocol_of(contender), |P| simulate_computing::<P, like::Like<P>>(
            &parameters,
            self.computing.compute,
            setting
        ))
        .expect("the parser knows the names")
    }
}
