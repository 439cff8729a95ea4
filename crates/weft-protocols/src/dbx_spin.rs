//! **dbx-spin**: DBX with a spinlock in place of the commit region.
//!
//! Z. Wang, H. Qian, J. Li, H. Chen: *Using Restricted Transactional Memory to Build a Scalable In-Memory
//! Database*, EuroSys 2014, §7.3. With this counterpart the paper measures what hardware transactional memory
//! gains in its transaction layer.
//!
//! The idea. Everything is as in [`dbx`](weft::commit::dbx), except that one lock for the whole database makes
//! the validation and write phases atomic. Every commit takes it, whatever the transaction has read and
//! written. The index operations are unchanged. With few threads this is cheap; with many, the threads queue
//! for the lock.
//!
//! Header of a record: one TID word, as in [`dbx`](weft::commit::dbx). All workers share the lock, a word that
//! is 1 while it is held, on a cache line of its own.
//!
//! **The serialization point** is where the epoch is read, inside the lock.
//!
//! **Starvation.** As under [`dbx`](weft::commit::dbx): a transaction that has been aborted very often [closes
//! the turnstile](weft::Database#starvation). The lock itself is not fair.
//!
//! **Departures from the paper**
//! - The paper also takes the lock to read a record, because there a read is a region of its own. Here `dbx`
//!   reads records under a seqlock, without a region, so there is nothing to replace. The lock bit of the TID
//!   word tells readers that a version is being installed. The variant `dbx-spin:paper` of
//!   [`dbx:paper`](super::dbx_paper) takes the lock for reads, too.
//! - A transaction that has written nothing takes the lock too, since in the paper its validation is a region
//!   as well.

use weft::commit::access_set::{AccessSet, TidOnly};
use weft::commit::optimistic::{
    CommitContext, CommitPhases, OptimisticExecutor, commit_with_locks, hold_row, settle_deleted,
};
use weft::commit::{Abort, DeletedOutcome, HoldFunction, Protocol};
use weft::store::record::StoredRecord;
use weft_htm::word::{Ordering, Word, spin_loop, yield_now};

/// DBX with a spinlock in place of its commit region. See the [module](self).
#[derive(Debug)]
pub enum DbxSpin {}

// SAFETY: reads, writes and installs are those of `OptimisticExecutor`, which keeps the contract.
unsafe impl Protocol for DbxSpin {
    const NAME: &'static str = "dbx-spin";
    const TITLE: &'static str = "OCC, validation and write phase under one spinlock";
    const SOURCE: &'static str = "Wang et al., EuroSys 2014, §7.3";
    const USES_HTM: bool = false;
    type Header = TidOnly;
    type Shared = CommitLock;
    type Executor = OptimisticExecutor<Self>;

    fn settle_deleted(
        record: &StoredRecord<TidOnly>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        settle_deleted(record, may_go, unlink)
    }

    const HOLD_ROW: Option<HoldFunction<TidOnly>> = Some(hold_row);
}

/// The lock that every commit takes. It is not fair.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CommitLock {
    held: Word,
}

impl CommitLock {
    /// Takes the lock by test and test-and-set. After a while it yields, because the holder may have been
    /// preempted.
    #[inline(always)]
    pub(crate) fn lock(&self) {
        while !self.try_lock() {
            self.wait();
        }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> bool {
        // Acquire: pairs with the release in `unlock`.
        self.held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Returns whether the lock is held. A region that has loaded this aborts when the lock is taken.
    #[inline(always)]
    pub(crate) fn is_held(&self) -> bool {
        // Acquire: pairs with the release in `unlock`, so a region sees all that the last holder did.
        self.held.load(Ordering::Acquire) != 0
    }

    #[cold]
    fn wait(&self) {
        let mut spins = 0u32;
        // Relaxed: the compare-and-exchange that follows decides.
        while self.held.load(Ordering::Relaxed) != 0 {
            spins += 1;
            if spins.is_multiple_of(64) { yield_now() } else { spin_loop() }
        }
    }

    #[inline(always)]
    pub(crate) fn unlock(&self) {
        // Release: pairs with the acquire in `lock`.
        self.held.store(0, Ordering::Release);
    }
}

impl CommitPhases for DbxSpin {
    type Memory = ();

    /// Algorithm 1 (Commit), with the lock in place of RTMBegin and RTMEnd.
    #[inline(always)]
    fn commit(
        set: &mut AccessSet<TidOnly>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort> {
        context.shared.lock();
        // Validation phase and write phase.
        let outcome = commit_with_locks(set, context.memory, epoch);
        context.shared.unlock();
        outcome
    }
}
