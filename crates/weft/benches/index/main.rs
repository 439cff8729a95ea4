//! Speed of the indexes: nanoseconds of processor time per operation.
//!
//! `cargo bench -p weft --bench index [-- FILTER]` runs the sections whose names contain FILTER.
//! It measures processor time, not elapsed time, so that other programs disturb the numbers less. A
//! row is the median of several rounds.
#![allow(missing_docs, reason = "a benchmark has no callers")]

mod hash;
mod memory;
mod tree;

use std::time::Duration;

/// Keys in an index, as in the comparison with the indexes of others.
pub const KEYS: usize = 1_000_000;
/// Threads that use one index together.
pub const THREADS: usize = 2;
/// Rounds, whose median is reported.
pub const ROUNDS: usize = 5;

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let sections: [(&str, fn()); 2] = [("tree", tree::run), ("hash", hash::run)];
    for (name, run) in sections {
        if filter.as_ref().is_none_or(|filter| name.contains(filter.as_str())) {
            run();
        }
    }
}

/// Runs `work` on [`THREADS`] threads, each with its number, and returns the time per operation, in
/// nanoseconds. `work` returns how many operations it did.
pub fn time_threads(work: impl Fn(usize) -> usize + Sync) -> f64 {
    let work = &work;
    let total: (Duration, usize) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let start = memory::thread_time();
                    let operations = work(thread);
                    (memory::thread_time() - start, operations)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a benchmark thread panicked"))
            .fold((Duration::ZERO, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    total.0.as_nanos() as f64 / total.1 as f64
}

/// Prints one row: a name, and the median of its measurements.
pub fn report(section: &str, name: &str, measurements: &mut [f64]) {
    measurements.sort_unstable_by(f64::total_cmp);
    println!("{section:<28} {name:<24} {:>8.1} ns", measurements[measurements.len() / 2]);
}
