//! The counts of phases, for reports.

use std::time::Duration;

use serde::Serialize;
use weft::Metrics;

/// The counts of phases, between two points in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Phases {
    /// Split phases that began.
    pub split_phases: u64,
    /// Split phases that ended early, because a transaction waited.
    pub hurried: u64,
    /// Records that were split at the later point, or were to be split in the next split phase.
    pub split_records: u64,
    /// Rows that reconciliations replaced.
    pub reconciled_rows: u64,
    /// Transactions that accessed a split record.
    pub refused: u64,
    /// Those of them that were set aside while their threads ran other transactions.
    pub stashed: u64,
    /// The time of the split phases that ended, in milliseconds.
    pub split_ms: f64,
    /// Time in which no transaction ran, because the phase changed, in milliseconds.
    pub changing_ms: f64,
}

impl Phases {
    /// The headings of the columns of [`Phases::cells`].
    pub const HEADINGS: [&str; 8] =
        ["phases", "hurried", "split", "merged", "refused", "stashed", "split ms", "changing ms"];

    /// The explanation of the columns, for below a table.
    pub const LEGEND: &str = "phases: split phases; hurried: those that ended early, because a transaction \
         waited. split: records,\nat the end. merged: rows, by reconciliations. refused: transactions \
         that accessed a split record;\nstashed: those set aside while others ran.";

    /// Returns the counts so far; `None` under a protocol without phases.
    pub fn of(metrics: &Metrics) -> Option<Phases> {
        let phases = metrics.phases?;
        let milliseconds = |span: Duration| span.as_secs_f64() * 1e3;
        Some(Phases {
            split_phases: phases.split_phases,
            hurried: phases.hurried,
            split_records: phases.split_records,
            reconciled_rows: phases.reconciled_rows,
            refused: phases.refused,
            stashed: phases.stashed,
            split_ms: milliseconds(phases.split_time),
            changing_ms: milliseconds(phases.changing_time),
        })
    }

    /// Returns the difference to the earlier counts `before`.
    pub fn since(self, before: &Phases) -> Phases {
        Phases {
            split_phases: self.split_phases - before.split_phases,
            hurried: self.hurried - before.hurried,
            split_records: self.split_records,
            reconciled_rows: self.reconciled_rows - before.reconciled_rows,
            refused: self.refused - before.refused,
            stashed: self.stashed - before.stashed,
            split_ms: self.split_ms - before.split_ms,
            changing_ms: self.changing_ms - before.changing_ms,
        }
    }

    /// Returns the sum of these counts and of the `later` ones.
    pub fn and_then(self, later: &Phases) -> Phases {
        Phases {
            split_phases: self.split_phases + later.split_phases,
            hurried: self.hurried + later.hurried,
            split_records: later.split_records,
            reconciled_rows: self.reconciled_rows + later.reconciled_rows,
            refused: self.refused + later.refused,
            stashed: self.stashed + later.stashed,
            split_ms: self.split_ms + later.split_ms,
            changing_ms: self.changing_ms + later.changing_ms,
        }
    }

    /// Returns the cells of a table's row.
    pub fn cells(&self) -> [String; 8] {
        [
            self.split_phases.to_string(),
            self.hurried.to_string(),
            self.split_records.to_string(),
            self.reconciled_rows.to_string(),
            self.refused.to_string(),
            self.stashed.to_string(),
            format!("{:.1}", self.split_ms),
            format!("{:.2}", self.changing_ms),
        ]
    }
}

#[cfg(test)]
mod tests {
    use weft::Database;
    use weft::protocol::Silo;
    use weft_protocols::Doppel;

    use super::*;

    #[test]
    fn only_protocols_with_phases_have_any() {
        let with: Database<Doppel> = Database::builder().protocol::<Doppel>().open().unwrap();
        let without: Database<Silo> = Database::builder().protocol::<Silo>().open().unwrap();
        assert_eq!(Phases::of(&with.metrics()), Some(Phases::default()));
        assert_eq!(Phases::of(&without.metrics()), None);
    }

    #[test]
    fn spans_follow_each_other() {
        let at = |split_phases, split_records| Phases {
            split_phases,
            hurried: split_phases / 2,
            split_records,
            reconciled_rows: split_phases * 3,
            refused: split_phases * 5,
            stashed: split_phases * 4,
            split_ms: split_phases as f64 * 2.5,
            changing_ms: split_phases as f64 * 0.5,
        };
        let (first, second, third) = (at(2, 7), at(10, 4), at(16, 1));
        let (earlier, later) = (second.since(&first), third.since(&second));
        assert_eq!((earlier.split_phases, earlier.split_records), (8, 4));
        assert_eq!(earlier.and_then(&later), third.since(&first));
        assert_eq!(later.cells().join(" "), "6 3 1 18 30 24 15.0 3.00");
    }
}
