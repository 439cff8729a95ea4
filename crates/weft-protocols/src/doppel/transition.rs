//! Phase transitions: when a phase ends, what is split in the next one, and reconciliation.
//!
//! A worker does all of this between two of its transactions, and only one worker at a time.

use std::mem;
use std::ptr::NonNull;

use smallvec::SmallVec;
use weft::Failure;
use weft::Transaction;
use weft::commit::access_set::TidHeader;
use weft::commit::{Engine, Worker};
use weft::encoding::EncodedKey;
use weft::operation::ColumnOperation;
use weft::store::record::{RecordPointer, StoredRecord};
use weft::store::table::TableRef;
use weft::store::worker::PinnedWorker;
use weft_htm::word::{Ordering, Word, spin_loop, yield_now};

use super::contention::{ContendedRecord, add, gather, most_of_each_column};
use super::phases::Phase;
use super::splits::{SPLITS_MAX, SplitRecord, Splits, copy_row};
use super::{
    Counted, JoinedProtocol, Merging, PhaseReconciliation, Reconciliation, ReconcilingExecutor,
};
use crate::INSIDE;

/// A record is split if there was at least one conflict about it for this many transactions that committed,
const COMMITS_PER_CONFLICT_MAX: u64 = 100;

/// and at least this many conflicts.
const CONFLICTS_MIN: u64 = 16;

/// A protocol that adapts tries to split a record after this many conflicts, and measures whether that pays.
const CONFLICTS_TO_TRY: u64 = 4;

/// By how many per cent a split phase must be faster than a joined one, and of how many per cent of its transactions it
/// may have refused an access. (Refused transactions wait for the end of the phase, and the 99th percentile of all
/// latencies is not to be such a wait.)
const GAIN_MIN_PERCENT: u64 = 5;
const REFUSED_MAX_PERCENT: u64 = 1;

/// A split phase in which this many transactions were refused, and too many for its commits, ends early.
const REFUSED_TO_END: u64 = 32;

/// The time from one commit to the next, as it is guessed in a phase, in nanoseconds.
const GUESSED_NANOSECONDS: u64 = 500;

/// After how many split phases a joined one is measured again: at first and at most.
const UNMEASURED_MIN: u32 = 8;
const UNMEASURED_MAX: u32 = 256;

/// How many times the length of a phase passes before something else is tried, after a trial that did not pay: at first
/// and at most.
const PAUSE_MIN: u64 = 4;
const PAUSE_MAX: u64 = 128;

/// A split record is made whole for good if fewer than one in this many transactions used it.
const COMMITS_PER_OPERATION_MAX: u64 = 200;

/// It is made whole for a while if more than this many accesses were refused for two operations that were
/// gathered. (In the paper's Figure 12, records begin to be split when there are seven reads for three
/// operations.)
const REFUSED_PER_TWO_GATHERED_MAX: u64 = 5;

/// It is also made whole if more accesses were refused than this many times the conflicts that there were about
/// it before it was split. Each refusal, like each conflict, is a transaction that is run again. (The factor
/// allows for the gain that the row is no longer passed from core to core.)
const REFUSED_PER_CONFLICT_MAX: u64 = 2;

/// The most time that an operation saves if it is gathered instead of applied to a contended row, in
/// nanoseconds: a conflict, and the transaction that is run again. If threads have waited for longer than all
/// operations have saved, the record is made whole for a while.
const SAVED_NANOSECONDS: u64 = 500;

/// How many times a record that was made whole is then left out when records are chosen, at first and at most.
const BARRED_MIN: u32 = 4;
const BARRED_MAX: u32 = 256;

/// The part of its length that a split phase lasts at least, if a thread waits (§5.4: it is hurried).
const HURRIED_PART: u64 = 16;

/// About how long a worker lets pass between two looks at the clock, in nanoseconds.
const LOOK_NANOSECONDS: u64 = 200_000;

/// A thread that waits ends the phase early if it has seen no worker in a transaction for this long, in
/// nanoseconds.
const REST_NANOSECONDS: u64 = 20_000;

/// How often the worker that changes the phase yields until all transactions have ended. If one takes longer,
/// the change is put off, so that it does not hold up the others.
const YIELDS_MAX: u32 = 4096;

/// The most transactions between two looks at the clock.
const LOOK_INTERVAL_MAX: u32 = 4096;

/// What the worker knows that changes the phase.
#[derive(Default)]
pub struct Plans {
    /// The records that are to be split.
    candidates: Vec<SplitCandidate>,
    /// The number of transactions committed when the present phase began.
    commits_before: u64,
    /// The number of transactions committed when records were last chosen. Conflicts are counted since then.
    commits_at_choice: u64,
    /// If phases have begun: all transactions that were not announced have ended when the grace periods before this
    /// tag have passed.
    begun: Option<u64>,
    /// The transactions that committed in a joined phase without waiting transactions, and its length in nanoseconds.
    joined: (u64, u64),
    /// The split phases since the joined phase was last measured, and how many there are before it is measured again.
    unmeasured: (u32, u32),
    /// The last pause after a trial that did not pay, in lengths of a phase.
    pause: u64,
    /// Whether the last split phase was slow, although others had paid before.
    was_slow: bool,
}

/// A record that is to be split in every split phase, or was and is barred.
struct SplitCandidate {
    /// The record, with the key under which it is found again.
    contended: ContendedRecord,
    operations: SmallVec<[ColumnOperation; 4]>,
    /// How contended it was when it was whole.
    contention: Contention,
    /// Whether the application has labelled it: it is split whether contended or not.
    is_labelled: bool,
    /// Whether it is to be split. If not, it was not worth it; it may become active again.
    is_active: bool,
    /// Since when it is to be split, in nanoseconds.
    since: u64,
    /// How many more times it is left out when records are chosen, even if it is contended.
    barred: u32,
    /// The value of `barred` when the record was barred last.
    penalty: u32,
}

/// The conflicts about a record, and the transactions that committed in the same time.
#[derive(Clone, Copy, Debug, Default)]
struct Contention {
    conflicts: u64,
    committed: u64,
}

impl Contention {
    /// Returns how many conflicts are to be expected among `committed` transactions.
    fn among(self, committed: u64) -> u64 {
        let expected =
            u128::from(self.conflicts) * u128::from(committed) / u128::from(self.committed.max(1));
        expected.try_into().unwrap_or(u64::MAX)
    }
}

impl SplitCandidate {
    fn new(
        contended: ContendedRecord,
        operations: SmallVec<[ColumnOperation; 4]>,
        contention: Contention,
    ) -> SplitCandidate {
        SplitCandidate {
            contended,
            operations,
            contention,
            is_labelled: false,
            is_active: true,
            since: 0,
            barred: 0,
            penalty: 0,
        }
    }

    /// Whether it is this record. The calling worker is pinned.
    fn is_of(&self, table: TableRef, record: Option<NonNull<u8>>) -> bool {
        self.contended.table == table && self.contended.find() == record
    }

    /// Bars the record after it was not worth splitting. Each time this lasts twice as long.
    fn bar(&mut self) {
        self.is_active = false;
        self.since = 0;
        self.penalty = (self.penalty * 2).clamp(BARRED_MIN, BARRED_MAX);
        self.barred = self.penalty;
    }
}

impl Plans {
    /// Returns the number of records that are to be split.
    fn active(&self) -> u64 {
        self.candidates.iter().filter(|candidate| candidate.is_active).count() as u64
    }
}

type Database<J> = Engine<PhaseReconciliation<J>>;
type WorkerOf<J> = Worker<PhaseReconciliation<J>>;

/// Does what is due between two transactions of a worker: a look at the clock, and the wait after a refusal.
#[cfg_attr(not(debug_assertions), inline(always))]
pub fn between_transactions<J: JoinedProtocol>(
    database: &Database<J>,
    worker: &WorkerOf<J>,
    keep_waiting: impl Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let executor = worker.executor();
    if database.protocol.has_phases() {
        if database.protocol.phases.is_changing() {
            take_part(database, worker);
        }
        executor.until_look -= 1;
        if executor.until_look == 0 {
            look(database, worker);
        }
    }
    match executor.refused_in {
        Some(refused_in) => wait_for_next_phase(database, worker, refused_in, keep_waiting),
        None => Ok(()),
    }
}

/// Looks at the clock, and changes the phase if its time has come.
#[cold]
fn look<J: JoinedProtocol>(database: &Database<J>, worker: &WorkerOf<J>) {
    let shared = &*database.protocol;
    let executor = worker.executor();
    let now = shared.clock.now();
    if shared.options.is_hasty {
        executor.look_interval = executor.random.u32(1..8);
    } else {
        // Adapt the interval, so that a look comes about every `LOOK_NANOSECONDS`.
        let passed = now.saturating_sub(executor.looked);
        executor.look_interval = match passed {
            ..LOOK_NANOSECONDS => (executor.look_interval * 2).min(LOOK_INTERVAL_MAX),
            _ => (executor.look_interval / 2).max(1),
        };
    }
    executor.looked = now;
    executor.until_look = executor.look_interval;
    if J::ADAPTS
        && let Some(mut plans) = shared.plans.try_take()
    {
        review(database, &mut plans, now, &mut executor.random);
    }
    if shared.is_due(now)
        && let Some(mut plans) = shared.plans.try_take()
        && shared.is_due(now)
    {
        change_phase(database, worker, &mut plans);
    }
}

/// After this time in which nothing was done, phases end, and do not begin again for the other time, in nanoseconds.
const QUIET_NANOSECONDS: u64 = 40_000_000;
const REST_FROM_PHASES_NANOSECONDS: u64 = 200_000_000;

/// Reviews what is done about contention. If nothing is done, phases end: then transactions are not announced any more.
fn review<J: JoinedProtocol>(
    database: &Database<J>,
    plans: &mut Plans,
    now: u64,
    random: &mut fastrand::Rng,
) {
    let shared = &*database.protocol;
    let load = |word: &Word| word.load(Ordering::Relaxed);
    if plans.begun.is_none() {
        // Phases have just begun.
        plans.begun = Some(database.shared.grace.seal());
        plans.commits_before = commits(database);
        shared.note_beginning(plans, now);
    }
    let is_at_work = J::review(&shared.joined, commits(database), now)
        || shared.phases.present().phase() != Some(Phase::Joined)
        || load(&shared.chosen) + load(&shared.waiting) + load(&shared.stashes) > 0;
    let is_quiet = match shared.options.is_hasty {
        true => random.u32(0..8) == 0,
        false => now.saturating_sub(load(&shared.began)) > QUIET_NANOSECONDS,
    };
    if is_quiet && !is_at_work {
        plans.begun = None;
        shared.rest_until.store(now + REST_FROM_PHASES_NANOSECONDS, Ordering::Relaxed);
        // Relaxed: workers that still see phases announce transactions for nothing.
        shared.begun.0.store(0, Ordering::Relaxed);
    }
}

/// Returns whether the phase may change: every transaction that runs is announced. The calling worker runs none.
///
/// Under a protocol that adapts, a worker looks after it was pinned whether there are phases. If there aren't any, its
/// transaction is not announced. So after phases have begun, the first change waits for a grace period. A worker whose
/// pin is not seen here has executed the fence of the pin after the fence in `horizon`. So it sees that there are
/// phases. A worker that was pinned after `seal` sees it, too, since it has acquired the clock.
fn may_change<J: JoinedProtocol>(database: &Database<J>, plans: &mut Plans) -> bool {
    if !J::ADAPTS {
        return true;
    }
    let grace = &database.shared.grace;
    // Phases may have begun a moment ago, by another worker's relaxed store.
    database.protocol.begun.0.store(1, Ordering::Relaxed);
    let tag = *plans.begun.get_or_insert_with(|| grace.seal());
    #[cfg(feature = "canary")]
    if J::passes_unannounced(&database.protocol.joined) {
        return true;
    }
    grace.horizon() >= tag
}

/// Waits for the phase after the split phase `refused_in`, in which a transaction was refused.
#[cold]
pub fn wait_for_next_phase<J: JoinedProtocol, E>(
    database: &Database<J>,
    worker: &WorkerOf<J>,
    refused_in: u64,
    keep_waiting: impl Fn() -> Result<(), E>,
) -> Result<(), E> {
    let shared = &*database.protocol;
    let executor = worker.executor();
    if !executor.is_waiting {
        executor.is_waiting = true;
        shared.waiting.fetch_add(1, Ordering::Relaxed);
    }
    let mut spins = 0_u32;
    let mut resting_since = None;
    // Wait until another phase has begun. If that is a split one again, there was a joined one in between,
    // which this thread has missed.
    while shared.phases.present().phase().is_none()
        || shared.phases.present().number() == refused_in
    {
        keep_waiting()?;
        if shared.phases.is_changing() {
            take_part(database, worker);
        }
        let now = shared.clock.now();
        resting_since = match shared.phases.is_anyone_running(database.shared.grace.slots_used()) {
            true => None,
            false => resting_since.or(Some(now)),
        };
        // No other worker is in a transaction: end the split phase now, instead of waiting for its time.
        let is_rest = resting_since.is_some_and(|since| {
            shared.options.is_hasty || now.saturating_sub(since) >= REST_NANOSECONDS
        });
        if (is_rest || shared.is_due(now))
            && let Some(mut plans) = shared.plans.try_take()
            && shared.phases.present().number() == refused_in
        {
            change_phase(database, worker, &mut plans);
        }
        spins = spins.wrapping_add(1);
        if spins.is_multiple_of(16) { yield_now() } else { spin_loop() }
    }
    executor.refused_in = None;
    Ok(())
}

/// Waits for a joined phase after the split phase in which a transaction was refused. If it has missed one, and
/// another split phase has begun, it waits for the end of that. It must do so itself, because perhaps no other
/// worker is running that would end the phase.
#[cold]
pub fn wait_for_whole_rows<J: JoinedProtocol, E>(
    database: &Database<J>,
    worker: &WorkerOf<J>,
    mut refused_in: u64,
    keep_waiting: impl Fn() -> Result<(), E>,
) -> Result<(), E> {
    loop {
        wait_for_next_phase(database, worker, refused_in, &keep_waiting)?;
        let present = database.protocol.phases.present();
        match present.phase() {
            Some(Phase::Joined) => return Ok(()),
            // The split phase may have ended since then.
            Some(Phase::Split) => refused_in = present.number(),
            None => {}
        }
    }
}

/// Runs `body` in a joined phase, which does not end before `body` does.
pub fn with_whole_rows<J: JoinedProtocol, R>(
    database: &Database<J>,
    worker: &WorkerOf<J>,
    body: impl FnOnce() -> R,
) -> Result<R, Failure> {
    if worker.memory.is_in_user_code() {
        return Err(Failure::NestedOperation);
    }
    if worker.active.get() {
        // The present phase does not end before this transaction.
        return match worker.executor().is_split() {
            false => Ok(body()),
            true => {
                worker.executor().doom();
                Err(Failure::RowsSplit)
            }
        };
    }
    let shared = &*database.protocol;
    let _held = worker.memory.hold_discarded();
    let mut plans = shared.plans.take();
    while shared.phases.present().phase() == Some(Phase::Split) {
        database.shared.check_open()?;
        change_phase(database, worker, &mut plans);
    }
    let result = body();
    drop(plans);
    Ok(result)
}

/// Labels a record: it is split for this operation, contended or not. Labels for other columns stay. The
/// calling worker is pinned.
pub fn label<J: JoinedProtocol>(
    database: &Database<J>,
    labelled: ContendedRecord,
    operation: ColumnOperation,
) {
    let mut plans = database.protocol.plans.take();
    let is_it =
        |candidate: &&mut SplitCandidate| candidate.is_of(labelled.table, Some(labelled.record));
    let candidate = match plans.candidates.iter_mut().find(is_it) {
        Some(candidate) => candidate,
        None => {
            plans.candidates.push(SplitCandidate::new(
                labelled,
                SmallVec::new(),
                Contention::default(),
            ));
            plans.candidates.last_mut().expect("just pushed")
        }
    };
    if !mem::replace(&mut candidate.is_labelled, true) {
        candidate.operations.clear();
    }
    candidate.operations.retain(|other| other.column() != operation.column());
    candidate.operations.push(operation);
    candidate.is_active = true;
    if J::ADAPTS {
        database.protocol.begun.0.store(1, Ordering::Relaxed);
    }
    database.protocol.chosen.store(plans.active(), Ordering::Relaxed);
}

/// Removes the labels of a record. It may still be split if it is contended.
pub fn remove_labels<J: JoinedProtocol>(
    database: &Database<J>,
    table: TableRef,
    record: NonNull<u8>,
) {
    let mut plans = database.protocol.plans.take();
    let is_it =
        |candidate: &SplitCandidate| candidate.is_labelled && candidate.is_of(table, Some(record));
    if let Some(position) = plans.candidates.iter().position(is_it) {
        plans.candidates.swap_remove(position);
        database.protocol.chosen.store(plans.active(), Ordering::Relaxed);
    }
}

impl<J: JoinedProtocol> Reconciliation<J> {
    /// Returns the records that are to be split, by table and key, and since when that is so, in nanoseconds.
    pub(crate) fn split_records(&self) -> Vec<(TableRef, EncodedKey, u64)> {
        let plans = self.plans.take();
        let active = plans.candidates.iter().filter(|candidate| candidate.is_active);
        let record = |candidate: &SplitCandidate| {
            let ContendedRecord { table, key, .. } = &candidate.contended;
            (*table, key.clone(), candidate.since)
        };
        active.map(record).collect()
    }

    /// Whether the present phase has lasted long enough (§5.4).
    fn is_due(&self, now: u64) -> bool {
        // Relaxed: a worker that acts on it looks again while it holds the lock.
        let load = |word: &Word| word.load(Ordering::Relaxed);
        let lasted = now.saturating_sub(load(&self.began));
        let length = self.options.length.as_nanos() as u64;
        let is_hasty = self.options.is_hasty;
        match self.phases.present().phase() {
            None => false,
            Some(Phase::Split) => {
                let is_hurried = lasted >= length / HURRIED_PART
                    && (load(&self.waiting) > 0 || self.refuses_much());
                is_hasty || lasted >= length || is_hurried
            }
            // Transactions that have waited or were stashed come first, and get as long as a phase for that.
            Some(Phase::Joined)
                if load(&self.waiting) + load(&self.stashes) > 0 && lasted < length =>
            {
                false
            }
            Some(Phase::Joined) if load(&self.chosen) > 0 => {
                is_hasty || now >= load(&self.joined_until)
            }
            Some(Phase::Joined) => {
                let conflicts = self.conflicts().saturating_sub(load(&self.conflicts_before));
                match is_hasty {
                    true => conflicts > 0,
                    false if !J::may_split(&self.joined) || now < load(&self.next_choice) => false,
                    false => lasted >= length && conflicts >= conflicts_min::<J>(),
                }
            }
        }
    }

    /// Returns the number of conflicts about records, of all workers.
    fn conflicts(&self) -> u64 {
        self.sum(|slot| &slot.conflicts)
    }

    /// Returns the number of transactions that were refused an access to a split record.
    fn refused(&self) -> u64 {
        self.sum(|slot| &slot.awaited) + self.sum(|slot| &slot.stashed)
    }

    /// Returns whether the phase has refused too many transactions for a protocol that adapts.
    fn refuses_much(&self) -> bool {
        let refused = self.refused().saturating_sub(self.refused_before.load(Ordering::Relaxed));
        // What has committed is counted when the phase ends. Until then it is guessed.
        let lasted = self.clock.now().saturating_sub(self.began.load(Ordering::Relaxed));
        let committed = lasted / GUESSED_NANOSECONDS;
        J::ADAPTS && refused >= REFUSED_TO_END && refused * 100 > committed * REFUSED_MAX_PERCENT
    }

    /// Notes that a phase begins.
    fn note_beginning(&self, plans: &Plans, now: u64) {
        self.refused_before.store(self.refused(), Ordering::Relaxed);
        self.began.store(now, Ordering::Relaxed);
        self.conflicts_before.store(self.conflicts(), Ordering::Relaxed);
        self.chosen.store(plans.active(), Ordering::Relaxed);
    }
}

/// Changes the phase: from joined to split, or by reconciliation from split to joined (§5.4).
fn change_phase<J: JoinedProtocol>(
    database: &Database<J>,
    worker: &WorkerOf<J>,
    plans: &mut Plans,
) {
    if database.shared.check_open().is_err() {
        return;
    }
    // Rows are dropped after the phase has changed, when no other worker has to wait for that.
    let _held = worker.memory.hold_discarded();
    let shared = &*database.protocol;
    let before = shared.clock.now();
    if !may_change(database, plans) {
        return;
    }
    let phase = shared.phases.present().phase().expect("phases change only under the lock");
    let slots = || database.shared.grace.slots_used();
    let yields_max = if shared.options.is_hasty { YIELDS_MAX / 64 } else { YIELDS_MAX };
    let Some(change) = shared.phases.begin_change(slots, yields_max) else { return };
    let next = match phase {
        Phase::Joined => Some(split(database, worker, plans)),
        Phase::Split => reconcile(database, worker, plans),
    };
    let Some(next) = next else { return };
    let now = shared.clock.now();
    let metrics = &shared.metrics;
    let add_to =
        |word: &Word, by: u64| word.store(word.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    if phase == Phase::Split {
        let lasted = before.saturating_sub(shared.began.load(Ordering::Relaxed));
        add_to(&metrics.split_nanoseconds, lasted);
        add_to(&metrics.hurried, u64::from(u128::from(lasted) < shared.options.length.as_nanos()));
    }
    add_to(&metrics.changing_nanoseconds, now.saturating_sub(before));
    add_to(&metrics.split_phases, u64::from(next == Phase::Split));
    plans.commits_before = commits(database);
    shared.note_beginning(plans, now);
    change.end(next);
}

/// Returns the number of transactions that have committed so far.
fn commits<J: JoinedProtocol>(database: &Database<J>) -> u64 {
    let used = &database.shared.counters[..database.shared.grace.slots_used()];
    used.iter().map(|counters| counters.committed.load(Ordering::Relaxed)).sum()
}

/// Returns the number of conflicts after which records are chosen.
fn conflicts_min<J: JoinedProtocol>() -> u64 {
    if J::ADAPTS { CONFLICTS_TO_TRY } else { CONFLICTS_MIN }
}

// ---- from joined to split ---------------------------------------------------------------------

/// Classification (§5.5): decides what to split, and splits it. No worker is in a transaction.
fn split<J: JoinedProtocol>(
    database: &Database<J>,
    worker: &WorkerOf<J>,
    plans: &mut Plans,
) -> Phase {
    let shared = &*database.protocol;
    let lasted = shared.clock.now().saturating_sub(shared.began.load(Ordering::Relaxed));
    if lasted >= shared.options.length.as_nanos() as u64 / 4 {
        plans.joined = (commits(database).saturating_sub(plans.commits_before), lasted);
    }
    // Pinned, because records are looked up.
    let _pinned = PinnedWorker::new(worker);
    let may_choose =
        shared.options.is_hasty || shared.clock.now() >= shared.next_choice.load(Ordering::Relaxed);
    if may_choose && J::may_split(&shared.joined) {
        choose(database, plans);
    }
    let cores = database.shared.grace.slots_used();
    let mut records: Vec<SplitRecord> = Vec::new();
    plans.candidates.retain(|candidate| {
        if !candidate.is_active {
            return true;
        }
        let Some(record) = candidate.contended.find() else { return false };
        // SAFETY: the worker has been pinned since before the record was found.
        let stored = unsafe { record.cast::<StoredRecord<J::Header>>().as_ref() };
        let row = stored.newest.load(Ordering::Acquire).row();
        let Some(row) = row.filter(|_| !stored.header.tid().load_unlocked().is_absent()) else {
            return false; // It has no row, so it cannot be split.
        };
        if records.iter().all(|split| split.record != record) {
            let operations = candidate.operations.iter().copied();
            let table = candidate.contended.table;
            // SAFETY: the worker has been pinned since before the record was found, and this is its row.
            records.push(unsafe { SplitRecord::new(record, table, row, operations, cores) });
        }
        true
    });
    if records.is_empty() {
        return Phase::Joined;
    }
    // SAFETY: no worker is in a transaction, and this worker changes the phase.
    unsafe { *shared.splits.get() = Splits::new(records) };
    Phase::Split
}

/// Chooses the records that have become contended, to be split.
fn choose<J: JoinedProtocol>(database: &Database<J>, plans: &mut Plans) {
    let shared = &*database.protocol;
    let sketches = shared.slots.iter().map(|slot| {
        // SAFETY: no worker is in a transaction, and this worker changes the phase.
        unsafe { &mut *slot.sketch.get() }
    });
    let contended = gather(sketches);
    let commits = commits(database);
    let committed = commits.saturating_sub(plans.commits_before);
    let committed_since_choice = commits.saturating_sub(plans.commits_at_choice);
    plans.commits_at_choice = commits;
    plans
        .candidates
        .iter_mut()
        .for_each(|candidate| candidate.barred = candidate.barred.saturating_sub(1));
    for contended in contended {
        let operations = most_of_each_column(&contended.operations);
        let record = contended.find();
        let is_it = |candidate: &&mut SplitCandidate| candidate.is_of(contended.table, record);
        let (conflicts, splittable) = (contended.conflicts, contended.splittable());
        let contention = Contention { conflicts, committed: committed_since_choice };
        let is_worth_it = match shared.options.is_hasty {
            true => is_mostly_splittable(conflicts, splittable),
            false if J::ADAPTS => {
                conflicts >= CONFLICTS_TO_TRY && is_mostly_splittable(conflicts, splittable)
            }
            false => is_worth_splitting(conflicts, splittable, committed),
        };
        let is_room = plans.candidates.len() < SPLITS_MAX;
        match plans.candidates.iter_mut().find(is_it) {
            Some(candidate) if is_worth_it && !candidate.is_active && candidate.barred == 0 => {
                candidate.operations = operations;
                candidate.contention = contention;
                candidate.is_active = true;
                plans.unmeasured = (0, UNMEASURED_MIN);
            }
            Some(_) => {}
            None if is_worth_it && is_room => {
                plans.candidates.push(SplitCandidate::new(contended, operations, contention));
                plans.unmeasured = (0, UNMEASURED_MIN);
            }
            None => {}
        }
    }
    let now = shared.clock.now();
    let new = plans.candidates.iter_mut().filter(|candidate| candidate.is_active);
    new.filter(|candidate| candidate.since == 0).for_each(|candidate| candidate.since = now);
    // A record that is not contended when its bar ends is forgotten.
    plans.candidates.retain(|candidate| candidate.is_active || candidate.barred > 0);
}

/// Whether a record is worth splitting, by the conflicts about it, the conflicts about its most frequent
/// operation, and the transactions that committed in the same time.
fn is_worth_splitting(conflicts: u64, splittable: u64, committed: u64) -> bool {
    conflicts >= CONFLICTS_MIN
        && conflicts * COMMITS_PER_CONFLICT_MAX >= committed
        && is_mostly_splittable(conflicts, splittable)
}

/// Whether most conflicts are about one operation. All other accesses would only have to wait.
fn is_mostly_splittable(conflicts: u64, splittable: u64) -> bool {
    splittable * 2 >= conflicts
}

/// Whether a split record is used enough to be split again, by the operations that were gathered and the
/// transactions that committed in the same time.
fn is_used(gathered: u64, committed: u64) -> bool {
    gathered * COMMITS_PER_OPERATION_MAX >= committed
}

/// Whether splitting a record pays, by the operations that were gathered, the accesses that were refused, the
/// conflicts that there would have been if the record were whole, and the time for which threads have waited
/// for it, in nanoseconds.
fn pays(gathered: u64, refused: u64, conflicts: u64, waited: u64) -> bool {
    refused * 2 <= gathered * REFUSED_PER_TWO_GATHERED_MAX
        && refused <= conflicts.saturating_mul(REFUSED_PER_CONFLICT_MAX)
        && waited <= gathered * SAVED_NANOSECONDS
}

// ---- from split to joined ---------------------------------------------------------------------

/// Reconciliation (§5.3): merges all slices into the rows. No worker is in a transaction. Returns `None` if another
/// worker has failed to merge a record; the split phase goes on then.
fn reconcile<J: JoinedProtocol>(
    database: &Database<J>,
    worker: &WorkerOf<J>,
    plans: &mut Plans,
) -> Option<Phase> {
    let shared = &*database.protocol;
    // SAFETY: no worker is in a transaction, and this worker changes the phase.
    let offer = shared.merging.offer(unsafe { shared.splits() }.records().len());
    while merge_one(database, worker) {}
    if !offer.close() {
        return None;
    }
    // SAFETY: as above, and no worker merges a record any more.
    let splits = mem::take(unsafe { &mut *shared.splits.get() });
    let committed = commits(database).saturating_sub(plans.commits_before);
    let _pinned = PinnedWorker::new(worker);
    let now = shared.clock.now();
    let lasted = now.saturating_sub(shared.began.load(Ordering::Relaxed));
    let refused = shared.refused().saturating_sub(shared.refused_before.load(Ordering::Relaxed));
    let measured = J::ADAPTS.then(|| {
        let is_faster = is_faster((committed, lasted), plans.joined);
        // A phase in which a thread has lost its core for a while says nothing, so two have to be slow.
        let has_paid = plans.unmeasured.1 > UNMEASURED_MIN || plans.unmeasured.0 > 0;
        let is_excused = has_paid && !mem::replace(&mut plans.was_slow, !is_faster);
        (is_faster || is_excused) && refused * 100 <= committed * REFUSED_MAX_PERCENT
    });
    for split in splits.into_records() {
        reconsider(&split, (committed, now), measured, plans, shared.options.is_hasty);
    }
    if let Some(is_worth_it) = measured {
        plan_next_joined_phase(shared, plans, is_worth_it, now);
    }
    Some(Phase::Joined)
}

/// Waits while the phase changes, and takes part in the reconciliation. The worker is in no transaction.
#[cold]
fn take_part<J: JoinedProtocol>(database: &Database<J>, worker: &WorkerOf<J>) {
    // Rows are dropped after the phase has changed, when no other worker has to wait for that.
    let _held = worker.memory.hold_discarded();
    let helps = database.protocol.options.merging != Merging::OneWorker;
    while database.protocol.phases.is_changing() {
        if !(helps && merge_one(database, worker)) {
            yield_now();
        }
    }
}

/// Takes one of the records whose slices are being merged, and merges them. Returns `false` if none is left.
fn merge_one<J: JoinedProtocol>(database: &Database<J>, worker: &WorkerOf<J>) -> bool {
    let shared = &*database.protocol;
    let Some(taken) = shared.merging.take() else { return false };
    let phase = shared.phases.present().number();
    // SAFETY: no worker is in a transaction until the record that was taken is done.
    let split = &unsafe { shared.splits() }.records()[taken.position];
    // SAFETY: the record was taken by this worker.
    if unsafe { split.is_touched(phase) } {
        let _reconciling = ReconcilingGuard::begin(worker);
        merge(database, worker, split, phase);
    }
    taken.merged();
    true
}

/// Plans how long the joined phase lasts at least that begins `now`, and when further records are chosen, under a protocol
/// that adapts. `is_worth_it` says whether the split phase before it was worth it.
fn plan_next_joined_phase<J: JoinedProtocol>(
    shared: &Reconciliation<J>,
    plans: &mut Plans,
    is_worth_it: bool,
    now: u64,
) {
    let length = shared.options.length.as_nanos() as u64;
    if !is_worth_it {
        plans.pause = (plans.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        shared.next_choice.store(now.saturating_add(plans.pause * length), Ordering::Relaxed);
        return;
    }
    plans.unmeasured.0 += 1;
    if plans.unmeasured.0 >= plans.unmeasured.1
        && plans.candidates.iter().any(|candidate| candidate.is_active && !candidate.is_labelled)
    {
        plans.unmeasured = (0, (plans.unmeasured.1 * 2).min(UNMEASURED_MAX));
        plans.pause = 0;
        shared.joined_until.store(now.saturating_add(length / 2), Ordering::Relaxed);
    }
}

/// Whether a split phase was worth it compared with a joined one. Both are given by the transactions that committed, and
/// by their lengths in nanoseconds.
fn is_faster((split, split_time): (u64, u64), (joined, joined_time): (u64, u64)) -> bool {
    let per_time = |commits: u64, other_time: u64| u128::from(commits) * u128::from(other_time);
    let needed = per_time(joined, split_time) * u128::from(100 + GAIN_MIN_PERCENT);
    per_time(split, joined_time) * 100 >= needed
}

/// Merges the slices of a record into its row, in a transaction. The worker has taken the record.
fn merge<J: JoinedProtocol>(
    database: &Database<J>,
    worker: &WorkerOf<J>,
    split: &SplitRecord,
    phase: u64,
) {
    // SAFETY: a record stays in its index as long as it is split.
    let record: RecordPointer<J::Header> =
        unsafe { RecordPointer::from_address(split.record.as_ptr().expose_provenance() as u64) };
    // SAFETY: this worker has taken the record.
    let mut copy = unsafe { split.take_copy(&worker.memory) };
    let mut attempt = 0;
    loop {
        let transaction = Transaction::begin(database, worker, attempt, None, INSIDE)
            .expect("a reconciliation can always begin");
        // The slices are added to a copy of the row. If the transaction has to be run again, they are added to
        // another copy. Merging does not change the slices.
        let copy = copy.take().unwrap_or_else(|| {
            // SAFETY: the worker has been pinned since before the record was found.
            let newest = unsafe { record.get() }.newest.load(Ordering::Acquire).row();
            let newest = newest.expect("a split record has a row");
            // SAFETY: this is a row of the record.
            unsafe { copy_row(split.table, newest, &worker.memory) }
        });
        // SAFETY: this worker has taken the record, and the copy is private.
        unsafe { split.merge(phase, copy) };
        // SAFETY: as above.
        let replaced = unsafe { transaction.replace_untyped(split.table, record, copy) };
        let ended = match replaced {
            Ok(()) => transaction.finish(INSIDE),
            Err(abort) => Err(abort),
        };
        match ended {
            Ok(_) => {
                transaction.end_committed(INSIDE);
                break;
            }
            Err(abort) => transaction.give_way(abort),
        }
        attempt += 1;
        yield_now();
    }
    // SAFETY: this worker has taken the record.
    unsafe { split.forget(phase) };
    database.protocol.metrics.reconciled_rows.fetch_add(1, Ordering::Relaxed);
}

/// A guard: as long as it lives, the worker's transactions reconcile.
struct ReconcilingGuard<'w, J: JoinedProtocol>(&'w WorkerOf<J>);

impl<'w, J: JoinedProtocol> ReconcilingGuard<'w, J> {
    fn begin(worker: &'w WorkerOf<J>) -> Self {
        worker.executor().is_reconciling = true;
        worker.memory.set_reconciling(true);
        ReconcilingGuard(worker)
    }
}

impl<J: JoinedProtocol> Drop for ReconcilingGuard<'_, J> {
    fn drop(&mut self) {
        self.0.executor().is_reconciling = false;
        self.0.memory.set_reconciling(false);
    }
}

/// Decides whether a record is to be split again, and for which operations (§5.5). `measured` says whether
/// the phase was worth it, under a protocol that adapts.
fn reconsider(
    split: &SplitRecord,
    (committed, now): (u64, u64),
    measured: Option<bool>,
    plans: &mut Plans,
    is_hasty: bool,
) {
    let is_it = |candidate: &SplitCandidate| candidate.is_of(split.table, Some(split.record));
    let Some(position) = plans.candidates.iter().position(is_it) else { return };
    // SAFETY: this worker changes the phase.
    let counts = unsafe { split.counts(now) };
    if plans.candidates[position].is_labelled {
        return;
    }
    let wanted = counts.refused_operation.map_or(0, |(_, count)| count);
    let refused = counts.refused + wanted;
    if let Some((operation, count)) = counts.refused_operation
        && count > counts.refused
        && count * 2 > counts.gathered
    {
        // Another operation is wanted more, on the same column or on another one.
        let mut operations: Counted = SmallVec::new();
        add(&mut operations, operation, 1);
        split.operations().for_each(|selected| {
            if selected.column() != operation.column() {
                add(&mut operations, selected, 1);
            }
        });
        plans.candidates[position].operations = most_of_each_column(&operations);
    } else if is_hasty {
        // Keep the record split, as if it were worth it.
    } else if !is_used(counts.gathered, committed) {
        plans.candidates.swap_remove(position);
    } else if let Some(is_worth_it) = measured {
        if is_worth_it {
            plans.candidates[position].penalty /= 2;
        } else {
            plans.candidates[position].bar();
        }
    } else if pays(
        counts.gathered,
        refused,
        plans.candidates[position].contention.among(committed),
        counts.waited,
    ) {
        plans.candidates[position].penalty /= 2;
    } else {
        plans.candidates[position].bar();
    }
}

impl<J: JoinedProtocol> ReconcilingExecutor<J> {
    /// Makes the transaction, which is in a split phase, run again in a joined one.
    fn doom(&mut self) {
        // SAFETY: the worker is in a transaction.
        let splits = unsafe { self.shared.splits() };
        let split = splits.records().first().expect("something is split in a split phase");
        let (table, record) = (split.table, split.record);
        self.refuse(table, record, None);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn records_with_many_conflicting_operations_are_split() {
        assert!(is_worth_splitting(500, 500, 10_000));
        assert!(is_worth_splitting(500, 250, 10_000), "half of the conflicts are of reads");
        assert!(!is_worth_splitting(500, 200, 10_000), "most conflicts are of reads");
        assert!(!is_worth_splitting(50, 50, 10_000), "few transactions conflict");
        assert!(!is_worth_splitting(5, 5, 10), "too few conflicts to decide");
    }

    #[test]
    fn split_record_stays_split_while_in_use() {
        assert!(is_used(1000, 10_000) && !is_used(40, 10_000));
        assert!(is_used(0, 0), "an empty phase says nothing");
        assert!(pays(1000, 0, 0, 0), "no access was refused");
        assert!(pays(1000, 2500, 9000, 0), "seven reads to three operations, or less");
        assert!(!pays(1000, 2600, 9000, 0));
        assert!(pays(1000, 800, 400, 0), "as many refusals as conflicts allow");
        assert!(!pays(1000, 801, 400, 0), "fewer transactions were run again before");
        assert!(pays(1000, 1, 10, 400_000));
        assert!(!pays(1000, 1, 10, 600_000), "the waits cost more than was saved");
        let contention = Contention { conflicts: 50, committed: 1000 };
        assert_eq!(contention.among(200), 10);
        assert_eq!(Contention::default().among(200), 0);
    }
}
