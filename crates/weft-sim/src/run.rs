//! Runs: programs on virtual cores, from the first point to the last.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::local::Locals;
use crate::machine::{Aborted, Counts, Machine, THREADS_MAX};
use crate::profile::{LINE_BYTES, Profile};
use crate::schedule::{AtRandom, ByPriority, Chooser, Point, Replayed, Schedule, Trace};

/// What one virtual core runs.
pub type Program<'a> = Box<dyn FnOnce() + 'a>;

/// Programs that run together, and what must hold when all have ended.
pub struct Case<'a> {
    /// One for each core.
    pub programs: Vec<Program<'a>>,
    /// Says what is wrong at the end, if anything is.
    pub check: Box<dyn FnOnce() -> Result<(), String> + 'a>,
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Case").field("programs", &self.programs.len()).finish_non_exhaustive()
    }
}

impl Case<'_> {
    /// Runs the programs, and checks.
    ///
    /// # Errors
    /// As for [`run`]; [`Failure::Wrong`].
    ///
    /// # Panics
    /// As for [`run`].
    pub fn run(self, options: &Options) -> Result<Report, Failure> {
        let chooser = chooser(options, self.programs.len());
        self.run_with(options, chooser)
    }

    pub(crate) fn run_with(
        self,
        options: &Options,
        chooser: Option<Box<dyn Chooser>>,
    ) -> Result<Report, Failure> {
        let report = run_with(options, self.programs, chooser)?;
        match (self.check)() {
            Ok(()) => Ok(report),
            Err(message) => {
                Err(Failure::Wrong { message, seed: options.seed, trace: report.trace })
            }
        }
    }
}

/// Memory that a program has for itself on each core, its stack above all, of whose accesses the machine
/// is not told one by one. They are stood for by stores to the lines of a ring: so many of them, one after
/// the other, for each [operation](crate::sync::operate) of the program. So they take room in the first
/// level and in regions that last for several operations, the more of it the more these are. (A region
/// within an operation has few such lines, and uses them all the time.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateMemory {
    /// Lines of the ring of each core.
    pub lines: u32,
    /// Stores of an operation.
    pub lines_per_operation: u32,
}

impl PrivateMemory {
    /// None at all.
    pub const NONE: PrivateMemory = PrivateMemory { lines: 0, lines_per_operation: 0 };
}

/// Where the rings are, for the machine, which knows addresses only: nowhere near what a process uses.
const RINGS: u64 = 0x7fff_0000_0000_0000;
/// How far the rings of two cores are apart, at least.
const RING_BYTES_MAX: u64 = 1 << 32;

/// How to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine.
    pub profile: &'static Profile,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Who runs next.
    pub schedule: Schedule,
    /// Cycles of computing that each access of a shared word stands for, beside the access itself: 4 by
    /// default. (A transaction of TPC-C has 15 instructions for each, *measured*: at two for a cycle they
    /// take as long as four cycles and a hit of the first level.)
    pub cycles_per_access: u64,
    /// What the program uses beside shared words.
    pub private_memory: PrivateMemory,
    /// Bytes of the stack of a virtual core.
    pub stack_bytes: usize,
    /// After so many waits in a row, by all cores together, of which none saw a word change, nobody
    /// will get on any more.
    pub waits_max: u64,
    /// The run ends after so many points.
    pub points_max: u64,
}

impl Options {
    /// A run by virtual time.
    pub fn new(profile: &'static Profile, seed: u64) -> Options {
        Options {
            profile,
            seed,
            schedule: Schedule::Time,
            cycles_per_access: 4,
            private_memory: PrivateMemory::NONE,
            stack_bytes: 1 << 20,
            waits_max: 4_000_000,
            points_max: u64::MAX,
        }
    }

    /// The same with another schedule.
    pub fn schedule(mut self, schedule: Schedule) -> Options {
        self.schedule = schedule;
        self
    }
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Cycles until the last program had ended.
    pub cycles: u64,
    /// The clock of each core at the end of its program.
    pub clocks: Vec<u64>,
    /// What each core has done.
    pub counts: Vec<Counts>,
    /// How many points the run had.
    pub points: u64,
    /// How it went, if it was not by virtual time.
    pub trace: Trace,
}

/// Why a run has no end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// All cores that have not ended wait, and no word changes: a deadlock.
    #[error(
        "no core gets on: {waiting:?} wait for ever, at {clocks:?} cycles (seed {seed})\n{trace}"
    )]
    Deadlock {
        /// The cores that have not ended.
        waiting: Vec<usize>,
        /// The clocks of all cores.
        clocks: Vec<u64>,
        /// The run's seed.
        seed: u64,
        /// How it came to that.
        trace: Trace,
    },
    /// All programs have ended, and what they have left behind is wrong.
    #[error("{message} (seed {seed})\n{trace}")]
    Wrong {
        /// What is wrong.
        message: String,
        /// The run's seed.
        seed: u64,
        /// How it came to that.
        trace: Trace,
    },
    /// The run has passed [`Options::points_max`] points: perhaps a livelock.
    #[error("no end after {points} points (seed {seed})")]
    Endless {
        /// That many points.
        points: u64,
        /// The run's seed.
        seed: u64,
        /// How it came to that.
        trace: Trace,
    },
    /// A program has panicked. The others were given up where they stood.
    #[error("the program of core {core} panicked: {message} (seed {seed})\n{trace}")]
    Panicked {
        /// Its core.
        core: usize,
        /// The message, as far as it is a text.
        message: String,
        /// The run's seed.
        seed: u64,
        /// How it came to that.
        trace: Trace,
    },
}

impl Failure {
    /// How the run went until then.
    pub fn trace(&self) -> &Trace {
        match self {
            Failure::Deadlock { trace, .. }
            | Failure::Endless { trace, .. }
            | Failure::Wrong { trace, .. }
            | Failure::Panicked { trace, .. } => trace,
        }
    }
}

/// Why a core comes to a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Access,
    Wait,
}

/// A run under way, as its programs see it.
pub(crate) struct Run {
    pub(crate) machine: RefCell<Machine>,
    pub(crate) cycles_per_access: u64,
    private_memory: PrivateMemory,
    /// For each core, the line of its ring of private memory that is stored to next.
    ring_lines: Vec<Cell<u32>>,
    pub(crate) locals: Vec<Locals>,
    /// For each core, the status that its next attempt to begin a region answers with.
    pub(crate) pending: Vec<Cell<Option<u32>>>,
    /// For each core, whether it unwinds out of a region that was rolled back.
    pub(crate) unwinds: Vec<Cell<bool>>,
    /// For each core, where on its stack the function is to which an abort unwinds.
    pub(crate) catchers: Vec<Cell<usize>>,
    /// Whether the core that runs goes on at every point.
    pub(crate) is_uninterrupted: Cell<bool>,
    current: Cell<usize>,
    yielders: Vec<Cell<*const Yielder<(), ()>>>,
    /// Under [`Schedule::Time`]: the earliest clock of the other cores that run.
    next_clock: Cell<u64>,
    /// Under all others: who chooses.
    chooser: Option<RefCell<Box<dyn Chooser>>>,
    chosen: Cell<usize>,
    /// Cores that have not ended, a bit each.
    running: Cell<u128>,
    /// Of them, those that have waited since a word changed.
    waiting: Cell<u128>,
    waits: Cell<u64>,
    waits_max: u64,
    points: Cell<u64>,
    points_max: u64,
    switches: RefCell<Vec<(u64, usize)>>,
}

thread_local! {
    static CURRENT: Cell<*const Run> = const { Cell::new(ptr::null()) };
}

/// The run that this code is part of, if it is.
#[inline(always)]
pub(crate) fn current() -> Option<&'static Run> {
    // SAFETY: set for as long as a program of the run is being resumed, during which the run lives;
    // no caller keeps the reference beyond its own return into the program.
    unsafe { CURRENT.get().as_ref() }
}

impl Run {
    /// The core that runs.
    #[inline(always)]
    pub(crate) fn core(&self) -> usize {
        self.current.get()
    }

    /// Lets others go on, if the schedule says so.
    #[inline]
    pub(crate) fn point(&self, reason: Reason) {
        // Whatever unwinds does so in one go: the host counts panics by thread, and there is but
        // one.
        if self.is_uninterrupted.get() || std::thread::panicking() {
            return;
        }
        let number = self.points.get();
        self.points.set(number + 1);
        if reason == Reason::Wait {
            self.waits.set(self.waits.get() + 1);
        }
        let must_stop = number >= self.points_max || self.waits.get() > self.waits_max;
        match &self.chooser {
            None => {
                let clock = self.machine.borrow().clock(self.core());
                if clock > self.next_clock.get() || must_stop {
                    self.switch();
                }
            }
            Some(chooser) => {
                let current = self.core();
                if reason == Reason::Wait {
                    self.waiting.set(self.waiting.get() | 1 << current);
                }
                let next = self.choose(chooser, number, reason == Reason::Wait);
                if next != current || must_stop {
                    self.chosen.set(next);
                    self.switch();
                }
            }
        }
    }

    fn choose(&self, chooser: &RefCell<Box<dyn Chooser>>, number: u64, waits: bool) -> usize {
        let current = self.core();
        let running = self.running.get();
        let mut candidates = running & !self.waiting.get();
        let is_stalled = candidates == 0;
        if is_stalled {
            // All wait: perhaps for time to pass. Each goes on once, in turn.
            let me = 1 << current;
            self.waiting.set(running & me);
            candidates = if running & !me != 0 { running & !me } else { running };
        }
        let point = Point { number, current, candidates, waits, is_stalled };
        let chosen = chooser.borrow_mut().choose(point);
        debug_assert!(candidates & 1 << chosen != 0);
        if chosen != current {
            self.switches.borrow_mut().push((number, chosen));
        }
        chosen
    }

    /// Lets the running core do in its private memory what goes with an operation.
    pub(crate) fn use_private_memory(&self) -> Result<(), Aborted> {
        let PrivateMemory { lines, lines_per_operation } = self.private_memory;
        let core = self.core();
        let mut machine = self.machine.borrow_mut();
        for _ in 0..lines_per_operation {
            let line = self.ring_lines[core].get();
            self.ring_lines[core].set(if line + 1 < lines { line + 1 } else { 0 });
            let ring = RINGS + core as u64 * RING_BYTES_MAX;
            machine.access_private(core, ring + u64::from(line) * LINE_BYTES)?;
        }
        Ok(())
    }

    /// A word has changed: who waits may have a look.
    #[inline]
    pub(crate) fn progress(&self) {
        self.waits.set(0);
        self.waiting.set(0);
    }

    /// Lets others go on although this core unwinds: it waits for something that one of them holds.
    #[cold]
    pub(crate) fn give_way(&self) {
        let core = self.core();
        let cycles = {
            let mut machine = self.machine.borrow_mut();
            let cycles = machine.profile().latencies.yielding;
            let clock = machine.clock(core) + cycles;
            machine.sleep_until(core, clock);
            cycles
        };
        debug_assert!(cycles > 0, "or time would stand still");
        self.waits.set(self.waits.get() + 1);
        let others = self.running.get() & !(1 << core);
        if others != 0 {
            let next = Point { number: 0, current: core, candidates: others, ..Point::START };
            self.chosen.set(next.default());
            self.switch();
        }
    }

    fn switch(&self) {
        let yielder = self.yielders[self.core()].get();
        // SAFETY: the core is being resumed, since this is its code; its yielder lives on its own
        // stack, in a frame below this one.
        unsafe { (*yielder).suspend(()) };
    }

    fn trace(&self) -> Trace {
        Trace { cores: self.yielders.len(), switches: self.switches.borrow().clone() }
    }

    fn clocks(&self) -> Vec<u64> {
        let machine = self.machine.borrow();
        (0..self.yielders.len()).map(|core| machine.clock(core)).collect()
    }
}

type VirtualCore = Coroutine<(), (), Result<(), Box<dyn Any + Send>>, DefaultStack>;

/// Runs a program on each of the first hardware threads of a machine, until all have ended.
///
/// Programs may run anything. What they share must be words of [`sync`](crate::sync), and what they
/// keep by thread a [`Local`](crate::local::Local); they must not wait for each other by other means.
///
/// # Errors
/// A program panics, or the run does not end. Then programs that have not ended are given up where they
/// stand: what their stacks own is never dropped.
///
/// # Panics
/// There are no programs, or more than the machine has hardware threads; or a run is simulated already
/// on this thread.
pub fn run(options: &Options, programs: Vec<Program<'_>>) -> Result<Report, Failure> {
    let cores = programs.len();
    run_with(options, programs, chooser(options, cores))
}

/// Who chooses under the schedule of `options`; nobody if it is by virtual time.
fn chooser(options: &Options, cores: usize) -> Option<Box<dyn Chooser>> {
    match &options.schedule {
        Schedule::Time => None,
        Schedule::Random { switch_one_in } => {
            Some(Box::new(AtRandom::new(options.seed, *switch_one_in)))
        }
        Schedule::Priorities { depth, points } => {
            Some(Box::new(ByPriority::new(options.seed, cores, *depth, *points)))
        }
        Schedule::Replay(trace) => Some(Box::new(Replayed::new(trace.clone()))),
    }
}

/// As [`run`], with a chooser of the caller's, or by virtual time.
fn run_with(
    options: &Options,
    programs: Vec<Program<'_>>,
    chooser: Option<Box<dyn Chooser>>,
) -> Result<Report, Failure> {
    let cores = programs.len();
    assert!((1..=options.profile.threads()).contains(&cores), "{cores} programs");
    assert!(current().is_none(), "a simulation within a simulation");
    const { assert!(THREADS_MAX <= u128::BITS as usize) };
    let mut machine = Machine::new(options.profile, options.seed);
    (0..cores).for_each(|core| machine.set_running(core, true));
    let run = Run {
        machine: RefCell::new(machine),
        cycles_per_access: options.cycles_per_access,
        private_memory: options.private_memory,
        ring_lines: (0..cores).map(|_| Cell::new(0)).collect(),
        locals: (0..cores).map(|_| Locals::default()).collect(),
        pending: (0..cores).map(|_| Cell::new(None)).collect(),
        unwinds: (0..cores).map(|_| Cell::new(false)).collect(),
        catchers: (0..cores).map(|_| Cell::new(0)).collect(),
        is_uninterrupted: Cell::new(false),
        current: Cell::new(0),
        yielders: (0..cores).map(|_| Cell::new(ptr::null())).collect(),
        next_clock: Cell::new(0),
        chooser: chooser.map(RefCell::new),
        chosen: Cell::new(0),
        running: Cell::new(if cores == 128 { u128::MAX } else { (1 << cores) - 1 }),
        waiting: Cell::new(0),
        waits: Cell::new(0),
        waits_max: options.waits_max,
        points: Cell::new(0),
        points_max: options.points_max,
        switches: RefCell::new(Vec::new()),
    };
    let mut virtual_cores: Vec<VirtualCore> = programs
        .into_iter()
        .enumerate()
        .map(|(core, program)| {
            // SAFETY: only the lifetime changes. This function ends, in whatever way, after the
            // program has, or after its coroutine was forgotten, which then never runs again.
            let program: Program<'static> = unsafe { mem::transmute::<Program<'_>, _>(program) };
            let stack = DefaultStack::new(options.stack_bytes).expect("memory for a stack");
            Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
                let run = current().expect("a program runs as part of a run");
                run.yielders[core].set(yielder);
                let result = catch_unwind(AssertUnwindSafe(program));
                let ended = catch_unwind(AssertUnwindSafe(|| run.locals[core].end()));
                result.and(ended)
            })
        })
        .collect();
    let outcome = drive(&run, &mut virtual_cores, options);
    if outcome.is_err() {
        virtual_cores.into_iter().for_each(mem::forget);
        // What they would do at their end may wait for those that were given up.
        run.locals.iter().for_each(Locals::forget);
    }
    outcome
}

/// Resumes one core after the other, until all have ended.
fn drive(
    run: &Run,
    virtual_cores: &mut [VirtualCore],
    options: &Options,
) -> Result<Report, Failure> {
    let seed = options.seed;
    let cores = virtual_cores.len();
    let mut by_clock: BinaryHeap<Reverse<(u64, usize)>> =
        (0..cores).map(|core| Reverse((0, core))).collect();
    if let Some(chooser) = &run.chooser {
        let point = Point { candidates: run.running.get(), ..Point::START };
        let first = chooser.borrow_mut().choose(point);
        run.switches.borrow_mut().push((0, first));
        run.points.set(1);
        run.chosen.set(first);
    }
    while run.running.get() != 0 {
        let core = match run.chooser {
            None => {
                let Reverse((_, core)) = by_clock.pop().expect("some core has not ended");
                run.next_clock.set(by_clock.peek().map_or(u64::MAX, |Reverse((clock, _))| *clock));
                core
            }
            Some(_) => run.chosen.get(),
        };
        run.current.set(core);
        CURRENT.set(run);
        let resumed = virtual_cores[core].resume(());
        CURRENT.set(ptr::null());
        match resumed {
            CoroutineResult::Yield(()) => {
                by_clock.push(Reverse((run.machine.borrow().clock(core), core)));
            }
            CoroutineResult::Return(result) => {
                if let Err(panic) = result {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&s| s.to_owned()));
                    let message = text.unwrap_or_default();
                    return Err(Failure::Panicked { core, message, seed, trace: run.trace() });
                }
                run.machine.borrow_mut().set_running(core, false);
                run.running.set(run.running.get() & !(1 << core));
                run.progress();
                if let Some(chooser) = &run.chooser
                    && run.running.get() != 0
                {
                    let number = run.points.get();
                    run.points.set(number + 1);
                    run.chosen.set(run.choose(chooser, number, false));
                }
            }
        }
        if run.waits.get() > run.waits_max {
            let waiting = (0..cores).filter(|core| run.running.get() & 1 << core != 0).collect();
            return Err(Failure::Deadlock {
                waiting,
                clocks: run.clocks(),
                seed,
                trace: run.trace(),
            });
        }
        if run.points.get() > run.points_max {
            return Err(Failure::Endless { points: run.points.get(), seed, trace: run.trace() });
        }
    }
    let clocks = run.clocks();
    let machine = run.machine.borrow();
    Ok(Report {
        cycles: clocks.iter().copied().max().unwrap_or(0),
        clocks,
        counts: (0..cores).map(|core| machine.counts(core)).collect(),
        points: run.points.get(),
        trace: run.trace(),
    })
}
