//! Attempts that read a snapshot.
//!
//! A transaction that reads much and writes nothing loses to every write of what it has read. If one has lost, the next
//! attempt reads a [snapshot](crate::Snapshot). It validates nothing, so it cannot lose again. It takes place
//! when the snapshot is opened, which is when the attempt begins its first operation. This is strictly serializable, and a
//! closure that looks at something outside of the database, and then reads, does not miss what had committed by then.
//!
//! If this attempt wants to write, or asks for the time, it ends, and the one after it is an ordinary one. So it does if rows
//! are split. If no snapshot can be opened for another reason, the attempt goes on as an ordinary one.

use super::{RecordOf, Transaction};
use crate::commit::{Executor, Protocol, Visible};
use crate::error::{ConflictReason, Error, Failure};
use crate::store::record::record_at;
use crate::store::record::version::row_seen_at;
use crate::store::table::TableRef;

/// Opens a snapshot for an attempt, and keeps it until the attempt has ended. Returns its number, or `None` if there can be
/// none now.
///
/// # Errors
/// The attempt cannot go on.
pub type SnapshotOpener<'a> = dyn Fn() -> Result<Option<u64>, Failure> + 'a;

impl<'db, P: Protocol> Transaction<'db, P> {
    /// Has the transaction read a snapshot.
    pub(crate) fn read_snapshot(&mut self, opener: &'db SnapshotOpener<'db>) {
        debug_assert!(P::RESTARTS_IN_SNAPSHOTS, "the protocol has no such attempts");
        self.snapshot_opener = Some(opener);
        // So the first operation looks for it.
        self.is_limited.set(true);
    }

    /// Returns what opens the snapshot that the transaction is to read, if it is to read one.
    pub(super) fn snapshot_opener(&self) -> Option<&'db SnapshotOpener<'db>> {
        self.snapshot_opener.filter(|_| !self.has_no_snapshot.get())
    }

    /// Opens the snapshot that the transaction is to read, if it has one and this is its first operation.
    pub(super) fn open_its_snapshot(&self) -> Result<(), Error> {
        let Some(opener) = self.snapshot_opener().filter(|_| self.snapshot.get() == 0) else {
            return Ok(());
        };
        match opener() {
            Ok(Some(number)) => self.snapshot.set(number),
            Ok(None) => self.has_no_snapshot.set(true),
            Err(_) => {
                let tables = &self.database.shared.first_table;
                let table = *tables.get().expect("the transaction has lost at a table");
                return Err(self.leave_snapshot(table));
            }
        }
        Ok(())
    }

    /// Returns whether the transaction reads a snapshot.
    #[inline(always)]
    pub(super) fn reads_snapshot(&self) -> bool {
        P::RESTARTS_IN_SNAPSHOTS && self.snapshot.get() != 0
    }

    /// Returns the row of a record that the snapshot sees.
    #[cold]
    pub(super) fn read_in_snapshot(&self, record: RecordOf<P>) -> Visible {
        self.snapshot_reads.set(self.snapshot_reads.get() + 1);
        // SAFETY: the worker is pinned as long as `self` exists, and the record was found since.
        match unsafe { row_seen_at(record_at(record.address()), self.snapshot.get()) } {
            Some(row) => Visible::Row(row),
            None => Visible::Absent,
        }
    }

    /// Returns how many records the transaction has read and written so far.
    pub(super) fn accessed(&self) -> (usize, usize) {
        let (reads, writes) = self.worker.executor().accessed();
        (reads + self.snapshot_reads.get(), writes)
    }

    /// Ends an attempt that reads a snapshot. The next one is an ordinary one.
    #[cold]
    pub(super) fn leave_snapshot(&self, table: TableRef) -> Error {
        self.doom(ConflictReason::ReadChanged, table)
    }

    /// Returns whether the transaction has only read, nothing that depends on the time, and so many records or more.
    pub(crate) fn has_only_read(&self, records_min: usize) -> bool {
        !self.writes.get() && self.valid_until.get() == 0 && self.accessed().0 >= records_min
    }
}
