//! Leadership: which thread brings the log to the disk.
//!
//! The [`Coordinator`] lies in the state of the log. The thread that takes it out is the *leader*. It
//! closes the epoch, writes and syncs it, and puts the coordinator back. So there is never more than
//! one leader.
//!
//! ```text
//!   caller that waits for an epoch               the log's own thread
//!     the coordinator lies there: lead             an interval without a leader: lead
//!     otherwise follow: wait until the epoch       the disk is full: lead, to try again
//!     is durable, or the leader has left
//! ```
//!
//! A caller that leads waits for no hand-over between threads, which would take longer than the write
//! where a sync is fast. A follower watches for a moment before it sleeps, because waking it takes as
//! long as a hand-over.
//!
//! **Every epoch finds a leader.** A follower sleeps only if another thread leads, or if the log is
//! closing. It enters itself among the sleepers under the lock that the leader takes to leave. A leader
//! that leaves wakes a sleeper, which leads unless yet another thread is faster. Then that thread wakes
//! the next sleeper when it leaves. The last leader is the caller of
//! [`Log::shutdown`](super::Log::shutdown), which wakes all sleepers.
//!
//! **Groups.** If a leader closed its epoch at once, it would write for itself alone, while the callers
//! of the last epoch are about to commit again. So it waits until as many callers wait, as long as they
//! keep coming. If they do not, the next epochs are closed at once.

use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use weft_htm::blocking::{MutexGuard, Thread, current_thread, park};
use weft_htm::word::{Ordering, yield_now};

use super::coordinator::{Coordinator, panicked};
use super::{LogCore, State, gate, lock, unpoisoned};
use crate::error::StorageError;

/// The time after which the log tries again to write to a full disk.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The shortest time from one epoch to the next. With it the numbers of epochs
/// [last](crate::sync::clock::EPOCH_MAX) for two years, even if a sync costs nothing.
const EPOCH_TIME_MIN: Duration = Duration::from_micros(4);

/// How long a leader waits for the next caller that it expects: as long as a write takes, within these
/// bounds.
const GAP_MIN: Duration = Duration::from_micros(10);
const GAP_MAX: Duration = Duration::from_micros(100);

/// How many epochs in a row may be closed at once, after a leader has waited for callers in vain.
const RESTS_MAX: u32 = 64;

/// How long a follower watches before it sleeps.
const WATCH_TIME: Duration = Duration::from_micros(200);

/// If a write takes longer than this, a follower sleeps at once. To wake it takes little time beside
/// the write.
const WATCHED_WRITE_MAX: Duration = Duration::from_millis(1);

/// A caller that sleeps until an epoch is durable, or until it may lead.
pub struct Sleeper {
    /// The epoch, or 0 if the caller waits for the leader to make any progress.
    pub epoch: u64,
    thread: Thread,
}

/// What leaders know about the callers that wait.
pub struct Gathering {
    /// How many callers had joined when the last epoch was closed.
    joined: u64,
    /// How many of them, and of those that have joined since, may wait for the next epoch.
    expected: u64,
    /// How many of the next epochs are closed at once.
    rests: u32,
    /// How many epochs are closed at once the next time that a leader waits in vain.
    rests_next: u32,
    /// When the last epoch was closed.
    closed: Instant,
}

impl Gathering {
    pub fn new() -> Gathering {
        Gathering { joined: 0, expected: 0, rests: 0, rests_next: 1, closed: Instant::now() }
    }
}

impl LogCore {
    /// Waits until `epoch` is durable: see [`Log::wait_durable`](super::Log::wait_durable).
    pub fn wait_durable(&self, epoch: u64) -> Result<(), StorageError> {
        self.join();
        let mut has_watched = self.options.manual;
        let mut has_led = false;
        while !self.is_durable(epoch) {
            let mut state = lock(&self.state);
            if self.is_durable(epoch) {
                break;
            }
            match state.check_waiting() {
                // Perhaps it can end by now.
                Err(StorageError::EpochHeld) if !has_led => {}
                checked => checked?,
            }
            match self.take_lead(&mut state) {
                Some(coordinator) => {
                    drop(state);
                    self.lead(coordinator);
                    has_led = true;
                }
                None if has_watched => self.sleep(state, epoch),
                None => {
                    drop(state);
                    self.watch(epoch);
                    has_watched = true;
                }
            }
        }
        Ok(())
    }

    /// Waits while the buffers are full: see [`Log::admit`](super::Log::admit).
    pub fn wait_for_space(&self) -> Result<(), StorageError> {
        loop {
            let mut state = lock(&self.state);
            state.check()?;
            if self.gate.load(Ordering::SeqCst) & gate::BUFFERS_FULL == 0 {
                return Ok(());
            }
            match self.take_lead(&mut state) {
                Some(coordinator) => {
                    drop(state);
                    self.lead(coordinator);
                }
                None => self.sleep(state, 0),
            }
        }
    }

    /// Waits until no other thread leads, even if the log is closing. Returns `None` if the log was
    /// shut down.
    pub fn acquire(&self) -> Option<Box<Coordinator>> {
        loop {
            let mut state = lock(&self.state);
            if state.closed {
                return None;
            }
            if let Some(coordinator) = state.coordinator.take() {
                return Some(coordinator);
            }
            self.sleep(state, 0);
        }
    }

    /// Leads whenever no thread has led for an interval, until the log is closing or fails. This is
    /// what the log's own thread does.
    pub fn lead_at_intervals(&self) {
        let mut state = lock(&self.state);
        while !state.closing && state.failure.is_none() {
            self.wake_followers(state);
            self.epochs.pass_time();
            state = lock(&self.state);
            let interval = match state.disk_full {
                Some(_) => RETRY_INTERVAL,
                None => self.options.epoch_interval,
            };
            let left = interval.saturating_sub(state.last_led.elapsed());
            if left.is_zero()
                && let Some(coordinator) = self.take_lead(&mut state)
            {
                drop(state);
                self.lead(coordinator);
                state = lock(&self.state);
            } else {
                let time = if left.is_zero() { interval } else { left };
                state = unpoisoned(self.work.wait_timeout(state, time)).0;
            }
        }
        self.wake_followers(state);
    }

    /// Closes the epoch and writes it, and then lets another thread lead. If there is an error, it is in
    /// the state.
    pub fn lead(&self, mut coordinator: Box<Coordinator>) {
        self.attempt(|| {
            if !self.options.manual {
                self.gather(&mut coordinator.gathering);
            }
            let _ = coordinator.tick();
            let gathering = &mut coordinator.gathering;
            gathering.expected += self.joined.load(Ordering::Relaxed) - gathering.joined;
        });
        let mut state = lock(&self.state);
        state.coordinator = Some(coordinator);
        state.last_led = Instant::now();
        // Relaxed: only a hint for the followers that watch.
        self.is_led.store(0, Ordering::Relaxed);
        let mut heirs = 1;
        self.wake(state, |sleeper| sleeper.epoch == 0 || std::mem::take(&mut heirs) == 1);
        if self.options.manual {
            self.wake_followers(lock(&self.state));
        }
    }

    /// Does something with the coordinator. A panic fails the log. Otherwise all callers would wait for
    /// ever.
    pub fn attempt(&self, step: impl FnOnce()) {
        if panic::catch_unwind(AssertUnwindSafe(step)).is_err() {
            self.fail(panicked(&self.directory));
        }
    }

    /// Announces a caller that waits for an epoch, to the leader that gathers callers.
    pub fn join(&self) {
        // Relaxed: a leader that misses the caller only waits longer.
        self.joined.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the coordinator, if no thread leads and the log is not closing.
    fn take_lead(&self, state: &mut State) -> Option<Box<Coordinator>> {
        let coordinator = if state.closing { None } else { state.coordinator.take() };
        if coordinator.is_some() {
            // Relaxed: see `lead`.
            self.is_led.store(1, Ordering::Relaxed);
        }
        coordinator
    }

    /// Waits for the callers that are expected in the epoch, and then notes how many have come.
    fn gather(&self, gathering: &mut Gathering) {
        let joined = || self.joined.load(Ordering::Relaxed) - gathering.joined;
        let gap = self.write_time().clamp(GAP_MIN, GAP_MAX);
        let (mut came, mut last_came) = (joined(), Instant::now());
        let is_missing = |came| gathering.rests == 0 && came < gathering.expected;
        while gathering.closed.elapsed() < EPOCH_TIME_MIN
            || is_missing(came) && last_came.elapsed() < gap
        {
            yield_now();
            if joined() != came {
                (came, last_came) = (joined(), Instant::now());
            }
        }
        if gathering.rests > 0 {
            gathering.rests -= 1;
        } else if came < gathering.expected {
            gathering.rests = gathering.rests_next;
            gathering.rests_next = (2 * gathering.rests).min(RESTS_MAX);
        } else {
            gathering.rests_next = 1;
        }
        gathering.expected = came;
        gathering.joined += came;
        gathering.closed = Instant::now();
    }

    /// Watches for a moment whether `epoch` becomes durable, or the leader leaves.
    fn watch(&self, epoch: u64) {
        if self.write_time() > WATCHED_WRITE_MAX {
            return;
        }
        let start = Instant::now();
        // Relaxed: see `lead`.
        while !self.is_durable(epoch)
            && self.is_led.load(Ordering::Relaxed) == 1
            && start.elapsed() < WATCH_TIME
        {
            yield_now();
        }
    }

    /// Sleeps until `epoch` is durable, or another thread wakes this one.
    fn sleep(&self, mut state: MutexGuard<'_, State>, epoch: u64) {
        let thread = current_thread();
        let id = thread.id();
        state.sleepers.push(Sleeper { epoch, thread });
        drop(state);
        park();
        // If this thread woke up for no reason, it may still be among the sleepers.
        if epoch == 0 || !self.is_durable(epoch) {
            lock(&self.state).sleepers.retain(|sleeper| sleeper.thread.id() != id);
        }
    }

    /// Wakes the sleepers for which the condition holds.
    pub fn wake(
        &self,
        mut state: MutexGuard<'_, State>,
        condition: impl FnMut(&mut Sleeper) -> bool,
    ) {
        if state.sleepers.is_empty() {
            return;
        }
        let woken: Vec<_> = state.sleepers.extract_if(.., condition).collect();
        drop(state);
        woken.iter().for_each(|sleeper| sleeper.thread.unpark());
    }

    fn is_durable(&self, epoch: u64) -> bool {
        // Acquire: pairs with the release in `publish`.
        self.durable.load(Ordering::Acquire) >= epoch
    }

    /// Returns how long the last epoch with groups took to write.
    fn write_time(&self) -> Duration {
        Duration::from_nanos(self.write_ns.load(Ordering::Relaxed))
    }
}
