//! Variants of `dbx-tc` for comparison in measurements, and the counts of pieces for reports. For example,
//! `dbx-tc:unchopped` runs each procedure as one piece and does not use columns, and `dbx-tc:deferred` defers all
//! that may be deferred.
//!
//! A workload's [procedures](crate::procedures) are registered when its database is opened. Other transactions, and
//! those that only read, never run while a procedure is between two pieces.

use serde::Serialize;
use weft::Metrics;
use weft_procedures::chopping::Options;
use weft_protocols::DbxTcOptions;

use crate::paper::{self, Mechanism};
use crate::variants::Variant;

/// The paper's protocol.
pub(crate) const PAPER: &str = "dbx-tc:paper";

const UNCHOPPED: &str = "dbx-tc:unchopped";
const FINEST: &str = "dbx-tc:finest";
const BY_ROWS: &str = "dbx-tc:by-rows";
const REGIONS: &str = "dbx-tc:regions";
const DEFERRED: &str = "dbx-tc:deferred";
const WITH_READERS: &str = "dbx-tc:with-readers";

/// The variants.
pub static VARIANTS: [Variant; 7] = [
    Variant { name: PAPER, about: "DBX-TC with the mechanisms of its paper, chosen by --paper" },
    Variant {
        name: UNCHOPPED,
        about: "each procedure runs as one piece, as other transactions do",
    },
    Variant {
        name: FINEST,
        about: "each piece commits alone, even where it could commit together with its neighbour",
    },
    Variant {
        name: BY_ROWS,
        about: "the same, and a change of a row conflicts with accesses to all its columns",
    },
    Variant {
        name: REGIONS,
        about: "each piece commits alone, as one hardware region, which keeps no read set",
    },
    Variant {
        name: DEFERRED,
        about: "everything that may be done later is deferred, so that fewer steps share a piece",
    },
    Variant {
        name: WITH_READERS,
        about: "procedures that only read are chopped together with the others, not kept apart",
    },
];

/// The mechanisms of the paper.
pub const MECHANISMS: [Mechanism<DbxTcOptions>; 7] = [
    Mechanism {
        name: "pieces-in-regions",
        about: "a piece is a region, without a read set, not a small transaction",
        switch: DbxTcOptions::in_regions,
    },
    Mechanism {
        name: "single-pieces",
        about: "each piece commits alone, even where it could commit together with its neighbour",
        switch: DbxTcOptions::finest,
    },
    Mechanism {
        name: "database-cache",
        about: "a region puts new records into a cache, from which they go to the indexes after it",
        switch: DbxTcOptions::database_cache,
    },
    Mechanism {
        name: "partition-locks",
        about: "a piece that is no region locks its tables' partitions, not only the rows it writes",
        switch: DbxTcOptions::partition_locks,
    },
    Mechanism {
        name: "deferred-execution",
        about: "changes that only other transactions read are published at the end of an epoch",
        switch: |options, deferral| {
            let chopping = Options { deferral, ..options.chopping };
            options.chopping(chopping)
        },
    },
    Mechanism {
        name: "readers-on-snapshots",
        about: "procedures that only read are not chopped with the others; needs --snapshots on or recent",
        switch: |options, snapshots| {
            let chopping = Options { snapshots, ..options.chopping };
            options.chopping(chopping)
        },
    },
    Mechanism {
        name: "eventual-snapshots",
        about: "a snapshot is drawn at once, and what is between two pieces is redone or undone on it",
        switch: DbxTcOptions::eventual_snapshots,
    },
];

/// Returns the options of a variant, without the workload's procedures; `None` if `contender` is not a variant. `paper`
/// selects among the mechanisms of `dbx-tc:paper`.
pub fn options_of(contender: &str, paper: &[String]) -> Option<DbxTcOptions> {
    let options = DbxTcOptions::new();
    match contender {
        PAPER => Some(paper::options(&MECHANISMS, options, paper)),
        UNCHOPPED => Some(options.in_pieces(false).by_columns(false)),
        FINEST => Some(options.finest(true)),
        BY_ROWS => Some(options.finest(true).by_columns(false)),
        REGIONS => Some(options.finest(true).in_regions(true)),
        DEFERRED => Some(options.chopping(Options::ALL)),
        WITH_READERS => {
            Some(options.chopping(Options { snapshots: false, deferral: false, ..Options::ALL }))
        }
        _ => None,
    }
}

/// The counts of pieces, between two points in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pieces {
    /// Procedures that committed in several pieces.
    pub committed: u64,
    /// Retries of a piece after the first.
    pub redone: u64,
    /// Commits that were tried again at once, on top of what other transactions had changed in the meantime.
    pub carried_over: u64,
    /// Changes that were deferred.
    pub deferred: u64,
}

impl Pieces {
    /// The headings of the columns of [`Pieces::cells`].
    pub const HEADINGS: [&str; 5] =
        ["in pieces", "of commits", "pieces redone", "carried over", "deferred"];

    /// The explanation of the columns, for below a table.
    pub const LEGEND: &str = "in pieces: procedures that committed in several pieces; the others had one \
         piece, or ran as one\nbeside a transaction that is not a registered procedure, or a snapshot. carried over: \
         commits\nthat were tried again at once, on top of what others had changed in the meantime.";

    /// Returns the counts so far.
    pub fn of(metrics: &Metrics) -> Pieces {
        Pieces {
            committed: metrics.committed_in_pieces,
            redone: metrics.pieces_redone,
            carried_over: metrics.carried_over,
            deferred: metrics.deferred,
        }
    }

    /// Returns the difference to the earlier counts `before`.
    pub fn since(self, before: &Pieces) -> Pieces {
        self.with(before, |now, before| now - before)
    }

    /// Returns the sum of these counts and of the `later` ones.
    pub fn and_then(self, later: &Pieces) -> Pieces {
        self.with(later, |one, other| one + other)
    }

    fn with(self, other: &Pieces, combine: impl Fn(u64, u64) -> u64) -> Pieces {
        Pieces {
            committed: combine(self.committed, other.committed),
            redone: combine(self.redone, other.redone),
            carried_over: combine(self.carried_over, other.carried_over),
            deferred: combine(self.deferred, other.deferred),
        }
    }

    /// Returns the counts, or `None` if all are 0.
    pub fn any(self) -> Option<Pieces> {
        (self != Pieces::default()).then_some(self)
    }

    /// Returns the cells of a table's row. `committed` is the number of all commits.
    pub fn cells(&self, committed: u64) -> [String; 5] {
        [
            self.committed.to_string(),
            format!("{:.1} %", self.committed as f64 * 100.0 / committed.max(1) as f64),
            self.redone.to_string(),
            self.carried_over.to_string(),
            self.deferred.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variants::protocol_of;

    #[test]
    fn spans_of_pieces_follow_each_other() {
        let at = |committed| Pieces {
            committed,
            redone: committed / 2,
            carried_over: committed * 3,
            deferred: committed / 5,
        };
        let (earlier, later) = (at(10).since(&at(4)), at(14).since(&at(10)));
        assert_eq!(earlier.and_then(&later), at(14).since(&at(4)));
        assert_eq!(at(50).cells(200).join(" "), "50 25.0 % 25 150 10");
        assert_eq!((at(0).any(), at(1).any()), (None, Some(at(1))));
    }

    #[test]
    fn every_variant_is_one_of_dbx_tc_with_options_of_its_own() {
        for variant in &VARIANTS {
            assert_eq!(protocol_of(variant.name), "dbx-tc");
            assert!(options_of(variant.name, &[]).is_some(), "{}", variant.name);
        }
        assert!(["dbx-tc", "dbx-tc:nothing"].iter().all(|name| options_of(name, &[]).is_none()));
    }
}
