//! Variants of `adaptive` for comparison in measurements. For example, `adaptive:unsplit` splits no records.

use weft_protocols::AdaptiveOptions;

use crate::variants::Variant;

const UNORDERED: &str = "adaptive:unordered";
const BY_RECORDS: &str = "adaptive:by-records";
const HELD: &str = "adaptive:held";
const UNSPLIT: &str = "adaptive:unsplit";
const NOTHING: &str = "adaptive:nothing";
const FORCED: &str = "adaptive:forced";

/// The variants.
pub static VARIANTS: [Variant; 6] = [
    Variant { name: UNORDERED, about: "transactions queue for nothing" },
    Variant { name: BY_RECORDS, about: "transactions queue for records, but not for ranges" },
    Variant { name: HELD, about: "turns at ranges last until the transaction's end" },
    Variant { name: UNSPLIT, about: "no record is split" },
    Variant {
        name: NOTHING,
        about: "nothing is done about contention: dbx in the phases of adaptive",
    },
    Variant { name: FORCED, about: "what is queued for changes at random, for tests" },
];

/// Returns the options of a variant; `None` if `contender` is not a variant.
pub fn options_of(contender: &str) -> Option<AdaptiveOptions> {
    let options = AdaptiveOptions::new();
    match contender {
        UNORDERED => Some(options.orders(false)),
        BY_RECORDS => Some(options.orders_ranges(false)),
        HELD => Some(options.releases_early(false)),
        UNSPLIT => Some(options.splits(false)),
        NOTHING => Some(options.orders(false).splits(false)),
        FORCED => Some(options.forced_by_seed(Some(0))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variants::protocol_of;

    #[test]
    fn every_variant_is_one_of_adaptive_with_options_of_its_own() {
        for variant in &VARIANTS {
            assert_eq!(protocol_of(variant.name), "adaptive");
            assert!(options_of(variant.name).is_some(), "{}", variant.name);
        }
        assert!(options_of("adaptive").is_none());
    }
}
