//! A mutex that ThreadSanitizer understands, for builds with `--cfg weft_sanitize`.
//!
//! A thread that waits for a mutex of the standard library takes it in code that is not instrumented, so
//! ThreadSanitizer would not see the order that the mutex gives. This one only tries to take it, which is
//! inlined here, and so instrumented.
use std::sync::{LockResult, MutexGuard, TryLockError};

/// A mutex like [`std::sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates a mutex that guards `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// Returns the value. No other reference to the mutex is left.
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

    /// Returns the value, through a reference that proves that the caller has it alone.
    ///
    /// # Errors
    ///
    /// As for [`std::sync::Mutex::get_mut`].
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

/// Takes a mutex of the standard library, without the code that waits for it.
pub(crate) fn lock<T: ?Sized>(mutex: &std::sync::Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}
