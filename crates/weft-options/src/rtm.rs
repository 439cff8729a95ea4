//! The options of the experiments with hardware regions.

use clap::Args;
use weft_workloads::rtm::{Edges, Kind, Point};

use crate::values::{SEED_DEFAULT, seed, whole_number};

/// The options of the experiments.
#[derive(Args, Clone, Debug)]
pub struct RtmOptions {
    /// Experiments to run, separated by commas [default: all]
    #[arg(long, short, value_name = "KIND,…", value_delimiter = ',')]
    kind: Vec<Kind>,

    /// Sizes of the regions, separated by commas [default: around the expected limits]
    #[arg(long, short, value_name = "SIZE,…", value_delimiter = ',')]
    sizes: Vec<String>,

    /// Number of times that each thread tries a region [default: as often as the size allows]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(1..=100_000_000))]
    #[arg(allow_negative_numbers = true)]
    pub tries: Option<u64>,

    /// Let each thread try all regions of a size at the same place
    ///
    /// The caches then contain what the previous region has touched. Random lines are the same each time.
    #[arg(long)]
    pub same_place: bool,

    /// Seed of the places at which regions are tried
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT, value_parser = seed())]
    #[arg(allow_negative_numbers = true)]
    pub seed: u64,
}

impl RtmOptions {
    /// Returns the experiments for a machine with these limits.
    ///
    /// # Errors
    /// A size that an experiment does not offer.
    pub fn points(&self, edges: &Edges) -> Result<Vec<Point>, String> {
        let kinds = if self.kind.is_empty() { &Kind::ALL[..] } else { &self.kind };
        Point::all(kinds, &self.sizes, edges)
    }
}
