//! Reconciliation (§5.3): the slices of all workers are merged into the rows.

use std::mem;

use weft::Transaction;
use weft::store::record::RecordPointer;
use weft::store::worker::PinnedWorker;
use weft_htm::word::{Ordering, yield_now};

use super::classification::{
    Plans, REFUSED_MAX_PERCENT, UNMEASURED_MIN, is_faster, plan_next_joined_phase, reconsider,
};
use super::joined::JoinedProtocol;
#[cfg(feature = "canary")]
use super::options::DoppelFlaw;
use super::options::Merging;
use super::phases::{Phase, PhaseChange, Phases};
use super::splits::{SplitRecord, copy_row};
use super::transition::{Database, WorkerOf, commits};
use crate::INSIDE;

/// Reconciliation (§5.3): merges all slices into the rows. No worker is in a transaction. Returns `None` if another
/// worker has failed to merge a record; the split phase goes on then.
pub(super) fn reconcile<J: JoinedProtocol>(
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

/// Merges the worker's own slices while the phase changes, if this is not too late (§5.3, Figure 4). The worker is in no
/// transaction.
fn merge_own<J: JoinedProtocol>(database: &Database<J>, worker: &WorkerOf<J>) {
    /// Ends the announcement.
    struct OwnMergeGuard<'a>(&'a Phases, usize);
    impl Drop for OwnMergeGuard<'_> {
        fn drop(&mut self) {
            self.0.leave(self.1);
        }
    }
    let shared = &*database.protocol;
    let slot = worker.executor().slot;
    if !shared.phases.begin_own_merge(slot) {
        return;
    }
    let _announced = OwnMergeGuard(&shared.phases, slot);
    let phase = shared.phases.present().number();
    // SAFETY: the worker is announced.
    let records = unsafe { shared.splits() }.records();
    // Each worker begins with another record, so that they do not all wait for the same one.
    let first = if records.is_empty() { 0 } else { slot % records.len() };
    for split in records[first..].iter().chain(&records[..first]) {
        // SAFETY: the worker is announced while the phase changes, and these slices are its own.
        unsafe { split.merge_own(slot, phase, &worker.memory) };
    }
}

/// Waits until no worker merges its own slices any more, and merges those of the worker that changes the phase.
pub(super) fn settle_own_merges<J: JoinedProtocol>(
    database: &Database<J>,
    worker: &WorkerOf<J>,
    change: &PhaseChange<'_>,
) {
    if database.protocol.options.merging == Merging::OwnSlices {
        merge_own(database, worker);
        change.settle(|| database.shared.grace.slots_used());
    }
}

/// Waits while the phase changes, and takes part in the reconciliation. The worker is in no transaction.
#[cold]
pub(super) fn take_part<J: JoinedProtocol>(database: &Database<J>, worker: &WorkerOf<J>) {
    // Rows are dropped after the phase has changed, when no other worker has to wait for that.
    let _held = worker.memory.hold_discarded();
    if database.protocol.options.merging == Merging::OwnSlices {
        merge_own(database, worker);
    }
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
    let (mut copy, has_merged_slices) = unsafe { split.take_copy(&worker.memory) };
    #[cfg(feature = "canary")]
    if database.protocol.options.has_flaw(DoppelFlaw::OwnSlicesForgotten)
        && has_merged_slices
        && let Some(pending) = copy.take()
    {
        // SAFETY: the pending row is private.
        unsafe { worker.memory.drop_row(pending, split.table, false) };
    }
    let mut attempt = 0;
    loop {
        let transaction = Transaction::begin(database, worker, attempt, None, INSIDE)
            .expect("a reconciliation can always begin");
        // The slices are added to a copy of the row, or to the row with what workers have merged themselves. If the
        // transaction has to be run again, all of them are added to another copy. Merging does not change the slices.
        let copy = copy.take().unwrap_or_else(|| {
            // SAFETY: the worker has been pinned since before the record was found.
            let newest = unsafe { record.get() }.newest.load(Ordering::Acquire).row();
            let newest = newest.expect("a split record has a row");
            // SAFETY: this is a row of the record.
            unsafe { copy_row(split.table, newest, &worker.memory) }
        });
        // SAFETY: this worker has taken the record, and the copy is private.
        unsafe { split.merge(phase, copy, attempt > 0 || !has_merged_slices) };
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
