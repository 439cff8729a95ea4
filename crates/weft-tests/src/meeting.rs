//! A barrier for the threads of a test, with a time limit.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How long a thread waits for the others. They arrive at once, unless one of them has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A barrier like [`std::sync::Barrier`]. If a thread that the others wait for has panicked, these panic as well
/// after two minutes, so that the test fails instead of hanging.
pub struct Meeting {
    threads: usize,
    come: Mutex<Come>,
    all_came: Condvar,
}

#[derive(Default)]
struct Come {
    threads: usize,
    /// The number of times that all threads have arrived.
    meetings: usize,
}

impl Meeting {
    /// Creates a barrier for `threads` threads.
    pub fn new(threads: usize) -> Meeting {
        Meeting { threads, come: Mutex::default(), all_came: Condvar::new() }
    }

    /// Waits until all threads have arrived.
    pub fn wait(&self) {
        let mut come = self.come.lock().expect("no thread panics with the lock");
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
        let (come, waited) = waited.expect("no thread panics with the lock");
        drop(come);
        assert!(!waited.timed_out(), "another thread of this test did not arrive");
    }
}
