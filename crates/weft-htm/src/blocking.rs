//! Threads, mutexes and condition variables for code that may sleep while it waits: the threads of the log and
//! of the clock, and those of tests.
//!
//! Mutexes and condition variables are those of the standard library. Builds with `--cfg weft_sanitize` replace
//! them with ones that ThreadSanitizer understands.
use std::cell::RefCell;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::PoisonError;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

#[cfg(weft_sanitize)]
pub use crate::sanitize::{
    BlockingGuard as MutexGuard, BlockingMutex as Mutex, Condvar, WaitTimeoutResult,
};
#[cfg(shuttle)]
pub use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, WaitTimeoutResult},
    thread::{Thread, current as current_thread, park},
};
#[cfg(not(any(weft_sanitize, shuttle)))]
pub use std::sync::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};
#[cfg(not(shuttle))]
pub use std::thread::{Thread, current as current_thread};

/// Locks a mutex, also if a thread has panicked while it held it.
pub fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks the calling thread until another one unparks it, or the time has passed, as [`std::thread::park_timeout`]
/// does. Where a test chooses which thread runs next, lets other threads run instead.
pub fn park_timeout(time: Duration) {
    if cfg!(any(loom, shuttle, weft_sim, feature = "interleave")) {
        crate::word::yield_now();
    } else {
        std::thread::park_timeout(time);
    }
}

/// Blocks the calling thread until another one unparks it, as [`std::thread::park`] does, or for no reason. Where a
/// test chooses which thread runs next, lets other threads run instead.
#[cfg(not(shuttle))]
pub fn park() {
    if cfg!(any(loom, weft_sim, feature = "interleave")) {
        crate::word::yield_now();
    } else {
        std::thread::park();
    }
}

/// Starts threads that may borrow from their environment. [`scope`] makes one.
pub struct Scope<'scope, 'env> {
    scope: &'scope std::thread::Scope<'scope, 'env>,
    running: RefCell<Vec<ScopedJoinHandle<'scope, ()>>>,
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Scope").finish_non_exhaustive()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    ///
    /// # Panics
    ///
    /// If the operating system cannot start a thread.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'scope) {
        let thread = self.scope.spawn(work);
        self.running.borrow_mut().push(thread);
    }
}

/// Like [`std::thread::scope`], but also waits until each thread has dropped its thread-locals and ended. The
/// standard library waits only until a thread's closure has returned, and does it in a way that ThreadSanitizer
/// does not see.
///
/// ```
/// let mut numbers = [0, 0];
/// weft_htm::blocking::scope(|scope| {
///     for number in &mut numbers {
///         scope.spawn(|| *number += 1);
///     }
/// });
/// assert_eq!(numbers, [1, 1]);
/// ```
///
/// # Panics
///
/// If one of the threads panics, with the same payload.
pub fn scope<'env, R>(body: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> R) -> R {
    std::thread::scope(|scope| {
        let scope = Scope { scope, running: RefCell::default() };
        let result = body(&scope);
        for thread in scope.running.into_inner() {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        result
    })
}
