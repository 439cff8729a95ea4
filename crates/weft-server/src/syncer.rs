//! Waits until commits are on the disk.
//!
//! The database has a thread that syncs the log, and wakes those who wait for it. Where the disk is fast, to wake that thread,
//! and to be woken by it, takes as long as the sync. So a thread that serves connections syncs itself, once for all
//! connections that have run their commands, as Redis does. It serves no connection while it syncs. So it leaves the sync to
//! the database's thread if the disk is slow, or if most of its clients only read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use weft::{CommitToken, Database, Failure};

use crate::server::Server;

/// A disk is slow if a sync takes longer, ...
const SYNC_MAX: Duration = Duration::from_millis(1);
/// ... so often one after the other. Then it counts as slow for a second.
const SLOW_SYNCS: u32 = 4;
const SLOW_TIME: Duration = Duration::from_secs(1);

/// Syncs for the connections of one thread.
#[derive(Debug, Default)]
pub struct Syncer {
    state: Mutex<State>,
    /// A connection waits, and no other one did.
    begins: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Waiting>,
    disk: Disk,
}

/// A connection that waits for a commit.
struct Waiting {
    server: Arc<Server>,
    commit: CommitToken,
    synced: oneshot::Sender<Result<(), Failure>>,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Waiting").field("commit", &self.commit).finish_non_exhaustive()
    }
}

impl Syncer {
    /// Starts a task of a thread's runtime.
    pub fn start(runtime: &Handle) -> Arc<Self> {
        let syncer = Arc::new(Syncer::default());
        runtime.spawn(Arc::clone(&syncer).run());
        syncer
    }

    async fn run(self: Arc<Self>) {
        loop {
            self.begins.notified().await;
            self.gather().await;
            let mut waiting = std::mem::take(&mut self.state().waiting);
            // The last commit first: when it is on the disk, all others are, too.
            waiting.sort_unstable_by_key(|waiting| std::cmp::Reverse(waiting.commit));
            self.note_time_of(|| {
                for Waiting { server, commit, synced } in waiting {
                    // The connection may have ended.
                    let _ = synced.send(server.database.wait_durable(commit));
                }
            });
        }
    }

    /// Waits while more connections run what has arrived, so one sync is for all of them.
    async fn gather(&self) {
        let (start, mut gathered) = (Instant::now(), 0);
        loop {
            let waiting = self.state().waiting.len();
            if waiting == gathered || start.elapsed() > SYNC_MAX {
                return;
            }
            gathered = waiting;
            // The thread runs what is ready, and asks the system what has arrived. This task is the first to go on, so the second
            // time it lets the others run that.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a commit is on the disk. `most_wait` says whether most of the thread's clients do.
    ///
    /// # Errors
    /// See [`Database::wait_durable`](weft::Database::wait_durable).
    pub async fn when_durable(
        &self,
        server: &Arc<Server>,
        commit: CommitToken,
        most_wait: bool,
    ) -> Result<(), Failure> {
        // The log of a replicated server waits for other machines.
        if most_wait && server.replication.is_none() {
            let (synced, is_synced) = oneshot::channel();
            let is_slow = {
                let mut state = self.state();
                let is_slow = state.disk.is_slow(Instant::now);
                if !is_slow {
                    if state.waiting.is_empty() {
                        self.begins.notify_one();
                    }
                    state.waiting.push(Waiting { server: Arc::clone(server), commit, synced });
                }
                is_slow
            };
            if !is_slow && let Ok(result) = is_synced.await {
                return result;
            }
        }
        server.database.when_durable(commit).await
    }

    /// Waits until a commit is on the disk, on the thread that serves the connections. Does nothing if the disk is slow.
    pub fn sync(&self, database: &Database, commit: CommitToken) -> Option<Result<(), Failure>> {
        if self.state().disk.is_slow(Instant::now) {
            return None;
        }
        Some(self.note_time_of(|| database.wait_durable(commit)))
    }

    /// Notes how long a sync takes.
    fn note_time_of<R>(&self, sync: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = sync();
        self.state().disk.note(start, start.elapsed());
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How fast the disk is.
#[derive(Debug, Default)]
struct Disk {
    /// How many of the last syncs were slow, one after the other.
    slow: u32,
    slow_until: Option<Instant>,
}

impl Disk {
    /// Returns whether the disk is slow. Asks for the time only if it was.
    fn is_slow(&self, now: impl FnOnce() -> Instant) -> bool {
        self.slow_until.is_some_and(|until| now() < until)
    }

    /// Notes a sync.
    fn note(&mut self, start: Instant, time: Duration) {
        self.slow = if time > SYNC_MAX { self.slow + 1 } else { 0 };
        // After the second, one slow sync is enough.
        self.slow_until = (self.slow >= SLOW_SYNCS).then(|| start + time + SLOW_TIME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_slow_after_several_slow_syncs_and_tried_again_after_a_second() {
        let (mut disk, start) = (Disk::default(), Instant::now());
        let slow = 2 * SYNC_MAX;
        for _ in 0..10 {
            (1..SLOW_SYNCS).for_each(|_| disk.note(start, slow));
            assert!(!disk.is_slow(|| start + slow));
            disk.note(start, SYNC_MAX);
        }
        (0..SLOW_SYNCS).for_each(|_| disk.note(start, slow));
        assert!(disk.is_slow(|| start + slow));
        let later = start + slow + SLOW_TIME;
        assert!(!disk.is_slow(|| later));
        disk.note(later, slow);
        assert!(disk.is_slow(|| later + slow));
        disk.note(later + slow, SYNC_MAX);
        assert!(!disk.is_slow(|| later + slow + SYNC_MAX));
    }
}
