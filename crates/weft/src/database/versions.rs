//! Versions of a program's schema, and the hooks that lead from one to the next.
//!
//! Opening a directory that an older version has written runs all hooks in one transaction, after recovery has filled
//! the tables and before it writes anything. The rows that this leaves are written as a checkpoint, and the
//! manifest that names the checkpoint has the new version. So a crash leaves the directory as it was, or with all of it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Deref;

use super::{Database, TransactionOptions};
use crate::commit::Protocol;
use crate::durability::{ProgramVersion, StorageError};
use crate::error::Failure;
use crate::row::schema::Record;
use crate::snapshot::Snapshot;
use crate::store::table::Table;
use crate::transaction::Transaction;

/// Why a hook fails: any error.
type HookError = Box<dyn std::error::Error + Send + Sync>;

/// A hook.
type Hook<P> = Box<dyn Fn(&Migration<'_, P>) -> Result<(), HookError>>;

/// What a hook of [`Builder::migrate`](crate::Builder::migrate) works with: the transaction of all hooks, and the
/// tables.
pub struct Migration<'t, P: Protocol> {
    database: &'t Database<P>,
    transaction: &'t Transaction<'t, P>,
}

impl<P: Protocol> Migration<'_, P> {
    /// Returns the table of row type `T`.
    ///
    /// # Errors
    /// [`Failure::UnknownTable`] if the database is opened without this table.
    pub fn table<T: Record>(&self) -> Result<Table<T>, Failure> {
        self.database.table()
    }

    /// As [`Database::table_named`].
    ///
    /// # Errors
    /// As [`Migration::table`].
    pub fn table_named<T: Record>(&self, name: &str) -> Result<Table<T>, Failure> {
        self.database.table_named(name)
    }

    /// Returns a snapshot of all rows as they were before the first hook. It has the rows of hash tables, too, which a
    /// transaction cannot scan.
    ///
    /// # Errors
    /// Those of [`Database::open_snapshot`].
    pub fn before(&self) -> Result<Snapshot, Failure> {
        self.database.open_snapshot()
    }
}

impl<'t, P: Protocol> Deref for Migration<'t, P> {
    type Target = Transaction<'t, P>;

    fn deref(&self) -> &Self::Target {
        self.transaction
    }
}

impl<P: Protocol> std::fmt::Debug for Migration<'_, P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Migration").finish_non_exhaustive()
    }
}

/// What a program says about the versions of its schema.
pub(super) struct Versions<P: Protocol> {
    pub current: u32,
    /// The oldest version whose programs may open the directory afterwards; `None` for the current one.
    pub oldest: Option<u32>,
    /// The hooks, by the version from which they lead to the next one.
    pub hooks: BTreeMap<u32, Hook<P>>,
}

impl<P: Protocol> Default for Versions<P> {
    fn default() -> Self {
        Versions { current: 0, oldest: None, hooks: BTreeMap::new() }
    }
}

impl<P: Protocol> Versions<P> {
    /// Returns what recovery has to know.
    pub fn program(&self) -> ProgramVersion {
        let oldest = self.oldest.unwrap_or(self.current);
        ProgramVersion {
            current: self.current,
            oldest,
            hooks: self.hooks.keys().copied().collect(),
        }
    }

    /// Runs the hooks from version `from` on, in one transaction, which is not logged.
    ///
    /// # Errors
    /// [`StorageError::Migration`] with the hook that has failed, and why.
    pub fn run(&self, from: u32, database: &Database<P>) -> Result<(), StorageError> {
        let failed_from = Cell::new(from);
        let run = |transaction: &Transaction<'_, P>| {
            // There is no log yet that would have to admit it.
            transaction.set_admitted();
            for (&from, hook) in self.hooks.range(from..) {
                failed_from.set(from);
                hook(&Migration { database, transaction })?;
            }
            Ok::<_, HookError>(())
        };
        let done = database.transact_with_token(&TransactionOptions::default(), run);
        done.map(drop).map_err(|error| StorageError::Migration {
            from: failed_from.get(),
            message: error.to_string(),
        })
    }
}
