//! The tables of a replicated database, and how an epoch of the primary is applied to them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::marker::PhantomData;

use weft::protocol::Protocol;
use weft::{
    Builder, Database, Error, Failure, OnceOptions, Record, ReplicatedResult, Table, Timestamp,
    Transaction,
};
use weft_changes::{Change, ChangesError, LoggedEpoch};

/// A table that was declared, and is opened with each database of a node.
pub trait DeclaredTable<P: Protocol>: Send + Sync {
    /// Adds the table to the database.
    fn declare(&self, builder: Builder<P>) -> Builder<P>;

    /// Returns the table of an open database, as epochs are applied to it.
    fn find(&self, database: &Database<P>) -> Result<Box<dyn AppliedTable<P>>, Failure>;

    /// Returns the table's name.
    fn name(&self) -> &str;
}

/// A table to which epochs are applied.
pub trait AppliedTable<P: Protocol>: Send + Sync {
    /// Returns whether a change is one of this table.
    fn has(&self, change: &Change<'_>) -> bool;

    /// Applies changes, in order, as a part of a transaction.
    fn apply(&self, tx: &Transaction<'_, P>, changes: &[Change<'_>]) -> Result<(), ApplyError>;
}

/// Why an epoch cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Engine(#[from] Error),
    #[error(transparent)]
    Changes(#[from] ChangesError),
    #[error("table `{0}` was not declared on this node")]
    UnknownTable(String),
}

/// A row type, and the table's name.
pub struct Declared<T> {
    pub name: String,
    pub row_type: PhantomData<fn() -> T>,
}

impl<P: Protocol, T: Record> DeclaredTable<P> for Declared<T> {
    fn declare(&self, builder: Builder<P>) -> Builder<P> {
        builder.table_named::<T>(&self.name)
    }

    fn find(&self, database: &Database<P>) -> Result<Box<dyn AppliedTable<P>>, Failure> {
        Ok(Box::new(database.table_named::<T>(&self.name)?))
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// The table of the results of transactions that run once for a key.
pub struct DeclaredResults(pub OnceOptions);

impl<P: Protocol> DeclaredTable<P> for DeclaredResults {
    fn declare(&self, builder: Builder<P>) -> Builder<P> {
        builder.once(self.0.clone())
    }

    fn find(&self, database: &Database<P>) -> Result<Box<dyn AppliedTable<P>>, Failure> {
        Ok(Box::new(database.table::<ReplicatedResult>()?))
    }

    fn name(&self) -> &str {
        ReplicatedResult::TABLE
    }
}

/// A row that an epoch changes.
struct ChangedRow<T> {
    /// Whether it was there before the epoch.
    existed: bool,
    now: Option<T>,
    /// The row before it was deleted.
    deleted: Option<T>,
}

impl<P: Protocol, T: Record> AppliedTable<P> for Table<T> {
    fn has(&self, change: &Change<'_>) -> bool {
        change.is_of(self)
    }

    fn apply(&self, tx: &Transaction<'_, P>, changes: &[Change<'_>]) -> Result<(), ApplyError> {
        // What the epoch makes of each row. Between the transactions of an epoch only the order of those that write the
        // same row is known. So a step in between can have two rows with the same key in a unique index, though no state
        // of the primary had them.
        let mut rows: HashMap<Vec<u8>, (T::Key, ChangedRow<T>)> = HashMap::new();
        for change in changes {
            let (_, row) = match rows.entry(change.stored_key()?.into_owned()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let key = change.key::<T>()?;
                    let now = tx.get(self, &key)?.cloned();
                    let row = ChangedRow { existed: now.is_some(), now, deleted: None };
                    unknown.insert((key, row))
                }
            };
            let before = row.now.take();
            let deleted = before.clone();
            row.now = change.apply(before)?;
            if row.now.is_none() {
                row.deleted = deleted.or(row.deleted.take());
            }
        }
        let has_unique_index = T::INDEXES.iter().any(|index| index.unique);
        for (key, row) in rows.values() {
            if row.existed && (has_unique_index || row.now.is_none()) {
                tx.delete(self, key)?;
            }
        }
        for (key, row) in rows.into_values() {
            match row {
                ChangedRow { now: Some(now), .. } => {
                    tx.upsert(self, now)?;
                }
                // The epoch has inserted and deleted it. Its key must not be generated again.
                ChangedRow { existed: false, deleted: Some(deleted), .. }
                    if T::KEY_NUMBER.is_some() =>
                {
                    tx.upsert(self, deleted)?;
                    tx.delete(self, &key)?;
                }
                ChangedRow { .. } => {}
            }
        }
        Ok(())
    }
}

/// Applies an epoch to a database, as one transaction with this time.
///
/// The transaction also sees rows that have expired. At the primary they may have expired for one transaction of the epoch,
/// and not for an earlier one. Rows disappear by the deletions that the primary has committed.
pub fn apply<P: Protocol>(
    database: &Database<P>,
    tables: &[Box<dyn AppliedTable<P>>],
    epoch: &LoggedEpoch,
    time: Timestamp,
) -> Result<(), ApplyError> {
    let mut by_table: Vec<Vec<Change<'_>>> = tables.iter().map(|_| Vec::new()).collect();
    for change in epoch.changes() {
        let table = tables.iter().position(|table| table.has(&change));
        let table = table.ok_or_else(|| ApplyError::UnknownTable(change.table().to_owned()))?;
        by_table[table].push(change);
    }
    // There is no need to wait until the transaction is durable: it is in the replicated log.
    database.transact_with_token(&weft::TransactionOptions::new(), |tx| {
        tx.commit_at(time);
        tables.iter().zip(&by_table).try_for_each(|(table, changes)| match changes.is_empty() {
            true => Ok(()),
            false => table.apply(tx, changes),
        })
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
