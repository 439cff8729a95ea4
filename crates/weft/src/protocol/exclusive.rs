//! The executor of the protocols under which a transaction has the database to itself, or behaves
//! as if it had: what it writes is in place at once, and an *undo log* takes it back.
//!
//! The idea. Reads follow the pointer. Writes swap the pointer, and remember the old row in the
//! undo log, by which a rollback takes them back in reverse order. A commit unlinks what was
//! deleted, frees the old rows and forgets the log. There are no versions, no read set and no
//! validation: nobody else is there.
//!
//! *How* a transaction gets the database to itself is the protocol's part, its [`Exclusion`]:
//! [`none`](super::none) refuses a second transaction, [`htm_naive`](super::htm_naive) makes it
//! wait, or look as if it had waited.
//!
//! Header of a record: nothing. A record with a null pointer has no row.
//!
//! **Memory.** Between `enter` and `leave` nobody else reads what this transaction links or
//! unlinks, and every reference that an earlier transaction had has ended with it. So rows and
//! records are freed at once, without a grace period; though only after `leave`, in the worker's
//! own arena, where it is nobody else's business and lengthens nobody's wait. (Index nodes are
//! retired as under every protocol: that is the indexes' affair.) A transaction that waits in
//! `enter` is pinned already, and holds back only such nodes, and those only as long as it waits.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use weft_htm::word::Ordering;

use super::access_set::is_inline;
use super::{Abort, Busy, Executor, Observation, Settled, Visible};
use crate::index::{NodeChange, NodeVersion};
use crate::record::{RecordPointer, StoredRecord};
use crate::table::TableRef;
use crate::worker::WorkerMemory;

/// How a transaction gets the database to itself.
pub trait Exclusion: Default + Send + Sync + 'static {
    /// Begins to have it; or the worker finds another transaction running, and does not wait.
    #[doc(hidden)]
    fn enter(&self, memory: &WorkerMemory) -> Result<(), Busy>;

    /// Ends what [`Exclusion::enter`] began, on the same worker: what was written in between is
    /// there for the next transaction.
    #[doc(hidden)]
    fn leave(&self, memory: &WorkerMemory);
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

/// A row that nothing leads to any more.
struct Unused {
    row: NonNull<u8>,
    record: RecordPointer<()>,
    table: TableRef,
}

/// Runs one worker's transactions, one at a time among all workers.
#[doc(hidden)]
pub struct ExclusiveExecutor<E> {
    exclusion: Arc<E>,
    log: Vec<Undo>,
    /// Rows and records to be freed at the end of the transaction.
    unused: Vec<Unused>,
    unlinked: Vec<(RecordPointer<()>, TableRef)>,
}

// SAFETY: all lists are empty between transactions, when the executor may change threads; the
// exclusion is Sync.
unsafe impl<E: Exclusion> Send for ExclusiveExecutor<E> {}

/// Acquire: pairs with the store of a transaction before. Between that store and this load lie
/// the `leave` of the one and the `enter` of the other, which alone would do; but two hardware
/// regions that stand for them order nothing in the language's terms.
const LOAD: Ordering = Ordering::Acquire;
/// Release: pairs with [`LOAD`].
const STORE: Ordering = Ordering::Release;

#[inline(always)]
fn stored<'a>(record: RecordPointer<()>) -> &'a StoredRecord<()> {
    // SAFETY: the worker is pinned for the whole transaction, by the executor's rules of use.
    unsafe { record.get() }
}

impl<E: Exclusion> Executor for ExclusiveExecutor<E> {
    type Header = ();
    type Shared = E;
    /// The record's pointer when it was observed.
    type Version = *mut u8;

    fn new(exclusion: &Arc<E>, _slot: usize) -> Self {
        ExclusiveExecutor {
            exclusion: Arc::clone(exclusion),
            log: Vec::new(),
            unused: Vec::new(),
            unlinked: Vec::new(),
        }
    }

    #[inline(always)]
    fn begin(&mut self, _attempt: u32, memory: &WorkerMemory) -> Result<(), Busy> {
        self.exclusion.enter(memory)
    }

    #[inline(always)]
    fn read(
        &mut self,
        _table: TableRef,
        record: RecordPointer<()>,
        _memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        let newest = NonNull::new(stored(record).newest.load(LOAD));
        Ok(newest.map_or(Visible::Absent, Visible::Row))
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        _table: TableRef,
        record: RecordPointer<()>,
        _memory: &WorkerMemory,
    ) -> Result<Observation<*mut u8>, Abort> {
        let version = stored(record).newest.load(LOAD);
        let visible = NonNull::new(version).map_or(Visible::Absent, Visible::Row);
        Ok(Observation { visible, version })
    }

    fn note_read(&mut self, _table: TableRef, _record: RecordPointer<()>, _version: *mut u8) {}

    fn is_current(&self, record: RecordPointer<()>, version: *mut u8) -> bool {
        stored(record).newest.load(LOAD) == version
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<()>,
        version: *mut u8,
        row: NonNull<u8>,
    ) {
        self.log.push(Undo { record, table, before: version, created: false, removed: false });
        stored(record).newest.store(row.as_ptr(), STORE);
    }

    #[inline(always)]
    fn remove(&mut self, table: TableRef, record: RecordPointer<()>, version: *mut u8) {
        self.log.push(Undo { record, table, before: version, created: false, removed: true });
        stored(record).newest.store(ptr::null_mut(), STORE);
    }

    #[inline(always)]
    fn insert(&mut self, table: TableRef, record: RecordPointer<()>, row: NonNull<u8>) {
        let before = ptr::null_mut();
        self.log.push(Undo { record, table, before, created: true, removed: false });
        stored(record).newest.store(row.as_ptr(), STORE);
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
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        if !self.log.is_empty() {
            epoch();
        }
        for step in &self.log {
            // Deleted, and not inserted again: a record's last deletion unlinks it, when the row
            // that tells its key is still there.
            if step.removed && stored(step.record).newest.load(LOAD).is_null() {
                let row = NonNull::new(step.before).expect("only visible rows are removed");
                self.unlinked.extend(unlink(memory, step, row));
            }
        }
        self.exclusion.leave(memory);
        for step in self.log.drain(..) {
            if let Some(row) = NonNull::new(step.before) {
                drop_row(memory, Unused { row, record: step.record, table: step.table });
            }
        }
        self.free_unlinked(memory);
        Ok(())
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        while let Some(step) = self.log.pop() {
            let written = stored(step.record).newest.load(LOAD);
            stored(step.record).newest.store(step.before, STORE);
            if let Some(row) = NonNull::new(written) {
                if step.created {
                    self.unlinked.extend(unlink(memory, &step, row));
                }
                self.unused.push(Unused { row, record: step.record, table: step.table });
            }
        }
        self.exclusion.leave(memory);
        for unused in self.unused.drain(..) {
            drop_row(memory, unused);
        }
        self.free_unlinked(memory);
    }
}

impl<E> ExclusiveExecutor<E> {
    /// Frees the records that were unlinked, whose rows are dropped.
    #[inline(always)]
    fn free_unlinked(&mut self, memory: &WorkerMemory) {
        for (record, table) in self.unlinked.drain(..) {
            // SAFETY: unlinked, its rows are dropped, and no other transaction has found it: see
            // the module's word on memory.
            unsafe { memory.free_record(record.block(), table) };
        }
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
fn drop_row(memory: &WorkerMemory, unused: Unused) {
    let inline = is_inline(unused.table, unused.record, unused.row);
    // SAFETY: each row stands in the log once as `before`, or was the record's newest when the
    // step that wrote it was undone; no reference to it is left: see the module's word on memory.
    unsafe { memory.drop_row(unused.row, unused.table, inline) };
}

/// [`Protocol::settle_deleted`](super::Protocol::settle_deleted): records are unlinked by the
/// commit that deletes their row, so none is ever queued.
pub fn settle_deleted(unlink: impl FnOnce()) -> Settled {
    unlink();
    Settled::Unlinked
}
