//! One measured round of one protocol: its threads, its clock, and its result.
//!
//! The coordinator (the calling thread) starts one thread per client and waits until all are ready. Then it fixes
//! the *window*, and all threads follow the clock:
//!
//! ```text
//!              window.from                                window.until
//!   warm-up         |                 measured                  |
//! client 0 --t----t-|--T----T--T----T------T-----T---T-------T--|--t
//! client 1 ---t--t--|-T--T------T-------T----T-----T-------T----|-t
//! ```
//!
//! A transaction counts (`T`) if it ends within the window. Each client reads the clock for the latencies anyway
//! (`tally`), so it needs no flag to learn that the time is up. In the loop the threads share only one word, which
//! is written only when a client fails. (With a timeline, each client has one more word, which the coordinator
//! reads: see `timeline`.) A transaction that is cut off at the end of the window is balanced, on average, by one
//! that began in the warm-up, so the rate is the count divided by the window's exact length. If the clock is read
//! only once for several transactions, they count together, by the end of the last one.
//!
//! The clients keep their state, such as the position in their random numbers, from one round to the next. Their
//! threads end with the round, so that a protocol has no threads while another has its turn.

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread::{self, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};

use core_affinity::CoreId;
use hdrhistogram::Histogram;
use weft::htm::word::{Ordering, Word};
use weft_protocols::CoordinatedDatabase;

use crate::arguments::BenchArguments;
use crate::progress::{Progress, REDRAW_INTERVAL};
use crate::stop::Stop;

use super::contender::System;
use super::elsewhere::ProcessorTime;
use super::probe::{self, Probe};
use super::report::Counters;
use super::tally::{Batch, Tally, ThreadTally};
use super::timeline::{self, Interval};

/// The plan of a run, the same for all its rounds.
pub struct Plan {
    /// Unmeasured time before the window.
    pub warmup: Duration,
    /// Length of the window.
    pub measured: Duration,
    /// The number of clients.
    pub threads: usize,
    /// Seed of the clients.
    pub seed: u64,
    /// The cores that the clients are pinned to; empty if there are fewer cores than clients.
    pub cores: Vec<CoreId>,
    /// Whether throughput over time is recorded.
    pub has_timeline: bool,
}

impl Plan {
    /// Returns the plan for the options.
    pub fn new(arguments: &BenchArguments) -> Self {
        let mut cores = core_affinity::get_core_ids().unwrap_or_default();
        if cores.len() < arguments.threads {
            cores.clear();
        }
        cores.truncate(arguments.threads);
        Plan {
            warmup: super::duration(arguments.warmup),
            measured: super::duration(arguments.seconds),
            threads: arguments.threads,
            seed: arguments.seed,
            cores,
            has_timeline: !arguments.timeline.is_empty(),
        }
    }
}

/// The measurements of one round.
#[derive(Clone, Debug)]
pub struct Round {
    /// When the window began.
    pub begun: Instant,
    /// The window's length.
    pub seconds: f64,
    /// Transactions of all types that committed.
    pub committed: u64,
    /// Transactions of all types that rolled back because the workload asks for it.
    pub rolled_back: u64,
    /// The engine's counters within the window.
    pub counters: Counters,
    /// Committed transactions over time; empty without a timeline.
    pub timeline: Vec<Interval>,
    /// The times in nanoseconds until a commit for which no thread waits is durable, if there is a log.
    pub durable_after_ns: Option<Histogram<u64>>,
    /// The number of cores that other processes kept busy, if the system tells.
    pub cores_elsewhere: Option<f64>,
    /// The 99th percentile of the latencies of all transaction types together, in nanoseconds; `None` without a sample.
    pub latency_p99_ns: Option<u64>,
    /// By thread, and for each by transaction type.
    pub by_thread: Vec<Vec<ThreadTally>>,
}

impl Round {
    /// Returns committed transactions per second.
    pub fn throughput(&self) -> f64 {
        self.committed as f64 / self.seconds
    }
}

/// The time in which a transaction must end to count.
struct Window {
    from: Instant,
    until: Instant,
}

/// The number of a client's transactions that have counted so far, for the timeline. It has a pair of neighbouring
/// cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct CommitCounter(Word);

/// The state that the threads of a round share.
struct RoundState {
    /// Set once, when all clients are ready.
    window: OnceLock<Window>,
    /// One for each client; empty without a timeline.
    counted: Vec<CommitCounter>,
    /// 1 if the round must end at once, because a client failed; else 0.
    stopped: Word,
    coordinator: Thread,
}

impl RoundState {
    /// Ends the round before its time.
    fn stop(&self) {
        // Relaxed: a thread that reads it only leaves its loop. The clients' results are ordered by joining their
        // threads.
        self.stopped.store(1, Ordering::Relaxed);
        self.coordinator.unpark();
    }

    /// Returns whether the round must end at once.
    #[inline]
    fn is_stopped(&self) -> bool {
        // Relaxed: see `stop`.
        self.stopped.load(Ordering::Relaxed) != 0
    }

    /// Sleeps until `deadline`, or until the round is stopped, and runs `tick` at its interval.
    fn wait_until(&self, deadline: Instant, tick: Option<Tick<'_>>) {
        while !self.is_stopped() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return;
            }
            match tick {
                Some(Tick { every, act }) => {
                    act();
                    thread::park_timeout(remaining.min(every));
                }
                None => thread::park_timeout(remaining),
            }
        }
    }

    /// Sleeps until `until`. At every interval since `from`, counts what the clients have committed in it.
    fn watch(&self, from: Instant, until: Instant, tick: Option<Tick<'_>>) -> Vec<Interval> {
        let (mut intervals, mut before, mut deadline) = (Vec::new(), 0, from);
        while deadline < until && !self.is_stopped() {
            deadline = until.min(deadline + timeline::INTERVAL);
            self.wait_until(deadline, tick);
            // Relaxed: each count only grows, and an increase that is not visible yet counts in the next interval.
            let counts =
                self.counted.iter().map(|CommitCounter(count)| count.load(Ordering::Relaxed));
            let now: u64 = counts.sum();
            intervals.push(Interval { until: from.elapsed(), committed: now - before });
            before = now;
        }
        intervals
    }
}

/// An action that the coordinator repeats while it sleeps.
#[derive(Clone, Copy)]
struct Tick<'a> {
    every: Duration,
    act: &'a dyn Fn(),
}

/// Stops the round if its thread panics; otherwise the other clients would run to the end for nothing.
struct StopOnPanic<'a>(&'a RoundState);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Ends the coordinator of the phases, also after a panic.
struct PhasesGuard<'a>(&'a Word);

impl Drop for PhasesGuard<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Relaxed);
    }
}

/// What the coordinator needs of a system.
struct Watched<'a> {
    name: &'static str,
    metrics: &'a dyn Fn() -> weft::Metrics,
    /// The database, if a thread of its own changes its phases.
    phases: Option<&'a (dyn CoordinatedDatabase + Sync)>,
}

/// What the thread of one client runs in a round, from its start to the end of the window. It drops the sender when it is
/// ready.
type ClientRun<'a> = Box<
    dyn FnOnce(&RoundState, mpsc::Sender<Infallible>) -> Result<Vec<Tally>, weft::Failure>
        + Send
        + 'a,
>;

/// Runs one round. `clients` has one element per thread, which is `None` before the first round. `totals` has one
/// tally per transaction type, to which the round's are added.
///
/// # Errors
/// The first failure of a client, with its thread.
pub fn run<D: System>(
    system: &D,
    clients: &mut [Option<D::Client>],
    totals: &mut [Tally],
    plan: &Plan,
    progress: &Progress,
) -> Result<Round, Stop> {
    let run_of = |(thread, client)| -> ClientRun<'_> {
        Box::new(move |shared, getting_ready| {
            run_client(system, client, thread, plan, shared, getting_ready)
        })
    };
    let clients = clients.iter_mut().enumerate().map(run_of).collect();
    let metrics = || system.metrics();
    let watched = Watched { name: system.name(), metrics: &metrics, phases: system.coordinator() };
    run_clients(&watched, clients, totals, plan, progress)
}

/// Starts the clients and coordinates them. (Compiled once, and not for each workload and protocol.)
fn run_clients(
    system: &Watched<'_>,
    clients: Vec<ClientRun<'_>>,
    totals: &mut [Tally],
    plan: &Plan,
    progress: &Progress,
) -> Result<Round, Stop> {
    let counters = if plan.has_timeline { plan.threads } else { 0 };
    let shared = RoundState {
        window: OnceLock::new(),
        counted: (0..counters).map(|_| CommitCounter::default()).collect(),
        stopped: Word::new(0),
        coordinator: thread::current(),
    };
    let phases_ended = Word::new(0);
    let phases_ended = &phases_ended;
    thread::scope(|scope| {
        // Nothing is ever sent. Each client drops its sender when it is ready, or when it panics.
        let (getting_ready, all_ready) = mpsc::channel::<Infallible>();
        let mut threads: Vec<ScopedJoinHandle<'_, _>> = Vec::with_capacity(plan.threads);
        let mut refused = None;
        for (thread, run_client) in clients.into_iter().enumerate() {
            let (shared, getting_ready) = (&shared, getting_ready.clone());
            let name = format!("client-{thread}");
            let body = move || {
                let _guard = StopOnPanic(shared);
                if let Some(&core) = plan.cores.get(thread) {
                    // If the system refuses the affinity, the thread runs unpinned.
                    core_affinity::set_for_current(core);
                }
                run_client(shared, getting_ready)
            };
            // If a thread cannot be started, the others still start, and the round is then stopped.
            match thread::Builder::new().name(name).spawn_scoped(scope, body) {
                Ok(handle) => threads.push(handle),
                Err(error) => refused = Some(error),
            }
        }
        drop(getting_ready);
        let Err(mpsc::RecvError) = all_ready.recv();
        if refused.is_some() {
            shared.stop();
        }
        let phases = PhasesGuard(phases_ended);
        let coordinator = system.phases.map(|database| {
            // Relaxed: the thread is joined.
            let goes_on = move || phases_ended.load(Ordering::Relaxed) == 0;
            scope.spawn(move || database.coordinate(&goes_on))
        });
        let mut round = coordinate(system, plan, &shared, progress);
        let tallies = join(threads, system.name)?;
        drop(phases);
        if let Some(Ok(Err(failure))) = coordinator.map(ScopedJoinHandle::join) {
            return Err(Stop::Failed(format!("{}, phases: {failure}", system.name)));
        }
        if let Some(error) = refused {
            return Err(Stop::Failed(format!("cannot start {} threads: {error}", plan.threads)));
        }

        let mut latency_ns = Tally::new().latency_ns;
        for tallies in tallies {
            round.by_thread.push(tallies.iter().map(ThreadTally::of).collect());
            for (total, tally) in totals.iter_mut().zip(&tallies) {
                round.committed += tally.committed;
                round.rolled_back += tally.rolled_back;
                latency_ns += &tally.latency_ns;
                total.add(tally);
            }
        }
        // A quantile is the upper end of its bucket, which may exceed the maximum.
        let p99 = latency_ns.value_at_quantile(0.99).min(latency_ns.max());
        round.latency_p99_ns = (!latency_ns.is_empty()).then_some(p99);
        Ok(round)
    })
}

/// Opens the window, and reads the engine's counters at its two ends. The returned round does not contain the
/// clients' results yet.
fn coordinate(
    system: &Watched<'_>,
    plan: &Plan,
    shared: &RoundState,
    progress: &Progress,
) -> Round {
    let start = Instant::now();
    let from = start + plan.warmup;
    let until = from + plan.measured;
    let set = shared.window.set(Window { from, until });
    assert!(set.is_ok(), "only the coordinator sets the window");
    let total_ms = (until - start).as_millis() as u64;
    let draw = || progress.set(start.elapsed().as_millis() as u64, total_ms);
    let drawing = Tick { every: REDRAW_INTERVAL, act: &draw };
    let drawing = progress.is_shown().then_some(drawing);

    shared.wait_until(from, drawing);
    let (before, processors) = ((system.metrics)(), ProcessorTime::now());
    let probe = Probe::of(&before).map(RefCell::new);
    // While the window is open, the probe looks at the database, and the progress line is redrawn.
    let look = || {
        if let Some(probe) = &probe {
            probe.borrow_mut().look(Instant::now(), &(system.metrics)());
        }
        if progress.is_shown() {
            draw();
        }
    };
    let looking = Tick { every: probe::INTERVAL, act: &look };
    let tick = if probe.is_some() { Some(looking) } else { drawing };
    let before = Counters::of(&before);
    let timeline = if plan.has_timeline { shared.watch(from, until, tick) } else { Vec::new() };
    shared.wait_until(until, tick);
    let elsewhere = ProcessorTime::now().zip(processors);
    Round {
        begun: from,
        seconds: plan.measured.as_secs_f64(),
        committed: 0,
        rolled_back: 0,
        counters: Counters::of(&(system.metrics)()).since(&before),
        timeline,
        durable_after_ns: probe.map(|probe| probe.into_inner().into_latency_ns()),
        cores_elsewhere: elsewhere.map(|(after, before)| after.others_since(before, plan.measured)),
        latency_p99_ns: None,
        by_thread: Vec::new(),
    }
}

/// Waits for all clients. Returns their tallies, or the first failure.
fn join(
    threads: Vec<ScopedJoinHandle<'_, Result<Vec<Tally>, weft::Failure>>>,
    protocol: &str,
) -> Result<Vec<Vec<Tally>>, Stop> {
    let mut tallies = Vec::with_capacity(threads.len());
    let mut failure = None;
    for (thread, handle) in threads.into_iter().enumerate() {
        match handle.join() {
            Ok(Ok(tally)) => tallies.push(tally),
            Ok(Err(error)) => {
                failure.get_or_insert(format!("{protocol}, client {thread}: {error}"));
            }
            Err(_panic) => {
                failure.get_or_insert(format!("{protocol}, client {thread} panicked, see above"));
            }
        }
    }
    match failure {
        None => Ok(tallies),
        Some(message) => Err(Stop::Failed(message)),
    }
}

/// Runs one client, from the start of its thread to the end of the window.
fn run_client<D: System>(
    system: &D,
    seat: &mut Option<D::Client>,
    thread: usize,
    plan: &Plan,
    shared: &RoundState,
    getting_ready: mpsc::Sender<Infallible>,
) -> Result<Vec<Tally>, weft::Failure> {
    // The client is moved out of `clients`: its elements are adjacent in memory, and a client is written all the
    // time.
    let mut client = seat.take().unwrap_or_else(|| system.client(plan.seed, thread, plan.threads));
    let mut tallies = vec![Tally::new(); D::TRANSACTIONS.len()];
    drop(getting_ready);
    let window = shared.window.wait();
    let counted = shared.counted.get(thread).map(|CommitCounter(counted)| counted);
    let ran = measure(system, &mut client, &mut tallies, window, shared, counted);
    if ran.is_err() {
        shared.stop();
    }
    *seat = Some(client);
    ran.map(|()| tallies)
}

/// The measured loop. Each iteration runs the transactions of one reading of the clock, and measures the latency of
/// the last one.
fn measure<D: System>(
    system: &D,
    client: &mut D::Client,
    tallies: &mut [Tally],
    window: &Window,
    shared: &RoundState,
    counted: Option<&Word>,
) -> Result<(), weft::Failure> {
    let mut batch = Batch::new(tallies.len());
    let per_sample = system.transactions_per_sample();
    let mut begun = Instant::now();
    while !shared.is_stopped() {
        if per_sample > 1 {
            for _ in 1..per_sample {
                batch.count(system.execute(client)?);
            }
            begun = Instant::now();
        }
        let outcome = system.execute(client)?;
        let ended = Instant::now();
        if ended >= window.until {
            break;
        }
        if ended >= window.from {
            let begun = outcome.begun.unwrap_or(begun);
            tallies[outcome.transaction].record(outcome.rolled_back, ended - begun);
            batch.add_to(tallies);
            if let Some(counted) = counted {
                let committed = tallies.iter().map(|tally| tally.committed).sum();
                // Relaxed: see `RoundState::watch`.
                counted.store(committed, Ordering::Relaxed);
            }
        }
        batch.clear();
        begun = ended;
    }
    // Transactions that were set aside must not wait until this contender's next round.
    system.finish(client)
}
