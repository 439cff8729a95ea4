//! When a wait ends.

use std::time::{Duration, Instant};

/// When a wait ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// The time.
    pub at: Instant,
    /// How long after the call that is, as the caller has said.
    pub limit: Duration,
}

impl Deadline {
    /// `limit` from now. A deadline beyond the end of time is none.
    pub fn after(limit: Duration) -> Option<Self> {
        Some(Deadline { at: Instant::now().checked_add(limit)?, limit })
    }

    /// Whether it has passed.
    pub fn has_passed(&self) -> bool {
        Instant::now() >= self.at
    }
}
