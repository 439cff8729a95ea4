//! Chains of versions under every interleaving of three threads, with at most two preemptions. Model-checked:
//! `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
//!
//! The content of a version is a loom cell. To free it is to write to the cell after a grace period. So loom
//! reports any access to what was freed.

use std::alloc::Layout;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use weft_htm::word::{WordPointer, fence_after_exchange};

use super::*;
use crate::store::record::tid::{Tid, TidWord};
use crate::store::retention::{NONE_OPEN, Retention, life};
use crate::sync::clock::{ActivityWords, Clock};
use crate::sync::reclaim::GracePeriods;

/// A version with its row.
#[repr(C, align(16))]
struct Version {
    header: VersionHeader,
    row: UnsafeCell<u64>,
}

const _: () = assert!(std::mem::offset_of!(Version, row) == VersionHeader::BYTES);

impl Version {
    /// Creates a version that replaces `previous`, and returns its row.
    fn new(number: u64, previous: Option<NonNull<u8>>) -> NonNull<u8> {
        let previous = previous.map_or(ptr::null_mut(), NonNull::as_ptr);
        let header =
            VersionHeader { number: Word::new(number), previous: WordPointer::new(previous) };
        let version = Box::new(Version { header, row: UnsafeCell::new(number) });
        // SAFETY: the row lies behind the header.
        unsafe { NonNull::from(Box::leak(version)).cast::<u8>().add(VersionHeader::BYTES) }
    }

    fn row<'a>(row: NonNull<u8>) -> &'a UnsafeCell<u64> {
        // SAFETY: boxes are freed when the model has ended.
        unsafe { row.cast().as_ref() }
    }
}

fn header<'a>(row: NonNull<u8>) -> &'a VersionHeader {
    // SAFETY: as in `Version::row`.
    unsafe { VersionHeader::of(row) }
}

/// A row that can be sent to another thread.
#[derive(Clone, Copy)]
struct Row(NonNull<u8>);

// SAFETY: it leads to shared words, and to a cell that loom watches.
unsafe impl Send for Row {}

impl Row {
    fn get(self) -> NonNull<u8> {
        self.0
    }
}

/// One record.
struct Kernel {
    newest: WordPointer<u8>,
    chains: ChainLocks,
    grace: GracePeriods,
}

impl Kernel {
    fn new(newest: NonNull<u8>) -> Arc<Kernel> {
        let grace = GracePeriods::new(3);
        (0..3).for_each(|slot| grace.enlist(slot));
        let newest = WordPointer::new(newest.as_ptr());
        Arc::new(Kernel { newest, chains: ChainLocks::default(), grace })
    }

    fn newest(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.newest.load(Ordering::Acquire))
    }

    /// Replaces the newest row, which is `replaced`, as a commit does.
    fn install(&self, replaced: NonNull<u8>, number: u64) -> NonNull<u8> {
        let row = Version::new(number, Some(replaced));
        header(row).set_number(UNNUMBERED);
        self.newest.store(row.as_ptr(), Ordering::Release);
        header(row).set_number(number);
        row
    }

    /// Unlinks a version that no snapshot needs.
    fn unlink(&self, row: NonNull<u8>) {
        let _chain = self.chains.lock(row);
        // SAFETY: the model's thread is pinned, and owns the version.
        unsafe { unlink(self.newest(), row) };
    }

    /// Unlinks a version that no snapshot needs, and that `above` has replaced.
    fn supersede(&self, above: NonNull<u8>, replaced: NonNull<u8>) {
        if !(header(replaced).is_last() && header(above).cut(replaced)) {
            self.unlink(replaced);
        }
    }

    /// Frees what the worker has unlinked, if its grace period has passed. The worker is not pinned.
    fn free(&self, row: NonNull<u8>) {
        let tag = self.grace.seal();
        if self.grace.horizon() >= tag {
            // SAFETY: the grace period has passed; that this is enough is what the test checks.
            Version::row(row).with_mut(|row| unsafe { *row = 0 });
        }
    }

    /// Returns what a snapshot sees.
    fn see(&self, slot: usize, snapshot: u64) -> Option<u64> {
        self.grace.pin(slot);
        let seen = loop {
            // SAFETY: this thread is pinned.
            match unsafe { seen_at(self.newest(), snapshot) } {
                // SAFETY: reached while this thread is pinned; that this is enough is what the test checks.
                SnapshotView::Row(row) => {
                    break Some(Version::row(row).with(|row| unsafe { *row }));
                }
                SnapshotView::Absent => break None,
                SnapshotView::Changed => yield_now(),
            }
        };
        self.grace.unpin(slot);
        seen
    }

    /// Returns the numbers in the chain.
    fn chain(&self) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut row = self.newest();
        while let Some(current) = row {
            numbers.push(header(current).number());
            // SAFETY: the other threads have ended.
            row = unsafe { header(current).predecessor() };
        }
        numbers
    }
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(2));
    model.check(test);
}

/// Runs three bodies at once. The first two are pinned, each in a slot of its own, and unlink a version each.
fn at_once(
    kernel: &Arc<Kernel>,
    first: impl FnOnce(&Kernel) -> Row + Send + 'static,
    second: impl FnOnce(&Kernel) -> Row + Send + 'static,
    third: impl FnOnce(&Kernel),
) {
    fn run(kernel: &Kernel, slot: usize, body: impl FnOnce(&Kernel) -> Row) {
        kernel.grace.pin(slot);
        let Row(unlinked) = body(kernel);
        kernel.grace.unpin(slot);
        kernel.free(unlinked);
    }
    let spawn_first = Arc::clone(kernel);
    let spawn_second = Arc::clone(kernel);
    let threads = [
        thread::spawn(move || run(&spawn_first, 0, first)),
        thread::spawn(move || run(&spawn_second, 1, second)),
    ];
    third(kernel);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A version is replaced, and so is its replacement, before the first transaction has unlinked what it
/// replaced. In whatever order the two transactions unlink, both old versions leave the chain, and a reader
/// that reaches one of them reads no freed memory.
#[test]
fn loom_chain_two_writers_and_a_reader() {
    model(|| {
        let oldest = Row(Version::new(1, None));
        let kernel = Kernel::new(oldest.0);
        at_once(
            &kernel,
            move |kernel| {
                let oldest = oldest.get();
                let row = kernel.install(oldest, 2);
                kernel.supersede(row, oldest);
                Row(oldest)
            },
            move |kernel| {
                let oldest = oldest.get();
                let replaced = loop {
                    match kernel.newest() {
                        Some(row) if row != oldest => break row,
                        _ => yield_now(),
                    }
                };
                let row = kernel.install(replaced, 3);
                kernel.supersede(row, replaced);
                Row(replaced)
            },
            |kernel| {
                let seen = kernel.see(2, 3);
                assert!(seen.is_none_or(|seen| (1..=3).contains(&seen)), "{seen:?}");
            },
        );
        assert_eq!(kernel.chain(), [3]);
    });
}

/// A snapshot sees the version that it needs while versions above it, which it passes, are being unlinked.
#[test]
fn loom_chain_a_snapshot_beside_unlinking_transactions() {
    model(|| {
        let oldest = Version::new(1, None);
        let middle = Row(Version::new(3, Some(oldest)));
        let newest = Row(Version::new(5, Some(middle.0)));
        let kernel = Kernel::new(newest.0);
        at_once(
            &kernel,
            // The snapshot that needed the middle version is closed.
            move |kernel| {
                let middle = middle.get();
                kernel.unlink(middle);
                Row(middle)
            },
            // No snapshot needs the version that this one replaces.
            move |kernel| {
                let newest = newest.get();
                let row = kernel.install(newest, 7);
                kernel.supersede(row, newest);
                Row(newest)
            },
            |kernel| assert_eq!(kernel.see(2, 2), Some(1)),
        );
        assert_eq!(kernel.chain(), [7, 1]);
    });
}

/// A row is deleted while the transaction that wrote it unlinks what it had replaced. The deletion counts for
/// later snapshots only, and nothing is left below it.
#[test]
fn loom_chain_a_deletion_and_a_cut() {
    model(|| {
        let oldest = Row(Version::new(1, None));
        let newest = Row(Version::new(3, Some(oldest.0)));
        let kernel = Kernel::new(newest.0);
        let writer = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || {
                let (oldest, newest) = (oldest.get(), newest.get());
                kernel.grace.pin(0);
                kernel.supersede(newest, oldest);
                kernel.grace.unpin(0);
                kernel.free(oldest);
            })
        };
        let deleter = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || {
                let newest = newest.get();
                let block = Layout::new::<Deletion>();
                // SAFETY: not of size 0; it is a block for a deletion.
                unsafe {
                    let block = NonNull::new(std::alloc::alloc(block)).unwrap();
                    let _chain = kernel.chains.lock(newest);
                    header(newest).mark_deleted(5, block);
                }
            })
        };
        assert_eq!(kernel.see(2, 4), Some(3), "before the deletion");
        writer.join().unwrap();
        deleter.join().unwrap();
        assert_eq!((kernel.see(2, 4), kernel.see(2, 5)), (Some(3), None));
        assert_eq!(kernel.chain(), [3]);
    });
}

/// A commit prepares its version before it installs it: numbers it, and detaches it from the version that it
/// replaces if no snapshot is open. A snapshot that is opened at that time sees one of the two versions, by its
/// number, and nothing that was freed.
#[test]
fn loom_chain_a_prepared_version_and_a_snapshot() {
    model(|| {
        let oldest = Row(Version::new(1, None));
        let kernel = Kernel::new(oldest.0);
        let shared = Arc::new((Clock::default(), ActivityWords::new(1), Retention::default()));
        let writer = {
            let (kernel, shared) = (Arc::clone(&kernel), Arc::clone(&shared));
            thread::spawn(move || {
                let (clock, commits, retention) = &*shared;
                let oldest = oldest.get();
                kernel.grace.pin(0);
                commits.announce(0);
                // The record's lock.
                Word::new(0).swap(1, Ordering::AcqRel);
                fence_after_exchange();
                let number = clock.number();
                let row = Version::new(number, Some(oldest));
                let is_detached = retention.oldest() == NONE_OPEN && header(oldest).is_last();
                if is_detached {
                    header(row).set_previous(ptr::null_mut());
                }
                kernel.newest.store(row.as_ptr(), Ordering::Release);
                commits.end(0);
                kernel.grace.unpin(0);
                if is_detached {
                    kernel.free(oldest);
                }
                number
            })
        };
        let (clock, commits, retention) = &*shared;
        let snapshot = retention.open(clock, &life(), || clock.take_number());
        commits.wait(1);
        let seen = kernel.see(2, snapshot);
        let number = writer.join().unwrap();
        assert_eq!(seen, Some(if number <= snapshot { number } else { 1 }));
    });
}

/// A record whose inline slot is awaited, and whose row may be moved there.
struct MovingKernel {
    record: Arc<Kernel>,
    tid: TidWord,
}

impl MovingKernel {
    /// Creates a record with the version 3 outside. Version 1, whose grace period has passed, was inline.
    fn new() -> (Arc<MovingKernel>, Row) {
        let inline = Row(Version::new(1, None));
        header(inline.0).await_slot();
        let record = Kernel::new(Version::new(3, None));
        let tid = TidWord::new(Tid::at(3));
        (Arc::new(MovingKernel { record, tid }), inline)
    }

    /// Returns the newest row together with its version, as the optimistic protocols read it.
    fn read(&self) -> (Tid, NonNull<u8>) {
        self.tid.read_with(|| self.record.newest().unwrap())
    }

    /// Moves the row into the slot. Returns the place where it was.
    fn move_row(&self, inline: NonNull<u8>) -> Option<NonNull<u8>> {
        let tid = self.tid.load();
        if tid.is_locked() || tid.is_absent() || self.tid.lock_at(tid).is_err() {
            return None;
        }
        let row = NonNull::new(self.record.newest.load(Ordering::Relaxed)).unwrap();
        // SAFETY: what the test checks.
        let contents = Version::row(row).with(|row| unsafe { *row });
        // SAFETY: as above.
        Version::row(inline).with_mut(|row| unsafe { *row = contents });
        header(inline).set_number(header(row).number());
        header(inline).set_previous(ptr::null_mut());
        self.record.newest.store(inline.as_ptr(), Ordering::Release);
        self.tid.unlock(tid);
        Some(row)
    }

    /// Installs version 5. Returns the row that it has replaced.
    fn commit(&self) -> Option<NonNull<u8>> {
        let (tid, _) = self.read();
        // As if it were prepared: detached from the version that it replaces.
        let row = Version::new(5, None);
        if self.tid.lock_at(tid).is_err() {
            return None;
        }
        // The row may have been moved since it was read.
        let replaced = self.record.newest.load(Ordering::Relaxed);
        self.record.newest.store(row.as_ptr(), Ordering::Release);
        self.tid.unlock(Tid::at(5));
        NonNull::new(replaced)
    }
}

/// A row is moved while a transaction replaces it and another one reads it. Each finds a version with the contents
/// that belong to it, and nothing is retired twice.
#[test]
fn loom_moved_row_beside_a_commit_and_a_reader() {
    model(|| {
        let (kernel, inline) = MovingKernel::new();
        let mover = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || {
                kernel.record.grace.pin(0);
                let outside = kernel.move_row(inline.get());
                kernel.record.grace.unpin(0);
                if let Some(outside) = outside {
                    kernel.record.free(outside);
                }
                outside.is_some()
            })
        };
        let writer = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || {
                kernel.record.grace.pin(1);
                let replaced = kernel.commit();
                kernel.record.grace.unpin(1);
                if let Some(replaced) = replaced {
                    kernel.record.free(replaced);
                }
                replaced.map(Row)
            })
        };
        kernel.record.grace.pin(2);
        let (tid, row) = kernel.read();
        // SAFETY: reached while this thread is pinned; that this is enough is what the test checks.
        let contents = Version::row(row).with(|row| unsafe { *row });
        kernel.record.grace.unpin(2);
        assert_eq!(tid, Tid::at(contents), "contents and version belong together");
        let is_moved = mover.join().unwrap();
        let replaced = writer.join().unwrap();
        if is_moved && let Some(Row(replaced)) = replaced {
            // If the row was moved after the commit, version 5 was moved.
            let newest = kernel.record.newest().unwrap();
            assert!(
                replaced == inline.0 || newest == inline.0,
                "the old place was not retired again"
            );
        }
    });
}

/// A record is deleted and freed while a worker wants to move its row. Exactly one of them frees the block.
#[test]
fn loom_moved_row_of_a_record_that_is_freed() {
    model(|| {
        let (kernel, inline) = MovingKernel::new();
        let freed = Arc::new(Word::new(0));
        let mover = {
            let (kernel, freed) = (Arc::clone(&kernel), Arc::clone(&freed));
            thread::spawn(move || {
                kernel.record.grace.pin(0);
                let outside = kernel.move_row(inline.get());
                kernel.record.grace.unpin(0);
                if outside.is_none() && !header(inline.0).vacate_slot() {
                    freed.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let tid = kernel.tid.lock();
        kernel.tid.unlock(tid.removed());
        // The record was unlinked. Wait until its grace period has passed.
        let tag = kernel.record.grace.seal();
        while kernel.record.grace.horizon() < tag {
            yield_now();
        }
        let is_left = header(inline.0).abandon_slot();
        if !is_left {
            freed.fetch_add(1, Ordering::Relaxed);
        }
        mover.join().unwrap();
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    });
}

/// Two transactions add to a row. The one whose commit finds that the row was replaced applies its addition to the
/// present version, and commits again. A snapshot that is opened at that time sees the additions that came before it,
/// by their numbers. No addition is lost, and nothing that was freed is read.
#[test]
fn loom_addition_applied_again_beside_another_and_a_snapshot() {
    struct Adding {
        record: Arc<Kernel>,
        tid: TidWord,
        clock: Clock,
        commits: ActivityWords,
        retention: Retention,
    }

    /// Adds to the row. Returns the commit's number, and the version that it has replaced, if that can be freed.
    fn add(kernel: &Adding, slot: usize, amount: u64) -> (u64, Option<Row>) {
        let Adding { record, tid, clock, commits, retention } = kernel;
        record.grace.pin(slot);
        let (number, replaced) = loop {
            let (present, onto) = tid.read_with(|| record.newest().unwrap());
            // SAFETY: reached while this thread is pinned; that this is enough is what the test checks.
            let sum = Version::row(onto).with(|row| unsafe { *row }) + amount;
            commits.announce(slot);
            if tid.lock_at(present).is_err() {
                commits.end(slot);
                continue;
            }
            fence_after_exchange();
            let number = clock.number();
            let row = Version::new(number, Some(onto));
            // SAFETY: no other thread has found the row yet.
            Version::row(row).with_mut(|row| unsafe { *row = sum });
            let is_detached = retention.oldest() == NONE_OPEN && header(onto).is_last();
            if is_detached {
                header(row).set_previous(ptr::null_mut());
            }
            record.newest.store(row.as_ptr(), Ordering::Release);
            tid.unlock(present.written(1));
            commits.end(slot);
            break (number, is_detached.then_some(Row(onto)));
        };
        record.grace.unpin(slot);
        (number, replaced)
    }

    model(|| {
        let oldest = Version::new(1, None);
        let kernel = Arc::new(Adding {
            record: Kernel::new(oldest),
            tid: TidWord::new(Tid::PLACEHOLDER.written(1)),
            clock: Clock::default(),
            commits: ActivityWords::new(2),
            retention: Retention::default(),
        });
        let adders = [(0, 10), (1, 200)].map(|(slot, amount)| {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || {
                let (number, replaced) = add(&kernel, slot, amount);
                if let Some(Row(replaced)) = replaced {
                    kernel.record.free(replaced);
                }
                (number, amount)
            })
        });
        let Adding { record, clock, commits, retention, .. } = &*kernel;
        let snapshot = retention.open(clock, &life(), || clock.take_number());
        commits.wait(2);
        let seen = record.see(2, snapshot);
        let added = adders.map(|adder| adder.join().unwrap());
        let before = added.iter().filter(|(number, _)| *number <= snapshot);
        assert_eq!(seen, Some(1 + before.map(|(_, amount)| amount).sum::<u64>()));
        // SAFETY: the other threads have ended.
        let sum = Version::row(record.newest().unwrap()).with(|row| unsafe { *row });
        assert_eq!(sum, 211, "no addition is lost");
    });
}
