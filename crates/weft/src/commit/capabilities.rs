//! What only some protocols can do: split records, repair transactions, commit procedures piece by piece, apply
//! operations again.
//!
//! The associated types of an [`Executor`](super::Executor) say which capabilities it has. An executor with a
//! capability names a type that implements the capability's trait, and returns a value of it from the accessor of
//! the same name. Without the capability it names [`Never`], which has no values. So the accessor returns `None`,
//! and the compiler removes the engine's code for the capability.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::applied::{StaleWrite, StaleWrites};
use super::{Abort, DeferredChange, Target};
use crate::plan::{Pieces, Shape};
use crate::row::column::UsedColumns;
use crate::row::encoding::EncodedKey;
use crate::row::operation::{ColumnOperation, RepeatableOperation, Reserve, UndoLog};
use crate::step::Instance;
use crate::store::record::RecordPointer;
use crate::store::table::TableRef;
use crate::store::worker::WorkerMemory;

/// A capability that a protocol does not have.
#[derive(Clone, Copy, Debug)]
pub enum Never {}

/// Splits records among the workers, each of which applies commutative operations to a slice of its own (Doppel).
pub trait SplitsRecords<H> {
    /// Sets whether, from now on, the caller sets refused transactions aside.
    fn set_aside(&mut self, is_set_aside: bool);

    /// Returns the number of the phase in which the last transaction that is to be set aside was refused.
    fn take_refused(&mut self) -> u64;

    /// Decides whether an operation applies to the row, or to this worker's slice of it. `operation` is
    /// `None` if it cannot be split. May run the user's code, to make the slice.
    fn target(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        operation: Option<&ColumnOperation>,
        memory: &WorkerMemory,
    ) -> Result<Target, Abort>;

    /// Returns the reserve for an operation to whose slice the transaction has just been directed.
    fn reserve(
        &self,
        record: RecordPointer<H>,
        operation: Option<&ColumnOperation>,
    ) -> Option<&Reserve>;

    /// Returns the undo log for slices.
    fn undo_log(&mut self) -> &mut UndoLog;

    /// Notes the operation that was just applied to a slice, for the log. `bytes` is its stored form. If `is_stamped`,
    /// this ends with the stamp, which the commit fills in.
    fn log_operation(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        bytes: &[u8],
        is_stamped: bool,
    );

    /// Refuses an operation whose result cannot be decided from the slice alone.
    fn refuse_undecided(&mut self, table: TableRef, record: RecordPointer<H>) -> Abort;
}

/// What happened in the phases of a database since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseMetrics {
    /// Whether there are phases at present. A protocol that adapts has them only while something is to be found out or done
    /// about conflicts.
    pub has_phases: bool,
    /// Whether the present phase is a split phase.
    pub is_split: bool,
    /// Split phases that have begun.
    pub split_phases: u64,
    /// Of these, split phases that ended early because a thread was waiting.
    pub hurried: u64,
    /// Rows that reconciliations have replaced.
    pub reconciled_rows: u64,
    /// Records that are split at present, or will be in the next split phase.
    pub split_records: u64,
    /// Transactions that met a split record, and had to wait.
    pub refused: u64,
    /// Of these, transactions that were [set aside](crate::Stash), while their threads went on with others.
    pub stashed: u64,
    /// Time spent in split phases that have ended.
    pub split_time: Duration,
    /// Time in which no transaction ran, because the phase changed.
    pub changing_time: Duration,
}

/// The action that a protocol takes at a contention point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentionAction {
    /// Transactions queue for it.
    Order,
    /// Operations on it go to slices of the workers.
    Split,
    /// Order is being tried.
    Trial,
}

/// A point at which a protocol does something about contention.
#[derive(Clone, Debug)]
pub struct ContentionPoint {
    /// The table or the index.
    pub table: TableRef,
    /// The key of a record, or `None` for a range.
    pub key: Option<EncodedKey>,
    /// What the protocol does there.
    pub action: ContentionAction,
    /// For how long it has done this.
    pub lasted: Duration,
}

/// Repairs transactions: runs a transaction that cannot commit again as the same transaction, with what it knows of
/// records (HTCC, §4).
pub trait RepairsTransactions<H> {
    /// Returns whether the database was opened with repairs.
    fn is_on(&self) -> bool;

    /// Undoes everything that the transaction has done, whether its commit has failed or was not tried, so that it
    /// can run again. The worker stays pinned.
    fn repair(&mut self, memory: &WorkerMemory);

    /// Returns whether the repaired transaction runs again as a whole, on the workset cache.
    fn replays(&self) -> bool;

    /// Returns the records that the transaction has found and read (`false`), or found and is to write (`true`).
    /// Each kind is in the order of the transaction's accesses.
    fn found(&self) -> impl Iterator<Item = (TableRef, RecordPointer<H>, bool)>;

    /// Announces that the transaction that has just begun is a procedure, executed step by step. From now on the
    /// driver tells [to which instance](RepairsTransactions::enter_step) its accesses belong.
    fn begin_steps(&mut self);

    /// Announces that the following accesses belong to this instance. `goes_on` says that accesses of the instance
    /// came before.
    fn enter_step(&mut self, instance: Instance, goes_on: bool);

    /// Keeps what this instance did in the last round.
    fn keep_step(&mut self, instance: Instance);

    /// Returns the record of a table that an instance accessed in the last round.
    fn record_of_step(&mut self, instance: Instance, table: TableRef) -> Option<RecordPointer<H>>;

    /// Begins a round, after one that ended early or could not be committed.
    fn next_round(&mut self, memory: &WorkerMemory);

    /// Returns the instances that have read or written something that has changed since.
    fn stale_steps(&self) -> Vec<Instance>;
}

/// Commits registered procedures piece by piece (DBX-TC, §3).
pub trait ChopsProcedures<H> {
    /// Returns the pieces in which a procedure is executed, or `None` if it is not registered.
    fn pieces_of(&mut self, shape: &'static Shape) -> Option<Arc<Pieces>>;

    /// Announces that the transaction that begins next is a registered procedure. It is committed piece by piece if
    /// possible, or else as one piece.
    fn expect_procedure(&mut self, pieces: &Pieces);

    /// Decides whether the procedure whose [pieces](ChopsProcedures::pieces_of) were asked for last must tell which
    /// step it is at. If it does, its commit can be [carried over](super::Executor::carry_over) when it fails. The
    /// procedure has one piece, and has failed `attempt` times.
    fn takes_notes(&mut self, attempt: u32) -> bool;

    /// Notes a change that is made when deferred changes are published.
    fn defer(&mut self, change: DeferredChange<H>);

    /// Returns whether the transaction that has begun is committed piece by piece, so that each commit is that of a
    /// piece.
    fn is_in_pieces(&self) -> bool;

    /// Announces that the following accesses are those of a step that uses rows as `columns` say.
    fn enter_step(&mut self, columns: UsedColumns);

    /// Opens a region for the piece at position `piece`, which is about to begin, if pieces are regions and there
    /// is hardware for them. An abort of the region takes the thread back to this point. (On the simulated machine
    /// the thread unwinds. The code that catches it calls [`ChopsProcedures::forget_region`], and begins the piece
    /// again.)
    fn open_region(&mut self, piece: usize, memory: &WorkerMemory);

    /// Ends the region of a piece that is not committed, if one is open. What the piece has read was true at this
    /// moment. No other thread sees what it has written.
    fn close_region(&mut self, memory: &WorkerMemory);

    /// Forgets what was done in the region of the piece, which the simulated machine has rolled back.
    fn forget_region(&mut self, memory: &WorkerMemory);

    /// Announces a commit, and whether it decides the procedure's place in the serial order, unless an earlier one has.
    fn decide_place(&mut self, decides: bool);

    /// Undoes what was done since the last commit of a piece, so that the piece can be done again. It has failed
    /// `attempt` times. Rows that were handed out stay.
    fn undo_piece(&mut self, attempt: u32, memory: &WorkerMemory);

    /// Announces that the last piece has been committed, and that nothing refers any more to rows that were handed
    /// out.
    fn end_pieces(&mut self, memory: &WorkerMemory);
}

/// Applies commutative operations again, to the present versions of their rows, when a commit fails because of a row
/// that the transaction has written by operations alone: see [`applied`](super::applied).
pub trait ReappliesOperations<H, V> {
    /// Notes that an operation, with its own value, has made `row`, which was just
    /// [written](super::Executor::write), out of the observed version.
    fn note_applied<O>(
        &mut self,
        record: RecordPointer<H>,
        version: V,
        row: NonNull<u8>,
        operation: RepeatableOperation,
        own: O,
    );

    /// Returns the writes to be made again after the commit has failed by `abort`, and takes the operations out.
    /// Returns `None` if the transaction must give way.
    fn take_stale(&mut self, abort: &Abort) -> Option<StaleWrites<H>>;

    /// Lets a stale write replace the present version of its record by `row`, which belongs to the executor from now
    /// on.
    fn write_again(&mut self, write: &StaleWrite<H>, row: NonNull<u8>);

    /// Takes the operations back, after the stale writes were made again.
    fn put_back(&mut self, stale: StaleWrites<H>);
}

impl<H> SplitsRecords<H> for Never {
    fn set_aside(&mut self, _is_set_aside: bool) {
        match *self {}
    }

    fn take_refused(&mut self) -> u64 {
        match *self {}
    }

    fn target(
        &mut self,
        _table: TableRef,
        _record: RecordPointer<H>,
        _operation: Option<&ColumnOperation>,
        _memory: &WorkerMemory,
    ) -> Result<Target, Abort> {
        match *self {}
    }

    fn reserve(&self, _: RecordPointer<H>, _: Option<&ColumnOperation>) -> Option<&Reserve> {
        match *self {}
    }

    fn undo_log(&mut self) -> &mut UndoLog {
        match *self {}
    }

    fn log_operation(&mut self, _: TableRef, _: RecordPointer<H>, _: &[u8], _is_stamped: bool) {
        match *self {}
    }

    fn refuse_undecided(&mut self, _table: TableRef, _record: RecordPointer<H>) -> Abort {
        match *self {}
    }
}

impl<H> RepairsTransactions<H> for Never {
    fn is_on(&self) -> bool {
        match *self {}
    }

    fn repair(&mut self, _memory: &WorkerMemory) {
        match *self {}
    }

    fn replays(&self) -> bool {
        match *self {}
    }

    fn found(&self) -> impl Iterator<Item = (TableRef, RecordPointer<H>, bool)> {
        std::iter::empty()
    }

    fn begin_steps(&mut self) {
        match *self {}
    }

    fn enter_step(&mut self, _instance: Instance, _goes_on: bool) {
        match *self {}
    }

    fn keep_step(&mut self, _instance: Instance) {
        match *self {}
    }

    fn record_of_step(
        &mut self,
        _instance: Instance,
        _table: TableRef,
    ) -> Option<RecordPointer<H>> {
        match *self {}
    }

    fn next_round(&mut self, _memory: &WorkerMemory) {
        match *self {}
    }

    fn stale_steps(&self) -> Vec<Instance> {
        match *self {}
    }
}

impl<H> ChopsProcedures<H> for Never {
    fn pieces_of(&mut self, _shape: &'static Shape) -> Option<Arc<Pieces>> {
        match *self {}
    }

    fn expect_procedure(&mut self, _pieces: &Pieces) {
        match *self {}
    }

    fn takes_notes(&mut self, _attempt: u32) -> bool {
        match *self {}
    }

    fn defer(&mut self, _change: DeferredChange<H>) {
        match *self {}
    }

    fn is_in_pieces(&self) -> bool {
        match *self {}
    }

    fn enter_step(&mut self, _columns: UsedColumns) {
        match *self {}
    }

    fn open_region(&mut self, _piece: usize, _memory: &WorkerMemory) {
        match *self {}
    }

    fn close_region(&mut self, _memory: &WorkerMemory) {
        match *self {}
    }

    fn forget_region(&mut self, _memory: &WorkerMemory) {
        match *self {}
    }

    fn decide_place(&mut self, _decides: bool) {
        match *self {}
    }

    fn undo_piece(&mut self, _attempt: u32, _memory: &WorkerMemory) {
        match *self {}
    }

    fn end_pieces(&mut self, _memory: &WorkerMemory) {
        match *self {}
    }
}

impl<H, V> ReappliesOperations<H, V> for Never {
    fn note_applied<O>(
        &mut self,
        _record: RecordPointer<H>,
        _version: V,
        _row: NonNull<u8>,
        _operation: RepeatableOperation,
        _own: O,
    ) {
        match *self {}
    }

    fn take_stale(&mut self, _abort: &Abort) -> Option<StaleWrites<H>> {
        match *self {}
    }

    fn write_again(&mut self, _write: &StaleWrite<H>, _row: NonNull<u8>) {
        match *self {}
    }

    fn put_back(&mut self, _stale: StaleWrites<H>) {
        match *self {}
    }
}
