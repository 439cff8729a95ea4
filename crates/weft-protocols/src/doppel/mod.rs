//! **Doppel**: phase reconciliation, by which many cores change the same record at the same time.
//!
//! N. Narula, C. Cutler, E. Kohler, R. Morris: *Phase Reconciliation for Contended In-Memory Transactions*,
//! OSDI 2014; sections below are that paper's.
//!
//! The idea. An ordinary protocol runs transactions that change the same record one after the other, on one
//! core at a time, by locks or by aborts. But many such changes are commutative [operations](weft::operation):
//! add one, take the greater. So the database goes through phases. In a *joined* phase everything is as under
//! the protocol below, `silo` or `2pl`, and the records about which transactions conflict are counted. In a
//! *split* phase the most contended records are *split*, each for one operation on each column. Every worker
//! gathers these operations in its own *slice* of the record, without writing a shared cache line. Every other
//! access to the record (reading it, updating it, another operation on that column) waits for the next joined
//! phase. Transactions on other records go on as before. At the end of a split phase the slices are merged into
//! the rows: *reconciliation*.
//!
//! The files:
//!
//! - `phases`: which phase it is, and how one gives way to the next (§5.4);
//! - `splits`: split records and their slices (§5.2);
//! - `contention`: which records conflicts are about (§5.5);
//! - `turn`: the lock of the worker that changes the phase;
//! - `merging`: how workers divide the split records among each other, to merge their slices;
//! - `transition`: when a phase ends, what is split next, and reconciliation (§5.3 to §5.5);
//! - `labels`: rows that the application wants split (§5.5); `options` and `metrics`;
//! - this file: what a worker does in each phase.
//!
//! Header of a record: that of the protocol below. A small table of addresses, empty in joined phases, says
//! which records are split.
//!
//! **The serialization point** is that of the protocol below. As to the operations on split records, a
//! transaction can be placed anywhere in the phase, because no transaction sees their results before its end
//! (§5.6). So every order that is right for the other records is right for the split ones.
//!
//! **Errors.** An operation that might not fit (see [`operation`](weft::operation#errors)) is not gathered. It
//! waits for the joined phase, where its result is known. So an overflow is an error at the same place as under
//! any other protocol. The same holds for sums within declared bounds: a worker takes from its share of what there
//! is above the least value. A share begins with nothing, and grows by parts of a common reserve, which a worker
//! draws without waiting. When the reserve is empty, the take waits for the joined phase, which returns all shares
//! to the row. (This is escrow: P. O'Neil, *The Escrow Transactional Method*, TODS 1986.)
//!
//! **Snapshots** are opened in joined phases: opening one during a split phase ends the phase. So a snapshot
//! shows everything that had committed. **Durability**: a transaction logs its operations as such when it
//! commits; reconciliation logs nothing. So what was acknowledged does not depend on whether its slices were
//! merged. **Histories** show a reconciliation as one transaction for each record, which replaces the row by
//! one that contains all operations of the phase.
//!
//! **Waiting.** A transaction that accesses a split record in another way is rolled back. `transact` waits for
//! the next joined phase and runs it again. That phase comes at once if no other worker is in a transaction. A
//! [`Stash`](weft::Stash), as the workers of a [`Pool`](weft::Pool) have it, sets the transaction aside instead
//! (the paper's *stashed* transactions), and goes on with others. In the next joined phase the stashed
//! transactions come first, and a split phase begins only when all of them have run.
//!
//! **Under a joined protocol that adapts** ([`JoinedProtocol::ADAPTS`]), which is that of
//! [`adaptive`](crate::adaptive), phases begin only when conflicts are frequent, and a record stays split only if the
//! split phase was measured to be faster than the joined one.
//!
//! **Departures from the paper**
//! - There is no coordinator thread. A worker that finds, between two transactions, that the phase has lasted
//!   long enough changes it. So an idle database does nothing at all, and no thread has to be woken up. A
//!   thread that waits for the next phase does the work itself instead of waiting for another thread to do it.
//! - A worker merges the slices of all workers into a record, and replaces its row once. The worker that changes the
//!   phase and all that wait for the next one divide the records among each other. In the paper each worker merges
//!   its own slices, while others still run transactions; but then a worker that sleeps would delay the phase.
//! - Slices are changed when an operation is applied, and changed back if the transaction does not commit,
//!   instead of at the commit (Figure 3). So an operation that does not fit is found where it is applied.
//! - In the paper all transactions that access a split record in another way are stashed. Here a thread that
//!   has no stash, or whose stash is full, waits itself. So a phase is shorter when a thread waits. A record is
//!   not split again for a while if threads have waited for it longer than its operations can have saved.
//! - A split phase begins as soon as all transactions that have waited, or were stashed, have committed. A
//!   joined phase of full length comes only before new records are split. Records stay split from one split
//!   phase to the next as long as it pays.

mod contention;
mod labels;
mod merging;
mod metrics;
mod options;
mod phases;
mod splits;
mod transition;
pub(crate) mod turn;

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use smallvec::SmallVec;
use weft::column::{ColumnSet, UsedColumns};
use weft::commit::access_set::TidHeader;
use weft::commit::optimistic::abort_at;
use weft::commit::{
    Abort, ContentionAction, ContentionPoint, DeletedOutcome, Engine, Executor, HoldFunction,
    Never, Observation, PhaseMetrics, Protocol, ProtocolOptions, ProtocolShared, Refusal, Silo,
    SplitsRecords, Target, TwoPhaseLocking, Visible, Worker, WriteMark,
};
use weft::encoding::EncodedKey;
use weft::index::bplus_tree::ScannedRange;
use weft::index::{NodeChange, NodeVersion};
use weft::operation::{ColumnOperation, Reserve, UndoLog};
use weft::store::record::{RecordPointer, StoredRecord};
use weft::store::table::TableRef;
use weft::store::worker::{LoggedOperation, LoggedWrite, WorkerMemory};
use weft::{ConflictReason, Failure};
use weft_htm::word::{Ordering, Word, fence};

use self::contention::Sketch;
pub use self::labels::LabelledDatabase;
use self::merging::MergeWork;
use self::metrics::{Count, MetricWords};
pub use self::options::{Merging, PhaseOptions};
use self::phases::{NumberedPhase, Phase, Phases};
use self::splits::{SplitRecord, Splits};
use self::transition::Plans;
use self::turn::TurnLock;

/// Phase reconciliation over optimistic concurrency control (Silo). See the [module](self) for the paper and
/// the idea.
pub type Doppel = PhaseReconciliation<Silo>;

/// Phase reconciliation over two-phase locking.
pub type DoppelLocking = PhaseReconciliation<TwoPhaseLocking>;

/// Phase reconciliation over the protocol `J`. `J` rules the joined phases, and in split phases the records
/// that are not split.
#[derive(Debug)]
pub struct PhaseReconciliation<J>(PhantomData<J>);

/// A protocol that phase reconciliation can run over.
pub trait JoinedProtocol: Protocol<Header: TidHeader> {
    /// The name of the combined protocol.
    #[doc(hidden)]
    const RECONCILED_NAME: &'static str;
    /// The title of the combined protocol, in a few words.
    #[doc(hidden)]
    const RECONCILED_TITLE: &'static str;
    /// The source of the combined protocol.
    #[doc(hidden)]
    const RECONCILED_SOURCE: &'static str = "Narula et al., OSDI 2014";

    /// Whether the combined protocol adapts: there are phases only while conflicts are frequent, a record stays split
    /// only if that was measured to pay, and commits apply operations again.
    #[doc(hidden)]
    const ADAPTS: bool = false;

    /// Announces that the next record is accessed by an operation that commutes.
    #[doc(hidden)]
    #[inline(always)]
    fn expect_operation(executor: &mut Self::Executor) {
        let _ = executor;
    }

    /// Reviews what is done about contention, by the number of transactions that have committed until `now`, in
    /// nanoseconds. Returns whether anything is done. One worker at a time calls this.
    #[doc(hidden)]
    fn review(shared: &Self::Shared, committed: u64, now: u64) -> bool {
        let _ = (shared, committed, now);
        false
    }

    /// Returns the points at which transactions queue, or queue for a trial.
    #[doc(hidden)]
    fn ordered_points(shared: &Self::Shared, now: u64) -> Vec<ContentionPoint> {
        let _ = (shared, now);
        Vec::new()
    }

    /// Returns whether the phase changes beside transactions that were not announced: a flaw, for tests.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    fn passes_unannounced(shared: &Self::Shared) -> bool {
        let _ = shared;
        false
    }

    /// Returns whether records may be split.
    #[doc(hidden)]
    fn may_split(shared: &Self::Shared) -> bool {
        let _ = shared;
        true
    }
}

impl JoinedProtocol for Silo {
    const RECONCILED_NAME: &'static str = "doppel";
    const RECONCILED_TITLE: &'static str = "phase reconciliation over OCC";
}

impl JoinedProtocol for TwoPhaseLocking {
    const RECONCILED_NAME: &'static str = "doppel-2pl";
    const RECONCILED_TITLE: &'static str = "phase reconciliation over two-phase locking";
}

// SAFETY: the joined protocol handles records that are not split; a slice belongs to its worker alone until it
// is merged into the row.
unsafe impl<J: JoinedProtocol> Protocol for PhaseReconciliation<J> {
    const NAME: &'static str = J::RECONCILED_NAME;
    const TITLE: &'static str = J::RECONCILED_TITLE;
    const SOURCE: &'static str = J::RECONCILED_SOURCE;
    const USES_HTM: bool = J::USES_HTM;
    const KEEPS_LOCKS: bool = true;
    const SPLITS: bool = true;
    const COUNTS_CONFLICTS: bool = !J::ADAPTS;
    type Header = J::Header;
    type Shared = Reconciliation<J>;
    type Executor = ReconcilingExecutor<J>;

    #[inline(always)]
    fn has_work_between(shared: &Reconciliation<J>) -> bool {
        shared.has_phases()
    }

    #[inline(always)]
    fn between_transactions(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        keep_waiting: impl Fn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        transition::between_transactions(database, worker, keep_waiting)
    }

    fn wait_for_whole_rows<E>(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        refused_in: u64,
        keep_waiting: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        transition::wait_for_whole_rows(database, worker, refused_in, keep_waiting)
    }

    #[inline(always)]
    fn has_whole_rows_since(shared: &Reconciliation<J>, refused_in: u64) -> bool {
        let present = shared.phases.present();
        present.phase() == Some(Phase::Joined) && present.number() > refused_in
    }

    fn note_stash(shared: &Reconciliation<J>, is_holding: bool) {
        let change = if is_holding { 1 } else { u64::MAX };
        shared.stashes.fetch_add(change, Ordering::Relaxed);
    }

    fn with_whole_rows<R>(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        body: impl FnOnce() -> R,
    ) -> Result<R, Failure> {
        transition::with_whole_rows(database, worker, body)
    }

    fn contention_points(shared: &Reconciliation<J>) -> Vec<ContentionPoint> {
        let now = shared.now();
        let mut points = J::ordered_points(&shared.joined, now);
        points.extend(shared.split_records().into_iter().map(|(table, key, since)| {
            let lasted = Duration::from_nanos(now.saturating_sub(since));
            ContentionPoint { table, key: Some(key), action: ContentionAction::Split, lasted }
        }));
        points
    }

    fn phase_metrics(shared: &Reconciliation<J>) -> Option<PhaseMetrics> {
        Some(shared.metrics())
    }

    fn settle_deleted(
        record: &StoredRecord<J::Header>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        J::settle_deleted(record, may_go, unlink)
    }

    const HOLD_ROW: Option<HoldFunction<J::Header>> = J::HOLD_ROW;
}

/// What the workers of a database share.
#[doc(hidden)]
pub struct Reconciliation<J: JoinedProtocol> {
    joined: Arc<J::Shared>,
    phases: Phases,
    /// 1 while there are phases, under a protocol that adapts.
    begun: SharedFlag,
    /// The records that are split. Written only by the worker that changes the phase, while no worker is in a
    /// transaction.
    splits: UnsafeCell<Splits>,
    /// The split records whose slices are being merged.
    merging: MergeWork,
    slots: Box<[WorkerSlot]>,
    options: PhaseOptions,
    clock: PhaseClock,
    /// When the present phase began, in nanoseconds of `clock`.
    began: Word,
    /// The number of conflicts of all workers when the present phase began.
    conflicts_before: Word,
    /// The number of records that are to be split in the next split phase.
    chosen: Word,
    /// Under a protocol that adapts: until when the present joined phase lasts at least, because it is measured, and
    /// when further records may be chosen, because the last trial did not pay. In nanoseconds of `clock`.
    joined_until: Word,
    next_choice: Word,
    /// Under a protocol that adapts: when phases may begin again, after they have ended because nothing was done.
    rest_until: Word,
    /// How many transactions had been refused when the phase began.
    refused_before: Word,
    /// The number of threads that wait for a joined phase, or have waited and not committed since.
    waiting: Word,
    /// The number of stashes that hold transactions.
    stashes: Word,
    /// Held by the worker that changes the phase, or that prevents a change.
    plans: TurnLock<Plans>,
    metrics: MetricWords,
}

// SAFETY: `splits` is written only by the worker that changes the phase, while no worker is in a transaction.
// It is read only in transactions, or by the worker that changes the phase. The same holds for each slot's
// sketch, which otherwise belongs to its worker. `phases` orders the two. All that they hold may move between
// threads.
unsafe impl<J: JoinedProtocol> Sync for Reconciliation<J> {}
// SAFETY: as for `Sync`.
unsafe impl<J: JoinedProtocol> Send for Reconciliation<J> {}

/// A word that is hardly ever written, on a cache line of its own.
#[repr(align(128))]
struct SharedFlag(Word);

/// What is kept for each worker.
#[repr(align(128))]
#[derive(Default)]
struct WorkerSlot {
    sketch: UnsafeCell<Sketch>,
    /// The number of conflicts that the worker has had about records.
    conflicts: Count,
    /// The number of transactions that were refused, and for which their thread waits.
    awaited: Count,
    /// See [`PhaseMetrics::stashed`].
    stashed: Count,
}

impl<J: JoinedProtocol> ProtocolShared for Reconciliation<J> {
    fn new(options: &ProtocolOptions) -> Result<Self, Failure> {
        let phase_options = options.given.get::<PhaseOptions>().cloned().unwrap_or_default();
        Ok(Reconciliation {
            joined: Arc::new(ProtocolShared::new(options)?),
            phases: Phases::new(options.workers_max),
            begun: SharedFlag(Word::new(0)),
            splits: UnsafeCell::default(),
            slots: (0..options.workers_max).map(|_| WorkerSlot::default()).collect(),
            options: phase_options,
            clock: PhaseClock::new(),
            began: Word::new(0),
            conflicts_before: Word::new(0),
            chosen: Word::new(0),
            joined_until: Word::new(0),
            next_choice: Word::new(0),
            rest_until: Word::new(0),
            refused_before: Word::new(0),
            waiting: Word::new(0),
            stashes: Word::new(0),
            merging: MergeWork::default(),
            plans: TurnLock::default(),
            metrics: MetricWords::default(),
        })
    }
}

impl<J: JoinedProtocol> Reconciliation<J> {
    /// Returns the records that are split in this phase.
    ///
    /// # Safety
    /// The caller is in a transaction, or changes the phase, and does not keep the reference longer.
    #[inline(always)]
    unsafe fn splits(&self) -> &Splits {
        // SAFETY: by the contract, no worker writes it while the reference lives.
        unsafe { &*self.splits.get() }
    }

    /// Returns the time, in nanoseconds of the clock of phases.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Returns whether there are phases. As long as there aren't any, transactions are not announced.
    #[inline(always)]
    fn has_phases(&self) -> bool {
        // Relaxed: see `transition::may_change`.
        !J::ADAPTS || self.begun.0.load(Ordering::Relaxed) != 0
    }

    /// Returns the sum of a count of all workers.
    fn sum(&self, count: fn(&WorkerSlot) -> &Count) -> u64 {
        self.slots.iter().map(|slot| count(slot).load()).sum()
    }

    /// Returns the metrics of the phases.
    pub fn metrics(&self) -> PhaseMetrics {
        // Relaxed: statistics.
        let load = |word: &Word| word.load(Ordering::Relaxed);
        let stashed = self.sum(|slot| &slot.stashed);
        let mut metrics = PhaseMetrics::default();
        metrics.is_split = self.phases.present().phase() == Some(Phase::Split);
        metrics.split_phases = load(&self.metrics.split_phases);
        metrics.hurried = load(&self.metrics.hurried);
        metrics.reconciled_rows = load(&self.metrics.reconciled_rows);
        metrics.split_records = load(&self.chosen);
        // The sum of two counters: so a reading never shows more stashed transactions than refused ones.
        metrics.refused = self.sum(|slot| &slot.awaited) + stashed;
        metrics.stashed = stashed;
        metrics.split_time = Duration::from_nanos(load(&self.metrics.split_nanoseconds));
        metrics.changing_time = Duration::from_nanos(load(&self.metrics.changing_nanoseconds));
        metrics
    }
}

/// The clock of phases, in nanoseconds. On the simulated machine it shows virtual time, at the 2.4 GHz of the
/// paper's machine. For threads that are not among its cores it shows real time.
struct PhaseClock {
    start: Instant,
    /// The nanoseconds from 1970 to the start, so that stamps do not begin again when a database is opened again.
    start_nanoseconds: u64,
}

impl PhaseClock {
    fn new() -> PhaseClock {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        PhaseClock { start: Instant::now(), start_nanoseconds: since_1970.as_nanos() as u64 }
    }

    fn now(&self) -> u64 {
        #[cfg(weft_sim)]
        if let Some(cycles) = weft_htm::simulation::cycles() {
            return cycles * 10 / 24;
        }
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns the stamp of a transaction that a worker commits now. It has a resolution of 16 ns. Workers have
    /// different stamps (up to 128 of them), so that slices can be merged in any order.
    fn stamp(&self, slot: usize) -> u64 {
        ((self.start_nanoseconds + self.now()) >> 4) << 7 | (slot as u64 & 127)
    }
}

/// Runs one worker's transactions in phases.
#[doc(hidden)]
pub struct ReconcilingExecutor<J: JoinedProtocol> {
    joined: J::Executor,
    shared: Arc<Reconciliation<J>>,
    slot: usize,
    /// The phase of the transaction.
    present: NumberedPhase,
    is_split: bool,
    /// Whether the transaction is announced, so that no phase changes before it ends.
    is_announced: bool,
    /// Conflicts since `counted_since`, in nanoseconds. If they are frequent, phases begin.
    conflicts: u32,
    counted_since: u64,
    /// Whether the transaction has accessed anything that is not split. Only noted in a split phase.
    is_joined_used: bool,
    /// Whether the transaction has written anything that is not split.
    is_joined_written: bool,
    /// The undo log for slices.
    undo: UndoLog,
    /// The operations that were applied to rows.
    applied: Vec<(NonNull<u8>, ColumnOperation)>,
    /// The operations on split records, as they are to be logged.
    logged: LoggedOperations,
    /// The conflict by which the transaction can no longer commit, if there is one.
    doomed: Option<Abort>,
    /// Whether this worker is changing the phase. Its transactions then reconcile.
    is_reconciling: bool,
    /// The number of the split phase in which the last transaction was refused, until it may be run again.
    refused_in: Option<u64>,
    /// Whether a transaction that is refused is set aside.
    is_set_aside: bool,
    /// Whether the worker is counted in `Reconciliation::waiting`.
    is_waiting: bool,
    /// The number of transactions until the worker looks at the clock again, the number between two looks, and
    /// (`looked`) the time of the last look.
    until_look: u32,
    look_interval: u32,
    looked: u64,
    random: fastrand::Rng,
}

// SAFETY: the addresses of records and tables belong to the executor's database, and are forgotten between
// transactions, when the executor may move to another thread.
unsafe impl<J: JoinedProtocol> Send for ReconcilingExecutor<J> {}

/// Operations on split records that are to be logged.
#[derive(Default)]
struct LoggedOperations {
    /// For each operation: the record, the table, the end of its bytes in `bytes`, and whether these end with a
    /// stamp.
    operations: Vec<(NonNull<u8>, TableRef, usize, bool)>,
    bytes: Vec<u8>,
}

impl<J: JoinedProtocol> ReconcilingExecutor<J> {
    /// Returns the split record, if the record is split in this phase.
    #[inline(always)]
    fn split(&self, record: NonNull<u8>) -> Option<&SplitRecord> {
        if !self.is_split {
            return None;
        }
        // SAFETY: the worker is in a transaction.
        unsafe { self.shared.splits() }.find(record)
    }

    /// Refuses an access to a record if the record is split.
    #[inline(always)]
    fn check_whole(&mut self, table: TableRef, record: NonNull<u8>) -> Result<(), Abort> {
        if self.is_split {
            if self.split(record).is_some() {
                return Err(self.refuse(table, record, None));
            }
            self.is_joined_used = true;
        }
        Ok(())
    }

    /// Refuses an access to a split record: the transaction is aborted and retried in the next joined phase
    /// (§5.2).
    #[cold]
    fn refuse(
        &mut self,
        table: TableRef,
        record: NonNull<u8>,
        operation: Option<&ColumnOperation>,
    ) -> Abort {
        // Sample the refusal, by which the record is classified at the end of the phase (§5.5).
        let now = self.shared.clock.now();
        if let Some(split) = self.split(record)
            && self.slot < split.cores()
        {
            // SAFETY: the worker is in a transaction, and this is its own block.
            let header = unsafe { split.header(self.slot) };
            if !self.is_set_aside {
                header.refused_at = now.max(1);
            }
            match operation {
                Some(operation) => header.note_refused(*operation, 1),
                None => header.refused += 1,
            }
        }
        self.refused_in = Some(self.present.number());
        let slot = &self.shared.slots[self.slot];
        match self.is_set_aside {
            true => slot.stashed.increment(),
            false => slot.awaited.increment(),
        }
        let abort = Abort { reason: ConflictReason::Split, table, record: Some(record) };
        self.doomed = Some(abort);
        abort
    }

    /// Counts a conflict about a record, by which the record may be split (§5.5).
    #[cold]
    fn note_conflict(&mut self, abort: &Abort, memory: &WorkerMemory) {
        let Some(record) = abort.record else { return };
        let slot = &self.shared.slots[self.slot];
        slot.conflicts.increment();
        let of_record = self.applied.iter().filter(|(applied, _)| *applied == record);
        // SAFETY: the worker is in a transaction, and this is its own sketch.
        let sketch = unsafe { &mut *slot.sketch.get() };
        sketch.note(abort, of_record.map(|(_, operation)| *operation), memory);
        if J::ADAPTS && !self.shared.has_phases() {
            self.count_conflict();
        }
    }

    /// Whether the transaction runs in a split phase.
    pub(super) fn is_split(&self) -> bool {
        self.is_split
    }

    /// Announces the transaction, under a protocol that adapts.
    #[cold]
    fn announce_late(&mut self) {
        if !self.is_reconciling {
            self.is_announced = true;
            self.shared.phases.announce(self.slot);
            fence(Ordering::SeqCst);
        }
    }

    /// Enters the present phase.
    #[inline(always)]
    fn enter(&mut self) {
        self.present = self.shared.phases.enter(self.slot);
        self.is_split = self.present.phase() == Some(Phase::Split);
        self.is_joined_used = false;
        self.is_joined_written = false;
    }

    /// Ends the transaction.
    #[inline(always)]
    fn leave(&mut self) {
        self.applied.clear();
        if self.is_announced {
            self.is_announced = false;
            self.shared.phases.leave(self.slot);
        }
    }

    /// Counts a conflict. If conflicts are frequent, phases begin.
    fn count_conflict(&mut self) {
        self.conflicts += 1;
        let is_hasty = self.shared.options.is_hasty;
        if self.conflicts < FREQUENT_CONFLICTS && !is_hasty {
            return;
        }
        let now = self.shared.clock.now();
        let length = self.shared.options.length.as_nanos() as u64;
        let is_frequent = now.saturating_sub(self.counted_since) < length
            && now >= self.shared.rest_until.load(Ordering::Relaxed);
        if is_hasty || is_frequent {
            // Relaxed: see `transition::may_change`.
            self.shared.begun.0.store(1, Ordering::Relaxed);
        }
        (self.conflicts, self.counted_since) = (0, now);
    }
}

impl<J: JoinedProtocol> Executor for ReconcilingExecutor<J> {
    type Header = J::Header;
    type Shared = Reconciliation<J>;
    type Version = <J::Executor as Executor>::Version;
    type Splitting = Self;
    type Repairing = Never;
    type Chopping = Never;
    type Reapplying = <J::Executor as Executor>::Reapplying;

    #[inline(always)]
    fn splitting(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    #[inline(always)]
    fn reapplying(&mut self) -> Option<&mut Self::Reapplying> {
        if J::ADAPTS { self.joined.reapplying() } else { None }
    }

    fn new(shared: &Arc<Reconciliation<J>>, slot: usize) -> Self {
        ReconcilingExecutor {
            joined: J::Executor::new(&shared.joined, slot),
            shared: Arc::clone(shared),
            slot,
            present: shared.phases.present(),
            is_split: false,
            is_announced: false,
            conflicts: 0,
            counted_since: 0,
            is_joined_used: false,
            is_joined_written: false,
            undo: UndoLog::default(),
            applied: Vec::new(),
            logged: LoggedOperations::default(),
            doomed: None,
            is_reconciling: false,
            refused_in: None,
            is_set_aside: false,
            is_waiting: false,
            until_look: 1,
            look_interval: 1,
            looked: 0,
            random: fastrand::Rng::with_seed(slot as u64),
        }
    }

    #[inline(always)]
    fn announce(&mut self) {
        // Under a protocol that adapts this is too early: there may be no phases, and the worker may be pinned already.
        if !J::ADAPTS && !self.is_reconciling {
            self.is_announced = true;
            self.shared.phases.announce(self.slot);
        }
    }

    fn retract(&mut self) {
        self.leave();
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn begin(&mut self, attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal> {
        self.is_split = false;
        if J::ADAPTS && self.shared.has_phases() {
            self.announce_late();
        }
        if self.is_announced {
            self.enter();
        }
        self.joined.begin(attempt, memory)
    }

    #[inline(always)]
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<J::Header>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        self.check_whole(table, record.block())?;
        let read = self.joined.read(table, record, memory);
        read.inspect_err(|abort| self.note_conflict(abort, memory))
    }

    #[inline(always)]
    fn read_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<J::Header>,
        columns: ColumnSet,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        self.check_whole(table, record.block())?;
        let read = self.joined.read_columns(table, record, columns, memory);
        read.inspect_err(|abort| self.note_conflict(abort, memory))
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<J::Header>,
        memory: &WorkerMemory,
    ) -> Result<Observation<Self::Version>, Abort> {
        self.check_whole(table, record.block())?;
        let observed = self.joined.read_for_write(table, record, memory);
        observed.inspect_err(|abort| self.note_conflict(abort, memory))
    }

    #[inline(always)]
    fn note_read(
        &mut self,
        table: TableRef,
        record: RecordPointer<J::Header>,
        version: Self::Version,
    ) {
        self.joined.note_read(table, record, version);
    }

    #[inline(always)]
    fn is_current(&self, record: RecordPointer<J::Header>, version: Self::Version) -> bool {
        self.joined.is_current(record, version)
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<J::Header>,
        version: Self::Version,
        row: NonNull<u8>,
    ) {
        self.is_joined_written = true;
        self.joined.write(table, record, version, row);
    }

    #[inline(always)]
    fn write_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<J::Header>,
        version: Self::Version,
        row: NonNull<u8>,
        columns: UsedColumns,
    ) {
        self.is_joined_written = true;
        self.joined.write_columns(table, record, version, row, columns);
    }

    #[inline(always)]
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<J::Header>,
        version: Self::Version,
        key: EncodedKey,
    ) {
        self.is_joined_written = true;
        self.joined.remove(table, record, version, key);
    }

    #[inline(always)]
    fn prepare_insert(&mut self, record: RecordPointer<J::Header>) {
        self.joined.prepare_insert(record);
    }

    #[inline(always)]
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<J::Header>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        (self.is_joined_used, self.is_joined_written) = (true, true);
        self.joined.insert(table, record, row, key);
    }

    #[inline(always)]
    fn approach_range(&mut self, table: TableRef, start: impl FnOnce() -> u64) {
        self.joined.approach_range(table, start);
    }

    #[inline(always)]
    fn note_node(
        &mut self,
        table: TableRef,
        node: NodeVersion,
        range: Option<ScannedRange>,
    ) -> Result<usize, Abort> {
        self.is_joined_used = true;
        self.joined.note_node(table, node, range)
    }

    #[inline(always)]
    fn stop_scan(&mut self, position: usize, node: NodeVersion, address: u64) {
        self.joined.stop_scan(position, node, address);
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        self.joined.note_own_insertion(table, change, sibling)
    }

    fn accessed(&self) -> (usize, usize) {
        self.joined.accessed()
    }

    fn validate(&mut self) -> Result<(), Abort> {
        match self.doomed {
            Some(abort) => Err(abort),
            None => self.joined.validate(),
        }
    }

    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        self.joined.list_writes(list);
    }

    /// The commit protocol, in a split phase that of Figure 3 (§5.2). The changes of slices become final.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        if self.is_split {
            return self.commit_in_split_phase(memory, epoch);
        }
        let committed = self.joined.commit(memory, epoch);
        match &committed {
            Ok(()) => {
                if self.is_waiting {
                    self.end_waiting();
                }
                self.leave();
            }
            Err(abort) => self.note_conflict(abort, memory),
        }
        committed
    }

    fn carry_over(&mut self, abort: Abort, memory: &WorkerMemory) -> Result<(), Abort> {
        match self.doomed {
            Some(_) => Err(abort),
            None => self.joined.carry_over(abort, memory),
        }
    }

    fn mark(&mut self) -> WriteMark {
        WriteMark {
            slices: self.undo.len(),
            operations: self.logged.operations.len(),
            is_joined_written: self.is_joined_written,
            ..self.joined.mark()
        }
    }

    fn keep(&mut self, mark: WriteMark) {
        self.joined.keep(mark);
    }

    fn undo_to(&mut self, mark: WriteMark, memory: &WorkerMemory) {
        self.undo.undo_to(mark.slices);
        let LoggedOperations { operations, bytes } = &mut self.logged;
        operations.truncate(mark.operations);
        bytes.truncate(operations.last().map_or(0, |&(.., end, _)| end));
        self.is_joined_written = mark.is_joined_written;
        self.joined.undo_to(mark, memory);
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        self.undo.undo();
        self.logged.operations.clear();
        self.logged.bytes.clear();
        self.doomed = None;
        self.joined.abort(memory);
        self.leave();
    }
}

impl<J: JoinedProtocol> SplitsRecords<J::Header> for ReconcilingExecutor<J> {
    #[inline(always)]
    fn set_aside(&mut self, is_set_aside: bool) {
        self.is_set_aside = is_set_aside;
    }

    fn take_refused(&mut self) -> u64 {
        self.refused_in.take().expect("a transaction was refused")
    }

    /// Split phase execution (§5.2): an operation on a split record goes to this worker's slice, if it is the
    /// selected operation.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn target(
        &mut self,
        table: TableRef,
        record: RecordPointer<J::Header>,
        operation: Option<&ColumnOperation>,
        memory: &WorkerMemory,
    ) -> Result<Target, Abort> {
        let block = record.block();
        if self.is_split {
            // SAFETY: the worker is in a transaction.
            if let Some(split) = unsafe { self.shared.splits() }.find(block) {
                let row = || {
                    // SAFETY: the worker is pinned, the record had a row when it was split, and no worker has
                    // changed it since.
                    let newest = unsafe { record.get() }.newest.load(Ordering::Acquire);
                    newest.row().expect("a split record has a row")
                };
                let phase = self.present.number();
                let slice = operation.and_then(|operation| {
                    // SAFETY: the worker is in a transaction, in this phase.
                    unsafe { split.slice(operation, self.slot, phase, memory, row) }
                });
                return match slice {
                    Some(slice) => Ok(Target::Slice(slice)),
                    None => Err(self.refuse(table, block, operation)),
                };
            }
        }
        if let Some(operation) = operation {
            J::expect_operation(&mut self.joined);
            self.applied.push((block, *operation));
            if self.shared.options.is_hasty {
                let abort = abort_at(ConflictReason::WriteChanged, table, record);
                self.note_conflict(&abort, memory);
            }
        }
        Ok(Target::Row)
    }

    #[cold]
    fn reserve(
        &self,
        record: RecordPointer<J::Header>,
        operation: Option<&ColumnOperation>,
    ) -> Option<&Reserve> {
        self.split(record.block())?.reserve(operation?)
    }

    fn undo_log(&mut self) -> &mut UndoLog {
        &mut self.undo
    }

    fn log_operation(
        &mut self,
        table: TableRef,
        record: RecordPointer<J::Header>,
        bytes: &[u8],
        is_stamped: bool,
    ) {
        let LoggedOperations { operations, bytes: logged } = &mut self.logged;
        logged.extend_from_slice(bytes);
        operations.push((record.block(), table, logged.len(), is_stamped));
    }

    #[cold]
    fn refuse_undecided(&mut self, table: TableRef, record: RecordPointer<J::Header>) -> Abort {
        self.refuse(table, record.block(), None)
    }
}

impl<J: JoinedProtocol> ReconcilingExecutor<J> {
    /// Commits a transaction of a split phase.
    #[inline(never)]
    fn commit_in_split_phase(
        &mut self,
        memory: &WorkerMemory,
        epoch: impl Fn() -> u64,
    ) -> Result<(), Abort> {
        if let Some(abort) = self.doomed {
            return Err(abort);
        }
        if self.undo.is_empty() {
            let committed = self.joined.commit(memory, epoch);
            committed.inspect_err(|abort| self.note_conflict(abort, memory))?;
        } else {
            self.commit_split(memory, epoch)?;
        }
        self.leave();
        Ok(())
    }

    /// Commits a transaction that has applied operations to slices.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn commit_split(
        &mut self,
        memory: &WorkerMemory,
        epoch: impl Fn() -> u64,
    ) -> Result<(), Abort> {
        let is_logged = !self.logged.operations.is_empty();
        if is_logged && !self.is_joined_written {
            // The number is drawn before anything is validated, as if the transaction wrote something that is
            // not split.
            epoch();
        }
        // The stamps are in the order of serialization. Others that have written what this transaction has read have
        // looked at the clock before they installed it, and so before this. Others that read what it writes, or write
        // it after this, look after the locks were taken, when it looks again.
        let stamp = Cell::new(0);
        let look = || {
            if self.undo.is_stamped() {
                stamp.set(self.shared.clock.stamp(self.slot));
            }
        };
        look();
        // Parts 1 to 3 of Figure 3, for the records that are not split.
        if self.is_joined_used {
            let drawn = || {
                look();
                if memory.has_drawn() { memory.drawn_epoch() } else { epoch() }
            };
            let committed = self.joined.commit(memory, drawn);
            committed.inspect_err(|abort| self.note_conflict(abort, memory))?;
        } else {
            // It has used only slices, which belong to this worker, so there is nothing to validate.
            self.joined.abort(memory);
        }
        if is_logged {
            self.log_operations(memory, stamp.get());
        }
        // The slices were changed when the operations were applied, so it only remains to stamp that, and to forget
        // how to undo it.
        self.undo.commit(stamp.get());
        Ok(())
    }

    fn log_operations(&mut self, memory: &WorkerMemory, stamp: u64) {
        let LoggedOperations { operations, bytes } = &mut self.logged;
        for &(.., end, is_stamped) in &*operations {
            if is_stamped {
                bytes[end - size_of::<u64>()..end].copy_from_slice(&stamp.to_le_bytes());
            }
        }
        let mut start = 0;
        let entries = operations.drain(..).map(|(record, table, end, _)| {
            // SAFETY: the worker is pinned, so the record is not freed.
            let stored = unsafe { record.cast::<StoredRecord<J::Header>>().as_ref() };
            // The record does not change in this phase. So the operation is ordered after the write of the
            // record's present version, and before the next write, which is the reconciliation's or a later
            // one.
            let order = stored.header.tid().load_relaxed().order_in(memory.drawn_epoch());
            let operation = &bytes[start..end];
            start = end;
            LoggedOperation { table, order, bytes: operation }
        });
        memory.log_operations(entries, self.is_joined_written);
        bytes.clear();
    }

    /// Ends the wait, after the transaction has got what it waited for. (A reconciliation is not that transaction.)
    #[cold]
    fn end_waiting(&mut self) {
        if !self.is_reconciling {
            self.is_waiting = false;
            self.shared.waiting.fetch_add(u64::MAX, Ordering::Relaxed);
        }
    }
}

impl<J: JoinedProtocol> Drop for ReconcilingExecutor<J> {
    fn drop(&mut self) {
        if self.is_waiting {
            self.end_waiting();
        }
    }
}

/// How many conflicts of a worker within the length of a phase are frequent.
const FREQUENT_CONFLICTS: u32 = 4;

/// Operations on a record, with how often they occurred.
type Counted = SmallVec<[(ColumnOperation, u64); 4]>;
