//! The threads that serve connections.
//!
//! Each has a runtime of its own, so one thread reads, runs and answers the requests of a connection, and wakes no other
//! thread for them. The threads of one common runtime wake each other whenever two connections have something to do, and
//! take tasks from each other. For short requests this costs more than it gains.
//!
//! As few threads serve as the load needs, since a thread that has much to do seldom goes to sleep: it finds several requests
//! each time that it asks the system. When a thread is [too busy](BUSY), one more takes part. The connections are spread by
//! their numbers, and each [moves](Seat::has_moved) after its next request.
//!
//! What takes long hands the thread's other connections over to another thread: see [`in_place`](crate::session::in_place).
//! Runtimes with several threads can do that. So each runtime is one of these, with a single thread.

use std::io;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::{Builder, Handle, Runtime};
use weft::htm::word::{Ordering, Word};

use crate::log::{Level, log};

/// How often the load is measured.
const INTERVAL: Duration = Duration::from_millis(50);
/// When a thread works for this part of its time, one more thread takes part.
const BUSY: f64 = 0.85;
/// When the threads would work for less than this part of their time with one thread less, ...
const CALM: f64 = 0.6;
/// ... so often one after the other, one thread less serves.
const CALM_INTERVALS: u32 = 20;

/// The threads that serve connections. When it is dropped, connections that are still there are ended.
#[derive(Debug)]
pub struct Workers {
    runtimes: Vec<Runtime>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    handles: Vec<Handle>,
    /// How many of the threads serve: the first ones.
    serving: Word,
    /// The number of the next connection.
    next: Word,
}

impl Workers {
    /// Starts so many threads; with 0, one for each core.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(threads: usize) -> io::Result<Self> {
        let cores = || available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores() } else { threads };
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtimes = (0..threads).map(|_| runtime()).collect::<io::Result<Vec<_>>>()?;
        let handles = runtimes.iter().map(|runtime| runtime.handle().clone()).collect();
        let shared = Shared { handles, serving: Word::new(1), next: Word::new(0) };
        Ok(Workers { runtimes, shared: Arc::new(shared) })
    }

    /// Returns a seat for a new connection.
    pub fn seat(&self) -> Seat {
        let shared = Arc::clone(&self.shared);
        // Only the number itself matters.
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let mut seat = Seat { shared, number, serving: 0, thread: usize::MAX };
        seat.has_moved();
        seat
    }

    /// Adapts the number of threads that serve to the load, for ever.
    pub fn adapt(&self) -> impl Future<Output = ()> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            let (mut before, mut then, mut calm) = (shared.busy_times(), Instant::now(), 0);
            loop {
                tokio::time::sleep(INTERVAL).await;
                let (now, times) = (Instant::now(), shared.busy_times());
                let spans = times.iter().zip(&before).map(|(time, before)| *time - *before);
                let elapsed = (now - then).as_secs_f64();
                let loads: Vec<f64> = spans.map(|span| span.as_secs_f64() / elapsed).collect();
                let serving = shared.serving.load(Ordering::Relaxed) as usize;
                let adapted = adapted(serving, &loads, &mut calm);
                if adapted != serving {
                    shared.serving.store(adapted as u64, Ordering::Relaxed);
                    log(Level::Debug, "threads serve", json!({ "threads": adapted }));
                }
                (before, then) = (times, now);
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
    }
}

impl Shared {
    /// Returns for how long each thread has worked.
    fn busy_times(&self) -> Vec<Duration> {
        let times =
            self.handles.iter().map(|handle| handle.metrics().worker_total_busy_duration(0));
        times.collect()
    }
}

/// Returns how many threads should serve after an interval in which `serving` of them did. `loads` are the parts of their
/// time for which they have worked, and `calm` counts the calm intervals.
fn adapted(serving: usize, loads: &[f64], calm: &mut u32) -> usize {
    let is_busy = loads[..serving].iter().any(|load| *load > BUSY);
    let is_calm = serving > 1 && loads.iter().sum::<f64>() < CALM * (serving - 1) as f64;
    *calm = if is_calm && !is_busy { *calm + 1 } else { 0 };
    if is_busy {
        (serving + serving.div_ceil(3)).min(loads.len())
    } else if *calm == CALM_INTERVALS {
        *calm = 0;
        serving - 1
    } else {
        serving
    }
}

/// A connection's place: the thread that serves it.
#[derive(Debug)]
pub struct Seat {
    shared: Arc<Shared>,
    number: u64,
    /// How many threads served when the thread was chosen.
    serving: u64,
    thread: usize,
}

impl Seat {
    /// Looks whether the number of threads that serve has changed, and another one is to serve the connection.
    pub fn has_moved(&mut self) -> bool {
        // Nothing else is read with this number, and a connection that sees it late moves late.
        let serving = self.shared.serving.load(Ordering::Relaxed);
        if serving == self.serving {
            return false;
        }
        self.serving = serving;
        let thread = (self.number % serving) as usize;
        std::mem::replace(&mut self.thread, thread) != thread
    }

    /// Returns the thread's runtime.
    pub fn runtime(&self) -> &Handle {
        &self.shared.handles[self.thread]
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    impl Workers {
        /// Has so many threads serve.
        pub fn serve_by(&self, threads: usize) {
            self.shared.serving.store(threads as u64, Ordering::Relaxed);
        }

        /// Returns how many connections each thread has.
        pub fn spread(&self) -> Vec<usize> {
            let handles = self.shared.handles.iter();
            handles.map(|handle| handle.metrics().num_alive_tasks()).collect()
        }
    }

    #[test]
    fn as_many_threads_serve_as_the_load_needs() {
        let calm = &mut 0;
        assert_eq!(adapted(1, &[0.8, 0.0, 0.0, 0.0], calm), 1);
        assert_eq!(adapted(1, &[0.9, 0.0, 0.0, 0.0], calm), 2);
        assert_eq!(adapted(2, &[0.9, 0.1, 0.0, 0.0], calm), 3);
        assert_eq!(adapted(3, &[0.9; 4], calm), 4);
        assert_eq!(adapted(4, &[1.0; 4], calm), 4);
        // Three threads could do the work of four that are busy for less than 0.45 of their time.
        let mut after = |load: f64, intervals: u32| {
            (0..intervals).map(|_| adapted(4, &[load; 4], calm)).collect::<Vec<_>>()
        };
        assert!(after(0.5, 100).iter().all(|threads| *threads == 4));
        let threads = after(0.4, CALM_INTERVALS);
        assert_eq!((threads[threads.len() - 2], threads[threads.len() - 1]), (4, 3));
        // A busy interval begins the count again.
        after(0.4, CALM_INTERVALS - 1);
        after(0.7, 1);
        assert!(after(0.4, CALM_INTERVALS - 1).iter().all(|threads| *threads == 4));
        assert_eq!(adapted(1, &[0.0; 4], &mut 0), 1);
    }
}
