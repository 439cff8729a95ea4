//! **Adaptive**: decides for each contention point what to do about it, and finds out by measuring.
//!
//! The base is [DBX](weft::commit::dbx): optimistic reads, and a commit in a region or its twin. Where nothing is
//! contended, nothing else happens. A *contention point* is a record, or the place where scans of a range begin. There
//! the protocol can do two things more:
//!
//! - **Order.** Transactions that are about to access the point queue for it, first come first served. So they do not
//!   run side by side although only one of them can commit. A queue is
//!   entered at the transaction's first access, and left at its end. Queues advise: a turn that lasts too long is passed
//!   over, and validation decides. So queues cannot deadlock. A turn at a range may end before the transaction does
//!   (`early_release`).
//! - **Split.** Operations that commute go to slices of the workers, in phases, as under
//!   [Doppel](crate::doppel) (N. Narula et al., OSDI 2014). This protocol *is* Doppel's phases over another joined protocol.
//!
//! Operations that commute are also applied again at the commit ([`applied`](weft::commit::applied), as in STO's
//! commit-time updates), and columns that have not changed do not conflict.
//!
//! **Nothing is decided by a threshold that a workload has to fit.** A few conflicts make a point a candidate. Then it
//! is tried: order in every other window of time, a split phase after a joined one. What stays is what has committed more
//! transactions. Trials are repeated, at growing intervals, so that decisions follow the load.
//!
//! **Cold points cost little.** Phases, and the looks at the clock that belong to them, begin when a few
//! conflicts within 20 ms have cost a worker a hundredth of its time. They end when nothing is done, and rest for a time that
//! doubles, or until conflicts cost much more. Without phases a transaction reads two words more than under DBX, which
//! are hardly ever written.
//!
//! The files: `queue` has the queue; `points` the table of points, and trials of order; `early_release` and `claims` how turns at
//! ranges end early; this file what a worker does.
//! Splitting is in [`doppel`](crate::doppel). The crate `weft-inspect` reports at which points what is done.
//!
//! **What it learns from**, what is the same here, and what is not done:
//!
//! - *MOCC* (T. Wang, H. Kimura, VLDB 2016): transactions wait at records at which others have aborted, although they
//!   validate optimistically. There the temperature of a page decides, and here a trial for each point. Transactions wait
//!   only for points after those that they hold, which is MOCC's canonical order; but none is given up to keep the order,
//!   since queues only advise.
//! - *HTCC* (Y. Wu, K.-L. Tan, USENIX ATC 2016): contended records are treated apart from all others. The repair of
//!   transactions that have lost is not done here.
//! - *Bamboo* (Z. Guo et al., SIGMOD 2021): a transaction lets the next one go on before it commits. Here that holds only for
//!   deletions at the beginning of a range. No row of a transaction that has not committed is read, and an abort takes at most
//!   one other along.
//! - *IC3* (Z. Wang et al., SIGMOD 2016): contended transactions overlap within their run. Here only turns at ranges end
//!   early. There are no pieces, there is no static analysis, and procedures need not be known in advance.
//! - *Polyjuice* (J. Wang et al., OSDI 2021): measured throughput decides what is done about conflicts. There a policy for each
//!   access of each type of transaction is trained in advance. Here each point is tried while the load runs, there are fewer
//!   actions, and types are not known.
//! - *Cicada* (H. Lim et al., SIGMOD 2017): measured throughput sets the greatest back-off of all threads. Trials compare
//!   throughputs, too, but the back-off is that of DBX, and is not tuned.
//! - *STO* (Y. Huang et al., VLDB 2020): commit-time updates are applied to the present row. Operations that commute are, here.
//!   Its timestamp splitting gives groups of columns a timestamp each. Here columns that have not changed do not conflict
//!   either, but a row has one version number.
//! - *ACC* (D. Tang et al., CIDR 2017): what is done follows the load while it runs. There a trained model chooses a protocol
//!   for each partition. Here there are no partitions and no model, and all points have the same base protocol.
//! - *Queues for hot rows* in databases behind flash sales: updates of one row wait in a queue, first come first served. Some
//!   need marks at the statements, or execute the waiting updates as a group. Here points are found by conflicts, each
//!   transaction commits alone, and a queue that does not pay is given up.
//!
//! **The serialization point** is that of DBX, and for operations on split records that of Doppel. It does not depend on
//! queues.

mod claims;
mod early_release;
mod options;
mod points;
mod queue;

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use weft::column::{ColumnSet, UsedColumns};
use weft::commit::access_set::{AccessSet, ReplacedVersion, TidOnly};
use weft::commit::by_columns::CarriedAccess;
use weft::commit::dbx::commit_in_region_or_with_locks;
use weft::commit::optimistic::{
    CommitContext, CommitPhases, OptimisticExecutor, hold_row, settle_deleted,
};
use weft::commit::{
    Abort, ContentionAction, ContentionPoint, DeletedOutcome, Executor, HoldFunction, Never,
    Observation, Protocol, ProtocolOptions, ProtocolShared, Refusal, Visible, WriteMark,
};
use weft::encoding::EncodedKey;
use weft::index::bplus_tree::ScannedRange;
use weft::index::{NodeChange, NodeVersion};
use weft::store::record::{RecordPointer, StoredRecord};
use weft::store::table::TableRef;
use weft::store::worker::{LoggedWrite, WorkerMemory, contain};
use weft::{ConflictReason, Failure};
use weft_htm::word::{spin_loop, yield_now};

use self::early_release::RangeTurn;
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use self::options::AdaptiveFlaw;
pub use self::options::AdaptiveOptions;
use self::points::{Entry, OPERATIONS, Place, Points, READS, WRITES, number_of_range};
use self::queue::Ticket;
use crate::doppel::{JoinedProtocol, PhaseReconciliation};

/// Decides for each contention point what to do about it. See the [module](self).
pub type Adaptive = PhaseReconciliation<Ordered>;

/// The protocol of the joined phases: DBX, with queues for contended points.
#[derive(Debug)]
pub enum Ordered {}

// SAFETY: `OptimisticExecutor` reads and writes all records, and keeps the contract. Nothing relies on queues.
unsafe impl Protocol for Ordered {
    const NAME: &'static str = "ordered";
    const TITLE: &'static str = "DBX with queues for contended points";
    const SOURCE: &'static str = "-";
    const USES_HTM: bool = true;
    type Header = TidOnly;
    type Shared = OrderedShared;
    type Executor = OrderingExecutor;

    fn settle_deleted(
        record: &StoredRecord<TidOnly>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        settle_deleted(record, may_go, unlink)
    }

    const RESTARTS_IN_SNAPSHOTS: bool = true;
    const UNLINKS_AT_ONCE: bool = true;
    const HOLD_ROW: Option<HoldFunction<TidOnly>> = Some(hold_row);
}

impl CommitPhases for Ordered {
    type Memory = ();

    #[inline(always)]
    fn commit(
        set: &mut AccessSet<TidOnly>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort> {
        commit_in_region_or_with_locks(set, context.attempt, context.memory, epoch)
    }
}

impl JoinedProtocol for Ordered {
    const RECONCILED_NAME: &'static str = "adaptive";
    const RECONCILED_TITLE: &'static str = "OCC; order or split where measuring shows that it pays";
    const RECONCILED_SOURCE: &'static str = "-";
    const ADAPTS: bool = true;

    #[inline(always)]
    fn expect_operation(executor: &mut OrderingExecutor) {
        executor.expects_operation = true;
    }

    fn review(shared: &OrderedShared, committed: u64, now: u64) -> bool {
        shared.options.orders && shared.points.review(committed, now)
    }

    fn ordered_points(shared: &OrderedShared, now: u64) -> Vec<ContentionPoint> {
        let points = shared.points.report().into_iter().map(|(place, is_ordered, since)| {
            let action = if is_ordered { ContentionAction::Order } else { ContentionAction::Trial };
            let lasted = Duration::from_nanos(now.saturating_sub(since));
            ContentionPoint { table: place.table, key: place.key, action, lasted }
        });
        points.collect()
    }

    fn may_split(shared: &OrderedShared) -> bool {
        shared.options.splits
    }

    #[cfg(feature = "canary")]
    fn passes_unannounced(shared: &OrderedShared) -> bool {
        shared.options.flaw == Some(AdaptiveFlaw::UnannouncedPassed)
    }
}

/// What the workers of a database share.
#[doc(hidden)]
pub struct OrderedShared {
    points: Points,
    options: AdaptiveOptions,
}

impl ProtocolShared for OrderedShared {
    fn new(options: &ProtocolOptions) -> Result<Self, Failure> {
        let options = options.given.get::<AdaptiveOptions>().cloned().unwrap_or_default();
        Ok(OrderedShared { points: Points::new(options.forced_by_seed), options })
    }
}

/// How often a worker looks whether its turn has come before it passes over the worker that has it, or whether a record was
/// deleted. Between looks it pauses the processor, or yields after every [`LOOKS_PER_YIELD`].
const LOOKS_MAX: u32 = if weft::store::RECLAIMS_EARLY { 256 } else { 32_768 };
const LOOKS_PER_YIELD: u32 = 32;

/// In how many queues a transaction has a place at a time.
const TURNS_MAX: usize = 16;

/// For how many ranges of a transaction it is noted where their scans begin.
const SCANS_MAX: usize = 4;

/// A bounded wait.
#[derive(Default)]
struct Patience {
    looks: u32,
}

impl Patience {
    /// Waits until the next look. Returns whether there are more to come.
    fn wait(&mut self) -> bool {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PER_YIELD) {
            yield_now()
        } else {
            spin_loop()
        }
        self.looks <= LOOKS_MAX
    }
}

/// A place in the queue of a point, at which the transaction has its turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The point's position in the table.
    position: usize,
    ticket: Ticket,
}

/// Runs one worker's transactions: those of DBX, with turns.
#[doc(hidden)]
pub struct OrderingExecutor {
    base: OptimisticExecutor<Ordered>,
    /// The mode of the points when the transaction began.
    mode: u64,
    turns: ArrayVec<Turn, TURNS_MAX>,
    /// The first of them that is at a range, if it may end early.
    range: Option<RangeTurn>,
    attempt: u32,
    /// Where the transaction's first scan of each index has begun, as a hash.
    scans: ArrayVec<(TableRef, u64), SCANS_MAX>,
    /// Whether the next record is accessed by an operation that commutes.
    expects_operation: bool,
    /// Why the last commit has failed, if it has.
    failed: Option<Abort>,
    shared: Arc<OrderedShared>,
}

// SAFETY: the addresses of records and tables belong to the executor's database, and are forgotten between transactions,
// when the executor may move to another thread.
unsafe impl Send for OrderingExecutor {}

impl OrderingExecutor {
    /// Waits for the transaction's turn at a record, if the record is contended. Returns whether the transaction passes over
    /// the record, which it reads as one without a row.
    #[cold]
    #[inline(never)]
    fn approach(&mut self, table: TableRef, record: RecordPointer<TidOnly>, access: u64) -> bool {
        if let Some(range) = &mut self.range {
            range.leave(table, &self.base.set, &self.shared.points);
        }
        let _ = self.take_turn(record.address(), access);
        let Some(range) = self.range.as_mut().filter(|_| access == READS) else { return false };
        let set = &mut self.base.set;
        let passes_over =
            range.passes_over((table, record), self.attempt, set, &self.shared.points);
        #[cfg(feature = "canary")]
        if passes_over && self.shared.options.flaw == Some(AdaptiveFlaw::ClaimsTrusted) {
            range.forget_last(set);
        }
        passes_over
    }

    /// Waits for the transaction's turn at a point, if it is contended and the transaction has no turn there yet.
    fn take_turn(&mut self, number: u64, access: u64) -> Option<Turn> {
        let OrderingExecutor { shared, turns, range, mode, .. } = self;
        let Entry { position, queue } = shared.points.find(number, access, *mode)?;
        if turns.is_full() || turns.iter().any(|turn| turn.position == position) {
            return None;
        }
        // A transaction waits only for points after those that it holds, so that queues seldom wait for each other, and for
        // none after it has given up a turn. At the others it takes a turn that is free.
        let has_others_behind_it = range.as_ref().is_some_and(RangeTurn::has_ended);
        let may_wait = turns.iter().all(|turn| turn.position < position) && !has_others_behind_it;
        let ticket = queue.enter(if may_wait { u32::MAX } else { 0 })?;
        let (mut serving, mut patience) = (queue.serving(), Patience::default());
        // (Others may pass over this transaction, too.)
        while ticket.wrapping_sub(serving).cast_signed() > 0 {
            if !patience.wait() {
                queue.leave(serving);
            }
            let before = std::mem::replace(&mut serving, queue.serving());
            if before != serving {
                patience = Patience::default();
            }
        }
        let turn = Turn { position, ticket };
        turns.push(turn);
        Some(turn)
    }

    /// Gives the turn at a range up, and waits for the transactions before this one.
    #[cold]
    fn settle_range(&mut self) {
        let OrderingExecutor { base, shared, range, .. } = self;
        if let Some(range) = range {
            range.await_deletions(&mut base.set, &shared.points);
            range.give_up(&base.set, &shared.points);
        }
    }

    /// Notes at which point the transaction has lost. This runs the user's code, to keep the key for reports.
    #[cold]
    fn note_loss(&self, abort: &Abort, memory: &WorkerMemory) {
        let table = abort.table;
        if let Some(&(_, number)) = self.scans.iter().find(|(scanned, _)| *scanned == table) {
            let place = || Some(Place { table, key: None });
            return self.shared.points.note_loss(number, READS, place);
        }
        let Some(record) = abort.record else { return };
        let set = &self.base.set;
        let write = set.writes.iter().find(|write| write.record.block() == record);
        let access = match write {
            Some(write) if set.applied.have_made(write.record, write.row) => OPERATIONS,
            _ if abort.reason == ConflictReason::ReadChanged => READS,
            _ => WRITES,
        };
        let place = || {
            // SAFETY: the worker has been pinned since before the abort was decided.
            let row = unsafe { abort.row() }?;
            let mut key = None;
            // A panic would leave the transaction half undone, and all that is lost is the key in reports.
            contain(|| {
                // SAFETY: as above; the row is the record's.
                key = Some(memory.in_user_code(|| unsafe { table.core().index_key(row) }));
            });
            key.map(|key| Place { table, key: Some(key) })
        };
        let number = record.as_ptr().expose_provenance() as u64;
        self.shared.points.note_loss(number, access, place);
    }

    /// Ends the transaction: leaves the queues.
    #[inline(always)]
    fn end(&mut self) {
        if !self.turns.is_empty() {
            self.end_turns();
        }
        if !self.scans.is_empty() {
            self.scans.clear();
        }
        self.expects_operation = false;
        self.failed = None;
    }

    #[cold]
    fn end_turns(&mut self) {
        if let Some(mut range) = self.range.take() {
            range.end(&self.shared.points);
        }
        for turn in self.turns.drain(..) {
            self.shared.points.queue(turn.position).leave(turn.ticket);
        }
    }
}

impl Executor for OrderingExecutor {
    type Header = TidOnly;
    type Shared = OrderedShared;
    type Version = ReplacedVersion;
    type Splitting = Never;
    type Repairing = Never;
    type Chopping = Never;
    type Reapplying = OptimisticExecutor<Ordered>;

    const READS_RANGES_AGAIN: bool = OptimisticExecutor::<Ordered>::READS_RANGES_AGAIN;

    #[inline(always)]
    fn reapplying(&mut self) -> Option<&mut OptimisticExecutor<Ordered>> {
        Some(&mut self.base)
    }

    fn new(shared: &Arc<OrderedShared>, slot: usize) -> Self {
        OrderingExecutor {
            base: OptimisticExecutor::new(shared, slot),
            mode: 0,
            turns: ArrayVec::new(),
            range: None,
            attempt: 0,
            scans: ArrayVec::new(),
            expects_operation: false,
            failed: None,
            shared: Arc::clone(shared),
        }
    }

    #[inline(always)]
    fn begin(&mut self, attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal> {
        debug_assert!(self.turns.is_empty());
        self.mode = self.shared.points.mode();
        self.attempt = attempt;
        self.base.begin(attempt, memory)
    }

    #[inline(always)]
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        if self.mode != 0 && self.approach(table, record, READS) {
            return Ok(Visible::Absent);
        }
        self.base.read(table, record, memory)
    }

    #[inline(always)]
    fn read_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        columns: ColumnSet,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        if self.mode != 0 && self.approach(table, record, READS) {
            return Ok(Visible::Absent);
        }
        self.base.read_columns(table, record, columns, memory)
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        memory: &WorkerMemory,
    ) -> Result<Observation<ReplacedVersion>, Abort> {
        let is_operation = std::mem::take(&mut self.expects_operation);
        if self.mode != 0 {
            self.approach(table, record, if is_operation { OPERATIONS } else { WRITES });
        }
        self.base.read_for_write(table, record, memory)
    }

    fn note_read(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        version: ReplacedVersion,
    ) {
        self.base.note_read(table, record, version);
    }

    #[inline(always)]
    fn is_current(&self, record: RecordPointer<TidOnly>, version: ReplacedVersion) -> bool {
        self.base.is_current(record, version)
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        version: ReplacedVersion,
        row: NonNull<u8>,
    ) {
        self.base.write(table, record, version, row);
    }

    #[inline(always)]
    fn write_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        version: ReplacedVersion,
        row: NonNull<u8>,
        columns: UsedColumns,
    ) {
        self.base.write_columns(table, record, version, row, columns);
    }

    #[inline(always)]
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        version: ReplacedVersion,
        key: EncodedKey,
    ) {
        if let Some(range) = &mut self.range {
            range.claim(table, record, &self.shared.points);
        }
        self.base.remove(table, record, version, key);
    }

    #[inline(always)]
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<TidOnly>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        self.base.insert(table, record, row, key);
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn approach_range(&mut self, table: TableRef, start: impl FnOnce() -> u64) {
        if !self.shared.options.orders_ranges
            || self.scans.is_full()
            || self.scans.iter().any(|(scanned, _)| *scanned == table)
        {
            return;
        }
        let number = number_of_range(table, start());
        self.scans.push((table, number));
        if self.mode != 0
            && let Some(turn) = self.take_turn(number, READS)
            && self.range.is_none()
            && self.shared.options.releases_early
        {
            self.range = Some(RangeTurn::new(table, turn));
        }
    }

    #[inline(always)]
    fn note_node(
        &mut self,
        table: TableRef,
        node: NodeVersion,
        range: Option<ScannedRange>,
    ) -> Result<usize, Abort> {
        self.base.note_node(table, node, range)
    }

    #[inline(always)]
    fn stop_scan(&mut self, position: usize, node: NodeVersion, address: u64) {
        self.base.stop_scan(position, node, address);
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        self.base.note_own_insertion(table, change, sibling)
    }

    fn rows_added(&self, table: TableRef) -> Option<i64> {
        self.base.rows_added(table)
    }

    fn accessed(&self) -> (usize, usize) {
        self.base.accessed()
    }

    fn validate(&mut self) -> Result<(), Abort> {
        if self.range.is_some() {
            self.settle_range();
        }
        self.base.validate()
    }

    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        self.base.list_writes(list);
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        #[cfg(feature = "canary")]
        if self.shared.options.flaw == Some(AdaptiveFlaw::TurnsTrusted) && !self.turns.is_empty() {
            self.base.set.reads.clear();
        }
        if self.range.is_some() {
            self.settle_range();
        }
        match self.base.commit(memory, epoch) {
            Ok(()) => {
                self.end();
                Ok(())
            }
            Err(abort) => {
                self.failed = Some(abort);
                Err(abort)
            }
        }
    }

    fn carry_over(
        &mut self,
        abort: Abort,
        memory: &WorkerMemory,
        report: &mut dyn FnMut(CarriedAccess),
    ) -> Result<(), Abort> {
        self.base.carry_over(abort, memory, report).inspect_err(|abort| self.failed = Some(*abort))
    }

    fn mark(&mut self) -> WriteMark {
        self.base.mark()
    }

    fn keep(&mut self, mark: WriteMark) {
        self.base.keep(mark);
    }

    fn undo_to(&mut self, mark: WriteMark, memory: &WorkerMemory) {
        self.base.undo_to(mark, memory);
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        if let Some(abort) = self.failed {
            self.note_loss(&abort, memory);
        }
        self.base.abort(memory);
        self.end();
    }
}
