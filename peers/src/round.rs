//! One round of one system: its threads, its clock and its count.
//!
//! ```text
//!            begin                              end
//!   warm-up    |            measured             |
//!  thread 0 ---|---------------------------------|-   all run one transaction after the other
//!  thread 1 ---|---------------------------------|-
//! ```
//!
//! Each thread counts its committed transactions in a cache line of its own. The coordinator, which otherwise
//! sleeps, reads the clock and the counts at both ends.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::disturbance::{ProcessorTime, TOLERATED_SHARE};
use crate::store::{Result, Store};
use crate::workloads::Workload;

/// The length of a round, and the machine that it runs on.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of processors of the machine.
    pub processors: usize,
    /// The time before the measurement.
    pub warmup: Duration,
    /// The time of the measurement.
    pub measured: Duration,
}

/// The result of one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// Committed transactions per second.
    pub rate: f64,
    /// How long the measurement took.
    pub seconds: f64,
    /// The share of the machine's processor time that other processes took; 0 if it is not known.
    pub others: f64,
    /// Whether the coordinator woke far too late, because the machine or its host stood still.
    pub is_late: bool,
}

impl Round {
    /// Returns whether something other than the round's system made it slow.
    pub fn is_disturbed(&self) -> bool {
        self.is_late || self.others > TOLERATED_SHARE
    }
}

/// A system that holds a workload's rows, and the clients of the workload.
pub trait Contender {
    /// Runs one round.
    ///
    /// # Errors
    /// Those of the clients.
    fn round(&mut self, plan: &Plan) -> Result<Round>;

    /// Checks the rows against what the clients have changed in all rounds.
    ///
    /// # Errors
    /// A description of the first difference.
    fn verify(&self) -> Result<()>;
}

/// A value that shares no cache line with another one. (Processors fetch cache lines in pairs.)
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// The contender that consists of a store and the clients of a workload.
pub struct StoreAndClients<S, W> {
    store: S,
    clients: Vec<Padded<W>>,
}

impl<S: Store, W: Workload> StoreAndClients<S, W> {
    /// Opens a store with the workload's rows, for as many threads.
    ///
    /// # Errors
    /// Those of the store.
    pub fn open(threads: usize, rows: u64) -> Result<Self> {
        let clients = (0..threads).map(|thread| Padded(W::new(thread, rows))).collect();
        Ok(StoreAndClients { store: S::open(rows)?, clients })
    }
}

impl<S: Store, W: Workload> Contender for StoreAndClients<S, W> {
    fn round(&mut self, plan: &Plan) -> Result<Round> {
        let store = &self.store;
        run_round(plan, &mut self.clients, |client: &mut W| client.run(store))
    }

    fn verify(&self) -> Result<()> {
        let clients: Vec<&W> = self.clients.iter().map(|Padded(client)| client).collect();
        W::verify(&clients, &self.store.numbers()?)
    }
}

/// The contender that inserts all rows into a new store in each round, with one thread. Its rate is in rows.
pub struct Loading<S> {
    rows: u64,
    /// The store of the last round.
    loaded: Option<S>,
}

impl<S: Store> Loading<S> {
    /// Creates the contender for stores with this number of rows.
    pub fn new(rows: u64) -> Self {
        Loading { rows, loaded: None }
    }
}

impl<S: Store> Contender for Loading<S> {
    fn round(&mut self, plan: &Plan) -> Result<Round> {
        // What the last round has taken is given back before the clock runs.
        self.loaded = None;
        let begin = Moment::now(&[]);
        self.loaded = Some(S::open(self.rows)?);
        let round = begin.round_until(&Moment::now(&[]), plan);
        Ok(Round { rate: self.rows as f64 / round.seconds, is_late: false, ..round })
    }

    fn verify(&self) -> Result<()> {
        let Some(store) = &self.loaded else { return Ok(()) };
        if store.numbers()?.len() as u64 == self.rows {
            return Ok(());
        }
        Err("wrong result: the number of rows".into())
    }
}

/// Runs a round, in which each client has a thread and does one piece of work after the other.
///
/// # Errors
/// Those of the clients.
pub fn run_round<C: Send>(
    plan: &Plan,
    clients: &mut [Padded<C>],
    work: impl Fn(&mut C) -> Result<()> + Sync,
) -> Result<Round> {
    let counts: Vec<_> = clients.iter().map(|_| Padded(AtomicU64::new(0))).collect();
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(counts.len() + 1));
    let (work, stop, ready) = (&work, &stop, &ready);
    let mut cores = core_affinity::get_core_ids().unwrap_or_default().into_iter();
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(counts.len());
        for (Padded(client), Padded(count)) in clients.iter_mut().zip(&counts) {
            let core = cores.next();
            threads.push(scope.spawn(move || {
                // Otherwise two threads may share a core for a part of the round.
                core.map(core_affinity::set_for_current);
                ready.wait();
                run_until_stopped(client, work, count, stop)
            }));
        }
        ready.wait();
        thread::sleep(plan.warmup);
        let begin = Moment::now(&counts);
        thread::sleep(plan.measured);
        let end = Moment::now(&counts);
        // Relaxed, here and for the counts: joining the threads orders everything else.
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a client panicked, see above")??;
        }
        Ok(begin.round_until(&end, plan))
    })
}

/// The loop of a client's thread.
fn run_until_stopped<C>(
    client: &mut C,
    work: impl Fn(&mut C) -> Result<()>,
    count: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let mut committed = 0;
    while !stop.load(Ordering::Relaxed) {
        work(client)?;
        committed += 1;
        count.store(committed, Ordering::Relaxed);
    }
    Ok(())
}

/// What the coordinator reads at an end of the measurement.
struct Moment {
    clock: Instant,
    committed: u64,
    processor_time: Option<ProcessorTime>,
}

impl Moment {
    fn now(counts: &[Padded<AtomicU64>]) -> Self {
        Moment {
            processor_time: ProcessorTime::now(),
            clock: Instant::now(),
            committed: counts.iter().map(|Padded(count)| count.load(Ordering::Relaxed)).sum(),
        }
    }

    /// Returns the result of the round from `self` to `end`.
    fn round_until(&self, end: &Moment, plan: &Plan) -> Round {
        let elapsed = end.clock - self.clock;
        let others = match (&self.processor_time, &end.processor_time) {
            (Some(begin), Some(end)) => begin.share_of_others(end, elapsed, plan.processors),
            _ => 0.0,
        };
        let seconds = elapsed.as_secs_f64();
        let rate = (end.committed - self.committed) as f64 / seconds;
        Round { rate, seconds, others, is_late: is_late(elapsed, plan.measured) }
    }
}

/// Returns whether a measurement took far longer than planned. A little is normal: when all processors are busy, the
/// coordinator waits for one.
fn is_late(elapsed: Duration, planned: Duration) -> bool {
    elapsed > planned + planned / 2 + Duration::from_millis(20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(clock: Instant, committed: u64) -> Moment {
        Moment { clock, committed, processor_time: None }
    }

    #[test]
    fn rate_is_that_of_the_time_that_has_passed() {
        let milliseconds = Duration::from_millis;
        let plan = Plan { processors: 2, warmup: Duration::ZERO, measured: milliseconds(500) };
        let clock = Instant::now();
        let begin = moment(clock, 100);
        let round = begin.round_until(&moment(clock + milliseconds(625), 350), &plan);
        assert_eq!((round.rate, round.seconds), (400.0, 0.625));
        assert!(!round.is_disturbed());
        let round = begin.round_until(&moment(clock + milliseconds(2_500), 350), &plan);
        assert_eq!(round.rate, 100.0);
        assert!(round.is_disturbed(), "the machine stood still for two seconds");
    }
}
