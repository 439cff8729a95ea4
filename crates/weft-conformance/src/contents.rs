//! The contents of a database before and after a run.

use crate::step::{GENERATED, HASHED, LINES, State, Step, StepResult};
use crate::subject::{Steps, Stop, Store};

/// Puts rows into a database.
///
/// # Panics
/// If they already exist.
pub fn fill(store: &dyn Store, initial: &[(u64, i64)]) {
    let filled = store.transact(&mut |tx| {
        for &(key, value) in initial {
            assert_eq!(tx.take(Step::Insert(key, value))?, StepResult::Happened(true), "key {key}");
        }
        Ok(())
    });
    filled.expect("no other transaction is running");
}

/// Returns all rows of a database. Nothing else may be running.
///
/// # Panics
/// If the engine fails.
pub fn rows(store: &dyn Store) -> State {
    let mut found = State::new();
    let read = store.transact(&mut |tx| {
        found = read_rows(tx)?;
        Ok(())
    });
    read.expect("no other transaction is running");
    found
}

/// Reads all rows of the ordered tables, and the first rows of the hash table.
fn read_rows(tx: &dyn Steps) -> Result<State, Stop> {
    let mut rows = tx.take(Step::Scan(0, HASHED))?.rows();
    rows.extend(tx.take(Step::Scan(GENERATED, LINES))?.rows());
    rows.extend(tx.take(Step::Scan(LINES, u64::MAX))?.rows());
    for key in HASHED..HASHED + 10 {
        rows.extend(tx.take(Step::Read(key))?.rows());
    }
    Ok(rows.into_iter().map(|row| (row.key, row)).collect())
}
