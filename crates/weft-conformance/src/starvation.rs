//! One long transaction among many short ones that write what it reads, for as long as it takes:
//! it gets through.

use weft::htm::word::{Ordering, Word};

use crate::contents::fill;
use crate::step::{HASHED, Shown, Step};
use crate::subject::{Steps, Stop, Store, Subject};
use crate::threads::{Mode, chaos, expect_end};
use crate::verdict::Finding;

const CHECK: &str = "starvation";
const ROWS: u64 = 12;

/// Adds up all rows, twice, and writes the sum into half of them.
fn long(tx: &dyn Steps) -> Result<(), Stop> {
    let mut sum = 0;
    for key in (0..ROWS).chain(HASHED..HASHED + ROWS) {
        sum += tx.take(Step::Read(key))?.rows().iter().map(|row| row.value).sum::<i64>();
        std::thread::yield_now();
    }
    let rows = tx.take(Step::Scan(0, HASHED))?.rows();
    let again: i64 = rows.iter().map(|row| row.value).sum();
    for key in 0..ROWS / 2 {
        if tx.take(Step::Write(key, sum + again))? != Shown::Happened(true) {
            return Err(Stop::Broken(format!("row {key} is gone")));
        }
    }
    Ok(())
}

fn short(store: &dyn Store, random: &mut fastrand::Rng) -> Result<(), Finding> {
    let key = random.u64(..ROWS) + if random.bool() { HASHED } else { 0 };
    let end = store.transact(&mut |tx| {
        tx.take(Step::Write(key, 1))?;
        chaos(&mut fastrand::Rng::with_seed(key));
        tx.take(Step::Write((key + 1) % ROWS, 1))?;
        Ok(())
    });
    expect_end(CHECK, end)
}

/// Thread 0 runs long transactions, the others short ones until it has done.
///
/// # Errors
/// What is found: above all, that a transaction gave up after thousands of attempts.
pub fn check(subject: &Subject, mode: Mode, threads: usize, longs: usize) -> Result<(), Finding> {
    let store = subject.open();
    let initial: Vec<_> = (0..ROWS).chain(HASHED..HASHED + ROWS).map(|key| (key, 1)).collect();
    fill(&*store, &initial);
    let done = Word::new(0);
    // The others run until the long ones have ended.
    let ran = mode.on_threads(CHECK, subject.threads(threads), 10 * longs, |thread, random| {
        if thread > 0 {
            while done.load(Ordering::Acquire) == 0 {
                short(&*store, random)?;
            }
            return Ok(0);
        }
        let result = (0..longs).try_for_each(|_| expect_end(CHECK, store.transact(&mut long)));
        // Also after a failure, or the others would go on for ever.
        done.store(1, Ordering::Release);
        result.map(|()| longs)
    })?;
    assert_eq!(ran.results.iter().sum::<usize>(), longs);
    Ok(())
}
