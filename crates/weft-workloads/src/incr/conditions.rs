//! The invariants of INCR1 and INCRZ, checked on a database at rest.
//!
//! Every committed transaction has added 1 to one value. So an increment that was lost or done twice breaks the
//! sum. The clients also know how often they have incremented each popular counter, so an increment of a wrong
//! counter breaks that counter's value.

use weft::{Failure, Snapshot, Table};

use super::client::Choice;
use super::{Counter, Parameters, key_of};
use crate::finding::Finding;
use crate::walk;
use crate::workload::{Condition, Progress};

/// Checks every invariant.
pub(super) fn verify(
    snapshot: &Snapshot,
    (counters, parameters, choice): (&Table<Counter>, &Parameters, &Choice),
    progress: Progress<'_>,
) -> Result<Vec<Condition>, Failure> {
    let mut present = Finding::new("every counter exists, and none is negative");
    let mut total = Finding::new("the values' sum is the number of committed increments");
    let mut each = Finding::new("each popular counter's value is the number of increments of it");
    let records = parameters.records;
    let (mut sum, mut record) = (0_i128, 0_u64);
    let visit = |key, row: Option<&Counter>| {
        let value = row.map(|row| row.value);
        let holds = value.is_some_and(|value| value >= 0);
        present.check(holds, format_args!("record {record}, key {key:#034x}: {value:?}"));
        sum += i128::from(value.unwrap_or(0));
        record += 1;
        if record.is_multiple_of(4096) {
            progress(record, records);
        }
    };
    let keys = (0..records).map(key_of);
    walk::keys(snapshot, counters, keys, visit)?;

    let (increments, of_popular) = choice.ledgers.changes();
    total.check(sum == i128::from(increments), format_args!("{sum} and {increments}"));
    let popular = choice.popular.iter().zip(of_popular);
    let mut expected = popular.clone();
    let visit = |key, row: Option<&Counter>| {
        let value = row.map(|row| row.value);
        let (record, increments) = expected.next().expect("as many as there are keys");
        let holds = value.is_some_and(|value| u64::try_from(value) == Ok(increments));
        each.check(
            holds,
            format_args!("record {record}, key {key:#034x}: {value:?} and {increments}"),
        );
    };
    let keys = popular.map(|(&record, _)| key_of(record));
    walk::keys(snapshot, counters, keys, visit)?;
    progress(records, records);
    Ok([present, total, each].map(Finding::into_condition).into())
}
