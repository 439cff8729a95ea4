//! The options of TATP.

use clap::Args;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::tatp::{Mix, Parameters, SUBSCRIBERS_MAX};

use crate::SnapshotsOptions;
use crate::values::whole_number;

/// The options of TATP.
#[derive(Args, Clone, Debug)]
pub struct TatpOptions {
    /// Size of the database, in subscribers
    #[arg(long, short, value_name = "N", default_value_t = Parameters::default().subscribers,
          value_parser = whole_number::<u32>(1..=SUBSCRIBERS_MAX.into()))]
    #[arg(allow_negative_numbers = true)]
    pub subscribers: u32,

    /// Transactions to draw from: standard, the name of one type, or seven weights
    ///
    /// `standard` stands for the weights 35,10,35,2,14,2,2 of getsubdata, getnewdest, getaccessdata,
    /// updatesubdata, updatelocation, insertcallfwd and deletecallfwd.
    #[arg(long, short, value_name = "standard|TYPE|WEIGHTS", default_value_t = Mix::STANDARD)]
    pub mix: Mix,

    /// The snapshots on which transactions read.
    #[command(flatten)]
    pub reading: SnapshotsOptions,
}

impl TatpOptions {
    /// Returns the parameters of the workload, whose readers use these snapshots.
    pub fn parameters(&self, snapshots: Snapshots) -> Parameters {
        Parameters { subscribers: self.subscribers, mix: self.mix, snapshots }
    }
}
