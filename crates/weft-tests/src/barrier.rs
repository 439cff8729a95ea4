//! A barrier for the threads of a test, with a time limit.

use std::time::{Duration, Instant};

use weft::htm::blocking::{Condvar, Mutex};

/// How long a thread waits for the others. They arrive at once, unless one of them has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A barrier like [`std::sync::Barrier`]. If a thread that the others wait for has panicked, these panic as well
/// after two minutes, so that the test fails instead of hanging. ThreadSanitizer understands it.
pub struct TestBarrier {
    threads: usize,
    arrivals: Mutex<Arrivals>,
    all_arrived: Condvar,
}

#[derive(Default)]
struct Arrivals {
    threads: usize,
    /// The number of times that all threads have arrived.
    meetings: usize,
}

impl TestBarrier {
    /// Creates a barrier for `threads` threads.
    pub fn new(threads: usize) -> TestBarrier {
        TestBarrier {
            threads,
            arrivals: Mutex::new(Arrivals::default()),
            all_arrived: Condvar::default(),
        }
    }

    /// Waits until all threads have arrived.
    ///
    /// # Panics
    /// If they do not arrive within two minutes.
    pub fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut arrivals = self.arrivals.lock().expect("no thread panics with the lock");
        arrivals.threads += 1;
        if arrivals.threads == self.threads {
            arrivals.threads = 0;
            arrivals.meetings += 1;
            self.all_arrived.notify_all();
            return;
        }
        let before = arrivals.meetings;
        while arrivals.meetings == before {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(arrivals);
                panic!("another thread of this test did not arrive");
            }
            let waited = self.all_arrived.wait_timeout(arrivals, left);
            arrivals = waited.expect("no thread panics with the lock").0;
        }
    }
}
