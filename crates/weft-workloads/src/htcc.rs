//! Variants of `htcc` for comparison in measurements, and the counts of repairs for reports. For example,
//! `htcc:restart` restarts transactions instead of repairing them. `htcc:paper` has the mechanisms of the paper.

use serde::Serialize;
use weft::Metrics;
use weft_protocols::{HotRecords, HtccOptions};

use crate::paper::{self, Mechanism};
use crate::variants::Variant;

/// The variant with the mechanisms of the paper.
pub(crate) const PAPER: &str = "htcc:paper";
const DEPENDENCIES: &str = "htcc:dependencies";
const RESTART: &str = "htcc:restart";
const ALL_HOT: &str = "htcc:all-hot";
const NONE_HOT: &str = "htcc:none-hot";
const TABLES_HOT: &str = "htcc:tables-hot";
const UNVALIDATED: &str = "htcc:unvalidated";

/// The variants.
pub static VARIANTS: [Variant; 7] = [
    Variant { name: PAPER, about: "the mechanisms of the paper, or those of --paper" },
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

/// The mechanisms of the paper.
pub static MECHANISMS: [Mechanism<HtccOptions>; 5] = [
    Mechanism {
        name: "binding-locks",
        about: "a transaction that does not get the lock of a hot record in time aborts",
        switch: HtccOptions::binding_locks,
    },
    Mechanism {
        name: "two-phase-flip",
        about: "a record becomes hot or cold while no transaction accesses it, so binding locks replace validation",
        switch: HtccOptions::two_phase_flip,
    },
    Mechanism {
        name: "background",
        about: "a thread of its own makes records hot and cold, by all conflicts of a period",
        switch: HtccOptions::background,
    },
    Mechanism {
        name: "repair",
        about: "a transaction that fails its validation is repaired, and not restarted",
        switch: HtccOptions::repairs,
    },
    Mechanism {
        name: "dependencies",
        about: "procedures are repaired by their dependencies",
        switch: HtccOptions::dependencies,
    },
];

/// The values of `--hot-tables` for all tables, and for none, under `htcc:paper`.
const ALL_TABLES: &str = "all";
const NO_TABLES: &str = "none";

/// Why the variant that is not serializable is not verified.
pub const NOT_SERIALIZABLE: &str =
    "is deliberately not serializable: invariants may be violated, so --verify would prove nothing";

/// Returns whether a contender is serializable.
pub fn is_serializable(contender: &str) -> bool {
    contender != UNVALIDATED
}

/// Returns the hot records of `htcc:paper`: the set that is chosen by hand, if one is.
fn hot_records(hot_tables: &[String]) -> HotRecords {
    match hot_tables {
        [] => HotRecords::Automatic,
        [all] if all == ALL_TABLES => HotRecords::All,
        [none] if none == NO_TABLES => HotRecords::None,
        tables => HotRecords::Tables(tables.to_vec()),
    }
}

/// Returns the options of a variant; `None` if `contender` is not a variant. `hot_tables` are the tables whose
/// records are hot in the variants `htcc:tables-hot` and `htcc:paper`. `paper` selects among the mechanisms of the latter.
pub fn options_of(contender: &str, hot_tables: &[String], paper: &[String]) -> Option<HtccOptions> {
    let options = HtccOptions::new();
    match contender {
        PAPER => Some(paper::options(&MECHANISMS, options.hot(hot_records(hot_tables)), paper)),
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
            assert!(options_of(variant.name, &[], &[]).is_some(), "{}", variant.name);
        }
        assert_eq!(protocol_of("dbx"), "dbx");
        assert!(
            options_of("htcc", &[], &[]).is_none()
                && options_of("htcc:nothing", &[], &[]).is_none()
        );
        let tables = ["warehouse".to_owned()];
        let hot = options_of(TABLES_HOT, &tables, &[]).map(|options| options.hot);
        assert_eq!(hot, Some(HotRecords::Tables(tables.to_vec())));
    }

    #[test]
    fn hot_tables_are_the_set_by_hand_under_the_papers_variant() {
        let hot = |tables: &[&str]| {
            let tables: Vec<String> = tables.iter().map(|&name| name.to_owned()).collect();
            options_of(PAPER, &tables, &[]).expect("it is a variant").hot
        };
        assert_eq!(hot(&[]), HotRecords::Automatic);
        assert_eq!((hot(&["all"]), hot(&["none"])), (HotRecords::All, HotRecords::None));
        let tables = vec!["warehouse".to_owned(), "district".to_owned()];
        assert_eq!(hot(&["warehouse", "district"]), HotRecords::Tables(tables));
    }

    #[test]
    fn every_mechanism_changes_the_options() {
        let of = |paper: &[&str]| {
            let paper: Vec<String> = paper.iter().map(|&name| name.to_owned()).collect();
            format!("{:?}", options_of(PAPER, &[], &paper).expect("it is a variant"))
        };
        let (all, none) = (of(&[]), of(&["none"]));
        for mechanism in &MECHANISMS {
            let one = of(&[mechanism.name]);
            assert!(one != none && one != all, "{}", mechanism.name);
        }
    }
}
