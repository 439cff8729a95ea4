//! Events that took long, as `LATENCY` shows them: commands, by the second.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft::htm::word::{Ordering, Word};

/// The one kind of event that is measured. The log's syncs are in `/metrics`.
pub const COMMAND: &str = "command";
/// How many seconds with an event are kept.
const SECONDS_MAX: usize = 160;

/// The commands of a second that took long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// The time, in seconds since 1970.
    pub at: u64,
    /// How long the longest of them took, in milliseconds.
    pub millis: u64,
}

#[derive(Debug, Default)]
struct Events {
    seconds: VecDeque<Second>,
    millis_max: u64,
}

/// The commands that took long.
#[derive(Debug)]
pub struct Latency {
    /// Commands that take at least so many milliseconds are events; 0 for none.
    pub threshold_millis: Word,
    commands: Mutex<Events>,
}

impl Default for Latency {
    fn default() -> Self {
        Latency { threshold_millis: Word::new(0), commands: Mutex::default() }
    }
}

impl Latency {
    fn lock(&self) -> MutexGuard<'_, Events> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how long a command took.
    pub fn note(&self, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let threshold = self.threshold_millis.load(Ordering::Relaxed);
        if threshold == 0 || millis < threshold {
            return;
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut events = self.lock();
        events.millis_max = events.millis_max.max(millis);
        match events.seconds.back_mut() {
            Some(last) if last.at == at => last.millis = last.millis.max(millis),
            _ => events.seconds.push_back(Second { at, millis }),
        }
        if events.seconds.len() > SECONDS_MAX {
            events.seconds.pop_front();
        }
    }

    /// Returns the last second with an event, and the longest time of all.
    pub fn latest(&self) -> Option<(Second, u64)> {
        let events = self.lock();
        events.seconds.back().map(|last| (*last, events.millis_max))
    }

    /// Returns the seconds with an event, the oldest first.
    pub fn history(&self) -> Vec<Second> {
        self.lock().seconds.iter().copied().collect()
    }

    /// Forgets all events. Returns whether there were any.
    pub fn clear(&self) -> bool {
        !std::mem::take(&mut *self.lock()).seconds.is_empty()
    }
}
