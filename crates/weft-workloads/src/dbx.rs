//! Variants of `dbx` for comparison in measurements: the paper's, whose mechanisms the option `--paper` selects, and its
//! counterpart with a spinlock.

use weft::protocol::Protocol;
use weft_protocols::{DbxPaper, DbxPaperOptions};

use crate::paper::{self, Mechanism};
use crate::variants::Variant;

/// The paper's protocol, which is a protocol of the list.
pub(crate) const PAPER: &str = DbxPaper::NAME;

const SPINLOCK: &str = "dbx-spin:paper";

/// The variants that are not in the list of protocols.
pub static VARIANTS: [Variant; 1] = [Variant {
    name: SPINLOCK,
    about: "dbx:paper with one spinlock for commits and reads, in place of their regions",
}];

/// The mechanisms of the paper.
pub const MECHANISMS: [Mechanism<DbxPaperOptions>; 6] = [
    Mechanism {
        name: "reads-in-regions",
        about: "a record is read in a region (Algorithm 2), not under a seqlock",
        switch: DbxPaperOptions::reads_in_regions,
    },
    Mechanism {
        name: "look-ups-in-regions",
        about: "a look-up in an index is a region",
        switch: DbxPaperOptions::look_ups_in_regions,
    },
    Mechanism {
        name: "absent-records",
        about: "a look-up of an absent key inserts an empty record",
        switch: DbxPaperOptions::absent_records,
    },
    Mechanism {
        name: "global-fallback",
        about: "regions fall back to one lock for the database, not to those of the records",
        switch: DbxPaperOptions::global_fallback,
    },
    Mechanism {
        name: "thresholds-by-cause",
        about: "regions give up after 100 conflicts, 10 times too large, or 2 system events, not after 100 of any",
        switch: DbxPaperOptions::thresholds_by_cause,
    },
    Mechanism {
        name: "versions-in-region",
        about: "versions for snapshots are numbered in the region of the commit",
        switch: DbxPaperOptions::versions_in_region,
    },
];

/// Returns the protocol of a variant.
pub(crate) fn protocol_of(contender: &str) -> Option<&'static str> {
    [PAPER, SPINLOCK].contains(&contender).then_some(PAPER)
}

/// Returns the options of a variant with the mechanisms that `paper`, the values of `--paper`, select; `None` if
/// `contender` is not a variant.
pub fn options_of(contender: &str, paper: &[String]) -> Option<DbxPaperOptions> {
    let options = || paper::options(&MECHANISMS, DbxPaperOptions::none(), paper);
    match contender {
        PAPER => Some(options()),
        SPINLOCK => Some(options().spinlock(true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variants;

    #[test]
    fn every_variant_runs_under_the_paper_s_protocol() {
        for contender in [PAPER, SPINLOCK] {
            assert_eq!(variants::protocol_of(contender), PAPER);
            assert!(options_of(contender, &[]).is_some(), "{contender}");
        }
        assert_eq!(options_of(PAPER, &[]), Some(DbxPaperOptions::new()));
        assert!(options_of("dbx", &[]).is_none() && options_of("dbx-spin", &[]).is_none());
    }

    #[test]
    fn every_mechanism_has_a_switch_of_its_own() {
        let only = |name: &str| options_of(PAPER, &[name.to_owned()]).expect("a variant");
        for one in &MECHANISMS {
            assert_ne!(only(one.name), DbxPaperOptions::none());
            let others = MECHANISMS.iter().filter(|other| other.name != one.name);
            assert!(others.map(|other| only(other.name)).all(|other| other != only(one.name)));
        }
    }
}
