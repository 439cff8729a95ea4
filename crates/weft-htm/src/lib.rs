//! Words that threads share, and hardware-transactional-memory regions with software twins, for the Weft
//! database.
//!
//! # Regions
//!
//! A *region* is a short stretch of code that the processor runs as one hardware transaction (Intel's RTM:
//! XBEGIN … XEND). Either everything that it wrote appears at once, or nothing does. In the second case memory
//! and registers are again what they were at XBEGIN, and the processor says why. The processor tracks by cache
//! line what a region reads and writes. Any access by another thread that collides with it, inside a region or
//! not, aborts the region. So a sequential algorithm in a region is a correct concurrent one, as long as it is
//! small: the lines that it writes must fit the first-level cache, and no interrupt may arrive while it runs.
//!
//! # Twins
//!
//! No region is ever sure to commit, and most processors have no RTM. Every region of Weft therefore has a
//! *software twin*: code that does the same with locks and validation. The two may run side by side, under one
//! rule. **A region tests the lock of every record and node that it touches**, and calls
//! [`Region::abort_locked`] if one is held. If a lock is taken later, while the region still runs, the line
//! that holds the lock is in the region's read set, so the region aborts. So a region never sees, nor
//! overwrites, the half-done work of a twin. A twin never sees the half-done work of a region, because no
//! thread can. There is no global fallback lock: a thread that falls back delays only threads that need the
//! same records. [`ElidedLock`] is the deliberate exception, for comparison: it is one lock for everything,
//! elided by one region for everything. [`lock`] has the locks of *No Free Lunch*. Each protects what its user
//! chooses, and a region can elide any of them.
//!
//! [`Regions::run`] returns `None` when the caller should run the twin: immediately if there is no hardware,
//! otherwise when the [`RetryPolicy`] has given up.
//!
//! ```
//! use weft_htm::{Choice, Htm, Regions, RetryPolicy, word::{Ordering, Word}};
//!
//! let htm = Htm::open(Choice::Auto, RetryPolicy::default()).unwrap();
//! let regions = Regions::new(&htm); // one per worker thread
//! let (lock, counter) = (Word::new(0), Word::new(41));
//!
//! let in_hardware = regions.run(
//!     |region| {
//!         if lock.load(Ordering::Acquire) != 0 {
//!             region.abort_locked();
//!         }
//!         counter.store(counter.load(Ordering::Acquire) + 1, Ordering::Release);
//!     },
//!     || lock.load(Ordering::Relaxed) != 0,
//! );
//! if in_hardware.is_none() {
//!     // The twin: the same work under the lock that the region tests.
//!     while lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {}
//!     counter.store(counter.load(Ordering::Acquire) + 1, Ordering::Release);
//!     lock.store(0, Ordering::Release);
//! }
//! assert_eq!(counter.load(Ordering::Acquire), 42);
//! ```
//!
//! # What a region must not do
//!
//! Each of these aborts the region, mostly as a system event. The twin would then do all the work:
//!
//! - a system call. So a region must not allocate or free, print, lock a mutex that another thread may hold, or
//!   read a clock that is not in user space;
//! - a panic. It unwinds inside the region until some instruction aborts it, is undone with the rest, and
//!   happens again in the twin, where it is real. Overflow and bounds checks that never fire cost nothing;
//! - [`word::spin_loop`] (PAUSE): a region never waits. It aborts, and the wait is outside;
//! - the first touch of a page, and any other fault. (On Linux only, pages of code are touched outside of
//!   regions. Otherwise a page that only regions execute would never be mapped);
//! - more written lines than the first-level cache, or one of its sets, holds: 8 or 12 lines at the same
//!   address modulo 4 KiB are the limit.
//!
//! Shared data that a region must read fresh is a [`word::Word`] or a [`word::WordPointer`], like any other
//! shared word. Use the orderings that the twin would use. Acquire loads and Release stores are plain moves, in
//! a region as outside, and pair with the twins of other threads. `compare_exchange` and its kind are not
//! needed in a region, where nothing can come between a load and a store.
//!
//! Weft never claims RTM on a machine without it. [`Htm::open`] asks the processor, then tries a region that
//! must commit and one that must roll back. [`Htm::backend`] returns what it found.
//!
//! # The simulated machine
//!
//! In a build with `--cfg weft_sim`, words and regions are those of `weft-sim`. The threads of a simulated run
//! are virtual cores, and a region is one of the simulator's model. There an abort cannot take the thread back
//! to where it was: the machine puts the words back, and the thread unwinds ([`Regions::restarting`] says how
//! far). Changes that a region makes to memory other than words are not undone, so a body must change nothing
//! else that matters. Outside of simulated runs there is no hardware.
//!
//! # Tests
//!
//! With the cargo feature `interleave`, each access to a shared word is a point where a test may let another
//! thread run, as a seed decides. See the module `interleave`, which exists only with the feature.
pub mod blocking;
#[cfg(any(test, loom, feature = "locks"))]
pub mod lock;
#[cfg(weft_sim)]
pub mod planted;
pub mod prefetch;
pub mod region;
#[cfg(weft_sanitize)]
mod sanitize;
mod status;
pub mod word;

// The hardware is one module with one interface, and only these lines choose which file implements it. Where a
// hardware region cannot exist, `Rtm` is a type without values, so that the compiler drops the hardware path.
#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, weft_sim))))]
mod rtm;
#[cfg(weft_sim)]
#[path = "rtm_simulated.rs"]
mod rtm;
#[cfg(not(any(all(target_arch = "x86_64", not(any(loom, shuttle))), weft_sim)))]
#[path = "rtm_absent.rs"]
mod rtm;

// The module that keeps the code of regions in memory is also chosen here. Where this cannot be done, it is
// empty.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(weft_sim)))]
mod code_pages;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(weft_sim))))]
#[path = "code_pages_absent.rs"]
mod code_pages;

// The scheduling points of the shared words are also chosen here. Where they are not built in, they are empty.
#[cfg(all(feature = "interleave", not(any(loom, shuttle, weft_sim))))]
pub mod interleave;
#[cfg(not(all(feature = "interleave", not(any(loom, shuttle, weft_sim)))))]
#[path = "interleave_absent.rs"]
mod interleave;
#[cfg(feature = "interleave")]
pub mod seeds;

/// The simulated machine that the words and regions of this build belong to.
#[cfg(weft_sim)]
pub use weft_sim as simulation;

pub use region::{
    Backend, Choice, ElidedLock, Htm, InvalidChoice, OpenOutcome, Region, Regions, RetryPolicy,
    Statistics, StatisticsReader, Unavailable,
};
