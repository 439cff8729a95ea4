//! A lock that one takes if nobody has it, and else goes on: for what is somebody's to do, whoever's.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use weft_htm::word::{Ordering, Word, yield_now};

/// What whoever has the turn may use.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Turn<T> {
    /// 1 while somebody has it.
    taken: Word,
    value: UnsafeCell<T>,
}

// SAFETY: only whoever has the turn reaches the value.
unsafe impl<T: Send> Sync for Turn<T> {}

/// The turn, until it is dropped.
#[derive(Debug)]
pub struct Taken<'a, T>(&'a Turn<T>);

impl<T> Turn<T> {
    /// Takes the turn, if nobody has it.
    pub fn try_take(&self) -> Option<Taken<'_, T>> {
        // Acquire: pairs with the release in `drop`. Looked at first, so that those who find it taken do
        // not take its cache line from whoever has it.
        let is_free = self.taken.load(Ordering::Relaxed) == 0;
        let take = || self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        (is_free && take().is_ok()).then(|| Taken(self))
    }

    /// Takes the turn when nobody has it.
    pub fn take(&self) -> Taken<'_, T> {
        loop {
            match self.try_take() {
                Some(taken) => return taken,
                None => yield_now(),
            }
        }
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: nobody else has the turn.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else has the turn.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.0.taken.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_s_turn_at_a_time() {
        let turn = Turn::<u32>::default();
        let mut first = turn.try_take().expect("nobody has it");
        *first += 1;
        assert!(turn.try_take().is_none());
        assert!(turn.try_take().is_none(), "who did not get it has not given it back");
        drop(first);
        assert_eq!(*turn.take(), 1);
        assert!(turn.try_take().is_some());
    }
}
