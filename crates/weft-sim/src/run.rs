//! Runs: programs on virtual cores, from their first point to their last.

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

/// The program of one virtual core.
pub type Program<'a> = Box<dyn FnOnce() + 'a>;

/// Programs that run together, and a check of what must hold when all have ended.
pub struct Case<'a> {
    /// One for each core.
    pub programs: Vec<Program<'a>>,
    /// Returns what is wrong at the end, if anything is.
    pub check: Box<dyn FnOnce() -> Result<(), String> + 'a>,
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Case").field("programs", &self.programs.len()).finish_non_exhaustive()
    }
}

impl Case<'_> {
    /// Runs the programs, and checks the result.
    ///
    /// # Errors
    /// As for [`run`], and [`Failure::Wrong`].
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

/// The memory that a program uses alone on each core, above all its stack. The machine does not see its
/// accesses one by one. Stores to the lines of a ring represent them: for each
/// [operation](crate::sync::operate) of the program, `lines_per_operation` stores, one after the other. So they
/// take room in the first level, and in regions that last for several operations, the more the longer the
/// regions are. (A region within an operation has few such lines, and uses them all the time.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateMemory {
    /// The number of lines in the ring of each core.
    pub lines: u32,
    /// The number of stores for each operation.
    pub lines_per_operation: u32,
}

impl PrivateMemory {
    /// No private memory.
    pub const NONE: PrivateMemory = PrivateMemory { lines: 0, lines_per_operation: 0 };
}

/// The address of the rings, for the machine, which knows only addresses. It is far from any address that a
/// process uses.
const RINGS: u64 = 0x7fff_0000_0000_0000;
/// The distance between the rings of two cores, at least.
const RING_BYTES_MAX: u64 = 1 << 32;

/// The options of a simulated run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine.
    pub profile: &'static Profile,
    /// Decides everything random.
    pub seed: u64,
    /// Decides which core runs next.
    pub schedule: Schedule,
    /// How many cycles of computing each access to a shared word stands for, in addition to the access itself.
    /// The default is 4. (A transaction of TPC-C has 15 instructions for each access, *measured*. At two per
    /// cycle they take as long as four cycles and a hit of the first level.)
    pub cycles_per_access: u64,
    /// What the program uses in addition to shared words.
    pub private_memory: PrivateMemory,
    /// Size of the stack of a virtual core in bytes.
    pub stack_bytes: usize,
    /// After this many waits in a row, by all cores together, in which no word has changed, the run counts as
    /// deadlocked.
    pub waits_max: u64,
    /// The run ends after this many points.
    pub points_max: u64,
}

impl Options {
    /// Makes the options of a run by virtual time.
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

    /// Replaces the schedule.
    pub fn schedule(mut self, schedule: Schedule) -> Options {
        self.schedule = schedule;
        self
    }
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Cycles until the last program had ended.
    pub cycles: u64,
    /// The clock of each core at the end of its program.
    pub clocks: Vec<u64>,
    /// The counts of each core.
    pub counts: Vec<Counts>,
    /// How many points the run had.
    pub points: u64,
    /// The switches of the run, unless it was by virtual time.
    pub trace: Trace,
}

/// Why a run did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A deadlock: all cores that have not ended wait, and no word changes.
    #[error(
        "deadlock: cores {waiting:?} wait for ever, at {clocks:?} cycles (seed {seed})\n{trace}"
    )]
    Deadlock {
        /// The cores that have not ended.
        waiting: Vec<usize>,
        /// The clocks of all cores.
        clocks: Vec<u64>,
        /// The run's seed.
        seed: u64,
        /// The switches that led to it.
        trace: Trace,
    },
    /// All programs have ended, but the check of their results failed.
    #[error("{message} (seed {seed})\n{trace}")]
    Wrong {
        /// What is wrong.
        message: String,
        /// The run's seed.
        seed: u64,
        /// The switches that led to it.
        trace: Trace,
    },
    /// The run has passed [`Options::points_max`] points: perhaps a livelock.
    #[error("no end after {points} points (seed {seed})")]
    Endless {
        /// The number of points.
        points: u64,
        /// The run's seed.
        seed: u64,
        /// The switches that led to it.
        trace: Trace,
    },
    /// A program has panicked. The others were given up where they were.
    #[error("the program of core {core} panicked: {message} (seed {seed})\n{trace}")]
    Panicked {
        /// Its core.
        core: usize,
        /// The panic's message, if it is a text.
        message: String,
        /// The run's seed.
        seed: u64,
        /// The switches that led to it.
        trace: Trace,
    },
}

impl Failure {
    /// Returns how the run went until then.
    pub fn trace(&self) -> &Trace {
        match self {
            Failure::Deadlock { trace, .. }
            | Failure::Endless { trace, .. }
            | Failure::Wrong { trace, .. }
            | Failure::Panicked { trace, .. } => trace,
        }
    }
}

/// Why a core is at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Access,
    Wait,
}

/// A run in progress, as its programs see it.
pub(crate) struct Run {
    pub(crate) machine: RefCell<Machine>,
    pub(crate) cycles_per_access: u64,
    private_memory: PrivateMemory,
    /// For each core, the line of its ring of private memory that is stored to next.
    ring_lines: Vec<Cell<u32>>,
    pub(crate) locals: Vec<Locals>,
    /// For each core, the status that its next attempt to begin a region returns.
    pub(crate) pending: Vec<Cell<Option<u32>>>,
    /// For each core, whether it unwinds out of a region that was rolled back.
    pub(crate) unwinds: Vec<Cell<bool>>,
    /// For each core, the stack address of the function to which an abort unwinds.
    pub(crate) catchers: Vec<Cell<usize>>,
    /// Whether the current core goes on at every point.
    pub(crate) is_uninterrupted: Cell<bool>,
    current: Cell<usize>,
    yielders: Vec<Cell<*const Yielder<(), ()>>>,
    /// Under [`Schedule::Time`]: the earliest clock of the other cores that have not ended.
    next_clock: Cell<u64>,
    /// Under all other schedules: what chooses the next core.
    chooser: Option<RefCell<Box<dyn Chooser>>>,
    chosen: Cell<usize>,
    /// Cores that have not ended, one bit each.
    running: Cell<u128>,
    /// The cores among them that have waited since a word last changed.
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

/// Returns the run that this code is part of, if there is one.
#[inline(always)]
pub(crate) fn current() -> Option<&'static Run> {
    // SAFETY: the pointer is set while a program of the run is being resumed, and the run lives during that. No
    // caller keeps the reference beyond its own return into the program.
    unsafe { CURRENT.get().as_ref() }
}

impl Run {
    /// Returns the core that runs.
    #[inline(always)]
    pub(crate) fn core(&self) -> usize {
        self.current.get()
    }

    /// Lets other cores run, if the schedule says so.
    #[inline]
    pub(crate) fn point(&self, reason: Reason) {
        // A thread that unwinds does so in one go: the host counts panics by thread, and all cores are one
        // thread.
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
            // All wait, perhaps for time to pass. Let each go on once, in turn.
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

    /// Makes the accesses to private memory of the current core that go with one operation.
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

    /// Notes that a word has changed: cores that wait may check it.
    #[inline]
    pub(crate) fn progress(&self) {
        self.waits.set(0);
        self.waiting.set(0);
    }

    /// Lets other cores run although this core unwinds, because it waits for something that one of them holds.
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
        // SAFETY: the core is being resumed, because this is its code. Its yielder lives on its own stack, in a
        // frame below this one.
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
/// Programs may run any code. What they share must be words of [`sync`](crate::sync), and what they keep by
/// thread must be a [`Local`](crate::local::Local). They must not wait for each other by other means.
///
/// # Errors
/// If a program panics, or the run does not end. Programs that have not ended are then given up where they are:
/// what their stacks own is never dropped.
///
/// # Panics
/// If there are no programs, or more than the machine has hardware threads, or if this thread already simulates
/// a run.
pub fn run(options: &Options, programs: Vec<Program<'_>>) -> Result<Report, Failure> {
    let cores = programs.len();
    run_with(options, programs, chooser(options, cores))
}

/// Returns what chooses the next core under the schedule of `options`. `None` if the schedule is by virtual
/// time.
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

/// Like [`run`], with a chooser from the caller, or by virtual time.
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
            // SAFETY: only the lifetime changes. This function ends, in any way, only after the program has
            // ended, or after its coroutine was forgotten, which then never runs again.
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
        // What the drops of these values do may wait for the programs that were given up.
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
    // Resume the chosen core until it suspends itself at a point, or ends.
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
