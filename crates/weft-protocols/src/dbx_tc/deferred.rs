//! Deferred execution (§3.2): changes that are not made when their procedure runs, but later, all at once.
//!
//! A *publisher*'s step adds to columns that nobody looks at but *subscribers*. It would connect the two, and so
//! merge what need not be: Delivery adds to a customer's balance, which Payment reads. The analysis (see
//! [`chopping`](mod@weft_procedures::chopping)) says of which steps it is in order that they wait: then
//! all subscribers that have not seen what is waiting come before its publishers, and all that come later
//! behind them.
//!
//! ```text
//!   Delivery 1   | orders | lines | ............................. | balance += 5 |
//!   Delivery 2        | orders | lines | ........................ | balance += 7 |
//!   Payment        | balance | (comes before both)
//!   Payment                                                                         | balance | (behind both)
//!                                                                 ^ published, while nothing runs in pieces
//! ```
//!
//! *When it is published.* Whoever [comes through the gate](super::gate) publishes what waits, and goes on when all of it
//! is published: so closures and snapshots never miss a part of a procedure. And a worker that begins a
//! procedure does so if something waits since an earlier epoch. At that moment no procedure is between two
//! pieces, so that each of them lies in one span between two publications, with its conflicting piece and
//! all else.
//!
//! *Procedures that run as one piece* beside strangers do at once what is to be done. A subscriber among them is a
//! transaction at one moment like any other. But a publisher's change would be seen before that of another
//! publisher which came before it, and is still waiting. So publishers that cannot run in pieces are strangers:
//! they come through the gate, and while they run nothing is deferred.
//!
//! *Why one transaction for each publisher suffices.* What a procedure has deferred is published at once, so no subscriber
//! sees it in part. The order among publishers does not matter, since sums commute.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;

use weft::Failure;
use weft::commit::DeferredChange;
use weft::commit::access_set::TidOnly;
use weft::commit::optimistic::OptimisticExecutor;
use weft::commit::{Executor, Visible};
use weft::store::record::version::VersionHeader;
use weft::store::table::TableRef;
use weft::store::worker::Committing;
use weft::store::worker::{Discarded, WorkerMemory};
use weft_htm::word::{Mutex, Ordering, Word, yield_now};

use super::DbxTc;

/// What one procedure has deferred.
pub type Batch = Vec<DeferredChange<TidOnly>>;

/// How many changes may wait before the next procedure that begins publishes them. Procedures under way then
/// may defer as many again.
const CHANGES_WAITING_MAX: u64 = 1 << 11;

/// What waits to be published in a database.
pub struct Deferred {
    /// By worker.
    waiting: Box<[Waiting]>,
    /// How many batches wait, or are being published.
    batches: Word,
    /// How many changes have been deferred since all was published last.
    changes: Word,
    /// An epoch in which something was deferred that waits; 0 if nothing waits.
    since: Word,
    /// Whether a worker publishes.
    publishing: Word,
    /// Whether strangers publish nothing, which is wrong.
    #[cfg(feature = "canary")]
    pub is_forgotten: bool,
}

#[repr(align(64))]
#[derive(Default)]
struct Waiting(Mutex<Vec<Batch>>);

impl std::fmt::Debug for Deferred {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Deferred").field("batches", &self.batches).finish_non_exhaustive()
    }
}

impl Deferred {
    /// For up to `workers_max` workers.
    pub fn new(workers_max: usize) -> Deferred {
        Deferred {
            waiting: (0..workers_max).map(|_| Waiting::default()).collect(),
            batches: Word::new(0),
            changes: Word::new(0),
            since: Word::new(0),
            publishing: Word::new(0),
            #[cfg(feature = "canary")]
            is_forgotten: false,
        }
    }

    /// Has what a procedure in pieces has deferred wait, before it ends.
    pub fn push(&self, slot: usize, batch: Batch, epoch: u64) {
        // Both before the procedure ends at the gate, which whoever publishes waits for.
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let mut waiting = self.waiting[slot].0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(batch);
        drop(waiting);
        if self.since.load(Ordering::Relaxed) == 0 {
            self.since.store(epoch, Ordering::Relaxed);
        }
    }

    /// Whether something has waited since an epoch before this one, or so much waits that sums which had
    /// [room](weft::column::ColumnValue::has_room) each might have none together.
    #[inline(always)]
    pub fn is_due(&self, epoch: impl FnOnce() -> u64) -> bool {
        // Relaxed: a hint.
        let since = self.since.load(Ordering::Relaxed);
        since != 0
            && (since < epoch() || self.changes.load(Ordering::Relaxed) >= CHANGES_WAITING_MAX)
    }

    /// Publishes all that waits; or waits until somebody else has. To be called behind the gate, while no
    /// procedure runs in pieces, on a worker that is pinned and in no transaction.
    ///
    /// # Errors
    /// [`Failure::DeferredOutOfRange`]: something waits on, since a column does not hold the sum. Those of
    /// [`WorkerMemory::keep_waiting`], if another worker takes too long.
    #[inline]
    pub fn publish(
        &self,
        executor: &mut OptimisticExecutor<DbxTc>,
        memory: &WorkerMemory,
    ) -> Result<(), Failure> {
        #[cfg(feature = "canary")]
        if self.is_forgotten {
            return Ok(());
        }
        // Acquire: what others have published is there.
        if self.batches.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.publish_all(executor, memory)
    }

    #[cold]
    fn publish_all(
        &self,
        executor: &mut OptimisticExecutor<DbxTc>,
        memory: &WorkerMemory,
    ) -> Result<(), Failure> {
        let _publishing = Publishing::begin(&self.publishing, memory)?;
        self.since.store(0, Ordering::Relaxed);
        self.changes.store(0, Ordering::Relaxed);
        let mut refused = None;
        for waiting in &self.waiting {
            let lock = || waiting.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut batches = std::mem::take(&mut *lock());
            while let Some(batch) = batches.pop() {
                let publish = || publish_batch(&batch, executor, memory);
                match catch_unwind(AssertUnwindSafe(publish)) {
                    Ok(Ok(())) => {
                        // Release: see `publish`.
                        self.batches.fetch_add(1_u64.wrapping_neg(), Ordering::Release);
                        for DeferredChange { sums, .. } in batch {
                            memory.discard(Discarded::Value(sums));
                        }
                    }
                    // Another batch, which waits elsewhere, may make room.
                    Ok(Err(failure)) => {
                        refused = Some(failure);
                        lock().push(batch);
                    }
                    Err(panic) => {
                        // What has committed is not lost: it waits on.
                        executor.abort(memory);
                        batches.push(batch);
                        lock().append(&mut batches);
                        self.since.store(memory.shared().clock.epoch(), Ordering::Relaxed);
                        resume_unwind(panic);
                    }
                }
            }
        }
        match refused {
            None => Ok(()),
            Some(failure) => {
                self.since.store(memory.shared().clock.epoch(), Ordering::Relaxed);
                Err(failure)
            }
        }
    }
}

/// One worker's time to publish. A mutex would not do: the rows' types run meanwhile, and may block, so those
/// that wait have to be able to give up.
struct Publishing<'d>(&'d Word);

impl<'d> Publishing<'d> {
    /// Waits until no other worker publishes.
    fn begin(word: &'d Word, memory: &WorkerMemory) -> Result<Self, Failure> {
        // Acquire: what the one before has published is there.
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            memory.keep_waiting()?;
            yield_now();
        }
        Ok(Publishing(word))
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        // Release: see `begin`.
        self.0.store(0, Ordering::Release);
    }
}

/// Makes the changes of one procedure, in a transaction.
fn publish_batch(
    batch: &Batch,
    executor: &mut OptimisticExecutor<DbxTc>,
    memory: &WorkerMemory,
) -> Result<(), Failure> {
    let mut attempt = 0;
    loop {
        let begun = executor.begin(attempt, memory);
        debug_assert!(begun.is_ok(), "others do not matter to it");
        let changed = batch.iter().try_for_each(|change| make(change, executor, memory));
        let committing = Committing(memory);
        let committed = changed.and_then(|()| {
            executor.commit(memory, || memory.draw()).map_err(|_| Unpublished::Conflict)
        });
        match committed {
            Ok(()) => return Ok(()),
            Err(unpublished) => {
                executor.abort(memory);
                if let Unpublished::OutOfRange(table) = unpublished {
                    return Err(Failure::DeferredOutOfRange { table: table.core().name });
                }
            }
        }
        drop(committing);
        attempt += 1;
        yield_now();
    }
}

/// Why a change could not be made.
enum Unpublished {
    Conflict,
    /// A sum is no value of its column's type, in this table.
    OutOfRange(TableRef),
}

fn make(
    change: &DeferredChange<TidOnly>,
    executor: &mut OptimisticExecutor<DbxTc>,
    memory: &WorkerMemory,
) -> Result<(), Unpublished> {
    let DeferredChange { table, record, sums } = change;
    let observed =
        executor.read_for_write(*table, *record, memory).map_err(|_| Unpublished::Conflict)?;
    let Visible::Row(onto) = observed.visible else {
        // The analysis: no procedure deletes rows of the table. And no stranger has run since.
        unreachable!("a row to which something was to be added is gone")
    };
    let place = memory.allocate_row(*table);
    // SAFETY: a visible row of the table, on a worker that is pinned; and a new place.
    let has_added = memory.in_user_code(|| unsafe { sums.add_to(onto, place) });
    if !has_added {
        // SAFETY: new, and no row was written there.
        unsafe { memory.free_block(VersionHeader::block(place), table.core().row_class) };
        return Err(Unpublished::OutOfRange(*table));
    }
    executor.write(*table, *record, observed.version, place);
    Ok(())
}
