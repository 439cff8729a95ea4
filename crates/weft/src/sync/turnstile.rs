//! The turnstile: lets a transaction through that has been aborted again and again.
//!
//! Before it there are three other measures. A protocol may let the older transaction win (2PL by wait-die).
//! `transact` waits for a random time, longer after each attempt, before it retries. And an optimistic
//! transaction that was aborted takes locks in a fixed order. None of these is a guarantee. The turnstile is
//! one, under every protocol. A transaction *starves* if it was aborted [`ATTEMPTS_BEFORE_CLOSING`] times, or again
//! and again for [`TIME_BEFORE_CLOSING`]: a long transaction has few attempts in that time. It closes the
//! turnstile, and keeps it closed until it has ended. During that time no other transaction begins. Those
//! that are already running end, by a commit or by an abort; after an abort they too find the turnstile
//! closed. From then on the starving transaction runs alone, and no other transaction can abort it.
//!
//! Passing an open turnstile costs one load of a word that is hardly ever written.

use std::time::{Duration, Instant};

use weft_htm::word::{Ordering, Word, spin_loop, yield_now};

/// After how many aborted attempts a transaction closes the turnstile.
pub const ATTEMPTS_BEFORE_CLOSING: u32 = 100;

/// After how long a time of aborts a transaction closes the turnstile, by default.
pub const TIME_BEFORE_CLOSING: Duration = Duration::from_millis(100);

/// Says whether a transaction that is aborted again and again starves.
#[derive(Debug)]
pub struct Patience {
    /// The time for which the transaction lets itself be aborted.
    limit: Duration,
    /// The time of the first abort.
    since: Option<Instant>,
}

impl Patience {
    /// Returns the patience of a transaction that was not aborted yet. `limit` is [`TIME_BEFORE_CLOSING`] if it is
    /// `None`.
    #[inline(always)]
    pub fn new(limit: Option<Duration>) -> Self {
        Patience { limit: limit.unwrap_or(TIME_BEFORE_CLOSING), since: None }
    }

    /// Returns whether a transaction starves that was aborted `attempts` times. One abort is not yet starvation,
    /// however long the attempt has taken. The simulated machine has a time of its own, in which only attempts count.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn is_over(&mut self, attempts: u32) -> bool {
        match attempts {
            0 => false,
            ATTEMPTS_BEFORE_CLOSING.. => true,
            _ if cfg!(weft_sim) => false,
            _ => match self.since {
                Some(since) => since.elapsed() >= self.limit,
                None => {
                    self.since = Some(Instant::now());
                    false
                }
            },
        }
    }
}

/// Holds transactions back while a starving one gets through. One per database.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Turnstile {
    /// 1 while the turnstile is closed.
    closed: Word,
    /// How often the turnstile has been closed.
    closings: Word,
}

/// The right of the transaction that has closed the turnstile. Dropping it opens the turnstile again.
#[derive(Debug)]
pub struct TurnstileGuard<'a>(&'a Turnstile);

impl Turnstile {
    /// Returns whether the turnstile is closed.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        // Relaxed: as in `pass`.
        self.closed.load(Ordering::Relaxed) != 0
    }

    /// Lets a transaction through, or makes it wait. If the transaction starves, closes the turnstile behind it. An
    /// error of `keep_waiting` ends the wait.
    #[inline(always)]
    pub fn pass<E>(
        &self,
        is_starving: bool,
        keep_waiting: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Option<TurnstileGuard<'_>>, E> {
        // Relaxed: the value only decides when a transaction begins. A transaction that passes while the
        // turnstile is being closed counts as one that is already running.
        if self.closed.load(Ordering::Relaxed) == 0 && !is_starving {
            return Ok(None);
        }
        self.wait_or_close(is_starving, keep_waiting)
    }

    #[cold]
    fn wait_or_close<E>(
        &self,
        is_starving: bool,
        keep_waiting: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Option<TurnstileGuard<'_>>, E> {
        let mut spins = 0u32;
        loop {
            if self.closed.load(Ordering::Relaxed) == 0 {
                if !is_starving {
                    return Ok(None);
                }
                // Relaxed, as in `pass`. Only the thread whose exchange succeeds opens the turnstile again.
                let order = Ordering::Relaxed;
                if self.closed.compare_exchange(0, 1, order, order).is_ok() {
                    self.closings.fetch_add(1, order);
                    return Ok(Some(TurnstileGuard(self)));
                }
            }
            keep_waiting()?;
            spins += 1;
            if spins.is_multiple_of(64) { yield_now() } else { spin_loop() }
        }
    }

    /// Closes the turnstile if it is open, without waiting. For a transaction for which others may be
    /// waiting.
    #[cold]
    pub fn try_close(&self) -> Option<TurnstileGuard<'_>> {
        // Relaxed: as in `wait_or_close`.
        let order = Ordering::Relaxed;
        self.closed.compare_exchange(0, 1, order, order).ok()?;
        self.closings.fetch_add(1, order);
        Some(TurnstileGuard(self))
    }

    /// Returns how often the turnstile has been closed.
    pub fn closings(&self) -> u64 {
        self.closings.load(Ordering::Relaxed)
    }
}

impl Drop for TurnstileGuard<'_> {
    fn drop(&mut self) {
        self.0.closed.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_starving_transaction_keeps_the_others_out() {
        let turnstile = Turnstile::default();
        let patient = &mut || Ok::<(), &str>(());
        assert!(turnstile.pass(false, patient).unwrap().is_none());
        let closed = turnstile.pass(true, patient).unwrap();
        assert!(closed.is_some());
        let mut looks = 0;
        let mut impatient = || {
            looks += 1;
            if looks == 3 { Err("enough") } else { Ok(()) }
        };
        assert_eq!(turnstile.pass(false, &mut impatient).unwrap_err(), "enough");
        let starving_too = turnstile.pass(true, &mut || Err("enough"));
        assert_eq!(starving_too.unwrap_err(), "enough");
        assert!(turnstile.try_close().is_none());
        drop(closed);
        assert!(turnstile.pass(false, patient).unwrap().is_none());
        assert_eq!(turnstile.closings(), 1);
        let closed = turnstile.try_close();
        assert!(closed.is_some());
        assert_eq!(turnstile.pass(false, &mut || Err("enough")).unwrap_err(), "enough");
        drop(closed);
        assert_eq!(turnstile.closings(), 2);
    }

    #[test]
    fn patience_ends_after_attempts_or_time() {
        let mut patience = Patience::new(Some(Duration::MAX));
        assert!((0..ATTEMPTS_BEFORE_CLOSING).all(|attempts| !patience.is_over(attempts)));
        assert!(patience.is_over(ATTEMPTS_BEFORE_CLOSING));
        let mut patience = Patience::new(Some(Duration::ZERO));
        assert!(!patience.is_over(0));
        assert!(!patience.is_over(1));
        assert_eq!(patience.is_over(2), !cfg!(weft_sim));
    }
}
