//! Seeded interleavings of real threads: two cores find the bugs that eighty would, and a seed repeats them.
//!
//! The module exists with the cargo feature `interleave`, for tests. Without it the operating system chooses
//! where a thread is interrupted. On a machine of few cores that happens some hundred times a second, and
//! hardly ever between the two loads where it would do harm.
//!
//! # Runs
//!
//! [`run`] takes a seed and some bodies, and gives each body a thread of its own. Only the thread that holds
//! the *baton* runs. Each access to a shared [`Word`](crate::word::Word) or
//! [`WordPointer`](crate::word::WordPointer) is a *point*: just before it, numbers drawn from the seed decide
//! whether the baton passes on, and to which thread. A *wait* is a call of [`spin_loop`] or [`yield_now`] (the
//! ones of [`word`](crate::word)), or the locking of a [`Mutex`] that another thread holds. A wait always
//! passes the baton on, because only another thread can end it. The end of a thread counts as part of its body,
//! including the destructors of thread-locals. So a worker that leaves is interleaved too.
//!
//! ```text
//!    seed ──> strategy ──> after how many points, and to which thread
//!                             │
//!    thread 0  ──load─store─load─┐              ┌─load─store──
//!    thread 1                    └─load─(wait)─┐ │
//!    thread 2                                  └─┘            time ──>
//! ```
//!
//! So the run is a function of the seed, as long as the bodies are deterministic: they use no clock, no
//! addresses, no hash order, and random numbers from the seed only. [`Run::fingerprint`] sums up all decisions.
//! If two runs of a seed have equal fingerprints, they are the same interleaving. Threads that are not bodies
//! of the run, like the one that ticks the epochs, go on as always, and their accesses to shared words come at
//! arbitrary times. A decision inside a hardware region aborts the region, and interrupts abort hardware
//! regions as well. So use the software twins in runs that must repeat.
//!
//! ```
//! use weft_htm::interleave::{self, Options};
//! use weft_htm::word::{Ordering, Word};
//!
//! // Two threads count with a load and a store, which is not atomic. Some seed shows the lost update.
//! let loses = |seed| {
//!     let counter = Word::new(0);
//!     let count = || counter.store(counter.load(Ordering::Acquire) + 1, Ordering::Release);
//!     interleave::run(seed, &Options::default(), vec![count, count]);
//!     counter.load(Ordering::Acquire) == 1
//! };
//! let seed = (0..100).find(|&seed| loses(seed)).expect("a lost update");
//! assert!(loses(seed), "the seed repeats it");
//! ```
//!
//! # Strategies
//!
//! [`Strategy::Random`] passes the baton at every point with the same probability, to any other thread. The
//! probability decides which bugs it finds. A race within three accesses needs many switches. A race in which a
//! whole transaction happens in the middle of another needs few. So the probability differs from seed to seed.
//!
//! [`Strategy::Priorities`] is the probabilistic concurrency testing of Burckhardt, Kothari, Musuvathi and
//! Nagarakatte (ASPLOS 2010). Threads get random priorities, and the live thread with the highest one runs. At
//! d − 1 points, chosen at random among the k points of the run, the priority of the running thread falls below
//! all others. A bug that takes d ordered events to show is hit with a probability of at least 1 / (n ·
//! k^(d−1)) for n threads, however far apart the events are. For the bugs that people make, d is small. A
//! thread that waits falls to the bottom, because otherwise no thread would ever release it. That is an
//! addition to the theorem, which does not consider waiting by spinning.
//!
//! # Ends
//!
//! If a body panics, the others run on, and `run` panics too when all have ended. The run also panics if all
//! threads only wait for each other ([`Options::waits_max`]), or try in vain again and again
//! ([`Options::points_max`]). The message then says the seed and where each thread is. Bodies that wait for
//! each other by other means than the shared words, such as a channel, stop the run for ever: the thread that
//! holds the baton goes to sleep with it.
//!
//! # What it does not explore
//!
//! It explores interleavings only. Every run is sequentially consistent: no store waits in a buffer, and no
//! load comes early. So a missing fence, or too weak an ordering, does not show. (The compiler may reorder, and
//! has done so before the run begins.) For that there is loom (`--cfg loom`): the same words exist under it and
//! orderings count, but it can finish only models of tens of accesses. shuttle (`--cfg shuttle`) draws
//! interleavings as this module does, of models built for it. This module runs the engine itself, as users
//! build it, with its real allocations, its threads and thread-locals, and millions of accesses a second. The
//! simulated machine adds what the others lack: time, caches, and hardware regions that conflict.
//!
//! # Waits without a run
//!
//! A test that plays a schedule step by step, with each transaction on a thread of its own, must know when a
//! step waits for another transaction. [`SpinCounter`] tells it: a thread that goes on spinning while all
//! others are idle waits for one of them.
use std::fmt;
use std::panic::Location;

pub use crate::seeds::{SEED_VARIABLE, for_each_seed};
pub use mutex::Mutex;
pub use pause::Pause;
pub use waits::{SpinCounter, spin_loop, yield_now};

use crate::word::{Ordering, WATCHES};

mod baton;
mod core;
mod mutex;
mod pause;
mod strategy;
mod waits;

/// The type for the bodies of a run if they are not all of one type.
pub type Body<'a, R> = Box<dyn FnOnce() -> R + Send + 'a>;

/// How a run finds the points at which another thread goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// Half of the seeds take [`Random`](Strategy::Random) with 2, 8, 32 or 128, the other half
    /// [`Priorities`](Strategy::Priorities) with 1 to 4 changes.
    #[default]
    FromSeed,
    /// Switch at each point with a probability of one in `one_in`, to any other thread.
    Random {
        /// At least 1. (Above 1000, it draws distances between switches instead, with this average.)
        one_in: u32,
    },
    /// Switch by priorities that change `changes` times. This finds bugs of depth `changes` + 1.
    Priorities {
        /// The number of change points, d − 1.
        changes: u32,
    },
}

impl fmt::Display for Strategy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::FromSeed => write!(out, "a strategy from the seed"),
            Strategy::Random { one_in } => write!(out, "random switches, one in {one_in}"),
            Strategy::Priorities { changes } => write!(out, "priorities with {changes} changes"),
        }
    }
}

/// The options of a run, apart from its seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// How to choose the switches.
    pub strategy: Strategy,
    /// [`Strategy::Priorities`] changes priorities at points below this number. It should be about the
    /// [`Run::points`] of such a run, rather more than less.
    pub points_expected: u64,
    /// A run that has not ended after this many points panics: its threads seem to block each other for ever.
    pub points_max: u64,
    /// If all threads together wait this many times, and no thread changes a shared word in between, the run
    /// panics: they wait for each other. (It does not panic within the first second, because they may wait for
    /// a thread outside the run.)
    pub waits_max: u64,
    /// Whether to keep [`Run::trace`].
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            strategy: Strategy::FromSeed,
            points_expected: 10_000,
            points_max: 50_000_000,
            waits_max: 1_000_000,
            trace: false,
        }
    }
}

/// One passing of the baton from a body to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// How many points all threads had passed before it.
    pub point: u64,
    /// The body that held the baton; `None` at the start of the run.
    pub from: Option<usize>,
    /// The body that gets the baton.
    pub to: usize,
    /// The access or wait that `from` was about to make; `None` at the start of the run and at the end of
    /// `from`.
    pub place: Option<&'static Location<'static>>,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Run<R> {
    /// The values that the bodies returned, in the bodies' order.
    pub results: Vec<R>,
    /// The strategy that the seed chose.
    pub strategy: Strategy,
    /// The number of accesses to shared words, and of explicit [`point`]s.
    pub points: u64,
    /// How often the baton passed to another thread.
    pub switches: u64,
    /// A hash of all switches.
    pub fingerprint: u64,
    /// All switches if [`Options::trace`] asks for them, otherwise empty.
    pub trace: Vec<Switch>,
}

/// Runs each body on a thread of its own, one at a time, interleaved as `seed` decides. Returns when all
/// threads have ended.
///
/// # Panics
///
/// If a body panics, with its panic; or if the bodies do not end (see the [module](crate::interleave)). The
/// seed is printed first.
pub fn run<R: Send, B: FnOnce() -> R + Send>(
    seed: u64,
    options: &Options,
    bodies: Vec<B>,
) -> Run<R> {
    baton::run(seed, options, bodies)
}

/// Is a point without an access to a shared word.
#[inline(always)]
#[track_caller]
pub fn point() {
    let _ = Access::begin();
}

/// Returns whether this thread is a body of a run.
pub fn is_running() -> bool {
    baton::is_running()
}

/// One access to a shared word: the point before it, and whether it changed something.
pub(crate) struct Access {
    is_watched: bool,
}

impl Access {
    /// Is called before the access.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn begin() -> Access {
        let is_watched = is_watched();
        if is_watched {
            pause::point();
            baton::point(Location::caller());
        }
        Access { is_watched }
    }

    /// Is called after the access, if it changed something.
    #[inline(always)]
    pub(crate) fn wrote(self) {
        if self.is_watched {
            baton::note_write();
        }
    }
}

/// Returns whether there is any run or any counting of waits in this process now. If not, this load and a
/// branch are the whole cost of the feature.
#[inline(always)]
fn is_watched() -> bool {
    // Relaxed: a thread that takes part in a run was started after the run was added, and a thread that is
    // counted added itself. For all other threads either answer is fine.
    WATCHES.load(Ordering::Relaxed) != 0
}

/// Keeps [`is_watched`] true while it lives.
struct Watch;

impl Watch {
    fn begin() -> Watch {
        // Relaxed: see `is_watched`.
        WATCHES.fetch_add(1, Ordering::Relaxed);
        Watch
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Relaxed: see `is_watched`.
        WATCHES.fetch_sub(1, Ordering::Relaxed);
    }
}
