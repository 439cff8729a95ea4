//! The options of the mixture.

use clap::{Args, ValueEnum};
use weft_workloads::mixture::{Parameters, Scale};

/// The options of the mixture.
#[derive(Args, Clone, Debug)]
pub struct MixtureOptions {
    /// Rows of each workload; `tiny` loads at once, and its results are not comparable
    #[arg(long, value_enum, default_value_t = ScaleName::Full)]
    pub scale: ScaleName,
}

/// Sizes of the tables.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum ScaleName {
    /// The sizes at which the workloads are measured alone, or a tenth of them
    Full,
    /// As few rows as possible
    Tiny,
}

impl ScaleName {
    /// Returns the name that the command line and the JSON use.
    pub fn name(self) -> &'static str {
        match self {
            ScaleName::Full => "full",
            ScaleName::Tiny => "tiny",
        }
    }
}

impl MixtureOptions {
    /// Returns the parameters of the workload.
    pub fn parameters(&self) -> Parameters {
        Parameters::new(match self.scale {
            ScaleName::Full => Scale::Full,
            ScaleName::Tiny => Scale::Tiny,
        })
    }
}
