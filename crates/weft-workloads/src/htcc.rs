//! Variants of `htcc` for comparison in measurements, and the counts of repairs for reports. For example,
//! `htcc:restart` restarts transactions instead of repairing them.

use serde::Serialize;
use weft::Metrics;
use weft_protocols::{HotRecords, HtccOptions};

use crate::variants::Variant;

const DEPENDENCIES: &str = "htcc:dependencies";
const RESTART: &str = "htcc:restart";
const ALL_HOT: &str = "htcc:all-hot";
const NONE_HOT: &str = "htcc:none-hot";
const TABLES_HOT: &str = "htcc:tables-hot";
const UNVALIDATED: &str = "htcc:unvalidated";

/// The variants.
pub static VARIANTS: [Variant; 6] = [
    Variant {
        name: DEPENDENCIES,
        about: "procedures are repaired by their dependencies (the paper's HTCC)",
    },
    Variant { name: RESTART, about: "transactions are restarted, not repaired (HTCC(-SC))" },
    Variant { name: ALL_HOT, about: "all records are hot: locks, and validation" },
    Variant { name: NONE_HOT, about: "no record is hot: dbx with repair" },
    Variant { name: TABLES_HOT, about: "the records of --hot-tables are hot, and no others" },
    Variant {
        name: UNVALIDATED,
        about: "reads are not validated (HTCC(NV)): not serializable, an upper bound for comparison",
    },
];

/// Why the variant that is not serializable is not verified.
pub const NOT_SERIALIZABLE: &str =
    "is deliberately not serializable: invariants may be violated, so --verify would prove nothing";

/// Returns whether a contender is serializable.
pub fn is_serializable(contender: &str) -> bool {
    contender != UNVALIDATED
}

/// Returns the options of a variant; `None` if `contender` is not a variant. `hot_tables` are the tables whose
/// records are hot in the variant `htcc:tables-hot`.
pub fn options_of(contender: &str, hot_tables: &[String]) -> Option<HtccOptions> {
    let options = HtccOptions::new();
    match contender {
        DEPENDENCIES => Some(options.dependencies(true)),
        RESTART => Some(options.repairs(false)),
        ALL_HOT => Some(options.hot(HotRecords::All)),
        NONE_HOT => Some(options.hot(HotRecords::None)),
        TABLES_HOT => Some(options.hot(HotRecords::Tables(hot_tables.to_vec()))),
        UNVALIDATED => Some(options.validates(false)),
        _ => None,
    }
}

/// The counts of repairs, between two points in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repairs {
    /// Repairs of transactions.
    pub repairs: u64,
    /// Operations that ran again on the record found before (fast restoration).
    pub fast: u64,
    /// Operations that used the index again (slow restoration).
    pub slow: u64,
    /// Operations that did not run again, because no stale read affects them.
    pub kept: u64,
}

impl Repairs {
    /// The headings of the columns of [`Repairs::cells`].
    pub const HEADINGS: [&str; 6] =
        ["repairs", "per 1000 commits", "fast", "slow", "kept", "look-ups saved"];

    /// The explanation of the columns, for below a table.
    pub const LEGEND: &str = "repairs: transactions that were repaired instead of aborted. Their operations ran again\n\
         fast: on the record found before; slow: by the index; kept: did not run again.";

    /// Returns the counts so far.
    pub fn of(metrics: &Metrics) -> Repairs {
        let repairs = metrics.repairs;
        Repairs {
            repairs: repairs.repairs,
            fast: repairs.fast,
            slow: repairs.slow,
            kept: repairs.kept,
        }
    }

    /// Returns the difference to the earlier counts `before`.
    pub fn since(self, before: &Repairs) -> Repairs {
        Repairs {
            repairs: self.repairs - before.repairs,
            fast: self.fast - before.fast,
            slow: self.slow - before.slow,
            kept: self.kept - before.kept,
        }
    }

    /// Returns the sum of these counts and of the `later` ones.
    pub fn and_then(self, later: &Repairs) -> Repairs {
        Repairs {
            repairs: self.repairs + later.repairs,
            fast: self.fast + later.fast,
            slow: self.slow + later.slow,
            kept: self.kept + later.kept,
        }
    }

    /// Returns the counts, or `None` without repairs.
    pub fn any(self) -> Option<Repairs> {
        (self.repairs > 0).then_some(self)
    }

    /// Returns the share of the operations of repaired rounds that needed no look-up in an index.
    pub fn saved(&self) -> f64 {
        let (saved, all) = (self.fast + self.kept, self.fast + self.slow + self.kept);
        if all == 0 { 0.0 } else { saved as f64 / all as f64 }
    }

    /// Returns the cells of a table's row. `committed` is the number of all commits.
    pub fn cells(&self, committed: u64) -> [String; 6] {
        [
            self.repairs.to_string(),
            format!("{:.1}", self.repairs as f64 * 1e3 / committed.max(1) as f64),
            self.fast.to_string(),
            self.slow.to_string(),
            self.kept.to_string(),
            format!("{:.1} %", self.saved() * 100.0),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variants::protocol_of;

    #[test]
    fn spans_of_repairs_follow_each_other() {
        let at = |repairs| Repairs { repairs, fast: repairs * 6, slow: repairs, kept: repairs * 3 };
        let (earlier, later) = (at(10).since(&at(4)), at(14).since(&at(10)));
        assert_eq!(earlier.and_then(&later), at(10));
        assert_eq!(at(10).cells(200).join(" "), "10 50.0 60 10 30 90.0 %");
        assert_eq!((at(0).any(), at(1).any(), at(0).saved()), (None, Some(at(1)), 0.0));
    }

    #[test]
    fn every_variant_is_one_of_htcc_with_options_of_its_own() {
        for variant in &VARIANTS {
            assert_eq!(protocol_of(variant.name), "htcc");
            assert!(options_of(variant.name, &[]).is_some(), "{}", variant.name);
        }
        assert_eq!(protocol_of("dbx"), "dbx");
        assert!(options_of("htcc", &[]).is_none() && options_of("htcc:nothing", &[]).is_none());
        let tables = ["warehouse".to_owned()];
        let hot = options_of(TABLES_HOT, &tables).map(|options| options.hot);
        assert_eq!(hot, Some(HotRecords::Tables(tables.to_vec())));
    }
}
