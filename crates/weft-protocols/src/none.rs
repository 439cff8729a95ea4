//! **none**: no concurrency control at all, one transaction at a time.
//!
//! The floor: what a transaction costs on this storage when nobody else is there. Every other
//! protocol is compared with it, on the same records, indexes, arenas and workloads; the
//! difference is the price of its concurrency control.
//!
//! The idea. A transaction writes in place, and keeps an undo log by which it can take that back:
//! see [`exclusive`], which is the executor. What makes that right is that
//! nobody else is there; this file sees to it.
//!
//! Header of a record: nothing. A record with a null pointer has no row.
//!
//! **Serialization point**: `begin` takes a flag that only one transaction at a time can hold; a
//! second thread gets an error, not a wait.

use weft::commit::{Protocol, Refusal, Settled};
use weft::store::record::StoredRecord;
use weft::store::worker::WorkerMemory;
use weft_htm::word::{Ordering, Word};

use super::exclusive::{self, Deferred, Exclusion, ExclusiveExecutor};

/// No concurrency control: one transaction at a time. See the [module](self).
#[derive(Debug)]
pub enum NoControl {}

// SAFETY: `ExclusiveExecutor` keeps the contract; one thread runs transactions at a time.
unsafe impl Protocol for NoControl {
    const NAME: &'static str = "none";
    const TITLE: &'static str = "no concurrency control, one thread: the cost floor";
    const SOURCE: &'static str = "-";
    const WORKERS_MAX: usize = 1;
    const USES_HTM: bool = false;
    type Header = ();
    type Shared = Running;
    type Executor = ExclusiveExecutor<Running>;

    fn settle_deleted(
        _record: &StoredRecord<()>,
        _may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> Settled {
        exclusive::settle_deleted(unlink)
    }
}

/// The flag that a running transaction holds.
#[derive(Debug, Default)]
pub struct Running {
    flag: Word,
    deferred: Deferred,
}

impl Exclusion for Running {
    const IS_ONE_WORKER: bool = true;

    #[inline(always)]
    fn enter(&self, _memory: &WorkerMemory) -> Result<(), Refusal> {
        // ==== serialization point ====
        // Acquire: pairs with the release in `leave` of the transaction before.
        match self.flag.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::Busy),
        }
    }

    #[inline(always)]
    fn leave(&self, _memory: &WorkerMemory) {
        // Release: pairs with the acquire in `enter`.
        self.flag.store(0, Ordering::Release);
    }

    #[inline(always)]
    fn deferred(&self) -> &Deferred {
        &self.deferred
    }
}
