//! **htm-naive**: the whole transaction, from begin to commit, in one hardware region, with one coarse lock as
//! the fallback.
//!
//! Z. Wang, H. Qian, J. Li, H. Chen: *Using Restricted Transactional Memory to Build a Scalable In-Memory
//! Database*, EuroSys 2014, §7.3.2 ("Protecting Whole Transactions with RTM", Figure 10: *Simple-TM*); and the
//! direct deployment of HTM in the DBX-TC paper, §2.2. Both papers build it to show its limits.
//!
//! The idea. Hardware that makes any stretch of code atomic turns sequential code into a database. Begin is
//! XBEGIN, commit is XEND, reads and writes are plain accesses to the store, and sequential algorithms search
//! and change the indexes. The processor tracks what the transaction has touched, so there is no read set, no
//! write set and no validation. Then the limits show. A transaction of TPC-C touches kilobytes at random
//! addresses. Some of the lines that it writes fall into the same set of the first-level cache, and the region
//! aborts, however often it is retried. The transaction ends under the fallback lock, which aborts every other
//! region as well. DBX counts 42 % of transactions under the lock on one thread and 82 % on eight; DBX-TC
//! counts 88 % on one.
//!
//! The executor is that of [`none`](super::none), an undo log over writes in place ([`exclusive`]). The region
//! and its lock are an [`ElidedLock`], whose documentation says why a region may extend over function calls and
//! returns. Without RTM only the lock remains, so transactions run one after the other. That is
//! [`Protocol::TWIN`], and a result without RTM says little about the paper's.
//!
//! Header of a record: nothing. A record with a null pointer has no row.
//!
//! **Serialization point**: the end of the region (`leave`), at which all of the transaction's writes appear at
//! once. What it has read has not changed since it was read, or the region would have aborted. Under the lock,
//! the serialization point is the acquisition of the lock in `enter`. Each region reads the lock first, so it
//! never overlaps with a transaction under the lock.
//!
//! **What aborts a region** moves the transaction under the lock: system calls (also those of the arena, when
//! it needs a chunk), the first touch of a page, PAUSE, a panic that prints its message, and anything in the
//! closure that a region cannot contain.
//!
//! **A transaction that rolls back** (because the closure returns an error or panics) undoes its steps from the
//! undo log and *commits* the region. Aborting the region would be wrong: that would undo not only the
//! transaction's writes but also the decision to roll back, and would run the closure again.
//!
//! **Departures from the papers**
//! - The retry thresholds are the engine's (conflict 8, capacity 10, system event 2). DBX-TC's study takes the
//!   lock at the first capacity abort; `Builder::htm_retry_policy` sets the thresholds.
//! - Under the fallback lock the indexes run their software twins, not small regions. The lock alone is enough,
//!   and the statistics then count only the regions of whole transactions.
//! - Rows are immutable versions, as under every protocol here: an update writes a new row and swaps a pointer,
//!   where the papers change the record in place. This costs the region the cache lines of the new row, which
//!   an update in place would have written as well, and one line more.
//! - Old rows are freed after the region, so that the region does not write to them.
//!
//! **Starvation**: only regions abort, a region gives up after a bounded number of aborts, and a thread that
//! has waited long for the lock reserves it ([`ElidedLock`]). `begin` waits, and no deadline interrupts that
//! wait. A thread that keeps a transaction open blocks all others (without RTM, or after its region was
//! aborted). Two threads that hold transactions on two such databases, and each wait for the other's, wait for
//! ever.

use weft::commit::{DeletedOutcome, Protocol, Refusal};
use weft::store::record::StoredRecord;
use weft::store::worker::WorkerMemory;
use weft_htm::ElidedLock;

use super::exclusive::{self, DeferredUnlinks, Exclusion, ExclusiveExecutor};

/// Whole transactions in hardware regions. See the [module](self) for the papers and the idea.
#[derive(Debug)]
pub enum HtmNaive {}

// SAFETY: `ExclusiveExecutor` keeps the contract; while a transaction runs, no other thread changes anything.
unsafe impl Protocol for HtmNaive {
    const NAME: &'static str = "htm-naive";
    const TITLE: &'static str = "the whole transaction in one HTM region, coarse fallback lock";
    const SOURCE: &'static str = "Wang et al., EuroSys 2014, §7.3.2; DBX-TC, §2.2";
    const USES_HTM: bool = true;
    const TWIN: Option<&'static str> = Some("one coarse lock for the whole transaction");
    const KEEPS_LOCKS: bool = true;
    type Header = ();
    type Shared = CoarseLock;
    type Executor = ExclusiveExecutor<CoarseLock>;

    fn settle_deleted(
        _record: &StoredRecord<()>,
        _may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        exclusive::settle_deleted(unlink)
    }
}

/// The one lock of the database, which regions elide.
#[derive(Debug, Default)]
pub struct CoarseLock {
    lock: ElidedLock,
    deferred: DeferredUnlinks,
}

impl Exclusion for CoarseLock {
    const IS_ONE_WORKER: bool = false;

    #[inline(always)]
    fn enter(&self, memory: &WorkerMemory) -> Result<(), Refusal> {
        // ==== serialization point, if this takes the lock ====
        self.lock.enter(memory.regions());
        Ok(())
    }

    #[inline(always)]
    fn leave(&self, memory: &WorkerMemory) {
        // ==== serialization point, if this ends a region ====
        self.lock.leave(memory.regions());
    }

    #[inline(always)]
    fn deferred(&self) -> &DeferredUnlinks {
        &self.deferred
    }
}
