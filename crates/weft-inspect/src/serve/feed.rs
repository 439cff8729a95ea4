//! The reports that a server has made, for all its connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;
use weft::Failure;

use crate::Report;
use crate::source::Source;

/// The most reports that are kept for browsers that connect later: five minutes, at one each second.
const KEPT_MAX: usize = 300;

/// The most bytes that these have.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// For how long a report counts as the newest: so reports are made at most so often.
const FRESH: Duration = Duration::from_millis(100);

/// A report, and its JSON.
#[derive(Clone)]
pub struct Made {
    pub report: Arc<Report>,
    pub json: Bytes,
    at: Instant,
}

/// Makes reports, and keeps those of the last minutes.
pub struct Feed {
    state: Mutex<State>,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
}

struct State {
    source: Source,
    newest: Option<Made>,
    /// The newest events. Those before them were dropped.
    events: VecDeque<Bytes>,
    event_bytes: usize,
    /// The number of the first of these events.
    first: u64,
}

impl Feed {
    pub fn new(source: Source) -> Self {
        let state =
            State { source, newest: None, events: VecDeque::new(), event_bytes: 0, first: 1 };
        Feed { state: Mutex::new(state), newest: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a report that is at most 100 ms old.
    ///
    /// # Errors
    /// Those of [`crate::InspectDatabase::contention`].
    pub fn report(&self) -> Result<Made, Failure> {
        self.lock().report()
    }

    /// Makes a report after each interval, for the followers. Never returns.
    pub async fn run(&self, interval: Duration) {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let number = self.lock().keep();
            if let Some(number) = number {
                self.newest.send_replace(number);
            }
        }
    }

    /// Returns a follower, which begins with the oldest report that is kept.
    pub fn follow(&self) -> Follower<'_> {
        Follower { feed: self, next: 0, newest: self.newest.subscribe() }
    }
}

impl State {
    fn report(&mut self) -> Result<Made, Failure> {
        if let Some(newest) = self.newest.as_ref().filter(|made| made.at.elapsed() < FRESH) {
            return Ok(newest.clone());
        }
        let report = self.source.report()?;
        let json = Bytes::from(report.to_json());
        let made = Made { report: Arc::new(report), json, at: Instant::now() };
        self.newest = Some(made.clone());
        Ok(made)
    }

    /// Makes a report, and keeps it as an event. Returns its number, or `None` if the database is closed.
    fn keep(&mut self) -> Option<u64> {
        let made = self.report().ok()?;
        let event = Bytes::from([b"data: ", &*made.json, b"\n\n"].concat());
        self.event_bytes += event.len();
        self.events.push_back(event);
        while self.events.len() > KEPT_MAX || self.event_bytes > KEPT_BYTES_MAX {
            self.event_bytes -= self.events.pop_front().map_or(0, |event| event.len());
            self.first += 1;
        }
        Some(self.first + self.events.len() as u64 - 1)
    }
}

/// A connection that follows the reports.
pub struct Follower<'f> {
    feed: &'f Feed,
    /// The number of the event that it gets next, or of one that was dropped.
    next: u64,
    newest: watch::Receiver<u64>,
}

impl Follower<'_> {
    /// Waits for the next event. A connection that is slow misses events, and does not delay others.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.newest.wait_for(|newest| *newest >= self.next.max(1)).await.ok()?;
        let state = self.feed.lock();
        let number = self.next.max(state.first);
        self.next = number + 1;
        state.events.get((number - state.first) as usize).cloned()
    }
}
