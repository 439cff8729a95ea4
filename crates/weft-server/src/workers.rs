//! The threads that serve connections.
//!
//! Each has a runtime of its own, so one thread reads, runs and answers the requests of a connection, and wakes no other
//! thread for them. The threads of one common runtime wake each other whenever two connections have something to do, and
//! take tasks from each other. For short requests this costs more than it gains.
//!
//! As few threads serve as the load needs, since a thread that has much to do seldom goes to sleep: it finds several requests
//! each time that it asks the system. When a thread is [too busy](BUSY), more are tried, and stay if they gain
//! something. The connections are spread by their numbers, and each [moves](Seat::has_moved) after its next request.
//!
//! What takes long hands the thread's other connections over to another thread: see [`in_place`](crate::session::in_place).
//! Runtimes with several threads can do that. So each runtime is one of these, with a single thread.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::{Builder, Handle, Runtime};
use weft::htm::word::{Ordering, Word};
use weft::{CommitToken, Failure};

use crate::log::{Level, log};
use crate::poller::Poller;
use crate::server::Server;
use crate::syncer::Syncer;

/// How often the load is measured.
const INTERVAL: Duration = Duration::from_millis(50);
/// When a thread works for this part of its time, it is busy, and more are tried.
const BUSY: f64 = 0.85;
/// When the threads would work for less than this part of their time with one thread less, ...
const CALM: f64 = 0.6;
/// ... so often one after the other, one thread less serves.
const CALM_INTERVALS: u32 = 20;
/// Threads more pay if each brings at least this part of what each of the others does, ...
const GAIN: f64 = 0.15;
/// ... or if as much is done as before, within this part, ...
const LOSS: f64 = 0.03;
/// ... and a command takes longer by at most this part.
const COST: f64 = 0.1;
/// A trial begins after so many intervals in which a thread was busy.
const BUSY_INTERVALS: u32 = 3;
/// It takes so many intervals. The first of them does not count, since connections still move.
const TRIAL_INTERVALS: u32 = 5;
/// The intervals between a trial that has failed and the next one: these, and after each that fails twice as many, ...
const REST_MIN: u32 = 40;
/// ... up to these.
const REST_MAX: u32 = 320;
/// With fewer commands in an interval, a trial says nothing.
const TRIAL_COMMANDS: u64 = 100;
/// When connections reply so often between two sleeps of their thread, they send their replies together.
const BURST: usize = 16;

/// The threads that serve connections. When it is dropped, connections that are still there are ended.
#[derive(Debug)]
pub struct Workers {
    runtimes: Vec<Runtime>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    threads: Vec<Thread>,
    /// How many of the threads serve: the first ones.
    serving: Word,
    /// The number of the next connection.
    next: Word,
}

/// A thread that serves connections.
#[derive(Debug)]
struct Thread {
    runtime: Handle,
    busy: Arc<BusyTime>,
    syncer: Arc<Syncer>,
    poller: Arc<Poller>,
    /// How many connections it serves.
    connections: Word,
}

impl Workers {
    /// Starts so many threads; with 0, one for each core.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(threads: usize) -> io::Result<Self> {
        let cores = || available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores() } else { threads };
        let start = || {
            let busy = Arc::new(BusyTime::new());
            let (parks, wakes) = (Arc::clone(&busy), Arc::clone(&busy));
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).enable_all();
            builder.on_thread_park(move || {
                parks.pause();
                Replies::end_burst();
            });
            builder.on_thread_unpark(move || {
                wakes.resume();
            });
            let runtime = builder.build()?;
            let handle = runtime.handle().clone();
            let syncer = Syncer::start(&handle);
            let poller = Poller::start(&handle, &syncer, &busy)?;
            let connections = Word::new(0);
            Ok((runtime, Thread { runtime: handle, busy, syncer, poller, connections }))
        };
        let started = (0..threads).map(|_| start()).collect::<io::Result<Vec<_>>>()?;
        let (runtimes, threads) = started.into_iter().unzip();
        let shared = Shared { threads, serving: Word::new(1), next: Word::new(0) };
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

    /// Adapts the number of threads that serve to the load, for ever. `commands` returns how many commands were run.
    pub fn adapt(
        &self,
        commands: impl Fn() -> u64 + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            let mut adaptation = Adaptation::new(shared.threads.len());
            let (mut before, mut then, mut ran) = (shared.busy_times(), Instant::now(), commands());
            loop {
                tokio::time::sleep(INTERVAL).await;
                let (now, times, run) = (Instant::now(), shared.busy_times(), commands());
                let spans =
                    times.iter().zip(&before).map(|(time, before)| time.saturating_sub(*before));
                let elapsed = (now - then).as_secs_f64();
                let loads = spans.map(|span| span.as_secs_f64() / elapsed).collect();
                // An operator may set the counter to zero.
                let interval = Interval { loads, commands: run.saturating_sub(ran), elapsed };
                let serving = adaptation.serving;
                if adaptation.follow(&interval) != serving {
                    let serving = adaptation.serving;
                    // Only the number itself matters.
                    shared.serving.store(serving as u64, Ordering::Relaxed);
                    log(Level::Debug, "threads serve", json!({ "threads": serving }));
                }
                (before, then, ran) = (times, now, run);
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // A poller that waits in its own call of the system does not see that its runtime ends.
        self.shared.threads.iter().for_each(|thread| thread.poller.end());
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
    }
}

impl Shared {
    /// Returns for how long each thread has worked.
    fn busy_times(&self) -> Vec<Duration> {
        self.threads.iter().map(|thread| thread.busy.total()).collect()
    }
}

/// For how long a thread has worked. It pauses while it waits for work.
#[derive(Debug)]
pub struct BusyTime {
    /// From when the times below are counted.
    origin: Instant,
    /// How long it worked until its last pause, in nanoseconds.
    until_pause: Word,
    /// When it went to work after that, in nanoseconds; 0 while it pauses.
    since: Word,
}

impl BusyTime {
    fn new() -> Self {
        BusyTime { origin: Instant::now(), until_pause: Word::new(0), since: Word::new(0) }
    }

    /// The thread begins to wait for work. Returns when.
    pub fn pause(&self) -> Duration {
        let now = self.origin.elapsed();
        // Only the runtime's current thread writes these. A reader in between is wrong by the time since the last pause.
        let since = self.since.load(Ordering::Relaxed);
        if since != 0 {
            let worked = self.until_pause.load(Ordering::Relaxed) + (nanoseconds(now) - since);
            self.since.store(0, Ordering::Relaxed);
            self.until_pause.store(worked, Ordering::Relaxed);
        }
        now
    }

    /// The thread has work. Returns since when.
    pub fn resume(&self) -> Duration {
        let now = self.origin.elapsed();
        self.since.store(nanoseconds(now), Ordering::Relaxed);
        now
    }

    /// Returns for how long the thread has worked.
    fn total(&self) -> Duration {
        let until_pause = self.until_pause.load(Ordering::Relaxed);
        let worked = match self.since.load(Ordering::Relaxed) {
            0 => 0,
            since => nanoseconds(self.origin.elapsed()).saturating_sub(since),
        };
        Duration::from_nanos(until_pause + worked)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    // These last for 584 years.
    time.as_nanos() as u64
}

/// What the threads have done in an interval.
#[derive(Debug)]
struct Interval {
    /// The parts of their time for which the threads have worked.
    loads: Vec<f64>,
    /// How many commands were run.
    commands: u64,
    /// How long the interval was, in seconds.
    elapsed: f64,
}

/// How fast commands were run.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    commands: u64,
    elapsed: f64,
    /// For how long all threads together have worked, in seconds.
    worked: f64,
}

impl Pace {
    fn add(&mut self, interval: &Interval) {
        self.commands += interval.commands;
        self.elapsed += interval.elapsed;
        self.worked += interval.elapsed * interval.loads.iter().sum::<f64>();
    }

    /// Returns how many commands were run in a second.
    fn rate(&self) -> f64 {
        self.commands as f64 / self.elapsed
    }

    /// Returns how long a command took.
    fn cost(&self) -> f64 {
        self.worked / self.commands as f64
    }
}

/// A trial with another number of threads.
#[derive(Debug)]
struct Trial {
    /// How many served before, ...
    serving: usize,
    /// ... and how fast.
    before: Pace,
    now: Pace,
    intervals: u32,
}

/// How many threads serve.
#[derive(Debug)]
struct Adaptation {
    serving: usize,
    threads: usize,
    trial: Option<Trial>,
    /// The next trial is one with more threads.
    tries_more: bool,
    /// So many intervals pass until the next trial.
    rest: u32,
    /// So many pass after the next one that fails.
    rest_next: u32,
    /// For how many intervals one after the other a thread was busy, ...
    busy: u32,
    /// ... and how fast commands were run in them, ...
    pace: Pace,
    /// ... none was, ...
    idle: u32,
    /// ... and one thread less could have done the work.
    calm: u32,
}

impl Adaptation {
    fn new(threads: usize) -> Self {
        Adaptation {
            serving: 1,
            threads,
            trial: None,
            tries_more: true,
            rest: 0,
            rest_next: REST_MIN,
            busy: 0,
            pace: Pace::default(),
            idle: 0,
            calm: 0,
        }
    }

    /// Returns how many threads serve after an interval.
    fn follow(&mut self, interval: &Interval) -> usize {
        if let Some(trial) = &mut self.trial {
            trial.intervals += 1;
            if trial.intervals > 1 {
                trial.now.add(interval);
            }
            if trial.intervals == TRIAL_INTERVALS {
                self.end_trial();
            }
            return self.serving;
        }
        let loads = &interval.loads[..self.serving];
        let is_busy = loads.iter().any(|load| *load > BUSY);
        let one_less = CALM * (self.serving - 1) as f64;
        let is_calm = !is_busy && interval.loads.iter().sum::<f64>() < one_less;
        self.busy = if is_busy { self.busy + 1 } else { 0 };
        self.idle = if is_busy { 0 } else { self.idle + 1 };
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        self.rest = self.rest.saturating_sub(1);
        if self.calm == CALM_INTERVALS {
            self.calm = 0;
            self.serving -= 1;
        }
        if self.idle == CALM_INTERVALS {
            // What comes next is another load.
            (self.tries_more, self.rest, self.rest_next) = (true, 0, REST_MIN);
        }
        if is_busy {
            self.pace.add(interval);
        } else {
            self.pace = Pace::default();
        }
        if self.busy == BUSY_INTERVALS {
            let before = std::mem::take(&mut self.pace);
            self.busy = 0;
            if self.rest == 0 {
                self.begin_trial(before);
            }
        }
        self.serving
    }

    fn begin_trial(&mut self, before: Pace) {
        let more = (self.serving + self.serving.div_ceil(3)).min(self.threads);
        let fewer = (self.serving - self.serving.div_ceil(4)).max(1);
        if before.commands < TRIAL_COMMANDS {
            self.serving = more;
            return;
        }
        if more == fewer {
            return;
        }
        let tries_more = more > self.serving && (self.tries_more || fewer == self.serving);
        let (serving, now) = (self.serving, Pace::default());
        self.trial = Some(Trial { serving, before, now, intervals: 0 });
        self.tries_more = tries_more;
        self.serving = if tries_more { more } else { fewer };
    }

    fn end_trial(&mut self) {
        let Some(Trial { serving, before, now, .. }) = self.trial.take() else { return };
        let (few, many) = (serving.min(self.serving), serving.max(self.serving));
        let (fewer, more) = if self.tries_more { (before, now) } else { (now, before) };
        let gain = more.rate() / fewer.rate() - 1.0;
        // Without a single command, nothing of this is true.
        let pays = gain >= GAIN * (many - few) as f64 / few as f64
            || (gain >= -LOSS && more.cost() <= (1.0 + COST) * fewer.cost());
        log(
            Level::Debug,
            "a trial with another number of threads has ended",
            json!({
                "before": { "threads": serving, "rate": before.rate(), "cost": before.cost() },
                "now": { "threads": self.serving, "rate": now.rate(), "cost": now.cost() },
                "pays": pays,
            }),
        );
        if pays == self.tries_more {
            // More may pay, too.
            let goes_on = self.tries_more && self.serving < self.threads;
            (self.rest, self.rest_next) = (if goes_on { 0 } else { REST_MIN }, REST_MIN);
        } else {
            self.serving = serving;
            self.tries_more = !self.tries_more;
            self.rest = self.rest_next;
            self.rest_next = (2 * self.rest_next).min(REST_MAX);
        }
        (self.busy, self.pace, self.idle, self.calm) = (0, Pace::default(), 0, 0);
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
        if thread == self.thread {
            return false;
        }
        self.leave();
        self.thread = thread;
        self.shared.threads[thread].connections.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn leave(&self) {
        if let Some(thread) = self.shared.threads.get(self.thread) {
            // The sum wraps around.
            thread.connections.fetch_add(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Waits until a commit is on the disk.
    ///
    /// # Errors
    /// See [`Database::wait_durable`](weft::Database::wait_durable).
    pub async fn when_durable(
        &self,
        server: &Arc<Server>,
        commit: CommitToken,
    ) -> Result<(), Failure> {
        let most_wait = Replies::most_wait();
        self.shared.threads[self.thread].syncer.when_durable(server, commit, most_wait).await
    }

    /// Returns with what to spawn tasks of the thread.
    pub fn spawner(&self) -> Spawner {
        let Thread { runtime, poller, .. } = &self.shared.threads[self.thread];
        Spawner { runtime: runtime.clone(), poller: Arc::clone(poller) }
    }

    /// Returns the thread's poller.
    pub fn poller(&self) -> &Arc<Poller> {
        &self.shared.threads[self.thread].poller
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Spawns tasks of one thread that serves connections.
pub struct Spawner {
    runtime: Handle,
    poller: Arc<Poller>,
}

impl Spawner {
    /// Spawns a task, also while the thread's poller waits in its own call of the system.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
        self.poller.note_task();
    }
}

thread_local! {
    static REPLIES: Replies = const {
        Replies { now: Cell::new(Burst::NONE), before: Cell::new(Burst::NONE) }
    };
}

/// What a thread's connections have done since it slept, and between the two sleeps before.
#[derive(Debug)]
pub struct Replies {
    now: Cell<Burst>,
    before: Cell<Burst>,
}

/// How often connections had replies between two sleeps of their thread.
#[derive(Clone, Copy, Debug)]
struct Burst {
    replies: usize,
    /// How many of them waited for the disk.
    waited: usize,
}

impl Burst {
    const NONE: Burst = Burst { replies: 0, waited: 0 };
}

impl Replies {
    /// The thread has nothing to do, and sleeps.
    pub fn end_burst() {
        REPLIES.with(|replies| replies.before.set(replies.now.replace(Burst::NONE)));
    }

    /// Notes a reply. Returns whether it is one of many in its burst, or in the burst before.
    fn note(waits: bool) -> bool {
        REPLIES.with(|Replies { now, before }| {
            let Burst { replies, waited } = now.get();
            let burst = Burst { replies: replies + 1, waited: waited + usize::from(waits) };
            now.set(burst);
            burst.replies.max(before.get().replies) >= BURST
        })
    }

    /// Returns whether half of the replies or more wait for the disk.
    pub fn most_wait() -> bool {
        REPLIES.with(|Replies { now, before }| {
            let (now, before) = (now.get(), before.get());
            2 * (now.waited + before.waited) >= now.replies + before.replies
        })
    }
}

/// Notes that a connection of this thread has a reply, and returns whether it is to be sent with those of others, if many of
/// them reply, too. A client that gets single replies sleeps in between, and to wake it takes the server longer than to send the
/// reply. So they are sent one right after the other, as in Redis. A reply that `waits` for the disk is sent together with
/// others anyway.
pub fn go_together(waits: bool) -> bool {
    Replies::note(waits) && !waits
}

/// As [`go_together`], and lets the others run what has arrived.
pub async fn reply_together(waits: bool) {
    if go_together(waits) {
        tokio::task::yield_now().await;
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
            let threads = self.shared.threads.iter();
            threads.map(|thread| thread.connections.load(Ordering::Relaxed) as usize).collect()
        }
    }

    /// Threads that serve a load.
    struct Load {
        adaptation: Adaptation,
        /// How many commands arrive in a second, ...
        arriving: f64,
        /// ... how long one takes with one thread, ...
        cost: f64,
        /// ... and how much longer with each thread more, since they wait for each other.
        waiting: f64,
    }

    impl Load {
        fn new(threads: usize, arriving: f64) -> Self {
            Load { adaptation: Adaptation::new(threads), arriving, cost: 1e-5, waiting: 0.0 }
        }

        /// Serves so many intervals. Returns how many threads served in each of them.
        fn serve(&mut self, intervals: u32) -> Vec<usize> {
            let elapsed = INTERVAL.as_secs_f64();
            let intervals = (0..intervals).map(|_| {
                let serving = self.adaptation.serving;
                let cost = self.cost * (1.0 + self.waiting * (serving - 1) as f64);
                let rate = self.arriving.min(serving as f64 / cost);
                let load = rate * cost / serving as f64;
                let mut loads = vec![load; serving];
                loads.resize(self.adaptation.threads, 0.0);
                let commands = (rate * elapsed) as u64;
                self.adaptation.follow(&Interval { loads, commands, elapsed });
                serving
            });
            intervals.collect()
        }

        /// Returns how many threads serve most of the time.
        fn settled(&mut self) -> usize {
            let mut served = self.serve(1000);
            served.sort_unstable();
            served[500]
        }
    }

    #[test]
    fn as_many_threads_serve_as_the_load_needs() {
        for (arriving, threads) in [(0.0, 1), (8e4, 1), (1.2e5, 2), (2.5e5, 3), (1e6, 4)] {
            assert_eq!(Load::new(4, arriving).settled(), threads, "{arriving} a second");
        }
        // They are there soon.
        let mut load = Load::new(16, 1e9);
        assert_eq!(*load.serve(100).last().unwrap(), 16);
        // Three threads could do the work of four that are busy for less than 0.45 of their time.
        load = Load::new(4, 1e9);
        assert_eq!(load.settled(), 4);
        load.arriving = 2e5;
        load.adaptation.serving = 4;
        assert!(load.serve(100).iter().all(|serving| *serving == 4));
        load.arriving = 1.6e5;
        let served = load.serve(CALM_INTERVALS + 1);
        assert_eq!(served[CALM_INTERVALS as usize - 1..], [4, 3]);
        // A busy interval begins the count again.
        load.adaptation.serving = 4;
        load.serve(CALM_INTERVALS - 1);
        load.arriving = 2.8e5;
        load.serve(1);
        load.arriving = 1.6e5;
        assert!(load.serve(CALM_INTERVALS - 1).iter().all(|serving| *serving == 4));
    }

    #[test]
    fn threads_that_wait_for_each_other_serve_no_more_than_one() {
        // With two threads a command takes twice as long as with one.
        let mut load = Load::new(4, 1e9);
        load.waiting = 1.0;
        let served = load.serve(2000);
        let alone = served.iter().filter(|serving| **serving == 1).count();
        assert!(alone > 1900, "one thread served in {alone} of 2000 intervals");
        assert!(served.contains(&2), "no trial");
        // The load has changed, and soon two are tried again.
        load.waiting = 0.0;
        load.arriving = 0.0;
        load.serve(CALM_INTERVALS);
        load.arriving = 1e9;
        assert!(load.serve(100).contains(&4));
        // Those that serve already are sent away if they wait for each other.
        load.waiting = 1.0;
        assert_eq!(load.settled(), 1);
    }

    #[test]
    fn long_commands_get_threads_without_a_trial() {
        let mut load = Load::new(4, 1e9);
        (load.cost, load.waiting) = (1.0, 1.0);
        assert_eq!(*load.serve(20).last().unwrap(), 4);
    }

    #[test]
    fn threads_end_with_their_workers_although_they_wait_in_their_pollers() {
        let workers = Workers::start(3).unwrap();
        let busy: Vec<_> =
            workers.shared.threads.iter().map(|thread| Arc::downgrade(&thread.busy)).collect();
        // They have nothing to do, so they soon wait.
        std::thread::sleep(Duration::from_millis(20));
        drop(workers);
        let end = Instant::now() + Duration::from_secs(60);
        while busy.iter().any(|busy| busy.upgrade().is_some()) {
            assert!(Instant::now() < end, "a thread goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_works_between_its_pauses() {
        let busy = BusyTime::new();
        let nap = Duration::from_millis(5);
        let works = || (std::thread::sleep(nap), busy.total()).1;
        assert_eq!(works(), Duration::ZERO, "before it has begun");
        let begin = busy.resume();
        assert!(works() >= nap);
        let end = busy.pause();
        let total = busy.total();
        assert!(total <= end - begin && end - begin - total < Duration::from_micros(1));
        assert_eq!(works(), total, "in a pause");
        // Two pauses one after the other, of two threads that had the runtime one after the other.
        busy.pause();
        assert_eq!(busy.total(), total);
        busy.resume();
        assert!(works() >= total + nap);
    }

    #[test]
    fn replies_are_sent_together_if_many_connections_reply() {
        let burst = |replies: usize, waits: bool| {
            let together = (0..replies).filter(|_| Replies::note(waits)).count();
            let most_wait = Replies::most_wait();
            Replies::end_burst();
            (together, most_wait)
        };
        assert_eq!(burst(BURST - 1, false), (0, false));
        assert_eq!(burst(BURST + 1, false), (2, false));
        assert_eq!(burst(3, false), (3, false));
        assert_eq!(burst(3, true), (0, true));
        assert_eq!(burst(2, true), (0, true));
        assert_eq!(burst(3, false), (0, false));
    }
}
