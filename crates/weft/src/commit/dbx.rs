//! **DBX**: optimistic concurrency control whose validation and write phase is one hardware
//! transaction.
//!
//! Z. Wang, H. Qian, J. Li, H. Chen: *Using Restricted Transactional Memory to Build a Scalable
//! In-Memory Database*, EuroSys 2014. Sections and algorithms below are that paper's.
//!
//! The idea. A transaction first runs without any synchronization except in the indexes: it remembers the version
//! of every record that it reads, and keeps its writes private (*read phase*). To commit, it checks that no record
//! that it has read has changed (*validation phase*). Then it makes its writes visible: for each record it swaps
//! one pointer and advances the version (*write phase*). Both phases together must be atomic. DBX puts them in one
//! RTM region. The region touches only the metadata of the records, so it fits, however large the rows are. If
//! there is no RTM, or the region keeps aborting, the *software twin* makes the phases atomic, with one lock bit
//! per written record.
//!
//! This file is the commit. The read phase is the same in all optimistic protocols. The module
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
//! **The serialization point** of a transaction is the moment at which its region commits. In the twin it is the
//! moment at which it holds all its write locks (`fence_before_validation`). At that moment everything that it has
//! read is still current: the twin validates this afterwards, and a version that is current and unlocked after the
//! fence was so at the fence, too. Everything that it writes is either unseen by other transactions or locked.
//!
//! **Departures from the paper**
//! - Fallback. DBX falls back to one global commit lock, which every region reads. Here the twin locks the records
//!   of its write set, and a region tests the lock bits of what it touches. So twins run in parallel with each
//!   other and with regions.
//! - A commit of more than 64 writes is not tried as a region ([`WRITES_MAX`]).
//! - The twin takes each lock at the version it expects, by a compare-and-swap of the whole word. This validates
//!   the write in the same step. The twin never waits while it holds a lock, so it cannot deadlock in any order. A
//!   transaction that has aborted before takes its locks in address order. So if two such transactions want the
//!   same records, one of them gets through.
//! - Records are read under a seqlock on the TID word, not in a region (Algorithm 2). The paper attributes 40 % of
//!   a small transaction's overhead to these regions (§7.3.2).
//! - A read of an absent key notes the version of the index node where the key would be, as range queries do
//!   (§5.3). The paper inserts an empty record, which must be cleaned up later.
//! - The sequence number is a pair with the global epoch, for the log (§5.6).
//! - Algorithm 1 validates the write set by the flag REMOVED alone, since a blind write conflicts with nothing. In
//!   this engine every write has read its record (an insert: its absence), so the version is compared, which covers
//!   REMOVED.
//! - A commit that fails because of a record which the transaction has written by commutative operations alone is
//!   tried again with the present version: see [`applied`](super::applied).
//! - A transaction that has read one record and done nothing else commits without validation: what it saw was
//!   current when it was read. (In the paper all commits run their region.)
//! - Lines 18–22 of Algorithm 1 (versions for read-only transactions) are done after the commit, in the same way
//!   for all protocols: see [`snapshot`](crate::Snapshot).

#[cfg(weft_sim)]
use weft_htm::planted::Bug;
use weft_htm::word::Ordering;

use super::access_set::{AccessSet, TidHeader, TidOnly, WriteEntry, successor};
use super::optimistic::{
    CommitContext, CommitPhases, OptimisticExecutor, commit_with_locks, hold_row, install,
    lock_expected, read_conflict, settle_deleted, stored, unlock, validate_nodes, write_conflict,
};
use super::{Abort, DeletedOutcome, HoldFunction, Protocol};
use crate::store::record::tid::Tid;
use crate::store::record::{Newest, RecordPointer, StoredRecord};
use crate::store::worker::WorkerMemory;

/// DBX: OCC with a hardware commit region. See the [module](self) for the paper and the idea.
#[derive(Debug)]
pub enum Dbx {}

// SAFETY: reads, writes and installs are those of `OptimisticExecutor`, which keeps the contract.
unsafe impl Protocol for Dbx {
    const NAME: &'static str = "dbx";
    const TITLE: &'static str = "OCC, validation and write phase in one HTM region";
    const SOURCE: &'static str = "Wang et al., EuroSys 2014";
    const USES_HTM: bool = true;
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

    const RESTARTS_IN_SNAPSHOTS: bool = true;
    const UNLINKS_AT_ONCE: bool = true;
    const HOLD_ROW: Option<HoldFunction<TidOnly>> = Some(hold_row);
}

impl CommitPhases for Dbx {
    type Memory = ();

    /// Validation and write phase (§5.2, Algorithm 1).
    #[inline(always)]
    fn commit(
        set: &mut AccessSet<TidOnly>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort> {
        commit_in_region_or_with_locks(set, context.attempt, context.memory, epoch)
    }
}

/// Commits, in a hardware region if there is one, and otherwise with locks.
#[cfg_attr(not(debug_assertions), inline(always))]
pub fn commit_in_region_or_with_locks<H: TidHeader>(
    set: &mut AccessSet<H>,
    attempt: u32,
    memory: &WorkerMemory,
    epoch: &impl Fn() -> u64,
) -> Result<(), Abort> {
    if set.is_one_read() {
        return Ok(()); // Its serialization point is the read.
    }
    // After an abort, lock in address order: see the departures.
    if attempt > 0 && set.writes.len() > 1 {
        set.sort_writes();
    }
    match commit_in_region(set, 0, memory, epoch) {
        Some(outcome) => outcome.map(drop),
        None => commit_with_locks(set, memory, epoch),
    }
}

/// As [`Dbx`] commits, except for hot records, those for which `is_hot` holds. Hot records to be written are locked
/// before the region, and written after it. So other transactions that read them in the meantime do not abort the
/// region.
#[cfg_attr(not(debug_assertions), inline(always))]
pub fn commit_hot_and_cold<H: TidHeader>(
    set: &mut AccessSet<H>,
    attempt: u32,
    memory: &WorkerMemory,
    is_hot: impl Fn(&WriteEntry<H>) -> bool,
    epoch: &impl Fn() -> u64,
) -> Result<(), Abort> {
    if !memory.regions().is_hardware() || !set.writes.iter().any(&is_hot) {
        return commit_in_region_or_with_locks(set, attempt, memory, epoch);
    }
    let hot = set.partition_writes(is_hot);
    lock_expected(&set.writes[..hot])?;
    set.writes[..hot].iter_mut().for_each(WriteEntry::find_replaced);
    match commit_in_region(set, hot, memory, epoch) {
        Some(Ok(epoch)) => {
            install(&set.writes[..hot], |write| successor(write, epoch));
            Ok(())
        }
        Some(Err(abort)) => {
            unlock(&set.writes[..hot]);
            Err(abort)
        }
        None => {
            unlock(&set.writes[..hot]);
            commit_with_locks(set, memory, epoch)
        }
    }
}

/// With more writes than this a region is not tried. A region of many writes lasts long, and until it ends every access
/// of another thread to one of its lines aborts it. Then all of it is repeated, several times if it has to be. Locks are
/// given back once, and what was locked is not repeated (decision 19).
const WRITES_MAX: usize = 64;

/// Runs Algorithm 1 in one hardware region, for all but the first `locked` writes, whose records this transaction
/// has locked. Returns the epoch. Returns `None` if there is no hardware, if there are too many writes, or if the region gave
/// up.
#[cfg_attr(not(debug_assertions), inline(always))]
fn commit_in_region<H: TidHeader>(
    set: &AccessSet<H>,
    locked: usize,
    memory: &WorkerMemory,
    epoch: &impl Fn() -> u64,
) -> Option<Result<u64, Abort>> {
    let regions = memory.regions();
    if !regions.is_hardware() || set.writes.len() - locked > WRITES_MAX {
        return None;
    }
    let is_own_lock = |record: RecordPointer<H>| {
        locked > 0 && set.find_write(record).is_some_and(|position| position < locked)
    };
    regions.run(
        |region| {
            // Validate: the read set, then the write set (lines 3–14).
            for read in &set.reads {
                let tid = load_in_region(read.record, read.observed);
                if tid != read.observed
                    && !(tid == read.observed.locked() && is_own_lock(read.record))
                {
                    if tid.is_locked() && !is_own_lock(read.record) {
                        region.abort_locked();
                    }
                    return Err(read_conflict(read));
                }
            }
            validate_nodes(set)?;
            for write in &set.writes[locked..] {
                let tid = load_in_region(write.record, write.expected);
                if tid != write.expected {
                    if tid.is_locked() {
                        region.abort_locked();
                    }
                    return Err(write_conflict(write, tid));
                }
                // The engine has moved the row. That is rare, and the next attempt finds the row.
                if !write.is_in_place() {
                    return Err(write_conflict(write, tid));
                }
            }
            // Write: swap the pointers, advance the versions (lines 16–27).
            let epoch = epoch();
            install_in_region(&set.writes[locked..], epoch);
            Ok(epoch)
        },
        // After an abort because of a lock, the region waits while a record is still locked.
        || {
            let writes = set.writes[locked..].iter().map(|write| write.record);
            let mut records = set.reads.iter().map(|read| read.record).chain(writes);
            records.any(|record| {
                stored(record).header.tid().load_relaxed().is_locked() && !is_own_lock(record)
            })
        },
    )
}

/// Installs writes, inside a region.
#[cfg_attr(not(debug_assertions), inline(always))]
pub fn install_in_region<H: TidHeader>(writes: &[WriteEntry<H>], epoch: u64) {
    for write in writes {
        let record = stored(write.record);
        if let Some(row) = write.row {
            record.newest.store(Newest::of(row), Ordering::Relaxed);
        }
        record.header.tid().store_in_region(successor(write, epoch));
    }
}

/// Loads the version of a record, which should be `expected`, inside a region.
#[inline(always)]
#[cfg_attr(not(weft_sim), allow(unused_variables, reason = "for a bug that tests plant there"))]
fn load_in_region<H: TidHeader>(record: RecordPointer<H>, expected: Tid) -> Tid {
    let tid = stored(record).header.tid().load_relaxed();
    #[cfg(weft_sim)]
    if Bug::LocksPassed.is_planted() && tid == expected.locked() {
        return expected;
    }
    tid
}
