//! **dbx:paper**: DBX with the mechanisms of its paper, each of which can be switched off.
//!
//! Z. Wang, H. Qian, J. Li, H. Chen: *Using Restricted Transactional Memory to Build a Scalable In-Memory
//! Database*, EuroSys 2014. Sections, algorithms and lines below are that paper's.
//!
//! [`Dbx`](weft::commit::dbx) departs from the paper wherever measurements said so. This protocol takes these
//! departures back, so that a figure can be compared with the paper's own design. [`DbxPaperOptions`] has a switch
//! for each:
//!
//! | mechanism | where | without it |
//! | --- | --- | --- |
//! | a read is a region (Algorithm 2) | `CommitPhases::read_newest` | a seqlock on the version |
//! | a look-up in an index is a region (§4) | `CommitPhases::look_up` | nodes are validated by their versions |
//! | an absent key gets an empty record (§5.3) | `CommitPhases::place_absent` | the index node's version is noted |
//! | one fallback lock (§5.2) | `fall_back`, `read_under_lock` | locks of the records |
//! | thresholds by the cause of aborts (§6.1) | [`DbxPaperOptions::retry_policy`] | 100 for each cause |
//! | versions in the commit's region (lines 18–22) | `commit_in_region` | after the commit |
//!
//! Read-only transactions on the most recent snapshot (§5.4) are [snapshots](weft::Snapshot) under every protocol;
//! workloads use them with `--snapshots on`.
//!
//! Header of a record: one TID word, as in [`dbx`](weft::commit::dbx). It is the paper's sequence number, and its
//! status. All workers share the lock (`CommitLock`).
//!
//! **The serialization point** of a transaction is the moment at which its region commits, or at which it holds the
//! write locks under `CommitLock`. While a thread holds `CommitLock`, no region runs, since each region has loaded it.
//!
//! **Starvation.** As under [`dbx`](weft::commit::dbx). The lock is not fair.
//!
//! **Departures from the paper**
//! - A commit that falls back holds `CommitLock`, and also the locks of the records that it writes, because the
//!   collector of deleted records knows only these. It never waits for them.
//! - The region of a read loads the row's first line. The row is copied after the region, if at all: rows do not change.
//! - An empty record stays until its grace period has passed, like a deleted one. The paper does not say when it goes.
//! - A look-up that falls back is the software algorithm of the index, which validates nodes, and takes no lock. So is
//!   a look-up without hardware. Scans take no region, and neither does the search for the rows that a procedure
//!   announces, which finds several at a time (decision 8). TPC-C announces most of its rows.
//! - A version for readers is the row that is replaced; what no snapshot needs is unlinked after the commit. In the paper
//!   a version's number lies in the record, here it lies in front of the row, on a line of its own. So that the region
//!   writes no more lines than the paper's, the new rows have the present number before it begins (`number_rows`). The
//!   region reads the number again, and writes it to the rows only if it has changed.
//! - The write set is validated by its versions, not by the flag REMOVED alone: see [`dbx`](weft::commit::dbx).
//! - Without hardware, every region is its fallback. Then reads and commits take turns at `CommitLock`, which is the
//!   paper's counterpart with a spinlock.

mod options;

pub use options::DbxPaperOptions;
#[cfg(feature = "canary")]
pub use options::PaperFlaw;

use std::ptr::NonNull;

use weft::ConflictReason;
use weft::Failure;
use weft::commit::access_set::{AccessSet, ReadEntry, TidHeader, TidOnly};
use weft::commit::dbx::install_in_region;
use weft::commit::optimistic::{
    CommitContext, CommitPhases, OptimisticExecutor, commit_with_locks, read_conflict, read_newest,
    settle_deleted, stored, validate_nodes, write_conflict,
};
use weft::commit::{Abort, DeletedOutcome, Protocol, ProtocolOptions, ProtocolShared};
use weft::encoding::EncodedKey;
use weft::index::{Insertion, Lookup};
use weft::store::record::tid::Tid;
use weft::store::record::version::{UNNUMBERED, VersionHeader};
use weft::store::record::{RecordPointer, StoredRecord};
use weft::store::table::TableRef;
use weft::store::worker::{Growth, WorkerMemory};
use weft_htm::Region;
#[cfg(weft_sim)]
use weft_htm::planted::Bug;
use weft_htm::word::Ordering;

use crate::dbx_spin::CommitLock;

/// DBX with the mechanisms of its paper. See the [module](self).
#[derive(Debug)]
pub enum DbxPaper {}

/// What the workers share: the options, and the lock to which regions fall back.
#[derive(Debug)]
pub struct DbxPaperShared {
    options: DbxPaperOptions,
    lock: CommitLock,
}

impl ProtocolShared for DbxPaperShared {
    fn new(options: &ProtocolOptions) -> Result<Self, Failure> {
        let options = options.given.get::<DbxPaperOptions>().copied().unwrap_or_default();
        Ok(DbxPaperShared { options, lock: CommitLock::default() })
    }
}

// SAFETY: reads are complete, since commits and reads exclude each other; writes and installs are those of
// `OptimisticExecutor`, which keeps the contract.
unsafe impl Protocol for DbxPaper {
    const NAME: &'static str = "dbx:paper";
    const TITLE: &'static str = "DBX with the mechanisms of its paper, chosen by --paper";
    const SOURCE: &'static str = "Wang et al., EuroSys 2014";
    const USES_HTM: bool = true;
    const TWIN: Option<&'static str> = Some("one spinlock for reads and commits");
    type Header = TidOnly;
    type Shared = DbxPaperShared;
    type Executor = OptimisticExecutor<Self>;

    fn settle_deleted(
        record: &StoredRecord<TidOnly>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        settle_deleted(record, may_go, unlink)
    }
}

impl CommitPhases for DbxPaper {
    type Memory = ();
    const MAY_COMMIT_ONTO_PRESENT: bool = false;

    /// Algorithm 2 (Read), from line 6 on.
    #[inline(always)]
    fn read_newest(
        shared: &DbxPaperShared,
        record: RecordPointer<TidOnly>,
        memory: &WorkerMemory,
    ) -> (Tid, *mut u8) {
        let options = &shared.options;
        #[cfg(feature = "canary")]
        if options.has_flaw(PaperFlaw::UnprotectedReads) {
            return load_pair(record);
        }
        if options.spinlock {
            return read_under_lock(shared, record);
        }
        if !options.reads_in_regions {
            return read_newest(record);
        }
        match read_in_region(shared, record, memory) {
            Some(read) => read,
            None if options.global_fallback => read_under_lock(shared, record),
            None => read_newest(record),
        }
    }

    /// A look-up in one region (§4), by the sequential algorithm. Its fallback is the look-up in software, which validates
    /// what it reads.
    #[inline(always)]
    fn look_up(
        shared: &DbxPaperShared,
        memory: &WorkerMemory,
        search: impl Fn(Option<&Region>) -> Lookup,
    ) -> Lookup {
        if !shared.options.look_ups_in_regions {
            return search(None);
        }
        let in_region = memory.regions().run(|region| search(Some(region)), || false);
        in_region.unwrap_or_else(|| search(None))
    }

    /// Read of a non-existent record (§5.3).
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn place_absent(
        set: &mut AccessSet<TidOnly>,
        shared: &DbxPaperShared,
        (table, key, link): (TableRef, impl FnOnce() -> EncodedKey, impl FnOnce(u64) -> Insertion),
        memory: &WorkerMemory,
    ) -> Result<Option<RecordPointer<TidOnly>>, Abort> {
        let has_room = || memory.make_room::<Failure>(table.core(), Growth::Insert, 0).is_ok();
        if !shared.options.absent_records || !has_room() {
            return Ok(None);
        }
        let record = empty_record(set, table, memory);
        let observed = stored(record).header.tid().load_relaxed();
        match link(record.address()) {
            Insertion::Found(address) => {
                // SAFETY: no other thread has the empty record.
                unsafe { memory.free_record_block(record.block(), table) };
                // SAFETY: the table's own index holds addresses of its records.
                Ok(Some(unsafe { RecordPointer::from_address(address) }))
            }
            Insertion::Inserted { change, sibling } => {
                // Like a deleted record, it leaves the index after a grace period, unless it has a row by then.
                memory.retire_deleted(record.block(), table, key());
                if set.note_own_insertion(table, change, sibling) {
                    // If the transaction has scanned this range, the node has told it that the key was absent, and does
                    // not tell it any more. From now on the empty record does. The transaction reads it a moment later,
                    // when another one may have filled it.
                    set.reads.push(ReadEntry { record, observed, table });
                    Ok(Some(record))
                } else {
                    Err(Abort::of_table(ConflictReason::RangeChanged, table))
                }
            }
        }
    }

    /// Algorithm 1 (Commit).
    #[inline(always)]
    fn commit(
        set: &mut AccessSet<TidOnly>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort> {
        let CommitContext { attempt, shared, memory, .. } = context;
        // Without the one lock, two transactions that fall back take their locks in the same order.
        if attempt > 0 && set.writes.len() > 1 && !shared.options.has_commit_lock() {
            set.sort_writes();
        }
        #[cfg(feature = "canary")]
        if shared.options.has_flaw(PaperFlaw::AbsenceNotValidated) {
            set.reads.retain(|read| !read.observed.is_absent());
        }
        #[cfg(feature = "canary")]
        if shared.options.has_flaw(PaperFlaw::NumberedTooEarly) {
            let early = epoch();
            return fall_back(set, shared, memory, &|| early);
        }
        match commit_in_region(set, shared, memory, epoch) {
            Some(outcome) => {
                if outcome.is_ok() && shared.options.versions_in_region {
                    set.note_numbered();
                }
                outcome
            }
            None => fall_back(set, shared, memory, epoch),
        }
    }
}

/// Sets the snapshot number of the rows to be installed, which no other thread can see yet.
fn number_rows(set: &AccessSet<TidOnly>, number: u64) {
    for row in set.writes.iter().filter_map(|write| write.row) {
        // SAFETY: the transaction's own row, which is not installed.
        unsafe { VersionHeader::of(row) }.set_number(number);
    }
}

/// Makes an empty record: the sequence number is the first, and it is on the list of deleted records.
fn empty_record(
    set: &AccessSet<TidOnly>,
    table: TableRef,
    memory: &WorkerMemory,
) -> RecordPointer<TidOnly> {
    let block = memory.allocate_record(table);
    // SAFETY: a new block of the table's record class.
    let record = unsafe { StoredRecord::<TidOnly>::initialise(block) };
    if table.core().holds_rows_inline() {
        // SAFETY: new, and the block has room for the inline version, which stays unused.
        unsafe { record.initialise_inline() };
    }
    let tid = set.placeholder();
    stored(record).header.tid().unlock(tid.deleted_at(tid));
    record
}

/// Loads a record's newest row and its version, in any order: a region or the lock makes the two one access.
#[inline(always)]
fn load_pair(record: RecordPointer<TidOnly>) -> (Tid, *mut u8) {
    let record = stored(record);
    // Acquire: pairs with the release of the last commit that has not run in a region.
    let newest = record.newest.load(Ordering::Acquire).address();
    if let Some(row) = NonNull::new(newest) {
        // Line 8 reads the value here. The caller copies it later, since rows never change; what counts is that the
        // row's line is loaded here.
        // SAFETY: a published row, which is not freed while the worker is pinned.
        std::hint::black_box(unsafe { VersionHeader::of(row) }.is_last());
    }
    // With the one lock, only the collector of deleted records locks a record that can be read here. It does not change
    // the row.
    (record.header.tid().load().unlocked(), newest)
}

/// Reads a record in a region (lines 6–9 of Algorithm 2). Returns `None` if there is no hardware, or if the region gave
/// up.
#[inline(always)]
fn read_in_region(
    shared: &DbxPaperShared,
    record: RecordPointer<TidOnly>,
    memory: &WorkerMemory,
) -> Option<(Tid, *mut u8)> {
    let has_lock = shared.options.has_commit_lock();
    let is_locked = || match has_lock {
        true => shared.lock.is_held(),
        false => stored(record).header.tid().load().is_locked(),
    };
    memory.regions().run(
        |region| {
            if is_locked() {
                region.abort_locked();
            }
            load_pair(record)
        },
        is_locked,
    )
}

/// Reads a record under the lock.
#[cold]
fn read_under_lock(shared: &DbxPaperShared, record: RecordPointer<TidOnly>) -> (Tid, *mut u8) {
    shared.lock.lock();
    let read = load_pair(record);
    shared.lock.unlock();
    read
}

/// Runs Algorithm 1 in one region. Returns `None` if there is no hardware, or if the region gave up.
#[cfg_attr(not(debug_assertions), inline(always))]
fn commit_in_region(
    set: &AccessSet<TidOnly>,
    shared: &DbxPaperShared,
    memory: &WorkerMemory,
    epoch: &impl Fn() -> u64,
) -> Option<Result<(), Abort>> {
    let options = &shared.options;
    if options.spinlock || !memory.regions().is_hardware() {
        return None;
    }
    let is_lock_held = || options.global_fallback && shared.lock.is_held();
    let numbered = options.versions_in_region.then(|| memory.shared().clock.number());
    if let Some(present) = numbered {
        number_rows(set, present);
    }
    let outcome = memory.regions().run(
        |region| {
            // Line 1: RTMBegin(CommitLock).
            if is_lock_held() {
                region.abort_locked();
            }
            // Validate phase: lines 3–8, then 9–14.
            for read in &set.reads {
                let tid = stored(read.record).header.tid().load_relaxed();
                if tid != read.observed {
                    if tid.is_locked() {
                        region.abort_locked();
                    }
                    return Err(read_conflict(read));
                }
            }
            validate_nodes(set)?;
            for write in &set.writes {
                let tid = stored(write.record).header.tid().load_relaxed();
                if tid != write.expected {
                    if tid.is_locked() {
                        region.abort_locked();
                    }
                    return Err(write_conflict(write, tid));
                }
            }
            // Write phase. Lines 18–23: the version gets the number of the present snapshot.
            let epoch = epoch();
            let is_old = numbered != memory.drawn_number();
            #[cfg(weft_sim)]
            let is_old = is_old && !Bug::OldNumbersKept.is_planted();
            if numbered.is_some() && is_old {
                set.writes.iter().filter_map(|write| write.row).for_each(|row| memory.number(row));
            }
            // Lines 25 and 26.
            install_in_region(&set.writes, epoch);
            Ok(())
        },
        || {
            let writes = set.writes.iter().map(|write| write.record);
            let mut records = set.reads.iter().map(|read| read.record).chain(writes);
            is_lock_held()
                || records.any(|record| stored(record).header.tid().load_relaxed().is_locked())
        },
    );
    if outcome.is_none() && numbered.is_some() {
        // A snapshot must not see an installed row with a number from before its commit.
        number_rows(set, UNNUMBERED);
    }
    outcome
}

/// Commits under the lock, or without the one lock under those of the records.
#[inline(never)]
fn fall_back(
    set: &mut AccessSet<TidOnly>,
    shared: &DbxPaperShared,
    memory: &WorkerMemory,
    epoch: &impl Fn() -> u64,
) -> Result<(), Abort> {
    #[cfg(feature = "canary")]
    let takes_lock = !shared.options.has_flaw(PaperFlaw::LockNotTaken);
    #[cfg(not(feature = "canary"))]
    let takes_lock = true;
    if !shared.options.has_commit_lock() || !takes_lock {
        return commit_with_locks(set, memory, epoch);
    }
    shared.lock.lock();
    let outcome = commit_with_locks(set, memory, epoch);
    shared.lock.unlock();
    outcome
}
