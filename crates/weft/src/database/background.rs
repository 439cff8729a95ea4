//! Threads that do something for a database now and then, until they are stopped.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_htm::blocking::{Condvar, Mutex, hold};

use crate::error::Failure;

/// Tells a thread that it must stop. Clones tell the same thread.
#[derive(Clone)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Default for Stop {
    fn default() -> Self {
        Stop(Arc::new((Mutex::new(false), Condvar::new())))
    }
}

impl Stop {
    /// Makes the thread stop, without waiting for it.
    pub fn request(&self) {
        *hold(&self.0.0) = true;
        self.0.1.notify_all();
    }

    /// Waits for a time. Returns false, at once, if the thread must stop.
    pub fn pause(&self, time: Duration) -> bool {
        let (flag, wake) = &*self.0;
        let ends_at = Instant::now() + time;
        let mut stop = hold(flag);
        while !*stop {
            let left = ends_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            stop = wake.wait_timeout(stop, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        !*stop
    }
}

/// Starts a thread with this name.
///
/// # Errors
/// [`Failure::Thread`].
pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|error| Failure::Thread { message: error.to_string() })
}
