//! **DBX**: optimistic concurrency control whose validation and write phase is one hardware
//! transaction.
//!
//! Z. Wang, H. Qian, J. Li, H. Chen: *Using Restricted Transactional Memory to Build a Scalable
//! In-Memory Database*, EuroSys 2014. Sections and algorithms below are that paper's.
//!
//! The idea. A transaction first runs without any synchronization but what the indexes need: it
//! remembers the version of every record it reads, and keeps its writes to itself (*read phase*).
//! To commit, it checks that no record it has read has changed (*validation phase*), and then
//! makes its writes visible by swapping one pointer per record and moving its version on (*write
//! phase*). Both phases together must be atomic. DBX puts them in one RTM region: what the region
//! touches is only the metadata of the records, however large the rows, so it fits. Where there
//! is no RTM, or it keeps aborting, the *software twin* makes them atomic with one lock bit per
//! record written.
//!
//! Header of a record: one TID word.
//!
//! ```text
//!   63               32 31              4   3      2       1       0
//!  +-------------------+-----------------+-------+-------+--------+------+
//!  | epoch             | sequence        |queued |removed| absent | lock |
//!  +-------------------+-----------------+-------+-------+--------+------+
//! ```
//!
//! **The serialization point** of a transaction is the moment at which its region commits; in the
//! twin, the moment at which it holds all its write locks (`fence_before_validation`). At that
//! moment everything it read is still current (validated afterwards, and a version that is
//! current and unlocked after the fence was so at the fence), and everything it writes is either
//! unseen by others or locked.
//!
//! **Departures from the paper**
//! - Fallback. DBX falls back to one global commit lock, which every region reads. Here the twin
//!   locks the records of its write set, and a region tests the lock bits of what it touches. So
//!   twins run in parallel with each other and with regions.
//! - The twin takes its locks with the version it expects (a compare-and-swap of the whole word),
//!   which validates the write in the same step, never waits while holding one, and so cannot
//!   deadlock in any order. Only a transaction that has aborted before locks in address order, so
//!   that of two that want the same records one gets through.
//! - Records are read under a seqlock on the TID word, not in a region (Algorithm 2): the paper
//!   counts 40 % of a small transaction's overhead for those regions (§7.3.2).
//! - A read of an absent key notes the version of the index node where the key would be, as range
//!   queries do (§5.3), in place of inserting an empty record: nothing has to be cleaned up.
//! - The sequence number is a pair with the global epoch, for the log (§5.6) to come.
//! - Algorithm 1 validates the write set by the flag REMOVED alone, since a blind write conflicts
//!   with nothing. In this engine every write has read its record (an insert: its absence), so
//!   the version is compared, which covers REMOVED.
//! - Lines 18–22 of Algorithm 1 (versions for read-only transactions) wait for snapshots.

use std::ptr::NonNull;
use std::sync::Arc;

use weft_htm::word::Ordering;

use super::access_set::{AccessSet, NodeEntry, ReadEntry, Superseded, WriteEntry, is_inline};
use super::{Abort, Busy, Executor, Observation, Protocol, Visible};
use crate::error::ConflictReason;
use crate::index::{NodeChange, NodeVersion};
use crate::record::tid::{Tid, TidWord, fence_before_validation};
use crate::record::{RecordPointer, StoredRecord};
use crate::table::TableRef;
use crate::worker::WorkerMemory;

/// DBX: OCC with a hardware commit region. See the [module](self) for the paper and the idea.
#[derive(Debug)]
pub enum Dbx {}

impl Protocol for Dbx {
    const NAME: &'static str = "dbx";
    const TITLE: &'static str = "OCC, validation and write phase in one HTM region";
    const SOURCE: &'static str = "Wang et al., EuroSys 2014";
    const USES_HTM: bool = true;
    type Header = DbxHeader;
    type Shared = ();
    type Executor = DbxExecutor;

    fn settle_deleted(record: &StoredRecord<DbxHeader>, unlink: impl FnOnce()) -> bool {
        let tid = record.header.tid.lock();
        let unlinked = tid.is_absent();
        if unlinked {
            unlink();
        }
        record.header.tid.unlock(if unlinked { tid.removed() } else { tid.dequeued() });
        unlinked
    }
}

/// The header of a record under DBX (§5.1): its version word.
#[derive(Debug)]
pub struct DbxHeader {
    tid: TidWord,
}

impl Default for DbxHeader {
    fn default() -> Self {
        DbxHeader { tid: TidWord::new(Tid::PLACEHOLDER) }
    }
}

/// The version that a write replaces.
#[derive(Clone, Copy, Debug)]
pub struct DbxVersion {
    observed: Tid,
    newest: *mut u8,
    /// This transaction's own row, if the record is in the write set with one.
    own: Option<NonNull<u8>>,
    /// Where in the write set it is.
    own_position: Option<usize>,
    /// How many writes there were.
    writes: usize,
}

/// Runs DBX on one worker.
#[doc(hidden)]
#[derive(Default)]
pub struct DbxExecutor {
    set: AccessSet<DbxHeader>,
    attempt: u32,
}

type Record = RecordPointer<DbxHeader>;

/// The record behind an entry of an access set.
#[inline(always)]
fn stored<'a>(record: Record) -> &'a StoredRecord<DbxHeader> {
    // SAFETY: by the executor's rules of use the worker is pinned from `begin` to the end of
    // `commit` or `abort`, and got the record within; no caller keeps the reference longer.
    unsafe { record.get() }
}

/// The current version of an index node noted in this transaction.
#[inline(always)]
fn node_version(node: NodeVersion) -> u64 {
    // SAFETY: as for records: nodes are retired, not freed, while the worker is pinned.
    unsafe { node.word.as_ref() }.load(Ordering::Relaxed)
}

impl Executor for DbxExecutor {
    type Header = DbxHeader;
    type Shared = ();
    type Version = DbxVersion;

    fn new(_shared: &Arc<()>) -> Self {
        Self::default()
    }

    #[inline(always)]
    fn begin(&mut self, attempt: u32) -> Result<(), Busy> {
        debug_assert!(self.set.reads.is_empty() && self.set.writes.is_empty());
        self.attempt = attempt;
        Ok(())
    }

    // ---- Read phase (§5.2, Algorithm 2) -------------------------------------------------------

    #[inline(always)]
    fn read(&mut self, table: TableRef, record: Record) -> Result<Visible, Abort> {
        if let Some(position) = self.set.find_write(record) {
            return Ok(visible_own(&self.set.writes[position]));
        }
        let (observed, newest) = read_newest(record);
        let visible = visible(observed, newest);
        if !matches!(visible, Visible::Removed) {
            self.set.reads.push(ReadEntry { record, observed, table });
        }
        Ok(visible)
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        _table: TableRef,
        record: Record,
    ) -> Result<Observation<DbxVersion>, Abort> {
        if let Some(position) = self.set.find_write(record) {
            let entry = &self.set.writes[position];
            let version = DbxVersion {
                observed: entry.expected,
                newest: entry.replaced,
                own: entry.row,
                own_position: Some(position),
                writes: self.set.writes.len(),
            };
            return Ok(Observation { visible: visible_own(entry), version });
        }
        let (observed, newest) = read_newest(record);
        let writes = self.set.writes.len();
        let version = DbxVersion { observed, newest, own: None, own_position: None, writes };
        Ok(Observation { visible: visible(observed, newest), version })
    }

    fn note_read(&mut self, table: TableRef, record: Record, version: DbxVersion) {
        // This transaction's own write, if there is one, is validated itself.
        if version.own_position.is_none() {
            self.set.reads.push(ReadEntry { record, observed: version.observed, table });
        }
    }

    #[inline(always)]
    fn is_current(&self, record: Record, version: DbxVersion) -> bool {
        match version.own_position {
            Some(position) => self.set.writes[position].row == version.own,
            // Most closures write nothing at all.
            None => {
                self.set.writes.len() == version.writes || self.set.find_write(record).is_none()
            }
        }
    }

    #[inline(always)]
    fn write(&mut self, table: TableRef, record: Record, version: DbxVersion, row: NonNull<u8>) {
        self.put(table, record, version, Some(row));
    }

    #[inline(always)]
    fn remove(&mut self, table: TableRef, record: Record, version: DbxVersion) {
        self.put(table, record, version, None);
    }

    #[inline(always)]
    fn insert(&mut self, table: TableRef, record: Record, row: NonNull<u8>) {
        self.set.push_write(WriteEntry {
            record,
            table,
            expected: Tid::PLACEHOLDER,
            replaced: std::ptr::null_mut(),
            row: Some(row),
            created: Some(row),
        });
    }

    #[inline(always)]
    fn note_node(&mut self, table: TableRef, node: NodeVersion) {
        self.set.nodes.push(NodeEntry { node, table });
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        if self.set.note_own_insertion(table, change, sibling) {
            Ok(())
        } else {
            Err(Abort { reason: ConflictReason::RangeChanged, table, row: None })
        }
    }

    fn validate(&mut self) -> Result<(), Abort> {
        // The row references that led to a conclusion were loaded before this.
        fence_before_validation();
        for entry in &self.set.writes {
            let tid = stored(entry.record).header.tid.load_relaxed();
            if tid != entry.expected {
                return Err(write_conflict(entry, tid));
            }
        }
        validate_reads(&self.set, |_| false)
    }

    // ---- Validation and write phase (§5.2, Algorithm 1) ---------------------------------------

    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        if self.attempt > 0 && self.set.writes.len() > 1 {
            self.set.sort_writes();
        }
        match self.commit_in_region(memory, &epoch) {
            Some(outcome) => outcome?,
            None => self.commit_with_locks(&epoch)?,
        }
        // Committed; what follows is nobody else's concern.
        self.retire_replaced(memory);
        self.set.clear();
        Ok(())
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        for entry in &self.set.writes {
            if let Some(row) = entry.created {
                discard_placeholder(entry, row, memory);
            }
            if let Some(row) = entry.row {
                drop_private(entry.record, row, entry.table, memory);
            }
        }
        self.drop_superseded(memory);
        self.set.clear();
    }
}

impl DbxExecutor {
    /// Adds a write to the write set, or replaces this transaction's earlier one.
    #[inline(always)]
    fn put(
        &mut self,
        table: TableRef,
        record: Record,
        version: DbxVersion,
        row: Option<NonNull<u8>>,
    ) {
        match version.own_position {
            Some(position) => {
                let entry = &mut self.set.writes[position];
                if let Some(row) = entry.row {
                    self.set.superseded.push(Superseded { record, row, table });
                }
                entry.row = row;
            }
            None => self.set.push_write(WriteEntry {
                record,
                table,
                expected: version.observed,
                replaced: version.newest,
                row,
                created: None,
            }),
        }
    }

    /// Algorithm 1 in one hardware region. `None`: no hardware, or it gave up.
    #[inline(always)]
    fn commit_in_region(
        &self,
        memory: &WorkerMemory,
        epoch: &impl Fn() -> u64,
    ) -> Option<Result<(), Abort>> {
        let regions = memory.regions();
        if !regions.is_hardware() {
            return None;
        }
        regions.run(
            |region| {
                // Validate: the read set, then the write set (lines 3–14).
                for read in &self.set.reads {
                    let tid = stored(read.record).header.tid.load_relaxed();
                    if tid != read.observed {
                        if tid.is_locked() {
                            region.abort_locked();
                        }
                        return Err(read_conflict(read, tid));
                    }
                }
                for entry in &self.set.nodes {
                    if node_version(entry.node) != entry.node.version {
                        return Err(range_conflict(entry));
                    }
                }
                for write in &self.set.writes {
                    let tid = stored(write.record).header.tid.load_relaxed();
                    if tid != write.expected {
                        if tid.is_locked() {
                            region.abort_locked();
                        }
                        return Err(write_conflict(write, tid));
                    }
                }
                // Write: swap pointers, move versions on (lines 16–27).
                let epoch = epoch();
                for write in &self.set.writes {
                    let record = stored(write.record);
                    if let Some(row) = write.row {
                        record.newest.store(row.as_ptr(), Ordering::Relaxed);
                    }
                    record.header.tid.store_in_region(installed(write, epoch));
                }
                Ok(())
            },
            || {
                let writes = self.set.writes.iter().map(|write| write.record);
                let mut records = self.set.reads.iter().map(|read| read.record).chain(writes);
                records.any(|record| stored(record).header.tid.load_relaxed().is_locked())
            },
        )
    }

    /// The software twin of the region: Algorithm 1 with one lock per record written.
    #[inline(always)]
    fn commit_with_locks(&self, epoch: &impl Fn() -> u64) -> Result<(), Abort> {
        self.lock_writes()?;
        // ==== serialization point ====
        fence_before_validation();
        let epoch = epoch();
        // Validate (lines 3–14; the locks have validated the write set).
        let is_own_lock = |record| self.set.find_write(record).is_some();
        if let Err(abort) = validate_reads(&self.set, is_own_lock) {
            unlock(&self.set.writes);
            return Err(abort);
        }
        // Write: swap pointers, move versions on (lines 16–27).
        for write in &self.set.writes {
            let record = stored(write.record);
            if let Some(row) = write.row {
                // Release: pairs with the acquire in `read_newest`: whoever sees the row sees
                // its contents, and that the record is locked.
                record.newest.store(row.as_ptr(), Ordering::Release);
            }
            record.header.tid.unlock(installed(write, epoch));
        }
        Ok(())
    }

    #[inline(always)]
    fn lock_writes(&self) -> Result<(), Abort> {
        for (position, write) in self.set.writes.iter().enumerate() {
            if let Err(tid) = stored(write.record).header.tid.lock_at(write.expected) {
                unlock(&self.set.writes[..position]);
                return Err(write_conflict(write, tid));
            }
        }
        Ok(())
    }

    /// Hands what the commit has replaced or deleted to the garbage collection (§5.5).
    #[inline(always)]
    fn retire_replaced(&mut self, memory: &WorkerMemory) {
        for entry in &self.set.writes {
            match (entry.row, entry.created) {
                (Some(_), _) => {
                    if let Some(replaced) = NonNull::new(entry.replaced) {
                        let inline = is_inline(entry.table, entry.record, replaced);
                        memory.retire_row(replaced, entry.table, inline);
                    }
                }
                (None, Some(row)) => discard_placeholder(entry, row, memory),
                // The row stays with the record until it is unlinked: by it the record's key is
                // known, and older snapshots may need it.
                (None, None) if !entry.expected.is_absent() && !entry.expected.is_queued() => {
                    memory.retire_deleted(entry.record.block(), entry.table);
                }
                (None, None) => {}
            }
        }
        self.drop_superseded(memory);
    }

    fn drop_superseded(&mut self, memory: &WorkerMemory) {
        for Superseded { record, row, table } in self.set.superseded.drain(..) {
            drop_private(record, row, table, memory);
        }
    }
}

/// A record's newest row together with its version (Algorithm 2).
#[inline(always)]
fn read_newest(record: Record) -> (Tid, *mut u8) {
    let record = stored(record);
    // Acquire: pairs with the release store of the pointer in `commit_with_locks`. A region's
    // stores all appear at once, so the second look at the word would find it changed.
    record.header.tid.read_with(|| record.newest.load(Ordering::Acquire))
}

#[inline(always)]
fn visible(tid: Tid, newest: *mut u8) -> Visible {
    if !tid.is_absent() {
        // A record that is not absent has been committed with a row.
        debug_assert!(!newest.is_null());
        // SAFETY: see above; `newest` belongs to `tid`, by the seqlock.
        return Visible::Row(unsafe { NonNull::new_unchecked(newest) });
    }
    if tid.is_removed() { Visible::Removed } else { Visible::Absent }
}

#[inline(always)]
fn visible_own(entry: &WriteEntry<DbxHeader>) -> Visible {
    entry.row.map_or(Visible::Absent, Visible::Row)
}

/// The version that committing `write` gives its record.
#[inline(always)]
fn installed(write: &WriteEntry<DbxHeader>, epoch: u64) -> Tid {
    match write.row {
        Some(_) => write.expected.written(epoch),
        None if write.expected.is_absent() => write.expected,
        None => write.expected.deleted(epoch),
    }
}

/// Whether all that was read is still current; `is_own_lock` tells a record that this very
/// transaction has locked.
#[inline(always)]
fn validate_reads(
    set: &AccessSet<DbxHeader>,
    is_own_lock: impl Fn(Record) -> bool,
) -> Result<(), Abort> {
    for entry in &set.reads {
        let tid = stored(entry.record).header.tid.load_relaxed();
        if tid != entry.observed && !(tid == entry.observed.locked() && is_own_lock(entry.record)) {
            return Err(read_conflict(entry, tid));
        }
    }
    for entry in &set.nodes {
        if node_version(entry.node) != entry.node.version {
            return Err(range_conflict(entry));
        }
    }
    Ok(())
}

/// Releases locks without having changed anything.
fn unlock(writes: &[WriteEntry<DbxHeader>]) {
    for write in writes {
        stored(write.record).header.tid.unlock(write.expected);
    }
}

/// Unlinks a placeholder that this transaction has put into the index with `row`, unless another
/// transaction has committed a row into it, or has it on its garbage list.
fn discard_placeholder(entry: &WriteEntry<DbxHeader>, row: NonNull<u8>, memory: &WorkerMemory) {
    let record = stored(entry.record);
    let tid = record.header.tid.lock();
    let unlinked = tid.is_absent() && !tid.is_queued();
    if unlinked {
        // SAFETY: whatever the transaction did to the record later, the row was written before the
        // placeholder was linked, and is dropped after this.
        unsafe { entry.table.unlink(entry.record.block(), row, memory) };
    }
    record.header.tid.unlock(if unlinked { tid.removed() } else { tid });
    if unlinked {
        memory.retire_record(entry.record.block(), entry.table);
    }
}

/// Drops a row that no other thread has seen.
fn drop_private(record: Record, row: NonNull<u8>, table: TableRef, memory: &WorkerMemory) {
    // SAFETY: private rows are complete, and each is dropped once: it is either the write
    // entry's or superseded.
    unsafe { memory.drop_row(row, table, is_inline(table, record, row)) };
}

/// The row by which a conflict names its key.
fn row_of(record: Record) -> Option<NonNull<u8>> {
    NonNull::new(stored(record).newest.load(Ordering::Acquire))
}

#[cold]
fn read_conflict(entry: &ReadEntry<DbxHeader>, _found: Tid) -> Abort {
    Abort { reason: ConflictReason::ReadChanged, table: entry.table, row: row_of(entry.record) }
}

#[cold]
fn range_conflict(entry: &NodeEntry) -> Abort {
    Abort { reason: ConflictReason::RangeChanged, table: entry.table, row: None }
}

#[cold]
fn write_conflict(entry: &WriteEntry<DbxHeader>, found: Tid) -> Abort {
    let reason = if found == entry.expected.locked() {
        ConflictReason::WriteLocked
    } else {
        ConflictReason::WriteChanged
    };
    Abort { reason, table: entry.table, row: row_of(entry.record) }
}
