//! The threads of a run, and the baton that passes between them.
//!
//! The thread that holds the baton owns the [`Schedule`]. The mutex around it is contended only for the moment
//! of a hand-over. The holder knows in advance how many points it may pass until the next decision, and counts
//! them down in a thread-local, so every other point of a run costs one decrement. The holder makes every
//! decision, at the end of its turn.
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle, panicking};
use std::time::{Duration, Instant};

use super::core::Core;
use super::strategy::{Decisions, Why, mix};
use super::{Options, Run, SEED_VARIABLE, Switch, Watch, is_watched};

type Place = &'static Location<'static>;
type Panic = Box<dyn Any + Send>;

/// The least time without progress before a run is called a deadlock. Its threads may wait for one outside the
/// run, and the operating system may take a while to schedule that one.
const PATIENCE: Duration = Duration::from_secs(1);
/// After this many waits of all threads in a row, the processor is offered to threads outside the run.
const WAITS_BEFORE_YIELDING: u64 = 1000;
/// When a run has failed, threads that unwind get this many waits in a row to end.
const WAITS_MAX_ENDING: u64 = 100_000;

thread_local! {
    // The first three have no destructors, so a point need not check whether they still exist.
    /// Points until the next decision, at least 1. `u64::MAX` on threads outside runs.
    static POINTS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    /// The value of `POINTS_LEFT` after the last wait, or 0 if there was a decision since.
    static POINTS_LEFT_AT_WAIT: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread has changed a shared word since its last accounting.
    static WROTE: Cell<bool> = const { Cell::new(false) };
    /// This thread's part in a run.
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

/// The payload of the panic that unwinds a thread only because the run has failed.
struct Stopped;

// ---- what the words call ----------------------------------------------------------------------

/// Passes a point, before an access to a shared word.
#[cold]
#[inline(never)]
pub(super) fn point(place: Place) {
    let left = POINTS_LEFT.get() - 1;
    POINTS_LEFT.set(left);
    if left == 0 {
        pause(Why::Point, place);
        POINTS_LEFT_AT_WAIT.set(0);
    }
}

/// Is called after an access that changed a shared word: the run made progress.
#[cold]
#[inline(never)]
pub(super) fn note_write() {
    WROTE.set(true);
}

/// Waits: the baton passes to another thread. Outside runs this does nothing.
pub(super) fn wait(place: Place) {
    pause(Why::Wait, place);
    POINTS_LEFT_AT_WAIT.set(POINTS_LEFT.get());
}

/// Returns whether this thread has passed a point since its last wait.
pub(super) fn has_looked() -> bool {
    POINTS_LEFT.get() != POINTS_LEFT_AT_WAIT.get()
}

pub(super) fn is_running() -> bool {
    is_watched() && SEAT.try_with(|seat| seat.borrow().is_some()).unwrap_or(false)
}

fn pause(why: Why, place: Place) {
    // An error means that the destructor of the seat has run: the thread has left.
    let _ = SEAT.try_with(|seat| {
        if let Some(seat) = &*seat.borrow() {
            seat.baton.pause(seat.index, why, place);
        }
    });
}

// ---- threads ----------------------------------------------------------------------------------

/// A thread's part in a run. It ends with the last of the thread's destructors: those of thread-locals run in
/// the reverse order of their first use, and the seat is the first that a thread of a run uses.
struct Seat {
    baton: Arc<Baton>,
    index: usize,
}

impl Seat {
    /// Takes the seat for this thread, and waits for its first turn.
    fn take(baton: Arc<Baton>, index: usize) {
        let schedule = baton.wait_for_turn(baton.lock(), index);
        POINTS_LEFT.set(schedule.granted);
        drop(schedule);
        SEAT.set(Some(Seat { baton, index }));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.baton.leave(self.index);
    }
}

/// See [`super::run`].
pub(super) fn run<R: Send, B: FnOnce() -> R + Send>(
    seed: u64,
    options: &Options,
    bodies: Vec<B>,
) -> Run<R> {
    let _watch = Watch::begin();
    let baton = Baton::new(seed, options, bodies.len());
    let core = Core::current();
    let results: Vec<Option<R>> = thread::scope(|scope| {
        let threads: Vec<_> = bodies
            .into_iter()
            .enumerate()
            .map(|(index, body)| {
                let baton = &baton;
                let thread = thread::Builder::new().name(format!("interleaved {index}"));
                thread.spawn_scoped(scope, move || {
                    core.inspect(|core| core.keep_this_thread());
                    Seat::take(Arc::clone(baton), index);
                    baton.perform(index, body)
                })
            })
            .collect();
        baton.begin(&threads);
        // Joining a thread waits for its destructors too.
        threads.into_iter().map(|thread| thread.ok()?.join().ok()?).collect()
    });
    let mut schedule = baton.lock();
    let strategy = schedule.decisions.strategy();
    if let Some((thread, panic)) = schedule.panic.take() {
        eprintln!(
            "interleaved thread {thread} panicked: {SEED_VARIABLE}={seed} ({strategy}, {} points, \
             {} switches)",
            schedule.points, schedule.switches
        );
        drop(schedule);
        resume_unwind(panic);
    }
    Run {
        results: results.into_iter().map(|result| result.expect("ended without panic")).collect(),
        strategy,
        points: schedule.points,
        switches: schedule.switches,
        fingerprint: schedule.fingerprint,
        trace: schedule.trace.take().unwrap_or_default(),
    }
}

// ---- the baton --------------------------------------------------------------------------------

/// The state that the threads of a run share.
struct Baton {
    schedule: Mutex<Schedule>,
    /// One per thread, notified when the thread's turn comes.
    bells: Vec<Condvar>,
}

/// The state of a run, owned by the thread whose turn it is.
struct Schedule {
    seed: u64,
    options: Options,
    decisions: Decisions,
    /// The thread that holds the baton; `None` before the start and after the end.
    turn: Option<usize>,
    /// How many points the holder may pass until the next decision.
    granted: u64,
    threads: Vec<Thread>,
    /// The threads that have not ended, in ascending order.
    live: Vec<usize>,
    points: u64,
    switches: u64,
    fingerprint: u64,
    trace: Option<Vec<Switch>>,
    /// Waits of all threads since one last changed a shared word.
    waits: u64,
    /// When the first of these waits was.
    waiting_since: Instant,
    /// Whether the run has failed: then a thread that gets the baton unwinds.
    is_stopped: bool,
    /// The first panic of a body, with the body's index.
    panic: Option<(usize, Panic)>,
}

/// The schedule's record of a thread.
#[derive(Clone, Default)]
struct Thread {
    /// Where it was at its last accounting: the access or wait that comes next.
    place: Option<Place>,
    /// Its share of [`Schedule::waits`].
    waits: u64,
}

impl Baton {
    fn new(seed: u64, options: &Options, threads: usize) -> Arc<Baton> {
        let decisions = Decisions::new(options.strategy, seed, threads, options.points_expected);
        let schedule = Schedule {
            seed,
            options: options.clone(),
            decisions,
            turn: None,
            granted: 0,
            threads: vec![Thread::default(); threads],
            live: (0..threads).collect(),
            points: 0,
            switches: 0,
            fingerprint: 0,
            trace: options.trace.then(Vec::new),
            waits: 0,
            waiting_since: Instant::now(),
            is_stopped: false,
            panic: None,
        };
        let bells = (0..threads).map(|_| Condvar::new()).collect();
        Arc::new(Baton { schedule: Mutex::new(schedule), bells })
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        // The state is consistent also after a panic: no code panics in the middle of a change.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_turn<'b>(
        &'b self,
        schedule: MutexGuard<'b, Schedule>,
        thread: usize,
    ) -> MutexGuard<'b, Schedule> {
        self.bells[thread]
            .wait_while(schedule, |schedule| schedule.turn != Some(thread))
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the baton to the first thread, once all have started. If the operating system could not start one,
    /// the others end without having begun.
    fn begin<T>(&self, threads: &[std::io::Result<ScopedJoinHandle<'_, T>>]) {
        let mut schedule = self.lock();
        for (index, thread) in threads.iter().enumerate() {
            if let Err(error) = thread {
                schedule.live.retain(|&live| live != index);
                schedule.is_stopped = true;
                schedule.panic = Some((index, Box::new(format!("cannot start a thread: {error}"))));
            }
        }
        if schedule.live.is_empty() {
            return;
        }
        let Schedule { decisions, live, .. } = &mut *schedule;
        let first = decisions.first(live);
        schedule.pass(None, first, None);
        drop(schedule);
        self.bells[first].notify_one();
    }

    /// Runs the body of a thread whose turn has come. Returns `None` if the body panicked.
    fn perform<R>(&self, thread: usize, body: impl FnOnce() -> R) -> Option<R> {
        if self.lock().is_stopped {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(result) => Some(result),
            Err(panic) => {
                let mut schedule = self.lock();
                if schedule.panic.is_none() && !panic.is::<Stopped>() {
                    schedule.panic = Some((thread, panic));
                }
                None
            }
        }
    }

    /// Makes the decision that is due. The baton may pass on; then this returns when it is back.
    fn pause(&self, thread: usize, why: Why, place: Place) {
        let mut schedule = self.lock();
        schedule.account(why);
        schedule.threads[thread].place = Some(place);
        if let Some(failure) = schedule.failure(why, thread) {
            schedule.is_stopped = true;
            schedule.waits = 0;
            // A second panic of an unwinding thread would end the process.
            if !panicking() {
                // The next turn is the thread's own: its destructors run in it.
                schedule.pass(Some(thread), thread, Some(place));
                POINTS_LEFT.set(schedule.granted);
                drop(schedule);
                panic!("{failure}");
            }
        }
        // A thread outside the run may have to make progress first.
        if why == Why::Wait && schedule.waits > WAITS_BEFORE_YIELDING {
            drop(schedule);
            thread::yield_now();
            schedule = self.lock();
        }
        let next = schedule.next(why, thread);
        schedule.pass(Some(thread), next, Some(place));
        if next != thread {
            drop(schedule);
            self.bells[next].notify_one();
            schedule = self.wait_for_turn(self.lock(), thread);
        }
        POINTS_LEFT.set(schedule.granted);
        let is_stopped = schedule.is_stopped;
        drop(schedule);
        if is_stopped && !panicking() {
            // Not `panic!`, which would print a message: the cause is the panic of another thread.
            resume_unwind(Box::new(Stopped));
        }
    }

    /// Ends a thread's part: the baton passes for the last time.
    fn leave(&self, thread: usize) {
        let mut schedule = self.lock();
        schedule.account(Why::End);
        POINTS_LEFT.set(u64::MAX);
        schedule.live.retain(|&live| live != thread);
        if schedule.live.is_empty() {
            schedule.turn = None;
            return;
        }
        let next = schedule.next(Why::End, thread);
        schedule.pass(Some(thread), next, None);
        drop(schedule);
        self.bells[next].notify_one();
    }
}

impl Schedule {
    /// Accounts for what the thread whose turn it is did since it got the baton.
    fn account(&mut self, why: Why) {
        // At a decision all granted points are used up.
        let left = if why == Why::Point { 0 } else { POINTS_LEFT.get() };
        self.points += self.granted - left;
        self.granted = 0;
        // A change of a shared word is progress: the waits start again from 0.
        if WROTE.take() && self.waits > 0 {
            self.waits = 0;
            self.threads.iter_mut().for_each(|thread| thread.waits = 0);
        }
    }

    fn next(&mut self, why: Why, current: usize) -> usize {
        if why == Why::Point && self.is_stopped {
            return current;
        }
        self.decisions.next(why, self.points, current, &self.live)
    }

    /// Passes the baton, possibly back to the thread that has it.
    fn pass(&mut self, from: Option<usize>, to: usize, place: Option<Place>) {
        let ahead = match self.is_stopped {
            false => {
                let to_the_end = self.options.points_max.saturating_sub(self.points).max(1);
                self.decisions.points_ahead(self.points).min(to_the_end)
            }
            // The threads only unwind now, each in one piece except for waits.
            true => u64::MAX,
        };
        self.granted = ahead;
        self.turn = Some(to);
        if from == Some(to) {
            return;
        }
        self.switches += 1;
        self.fingerprint = mix(self.fingerprint ^ mix(self.points ^ mix(to as u64)));
        if let Some(trace) = &mut self.trace {
            trace.push(Switch { point: self.points, from, to, place });
        }
    }

    /// Counts a wait. Returns the reason if the run cannot go on.
    fn failure(&mut self, why: Why, thread: usize) -> Option<String> {
        if why == Why::Wait {
            if self.waits == 0 {
                self.waiting_since = Instant::now();
            }
            self.waits += 1;
            self.threads[thread].waits += 1;
        }
        if self.is_stopped {
            if self.waits > WAITS_MAX_ENDING && self.waiting_since.elapsed() > PATIENCE {
                eprintln!("the threads cannot even unwind: {}", self.whereabouts());
                std::process::abort();
            }
            return None;
        }
        let all_wait = self.waits >= self.options.waits_max
            && self.live.iter().all(|&thread| self.threads[thread].waits > 0)
            && self.waiting_since.elapsed() > PATIENCE;
        let what = if all_wait {
            "deadlock: all threads wait, and none of them changes a shared word"
        } else if self.points >= self.options.points_max {
            "no end after so many points"
        } else {
            return None;
        };
        Some(format!("{what}; {}", self.whereabouts()))
    }

    /// Describes the seed, and where each thread is.
    fn whereabouts(&self) -> String {
        let mut text = format!(
            "{SEED_VARIABLE}={} ({}), {} points, {} switches",
            self.seed,
            self.decisions.strategy(),
            self.points,
            self.switches
        );
        for (index, thread) in self.threads.iter().enumerate() {
            let is_live = self.live.contains(&index);
            // Writing to a string cannot fail.
            let _ = match thread.place {
                _ if !is_live => write!(text, "\n  thread {index} has ended"),
                None => write!(text, "\n  thread {index} has not paused yet"),
                Some(place) if thread.waits > 0 => {
                    write!(text, "\n  thread {index} waits at {place} ({} times)", thread.waits)
                }
                Some(place) => write!(text, "\n  thread {index} was last at {place}"),
            };
        }
        text
    }
}
