//! The options of RUBiS.

use clap::{ArgAction, Args, ValueEnum};
use weft_workloads::rubis::{ITEMS_MAX, Mix, Parameters, USERS_MAX};

use crate::values::whole_number;
use crate::{Switch, popularity};

/// The options of RUBiS.
#[derive(Args, Clone, Debug)]
pub struct RubisOptions {
    /// Which transactions run, and how often
    #[arg(long, short, value_enum, default_value_t = MixName::Bidding)]
    pub mix: MixName,

    /// How uneven the items' popularity is, in the contended mix [default: 1.8]
    ///
    /// 0 makes all items alike. With 1 the most popular of 33,000 items gets 9 % of all bids, with 1.4 it gets
    /// 33 %, with 1.8 it gets 53 %.
    #[arg(long, value_name = "ALPHA", action = ArgAction::Set, value_parser = popularity())]
    #[arg(allow_negative_numbers = true)]
    pub alpha: Vec<f64>,

    /// Number of users to load
    #[arg(long, value_name = "N", default_value_t = Parameters::default().users,
          value_parser = whole_number::<u32>(1..=USERS_MAX.into()))]
    #[arg(allow_negative_numbers = true)]
    pub users: u32,

    /// Number of items to load, each an auction with ten bids on average
    #[arg(long, value_name = "N", default_value_t = Parameters::default().items,
          value_parser = whole_number::<u32>(1..=ITEMS_MAX.into()))]
    #[arg(allow_negative_numbers = true)]
    pub items: u32,

    /// Sum up by commutative operations; `off` sums up by reading and writing
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub operations: Switch,
}

/// The available mixes.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum MixName {
    /// RUBiS-B: the mix of RUBiS itself, all items alike
    Bidding,
    /// RUBiS-C: half of the transactions are bids, on popular items
    Contended,
}

impl RubisOptions {
    /// Returns how uneven popularity is in the contended mix, at least one value; `None` in the bidding mix.
    pub fn alphas(&self) -> Option<&[f64]> {
        let alphas = if self.alpha.is_empty() { &[Mix::ALPHA][..] } else { &self.alpha };
        (self.mix == MixName::Contended).then_some(alphas)
    }

    /// Returns the parameters of the workload for one of the [popularities](RubisOptions::alphas).
    pub fn parameters(&self, alpha: Option<f64>) -> Parameters {
        let &RubisOptions { users, items, operations, .. } = self;
        let mix = alpha.map_or(Mix::Bidding, |alpha| Mix::Contended { alpha });
        Parameters { users, items, mix, operations: operations.is_on(), ..Parameters::default() }
    }
}
