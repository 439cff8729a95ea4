//! Which records are split, and for which operations (§5.5).

use std::mem;
use std::ptr::NonNull;

use smallvec::SmallVec;
use weft::commit::access_set::TidHeader;
use weft::operation::ColumnOperation;
use weft::store::record::StoredRecord;
use weft::store::table::TableRef;
use weft::store::worker::PinnedWorker;
use weft_htm::word::Ordering;

use super::contention::{ContendedRecord, add, gather, most_of_each_column};
use super::joined::JoinedProtocol;
use super::phases::Phase;
use super::shared::Reconciliation;
use super::splits::{SPLITS_MAX, SplitRecord, Splits};
use super::transition::{Database, WorkerOf, commits};

/// A record is split if there was at least one conflict about it for this many transactions that committed,
const COMMITS_PER_CONFLICT_MAX: u64 = 100;

/// and at least this many conflicts.
const CONFLICTS_MIN: u64 = 16;

/// A protocol that adapts tries to split a record after this many conflicts, and measures whether that pays.
const CONFLICTS_TO_TRY: u64 = 4;

/// By how many per cent a split phase must be faster than a joined one, and of how many per cent of its transactions it
/// may have refused an access. (Refused transactions wait for the end of the phase, and the 99th percentile of all
/// latencies is not to be such a wait.)
pub(super) const GAIN_MIN_PERCENT: u64 = 5;
pub(super) const REFUSED_MAX_PERCENT: u64 = 1;

/// After how many split phases a joined one is measured again: at first and at most.
pub(super) const UNMEASURED_MIN: u32 = 8;
pub(super) const UNMEASURED_MAX: u32 = 256;

/// How many times the length of a phase passes before something else is tried, after a trial that did not pay: at first
/// and at most.
pub(super) const PAUSE_MIN: u64 = 4;
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

/// Operations on a record, with how often they occurred.
type Counted = SmallVec<[(ColumnOperation, u64); 4]>;

/// What the worker knows that changes the phase.
#[derive(Default)]
pub struct Plans {
    /// The records that are to be split.
    pub(super) candidates: Vec<SplitCandidate>,
    /// The number of transactions committed when the present phase began.
    pub(super) commits_before: u64,
    /// The number of transactions committed when records were last chosen. Conflicts are counted since then.
    pub(super) commits_at_choice: u64,
    /// If phases have begun: all transactions that were not announced have ended when the grace periods before this
    /// tag have passed.
    pub(super) begun: Option<u64>,
    /// When phases have begun, and for how long they did not begin after they had last ended, in nanoseconds.
    pub(super) begun_at: u64,
    pub(super) rest: u64,
    /// The transactions that committed in a joined phase without waiting transactions, and its length in nanoseconds.
    pub(super) joined: (u64, u64),
    /// The split phases since the joined phase was last measured, and how many there are before it is measured again.
    pub(super) unmeasured: (u32, u32),
    /// The last pause after a trial that did not pay, in lengths of a phase.
    pub(super) pause: u64,
    /// Whether the last split phase was slow, although others had paid before.
    pub(super) was_slow: bool,
}

/// A record that is to be split in every split phase, or was and is barred.
pub(super) struct SplitCandidate {
    /// The record, with the key under which it is found again.
    pub(super) contended: ContendedRecord,
    pub(super) operations: SmallVec<[ColumnOperation; 4]>,
    /// How contended it was when it was whole.
    pub(super) contention: Contention,
    /// Whether the application has labelled it: it is split whether contended or not.
    pub(super) is_labelled: bool,
    /// Whether it is to be split. If not, it was not worth it; it may become active again.
    pub(super) is_active: bool,
    /// Since when it is to be split, in nanoseconds.
    pub(super) since: u64,
    /// How many more times it is left out when records are chosen, even if it is contended.
    pub(super) barred: u32,
    /// The value of `barred` when the record was barred last.
    pub(super) penalty: u32,
}

/// The conflicts about a record, and the transactions that committed in the same time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contention {
    pub(super) conflicts: u64,
    pub(super) committed: u64,
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
    pub(super) fn active(&self) -> u64 {
        self.candidates.iter().filter(|candidate| candidate.is_active).count() as u64
    }
}

/// Labels a record: it is split for this operation, contended or not. Labels for other columns stay. At most
/// [`SPLITS_MAX`] records are split at a time: further ones wait until one of those is not to be split any more.
/// The calling worker is pinned.
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

/// Returns the number of conflicts after which records are chosen.
pub(super) fn conflicts_min<J: JoinedProtocol>() -> u64 {
    if J::ADAPTS { CONFLICTS_TO_TRY } else { CONFLICTS_MIN }
}

/// Classification (§5.5): decides what to split, and splits it. No worker is in a transaction.
pub(super) fn split<J: JoinedProtocol>(
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
    // If there are too many, those with labels come first.
    plans.candidates.sort_by_key(|candidate| !candidate.is_labelled);
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
        if records.len() < SPLITS_MAX && records.iter().all(|split| split.record != record) {
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
        let conflicts = contended.conflicts;
        let contention = Contention { conflicts, committed: committed_since_choice };
        let is_contended = match shared.options.is_hasty {
            true => true,
            false if J::ADAPTS => conflicts >= CONFLICTS_TO_TRY,
            false if shared.options.counts_same_time => {
                is_much_contended(conflicts, committed_since_choice)
            }
            false => is_much_contended(conflicts, committed),
        };
        // All accesses but one operation's would only have to wait.
        let is_worth_it = is_contended && contended.is_mostly_splittable();
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

/// Whether a record is contended enough to be split, by the conflicts about it, and the transactions that committed in the
/// same time.
fn is_much_contended(conflicts: u64, committed: u64) -> bool {
    conflicts >= CONFLICTS_MIN && conflicts * COMMITS_PER_CONFLICT_MAX >= committed
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

/// Plans how long the joined phase lasts at least that begins `now`, and when further records are chosen, under a protocol
/// that adapts. `is_worth_it` says whether the split phase before it was worth it.
pub(super) fn plan_next_joined_phase<J: JoinedProtocol>(
    shared: &Reconciliation<J>,
    plans: &mut Plans,
    is_worth_it: bool,
    now: u64,
) {
    if !is_worth_it {
        plans.pause = (plans.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        return put_off_choice(shared, plans.pause, now);
    }
    plans.unmeasured.0 += 1;
    if plans.unmeasured.0 >= plans.unmeasured.1
        && plans.candidates.iter().any(|candidate| candidate.is_active && !candidate.is_labelled)
    {
        plans.unmeasured = (0, (plans.unmeasured.1 * 2).min(UNMEASURED_MAX));
        plans.pause = 0;
        let length = shared.options.length.as_nanos() as u64;
        shared.joined_until.store(now.saturating_add(length / 2), Ordering::Relaxed);
    }
}

/// Puts off the next choice of records by so many lengths of a phase, unless it has been put off for longer.
pub(super) fn put_off_choice<J: JoinedProtocol>(
    shared: &Reconciliation<J>,
    lengths: u64,
    now: u64,
) {
    let length = shared.options.length.as_nanos() as u64;
    let until = now.saturating_add(lengths * length);
    // Relaxed: only the worker that has the plans changes it.
    let before = shared.next_choice.load(Ordering::Relaxed);
    shared.next_choice.store(until.max(before), Ordering::Relaxed);
}

/// Whether a split phase was worth it compared with a joined one. Both are given by the transactions that committed, and
/// by their lengths in nanoseconds.
pub(super) fn is_faster(
    (split, split_time): (u64, u64),
    (joined, joined_time): (u64, u64),
) -> bool {
    let per_time = |commits: u64, other_time: u64| u128::from(commits) * u128::from(other_time);
    let needed = per_time(joined, split_time) * u128::from(100 + GAIN_MIN_PERCENT);
    per_time(split, joined_time) * 100 >= needed
}

/// Decides whether a record is to be split again, and for which operations (§5.5). `measured` says whether
/// the phase was worth it, under a protocol that adapts.
pub(super) fn reconsider(
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn records_with_many_conflicts_are_split() {
        assert!(is_much_contended(500, 10_000));
        assert!(!is_much_contended(50, 10_000), "few transactions conflict");
        assert!(!is_much_contended(5, 10), "too few conflicts to decide");
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
