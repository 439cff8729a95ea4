//! **none**: no concurrency control at all, one transaction at a time.
//!
//! The cost floor: what a transaction costs on this storage when no other transaction runs. Every other
//! protocol is compared with it, on the same records, indexes, arenas and workloads. The difference is the
//! price of that protocol's concurrency control.
//!
//! The idea. A transaction writes in place and keeps an undo log, from which a rollback restores the old state.
//! The executor for this is in [`exclusive`]. It is correct only if no other transaction runs at the same time.
//! This file makes sure of that.
//!
//! Header of a record: nothing. A record with a null pointer has no row.
//!
//! **Serialization point**: `begin` sets a flag that only one transaction at a time can hold. A second thread
//! gets an error; it does not wait.

use weft::commit::{DeletedOutcome, Protocol, Refusal};
use weft::store::record::StoredRecord;
use weft::store::worker::WorkerMemory;
use weft_htm::word::{Ordering, Word};

use super::exclusive::{self, DeferredUnlinks, Exclusion, ExclusiveExecutor};

/// No concurrency control: one transaction at a time. See the [module](self).
#[derive(Debug)]
pub enum NoControl {}

// SAFETY: `ExclusiveExecutor` keeps the contract, and only one thread at a time runs transactions.
unsafe impl Protocol for NoControl {
    const NAME: &'static str = "none";
    const TITLE: &'static str = "no concurrency control, one thread: the cost floor";
    const SOURCE: &'static str = "-";
    const WORKERS_MAX: usize = 1;
    const USES_HTM: bool = false;
    type Header = ();
    type Shared = RunningFlag;
    type Executor = ExclusiveExecutor<RunningFlag>;

    fn settle_deleted(
        _record: &StoredRecord<()>,
        _may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        exclusive::settle_deleted(unlink)
    }
}

/// The flag that a running transaction holds.
#[derive(Debug, Default)]
pub struct RunningFlag {
    flag: Word,
    deferred: DeferredUnlinks,
}

impl Exclusion for RunningFlag {
    const IS_ONE_WORKER: bool = true;

    #[inline(always)]
    fn enter(&self, _memory: &WorkerMemory) -> Result<(), Refusal> {
        // ==== serialization point ====
        // Acquire: pairs with the release in `leave` of the previous transaction.
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
    fn deferred(&self) -> &DeferredUnlinks {
        &self.deferred
    }
}
