//! Mutexes and a condition variable that ThreadSanitizer understands, for builds with `--cfg weft_sanitize`.
//!
//! A thread that waits for a mutex of the standard library takes it in code that is not instrumented. So
//! ThreadSanitizer would not see the order that the mutex gives. The types here only call `try_lock`, which is
//! inlined here, and so instrumented.
#![cfg_attr(
    feature = "interleave",
    allow(dead_code, reason = "there, the words' mutex is the one of `interleave`")
)]
#![allow(
    clippy::disallowed_types,
    reason = "waiting here is not a point of `interleave`, nor is it in the standard library"
)]

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LockResult, MutexGuard, PoisonError, TryLockError, TryLockResult};
use std::time::{Duration, Instant};

/// A mutex like [`std::sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates a mutex that guards `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// Consumes the mutex and returns the value.
    ///
    /// # Errors
    ///
    /// As for [`std::sync::Mutex::into_inner`].
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the mutex is free, and takes it.
    ///
    /// # Errors
    ///
    /// As for [`std::sync::Mutex::lock`].
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        lock(&self.0)
    }

    /// Returns a mutable reference to the value. No lock is needed, since `&mut self` proves exclusive access.
    ///
    /// # Errors
    ///
    /// As for [`std::sync::Mutex::get_mut`].
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

/// Locks a mutex of the standard library, without the library's code that waits for it.
pub(crate) fn lock<T: ?Sized>(mutex: &std::sync::Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}

/// How long a thread sleeps before it checks again what it waits for.
const NAP: Duration = Duration::from_micros(50);

/// A mutex for threads that may wait long: see [`crate::blocking`].
#[derive(Debug, Default)]
pub struct BlockingMutex<T: ?Sized>(std::sync::Mutex<T>);

/// The guard of a [`BlockingMutex`], with a reference to it.
#[derive(Debug)]
pub struct BlockingGuard<'m, T: ?Sized> {
    mutex: &'m BlockingMutex<T>,
    /// `None` while a condition variable has released the mutex.
    guard: Option<MutexGuard<'m, T>>,
}

impl<T> BlockingMutex<T> {
    /// Creates a mutex that guards `value`.
    pub const fn new(value: T) -> BlockingMutex<T> {
        BlockingMutex(std::sync::Mutex::new(value))
    }

    /// Consumes the mutex and returns the value.
    ///
    /// # Errors
    ///
    /// As for [`std::sync::Mutex::into_inner`].
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> BlockingMutex<T> {
    /// Waits until the mutex is free, and takes it.
    ///
    /// # Errors
    ///
    /// As for [`std::sync::Mutex::lock`].
    pub fn lock(&self) -> LockResult<BlockingGuard<'_, T>> {
        loop {
            match self.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                Err(TryLockError::WouldBlock) => std::thread::sleep(NAP),
            }
        }
    }

    /// Takes the mutex, if it is free.
    ///
    /// # Errors
    ///
    /// As for [`std::sync::Mutex::try_lock`].
    pub fn try_lock(&self) -> TryLockResult<BlockingGuard<'_, T>> {
        let hold = |guard| BlockingGuard { mutex: self, guard: Some(guard) };
        match self.0.try_lock() {
            Ok(guard) => Ok(hold(guard)),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(PoisonError::new(hold(poisoned.into_inner())).into())
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// Returns a mutable reference to the value. No lock is needed, since `&mut self` proves exclusive access.
    ///
    /// # Errors
    ///
    /// As for [`std::sync::Mutex::get_mut`].
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T: ?Sized> Deref for BlockingGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_deref().expect("a guard that is used holds its mutex")
    }
}

impl<T: ?Sized> DerefMut for BlockingGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_deref_mut().expect("a guard that is used holds its mutex")
    }
}

/// A condition variable for a [`BlockingMutex`]. A thread that waits polls whether it was notified.
#[derive(Debug)]
pub struct Condvar {
    notifications: AtomicU64,
}

/// The second result of [`Condvar::wait_timeout`].
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the time was over before a notification came.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

impl Condvar {
    /// Creates a condition variable.
    pub const fn new() -> Condvar {
        Condvar { notifications: AtomicU64::new(0) }
    }

    /// Releases the mutex, waits for a notification, and takes the mutex again.
    ///
    /// # Errors
    ///
    /// As for [`std::sync::Condvar::wait`].
    pub fn wait<'m, T>(&self, guard: BlockingGuard<'m, T>) -> LockResult<BlockingGuard<'m, T>> {
        self.wait_until(guard, || false)
    }

    /// Like [`Condvar::wait`], but waits for `limit` at most.
    ///
    /// # Errors
    ///
    /// As for [`std::sync::Condvar::wait_timeout`].
    pub fn wait_timeout<'m, T>(
        &self,
        guard: BlockingGuard<'m, T>,
        limit: Duration,
    ) -> LockResult<(BlockingGuard<'m, T>, WaitTimeoutResult)> {
        let begun = Instant::now();
        let mut is_over = false;
        let waited = self.wait_until(guard, || {
            is_over = begun.elapsed() >= limit;
            is_over
        });
        let result = WaitTimeoutResult(is_over);
        match waited {
            Ok(guard) => Ok((guard, result)),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), result))),
        }
    }

    fn wait_until<'m, T>(
        &self,
        mut guard: BlockingGuard<'m, T>,
        mut is_over: impl FnMut() -> bool,
    ) -> LockResult<BlockingGuard<'m, T>> {
        // This thread still holds the mutex here. So it notices every notification by a thread that takes the
        // mutex from now on. (Relaxed: the mutex gives the order. The counter only says when to look.)
        let before = self.notifications.load(Ordering::Relaxed);
        guard.guard = None;
        while self.notifications.load(Ordering::Relaxed) == before && !is_over() {
            std::thread::sleep(NAP);
        }
        guard.mutex.lock()
    }

    /// Wakes a thread that waits. (It wakes all, which is allowed.)
    pub fn notify_one(&self) {
        self.notify_all();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.notifications.fetch_add(1, Ordering::Relaxed);
    }
}
