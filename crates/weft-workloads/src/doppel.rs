//! Variants of `doppel` for comparison in measurements. For example, under `doppel:one-merger` one worker merges the
//! slices of all others.

use weft_protocols::{Merging, PhaseOptions};

use crate::variants::Variant;

const ONE_MERGER: &str = "doppel:one-merger";

/// The variants.
pub static VARIANTS: [Variant; 1] =
    [Variant { name: ONE_MERGER, about: "one worker merges the slices of all others, which wait" }];

/// Returns the options of a variant; `None` if `contender` is not a variant.
pub fn options_of(contender: &str) -> Option<PhaseOptions> {
    let options = PhaseOptions::new();
    match contender {
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
            assert!(options_of(variant.name).is_some(), "{}", variant.name);
        }
        assert!(options_of("doppel").is_none());
    }
}
