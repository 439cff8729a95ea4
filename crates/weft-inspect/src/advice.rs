//! Advice: one sentence on what to change in the program, from what is known of a point.
//!
//! What writers do is known from samples: the stored form of the row before and after the changes of some transactions.

use weft::ConflictReason;
use weft::description::{TableDescription, Value};

use crate::report::{Action, Extent, LabelReport, PointReport};
use crate::sketch::Point;

/// How many rows a transaction reads that had better read a snapshot.
const LONG_READER_ROWS: u64 = 50;

/// What the sampled changes of a row show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// The columns that were changed, in the table's order.
    pub columns: Vec<String>,
    /// How many samples there are.
    changes: usize,
    /// How the only changed column has changed, if it is one, and an integer.
    steps: Steps,
}

/// How an integer has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Steps {
    /// It is not an integer, or not the only column, or has gone up and down.
    #[default]
    Unknown,
    Up,
    Down,
}

impl Evidence {
    /// Returns what the changes of a point's row show.
    pub fn of(point: &Point, description: Option<&TableDescription>) -> Evidence {
        let mut evidence = Evidence::default();
        let Some(description) = description else { return evidence };
        let mut is_changed = vec![false; description.columns.len()];
        let mut steps = Vec::new();
        for (before, after) in &point.changes {
            let (Ok(before), Ok(after)) =
                (description.read_row(before), description.read_row(after))
            else {
                continue;
            };
            evidence.changes += 1;
            let changed = (0..before.len()).filter(|&column| before[column] != after[column]);
            for column in changed {
                is_changed[column] = true;
                steps.push(step(&before[column], &after[column]));
            }
        }
        let columns = description.columns.iter().zip(&is_changed);
        evidence.columns = columns
            .filter(|(_, is_changed)| **is_changed)
            .map(|(column, _)| column.name.clone())
            .collect();
        if evidence.columns.len() == 1 && !steps.is_empty() {
            let all = |wanted| steps.iter().all(|&step| step == wanted);
            evidence.steps = match (all(Steps::Up), all(Steps::Down)) {
                (true, _) => Steps::Up,
                (_, true) => Steps::Down,
                _ => Steps::Unknown,
            };
        }
        evidence
    }
}

fn step(before: &Value, after: &Value) -> Steps {
    let is_up = match (before, after) {
        (Value::Signed(before), Value::Signed(after)) => after > before,
        (Value::Unsigned(before), Value::Unsigned(after)) => after > before,
        _ => return Steps::Unknown,
    };
    if is_up { Steps::Up } else { Steps::Down }
}

/// Returns names as they are printed in a sentence.
fn quoted(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match &quoted[..] {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => quoted.concat(),
    }
}

/// Returns what to change in the program, if that can be said.
pub(crate) fn advise(
    report: &PointReport,
    point: &Point,
    evidence: &Evidence,
    labels: &[LabelReport],
    name_of: &dyn Fn(usize) -> String,
) -> Option<String> {
    let aborts = point.aborts();
    let of = |reason: ConflictReason| aborts[reason as usize];
    let total = aborts.iter().sum::<u64>();
    if report.action == Action::Split {
        return Some(
            "its operations are split among the workers; read it less often, or from a snapshot, \
             since readers end the split phases"
                .to_owned(),
        );
    }
    if point.repairs > total {
        return Some(
            "conflicts are repaired without another attempt: nothing needs to change".to_owned(),
        );
    }
    if total + point.waits == 0 {
        return None;
    }
    // A transaction that reads much and writes nothing loses against everyone who writes.
    let loser = point.labels.iter().max_by_key(|at| at.lost_ns);
    let loser = loser.map(|at| name_of(at.label)).unwrap_or_default();
    let reader = labels.iter().find(|label| label.label == loser).filter(|label| {
        label.rows_written == 0 && label.rows_read >= LONG_READER_ROWS * label.committed.max(1)
    });
    if let Some(reader) = reader {
        let rows = reader.rows_read / reader.committed.max(1);
        return Some(format!(
            "`{loser}` reads {rows} rows in each transaction and writes none: read from a snapshot"
        ));
    }
    let table = &report.table;
    match report.extent {
        Extent::Record => {}
        Extent::Range => {
            return Some(format!(
                "scans of `{table}` meet insertions and deletions in their range: scan less, from \
                 another position, or from a snapshot"
            ));
        }
        Extent::GoneRecords => {
            return Some(format!(
                "transactions take the same rows of `{table}`, as from the head of a queue: let \
                 each take from a range of its own, or several rows at a time"
            ));
        }
        Extent::ManyRecords => {
            return Some(format!(
                "each of many rows of `{table}` has a few conflicts: keep transactions short, and \
                 if new keys follow the greatest one, let the database generate them"
            ));
        }
    }
    let columns = quoted(&evidence.columns);
    let readers = of(ConflictReason::ReadChanged);
    if readers * 2 > total && !evidence.columns.is_empty() {
        let percent = readers * 100 / total;
        return Some(format!(
            "{percent} % of the conflicts are of readers, with writers of {columns}: read the other \
             columns by `get_columns`, write by `update_columns`, or divide the row"
        ));
    }
    match evidence.steps {
        Steps::Down => {
            return Some(format!(
                "all writers take from {columns}: use `take`, which commutes, and fails if too \
                 little is left"
            ));
        }
        Steps::Up => {
            return Some(format!(
                "all writers add to {columns}: use `add`, which commutes, where the result is not \
                 needed at once"
            ));
        }
        Steps::Unknown => {}
    }
    if readers * 2 > total {
        return Some("readers lose against writers: read from a snapshot".to_owned());
    }
    let written =
        if columns.is_empty() { String::new() } else { format!(", and change {columns}") };
    Some(format!(
        "many transactions write this row{written}: write it last, keep them short, or divide the \
         row among several"
    ))
}
