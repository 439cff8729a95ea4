//! A load: rows 0 to `records - 1`, in units that threads take one after another.

use std::ops::Range;
use std::thread;

use weft::Failure;
use weft::htm::word::{Mutex, Ordering, Word};

use crate::workload::Progress;

/// Rows in one unit.
const UNIT_ROWS: u64 = 10_000;

/// Loads `records` rows with so many threads, this one among them. `worker` makes what a thread
/// loads with: a function that inserts the rows of a range of keys. A thread that fails stops the
/// others at their next unit.
pub(crate) fn run<W: FnMut(Range<u64>) -> Result<(), Failure>>(
    records: u64,
    threads: usize,
    progress: Progress<'_>,
    worker: impl Fn() -> Result<W, Failure> + Sync,
) -> Result<(), Failure> {
    let failure = Mutex::new(None);
    let (next, done) = (Word::new(0), Word::new(0));
    let load = || -> Result<(), Failure> {
        let mut load_unit = worker()?;
        loop {
            // ORDERING: relaxed, here and below: the counters deal out keys and tell the progress,
            // and the end of the scope orders all that was done before it.
            let first = next.fetch_add(UNIT_ROWS, Ordering::Relaxed);
            if first >= records {
                return Ok(());
            }
            let unit = first..records.min(first + UNIT_ROWS);
            let rows = unit.end - unit.start;
            load_unit(unit)?;
            progress(done.fetch_add(rows, Ordering::Relaxed) + rows, records);
        }
    };
    let work = || {
        if let Err(reason) = load() {
            next.store(records, Ordering::Relaxed);
            failure.lock().expect("no thread panics with the lock").get_or_insert(reason);
        }
    };
    thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    match failure.into_inner().expect("no thread panics with the lock") {
        None => Ok(()),
        Some(reason) => Err(reason),
    }
}
