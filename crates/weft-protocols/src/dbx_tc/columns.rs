//! Commits by columns (§5, *Record Structure*).
//!
//! What a piece has read and written is validated by versions of rows, as under DBX. Where that fails, it is
//! asked what has changed. A step of a procedure says which columns it has to do with; if those are as they were,
//! the piece is as good with the version that is there now, and commits on top of it:
//!
//! ```text
//!   step 1   reads  tax               another commits  ytd + 5    tax is as it was: the new version counts
//!                                                                 as the one that was read
//!   step 2   adds   ytd + 7           another commits  ytd + 5    onto the new version: ytd + 5 + 7
//!   step 3   writes next              another commits  ytd + 5    onto the new version, with its ytd
//! ```
//!
//! So validation by versions is the fast path, in which a note of each access is all that columns cost. Columns are
//! compared by their values. Whatever is no row that was there and still is, goes by versions alone: rows that
//! are inserted or deleted, entries of secondary indexes, index nodes.
//!
//! Why it is right: the commit that follows validates the versions that were looked at here, at its serialization
//! point. There the columns that a step has to do with have the values from which it came to its results, and what it
//! has written is what it would have written to the rows that are there. Rows that it refers to may be older in
//! their other columns, which it does not look at.

use std::ptr::NonNull;

use weft::column::ColumnSet;
use weft::commit::access_set::{Superseded, TidOnly, WriteEntry, visible};
use weft::commit::optimistic::{read_conflict, read_newest, validate_nodes, write_conflict};
use weft::commit::{Abort, Visible};
use weft::plan::StepColumns;
use weft::store::record::RecordPointer;
use weft::store::record::version::VersionHeader;
use weft::store::table::Rebase;
use weft::store::worker::WorkerMemory;

use super::PieceExecutor;

/// Which step has accessed what, of a piece that may commit by columns.
#[derive(Default)]
pub struct Accesses {
    /// The step that runs; `None` if accesses are not noted.
    step: Option<usize>,
    /// One for each entry of the read set.
    reads: Vec<Read>,
    writes: Vec<Write>,
}

// SAFETY: there are none between transactions, when a worker may move to another thread.
unsafe impl Send for Accesses {}

struct Read {
    step: usize,
    /// What was read; `None` if there was no row, or if it matters as a whole.
    row: Option<NonNull<u8>>,
}

/// An access to a record of the write set.
struct Write {
    step: usize,
    record: RecordPointer<TidOnly>,
    /// Whether the step has written it, and not just read what another has written.
    writes: bool,
}

impl Accesses {
    /// A step is about to run.
    #[inline(always)]
    pub fn enter(&mut self, step: usize) {
        self.step = Some(step);
    }

    /// No step is known from here on.
    pub fn end(&mut self) {
        self.step = None;
        self.clear();
    }

    /// The piece has ended.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
    }

    /// Notes a read of a record, by which the read set has grown or, since the piece has written the record
    /// itself, has not.
    #[inline(always)]
    pub fn read(&mut self, record: RecordPointer<TidOnly>, found: Visible, has_grown: bool) {
        let Some(step) = self.step else { return };
        match found {
            _ if !has_grown => self.writes.push(Write { step, record, writes: false }),
            Visible::Row(row) => self.reads.push(Read { step, row: Some(row) }),
            _ => self.reads.push(Read { step, row: None }),
        }
    }

    /// Notes an entry of the read set that goes by its version.
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

    /// What a record of the write set is to the piece as a whole; `None` if several steps have written it: each
    /// of their rows would have to be made again, and checked.
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
    /// Has what the piece has read and written, as far as it is not current any more, refer to the versions that
    /// are there now. `columns` are those of the procedure's steps. Fails if something has changed that matters.
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
        for (entry, access) in set.reads.iter_mut().zip(&mut accesses.reads) {
            let (present, newest) = read_newest(entry.record);
            if present == entry.observed {
                continue;
            }
            let (Some(read), Visible::Row(row)) = (access.row, visible(present, newest)) else {
                return Err(read_conflict(entry));
            };
            let matters = columns[access.step].matters;
            // SAFETY: both are rows of the table that were published, and the worker is pinned since before.
            if !unsafe { entry.table.core().same_columns(read, row, matters) } {
                return Err(read_conflict(entry));
            }
            entry.observed = present;
            access.row = Some(row);
        }
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
            garbage.push(Superseded { record: entry.record, row, table: entry.table });
            entry.row = Some(rebased);
            entry.expected = present;
            entry.replaced = onto.as_ptr();
        }
        Ok(())
    }
}

/// The row that a write is to install, and what it is on top of another version than the one that it was
/// made of; `None` if that cannot be.
fn rebase(
    entry: &WriteEntry<TidOnly>,
    onto: NonNull<u8>,
    columns: StepColumns,
    memory: &WorkerMemory,
) -> Option<(NonNull<u8>, NonNull<u8>)> {
    let (row, table) = (entry.row?, entry.table);
    let before = NonNull::new(entry.replaced).filter(|_| !entry.expected.is_absent())?;
    let core = table.core();
    // SAFETY: the row is the write set's own; the other two were published, and the worker is pinned since
    // before.
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
    // SAFETY: as above, and a new place. What could not be made is no row; what was made is dropped once.
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
