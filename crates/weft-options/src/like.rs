//! The options of LIKE.

use clap::{ArgAction, Args};
use weft_workloads::like::{Parameters, RECORDS_MAX};

use crate::popularity;
use crate::values::whole_number;

/// The options of LIKE.
#[derive(Args, Clone, Debug)]
pub struct LikeOptions {
    /// Number of users to load
    #[arg(long, value_name = "N", default_value_t = Parameters::default().users,
          value_parser = whole_number::<u64>(1..=RECORDS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub users: u64,

    /// Number of pages to load
    #[arg(long, value_name = "N", default_value_t = Parameters::default().pages,
          value_parser = whole_number::<u64>(1..=RECORDS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub pages: u64,

    /// How uneven the popularity of pages is: the k-th is drawn in proportion to 1 / k^alpha; 0 draws all alike
    #[arg(long, value_name = "ALPHA", default_values_t = [Parameters::default().alpha],
          action = ArgAction::Set, value_parser = popularity())]
    #[arg(allow_negative_numbers = true)]
    pub alpha: Vec<f64>,

    /// Share of the transactions that write a like, in percent; the others read
    #[arg(long, value_name = "%", default_values_t = [Parameters::default().write_percent],
          action = ArgAction::Set, value_parser = whole_number::<u32>(0..=100))]
    #[arg(allow_negative_numbers = true)]
    pub write: Vec<u32>,
}

impl LikeOptions {
    /// Returns the parameters of the workload for this popularity and this share of likes.
    pub fn parameters(&self, alpha: f64, write_percent: u32) -> Parameters {
        Parameters { users: self.users, pages: self.pages, alpha, write_percent }
    }
}
