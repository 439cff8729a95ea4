//! The options of Articles.

use clap::{ArgAction, Args};
use weft_workloads::articles::{Mix, Parameters, RECORDS_MAX};
use weft_workloads::snapshots::Snapshots;

use crate::values::whole_number;
use crate::{SnapshotsOptions, Switch, popularity};

/// The options of Articles.
#[derive(Args, Clone, Debug)]
pub struct ArticlesOptions {
    /// Number of articles to load, with 3.55 comments each on average
    #[arg(long, value_name = "N", default_value_t = Parameters::default().articles,
          value_parser = whole_number::<u64>(1..=RECORDS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub articles: u64,

    /// Number of users to load
    #[arg(long, value_name = "N", default_value_t = Parameters::default().users,
          value_parser = whole_number::<u64>(1..=RECORDS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub users: u64,

    /// Transactions to draw from: standard, the name of one type, or four weights
    ///
    /// `standard` stands for the weights 35,35,20,10 of getarticle, getcomments, addcomment and updateuser.
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS", default_value_t = Mix::STANDARD)]
    pub mix: Mix,

    /// How uneven the popularity of articles and of users is: the k-th is drawn in proportion to 1 / k^alpha; 0
    /// draws all alike
    #[arg(long, value_name = "ALPHA", default_values_t = [Parameters::default().alpha],
          action = ArgAction::Set, value_parser = popularity())]
    #[arg(allow_negative_numbers = true)]
    pub alpha: Vec<f64>,

    /// Count comments by a commutative operation; `off` counts by reading and writing
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub operations: Switch,

    /// The snapshots on which transactions read.
    #[command(flatten)]
    pub reading: SnapshotsOptions,
}

impl ArticlesOptions {
    /// Returns the parameters of the workload for this popularity, whose readers use these snapshots.
    pub fn parameters(&self, alpha: f64, snapshots: Snapshots) -> Parameters {
        let &ArticlesOptions { articles, users, mix, operations, .. } = self;
        Parameters { articles, users, mix, alpha, operations: operations.is_on(), snapshots }
    }
}
