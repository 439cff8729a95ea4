//! The global epoch: a number that a background thread increments every 40 ms.
//!
//! A committing transaction reads it once, between locking its write set and validating its read
//! set, and puts it into the TID words that it writes (see `record::tid`). So if one transaction
//! depends on another, its epoch is not the smaller of the two, which is all that group commit
//! needs to write whole epochs to the log.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_htm::word::{Ordering, Word};

/// Time between two ticks of the global epoch.
pub const EPOCH_INTERVAL: Duration = Duration::from_millis(40);

/// The epoch a new database starts with. Epoch 0 marks records that were never committed.
pub const FIRST_EPOCH: u64 = 1;

/// The global epoch of one database, on a cache line of its own.
#[repr(align(64))]
#[derive(Debug)]
pub struct Clock {
    epoch: Word,
}

impl Default for Clock {
    fn default() -> Self {
        Clock { epoch: Word::new(FIRST_EPOCH) }
    }
}

impl Clock {
    /// The current epoch.
    ///
    /// Acquire: pairs with the release half of [`Clock::tick`].
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Starts the next epoch.
    pub fn tick(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}

/// The thread that ticks a [`Clock`]; dropping it stops and joins the thread.
#[derive(Debug)]
pub struct Ticker {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts ticking `clock` every `interval`.
    ///
    /// # Errors
    /// The operating system's, if it gives no thread.
    pub fn start(clock: Arc<Clock>, interval: Duration) -> std::io::Result<Ticker> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("weft-epoch".into()).spawn(move || {
            let (flag, wake) = &*stopped;
            let mut stop = flag.lock().unwrap_or_else(PoisonError::into_inner);
            while !*stop {
                let (guard, timeout) =
                    wake.wait_timeout(stop, interval).unwrap_or_else(PoisonError::into_inner);
                stop = guard;
                if timeout.timed_out() {
                    clock.tick();
                }
            }
        })?;
        Ok(Ticker { stop, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread runs nothing that can panic, and there is nobody to tell if it did.
            let _ = thread.join();
        }
    }
}
