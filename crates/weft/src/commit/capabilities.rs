//! What only some protocols can do: split records, repair transactions, commit procedures piece by piece.
//!
//! An [`Executor`](super::Executor) has a capability, or has it not, by its associated types. One that has it names a
//! type that implements the capability's trait, and returns it from the accessor of the same name. All others name
//! [`Never`], of which there is no value: so their accessors return `None`, and the compiler drops what the engine would
//! do with a value.

use std::sync::Arc;
use std::time::Duration;

use super::{Abort, DeferredChange, Target};
use crate::plan::{Pieces, Shape, StepColumns};
use crate::row::operation::{ColumnOperation, UndoLog};
use crate::step::Instance;
use crate::store::record::RecordPointer;
use crate::store::table::TableRef;
use crate::store::worker::WorkerMemory;

/// A capability that a protocol does not have.
#[derive(Clone, Copy, Debug)]
pub enum Never {}

/// Splits records among the workers, each of which applies commutative operations to a slice of its own (Doppel).
pub trait SplitsRecords<H> {
    /// Says whether, from here on, the caller sets refused transactions aside.
    fn set_aside(&mut self, is_set_aside: bool);

    /// Returns the number of the phase in which the last transaction was refused that was to be set aside.
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

    /// The undo log for slices.
    fn undo_log(&mut self) -> &mut UndoLog;

    /// Notes the operation that was just applied to a slice, for the log: these are its bytes.
    fn log_operation(&mut self, table: TableRef, record: RecordPointer<H>, bytes: &[u8]);

    /// Refuses an operation that its slice cannot decide.
    fn refuse_undecided(&mut self, table: TableRef, record: RecordPointer<H>) -> Abort;
}

/// What happened in the phases of a database since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseMetrics {
    /// Whether it is a split phase at present.
    pub is_split: bool,
    /// Split phases that have begun.
    pub split_phases: u64,
    /// Of these, such as ended before their time, because somebody waited.
    pub hurried: u64,
    /// Rows that reconciliations have replaced.
    pub reconciled_rows: u64,
    /// Records that are split at present, or will be in the next split phase.
    pub split_records: u64,
    /// Transactions that met a split record, and had to wait.
    pub refused: u64,
    /// Of these, such as were [set aside](crate::Stash), while their threads went on with others.
    pub stashed: u64,
    /// Time spent in split phases that have ended.
    pub split_time: Duration,
    /// Time in which no transaction ran, because the phase changed.
    pub changing_time: Duration,
}

/// Runs a transaction that cannot commit again as the same transaction, with what it knows of records (HTCC, §4).
pub trait RepairsTransactions<H> {
    /// Whether the database was opened with repairs.
    fn is_on(&self) -> bool;

    /// Undoes everything, after a failed commit or not, for the transaction to be run again as it is. The worker stays
    /// pinned.
    fn repair(&mut self, memory: &WorkerMemory);

    /// Whether the transaction, which was repaired, runs again as a whole, on the workset cache.
    fn replays(&self) -> bool;

    /// The records that the transaction has found and read, or found and is to write (true), each kind in the
    /// order in which the transaction did so.
    fn found(&self) -> impl Iterator<Item = (TableRef, RecordPointer<H>, bool)>;

    /// Says that the transaction that has just begun is a procedure, executed step by step: what it does is told
    /// [instance by instance](RepairsTransactions::enter_step).
    fn begin_steps(&mut self);

    /// Says that what is done from now on belongs to this instance, which `goes_on` if it was there before.
    fn enter_step(&mut self, instance: Instance, goes_on: bool);

    /// Says that what this instance did in the last round stands.
    fn keep_step(&mut self, instance: Instance);

    /// Returns the record of a table that an instance was about in the last round.
    fn record_of_step(&mut self, instance: Instance, table: TableRef) -> Option<RecordPointer<H>>;

    /// Begins a round, after one that ended early, or could not be committed.
    fn next_round(&mut self, memory: &WorkerMemory);

    /// The instances that have read or written what has changed since.
    fn stale_steps(&self) -> Vec<Instance>;
}

/// Commits registered procedures piece by piece (DBX-TC, §3).
pub trait ChopsProcedures<H> {
    /// Returns the pieces in which a procedure is executed; `None` if it is not registered.
    fn pieces_of(&mut self, shape: &'static Shape) -> Option<Arc<Pieces>>;

    /// Says that the transaction that begins next is a registered procedure. It is committed piece by piece if that is
    /// possible, or else as one.
    fn expect_procedure(&mut self, pieces: &Pieces);

    /// Decides whether the procedure whose [pieces](ChopsProcedures::pieces_of) were asked for last has to say
    /// which step it is at: so that its commit can be [carried over](ChopsProcedures::carry_over) if it fails. The
    /// procedure has one piece, and has failed `attempt` times.
    fn takes_notes(&mut self, attempt: u32) -> bool;

    /// Notes a change that is to be made when what is deferred is published.
    fn defer(&mut self, change: DeferredChange<H>);

    /// Whether the transaction that has begun is committed piece by piece. Then each commit is that of a piece.
    fn is_in_pieces(&self) -> bool;

    /// Says that what is done from now on belongs to this instance.
    fn enter_step(&mut self, instance: Instance);

    /// Opens a region for the piece at position `piece`, which is about to begin, if pieces are regions and there is
    /// hardware for them. An abort of the region takes the thread back to here. (On the simulated machine the thread
    /// unwinds. The code that catches it has the region [forgotten](ChopsProcedures::forget_region), and begins the
    /// piece again.)
    fn open_region(&mut self, piece: usize, memory: &WorkerMemory);

    /// Ends the region of a piece that is not committed, if one is open: what the piece has read was true at this
    /// moment. No other thread sees what it has written.
    fn close_region(&mut self, memory: &WorkerMemory);

    /// Forgets what was done in the region of the piece, which the simulated machine has rolled back.
    fn forget_region(&mut self, memory: &WorkerMemory);

    /// Carries over the failed commit of a piece all of whose steps were [entered](ChopsProcedures::enter_step). If
    /// nothing has changed that matters to the steps, of which these are the columns, what the piece has read and written refers
    /// to the versions that are there now, and can be committed. Runs the user's code, which compares and copies rows.
    fn carry_over(&mut self, columns: &[StepColumns], memory: &WorkerMemory) -> Result<(), Abort>;

    /// Undoes what was done since the last commit of a piece, which has failed `attempt` times, for it to be done
    /// again. Rows that were handed out stay.
    fn undo_piece(&mut self, attempt: u32, memory: &WorkerMemory);

    /// Says that the last piece has been committed, and that nothing refers to rows any more that were handed out.
    fn end_pieces(&mut self, memory: &WorkerMemory);
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

    fn undo_log(&mut self) -> &mut UndoLog {
        match *self {}
    }

    fn log_operation(&mut self, _table: TableRef, _record: RecordPointer<H>, _bytes: &[u8]) {
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

    fn enter_step(&mut self, _instance: Instance) {
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

    fn carry_over(
        &mut self,
        _columns: &[StepColumns],
        _memory: &WorkerMemory,
    ) -> Result<(), Abort> {
        match *self {}
    }

    fn undo_piece(&mut self, _attempt: u32, _memory: &WorkerMemory) {
        match *self {}
    }

    fn end_pieces(&mut self, _memory: &WorkerMemory) {
        match *self {}
    }
}
