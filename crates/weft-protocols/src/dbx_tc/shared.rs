//! What the workers of a database share, and what a database under `dbx-tc` offers besides.

use std::sync::Arc;

use weft::commit::{ProtocolOptions, ProtocolShared};
use weft::plan::Shape;
use weft::store::eventual::EventualSnapshots;
use weft::store::worker::WorkerMemory;
use weft::sync::gate::Gate;
use weft::{Database, Failure};
use weft_procedures::chopping::{Chopping, NotAdmitted};

use super::DbxTc;
use super::cache::Caches;
use super::deferred::DeferredChanges;
use super::partition::PartitionLocks;
#[cfg(feature = "canary")]
use super::registered::Flaw;
use super::registered::{DbxTcOptions, Procedures};

/// What the workers of a database share.
#[doc(hidden)]
#[derive(Debug)]
pub struct DbxTcShared {
    /// Between the procedures in pieces and all other transactions.
    pub(super) gate: Arc<Gate>,
    /// The barrier at which deferred changes are published (§3.2): keeps publishers in pieces apart from the worker that
    /// publishes.
    pub(super) barrier: Gate,
    pub(super) deferred: DeferredChanges,
    pub(super) procedures: Procedures,
    /// Whether pieces are regions, where there is hardware for them.
    pub(super) in_regions: bool,
    /// The snapshots that are being drawn, if they need not wait at the gate (§4).
    pub(super) eventual: Option<EventualSnapshots>,
    /// The caches of new records, if there are any (§3.3).
    pub(super) caches: Option<Caches>,
    /// The fallback locks of partitions, if there are any (§3.3).
    pub(super) locks: Option<PartitionLocks>,
    #[cfg(feature = "canary")]
    pub(super) is_cache_neglected: bool,
}

impl DbxTcShared {
    /// Whether it matters which keys a piece touches.
    #[inline(always)]
    pub(super) fn is_partitioned(&self) -> bool {
        self.caches.is_some() || self.locks.is_some()
    }

    /// Checks that a snapshot can be opened on this worker, and sets no deadline for it.
    pub(super) fn begin_snapshot(&self, memory: &WorkerMemory) -> Result<(), Failure> {
        if self.gate.is_in_pieces(memory.core() as usize) {
            return Err(Failure::NestedTransaction);
        }
        if memory.is_in_user_code() {
            return Err(Failure::NestedOperation);
        }
        memory.set_deadline(None, 0);
        Ok(())
    }
}

impl ProtocolShared for DbxTcShared {
    fn new(options: &ProtocolOptions) -> Result<Self, Failure> {
        let given = options.given.get::<DbxTcOptions>().cloned().unwrap_or_default();
        let registered = given.chop(options.may_defer)?;
        let new_gate = || Gate::new(options.workers_max);
        #[cfg_attr(not(feature = "canary"), allow(unused_mut, reason = "nothing is wrong"))]
        let (mut gate, mut barrier) = (new_gate(), new_gate());
        #[cfg_attr(not(feature = "canary"), allow(unused_mut, reason = "nothing is wrong"))]
        let mut deferred = DeferredChanges::new(options.workers_max);
        #[cfg(feature = "canary")]
        {
            if registered.is_gate_open {
                gate.leave_open();
            }
            if registered.is_barrier_open {
                barrier.leave_open();
            }
            deferred.is_forgotten = registered.is_publishing_forgotten;
            deferred.changes_max = given.changes_waiting_max.unwrap_or(deferred.changes_max);
        }
        let in_regions = registered.in_regions();
        let eventual = registered.eventual_snapshots();
        let procedures = Procedures::new(registered);
        let gate = Arc::new(gate);
        let caches = (in_regions && given.database_cache).then(Caches::new);
        let locks = (in_regions && given.partition_locks).then(PartitionLocks::new);
        Ok(DbxTcShared {
            gate,
            barrier,
            deferred,
            procedures,
            in_regions,
            eventual,
            caches,
            locks,
            #[cfg(feature = "canary")]
            is_cache_neglected: given.flaw == Some(Flaw::CacheNeglected),
        })
    }

    fn gate(&self) -> Option<Arc<Gate>> {
        Some(Arc::clone(&self.gate))
    }

    fn defers(&self) -> bool {
        self.procedures.get().chopping.options.deferral
    }
}

/// The methods of a database under `dbx-tc` that are about procedures.
pub trait ChoppedDatabase {
    /// Adds a procedure to those that run in pieces, if none of them has to be chopped differently for it.
    ///
    /// [`NotAdmitted`] names a procedure that would have to be chopped differently, and the cycle that is the
    /// reason. A procedure that is not admitted can be executed all the same, but it never runs while another
    /// one is between two pieces.
    fn admit(&self, shape: &'static Shape) -> Result<(), NotAdmitted>;

    /// Returns the pieces in which the procedures run, and the reasons.
    fn chopping(&self) -> Chopping;
}

impl ChoppedDatabase for Database<DbxTc> {
    fn admit(&self, shape: &'static Shape) -> Result<(), NotAdmitted> {
        self.open_engine(crate::INSIDE).protocol.procedures.admit(shape)
    }

    fn chopping(&self) -> Chopping {
        self.open_engine(crate::INSIDE).protocol.procedures.get().chopping.clone()
    }
}
