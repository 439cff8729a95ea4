//! A lock for work that any one worker can do: a worker takes it if it is free, and otherwise carries on.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use weft_htm::word::{Ordering, Word, yield_now};

/// The lock, and the value that its holder may use.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct TurnLock<T> {
    /// 1 while a worker holds the lock.
    taken: Word,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock reaches the value.
unsafe impl<T: Send> Sync for TurnLock<T> {}

/// A guard that holds the lock until it is dropped.
#[derive(Debug)]
pub struct TurnGuard<'a, T>(&'a TurnLock<T>);

impl<T> TurnLock<T> {
    /// Returns a lock that is free.
    pub fn new(value: T) -> Self {
        TurnLock { taken: Word::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock if it is free. Never waits.
    pub fn try_take(&self) -> Option<TurnGuard<'_, T>> {
        // Acquire: pairs with the release in `drop`. The plain load comes first, so that workers that find the
        // lock taken do not take its cache line away from the holder.
        let is_free = self.taken.load(Ordering::Relaxed) == 0;
        let take = || self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        (is_free && take().is_ok()).then(|| TurnGuard(self))
    }

    /// Takes the lock, and waits until it is free.
    pub fn take(&self) -> TurnGuard<'_, T> {
        loop {
            match self.try_take() {
                Some(taken) => return taken,
                None => yield_now(),
            }
        }
    }
}

impl<T> Deref for TurnGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, so no other thread uses the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for TurnGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, so no other thread uses the value.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for TurnGuard<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_take`.
        self.0.taken.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn one_worker_has_the_turn_at_a_time() {
        let turn = TurnLock::<u32>::default();
        let mut first = turn.try_take().expect("it is free");
        *first += 1;
        assert!(turn.try_take().is_none());
        assert!(turn.try_take().is_none(), "a failed try does not release it");
        drop(first);
        assert_eq!(*turn.take(), 1);
        assert!(turn.try_take().is_some());
    }
}
