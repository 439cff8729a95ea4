//! **htm-naive**: the whole transaction, from begin to commit, in one hardware region; one coarse
//! lock where that does not work.
//!
//! Z. Wang, H. Qian, J. Li, H. Chen: *Using Restricted Transactional Memory to Build a Scalable
//! In-Memory Database*, EuroSys 2014, §7.3.2 ("Protecting Whole Transactions with RTM", Figure 10:
//! *Simple-TM*); and the direct deployment of HTM in the DBX-TC paper, §2.2. Both build it to show
//! what is wrong with it.
//!
//! The idea. Hardware that makes any stretch of code atomic makes a database of any sequential
//! code: begin is XBEGIN, commit is XEND, reads and writes are plain accesses to the store, and
//! the indexes are searched and changed by sequential algorithms. The processor tracks what the
//! transaction has touched, so there is no read set, no write set and no validation. Then the
//! limits show. A transaction of TPC-C touches kilobytes at random addresses, its written lines
//! fall together in some set of the first-level cache, and the region aborts, however often it is
//! tried. It ends under the fallback lock, which aborts every other region as well: DBX counts
//! 42 % of transactions under the lock on one thread and 82 % on eight, DBX-TC 88 % on one.
//!
//! The executor is that of [`none`](super::none), an undo log over writes in place
//! ([`exclusive`]); the region and its lock are an [`ElidedLock`], which says
//! why a region may reach over function calls and returns. Where there is no RTM, the lock alone
//! remains: transactions run one after the other. That is [`Protocol::TWIN`], and a result without
//! RTM says little about the paper's.
//!
//! Header of a record: nothing. A record with a null pointer has no row.
//!
//! **Serialization point**: the end of the region (`leave`), at which all it has done appears at
//! once. Whatever it has read has not changed since it was read, or the region would have aborted.
//! Under the lock: its acquisition in `enter`. Each region reads the lock first, and so never
//! overlaps with a transaction under it.
//!
//! **What aborts a region** ends under the lock: system calls (also those of the arena, when it
//! needs a chunk), the first touch of a page, PAUSE, a panic that prints its message; of course
//! also whatever the closure does that a region cannot hold.
//!
//! **A transaction that rolls back** (an error of the closure's, a panic) takes its steps back by
//! the undo log and *commits* the region. An abort of the region would not do: it would undo, with
//! the transaction's writes, the very decision to roll back, and run the closure again.
//!
//! **Departures from the papers**
//! - The retry thresholds are the engine's (conflict 8, capacity 10, system event 2).
//!   DBX-TC's study takes the lock at the first capacity abort; `Builder::htm_retry_policy` sets
//!   that.
//! - Under the fallback lock the indexes run their software twins, not small regions: the lock
//!   alone would do, and the statistics then count regions of whole transactions only.
//! - Rows are immutable versions, as under every protocol here: an update writes a new row and
//!   swaps a pointer, where the papers change the record in place. It costs the region the lines
//!   of the new row, which in-place update would have written as well, and one more.
//! - Old rows are freed after the region, so that it does not write to them.
//!
//! **Starvation**: nothing aborts but regions, a region gives up after a bounded number of aborts,
//! and a thread that has waited long for the lock reserves it ([`ElidedLock`]). `begin` waits, and
//! no deadline interrupts that wait. A thread that keeps a transaction open keeps everybody else
//! out (without RTM, or after its region was aborted); two threads that hold transactions on two
//! such databases, each waiting for the other's, wait for ever.

use weft::commit::{Protocol, Refusal, Settled};
use weft::store::record::StoredRecord;
use weft::store::worker::WorkerMemory;
use weft_htm::ElidedLock;

use super::exclusive::{self, Deferred, Exclusion, ExclusiveExecutor};

/// Whole transactions in hardware regions. See the [module](self) for the papers and the idea.
#[derive(Debug)]
pub enum HtmNaive {}

// SAFETY: `ExclusiveExecutor` keeps the contract; while it runs nobody else changes anything.
unsafe impl Protocol for HtmNaive {
    const NAME: &'static str = "htm-naive";
    const TITLE: &'static str = "the whole transaction in one HTM region, coarse fallback lock";
    const SOURCE: &'static str = "Wang et al., EuroSys 2014, §7.3.2; DBX-TC, §2.2";
    const USES_HTM: bool = true;
    const TWIN: Option<&'static str> = Some("one coarse lock for the whole transaction");
    const KEEPS_LOCKS: bool = true;
    type Header = ();
    type Shared = Coarse;
    type Executor = ExclusiveExecutor<Coarse>;

    fn settle_deleted(
        _record: &StoredRecord<()>,
        _may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> Settled {
        exclusive::settle_deleted(unlink)
    }
}

/// The one lock, which regions elide.
#[derive(Debug, Default)]
pub struct Coarse {
    lock: ElidedLock,
    deferred: Deferred,
}

impl Exclusion for Coarse {
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
    fn deferred(&self) -> &Deferred {
        &self.deferred
    }
}
