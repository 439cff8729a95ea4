//! Phase transitions (§5.4): when a phase ends, and how workers wait for the next one.
//!
//! A worker does all of this between two of its transactions, and only one worker at a time.

use weft::Failure;
use weft::commit::{Engine, Worker};
use weft::encoding::EncodedKey;
use weft::store::table::TableRef;
use weft_htm::word::{Ordering, Word, spin_loop, yield_now};

use super::PhaseReconciliation;
use super::classification::{
    PAUSE_MIN, Plans, REFUSED_MAX_PERCENT, SplitCandidate, conflicts_min, put_off_choice, split,
};
use super::contention::ContendedRecord;
use super::execution::ReconcilingExecutor;
use super::joined::JoinedProtocol;
use super::phases::Phase;
use super::reconciliation::{reconcile, settle_own_merges, take_part};
use super::shared::Reconciliation;

/// A split phase in which this many transactions were refused, and too many for its commits, ends early.
const REFUSED_TO_END: u64 = 32;

/// The time from one commit to the next, as it is guessed in a phase, in nanoseconds.
const GUESSED_NANOSECONDS: u64 = 500;

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

pub(super) type Database<J> = Engine<PhaseReconciliation<J>>;
pub(super) type WorkerOf<J> = Worker<PhaseReconciliation<J>>;

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
    if !shared.has_coordinator()
        && shared.is_due(now)
        && let Some(mut plans) = shared.plans.try_take()
        && shared.is_due(now)
    {
        change_phase(database, worker, &mut plans);
    }
}

/// After this time in which nothing was done, phases end, in nanoseconds.
const QUIET_NANOSECONDS: u64 = 40_000_000;

/// For how long phases then don't begin again, at first and at most. The time doubles, unless phases had lasted long, which
/// they do if something pays. It is cut short if conflicts cost much more.
const REST_MIN_NANOSECONDS: u64 = 200_000_000;
const REST_MAX_NANOSECONDS: u64 = 3_200_000_000;
const LONG_NANOSECONDS: u64 = 500_000_000;

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
        plans.begun_at = now;
        plans.commits_before = commits(database);
        shared.note_beginning(plans, now);
    }
    let is_at_work = J::review(&shared.joined, commits(database), now)
        || shared.phases.present().phase() != Some(Phase::Joined)
        || load(&shared.chosen) + load(&shared.waiting) + load(&shared.stashes) > 0;
    let is_quiet = match shared.options.is_hasty {
        true => random.u32(0..8) == 0,
        // A change that is due may have to wait for transactions that were not announced. If phases ended before that, the next
        // change would wait for others, and so on.
        false => now.saturating_sub(load(&shared.began)) > QUIET_NANOSECONDS && !shared.is_due(now),
    };
    if is_quiet && !is_at_work {
        plans.begun = None;
        plans.rest = match now.saturating_sub(plans.begun_at) {
            ..LONG_NANOSECONDS => {
                (plans.rest * 2).clamp(REST_MIN_NANOSECONDS, REST_MAX_NANOSECONDS)
            }
            _ => REST_MIN_NANOSECONDS,
        };
        shared.rest_until.store(now + plans.rest, Ordering::Relaxed);
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
        if !shared.has_coordinator()
            && (is_rest || shared.is_due(now))
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
    pub(super) fn is_due(&self, now: u64) -> bool {
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
                let is_long_enough = lasted >= length || !self.options.has_whole_joined_phases;
                is_hasty || (is_long_enough && now >= load(&self.joined_until))
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

    /// Whether a thread of its own changes the phases, so that workers don't.
    fn has_coordinator(&self) -> bool {
        // Relaxed: if a worker changes the phase all the same, it holds the lock for that.
        self.options.has_coordinator && self.coordinators.load(Ordering::Relaxed) > 0
    }

    /// Returns the number of conflicts about records, of all workers.
    fn conflicts(&self) -> u64 {
        self.sum(|slot| &slot.conflicts)
    }

    /// Returns the number of transactions that were refused an access to a split record.
    pub(super) fn refused(&self) -> u64 {
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
pub(super) fn change_phase<J: JoinedProtocol>(
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
    settle_own_merges(database, worker, &change);
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
    let found_nothing = phase == next && J::ADAPTS && !shared.options.is_hasty;
    if found_nothing {
        // The joined phase goes on. All workers were stopped for nothing, and that is not to happen often; and phases in which
        // nothing is done end.
        put_off_choice(shared, PAUSE_MIN, now);
        // Records that were to be split may be gone.
        shared.chosen.store(plans.active(), Ordering::Relaxed);
    } else {
        plans.commits_before = commits(database);
        shared.note_beginning(plans, now);
    }
    change.end(next);
}

/// Returns the number of transactions that have committed so far.
pub(super) fn commits<J: JoinedProtocol>(database: &Database<J>) -> u64 {
    let used = &database.shared.counters[..database.shared.grace.slots_used()];
    used.iter().map(|counters| counters.committed.load(Ordering::Relaxed)).sum()
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
    use crate::BuilderExt;
    use crate::adaptive::{Adaptive, AdaptiveOptions, Ordered};
    use crate::doppel::PhaseOptions;

    /// Reviews the phases of a new database after nothing was done for long, in which transactions had so many conflicts.
    /// Returns whether there are phases still.
    fn has_phases_after(conflicts: u64) -> bool {
        // Neither decides at random, nor is in a hurry.
        let builder = weft::Database::builder().protocol::<Adaptive>();
        let builder = builder.adaptive(AdaptiveOptions::new().forced_by_seed(None));
        let builder = builder.phases(PhaseOptions::new().length(PhaseOptions::new().length));
        let database = builder.open().expect("it is in memory");
        let database: &Database<Ordered> = database.open_engine(crate::INSIDE);
        let shared = &*database.protocol;
        shared.begun.0.store(1, Ordering::Relaxed);
        let mut random = fastrand::Rng::with_seed(1);
        let began = shared.clock.now();
        let mut plans = shared.plans.take();
        review(database, &mut plans, began, &mut random);
        assert!(shared.has_phases(), "they have just begun");
        (0..conflicts).for_each(|_| shared.slots[0].conflicts.increment());
        review(database, &mut plans, began + QUIET_NANOSECONDS + 1, &mut random);
        shared.has_phases()
    }

    #[test]
    fn phases_do_not_end_while_a_change_is_due() {
        assert!(!has_phases_after(0) && !has_phases_after(conflicts_min::<Ordered>() - 1));
        assert!(has_phases_after(conflicts_min::<Ordered>()));
    }
}
