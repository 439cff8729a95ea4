//! Deadlines of transactions that wait.

use std::time::{Duration, Instant};

use crate::error::Failure;

/// The time after which a transaction stops waiting and retrying.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// The time at which it passes.
    pub at: Instant,
    /// The time from the call to the deadline, as the caller gave it.
    pub limit: Duration,
}

impl Deadline {
    /// Returns the deadline `limit` from now; `None` if the clock cannot count that far.
    pub fn after(limit: Duration) -> Option<Self> {
        Some(Deadline { at: Instant::now().checked_add(limit)?, limit })
    }

    /// Returns whether the deadline has passed.
    pub fn has_passed(&self) -> bool {
        Instant::now() >= self.at
    }

    /// Returns how much time is left.
    pub fn remaining(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Decides whether a transaction may go on after `attempts` attempts.
    ///
    /// # Errors
    /// [`Failure::DeadlineExceeded`] if the deadline has passed.
    pub fn check(&self, attempts: u32) -> Result<(), Failure> {
        match self.has_passed() {
            true => Err(Failure::DeadlineExceeded { deadline: self.limit, attempts }),
            false => Ok(()),
        }
    }
}
