//! Deferred execution (§3.2): changes that are made not when their procedure runs, but later, all at once.
//!
//! A *publisher* is a procedure with a step that adds to columns which only *subscribers* read. The step would
//! connect the two by a C-edge, and pieces would be merged without need: in TPC-C, Delivery adds to a
//! customer's balance, which Payment reads. The analysis (see [`chopping`](mod@weft_procedures::chopping)) says
//! which steps can wait. Then all subscribers that have not seen the waiting changes come before the
//! publishers, and all later subscribers come after them.
//!
//! ```text
//!   Delivery 1   | orders | lines | ............................. | balance += 5 |
//!   Delivery 2        | orders | lines | ........................ | balance += 7 |
//!   Payment        | balance | (comes before both)
//!   Payment                                                                         | balance | (comes after both)
//!                                                                 ^ published, while nothing runs in pieces
//! ```
//!
//! *When changes are published.* A worker that [passes the gate](weft::sync::gate) publishes the waiting changes,
//! and goes on when all of them are published. So closures and snapshots never miss a part of a procedure. A worker
//! that begins a subscriber publishes as well, if a change has waited since an earlier epoch. It waits at a *barrier*
//! until no publisher is between two pieces, and publishers that begin wait until it has published. All other
//! procedures go on.
//!
//! *Why the barrier holds up publishers alone.* Each publisher lies in one span between two publications. So if the
//! conflicting piece of one comes before that of another, its change is published with the other's, or earlier. A
//! subscriber reads what is deferred in its conflicting piece, hence at one moment, before a publication or after it.
//! Now follow a path from one transaction to the next that must come after it. As long as it leads over conflicts, it
//! leads on in time, from conflicting piece to conflicting piece. To a subscriber it comes from a publication, and
//! from there it leads on in time as well. A subscriber that has missed a publisher came before the publication, and a
//! path that goes on from that publisher comes back only by its publication or a later one, by the second premise of
//! the [analysis](mod@weft_procedures::chopping). So no path leads back to where it began.
//!
//! *Procedures that run as one piece* beside outsiders make their changes at once. If such a procedure is a
//! subscriber, it is a transaction at one moment like any other. If it were a publisher, its change would be
//! seen before that of an earlier publisher, which is still waiting. So publishers that cannot run in pieces
//! are outsiders: they pass the gate, and while they run nothing is deferred.
//!
//! *Why all waiting changes are published in one transaction.* Procedures that run as one piece do not wait at
//! the gate, and a subscriber may be among them. Publishers can be ordered by what else they do. So a subscriber
//! that sees the change of a later one and misses that of an earlier one has no place among them. Sums commute,
//! so the order in which the transaction makes them does not matter.

use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;

use weft::Failure;
use weft::commit::DeferredChange;
use weft::commit::access_set::TidOnly;
use weft::commit::optimistic::OptimisticExecutor;
use weft::commit::{Executor, Visible};
use weft::store::eventual::EventualSnapshots;
use weft::store::record::version::VersionHeader;
use weft::store::table::TableRef;
use weft::store::worker::CommitGuard;
use weft::store::worker::{DiscardedValue, WorkerMemory};
use weft_htm::word::{Mutex, Ordering, Word, yield_now};

use super::DbxTc;

/// The changes that one procedure has deferred.
pub struct Batch {
    /// The procedure's place among the snapshots.
    pub place: u64,
    pub changes: Vec<DeferredChange<TidOnly>>,
}

/// How many changes may wait before the next procedure that begins publishes them. The procedures in progress
/// at that time may defer as many again.
const CHANGES_WAITING_MAX: u64 = 1 << 11;

/// How often a worker tries to publish at the barrier, where other procedures may write the same rows. After that it
/// publishes after the gate.
const ATTEMPTS_AT_BARRIER_MAX: u32 = 8;

/// The changes of a database that wait to be published.
pub struct DeferredChanges {
    /// The waiting batches of each worker.
    waiting: Box<[WaitingBatches]>,
    /// The number of batches that wait, or are being published.
    batches: Word,
    /// The number of changes that have been deferred since the last publication.
    changes: Word,
    /// An epoch in which a waiting change was deferred, or 0 if no change waits.
    since: Word,
    /// 1 while a worker publishes.
    publishing: Word,
    /// How many changes may wait: [`CHANGES_WAITING_MAX`], or fewer, for tests.
    pub changes_max: u64,
    /// Whether outsiders publish nothing. This is wrong on purpose, for tests.
    #[cfg(feature = "canary")]
    pub is_forgotten: bool,
}

#[repr(align(64))]
#[derive(Default)]
struct WaitingBatches(Mutex<WorkerBatches>);

/// The batches of one worker.
#[derive(Default)]
struct WorkerBatches {
    waiting: Vec<Batch>,
    /// Published batches, whose values this worker drops: they are of the user's types, and the thread that has published
    /// them may be one that writes the log.
    published: Vec<Batch>,
}

impl std::fmt::Debug for DeferredChanges {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("DeferredChanges")
            .field("batches", &self.batches)
            .finish_non_exhaustive()
    }
}

impl DeferredChanges {
    /// Creates it empty, for up to `workers_max` workers.
    pub fn new(workers_max: usize) -> DeferredChanges {
        DeferredChanges {
            waiting: (0..workers_max).map(|_| WaitingBatches::default()).collect(),
            batches: Word::new(0),
            changes: Word::new(0),
            since: Word::new(0),
            publishing: Word::new(0),
            changes_max: CHANGES_WAITING_MAX,
            #[cfg(feature = "canary")]
            is_forgotten: false,
        }
    }

    /// Adds the changes that a procedure in pieces has deferred to the waiting ones, before the procedure ends.
    pub fn push(&self, slot: usize, batch: Batch, memory: &WorkerMemory) {
        // Relaxed: both come before the procedure ends at the gate, and a worker that publishes waits for that.
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(batch.changes.len() as u64, Ordering::Relaxed);
        let published = {
            let mut batches = self.lock(slot);
            batches.waiting.push(batch);
            std::mem::take(&mut batches.published)
        };
        for DeferredChange { sums, .. } in published.into_iter().flat_map(|batch| batch.changes) {
            memory.discard(DiscardedValue::Value(sums));
        }
        if self.since.load(Ordering::Relaxed) == 0 {
            self.since.store(memory.shared().clock.epoch(), Ordering::Relaxed);
        }
    }

    /// Whether a procedure that begins is to publish: a subscriber if a change has waited since an epoch before this one;
    /// any if so many changes wait that sums which had [room](weft::column::ColumnValue::has_room) one by one might not
    /// fit together.
    #[inline(always)]
    pub fn is_due(&self, subscribes: bool, epoch: impl FnOnce() -> u64) -> bool {
        // Relaxed: a hint.
        let since = self.since.load(Ordering::Relaxed);
        since != 0
            && (subscribes && since < epoch()
                || self.changes.load(Ordering::Relaxed) >= self.changes_max)
    }

    /// Publishes all waiting changes, or waits until another worker has. To be called after the gate, while no
    /// procedure runs in pieces, or at the barrier, while no publisher does, on a worker that is pinned and in no
    /// transaction.
    ///
    /// # Errors
    /// [`Failure::DeferredOutOfRange`]: a column cannot hold the sum, so a change goes on waiting. Those of
    /// [`WorkerMemory::keep_waiting`], if another worker takes too long.
    #[inline]
    pub fn publish(
        &self,
        executor: &mut OptimisticExecutor<DbxTc>,
        eventual: Option<&EventualSnapshots>,
        memory: &WorkerMemory,
    ) -> Result<(), Failure> {
        #[cfg(feature = "canary")]
        if self.is_forgotten {
            return Ok(());
        }
        if self.are_waiting() {
            self.publish_all(u32::MAX, executor, eventual, memory)?;
        }
        Ok(())
    }

    /// As [`DeferredChanges::publish`], at the barrier. Returns false, and leaves the changes waiting, if other procedures
    /// have written the same rows too often.
    pub fn try_publish(
        &self,
        executor: &mut OptimisticExecutor<DbxTc>,
        eventual: Option<&EventualSnapshots>,
        memory: &WorkerMemory,
    ) -> Result<bool, Failure> {
        Ok(!self.are_waiting()
            || self.publish_all(ATTEMPTS_AT_BARRIER_MAX, executor, eventual, memory)?)
    }

    #[cold]
    fn publish_all(
        &self,
        attempts_max: u32,
        executor: &mut OptimisticExecutor<DbxTc>,
        eventual: Option<&EventualSnapshots>,
        memory: &WorkerMemory,
    ) -> Result<bool, Failure> {
        let _publishing = PublishLock::begin(&self.publishing, memory)?;
        self.since.store(0, Ordering::Relaxed);
        self.changes.store(0, Ordering::Relaxed);
        let take = |slot| std::mem::take(&mut self.lock(slot).waiting);
        let taken: Vec<(usize, Batch)> = (0..self.waiting.len())
            .flat_map(|slot| take(slot).into_iter().map(move |batch| (slot, batch)))
            .collect();
        let batches = taken.iter().map(|(_, batch)| batch);
        let publish =
            AssertUnwindSafe(|| publish_batches(batches, attempts_max, executor, eventual, memory));
        let published = catch_unwind(publish);
        if let Ok(Ok(true)) = published {
            // Release: pairs with the acquire in `publish`.
            self.batches.fetch_add((taken.len() as u64).wrapping_neg(), Ordering::Release);
            taken.into_iter().for_each(|(slot, batch)| self.lock(slot).published.push(batch));
            return Ok(true);
        }
        // Keep the changes, so that none of a committed procedure is lost.
        executor.abort(memory);
        taken.into_iter().for_each(|(slot, batch)| self.lock(slot).waiting.push(batch));
        self.since.store(memory.shared().clock.epoch(), Ordering::Relaxed);
        published.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn lock(&self, slot: usize) -> impl DerefMut<Target = WorkerBatches> {
        self.waiting[slot].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether changes wait, or are being published.
    #[inline]
    pub fn are_waiting(&self) -> bool {
        // Acquire: pairs with the release in `publish_all`, so what other workers have published is visible, and has given
        // up the snapshots that miss it.
        self.batches.load(Ordering::Acquire) != 0
    }

    /// Returns whether changes wait, or are being published, of procedures that belong to an eventual snapshot. The
    /// procedures have ended that were in pieces when it was drawn.
    ///
    /// # Errors
    /// Those of [`WorkerMemory::keep_waiting`], if another worker publishes for too long.
    pub fn are_missing_at(&self, snapshot: u64, memory: &WorkerMemory) -> Result<bool, Failure> {
        if !self.are_waiting() {
            return Ok(false);
        }
        let _publishing = PublishLock::begin(&self.publishing, memory)?;
        let belongs = |slot| self.lock(slot).waiting.iter().any(|batch| batch.place <= snapshot);
        Ok((0..self.waiting.len()).any(belongs))
    }

    /// Waits while a worker publishes.
    ///
    /// # Errors
    /// Those of [`WorkerMemory::keep_waiting`].
    pub fn await_publication(&self, memory: &WorkerMemory) -> Result<(), Failure> {
        // Relaxed: only for the publisher's sake, which would have to begin again because of the waiting worker's writes.
        while self.publishing.load(Ordering::Relaxed) != 0 {
            memory.keep_waiting()?;
            yield_now();
        }
        Ok(())
    }
}

/// A lock, held while a worker publishes. A mutex would not do: the code of the rows' types runs under it and
/// may block, so the workers that wait must be able to give up. Its word is the thread that holds it, or 0.
struct PublishLock<'d>(&'d Word);

impl<'d> PublishLock<'d> {
    /// Takes the lock, and waits for another worker that publishes.
    ///
    /// # Errors
    /// - Those of [`WorkerMemory::keep_waiting`].
    /// - [`Failure::NestedTransaction`] if this thread holds the lock: it publishes by another worker, the log's, and this
    ///   call comes from the code of a row's type.
    fn begin(word: &'d Word, memory: &WorkerMemory) -> Result<Self, Failure> {
        let this = this_thread();
        // Acquire: pairs with the release in `drop`, so what the previous holder has published is visible.
        while let Err(holder) = word.compare_exchange(0, this, Ordering::Acquire, Ordering::Relaxed)
        {
            // (The simulated machine has one thread, and no log.)
            if holder == this && !cfg!(weft_sim) {
                return Err(Failure::NestedTransaction);
            }
            memory.keep_waiting()?;
            yield_now();
        }
        Ok(PublishLock(word))
    }
}

/// Returns a number that no other thread has as long as this one lives.
fn this_thread() -> u64 {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    // (It has no destructor. That is why it exists until the thread has ended.)
    PLACE.with(|place| std::ptr::from_ref(place).addr() as u64)
}

impl Drop for PublishLock<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `begin`.
        self.0.store(0, Ordering::Release);
    }
}

/// Makes all changes, in one transaction. A conflict is retried, up to so many attempts; after the last one, returns
/// false. A failed transaction is to be aborted.
fn publish_batches<'b>(
    batches: impl Iterator<Item = &'b Batch> + Clone,
    attempts_max: u32,
    executor: &mut OptimisticExecutor<DbxTc>,
    eventual: Option<&EventualSnapshots>,
    memory: &WorkerMemory,
) -> Result<bool, Failure> {
    for attempt in 0..attempts_max {
        let begun = executor.begin(attempt, memory);
        debug_assert!(begun.is_ok(), "an optimistic transaction can always begin");
        let changed = make_all(batches.clone(), executor, memory);
        if memory.is_staging() {
            // SAFETY: the worker is pinned. The rows are of their tables, and are dropped when the transaction has ended.
            unsafe { memory.stage(|list| executor.list_writes(list)) };
        }
        let committing = CommitGuard(memory);
        let committed = changed.and_then(|()| {
            executor.commit(memory, || memory.draw()).map_err(|_| PublishError::Conflict)
        });
        match committed {
            Ok(()) => {
                if let (Some(eventual), Some(number)) = (eventual, memory.drawn_number()) {
                    batches.for_each(|batch| eventual.give_up_between(batch.place, number));
                }
                return Ok(true);
            }
            Err(PublishError::OutOfRange(table)) => {
                return Err(Failure::DeferredOutOfRange { table: table.core().name });
            }
            Err(PublishError::Conflict) => executor.abort(memory),
        }
        drop(committing);
        yield_now();
    }
    Ok(false)
}

/// The reason why a change could not be made.
enum PublishError {
    Conflict,
    /// The sum is not a value of its column's type, in this table.
    OutOfRange(TableRef),
}

/// Makes all changes in the transaction that is open. Those of a procedure that have no room are made after the others,
/// which may make room.
fn make_all<'b>(
    batches: impl Iterator<Item = &'b Batch>,
    executor: &mut OptimisticExecutor<DbxTc>,
    memory: &WorkerMemory,
) -> Result<(), PublishError> {
    let mut left: Vec<&Batch> = batches.collect();
    loop {
        let (before, mut refused) = (left.len(), None);
        let mut without_room = Vec::new();
        for batch in left {
            prefetch(batch);
            let mark = executor.mark();
            match batch.changes.iter().try_for_each(|change| make(change, executor, memory)) {
                Ok(()) => executor.keep(mark),
                Err(PublishError::Conflict) => return Err(PublishError::Conflict),
                Err(PublishError::OutOfRange(table)) => {
                    executor.undo_to(mark, memory);
                    without_room.push(batch);
                    refused = Some(table);
                }
            }
        }
        match refused {
            None => return Ok(()),
            Some(table) if without_room.len() == before => {
                return Err(PublishError::OutOfRange(table));
            }
            Some(_) => left = without_room,
        }
    }
}

/// Fetches the rows of a procedure's changes side by side. They have left the caches since the procedure.
fn prefetch(batch: &Batch) {
    batch.changes.iter().for_each(|change| change.record.prefetch_header());
    for DeferredChange { table, record, .. } in &batch.changes {
        // SAFETY: the worker is pinned, and no procedure deletes a row with a deferred change.
        unsafe { record.prefetch_row(table.core().row_bytes) };
    }
}

fn make(
    change: &DeferredChange<TidOnly>,
    executor: &mut OptimisticExecutor<DbxTc>,
    memory: &WorkerMemory,
) -> Result<(), PublishError> {
    let DeferredChange { table, record, sums } = change;
    let observed =
        executor.read_for_write(*table, *record, memory).map_err(|_| PublishError::Conflict)?;
    let Visible::Row(onto) = observed.visible else {
        // No procedure deletes rows of the table, by the analysis, and no outsider has run since the change was
        // deferred.
        unreachable!("a row with a deferred change was deleted")
    };
    let place = memory.allocate_row(*table);
    // SAFETY: this is a visible row of the table, the worker is pinned, and the place is new.
    let has_added = memory.in_user_code(|| unsafe { sums.add_to(onto, place) });
    if !has_added {
        // SAFETY: the place is new, and no row was written there.
        unsafe { memory.free_block(VersionHeader::block(place), table.core().row_class) };
        return Err(PublishError::OutOfRange(*table));
    }
    // SAFETY: a complete row, which no other code has.
    memory.in_user_code(|| unsafe { memory.count_row_heap(*table, place) });
    executor.write(*table, *record, observed.version, place);
    Ok(())
}
