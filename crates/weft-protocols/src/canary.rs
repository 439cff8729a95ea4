//! **canary**: an optimistic protocol that is wrong on purpose, in one of many selectable ways.
//!
//! A green conformance suite proves something only if it turns red when a protocol is wrong. This is the
//! protocol that is wrong: classic optimistic concurrency control with one lock bit per record written (as in
//! the software twin of [`dbx`](weft::commit::dbx)), in which a [`Mutation`] breaks one step. The mutation is
//! chosen when the database is opened ([`Mutation::chosen_for`]). The conformance suite runs its own checks on
//! every mutation, and fails unless it finds what is broken. With [`Intact`](Mutation::Intact) nothing is
//! broken, and the suite must find nothing.
//!
//! It is compiled only with the feature `canary`, and it is in no list of protocols.
//!
//! | mutation | what is broken | what follows |
//! | --- | --- | --- |
//! | `NoReadValidation` | the commit does not check the read set | write skew, read skew |
//! | `NoReadOnlyValidation` | transactions that write nothing are not validated | read skew, read-only anomaly |
//! | `ShortReads` | a read is forgotten at the next one, as with a lock held for one read | read skew, write skew |
//! | `AbsenceNotNoted` | a record that was found without a row is not in the read set | phantoms of deleted keys |
//! | `RefusedWriteNotNoted` | a read is forgotten if the write that it was for does not take place | write skew |
//! | `NoNodeValidation` | index nodes are not validated | phantoms |
//! | `AnyInsertionCountsAsOwn` | after an own insertion the node counts as unchanged, even if others have inserted | phantoms |
//! | `SplitNotNoted` | after an own insertion has split a leaf, the right half is not validated | phantoms |
//! | `NoWriteValidation` | a write lock is taken at any version | lost updates |
//! | `VersionStays` | an update leaves the version as it was | lost updates, read skew |
//! | `ValidationBeforeLocks` | the read set is validated before the write set is locked | write skew |
//! | `LockedCountsAsUnchanged` | validation ignores the lock of another commit on a record | write skew |
//! | `UnlockBeforeInstall` | the new version is published before the row | lost updates, stale reads |
//! | `TornRead` | row and version are read without the second look that pairs them | lost updates, stale reads |
//! | `OneLockAtATime` | the locks are released after validation, and taken again one by one | half of a commit is seen |
//! | `StaleSnapshot` | reads are served from a snapshot that lags behind, with the newest version number | stale reads, read skew |
//! | `DirtyRead` | a write is visible at once, and taken back by a rollback | aborted and intermediate reads |
//! | `AbortedWriteStays` | a write is visible at once, and a rollback does not take it back | aborted reads |
//! | `ConclusionsNotValidated` | an error of the caller's is returned without validating what it followed from | false alarms of the caller's own checks |
//! | `EntryStays` | the index entry of a row that is deleted or moved stays | an index that disagrees with its table |
//! | `ForgottenUnlock` | a failed validation leaves one lock behind | all threads wait for ever |
//! | `NumberBeforeLocks` | the snapshot number is drawn before the locks are taken | snapshots that show a later transaction without an earlier one |
//! | `NumberAfterInstallation` | the snapshot number is drawn when the rows can be read already | the same, and snapshots that miss what was seen before |
//! | `SavepointKeepsWrites` | a savepoint that fails undoes nothing | writes that were taken back |
//! | `SavepointForgetsReads` | what was read to be written in a savepoint that fails is not validated | write skew, read skew |
//! | `OwnRowsNotCounted` | `len` leaves out what the transaction itself has inserted and deleted | a number that is not that of the rows |
//!
//! Wrong, but safe. No mutation may touch freed memory: then the suite's results would mean nothing. Three
//! rules make sure of that. A row belongs to the thread that took it out of the record: every installation is a
//! swap, and retires the row that came out, so no row is retired twice, in whatever order two installations
//! run. A record without a row is absent, whatever its version says. And no record ever leaves its index:
//! deleted records and placeholders of aborted transactions stay, so even an index entry that should not exist
//! leads to a record. (Under *StaleSnapshot* the last older row of each record is not dropped at the end.)
//!
//! Chains of versions cannot be complete where a row may take the place of another one than it was made to
//! replace. Mutations that do so leave the chains alone, and [have no snapshots](Mutation::has_snapshots).
//!
//! Header of a record: a TID word as under `dbx`. For *StaleSnapshot* also the row before the newest, and the
//! number of the commit that wrote the newest.
//!
//! **The serialization point** of the intact protocol is the moment at which all write locks are held
//! (`fence_before_validation`).

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use Mutation::{
    AbortedWriteStays, AbsenceNotNoted, AnyInsertionCountsAsOwn, ConclusionsNotValidated,
    DirtyRead, EntryStays, ForgottenUnlock, LockedCountsAsUnchanged, NoNodeValidation,
    NoReadOnlyValidation, NoReadValidation, NoWriteValidation, NumberAfterInstallation,
    NumberBeforeLocks, OneLockAtATime, OwnRowsNotCounted, RefusedWriteNotNoted,
    SavepointForgetsReads, SavepointKeepsWrites, ShortReads, SplitNotNoted, StaleSnapshot,
    TornRead, UnlockBeforeInstall, ValidationBeforeLocks, VersionStays,
};
use weft::ConflictReason;
use weft::commit::access_set::{
    AccessSet, ReadEntry, ReplacedVersion, TidHeader, is_inline, successor,
};
use weft::commit::optimistic::{
    lock_expected, read_conflict, stored, unlock, validate_nodes, write_conflict,
};
use weft::commit::{
    Abort, DeletedOutcome, Executor, Never, Observation, Protocol, Refusal, Visible, WriteMark,
};
use weft::encoding::EncodedKey;
use weft::index::bplus_tree::ScannedRange;
use weft::index::{NodeChange, NodeVersion};
use weft::store::record::tid::{Tid, TidWord, fence_before_validation};
use weft::store::record::{Newest, RecordPointer, StoredRecord};
use weft::store::table::TableRef;
use weft::store::worker::{LoggedWrite, WorkerMemory};
use weft_htm::word::{Ordering, Word, WordPointer, yield_now};

// ---- the mutations ----------------------------------------------------------------------------

macro_rules! mutations {
    ($($mutation:ident = $name:literal,)*) => {
        /// What a canary does wrong: see the table in the [module's documentation](self).
        #[allow(missing_docs, reason = "the table of the module says what each one does")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Mutation {
            #[default]
            $($mutation,)*
        }

        impl Mutation {
            /// All mutations, the intact canary first.
            pub const ALL: &[Mutation] = &[$(Mutation::$mutation),*];

            /// Returns the mutation's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Mutation::$mutation => concat!("canary: ", $name),)*
                }
            }
        }
    };
}

mutations! {
    Intact = "intact",
    NoReadValidation = "no read validation",
    NoReadOnlyValidation = "no validation of read-only transactions",
    ShortReads = "short reads",
    AbsenceNotNoted = "absence not noted",
    RefusedWriteNotNoted = "refused write not noted",
    NoNodeValidation = "no node validation",
    AnyInsertionCountsAsOwn = "any insertion counts as own",
    SplitNotNoted = "split not noted",
    NoWriteValidation = "no write validation",
    VersionStays = "version stays",
    ValidationBeforeLocks = "validation before locks",
    LockedCountsAsUnchanged = "locked counts as unchanged",
    UnlockBeforeInstall = "unlock before install",
    TornRead = "torn read",
    OneLockAtATime = "one lock at a time",
    StaleSnapshot = "stale snapshot",
    DirtyRead = "dirty read",
    AbortedWriteStays = "aborted write stays",
    ConclusionsNotValidated = "conclusions not validated",
    EntryStays = "entry stays",
    ForgottenUnlock = "forgotten unlock",
    NumberBeforeLocks = "number before locks",
    NumberAfterInstallation = "number after installation",
    SavepointKeepsWrites = "savepoint keeps writes",
    SavepointForgetsReads = "savepoint forgets reads",
    OwnRowsNotCounted = "own rows not counted",
}

thread_local! {
    /// The mutation of the databases that this thread opens.
    static CHOSEN: Cell<Mutation> = const { Cell::new(Mutation::Intact) };
}

impl Mutation {
    /// Whether snapshots may be opened, because every row is linked to the one that it replaces.
    pub fn has_snapshots(self) -> bool {
        let breaks_chains = matches!(
            self,
            NoWriteValidation
                | VersionStays
                | UnlockBeforeInstall
                | TornRead
                | OneLockAtATime
                | StaleSnapshot
                | DirtyRead
                | AbortedWriteStays
        );
        !breaks_chains
    }

    /// Runs `open`. The canary's databases that it opens on this thread have this mutation.
    pub fn chosen_for<R>(self, open: impl FnOnce() -> R) -> R {
        let before = CHOSEN.replace(self);
        let opened = open();
        CHOSEN.set(before);
        opened
    }
}

// ---- the protocol -----------------------------------------------------------------------------

/// A protocol that is wrong on purpose. See the [module](self).
#[derive(Debug)]
pub enum Canary {}

// SAFETY: only the order of its steps is wrong; each row is still installed or discarded once.
unsafe impl Protocol for Canary {
    const NAME: &'static str = "canary";
    const TITLE: &'static str = "OCC that is wrong on purpose, for the conformance suite";
    const SOURCE: &'static str = "-";
    const USES_HTM: bool = false;
    type Header = CanaryHeader;
    type Shared = CanaryShared;
    type Executor = CanaryExecutor;

    fn settle_deleted(
        _record: &StoredRecord<CanaryHeader>,
        _may_go: impl Fn(u64) -> bool,
        _unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        // Records stay in their indexes: see "Wrong, but safe". The flag of the garbage list stays set, so the
        // record is not queued again.
        DeletedOutcome::Kept
    }
}

/// What the canary keeps with a record.
#[doc(hidden)]
#[derive(Debug)]
pub struct CanaryHeader {
    tid: TidWord,
    /// Under [`StaleSnapshot`](Mutation::StaleSnapshot): the row before the newest.
    previous: WordPointer<u8>,
    /// Under [`StaleSnapshot`](Mutation::StaleSnapshot): the number of the commit that wrote the newest row.
    written_by: Word,
}

impl Default for CanaryHeader {
    fn default() -> Self {
        CanaryHeader {
            tid: TidWord::new(Tid::PLACEHOLDER),
            previous: WordPointer::new(ptr::null_mut()),
            written_by: Word::new(0),
        }
    }
}

impl TidHeader for CanaryHeader {
    fn tid(&self) -> &TidWord {
        &self.tid
    }
}

/// What the workers of a database share.
#[doc(hidden)]
#[derive(Debug)]
pub struct CanaryShared {
    mutation: Mutation,
    /// Counts commits, for [`StaleSnapshot`](Mutation::StaleSnapshot).
    commits: Word,
}

impl Default for CanaryShared {
    fn default() -> Self {
        CanaryShared { mutation: CHOSEN.get(), commits: Word::new(0) }
    }
}

/// The most commits by which a stale snapshot lags behind.
const STALE_COMMITS_MAX: u64 = 4;

/// A row that other transactions can see before its own has committed ([`DirtyRead`](Mutation::DirtyRead)).
struct EarlyRow {
    record: RecordPointer<CanaryHeader>,
    table: TableRef,
    row: NonNull<u8>,
    /// The row that it has replaced.
    before: *mut u8,
}

/// Runs the canary on one worker.
#[doc(hidden)]
pub struct CanaryExecutor {
    set: AccessSet<CanaryHeader>,
    attempt: u32,
    shared: Arc<CanaryShared>,
    /// The number of the last commit that a stale snapshot shows.
    snapshot: u64,
    early_rows: Vec<EarlyRow>,
}

// SAFETY: the sets are empty between transactions, when the executor may move to another thread.
unsafe impl Send for CanaryExecutor {}

/// Replaces a pointer to a row, and returns the old one. From then on the old row belongs to the caller, which
/// retires it.
fn swap(pointer: &WordPointer<u8>, new: *mut u8) -> *mut u8 {
    let mut current = pointer.load(Ordering::Acquire);
    loop {
        // Release: pairs with the acquire in `read_newest`, so that a thread that sees the row sees its
        // contents. Acquire: the row that comes out was published in the same way.
        match pointer.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(replaced) => return replaced,
            Err(found) => current = found,
        }
    }
}

/// As [`swap`], for a record's newest row.
fn swap_newest(record: &StoredRecord<CanaryHeader>, new: *mut u8) -> *mut u8 {
    let new = NonNull::new(new).map_or(Newest::NONE, Newest::of);
    let mut current = record.newest.load(Ordering::Acquire);
    loop {
        // Release and Acquire: as in `swap`.
        match record.newest.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(replaced) => return replaced.address(),
            Err(found) => current = found,
        }
    }
}

/// Returns what a record holds. It holds no row if it has none, whatever its version says.
fn visible(tid: Tid, newest: *mut u8) -> Visible {
    match NonNull::new(newest) {
        Some(row) if !tid.is_absent() => Visible::Row(row),
        _ => Visible::Absent,
    }
}

impl Executor for CanaryExecutor {
    type Header = CanaryHeader;
    type Shared = CanaryShared;
    type Version = ReplacedVersion;
    type Splitting = Never;
    type Repairing = Never;
    type Chopping = Never;
    type Reapplying = Never;

    fn new(shared: &Arc<CanaryShared>, _slot: usize) -> Self {
        CanaryExecutor {
            set: AccessSet::default(),
            attempt: 0,
            shared: Arc::clone(shared),
            snapshot: 0,
            early_rows: Vec::new(),
        }
    }

    fn begin(&mut self, attempt: u32, _memory: &WorkerMemory) -> Result<(), Refusal> {
        self.attempt = attempt;
        if self.breaks(StaleSnapshot) {
            let commits = self.shared.commits.load(Ordering::Relaxed);
            // StaleSnapshot: the snapshot moves on only once in this many commits.
            self.snapshot = commits - commits % STALE_COMMITS_MAX;
        }
        Ok(())
    }

    fn read(
        &mut self,
        table: TableRef,
        record: RecordPointer<CanaryHeader>,
        _memory: &WorkerMemory,
    ) -> Result<Visible, Abort> {
        if let Some(own) = self.set.own_write(record) {
            return Ok(own);
        }
        let (observed, newest) = self.read_newest(record);
        let mut visible = visible(observed, newest);
        if let Visible::Row(_) = visible
            && let Some(older) = self.stale_row(record)
        {
            // StaleSnapshot: an older row is returned with the newest version number, so validation accepts it.
            visible = Visible::Row(older);
        }
        // AbsenceNotNoted: a record without a row is not remembered.
        if !self.breaks(AbsenceNotNoted) || matches!(visible, Visible::Row(_)) {
            if self.breaks(ShortReads) {
                // ShortReads: only the last read is remembered.
                self.set.reads.clear();
            }
            self.set.reads.push(ReadEntry { record, observed, table });
        }
        Ok(visible)
    }

    fn read_for_write(
        &mut self,
        _table: TableRef,
        record: RecordPointer<CanaryHeader>,
        _memory: &WorkerMemory,
    ) -> Result<Observation<ReplacedVersion>, Abort> {
        if let Some(own) = self.set.observe_own(record) {
            return Ok(own);
        }
        let (observed, newest) = self.read_newest(record);
        // Observed as a placeholder first, because here a version does not prove that there is a row.
        let mut version = self.set.observe(Tid::PLACEHOLDER, newest).version;
        version.observed = observed;
        Ok(Observation { visible: visible(observed, newest), version })
    }

    fn note_read(
        &mut self,
        table: TableRef,
        record: RecordPointer<CanaryHeader>,
        version: ReplacedVersion,
    ) {
        // RefusedWriteNotNoted: the read is forgotten.
        if !self.breaks(RefusedWriteNotNoted) {
            self.set.note_read(table, record, version);
        }
    }

    fn is_current(&self, record: RecordPointer<CanaryHeader>, version: ReplacedVersion) -> bool {
        self.set.is_current(record, version)
    }

    fn write(
        &mut self,
        table: TableRef,
        record: RecordPointer<CanaryHeader>,
        version: ReplacedVersion,
        row: NonNull<u8>,
    ) {
        let is_first = self.set.find_write(record).is_none();
        if self.publishes_early() && is_first && !version.observed.is_absent() {
            // DirtyRead, AbortedWriteStays: visible before the commit.
            let before = swap_newest(stored(record), row.as_ptr());
            self.early_rows.push(EarlyRow { record, table, row, before });
        }
        self.set.put(table, record, version, Some(row), None);
    }

    fn remove(
        &mut self,
        table: TableRef,
        record: RecordPointer<CanaryHeader>,
        version: ReplacedVersion,
        key: EncodedKey,
    ) {
        // EntryStays: records of secondary indexes keep their rows.
        if !self.breaks(EntryStays) || table.core().index.is_none() {
            self.set.put(table, record, version, None, Some(key));
        }
    }

    fn insert(
        &mut self,
        table: TableRef,
        record: RecordPointer<CanaryHeader>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        self.set.insert(table, record, row, key);
    }

    fn note_node(
        &mut self,
        table: TableRef,
        node: NodeVersion,
        range: Option<ScannedRange>,
    ) -> Result<usize, Abort> {
        Ok(self.set.note_node(table, node, range))
    }

    fn stop_scan(&mut self, position: usize, node: NodeVersion, address: u64) {
        self.set.stop_scan(position, node, address);
    }

    fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> Result<(), Abort> {
        if self.breaks(AnyInsertionCountsAsOwn) {
            // AnyInsertionCountsAsOwn: the node is accepted as it is now, with what others have inserted since
            // it was noted.
            for entry in &mut self.set.nodes {
                if entry.node.word == change.word {
                    entry.node.version = change.before;
                }
            }
        }
        // SplitNotNoted: the keys that moved to the right half are not validated any more.
        let sibling = if self.breaks(SplitNotNoted) { None } else { sibling };
        if self.set.note_own_insertion(table, change, sibling) {
            Ok(())
        } else {
            Err(Abort::of_table(ConflictReason::RangeChanged, table))
        }
    }

    fn rows_added(&self, table: TableRef) -> Option<i64> {
        // OwnRowsNotCounted: as if the transaction had written nothing.
        let is_forgotten = self.breaks(OwnRowsNotCounted);
        Some(if is_forgotten { 0 } else { self.set.rows_added(table) })
    }

    fn accessed(&self) -> (usize, usize) {
        self.set.accessed()
    }

    fn validate(&mut self) -> Result<(), Abort> {
        if self.breaks(ConclusionsNotValidated) {
            // ConclusionsNotValidated: the caller's error is returned unchecked.
            return Ok(());
        }
        fence_before_validation();
        for entry in &self.set.writes {
            let tid = stored(entry.record).header.tid.load_relaxed();
            if tid != entry.expected {
                return Err(write_conflict(entry, tid));
            }
        }
        self.validate_reads(|_| false)
    }

    fn list_writes(&mut self, list: &mut Vec<LoggedWrite>) {
        self.set.list_writes(list);
    }

    fn commit(&mut self, memory: &WorkerMemory, epoch: impl Fn() -> u64) -> Result<(), Abort> {
        if self.attempt > 0 || self.breaks(NoWriteValidation) || self.breaks(OneLockAtATime) {
            self.set.sort_writes();
        }
        if self.breaks(ValidationBeforeLocks) {
            // ValidationBeforeLocks: another transaction may lock and install before this one has locked.
            self.validate_reads(|_| false)?;
        }
        // NumberBeforeLocks: another transaction may lock, draw a greater number and install before this one
        // has locked. The yield gives it the time.
        let early = self.breaks(NumberBeforeLocks).then(|| {
            let early = epoch();
            yield_now();
            early
        });
        self.lock_writes()?;
        self.set.open_row_counts(memory);
        // ==== serialization point ====
        fence_before_validation();
        let epoch = early.unwrap_or_else(epoch);
        if !self.breaks(ValidationBeforeLocks)
            && let Err(abort) = self.validate_reads(|record| self.set.find_write(record).is_some())
        {
            // ForgottenUnlock: the first lock is not released.
            let forgotten = usize::from(self.breaks(ForgottenUnlock));
            unlock(self.set.writes.get(forgotten..).unwrap_or_default());
            self.set.close_row_counts(memory, false);
            return Err(abort);
        }
        if self.breaks(NumberAfterInstallation) {
            memory.end_commit();
        }
        self.install(epoch);
        if self.breaks(NumberAfterInstallation) {
            // NumberAfterInstallation: others may have read the rows, and have drawn smaller numbers.
            memory.draw();
        }
        self.set.close_row_counts(memory, true);
        self.settle_early_rows(0, memory, true);
        if !self.shared.mutation.has_snapshots() {
            self.retire_unchained(memory);
        }
        self.set.retire(memory, |_, _| ());
        Ok(())
    }

    fn mark(&mut self) -> WriteMark {
        self.set.mark()
    }

    fn keep(&mut self, _mark: WriteMark) {
        self.set.keep();
    }

    fn undo_to(&mut self, mark: WriteMark, memory: &WorkerMemory) {
        let is_earlier =
            |early: &EarlyRow| self.set.find_write(early.record).is_some_and(|at| at < mark.writes);
        let earlier = self.early_rows.iter().take_while(|early| is_earlier(early)).count();
        self.settle_early_rows(earlier, memory, false);
        if self.breaks(SavepointKeepsWrites) {
            // SavepointKeepsWrites: the error does not undo anything.
            return self.set.keep();
        }
        let reads = self.set.reads.len();
        self.set.undo_to(mark);
        if self.breaks(SavepointForgetsReads) {
            // SavepointForgetsReads: what was read to be written is not validated.
            self.set.reads.truncate(reads);
        }
    }

    fn abort(&mut self, memory: &WorkerMemory) {
        self.settle_early_rows(0, memory, false);
        // The placeholder stays in its index; the row for it is dropped.
        self.set.drop_private(memory, |_, _| ());
    }
}

impl CanaryExecutor {
    /// Whether this mutation was chosen.
    fn breaks(&self, mutation: Mutation) -> bool {
        self.shared.mutation == mutation
    }

    fn publishes_early(&self) -> bool {
        self.breaks(DirtyRead) || self.breaks(AbortedWriteStays)
    }

    /// Returns a record's newest row and its version.
    fn read_newest(&self, record: RecordPointer<CanaryHeader>) -> (Tid, *mut u8) {
        let record = stored(record);
        // Acquire: pairs with the release in `swap`.
        let newest = || record.newest.load(Ordering::Acquire).address();
        if self.breaks(TornRead) {
            // TornRead: a commit in between pairs an old row with a new version.
            let row = newest();
            (record.header.tid.load_unlocked(), row)
        } else {
            record.header.tid.read_with(newest)
        }
    }

    /// Under [`StaleSnapshot`](Mutation::StaleSnapshot), returns the row before the newest, if the newest is
    /// later than the snapshot.
    fn stale_row(&self, record: RecordPointer<CanaryHeader>) -> Option<NonNull<u8>> {
        let header = &stored(record).header;
        let is_late = header.written_by.load(Ordering::Relaxed) > self.snapshot;
        if !self.breaks(StaleSnapshot) || !is_late {
            return None;
        }
        // Acquire: pairs with the release in `swap`.
        NonNull::new(header.previous.load(Ordering::Acquire))
    }

    /// Validates the read set and the node set.
    fn validate_reads(
        &self,
        is_own_lock: impl Fn(RecordPointer<CanaryHeader>) -> bool,
    ) -> Result<(), Abort> {
        // NoReadOnlyValidation: nothing is validated if nothing was written.
        if self.breaks(NoReadOnlyValidation) && self.set.writes.is_empty() {
            return Ok(());
        }
        // NoReadValidation: reads are not validated.
        let reads = if self.breaks(NoReadValidation) { &[] } else { &self.set.reads[..] };
        for entry in reads {
            let tid = stored(entry.record).header.tid.load_relaxed();
            // LockedCountsAsUnchanged: every lock is ignored, not only the transaction's own.
            let may_be_locked = self.breaks(LockedCountsAsUnchanged) || is_own_lock(entry.record);
            if tid != entry.observed && !(may_be_locked && tid == entry.observed.locked()) {
                return Err(read_conflict(entry));
            }
        }
        // NoNodeValidation: nodes are not validated.
        if self.breaks(NoNodeValidation) { Ok(()) } else { validate_nodes(&self.set) }
    }

    fn lock_writes(&mut self) -> Result<(), Abort> {
        if self.breaks(NoWriteValidation) {
            // NoWriteValidation: any version is accepted as the expected one. The locks are taken in order,
            // because this waits.
            for write in &mut self.set.writes {
                write.expected = stored(write.record).header.tid.lock();
            }
            return Ok(());
        }
        lock_expected(&self.set.writes)
    }

    /// The write phase: installs the write set, whose records are locked, and unlocks them.
    fn install(&mut self, epoch: u64) {
        let mutation = self.shared.mutation;
        let commit = match mutation {
            StaleSnapshot => self.shared.commits.fetch_add(1, Ordering::Relaxed) + 1,
            _ => 0,
        };
        if mutation == OneLockAtATime {
            // OneLockAtATime: between two records another transaction may see one new row and one old.
            unlock(&self.set.writes);
        }
        for write in &mut self.set.writes {
            let header = &stored(write.record).header;
            if mutation == OneLockAtATime {
                write.expected = header.tid.lock();
            }
            let version = match write.row {
                // VersionStays: no other transaction can tell that there is another row.
                Some(_) if mutation == VersionStays && !write.expected.is_absent() => {
                    write.expected
                }
                _ => successor(write, epoch),
            };
            if mutation == UnlockBeforeInstall {
                // UnlockBeforeInstall: until the next step an old row goes with the new version.
                header.tid.unlock(version);
            }
            let is_published = self.early_rows.iter().any(|one| Some(one.row) == write.row);
            if let Some(row) = write.row
                && !is_published
            {
                write.replaced = Newest::at(swap_newest(stored(write.record), row.as_ptr()));
            }
            if mutation == StaleSnapshot && write.row.is_some() {
                // StaleSnapshot: the older row is kept for stale readers. The row that was kept before is
                // retired.
                write.replaced = Newest::at(swap(&header.previous, write.replaced.address()));
                header.written_by.store(commit, Ordering::Relaxed);
            }
            if mutation != UnlockBeforeInstall {
                header.tid.unlock(version);
            }
        }
    }

    /// Retires the rows that were taken out of the records. [`AccessSet::retire`] would look for them in their
    /// chains, so it must find nothing to do.
    fn retire_unchained(&mut self, memory: &WorkerMemory) {
        for write in &mut self.set.writes {
            let replaced = std::mem::replace(&mut write.replaced, Newest::NONE).row();
            if let (Some(row), Some(_)) = (replaced, write.row) {
                let inline = is_inline(write.table, write.record, row);
                // SAFETY: the row was taken out of its record.
                unsafe { memory.retire_row(write.table, write.record.block(), row, inline) };
            }
            // A deleted row stays in its record.
            write.expected = Tid::PLACEHOLDER;
        }
    }

    /// Settles the rows that were visible too early, from the one at `first` on: their transaction has committed, or
    /// takes them back.
    fn settle_early_rows(&mut self, first: usize, memory: &WorkerMemory, has_committed: bool) {
        let stays = has_committed || self.breaks(AbortedWriteStays);
        for EarlyRow { record, table, row, before } in self.early_rows.drain(first..) {
            // The transaction must not drop the row any more.
            self.set.superseded.retain(|superseded| superseded.row != row);
            let position = self.set.find_write(record).expect("published rows were written");
            let entry = &mut self.set.writes[position];
            let out = if stays {
                // AbortedWriteStays: the row stays, as if the transaction had committed.
                before
            } else {
                swap_newest(stored(record), before)
            };
            if entry.row == Some(row) {
                if has_committed {
                    entry.replaced = Newest::at(out);
                    continue;
                }
                entry.row = None;
            }
            if let Some(out) = NonNull::new(out) {
                // SAFETY: the row was taken out of its record.
                unsafe {
                    memory.retire_row(table, record.block(), out, is_inline(table, record, out));
                }
            }
        }
    }
}
