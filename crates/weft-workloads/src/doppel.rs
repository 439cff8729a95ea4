//! Variants of `doppel` for comparison in measurements. For example, under `doppel:one-merger` one worker merges the
//! slices of all others. `doppel:paper` has the mechanisms of the paper.

use weft_protocols::{Merging, PhaseOptions};

use crate::paper::{self, Mechanism};
use crate::variants::Variant;

const PAPER: &str = "doppel:paper";
const ONE_MERGER: &str = "doppel:one-merger";

/// How many requests a client sets aside at most under `doppel:paper`: more than there are in any phase.
const STASH_MAX: usize = 1 << 20;

/// The variants.
pub static VARIANTS: [Variant; 2] = [
    Variant { name: PAPER, about: "the mechanisms of the paper, or those of --paper" },
    Variant { name: ONE_MERGER, about: "one worker merges the slices of all others, which wait" },
];

/// The mechanisms of the paper.
pub static MECHANISMS: [Mechanism<PhaseOptions>; 6] = [
    Mechanism {
        name: "coordinator",
        about: "a thread of its own changes the phases",
        switch: PhaseOptions::has_coordinator,
    },
    Mechanism {
        name: "own-slices",
        about: "each worker merges its own slices, while others still run transactions",
        switch: |options, is_on| {
            options.merging(if is_on { Merging::OwnSlices } else { Merging::default() })
        },
    },
    Mechanism {
        name: "at-commit",
        about: "operations on split records are applied when the transaction commits",
        switch: PhaseOptions::applies_at_commit,
    },
    Mechanism {
        name: "stash",
        about: "all transactions that meet a split record are set aside; without it, clients wait",
        switch: |options, is_on| options.stash_capacity(if is_on { STASH_MAX } else { 0 }),
    },
    Mechanism {
        name: "whole-joined",
        about: "joined phases are as long as split ones",
        switch: PhaseOptions::has_whole_joined_phases,
    },
    Mechanism {
        name: "same-time",
        about: "conflicts are compared with the commits of the same time",
        switch: PhaseOptions::counts_same_time,
    },
];

/// Returns the options of a variant; `None` if `contender` is not a variant. `paper` selects among the mechanisms of
/// `doppel:paper`.
pub fn options_of(contender: &str, paper: &[String]) -> Option<PhaseOptions> {
    let options = PhaseOptions::new();
    match contender {
        PAPER => Some(paper::options(&MECHANISMS, options, paper)),
        ONE_MERGER => Some(options.merging(Merging::OneWorker)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variants::protocol_of;

    #[test]
    fn every_variant_is_one_of_doppel_with_options_of_its_own() {
        for variant in &VARIANTS {
            assert_eq!(protocol_of(variant.name), "doppel");
            assert!(options_of(variant.name, &[]).is_some(), "{}", variant.name);
        }
        assert!(options_of("doppel", &[]).is_none());
    }

    #[test]
    fn every_mechanism_changes_the_options() {
        let of = |paper: &[&str]| {
            let paper: Vec<String> = paper.iter().map(|&name| name.to_owned()).collect();
            format!("{:?}", options_of(PAPER, &paper).expect("it is a variant"))
        };
        let (all, none) = (of(&[]), of(&["none"]));
        for mechanism in &MECHANISMS {
            let one = of(&[mechanism.name]);
            assert!(one != none && one != all, "{}", mechanism.name);
        }
    }
}
