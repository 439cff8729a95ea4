//! The invariants, and how they are checked after a run.
//!
//! 1. *The rows are the loaded ones and those whose insertion has committed*: each of them exists, and (in a tree)
//!    no other row. A lost or doubled insertion breaks this.
//! 2. *The counters' sum is the number of committed read-modify-writes.* Each committed one has added 1 to some
//!    row's counter. A lost update, or one that was rolled back in part, breaks this.
//! 3. *Every row is intact*: its filler matches its key and counter. A torn row breaks this.

use crate::workload::Condition;

use super::client::Ledgers;
use super::row::Row;

/// The findings of the walk through the rows.
pub(super) struct Survey {
    rows: u64,
    expected: u64,
    counters: u64,
    strange: Option<String>,
    torn: Option<String>,
}

impl Survey {
    pub(super) fn new() -> Survey {
        Survey { rows: 0, expected: 0, counters: 0, strange: None, torn: None }
    }

    /// Adds one comparison: the key that is expected next, if any, and the row that was found there, if any.
    pub(super) fn add<R: Row>(&mut self, expected: Option<u64>, found: Option<&R>) {
        self.expected += u64::from(expected.is_some());
        if found.map(|row| row.key()) != expected {
            self.strange.get_or_insert_with(|| match (expected, found) {
                (Some(key), None) => format!("no row with key {key}"),
                (None, Some(row)) => format!("a row that no client has inserted: {row:?}"),
                (_, row) => format!("instead of key {expected:?}: {row:?}"),
            });
        }
        let Some(row) = found else { return };
        self.rows += 1;
        self.counters += row.counter();
        if !row.is_whole() {
            self.torn.get_or_insert_with(|| format!("{row:?}"));
        }
    }

    /// Returns the conditions, each with its result.
    pub(super) fn conditions(self, ledgers: &Ledgers) -> Vec<Condition> {
        let modified = ledgers.modified();
        let sums_differ = self.counters != modified;
        vec![
            Condition {
                name: "the rows are those loaded and inserted".to_owned(),
                holds: self.strange.is_none(),
                checked: self.expected,
                detail: self
                    .strange
                    .map(|strange| format!("{} rows of {}; {strange}", self.rows, self.expected)),
            },
            Condition {
                name: "the counters' sum is the number of committed read-modify-writes".to_owned(),
                holds: !sums_differ,
                checked: 1,
                detail: sums_differ.then(|| format!("{} and {modified}", self.counters)),
            },
            Condition {
                name: "every row's filler matches its key and counter".to_owned(),
                holds: self.torn.is_none(),
                checked: self.rows,
                detail: self.torn,
            },
        ]
    }
}

/// Returns the keys for which there should be rows, in ascending order.
pub(super) fn expected_keys(
    records: u64,
    ledgers: &Ledgers,
) -> impl Iterator<Item = u64> + Clone + use<> {
    let inserted = ledgers.inserted().into_iter().flat_map(|(first, end)| first..end);
    (0..records).chain(inserted)
}
