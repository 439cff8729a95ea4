//! **Silo**: optimistic concurrency control that writes to shared memory only what it must.
//!
//! S. Tu, W. Zheng, E. Kohler, B. Liskov, S. Madden: *Speedy Transactions in Multicore In-Memory Databases*, SOSP
//! 2013; sections below are that paper's. HTCC (Wu and Tan, USENIX ATC 2016, §5) compares itself with this
//! protocol, under the name SOCC.
//!
//! The idea. Classic optimistic protocols order transactions by timestamps from a shared counter, and write the
//! timestamp to the records that were read, too. Silo does neither. A transaction that has only read a record
//! leaves no trace of it (*invisible reads*). A commit chooses its TID from what the transaction has seen: later
//! than everything in its read and write sets, later than its worker's last, and in the present epoch. So within an
//! epoch TIDs respect reads-from dependencies and overwrites, but not anti-dependencies: a transaction's TID may be
//! smaller than that of a transaction that came later and overwrote what it had read. Between epochs they respect
//! all dependencies, which is what logging by epochs needs.
//!
//! This file is the commit protocol (§4.4). The read phase is the same in all optimistic protocols. The module
//! [`optimistic`](super::optimistic) describes it.
//!
//! Header of a record: one TID word.
//!
//! ```text
//!   63               24 23              4   3      2       1       0
//!  +-------------------+-----------------+-------+-------+--------+------+
//!  | epoch             | sequence        |queued |removed| absent | lock |
//!  +-------------------+-----------------+-------+-------+--------+------+
//! ```
//!
//! **The serialization point** is where the epoch is read, with all write locks held.
//!
//! **Starvation.** An optimistic transaction that loses is run again after a randomized wait. One that has lost
//! very often [closes the turnstile](crate::Database#starvation).
//!
//! **Departures from the paper**
//! - A write has always read its record (an insert: its absence). So the record is compared with the expected
//!   version when it is locked, and the write set needs no second look.
//! - A transaction that has read one record and done nothing else commits without validation, as in `dbx`.
//! - Commutative operations are applied again after a conflict, as in `dbx`.
//! - The paper's TID word has a *latest* bit, and rows are overwritten in place. Here versions are immutable and a
//!   write swaps a pointer, so reads need not copy rows.
//! - Snapshot transactions (§4.9) are not part of this protocol. The engine has [snapshots](crate::Snapshot) for
//!   all protocols.

use super::access_set::{AccessSet, TidHeader, TidOnly, written_at};
use super::optimistic::{
    CommitContext, CommitPhases, OptimisticExecutor, hold_row, install, settle_deleted, stored,
    unlock, validate_reads, write_conflict,
};
use super::{Abort, DeletedOutcome, HoldFunction, Protocol};
use crate::store::record::StoredRecord;
use crate::store::record::tid::{Tid, fence_after_locking};

/// Silo's OCC. See the [module](self) for the paper and the idea.
#[derive(Debug)]
pub enum Silo {}

// SAFETY: reads, writes and installs are those of `OptimisticExecutor`, which keeps the contract.
unsafe impl Protocol for Silo {
    const NAME: &'static str = "silo";
    const TITLE: &'static str = "OCC, write locks in order, invisible reads, epoch TIDs";
    const SOURCE: &'static str = "Tu et al., SOSP 2013; SOCC in Wu and Tan, USENIX ATC 2016";
    const USES_HTM: bool = false;
    type Header = TidOnly;
    type Shared = ();
    type Executor = OptimisticExecutor<Self>;

    fn settle_deleted(
        record: &StoredRecord<TidOnly>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        settle_deleted(record, may_go, unlink)
    }

    const UNLINKS_AT_ONCE: bool = true;
    const HOLD_ROW: Option<HoldFunction<TidOnly>> = Some(hold_row);
}

/// What a worker remembers: the TID of its last commit.
#[doc(hidden)]
#[derive(Debug)]
pub struct LastCommit(Tid);

impl Default for LastCommit {
    fn default() -> Self {
        LastCommit(Tid::PLACEHOLDER)
    }
}

impl CommitPhases for Silo {
    type Memory = LastCommit;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn commit(
        set: &mut AccessSet<TidOnly>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort> {
        if set.is_one_read() {
            return Ok(()); // Its serialization point is the read.
        }
        // Phase 1: lock the write set, in the order of addresses, so that no two transactions can deadlock.
        if set.writes.len() > 1 {
            set.sort_writes();
        }
        context.memory.announce_commit();
        lock_in_order(set)?;
        // ==== serialization point ====
        // Orders the announcement before the draw as well.
        fence_after_locking(set.writes.len());
        let epoch = epoch();
        // Phase 2: validate the read set and the node set.
        if let Err(abort) = validate_reads(set, |record| set.find_write(record).is_some()) {
            unlock(&set.writes);
            return Err(abort);
        }
        // Phase 3: choose the TID, install, unlock.
        let reads = set.reads.iter().map(|read| read.observed);
        let writes = set.writes.iter().map(|write| write.expected);
        let tid = context.remembered.commit_tid(reads.chain(writes), epoch);
        // SAFETY: the number is drawn, the write set is locked, and nothing can fail any more.
        unsafe { set.prepare_writes(context.memory) };
        install(&set.writes, |write| written_at(write, tid));
        Ok(())
    }
}

/// Locks the sorted write set. Waits for other holders. This cannot deadlock: no transaction waits for a lock that
/// comes earlier in the order than one that it holds.
#[cfg_attr(not(debug_assertions), inline(always))]
fn lock_in_order(set: &AccessSet<TidOnly>) -> Result<(), Abort> {
    for (position, write) in set.writes.iter().enumerate() {
        let word = stored(write.record).header.tid();
        while word.lock_at(write.expected).is_err() {
            let tid = word.load_unlocked();
            if tid != write.expected {
                unlock(&set.writes[..position]);
                return Err(write_conflict(write, tid));
            }
        }
    }
    Ok(())
}

impl LastCommit {
    /// Returns the smallest TID in `epoch` that is later than all TIDs `seen` on the records read or written, and
    /// later than this worker's last (§4.2).
    #[inline(always)]
    fn commit_tid(&mut self, seen: impl Iterator<Item = Tid>, epoch: u64) -> Tid {
        self.0 = seen.fold(self.0, Tid::later).next(epoch);
        self.0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_commit_tid_exceeds_all_seen_and_the_workers_last() {
        let mut last = LastCommit::default();
        let first = last.commit_tid(std::iter::empty(), 3);
        assert_eq!(first.epoch(), 3);
        let seen = first.next(3).next(3);
        let second = last.commit_tid([Tid::PLACEHOLDER, seen.deleted(3)].into_iter(), 3);
        assert_eq!(second, seen.next(3).next(3), "the flags of what was seen play no part");
        let third = last.commit_tid([first].into_iter(), 3);
        assert_eq!(third, second.next(3), "later than the last, though that was not seen again");
        assert_eq!(last.commit_tid([third].into_iter(), 4).epoch(), 4);
    }
}
