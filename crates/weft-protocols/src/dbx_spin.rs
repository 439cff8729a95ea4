//! **dbx-spin**: DBX with a spinlock in place of the commit region.
//!
//! Z. Wang, H. Qian, J. Li, H. Chen: *Using Restricted Transactional Memory to Build a Scalable
//! In-Memory Database*, EuroSys 2014, §7.3: the counterpart by which the paper shows what hardware
//! transactional memory is worth to its transaction layer.
//!
//! The idea. Everything is as in [`dbx`](weft::commit::dbx), but that validation and write phase are made
//! atomic by one lock for the whole database, which every commit takes, whatever it has read and
//! written. The index operations stay as they are. With few threads that is cheap; with many they
//! queue.
//!
//! Header of a record: one TID word, as in [`dbx`](weft::commit::dbx). Shared by all workers: the lock, a
//! word that is 1 while it is held, on a cache line of its own.
//!
//! **The serialization point** is where the epoch is read, inside the lock.
//!
//! **Starvation.** As for [`dbx`](weft::commit::dbx): a transaction that has lost very often [closes the
//! turnstile](weft::Database#starvation). The lock itself is not fair.
//!
//! **Departures from the paper**
//! - The paper takes the lock for reading a record as well, because there a read is a region of
//!   its own. Here `dbx` reads records under a seqlock, without a region, so there is nothing to
//!   replace; the lock bit of the TID word tells readers that a version is being installed.
//! - A transaction that has written nothing takes the lock too: its validation was in a region.

use weft::commit::access_set::{AccessSet, TidOnly};
use weft::commit::optimistic::{
    CommitContext, CommitPhases, OptimisticExecutor, commit_with_locks, settle_deleted,
};
use weft::commit::{Abort, Protocol, Settled};
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
    ) -> Settled {
        settle_deleted(record, may_go, unlink)
    }
}

/// The lock that every commit takes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CommitLock {
    held: Word,
}

impl CommitLock {
    /// Test and test-and-set; after a while it yields, for the holder may have been preempted.
    #[inline(always)]
    fn lock(&self) {
        // Acquire: pairs with the release in `unlock`.
        while self.held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        let mut spins = 0u32;
        // Relaxed: the compare-and-exchange that follows is what counts.
        while self.held.load(Ordering::Relaxed) != 0 {
            spins += 1;
            if spins.is_multiple_of(64) { yield_now() } else { spin_loop() }
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        // Release: pairs with the acquire in `lock`.
        self.held.store(0, Ordering::Release);
    }
}

impl CommitPhases for DbxSpin {
    type Memory = ();

    /// Algorithm 1, with a lock where the paper has XBEGIN and XEND.
    #[inline(always)]
    fn commit(
        set: &mut AccessSet<TidOnly>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort> {
        context.shared.lock();
        let outcome = commit_with_locks(set, epoch);
        context.shared.unlock();
        outcome
    }
}
