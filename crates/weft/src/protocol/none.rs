//! **none**: no concurrency control at all, one transaction at a time.
//!
//! The floor: what a transaction costs on this storage when nobody else is there. Every other
//! protocol is compared with it, on the same records, indexes, arenas and workloads; the
//! difference is the price of its concurrency control.
//!
//! The idea. Reads follow the pointer. Writes swap the pointer at once, and remember the old row
//! in an undo log, by which a rollback takes them back in reverse order. A commit frees the old
//! rows and forgets the log. There are no versions, no read set and no validation.
//!
//! Header of a record: nothing. A record with a null pointer has no row.
//!
//! **Serialization point**: `begin` takes a flag that only one transaction at a time can hold; a
//! second thread gets an error, not a wait.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use weft_htm::word::{Ordering, Word};

use super::access_set::is_inline;
use super::{Abort, Busy, Executor, Observation, Protocol, Settled, Visible};
use crate::index::{NodeChange, NodeVersion};
use crate::record::{RecordPointer, StoredRecord};
use crate::table::TableRef;
use crate::worker::WorkerMemory;

/// No concurrency control: one transaction at a time. See the [module](self).
#[derive(Debug)]
pub enum NoControl {}

impl Protocol for NoControl {
    const NAME: &'static str = "none";
    const TITLE: &'static str = "no concurrency control, one thread: the cost floor";
    const SOURCE: &'static str = "-";
    const WORKERS_MAX: usize = 1;
    const USES_HTM: bool = false;
    type Header = ();
    type Shared = NoControlShared;
    type Executor = NoControlExecutor;

    fn settle_deleted(_record: &StoredRecord<()>, unlink: impl FnOnce()) -> Settled {
        // Records are unlinked by the commit that deletes their row, so none is ever queued.
        unlink();
        Settled::Unlinked
    }
}

/// The flag that a running transaction holds.
#[derive(Debug, Default)]
pub struct NoControlShared {
    running: Word,
}

/// One step to take back.
struct Undo {
    record: RecordPointer<()>,
    table: TableRef,
    /// What the record's pointer was.
    before: *mut u8,
    /// Whether the step put the record into the index.
    created: bool,
    /// Whether the step deleted the row.
    removed: bool,
}

/// Runs `none` on one worker.
#[doc(hidden)]
pub struct NoControlExecutor {
    shared: Arc<NoControlShared>,
    log: Vec<Undo>,
    /// Records to be freed at the end of the transaction.
    unlinked: Vec<(RecordPointer<()>, TableRef)>,
}

// SAFETY: the log is empty between transactions, when the executor may change threads.
unsafe impl Send for NoControlExecutor {}

/// Reads and writes need no order: `running` passes from one transaction to the next with
/// release and acquire, and everything else happens on one thread at a time.
const UNORDERED: Ordering = Ordering::Relaxed;

#[inline(always)]
fn stored<'a>(record: RecordPointer<()>) -> &'a StoredRecord<()> {
    // SAFETY: the worker is pinned for the whole transaction, by the executor's rules of use.
    unsafe { record.get() }
}

impl Executor for NoControlExecutor {
    type Header = ();
    type Shared = NoControlShared;
    /// The record's pointer when it was observed.
    type Version = *mut u8;

    fn new(shared: &Arc<NoControlShared>, _slot: usize) -> Self {
        NoControlExecutor { shared: Arc::clone(shared), log: Vec::new(), unlinked: Vec::new() }
    }

    #[inline(always)]
    fn begin(&mut self, _attempt: u32, _memory: &WorkerMemory) -> Result<(), Busy> {
        // Acquire: pairs with the release in `finish` of the transaction before.
        match self.shared.running.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Busy),
        }
    }

    #[inline(always)]
    fn read(
        &mut self,
        _table: TableRef,
        record: RecordPointer<()>,
        _memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        let newest = NonNull::new(stored(record).newest.load(UNORDERED));
        Ok(newest.map_or(Visible::Absent, Visible::Row))
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<()>,
        memory: &WorkerMemory,
    ) -> Result<Observation<*mut u8>, Abort> {
        let visible = self.read(table, record, memory)?;
        Ok(Observation { visible, version: stored(record).newest.load(UNORDERED) })
    }

    fn note_read(&mut self, _table: TableRef, _record: RecordPointer<()>, _version: *mut u8) {}

    fn is_current(&self, record: RecordPointer<()>, version: *mut u8) -> bool {
        stored(record).newest.load(UNORDERED) == version
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<()>,
        version: *mut u8,
        row: NonNull<u8>,
    ) {
        stored(record).newest.store(row.as_ptr(), UNORDERED);
        self.log.push(Undo { record, table, before: version, created: false, removed: false });
    }

    #[inline(always)]
    fn remove(&mut self, table: TableRef, record: RecordPointer<()>, version: *mut u8) {
        stored(record).newest.store(ptr::null_mut(), UNORDERED);
        self.log.push(Undo { record, table, before: version, created: false, removed: true });
    }

    #[inline(always)]
    fn insert(&mut self, table: TableRef, record: RecordPointer<()>, row: NonNull<u8>) {
        stored(record).newest.store(row.as_ptr(), UNORDERED);
        self.log.push(Undo {
            record,
            table,
            before: ptr::null_mut(),
            created: true,
            removed: false,
        });
    }

    #[inline(always)]
    fn note_node(&mut self, _table: TableRef, _node: NodeVersion) -> Result<(), Abort> {
        Ok(())
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        _table: TableRef,
        _change: NodeChange,
        _sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    fn validate(&mut self) -> Result<(), Abort> {
        Ok(())
    }

    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, _epoch: impl Fn() -> u64) -> Result<(), Abort> {
        for step in &self.log {
            // Deleted, and not inserted again: a record's last deletion unlinks it, when the row
            // that tells its key is still there.
            if step.removed && stored(step.record).newest.load(UNORDERED).is_null() {
                let row = NonNull::new(step.before).expect("only visible rows are removed");
                self.unlinked.extend(unlink(memory, step, row));
            }
        }
        for step in self.log.drain(..) {
            if let Some(row) = NonNull::new(step.before) {
                drop_row(memory, &step, row);
            }
        }
        self.finish(memory);
        Ok(())
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        while let Some(step) = self.log.pop() {
            let written = stored(step.record).newest.load(UNORDERED);
            stored(step.record).newest.store(step.before, UNORDERED);
            if let Some(row) = NonNull::new(written) {
                if step.created {
                    self.unlinked.extend(unlink(memory, &step, row));
                }
                drop_row(memory, &step, row);
            }
        }
        self.finish(memory);
    }
}

impl NoControlExecutor {
    /// Frees the records that were unlinked, and lets the next transaction run.
    #[inline(always)]
    fn finish(&mut self, memory: &WorkerMemory) {
        for (record, table) in self.unlinked.drain(..) {
            // SAFETY: unlinked, its rows are dropped, and there is no other transaction that
            // could have found it.
            unsafe { memory.free_record(record.block(), table) };
        }
        // Release: pairs with the acquire in `begin`.
        self.shared.running.store(0, Ordering::Release);
    }
}

/// Takes a record out of its index by the key of `row`; `None` if it is out already.
fn unlink(
    memory: &WorkerMemory,
    step: &Undo,
    row: NonNull<u8>,
) -> Option<(RecordPointer<()>, TableRef)> {
    // SAFETY: the row is one of the record's, and not dropped yet.
    let unlinked = unsafe { step.table.unlink(step.record.block(), row, memory) };
    unlinked.then_some((step.record, step.table))
}

/// Drops a row that nothing leads to.
fn drop_row(memory: &WorkerMemory, step: &Undo, row: NonNull<u8>) {
    // SAFETY: each row stands in the log once as `before`, or was the record's newest when the
    // step that wrote it is undone; the transaction's own references to it have ended.
    unsafe { memory.drop_row(row, step.table, is_inline(step.table, step.record, row)) };
}
