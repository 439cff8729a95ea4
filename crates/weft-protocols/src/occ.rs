//! **occ**: classic optimistic concurrency control, which locks every record that was accessed, and whose
//! timestamps respect every dependency.
//!
//! H. T. Kung and J. T. Robinson: *On Optimistic Methods for Concurrency Control*, ACM TODS 1981, in the form
//! that HTCC (Y. Wu, K.-L. Tan: *Scalable In-Memory Transaction Processing with HTM*, USENIX ATC 2016)
//! describes in §2 and compares itself with in §5: each record has a lock, held during the validation and write
//! phases, and no central counter hands out the timestamps.
//!
//! The idea. At the end of its read phase a transaction locks every record that it has accessed: in exclusive
//! mode what it writes, in shared mode what it has only read. While it holds the locks, none of these records
//! can change. It checks that none has changed before, and installs its writes. Its commit timestamp is the
//! smallest one that is later than
//!
//! - the versions that it has read and those that it replaces (it comes after their writers);
//! - the *read timestamps* of the records that it writes. A record's read timestamp is the latest commit
//!   timestamp of the transactions that have read it. It tracks the *anti-dependency*: every commit leaves its
//!   timestamp on every record that it has read;
//! - its worker's last timestamp.
//!
//! So the order of the timestamps is a serial order of the transactions. Silo gives that up (see
//! [`silo`](weft::commit::silo)). The difference between the two protocols is the cost of writing to shared
//! memory for every record read.
//!
//! Header of a record: three words.
//!
//! ```text
//!   63               24 23              4   3      2       1       0
//!  +-------------------+-----------------+-------+-------+--------+------+
//!  | epoch             | sequence        |queued |removed| absent | lock |  tid: the version,
//!  +-------------------+-----------------+-------+-------+--------+------+  and its timestamp
//!  | epoch             | sequence        | 0                             |  read timestamp
//!  +-------------------+-----------------+-------------------------------+
//!  | writer (bit 63)   |                   number of readers             |  lock
//!  +-------------------+-------------------------------------------------+
//! ```
//!
//! The third word is the lock of this protocol. The lock bit of the TID word is held as well while a version is
//! being installed, for transactions in their read phase, which take no locks.
//!
//! **The serialization point** is where the epoch is read, with all locks held.
//!
//! **Starvation.** As under all optimistic protocols: a randomized wait between attempts, and [the
//! turnstile](weft::Database#starvation) for a transaction that has been aborted very often.
//!
//! **Departures from the paper**
//! - Phantoms are found by the versions of index nodes, as in Silo. Nodes carry no read timestamp. So the
//!   commit respects an anti-dependency through a scanned range, but the timestamps respect it only between
//!   epochs, not within one.

use std::ptr::NonNull;

use weft::commit::access_set::{AccessSet, TidHeader, written_at};
use weft::commit::optimistic::{
    CommitContext, CommitPhases, OptimisticExecutor, hold_row, install, lock_expected,
    settle_deleted, stored, unlock, validate_reads,
};
use weft::commit::{Abort, DeletedOutcome, HoldFunction, Protocol};
use weft::store::record::tid::{Tid, TidWord, fence_after_locking};
use weft::store::record::{RecordPointer, StoredRecord};
use weft::store::worker::WorkerMemory;
use weft_htm::word::{Ordering, Word, spin_loop, yield_now};

/// Classic OCC. See the [module](self) for the papers and the idea.
#[derive(Debug)]
pub enum Occ {}

// SAFETY: reads, writes and installs are those of `OptimisticExecutor`, which keeps the contract.
unsafe impl Protocol for Occ {
    const NAME: &'static str = "occ";
    const TITLE: &'static str = "classic OCC, locks on all accessed, tracks anti-dependencies";
    const SOURCE: &'static str = "Kung and Robinson, TODS 1981; Wu and Tan, USENIX ATC 2016, §5";
    const USES_HTM: bool = false;
    type Header = OccHeader;
    type Shared = ();
    type Executor = OptimisticExecutor<Self>;

    fn settle_deleted(
        record: &StoredRecord<OccHeader>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        // A reader that holds the record's lock in shared mode has found it absent, and it still is.
        settle_deleted(record, may_go, unlink)
    }

    const HOLD_ROW: Option<HoldFunction<OccHeader>> = Some(hold_row);
}

/// The header of a record; see the [module](self).
#[derive(Debug)]
pub struct OccHeader {
    tid: TidWord,
    read_timestamp: TidWord,
    lock: SharedLock,
}

impl Default for OccHeader {
    fn default() -> Self {
        OccHeader {
            tid: TidWord::new(Tid::PLACEHOLDER),
            read_timestamp: TidWord::new(Tid::PLACEHOLDER.version()),
            lock: SharedLock::default(),
        }
    }
}

impl TidHeader for OccHeader {
    #[inline(always)]
    fn tid(&self) -> &TidWord {
        &self.tid
    }
}

/// What a worker remembers from one commit to the next.
#[doc(hidden)]
#[derive(Debug)]
pub struct OccMemory {
    /// The timestamp of its last commit.
    last: Tid,
    /// The locks of the commit in progress; empty between commits.
    locks: Vec<RecordLock>,
}

impl Default for OccMemory {
    fn default() -> Self {
        OccMemory { last: Tid::PLACEHOLDER.version(), locks: Vec::new() }
    }
}

// SAFETY: the list of locks is empty between commits, when the worker may change threads.
unsafe impl Send for OccMemory {}

/// A record that was accessed, and the mode in which the commit locks it.
#[derive(Clone, Copy)]
struct RecordLock {
    record: RecordPointer<OccHeader>,
    mode: Mode,
}

impl std::fmt::Debug for RecordLock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("RecordLock").field(&self.record.block()).field(&self.mode).finish()
    }
}

/// How a record is locked. `Write` sorts first, so that a record both read and written is locked for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Write,
    Read,
}

impl CommitPhases for Occ {
    type Memory = OccMemory;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn commit(
        set: &mut AccessSet<OccHeader>,
        context: CommitContext<'_, Self>,
        epoch: &impl Fn() -> u64,
    ) -> Result<(), Abort> {
        let OccMemory { last, locks } = context.remembered;
        list_accesses(set, locks);
        // Lock everything that was accessed.
        for access in locks.iter() {
            stored(access.record).header.lock.lock(access.mode);
        }
        let outcome = validate_and_write(set, locks, last, context.memory, epoch);
        for access in locks.drain(..) {
            stored(access.record).header.lock.unlock(access.mode);
        }
        outcome
    }
}

/// Lists every record accessed, once, in the order of addresses. All commits lock in this order, so they cannot
/// deadlock.
#[cfg_attr(not(debug_assertions), inline(always))]
fn list_accesses(set: &AccessSet<OccHeader>, locks: &mut Vec<RecordLock>) {
    debug_assert!(locks.is_empty());
    let reads = set.reads.iter().map(|read| RecordLock { record: read.record, mode: Mode::Read });
    let writes =
        set.writes.iter().map(|write| RecordLock { record: write.record, mode: Mode::Write });
    locks.extend(reads.chain(writes));
    let address = |access: &RecordLock| -> NonNull<u8> { access.record.block() };
    locks.sort_unstable_by_key(|access| (address(access), access.mode));
    locks.dedup_by_key(|access| address(access));
}

/// The validation and write phases, with all locks held.
#[cfg_attr(not(debug_assertions), inline(always))]
fn validate_and_write(
    set: &mut AccessSet<OccHeader>,
    locks: &[RecordLock],
    last: &mut Tid,
    memory: &WorkerMemory,
    epoch: &impl Fn() -> u64,
) -> Result<(), Abort> {
    // Validation phase: first the write set, whose TID words it locks, so that transactions in their read phase
    // see that it is being written; then the read set and the node set.
    memory.announce_commit();
    lock_expected(&set.writes)?;
    // ==== serialization point ====
    // Orders the announcement before the draw as well.
    fence_after_locking(set.writes.len());
    let epoch = epoch();
    if let Err(abort) = validate_reads(set, |record| set.find_write(record).is_some()) {
        unlock(&set.writes);
        return Err(abort);
    }
    // The commit timestamp: later than all that was read or replaced, and than all reads of what is replaced.
    let read = set.reads.iter().map(|read| read.observed);
    let replaced = set.writes.iter().map(|write| {
        write.expected.later(stored(write.record).header.read_timestamp.load_relaxed())
    });
    let timestamp = read.chain(replaced).fold(*last, Tid::later).next(epoch);
    *last = timestamp;
    // SAFETY: the number is drawn, the write set is locked, and nothing can fail any more.
    unsafe { set.prepare_writes(memory) };
    // Write phase. Each record that was only read keeps the timestamp as its read timestamp.
    install(&set.writes, |write| written_at(write, timestamp));
    for access in locks.iter().filter(|access| access.mode == Mode::Read) {
        stored(access.record).header.read_timestamp.raise(timestamp);
    }
    Ok(())
}

/// A lock that one writer or any number of readers hold, for the length of a commit.
#[derive(Debug, Default)]
struct SharedLock(Word);

const WRITER: u64 = 1 << 63;

impl SharedLock {
    /// Waits for the lock. Acquire: pairs with the releases in `unlock`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn lock(&self, mode: Mode) {
        let mut spins = 0u32;
        loop {
            // Relaxed: the compare-and-exchange checks it.
            let held = self.0.load(Ordering::Relaxed);
            let taken = match mode {
                Mode::Write if held == 0 => Some(WRITER),
                Mode::Read if held & WRITER == 0 => Some(held + 1),
                _ => None,
            };
            let exchange = |taken| {
                self.0.compare_exchange(held, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
            };
            if taken.is_some_and(exchange) {
                return;
            }
            spins += 1;
            if spins.is_multiple_of(64) { yield_now() } else { spin_loop() }
        }
    }

    /// Gives the lock back. Release: pairs with the acquire in `lock` of the next holder.
    #[inline(always)]
    fn unlock(&self, mode: Mode) {
        match mode {
            Mode::Write => self.0.store(0, Ordering::Release),
            Mode::Read => {
                self.0.fetch_add(u64::MAX, Ordering::Release);
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn read_timestamp_only_grows() {
        let header = OccHeader::default();
        let early = Tid::PLACEHOLDER.next(1);
        let late = early.next(2);
        header.read_timestamp.raise(late);
        header.read_timestamp.raise(early);
        assert_eq!(header.read_timestamp.load_relaxed(), late);
        assert_eq!(header.tid.load_relaxed(), Tid::PLACEHOLDER, "the version is another word");
    }

    #[test]
    fn lock_admits_one_writer_or_many_readers() {
        let lock = SharedLock::default();
        lock.lock(Mode::Read);
        lock.lock(Mode::Read);
        assert_eq!(lock.0.load(Ordering::Relaxed), 2);
        lock.unlock(Mode::Read);
        lock.unlock(Mode::Read);
        lock.lock(Mode::Write);
        assert_eq!(lock.0.load(Ordering::Relaxed), WRITER);
        lock.unlock(Mode::Write);
        assert_eq!(lock.0.load(Ordering::Relaxed), 0);
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft-protocols --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// If a writer replaces what a reader has read, either the writer's timestamp is later than the reader's,
    /// or the reader sees that its version is gone. The anti-dependency is never missed.
    #[test]
    fn loom_anti_dependencies_are_tracked() {
        loom::model(|| {
            let header = Arc::new(OccHeader::default());
            let seen = header.tid.load();
            let reader = {
                let header = Arc::clone(&header);
                thread::spawn(move || {
                    header.lock.lock(Mode::Read);
                    let valid = header.tid.load_relaxed() == seen;
                    let timestamp = seen.next(7);
                    if valid {
                        header.read_timestamp.raise(timestamp);
                    }
                    header.lock.unlock(Mode::Read);
                    valid.then_some(timestamp)
                })
            };
            header.lock.lock(Mode::Write);
            header.tid.lock_at(seen).unwrap();
            let timestamp = seen.later(header.read_timestamp.load_relaxed()).next(1);
            header.tid.unlock(seen.written_at(timestamp));
            header.lock.unlock(Mode::Write);
            if let Some(read_at) = reader.join().unwrap() {
                assert_eq!(
                    timestamp.later(read_at),
                    timestamp,
                    "the writer comes after the reader"
                );
                assert_ne!(timestamp, read_at);
            }
        });
    }
}
