//! Flaws that are made on purpose, for tests that have to find them (feature `canary`).

use super::WorkerMemory;

/// What operations, and the commits and moves of rows behind them, can do wrong, on purpose: to test the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationFlaw {
    /// `update_many` skips a key whose record was not found when the rows were fetched, and does not look it up.
    AbsentKeysSkipped,
    /// `delete_range` keeps the last row of the range.
    LastRowKept,
    /// A worker takes a block of numbers for generated keys, and leaves it to others as well.
    NumbersNotTaken,
    /// A page begins where the scan does, and not after the position.
    PositionForgotten,
    /// `insert_many` goes on behind a key that has a row already.
    RefusedKeyPassed,
    /// A commit by columns does not compare the columns that matter: those of a new version count as the same.
    ChangedColumnsPassed,
    /// A commit by columns installs the row that it made first on top of a new version, with the old values of all columns
    /// that it does not change.
    OldColumnsKept,
    /// A read of the own write leaves the notes of the operations that have made it, so that they are applied again to
    /// another version.
    OwnReadsForgotten,
    /// Operations are applied again to the row to which they were applied first, and not to the present one.
    AppliedToFirstRow,
    /// A row that moves back into its record is copied before the record is held.
    CopiedBeforeHeld,
    /// A row that moves back counts as a version of that moment, also for snapshots that are open.
    MovedAsNew,
}

impl WorkerMemory {
    /// Returns whether this flaw is planted in the database.
    pub fn has_flaw(&self, flaw: OperationFlaw) -> bool {
        self.shared.operation_flaw == Some(flaw)
    }
}
