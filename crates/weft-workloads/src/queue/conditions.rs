//! The invariants of the queue, checked on a database at rest.
//!
//! Entries are numbered without gaps, and the oldest is always taken first. So what is left has the numbers that
//! follow those consumed, up to the end, and the sum of the consumed numbers is known. An entry that is lost, that is
//! consumed twice, or that is taken before an older one breaks one of them.

use std::collections::HashMap;

use weft::{Failure, Snapshot};

use super::client::RequestSource;
use super::{CLIENTS_MAX, END, LOADER, Parameters, Participant, Tables};
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
    let (produced, consumed) = source.produced_and_consumed();
    let next = parameters.backlog + produced;

    let mut counted = Finding::new("the clients' counts are those of committed transactions");
    let mut ordered = Finding::new("each client consumed in the order of production");
    let mut once = Finding::new("the numbers consumed are the lowest, once each");
    let (mut counts, mut sum) = ((0, 0), 0_u128);
    let mut produced_by = HashMap::from([(LOADER, parameters.backlog)]);
    walk::keys(
        snapshot,
        &tables.clients,
        0..CLIENTS_MAX as u32,
        |id, row: Option<&Participant>| {
            ordered.check(
                row.is_some_and(|row| row.disordered == 0),
                format_args!("client {id}: {row:?}"),
            );
            if let Some(row) = row {
                counts = (counts.0 + row.produced, counts.1 + row.consumed);
                sum += u128::from(row.sum);
                produced_by.insert(id, row.produced);
            }
        },
    )?;
    let expected = (produced, consumed);
    counted.check(counts == expected, format_args!("{counts:?} and {expected:?}"));
    let of_first = u128::from(consumed) * u128::from(consumed.saturating_sub(1)) / 2;
    once.check(sum == of_first, format_args!("{consumed} with the sum {sum}, not {of_first}"));
    progress(1, 2);

    let mut at_end = Finding::new("the end has the number that follows the last entry");
    walk::keys(snapshot, &tables.end, std::iter::once(END), |_, row| {
        let found = row.map(|row| row.next);
        at_end.check(found == Some(next), format_args!("{found:?} and {next}"));
    })?;

    let mut left = Finding::new("the entries that are left are those not consumed, without gaps");
    let mut by_producer = Finding::new("each producer's entries are in the order of production");
    let mut numbers = consumed..next;
    let mut last = HashMap::new();
    for row in snapshot.rows(&tables.entries) {
        let row = row?;
        left.check(numbers.next() == Some(row.number), format_args!("{row:?}"));
        let before = last.insert(row.producer, row.sequence);
        let follows = before.is_none_or(|before| before + 1 == row.sequence);
        by_producer.check(follows, format_args!("{row:?} after {before:?}"));
    }
    left.check(numbers.is_empty(), format_args!("no entries {numbers:?}"));
    for (producer, sequence) in last {
        let produced = produced_by.get(&producer);
        let is_last = produced == Some(&sequence);
        by_producer.check(is_last, format_args!("{producer}: {sequence} and {produced:?}"));
    }
    by_producer.check(true, format_args!(""));
    progress(2, 2);
    Ok([counted, ordered, once, at_end, left, by_producer].map(Finding::into_condition).into())
}
