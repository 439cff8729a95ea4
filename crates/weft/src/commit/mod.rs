//! Concurrency-control protocols: what they are to the engine, and the list of them.
//!
//! The engine splits a transaction's work in two. The layer above ([`Transaction`], `table`)
//! knows keys, row types and indexes: it turns a key into a record, and builds the new versions.
//! The protocol below knows records and versions only: an [`Executor`], one per worker, is told
//! which record is read, written, inserted or removed, and which index nodes stand for what was
//! found absent, and decides at [`Executor::commit`].
//!
//! A protocol is one file, to be read beside its paper. Those of an application are here. The laboratory's are in the
//! crate `weft-protocols`, with the list of all.
//!
//! [`Transaction`]: crate::Transaction
#![allow(rustdoc::private_intra_doc_links, reason = "hidden: whoever reads it reads the source")]

pub mod access_set;
mod capabilities;
pub mod dbx;
mod deferred_change;
mod engine;
pub mod optimistic;
mod options;
pub mod silo;
pub mod two_phase_locking;
mod unstable;
mod worker;

use std::ptr::NonNull;

pub use capabilities::{ChopsProcedures, Never, PhaseMetrics, RepairsTransactions, SplitsRecords};
pub use dbx::Dbx;
pub use deferred_change::{DeferredChange, Moved};
pub use engine::{CommitToken, Durability, Engine};
pub use options::{GivenOptions, ProtocolOptions, ProtocolShared};
pub use silo::Silo;
pub use two_phase_locking::{TwoPhaseLocking, TwoPhaseLockingNoWait};
pub use unstable::Unstable;
pub use worker::{Worker, Workers, backoff};

use crate::error::{Conflict, ConflictReason, Failure};
use crate::index::bplus_tree::ScannedRange;
use crate::index::{NodeChange, NodeVersion};
use crate::row::encoding::EncodedKey;
use crate::store::record::newest;
pub use crate::store::record::{RecordHeader, Settled};
use crate::store::record::{RecordKind, RecordPointer, StoredRecord};
use crate::store::table::TableRef;
use crate::store::worker::{LoggedWrite, WorkerMemory};

/// A concurrency-control protocol: a type that is never instantiated, to be named as the
/// parameter of a [`Database`](crate::Database).
///
/// # Safety
/// The engine hands out references to what the [executor](Protocol::Executor) says is visible, and frees what it says
/// is superseded. So a row that an executor returns is the record's own, or this transaction's own write of it, and
/// is complete. A row that it was given is either installed in its record by the commit, or discarded, and never both.
/// A version that it has replaced is handed to [`WorkerMemory`] once. And [`Protocol::settle_deleted`] says that a
/// record is removed only if it was unlinked.
pub unsafe trait Protocol: Sized + Send + Sync + 'static {
    /// The name by which the command line and the papers know it.
    const NAME: &'static str;

    /// What it is, in a few words.
    const TITLE: &'static str;

    /// The paper it comes from.
    const SOURCE: &'static str;

    /// How many threads may run transactions at a time.
    const WORKERS_MAX: usize = usize::MAX;

    /// Whether hardware transactional memory is part of it.
    const USES_HTM: bool;

    /// What takes the place of hardware transactional memory where there is none, if results have
    /// to be read with that in mind.
    const TWIN: Option<&'static str> = None;

    /// Whether it only makes single operations on single rows atomic: then a transaction may
    /// access one row, and tables have no secondary indexes.
    const SINGLE_KEY: bool = false;

    /// Whether a running transaction may keep others from what it has accessed until it ends. One
    /// that is leaked then does so for good.
    const KEEPS_LOCKS: bool = false;

    /// Whether records may be split among the workers, for commutative
    /// [operations](crate::operation).
    const SPLITS: bool = false;

    /// Whether a transaction that cannot commit may be run again as the same transaction, with what it
    /// knows of records.
    const REPAIRS: bool = false;

    /// Whether registered procedures may be committed piece by piece.
    const CHOPS: bool = false;

    /// Whether opening a [snapshot](crate::Snapshot) makes transactions give way that are in
    /// progress and have written something.
    const SNAPSHOTS_ABORT_WRITERS: bool = false;

    /// What it keeps with every record.
    type Header: RecordHeader;

    /// What it keeps once per database.
    type Shared: ProtocolShared;

    /// What runs it on a worker.
    #[doc(hidden)]
    type Executor: Executor<Header = Self::Header, Shared = Self::Shared> + Send;

    /// Does what is to be done between two transactions of a worker, on its thread. `keep_waiting` ends a
    /// wait with an error.
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

    /// Waits until a transaction can be run again that was refused in the phase of this number.
    /// `keep_waiting` ends the wait with an error.
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

    /// Whether a transaction can be run again that was refused in the phase of this number.
    #[doc(hidden)]
    #[inline(always)]
    fn has_whole_rows_since(shared: &Self::Shared, refused_in: u64) -> bool {
        let _ = (shared, refused_in);
        true
    }

    /// Notes that a stash holds transactions now, or no longer.
    #[doc(hidden)]
    fn note_stash(shared: &Self::Shared, is_holding: bool) {
        let _ = (shared, is_holding);
    }

    /// Runs `body` when all that has committed is in the rows, and keeps it so meanwhile.
    #[doc(hidden)]
    fn with_whole_rows<R>(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        body: impl FnOnce() -> R,
    ) -> Result<R, Failure> {
        let _ = (database, worker);
        Ok(body())
    }

    /// What happened in its phases, if it has any.
    #[doc(hidden)]
    fn phase_metrics(shared: &Self::Shared) -> Option<PhaseMetrics> {
        let _ = shared;
        None
    }

    /// Whether procedures are to be executed step by step, under a protocol that repairs.
    #[doc(hidden)]
    fn executes_steps(shared: &Self::Shared) -> bool {
        let _ = shared;
        false
    }

    /// Decides what becomes of a deleted record after its grace period (DBX §5.5): if no row was
    /// inserted into it since, and it `may_go`, runs `unlink` and marks the record as removed.
    /// Nobody else writes the record meanwhile. `may_go` is told the epoch of the deletion, if
    /// versions begin again with a new record under the key; else 0. If `unlink` does not find the record
    /// where it was said to be, it returns false, and the record stays as it is.
    #[doc(hidden)]
    fn settle_deleted(
        record: &StoredRecord<Self::Header>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> Settled;
}

/// What tables must know of the records of protocol `P`.
pub const fn record_kind<P: Protocol>() -> RecordKind {
    RecordKind::new::<P::Header>(settle_deleted::<P>)
}

unsafe fn settle_deleted<P: Protocol>(
    record: NonNull<u8>,
    may_go: &dyn Fn(u64) -> bool,
    unlink: &mut dyn FnMut() -> bool,
) -> Settled {
    // SAFETY: called through the `RecordKind` of this protocol's records.
    let record = unsafe { record.cast::<StoredRecord<P::Header>>().as_ref() };
    P::settle_deleted(record, may_go, unlink)
}

/// What a record holds, as one transaction sees it.
#[derive(Clone, Copy, Debug)]
pub enum Visible {
    /// A row.
    Row(NonNull<u8>),
    /// No row: a placeholder, or deleted.
    Absent,
    /// The record has left its index: the key has to be looked up again.
    Removed,
}

/// What a record held when a write of it began, and what [`Executor::write`] needs to know of it.
#[derive(Clone, Copy, Debug)]
pub struct Observation<V> {
    /// What is visible to this transaction.
    pub visible: Visible,
    /// The version that the write will replace, in the protocol's own terms.
    pub version: V,
}

/// Where an operation on a column is to be applied.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// To the row.
    Row,
    /// To this slice of it, which is the worker's own.
    Slice(NonNull<u8>),
}

/// A transaction that has to give way, and to what.
#[derive(Clone, Copy, Debug)]
pub struct Abort {
    /// Why.
    pub reason: ConflictReason,
    /// Where.
    pub table: TableRef,
    /// The record in question, by its block, if it is about one.
    pub record: Option<NonNull<u8>>,
}

impl Abort {
    /// An abort for something that is not one record's.
    pub fn of_table(reason: ConflictReason, table: TableRef) -> Abort {
        Abort { reason, table, record: None }
    }

    /// A row of the record, by which its key is known.
    ///
    /// # Safety
    /// As for [`Abort::into_conflict`].
    pub unsafe fn row(&self) -> Option<NonNull<u8>> {
        // SAFETY: the record was found while the worker was pinned, so it is not freed.
        self.record.and_then(|record| unsafe { newest(record) })
    }

    /// Spells the abort out for people.
    ///
    /// # Safety
    /// The worker is still pinned as it was when the abort was decided.
    pub unsafe fn into_conflict(self) -> Conflict {
        let table = self.table.core();
        // SAFETY: pinned, so neither the record is freed nor its row; they are of this table.
        let key = unsafe { self.row().map(|row| (table.format_key)(row)) };
        Conflict { reason: self.reason, table: table.name, index: table.index, key }
    }
}

/// Why a transaction does not begin.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// Another thread runs a transaction, under a protocol that allows one at a time.
    Busy,
    /// Something else, which concerns the caller.
    Failure(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Failure(failure)
    }
}

/// Runs one worker's transactions under a protocol. It owns the access sets, which are reused
/// from one transaction to the next.
///
/// # Safety of use
/// Callers keep three rules, which implementations rely on: the worker is pinned from `begin` to
/// the end of `commit` or `abort`; records and tables passed in belong to the executor's database;
/// a row passed in is of the record's table, complete, and from then on the executor's.
///
/// In return no method runs code of the user's, but for those that say so.
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

    /// The executor, if the protocol splits records.
    #[inline(always)]
    fn splitting(&mut self) -> Option<&mut Self::Splitting> {
        None
    }

    /// The executor, if the protocol repairs transactions.
    #[inline(always)]
    fn repairing(&mut self) -> Option<&mut Self::Repairing> {
        None
    }

    /// The executor, if the protocol commits procedures piece by piece.
    #[inline(always)]
    fn chopping(&mut self) -> Option<&mut Self::Chopping> {
        None
    }

    /// An executor for the worker in a slot. No two executors of a database have the same slot at
    /// the same time.
    fn new(shared: &std::sync::Arc<Self::Shared>, slot: usize) -> Self;

    /// Says that a transaction is about to begin. The worker is pinned next, by which comes a
    /// sequentially consistent fence.
    #[inline(always)]
    fn announce(&mut self) {}

    /// Takes [`Executor::announce`] back, if the transaction does not begin.
    #[inline(always)]
    fn retract(&mut self) {}

    /// Starts a transaction; `attempt` counts the times that it was tried before. May run the user's code, to
    /// publish what was deferred.
    fn begin(&mut self, attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal>;

    /// Reads a record: this transaction's own write of it, or else its newest committed row.
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort>;

    /// Reads a record that is about to be written: the read is validated with the write.
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        memory: &WorkerMemory,
    ) -> Result<Observation<Self::Version>, Abort>;

    /// Turns a [`Executor::read_for_write`] whose write did not come about into a plain read: an
    /// error or a panic that the row led to is a conclusion from it like any other.
    fn note_read(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        version: Self::Version,
    );

    /// Whether `version`, from [`Executor::read_for_write`], still is what this transaction sees:
    /// false if it has written the record itself since.
    fn is_current(&self, record: RecordPointer<Self::Header>, version: Self::Version) -> bool;

    /// Replaces what the record holds by `row`. `version` is current.
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        version: Self::Version,
        row: NonNull<u8>,
    );

    /// Makes the record hold no row. `version` is current, and a row was visible. The index leads to the
    /// record from `key`.
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        version: Self::Version,
        key: EncodedKey,
    );

    /// Makes a placeholder this transaction's own before anybody else can find it. It is then
    /// either put into an index, and [noted](Executor::insert), or thrown away.
    #[inline(always)]
    fn prepare_insert(&mut self, record: RecordPointer<Self::Header>) {
        let _ = record;
    }

    /// Notes a placeholder that this transaction has put into an index under `key`, and the row that is
    /// to become visible in it.
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<Self::Header>,
        row: NonNull<u8>,
        key: EncodedKey,
    );

    /// Notes an index node that stands for keys found absent, or for the `range` that was scanned in it.
    /// Returns the position of the note, for [`Executor::stop_scan`].
    fn note_node(
        &mut self,
        table: TableRef,
        node: NodeVersion,
        range: Option<ScannedRange>,
    ) -> Result<usize, Abort>;

    /// The scan that has noted this node, at this position, has ended early: it has not followed `address`, nor
    /// what comes after it.
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

    /// Whether all that was read so far could still be committed, so that what the transaction
    /// concludes from it (an error, a panic) is real.
    fn validate(&mut self) -> Result<(), Abort>;

    /// Lists what is to be logged if the transaction commits as it is now, and remembers of each write its
    /// position in the list, by which the worker appends it to the log later.
    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>);

    /// Commits, or else leaves everything as it was. `epoch` draws the transaction's snapshot
    /// number, and returns its epoch; whoever has written something calls it once, at the
    /// serialization point: when nobody else can come between it and the installation of the
    /// writes. It is at least that of every transaction that this one depends on. Versions that
    /// were installed are then numbered (`WorkerMemory::number`), and those that they have replaced
    /// are superseded (`WorkerMemory::supersede`).
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort>;

    /// Undoes everything. To be called after a failed [`Executor::commit`] as well.
    fn abort(&mut self, memory: &WorkerMemory);
}

/// A protocol, described at run time.
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
    /// The description of a protocol.
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
