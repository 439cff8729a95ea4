//! Where threads of a test wait for each other.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How long one waits for the others. They come at once, unless one has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// As [`std::sync::Barrier`]; but if a thread has panicked that the others wait for, these panic too. A test that
/// fails then says so, and does not hang.
pub struct Meeting {
    threads: usize,
    come: Mutex<Come>,
    all_came: Condvar,
}

#[derive(Default)]
struct Come {
    threads: usize,
    /// How often all have come.
    meetings: usize,
}

impl Meeting {
    /// For so many threads.
    pub fn new(threads: usize) -> Meeting {
        Meeting { threads, come: Mutex::default(), all_came: Condvar::new() }
    }

    /// Waits until all threads have come.
    pub fn wait(&self) {
        let mut come = self.come.lock().expect("nobody panics with the lock");
        come.threads += 1;
        if come.threads == self.threads {
            come.threads = 0;
            come.meetings += 1;
            self.all_came.notify_all();
            return;
        }
        let before = come.meetings;
        let waited =
            self.all_came.wait_timeout_while(come, PATIENCE, |come| come.meetings == before);
        let (come, waited) = waited.expect("nobody panics with the lock");
        drop(come);
        assert!(!waited.timed_out(), "another thread of this test did not come");
    }
}
