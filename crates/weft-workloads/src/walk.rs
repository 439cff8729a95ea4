//! Look-ups of many rows of a database at rest, on a snapshot, so that the code is compiled once for all protocols.

use weft::schema::Record;
use weft::{Failure, Snapshot, Table};

/// Visits, for each of `keys`, the row with this key, or `None` if there is no such row.
pub(crate) fn keys<R: Record>(
    snapshot: &Snapshot,
    table: &Table<R>,
    keys: impl Iterator<Item = R::Key> + Clone,
    mut visit: impl FnMut(R::Key, Option<&R>),
) -> Result<(), Failure> {
    for (key, row) in keys.clone().zip(snapshot.get_many(table, keys)?) {
        visit(key, row?);
    }
    Ok(())
}
