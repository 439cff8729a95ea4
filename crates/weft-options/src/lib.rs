//! The options of Weft's workloads, and the parameters that they stand for: one module for each workload.
//!
//! `cargo lab bench`, `weft bench` and `cargo simulate` flatten them into their own arguments. If one of these
//! commands takes several values of an option, the option is defined here for a single value, and [`several`]
//! changes that. An option that only one command has, or that has another unit there, is defined in that
//! command.
//!
//! [`values`] has the parsers of values, and [`protocols`] what takes part in benchmarks.

pub mod articles;
pub mod bank;
pub mod flash_sale;
pub mod incr;
pub mod like;
pub mod locks;
pub mod mixture;
pub mod protocols;
pub mod queue;
pub mod rtm;
pub mod rubis;
pub mod shift;
pub mod tatp;
pub mod tpcc;
pub mod values;
pub mod ycsb;

use clap::builder::{Resettable, StyledStr};
use clap::{Arg, ArgAction, Args, ValueEnum};
use weft_workloads::snapshots::Snapshots;

use values::{Parser, number};

/// The most uneven popularity: the first key then gets 96 % of all accesses.
const POPULARITY_MAX: f64 = 5.0;

/// Returns a parser for how uneven popularity is.
pub fn popularity() -> impl Parser<f64> {
    number(0.0..=POPULARITY_MAX, "a number")
}

/// Makes the options of these names take several values. For clap's `mut_args`.
pub fn several(names: &'static [&'static str]) -> impl Fn(Arg) -> Arg {
    move |arg| {
        if names.contains(&arg.get_id().as_str()) { taking_several(arg) } else { arg }
    }
}

fn taking_several(arg: Arg) -> Arg {
    let said = |text: Option<&StyledStr>| -> Resettable<StyledStr> {
        let text = text.map(ToString::to_string);
        let text = text.map(|text| {
            let (first, rest) = text.split_at(text.find("\n\n").unwrap_or(text.len()));
            format!("{first}; several values, separated by commas, take turns{rest}").into()
        });
        text.into()
    };
    let (help, long_help) = (said(arg.get_help()), said(arg.get_long_help()));
    arg.value_delimiter(',').action(ArgAction::Append).help(help).long_help(long_help)
}

/// Whether a feature of a workload is on.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Switch {
    /// No
    Off,
    /// Yes
    On,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }

    /// Returns the name that the command line and the JSON use.
    pub fn name(self) -> &'static str {
        if self.is_on() { "on" } else { "off" }
    }

    /// Returns what a title says of commutative operations: nothing if they are used.
    pub fn of_operations(self) -> &'static str {
        if self.is_on() { "" } else { ", without commutative operations" }
    }
}

/// The option for the snapshots on which a workload reads.
#[derive(Args, Clone, Debug)]
pub struct SnapshotsOptions {
    /// Run transactions that only read on snapshots: `off`, `on` or `recent`
    ///
    /// A snapshot has no conflicts, so a transaction on it is never retried. `on` opens a snapshot of the
    /// present state for each transaction. With `recent` all transactions share one snapshot. It is renewed
    /// every 40 ms or, with a log, whenever the log ends an epoch.
    #[arg(long, value_name = "off|on|recent", action = ArgAction::Set, default_value = "off")]
    #[arg(num_args = 0..=1, default_missing_value = "on")]
    pub snapshots: Vec<Snapshots>,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    /// A command that has only these options.
    #[derive(Debug, Parser)]
    struct Only<O: Args> {
        #[command(flatten)]
        options: O,
    }

    /// A command some of whose options take several values.
    #[derive(Debug, Parser)]
    #[command(mut_args(several(&["hot", "alpha"])))]
    struct Several {
        #[command(flatten)]
        options: incr::IncrOptions,
    }

    #[test]
    fn definitions_are_consistent() {
        Only::<articles::ArticlesOptions>::command().debug_assert();
        Only::<bank::BankOptions>::command().debug_assert();
        Only::<flash_sale::FlashSaleOptions>::command().debug_assert();
        Only::<incr::IncrOptions>::command().debug_assert();
        Only::<like::LikeOptions>::command().debug_assert();
        Only::<locks::LocksOptions>::command().debug_assert();
        Only::<mixture::MixtureOptions>::command().debug_assert();
        Only::<queue::QueueOptions>::command().debug_assert();
        Only::<rtm::RtmOptions>::command().debug_assert();
        Only::<rubis::RubisOptions>::command().debug_assert();
        Only::<shift::ShiftOptions>::command().debug_assert();
        Only::<tatp::TatpOptions>::command().debug_assert();
        Only::<tpcc::TpccOptions>::command().debug_assert();
        Only::<ycsb::YcsbOptions>::command().debug_assert();
    }

    #[test]
    fn options_take_one_value_or_several() {
        let one = |arguments: &[&str]| Only::<incr::IncrOptions>::parse_from(arguments).options;
        assert_eq!(one(&["test"]).values(), [100.0]);
        assert_eq!(one(&["test", "--alpha", "1.4"]).values(), [1.4]);
        let many = |arguments: &[&str]| Several::parse_from(arguments).options;
        assert_eq!(many(&["test"]).values(), [100.0]);
        assert_eq!(many(&["test", "--hot", "0,50,100"]).values(), [0.0, 50.0, 100.0]);
        for arguments in
            [&["test", "--alpha", "1,2"][..], &["test", "--alpha", "1", "--alpha", "2"]]
        {
            assert!(Only::<incr::IncrOptions>::try_parse_from(arguments).is_err());
        }
    }

    #[test]
    fn an_option_that_takes_several_values_says_so() {
        let arg = Arg::new("alpha").help("How uneven").long_help("How uneven\n\nIt is.");
        let arg = taking_several(arg);
        let [help, long_help] = [arg.get_help(), arg.get_long_help()]
            .map(|text| text.expect("it has both texts").to_string());
        assert_eq!(help, "How uneven; several values, separated by commas, take turns");
        assert_eq!(long_help, format!("{help}\n\nIt is."));
    }

    #[test]
    fn snapshots_without_a_value_are_on() {
        let reading =
            |arguments: &[&str]| Only::<SnapshotsOptions>::parse_from(arguments).options.snapshots;
        assert_eq!(reading(&["test"]), [Snapshots::Off]);
        assert_eq!(reading(&["test", "--snapshots"]), [Snapshots::On]);
        assert_eq!(reading(&["test", "--snapshots", "recent"]), [Snapshots::Recent]);
    }
}
