//! Concurrency-control protocols: the interface between a protocol and the engine, and the protocols for
//! applications.
//!
//! The engine splits a transaction's work in two. The layer above ([`Transaction`], `table`) knows keys, row types
//! and indexes. It turns a key into a record, and builds the new versions. The protocol below knows only records
//! and versions. Each worker has an [`Executor`], which is told which records are read, written, inserted and
//! removed. It is also told which index nodes show that a key is absent or which rows a range has. It decides at
//! [`Executor::commit`].
//!
//! A protocol is one file, to be read beside its paper. The protocols for applications are here. The laboratory's
//! are in the crate `weft-protocols`, which also has the list of all protocols.
//!
//! [`Transaction`]: crate::Transaction
#![allow(rustdoc::private_intra_doc_links, reason = "hidden: its readers have the source")]

pub mod access_set;
pub mod applied;
pub mod by_columns;
mod capabilities;
pub mod dbx;
mod deferred_change;
mod engine;
pub mod made_row;
pub mod optimistic;
mod options;
pub mod positions;
pub mod silo;
pub mod two_phase_locking;
mod unstable;
mod worker;

use std::ptr::NonNull;

pub use capabilities::{
    ChopsProcedures, ContentionAction, ContentionPoint, Never, PhaseMetrics, ReappliesOperations,
    RepairsTransactions, SplitsRecords,
};
pub use dbx::Dbx;
pub use deferred_change::{DeferredChange, RowDelta};
pub use engine::{CommitToken, Durability, Engine};
pub use options::{CommitsByRows, GivenOptions, ProtocolOptions, ProtocolShared};
pub use silo::Silo;
pub use two_phase_locking::{TwoPhaseLocking, TwoPhaseLockingNoWait};
pub use unstable::Unstable;
pub use worker::{Claim, Worker, Workers, backoff};

use by_columns::CarriedAccess;
use weft_htm::Region;

use crate::error::{Conflict, ConflictReason, Failure};
use crate::index::bplus_tree::ScannedRange;
use crate::index::{Insertion, Lookup, NodeChange, NodeVersion};
use crate::row::column::{ColumnSet, UsedColumns};
use crate::row::encoding::EncodedKey;
use crate::store::eventual::{AdjustedRows, FormingSnapshot};
use crate::store::record::newest;
pub use crate::store::record::{DeletedOutcome, HoldOutcome, RecordHeader};
use crate::store::record::{HoldRow, RecordKind, RecordPointer, StoredRecord};
use crate::store::table::TableRef;
use crate::store::worker::{LoggedWrite, WorkerMemory};

/// A concurrency-control protocol: a type without values, which is the type parameter of a
/// [`Database`](crate::Database).
///
/// # Safety
/// The engine hands out references to rows that the [executor](Protocol::Executor) says are visible, and frees rows
/// that it says are superseded. So an implementation must guarantee:
///
/// - A row that an executor returns is complete. It is the record's own, or this transaction's own write of it.
/// - A row that an executor was given is either installed in its record by the commit or discarded, and never both.
/// - A version that an executor has replaced is handed to [`WorkerMemory`] once.
/// - [`Protocol::settle_deleted`] says that a record is removed only if it was unlinked.
pub unsafe trait Protocol: Sized + Send + Sync + 'static {
    /// The protocol's name, as the command line and the papers use it.
    const NAME: &'static str;

    /// A description in a few words.
    const TITLE: &'static str;

    /// The paper that the protocol comes from.
    const SOURCE: &'static str;

    /// How many threads can run transactions at the same time.
    const WORKERS_MAX: usize = usize::MAX;

    /// Whether the protocol uses hardware transactional memory.
    const USES_HTM: bool;

    /// What replaces hardware transactional memory on machines without it, if results must be read with that in
    /// mind. Such a protocol uses RTM by default, where it works. The others use software twins, unless RTM is chosen.
    const TWIN: Option<&'static str> = None;

    /// Whether the protocol only makes single operations on single rows atomic. If so, a transaction can access one
    /// row, and tables have no secondary indexes.
    const SINGLE_KEY: bool = false;

    /// Whether a running transaction may keep others from what it has accessed until it ends. A leaked transaction
    /// then does so for good.
    const KEEPS_LOCKS: bool = false;

    /// Whether records may be split among the workers, for commutative [operations](crate::operation).
    const SPLITS: bool = false;

    /// Whether the protocol finds by conflicts which records to split. Then it must not avoid conflicts by long waits.
    const COUNTS_CONFLICTS: bool = false;

    /// Whether a transaction that cannot commit may be repaired: run again as the same transaction, with what it
    /// knows of records.
    const REPAIRS: bool = false;

    /// Whether registered procedures may be committed piece by piece.
    const CHOPS: bool = false;

    /// Whether opening a [snapshot](crate::Snapshot) aborts the transactions in progress that have written
    /// something.
    const SNAPSHOTS_ABORT_WRITERS: bool = false;

    /// What the protocol keeps with every record.
    type Header: RecordHeader;

    /// What the protocol keeps once per database.
    type Shared: ProtocolShared;

    /// What runs the protocol on a worker.
    #[doc(hidden)]
    type Executor: Executor<Header = Self::Header, Shared = Self::Shared> + Send;

    /// Returns whether there is anything to do [between two transactions](Protocol::between_transactions).
    #[doc(hidden)]
    #[inline(always)]
    fn has_work_between(shared: &Self::Shared) -> bool {
        let _ = shared;
        Self::SPLITS || Self::CHOPS
    }

    /// Does the protocol's work between two transactions of a worker, on its thread. `keep_waiting` ends a wait
    /// with an error.
    #[doc(hidden)]
    #[inline(always)]
    fn between_transactions(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        keep_waiting: impl Fn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let _ = (database, worker, keep_waiting);
        Ok(())
    }

    /// Waits until a transaction that was refused in the phase with this number can run again. `keep_waiting` ends
    /// the wait with an error.
    #[doc(hidden)]
    fn wait_for_whole_rows<E>(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        refused_in: u64,
        keep_waiting: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let _ = (database, worker, refused_in, keep_waiting);
        Ok(())
    }

    /// Returns whether a transaction that was refused in the phase with this number can run again.
    #[doc(hidden)]
    #[inline(always)]
    fn has_whole_rows_since(shared: &Self::Shared, refused_in: u64) -> bool {
        let _ = (shared, refused_in);
        true
    }

    /// Notes whether a stash holds transactions now.
    #[doc(hidden)]
    fn note_stash(shared: &Self::Shared, is_holding: bool) {
        let _ = (shared, is_holding);
    }

    /// Waits until everything that has committed is in the rows, and runs `body` while it stays so.
    #[doc(hidden)]
    fn with_whole_rows<R>(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        body: impl FnOnce() -> R,
    ) -> Result<R, Failure> {
        let _ = (database, worker);
        Ok(body())
    }

    /// Makes all changes that were deferred, under a protocol that [defers](ProtocolShared::defers). No procedure is between
    /// two pieces. The worker is in no transaction, and leaves its garbage to others.
    #[doc(hidden)]
    fn make_whole(worker: &Worker<Self>) -> Result<(), Failure> {
        let _ = worker;
        Ok(())
    }

    /// Opens a snapshot by `open` while procedures run in pieces, and waits until it is
    /// [consistent](crate::store::eventual). Returns `None` if the protocol has no such snapshots, or if this one was
    /// given up.
    #[doc(hidden)]
    fn open_eventually<S>(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        open: impl FnOnce(&FormingSnapshot<'_>) -> S,
    ) -> Result<Option<(S, AdjustedRows)>, Failure> {
        let _ = (database, worker, open);
        Ok(None)
    }

    /// Returns what happened in the protocol's phases, if it has phases.
    #[doc(hidden)]
    fn phase_metrics(shared: &Self::Shared) -> Option<PhaseMetrics> {
        let _ = shared;
        None
    }

    /// Returns the points at which the protocol does something about contention.
    #[doc(hidden)]
    fn contention_points(shared: &Self::Shared) -> Vec<ContentionPoint> {
        let _ = shared;
        Vec::new()
    }

    /// Returns whether procedures are executed step by step, under a protocol that repairs.
    #[doc(hidden)]
    fn executes_steps(shared: &Self::Shared) -> bool {
        let _ = shared;
        false
    }

    /// Whether a transaction that has only read, and has lost, is run again in a snapshot.
    #[doc(hidden)]
    const RESTARTS_IN_SNAPSHOTS: bool = false;

    /// Whether a deleted record may leave its index as soon as its deletion has committed, while transactions that
    /// began before that are still under way. They may then have the address of a record that is
    /// [removed](crate::store::record::tid::Tid::is_removed). So the protocol must see that in each access, or at the
    /// latest in the commit, and must keep nothing in an absent record on which a later commit relies. If false, the
    /// record waits for a grace period, as in the paper (DBX §5.5).
    #[doc(hidden)]
    const UNLINKS_AT_ONCE: bool = false;

    /// Decides what happens to a deleted record that may leave its index (DBX §5.5). If no row was inserted into it
    /// since, and `may_go` returns true, runs `unlink` and marks the record as removed. No other thread writes the
    /// record at the same time.
    ///
    /// If versions begin again with a new record under the key, `may_go` gets the version that the deletion has left
    /// (see [`Tid::number`](crate::store::record::tid::Tid::number)), or else 0.
    /// If `unlink` does not find the record where it should be, it returns false, and the record stays as it is.
    #[doc(hidden)]
    fn settle_deleted(
        record: &StoredRecord<Self::Header>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome;

    /// Runs a callback while no transaction can replace the row of a record, if the record has a row, and no
    /// transaction holds it. It waits for nothing.
    ///
    /// Given if the engine may move rows: the callback replaces the record's newest row by a copy that is the
    /// same version. So a commit must not rely on the address of the row that it replaces until it holds the
    /// record.
    #[doc(hidden)]
    const HOLD_ROW: Option<HoldFunction<Self::Header>> = None;
}

/// See [`Protocol::HOLD_ROW`].
pub type HoldFunction<H> = fn(&StoredRecord<H>, &mut dyn FnMut()) -> HoldOutcome;

/// Returns what tables must know of the records of protocol `P`.
pub const fn record_kind<P: Protocol>() -> RecordKind {
    let hold_row: Option<HoldRow> = match P::HOLD_ROW {
        Some(_) => Some(hold_row::<P>),
        None => None,
    };
    RecordKind::new::<P::Header>(settle_deleted::<P>, P::UNLINKS_AT_ONCE, hold_row)
}

unsafe fn hold_row<P: Protocol>(record: NonNull<u8>, action: &mut dyn FnMut()) -> HoldOutcome {
    // SAFETY: called through the `RecordKind` of this protocol's records.
    let record = unsafe { record.cast::<StoredRecord<P::Header>>().as_ref() };
    P::HOLD_ROW.map_or(HoldOutcome::Absent, |hold_row| hold_row(record, action))
}

unsafe fn settle_deleted<P: Protocol>(
    record: NonNull<u8>,
    may_go: &dyn Fn(u64) -> bool,
    unlink: &mut dyn FnMut() -> bool,
) -> DeletedOutcome {
    // SAFETY: called through the `RecordKind` of this protocol's records.
    let record = unsafe { record.cast::<StoredRecord<P::Header>>().as_ref() };
    P::settle_deleted(record, may_go, unlink)
}

/// What a record holds, as one transaction sees it.
#[derive(Clone, Copy, Debug)]
pub enum Visible {
    /// A row.
    Row(NonNull<u8>),
    /// No row: the record is a placeholder, or its row was deleted.
    Absent,
    /// The record has left its index: look the key up again.
    Removed,
}

/// What a protocol does with a new record that is to be inserted under a key. See [`Executor::cache_insertion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedInsertion {
    /// The record is to be put into the index. If `alone`, the protocol is asked for each further record.
    ToIndex {
        /// Whether the next records of a run must not be put into the index at the same time.
        alone: bool,
    },
    /// The key was absent, and the protocol keeps the record under it, outside the index.
    Cached,
    /// There is a record under the key, at this address.
    Found(u64),
}

/// Where a transaction was when a savepoint began, in what it has written. Each executor has its own use of the numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteMark {
    /// How many writes there were.
    pub writes: usize,
    /// How many writes had been replaced by later ones of the same record.
    pub replaced: usize,
    /// How many steps the undo log for slices had.
    pub slices: usize,
    /// How many operations on slices were to be logged.
    pub operations: usize,
    /// Whether the protocol between split phases had writes.
    pub is_joined_written: bool,
}

/// What a record held when a write of it began, and what [`Executor::write`] must know of it.
#[derive(Clone, Copy, Debug)]
pub struct Observation<V> {
    /// What is visible to this transaction.
    pub visible: Visible,
    /// The version that the write will replace, in the protocol's own terms.
    pub version: V,
}

/// Where an operation on a column is applied.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// To the row.
    Row,
    /// To this slice of the row, which belongs to the worker.
    Slice(NonNull<u8>),
}

/// Why and where a transaction has to abort.
#[derive(Clone, Copy, Debug)]
pub struct Abort {
    /// The reason.
    pub reason: ConflictReason,
    /// The table.
    pub table: TableRef,
    /// The block of the record, if the abort is because of one record.
    pub record: Option<NonNull<u8>>,
}

impl Abort {
    /// Returns an abort that is not because of one record.
    pub fn of_table(reason: ConflictReason, table: TableRef) -> Abort {
        Abort { reason, table, record: None }
    }

    /// Returns the reason, the table and the record.
    pub fn place(&self) -> (ConflictReason, TableRef, Option<NonNull<u8>>) {
        (self.reason, self.table, self.record)
    }

    /// Returns a row of the record, which shows the record's key.
    ///
    /// # Safety
    /// The transaction that was aborted has not ended: its worker is pinned.
    pub unsafe fn row(&self) -> Option<NonNull<u8>> {
        // SAFETY: the record was found while the worker was pinned, and the worker still is. So the record is not
        // freed.
        self.record.and_then(|record| unsafe { newest(record) })
    }

    /// Returns the abort as a conflict, which describes it for people.
    ///
    /// # Safety
    /// As for [`Abort::row`].
    pub unsafe fn into_conflict(self) -> Conflict {
        let table = self.table.core();
        // SAFETY: the worker is pinned, so neither the record nor its row is freed. Both are of this table.
        let key = unsafe { self.row().map(|row| (table.format_key)(row)) };
        Conflict { reason: self.reason, table: table.name, index: table.index, key }
    }
}

/// Why a transaction does not begin.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// Another thread runs a transaction, under a protocol that allows one at a time.
    Busy,
    /// Another failure, which is returned to the caller.
    Failure(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Failure(failure)
    }
}

/// Runs one worker's transactions under a protocol. It owns the access sets, which are reused from one transaction
/// to the next.
///
/// # Safety of use
/// Callers keep three rules, which implementations rely on:
///
/// - The worker is pinned from `begin` to the end of `commit` or `abort`.
/// - Records and tables passed in belong to the executor's database.
/// - A row passed in is of the record's table, and complete. From then on it belongs to the executor.
///
/// In return, methods run no code of the user's types, unless their documentation says so.
pub trait Executor {
    /// See [`Protocol::Header`].
    type Header: RecordHeader;
    /// See [`Protocol::Shared`].
    type Shared;
    /// What a write must know about the version that it replaces.
    type Version: Copy;
    /// What splits records among the workers, or [`Never`].
    type Splitting: SplitsRecords<Self::Header>;
    /// What repairs transactions, or [`Never`].
    type Repairing: RepairsTransactions<Self::Header>;
    /// What commits procedures piece by piece, or [`Never`].
    type Chopping: ChopsProcedures<Self::Header>;
    /// What applies operations again when a commit fails, or [`Never`].
    type Reapplying: ReappliesOperations<Self::Header, Self::Version>;

    /// Whether [`Executor::carry_over`] reads ranges again whose leaves have changed. Then a scan may pass over a record
    /// that has left its index after the scan has read the leaf.
    const READS_RANGES_AGAIN: bool = false;

    /// Returns the executor, if the protocol splits records.
    #[inline(always)]
    fn splitting(&mut self) -> Option<&mut Self::Splitting> {
        None
    }

    /// Returns the executor, if the protocol repairs transactions.
    #[inline(always)]
    fn repairing(&mut self) -> Option<&mut Self::Repairing> {
        None
    }

    /// Returns the executor, if the protocol commits procedures piece by piece.
    #[inline(always)]
    fn chopping(&mut self) -> Option<&mut Self::Chopping> {
        None
    }

    /// Returns the executor, if the protocol applies operations again when a commit fails.
    #[inline(always)]
    fn reapplying(&mut self) -> Option<&mut Self::Reapplying> {
        None
    }

    /// Returns an executor for the worker in a slot. No two executors of a database have the same slot at the same
    /// time.
    fn new(shared: &std::sync::Arc<Self::Shared>, slot: usize) -> Self;

    /// Announces that a transaction is about to begin. The worker is pinned next, and pinning includes a
    /// sequentially consistent fence; unless it `is_pinned` already.
    #[inline(always)]
    fn announce(&mut self, _is_pinned: bool) {}

    /// Takes [`Executor::announce`] back, if the transaction does not begin.
    #[inline(always)]
    fn retract(&mut self) {}

    /// Looks a key up. `search` looks it up in the index, and may be called several times; with a region, which the
    /// protocol has begun for that, by the sequential algorithm in this region.
    #[inline(always)]
    fn look_up(
        &mut self,
        table: TableRef,
        key: impl Fn() -> EncodedKey,
        memory: &WorkerMemory,
        search: impl Fn(Option<&Region>) -> Lookup,
    ) -> Result<Lookup, Abort> {
        let _ = (table, key, memory);
        Ok(search(None))
    }

    /// Keeps a new record, at `address`, outside the index at first, if the protocol does so. `search` looks its key up
    /// in the index.
    #[inline(always)]
    fn cache_insertion(
        &mut self,
        table: TableRef,
        key: impl Fn() -> EncodedKey,
        address: u64,
        memory: &WorkerMemory,
        search: impl Fn() -> Lookup,
    ) -> Result<CachedInsertion, Abort> {
        let _ = (table, key, address, memory, search);
        Ok(CachedInsertion::ToIndex { alone: false })
    }

    /// Puts an empty record under a key that was not found, if the protocol records absent keys in this way. `link`
    /// inserts the record at an address under the key. Returns the record under the key, or `None` to have the index
    /// node [noted](Executor::note_node) instead.
    #[inline(always)]
    fn place_absent(
        &mut self,
        table: TableRef,
        key: impl FnOnce() -> EncodedKey,
        link: impl FnOnce(u64) -> Insertion,
        memory: &WorkerMemory,
    ) -> Result<Option<RecordPointer<Self::Header>>, Abort> {
        let _ = (table, key, link, memory);
        Ok(None)
    }

    /// Begins a transaction. `attempt` is the number of attempts before this one. May run the user's code, to
    /// publish deferred changes.
    fn begin(&mut self, attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal>;

    /// Reads a record: this transaction's own write of it, or else its newest committed row.
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort>;

    /// As [`Executor::read`], for an operation that uses only these columns of the row.
    #[inline(always)]
    fn read_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        columns: ColumnSet,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        let _ = columns;
        self.read(table, record, memory)
    }

    /// Reads a record that is about to be written. The read is validated with the write.
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        memory: &WorkerMemory,
    ) -> Result<Observation<Self::Version>, Abort>;

    /// Turns a [`Executor::read_for_write`] into a plain read, if the write was not made because of an error or a
    /// panic. The error or panic may follow from the row that was read, so the read must be validated.
    fn note_read(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        version: Self::Version,
    );

    /// Returns whether `version`, from [`Executor::read_for_write`], is still what this transaction sees. It is
    /// not, if the transaction has written the record since.
    fn is_current(&self, record: RecordPointer<Self::Header>, version: Self::Version) -> bool;

    /// Replaces what the record holds by `row`. `version` is current.
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        version: Self::Version,
        row: NonNull<u8>,
    );

    /// As [`Executor::write`], for an operation that uses the visible row as `columns` say, and changes no others.
    #[inline(always)]
    fn write_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        version: Self::Version,
        row: NonNull<u8>,
        columns: UsedColumns,
    ) {
        let _ = columns;
        self.write(table, record, version, row);
    }

    /// Deletes the record's row. `version` is current, and a row was visible. The index leads to the record from
    /// `key`.
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        version: Self::Version,
        key: EncodedKey,
    );

    /// Makes a placeholder belong to this transaction, before any other thread can find it. After that the
    /// placeholder is either put into an index, and [noted](Executor::insert), or thrown away.
    #[inline(always)]
    fn prepare_insert(&mut self, record: RecordPointer<Self::Header>) {
        let _ = record;
    }

    /// Notes a placeholder that this transaction has put into an index under `key`, and the row that becomes
    /// visible in it at the commit.
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        row: NonNull<u8>,
        key: EncodedKey,
    );

    /// Announces that the transaction is about to scan a range. `start` returns a hash of the key where the scan
    /// begins.
    #[inline(always)]
    fn approach_range(&mut self, table: TableRef, start: impl FnOnce() -> u64) {
        let _ = (table, start);
    }

    /// Begins to scan a range. `ends` returns the least and the greatest key that it may contain; `None`: it has no
    /// end there.
    #[inline(always)]
    fn enter_range(
        &mut self,
        table: TableRef,
        ends: impl FnOnce() -> [Option<EncodedKey>; 2],
        memory: &WorkerMemory,
    ) -> Result<(), Abort> {
        let _ = (table, ends, memory);
        Ok(())
    }

    /// Notes an index node in which keys were found absent, or in which the `range` was scanned. Returns the
    /// position of the note, for [`Executor::stop_scan`].
    fn note_node(
        &mut self,
        table: TableRef,
        node: NodeVersion,
        range: Option<ScannedRange>,
    ) -> Result<usize, Abort>;

    /// Notes that the scan which has noted this node, at this position, has ended early. It has not followed
    /// `address`, nor any address after it.
    #[inline(always)]
    fn stop_scan(&mut self, position: usize, node: NodeVersion, address: u64) {
        let _ = (position, node, address);
    }

    /// Notes that this transaction's own insertion has changed index nodes.
    fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> Result<(), Abort>;

    /// Returns how many rows the transaction has added to a table so far, less those that it has deleted. Returns
    /// `None` if the protocol's commits do not [count rows](crate::store::worker::WorkerMemory::open_rows).
    fn rows_added(&self, table: TableRef) -> Option<i64> {
        let _ = table;
        None
    }

    /// Returns how many rows and index entries the transaction has read so far, and how many it is to write. One that is
    /// read twice may count twice. One that is read in order to be written counts as written.
    fn accessed(&self) -> (usize, usize) {
        (0, 0)
    }

    /// Checks that everything that was read so far could still be committed. If so, what the transaction concludes
    /// from it (an error, a panic) is real.
    fn validate(&mut self) -> Result<(), Abort>;

    /// Lists what is to be logged if the transaction commits as it is now. Remembers for each write its position in
    /// the list, by which the worker appends it to the log later.
    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>);

    /// Commits, or else leaves everything as it was.
    ///
    /// `epoch` draws the transaction's snapshot number, and returns its epoch. If the transaction has written
    /// something, `commit` calls `epoch` once, at the serialization point: when no other transaction can come
    /// between the call and the installation of the writes. The epoch is at least that of every transaction that
    /// this one depends on.
    ///
    /// Installed versions are then numbered (`WorkerMemory::number`), and the versions that they have replaced are
    /// superseded (`WorkerMemory::supersede`).
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort>;

    /// Moves what the transaction has read and written by columns to the present versions, and ranges to the present
    /// leaves, after [`Executor::commit`] has failed with `abort`. Then the commit can be tried again. Fails if something has
    /// changed that matters to the transaction. Runs the user's code, which compares and copies rows. Calls `report` for
    /// each access that it moves, also if it fails later.
    fn carry_over(
        &mut self,
        abort: Abort,
        memory: &WorkerMemory,
        report: &mut dyn FnMut(CarriedAccess),
    ) -> Result<(), Abort> {
        let _ = (memory, report);
        Err(abort)
    }

    /// Begins a savepoint. It ends with [`Executor::keep`] or [`Executor::undo_to`]. Savepoints are nested.
    fn mark(&mut self) -> WriteMark;

    /// Ends the last savepoint that was begun.
    fn keep(&mut self, mark: WriteMark);

    /// Undoes what was written since the last savepoint was begun, and ends the savepoint. What was read since then
    /// is validated all the same, reads of records that were written included. Rows that were handed out stay until
    /// the transaction ends.
    fn undo_to(&mut self, mark: WriteMark, memory: &WorkerMemory);

    /// Undoes everything. Must be called after a failed [`Executor::commit`], too.
    fn abort(&mut self, memory: &WorkerMemory);
}

/// A description of a protocol, at run time.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolDescription {
    /// See [`Protocol::NAME`].
    pub name: &'static str,
    /// See [`Protocol::TITLE`].
    pub title: &'static str,
    /// See [`Protocol::SOURCE`].
    pub source: &'static str,
    /// See [`Protocol::WORKERS_MAX`].
    pub workers_max: usize,
    /// See [`Protocol::USES_HTM`].
    pub uses_htm: bool,
    /// See [`Protocol::TWIN`].
    pub twin: Option<&'static str>,
    /// See [`Protocol::SINGLE_KEY`].
    pub single_key: bool,
}

impl ProtocolDescription {
    /// Returns the description of protocol `P`.
    pub const fn of<P: Protocol>() -> Self {
        ProtocolDescription {
            name: P::NAME,
            title: P::TITLE,
            source: P::SOURCE,
            workers_max: P::WORKERS_MAX,
            uses_htm: P::USES_HTM,
            twin: P::TWIN,
            single_key: P::SINGLE_KEY,
        }
    }
}
