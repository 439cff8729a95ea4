//! Seeded interleavings of real threads: two cores find what eighty would, and a seed repeats it.
//!
//! Built with the cargo feature `interleave`, for tests. A thread is then no longer at the mercy
//! of the operating system as to where it is interrupted, which on a machine of few cores happens
//! some hundred times a second and hardly ever between the two loads where it would hurt.
//!
//! # Runs
//!
//! [`run`] takes a seed and some bodies, and gives each body a thread of its own. Only the thread
//! that holds the *baton* runs. Each access to a shared [`Word`](crate::word::Word) or
//! [`WordPointer`](crate::word::WordPointer) is a *point*: just before it, numbers drawn from the
//! seed decide whether the baton passes on, and to whom. A *wait*, which is a call of
//! [`spin_loop`] or [`yield_now`] (the ones of [`word`](crate::word)), or a [`Mutex`] that somebody
//! else holds, always passes it on, since only somebody else can bring about what is waited for.
//! The end of a thread counts as part of its body, destructors of thread-locals included: a worker
//! that leaves is interleaved too.
//!
//! ```text
//!    seed ──> strategy ──> after how many points, and to whom
//!                             │
//!    thread 0  ──load─store─load─┐              ┌─load─store──
//!    thread 1                    └─load─(wait)─┐ │
//!    thread 2                                  └─┘            time ──>
//! ```
//!
//! So the run is a function of the seed, as far as the bodies are: no clock, no addresses, no hash
//! order, random numbers from the seed only. [`Run::fingerprint`] sums up all decisions; equal
//! fingerprints of equal seeds are the same interleaving. Threads that are not bodies of the run,
//! like the one that ticks the epochs, go on as always, and what they do to shared words falls
//! where it falls. A decision that falls into a hardware region aborts the region, and real ones
//! are aborted by interrupts as well: use the software twins in runs that are to repeat.
//!
//! ```
//! use weft_htm::interleave::{self, Options};
//! use weft_htm::word::{Ordering, Word};
//!
//! // Two threads count with a load and a store, as if nobody else did. Some seed shows the loss.
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
//! [`Strategy::Random`] passes the baton at every point with the same probability, to anybody. How
//! large it is decides what is found: a race within three accesses wants many switches, one that
//! takes a whole transaction to happen in the middle of another wants few. So seeds differ in it.
//!
//! [`Strategy::Priorities`] is the probabilistic concurrency testing of Burckhardt, Kothari,
//! Musuvathi and Nagarakatte (ASPLOS 2010). Threads get random priorities, and the highest that
//! there is runs, except that at d − 1 points, chosen at random among the k of the run, whoever
//! runs then falls below all others. A bug that takes d ordered events to show is hit with a
//! probability of at least 1 / (n · k^(d−1)) for n threads, however long they are in between; and
//! d is small for the bugs that people make. A thread that waits falls to the bottom, or nobody
//! would ever release it; that is not in the theorem, which knows no waiting by spinning.
//!
//! # Ends
//!
//! A body that panics ends by that, the others run on, and `run` panics likewise when all have
//! ended. If all only wait for each other ([`Options::waits_max`]), or try in vain again and again
//! ([`Options::points_max`]), the run panics with a message that says the seed and who is where.
//! Bodies that wait for each other by other means than the shared words, such as a channel, stop
//! the run for ever: the one that holds the baton sleeps with it.
//!
//! # What it does not explore
//!
//! Interleavings only. Every run is sequentially consistent: no store waits in a buffer, and no
//! load comes early, so that a missing fence or too weak an ordering does not show. (The compiler
//! has its liberties, and has taken them before the run begins.) That is for loom, under which
//! the same words exist (`--cfg loom`) and orderings count, but of which only models of tens of
//! accesses come to an end; shuttle (`--cfg shuttle`) draws interleavings as this does, of models
//! built for it. Here it is the engine itself, as users build it, with its real allocations, its
//! threads and thread-locals, and millions of accesses a second. The simulated machine adds
//! what none of them has: time, caches, and hardware regions that conflict.
//!
//! # Waits without a run
//!
//! A test that plays a schedule step by step, each transaction on a thread of its own, must know
//! when a step waits for another transaction. [`SpinCounter`] tells: a thread that goes on
//! spinning while all others are idle waits for one of them.
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

/// A body of a run, where they are not all of one type.
pub type Body<'a, R> = Box<dyn FnOnce() -> R + Send + 'a>;

/// How the points are found at which another thread goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// Half of the seeds take [`Random`](Strategy::Random) with 2, 8, 32 or 128, the other half
    /// [`Priorities`](Strategy::Priorities) with 1 to 4 changes.
    #[default]
    FromSeed,
    /// At each point with a probability of one in so many, to any of the others.
    Random {
        /// At least 1. (Above 1000, it is rather that distances are drawn, of this average.)
        one_in: u32,
    },
    /// By priorities that change so often; this finds bugs of a depth of one more than that.
    Priorities {
        /// The change points, d − 1.
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

/// What a run goes by, beside its seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the switches are chosen.
    pub strategy: Strategy,
    /// [`Strategy::Priorities`] changes priorities at points below this number: about what
    /// [`Run::points`] says of such a run, rather more than less.
    pub points_expected: u64,
    /// A run that has not ended after so many points panics: its threads are in each other's way
    /// for ever.
    pub points_max: u64,
    /// A run in which all threads wait so many times in a row, and none changes a shared word
    /// meanwhile, panics: they wait for each other. (Not within the first second, since they may
    /// wait for a thread outside the run.)
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

/// One passing of the baton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Points of all threads before it.
    pub point: u64,
    /// The body that held it; `None` at the start of the run.
    pub from: Option<usize>,
    /// The body that goes on.
    pub to: usize,
    /// The access or the wait before which `from` stands; `None` at the start and at its end.
    pub place: Option<&'static Location<'static>>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Run<R> {
    /// What the bodies returned, in their order.
    pub results: Vec<R>,
    /// The strategy, as the seed chose it.
    pub strategy: Strategy,
    /// Accesses to shared words, and explicit [`point`]s.
    pub points: u64,
    /// How often the baton passed to another thread.
    pub switches: u64,
    /// Sums up all switches.
    pub fingerprint: u64,
    /// All switches, if [`Options::trace`] asks for them; else empty.
    pub trace: Vec<Switch>,
}

/// Runs each body on a thread of its own, one at a time, interleaved as `seed` decides. Returns
/// when all threads have ended.
///
/// # Panics
///
/// If a body panics, with its panic; if the bodies come to no end (see the
/// [module](crate::interleave)). The seed is then printed.
pub fn run<R: Send, B: FnOnce() -> R + Send>(
    seed: u64,
    options: &Options,
    bodies: Vec<B>,
) -> Run<R> {
    baton::run(seed, options, bodies)
}

/// A point where there is no access to a shared word.
#[inline(always)]
#[track_caller]
pub fn point() {
    let _ = Access::begin();
}

/// Whether this thread is a body of a run.
pub fn is_running() -> bool {
    baton::is_running()
}

/// One access to a shared word: a point before it, and what it did.
pub(crate) struct Access {
    is_watched: bool,
}

impl Access {
    /// Before the access.
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

    /// After the access, if it changed something.
    #[inline(always)]
    pub(crate) fn wrote(self) {
        if self.is_watched {
            baton::note_write();
        }
    }
}

/// Whether there is any run or any counting of waits in this process now. If not, this load and a
/// branch are all that the feature costs.
#[inline(always)]
fn is_watched() -> bool {
    // Relaxed: a thread that takes part in a run was started after the run was added, and a thread
    // that is counted added itself. For all others either answer will do.
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
