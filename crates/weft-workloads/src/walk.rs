//! Reading whole tables through transactions of a limited size.
//!
//! Of each row `pick` takes what is needed while the transaction is open, and `visit` is given it
//! once the transaction has committed, so that a transaction that is run again counts nothing
//! twice.

use std::ops::Bound;

use weft::protocol::Protocol;
use weft::schema::Record;
use weft::{Database, Error, Failure, Table};

use crate::workload::failure_of;

/// Rows read by one transaction.
const ROWS_MAX: usize = 4096;

/// Visits the rows of an ordered table from key `low` to key `high`, both included, in order.
pub(crate) fn rows<P: Protocol, R: Record, S>(
    database: &Database<P>,
    table: &Table<R>,
    (low, high): (R::Key, R::Key),
    pick: impl Fn(&R) -> S,
    mut visit: impl FnMut(S),
) -> Result<(), Failure> {
    let mut picked = Vec::with_capacity(ROWS_MAX);
    let mut start = Bound::Included(low);
    loop {
        let last = database
            .transact(|tx| {
                picked.clear();
                let mut last = None;
                let range = (start.clone(), Bound::Included(high.clone()));
                for row in tx.range(table, range).take(ROWS_MAX) {
                    let row = row?;
                    picked.push(pick(row));
                    last = Some(row.key());
                }
                Ok::<_, Error>(last)
            })
            .map_err(failure_of)?;
        let complete = picked.len() < ROWS_MAX;
        picked.drain(..).for_each(&mut visit);
        match last {
            Some(key) if !complete => start = Bound::Excluded(key),
            _ => return Ok(()),
        }
    }
}

/// Visits, for each of `keys`, what is picked of the row with this key, or `None` if there is no
/// such row. Under a protocol of single accesses each has a transaction of its own.
pub(crate) fn keys<P: Protocol, R: Record, S>(
    database: &Database<P>,
    table: &Table<R>,
    mut keys: impl Iterator<Item = R::Key>,
    pick: impl Fn(&R) -> S,
    mut visit: impl FnMut(R::Key, Option<S>),
) -> Result<(), Failure> {
    let rows_max = if P::SINGLE_KEY { 1 } else { ROWS_MAX };
    let mut wanted = Vec::with_capacity(rows_max);
    let mut picked = Vec::with_capacity(rows_max);
    loop {
        wanted.extend(keys.by_ref().take(rows_max));
        if wanted.is_empty() {
            return Ok(());
        }
        database
            .transact(|tx| {
                picked.clear();
                for key in &wanted {
                    picked.push(tx.get(table, key)?.map(&pick));
                }
                Ok::<_, Error>(())
            })
            .map_err(failure_of)?;
        wanted.drain(..).zip(picked.drain(..)).for_each(|(key, picked)| visit(key, picked));
    }
}
