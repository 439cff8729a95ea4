//! The invariants, checked on a database at rest.

use weft::{Failure, Snapshot};

use super::client::{Committed, RequestSource};
use super::{HOT_ROWS, LINE_LENGTH, Parameters, Spot, Tables};
use crate::finding::Finding;
use crate::walk;
use crate::workload::{Condition, Progress};

/// Checks every invariant.
pub(super) fn verify(
    snapshot: &Snapshot,
    tables: &Tables,
    parameters: &Parameters,
    source: &RequestSource,
    progress: Progress<'_>,
) -> Result<Vec<Condition>, Failure> {
    let Committed { transactions, taken, of_hot } = source.committed();
    let records = parameters.records;

    let mut hot = Finding::new("each hot row's value is the number of its committed changes");
    let mut others = Finding::new("other rows: each exists, and has no negative value");
    let mut all = Finding::new("the sum of the other rows' values is the number of transactions");
    let mut sum = 0_i128;
    walk::keys(snapshot, &tables.spots, 0..records, |id, row: Option<&Spot>| {
        let value = row.map(|row| row.value);
        if id < HOT_ROWS {
            let expected = of_hot[id as usize];
            let holds = value.is_some_and(|value| u64::try_from(value) == Ok(expected));
            hot.check(holds, format_args!("row {id}: {value:?} and {expected}"));
        } else {
            others
                .check(value.is_some_and(|value| value >= 0), format_args!("row {id}: {value:?}"));
            sum += i128::from(value.unwrap_or_default());
        }
        if id.is_multiple_of(4096) {
            progress(id, records);
        }
    })?;
    all.check(sum == i128::from(transactions), format_args!("{sum} and {transactions}"));

    let mut line =
        Finding::new("the line has its length, and begins after the rows that were taken");
    let mut numbers = taken..taken + LINE_LENGTH;
    for row in snapshot.rows(&tables.line) {
        let row = row?;
        line.check(numbers.next() == Some(row.number), format_args!("{row:?}"));
    }
    line.check(numbers.is_empty(), format_args!("no rows {numbers:?}"));
    progress(records, records);
    Ok([hot, others, all, line].map(Finding::into_condition).into())
}
