//! The observer: what it keeps for each worker, and what a worker's thread does at the end of attempts.
//!
//! Counts are exact: a worker adds to words of its own. Times are sampled: a worker times about one transaction in
//! [`PERIOD_NS`], and the timed transaction stands for all that have committed since the one before it. After a conflict
//! a transaction is timed in any case, from the conflict on, since it has lost far more time than that takes.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use weft::encoding::EncodedKey;
use weft::htm::word::{Ordering, Word};
use weft::store::observer::{
    Ending, Label, LabelCounts, Observed, ObservedConflict, Observer, WorkerObserver,
};
use weft::store::record::newest;
use weft::store::table::TableRef;
use weft::store::worker::{Counters, LoggedWrite, WorkerMemory, WriteOutcome, contain};

use crate::labels::{Counts, Labels, Times, kind_of};
use crate::sketch::{self, Place, Point, Sketch};

/// About how much time passes between two transactions of a worker that are timed.
pub(crate) const PERIOD_NS: u64 = 200_000;

/// The most transactions for which a timed one stands.
const WEIGHT_MAX: u64 = 1 << 16;

/// How long an attempt is taken to last if none with its label was timed.
const ATTEMPT_NS_DEFAULT: u64 = 1_000;

/// Of how many writes of a timed transaction it is looked up whether they are at a known point.
const WRITES_LOOKED_UP: usize = 8;

/// How many times longer the time between two such searches is than a search, on average.
const SEARCH_SPACING: u64 = 200;

/// How far searches may run ahead of this average.
const SEARCH_AHEAD_NS: u64 = 10_000_000;

/// For how many points the workers look for writers.
const HOT_MAX: usize = 64;

/// After how many conflicts at a record the workers look for its writers.
const HOT_AFTER: u64 = 2;

/// The longest row of which changes are kept, in bytes.
const CHANGED_ROW_BYTES_MAX: usize = 1_024;

/// How many waits of a transaction are kept until it holds no lock.
const WAITS_MAX: usize = 16;

/// The observer of a database.
#[derive(Debug)]
pub(crate) struct Hub {
    pub began: Instant,
    clock: Option<fn() -> u64>,
    pub labels: Mutex<Labels>,
    pub workers: Mutex<Vec<Arc<WorkerState>>>,
    /// How long commits were waited for, by label.
    pub log_ns: Mutex<Vec<u64>>,
    /// The points at which all workers look for writers, and how often the list has changed.
    hot: Mutex<Arc<Vec<HotPoint>>>,
    hot_changes: Word,
}

/// A record at which transactions have conflicted repeatedly.
#[derive(Clone, Debug)]
struct HotPoint {
    table: TableRef,
    key: EncodedKey,
}

/// What a worker has observed, for reports.
#[derive(Debug, Default)]
pub(crate) struct WorkerState {
    pub labels: Mutex<Vec<Arc<LabelState>>>,
    pub sketch: Mutex<Sketch>,
    /// What was seen of the writers of hot records.
    pub writes: Mutex<Vec<Point>>,
}

/// What a worker has observed of a label.
#[derive(Debug)]
pub(crate) struct LabelState {
    pub number: usize,
    pub committed: Arc<LabelCounts>,
    pub counts: Counts,
    pub times: Mutex<Times>,
    /// How long attempts have lasted lately.
    attempt_ns: Word,
}

/// Locks a mutex. Every value in one is valid after each statement, so a panic does no harm.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// `clock` returns the time in nanoseconds, if it is not the system's.
    pub fn new(clock: Option<fn() -> u64>) -> Hub {
        Hub {
            began: Instant::now(),
            clock,
            labels: Mutex::default(),
            workers: Mutex::default(),
            log_ns: Mutex::default(),
            hot: Mutex::default(),
            hot_changes: Word::new(0),
        }
    }

    /// Lets all workers look for writers of a record.
    fn watch(&self, table: TableRef, key: &EncodedKey) {
        let mut hot = hold(&self.hot);
        if hot.iter().any(|point| point.table == table && point.key == *key) {
            return;
        }
        let skipped = (hot.len() + 1).saturating_sub(HOT_MAX);
        let mut points: Vec<_> = hot.iter().skip(skipped).cloned().collect();
        points.push(HotPoint { table, key: key.clone() });
        *hot = Arc::new(points);
        // Relaxed: a worker that sees the change late looks for writers late.
        self.hot_changes.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        match self.clock {
            None => self.began.elapsed().as_nanos() as u64,
            Some(clock) => clock(),
        }
    }
}

thread_local! {
    /// The hub and the label of the thread's last commit in a database with a log.
    static LAST_COMMIT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

impl Observer for Hub {
    fn worker(self: Arc<Self>, slot: usize) -> Box<dyn WorkerObserver> {
        Box::new(Watch::new(self, slot))
    }

    fn waited_for_log(&self, time: Duration) {
        let (hub, label) = LAST_COMMIT.get();
        if hub == std::ptr::from_ref(self).addr() {
            let mut log_ns = hold(&self.log_ns);
            if log_ns.len() <= label {
                log_ns.resize(label + 1, 0);
            }
            log_ns[label] += time.as_nanos() as u64;
        }
    }
}

impl Hub {
    /// Returns the hub of a database that has one.
    pub fn of(observer: &Arc<dyn Observer>) -> Option<&Hub> {
        #[cfg(feature = "tracing")]
        let observer = crate::slow::SlowHub::of(observer).map_or(observer, |slow| &slow.inner);
        let observer: &dyn Any = &**observer;
        observer.downcast_ref()
    }
}

/// The times of the transaction under way.
#[derive(Clone, Copy, Default)]
struct AttemptTimes {
    /// When the transaction, the attempt and the commit have begun. 0 if it is not known.
    began: u64,
    attempt_began: u64,
    commit_began: u64,
    /// What the attempts so far took.
    closure: u64,
    commit: u64,
}

impl AttemptTimes {
    /// Ends the attempt.
    fn end_attempt(&mut self, now: u64) {
        if self.attempt_began == 0 {
            return;
        }
        let closure_ended = if self.commit_began == 0 { now } else { self.commit_began };
        self.closure += closure_ended.saturating_sub(self.attempt_began);
        self.commit += now.saturating_sub(closure_ended);
        (self.attempt_began, self.commit_began) = (0, 0);
    }
}

/// A point at which the transaction under way was aborted, and when.
#[derive(Clone, Copy)]
struct LostAt {
    place: Place,
    at: u64,
}

/// Observes a worker, on its thread.
struct Watch {
    hub: Arc<Hub>,
    state: Arc<WorkerState>,
    labels: RefCell<Vec<Arc<LabelState>>>,
    /// The positions in `labels`, by the labels' addresses.
    positions: RefCell<FxHashMap<(usize, usize), usize>>,
    random: Cell<u64>,
    /// For how many transactions the next timed one stands.
    weight: Cell<u64>,
    timed_at: Cell<u64>,
    times: Cell<AttemptTimes>,
    lost_at: Cell<Option<LostAt>>,
    /// Waits of the transaction under way, which may hold locks.
    waits: RefCell<Vec<(TableRef, NonNull<u8>, u64)>>,
    /// The hub's list of hot points, and how often it had changed.
    hot: RefCell<(u64, Arc<Vec<HotPoint>>)>,
    /// When the searches so far would be over if they kept to the average.
    searched_until: Cell<u64>,
}

// SAFETY: the addresses of tables and records belong to the database, and not to a thread.
unsafe impl Send for Watch {}

impl Watch {
    fn new(hub: Arc<Hub>, slot: usize) -> Watch {
        let state = Arc::new(WorkerState::default());
        hold(&hub.workers).push(Arc::clone(&state));
        Watch {
            hub,
            state,
            labels: RefCell::default(),
            positions: RefCell::default(),
            // Any odd number does.
            random: Cell::new((slot as u64) << 1 | 1),
            weight: Cell::new(1),
            timed_at: Cell::new(0),
            times: Cell::default(),
            lost_at: Cell::new(None),
            waits: RefCell::default(),
            hot: RefCell::default(),
            searched_until: Cell::new(0),
        }
    }

    /// Returns the hot points.
    fn hot(&self) -> Arc<Vec<HotPoint>> {
        let mut hot = self.hot.borrow_mut();
        let changes = self.hub.hot_changes.load(Ordering::Relaxed);
        if hot.0 != changes {
            *hot = (changes, Arc::clone(&hold(&self.hub.hot)));
        }
        Arc::clone(&hot.1)
    }

    /// Calls `act` with what is known of a label. `act` runs no code of the user's.
    fn with_label<R>(&self, label: Label, act: impl FnOnce(&LabelState) -> R) -> R {
        let known = self.positions.borrow().get(&label.address()).copied();
        let position = known.unwrap_or_else(|| {
            let number = hold(&self.hub.labels).number_of(label);
            let mut labels = self.labels.borrow_mut();
            let position = labels.iter().position(|known| known.number == number);
            let position = position.unwrap_or_else(|| {
                let state = Arc::new(LabelState::new(number));
                hold(&self.state.labels).push(Arc::clone(&state));
                labels.push(state);
                labels.len() - 1
            });
            self.positions.borrow_mut().insert(label.address(), position);
            position
        });
        act(&self.labels.borrow()[position])
    }

    /// Adds a transaction that was timed, and decides when the next one is.
    fn add_timed(&self, observed: &Observed) {
        let now = self.hub.now();
        let mut times = self.times.take();
        if times.began == 0 {
            return;
        }
        times.end_attempt(now);
        let weight = self.weight.get();
        let latency = now.saturating_sub(times.began);
        self.with_label(observed.label(), |known| {
            hold(&known.times).add([times.closure, times.commit, latency], weight);
            let attempt = times.closure + times.commit;
            let before = known.attempt_ns.load(Ordering::Relaxed);
            let mean = if before == 0 { attempt } else { (before * 7 + attempt) / 8 };
            known.attempt_ns.store(mean, Ordering::Relaxed);
        });
        // Time the next transaction in about `PERIOD_NS`, if they go on as since the last one. The distance is random,
        // so that it does not follow the program's own rhythm.
        let each = (now.saturating_sub(self.timed_at.get()) / weight).max(1);
        let mean = (PERIOD_NS / each).clamp(1, WEIGHT_MAX.min(weight * 8));
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let weight = 1 + random % (2 * mean - 1);
        self.weight.set(weight);
        observed.untimed.set(weight - 1);
        self.timed_at.set(now);
    }

    /// Calls `act` with the point of a record, or of a range. This runs the user's code to learn the key of a new point.
    ///
    /// # Safety
    /// The worker is pinned, and has been since it found the record.
    unsafe fn at_point(
        &self,
        (table, record): (TableRef, Option<NonNull<u8>>),
        memory: &WorkerMemory,
        act: impl FnOnce(&mut Point),
    ) -> Place {
        let place = (sketch::address_of(table), record.map_or(0, |record| record.addr().get()));
        if let Some(point) = hold(&self.state.sketch).get(place) {
            self.add_conflict(point, act);
            return place;
        }
        // The lock is not held while the user's code runs.
        // SAFETY: by this function's contract.
        let row = record.and_then(|record| unsafe { newest(record) });
        let key = row.and_then(|row| key_of(table, row, memory));
        let place = if key.is_some() { place } else { (place.0, 0) };
        let mut sketch = hold(&self.state.sketch);
        if sketch.get(place).is_none() {
            sketch.insert(place, Point::new(table, key));
        }
        self.add_conflict(sketch.get(place).expect("it was inserted"), act);
        place
    }

    /// Calls `act` with a point at which the transaction has conflicted.
    fn add_conflict(&self, point: &mut Point, act: impl FnOnce(&mut Point)) {
        act(point);
        point.conflicts += 1;
        if point.conflicts == HOT_AFTER
            && let Some(key) = &point.key
        {
            self.hub.watch(point.table, key);
        }
    }

    /// Adds the waits of the transaction under way, which holds no lock any more.
    fn add_waits(&self, label: Label, memory: &WorkerMemory) {
        for (table, record, time) in self.waits.take() {
            let number = self.with_label(label, |known| {
                Counters::add(&known.counts.lost_ns, time);
                Counters::add(&known.counts.waiting_ns, time);
                known.number
            });
            // SAFETY: the transaction has not ended, so the worker is pinned, and has found the record.
            unsafe {
                self.at_point((table, Some(record)), memory, |point| point.wait(number, time));
            }
        }
    }

    /// Notes what a timed transaction is about to write at known points. This runs the user's code.
    fn note_write(
        &self,
        write: &LoggedWrite,
        number: usize,
        hot: &[HotPoint],
        memory: &WorkerMemory,
    ) {
        let table = write.table;
        let (row, before) = match write.written {
            WriteOutcome::Row(row) | WriteOutcome::Deleted(row) => (row, None),
            WriteOutcome::Changed { row, before } => (row, Some(before)),
        };
        let Some(key) = key_of(table, row, memory) else { return };
        if !hot.iter().any(|point| point.table == table && point.key == key) {
            return;
        }
        let core = table.core();
        let mut stored = [Vec::new(), Vec::new()];
        let is_stored = contain(|| {
            memory.in_user_code(|| {
                if let Some(before) = before
                    && (core.description)(core.name).is_some()
                {
                    // SAFETY: rows of the table, which are not freed during the call. It has a description.
                    unsafe {
                        core.encode_row(before, &mut stored[0]);
                        core.encode_row(row, &mut stored[1]);
                    }
                }
            });
        });
        let [before, after] = stored;
        let mut points = hold(&self.state.writes);
        let known = points
            .iter()
            .position(|point| point.table == table && point.key.as_ref() == Some(&key));
        let position = known.unwrap_or_else(|| {
            if points.len() == HOT_MAX {
                points.remove(0);
            }
            points.push(Point::new(table, Some(key)));
            points.len() - 1
        });
        let point = &mut points[position];
        point.label(number).writes += self.weight.get();
        if is_stored && !after.is_empty() && before.len().max(after.len()) <= CHANGED_ROW_BYTES_MAX
        {
            point.keep_change(before, after);
        }
    }
}

/// Returns a row's key, as the index holds it. Runs the user's code, and returns `None` if that panics.
fn key_of(table: TableRef, row: NonNull<u8>, memory: &WorkerMemory) -> Option<EncodedKey> {
    let mut key = None;
    contain(|| {
        // SAFETY: a row of the table, and the worker is pinned since before it was found.
        key = Some(memory.in_user_code(|| unsafe { table.core().index_key(row) }));
    });
    key
}

impl LabelState {
    fn new(number: usize) -> LabelState {
        LabelState {
            number,
            committed: Arc::default(),
            counts: Counts::default(),
            times: Mutex::new(Times::new()),
            attempt_ns: Word::new(0),
        }
    }
}

impl WorkerObserver for Watch {
    fn counts(&self, label: Label) -> Arc<LabelCounts> {
        self.with_label(label, |known| Arc::clone(&known.committed))
    }

    fn begun(&self, observed: &Observed) {
        let now = self.hub.now();
        let mut times = self.times.get();
        if observed.attempt.get() == 0 {
            times = AttemptTimes { began: now, ..AttemptTimes::default() };
        } else if let Some(lost) = self.lost_at.take() {
            let wait = now.saturating_sub(lost.at);
            let number = self.with_label(observed.label(), |known| {
                Counters::add(&known.counts.lost_ns, wait);
                Counters::add(&known.counts.waiting_ns, wait);
                known.number
            });
            if let Some(point) = hold(&self.state.sketch).get(lost.place) {
                point.wait(number, wait);
            }
        }
        times.attempt_began = now;
        self.times.set(times);
    }

    fn committing(
        &self,
        observed: &Observed,
        list_writes: &mut dyn FnMut(&mut Vec<LoggedWrite>),
        memory: &WorkerMemory,
    ) {
        let mut times = self.times.get();
        times.commit_began = self.hub.now();
        self.times.set(times);
        if times.commit_began + SEARCH_AHEAD_NS < self.searched_until.get() {
            return;
        }
        let hot = self.hot();
        if hot.is_empty() {
            return;
        }
        let number = self.with_label(observed.label(), |known| known.number);
        let mut writes = Vec::new();
        list_writes(&mut writes);
        writes.retain(|write| hot.iter().any(|point| point.table == write.table));
        for write in writes.iter().take(WRITES_LOOKED_UP) {
            self.note_write(write, number, &hot, memory);
        }
        let took = self.hub.now().saturating_sub(times.commit_began);
        let until = self.searched_until.get().max(times.commit_began);
        self.searched_until.set(until + SEARCH_SPACING * took);
    }

    fn committed(&self, observed: &Observed, memory: &WorkerMemory) {
        let label = observed.label();
        if memory.is_staging() {
            let number = self.with_label(label, |known| known.number);
            LAST_COMMIT.set((Arc::as_ptr(&self.hub).addr(), number));
        }
        self.add_waits(label, memory);
        if observed.is_timed() {
            self.add_timed(observed);
        }
    }

    fn conflicted(&self, observed: &Observed, conflict: ObservedConflict, memory: &WorkerMemory) {
        let now = self.hub.now();
        let label = observed.label();
        self.add_waits(label, memory);
        let mut times = self.times.get();
        let is_known =
            times.attempt_began != 0 && (observed.is_timed() || observed.attempt.get() > 0);
        let began = times.attempt_began;
        if !conflict.is_repaired {
            times.end_attempt(now);
            self.times.set(times);
        }
        let (number, lost) = self.with_label(label, |known| {
            let counts = &known.counts;
            let lost = match (conflict.is_repaired, is_known) {
                (true, _) => 1,
                (false, true) => now.saturating_sub(began),
                (false, false) => match known.attempt_ns.load(Ordering::Relaxed) {
                    0 => ATTEMPT_NS_DEFAULT,
                    mean => mean,
                },
            };
            match conflict.is_repaired {
                true => Counters::add(&counts.repairs, 1),
                false => Counters::add(&counts.aborts[conflict.reason as usize], 1),
            }
            Counters::add(&counts.lost_ns, lost);
            (known.number, lost)
        });
        // SAFETY: the transaction has not ended, so the worker is pinned, and has found the record.
        let place = unsafe {
            self.at_point((conflict.table, conflict.record), memory, |point| {
                point.lose(number, lost);
                match conflict.is_repaired {
                    true => point.repairs += 1,
                    false => point.label(number).aborts[conflict.reason as usize] += 1,
                }
            })
        };
        if !conflict.is_repaired {
            self.lost_at.set(Some(LostAt { place, at: now }));
        }
    }

    fn rolled_back(&self) {
        self.waits.borrow_mut().clear();
    }

    fn failed(&self, label: Label, ending: Ending<'_>) {
        self.with_label(label, |known| Counters::add(&known.counts.failures[kind_of(ending)], 1));
    }

    fn waited(&self, table: TableRef, record: NonNull<u8>, time: Duration) {
        let mut waits = self.waits.borrow_mut();
        if waits.len() < WAITS_MAX {
            waits.push((table, record, time.as_nanos() as u64));
        }
    }
}
