//! Aborted attempts by the table of the conflict, for reports.

use std::fmt;

use serde::{Serialize, Serializer};
use weft::Metrics;

/// Counts of aborts by table, between two points in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbortsByTable(Vec<(&'static str, u64)>);

/// The aborts of one table.
#[derive(Serialize)]
struct OfTable {
    /// The number of aborts.
    aborts: u64,
    /// The share of all aborts; `None` without aborts.
    share: Option<f64>,
}

impl AbortsByTable {
    /// Returns the counts so far.
    pub fn of(metrics: &Metrics) -> AbortsByTable {
        AbortsByTable(metrics.aborted_by_table.clone())
    }

    /// Returns the difference to the earlier counts `before`, which are of the same tables.
    pub fn since(mut self, before: &AbortsByTable) -> AbortsByTable {
        self.0.iter_mut().zip(&before.0).for_each(|(table, before)| table.1 -= before.1);
        self
    }

    /// Returns the sum of these counts and of the `later` ones.
    pub fn and_then(mut self, later: &AbortsByTable) -> AbortsByTable {
        self.0.iter_mut().zip(&later.0).for_each(|(table, later)| table.1 += later.1);
        self
    }

    /// Returns the counts, or `None` if there was no abort.
    pub fn any(self) -> Option<AbortsByTable> {
        (self.total() > 0).then_some(self)
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|(_, aborts)| aborts).sum()
    }
}

/// Writes one line: the tables with the most aborts, and their shares.
impl fmt::Display for AbortsByTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let percent = |aborts: u64| 100.0 * aborts as f64 / self.total() as f64;
        let mut tables = self.0.clone();
        tables.retain(|(_, aborts)| *aborts > 0);
        tables.sort_by_key(|&(_, aborts)| std::cmp::Reverse(aborts));
        for (position, &(table, aborts)) in tables.iter().take(SHOWN).enumerate() {
            let comma = if position > 0 { ", " } else { "" };
            write!(formatter, "{comma}{table} {:.1} %", percent(aborts))?;
        }
        match tables.iter().skip(SHOWN).map(|(_, aborts)| aborts).sum() {
            0 => Ok(()),
            others => write!(formatter, ", others {:.1} %", percent(others)),
        }
    }
}

/// Serializes a map from each table, in the order of declaration, to its counts.
impl Serialize for AbortsByTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let total = self.total();
        let share = |aborts| (total > 0).then(|| aborts as f64 / total as f64);
        let tables = self.0.iter();
        serializer.collect_map(
            tables.map(|&(table, aborts)| (table, OfTable { aborts, share: share(aborts) })),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(counts: [u64; 6]) -> AbortsByTable {
        let names = ["warehouse", "district", "stock", "customer", "item", "order"];
        AbortsByTable(names.into_iter().zip(counts).collect())
    }

    #[test]
    fn spans_of_aborts_follow_each_other() {
        let (first, second) = (at([1, 0, 2, 0, 0, 0]), at([4, 5, 2, 0, 0, 1]));
        let between = second.clone().since(&first);
        assert_eq!(between, at([3, 5, 0, 0, 0, 1]));
        assert_eq!(first.and_then(&between), second);
        assert_eq!((at([0; 6]).any(), at([0, 1, 0, 0, 0, 0]).any().is_some()), (None, true));
    }

    #[test]
    fn the_tables_with_the_most_aborts_come_first() {
        assert_eq!(at([0, 3, 0, 0, 0, 1]).to_string(), "district 75.0 %, order 25.0 %");
        let all = at([50, 30, 10, 5, 3, 2]).to_string();
        assert_eq!(
            all,
            "warehouse 50.0 %, district 30.0 %, stock 10.0 %, customer 5.0 %, others 5.0 %"
        );
    }

    #[test]
    fn each_table_has_its_count_and_its_share() {
        let json = serde_json::to_value(at([3, 0, 0, 0, 0, 1])).expect("plain values");
        assert_eq!(json["warehouse"], serde_json::json!({"aborts": 3, "share": 0.75}));
        assert_eq!(json["item"], serde_json::json!({"aborts": 0, "share": 0.0}));
        let none = serde_json::to_value(at([0; 6])).expect("plain values");
        assert!(none["item"]["share"].is_null());
    }
}
