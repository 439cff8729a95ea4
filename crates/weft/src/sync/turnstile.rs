//! The turnstile: how a transaction that has lost again and again gets through.
//!
//! Below it there are three lines of defence: a protocol may let the older transaction win (2PL by
//! wait-die), `transact` waits at random, and longer each time, before it tries again, and an
//! optimistic transaction that lost locks in an order. None of them is a promise. The turnstile
//! is, under every protocol: a transaction that was aborted [`ATTEMPTS_BEFORE_CLOSING`] times
//! closes it, and holds it closed until it has ended. No other transaction begins meanwhile. Those
//! that run already come to an end, by a commit or by an abort after which they too find the
//! turnstile closed. From then on the starving transaction runs alone, and nothing is left that it
//! could lose against.
//!
//! Passing an open turnstile costs one load of a word that is hardly ever written.

use weft_htm::word::{Ordering, Word, spin_loop, yield_now};

/// After how many aborted attempts a transaction closes the turnstile.
pub const ATTEMPTS_BEFORE_CLOSING: u32 = 100;

/// Holds transactions back while a starving one gets through. One per database.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Turnstile {
    /// 1 while it is closed.
    closed: Word,
    /// How often it has been closed.
    closings: Word,
}

/// The right of the transaction that has closed the turnstile; dropping it opens it again.
#[derive(Debug)]
pub struct Closed<'a>(&'a Turnstile);

impl Turnstile {
    /// Lets a transaction that was aborted `attempts` times through, or makes it wait. One that
    /// starves closes the turnstile behind it. `keep_waiting` may end the wait with an error.
    #[inline(always)]
    pub fn pass<E>(
        &self,
        attempts: u32,
        keep_waiting: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Option<Closed<'_>>, E> {
        // Relaxed: nothing follows from it but when somebody begins. A transaction that passes
        // while the turnstile is being closed is one of those that run already.
        if self.closed.load(Ordering::Relaxed) == 0 && attempts < ATTEMPTS_BEFORE_CLOSING {
            return Ok(None);
        }
        self.wait_or_close(attempts, keep_waiting)
    }

    #[cold]
    fn wait_or_close<E>(
        &self,
        attempts: u32,
        keep_waiting: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Option<Closed<'_>>, E> {
        let mut spins = 0u32;
        loop {
            if self.closed.load(Ordering::Relaxed) == 0 {
                if attempts < ATTEMPTS_BEFORE_CLOSING {
                    return Ok(None);
                }
                // Relaxed, likewise: whoever wins is the only one to open it again.
                let order = Ordering::Relaxed;
                if self.closed.compare_exchange(0, 1, order, order).is_ok() {
                    self.closings.fetch_add(1, order);
                    return Ok(Some(Closed(self)));
                }
            }
            keep_waiting()?;
            spins += 1;
            if spins.is_multiple_of(64) { yield_now() } else { spin_loop() }
        }
    }

    /// Closes the turnstile, if it is open, and does not wait: for one that others may be waiting for.
    #[cold]
    pub fn try_close(&self) -> Option<Closed<'_>> {
        // Relaxed: as in `wait_or_close`.
        let order = Ordering::Relaxed;
        self.closed.compare_exchange(0, 1, order, order).ok()?;
        self.closings.fetch_add(1, order);
        Some(Closed(self))
    }

    /// How often it has been closed.
    pub fn closings(&self) -> u64 {
        self.closings.load(Ordering::Relaxed)
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.closed.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn one_that_starves_keeps_the_others_out() {
        let turnstile = Turnstile::default();
        let patient = &mut || Ok::<(), &str>(());
        assert!(turnstile.pass(ATTEMPTS_BEFORE_CLOSING - 1, patient).unwrap().is_none());
        let closed = turnstile.pass(ATTEMPTS_BEFORE_CLOSING, patient).unwrap();
        assert!(closed.is_some());
        let mut looks = 0;
        let mut impatient = || {
            looks += 1;
            if looks == 3 { Err("enough") } else { Ok(()) }
        };
        assert_eq!(turnstile.pass(0, &mut impatient).unwrap_err(), "enough");
        let starving_too = turnstile.pass(ATTEMPTS_BEFORE_CLOSING, &mut || Err("enough"));
        assert_eq!(starving_too.unwrap_err(), "enough");
        assert!(turnstile.try_close().is_none());
        drop(closed);
        assert!(turnstile.pass(0, patient).unwrap().is_none());
        assert_eq!(turnstile.closings(), 1);
        let closed = turnstile.try_close();
        assert!(closed.is_some());
        assert_eq!(turnstile.pass(0, &mut || Err("enough")).unwrap_err(), "enough");
        drop(closed);
        assert_eq!(turnstile.closings(), 2);
    }
}
