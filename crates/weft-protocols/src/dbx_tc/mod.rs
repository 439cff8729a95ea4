//! **DBX-TC**: procedures in pieces, each of which commits on its own.
//!
//! H. Qian, Z. Wang, H. Guan, B. Zang, H. Chen: *Exploiting Hardware Transactional Memory for Efficient
//! In-Memory Transaction Processing*, 2015; sections below are that paper's.
//!
//! The idea. A transaction that is known in advance can be cut into pieces that commit one by one. Together
//! with all other known transactions it is still serializable (§3: [`chopping`](weft_procedures::chopping)). A
//! piece is short. So it conflicts less often, and if it does, only the piece is retried. It also touches few
//! cache lines, so that a hardware region can hold it.
//!
//! The procedures are [registered](DbxTcOptions::procedures) when the database is opened, or
//! [admitted](ChoppedDatabase::admit) later, and [executed](weft_procedures::Execute::execute). All other
//! transactions are *outsiders*. They are kept apart from procedures that are between two pieces: see `gate`.
//!
//! A procedure can decide to roll back only in its first piece; the analysis makes sure of that. After the
//! first piece, an error of the engine that is not a conflict (a key that exists already, a column that
//! overflows) or a panic is an error of the program. What was committed before stays, and the error says so:
//! [`Failure::Halfway`].
//!
//! The files: `registered` has the procedures and their pieces; `gate`, in the engine, keeps outsiders apart;
//! `deferred` has deferred execution; `place` has a procedure's place among the snapshots;
//! `region` has pieces as hardware regions, with their `cache`s and `partition` locks; `shared` has what workers share; this
//! file has what a worker does. The driver of procedures in
//! pieces ([`Execute::execute`](weft_procedures::Execute::execute)) decides where a piece ends and what is
//! retried.
//!
//! **The serialization point** of a piece is that of [DBX](weft::commit::dbx). The serialization point of a
//! procedure is that of its conflicting piece (Theorem 1: there is at most one).
//!
//! **Departures from the paper**
//! - A piece runs as a small DBX transaction: its reads are noted, and are validated together with its writes
//!   in a region, or by the region's twin. In the paper a whole piece is a region. This is an
//!   [option](DbxTcOptions::in_regions) here: see `region`.
//! - Records have one layout. The paper's (§5) have their commutative columns twice: once for snapshots, where changes
//!   are redone, and once for other transactions. With eventual snapshots the rows that are redone belong to the
//!   snapshot here, so the two are apart as well. Commits look at columns if they fail otherwise: see `by_columns` in the
//!   engine. Each step of a procedure says which columns it uses.
//! - Pieces without a conflict that matters join their neighbours, unless [`DbxTcOptions::finest`] is set.
//! - If a scan is still being read when the next piece begins, the piece does not end: the two are one piece.
//! - A snapshot number is drawn when no procedure is between two pieces, so the snapshot is consistent at once.
//!   The paper's [eventual snapshots](weft::store::eventual) (§4) are an
//!   [option](DbxTcOptions::eventual_snapshots): they are drawn at any moment, and become consistent when pieces are
//!   redone or undone on them. As in the paper, readers share a number that is drawn now and then
//!   ([`open_recent_snapshot`](weft::Database::open_recent_snapshot)), or draw one each, which the paper calls
//!   ROEP ([`open_snapshot`](weft::Database::open_snapshot)).
//! - Read-only procedures that run as transactions wait until no procedure is between two pieces.
//! - Durability goes by epochs, as under DBX, and not by snapshot numbers. If the database has a log, an epoch
//!   ends only when no procedure is between two pieces: the thread that ends it passes the gate like an
//!   outsider. So all pieces of a procedure are in one epoch, which survives as a whole or not at all.
//! - Deferred changes are published when a subscriber begins in the next epoch, as in the paper. The paper's barrier
//!   waits for the workers one by one, and a publisher of the new epoch may run beside one of the old epoch. Then a
//!   subscriber could see the later of the two alone. So publishers, too, wait at the barrier here. Workers that pass
//!   the gate publish as well. If there is a log, so does the thread that ends an epoch. So a deferred change is in the
//!   epoch of its procedure.
//! - Database caches in front of tables (§3.3) keep insertions into indexes out of hardware regions. They are an
//!   [option](DbxTcOptions::database_cache) for pieces that are regions: see `cache`. In other pieces insertions are
//!   never inside a region: records are put into the index as placeholders before it.
//! - Fallback locks are per record. The paper's, per partition (§3.3), are an
//!   [option](DbxTcOptions::partition_locks): see `partition`. Without it two pieces that share no record never need the
//!   same lock.

mod cache;
mod deferred;
mod partition;
mod place;
mod region;
mod registered;
mod shared;

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use weft::Failure;
use weft::column::{ColumnSet, UsedColumns};
use weft::commit::access_set::{AccessSet, ReplacedVersion, SupersededRow, TidOnly, drop_private};
use weft::commit::by_columns::CarriedAccess;
use weft::commit::dbx::commit_in_region_or_with_locks;
use weft::commit::optimistic::{
    CommitContext, CommitPhases, OptimisticExecutor, discard_placeholder, hold_row, settle_deleted,
};
use weft::commit::{
    Abort, CachedInsertion, ChopsProcedures, DeferredChange, DeletedOutcome, Engine, Executor,
    HoldFunction, Never, Observation, Protocol, Refusal, Visible, Worker, WriteMark,
};
use weft::encoding::EncodedKey;
use weft::index::bplus_tree::ScannedRange;
use weft::index::{Lookup, NodeChange, NodeVersion};
use weft::plan::{Pieces, Shape};
use weft::store::eventual::{AdjustedRows, FormingSnapshot};
use weft::store::record::{RecordPointer, StoredRecord};
use weft::store::table::TableRef;
use weft::store::worker::{
    Counters, DiscardedValue, LoggedAs, LoggedWrite, PinnedWorker, WorkerMemory,
};
use weft::sync::gate::Outsider;
use weft_htm::Region;
use weft_htm::word::yield_now;

use self::cache::PieceCaches;
use self::deferred::Batch;
use self::partition::PieceLocks;
use self::place::PlacedPieces;
pub use self::registered::DbxTcOptions;
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use self::registered::Flaw;
use self::registered::WorkerProcedures;
pub use self::shared::{ChoppedDatabase, DbxTcShared};

/// DBX-TC: procedures in pieces. See the [module](self) for the paper and the idea.
#[derive(Debug)]
pub enum DbxTc {}

// SAFETY: a piece runs in an `OptimisticExecutor`, and rows of earlier pieces are kept until the procedure has
// ended.
unsafe impl Protocol for DbxTc {
    const NAME: &'static str = "dbx-tc";
    const TITLE: &'static str = "known transactions in pieces, each in one HTM region";
    const SOURCE: &'static str = "Qian et al., 2015";
    const USES_HTM: bool = true;
    const CHOPS: bool = true;
    type Header = TidOnly;
    type Shared = DbxTcShared;
    type Executor = PieceExecutor;

    /// Runs `body` while no procedure is between two pieces, and nothing is deferred. Fails in a registered procedure that
    /// runs as one piece if others have deferred changes in the meantime.
    fn with_whole_rows<R>(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        body: impl FnOnce() -> R,
    ) -> Result<R, Failure> {
        let gate = &database.protocol.gate;
        database.protocol.begin_snapshot(&worker.memory)?;
        // Rows are dropped after procedures may run in pieces again.
        let _held = worker.memory.hold_discarded();
        let slots_used = || database.shared.grace.slots_used();
        let _outsider = Outsider::enter(gate, slots_used, || worker.memory.keep_waiting())?;
        // An outsider has passed the gate before.
        if !worker.active.get() {
            let _pinned = PinnedWorker::new(worker);
            worker.executor().publish(&worker.memory)?;
        } else if worker.executor().kind == TransactionKind::Whole {
            // It has not passed the gate. Its executor cannot publish what others have deferred since it began.
            let deferred = &database.protocol.deferred;
            deferred.await_publication(&worker.memory)?;
            if deferred.are_waiting() {
                return Err(Failure::NestedTransaction);
            }
        }
        Ok(body())
    }

    fn make_whole(worker: &Worker<Self>) -> Result<(), Failure> {
        if !worker.executor().shared.deferred.are_waiting() {
            return Ok(());
        }
        let _pinned = PinnedWorker::new(worker);
        let published = worker.executor().publish(&worker.memory);
        worker.memory.hand_over_garbage();
        published
    }

    /// Eventual snapshots (§4): waits for the procedures that are in pieces now, and keeps none from beginning.
    fn open_eventually<S>(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        open: impl FnOnce(&FormingSnapshot<'_>) -> S,
    ) -> Result<Option<(S, AdjustedRows)>, Failure> {
        let (shared, memory) = (&database.protocol, &worker.memory);
        let Some(eventual) = &shared.eventual else { return Ok(None) };
        // It would most likely be given up.
        if shared.deferred.are_waiting() {
            return Ok(None);
        }
        shared.begin_snapshot(memory)?;
        let forming = eventual.begin();
        let snapshot = open(&forming);
        let slots_used = memory.shared().grace.slots_used();
        shared.gate.await_pieces(slots_used, || memory.keep_waiting())?;
        if shared.deferred.are_missing_at(forming.number(), memory)? {
            return Ok(None);
        }
        Ok(forming.finish().map(|rows| (snapshot, rows)))
    }

    fn settle_deleted(
        record: &StoredRecord<TidOnly>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        settle_deleted(record, may_go, unlink)
    }

    const HOLD_ROW: Option<HoldFunction<TidOnly>> = Some(hold_row);
}

impl CommitPhases for DbxTc {
    type Memory = ();

    /// Commits a piece, as DBX commits a transaction.
    #[inline(always)]
    fn commit(
        set: &mut AccessSet<TidOnly>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort> {
        commit_in_region_or_with_locks(set, context.attempt, context.memory, epoch)
    }
}

/// The kind of transaction that a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransactionKind {
    /// There is no transaction.
    Idle,
    /// A transaction that the analysis does not know.
    Outsider,
    /// A registered procedure that runs as one piece.
    Whole,
    /// A registered procedure, some of whose pieces may have been committed.
    InPieces,
}

/// Runs DBX-TC on one worker.
#[doc(hidden)]
pub struct PieceExecutor {
    /// Runs a piece as a small transaction.
    optimistic: OptimisticExecutor<DbxTc>,
    slot: usize,
    /// The next transaction, if it is a registered procedure.
    expected: Option<ExpectedProcedure>,
    kind: TransactionKind,
    /// Whether the procedure is a publisher in pieces, which the barrier awaits.
    is_publisher: bool,
    /// Whether the piece is a region. Written inside the region, so that an abort undoes it.
    is_in_region: bool,
    /// Rows that operations may have returned, and that no other transaction has seen.
    garbage: Vec<SupersededRow<TidOnly>>,
    /// What the present piece has deferred, and (`deferred`) what earlier pieces have.
    deferring: Vec<DeferredChange<TidOnly>>,
    deferred: Vec<DeferredChange<TidOnly>>,
    /// How the step that is running uses rows, if it is known.
    step: Option<UsedColumns>,
    /// Where the procedure belongs among the snapshots.
    placed: PlacedPieces,
    caches: PieceCaches,
    locks: PieceLocks,
    procedures: WorkerProcedures,
    shared: Arc<DbxTcShared>,
}

// SAFETY: as for access sets: it moves between threads only with its worker, and there is no garbage between
// transactions.
unsafe impl Send for PieceExecutor {}

/// A registered procedure that begins next.
#[derive(Clone, Copy, Debug)]
struct ExpectedProcedure {
    /// Whether it has several pieces.
    in_pieces: bool,
    /// Whether it defers something when it runs in pieces.
    publishes: bool,
    /// Whether it reads what others defer.
    subscribes: bool,
    /// Whether one of its pieces conflicts with others.
    has_conflict: bool,
}

impl PieceExecutor {
    /// Passes the gate, as an outsider that stays until [`Gate::leave`], and publishes what is deferred.
    fn come_through(&mut self, memory: &WorkerMemory) -> Result<(), Failure> {
        let shared = &self.shared;
        let slots_used = || memory.shared().grace.slots_used();
        let outsider = Outsider::enter(&shared.gate, slots_used, || memory.keep_waiting())?;
        shared.deferred.publish(&mut self.optimistic, shared.eventual.as_ref(), memory)?;
        std::mem::forget(outsider);
        Ok(())
    }

    /// Deferred execution (§3.2): publishes what an earlier epoch has left, before a subscriber begins. Other procedures
    /// begin at once, unless too many changes wait.
    #[inline(always)]
    fn publish_if_due(
        &mut self,
        procedure: ExpectedProcedure,
        memory: &WorkerMemory,
    ) -> Result<(), Failure> {
        let deferred = &self.shared.deferred;
        if deferred.is_due(procedure.subscribes, || memory.shared().clock.epoch()) {
            self.publish_at_barrier(memory)?;
        }
        if procedure.subscribes {
            self.shared.deferred.await_publication(memory)?;
        }
        Ok(())
    }

    /// Publishes what is deferred while no publisher is between two pieces. All other procedures go on. If they write the
    /// same rows again and again, passes the gate to publish.
    #[cold]
    fn publish_at_barrier(&mut self, memory: &WorkerMemory) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        let slots_used = || memory.shared().grace.slots_used();
        let at_barrier = Outsider::enter(&shared.barrier, slots_used, || memory.keep_waiting())?;
        let (executor, eventual) = (&mut self.optimistic, shared.eventual.as_ref());
        if !shared.deferred.try_publish(executor, eventual, memory)? {
            drop(at_barrier);
            self.come_through(memory)?;
            shared.gate.leave();
        }
        Ok(())
    }

    /// Begins a procedure in pieces. Returns false if an outsider is there. A publisher waits at the barrier.
    #[inline(always)]
    fn begin_pieces(&mut self, publishes: bool, memory: &WorkerMemory) -> Result<bool, Failure> {
        if publishes {
            while !self.shared.barrier.begin_pieces(self.slot) {
                memory.keep_waiting()?;
                yield_now();
            }
        }
        let has_begun = self.shared.gate.begin_pieces(self.slot);
        if publishes && !has_begun {
            self.shared.barrier.end_pieces(self.slot);
        }
        self.is_publisher = publishes && has_begun;
        Ok(has_begun)
    }

    /// Publishes what is deferred. The worker is pinned, has passed the gate, and is in no transaction.
    fn publish(&mut self, memory: &WorkerMemory) -> Result<(), Failure> {
        let shared = &self.shared;
        shared.deferred.publish(&mut self.optimistic, shared.eventual.as_ref(), memory)
    }

    /// Forgets what the present piece has deferred.
    fn forget_deferring(&mut self, memory: &WorkerMemory) {
        for DeferredChange { sums, .. } in self.deferring.drain(..) {
            memory.discard(DiscardedValue::Value(sums));
        }
    }

    /// Ends the transaction, the last piece included.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn end(&mut self, memory: &WorkerMemory) {
        for SupersededRow { record, row, table } in self.garbage.drain(..) {
            // SAFETY: the row was superseded in the access set, which has given it up, and it is on this list
            // once.
            unsafe { drop_private(record, row, table, memory) };
        }
        self.forget_deferring(memory);
        self.forget_caches();
        self.unlock_partitions(false);
        self.step = None;
        match std::mem::replace(&mut self.kind, TransactionKind::Idle) {
            TransactionKind::Outsider => self.shared.gate.leave(),
            TransactionKind::InPieces => {
                let place = self.placed.end(self.shared.eventual.as_ref(), memory);
                if !self.deferred.is_empty() {
                    let batch = Batch { place, changes: std::mem::take(&mut self.deferred) };
                    self.shared.deferred.push(self.slot, batch, memory);
                }
                memory.set_logged_as(LoggedAs::Transaction);
                if std::mem::take(&mut self.is_publisher) {
                    self.shared.barrier.end_pieces(self.slot);
                }
                self.shared.gate.end_pieces(self.slot);
            }
            TransactionKind::Whole | TransactionKind::Idle => {}
        }
    }
}

impl Executor for PieceExecutor {
    type Header = TidOnly;
    type Shared = DbxTcShared;
    type Version = ReplacedVersion;
    type Splitting = Never;
    type Repairing = Never;
    type Chopping = Self;
    type Reapplying = Never;

    #[inline(always)]
    fn chopping(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    fn new(shared: &Arc<DbxTcShared>, slot: usize) -> Self {
        PieceExecutor {
            optimistic: OptimisticExecutor::new(shared, slot),
            slot,
            expected: None,
            kind: TransactionKind::Idle,
            is_publisher: false,
            is_in_region: false,
            garbage: Vec::new(),
            deferring: Vec::new(),
            deferred: Vec::new(),
            step: None,
            placed: PlacedPieces::default(),
            caches: PieceCaches::default(),
            locks: PieceLocks::default(),
            procedures: WorkerProcedures::default(),
            shared: Arc::clone(shared),
        }
    }

    fn retract(&mut self) {
        self.expected = None;
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn begin(&mut self, attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal> {
        let expected = self.expected.take();
        if let Some(procedure) = expected {
            self.publish_if_due(procedure, memory)?;
        }
        // A registered procedure runs in pieces if no outsider is there. Otherwise it runs as one piece, or as
        // an outsider itself if it is a publisher.
        self.kind = match expected {
            Some(ExpectedProcedure { in_pieces: true, has_conflict, publishes, .. })
                if self.begin_pieces(publishes, memory)? =>
            {
                memory.set_logged_as(LoggedAs::FirstPiece);
                self.placed.begin(has_conflict);
                TransactionKind::InPieces
            }
            Some(ExpectedProcedure { publishes: false, .. }) => TransactionKind::Whole,
            Some(_) | None => {
                self.come_through(memory)?;
                TransactionKind::Outsider
            }
        };
        self.optimistic.begin(attempt, memory)
    }

    #[inline(always)]
    fn look_up(
        &mut self,
        table: TableRef,
        key: impl Fn() -> EncodedKey,
        memory: &WorkerMemory,
        search: impl Fn(Option<&Region>) -> Lookup,
    ) -> Result<Lookup, Abort> {
        if self.shared.is_partitioned() {
            let key = key();
            self.touch_key(table, &key, memory)?;
            if let Some(found) = self.find_cached(table, &key)? {
                return Ok(Lookup::Found(found));
            }
        }
        Ok(search(None))
    }

    #[inline(always)]
    fn cache_insertion(
        &mut self,
        table: TableRef,
        key: impl Fn() -> EncodedKey,
        address: u64,
        memory: &WorkerMemory,
        search: impl Fn() -> Lookup,
    ) -> Result<CachedInsertion, Abort> {
        if self.shared.is_partitioned() {
            let key = key();
            self.touch_key(table, &key, memory)?;
            return self.cache_record(table, key, address, search);
        }
        Ok(CachedInsertion::ToIndex { alone: false })
    }

    #[inline(always)]
    fn enter_range(
        &mut self,
        table: TableRef,
        ends: impl FnOnce() -> [Option<EncodedKey>; 2],
        memory: &WorkerMemory,
    ) -> Result<(), Abort> {
        if self.shared.is_partitioned() {
            let ends = ends();
            self.touch_range(table, &ends, memory)?;
            self.pass_caches(table, &ends, memory)?;
        }
        Ok(())
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        if self.is_in_region {
            return Ok(self.read_in_region(record, memory));
        }
        match self.step {
            Some(step) => self.optimistic.read_columns(table, record, step.matters, memory),
            None => self.optimistic.read(table, record, memory),
        }
    }

    #[inline(always)]
    fn read_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        columns: ColumnSet,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        if self.is_in_region {
            return Ok(self.read_in_region(record, memory));
        }
        self.optimistic.read_columns(table, record, columns, memory)
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        memory: &WorkerMemory,
    ) -> Result<Observation<ReplacedVersion>, Abort> {
        if self.is_in_region {
            return Ok(self.observe_in_region(record, memory));
        }
        self.optimistic.read_for_write(table, record, memory)
    }

    fn note_read(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        version: ReplacedVersion,
    ) {
        if !self.is_in_region {
            self.optimistic.note_read(table, record, version);
        }
    }

    #[inline(always)]
    fn is_current(&self, record: RecordPointer<TidOnly>, version: ReplacedVersion) -> bool {
        self.optimistic.is_current(record, version)
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        version: ReplacedVersion,
        row: NonNull<u8>,
    ) {
        match self.step {
            Some(step) => self.write_columns(table, record, version, row, step),
            None => self.optimistic.write(table, record, version, row),
        }
    }

    /// (What is known of a procedure's step says more than the operation: it may only add to some columns.)
    #[inline(always)]
    fn write_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        version: ReplacedVersion,
        row: NonNull<u8>,
        columns: UsedColumns,
    ) {
        if self.is_in_region {
            return self.optimistic.write(table, record, version, row);
        }
        let columns = self.step.unwrap_or(columns);
        self.optimistic.write_columns(table, record, version, row, columns);
    }

    #[inline(always)]
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        version: ReplacedVersion,
        key: EncodedKey,
    ) {
        self.optimistic.remove(table, record, version, key);
    }

    #[inline(always)]
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        self.optimistic.insert(table, record, row, key);
    }

    #[inline(always)]
    fn note_node(
        &mut self,
        table: TableRef,
        node: NodeVersion,
        range: Option<ScannedRange>,
    ) -> Result<usize, Abort> {
        if self.is_in_region {
            return Ok(0);
        }
        self.optimistic.note_node(table, node, range)
    }

    /// (In a region no node was noted, so there is nothing to change.)
    #[inline(always)]
    fn stop_scan(&mut self, position: usize, node: NodeVersion, address: u64) {
        self.optimistic.stop_scan(position, node, address);
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        if self.is_in_region {
            return Ok(());
        }
        self.optimistic.note_own_insertion(table, change, sibling)
    }

    fn accessed(&self) -> (usize, usize) {
        self.optimistic.accessed()
    }

    fn validate(&mut self) -> Result<(), Abort> {
        if self.is_in_region {
            return Ok(()); // True if the region commits. If it does not, nothing of this happened.
        }
        self.optimistic.validate()
    }

    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        self.optimistic.list_writes(list);
    }

    /// Commits the transaction, or a piece of it.
    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        if self.kind != TransactionKind::InPieces {
            self.optimistic.commit(memory, epoch)?;
            self.end(memory);
            return Ok(());
        }
        let is_eventual = self.shared.eventual.is_some();
        let place =
            if is_eventual { self.placed.prepare(&self.optimistic.set, memory) } else { None };
        let has_drawn = Cell::new(false);
        let epoch = || {
            let epoch = epoch();
            has_drawn.set(true);
            place.map_or(epoch, |place| memory.draw_at(place))
        };
        if self.is_in_region {
            self.commit_region(memory, &epoch);
        } else {
            // Later pieces may look at the superseded rows.
            self.garbage.append(&mut self.optimistic.set.superseded);
            self.optimistic.commit(memory, epoch)?;
            self.forget_caches();
            self.unlock_partitions(false);
        }
        if is_eventual {
            self.placed.note_committed(has_drawn.get(), memory);
        }
        Counters::add(&memory.counters().deferred, self.deferring.len() as u64);
        self.deferred.append(&mut self.deferring);
        Ok(())
    }

    fn carry_over(
        &mut self,
        abort: Abort,
        memory: &WorkerMemory,
        report: &mut dyn FnMut(CarriedAccess),
    ) -> Result<(), Abort> {
        if self.step.is_some() {
            self.procedures.note_conflict();
        }
        self.optimistic.carry_over(abort, memory, report)
    }

    fn mark(&mut self) -> WriteMark {
        self.optimistic.mark()
    }

    fn keep(&mut self, mark: WriteMark) {
        self.optimistic.keep(mark);
    }

    fn undo_to(&mut self, mark: WriteMark, memory: &WorkerMemory) {
        self.optimistic.undo_to(mark, memory);
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        debug_assert!(!self.is_in_region, "the region was closed or forgotten");
        self.optimistic.abort(memory);
        self.end(memory);
    }
}

impl ChopsProcedures<TidOnly> for PieceExecutor {
    fn pieces_of(&mut self, shape: &'static Shape) -> Option<Arc<Pieces>> {
        self.procedures.pieces_of(shape, &self.shared.procedures).cloned()
    }

    fn expect_procedure(&mut self, pieces: &Pieces) {
        self.expected = Some(ExpectedProcedure {
            in_pieces: pieces.are_one_by_one(),
            publishes: pieces.publishes(),
            subscribes: pieces.subscribes(),
            has_conflict: pieces.conflicting().is_some(),
        });
    }

    fn decide_place(&mut self, decides: bool) {
        self.placed.decide(decides);
    }

    #[inline]
    fn takes_notes(&mut self, attempt: u32) -> bool {
        // A change is redone on a snapshot by columns.
        if self.shared.eventual.is_some() {
            return true;
        }
        if attempt > 0 {
            self.procedures.note_conflict();
        }
        self.procedures.takes_notes()
    }

    fn defer(&mut self, change: DeferredChange<TidOnly>) {
        self.deferring.push(change);
    }

    fn is_in_pieces(&self) -> bool {
        self.kind == TransactionKind::InPieces
    }

    #[inline(always)]
    fn enter_step(&mut self, columns: UsedColumns) {
        self.step = Some(columns);
    }

    fn open_region(&mut self, piece: usize, memory: &WorkerMemory) {
        PieceExecutor::open_region(self, piece, memory);
    }

    fn close_region(&mut self, memory: &WorkerMemory) {
        PieceExecutor::close_region(self, memory);
    }

    fn forget_region(&mut self, memory: &WorkerMemory) {
        PieceExecutor::forget_region(self, memory);
    }

    fn undo_piece(&mut self, attempt: u32, memory: &WorkerMemory) {
        debug_assert!(!self.is_in_region, "the region was closed or forgotten");
        // The rows that were handed out stay until the procedure ends; placeholders are unlinked now.
        let set = &mut self.optimistic.set;
        self.garbage.append(&mut set.superseded);
        for entry in &set.writes {
            let (record, table) = (entry.record, entry.table);
            if let Some(key) = set.created_key(entry) {
                discard_placeholder(record, table, key, memory);
            }
            if let Some(row) = entry.row {
                self.garbage.push(SupersededRow { record, row, table });
            }
        }
        set.clear();
        self.forget_deferring(memory);
        self.forget_caches();
        self.unlock_partitions(true);
        let begun = self.optimistic.begin(attempt, memory);
        debug_assert!(begun.is_ok(), "an optimistic transaction can always begin");
    }

    fn end_pieces(&mut self, memory: &WorkerMemory) {
        self.end(memory);
    }
}
