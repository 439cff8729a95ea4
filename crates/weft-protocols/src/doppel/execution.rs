//! What a worker does in a joined phase (§5.1) and in a split phase (§5.2).

use std::ptr::NonNull;
use std::sync::Arc;

use weft::ConflictReason;
use weft::column::{ColumnSet, UsedColumns};
use weft::commit::by_columns::CarriedAccess;
use weft::commit::optimistic::abort_at;
use weft::commit::{
    Abort, Executor, Never, Observation, Refusal, SplitsRecords, Target, Visible, WriteMark,
};
use weft::encoding::EncodedKey;
use weft::index::bplus_tree::ScannedRange;
use weft::index::{NodeChange, NodeVersion};
use weft::operation::{ColumnOperation, Reserve, UndoLog};
use weft::store::record::RecordPointer;
use weft::store::table::TableRef;
use weft::store::worker::{LoggedWrite, WorkerMemory};
use weft_htm::word::{Ordering, fence};

use super::beginning::{ConflictCount, ConflictPlaces};
use super::commit::LoggedOperations;
use super::drafts::Drafts;
use super::joined::JoinedProtocol;
#[cfg(feature = "canary")]
use super::options::DoppelFlaw;
use super::phases::{NumberedPhase, Phase};
use super::shared::Reconciliation;
use super::splits::SplitRecord;

/// Runs one worker's transactions in phases.
#[doc(hidden)]
pub struct ReconcilingExecutor<J: JoinedProtocol> {
    pub(super) joined: J::Executor,
    pub(super) shared: Arc<Reconciliation<J>>,
    pub(super) slot: usize,
    /// The phase of the transaction.
    pub(super) present: NumberedPhase,
    pub(super) is_split: bool,
    /// Whether the transaction is announced, so that no phase changes before it ends.
    pub(super) is_announced: bool,
    /// The conflicts while there are no phases, by which phases begin.
    pub(super) conflicts: ConflictCount,
    /// Under a protocol that adapts: what they are about.
    pub(super) places: ConflictPlaces,
    /// Whether the transaction has accessed anything that is not split. Only noted in a split phase.
    pub(super) is_joined_used: bool,
    /// Whether the transaction has written anything that is not split.
    pub(super) is_joined_written: bool,
    /// The slices as they will be if the transaction commits, where operations are applied at the commit.
    pub(super) drafts: Drafts,
    /// The undo log for slices.
    pub(super) undo: UndoLog,
    /// The operations that were applied to rows.
    pub(super) applied: Vec<(NonNull<u8>, ColumnOperation)>,
    /// The operations on split records, as they are to be logged.
    pub(super) logged: LoggedOperations,
    /// The conflict by which the transaction can no longer commit, if there is one.
    pub(super) doomed: Option<Abort>,
    /// Whether this worker is changing the phase. Its transactions then reconcile.
    pub(super) is_reconciling: bool,
    /// The number of the split phase in which the last transaction was refused, until it may be run again.
    pub(super) refused_in: Option<u64>,
    /// Whether a transaction that is refused is set aside.
    pub(super) is_set_aside: bool,
    /// Whether the worker is counted in `Reconciliation::waiting`.
    pub(super) is_waiting: bool,
    /// The number of transactions until the worker looks at the clock again, the number between two looks, and
    /// (`looked`) the time of the last look.
    pub(super) until_look: u32,
    pub(super) look_interval: u32,
    pub(super) looked: u64,
    pub(super) random: fastrand::Rng,
}

// SAFETY: the addresses of records and tables belong to the executor's database, and are forgotten between
// transactions, when the executor may move to another thread.
unsafe impl<J: JoinedProtocol> Send for ReconcilingExecutor<J> {}

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
    pub(super) fn refuse(
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
    pub(super) fn note_conflict(&mut self, abort: &Abort, memory: &WorkerMemory) {
        let Some(record) = abort.record else { return };
        self.shared.slots[self.slot].conflicts.increment();
        if J::ADAPTS {
            let now = self.shared.clock.now();
            self.note_place(record, abort.table.core().number, now);
            if !self.notes_operations() {
                return self.count_conflict(memory, now);
            }
        }
        let of_record = self.applied.iter().filter(|(applied, _)| *applied == record);
        // SAFETY: the worker is in a transaction, and this is its own sketch.
        let sketch = unsafe { &mut *self.shared.slots[self.slot].sketch.get() };
        sketch.note(abort, of_record.map(|(_, operation)| *operation), memory);
    }

    /// Whether operations are noted, and with them the records about which transactions conflict, by which records are
    /// split. Under a protocol that adapts this is so only in phases.
    #[inline(always)]
    fn notes_operations(&self) -> bool {
        !J::ADAPTS || self.is_announced
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

    /// Applies to the slices what is in the drafts.
    #[inline(always)]
    pub(super) fn finish_drafts(&mut self) {
        // SAFETY: the worker is still in the transaction, so its slices are there.
        unsafe { self.drafts.finish() };
    }

    /// Ends the transaction.
    #[inline(always)]
    pub(super) fn leave(&mut self) {
        self.applied.clear();
        if self.is_announced {
            self.is_announced = false;
            self.shared.phases.leave(self.slot);
        }
    }

    /// Notes what a conflict is about. If most of the last ones are about a place that was not known, the load has moved.
    /// Then what was found out about it before does not count, and something may be tried at once.
    fn note_place(&mut self, record: NonNull<u8>, table: usize, now: u64) {
        let shared = &*self.shared;
        let record = record.addr().get() as u64;
        let place = self.places.add(record, table as u64, now, &shared.options);
        if let Some(place) = place
            && shared.known_places.note(place, now)
        {
            // Relaxed: if this is lost, because another worker puts the next trial off at this moment, it comes later.
            shared.rest_until.store(now, Ordering::Relaxed);
            shared.next_choice.store(now, Ordering::Relaxed);
        }
    }

    /// Counts a conflict while there are no phases. If conflicts cost much, phases begin.
    fn count_conflict(&mut self, memory: &WorkerMemory, now: u64) {
        let shared = &*self.shared;
        if shared.options.is_hasty {
            // Relaxed: see `transition::may_change`.
            return shared.begun.0.store(1, Ordering::Relaxed);
        }
        self.conflicts.add(now);
        // Relaxed: two workers that begin phases at once have measured the same.
        let is_resting = now < shared.rest_until.load(Ordering::Relaxed);
        let cost_before = is_resting.then(|| shared.conflict_cost.load(Ordering::Relaxed));
        let committed = memory.counters().committed.load(Ordering::Relaxed);
        let cost = self.conflicts.calls_for_phases(now, committed, cost_before, &shared.options);
        if let Some(cost) = cost {
            shared.conflict_cost.store(cost, Ordering::Relaxed);
            // Relaxed: see `transition::may_change`.
            shared.begun.0.store(1, Ordering::Relaxed);
        }
    }

    /// Notes that the wait after a conflict has ended.
    #[cold]
    fn count_wait(&mut self) {
        if self.conflicts.waits() {
            self.conflicts.end_wait(self.shared.clock.now());
        }
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

    const READS_RANGES_AGAIN: bool = J::Executor::READS_RANGES_AGAIN;

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
            conflicts: ConflictCount::default(),
            places: ConflictPlaces::default(),
            is_joined_used: false,
            is_joined_written: false,
            drafts: Drafts::default(),
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
    fn announce(&mut self, is_pinned: bool) {
        // Under a protocol that adapts there may be no phases yet, and without them no fence follows: see `begin`.
        let is_known = !is_pinned && self.shared.has_phases();
        if (!J::ADAPTS || is_known) && !self.is_reconciling {
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
        if J::ADAPTS {
            if !self.is_announced && self.shared.has_phases() {
                self.announce_late();
            }
            if attempt > 0 {
                self.count_wait();
            }
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
        // (Each case makes a result of its own. To hand on the one of the commit would copy all of it, although only its first
        // byte was written, and the processor waits for such a copy.)
        match self.joined.commit(memory, epoch) {
            Ok(()) => {
                // (Under a protocol that adapts, no thread waits as long as there are no phases.)
                if !J::ADAPTS || self.is_announced {
                    if self.is_waiting {
                        self.end_waiting();
                    }
                    self.leave();
                }
                Ok(())
            }
            Err(abort) => {
                self.note_conflict(&abort, memory);
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
        match self.doomed {
            Some(_) => Err(abort),
            None => self.joined.carry_over(abort, memory, report),
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
        #[cfg(feature = "canary")]
        if self.shared.options.has_flaw(DoppelFlaw::AbortedApplied) {
            self.finish_drafts();
        }
        self.undo.undo();
        self.finish_drafts();
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
                return match (slice, operation) {
                    (Some(slice), Some(operation)) if self.shared.options.applies_at_commit => {
                        // SAFETY: the slice stays where it is as long as the worker is in the transaction.
                        let draft = unsafe { self.drafts.of(slice, operation.slice_layout()) };
                        Ok(Target::Slice(draft))
                    }
                    (Some(slice), _) => Ok(Target::Slice(slice)),
                    (None, _) => Err(self.refuse(table, block, operation)),
                };
            }
        }
        if let Some(operation) = operation {
            J::expect_operation(&mut self.joined);
            if self.notes_operations() {
                self.applied.push((block, *operation));
            }
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

impl<J: JoinedProtocol> Drop for ReconcilingExecutor<J> {
    fn drop(&mut self) {
        if self.is_waiting {
            self.end_waiting();
        }
    }
}
