//! **HTCC**: locks for hot records, hardware transactions for cold ones, and repair instead of restart.
//!
//! Y. Wu, K.-L. Tan: *Scalable In-Memory Transaction Processing with HTM*, USENIX ATC 2016; sections below
//! are that paper's.
//!
//! The idea. Under contention optimistic transactions fail their validation, and do all of their work
//! again. HTCC does two things about it.
//!
//! First (§3), most conflicts are about a few records. These are *hot*, and accessed under locks, which are
//! held to the end of the transaction; so two that want the same hot record come one after the other, and
//! neither works for nothing. All others are *cold*, and accessed as in [DBX](super::dbx): validation and
//! write phase are one hardware region.
//!
//! Second (§4), if the validation fails all the same, most of what the transaction has found out is right.
//! It is *repaired*: its body is run again at once, as the same transaction, and every operation whose key
//! is what it was takes the record from the *workset cache*, without asking the index (*fast restoration*).
//! If the key has changed, the index is asked, and the cache refreshed (*slow restoration*). Locks on hot
//! records are kept from one round to the next; those of records that are no longer accessed are released
//! before the next validation.
//!
//! The files: `heat`, what is kept with a record; here, what a worker does. The workset cache lies where
//! records are looked up, in [`Transaction`](crate::Transaction).
//!
//! **The serialization point** is that of DBX. Locks on hot records are not needed for it.
//!
//! **Departures from the paper**
//! - Hot records are validated like cold ones, those to be written as they are locked for the commit, just
//!   before the region. The locks that they are accessed under only keep others away who would lose. So
//!   whether a record is hot is a guess that may change at any time, also while
//!   transactions are under way. (In the paper a flip of the flag must wait until nobody accesses the
//!   record.) And who cannot get a lock in time goes on without it, instead of aborting: nobody waits for
//!   ever, and there are no deadlocks to resolve.
//! - A record is made hot by whoever counts one conflict too many about it, and cold by whoever finds that
//!   nobody has waited for its lock lately; there is no background thread, which in the paper looks once in
//!   60 seconds.
//! - Hot records are changed in private copies, as all others: rows are immutable here.
//! - Insertions are undone before a repair, and done again. Ranges are scanned again.
//! - All operations are restored; those that no stale read reaches take what they find in the cache. (The
//!   paper's HTCC with static analysis turned off, `HTCC(-S)`.)

mod heat;

use std::ptr::NonNull;
use std::sync::Arc;

use weft_htm::word::{spin_loop, yield_now};

use self::heat::HeatHeader;
use super::access_set::{AccessSet, Positions, Replaced, WriteEntry};
use super::dbx::commit_hot_and_cold;
use super::optimistic::{CommitContext, CommitPhases, OptimisticExecutor, settle_deleted, stored};
use super::{
    Abort, Busy, Executor, Observation, Protocol, ProtocolOptions, ProtocolShared, Settled, Visible,
};
use crate::index::{NodeChange, NodeVersion};
use crate::record::{RecordPointer, StoredRecord};
use crate::table::TableRef;
use crate::worker::WorkerMemory;

/// HTCC: locks for hot records, HTM for cold ones, repair. See the [module](self) for the paper and the
/// idea.
#[derive(Debug)]
pub enum Htcc {}

impl Protocol for Htcc {
    const NAME: &'static str = "htcc";
    const TITLE: &'static str =
        "locks for hot records, HTM for cold ones, repair instead of restart";
    const SOURCE: &'static str = "Wu and Tan, USENIX ATC 2016";
    const USES_HTM: bool = true;
    const REPAIRS: bool = true;
    type Header = HeatHeader;
    type Shared = HtccShared;
    type Executor = HybridExecutor;

    fn settle_deleted(
        record: &StoredRecord<HeatHeader>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce(),
    ) -> Settled {
        settle_deleted(record, may_go, unlink)
    }
}

impl CommitPhases for Htcc {
    type Memory = ();

    /// Validation and write phase (§3.2, Figure 4): cold records in the region, hot ones behind it.
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

/// Which records are hot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HotRecords {
    /// Those about which there are many conflicts.
    #[default]
    Automatic,
    /// All of them: two-phase locking, validated.
    All,
    /// None: the protocol is DBX with repair.
    None,
}

/// What of HTCC is to be done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HtccOptions {
    /// Which records are hot.
    pub hot: HotRecords,
    /// Whether transactions are repaired. If not, they are restarted, and nothing is cached: the paper's
    /// `HTCC(-SC)`.
    pub repairs: bool,
    /// With how many conflicts in an epoch of 40 ms a record is hot.
    pub hot_at: u32,
}

impl Default for HtccOptions {
    fn default() -> Self {
        let hot_at = if cfg!(feature = "hasty-reclamation") { 1 } else { 32 };
        HtccOptions { hot: HotRecords::Automatic, repairs: true, hot_at }
    }
}

impl HtccOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`HtccOptions::hot`].
    pub fn hot(mut self, hot: HotRecords) -> Self {
        self.hot = hot;
        self
    }

    /// Sets [`HtccOptions::repairs`].
    pub fn repairs(mut self, repairs: bool) -> Self {
        self.repairs = repairs;
        self
    }

    /// Sets [`HtccOptions::hot_at`].
    pub fn hot_at(mut self, hot_at: u32) -> Self {
        self.hot_at = hot_at;
        self
    }
}

/// What the workers of a database share.
#[doc(hidden)]
#[derive(Debug)]
pub struct HtccShared {
    options: HtccOptions,
}

impl ProtocolShared for HtccShared {
    fn new(options: &ProtocolOptions) -> Self {
        HtccShared { options: options.htcc.clone() }
    }
}

/// How often one asks for a lock, with a few pauses of the processor in between and now and then a yield,
/// before one goes on without it.
const TRIES_MAX: u32 = 1024;
const TRIES_PER_YIELD: u32 = 16;

/// A lock on a hot record.
struct HeldLock {
    record: RecordPointer<HeatHeader>,
    is_exclusive: bool,
    /// The round in which the record was accessed last.
    round: u32,
}

/// The locks that a transaction holds, each of them once.
#[derive(Default)]
struct HeldLocks {
    locks: Vec<HeldLock>,
    positions: Positions,
}

// SAFETY: a worker's locks move between threads only with the worker, and there are none between
// transactions.
unsafe impl Send for HeldLocks {}

impl HeldLocks {
    fn find(&self, record: RecordPointer<HeatHeader>) -> Option<usize> {
        if self.locks.is_empty() {
            return None;
        }
        self.positions.find(record.block(), |position| self.locks[position].record == record)
    }

    fn push(&mut self, held: HeldLock) {
        let HeldLocks { locks, positions } = self;
        let block = |position: usize| locks[position].record.block();
        positions.insert(held.record.block(), locks.len(), block);
        locks.push(held);
    }

    /// Releases those of records that were not accessed in this round (§4.1, the delta-set `del_set`).
    fn release_other_rounds(&mut self, round: u32) {
        if self.locks.iter().all(|held| held.round == round) {
            return;
        }
        let all = std::mem::take(&mut self.locks);
        self.positions.clear();
        for held in all {
            if held.round == round { self.push(held) } else { release(&held) }
        }
    }

    #[inline(always)]
    fn release_all(&mut self) {
        if self.locks.is_empty() {
            return;
        }
        self.locks.drain(..).for_each(|held| release(&held));
        self.positions.clear();
    }
}

fn release(held: &HeldLock) {
    let heat = &stored(held.record).header.heat;
    if held.is_exclusive { heat.unlock_exclusive() } else { heat.unlock_shared() }
}

/// Runs HTCC on one worker.
#[doc(hidden)]
pub struct HybridExecutor {
    /// Does as with cold records.
    cold: OptimisticExecutor<Htcc>,
    held: HeldLocks,
    /// How often the transaction was repaired.
    round: u32,
    /// Whether it still waits for locks. Once one was not to be had in time it does not (§3.2).
    waits: bool,
    shared: Arc<HtccShared>,
}

impl HybridExecutor {
    /// Takes the lock of a record that is hot.
    #[inline(always)]
    fn enter(
        &mut self,
        record: RecordPointer<HeatHeader>,
        is_exclusive: bool,
        memory: &WorkerMemory,
    ) {
        let heat = stored(record).header.heat.load();
        if heat.is_hot() || self.shared.options.hot == HotRecords::All {
            self.lock(record, is_exclusive, memory);
        }
    }

    #[inline(never)]
    fn lock(
        &mut self,
        record: RecordPointer<HeatHeader>,
        is_exclusive: bool,
        memory: &WorkerMemory,
    ) {
        let heat = &stored(record).header.heat;
        let held = self.held.find(record);
        if let Some(position) = held {
            let round = self.round;
            let held = &mut self.held.locks[position];
            held.round = round;
            if held.is_exclusive || !is_exclusive {
                return;
            }
        }
        let (epoch, all_are_hot) = (memory.epoch(), self.shared.options.hot == HotRecords::All);
        if held.is_none() && heat.load().has_cooled(epoch) && !all_are_hot {
            heat.cool();
            return;
        }
        let take = || match is_exclusive {
            true => heat.try_lock_exclusive(held.is_some()),
            false => heat.try_lock_shared(),
        };
        if !take() {
            heat.note_conflict(epoch, self.hot_at());
            if !self.waits
                || !(1..TRIES_MAX).any(|tries| {
                    if tries.is_multiple_of(TRIES_PER_YIELD) {
                        yield_now()
                    } else {
                        spin_loop()
                    }
                    take()
                })
            {
                self.waits = false;
                return;
            }
        }
        match held {
            Some(position) => self.held.locks[position].is_exclusive = true,
            None => self.held.push(HeldLock { record, is_exclusive, round: self.round }),
        }
    }

    fn hot_at(&self) -> u64 {
        u64::from(self.shared.options.hot_at)
    }

    /// Counts a conflict about a record.
    #[cold]
    fn note_conflict(&self, abort: &Abort, memory: &WorkerMemory) {
        if let Some(record) = abort.record
            && self.shared.options.hot == HotRecords::Automatic
        {
            // SAFETY: in a transaction, so the record is not freed; it is of this database.
            let record = unsafe { record.cast::<StoredRecord<HeatHeader>>().as_ref() };
            record.header.heat.note_conflict(memory.epoch(), self.hot_at());
        }
    }
}

impl Executor for HybridExecutor {
    type Header = HeatHeader;
    type Shared = HtccShared;
    type Version = Replaced;

    fn new(shared: &Arc<HtccShared>, slot: usize) -> Self {
        HybridExecutor {
            cold: OptimisticExecutor::new(shared, slot),
            held: HeldLocks::default(),
            round: 0,
            waits: true,
            shared: Arc::clone(shared),
        }
    }

    #[inline(always)]
    fn begin(&mut self, attempt: u32, memory: &WorkerMemory) -> Result<(), Busy> {
        debug_assert!(self.held.locks.is_empty());
        (self.round, self.waits) = (0, true);
        self.cold.begin(attempt, memory)
    }

    #[inline(always)]
    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        self.enter(record, false, memory);
        self.cold.read(table, record, memory)
    }

    #[inline(always)]
    fn read_for_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        memory: &WorkerMemory,
    ) -> Result<Observation<Replaced>, Abort> {
        self.enter(record, true, memory);
        self.cold.read_for_write(table, record, memory)
    }

    fn note_read(&mut self, table: TableRef, record: RecordPointer<HeatHeader>, version: Replaced) {
        self.cold.note_read(table, record, version);
    }

    #[inline(always)]
    fn is_current(&self, record: RecordPointer<HeatHeader>, version: Replaced) -> bool {
        self.cold.is_current(record, version)
    }

    #[inline(always)]
    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<HeatHeader>,
        version: Replaced,
        row: NonNull<u8>,
    ) {
        self.cold.write(table, record, version, row);
    }

    #[inline(always)]
    fn remove(&mut self, table: TableRef, record: RecordPointer<HeatHeader>, version: Replaced) {
        self.cold.remove(table, record, version);
    }

    #[inline(always)]
    fn insert(&mut self, table: TableRef, record: RecordPointer<HeatHeader>, row: NonNull<u8>) {
        self.cold.insert(table, record, row);
    }

    #[inline(always)]
    fn note_node(&mut self, table: TableRef, node: NodeVersion) -> Result<(), Abort> {
        self.cold.note_node(table, node)
    }

    #[inline(always)]
    fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        self.cold.note_own_insertion(table, change, sibling)
    }

    fn validate(&mut self) -> Result<(), Abort> {
        self.cold.validate()
    }

    #[inline]
    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        if self.round > 0 {
            self.held.release_other_rounds(self.round);
        }
        let committed = self.cold.commit(memory, epoch);
        committed.inspect_err(|abort| self.note_conflict(abort, memory))?;
        self.held.release_all();
        Ok(())
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        self.cold.abort(memory);
        self.held.release_all();
    }

    #[inline(always)]
    fn repairs(&self) -> bool {
        self.shared.options.repairs
    }

    fn repair(&mut self, memory: &WorkerMemory) {
        self.cold.abort(memory);
        self.round += 1;
    }
}
