//! A mutex that passes the baton on while another thread holds it.
//!
//! The mutex of the standard library would put the thread to sleep together with the baton. But the holder of
//! the mutex needs the baton to go on and release it.
use std::panic::Location;
use std::sync::{LockResult, MutexGuard, TryLockError};

use super::{Access, baton};

/// A mutex like [`std::sync::Mutex`]. Locking it is a point of a run, and waiting for it is a wait of the run.
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
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let access = Access::begin();
        if !baton::is_running() {
            #[cfg(weft_sanitize)]
            return crate::sanitize::lock(&self.0);
            #[cfg(not(weft_sanitize))]
            return self.0.lock();
        }
        loop {
            match self.0.try_lock() {
                Ok(guard) => {
                    access.wrote();
                    return Ok(guard);
                }
                Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                Err(TryLockError::WouldBlock) => {
                    baton::wait(Location::caller());
                }
            }
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
