//! Model checks of timestamp ordering: `RUSTFLAGS="--cfg loom" cargo test -p weft-protocols --lib --release
//! loom`. They try every interleaving of two transactions under the software twin, with at most two preemptions
//! (`LOOM_MAX_PREEMPTIONS=3` takes minutes, and finds no more).

use loom::sync::Arc;
use loom::thread;
use weft::store::record::NewestWord;
use weft_htm::Htm;

use super::*;

/// Two records that hold numbers in place of rows, and an index with one node and one key.
struct Kernel {
    clock: Word,
    records: [TimedRecord; 2],
    node: Word,
    slot: Word,
    index: IndexTimestamps,
}

/// Tries every interleaving with at most `LOOM_MAX_PREEMPTIONS` preemptions (default: two).
fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(2));
    model.check(test);
}

/// What all records hold at the start.
const INITIAL: usize = 1;

impl Kernel {
    fn new(tid: Tid) -> Arc<Kernel> {
        let record = || {
            let header = RecordTimestamps { tid: TidWord::new(tid), ..RecordTimestamps::default() };
            let record = StoredRecord { header, newest: NewestWord::new() };
            record.newest.store(Newest::of(row_of(INITIAL)), Ordering::Relaxed);
            record
        };
        Arc::new(Kernel {
            clock: Word::new(0),
            records: [record(), record()],
            node: Word::new(0),
            slot: Word::new(0),
            index: IndexTimestamps::default(),
        })
    }

    fn begin(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Reads or reserves a record, and waits as an executor does. Returns `None` if the access comes too late.
    fn access(&self, index: usize, access: impl Fn(&TimedRecord) -> AccessResult) -> Option<usize> {
        let record = &self.records[index];
        loop {
            match access(record) {
                AccessResult::Granted(_, row) => return Some(value_of(row)),
                AccessResult::Wait(writer) => {
                    while record.header.pending.load(Ordering::Relaxed) == writer {
                        yield_now();
                    }
                }
                AccessResult::TooLate => return None,
            }
        }
    }

    fn read(&self, index: usize, time: u64) -> Option<usize> {
        self.access(index, |record| read_at(record, time, &self.index, &software()))
    }

    fn reserve(&self, index: usize, time: u64) -> Option<usize> {
        self.access(index, |record| reserve(record, time, &software()))
    }

    fn install(&self, index: usize, time: u64, value: usize) {
        install(&self.records[index], Tid::at(time), Some(row_of(value)), &software());
    }

    fn release(&self, index: usize) {
        release(&self.records[index], None, &self.index, &software());
    }

    fn value(&self, index: usize) -> usize {
        value_of(newest(&self.records[index]))
    }
}

fn software() -> Regions {
    Regions::new(&Htm::software())
}

/// The address that stands for a row with this value. Addresses of rows are multiples of 16.
fn row_of(value: usize) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(value << 4)).expect("values are not zero")
}

/// Returns the value of the row at this address.
fn value_of(row: *mut u8) -> usize {
    row.addr() >> 4
}

/// Two increments of the same record: each one that commits counts.
#[test]
fn loom_no_update_is_lost() {
    model(|| {
        let kernel = Kernel::new(Tid::at(0));
        let increment = |kernel: &Kernel| {
            let time = kernel.begin();
            let Some(value) = kernel.reserve(0, time) else { return 0 };
            kernel.install(0, time, value + 1);
            1
        };
        let there = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || increment(&kernel))
        };
        let commits = increment(&kernel) + there.join().unwrap();
        assert!(commits > 0, "the younger of the two never aborts");
        assert_eq!(kernel.value(0), INITIAL + commits);
    });
}

/// Two transactions each read one record and write the other. If both commit, the younger has read what the
/// older has written, and the older has not read what the younger has written.
#[test]
fn loom_no_write_skew() {
    model(|| {
        let kernel = Kernel::new(Tid::at(0));
        let copy = |kernel: &Kernel, from: usize, to: usize, add: usize| {
            let time = kernel.begin();
            let value = kernel.read(from, time)?;
            kernel.reserve(to, time)?;
            kernel.install(to, time, value + add);
            Some((time, value))
        };
        let there = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || copy(&kernel, 0, 1, 10))
        };
        let here = copy(&kernel, 1, 0, 100);
        let there = there.join().unwrap();
        if let (Some((here, read_here)), Some((there, read_there))) = (here, there) {
            let (older, younger, added) = match here < there {
                true => (read_here, read_there, 100),
                false => (read_there, read_here, 10),
            };
            assert_eq!((older, younger), (INITIAL, INITIAL + added));
        }
    });
}

/// A reader of two records sees both writes of a transaction, or neither. It sees both if it is the younger and
/// the writer commits, and neither if the writer does not commit.
fn check_atomicity(commits: bool) {
    model(move || {
        let kernel = Kernel::new(Tid::at(0));
        let writer = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || {
                let time = kernel.begin();
                let reserved = [kernel.reserve(0, time), kernel.reserve(1, time)];
                let commits = commits && reserved.iter().all(Option::is_some);
                for (index, _) in reserved.iter().enumerate().filter(|(_, value)| value.is_some()) {
                    match commits {
                        true => kernel.install(index, time, INITIAL + 1),
                        false => kernel.release(index),
                    }
                }
                (time, commits)
            })
        };
        let time = kernel.begin();
        let read = [kernel.read(0, time), kernel.read(1, time)];
        let (written_at, committed) = writer.join().unwrap();
        if let [Some(first), Some(second)] = read {
            let visible = committed && written_at < time;
            assert_eq!([first, second], [INITIAL + usize::from(visible); 2]);
        }
    });
}

#[test]
fn loom_commits_are_atomic() {
    check_atomicity(true);
}

#[test]
fn loom_nothing_uncommitted_is_read() {
    check_atomicity(false);
}

/// Links a key into the node, as the indexes do.
fn link(kernel: &Kernel, address: u64) {
    let before = kernel.node.fetch_add(1, Ordering::Acquire);
    kernel.slot.store(address, Ordering::Release);
    kernel.node.store(before + 2, Ordering::Release);
}

/// If both a reader that finds the key absent and an inserter of the key go on, the reader is the older.
#[test]
fn loom_no_phantom() {
    model(|| {
        let kernel = Kernel::new(Tid::at(0));
        let reader = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || {
                let time = kernel.begin();
                let version = kernel.node.load(Ordering::Acquire);
                if version % 2 == 1 || kernel.slot.load(Ordering::Acquire) != 0 {
                    return None;
                }
                let is_unchanged = || kernel.node.load(Ordering::Relaxed) == version;
                kernel.index.protect(time, is_unchanged).ok().map(|()| time)
            })
        };
        let time = kernel.begin();
        link(&kernel, 1);
        let inserted = kernel.index.admits(time);
        if let Some(reader) = reader.join().unwrap() {
            assert!(!inserted || reader < time, "a phantom for {reader}, inserted at {time}");
        }
    });
}

/// As above, if the key has a deleted record, which is unlinked before the key is inserted again.
#[test]
fn loom_reads_outlive_an_unlinked_record() {
    model(|| {
        let kernel = Kernel::new(Tid::PLACEHOLDER.deleted_at(Tid::at(0)));
        kernel.slot.store(1, Ordering::Relaxed);
        let reader = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || {
                let time = kernel.begin();
                if kernel.slot.load(Ordering::Acquire) != 1 {
                    return None;
                }
                match read_at(&kernel.records[0], time, &kernel.index, &software()) {
                    AccessResult::Granted(tid, _) if !tid.is_removed() => Some(time),
                    _ => None,
                }
            })
        };
        let time = kernel.begin();
        let unlink = || {
            link(&kernel, 0);
            true
        };
        let settled = TimestampOrdering::settle_deleted(&kernel.records[0], |_| true, unlink);
        assert_eq!(settled, DeletedOutcome::Unlinked);
        link(&kernel, 2);
        let inserted = kernel.index.admits(time);
        if let Some(reader) = reader.join().unwrap() {
            assert!(!inserted || reader < time, "a phantom for {reader}, inserted at {time}");
        }
    });
}
