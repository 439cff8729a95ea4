//! Pieces as hardware regions (§2.3, §3.3).
//!
//! With [`DbxTcOptions::in_regions`](super::DbxTcOptions::in_regions) a piece is one region, from its first
//! operation to its commit. The processor tracks what it touches. So its reads are not noted, and nothing is
//! validated: if a record or an index node had changed, the region would have aborted.
//!
//! ```text
//!   small transaction   read, note it | read, note it | write in private | [ validate notes, install ]
//!   region              [ read        | read          | write in private |                   install ]
//! ```
//!
//! With [caches](super::cache) its new records are put into indexes after the region.
//!
//! Its writes are private until its end all the same, and are installed there as in the
//! [commit](weft::commit::dbx) of DBX. So when a region gives up, there is nothing to clean up, and the piece
//! runs as a small transaction instead, which is the region's *fallback*. The fallback locks the records that
//! it writes. A region that meets such a lock rolls back, and a region that has read the record before is
//! rolled back by the lock. So regions, their fallbacks and outsiders can run side by side, and no lock is
//! needed that covers more than a record. (The paper's locks are those of [partitions](super::partition).)
//!
//! A piece that was too large for a region is not tried as one for the next few executions, because an attempt
//! costs as much as the piece.
//!
//! An error or a panic that is not a conflict follows from what the region has read. So the region ends first,
//! with nothing installed. Then what it has read was true at that moment. The rest is done after the region:
//! the records that were put into indexes are unlinked.
//!
//! **The serialization point** is the end of the region.

use weft::commit::access_set::{ReplacedVersion, TidHeader, TidOnly, visible};
use weft::commit::dbx::install_in_region;
use weft::commit::optimistic::stored;
use weft::commit::{Observation, Visible};
use weft::store::record::RecordPointer;
use weft::store::record::tid::Tid;
use weft::store::worker::WorkerMemory;
#[cfg(weft_sim)]
use weft_htm::planted::Bug;
use weft_htm::word::Ordering;
use weft_htm::{OpenOutcome, RetryPolicy};

use super::partition::CONFLICTS_MAX;
use super::{PieceExecutor, TransactionKind};

/// After this many aborts for its size a region is given up. A single one may be caused by another thread on
/// the same core.
const CAPACITY_ABORTS_MAX: u32 = 2;

/// Returns the version of a record, and its newest row. Rolls the region back if a twin has locked the record.
#[cfg_attr(not(debug_assertions), inline(always))]
fn newest_in_region(record: RecordPointer<TidOnly>, memory: &WorkerMemory) -> (Tid, *mut u8) {
    let record = stored(record);
    let tid = record.header.tid().load_relaxed();
    #[cfg(weft_sim)]
    let tid = if Bug::LocksPassed.is_planted() { tid.unlocked() } else { tid };
    if tid.is_locked() {
        memory.regions().abort_open_locked();
    }
    // Acquire: pairs with the release store of the thread that has installed the row.
    (tid, record.newest.load(Ordering::Acquire).address())
}

impl PieceExecutor {
    /// Opens a region for a piece. See [`ChopsProcedures::open_region`](super::ChopsProcedures::open_region).
    #[inline]
    pub(super) fn open_region(&mut self, piece: usize, memory: &WorkerMemory) {
        if !self.shared.in_regions || self.kind != TransactionKind::InPieces {
            return;
        }
        self.locks.piece = piece;
        // A piece that has given up a fallback for the order of its locks begins as a fallback again. As a region it
        // would wait for the same locks.
        if self.has_needed_locks() || !self.procedures.may_fit(piece) {
            return self.lock_needed();
        }
        #[cfg(weft_sim)]
        memory.begin_undoable();
        let regions = memory.regions();
        let policy = regions.policy();
        let capacity = policy.capacity.min(CAPACITY_ABORTS_MAX);
        let opened = match &self.shared.locks {
            None => regions.open(RetryPolicy { capacity, ..policy }),
            Some(locks) => {
                let conflict = policy.conflict.max(CONFLICTS_MAX);
                let touched = self.procedures.touched(piece);
                let is_excluded = || locks.is_any_held(touched);
                regions.open_unless(RetryPolicy { conflict, capacity, ..policy }, is_excluded)
            }
        };
        self.is_in_region = opened == OpenOutcome::InRegion;
        #[cfg(weft_sim)]
        if !self.is_in_region {
            memory.end_undoable();
        }
        if opened == OpenOutcome::TooLarge {
            self.procedures.note_too_large(piece);
        }
        if !self.is_in_region {
            self.lock_needed();
        }
    }

    /// Reads a record in a region. See [`Executor::read`](super::Executor::read).
    #[inline]
    pub(super) fn read_in_region(
        &mut self,
        record: RecordPointer<TidOnly>,
        memory: &WorkerMemory,
    ) -> Visible {
        self.optimistic.set.own_write(record).unwrap_or_else(|| {
            let (tid, newest) = newest_in_region(record, memory);
            visible(tid, newest)
        })
    }

    /// Reads, in a region, a record that is to be written. See
    /// [`Executor::read_for_write`](super::Executor::read_for_write).
    #[inline]
    pub(super) fn observe_in_region(
        &mut self,
        record: RecordPointer<TidOnly>,
        memory: &WorkerMemory,
    ) -> Observation<ReplacedVersion> {
        let set = &self.optimistic.set;
        set.observe_own(record).unwrap_or_else(|| {
            let (tid, newest) = newest_in_region(record, memory);
            set.observe(tid, newest)
        })
    }

    /// Commits the piece together with its region. This cannot fail.
    #[inline]
    pub(super) fn commit_region(&mut self, memory: &WorkerMemory, epoch: &impl Fn() -> u64) {
        install_in_region(&self.optimistic.set.writes, epoch());
        // ==== serialization point ====
        self.close_region(memory);
        // Later pieces may look at the superseded rows.
        self.garbage.append(&mut self.optimistic.set.superseded);
        self.optimistic.retire(memory);
    }

    /// Ends the region. See [`ChopsProcedures::close_region`](super::ChopsProcedures::close_region).
    #[inline]
    pub(super) fn close_region(&mut self, memory: &WorkerMemory) {
        if self.is_in_region {
            memory.regions().close();
            self.is_in_region = false;
            #[cfg(weft_sim)]
            memory.end_undoable();
            self.write_back(memory);
        }
    }

    /// Forgets a piece whose region was rolled back. See
    /// [`ChopsProcedures::forget_region`](super::ChopsProcedures::forget_region). Rows are not dropped; only
    /// their blocks are given back. The rollback can happen at any point, so nothing says which rows were
    /// complete.
    #[cold]
    pub(super) fn forget_region(&mut self, memory: &WorkerMemory) {
        self.optimistic.set.clear();
        self.forget_cached();
        self.forget_deferring(memory);
        self.is_in_region = false;
        #[cfg(weft_sim)]
        memory.undo();
        #[cfg(not(weft_sim))]
        let _ = memory;
    }
}
