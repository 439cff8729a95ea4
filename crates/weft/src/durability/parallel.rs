//! The division of work among threads.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;

use weft_htm::blocking::{self, Mutex};
use weft_htm::word::{Ordering, Word};

use crate::error::StorageError;

/// Runs jobs `0..jobs` on up to `threads` threads, each job on the next free thread. Returns their
/// results in order. With one thread, everything runs on the caller's thread.
///
/// # Errors
/// The error of the first job, in order, that failed. Jobs that have not begun when a job fails are
/// left out.
///
/// # Panics
/// If a job panics, with the same payload, once all threads have stopped.
pub(super) fn run<R: Send>(
    threads: usize,
    jobs: usize,
    job: impl Fn(usize) -> Result<R, StorageError> + Sync,
) -> Result<Vec<R>, StorageError> {
    if threads <= 1 || jobs <= 1 {
        return (0..jobs).map(job).collect();
    }
    let next = Word::new(0);
    let failed = Word::new(0);
    let results: Mutex<Vec<(usize, Result<R, StorageError>)>> = Mutex::default();
    let panicked = Mutex::new(None);
    let work = || {
        // Relaxed: the threads share only the number here. The mutex hands over the results.
        while failed.load(Ordering::Relaxed) == 0 {
            let number = next.fetch_add(1, Ordering::Relaxed) as usize;
            if number >= jobs {
                break;
            }
            // Jobs run code of the user's, such as constraints. After a panic, nothing that a job
            // has left half done is used.
            let result = match catch_unwind(AssertUnwindSafe(|| job(number))) {
                Ok(result) => result,
                Err(payload) => {
                    failed.store(1, Ordering::Relaxed);
                    panicked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
                    break;
                }
            };
            if result.is_err() {
                failed.store(1, Ordering::Relaxed);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    blocking::scope(|scope| {
        for _ in 1..threads.min(jobs) {
            scope.spawn(work);
        }
        work();
    });
    if let Some(payload) = panicked.into_inner().unwrap_or_else(PoisonError::into_inner) {
        resume_unwind(payload);
    }
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
