//! **DBX-TC**: procedures in pieces, each of which commits by itself.
//!
//! H. Qian, Z. Wang, H. Guan, B. Zang, H. Chen: *Exploiting Hardware Transactional Memory for Efficient
//! In-Memory Transaction Processing*, 2015; sections below are that paper's.
//!
//! The idea. A transaction that is known beforehand can be cut into pieces that commit one by one, and still be
//! serializable together with all others that are known (§3: [`chopping`](crate::procedure::chopping)). A
//! piece is short: it meets others less often, and if it does, it alone is done again. And it touches little,
//! so that a hardware region can hold it.
//!
//! The procedures are [registered](DbxTcOptions::procedures) when the database is opened, or
//! [admitted](crate::Database::admit) later, and [executed](crate::Database::execute). All other transactions
//! are kept apart from procedures that are between two pieces: see `gate`.
//!
//! A procedure rolls back by its own decision in its first piece, and nowhere else; the analysis sees to that.
//! An error of the engine that is none of a conflict (a key that is there already, a column that overflows),
//! or a panic, behind the first piece is an error of the program. What was committed before stays, and the
//! error says so: [`Failure::Halfway`].
//!
//! The files: `registered`, the procedures and their pieces; `gate`; here, what a worker does. Where a piece
//! ends and what is done again is decided by the driver, in `transaction::pieces`.
//!
//! **The serialization point** of a piece is that of [DBX](super::dbx). That of a procedure is the one of its
//! conflicting piece (Theorem 1: there is one at most).
//!
//! **Departures from the paper**
//! - A piece is run as a small transaction of DBX's: its reads are noted, and validated with its writes in a
//!   region, or by its twin. The paper's pieces are regions as a whole.
//! - A scan that is still being read when the next piece begins keeps the piece from ending: both are one.
//! - Read-only procedures, and snapshots, wait until no procedure is between two pieces. (The paper's *eventual
//!   snapshots*, §4, do not wait.)
//! - What is durable goes by epochs, as under DBX, and not by the numbers of snapshots. If the database has a
//!   log, an epoch ends as a stranger comes: when no procedure is between two pieces. So all pieces of a
//!   procedure are in one epoch, which survives as a whole, or not at all.
//! - Nothing is deferred, and there are no caches before tables (§3.2, §3.3).

mod gate;
mod registered;

use std::ptr::NonNull;
use std::sync::Arc;

pub(crate) use self::gate::{Gate, Stranger};
pub use self::registered::DbxTcOptions;
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use self::registered::Flaw;
pub(crate) use self::registered::Registered;
use self::registered::{Known, Procedures};
use super::access_set::{AccessSet, Replaced, Superseded, TidOnly, drop_private};
use super::dbx::commit_in_region_or_with_locks;
use super::optimistic::{
    CommitContext, CommitPhases, OptimisticExecutor, discard_placeholder, settle_deleted,
};
use super::{
    Abort, Busy, Executor, Observation, Protocol, ProtocolOptions, ProtocolShared, Settled, Visible,
};
use crate::database::Inner;
use crate::error::Failure;
use crate::index::{NodeChange, NodeVersion};
use crate::procedure::chopping::{Chopping, NotAdmitted};
use crate::procedure::{Pieces, Shape};
use crate::record::{RecordPointer, StoredRecord};
use crate::table::TableRef;
use crate::worker::{Worker, WorkerMemory};

/// DBX-TC: procedures in pieces. See the [module](self) for the paper and the idea.
#[derive(Debug)]
pub enum DbxTc {}

impl Protocol for DbxTc {
    const NAME: &'static str = "dbx-tc";
    const TITLE: &'static str = "known transactions in pieces, each in one HTM region";
    const SOURCE: &'static str = "Qian et al., 2015";
    const USES_HTM: bool = true;
    const CHOPS: bool = true;
    type Header = TidOnly;
    type Shared = DbxTcShared;
    type Executor = PieceExecutor;

    /// Keeps procedures in pieces away from `body`.
    fn with_whole_rows<R>(
        database: &Inner<Self>,
        worker: &Worker<Self>,
        body: impl FnOnce() -> R,
    ) -> Result<R, Failure> {
        let gate = &database.protocol.gate;
        if gate.is_in_pieces(worker.memory.core() as usize) {
            return Err(Failure::NestedTransaction);
        }
        let _stranger = Stranger::enter(gate, || database.shared.grace.slots_used());
        Ok(body())
    }

    fn settle_deleted(
        record: &StoredRecord<TidOnly>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce(),
    ) -> Settled {
        settle_deleted(record, may_go, unlink)
    }
}

impl CommitPhases for DbxTc {
    type Memory = ();

    /// As DBX, of a piece.
    #[inline(always)]
    fn commit(
        set: &mut AccessSet<TidOnly>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort> {
        commit_in_region_or_with_locks(set, context.attempt, context.memory, epoch)
    }
}

/// What the workers of a database share.
#[doc(hidden)]
#[derive(Debug)]
pub struct DbxTcShared {
    gate: Arc<Gate>,
    procedures: Procedures,
}

impl ProtocolShared for DbxTcShared {
    fn new(options: &ProtocolOptions) -> Self {
        let registered = options.registered.clone().expect("the protocol chops");
        let gate = options.gate.clone().expect("the protocol chops");
        DbxTcShared { gate, procedures: Procedures::new(registered) }
    }
}

impl crate::Database<DbxTc> {
    /// Adds a procedure to those that run in pieces, if it can run beside them without any of them being chopped
    /// otherwise.
    ///
    /// # Errors
    /// It cannot; the error names a procedure that would have to be chopped otherwise, and the cycle. Then, and
    /// before, the procedure is executed nevertheless, but never while another is between two pieces.
    pub fn admit(&self, shape: &'static Shape) -> Result<(), NotAdmitted> {
        self.inner().protocol.procedures.admit(shape)
    }

    /// In which pieces procedures run, and why.
    pub fn chopping(&self) -> Chopping {
        self.inner().protocol.procedures.get().chopping.clone()
    }
}

/// What the transaction of a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// There is none.
    Idle,
    /// One of which the analysis knows nothing.
    Stranger,
    /// A registered procedure that runs as one piece.
    Whole,
    /// A registered procedure, of which some pieces may have been committed.
    InPieces,
}

/// Runs DBX-TC on one worker.
#[doc(hidden)]
pub struct PieceExecutor {
    /// Runs a piece.
    optimistic: OptimisticExecutor<DbxTc>,
    slot: usize,
    /// If the next transaction is a registered procedure: whether it is to run in pieces.
    expected: Option<bool>,
    standing: Standing,
    /// Rows that operations may have returned, and that nobody else has seen.
    garbage: Vec<Superseded<TidOnly>>,
    known: Known,
    shared: Arc<DbxTcShared>,
}

// SAFETY: as for access sets: it moves between threads only with its worker, and there is no garbage between
// transactions.
unsafe impl Send for PieceExecutor {}

impl PieceExecutor {
    /// The transaction has ended.
    #[inline(always)]
    fn end(&mut self, memory: &WorkerMemory) {
        for Superseded { record, row, table } in self.garbage.drain(..) {
            drop_private(record, row, table, memory);
        }
        match std::mem::replace(&mut self.standing, Standing::Idle) {
            Standing::Stranger => self.shared.gate.leave(),
            Standing::InPieces => self.shared.gate.end_pieces(self.slot),
            Standing::Whole | Standing::Idle => {}
        }
    }
}

impl Executor for PieceExecutor {
    type Header = TidOnly;
    type Shared = DbxTcShared;
    type Version = Replaced;

    fn new(shared: &Arc<DbxTcShared>, slot: usize) -> Self {
        PieceExecutor {
            optimistic: OptimisticExecutor::new(shared, slot),
            slot,
            expected: None,
            standing: Standing::Idle,
            garbage: Vec::new(),
            known: Known::default(),
            shared: Arc::clone(shared),
        }
    }

    fn retract(&mut self) {
        self.expected = None;
    }

    #[inline(always)]
    fn begin(&mut self, attempt: u32, memory: &WorkerMemory) -> Result<(), Busy> {
        let gate = &self.shared.gate;
        self.standing = match self.expected.take() {
            None => {
                gate.enter(|| memory.shared().grace.slots_used());
                Standing::Stranger
            }
            Some(true) if gate.begin_pieces(self.slot) => Standing::InPieces,
            Some(_) => Standing::Whole,
        };
        self.optimistic.begin(attempt, memory)
    }

    #[inline(always)]
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        self.optimistic.read(table, record, memory)
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        memory: &WorkerMemory,
    ) -> Result<Observation<Replaced>, Abort> {
        self.optimistic.read_for_write(table, record, memory)
    }

    fn note_read(&mut self, table: TableRef, record: RecordPointer<TidOnly>, version: Replaced) {
        self.optimistic.note_read(table, record, version);
    }

    #[inline(always)]
    fn is_current(&self, record: RecordPointer<TidOnly>, version: Replaced) -> bool {
        self.optimistic.is_current(record, version)
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        version: Replaced,
        row: NonNull<u8>,
    ) {
        self.optimistic.write(table, record, version, row);
    }

    #[inline(always)]
    fn remove(&mut self, table: TableRef, record: RecordPointer<TidOnly>, version: Replaced) {
        self.optimistic.remove(table, record, version);
    }

    #[inline(always)]
    fn insert(&mut self, table: TableRef, record: RecordPointer<TidOnly>, row: NonNull<u8>) {
        self.optimistic.insert(table, record, row);
    }

    #[inline(always)]
    fn note_node(&mut self, table: TableRef, node: NodeVersion) -> Result<(), Abort> {
        self.optimistic.note_node(table, node)
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        self.optimistic.note_own_insertion(table, change, sibling)
    }

    fn validate(&mut self) -> Result<(), Abort> {
        self.optimistic.validate()
    }

    /// Commits the transaction, or a piece of it.
    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        if self.standing != Standing::InPieces {
            self.optimistic.commit(memory, epoch)?;
            self.end(memory);
            return Ok(());
        }
        // Later pieces may look at them.
        self.garbage.append(&mut self.optimistic.set.superseded);
        self.optimistic.commit(memory, epoch)
    }

    fn pieces_of(&mut self, shape: &'static Shape) -> Option<Arc<Pieces>> {
        self.known.pieces_of(shape, &self.shared.procedures).cloned()
    }

    fn expect_procedure(&mut self, in_pieces: bool) {
        self.expected = Some(in_pieces);
    }

    fn is_in_pieces(&self) -> bool {
        self.standing == Standing::InPieces
    }

    fn undo_piece(&mut self, attempt: u32, memory: &WorkerMemory) {
        let set = &mut self.optimistic.set;
        self.garbage.append(&mut set.superseded);
        for entry in &set.writes {
            let (record, table) = (entry.record, entry.table);
            if let Some(created) = entry.created {
                discard_placeholder(record, table, created, memory);
            }
            if let Some(row) = entry.row {
                self.garbage.push(Superseded { record, row, table });
            }
        }
        set.clear();
        let begun = self.optimistic.begin(attempt, memory);
        debug_assert!(begun.is_ok(), "others do not matter to it");
    }

    fn end_pieces(&mut self, memory: &WorkerMemory) {
        self.end(memory);
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        self.optimistic.abort(memory);
        self.end(memory);
    }
}
