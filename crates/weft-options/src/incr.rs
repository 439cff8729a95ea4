//! The options of INCR1 and INCRZ.

use clap::{ArgAction, Args};
use weft_workloads::incr::{
    Change, HOT_KEYS_MAX, Parameters, Popularity, RECORDS_MAX, RECORDS_MIN,
};

use crate::popularity;
use crate::values::{number, whole_number};

/// The default share of the hot key, in percent.
const HOT_DEFAULT: f64 = 100.0;

/// The options of INCR1 and INCRZ, except the one that says when the hot key changes.
#[derive(Args, Clone, Debug)]
pub struct IncrOptions {
    /// Number of counters
    #[arg(long, value_name = "N", default_value_t = Parameters::default().records,
          value_parser = whole_number::<u64>(RECORDS_MIN..=RECORDS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub records: u64,

    /// INCR1: share of the transactions that increment the hot key, in percent [default: 100]
    #[arg(long, value_name = "%", action = ArgAction::Set, conflicts_with = "alpha",
          value_parser = number(0.0..=100.0, "a percentage, a number"))]
    #[arg(allow_negative_numbers = true)]
    hot: Vec<f64>,

    /// INCRZ: how uneven the popularity of keys is: the k-th key is incremented in proportion to 1 / k^alpha; 0
    /// increments all keys alike
    #[arg(long, value_name = "ALPHA", action = ArgAction::Set, value_parser = popularity())]
    #[arg(allow_negative_numbers = true)]
    alpha: Vec<f64>,
}

impl IncrOptions {
    /// Whether the workload is INCRZ.
    pub fn is_zipf(&self) -> bool {
        !self.alpha.is_empty()
    }

    /// Returns the unevenness of INCRZ, or the share of INCR1's hot key: at least one value.
    pub fn values(&self) -> &[f64] {
        match (self.is_zipf(), self.hot.is_empty()) {
            (true, _) => &self.alpha,
            (false, true) => &[HOT_DEFAULT],
            (false, false) => &self.hot,
        }
    }

    /// Returns the parameters of the workload for one of the [values](IncrOptions::values).
    pub fn parameters(&self, value: f64, change: Option<Change>) -> Parameters {
        let popularity = match self.is_zipf() {
            true => Popularity::Zipf { alpha: value },
            false => Popularity::Hot { percent: value, change },
        };
        Parameters { records: self.records, popularity }
    }
}

const _: () = assert!(HOT_KEYS_MAX > 1_000, "the help says how many keys take turns");
