//! Pieces as hardware regions (§2.3, §3.3).
//!
//! With [`DbxTcOptions::in_regions`](super::DbxTcOptions::in_regions) a piece is one region, from its first operation
//! to its commit. The processor tracks what it touches, so nothing is noted of what it reads, and nothing is
//! validated: had a record or an index node changed, there would be no region any more.
//!
//! ```text
//!   small transaction   read, note it | read, note it | write in private | [ validate notes, install ]
//!   region              [ read        | read          | write in private |                   install ]
//! ```
//!
//! What it writes is private up to its end all the same, and installed there as in the [commit](weft::commit::dbx)
//! of DBX. So a region that has to give up leaves off nowhere in particular: the piece is done as the small
//! transaction that it is otherwise, which is the region's *fallback*. It locks the records that it writes; a
//! region that meets such a lock rolls back, and one that has read the record before is rolled back by it. So
//! regions, their fallbacks and strangers get on with each other, and no lock is needed that stands for more.
//!
//! A piece whose region was too large is not tried as one the next few times: the attempt costs as much as the piece.
//!
//! An error, or a panic, that is no conflict is concluded from what the region has read. So the region ends first,
//! with nothing installed: then what it has read was true at that moment. What is left to do, to unlink the records
//! that were put into indexes, is done behind it.
//!
//! **The serialization point** is the end of the region.

use weft::commit::access_set::{Replaced, TidHeader, TidOnly, visible};
use weft::commit::dbx::install_in_region;
use weft::commit::optimistic::stored;
use weft::commit::{Observation, Visible};
use weft::store::record::RecordPointer;
use weft::store::record::tid::Tid;
use weft::store::worker::WorkerMemory;
#[cfg(weft_sim)]
use weft_htm::planted::Bug;
use weft_htm::word::Ordering;
use weft_htm::{Opened, RetryPolicy};

use super::{PieceExecutor, Standing};

/// At so many aborts by the size of a region it is given up. Once may be the doing of another thread on the same core.
const CAPACITY_ABORTS_MAX: u32 = 2;

/// The version of a record, and its newest row. Rolls the region back if a twin has locked the record.
#[inline(always)]
fn newest_in_region(record: RecordPointer<TidOnly>, memory: &WorkerMemory) -> (Tid, *mut u8) {
    let record = stored(record);
    let tid = record.header.tid().load_relaxed();
    #[cfg(weft_sim)]
    let tid = if Bug::LocksPassed.is_planted() { tid.unlocked() } else { tid };
    if tid.is_locked() {
        memory.regions().abort_open_locked();
    }
    // Acquire: pairs with the release store of whoever has installed the row.
    (tid, record.newest.load(Ordering::Acquire).address())
}

impl PieceExecutor {
    /// See [`ChopsProcedures::open_region`](super::ChopsProcedures::open_region).
    #[inline]
    pub(super) fn open_region(&mut self, piece: usize, memory: &WorkerMemory) {
        if !self.shared.in_regions || self.standing != Standing::InPieces {
            return;
        }
        if !self.known.may_fit(piece) {
            return;
        }
        #[cfg(weft_sim)]
        memory.begin_undoable();
        let regions = memory.regions();
        let policy = regions.policy();
        let capacity = policy.capacity.min(CAPACITY_ABORTS_MAX);
        let opened = regions.open(RetryPolicy { capacity, ..policy });
        self.is_in_region = opened == Opened::InRegion;
        #[cfg(weft_sim)]
        if !self.is_in_region {
            memory.end_undoable();
        }
        if opened == Opened::TooLarge {
            self.known.does_not_fit(piece);
        }
    }

    /// As [`Executor::read`](super::Executor::read).
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

    /// As [`Executor::read_for_write`](super::Executor::read_for_write).
    #[inline]
    pub(super) fn observe_in_region(
        &mut self,
        record: RecordPointer<TidOnly>,
        memory: &WorkerMemory,
    ) -> Observation<Replaced> {
        let set = &self.optimistic.set;
        set.observe_own(record).unwrap_or_else(|| {
            let (tid, newest) = newest_in_region(record, memory);
            set.observe(tid, newest)
        })
    }

    /// Commits the piece with its region. It cannot fail.
    #[inline]
    pub(super) fn commit_region(&mut self, memory: &WorkerMemory, epoch: &impl Fn() -> u64) {
        install_in_region(&self.optimistic.set.writes, epoch());
        // ==== serialization point ====
        self.close_region(memory);
        // Later pieces may look at them.
        self.garbage.append(&mut self.optimistic.set.superseded);
        self.optimistic.retire(memory);
    }

    /// See [`Executor::close_region`](super::Executor::close_region).
    #[inline]
    pub(super) fn close_region(&mut self, memory: &WorkerMemory) {
        if self.is_in_region {
            memory.regions().close();
            self.is_in_region = false;
            #[cfg(weft_sim)]
            memory.end_undoable();
        }
    }

    /// See [`ChopsProcedures::forget_region`](super::ChopsProcedures::forget_region). Rows are not dropped, only their blocks given
    /// back: the region may have been left anywhere, and nobody knows which are whole.
    #[cold]
    pub(super) fn forget_region(&mut self, memory: &WorkerMemory) {
        self.accesses.clear();
        self.optimistic.set.clear();
        self.forget_deferring(memory);
        self.is_in_region = false;
        #[cfg(weft_sim)]
        memory.undo();
        #[cfg(not(weft_sim))]
        let _ = memory;
    }
}
