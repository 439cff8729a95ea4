//! **HTCC**: locks for hot records, hardware transactions for cold ones, and repair instead of restart.
//!
//! Y. Wu, K.-L. Tan: *Scalable In-Memory Transaction Processing with HTM*, USENIX ATC 2016; sections below
//! are that paper's.
//!
//! The idea. Under contention optimistic transactions fail their validation, and repeat all of their work. HTCC
//! does two things against this.
//!
//! First (§3), most conflicts are about a few records. These are *hot*. A transaction accesses them under
//! locks, which it holds to its end. So two transactions that need the same hot record run one after the other,
//! and neither works in vain. All other records are *cold*, and are accessed as in [DBX](weft::commit::dbx):
//! the validation and write phases are one hardware region.
//!
//! Second (§4), if the validation fails all the same, most of what the transaction has found is still right. So
//! the transaction is *repaired*: its body runs again at once, as the same transaction. An operation whose key is the same
//! as before takes the record from the *workset cache*, without a look-up in the index (*fast restoration*). If
//! the key has changed, the operation looks it up in the index and refreshes the cache (*slow restoration*).
//! The transaction keeps its locks on hot records from one round to the next. Before the next validation it
//! releases the locks of records that it no longer accesses.
//!
//! In a *procedure*, only those operations run again that a stale read reaches (§4.2, §4.3).
//!
//! The files: `heat` has what is kept with a record; `flips` has when a record becomes hot or cold if that takes two phases;
//! `locks` has the locks of a transaction; this one has what a worker does; `steps` has the repair of procedures, for which
//! [`procedure`](weft_procedures) decides which operations run. The workset cache lies where records are looked up, in
//! [`Transaction`](weft::Transaction).
//!
//! **The serialization point** is that of DBX. By default it does not depend on the locks on hot records. If the locks replace
//! validation, it is a moment at which the transaction holds all of them.
//!
//! **Departures from the paper.** `htcc:paper` in measurements takes the first three back, and repairs procedures by
//! their dependencies, each by an option ([`HtccOptions`]; decision 77).
//! - Hot records are validated like cold ones; those that are written are locked for the commit, and validated
//!   with that, just before the region. The locks under which hot records are accessed only keep away
//!   transactions that would fail. So whether a record is hot is a guess, which may change at any time, even
//!   while transactions that access it are in progress. (In the paper a hot flag may be flipped only when no
//!   transaction accesses the record.) A transaction that cannot get a lock in time goes on without it, instead
//!   of aborting. So no transaction waits for ever, and there are no deadlocks to resolve.
//! - A record becomes hot not when there are conflicts about it, but when second attempts meet one as well. A
//!   repair costs less than waiting for locks that are held from the first access on.
//! - The transaction that counts one conflict too many about a record makes it hot. A transaction that finds it
//!   has been hot for a second makes it cold. There is no background thread, which in the paper checks once in
//!   60 seconds.
//! - A transaction is restarted instead of repaired if the reclaiming of other workers waits for it. Repaired
//!   transactions stay pinned, and with more threads than cores that would let deleted records pile up in the
//!   indexes.
//! - Hot records are changed in private copies, as all others, because rows are immutable here.
//! - Closures are repaired by replay: all their operations run again, on what they find in the cache.
//!   Insertions are undone first and done again. (This is the paper's HTCC without static analysis,
//!   `HTCC(-S)`.) Procedures, whose operations are known, are repaired as in the paper if
//!   [`HtccOptions::dependencies`] is set. It is not set by default; its documentation says why.
//! - Also with the paper's options: the writes of hot records are validated, since the engine may have moved a row. Reads of
//!   hot records that have no row are validated, since inserting the row takes no lock.

mod flips;
mod heat;
mod locks;
mod options;
mod steps;

pub(crate) use self::flips::background_of;
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use self::options::HtccFlaw;
pub use self::options::{HotRecords, HtccOptions};

use std::ptr::NonNull;
use std::sync::Arc;

use weft::column::{ColumnSet, UsedColumns};
use weft::commit::access_set::{AccessSet, ReplacedVersion, TidHeader, WriteEntry};
use weft::commit::by_columns::CarriedAccess;
use weft::commit::dbx::commit_hot_and_cold;
use weft::commit::optimistic::{
    CommitContext, CommitPhases, OptimisticExecutor, abort_at, hold_row, settle_deleted, stored,
};
use weft::commit::{
    Abort, DeletedOutcome, Executor, HoldFunction, Never, Observation, Protocol, ProtocolOptions,
    ProtocolShared, Refusal, RepairsTransactions, Visible, WriteMark,
};
use weft::encoding::EncodedKey;
use weft::index::bplus_tree::ScannedRange;
use weft::index::{NodeChange, NodeVersion};
use weft::step::Instance;
use weft::store::record::{RecordPointer, StoredRecord};
use weft::store::table::TableRef;
use weft::store::worker::{LoggedWrite, WorkerMemory};
use weft::{ConflictReason, Failure};
use weft_htm::word::{spin_loop, yield_now};

use self::flips::Flips;
use self::heat::{Conflict, HeatHeader, LockAttempt, Wanted};
use self::locks::{HeldLock, HeldLocks};
use self::steps::Steps;
use crate::clock::Clock;

/// HTCC: locks for hot records, HTM for cold ones, repair. See the [module](self) for the paper and the
/// idea.
#[derive(Debug)]
pub enum Htcc {}

// SAFETY: `OptimisticExecutor` reads and writes all records, hot or cold, and keeps the contract. Nothing
// relies on the locks of hot records.
unsafe impl Protocol for Htcc {
    const NAME: &'static str = "htcc";
    const TITLE: &'static str =
        "locks for hot records, HTM for cold ones, repair instead of restart";
    const SOURCE: &'static str = "Wu and Tan, USENIX ATC 2016";
    const USES_HTM: bool = true;
    const REPAIRS: bool = true;
    type Header = HeatHeader;
    type Shared = HtccShared;
    type Executor = HybridExecutor;

    fn executes_steps(shared: &HtccShared) -> bool {
        let options = &shared.options;
        options.repairs && options.dependencies && options.validates
    }

    fn settle_deleted(
        record: &StoredRecord<HeatHeader>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        // A record on the list of those that become hot or cold has to stay.
        let may_go = |number| !record.header.heat.load().is_listed() && may_go(number);
        settle_deleted(record, may_go, unlink)
    }

    const HOLD_ROW: Option<HoldFunction<HeatHeader>> = Some(hold_row);
}

impl CommitPhases for Htcc {
    type Memory = ();

    /// The validation and write phases (§3.2, function `Commit` in Figure 4): cold records inside the region,
    /// hot ones after it.
    #[inline(always)]
    fn commit(
        set: &mut AccessSet<HeatHeader>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort> {
        let is_hot =
            |write: &WriteEntry<HeatHeader>| stored(write.record).header.heat.load().is_hot();
        commit_hot_and_cold(set, context.attempt, context.memory, is_hot, epoch)
    }
}

/// What the workers of a database share.
#[doc(hidden)]
#[derive(Debug)]
pub struct HtccShared {
    options: HtccOptions,
    /// The records that are about to become hot or cold.
    flips: Flips,
    /// The clock of the thread that makes records hot and cold.
    clock: Clock,
}

impl ProtocolShared for HtccShared {
    fn new(options: &ProtocolOptions) -> Result<Self, Failure> {
        let options = options.given.get::<HtccOptions>().cloned().unwrap_or_default();
        Ok(HtccShared { options, flips: Flips::default(), clock: Clock::new() })
    }
}

/// How often a transaction tries to take a lock before it goes on without it. Between tries it pauses the
/// processor, or yields after every [`TRIES_PER_YIELD`].
const TRIES_MAX: u32 = 1024;
const TRIES_PER_YIELD: u32 = 16;

/// The tables that were accessed, and whether their records are hot.
#[derive(Default)]
struct HotTables(Vec<(TableRef, bool)>);

// SAFETY: tables are shared by all workers, and live as long as the database.
unsafe impl Send for HotTables {}

impl HotTables {
    fn has(&mut self, table: TableRef, names: &[String]) -> bool {
        if let Some((_, is_hot)) = self.0.iter().find(|(known, _)| *known == table) {
            return *is_hot;
        }
        let name = table.core().name;
        let is_hot = names.iter().any(|hot| hot == name);
        self.0.push((table, is_hot));
        is_hot
    }
}

/// Runs HTCC on one worker.
#[doc(hidden)]
pub struct HybridExecutor {
    /// Handles all records as cold ones.
    cold: OptimisticExecutor<Htcc>,
    held: HeldLocks,
    /// Which tables' records are hot, for [`HotRecords::Tables`].
    hot_tables: HotTables,
    /// What the operations of a procedure have read and written, in this round and the last.
    steps: Steps<HeatHeader>,
    /// How often the transaction was restarted, and (`round`) how often it was repaired since.
    attempt: u32,
    round: u32,
    /// Whether it still waits for locks. It stops after the first lock that it did not get in time (§3.2,
    /// no-wait).
    waits: bool,
    /// Whether it has to abort because it did not get a lock that binds.
    is_denied: bool,
    shared: Arc<HtccShared>,
}

impl HybridExecutor {
    /// Takes the lock of a record, if the record is hot: the first step of the paper's `AccessRecord` (Figure
    /// 4).
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn enter(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        is_exclusive: bool,
        memory: &WorkerMemory,
    ) -> Result<(), Abort> {
        let is_hot = match &self.shared.options.hot {
            HotRecords::Automatic | HotRecords::None => stored(record).header.heat.load().is_hot(),
            HotRecords::All => true,
            HotRecords::Tables(names) => self.hot_tables.has(table, names),
        };
        if is_hot { self.lock(table, record, is_exclusive, memory) } else { Ok(()) }
    }

    #[inline(never)]
    fn lock(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        is_exclusive: bool,
        memory: &WorkerMemory,
    ) -> Result<(), Abort> {
        let heat = &stored(record).header.heat;
        #[cfg(feature = "canary")]
        let is_exclusive = is_exclusive && !self.has_flaw(HtccFlaw::WritersShare);
        // Already locked, perhaps in an earlier round: keep the lock, unless it must be upgraded.
        let held = self.held.find(record);
        if let Some(position) = held {
            let round = self.round;
            let held = &mut self.held.locks[position];
            held.round = round;
            if held.is_exclusive || !is_exclusive {
                return Ok(());
            }
        }
        if held.is_none() && self.has_cooled(record, memory) {
            return Ok(());
        }
        let wanted = self.wanted();
        let take = || match is_exclusive {
            true => heat.try_lock_exclusive(wanted, held.is_some()),
            false => heat.try_lock_shared(wanted),
        };
        // No-wait: after a bounded number of tries give up.
        let tries = if self.waits { TRIES_MAX } else { 1 };
        let announces = is_exclusive && self.shared.options.binding_locks;
        let mut attempt = take();
        if announces && attempt == LockAttempt::Denied {
            // Two transactions that share the lock, and both want it exclusively, would wait for each other.
            if heat.announce_writer() || held.is_none() {
                attempt = take_soon(tries, || {
                    heat.announce_writer();
                    take()
                });
                if attempt == LockAttempt::Denied {
                    heat.withdraw_writer();
                }
            }
        } else if attempt == LockAttempt::Denied {
            attempt = take_soon(tries, take);
        }
        match attempt {
            LockAttempt::Cold => {}
            LockAttempt::Denied if self.shared.options.binding_locks => {
                self.is_denied = true;
                return Err(abort_at(ConflictReason::LockDenied, table, record));
            }
            // Go on without the lock. Validation decides.
            LockAttempt::Denied => self.waits = false,
            LockAttempt::Taken { is_hot } => match held {
                Some(position) => self.held.locks[position].is_exclusive = true,
                None => {
                    let round = self.round;
                    let binds = is_hot && self.shared.options.locks_replace_validation();
                    self.held.push(HeldLock { record, is_exclusive, binds, round });
                }
            },
        }
        Ok(())
    }

    /// Makes a record cold if it has been hot long enough, unless a thread of its own does that. Returns whether it is
    /// cold.
    fn has_cooled(&self, record: RecordPointer<HeatHeader>, memory: &WorkerMemory) -> bool {
        let options = &self.shared.options;
        let heat = &stored(record).header.heat;
        let may_cool = options.hot == HotRecords::Automatic && !options.background;
        if !may_cool || !heat.load().has_cooled(memory.epoch()) {
            return false;
        }
        if options.two_phase_flip {
            return heat.cool_if_free();
        }
        heat.cool();
        true
    }

    /// Returns the records whose locks are wanted.
    fn wanted(&self) -> Wanted {
        let options = &self.shared.options;
        match options.hot {
            HotRecords::Automatic if options.background => Wanted::Counted,
            HotRecords::Automatic | HotRecords::None => Wanted::Hot,
            HotRecords::All | HotRecords::Tables(_) if options.binding_locks => Wanted::MadeHot,
            HotRecords::All | HotRecords::Tables(_) => Wanted::Any,
        }
    }

    /// Leaves out of the validation what was read under locks that take its place (§3.2: only cold records are
    /// validated). Returns whether it has left something out.
    fn leave_out_locked(&mut self) -> bool {
        let set = &mut self.cold.set;
        if !self.held.any_binds() || !self.held.leave_out_locked(&mut set.reads) {
            return false;
        }
        // A transaction of one read is not validated. This is not one: what it has read under locks is of another moment.
        if set.is_one_read() && !self.passes_lone_read() {
            self.held.put_back(&mut self.cold.set.reads);
            return false;
        }
        true
    }

    fn passes_lone_read(&self) -> bool {
        #[cfg(feature = "canary")]
        return self.has_flaw(HtccFlaw::LoneReadPassed);
        #[cfg(not(feature = "canary"))]
        false
    }

    #[cfg(feature = "canary")]
    fn has_flaw(&self, flaw: HtccFlaw) -> bool {
        self.shared.options.has_flaw(flaw)
    }

    /// Ends the transaction: releases its locks and what `steps` remembers.
    #[inline(always)]
    fn end(&mut self, memory: &WorkerMemory) {
        self.held.release_all();
        if self.steps.is_on() {
            self.steps.end(memory);
        }
    }

    /// Counts a conflict about a record, by which the record may become hot.
    #[cold]
    fn note_conflict(&self, abort: &Abort, memory: &WorkerMemory) {
        if let Some(record) = abort.record
            && self.shared.options.hot == HotRecords::Automatic
        {
            // SAFETY: the record is of this database.
            let record: RecordPointer<HeatHeader> =
                unsafe { RecordPointer::from_address(record.as_ptr().expose_provenance() as u64) };
            if stored(record).header.tid().load_relaxed().is_locked() {
                // Another worker is committing, and may have been preempted. One such accident causes many
                // conflicts.
                return;
            }
            self.note_conflict_about(record, memory);
        }
    }

    /// Counts a conflict about a record that no transaction is committing.
    fn note_conflict_about(&self, record: RecordPointer<HeatHeader>, memory: &WorkerMemory) {
        let HtccShared { options, flips, .. } = &*self.shared;
        let heat = &stored(record).header.heat;
        let grace = &memory.shared().grace;
        if options.background {
            if !heat.load().is_hot() {
                heat.count();
            }
            if !heat.load().is_listed() {
                flips.list(record, options, grace);
            }
            return;
        }
        let conflict = match self.round + self.attempt {
            // In tests every record is to become hot soon.
            _ if weft::store::RECLAIMS_EARLY => Conflict::Again,
            0 => Conflict::First,
            1 => Conflict::Again,
            // Later attempts are not counted: one starving transaction says no more about the record.
            _ => return,
        };
        let (epoch, hot_at) = (memory.epoch(), u64::from(options.hot_at));
        if !options.two_phase_flip {
            heat.note_conflict(conflict, epoch, hot_at);
        } else if heat.count_conflict(conflict, epoch, hot_at) {
            flips.list(record, options, grace);
        }
    }
}

/// Tries to take a lock for the second time and later, at most `tries` times in all. Between tries it pauses the processor,
/// or yields.
fn take_soon(tries: u32, take: impl Fn() -> LockAttempt) -> LockAttempt {
    for number in 1..tries {
        if number.is_multiple_of(TRIES_PER_YIELD) {
            yield_now();
        } else {
            spin_loop();
        }
        let attempt = take();
        if attempt != LockAttempt::Denied {
            return attempt;
        }
    }
    LockAttempt::Denied
}

impl Executor for HybridExecutor {
    type Header = HeatHeader;
    type Shared = HtccShared;
    type Version = ReplacedVersion;
    type Splitting = Never;
    type Repairing = Self;
    type Chopping = Never;
    type Reapplying = Never;

    #[inline(always)]
    fn repairing(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    fn new(shared: &Arc<HtccShared>, slot: usize) -> Self {
        HybridExecutor {
            cold: OptimisticExecutor::new(shared, slot),
            held: HeldLocks::default(),
            hot_tables: HotTables::default(),
            steps: Steps::default(),
            attempt: 0,
            round: 0,
            waits: true,
            is_denied: false,
            shared: Arc::clone(shared),
        }
    }

    #[inline(always)]
    fn begin(&mut self, attempt: u32, memory: &WorkerMemory) -> Result<(), Refusal> {
        debug_assert!(self.held.locks.is_empty());
        (self.attempt, self.round, self.waits) = (attempt, 0, true);
        self.is_denied = false;
        if self.shared.options.two_phase_flip {
            self.shared.flips.complete_as_worker(&memory.shared().grace, || memory.epoch());
        }
        self.cold.begin(attempt, memory)
    }

    #[inline(always)]
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        self.enter(table, record, false, memory)?;
        self.cold.read(table, record, memory)
    }

    #[inline(always)]
    fn read_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        columns: ColumnSet,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        // A procedure that is executed step by step is repaired by rows.
        if self.steps.is_on() {
            return self.read(table, record, memory);
        }
        self.enter(table, record, false, memory)?;
        self.cold.read_columns(table, record, columns, memory)
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        memory: &WorkerMemory,
    ) -> Result<Observation<ReplacedVersion>, Abort> {
        self.enter(table, record, true, memory)?;
        self.cold.read_for_write(table, record, memory)
    }

    fn note_read(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        version: ReplacedVersion,
    ) {
        self.cold.note_read(table, record, version);
    }

    #[inline(always)]
    fn is_current(&self, record: RecordPointer<HeatHeader>, version: ReplacedVersion) -> bool {
        self.cold.is_current(record, version)
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        version: ReplacedVersion,
        row: NonNull<u8>,
    ) {
        self.cold.write(table, record, version, row);
        if self.steps.is_on() {
            self.steps.note_write(table, record, version, Some(row), None);
        }
    }

    #[inline(always)]
    fn write_columns(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        version: ReplacedVersion,
        row: NonNull<u8>,
        columns: UsedColumns,
    ) {
        if self.steps.is_on() {
            return self.write(table, record, version, row);
        }
        self.cold.write_columns(table, record, version, row, columns);
    }

    #[inline(always)]
    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        version: ReplacedVersion,
        key: EncodedKey,
    ) {
        if self.steps.is_on() {
            self.steps.note_write(table, record, version, None, Some(key.clone()));
        }
        self.cold.remove(table, record, version, key);
    }

    #[inline(always)]
    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        if self.steps.is_on() {
            let placeholder = self.cold.set.placeholder();
            self.steps.note_insertion(table, record, row, key.clone(), placeholder);
        }
        self.cold.insert(table, record, row, key);
    }

    #[inline(always)]
    fn note_node(
        &mut self,
        table: TableRef,
        node: NodeVersion,
        range: Option<ScannedRange>,
    ) -> Result<usize, Abort> {
        self.cold.note_node(table, node, range)
    }

    #[inline(always)]
    fn stop_scan(&mut self, position: usize, node: NodeVersion, address: u64) {
        self.cold.stop_scan(position, node, address);
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        if self.round > 0 {
            self.steps.note_own_insertion(change);
        }
        self.cold.note_own_insertion(table, change, sibling)
    }

    fn accessed(&self) -> (usize, usize) {
        self.cold.accessed()
    }

    fn validate(&mut self) -> Result<(), Abort> {
        if self.round > 0 {
            self.steps.distrust_taken(&mut self.cold.set);
        }
        self.cold.validate()
    }

    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        self.cold.list_writes(list);
    }

    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        // A repaired transaction: undo what the last round did and this one did not, and release the locks of
        // records that this round has not accessed.
        if self.round > 0 {
            self.steps.end_round(&mut self.cold.set, memory);
            self.held.release_other_rounds(self.round);
        }
        if !self.shared.options.validates {
            self.cold.set.reads.clear();
            self.cold.set.nodes.clear();
        }
        // Validation and write phases.
        let is_partial = self.leave_out_locked();
        let committed = self.cold.commit(memory, epoch);
        if is_partial && committed.is_err() {
            self.held.put_back(&mut self.cold.set.reads);
        }
        committed.inspect_err(|abort| self.note_conflict(abort, memory))?;
        self.end(memory);
        Ok(())
    }

    fn carry_over(
        &mut self,
        abort: Abort,
        memory: &WorkerMemory,
        report: &mut dyn FnMut(CarriedAccess),
    ) -> Result<(), Abort> {
        self.cold.carry_over(abort, memory, report)
    }

    fn mark(&mut self) -> WriteMark {
        self.cold.mark()
    }

    fn keep(&mut self, mark: WriteMark) {
        self.cold.keep(mark);
    }

    fn undo_to(&mut self, mark: WriteMark, memory: &WorkerMemory) {
        self.cold.undo_to(mark, memory);
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        self.steps.end_round(&mut self.cold.set, memory);
        self.cold.abort(memory);
        self.end(memory);
    }
}

impl RepairsTransactions<HeatHeader> for HybridExecutor {
    #[inline(always)]
    fn is_on(&self) -> bool {
        self.shared.options.repairs && !self.is_denied
    }

    fn repair(&mut self, memory: &WorkerMemory) {
        self.cold.abort(memory);
        self.round += 1;
    }

    fn replays(&self) -> bool {
        !self.steps.is_on()
    }

    fn found(&self) -> impl Iterator<Item = (TableRef, RecordPointer<HeatHeader>, bool)> {
        let AccessSet { reads, writes, .. } = &self.cold.set;
        let read = reads.iter().map(|entry| (entry.table, entry.record, false));
        let written = writes.iter().filter(|entry| !entry.key.is_created());
        read.chain(written.map(|entry| (entry.table, entry.record, true)))
    }

    #[inline]
    fn begin_steps(&mut self) {
        self.steps.begin();
    }

    #[inline]
    fn enter_step(&mut self, instance: Instance, goes_on: bool) {
        self.steps.enter(&self.cold.set, instance, goes_on);
    }

    fn keep_step(&mut self, instance: Instance) {
        let HybridExecutor { held, round, shared, .. } = self;
        #[cfg(not(feature = "canary"))]
        let _ = shared;
        self.steps.keep(&mut self.cold.set, instance, |record| {
            #[cfg(feature = "canary")]
            if shared.options.has_flaw(HtccFlaw::KeptUnlocked) {
                return;
            }
            if let Some(position) = held.find(record) {
                held.locks[position].round = *round;
            }
        });
    }

    fn record_of_step(
        &mut self,
        instance: Instance,
        table: TableRef,
    ) -> Option<RecordPointer<HeatHeader>> {
        self.steps.record_of(instance, table)
    }

    fn next_round(&mut self, memory: &WorkerMemory) {
        self.steps.next_round(&mut self.cold.set, memory);
        self.round += 1;
    }

    fn stale_steps(&self) -> Vec<Instance> {
        self.steps.stale()
    }
}
