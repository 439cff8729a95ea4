//! When a wait ends.

use std::time::{Duration, Instant};

use crate::error::Failure;

/// When a wait ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// The time.
    pub at: Instant,
    /// How long after the call that is, as the caller has said.
    pub limit: Duration,
}

impl Deadline {
    /// Returns the deadline `limit` from now; `None` if the clock cannot count that far.
    pub fn after(limit: Duration) -> Option<Self> {
        Some(Deadline { at: Instant::now().checked_add(limit)?, limit })
    }

    /// Whether it has passed.
    pub fn has_passed(&self) -> bool {
        Instant::now() >= self.at
    }

    /// Decides whether a transaction goes on after `attempts` attempts.
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
