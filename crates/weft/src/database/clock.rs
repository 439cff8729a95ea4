//! A clock that the program sets.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_htm::blocking::{Mutex, hold};

use crate::row::timestamp::Timestamp;
use crate::store::worker::SharedState;

/// A clock that the program sets, for tests: see [`Builder::clock`](crate::Builder::clock). Its clones are the same
/// clock.
///
/// The clock may be set to an earlier time. The time of a database that goes by it then stands still until the clock
/// has caught up.
#[derive(Clone)]
pub struct ManualClock(Arc<Mutex<ClockState>>);

struct ClockState {
    time: Timestamp,
    databases: Vec<Weak<SharedState>>,
}

impl ManualClock {
    /// Returns a clock that shows `time`.
    pub fn new(time: Timestamp) -> Self {
        ManualClock(Arc::new(Mutex::new(ClockState { time, databases: Vec::new() })))
    }

    /// Returns the time that the clock shows.
    pub fn time(&self) -> Timestamp {
        self.change(|time| *time)
    }

    /// Sets the clock. Transactions that begin from now on have this time, or that of the database if it is later.
    pub fn set(&self, time: Timestamp) {
        self.change(|shown| *shown = time);
    }

    /// Sets the clock forward.
    pub fn advance(&self, duration: Duration) {
        self.change(|shown| *shown = *shown + duration);
    }

    fn change<R>(&self, change: impl FnOnce(&mut Timestamp) -> R) -> R {
        let mut state = hold(&self.0);
        let result = change(&mut state.time);
        let time = state.time.as_millis();
        state.databases.retain(|database| {
            let database = database.upgrade();
            database.inspect(|shared| shared.time.advance_to(time)).is_some()
        });
        result
    }

    /// Makes a database go by the clock.
    pub(super) fn attach(&self, shared: &Arc<SharedState>) {
        let mut state = hold(&self.0);
        state.databases.push(Arc::downgrade(shared));
        shared.time.advance_to(state.time.as_millis());
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ManualClock").field(&self.time()).finish()
    }
}
