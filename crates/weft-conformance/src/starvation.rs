//! Starvation: one long transaction among many short ones that write what it reads. The short ones run as long
//! as it takes, and it must get through.

use weft::htm::word::{Ordering, Word};

use crate::contents::fill;
use crate::step::{HASHED, Step, StepResult};
use crate::subject::{Steps, Stop, Store, Subject};
use crate::threads::{Mode, chaos, expect_end};
use crate::verdict::Finding;

const CHECK: &str = "starvation";
const ROWS: u64 = 12;

/// Adds up all rows, twice, and writes the sum into some of them.
fn long(tx: &dyn Steps) -> Result<(), Stop> {
    let mut sum = 0;
    for key in (0..ROWS).chain(HASHED..HASHED + ROWS) {
        sum += tx.take(Step::Read(key))?.rows().iter().map(|row| row.value).sum::<i64>();
        std::thread::yield_now();
    }
    let rows = tx.take(Step::Scan(0, HASHED))?.rows();
    let again: i64 = rows.iter().map(|row| row.value).sum();
    for key in 0..ROWS / 2 {
        if tx.take(Step::Write(key, sum + again))? != StepResult::Happened(true) {
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

/// Runs long transactions on thread 0, and short ones on the others until thread 0 has finished.
///
/// # Errors
/// The finding, if there is one: above all a transaction that gave up after thousands of attempts.
pub fn check(subject: &Subject, mode: Mode, threads: usize, longs: usize) -> Result<(), Finding> {
    let store = subject.open(mode.seed());
    let initial: Vec<_> = (0..ROWS).chain(HASHED..HASHED + ROWS).map(|key| (key, 1)).collect();
    fill(&*store, &initial);
    let done = Word::new(0);
    // The other threads run until the long transactions have ended.
    let ran = mode.on_threads(CHECK, subject.threads(threads), 10 * longs, |thread, random| {
        if thread > 0 {
            while done.load(Ordering::Acquire) == 0 {
                short(&*store, random)?;
            }
            return Ok(0);
        }
        let result = (0..longs).try_for_each(|_| expect_end(CHECK, store.transact(&mut long)));
        // Also after a failure, because the others would otherwise go on for ever.
        done.store(1, Ordering::Release);
        result.map(|()| longs)
    })?;
    assert_eq!(ran.results.iter().sum::<usize>(), longs);
    Ok(())
}
