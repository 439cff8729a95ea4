//! Commits by columns (in place of §5, *Record Structure*).
//!
//! What a piece has read and written is validated by versions of rows, as under DBX. If that fails, the commit
//! checks what has changed. Each step of a procedure says which columns it uses. If those have the same values
//! as before, the piece is as good with the present version, and commits on top of it:
//!
//! ```text
//!   step 1   reads  tax               another commits  ytd + 5    tax has not changed: the new version counts
//!                                                                 as the one that was read
//!   step 2   adds   ytd + 7           another commits  ytd + 5    onto the new version: ytd + 5 + 7
//!   step 3   writes next              another commits  ytd + 5    onto the new version, with its ytd
//! ```
//!
//! So validation by versions is the fast path, and there columns cost only a note for each access. Columns are
//! compared by their values. Everything else goes by versions alone: rows that are inserted or deleted, entries
//! of secondary indexes, index nodes.
//!
//! Why it is right: the commit that follows validates, at its serialization point, the versions that were
//! looked at here. In those versions the columns that a step uses have the values from which its results came,
//! and what the step has written is what it would have written on top of them. The rows that the step still
//! refers to may be older in their other columns, which the step does not use.

use std::ptr::NonNull;

use weft::column::ColumnSet;
use weft::commit::access_set::{SupersededRow, TidOnly, WriteEntry, visible};
use weft::commit::optimistic::{read_conflict, read_newest, validate_nodes, write_conflict};
use weft::commit::{Abort, Visible};
use weft::plan::StepColumns;
use weft::store::record::version::VersionHeader;
use weft::store::record::{Newest, RecordPointer};
use weft::store::table::Rebase;
use weft::store::worker::WorkerMemory;

use super::PieceExecutor;

/// Which step of a piece has accessed which record. Kept if the piece may commit by columns.
#[derive(Default)]
pub struct Accesses {
    /// The step that is running, or `None` if accesses are not noted.
    step: Option<usize>,
    /// The reads, one for each entry of the read set.
    reads: Vec<Read>,
    writes: Vec<Write>,
}

// SAFETY: it is empty between transactions, when a worker may move to another thread.
unsafe impl Send for Accesses {}

struct Read {
    step: usize,
    /// The row that was read, or `None` if there was no row, or if the version as a whole matters.
    row: Option<NonNull<u8>>,
}

/// An access to a record of the write set.
struct Write {
    step: usize,
    record: RecordPointer<TidOnly>,
    /// Whether the step has written the record. If not, it has read what an earlier step of the piece has
    /// written.
    writes: bool,
}

impl Accesses {
    /// Says that a step is about to run.
    #[inline(always)]
    pub fn enter(&mut self, step: usize) {
        self.step = Some(step);
    }

    /// Says that no step is running, and forgets all accesses.
    pub fn end(&mut self) {
        self.step = None;
        self.clear();
    }

    /// Forgets the accesses of a piece that has ended.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
    }

    /// Notes a read of a record. `has_grown` says whether the read set has grown by it; it has not if the piece
    /// has written the record itself.
    #[inline(always)]
    pub fn read(&mut self, record: RecordPointer<TidOnly>, found: Visible, has_grown: bool) {
        let Some(step) = self.step else { return };
        match found {
            _ if !has_grown => self.writes.push(Write { step, record, writes: false }),
            Visible::Row(row) => self.reads.push(Read { step, row: Some(row) }),
            _ => self.reads.push(Read { step, row: None }),
        }
    }

    /// Notes an entry of the read set whose version matters as a whole.
    pub fn read_as_a_whole(&mut self) {
        if let Some(step) = self.step {
            self.reads.push(Read { step, row: None });
        }
    }

    /// Notes a write.
    #[inline(always)]
    pub fn write(&mut self, record: RecordPointer<TidOnly>) {
        if let Some(step) = self.step {
            self.writes.push(Write { step, record, writes: true });
        }
    }

    /// Returns the columns that the piece uses of a record in the write set, of all its steps together. Returns
    /// `None` if several steps have written the record: then each of their rows would have to be made again,
    /// and checked.
    fn of_written(
        &self,
        record: RecordPointer<TidOnly>,
        columns: &[StepColumns],
    ) -> Option<StepColumns> {
        let mut all = StepColumns { matters: ColumnSet::NONE, adds: ColumnSet::NONE };
        let mut times_written = 0;
        for write in self.writes.iter().filter(|write| write.record == record) {
            let step = columns[write.step];
            all.matters = all.matters.and(step.matters);
            all.adds = all.adds.and(step.adds);
            times_written += usize::from(write.writes);
        }
        (times_written == 1).then_some(all)
    }
}

impl PieceExecutor {
    /// Makes the reads and writes of the piece that are not current any more refer to the present versions.
    /// `columns` are those of the procedure's steps. Fails if something has changed that matters to a step.
    #[cold]
    pub(super) fn carry_over(
        &mut self,
        columns: &[StepColumns],
        memory: &WorkerMemory,
    ) -> Result<(), Abort> {
        let PieceExecutor { optimistic, accesses, garbage, .. } = self;
        let set = &mut optimistic.set;
        debug_assert!(set.reads.len() == accesses.reads.len(), "each has its note");
        validate_nodes(set)?;
        // The read set: accept a new version if the columns that the step uses are the same.
        for (entry, access) in set.reads.iter_mut().zip(&mut accesses.reads) {
            let (present, newest) = read_newest(entry.record);
            if present == entry.observed {
                continue;
            }
            let (Some(read), Visible::Row(row)) = (access.row, visible(present, newest)) else {
                return Err(read_conflict(entry));
            };
            let matters = columns[access.step].matters;
            // SAFETY: both are published rows of the table, and the worker has been pinned since before they
            // were read.
            if !unsafe { entry.table.core().same_columns(read, row, matters) } {
                return Err(read_conflict(entry));
            }
            entry.observed = present;
            access.row = Some(row);
        }
        // The write set: make the row again, on top of the new version.
        for entry in &mut set.writes {
            let (present, newest) = read_newest(entry.record);
            if present == entry.expected {
                continue;
            }
            let known = accesses.of_written(entry.record, columns);
            let (Some(columns), Visible::Row(onto)) = (known, visible(present, newest)) else {
                return Err(write_conflict(entry, present));
            };
            let Some((row, rebased)) = rebase(entry, onto, columns, memory) else {
                return Err(write_conflict(entry, present));
            };
            garbage.push(SupersededRow { record: entry.record, row, table: entry.table });
            entry.row = Some(rebased);
            entry.expected = present;
            entry.replaced = Newest::of(onto);
        }
        Ok(())
    }
}

/// Returns the row that a write was to install, and the row to install on top of version `onto` instead.
/// Returns `None` if the write cannot be moved there.
fn rebase(
    entry: &WriteEntry<TidOnly>,
    onto: NonNull<u8>,
    columns: StepColumns,
    memory: &WorkerMemory,
) -> Option<(NonNull<u8>, NonNull<u8>)> {
    let (row, table) = (entry.row?, entry.table);
    let before = entry.replaced_row()?;
    let core = table.core();
    // SAFETY: the row is the write set's own. The other two are published rows, and the worker has been pinned
    // since before they were read.
    let may_be_moved = unsafe {
        core.same_columns(before, onto, columns.matters)
            && core.same_index_keys(before, row)
            && core.same_index_keys(before, onto)
    };
    if !may_be_moved {
        return None;
    }
    let place = memory.allocate_row(table);
    let change = Rebase { row, before, onto, adds: columns.adds };
    // SAFETY: as above, and the place is new. If no row could be made, its block is freed; a row that was made
    // is dropped once.
    unsafe {
        if !core.rebase(change, place) {
            memory.free_block(VersionHeader::block(place), core.row_class);
            return None;
        }
        if !core.may_be_written(place) {
            memory.drop_row(place, table, false);
            return None;
        }
        VersionHeader::of(place).set_previous(onto.as_ptr());
    }
    Some((row, place))
}
