//! Commits by columns: a transaction commits although its rows have changed since, if the columns that it uses have
//! not.
//!
//! What a transaction has read and written is validated by versions of rows. If that fails, the commit looks at
//! what has changed. Operations that name their columns, and steps of procedures, leave a note of each access: the
//! columns that it uses, and the row that it saw. If those columns have the same values in the present version, the
//! access is as good with that version, and the transaction commits on top of it:
//!
//! ```text
//!   reads   tax               another commits  ytd + 5    tax has not changed: the new version counts as the
//!                                                         one that was read
//!   adds    ytd + 7           another commits  ytd + 5    onto the new version: ytd + 5 + 7
//!   writes  next              another commits  ytd + 5    onto the new version, with its ytd
//! ```
//!
//! A scan is as good with the present leaves, too, if it would find the same rows there. Records that it has found without a
//! row may have left the index since.
//!
//! So validation by versions is the fast path, and there a commit costs the same with notes and without. Columns are
//! compared by their values. Everything else goes by versions alone: accesses without a note, rows that are inserted
//! or deleted, rows that were written twice, entries of secondary indexes, rows whose indexed columns change.
//!
//! Why it is right: the commit that follows validates, at its serialization point, the versions that were looked at
//! here. In those versions the columns that an access uses have the values from which its results came, and what the
//! access has written is what it would have written on top of them. So the transaction has the same effect as if it
//! had run at its serialization point. It does not matter whether a column had other values in the meantime. The
//! rows that the transaction still refers to may be older in their other columns, which it does not use.
//!
//! A [history](crate::history) has the versions that were validated: each access that is moved to another version is
//! reported as a [`CarriedAccess`], and the recorder corrects what it has recorded.

use std::ptr::NonNull;

use super::access_set::{AccessSet, SupersededRow, TidHeader, WriteEntry, visible};
use super::made_row::MadeRow;
use super::optimistic::{read_conflict, read_newest, write_conflict};
use super::{Abort, Visible};
use crate::error::ConflictReason;
use crate::row::column::{ColumnSet, UsedColumns};
use crate::store::record::RecordPointer;
use crate::store::table::{Rebase, TableRef};
#[cfg(feature = "canary")]
use crate::store::worker::OperationFlaw;
use crate::store::worker::WorkerMemory;

/// An access that counts as an access to another version than before.
#[derive(Clone, Copy)]
pub struct CarriedAccess {
    pub table: TableRef,
    /// The row that it saw.
    pub before: NonNull<u8>,
    /// The row of the version that it counts for now.
    pub onto: NonNull<u8>,
    /// If it is a write: the row that it was to install, and the row that was made again in its place.
    pub written: Option<(NonNull<u8>, NonNull<u8>)>,
}

/// What the accesses of a transaction use of rows, as far as that was noted.
pub struct ColumnNotes<H> {
    reads: Vec<ReadNote>,
    writes: Vec<WriteNote<H>>,
}

/// A note of an entry of the read set.
struct ReadNote {
    /// The entry's position.
    position: usize,
    /// The row that was read.
    row: NonNull<u8>,
    matters: ColumnSet,
}

/// A note of an access to a record of the write set.
struct WriteNote<H> {
    record: RecordPointer<H>,
    /// The row that was written, or `None` if the transaction has read its own write.
    row: Option<NonNull<u8>>,
    columns: UsedColumns,
}

impl<H> Default for ColumnNotes<H> {
    fn default() -> Self {
        ColumnNotes { reads: Vec::new(), writes: Vec::new() }
    }
}

impl<H> ColumnNotes<H> {
    /// Notes what the entry uses that is about to be added to the read set at `position`.
    #[inline(always)]
    pub fn note_read(&mut self, position: usize, row: NonNull<u8>, matters: ColumnSet) {
        self.reads.push(ReadNote { position, row, matters });
    }

    /// Notes what the transaction has read of its own write of a record.
    #[inline(always)]
    pub fn note_own_read(&mut self, record: RecordPointer<H>, matters: ColumnSet) {
        if !self.writes.is_empty() {
            let columns = UsedColumns::matter(matters);
            self.writes.push(WriteNote { record, row: None, columns });
        }
    }

    /// Notes what the write of a row uses of the row that it replaces.
    #[inline(always)]
    pub fn note_write(&mut self, record: RecordPointer<H>, row: NonNull<u8>, columns: UsedColumns) {
        self.writes.push(WriteNote { record, row: Some(row), columns });
    }

    #[inline(always)]
    pub fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
    }

    /// Returns what the transaction uses of a record in the write set, in all its accesses together. Returns `None`
    /// if the record was written other than once: then each of the rows would have to be made again, and checked.
    pub fn of_write(&self, entry: &WriteEntry<H>) -> Option<UsedColumns> {
        let mut all = UsedColumns::matter(ColumnSet::NONE);
        let mut rows = 0;
        for note in self.writes.iter().filter(|note| note.record == entry.record) {
            all.matters = all.matters.and(note.columns.matters);
            all.adds = all.adds.and(note.columns.adds);
            if note.row.is_some() {
                rows += 1;
                // Otherwise a write without a note came later.
                if note.row != entry.row {
                    return None;
                }
            }
        }
        (rows == 1).then_some(all)
    }

    /// Replaces the row that a note says was written.
    fn replace_row(&mut self, row: NonNull<u8>, rebased: NonNull<u8>) {
        for note in self.writes.iter_mut().filter(|note| note.row == Some(row)) {
            note.row = Some(rebased);
        }
    }
}

impl<H: TidHeader> AccessSet<H> {
    /// See [`super::Executor::carry_over`].
    #[cold]
    pub fn carry_over(
        &mut self,
        abort: Abort,
        memory: &WorkerMemory,
        report: &mut dyn FnMut(CarriedAccess),
    ) -> Result<(), Abort> {
        let has_notes = !self.notes.reads.is_empty() || !self.notes.writes.is_empty();
        if !has_notes && self.nodes.is_empty() {
            return Err(abort);
        }
        let of_range = |table| Abort::of_table(ConflictReason::RangeChanged, table);
        self.read_ranges_again().map_err(of_range)?;
        let AccessSet { reads, writes, nodes, notes, superseded, applied, .. } = self;
        // The read set: accept a new version if the columns that matter are the same, or if there is still no row.
        let mut noted = notes.reads.iter_mut().peekable();
        for (position, entry) in reads.iter_mut().enumerate() {
            let note = noted.next_if(|note| note.position == position);
            let (present, newest) = read_newest(entry.record);
            if present == entry.observed {
                continue;
            }
            if entry.rely_on_absence(present, nodes) {
                continue;
            }
            let (Some(note), Visible::Row(row)) = (note, visible(present, newest)) else {
                return Err(read_conflict(entry));
            };
            // SAFETY: both are published rows of the table, and the worker has been pinned since before they were
            // read.
            let is_same = unsafe { entry.table.core().same_columns(note.row, row, note.matters) };
            #[cfg(feature = "canary")]
            let is_same = is_same || memory.has_flaw(OperationFlaw::ChangedColumnsPassed);
            if !is_same {
                return Err(read_conflict(entry));
            }
            let (table, before) = (entry.table, note.row);
            report(CarriedAccess { table, before, onto: row, written: None });
            entry.observed = present;
            note.row = row;
        }
        // The write set: make the row again, on top of the new version.
        for entry in writes {
            let (present, newest) = read_newest(entry.record);
            if present == entry.expected {
                // The engine may have moved the row, so that a region could not commit.
                entry.relocate(newest);
                continue;
            }
            // The commit that follows applies the operations again.
            if applied.have_made(entry.record, entry.row) {
                continue;
            }
            let rebased = match (notes.of_write(entry), visible(present, newest)) {
                (Some(columns), Visible::Row(onto)) => {
                    rebase(entry, onto, columns, memory).map(|rebased| (rebased, onto))
                }
                _ => None,
            };
            let Some((Rebased { row, before, rebased }, onto)) = rebased else {
                return Err(write_conflict(entry, present));
            };
            superseded.push(SupersededRow { record: entry.record, row, table: entry.table });
            notes.replace_row(row, rebased);
            entry.move_onto(present, onto, rebased);
            // The set has the new row already, in case that the user's code panics here.
            let written = Some((row, rebased));
            report(CarriedAccess { table: entry.table, before, onto, written });
        }
        Ok(())
    }
}

/// A write that was moved to another version.
struct Rebased {
    /// The row that it was to install.
    row: NonNull<u8>,
    /// The row that it was to replace.
    before: NonNull<u8>,
    /// The row that it is to install now.
    rebased: NonNull<u8>,
}

/// Makes the row of a write again, on top of version `onto`. Returns `None` if the write cannot be moved there.
fn rebase<H>(
    entry: &WriteEntry<H>,
    onto: NonNull<u8>,
    columns: UsedColumns,
    memory: &WorkerMemory,
) -> Option<Rebased> {
    let (row, table) = (entry.row?, entry.table);
    let before = entry.replaced_row()?;
    let core = table.core();
    let change = Rebase { row, before, onto, adds: columns.adds };
    // SAFETY: the row is the write set's own. The other two are published rows, and the worker has been pinned since
    // before they were read.
    if !unsafe { core.may_be_moved(change, columns.matters) } {
        return None;
    }
    #[cfg(feature = "canary")]
    let change = match memory.has_flaw(OperationFlaw::OldColumnsKept) {
        true => Rebase { onto: before, ..change },
        false => change,
    };
    // SAFETY: as above, and the place is new.
    let made = unsafe { MadeRow::new(table, memory, |place| core.rebase(change, place)) }?;
    // SAFETY: the row was just made.
    let may_be_written = unsafe { core.may_be_written(made.row()) };
    may_be_written.then(|| Rebased { row, before, rebased: made.into_raw() })
}
